// SPDX-License-Identifier: Apache-2.0
//
// How one cell of a step came about, from the operands that the step keeps; see unfolding.h.
//
//     products      Q[love, 0] · K[I, 0],  the product,  the sum so far
//     weights       e^(score − largest score of the row),  the sum so far,  the share
//
// Read next: render_cell.cpp.
#include "unfolding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "operations.h"
#include "text.h"

namespace regard {
inline namespace v0 {
namespace {

bool columns(const Explanation& explanation) { return explanation.settings.layout == Layout::columns; }

// Short numbers in full, longer ones rounded.
std::string number(double x, int digits) {
  constexpr std::size_t kShortest = 6;
  const std::string shortest = shortest_number(x, NumberType::f64);
  const bool whole = x == std::trunc(x);
  const std::size_t point = shortest.find('.');
  const bool is_short = std::isfinite(x) && shortest.size() <= kShortest && point != std::string::npos;
  const int decimals = is_short ? static_cast<int>(shortest.size() - point - 1) : std::max(digits, 4);
  return styled_number(x, style_for(Matrix{.num_rows = 1, .num_columns = 1, .numbers = {x}},
                                    whole ? std::optional<int>() : decimals, true));
}

// A term with its product, adding to the sum so far.
void add_term(CellWork& work, std::string label, std::vector<double> factors) {
  double product = 1.0;
  for (double factor : factors) product *= factor;
  const double before = work.terms.empty() ? 0.0 : work.terms.back().partial_sum;
  work.terms.push_back({std::move(label), std::move(factors), product, before + product});
}

// What the plain sum of the listed terms lacks to the result, which may have been rounded otherwise on the way.
void finish_sum(CellWork& work) {
  if (!work.terms.empty()) work.parted = work.terms.back().partial_sum - work.result;
}

const Axis kNoAxis{};

}  // namespace

std::string axis_label(const Axis& axis, Index index) {
  if (static_cast<std::size_t>(index) < axis.labels.size()) return axis.labels[static_cast<std::size_t>(index)];
  return std::to_string(index);
}

std::string cell_name(const std::string& symbol, const std::string& row, const std::string& column) {
  return fmt::format("{}[{}, {}]", symbol, row, column);
}

Index stored_place(const std::vector<Index>& kept, Index index) {
  if (kept.empty()) return index;
  const auto found = std::lower_bound(kept.begin(), kept.end(), index);
  return found != kept.end() && *found == index ? static_cast<Index>(found - kept.begin()) : -1;
}

double kept_number(const Matrix& m, Index head, Index row, Index column) {
  const Index r = stored_place(m.kept_rows, row);
  const Index c = stored_place(m.kept_columns, column);
  if (r < 0 || c < 0)
    throw std::invalid_argument(
        fmt::format("cell {},{} was not computed: the matrix is too large to keep whole", row, column));
  return m.numbers[m.place(head, r, c)];
}

void unfold_linear(const Explanation& explanation, const Step& step, const Cell& cell, int, CellWork& work) {
  const Matrix& x = *step.operands[0].matrix;
  const Matrix& w = *step.operands[1].matrix;
  const bool by_columns = columns(explanation);
  const Index width = by_columns ? step.result.num_rows : step.result.num_columns;
  const Index token = by_columns ? cell.column : cell.row;
  const Index output = cell.head * width + (by_columns ? cell.row : cell.column);
  const std::string word = axis_label(by_columns ? step.column_axis : step.row_axis, token);
  const Index inputs = by_columns ? x.num_rows : x.num_columns;
  for (Index i = 0; i < inputs; ++i) {
    const double a = by_columns ? kept_number(x, 0, i, token) : kept_number(x, 0, token, i);
    const double b = by_columns ? w.numbers[w.place(0, output, i)] : w.numbers[w.place(0, i, output)];
    const std::string x_name = by_columns ? cell_name(step.operands[0].name, std::to_string(i), word)
                                          : cell_name(step.operands[0].name, word, std::to_string(i));
    const std::string w_name = by_columns ? cell_name(step.operands[1].name, std::to_string(output), std::to_string(i))
                                          : cell_name(step.operands[1].name, std::to_string(i), std::to_string(output));
    if (by_columns) {
      add_term(work, w_name + " · " + x_name, {b, a});
    } else {
      add_term(work, x_name + " · " + w_name, {a, b});
    }
  }
  if (step.operands.size() > 2)
    add_term(work, fmt::format("{}[{}]", step.operands[2].name, output),
             {step.operands[2].matrix->numbers[static_cast<std::size_t>(output)]});
  finish_sum(work);
}

void unfold_product(const Explanation&, const Step& step, const Cell& cell, int, CellWork& work) {
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

void unfold_mix(const Explanation& explanation, const Step& step, const Cell& cell, int, CellWork& work) {
  const Matrix& a = *step.operands[0].matrix;
  const bool by_columns = columns(explanation);
  const Index tokens = by_columns ? a.num_columns : a.num_rows;
  const Index mixture = by_columns ? cell.column : cell.row;
  for (Index t = 0; t < tokens; ++t) {
    const double share = step.request.numbers[static_cast<std::size_t>(mixture * tokens + t)];
    const double x = by_columns ? a.numbers[a.place(0, cell.row, t)] : a.numbers[a.place(0, t, cell.column)];
    add_term(
        work,
        "share · " + (by_columns ? cell_name(step.operands[0].name, std::to_string(cell.row), std::to_string(t))
                                 : cell_name(step.operands[0].name, std::to_string(t), std::to_string(cell.column))),
        {share, x});
  }
  finish_sum(work);
}

void unfold_add(const Explanation&, const Step& step, const Cell& cell, int, CellWork& work) {
  for (const Operand& operand : step.operands)
    add_term(work,
             cell_name(operand.name, axis_label(step.row_axis, cell.row), axis_label(step.column_axis, cell.column)),
             {kept_number(*operand.matrix, cell.head, cell.row, cell.column)});
  finish_sum(work);
}

void unfold_scores(const Explanation& explanation, const Step& step, const Cell& cell, int, CellWork& work) {
  const Matrix& q = *step.operands[0].matrix;
  const Matrix& k = *step.operands[1].matrix;
  const bool by_columns = columns(explanation);
  const Index query = by_columns ? cell.column : cell.row;
  const Index key = by_columns ? cell.row : cell.column;
  const Index key_head = cell.head / (q.num_heads / k.num_heads);
  const std::string asks = axis_label(by_columns ? step.column_axis : step.row_axis, query);
  const std::string answers = axis_label(by_columns ? step.row_axis : step.column_axis, key);
  const Index depth = by_columns ? q.num_rows : q.num_columns;
  for (Index d = 0; d < depth; ++d) {
    const std::string place = std::to_string(d);
    if (by_columns) {
      add_term(work,
               cell_name(step.operands[1].name, place, answers) + " · " + cell_name(step.operands[0].name, place, asks),
               {k.numbers[k.place(key_head, d, key)], q.numbers[q.place(cell.head, d, query)]});
    } else {
      add_term(work,
               cell_name(step.operands[0].name, asks, place) + " · " + cell_name(step.operands[1].name, answers, place),
               {q.numbers[q.place(cell.head, query, d)], k.numbers[k.place(key_head, key, d)]});
    }
  }
  finish_sum(work);
}

void unfold_scaled(const Explanation& explanation, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const double score = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back({"score", number(score, digits)});
  const Scale scale = step.request.scale.value_or(explanation.settings.scale);
  if (scale.rule == ScaleRule::sqrt) {
    const double squared = 1.0 / (step.factor * step.factor);
    work.lines.push_back(
        {"divided by", fmt::format("√{} = {}", std::llround(squared), number(1.0 / step.factor, digits))});
  } else {
    work.lines.push_back({"times", shortest_number(step.factor, NumberType::f64)});
  }
  work.lines.push_back({"scaled", number(work.result, digits)});
}

void unfold_masked(const Explanation& explanation, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const Index query = columns(explanation) ? cell.column : cell.row;
  const Index key = columns(explanation) ? cell.row : cell.column;
  const double score = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back({"score", number(score, digits)});
  const std::string last = step.causal_offset == 0 ? std::to_string(query)
                                                   : fmt::format("{} {} {}", query, step.causal_offset < 0 ? "−" : "+",
                                                                 std::abs(step.causal_offset));
  if (work.result == -std::numeric_limits<double>::infinity() && key > query + step.causal_offset) {
    work.lines.push_back({"hidden", fmt::format("key {} > {}: the score becomes −∞", key, last)});
  } else {
    work.lines.push_back({"seen", fmt::format("key {} ≤ {}: the score stays", key, last)});
  }
}

void unfold_weights(const Explanation& explanation, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const Matrix& scores = *step.operands[0].matrix;
  const bool by_columns = columns(explanation);
  const Index query = by_columns ? cell.column : cell.row;
  const Index key = by_columns ? cell.row : cell.column;
  const Axis& key_axis = by_columns ? step.row_axis : step.column_axis;
  const Index keys = by_columns ? step.result.num_rows : step.result.num_columns;
  const double row_max = kept_number(*step.operands[1].matrix, cell.head, query, 0);
  const double row_sum = kept_number(*step.operands[2].matrix, cell.head, query, 0);
  const auto score_of = [&](Index j) {
    return by_columns ? kept_number(scores, cell.head, j, query) : kept_number(scores, cell.head, query, j);
  };
  for (Index j = 0; j < keys; ++j) {
    if (j > query + step.causal_offset && !step.result.hidden.empty()) continue;
    const double exponential = std::exp(score_of(j) - row_max);
    const double before = work.terms.empty() ? 0.0 : work.terms.back().partial_sum;
    work.terms.push_back(
        {fmt::format("e^({} − {}), {}", number(score_of(j), digits), number(row_max, digits), axis_label(key_axis, j)),
         {score_of(j)},
         exponential,
         before + exponential});
  }
  if (!step.result.hidden.empty() && key > query + step.causal_offset) {
    work.lines.push_back({"hidden", "the mask hides this key: weight 0"});
    work.parted = 0.0;
    return;
  }
  const double score = score_of(key);
  work.lines.push_back({"largest score", number(row_max, digits)});
  work.lines.push_back({"exponential", fmt::format("e^({} − {}) = {}", number(score, digits), number(row_max, digits),
                                                   number(std::exp(score - row_max), digits))});
  work.lines.push_back({"sum of all", number(row_sum, digits)});
  work.lines.push_back({"share", fmt::format("{} / {} = {}", number(std::exp(score - row_max), digits),
                                             number(row_sum, digits), number(work.result, digits))});
  work.parted = work.terms.empty() ? 0.0 : work.terms.back().partial_sum - row_sum;
}

void unfold_context(const Explanation& explanation, const Step& step, const Cell& cell, int, CellWork& work) {
  const Matrix& weights = *step.operands[0].matrix;
  const Matrix& value = *step.operands[1].matrix;
  const bool by_columns = columns(explanation);
  const Index query = by_columns ? cell.column : cell.row;
  const Index dimension = by_columns ? cell.row : cell.column;
  const std::string asks = axis_label(by_columns ? step.column_axis : step.row_axis, query);
  const std::string place = std::to_string(dimension);
  const Index value_head = cell.head / (step.result.num_heads / value.num_heads);
  const Index keys = by_columns ? value.num_columns : value.num_rows;
  const std::vector<std::string>& words =
      keys == static_cast<Index>(explanation.key_tokens.size()) ? explanation.key_tokens : kNoAxis.labels;
  const Axis key_axis{"S", "key", words};
  for (Index j = 0; j < keys; ++j) {
    const double weight =
        by_columns ? kept_number(weights, cell.head, j, query) : kept_number(weights, cell.head, query, j);
    if (weight == 0.0) continue;  // hidden, or too small for any number
    const std::string key = axis_label(key_axis, j);
    if (by_columns) {
      add_term(work, cell_name(step.operands[1].name, place, key) + " · " + cell_name(step.operands[0].name, key, asks),
               {value.numbers[value.place(value_head, dimension, j)], weight});
    } else {
      add_term(work, cell_name(step.operands[0].name, asks, key) + " · " + cell_name(step.operands[1].name, key, place),
               {weight, value.numbers[value.place(value_head, j, dimension)]});
    }
  }
  finish_sum(work);
}

void unfold_floor_half(const Explanation&, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const double score = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back({"floor", fmt::format("floor({} / 2) = floor({}) = {}", number(score, digits),
                                             number(score / 2, digits), number(work.result, digits))});
}

void unfold_power(const Explanation&, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const double exponent = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  work.lines.push_back(
      {"power", fmt::format("{}^({}) = {}", step.factor == 0 ? "e" : shortest_number(step.factor, NumberType::f64),
                            number(exponent, digits), number(work.result, digits))});
}

void unfold_sums(const Explanation& explanation, const Step& step, const Cell& cell, int, CellWork& work) {
  const Matrix& m = *step.operands[0].matrix;
  const bool by_columns = columns(explanation);
  const Index keys = by_columns ? m.num_rows : m.num_columns;
  const std::string query =
      by_columns ? axis_label(step.column_axis, cell.column) : axis_label(step.row_axis, cell.row);
  for (Index j = 0; j < keys; ++j)
    add_term(work,
             by_columns ? cell_name(step.operands[0].name, std::to_string(j), query)
                        : cell_name(step.operands[0].name, query, std::to_string(j)),
             {by_columns ? kept_number(m, cell.head, j, cell.column) : kept_number(m, cell.head, cell.row, j)});
  finish_sum(work);
}

void unfold_divide(const Explanation& explanation, const Step& step, const Cell& cell, int digits, CellWork& work) {
  const bool by_columns = columns(explanation);
  const double part = kept_number(*step.operands[0].matrix, cell.head, cell.row, cell.column);
  const double sum = by_columns ? kept_number(*step.operands[1].matrix, cell.head, 0, cell.column)
                                : kept_number(*step.operands[1].matrix, cell.head, cell.row, 0);
  work.lines.push_back(
      {"share", fmt::format("{} / {} = {}", number(part, digits), number(sum, digits), number(work.result, digits))});
}

CellWork unfold_cell(const Explanation& explanation, const Step& step, const Cell& cell, int digits) {
  const Matrix& m = step.result;
  if (cell.head < 0 || cell.head >= m.num_heads || cell.row < 0 || cell.row >= m.num_rows || cell.column < 0 ||
      cell.column >= m.num_columns)
    throw std::invalid_argument(fmt::format("cell {},{}{} is outside step {}, which is {} × {}{}", cell.row,
                                            cell.column, cell.head == 0 ? "" : fmt::format(" of head {}", cell.head),
                                            step.name, m.num_rows, m.num_columns,
                                            m.num_heads == 1 ? "" : fmt::format(" in {} heads", m.num_heads)));
  CellWork work;
  work.what = cell_name(step.symbol, axis_label(step.row_axis, cell.row), axis_label(step.column_axis, cell.column));
  work.result = kept_number(m, cell.head, cell.row, cell.column);
  const Operation* operation = find_operation(step.request.operation);
  if (operation != nullptr && operation->unfold != nullptr) operation->unfold(explanation, step, cell, digits, work);
  return work;
}

}  // namespace v0
}  // namespace regard
