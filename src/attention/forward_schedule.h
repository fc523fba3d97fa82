// SPDX-License-Identifier: Apache-2.0
//
// How the rows of all heads are distributed over threads, together with the packed keys and values that they need:
//
//   waves      all workers pack as many heads as fit the budget, then process tasks: up to 60 query rows of a head
//   heads      a worker takes a head, packs it, and runs its tasks while it is in the worker's second-level cache
//   blocks     a worker takes a head with a single task, and packs 64 keys at a time for the block that it computes
//
// While a worker computes a task, it prefetches the inputs of its next one (kernels::PrefetchPlan).
// Read next: forward_schedule.cpp, packed_kv.h, row_task.h.
#pragma once

#include <span>

#include "arguments.h"
#include "row_task.h"
#include "runtime/parallel.h"

namespace regard::inline v0::internal {

template <class T>
struct ForwardScheduleOptions {
  const char* name;                        // of the operator
  double written_bytes;                    // of its outputs
  const char* packing_reason = nullptr;    // packing_reason(); not reported if nullptr or empty
  const OutputView<4>* context = nullptr;  // where the rows are finally written; may be nullptr
  bool wants_lse = false;
  const RowObserver<T>* observer = nullptr;
};

// Processes tasks of one KV head, which share each block of keys. The second argument is the buffer for the results of
// their chunks.
template <class T>
using RowsDone = FunctionRef<void(std::span<RowTask<T>>, std::span<const ChunkResults<T>>)>;

// Calls rows_done for all rows of every head, up to 60 rows per task.
template <class T>
void for_each_row_block(const ResolvedAttention<T>& r, const Runtime& runtime, const ForwardScheduleOptions<T>& options,
                        const RowsDone<T>& rows_done);

}  // namespace regard::inline v0::internal
