// SPDX-License-Identifier: Apache-2.0
//
// The cross-entropy loss of one row of logits, and its gradient, in three passes:
//
//   1. the maximum
//   2. exp(x − maximum), stored for the gradient, and their sum in double
//   3. times factor / sum
//
// The sum has sixteen lanes (element v belongs to lane v mod 16), folded by halves: a fixed order, which gives the same
// bits on every instruction set. The gradient of the target is computed separately, in double. The logarithm of the
// sum is left to the caller: taken for many rows at once, it does not lengthen the chain of dependent steps of a row.
// Read next: src/layers/cross_entropy.cpp.
#include "kernels.h"
#include "simd_math.h"
#include "simd_wide.h"

namespace regard::kernels::REGARD_ISA {
namespace {

constexpr int kParts = kLanes / kWidth<double>;
template <class T>
inline constexpr int kGroupVectors = kLanes / kWidth<T>;  // of one element for each lane
// Groups whose exponentials are interleaved.
template <class T>
inline constexpr int kGroups = kGroupVectors<T> < kExpVectors ? kExpVectors / kGroupVectors<T> : 1;

template <class T, int bit, int... Lane>
REGARD_INLINE Vec<T> max_exchanged(Vec<T> v, Lanes<Lane...>) {
  return max(v, __builtin_shufflevector(v, v, (Lane ^ bit)...));
}
template <class T, int bit = kWidth<T> / 2>
REGARD_INLINE T largest_lane(Vec<T> v) {
  if constexpr (bit == 0) {
    return v[0];
  } else {
    return largest_lane<T, bit / 2>(max_exchanged<T, bit>(v, typename FirstLanes<kWidth<T>>::type{}));
  }
}

// parts[i] += the i-th half of v, or all of v.
REGARD_INLINE void add_to(Vec<double>* parts, Vec<float> v) {
  Vec<double> halves[2];
  widen_halves(v, halves);
  parts[0] += halves[0];
  parts[1] += halves[1];
}
REGARD_INLINE void add_to(Vec<double>* parts, Vec<double> v) { parts[0] += v; }

// parts += exp(x − largest) of kCount groups; y, if not nullptr, receives the exponentials.
template <class T, int kCount>
REGARD_INLINE void exp_groups(const T* x, Vec<T> largest, T* y, Vec<double>* parts) {
  constexpr int kVectors = kCount * kGroupVectors<T>;
  constexpr int kStep = kVectors < kExpVectors ? kVectors : kExpVectors;
  Vec<T> v[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) v[i] = load(x + i * kWidth<T>) - largest;
#pragma GCC unroll 2
  for (int i = 0; i < kVectors; i += kStep) exp<T, kStep>(v + i, v + i);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    if (y) store(y + i * kWidth<T>, v[i]);
    add_to(parts + i % kGroupVectors<T> * kWidth<T> / kWidth<double>, v[i]);
  }
}

// NaN is ignored: the sum of exponentials shows it.
template <class T>
T largest_of(const T* x, Index count) {
  constexpr int kVectors = 4;
  T result = -kInfinity<T>;
  if (count < kWidth<T>) {
    for (Index i = 0; i < count; ++i) result = x[i] > result ? x[i] : result;
    return result;
  }
  Vec<T> largest[kVectors];
  for (Vec<T>& v : largest) v = broadcast(result);
  Index i = 0;
  for (; i + kVectors * kWidth<T> <= count; i += kVectors * kWidth<T>) {
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) largest[k] = max(load(x + i + k * kWidth<T>), largest[k]);
  }
  for (; i + kWidth<T> <= count; i += kWidth<T>) largest[0] = max(load(x + i), largest[0]);
  largest[1] = max(load(x + count - kWidth<T>), largest[1]);
  return largest_lane<T>(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

// Σ exp(x − largest); y, if not nullptr, receives the exponentials and may be x.
template <class T>
double sum_of_exponentials(const T* x, Index count, T largest, T* y) {
  const Vec<T> subtracted = broadcast(largest);
  Vec<double> parts[kParts] = {};
  Index i = 0;
  for (; i + kGroups<T> * kLanes <= count; i += kGroups<T> * kLanes)
    exp_groups<T, kGroups<T>>(x + i, subtracted, y ? y + i : nullptr, parts);
  for (; i + kLanes <= count; i += kLanes) exp_groups<T, 1>(x + i, subtracted, y ? y + i : nullptr, parts);
  if (i < count) {
    T last[kLanes];
    for (T& element : last) element = -kInfinity<T>;
    const auto bytes = static_cast<std::size_t>(count - i) * sizeof(T);
    std::memcpy(last, x + i, bytes);
    exp_groups<T, 1>(last, subtracted, last, parts);
    if (y) std::memcpy(y + i, last, bytes);
  }
  return fold(parts);
}

}  // namespace

template <class T>
void cross_entropy_row(const T* logits, Index count, Index target, double factor, T* gradient, double* sum,
                       double* distance) {
  const T largest = largest_of(logits, count);
  *distance = static_cast<double>(largest) - static_cast<double>(logits[target]);
  *sum = sum_of_exponentials(logits, count, largest, gradient);
  if (!gradient) return;
  const double of_target = (static_cast<double>(gradient[target]) / *sum - 1) * factor;
  const T scale = static_cast<T>(factor / *sum);
  Index i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(gradient + i, load(gradient + i) * scale);
  for (; i < count; ++i) gradient[i] *= scale;
  gradient[target] = static_cast<T>(of_target);
}

REGARD_INSTANTIATE_COMPUTE(cross_entropy_row);

}  // namespace regard::kernels::REGARD_ISA
