// SPDX-License-Identifier: Apache-2.0
//
// One task: up to 60 query rows of one head walk the chunks and blocks of keys that they see.
// Read next: row_task.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "arguments.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "runtime/workspace.h"
#include "task_rows.h"
#include "tensor/strided_copy.h"
#include "visibility.h"

namespace regard::inline v0::internal {

template <class T>
struct RowTask;

// Observes the rows of tasks in the forward pass: what the kernels add up besides the context.
template <class T>
class RowObserver {
 public:
  virtual Index scratch_bytes() const = 0;  // of a task, aligned to 64
  virtual void start(const RowTask<T>& task) const = 0;
  virtual kernels::RowStatistics<T> start_chunk(const RowTask<T>& task) const = 0;  // where the kernels add to
  virtual void finish_chunk(const RowTask<T>& task, const kernels::ChunkState<T>& chunk) const = 0;

 protected:
  ~RowObserver() = default;
};

// The scratch of one worker, for tasks of up to kRows rows or so many as its layout says (n); every array is written
// before it is read.
template <class T>
struct RowScratch {
  VisibleRows* visible_rows;
  T* query;               // packed
  T* gathered;            // [n][D], when rows of several heads make a task
  T* scores;              // [kRows][kBlockKeys]
  T* bias;                // [kRows][kBlockKeys], when there is a bias
  T* dropout;             // [kRows][kBlockKeys], with dropout
  std::int32_t* visible;  // [kRows][kBlockKeys], when there is a mask
  T* key_panels;          // [kBlockPanels][D][kPanel], when a cache's panels are widened
  T* value_panels;        // [kBlockPanels][padded columns][kPanel], likewise
  T* slopes;              // [kRows]
  T* sinks;               // [kRows]
  T* context;             // [n][Dv]
  T* scaled_context;      // [n][Dv], for rows whose sums overflow
  T* row_max;             // [kRows] and so on: the finished rows
  T* row_sum;
  T* lse;
  T* sink_weight;
  kernels::ChunkState<T> chunk;  // the one that the task is in
  std::byte* observed;           // RowObserver::scratch_bytes()
  Index padded_value_head_size;
};

// Where each array of a RowScratch lies, for this call's shapes.
template <class T>
class RowScratchLayout {
 public:
  // widened: KvPanels::widened(). rows: the most of a task, in whole register tiles.
  RowScratchLayout(const ResolvedAttention<T>& r, Index padded_value_head_size, bool widened = false,
                   Index observer_bytes = 0, Index rows = kernels::kRows);
  Index bytes() const { return bytes_; }
  RowScratch<T> at(std::byte* memory) const;

 private:
  RowScratch<T> place(std::byte* memory, Index* end) const;

  const ResolvedAttention<T>& r_;
  Index padded_columns_;
  bool widened_;
  Index observer_bytes_;
  Index rows_;
  Index bytes_;
};

// The scratch of each of so many workers.
template <class T>
class RowScratches {
 public:
  RowScratches(const Runtime& runtime, const RowScratchLayout<T>& layout, Index count)
      : memory_(runtime, count * layout.bytes()), scratches_(workspace_of(runtime)) {
    scratches_.reserve(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) scratches_.push_back(layout.at(memory_.data() + i * layout.bytes()));
  }
  const RowScratch<T>& operator[](Index worker) const { return scratches_[static_cast<std::size_t>(worker)]; }

 private:
  Workspace<std::byte> memory_;
  List<RowScratch<T>> scratches_;
};

// What the chunks of a task leave, chunk after chunk: Dv numbers, a maximum and a sum for each of its rows.
template <class T>
struct ChunkResults {
  T* accumulator;
  T* row_max;
  T* row_sum;
};

// Room for so many rows of ChunkResults.
template <class T>
class Partials {
 public:
  Partials(const Runtime& runtime, Index count, Index columns)
      : columns_(columns), accumulator_(runtime, count * columns), row_max_(runtime, count), row_sum_(runtime, count) {}
  ChunkResults<T> at(Index row) const {
    return {accumulator_.data() + row * columns_, row_max_.data() + row, row_sum_.data() + row};
  }

 private:
  Index columns_;
  Workspace<T> accumulator_;
  Workspace<T> row_max_;
  Workspace<T> row_sum_;
};

// The most chunks that the rows of a task can see.
Index most_chunks(const UntypedAttention& r);

struct ChunkRange {
  Index begin;
  Index end;

