// SPDX-License-Identifier: Apache-2.0
//
// The memory of the allocator. It asks for a few pages at a time, and a browser takes most of a millisecond to grow a
// memory by any number of them, so it grows in larger steps.
// Read next: exports.cpp.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

namespace {

constexpr std::uintptr_t kPage = 1 << 16;
constexpr std::uintptr_t kStep = 64;  // pages: 4 MiB

std::uintptr_t memory_end() { return __builtin_wasm_memory_size(0) * kPage; }
bool grow(std::uintptr_t num_pages) {
  return __builtin_wasm_memory_grow(0, num_pages) != std::numeric_limits<std::size_t>::max();
}

}  // namespace

// In place of the function of wasi-libc.
extern "C" void* sbrk(std::intptr_t increment) {
  static std::uintptr_t end = memory_end();  // of what was handed out
  const std::uintptr_t begin = end;
  const std::uintptr_t needed = begin + static_cast<std::uintptr_t>(std::max<std::intptr_t>(increment, 0));
  if (increment < 0 || needed < begin) {
    errno = ENOMEM;
    return reinterpret_cast<void*>(-1);
  }
  if (needed > memory_end()) {
    const std::uintptr_t missing = (needed - memory_end() + kPage - 1) / kPage;
    if (!grow(std::max(missing, kStep)) && !grow(missing)) {
      errno = ENOMEM;
      return reinterpret_cast<void*>(-1);
    }
  }
  end = needed;
  return reinterpret_cast<void*>(begin);
}
