// SPDX-License-Identifier: Apache-2.0
//
// Results that are derived from a trace, for encoders and decoders: weights of a layer, outputs of a head, means of
// rows.
//
// Read next: regard/model/trace.h, trace_views.h.
#include "regard/model/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/pooling.h"
#include "model/trace_mask.h"
#include "model/trace_views.h"
#include "regard/error.h"
#include "regard/linear.h"

namespace regard::inline v0 {
namespace internal {
namespace {

const LayerTrace& existing_layer(const char* operation, const ModelTrace& trace, Index layer) {
  check_index(operation, "layer", layer, static_cast<Index>(trace.layers.size()));
  for (Index key : trace.hidden_keys) check_index(operation, "hidden key", key, static_cast<Index>(trace.ids.size()));
  return trace.layers[static_cast<std::size_t>(layer)];
}

}  // namespace

void check_index(const char* operation, const char* what, Index index, Index count) {
  if (index >= 0 && index < count) return;
  throw InvalidArgument(
      fmt::format("{}: {} {} does not exist; there are {}, numbered from 0", operation, what, index, count));
}

const LayerTrace& checked_layer(const char* operation, const TraceExtents& extents, const ModelTrace& trace,
                                Index layer) {
  const LayerTrace& t = existing_layer(operation, trace, layer);
  const std::array<Index, 3> expected{extents.num_heads, static_cast<Index>(trace.ids.size()), extents.head_size};
  if (static_cast<Index>(trace.layers.size()) != extents.num_layers || t.value.shape() != expected)
    throw InvalidArgument(fmt::format("{}: the trace comes from a different model", operation));
  return t;
}

TensorView<const float, 2> of_head(const Tensor<float, 3>& tensor, Index head) {
  const TensorView<const float, 3> view = tensor.view();
  return {view.pointer(head, 0, 0), {view.shape[1], view.shape[2]}};
}

Tensor<float, 2> through_output(const TensorView<const float, 2>& w_output, Index head, const Tensor<float, 3>& by_head,
                                const Runtime& runtime) {
  const auto [heads, length, head_size] = by_head.shape();
  const TensorView<const float, 2> rows_of_head(w_output.pointer(head * head_size, 0), {head_size, w_output.shape[1]},
                                                w_output.strides);
  Tensor<float, 2> result({length, w_output.shape[1]});
  linear_forward(of_head(by_head, head), rows_of_head, {}, result.view(), runtime);
  return result;
}

std::vector<double> row_norms(const Tensor<float, 2>& rows) {
  const auto [length, width] = rows.shape();
  std::vector<double> norms;
  norms.reserve(static_cast<std::size_t>(length));
  for (Index i = 0; i < length; ++i) {
    norms.push_back(norm_of({rows.data() + i * width, static_cast<std::size_t>(width)}));
  }
  return norms;
}

Tensor<double, 2> value_norms_of(const TensorView<const float, 2>& w_output, const LayerTrace& trace,
                                 const Runtime& runtime) {
  const auto [heads, length, head_size] = trace.value.shape();
  Tensor<double, 2> result({heads, length});
  for (Index head = 0; head < heads; ++head) {
    const std::vector<double> norms = row_norms(through_output(w_output, head, trace.value, runtime));
    std::copy(norms.begin(), norms.end(), result.data() + head * length);
  }
  return result;
}

}  // namespace internal

Tensor<float, 3> trace_weights(const ModelTrace& trace, Index layer, WeightsKind kind, const Runtime& runtime) {
  const LayerTrace& t = internal::existing_layer("trace_weights", trace, layer);
  const auto [heads, length, head_size] = t.query.shape();
  const TraceMask mask(length, trace.hidden_keys, trace.causal);
  Tensor<float, 3> weights({heads, length, length});
  const WeightsRequest request{
      .row_max = one_batch(t.row_max.view()), .row_sum = one_batch(t.row_sum.view()), .rows = {}, .kind = kind};
  attention_weights(one_batch(t.query.view()), one_batch(t.key.view()), request, one_batch(weights.view()),
                    mask.options(), runtime);
  return weights;
}

std::vector<float> mean_rows(const Tensor<float, 2>& states, std::span<const Index> rows) {
  const Index length = states.shape()[0];
  for (Index row : rows) internal::check_index("mean_rows", "row", row, length);
  return internal::mean_of_rows(states, rows);
}

}  // namespace regard::inline v0
