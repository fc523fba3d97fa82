// SPDX-License-Identifier: Apache-2.0
//
// Parts of the text of a step: the row of weights with its bars, the working of one cell, the numbers that differ from
// a document's, and the effect of rounding on printed sums.
// Read next: steps_text_parts.cpp, steps_text_weights.cpp, steps_text.cpp.
#pragma once

#include <string>
#include <vector>

#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "regard/explain/steps.h"

namespace regard::inline v0 {

struct TextContext {
  const Explanation& explanation;
  const TextOptions& options;
  Paint paint;
  int width;  // of the lines to make
};

// "rounded figures sum to 1.0001"; empty if the printed figures add up to the printed total, both in printed_units.
std::string rounding_text(long long printed, long long total, const NumberStyle& style);
// One query's weights, key by key, with bars. Nothing if there is no such row or only one key.
std::vector<std::string> bar_lines(const TextContext& context, const Step& step, const NumberStyle& style);
// "Q[love, 0] = 0·1 + 1·0 + 0·1 = 0": one cell worked in a line, or nothing.
std::vector<std::string> example_lines(const TextContext& context, const Step& step, const NumberStyle& style);
// The figure of random scores: histograms and mean weights for each head size D; nothing if the width is too small.
std::vector<std::string> picture_lines(const TextContext& context, const Step& step);
// The working of the cell that the options name.
std::vector<std::string> cell_lines(const TextContext& context, const Step& step, const NumberStyle& style);
// The document's figures that ours do not round to, or a line that all agree.
std::vector<std::string> document_lines(const TextContext& context, const Step& step);
// Which axis sums to 1, and where the printed digits do not.
std::vector<std::string> sum_lines(const TextContext& context, const Step& step, const Table& table, Index head,
                                   const NumberStyle& style);

}  // namespace regard::inline v0
