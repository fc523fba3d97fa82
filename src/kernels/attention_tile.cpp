// SPDX-License-Identifier: Apache-2.0
//
// Attention of up to 60 query rows to one block of 64 keys: the complete fast path.
//
//   1. score tiles   scores = scale · Q·Kᵀ          panel by panel, tile by tile; one chain of products per score
//   2. rules         soft cap, ALiBi, bias, visibility (only in blocks that need them)
//   3. softmax       m' = max(m, row), α = exp(m − m'), p = exp(score − m'), lanes = α·lanes + Σp   (softmax_rows.h)
//   4. value tiles   O = α·O + P·V                   one chain of products from zero per context element
//
//   A row group, of one register tile or five (tile.h), goes through all four passes while its scores are in L1.
//   Between its third and fourth pass, the next group goes through the first two.
//   Q, K and V are packed (attention_pack.cpp); m, lanes and O are the state of the chunk. Invisible keys have p = 0,
//   and adding 0 · v does not change a finite sum. Skipping them and computing them therefore give the same result,
//   which is why all masks, tiles and cache layouts agree. Blocks with non-finite values run pass 4 row by row over
//   the keys that contribute, with the same chains.
//
// Passes 1 and 4 multiply words: values of T, or pairs of bf16 values (tile.h); scores and sums are the same either
// way. Algorithm 3 of Milakov and Gimelshein, arXiv 1805.02867, with blocks in place of elements.
// Read next: attention_finish.cpp.
#include "decode_overlapped.h"
#include "kernels.h"
#include "simd_math.h"
#include "softmax_rows.h"
#include "tile_epilogue.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T>
LaneRange tile_range(const ScoreBlock<T>& block, Index first_row, Index num_rows) {
  LaneRange range{kBlockKeys, 0};
  for (Index r = first_row; r < first_row + num_rows; ++r) {
    range.begin = smaller(range.begin, larger(block.rules.visible_begin[r] - block.first_key, 0));
    range.end = larger(range.end, smaller(block.rules.visible_end[r] - block.first_key, block.num_keys));
  }
  return range;
}

// Prefetches what belongs to one register tile, into the second-level cache: the first-level cache is full of operands.
REGARD_INLINE void prefetch(PrefetchPlan* plan) {
  if (!plan) return;
  for (PrefetchPlan::Rows& rows : plan->rows) {
    for (Index n = smaller(rows.count, plan->rows_a_tile); n > 0; --n) {
      for (Index at = 0; at < rows.bytes; at += 64) __builtin_prefetch(rows.next + at, 0, 2);
      rows.next += rows.stride;
      --rows.count;
    }
  }
}

// Whether keys and values may be stored as in a cache or as in the caller's tensor. A page has packed panels only.
#if defined(REGARD_PACKED_PANELS_ONLY)
constexpr bool kReadsStored = false;
#else
constexpr bool kReadsStored = true;
#endif

// ---- 1. score tiles

template <class T, int Rows, class Words>
void score_tile(Index depth, T scale, const T* query, const T* keys, T* scores) {
  depth_tile<T, Rows, kBlockKeys, true, Words>(depth, scale, query, keys, scores);
}

// The tiles of one row group, whose scores start at group_scores.
template <class T, class Words>
void score_tiles(const ScoreBlock<T>& block, Index first, Index count, const LaneRange* ranges, T* group_scores) {
  if (block.multiplied) return;
  if (kReadsStored && block.stored_keys) return few_score_tiles<T, Words>(block, ranges[0]);
  const Index depth = words_of<Words>(block.head_size);
  for (Index lane = 0; lane < kBlockKeys; lane += kTileColumns<T>) {
    for (Index row = 0; row < count; row += kTileRows) {
      const LaneRange& range = ranges[row / kTileRows];
      if (range.end <= lane || range.begin >= lane + kTileColumns<T>) continue;
      prefetch(block.prefetch_plan);
      const T* keys = block.key_panels[lane / kPanel] + lane % kPanel;
      with_rows(smaller(count - row, kTileRows), [&](auto rows) {
        score_tile<T, decltype(rows)::value, Words>(depth, block.rules.scale, block.query + (first + row) * depth, keys,
                                                    group_scores + row * kBlockKeys + lane);
      });
    }
  }
}

// ---- 2. rules

