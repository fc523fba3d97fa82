// SPDX-License-Identifier: Apache-2.0
//
// The loop of a task over its chunks and blocks of keys:
//
//   for each chunk of 1024 keys that some row attends to
//     1. start_chunk      row_max = −∞, row_lanes = 0, accumulator = 0
//     2. attend           for each block of 64 keys: its mask, bias, dropout and panels, then the kernel
//     3. finish_chunk     row_sum; the result is then kept, or finished in the scratch
//
// Read next: finish_rows.cpp.
#include "row_task.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "bias_tile.h"
#include "dropout.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

using kernels::kBlockKeys;
using kernels::kChunkKeys;
using kernels::kLanes;
using kernels::kPaddedRows;
using kernels::kPanel;
using kernels::kRows;

namespace {

Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Index max_chunks(const UntypedAttention& r) {
  Index largest = 1;
  for (const Sequence& sequence : r.sequences) {
    Index reach = sequence.key_limit;
    if (r.window_left && (r.window_right || (r.causal && sequence.prefix == 0))) {
      // Each row of a task attends to at most a window of keys, which shifts by one from row to row; two chunks may be
      // partial.
      const Index right = r.window_right ? *r.window_right : 0;
      reach = std::min(reach, *r.window_left + right + kRows + 2 * kChunkKeys);
    }
    largest = std::max(largest, (reach + kChunkKeys - 1) / kChunkKeys);
  }
  return largest;
}

ChunkRange visible_chunks(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows) {
  fill_rows(r, sequence, of, rows);
  if (rows.all.begin >= rows.all.end) return {0, 0};
  return {rows.all.begin / kChunkKeys, (rows.all.end + kChunkKeys - 1) / kChunkKeys};
}

template <class T>
RowScratchLayout<T>::RowScratchLayout(const ResolvedAttention<T>& r, Index padded_value_head_size, bool converted,
                                      Index observer_bytes, Index rows)
    : r_(r),
      padded_columns_(padded_value_head_size),
      converted_(converted),
      observer_bytes_(observer_bytes),
      rows_(rows) {
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
  s.padded_value_head_size = padded_columns_;
  s.visible_rows = take(static_cast<VisibleRows*>(nullptr), 1);
  s.query = take(number, rows_ * r_.head_size);
  s.gathered = take(number, rows_ * r_.head_size);
  s.scores = take(number, kRows * kBlockKeys);
  s.bias = take(number, has_bias(r_) ? kRows * kBlockKeys : 0);
  s.dropout = take(number, has_dropout(r_) ? kRows * kBlockKeys : 0);
  s.visible = take(static_cast<std::int32_t*>(nullptr), has_dense_visibility(r_) ? kRows * kBlockKeys : 0);
  s.key_panels = take(number, converted_ ? kBlockKeys * r_.head_size : 0);
  s.value_panels = take(number, converted_ ? kBlockKeys * padded_columns_ : 0);
  s.slopes = take(number, kRows);
  s.sinks = take(number, kRows);
  s.context = take(number, rows_ * r_.value_head_size);
  s.scaled_context = take(number, rows_ * r_.value_head_size);
  s.row_max = take(number, kRows);
  s.row_sum = take(number, kRows);
  s.lse = take(number, kRows);
  s.sink_weight = take(number, kRows);
  s.chunk.accumulator = take(number, rows_ * padded_columns_);
  s.chunk.row_lanes = take(number, kRows * kLanes);
  s.chunk.row_max = take(number, kPaddedRows);
  s.chunk.row_sum = take(number, kPaddedRows);
  s.observed = take(static_cast<std::byte*>(nullptr), observer_bytes_);
  *end = used;
  return s;
}

template <class T>
RowScratch<T> RowScratchLayout<T>::at(std::byte* memory) const {
  Index end = 0;
  return place(memory, &end);
}

namespace {

// Rows of one head have a common stride; rows of several heads are first copied to one array.
template <class T>
void pack_queries(const RowTask<T>& task) {
  const ResolvedAttention<T>& r = task.r;
  const TaskRows& rows = task.rows;
  const Index b = task.sequence.batch;
  const auto stored = [&](Index i) { return task.sequence.first_query + rows.row_of(i); };
  if (rows.head_of(0) == rows.head_of(rows.num_rows - 1)) {
    with_rows<T>(r.query, r.key_pairs, b, rows.head_of(0), stored(0), [&](const auto& kernel, const auto& from) {
      kernel.pack_query(from, rows.num_rows, r.head_size, task.scratch.query);
    });
    return;
  }
  T* const gathered = task.scratch.gathered;
  if constexpr (std::same_as<T, float>) {
    if (r.key_pairs) {
      auto* const numbers = reinterpret_cast<bfloat16*>(gathered);
      for (Index i = 0; i < rows.num_rows; ++i) {
        const void* from = r.query.pointer(b, rows.head_of(i), stored(i), 0);
        copy_elements(r.head_size, static_cast<const bfloat16*>(from), r.query.strides[3], numbers + i * r.head_size,
                      1);
      }
      kernels::active().pairs.pack_query({reinterpret_cast<const kernels::Bfloat16*>(numbers), r.head_size, 1},
                                         rows.num_rows, r.head_size, task.scratch.query);
      return;
    }
  }
  for (Index i = 0; i < rows.num_rows; ++i)
    read_numbers(r.query.type, r.head_size, r.query.pointer(b, rows.head_of(i), stored(i), 0), r.query.strides[3],
                 gathered + i * r.head_size);
  kernels::active().template of<T>().pack_query({gathered, r.head_size, 1}, rows.num_rows, r.head_size,
                                                task.scratch.query);
}

}  // namespace

template <class T>
kernels::ScoreBlock<T> RowTask<T>::start_rows() const {
  const RowScratch<T>& s = scratch;
  VisibleRows& seen = *s.visible_rows;
  fill_rows(r, sequence, rows, seen);
  pack_queries(*this);
  const bool alibi = !r.alibi_slopes.empty();
  for (Index i = 0; alibi && i < rows.num_rows; ++i) {
    s.slopes[i] = r.alibi_slopes[static_cast<std::size_t>(rows.head_of(i))];
  }

  kernels::ScoreBlock<T> block{};
  block.num_rows = rows.num_rows;
  block.head_size = r.head_size;
  block.query = s.query;
  block.scores = s.scores;
  block.rules = {.scale = r.scale,
                 .soft_cap = r.soft_cap,
                 .alibi_slopes = alibi ? s.slopes : nullptr,
                 .positions = seen.positions,
                 .bias = has_bias(r) ? s.bias : nullptr,
                 .visible_begin = seen.begin,
                 .visible_end = seen.end,
                 .visible = has_dense_visibility(r) ? s.visible : nullptr};
  return block;
}

template <class T>
bool RowTask<T>::start_block(Index key, kernels::ScoreBlock<T>& block, kernels::StoredPanels* stored) const {
  const RowScratch<T>& s = scratch;
  block.first_key = key;
  block.num_keys = std::min(kBlockKeys, sequence.key_limit - key);
  if (block.rules.visible && !fill_visible_tile(r, sequence, rows, key, block.num_keys, *s.visible_rows, s.visible)) {
    return false;
  }
  if (block.rules.bias) {
    fill_bias_tile(r, sequence, rows, key, block.num_keys, s.bias);
  }
  block.stored_keys = stored;
  if (stored) {
    if (!block.multiplied) packed.find_stored_keys(kv_head, key / kPanel, false, *stored);
    return true;
  }
  packed.prepare(kv_head, key / kPanel);
  block.prefetch_plan = prefetch_plan;
  if (prefetch_plan) packed.prefetch_next(kv_head, key / kPanel, *prefetch_plan);
  for (Index i = 0; i < kernels::kBlockPanels; ++i) {
    const Index panel = key / kPanel + i;
    T* const buffer = s.key_panels + (packed.converted() ? i * kPanel * r.head_size : 0);
    block.key_panels[i] = panel < kv_head.num_panels ? packed.key_panel(kv_head, panel, buffer) : nullptr;
  }
  return true;
}

namespace {

enum class Sums { plain, scaled };

template <class T>
void attend_block(const ResolvedAttention<T>& r, const kernels::AttentionBlock<T>& block) {
  const kernels::KernelTable& table = kernels::active();
  if constexpr (std::same_as<T, float>) {
    if (r.key_pairs)
      return r.value_pairs ? table.pairs.attention_block(block) : table.pairs.attention_block_wide(block);
  }
  table.template of<T>().attention_block(block);
}

// A task iterating over its chunks, block by block. The current chunk is in the task's scratch.
template <class T>
class ChunkLoop {
 public:
  // end: end of the keys that the loop visits.
  ChunkLoop(const RowTask<T>& task, Sums sums, Index end)
      : task_(task),
        end_(std::min(end, task.sequence.key_limit)),
        kernel_(kernels::active().template of<T>()),
        observer_(sums == Sums::plain ? task.observer : nullptr),
        few_(task.rows.num_rows <= kernels::kFewRows && task.packed.stored()) {
    block_.score = task.start_rows();
    block_.stored_values = nullptr;
    block_.padded_columns = task.scratch.padded_value_head_size;
    block_.value_scale = sums == Sums::plain ? static_cast<T>(1) : static_cast<T>(kAttentionSumScale);
    block_.dropout = has_dropout(task.r) ? task.scratch.dropout : nullptr;
    block_.state = task.scratch.chunk;
    block_.statistics = nullptr;
    block_.next_score = nullptr;
    if (observer_) observer_->start(task);
  }
  ChunkLoop(const ChunkLoop&) = delete;
  ChunkLoop& operator=(const ChunkLoop&) = delete;

