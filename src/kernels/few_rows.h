// SPDX-License-Identifier: Apache-2.0
//
// Tiles of one to four rows, whose time is that of reading keys and values: decoding.
//
//   rows × 2 to 4 vectors, a chain of products each:  scores    lanes are keys
//                                                     context   lanes are columns
//
// Keys and values are read as they are stored (StoredPanels, table.h) and widened in registers; rows of keys that are
// not packed are transposed there, sixteen (as many as a vector holds) at a time. Panels are read in the order of their
// addresses, a line of 32 numbers a step. While a block is read, the same place of the next one is fetched, and before
// it, where its pages begin, so that memory is never idle. The chains are those of tile.h: which of the two computes an
// element moves no bit. Read next: attention_tile.cpp.
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

// Of values that lie in rows: 128 floats of avx512 at once, so that a row of a usual head is read from end to end.
#if defined(REGARD_ISA_avx512)
template <int Rows>
inline constexpr int kRowVectors = Rows <= 2 ? 8 : 4;
#else
template <int Rows>
inline constexpr int kRowVectors = kFewVectors<Rows>;
#endif

// Of packed panels: a line, so that one address follows the other. Bytes take more steps to widen and need four vectors
// to keep the multipliers busy.
template <class T, class S, int Rows>
inline constexpr int kPackedVectors =
    sizeof(S) == 1 ? kFewVectors<Rows> : static_cast<int>(smaller(kFewVectors<Rows>, kPanel / kWidth<T>));

// Fetches the first lines of every page of 4 KiB that begins there: the processor goes on with the rest of a page by
// itself, but does not begin one.
REGARD_INLINE void fetch_pages(const void* from, Index bytes) {
  constexpr std::uintptr_t kPage = 4096, kLine = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(bytes);
  for (std::uintptr_t page = (begin + kPage - 1) / kPage * kPage; page < end; page += kPage) {
    __builtin_prefetch(reinterpret_cast<const void*>(page));
    __builtin_prefetch(reinterpret_cast<const void*>(page + kLine));
  }
}

// Types whose vectors are widened two at a time, as even and odd numbers. Vectors 2n and 2n + 1 of a tile lie side by
// side and hold those until join_even_and_odd puts them in order.
template <class S, class Words>
inline constexpr bool kEvenOdd = false;
template <>
inline constexpr bool kEvenOdd<Bfloat16, Singles> = true;

template <class S, class Words, class Row>
REGARD_INLINE void join_even_and_odd(Row* tile, int rows, int vectors) {
  if constexpr (kEvenOdd<S, Words>) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; v += 2) join_even_odd(tile[r][v], tile[r][v + 1]);
    }
  }
}

// Where the lanes of a tile are read: vector v begins at[v] and goes on `step` elements a step.
template <class S, int Vectors>
struct FewColumns {
  Index step;
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
      at[v] += steps * step;
      next[v] += steps * step;
    }
  }
};

template <int N>
struct Count {
  static constexpr int value = N;
};

// tile[r] += Σ_k a[k · StepK + r · StepR] · columns[k]: the chains of multiply() in tile.h. depth counts numbers:
// steps, of which a word of pairs takes two, the last one perhaps alone.
template <class T, class S, int Rows, int Vectors, Index StepK, Index StepR, bool ScaledLanes, class Words>
REGARD_INLINE void multiply_few(Index depth, const T* a, const FewColumns<S, Vectors>& columns,
                                Vec<T> (&tile)[Rows][Vectors]) {
  constexpr Index kSteps = Words::kPerWord;
  constexpr bool kScaled = sizeof(S) == 1;
  constexpr Index kLine = 64 / static_cast<Index>(sizeof(S));  // elements that one fetch brings
  constexpr Index kStepsPerFetch = kLine > kPanel ? kLine / kPanel : 1;
  constexpr Index kVectorsPerFetch = larger(smaller(kLine, kPanel) / kWidth<T>, 1);
  Vec<T> scales[Vectors]{};
  if constexpr (kScaled && ScaledLanes) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) scales[v] = load(columns.scales[v]);
  }
