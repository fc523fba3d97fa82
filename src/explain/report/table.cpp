// SPDX-License-Identifier: Apache-2.0
//
// Matrices as tables of text; see table.h.
//
//     rows to show → columns that fit → cell texts → width of each column before and after its point → lines
//
// Read next: steps_text.cpp.
#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace regard::inline v0 {
namespace {

constexpr int kTableGap = 2;        // between columns
constexpr Index kMaxRows = 14;      // more are shortened
constexpr Index kWrapColumns = 16;  // up to this many, all are shown, in several blocks if necessary
constexpr int kWidestLabel = 20;

struct ColumnText {
  std::string header;
  std::vector<std::string> cells;
  std::vector<bool> hidden;
  int before = 0;  // columns before the decimal point
  int after = 0;   // the point and what follows
  int plain = 0;   // width of words such as "hidden"
  int width = 0;
};

bool is_numeric(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_of("/e") == std::string_view::npos;
}

void measure(ColumnText& column) {
  for (const std::string& cell : column.cells) {
    if (!is_numeric(cell)) {
      column.plain = std::max(column.plain, display_width(cell));
      continue;
    }
    const std::size_t point = std::min(cell.find('.'), cell.size());
    column.before = std::max(column.before, display_width(std::string_view(cell).substr(0, point)));
    column.after = std::max(column.after, static_cast<int>(cell.size() - point));
  }
  column.width = std::max({column.before + column.after, column.plain, display_width(column.header), 1});
}

std::string aligned(const std::string& cell, const ColumnText& column) {
  if (!is_numeric(cell)) return pad_left(cell, column.width);
  const std::size_t point = std::min(cell.find('.'), cell.size());
  const int missing = column.after - static_cast<int>(cell.size() - point);
  return pad_left(cell + std::string(static_cast<std::size_t>(missing), ' '), column.width);
}

class TableMaker {
 public:
  TableMaker(const TableRequest& request, const Paint& paint) : r_(request), paint_(paint) {}

  Table make() {
    Table table;
    const Matrix& m = r_.matrix;
    rows_ = chosen_indices(m.stored_rows(), r_.full ? m.stored_rows() : kMaxRows, stored(m.kept_rows, r_.wanted_rows));
    label_width_ = label_column_width();
    choose_columns();
    table.shown_rows = rows_;
    table.shown_columns = columns_;
    table.shortened =
        static_cast<Index>(rows_.size()) < m.num_rows || static_cast<Index>(columns_.size()) < m.num_columns;
    std::vector<std::pair<std::size_t, std::size_t>> runs = runs_that_fit();
    for (const auto& [first, last] : runs) table.blocks.push_back(block(first, last, last == texts_.size()));
    return table;
  }

 private:
  static std::vector<Index> stored(const std::vector<Index>& kept, const std::vector<Index>& wanted) {
    std::vector<Index> indices;
    for (Index i : wanted)
      if (const Index stored = stored_index(kept, i); stored >= 0) indices.push_back(stored);
    return indices;
  }
  static Index whole_index(const std::vector<Index>& kept, Index stored) {
    return kept.empty() ? stored : kept[static_cast<std::size_t>(stored)];
  }
  std::string label(const Axis& axis, Index index, bool marked, int most) const {
    const std::string_view mark = !marked ? "" : paint_.unicode ? "▸" : ">";
    return std::string(mark) + truncate_to_width(paint_.shown(axis_label(axis, index)), most, paint_.unicode);
  }
  std::string row_label(Index stored) const {
    const Index index = whole_index(r_.matrix.kept_rows, stored);
    std::string text = label(r_.row_axis, index, r_.marked_row == index, widest_label());
    // A gutter for the mark keeps the labels aligned.
    if (r_.marked_row && r_.marked_row != index) text.insert(text.begin(), ' ');
    return text;
  }
  int widest_label() const { return std::clamp(r_.width / 4, 6, kWidestLabel); }

