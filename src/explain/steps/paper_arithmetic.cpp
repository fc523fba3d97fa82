// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic from documents that the library does not provide, in plain loops; each step is marked as such.
// floor(S / 2) instead of a scale, powers of any base without a shift, sums, plain ratios; cosine; and the parts of a
// transformer around attention: residual, normalization, the rectifier.
//
//     for each head, row, column: one number from the same cell of the operand (and one number for its query)
//
// Read next: docs/guide/own-matrices.md, operations_attention.cpp for the library's own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expansion.h"
#include "explain/report/terminal.h"
#include "operations.h"

namespace regard::inline v0 {
namespace {

void take_axes(Evaluation& e) {
  e.step.row_axis = e.operands[0].row_axis;
  e.step.column_axis = e.operands[0].column_axis;
  e.step.outside_library = true;
}

template <class Function>
void map_numbers(Evaluation& e, Function function) {
  e.step.result = e.operand(0);
  for (std::size_t i = 0; i < e.step.result.numbers.size(); ++i)
    e.step.result.numbers[i] = rounded(e, function(e.step.result.numbers[i], i));
  take_axes(e);
}

bool hidden(const Matrix& m, std::size_t i) { return !m.hidden.empty() && m.hidden[i] != 0; }

// The sum over the keys for each query: along a row, or down a column.
Matrix key_sums(const Evaluation& e, const Matrix& m) {
  Matrix sums;
  sums.num_heads = m.num_heads;
  sums.has_heads = m.has_heads;
  sums.num_rows = e.columns() ? 1 : m.num_rows;
  sums.num_columns = e.columns() ? m.num_columns : 1;
  if (e.columns()) {
    sums.kept_columns = m.kept_columns;
  } else {
    sums.kept_rows = m.kept_rows;
  }
  sums.numbers.assign(static_cast<std::size_t>(sums.num_heads * sums.stored_rows() * sums.stored_columns()), 0.0);
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.stored_rows(); ++r)
      for (Index c = 0; c < m.stored_columns(); ++c) {
        const std::size_t i = m.index(h, r, c);
        double& sum = sums.numbers[e.columns() ? sums.index(h, 0, c) : sums.index(h, r, 0)];
        if (!hidden(m, i)) sum = rounded(e, sum + m.numbers[i]);
      }
  return sums;
}

void divide_by(Evaluation& e, const Matrix& sums) {
  const Matrix& m = e.operand(0);
  const Index rows = e.columns() ? 1 : m.stored_rows();
  const Index cols = e.columns() ? m.stored_columns() : 1;
  if (sums.num_heads != m.num_heads || sums.stored_rows() != rows || sums.stored_columns() != cols)
    e.fail(fmt::format("{} has {} elements; expected one for each query of {}", e.request.operands.back(),
                       sums.numbers.size(), e.request.operands[0]));
  e.step.result = m;
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.stored_rows(); ++r)
      for (Index c = 0; c < m.stored_columns(); ++c) {
        const std::size_t i = m.index(h, r, c);
        const double sum = sums.numbers[e.columns() ? sums.index(h, 0, c) : sums.index(h, r, 0)];
        e.step.result.numbers[i] = hidden(m, i) ? 0.0 : rounded(e, m.numbers[i] / sum);
      }
  take_axes(e);
  e.step.sums_to_one = e.columns() ? SumAxis::column : SumAxis::row;
}

void compute_floor_half(Evaluation& e) {
  map_numbers(e, [](double x, std::size_t) { return std::floor(x / 2); });
  e.step.equation = fmt::format("{} = floor({} / 2)", e.step.symbol, e.request.operands[0]);
}

void compute_power(Evaluation& e) {
  const std::optional<double> base = e.request.base ? e.request.base : e.settings.softmax_base;
  if (base && !(*base > 0 && std::isfinite(*base))) e.fail("base must be a positive number");
  e.step.factor = base.value_or(0.0);
  const Matrix& m = e.operand(0);
  map_numbers(e, [&](double x, std::size_t i) {
    if (hidden(m, i)) return 0.0;
    return base ? std::pow(*base, x) : std::exp(x);
  });
  e.step.equation = fmt::format("{} = {}^{}", e.step.symbol, base ? shown_number(*base, ElementType::float64) : "e",
                                e.request.operands[0]);
}

