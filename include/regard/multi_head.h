// SPDX-License-Identifier: Apache-2.0
/// @file
/// A multi-head attention block on (B, L, E): project, split into heads, attend, join, project back.
///
/// @code{.unparsed}
/// query   = X · W_query + b_query → (B, H, L, D)     key and value likewise, from X or from another sequence
/// context = attention(query, key, value)             (B, H, L, Dv)
/// output  = join(context) · W_output + b_output      (B, L, E_out)
/// @endcode
///
/// - Extents: B batch entries, L queries, S keys, H query heads, Hkv key/value heads, head sizes D and Dv, input width
///   E, width E_kv of the sequence from which key and value are computed, output width E_out.
/// - Heads are split and joined by strides, without copies. The only copy is made for a requested context whose heads
///   cannot be joined by strides.
/// - Contract of attention: docs/reference/semantics.md. Source: Vaswani et al., arXiv 1706.03762, section 3.2.2.
///
/// Read next: attention.h, src/layers/multi_head.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

/// Parameters of a multi-head attention block.
///
/// Query head h uses columns `h·D` … `(h + 1)·D − 1` of w_query and reads key/value head `g = ⌊h / (H / Hkv)⌋`. That
/// head uses columns `g·D` … `(g + 1)·D − 1` of w_key and `g·Dv` … `(g + 1)·Dv − 1` of w_value. Strides are arbitrary.
///
/// @tparam T  float or double.
template <class T>
struct MultiHeadParameters {
  /// Number of query heads, H.
  Index num_heads = 1;
  /// Number of key/value heads, Hkv. If 0, num_heads is used.
  Index num_kv_heads = 0;
  /// Projection to query, (E, H·D).
  TensorView<const T, 2> w_query{};
  /// Projection to key, (E_kv, Hkv·D).
  TensorView<const T, 2> w_key{};
  /// Projection to value, (E_kv, Hkv·Dv).
  TensorView<const T, 2> w_value{};
  /// Projection of the joined context, (H·Dv, E_out). If absent, the output is the joined context, (B, L, H·Dv).
  TensorView<const T, 2> w_output{};
  /// Bias of query, (H·D), or absent.
  TensorView<const T, 1> b_query{};
  /// Bias of key, (Hkv·D), or absent.
  TensorView<const T, 1> b_key{};
  /// Bias of value, (Hkv·Dv), or absent.
  TensorView<const T, 1> b_value{};
  /// Bias of the output, (E_out), or absent; only with w_output.
  TensorView<const T, 1> b_output{};
};

/// Views that multi_head_attention_forward() writes. Only output is required.
///
/// The other views receive the intermediate results, bit-identical to those from which output is computed. An output
/// must not overlap an input or another output.
///
/// @tparam T  float or double.
template <class T>
struct MultiHeadOutputs {
  /// Output of the block, (B, L, E_out).
  TensorView<T, 3> output{};
  /// Projected queries, (B, H, L, D).
  TensorView<T, 4> query{};
  /// Projected keys, (B, Hkv, S, D).
  TensorView<T, 4> key{};
  /// Projected values, (B, Hkv, S, Dv).
  TensorView<T, 4> value{};
  /// Context of each head, (B, H, L, Dv).
  TensorView<T, 4> context{};
  /// Largest visible score of each row, (B, H, L).
  TensorView<T, 3> row_max{};
  /// `Σ exp(score − row_max)` of each row, (B, H, L).
  TensorView<T, 3> row_sum{};
  /// Softmax weights, (B, H, L, S).
  TensorView<T, 4> weights{};
  /// Fingerprint of the options, which allows multi_head_attention_backward() to detect options that differ. Not
  /// written if nullptr.
  AttentionFingerprint* fingerprint = nullptr;
};

/// Computes a multi-head attention block.
///
/// @tparam T          float or double.
/// @param input       (B, L, E), any strides.
/// @param memory      (B, S, E_kv), the sequence from which key and value are computed (cross-attention). If absent,
///                    they are computed from input (self-attention).
/// @param parameters  Projections and numbers of heads.
/// @param outputs     Views to write.
/// @param options     Visibility, bias, scale and dropout, as in attention_forward().
/// @param runtime     Threads, scratch memory and cancellation.
///
/// Writes every view given in outputs.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// multi_head_attention_forward<float>(
///     input, {}, {.num_heads = 8, .w_query = w_query, .w_key = w_key, .w_value = w_value, .w_output = w_output},
///     {.output = output}, {.causal = true});
/// @endcode
template <class T>
REGARD_EXPORT void multi_head_attention_forward(std::type_identity_t<TensorView<const T, 3>> input,
                                                std::type_identity_t<TensorView<const T, 3>> memory,
                                                const std::type_identity_t<MultiHeadParameters<T>>& parameters,
                                                const MultiHeadOutputs<T>& outputs,
                                                const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
