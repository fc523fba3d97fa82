// SPDX-License-Identifier: Apache-2.0
//
// The vectors that kernels are written in: Vec<float> and Vec<double>, as wide as the instruction set allows, with the
// arithmetic and comparison operators of GNU vector types, and the few named operations below, each a single
// instruction where one exists. Products and sums are fused only where fma() is written.
//
//   generic   4 floats    2 doubles   no fused multiply-add: fma(a, b, c) rounds twice
//   simd128   4           2           WebAssembly: as generic, with the same bits
//   avx2      8           4
//   avx512   16           8
//   neon      4           2
//   avx512_bf16: as avx512, and dot_pairs() is one instruction
//   amx_bf16: as avx512, and linear_amx.cpp uses tile registers
//
// Read next: simd_math.h (exp, tanh, log), tile.h (register tiles).
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm__)
#include <wasm_simd128.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "table.h"

// Everything in these objects is static or in the namespace of its instruction set. A function that the linker could
// merge with that of another object would bring this object's instructions to older processors.
#define REGARD_INLINE static inline __attribute__((always_inline))

namespace regard::kernels::REGARD_ISA {
namespace {

#if defined(REGARD_ISA_avx512)
inline constexpr int kVectorBytes = 64;
inline constexpr bool kFused = true;
#elif defined(REGARD_ISA_avx2)
inline constexpr int kVectorBytes = 32;
inline constexpr bool kFused = true;
#elif defined(REGARD_ISA_neon)
inline constexpr int kVectorBytes = 16;
inline constexpr bool kFused = true;
#elif defined(REGARD_ISA_generic) || defined(REGARD_ISA_simd128)
inline constexpr int kVectorBytes = 16;
inline constexpr bool kFused = false;
#endif

#if defined(REGARD_ISA_avx512_bf16)
inline constexpr bool kDotPairs = true;
#else
inline constexpr bool kDotPairs = false;
#endif
#if defined(REGARD_ISA_amx_bf16)
inline constexpr bool kAmx = true;
#else
inline constexpr bool kAmx = false;
#endif

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes)));
  typedef std::int32_t int_type __attribute__((vector_size(kVectorBytes)));
  using Int = std::int32_t;
};
template <>
struct VecOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes)));
  typedef std::int64_t int_type __attribute__((vector_size(kVectorBytes)));
  using Int = std::int64_t;
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
using IntVec = typename VecOf<T>::int_type;  // also the result of comparing Vec<T>: −1 or 0 in each lane
template <class T>
inline constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
inline constexpr T kInfinity = static_cast<T>(__builtin_inf());

template <class T>
REGARD_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
REGARD_INLINE void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

// The first `count` lanes, or all lanes if count is larger; the other lanes are zero, and their memory is not accessed.
template <class T>
REGARD_INLINE Vec<T> load_some(const T* p, Index count) {
  if (count >= kWidth<T>) return load(p);
  Vec<T> v{};
  std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(T));
  return v;
}
template <class T>
REGARD_INLINE void store_some(T* p, Vec<T> v, Index count) {
  std::memcpy(p, &v, static_cast<std::size_t>(count < kWidth<T> ? count : kWidth<T>) * sizeof(T));
}

// One value in all lanes.
REGARD_INLINE Vec<float> broadcast(float x) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_set1_ps(x);
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_set1_ps(x);
#elif defined(REGARD_ISA_neon)
  return (Vec<float>)vdupq_n_f32(x);
#elif defined(REGARD_ISA_simd128)
  return (Vec<float>)wasm_f32x4_splat(x);
#elif defined(REGARD_ISA_generic)
  return (Vec<float>)_mm_set1_ps(x);
#endif
}
REGARD_INLINE Vec<double> broadcast(double x) {
#if defined(REGARD_ISA_avx512)
  return (Vec<double>)_mm512_set1_pd(x);
#elif defined(REGARD_ISA_avx2)
  return (Vec<double>)_mm256_set1_pd(x);
#elif defined(REGARD_ISA_neon)
  return (Vec<double>)vdupq_n_f64(x);
#elif defined(REGARD_ISA_simd128)
  return (Vec<double>)wasm_f64x2_splat(x);
#elif defined(REGARD_ISA_generic)
  return (Vec<double>)_mm_set1_pd(x);
#endif
}
template <class T>
REGARD_INLINE IntVec<T> broadcast_int(typename VecOf<T>::Int x) {
  return IntVec<T>{} + x;
}