  void start_chunk() {
    // Rows past the last one are computed along with its register tile, and their maxima along with its vector.
    const bool few = task_.rows.num_rows <= kernels::kFewRows;
    const Index rows = few ? static_cast<Index>(std::bit_ceil(static_cast<std::size_t>(task_.rows.num_rows)))
                           : round_up(task_.rows.num_rows, kernel_.row_group);
    std::fill_n(block_.state.row_max, few ? kLanes : kPaddedRows, -std::numeric_limits<T>::infinity());
    std::fill_n(block_.state.row_lanes, rows * kLanes, static_cast<T>(0));
    std::fill_n(block_.state.accumulator, rows * task_.scratch.padded_value_head_size, static_cast<T>(0));
    if (observer_) {
      observed_ = observer_->start_chunk(task_);
      block_.statistics = &observed_;
    }
  }

  // Processes the block of keys that starts at `key`.
  void process_block(Index key) {
    const Interval& all = task_.scratch.visible_rows->all;
    if (key >= all.end || key + kBlockKeys <= all.begin) return;
    throw_if_stopped(task_.runtime.stop);
    if (few_) take_scores_ahead(key);
    if (!task_.start_block(key, block_.score, few_ ? &stored_keys_ : nullptr)) return;
    block_.values_finite = are_values_finite(key);
    if (few_) find_stored_values(key);
    if (!block_.stored_values) find_value_panels(key);
    if (block_.dropout) fill_dropout_tile(task_.r, task_.sequence, task_.rows, key, task_.scratch.dropout);
    if (few_) look_ahead(key + kBlockKeys);
    attend_block(task_.r, block_);
  }

