// SPDX-License-Identifier: Apache-2.0
//
// The schedule of attention_forward when a key head has few rows: over a cache, or over tensors that are read unpacked.
//
//     task = up to 60 rows of one key head of one sequence: the rows of its query heads, consecutively; or up to
//            four rows, for kernels that read keys and values as they are stored
//     group = one task, or up to four tasks of few rows that share each block of keys, so that it is read once
//     piece = a group and one of its chunks
//
//     many groups   each group processes its chunks and is finished          one parallel phase
//     few groups    each piece separately; then every task is finished       two parallel phases
//
// Either way, each chunk leaves Dv + 2 values per row, and finish_rows folds them in order, so both give the same bits.
// Read next: few_row_schedule.cpp, attention_decode.cpp, unpacked_keys.cpp.
#pragma once

#include "arguments.h"
#include "kv_panels.h"

namespace regard::inline v0::internal {

struct FewRowOptions {
  const char* name;    // of the operator
  const char* source;  // description of keys and values, for a plan
  Index key_bytes;     // of an element
  Index value_bytes;
  double written_bytes;   // of the outputs
  Index max_few_rows;     // a key head with at most this many rows has tasks of kFewRows; otherwise of kRows
  bool by_chunk = false;  // the heads of a key are contiguous: all process a chunk before any processes the next
};

// Computes and writes every row of the call from these keys and values.
template <class T>
void attend_few_rows(const ResolvedAttention<T>& r, const KvPanels<T>& keys, const FewRowOptions& options,
                     const TypedOutputs<T>& outputs, const Runtime& runtime);

}  // namespace regard::inline v0::internal
