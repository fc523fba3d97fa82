// SPDX-License-Identifier: Apache-2.0
//
// Exact conversion of 16-bit elements to float, one vector at a time.
//
//   bfloat16   the upper half of a float: a shift
//   float16    one instruction with F16C, which keeps subnormals in every processor state;
//              elsewhere with integers: the exponent changes by 127 − 15, a subnormal is its fraction · 2⁻²⁴
//
// Tested for all values on every instruction set: tests/attention_types_test.cpp.
// Read next: attention_pack.cpp.
#pragma once

#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

typedef std::uint16_t HalfVec __attribute__((vector_size(kVectorBytes / 2)));
typedef std::uint32_t WideVec __attribute__((vector_size(kVectorBytes)));

// (g++ 12 splits __builtin_convertvector of a whole vector into halves.)
REGARD_INLINE WideVec zero_extend(HalfVec from) {
#if defined(REGARD_ISA_avx512)
  return (WideVec)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)from);
#elif defined(REGARD_ISA_avx2)
  return (WideVec)_mm256_cvtepu16_epi32((__m128i)from);
#else
  return __builtin_convertvector(from, WideVec);
#endif
}

REGARD_INLINE Vec<float> widen(HalfVec from, Bfloat16) { return (Vec<float>)(zero_extend(from) << 16); }

REGARD_INLINE Vec<float> widen(HalfVec from, Float16) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)from);
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_cvtph_ps((__m128i)from);
#else
  const WideVec bits = zero_extend(from);
  const WideVec size = bits & 0x7fff;
  const Vec<float> subnormal = __builtin_convertvector((IntVec<float>)size, Vec<float>) * 0x1p-24f;
  const WideVec shifted = size << 13;
  const WideVec moved = shifted + (size < 0x7c00 ? WideVec{} + (112u << 23) : WideVec{} + (224u << 23));
  return (Vec<float>)((bits & 0x8000) << 16 | (size < 0x400 ? (WideVec)subnormal : moved));
#endif
}

// Loads a vector of elements, which may be misaligned, as T: S is T, or a 16-bit type if T is float.
template <class T, class S>
REGARD_INLINE Vec<T> load_as(const S* from) {
  if constexpr (sizeof(S) == 2) {
    HalfVec narrow;
    std::memcpy(&narrow, static_cast<const void*>(from), sizeof narrow);
    return widen(narrow, S{});
  } else {
    Vec<T> v;
    std::memcpy(&v, static_cast<const void*>(from), sizeof v);
    return v;
  }
}

// Two contiguous vectors of bfloat16 as even and odd elements: half the work of converting each.
REGARD_INLINE void load_even_odd(const Bfloat16* from, Vec<float>& even, Vec<float>& odd) {
  WideVec both;
  std::memcpy(&both, static_cast<const void*>(from), sizeof both);
  even = (Vec<float>)(both << 16);
  odd = (Vec<float>)(both & 0xffff0000u);
}

// a, b = even and odd elements → the first and second half in order.
template <int... Lane>
REGARD_INLINE void join_even_odd(Vec<float>& a, Vec<float>& b, Lanes<Lane...>) {
  constexpr int width = sizeof...(Lane);
  const Vec<float> first = __builtin_shufflevector(a, b, ((Lane & 1) * width + Lane / 2)...);
  b = __builtin_shufflevector(a, b, ((Lane & 1) * width + width / 2 + Lane / 2)...);
  a = first;
}
REGARD_INLINE void join_even_odd(Vec<float>& a, Vec<float>& b) {
  join_even_odd(a, b, typename FirstLanes<kWidth<float>>::type{});
}

// Converts bytes, which are integers. (g++ 12 splits __builtin_convertvector of bytes into single elements.)
REGARD_INLINE Vec<float> widen_bytes(const std::int8_t* from) {
#if defined(REGARD_ISA_avx512)
  return (Vec<float>)_mm512_maskz_cvtepi32_ps(
      0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(REGARD_ISA_avx2)
  return (Vec<float>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#elif defined(REGARD_ISA_neon)
  std::int8_t four[8]{};
  std::memcpy(four, from, 4);
  return (Vec<float>)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(four)))));
#elif defined(REGARD_ISA_simd128)
  return (Vec<float>)wasm_f32x4_convert_i32x4(
      wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(from))));
#elif defined(REGARD_ISA_generic)
  std::int32_t four;
  std::memcpy(&four, from, sizeof four);
  __m128i wide = _mm_cvtsi32_si128(four);
  wide = _mm_unpacklo_epi8(wide, wide);
  wide = _mm_unpacklo_epi16(wide, wide);
  return (Vec<float>)_mm_cvtepi32_ps(_mm_srai_epi32(wide, 24));
