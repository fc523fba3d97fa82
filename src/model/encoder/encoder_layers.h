// SPDX-License-Identifier: Apache-2.0
//
// What encode and embed_tokens share: one layer over the rows of R tokens, of one text or of many.
//
//     input (R, E) ─ projections ─▶ (R, 3E) ─ attention ─▶ context (R, E) ─ output, + input, norm ─▶ attention_normed
//     attention_normed ─ up, gelu ─▶ inner (R, F) ─ down, + attention_normed, norm ─▶ output (R, E)
//
// Read next: encoder_layers.cpp, encoder.cpp, embed.cpp.
#pragma once

#include <span>
#include <string>

#include "regard/model/encoder.h"

namespace regard::inline v0::internal {

// Throws std::invalid_argument "operation: …" for more ids than positions, and for an id outside the vocabulary.
void check_ids(const std::string& operation, const EncoderConfig& config, std::span<const Index> ids);

// What a layer writes, for R tokens; to be used again for the next layer.
struct LayerRows {
  LayerRows(Index rows, const EncoderConfig& config);
  Tensor<float, 2> projected;  // (R, 3E): query, key and value side by side, with biases
  Tensor<float, 2> context, attention_output, attention_normed;
  Tensor<float, 2> inner;  // (R, F)
  Tensor<float, 2> feed_forward, output;
};

enum class Projection { query, key, value };

// One of the three in the columns of projected: (1, H, R, D).
TensorView<const float, 4> heads_of(const Tensor<float, 2>& projected, Projection projection,
                                    const EncoderConfig& config);
// (R, E) seen as (1, H, R, D).
TensorView<float, 4> heads_of(Tensor<float, 2>& joined, const EncoderConfig& config);

// sums.context is not read: it is rows.context.
void run_layer(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input,
               const AttentionOptions& options, AttentionOutputs sums, LayerRows& rows, const Runtime& runtime);

}  // namespace regard::inline v0::internal
