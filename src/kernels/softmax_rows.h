// SPDX-License-Identifier: Apache-2.0
//
// The softmax of a row group within a block of 64 keys, in place:
//
//   1. m' = max(m, row),  α = exp(m − m')       raise_maxima
//   2. p = exp(score − m')                      finite_exponentials, or infinite_exponentials
//   3. lanes = α·lanes + Σp                     add_to_lanes
//
// and the statistics that are computed along with it if requested (RowStatistics, table.h):
//
//   the best scores and their keys        only for rows whose largest score in the block exceeds the last one kept
//   Σ p·(score − m') and Σ p·distance     two more sums besides Σp, with the same p
//
// Read next: attention_tile.cpp.
#pragma once

#include "simd_math.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// The effect of a block on the maxima of its rows.
template <class T>
struct MaximaOf {
  alignas(64) T alpha[kPaddedRows];  // exp(m − m')
  alignas(64) T block[kPaddedRows];  // the largest score of the block; for statistics only
  alignas(64) T drop[kPaddedRows];   // m − m', or 0 where m = −∞; for statistics only
};

// ---- statistics

// Inserts x before the first smaller score; the last score is dropped.
template <class T>
REGARD_INLINE void insert(T x, typename VecOf<T>::Int key, int vectors, Vec<T>* scores, IntVec<T>* keys) {
  const Vec<T> all = broadcast(x);
  for (int v = vectors - 1; v >= 0; --v) {
    const Vec<T> moved =
        v == 0 ? last_lane_first<T>(broadcast(kInfinity<T>), scores[0]) : last_lane_first<T>(scores[v - 1], scores[v]);
    const IntVec<T> moved_keys =
        bits_of<T>(last_lane_first<T>(from_bits<T>(keys[v == 0 ? 0 : v - 1]), from_bits<T>(keys[v])));
    const IntVec<T> stays = scores[v] >= all;
    const IntVec<T> before = moved >= all;
    scores[v] = select<T>(stays, scores[v], select<T>(before, all, moved));
    keys[v] = stays ? keys[v] : before ? broadcast_int<T>(key) : moved_keys;
  }
}

// Inserts the candidates, a bit per lane of the scores, each before the first smaller one of the best.
template <class T, int MaxVectors>
REGARD_INLINE void insert_all(std::uint64_t candidates, Index first_key, const T* scores, int vectors, T* best_scores,
                              typename VecOf<T>::Int* best_keys) {
  Vec<T> best[MaxVectors];
  IntVec<T> keys[MaxVectors];
  for (int v = 0; v < vectors; ++v) {
    best[v] = load(best_scores + v * kWidth<T>);
    std::memcpy(&keys[v], best_keys + v * kWidth<T>, sizeof keys[v]);
  }
  for (; candidates != 0; candidates &= candidates - 1) {
    const int lane = __builtin_ctzll(candidates);
    insert<T>(scores[lane], static_cast<typename VecOf<T>::Int>(first_key + lane), vectors, best, keys);
  }
  for (int v = 0; v < vectors; ++v) {
    store(best_scores + v * kWidth<T>, best[v]);
    std::memcpy(best_keys + v * kWidth<T>, &keys[v], sizeof keys[v]);
  }
}

