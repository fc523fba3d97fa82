// SPDX-License-Identifier: Apache-2.0
//
// Dropout of a tile of weights, in the forward and the backward pass.
// Read next: kernels/dropout.cpp.
#pragma once

#include "arguments.h"
#include "kernels/table.h"
#include "task_rows.h"

namespace regard::inline v0::internal {

inline bool has_dropout(const UntypedAttention& r) { return r.dropout_threshold > 0; }

// Writes the factors of the weights, 0 or 1 / (1 − dropout), to tile[row][lane] for 64 keys from first_key on.
template <class T>
void fill_dropout_tile(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                       T* tile) {
  for (Index i = 0; i < of.num_rows; ++i) {
    kernels::active().template of<T>().dropout_row(
        {.seed = r.dropout_seed,
         .batch = static_cast<std::uint32_t>(r.dropout_first[0] + sequence.batch),
         .head = static_cast<std::uint32_t>(r.dropout_first[1] + of.head_of(i)),
         .query = static_cast<std::uint32_t>(r.dropout_first[2] + sequence.first_query + of.row_of(i)),
         .first_key = sequence.first_key + first_key,
         .threshold = r.dropout_threshold,
         .factor = r.dropout_factor},
        tile + i * kernels::kBlockKeys);
  }
}

}  // namespace regard::inline v0::internal
