// SPDX-License-Identifier: Apache-2.0
//
// The end of a register tile. Its 24 stores in one burst hold up the products of the next tile, by about three
// products' time each; the last steps therefore go row by row, and each row is stored beside the products of those that
// follow:
//
//   k = 0 … depth − 4      all rows, as multiply() goes          (tile.h)
//   the last three k       row 0, finish(0), row 1, finish(1), …
//
// An element stays one chain in the order of k: no bit depends on it. Read next: attention_tile.cpp.
#pragma once

#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// How many steps go row by row: their vectors of b lie in registers beside the whole tile. 0: there are none to spare.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
inline constexpr int kRowSteps = 3;
#else
inline constexpr int kRowSteps = 0;
#endif

// As multiply(), and finish(r) for every row as soon as it is done.
template <class T, int Rows, Index StepK, Index StepR, class Words, class Finish>
REGARD_INLINE void multiply_rows(Index depth, const T* a, const T* b, Tile<T, Rows>& tile, Finish finish) {
  if constexpr (kRowSteps > 0) {
    if (depth > kRowSteps) {
      const Index first = depth - kRowSteps;
      multiply<T, Rows, StepK, StepR, Words>(first, a, b, tile);
      a += first * StepK;
      b += first * kPanel;
      Vec<T> column[larger(kRowSteps, 1)][kTileVectors];
#pragma GCC unroll 4
      for (int k = 0; k < kRowSteps; ++k) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) column[k][v] = load(b + k * kPanel + v * kWidth<T>);
      }
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int k = 0; k < kRowSteps; ++k) {
          const Vec<T> factor = broadcast(a[k * StepK + r * StepR]);
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) {
            tile.row[r][v] = Words::multiply_add(factor, column[k][v], tile.row[r][v]);
          }
        }
        finish(r);
      }
      return;
    }
  }
  multiply<T, Rows, StepK, StepR, Words>(depth, a, b, tile);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) finish(r);
}

// The same of a product whose depth runs through the panels of a block, from word to word of each (tile.h): the words
// of the numbers from begin to end, begin < end. a's words lie StepK apart, a panel's from `offset` on.
template <class T, int Rows, Index StepK, Index StepR, class Words, class Finish>
REGARD_INLINE void multiply_panels(Index begin, Index end, const T* a, const T* const* panels, Index offset,
                                   Tile<T, Rows>& tile, Finish finish) {
  constexpr Index kPanelWords = kPanel / Words::kPerWord;
  const Index last = (end - 1) / kPanel;
  Index word = begin / Words::kPerWord;
  for (Index panel = begin / kPanel; panel < last; ++panel) {
    multiply<T, Rows, StepK, StepR, Words>((panel + 1) * kPanelWords - word, a + word * StepK,
                                           panels[panel] + offset + word % kPanelWords * kPanel, tile);
    word = (panel + 1) * kPanelWords;
  }
  multiply_rows<T, Rows, StepK, StepR, Words>(words_of<Words>(end) - word, a + word * StepK,
                                              panels[last] + offset + word % kPanelWords * kPanel, tile, finish);
}

// The product of a row group, packed with kTileRows beside each other, and two vectors of columns, to rows that lie
// Stride apart: one chain of products for each segment of the depth, their sums in order, times scale where Scaled.
// depth ≥ 1 counts words.
template <class T, int Rows, Index Stride, bool Scaled, class Words>
REGARD_INLINE void depth_tile(Index depth, [[maybe_unused]] T scale, const T* a, const T* b, T* to) {
  constexpr Index kSegment = kDepthSegment / Words::kPerWord;
  const auto scaled = [&](Vec<T> x, Vec<T> factor) __attribute__((always_inline)) { return Scaled ? x * factor : x; };
  const auto factor_of = [&](bool whole) { return broadcast(whole ? scale : static_cast<T>(1)); };
  const Vec<T> factor = factor_of(depth <= kSegment);
  Tile<T, Rows> first;
  clear(first);
  multiply_rows<T, Rows, kTileRows, 1, Words>(
      smaller(depth, kSegment), a, b, first, [&](int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) store(to + r * Stride + v * kWidth<T>, scaled(first.row[r][v], factor));
      });
  for (Index done = kSegment; done < depth; done += kSegment) {
    const Index step = smaller(depth - done, kSegment);
    const Vec<T> last = factor_of(done + step == depth);
    // A tile of its own: compilers would keep the first one in memory for its sake.
    Tile<T, Rows> next;
    clear(next);
    multiply<T, Rows, kTileRows, 1, Words>(step, a + done * kTileRows, b + done * kPanel, next);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        T* at = to + r * Stride + v * kWidth<T>;
        store(at, scaled(load(at) + next.row[r][v], last));
      }
    }
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
