// SPDX-License-Identifier: Apache-2.0
//
// The options of a call over several ranks, as options of a call for some of its rows and heads.
//
//   rows r0 … r1 of L, all S keys      query_offset + r0, query_starts cut, block_mask by strips of rows
//   heads h0 … h1 of H                 slices of masks, bias, slopes and sinks
//   dropout                            dropout_first + (0, h0, r0)
//
// Keys are always counted from key 0 of the whole call. Read next: local_options.cpp, attention.cpp.
#pragma once

#include <type_traits>
#include <vector>

#include "regard/attention.h"
#include "regard/distributed/shards.h"

namespace regard::inline v0::internal {

// Extents of the whole call.
struct CallExtents {
  Index batch, num_heads, num_kv_heads, num_rows, num_keys;
};

// Options, and the arrays to which they refer.
struct LocalOptions {
  AttentionOptions options;
  std::vector<Index> offsets, starts;
};

// mask and bias are those of the rows from first_mask_row on, for all heads or for those from first_mask_head on. With
// a block mask, rows must be whole strips of rows, or lie within one; see strips().
LocalOptions local_options(const AttentionOptions& options, const CallExtents& extents, const IndexRange& rows,
                           const IndexRange& heads, Index first_mask_row, Index first_mask_head);

// The options of one head, or of one batch entry, of a call that has these options.
AttentionOptions head_options(const AttentionOptions& options, Index head);
AttentionOptions batch_options(const AttentionOptions& options, Index batch);

// Splits rows at the first boundary between strips of a block mask, so that local_options() can be called for each
// part.
std::vector<IndexRange> strips(const AttentionOptions& options, const IndexRange& rows);

// Which keys are visible to the rows, as far as it follows from options that are numbers. May include keys that are
// hidden.
RowVisibility visibility_of(const AttentionOptions& options, const CallExtents& extents);

// One axis of a view, from `first` on.
template <class View>
View cut(View view, std::size_t axis, Index first, Index count) {
  if (view.absent()) return view;
  using Bytes = std::conditional_t<std::is_same_v<decltype(view.data), const void*>, const std::byte, std::byte>;
  view.data = static_cast<Bytes*>(view.data) + first * view.strides[axis] * type_bytes(view.type);
  view.shape[axis] = count;
  return view;
}
// The same; unchanged if its extent is 1, which applies to all.
template <class View>
View slice(const View& view, std::size_t axis, Index first, Index count) {
  return view.shape[axis] == 1 ? view : cut(view, axis, first, count);
}

}  // namespace regard::inline v0::internal
