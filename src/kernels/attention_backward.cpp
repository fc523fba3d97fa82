// SPDX-License-Identifier: Apache-2.0
//
// Attention backward, up to 60 query rows against one block of 64 keys: what they add to each other's gradients.
//
//   1. score tiles    scores, as in the forward pass                 score_block, before this
//   2. dP tiles       dP = dO·Vᵀ                                     one chain of products an element
//   3. elements       P = exp(score − m) / l,  dS = P·(dP − delta)·scale
//   4. dQ tiles       dQ += dS·K                                     a = dS by rows,     b = K
//   5. dV, dK tiles   dV += Pᵀ·dO,  dK += dSᵀ·Q                      a = P, dS by keys,  b = dO, Q
//
//   P and dS are [60][64] and lie in L1/L2 between the passes. A tile reads them by rows or by keys: both are
//   broadcasts from the same array, so nothing is transposed. Each tile is one chain from zero, added once to what it
//   adds to.
//
// Invisible elements have P = dS = 0 exactly, and adding 0 · x moves no bit of a finite sum; where query, key or
// grad_context are not finite, steps 4 and 5 go element by element over the visible pairs, with the same chains.
// Read next: attention_tile.cpp, tile.h.
#include "kernels.h"
#include "simd_math.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

struct Span {
  Index begin;
  Index end;
};

// What of a block is seen: the keys of each row group, the rows of each key group.
struct SeenTiles {
  Span keys[(kRows + kTileRows - 1) / kTileRows];
  Span rows[(kBlockKeys + kTileRows - 1) / kTileRows];
};

template <class T>
SeenTiles seen_tiles(const BackwardBlock<T>& block) {
  SeenTiles seen;
  for (Span& keys : seen.keys) keys = {kBlockKeys, 0};
  for (Span& rows : seen.rows) rows = {block.num_rows, 0};
  for (Index r = 0; r < block.num_rows; ++r) {
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

template <class T, int Rows>
void product_tile(Index depth, const T* a, const T* b, T* to) {
  for (Index done = 0; done < depth; done += kDepthSegment) {
    Tile<T, Rows> tile;
    clear(tile);
    multiply<T, Rows, kTileRows, 1>(smaller(depth - done, kDepthSegment), a + done * kTileRows, b + done * kPanel,
                                    tile);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        T* at = to + r * kBlockKeys + v * kWidth<T>;
        if (done > 0) tile.row[r][v] += load(at);
        store(at, tile.row[r][v]);
      }
    }
  }
}

template <class T>
void product_tiles(const BackwardBlock<T>& block, Index first, Index count, const Span& keys) {
  for (Index lane = 0; lane < kBlockKeys; lane += kTileColumns<T>) {
    if (keys.end <= lane || keys.begin >= lane + kTileColumns<T>) continue;
    const T* values = block.value_panels[lane / kPanel] + lane % kPanel;
    with_rows(count, [&](auto rows) {
      product_tile<T, decltype(rows)::value>(block.columns, block.grad_context + first * block.columns, values,
                                             block.grad_scores + first * kBlockKeys + lane);
    });
  }
}

// ---- 3. elements

template <class T>
void grad_elements(const BackwardBlock<T>& block, Index r) {
  const Vec<T> high = broadcast(block.row_max[r]);
  const Vec<T> sum = broadcast(block.row_sum[r]);
  const Vec<T> delta = broadcast(block.delta[r]);
  const Index row = r * kBlockKeys;
#pragma GCC unroll 4
  for (Index lane = 0; lane < kBlockKeys; lane += kWidth<T>) {
    const Vec<T> x = load(block.scores + row + lane);
    Vec<T> dp = load(block.grad_scores + row + lane);
    const IntVec<T> unseen = x == broadcast(-kInfinity<T>);
    Vec<T> p = exp<T>(shift<T>(x, high)) / sum;
    Vec<T> kept = p;
    if (block.dropout) {
      const Vec<T> factor = load(block.dropout + row + lane);
      dp *= factor;
      kept *= factor;
    }
    Vec<T> ds = p * (dp - delta) * block.scale;
    if (block.capped) {
      const Vec<T> t = load(block.capped + row + lane) / broadcast(block.soft_cap);
      ds *= fma(-t, t, broadcast(static_cast<T>(1)));
    }
    store(block.scores + row + lane, select<T>(unseen, Vec<T>{}, kept));
    store(block.grad_scores + row + lane, select<T>(unseen, Vec<T>{}, ds));
  }
}

// ---- 4. and 5. tiles that are added

// to[r][column] += Σ_k a[k · StepK + r · StepR] · b[k][column], k from begin to end.
template <class T, int Rows, Index StepK, Index StepR>
void add_tile(const Span& k, const T* a, const T* const* panels, Index panel_offset, T* to, Index to_stride) {
  Tile<T, Rows> tile;
  clear(tile);
  for (Index panel = 0; panel < kBlockPanels; ++panel) {
    const Index begin = larger(k.begin - panel * kPanel, 0);
    const Index end = smaller(k.end - panel * kPanel, kPanel);
    if (begin < end) {
      multiply<T, Rows, StepK, StepR>(end - begin, a + (panel * kPanel + begin) * StepK,
                                      panels[panel] + panel_offset + begin * kPanel, tile);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      T* at = to + r * to_stride + v * kWidth<T>;
      store(at, load(at) + tile.row[r][v]);
    }
  }
}

