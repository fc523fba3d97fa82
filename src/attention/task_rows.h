// SPDX-License-Identifier: Apache-2.0
//
// The query rows of a task.
// Read next: visibility.h, row_task.h.
#pragma once

#include <algorithm>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// The rows of a task: row i is query row row_of(i) of query head head_of(i). If a task has rows of several heads, they
// are ordered by head, with rows_per_head rows each.
struct TaskRows {
  Index head;
  Index first_row;  // within the head and the sequence
  Index num_rows;
  Index rows_per_head;

  Index head_of(Index i) const { return head + (first_row + i) / rows_per_head; }
  Index row_of(Index i) const { return (first_row + i) % rows_per_head; }

  // Calls f(head, row, i, count) for each head: its rows row … row + count − 1 are rows i … i + count − 1 of the task.
  template <class F>
  void for_each_head(const F& f) const {
    Index row = num_rows > 0 ? row_of(0) : 0;
    for (Index i = 0, at = num_rows > 0 ? head_of(0) : 0; i < num_rows; ++at, row = 0) {
      const Index count = std::min(num_rows - i, rows_per_head - row);
      f(at, row, i, count);
      i += count;
    }
  }
};

}  // namespace regard::inline v0::internal
