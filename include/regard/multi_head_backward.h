// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients of a multi-head attention block (multi_head.h).
///
/// @code{.unparsed}
/// grad_context           = split(grad_output · W_outputᵀ)
/// grad_query, key, value = attention_backward(query, key, value, …, grad_context)
/// grad_W_query           = Σ over B of inputᵀ · join(grad_query)     likewise for W_key and W_value
/// grad_W_output          = Σ over B of join(context)ᵀ · grad_output
/// grad_b_query           = Σ over B and L of join(grad_query)        likewise for the other biases
/// grad_input             = join(grad_query) · W_queryᵀ + join(grad_key) · W_keyᵀ + join(grad_value) · W_valueᵀ
/// @endcode
///
/// With memory, the last two terms of grad_input form grad_memory instead. Names and extents are as in multi_head.h.
///
/// Derivation: linear_backward.h for the projections, docs/derivations/attention_backward.md for attention.
///
/// Read next: src/layers/multi_head_backward.cpp.
#pragma once

#include "regard/attention_backward.h"
#include "regard/multi_head.h"

namespace regard::inline v0 {

/// Results of multi_head_attention_forward(). All views are required.
///
/// @tparam T  float or double.
template <class T>
struct MultiHeadForwardState {
  /// Projected queries, (B, H, L, D), from MultiHeadOutputs::query.
  TensorView<const T, 4> query{};
  /// Projected keys, (B, Hkv, S, D), from MultiHeadOutputs::key.
  TensorView<const T, 4> key{};
  /// Projected values, (B, Hkv, S, Dv), from MultiHeadOutputs::value.
  TensorView<const T, 4> value{};
  /// Context of each head, (B, H, L, Dv), from MultiHeadOutputs::context.
  TensorView<const T, 4> context{};
  /// Largest visible score of each row, (B, H, L), from MultiHeadOutputs::row_max.
  TensorView<const T, 3> row_max{};
  /// `Σ exp(score − row_max)` of each row, (B, H, L), from MultiHeadOutputs::row_sum.
  TensorView<const T, 3> row_sum{};
  /// Fingerprint of the options, from MultiHeadOutputs::fingerprint. The default value disables the comparison.
  AttentionFingerprint fingerprint = kUncheckedFingerprint;
};

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// @code{.unparsed}
/// element = element + gradient
/// @endcode
///
/// The result is bit-identical to the sum of the old element and the gradient that a call without accumulation would
/// write. With MultiHeadGradients::rows_per_group, the sums of the groups are instead added to the element one after
/// another.
struct MultiHeadAccumulation {
  /// Whether to add to MultiHeadGradients::grad_input.
  bool grad_input = false;
  /// Whether to add to MultiHeadGradients::grad_memory.
  bool grad_memory = false;
  /// Whether to add to MultiHeadGradients::grad_w_query.
  bool grad_w_query = false;
  /// Whether to add to MultiHeadGradients::grad_w_key.
  bool grad_w_key = false;
  /// Whether to add to MultiHeadGradients::grad_w_value.
  bool grad_w_value = false;
  /// Whether to add to MultiHeadGradients::grad_w_output.
  bool grad_w_output = false;
  /// Whether to add to MultiHeadGradients::grad_b_query.
  bool grad_b_query = false;
  /// Whether to add to MultiHeadGradients::grad_b_key.
  bool grad_b_key = false;
  /// Whether to add to MultiHeadGradients::grad_b_value.
  bool grad_b_value = false;
  /// Whether to add to MultiHeadGradients::grad_b_output.
  bool grad_b_output = false;
};

/// Views that multi_head_attention_backward() writes. A gradient whose view is absent is not written.
///
/// An output must not overlap an input or another output.
///
/// @tparam T  float or double.
template <class T>
struct MultiHeadGradients {
  /// Gradient of input, (B, L, E).
  TensorView<T, 3> grad_input{};
  /// Gradient of memory, (B, S, E_kv); only with memory.
  TensorView<T, 3> grad_memory{};
  /// Gradient of w_query, (E, H·D).
  TensorView<T, 2> grad_w_query{};
  /// Gradient of w_key, (E_kv, Hkv·D).
  TensorView<T, 2> grad_w_key{};
  /// Gradient of w_value, (E_kv, Hkv·Dv).
  TensorView<T, 2> grad_w_value{};
  /// Gradient of w_output, (H·Dv, E_out); only with w_output.
  TensorView<T, 2> grad_w_output{};
  /// Gradient of b_query, (H·D).
  TensorView<T, 1> grad_b_query{};
  /// Gradient of b_key, (Hkv·D).
  TensorView<T, 1> grad_b_key{};
  /// Gradient of b_value, (Hkv·Dv).
  TensorView<T, 1> grad_b_value{};
  /// Gradient of b_output, (E_out); only with w_output.
  TensorView<T, 1> grad_b_output{};
  /// Selects the gradients to accumulate.
  MultiHeadAccumulation accumulate{};
  /// Number of rows of input per group; the gradients of parameters are summed separately over each group, as for
  /// LinearGradients::rows_per_group. If 0, all rows form one group.
  ///
  /// Row l of batch entry b has index b·L + l. With memory, the gradients of w_key, w_value and their biases are sums
  /// over rows of memory. rows_per_group must then be a multiple of L, so that a group consists of whole batch entries
  /// for all parameters.
  Index rows_per_group = 0;
};

/// Computes the gradients of a multi-head attention block.
///
/// The formulas are at the top of this file.
///
/// @tparam T           float or double.
/// @param input        (B, L, E), as in the forward call.
/// @param memory       (B, S, E_kv), as in the forward call: absent for self-attention.
/// @param parameters   As in the forward call. Biases are not read.
/// @param saved        Results of the forward call.
/// @param grad_output  (B, L, E_out), any strides: gradient of the output.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param options      As in the forward call.
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes, or adds to, every view given in gradients. The gradients of options.bias and options.sinks are not computed:
/// call attention_backward() for these.
///
/// @throws InvalidArgument  before any gradient is written, if an argument is invalid or, given a fingerprint,
///                          if options differ from those of the forward call; the message then names these options.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @warning The views of saved are trusted: values from a different forward call silently produce wrong gradients.
///
/// @par Accuracy and reproducibility
/// The guarantees are the same as for linear_backward() and attention_backward(). The three terms of grad_input are
/// rounded separately and added in the order of the formula. Results are bit-identical for any number of threads, any
/// batch size and any strides.
///
/// @par Memory
/// Scratch memory holds the gradients of query, key, value and context; a copy of grad_input or grad_memory if it is a
/// sum of several terms and is accumulated; and copies of those (B, L, …) tensors whose strides do not allow B and L
/// to be merged.
///
/// @par Example
/// @code{.cpp}
/// multi_head_attention_backward<float>(
///     input, {}, parameters,
///     {.query = query, .key = key, .value = value, .context = context, .row_max = row_max, .row_sum = row_sum},
///     grad_output, {.grad_input = grad_input, .grad_w_query = grad_w_query}, {.causal = true});
/// @endcode
template <class T>
REGARD_EXPORT void multi_head_attention_backward(std::type_identity_t<TensorView<const T, 3>> input,
                                                 std::type_identity_t<TensorView<const T, 3>> memory,
                                                 const std::type_identity_t<MultiHeadParameters<T>>& parameters,
                                                 const std::type_identity_t<MultiHeadForwardState<T>>& saved,
                                                 std::type_identity_t<TensorView<const T, 3>> grad_output,
                                                 const std::type_identity_t<MultiHeadGradients<T>>& gradients,
                                                 const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
