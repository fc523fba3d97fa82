// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic in double on elements of T: vectors that are converted when loaded and rounded once when stored, sums
// whose order is the same on every instruction set, and division by one number.
// Read next: norm_rows.h.
#pragma once

#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

inline constexpr Index kWide = kWidth<double>;

// (g++ 12 converts one element at a time in __builtin_convertvector.)
REGARD_INLINE Vec<double> load_wide(const double* p) { return load(p); }
REGARD_INLINE Vec<double> load_wide(const float* p) {
#if defined(REGARD_ISA_avx512)
  return (Vec<double>)_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p));
#elif defined(REGARD_ISA_avx2)
  return (Vec<double>)_mm256_cvtps_pd(_mm_loadu_ps(p));
#elif defined(REGARD_ISA_neon)
  return (Vec<double>)vcvt_f64_f32(vld1_f32(p));
#elif defined(REGARD_ISA_simd128)
  return (Vec<double>)wasm_f64x2_promote_low_f32x4(wasm_v128_load64_zero(p));
#elif defined(REGARD_ISA_generic)
  return (Vec<double>)_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#endif
}

// The two halves of v. (g++ 12 splits __builtin_convertvector of a half into quarters.)
#if defined(REGARD_ISA_avx512)
template <int... Lane>
REGARD_INLINE void widen_halves(Vec<float> v, Vec<double>* halves, Lanes<Lane...>) {
  constexpr int half = sizeof...(Lane);
  halves[0] = (Vec<double>)_mm512_maskz_cvtps_pd(0xff, (__m256)__builtin_shufflevector(v, v, Lane...));
  halves[1] = (Vec<double>)_mm512_maskz_cvtps_pd(0xff, (__m256)__builtin_shufflevector(v, v, (half + Lane)...));
}
#endif
// A vector of double is one part.
REGARD_INLINE void widen_halves(Vec<double> v, Vec<double>* whole) { *whole = v; }
REGARD_INLINE void widen_halves(Vec<float> v, Vec<double>* halves) {
#if defined(REGARD_ISA_avx512)
  widen_halves(v, halves, FirstLanes<kWidth<double>>::type{});
#elif defined(REGARD_ISA_avx2)
  halves[0] = (Vec<double>)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
  halves[1] = (Vec<double>)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
#elif defined(REGARD_ISA_neon)
  halves[0] = (Vec<double>)vcvt_f64_f32(vget_low_f32((float32x4_t)v));
  halves[1] = (Vec<double>)vcvt_high_f64_f32((float32x4_t)v);
#elif defined(REGARD_ISA_simd128)
  halves[0] = (Vec<double>)wasm_f64x2_promote_low_f32x4((v128_t)v);
  halves[1] = (Vec<double>)wasm_f64x2_promote_low_f32x4((v128_t)__builtin_shufflevector(v, v, 2, 3, 2, 3));
#elif defined(REGARD_ISA_generic)
  halves[0] = (Vec<double>)_mm_cvtps_pd((__m128)v);
  halves[1] = (Vec<double>)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v));
#endif
}

REGARD_INLINE void store_rounded(double* p, Vec<double> v) { store(p, v); }
REGARD_INLINE void store_rounded(float* p, Vec<double> v) {
#if defined(REGARD_ISA_avx512)
  _mm256_storeu_ps(p, _mm512_maskz_cvtpd_ps(0xff, (__m512d)v));
#elif defined(REGARD_ISA_avx2)
  _mm_storeu_ps(p, _mm256_cvtpd_ps((__m256d)v));
#elif defined(REGARD_ISA_neon)
  vst1_f32(p, vcvt_f32_f64((float64x2_t)v));
#elif defined(REGARD_ISA_simd128)
  wasm_v128_store64_lane(p, wasm_f32x4_demote_f64x2_zero((v128_t)v), 0);
#elif defined(REGARD_ISA_generic)
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_castps_si128(_mm_cvtpd_ps((__m128d)v)));
#endif
}