template <class T>
IntVec<T> load_mask(const std::int32_t* visible) {
  if constexpr (sizeof(T) == sizeof(float)) {
    IntVec<T> mask;
    std::memcpy(&mask, visible, sizeof mask);
    return mask;
  } else {
    IntVec<T> mask;
    for (int i = 0; i < kWidth<T>; ++i) mask[i] = visible[i];
    return mask;
  }
}

// True if scores are hidden by intervals and by no other rule.
template <class T>
bool only_intervals(const ScoreRules<T>& rules) {
  return !rules.visible && !rules.bias && !rules.alibi_slopes && rules.soft_cap == 0;
}

template <class T>
void apply_rules(const ScoreBlock<T>& block, Index first, Index end_row, T* group_scores) {
  using Int = typename VecOf<T>::Int;
  const ScoreRules<T>& rules = block.rules;
  const bool intervals = only_intervals(rules);
  for (Index r = first; r < end_row; ++r) {
    T* scores = group_scores + (r - first) * kBlockKeys;
    const Int begin = static_cast<Int>(larger(smaller(rules.visible_begin[r] - block.first_key, kBlockKeys), 0));
    const Int end = static_cast<Int>(larger(smaller(rules.visible_end[r] - block.first_key, block.num_keys), 0));
    const T position = rules.alibi_slopes ? static_cast<T>(rules.positions[r] - block.first_key) : 0;
    for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
      if (lane >= end || lane + kWidth<T> <= begin) {
        store(scores + lane, broadcast(-kInfinity<T>));
        continue;
      }
      if (intervals && lane >= begin && lane + kWidth<T> <= end) continue;
      const IntVec<T> number = lane_numbers<T>() + static_cast<Int>(lane);
      Vec<T> x = load(scores + lane);
      if (rules.soft_cap != 0) x = tanh<T>(x / broadcast(rules.soft_cap)) * rules.soft_cap;
      if (rules.alibi_slopes) {
        const Vec<T> distance = absolute<T>(__builtin_convertvector(number, Vec<T>) - broadcast(position));
        x = fma(broadcast(-rules.alibi_slopes[r]), distance, x);
      }
      if (rules.bias) x += load(rules.bias + r * kBlockKeys + lane);
      IntVec<T> sees = (number >= broadcast_int<T>(begin)) & (number < broadcast_int<T>(end));
      if (rules.visible) sees &= load_mask<T>(rules.visible + r * kBlockKeys + lane);
      store(scores + lane, select<T>(sees, x, broadcast(-kInfinity<T>)));
    }
  }
}

// True if every row attends to all 64 keys, by plain intervals and no other rule.
template <class T>
bool is_plain(const ScoreBlock<T>& block) {
  const ScoreRules<T>& rules = block.rules;
  if (block.num_keys != kBlockKeys || !only_intervals(rules)) return false;
  for (Index r = 0; r < block.num_rows; ++r) {
    if (rules.visible_begin[r] > block.first_key || rules.visible_end[r] < block.first_key + kBlockKeys) return false;
  }
  return true;
}

// Computes the scores of one row group, and the keys that each of its tiles attends to.
template <class T, class Words>
void score_group(const ScoreBlock<T>& block, bool plain, Index first, Index count, T* scores, LaneRange* ranges) {
  for (Index row = 0; row < count; row += kTileRows) {
    ranges[row / kTileRows] =
        plain ? LaneRange{0, kBlockKeys} : tile_range(block, first + row, smaller(count - row, kTileRows));
  }
  score_tiles<T, Words>(block, first, count, ranges, scores);
  if (!plain) apply_rules(block, first, first + count, scores);
}

// A row group whose scores have been computed, but not yet its context.
template <class T>
struct RowGroup {
  Index first, count;  // rows
  T* scores;
  LaneRange ranges[kGroupTiles];
  std::uint64_t contributes[kGroupRows];  // the contributing keys of each row, if values are not finite
};

// ---- 4. value tiles

