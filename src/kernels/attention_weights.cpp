// SPDX-License-Identifier: Apache-2.0
//
// Weights from scores: exp(score − row_max) / row_sum with the row's final values, which is what a weight is
// (docs/semantics.md). The scores come from score_block, with the bits that the forward pass used.
#include "kernels.h"
#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {

template <class T>
void weights_block(Index num_rows, const T* row_max, const T* row_sum, T* scores) {
  for (Index r = 0; r < num_rows; ++r) {
    const Vec<T> high = broadcast(row_max[r]);
    const Vec<T> sum = broadcast(row_sum[r]);
    for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
      T* place = scores + r * kBlockKeys + lane;
      const Vec<T> x = load(place);
      const Vec<T> p = exp<T>(select<T>(x == high, Vec<T>{}, x - high)) / sum;
      // Also where row_sum is 0 or NaN: a row that sees nothing, the invisible keys of a NaN row.
      store(place, select<T>(x == broadcast(-kInfinity<T>), Vec<T>{}, p));
    }
  }
}

template void weights_block(Index, const float*, const float*, float*);
template void weights_block(Index, const double*, const double*, double*);

}  // namespace regard::kernels::REGARD_ISA