#pragma GCC unroll 2
  for (Index k = 0; k < (depth + kSteps - 1) / kSteps; ++k) {
    const Index offset = k * kSteps * columns.step;
    Vec<T> column[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (kSteps > 1) {
        const S* const first = columns.at[v] + offset;
        column[v] = load_pairs(first, k * kSteps + 1 < depth ? first + columns.step : nullptr);
      } else if constexpr (kEvenOdd<S, Words>) {
        if (v % 2 == 0) load_even_odd(columns.at[v] + offset, column[v], column[v + 1]);
      } else {
        column[v] = load_stored<T>(columns.at[v] + offset);
      }
      if constexpr (kScaled) column[v] *= ScaledLanes ? scales[v] : broadcast(columns.scales[v][k]);
      if (v % kVectorsPerFetch == 0 && k % kStepsPerFetch == 0) {
        __builtin_prefetch(columns.next[v] + offset, 0, 2);
        if constexpr (kSteps > 1) __builtin_prefetch(columns.next[v] + offset + columns.step, 0, 2);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec<T> factor = broadcast(a[k * StepK + r * StepR]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) tile[r][v] = Words::multiply_add(factor, column[v], tile[r][v]);
    }
  }
}

// The scores of the rows, as score_tile computes them.
template <class T, class S, int Rows, class Words>
void few_scores(const ScoreBlock<T>& block, const LaneRange& range) {
  constexpr int kVectors = kPackedVectors<T, S, Rows>;
  const StoredPanels& keys = *block.stored_keys;
  for (const void* next : keys.next) {
    if (next) fetch_pages(next, block.depth * kPanel * static_cast<Index>(sizeof(S)));
  }
  for (Index lane = 0; lane < kBlockKeys; lane += kVectors * kWidth<T>) {
    if (range.end <= lane || range.begin >= lane + kVectors * kWidth<T>) continue;
    FewColumns<S, kVectors> columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
    for (int v = 0; v < kVectors; ++v) {
      const Index at = lane + v * kWidth<T>;
      // Lanes past the last panel are invisible, whatever is read there.
      columns.point(v, keys, keys.panels[at / kPanel] ? at / kPanel : 0, at % kPanel, at % kPanel);
    }
    for (Index done = 0; done < block.depth; done += kDepthSegment) {
      const Index step = smaller(block.depth - done, kDepthSegment);
      Vec<T> tile[Rows][kVectors]{};
      multiply_few<T, S, Rows, kVectors, kTileRows, 1, true, Words>(
          step, block.query + done / Words::kPerWord * kTileRows, columns, tile);
      join_even_and_odd<S, Words>(tile, Rows, kVectors);
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

// tile[r] += the products of the weights with `Vectors` vectors of values from `column` on, over a panel's keys that
// some row sees.
template <class T, class S, int Rows, int Vectors, class Words>
REGARD_INLINE void add_values(const AttentionBlock<T>& block, const LaneRange& range, Index panel, Index column,
                              Vec<T> (&tile)[Rows][Vectors]) {
  const StoredPanels& values = *block.stored_values;
  const Index step = values.row_stride ? values.row_stride : kPanel;
  const Index next_line = values.row_stride ? kPanel : kPanel * kPanel;  // 32 columns further
  // Whole words from the first on: a key that no row sees has a weight of zero.
  const Index begin = larger(range.begin - panel * kPanel, 0) / Words::kPerWord * Words::kPerWord;
  const Index end = smaller(range.end - panel * kPanel, kPanel);
  if (begin >= end) return;
  FewColumns<S, Vectors> columns{.step = step, .at = {}, .next = {}, .scales = {}};
  for (int v = 0; v < Vectors; ++v) {
    const Index at = column + v * kWidth<T>;
    columns.point(v, values, panel, at / kPanel * next_line + begin * step + at % kPanel, begin);
  }
  multiply_few<T, S, Rows, Vectors, 1, kBlockKeys, false, Words>(
      end - begin, block.score.scores + (panel * kPanel + begin) / Words::kPerWord, columns, tile);
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

// The context of packed panels, as value_tile computes it: all columns of a panel before the next panel.
template <class T, class S, int Rows, int Vectors, class Words>
void few_packed_columns(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha, Index first,
                        Index last) {
  constexpr Index kMost = 256;  // columns whose sums lie in the first cache at a time
  alignas(64) T sums[Rows * kMost];
  Vec<T> tile[Rows][Vectors];
  const auto load_tile = [&](const T* from) {
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) tile[r][v] = load(from + r * kMost + v * kWidth<T>);
    }
  };
  for (Index strip = first; strip < last; strip += kMost) {
    const Index end = smaller(strip + kMost, last);
    std::memset(sums, 0, sizeof sums);
    for (Index panel = 0; panel < kBlockPanels; ++panel) {
      if (const S* next = static_cast<const S*>(block.stored_values->next[panel]))
        fetch_pages(next + strip * kPanel, (end - strip) * kPanel * static_cast<Index>(sizeof(S)));
      for (Index column = strip; column < end; column += Vectors * kWidth<T>) {
        T* const to = sums + (column - strip);
        load_tile(to);
        add_values<T, S, Rows, Vectors, Words>(block, range, panel, column, tile);
        for (int r = 0; r < Rows; ++r) {
          for (int v = 0; v < Vectors; ++v) store(to + r * kMost + v * kWidth<T>, tile[r][v]);
        }
      }
    }
    for (Index column = strip; column < end; column += Vectors * kWidth<T>) {
      load_tile(sums + (column - strip));
      join_even_and_odd<S, Words>(tile, Rows, Vectors);
      add_to_context<T, Rows, Vectors>(block, alpha, column, tile);
    }
  }
}

// `Vectors` vectors of context from `column` on, of values that lie in rows; false, and nothing is written, where one
// is not finite and that may be the fault of a value of no weight.
template <class T, class S, int Rows, int Vectors, class Words>
bool few_columns(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha, Index column) {
  Vec<T> tile[Rows][Vectors]{};
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    add_values<T, S, Rows, Vectors, Words>(block, range, panel, column, tile);
  }
  join_even_and_odd<S, Words>(tile, Rows, Vectors);
  Vec<T> poison{};
  for (int r = 0; r < Rows && r < block.score.num_rows; ++r) {
    for (int v = 0; v < Vectors; ++v) poison += tile[r][v] * static_cast<T>(0);  // NaN exactly when it is not finite
  }
  if (any<T>(poison != poison)) return false;
  add_to_context<T, Rows, Vectors>(block, alpha, column, tile);
  return true;
}

// The columns of few_columns again, as value_rows computes them: over the keys whose bit is set in contributes[r].
template <class T, class S, int Vectors, class Words>
void few_columns_by_row(const AttentionBlock<T>& block, const std::uint64_t* contributes, const T* alpha,
                        Index column) {
  const StoredPanels& values = *block.stored_values;
  for (Index r = 0; r < block.score.num_rows; ++r) {
    for (Index c = column; c < column + Vectors * kWidth<T>; c += kWidth<T>) {
      Vec<T> sum{};
      for (Index lane = 0; lane < kBlockKeys; lane += Words::kPerWord) {
        const std::uint64_t seen = contributes[r] >> lane & ((1 << Words::kPerWord) - 1);
        if (seen == 0) continue;
        const S* row = static_cast<const S*>(values.panels[lane / kPanel]) + lane % kPanel * values.row_stride + c;
        const Vec<T> weight = broadcast(block.score.scores[r * kBlockKeys + lane / Words::kPerWord]);
        if constexpr (Words::kPerWord > 1) {
          const Vec<T> value = seen == 2 ? from_bits<T>(bits_of<T>(load_pairs(row + values.row_stride, nullptr)) << 16)
                                         : load_pairs(row, seen == 3 ? row + values.row_stride : nullptr);
          sum = Words::multiply_add(weight, value, sum);
        } else {
          sum = fma(weight, load_stored<T>(row), sum);
        }
      }
      T* to = block.state.accumulator + r * block.padded_columns + c;
      store(to, fma(broadcast(alpha[r]), load(to), sum));
    }
  }
}

template <class T, class S, int Rows, class Words>
void few_context(const AttentionBlock<T>& block, const LaneRange& range, const std::uint64_t* contributes,
                 const T* alpha) {
  if (block.stored_values->row_stride == 0) {
    constexpr int kPacked = kPackedVectors<T, S, Rows>;
    constexpr Index kColumns = larger(kPacked * kWidth<T>, kPanel);
    const Index whole = block.padded_columns / kColumns * kColumns;
    few_packed_columns<T, S, Rows, kPacked, Words>(block, range, alpha, 0, whole);
    if constexpr (kColumns > kPanel)
      few_packed_columns<T, S, Rows, kPacked / 2, Words>(block, range, alpha, whole, block.padded_columns);
    return;
  }
  const StoredPanels& values = *block.stored_values;
  for (const void* next : values.next) {
    if (next && values.row_stride == block.padded_columns)
      fetch_pages(next, kPanel * block.padded_columns * static_cast<Index>(sizeof(S)));
  }
  Index column = 0;
  const auto take = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    for (; column + kVectors * kWidth<T> <= block.padded_columns; column += kVectors * kWidth<T>) {
      if (!few_columns<T, S, Rows, kVectors, Words>(block, range, alpha, column))
        few_columns_by_row<T, S, kVectors, Words>(block, contributes, alpha, column);
    }
  };
  // As much of a row as the registers hold, then less.
  if constexpr (kRowVectors<Rows> > kFewVectors<Rows>) take(Count<kRowVectors<Rows>>{});
  take(Count<kFewVectors<Rows>>{});
  if constexpr (kPanel / kWidth<T> < kFewVectors<Rows>) take(Count<static_cast<int>(kPanel / kWidth<T>)>{});
}

