// SPDX-License-Identifier: Apache-2.0
//
// The gradient of an additive bias: grad_scores summed over the axes along which the bias is broadcast.
// Read next: grad_bias.cpp.
#pragma once

#include "backward_tiles.h"

namespace regard::inline v0::internal {

// output (B|1, H|1, L|1, S|1): axes of extent 1 hold the sum over that axis, in order and in double. accumulate: adds
// to the existing values.
template <class T>
void write_bias_gradient(const BackwardCall<T>& call, const TensorView<T, 4>& output, bool accumulate);

// The same sums, not rounded, added to the values in `sums`.
template <class T>
void add_bias_gradient(const BackwardCall<T>& call, const TensorView<double, 4>& sums);

}  // namespace regard::inline v0::internal
