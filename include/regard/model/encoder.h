// SPDX-License-Identifier: Apache-2.0
//
// An encoder of the BERT family (Devlin et al., arXiv 1810.04805), run on the operators of this library, with every
// number on the way kept.
//
//     token ids (L) ── word + position + type, norm ──▶ embedded (L, E)
//     N layers:  input ── attention, + input, norm ──▶ attention_normed ── feed-forward, + itself, norm ──▶ output
//
// Extents: L tokens, E width, H heads of D = E / H, F feed-forward, V vocabulary, P positions, T types, N layers.
// Layers, heads and tokens count from 0. Every formula, with the names of the tensors and how another family of models
// joins: docs/model.md. Read next: safetensors.h, src/model/encoder/encoder.cpp, src/model/encoder/encoder_family.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "regard/attention.h"
#include "regard/io/safetensors.h"
#include "regard/linear.h"

namespace regard::inline v0 {

struct EncoderConfig {
  Index vocabulary = 0;     // V
  Index num_layers = 0;     // N
  Index num_heads = 0;      // H, divides E
  Index width = 0;          // E
  Index feed_forward = 0;   // F
  Index max_positions = 0;  // P
  Index num_types = 0;      // T
  double norm_epsilon = 0;
  std::string activation;  // "gelu": ½ x (1 + erf(x / √2))
  Index head_size() const { return width / num_heads; }
};

// Matrices are seen as (in, out), so that output = input · W + b, whichever way the file stores them.
// Head h owns columns h·D … (h + 1)·D − 1 of w_query, w_key, w_value, and those rows of w_output.
struct EncoderLayer {
  TensorView<const float, 2> w_query, w_key, w_value, w_output;         // (E, E)
  TensorView<const float, 1> b_query, b_key, b_value, b_output;         // (E)
  TensorView<const float, 1> norm_attention_gain, norm_attention_bias;  // (E)
  TensorView<const float, 2> w_up;                                      // (E, F)
  TensorView<const float, 1> b_up;                                      // (F)
  TensorView<const float, 2> w_down;                                    // (F, E)
  TensorView<const float, 1> b_down;                                    // (E)
  TensorView<const float, 1> norm_output_gain, norm_output_bias;        // (E)
  // Copies of the matrices above, which load_encoder packs once and encode computes with.
  PackedLinear<float> packed_projections;  // (E, 3E): w_query, w_key, w_value side by side
  PackedLinear<float> packed_output, packed_up, packed_down;
};

// What load_encoder returns. All copies share the memory under the views.
struct Encoder {
  EncoderConfig config;
  TensorView<const float, 2> word_table;                                // (V, E)
  TensorView<const float, 2> position_table;                            // (P, E)
  TensorView<const float, 2> type_table;                                // (T, E)
  TensorView<const float, 1> norm_embedding_gain, norm_embedding_bias;  // (E)
  std::vector<EncoderLayer> layers;                                     // N
  std::string family;                                                   // model_type of config.json: "bert"
  std::shared_ptr<const Checkpoint> checkpoint;      // the file or files; its sha256() names the model
  std::vector<std::shared_ptr<const float>> memory;  // under the views
};

// Reads config.json and model.safetensors (or its shards) of a folder as Hugging Face lays it out.
// Parameters stored in f64, f16 or bf16 are computed with as f32.
// Throws regard::DataError with the file's path: a field of config.json that is missing, of the wrong kind, out of
// range or asks for what is not built here (with its byte offset); one error that lists every tensor that is missing,
// unknown, misshaped or of a type that holds no real numbers; parameters that do not fit in memory, with both numbers.
// Throws regard::Cancelled where runtime.stop is requested.
REGARD_EXPORT Encoder load_encoder(const std::string& folder, const ModelFileOptions& options = {},
                                   const Runtime& runtime = {});

struct EncoderOptions {
  // Indices of tokens that no query sees as a key, in any layer: a boolean mask. They still ask, and a query that sees
  // no key at all gets context 0. Any order; twice is once.
  std::vector<Index> hidden_keys;
};

struct LayerTrace {
  Tensor<float, 2> input;                       // (L, E)
  Tensor<float, 3> query, key, value, context;  // (H, L, D), with biases
  Tensor<float, 2> row_max, row_sum;            // (H, L)
  Tensor<float, 2> attention_output;            // (L, E): joined context · W_output + b_output
  Tensor<float, 2> attention_normed;            // (L, E): norm(input + attention_output)
  Tensor<float, 2> feed_forward;                // (L, E): gelu(attention_normed · W_up + b_up) · W_down + b_down
  Tensor<float, 2> output;                      // (L, E): norm(attention_normed + feed_forward)
};

struct EncoderTrace {
  std::vector<Index> ids;                 // (L)
  std::vector<Index> hidden_keys;         // as asked for
  Tensor<float, 2> word, position, type;  // (L, E): rows of the tables; position i at token i, type 0
  Tensor<float, 2> embedded;              // (L, E): norm(word + position + type)
  std::vector<LayerTrace> layers;         // N

