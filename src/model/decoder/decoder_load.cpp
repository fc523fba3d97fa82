// SPDX-License-Identifier: Apache-2.0
//
// load_decoder: checks the tensors of a folder against decoder_parameters() of its config.json, and creates a Decoder.
//
//     decoder_parameters(): token table · positions · N layers · norm · output
//                           └── the views are filled in this order ──┘
//
// Read next: decoder_config.cpp, src/model/loading.h.
#include <fmt/format.h>

#include <array>

#include "model/loading.h"
#include "regard/error.h"
#include "regard/model/decoder_inference.h"

namespace regard::inline v0 {
namespace {

using Vector = TensorView<const float, 1>;
using Matrix = TensorView<const float, 2>;

// Assigns the parameters, one after the other, to views.
class ParameterViews {
 public:
  ParameterViews(std::span<const DecoderParameter> description, std::span<const float* const> data)
      : description_(description), data_(data) {}

  Matrix table() {
    const std::size_t n = next_++;
    return {data_[n], {description_[n].shape[0], description_[n].shape[1]}};
  }
  // A matrix (out, in), viewed as (in, out).
  Matrix matrix() {
    const Matrix stored = table();
    return {stored.data, {stored.shape[1], stored.shape[0]}, {1, stored.shape[1]}};
  }
  // Absent unless the next parameter is of this kind.
  Vector vector(ParameterKind kind) {
    if (next_ == description_.size() || description_[next_].kind != kind) return {};
    const std::size_t n = next_++;
    return {data_[n], {description_[n].shape[0]}};
  }
  Vector bias() { return vector(ParameterKind::bias); }
  void norm(Vector& gain, Vector& bias_of_norm) {
    gain = vector(ParameterKind::gain);
    bias_of_norm = bias();
  }

 private:
  std::span<const DecoderParameter> description_;
  std::span<const float* const> data_;
  std::size_t next_ = 0;
};

void set_views(Decoder& decoder, std::span<const DecoderParameter> description, std::span<const float* const> data) {
  const DecoderConfig& config = decoder.config;
  ParameterViews next(description, data);
  decoder.token_table = next.table();
  if (config.positions == PositionKind::learned) decoder.position_table = next.table();
  decoder.layers.resize(static_cast<std::size_t>(config.num_layers));
  for (DecoderLayer& layer : decoder.layers) {
    next.norm(layer.norm_attention_gain, layer.norm_attention_bias);
    for (Matrix* projection : {&layer.w_query, &layer.w_key, &layer.w_value}) *projection = next.matrix();
    for (Vector* bias : {&layer.b_query, &layer.b_key, &layer.b_value}) *bias = next.bias();
    layer.w_output = next.matrix();
    layer.b_output = next.bias();
    if (config.feed_forward_kind == FeedForwardKind::none) continue;
    const bool has_gate = config.feed_forward_kind == FeedForwardKind::swiglu;
    next.norm(layer.norm_feed_forward_gain, layer.norm_feed_forward_bias);
    if (has_gate) layer.w_gate = next.matrix();
    layer.w_up = next.matrix();
    if (has_gate) layer.b_gate = next.bias();
    layer.b_up = next.bias();
    layer.w_down = next.matrix();
    layer.b_down = next.bias();
  }
  next.norm(decoder.norm_gain, decoder.norm_bias);
  const Matrix& table = decoder.token_table;
  decoder.w_logits =
      config.tied ? Matrix(table.data, {table.shape[1], table.shape[0]}, {1, table.shape[1]}) : next.matrix();
}

// The biases, joined; empty if they are absent.
std::vector<float> joined(std::initializer_list<Vector> biases) {
  std::vector<float> all;
  for (const Vector& bias : biases) all.insert(all.end(), bias.data, bias.data + bias.shape[0]);
  return all;
}

void pack_layer(DecoderLayer& layer, const Runtime& runtime) {
  constexpr const char* kLoadDecoder = "load_decoder";
  const std::array<Matrix, 3> projections{layer.w_query, layer.w_key, layer.w_value};
  layer.packed_projections = internal::pack_side_by_side(kLoadDecoder, projections, runtime);
  layer.b_projections = joined({layer.b_query, layer.b_key, layer.b_value});
  layer.packed_output = PackedLinear<float>(layer.w_output, runtime);
  if (layer.w_up.absent()) return;
  if (layer.w_gate.absent()) {
    layer.packed_up = PackedLinear<float>(layer.w_up, runtime);
  } else {
    const std::array<Matrix, 2> gate_and_up{layer.w_gate, layer.w_up};
    layer.packed_up = internal::pack_side_by_side(kLoadDecoder, gate_and_up, runtime);
  }
  layer.b_joined_up = joined({layer.b_gate, layer.b_up});
  layer.packed_down = PackedLinear<float>(layer.w_down, runtime);
}

std::uint64_t bytes_of_packed(const DecoderConfig& c) {
  using internal::packed_bytes;
  const Index heads = c.num_heads * c.head_size;
  const Index up = c.feed_forward_kind == FeedForwardKind::swiglu ? 2 * c.feed_forward : c.feed_forward;
  const std::uint64_t layer = packed_bytes(c.width, heads + 2 * c.num_kv_heads * c.head_size) +
                              packed_bytes(heads, c.width) + packed_bytes(c.width, up) +
                              packed_bytes(c.feed_forward, c.width);
  return static_cast<std::uint64_t>(c.num_layers) * layer + packed_bytes(c.width, c.vocabulary);
}

}  // namespace

Decoder load_decoder(const std::string& folder, const ModelFileOptions& options, const Runtime& runtime) {
  using internal::kConfigFile;
  Decoder decoder;
  decoder.config = parse_decoder_config(read_model_text(folder, kConfigFile, internal::kMaxConfigBytes, runtime.stop),
                                        fmt::format("{}/{}", folder, kConfigFile));
  decoder.checkpoint = std::make_shared<const Checkpoint>(Checkpoint::read_folder(folder, options, runtime.stop));
  const std::vector<DecoderParameter> description = decoder_parameters(decoder.config);
  internal::ModelTensors tensors(folder, *decoder.checkpoint);
  std::vector<const float*> data(description.size());
  for (std::size_t n = 0; n < description.size(); ++n) {
    const DecoderParameter& parameter = description[n];
    tensors.expect(parameter.name, decoder.checkpoint->find(parameter.name), parameter.shape, "",
                   [&data, n](const float* elements) { data[n] = elements; });
  }
  const bool tied = decoder.config.tied;
  tensors.expect_no_others(
      [tied](std::string_view name) {
        return name.ends_with(".self_attn.rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
      },
      fmt::format("this decoder with {} layer{}", decoder.config.num_layers,
                  decoder.config.num_layers == 1 ? "" : "s"));
  tensors.throw_problems();
  tensors.check_memory(bytes_of_packed(decoder.config), options);
  decoder.memory = tensors.read(runtime.stop);
  set_views(decoder, description, data);
  for (DecoderLayer& layer : decoder.layers) pack_layer(layer, runtime);
  decoder.packed_logits = PackedLinear<float>(decoder.w_logits, runtime);
  return decoder;
}

}  // namespace regard::inline v0
