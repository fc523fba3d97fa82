// SPDX-License-Identifier: Apache-2.0
//
// Writes JSON: commas, line breaks, indentation, escaping and the shortest numbers. All JSON that Regard writes comes
// from here. (JSON is read by json.h.)
//
//     JsonWriter json;
//     json.begin_object();
//     json.string("schema", "regard/1");
//     json.list("shape", std::vector<Index>{2, 3});
//     json.number("largest", std::numeric_limits<double>::infinity());
//     json.end_object();
//     std::string text = json.take();
//
//     {
//       "schema": "regard/1",
//       "shape": [2, 3],
//       "largest": "inf"
//     }
//
// Read next: src/io/json_writer.cpp.
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

/// The shortest decimal text that reads back as the same value of its type: "0.1", "1e-05"; "-inf", "inf", "nan".
REGARD_EXPORT std::string shortest_number(double x);
REGARD_EXPORT std::string shortest_number(float x);

struct JsonStyle {
  int indent = 2;        ///< spaces for each level
  bool float32 = false;  ///< number() takes values of float: the shortest text is the one that reads back as float
};

/// Where the items of an array and the members of an object go. An empty array is `[]`, an empty object `{}`.
enum class JsonLayout {
  lines,     ///< each on its own line, the closing bracket on the next
  hanging,   ///< each on its own line, the closing bracket behind the last
  one_line,  ///< all on one line, ", " between them
  compact    ///< all on one line, "," between them: for long lists of numbers
};

/// Writes one JSON value, an object as a rule, piece by piece into a string that grows.
///
/// Texts are escaped by json_string (regard/io/utf8.h), so that the result is safe to embed in HTML: quotes,
/// backslashes, control, bidirectional and other invisible characters, `<`, `>` and `&` are written as escapes, and
/// each byte that is not UTF-8 as U+FFFD. Numbers are written in the shortest form that reads back as the same value;
/// infinities and NaN, which JSON lacks, are the strings "-inf", "inf" and "nan".
///
/// The caller closes what it opens, gives every member of an object a name and no name twice; nothing checks this.
///
/// @throws Cancelled from whatever writes a value, where a stop has been requested of the token given.
class REGARD_EXPORT JsonWriter {
 public:
  explicit JsonWriter(JsonStyle style = {}, std::stop_token stop = {});

  /// The style of what is written from now on; brackets that are open keep their indentation.
  void set_style(const JsonStyle& style) { style_ = style; }
  const JsonStyle& style() const { return style_; }

  // Values: the next item of an array, or the value of the member named last. All items of an array or object that is
  // on one line have to be on one line.
  void begin_object(JsonLayout layout = JsonLayout::lines) { open('{', layout); }
  void end_object() { close('}'); }
  void begin_array(JsonLayout layout = JsonLayout::lines) { open('[', layout); }
  void end_array() { close(']'); }
  void string(std::string_view text);
  void number(double x);
  template <std::integral Integer>
  void whole(Integer x) {
    if constexpr (std::is_signed_v<Integer>) {
      integer(std::int64_t{x});
    } else {
      integer(std::uint64_t{x});
    }
  }
  void boolean(bool x);
  void null();
  /// A list of rows, each on a line; a list of such lists where the matrix has heads. Only what the matrix stores.
  void matrix(const Matrix& m);
  void matrix(const TensorView<const double, 2>& m);

  // Members of an object.
  void name(std::string_view text);  ///< the value comes next
  void string(std::string_view member, std::string_view text);
  void number(std::string_view member, double x);
  template <std::integral Integer>
  void whole(std::string_view member, Integer x) {
    name(member);
    whole(x);
  }
  void boolean(std::string_view member, bool x);
  void null(std::string_view member);
  void matrix(std::string_view member, const Matrix& m);
  void matrix(std::string_view member, const TensorView<const double, 2>& m);
  /// An array of texts, integers or numbers, also where it is empty.
  template <class Items>
  void list(std::string_view member, const Items& items, JsonLayout layout = JsonLayout::one_line) {
    name(member);
    begin_array(layout);
    for (const auto& item : items) value(item);
    end_array();
  }
  /// The same three kinds; the member is left out where there are no items.
  void strings(std::string_view member, const std::vector<std::string>& texts, JsonLayout layout = JsonLayout::lines);
  void numbers(std::string_view member, const std::vector<double>& numbers);
  void indices(std::string_view member, const std::vector<Index>& indices);
  /// An array of objects, one for each item; write(item) writes its members.
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

  /// The first members of most documents: schema, command (as it was typed), version and instruction_set.
  void source(std::string_view command);

  /// The text written since the last call of either: take_part() what there is so far, to write a long document in
  /// parts; take() the end of it, with a line break.
  std::string take_part();
  std::string take();

  /// For work between values. @throws Cancelled where a stop has been requested.
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
