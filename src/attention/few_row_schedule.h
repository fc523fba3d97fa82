// SPDX-License-Identifier: Apache-2.0
//
// The walk of attention_forward where a key head has few rows: over a cache, or over tensors that are read in place.
//
//     task = up to 60 rows of one key head of one sequence: the rows of its query heads, one after the other; or up to
//            four, for kernels that read keys and values as they are stored
//     group = a task; or up to four of few rows, each block of keys for all of them, so that it is read once
//     piece = a group and one of its chunks
//
//     many groups   a group walks its chunks and is finished            one parallel phase
//     few groups    every piece by itself; then every task is finished  two parallel phases
//
// Either way a chunk leaves Dv + 2 numbers a row, and finish_rows folds them in order: both give the same bits.
// Read next: few_row_schedule.cpp, attention_decode.cpp, unpacked_keys.cpp.
#pragma once

#include "arguments.h"
#include "kv_panels.h"

namespace regard::inline v0::internal {

struct FewRowOptions {
  const char* name;    // of the operator
  const char* source;  // of keys and values, for a plan
  Index key_bytes;     // of an element
  Index value_bytes;
  double written_bytes;   // of the outputs
  Index max_few_rows;     // of a key head that has tasks of kFewRows; one of more has tasks of kRows
  bool by_chunk = false;  // the heads of a key are contiguous: all take a chunk before any takes the next
};

// Computes and writes every row of the call, from these keys and values.
template <class T>
void attend_few_rows(const ResolvedAttention<T>& r, const KvPanels<T>& keys, const FewRowOptions& options,
                     const TypedOutputs<T>& outputs, const Runtime& runtime);

}  // namespace regard::inline v0::internal
