// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for up to 60 query rows and one block of 64 keys: their contributions to each other's gradients.
//
//   1. score tiles    scores, as in the forward pass                 score_block, called before
//   2. dP tiles       dP = dO·Vᵀ                                     one chain of products per element
//   3. elements       P = exp(score − m) / l,  dS = P·(dP − delta)·scale
//   4. dQ tiles       dQ += dS·K                                     a = dS by rows,     b = K
//   5. dV, dK tiles   dV += Pᵀ·dO,  dK += dSᵀ·Q                      a = P, dS by keys,  b = dO, Q
//
//   P and dS are [60][64] and stay in L1/L2 between the passes. A tile reads them by rows or by keys: both are
//   broadcasts from the same array, so nothing is transposed. Each tile is one chain that starts at zero and is added
//   once to its destination. Passes 2, 4 and 5 multiply words: values of T, or pairs of bf16 values (tile.h).
//
// Invisible elements have P = dS = 0 exactly, and adding 0 · x does not change a finite sum. If query, key or
// grad_context are not finite, passes 4 and 5 go element by element over the visible pairs, with the same chains.
// Read next: attention_tile.cpp, tile_epilogue.h.
#include "kernels.h"
#include "simd_math.h"
#include "tile_epilogue.h"

namespace regard::kernels::REGARD_ISA {
namespace {

struct Span {
  Index begin;
  Index end;
};

// The visible part of a block: the keys of each row group, and the rows of each key group.
struct SeenTiles {
  Span keys[(kRows + kTileRows - 1) / kTileRows];
  Span rows[(kBlockKeys + kTileRows - 1) / kTileRows];
};

template <class T>
SeenTiles seen_tiles(const BackwardBlock<T>& block) {
  SeenTiles seen;
  bool all = block.num_keys == kBlockKeys;
  for (Index r = 0; r < block.num_rows; ++r) {
    all &= block.visible_begin[r] <= block.first_key && block.visible_end[r] >= block.first_key + kBlockKeys;
  }
  for (Span& keys : seen.keys) keys = all ? Span{0, kBlockKeys} : Span{kBlockKeys, 0};
  for (Span& rows : seen.rows) rows = all ? Span{0, block.num_rows} : Span{block.num_rows, 0};
  for (Index r = 0; r < block.num_rows && !all; ++r) {
    const Index begin = larger(block.visible_begin[r] - block.first_key, 0);
    const Index end = smaller(block.visible_end[r] - block.first_key, block.num_keys);
    if (begin >= end) continue;
    Span& keys = seen.keys[r / kTileRows];
    keys.begin = smaller(keys.begin, begin);
    keys.end = larger(keys.end, end);
    for (Index g = begin / kTileRows; g * kTileRows < end; ++g) {
      seen.rows[g].begin = smaller(seen.rows[g].begin, r);
      seen.rows[g].end = r + 1;
    }
  }
  return seen;
}

// ---- 2. dP tiles

template <class T, int Rows, class Words>
void product_tile(Index depth, const T* a, const T* b, T* to) {
  depth_tile<T, Rows, kBlockKeys, false, Words>(depth, 1, a, b, to);
}

template <class T, class Words>
void product_tiles(const BackwardBlock<T>& block, Index first, Index count, const Span& keys) {
  const Index depth = words_of<Words>(block.columns);
  for (Index lane = 0; lane < kBlockKeys; lane += kTileColumns<T>) {
    if (keys.end <= lane || keys.begin >= lane + kTileColumns<T>) continue;
    const T* values = block.value_panels[lane / kPanel] + lane % kPanel;
    with_rows(count, [&](auto rows) {
      product_tile<T, decltype(rows)::value, Words>(depth, block.grad_context + first * depth, values,
                                                    block.grad_scores + first * kBlockKeys + lane);
    });
  }
}

// ---- 3. elements

template <class T>
struct RowNumbers {
  Vec<T> high, sum, delta;
  Vec<T> share;         // 1 / sum
  Vec<T> scaled_delta;  // delta · scale
  bool finite;          // row_max is finite
};

template <class T>
REGARD_INLINE RowNumbers<T> numbers_of(const BackwardBlock<T>& block, Index r) {
  return {broadcast(block.row_max[r]),
          broadcast(block.row_sum[r]),
          broadcast(block.delta[r]),
          broadcast(1 / block.row_sum[r]),
          broadcast(block.delta[r] * block.scale),
          block.row_max[r] - block.row_max[r] == 0};
}

// exp(score − maximum) of Count vectors; `at` is the offset from the first row's first score.
template <class T, int Count>
REGARD_INLINE void exp_scores(const BackwardBlock<T>& block, const RowNumbers<T>& row, Index at, Vec<T>* p) {
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) {
    const Vec<T> x = load(block.scores + at + i * kWidth<T>);
    p[i] = row.finite ? x - row.high : shift<T>(x, row.high);
  }
  exp<T, Count>(p, p);
}

// Computes a vector of P, after dropout, in place of exp(score − maximum), and a vector of dS.
template <class T, class Words>
REGARD_INLINE void grad_vector(const BackwardBlock<T>& block, const RowNumbers<T>& row, Index at, Vec<T>& p,
                               Vec<T>& ds) {
  const IntVec<T> unseen = load(block.scores + at) == broadcast(-kInfinity<T>);
  Vec<T> dp = load(block.grad_scores + at);
  // Results that are rounded to bf16 do not need an exact division.
  constexpr bool kRounded = Words::kPerWord > 1;
  p = kRounded ? p * row.share : p / row.sum;
  Vec<T> kept = p;
  if (block.dropout) {
    const Vec<T> factor = load(block.dropout + at);
    dp *= factor;
    kept *= factor;
  }
  ds = kRounded ? p * fma(dp, broadcast(block.scale), -row.scaled_delta) : p * (dp - row.delta) * block.scale;
  if (block.capped) {
    const Vec<T> t = load(block.capped + at) / broadcast(block.soft_cap);
    ds *= fma(-t, t, broadcast(static_cast<T>(1)));
  }
  p = select<T>(unseen, Vec<T>{}, kept);
  ds = select<T>(unseen, Vec<T>{}, ds);
}

// Pass 3 for one row, in place.
template <class T, class Words>
void grad_elements(const BackwardBlock<T>& block, Index r) {
  const RowNumbers<T> row = numbers_of(block, r);
#pragma GCC unroll 4
  for (Index lane = 0; lane < kBlockKeys; lane += kExpVectors * kWidth<T>) {
    Vec<T> p[kExpVectors];
    exp_scores<T, kExpVectors>(block, row, r * kBlockKeys + lane, p);
#pragma GCC unroll 4
    for (int i = 0; i < kExpVectors; ++i) {
      const Index at = r * kBlockKeys + lane + i * kWidth<T>;
      Vec<T> ds;
      grad_vector<T, Words>(block, row, at, p[i], ds);
      store(block.scores + at, p[i]);
      store(block.grad_scores + at, ds);
    }
  }
}

// The same in the common case of pairs: a finite maximum, no dropout and no soft cap.
REGARD_INLINE void plain_vector(const BackwardBlock<float>& block, const RowNumbers<float>& row, Index at,
                                Vec<float>& p, Vec<float>& ds) {
  const Vec<float> x = load(block.scores + at);
  p = exp<float>(x - row.high) * row.share;
  ds = p * fma(load(block.grad_scores + at), broadcast(block.scale), -row.scaled_delta);
  ds = select<float>(x == broadcast(-kInfinity<float>), Vec<float>{}, ds);
}

// P and dS in pairs, joined while the elements of two rows are in registers:
//
//   by keys  two adjacent keys  [60][32]  (r, 2j) (r, 2j + 1)  for dS·K
//   by rows  two adjacent rows  [30][64]  (2i, j) (2i + 1, j)  for Pᵀ·dO and dSᵀ·Q
struct JoinedBlock {
  alignas(64) float weights_by_rows[kRows / 2 * kBlockKeys];
  alignas(64) float grad_scores_by_rows[kRows / 2 * kBlockKeys];
  alignas(64) float grad_scores_by_keys[kRows * kBlockKeys / 2];
};

// Converts pairs by keys of two rows, from lane `from` on, to pairs by rows.
template <int from, int... Lane>
REGARD_INLINE Vec<float> across(Vec<float> low, Vec<float> high, Lanes<Lane...>) {
  typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes)));
  constexpr int count = sizeof...(Lane);
  return (Vec<float>)__builtin_shufflevector((Halves)low, (Halves)high, (from + Lane / 2 + Lane % 2 * count)...);
}
REGARD_INLINE void store_by_rows(Vec<float> low, Vec<float> high, float* to) {
  constexpr FirstLanes<2 * kWidth<float>>::type lanes{};
  store(to, across<0>(low, high, lanes));
  store(to + kWidth<float>, across<kWidth<float>>(low, high, lanes));
}

