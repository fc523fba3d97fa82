// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of layer norm and RMS norm. With g = grad_output · gain and n = (x − mean) / deviation:
//
//   grad_input = (g − Σ g / E − n · Σ (g · n) / E) / deviation            RMS norm: without Σ g / E
//   grad_gain  = Σ over rows of grad_output · n
//   grad_bias  = Σ over rows of grad_output
//
//   for each step of rows                      norm_rows.h
//     1. mean and deviation of each row
//     2. for each tile of 1024 columns: gain in double, then all sums in double, a few rows at a time
//     3. grad_input of each row, in T
//
// The sums of a row have eight lanes, folded by halves. Sums over rows are kept in memory and add one row after
// another. Read next: src/layers/norm_backward.cpp.
#include "norm_rows.h"

namespace regard::kernels::REGARD_ISA {
namespace {

inline constexpr Index kSumLanes = 8;
inline constexpr int kSumParts = static_cast<int>(kSumLanes / kWide);
// Rows that pass over the columns together: as many as there are registers for.
inline constexpr int kSumRows = kWide == 8 ? 4 : kWide == 4 ? 2 : 1;

// The two sums of a row, over the tiles so far.
struct RowSums {
  double gradient[kSumLanes];  // Σ g
  double moment[kSumLanes];    // Σ g · (x − mean)
};

// The rows of a step, from column `tile` on.
template <class T>
struct SumTile {
  const T* x;
  Index x_stride;
  const T* grad_output;
  Index grad_output_stride;
  Index count;          // columns
  const double* mean;   // [rows]
  const double* scale;  // [rows]: 1 / deviation
  const double* gain;   // [count]
  double* sum_gain;     // [count], or nullptr
  double* sum_bias;     // [count], or nullptr
  RowSums* sums;        // [rows]
};

// Sums of `rows` rows from row `first` on; over rows only those of gain (columns = 1), also those of bias (2), or none.
template <int rows, int columns, class T>
REGARD_INLINE void add_sums(const SumTile<T>& tile, Index first) {
  Vec<double> gradient[rows][kSumParts], moment[rows][kSumParts], mean[rows], scale[rows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    mean[r] = broadcast(tile.mean[first + r]);
    scale[r] = broadcast(tile.scale[first + r]);
#pragma GCC unroll 4
    for (int part = 0; part < kSumParts; ++part) {
      gradient[r][part] = load(tile.sums[first + r].gradient + part * kWide);
      moment[r][part] = load(tile.sums[first + r].moment + part * kWide);
    }
  }
  const T* const x = tile.x + first * tile.x_stride;
  const T* const grad_output = tile.grad_output + first * tile.grad_output_stride;
  const auto add = [&](Index e, int part, const auto& read) {
    const Vec<double> gain = load(tile.gain + e);
    Vec<double> sum_gain{}, sum_bias{};
    if (columns > 0) sum_gain = load(tile.sum_gain + e);
    if (columns > 1) sum_bias = load(tile.sum_bias + e);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Vec<double> grad = read(grad_output + r * tile.grad_output_stride + e);
      const Vec<double> product = grad * (read(x + r * tile.x_stride + e) - mean[r]);
      gradient[r][part] = fma(grad, gain, gradient[r][part]);
      moment[r][part] = fma(product, gain, moment[r][part]);
      sum_gain = fma(product, scale[r], sum_gain);
      sum_bias += grad;
    }
    if (columns > 0) store(tile.sum_gain + e, sum_gain);
    if (columns > 1) store(tile.sum_bias + e, sum_bias);
  };
  Index e = 0;
  for (; e + kSumLanes <= tile.count; e += kSumLanes) {
#pragma GCC unroll 4
    for (int part = 0; part < kSumParts; ++part)
      add(e + part * kWide, part, [](const auto* p) { return load_wide(p); });
  }
#pragma GCC unroll 4
  for (int part = 0; part < kSumParts; ++part) {
    const Index at = e + part * kWide, rest = tile.count - at;
    if (rest >= kWide) {
      add(at, part, [](const auto* p) { return load_wide(p); });
    } else if (rest > 0) {
      add(at, part, [rest](const auto* p) { return load_wide_some(p, rest); });
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int part = 0; part < kSumParts; ++part) {
      store(tile.sums[first + r].gradient + part * kWide, gradient[r][part]);
      store(tile.sums[first + r].moment + part * kWide, moment[r][part]);
    }
  }
}

template <int columns, class T>
REGARD_INLINE void add_all_sums(const SumTile<T>& tile, Index num_rows) {
  Index r = 0;
  for (; r + kSumRows <= num_rows; r += kSumRows) add_sums<kSumRows, columns>(tile, r);
  for (; r < num_rows; ++r) add_sums<1, columns>(tile, r);
}
template <class T>
REGARD_INLINE void add_sums_of_rows(const SumTile<T>& tile, Index num_rows) {
  if (tile.sum_bias) {
    add_all_sums<2>(tile, num_rows);
  } else if (tile.sum_gain) {
    add_all_sums<1>(tile, num_rows);
  } else {
    add_all_sums<0>(tile, num_rows);
  }
}

REGARD_INLINE double fold_lanes(const double* lanes) {
  Vec<double> parts[kSumParts];
  std::memcpy(parts, lanes, sizeof parts);
  return fold(parts);
}

// grad_input of one row. The mean is subtracted in two parts, so that x − mean is as exact as x.
template <bool accumulate, class T>
REGARD_INLINE void grad_input_row(const T* x, const T* grad_output, const T* gain, Index width, double mean,
                                  double scale, double mean_gradient, double mean_moment, T* grad_input) {
  const T high = static_cast<T>(mean), low = static_cast<T>(mean - static_cast<double>(high));
  const Vec<T> mean_high = broadcast(high), mean_low = broadcast(low), factor = broadcast(static_cast<T>(scale));
  const Vec<T> constant = broadcast(static_cast<T>(mean_gradient)), slope = broadcast(static_cast<T>(-mean_moment));
  const auto gradient = [&](Vec<T> element, Vec<T> grad, Vec<T> of_gain) {
    const Vec<T> normed = ((element - mean_high) - mean_low) * factor;
    return fma(normed, slope, grad * of_gain - constant) * factor;
  };
  Index e = 0;
  for (; e + kWidth<T> <= width; e += kWidth<T>) {
    const Vec<T> result = gradient(load(x + e), load(grad_output + e), load(gain + e));
    store(grad_input + e, accumulate ? load(grad_input + e) + result : result);
  }
  if (const Index rest = width - e; rest > 0) {
    const Vec<T> result = gradient(load_some(x + e, rest), load_some(grad_output + e, rest), load_some(gain + e, rest));
    store_some(grad_input + e, accumulate ? load_some(grad_input + e, rest) + result : result, rest);
  }
}

}  // namespace

