// SPDX-License-Identifier: Apache-2.0
//
// Detects files of a different kind than expected.
// Read next: file_kind.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace regard::inline v0::internal {

// "this is a gzip archive, not safetensors; unpack it first", if the first bytes of a file identify a different kind
// than the expected one.
std::optional<std::string> foreign_kind(std::span<const std::byte> first_bytes, std::string_view expected);
// The number of bytes that foreign_kind examines.
inline constexpr std::size_t kKindBytes = 64;

}  // namespace regard::inline v0::internal
