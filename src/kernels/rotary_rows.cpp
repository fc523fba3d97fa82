// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding of a row: cosines and sines of its angles, and the rotation of its pairs. No product is
// fused with a sum, so that the bits are the same on every instruction set.
//
//   factors             x = n · π/2 + r,  |r| ≤ π/4        cos and sin of r by polynomials, exchanged and negated by n
//   rotate_halves       (x[i], x[i + pairs])               two runs of contiguous elements
//   rotate_neighbors    (x[2i], x[2i + 1])                 two vectors are separated into first and second elements
//
// For |x| ≤ 2³¹, the absolute error of a cosine or sine in double is less than 2⁻⁵³ (tests/rotary_test.cpp).
//
// Reduction (Cody and Waite 1980): π/2 is a sum of three parts. n has at most 31 bits and the first two parts have 22,
// so that their products with n are exact, and so are the first two differences, because terms of similar size cancel.
// The third difference keeps its rounding error: r is a sum of two values with an absolute error of 2⁻⁶⁵. The
// polynomials were fitted by the Remez exchange; their errors are less than 2⁻⁵⁷ (sin: relative to r).
// Read next: src/layers/rotary.cpp.
#include "kernels.h"
#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
constexpr double kHalfPi[3] = {0x1.921fbp+0, 0x1.5110bp-22, 0x1.18469898cc517p-44};
// sin(r) = r + r³ · S(r²),  cos(r) = 1 − r²/2 + r⁴ · C(r²)
constexpr int kDegree = 5;
constexpr double kSine[kDegree + 1] = {-0x1.555555555554ep-3, 0x1.111111110fe6dp-7,   -0x1.a01a019cb0a5ep-13,
                                       0x1.71de35ef6ee63p-19, -0x1.ae5eb9a5f9cd2p-26, 0x1.5da8e8b2128ecp-33};
constexpr double kCosine[kDegree + 1] = {0x1.5555555555551p-5,   -0x1.6c16c16c15b51p-10, 0x1.a01a019d94190p-16,
                                         -0x1.27e4f8a2309e1p-22, 0x1.1eea4d083c8f5p-29,  -0x1.8fde1af06291bp-37};

REGARD_INLINE Vec<double> polynomial(const double (&coefficients)[kDegree + 1], Vec<double> z) {
  Vec<double> p = broadcast(coefficients[kDegree]);
#pragma GCC unroll 8
  for (int k = kDegree - 1; k >= 0; --k) p = p * z + coefficients[k];
  return p;
}

REGARD_INLINE void cosine_and_sine(Vec<double> x, Vec<double>* cosine, Vec<double>* sine) {
  const Vec<double> shifted = x * kTwoOverPi + kRound;
  const Vec<double> n = shifted - kRound;
  const Vec<double> rest = (x - n * kHalfPi[0]) - n * kHalfPi[1];
  const Vec<double> third = n * kHalfPi[2];
  const Vec<double> r = rest - third;
  const Vec<double> low = (rest - r) - third;
  const Vec<double> z = r * r;
  const Vec<double> half = z * 0.5;
  const Vec<double> of_sine = r + (r * z * polynomial(kSine, z) + low * (1 - half));
  const Vec<double> high = 1 - half;  // and its rounding error, (1 − high) − half
  const Vec<double> of_cosine = high + (((1 - high) - half) + (z * z * polynomial(kCosine, z) - r * low));
  const IntVec<double> quadrant = bits_of<double>(shifted);
  const IntVec<double> odd = -(quadrant & 1);
  const auto negated_by = [](Vec<double> v, IntVec<double> number) {
    return from_bits<double>(bits_of<double>(v) ^ (number & 2) << 62);
  };
  *cosine = negated_by(select<double>(odd, of_sine, of_cosine), quadrant + 1);
  *sine = negated_by(select<double>(odd, of_cosine, of_sine), quadrant);
}

template <class T>
REGARD_INLINE void store_narrow(T* to, Vec<double> v, Index count) {
  typedef T Narrow __attribute__((vector_size(kWidth<double> * sizeof(T))));
  const Narrow narrow = __builtin_convertvector(v, Narrow);
  std::memcpy(to, &narrow, static_cast<std::size_t>(count) * sizeof(T));
}

