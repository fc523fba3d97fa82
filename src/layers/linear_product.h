// SPDX-License-Identifier: Apache-2.0
//
// The product of linear_forward in the form that linear_backward needs: written, or added to existing values.
// Read next: linear.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0::internal {

// output = input · weight, or output + input · weight, rounded once, with the checks, chains and bits of
// linear_forward.
template <class T>
void linear_product(const TensorView<const T, 2>& input, const TensorView<const T, 2>& weight,
                    const TensorView<T, 2>& output, bool accumulate, const Runtime& runtime);

}  // namespace regard::inline v0::internal
