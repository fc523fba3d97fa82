// SPDX-License-Identifier: Apache-2.0
//
// Every operator as plain loops over one row, one key and one column at a time, straight from the formulas of
// docs/reference/semantics.md, in a wider type than the library computes in: double for float, long double for double.
//
//   for b, h, i:   scores_j = soft_cap(scale · q · k_j) + ALiBi + bias, −∞ where invisible
//                  m = max(scores, sink)    l = Σ exp(scores − m) + exp(sink − m)
//                  context = Σ exp(scores − m) · v / l
//
// Each result comes with the quantity in which docs/reference/semantics.md section 4 measures errors: Σ p |v| per
// element, and per row max_j(|scale| Σ |q k| + |bias| + |slope · distance|).
// Read next: reference_test.cpp, attention_cases.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "regard/attention.h"

namespace regard::reference {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

// u: half the distance from 1 to the next number of type T.
template <class T>
inline constexpr Wide<T> kUnit = static_cast<Wide<T>>(std::numeric_limits<T>::epsilon()) / 2;

// An element of a view that may be misaligned.
template <class T, int Rank, class... I>
std::remove_const_t<T> read(const TensorView<T, Rank>& view, I... index) {
  Index offset = 0;
  std::size_t axis = 0;
  ((offset += static_cast<Index>(index) * view.strides[axis++]), ...);
  std::remove_const_t<T> x;
  std::memcpy(static_cast<void*>(&x), reinterpret_cast<const char*>(view.data) + offset * Index{sizeof(T)}, sizeof x);
  return x;
}

// An element as T; along an axis of extent 1, the index is ignored.
template <class T, class... I>
T read_broadcast(const InputView<4>& view, I... index) {
  std::size_t axis = 0;
  std::array<Index, 4> at{static_cast<Index>(index)...};
  for (Index& i : at) i = view.shape[axis++] == 1 ? 0 : i;
  return view.template at<T>(at[0], at[1], at[2], at[3]);
}

// A batch entry or packed sequence: its rows, its keys, and its per-sequence options.
struct Span {
  Index batch, first_query, num_queries, first_key, num_keys, key_length, offset, prefix;
};

inline std::vector<Span> spans(Index B, Index L, Index S, const AttentionOptions& options) {
  std::vector<Span> result;
  if (options.query_starts.empty()) {
    for (Index b = 0; b < B; ++b) result.push_back({b, 0, L, 0, S, S, 0, 0});
  } else {
    const auto query = [&](Index n) { return options.query_starts.at<Index>(n); };
    const auto key = [&](Index n) { return options.key_starts.at<Index>(n); };
    for (Index n = 0; n + 1 < options.query_starts.shape[0]; ++n) {
      const Index keys = key(n + 1) - key(n);
      result.push_back({0, query(n), query(n + 1) - query(n), key(n), keys, keys, 0, 0});
    }
  }
  for (std::size_t n = 0; n < result.size(); ++n) {
    Span& span = result[n];
    if (!options.key_lengths.empty()) span.key_length = options.key_lengths.at<Index>(n);
    if (!options.prefix.empty()) span.prefix = options.prefix.at<Index>(n);
    if (const auto* alignment = std::get_if<QueryAlignment>(&options.query_offset)) {
      span.offset = *alignment == QueryAlignment::bottom_right ? span.key_length - span.num_queries : 0;
    } else if (const auto* number = std::get_if<Index>(&options.query_offset)) {
      span.offset = *number;
    } else if (const auto* numbers = std::get_if<InputView<1>>(&options.query_offset)) {
      span.offset = numbers->at<Index>(n);
    }
  }
  return result;
}

// visible(i, j) of docs/reference/semantics.md section 2; i and j count from the start of the span.
inline bool visible(const AttentionOptions& options, const Span& span, Index h, Index i, Index j) {
  const Index p = i + span.offset;
  if (options.causal && j > p && j >= span.prefix) return false;
  if (options.window.left && p - j > *options.window.left) return false;
  if (options.window.right && j - p > *options.window.right) return false;
  if (j >= span.key_length) return false;
  const Index row = span.first_query + i;
  const Index key = span.first_key + j;
  if (!options.query_segments.absent()) {
    const Index segment = options.query_segments.at<Index>(span.batch, row);
    if (segment < 0 || segment != options.key_segments.at<Index>(span.batch, key)) return false;
  }
  if (!options.block_mask.absent()) {
    const auto [bq, bk] = options.block_size;
    const auto& mask = options.block_mask;
    if (!mask.at<bool>(mask.shape[0] == 1 ? 0 : span.batch, mask.shape[1] == 1 ? 0 : h, row / bq, key / bk))
      return false;
  }
  return options.mask.absent() || read_broadcast<bool>(options.mask, span.batch, h, row, key);
}

template <class T>
struct Attention {
  using W = Wide<T>;
  Index B, H, L, S, D, Dv;
  std::vector<W> context;    // (B, H, L, Dv)
  std::vector<W> magnitude;  // (B, H, L, Dv): Σ p |v|
  std::vector<W> underflow;  // (B, H, L, Dv): Σ (1 + |v|) over the keys that have a score above −∞
  std::vector<W> row_max;    // (B, H, L) and so on
  std::vector<W> row_sum;
  std::vector<W> lse;
  std::vector<W> sink_weight;
  std::vector<W> score_size;  // max_j(|scale| Σ |q k| + |bias| + |slope · distance|)
  std::vector<char> empty;    // (B, H, L): no key has a score above −∞
  std::vector<W> scores;      // (B, H, L, S)
  std::vector<W> weights;     // (B, H, L, S)

