// SPDX-License-Identifier: Apache-2.0
//
// One layer of an encoder, on packed parameters; see encoder_layers.h.
// Read next: regard/linear.h, regard/layer_norm.h, regard/attention.h.
#include "encoder_layers.h"

#include <fmt/format.h>

#include "regard/error.h"
#include "regard/layer_norm.h"

namespace regard::inline v0::internal {
namespace {

// The biases of the three projections, concatenated like their matrices.
std::vector<float> joined_biases(const EncoderLayer& layer) {
  std::vector<float> joined;
  for (const TensorView<const float, 1>& bias : {layer.b_query, layer.b_key, layer.b_value}) {
    for (Index e = 0; e < bias.shape[0]; ++e) joined.push_back(bias(e));
  }
  return joined;
}

}  // namespace

void check_ids(const std::string& operation, const EncoderConfig& config, std::span<const Index> ids) {
  if (static_cast<Index>(ids.size()) > config.max_positions) {
    throw InvalidArgument(
        fmt::format("{}: {} tokens; this model has {} positions", operation, ids.size(), config.max_positions));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config.vocabulary) continue;
    throw InvalidArgument(
        fmt::format("{}: token {} has id {}; expected 0 to {}", operation, i, ids[i], config.vocabulary - 1));
  }
}

LayerRows::LayerRows(Index rows, const EncoderConfig& config)
    : projected({rows, 3 * config.width}),
      context({rows, config.width}),
      attention_output({rows, config.width}),
      attention_normed({rows, config.width}),
      inner({rows, config.feed_forward}),
      feed_forward({rows, config.width}),
      output({rows, config.width}) {}

TensorView<const float, 4> heads_of(const Tensor<float, 2>& projected, Projection projection,
                                    const EncoderConfig& config) {
  const Index row = 3 * config.width;
  const Index first = projected.size() == 0 ? 0 : static_cast<Index>(projection) * config.width;
  return {projected.data() + first,
          {1, config.num_heads, projected.shape()[0], config.head_size()},
          {0, config.head_size(), row, 1}};
}

TensorView<float, 4> heads_of(Tensor<float, 2>& joined, const EncoderConfig& config) {
  return {joined.data(),
          {1, config.num_heads, joined.shape()[0], config.head_size()},
          {0, config.head_size(), config.width, 1}};
}

void attend(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input,
            const AttentionOptions& options, AttentionOutputs sums, LayerRows& rows, const Runtime& runtime) {
  const EncoderConfig& config = encoder.config;
  const std::vector<float> biases = joined_biases(layer);
  linear_forward<float>(input, layer.packed_projections, {biases.data(), {3 * config.width}}, rows.projected.view(), {},
                        runtime);
  sums.context = heads_of(rows.context, config);
  attention_forward(heads_of(rows.projected, Projection::query, config),
                    heads_of(rows.projected, Projection::key, config),
                    heads_of(rows.projected, Projection::value, config), sums, options, runtime);
}

void finish_layer(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input, LayerRows& rows,
                  const Runtime& runtime) {
  const EncoderConfig& config = encoder.config;
  linear_forward<float>(rows.context.view(), layer.packed_output, layer.b_output, rows.attention_output.view(), {},
                        runtime);
  layer_norm_forward<float>(input, rows.attention_output.view(), layer.norm_attention_gain, layer.norm_attention_bias,
                            rows.attention_normed.view(), config.norm_epsilon, runtime);
  linear_forward<float>(rows.attention_normed.view(), layer.packed_up, layer.b_up, rows.inner.view(),
                        {.activation = Activation::gelu}, runtime);
  linear_forward<float>(rows.inner.view(), layer.packed_down, layer.b_down, rows.feed_forward.view(), {}, runtime);
  layer_norm_forward<float>(rows.attention_normed.view(), rows.feed_forward.view(), layer.norm_output_gain,
                            layer.norm_output_bias, rows.output.view(), config.norm_epsilon, runtime);
}

void run_layer(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input,
               const AttentionOptions& options, AttentionOutputs sums, LayerRows& rows, const Runtime& runtime) {
  attend(encoder, layer, input, options, std::move(sums), rows, runtime);
  finish_layer(encoder, layer, input, rows, runtime);
}

}  // namespace regard::inline v0::internal