template <class T, int Rows, class Words>
void value_tile(LaneRange range, const T* weights, const T* const* panels, Index panel_offset, const T* alpha,
                T* accumulator, Index accumulator_stride) {
  Tile<T, Rows> tile;
  clear(tile);
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    // In words: a pair with only one visible key has a weight of zero for the other.
    const Index begin = larger(range.begin - panel * kPanel, 0) / Words::kPerWord;
    const Index end = words_of<Words>(smaller(range.end - panel * kPanel, kPanel));
    if (begin < end) {
      multiply<T, Rows, 1, kBlockKeys, Words>(end - begin, weights + panel * kPanel / Words::kPerWord + begin,
                                              panels[panel] + panel_offset + begin * kPanel, tile);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    T* to = accumulator + r * accumulator_stride;
    const Vec<T> factor = broadcast(alpha[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      store(to + v * kWidth<T>, fma(factor, load(to + v * kWidth<T>), tile.row[r][v]));
    }
  }
}

// The tiles of one row group.
template <class T, class Words>
void value_tiles(const AttentionBlock<T>& block, const RowGroup<T>& group, const T* alpha) {
  for (Index column = 0; column < block.padded_columns; column += kTileColumns<T>) {
    for (Index row = 0; row < group.count; row += kTileRows) {
      prefetch(block.score.prefetch_plan);
      with_rows(smaller(group.count - row, kTileRows), [&](auto rows) {
        value_tile<T, decltype(rows)::value, Words>(
            group.ranges[row / kTileRows], group.scores + row * kBlockKeys, block.value_panels,
            offset_of<Words>(column), alpha + group.first + row,
            block.state.accumulator + (group.first + row) * block.padded_columns + column, block.padded_columns);
      });
    }
  }
}

// The same chains over only those keys whose bit is set in contributes[row of the group].
template <class T, class Words>
void value_rows(const AttentionBlock<T>& block, const RowGroup<T>& group, const T* alpha) {
  constexpr Index kWords = Words::kPerWord;
  constexpr Index kPanelWords = kPanel / kWords;
  for (Index r = 0; r < group.count; ++r) {
    const T* weights = group.scores + r * kBlockKeys;
    T* accumulator = block.state.accumulator + (group.first + r) * block.padded_columns;
    for (Index column = 0; column < block.padded_columns; column += kWidth<T>) {
      Vec<T> sum{};
      for (Index word = 0; word < kBlockKeys / kWords; ++word) {
        const std::uint64_t seen = group.contributes[r] >> word * kWords & ((1 << kWords) - 1);
        if (seen == 0) continue;
        const T* panel = block.value_panels[word / kPanelWords] + offset_of<Words>(column);
        // The weight of the pair's other key is zero.
        const Vec<T> value = only_seen<T, Words>(load(panel + word % kPanelWords * kPanel), seen);
        sum = Words::multiply_add(broadcast(weights[word]), value, sum);
      }
      store(accumulator + column, fma(broadcast(alpha[group.first + r]), load(accumulator + column), sum));
    }
  }
}

// Rounds p of these rows to pairs of bf16 if values are pairs.
template <class T, class Words>
void join_rows(T* weights, Index num_rows) {
  if constexpr (Words::kPerWord > 1) {
    constexpr Index kStep = Words::kPerWord * kWidth<T>;
    for (Index r = 0; r < num_rows; ++r) {
      T* row = weights + r * kBlockKeys;
      for (Index lane = 0; lane < kBlockKeys; lane += kStep) {
        const Vec<T> p[2] = {load(row + lane), load(row + lane + kWidth<T>)};
        store(row + lane / Words::kPerWord, Words::join(p));
      }
    }
  }
}

// Passes 1 and 2 of all rows.
template <class T, class Words>
void score_rows(const ScoreBlock<T>& block) {
  const bool plain = is_plain(block);
  LaneRange ranges[kGroupTiles];
  for (Index first = 0; first < block.num_rows; first += kGroupRows) {
    score_group<T, Words>(block, plain, first, smaller(block.num_rows - first, kGroupRows),
                          block.scores + first * kBlockKeys, ranges);
  }
}

// Applies the value scale and dropout to p of a row group before it multiplies the values.
template <class T, class Words>
void scale_rows(const AttentionBlock<T>& block, T* weights, Index first, Index count) {
  for (Index i = 0; i < count * kBlockKeys; ++i) weights[i] *= block.value_scale;
  for (Index i = 0; i < count * kBlockKeys && block.dropout; ++i) weights[i] *= block.dropout[first * kBlockKeys + i];
  join_rows<T, Words>(weights, count);
}

// Passes 1 and 2 of a row group, and its maxima.
template <class T, class Words>
void begin_group(const AttentionBlock<T>& block, bool plain, RowGroup<T>& group, MaximaOf<T>& maxima) {
  score_group<T, Words>(block.score, plain, group.first, group.count, group.scores, group.ranges);
  for (Index r = 0; r < group.count && !block.values_finite; ++r) {
    group.contributes[r] = 0;
    for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
      // A NaN is the first operand of min and is dropped, so its key counts as contributing.
      const Vec<T> x = min(load(group.scores + r * kBlockKeys + lane), Vec<T>{});
      group.contributes[r] |= where_greater(x, broadcast(-kInfinity<T>)) << lane;
    }
  }
  raise_maxima(block, group.scores, group.first, group.count, maxima);
}

