// SPDX-License-Identifier: Apache-2.0
//
// Computes the values of a block together with the keys of the next one, for tiles of one to four rows over packed
// panels:
//
//   memory     values of block b    ████████████████████████         ████████████ …
//              keys of block b + 1  ████████████████████████         ████████████ …
//                                   one line of each at a time  softmax
//
// Two streams that run from the first block to the last suit the hardware prefetcher. Alternating between keys and
// values would make it restart twice per block. The chains are those of decode_packed.h.
// Read next: attention_tile.cpp.
#pragma once

#include "decode_unpacked.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// Whether overlapping pays off, measured on Zen 4 (docs/decisions.md): it does if memory is the bottleneck. The more
// rows share what is read and the smaller its elements, the sooner arithmetic is the bottleneck. With 16 registers, the
// sums of several rows of scores and context fit only for small elements, which fill fewer vectors per step.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
template <class S, int Rows>
inline constexpr bool kOverlaps = Rows <= static_cast<int>(sizeof(S));
#else
template <class S, int Rows>
inline constexpr bool kOverlaps = Rows == 1 || sizeof(S) < sizeof(float);
#endif

// The vectors of keys, and of values, per step. With the 32 registers of avx512 and neon, keys and values alternate if
// scores and context, rows × vectors each, take up to 16 registers. With 16 registers: four vectors for one row, which
// with avx2 are the 32 elements of a line, else two; keys and values alternate for up to two rows, and for four rows
// all values come before the keys.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
template <int Rows>
struct OverlappedStep {
  static constexpr int kVectors = 2;
  static constexpr bool kAlternates = true;
};
#else
template <int Rows>
struct OverlappedStep {
  static constexpr int kVectors = Rows > 1 ? 2 : 4;
  static constexpr bool kAlternates = Rows * kVectors <= 4;
};
#endif

// How far ahead lines are prefetched: close enough that prefetches of keys and of values alternate evenly, far enough
// for the small amount of computation per line of small elements.
template <class S>
inline constexpr Index kBytesAhead = sizeof(S) >= 4 ? 3072 : 8192;

// A panel, and the location to prefetch while its beginning is read: a fixed distance ahead, in this panel or in a
// later one.
template <class S>
struct PanelCursor {
  const S* here;
  const S* there;
  const float* scales;
};
template <class S>
REGARD_INLINE PanelCursor<S> panel_cursor(const StoredPanels& panels, Index panel, Index elements) {
  static_assert(kBlockPanels == 2);
  const void* const order[] = {panels.panels[0], panels.panels[1], panels.next[0], panels.next[1]};
  Index distance = kBytesAhead<S> / static_cast<Index>(sizeof(S)), last = panel;
  for (; distance >= elements && last < 3; ++last) distance -= elements;
  const S* const here = static_cast<const S*>(order[panel]);
  return {here, order[last] ? static_cast<const S*>(order[last]) + distance : here, panels.scales[panel]};
}

// True if the keys of the next block can be multiplied while the values of this one are.
template <class T>
bool can_overlap(const AttentionBlock<T>& block) {
  const StoredPanels& values = *block.stored_values;
  const StoredPanels& keys = *block.next_score->stored_keys;
  return values.row_stride == 0 && keys.row_stride == 0 && values.type == keys.type &&
         block.next_score->head_size <= kDepthSegment && block.padded_columns <= kMaxSums;
}

// Alternates steps of values and of keys until both are done.
template <bool Alternates, class Words, class T, class S, int Rows, int Vectors>
REGARD_INLINE void multiply_overlapped(Index num_values, const T* weights, const FewColumns<S, Vectors>& values,
                                       Vec<T> (&context)[Rows][Vectors], Index num_keys, const T* query,
                                       const FewColumns<S, Vectors>& keys, Vec<T> (&scores)[Rows][Vectors]) {
  Vec<T> value_scales[Vectors]{}, key_scales[Vectors]{};
  if (num_keys > 0) load_scales<QueryKeys, T>(keys, key_scales);
  const Index value_steps = words_of<Words>(num_values), key_steps = words_of<Words>(num_keys);
  const auto value = [&](Index k, bool prefetch) __attribute__((always_inline)) {
    few_step<WeightsValues, Words>(k, num_values, weights, values, value_scales, prefetch, context);
  };
  const auto key = [&](Index k, bool prefetch) __attribute__((always_inline)) {
    few_step<QueryKeys, Words>(k, num_keys, query, keys, key_scales, prefetch, scores);
  };
  Index both = 0;
  if constexpr (Alternates) {
    const Index fewer = smaller(value_steps, key_steps);
    for (; both + 2 <= fewer; both += 2) {
      value(both, true);
      key(both, true);
      value(both + 1, kStepsPerPrefetch<S> == 1);
      key(both + 1, kStepsPerPrefetch<S> == 1);
    }
  }
  for (Index k = both; k < value_steps; ++k) value(k, k % kStepsPerPrefetch<S> == 0);
  for (Index k = both; k < key_steps; ++k) key(k, k % kStepsPerPrefetch<S> == 0);
}

