// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes JSON, including commas, line breaks, indentation, escapes and numbers in their shortest form.
///
/// Regard writes all of its JSON with JsonWriter. For reading JSON, see json.h.
///
/// Read next: src/io/json_writer.cpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "regard/export.h"
#include "regard/io/matrix.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Formats a double as the shortest decimal text that reads back as the same double.
///
/// @param x  The number.
/// @return For example "0.1" or "1e-05"; "-inf", "inf" or "nan" for infinities and NaN.
REGARD_EXPORT std::string shortest_number(double x);
/// Formats a float as the shortest decimal text that reads back as the same float.
REGARD_EXPORT std::string shortest_number(float x);

/// Formatting options of JsonWriter.
struct JsonStyle {
  int indent = 2;  ///< Spaces per level.
  /// Whether the values given to number() are floats: each is then written as the shortest text that reads back as the
  /// same float.
  bool float32 = false;
};

/// Placement of the items of an array and the members of an object. An empty array is written as `[]`, and an empty
/// object as `{}`.
enum class JsonLayout {
  lines,     ///< Each on its own line, with the closing bracket on the next line.
  hanging,   ///< Each on its own line, with the closing bracket directly after the last.
  one_line,  ///< All on one line, separated by `", "`.
  compact    ///< All on one line, separated by `","`: for long lists of numbers.
};

/// Writes one JSON value, usually an object, piece by piece into a growing string.
///
/// Strings are escaped by json_string() (regard/io/utf8.h), so that the result is safe to embed in HTML:
/// - Quotes, backslashes, `<`, `>`, `&` and control, bidirectional and other invisible characters are escaped.
/// - Each byte that is not valid UTF-8 is replaced with U+FFFD.
///
/// Numbers are written in the shortest form that reads back as the same value. JSON has no infinities and no NaN: they
/// are written as the strings "-inf", "inf" and "nan".
///
/// The caller must close every bracket that it opens, name every member of an object, and use no name twice in an
/// object. None of this is checked.
///
/// @throws Cancelled  from every function that writes a name or a value, if a stop is requested through the token given
///                    to the constructor.
///
/// @par Example
/// @code{.cpp}
/// JsonWriter json;
/// json.begin_object();
/// json.string("schema", "regard/1");
/// json.list("shape", std::vector<Index>{2, 3});
/// json.number("largest", std::numeric_limits<double>::infinity());
/// json.end_object();
/// std::string text = json.take();
/// @endcode
///
/// The text is
/// @code{.unparsed}
/// {
///   "schema": "regard/1",
///   "shape": [2, 3],
///   "largest": "inf"
/// }
/// @endcode
class REGARD_EXPORT JsonWriter {
 public:
  /// Creates a writer with an empty text.
  ///
  /// @param style  Formatting options.
  /// @param stop   Stop token, polled before each value.
  explicit JsonWriter(JsonStyle style = {}, std::stop_token stop = {});

  /// Sets the style of everything that is written from this point on. Open brackets keep their indentation.
  ///
  /// @param style  The new style.
  void set_style(const JsonStyle& style) { style_ = style; }
  /// Returns the current style.
  const JsonStyle& style() const { return style_; }

  /// @name Values
  /// Each function writes the next item of an array, or the value of the most recently named member.
  /// @{

  /// Opens an object.
  ///
  /// @param layout  Placement of its members. Within an array or object that is on one line, everything must be on one
  ///                line.
  void begin_object(JsonLayout layout = JsonLayout::lines) { open('{', layout); }
  /// Closes the most recently opened object.
  void end_object() { close('}'); }
  /// Opens an array.
  ///
  /// @param layout  Placement of its items. Within an array or object that is on one line, everything must be on one
  ///                line.
  void begin_array(JsonLayout layout = JsonLayout::lines) { open('[', layout); }
  /// Closes the most recently opened array.
  void end_array() { close(']'); }
  /// Writes a string.
  ///
  /// @param text  The string, escaped as described for the class.
  void string(std::string_view text);
  /// Writes a number in its shortest form as a double, or as a float if JsonStyle::float32 is set.
  ///
  /// @param x  The number. Infinities and NaN become strings.
  void number(double x);
  /// Writes an integer.
  ///
  /// @tparam Integer  A signed or unsigned integer type of at most 64 bits.
  /// @param x         The integer.
  template <std::integral Integer>
  void whole(Integer x) {
    if constexpr (std::is_signed_v<Integer>) {
      integer(std::int64_t{x});
    } else {
      integer(std::uint64_t{x});
    }
  }
  /// Writes `true` or `false`.
  ///
  /// @param x  The Boolean value.
  void boolean(bool x);
  /// Writes `null`.
  void null();
  /// Writes a matrix as a list of rows, each row on its own line; with heads, as a list of such lists.
  ///
  /// Only the rows and columns that the matrix stores are written.
  ///
  /// @param m  The matrix.
  void matrix(const Matrix& m);
  /// Writes a matrix as a list of rows, each row on its own line.
  ///
  /// @param m  The matrix, (rows, columns), with any strides.
  void matrix(const TensorView<const double, 2>& m);
  /// @}

