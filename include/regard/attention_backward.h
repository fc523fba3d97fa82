// SPDX-License-Identifier: Apache-2.0
//
// Scaled dot-product attention, backward: what a loss's gradient of the context says of everything that made it.
//
//     weights     = exp(scores − row_max) / row_sum            rebuilt, with the bits of the forward pass
//     delta       = Σ over Dv of context · grad_context − grad_lse
//     grad_value  = weightsᵀ · grad_context
//     grad_scores = weights · (grad_context · valueᵀ − delta)  elementwise; this is grad_bias, too
//     grad_query  = scale · grad_scores · key                  with a soft cap, grad_scores · (1 − tanh²) in both
//     grad_key    = scale · grad_scoresᵀ · query
//     grad_sinks  = − Σ over rows of sink weight · delta
//
// Names and extents as in attention.h. Five products of matrices, where the forward pass has two. Algorithm: Dao,
// arXiv 2307.08691, algorithm 2, with partial sums of grad_query in the place of atomic additions
// (docs/derivations/attention_backward.md). Read next: src/attention/attention_backward.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

// What the forward pass wrote, and the gradients of what it wrote. All but grad_lse are required. context and
// grad_context have types as query has, the others the type computed with.
struct AttentionForwardState {
  InputView<4> context{};              // (B, H, L, Dv), as attention_forward wrote it
  InputView<3> row_max{};              // (B, H, L), likewise
  InputView<3> row_sum{};              // (B, H, L), likewise
  InputView<4> grad_context{};         // (B, H, L, Dv): ∂loss / ∂context
  InputView<3> grad_lse{};             // (B, H, L): ∂loss / ∂lse; absent: the loss does not depend on it
  AttentionFingerprint fingerprint{};  // as attention_forward wrote it, or kUncheckedFingerprint
};

// Which gradients are added to what their view holds, in place of overwriting it: number = number + gradient, with the
// gradient as it is before it is rounded to the view's type, and the sum rounded once. An accumulated view of the type
// computed with has the bits of the old number plus the gradient that a call without it writes.
struct AttentionAccumulation {
  bool grad_query = false;
  bool grad_key = false;
  bool grad_value = false;
  bool grad_bias = false;
  bool grad_sinks = false;
};

// What is written; a view that is absent is not. An output must not overlap an input or another output.
struct AttentionGradients {
  OutputView<4> grad_query{};  // (B, H, L, D)
  OutputView<4> grad_key{};    // (B, Hkv, S, D): the sum over the query heads that read it, in their order
  OutputView<4> grad_value{};  // (B, Hkv, S, Dv), likewise
  OutputView<4> grad_bias{};   // extents of (B, H, L, S) or 1: over an extent of 1 it is the sum; with bias
  OutputView<1> grad_sinks{};  // (H), with sinks
  AttentionAccumulation accumulate{};
};

// Computes the gradients above for the call attention_forward(query, key, value, outputs, options).
//   query (B, H, L, D), key (B, Hkv, S, D), value (B, Hkv, S, Dv), any strides, and options as in that call, dropout
//   included: the same weights are dropped; types as there. The gradients of query, key and value have one type, that
//   computed with or the query's; sums are of float or double and rounded once. Where query,
//   key, value and grad_context are all of bfloat16, avx512_bf16 rounds weights and the gradients of scores to bfloat16
//   for the products that are summed, which adds 2⁻⁷ (1 + 2⁻⁹) of the summed magnitudes to the error, to that of
//   grad_value 2⁻⁸, unless options.weights_in_float32: the default where the gradients are of float.
// Writes, or adds to, every view that gradients names. A key that no row sees and a row that sees no key have gradients
// of exactly 0, whatever numbers are stored there. Workspace: at most 6 times the elements of grad_query with D rounded
// up to 32, and some for each thread. The same bits for any threads, executor, batch and strides, and on every
// instruction set that has fused multiply-add (with query and key of bfloat16: but for avx512_bf16).
// Throws std::invalid_argument (operator, argument, actual and expected) before any work; afterwards only
// std::bad_alloc and regard::Cancelled. Options that differ from those of the forward call are rejected by name, by
// their fingerprint. row_max and row_sum are trusted: values from other queries or keys give wrong gradients. A library
// built without NDEBUG recomputes them and rejects values that make the weights of a row sum to more than 1; less is
// valid, where the keys are some of those that the forward pass saw. NaN gives NaN.
REGARD_EXPORT void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                      const AttentionForwardState& saved, const AttentionGradients& gradients,
                                      const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
