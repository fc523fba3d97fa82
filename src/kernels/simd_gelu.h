// SPDX-License-Identifier: Apache-2.0
//
// gelu(x) = x · Φ(x) = ½ x (1 + erf(x / √2)) over Vec<T>, within 6 ULP, and the tanh approximation that some models are
// trained with, gelu_tanh(x) = ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), within 7 ULP, even of subnormal results (both:
// Hendrycks and Gimpel, arXiv 1606.08415). NaN gives NaN, ∞ gives ∞, and −∞ gives 0. The bits are the same on every
// instruction set with fused multiply-add. Tested for every float and many doubles: tests/activation_error_test.cpp.
//
//   t = |x|,  Q(t) = 1 − Φ(t) = exp(−t²/2) · M(t):           gelu(x)      = max(x, 0) − t · Q(t)
//   u = √(2/π) (t + 0.044715 t³),  y = exp(−u):              gelu_tanh(x) = max(x, 0) − t · y / (1 + y²) · y
//
// No nearly equal terms are subtracted: for x < 0 the first term is 0, otherwise it is at least twice the second.
// M(t) = ½ exp(t²/2) erfc(t/√2) decreases slowly, and t · M(t) = s · p(½ − s) with s = t / (t + k); p was fitted by
// the Remez exchange for the smallest relative error (2^−27.0 and 2^−57.4 before its coefficients were rounded).
//
// An absolute error of an exponent is a relative error of the exponential, and exponents grow to 107 (double: 750)
// before results are 0. So the exponential of −t²/2 is reduced from the exact square, and u is a sum of two values.
// Read next: simd_activation.h (silu and the derivatives).
#pragma once

