// SPDX-License-Identifier: Apache-2.0
//
// Boundaries between ranks are moved to the nearest boundary between blocks of rows, which are counted from the first
// row of each sequence. Read next: backward_plan.h, docs/derivations/ranks.md.
#include "backward_plan.h"

#include <algorithm>
#include <numeric>

#include "distributed/exchange/key_gradient_chain.h"
#include "distributed/plan/row_intervals.h"
#include "regard/attention_backward_continued.h"

namespace regard::inline v0::internal {
namespace {

// Boundaries are multiples of this number of rows; 0 if there is no such number.
Index row_grain(const WholeCall& call, const AttentionOptions& options) {
  if (options.block_mask.absent() || options.block_size[0] < 1) return kBackwardRows;
  // The rows of a block mask are counted from row 0 of all sequences.
  return call.problem.visibility.query_starts.empty() ? std::lcm(kBackwardRows, options.block_size[0]) : 0;
}

Index nearest_border(const WholeCall& call, Index row, Index grain) {
  Index first = 0, end = call.extents.num_rows;
  if (row >= end) return end;
  const std::vector<Index>& starts = call.problem.visibility.query_starts;
  const auto next = std::upper_bound(starts.begin(), starts.end(), row);
  if (next != starts.begin() && next != starts.end()) {
    first = *std::prev(next);
    end = *next;
  }
  return std::min(end, first + (row - first + grain / 2) / grain * grain);
}

DistributedPlan plan_of_rows(const WholeCall& call, std::vector<Index> starts, Index grain) {
  std::vector<std::vector<IndexRange>> rows;
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
    if (r > 0) starts[r] = nearest_border(call, starts[r], grain);
  }
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) rows.push_back({{starts[r], starts[r + 1]}});
  return plan_rows(call.problem, rows);
}

// The elements that the busiest receiver receives.
Index max_received(const DistributedProblem& p, const DistributedPlan& plan) {
  const Index group = p.num_heads / p.num_kv_heads, both = p.head_size + p.value_head_size;
  const Index row_inputs = both + p.value_head_size + 2;  // query, context, grad_context, row_max, row_sum
  const auto num_ranks = static_cast<Index>(plan.ranks.size());
  std::vector<Index> received(plan.ranks.size());
  const auto at = [](const auto& list, Index r) { return list[static_cast<std::size_t>(r)]; };
  const auto held = [&](const std::vector<Index>& starts, Index r) {
    return IndexRange{at(starts, r), at(starts, r + 1)};
  };
  for (Index r = 0; r < num_ranks; ++r) {
    const RankWork& work = plan.ranks[static_cast<std::size_t>(r)];
    Index& sum = received[static_cast<std::size_t>(r)];
    const IndexRange rows = held(p.row_starts, r), keys = held(p.key_starts, r);
    const Index own_rows = total_size(intersection(work.rows, rows));
    sum += (total_size(work.rows) - own_rows) * work.heads.size() * row_inputs;
    sum += (total_size(work.keys) - total_size(intersection(work.keys, keys))) * work.kv_heads.size() * both;
    if (plan.scheme == DistributedScheme::rows) {
      sum += (rows.size() - own_rows) * p.num_heads * p.head_size;
    } else {
      sum += rows.size() * (p.num_heads - work.heads.size()) * p.head_size;
      sum += keys.size() * (p.num_kv_heads - work.kv_heads.size()) * both;
    }
  }
  if (plan.scheme == DistributedScheme::rows) {
    for (const KeySegment& segment : key_segments(plan, p.key_starts)) {
      if (segment.ranks.empty()) continue;
      const Index size = segment.keys.size() * both * p.num_kv_heads;
      for (std::size_t n = 1; n < segment.ranks.size(); ++n)
        received[static_cast<std::size_t>(segment.ranks[n])] += size * group;
      if (segment.ranks.size() > 1) received[static_cast<std::size_t>(segment.ranks.front())] += size * (group - 1);
      const auto holder = std::upper_bound(p.key_starts.begin(), p.key_starts.end(), segment.keys.first);
      const Index rank = holder - p.key_starts.begin() - 1;
      if (rank != segment.ranks.back()) received[static_cast<std::size_t>(rank)] += size;
    }
  }
  return *std::max_element(received.begin(), received.end());
}

}  // namespace

DistributedPlan backward_plan(const WholeCall& call, const AttentionOptions& options) {
  const DistributedProblem& problem = call.problem;
  const Index grain = row_grain(call, options);
  std::vector<DistributedPlan> plans{plan_heads(problem)};
  if (grain > 0) plans.push_back(plan_of_rows(call, problem.row_starts, grain));
  if (call.mask_by_row || call.bias_by_row) {
    // As few rows of elementwise masks as possible are sent.
    if (grain == kBackwardRows) return plans.back();
  } else if (grain > 0) {
    const auto num_ranks = static_cast<Index>(problem.row_starts.size()) - 1;
    plans.push_back(plan_of_rows(
        call, split_by_work(problem.visibility, call.extents.num_rows, call.extents.num_keys, num_ranks), grain));
  }
  const auto rank = [&](const DistributedPlan& plan) {
    return std::pair(std::max(plan.imbalance(), kMaxImbalance), max_received(problem, plan));
  };
  return *std::min_element(plans.begin(), plans.end(),
                           [&](const DistributedPlan& a, const DistributedPlan& b) { return rank(a) < rank(b); });
}

bool keeps_rows(const DistributedProblem& problem, const DistributedPlan& plan) {
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const std::vector<IndexRange> held = merged({{problem.row_starts[r], problem.row_starts[r + 1]}});
    if (plan.ranks[r].rows != held) return false;
  }
  return true;
}

}  // namespace regard::inline v0::internal
