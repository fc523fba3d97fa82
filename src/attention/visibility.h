// SPDX-License-Identifier: Apache-2.0
//
// Which keys the rows of a task attend to. Causal, window, prefix and key lengths give each row one interval of keys;
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

// The keys that row i of the sequence may attend to under causal, window, prefix and key length.
Interval visible_interval(const UntypedAttention& r, const Sequence& sequence, Index row);

// The rows of a task: their intervals, and the smallest interval that contains them all.
struct VisibleRows {
  Index begin[kernels::kRows];
  Index end[kernels::kRows];
  Index positions[kernels::kRows];
  Interval all;
};
void fill_rows(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows);

// True if some option requires a dense tile.
inline bool has_dense_visibility(const UntypedAttention& r) {
  return !r.query_segments.absent() || !r.block_mask.absent() || !r.mask.absent();
}

// Writes −1 (visible) or 0 to tile[row][lane] for 64 keys from first_key on. Returns whether any row attends to any key
// of its interval. Lanes from num_keys on remain 0.
bool fill_visible_tile(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                       Index num_keys, const VisibleRows& rows, std::int32_t* tile);

}  // namespace regard::inline v0::internal
