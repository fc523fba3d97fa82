// SPDX-License-Identifier: Apache-2.0
//
// The fastest arithmetic there is: fused multiply-adds on registers alone, with no memory and nothing to wait for.
// Compiled once for each instruction set; "generic" has no fused form and multiplies and adds.
//
//   repeat turns:  for each of 12 independent chains:  x ← x · factor + addend
//
// Twelve chains hide a latency of four cycles on two units (eight in flight) and leave the sixteen registers of avx2
// room for factor and addend. Called with factor −1 and addend 1, x and 1 − x alternate: always finite, never equal
// from turn to turn. Read next: peak.cpp.
#include <cstdint>

namespace regard::bench::REGARD_ISA {

float peak_loop(std::int64_t turns, float factor, float addend);
extern const double peak_loop_operations;

namespace {
constexpr int kChains = 12;
typedef float Vector __attribute__((vector_size(REGARD_VECTOR_BYTES)));
}  // namespace

const double peak_loop_operations = 2.0 * kChains * (REGARD_VECTOR_BYTES / sizeof(float));

float peak_loop(std::int64_t turns, float factor, float addend) {
  const Vector factors = Vector{} + factor, addends = Vector{} + addend;
  Vector chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = Vector{} + static_cast<float>(c + 1) / (2 * kChains);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * factors + addends;
  }
  Vector total{};
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) total += chain[c];
  return total[0];
}

}  // namespace regard::bench::REGARD_ISA