#endif
}

// Pairs of the elements of two lines, which may be misaligned; the first of a pair comes from low. high = nullptr:
// zeros.
REGARD_INLINE Vec<float> load_pairs(const Bfloat16* low, const Bfloat16* high) {
  HalfVec narrow;
  std::memcpy(&narrow, static_cast<const void*>(low), sizeof narrow);
  WideVec pairs = zero_extend(narrow);
  if (high) {
    std::memcpy(&narrow, static_cast<const void*>(high), sizeof narrow);
    pairs |= zero_extend(narrow) << 16;
  }
  return (Vec<float>)pairs;
}

// The same for two contiguous vectors, with one shuffle each.
template <int... Lane>
REGARD_INLINE void load_two_pairs(const Bfloat16* low, const Bfloat16* high, Vec<float>& first, Vec<float>& second,
                                  Lanes<Lane...>) {
  typedef std::uint16_t Line __attribute__((vector_size(kVectorBytes)));
  constexpr int width = sizeof...(Lane);
  Line a, b{};
  std::memcpy(&a, static_cast<const void*>(low), sizeof a);
  if (high) std::memcpy(&b, static_cast<const void*>(high), sizeof b);
  first = (Vec<float>)__builtin_shufflevector(a, b, (Lane % 2 * width + Lane / 2)...);
  second = (Vec<float>)__builtin_shufflevector(a, b, (Lane % 2 * width + width / 2 + Lane / 2)...);
}
REGARD_INLINE void load_two_pairs(const Bfloat16* low, const Bfloat16* high, Vec<float>& first, Vec<float>& second) {
  load_two_pairs(low, high, first, second, typename FirstLanes<2 * kWidth<float>>::type{});
}

// sum + *a · (scale · bytes), with a scale per lane, or *scale in all lanes. Written out for avx512: if one vector
// after another is converted, scaled and added, the units are busy four fifths of the time; in the order that g++
// chooses, two thirds.
template <class Scale>
REGARD_INLINE Vec<float> multiply_add_bytes(const float* a, const std::int8_t* from, const Scale& scale,
                                            Vec<float> sum) {
#if defined(REGARD_ISA_avx512)
  typedef std::int8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));
  const Bytes& bytes = *reinterpret_cast<const Bytes*>(from);
  Vec<float> x;
  if constexpr (sizeof scale == sizeof sum) {
    asm("vpmovsxbd %2, %1\n\tvcvtdq2ps %1, %1\n\tvmulps %3, %1, %1\n\tvfmadd231ps %4%{1to16%}, %1, %0"
        : "+v"(sum), "=&v"(x)
        : "m"(bytes), "v"(scale), "m"(*a));
  } else {
    asm("vpmovsxbd %2, %1\n\tvcvtdq2ps %1, %1\n\tvmulps %3%{1to16%}, %1, %1\n\tvfmadd231ps %4%{1to16%}, %1, %0"
        : "+v"(sum), "=&v"(x)
        : "m"(bytes), "m"(scale), "m"(*a));
  }
  return sum;
#else
  return fma(broadcast(*a), widen_bytes(from) * scale, sum);
#endif
}

// Loads a vector of elements as a cache stores them: the types of load_as, or bytes, which are integers.
template <class T, class S>
REGARD_INLINE Vec<T> load_stored(const S* from) {
  if constexpr (sizeof(S) == 1) {
    return widen_bytes(from);
  } else {
    return load_as<T>(from);
  }
}

// Reads one element as load_as does.
template <class T, class S>
REGARD_INLINE T read_as(const S* from) {
  if constexpr (sizeof(S) == 2) {
    HalfVec narrow{};
    std::memcpy(&narrow, static_cast<const void*>(from), sizeof(S));
    return widen(narrow, S{})[0];
  } else {
    T x;
    std::memcpy(&x, static_cast<const void*>(from), sizeof x);
    return x;
  }
}

// to[i] = from[i] for i in 0 … count − 1.
template <class T, class S>
REGARD_INLINE void widen_row(const S* from, T* to, Index count) {
  if constexpr (sizeof(S) == 2) {
    Index i = 0;
    for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load_as<T>(from + i));
    for (; i < count; ++i) to[i] = read_as<T>(from + i);
  } else {
    std::memcpy(to, static_cast<const void*>(from), static_cast<std::size_t>(count) * sizeof(T));
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