// Fetches rows of `width` elements line by line, one row after the other, however far apart they lie.
template <class S>
struct LineFetch {
  const S* at;
  Index done;  // of the row
  Index width;
  Index stride;

  void line() {
    __builtin_prefetch(at + done, 0, 2);
    done += 64 / static_cast<Index>(sizeof(S));
    if (done < width) return;
    done = 0;
    at += stride;
  }
};

// sums[r] += query[r] · keys, for one word of as many keys as there are lanes.
template <class T, int Rows, class Words>
REGARD_INLINE void add_depth(const T* query, Vec<T> keys, Vec<T> (&sums)[Rows]) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) sums[r] = Words::multiply_add(broadcast(query[r]), keys, sums[r]);
}

// The scores of keys that lie in rows: squares of as many keys as depths are transposed in registers.
template <class T, class S, int Rows, class Words>
void few_row_scores(const ScoreBlock<T>& block, const LaneRange& range) {
  const StoredPanels& keys = *block.stored_keys;
  const S* const first = static_cast<const S*>(keys.panels[0]);
  const S* const next = keys.next[0] ? static_cast<const S*>(keys.next[0]) : first;
  for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
    if (range.end <= lane || range.begin >= lane + kWidth<T>) continue;
    const Index count = smaller(kWidth<T>, block.num_keys - lane);
    LineFetch<S> fetch{.at = next + lane * keys.row_stride, .done = 0, .width = block.depth, .stride = keys.row_stride};
    if (keys.row_stride == block.depth) fetch_pages(fetch.at, kWidth<T> * block.depth * static_cast<Index>(sizeof(S)));
    for (Index done = 0; done < block.depth; done += kDepthSegment) {
      const Index end = smaller(block.depth, done + kDepthSegment);
      Vec<T> sums[Rows]{};
      // A bfloat16 number stays beside its neighbour until both are transposed, or as a pair for good.
      constexpr bool kTwo = Words::kPerWord > 1 || kEvenOdd<S, Words>;
      constexpr Index kDepths = kTwo ? 2 * kWidth<T> : kWidth<T>;
      for (Index d = done; d < end; d += kDepths) {
        Vec<T> square[kWidth<T>];
#pragma GCC unroll 16
        for (Index i = 0; i < kWidth<T>; ++i) {
          const Index at = (lane + i) * keys.row_stride + d;
          square[i] = Vec<T>{};
          if (i < count) {
            if constexpr (kTwo) {
              std::memcpy(&square[i], static_cast<const void*>(first + at), sizeof square[i]);
            } else {
              square[i] = load_stored<T>(first + at);
            }
          }
          if (d % (64 / static_cast<Index>(sizeof(S))) == 0) fetch.line();
        }
        transpose<T>(square);
#pragma GCC unroll 16
        for (Index i = 0; i < kWidth<T>; ++i) {
          const T* query = block.query + (d + i * (kDepths / kWidth<T>)) / Words::kPerWord * kTileRows;
          if constexpr (kEvenOdd<S, Words>) {
            const WideVec both = (WideVec)square[i];
            add_depth<T, Rows, Words>(query, (Vec<T>)(both << 16), sums);
            add_depth<T, Rows, Words>(query + kTileRows, (Vec<T>)(both & 0xffff0000u), sums);
          } else {
            add_depth<T, Rows, Words>(query, square[i], sums);
          }
        }
      }
      const Vec<T> factor = broadcast(end == block.depth ? block.rules.scale : static_cast<T>(1));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        T* to = block.scores + r * kBlockKeys + lane;
        if (done > 0) sums[r] += load(to);
        store(to, sums[r] * factor);
      }
    }
  }
}

