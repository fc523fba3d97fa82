// SPDX-License-Identifier: Apache-2.0
//
// Statistics of a task's rows, computed during the forward pass.
//
//   start              nothing kept, all sums 0
//     for each chunk:  kernels update lanes and best scores (kernels/softmax_rows.h);  finish_chunk folds the lanes
//   finish             weights of the best keys, entropy, distance: one value per row, written where requested
//
// Read next: row_statistics.cpp, row_task.h.
#pragma once

#include <span>

#include "kernels/table.h"
#include "regard/attention_statistics.h"
#include "row_task.h"

namespace regard::inline v0::internal {

// AttentionStatistics with views of T, with the chosen keys in ascending order and without keys that no tensor can
// have.
template <class T>
struct TypedStatistics {
  ScratchVector<Index> chosen_keys;
  InputView<3> chosen_ranges;
  ChosenOrigin chosen_origin;
  TensorView<Index, 4> top_keys;
  TensorView<T, 4> top_weights;
  TensorView<T, 3> entropy, largest_weight, chosen_weight, mean_distance;
  TensorView<T, 2> head_entropy, head_largest_weight, head_chosen_weight, head_mean_distance;

  // Throws std::invalid_argument for a view of another type, and for a chosen key that is negative or a duplicate.
  TypedStatistics(const char* name, const AttentionStatistics& given, const Runtime& runtime);

  // Throws std::invalid_argument; appends the footprints of what is written.
  void check(const char* operator_name, const UntypedAttention& r, Footprints& written) const;
  // Writes, for each head, the means over the rows that attend to any key.
  void average_heads(Index num_queries, const bool* sees_key) const;
};

// Extends a RowScratch, for the rows of one task.
template <class T>
struct StatisticsScratch {
  using Key = typename kernels::RowStatistics<T>::Key;
  alignas(64) T best_scores[kernels::kRows * kernels::kBlockKeys];
  alignas(64) T best_weights[kernels::kRows * kernels::kBlockKeys];  // of best_scores, or sorted by weight
  alignas(64) Key best_keys[kernels::kRows * kernels::kBlockKeys];
  T least_best[kernels::kRows];
  alignas(64) T log_lanes[kernels::kRows * kernels::kLanes];
  alignas(64) T distance_lanes[kernels::kRows * kernels::kLanes];
  // Over the chunks so far, with p = exp(score − row_max).
  double row_max[kernels::kRows];
  double row_sum[kernels::kRows];
  double log_sum[kernels::kRows];       // Σ p · (score − row_max)
  double distance_sum[kernels::kRows];  // Σ p · |position − key|
};

// Computes the requested statistics of each task's rows.
template <class T>
class StatisticsObserver final : public RowObserver<T> {
 public:
  // sees_key (B, H, L): set to whether the row attends to any key; may be nullptr.
  StatisticsObserver(const TypedStatistics<T>& statistics, bool* sees_key)
      : statistics_(statistics), sees_key_(sees_key) {}

  Index scratch_bytes() const override { return static_cast<Index>(sizeof(StatisticsScratch<T>)); }
  void start(const RowTask<T>& task) const override;
  kernels::RowStatistics<T> start_chunk(const RowTask<T>& task) const override;
  void finish_chunk(const RowTask<T>& task, const kernels::ChunkState<T>& chunk) const override;
  // Writes the requested statistics of a finished task's rows.
  void finish(const RowTask<T>& task, const FinishedRows<T>& done) const;

 private:
  static StatisticsScratch<T>& scratch_of(const RowTask<T>& task) {
    return *reinterpret_cast<StatisticsScratch<T>*>(task.scratch.observed);
  }
  // The number of best scores that a task keeps: one more than there are top keys, to detect a tie at the end.
  Index num_best() const { return statistics_.top_keys.shape[3] + 1; }

  const TypedStatistics<T>& statistics_;
  bool* sees_key_;
};

}  // namespace regard::inline v0::internal
