// SPDX-License-Identifier: Apache-2.0
//
// Parts of the text of a step; see steps_text_parts.h. Code that prints a sum also adds up the printed digits and
// states their sum if it differs from the printed result. Read next: steps_text.cpp.
#include "steps_text_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expansion.h"
#include "findings.h"
#include "operations.h"

namespace regard::inline v0 {
namespace {

std::string units_text(long long units, const NumberStyle& style) {
  return styled_number(static_cast<double>(units) / std::pow(10.0, style.digits), style);
}

Cell example_cell(const TextContext& context, const Step& step) {
  Cell cell{0, 0, 0};
  const Matrix& m = step.result;
  const TokensFirst as(context.explanation);
  const std::vector<Index>& kept = as.by_columns ? m.kept_columns : m.kept_rows;
  Index query = kept.empty() ? 0 : kept[0];
  const std::optional<Index> focus = context.explanation.focus;
  const std::string& name = as.token_axis(step).name;
  const bool of_tokens = name == "query" || name == "key" || name == "token";
  if (focus && of_tokens && *focus < as.num_tokens(m) && stored_index(kept, *focus) >= 0) query = *focus;
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
  cell.row = as.by_columns ? other : query;
  cell.column = as.by_columns ? query : other;
  return cell;
}

std::string head_text(const Step& step, const Cell& cell) {
  return step.result.has_heads ? fmt::format(" in head {}", cell.head) : "";
}

std::string keys_text(Index count) { return count == 1 ? "1 key" : fmt::format("{} keys", count); }

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
      text += fmt::format(" + {} other terms ({})", num_terms - shown, styled_number(rest, style));
      printed += printed_units(rest, style);
    }
    text += " = " + result;
    if (work.zero_weights > 0) text += fmt::format("  ({} with weight 0 omitted)", keys_text(work.zero_weights));
    const std::string rounding = rounding_text(printed, printed_units(work.result, style), style);
    if (!rounding.empty() && !style.scientific) text += "  (" + rounding + ")";
    if (display_width(text) <= context.width || shown <= 1 || num_terms == 2) return text;
    // At least two terms are combined as "other terms".
    shown -= shown == num_terms ? 2 : 1;
  }
}

// A term of a sum, or several that are left out, before the columns are padded.
struct TermLine {
  std::string label{};
  std::string factors{};  // "0.5 · 2"
  std::string product{};
  std::string sum{};  // with the terms above; empty for terms that are left out
};
struct TermLines {
  std::vector<TermLine> lines{};
  std::string rounding{};  // what the printed products sum to, if it is not the printed sum
};

// "0.5 · 2" for a product of several factors.
std::string factors_text(const CellTerm& term, const NumberStyle& style) {
  std::string text;
  for (std::size_t f = 0; f < term.factors.size(); ++f)
    text += (f == 0 ? "" : style.unicode ? " · " : " * ") + factor_text(term.factors[f], style);
  return text;
}

// The terms shown, and one line for each gap between them.
TermLines term_lines(const TextContext& context, const CellDerivation& work, const NumberStyle& style) {
  constexpr Index kMaxTerms = 24;
  const Index num_terms = static_cast<Index>(work.terms.size());
  const bool products =
      std::any_of(work.terms.begin(), work.terms.end(), [](const CellTerm& t) { return t.factors.size() > 1; });
  const auto sum_before = [&](Index i) {
    return i == 0 ? 0.0 : work.terms[static_cast<std::size_t>(i - 1)].partial_sum;
  };
  TermLines result;
  long long printed = 0;
  Index next = 0;
  for (const Index i : chosen_indices(num_terms, context.options.full ? num_terms : kMaxTerms, {})) {
    if (i > next) {
      const double rest = sum_before(i) - sum_before(next);
      printed += printed_units(rest, style);
      result.lines.push_back({.label = fmt::format("{} more terms", i - next), .product = styled_number(rest, style)});
    }
    const CellTerm& term = work.terms[static_cast<std::size_t>(i)];
    printed += printed_units(term.product, style);
    result.lines.push_back({.label = context.paint.shown(term.label),
                            .factors = products ? factors_text(term, style) : "",
                            .product = styled_number(term.product, style),
                            .sum = styled_number(term.partial_sum, style)});
    next = i + 1;
  }
  if (num_terms > 0 && !style.scientific)
    result.rounding = rounding_text(printed, printed_units(sum_before(num_terms) - work.difference, style), style);
  return result;
}

