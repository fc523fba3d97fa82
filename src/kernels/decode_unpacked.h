// SPDX-License-Identifier: Apache-2.0
//
// Tiles of one to four rows over keys and values that are stored in rows, as in the caller's tensors; and the dispatch
// between these and packed panels (decode_packed.h).
//
// Rows of keys are transposed in registers, as many at a time as a vector has lanes (up to sixteen); a row of values is
// read from beginning to end. Values have not been checked for NaN and infinity: if a sum is not finite, its columns
// are recomputed from only those keys that have weight.
// Read next: attention_tile.cpp.
#pragma once

#include "decode_packed.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// For values stored in rows: 128 floats at once with avx512, so that a row of a typical head is read from beginning to
// end, and half of that for one row elsewhere.
#if defined(REGARD_ISA_avx512)
template <int Rows>
inline constexpr int kRowVectors = Rows <= 2 ? 8 : 4;
#else
template <int Rows>
inline constexpr int kRowVectors = Rows == 1 ? 8 : kFewVectors<Rows>;
#endif

template <int N>
struct Count {
  static constexpr int value = N;
};

// Computes `Vectors` vectors of context from `column` on, from values stored in rows. Returns false, without writing
// anything, if one of them is not finite and a value with zero weight may be the cause.
template <class T, class S, int Rows, int Vectors, class Words>
bool few_columns(const AttentionBlock<T>& block, const LaneRange& range, const T* alpha, Index column) {
  Vec<T> tile[Rows][Vectors]{};
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    add_values<S, true, Words>(block, range, panel, column, tile);
  }
  join_even_and_odd<S, Words>(tile, Rows, Vectors);
  Vec<T> poison{};
  for (int r = 0; r < Rows && r < block.score.num_rows; ++r) {
    for (int v = 0; v < Vectors; ++v) poison += tile[r][v] * static_cast<T>(0);  // NaN exactly if it is not finite
  }
  if (any<T>(poison != poison)) return false;
  add_to_context(block, alpha, column, tile);
  return true;
}

// Recomputes the columns of few_columns, as value_rows does: over the keys whose bit is set in contributes[r].
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

// O = α·O + P·V, for values in packed panels or in rows.
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
    if (values.row_stride == values.row_width) prefetch_pages<S, Rows>(next, kPanel * values.row_width);
  }
  Index column = 0;
  const auto take = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    for (; column + kVectors * kWidth<T> <= values.row_width; column += kVectors * kWidth<T>) {
      if (!few_columns<T, S, Rows, kVectors, Words>(block, range, alpha, column))
        few_columns_by_row<T, S, kVectors, Words>(block, contributes, alpha, column);
    }
  };
  // As much of a row as the registers hold, then smaller parts.
  if constexpr (kRowVectors<Rows> > kFewVectors<Rows>) take(Count<kRowVectors<Rows>>{});
  take(Count<kFewVectors<Rows>>{});
  if constexpr (kPanel / kWidth<T> < kFewVectors<Rows>) take(Count<static_cast<int>(kPanel / kWidth<T>)>{});
  constexpr int kLast = kEvenOdd<S, Words> ? 2 : 1;
  take(Count<kLast>{});
  static_assert(kLast * kWidth<T> <= kLeastRow);
  if constexpr (kLast * kWidth<T> > kRowStep) {
    if (column == values.row_width) return;
    // The last vector of columns overlaps with columns that are done, which are stored again unchanged.
    const Index first = values.row_width - kLast * kWidth<T>, done = column - first;
    T* const context = block.state.accumulator + first;
    T kept[Rows][kLast * kWidth<T>];
    for (int r = 0; r < Rows; ++r) {
      for (Index c = 0; c < done; ++c) kept[r][c] = context[r * block.padded_columns + c];
    }
    column = first;
    take(Count<kLast>{});
    for (int r = 0; r < Rows; ++r) {
      for (Index c = 0; c < done; ++c) context[r * block.padded_columns + c] = kept[r][c];
    }
  }
}

