// SPDX-License-Identifier: Apache-2.0
//
// The end of a register tile. Storing its 24 vectors in one burst would delay the products of the next tile, by the
// time of about three products per store. The last steps therefore run row by row, and each row is stored while the
// following rows are multiplied:
//
//   k = 0 … depth − 4      all rows, as in multiply()            (tile.h)
//   the last three k       row 0, finish(0), row 1, finish(1), …
//
// Each element is still one chain in the order of k, so the bits are unchanged.
// Read next: attention_tile.cpp.
#pragma once

#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// The number of steps that run row by row: their vectors of b are held in registers next to the whole tile. 0 means
// that no registers are spare.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
inline constexpr int kRowSteps = 3;
#else
inline constexpr int kRowSteps = 0;
#endif

// Like multiply(), but calls finish(r) for every row as soon as it is done.
template <class T, int Rows, Index StepK, Index StepR, class Words, class Finish, class Ahead = NoReadAhead>
REGARD_INLINE void multiply_rows(Index depth, const T* a, const T* b, Tile<T, Rows>& tile, Finish finish,
                                 Ahead&& ahead = {}) {
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
  multiply<T, Rows, StepK, StepR, Words>(depth, a, b, tile, ahead);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) finish(r);
}

// The same for a product whose depth runs through the panels of a block, word by word (tile.h): the words of the
// elements from begin to end, begin < end. Words of a are StepK apart; those of a panel start at `offset`.
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

// The product of a row group, packed with kTileRows adjacent rows, and two vectors of columns, written to rows Stride
// apart: one chain of products per segment of the depth, summed in order, times scale if Scaled. depth ≥ 1 counts
// words.
template <class T, int Rows, Index Stride, bool Scaled, class Words, class Ahead = NoReadAhead>
REGARD_INLINE void depth_tile(Index depth, [[maybe_unused]] T scale, const T* a, const T* b, T* to,
                              Ahead&& ahead = {}) {
  constexpr Index kSegment = kDepthSegment / Words::kPerWord;
  const auto scaled = [&](Vec<T> x, Vec<T> factor) __attribute__((always_inline)) { return Scaled ? x * factor : x; };
  const auto factor_of = [&](bool whole) { return broadcast(whole ? scale : static_cast<T>(1)); };
  const Vec<T> factor = factor_of(depth <= kSegment);
  Tile<T, Rows> first;
  clear(first);
  multiply_rows<T, Rows, kTileRows, 1, Words>(
      smaller(depth, kSegment), a, b, first,
      [&](int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) store(to + r * Stride + v * kWidth<T>, scaled(first.row[r][v], factor));
      },
      ahead);
  for (Index done = kSegment; done < depth; done += kSegment) {
    const Index step = smaller(depth - done, kSegment);
    const Vec<T> last = factor_of(done + step == depth);
    // A separate tile: compilers would otherwise keep the first one in memory.
    Tile<T, Rows> next;
    clear(next);
    multiply<T, Rows, kTileRows, 1, Words>(step, a + done * kTileRows, b + done * kPanel, next, ahead);
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
