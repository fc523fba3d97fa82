// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of layer norm and RMS norm. With g = grad_output · gain and n = (x − mean) / deviation:
//
//   grad_input = (g − Σ g / E − n · Σ (g · n) / E) / deviation            RMS norm: mean = 0, without Σ g / E
//   grad_gain  = Σ over rows of grad_output · n
//   grad_bias  = Σ over rows of grad_output
//
//   for each step of rows
//     1. sums of each row    Σ c, Σ c², Σ g and Σ (g · c), with c = x − x[0], in double
//     2. coefficients        mean, deviation and the two means of g, from these sums
//     3. gradients           grad_input, in T
//   4. sums over the rows    in double, four rows at a time
//
// With c in place of x − mean, one pass over memory suffices. It is as accurate, because x[0] is an element of the row:
// (mean − x[0])² ≤ E · variance. The sums of a row have eight lanes, folded by halves.
// Read next: src/layers/norm_backward.cpp.
#include "norm_rows.h"

namespace regard::kernels::REGARD_ISA {
namespace {

inline constexpr Index kSumLanes = 8;
inline constexpr int kSumParts = static_cast<int>(kSumLanes / kWide);

// The sums of a row over its tiles so far.
struct RowSums {
  double x[kSumLanes];         // Σ c
  double square[kSumLanes];    // Σ c²
  double gradient[kSumLanes];  // Σ g
  double product[kSumLanes];   // Σ (g · c)
};

// Adds `count` columns. The same columns of the row that is `ahead` elements further are prefetched.
template <class T>
REGARD_INLINE void add_columns(const T* x, Index x_ahead, const T* grad_output, Index grad_output_ahead, Index count,
                               double origin, const double* gain, RowSums& sums) {
  Vec<double> sum_x[kSumParts], square[kSumParts], gradient[kSumParts], product[kSumParts];
  std::memcpy(sum_x, sums.x, sizeof sum_x);
  std::memcpy(square, sums.square, sizeof square);
  std::memcpy(gradient, sums.gradient, sizeof gradient);
  std::memcpy(product, sums.product, sizeof product);
  const Vec<double> first = broadcast(origin);
  const auto add = [&](Index e, int part, Vec<double> element, Vec<double> grad) {
    const Vec<double> factor = load(gain + e);
    const Vec<double> c = element - first;
    sum_x[part] += c;
    square[part] = fma(c, c, square[part]);
    gradient[part] = fma(grad, factor, gradient[part]);
    product[part] = fma(grad * c, factor, product[part]);
  };
  Index e = 0;
  for (; e + kLanes <= count; e += kLanes) {
    __builtin_prefetch(x + x_ahead + e);
    __builtin_prefetch(grad_output + grad_output_ahead + e);
#pragma GCC unroll 8
    for (int part = 0; part < 2 * kSumParts; ++part) {
      const Index at = e + part * kWide;
      add(at, part % kSumParts, load_wide(x + at), load_wide(grad_output + at));
    }
  }
#pragma GCC unroll 8
  for (int part = 0; part < 2 * kSumParts; ++part) {
    const Index at = e + part * kWide, rest = smaller_of(kWide, count - at);
    if (rest <= 0) continue;
    const IntVec<double> present = lane_numbers<double>() < broadcast_int<double>(rest);
    const Vec<double> element = select<double>(present, load_wide_some(x + at, rest), first);
    add(at, part % kSumParts, element, load_wide_some(grad_output + at, rest));
  }
  std::memcpy(sums.x, sum_x, sizeof sum_x);
  std::memcpy(sums.square, square, sizeof square);
  std::memcpy(sums.gradient, gradient, sizeof gradient);
  std::memcpy(sums.product, product, sizeof product);
}

REGARD_INLINE double fold_lanes(const double* lanes) {
  Vec<double> parts[kSumParts];
  std::memcpy(parts, lanes, sizeof parts);
  return fold(parts);
}

// The values from which the gradients of a row are computed.
struct RowCoefficients {
  double mean;
  double rest;      // of the mean, which is exact to twice the precision: x − mean is then as accurate as x
  double scale;     // 1 / deviation
  double gradient;  // Σ g / E
  double product;   // Σ (g · n) / E
};

template <class T>
REGARD_INLINE RowCoefficients coefficients_of(const NormRows<T>& rows, const RowSums& sums, double origin) {
  const double count = static_cast<double>(rows.width);
  const double offset = rows.centered ? fold_lanes(sums.x) / count : 0;  // mean − origin
  const double variance = fold_lanes(sums.square) / count - offset * offset;
  const double scale = 1 / square_root((variance < 0 ? 0 : variance) + rows.epsilon);
  const double gradient = fold_lanes(sums.gradient) / count;
  const double product = (fold_lanes(sums.product) / count - offset * gradient) * scale;
  const double mean = origin + offset;
  return {mean, (origin - mean) + offset, scale, rows.centered ? gradient : 0, product};
}

template <bool accumulate, class T>
REGARD_INLINE void write_grad_input(const T* x, const T* grad_output, const T* gain, Index width,
                                    const RowCoefficients& row, T* grad_input) {
  const T high = static_cast<T>(row.mean), low = static_cast<T>(row.mean - static_cast<double>(high) + row.rest);
  const Vec<T> mean_high = broadcast(high), mean_low = broadcast(low), scale = broadcast(static_cast<T>(row.scale));
  const Vec<T> gradient = broadcast(static_cast<T>(-row.gradient)), product = broadcast(static_cast<T>(-row.product));
  const auto result = [&](Vec<T> element, Vec<T> grad, Vec<T> factor) {
    const Vec<T> normed = (element - mean_high - mean_low) * scale;
    return fma(normed, product, fma(grad, factor, gradient)) * scale;
  };
  Index e = 0;
  for (; e + kWidth<T> <= width; e += kWidth<T>) {
    const Vec<T> written = result(load(x + e), load(grad_output + e), load(gain + e));
    store(grad_input + e, accumulate ? load(grad_input + e) + written : written);
  }
  if (const Index rest = width - e; rest > 0) {
    const Vec<T> written = result(load_some(x + e, rest), load_some(grad_output + e, rest), load_some(gain + e, rest));
    store_some(grad_input + e, accumulate ? load_some(grad_input + e, rest) + written : written, rest);
  }
}

// Adds rows first … first + num_rows − 1 to the sums over rows.
template <int num_rows, bool biased, class T>
REGARD_INLINE void add_rows(const NormBackward<T>& b, RowsOfX<T> x, Index first, const RowCoefficients* coefficients) {
  const T* const elements = x.data + first * x.stride;
  const T* const grad_output = b.grad_output + first * b.grad_output_stride;
  Vec<double> mean[num_rows], rest_of_mean[num_rows], scale[num_rows];
#pragma GCC unroll 4
  for (int r = 0; r < num_rows; ++r) {
    mean[r] = broadcast(coefficients[first + r].mean);
    rest_of_mean[r] = broadcast(coefficients[first + r].rest);
    scale[r] = broadcast(coefficients[first + r].scale);
  }
  const auto add = [&](Index e, const auto& read) {
    Vec<double> sum_gain = load(b.sum_gain + e), sum_bias{};
    if (biased) sum_bias = load(b.sum_bias + e);
#pragma GCC unroll 4
    for (int r = 0; r < num_rows; ++r) {
      const Vec<double> grad = read(grad_output + r * b.grad_output_stride + e);
      Vec<double> centered = read(elements + r * x.stride + e) - mean[r];
      if (sizeof(T) == sizeof(double)) centered -= rest_of_mean[r];
      sum_gain = fma(grad * centered, scale[r], sum_gain);
      sum_bias += grad;
    }
    store(b.sum_gain + e, sum_gain);
    if (biased) store(b.sum_bias + e, sum_bias);
  };
  Index e = 0;
  for (; e + kWide <= b.rows.width; e += kWide) add(e, [](const T* p) { return load_wide(p); });
  if (const Index rest = b.rows.width - e; rest > 0) add(e, [rest](const T* p) { return load_wide_some(p, rest); });
}
template <bool biased, class T>
REGARD_INLINE void add_all_rows(const NormBackward<T>& b, RowsOfX<T> x, const RowCoefficients* coefficients) {
  Index r = 0;
  for (; r + 4 <= b.rows.num_rows; r += 4) add_rows<4, biased>(b, x, r, coefficients);
  for (; r < b.rows.num_rows; ++r) add_rows<1, biased>(b, x, r, coefficients);
}

}  // namespace

template <class T>
void NormKernels<T>::backward(const NormBackward<T>& b) {
  const NormRows<T>& rows = b.rows;
  const Index width = rows.width, together = rows_together(rows);
  const RowsOfX<T> x = sum_of_inputs(rows, 0, rows.num_rows);
  double* const gain = rows.scratch;
  RowCoefficients coefficients[kNormRows];
  for (Index first = 0; first < rows.num_rows; first += together) {
    const Index end = smaller_of(first + together, rows.num_rows);
    RowSums sums[kNormRows];
    double origin[kNormRows];
    std::memset(sums + first, 0, static_cast<std::size_t>(end - first) * sizeof(RowSums));
    for (Index r = first; r < end; ++r) origin[r] = rows.centered ? static_cast<double>(x.data[r * x.stride]) : 0;
    for (Index tile = 0; tile < width; tile += kNormColumns) {
      const Index columns = smaller_of(kNormColumns, width - tile);
      // If there are several steps, there is one tile, and its gain is already there.
      if (first == 0) widen_tile(rows.gain + tile, columns, gain);
      for (Index r = first; r < end; ++r) {
        add_columns(x.data + r * x.stride + tile, together * x.stride, b.grad_output + r * b.grad_output_stride + tile,
                    together * b.grad_output_stride, columns, origin[r], gain, sums[r]);
      }
    }
    for (Index r = first; r < end; ++r) coefficients[r] = coefficients_of(rows, sums[r], origin[r]);
    for (Index r = first; r < (b.grad_input ? end : first); ++r) {
      const T* const elements = x.data + r * x.stride;
      const T* const grad_output = b.grad_output + r * b.grad_output_stride;
      T* const grad_input = b.grad_input + r * b.grad_input_stride;
      if (b.accumulate) {
        write_grad_input<true>(elements, grad_output, rows.gain, width, coefficients[r], grad_input);
      } else {
        write_grad_input<false>(elements, grad_output, rows.gain, width, coefficients[r], grad_input);
      }
    }
  }
  if (b.sum_bias) {
    add_all_rows<true>(b, x, coefficients);
  } else if (b.sum_gain) {
    add_all_rows<false>(b, x, coefficients);
  }
}

template void NormKernels<float>::backward(const NormBackward<float>&);
template void NormKernels<double>::backward(const NormBackward<double>&);

}  // namespace regard::kernels::REGARD_ISA
