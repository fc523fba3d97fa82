// SPDX-License-Identifier: Apache-2.0
//
// Gradients of output = input · weight + bias (linear.h).
//
//     grad_input  = grad_output · weightᵀ         (R, I)
//     grad_weight = inputᵀ · grad_output          (I, O)
//     grad_bias   = Σ over rows of grad_output    (O)
//
// Read next: src/layers/linear_backward.cpp.
#pragma once

#include "regard/linear.h"

namespace regard::inline v0 {

// Which gradients are added to what their view holds, in place of overwriting it: number = number + gradient, with the
// gradient as float or double, and the sum rounded once to the view's type.
struct LinearAccumulation {
  bool grad_input = false;
  bool grad_weight = false;
  bool grad_bias = false;
};

// What is written; a view that is absent is not. An output must not overlap an input or another output.
template <class T>
struct LinearGradients {
  TensorView<T, 2> grad_input{};   // (R, I)
  TensorView<T, 2> grad_weight{};  // (I, O)
  TensorView<T, 1> grad_bias{};    // (O)
  LinearAccumulation accumulate{};
};

// Computes the gradients above.
//   input (R, I), weight (I, O), grad_output (R, O); any strides. input may be absent where grad_weight is,
//   weight where grad_input is. T is float, double or bfloat16.
// The two products are linear_forward's, with its chains (over O and over R), bits and error; grad_bias is summed over
// rows in order and in double, and rounded once. An activation is the caller's: grad_output is the gradient before it.
// R = 0 gives gradients of zero. The same bits for any threads.
// Throws std::invalid_argument (operator, argument, actual and expected) before any work; afterwards only
// std::bad_alloc and regard::Cancelled.
template <class T>
REGARD_EXPORT void linear_backward(std::type_identity_t<TensorView<const T, 2>> input,
                                   std::type_identity_t<TensorView<const T, 2>> weight,
                                   TensorView<const T, 2> grad_output,
                                   const std::type_identity_t<LinearGradients<T>>& gradients,
                                   const Runtime& runtime = {});

}  // namespace regard::inline v0
