// SPDX-License-Identifier: Apache-2.0
//
// output = input · parameters + bias: the projections that make query, key and value.
//
// The documents write X·W with W of shape (I, O), as here; a PyTorch nn.Linear stores (O, I), and is the same
// matrix viewed with its strides exchanged. Read next: multi_head.h, src/linear.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard {
inline namespace v0 {

// output[r, o] = Σ_i input[r, i] · parameters[i, o] + bias[o]
//   input (R, I), parameters (I, O), bias (O) or absent; writes output (R, O). T is float or double; any strides.
// Each element is a chain of fused multiply-adds over i, in segments of 256 that are added in order; bias last. The
// same bits for any threads and any R. I = 0 gives the bias or +0.
// Throws std::invalid_argument before any work; afterwards only std::bad_alloc and regard::cancelled.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  std::type_identity_t<TensorView<const T, 2>> parameters,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const Runtime& runtime = {});

}  // namespace v0
}  // namespace regard
