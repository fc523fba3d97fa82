// SPDX-License-Identifier: Apache-2.0
/// @file
/// Activations and SwiGLU, the element-wise functions of feed-forward layers, with their gradients.
///
/// @code{.unparsed}
/// activation   output = f(input)               grad_input = grad_output · f′(input)
/// SwiGLU       output = silu(gate) · up        grad_gate  = grad_output · up · silu′(gate)
///                                              grad_up    = grad_output · silu(gate)
/// @endcode
///
/// - Extents: R rows of E or F elements each.
/// - An output may be the same view as an input. Any other overlap is rejected.
/// - Elements of type bfloat16 are converted to float. All arithmetic on them is in float, and results are rounded
///   once.
/// - Results are bit-identical for any number of threads, any strides and every instruction set that has fused
///   multiply-add.
///
/// Source: Hendrycks and Gimpel, arXiv 1606.08415 (gelu, silu); Shazeer, arXiv 2002.05202 (SwiGLU).
///
/// Read next: linear.h, src/layers/activation.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Activation of a feed-forward layer.
///
/// The error bounds hold for every x, even if the result is subnormal. The bounds for derivatives apply to the factor
/// f′. A NaN argument yields NaN. For x = ∞, the function is ∞ and its derivative is 1; for x = −∞, both are 0 (none:
/// −∞ and 1).
enum class Activation {
  /// The identity, x.
  none,
  /// `max(x, 0)`. The gradient is grad_output for x > 0, and 0 for x ≤ 0.
  relu,
  /// `x · Φ(x) = ½ x (1 + erf(x / √2))`, within 6 ULP.
  ///
  /// Derivative: `Φ(x) + x · exp(−x²/2) / √(2π)`, within 6 ULP for float and 10 ULP for double.
  gelu,
  /// `½ x (1 + tanh(u))` with `u = √(2/π) (x + 0.044715 x³)`, within 7 ULP.
  ///
  /// Derivative: `½ (1 + tanh(u)) + ½ x (1 − tanh²(u)) · du/dx`, within 12 ULP. Near the zero of the derivative
  /// (−1 < x < −½), the bound is on the absolute error instead: 2⁻²³ for float and 2⁻⁵² for double.
  gelu_tanh,
  /// `x · σ(x) = x / (1 + exp(−x))`, within 6 ULP.
  ///
  /// Derivative: `σ(x) · (1 + x · (1 − σ(x)))`, within 8 ULP. Near the zero of the derivative (−2 < x < −1), the bound
  /// is on the absolute error instead: 2⁻²⁴ for float and 2⁻⁵³ for double.
  silu
};

/// Computes an activation.
///
/// @code{.unparsed}
/// output[r, e] = f(input[r, e])
/// @endcode
///
/// @tparam T          float, double or bfloat16.
/// @param input       (R, E), any strides.
/// @param output      (R, E), any strides. It may be the same view as input.
/// @param activation  The function f.
/// @param runtime     Threads and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// For float and double, the result is bit-identical to applying this activation in linear_forward(). The error bounds
/// are listed under Activation; see also the top of this file.
///
/// @par Example
/// @code{.cpp}
/// activation_forward<float>(input, output, Activation::gelu);
/// @endcode
template <class T>
REGARD_EXPORT void activation_forward(std::type_identity_t<TensorView<const T, 2>> input, TensorView<T, 2> output,
                                      Activation activation, const Runtime& runtime = {});

/// The gradient that activation_backward() writes.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct ActivationGradients {
  /// Gradient of input, (R, E). It may be the same view as input or grad_output.
  TensorView<T, 2> grad_input{};
  /// Whether the gradient is added to the contents of grad_input instead of overwriting them. The sum is computed in
  /// float or double and rounded once to the type of the view.
  bool accumulate = false;
};

