// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and checks the members of a JSON object: a member that is missing, of the wrong type or out of range causes
/// an error whose message gives the member, its value and its offset in the text.
///
/// @verbatim
///     config.json: byte 31: width is -4; expected an integer from 1 to 4096
/// @endverbatim
///
/// JsonFields is used to read config.json and the files of training runs.
///
/// Read next: src/io/json_fields.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/io/json.h"

namespace regard::inline v0 {

/// The members of a JSON object from an untrusted text.
///
/// If a check fails, every function throws DataError: "source: byte N: …" or, for a missing member, "source: NAME is
/// missing".
///
/// @par Example
/// @code{.cpp}
/// const JsonValue root = read_json(text, "config.json");
/// const JsonFields fields("config.json", root);
/// const Index width = fields.whole("hidden_size", 1, 4096);
/// @endcode
class REGARD_EXPORT JsonFields {
 public:
  /// Creates a reader of the members of an object.
  ///
  /// @param source  Name of the text for error messages.
  /// @param object  The object, which must outlive the reader.
  /// @throws DataError  if the value is not an object.
  JsonFields(std::string source, const JsonValue& object);

  /// Finds a member.
  ///
  /// @param name  Its name.
  /// @return The member, or null if no member has that name.
  const JsonValue* find(std::string_view name) const { return object_.find(name); }
  /// Finds a member that must exist.
  ///
  /// @param name  Its name.
  /// @return The member.
  const JsonValue& required(std::string_view name) const;
  /// Reads a member that is itself an object.
  ///
  /// @param name  Its name.
  /// @return Its members, valid as long as the members of the enclosing object.
  JsonFields object(std::string_view name) const;
  /// Reads an integer.
  ///
  /// @param name  Name of the member.
  /// @param min   Minimum allowed value.
  /// @param max   Maximum allowed value, at most 2⁵³.
  /// @return The number.
  Index whole(std::string_view name, Index min, Index max) const;
  /// Reads a number.
  ///
  /// @param name  Name of the member.
  /// @return The number.
  double number(std::string_view name) const;
  /// Reads an unsigned 64-bit integer, which is written as a string because JSON numbers are exact only up to 53 bits.
  ///
  /// @param name  Name of the member.
  /// @return The integer.
  std::uint64_t whole_in_text(std::string_view name) const;
  /// Reads `true` or `false`.
  ///
  /// @param name  Name of the member.
  /// @return The Boolean value.
  bool boolean(std::string_view name) const;
  /// Reads a string.
  ///
  /// @param name  Name of the member.
  /// @return The string.
  const std::string& text(std::string_view name) const;
  /// Reads a string that is one of several words.
  ///
  /// @param name   Name of the member.
  /// @param words  The words.
  /// @return The index of the word.
  std::size_t word(std::string_view name, std::span<const std::string_view> words) const;

  /// Reads a string that names an enumerator.
  ///
  /// @tparam Enum   An enumeration whose enumerators are numbered from 0.
  /// @tparam Count  Number of its enumerators.
  /// @param name    Name of the member.
  /// @param names   The names of all enumerators, in order.
  /// @return The enumerator.
  template <class Enum, std::size_t Count>
  Enum enumerator(std::string_view name, const std::array<std::string_view, Count>& names) const {
    return static_cast<Enum>(word(name, names));
  }

  /// Throws DataError, "source: byte N: what".
  ///
  /// @param at    The value whose offset is reported.
  /// @param what  What was found and what was expected.
  [[noreturn]] void fail(const JsonValue& at, const std::string& what) const;
  /// Formats a value for an error message: `"text"`, `12`, `true`, `null`, `a list` or `an object`.
  ///
  /// @param value  The value.
  /// @return The text, escaped for a terminal.
  static std::string shown(const JsonValue& value);

 private:
  std::string source_;
  const JsonValue& object_;
};

}  // namespace regard::inline v0
