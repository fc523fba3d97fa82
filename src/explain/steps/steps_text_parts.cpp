// SPDX-License-Identifier: Apache-2.0
//
// Parts of the text of a step; see steps_text_parts.h. Code that prints a sum also adds up the printed digits and
// states their sum if it differs from the printed result. Read next: steps_text.cpp.
#include "steps_text_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "expansion.h"
#include "findings.h"
#include "operations.h"

namespace regard::inline v0 {
namespace {

std::string units_text(long long units, const NumberStyle& style) {
  return styled_number(static_cast<double>(units) / std::pow(10.0, style.digits), style);
}

bool by_columns(const TextContext& context) { return context.explanation.settings.layout == Layout::columns; }

// The numbers of one query in the matrix behind the weights, if it is as large as the weights.
std::vector<double> origin_row(const TextContext& context, const Step& step, const QueryRow& row) {
  std::vector<double> numbers;
  if (step.operands.empty()) return numbers;
  const Matrix& m = *step.operands[0].matrix;
  if (m.num_rows != step.result.num_rows || m.num_columns != step.result.num_columns ||
      m.num_heads != step.result.num_heads)
    return numbers;
  for (Index j = 0; j < static_cast<Index>(row.numbers.size()); ++j)
    numbers.push_back(by_columns(context) ? kept_number(m, row.head, j, row.query)
                                          : kept_number(m, row.head, row.query, j));
  return numbers;
}

// Nothing if the printed digits add up to the printed total.
std::string rounding_text(long long printed, long long total, const NumberStyle& style) {
  return printed == total ? "" : fmt::format("rounded figures sum to {}", units_text(printed, style));
}

Cell example_cell(const TextContext& context, const Step& step) {
  Cell cell{0, 0, 0};
  const Matrix& m = step.result;
  const bool columns = by_columns(context);
  const std::vector<Index>& kept = columns ? m.kept_columns : m.kept_rows;
  Index query = kept.empty() ? 0 : kept[0];
  const std::optional<Index> focus = context.explanation.focus;
  const Axis& token_axis = columns ? step.column_axis : step.row_axis;
  const bool of_tokens = token_axis.name == "query" || token_axis.name == "key" || token_axis.name == "token";
  if (focus && of_tokens && *focus < (columns ? m.num_columns : m.num_rows) && stored_index(kept, *focus) >= 0)
    query = *focus;
  Index other = 0;
  if (step.sums_to_one != SumAxis::none) {
    // The working of the largest weight is the most informative.
    if (const std::optional<QueryRow> row = row_for_finding(step, context.explanation)) {
      cell.head = row->head;
      query = row->query;
      for (std::size_t j = 0; j < row->numbers.size(); ++j)
        if (row->numbers[j] > row->numbers[static_cast<std::size_t>(other)]) other = static_cast<Index>(j);
    }
  }
  cell.row = columns ? other : query;
  cell.column = columns ? query : other;
  return cell;
}

std::string head_text(const Step& step, const Cell& cell) {
  return step.result.has_heads ? fmt::format(" in head {}", cell.head) : "";
}

std::string in_sum(const std::string& text) {
  return text.starts_with('-') || text.starts_with("−") ? "(" + text + ")" : text;
}

// Whole factors are shown as integers, whatever the style of their products.
std::string factor_text(double x, const NumberStyle& style) {
  return styled_number(x, x == std::trunc(x)
                              ? NumberStyle{.digits = 0, .scientific = style.scientific, .unicode = style.unicode}
                              : style);
}

// The working in one line, with the terms that fit; the others as one sum.
std::string one_line(const TextContext& context, const CellDerivation& work, const NumberStyle& style,
                     const std::string& name) {
  const bool exact = std::all_of(work.terms.begin(), work.terms.end(), [](const CellTerm& t) {
    return std::all_of(t.factors.begin(), t.factors.end(),
                       [](double x) { return x == std::trunc(x) && std::fabs(x) < 1e6; });
  });
  // More terms than this never fit in a line; a sequence may have a hundred thousand.
  constexpr std::size_t kMaxTerms = 64;
  const std::size_t num_terms = work.terms.size();
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(num_terms, kMaxTerms); ++i) {
    const CellTerm& term = work.terms[i];
    std::string text;
    if (exact && term.factors.size() == 2) {
      text = fmt::format("{}{}{}", styled_number(term.factors[0], style), context.paint.unicode ? "·" : "*",
                         styled_number(term.factors[1], style));
    } else {
      text = styled_number(term.product, style);
    }
    parts.push_back(in_sum(text));
  }
  // A single term would only repeat the result, so its factors are shown.
  if (num_terms == 1 && !exact && work.terms[0].factors.size() == 2)
    parts[0] = factor_text(work.terms[0].factors[0], style) + (context.paint.unicode ? " · " : " * ") +
               in_sum(factor_text(work.terms[0].factors[1], style));
  const std::string result = styled_number(work.result, style);
  std::size_t shown = parts.size();
  while (true) {
    std::string text = name + " = ";
    for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : " + ") + parts[i];
    long long printed = 0;
    for (std::size_t i = 0; i < shown; ++i) printed += printed_units(work.terms[i].product, style);
    if (shown < num_terms) {
      const double rest = work.terms.back().partial_sum - work.terms[shown - 1].partial_sum;
      text += fmt::format(" + {} others ({})", num_terms - shown, styled_number(rest, style));
      printed += printed_units(rest, style);
    }
    text += " = " + result;
    if (work.zero_weights > 0)
      text += fmt::format("  ({} of weight 0 left out)",
                          work.zero_weights == 1 ? "1 key" : fmt::format("{} keys", work.zero_weights));
    const std::string rounding = rounding_text(printed, printed_units(work.result, style), style);
    if (!rounding.empty() && !style.scientific) text += "  (" + rounding + ")";
    if (display_width(text) <= context.width || shown <= 1 || num_terms == 2) return text;
    // A single left-out term is not called "others".
    shown -= shown == num_terms ? 2 : 1;
  }
}

}  // namespace