// to += a · b over all groups of rows of a and all columns; a's row group g meets the k of seen[g].
template <class T, Index StepK, Index StepR>
void add_product(Index num_rows, const Span* seen, const T* a, const T* const* panels, Index padded_columns, T* to) {
  for (Index column = 0; column < padded_columns; column += kTileColumns<T>) {
    const Index panel_offset = column / kPanel * (kPanel * kPanel) + column % kPanel;
    for (Index first = 0; first < num_rows; first += kTileRows) {
      const Span& k = seen[first / kTileRows];
      if (k.begin >= k.end) continue;
      with_rows(smaller(num_rows - first, kTileRows), [&](auto rows) {
        add_tile<T, decltype(rows)::value, StepK, StepR>(k, a + first * StepR, panels, panel_offset,
                                                         to + first * padded_columns + column, padded_columns);
      });
    }
  }
}

// The same chains over the k for which seen(r, k), and no other.
template <class T, Index StepK, Index StepR, class Seen>
void add_seen(Index num_rows, Index num_k, const T* a, const T* const* panels, Index padded_columns, T* to, Seen seen) {
  for (Index r = 0; r < num_rows; ++r) {
    for (Index column = 0; column < padded_columns; column += kWidth<T>) {
      Vec<T> sum{};
      for (Index k = 0; k < num_k; ++k) {
        if (!seen(r, k)) continue;
        const T* panel = panels[k / kPanel] + column / kPanel * (kPanel * kPanel) + column % kPanel;
        sum = fma(broadcast(a[k * StepK + r * StepR]), load(panel + k % kPanel * kPanel), sum);
      }
      T* at = to + r * padded_columns + column;
      store(at, load(at) + sum);
    }
  }
}

template <class T>
void grad_score_rows(const BackwardBlock<T>& block, const SeenTiles& seen) {
  for (Index first = 0; first < block.num_rows; first += kTileRows) {
    const Index count = smaller(block.num_rows - first, kTileRows);
    product_tiles(block, first, count, seen.keys[first / kTileRows]);
    for (Index r = first; r < first + count; ++r) grad_elements(block, r);
  }
}

}  // namespace

template <class T>
void grad_scores_block(const BackwardBlock<T>& block) {
  grad_score_rows(block, seen_tiles(block));
}

template <class T>
void backward_block(const BackwardBlock<T>& block) {
  const SeenTiles seen = seen_tiles(block);
  std::uint64_t contributes[kRows]{};
  for (Index r = 0; r < block.num_rows && !block.finite; ++r) {
    for (Index lane = 0; lane < kBlockKeys; ++lane) {
      const bool yes = block.scores[r * kBlockKeys + lane] != -kInfinity<T>;
      contributes[r] |= static_cast<std::uint64_t>(yes) << lane;
    }
  }
  grad_score_rows(block, seen);
  const T* const ds = block.grad_scores;
  const T* const p = block.scores;
  const T* query[kBlockPanels];
  const T* grad_context[kBlockPanels];
  for (Index i = 0; i < kBlockPanels; ++i) {
    query[i] = block.query_rows + i * kPanel * block.padded_depth;
    grad_context[i] = block.grad_context_rows + i * kPanel * block.padded_columns;
  }
  if (!block.finite) {
    const auto of_row = [&](Index r, Index key) { return (contributes[r] >> key & 1) != 0; };
    const auto of_key = [&](Index key, Index r) { return (contributes[r] >> key & 1) != 0; };
    add_seen<T, 1, kBlockKeys>(block.num_rows, block.num_keys, ds, block.key_rows, block.padded_depth, block.sum_query,
                               of_row);
    add_seen<T, kBlockKeys, 1>(block.num_keys, block.num_rows, p, grad_context, block.padded_columns, block.sum_value,
                               of_key);
    add_seen<T, kBlockKeys, 1>(block.num_keys, block.num_rows, ds, query, block.padded_depth, block.sum_key, of_key);
    return;
  }
  // Rows past the last belong to a register tile; they must add nothing.
  for (Index i = block.num_rows * kBlockKeys; i % (kTileRows * kBlockKeys) != 0; ++i) block.grad_scores[i] = 0;
  if (block.sum_query)
    add_product<T, 1, kBlockKeys>(block.num_rows, seen.keys, ds, block.key_rows, block.padded_depth, block.sum_query);
  if (block.sum_value)
    add_product<T, kBlockKeys, 1>(kBlockKeys, seen.rows, p, grad_context, block.padded_columns, block.sum_value);
  if (block.sum_key) add_product<T, kBlockKeys, 1>(kBlockKeys, seen.rows, ds, query, block.padded_depth, block.sum_key);
}

template void grad_scores_block(const BackwardBlock<float>&);
template void grad_scores_block(const BackwardBlock<double>&);
template void backward_block(const BackwardBlock<float>&);
template void backward_block(const BackwardBlock<double>&);

}  // namespace regard::kernels::REGARD_ISA
