// SPDX-License-Identifier: Apache-2.0
//
// The schedule of attention when a KV head has few rows: over a cache, or over tensors that are read unpacked.
//
//     task = up to 60 rows of one KV head of one sequence: the rows of its query heads, consecutively; or up to
//            four rows, for kernels that read keys and values as they are stored
//     group = one task, or up to four tasks of few rows that share each block of keys, so that it is read once
//     piece = a group and one of its chunks
//
//     many groups   each group processes its chunks and is finished          one parallel phase
//     few groups    each piece separately; then every task is finished       two parallel phases
//
// Either way, each chunk leaves Dv + 2 values per row: partial results, or finish_rows folds them in order. Both phases
// give the same bits.
// Read next: few_row_schedule.cpp, attention_decode.cpp, unpacked_keys.cpp.
#pragma once

#include "arguments.h"
#include "kv_panels.h"
#include "row_task.h"

namespace regard::inline v0::internal {

struct FewRowOptions {
  const char* name;    // of the operator
  const char* source;  // description of keys and values, for a plan
  Index key_bytes;     // of an element
  Index value_bytes;
  double written_bytes;   // of the outputs
  Index max_few_rows;     // a KV head with at most this many rows has tasks of kFewRows; otherwise of kRows
  bool by_chunk = false;  // the heads of a key are contiguous: all process a chunk before any processes the next
};

// What happens to the rows of a task.
template <class T>
class RowWriter {
 public:
  // Called with every task before it computes.
  virtual void prepare(RowTask<T>&) const {}
  // Computes these chunks of a task and writes its rows. buffer: for the results of that many chunks.
  virtual void compute_chunks(const RowTask<T>& task, const ChunkRange& chunks,
                              const ChunkResults<T>& buffer) const = 0;
  // Writes the rows of a task from the results of all its chunks.
  virtual void write(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) const = 0;

 protected:
  ~RowWriter() = default;
};

// Writes finished rows to the outputs of a call.
template <class T>
class FinishedRowWriter final : public RowWriter<T> {
 public:
  explicit FinishedRowWriter(const TypedOutputs<T>& outputs) : outputs_(outputs) {}
  void prepare(RowTask<T>& task) const override {
    task.wants_lse = !outputs_.lse.absent();
    task.scratch.context = task.context_buffer(outputs_);
  }
  void compute_chunks(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& buffer) const override {
    FinishedRows<T>::compute_chunks(task, chunks, buffer).write(task, outputs_);
  }
  void write(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) const override {
    FinishedRows<T>::of(task, chunks, results).write(task, outputs_);
  }

 private:
  const TypedOutputs<T>& outputs_;
};

// Computes and writes every row of the call from these keys and values.
template <class T>
void attend_few_rows(const ResolvedAttention<T>& r, const KvPanels<T>& keys, const FewRowOptions& options,
                     const RowWriter<T>& writer, const Runtime& runtime);

}  // namespace regard::inline v0::internal
