// SPDX-License-Identifier: Apache-2.0
//
// The softmax of a row group within a block of 64 keys, in place:
//
//   m' = max(m, row),  α = exp(m − m'),  p = exp(score − m'),  lanes = α·lanes + Σp
//
// Read next: attention_tile.cpp.
#pragma once

#include "simd_math.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// p and the sums of its lanes, for a row whose maximum is finite or not.
template <class T>
REGARD_INLINE void exponentials(T* scores, T m, T alpha, T* lanes) {
  constexpr int kLaneVectors = static_cast<int>(kLanes) / kWidth<T>;
  constexpr int kVectors = static_cast<int>(kBlockKeys) / kWidth<T>;
  Vec<T> sums[kLaneVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kLaneVectors; ++v) sums[v] = Vec<T>{};
  if (m - m == 0) {
    const Vec<T> high = broadcast(m);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vec<T> p = exp<T>(load(scores + v * kWidth<T>) - high);
      store(scores + v * kWidth<T>, p);
      sums[v % kLaneVectors] += p;
    }
  } else {
    // m = +∞: only scores of +∞ have weight. m = −∞: none has.
    const Vec<T> high = broadcast(m == -kInfinity<T> ? static_cast<T>(0) : m);
    for (int v = 0; v < kVectors; ++v) {
      const Vec<T> p = exp<T>(shift<T>(load(scores + v * kWidth<T>), high));
      store(scores + v * kWidth<T>, p);
      sums[v % kLaneVectors] += p;
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kLaneVectors; ++v) {
    store(lanes + v * kWidth<T>, fma(load(lanes + v * kWidth<T>), broadcast(alpha), sums[v]));
  }
}

// m' of the `count` rows from `first` on, and alpha[r] = exp(m − m'), which rescales what came before. Rows, at least
// count, may reach further, and alpha is written for whole vectors.
template <class T, int Rows>
void raise_maxima(const AttentionBlock<T>& block, Index first, Index count, T* alpha) {
  using Int = typename VecOf<T>::Int;
#pragma GCC unroll 16
  for (int part = 0; part < Rows; part += kWidth<T>) {
    Vec<T> highs[kWidth<T>];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth<T>; ++r) {
      highs[r] = broadcast(-kInfinity<T>);
      if (part + r >= Rows) continue;
      const T* scores = block.score.scores + (first + part + r) * kBlockKeys;
      // NaN stands second and is dropped: it comes back through p and the sum.
#pragma GCC unroll 32
      for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) highs[r] = max(load(scores + lane), highs[r]);
    }
    T* row_max = block.state.row_max + first + part;
    const Vec<T> before = load(row_max);
    // Which of +0 and −0 is found depends on the order of lanes; the sum with +0 is +0 for both.
    const Vec<T> m = max(largest_lanes<T>(highs), before) + Vec<T>{};
    const Vec<T> after = select<T>(lane_numbers<T>() < static_cast<Int>(count - part), m, before);
    store(row_max, after);
    store(alpha + first + part, exp<T>(shift<T>(before, after)));
  }
}

// Turns the scores of the rows into p in place and updates m and the lanes.
template <class T>
void softmax_rows(const AttentionBlock<T>& block, Index first, Index count, T* alpha) {
  with_rows(count, [&](auto rows) { raise_maxima<T, decltype(rows)::value>(block, first, count, alpha); });
  for (Index r = first; r < first + count; ++r) {
    exponentials(block.score.scores + r * kBlockKeys, block.state.row_max[r], alpha[r],
                 block.state.row_lanes + r * kLanes);
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
