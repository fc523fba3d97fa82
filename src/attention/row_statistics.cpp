// SPDX-License-Identifier: Apache-2.0
//
// Computes the statistics of a row from the sums of its chunks. With M the largest score of the row, L = Σ exp(score −
// M), E = Σ exp(score − M) · (score − M), and the finished row_max and row_sum, which may include a sink:
//
//     f = exp(M − row_max) / row_sum       P = f · L, the weight on all keys
//     entropy       = P · ln row_sum − f · (E + (M − row_max) · L)
//     mean_distance = f · Σ exp(score − M) · |p − j|
//
// All sums are in double. Weights of single keys equal those of attention_weights: they come from the same scores by
// the same kernel. Keys are ordered by score, which also orders their weights, except that different scores may give
// the same weight. If that happens at the end of the best keys, the row is processed again and ordered by weight.
// Read next: kernels/softmax_rows.h.
#include "row_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "instantiate.h"
#include "kernels/table.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"
#include "visibility.h"

namespace regard::inline v0::internal {

using kernels::kBlockKeys;
using kernels::kLanes;
using kernels::kRows;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
double sum_lanes(const T* lanes) {
  double sum = 0;
  for (Index i = 0; i < kLanes; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

// True if no key of the row has a score above −∞. row_sum and row_max do not show this: they may include a sink.
template <class T>
bool is_empty(const FinishedRows<T>& done, const StatisticsScratch<T>& s, Index row) {
  return s.row_max[row] == -kInfinity && done.row_sum[row] == done.row_sum[row];
}

// The statistics of one row.
template <class T>
struct RowNumbers {
  T entropy, largest_weight, chosen_weight, mean_distance;
};

// Calls use(first key, scores, weights) for every block of keys from `begin` to `end` that some row attends to and for
// which wanted(first key) is true.
template <class T, class Wanted, class F>
void for_each_weights_block(const RowTask<T>& task, const FinishedRows<T>& done, Index begin, Index end,
                            const Wanted& wanted, const F& use) {
  const auto& kernel = kernels::active().template of<T>();
  const Index rows = task.rows.num_rows;
  alignas(64) T weights[kRows * kBlockKeys];
  kernels::ScoreBlock<T> block = task.start_rows();
  const Interval& seen = task.scratch.visible_rows->all;
  const Index last = std::min(end, seen.end);
  for (Index key = std::max(begin, seen.begin) / kBlockKeys * kBlockKeys; key < last; key += kBlockKeys) {
    throw_if_stopped(task.runtime.stop);
    if (!wanted(key) || !task.start_block(key, block)) continue;
    task.score_block(block);
    std::copy_n(block.scores, rows * kBlockKeys, weights);
    kernel.weights_block(rows, done.row_max, done.row_sum, weights);
    use(key, block.scores, weights);
  }
}

// Orders the best keys of these rows by weight, in a second pass.
template <class T>
void order_by_weight(const RowTask<T>& task, const FinishedRows<T>& done, Index top, const bool* rows,
                     StatisticsScratch<T>& s) {
  for (Index i = 0; i < task.rows.num_rows; ++i) {
    if (!rows[i]) continue;
    std::fill_n(s.best_weights + i * kBlockKeys, top, static_cast<T>(-1));
    std::fill_n(s.best_keys + i * kBlockKeys, top, -1);
  }
  const auto every = [](Index) { return true; };
  for_each_weights_block(task, done, 0, std::numeric_limits<Index>::max(), every,
                         [&](Index key, const T* scores, const T* weights) {
                           for (Index i = 0; i < task.rows.num_rows; ++i) {
                             if (!rows[i]) continue;
                             T* const best = s.best_weights + i * kBlockKeys;
                             auto* const keys = s.best_keys + i * kBlockKeys;
                             for (Index lane = 0; lane < kBlockKeys; ++lane) {
                               if (scores[i * kBlockKeys + lane] == -std::numeric_limits<T>::infinity()) continue;
                               const T weight = weights[i * kBlockKeys + lane];
                               if (!(weight > best[top - 1])) continue;
                               Index place = top - 1;
                               for (; place > 0 && weight > best[place - 1]; --place) {
                                 best[place] = best[place - 1];
                                 keys[place] = keys[place - 1];
                               }
                               best[place] = weight;
                               keys[place] = static_cast<typename StatisticsScratch<T>::Key>(key + lane);
                             }
                           }
                         });
  for (Index i = 0; i < task.rows.num_rows; ++i) {
    if (rows[i])
      std::replace_if(
          s.best_weights + i * kBlockKeys, s.best_weights + i * kBlockKeys + top, [](T weight) { return weight < 0; },
          static_cast<T>(0));
  }
}

template <class T>
void weigh_best(const RowTask<T>& task, const FinishedRows<T>& done, Index top, StatisticsScratch<T>& s) {
  std::copy_n(s.best_scores, task.rows.num_rows * kBlockKeys, s.best_weights);
  kernels::active().template of<T>().weights_block(task.rows.num_rows, done.row_max, done.row_sum, s.best_weights);
  if (top == 0) return;
  bool again[kRows]{};
  for (Index i = 0; i < task.rows.num_rows; ++i) {
    const T* weights = s.best_weights + i * kBlockKeys;
    auto* const keys = s.best_keys + i * kBlockKeys;
    again[i] = keys[top] >= 0 && weights[top] == weights[top - 1];
    for (Index n = 1; n < top && keys[n] >= 0; ++n) {
      for (Index k = n; k > 0 && weights[k] == weights[k - 1] && keys[k] < keys[k - 1]; --k) {
        std::swap(keys[k], keys[k - 1]);
      }
    }
  }
  if (std::find(again, again + task.rows.num_rows, true) != again + task.rows.num_rows) {
    order_by_weight(task, done, top, again, s);
  }
}

// Adds up the weights of the chosen keys over all rows; the keys are in ascending order.
template <class T>
void add_chosen_keys(const RowTask<T>& task, const FinishedRows<T>& done, std::span<const Index> chosen, double* sums) {
  if (chosen.empty()) return;
  const auto from = [&](Index key) { return std::ranges::lower_bound(chosen, key); };
  for_each_weights_block(
      task, done, chosen.front(), chosen.back() + 1, [&](Index key) { return from(key) != from(key + kBlockKeys); },
      [&](Index key, const T*, const T* weights) {
        const std::span<const Index> here(from(key), from(key + kBlockKeys));
        for (Index i = 0; i < task.rows.num_rows; ++i) {
          for (const Index at : here) sums[i] += static_cast<double>(weights[i * kBlockKeys + (at - key)]);
        }
      });
}

// The same for the chosen keys of each row.
template <class T>
void add_chosen_ranges(const RowTask<T>& task, const FinishedRows<T>& done, const TypedStatistics<T>& statistics,
                       double* sums) {
  const InputView<3>& ranges = statistics.chosen_ranges;
  if (ranges.absent()) return;
  const Sequence& sequence = task.sequence;
  const Index rows = task.rows.num_rows, first_row = sequence.first_query + task.rows.first_row;
  Interval chosen[kRows];
  Interval all{sequence.num_keys, 0};
  for (Index i = 0; i < rows; ++i) {
    const auto limit = [&](Index at) {
      const Index key = read_index(ranges.type, ranges.pointer(ranges.shape[0] == 1 ? 0 : sequence.batch,
                                                               ranges.shape[1] == 1 ? 0 : first_row + i, at));
      // Positions and keys are below 2⁶¹, so larger range ends are equivalent.
      const Index from =
          statistics.chosen_origin == ChosenOrigin::position ? task.scratch.visible_rows->positions[i] : 0;
      return std::clamp<Index>(std::clamp(key, -(Index{1} << 61), Index{1} << 61) + from, 0, sequence.num_keys);
    };
    chosen[i] = {limit(0), limit(1)};
    if (chosen[i].begin >= chosen[i].end) continue;
    all = {std::min(all.begin, chosen[i].begin), std::max(all.end, chosen[i].end)};
  }
  const auto within = [&](Index i, Index key) {
    return Interval{std::max(chosen[i].begin, key), std::min(chosen[i].end, key + kBlockKeys)};
  };
  for_each_weights_block(
      task, done, all.begin, all.end,
      [&](Index key) {
        for (Index i = 0; i < rows; ++i) {
          if (const Interval here = within(i, key); here.begin < here.end) return true;
        }
        return false;
      },
      [&](Index key, const T*, const T* weights) {
        for (Index i = 0; i < rows; ++i) {
          const Interval here = within(i, key);
          for (Index at = here.begin; at < here.end; ++at)
            sums[i] += static_cast<double>(weights[i * kBlockKeys + (at - key)]);
        }
      });
}

}  // namespace

template <class T>
void StatisticsObserver<T>::start(const RowTask<T>& task) const {
  StatisticsScratch<T>& s = scratch_of(task);
  std::fill_n(s.best_scores, kRows * kBlockKeys, -std::numeric_limits<T>::infinity());
  std::fill_n(s.best_keys, kRows * kBlockKeys, -1);
  std::fill_n(s.least_best, kRows, -std::numeric_limits<T>::infinity());
  std::fill_n(s.row_max, kRows, -kInfinity);
  std::fill_n(s.row_sum, kRows, 0.0);
  std::fill_n(s.log_sum, kRows, 0.0);
  std::fill_n(s.distance_sum, kRows, 0.0);
}

template <class T>
kernels::RowStatistics<T> StatisticsObserver<T>::start_chunk(const RowTask<T>& task) const {
  StatisticsScratch<T>& s = scratch_of(task);
  std::fill_n(s.log_lanes, kRows * kLanes, static_cast<T>(0));
  std::fill_n(s.distance_lanes, kRows * kLanes, static_cast<T>(0));
  return {.num_best = num_best(),
          .best_scores = s.best_scores,
          .best_keys = s.best_keys,
          .least_best = s.least_best,
          .log_lanes = s.log_lanes,
          .distance_lanes = s.distance_lanes};
}

template <class T>
void StatisticsObserver<T>::finish_chunk(const RowTask<T>& task, const kernels::ChunkState<T>& chunk) const {
  StatisticsScratch<T>& s = scratch_of(task);
  const Index rows = task.rows.num_rows;
  double before[kRows], added[kRows];  // distances of both maxima from the higher one; then their exponentials
  double before_drop[kRows], added_drop[kRows];
  for (Index i = 0; i < rows; ++i) {
    const double m = static_cast<double>(chunk.row_max[i]);
    const double high = std::max(m, s.row_max[i]);
    before_drop[i] = s.row_max[i] == high ? 0.0 : s.row_max[i] - high;
    added_drop[i] = m == high ? 0.0 : m - high;
  }
  kernels::active().f64.exp(before_drop, before, rows);
  kernels::active().f64.exp(added_drop, added, rows);
  for (Index i = 0; i < rows; ++i) {
    const double m = static_cast<double>(chunk.row_max[i]);
    const double sum = static_cast<double>(chunk.row_sum[i]);
    if (m == -kInfinity) continue;
    if (s.row_max[i] == -kInfinity) before_drop[i] = before[i] = 0;
    s.log_sum[i] = before[i] * (s.log_sum[i] + before_drop[i] * s.row_sum[i]);
    if (added[i] != 0) s.log_sum[i] += added[i] * (sum_lanes(s.log_lanes + i * kLanes) + added_drop[i] * sum);
    s.distance_sum[i] = before[i] * s.distance_sum[i] + added[i] * sum_lanes(s.distance_lanes + i * kLanes);
    s.row_sum[i] = before[i] * s.row_sum[i] + added[i] * sum;
    s.row_max[i] = std::max(m, s.row_max[i]);
  }
}

template <class T>
void StatisticsObserver<T>::finish(const RowTask<T>& task, const FinishedRows<T>& done) const {
  StatisticsScratch<T>& s = scratch_of(task);
  const Index rows = task.rows.num_rows;
  const Index top = num_best() - 1;
  weigh_best(task, done, top, s);
  double chosen[kRows]{}, shares[kRows], logs[kRows];
  add_chosen_keys(task, done, statistics_.chosen_keys, chosen);
  add_chosen_ranges(task, done, statistics_, chosen);
  const bool chooses = !statistics_.chosen_keys.empty() || !statistics_.chosen_ranges.absent();
  for (Index i = 0; i < rows; ++i) {
    const double drop = s.row_max[i] - static_cast<double>(done.row_max[i]);
    shares[i] = drop < 0 ? drop : 0.0;  // 0 for NaN, too
    logs[i] = std::max(static_cast<double>(done.row_sum[i]), 1.0);
  }
  kernels::active().f64.exp(shares, shares, rows);
  kernels::active().f64.log(logs, logs, rows);

  const Index b = task.sequence.batch, h = task.rows.head;
  const Index first = task.sequence.first_query + task.rows.first_row;
  for (Index i = 0; i < rows; ++i) {
    const T* weights = s.best_weights + i * kBlockKeys;
    const auto* keys = s.best_keys + i * kBlockKeys;
    const T row_sum = done.row_sum[i];
    const T row_max = done.row_max[i];
    RowNumbers<T> row{0, weights[0], static_cast<T>(chosen[i]), 0};
    const bool nan = row_sum != row_sum;
    if (nan) {
      row = {row_sum, row_sum, chooses ? row_sum : static_cast<T>(0), row_sum};
    } else if (row_max == std::numeric_limits<T>::infinity()) {
      // A single key has all the weight.
      const Index position = task.scratch.visible_rows->positions[i];
      row.mean_distance = static_cast<T>(std::abs(static_cast<double>(position - static_cast<Index>(keys[0]))));
    } else if (!is_empty(done, s, i)) {
      const double share = shares[i] / static_cast<double>(row_sum);
      const double drop = s.row_max[i] - static_cast<double>(row_max);
      row.entropy = static_cast<T>(share * s.row_sum[i] * logs[i] - share * (s.log_sum[i] + drop * s.row_sum[i]));
      row.mean_distance = static_cast<T>(share * s.distance_sum[i]);
    }
    const auto write = [&](const TensorView<T, 3>& output, T number) {
      if (!output.absent()) copy_elements(1, &number, 1, output.pointer(b, h, first + i), 1);
    };
    write(statistics_.entropy, row.entropy);
    write(statistics_.largest_weight, row.largest_weight);
    write(statistics_.chosen_weight, row.chosen_weight);
    write(statistics_.mean_distance, row.mean_distance);
    if (sees_key_ != nullptr)
      sees_key_[(b * task.r.num_heads + h) * task.r.num_queries + first + i] = !is_empty(done, s, i);
    for (Index n = 0; n < top; ++n) {
      const bool there = !nan && keys[n] >= 0;
      const Index key = there ? task.sequence.first_key + static_cast<Index>(keys[n]) : -1;
      const T weight = nan ? row_sum : there ? weights[n] : static_cast<T>(0);
      copy_elements(1, &key, 1, statistics_.top_keys.pointer(b, h, first + i, n), 1);
      if (!statistics_.top_weights.absent())
        copy_elements(1, &weight, 1, statistics_.top_weights.pointer(b, h, first + i, n), 1);
    }
  }
}

template <class T>
void TypedStatistics<T>::average_heads(Index num_queries, const bool* sees_key) const {
  const auto average = [&](const TensorView<T, 3>& from, const TensorView<T, 2>& to) {
    for (Index b = 0; b < to.shape[0]; ++b) {
      for (Index h = 0; h < to.shape[1]; ++h) {
        double sum = 0;
        Index count = 0;
        for (Index i = 0; i < num_queries; ++i) {
          if (!sees_key[(b * to.shape[1] + h) * num_queries + i]) continue;
          sum += static_cast<double>(read_element(from.pointer(b, h, i)));
          ++count;
        }
        const T mean = static_cast<T>(count > 0 ? sum / static_cast<double>(count) : 0.0);
        copy_elements(1, &mean, 1, to.pointer(b, h), 1);
      }
    }
  };
  average(entropy, head_entropy);
  average(largest_weight, head_largest_weight);
  average(chosen_weight, head_chosen_weight);
  average(mean_distance, head_mean_distance);
}

namespace {

ScratchVector<Index> sorted_keys(const char* operator_name, const InputView<1>& chosen, const Runtime& runtime) {
  ScratchVector<Index> sorted(workspace_of(runtime));
  if (chosen.empty()) return sorted;
  expect_integers(operator_name, "chosen_keys", chosen.type);
  footprint(operator_name, "chosen_keys", chosen);
  sorted.resize(static_cast<std::size_t>(chosen.shape[0]));
  for (Index i = 0; i < chosen.shape[0]; ++i)
    sorted[static_cast<std::size_t>(i)] = read_index(chosen.type, chosen.pointer(i));
  std::ranges::sort(sorted);
  if (sorted.front() < 0)
    reject(operator_name, "chosen_keys contains " + std::to_string(sorted.front()) + "; expected 0 or more");
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    reject(operator_name, "chosen_keys contains " + std::to_string(*twice) + " more than once; expected distinct keys");
  // Drops keys that no tensor can have: later arithmetic could overflow with them.
  constexpr Index kMaxKey = Index{1} << 60;
  sorted.erase(std::ranges::lower_bound(sorted, kMaxKey), sorted.end());
  return sorted;
}

}  // namespace

template <class T>
TypedStatistics<T>::TypedStatistics(const char* name, const AttentionStatistics& given, const Runtime& runtime)
    : chosen_keys(sorted_keys(name, given.chosen_keys, runtime)),
      chosen_ranges(given.chosen_ranges),
      chosen_origin(given.chosen_origin),
      top_keys(typed<Index>(name, "top_keys", given.top_keys)),
      top_weights(typed<T>(name, "top_weights", given.top_weights)),
      entropy(typed<T>(name, "entropy", given.entropy)),
      largest_weight(typed<T>(name, "largest_weight", given.largest_weight)),
      chosen_weight(typed<T>(name, "chosen_weight", given.chosen_weight)),
      mean_distance(typed<T>(name, "mean_distance", given.mean_distance)),
      head_entropy(typed<T>(name, "head_entropy", given.head_entropy)),
      head_largest_weight(typed<T>(name, "head_largest_weight", given.head_largest_weight)),
      head_chosen_weight(typed<T>(name, "head_chosen_weight", given.head_chosen_weight)),
      head_mean_distance(typed<T>(name, "head_mean_distance", given.head_mean_distance)) {
  if (!chosen_ranges.absent()) expect_integers(name, "chosen_ranges", chosen_ranges.type);
}

template <class T>
void TypedStatistics<T>::check(const char* operator_name, const UntypedAttention& r, Footprints& written) const {
  const Index top = top_keys.shape[3];
  const std::array<Index, 3> rows{r.batch, r.num_heads, r.num_queries};
  const std::array<Index, 4> tops{r.batch, r.num_heads, r.num_queries, top};
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(operator_name, name, view, shape);
    if (!view.absent()) written.push_back(footprint(operator_name, name, view));
  };
  if (!top_keys.absent() && (top < 1 || top > kMaxTopKeys)) {
    reject(operator_name, "top_keys has shape " + shape_text(top_keys.shape) + "; expected 1 to " +
                              std::to_string(kMaxTopKeys) + " keys per row");
  }
  if (!top_weights.absent() && top_keys.absent()) {
    reject(operator_name, "top_weights is given without top_keys; expected both, or only top_keys");
  }
  check("top_keys", top_keys, tops);
  check("top_weights", top_weights, tops);
  check("entropy", entropy, rows);
  check("largest_weight", largest_weight, rows);
  check("chosen_weight", chosen_weight, rows);
  check("mean_distance", mean_distance, rows);
  const std::array<Index, 2> heads{r.batch, r.num_heads};
  check("head_entropy", head_entropy, heads);
  check("head_largest_weight", head_largest_weight, heads);
  check("head_chosen_weight", head_chosen_weight, heads);
  check("head_mean_distance", head_mean_distance, heads);
  if (!chosen_ranges.absent()) {
    if (!chosen_keys.empty())
      reject(operator_name, "chosen_keys and chosen_ranges are given; expected only one of them");
    const auto& [batch, queries, ends] = chosen_ranges.shape;
    if ((batch != 1 && batch != r.batch) || (queries != 1 && queries != r.num_queries) || ends != 2) {
      reject(operator_name, "chosen_ranges has shape " + shape_text(chosen_ranges.shape) + "; expected (" +
                                std::to_string(r.batch) + " or 1, " + std::to_string(r.num_queries) + " or 1, 2)");
    }
  }
  Index longest = 0;
  for (const Sequence& sequence : r.sequences) longest = std::max(longest, sequence.num_keys);
  if (longest > std::numeric_limits<typename kernels::RowStatistics<T>::Key>::max()) {
    reject(operator_name, "key has " + std::to_string(longest) + " keys; expected fewer than 2^31 for statistics");
  }
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, TypedStatistics);
REGARD_INSTANTIATE_COMPUTE_CLASS(class, StatisticsObserver);

}  // namespace regard::inline v0::internal
