// SPDX-License-Identifier: Apache-2.0
/// @file
/// Descriptions of decoder-only transformers: the extents and options of a model, and the names, shapes and order of
/// its parameters. Training (regard/train/) and models loaded from a folder use the same description.
///
/// @verbatim
///     token ids (L) ── table + positions ──▶ x (L, E)
///     N layers:   x += attention(norm(x))      causal; rotary position embeddings rotate query and key
///                 x += feed_forward(norm(x))
///     logits = norm(x) · tableᵀ                (L, V); an untied model has a separate output table
/// @endverbatim
///
/// Extents: L tokens, width E, H query heads, Hkv key/value heads, head size D, feed-forward width F, vocabulary size
/// V, P positions, N layers. Layers, heads and positions are numbered from 0.
///
/// Read next: src/model/decoder/decoder_config.cpp, decoder_json.cpp, regard/train/decoder_training.h.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "regard/activation.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Normalization before attention, before the feed-forward layer and before the output.
enum class NormKind {
  layer,  ///< layer_norm_forward() with a gain and, if DecoderConfig::biases is set, a bias.
  rms     ///< rms_norm_forward() with a gain.
};

/// Names used in files for the NormKind enumerators, in order.
inline constexpr std::array<std::string_view, 2> kNormNames{"layer", "rms"};

/// The position encoding of a model.
enum class PositionKind {
  learned,  ///< A table (P, E) that is added to the embeddings.
  rotary,   ///< rotary_forward() applied to query and key, with RotaryLayout::halves.
  none      ///< No position encoding, only the causal mask.
};

/// Names used in files for the PositionKind enumerators, in order.
inline constexpr std::array<std::string_view, 3> kPositionNames{"learned", "rotary", "none"};

/// The feed-forward layer, which maps a normalized row (E) to a row (E).
enum class FeedForwardKind {
  none,       ///< No feed-forward layers: an attention-only model.
  relu,       ///< relu(x · up) · down.
  gelu,       ///< gelu(x · up) · down.
  gelu_tanh,  ///< gelu_tanh(x · up) · down.
  swiglu      ///< (silu(x · gate) · (x · up)) · down.
};

/// Returns the activation of a feed-forward layer.
///
/// @param kind  Kind of feed-forward layer.
/// @return The activation with the same name. For swiglu, which swiglu_forward() computes, and for none, it is
///         Activation::none.
REGARD_EXPORT Activation activation_of(FeedForwardKind kind);

/// Names used in files for the FeedForwardKind enumerators, in order.
inline constexpr std::array<std::string_view, 5> kFeedForwardNames{"none", "relu", "gelu", "gelu_tanh", "swiglu"};

/// The extents and options of a decoder.
struct DecoderConfig {
  Index vocabulary = 0;                                       ///< V, number of token ids.
  Index num_layers = 1;                                       ///< N, number of layers.
  Index num_heads = 1;                                        ///< H, number of query heads.
  Index num_kv_heads = 0;                                     ///< Hkv, a divisor of H; 0 means H.
  Index width = 0;                                            ///< E, size of the residual stream.
  Index head_size = 0;                                        ///< D; 0 means E / H.
  Index feed_forward = 0;                                     ///< F; 0 means 4 · E, or 8 · ⌈E / 3⌉ for swiglu.
  Index max_positions = 0;                                    ///< P, maximum number of tokens.
  NormKind norm = NormKind::layer;                            ///< Kind of normalization.
  double norm_epsilon = 1e-5;                                 ///< ε, added to the variance or the mean square.
  PositionKind positions = PositionKind::learned;             ///< Kind of position encoding.
  double rotary_base = 10000;                                 ///< Base of the rotary angles.
  FeedForwardKind feed_forward_kind = FeedForwardKind::gelu;  ///< Kind of feed-forward layer.
  bool tied = true;                                           ///< Whether the output uses the embedding table.
  bool biases = false;                                        ///< Whether linear layers and layer norms have biases.
  bool operator==(const DecoderConfig&) const = default;      ///< Whether all fields are equal.
};