  // "query ↓ key →": the row axis and the column axis.
  std::string corner() const {
    std::string down = paint_.shown(r_.row_axis.name);
    const std::string across = paint_.shown(r_.column_axis.name);
    if (down.empty() && across.empty()) return "";
    if (down.empty()) return across + (paint_.unicode ? " →" : " >");
    if (across.empty()) return down;
    return down + (paint_.unicode ? " ↓ " : " \\ ") + across + (paint_.unicode ? " →" : "");
  }
  int label_column_width() const {
    int width = sum_row() ? 3 : 1;
    for (Index stored : rows_) width = std::max(width, display_width(row_label(stored)));
    return width;
  }
  bool sum_row() const { return r_.sums != nullptr && r_.sums_to_one == SumAxis::column; }
  bool sum_column() const { return r_.sums != nullptr && r_.sums_to_one == SumAxis::row; }

  std::string cell(Index row, Index column) const {
    const std::size_t i = r_.matrix.index(r_.head, row, column);
    if (r_.exact != nullptr) return i < r_.exact->size() ? paint_.shown((*r_.exact)[i]) : "";
    if (!r_.matrix.hidden.empty() && r_.matrix.hidden[i] != 0) return "hidden";
    return styled_number(r_.matrix.numbers[i], r_.style);
  }

  ColumnText column_text(Index column) const {
    ColumnText text;
    const Index index = whole_index(r_.matrix.kept_columns, column);
    for (Index row : rows_) {
      throw_if_stopped(r_.stop, "the explanation");
      text.cells.push_back(cell(row, column));
      text.hidden.push_back(!r_.matrix.hidden.empty() && r_.matrix.hidden[r_.matrix.index(r_.head, row, column)] != 0);
    }
    if (sum_row())
      text.cells.push_back(
          styled_number((*r_.sums)[static_cast<std::size_t>(r_.head * r_.matrix.stored_columns() + column)], r_.style));
    measure(text);
    constexpr int kShortestHeader = 11;
    text.header = label(r_.column_axis, index, r_.marked_column == index, std::max(text.width, kShortestHeader));
    text.width = std::max(text.width, display_width(text.header));
    return text;
  }
  ColumnText sum_text() const {
    ColumnText text;
    text.header = "sum";
    for (Index row : rows_)
      text.cells.push_back(
          styled_number((*r_.sums)[static_cast<std::size_t>(r_.head * r_.matrix.stored_rows() + row)], r_.style));
    measure(text);
    return text;
  }

  int available() const { return r_.width - label_width_ - (sum_column() ? sum_.width + kTableGap + 1 : 0); }
  static int total_width(const std::vector<ColumnText>& texts) {
    int width = 0;
    for (const ColumnText& text : texts) width += text.width + kTableGap;
    return width;
  }

  void choose_columns() {
    const Matrix& m = r_.matrix;
    const std::vector<Index> wanted = stored(m.kept_columns, r_.wanted_columns);
    if (sum_column()) sum_ = sum_text();
    const Index count = m.stored_columns();
    constexpr Index kMaxTried = 64;  // wider than any terminal
    const bool all = r_.full || count <= kWrapColumns;
    Index most = all ? count : std::min(count, kMaxTried);
    while (true) {
      columns_ = chosen_indices(count, most, wanted);
      texts_.clear();
      for (Index column : columns_) texts_.push_back(column_text(column));
      if (all || most <= 2) break;
      const int gaps = static_cast<Index>(columns_.size()) < count ? 2 * (kTableGap + 1) : 0;
      const int excess = total_width(texts_) + gaps - available();
      if (excess <= 0) break;
      const int each = std::max(1, total_width(texts_) / static_cast<int>(texts_.size()));
      most = std::max<Index>(2, std::min<Index>(most - 1, most - excess / each));
    }
  }

  // Runs of columns, each with the label column in front.
  std::vector<std::pair<std::size_t, std::size_t>> runs_that_fit() const {
    std::vector<std::pair<std::size_t, std::size_t>> runs;
    std::size_t first = 0;
    int width = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const int next = texts_[i].width + kTableGap + (gap_before(i) ? kTableGap + 1 : 0);
      if (i > first && width + next > available()) {
        runs.emplace_back(first, i);
        first = i;
        width = 0;
      }
      width += next;
    }
    runs.emplace_back(first, texts_.size());
    return runs;
  }
  bool gap_before(std::size_t i) const {
    return i > 0 &&
           whole_index(r_.matrix.kept_columns, columns_[i]) != whole_index(r_.matrix.kept_columns, columns_[i - 1]) + 1;
  }

