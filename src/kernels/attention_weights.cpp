// SPDX-License-Identifier: Apache-2.0
//
// Weights from scores: exp(score − row_max) / row_sum with the row's final values, which is the definition of a weight
// (docs/reference/semantics.md). The scores come from score_block and have the bits of the forward pass.
#include "kernels.h"
#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {

template <class T>
void WeightsKernels<T>::weights_block(Index num_rows, const T* row_max, const T* row_sum, T* scores) {
  for (Index r = 0; r < num_rows; ++r) {
    const Vec<T> high = broadcast(row_max[r]);
    const Vec<T> sum = broadcast(row_sum[r]);
    for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
      T* at = scores + r * kBlockKeys + lane;
      const Vec<T> x = load(at);
      const Vec<T> p = exp<T>(select<T>(x == high, Vec<T>{}, x - high)) / sum;
      // Also covers row_sum = 0 or NaN: rows that attend to no key, and invisible keys of a NaN row.
      store(at, select<T>(x == broadcast(-kInfinity<T>), Vec<T>{}, p));
    }
  }
}

template <class T>
void WeightsKernels<T>::add_rows(Index num_rows, const T* weights, double* sums) {
  typedef T Narrow __attribute__((vector_size(kWidth<double> * sizeof(T))));
  for (Index lane = 0; lane < kBlockKeys; lane += kWidth<double>) {
    Vec<double> sum = load(sums + lane);
    for (Index r = 0; r < num_rows; ++r) {
      Narrow x;
      std::memcpy(&x, weights + r * kBlockKeys + lane, sizeof x);
      sum += __builtin_convertvector(x, Vec<double>);
    }
    store(sums + lane, sum);
  }
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, WeightsKernels);

}  // namespace regard::kernels::REGARD_ISA
