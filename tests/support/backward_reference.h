// SPDX-License-Identifier: Apache-2.0
//
// The backward pass as plain loops over rows, keys and columns, from the formulas of attention_backward.h, based on the
// forward pass of reference.h and in its wider type; and the error bound of each gradient.
//
//   for b, h, i:  delta = Σ context · grad_context − grad_lse
//     for visible j:  dS = p · (grad_context · v_j − delta)
//       grad_value += p · grad_context    grad_query += scale · dS · cap' · k_j    grad_key += scale · dS · cap' · q
//
// Read next: attention_backward_test.cpp.
#pragma once

#include "attention_cases.h"

namespace regard::reference {

template <class T>
struct Gradient {
  std::vector<Wide<T>> value;  // row-major
  std::vector<Wide<T>> size;   // the same sum of magnitudes
  std::vector<Wide<T>> error;  // its error bound
  Wide<T> smallest = 0;        // what every product may lose

  void assign(Index count, Wide<T> lost = Attention<T>::kSmallest) {
    for (auto* numbers : {&value, &size, &error}) numbers->assign(static_cast<std::size_t>(count), 0);
    smallest = lost;
  }
  // relative: the relative error bound of the addend; of_a_weight: the factor of a weight, or of a product with one,
  // each of which may be wrong by the smallest number
  void add(Index at, Wide<T> x, Wide<T> magnitude, Wide<T> relative, Wide<T> of_a_weight = 0) {
    const auto n = static_cast<std::size_t>(at);
    value[n] += x;
    size[n] += magnitude;
    error[n] += magnitude * relative + (16 + std::abs(magnitude) + 2 * of_a_weight) * smallest;
  }
};

template <class T>
struct AttentionBackward {
  Gradient<T> query, key, value, bias, sinks;
};

// bias_shape: extents of (B, H, L, S) or 1. If weights are rounded to bf16 (forward.weight_rounding), the gradients of
// scores are rounded, too, and delta is computed from a context with the error of the forward pass.
template <class T>
AttentionBackward<T> attention_backward(const AttentionCase<T>& call, const Attention<T>& forward,
                                        const Array<T, 4>& grad_context, const Array<T, 3>& grad_lse,
                                        const std::array<Index, 4>& bias_shape) {
  using W = Wide<T>;
  constexpr W kInfinity = std::numeric_limits<W>::infinity();
  const auto [B, H, L, S] = std::array{forward.B, forward.H, forward.L, forward.S};
  const auto [D, Dv] = std::array{forward.D, forward.Dv};
  const Index Hkv = call.Hkv();
  AttentionBackward<T> result;
  result.query.assign(B * H * L * D, forward.smallest);
  result.key.assign(B * Hkv * S * D, forward.smallest);
  result.value.assign(B * Hkv * S * Dv, forward.smallest);
  result.bias.assign(bias_shape[0] * bias_shape[1] * bias_shape[2] * bias_shape[3], forward.smallest);
  result.sinks.assign(H, forward.smallest);
  const W scale = call.options.scale ? static_cast<W>(*call.options.scale) : 1 / std::sqrt(static_cast<W>(D));
  for (const Span& span : spans(B, L, S, call.options)) {
    const Index b = span.batch;
    for (Index h = 0; h < H; ++h) {
      const Index kv = h / (H / Hkv);
      for (Index i = span.first_query; i < span.first_query + span.num_queries; ++i) {
        const Index r = forward.row(b, h, i);
        const W relative = 2 * forward.relative_bound(r) + 64 * kUnit<T>;
        const W once = relative + forward.weight_rounding;
        const W twice = once + forward.weight_rounding * (1 + once);
        W delta = -static_cast<W>(grad_lse.get({b, h, i}));
        W delta_size = std::abs(delta);
        for (Index c = 0; c < Dv; ++c) {
          const W g = grad_context.get({b, h, i, c});
          delta += g * forward.context[static_cast<std::size_t>(r * Dv + c)];
          delta_size += std::abs(g) * forward.magnitude[static_cast<std::size_t>(r * Dv + c)];
        }
        if (!call.sinks.empty() && call.sinks[static_cast<std::size_t>(h)] > -kInfinity) {
          const W p = forward.sink_weight[static_cast<std::size_t>(r)];
          result.sinks.add(h, -p * delta, p * delta_size, once, delta_size);
        }
        for (Index j = span.first_key; j < span.first_key + span.num_keys; ++j) {
          const auto at = static_cast<std::size_t>(r * S + j);
          if (forward.scores[at] == -kInfinity) continue;
          const W p = forward.weights[at];
          W dp = 0, dp_size = 0, dot = 0;
          for (Index c = 0; c < Dv; ++c) {
            const W g = grad_context.get({b, h, i, c}), v = call.value.get({b, kv, j, c});
            dp += g * v;
            dp_size += std::abs(g * v);
            result.value.add(((b * Hkv + kv) * S + j) * Dv + c, p * g, std::abs(p * g), once, std::abs(g));
          }
          const W ds = p * (dp - delta), ds_size = p * (dp_size + delta_size);
          const auto place = [](Index extent, Index n) { return extent == 1 ? 0 : n; };
          if (!result.bias.value.empty()) {
            result.bias.add(((place(bias_shape[0], b) * bias_shape[1] + place(bias_shape[1], h)) * bias_shape[2] +
                             place(bias_shape[2], i)) *
                                    bias_shape[3] +
                                place(bias_shape[3], j),
                            ds, ds_size, once, dp_size + delta_size);
          }
          W factor = scale;
          W cap_error = 0;
          if (call.options.soft_cap) {
            for (Index d = 0; d < D; ++d)
              dot += static_cast<W>(call.query.get({b, h, i, d})) * static_cast<W>(call.key.get({b, kv, j, d}));
            const W t = std::tanh(in_range<T>(in_range<T>(dot) * scale) / static_cast<W>(*call.options.soft_cap));
            factor *= 1 - t * t;
            cap_error = std::abs(scale) * relative;
          }
          for (Index d = 0; d < D; ++d) {
            const W q = call.query.get({b, h, i, d}), k = call.key.get({b, kv, j, d});
            const W of_a_weight = (dp_size + delta_size) * std::abs(factor) + std::abs(scale) + 1;
            result.query.add(r * D + d, ds * factor * k, ds_size * std::abs(factor * k), twice,
                             of_a_weight * std::abs(k));
            result.query.error[static_cast<std::size_t>(r * D + d)] += ds_size * cap_error * std::abs(k);
            const Index key = ((b * Hkv + kv) * S + j) * D + d;
            result.key.add(key, ds * factor * q, ds_size * std::abs(factor * q), twice, of_a_weight * std::abs(q));
            result.key.error[static_cast<std::size_t>(key)] += ds_size * cap_error * std::abs(q);
          }
        }
      }
    }
  }
  return result;
}

// Compiled in reference.cpp.
extern template AttentionBackward<float> attention_backward(const AttentionCase<float>&, const Attention<float>&,
                                                            const Array<float, 4>&, const Array<float, 3>&,
                                                            const std::array<Index, 4>&);
extern template AttentionBackward<double> attention_backward(const AttentionCase<double>&, const Attention<double>&,
                                                             const Array<double, 4>&, const Array<double, 3>&,
                                                             const std::array<Index, 4>&);

}  // namespace regard::reference
