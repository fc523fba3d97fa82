// SPDX-License-Identifier: Apache-2.0
//
// The rate of the bf16 dot product in registers only. Compiled only for the instruction set avx512_bf16, which
// src/runtime/isa.cpp selects only if the processor has the instruction.
//
//   for each iteration:  for each of 24 independent chains, in each lane:  x ← x + a · factor + a · addend,
//                        with a = 1 and all three rounded to bf16
//
// Twenty-four chains hide a latency of six cycles on up to four units, and leave eight of 32 registers.
// Read next: peak.cpp.
#include "simd.h"

namespace regard::kernels::avx512_bf16 {
namespace {

constexpr int kChains = 24;

// The upper halves of the bits of two floats, as a pair.
std::int32_t pair_of_bf16(float low, float high) {
  std::uint32_t bits[2];
  std::memcpy(&bits[0], &low, sizeof low);
  std::memcpy(&bits[1], &high, sizeof high);
  return static_cast<std::int32_t>((bits[1] & 0xffff0000u) | (bits[0] >> 16));
}

float dot(Index iterations, float factor, float addend) {
  const __m512bh ones = (__m512bh)_mm512_set1_epi32(pair_of_bf16(1.0f, 1.0f));
  const __m512bh pair = (__m512bh)_mm512_set1_epi32(pair_of_bf16(factor, addend));
  __m512 chain[kChains];
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c) chain[c] = _mm512_set1_ps(static_cast<float>(c + 1) / (2 * kChains));
  for (Index iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) chain[c] = _mm512_dpbf16_ps(chain[c], ones, pair);
  }
  __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c) total = total + chain[c];
  return total[0];
}

}  // namespace

constinit const PeakLoop dot_loop = {4 * kChains * kWidth<float>, dot};

}  // namespace regard::kernels::avx512_bf16
