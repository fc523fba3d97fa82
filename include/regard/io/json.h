// SPDX-License-Identifier: Apache-2.0
//
// JSON, read strictly into a tree that knows where each value is in the text: for explain's input, config.json,
// tokenizer.json and the index of shards.
// Read next: src/io/json.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// A value of a JSON text. It is 48 bytes long, whatever its kind is; arrays of numbers take 8 bytes for each number.
struct REGARD_EXPORT JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;
  template <class T>
  JsonValue(T contents, std::size_t at) : offset(at), contents_(std::move(contents)) {}

  Kind kind() const;
  // What a value of another kind is asked for is false, 0 or empty.
  bool boolean() const;
  double number() const;
  const std::string& text() const;
  const std::vector<double>& numbers() const;   // of an array that holds nothing but numbers, which then has no items
  const std::vector<JsonValue>& items() const;  // of any other array
  const std::vector<Member>& members() const;   // in the order of the text, no name twice

  /// The member with that name, or null. Compares with every name: look names up in bulk in an index of your own.
  const JsonValue* find(std::string_view name) const;

  std::size_t offset = 0;  // of its first byte in the text; of a number, of one of its bytes

 private:
  friend class JsonTreeBuilder;
  std::variant<std::monostate, bool, double, std::string, std::vector<double>, std::vector<JsonValue>,
               std::vector<Member>>
      contents_;
};

/// Bytes of memory that read_json takes for this text, at most: the tree, the parser's own memory and the message of an
/// error. The text itself is not counted. Brackets nested deeper than max_depth end the count, as they end the reading.
REGARD_EXPORT std::uint64_t json_memory_bytes(std::string_view text, Index max_depth = 64,
                                              const std::stop_token& stop = {});

/// Asks for memory that a JSON text needs, before it is taken. What fits in 64 KiB is not asked for.
///
/// @param max_memory_bytes what there is; absent: available_memory_bytes().
/// @throws regard::DataError "source: needs N bytes of memory; M are available".
REGARD_EXPORT void check_json_memory(const std::string& source, std::uint64_t needed,
                                     std::optional<std::uint64_t> max_memory_bytes);

/// Reads a JSON text.
///
/// @param max_memory_bytes what the reading may take, see json_memory_bytes; absent: available_memory_bytes().
/// @throws regard::DataError "source: byte N: …" for text that is not JSON or not UTF-8, a name given twice, numbers
/// that no double holds, and brackets nested deeper than max_depth; "source: needs N bytes of memory; M are available",
/// before any is taken (at most 64 KiB are taken without asking); regard::Cancelled where a stop is requested.
REGARD_EXPORT JsonValue read_json(std::string_view text, const std::string& source, Index max_depth = 64,
                                  const std::stop_token& stop = {},
                                  std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

}  // namespace regard::inline v0
