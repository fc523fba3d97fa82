// SPDX-License-Identifier: Apache-2.0
//
// The frequencies of a rotary position embedding.
// Read next: rotary.cpp.
#pragma once

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// frequencies[d] = base^(−2d / size) for d in 0 … size / 2 − 1, within 0.51 ULP (subnormal results: 1), with the same
// bits on every processor. base ≥ 1 is finite; size is even and positive.
void rotary_frequencies(double base, Index size, double* frequencies);

}  // namespace regard::inline v0::internal
