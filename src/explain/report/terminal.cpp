// SPDX-License-Identifier: Apache-2.0
//
// Numbers and words as a terminal shows them; see terminal.h. Decimals come from fmt and <charconv>, which ignore the
// locale; characters and widths from regard/io/utf8.h.
// Read next: steps_text.cpp.
#include "terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "regard/io/json_writer.h"

namespace regard::inline v0 {
namespace {

// "−1.5" for "-1.5", in exponents too; ASCII stays as it is.
std::string with_true_minus(std::string_view text, bool unicode) {
  if (!unicode) return std::string(text);
  std::string signed_text;
  for (const char c : text) {
    if (c == '-') {
      signed_text += "−";
    } else {
      signed_text += c;
    }
  }
  return signed_text;
}

}  // namespace

std::string truncate_to_width(std::string_view text, int width, bool unicode) {
  // Combining marks have no width, so a word of many of them is truncated by the number of characters.
  const int max_characters = 4 * width + 4;
  std::string kept;
  std::string kept_before_ellipsis;
  int columns = 0;
  int characters = 0;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, character_bytes(text));
    text.remove_prefix(character.size());
    columns += display_width(character);
    ++characters;
    if (columns > width || characters > max_characters) return kept_before_ellipsis + (unicode ? "…" : "~");
    kept += character;
    if (columns <= width - 1) kept_before_ellipsis = kept;
  }
  return kept;
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
}
std::string pad_left(std::string_view text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ') + std::string(text);
}

std::string and_list(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

std::string shortest_number(double number, ElementType type) {
  return type == ElementType::float32 ? shortest_number(static_cast<float>(number)) : shortest_number(number);
}

NumberStyle style_for(const Matrix& matrix, std::optional<int> digits, bool unicode) {
  constexpr double kLargestFixed = 1e7;
  double largest = 0.0;
  bool whole = true;
  for (std::size_t i = 0; i < matrix.numbers.size(); ++i) {
    const double x = matrix.numbers[i];
    if (!std::isfinite(x)) continue;
    largest = std::max(largest, std::fabs(x));
    whole = whole && x == std::trunc(x);
  }
  NumberStyle style{.digits = digits.value_or(whole ? 0 : 4), .unicode = unicode};
  style.scientific = largest >= (whole ? 1e12 : kLargestFixed);
  if (style.scientific && !digits) style.digits = 4;
  if (!digits && !whole && largest > 0 && largest < 1e-2) {
    // A matrix of small numbers shows four digits of its largest, or its powers of ten.
    style.digits = 3 - static_cast<int>(std::floor(std::log10(largest)));
    if (style.digits > 8) {
      style.digits = 4;
      style.scientific = true;
    }
  }
  return style;
}

NumberStyle step_style(const Explanation& explanation, const Step& step, const Matrix& matrix,
                       std::optional<int> digits, bool unicode) {
  const bool whole = std::all_of(matrix.numbers.begin(), matrix.numbers.end(),
                                 [](double x) { return !std::isfinite(x) || x == std::trunc(x); });
  if (!digits) digits = step.request.digits;
  if (!digits && !whole) digits = explanation.settings.digits;
  return style_for(matrix, digits, unicode);
}

std::string document_number(double number, const Expected& expected, bool unicode) {
  if (!std::isfinite(number)) return styled_number(number, NumberStyle{.unicode = unicode});
  return with_true_minus(expected.significant ? fmt::format("{:.{}g}", number, expected.digits)
                                              : fmt::format("{:.{}f}", number, expected.digits),
                         unicode);
}

std::string styled_number(double number, const NumberStyle& style) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return with_true_minus(number < 0 ? "-" : "", style.unicode) + (style.unicode ? "∞" : "inf");
  if (number == 0) return "0";
  if (style.scientific) return with_true_minus(fmt::format("{:.{}e}", number, style.digits), style.unicode);
  std::string text = fmt::format("{:.{}f}", number, style.digits);
  if (text.find_first_of("123456789") == std::string::npos) {
    text.back() = '1';
    text = fmt::format("{}{}", number < 0 ? '>' : '<', text);
  }
  return with_true_minus(text, style.unicode);
}

std::string shown_number(double number, ElementType type) {
  if (!std::isfinite(number)) return styled_number(number, {});
  return with_true_minus(shortest_number(number, type), true);
}

long long printed_units(double number, const NumberStyle& style) {
  std::string text = fmt::format("{:.{}f}", number, style.digits);
  std::erase(text, '.');
  long long units = 0;
  std::from_chars(text.data(), text.data() + text.size(), units);
  return units;
}

std::string bar_text(double share, int width, bool unicode) {
  constexpr std::array<std::string_view, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(share > 0)) return "";
  if (!unicode) return std::string(static_cast<std::size_t>(std::max(1.0, std::round(share * width))), '#');
  const int eighths = std::max(1, static_cast<int>(std::lround(share * width * 8)));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + std::string(kEighths[static_cast<std::size_t>(eighths % 8)]);
}

}  // namespace regard::inline v0
