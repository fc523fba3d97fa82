// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh and log over Vec<T>, with the same bits on every instruction set with fused multiply-add. Bounds, tested
// for every float and for samples of double (tests/elementwise_test.cpp):
//
//   exp(x), x ≤ 0   1 ULP, monotone, exp(±0) = 1, exp(−∞) = +0, subnormal results included
//   tanh(x)         4 ULP, odd, |tanh| ≤ 1
//   log(x), x > 0   1 ULP for float, 2 ULP for double; log(+0) = −∞
//
// exp: x = n·ln 2 + r with |r| ≤ ln 2 / 2 (Cody and Waite 1980), a polynomial in r fitted by the Remez exchange for the
// smallest relative error (2^−28.3 and 2^−55.7), and a scaling by 2ⁿ that rounds once, even for subnormal results. All
// three return NaN for NaN.
// Read next: attention_tile.cpp.
#pragma once

#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// True if multiplying by 2ⁿ is a single instruction.
#if defined(REGARD_ISA_avx512)
inline constexpr bool kScales = true;
#else
inline constexpr bool kScales = false;
#endif
// The number of vectors whose exponentials are interleaved.
inline constexpr int kExpVectors = 4;

template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLowest = -105.0f;  // exp of this and of all smaller values rounds to +0
  static constexpr float kNormal = -86.0f;   // exp of this and of all larger values is a normal number
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kRound = 0x1.8p+23f;    // adding it leaves the nearest integer in the low bits
  static constexpr float kLn2High = 0x1.63p-1f;  // short enough for n·kLn2High to be exact
  static constexpr float kLn2Low = -0x1.bd0106p-13f;
  static constexpr int kDegree = 4;
  static constexpr float kPolynomial[kDegree + 1] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f,
                                                     0x1.6a23dp-10f};
  static constexpr int kExponentBias = 127;
  static constexpr int kFractionBits = 23;
};
template <>
struct ExpConstants<double> {
  static constexpr double kLowest = -746.0;
  static constexpr double kNormal = -707.0;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kRound = 0x1.8p+52;
  static constexpr double kLn2High = 0x1.62e42fefa4p-1;
  static constexpr double kLn2Low = -0x1.8432a1b0e2634p-43;
  static constexpr int kDegree = 9;
  static constexpr double kPolynomial[kDegree + 1] = {
      0x1.0000000000001p-1,  0x1.5555555555556p-3,  0x1.5555555553d4fp-5,  0x1.11111111109adp-7,
      0x1.6c16c17893833p-10, 0x1.a01a01a7c8d47p-13, 0x1.a019b8ef67c6cp-16, 0x1.71de0d9c145d0p-19,
      0x1.2891a8c1d838dp-22, 0x1.af38d53857513p-26};
  static constexpr int kExponentBias = 1023;
  static constexpr int kFractionBits = 52;
};

#if defined(REGARD_ISA_avx512)
// p · 2ⁿ rounded once in the lanes of the mask, 0 in the others; shifted = n + kRound.
REGARD_INLINE Vec<float> scale_by_power(__mmask16 mask, Vec<float> p, Vec<float> shifted) {
  return (Vec<float>)_mm512_maskz_scalef_ps(mask, (__m512)p,
                                            (__m512)(shifted - broadcast(ExpConstants<float>::kRound)));
}
REGARD_INLINE Vec<double> scale_by_power(__mmask8 mask, Vec<double> p, Vec<double> shifted) {
  return (Vec<double>)_mm512_maskz_scalef_pd(mask, (__m512d)p,
                                             (__m512d)(shifted - broadcast(ExpConstants<double>::kRound)));
}
// The lanes in which exp(x) does not round to 0, or x is NaN.
REGARD_INLINE __mmask16 not_vanishing(Vec<float> x) {
  return _mm512_cmp_ps_mask((__m512)x, (__m512)broadcast(ExpConstants<float>::kLowest), _CMP_NLT_UQ);
}
REGARD_INLINE __mmask8 not_vanishing(Vec<double> x) {
  return _mm512_cmp_pd_mask((__m512d)x, (__m512d)broadcast(ExpConstants<double>::kLowest), _CMP_NLT_UQ);
}
#endif

