// SPDX-License-Identifier: Apache-2.0
//
// The steps of attention itself, each a single call to the library:
//
//     scores    attention_weights(kind = scores, scale = 1)          masked    likewise, causal
//     scaled    attention_weights(kind = scores, scale)              mask      which keys are hidden
//     weights   attention_forward, outputs.weights                   context   attention_forward, outputs.context
//
// A step computes from query and key, not from the previous step, so its numbers are those of one library call. For a
// large matrix, only chosen queries are computed, in contiguous ranges. In layout "columns" the matrices are
// transposed, which only changes strides.
// Read next: operations_matrix.cpp, steps_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expansion.h"
#include "explain/report/terminal.h"
#include "matrix_buffer.h"
#include "operations.h"
#include "regard/attention.h"

namespace regard::inline v0 {
namespace {

struct Extents {
  Index heads, key_heads, queries, keys, head_size;
};

Index num_tokens(const Evaluation& e, const Matrix& m) { return e.columns() ? m.num_columns : m.num_rows; }
Index num_dimensions(const Evaluation& e, const Matrix& m) { return e.columns() ? m.num_rows : m.num_columns; }
const Axis& token_axis(const Evaluation& e, const Value& v) { return e.columns() ? v.column_axis : v.row_axis; }
const Axis& dimension_axis(const Evaluation& e, const Value& v) { return e.columns() ? v.row_axis : v.column_axis; }

Extents extents(const Evaluation& e) {
  const Matrix& query = e.operand(0);
  const Matrix& key = e.operand(1);
  const Extents x{query.num_heads, key.num_heads, num_tokens(e, query), num_tokens(e, key), num_dimensions(e, query)};
  if (!query.kept_rows.empty() || !query.kept_columns.empty() || !key.kept_rows.empty() || !key.kept_columns.empty())
    e.fail(fmt::format("{} and {} must be whole matrices", e.request.operands[0], e.request.operands[1]));
  if (num_dimensions(e, key) != x.head_size)
    e.fail(fmt::format("{} is {} and {} is {}: queries and keys must have the same head size", e.request.operands[0],
                       shape_text(query), e.request.operands[1], shape_text(key)));
  if (x.heads % x.key_heads != 0)
    e.fail(fmt::format("{} has {} heads and {} has {}: the second number must divide the first", e.request.operands[0],
                       x.heads, e.request.operands[1], x.key_heads));
  return x;
}

const Scale& scale_rule(const Evaluation& e) { return e.request.scale ? *e.request.scale : e.settings.scale; }
const Causal& causal_rule(const Evaluation& e) { return e.request.causal ? *e.request.causal : e.settings.causal; }

double scale_factor(const Evaluation& e, const Extents& x) {
  const Scale& scale = scale_rule(e);
  switch (scale.rule) {
    case ScaleRule::none:
      return 1.0;
    case ScaleRule::number:
      return scale.number;
    case ScaleRule::sqrt:
      return 1.0 / std::sqrt(static_cast<double>(x.head_size));
    case ScaleRule::floor_half:
      break;
  }
  e.fail("scale floor_half is not a factor; use the operation floor_half");
}

std::string scale_text(const Evaluation& e, const Extents& x, const std::string& scores) {
  const Scale& scale = scale_rule(e);
  if (scale.rule == ScaleRule::none) return scores;
  if (scale.rule == ScaleRule::sqrt) return fmt::format("{} / √{}", scores, x.head_size);
  return fmt::format("{} · {}", shown_number(scale.number, ElementType::float64), scores);
}

Index causal_offset(const Evaluation& e, const Extents& x) {
  const Causal& causal = causal_rule(e);
  switch (causal.rule) {
    case CausalRule::bottom_right:
      return x.keys - x.queries;
    case CausalRule::number:
      return causal.offset;
    case CausalRule::off:
    case CausalRule::top_left:
      break;
  }
  return 0;
}

// Which queries are computed: empty for all of them.
std::vector<Index> kept_queries(const Evaluation& e, const Extents& x) {
  constexpr Index kEnds = 8;
  const auto cells = static_cast<double>(x.heads) * static_cast<double>(x.queries) * static_cast<double>(x.keys);
  if (cells <= static_cast<double>(kMaxKeptElements) || x.queries <= 4 * kEnds) return {};
  if (e.keep.all) {
    // The memory of the weights and of the scores behind them.
    const double needed = cells * 2.0 * sizeof(double);
    const auto available = static_cast<double>(available_memory_bytes());
    if (needed > available)
      e.fail(
          fmt::format("{} × {} × {} numbers need {:.1f} GiB, but {:.1f} GiB are available; without --full, "
                      "only some rows are computed",
                      x.heads, x.queries, x.keys, needed / 0x1p30, available / 0x1p30));
    return {};
  }
  std::vector<Index> kept;
  for (Index i = 0; i < kEnds; ++i) {
    kept.push_back(i);
    kept.push_back(x.queries - 1 - i);
  }
  for (Index i : e.keep.also)
    if (i >= 0 && i < x.queries) kept.push_back(i);
  if (e.focus && *e.focus < x.queries) kept.push_back(*e.focus);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::vector<RowRange> ranges_of(const std::vector<Index>& kept, Index count) {
  if (kept.empty()) return {{0, count}};
  std::vector<RowRange> ranges;
  for (Index i : kept) {
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

// A (1, heads, tokens, dimensions) view, as the library takes it, of a matrix in the layout shown.
template <class T>
TensorView<T, 4> attention_view(const Evaluation& e, Buffer<T>& buffer, Index first_token, Index num) {
  const Index head_stride = buffer.rows * buffer.columns;
  if (e.columns())
    return {
        buffer.numbers.data() + first_token, {1, buffer.heads, num, buffer.rows}, {0, head_stride, 1, buffer.columns}};
  return {buffer.numbers.data() + first_token * buffer.columns,
          {1, buffer.heads, num, buffer.columns},
          {0, head_stride, buffer.columns, 1}};
}

enum class Wanted { scores, weights, context };

// Computes range after range into a result in the layout shown: tokens of the query by keys (or by dimensions).
template <class T>
void attend(Evaluation& e, const Extents& x, Wanted wanted, double factor, bool causal, Matrix& result, Matrix* row_max,
            Matrix* row_sum) {
  Buffer<T> query(e.operand(0));
  Buffer<T> key(e.operand(1));
  Buffer<T> value;
  Index width = x.keys;
  if (wanted == Wanted::context) {
    value = Buffer<T>(e.operand(2));
    width = num_dimensions(e, e.operand(2));
  }
  const std::vector<Index> kept = kept_queries(e, x);
  const Index stored = kept.empty() ? x.queries : static_cast<Index>(kept.size());
  Buffer<T> output(x.heads, e.columns() ? width : stored, e.columns() ? stored : width);
  Buffer<T> maxima(x.heads, stored, 1);
  Buffer<T> row_sums(x.heads, stored, 1);

  const Index offset = causal_offset(e, x);
  const TensorView<const T, 4> keys = attention_view(e, key, 0, x.keys);
  Index stored_first = 0;
  for (const RowRange& range : ranges_of(kept, x.queries)) {
    const Index count = range.end - range.begin;
    AttentionOptions options;
    options.scale = factor;
    options.causal = causal;
    if (causal) options.query_offset = offset + range.begin;
    const TensorView<const T, 4> queries = attention_view(e, query, range.begin, count);
    const TensorView<T, 4> out = attention_view(e, output, stored_first, count);
    if (wanted == Wanted::scores) {
      attention_weights(queries, keys, WeightsRequest{.kind = WeightsKind::scores}, out, options);
    } else {
      AttentionOutputs outputs;
      outputs.row_max = {maxima.numbers.data() + stored_first, {1, x.heads, count}, {0, stored, 1}};
      outputs.row_sum = {row_sums.numbers.data() + stored_first, {1, x.heads, count}, {0, stored, 1}};
      // The library always computes the context; if only weights are wanted, the values are zeros.
      std::vector<T> zeros;
      std::vector<T> unused;
      if (wanted == Wanted::context) {
        outputs.context = out;
        attention_forward(queries, keys, attention_view(e, value, 0, x.keys), outputs, options);
      } else {
        zeros.assign(static_cast<std::size_t>(std::max<Index>(x.keys, 1)), T{0});
        unused.assign(static_cast<std::size_t>(x.heads * count), T{0});
        outputs.context = {unused.data(), {1, x.heads, count, 1}};
        outputs.weights = out;
        attention_forward(queries, keys,
                          TensorView<const T, 4>(zeros.data(), {1, x.key_heads, x.keys, 1}, {0, 0, 1, 1}), outputs,
                          options);
      }
    }
    stored_first += count;
  }
  result.num_heads = x.heads;
  result.has_heads = e.operand(0).has_heads;
  result.num_rows = e.columns() ? width : x.queries;
  result.num_columns = e.columns() ? x.queries : width;
  (e.columns() ? result.kept_columns : result.kept_rows) = kept;
  result.numbers = output.as_doubles();
  for (auto [target, source] : {std::pair{row_max, &maxima}, std::pair{row_sum, &row_sums}}) {
    if (target == nullptr) continue;
    *target = Matrix{.num_heads = x.heads, .num_rows = x.queries, .num_columns = 1, .numbers = source->as_doubles()};
    target->kept_rows = kept;
  }
}

void hide_unseen(const Evaluation& e, const Extents& x, Matrix& m) {
  const Index offset = causal_offset(e, x);
  m.hidden.assign(m.numbers.size(), 0);
  for (Index h = 0; h < m.num_heads; ++h) {
    for (Index r = 0; r < m.stored_rows(); ++r) {
      for (Index c = 0; c < m.stored_columns(); ++c) {
        const Index row = m.kept_rows.empty() ? r : m.kept_rows[static_cast<std::size_t>(r)];
        const Index column = m.kept_columns.empty() ? c : m.kept_columns[static_cast<std::size_t>(c)];
        const Index i = e.columns() ? column : row;
        const Index j = e.columns() ? row : column;
        m.hidden[m.index(h, r, c)] = j > i + offset;
      }
    }
  }
}

// Scores, scaled scores, masked scores or weights of the operands; row_max and row_sum only with weights.
Matrix attend(Evaluation& e, const Extents& x, Wanted wanted, double factor, bool causal, Matrix* row_max = nullptr,
              Matrix* row_sum = nullptr) {
  Matrix result;
  if (e.settings.dtype == ElementType::float32) {
    attend<float>(e, x, wanted, factor, causal, result, row_max, row_sum);
  } else {
    attend<double>(e, x, wanted, factor, causal, result, row_max, row_sum);
  }
  if (causal && wanted != Wanted::context) hide_unseen(e, x, result);
  return result;
}

// The previous step that computed `operation` of the same query and key with the same settings; a scale or mask that
// the operation does not use counts as equal.
const Step* step_before(const Evaluation& e, Operation operation, bool with_scale, bool with_causal) {
  for (auto step = e.previous.rbegin(); step != e.previous.rend(); ++step) {
    const StepRequest& r = step->request;
    if (r.operation != operation || r.operands[0] != e.request.operands[0] || r.operands[1] != e.request.operands[1])
      continue;
    if (with_scale && !((r.scale ? *r.scale : e.settings.scale) == scale_rule(e))) continue;
    if (with_causal && !((r.causal ? *r.causal : e.settings.causal) == causal_rule(e))) continue;
    return &*step;
  }
  return nullptr;
}

std::string product_text(const Evaluation& e) {
  const std::string& query = e.request.operands[0];
  const std::string& key = e.request.operands[1];
  return e.columns() ? key + "ᵀ · " + query : query + " · " + key + "ᵀ";
}

void label_scores(Evaluation& e) {
  const Axis query{"L", "query", token_axis(e, e.operands[0]).labels};
  const Axis key{"S", "key", token_axis(e, e.operands[1]).labels};
  e.step.row_axis = e.columns() ? key : query;
  e.step.column_axis = e.columns() ? query : key;
}

// The symbol (or formula) of the unmasked and of the masked scores, and their step if there is one.
struct Origin {
  std::string text;
  const Step* step;
};
Origin scores_origin(const Evaluation& e) {
  if (const Step* step = step_before(e, Operation::scores, false, false)) return {step->symbol, step};
  return {product_text(e), nullptr};
}
Origin scaled_origin(const Evaluation& e, const Extents& x) {
  if (const Step* step = step_before(e, Operation::scaled, true, false)) return {step->symbol, step};
  Origin scores = scores_origin(e);
  if (scale_rule(e).rule == ScaleRule::none) return scores;
  return {scale_text(e, x, scores.text), nullptr};
}
Origin masked_origin(const Evaluation& e, const Extents& x) {
  if (causal_rule(e).rule == CausalRule::off) return scaled_origin(e, x);
  if (const Step* step = step_before(e, Operation::masked, true, true)) return {step->symbol, step};
  return {fmt::format("masked {}", scaled_origin(e, x).text), nullptr};
}

void add_operand(Step& step, const std::string& name, Matrix matrix) {
  step.operands.push_back({name, std::make_shared<const Matrix>(std::move(matrix))});
}

void compute_scores(Evaluation& e) {
  const Extents x = extents(e);
  e.step.result = attend(e, x, Wanted::scores, 1.0, false);
  label_scores(e);
  e.step.equation = fmt::format("{} = {}", e.step.symbol, product_text(e));
}

void compute_scaled(Evaluation& e) {
  const Extents x = extents(e);
  e.step.factor = scale_factor(e, x);
  e.step.result = attend(e, x, Wanted::scores, e.step.factor, false);
  label_scores(e);
  const Origin origin = scores_origin(e);
  e.step.equation = fmt::format("{} = {}", e.step.symbol, scale_text(e, x, origin.text));
  e.step.operands.clear();
  add_operand(e.step, origin.text, origin.step ? origin.step->result : attend(e, x, Wanted::scores, 1.0, false));
}

std::string visible_text(const Evaluation& e, const Extents& x) {
  if (causal_rule(e).rule == CausalRule::off) return "every key is visible";
  const Index offset = causal_offset(e, x);
  if (offset == 0) return "key ≤ query";
  return fmt::format("key ≤ query {} {}", offset < 0 ? "−" : "+", offset < 0 ? -offset : offset);
}

void compute_mask(Evaluation& e) {
  const Extents x = extents(e);
  Extents one = x;
  one.heads = 1;
  const std::vector<Index> kept = kept_queries(e, one);
  Matrix& m = e.step.result;
  m.num_rows = e.columns() ? x.keys : x.queries;
  m.num_columns = e.columns() ? x.queries : x.keys;
  (e.columns() ? m.kept_columns : m.kept_rows) = kept;
  m.numbers.assign(static_cast<std::size_t>(m.stored_rows() * m.stored_columns()), 0.0);
  if (causal_rule(e).rule != CausalRule::off) {
    hide_unseen(e, x, m);
    for (std::size_t i = 0; i < m.numbers.size(); ++i)
      if (m.hidden[i] != 0) m.numbers[i] = -std::numeric_limits<double>::infinity();
    // This step shows the numbers that are added, not the keys that they hide.
    m.hidden.clear();
  }
  label_scores(e);
  e.step.causal_offset = causal_offset(e, x);
  e.step.equation = fmt::format("{} = 0 where {}, else −∞", e.step.symbol, visible_text(e, x));
}

void compute_masked(Evaluation& e) {
  const Extents x = extents(e);
  e.step.factor = scale_factor(e, x);
  e.step.causal_offset = causal_offset(e, x);
  e.step.result = attend(e, x, Wanted::scores, e.step.factor, causal_rule(e).rule != CausalRule::off);
  label_scores(e);
  const Origin origin = scaled_origin(e, x);
  e.step.equation = fmt::format("{} = {} where {}, else −∞", e.step.symbol, origin.text, visible_text(e, x));
  e.step.operands.clear();
  add_operand(e.step, origin.text,
              origin.step ? origin.step->result : attend(e, x, Wanted::scores, e.step.factor, false));
}

void compute_weights(Evaluation& e) {
  const Extents x = extents(e);
  const bool causal = causal_rule(e).rule != CausalRule::off;
  e.step.factor = scale_factor(e, x);
  e.step.causal_offset = causal_offset(e, x);
  Matrix row_max;
  Matrix row_sum;
  e.step.result = attend(e, x, Wanted::weights, e.step.factor, causal, &row_max, &row_sum);
  label_scores(e);
  e.step.sums_to_one = e.columns() ? SumAxis::column : SumAxis::row;
  const Origin origin = masked_origin(e, x);
  e.step.equation =
      fmt::format("{0} = softmax({1}), {2} by {2}", e.step.symbol, origin.text, e.columns() ? "column" : "row");
  e.step.operands.clear();
  add_operand(e.step, origin.text,
              origin.step ? origin.step->result : attend(e, x, Wanted::scores, e.step.factor, causal));
  add_operand(e.step, "row_max", std::move(row_max));
  add_operand(e.step, "row_sum", std::move(row_sum));
}

void compute_context(Evaluation& e) {
  const Extents x = extents(e);
  const Matrix& value = e.operand(2);
  if (num_tokens(e, value) != x.keys || value.num_heads != x.key_heads || !value.kept_rows.empty() ||
      !value.kept_columns.empty())
    e.fail(fmt::format("{} is {} and {} is {}: they must have the same number of tokens and heads",
                       e.request.operands[1], shape_text(e.operand(1)), e.request.operands[2], shape_text(value)));
  const bool causal = causal_rule(e).rule != CausalRule::off;
  e.step.factor = scale_factor(e, x);
  e.step.causal_offset = causal_offset(e, x);
  e.step.result = attend(e, x, Wanted::context, e.step.factor, causal);
  const Step* weights = step_before(e, Operation::weights, true, true);
  const std::string name = weights ? weights->symbol : fmt::format("softmax({})", masked_origin(e, x).text);
  const std::string& v = e.request.operands[2];
  e.step.equation = e.columns() ? fmt::format("{} = {} · {}", e.step.symbol, v, name)
                                : fmt::format("{} = {} · {}", e.step.symbol, name, v);
  const Axis query{"L", "query", token_axis(e, e.operands[0]).labels};
  const Axis dimension{"Dv", "dimension", dimension_axis(e, e.operands[2]).labels};
  e.step.row_axis = e.columns() ? dimension : query;
  e.step.column_axis = e.columns() ? query : dimension;
  const Value values = e.operands[2];
  e.step.operands.clear();
  add_operand(e.step, name, weights ? weights->result : attend(e, x, Wanted::weights, e.step.factor, causal));
  e.step.operands.push_back({v, values.matrix});
}

constexpr OperationInfo kAttentionOperations[] = {
    {Operation::scores, "scores", "attention scores", 2, 2, compute_scores, expand_scores},
    {Operation::scaled, "scaled", "scaled scores", 2, 2, compute_scaled, expand_scaled},
    {Operation::mask, "mask", "mask", 2, 2, compute_mask, expand_mask, {.has_example = false}},
    {Operation::masked, "masked", "masked scores", 2, 2, compute_masked, expand_masked, {.has_example = false}},
    {Operation::weights, "weights", "attention weights", 2, 2, compute_weights, expand_weights},
    {Operation::context, "context", "context", 3, 3, compute_context, expand_context},
};

}  // namespace

std::span<const OperationInfo> attention_operations() { return kAttentionOperations; }

}  // namespace regard::inline v0
