// SPDX-License-Identifier: Apache-2.0
//
// The steps around attention: projections, plain products, combinations of rows, joined heads, variances. Every product
// is computed by linear_forward on views; in layout "columns" W·X is Xᵀ·Wᵀ with exchanged strides.
// Read next: paper_arithmetic.cpp.
#include <fmt/format.h>

#include <numeric>

#include "expansion.h"
#include "explain/report/terminal.h"
#include "matrix_buffer.h"
#include "operations.h"
#include "regard/linear.h"

namespace regard::inline v0 {
namespace {

void check_memory(const Evaluation& e, Index heads, Index rows, Index cols) {
  const double bytes = static_cast<double>(heads) * static_cast<double>(rows) * static_cast<double>(cols) * 16.0;
  const auto available = static_cast<double>(available_memory_bytes());
  if (bytes > available)
    e.fail(fmt::format("{} × {} × {} numbers need {:.1f} GiB, but {:.1f} GiB are available", heads, rows, cols,
                       bytes / 0x1p30, available / 0x1p30));
}

void check_whole(const Evaluation& e, std::size_t i) {
  const Matrix& m = e.operand(i);
  if (!m.kept_rows.empty() || !m.kept_columns.empty())
    e.fail(fmt::format("{} is too large: only some of its {} × {} numbers are kept (see --full)", e.request.operands[i],
                       m.num_rows, m.num_columns));
}

Axis renamed(Axis axis, const std::string& extent, const std::string& name) {
  axis.extent = extent;
  axis.name = name;
  return axis;
}

// After the projection, the tokens of X are queries or keys.
Axis token_axis_of(const Evaluation& e, Axis axis) {
  if (e.step.name.starts_with("quer")) return renamed(std::move(axis), "L", "query");
  if (e.step.name.starts_with("key") || e.step.name.starts_with("value")) return renamed(std::move(axis), "S", "key");
  return axis;
}

template <class T>
std::vector<double> linear(Evaluation& e, Index inputs, Index outputs) {
  Buffer<T> x(e.operand(0));
  Buffer<T> w(e.operand(1));
  std::vector<T> bias;
  if (e.operands.size() > 2) bias.assign(e.operand(2).numbers.begin(), e.operand(2).numbers.end());
  const TensorView<const T, 1> b =
      bias.empty() ? TensorView<const T, 1>() : TensorView<const T, 1>(bias.data(), {outputs});
  const Index tokens = e.columns() ? x.columns : x.rows;
  Buffer<T> y(1, e.columns() ? outputs : tokens, e.columns() ? tokens : outputs);
  if (inputs == 0) e.fail(e.request.operands[1] + " has no rows");
  if (e.columns()) {
    linear_forward<T>(x.transposed(0), w.transposed(0), b, y.transposed(0));
  } else {
    linear_forward<T>(x.view(0), w.view(0), b, y.view(0));
  }
  return y.as_doubles();
}

// (L, H·D) becomes (H, L, D); in layout columns, (H·D, L) already is (H, D, L).
Matrix split_heads(Evaluation& e, const Matrix& joined, Index heads) {
  const Index width = e.columns() ? joined.num_rows : joined.num_columns;
  if (heads < 1 || width % heads != 0) e.fail(fmt::format("{} dimensions cannot be split into {} heads", width, heads));
  // Chosen tokens stay chosen; all their dimensions must be present.
  if (!(e.columns() ? joined.kept_rows : joined.kept_columns).empty()) check_whole(e, 0);
  Matrix m = joined;
  m.num_heads = heads;
  m.has_heads = true;
  if (e.columns()) {
    m.num_rows = width / heads;
    return m;
  }
  m.num_columns = width / heads;
  for (Index h = 0; h < heads; ++h)
    for (Index r = 0; r < joined.stored_rows(); ++r)
      for (Index c = 0; c < m.num_columns; ++c)
        m.numbers[m.index(h, r, c)] = joined.numbers[joined.index(0, r, h * m.num_columns + c)];
  return m;
}

void compute_show(Evaluation& e) {
  const Matrix& m = e.operand(0);
  const Index heads = e.request.heads.value_or(1);
  if (m.has_heads && heads != 1 && heads != m.num_heads)
    e.fail(fmt::format("{} has {} heads and cannot be split into {}", e.request.operands[0], m.num_heads, heads));
  const bool split = !m.has_heads && heads != 1;
  e.step.result = split ? split_heads(e, m, heads) : m;
  e.step.row_axis = e.operands[0].row_axis;
  e.step.column_axis = e.operands[0].column_axis;
  e.step.equation =
      e.step.symbol == e.request.operands[0] ? "given" : fmt::format("{} = {}", e.step.symbol, e.request.operands[0]);
  if (split) e.step.equation += fmt::format(", split into {} heads", heads);
}

void compute_linear(Evaluation& e) {
  const Matrix& x = e.operand(0);
  const Matrix& w = e.operand(1);
  check_whole(e, 1);
  if (x.num_heads != 1 || w.num_heads != 1)
    e.fail(fmt::format("{} is {}: join its heads first", e.request.operands[x.num_heads != 1 ? 0 : 1],
                       shape_text(x.num_heads != 1 ? x : w)));
  const Index inputs = e.columns() ? x.num_rows : x.num_columns;
  const Index w_inputs = e.columns() ? w.num_columns : w.num_rows;
  const Index outputs = e.columns() ? w.num_rows : w.num_columns;
  if (inputs != w_inputs)
    e.fail(fmt::format("{} is {} and {} is {}: {} must have {} {}", e.request.operands[0], shape_text(x),
                       e.request.operands[1], shape_text(w), e.request.operands[1], inputs,
                       e.columns() ? "columns" : "rows"));
  if (e.operands.size() > 2 &&
      (e.operand(2).num_heads != 1 || static_cast<Index>(e.operand(2).numbers.size()) != outputs))
    e.fail(fmt::format("{} is {}: expected {} numbers", e.request.operands[2], shape_text(e.operand(2)), outputs));

  Matrix joined;
  joined.num_rows = e.columns() ? outputs : x.num_rows;
  joined.num_columns = e.columns() ? x.num_columns : outputs;
  joined.kept_rows = x.kept_rows;
  joined.kept_columns = x.kept_columns;
  joined.numbers =
      e.settings.dtype == ElementType::float32 ? linear<float>(e, inputs, outputs) : linear<double>(e, inputs, outputs);
  const Index heads = e.request.heads.value_or(1);
  e.step.result = heads == 1 ? std::move(joined) : split_heads(e, joined, heads);

  const Axis tokens = token_axis_of(e, e.columns() ? e.operands[0].column_axis : e.operands[0].row_axis);
  const Axis dimensions{heads == 1 && !e.step.name.starts_with("output") ? "D" : (heads == 1 ? "E" : "D"), "dimension",
                        e.request.column_labels};
  e.step.row_axis = e.columns() ? dimensions : tokens;
  e.step.column_axis = e.columns() ? tokens : dimensions;
  const std::string& a = e.request.operands[e.columns() ? 1 : 0];
  const std::string& b = e.request.operands[e.columns() ? 0 : 1];
  e.step.equation = fmt::format("{} = {} · {}", e.step.symbol, a, b);
  if (e.operands.size() > 2) e.step.equation += " + " + e.request.operands[2];
  if (heads > 1) e.step.equation += fmt::format(", split into {} heads", heads);
}

template <class T>
std::vector<double> product(Evaluation& e, Index heads, Index rows, Index cols) {
  Buffer<T> a(e.operand(0));
  Buffer<T> b(e.operand(1));
  Buffer<T> y(heads, rows, cols);
  for (Index h = 0; h < heads; ++h) {
    const Index ha = a.heads == 1 ? 0 : h;
    const Index hb = b.heads == 1 ? 0 : h;
    linear_forward<T>(e.request.transpose == "left" ? a.transposed(ha) : a.view(ha),
                      e.request.transpose == "right" ? b.transposed(hb) : b.view(hb), {}, y.view(h));
  }
  return y.as_doubles();
}

void compute_product(Evaluation& e) {
  const bool left = e.request.transpose == "left";
  const bool right = e.request.transpose == "right";
  if (!left && !right && !e.request.transpose.empty())
    e.fail(fmt::format("transpose \"{}\" is not left or right", e.request.transpose));
  const Matrix& a = e.operand(0);
  const Matrix& b = e.operand(1);
  // The rows of a left operand and the columns of a right one may be chosen ones: the result keeps the choice.
  if (left || !a.kept_columns.empty()) check_whole(e, 0);
  if (right || !b.kept_rows.empty()) check_whole(e, 1);
  const Index rows = left ? a.num_columns : a.num_rows;
  const Index inner_a = left ? a.num_rows : a.num_columns;
  const Index inner_b = right ? b.num_columns : b.num_rows;
  const Index cols = right ? b.num_rows : b.num_columns;
  const Index heads = std::max(a.num_heads, b.num_heads);
  if (inner_a != inner_b || (a.num_heads != heads && a.num_heads != 1) || (b.num_heads != heads && b.num_heads != 1))
    e.fail(fmt::format("{}{} and {}{} ({} and {}) cannot be multiplied", e.request.operands[0], left ? "ᵀ" : "",
                       e.request.operands[1], right ? "ᵀ" : "", shape_text(a), shape_text(b)));
  Matrix& m = e.step.result;
  m.num_heads = heads;
  m.has_heads = a.has_heads || b.has_heads;
  m.num_rows = rows;
  m.num_columns = cols;
  m.kept_rows = a.kept_rows;
  m.kept_columns = b.kept_columns;
  check_memory(e, heads, m.stored_rows(), m.stored_columns());
  m.numbers = e.settings.dtype == ElementType::float32 ? product<float>(e, heads, m.stored_rows(), m.stored_columns())
                                                       : product<double>(e, heads, m.stored_rows(), m.stored_columns());
  e.step.row_axis = left ? e.operands[0].column_axis : e.operands[0].row_axis;
  e.step.column_axis = right ? e.operands[1].row_axis : e.operands[1].column_axis;
  e.step.equation = fmt::format("{} = {}{} · {}{}", e.step.symbol, e.request.operands[0], left ? "ᵀ" : "",
                                e.request.operands[1], right ? "ᵀ" : "");
}

template <class T>
std::vector<double> mix(Evaluation& e, Index count) {
  Buffer<T> a(e.operand(0));
  const Index tokens = e.columns() ? a.columns : a.rows;
  Buffer<T> coefficients(1, count, tokens);
  for (std::size_t i = 0; i < coefficients.numbers.size(); ++i) {
    coefficients.numbers[i] = static_cast<T>(e.request.numbers[i]);
  }
  const Index width = e.columns() ? a.rows : a.columns;
  Buffer<T> y(1, e.columns() ? width : count, e.columns() ? count : width);
  linear_forward<T>(coefficients.view(0), e.columns() ? a.transposed(0) : a.view(0), {},
                    e.columns() ? y.transposed(0) : y.view(0));
  return y.as_doubles();
}

void compute_mix(Evaluation& e) {
  const Matrix& a = e.operand(0);
  check_whole(e, 0);
  const Index tokens = e.columns() ? a.num_columns : a.num_rows;
  const auto given = static_cast<Index>(e.request.numbers.size());
  if (a.num_heads != 1 || tokens == 0 || given == 0 || given % tokens != 0)
    e.fail(fmt::format("got {} numbers: a combination takes {}, one for each token of {}", given, tokens,
                       e.request.operands[0]));
  const Index count = given / tokens;
  Matrix& m = e.step.result;
  m.num_rows = e.columns() ? a.num_rows : count;
  m.num_columns = e.columns() ? count : a.num_columns;
  m.numbers = e.settings.dtype == ElementType::float32 ? mix<float>(e, count) : mix<double>(e, count);
  const Axis mixes{"", "combination", e.request.labels};
  const Axis dimensions = e.columns() ? e.operands[0].row_axis : e.operands[0].column_axis;
  e.step.row_axis = e.columns() ? dimensions : mixes;
  e.step.column_axis = e.columns() ? mixes : dimensions;
  e.step.equation = fmt::format("{} = coefficients · {}", e.step.symbol, e.request.operands[0]);
}

void compute_join(Evaluation& e) {
  const Matrix& a = e.operand(0);
  Matrix& m = e.step.result;
  m = a;
  m.num_heads = 1;
  m.has_heads = false;
  if (e.columns()) {
    if (!a.kept_rows.empty()) check_whole(e, 0);
    m.num_rows = a.num_heads * a.num_rows;
  } else {
    if (!a.kept_columns.empty()) check_whole(e, 0);
    m.num_columns = a.num_heads * a.num_columns;
    for (Index h = 0; h < a.num_heads; ++h)
      for (Index r = 0; r < a.stored_rows(); ++r)
        for (Index c = 0; c < a.num_columns; ++c)
          m.numbers[m.index(0, r, h * a.num_columns + c)] = a.numbers[a.index(h, r, c)];
  }
  const Axis joined{"H·Dv", "dimension", {}};
  e.step.row_axis = e.columns() ? joined : e.operands[0].row_axis;
  e.step.column_axis = e.columns() ? e.operands[0].column_axis : joined;
  e.step.equation =
      fmt::format("{} = the {} heads of {}, concatenated", e.step.symbol, a.num_heads, e.request.operands[0]);
}

void compute_variances(Evaluation& e) {
  Matrix& m = e.step.result;
  m.num_rows = static_cast<Index>(e.operands.size());
  m.num_columns = 1;
  Axis labels{"", "matrix", e.request.labels};
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    check_whole(e, i);
    if (e.operand(i).numbers.empty()) e.fail(e.request.operands[i] + " is empty");
    m.numbers.push_back(moments(e.operand(i).numbers).variance);
    if (e.request.labels.empty()) labels.labels.push_back(e.request.operands[i]);
  }
  e.step.row_axis = std::move(labels);
  e.step.column_axis = {"", "", {"variance"}};
  e.step.equation = "var(A) = mean of (a − mean)², over all elements of A";
}

constexpr OperationInfo kMatrixOperations[] = {
    {Operation::show, "show", "given", 1, 1, compute_show, expand_show, {.has_example = false}},
    {Operation::linear, "linear", "projection", 2, 3, compute_linear, expand_linear},
    {Operation::product, "product", "product", 2, 2, compute_product, expand_product},
    {Operation::mix, "mix", "combination", 1, 1, compute_mix, expand_mix},
    {Operation::join, "join", "joined heads", 1, 1, compute_join, expand_join},
    {Operation::variances,
     "variances",
     "variances",
     1,
     16,
     compute_variances,
     expand_variances,
     {.ignores_layout = true}},
};

}  // namespace

std::string shape_text(const Matrix& m) {
  return (m.num_heads > 1 ? fmt::format("{} × ", m.num_heads) : "") + fmt::format("{} × {}", m.num_rows, m.num_columns);
}

Moments moments(const std::vector<double>& numbers) {
  const auto count = static_cast<double>(numbers.size());
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / count;
  double squares = 0.0;
  for (double x : numbers) squares += (x - mean) * (x - mean);
  return {mean, squares / count};
}

std::span<const OperationInfo> matrix_operations() { return kMatrixOperations; }

}  // namespace regard::inline v0
