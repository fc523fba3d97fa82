// SPDX-License-Identifier: Apache-2.0
/// @file
/// Layer normalization and its gradients, including the addition to the residual stream that precedes it in a
/// transformer.
///
/// @code{.unparsed}
/// x      = input + addend                                              one row
/// output = (x − mean) / √(variance + epsilon) · gain + bias
/// @endcode
///
/// Extents: R rows of E elements each. Source: Ba, Kiros and Hinton, arXiv 1607.06450.
///
/// Read next: rms_norm.h, src/layers/norm.h.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Normalizes every row of input + addend.
///
/// @code{.unparsed}
/// x[r, e]      = input[r, e] + addend[r, e]                            rounded to float or double
/// mean         = Σ x / E                                               over the row
/// variance     = Σ (x − mean)² / E                                     over the row
/// output[r, e] = (x[r, e] − mean) / √(variance + epsilon) · gain[e] + bias[e]
/// @endcode
///
/// @tparam T       float, double or bfloat16.
/// @param input    (R, E), any strides.
/// @param addend   (R, E), any strides, or absent.
/// @param gain     (E), any stride.
/// @param bias     (E), any stride, or absent.
/// @param output   (R, E), any strides. It must not overlap an input.
/// @param epsilon  Added to the variance; finite and not negative.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// Except for x, everything is computed in double, and each element of output is rounded once to float or double, and
/// then to bfloat16 if T is bfloat16. Results are bit-identical for any number of threads and any R.
///
/// @par Example
/// @code{.cpp}
/// layer_norm_forward<float>(input, addend, gain, bias, output, 1e-5);
/// @endcode
template <class T>
REGARD_EXPORT void layer_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                      std::type_identity_t<TensorView<const T, 2>> addend,
                                      std::type_identity_t<TensorView<const T, 1>> gain,
                                      std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                      double epsilon, const Runtime& runtime = {});

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// @code{.unparsed}
/// element = element + gradient
/// @endcode
///
/// The gradient is added as float or double, and the sum is rounded once to the type of the view.
struct LayerNormAccumulation {
  /// Whether to add to LayerNormGradients::grad_input.
  bool grad_input = false;
  /// Whether to add to LayerNormGradients::grad_gain.
  bool grad_gain = false;
  /// Whether to add to LayerNormGradients::grad_bias.
  bool grad_bias = false;
};

/// Views that layer_norm_backward() writes. A gradient whose view is absent is not written.
///
/// An output must not overlap an input or another output.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct LayerNormGradients {
  /// Gradient of x, which is also the gradient of input and addend, (R, E).
  TensorView<T, 2> grad_input{};
  /// Gradient of gain, (E).
  TensorView<T, 1> grad_gain{};
  /// Gradient of bias, (E).
  TensorView<T, 1> grad_bias{};
  /// Selects the gradients to accumulate.
  LayerNormAccumulation accumulate{};
  /// Number of rows per group; grad_gain and grad_bias are summed separately over each group. If 0, all rows form one
  /// group. See LinearGradients::rows_per_group.
  Index rows_per_group = 0;
};

/// Computes the gradients of layer normalization.
///
/// With n = (x − mean) / √(variance + epsilon) and g = grad_output · gain:
///
/// @code{.unparsed}
/// grad_input[r, e] = (g[r, e] − Σ g / E − n[r, e] · Σ (g · n) / E) / √(variance + epsilon)      Σ over the row
/// grad_gain[e]     = Σ over rows of grad_output · n
/// grad_bias[e]     = Σ over rows of grad_output
/// @endcode
///
/// Mean and variance are recomputed, so the forward pass does not need to store them.
///
/// @tparam T           float, double or bfloat16.
/// @param input        (R, E), any strides; as in layer_norm_forward().
/// @param addend       (R, E), any strides, or absent; as in layer_norm_forward().
/// @param gain         (E), any stride.
/// @param grad_output  (R, E), any strides.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param epsilon      As in layer_norm_forward().
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes, or adds to, every view given in gradients. If R = 0, grad_gain and grad_bias are 0.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// Sums are computed in double and in a fixed order: over a row in eight lanes, and over rows in blocks of 64 that
/// restart with each group. grad_gain and grad_bias are computed in double and rounded once for each group.
/// @par
/// grad_input is computed in float (double if T is double). With u = 2⁻²⁴, the error of its elements is at most about
/// `8 · u · (|g| + |Σ g / E| + (1 + |n|) · |Σ (g · n) / E|) / √(variance + epsilon)`. bfloat16 inputs are converted to
/// float, and each result is rounded once more. Results are bit-identical for any number of threads.
///
/// @par Example
/// @code{.cpp}
/// layer_norm_backward<float>(input, addend, gain, grad_output, {.grad_input = grad_input, .grad_gain = grad_gain},
///                             1e-5);
/// @endcode
template <class T>
REGARD_EXPORT void layer_norm_backward(std::type_identity_t<TensorView<const T, 2>> input,
                                       std::type_identity_t<TensorView<const T, 2>> addend,
                                       std::type_identity_t<TensorView<const T, 1>> gain,
                                       TensorView<const T, 2> grad_output,
                                       const std::type_identity_t<LayerNormGradients<T>>& gradients, double epsilon,
                                       const Runtime& runtime = {});

}  // namespace regard::inline v0