// Joins row r, which is even, and row r + 1, which may not exist.
inline void join_elements(const BackwardBlock<float>& block, Index r, const Span& keys, JoinedBlock& joined) {
  constexpr Index kStep = 2 * kWidth<float>;
  const bool both = r + 1 < block.num_rows;
  const RowNumbers<float> rows[2] = {numbers_of(block, r), numbers_of(block, both ? r + 1 : r)};
  const bool plain = both && rows[0].finite && rows[1].finite && !block.dropout && !block.capped;
  for (Index lane = 0; lane < kBlockKeys; lane += kStep) {
    Vec<float> p[2][2]{}, ds[2][2]{};  // [row][half]
    const bool seen = keys.begin < lane + kStep && keys.end > lane;
    const auto fill = [&](Index num_rows, auto vector) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (Index i = 0; i < num_rows; ++i) {
#pragma GCC unroll 2
        for (Index part = 0; part < 2; ++part) {
          vector(block, rows[i], (r + i) * kBlockKeys + lane + part * kWidth<float>, p[i][part], ds[i][part]);
        }
      }
    };
    if (seen && plain) {
      fill(2, plain_vector);
    } else if (seen) {
      fill(both ? 2 : 1,
           [](const auto& from, const RowNumbers<float>& row, Index at, Vec<float>& of, Vec<float>& grad) {
             exp_scores<float, 1>(from, row, at, &of);
             grad_vector<float, Bf16Pairs>(from, row, at, of, grad);
           });
    }
    Vec<float> by_keys[2];
#pragma GCC unroll 2
    for (Index i = 0; i < 2; ++i) {
      by_keys[i] = Bf16Pairs::join(ds[i]);
      store(joined.grad_scores_by_keys + ((r + i) * kBlockKeys + lane) / 2, by_keys[i]);
    }
    const Index at = r / 2 * kBlockKeys + lane;
    store_by_rows(by_keys[0], by_keys[1], joined.grad_scores_by_rows + at);
    store_by_rows(Bf16Pairs::join(p[0]), Bf16Pairs::join(p[1]), joined.weights_by_rows + at);
  }
}

