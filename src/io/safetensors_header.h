// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file as a list of tensors: the text parsed, every rule that needs no data checked.
// Read next: safetensors_header.cpp, safetensors.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/safetensors.h"

namespace regard::inline v0::internal {

struct HeaderEntry {
  std::string name;
  ElementType type = ElementType::float32;
  std::vector<Index> shape;
  std::uint64_t begin = 0;  // in the data
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // of the name, in the file
};

// text: the header's N bytes, which stand at byte 8; num_data_bytes: what follows it in the file.
// Entries in the order of their data. Throws regard::DataError "<name>: byte <offset>: …".
std::vector<HeaderEntry> read_safetensors_header(std::string_view text, std::uint64_t num_data_bytes,
                                                 const std::string& name, const ModelFileOptions& options,
                                                 const std::stop_token& stop);

// "(2, 3)"
std::string shape_text(const std::vector<Index>& shape);

}  // namespace regard::inline v0::internal
