// SPDX-License-Identifier: Apache-2.0
//
// The values of a block along with the keys of the next one, for tiles of one to four rows over packed panels:
//
//   memory     values of block b    ████████████████████████         ████████████ …
//              keys of block b + 1  ████████████████████████         ████████████ …
//                                   a line of each at a time  softmax
//
// Two streams that flow from the first block to the last are what a processor's own fetching is made for; keys and
// values in turn make it begin anew twice a block. The chains are those of decode_packed.h. Read next:
// attention_tile.cpp.
#pragma once

#include "decode_unpacked.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// Whether it pays, measured on Zen 4 (docs/decisions.md): where memory is the limit, not arithmetic. The more rows
// share what is read and the smaller its elements, the earlier arithmetic is. With 16 registers, the sums of several
// rows of scores and context fit only for elements of few bytes, which fill fewer vectors a step.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
template <class S, int Rows>
inline constexpr bool kOverlaps = Rows <= static_cast<int>(sizeof(S));
#else
template <class S, int Rows>
inline constexpr bool kOverlaps = Rows == 1 || sizeof(S) < sizeof(float);
#endif

// What a step takes: vectors of keys and as many of values. Both in turn where the scores and the context, rows ×
// vectors each, are up to 16 of the 32 registers of avx512 and neon. Elsewhere, where there are 16: four vectors for
// one row, which with avx2 are the 32 elements of a line, else two; both in turn for up to two rows, for four first
// values, then keys.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
template <int Rows>
struct OverlappedStep {
  static constexpr int kVectors = 2;
  static constexpr bool kInTurn = true;
};
#else
template <int Rows>
struct OverlappedStep {
  static constexpr int kVectors = Rows > 1 ? 2 : 4;
  static constexpr bool kInTurn = Rows * kVectors <= 4;
};
#endif

// How far ahead of the walk lines are fetched: near enough that the fetches of keys and of values follow each other
// evenly, far enough for the little that is computed of a line of small numbers.
template <class S>
inline constexpr Index kBytesAhead = sizeof(S) >= 4 ? 3072 : 8192;

// A panel and what is fetched while its beginning is read: so much further, in this panel or in one that comes after
// it.
template <class S>
struct PanelWalk {
  const S* here;
  const S* there;
  const float* scales;
};
template <class S>
REGARD_INLINE PanelWalk<S> walk_panel(const StoredPanels& panels, Index panel, Index elements) {
  static_assert(kBlockPanels == 2);
  const void* const order[] = {panels.panels[0], panels.panels[1], panels.next[0], panels.next[1]};
  Index ahead = kBytesAhead<S> / static_cast<Index>(sizeof(S)), last = panel;
  for (; ahead >= elements && last < 3; ++last) ahead -= elements;
  const S* const here = static_cast<const S*>(order[panel]);
  return {here, order[last] ? static_cast<const S*>(order[last]) + ahead : here, panels.scales[panel]};
}

// Whether the keys of the block ahead can be multiplied while the values of this one are.
template <class T>
bool can_overlap(const AttentionBlock<T>& block) {
  const StoredPanels& values = *block.stored_values;
  const StoredPanels& keys = *block.next_score->stored_keys;
  return values.row_stride == 0 && keys.row_stride == 0 && values.type == keys.type &&
         block.next_score->depth <= kDepthSegment && block.padded_columns <= kMaxSums;
}

// Steps of values and of keys, until both are done.
template <class T, class S, int Rows, int Vectors, bool InTurn, class Words>
REGARD_INLINE void multiply_overlapped(Index num_values, const T* weights, const FewColumns<S, Vectors>& values,
                                       Vec<T> (&context)[Rows][Vectors], Index num_keys, const T* query,
                                       const FewColumns<S, Vectors>& keys, Vec<T> (&scores)[Rows][Vectors]) {
  Vec<T> value_scales[Vectors]{}, key_scales[Vectors]{};
  if (num_keys > 0) load_scales<T, S, Vectors, true>(keys, key_scales);
  const Index value_steps = words_of<Words>(num_values), key_steps = words_of<Words>(num_keys);
  const auto value = [&](Index k, bool fetch) __attribute__((always_inline)) {
    few_step<T, S, Rows, Vectors, 1, kBlockKeys, false, Words>(k, num_values, weights, values, value_scales, fetch,
                                                               context);
  };
  const auto key = [&](Index k, bool fetch) __attribute__((always_inline)) {
    few_step<T, S, Rows, Vectors, kTileRows, 1, true, Words>(k, num_keys, query, keys, key_scales, fetch, scores);
  };
  Index both = 0;
  if constexpr (InTurn) {
    const Index fewer = smaller(value_steps, key_steps);
    for (; both + 2 <= fewer; both += 2) {
      value(both, true);
      key(both, true);
      value(both + 1, kStepsPerFetch<S> == 1);
      key(both + 1, kStepsPerFetch<S> == 1);
    }
  }
  for (Index k = both; k < value_steps; ++k) value(k, k % kStepsPerFetch<S> == 0);
  for (Index k = both; k < key_steps; ++k) key(k, k % kStepsPerFetch<S> == 0);
}