#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T>
struct GeluConstants;
template <>
struct GeluConstants<float> {
  static constexpr float kMaxArgument = 14.6f;  // Q of this rounds to 0
  static constexpr float kTurn = 3.5f;          // k
  static constexpr int kDegree = 9;
  static constexpr float kPolynomial[kDegree + 1] = {0x1.7d241ap-1f, 0x1.219150p+0f,  0x1.42fecap+0f,  0x1.db5a76p-1f,
                                                     0x1.1d2f2ep-2f, -0x1.a98a94p-3f, -0x1.a02104p-3f, 0x1.0382a6p-4f,
                                                     0x1.b99ff8p-4f, -0x1.ce9148p-5f};
  static constexpr std::int32_t kHighBits = ~0xfff;  // keeps 12 bits of the fraction, whose square is exact
};
template <>
struct GeluConstants<double> {
  static constexpr double kMaxArgument = 38.7;
  static constexpr double kTurn = 5.5;
  static constexpr int kDegree = 21;
  static constexpr double kPolynomial[kDegree + 1] = {
      0x1.8c2b8893b5c8dp-1,  0x1.5ed05c7e41a2ep+0,  0x1.1239b3f8c06dap+1, 0x1.77dbb5cdda96cp+1, 0x1.be33e6ee995efp+1,
      0x1.c15806fa49140p+1,  0x1.71707b5751f89p+1,  0x1.c83edf433636dp+0, 0x1.4034e561cdddep-1, -0x1.1ab345dd46497p-3,
      -0x1.544962c100250p-2, -0x1.2b891ccf1f122p-3, 0x1.11cdc72cfe5c4p-4, 0x1.96a48e621ee1bp-4, 0x1.df4472bc8f330p-8,
      -0x1.8e5283e0bf047p-5, -0x1.1f85710f86ee9p-6, 0x1.7d62640b4c219p-6, 0x1.afa6125224b28p-7, -0x1.8a1aaab71385dp-7,
      -0x1.84700e96f8c30p-8, 0x1.62943df9d5282p-8};
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

// −|x|, at least −largest. NaN is preserved, because it is the second operand of max.
template <class T>
REGARD_INLINE Vec<T> negative_magnitude(Vec<T> x, T largest) {
  return max(broadcast(-largest), from_bits<T>(bits_of<T>(x) | bits_of<T>(broadcast(static_cast<T>(-0.0)))));
}

// The polynomial of exp(r) = 1 + r + r² · q(r) (simd_math.h) in −2r: its coefficients times powers of −½.
template <class T>
struct GaussianConstants {
  static constexpr int kDegree = ExpConstants<T>::kDegree + 2;
  T polynomial[kDegree + 1];
  constexpr GaussianConstants() : polynomial{1, static_cast<T>(-0.5)} {
    T power = static_cast<T>(0.25);
    for (int k = 2; k <= kDegree; ++k) {
      polynomial[k] = ExpConstants<T>::kPolynomial[k - 2] * power;
      power *= static_cast<T>(-0.5);
    }
  }
};

// exp(−t²/2) = 2ⁿ · exp(−r/2) with r = t² + 2n · ln 2, for |t| ≤ kMaxArgument, within 2 ULP.
template <class T>
REGARD_INLINE Vec<T> gaussian(Vec<T> t) {
  using E = ExpConstants<T>;
  constexpr GaussianConstants<T> kConstants;
  const Vec<T> square = t * t;
  const Vec<T> shifted = fma(square, broadcast(static_cast<T>(-0.5) * E::kLog2E), broadcast(E::kRound));
  const Vec<T> n = shifted - broadcast(E::kRound);
  const Vec<T> high = n * broadcast(2 * E::kLn2High);  // exact
  Vec<T> r = kFused ? fma(t, t, high) : (square + high) + square_error<T>(t, square);
  r = fma(n, broadcast(2 * E::kLn2Low), r);
  Vec<T> p = broadcast(kConstants.polynomial[kConstants.kDegree]);
#pragma GCC unroll 16
  for (int k = kConstants.kDegree - 1; k >= 0; --k) p = fma(p, r, broadcast(kConstants.polynomial[k]));
  return scale_by_power<T>(p, shifted);
}

template <class T>
REGARD_INLINE Vec<T> gelu(Vec<T> x) {
  using C = GeluConstants<T>;
  const Vec<T> t = negative_magnitude<T>(x, C::kMaxArgument);
  const Vec<T> s = t / (t - broadcast(C::kTurn));
  const Vec<T> v = broadcast(static_cast<T>(0.5)) - s;
  Vec<T> p = broadcast(C::kPolynomial[C::kDegree]);
#pragma GCC unroll 32
  for (int i = C::kDegree - 1; i >= 0; --i) p = fma(p, v, broadcast(C::kPolynomial[i]));
  return fma(-(s * p), gaussian<T>(t), max(Vec<T>{}, x));
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

// u of gelu_tanh: first + third, and its rounding error.
template <class T>
struct GeluTanhArgument {
  Vec<T> t;      // |x|, at most kMaxArgument
  Vec<T> first;  // √(2/π) t
  Vec<T> third;  // 0.044715 √(2/π) t³
  Vec<T> u;
  Vec<T> rest;
};

template <class T>
REGARD_INLINE GeluTanhArgument<T> gelu_tanh_argument(Vec<T> x) {
  using C = GeluTanhConstants<T>;
  const Vec<T> t = -negative_magnitude<T>(x, C::kMaxArgument);
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
  return {t, first, third, u, rest};
}

// exp(−u)
template <class T>
REGARD_INLINE Vec<T> gelu_tanh_exponential(const GeluTanhArgument<T>& argument) {
  const Vec<T> y = exp<T>(-argument.u);
  return fma(-y, argument.rest, y);
}

template <class T>
REGARD_INLINE Vec<T> gelu_tanh(Vec<T> x) {
  const GeluTanhArgument<T> argument = gelu_tanh_argument<T>(x);
  const Vec<T> y = gelu_tanh_exponential<T>(argument);
  return fma(-(argument.t * y / fma(y, y, broadcast(static_cast<T>(1)))), y, max(Vec<T>{}, x));
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
