// SPDX-License-Identifier: Apache-2.0
//
// The description of a decoder: what the zeros of a DecoderConfig stand for, which values are valid, and the list of
// parameters that follows from them.
//
//     embed_tokens (V, E), embed_positions (P, E)
//     N times:  norm · q k v (H·D or Hkv·D, E) · o (E, H·D) · norm · gate up (F, E) · down (E, F)
//     norm (E), lm_head (V, E)
//
// Read next: regard/model/decoder.h.
#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <string_view>

#include "regard/error.h"
#include "regard/model/decoder.h"

namespace regard::inline v0 {
namespace {

// Far beyond every existing model, and small enough that a product of two of them cannot overflow.
constexpr Index kMaxDecoderExtent = Index{1} << 24;
constexpr Index kMaxDecoderLayers = 4096;
constexpr double kMaxDecoderParameters = 0x1p40;

[[noreturn]] void reject_decoder(const std::string& what) { throw InvalidArgument("decoder: " + what); }

void check_extent(std::string_view name, Index extent, Index max = kMaxDecoderExtent) {
  if (extent < 1 || extent > max) reject_decoder(fmt::format("{} is {}; expected 1 to {}", name, extent, max));
}

// The number of elements; exact up to 2^53, so that a comparison with kMaxDecoderParameters is exact.
double num_parameters(const DecoderConfig& c) {
  const auto extent = [](Index x) { return static_cast<double>(x); };
  const double E = extent(c.width), F = extent(c.feed_forward);
  const double query = extent(c.num_heads * c.head_size), key_value = extent(c.num_kv_heads * c.head_size);
  const bool has_feed_forward = c.feed_forward_kind != FeedForwardKind::none;
  const double into_feed_forward = !has_feed_forward ? 0 : c.feed_forward_kind == FeedForwardKind::swiglu ? 2 : 1;
  const double norm = c.norm == NormKind::layer && c.biases ? 2 * E : E;
  double layer = norm + (query + 2 * key_value) * E + E * query;
  if (has_feed_forward) layer += norm + into_feed_forward * F * E + E * F;
  if (c.biases) layer += query + 2 * key_value + E;
  if (c.biases && has_feed_forward) layer += into_feed_forward * F + E;
  const double tables =
      extent(c.vocabulary) * (c.tied ? 1 : 2) + (c.positions == PositionKind::learned ? extent(c.max_positions) : 0);
  return tables * E + extent(c.num_layers) * layer + norm;
}

// Appends the parameters of a decoder in order.
class ParameterList {
 public:
  explicit ParameterList(const DecoderConfig& config) : config_(config) {}

  void matrix(std::string_view name, Index out, Index in, ParameterKind kind) {
    add(fmt::format("{}.weight", name), {out, in}, kind);
  }
  void bias(std::string_view name, Index size) {
    if (config_.biases) add(fmt::format("{}.bias", name), {size}, ParameterKind::bias);
  }
  void norm(std::string_view name) {
    add(fmt::format("{}.weight", name), {config_.width}, ParameterKind::gain);
    if (config_.norm == NormKind::layer) bias(name, config_.width);
  }
  void layer(Index number) {
    layer_ = number;
    const Index E = config_.width;
    const Index query = config_.num_heads * config_.head_size;
    const Index key_value = config_.num_kv_heads * config_.head_size;
    norm("input_layernorm");
    matrix("self_attn.q_proj", query, E, ParameterKind::projection);
    matrix("self_attn.k_proj", key_value, E, ParameterKind::projection);
    matrix("self_attn.v_proj", key_value, E, ParameterKind::projection);
    bias("self_attn.q_proj", query);
    bias("self_attn.k_proj", key_value);
    bias("self_attn.v_proj", key_value);
    matrix("self_attn.o_proj", E, query, ParameterKind::residual);
    bias("self_attn.o_proj", E);
    if (config_.feed_forward_kind != FeedForwardKind::none) feed_forward();
    layer_ = -1;
  }
  std::vector<DecoderParameter> take() { return std::move(list_); }

