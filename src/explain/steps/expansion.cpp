// SPDX-License-Identifier: Apache-2.0
//
// How one cell of a step was computed, from the operands that the step keeps; see expansion.h. This file expands
// attention and products:
//
//     products      Q[love, 0] · K[I, 0],  the product,  the sum so far
//     weights       e^(score − largest score of the row),  the sum so far,  the share
//
// Read next: expansion_paper.cpp, steps_text_parts.cpp.
#include "expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "explain/report/terminal.h"
#include "operations.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

struct Factor {
  std::string name;
  double number;
};

// In layout columns the factors of a product are exchanged: W · x.
void add_product(const TokensFirst& as, Factor left, Factor right, CellDerivation& work) {
  if (as.by_columns) std::swap(left, right);
  add_term(work, left.name + " · " + right.name, {left.number, right.number});
}

// The condition for a visible key under the settings of the step: "key 2 ≤ 1 + 3"; nothing if all are visible.
std::string seen_text(const Explanation& explanation, const Step& step, Index query, Index key) {
  const Causal& causal = step.request.causal ? *step.request.causal : explanation.settings.causal;
  if (causal.rule == CausalRule::off) return "";
  const Index offset = step.causal_offset;
  return fmt::format("key {} {} {}{}", key, key > query + offset ? ">" : "≤", query,
                     offset == 0 ? "" : fmt::format(" {} {}", offset < 0 ? "−" : "+", std::abs(offset)));
}

}  // namespace

std::string cell_name(const std::string& symbol, const std::string& row, const std::string& column) {
  return fmt::format("{}[{}, {}]", symbol, row, column);
}

double kept_number(const Matrix& m, Index head, Index row, Index column) {
  const Index r = stored_index(m.kept_rows, row);
  const Index c = stored_index(m.kept_columns, column);
  if (r < 0 || c < 0)
    throw InvalidArgument(
        fmt::format("cell {},{} was not computed: the matrix is too large to be stored in full", row, column));
  return m.numbers[m.index(head, r, c)];
}

void for_each_printed(const Expected& expected, const Matrix& result,
                      const std::function<void(std::size_t, double, const Cell&)>& visit) {
  const Matrix& printed = expected.numbers;
  for (Index h = 0; h < printed.num_heads; ++h)
    for (Index r = 0; r < printed.num_rows; ++r)
      for (Index c = 0; c < printed.num_columns; ++c) {
        const Cell cell{.row = expected.rows.empty() ? r : expected.rows[static_cast<std::size_t>(r)],
                        .column = expected.columns.empty() ? c : expected.columns[static_cast<std::size_t>(c)],
                        .head = h};
        const Index row = stored_index(result.kept_rows, cell.row);
        const Index column = stored_index(result.kept_columns, cell.column);
        if (row < 0 || column < 0) continue;
        visit(result.index(h, row, column), printed.numbers[printed.index(h, r, c)], cell);
      }
}

bool TokensFirst::hidden(const Matrix& m, Index head, Index token, Index across) const {
  if (m.hidden.empty()) return false;
  const Index row = stored_index(m.kept_rows, by_columns ? across : token);
  const Index column = stored_index(m.kept_columns, by_columns ? token : across);
  return row >= 0 && column >= 0 && m.hidden[m.index(head, row, column)] != 0;
}

std::string working_number(double x, int digits) {
  constexpr std::size_t kShortest = 6;
  const std::string shortest = shortest_number(x, ElementType::float64);
  const bool whole = x == std::trunc(x);
  const std::size_t point = shortest.find('.');
  const bool is_short = std::isfinite(x) && shortest.size() <= kShortest && point != std::string::npos;
  const int decimals = is_short ? static_cast<int>(shortest.size() - point - 1) : std::max(digits, 4);
  if (std::fabs(x) < 0.5 * std::pow(10.0, -decimals) && x != 0)
    return styled_number(x, {.digits = 3, .scientific = true});
  return styled_number(x, style_for(Matrix{.num_rows = 1, .num_columns = 1, .numbers = {x}},
                                    whole ? std::optional<int>() : decimals, true));
}

std::string working_subtrahend(double x, int digits) {
  const std::string text = working_number(x, digits);
  return x < 0 ? "(" + text + ")" : text;
}

void add_term(CellDerivation& work, std::string label, std::vector<double> factors) {
  double product = 1.0;
  for (double factor : factors) product *= factor;
  const double before = work.terms.empty() ? 0.0 : work.terms.back().partial_sum;
  work.terms.push_back({std::move(label), std::move(factors), product, before + product});
}

void finish_sum(CellDerivation& work) {
  if (!work.terms.empty()) work.difference = work.terms.back().partial_sum - work.result;
}

