// SPDX-License-Identifier: Apache-2.0
//
// One task: up to 60 query rows that share a KV head, processed over the chunks and blocks of keys that they attend
// to. Also its scratch and the results of its chunks.
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

// Observes the rows of tasks in the forward pass: what the kernels accumulate in addition to the context.
template <class T>
class RowObserver {
 public:
  virtual Index scratch_bytes() const = 0;  // per task, aligned to 64
  virtual void start(const RowTask<T>& task) const = 0;
  virtual kernels::RowStatistics<T> start_chunk(const RowTask<T>& task) const = 0;  // where the kernels accumulate
  virtual void finish_chunk(const RowTask<T>& task, const kernels::ChunkState<T>& chunk) const = 0;

 protected:
  ~RowObserver() = default;
};

// The scratch of one worker, for tasks of up to kRows rows, or of up to n rows if its layout is smaller. Every array is
// written before it is read.
template <class T>
struct RowScratch {
  VisibleRows* visible_rows;
  T* query;               // packed
  T* gathered;            // [n][D], if a task has rows of several heads
  T* scores;              // [kRows][kBlockKeys]
  T* bias;                // [kRows][kBlockKeys], if there is a bias
  T* dropout;             // [kRows][kBlockKeys], with dropout
  std::int32_t* visible;  // [kRows][kBlockKeys], if there is a mask
  T* key_panels;          // [kBlockPanels][D][kPanel], if panels of a cache are converted
  T* value_panels;        // [kBlockPanels][padded columns][kPanel], likewise
  T* slopes;              // [kRows]
  T* sinks;               // [kRows]
  T* context;             // [n][Dv]
  T* scaled_context;      // [n][Dv], for rows whose sums overflow
  T* row_max;             // [kRows] and so on: the finished rows
  T* row_sum;
  T* lse;
  T* sink_weight;
  kernels::ChunkState<T> chunk;  // the current chunk of the task
  std::byte* observed;           // RowObserver::scratch_bytes()
  Index padded_value_head_size;
};

// The offset of each array of a RowScratch, for the shapes of this call.
template <class T>
class RowScratchLayout {
 public:
  // converted: KvPanels::converted(). rows: the maximum per task, in whole register tiles.
  RowScratchLayout(const ResolvedAttention<T>& r, Index padded_value_head_size, bool converted = false,
                   Index observer_bytes = 0, Index rows = kernels::kRows);
  Index bytes() const { return bytes_; }
  RowScratch<T> at(std::byte* memory) const;

 private:
  RowScratch<T> place(std::byte* memory, Index* end) const;

  const ResolvedAttention<T>& r_;
  Index padded_columns_;
  bool converted_;
  Index observer_bytes_;
  Index rows_;
  Index bytes_;
};

// One scratch for each worker.
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
  ScratchVector<RowScratch<T>> scratches_;
};

// The results of the chunks of a task, chunk after chunk: Dv sums, a maximum and a sum of weights for each row.
template <class T>
struct ChunkResults {
  T* accumulator;
  T* row_max;
  T* row_sum;
};

// A buffer for a given number of rows of ChunkResults.
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

// The largest number of chunks that the rows of a task can attend to.
Index max_chunks(const UntypedAttention& r);

struct ChunkRange {
  Index begin;
  Index end;

  Index size() const { return end - begin; }
};

// The chunks that these rows attend to; sets `rows` to the keys of each row.
ChunkRange visible_chunks(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows);

// Tasks of one KV head that process each block of keys together, so that keys and values that do not fit a second-level
// cache are read only once for all of them. At 16384 keys and D = 128, the fraction of peak is 0.78 for one task, 0.85
// for two, 0.875 for four and 0.88 for eight.
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
  kernels::PrefetchPlan* prefetch_plan = nullptr;  // what the worker needs after this task

  // Packs the query and determines which keys the rows attend to; the block's rules then point into the scratch.
  kernels::ScoreBlock<T> start_rows() const;
  // Points the block at the keys from `key` on, with their tiles of mask and bias. Returns false if no row attends to
  // any of them. stored: filled with the panels, if the block reads them as they are stored; if nullptr, the panels are
  // converted to the compute type.
  bool start_block(Index key, kernels::ScoreBlock<T>& block, kernels::StoredPanels* stored = nullptr) const;
  // Computes the scores of the block with the kernel of the forward pass.
  void score_block(const kernels::ScoreBlock<T>& block) const;
  // Copies row_max and row_sum of the rows, which must belong to one head, to the scratch.
  void load_softmax_state(const TensorView<const T, 3>& row_max, const TensorView<const T, 3>& row_sum) const;

  // The chunks that the rows attend to.
  ChunkRange visible_chunks() const { return internal::visible_chunks(r, sequence, rows, *scratch.visible_rows); }
  // Computes these chunks and writes their results.
  void compute_chunks(const ChunkRange& chunks, const ChunkResults<T>& results) const;
  // The same for up to kMaxTasksPerGroup tasks.
  static void compute_chunks(std::span<const RowTask> tasks, std::span<const ChunkRange> chunks,
                             std::span<const ChunkResults<T>> results);
  // The same for all chunks that their rows attend to; returns those chunks.
  static std::array<ChunkRange, kMaxTasksPerGroup> compute_chunks(std::span<const RowTask> tasks,
                                                                  std::span<const ChunkResults<T>> results);
  // The same for at most one chunk, whose results stay in the scratch.
  ChunkResults<T> compute_one_chunk(const ChunkRange& chunks) const;
  // Replaces the sums with sums scaled by kAttentionSumScale: finite sums are multiplied by it, others are recomputed.
  void compute_scaled_chunks(const ChunkRange& chunks, const ChunkResults<T>& results) const;
  // Copies the chunk in the scratch to `results`, as chunk `number`.
  void store_chunk(Index number, const ChunkResults<T>& results) const;
  // Where to compute the context: directly in the caller's rows if they have type T and the same layout as the scratch,
  // which saves a copy; otherwise in the scratch.
  T* context_buffer(const TypedOutputs<T>& outputs) const;
};

// Calls use(task(0) … task(count - 1)); count is at most kMaxTasksPerGroup.
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

// The finished rows of a task.
template <class T>
struct FinishedRows {
  const T* context;  // [num_rows][Dv]
  const T* row_max;
  const T* row_sum;
  const T* lse;
  const T* sink_weight;

  // Merges these chunks, adds the sink and divides, into the scratch. If a sum overflowed, the results become those of
  // compute_scaled_chunks.
  static FinishedRows of(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results);
  // Computes all chunks that the rows attend to, then merges them as above. buffer: for the results of that many
  // chunks.
  static FinishedRows compute_chunks(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& buffer);
  // Writes the rows to the outputs, except those already computed in place.
  void write(const RowTask<T>& task, const TypedOutputs<T>& outputs) const;
};

// Replaces non-finite elements of a row of context whose row_sum is finite with the context from scaled sums.
template <class T>
void merge_scaled(Index num_rows, Index columns, const T* row_sum, const T* scaled_context, T* context) {
  for (Index i = 0; i < num_rows * columns; ++i) {
    if (is_finite(row_sum[i / columns]) && !is_finite(context[i])) context[i] = scaled_context[i];
  }
}

}  // namespace regard::inline v0::internal
