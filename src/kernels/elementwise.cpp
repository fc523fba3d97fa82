// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh, log, gelu and gelu_tanh over arrays: the functions of simd_math.h and simd_gelu.h, made available to tests
// and to front ends that show them. Sums, conversions and copies of arrays.
#include "kernels.h"
#include "simd_gelu.h"
#include "simd_math.h"
#include "simd_wide.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T, class F>
void each_vector(const T* x, T* y, Index count, F f) {
  for (Index i = 0; i < count; i += kWidth<T>) {
    const Index width = count - i < kWidth<T> ? count - i : kWidth<T>;
    Vec<T> v{};
    std::memcpy(&v, x + i, static_cast<std::size_t>(width) * sizeof(T));
    v = f(v);
    std::memcpy(y + i, &v, static_cast<std::size_t>(width) * sizeof(T));
  }
}

}  // namespace

template <class T>
void ElementwiseKernels<T>::exp_elements(const T* x, T* y, Index count) {
  constexpr Index kStep = kExpVectors * kWidth<T>;
  const Index end = count / kStep * kStep;
  for (Index i = 0; i < end; i += kStep) {
    Vec<T> v[kExpVectors];
    std::memcpy(v, x + i, sizeof v);
    exp<T, kExpVectors>(v, v);
    std::memcpy(y + i, v, sizeof v);
  }
  each_vector(x + end, y + end, count - end, [](Vec<T> v) { return exp<T>(v); });
}
template <class T>
void ElementwiseKernels<T>::tanh_elements(const T* x, T* y, Index count) {
  each_vector(x, y, count, [](Vec<T> v) { return tanh<T>(v); });
}
template <class T>
void ElementwiseKernels<T>::log_elements(const T* x, T* y, Index count) {
  for (Index i = 0; i < count; ++i) y[i] = log(x[i]);
}
template <class T>
void ElementwiseKernels<T>::gelu_elements(const T* x, T* y, Index count) {
  each_vector(x, y, count, [](Vec<T> v) { return gelu<T>(v); });
}
template <class T>
void ElementwiseKernels<T>::gelu_tanh_elements(const T* x, T* y, Index count) {
  each_vector(x, y, count, [](Vec<T> v) { return gelu_tanh<T>(v); });
}

template <class T>
void ElementwiseKernels<T>::add_elements(const T* x, T* sum, Index count) {
  Index i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(sum + i, load(sum + i) + load(x + i));
  for (; i < count; ++i) sum[i] += x[i];
}
template <class T>
void ElementwiseKernels<T>::add_wide_elements(const T* x, double* sum, Index count) {
  Index i = 0;
  for (; i + kWide <= count; i += kWide) store(sum + i, load(sum + i) + load_wide(x + i));
  for (; i < count; ++i) sum[i] += static_cast<double>(x[i]);
}
template <class T>
void ElementwiseKernels<T>::round_elements(const double* x, T* y, Index count) {
  Index i = 0;
  for (; i + kWide <= count; i += kWide) store_rounded(y + i, load(x + i));
  for (; i < count; ++i) y[i] = static_cast<T>(x[i]);
}

void copy_rows(const RowCopy& rows) {
  constexpr Index kLine = 64;
  const Index bytes = rows.num_bytes;
  for (Index r = 0; r < rows.num_rows; ++r) {
    const unsigned char* const from = rows.from[r];
    const unsigned char* const next_from = rows.from[r + 1 < rows.num_rows ? r + 1 : r];
    unsigned char* const to = rows.to + r * rows.to_stride;
    const unsigned char* const next_to = to + rows.to_stride;
    Index i = 0;
    for (; i + kLine <= bytes; i += kLine) {
      __builtin_prefetch(next_from + i);
      __builtin_prefetch(next_to + i, 1);
      std::memcpy(to + i, from + i, kLine);
    }
    if (i < bytes) std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
  }
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, ElementwiseKernels);

}  // namespace regard::kernels::REGARD_ISA
