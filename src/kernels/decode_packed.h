// SPDX-License-Identifier: Apache-2.0
//
// Tiles of one to four rows, whose time is dominated by reading keys and values: decoding over packed panels.
//
//   rows × 2 to 4 vectors, one chain of products each:  scores    lanes are keys
//                                                       context   lanes are columns
//
// Keys and values are read as they are stored (StoredPanels, table.h) and converted in registers. Panels are read in
// address order, one line of 32 elements per step. While a block is read, the same location of the next block is
// prefetched, and before that, the first lines of its pages, so that memory is never idle. (Where the hardware
// prefetcher alone does better, kPrefetchesLines is false.) Every element has the chain of products that tile.h gives
// it, and therefore the same bits.
// Read next: decode_unpacked.h.
#pragma once

#include "simd_convert.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// The keys of the block, as lanes 0 … 63, that some row of the group attends to by its interval.
struct LaneRange {
  Index begin;
  Index end;
};

static_assert(kFewRows == 4 && kFewRows <= kTileRows);

// rows × vectors accumulators, the same number of column and scale vectors, and one factor: at most 16 + 4 + 4 + 1 of
// the 32 registers of avx512, and 8 + 4 + 1 of 16 elsewhere. With fewer than four vectors, the multipliers wait for
// each other.
#if defined(REGARD_ISA_avx512)
template <int Rows>
inline constexpr int kFewVectors = 4;
#else
template <int Rows>
inline constexpr int kFewVectors = Rows <= 2 ? 4 : 2;
#endif

// For packed panels: a whole line, so that addresses are consecutive. Bytes take more steps to convert and need four
// vectors to keep the multipliers busy.
template <class T, class S, int Rows>
inline constexpr int kPackedVectors =
    sizeof(S) == 1 ? kFewVectors<Rows> : static_cast<int>(smaller(kFewVectors<Rows>, kPanel / kWidth<T>));

// Whether lines are prefetched before the steps that read them. With 16 registers, one row of 16-bit or 32-bit elements
// consumes too few lines: the hardware prefetcher is ahead, and additional prefetches only slow it down.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
template <class S, int Rows>
inline constexpr bool kPrefetchesLines = true;
#else
template <class S, int Rows>
inline constexpr bool kPrefetchesLines = Rows > 1 || sizeof(S) == 1;
#endif

// Prefetches the first lines of every 4 KiB page that begins within the next `elements` elements: the hardware
// prefetcher continues within a page, but does not cross into a new one. from may be nullptr.
template <class S, int Rows>
REGARD_INLINE void prefetch_pages(const void* from, Index elements) {
  if (!kPrefetchesLines<S, Rows> || !from) return;
  constexpr std::uintptr_t kPage = 4096, kLine = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(elements) * sizeof(S);
  for (std::uintptr_t page = (begin + kPage - 1) / kPage * kPage; page < end; page += kPage) {
    __builtin_prefetch(reinterpret_cast<const void*>(page));
    __builtin_prefetch(reinterpret_cast<const void*>(page + kLine));
  }
}

// Types whose vectors are converted two at a time, into even and odd elements. Vectors 2n and 2n + 1 of a tile are
// adjacent, as with loads of pairs, and hold even and odd elements until join_even_and_odd restores the order.
template <class S, class Words>
inline constexpr bool kEvenOdd = false;
template <>
inline constexpr bool kEvenOdd<Bfloat16, Scalars> = true;

template <class S, class Words, class Row>
REGARD_INLINE void join_even_and_odd(Row* tile, int rows, int vectors) {
  if constexpr (kEvenOdd<S, Words>) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; v += 2) join_even_odd(tile[r][v], tile[r][v + 1]);
    }
  }
}

// Where the lanes of a tile are read: vector v begins at at[v] and advances by `step` elements per step.
template <class S, int Vectors>
struct FewColumns {
  Index step;
  const S* at[Vectors];
  const S* next[Vectors];        // the same locations of the next block
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
      at[v] += steps * step;
      next[v] += steps * step;
    }
  }
};

// The two products. Row r of the left factor has its element k at a[k · kStep + r · kRow]. With S = int8, each key has
// a scale: for the scores, keys are lanes; for the context, they are steps.
struct QueryKeys {
  static constexpr Index kStep = kTileRows, kRow = 1;
  static constexpr bool kScaledLanes = true;
};
struct WeightsValues {
  static constexpr Index kStep = 1, kRow = kBlockKeys;
  static constexpr bool kScaledLanes = false;
};

// The scales of S = int8 that do not change from step to step.
template <class Product, class T, class S, int Vectors>
REGARD_INLINE void load_scales(const FewColumns<S, Vectors>& columns, Vec<T> (&scales)[Vectors]) {
  if constexpr (sizeof(S) == 1 && Product::kScaledLanes) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) scales[v] = load(columns.scales[v]);
  }
}

// Number of steps covered by one prefetch.
template <class S>
inline constexpr Index kStepsPerPrefetch = sizeof(S) == 1 ? 64 / kPanel : 1;

