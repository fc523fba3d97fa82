// SPDX-License-Identifier: Apache-2.0
//
// Which keys the rows of a task see. Causal, window, prefix and key lengths give each row one interval of keys;
// segments, block mask and mask are evaluated into a dense tile of 64 keys, only for tiles that the intervals reach.
//
//     row i of a sequence:  p = i + offset,  begin ≤ j < end        (intervals; see docs/semantics.md, section 2)
//
// Read next: attention_forward.cpp.
#pragma once

#include "arguments.h"
#include "kernels/table.h"

namespace regard {
inline namespace v0 {
namespace internal {

struct Interval {
  Index begin;
  Index end;
};

// The rows of a task: row i is query row row_of(i) of query head head_of(i). Where a task holds rows of several heads,
// rows_per_head of each follow one another.
struct TaskRows {
  Index head;
  Index first_row;  // within the head and the sequence
  Index num_rows;
  Index rows_per_head;

  Index head_of(Index i) const { return head + (first_row + i) / rows_per_head; }
  Index row_of(Index i) const { return (first_row + i) % rows_per_head; }
};

// Keys that row i of the sequence sees by causal, window, prefix and key length.
template <class T>
Interval visible_interval(const ResolvedAttention<T>& r, const Sequence& sequence, Index row);

// The rows of a task: their intervals, and the interval that holds them all.
struct VisibleRows {
  Index begin[kernels::kRows];
  Index end[kernels::kRows];
  Index positions[kernels::kRows];
  Interval all;
};
template <class T>
void fill_rows(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows);

// Whether there are options that need a dense tile.
template <class T>
bool has_dense_visibility(const ResolvedAttention<T>& r) {
  return !r.query_segments.absent() || !r.block_mask.absent() || !r.mask.absent();
}
template <class T>
bool has_bias(const ResolvedAttention<T>& r) {
  return std::visit([](const auto& bias) { return !bias.absent(); }, r.bias);
}

// Writes −1 (sees) or 0 to tile[row][lane] for 64 keys from first_key on; returns whether any row sees any key of its
// interval. Lanes from num_keys on are left 0.
template <class T>
bool fill_visible_tile(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                       Index num_keys, const VisibleRows& rows, std::int32_t* tile);

// Writes the additive bias to tile[row][lane]; lanes from num_keys on are left 0.
template <class T>
void fill_bias_tile(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                    Index num_keys, T* tile);

}  // namespace internal
}  // namespace v0
}  // namespace regard