void expand_linear(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& x = *step.operands[0].matrix;
  const Matrix& w = *step.operands[1].matrix;
  const Index token = as.token(cell);
  const Index output = cell.head * as.num_across(step.result) + as.across(cell);
  const std::string word = axis_label(as.token_axis(step), token);
  for (Index i = 0; i < as.num_across(x); ++i) {
    const std::string input = std::to_string(i);
    add_product(as, {as.name(step.operands[0].name, word, input), as.number(x, 0, token, i)},
                {as.name(step.operands[1].name, input, std::to_string(output)), as.number(w, 0, i, output)}, work);
  }
  if (step.operands.size() > 2)
    add_term(work, fmt::format("{}[{}]", step.operands[2].name, output),
             {step.operands[2].matrix->numbers[static_cast<std::size_t>(output)]});
  finish_sum(work);
}

void expand_product(const Explanation&, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const Matrix& a = *step.operands[0].matrix;
  const Matrix& b = *step.operands[1].matrix;
  const bool left = step.request.transpose == "left";
  const bool right = step.request.transpose == "right";
  const Index inner = left ? a.num_rows : a.num_columns;
  const Index ha = a.num_heads == 1 ? 0 : cell.head;
  const Index hb = b.num_heads == 1 ? 0 : cell.head;
  const std::string row = axis_label(step.row_axis, cell.row);
  const std::string column = axis_label(step.column_axis, cell.column);
  for (Index i = 0; i < inner; ++i) {
    const std::string middle = std::to_string(i);
    add_term(work,
             cell_name(step.operands[0].name, left ? middle : row, left ? row : middle) + " · " +
                 cell_name(step.operands[1].name, right ? column : middle, right ? middle : column),
             {left ? kept_number(a, ha, i, cell.row) : kept_number(a, ha, cell.row, i),
              right ? kept_number(b, hb, cell.column, i) : kept_number(b, hb, i, cell.column)});
  }
  finish_sum(work);
}

void expand_mix(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& a = *step.operands[0].matrix;
  const Index tokens = as.num_tokens(a);
  for (Index t = 0; t < tokens; ++t) {
    const double share = step.request.numbers[static_cast<std::size_t>(as.token(cell) * tokens + t)];
    add_term(work,
             "share · " +
                 as.name(step.operands[0].name, std::to_string(t), axis_label(as.across_axis(step), as.across(cell))),
             {share, as.number(a, 0, t, as.across(cell))});
  }
  finish_sum(work);
}

void expand_scores(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& q = *step.operands[0].matrix;
  const Matrix& k = *step.operands[1].matrix;
  const Index query = as.token(cell);
  const Index key = as.across(cell);
  const Index key_head = cell.head / (q.num_heads / k.num_heads);
  const std::string query_label = axis_label(as.token_axis(step), query);
  const std::string key_label = axis_label(as.across_axis(step), key);
  for (Index d = 0; d < as.num_across(q); ++d) {
    const std::string dimension = std::to_string(d);
    add_product(as, {as.name(step.operands[0].name, query_label, dimension), as.number(q, cell.head, query, d)},
                {as.name(step.operands[1].name, key_label, dimension), as.number(k, key_head, key, d)}, work);
  }
  finish_sum(work);
}

void expand_scaled(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                   CellDerivation& work) {
  const double score = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  const std::string shown_score = working_number(score, digits);
  const std::string shown_result = working_number(work.result, digits);
  work.lines.push_back({"score", shown_score});
  const Scale scale = step.request.scale.value_or(explanation.settings.scale);
  if (scale.rule == ScaleRule::sqrt) {
    const double squared = 1.0 / (step.factor * step.factor);
    const std::string root = fmt::format("√{}", std::llround(squared));
    work.lines.push_back({"divided by", fmt::format("{} = {}", root, working_number(1.0 / step.factor, digits))});
    work.brief = fmt::format("{} / {} = {}", shown_score, root, shown_result);
  } else if (scale.rule == ScaleRule::none) {
    work.lines.push_back({"no scale", "the score is not scaled: " + shown_result});
    return;
  } else {
    const std::string factor = shown_number(step.factor, ElementType::float64);
    work.lines.push_back({"times", factor});
    work.brief = fmt::format("{} · {} = {}", shown_score, factor, shown_result);
  }
  work.lines.push_back({"scaled", shown_result});
}

void expand_mask(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const std::string seen = seen_text(explanation, step, as.token(cell), as.across(cell));
  if (work.result == 0) {
    work.lines.push_back({"visible", (seen.empty() ? "every key is visible" : seen) + ": 0 is added to the score"});
  } else {
    work.lines.push_back({"hidden", seen + ": −∞ is added to the score"});
  }
}