 private:
  void feed_forward() {
    const Index E = config_.width;
    const Index F = config_.feed_forward;
    const bool has_gate = config_.feed_forward_kind == FeedForwardKind::swiglu;
    norm("post_attention_layernorm");
    if (has_gate) matrix("mlp.gate_proj", F, E, ParameterKind::projection);
    matrix("mlp.up_proj", F, E, ParameterKind::projection);
    if (has_gate) bias("mlp.gate_proj", F);
    bias("mlp.up_proj", F);
    matrix("mlp.down_proj", E, F, ParameterKind::residual);
    bias("mlp.down_proj", E);
  }

  void add(const std::string& name, std::vector<Index> shape, ParameterKind kind) {
    list_.push_back(
        {layer_ < 0 ? name : fmt::format("model.layers.{}.{}", layer_, name), std::move(shape), kind, layer_});
  }

  const DecoderConfig& config_;
  Index layer_ = -1;
  std::vector<DecoderParameter> list_;
};

}  // namespace

DecoderConfig completed(DecoderConfig config) {
  check_extent("vocabulary", config.vocabulary);
  check_extent("num_layers", config.num_layers, kMaxDecoderLayers);
  check_extent("num_heads", config.num_heads);
  check_extent("width", config.width);
  check_extent("max_positions", config.max_positions);
  if (config.num_kv_heads == 0) config.num_kv_heads = config.num_heads;
  if (config.num_kv_heads < 1 || config.num_heads % config.num_kv_heads != 0) {
    reject_decoder(fmt::format("num_kv_heads is {}; expected a divisor of num_heads, which is {}", config.num_kv_heads,
                               config.num_heads));
  }
  if (config.head_size == 0) {
    if (config.width % config.num_heads != 0) {
      reject_decoder(fmt::format("width is {}; expected a multiple of num_heads, which is {}, or a head_size",
                                 config.width, config.num_heads));
    }
    config.head_size = config.width / config.num_heads;
  }
  check_extent("head_size", config.head_size);
  check_extent("num_heads · head_size", config.num_heads * config.head_size);
  if (config.positions == PositionKind::rotary && config.head_size % 2 != 0) {
    reject_decoder(
        fmt::format("head_size is {}; expected an even number with rotary position embeddings", config.head_size));
  }
  if (config.feed_forward_kind == FeedForwardKind::none) {
    if (config.feed_forward != 0) {
      reject_decoder(fmt::format("feed_forward is {}; expected 0 without feed-forward layers", config.feed_forward));
    }
  } else {
    if (config.feed_forward == 0) {
      const bool has_gate = config.feed_forward_kind == FeedForwardKind::swiglu;
      config.feed_forward = has_gate ? (config.width + 2) / 3 * 8 : 4 * config.width;
    }
    check_extent("feed_forward", config.feed_forward);
  }
  if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon < 0) {
    reject_decoder(fmt::format("norm_epsilon is {}; expected a finite number of at least 0", config.norm_epsilon));
  }
  if (!std::isfinite(config.rotary_base) || config.rotary_base <= 0) {
    reject_decoder(fmt::format("rotary_base is {}; expected a finite number above 0", config.rotary_base));
  }
  if (const double count = num_parameters(config); count > kMaxDecoderParameters) {
    reject_decoder(
        fmt::format("the number of parameters is {:.0f}; expected at most {:.0f}", count, kMaxDecoderParameters));
  }
  return config;
}

Activation activation_of(FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu:
      return Activation::relu;
    case FeedForwardKind::gelu:
      return Activation::gelu;
    case FeedForwardKind::gelu_tanh:
      return Activation::gelu_tanh;
    case FeedForwardKind::swiglu:
    case FeedForwardKind::none:
      break;
  }
  return Activation::none;
}

std::vector<DecoderParameter> decoder_parameters(const DecoderConfig& config) {
  const DecoderConfig c = completed(config);
  ParameterList list(c);
  list.matrix("model.embed_tokens", c.vocabulary, c.width, ParameterKind::table);
  if (c.positions == PositionKind::learned) {
    list.matrix("model.embed_positions", c.max_positions, c.width, ParameterKind::positions);
  }
  for (Index layer = 0; layer < c.num_layers; ++layer) list.layer(layer);
  list.norm("model.norm");
  if (!c.tied) list.matrix("lm_head", c.vocabulary, c.width, ParameterKind::output);
  return list.take();
}

Index decoder_size(const DecoderConfig& config) { return static_cast<Index>(num_parameters(completed(config))); }

}  // namespace regard::inline v0
