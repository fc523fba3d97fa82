// SPDX-License-Identifier: Apache-2.0
//
// How one cell was computed, for the steps around attention and for arithmetic as on paper; see expansion.h. If the
// terms add up to an intermediate value (a sum to divide by, a variance), lines show how it is used:
//
//     cosine        Q[0, d] · K[1, d] and the sum so far;   |q|,  |k|,  sum / (|q| · |k|)
//     normalize     (a − mean)² and the sum so far;         mean,  variance,  (a − mean) / deviation
//
// Read next: paper_arithmetic.cpp, which computes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expansion.h"
#include "explain/report/terminal.h"
#include "operations.h"

namespace regard::inline v0 {
namespace {

// "Q[0, 1]", and with heads "Q[2, 0, 1]".
std::string cell_name(const Operand& operand, Index head, Index row, Index column) {
  if (operand.matrix->has_heads) return fmt::format("{}[{}, {}, {}]", operand.name, head, row, column);
  return fmt::format("{}[{}, {}]", operand.name, row, column);
}

// The squared differences of numbers from their mean, then the mean and the variance.
void add_moments(const std::vector<double>& numbers, const std::vector<std::string>& names, int digits,
                 CellDerivation& work) {
  const Moments m = moments(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    add_term(work, fmt::format("({} − {})²", names[i], working_number(m.mean, digits)),
             {numbers[i] - m.mean, numbers[i] - m.mean});
  const auto count = static_cast<double>(numbers.size());
  work.lines.push_back({"mean", fmt::format("{} / {} = {}", working_number(m.mean * count, digits), numbers.size(),
                                            working_number(m.mean, digits))});
  work.lines.push_back({"variance", fmt::format("{} / {} = {}", working_number(work.terms.back().partial_sum, digits),
                                                numbers.size(), working_number(m.variance, digits))});
}

void add_variance(const Operand& operand, int digits, CellDerivation& work) {
  const Matrix& m = *operand.matrix;
  std::vector<std::string> names;
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.num_rows; ++r)
      for (Index c = 0; c < m.num_columns; ++c) names.push_back(cell_name(operand, h, r, c));
  add_moments(m.numbers, names, digits, work);
}

}  // namespace

void expand_show(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Operand& shown = step.operands[0];
  Cell from = cell;
  if (!shown.matrix->has_heads) {
    (as.by_columns ? from.row : from.column) += cell.head * as.num_across(step.result);
    from.head = 0;
  }
  work.lines.push_back({"given", fmt::format("{} = {}", cell_name(shown, from.head, from.row, from.column),
                                             shown_number(work.result, explanation.settings.dtype))});
}

void expand_join(const Explanation& explanation, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Operand& heads = step.operands[0];
  const Index width = as.num_across(*heads.matrix);
  work.lines.push_back({fmt::format("head {}", as.across(cell) / width),
                        fmt::format("{} = {}",
                                    as.name(heads.name, axis_label(as.token_axis(step), as.token(cell)),
                                            std::to_string(as.across(cell) % width)),
                                    working_number(work.result, digits))});
}

void expand_add(const Explanation&, const Step& step, const Cell& cell, int, CellDerivation& work) {
  for (const Operand& operand : step.operands)
    add_term(work,
             cell_name(operand.name, axis_label(step.row_axis, cell.row), axis_label(step.column_axis, cell.column)),
             {kept_number(*operand.matrix, cell.head, cell.row, cell.column)});
  finish_sum(work);
}

void expand_variances(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  add_variance(step.operands[static_cast<std::size_t>(cell.row)], digits, work);
}

void expand_floor_half(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const double score = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back({"floor", fmt::format("floor({} / 2) = floor({}) = {}", working_number(score, digits),
                                             working_number(score / 2, digits), working_number(work.result, digits))});
}

void expand_power(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const double exponent = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back(
      {"power", fmt::format("{}^({}) = {}", step.factor == 0 ? "e" : shown_number(step.factor, ElementType::float64),
                            working_number(exponent, digits), working_number(work.result, digits))});
}

void expand_sums(const Explanation& explanation, const Step& step, const Cell& cell, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& m = *step.operands[0].matrix;
  const std::string query = axis_label(as.token_axis(step), as.token(cell));
  for (Index j = 0; j < as.num_across(m); ++j)
    add_term(work, as.name(step.operands[0].name, query, std::to_string(j)),
             {as.number(m, cell.head, as.token(cell), j)});
  finish_sum(work);
}

void expand_divide(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                   CellDerivation& work) {
  const TokensFirst as(explanation);
  const double part = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  const double sum = as.number(*step.operands[1].matrix, cell.head, as.token(cell), 0);
  work.lines.push_back({"share", fmt::format("{} / {} = {}", working_number(part, digits), working_number(sum, digits),
                                             working_number(work.result, digits))});
}

void expand_ratio(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                  CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& scores = *step.operands[0].matrix;
  const Index query = as.token(cell);
  const std::string query_label = axis_label(as.token_axis(step), query);
  double sum = 0.0;  // as computed by the step
  for (Index j = 0; j < as.num_across(scores); ++j) {
    if (as.hidden(scores, cell.head, query, j)) continue;
    const double score = as.number(scores, cell.head, query, j);
    add_term(work, as.name(step.operands[0].name, query_label, axis_label(as.across_axis(step), j)), {score});
    sum += score;
    if (explanation.settings.dtype == ElementType::float32) sum = static_cast<double>(static_cast<float>(sum));
  }
  if (!work.terms.empty()) work.difference = work.terms.back().partial_sum - sum;
  if (as.hidden(scores, cell.head, query, as.across(cell))) {
    work.lines.push_back({"hidden", "the mask hides this key: weight 0"});
    return;
  }
  const double part = as.number(scores, cell.head, query, as.across(cell));
  work.lines.push_back({"share", fmt::format("{} / {} = {}", working_number(part, digits), working_number(sum, digits),
                                             working_number(work.result, digits))});
}

void expand_cosine(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                   CellDerivation& work) {
  const TokensFirst as(explanation);
  const Index query = as.token(cell);
  const Index key = as.across(cell);
  double query_square = 0.0;
  double key_square = 0.0;
  for (Index d = 0; d < as.num_across(*step.operands[0].matrix); ++d) {
    const double q = as.number(*step.operands[0].matrix, cell.head, query, d);
    const double k = as.number(*step.operands[1].matrix, cell.head, key, d);
    add_term(work,
             as.name(step.operands[0].name, axis_label(as.token_axis(step), query), std::to_string(d)) + " · " +
                 as.name(step.operands[1].name, axis_label(as.across_axis(step), key), std::to_string(d)),
             {q, k});
    query_square += q * q;
    key_square += k * k;
  }
  const auto norm = [&](const char* name, double square) {
    const std::string text = working_number(std::sqrt(square), digits);
    work.lines.push_back({name, fmt::format("√{} = {}", working_number(square, digits), text)});
    return text;
  };
  const std::string query_norm = norm("|q|", query_square);
  const std::string key_norm = norm("|k|", key_square);
  work.lines.push_back(
      {"cosine", fmt::format("{} / ({} · {}) = {}", working_number(work.terms.back().partial_sum, digits), query_norm,
                             key_norm, working_number(work.result, digits))});
}

void expand_normalize(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                      CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& m = *step.operands[0].matrix;
  const Index token = as.token(cell);
  std::vector<double> numbers;
  std::vector<std::string> names;
  for (Index d = 0; d < as.num_across(m); ++d) {
    numbers.push_back(as.number(m, cell.head, token, d));
    names.push_back(as.name(step.operands[0].name, axis_label(as.token_axis(step), token), std::to_string(d)));
  }
  add_moments(numbers, names, digits, work);
  const Moments of_token = moments(numbers);
  if (of_token.variance == 0) {
    work.lines.push_back({"normalized", "all elements are equal: 0"});
    return;
  }
  const std::string deviation = working_number(std::sqrt(of_token.variance), digits);
  work.lines.push_back({"deviation", fmt::format("√{} = {}", working_number(of_token.variance, digits), deviation)});
  work.lines.push_back(
      {"normalized",
       fmt::format("({} − {}) / {} = {}", working_number(numbers[static_cast<std::size_t>(as.across(cell))], digits),
                   working_number(of_token.mean, digits), deviation, working_number(work.result, digits))});
}

void expand_relu(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const double x = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back(
      {"rectified", fmt::format("max(0, {}) = {}", working_number(x, digits), working_number(work.result, digits))});
}

void expand_softmax(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                    CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& scores = *step.operands[0].matrix;
  double row_max = -std::numeric_limits<double>::infinity();
  double row_sum = 0.0;
  const auto for_each_seen = [&](auto visit) {
    for (Index j = 0; j < as.num_across(scores); ++j)
      if (!as.hidden(scores, 0, as.token(cell), j)) visit(as.number(scores, 0, as.token(cell), j));
  };
  for_each_seen([&](double score) { row_max = std::max(row_max, score); });
  for_each_seen([&](double score) { row_sum += std::exp(score - row_max); });
  expand_share(as, step, cell, digits, row_max, row_sum, work);
}

void expand_difference(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const double a = kept_number(*step.operands[0].matrix, 0, cell.row, cell.column);
  const bool transposed = step.request.transpose == "right";
  const double b = kept_number(*step.operands[1].matrix, 0, transposed ? cell.column : cell.row,
                               transposed ? cell.row : cell.column);
  work.lines.push_back({"difference", fmt::format("{} − {} = {}", working_number(a, digits),
                                                  working_subtrahend(b, digits), working_number(work.result, digits))});
}

void expand_focus_vectors(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                          CellDerivation& work) {
  const TokensFirst as(explanation);
  const Operand& from = step.operands[static_cast<std::size_t>(as.token(cell))];
  const std::string word = explanation.tokens[static_cast<std::size_t>(*explanation.focus)];
  work.lines.push_back({"from", fmt::format("{} = {}", as.name(from.name, word, std::to_string(as.across(cell))),
                                            working_number(work.result, digits))});
}

void expand_ranks(const Explanation& explanation, const Step& step, const Cell&, int, CellDerivation& work) {
  const TokensFirst as(explanation);
  const Index num_keys = as.num_across(*step.operands[0].matrix);
  work.lines.push_back({"rank", work.result == 1
                                    ? fmt::format("1: none of the {} keys has a larger score", num_keys)
                                    : fmt::format("{}: {} of the {} keys {} a larger score", work.result,
                                                  work.result - 1, num_keys, work.result == 2 ? "has" : "have")});
}

void expand_variance_rule(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                          CellDerivation& work) {
  if (cell.row == 1) return add_variance(step.operands[2], digits, work);
  const TokensFirst as(explanation);
  const auto variance = [&](std::size_t i) {
    return working_number(moments(step.operands[i].matrix->numbers).variance, digits);
  };
  work.lines.push_back({"rule", fmt::format("{} · {} · {} = {}", as.num_across(*step.operands[0].matrix), variance(0),
                                            variance(1), working_number(work.result, digits))});
}

}  // namespace regard::inline v0
