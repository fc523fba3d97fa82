// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads JSON strictly, into a tree that records the offset of each value in the text.
///
/// It reads the input of `regard explain`, config.json, tokenizer.json and the index of a sharded checkpoint.
///
/// @verbatim
///     text ── check UTF-8 ── compute the size of the tree ── check available memory ── parse ──▶ JsonValue
/// @endverbatim
///
/// Read next: src/io/json.cpp.
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

/// A JSON value.
///
/// A JsonValue of any kind takes 48 bytes. An array of numbers takes an additional 8 bytes per number.
struct REGARD_EXPORT JsonValue {
  /// The kinds of JSON values.
  enum class Kind {
    null,     ///< `null`
    boolean,  ///< `true` or `false`
    number,   ///< A number, stored as double.
    string,   ///< A string, stored in UTF-8 without escapes.
    array,    ///< A list of values.
    object    ///< A list of named members.
  };
  /// A member of an object: a name and a value.
  using Member = std::pair<std::string, JsonValue>;

  /// Creates null, at offset 0.
  JsonValue() = default;
  /// Creates a value from its contents and its offset in the text.
  ///
  /// @tparam T        `std::monostate`, `bool`, `double`, `std::string`, `std::vector<double>`,
  ///                  `std::vector<JsonValue>` or `std::vector<Member>`.
  /// @param contents  The contents.
  /// @param at        Offset of the value in the text, in bytes.
  template <class T>
  JsonValue(T contents, std::size_t at) : offset(at), contents_(std::move(contents)) {}

  /// Returns the kind of the value.
  Kind kind() const;
  /// Returns the Boolean value; false for a value of another kind.
  bool boolean() const;
  /// Returns the number; 0 for a value of another kind.
  double number() const;
  /// Returns the string; empty for a value of another kind.
  const std::string& text() const;
  /// Returns the elements of an array that holds only numbers; empty for any other value.
  ///
  /// For such an array, items() is empty.
  const std::vector<double>& numbers() const;
  /// Returns the elements of an array in which at least one element is not a number; empty for any other value.
  const std::vector<JsonValue>& items() const;
  /// Returns the members of an object, in the order of the text; empty for a value of another kind.
  ///
  /// All names are distinct.
  const std::vector<Member>& members() const;

  /// Finds a member of an object by name.
  ///
  /// This is a linear search over all members. To look up many names, build an index (SortedNames).
  ///
  /// @param name  The name.
  /// @return The value of the member, or nullptr if there is no such member or if this is not an object. The pointer is
  ///         valid as long as this value is unchanged.
  const JsonValue* find(std::string_view name) const;

  /// Offset of the value in the text: of its first byte or, for a number, of any one of its bytes.
  std::size_t offset = 0;

 private:
  friend class JsonTreeBuilder;
  std::variant<std::monostate, bool, double, std::string, std::vector<double>, std::vector<JsonValue>,
               std::vector<Member>>
      contents_;
};

/// Computes an upper bound on the memory that read_json() needs for a text.
///
/// The bound includes the tree, the parser's own memory and any error message, but not the text itself. Counting stops
/// at brackets nested deeper than `max_depth`, where read_json() stops as well.
///
/// @param text       The JSON text.
/// @param max_depth  The nesting limit that will be passed to read_json().
/// @param stop       Stop token, polled while the text is scanned.
/// @return The bound, in bytes.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::uint64_t json_memory_bytes(std::string_view text, Index max_depth = 64,
                                              const std::stop_token& stop = {});

/// Checks that the memory needed for a JSON text is available, before this memory is allocated.
///
/// The check always succeeds if at most 64 KiB is needed.
///
/// @param source            Name of the text for error messages.
/// @param needed            Memory needed, in bytes.
/// @param max_memory_bytes  Memory available, in bytes; defaults to available_memory_bytes().
/// @throws DataError  "source: needs N bytes of memory; M are available" if N exceeds M.
REGARD_EXPORT void check_json_memory(const std::string& source, std::uint64_t needed,
                                     std::optional<std::uint64_t> max_memory_bytes);

/// Parses a JSON text.
///
/// @param text              The text, in UTF-8.
/// @param source            Name of the text for error messages, usually the path of the file.
/// @param max_depth         Maximum nesting depth of brackets.
/// @param stop              Stop token, polled while the text is read.
/// @param max_memory_bytes  Memory that reading may use, in bytes (see json_memory_bytes()); defaults to
///                          available_memory_bytes().
/// @return The root of the tree.
/// @throws DataError  "source: byte N: …" in any of the following cases:
///                    - the text is not valid JSON or not valid UTF-8
///                    - a name occurs twice in an object
///                    - a number is out of range for double
///                    - brackets are nested deeper than `max_depth`
/// @throws DataError  "source: needs N bytes of memory; M are available", before any memory is allocated. This check is
///                    skipped if at most 64 KiB is needed.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const JsonValue root = read_json(R"({"width": 384})", "config.json");
/// const double width = root.find("width")->number();
/// @endcode
REGARD_EXPORT JsonValue read_json(std::string_view text, const std::string& source, Index max_depth = 64,
                                  const std::stop_token& stop = {},
                                  std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

}  // namespace regard::inline v0
