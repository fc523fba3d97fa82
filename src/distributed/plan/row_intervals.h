// SPDX-License-Identifier: Apache-2.0
//
// The interval of keys that is visible to each row, and what follows from it: the keys that are visible to a range of
// rows, and the number of its (row, key) pairs.
//
//     rows 0 1 2 3     intervals [0, 1) [0, 2) [1, 3) [6, 8)     keys of all rows: [0, 3) [6, 8)
//
// Intervals never move backwards from one row to the next. Read next: row_intervals.cpp, plans.cpp.
#pragma once

#include "regard/distributed/shards.h"

namespace regard::inline v0::internal {

class RowIntervals {
 public:
  // Throws InvalidArgument, "function: …", if the visibility does not fit the extents or is invalid. It must outlive
  // the object.
  RowIntervals(const RowVisibility& visibility, Index num_rows, Index num_keys, const char* function);

  // The keys that are visible to a row; {0, 0} if there are none.
  IndexRange of(Index row) const;
  // The keys that are visible to some row: ascending, not adjacent.
  std::vector<IndexRange> keys_of(const std::vector<IndexRange>& rows) const;
  // The number of pairs of a row and a key that is visible to it.
  Index pairs(const std::vector<IndexRange>& rows) const;
  // The number of pairs of all rows, for each range of keys between two starts.
  std::vector<Index> pairs_by_keys(std::span<const Index> starts) const;

 private:
  const RowVisibility& visibility_;
  Index num_rows_;
  Index num_keys_;
};

// Throws InvalidArgument, "function: name …", unless starts is ascending from 0; with an end, unless it ends there.
void check_starts(std::span<const Index> starts, const char* name, const char* function, Index end);

IndexRange intersection(const IndexRange& a, const IndexRange& b);
// The intersection of ascending ranges with a range.
std::vector<IndexRange> intersection(const std::vector<IndexRange>& ranges, const IndexRange& range);
// Sorted, with adjacent and overlapping ranges merged and empty ones left out.
std::vector<IndexRange> merged(std::vector<IndexRange> ranges);
Index total_size(const std::vector<IndexRange>& ranges);

}  // namespace regard::inline v0::internal