  // After the last layer.
  const Tensor<float, 2>& output() const { return layers.empty() ? embedded : layers.back().output; }
};

// Runs the encoder on one text's token ids, all of them, [CLS] and [SEP] included. Attention scale is 1 / √D.
// norm is layer_norm_forward (layer_norm.h), gelu that of linear_forward (linear.h).
// The same bits for any number of threads.
// Throws std::invalid_argument before any work: more than max_positions ids, an id outside the vocabulary, a hidden key
// that is no token; afterwards only std::bad_alloc and regard::Cancelled.
REGARD_EXPORT EncoderTrace encode(const Encoder& encoder, std::span<const Index> ids,
                                  const EncoderOptions& options = {}, const Runtime& runtime = {});

// The weights, or scores (q·k / √D, −∞ at hidden keys), of one layer: (H, L, L), queries then keys; exact, by
// attention_weights from query, key, row_max and row_sum. Throws std::invalid_argument for a layer that does not exist.
REGARD_EXPORT Tensor<float, 3> encoder_weights(const EncoderTrace& trace, Index layer,
                                               WeightsKind kind = WeightsKind::weights, const Runtime& runtime = {});

// What one head hands on: its context · its rows of W_output, without bias: (L, E). Over all heads these sum, with
// b_output, to attention_output, but for rounding.
// Throws std::invalid_argument for a layer or head that does not exist; likewise the functions below.
REGARD_EXPORT Tensor<float, 2> head_output(const Encoder& encoder, const EncoderTrace& trace, Index layer, Index head,
                                           const Runtime& runtime = {});

// How long a key's answer is at weight 1: ‖v_key · W_output(head)‖₂ for every head and key of a layer: (H, L).
REGARD_EXPORT Tensor<double, 2> value_norms(const Encoder& encoder, const EncoderTrace& trace, Index layer,
                                            const Runtime& runtime = {});

// "contribution": ‖weight · v_key · W_output(head)‖₂ for every key of one query's row: (L).
REGARD_EXPORT std::vector<double> contribution_norms(const Encoder& encoder, const EncoderTrace& trace, Index layer,
                                                     Index head, Index query, const Runtime& runtime = {});

// The mean of some rows of states (L, E): a word of several pieces is the mean of its pieces. No rows: zeros.
// Throws std::invalid_argument for a row that does not exist.
REGARD_EXPORT std::vector<float> mean_rows(const Tensor<float, 2>& states, std::span<const Index> rows);

// The mean of the last layer's output over all tokens (E), and that divided by its norm ‖·‖₂ (a vector shorter than
// 10⁻¹² by that): the sentence's vector as sentence-transformers makes it. No tokens: zeros.
REGARD_EXPORT std::vector<float> mean_pooled(const EncoderTrace& trace);
REGARD_EXPORT std::vector<float> mean_pooled_normalised(const EncoderTrace& trace);

}  // namespace regard::inline v0
