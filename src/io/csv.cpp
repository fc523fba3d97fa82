// SPDX-License-Identifier: Apache-2.0
//
// Matrices from CSV; see csv.h.
//
//     text → cells, one at a time → numbers → rows of one length
//
// One pass, no recursion, memory proportional to the text.
// Read next: input_json.cpp, which reads matrices from JSON.
#include "regard/io/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Matrix read() {
    if (text_.starts_with("\xEF\xBB\xBF")) next_ = 3;
    check_utf8();
    const std::string_view blank = text_.substr(next_);
    if (blank.find_first_not_of(" \t\r\n") == std::string_view::npos) fail(1, 1, "the file is empty");
    Matrix m;
    while (!at_end()) {
      const Index cells = read_row(m);
      if (m.num_rows == 0) m.num_columns = cells;
      if (cells != m.num_columns)
        fail(line_ - 1, std::min(cells, m.num_columns) + 1,
             fmt::format("the row has {} cells and the first row has {}", cells, m.num_columns));
      ++m.num_rows;
    }
    return m;
  }

 private:
  // Only empty lines may follow.
  bool at_end() const { return text_.find_first_not_of("\r\n", next_) == std::string_view::npos; }

  Index read_row(Matrix& m) {
    Index column = 0;
    while (true) {
      ++column;
      m.numbers.push_back(number_of(read_cell(column), column));
      if (next_ == text_.size()) break;
      const char divider = text_[next_++];
      if (divider == ',') continue;
      if (divider == '\r' && next_ < text_.size() && text_[next_] == '\n') ++next_;
      break;
    }
    ++line_;
    return column;
  }

  // The text of a cell, without quotes; next_ is then at its comma, its line end or the end of the file.
  std::string read_cell(Index column) {
    skip_blanks();
    std::string cell;
    if (next_ < text_.size() && text_[next_] == '"') {
      ++next_;
      while (true) {
        if (next_ == text_.size()) fail(line_, column, "unterminated quote");
        const char c = text_[next_++];
        if (c != '"') {
          cell += c;
        } else if (next_ < text_.size() && text_[next_] == '"') {
          cell += '"';
          ++next_;
        } else {
          break;
        }
      }
      skip_blanks();
      if (next_ < text_.size() && !is_divider(text_[next_])) fail(line_, column, "text follows the closing quote");
    } else {
      const std::size_t first = next_;
      while (next_ < text_.size() && !is_divider(text_[next_])) ++next_;
      cell = text_.substr(first, next_ - first);
    }
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.pop_back();
    cell.erase(0, std::min(cell.size(), cell.find_first_not_of(" \t")));
    return cell;
  }

  double number_of(const std::string& cell, Index column) const {
    if (cell.empty()) fail(line_, column, "the cell is empty");
    const std::string_view digits = std::string_view(cell).substr(cell[0] == '+' ? 1 : 0);
    double number = 0.0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool whole = end == digits.data() + digits.size() && !digits.starts_with("+") &&
                       !(cell[0] == '+' && digits.starts_with("-"));
    if (error == std::errc::result_out_of_range && whole)
      fail(line_, column, fmt::format("{} is out of range for double", shown(cell)));
    if (error == std::errc() && whole && digits.find('(') == std::string_view::npos) return number;
    if (cell.find(',') != std::string::npos && cell.find_first_not_of("+-0123456789.,eE") == std::string::npos)
      fail(line_, column, fmt::format("{} has a decimal comma; use a decimal point", shown(cell)));
    if (cell.find(';') != std::string::npos && cell.find_first_not_of("+-0123456789.,;eE ") == std::string::npos)
      fail(line_, column, fmt::format("{} contains semicolons; separate cells with commas", shown(cell)));
    if (cell.find_first_of(" \t") != std::string::npos &&
        cell.find_first_not_of("+-0123456789.eE \t") == std::string::npos)
      fail(line_, column, fmt::format("{} contains spaces or tabs; separate cells with commas", shown(cell)));
    fail(line_, column,
         fmt::format("{} is not a number{}", shown(cell), line_ == 1 ? "; header rows are not supported" : ""));
  }

  static std::string shown(std::string_view cell) {
    constexpr std::size_t kLongest = 40;
    return fmt::format("\"{}{}\"", escape_for_terminal(truncate_text(cell, kLongest)),
                       cell.size() > kLongest ? "…" : "");
  }

  void check_utf8() const {
    const std::size_t broken = next_ + valid_utf8_bytes(text_.substr(next_));
    if (broken == text_.size()) return;
    Index line = 1;
    Index column = 1;
    for (std::size_t i = next_; i < broken; ++i) {
      if (text_[i] == ',') ++column;
      if (text_[i] == '\n' || (text_[i] == '\r' && text_.substr(i + 1, 1) != "\n")) {
        ++line;
        column = 1;
      }
    }
    fail(line, column,
         fmt::format("byte {} ({:#04x}) is not valid UTF-8", broken, static_cast<unsigned char>(text_[broken])));
  }

  static bool is_divider(char c) { return c == ',' || c == '\n' || c == '\r'; }
  void skip_blanks() {
    while (next_ < text_.size() && (text_[next_] == ' ' || text_[next_] == '\t')) ++next_;
  }

  [[noreturn]] void fail(Index line, Index column, const std::string& what) const {
    throw DataError(fmt::format("{}: line {}, column {}: {}", escape_for_terminal(source_), line, column, what));
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t next_ = 0;
  Index line_ = 1;
};

}  // namespace

Matrix read_csv(std::string_view text, const std::string& source) { return Reader(text, source).read(); }

}  // namespace regard::inline v0
