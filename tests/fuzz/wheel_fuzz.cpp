// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a wheel are rejected with a byte offset, or are an archive whose members "a" and
// "b/c", if present, unpack to the size that the directory states or are rejected. Read next: cli/pull/wheel.h.
#include "pull/wheel.h"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <class Read>
void read(Read read_archive) {
  try {
    read_archive();
  } catch (const std::runtime_error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("fuzz: byte ") || what.starts_with("fuzz: has no member "));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read([&] {
    const regard::program::Wheel wheel(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    for (const std::string_view member : {"a", "b/c"}) {
      read([&] {
        const std::int64_t stated = wheel.num_bytes(member);
        std::int64_t came = 0;
        wheel.unpack(member, [&](std::span<const std::byte> bytes) {
          came += static_cast<std::int64_t>(bytes.size());
          require(came <= stated);
        });
        require(came == stated);
      });
    }
  });
  return 0;
}
