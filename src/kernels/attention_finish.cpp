// SPDX-License-Identifier: Apache-2.0
//
// The end of a row: lanes to a sum, chunks to one result, the sink, the division.
//
//   finish_chunk  row_sum = fixed tree over sixteen lanes
//   finish_rows   M = max over chunks m;  w = exp(m − M);  l = Σ w·l_chunk,  O = Σ w·O_chunk  (compensated);
//                 the sink joins M and l;  context = O / l;  lse = M + ln l
//
// Every chunk is rescaled once, straight to the final maximum, and the sum carries its rounding errors along (Neumaier,
// ZAMM 54, 1974), so that the error does not grow with the number of chunks. One chunk passes through unchanged.
#include "kernels.h"
#include "simd_math.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// high + low = high + x exactly, as long as nothing overflows (Knuth's two-sum).
template <class V>
REGARD_INLINE void add_compensated(V x, V& high, V& low) {
  const V sum = high + x;
  const V part = sum - high;
  low += (high - (sum - part)) + (x - part);
  high = sum;
}

// The compensation of an infinite sum is NaN and says nothing.
template <class T>
Vec<T> total(Vec<T> high, Vec<T> low) {
  const Vec<T> sum = high + low;
  return select<T>(low == low, sum, high);
}

// exp(x − m), where equal infinities are at distance 0 and nothing is as far as −∞.
template <class T>
T rescale(T x, T m) {
  return x == -kInfinity<T> ? static_cast<T>(x == m) : exp_one<T>(x == m ? static_cast<T>(0) : x - m);
}

template <class T>
struct RowTotals {
  T chunk_max;  // over the chunks, without the sink
  T row_max;
  T row_sum;
  T context_factor;  // what the accumulators are multiplied by after the sink joined
  T sink_weight;
  bool empty;
};

template <class T>
RowTotals<T> row_totals(const FinishRows<T>& rows, Index r) {
  T high_max = -kInfinity<T>;
  for (Index c = 0; c < rows.num_chunks; ++c) {
    const T m = rows.row_max[c * rows.max_chunk_stride + r * rows.max_row_stride];
    high_max = m > high_max ? m : high_max;
  }
  T high = 0;
  T low = 0;
  for (Index c = 0; c < rows.num_chunks; ++c) {
    const T m = rows.row_max[c * rows.max_chunk_stride + r * rows.max_row_stride];
    const T l = rows.row_sum[c * rows.sum_chunk_stride + r * rows.sum_row_stride];
    add_compensated(rescale(m, high_max) * l, high, low);
  }
  RowTotals<T> totals{high_max, high_max, low == low ? high + low : high, 1, 0, false};
  // Several scores of +∞ have no ratio.
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

// One strip of columns, kStrip vectors at most: the chunks' weights are computed once for all of them.
template <class T>
void context_strip(const FinishRows<T>& rows, Index r, const RowTotals<T>& totals, Index first, Index width) {
  constexpr int kStrip = 8;
  Vec<T> high[kStrip]{};
  Vec<T> low[kStrip]{};
  for (Index c = 0; c < rows.num_chunks; ++c) {
    const T m = rows.row_max[c * rows.max_chunk_stride + r * rows.max_row_stride];
    const Vec<T> weight = broadcast(rescale(m, totals.chunk_max));
    const T* from = rows.accumulator + c * rows.accumulator_chunk_stride + r * rows.accumulator_row_stride + first;
    for (Index i = 0; i * kWidth<T> < width; ++i) {
      const Index left = width - i * kWidth<T>;
      add_compensated(load_some(from + i * kWidth<T>, left) * weight, high[i], low[i]);
    }
  }
  T* context = rows.context + r * rows.columns + first;
  for (Index i = 0; i * kWidth<T> < width; ++i) {
    Vec<T> result = total<T>(high[i], low[i]) * totals.context_factor / broadcast(totals.row_sum);
    if (rows.value_scale != 1) result = result / rows.value_scale;
    store_some(context + i * kWidth<T>, result, width - i * kWidth<T>);
  }
}

template <class T>
void context_row(const FinishRows<T>& rows, Index r, const RowTotals<T>& totals) {
  constexpr Index kStripColumns = 8 * kWidth<T>;
  for (Index first = 0; first < rows.columns; first += kStripColumns) {
    const Index left = rows.columns - first;
    context_strip(rows, r, totals, first, left < kStripColumns ? left : kStripColumns);
  }
}

}  // namespace

template <class T>
void finish_chunk(Index num_rows, const ChunkState<T>& state) {
  for (Index r = 0; r < num_rows; ++r) {
    T lanes[kLanes];
    std::memcpy(lanes, state.row_lanes + r * kLanes, sizeof lanes);
    for (Index half = kLanes / 2; half > 0; half /= 2) {
      for (Index i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    state.row_sum[r] = lanes[0];
  }
}

template <class T>
void finish_rows(const FinishRows<T>& rows) {
  for (Index r = 0; r < rows.num_rows; ++r) {
    const RowTotals<T> totals = row_totals(rows, r);
    if (totals.empty) {
      std::memset(rows.context + r * rows.columns, 0, static_cast<std::size_t>(rows.columns) * sizeof(T));
    } else {
      context_row(rows, r, totals);
    }
    rows.out_row_max[r] = totals.row_max;
    rows.out_row_sum[r] = totals.row_sum;
    rows.out_lse[r] = totals.row_sum == 0 ? -kInfinity<T> : totals.row_max + log(totals.row_sum);
    rows.out_sink_weight[r] = totals.sink_weight;
  }
}

template void finish_chunk(Index, const ChunkState<float>&);
template void finish_chunk(Index, const ChunkState<double>&);
template void finish_rows(const FinishRows<float>&);
template void finish_rows(const FinishRows<double>&);

}  // namespace regard::kernels::REGARD_ISA
