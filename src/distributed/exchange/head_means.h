// SPDX-License-Identifier: Apache-2.0
//
// Means of the statistics of rows, for each head: one sum over all rows, in order. Each rank adds its rows to the sum
// of the ranks before it; the last one sends the result to all.
//
// Only rows that attend to a key are counted. They have a top key, unless they are NaN. Statistics that the sums need
// and the caller does not request are stored here.
// Read next: head_means.cpp, attention.cpp.
#pragma once

#include <array>
#include <memory>
#include <stop_token>
#include <vector>

#include "regard/attention_statistics.h"
#include "regard/distributed/ranks.h"

namespace regard::inline v0::internal {

class HeadMeans {
 public:
  // The statistics that are requested on this rank, and the rows of its query.
  HeadMeans(const AttentionStatistics& requested, const InputView<4>& query);

  // The statistics to compute first: those of rows only.
  const AttentionStatistics& rows() const { return rows_; }
  // Writes the means that are requested, on all ranks.
  void write(const std::vector<Index>& row_starts, Ranks& ranks, const std::stop_token& stop) const;

 private:
  struct Mean {
    OutputView<3> AttentionStatistics::* of_rows;
    OutputView<2> to;
  };
  template <class View>
  void provide(View& view, ElementType type, const decltype(View::shape)& shape);
  void add_rows(std::vector<double>& sums) const;

  AttentionStatistics rows_;
  std::vector<Mean> means_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace regard::inline v0::internal
