// SPDX-License-Identifier: Apache-2.0
//
// Shared by decode_trace and DecoderSession: the rows of R tokens through the layers of a decoder.
//
//     input (R, E) ─ norm ─ projections ─▶ (R, (H + 2 Hkv) · D) ─ rotary ─ attention ─▶ context ─ output, + input ─▶
//     residual residual ─ norm ─ up, activation ─▶ activated (R, F) ─ down, + residual ─▶ output (R, E)
//
// Attention differs: all keys of a trace are rows of the same call, those of a session are in its caches.
// Read next: decoder_layers.cpp, decoder_trace.cpp, generate.cpp.
#pragma once

#include <functional>
#include <span>

#include "regard/model/decoder_inference.h"

namespace regard::inline v0::internal {

// Throws InvalidArgument "operation: …" if the tokens `first` … do not fit into the positions, and for an id outside
// the vocabulary.
void check_decoder_ids(const char* operation, const DecoderConfig& config, Index first, std::span<const Index> ids);

// The results of a layer for R tokens; reused for the next layer.
struct DecoderRows {
  DecoderRows(Index rows, const DecoderConfig& config);
  Tensor<float, 2> normed;     // of input
  Tensor<float, 2> projected;  // query, key and value concatenated, with biases, query and key after rotation
  Tensor<float, 2> context;    // (R, H · D)
  Tensor<float, 2> attention_output, residual;
  Tensor<float, 2> normed_residual;
  Tensor<float, 2> up, activated;  // with SwiGLU, `up` has gate and up
  Tensor<float, 2> feed_forward, output;
};

// Query, key and value in the columns of rows.projected, and the context: (1, heads, R, D).
struct DecoderHeads {
  TensorView<float, 4> query, key, value, context;
};
DecoderHeads heads_of(DecoderRows& rows, const DecoderConfig& config);

// Rows of the token table, and of the position table if there is one, from position `first` on.
void embed_ids(const Decoder& decoder, std::span<const Index> ids, Index first, Tensor<float, 2>& tokens,
               Tensor<float, 2>& positions);
// embedded = tokens + positions.
void add_rows(const Tensor<float, 2>& a, const Tensor<float, 2>& b, Tensor<float, 2>& sum);

// The norm of a decoder: that of a layer, or the last one.
void norm_rows(const DecoderConfig& config, const TensorView<const float, 2>& input,
               const TensorView<const float, 1>& gain, const TensorView<const float, 1>& bias, Tensor<float, 2>& output,
               const Runtime& runtime);

// One layer for tokens from position `first` on. `attend` writes the context.
void run_decoder_layer(const Decoder& decoder, const DecoderLayer& layer, const Tensor<float, 2>& input, Index first,
                       const std::function<void(const DecoderHeads& heads)>& attend, DecoderRows& rows,
                       const Runtime& runtime);

}  // namespace regard::inline v0::internal
