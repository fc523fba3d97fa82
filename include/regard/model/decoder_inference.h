// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decoder loaded from a folder, and all intermediate results that it computes for a text.
///
/// @verbatim
///     token ids (L) ── token table + positions ──▶ embedded (L, E)
///     N layers:  input ── norm, causal attention, + input ──▶ residual ── norm, feed-forward, + residual ──▶ output
///     logits = norm(output) · tableᵀ                                                                    (L, V)
/// @endverbatim
///
/// Extents are as in decoder.h. Layers, heads and tokens are numbered from 0. docs/reference/model.md lists all
/// formulas.
///
/// Read next: generate.h, trace.h, src/model/decoder/decoder_layers.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "regard/io/safetensors.h"
#include "regard/linear.h"
#include "regard/model/decoder.h"
#include "regard/model/trace.h"

namespace regard::inline v0 {

/// The parameters of one layer. If the model lacks a parameter, its view is absent.
///
/// Matrices are viewed as (in, out), so that output = input · W + b; the file stores them as (out, in). Query head h
/// uses columns h·D … (h + 1)·D − 1 of w_query and the same rows of w_output.
struct DecoderLayer {
  TensorView<const float, 1> norm_attention_gain;     ///< Gain of the norm before attention, (E).
  TensorView<const float, 1> norm_attention_bias;     ///< Bias of the norm before attention, (E).
  TensorView<const float, 2> w_query;                 ///< Query projection, (E, H · D).
  TensorView<const float, 2> w_key;                   ///< Key projection, (E, Hkv · D).
  TensorView<const float, 2> w_value;                 ///< Value projection, (E, Hkv · D).
  TensorView<const float, 2> w_output;                ///< Output projection, (H · D, E).
  TensorView<const float, 1> b_query;                 ///< Bias of the query projection, (H · D).
  TensorView<const float, 1> b_key;                   ///< Bias of the key projection, (Hkv · D).
  TensorView<const float, 1> b_value;                 ///< Bias of the value projection, (Hkv · D).
  TensorView<const float, 1> b_output;                ///< Bias of the output projection, (E).
  TensorView<const float, 1> norm_feed_forward_gain;  ///< Gain of the norm before the feed-forward layer, (E).
  TensorView<const float, 1> norm_feed_forward_bias;  ///< Bias of the norm before the feed-forward layer, (E).
  TensorView<const float, 2> w_gate;                  ///< Gate of SwiGLU, (E, F).
  TensorView<const float, 2> w_up;                    ///< First matrix of the feed-forward layer, (E, F).
  TensorView<const float, 2> w_down;                  ///< Last matrix of the feed-forward layer, (F, E).
  TensorView<const float, 1> b_gate;                  ///< Bias of the gate, (F).
  TensorView<const float, 1> b_up;                    ///< Bias of w_up, (F).
  TensorView<const float, 1> b_down;                  ///< Bias of w_down, (E).
  /// Packed copy of w_query, w_key and w_value, joined along their columns, (E, (H + 2 Hkv) · D).
  ///
  /// load_decoder() packs the matrices once; all computation uses the packed copies.
  PackedLinear<float> packed_projections;
  std::vector<float> b_projections;   ///< b_query, b_key and b_value, joined; empty without biases.
  PackedLinear<float> packed_output;  ///< Packed copy of w_output.
  /// Packed copy of w_up, (E, F), or, with SwiGLU, of w_gate and w_up joined along their columns, (E, 2 F).
  PackedLinear<float> packed_up;
  std::vector<float> b_joined_up;   ///< b_up or, with SwiGLU, b_gate and b_up joined; empty without biases.
  PackedLinear<float> packed_down;  ///< Packed copy of w_down.
};

/// A model as returned by load_decoder(). All copies share the memory of the parameters.
struct Decoder {
  DecoderConfig config;                              ///< The configuration, with defaults filled in by completed().
  TensorView<const float, 2> token_table;            ///< Token embeddings, (V, E).
  TensorView<const float, 2> position_table;         ///< Position embeddings, (P, E), if positions are learned.
  std::vector<DecoderLayer> layers;                  ///< The N layers.
  TensorView<const float, 1> norm_gain;              ///< Gain of the norm before the output, (E).
  TensorView<const float, 1> norm_bias;              ///< Bias of the norm before the output, (E).
  TensorView<const float, 2> w_logits;               ///< Output matrix, (E, V): in a tied model, the token table.
  PackedLinear<float> packed_logits;                 ///< Packed copy of w_logits.
  std::shared_ptr<const Checkpoint> checkpoint;      ///< The model files; Checkpoint::sha256() identifies the model.
  std::vector<std::shared_ptr<const float>> memory;  ///< The memory that the views refer to.
};

/// Loads a decoder from a folder that contains config.json and either model.safetensors or its shards.
///
/// parse_decoder_config() reads config.json. The other files must contain the tensors listed by decoder_parameters().
/// Parameters stored in f64, f16 or bf16 are converted to f32, and all arithmetic is in f32. The tensors
/// `model.layers.N.self_attn.rotary_emb.inv_freq` and, in a tied model, `lm_head.weight` may be present, but they are
/// not read.
///
/// @param folder   Path of the folder.
/// @param options  File reading options and limits.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The model.
/// @throws DataError  in any of the following cases (the message states the path):
///                    - parse_decoder_config() rejects config.json
///                    - tensors are missing, unknown, of the wrong shape or not of a floating-point type (one message
///                      lists all of them)
///                    - the parameters do not fit in memory (the message states the required and the available size)
///                    - Checkpoint::read_folder() rejects a file
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Decoder decoder = load_decoder("run/step-000200");
/// const DecoderTrace trace = decode_trace(decoder, ids);
/// @endcode
REGARD_EXPORT Decoder load_decoder(const std::string& folder, const ModelFileOptions& options = {},
                                   const Runtime& runtime = {});

/// Options for decode_trace().
struct DecodeOptions {
  /// Indices of tokens that are hidden as keys: no query attends to them, in any layer or head.
  ///
  /// They still act as queries and keep their positions. The context of a query that cannot attend to any key is 0.
  ///
  /// The mask for hidden_keys = {1} and L = 4 (rows are queries, columns are keys):
  /// @verbatim
  ///     1 0 0 0
  ///     1 0 0 0
  ///     1 0 1 0
  ///     1 0 1 1
  /// @endverbatim
  std::vector<Index> hidden_keys{};
  bool logits = true;  ///< Whether to compute DecoderTrace::normed and DecoderTrace::logits.
};

/// All intermediate results of a decoder for one text.
struct DecoderTrace : ModelTrace {
  Tensor<float, 2> normed;  ///< norm(output()), (L, E).
  Tensor<float, 2> logits;  ///< normed · w_logits: row i predicts token i + 1, (L, V).
};

/// Runs a decoder on the token ids of one text.
///
/// The scale of attention is 1 / √D, and query i attends to keys 0 … i.
///
/// @param decoder  The model.
/// @param ids      The token ids, (L).
/// @param options  Hidden keys, and whether to compute logits.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return All intermediate results.
/// @throws InvalidArgument  before any work is done, if there are more than max_positions ids, if an id is outside the
///                          vocabulary, or if a hidden key is not a valid token index.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The result is bit-identical for any number of threads, and each row is bit-identical regardless of the tokens that
/// follow. The logits are bit-identical to those of DecoderTraining<float> without bf16_products and to those of
/// DecoderSession.
///
/// @par Example
/// @code{.cpp}
/// const DecoderTrace trace = decode_trace(decoder, ids);
/// const Tensor<float, 2> output = head_output(decoder, trace, 0, 4);  // of layer 0, head 4: (L, E)
/// @endcode
REGARD_EXPORT DecoderTrace decode_trace(const Decoder& decoder, std::span<const Index> ids,
                                        const DecodeOptions& options = {}, const Runtime& runtime = {});

/// Computes the output of one head: the product of its context and its rows of W_output, without the bias.
///
/// The sum of these outputs over all heads, plus b_output, equals attention_output up to rounding.
///
/// @param decoder  The model.
/// @param trace    Result of decode_trace() with this model.
/// @param layer    Zero-based layer index.
/// @param head     Zero-based query head index.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return One row per token, (L, E).
/// @throws InvalidArgument  if the layer or head does not exist, or if the trace is from another model.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT Tensor<float, 2> head_output(const Decoder& decoder, const ModelTrace& trace, Index layer, Index head,
                                           const Runtime& runtime = {});

/// Computes the L2 norm of the contribution that each key makes with weight 1: `‖v_key · W_output(head)‖₂`.
///
/// @param decoder  The model.
/// @param trace    Result of decode_trace() with this model.
/// @param layer    Zero-based layer index.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The norm for each query head and key, (H, L).
/// @throws InvalidArgument  if the layer does not exist, or if the trace is from another model.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT Tensor<double, 2> value_norms(const Decoder& decoder, const ModelTrace& trace, Index layer,
                                            const Runtime& runtime = {});

}  // namespace regard::inline v0
