// SPDX-License-Identifier: Apache-2.0
//
// A pseudo-random permutation of 0 … n − 1 of which any element can be computed on its own: nothing is shuffled or
// stored.
//
// Read next: permutation.cpp.
#pragma once

#include <cstdint>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// Element `index` of permutation `number` of 0 … n − 1; 0 ≤ index < n.
Index permuted(std::uint64_t key, std::uint64_t number, Index index, Index n);

}  // namespace regard::inline v0::internal