  /// @name Members of an object
  /// @{

  /// Writes the name of a member. Its value must be written next.
  ///
  /// @param text  The name.
  void name(std::string_view text);
  /// Writes a member whose value is a string.
  ///
  /// @param member  Name of the member.
  /// @param text    The string.
  void string(std::string_view member, std::string_view text);
  /// Writes a member whose value is a number.
  ///
  /// @param member  Name of the member.
  /// @param x       The number.
  void number(std::string_view member, double x);
  /// Writes a member whose value is an integer.
  ///
  /// @tparam Integer  A signed or unsigned integer type of at most 64 bits.
  /// @param member    Name of the member.
  /// @param x         The integer.
  template <std::integral Integer>
  void whole(std::string_view member, Integer x) {
    name(member);
    whole(x);
  }
  /// Writes a member whose value is `true` or `false`.
  ///
  /// @param member  Name of the member.
  /// @param x       The Boolean value.
  void boolean(std::string_view member, bool x);
  /// Writes a member whose value is `null`.
  ///
  /// @param member  Name of the member.
  void null(std::string_view member);
  /// Writes a member whose value is a matrix.
  ///
  /// @param member  Name of the member.
  /// @param m       The matrix.
  void matrix(std::string_view member, const Matrix& m);
  /// Writes a member whose value is a matrix, given as a view.
  ///
  /// @param member  Name of the member.
  /// @param m       The matrix, (rows, columns), with any strides.
  void matrix(std::string_view member, const TensorView<const double, 2>& m);
  /// Writes a member whose value is given as JSON text, which is copied verbatim.
  ///
  /// @param member  Name of the member.
  /// @param value   One JSON value, for example the text from another writer. The text is not checked.
  void json(std::string_view member, std::string_view value);
  /// Writes a member whose value is an array of strings, integers or floating-point numbers. It may be empty.
  ///
  /// @tparam Items  A range of strings, of integers, or of floating-point numbers.
  /// @param member  Name of the member.
  /// @param items   The items.
  /// @param layout  Placement of the items.
  template <class Items>
  void list(std::string_view member, const Items& items, JsonLayout layout = JsonLayout::one_line) {
    name(member);
    begin_array(layout);
    for (const auto& item : items) value(item);
    end_array();
  }
  /// Writes a member whose value is an array of strings. If there are none, the member is omitted.
  ///
  /// @param member  Name of the member.
  /// @param texts   The strings.
  /// @param layout  Placement of the strings.
  void strings(std::string_view member, const std::vector<std::string>& texts, JsonLayout layout = JsonLayout::lines);
  /// Writes a member whose value is an array of numbers, on one line. If there are none, the member is omitted.
  ///
  /// @param member   Name of the member.
  /// @param numbers  The numbers.
  void numbers(std::string_view member, const std::vector<double>& numbers);
  /// Writes a member whose value is an array of integers, on one line. If there are none, the member is omitted.
  ///
  /// @param member   Name of the member.
  /// @param indices  The integers.
  void indices(std::string_view member, const std::vector<Index>& indices);
  /// Writes a member whose value is an array of objects, one for each item.
  ///
  /// @tparam Items         A range.
  /// @tparam Write         A callable that takes an item.
  /// @param member         Name of the member.
  /// @param items          The items.
  /// @param write          `write(item)` writes the members of the object for that item.
  /// @param array_layout   Placement of the objects.
  /// @param object_layout  Placement of the members of each object.
  template <class Items, class Write>
  void objects(std::string_view member, const Items& items, const Write& write,
               JsonLayout array_layout = JsonLayout::lines, JsonLayout object_layout = JsonLayout::lines) {
    name(member);
    begin_array(array_layout);
    for (const auto& item : items) {
      begin_object(object_layout);
      write(item);
      end_object();
    }
    end_array();
  }

  /// Writes the members that most documents begin with: `schema`, `command`, `version` and `instruction_set`.
  ///
  /// @param command  The command line as the user typed it.
  void source(std::string_view command);
  /// @}

  /// Removes and returns the text written since the last call to take_part() or take(), to write a long document in
  /// parts.
  ///
  /// @return The removed text.
  std::string take_part();
  /// Removes and returns the rest of the document: the text written since the last call to take_part() or take(), and a
  /// line break.
  ///
  /// @return The text.
  std::string take();

  /// Polls the stop token. Call it in longer computations between values.
  ///
  /// @throws Cancelled  if a stop is requested.
  void poll() const;

 private:
  struct Level {
    JsonLayout layout;
    int column;  // of its members
    bool has_items = false;
  };

  void open(char bracket, JsonLayout layout);
  void close(char bracket);
  void before_value();
  void break_line(int column);
  void integer(std::int64_t x);
  void integer(std::uint64_t x);
  template <class T>
  void value(const T& item) {
    if constexpr (std::is_floating_point_v<T>) {
      number(item);
    } else if constexpr (std::is_integral_v<T>) {
      whole(item);
    } else {
      string(item);
    }
  }

  JsonStyle style_;
  std::stop_token stop_;
  std::string text_;
  std::vector<Level> levels_;
  bool after_name_ = false;
};

}  // namespace regard::inline v0