void compute_sums(Evaluation& e) {
  e.step.result = key_sums(e, e.operand(0));
  take_axes(e);
  (e.columns() ? e.step.row_axis : e.step.column_axis) = {"", "", {"sum"}};
  e.step.equation =
      fmt::format("{} = sum of each {} of {}", e.step.symbol, e.columns() ? "column" : "row", e.request.operands[0]);
}

void compute_divide(Evaluation& e) {
  divide_by(e, e.operand(1));
  e.step.equation = fmt::format("{0} = {1} / {2}, {3} by {3}", e.step.symbol, e.request.operands[0],
                                e.request.operands[1], e.columns() ? "column" : "row");
}

void compute_ratio(Evaluation& e) {
  divide_by(e, key_sums(e, e.operand(0)));
  e.step.equation = fmt::format("{0} = {1} / Σ {1}, {2} by {2}", e.step.symbol, e.request.operands[0],
                                e.columns() ? "column" : "row");
}

void compute_cosine(Evaluation& e) {
  const Matrix& q = e.operand(0);
  const Matrix& k = e.operand(1);
  const Index dimensions = e.columns() ? q.num_rows : q.num_columns;
  const Index queries = e.columns() ? q.num_columns : q.num_rows;
  const Index keys = e.columns() ? k.num_columns : k.num_rows;
  if ((e.columns() ? k.num_rows : k.num_columns) != dimensions || k.num_heads != q.num_heads || !q.kept_rows.empty() ||
      !q.kept_columns.empty() || !k.kept_rows.empty() || !k.kept_columns.empty())
    e.fail(
        fmt::format("{} and {} must contain vectors of the same size", e.request.operands[0], e.request.operands[1]));
  const double bytes =
      static_cast<double>(queries) * static_cast<double>(keys) * static_cast<double>(q.num_heads) * 8.0;
  if (bytes > static_cast<double>(kMaxKeptElements) * 8.0)
    e.fail(fmt::format("{} × {} cosines are too many; at most {} are computed", queries, keys, kMaxKeptElements));
  const auto at = [&](const Matrix& m, Index h, Index token, Index d) {
    return m.numbers[e.columns() ? m.index(h, d, token) : m.index(h, token, d)];
  };
  Matrix& m = e.step.result;
  m.num_heads = q.num_heads;
  m.has_heads = q.has_heads;
  m.num_rows = e.columns() ? keys : queries;
  m.num_columns = e.columns() ? queries : keys;
  m.numbers.resize(static_cast<std::size_t>(m.num_heads * queries * keys));
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index i = 0; i < queries; ++i)
      for (Index j = 0; j < keys; ++j) {
        double dot = 0.0;
        double squared_norm_q = 0.0;
        double squared_norm_k = 0.0;
        for (Index d = 0; d < dimensions; ++d) {
          dot += at(q, h, i, d) * at(k, h, j, d);
          squared_norm_q += at(q, h, i, d) * at(q, h, i, d);
          squared_norm_k += at(k, h, j, d) * at(k, h, j, d);
        }
        m.numbers[e.columns() ? m.index(h, j, i) : m.index(h, i, j)] =
            rounded(e, dot / (std::sqrt(squared_norm_q) * std::sqrt(squared_norm_k)));
      }
  Axis query = e.columns() ? e.operands[0].column_axis : e.operands[0].row_axis;
  Axis key = e.columns() ? e.operands[1].column_axis : e.operands[1].row_axis;
  query.name = "query";
  key.name = "key";
  e.step.row_axis = e.columns() ? key : query;
  e.step.column_axis = e.columns() ? query : key;
  e.step.outside_library = true;
  e.step.equation = fmt::format("{} = q·k / (|q| · |k|)", e.step.symbol);
}

void compute_add(Evaluation& e) {
  const Matrix& a = e.operand(0);
  const Matrix& b = e.operand(1);
  if (a.numbers.size() != b.numbers.size() || a.num_rows != b.num_rows || a.num_columns != b.num_columns ||
      a.kept_rows != b.kept_rows || a.kept_columns != b.kept_columns)
    e.fail(fmt::format("{} is {} × {} and {} is {} × {}: they must have the same shape", e.request.operands[0],
                       a.num_rows, a.num_columns, e.request.operands[1], b.num_rows, b.num_columns));
  map_numbers(e, [&](double x, std::size_t i) { return x + b.numbers[i]; });
  e.step.equation = fmt::format("{} = {} + {}", e.step.symbol, e.request.operands[0], e.request.operands[1]);
}

