// SPDX-License-Identifier: Apache-2.0
//
// See decoder_memory.h.
#include "decoder_memory.h"
#include "instantiate.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace regard::inline v0::internal {
namespace {

// Takes the parameters of the description one after the other.
template <class T>
class Reader {
 public:
  Reader(std::span<const DecoderParameter> description, T* parameters, T* gradients)
      : description_(description), parameters_(parameters), gradients_(gradients) {}

  // `count` matrices with equal numbers of columns, as one.
  TrainedMatrix<T> matrix(int count = 1) {
    Index rows = 0;
    const Index columns = description_[next_].shape[1];
    const Index begin = offset_;
    for (; count > 0; --count) rows += take().shape[0];
    return {{parameters_ + begin, {rows, columns}}, {gradients_ + begin, {rows, columns}}};
  }
  // Absent unless the next `count` parameters are of this kind.
  TrainedVector<T> vector(ParameterKind kind, int count = 1) {
    if (next_ == description_.size() || description_[next_].kind != kind) return {};
    Index size = 0;
    const Index begin = offset_;
    for (; count > 0; --count) size += take().size();
    return {{parameters_ + begin, {size}}, {gradients_ + begin, {size}}};
  }
  TrainedLinear<T> linear(int count = 1) {
    const TrainedMatrix<T> weight = matrix(count);
    return {weight, vector(ParameterKind::bias, count)};
  }
  TrainedNorm<T> norm() {
    const TrainedVector<T> gain = vector(ParameterKind::gain);
    return {gain, vector(ParameterKind::bias)};
  }
  bool at_end() const { return next_ == description_.size(); }

 private:
  const DecoderParameter& take() {
    const DecoderParameter& parameter = description_[next_++];
    offset_ += parameter.size();
    return parameter;
  }

  std::span<const DecoderParameter> description_;
  T* parameters_;
  T* gradients_;
  std::size_t next_ = 0;
  Index offset_ = 0;
};

}  // namespace

template <class T>
TrainedDecoder<T> decoder_views(const DecoderConfig& config, std::span<const DecoderParameter> description,
                                T* parameters, T* gradients) {
  Reader<T> read(description, parameters, gradients);
  TrainedDecoder<T> decoder;
  decoder.table = read.matrix();
  if (config.positions == PositionKind::learned) decoder.positions = read.matrix();
  for (Index layer = 0; layer < config.num_layers; ++layer) {
    TrainedLayer<T> trained;
    trained.attention_norm = read.norm();
    trained.qkv = read.linear(3);
    trained.output = read.linear();
    if (config.feed_forward_kind != FeedForwardKind::none) {
      trained.feed_forward_norm = read.norm();
      trained.up = read.linear(config.feed_forward_kind == FeedForwardKind::swiglu ? 2 : 1);
      trained.down = read.linear();
    }
    decoder.layers.push_back(trained);
  }
  decoder.norm = read.norm();
  decoder.output = config.tied ? decoder.table : read.matrix();
  assert(read.at_end());
  return decoder;
}

template <class T>
DecoderActivations<T>::DecoderActivations(const DecoderConfig& config, const DecoderTrainingOptions& options) {
  const Index rows = options.max_sequences * options.max_length;
  const Index width = config.width;
  const Index heads = config.num_heads * config.head_size;
  const Index qkv = heads + 2 * config.num_kv_heads * config.head_size;
  const bool swiglu = config.feed_forward_kind == FeedForwardKind::swiglu;
  const Index up = config.feed_forward_kind == FeedForwardKind::none ? 0 : config.feed_forward * (swiglu ? 2 : 1);
  const auto layers_kept = static_cast<std::size_t>(options.recompute ? 1 : config.num_layers);

  // The first pass measures the memory, with null as the address; the second one sets the addresses.
  T* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    Index used = 0;
    const auto take = [&](Index columns) {
      T* const at = base == nullptr ? nullptr : base + used;
      used += (rows * columns + 15) / 16 * 16;
      return at;
    };
    inputs.clear();
    for (Index layer = 0; layer <= config.num_layers; ++layer) inputs.push_back(take(width));
    layers.clear();
    for (std::size_t layer = 0; layer < layers_kept; ++layer) {
      layers.push_back({.normed = take(width),
                        .qkv = take(qkv),
                        .context = take(heads),
                        .row_max = take(config.num_heads),
                        .row_sum = take(config.num_heads),
                        .middle = take(width),
                        .normed_2 = take(width),
                        .up = take(up),
                        .activated = take(up > 0 ? config.feed_forward : 0)});
    }
    layers.resize(static_cast<std::size_t>(config.num_layers), layers[0]);
    normed = take(width);
    logits = take(config.vocabulary);
    added = take(width);
    grad_residual = take(width);
    grad_branch = take(width);
    grad_qkv = take(qkv);
    grad_context = take(heads);
    grad_up = take(up);
    grad_activated = take(up > 0 ? config.feed_forward : 0);
    row_loss = take(1);
    if (pass == 0) memory = ZeroedMemory<T>(used);
    base = memory.data();
  }
  if (options.bf16_products) {
    const Index widest = std::max({width, heads, qkv, up, config.vocabulary});
    rounded_parameters = ZeroedMemory<bfloat16>(decoder_size(config));
    rounded_inputs = ZeroedMemory<bfloat16>(static_cast<Index>(memory.size()));
    rounded_gradient = ZeroedMemory<bfloat16>(rows * widest);
  }
  tokens.resize(static_cast<std::size_t>(rows));
  positions.resize(static_cast<std::size_t>(rows));
  targets.resize(static_cast<std::size_t>(rows));
}

REGARD_INSTANTIATE_COMPUTE(decoder_views);
REGARD_INSTANTIATE_COMPUTE_CLASS(struct, DecoderActivations);

}  // namespace regard::inline v0::internal