// Step k of the chains of multiply() in tile.h: tile[r] += (element k of row r of a) · columns[k]. depth counts
// elements: one per step, or two for a word of pairs, except perhaps the last. prefetch: prefetches the same
// location of columns.next.
template <class Product, class Words, class T, class S, int Rows, int Vectors>
REGARD_INLINE void few_step(Index k, Index depth, const T* a, const FewColumns<S, Vectors>& columns,
                            const Vec<T> (&scales)[Vectors], bool prefetch, Vec<T> (&tile)[Rows][Vectors]) {
  constexpr Index kSteps = Words::kPerWord;
  constexpr bool kScaled = sizeof(S) == 1, kScaledLanes = Product::kScaledLanes;
  constexpr Index kLine = 64 / static_cast<Index>(sizeof(S));  // elements per prefetch
  constexpr Index kVectorsPerPrefetch = larger(smaller(kLine, kPanel) / kWidth<T>, 1);
  const Index offset = k * kSteps * columns.step;
  Vec<T> column[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    const S* const from = columns.at[v] + offset;
    if constexpr (kSteps > 1) {
      const S* const other = k * kSteps + 1 < depth ? from + columns.step : nullptr;
      if constexpr (Vectors == 1) {
        column[v] = load_pairs(from, other);
      } else if (v % 2 == 0) {
        load_two_pairs(from, other, column[v], column[v + 1]);
      }
    } else if constexpr (kEvenOdd<S, Words>) {
      if (v % 2 == 0) load_even_odd(from, column[v], column[v + 1]);
    } else if constexpr (kScaled && Rows == 1 && kScaledLanes) {
      tile[0][v] = multiply_add_bytes(a + k * Product::kStep, from, scales[v], tile[0][v]);
    } else if constexpr (kScaled && Rows == 1) {
      tile[0][v] = multiply_add_bytes(a + k * Product::kStep, from, columns.scales[v][k], tile[0][v]);
    } else {
      column[v] = load_stored<T>(from);
      if constexpr (kScaled) column[v] *= kScaledLanes ? scales[v] : broadcast(columns.scales[v][k]);
    }
    if (kPrefetchesLines<S, Rows> && prefetch && v % kVectorsPerPrefetch == 0) {
      __builtin_prefetch(columns.next[v] + offset, 0, 2);
      if constexpr (kSteps > 1) __builtin_prefetch(columns.next[v] + offset + columns.step, 0, 2);
    }
  }
  if constexpr (kScaled && Rows == 1) return;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const Vec<T> factor = broadcast(a[k * Product::kStep + r * Product::kRow]);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) tile[r][v] = Words::multiply_add(factor, column[v], tile[r][v]);
  }
}

// All steps of a chain.
template <class Product, class Words, class T, class S, int Rows, int Vectors>
REGARD_INLINE void multiply_few(Index depth, const T* a, const FewColumns<S, Vectors>& columns,
                                Vec<T> (&tile)[Rows][Vectors]) {
  Vec<T> scales[Vectors]{};
  load_scales<Product, T>(columns, scales);
  const Index count = words_of<Words>(depth);
#pragma GCC unroll 2
  for (Index k = 0; k < count; ++k) {
    few_step<Product, Words>(k, depth, a, columns, scales, k % kStepsPerPrefetch<S> == 0, tile);
  }
}

// Writes scores from `lane` on: adds the tile, which covers dimensions `done` to `end`, to the sum of the earlier ones.
template <class T, int Rows, int Vectors>
REGARD_INLINE void store_scores(const ScoreBlock<T>& block, Index lane, Index done, Index end,
                                Vec<T> (&tile)[Rows][Vectors]) {
  const Vec<T> factor = broadcast(end == block.head_size ? block.rules.scale : static_cast<T>(1));
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      T* to = block.scores + r * kBlockKeys + lane + v * kWidth<T>;
      if (done > 0) tile[r][v] += load(to);
      store(to, tile[r][v] * factor);
    }
  }
}

// The scores of the rows, as score_tile computes them, a few vectors of keys at a time: 1. a chain of products for each
// segment of 256 dimensions; 2. the sum of the segments, times scale.
template <class T, class S, int Rows, class Words>
void few_scores(const ScoreBlock<T>& block, const LaneRange& range) {
  constexpr int kVectors = kPackedVectors<T, S, Rows>;
  const StoredPanels& keys = *block.stored_keys;
  for (const void* next : keys.next) prefetch_pages<S, Rows>(next, block.head_size * kPanel);
  for (Index lane = 0; lane < kBlockKeys; lane += kVectors * kWidth<T>) {
    if (range.end <= lane || range.begin >= lane + kVectors * kWidth<T>) continue;
    FewColumns<S, kVectors> columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
    for (int v = 0; v < kVectors; ++v) {
      const Index at = lane + v * kWidth<T>;
      // Lanes past the last panel are invisible, so any panel may be read for them.
      columns.point(v, keys, keys.panels[at / kPanel] ? at / kPanel : 0, at % kPanel, at % kPanel);
    }
    for (Index done = 0; done < block.head_size; done += kDepthSegment) {
      const Index step = smaller(block.head_size - done, kDepthSegment);
      Vec<T> tile[Rows][kVectors]{};
      multiply_few<QueryKeys, Words>(step, block.query + done / Words::kPerWord * kTileRows, columns, tile);
      join_even_and_odd<S, Words>(tile, Rows, kVectors);
      columns.advance(step);
      store_scores(block, lane, done, done + step, tile);
    }
  }
}

