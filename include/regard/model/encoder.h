// SPDX-License-Identifier: Apache-2.0
/// @file
/// An encoder of the BERT family (Devlin et al., arXiv 1810.04805), built on the operators of this library. Every
/// intermediate result is kept.
///
/// @verbatim
///     token ids (L) ── word + position + type, norm ──▶ embedded (L, E)
///     N layers:  input ── attention, + input, norm ──▶ attention_normed ── feed-forward, + itself, norm ──▶ output
/// @endverbatim
///
/// Extents: L tokens, width E, H heads of size D = E / H, feed-forward width F, vocabulary size V, P positions, T token
/// types, N layers. Layers, heads and tokens are numbered from 0.
///
/// docs/reference/model.md lists all formulas and tensor names, and explains how to add another model family.
///
/// Read next: safetensors.h, src/model/encoder/encoder.cpp, src/model/encoder/encoder_family.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/attention.h"
#include "regard/io/safetensors.h"
#include "regard/linear.h"
#include "regard/model/trace.h"

namespace regard::inline v0 {

/// The extents and settings of an encoder, from config.json.
struct EncoderConfig {
  Index vocabulary = 0;     ///< V, number of rows of the word table.
  Index num_layers = 0;     ///< N, number of layers.
  Index num_heads = 0;      ///< H, number of heads; a divisor of E.
  Index width = 0;          ///< E, size of the residual stream.
  Index feed_forward = 0;   ///< F, width of the feed-forward layer.
  Index max_positions = 0;  ///< P, maximum number of tokens.
  Index num_types = 0;      ///< T, number of token types.
  double norm_epsilon = 0;  ///< ε, added to the variance in every layer norm.
  std::string activation;   ///< "gelu": ½ x (1 + erf(x / √2)).
  /// Returns D, the size of a head.
  Index head_size() const { return width / num_heads; }
};

/// The parameters of one layer.
///
/// Matrices are viewed as (in, out), so that output = input · W + b, regardless of how the file stores them. Head h
/// uses columns h·D … (h + 1)·D − 1 of w_query, w_key and w_value, and the same rows of w_output.
struct EncoderLayer {
  TensorView<const float, 2> w_query;              ///< Query projection, (E, E).
  TensorView<const float, 2> w_key;                ///< Key projection, (E, E).
  TensorView<const float, 2> w_value;              ///< Value projection, (E, E).
  TensorView<const float, 2> w_output;             ///< Output projection, (E, E).
  TensorView<const float, 1> b_query;              ///< Bias of the query projection, (E).
  TensorView<const float, 1> b_key;                ///< Bias of the key projection, (E).
  TensorView<const float, 1> b_value;              ///< Bias of the value projection, (E).
  TensorView<const float, 1> b_output;             ///< Bias of the output projection, (E).
  TensorView<const float, 1> norm_attention_gain;  ///< Gain of the layer norm after attention, (E).
  TensorView<const float, 1> norm_attention_bias;  ///< Bias of the layer norm after attention, (E).
  TensorView<const float, 2> w_up;                 ///< First matrix of the feed-forward layer, (E, F).
  TensorView<const float, 1> b_up;                 ///< Bias of w_up, (F).
  TensorView<const float, 2> w_down;               ///< Second matrix of the feed-forward layer, (F, E).
  TensorView<const float, 1> b_down;               ///< Bias of w_down, (E).
  TensorView<const float, 1> norm_output_gain;     ///< Gain of the layer norm after the feed-forward layer, (E).
  TensorView<const float, 1> norm_output_bias;     ///< Bias of the layer norm after the feed-forward layer, (E).
  /// Packed copy of w_query, w_key and w_value, joined along their columns, (E, 3E).
  ///
  /// load_encoder() packs the matrices once; encode() uses the packed copies.
  PackedLinear<float> packed_projections;
  PackedLinear<float> packed_output;  ///< Packed copy of w_output.
  PackedLinear<float> packed_up;      ///< Packed copy of w_up.
  PackedLinear<float> packed_down;    ///< Packed copy of w_down.
};

/// A model as returned by load_encoder(). All copies share the memory of the parameters.
struct Encoder {
  EncoderConfig config;                              ///< Extents and settings.
  StoredMatrix word_table;                           ///< Word embeddings, (V, E).
  TensorView<const float, 2> position_table;         ///< Position embeddings, (P, E).
  TensorView<const float, 2> type_table;             ///< Token type embeddings, (T, E).
  TensorView<const float, 1> norm_embedding_gain;    ///< Gain of the layer norm after the embeddings, (E).
  TensorView<const float, 1> norm_embedding_bias;    ///< Bias of the layer norm after the embeddings, (E).
  std::vector<EncoderLayer> layers;                  ///< The N layers.
  std::string family;                                ///< The `model_type` in config.json: "bert".
  std::shared_ptr<const Checkpoint> checkpoint;      ///< The model files; Checkpoint::sha256() identifies the model.
  std::vector<std::shared_ptr<const float>> memory;  ///< The memory that the views refer to.
};

/// Loads a model from a folder in the Hugging Face layout: config.json, and either model.safetensors or its shards.
///
/// Parameters stored in f64, f16, bf16 or int8 (regard/io/rounding.h) are converted to f32, and all arithmetic is in
/// f32.
///
/// @param folder   Path of the folder.
/// @param options  File reading options and limits.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The model.
/// @throws DataError  in any of the following cases (the message states the path):
///                    - a field of config.json is missing, has the wrong type, is out of range or requests a feature
///                      that is not implemented (the message states the byte offset)
///                    - tensors are missing, unknown, of the wrong shape, or neither of a floating-point type nor int8
///                      with scales (one message lists all of them)
///                    - the parameters do not fit in memory (the message states the required and the available size)
///                    - Checkpoint::read_folder() rejects a file
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Encoder encoder = load_encoder("all-MiniLM-L6-v2");
/// const ModelTrace trace = encode(encoder, tokenizer.encode("a walk by the water").ids);
/// @endcode
REGARD_EXPORT Encoder load_encoder(const std::string& folder, const ModelFileOptions& options = {},
                                   const Runtime& runtime = {});

/// Loads a model whose files are already in memory. No file is opened.
///
/// @param config_json  The text of config.json.
/// @param safetensors  The bytes of model.safetensors. They are not copied; the encoder keeps them alive.
/// @param name         Name of the model, used in error messages in place of the folder's path.
/// @param options      Limits, and whether NaN and ±∞ are accepted.
/// @param runtime      Threads, scratch memory and cancellation.
/// @return The model that load_encoder() would return for a folder with the same files.
/// @throws DataError  as load_encoder() does.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT Encoder read_encoder(std::string_view config_json, SharedBytes safetensors, const std::string& name,
                                   const ModelFileOptions& options = {}, const Runtime& runtime = {});

