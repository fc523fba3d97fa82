// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scaled dot-product attention, backward: the gradients of a loss with respect to every input of the forward pass.
///
/// @code{.unparsed}
/// weights     = exp(scores − row_max) / row_sum            recomputed, bit-identical to the forward pass
/// delta       = Σ over Dv of context · grad_context − grad_lse
/// grad_value  = weightsᵀ · grad_context
/// grad_scores = weights · (grad_context · valueᵀ − delta)  elementwise; this is also grad_bias
/// grad_query  = scale · grad_scores · key                  with a soft cap, both use grad_scores · (1 − tanh²)
/// grad_key    = scale · grad_scoresᵀ · query
/// grad_sinks  = − Σ over rows of sink weight · delta
/// @endcode
/// - Names and extents are as in attention.h. The backward pass computes five matrix products; the forward pass
///   computes two.
/// - Contract: docs/reference/semantics.md. Derivation: docs/derivations/attention_backward.md. Source: Dao, arXiv
///   2307.08691, algorithm 2, with partial sums of grad_query instead of atomic additions.
///
/// Read next: src/attention/attention_backward.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

/// Results of the forward pass, and the gradients of the loss with respect to its outputs. All members except grad_lse
/// are required.
///
/// context and grad_context may each have any type that query may have: float, bfloat16 or float16, or double if query
/// is double. The other views are of the compute type (double if query is double, else float).
struct AttentionForwardState {
  /// Context, (B, H, L, Dv), as written by attention_forward().
  InputView<4> context{};
  /// Largest score of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_max{};
  /// Sum of exponentials of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_sum{};
  /// ∂loss / ∂context, (B, H, L, Dv).
  InputView<4> grad_context{};
  /// ∂loss / ∂lse, (B, H, L). Absent if the loss does not depend on lse.
  InputView<3> grad_lse{};
  /// Fingerprint of the options, as written by attention_forward(), or kUncheckedFingerprint.
  AttentionFingerprint fingerprint{};
};

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// @code{.unparsed}
/// element = element + gradient
/// @endcode
///
/// The gradient is added before it is rounded to the type of the view, and the sum is rounded once. In a view of the
/// compute type, the result is bit-identical to the old element plus the gradient that a call without accumulation
/// would write.
struct AttentionAccumulation {
  /// Whether to add to AttentionGradients::grad_query.
  bool grad_query = false;
  /// Whether to add to AttentionGradients::grad_key.
  bool grad_key = false;
  /// Whether to add to AttentionGradients::grad_value.
  bool grad_value = false;
  /// Whether to add to AttentionGradients::grad_bias.
  bool grad_bias = false;
  /// Whether to add to AttentionGradients::grad_sinks.
  bool grad_sinks = false;
};

/// Views that attention_backward() writes. A gradient whose view is absent is not written.
///
/// An output must not overlap an input or another output. grad_query, grad_key and grad_value have the same type, which
/// is the compute type or the type of query. grad_bias and grad_sinks are of the compute type.
struct AttentionGradients {
  /// Gradient of query, (B, H, L, D).
  OutputView<4> grad_query{};
  /// Gradient of key, (B, Hkv, S, D): the sum over the query heads that read the KV head, in head order.
  OutputView<4> grad_key{};
  /// Gradient of value, (B, Hkv, S, Dv): the sum over the query heads that read the value head, in head order.
  OutputView<4> grad_value{};
  /// Gradient of bias; only if bias is given. Each extent is that of (B, H, L, S), or 1 to sum over that axis.
  OutputView<4> grad_bias{};
  /// Gradient of sinks, (H); only if sinks are given.
  OutputView<1> grad_sinks{};
  /// Selects the gradients to accumulate.
  AttentionAccumulation accumulate{};
};

/// Computes the gradients of the call `attention_forward(query, key, value, outputs, options)`.
///
/// The formulas are at the top of this file. Sums are computed in float or double and rounded once.
///
/// @param query      (B, H, L, D), any strides; types as in attention_forward().
/// @param key        (B, Hkv, S, D), any strides; types as in attention_forward().
/// @param value      (B, Hkv, S, Dv), any strides; types as in attention_forward().
/// @param saved      Results of the forward call and gradients of its outputs.
/// @param gradients  Views to write, and flags that select accumulation.
/// @param options    As in the forward call. This includes dropout: the same weights are dropped.
/// @param runtime    Threads, scratch memory and cancellation.
///
/// Writes, or adds to, every view given in gradients. A key that is visible to no query, and a query with no visible
/// key, have gradients of exactly 0, regardless of their elements.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. The message names the operator and the
///                          argument, and states its value and the requirement. If the fingerprint shows that options
///                          differ from those of the forward call, the message names these options.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @warning row_max and row_sum are trusted: values from other queries or keys silently produce wrong gradients. A
/// library built without `NDEBUG` recomputes them and throws InvalidArgument if they make the weights of a row sum to
/// more than 1, with a tolerance of 1/16. Sums below 1 are valid: the keys may be a subset of the keys in the forward
/// pass. NaN in row_max or row_sum gives NaN gradients.
///
/// @par Reproducibility
/// The gradients are bit-identical for any number of threads, any executor, any batch size and any strides, and on
/// every instruction set that has fused multiply-add. With bfloat16 query and key, avx512_bf16 is the exception.
///
/// @par Error
/// The bound is given in docs/reference/semantics.md, section 4. If query, key, value and grad_context are all
/// bfloat16, avx512_bf16 rounds weights and the gradients of scores to bfloat16 for the three products that compute
/// grad_query, grad_key and grad_value. This adds 2⁻⁸ times the sum of magnitudes in that bound to the error of
/// grad_value, and `2⁻⁷ (1 + 2⁻⁹)` times that sum to the errors of grad_query and grad_key.
/// @par
/// Nothing is rounded in this way if options.weights_in_float32 is true, which is the default if the gradients are
/// float.
///
/// @par Memory
/// Scratch memory holds at most 6 times the number of elements of grad_query, with D rounded up to a multiple of 32,
/// plus a small amount per row and per thread.
///
/// @par Example
/// @code{.cpp}
/// attention_backward(query, key, value,
///                    {.context = context, .row_max = row_max, .row_sum = row_sum, .grad_context = grad_context,
///                     .fingerprint = fingerprint},
///                    {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value}, {.causal = true});
/// @endcode
REGARD_EXPORT void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                      const AttentionForwardState& saved, const AttentionGradients& gradients,
                                      const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