std::vector<std::string> bar_lines(const TextContext& context, const Step& step, const NumberStyle& style) {
  constexpr std::size_t kMaxKeys = 12;
  // Probabilities of words are not attention.
  if (step.request.operation == Operation::probabilities) return {};
  const std::optional<QueryRow> row = row_for_finding(step, context.explanation);
  if (!row || row->numbers.size() < 2 || style.scientific) return {};
  if (std::any_of(row->numbers.begin(), row->numbers.end(), [](double x) { return !(x >= 0 && x <= 1 + 1e-6); }))
    return {};
  const Paint& paint = context.paint;
  const Axis& query_axis = by_columns(context) ? step.column_axis : step.row_axis;
  const Axis& key_axis = by_columns(context) ? step.row_axis : step.column_axis;
  const std::vector<double> origin = origin_row(context, step, *row);

  std::vector<std::size_t> keys(row->numbers.size());
  std::iota(keys.begin(), keys.end(), std::size_t{0});
  const std::size_t most = context.options.full ? keys.size() : kMaxKeys;
  const bool shortened = keys.size() > most;
  if (shortened) {
    std::erase_if(keys, [&](std::size_t j) { return row->hidden[j] != 0; });
    // NaN first: sorting requires an order, and a NaN matters most in the row.
    const auto rank = [&](std::size_t j) { return std::isnan(row->numbers[j]) ? HUGE_VAL : row->numbers[j]; };
    std::sort(keys.begin(), keys.end(),
              [&](std::size_t a, std::size_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
    keys.resize(std::min(keys.size(), most - 2));
    std::sort(keys.begin(), keys.end());
  }
  const std::string left_out = fmt::format("{} others", row->numbers.size() - keys.size());

  const int widest = std::clamp(context.width / 4, 6, 20);
  const std::string query =
      "query " + truncate_to_width(paint.shown(axis_label(query_axis, row->query)), widest, paint.unicode);
  std::vector<std::string> labels;
  int label_width = std::max(display_width(query), shortened ? display_width(left_out) : 0);
  for (std::size_t j : keys) {
    labels.push_back(
        truncate_to_width(paint.shown(axis_label(key_axis, static_cast<Index>(j))), widest, paint.unicode));
    label_width = std::max(label_width, display_width(labels.back()));
  }
  const NumberStyle origin_style =
      style_for(Matrix{.num_rows = 1, .num_columns = static_cast<Index>(origin.size()), .numbers = origin},
                context.options.digits, paint.unicode);
  std::vector<std::string> origins;
  std::string origin_name =
      origin.empty() ? "" : truncate_to_width(paint.shown(step.operands[0].name), 12, paint.unicode);
  int origin_width = display_width(origin_name);
  for (std::size_t j : keys) {
    origins.push_back(origin.empty() ? "" : row->hidden[j] != 0 ? "hidden" : styled_number(origin[j], origin_style));
    origin_width = std::max(origin_width, display_width(origins.back()));
  }
  const int number_width = std::max(7, style.digits + 2);
  const int bar_width = std::max(4, std::min(40, context.width - label_width - origin_width - number_width - 6));

  std::vector<std::string> lines;
  if (step.result.has_heads) lines.push_back(fmt::format("head {}", row->head));
  lines.push_back(paint.bold(pad_right(query, label_width) + "  " + pad_left(origin_name, origin_width) + "  " +
                             pad_left("weight", number_width)));
  long long printed = 0;
  double others = std::accumulate(row->numbers.begin(), row->numbers.end(), 0.0);
  const double total = others;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const double weight = row->numbers[keys[n]];
    others -= weight;
    const std::string number = row->hidden[keys[n]] != 0 ? "hidden" : styled_number(weight, style);
    if (row->hidden[keys[n]] == 0) printed += printed_units(weight, style);
    std::string padded = pad_left(number, number_width);
    // A bare 0 is aligned with the digits before the point.
    if (number == "0" && style.digits > 0) padded = pad_left(pad_right("0", style.digits + 2), number_width);
    std::string line = pad_right(labels[n], label_width) + "  " + pad_left(origins[n], origin_width) + "  " + padded +
                       "  " + bar_text(weight, bar_width, paint.unicode);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(row->hidden[keys[n]] != 0 ? paint.dim(line) : line);
  }
  if (shortened) {
    const double rest = std::max(0.0, others);
    printed += printed_units(rest, style);
    lines.push_back(pad_right(left_out, label_width) + "  " + pad_left("", origin_width) + "  " +
                    pad_left(styled_number(rest, style), number_width));
  }
  std::string sum_line = pad_right("", label_width) + "  " + pad_left("", origin_width) + "  " +
                         pad_left(styled_number(total, style), number_width) + "  the sum";
  const std::string rounding = rounding_text(printed, printed_units(total, style), style);
  if (rounding.empty()) {
    lines.push_back(sum_line);
    return lines;
  }
  const int available = context.width - display_width(rounding);
  if (display_width(sum_line) + 2 <= available) {
    lines.push_back(sum_line + "; " + rounding);
  } else {
    lines.push_back(sum_line + ";");
    lines.push_back(std::string(static_cast<std::size_t>(std::max(available, 0)), ' ') + rounding);
  }
  return lines;
}

std::vector<std::string> example_lines(const TextContext& context, const Step& step, const NumberStyle& style) {
  if (step.result.numbers.empty() || style.scientific) return {};
  const Cell cell = example_cell(context, step);
  const CellDerivation work = expand_cell(context.explanation, step, cell, style.digits);
  if (!std::isfinite(work.result)) return {};
  const std::string name = context.paint.shown(work.what) + head_text(step, cell);
  // If there are lines, the terms add up to an intermediate value; some operations have no one-line form.
  if (!work.lines.empty() || work.terms.empty()) {
    if (work.lines.empty() || !operation_info(step.request.operation).traits.has_example) return {};
    const std::string& text = work.brief.empty() ? work.lines.back().text : work.brief;
    // An expression for the cell; or a remark about it, or several equations.
    const bool is_equation =
        work.lines.size() == 1 || (step.request.operation == Operation::scaled && !work.brief.empty());
    return wrap_words(name + (is_equation ? " = " : ": ") + context.paint.shown(text), context.width, 2);
  }
  return wrap_words(one_line(context, work, style, name), context.width, 2);
}

std::vector<std::string> cell_lines(const TextContext& context, const Step& step, const NumberStyle& style) {
  constexpr std::size_t kMaxTerms = 24;
  const CellDerivation work = expand_cell(context.explanation, step, *context.options.cell, style.digits);
  const Paint& paint = context.paint;
  std::vector<std::string> lines;
  lines.push_back(paint.bold(paint.shown(work.what) + head_text(step, *context.options.cell) + " = " +
                             styled_number(work.result, style)));
  const bool sum_of_products =
      std::any_of(work.terms.begin(), work.terms.end(), [](const CellTerm& t) { return t.factors.size() > 1; });
  const bool weights = step.request.operation == Operation::weights;
  const NumberStyle exponent_style{.digits = std::max(style.digits, 4), .unicode = paint.unicode};

  std::vector<Index> shown =
      chosen_indices(static_cast<Index>(work.terms.size()),
                     context.options.full ? static_cast<Index>(work.terms.size()) : Index{kMaxTerms}, {});
  std::vector<std::array<std::string, 4>> cells;
  std::array<int, 4> widths{0, 0, 0, 10};
  const NumberStyle& s = weights ? exponent_style : style;
  for (Index i : shown) {
    const CellTerm& term = work.terms[static_cast<std::size_t>(i)];
    std::string factors;
    if (sum_of_products)
      for (std::size_t f = 0; f < term.factors.size(); ++f)
        factors += (f == 0 ? "" : paint.unicode ? " · " : " * ") + factor_text(term.factors[f], s);
    cells.push_back(
        {paint.shown(term.label), factors, styled_number(term.product, s), styled_number(term.partial_sum, s)});
    for (std::size_t c = 0; c < 4; ++c) widths[c] = std::max(widths[c], display_width(cells.back()[c]));
  }
  const int numbers_width = widths[2] + widths[3] + 4 + (sum_of_products ? widths[1] + 2 : 0);
  widths[0] = std::max(6, std::min(widths[0], context.width - numbers_width));
  if (!cells.empty()) {
    std::string header = pad_right("", widths[0]);
    if (sum_of_products) header += "  " + pad_left("", widths[1]);
    lines.push_back(paint.dim(header + "  " + pad_left("", widths[2]) + "  " + pad_left("sum so far", widths[3])));
  }
  long long printed = 0;
  Index previous = -1;
  for (std::size_t n = 0; n < cells.size(); ++n) {
    if (shown[n] != previous + 1) {
      const double rest = work.terms[static_cast<std::size_t>(shown[n] - 1)].partial_sum -
                          (previous < 0 ? 0.0 : work.terms[static_cast<std::size_t>(previous)].partial_sum);
      printed += printed_units(rest, s);
      lines.push_back(pad_right(fmt::format("{} more terms", shown[n] - previous - 1), widths[0]) +
                      (sum_of_products ? "  " + pad_left("", widths[1]) : "") + "  " +
                      pad_left(styled_number(rest, s), widths[2]));
    }
    previous = shown[n];
    printed += printed_units(work.terms[static_cast<std::size_t>(previous)].product, s);
    lines.push_back(pad_right(truncate_to_width(cells[n][0], widths[0], paint.unicode), widths[0]) +
                    (sum_of_products ? "  " + pad_left(cells[n][1], widths[1]) : "") + "  " +
                    pad_left(cells[n][2], widths[2]) + "  " + pad_left(cells[n][3], widths[3]));
  }
  if (!work.terms.empty() && !s.scientific) {
    const double whole = work.terms.back().partial_sum - work.difference;
    const std::string rounding = rounding_text(printed, printed_units(whole, s), s);
    if (!rounding.empty()) lines.push_back(rounding);
  }
  if (work.zero_weights > 0)
    lines.push_back(fmt::format("left out: {} of weight 0",
                                work.zero_weights == 1 ? "1 key" : fmt::format("{} keys", work.zero_weights)));
  if (work.difference != 0 && std::isfinite(work.difference))
    lines.push_back(fmt::format(
        "{} by {}",
        paint.shown(step.outside_library ? "the sum in float64 differs from that in float32"
                                         : "the sum in plain order differs from the kernel’s fused sum"),
        styled_number(std::fabs(work.difference), {.digits = 1, .scientific = true, .unicode = paint.unicode})));
  int name_width = 0;
  for (const NamedText& line : work.lines) name_width = std::max(name_width, display_width(line.name));
  for (const NamedText& line : work.lines)
    lines.push_back(pad_right(line.name, name_width) + "  " + paint.shown(line.text));
  if (work.terms.empty() && work.lines.empty())
    lines.push_back(paint.shown("exactly " + shown_number(work.result, context.explanation.settings.dtype)));
  return lines;
}

std::vector<std::string> document_lines(const TextContext& context, const Step& step) {
  if (step.differs.empty() || !step.request.expected) return {};
  constexpr Index kMaxCells = 16;
  const Expected& expected = *step.request.expected;
  const Matrix& m = step.result;
  const auto printed_text = [&](double x) { return document_number(x, expected, context.paint.unicode); };
  std::vector<std::string> lines;
  Index compared = 0;
  Index different = 0;
  for_each_printed(expected, m, [&](std::size_t ours, double theirs, const Cell& cell) {
    ++compared;
    if (step.differs[ours] == 0) return;
    ++different;
    if (different > kMaxCells && !context.options.full) return;
    lines.push_back(fmt::format("{} is {}, the document prints {}",
                                context.paint.shown(cell_name(step.symbol, axis_label(step.row_axis, cell.row),
                                                              axis_label(step.column_axis, cell.column)) +
                                                    head_text(step, cell)),
                                printed_text(m.numbers[ours]), printed_text(theirs)));
  });
  if (different > static_cast<Index>(lines.size()))
    lines.push_back(fmt::format("and {} more numbers differ", different - static_cast<Index>(lines.size())));
  const std::string unit = expected.significant ? "significant digits" : expected.digits == 1 ? "decimal" : "decimals";
  std::string agree = fmt::format("matches the document in {} of {} number{}", compared - different, compared,
                                  compared == 1 ? "" : "s");
  if (expected.digits > 0) agree += fmt::format(", to {} {}", expected.digits, unit);
  lines.push_back(std::move(agree));
  return lines;
}

std::vector<std::string> sum_lines(const TextContext& context, const Step& step, const Table& table, Index head,
                                   const NumberStyle& style) {
  const Matrix& m = step.result;
  const bool rows = step.sums_to_one == SumAxis::row;
  const Axis& keys = rows ? step.column_axis : step.row_axis;
  std::string text =
      fmt::format("each {} sums to 1 over the {}s", rows ? "row" : "column", keys.name.empty() ? "key" : keys.name);
  const std::vector<Index>& outer = rows ? table.shown_rows : table.shown_columns;
  const std::vector<Index>& inner = rows ? table.shown_columns : table.shown_rows;
  const Index inner_count = rows ? m.num_columns : m.num_rows;
  if (static_cast<Index>(inner.size()) < inner_count) {
    text += fmt::format(" (all {}, not only those shown)", inner_count);
  } else if (!style.scientific) {
    const Axis& queries = rows ? step.row_axis : step.column_axis;
    const std::vector<Index>& kept = rows ? m.kept_rows : m.kept_columns;
    std::vector<std::string> differing;
    for (Index o : outer) {
      long long printed = 0;
      for (Index i : inner)
        printed += printed_units(m.numbers[rows ? m.index(head, o, i) : m.index(head, i, o)], style);
      const Index outer_count = rows ? m.stored_rows() : m.stored_columns();
      if (printed == printed_units(step.sums[static_cast<std::size_t>(head * outer_count + o)], style)) continue;
      const Index query = kept.empty() ? o : kept[static_cast<std::size_t>(o)];
      differing.push_back(
          fmt::format("{} ({})", units_text(printed, style),
                      truncate_to_width(context.paint.shown(axis_label(queries, query)), 16, context.paint.unicode)));
    }
    constexpr std::size_t kMaxNamed = 4;
    if (!differing.empty()) {
      text += "; rounded figures sum to ";
      for (std::size_t n = 0; n < std::min(differing.size(), kMaxNamed); ++n)
        text += (n == 0 ? "" : ", ") + differing[n];
      if (differing.size() > kMaxNamed) text += fmt::format(" and {} more", differing.size() - kMaxNamed);
    }
  }
  return wrap_words(text, context.width, 2);
}

}  // namespace regard::inline v0
