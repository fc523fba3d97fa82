// SPDX-License-Identifier: Apache-2.0
//
// Tiles of one to four rows, whose time is that of reading keys and values: decoding.
//
//   rows × 4 vectors, a chain of products each:  scores    lanes are keys, both panels of the block at once
//                                                context   lanes are columns of two value panels
//
// Panels are read as they are stored (StoredPanels, table.h) and widened in registers; while a panel is read, the same
// place of the next block's is fetched, in the order of the walk, so that memory is never idle. The chains are those of
// tile.h: which of the two computes an element moves no bit. Read next: attention_tile.cpp.
#pragma once

#include "simd_convert.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// Keys of the block, as lanes 0 … 63, that some row of the group sees by its interval.
struct LaneRange {
  Index begin;
  Index end;
};

static_assert(kFewRows == 4 && kFewRows <= kTileRows);

// Rows × vectors of accumulators, as many of columns and of scales, and a factor: at most 16 + 4 + 4 + 1 of the 32
// registers of avx512, 8 + 4 + 1 of 16 elsewhere. Less than four vectors leave the multipliers waiting for each other.
#if defined(REGARD_ISA_avx512)
template <int Rows>
inline constexpr int kFewVectors = 4;
#else
template <int Rows>
inline constexpr int kFewVectors = Rows <= 2 ? 4 : 2;
#endif

// Where the lanes of a tile are read: vector v begins at[v] and goes on kPanel elements a step.
template <class S, int Vectors>
struct FewColumns {
  const S* at[Vectors];
  const S* next[Vectors];        // the same places of the next block
  const float* scales[Vectors];  // of S = int8: of the lanes, or of the steps

  void point(int v, const StoredPanels& panels, Index panel, Index offset, Index first_scale) {
    const S* const here = static_cast<const S*>(panels.panels[panel]);
    const S* const there = static_cast<const S*>(panels.next[panel]);
    at[v] = here + offset;
    next[v] = (there ? there : here) + offset;
    scales[v] = sizeof(S) == 1 ? panels.scales[panel] + first_scale : nullptr;
  }
  void advance(Index steps) {
    for (int v = 0; v < Vectors; ++v) {
      at[v] += steps * kPanel;
      next[v] += steps * kPanel;
    }
  }
};

// tile[r] += Σ_k a[k · StepK + r · StepR] · columns[k]: the chains of multiply() in tile.h.
template <class T, class S, int Rows, int Vectors, Index StepK, Index StepR, bool ScaledLanes>
REGARD_INLINE void multiply_few(Index depth, const T* a, const FewColumns<S, Vectors>& columns,
                                Vec<T> (&tile)[Rows][Vectors]) {
  constexpr bool kScaled = sizeof(S) == 1;
  constexpr Index kLine = 64 / static_cast<Index>(sizeof(S));  // elements that one fetch brings
  constexpr Index kStepsPerFetch = kLine > kPanel ? kLine / kPanel : 1;
  constexpr Index kVectorsPerFetch = larger(smaller(kLine, kPanel) / kWidth<T>, 1);
  Vec<T> scales[Vectors]{};
  if constexpr (kScaled && ScaledLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) scales[v] = load(columns.scales[v]);
  }
#pragma GCC unroll 2
  for (Index k = 0; k < depth; ++k) {
    Vec<T> column[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      column[v] = load_stored<T>(columns.at[v] + k * kPanel);
      if constexpr (kScaled) column[v] *= ScaledLanes ? scales[v] : broadcast(columns.scales[v][k]);
      if (v % kVectorsPerFetch == 0 && k % kStepsPerFetch == 0) __builtin_prefetch(columns.next[v] + k * kPanel, 0, 2);
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const Vec<T> factor = broadcast(a[k * StepK + r * StepR]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) tile[r][v] = fma(factor, column[v], tile[r][v]);
    }
  }
}

