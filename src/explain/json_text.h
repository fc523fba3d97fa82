// SPDX-License-Identifier: Apache-2.0
//
// JSON in and out: a strict reader that knows where each value stands, and a writer whose text is safe to embed.
// Read next: json_text.cpp, input_json.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/explain.h"

namespace regard {
inline namespace v0 {

struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0.0;
  std::string text{};
  std::vector<double> numbers{};  // of an array of nothing but numbers, which then has no items
  std::vector<JsonValue> items{};
  std::vector<std::pair<std::string, JsonValue>> members{};  // in the order of the text, no name twice
  std::size_t offset = 0;                                    // of its first byte; of a number, of one of its bytes

  const JsonValue* find(std::string_view name) const;
};

// Depth at most 64. Throws std::runtime_error "source: byte N: …" for text that is not JSON or not UTF-8, a name given
// twice, and numbers that no double holds.
JsonValue read_json(std::string_view text, const std::string& source);

// Appends tokens of JSON; commas, line breaks and indentation by itself.
class JsonWriter {
 public:
  explicit JsonWriter(NumberType type) : type_(type) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  // An array of numbers or short texts stands on one line.
  void begin_array(bool on_one_line = false);
  void end_array();
  void name(std::string_view text);
  void string(std::string_view text);
  void number(double x);  // the shortest that reads back; non-finite as strings
  void whole(Index x);
  void boolean(bool x);
  void null();
  // A list of rows, or of such lists where there are heads.
  void matrix(const Matrix& m);
  std::string take();

 private:
  void open(char bracket);
  void close(char bracket);
  void before_value();

  NumberType type_;
  std::string text_;
  std::vector<bool> has_items_;
  std::vector<bool> on_one_line_;
  bool after_name_ = false;
};

}  // namespace v0
}  // namespace regard
