// SPDX-License-Identifier: Apache-2.0
//
// Divides the rows of a KV head into tasks: the rows of each of its query heads, up to 60 per task.
// Read next: forward_schedule.h.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "task_rows.h"

namespace regard::inline v0::internal {

template <class T>
class RowBlocks {
 public:
  explicit RowBlocks(const ResolvedAttention<T>& r) : r_(r), row_group_(kernels::active().of<T>().row_group) {}

  const Sequence& sequence_of(const KvHead& kv_head) const {
    return r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
  }
  Index heads_per_key_head() const { return r_.num_heads / r_.num_kv_heads; }

  // 60 or slightly less, so that the tasks of a sequence have equal length and consist of whole register tiles.
  Index rows_per_task(const Sequence& sequence) const {
    const Index tasks = std::max<Index>((sequence.num_queries + kernels::kRows - 1) / kernels::kRows, 1);
    return std::max<Index>((sequence.num_queries + tasks * row_group_ - 1) / (tasks * row_group_), 1) * row_group_;
  }
  Index tasks_per_head(const Sequence& sequence) const {
    return (sequence.num_queries + rows_per_task(sequence) - 1) / rows_per_task(sequence);
  }
  Index num_tasks(const KvHead& kv_head) const { return heads_per_key_head() * tasks_per_head(sequence_of(kv_head)); }
  // The largest number of rows of any task.
  Index max_rows() const {
    Index largest = 0;
    for (const Sequence& sequence : r_.sequences)
      largest = std::max(largest, std::min(rows_per_task(sequence), sequence.num_queries));
    return largest;
  }
  // The rows of the largest register tile: every task except the last of a head has a multiple of it.
  Index row_group() const { return row_group_; }

  TaskRows rows_of(const KvHead& kv_head, Index task) const {
    const Sequence& sequence = sequence_of(kv_head);
    const Index rows = rows_per_task(sequence);
    const Index blocks = tasks_per_head(sequence);
    // Under a causal mask, the last rows take the longest. They go first, so that no thread finishes late because of
    // them.
    const Index first_row = (blocks - 1 - task % blocks) * rows;
    return {.head = kv_head.key_head * heads_per_key_head() + task / blocks,
            .first_row = first_row,
            .num_rows = std::min(rows, sequence.num_queries - first_row),
            .rows_per_head = sequence.num_queries};
  }

 private:
  const ResolvedAttention<T>& r_;
  Index row_group_;
};

}  // namespace regard::inline v0::internal