// p · 2ⁿ rounded once; shifted = n + kRound. The portable version multiplies by two powers of two, the first exactly.
template <class T>
REGARD_INLINE Vec<T> scale_by_power(Vec<T> p, Vec<T> shifted) {
#if defined(REGARD_ISA_avx512)
  return scale_by_power(static_cast<decltype(not_vanishing(p))>(-1), p, shifted);
#else
  using C = ExpConstants<T>;
  const IntVec<T> n = bits_of<T>(shifted) - bits_of<T>(broadcast(C::kRound));
  const IntVec<T> half = n >> 1;
  const IntVec<T> rest = n - half;
  const Vec<T> first = from_bits<T>((half + C::kExponentBias) << C::kFractionBits);
  const Vec<T> second = from_bits<T>((rest + C::kExponentBias) << C::kFractionBits);
  return p * first * second;
#endif
}

// The reduction shared by exp and tanh: x = n·ln 2 + r, and e = r + r²·q(r), so that exp(x) = 2ⁿ·(1 + e).
template <class T>
struct Reduced {
  Vec<T> shifted;  // n + kRound
  Vec<T> r;
  Vec<T> q;
};
// Computes y[i], unspecified if x[i] < kLowest, for Count interleaved vectors: a single vector is a chain of operations
// that would leave the processor idle.
template <class T, int Count>
REGARD_INLINE void reduce(const Vec<T>* x, Reduced<T>* y) {
  using C = ExpConstants<T>;
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    y[i].shifted = fma(x[i], broadcast(C::kLog2E), broadcast(C::kRound));
    const Vec<T> n = y[i].shifted - broadcast(C::kRound);
    y[i].r = fma(n, broadcast(-C::kLn2Low), fma(n, broadcast(-C::kLn2High), x[i]));
    y[i].q = broadcast(C::kPolynomial[C::kDegree]);
  }
#pragma GCC unroll 16
  for (int k = C::kDegree - 1; k >= 0; --k) {
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) y[i].q = fma(y[i].q, y[i].r, broadcast(C::kPolynomial[k]));
  }
}

// p[i] = 1 + e[i] as high + low, exact except for the last addition (Dekker 1971). A single rounding at the end is what
// makes exp monotone.
template <class T, int Count>
REGARD_INLINE void one_plus_e(const Reduced<T>* y, Vec<T>* p) {
  const Vec<T> one = broadcast(static_cast<T>(1));
  Vec<T> high[Count], low[Count];
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) high[i] = one + y[i].r;
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) low[i] = y[i].r - (high[i] - one);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) p[i] = high[i] + fma(y[i].r * y[i].r, y[i].q, low[i]);
}

// p[i] = exp(x[i]) for Count vectors; p may be x. Results that round to 0 are set directly, because a product with a
// result too small for a subnormal takes several times as long, and the scaling instruction of avx512, on Intel's
// processors, 140 cycles. If no lane is below kNormal, multiplying by 2ⁿ is exact and takes one step.
template <class T, int Count>
REGARD_INLINE void exp(const Vec<T>* x, Vec<T>* p) {
  using C = ExpConstants<T>;
  Reduced<T> y[Count];
  if constexpr (!kScales) {
    // A NaN is the first operand and is dropped, so it does not hide small values of its lane.
    Vec<T> least = broadcast(kInfinity<T>);
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) least = min(x[i], least);
    if (where_greater(broadcast(C::kNormal), least) == 0) {
      reduce<T, Count>(x, y);
      one_plus_e<T, Count>(y, p);
#pragma GCC unroll 8
      for (int i = 0; i < Count; ++i) {
        const IntVec<T> bits = bits_of<T>(y[i].shifted) << C::kFractionBits;
        p[i] *= from_bits<T>(bits + bits_of<T>(broadcast(static_cast<T>(1))));
      }
      return;
    }
  }