// ---- 4. and 5. tiles that are accumulated

// to[r][column] += Σ_k a[k · StepK + r · StepR] · b[k][column]. k counts the words that contain the elements from begin
// to end (exclusive), of which there is at least one. Other elements of these words must have a factor of zero.
template <class T, int Rows, Index StepK, Index StepR, class Words>
void add_tile(const Span& numbers, const T* a, const T* const* panels, Index panel_offset, T* to, Index to_stride) {
  Tile<T, Rows> tile;
  clear(tile);
  multiply_panels<T, Rows, StepK, StepR, Words>(numbers.begin, numbers.end, a, panels, panel_offset, tile,
                                                [&](int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
                                                  for (int v = 0; v < kTileVectors; ++v) {
                                                    T* at = to + r * to_stride + v * kWidth<T>;
                                                    store(at, load(at) + tile.row[r][v]);
                                                  }
                                                });
}

// to += a · b over all row groups of a and all columns; row group g of a uses the elements of seen[g].
template <class T, Index StepK, Index StepR, class Words>
void add_product(Index num_rows, const Span* seen, const T* a, const T* const* panels, Index padded_columns, T* to) {
  for (Index column = 0; column < padded_columns; column += kTileColumns<T>) {
    for (Index first = 0; first < num_rows; first += kTileRows) {
      const Span& numbers = seen[first / kTileRows];
      if (numbers.begin >= numbers.end) continue;
      with_rows(smaller(num_rows - first, kTileRows), [&](auto rows) {
        add_tile<T, decltype(rows)::value, StepK, StepR, Words>(numbers, a + first * StepR, panels,
                                                                offset_of<Words>(column),
                                                                to + first * padded_columns + column, padded_columns);
      });
    }
  }
}

// The same chains over only those elements for which seen(r, element) is true.
template <class T, Index StepK, Index StepR, class Words, class Seen>
void add_seen(Index num_rows, Index num_numbers, const T* a, const T* const* panels, Index padded_columns, T* to,
              Seen seen) {
  constexpr Index kWords = Words::kPerWord;
  constexpr Index kPanelWords = kPanel / kWords;
  for (Index r = 0; r < num_rows; ++r) {
    for (Index column = 0; column < padded_columns; column += kWidth<T>) {
      Vec<T> sum{};
      for (Index k = 0; k < words_of<Words>(num_numbers); ++k) {
        std::uint64_t which = 0;
        for (Index i = 0; i < kWords; ++i) which |= std::uint64_t{seen(r, k * kWords + i)} << i;
        if (which == 0) continue;
        const Vec<T> b = load(panels[k / kPanelWords] + offset_of<Words>(column) + k % kPanelWords * kPanel);
        sum = Words::multiply_add(broadcast(a[k * StepK + r * StepR]), only_seen<T, Words>(b, which), sum);
      }
      T* at = to + r * padded_columns + column;
      store(at, load(at) + sum);
    }
  }
}

