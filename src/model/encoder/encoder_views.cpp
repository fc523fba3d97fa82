// SPDX-License-Identifier: Apache-2.0
//
// Results derived from a trace: weights of a layer, outputs of a head, contributions of a key, vectors of words and
// texts.
//
//     head_output  = context(head) · W_output(head)                (L, E)
//     contribution = weight · ‖v_key · W_output(head)‖             since W_output is linear and weights are ≥ 0
//
// Read next: encoder.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "encoder_mask.h"
#include "pooling.h"
#include "regard/error.h"
#include "regard/linear.h"
#include "regard/model/encoder.h"

namespace regard::inline v0 {
namespace {

// Checks a caller's layer or head index.
void check_index(const char* operation, const char* what, Index index, Index count) {
  if (index >= 0 && index < count) return;
  throw InvalidArgument(
      fmt::format("{}: {} {} does not exist; there are {}, counted from 0", operation, what, index, count));
}

const LayerTrace& layer_of(const char* operation, const EncoderTrace& trace, Index layer) {
  check_index(operation, "layer", layer, static_cast<Index>(trace.layers.size()));
  for (Index key : trace.hidden_keys) check_index(operation, "hidden key", key, static_cast<Index>(trace.ids.size()));
  return trace.layers[static_cast<std::size_t>(layer)];
}

const LayerTrace& layer_of(const char* operation, const Encoder& encoder, const EncoderTrace& trace, Index layer) {
  const LayerTrace& t = layer_of(operation, trace, layer);
  const std::array<Index, 3> expected{encoder.config.num_heads, static_cast<Index>(trace.ids.size()),
                                      encoder.config.head_size()};
  if (encoder.layers.size() != trace.layers.size() || t.value.shape() != expected) {
    throw InvalidArgument(fmt::format("{}: the trace comes from another encoder", operation));
  }
  return t;
}

// The head's rows of W_output: (D, E).
TensorView<const float, 2> output_rows(const Encoder& encoder, Index layer, Index head) {
  const TensorView<const float, 2>& w = encoder.layers[static_cast<std::size_t>(layer)].w_output;
  const Index head_size = encoder.config.head_size();
  return {w.pointer(head * head_size, 0), {head_size, w.shape[1]}, w.strides};
}

// One head of (H, L, D), as (L, D).
TensorView<const float, 2> of_head(const Tensor<float, 3>& tensor, Index head) {
  const TensorView<const float, 3> view = tensor.view();
  return {view.pointer(head, 0, 0), {view.shape[1], view.shape[2]}};
}

Tensor<float, 2> through_output(const Encoder& encoder, Index layer, Index head, const Tensor<float, 3>& by_head,
                                const Runtime& runtime) {
  Tensor<float, 2> result({by_head.shape()[1], encoder.config.width});
  linear_forward(of_head(by_head, head), output_rows(encoder, layer, head), {}, result.view(), runtime);
  return result;
}

std::vector<double> row_norms(const Tensor<float, 2>& rows) {
  const auto [length, width] = rows.shape();
  std::vector<double> norms;
  norms.reserve(static_cast<std::size_t>(length));
  for (Index i = 0; i < length; ++i) {
    norms.push_back(internal::norm_of({rows.data() + i * width, static_cast<std::size_t>(width)}));
  }
  return norms;
}

}  // namespace

Tensor<float, 3> encoder_weights(const EncoderTrace& trace, Index layer, WeightsKind kind, const Runtime& runtime) {
  const LayerTrace& t = layer_of("encoder_weights", trace, layer);
  const auto [heads, length, head_size] = t.query.shape();
  const KeyMask mask(length, trace.hidden_keys);
  Tensor<float, 3> weights({heads, length, length});
  const WeightsRequest request{
      .row_max = one_batch(t.row_max.view()), .row_sum = one_batch(t.row_sum.view()), .rows = {}, .kind = kind};
  attention_weights(one_batch(t.query.view()), one_batch(t.key.view()), request, one_batch(weights.view()),
                    mask.options(), runtime);
  return weights;
}

Tensor<float, 2> head_output(const Encoder& encoder, const EncoderTrace& trace, Index layer, Index head,
                             const Runtime& runtime) {
  const LayerTrace& t = layer_of("head_output", encoder, trace, layer);
  check_index("head_output", "head", head, encoder.config.num_heads);
  return through_output(encoder, layer, head, t.context, runtime);
}

Tensor<double, 2> value_norms(const Encoder& encoder, const EncoderTrace& trace, Index layer, const Runtime& runtime) {
  const LayerTrace& t = layer_of("value_norms", encoder, trace, layer);
  const auto [heads, length, head_size] = t.value.shape();
  Tensor<double, 2> result({heads, length});
  for (Index head = 0; head < heads; ++head) {
    const std::vector<double> norms = row_norms(through_output(encoder, layer, head, t.value, runtime));
    std::copy(norms.begin(), norms.end(), result.data() + head * length);
  }
  return result;
}

std::vector<double> contribution_norms(const Encoder& encoder, const EncoderTrace& trace, Index layer, Index head,
                                       Index query, const Runtime& runtime) {
  const LayerTrace& t = layer_of("contribution_norms", encoder, trace, layer);
  const auto [heads, length, head_size] = t.value.shape();
  check_index("contribution_norms", "head", head, heads);
  check_index("contribution_norms", "query", query, length);
  const auto one_head = [&](const TensorView<const float, 2>& view) {
    return TensorView<const float, 4>(view.data, {1, 1, view.shape[0], view.shape[1]});
  };
  const auto one_head_sums = [&](const Tensor<float, 2>& sums) {
    return TensorView<const float, 3>(sums.data() + head * length, {1, 1, length});
  };
  const KeyMask mask(length, trace.hidden_keys);
  const std::array<RowRange, 1> rows{{{query, query + 1}}};
  const WeightsRequest request{.row_max = one_head_sums(t.row_max),
                               .row_sum = one_head_sums(t.row_sum),
                               .rows = rows,
                               .kind = WeightsKind::weights};
  Tensor<float, 4> weights({1, 1, 1, length});
  attention_weights(one_head(of_head(t.query, head)), one_head(of_head(t.key, head)), request, weights.view(),
                    mask.options(), runtime);
  std::vector<double> contributions = row_norms(through_output(encoder, layer, head, t.value, runtime));
  for (std::size_t key = 0; key < contributions.size(); ++key)
    contributions[key] *= static_cast<double>(weights.data()[key]);
  return contributions;
}

std::vector<float> mean_rows(const Tensor<float, 2>& states, std::span<const Index> rows) {
  const Index length = states.shape()[0];
  for (Index row : rows) check_index("mean_rows", "row", row, length);
  return internal::mean_of_rows(states, rows);
}

std::vector<float> mean_pooled(const EncoderTrace& trace) {
  const Tensor<float, 2>& states = trace.output();
  return internal::mean_of_rows(states, 0, states.shape()[0]);
}

std::vector<float> mean_pooled_normalized(const EncoderTrace& trace) {
  return internal::normalised(mean_pooled(trace));
}

}  // namespace regard::inline v0
