// SPDX-License-Identifier: Apache-2.0
//
// One task: up to 60 query rows of one head walk the chunks and blocks of keys that they see.
// Read next: attention_rows.cpp.
#pragma once

#include "packed_keys.h"
#include "visibility.h"

namespace regard {
inline namespace v0 {
namespace internal {

// The scratch of one worker; every array is written before it is read.
template <class T>
struct RowScratch {
  VisibleRows* visible_rows;
  T* query;               // packed
  T* scores;              // [kRows][kBlockKeys]
  T* bias;                // [kRows][kBlockKeys], when there is a bias
  std::int32_t* visible;  // [kRows][kBlockKeys], when there is a mask
  T* slopes;              // [kRows]
  T* sinks;               // [kRows]
  T* context;             // [kRows][Dv]
  T* repeated_context;    // [kRows][Dv]
  T* row_max;             // [kRows] and so on: the finished rows
  T* row_sum;
  T* lse;
  T* sink_weight;
  T* chunks;  // slots, one per chunk that the task visits
  Index chunk_elements;
  Index padded_columns;

  kernels::ChunkState<T> chunk(Index slot) const;
};

// Where each array of a RowScratch lies, for this call's shapes.
template <class T>
class RowScratchLayout {
 public:
  RowScratchLayout(const ResolvedAttention<T>& r, Index padded_columns);
  Index bytes() const { return bytes_; }
  RowScratch<T> at(std::byte* memory) const;

 private:
  RowScratch<T> place(std::byte* memory, Index* end) const;

  const ResolvedAttention<T>& r_;
  Index padded_columns_;
  Index max_chunks_;
  Index bytes_;
};

template <class T>
struct RowTask {
  const ResolvedAttention<T>& r;
  const PackedKeys<T>& packed;
  const Runtime& runtime;
  const Unit& unit;
  const Sequence& sequence;
  Index head;
  Index first_row;  // within the sequence
  Index num_rows;
  RowScratch<T> scratch;
};

// Chunks begin … end − 1 were visited; chunk c lies in slot c − begin.
struct ChunkRange {
  Index begin;
  Index end;
};

// Computes the chunk results of the task's rows, with p · v scaled by value_scale.
template <class T>
ChunkRange attend(RowTask<T>& task, T value_scale);

template <class T>
struct FinishedRows {
  const T* context;  // [num_rows][Dv]
  const T* row_max;
  const T* row_sum;
  const T* lse;
  const T* sink_weight;
};

// attend, then the merge of the chunks, the sink and the division.
template <class T>
FinishedRows<T> attend_and_finish(RowTask<T>& task);

}  // namespace internal
}  // namespace v0
}  // namespace regard