// a · b + c, rounded once.
REGARD_INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(REGARD_ISA_neon)
  return (Vec<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
REGARD_INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(REGARD_ISA_avx512)
  return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(REGARD_ISA_avx2)
  return (Vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(REGARD_ISA_neon)
  return (Vec<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}
REGARD_INLINE float fma(float a, float b, float c) { return kFused ? __builtin_fmaf(a, b, c) : a * b + c; }
REGARD_INLINE double fma(double a, double b, double c) { return kFused ? __builtin_fma(a, b, c) : a * b + c; }

// The same, with the sum's register as destination: with 16 registers, compilers otherwise overwrite a factor and move
// sums between registers.
template <class V>
REGARD_INLINE V fma_in_place(V a, V b, V sum) {
#if defined(REGARD_ISA_avx2)
  if constexpr (sizeof(a[0]) == sizeof(float)) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  } else {
    asm("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  }
  return sum;
#else
  return fma(a, b, sum);
#endif
}

// The larger of a and b; b if either is NaN. (The masked forms with all lanes set are the plain instructions; g++ 12
// warns about an uninitialized variable inside its own plain forms.)
REGARD_INLINE Vec<float> max(Vec<float> a, Vec<float> b) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(REGARD_ISA_neon) || defined(REGARD_ISA_simd128)
  return a > b ? a : b;
#elif defined(REGARD_ISA_generic)
  return (Vec<float>)_mm_max_ps((__m128)a, (__m128)b);
#endif
}
REGARD_INLINE Vec<double> max(Vec<double> a, Vec<double> b) {
#if defined(REGARD_ISA_avx512)
  return (Vec<double>)_mm512_maskz_max_pd(0xff, (__m512d)a, (__m512d)b);
#elif defined(REGARD_ISA_avx2)
  return (Vec<double>)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(REGARD_ISA_neon) || defined(REGARD_ISA_simd128)
  return a > b ? a : b;
#elif defined(REGARD_ISA_generic)
  return (Vec<double>)_mm_max_pd((__m128d)a, (__m128d)b);
#endif
}

// The smaller of a and b; b if either is NaN.
template <class V>
REGARD_INLINE V min(V a, V b) {
  return a < b ? a : b;
}

// The square root of each lane, rounded once.
REGARD_INLINE Vec<float> square_root(Vec<float> v) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_maskz_sqrt_ps(0xffff, (__m512)v);
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_sqrt_ps((__m256)v);
#elif defined(REGARD_ISA_neon)
  return (Vec<float>)vsqrtq_f32((float32x4_t)v);
#elif defined(REGARD_ISA_simd128)
  return (Vec<float>)wasm_f32x4_sqrt((v128_t)v);
#elif defined(REGARD_ISA_generic)
  return (Vec<float>)_mm_sqrt_ps((__m128)v);
#endif
}
REGARD_INLINE Vec<double> square_root(Vec<double> v) {
#if defined(REGARD_ISA_avx512)
  return (Vec<double>)_mm512_maskz_sqrt_pd(0xff, (__m512d)v);
#elif defined(REGARD_ISA_avx2)
  return (Vec<double>)_mm256_sqrt_pd((__m256d)v);
#elif defined(REGARD_ISA_neon)
  return (Vec<double>)vsqrtq_f64((float64x2_t)v);
#elif defined(REGARD_ISA_simd128)
  return (Vec<double>)wasm_f64x2_sqrt((v128_t)v);
#elif defined(REGARD_ISA_generic)
  return (Vec<double>)_mm_sqrt_pd((__m128d)v);
#endif
}

// mask ? a : b, lane by lane; mask lanes are −1 or 0.
template <class T>
REGARD_INLINE Vec<T> select(IntVec<T> mask, Vec<T> a, Vec<T> b) {
  return mask ? a : b;
}
template <class T>
REGARD_INLINE IntVec<T> bits_of(Vec<T> v) {
  return (IntVec<T>)v;
}
template <class T>
REGARD_INLINE Vec<T> from_bits(IntVec<T> v) {
  return (Vec<T>)v;
}
template <class T>
REGARD_INLINE Vec<T> absolute(Vec<T> v) {
  constexpr int sign_bit = static_cast<int>(sizeof(T)) * 8 - 1;
  using Int = typename VecOf<T>::Int;
  return from_bits<T>(bits_of<T>(v) & static_cast<Int>(~(static_cast<std::uint64_t>(1) << sign_bit)));
}
// Lane i contains i.
template <class T>
REGARD_INLINE IntVec<T> lane_numbers() {
  IntVec<T> v{};
  for (int i = 0; i < kWidth<T>; ++i) v[i] = i;
  return v;
}

// Bit i is set if lane i of a is greater than lane i of b.
REGARD_INLINE std::uint64_t where_greater(Vec<float> a, Vec<float> b) {
#if defined(REGARD_ISA_avx512)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#elif defined(REGARD_ISA_avx2)
  return static_cast<std::uint64_t>(_mm256_movemask_ps((__m256)(a > b)));
#elif defined(REGARD_ISA_neon)
  const IntVec<float> bits = (a > b) & IntVec<float>{1, 2, 4, 8};
  return vaddvq_u32((uint32x4_t)bits);
#elif defined(REGARD_ISA_simd128)
  return wasm_i32x4_bitmask((v128_t)(a > b));
#elif defined(REGARD_ISA_generic)
  return static_cast<std::uint64_t>(_mm_movemask_ps((__m128)(a > b)));
#endif
}
REGARD_INLINE std::uint64_t where_greater(Vec<double> a, Vec<double> b) {
#if defined(REGARD_ISA_avx512)
  return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ);
#elif defined(REGARD_ISA_avx2)
  return static_cast<std::uint64_t>(_mm256_movemask_pd((__m256d)(a > b)));
#elif defined(REGARD_ISA_neon)
  const IntVec<double> bits = (a > b) & IntVec<double>{1, 2};
  return vaddvq_u64((uint64x2_t)bits);
#elif defined(REGARD_ISA_simd128)
  return wasm_i64x2_bitmask((v128_t)(a > b));
#elif defined(REGARD_ISA_generic)
  return static_cast<std::uint64_t>(_mm_movemask_pd((__m128d)(a > b)));
#endif
}

