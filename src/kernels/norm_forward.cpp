// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of layer norm and RMS norm, in double.
//
//   for each step of rows
//     1. of each row   mean = Σ x / E                                          RMS norm: 0
//     2. of each row   deviation = √(Σ (x − mean)² / E + epsilon)
//     3. for each tile of 1024 columns: gain and bias in double, then for each row
//                      output = (x − mean) / deviation · gain + bias, rounded once
//
// A sum has sixteen lanes (element e belongs to lane e mod 16), folded by halves: a fixed order, which gives the same
// bits on every instruction set.
// Read next: src/layers/norm_forward.cpp.
#include "norm_rows.h"

namespace regard::kernels::REGARD_ISA {
namespace {

inline constexpr int kLaneParts = static_cast<int>(kLanes / kWide);

// Σ term(elements).
template <class T, class Term>
REGARD_INLINE double sum_in_lanes(const T* x, Index width, const Term& term) {
  Vec<double> lanes[kLaneParts] = {};
  Index e = 0;
  for (; e + kLanes <= width; e += kLanes) {
#pragma GCC unroll 8
    for (int part = 0; part < kLaneParts; ++part) {
      const Index at = e + part * kWide;
      lanes[part] += term(load_wide(x + at));
    }
  }
#pragma GCC unroll 8
  for (int part = 0; part < kLaneParts; ++part) {
    const Index at = e + part * kWide, rest = width - at;
    if (rest >= kWide) {
      lanes[part] += term(load_wide(x + at));
    } else if (rest > 0) {
      const IntVec<double> present = lane_numbers<double>() < broadcast_int<double>(rest);
      lanes[part] += select<double>(present, term(load_wide_some(x + at, rest)), Vec<double>{});
    }
  }
  return fold(lanes);
}

template <bool biased, class T>
REGARD_INLINE void normalize(const T* x, Index count, double mean, const Divisor<T>& deviation, const double* gain,
                             const double* bias, T* output) {
  const Vec<double> middle = broadcast(mean);
  const auto result = [&](Index e, Vec<double> element) {
    const Vec<double> scaled = deviation.quotient(element - middle) * load(gain + e);
    return biased ? scaled + load(bias + e) : scaled;
  };
  Index e = 0;
  for (; e + 2 * kWide <= count; e += 2 * kWide) {
    store_rounded(output + e, result(e, load_wide(x + e)), result(e + kWide, load_wide(x + e + kWide)));
  }
  for (; e + kWide <= count; e += kWide) store_rounded(output + e, result(e, load_wide(x + e)));
  if (e < count) store_rounded_some(output + e, result(e, load_wide_some(x + e, count - e)), count - e);
}

}  // namespace

template <class T>
void NormKernels<T>::forward(const NormForward<T>& f) {
  const NormRows<T>& rows = f.rows;
  double* const gain = rows.scratch;
  double* const bias = gain + kNormColumns;
  const Index width = rows.width, together = rows_together(rows);
  const double elements = static_cast<double>(width);
  for (Index first = 0; first < rows.num_rows; first += together) {
    const Index count = smaller_of(together, rows.num_rows - first);
    const RowsOfX<T> x = sum_of_inputs(rows, first, count);
    double mean[kNormRows], deviation[kNormRows];
    for (Index r = 0; r < count; ++r) {
      const double sum = sum_in_lanes(x.data + r * x.stride, width, [](Vec<double> v) { return v; });
      mean[r] = rows.centered ? sum / elements : 0;
    }
    for (Index r = 0; r < count; ++r) {
      const Vec<double> middle = broadcast(mean[r]);
      const double squares =
          sum_in_lanes(x.data + r * x.stride, width, [middle](Vec<double> v) { return (v - middle) * (v - middle); });
      deviation[r] = square_root(squares / elements + rows.epsilon);
    }
    for (Index tile = 0; tile < width; tile += kNormColumns) {
      const Index columns = smaller_of(kNormColumns, width - tile);
      // If there are several steps, there is one tile, and its gain and bias are already there.
      if (first == 0) {
        widen_tile(rows.gain + tile, columns, gain);
        if (f.bias) widen_tile(f.bias + tile, columns, bias);
      }
      for (Index r = 0; r < count; ++r) {
        const Divisor<T> divisor(deviation[r]);
        const T* const from = x.data + r * x.stride + tile;
        T* const output = f.output + (first + r) * f.output_stride + tile;
        if (f.bias) {
          normalize<true>(from, columns, mean[r], divisor, gain, bias, output);
        } else {
          normalize<false>(from, columns, mean[r], divisor, gain, bias, output);
        }
      }
    }
  }
}

template void NormKernels<float>::forward(const NormForward<float>&);
template void NormKernels<double>::forward(const NormForward<double>&);

}  // namespace regard::kernels::REGARD_ISA