// Points the columns at a panel's lines, from element `offset` on.
template <class T, class S, int Vectors>
REGARD_INLINE void point_at(const PanelCursor<S>& panel, Index offset, Index first_scale, Index scale_step,
                            FewColumns<S, Vectors>& columns) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    columns.at[v] = panel.here + offset + v * kWidth<T>;
    columns.next[v] = panel.there + offset + v * kWidth<T>;
    columns.scales[v] = sizeof(S) == 1 ? panel.scales + first_scale + v * scale_step : nullptr;
  }
}

// O = α·O + P·V of this block, and scale · Q·Kᵀ of the next one. next_range: the keys of the next block that rows
// attend to.
//
//   for each panel of 32 keys of both blocks
//     1. for each 32 columns of the context: their sums, and an equal share of the dimensions of the scores
//     2. the scores of the next block, times scale
//   3. O = α·O + the sums
template <class T, class S, int Rows, class Words>
void decode_overlapped(const AttentionBlock<T>& block, const LaneRange& range, const LaneRange& next_range,
                       const T* alpha) {
  using Step = OverlappedStep<Rows>;
  constexpr int kVectors = Step::kVectors;
  constexpr Index kPart = kVectors * kWidth<T>;
  const ScoreBlock<T>& next = *block.next_score;
  const StoredPanels& values = *block.stored_values;
  const StoredPanels& keys = *next.stored_keys;
  const Index groups = block.padded_columns / kPanel;
  const Index key_elements = next.head_size * kPanel, value_elements = block.padded_columns * kPanel;
  // The dimensions that are multiplied before group n, in whole words.
  const Index depth_step = next.head_size / groups / Words::kPerWord * Words::kPerWord;
  const auto depths = [&](Index n) { return n == groups ? next.head_size : n * depth_step; };
  alignas(64) T sums[Rows * kMaxSums];
  alignas(64) T products[Rows * kPanel];
  std::memset(sums, 0, sizeof sums);
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    const Index lane = panel * kPanel;
    const Index begin = larger(range.begin - lane, 0) / Words::kPerWord * Words::kPerWord;
    const Index num_values = larger(smaller(range.end - lane, kPanel) - begin, 0);
    const bool wanted = next_range.begin < lane + kPanel && next_range.end > lane;
    if constexpr (sizeof(S) < 4) {
      prefetch_pages<S, Rows>(values.next[panel], value_elements);
      prefetch_pages<S, Rows>(keys.next[panel], key_elements);
    }
    const PanelCursor<S> value_cursor = panel_cursor<S>(values, panel, value_elements);
    const PanelCursor<S> key_cursor = panel_cursor<S>(keys, panel, key_elements);
    std::memset(products, 0, sizeof products);
    for (Index group = 0; group < groups; ++group) {
      const Index depth = depths(group);
      const Index num_keys = wanted ? depths(group + 1) - depth : 0;
      for (Index part = 0; part < kPanel; part += kPart) {
        FewColumns<S, kVectors> value_columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
        FewColumns<S, kVectors> key_columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
        if (num_values > 0)
          point_at<T>(value_cursor, (group * kPanel + begin) * kPanel + part, begin, 0, value_columns);
        if (num_keys > 0) point_at<T>(key_cursor, depth * kPanel + part, part, kWidth<T>, key_columns);
        Vec<T> context[Rows][kVectors], scores[Rows][kVectors];
        T* const sum = sums + group * kPanel + part;
        load_tile<kMaxSums>(sum, context);
        load_tile<kPanel>(products + part, scores);
        multiply_overlapped<Step::kAlternates, Words>(
            num_values, block.score.scores + (lane + begin) / Words::kPerWord, value_columns, context, num_keys,
            next.query + depth / Words::kPerWord * kTileRows, key_columns, scores);
        store_tile<kMaxSums>(context, sum);
        store_tile<kPanel>(scores, products + part);
      }
    }
    for (Index part = 0; part < kPanel; part += kPart) {
      Vec<T> scores[Rows][kVectors];
      load_tile<kPanel>(products + part, scores);
      join_even_and_odd<S, Words>(scores, Rows, kVectors);
      store_scores(next, lane + part, 0, next.head_size, scores);
    }
  }
  add_sums_to_context<T, S, Rows, kVectors, Words>(block, alpha, 0, block.padded_columns, sums);
}

// few_value_tiles of this block and few_score_tiles of the next one.
template <class T, class KeyWords, class ValueWords>
void few_tiles_overlapped(const AttentionBlock<T>& block, const LaneRange& range, const LaneRange& next_range,
                          const std::uint64_t* contributes, const T* alpha) {
  bool done = false;
  if constexpr (KeyWords::kPerWord == ValueWords::kPerWord) {
    if (can_overlap(block)) {
      with_stored<T, ValueWords>(block.stored_values->type, block.score.num_rows, [&](auto stored, auto rows) {
        using S = decltype(stored);
        constexpr int kNumRows = decltype(rows)::value;
        if constexpr (kOverlaps<S, kNumRows>) {
          decode_overlapped<T, S, kNumRows, ValueWords>(block, range, next_range, alpha);
          done = true;
        }
      });
    }
  }
  if (done) return;
  few_value_tiles<T, ValueWords>(block, range, contributes, alpha);
  few_score_tiles<T, KeyWords>(*block.next_score, next_range);
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
