// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation of a row, in double. A sum has sixteen lanes (element e belongs to lane e mod 16), folded by
// halves: a fixed order, which gives the same bits on every instruction set.
// Read next: src/layers/layer_norm.cpp.
#include "kernels.h"
#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

constexpr Index kLanes = 16;
constexpr Index kParts = kLanes / kWidth<double>;

template <class T>
struct Narrow {
  typedef T type __attribute__((vector_size(kWidth<double> * sizeof(T))));
};

template <class T>
REGARD_INLINE Vec<double> load_wide(const T* p) {
  typename Narrow<T>::type v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Vec<double>);
}

template <class T, class Term>
REGARD_INLINE double sum_of(const T* x, Index count, const Term& term) {
  Vec<double> parts[kParts] = {};
  Index e = 0;
  for (; e + kLanes <= count; e += kLanes) {
    for (Index part = 0; part < kParts; ++part) parts[part] += term(load_wide(x + e + part * kWidth<double>));
  }
  double lanes[kLanes];
  std::memcpy(lanes, parts, sizeof lanes);
  for (Index lane = 0; e < count; ++e, ++lane) lanes[lane] += term(broadcast(static_cast<double>(x[e])))[0];
  for (Index half = kLanes / 2; half > 0; half /= 2) {
    for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

template <class T>
void LayerNormKernels<T>::moments(const T* x, Index count, double* mean, double* variance) {
  *mean = sum_of(x, count, [](Vec<double> v) { return v; }) / static_cast<double>(count);
  const Vec<double> middle = broadcast(*mean);
  *variance =
      sum_of(x, count, [middle](Vec<double> v) { return (v - middle) * (v - middle); }) / static_cast<double>(count);
}

template <class T>
void LayerNormKernels<T>::normalise(Index count, double mean, double deviation, const T* gain, const T* bias, T* x) {
  const Vec<double> middle = broadcast(mean), width = broadcast(deviation);
  Index e = 0;
  for (; e + kWidth<double> <= count; e += kWidth<double>) {
    const Vec<double> normed = (load_wide(x + e) - middle) / width;
    const auto result =
        __builtin_convertvector(normed * load_wide(gain + e) + load_wide(bias + e), typename Narrow<T>::type);
    std::memcpy(x + e, &result, sizeof result);
  }
  for (; e < count; ++e) {
    const double normed = (static_cast<double>(x[e]) - mean) / deviation;
    x[e] = static_cast<T>(normed * static_cast<double>(gain[e]) + static_cast<double>(bias[e]));
  }
}

template struct LayerNormKernels<float>;
template struct LayerNormKernels<double>;

}  // namespace regard::kernels::REGARD_ISA
