// SPDX-License-Identifier: Apache-2.0
//
// The arguments of attention_backward beyond those of the forward call: the state saved by the forward pass, and the
// gradients to write.
// Read next: arguments.h.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "arguments.h"
#include "bias_tile.h"
#include "regard/attention_backward.h"

namespace regard::inline v0::internal {

inline constexpr const char* kBackwardName = "attention_backward";

// AttentionForwardState with views of T.
template <class T>
struct TypedForwardState {
  InputView<4> context;
  TensorView<const T, 3> row_max, row_sum;
  InputView<4> grad_context;
  TensorView<const T, 3> grad_lse;

  explicit TypedForwardState(const AttentionForwardState& s)
      : context(s.context),
        row_max(typed<T>(kBackwardName, "row_max", s.row_max)),
        row_sum(typed<T>(kBackwardName, "row_sum", s.row_sum)),
        grad_context(s.grad_context),
        grad_lse(typed<T>(kBackwardName, "grad_lse", s.grad_lse)) {}
};

// AttentionGradients with their types checked: query, key and value have one common type, bias and sinks have type T.
template <class T>
struct TypedGradients {
  OutputView<4> query, key, value;
  TensorView<T, 4> bias;
  TensorView<T, 1> sinks;
  AttentionAccumulation accumulate;

  explicit TypedGradients(const AttentionGradients& g)
      : query(g.grad_query),
        key(g.grad_key),
        value(g.grad_value),
        bias(typed<T>(kBackwardName, "grad_bias", g.grad_bias)),
        sinks(typed<T>(kBackwardName, "grad_sinks", g.grad_sinks)),
        accumulate(g.accumulate) {}

  // The type of the gradients of query, key and value; T if none is requested.
  ElementType type() const {
    for (const OutputView<4>* view : {&query, &key, &value}) {
      if (!view->absent()) return view->type;
    }
    return kElementType<T>;
  }
};

template <class T>
void expect_rows(const char* name, const InputView<4>& view, const std::array<Index, 4>& expected, Footprints& inputs) {
  const bool empty = std::ranges::find(expected, 0) != expected.end();
  if (view.absent() && empty) return;
  if (view.absent()) reject(kBackwardName, std::string(name) + " is missing; expected " + shape_text(expected));
  if (view.shape != expected)
    reject(kBackwardName,
           std::string(name) + " has shape " + shape_text(view.shape) + "; expected " + shape_text(expected));
  inputs.push_back(number_footprint<T>(kBackwardName, name, view));
}

template <class T>
Footprints check_saved(const AttentionCall& call, const ResolvedAttention<T>& r, const TypedForwardState<T>& saved,
                       Footprints inputs) {
  const std::array<Index, 4> context{r.batch, r.num_heads, r.num_queries, r.value_head_size};
  expect_rows<T>("context", saved.context, context, inputs);
  check_softmax_state(call.name, r, r.batch * r.num_heads * r.num_queries != 0, saved.row_max, saved.row_sum, inputs);
  expect_rows<T>("grad_context", saved.grad_context, context, inputs);
  if (!saved.grad_lse.absent()) {
    expect_shape(call.name, "grad_lse", saved.grad_lse, {r.batch, r.num_heads, r.num_queries});
    inputs.push_back(footprint(call.name, "grad_lse", saved.grad_lse));
  }
  return inputs;
}

template <class T>
void check_gradients(const ResolvedAttention<T>& r, const TypedGradients<T>& g, std::span<const Footprint> inputs) {
  const ElementType type = g.type();
  for (const auto& [name, view] : {std::pair{"grad_query", &g.query}, {"grad_key", &g.key}, {"grad_value", &g.value}}) {
    if (view->absent()) continue;
    const bool allowed = type == kElementType<T> || type == r.query.type;
    if (allowed && view->type == type) continue;
    reject(kBackwardName, std::string(name) + " has type " + element_type_text(view->type) + "; expected " +
                              (allowed ? type_name(type) + std::string(" like the other gradients")
                                       : own_or_query(kElementType<T>, r.query.type)));
  }
  Footprints written;
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(kBackwardName, name, view, shape);
    if (!view.absent()) written.push_back(footprint(kBackwardName, name, view));
  };
  check("grad_query", g.query, r.query.shape);
  check("grad_key", g.key, r.key.shape);
  check("grad_value", g.value, r.value.shape);
  if (!g.bias.absent()) {
    const std::array<Index, 4> full{r.batch, r.num_heads, r.num_queries, r.num_keys};
    if (!has_bias(r)) reject(kBackwardName, "grad_bias is given without bias; expected both");
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (g.bias.shape[axis] == full[axis] || g.bias.shape[axis] == 1) continue;
      reject(kBackwardName, "grad_bias has shape " + shape_text(g.bias.shape) +
                                "; expected a shape that broadcasts to " + shape_text(full));
    }
    written.push_back(footprint(kBackwardName, "grad_bias", g.bias));
  }
  if (!g.sinks.absent()) {
    if (r.sinks.empty()) reject(kBackwardName, "grad_sinks is given without sinks; expected both");
    check("grad_sinks", g.sinks, std::array<Index, 1>{r.num_heads});
  }
  check_overlap(kBackwardName, inputs, written);
}

}  // namespace regard::inline v0::internal
