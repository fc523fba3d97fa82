// SPDX-License-Identifier: Apache-2.0
//
// Turns the chunk results of a task into finished rows: merges them, divides, and writes the rows to the caller's
// outputs. If a sum overflowed although the context itself does not, the sums are recomputed with scaling.
// Read next: kernels/attention_finish.cpp.
#include <algorithm>

#include "instantiate.h"
#include "kernels/table.h"
#include "row_task.h"
#include "task_rows.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {
namespace {

// Merges the chunks, adds the sink and divides: fills row_max, row_sum, lse and sink_weight of the scratch, and
// context. Returns whether some context is not finite although its row_sum is, because a sum overflowed or because the
// row attends to a value that is not finite.
template <class T>
bool finish_results(const RowTask<T>& task, Index num_chunks, const ChunkResults<T>& from, Index row_stride,
                    T value_scale, T* context) {
  const RowScratch<T>& s = task.scratch;
  const bool sinks = !task.r.sinks.empty();
  for (Index i = 0; sinks && i < task.rows.num_rows; ++i) {
    s.sinks[i] = task.r.sinks[static_cast<std::size_t>(task.rows.head_of(i))];
  }
  const Index num_rows = task.rows.num_rows;
  return kernels::active().template of<T>().finish_rows({.num_chunks = num_chunks,
                                                         .num_rows = num_rows,
                                                         .columns = task.r.value_head_size,
                                                         .accumulator = from.accumulator,
                                                         .accumulator_chunk_stride = num_rows * row_stride,
                                                         .accumulator_row_stride = row_stride,
                                                         .row_max = from.row_max,
                                                         .row_sum = from.row_sum,
                                                         .row_chunk_stride = num_rows,
                                                         .sinks = sinks ? s.sinks : nullptr,
                                                         .value_scale = value_scale,
                                                         .context = context,
                                                         .out_row_max = s.row_max,
                                                         .out_row_sum = s.row_sum,
                                                         .out_lse = task.wants_lse ? s.lse : nullptr,
                                                         .out_sink_weight = s.sink_weight});
}

template <class T>
FinishedRows<T> finished(const RowScratch<T>& s) {
  return {s.context, s.row_max, s.row_sum, s.lse, s.sink_weight};
}

// Finishes the rows for which plain sums overflowed.
template <class T>
void finish_scaled(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) {
  const RowScratch<T>& s = task.scratch;
  task.compute_scaled_chunks(chunks, results);
  finish_results(task, chunks.size(), results, task.r.value_head_size, static_cast<T>(kAttentionSumScale),
                 s.scaled_context);
  merge_scaled(task.rows.num_rows, task.r.value_head_size, s.row_sum, s.scaled_context, s.context);
}

}  // namespace

template <class T>
FinishedRows<T> FinishedRows<T>::of(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) {
  const RowScratch<T>& s = task.scratch;
  if (finish_results(task, chunks.size(), results, task.r.value_head_size, static_cast<T>(1), s.context))
    finish_scaled(task, chunks, results);
  return finished(s);
}

template <class T>
FinishedRows<T> FinishedRows<T>::compute_chunks(const RowTask<T>& task, const ChunkRange& chunks,
                                                const ChunkResults<T>& buffer) {
  const RowScratch<T>& s = task.scratch;
  if (chunks.size() > 1) {
    task.compute_chunks(chunks, buffer);
    return of(task, chunks, buffer);
  }
  // A single chunk is finished in the scratch, without a copy.
  if (finish_results(task, chunks.size(), task.compute_one_chunk(chunks), s.padded_value_head_size, static_cast<T>(1),
                     s.context)) {
    task.store_chunk(0, buffer);
    finish_scaled(task, chunks, buffer);
  }
  return finished(s);
}

template <class T>
void FinishedRows<T>::write(const RowTask<T>& task, const TypedOutputs<T>& outputs) const {
  const Index b = task.sequence.batch;
  const Index columns = task.r.value_head_size;
  const OutputView<4>& to = outputs.context;
  task.rows.for_each_head([&](Index head, Index first_row, Index first, Index count) {
    const Index row = task.sequence.first_query + first_row;
    const T* const from = context + first * columns;
    const bool written = to.pointer(b, head, row, 0) == from;
    for (Index i = 0; i < count && !written; ++i)
      write_numbers(to.type, columns, from + i * columns, to.pointer(b, head, row + i, 0), to.strides[3]);
    const auto write = [&](const TensorView<T, 3>& output, const T* numbers) {
      if (output.absent()) return;
      copy_elements(count, numbers + first, 1, output.pointer(b, head, row), output.strides[2]);
    };
    write(outputs.row_max, row_max);
    write(outputs.row_sum, row_sum);
    write(outputs.lse, lse);
    write(outputs.sink_weights, sink_weight);
  });
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, FinishedRows);

}  // namespace regard::inline v0::internal
