// SPDX-License-Identifier: Apache-2.0
//
// The residual stream of a decoder in training: sums of rows, and dropout of what a layer adds.
//
//   element e of row r is dropped if word e mod 4 of Philox4x32-10 of the counter (⌊e / 4⌋, r, r >> 32, kSite) is below
//   dropout · 2³²; r counts over the whole batch. The other elements are divided by 1 − dropout.
//
// Read next: regard/random.h.
#pragma once

#include <cstdint>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0::internal {

// The seed of a place in the model where elements are dropped.
std::uint64_t dropout_seed(std::uint64_t seed, Index place);

struct ResidualDropout {
  double probability;
  std::uint64_t seed;
  Index first_row;  // of the call, in the whole batch
};

// In place: rows (R, E) with contiguous elements.
template <class T>
void drop(const TensorView<T, 2>& rows, const ResidualDropout& dropout, const Runtime& runtime);

// sum[i] = a[i] + b[i].
template <class T>
void add(Index count, const T* a, const T* b, T* sum, const Runtime& runtime);

// In place: rows[r, e] + bias[e].
template <class T>
void add_bias(const TensorView<T, 2>& rows, const TensorView<T, 1>& bias, const Runtime& runtime);

}  // namespace regard::inline v0::internal
