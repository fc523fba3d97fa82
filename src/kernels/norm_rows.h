// SPDX-License-Identifier: Apache-2.0
//
// What the forward and the backward pass of norms share: x = input + addend, and the mean and the deviation of rows.
//
//   mean = Σ x / E        deviation = √(Σ (x − mean)² / E + epsilon)        RMS norm: mean = 0
//
// A sum has sixteen lanes (element e belongs to lane e mod 16), folded by halves: a fixed order, which gives the same
// bits on every instruction set. The pass that reads a row from memory writes nothing: stores that wait for elements
// would limit how many of them are fetched at once.
// Read next: norm_forward.cpp.
#pragma once

#include "kernels.h"
#include "layer_table.h"
#include "simd_wide.h"

namespace regard::kernels::REGARD_ISA {
namespace {

#ifndef STEP
#define STEP 4096
#endif
inline constexpr int kLaneParts = static_cast<int>(kLanes / kWide);

REGARD_INLINE Index smaller_of(Index a, Index b) { return a < b ? a : b; }

// `count` elements in double.
template <class T>
REGARD_INLINE void widen_tile(const T* from, Index count, double* to) {
  Index e = 0;
  for (; e + kWide <= count; e += kWide) store(to + e, load_wide(from + e));
  if (e < count) store(to + e, load_wide_some(from + e, count - e));
}

template <class T>
REGARD_INLINE void add_row(const T* a, const T* b, Index width, T* sum) {
  Index e = 0;
  for (; e + kWidth<T> <= width; e += kWidth<T>) store(sum + e, load(a + e) + load(b + e));
  if (e < width) store_some(sum + e, load_some(a + e, width - e) + load_some(b + e, width - e), width - e);
}

// Σ term(e, elements from e on).
template <class T, class Term>
REGARD_INLINE double sum_in_lanes(const T* x, Index width, const Term& term) {
  Vec<double> lanes[kLaneParts] = {};
  Index e = 0;
  for (; e + kLanes <= width; e += kLanes) {
#pragma GCC unroll 8
    for (int part = 0; part < kLaneParts; ++part) {
      const Index at = e + part * kWide;
      lanes[part] += term(at, load_wide(x + at));
    }
  }
#pragma GCC unroll 8
  for (int part = 0; part < kLaneParts; ++part) {
    const Index at = e + part * kWide, rest = width - at;
    if (rest >= kWide) {
      lanes[part] += term(at, load_wide(x + at));
    } else if (rest > 0) {
      const IntVec<double> present = lane_numbers<double>() < broadcast_int<double>(rest);
      lanes[part] += select<double>(present, term(at, load_wide_some(x + at, rest)), Vec<double>{});
    }
  }
  return fold(lanes);
}

// The rows of a call that are processed together.
template <class T>
struct NormStep {
  Index num_rows;
  const T* x;
  Index x_stride;
  double mean[kNormRows];
  double deviation[kNormRows];
};

// Calls use(first, step) for the rows of a call, a few at a time. ahead: rows that `use` will read, or nullptr.
template <class T, class Use>
REGARD_INLINE void for_each_step(const NormRows<T>& rows, const T* ahead, Index ahead_stride, const Use& use) {
  const Index width = rows.width;
  const double count = static_cast<double>(width);
  const Index together = width > kNormColumns ? rows.num_rows : STEP / width > 0 ? STEP / width : 1;
  NormStep<T> step;
  for (Index first = 0; first < rows.num_rows; first += together) {
    step.num_rows = smaller_of(together, rows.num_rows - first);
    step.x_stride = rows.addend ? width : rows.input_stride;
    step.x = (rows.addend ? rows.x : rows.input) + first * step.x_stride;
    for (Index r = 0; r < step.num_rows; ++r) {
      const T* const x = step.x + r * step.x_stride;
      if (rows.addend) {
        add_row(rows.input + (first + r) * rows.input_stride, rows.addend + (first + r) * rows.addend_stride, width,
                rows.x + (first + r) * width);
      }
      double sum = 0;
      if (ahead) {
        const T* const next = ahead + (first + r) * ahead_stride;
        sum = sum_in_lanes(x, width, [next](Index e, Vec<double> v) {
          __builtin_prefetch(next + e);
          return v;
        });
      } else {
        sum = sum_in_lanes(x, width, [](Index, Vec<double> v) { return v; });
      }
      step.mean[r] = rows.centered ? sum / count : 0;
    }
    for (Index r = 0; r < step.num_rows; ++r) {
      const Vec<double> mean = broadcast(step.mean[r]);
      const double squares = sum_in_lanes(step.x + r * step.x_stride, width,
                                          [mean](Index, Vec<double> v) { return (v - mean) * (v - mean); });
      step.deviation[r] = square_root(squares / count + rows.epsilon);
    }
    use(first, step);
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
