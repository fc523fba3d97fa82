// SPDX-License-Identifier: Apache-2.0
/// @file
/// Layer normalization, including the addition to the residual stream that precedes it in a transformer.
///
/// @code{.unparsed}
/// x      = input + addend                                              one row
/// output = (x − mean) / √(variance + epsilon) · gain + bias
/// @endcode
///
/// Extents: R rows, E width of a row. Source: Ba, Kiros and Hinton, arXiv 1607.06450.
///
/// Read next: linear.h, src/layers/layer_norm.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Normalizes every row of input + addend.
///
/// @code{.unparsed}
/// x[r, e]      = input[r, e] + addend[r, e]                            rounded to T
/// mean         = Σ x / E                                               over the row
/// variance     = Σ (x − mean)² / E                                     over the row
/// output[r, e] = (x[r, e] − mean) / √(variance + epsilon) · gain[e] + bias[e]
/// @endcode
///
/// @tparam T       float or double.
/// @param input    (R, E), any strides.
/// @param addend   (R, E), any strides, or absent.
/// @param gain     (E), any stride.
/// @param bias     (E), any stride.
/// @param output   (R, E), any strides. It must not overlap an input.
/// @param epsilon  Added to the variance; finite and not negative.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Bits and error
/// Except for x, everything is computed in double, and each element of output is rounded to T once. The bits are the
/// same for any number of threads and any R.
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

}  // namespace regard::inline v0