template <bool Adds, class T>
REGARD_INLINE void rotate(Vec<T> a, Vec<T> b, Vec<T> cosine, Vec<T> sine, Vec<T>* first, Vec<T>* second) {
  const Vec<T> x = a * cosine - b * sine;
  const Vec<T> y = b * cosine + a * sine;
  *first = Adds ? *first + x : x;
  *second = Adds ? *second + y : y;
}

template <bool Adds, class T>
void rotate_all_halves(const T* x, const T* cosines, const T* sines, Index pairs, T* y) {
  const auto step = [&](Index i, Index width) {
    Vec<T> first = Adds ? load_some(y + i, width) : Vec<T>{};
    Vec<T> second = Adds ? load_some(y + pairs + i, width) : Vec<T>{};
    rotate<Adds, T>(load_some(x + i, width), load_some(x + pairs + i, width), load_some(cosines + i, width),
                    load_some(sines + i, width), &first, &second);
    store_some<T>(y + i, first, width);
    store_some<T>(y + pairs + i, second, width);
  };
  Index i = 0;
  for (; i + kWidth<T> <= pairs; i += kWidth<T>) step(i, kWidth<T>);
  if (i < pairs) step(i, pairs - i);
}

// Two vectors of pairs → their first and second elements, and the inverse.
template <class T, int... Lane>
REGARD_INLINE void separate(Vec<T>& a, Vec<T>& b, Lanes<Lane...>) {
  const Vec<T> first = __builtin_shufflevector(a, b, (2 * Lane)...);
  b = __builtin_shufflevector(a, b, (2 * Lane + 1)...);
  a = first;
}
template <class T, int... Lane>
REGARD_INLINE void join(Vec<T>& a, Vec<T>& b, Lanes<Lane...>) {
  constexpr int width = sizeof...(Lane);
  const Vec<T> low = __builtin_shufflevector(a, b, (Lane % 2 * width + Lane / 2)...);
  b = __builtin_shufflevector(a, b, (Lane % 2 * width + width / 2 + Lane / 2)...);
  a = low;
}

template <bool Adds, class T>
void rotate_all_neighbors(const T* x, const T* cosines, const T* sines, Index pairs, T* y) {
  using AllLanes = typename FirstLanes<kWidth<T>>::type;
  const auto step = [](const T* from, Vec<T> cosine, Vec<T> sine, T* to) {
    Vec<T> a = load(from), b = load(from + kWidth<T>), first{}, second{};
    separate<T>(a, b, AllLanes{});
    rotate<false, T>(a, b, cosine, sine, &first, &second);
    join<T>(first, second, AllLanes{});
    store<T>(to, Adds ? load(to) + first : first);
    store<T>(to + kWidth<T>, Adds ? load(to + kWidth<T>) + second : second);
  };
  Index i = 0;
  for (; i + kWidth<T> <= pairs; i += kWidth<T>) step(x + 2 * i, load(cosines + i), load(sines + i), y + 2 * i);
  if (i == pairs) return;
  T from[2 * kWidth<T>]{}, to[2 * kWidth<T>]{};
  const auto bytes = static_cast<std::size_t>(pairs - i) * 2 * sizeof(T);
  std::memcpy(from, x + 2 * i, bytes);
  if (Adds) std::memcpy(to, y + 2 * i, bytes);
  step(from, load_some(cosines + i, pairs - i), load_some(sines + i, pairs - i), to);
  std::memcpy(y + 2 * i, to, bytes);
}

}  // namespace

template <class T>
void RotaryKernels<T>::factors(double position, const double* frequencies, Index count, T* cosines, T* sines) {
  for (Index i = 0; i < count; i += kWidth<double>) {
    const Index width = count - i < kWidth<double> ? count - i : kWidth<double>;
    Vec<double> cosine, sine;
    cosine_and_sine(load_some(frequencies + i, width) * position, &cosine, &sine);
    store_narrow(cosines + i, cosine, width);
    store_narrow(sines + i, sine, width);
  }
}

template <class T>
void RotaryKernels<T>::rotate_halves(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate, T* y) {
  accumulate ? rotate_all_halves<true>(x, cosines, sines, pairs, y)
             : rotate_all_halves<false>(x, cosines, sines, pairs, y);
}

template <class T>
void RotaryKernels<T>::rotate_neighbors(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate,
                                        T* y) {
  accumulate ? rotate_all_neighbors<true>(x, cosines, sines, pairs, y)
             : rotate_all_neighbors<false>(x, cosines, sines, pairs, y);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, RotaryKernels);

}  // namespace regard::kernels::REGARD_ISA