/// Replaces zeros with the default values that they stand for, and validates every field.
///
/// @param config  The configuration.
/// @return The configuration with nonzero num_kv_heads, head_size and feed_forward. With FeedForwardKind::none,
///         feed_forward remains 0.
/// @throws InvalidArgument  "decoder: width is X; expected …" if a field is out of range: an extent below 1 or above
///                          2²⁴ (num_layers: 4096), num_heads not divisible by num_kv_heads, a width not divisible by
///                          num_heads while head_size is 0, an odd head size with rotary position embeddings, a
///                          feed_forward other than 0 with FeedForwardKind::none, a negative or non-finite
///                          norm_epsilon, a rotary_base that is not positive, or more than 2⁴⁰ parameters.
///
/// @par Example
/// @code{.cpp}
/// const DecoderConfig config = completed({.vocabulary = 256, .num_heads = 4, .width = 64, .max_positions = 128});
/// const Index size = config.head_size;  // 16
/// @endcode
REGARD_EXPORT DecoderConfig completed(DecoderConfig config);

/// The kind of a parameter, which determines how it is initialized and optimized.
enum class ParameterKind {
  table,       ///< Token embeddings, (V, E); also the output of a tied model.
  positions,   ///< Position embeddings, (P, E).
  projection,  ///< A matrix (out, in) that reads the residual stream.
  residual,    ///< A matrix (out, in) whose result is added to the residual stream.
  output,      ///< The output of an untied model, (V, E).
  gain,        ///< Gain of a norm, (E).
  bias         ///< Bias of a linear layer or of a norm.
};

/// A parameter of a decoder.
struct DecoderParameter {
  std::string name;          ///< Name in files, for example "model.layers.0.self_attn.q_proj.weight".
  std::vector<Index> shape;  ///< Shape; a matrix has shape (out, in), as in torch.nn.Linear.
  ParameterKind kind;        ///< Kind of the parameter.
  Index layer;               ///< Index of its layer; −1 for a parameter outside the layers.
  /// Returns the number of elements.
  Index size() const {
    Index n = 1;
    for (Index extent : shape) n *= extent;
    return n;
  }
};

/// Lists the parameters of a decoder in the order in which training stores them.
///
/// The names follow Llama in transformers. With learned positions, the list also contains
/// "model.embed_positions.weight"; with DecoderConfig::biases, it also contains the biases. The parameters of query,
/// key and value are stored consecutively: first the three matrices, then the three biases. The same holds for gate
/// and up. The matrices of each group therefore form one matrix of concatenated rows.
///
/// @param config  The configuration.
/// @return The parameters.
/// @throws InvalidArgument  as completed() does.
///
/// @par Example
/// @code{.cpp}
/// for (const DecoderParameter& parameter : decoder_parameters(config)) std::puts(parameter.name.c_str());
/// @endcode
REGARD_EXPORT std::vector<DecoderParameter> decoder_parameters(const DecoderConfig& config);

/// Returns the total number of elements of all parameters.
///
/// @param config  The configuration.
/// @return The sum of DecoderParameter::size() over decoder_parameters().
/// @throws InvalidArgument  as completed() does.
REGARD_EXPORT Index decoder_size(const DecoderConfig& config);

/// Writes the configuration of a decoder as the text of a config.json file.
///
/// The field names follow Llama in transformers. A model with RMS norms, rotary position embeddings, SwiGLU and no
/// biases has the model_type "llama", and transformers loads its folder as LlamaForCausalLM. Any other model has the
/// model_type "regard_decoder" and the additional fields norm, positions, feed_forward and biases. The epsilon of layer
/// norms is stored in the field layer_norm_eps.
///
/// @param config  The configuration.
/// @return The JSON text, from which parse_decoder_config() returns completed(config).
/// @throws InvalidArgument  as completed() does.
REGARD_EXPORT std::string decoder_config_json(const DecoderConfig& config);

/// Reads the configuration of a decoder from the text of a config.json file.
///
/// The text may be untrusted. Fields that do not describe the computation are ignored.
///
/// @param text    The text, in UTF-8.
/// @param source  Name of the text for error messages, usually the path of the file.
/// @return The configuration, with defaults filled in by completed().
/// @throws DataError  "source: byte N: …" if the text is not valid JSON, or if a field is missing, has the wrong type,
///                    or has a value that is out of range or not supported.
///
/// @par Example
/// @code{.cpp}
/// const DecoderConfig same = parse_decoder_config(decoder_config_json(config), "config.json");
/// @endcode
REGARD_EXPORT DecoderConfig parse_decoder_config(std::string_view text, const std::string& source);

}  // namespace regard::inline v0
