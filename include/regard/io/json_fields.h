// SPDX-License-Identifier: Apache-2.0
/// @file
/// Type-checked and range-checked access to the members of a JSON object. If a member has the wrong type or is out of
/// range, the error message states the member's name, value and byte offset in the text.
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

/// The members of a JSON object in untrusted input.
///
/// A function whose check fails throws DataError with the message "source: byte N: …" or, if the member is missing,
/// "source: NAME is missing".
///
/// @par Example
/// @code{.cpp}
/// const JsonValue root = read_json(text, "config.json");
/// const JsonFields fields("config.json", root);
/// const Index width = fields.whole("hidden_size", 1, 4096);
/// @endcode
class REGARD_EXPORT JsonFields {
 public:
  /// Constructs a reader for the members of an object.
  ///
  /// @param source  Name of the text for error messages.
  /// @param object  The object, which must outlive the reader.
  /// @throws DataError  if object is not a JSON object.
  JsonFields(std::string source, const JsonValue& object);

  /// Finds a member.
  ///
  /// @param name  Name of the member.
  /// @return The member, or nullptr if no member has that name.
  const JsonValue* find(std::string_view name) const { return object_.find(name); }
  /// Finds a member that must exist.
  ///
  /// @param name  Name of the member.
  /// @return The member.
  const JsonValue& required(std::string_view name) const;
  /// Reads a member that is itself an object.
  ///
  /// @param name  Name of the member.
  /// @return A reader for its members. The enclosing object must outlive the reader.
  JsonFields object(std::string_view name) const;
  /// Reads an integer.
  ///
  /// @param name  Name of the member.
  /// @param min   Minimum allowed value.
  /// @param max   Maximum allowed value, at most 2⁵³.
  /// @return The integer.
  Index whole(std::string_view name, Index min, Index max) const;
  /// Reads a number.
  ///
  /// @param name  Name of the member.
  /// @return The number.
  double number(std::string_view name) const;
  /// Reads an unsigned 64-bit integer that is stored as a string. JSON numbers are read as double, which represents
  /// integers exactly only up to 2⁵³.
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
  /// Reads a string that must be one of several words.
  ///
  /// @param name   Name of the member.
  /// @param words  The allowed words.
  /// @return The index of the string in `words`.
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

  /// Throws DataError with the message "source: byte N: what".
  ///
  /// @param at    The value whose offset is reported.
  /// @param what  Description of the error: the value found and the requirement.
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
