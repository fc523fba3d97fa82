// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients of a linear layer, output = input · weight + bias (linear.h).
///
/// @code{.unparsed}
/// grad_input  = grad_output · weightᵀ         (R, I)
/// grad_weight = inputᵀ · grad_output          (I, O)
/// grad_bias   = Σ over rows of grad_output    (O)
/// @endcode
///
/// Extents: R rows, I input features, O output features.
///
/// Derivation: the chain rule, with ∂output[r, o] / ∂input[r, i] = weight[i, o],
/// ∂output[r, o] / ∂weight[i, o] = input[r, i] and ∂output[r, o] / ∂bias[o] = 1.
///
/// Read next: src/layers/linear_backward.cpp.
#pragma once

#include "regard/linear.h"

namespace regard::inline v0 {

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// @code{.unparsed}
/// element = element + gradient
/// @endcode
///
/// The addition is in double for a double view and in float for any other, and its result is rounded once to the type
/// of the view.
struct LinearAccumulation {
  /// Whether to add to LinearGradients::grad_input.
  bool grad_input = false;
  /// Whether to add to LinearGradients::grad_weight.
  bool grad_weight = false;
  /// Whether to add to LinearGradients::grad_bias.
  bool grad_bias = false;
};

/// Views that linear_backward() writes. A gradient whose view is absent is not written.
///
/// An output must not overlap an input or another output.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct LinearGradients {
  /// Gradient of input, (R, I).
  TensorView<T, 2> grad_input{};
  /// Gradient of weight, (I, O).
  TensorView<T, 2> grad_weight{};
  /// Gradient of bias, (O).
  TensorView<T, 1> grad_bias{};
  /// Selects the gradients to accumulate.
  LinearAccumulation accumulate{};
  /// Number of rows per group; grad_weight and grad_bias are summed separately over each group. If 0, all rows form one
  /// group.
  ///
  /// Rows 0 … rows_per_group − 1 are the first group, and so on. The sum of each group is rounded to double for a
  /// double view and to float for any other. The sums are added in order, starting from 0 or, with accumulate, from the
  /// contents of the view.
  ///
  /// One call over a batch is therefore bit-identical to several accumulating calls, each over whole groups. bfloat16
  /// gradients are an exception: they are rounded at the end of each call, so one call rounds less often.
  Index rows_per_group = 0;
};

/// Computes the gradients of a linear layer.
///
/// The formulas are at the top of this file. The derivative of an activation is left to the caller: grad_output is the
/// gradient with respect to the argument of the activation.
///
/// @tparam T           float, double or bfloat16.
/// @param input        (R, I), any strides; may be absent if grad_weight is absent.
/// @param weight       (I, O), any strides; may be absent if grad_input is absent.
/// @param grad_output  (R, O), any strides.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes, or adds to, every view given in gradients. If R = 0, grad_weight and grad_bias are 0.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. The message names the operator and the
///                          argument, and states its value and the requirement.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The two products are computed as in linear_forward(): their terms are added in the same order, over O for grad_input
/// and over R for grad_weight, with the same reproducibility and error bound. grad_bias is summed over rows, in order,
/// in double, and rounded once. Results are bit-identical for any number of threads.
///
/// @par Example
/// @code{.cpp}
/// linear_backward<float>(input, weight, grad_output, {.grad_input = grad_input, .grad_weight = grad_weight});
/// @endcode
template <class T>
REGARD_EXPORT void linear_backward(std::type_identity_t<TensorView<const T, 2>> input,
                                   std::type_identity_t<TensorView<const T, 2>> weight,
                                   TensorView<const T, 2> grad_output,
                                   const std::type_identity_t<LinearGradients<T>>& gradients,
                                   const Runtime& runtime = {});

/// Same as linear_backward<bfloat16>(), but with float gradients, which are not rounded to bfloat16.
///
/// @param input        (R, I), any strides; may be absent if grad_weight is absent.
/// @param weight       (I, O), any strides; may be absent if grad_input is absent.
/// @param grad_output  (R, O), any strides.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param runtime      Threads, scratch memory and cancellation.
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT void linear_backward(TensorView<const bfloat16, 2> input, TensorView<const bfloat16, 2> weight,
                                   TensorView<const bfloat16, 2> grad_output, const LinearGradients<float>& gradients,
                                   const Runtime& runtime = {});

}  // namespace regard::inline v0
