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

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