// The number of bits set. (The compiler's builtin is a library call if the instruction is missing.)
REGARD_INLINE int count_bits(std::uint64_t x) {
  x -= x >> 1 & 0x5555555555555555u;
  x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<int>(x * 0x0101010101010101u >> 56);
}

template <class T>
REGARD_INLINE bool any(IntVec<T> mask) {
  typename VecOf<T>::Int all = 0;
  for (int i = 0; i < kWidth<T>; ++i) all |= mask[i];
  return all != 0;
}

// x, with subnormal values replaced by the zero of their sign.
REGARD_INLINE Vec<float> without_subnormals(Vec<float> x) {
  const Vec<float> zero = from_bits<float>(bits_of<float>(x) & static_cast<std::int32_t>(0x80000000));
  return select<float>(absolute<float>(x) < broadcast(0x1p-126f), zero, x);
}

// Element 0 or 1 of every pair: two bf16 values in place of a float, the first in the lower half. Subnormal values
// become zero.
template <int number>
REGARD_INLINE Vec<float> element_of_pairs(Vec<float> pairs) {
  const IntVec<float> bits = bits_of<float>(pairs);
  return without_subnormals(from_bits<float>(number == 0 ? bits << 16 : bits & -0x10000));
}

// Computes in every lane
//   sum + a₁ · b₁ + a₀ · b₀
// from left to right, with both sums rounded to nearest in every rounding mode. Subnormal values are
// treated as zero: in the bf16 operands, in the sum and in the result.
REGARD_INLINE Vec<float> dot_pairs(Vec<float> a, Vec<float> b, Vec<float> sum) {
#if defined(REGARD_ISA_avx512_bf16)
  return (Vec<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  sum = without_subnormals(fma(element_of_pairs<1>(a), element_of_pairs<1>(b), without_subnormals(sum)));
  return without_subnormals(fma(element_of_pairs<0>(a), element_of_pairs<0>(b), sum));
#endif
}

template <int... Lane>
struct Lanes {};
template <int count, int... Lane>
struct FirstLanes : FirstLanes<count - 1, count - 1, Lane...> {};
template <int... Lane>
struct FirstLanes<0, Lane...> {
  using type = Lanes<Lane...>;
};

// The bits of x as bf16, rounded to nearest even; subnormal values become zero. The upper half is filled with the sign.
REGARD_INLINE IntVec<float> round_to_bf16(Vec<float> x) {
  const IntVec<float> bits = bits_of<float>(without_subnormals(x));
  const IntVec<float> rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return x == x ? rounded : broadcast_int<float>(0x7fc0);
}

// The elements of first and second in order, rounded to bf16: to nearest even, subnormal values become zero.
REGARD_INLINE Vec<float> round_to_pairs(Vec<float> first, Vec<float> second) {
#if defined(REGARD_ISA_avx512_bf16)
  return (Vec<float>)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
  const Half halves[2] = {__builtin_convertvector(round_to_bf16(first), Half),
                          __builtin_convertvector(round_to_bf16(second), Half)};
  Vec<float> pairs;
  std::memcpy(&pairs, halves, sizeof pairs);
  return pairs;
#endif
}

// In each lane the pair of low and high, rounded in the same way.
#if defined(REGARD_ISA_avx512_bf16)
template <int... Lane>
REGARD_INLINE Vec<float> alternate_halves(Vec<float> v, Lanes<Lane...>) {
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes)));
  constexpr int half = sizeof...(Lane) / 2;
  return (Vec<float>)__builtin_shufflevector((Half)v, (Half)v, (Lane / 2 + (Lane % 2) * half)...);
}
#endif
REGARD_INLINE Vec<float> round_across_pairs(Vec<float> low, Vec<float> high) {
#if defined(REGARD_ISA_avx512_bf16)
  return alternate_halves(round_to_pairs(low, high), FirstLanes<2 * kWidth<float>>::type{});
#else
  return from_bits<float>((round_to_bf16(low) & 0xffff) | round_to_bf16(high) << 16);
#endif
}

