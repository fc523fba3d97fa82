// SPDX-License-Identifier: Apache-2.0
//
// Memory for the block of a cache, aligned to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace regard {

struct AlignedBytes {
  std::vector<std::byte> memory;
  std::span<std::byte> bytes;

  explicit AlignedBytes(std::size_t size) : memory(size + 64) {
    const std::size_t lead = (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    bytes = std::span(memory).subspan(lead, size);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
};

}  // namespace regard
