// SPDX-License-Identifier: Apache-2.0
//
// Small decoders of every kind, with the parameters of tiny_decoder.h, in folders from which load_decoder reads them.
// Read next: decoder_inference_test.cpp, generate_test.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "regard/model/decoder_inference.h"
#include "support/model_bytes.h"
#include "support/tiny_decoder.h"

namespace regard {

// Each choice of each field occurs.
inline std::vector<std::pair<std::string, DecoderConfig>> decoder_cases(Index max_positions) {
  DecoderConfig gpt{.vocabulary = 13,
                    .num_layers = 2,
                    .num_heads = 4,
                    .width = 16,
                    .feed_forward = 24,
                    .max_positions = max_positions};
  DecoderConfig biases = gpt;
  biases.biases = true;
  biases.feed_forward_kind = FeedForwardKind::gelu_tanh;
  DecoderConfig llama = gpt;
  llama.num_kv_heads = 2;
  llama.head_size = 6;
  llama.norm = NormKind::rms;
  llama.positions = PositionKind::rotary;
  llama.feed_forward_kind = FeedForwardKind::swiglu;
  llama.tied = false;
  DecoderConfig swiglu_biases = llama;
  swiglu_biases.num_kv_heads = 1;
  swiglu_biases.biases = true;
  swiglu_biases.tied = true;
  DecoderConfig relu = biases;
  relu.positions = PositionKind::none;
  relu.feed_forward_kind = FeedForwardKind::relu;
  relu.tied = false;
  DecoderConfig attention_only = gpt;
  attention_only.num_kv_heads = 2;
  attention_only.feed_forward_kind = FeedForwardKind::none;
  attention_only.feed_forward = 0;
  return {{"gpt", completed(gpt)},     {"gpt with biases", completed(biases)},
          {"llama", completed(llama)}, {"SwiGLU with biases", completed(swiglu_biases)},
          {"relu", completed(relu)},   {"attention only", completed(attention_only)}};
}

inline void write_decoder(const TestFolder& folder, const DecoderConfig& config, const std::vector<float>& parameters) {
  folder.write("config.json", decoder_config_json(config));
  write_safetensors(folder / "model.safetensors", stored_parameters(config, parameters));
}

inline Decoder tiny_decoder(const DecoderConfig& config) {
  const TestFolder folder;
  write_decoder(folder, config, tiny_parameters(config));
  return load_decoder(folder.path());
}

// `count` ids below `vocabulary`.
inline std::vector<Index> some_ids(Index count, Index vocabulary) {
  std::vector<Index> ids;
  for (Index i = 0; i < count; ++i) ids.push_back((i * i + 5 * i + i / 7) % vocabulary);
  return ids;
}

}  // namespace regard