// tile[r] += the products of the weights with `Vectors` vectors of values from `column` on, over the keys of a panel
// that some row attends to. InRows: values are stored in rows, not in panels.
template <class S, bool InRows, class Words, class T, int Rows, int Vectors>
REGARD_INLINE void add_values(const AttentionBlock<T>& block, const LaneRange& range, Index panel, Index column,
                              Vec<T> (&tile)[Rows][Vectors]) {
  const StoredPanels& values = *block.stored_values;
  const Index step = InRows ? values.row_stride : kPanel;
  constexpr Index kNextLine = InRows ? kPanel : kPanel * kPanel;  // 32 columns later
  // True if the vectors are contiguous, in a row or in a line.
  constexpr bool kContiguous = InRows || Vectors * kWidth<T> <= kPanel;
  // Whole words from the first on: a key that no row attends to has a weight of zero.
  const Index begin = larger(range.begin - panel * kPanel, 0) / Words::kPerWord * Words::kPerWord;
  const Index end = smaller(range.end - panel * kPanel, kPanel);
  if (begin >= end) return;
  FewColumns<S, Vectors> columns{.step = step, .at = {}, .next = {}, .scales = {}};
  const auto place = [&](Index at) { return at / kPanel * kNextLine + begin * step + at % kPanel; };
  for (int v = 0; v < Vectors; ++v) {
    const Index offset = v * kWidth<T>;
    columns.point(v, values, panel, kContiguous ? place(column) + offset : place(column + offset), begin);
  }
  multiply_few<WeightsValues, Words>(end - begin, block.score.scores + (panel * kPanel + begin) / Words::kPerWord,
                                     columns, tile);
}

// O = α·O + tile for the columns from `column` on.
template <class T, int Rows, int Vectors>
REGARD_INLINE void add_to_context(const AttentionBlock<T>& block, const T* alpha, Index column,
                                  const Vec<T> (&tile)[Rows][Vectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    T* to = block.state.accumulator + r * block.padded_columns + column;
    const Vec<T> factor = broadcast(alpha[r]);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      store(to + v * kWidth<T>, fma(factor, load(to + v * kWidth<T>), tile[r][v]));
    }
  }
}

inline constexpr Index kMaxSums = 256;  // columns whose sums stay in the first-level cache at a time

// Loads a tile whose rows are `Stride` apart.
template <Index Stride, class T, int Rows, int Vectors>
REGARD_INLINE void load_tile(const T* from, Vec<T> (&tile)[Rows][Vectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) tile[r][v] = load(from + r * Stride + v * kWidth<T>);
  }
}
template <Index Stride, class T, int Rows, int Vectors>
REGARD_INLINE void store_tile(const Vec<T> (&tile)[Rows][Vectors], T* to) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) store(to + r * Stride + v * kWidth<T>, tile[r][v]);
  }
}

// O = α·O + sums, for columns `first` to `last`; sums start with column `first`.
template <class T, class S, int Rows, int Vectors, class Words>
REGARD_INLINE void add_sums_to_context(const AttentionBlock<T>& block, const T* alpha, Index first, Index last,
                                       const T* sums) {
  for (Index column = first; column < last; column += Vectors * kWidth<T>) {
    Vec<T> tile[Rows][Vectors];
    load_tile<kMaxSums>(sums + (column - first), tile);
    join_even_and_odd<S, Words>(tile, Rows, Vectors);
    add_to_context(block, alpha, column, tile);
  }
}

// The context of packed panels, as computed by value_tile: all columns of a panel before the next panel.
template <class T, class S, int Rows, int Vectors, class Words>
void few_packed_columns(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha, Index first,
                        Index last) {
  alignas(64) T sums[Rows * kMaxSums];
  Vec<T> tile[Rows][Vectors];
  for (Index strip = first; strip < last; strip += kMaxSums) {
    const Index end = smaller(strip + kMaxSums, last);
    std::memset(sums, 0, sizeof sums);
    for (Index panel = 0; panel < kBlockPanels; ++panel) {
      const S* const next = static_cast<const S*>(block.stored_values->next[panel]);
      if (next) prefetch_pages<S, Rows>(next + strip * kPanel, (end - strip) * kPanel);
      for (Index column = strip; column < end; column += Vectors * kWidth<T>) {
        T* const to = sums + (column - strip);
        load_tile<kMaxSums>(to, tile);
        add_values<S, false, Words>(block, range, panel, column, tile);
        store_tile<kMaxSums>(tile, to);
      }
    }
    add_sums_to_context<T, S, Rows, Vectors, Words>(block, alpha, strip, end, sums);
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
