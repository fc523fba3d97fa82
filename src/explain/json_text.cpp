// SPDX-License-Identifier: Apache-2.0
//
// JSON out: a writer of its own, for the shortest numbers, and text in which everything invisible and everything that
// HTML could take for a tag is escaped.
// Read next: render_json.cpp.
#include "json_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cmath>

#include "text.h"

namespace regard {
inline namespace v0 {
namespace {

bool is_plain(utf8proc_int32_t code) {
  if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\\') return false;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

void append_escaped(std::string& out, utf8proc_int32_t code) {
  if (code == '"' || code == '\\') {
    out += '\\';
    out += static_cast<char>(code);
  } else if (code == '\n') {
    out += "\\n";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", code);
  } else {
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
  }
}

}  // namespace

void JsonWriter::before_value() {
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
  text_ += '"';
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (length <= 0) {
      // JSON has no bytes that are no text: the replacement character stands for each.
      text_ += "\\ufffd";
      length = 1;
    } else if (is_plain(code)) {
      text_ += text.substr(0, static_cast<std::size_t>(length));
    } else {
      append_escaped(text_, code);
    }
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  text_ += '"';
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
void JsonWriter::null() {
  before_value();
  text_ += "null";
}

void JsonWriter::matrix(const Matrix& m) {
  if (m.has_heads) begin_array();
  for (Index h = 0; h < m.num_heads; ++h) {
    begin_array();
    for (Index r = 0; r < m.stored_rows(); ++r) {
      begin_array(true);
      for (Index c = 0; c < m.stored_columns(); ++c) number(m.numbers[m.place(h, r, c)]);
      end_array();
    }
    end_array();
  }
  if (m.has_heads) end_array();
}

std::string JsonWriter::take() {
  text_ += '\n';
  return std::move(text_);
}

}  // namespace v0
}  // namespace regard
