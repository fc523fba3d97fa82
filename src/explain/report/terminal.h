// SPDX-License-Identifier: Apache-2.0
//
// Numbers and words for readers: fixed decimals with a leading zero and a true minus sign, shortest forms that read
// back the same, words truncated to a display width.
// Read next: terminal.cpp, steps_text.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

// The shortest decimal text that reads back as the same number of that type; "-inf", "inf", "nan".
std::string shortest_number(double number, ElementType type);

// The same for people: "−0.5", "−∞".
std::string shown_number(double number, ElementType type);

// How the numbers of one matrix are printed, so that they are aligned and comparable.
struct NumberStyle {
  int digits = 4;
  bool scientific = false;
  bool unicode = true;
};
// The given digits, else none if every number is whole, else 4, or more if the largest number needs them to show four;
// scientific if fixed decimals would take more than 12 columns.
NumberStyle style_for(const Matrix& matrix, std::optional<int> digits, bool unicode);

// The style of a step's result, or of another matrix of that step: the given digits, else the step's, else the
// input's; whole numbers stay whole unless the step or the caller sets digits.
NumberStyle step_style(const Explanation& explanation, const Step& step, const Matrix& matrix,
                       std::optional<int> digits, bool unicode);

// A figure as a document prints such figures: with its decimals, or its significant digits.
std::string document_number(double number, const Expected& expected, bool unicode);

// "0.4223", "−1.5000", "0" for exactly 0, "<0.0001" and ">−0.0001" for what would print as 0 but is not, "−∞";
// without Unicode "-1.5000" and "-inf".
std::string styled_number(double number, const NumberStyle& style);

// The printed value in units in its last decimal place, for adding up printed numbers.
long long printed_units(double number, const NumberStyle& style);

// Truncates to at most `width` columns, the last one an ellipsis.
std::string truncate_to_width(std::string_view text, int width, bool unicode);
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);

// A bar of eighths of a column, at least one for any value above 0; without Unicode, of whole columns.
std::string bar_text(double share, int width, bool unicode);

// "a", "a and b", "a, b and c".
std::string and_list(const std::vector<std::string>& parts);

}  // namespace regard::inline v0