// Rounds 2 · kWide elements and stores them as one vector.
REGARD_INLINE void store_rounded(double* p, Vec<double> first, Vec<double> second) {
  store(p, first);
  store(p + kWide, second);
}
REGARD_INLINE void store_rounded(float* p, Vec<double> first, Vec<double> second) {
#if defined(REGARD_ISA_avx512)
  const __m512d half = _mm512_castps_pd(_mm512_castps256_ps512(_mm512_maskz_cvtpd_ps(0xff, (__m512d)first)));
  const __m256d other = _mm256_castps_pd(_mm512_maskz_cvtpd_ps(0xff, (__m512d)second));
  _mm512_storeu_pd(p, _mm512_maskz_insertf64x4(0xff, half, other, 1));
#elif defined(REGARD_ISA_avx2)
  const __m256 half = _mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)first));
  _mm256_storeu_ps(p, _mm256_insertf128_ps(half, _mm256_cvtpd_ps((__m256d)second), 1));
#else
  store_rounded(p, first);
  store_rounded(p + kWide, second);
#endif
}

// The first `count` ≤ kWide elements; the other lanes are zero, and their memory is not accessed.
template <class T>
REGARD_INLINE Vec<double> load_wide_some(const T* p, Index count) {
  T elements[kWide]{};
  std::memcpy(elements, p, static_cast<std::size_t>(count) * sizeof(T));
  return load_wide(elements);
}
template <class T>
REGARD_INLINE void store_rounded_some(T* p, Vec<double> v, Index count) {
  T elements[kWide];
  store_rounded(elements, v);
  std::memcpy(p, elements, static_cast<std::size_t>(count) * sizeof(T));
}

// √x, rounded correctly.
REGARD_INLINE double square_root(double x) {
#if defined(REGARD_ISA_neon)
  return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
#elif defined(REGARD_ISA_simd128)
  return __builtin_sqrt(x);
#else
  return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(x)));
#endif
}

template <int bit, int... Lane>
REGARD_INLINE Vec<double> add_exchanged(Vec<double> v, Lanes<Lane...>) {
  return v + __builtin_shufflevector(v, v, (Lane ^ bit)...);
}
template <int bit = static_cast<int>(kWide) / 2>
REGARD_INLINE double fold(Vec<double> v) {
  if constexpr (bit == 0) {
    return v[0];
  } else {
    return fold<bit / 2>(add_exchanged<bit>(v, typename FirstLanes<kWidth<double>>::type{}));
  }
}
// The sum of all lanes of these vectors, folded by halves: lane i and lane i + half, until one is left.
template <int num_parts>
REGARD_INLINE double fold(Vec<double> (&parts)[num_parts]) {
#pragma GCC unroll 3
  for (int half = num_parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int part = 0; part < half; ++part) parts[part] += parts[part + half];
  }
  return fold(parts[0]);
}

// The divisor of many quotients, which are rounded correctly. If dividend and divisor derive from floats, nothing
// overflows or underflows, and fused multiply-adds are faster than divisions:
//
//   q        = dividend · (below + rest)                        off by less than a unit in the last place
//   quotient = q − (q · divisor − dividend) · reciprocal        the remainder is exact (Markstein 1990)
//
// below + rest is 1 / divisor in twice the precision. No part is negative, so that zeros keep their sign.
template <class T>
struct Divisor {
  Vec<double> divisor, reciprocal, below, rest;

  explicit Divisor(double x) : divisor(broadcast(x)) {
    const double nearest = 1 / x;
    std::int64_t bits;
    std::memcpy(&bits, &nearest, sizeof bits);
    bits -= fma(-x, nearest, 1.0) < 0;
    double lower;
    std::memcpy(&lower, &bits, sizeof lower);
    reciprocal = broadcast(nearest);
    below = broadcast(lower);
    rest = broadcast(fma(-x, lower, 1.0) * nearest);
  }

  Vec<double> quotient(Vec<double> dividend) const {
    if constexpr (kFused && sizeof(T) == sizeof(float)) {
      const Vec<double> q = fma(dividend, below, dividend * rest);
      return fma(-fma(q, divisor, -dividend), reciprocal, q);
    } else {
      return dividend / divisor;
    }
  }
};

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
