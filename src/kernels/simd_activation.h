// SPDX-License-Identifier: Apache-2.0
//
// silu(x) = x / (1 + exp(−x)) and the derivatives of gelu, gelu_tanh and silu over Vec<T>, with the same bits on every
// instruction set with fused multiply-add.
//
//   silu(x)       −t · Y / (1 + Y) for x < 0, and x − t · Y / (1 + Y) otherwise, with t = |x| and Y = exp(−t)
//   derivatives   p(t) for x < 0, and 1 − p(t) otherwise, because f(x) − f(−x) = x for all three functions
//
//   gelu        p = exp(−t²/2) · (M(t) − t / √(2π)) = exp(−t²/2) · (z − t) · R(t)     M(t): simd_gelu.h
//   gelu_tanh   p = Y / (1 + Y)² · (1 + Y − 2t · du/dt),   Y = exp(−2u(t))
//   silu        p = Y / (1 + Y)² · (1 + Y − t),            Y = exp(−t)
//
// All p have one zero, the minimum of the function: z = 0.7518 for gelu, 0.7525 for gelu_tanh, 1.2785 for silu. In
// gelu it is a factor, z − t, with z as a sum of two values. R(t) is smooth and positive and equals r(½ − s) with
// s = t / (t + k); r was fitted by the Remez exchange for the smallest relative error (2^−30.7 and 2^−60.6). Y is the
// square of an exponential, which is normal wherever the result is not 0.
// Read next: activation_rows.cpp.
#pragma once

#include "simd_gelu.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// f(x) = p(|x|) for x < 0, 1 − p(|x|) otherwise.
template <class T>
REGARD_INLINE Vec<T> reflect(Vec<T> x, Vec<T> p) {
  return select<T>(x < Vec<T>{}, p, broadcast(static_cast<T>(1)) - p);
}

template <class T>
struct GeluDerivativeConstants;
template <>
struct GeluDerivativeConstants<float> {
  static constexpr float kMaxArgument = 14.6f;  // p of this rounds to 0
  static constexpr float kTurn = 4;             // k
  static constexpr float kZero = 0x1.80ead2p-1f, kZeroRest = -0x1.a03fd4p-27f;
  static constexpr int kDegree = 9;
  static constexpr float kPolynomial[kDegree + 1] = {0x1.d94de8p-2f,  0x1.a763p-3f,   0x1.ef4fecp-3f,  0x1.cc1e04p-3f,
                                                     0x1.377856p-3f,  0x1.d4d29ap-5f, -0x1.48685ep-7f, -0x1.8531fcp-6f,
                                                     -0x1.b4dc68p-9f, 0x1.0dc7c2p-7f};
};
template <>
struct GeluDerivativeConstants<double> {
  static constexpr double kMaxArgument = 38.7;
  static constexpr double kTurn = 6;
  static constexpr double kZero = 0x1.80ead197f00b4p-1, kZeroRest = -0x1.13e74c58cada8p-56;
  static constexpr int kDegree = 21;
  static constexpr double kPolynomial[kDegree + 1] = {
      0x1.c6657e6853013p-2,   0x1.4376b99ad94a5p-3,   0x1.dac68526dfb81p-3,   0x1.3dc104a8b1d46p-2,
      0x1.807d2b6b88fdcp-2,   0x1.9fa21f525c9c4p-2,   0x1.8a93fa4ed2d51p-2,   0x1.40193e031dd05p-2,
      0x1.a6077a5611bf2p-3,   0x1.91002c98ad275p-4,   0x1.36b8510e04a10p-6,   -0x1.129ee2e331091p-6,
      -0x1.1e1dc4b7b1858p-6,  -0x1.1d87a7f65e5b7p-8,  0x1.2240c85982b37p-8,   0x1.02b34d2a7700bp-8,
      -0x1.e49bd0f988328p-13, -0x1.f1c9dbc8f4e02p-10, -0x1.e4e6e8ca85441p-12, 0x1.a9c01e95bffd4p-11,
      0x1.1b4f6ed198f64p-12,  -0x1.386ce44ae0f4bp-12};
};

template <class T>
REGARD_INLINE Vec<T> gelu_derivative(Vec<T> x) {
  using C = GeluDerivativeConstants<T>;
  const Vec<T> t = negative_magnitude<T>(x, C::kMaxArgument);
  const Vec<T> v = broadcast(static_cast<T>(0.5)) - t / (t - broadcast(C::kTurn));
  Vec<T> r = broadcast(C::kPolynomial[C::kDegree]);
#pragma GCC unroll 32
  for (int i = C::kDegree - 1; i >= 0; --i) r = fma(r, v, broadcast(C::kPolynomial[i]));
  return reflect<T>(x, ((broadcast(C::kZero) + t) + broadcast(C::kZeroRest)) * r * gaussian<T>(t));
}

// Of a logistic function with Y = y²: 1 + Y and y / (1 + Y).
template <class T>
struct Logistic {
  Vec<T> sum;
  Vec<T> share;
};
template <class T>
REGARD_INLINE Logistic<T> logistic(Vec<T> y) {
  const Vec<T> sum = fma(y, y, broadcast(static_cast<T>(1)));
  return {sum, y / sum};
}
// Y / (1 + Y)² · (1 + Y − b)
template <class T>
REGARD_INLINE Vec<T> logistic_derivative(const Logistic<T>& l, Vec<T> b) {
  return l.share * (l.sum - b) * l.share;
}

template <class T>
REGARD_INLINE Vec<T> gelu_tanh_derivative(Vec<T> x) {
  const GeluTanhArgument<T> u = gelu_tanh_argument<T>(x);
  // t · du/dt
  const Vec<T> slope = fma(u.third, broadcast(static_cast<T>(3)), u.first);
  return reflect<T>(x, logistic_derivative<T>(logistic<T>(gelu_tanh_exponential<T>(u)), slope + slope));
}

template <class T>
inline constexpr T kMaxSiluArgument = sizeof(T) == sizeof(float) ? 110 : 753;  // t · exp(−t) of this rounds to 0

template <class T>
struct Silu {
  Vec<T> value;
  Vec<T> derivative;
};
template <class T>
REGARD_INLINE Silu<T> silu_and_derivative(Vec<T> x) {
  const Vec<T> t = negative_magnitude<T>(x, kMaxSiluArgument<T>);
  const Vec<T> y = exp<T>(t * static_cast<T>(0.5));
  const Logistic<T> l = logistic<T>(y);
  return {fma(t * l.share, y, max(Vec<T>{}, x)), reflect<T>(x, logistic_derivative<T>(l, -t))};
}
template <class T>
REGARD_INLINE Vec<T> silu(Vec<T> x) {
  return silu_and_derivative<T>(x).value;
}
template <class T>
REGARD_INLINE Vec<T> silu_derivative(Vec<T> x) {
  return silu_and_derivative<T>(x).derivative;
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