void expand_masked(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                   CellDerivation& work) {
  const TokensFirst as(explanation);
  const std::string seen = seen_text(explanation, step, as.token(cell), as.across(cell));
  work.lines.push_back(
      {"score", working_number(kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column), digits)});
  if (as.hidden(step.result, cell.head, as.token(cell), as.across(cell))) {
    work.lines.push_back({"hidden", seen + ": the score becomes −∞"});
  } else {
    work.lines.push_back({"visible", (seen.empty() ? "every key is visible" : seen) + ": the score is unchanged"});
  }
}

void expand_share(const TokensFirst& as, const Step& step, const Cell& cell, int digits, double row_max, double row_sum,
                  CellDerivation& work) {
  const std::string subtrahend = working_subtrahend(row_max, digits);
  const Matrix& scores = *step.operands[0].matrix;
  const Index query = as.token(cell);
  const auto score_of = [&](Index j) { return as.number(scores, cell.head, query, j); };
  for (Index j = 0; j < as.num_across(step.result); ++j) {
    if (as.hidden(step.result, cell.head, query, j)) continue;
    const double exponential = std::exp(score_of(j) - row_max);
    const double before = work.terms.empty() ? 0.0 : work.terms.back().partial_sum;
    work.terms.push_back({fmt::format("e^({} − {}), {}", working_number(score_of(j), digits), subtrahend,
                                      axis_label(as.across_axis(step), j)),
                          {score_of(j)},
                          exponential,
                          before + exponential});
  }
  if (as.hidden(step.result, cell.head, query, as.across(cell))) {
    work.lines.push_back({"hidden", "the mask hides this key: weight 0"});
    return;
  }
  const double score = score_of(as.across(cell));
  const std::string exponential = working_number(std::exp(score - row_max), digits);
  work.lines.push_back({"largest score", working_number(row_max, digits)});
  const std::string power = fmt::format("e^({} − {}) = {}", working_number(score, digits), subtrahend, exponential);
  const std::string share =
      fmt::format("{} / {} = {}", exponential, working_number(row_sum, digits), working_number(work.result, digits));
  work.lines.push_back({"exponential", power});
  work.lines.push_back({"sum of all", working_number(row_sum, digits)});
  work.lines.push_back({"share", share});
  work.brief = power + "; " + share;
  work.difference = work.terms.empty() ? 0.0 : work.terms.back().partial_sum - row_sum;
}

void expand_weights(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                    CellDerivation& work) {
  const TokensFirst as(explanation);
  const auto of_query = [&](std::size_t i) {
    return kept_number(*step.operands[i].matrix, cell.head, as.token(cell), 0);
  };
  expand_share(as, step, cell, digits, of_query(1), of_query(2), work);
}

void expand_context(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& weights = *step.operands[0].matrix;
  const Matrix& value = *step.operands[1].matrix;
  const Index query = as.token(cell);
  const std::string query_label = axis_label(as.token_axis(step), query);
  const std::string dimension = std::to_string(as.across(cell));
  const Index value_head = cell.head / (step.result.num_heads / value.num_heads);
  const Index keys = as.num_tokens(value);
  Axis key_axis{"S", "key"};
  if (keys == static_cast<Index>(explanation.key_tokens.size())) key_axis.labels = explanation.key_tokens;
  for (Index j = 0; j < keys; ++j) {
    const double weight = as.number(weights, cell.head, query, j);
    // Hidden, or below the smallest number.
    if (weight == 0.0) {
      ++work.zero_weights;
      continue;
    }
    const std::string key = axis_label(key_axis, j);
    add_product(as, {as.name(step.operands[0].name, query_label, key), weight},
                {as.name(step.operands[1].name, key, dimension), as.number(value, value_head, j, as.across(cell))},
                work);
  }
  finish_sum(work);
}

CellDerivation expand_cell(const Explanation& explanation, const Step& step, const Cell& cell, int digits) {
  const Matrix& m = step.result;
  if (cell.head < 0 || cell.head >= m.num_heads || cell.row < 0 || cell.row >= m.num_rows || cell.column < 0 ||
      cell.column >= m.num_columns)
    throw InvalidArgument(fmt::format("cell {},{}{} is outside step {}, which is {} × {}{}", cell.row, cell.column,
                                      cell.head == 0 ? "" : fmt::format(" of head {}", cell.head), step.name,
                                      m.num_rows, m.num_columns,
                                      m.num_heads == 1 ? "" : fmt::format(" in {} heads", m.num_heads)));
  CellDerivation work;
  work.what = cell_name(step.symbol, axis_label(step.row_axis, cell.row), axis_label(step.column_axis, cell.column));
  work.result = kept_number(m, cell.head, cell.row, cell.column);
  const OperationInfo& operation = operation_info(step.request.operation);
  if (operation.expand != nullptr) operation.expand(explanation, step, cell, digits, work);
  return work;
}

}  // namespace regard::inline v0
