// SPDX-License-Identifier: Apache-2.0
//
// Which keys the rows of a task see. Causal, window, prefix and key lengths give each row one interval of keys;
// segments, block mask and mask are evaluated into a dense tile of 64 keys, only for tiles that the intervals reach.
//
//     row i of a sequence:  p = i + offset,  begin ≤ j < end        (intervals: semantics.md, section 2)
//
// Read next: attention_forward.cpp.
#pragma once

#include "arguments.h"
#include "kernels/table.h"
#include "task_rows.h"

namespace regard::inline v0::internal {

struct Interval {
  Index begin;
  Index end;
};

// Keys that row i of the sequence sees by causal, window, prefix and key length.
Interval visible_interval(const UntypedAttention& r, const Sequence& sequence, Index row);

// The rows of a task: their intervals, and the interval that holds them all.
struct VisibleRows {
  Index begin[kernels::kRows];
  Index end[kernels::kRows];
  Index positions[kernels::kRows];
  Interval all;
};
void fill_rows(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows);

// Whether there are options that need a dense tile.
inline bool has_dense_visibility(const UntypedAttention& r) {
  return !r.query_segments.absent() || !r.block_mask.absent() || !r.mask.absent();
}

// Writes −1 (sees) or 0 to tile[row][lane] for 64 keys from first_key on; returns whether any row sees any key of its
// interval. Lanes from num_keys on are left 0.
bool fill_visible_tile(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                       Index num_keys, const VisibleRows& rows, std::int32_t* tile);

}  // namespace regard::inline v0::internal
