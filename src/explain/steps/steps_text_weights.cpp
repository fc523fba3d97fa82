// SPDX-License-Identifier: Apache-2.0
//
// One query's weights, key by key, with bars; see steps_text_parts.h.
//
//     query love      S′   weight
//     I           1.0000   0.4223  ███████████▉
//     love             0   0.1554  ████▍
//     coding      1.0000   0.4223  ███████████▉
//                          1.0000  the sum
//
//     row of weights → keys to show → texts and their sums → padded lines
//
// A bar of full length is a weight of 1. (The bars of a sentence, sentence_table.h, are relative to the longest one.)
// Read next: steps_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "expansion.h"
#include "findings.h"
#include "operations.h"
#include "steps_text_parts.h"

namespace regard::inline v0 {
namespace {

// One line before its columns are padded.
struct WeightLine {
  std::string label{};
  std::string origin{};  // the value that the weight was computed from
  std::string weight{};
  double bar = 0;      // a share of the width
  std::string note{};  // instead of a bar
  bool hidden = false;
};
struct WeightLines {
  std::vector<WeightLine> lines{};  // the header, the keys, the keys left out, the sum
  std::string rounding{};           // what the printed weights sum to, if it is not the printed sum
};

// The row to show; nothing if its numbers are not weights of several keys.
std::optional<QueryRow> row_of_weights(const TextContext& context, const Step& step, const NumberStyle& style) {
  // Probabilities of words are not attention.
  if (step.request.operation == Operation::probabilities || style.scientific) return std::nullopt;
  std::optional<QueryRow> row = row_for_finding(step, context.explanation);
  if (!row || row->numbers.size() < 2) return std::nullopt;
  const auto is_weight = [](double x) { return x >= 0 && x <= 1 + 1e-6; };
  if (!std::all_of(row->numbers.begin(), row->numbers.end(), is_weight)) return std::nullopt;
  return row;
}

// All keys; or if there are more than `most`, the visible keys with the largest weights, leaving two lines free.
std::vector<std::size_t> shown_keys(const QueryRow& row, std::size_t most) {
  std::vector<std::size_t> keys(row.numbers.size());
  std::iota(keys.begin(), keys.end(), std::size_t{0});
  if (keys.size() <= most) return keys;
  std::erase_if(keys, [&](std::size_t j) { return row.hidden[j] != 0; });
  std::sort(keys.begin(), keys.end(), [&](std::size_t a, std::size_t b) {
    return row.numbers[a] != row.numbers[b] ? row.numbers[a] > row.numbers[b] : a < b;
  });
  keys.resize(std::min(keys.size(), most - 2));
  std::sort(keys.begin(), keys.end());
  return keys;
}

// The query's numbers in the matrix that the weights were computed from; none unless it has the weights' shape.
std::vector<double> origin_row(const TextContext& context, const Step& step, const QueryRow& row) {
  if (step.operands.empty()) return {};
  const Matrix &m = *step.operands[0].matrix, &weights = step.result;
  if (m.num_rows != weights.num_rows || m.num_columns != weights.num_columns || m.num_heads != weights.num_heads)
    return {};
  const TokensFirst as(context.explanation);
  std::vector<double> numbers;
  for (Index j = 0; j < static_cast<Index>(row.numbers.size()); ++j)
    numbers.push_back(as.number(m, row.head, row.query, j));
  return numbers;
}

std::string weight_text(double weight, const NumberStyle& style) {
  const std::string text = styled_number(weight, style);
  // A bare 0 is aligned with the digits before the point.
  return text == "0" && style.digits > 0 ? pad_right(text, style.digits + 2) : text;
}

WeightLines weight_lines(const TextContext& context, const Step& step, const QueryRow& row, const NumberStyle& style) {
  constexpr std::size_t kMaxKeys = 12;
  const Paint& paint = context.paint;
  const TokensFirst as(context.explanation);
  const int widest_label = std::clamp(context.width / 4, 6, 20);
  const auto label = [&](const Axis& axis, Index index) {
    return truncate_to_width(paint.shown(axis_label(axis, index)), widest_label, paint.unicode);
  };
  const std::vector<double> origins = origin_row(context, step, row);
  const NumberStyle origin_style =
      style_for(Matrix{.num_rows = 1, .num_columns = static_cast<Index>(origins.size()), .numbers = origins},
                context.options.digits, paint.unicode);
  const std::vector<std::size_t> keys = shown_keys(row, context.options.full ? row.numbers.size() : kMaxKeys);

  std::vector<WeightLine> lines;
  lines.push_back({.label = "query " + label(as.token_axis(step), row.query), .weight = "weight"});
  if (!origins.empty()) lines[0].origin = truncate_to_width(paint.shown(step.operands[0].name), 12, paint.unicode);
  const double total = std::accumulate(row.numbers.begin(), row.numbers.end(), 0.0);
  double others = total;
  long long printed = 0;
  for (const std::size_t j : keys) {
    const double weight = row.numbers[j];
    WeightLine line{.label = label(as.across_axis(step), static_cast<Index>(j)), .bar = weight};
    line.hidden = row.hidden[j] != 0;
    line.weight = line.hidden ? "hidden" : weight_text(weight, style);
    if (!origins.empty()) line.origin = line.hidden ? "hidden" : styled_number(origins[j], origin_style);
    if (!line.hidden) printed += printed_units(weight, style);
    others -= weight;
    lines.push_back(std::move(line));
  }
  if (const std::size_t left_out = row.numbers.size() - keys.size(); left_out > 0) {
    others = std::max(0.0, others);
    printed += printed_units(others, style);
    lines.push_back({.label = fmt::format("{} others", left_out), .weight = styled_number(others, style)});
  }
  lines.push_back({.weight = styled_number(total, style), .note = "the sum"});
  return {std::move(lines), rounding_text(printed, printed_units(total, style), style)};
}

// The lines with their columns padded, the first one in bold.
std::vector<std::string> padded(const std::vector<WeightLine>& lines, const TextContext& context, int digits) {
  int label_width = 0, origin_width = 0;
  for (const WeightLine& line : lines) {
    label_width = std::max(label_width, display_width(line.label));
    origin_width = std::max(origin_width, display_width(line.origin));
  }
  const int weight_width = std::max(7, digits + 2);
  const int bar_width = std::clamp(context.width - label_width - origin_width - weight_width - 6, 4, 40);
  std::vector<std::string> texts;
  for (const WeightLine& line : lines) {
    std::string text = pad_right(line.label, label_width) + "  " + pad_left(line.origin, origin_width) + "  " +
                       pad_left(line.weight, weight_width) + "  " +
                       (line.note.empty() ? bar_text(line.bar, bar_width, context.paint.unicode) : line.note);
    text.erase(text.find_last_not_of(' ') + 1);
    texts.push_back(line.hidden ? context.paint.dim(text) : text);
  }
  texts[0] = context.paint.bold(texts[0]);
  return texts;
}

// Appends a note to the last line or, if it does not fit, to the right of a line of its own.
void append_note(std::vector<std::string>& lines, const std::string& note, int width) {
  if (note.empty()) return;
  const bool fits = display_width(lines.back()) + 2 <= width - display_width(note);
  lines.back() += fits ? "; " + note : ";";
  if (!fits) lines.push_back(pad_left(note, width));
}

}  // namespace

std::vector<std::string> bar_lines(const TextContext& context, const Step& step, const NumberStyle& style) {
  const std::optional<QueryRow> row = row_of_weights(context, step, style);
  if (!row) return {};
  const WeightLines weights = weight_lines(context, step, *row, style);
  std::vector<std::string> lines = padded(weights.lines, context, style.digits);
  append_note(lines, weights.rounding, context.width);
  if (step.result.has_heads) lines.insert(lines.begin(), fmt::format("head {}", row->head));
  return lines;
}

}  // namespace regard::inline v0
