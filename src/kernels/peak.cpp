// SPDX-License-Identifier: Apache-2.0
//
// Measures the limits of the processor: loops that compute in registers only, and loops that only read memory.
//
//   multiply_add:   for each iteration:  for each of 12 independent chains:  x ← x · factor + addend
//   read:           for each step of bytes:  for each stream:  for each vector of a line or two:
//                     total ← total ^ vector
//
// Twelve chains hide a latency of four cycles on two units (eight in flight), and leave registers for factor and addend
// among the sixteen of avx2. With factor −1 and addend 1, x and 1 − x alternate: the values stay finite and
// change in every iteration. Several streams keep more lines in flight if one prefetcher is not enough;
// src/runtime/peaks.cpp measures which number of streams is fastest.
// Read next: peak_bf16.cpp, src/runtime/peaks.cpp.
#include "kernels.h"
#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

constexpr int kTotals = 8;  // independent accumulators, so that a load can issue in every cycle

}  // namespace

float multiply_add_loop(Index iterations, float factor, float addend) {
  const Vec<float> factors = Vec<float>{} + factor, addends = Vec<float>{} + addend;
  Vec<float> chain[kPeakChains];
#pragma GCC unroll 12
  for (int c = 0; c < kPeakChains; ++c) chain[c] = Vec<float>{} + static_cast<float>(c + 1) / (2 * kPeakChains);
  for (Index iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 12
    for (int c = 0; c < kPeakChains; ++c) chain[c] = fma(chain[c], factors, addends);
  }
  Vec<float> total{};
#pragma GCC unroll 12
  for (int c = 0; c < kPeakChains; ++c) total += chain[c];
  return total[0];
}

template <int kStreams>
std::int32_t read_loop(const float* data, Index count) {
  constexpr int kUnroll = kTotals / kStreams;
  const Index part = count / kStreams;
  IntVec<float> total[kTotals] = {};
  for (Index i = 0; i < part; i += kUnroll * kWidth<float>) {
#pragma GCC unroll 8
    for (int t = 0; t < kTotals; ++t) {
      const int stream = t / kUnroll, vector = t % kUnroll;
      total[t] ^= (IntVec<float>)load(data + stream * part + i + vector * kWidth<float>);
    }
  }
#pragma GCC unroll 8
  for (int t = 1; t < kTotals; ++t) total[0] ^= total[t];
  return total[0][0];
}

template std::int32_t read_loop<1>(const float*, Index);
template std::int32_t read_loop<2>(const float*, Index);
template std::int32_t read_loop<4>(const float*, Index);

}  // namespace regard::kernels::REGARD_ISA
