// SPDX-License-Identifier: Apache-2.0
//
// Shared by encode and embed_tokens: one layer applied to the rows of R tokens, from one or several texts.
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

// The outputs of a layer for R tokens; reused for the next layer.
struct LayerRows {
  LayerRows(Index rows, const EncoderConfig& config);
  Tensor<float, 2> projected;  // (R, 3E): query, key and value concatenated, with biases
  Tensor<float, 2> context, attention_output, attention_normed;
  Tensor<float, 2> inner;  // (R, F)
  Tensor<float, 2> feed_forward, output;
};

enum class Projection { query, key, value };

// Query, key or value in the columns of `projected`: (1, H, R, D).
TensorView<const float, 4> heads_of(const Tensor<float, 2>& projected, Projection projection,
                                    const EncoderConfig& config);
// (R, E) viewed as (1, H, R, D).
TensorView<float, 4> heads_of(Tensor<float, 2>& joined, const EncoderConfig& config);

// The layer up to rows.context. sums.context is ignored: rows.context is used.
void attend(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input,
            const AttentionOptions& options, AttentionOutputs sums, LayerRows& rows, const Runtime& runtime);
// The layer from rows.context on, row by row.
void finish_layer(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input, LayerRows& rows,
                  const Runtime& runtime);
// Both of these.
void run_layer(const Encoder& encoder, const EncoderLayer& layer, TensorView<const float, 2> input,
               const AttentionOptions& options, AttentionOutputs sums, LayerRows& rows, const Runtime& runtime);

}  // namespace regard::inline v0::internal
