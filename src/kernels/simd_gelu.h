// SPDX-License-Identifier: Apache-2.0
//
// gelu(x) = x · Φ(x) = ½ x (1 + erf(x / √2)) over Vec<T>, and the tanh approximation that some models are trained with,
// gelu_tanh(x) = ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) (both: Hendrycks and Gimpel, arXiv 1606.08415). Both give the
// same bits on every instruction set with fused multiply-add. Bounds, tested for every float and for samples of double
// (tests/elementwise_test.cpp), also for tiny results (x → −∞, subnormal):
//
//   gelu(x)        7 ULP for float, 9 for double; gelu(0) = 0, gelu(∞) = ∞, gelu(−∞) = 0, NaN gives NaN
//   gelu_tanh(x)   7 ULP; same special values
//
//   t = |x|,  Q(t) = 1 − Φ(t) = exp(−t²/2) · M(t):     gelu(x) = max(x, 0) − t · Q(t)
//
// No nearly equal terms are subtracted: for x < 0 the first term is 0, otherwise it is at least twice the second.
// M(t) = ½ exp(t²/2) erfc(t/√2) decreases slowly and equals u · p(u − ½) with u = k / (t + k); p was fitted by
// the Remez exchange for the smallest relative error (2^−30.0 and 2^−57.3 before its coefficients were rounded).
//
//   u = √(2/π) (t + 0.044715 t³),  y = exp(−u):     gelu_tanh(x) = max(x, 0) − t · y / (1 + y²) · y
//
// An absolute error of u is a relative error of y, and u grows to 50 before y² is 0, so u is a sum of two values.
// Read next: linear_tile.cpp.
#pragma once

#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T>
struct GeluConstants;
template <>
struct GeluConstants<float> {
  static constexpr float kMaxArgument = 14.6f;  // Q of this rounds to 0
  static constexpr float kTurn = 3;             // k
  static constexpr int kDegree = 10;
  static constexpr float kPolynomial[kDegree + 1] = {0x1.f1b89cp-3f,  0x1.5bb438p-2f,  0x1.3a0d04p-2f, 0x1.021e06p-3f,
                                                     -0x1.c91d4ap-5f, -0x1.307e5ap-4f, 0x1.662f76p-6f, 0x1.68e5ccp-5f,
                                                     -0x1.562ef8p-6f, -0x1.6f10dcp-6f, 0x1.30953ap-6f};
  static constexpr std::int32_t kHighBits = ~0xfff;  // keeps 12 bits of the fraction, whose square is exact
};
template <>
struct GeluConstants<double> {
  static constexpr double kMaxArgument = 38.7;
  static constexpr double kTurn = 5;
  static constexpr int kDegree = 22;
  static constexpr double kPolynomial[kDegree + 1] = {
      0x1.3b0fbcb4c77bep-3,  0x1.108a698eca1acp-2,   0x1.95c11dc6c594bp-2,  0x1.00d8ab2d2ae51p-1,
      0x1.0e5e8ee59a81fp-1,  0x1.c4f9d5476450fp-2,   0x1.1090aa5d91b46p-2,  0x1.39e0d882316afp-4,
      -0x1.4ea69346440ffp-5, -0x1.c9182d3129b53p-5,  -0x1.8e76a353db60ep-7, 0x1.4df398c501dc3p-6,
      0x1.bfc7522f92424p-7,  -0x1.ab64666169f8ep-8,  -0x1.29511055facb5p-7, 0x1.2041b3d02a813p-9,
      0x1.73dea26c91090p-8,  -0x1.19515c9082b12p-10, -0x1.c5b76c86f9f64p-9, 0x1.ca99bc8a66927p-11,
      0x1.b4463ad3bc30cp-10, -0x1.3e8be12f86b8ap-11, -0x1.04c87768b70d5p-12};
  static constexpr std::int64_t kHighBits = ~0x7ffffffLL;
};

// The rounding error of square = t · t.
template <class T>
REGARD_INLINE Vec<T> square_error(Vec<T> t, Vec<T> square) {
  if constexpr (kFused) {
    return fma(t, t, -square);
  } else {
    // Dekker 1971: every product is exact.
    const Vec<T> high = from_bits<T>(bits_of<T>(t) & GeluConstants<T>::kHighBits);
    const Vec<T> low = t - high;
    return ((high * high - square) + static_cast<T>(2) * high * low) + low * low;
  }
}

