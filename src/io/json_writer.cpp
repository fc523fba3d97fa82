// SPDX-License-Identifier: Apache-2.0
//
// JSON output: commas, line breaks and shortest number formatting; see regard/io/json_writer.h.
// Read next: utf8.cpp (json_string, which escapes).
#include "regard/io/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "regard/io/utf8.h"
#include "regard/runtime.h"

namespace regard::inline v0 {
namespace {

template <class T>
std::string shortest(T x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer{};
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr};
}

bool on_one_line(JsonLayout layout) { return layout == JsonLayout::one_line || layout == JsonLayout::compact; }

}  // namespace

std::string shortest_number(double x) { return shortest(x); }
std::string shortest_number(float x) { return shortest(x); }

JsonWriter::JsonWriter(JsonStyle style, std::stop_token stop) : style_(style), stop_(std::move(stop)) {}

void JsonWriter::poll() const { throw_if_stopped(stop_, "writing JSON"); }

void JsonWriter::break_line(int column) { text_.append(1, '\n').append(static_cast<std::size_t>(column), ' '); }

void JsonWriter::before_value() {
  poll();
  if (std::exchange(after_name_, false) || levels_.empty()) return;
  Level& level = levels_.back();
  if (level.has_items) text_ += level.layout == JsonLayout::one_line ? ", " : ",";
  level.has_items = true;
  if (!on_one_line(level.layout)) break_line(level.column);
}

void JsonWriter::open(char bracket, JsonLayout layout) {
  before_value();
  text_ += bracket;
  levels_.push_back({layout, (levels_.empty() ? 0 : levels_.back().column) + style_.indent});
}
void JsonWriter::close(char bracket) {
  const Level level = levels_.back();
  levels_.pop_back();
  if (level.has_items && level.layout == JsonLayout::lines) break_line(levels_.empty() ? 0 : levels_.back().column);
  text_ += bracket;
}

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
  const std::string text = style_.float32 ? shortest(static_cast<float>(x)) : shortest(x);
  if (!std::isfinite(x)) return string(text);
  before_value();
  text_ += text;
}
void JsonWriter::integer(std::int64_t x) {
  before_value();
  text_ += std::to_string(x);
}
void JsonWriter::integer(std::uint64_t x) {
  before_value();
  text_ += std::to_string(x);
}
void JsonWriter::boolean(bool x) {
  before_value();
  text_ += x ? "true" : "false";
}
void JsonWriter::null() {
  before_value();
  text_ += "null";
}

void JsonWriter::matrix(const Matrix& m) {
  if (m.has_heads) begin_array();
  for (Index h = 0; h < m.num_heads; ++h) {
    begin_array();
    for (Index r = 0; r < m.stored_rows(); ++r) {
      begin_array(JsonLayout::one_line);
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
    begin_array(JsonLayout::one_line);
    for (Index c = 0; c < m.shape[1]; ++c) number(m(r, c));
    end_array();
  }
  end_array();
}

void JsonWriter::json(std::string_view member, std::string_view value) {
  name(member);
  before_value();
  text_ += value;
}
void JsonWriter::string(std::string_view member, std::string_view text) {
  name(member);
  string(text);
}
void JsonWriter::number(std::string_view member, double x) {
  name(member);
  number(x);
}
void JsonWriter::boolean(std::string_view member, bool x) {
  name(member);
  boolean(x);
}
void JsonWriter::null(std::string_view member) {
  name(member);
  null();
}
void JsonWriter::matrix(std::string_view member, const Matrix& m) {
  name(member);
  matrix(m);
}
void JsonWriter::matrix(std::string_view member, const TensorView<const double, 2>& m) {
  name(member);
  matrix(m);
}
void JsonWriter::strings(std::string_view member, const std::vector<std::string>& texts, JsonLayout layout) {
  if (!texts.empty()) list(member, texts, layout);
}
void JsonWriter::numbers(std::string_view member, const std::vector<double>& numbers) {
  if (!numbers.empty()) list(member, numbers);
}
void JsonWriter::indices(std::string_view member, const std::vector<Index>& indices) {
  if (!indices.empty()) list(member, indices);
}

void JsonWriter::source(std::string_view command) {
  string("schema", "regard/1");
  string("command", command);
  string("version", version());
  string("instruction_set", active_instruction_set());
}

std::string JsonWriter::take_part() { return std::exchange(text_, {}); }

std::string JsonWriter::take() {
  text_ += '\n';
  return take_part();
}

}  // namespace regard::inline v0
