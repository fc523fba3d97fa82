// SPDX-License-Identifier: Apache-2.0
//
// Results derived from a trace of an encoder: outputs of a head, contributions of a key, vectors of texts.
//
//     contribution = weight · ‖v_key · W_output(head)‖             since W_output is linear and weights are ≥ 0
//
// Read next: encoder.cpp, src/model/trace.cpp.
#include <array>

#include "model/pooling.h"
#include "model/trace_mask.h"
#include "model/trace_views.h"
#include "regard/error.h"
#include "regard/model/encoder.h"

namespace regard::inline v0 {
namespace {

const LayerTrace& layer_of(const char* operation, const Encoder& encoder, const ModelTrace& trace, Index layer) {
  const EncoderConfig& config = encoder.config;
  return internal::checked_layer(operation, {config.num_layers, config.num_heads, config.head_size()}, trace, layer);
}

const TensorView<const float, 2>& output_of(const Encoder& encoder, Index layer) {
  return encoder.layers[static_cast<std::size_t>(layer)].w_output;
}

}  // namespace

Tensor<float, 2> head_output(const Encoder& encoder, const ModelTrace& trace, Index layer, Index head,
                             const Runtime& runtime) {
  const LayerTrace& t = layer_of("head_output", encoder, trace, layer);
  internal::check_index("head_output", "head", head, encoder.config.num_heads);
  return internal::through_output(output_of(encoder, layer), head, t.context, runtime);
}

Tensor<double, 2> value_norms(const Encoder& encoder, const ModelTrace& trace, Index layer, const Runtime& runtime) {
  const LayerTrace& t = layer_of("value_norms", encoder, trace, layer);
  return internal::value_norms_of(output_of(encoder, layer), t, runtime);
}

std::vector<double> contribution_norms(const Encoder& encoder, const ModelTrace& trace, Index layer, Index head,
                                       Index query, const Runtime& runtime) {
  const LayerTrace& t = layer_of("contribution_norms", encoder, trace, layer);
  const auto [heads, length, head_size] = t.value.shape();
  internal::check_index("contribution_norms", "head", head, heads);
  internal::check_index("contribution_norms", "query", query, length);
  const auto one_head = [&](const TensorView<const float, 2>& view) {
    return TensorView<const float, 4>(view.data, {1, 1, view.shape[0], view.shape[1]});
  };
  const auto one_head_sums = [&](const Tensor<float, 2>& sums) {
    return TensorView<const float, 3>(sums.data() + head * length, {1, 1, length});
  };
  const TraceMask mask(length, trace.hidden_keys, trace.causal);
  const std::array<RowRange, 1> rows{{{query, query + 1}}};
  const WeightsRequest request{.row_max = one_head_sums(t.row_max),
                               .row_sum = one_head_sums(t.row_sum),
                               .rows = rows,
                               .kind = WeightsKind::weights};
  Tensor<float, 4> weights({1, 1, 1, length});
  attention_weights(one_head(internal::of_head(t.query, head)), one_head(internal::of_head(t.key, head)), request,
                    weights.view(), mask.options(), runtime);
  std::vector<double> contributions =
      internal::row_norms(internal::through_output(output_of(encoder, layer), head, t.value, runtime));
  for (std::size_t key = 0; key < contributions.size(); ++key)
    contributions[key] *= static_cast<double>(weights.data()[key]);
  return contributions;
}

std::vector<float> mean_pooled(const ModelTrace& trace) {
  const Tensor<float, 2>& states = trace.output();
  return internal::mean_of_rows(states, 0, states.shape()[0]);
}

std::vector<float> mean_pooled_normalized(const ModelTrace& trace) { return internal::normalized(mean_pooled(trace)); }

}  // namespace regard::inline v0