// The lines below a header, with their columns padded. Lines of terms left out do not widen a column.
std::vector<std::string> padded(const std::vector<TermLine>& lines, const TextContext& context) {
  if (lines.empty()) return {};
  const TermLine header{.sum = "sum so far"};
  int label_width = 0, factors_width = 0, product_width = 0, sum_width = display_width(header.sum);
  for (const TermLine& line : lines) {
    if (line.sum.empty()) continue;
    label_width = std::max(label_width, display_width(line.label));
    factors_width = std::max(factors_width, display_width(line.factors));
    product_width = std::max(product_width, display_width(line.product));
    sum_width = std::max(sum_width, display_width(line.sum));
  }
  const int factors_gap = factors_width > 0 ? 2 : 0;
  const int right_width = factors_gap + factors_width + 2 + product_width + 2 + sum_width;
  label_width = std::max(6, std::min(label_width, context.width - right_width));
  const auto text_of = [&](const TermLine& line) {
    const std::string label =
        line.sum.empty() ? line.label : truncate_to_width(line.label, label_width, context.paint.unicode);
    return pad_right(label, label_width) + pad_left(line.factors, factors_gap + factors_width) + "  " +
           pad_left(line.product, product_width) + (line.sum.empty() ? "" : "  " + pad_left(line.sum, sum_width));
  };
  std::vector<std::string> texts{context.paint.dim(text_of(header))};
  for (const TermLine& line : lines) texts.push_back(text_of(line));
  return texts;
}

}  // namespace

std::string rounding_text(long long printed, long long total, const NumberStyle& style) {
  return printed == total ? "" : fmt::format("rounded figures sum to {}", units_text(printed, style));
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
  const CellDerivation work = expand_cell(context.explanation, step, *context.options.cell, style.digits);
  const Paint& paint = context.paint;
  const bool weights = step.request.operation == Operation::weights;
  const NumberStyle exponent_style{.digits = std::max(style.digits, 4), .unicode = paint.unicode};
  const TermLines terms = term_lines(context, work, weights ? exponent_style : style);

  std::vector<std::string> lines = padded(terms.lines, context);
  lines.insert(lines.begin(), paint.bold(paint.shown(work.what) + head_text(step, *context.options.cell) + " = " +
                                         styled_number(work.result, style)));
  if (!terms.rounding.empty()) lines.push_back(terms.rounding);
  if (work.zero_weights > 0) lines.push_back(fmt::format("omitted: {} with weight 0", keys_text(work.zero_weights)));
  if (work.difference != 0 && std::isfinite(work.difference))
    lines.push_back(fmt::format(
        "{} by {}",
        paint.shown(step.outside_library ? "the sum in float64 differs from the sum in float32"
                                         : "the sum of the terms in order differs from the kernel’s fused sum"),
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
    lines.push_back(fmt::format("{} is {}; the document prints {}",
                                context.paint.shown(cell_name(step.symbol, axis_label(step.row_axis, cell.row),
                                                              axis_label(step.column_axis, cell.column)) +
                                                    head_text(step, cell)),
                                printed_text(m.numbers[ours]), printed_text(theirs)));
  });
  if (different > static_cast<Index>(lines.size()))
    lines.push_back(fmt::format("and {} more values differ", different - static_cast<Index>(lines.size())));
  const std::string unit = expected.significant   ? "significant digits"
                           : expected.digits == 1 ? "decimal place"
                                                  : "decimal places";
  std::string agree = fmt::format("{} of {} {} the document", compared - different, compared,
                                  compared == 1 ? "value matches" : "values match");
  if (expected.digits > 0) agree += fmt::format(" to {} {}", expected.digits, unit);
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