// The scores of the rows, as score_tile computes them.
template <class T, class S, int Rows>
void few_scores(const ScoreBlock<T>& block, const LaneRange& range) {
  constexpr int kVectors = kFewVectors<Rows>;
  const StoredPanels& keys = *block.stored_keys;
  for (Index lane = 0; lane < kBlockKeys; lane += kVectors * kWidth<T>) {
    if (range.end <= lane || range.begin >= lane + kVectors * kWidth<T>) continue;
    FewColumns<S, kVectors> columns;
    for (int v = 0; v < kVectors; ++v) {
      const Index at = lane + v * kWidth<T>;
      // Lanes past the last panel are invisible, whatever is read there.
      columns.point(v, keys, keys.panels[at / kPanel] ? at / kPanel : 0, at % kPanel, at % kPanel);
    }
    for (Index done = 0; done < block.depth; done += kDepthSegment) {
      const Index step = smaller(block.depth - done, kDepthSegment);
      Vec<T> tile[Rows][kVectors]{};
      multiply_few<T, S, Rows, kVectors, kTileRows, 1, true>(step, block.query + done * kTileRows, columns, tile);
      columns.advance(step);
      const Vec<T> factor = broadcast(done + step == block.depth ? block.rules.scale : static_cast<T>(1));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          T* to = block.scores + r * kBlockKeys + lane + v * kWidth<T>;
          if (done > 0) tile[r][v] += load(to);
          store(to, tile[r][v] * factor);
        }
      }
    }
  }
}

// `Vectors` vectors of context from `column` on, as value_tile computes them.
template <class T, class S, int Rows, int Vectors>
void few_columns(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha, Index column) {
  const StoredPanels& values = *block.stored_values;
  Vec<T> tile[Rows][Vectors]{};
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    const Index begin = larger(range.begin - panel * kPanel, 0);
    const Index end = smaller(range.end - panel * kPanel, kPanel);
    if (begin >= end) continue;
    FewColumns<S, Vectors> columns;
    for (int v = 0; v < Vectors; ++v) {
      const Index at = column + v * kWidth<T>;
      columns.point(v, values, panel, at / kPanel * (kPanel * kPanel) + begin * kPanel + at % kPanel, begin);
    }
    multiply_few<T, S, Rows, Vectors, 1, kBlockKeys, false>(end - begin, block.score.scores + panel * kPanel + begin,
                                                            columns, tile);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    T* to = block.state.accumulator + r * block.padded_columns + column;
    const Vec<T> factor = broadcast(alpha[r]);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      store(to + v * kWidth<T>, fma(factor, load(to + v * kWidth<T>), tile[r][v]));
    }
  }
}

template <class T, class S, int Rows>
void few_context(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha) {
  constexpr int kVectors = kFewVectors<Rows>;
  constexpr int kRest = larger(kPanel / kWidth<T>, 1) < kVectors ? static_cast<int>(kPanel / kWidth<T>) : kVectors;
  Index column = 0;
  for (; column + kVectors * kWidth<T> <= block.padded_columns; column += kVectors * kWidth<T>) {
    few_columns<T, S, Rows, kVectors>(block, range, alpha, column);
  }
  for (; column < block.padded_columns; column += kRest * kWidth<T>) {
    few_columns<T, S, Rows, kRest>(block, range, alpha, column);
  }
}

// Calls use(S{}, Rows<n>{}) with the type of the panels and the smallest tile that holds the rows.
template <class T, class Use>
REGARD_INLINE void with_stored(Stored type, Index num_rows, Use use) {
  const auto with_type = [&](auto rows) {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (type == Stored::bfloat16) return use(Bfloat16{}, rows);
      if (type == Stored::float16) return use(Float16{}, rows);
      if (type == Stored::int8) return use(std::int8_t{}, rows);
    }
    use(T{}, rows);
  };
  if (num_rows == 1) {
    with_type(Rows<1>{});
  } else if (num_rows == 2) {
    with_type(Rows<2>{});
  } else {
    with_type(Rows<4>{});
  }
}

template <class T>
void few_score_tiles(const ScoreBlock<T>& block, const LaneRange& range) {
  with_stored<T>(block.stored_keys->type, block.num_rows,
                 [&](auto stored, auto rows) { few_scores<T, decltype(stored), decltype(rows)::value>(block, range); });
}

template <class T>
void few_value_tiles(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha) {
  with_stored<T>(block.stored_values->type, block.score.num_rows, [&](auto stored, auto rows) {
    few_context<T, decltype(stored), decltype(rows)::value>(block, range, alpha);
  });
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