  Block block(std::size_t first, std::size_t last, bool is_last) const {
    Block b;
    if (!r_.title.empty()) b.add(paint_.dim(r_.title), display_width(r_.title));
    const std::string names = corner();
    if (!names.empty()) b.add(paint_.dim(names), display_width(names));
    b.add(header(first, last, is_last), row_width(first, last, is_last));
    Index previous = -1;
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      throw_if_stopped(r_.stop, "the explanation");
      const Index index = whole_index(r_.matrix.kept_rows, rows_[n]);
      if (n > 0 && index != previous + 1) b.add(paint_.unicode ? "⋮" : ":", 1);
      previous = index;
      std::string text = pad_right(row_label(rows_[n]), label_width_);
      for (std::size_t i = first; i < last; ++i) {
        text += gap(i > first && gap_before(i));
        const std::string cell_text = aligned(texts_[i].cells[n], texts_[i]);
        text += texts_[i].hidden[n] ? paint_.dim(cell_text) : cell_text;
      }
      if (sum_column() && is_last) text += std::string(kTableGap + 1, ' ') + aligned(sum_.cells[n], sum_);
      b.add(r_.marked_row == index ? paint_.bold(text) : text, row_width(first, last, is_last));
    }
    if (sum_row()) {
      std::string text = pad_right("sum", label_width_);
      for (std::size_t i = first; i < last; ++i)
        text += gap(i > first && gap_before(i)) + aligned(texts_[i].cells[rows_.size()], texts_[i]);
      b.add(text, row_width(first, last, is_last));
    }
    return b;
  }
  std::string header(std::size_t first, std::size_t last, bool is_last) const {
    std::string text = pad_right("", label_width_);
    for (std::size_t i = first; i < last; ++i)
      text += gap(i > first && gap_before(i)) + pad_left(texts_[i].header, texts_[i].width);
    if (sum_column() && is_last) text += std::string(kTableGap + 1, ' ') + pad_left(sum_.header, sum_.width);
    return text;
  }
  std::string gap(bool left_out) const {
    const std::string space(kTableGap, ' ');
    return left_out ? space + (paint_.unicode ? "…" : "~") + space : space;
  }
  int row_width(std::size_t first, std::size_t last, bool is_last) const {
    int width = label_width_;
    for (std::size_t i = first; i < last; ++i)
      width += texts_[i].width + kTableGap + (i > first && gap_before(i) ? kTableGap + 1 : 0);
    return width + (sum_column() && is_last ? sum_.width + kTableGap + 1 : 0);
  }

  const TableRequest& r_;
  const Paint& paint_;
  std::vector<Index> rows_;
  std::vector<Index> columns_;
  std::vector<ColumnText> texts_;
  ColumnText sum_;
  int label_width_ = 0;
};

// ASCII forms of the characters in the program's own text, for terminals without Unicode.
constexpr std::array<std::pair<std::string_view, std::string_view>, 39> kAsciiNames = {{
    {"ᵀ", "^T"},  {"√", "sqrt "}, {"·", "*"},     {"−", "-"},     {"∞", "inf"},   {"≤", "<="}, {"≥", ">="},
    {"×", "x"},   {"…", "..."},   {"²", "^2"},    {"—", "-"},     {"–", "-"},     {"÷", "/"},  {"½", "1/2"},
    {"⅓", "1/3"}, {"→", "->"},    {"↓", "v"},     {"□", "x"},     {"Σ", "sum "},  {"⁻", "^-"}, {"±", "+-"},
    {"₀", "0"},   {"₁", "1"},     {"₂", "2"},     {"₃", "3"},     {"ⱼ", "_j"},    {"′", "'"},  {"″", "''"},
    {"‴", "'''"}, {"⁺", "+"},     {"ω", "omega"}, {"α", "alpha"}, {"Δ", "Delta"}, {"“", "\""}, {"”", "\""},
    {"‘", "'"},   {"’", "'"},     {"†", "!"},     {"‡", "+"},
}};

}  // namespace

