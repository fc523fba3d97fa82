// SPDX-License-Identifier: Apache-2.0
//
// One layer of a decoder, on packed parameters; see decoder_layers.h. The operators and their order are those of
// src/train/decoder/decoder_training.cpp, so that a model computes the same bits as when it was trained.
// Read next: regard/linear.h, regard/rms_norm.h, regard/rotary.h, regard/attention.h.
#include "decoder_layers.h"

#include <fmt/format.h>

#include "regard/activation.h"
#include "regard/error.h"
#include "regard/layer_norm.h"
#include "regard/rms_norm.h"
#include "regard/rotary.h"

namespace regard::inline v0::internal {
namespace {

Index projected_width(const DecoderConfig& config) {
  return (config.num_heads + 2 * config.num_kv_heads) * config.head_size;
}

Index up_width(const DecoderConfig& config) {
  return config.feed_forward_kind == FeedForwardKind::swiglu ? 2 * config.feed_forward : config.feed_forward;
}

// Heads first … first + count − 1 of rows of heads, as (1, count, R, D).
TensorView<float, 4> heads_in(Tensor<float, 2>& rows, const DecoderConfig& config, Index first, Index count) {
  const auto [num_rows, width] = rows.shape();
  float* const data = num_rows == 0 ? rows.data() : rows.data() + first * config.head_size;
  return {data, {1, count, num_rows, config.head_size}, {num_rows * width, config.head_size, width, 1}};
}

TensorView<const float, 1> joined_bias(const std::vector<float>& bias) {
  if (bias.empty()) return {};
  return {bias.data(), {static_cast<Index>(bias.size())}};
}

void feed_forward_rows(const Decoder& decoder, const DecoderLayer& layer, DecoderRows& rows, const Runtime& runtime) {
  const DecoderConfig& config = decoder.config;
  norm_rows(config, rows.residual.view(), layer.norm_feed_forward_gain, layer.norm_feed_forward_bias,
            rows.normed_residual, runtime);
  const TensorView<const float, 1> bias = joined_bias(layer.b_joined_up);
  if (config.feed_forward_kind == FeedForwardKind::swiglu) {
    linear_forward<float>(rows.normed_residual.view(), layer.packed_up, bias, rows.up.view(), {}, runtime);
    const auto [num_rows, width] = rows.up.shape();
    const Index columns = config.feed_forward;
    const TensorView<const float, 2> gate(rows.up.data(), {num_rows, columns}, {width, 1});
    const TensorView<const float, 2> up(rows.up.data() + (num_rows == 0 ? 0 : columns), {num_rows, columns},
                                        {width, 1});
    swiglu_forward<float>(gate, up, rows.activated.view(), runtime);
  } else {
    linear_forward<float>(rows.normed_residual.view(), layer.packed_up, bias, rows.activated.view(),
                          {.activation = activation_of(config.feed_forward_kind)}, runtime);
  }
  linear_forward<float>(rows.activated.view(), layer.packed_down, layer.b_down, rows.feed_forward.view(), {}, runtime);
  add_rows(rows.residual, rows.feed_forward, rows.output);
}

}  // namespace

void check_decoder_ids(const char* operation, const DecoderConfig& config, Index first, std::span<const Index> ids) {
  const Index length = first + static_cast<Index>(ids.size());
  if (length > config.max_positions) {
    throw InvalidArgument(
        fmt::format("{}: {} tokens; this model has {} positions", operation, length, config.max_positions));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config.vocabulary) continue;
    throw InvalidArgument(fmt::format("{}: token {} has id {}; expected 0 to {}", operation,
                                      first + static_cast<Index>(i), ids[i], config.vocabulary - 1));
  }
}

DecoderRows::DecoderRows(Index rows, const DecoderConfig& config)
    : normed({rows, config.width}),
      projected({rows, projected_width(config)}),
      context({rows, config.num_heads * config.head_size}),
      attention_output({rows, config.width}),
      residual({rows, config.width}) {
  const bool has_feed_forward = config.feed_forward_kind != FeedForwardKind::none;
  if (has_feed_forward) {
    normed_residual = Tensor<float, 2>({rows, config.width});
    if (config.feed_forward_kind == FeedForwardKind::swiglu) up = Tensor<float, 2>({rows, up_width(config)});
    activated = Tensor<float, 2>({rows, config.feed_forward});
    feed_forward = Tensor<float, 2>({rows, config.width});
    output = Tensor<float, 2>({rows, config.width});
  }
}

DecoderHeads heads_of(DecoderRows& rows, const DecoderConfig& config) {
  const Index H = config.num_heads, Hkv = config.num_kv_heads;
  return {.query = heads_in(rows.projected, config, 0, H),
          .key = heads_in(rows.projected, config, H, Hkv),
          .value = heads_in(rows.projected, config, H + Hkv, Hkv),
          .context = heads_in(rows.context, config, 0, H)};
}

void embed_ids(const Decoder& decoder, std::span<const Index> ids, Index first, Tensor<float, 2>& tokens,
               Tensor<float, 2>& positions) {
  const Index width = decoder.config.width;
  const bool learned = decoder.config.positions == PositionKind::learned;
  for (std::size_t n = 0; n < ids.size(); ++n) {
    const auto row = static_cast<Index>(n);
    for (Index e = 0; e < width; ++e) {
      tokens(row, e) = decoder.token_table(ids[n], e);
      if (learned) positions(row, e) = decoder.position_table(first + row, e);
    }
  }
}

void add_rows(const Tensor<float, 2>& a, const Tensor<float, 2>& b, Tensor<float, 2>& sum) {
  for (Index i = 0; i < a.size(); ++i) sum.data()[i] = a.data()[i] + b.data()[i];
}

void norm_rows(const DecoderConfig& config, const TensorView<const float, 2>& input,
               const TensorView<const float, 1>& gain, const TensorView<const float, 1>& bias, Tensor<float, 2>& output,
               const Runtime& runtime) {
  if (config.norm == NormKind::layer) {
    layer_norm_forward<float>(input, {}, gain, bias, output.view(), config.norm_epsilon, runtime);
  } else {
    rms_norm_forward<float>(input, {}, gain, output.view(), config.norm_epsilon, runtime);
  }
}

void run_decoder_layer(const Decoder& decoder, const DecoderLayer& layer, const Tensor<float, 2>& input, Index first,
                       const std::function<void(const DecoderHeads& heads)>& attend, DecoderRows& rows,
                       const Runtime& runtime) {
  const DecoderConfig& config = decoder.config;
  norm_rows(config, input.view(), layer.norm_attention_gain, layer.norm_attention_bias, rows.normed, runtime);
  linear_forward<float>(rows.normed.view(), layer.packed_projections, joined_bias(layer.b_projections),
                        rows.projected.view(), {}, runtime);
  const DecoderHeads heads = heads_of(rows, config);
  if (config.positions == PositionKind::rotary) {
    const RotaryOptions rotary{.base = config.rotary_base, .first_position = first};
    for (const TensorView<float, 4>& rotated : {heads.query, heads.key})
      rotary_forward<float>(rotated, rotated, rotary, runtime);
  }
  attend(heads);
  linear_forward<float>(rows.context.view(), layer.packed_output, layer.b_output, rows.attention_output.view(), {},
                        runtime);
  add_rows(input, rows.attention_output, rows.residual);
  if (config.feed_forward_kind != FeedForwardKind::none) feed_forward_rows(decoder, layer, rows, runtime);
}

}  // namespace regard::inline v0::internal
