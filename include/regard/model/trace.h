// SPDX-License-Identifier: Apache-2.0
/// @file
/// All intermediate results that a model computes for one text. Encoders (encoder.h) and decoders
/// (decoder_inference.h) produce the same kind of trace.
///
/// @verbatim
///     encoder    input ─────────── attention ─(+)─ norm ──▶ attention_normed ─ feed-forward ─(+)─ norm ──▶ output
///                  └──────────────────────────┘                    └──────────────────────────┘
///     decoder    input ─ norm ──▶ attention_input ─ attention ─(+)──▶ residual ─ norm ─ feed-forward ─(+)──▶ output
///                  └────────────────────────────────────────────┘        └─────────────────────────────┘
/// @endverbatim
///
/// Extents: L tokens, width E, H heads of size D, N layers. Layers, heads and tokens are numbered from 0.
///
/// Read next: encoder.h, decoder_inference.h, src/model/trace.cpp.
#pragma once

#include <span>
#include <vector>

#include "regard/attention.h"

namespace regard::inline v0 {

/// All intermediate results of one layer.
struct LayerTrace {
  Tensor<float, 2> input;             ///< Input of the layer, (L, E).
  Tensor<float, 2> attention_input;   ///< Decoder: norm(input), the input of the projections, (L, E). Encoder: empty.
  Tensor<float, 3> query;             ///< Query projection with its bias, (H, L, D); after rotation, if any.
  Tensor<float, 3> key;               ///< Key projection, as for query; repeated for heads that share a key.
  Tensor<float, 3> value;             ///< Value projection with its bias, (H, L, D); repeated as for key.
  Tensor<float, 3> context;           ///< weights · value, (H, L, D).
  Tensor<float, 2> row_max;           ///< Largest score of each row, (H, L).
  Tensor<float, 2> row_sum;           ///< Σ exp(score − row_max), (H, L).
  Tensor<float, 2> attention_output;  ///< Joined context · W_output + b_output, (L, E).
  Tensor<float, 2> residual;          ///< Decoder: input + attention_output, (L, E). Encoder: empty.
  Tensor<float, 2> attention_normed;  ///< norm(input + attention_output), (L, E); empty without feed-forward layers.
  Tensor<float, 2> feed_forward;      ///< Output of the feed-forward layer, (L, E); empty if there is none.
  Tensor<float, 2>
      output;  ///< Encoder: norm(attention_normed + feed_forward). Decoder: residual + feed_forward. (L, E)
};

/// All intermediate results for one text.
struct ModelTrace {
  std::vector<Index> ids;          ///< Token ids, (L).
  std::vector<Index> hidden_keys;  ///< Indices of tokens that no query attends to, as given.
  bool causal = false;             ///< Whether queries attend only to their own and earlier tokens, as in decoders.
  Tensor<float, 2> word;           ///< Rows of the word or token table, one per token, (L, E).
  Tensor<float, 2> position;       ///< Rows of the position table, row i for token i, (L, E); empty if none.
  Tensor<float, 2> type;           ///< Encoder: row 0 of the type table for every token, (L, E). Decoder: empty.
  Tensor<float, 2> embedded;       ///< Encoder: norm(word + position + type). Decoder: word + position. (L, E)
  std::vector<LayerTrace> layers;  ///< The N layers.

  /// Returns the states after the last layer, (L, E).
  const Tensor<float, 2>& output() const { return layers.empty() ? embedded : layers.back().output; }
};

/// Computes the weights or the scores of one layer from query, key, row_max and row_sum.
///
/// @param trace    Result of encode() or decode_trace().
/// @param layer    Zero-based layer index.
/// @param kind     Weights, or scores (q·k / √D, −∞ at keys that are not visible).
/// @param runtime  Threads, scratch memory and cancellation.
/// @return Queries by keys for each head, (H, L, L).
/// @throws InvalidArgument  if the layer does not exist.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The result is exact: it is bit-identical to the weights that attention_forward() would write.
///
/// @par Example
/// @code{.cpp}
/// const Tensor<float, 3> scores = trace_weights(trace, 0, WeightsKind::scores);  // of layer 0
/// @endcode
REGARD_EXPORT Tensor<float, 3> trace_weights(const ModelTrace& trace, Index layer,
                                             WeightsKind kind = WeightsKind::weights, const Runtime& runtime = {});

/// Computes the mean of selected rows, for example of the vectors of a word's pieces.
///
/// @param states  States of the tokens, (L, E).
/// @param rows    Indices of the rows. If the list is empty, the mean is 0.
/// @return The mean, (E).
/// @throws InvalidArgument  if a row does not exist.
REGARD_EXPORT std::vector<float> mean_rows(const Tensor<float, 2>& states, std::span<const Index> rows);

}  // namespace regard::inline v0
