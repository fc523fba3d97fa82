// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4): by which files of models are told apart.
//
//     bytes ── blocks of 64 ── 64 rounds on eight words each ──▶ 32 bytes, written as 64 hex digits
//
// Read next: src/io/sha256.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/export.h"

namespace regard::inline v0 {

class REGARD_EXPORT Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  // 64 hex digits; nothing can be added afterwards.
  std::string finish();

 private:
  void add_block(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};
  std::uint64_t num_bytes_ = 0;
};

// Of all bytes at once.
REGARD_EXPORT std::string sha256(std::span<const std::byte> bytes);

}  // namespace regard::inline v0
