// SPDX-License-Identifier: Apache-2.0
//
// The end of a row: folds lanes into a sum and chunks into one result, adds the sink, and divides.
//
//   finish_chunk  row_sum = fixed tree over sixteen lanes
//   finish_rows   M = max over chunks m;  w = exp(m − M);  l = Σ w·l_chunk,  O = Σ w·O_chunk  (compensated);
//                 the sink is added to M and l;  context = O / l;  lse = M + ln l
//
// Every chunk is rescaled once, directly to the final maximum, and the sums are compensated (Neumaier, ZAMM 54, 1974),
// so the error does not grow with the number of chunks. A single chunk passes through unchanged.
#include "kernels.h"
#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// high + low = high + x exactly, unless something overflows (Knuth's two-sum).
template <class V>
REGARD_INLINE void add_compensated(V x, V& high, V& low) {
  const V sum = high + x;
  const V part = sum - high;
  low += (high - (sum - part)) + (x - part);
  high = sum;
}

// The sum with its compensation, except for infinite sums, whose compensation is a meaningless NaN.
template <class T>
Vec<T> total(Vec<T> high, Vec<T> low) {
  const Vec<T> sum = high + low;
  return select<T>(low == low, sum, high);
}

// exp(x − m), the weight of x relative to m; equal infinities have distance 0.
template <class T>
T rescale(T x, T m) {
  return exp<T>(shift<T>(broadcast(x), broadcast(m)))[0];
}

// The weights of chunks first … first + kWidth − 1 of a row, as far as they exist.
template <class T>
void chunk_weights(const FinishRows<T>& rows, Index r, Index first, T chunk_max, T* weights) {
  const Index count = rows.num_chunks - first < kWidth<T> ? rows.num_chunks - first : kWidth<T>;
  if (count == 1 && rows.row_max[first * rows.row_chunk_stride + r] == chunk_max) {
    weights[0] = 1;  // exp(0)
    return;
  }
  for (Index i = 0; i < kWidth<T>; ++i) {
    weights[i] = i < count ? rows.row_max[(first + i) * rows.row_chunk_stride + r] : chunk_max;
  }
  store(weights, exp<T>(shift<T>(load(weights), broadcast(chunk_max))));
}

template <class T>
struct RowTotals {
  alignas(64) T first_weights[kWidth<T>];  // chunk_weights of the first chunks, unless single
  T chunk_max;                             // over the chunks, without the sink
  T row_max;
  T row_sum;
  T context_factor;  // factor of the accumulators after the sink was added
  T sink_weight;
  bool empty;
  bool single;  // there is only one chunk, with weight 1
};

template <class T>
RowTotals<T> row_totals(const FinishRows<T>& rows, Index r) {
  T high_max = -kInfinity<T>;
  for (Index c = 0; c < rows.num_chunks; ++c) {
    const T m = rows.row_max[c * rows.row_chunk_stride + r];
    high_max = m > high_max ? m : high_max;
  }
  T high = 0;
  T low = 0;
  RowTotals<T> totals;
  totals.chunk_max = totals.row_max = high_max;
  totals.context_factor = 1;
  totals.sink_weight = 0;
  totals.single = rows.num_chunks == 1 && rows.row_max[r] == high_max;
  if (totals.single) high = rows.row_sum[r];
  for (Index first = totals.single ? 1 : 0; first < rows.num_chunks; first += kWidth<T>) {
    alignas(64) T more_weights[kWidth<T>];
    T* const weights = first > 0 ? more_weights : totals.first_weights;
    chunk_weights(rows, r, first, high_max, weights);
    for (Index i = 0; i < kWidth<T> && first + i < rows.num_chunks; ++i) {
      const T l = rows.row_sum[(first + i) * rows.row_chunk_stride + r];
      add_compensated(weights[i] * l, high, low);
    }
  }
  totals.row_sum = low == low ? high + low : high;
  // Several scores of +∞ have no defined ratio.
  if (totals.row_max == kInfinity<T> && totals.row_sum != 1) totals.row_sum = kInfinity<T> - kInfinity<T>;
  totals.empty = totals.row_sum == 0;
  const T sink = rows.sinks ? rows.sinks[r] : -kInfinity<T>;
  if (sink != -kInfinity<T> && totals.row_sum == totals.row_sum) {
    const T joined = sink > totals.row_max ? sink : totals.row_max;
    const T sink_share = rescale(sink, joined);
    totals.context_factor = rescale(totals.row_max, joined);
    totals.row_sum = fma(totals.row_sum, totals.context_factor, sink_share);
    totals.row_max = joined;
    totals.sink_weight = sink_share / totals.row_sum;
  }
  if (totals.row_sum != totals.row_sum) {
    totals.row_max = totals.row_sum;
    totals.sink_weight = sink == -kInfinity<T> ? static_cast<T>(0) : totals.row_sum;
  }
  return totals;
}