template <class T>
void NormKernels<T>::backward(const NormBackward<T>& b) {
  const NormRows<T>& rows = b.rows;
  const double width = static_cast<double>(rows.width);
  double* const gain = rows.scratch;
  for_each_step(rows, b.grad_output, b.grad_output_stride, [&](Index first, const NormStep<T>& step) {
    double scale[kNormRows];
    for (Index r = 0; r < step.num_rows; ++r) scale[r] = 1 / step.deviation[r];
    const T* const grad_output = b.grad_output + first * b.grad_output_stride;
    RowSums sums[kNormRows]{};
    for (Index tile = 0; tile < rows.width; tile += kNormColumns) {
      const Index count = smaller_of(kNormColumns, rows.width - tile);
      if (first == 0) widen_tile(rows.gain + tile, count, gain);
      add_sums_of_rows(
          SumTile<T>{step.x + tile, step.x_stride, grad_output + tile, b.grad_output_stride, count, step.mean, scale,
                     gain, b.sum_gain ? b.sum_gain + tile : nullptr, b.sum_bias ? b.sum_bias + tile : nullptr, sums},
          step.num_rows);
    }
    if (!b.grad_input) return;
    for (Index r = 0; r < step.num_rows; ++r) {
      const double mean_gradient = rows.centered ? fold_lanes(sums[r].gradient) / width : 0;
      const double mean_moment = fold_lanes(sums[r].moment) * scale[r] / width;
      T* const to = b.grad_input + (first + r) * b.grad_input_stride;
      const T* const x = step.x + r * step.x_stride;
      const T* const grad = grad_output + r * b.grad_output_stride;
      if (b.accumulate) {
        grad_input_row<true>(x, grad, rows.gain, rows.width, step.mean[r], scale[r], mean_gradient, mean_moment, to);
      } else {
        grad_input_row<false>(x, grad, rows.gain, rows.width, step.mean[r], scale[r], mean_gradient, mean_moment, to);
      }
    }
  });
}

template void NormKernels<float>::backward(const NormBackward<float>&);
template void NormKernels<double>::backward(const NormBackward<double>&);

}  // namespace regard::kernels::REGARD_ISA