  void finish_chunk() {
    kernel_.finish_chunk(task_.rows.num_rows, block_.state);
    if (observer_) observer_->finish_chunk(task_, block_.state);
  }

 private:
  bool are_values_finite(Index key) const {
    bool finite = true;
    for_each_panel(key, [&](Index, Index panel) { finite = finite && task_.packed.finite(task_.kv_head, panel); });
    return finite;
  }
  // Converted to the compute type.
  void find_value_panels(Index key) {
    const RowScratch<T>& s = task_.scratch;
    std::ranges::fill(block_.value_panels, nullptr);
    for_each_panel(key, [&](Index i, Index panel) {
      T* const buffer = s.value_panels + (task_.packed.converted() ? i * kPanel * s.padded_value_head_size : 0);
      block_.value_panels[i] = task_.packed.value_panel(task_.kv_head, panel, buffer);
    });
  }
  // Calls use(i, panel) for each panel that exists in the block; i counts within the block.
  template <class F>
  void for_each_panel(Index key, const F& use) const {
    const Index first = key / kPanel;
    for (Index i = 0; i < kernels::kBlockPanels && first + i < task_.kv_head.num_panels; ++i) use(i, first + i);
  }

  // ---- few rows, which read keys and values as they are stored: while the values of a block are multiplied, so are
  // the keys of the next block, into the half of the scores that this block does not use