// Passes 2 and 3. joined: destination for pairs; nullptr means single elements, in place.
template <class T, class Words>
void grad_score_rows(const BackwardBlock<T>& block, const SeenTiles& seen, JoinedBlock* joined) {
  for (Index first = 0; first < block.num_rows; first += kTileRows) {
    const Index count = smaller(block.num_rows - first, kTileRows);
    const Span& keys = seen.keys[first / kTileRows];
    product_tiles<T, Words>(block, first, count, keys);
    if constexpr (Words::kPerWord > 1) {
      for (Index r = first; r < first + count && joined; r += 2) join_elements(block, r, keys, *joined);
    }
    for (Index r = first; r < first + count && !joined; ++r) grad_elements<T, Words>(block, r);
  }
}

// The factors of passes 4 and 5: P and dS by words of rows, and dS by words of keys.
template <class T>
struct Factors {
  T* weights;
  T* grad_scores;
  T* grad_scores_by_keys;
};

template <class T, class Words>
void add_gradients(const BackwardBlock<T>& block, JoinedBlock* joined, const Factors<T>& factors) {
  constexpr Index kKeyWords = kBlockKeys / Words::kPerWord;
  const SeenTiles seen = seen_tiles(block);
  std::uint64_t contributes[kRows]{};
  for (Index r = 0; r < block.num_rows && !block.finite; ++r) {
    for (Index lane = 0; lane < kBlockKeys; ++lane) {
      const bool yes = block.scores[r * kBlockKeys + lane] != -kInfinity<T>;
      contributes[r] |= static_cast<std::uint64_t>(yes) << lane;
    }
  }
  grad_score_rows<T, Words>(block, seen, joined);
  const T* query[kBlockPanels];
  const T* grad_context[kBlockPanels];
  for (Index i = 0; i < kBlockPanels; ++i) {
    query[i] = block.query_rows + i * kPanel / Words::kPerWord * block.padded_depth;
    grad_context[i] = block.grad_context_rows + i * kPanel / Words::kPerWord * block.padded_columns;
  }
  const auto of_row = [&](Index r, Index key) { return (contributes[r] >> key & 1) != 0; };
  const auto of_key = [&](Index key, Index r) { return r < block.num_rows && (contributes[r] >> key & 1) != 0; };
  const auto add_by_rows = [&](const T* a, const T* const* panels, Index padded, T* to) {
    if (!to) return;
    if (block.finite) return add_product<T, kBlockKeys, 1, Words>(kBlockKeys, seen.rows, a, panels, padded, to);
    add_seen<T, kBlockKeys, 1, Words>(block.num_keys, block.num_rows, a, panels, padded, to, of_key);
  };
  if (block.sum_query && block.finite) {
    // Rows past the last are part of a register tile; they must contribute nothing.
    for (Index i = block.num_rows * kKeyWords; i % (kTileRows * kKeyWords) != 0; ++i)
      factors.grad_scores_by_keys[i] = 0;
    add_product<T, 1, kKeyWords, Words>(block.num_rows, seen.keys, factors.grad_scores_by_keys, block.key_rows,
                                        block.padded_depth, block.sum_query);
  } else if (block.sum_query) {
    add_seen<T, 1, kKeyWords, Words>(block.num_rows, block.num_keys, factors.grad_scores_by_keys, block.key_rows,
                                     block.padded_depth, block.sum_query, of_row);
  }
  add_by_rows(factors.weights, grad_context, block.padded_columns, block.sum_value);
  add_by_rows(factors.grad_scores, query, block.padded_depth, block.sum_key);
}

}  // namespace

#if !defined(REGARD_PAIRS_ONLY)
template <class T>
void BackwardKernels<T>::grad_scores_block(const BackwardBlock<T>& block) {
  grad_score_rows<T, Scalars>(block, seen_tiles(block), nullptr);
}
template <class T>
void BackwardKernels<T>::backward_block(const BackwardBlock<T>& block) {
  add_gradients<T, Scalars>(block, nullptr, {block.scores, block.grad_scores, block.grad_scores});
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, BackwardKernels);
#endif

void grad_scores_pairs(const BackwardBlock<float>& block) {
  grad_score_rows<float, Bf16Pairs>(block, seen_tiles(block), nullptr);
}
void backward_pairs(const BackwardBlock<float>& block) {
  JoinedBlock joined;
  add_gradients<float, Bf16Pairs>(block, &joined,
                                  {joined.weights_by_rows, joined.grad_scores_by_rows, joined.grad_scores_by_keys});
}

}  // namespace regard::kernels::REGARD_ISA
