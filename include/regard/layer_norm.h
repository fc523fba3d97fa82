// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation, with the addition that stands before it in a transformer: Ba, Kiros and Hinton, arXiv
// 1607.06450.
//
//     x = input + addend        (one row)
//     output = (x − mean) / √(variance + epsilon) · gain + bias
//
// Read next: linear.h, src/layers/layer_norm.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// For each row r of x = input + addend, rounded to T:
//   output[r, e] = (x[r, e] − mean) / √(variance + epsilon) · gain[e] + bias[e]
// with mean = Σ x / E, variance = Σ (x − mean)² / E over the row, all in double, each result rounded to T once.
//   input (R, E), addend (R, E) or absent, gain (E), bias (E); writes output (R, E). T is float or double; any strides.
// The same bits for any threads and any R.
// Throws std::invalid_argument before any work (epsilon must be finite and not negative); afterwards only
// std::bad_alloc and regard::Cancelled.
template <class T>
REGARD_EXPORT void layer_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                      std::type_identity_t<TensorView<const T, 2>> addend,
                                      std::type_identity_t<TensorView<const T, 1>> gain,
                                      std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                      double epsilon, const Runtime& runtime = {});

}  // namespace regard::inline v0