// Prefetches rows of `width` elements, `stride` elements apart, one cache line per call.
template <class S>
struct LinePrefetch {
  const S* at;
  Index done;  // elements of the row that are done
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

// True if a bfloat16 element stays joined to its neighbor, either until both are transposed or permanently, as a pair.
template <class S, class Words>
inline constexpr bool kTwoAWord = Words::kPerWord > 1 || kEvenOdd<S, Words>;

// sums[r][v] += query[r] · keys, for one word of each key, with one key per lane.
template <class Words, class T, int Rows, int Vectors>
REGARD_INLINE void add_depth(const T* query, Vec<T> keys, int v, Vec<T> (&sums)[Rows][Vectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) sums[r][v] = Words::multiply_add(broadcast(query[r]), keys, sums[r][v]);
}

// sums[r][v] += query[r] · keys, for one square: one row of `keys` per lane, and equally many words of each. After
// transposing in registers, a vector holds one word of all keys. If not Whole, only `count` keys exist, and words
// before `first` are ignored.
template <bool Whole, class Words, class T, class S, int Rows, int Vectors>
REGARD_INLINE void add_square(const S* keys, Index stride, [[maybe_unused]] Index count, [[maybe_unused]] Index first,
                              const T* query, int v, Vec<T> (&sums)[Rows][Vectors]) {
  Vec<T> square[kWidth<T>];
#pragma GCC unroll 16
  for (Index i = 0; i < kWidth<T>; ++i) {
    square[i] = Vec<T>{};
    if (!Whole && i >= count) continue;
    if constexpr (kTwoAWord<S, Words>) {
      std::memcpy(&square[i], static_cast<const void*>(keys + i * stride), sizeof square[i]);
    } else {
      square[i] = load_stored<T>(keys + i * stride);
    }
  }
  transpose<T>(square);
#pragma GCC unroll 16
  for (Index i = 0; i < kWidth<T>; ++i) {
    if (!Whole && i < first) continue;
    if constexpr (kEvenOdd<S, Words>) {
      const WideVec both = (WideVec)square[i];
      add_depth<Words>(query + 2 * i * kTileRows, (Vec<T>)(both << 16), v, sums);
      add_depth<Words>(query + (2 * i + 1) * kTileRows, (Vec<T>)(both & 0xffff0000u), v, sums);
    } else {
      add_depth<Words>(query + i * kTileRows, square[i], v, sums);
    }
  }
}

// The scores of keys stored in rows.
template <class T, class S, int Rows, class Words>
void few_row_scores(const ScoreBlock<T>& block, const LaneRange& range) {
  constexpr bool kTwo = kTwoAWord<S, Words>;
  // Two squares at once if a single chain of products would be bound by latency.
  constexpr int kSquares = kWidth<T> < 16 && Rows == 1 && kTwo ? 2 : 1;
  constexpr Index kKeys = kSquares * kWidth<T>;
  constexpr Index kDepths = kTwo ? 2 * kWidth<T> : kWidth<T>;
  static_assert(kDepths <= kLeastRow);
  const StoredPanels& keys = *block.stored_keys;
  const S* const first = static_cast<const S*>(keys.panels[0]);
  const S* const next = keys.next[0] ? static_cast<const S*>(keys.next[0]) : first;
  for (Index lane = 0; lane < kBlockKeys; lane += kKeys) {
    if (range.end <= lane || range.begin >= lane + kKeys) continue;
    const Index count = smaller(kKeys, block.num_keys - lane);
    const S* const here = first + lane * keys.row_stride;
    LinePrefetch<S> prefetch{
        .at = next + lane * keys.row_stride, .done = 0, .width = block.head_size, .stride = keys.row_stride};
    if (keys.row_stride == block.head_size) prefetch_pages<S, Rows>(prefetch.at, kKeys * block.head_size);
    for (Index done = 0; done < block.head_size; done += kDepthSegment) {
      const Index end = smaller(block.head_size, done + kDepthSegment);
      Vec<T> sums[Rows][kSquares]{};
      const bool single = count == 1 && !kTwo;
      for (Index d = done; d < end && single; ++d) {
        add_depth<Words>(block.query + d * kTileRows, broadcast(read_as<T>(here + d)), 0, sums);
      }
      for (Index d = done; d < end && !single; d += kDepths) {
        if (d % (64 / static_cast<Index>(sizeof(S))) == 0) {
          for (Index i = 0; i < kKeys; ++i) prefetch.line();
        }
        // If a row ends within the square, the square is moved back to end with the row; words that repeat at its start
        // are ignored.
        const Index again = larger(d + kDepths - end, 0);
        const T* const query = block.query + (d - again) / Words::kPerWord * kTileRows;
#pragma GCC unroll 4
        for (int s = 0; s < kSquares; ++s) {
          const Index there = count - s * kWidth<T>;
          const S* const at = here + s * kWidth<T> * keys.row_stride + (d - again);
          if (there >= kWidth<T> && again == 0) {
            add_square<true, Words>(at, keys.row_stride, there, 0, query, s, sums);
          } else if (there > 0) {
            add_square<false, Words>(at, keys.row_stride, there, again / (kTwo ? 2 : 1), query, s, sums);
          }
        }
      }
      store_scores(block, lane, done, end, sums);
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

// The scores of a block whose keys are in packed panels or in rows.
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

// Adds P·V of a block to the context. contributes: for each row, the keys with a score above −∞; only used for values
// stored in rows.
template <class T, class Words>
void few_value_tiles(const AttentionBlock<T>& block, const LaneRange& range, const std::uint64_t* contributes,
                     const T* alpha) {
  with_stored<T, Words>(block.stored_values->type, block.score.num_rows, [&](auto stored, auto rows) {
    few_context<T, decltype(stored), decltype(rows)::value, Words>(block, range, contributes, alpha);
  });
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
