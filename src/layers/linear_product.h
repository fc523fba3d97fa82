// SPDX-License-Identifier: Apache-2.0
//
// The product of linear_forward in the form that linear_backward needs: written, or added to existing values.
// Read next: linear.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0::internal {

// How the products of an element are summed.
struct ProductSum {
  bool accumulate = false;  // added to the element, which is rounded once
  // Products 0 … depth_group − 1 are summed separately, then the next ones, and so on; the sums of the groups are
  // added in order. 0 means one group.
  Index depth_group = 0;
};

// output = input · weight, or output + input · weight, with the checks, order of summation and bits of linear_forward.
template <class T, class Output = T>
void linear_product(const TensorView<const T, 2>& input, const TensorView<const T, 2>& weight,
                    const TensorView<Output, 2>& output, const ProductSum& sum, const Runtime& runtime);

}  // namespace regard::inline v0::internal
