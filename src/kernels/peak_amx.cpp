// SPDX-License-Identifier: Apache-2.0
//
// The rate of bf16 products in the tile registers of AMX. Compiled only for the instruction set amx_bf16, which
// src/runtime/isa.cpp selects only if the processor has them.
//
//   for each iteration:  for each of six tiles:  sums (16 × 16) ← sums + rows (16 × 32) · columns (32 × 16)
//
// rows holds ones, and columns factor and addend in turn, all three cut to bf16: an iteration adds 16 · factor +
// 16 · addend to every sum. With −1 and 1 the sums stay as they are.
// Read next: peak_bf16.cpp.
#include "kernels.h"
#include "simd.h"

namespace regard::kernels::amx_bf16 {
namespace {

constexpr int kSums = 6;
constexpr Index kProducts = kAmxRows * kAmxRows * kAmxDepth;  // of one instruction

float dot(Index iterations, float factor, float addend) {
  alignas(64) std::uint32_t ones[kAmxRows][kAmxRows], columns[kAmxRows][kAmxRows];
  alignas(64) float sums[kSums][kAmxRows][kAmxRows] = {};
  std::uint32_t low, high;
  std::memcpy(&low, &factor, sizeof low);
  std::memcpy(&high, &addend, sizeof high);
  for (Index i = 0; i < kAmxRows; ++i) {
    for (Index j = 0; j < kAmxRows; ++j) {
      ones[i][j] = 0x3f803f80;
      columns[i][j] = (high & 0xffff0000u) | low >> 16;
    }
  }
  for (int c = 0; c < kSums; ++c) sums[c][0][0] = static_cast<float>(c + 1) / (2 * kSums);
  asm volatile("" : : "m"(ones), "m"(columns), "m"(sums));  // tile loads do not tell the compiler what they read
  enter_amx();
  constexpr int kBytes = sizeof ones[0];
  _tile_loadd(0, sums[0], kBytes);
  _tile_loadd(1, sums[1], kBytes);
  _tile_loadd(2, sums[2], kBytes);
  _tile_loadd(3, sums[3], kBytes);
  _tile_loadd(4, sums[4], kBytes);
  _tile_loadd(5, sums[5], kBytes);
  _tile_loadd(6, ones, kBytes);
  _tile_loadd(7, columns, kBytes);
  for (Index iteration = 0; iteration < iterations; ++iteration) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, sums[0], kBytes);
  _tile_stored(1, sums[1], kBytes);
  _tile_stored(2, sums[2], kBytes);
  _tile_stored(3, sums[3], kBytes);
  _tile_stored(4, sums[4], kBytes);
  _tile_stored(5, sums[5], kBytes);
  leave_amx();
  asm volatile("" : "+m"(sums));
  float total = 0;
  for (int c = 0; c < kSums; ++c) total += sums[c][0][0];
  return total;
}

}  // namespace

constinit const PeakLoop dot_loop = {2 * kSums * kProducts, dot};

}  // namespace regard::kernels::amx_bf16
