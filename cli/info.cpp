// SPDX-License-Identifier: Apache-2.0
//
// `regard info`: version, compiler, instruction sets, threads, memory and caches of this machine, as the program
// sees them. Read next: regard/runtime.h.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>

#include "program.h"
#include "regard/runtime.h"
#include "regard/text.h"

namespace regard::program {
namespace {

struct Cache {
  int level;
  std::string type;  // "Data", "Instruction", "Unified"
  std::uint64_t bytes;
  std::string shared_by;  // logical processors: "0-1"
};

// The caches of processor 0; none where the system does not tell.
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

std::string cache_size(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string as_text() {
  const Build b = build();
  std::string text = fmt::format("version           {}\ncommit            {}\ncompiler          {}\n", b.version,
                                 b.commit, b.compiler);
  const char* label = "instruction sets";
  for (const InstructionSet& set : instruction_sets()) {
    text += fmt::format("{:<18}{:<9}{}\n", label, set.name,
                        set.active      ? "active"
                        : set.available ? "available"
                                        : "not on this processor");
    label = "";
  }
  text += fmt::format("threads           {}\n", default_num_threads());
  text += fmt::format("memory            {} available\n", bytes_text(available_memory_bytes()));
  label = "caches";
  for (const Cache& cache : caches()) {
    std::string type = cache.type;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
    text += fmt::format("{:<18}L{} {:<12} {:>8}   shared by processors {}\n", label, cache.level, type,
                        cache_size(cache.bytes), cache.shared_by);
    label = "";
  }
  return text;
}

std::string as_json() {
  const Build b = build();
  std::string sets;
  for (const InstructionSet& set : instruction_sets()) {
    sets +=
        fmt::format("{}\n    {{\"name\": {}, \"available\": {}, \"active\": {}, \"fused_multiply_add\": {}}}",
                    sets.empty() ? "" : ",", json_string(set.name), set.available, set.active, set.fused_multiply_add);
  }
  std::string levels;
  for (const Cache& cache : caches()) {
    levels += fmt::format("{}\n    {{\"level\": {}, \"type\": {}, \"bytes\": {}, \"shared_by\": {}}}",
                          levels.empty() ? "" : ",", cache.level, json_string(cache.type), cache.bytes,
                          json_string(cache.shared_by));
  }
  return fmt::format(R"({{
  "schema": "regard/1",
  "command": {},
  "version": {},
  "commit": {},
  "compiler": {},
  "instruction_set": {},
  "instruction_sets": [{}],
  "threads": {},
  "memory_bytes": {},
  "caches": [{}]
}}
)",
                     json_string(command_line()), json_string(b.version), json_string(b.commit),
                     json_string(b.compiler), json_string(active_instruction_set()), sets, default_num_threads(),
                     available_memory_bytes(), levels);
}

}  // namespace

void add_info(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "Show version, instruction sets, threads and caches");
  command->add_flag("--json", *json, "the same as JSON");
  command->footer(
      "ENVIRONMENT\n"
      "  REGARD_THREADS    number of threads\n"
      "  REGARD_FORCE_ISA  the instruction set to use: one that is listed as available\n"
      "\n"
      "EXAMPLES\n"
      "  regard info\n"
      "  regard info --json");
  command->callback([json] { write_stdout(*json ? as_json() : as_text()); });
}

}  // namespace regard::program
