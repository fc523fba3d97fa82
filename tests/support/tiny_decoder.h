// SPDX-License-Identifier: Apache-2.0
//
// A small decoder with Llama's description and parameters from a formula; tests/decoder/tiny_llama holds its files,
// which tests/frameworks/transformers_test.py opens as LlamaForCausalLM.
//
//     parameter e of all, counted from 0:   r = (7919 · e mod 2003 − 1001) / 4096;   a gain is 1 + r / 4, others are r
//
// Read next: safetensors_writer_test.cpp, trainer_test.cpp.
#pragma once

#include <vector>

#include "regard/io/safetensors_writer.h"
#include "regard/model/decoder.h"

namespace regard {

inline DecoderConfig tiny_llama_config() {
  return completed({.vocabulary = 13,
                    .num_layers = 2,
                    .num_heads = 2,
                    .num_kv_heads = 1,
                    .width = 8,
                    .feed_forward = 12,
                    .max_positions = 16,
                    .norm = NormKind::rms,
                    .norm_epsilon = 1e-6,
                    .positions = PositionKind::rotary,
                    .rotary_base = 100,
                    .feed_forward_kind = FeedForwardKind::swiglu,
                    .tied = false});
}

// All parameters in the order of decoder_parameters(); exact in float.
inline std::vector<float> tiny_parameters(const DecoderConfig& config) {
  std::vector<float> all;
  for (const DecoderParameter& parameter : decoder_parameters(config)) {
    for (Index i = 0; i < parameter.size(); ++i) {
      const auto number = static_cast<Index>(all.size());
      const float r = static_cast<float>(7919 * number % 2003 - 1001) / 4096;
      all.push_back(parameter.kind == ParameterKind::gain ? 1 + r / 4 : r);
    }
  }
  return all;
}

// Views of the parameters, as files hold them.
inline std::vector<StoredTensor> stored_parameters(const DecoderConfig& config, const std::vector<float>& all) {
  std::vector<StoredTensor> tensors;
  std::span<const float> rest = all;
  for (const DecoderParameter& parameter : decoder_parameters(config)) {
    const auto size = static_cast<std::size_t>(parameter.size());
    tensors.push_back({parameter.name, ElementType::float32, parameter.shape, std::as_bytes(rest.first(size))});
    rest = rest.subspan(size);
  }
  return tensors;
}

}  // namespace regard
