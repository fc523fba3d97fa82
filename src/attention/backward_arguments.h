// SPDX-License-Identifier: Apache-2.0
//
// What attention_backward asks of its arguments beside those of the forward call: all that the forward pass saved, and
// where gradients go. Read next: arguments.h.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "arguments.h"
#include "bias_tile.h"
#include "regard/attention_backward.h"

namespace regard {
inline namespace v0 {
namespace internal {

inline constexpr const char* kBackwardName = "attention_backward";

template <class View>
void expect_rows(const char* name, const View& view, const std::array<Index, 4>& expected, Footprints& inputs) {
  const bool empty = std::ranges::find(expected, 0) != expected.end();
  if (view.absent() && empty) return;
  if (view.absent()) reject(kBackwardName, std::string(name) + " is missing; expected " + shape_text(expected));
  if (view.shape != expected)
    reject(kBackwardName,
           std::string(name) + " has shape " + shape_text(view.shape) + "; expected " + shape_text(expected));
  inputs.push_back(footprint(kBackwardName, name, view));
}

template <class T>
Footprints check_saved(const AttentionCall<T>& call, const ResolvedAttention<T>& r,
                       const AttentionForwardState<T>& saved, Footprints inputs) {
  const std::array<Index, 4> context{r.batch, r.num_heads, r.num_queries, r.value_head_size};
  expect_rows("context", saved.context, context, inputs);
  check_softmax_state(call.name, r, r.batch * r.num_heads * r.num_queries != 0, saved.row_max, saved.row_sum, inputs);
  expect_rows("grad_context", saved.grad_context, context, inputs);
  if (!saved.grad_lse.absent()) {
    expect_shape(call.name, "grad_lse", saved.grad_lse, {r.batch, r.num_heads, r.num_queries});
    inputs.push_back(footprint(call.name, "grad_lse", saved.grad_lse));
  }
  return inputs;
}

template <class T, class G>
void check_gradients(const ResolvedAttention<T>& r, const AttentionGradients<G>& g, std::span<const Footprint> inputs) {
  constexpr ElementType kType = kElementType<G>;
  if (kType != kElementType<T> && kType != r.query.type) {
    reject(kBackwardName, std::string("query has type ") + type_name(r.query.type) + "; expected " + type_name(kType) +
                              ", the type of its gradient");
  }
  Footprints written;
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(kBackwardName, name, view, shape);
    if (!view.absent()) written.push_back(footprint(kBackwardName, name, view));
  };
  check("grad_query", g.grad_query, r.query.shape);
  check("grad_key", g.grad_key, r.key.shape);
  check("grad_value", g.grad_value, r.value.shape);
  if (!g.grad_bias.absent()) {
    const std::array<Index, 4> full{r.batch, r.num_heads, r.num_queries, r.num_keys};
    if (!has_bias(r)) reject(kBackwardName, "grad_bias is given and bias is not; expected both");
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (g.grad_bias.shape[axis] == full[axis] || g.grad_bias.shape[axis] == 1) continue;
      reject(kBackwardName, "grad_bias has shape " + shape_text(g.grad_bias.shape) +
                                "; expected a shape that broadcasts to " + shape_text(full));
    }
    written.push_back(footprint(kBackwardName, "grad_bias", g.grad_bias));
  }
  if (!g.grad_sinks.absent()) {
    if (r.sinks.empty()) reject(kBackwardName, "grad_sinks is given and sinks are not; expected both");
    check("grad_sinks", g.grad_sinks, std::array<Index, 1>{r.num_heads});
  }
  check_overlap(kBackwardName, inputs, written);
}

}  // namespace internal
}  // namespace v0
}  // namespace regard
