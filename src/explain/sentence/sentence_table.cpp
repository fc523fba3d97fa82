// SPDX-License-Identifier: Apache-2.0
//
// Labels, numbers and bars in columns; see sentence_table.h. All bars share one scale: the longest fills its column.
// Read next: sentence_text.cpp.
#include "sentence_table.h"

#include <algorithm>
#include <cmath>

namespace regard::inline v0 {
namespace {

constexpr int kBarGap = 2;
constexpr int kLeastBar = 8;
constexpr int kMaxBar = 48;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789.-−+<>() ") == std::string_view::npos;
}

// Width after the integer digits, including the point.
int width_after_point(std::string_view cell) {
  const std::size_t point = cell.find('.');
  return point == std::string_view::npos ? 0 : static_cast<int>(cell.size() - point);
}

struct BarLayout {
  int width = 0;
  int after = 0;
};

BarLayout layout_of(const BarColumn& column) {
  BarLayout layout;
  int before = 0, words = display_width(column.header);
  for (const std::string& cell : column.cells) {
    if (!is_number(cell)) {
      words = std::max(words, display_width(cell));
      continue;
    }
    layout.after = std::max(layout.after, width_after_point(cell));
    before = std::max(before, display_width(cell) - width_after_point(cell));
  }
  layout.width = std::max(before + layout.after, words);
  return layout;
}

std::string aligned(const std::string& cell, const BarLayout& layout) {
  if (!is_number(cell)) return pad_left(cell, layout.width);
  const int missing = layout.after - width_after_point(cell);
  return pad_left(cell + std::string(static_cast<std::size_t>(missing), ' '), layout.width);
}

// Half a cell is the smallest step; every value other than 0 gets at least that.
std::string bar(double length, double longest, int width, bool unicode) {
  if (!(length > 0) || !(longest > 0)) return "";
  const int halves = std::max(1, static_cast<int>(std::lround(2.0 * width * length / longest)));
  std::string text;
  for (int i = 0; i < halves / 2; ++i) text += unicode ? "█" : "#";
  if (halves % 2 == 1 && (unicode || halves == 1)) text += unicode ? "▌" : "#";
  return text;
}

void trim(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::vector<std::string> bar_table_lines(const BarTable& table, int width, const Paint& paint, int& num_dropped) {
  int label_width = display_width(table.corner);
  for (const std::string& label : table.labels) label_width = std::max(label_width, display_width(label));
  std::vector<const BarColumn*> columns;
  for (const BarColumn& column : table.columns) columns.push_back(&column);
  const auto fixed = [&] {
    int sum = label_width;
    for (const BarColumn* c : columns)
      sum += kBarGap + (c->bars ? std::max(kLeastBar, display_width(c->header)) + 1 : layout_of(*c).width);
    return sum;
  };
  num_dropped = 0;
  for (const int order : {1, 2}) {
    while (fixed() > width) {
      const auto drop =
          std::find_if(columns.begin(), columns.end(), [&](const BarColumn* c) { return c->drop == order; });
      if (drop == columns.end()) break;
      if (!(*drop)->bars) ++num_dropped;
      columns.erase(drop);
    }
  }
  const int bar_width = std::clamp(kLeastBar + width - fixed(), 1, kMaxBar);

  double longest = 0;
  for (const BarColumn* c : columns) {
    for (const double x : c->lengths) longest = std::max(longest, x);
  }
  std::vector<std::string> lines;
  std::string header = pad_right(table.corner, label_width);
  for (const BarColumn* c : columns) {
    header += std::string(kBarGap, ' ');
    if (c->bars) {
      header.append(1, ' ').append(pad_right(c->header, bar_width));
    } else {
      header += pad_left(c->header, layout_of(*c).width);
    }
  }
  trim(header);
  lines.push_back(paint.bold(header));
  for (std::size_t row = 0; row < table.labels.size(); ++row) {
    std::string line = pad_right(table.labels[row], label_width);
    std::string runs_on;  // a text in the bar column that is too long for it ends its line
    for (const BarColumn* c : columns) {
      if (!c->bars) {
        if (runs_on.empty()) line.append(kBarGap, ' ').append(aligned(c->cells[row], layout_of(*c)));
      } else if (display_width(c->cells[row]) > bar_width) {
        runs_on = c->cells[row];
      } else {
        const std::string drawn =
            c->cells[row].empty() ? bar(c->lengths[row], longest, bar_width, paint.unicode) : c->cells[row];
        line.append(kBarGap + 1, ' ').append(pad_right(drawn, bar_width));
      }
    }
    const bool fits = display_width(line) + kBarGap + 1 + display_width(runs_on) <= width;
    if (!runs_on.empty() && fits) line.append(kBarGap + 1, ' ').append(runs_on);
    trim(line);
    const bool strong = row < table.strong.size() && table.strong[row];
    lines.push_back(strong ? paint.bold(line) : line);
    if (!runs_on.empty() && !fits) {
      for (const std::string& below : wrap_words(runs_on, width - kBarGap, 0))
        lines.push_back(std::string(kBarGap, ' ') + below);
    }
  }
  return lines;
}

}  // namespace regard::inline v0