std::string Paint::shown(std::string_view text) const {
  std::string escaped = escape_for_terminal(text);
  if (unicode) return escaped;
  std::string plain;
  for (std::size_t i = 0; i < escaped.size();) {
    if (static_cast<unsigned char>(escaped[i]) < 0x80) {
      plain += escaped[i++];
      continue;
    }
    const std::string_view rest = std::string_view(escaped).substr(i);
    const auto known =
        std::find_if(kAsciiNames.begin(), kAsciiNames.end(), [&](const auto& p) { return rest.starts_with(p.first); });
    if (known != kAsciiNames.end()) {
      plain += known->second;
      i += known->first.size();
      continue;
    }
    // A valid character of two to four bytes: escape_for_terminal leaves no others.
    const unsigned lead = static_cast<unsigned char>(escaped[i]);
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    unsigned code = lead & (0xffu >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) code = code << 6 | (static_cast<unsigned char>(escaped[i + k]) & 0x3fu);
    plain += fmt::format("\\u{{{:x}}}", code);
    i += length;
  }
  return plain;
}

void Block::add(std::string text, int line_width) {
  lines.push_back({std::move(text), line_width});
  width = std::max(width, line_width);
}

std::vector<Index> chosen_indices(Index count, Index most, const std::vector<Index>& wanted) {
  std::vector<Index> chosen;
  const Index first = std::min(count, (most * 3 + 4) / 5);
  const Index last = count <= most ? count - first : std::min(count - first, most - first);
  for (Index i = 0; i < first; ++i) chosen.push_back(i);
  for (Index i = count - last; i < count; ++i) chosen.push_back(i);
  for (Index i : wanted)
    if (i >= 0 && i < count) chosen.push_back(i);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

std::string axis_label(const Axis& axis, Index index) {
  if (static_cast<std::size_t>(index) < axis.labels.size()) return axis.labels[static_cast<std::size_t>(index)];
  return std::to_string(index);
}

Index stored_index(const std::vector<Index>& kept, Index index) {
  if (kept.empty()) return index;
  const auto found = std::lower_bound(kept.begin(), kept.end(), index);
  return found != kept.end() && *found == index ? static_cast<Index>(found - kept.begin()) : -1;
}

Table make_table(const TableRequest& request, const Paint& paint) { return TableMaker(request, paint).make(); }

std::vector<Line> side_by_side(const std::vector<Block>& blocks, int width) {
  constexpr int kBetween = 4;
  std::vector<Line> lines;
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t last = first + 1;
    int total = blocks[first].width;
    while (last < blocks.size() && total + kBetween + blocks[last].width <= width)
      total += kBetween + blocks[last++].width;
    std::size_t height = 0;
    for (std::size_t b = first; b < last; ++b) height = std::max(height, blocks[b].lines.size());
    if (first > 0) lines.push_back({"", 0});
    for (std::size_t n = 0; n < height; ++n) {
      Line line{"", 0};
      int column = 0;  // where the block starts
      for (std::size_t b = first; b < last; ++b) {
        if (n < blocks[b].lines.size() && blocks[b].lines[n].width > 0) {
          line.text += std::string(static_cast<std::size_t>(column - line.width), ' ') + blocks[b].lines[n].text;
          line.width = column + blocks[b].lines[n].width;
        }
        column += blocks[b].width + kBetween;
      }
      lines.push_back(std::move(line));
    }
    first = last;
  }
  return lines;
}

std::vector<std::string> wrap_words(const std::string& text, int width, int indent) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t i = 0;
  while (i < text.size()) {
    std::size_t end = std::min(text.find(' ', i), text.size());
    while (text.compare(end, 2, " %") == 0) end = std::min(text.find(' ', end + 1), text.size());  // "99 %" is a word
    std::string word = text.substr(i, end - i);
    i = end + 1;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(line);
      line = std::string(static_cast<std::size_t>(indent), ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace regard::inline v0
