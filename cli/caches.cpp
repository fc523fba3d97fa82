// SPDX-License-Identifier: Apache-2.0
//
// Reads /sys/devices/system/cpu/cpu0/cache; see caches.h. Read next: info.cpp.
#include "caches.h"

#include <charconv>
#include <fstream>
#include <string_view>

namespace regard::program {

std::vector<Cache> caches() {
  std::vector<Cache> found;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const auto line = [&folder](const char* name) {
      std::string text;
      std::ifstream file(folder + name);
      std::getline(file, text);
      return text;
    };
    const std::string level = line("level");
    const std::string size = line("size");  // "32K"
    Cache cache{0, line("type"), 0, line("shared_cpu_list")};
    if (std::from_chars(level.data(), level.data() + level.size(), cache.level).ec != std::errc()) break;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
    if (error != std::errc()) break;
    const std::string_view unit(end, static_cast<std::size_t>(size.data() + size.size() - end));
    cache.bytes = number << (unit == "K" ? 10 : unit == "M" ? 20 : 0);
    found.push_back(cache);
  }
  return found;
}

}  // namespace regard::program