void compute_normalize(Evaluation& e) {
  const Matrix& m = e.operand(0);
  const Index tokens = e.columns() ? m.stored_columns() : m.stored_rows();
  const Index dimensions = e.columns() ? m.stored_rows() : m.stored_columns();
  e.step.result = m;
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index t = 0; t < tokens; ++t) {
      const auto index = [&](Index d) { return e.columns() ? m.index(h, d, t) : m.index(h, t, d); };
      std::vector<double> numbers;
      for (Index d = 0; d < dimensions; ++d) numbers.push_back(m.numbers[index(d)]);
      const auto [mean, variance] = moments(numbers);
      for (Index d = 0; d < dimensions; ++d)
        e.step.result.numbers[index(d)] =
            variance == 0 ? 0.0 : rounded(e, (m.numbers[index(d)] - mean) / std::sqrt(variance));
    }
  take_axes(e);
  e.step.equation =
      fmt::format("{} = ({} − mean) / standard deviation, for each token", e.step.symbol, e.request.operands[0]);
}

// Hides the keys after each query in scores that the library did not compute.
void compute_hide(Evaluation& e) {
  const Causal& causal = e.request.causal ? *e.request.causal : e.settings.causal;
  const Matrix& m = e.operand(0);
  const Index queries = e.columns() ? m.num_columns : m.num_rows;
  const Index keys = e.columns() ? m.num_rows : m.num_columns;
  const Index offset = causal.rule == CausalRule::bottom_right ? keys - queries : causal.offset;
  e.step.causal_offset = offset;
  e.step.result = m;
  take_axes(e);
  if (causal.rule == CausalRule::off) {
    e.step.equation = fmt::format("{} = {}, every key is visible", e.step.symbol, e.request.operands[0]);
    return;
  }
  e.step.result.hidden.assign(m.numbers.size(), 0);
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.stored_rows(); ++r)
      for (Index c = 0; c < m.stored_columns(); ++c) {
        const Index row = m.kept_rows.empty() ? r : m.kept_rows[static_cast<std::size_t>(r)];
        const Index column = m.kept_columns.empty() ? c : m.kept_columns[static_cast<std::size_t>(c)];
        if ((e.columns() ? row : column) <= (e.columns() ? column : row) + offset) continue;
        e.step.result.hidden[m.index(h, r, c)] = 1;
        e.step.result.numbers[m.index(h, r, c)] = -std::numeric_limits<double>::infinity();
      }
  e.step.equation = fmt::format("{} = {} where key ≤ query{}, else −∞", e.step.symbol, e.request.operands[0],
                                offset == 0 ? "" : fmt::format(" {} {}", offset < 0 ? "−" : "+", std::abs(offset)));
}

void compute_relu(Evaluation& e) {
  map_numbers(e, [](double x, std::size_t) { return x < 0 ? 0.0 : x; });
  e.step.equation = fmt::format("{} = max(0, {})", e.step.symbol, e.request.operands[0]);
}

constexpr OperationInfo kPaperOperations[] = {
    {Operation::floor_half, "floor_half", "scaled scores", 1, 1, compute_floor_half, expand_floor_half},
    {Operation::hide, "hide", "masked scores", 1, 1, compute_hide, expand_masked, {.has_example = false}},
    {Operation::power, "power", "exponentials", 1, 1, compute_power, expand_power},
    {Operation::sums, "sums", "sums", 1, 1, compute_sums, expand_sums},
    {Operation::divide, "divide", "attention weights", 2, 2, compute_divide, expand_divide},
    {Operation::ratio, "ratio", "attention weights", 1, 1, compute_ratio, expand_ratio},
    {Operation::cosine, "cosine", "cosines", 2, 2, compute_cosine, expand_cosine},
    {Operation::add, "add", "sum", 2, 2, compute_add, expand_add},
    {Operation::normalize, "normalize", "normalized", 1, 1, compute_normalize, expand_normalize},
    {Operation::relu, "relu", "rectified", 1, 1, compute_relu, expand_relu},
};

}  // namespace

double rounded(const Evaluation& e, double x) {
  return e.settings.dtype == ElementType::float32 ? static_cast<double>(static_cast<float>(x)) : x;
}

std::span<const OperationInfo> paper_operations() { return kPaperOperations; }

}  // namespace regard::inline v0
