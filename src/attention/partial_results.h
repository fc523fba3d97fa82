// SPDX-License-Identifier: Apache-2.0
//
// The outputs of attention_partials and attention_decode_partials: the results of the chunks of a task, as they are
// before the merge.
// Read next: row_task.h, attention_merge.cpp.
#pragma once

#include <span>

#include "arguments.h"
#include "row_task.h"

namespace regard::inline v0::internal {

// AttentionPartialOutputs with views of T.
template <class T>
struct TypedPartials {
  TensorView<T, 5> accumulator;
  TensorView<T, 4> row_max, row_sum;
  TensorView<T, 5> scaled_accumulator;

  // Throws std::invalid_argument for a view whose type is not T.
  TypedPartials(const char* name, const AttentionPartialOutputs& p)
      : accumulator(typed<T>(name, "accumulator", p.accumulator)),
        row_max(typed<T>(name, "row_max", p.row_max)),
        row_sum(typed<T>(name, "row_sum", p.row_sum)),
        scaled_accumulator(typed<T>(name, "scaled_accumulator", p.scaled_accumulator)) {}

  // Throws std::invalid_argument unless every view except scaled_accumulator is present (or empty), each has its
  // expected shape, and none overlaps an input or another one.
  void check(const char* name, const UntypedAttention& r, std::span<const Footprint> inputs) const;
  // Bytes of all views.
  double bytes() const;
  // Writes the rows of a task for every chunk of the call. chunks: those that the task computed; in the others, its
  // rows have no visible key. If scaled sums are requested, they replace those of `results`.
  void write(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) const;
};

}  // namespace regard::inline v0::internal