/// Lists the tensors of a checkpoint that an encoder reads. The pooler and task heads, for example, are not included.
///
/// @param config_json  The text of config.json.
/// @param checkpoint   The checkpoint.
/// @param name         Name of the model for error messages, for example its folder.
/// @param options      Limits.
/// @param stop         Stop token.
/// @return The tensors: first the embeddings, then the layers in order. The scales of int8 matrices are not listed.
/// @throws DataError  as load_encoder() does.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const SharedBytes rounded = round_tensors(checkpoint, encoder_tensors(config, checkpoint, "minilm"), type);
/// const Encoder encoder = read_encoder(config, rounded, "minilm-int8");
/// @endcode
REGARD_EXPORT std::vector<const StoredTensor*> encoder_tensors(std::string_view config_json,
                                                               const Checkpoint& checkpoint, const std::string& name,
                                                               const ModelFileOptions& options = {},
                                                               const std::stop_token& stop = {});

/// Options for encode().
struct EncoderOptions {
  /// Indices of tokens that are hidden as keys: no query attends to them, in any layer or head.
  ///
  /// They are hidden by an ordinary boolean mask, and still act as queries. The context of a query that cannot attend
  /// to any key is 0. The order of the indices does not matter, and an index may be repeated.
  ///
  /// The mask for hidden_keys = {1} and L = 4 (rows are queries, columns are keys):
  /// @verbatim
  ///     1 0 1 1
  ///     1 0 1 1
  ///     1 0 1 1
  ///     1 0 1 1
  /// @endverbatim
  std::vector<Index> hidden_keys{};
  /// Indices of the tokens whose vectors after the last layer are needed; if empty, all tokens.
  ///
  /// In the last layer, attention_output and all later arrays are computed only for these tokens; the rows of all other
  /// tokens are 0. The order of the indices does not matter, and an index may be repeated.
  std::vector<Index> last_rows{};
};

