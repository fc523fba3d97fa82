// SPDX-License-Identifier: Apache-2.0
//
// A text file, read as a whole. An archive is recognized only where the text would be rejected as invalid UTF-8 anyway,
// so that every text is accepted, even one that begins like another format.
// Read next: file_bytes.cpp.
#include "regard/io/text_file.h"

#include <fmt/format.h>

#include <span>

#include "file_bytes.h"
#include "file_kind.h"
#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {

std::string read_text_file(const std::string& path, std::optional<std::uint64_t> max_memory_bytes,
                           const std::stop_token& stop) {
  const internal::ModelFile file(path);
  check_json_memory(path, file.num_bytes(), max_memory_bytes);
  std::string text(file.num_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)), stop);
  file.check_unchanged();
  if (const std::size_t valid = valid_utf8_bytes(text, stop); valid != text.size()) {
    const auto kind = internal::foreign_kind(std::as_bytes(std::span(text)), "text");
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(path), kind ? 0 : valid,
                                kind.value_or("not valid UTF-8; convert the file with iconv")));
  }
  return text;
}

}  // namespace regard::inline v0
