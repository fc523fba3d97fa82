// SPDX-License-Identifier: Apache-2.0
//
// The gradient of an additive bias: grad_scores summed over the axes along which the bias is one number.
// Read next: grad_bias.cpp.
#pragma once

#include "backward_tiles.h"

namespace regard::inline v0::internal {

// output (B|1, H|1, L|1, S|1): over an extent of 1 it is the sum, in order and in double. accumulate: added to what it
// holds.
template <class T>
void write_bias_gradient(const BackwardCall<T>& call, const TensorView<T, 4>& output, bool accumulate);

}  // namespace regard::inline v0::internal
