// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS normalization and its gradients, including the addition to the residual stream that precedes it in a
/// transformer.
///
/// @code{.unparsed}
/// x      = input + addend                                              one row
/// output = x / √(Σ x² / E + epsilon) · gain
/// @endcode
///
/// Extents: R rows of E elements each. Source: Zhang and Sennrich, arXiv 1910.07467.
///
/// Read next: layer_norm.h, src/layers/norm.h.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Divides every row of input + addend by its root mean square, and multiplies it elementwise by gain.
///
/// @code{.unparsed}
/// x[r, e]      = input[r, e] + addend[r, e]                            rounded to float or double
/// output[r, e] = x[r, e] / √(Σ x² / E + epsilon) · gain[e]             Σ over the row
/// @endcode
///
/// @tparam T       float, double or bfloat16.
/// @param input    (R, E), any strides.
/// @param addend   (R, E), any strides, or absent.
/// @param gain     (E), any stride.
/// @param output   (R, E), any strides. It must not overlap an input.
/// @param epsilon  Added to the mean square; finite and not negative.
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
/// rms_norm_forward<float>(input, addend, gain, output, 1e-5);
/// @endcode
template <class T>
REGARD_EXPORT void rms_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                    std::type_identity_t<TensorView<const T, 2>> addend,
                                    std::type_identity_t<TensorView<const T, 1>> gain, TensorView<T, 2> output,
                                    double epsilon, const Runtime& runtime = {});

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// @code{.unparsed}
/// element = element + gradient
/// @endcode
///
/// The gradient is added as float or double, and the sum is rounded once to the type of the view.
struct RmsNormAccumulation {
  /// Whether to add to RmsNormGradients::grad_input.
  bool grad_input = false;
  /// Whether to add to RmsNormGradients::grad_gain.
  bool grad_gain = false;
};

/// Views that rms_norm_backward() writes. A gradient whose view is absent is not written.
///
/// An output must not overlap an input or another output.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct RmsNormGradients {
  /// Gradient of x, which is also the gradient of input and addend, (R, E).
  TensorView<T, 2> grad_input{};
  /// Gradient of gain, (E).
  TensorView<T, 1> grad_gain{};
  /// Selects the gradients to accumulate.
  RmsNormAccumulation accumulate{};
  /// Number of rows per group; grad_gain is summed separately over each group. If 0, all rows form one group. See
  /// LinearGradients::rows_per_group.
  Index rows_per_group = 0;
};

/// Computes the gradients of RMS normalization.
///
/// With n = x / √(Σ x² / E + epsilon) and g = grad_output · gain:
///
/// @code{.unparsed}
/// grad_input[r, e] = (g[r, e] − n[r, e] · Σ (g · n) / E) / √(Σ x² / E + epsilon)      Σ over the row
/// grad_gain[e]     = Σ over rows of grad_output · n
/// @endcode
///
/// The mean square is recomputed, so the forward pass does not need to store it.
///
/// @tparam T           float, double or bfloat16.
/// @param input        (R, E), any strides; as in rms_norm_forward().
/// @param addend       (R, E), any strides, or absent; as in rms_norm_forward().
/// @param gain         (E), any stride.
/// @param grad_output  (R, E), any strides.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param epsilon      As in rms_norm_forward().
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes, or adds to, every view given in gradients. If R = 0, grad_gain is 0.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The guarantees are the same as for layer_norm_backward(), except that the terms due to the mean are absent.
///
/// @par Example
/// @code{.cpp}
/// rms_norm_backward<float>(input, addend, gain, grad_output, {.grad_input = grad_input, .grad_gain = grad_gain},
///                             1e-5);
/// @endcode
template <class T>
REGARD_EXPORT void rms_norm_backward(std::type_identity_t<TensorView<const T, 2>> input,
                                     std::type_identity_t<TensorView<const T, 2>> addend,
                                     std::type_identity_t<TensorView<const T, 1>> gain,
                                     TensorView<const T, 2> grad_output,
                                     const std::type_identity_t<RmsNormGradients<T>>& gradients, double epsilon,
                                     const Runtime& runtime = {});

}  // namespace regard::inline v0