#if defined(REGARD_ISA_avx512)
  decltype(not_vanishing(x[0])) mask[Count];
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) mask[i] = not_vanishing(x[i]);
  reduce<T, Count>(x, y);
  one_plus_e<T, Count>(y, p);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) p[i] = scale_by_power(mask[i], p[i], y[i].shifted);
#else
  Vec<T> bounded[Count];
  IntVec<T> vanishes[Count];
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    vanishes[i] = x[i] < broadcast(C::kLowest);
    bounded[i] = select<T>(vanishes[i], Vec<T>{}, x[i]);
  }
  reduce<T, Count>(bounded, y);
  one_plus_e<T, Count>(y, p);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    p[i] = select<T>(vanishes[i], Vec<T>{}, scale_by_power<T>(p[i], y[i].shifted));
  }
#endif
}
template <class T>
REGARD_INLINE Vec<T> exp(Vec<T> x) {
  exp<T, 1>(&x, &x);
  return x;
}

// x − m; equal infinities have distance 0.
template <class T>
REGARD_INLINE Vec<T> shift(Vec<T> x, Vec<T> m) {
  return select<T>(x == m, Vec<T>{}, x - m);
}

// tanh(x) = −e / (2 + e) with e = exp(−2|x|) − 1, which is exact where it cancels: 2ⁿ·(r + r²q) + (2ⁿ − 1), and −1 from
// |x| = 32 on.
template <class T>
REGARD_INLINE Vec<T> tanh(Vec<T> x) {
  const Vec<T> one = broadcast(static_cast<T>(1));
  const Vec<T> twice = max(broadcast(static_cast<T>(-64)), absolute<T>(x) * static_cast<T>(-2));
  Reduced<T> y;
  reduce<T, 1>(&twice, &y);
  const Vec<T> power = scale_by_power<T>(one, y.shifted);
  const Vec<T> e = fma(power, fma(y.q * y.r, y.r, y.r), power - one);
  const Vec<T> magnitude = -e / (e + static_cast<T>(2));
  const IntVec<T> sign = bits_of<T>(x) ^ bits_of<T>(absolute<T>(x));
  return from_bits<T>((bits_of<T>(magnitude) & ~bits_of<T>(broadcast(static_cast<T>(-0.0)))) | sign);
}

// log(2ᵏ·(1 + f)) = k·ln 2 + f − s·(f − R) with s = f / (2 + f), R = 2z/3 + 2z²/5 + …, z = s² (the series of 2·atanh s;
// |s| ≤ 0.172, so that eleven terms leave less than 2^−60).
REGARD_INLINE double log(double x) {
  constexpr double kLn2High = 0x1.62e42fefa4p-1;
  constexpr double kLn2Low = -0x1.8432a1b0e2634p-43;
  if (!(x > 0)) return x == 0 ? -kInfinity<double> : x - x + __builtin_nan("");
  if (x == kInfinity<double>) return x;
  double k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // Subtracting the bits of √½ moves the fraction into [√½, √2).
  const std::int64_t exponent = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcdULL) >> 52;
  bits -= static_cast<std::uint64_t>(exponent) << 52;
  std::memcpy(&x, &bits, sizeof x);
  k += static_cast<double>(exponent);
  const double f = x - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double series = 2.0 / 23;
#pragma GCC unroll 16
  for (int i = 21; i >= 3; i -= 2) series = fma(series, z, 2.0 / i);
  const double r = series * z;
  return fma(k, kLn2High, f - (s * (f - r) - k * kLn2Low));
}
REGARD_INLINE float log(float x) { return static_cast<float>(log(static_cast<double>(x))); }

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