/// Computes the gradient of an activation.
///
/// @code{.unparsed}
/// grad_input[r, e] = grad_output[r, e] · f′(input[r, e])
/// @endcode
///
/// @tparam T           float, double or bfloat16.
/// @param input        (R, E), the argument of the activation, any strides.
/// @param grad_output  (R, E), any strides.
/// @param gradients    View to write, and a flag that selects accumulation.
/// @param activation   The function f.
/// @param runtime      Threads and cancellation.
///
/// Writes, or adds to, grad_input.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The error bounds of f′ are listed under Activation, and the product is rounded once. See also the top of this file.
///
/// @par Example
/// @code{.cpp}
/// activation_backward<float>(input, grad_output, {.grad_input = grad_input}, Activation::gelu);
/// @endcode
template <class T>
REGARD_EXPORT void activation_backward(std::type_identity_t<TensorView<const T, 2>> input,
                                       std::type_identity_t<TensorView<const T, 2>> grad_output,
                                       const std::type_identity_t<ActivationGradients<T>>& gradients,
                                       Activation activation, const Runtime& runtime = {});

/// Computes SwiGLU: the element-wise product of silu(`gate`) and `up`.
///
/// @code{.unparsed}
/// output[r, f] = silu(gate[r, f]) · up[r, f]
/// @endcode
///
/// @tparam T       float, double or bfloat16.
/// @param gate     (R, F), any strides.
/// @param up       (R, F), any strides.
/// @param output   (R, F), any strides. It may be the same view as gate or up.
/// @param runtime  Threads and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// silu is computed as in activation_forward(), and its product with `up` is rounded once. See also the top of this
/// file.
///
/// @par Example
/// @code{.cpp}
/// swiglu_forward<float>(gate, up, output);
/// @endcode
template <class T>
REGARD_EXPORT void swiglu_forward(std::type_identity_t<TensorView<const T, 2>> gate,
                                  std::type_identity_t<TensorView<const T, 2>> up, TensorView<T, 2> output,
                                  const Runtime& runtime = {});

/// Selects the gradients that are added to the contents of their views instead of overwriting them.
///
/// The sum is computed in float or double and rounded once to the type of the view.
struct SwigluAccumulation {
  /// Whether to add to SwigluGradients::grad_gate.
  bool grad_gate = false;
  /// Whether to add to SwigluGradients::grad_up.
  bool grad_up = false;
};

/// Views that swiglu_backward() writes. A gradient whose view is absent is not written.
///
/// A gradient may be the same view as an input, but must not overlap the other gradient.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct SwigluGradients {
  /// Gradient of gate, (R, F).
  TensorView<T, 2> grad_gate{};
  /// Gradient of up, (R, F).
  TensorView<T, 2> grad_up{};
  /// Selects the gradients to accumulate.
  SwigluAccumulation accumulate{};
};

/// Computes the gradients of SwiGLU.
///
/// @code{.unparsed}
/// grad_gate[r, f] = grad_output[r, f] · up[r, f] · silu′(gate[r, f])
/// grad_up[r, f]   = grad_output[r, f] · silu(gate[r, f])
/// @endcode
///
/// @tparam T           float, double or bfloat16.
/// @param gate         (R, F), any strides.
/// @param up           (R, F), any strides.
/// @param grad_output  (R, F), any strides.
/// @param gradients    Views to write, and flags that select accumulation.
/// @param runtime      Threads and cancellation.
///
/// Writes, or adds to, every view given in gradients.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The error bounds of silu and silu′ are listed under Activation, and each product is rounded. See also the top of
/// this file.
///
/// @par Example
/// @code{.cpp}
/// swiglu_backward<float>(gate, up, grad_output, {.grad_gate = grad_gate, .grad_up = grad_up});
/// @endcode
template <class T>
REGARD_EXPORT void swiglu_backward(std::type_identity_t<TensorView<const T, 2>> gate,
                                   std::type_identity_t<TensorView<const T, 2>> up,
                                   std::type_identity_t<TensorView<const T, 2>> grad_output,
                                   const std::type_identity_t<SwigluGradients<T>>& gradients,
                                   const Runtime& runtime = {});

}  // namespace regard::inline v0
