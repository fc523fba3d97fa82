// SPDX-License-Identifier: Apache-2.0
//
// Matrices as tables of text: labels, columns aligned on the decimal point, the middle of large matrices omitted; and
// blocks of lines next to each other where they fit.
// Read next: table.cpp, steps_text.cpp.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "regard/explain/steps.h"
#include "terminal.h"

namespace regard::inline v0 {

// How text is shown: in color or not, in Unicode or ASCII. All untrusted text passes through shown().
struct Paint {
  bool color = false;
  bool unicode = true;

  // Escaped for a terminal; without Unicode, signs of formulas in ASCII and the rest as \u{…}.
  std::string shown(std::string_view text) const;
  // In quotation marks; the text must be escaped already.
  std::string quoted(const std::string& text) const { return unicode ? "“" + text + "”" : "\"" + text + "\""; }
  std::string bold(const std::string& text) const { return wrap("1", text); }
  std::string dim(const std::string& text) const { return wrap("2", text); }
  std::string warn(const std::string& text) const { return wrap("33", text); }
  std::string wrap(const char* code, const std::string& text) const {
    return color && !text.empty() ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
  }
};

// Lines with their display width, which excludes color codes.
struct Line {
  std::string text;
  int width;
};
struct Block {
  std::vector<Line> lines;
  int width = 0;
  void add(std::string text, int line_width);
};

// The label of an index on an axis: the word, else the index.
std::string axis_label(const Axis& axis, Index index);
// Where a row or column of the whole matrix is stored, or −1.
Index stored_index(const std::vector<Index>& kept, Index index);

struct TableRequest {
  const Matrix& matrix;
  Index head = 0;
  const Axis& row_axis;
  const Axis& column_axis;
  NumberStyle style;
  const std::vector<std::string>* exact = nullptr;  // texts shown instead of numbers
  const std::vector<double>* sums = nullptr;        // as in Step, along `sums_to_one`
  SumAxis sums_to_one = SumAxis::none;
  std::vector<Index> wanted_rows{};  // always shown, and marked if `mark` is set
  std::vector<Index> wanted_columns{};
  std::optional<Index> marked_row{};
  std::optional<Index> marked_column{};
  std::string title{};
  int width = 80;
  bool full = false;
  std::stop_token stop{};
};
struct Table {
  std::vector<Block> blocks;      // more than one when the columns are too many for a line
  std::vector<Index> shown_rows;  // indices of stored rows
  std::vector<Index> shown_columns;
  bool shortened = false;
};
// Throws Cancelled if a stop is requested.
Table make_table(const TableRequest& request, const Paint& paint);

// The indices that are shown if at most `most` of `count` fit: the first and last ones, and those wanted.
std::vector<Index> chosen_indices(Index count, Index most, const std::vector<Index>& wanted);

// Next to each other with gaps of four columns, as many as fit in the width; the rest below.
std::vector<Line> side_by_side(const std::vector<Block>& blocks, int width);
inline constexpr int kWidestProse = 100;  // longer lines are hard to read
// Text wrapped into lines of at most `width` columns, later lines indented.
std::vector<std::string> wrap_words(const std::string& text, int width, int indent);

}  // namespace regard::inline v0
