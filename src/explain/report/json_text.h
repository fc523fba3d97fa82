// SPDX-License-Identifier: Apache-2.0
//
// JSON out: a writer whose text is safe to embed. (JSON in: regard/io/json.h.)
// Read next: json_text.cpp, steps_json.cpp.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard {
inline namespace v0 {

// Appends tokens of JSON; commas, line breaks and indentation by itself. Throws Cancelled where runtime.stop is
// requested.
class JsonWriter {
 public:
  explicit JsonWriter(NumberType type, const Runtime& runtime = {}) : type_(type), stop_(runtime.stop) {}

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
  // A list of rows, or of such lists where there are heads.
  void matrix(const Matrix& m);
  void matrix(const TensorView<const double, 2>& m);

  // Members of an object. Lists that are empty are left out.
  void string(std::string_view name, std::string_view text);
  void number(std::string_view name, double x);
  void whole(std::string_view name, Index x);
  void boolean(std::string_view name, bool x);
  void matrix(std::string_view name, const Matrix& m);
  void matrix(std::string_view name, const TensorView<const double, 2>& m);
  void strings(std::string_view name, const std::vector<std::string>& texts, bool on_one_line = false);
  void numbers(std::string_view name, const std::vector<double>& numbers);
  void indices(std::string_view name, const std::vector<Index>& indices);
  // A list of objects, one an item, whose members write(item) writes.
  template <class Items, class Write>
  void objects(std::string_view member, const Items& items, const Write& write) {
    name(member);
    begin_array();
    for (const auto& item : items) {
      begin_object();
      write(item);
      end_object();
    }
    end_array();
  }

  // The first members of every document: schema, command, version, instruction_set.
  void source(std::string_view command);

  std::string take();

  // For work between values.
  void poll() const { throw_if_stopped(stop_, "the explanation"); }

 private:
  void open(char bracket);
  void close(char bracket);
  void before_value();

  NumberType type_;
  std::stop_token stop_;
  std::string text_;
  std::vector<bool> has_items_;
  std::vector<bool> on_one_line_;
  bool after_name_ = false;
};

}  // namespace v0
}  // namespace regard