// Computes Vectors · kWidth columns from `first` on; a single vector may have only `left` columns. Single: there is
// only one chunk, with weight 1. Returns NaN in each lane whose result is not finite, else 0.
template <class T, int Vectors, bool Single>
Vec<T> context_strip(const FinishRows<T>& rows, Index r, const RowTotals<T>& totals, Index first, Index left) {
  Vec<T> sums[Vectors]{};
  Vec<T> low[Vectors]{};
  const T* row = rows.accumulator + r * rows.accumulator_row_stride + first;
  const auto read = [&](const T* from, int v) {
    return Vectors == 1 ? load_some(from, left) : load(from + v * kWidth<T>);
  };
  if constexpr (Single) {
    // Adding +0 turns −0 into +0, as below.
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[v] += read(row, v);
  } else {
    for (Index c0 = 0; c0 < rows.num_chunks; c0 += kWidth<T>) {
      alignas(64) T more_weights[kWidth<T>];
      if (c0 > 0) chunk_weights(rows, r, c0, totals.chunk_max, more_weights);
      const T* const weights = c0 > 0 ? more_weights : totals.first_weights;
      for (Index i = 0; i < kWidth<T> && c0 + i < rows.num_chunks; ++i) {
        const T* from = row + (c0 + i) * rows.accumulator_chunk_stride;
        const Vec<T> weight = broadcast(weights[i]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) add_compensated(read(from, v) * weight, sums[v], low[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[v] = total<T>(sums[v], low[v]);
  }
  T* context = rows.context + r * rows.columns + first;
  Vec<T> poison{};
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec<T> result = sums[v] * totals.context_factor / broadcast(totals.row_sum);
    if (rows.value_scale != 1) result = result / rows.value_scale;
    poison += result * static_cast<T>(0);
    if (Vectors == 1) {
      store_some(context, result, left);
    } else {
      store(context + v * kWidth<T>, result);
    }
  }
  return poison;
}

// Returns NaN in some lane if an element of the row is not finite, else 0.
template <class T, bool Single>
Vec<T> context_row(const FinishRows<T>& rows, Index r, const RowTotals<T>& totals) {
  constexpr Index kStripColumns = 4 * kWidth<T>;
  Vec<T> poison{};
  Index first = 0;
  for (; first + kStripColumns <= rows.columns; first += kStripColumns) {
    poison += context_strip<T, 4, Single>(rows, r, totals, first, kStripColumns);
  }
  for (; first < rows.columns; first += kWidth<T>) {
    poison += context_strip<T, 1, Single>(rows, r, totals, first, rows.columns - first);
  }
  return poison;
}

// Lane i of the result is the sum of the lanes of row i, added as a tree: first lanes half a vector apart, then a
// quarter, and so on. Takes kWidth<T> rows, which are overwritten.
template <class T, int bit = kWidth<T> / 2>
Vec<T> added_lanes(Vec<T>* rows) {
#pragma GCC unroll 8
  for (int i = 0; i < bit; ++i) {
    exchange<T, bit>(rows[i], rows[i + bit]);
    rows[i] += rows[i + bit];
  }
  if constexpr (bit > 1) {
    return added_lanes<T, bit / 2>(rows);
  } else {
    return rows[0];
  }
}

}  // namespace

template <class T>
void FinishKernels<T>::finish_chunk(Index num_rows, const ChunkState<T>& state) {
  constexpr Index kVectors = kLanes / kWidth<T>;
  for (Index first = 0; first < num_rows; first += kWidth<T>) {
    Vec<T> sums[kWidth<T>];
#pragma GCC unroll 16
    for (Index i = 0; i < kWidth<T>; ++i) {
      Vec<T> lanes[kVectors]{};
      if (first + i < num_rows) {
        for (Index v = 0; v < kVectors; ++v) lanes[v] = load(state.row_lanes + (first + i) * kLanes + v * kWidth<T>);
      }
#pragma GCC unroll 4
      for (Index half = kVectors / 2; half > 0; half /= 2) {
        for (Index v = 0; v < half; ++v) lanes[v] += lanes[v + half];
      }
      sums[i] = lanes[0];
    }
    store_some(state.row_sum + first, added_lanes<T>(sums), num_rows - first);
  }
}

template <class T>
bool FinishKernels<T>::finish_rows(const FinishRows<T>& rows) {
  Vec<T> overflowed{};  // NaN in some lane
  for (Index r = 0; r < rows.num_rows; ++r) {
    const RowTotals<T> totals = row_totals(rows, r);
    if (totals.empty) {
      std::memset(rows.context + r * rows.columns, 0, static_cast<std::size_t>(rows.columns) * sizeof(T));
    } else {
      const Vec<T> poison =
          totals.single ? context_row<T, true>(rows, r, totals) : context_row<T, false>(rows, r, totals);
      if (totals.row_sum - totals.row_sum == 0) overflowed += poison;
    }
    rows.out_row_max[r] = totals.row_max;
    rows.out_row_sum[r] = totals.row_sum;
    if (rows.out_lse) rows.out_lse[r] = totals.row_sum == 0 ? -kInfinity<T> : totals.row_max + log(totals.row_sum);
    rows.out_sink_weight[r] = totals.sink_weight;
  }
  return any<T>(overflowed != overflowed);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, FinishKernels);

}  // namespace regard::kernels::REGARD_ISA