// Calls use(S{}, Rows<n>{}) with the type of the panels, which is bfloat16 for pairs, and the smallest tile that holds
// the rows.
template <class T, class Words, class Use>
REGARD_INLINE void with_stored(Stored type, Index num_rows, Use use) {
  const auto with_type = [&](auto rows) {
    if constexpr (Words::kPerWord > 1) return use(Bfloat16{}, rows);
    if constexpr (Words::kPerWord == 1 && sizeof(T) == sizeof(float)) {
      if (type == Stored::bfloat16) return use(Bfloat16{}, rows);
      if (type == Stored::float16) return use(Float16{}, rows);
      if (type == Stored::int8) return use(std::int8_t{}, rows);
    }
    if constexpr (Words::kPerWord == 1) use(T{}, rows);
  };
  if (num_rows == 1) {
    with_type(Rows<1>{});
  } else if (num_rows == 2) {
    with_type(Rows<2>{});
  } else {
    with_type(Rows<4>{});
  }
}

template <class T, class Words>
void few_score_tiles(const ScoreBlock<T>& block, const LaneRange& range) {
  with_stored<T, Words>(block.stored_keys->type, block.num_rows, [&](auto stored, auto rows) {
    using S = decltype(stored);
    if constexpr (sizeof(S) > 1) {
      if (block.stored_keys->row_stride) return few_row_scores<T, S, decltype(rows)::value, Words>(block, range);
    }
    few_scores<T, S, decltype(rows)::value, Words>(block, range);
  });
}

// contributes: for each row, the keys of a score above −∞; only where values lie in rows.
template <class T, class Words>
void few_value_tiles(const AttentionBlock<T>& block, const LaneRange& range, const std::uint64_t* contributes,
                     const T* alpha) {
  with_stored<T, Words>(block.stored_values->type, block.score.num_rows, [&](auto stored, auto rows) {
    few_context<T, decltype(stored), decltype(rows)::value, Words>(block, range, contributes, alpha);
  });
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