  void take_scores_ahead(Index key) {
    block_.score.multiplied = key == multiplied_;
    block_.score.scores = block_.score.multiplied ? ahead_.scores : task_.scratch.scores;
  }
  void find_stored_values(Index key) {
    task_.packed.find_stored_values(task_.kv_head, key / kPanel, key == values_end_, stored_values_);
    values_end_ = key + kBlockKeys;
    // Non-finite values are skipped key by key, which requires values stored in rows.
    block_.stored_values = block_.values_finite || stored_values_.row_stride != 0 ? &stored_values_ : nullptr;
  }
  // Lets the kernel also multiply the keys of the block that starts at `key`, if the loop visits it.
  void look_ahead(Index key) {
    const Interval& all = task_.scratch.visible_rows->all;
    const bool overlaps = block_.stored_values && key < std::min(end_, all.end) && !block_.score.rules.visible;
    block_.next_score = overlaps ? &ahead_ : nullptr;
    if (!overlaps) return;
    T* const first = task_.scratch.scores;
    ahead_ = block_.score;
    ahead_.multiplied = false;
    ahead_.first_key = key;
    ahead_.num_keys = std::min(kBlockKeys, task_.sequence.key_limit - key);
    ahead_.scores = block_.score.scores == first ? first + kRows / 2 * kBlockKeys : first;
    if (!block_.score.multiplied) ahead_keys_ = stored_keys_;
    task_.packed.find_stored_keys(task_.kv_head, key / kPanel, true, ahead_keys_);
    ahead_.stored_keys = &ahead_keys_;
    multiplied_ = key;
  }

  const RowTask<T>& task_;
  const Index end_;
  const kernels::Kernels<T>& kernel_;
  const RowObserver<T>* const observer_;
  const bool few_;
  // Every field is written before it is read. Clearing them would take a noticeable share of a tiny call.
  kernels::AttentionBlock<T> block_;
  kernels::RowStatistics<T> observed_;
  // For few rows:
  kernels::StoredPanels stored_keys_, stored_values_, ahead_keys_;
  kernels::ScoreBlock<T> ahead_;
  Index multiplied_ = -1;  // first key of the block ahead
  Index values_end_ = -1;  // first key after those of stored_values_
};

// Computes the chunks of several tasks of one KV head; each block is processed by all tasks that attend to it. Calls
// done(task, index of the chunk within the task) while the chunk is in the task's scratch.
template <class T, class F>
void for_each_chunk(std::span<const RowTask<T>> tasks, std::span<const ChunkRange> chunks, Sums sums, const F& done) {
  std::array<std::optional<ChunkLoop<T>>, kMaxTasksPerGroup> loops;
  ChunkRange all{std::numeric_limits<Index>::max(), 0};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    loops[i].emplace(tasks[i], sums, chunks[i].end * kChunkKeys);
    if (chunks[i].size() > 0) all = {std::min(all.begin, chunks[i].begin), std::max(all.end, chunks[i].end)};
  }
  for (Index c = all.begin; c < all.end; ++c) {
    const auto each = [&](const auto& f) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (c >= chunks[i].begin && c < chunks[i].end) f(i);
      }
    };
    each([&](std::size_t i) { loops[i]->start_chunk(); });
    for (Index key = c * kChunkKeys; key < (c + 1) * kChunkKeys; key += kBlockKeys)
      each([&](std::size_t i) { loops[i]->process_block(key); });
    each([&](std::size_t i) {
      loops[i]->finish_chunk();
      done(i, c - chunks[i].begin);
    });
  }
}

// The same for one task.
template <class T, class F>
void for_each_chunk(const RowTask<T>& task, const ChunkRange& chunks, Sums sums, const F& done) {
  ChunkLoop<T> loop(task, sums, chunks.end * kChunkKeys);
  for (Index c = chunks.begin; c < chunks.end; ++c) {
    loop.start_chunk();
    const Index end = std::min((c + 1) * kChunkKeys, task.scratch.visible_rows->all.end);
    for (Index key = c * kChunkKeys; key < end; key += kBlockKeys) loop.process_block(key);
    loop.finish_chunk();
    done(c - chunks.begin);
  }
}

}  // namespace

template <class T>
void RowTask<T>::score_block(const kernels::ScoreBlock<T>& block) const {
  const kernels::KernelTable& table = kernels::active();
  if constexpr (std::same_as<T, float>) {
    if (r.key_pairs) return table.pairs.score_block(block);
  }
  table.template of<T>().score_block(block);
}