// The step from which transposes and reductions are built: lanes of a whose index does not have `bit` set stay; the
// others are exchanged with the lanes of b that do not have it set.
template <int bit, class V, int... Lane>
REGARD_INLINE void exchange_lanes(V& a, V& b, Lanes<Lane...>) {
  constexpr int width = sizeof...(Lane);
  const V first = __builtin_shufflevector(a, b, ((Lane & bit) ? width + (Lane ^ bit) : Lane)...);
  const V second = __builtin_shufflevector(a, b, ((Lane & bit) ? width + Lane : (Lane ^ bit))...);
  a = first;
  b = second;
}
template <class T, int bit>
REGARD_INLINE void exchange(Vec<T>& a, Vec<T>& b) {
  exchange_lanes<bit>(a, b, typename FirstLanes<kWidth<T>>::type{});
}

// The last lane of a, followed by all lanes of b except the last.
template <class V, int... Lane>
REGARD_INLINE V last_lane_first(V a, V b, Lanes<Lane...>) {
  return __builtin_shufflevector(a, b, (static_cast<int>(sizeof...(Lane)) - 1 + Lane)...);
}
template <class T>
REGARD_INLINE Vec<T> last_lane_first(Vec<T> a, Vec<T> b) {
  return last_lane_first(a, b, typename FirstLanes<kWidth<T>>::type{});
}

// Exchanges lane j of v[i] and lane i of v[j], for kWidth<T> vectors.
template <class T, int bit = kWidth<T> / 2>
REGARD_INLINE void transpose(Vec<T>* v) {
#pragma GCC unroll 16
  for (int i = 0; i < kWidth<T>; ++i) {
    if ((i & bit) == 0) exchange<T, bit>(v[i], v[i + bit]);
  }
  if constexpr (bit > 1) transpose<T, bit / 2>(v);
}

// Lane i of the result is the largest lane of v[i], for kWidth<T> vectors without NaN, which are overwritten.
template <class T, int bit = kWidth<T> / 2>
REGARD_INLINE Vec<T> largest_lanes(Vec<T>* v) {
#pragma GCC unroll 8
  for (int i = 0; i < bit; ++i) {
    exchange<T, bit>(v[i], v[i + bit]);
    v[i] = max(v[i], v[i + bit]);
  }
  if constexpr (bit > 1) {
    return largest_lanes<T, bit / 2>(v);
  } else {
    return v[0];
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
