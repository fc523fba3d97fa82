// SPDX-License-Identifier: Apache-2.0
//
// One row of attention as a table of text: a label, columns of numbers aligned on the decimal point, and one column of
// bars that fills the remaining width.
//
//     query bank    q·k    ÷√32   weight                  contribution
//     river       31.20    5.52      .71   ████████████████████    .88
//
// Read next: sentence_table.cpp, sentence_text.cpp.
#pragma once

#include <string>
#include <vector>

#include "explain/report/table.h"

namespace regard::inline v0 {

struct BarColumn {
  std::string header{};
  std::vector<std::string> cells{};  // numbers, words such as "hidden", or nothing
  bool bars = false;                 // cells are then texts printed instead of a bar, or nothing
  std::vector<double> lengths{};     // of the bars
  int drop = 0;                      // order in which a table that is too wide drops columns: 1 first, then 2; 0 never
};
struct BarTable {
  std::string corner{};
  std::vector<std::string> labels{};
  std::vector<BarColumn> columns{};
  std::vector<bool> strong{};  // rows in bold
};

// Lines of at most `width` columns, if labels and numbers fit at all. Texts must have passed paint.shown().
// num_dropped: how many columns of numbers were omitted.
std::vector<std::string> bar_table_lines(const BarTable& table, int width, const Paint& paint, int& num_dropped);

}  // namespace regard::inline v0