// The vectors of a panel's lines from element `offset` on.
template <class T, class S, int Vectors>
REGARD_INLINE void point_at(const PanelWalk<S>& panel, Index offset, Index first_scale, Index scale_step,
                            FewColumns<S, Vectors>& columns) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    columns.at[v] = panel.here + offset + v * kWidth<T>;
    columns.next[v] = panel.there + offset + v * kWidth<T>;
    columns.scales[v] = sizeof(S) == 1 ? panel.scales + first_scale + v * scale_step : nullptr;
  }
}

// O = α·O + P·V of the block, and scale · Q·Kᵀ of the one ahead. ahead: the keys that its rows see.
template <class T, class S, int Rows, class Words>
void decode_overlapped(const AttentionBlock<T>& block, const LaneRange& range, const LaneRange& ahead, const T* alpha) {
  using Step = OverlappedStep<Rows>;
  constexpr int kVectors = Step::kVectors;
  constexpr Index kPart = kVectors * kWidth<T>;
  const ScoreBlock<T>& next = *block.next_score;
  const StoredPanels& values = *block.stored_values;
  const StoredPanels& keys = *next.stored_keys;
  const Index groups = block.padded_columns / kPanel;
  const Index key_elements = next.depth * kPanel, value_elements = block.padded_columns * kPanel;
  // The depths that are multiplied before group n, whole words.
  const Index depth_step = next.depth / groups / Words::kPerWord * Words::kPerWord;
  const auto depths = [&](Index n) { return n == groups ? next.depth : n * depth_step; };
  alignas(64) T sums[Rows * kMaxSums];
  alignas(64) T products[Rows * kPanel];
  std::memset(sums, 0, sizeof sums);
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    const Index lane = panel * kPanel;
    const Index begin = larger(range.begin - lane, 0) / Words::kPerWord * Words::kPerWord;
    const Index num_values = larger(smaller(range.end - lane, kPanel) - begin, 0);
    const bool wanted = ahead.begin < lane + kPanel && ahead.end > lane;
    if constexpr (sizeof(S) < 4) {
      fetch_pages<S, Rows>(values.next[panel], value_elements);
      fetch_pages<S, Rows>(keys.next[panel], key_elements);
    }
    const PanelWalk<S> value_walk = walk_panel<S>(values, panel, value_elements);
    const PanelWalk<S> key_walk = walk_panel<S>(keys, panel, key_elements);
    std::memset(products, 0, sizeof products);
    for (Index group = 0; group < groups; ++group) {
      const Index depth = depths(group);
      const Index num_keys = wanted ? depths(group + 1) - depth : 0;
      for (Index part = 0; part < kPanel; part += kPart) {
        FewColumns<S, kVectors> value_columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
        FewColumns<S, kVectors> key_columns{.step = kPanel, .at = {}, .next = {}, .scales = {}};
        if (num_values > 0) point_at<T>(value_walk, (group * kPanel + begin) * kPanel + part, begin, 0, value_columns);
        if (num_keys > 0) point_at<T>(key_walk, depth * kPanel + part, part, kWidth<T>, key_columns);
        Vec<T> context[Rows][kVectors], scores[Rows][kVectors];
        T* const sum = sums + group * kPanel + part;
        load_tile<kMaxSums>(sum, context);
        load_tile<kPanel>(products + part, scores);
        multiply_overlapped<T, S, Rows, kVectors, Step::kInTurn, Words>(
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
      store_scores(next, lane + part, 0, next.depth, scores);
    }
  }
  add_sums_to_context<T, S, Rows, kVectors, Words>(block, alpha, 0, block.padded_columns, sums);
}

// few_value_tiles of the block and few_score_tiles of the one ahead.
template <class T, class KeyWords, class ValueWords>
void few_tiles_overlapped(const AttentionBlock<T>& block, const LaneRange& range, const LaneRange& ahead,
                          const std::uint64_t* contributes, const T* alpha) {
  bool done = false;
  if constexpr (KeyWords::kPerWord == ValueWords::kPerWord) {
    if (can_overlap(block)) {
      with_stored<T, ValueWords>(block.stored_values->type, block.score.num_rows, [&](auto stored, auto rows) {
        using S = decltype(stored);
        constexpr int kNumRows = decltype(rows)::value;
        if constexpr (kOverlaps<S, kNumRows>) {
          decode_overlapped<T, S, kNumRows, ValueWords>(block, range, ahead, alpha);
          done = true;
        }
      });
    }
  }
  if (done) return;
  few_value_tiles<T, ValueWords>(block, range, contributes, alpha);
  few_score_tiles<T, KeyWords>(*block.next_score, ahead);
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