// The rounding error of product = a · b.
template <class T>
REGARD_INLINE Vec<T> product_error(Vec<T> a, Vec<T> b, Vec<T> product) {
  if constexpr (kFused) {
    return fma(a, b, -product);
  } else {
    const Vec<T> a_high = from_bits<T>(bits_of<T>(a) & GeluConstants<T>::kHighBits);
    const Vec<T> b_high = from_bits<T>(bits_of<T>(b) & GeluConstants<T>::kHighBits);
    const Vec<T> a_low = a - a_high;
    const Vec<T> b_low = b - b_high;
    return ((a_high * b_high - product) + (a_high * b_low + a_low * b_high)) + a_low * b_low;
  }
}

template <class T>
REGARD_INLINE Vec<T> gelu(Vec<T> x) {
  using C = GeluConstants<T>;
  // NaN is preserved: min is written as −max(…, −x) so that a NaN is the second operand.
  const Vec<T> t = -max(broadcast(-C::kMaxArgument), -absolute<T>(x));
  const Vec<T> square = t * t;
  const Vec<T> half = broadcast(static_cast<T>(-0.5));
  const Vec<T> u = broadcast(C::kTurn) / (t + broadcast(C::kTurn));
  const Vec<T> v = u + half;
  Vec<T> p = broadcast(C::kPolynomial[C::kDegree]);
#pragma GCC unroll 32
  for (int i = C::kDegree - 1; i >= 0; --i) p = fma(p, v, broadcast(C::kPolynomial[i]));
  // t · u · p · (1 − error / 2), and then the exponential of the rounded square.
  Vec<T> rest = t * u * p;
  rest = fma(rest * half, square_error<T>(t, square), rest);
  return fma(-rest, exp<T>(square * half), max(Vec<T>{}, x));
}

template <class T>
struct GeluTanhConstants;
template <>
struct GeluTanhConstants<float> {
  static constexpr float kMaxArgument = 11;  // the square of exp(−u), times this, rounds to 0
  // √(2/π) and 0.044715 √(2/π), each as a rounded value and its rounding error.
  static constexpr float kFirst = 0x1.988454p-1f, kFirstRest = -0x1.857936p-26f;
  static constexpr float kThird = 0x1.2444f2p-5f, kThirdRest = 0x1.49b16ap-30f;
};
template <>
struct GeluTanhConstants<double> {
  static constexpr double kMaxArgument = 22;
  static constexpr double kFirst = 0x1.9884533d43651p-1, kFirstRest = -0x1.cbc0d30ebfd15p-55;
  static constexpr double kThird = 0x1.2444f2a4d8b4bp-5, kThirdRest = -0x1.6c843a29d1c7p-62;
};

template <class T>
REGARD_INLINE Vec<T> gelu_tanh(Vec<T> x) {
  using C = GeluTanhConstants<T>;
  const Vec<T> t = -max(broadcast(-C::kMaxArgument), -absolute<T>(x));
  const Vec<T> square = t * t;
  const Vec<T> cube = square * t;
  const Vec<T> cube_rest = fma(square_error<T>(t, square), t, product_error<T>(square, t, cube));
  const Vec<T> first = broadcast(C::kFirst) * t;
  const Vec<T> first_rest = fma(broadcast(C::kFirstRest), t, product_error<T>(broadcast(C::kFirst), t, first));
  const Vec<T> third = broadcast(C::kThird) * cube;
  const Vec<T> third_rest =
      fma(broadcast(C::kThird), cube_rest,
          fma(broadcast(C::kThirdRest), cube, product_error<T>(broadcast(C::kThird), cube, third)));
  // Knuth's sum of two values, with its rounding error.
  const Vec<T> u = first + third;
  const Vec<T> of_third = u - first;
  const Vec<T> rest = (first - (u - of_third)) + (third - of_third) + (first_rest + third_rest);
  Vec<T> y = exp<T>(-u);
  y = fma(-y, rest, y);
  const Vec<T> one = broadcast(static_cast<T>(1));
  return fma(-(t * y / fma(y, y, one)), y, max(Vec<T>{}, x));
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
