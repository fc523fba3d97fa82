// SPDX-License-Identifier: Apache-2.0
//
// What the forward and the backward pass of norms share: x = input + addend, and the steps in which rows are processed.
//
// The pass of a step that reads rows from memory writes nothing: processors complete stores in order, so that a store
// whose element has not arrived yet would delay all others. Elements are therefore converted to double in each pass.
// Read next: norm_forward.cpp, norm_backward.cpp.
#pragma once

#include "kernels.h"
#include "simd_wide.h"

namespace regard::kernels::REGARD_ISA {
namespace {

REGARD_INLINE Index smaller_of(Index a, Index b) { return a < b ? a : b; }

// `count` elements in double.
template <class T>
REGARD_INLINE void widen_tile(const T* from, Index count, double* to) {
  Index e = 0;
  for (; e + kWide <= count; e += kWide) store(to + e, load_wide(from + e));
  if (e < count) store(to + e, load_wide_some(from + e, count - e));
}

// The rows of a step: as many as fit in a quarter of a small L1, so that the latencies of their sums overlap; all rows,
// if gain has several tiles, so that each is converted once.
template <class T>
REGARD_INLINE Index rows_together(const NormRows<T>& rows) {
  constexpr Index kElements = 2048;
  return rows.width > kNormColumns ? rows.num_rows : kElements / rows.width;
}

template <class T>
struct RowsOfX {
  const T* data;
  Index stride;
};

// x = input + addend for rows first … first + count − 1.
template <class T>
REGARD_INLINE RowsOfX<T> sum_of_inputs(const NormRows<T>& rows, Index first, Index count) {
  const Index width = rows.width;
  if (!rows.addend) return {rows.input + first * rows.input_stride, rows.input_stride};
  for (Index r = first; r < first + count; ++r) {
    const T* const a = rows.input + r * rows.input_stride;
    const T* const b = rows.addend + r * rows.addend_stride;
    T* const sum = rows.x + r * width;
    Index e = 0;
    for (; e + kWidth<T> <= width; e += kWidth<T>) store(sum + e, load(a + e) + load(b + e));
    if (e < width) store_some(sum + e, load_some(a + e, width - e) + load_some(b + e, width - e), width - e);
  }
  return {rows.x + first * width, width};
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