  Index size() const { return end - begin; }
};

// The chunks that these rows see; `rows` becomes what each sees.
ChunkRange visible_chunks(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows);

// Tasks of one kv_head that walk its keys together, a block for all before the next: keys and values that do not stay
// in a second-level cache are fetched once for all of them. At 16384 keys, of the peak: one task 0.78, two 0.85, four
// 0.875, eight 0.88 (D 128).
inline constexpr Index kMaxTasksPerGroup = 4;

template <class T>
struct RowTask {
  const ResolvedAttention<T>& r;
  const KvPanels<T>& packed;
  const Runtime& runtime;
  const KvHead& kv_head;
  const Sequence& sequence;
  TaskRows rows;
  RowScratch<T> scratch;
  bool wants_lse = false;
  const RowObserver<T>* observer = nullptr;
  kernels::PrefetchPlan* ahead = nullptr;  // what the worker needs after this task

  // Packs the query and finds what the rows see; the block's rules then point into the scratch.
  kernels::ScoreBlock<T> start_rows() const;
  // Points the block at the keys from `key` on, with their tiles of mask and bias. False when no row sees one of them.
  // stored: where panels are named that the block reads as they are stored; nullptr: in the type of the call.
  bool start_block(Index key, kernels::ScoreBlock<T>& block, kernels::StoredPanels* stored = nullptr) const;
  // The scores of the block, by the kernel that the forward pass takes.
  void score_block(const kernels::ScoreBlock<T>& block) const;
  // Copies row_max and row_sum of the rows, which are of one head, to the scratch.
  void load_softmax_state(const TensorView<const T, 3>& row_max, const TensorView<const T, 3>& row_sum) const;

  // The chunks that the rows see.
  ChunkRange visible_chunks() const { return internal::visible_chunks(r, sequence, rows, *scratch.visible_rows); }
  // Writes the results of these chunks.
  void attend(const ChunkRange& chunks, const ChunkResults<T>& results) const;
  // The same of up to kMaxTasksPerGroup tasks.
  static void attend(std::span<const RowTask> tasks, std::span<const ChunkRange> chunks,
                     std::span<const ChunkResults<T>> results);
  // The same for all chunks that their rows see, which it returns.
  static std::array<ChunkRange, kMaxTasksPerGroup> attend(std::span<const RowTask> tasks,
                                                          std::span<const ChunkResults<T>> results);
  // The same for at most one chunk, whose results stay in the scratch.
  ChunkResults<T> attend_one(const ChunkRange& chunks) const;
  // Replaces their sums by sums of kAttentionSumScale: a finite one by itself times that, any other is computed anew.
  void attend_scaled(const ChunkRange& chunks, const ChunkResults<T>& results) const;
  // Copies the chunk in the scratch to its place among the results.
  void keep(Index number, const ChunkResults<T>& results) const;
  // Where the context can be computed: in the caller's rows where they are numbers of T that lie there as in the
  // scratch, which saves a copy; else in the scratch.
  T* context_buffer(const TypedOutputs<T>& outputs) const;
};

// Calls use(task(0) … task(count - 1)), which is up to kMaxTasksPerGroup of them.
template <class T, class Task, class Use>
void with_task_group(Index count, const Task& task, const Use& use) {
  if (count == 1) {
    RowTask<T> only = task(0);
    return use(std::span(&only, 1));
  }
  static_assert(kMaxTasksPerGroup == 4);
  const Index last = count - 1;
  std::array<RowTask<T>, kMaxTasksPerGroup> tasks{task(0), task(1), task(std::min<Index>(2, last)), task(last)};
  use(std::span(tasks).first(static_cast<std::size_t>(count)));
}

// What the rows of a task become.
template <class T>
struct FinishedRows {
  const T* context;  // [num_rows][Dv]
  const T* row_max;
  const T* row_sum;
  const T* lse;
  const T* sink_weight;

  // The merge of these chunks, the sink and the division, into the scratch. Where a sum overflowed, the results become
  // those of attend_scaled.
  static FinishedRows of(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results);
  // attend, for all chunks that the rows see, then the same. buffer: for as many results.
  static FinishedRows attend(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& buffer);
  // Writes them, as far as they do not lie there.
  void write(const RowTask<T>& task, const TypedOutputs<T>& outputs) const;
};

// Replaces what is not finite in a row of context whose row_sum is, by the context that scaled sums gave.
template <class T>
void take_scaled(Index num_rows, Index columns, const T* row_sum, const T* scaled_context, T* context) {
  for (Index i = 0; i < num_rows * columns; ++i) {
    if (is_finite(row_sum[i / columns]) && !is_finite(context[i])) context[i] = scaled_context[i];
  }
}

}  // namespace regard::inline v0::internal