// Inserts those scores of one row that belong to its best.
template <class T>
void keep_best(const RowStatistics<T>& statistics, Index row, Index first_key, const T* scores) {
  constexpr int kLaneVectors = static_cast<int>(kLanes) / kWidth<T>;
  using Int = typename VecOf<T>::Int;
  T& least = statistics.least_best[row];
  std::uint64_t candidates = 0;
  Vec<T> highs[kLaneVectors];
  for (int v = 0; v < static_cast<int>(kBlockKeys) / kWidth<T>; ++v) {
    const Vec<T> x = load(scores + v * kWidth<T>);
    candidates |= where_greater(x, broadcast(least)) << (v * kWidth<T>);
    highs[v % kLaneVectors] = v < kLaneVectors ? x : max(x, highs[v % kLaneVectors]);
  }
  if (count_bits(candidates) > static_cast<int>(kLanes) && statistics.num_best <= kLanes) {
    // Sixteen scores, one in each lane, reach the smallest of the sixteen lane maxima, so no score below it can be
    // among the best.
    T floor = kInfinity<T>;
    for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
      const T high = highs[lane / kWidth<T>][lane % kWidth<T>];
      floor = high < floor ? high : floor;
    }
    for (int v = 0; v < static_cast<int>(kBlockKeys) / kWidth<T>; ++v) {
      candidates &= ~(where_greater(broadcast(floor), load(scores + v * kWidth<T>)) << (v * kWidth<T>));
    }
  }
  T* const best_scores = statistics.best_scores + row * kBlockKeys;
  Int* const best_keys = statistics.best_keys + row * kBlockKeys;
  if (statistics.num_best <= kWidth<T>) {
    insert_all<T, 1>(candidates, first_key, scores, 1, best_scores, best_keys);
  } else {
    const int vectors = static_cast<int>((statistics.num_best + kWidth<T> - 1) / kWidth<T>);
    insert_all<T, static_cast<int>(kBlockKeys) / kWidth<T>>(candidates, first_key, scores, vectors, best_scores,
                                                            best_keys);
  }
  least = best_scores[statistics.num_best - 1];
}

// The inputs of a row's additional sums besides Σp.
template <class T>
struct RowSums {
  T drop;            // m − m'
  T first_distance;  // first key of the block − position of the row
  T* log_lanes;
  T* distance_lanes;
};

// ---- softmax

// The number of rows whose exponentials are interleaved: a single row would leave a wide processor waiting.
template <class T>
inline constexpr int kExpRows = kScales && kWidth<T> * kExpVectors == static_cast<int>(kBlockKeys) ? 2 : 1;

// The sums of p over this block, as lanes: Σp, and for statistics Σp·(score − m') and Σp·distance.
template <class T, int Rows>
struct ExpSums {
  static constexpr int kLaneVectors = static_cast<int>(kLanes) / kWidth<T>;

  Vec<T> p[Rows * kLaneVectors]{};
  Vec<T> logs[kLaneVectors]{};
  Vec<T> distances[kLaneVectors]{};
};

