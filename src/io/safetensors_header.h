// SPDX-License-Identifier: Apache-2.0
//
// Turns the header of a safetensors file into a list of tensors, checking every rule that does not depend on the data.
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
  std::uint64_t offset = 0;  // of the name, within the file
};

// text: the N bytes of the header, which start at byte 8; num_data_bytes: the number of bytes after it in the file.
// Returns the entries in the order of their data. Throws regard::DataError "<name>: byte <offset>: …".
std::vector<HeaderEntry> read_safetensors_header(std::string_view text, std::uint64_t num_data_bytes,
                                                 const std::string& name, const ModelFileOptions& options,
                                                 const std::stop_token& stop);

// "(2, 3)"
std::string shape_text(const std::vector<Index>& shape);

}  // namespace regard::inline v0::internal
