// SPDX-License-Identifier: Apache-2.0
//
// JSON out: a writer of its own, for the shortest numbers, and text in which everything invisible and everything that
// HTML could take for a tag is escaped.
// Read next: steps_json.cpp.
#include "json_text.h"

#include <cmath>

#include "regard/io/utf8.h"
#include "regard/runtime.h"
#include "terminal.h"

namespace regard {
inline namespace v0 {

void JsonWriter::before_value() {
  poll();
  if (after_name_) {
    after_name_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) text_ += on_one_line_.back() ? ", " : ",";
  has_items_.back() = true;
  if (!on_one_line_.back()) text_.append(1, '\n').append(has_items_.size(), ' ');
}

void JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  has_items_.push_back(false);
  on_one_line_.push_back(false);
}
void JsonWriter::close(char bracket) {
  const bool break_line = has_items_.back() && !on_one_line_.back();
  has_items_.pop_back();
  on_one_line_.pop_back();
  if (break_line) text_.append(1, '\n').append(has_items_.size(), ' ');
  text_ += bracket;
}
void JsonWriter::begin_array(bool on_one_line) {
  open('[');
  on_one_line_.back() = on_one_line;
}
void JsonWriter::end_array() { close(']'); }

void JsonWriter::name(std::string_view text) {
  string(text);
  text_ += ": ";
  after_name_ = true;
}

void JsonWriter::string(std::string_view text) {
  before_value();
  text_ += json_string(text);
}

void JsonWriter::number(double x) {
  if (!std::isfinite(x)) {
    string(shortest_number(x, type_));
    return;
  }
  before_value();
  text_ += shortest_number(x, type_);
}
void JsonWriter::whole(Index x) {
  before_value();
  text_ += std::to_string(x);
}
void JsonWriter::boolean(bool x) {
  before_value();
  text_ += x ? "true" : "false";
}

void JsonWriter::matrix(const Matrix& m) {
  if (m.has_heads) begin_array();
  for (Index h = 0; h < m.num_heads; ++h) {
    begin_array();
    for (Index r = 0; r < m.stored_rows(); ++r) {
      begin_array(true);
      for (Index c = 0; c < m.stored_columns(); ++c) number(m.numbers[m.index(h, r, c)]);
      end_array();
    }
    end_array();
  }
  if (m.has_heads) end_array();
}
void JsonWriter::matrix(const TensorView<const double, 2>& m) {
  begin_array();
  for (Index r = 0; r < m.shape[0]; ++r) {
    begin_array(true);
    for (Index c = 0; c < m.shape[1]; ++c) number(m(r, c));
    end_array();
  }
  end_array();
}

void JsonWriter::string(std::string_view member, std::string_view text) {
  name(member);
  string(text);
}
void JsonWriter::number(std::string_view member, double x) {
  name(member);
  number(x);
}
void JsonWriter::whole(std::string_view member, Index x) {
  name(member);
  whole(x);
}
void JsonWriter::boolean(std::string_view member, bool x) {
  name(member);
  boolean(x);
}
void JsonWriter::matrix(std::string_view member, const Matrix& m) {
  name(member);
  matrix(m);
}
void JsonWriter::matrix(std::string_view member, const TensorView<const double, 2>& m) {
  name(member);
  matrix(m);
}
void JsonWriter::strings(std::string_view member, const std::vector<std::string>& texts, bool on_one_line) {
  if (texts.empty()) return;
  name(member);
  begin_array(on_one_line);
  for (const std::string& text : texts) string(text);
  end_array();
}
void JsonWriter::numbers(std::string_view member, const std::vector<double>& numbers) {
  if (numbers.empty()) return;
  name(member);
  begin_array(true);
  for (double x : numbers) number(x);
  end_array();
}
void JsonWriter::indices(std::string_view member, const std::vector<Index>& indices) {
  if (indices.empty()) return;
  name(member);
  begin_array(true);
  for (Index i : indices) whole(i);
  end_array();
}

void JsonWriter::source(std::string_view command) {
  string("schema", "regard/1");
  string("command", command);
  string("version", version());
  string("instruction_set", active_instruction_set());
}

std::string JsonWriter::take() {
  text_ += '\n';
  return std::move(text_);
}

}  // namespace v0
}  // namespace regard