// Computes p, as Words, of rows whose maxima are finite, and the lane sums of p before rounding. Whole: for all 64
// scores; otherwise in whole steps for those before `end`, past which scores are −∞ and are not touched.
template <class T, class Words, bool Statistics, bool Whole, int Rows>
REGARD_INLINE void finite_exponentials(T* scores, [[maybe_unused]] Index end, const T* m,
                                       [[maybe_unused]] const RowSums<T>& also, ExpSums<T, Rows>& sums) {
  constexpr int kLaneVectors = ExpSums<T, Rows>::kLaneVectors;
  constexpr int kVectors = static_cast<int>(kBlockKeys) / kWidth<T>;
  constexpr int kPerWord = static_cast<int>(Words::kPerWord);
  constexpr int kMaxVectors = Whole ? Rows * kExpVectors : kLaneVectors;
  constexpr int kVectorsAtOnce = kMaxVectors > kPerWord ? kMaxVectors : kPerWord;
  const int vectors = Whole ? Rows * kVectors : static_cast<int>((end + kWidth<T> - 1) / kWidth<T>);
  Vec<T> high[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) high[r] = broadcast(m[r]);
  [[maybe_unused]] Vec<T> distance = __builtin_convertvector(lane_numbers<T>(), Vec<T>) + also.first_distance;
#pragma GCC unroll 4
  for (int first = 0; first < vectors; first += kVectorsAtOnce) {
    Vec<T> x[kVectorsAtOnce];
    Vec<T> p[kVectorsAtOnce];
#pragma GCC unroll 8
    for (int i = 0; i < kVectorsAtOnce; ++i)
      x[i] = load(scores + (first + i) * kWidth<T>) - high[Rows == 1 ? 0 : i / kVectors];
    exp<T, kVectorsAtOnce>(x, p);
#pragma GCC unroll 8
    for (int i = 0; i < kVectorsAtOnce; ++i) {
      const int v = (first + i) % kLaneVectors;
      sums.p[(Rows == 1 ? 0 : i / kVectors) * kLaneVectors + v] += p[i];
      if constexpr (Statistics) {
        // If p is 0, x may be −∞.
        sums.logs[v] = fma(p[i], max(broadcast(ExpConstants<T>::kLowest), x[i]), sums.logs[v]);
        sums.distances[v] = fma(p[i], absolute<T>(distance), sums.distances[v]);
        distance += static_cast<T>(kWidth<T>);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kVectorsAtOnce; i += kPerWord) {
      const int row = Rows == 1 ? 0 : i / kVectors;
      store(scores + row * kBlockKeys + (first + i - row * kVectors) / kPerWord * kWidth<T>, Words::join(p + i));
    }
  }
}

// The same for one row whose maximum is not finite. m = +∞: only scores of +∞ have weight. m = −∞: no score has weight.
template <class T, class Words>
REGARD_INLINE void infinite_exponentials(T* scores, T m, ExpSums<T, 1>& sums) {
  constexpr int kVectors = static_cast<int>(kBlockKeys) / kWidth<T>;
  constexpr int kPerWord = static_cast<int>(Words::kPerWord);
  const Vec<T> high = broadcast(m == -kInfinity<T> ? static_cast<T>(0) : m);
  for (int word = 0; word < kVectors / kPerWord; ++word) {
    Vec<T> p[kPerWord];
    for (int i = 0; i < kPerWord; ++i) {
      const int v = word * kPerWord + i;
      p[i] = exp<T>(shift<T>(load(scores + v * kWidth<T>), high));
      sums.p[v % ExpSums<T, 1>::kLaneVectors] += p[i];
    }
    store(scores + word * kWidth<T>, Words::join(p));
  }
}

// lanes = α·lanes + Σp, and likewise for the statistics, whose logarithms change to the new maximum.
template <class T, bool Statistics, int Rows>
REGARD_INLINE void add_to_lanes(const ExpSums<T, Rows>& sums, const T* alpha, T* lanes,
                                [[maybe_unused]] const RowSums<T>& also) {
  constexpr int kLaneVectors = ExpSums<T, Rows>::kLaneVectors;
#pragma GCC unroll 8
  for (int v = 0; v < Rows * kLaneVectors; ++v) {
    const Index at = v * kWidth<T>;
    const Vec<T> factor = broadcast(alpha[v / kLaneVectors]);
    if constexpr (Statistics) {
      const Vec<T> log = fma(load(lanes + at), broadcast(also.drop), load(also.log_lanes + at));
      store(also.log_lanes + at, fma(log, factor, sums.logs[v]));
      store(also.distance_lanes + at, fma(load(also.distance_lanes + at), factor, sums.distances[v]));
    }
    store(lanes + at, fma(load(lanes + at), factor, sums.p[v]));
  }
}

// Replaces the scores of the rows by p and adds their sums to the lanes; Whole and end as in finite_exponentials.
template <class T, class Words, bool Statistics, bool Whole, int Rows>
REGARD_INLINE void exponentials(T* scores, Index end, const T* m, const T* alpha, T* lanes, const RowSums<T>& also) {
  static_assert(Rows == 1 || (Whole && !Statistics && kExpVectors == static_cast<int>(kBlockKeys) / kWidth<T>));
  bool finite = true;
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) finite = finite && m[r] - m[r] == 0;
  if constexpr (Rows > 1) {
    if (!finite) {
      for (int r = 0; r < Rows; ++r)
        exponentials<T, Words, Statistics, Whole, 1>(scores + r * kBlockKeys, end, m + r, alpha + r, lanes + r * kLanes,
                                                     also);
      return;
    }
  }
  ExpSums<T, Rows> sums;
  if (finite) {
    finite_exponentials<T, Words, Statistics, Whole, Rows>(scores, end, m, also, sums);
  } else if constexpr (Rows == 1) {
    infinite_exponentials<T, Words>(scores, m[0], sums);
  }
  add_to_lanes<T, Statistics, Rows>(sums, alpha, lanes, also);
}

