// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of layer norm and RMS norm, in double.
//
//   for each step of rows                      norm_rows.h
//     1. mean      of each row
//     2. deviation of each row
//     3. for each tile of 1024 columns: gain and bias in double, then for each row
//          output = (x − mean) / deviation · gain + bias, rounded once
//
// Read next: src/layers/norm_forward.cpp.
#include "norm_rows.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <bool biased, class T>
REGARD_INLINE void normalise(const T* x, Index count, double mean, const Divisor<T>& deviation, const double* gain,
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
  for_each_step<T>(rows, nullptr, 0, [&](Index first, const NormStep<T>& step) {
    for (Index tile = 0; tile < rows.width; tile += kNormColumns) {
      const Index count = smaller_of(kNormColumns, rows.width - tile);
      // If there are several steps, there is one tile, and its gain and bias are already there.
      if (first == 0) {
        widen_tile(rows.gain + tile, count, gain);
        if (f.bias) widen_tile(f.bias + tile, count, bias);
      }
      for (Index r = 0; r < step.num_rows; ++r) {
        const Divisor<T> deviation(step.deviation[r]);
        const T* const x = step.x + r * step.x_stride + tile;
        T* const output = f.output + (first + r) * f.output_stride + tile;
        if (f.bias) {
          normalise<true>(x, count, step.mean[r], deviation, gain, bias, output);
        } else {
          normalise<false>(x, count, step.mean[r], deviation, gain, bias, output);
        }
      }
    }
  });
}

template void NormKernels<float>::forward(const NormForward<float>&);
template void NormKernels<double>::forward(const NormForward<double>&);

}  // namespace regard::kernels::REGARD_ISA