/// Runs the encoder on the token ids of one text.
///
/// The scale of attention is 1 / √D, norm is layer_norm_forward(), and gelu is Activation::gelu of linear_forward().
///
/// @param encoder  The model.
/// @param ids      All token ids of the text, including [CLS] and [SEP], (L).
/// @param options  Hidden keys, and the tokens for which the last layer is computed.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return All intermediate results.
/// @throws InvalidArgument  before any work is done, if there are more than max_positions ids, if an id is outside the
///                          vocabulary, or if an element of hidden_keys or last_rows is not a valid token index.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The result is bit-identical for any number of threads, and each row is bit-identical regardless of last_rows.
///
/// @par Example
/// @code{.cpp}
/// const ModelTrace trace = encode(encoder, ids, {.hidden_keys = {3}});
/// const Tensor<float, 3> weights = trace_weights(trace, 0);  // of layer 0: (H, L, L)
/// @endcode
REGARD_EXPORT ModelTrace encode(const Encoder& encoder, std::span<const Index> ids, const EncoderOptions& options = {},
                                const Runtime& runtime = {});

/// Computes the output of one head: the product of its context and its rows of W_output, without the bias.
///
/// The sum of these outputs over all heads, plus b_output, equals attention_output up to rounding.
///
/// @param encoder  The model.
/// @param trace    Result of encode() with this model.
/// @param layer    Zero-based layer index.
/// @param head     Zero-based head index.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return One row per token, (L, E).
/// @throws InvalidArgument  if the layer or head does not exist, or if the trace is from another encoder.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Tensor<float, 2> output = head_output(encoder, trace, 0, 4);  // of layer 0, head 4
/// @endcode
REGARD_EXPORT Tensor<float, 2> head_output(const Encoder& encoder, const ModelTrace& trace, Index layer, Index head,
                                           const Runtime& runtime = {});

/// Computes the L2 norm of the contribution that each key makes with weight 1: `‖v_key · W_output(head)‖₂`.
///
/// @param encoder  The model.
/// @param trace    Result of encode() with this model.
/// @param layer    Zero-based layer index.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The norm for each head and key, (H, L).
/// @throws InvalidArgument  if the layer does not exist, or if the trace is from another encoder.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT Tensor<double, 2> value_norms(const Encoder& encoder, const ModelTrace& trace, Index layer,
                                            const Runtime& runtime = {});

/// Computes the L2 norm of the contribution of each key to one query: `‖weight · v_key · W_output(head)‖₂`.
///
/// @param encoder  The model.
/// @param trace    Result of encode() with this model.
/// @param layer    Zero-based layer index.
/// @param head     Zero-based head index.
/// @param query    Index of the query's token.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The norm for each key, (L).
/// @throws InvalidArgument  if the layer, head or query does not exist, or if the trace is from another encoder.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT std::vector<double> contribution_norms(const Encoder& encoder, const ModelTrace& trace, Index layer,
                                                     Index head, Index query, const Runtime& runtime = {});

/// Computes the mean of the last layer's output over all tokens.
///
/// @param trace  Result of encode().
/// @return The mean, (E); zeros if there are no tokens.
REGARD_EXPORT std::vector<float> mean_pooled(const ModelTrace& trace);
/// Computes mean_pooled() divided by its L2 norm, the sentence vector that sentence-transformers computes.
///
/// A norm below 10⁻¹² is replaced with 10⁻¹².
///
/// @param trace  Result of encode().
/// @return The vector, (E); zeros if there are no tokens.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<float> vector = mean_pooled_normalized(encode(encoder, ids));
/// @endcode
REGARD_EXPORT std::vector<float> mean_pooled_normalized(const ModelTrace& trace);

}  // namespace regard::inline v0