// Pass 3: replaces the scores of a row group by p, times dropout and value scale, as words.
template <class T, class Words>
void weigh_group(const AttentionBlock<T>& block, const RowGroup<T>& group, const MaximaOf<T>& maxima) {
  if (block.value_scale != 1 || block.dropout) {
    softmax_rows<T, Scalars>(block, group.scores, group.first, group.count, kBlockKeys, maxima);
    scale_rows<T, Words>(block, group.scores, group.first, group.count);
  } else {
    Index end = 0;
    for (Index row = 0; row < group.count; row += kTileRows) end = larger(end, group.ranges[row / kTileRows].end);
    softmax_rows<T, Words>(block, group.scores, group.first, group.count, end, maxima);
  }
}

// Pass 4: adds P·V to the context of a row group. With next_score, also computes the scores of the next block.
template <class T, class KeyWords, class ValueWords>
void end_group(const AttentionBlock<T>& block, const RowGroup<T>& group, const MaximaOf<T>& maxima) {
  if (kReadsStored && block.next_score) {
    const LaneRange next_range = tile_range(*block.next_score, 0, block.score.num_rows);
    few_tiles_overlapped<T, KeyWords, ValueWords>(block, group.ranges[0], next_range, group.contributes, maxima.alpha);
  } else if (kReadsStored && block.stored_values) {
    few_value_tiles<T, ValueWords>(block, group.ranges[0], group.contributes, maxima.alpha);
  } else if (block.values_finite) {
    value_tiles<T, ValueWords>(block, group, maxima.alpha);
  } else {
    value_rows<T, ValueWords>(block, group, maxima.alpha);
  }
}

// Processes one row group after another, alternating between two buffers in block.score.scores, which stay in L1. The
// scores of the next group are computed between the weights and the context of the current one, so that no pass waits
// for the one before. KeyWords: words of query and keys; ValueWords: words of weights and values.
template <class T, class KeyWords, class ValueWords>
void attend_rows(const AttentionBlock<T>& block) {
  MaximaOf<T> maxima;
  RowGroup<T> groups[2];
  const Index num_rows = block.score.num_rows;
  const bool plain = is_plain(block.score);
  const auto begin = [&](Index number) -> RowGroup<T>& {
    RowGroup<T>& group = groups[number % 2];
    group.first = number * kGroupRows;
    group.count = smaller(num_rows - group.first, kGroupRows);
    group.scores = block.score.scores + number % 2 * kGroupRows * kBlockKeys;
    begin_group<T, KeyWords>(block, plain, group, maxima);
    return group;
  };
  RowGroup<T>* group = &begin(0);
  for (Index number = 1; group; ++number) {
    weigh_group<T, ValueWords>(block, *group, maxima);
    RowGroup<T>* const next = number * kGroupRows < num_rows ? &begin(number) : nullptr;
    end_group<T, KeyWords, ValueWords>(block, *group, maxima);
    group = next;
  }
}

}  // namespace

#if !defined(REGARD_PAIRS_ONLY)
template <class T>
void TileKernels<T>::score_block(const ScoreBlock<T>& block) {
  score_rows<T, Scalars>(block);
}
template <class T>
void TileKernels<T>::attention_block(const AttentionBlock<T>& block) {
  attend_rows<T, Scalars, Scalars>(block);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, TileKernels);
#endif

void score_pairs(const ScoreBlock<float>& block) { score_rows<float, Bf16Pairs>(block); }
void attention_pairs(const AttentionBlock<float>& block) { attend_rows<float, Bf16Pairs, Bf16Pairs>(block); }
void attention_pairs_wide(const AttentionBlock<float>& block) { attend_rows<float, Bf16Pairs, Scalars>(block); }

}  // namespace regard::kernels::REGARD_ISA