template <class T>
void RowTask<T>::load_softmax_state(const TensorView<const T, 3>& row_max,
                                    const TensorView<const T, 3>& row_sum) const {
  const Index row = sequence.first_query + rows.first_row;
  const auto load = [&](const TensorView<const T, 3>& from, T* to) {
    copy_elements(rows.num_rows, from.pointer(sequence.batch, rows.head, row), from.strides[2], to, 1);
  };
  load(row_max, scratch.row_max);
  load(row_sum, scratch.row_sum);
}

template <class T>
void RowTask<T>::store_chunk(Index number, const ChunkResults<T>& results) const {
  const RowScratch<T>& s = scratch;
  const Index columns = r.value_head_size, num_rows = rows.num_rows;
  for (Index i = 0; i < num_rows; ++i) {
    std::copy_n(s.chunk.accumulator + i * s.padded_value_head_size, columns,
                results.accumulator + (number * num_rows + i) * columns);
  }
  std::copy_n(s.chunk.row_max, num_rows, results.row_max + number * num_rows);
  std::copy_n(s.chunk.row_sum, num_rows, results.row_sum + number * num_rows);
}

template <class T>
void RowTask<T>::compute_chunks(const ChunkRange& chunks, const ChunkResults<T>& results) const {
  for_each_chunk(*this, chunks, Sums::plain, [&](Index number) { store_chunk(number, results); });
}

template <class T>
void RowTask<T>::compute_chunks(std::span<const RowTask> tasks, std::span<const ChunkRange> chunks,
                                std::span<const ChunkResults<T>> results) {
  for_each_chunk<T>(tasks, chunks, Sums::plain,
                    [&](std::size_t i, Index number) { tasks[i].store_chunk(number, results[i]); });
}

template <class T>
std::array<ChunkRange, kMaxTasksPerGroup> RowTask<T>::compute_chunks(std::span<const RowTask> tasks,
                                                                     std::span<const ChunkResults<T>> results) {
  std::array<ChunkRange, kMaxTasksPerGroup> chunks{};
  for (std::size_t i = 0; i < tasks.size(); ++i) chunks[i] = tasks[i].visible_chunks();
  compute_chunks(tasks, chunks, results);
  return chunks;
}

template <class T>
ChunkResults<T> RowTask<T>::compute_one_chunk(const ChunkRange& chunks) const {
  for_each_chunk(*this, chunks, Sums::plain, [](Index) {});
  return {scratch.chunk.accumulator, scratch.chunk.row_max, scratch.chunk.row_sum};
}

template <class T>
void RowTask<T>::compute_scaled_chunks(const ChunkRange& chunks, const ChunkResults<T>& results) const {
  const RowScratch<T>& s = scratch;
  const Index columns = r.value_head_size;
  const Index elements = rows.num_rows * columns;
  const bool overflowed =
      !std::all_of(results.accumulator, results.accumulator + chunks.size() * elements, is_finite<T>);
  const auto scale = [&](Index number, bool anew) {
    T* const sums = results.accumulator + number * elements;
    for (Index i = 0; i < elements; ++i) {
      const bool other = anew && !is_finite(sums[i]);
      sums[i] = other ? s.chunk.accumulator[i / columns * s.padded_value_head_size + i % columns]
                      : sums[i] * static_cast<T>(kAttentionSumScale);
    }
  };
  if (overflowed) {
    for_each_chunk(*this, chunks, Sums::scaled, [&](Index number) { scale(number, true); });
  } else {
    for (Index number = 0; number < chunks.size(); ++number) scale(number, false);
  }
}

template <class T>
T* RowTask<T>::context_buffer(const TypedOutputs<T>& outputs) const {
  const auto& context = outputs.context;
  void* const first = context.pointer(sequence.batch, rows.head_of(0), sequence.first_query + rows.row_of(0), 0);
  const bool same = context.type == kElementType<T> && rows.head_of(0) == rows.head_of(rows.num_rows - 1) &&
                    context.strides[2] == r.value_head_size && context.strides[3] == 1 &&
                    reinterpret_cast<std::uintptr_t>(first) % alignof(T) == 0;
  return same ? static_cast<T*>(first) : scratch.context;
}

REGARD_INSTANTIATE_COMPUTE_CLASS(class, RowScratchLayout);
REGARD_INSTANTIATE_COMPUTE_CLASS(struct, RowTask);

}  // namespace regard::inline v0::internal
