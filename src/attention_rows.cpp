// SPDX-License-Identifier: Apache-2.0
//
// The walk of a task over its chunks and blocks, and the end of its rows.
#include "attention_rows.h"

#include <algorithm>
#include <limits>

namespace regard {
inline namespace v0 {
namespace internal {

using kernels::kBlockKeys;
using kernels::kChunkKeys;
using kernels::kLanes;
using kernels::kPanel;
using kernels::kRows;

namespace {

// Arrays of one number per row are read in whole vectors: 16 floats at most.
constexpr Index kPaddedRows = 64;

Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

template <class T>
kernels::ChunkState<T> RowScratch<T>::chunk(Index slot) const {
  T* at = chunks + slot * chunk_elements;
  T* lanes = at + kRows * padded_columns;
  T* row_max_at = lanes + kRows * kLanes;
  return {.row_max = row_max_at, .row_lanes = lanes, .row_sum = row_max_at + kPaddedRows, .accumulator = at};
}

template <class T>
RowScratchLayout<T>::RowScratchLayout(const ResolvedAttention<T>& r, Index padded_columns)
    : r_(r), padded_columns_(padded_columns), max_chunks_(0) {
  for (const Sequence& sequence : r.sequences) {
    Index reach = sequence.key_limit;
    if (r.window_left && (r.window_right || (r.causal && sequence.prefix == 0))) {
      // Rows of a task see at most a window each, one further than the last; two chunks may be cut.
      const Index right = r.window_right ? *r.window_right : 0;
      reach = std::min(reach, *r.window_left + right + kRows + 2 * kChunkKeys);
    }
    max_chunks_ = std::max(max_chunks_, (reach + kChunkKeys - 1) / kChunkKeys);
  }
  max_chunks_ = std::max<Index>(max_chunks_, 1);
  bytes_ = 0;
  place(nullptr, &bytes_);
}

template <class T>
RowScratch<T> RowScratchLayout<T>::place(std::byte* memory, Index* end) const {
  Index used = 0;
  const auto take = [&](auto* type, Index count) {
    using E = std::remove_pointer_t<decltype(type)>;
    E* at = memory ? reinterpret_cast<E*>(memory + used) : nullptr;
    used += round_up(count * static_cast<Index>(sizeof(E)), 64);
    return at;
  };
  T* const number = nullptr;
  RowScratch<T> s{};
  s.padded_columns = padded_columns_;
  s.chunk_elements = kRows * padded_columns_ + kRows * kLanes + 2 * kPaddedRows;
  s.visible_rows = take(static_cast<VisibleRows*>(nullptr), 1);
  s.query = take(number, kRows * r_.depth);
  s.scores = take(number, kRows * kBlockKeys);
  s.bias = take(number, has_bias(r_) ? kRows * kBlockKeys : 0);
  s.visible = take(static_cast<std::int32_t*>(nullptr), has_dense_visibility(r_) ? kRows * kBlockKeys : 0);
  s.slopes = take(number, kRows);
  s.sinks = take(number, kRows);
  s.context = take(number, kRows * r_.columns);
  s.repeated_context = take(number, kRows * r_.columns);
  s.row_max = take(number, kRows);
  s.row_sum = take(number, kRows);
  s.lse = take(number, kRows);
  s.sink_weight = take(number, kRows);
  s.chunks = take(number, max_chunks_ * s.chunk_elements);
  *end = used;
  return s;
}

template <class T>
RowScratch<T> RowScratchLayout<T>::at(std::byte* memory) const {
  Index end = 0;
  return place(memory, &end);
}

template <class T>
ChunkRange attend(RowTask<T>& task, T value_scale) {
  const ResolvedAttention<T>& r = task.r;
  const auto& kernel = kernels::active().template of<T>();
  const RowScratch<T>& s = task.scratch;
  VisibleRows& rows = *s.visible_rows;
  fill_rows(r, task.sequence, task.first_row, task.num_rows, rows);
  if (rows.all.begin >= rows.all.end) return {0, 0};

  const Index row = task.sequence.first_query + task.first_row;
  kernel.pack_query({r.query.pointer(task.sequence.batch, task.head, row, 0), r.query.strides[2], r.query.strides[3]},
                    task.num_rows, r.depth, s.query);
  const bool alibi = !r.alibi_slopes.empty();
  if (alibi) std::fill_n(s.slopes, task.num_rows, r.alibi_slopes[static_cast<std::size_t>(task.head)]);

  kernels::AttentionBlock<T> block{};
  block.score.num_rows = task.num_rows;
  block.score.depth = r.depth;
  block.score.query = s.query;
  block.score.scores = s.scores;
  block.score.rules = {.scale = r.scale,
                       .soft_cap = r.soft_cap,
                       .alibi_slopes = alibi ? s.slopes : nullptr,
                       .positions = rows.positions,
                       .bias = has_bias(r) ? s.bias : nullptr,
                       .visible_begin = rows.begin,
                       .visible_end = rows.end,
                       .visible = has_dense_visibility(r) ? s.visible : nullptr};
  block.padded_columns = s.padded_columns;
  block.value_scale = value_scale;

  const ChunkRange chunks{rows.all.begin / kChunkKeys, (rows.all.end + kChunkKeys - 1) / kChunkKeys};
  for (Index c = chunks.begin; c < chunks.end; ++c) {
    block.state = s.chunk(c - chunks.begin);
    std::fill_n(block.state.row_max, kPaddedRows, -std::numeric_limits<T>::infinity());
    std::fill_n(block.state.row_lanes, kRows * kLanes, static_cast<T>(0));
    std::fill_n(block.state.accumulator, kRows * s.padded_columns, static_cast<T>(0));
    const Index end = std::min((c + 1) * kChunkKeys, rows.all.end);
    const Index begin = std::max(c * kChunkKeys, rows.all.begin / kBlockKeys * kBlockKeys);
    for (Index key = begin; key < end; key += kBlockKeys) {
      poll(task.runtime);
      block.score.first_key = key;
      block.score.num_keys = std::min(kBlockKeys, task.sequence.key_limit - key);
      if (block.score.rules.visible && !fill_visible_tile(r, task.sequence, task.head, task.first_row, task.num_rows,
                                                          key, block.score.num_keys, rows, s.visible)) {
        continue;
      }
      if (block.score.rules.bias) {
        fill_bias_tile(r, task.sequence, task.head, task.first_row, task.num_rows, key, block.score.num_keys, s.bias);
      }
      block.values_finite = true;
      for (Index i = 0; i < kernels::kBlockPanels; ++i) {
        const Index panel = key / kPanel + i;
        const bool there = panel < task.unit.num_panels;
        block.score.key_panels[i] = there ? task.packed.key_panel(task.unit, panel) : nullptr;
        block.value_panels[i] = there ? task.packed.value_panel(task.unit, panel) : nullptr;
        block.values_finite = block.values_finite && (!there || task.packed.finite(task.unit, panel));
      }
      kernel.attention_block(block);
    }
    kernel.finish_chunk(task.num_rows, block.state);
  }
  return chunks;
}

namespace {

template <class T>
bool is_finite(T x) {
  return x - x == 0;
}

template <class T>
void finish(const RowTask<T>& task, const ChunkRange& chunks, T value_scale, T* context) {
  const RowScratch<T>& s = task.scratch;
  const kernels::ChunkState<T> first = s.chunk(0);
  const bool sinks = !task.r.sinks.empty();
  if (sinks) std::fill_n(s.sinks, task.num_rows, task.r.sinks[static_cast<std::size_t>(task.head)]);
  kernels::active().template of<T>().finish_rows({.num_chunks = chunks.end - chunks.begin,
                                                  .num_rows = task.num_rows,
                                                  .columns = task.r.columns,
                                                  .accumulator = first.accumulator,
                                                  .accumulator_chunk_stride = s.chunk_elements,
                                                  .accumulator_row_stride = s.padded_columns,
                                                  .row_max = first.row_max,
                                                  .max_chunk_stride = s.chunk_elements,
                                                  .max_row_stride = 1,
                                                  .row_sum = first.row_sum,
                                                  .sum_chunk_stride = s.chunk_elements,
                                                  .sum_row_stride = 1,
                                                  .sinks = sinks ? s.sinks : nullptr,
                                                  .value_scale = value_scale,
                                                  .context = context,
                                                  .out_row_max = s.row_max,
                                                  .out_row_sum = s.row_sum,
                                                  .out_lse = s.lse,
                                                  .out_sink_weight = s.sink_weight});
}

// A mean of values near the largest number is finite although their sum is not.
template <class T>
bool sums_overflowed(const RowTask<T>& task, const ChunkRange& chunks) {
  const Index columns = task.r.columns;
  bool overflowed = false;
  for (Index i = 0; i < task.num_rows && !overflowed; ++i) {
    if (!is_finite(task.scratch.row_sum[i])) continue;
    const T* context = task.scratch.context + i * columns;
    overflowed = !std::all_of(context, context + columns, is_finite<T>);
  }
  const Index end = std::min(chunks.end * (kChunkKeys / kPanel), task.unit.num_panels);
  for (Index panel = chunks.begin * (kChunkKeys / kPanel); panel < end && overflowed; ++panel) {
    overflowed = task.packed.finite(task.unit, panel);
  }
  return overflowed;
}

}  // namespace

template <class T>
FinishedRows<T> attend_and_finish(RowTask<T>& task) {
  const RowScratch<T>& s = task.scratch;
  const ChunkRange chunks = attend<T>(task, 1);
  finish<T>(task, chunks, 1, s.context);
  if (sums_overflowed(task, chunks)) {
    // Exact but for results that vanish beside the overflow.
    const T value_scale = static_cast<T>(0x1p-40);
    attend(task, value_scale);
    finish(task, chunks, value_scale, s.repeated_context);
    for (Index i = 0; i < task.num_rows * task.r.columns; ++i) {
      if (!is_finite(s.context[i])) s.context[i] = s.repeated_context[i];
    }
  }
  return {s.context, s.row_max, s.row_sum, s.lse, s.sink_weight};
}

template class RowScratchLayout<float>;
template class RowScratchLayout<double>;
template ChunkRange attend(RowTask<float>&, float);
template ChunkRange attend(RowTask<double>&, double);
template FinishedRows<float> attend_and_finish(RowTask<float>&);
template FinishedRows<double> attend_and_finish(RowTask<double>&);
template struct RowScratch<float>;
template struct RowScratch<double>;

}  // namespace internal
}  // namespace v0
}  // namespace regard
