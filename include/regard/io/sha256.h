// SPDX-License-Identifier: Apache-2.0
/// @file
/// SHA-256 (FIPS 180-4), the hash that identifies model files.
///
/// @verbatim
///     bytes ── 64-byte blocks ── 64 rounds on eight words each ──▶ 32 bytes, written as 64 hex digits
/// @endverbatim
///
/// Read next: src/io/sha256.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/export.h"

namespace regard::inline v0 {

/// Computes the SHA-256 hash of data that arrives in several parts.
///
/// @par Example
/// @code{.cpp}
/// Sha256 sum;
/// sum.add(first_part);
/// sum.add(second_part);
/// std::string digits = sum.finish();
/// @endcode
class REGARD_EXPORT Sha256 {
 public:
  /// Adds bytes to the hashed data.
  ///
  /// @param bytes  The bytes; may be empty.
  void add(std::span<const std::byte> bytes);
  /// Finishes the hash. No bytes may be added afterwards.
  ///
  /// @return 64 lowercase hex digits.
  std::string finish();

 private:
  void add_block(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};
  std::uint64_t num_bytes_ = 0;
};

/// Computes the SHA-256 hash of a byte array.
///
/// @param bytes  The bytes.
/// @return 64 lowercase hex digits.
REGARD_EXPORT std::string sha256(std::span<const std::byte> bytes);

}  // namespace regard::inline v0