// Computes m' and its effect for `count` rows from `first` on, whose scores start at group_scores. Rows is at least
// count; per-row arrays are written in whole vectors.
template <class T, int Rows, bool Statistics>
void raise_maxima(const AttentionBlock<T>& block, const T* group_scores, Index first, Index count,
                  MaximaOf<T>& maxima) {
  using Int = typename VecOf<T>::Int;
#pragma GCC unroll 16
  for (int part = 0; part < Rows; part += kWidth<T>) {
    Vec<T> highs[kWidth<T>];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth<T>; ++r) {
      highs[r] = broadcast(-kInfinity<T>);
      if (part + r >= Rows) continue;
      const T* scores = group_scores + (part + r) * kBlockKeys;
      // A NaN is the second operand of max and is dropped: it reappears through p and the sum.
#pragma GCC unroll 32
      for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) highs[r] = max(load(scores + lane), highs[r]);
    }
    T* row_max = block.state.row_max + first + part;
    const Vec<T> before = load(row_max);
    const Vec<T> largest = largest_lanes<T>(highs);
    // Whether +0 or −0 is found depends on the order of lanes; adding +0 gives +0 for both.
    const Vec<T> m = max(largest, before) + Vec<T>{};
    const Vec<T> after = select<T>(lane_numbers<T>() < static_cast<Int>(count - part), m, before);
    store(row_max, after);
    store(maxima.alpha + first + part, exp<T>(shift<T>(before, after)));
    if constexpr (Statistics) {
      store(maxima.block + first + part, largest);
      store(maxima.drop + first + part, select<T>(before == broadcast(-kInfinity<T>), Vec<T>{}, before - after));
    }
  }
}

// Computes m' for `count` rows from `first` on, whose scores start at group_scores.
template <class T>
void raise_maxima(const AttentionBlock<T>& block, const T* group_scores, Index first, Index count,
                  MaximaOf<T>& maxima) {
  for (Index row = 0; row < count; row += kTileRows) {
    const Index num_rows = smaller(count - row, kTileRows);
    with_rows(num_rows, [&](auto rows) {
      constexpr int kCount = decltype(rows)::value;
      const T* scores = group_scores + row * kBlockKeys;
      if (block.statistics) {
        raise_maxima<T, kCount, true>(block, scores, first + row, num_rows, maxima);
      } else {
        raise_maxima<T, kCount, false>(block, scores, first + row, num_rows, maxima);
      }
    });
  }
}

template <class T, class Words, bool Statistics, bool Whole>
void softmax_rows(const AttentionBlock<T>& block, T* group_scores, Index first, Index count, Index end,
                  const MaximaOf<T>& maxima) {
  constexpr int kRowsAtOnce = Whole && !Statistics ? kExpRows<T> : 1;
  const auto rows = [&](Index r, auto num_rows_at_once) __attribute__((always_inline)) {
    T* const scores = group_scores + (r - first) * kBlockKeys;
    RowSums<T> also{};
    if constexpr (Statistics) {
      const RowStatistics<T>& statistics = *block.statistics;
      if (maxima.block[r] > statistics.least_best[r]) keep_best(statistics, r, block.score.first_key, scores);
      also = {maxima.drop[r], static_cast<T>(block.score.first_key - block.score.rules.positions[r]),
              statistics.log_lanes + r * kLanes, statistics.distance_lanes + r * kLanes};
    }
    exponentials<T, Words, Statistics, Whole, decltype(num_rows_at_once)::value>(
        scores, end, block.state.row_max + r, maxima.alpha + r, block.state.row_lanes + r * kLanes, also);
  };
  Index r = first;
  for (; r + kRowsAtOnce <= first + count; r += kRowsAtOnce) rows(r, Rows<kRowsAtOnce>{});
  if (r < first + count) rows(r, Rows<1>{});
}

// Replaces the scores of `count` rows from `first` on, which start at group_scores, by p, with the words of a row
// starting at its first element, and updates the lanes and the statistics. The rows attend to no key from `end` on.
template <class T, class Words>
void softmax_rows(const AttentionBlock<T>& block, T* group_scores, Index first, Index count, Index end,
                  const MaximaOf<T>& maxima) {
  if (block.statistics) {
    softmax_rows<T, Words, true, true>(block, group_scores, first, count, end, maxima);
  } else if (end > kBlockKeys / 2) {
    softmax_rows<T, Words, false, true>(block, group_scores, first, count, end, maxima);
  } else {
    softmax_rows<T, Words, false, false>(block, group_scores, first, count, end, maxima);
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