  Index row(Index b, Index h, Index i) const { return (b * H + h) * L + i; }

  // The largest errors allowed. Below the smallest normal number, every weight and every product is a multiple of the
  // smallest subnormal one, in any arithmetic: that is the last term, which is negligible otherwise.
  W relative_bound(Index r) const {
    return kUnit<T> * (32 + 4 * std::sqrt(static_cast<W>(D)) * score_size[static_cast<std::size_t>(r)]);
  }
  W context_bound(Index r, Index c) const {
    const std::size_t at = static_cast<std::size_t>(r * Dv + c);
    return (relative_bound(r) + weight_rounding) * magnitude[at] + smallest * (1 + underflow[at]);
  }
  // Half of the context's error: exp(x + d) ≈ exp(x)(1 + d), once in the numerator and once in the denominator.
  W score_bound(Index r) const { return relative_bound(r) / 2 + smallest; }
  W lse_bound(Index r) const { return relative_bound(r) + 2 * kUnit<T> * std::abs(lse[static_cast<std::size_t>(r)]); }
  W weight_bound(Index r, W weight) const { return relative_bound(r) * weight + smallest; }

  static constexpr W kSmallest = std::numeric_limits<T>::denorm_min();
  // Larger if bf16 values are multiplied without conversion (attention_bf16_test.cpp).
  W smallest = kSmallest;
  W weight_rounding = 0;
};

// The result for a value beyond the range of T.
template <class T>
Wide<T> in_range(Wide<T> x) {
  constexpr Wide<T> kLargest = std::numeric_limits<T>::max();
  constexpr Wide<T> kInfinity = std::numeric_limits<Wide<T>>::infinity();
  return x > kLargest ? kInfinity : x < -kLargest ? -kInfinity : x;
}

// Keys and values of one head in the wider type; keys are transposed, so that the loop over keys is the inner one.
template <class T>
struct WideHead {
  std::vector<Wide<T>> keys;    // (D, S)
  std::vector<Wide<T>> values;  // (S, Dv)
};
template <class T>
WideHead<T> widen(TensorView<const T, 4> key, TensorView<const T, 4> value, Index b, Index h) {
  WideHead<T> head;
  const auto [S, D, Dv] = std::array{key.shape[2], key.shape[3], value.shape[3]};
  head.keys.reserve(static_cast<std::size_t>(D * S));
  for (Index d = 0; d < D; ++d) {
    for (Index j = 0; j < S; ++j) head.keys.push_back(read(key, b, h, j, d));
  }
  head.values.reserve(static_cast<std::size_t>(S * Dv));
  for (Index j = 0; j < S; ++j) {
    for (Index c = 0; c < Dv; ++c) head.values.push_back(read(value, b, h, j, c));
  }
  return head;
}

// Writes one row of one head to its position in the result.
template <class T>
void attend_row(TensorView<const T, 4> query, const WideHead<T>& head, const AttentionOptions& options,
                const Span& span, Index h, Index i, Attention<T>& result) {
  using W = Wide<T>;
  constexpr W kInfinity = std::numeric_limits<W>::infinity();
  constexpr W kNaN = std::numeric_limits<W>::quiet_NaN();
  const auto [S, D, Dv] = std::array{result.S, result.D, result.Dv};
  const Index stored_row = span.first_query + i;
  const Index p = i + span.offset;
  const W scale = options.scale ? static_cast<W>(*options.scale) : 1 / std::sqrt(static_cast<W>(D));
  const auto at = static_cast<std::size_t>(result.row(span.batch, h, stored_row));
  W* const scores = result.scores.data() + at * static_cast<std::size_t>(S);
  W* const weights = result.weights.data() + at * static_cast<std::size_t>(S);
  W* const context = result.context.data() + at * static_cast<std::size_t>(Dv);
  W* const magnitude = result.magnitude.data() + at * static_cast<std::size_t>(Dv);
  W* const underflow = result.underflow.data() + at * static_cast<std::size_t>(Dv);

  const std::size_t first_key = static_cast<std::size_t>(span.first_key);
  const std::size_t num_keys = static_cast<std::size_t>(span.num_keys);
  std::vector<W> q;
  for (Index d = 0; d < D; ++d) q.push_back(read(query, span.batch, h, stored_row, d));

  W row_max = -kInfinity;
  W score_size = 0;
  bool nan = false;
  for (std::size_t j = 0; j < num_keys; ++j) {
    const Index key = static_cast<Index>(j);
    if (!visible(options, span, h, i, key)) continue;
    W dot = 0, size = 0;
    const W* k = head.keys.data() + span.first_key + key;
    for (Index d = 0; d < D; ++d) {
      const W product = q[static_cast<std::size_t>(d)] * k[d * S];
      dot += product;
      size += std::abs(product);
    }
    W score = in_range<T>(in_range<T>(dot) * scale);
    W terms = std::abs(scale) * size;
    if (options.soft_cap) {
      const W cap = *options.soft_cap;
      score = cap * std::tanh(score / cap);
    }
    if (!options.alibi_slopes.empty()) {
      const W penalty = options.alibi_slopes.at<W>(h) * static_cast<W>(key > p ? key - p : p - key);
      score = in_range<T>(score - penalty);
      terms += std::abs(penalty);
    }
    if (!options.bias.absent()) {
      const W addend = read_broadcast<W>(options.bias, span.batch, h, stored_row, span.first_key + key);
      score = in_range<T>(score + addend);
      terms += std::abs(addend);
    }
    scores[first_key + j] = score;
    nan = nan || score != score;
    row_max = std::max(row_max, score);
    if (score > -kInfinity && terms < kInfinity) score_size = std::max(score_size, terms);
  }

  result.empty[at] = row_max == -kInfinity && !nan;
  const W sink = options.sinks.empty() ? -kInfinity : options.sinks.at<W>(h);
  row_max = std::max(row_max, sink);
  // Infinite scores compare equal, but the difference of two of them is NaN.
  const auto share = [&](W score) { return score == row_max ? W{1} : std::exp(score - row_max); };
  W row_sum = sink > -kInfinity ? share(sink) : 0;
  for (std::size_t j = first_key; j < first_key + num_keys; ++j) {
    if (scores[j] > -kInfinity) row_sum += share(scores[j]);
  }
  nan = nan || (row_max == kInfinity && row_sum != 1);
  if (nan) row_max = row_sum = kNaN;
  result.row_max[at] = row_max;
  result.row_sum[at] = row_max == -kInfinity ? 0 : row_sum;
  result.lse[at] = row_max == -kInfinity ? row_max : row_max + std::log(row_sum);
  result.sink_weight[at] = sink > -kInfinity ? share(sink) / row_sum : 0;
  result.score_size[at] = score_size;
  if (nan && sink > -kInfinity) result.sink_weight[at] = kNaN;
  std::vector<Index> seen;
  for (Index j = span.first_key; j < span.first_key + span.num_keys; ++j) {
    if (scores[j] == -kInfinity) continue;
    weights[j] = nan ? kNaN : share(scores[j]) / row_sum;
    seen.push_back(j);
  }
  for (Index c = 0; c < Dv; ++c) {
    W sum = 0, size = 0, lost = 0;
    for (const Index j : seen) {
      const W v = head.values[static_cast<std::size_t>(j * Dv + c)];
      sum += weights[j] * v;
      size += weights[j] * std::abs(v);
      lost += 1 + std::abs(v);
    }
    context[c] = sum;
    magnitude[c] = size;
    underflow[c] = lost;
  }
}

// attention_forward, attention_weights and the statistics.
template <class T>
Attention<T> attention(TensorView<const T, 4> query, TensorView<const T, 4> key, TensorView<const T, 4> value,
                       const AttentionOptions& options = {}) {
  using W = Wide<T>;
  Attention<T> result{};
  result.B = query.shape[0];
  result.H = query.shape[1];
  result.L = query.shape[2];
  result.S = key.shape[2];
  result.D = query.shape[3];
  result.Dv = value.shape[3];
  const auto rows = static_cast<std::size_t>(result.B * result.H * result.L);
  for (auto* numbers : {&result.context, &result.magnitude, &result.underflow}) {
    numbers->assign(rows * static_cast<std::size_t>(result.Dv), 0);
  }
  for (auto* numbers : {&result.row_sum, &result.sink_weight, &result.score_size}) numbers->assign(rows, 0);
  result.empty.assign(rows, true);
  for (auto* numbers : {&result.row_max, &result.lse}) numbers->assign(rows, -std::numeric_limits<W>::infinity());
  result.weights.assign(rows * static_cast<std::size_t>(result.S), 0);
  result.scores.assign(rows * static_cast<std::size_t>(result.S), -std::numeric_limits<W>::infinity());
  const Index group = key.shape[1] == 0 ? 1 : result.H / key.shape[1];
  for (const Span& span : spans(result.B, result.L, result.S, options)) {
    for (Index kv = 0; kv < key.shape[1]; ++kv) {
      const WideHead<T> head = widen(key, value, span.batch, kv);
      for (Index h = kv * group; h < (kv + 1) * group; ++h) {
        for (Index i = 0; i < span.num_queries; ++i) attend_row(query, head, options, span, h, i, result);
      }
    }
  }
  return result;
}

// output[r, o] = Σ_i input[r, i] · parameters[i, o] + bias[o], and Σ |input · parameters| + |bias| for each.
template <class T>
struct Linear {
  std::vector<Wide<T>> output;     // (R, O)
  std::vector<Wide<T>> magnitude;  // (R, O)
};
template <class T>
Linear<T> linear(TensorView<const T, 2> input, TensorView<const T, 2> parameters,
                 std::type_identity_t<TensorView<const T, 1>> bias) {
  Linear<T> result;
  for (Index r = 0; r < input.shape[0]; ++r) {
    for (Index o = 0; o < parameters.shape[1]; ++o) {
      Wide<T> sum = bias.absent() ? Wide<T>{0} : static_cast<Wide<T>>(read(bias, o));
      Wide<T> magnitude = std::abs(sum);
      for (Index i = 0; i < input.shape[1]; ++i) {
        const Wide<T> product = static_cast<Wide<T>>(read(input, r, i)) * static_cast<Wide<T>>(read(parameters, i, o));
        sum += product;
        magnitude += std::abs(product);
      }
      result.output.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

// Compiled in reference.cpp.
extern template Attention<float> attention<float>(TensorView<const float, 4>, TensorView<const float, 4>,
                                                  TensorView<const float, 4>, const AttentionOptions&);
extern template Attention<double> attention<double>(TensorView<const double, 4>, TensorView<const double, 4>,
                                                    TensorView<const double, 4>, const AttentionOptions&);
extern template Linear<float> linear<float>(TensorView<const float, 2>, TensorView<const float, 2>,
                                            TensorView<const float, 1>);
extern template Linear<double> linear<double>(TensorView<const double, 2>, TensorView<const double, 2>,
                                              TensorView<const double, 1>);

}  // namespace regard::reference
