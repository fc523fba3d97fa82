// SPDX-License-Identifier: Apache-2.0
//
// Forward and statistics over several ranks: each calls the function for one machine, for one key/value head and some
// rows at a time. Means over all rows of a head follow (head_means.h).
//
//   agree_on_call ──▶ plan ──▶ HeadExchange ──▶ the function for one machine, for each head and range of rows
//
// Read next: whole_call.h, call_arrays.h, attention_columns.cpp, attention_backward.cpp, decode.cpp.
#include "regard/distributed/attention.h"

#include <algorithm>

#include "call_arrays.h"
#include "distributed/exchange/head_means.h"
#include "distributed/plan/plan_choice.h"

namespace regard::inline v0 {
namespace internal {
namespace {

DistributedPlan plan_of_rows(const WholeCall& call, bool move_rows) {
  std::vector<DistributedPlan> plans{plan_rows(call.problem)};
  if (move_rows) {
    plans.push_back(plan_rows(
        call.problem, balance_rows(call.problem.visibility, call.problem.row_starts, call.problem.key_starts.back())));
    if (static_cast<Index>(call.problem.row_starts.size()) - 1 <= call.problem.num_kv_heads)
      plans.push_back(plan_heads(call.problem));
  }
  return cheapest_plan(plans);
}

struct StatisticsArrays {
  std::size_t top_keys, top_weights, entropy, largest_weight, chosen_weight, mean_distance;
};

// (B, H) as an array with a single index per head.
template <class View2>
OutputView<4> as_heads(const View2& view) {
  if (view.absent()) return {};
  return {view.data, view.type, {view.shape[0], view.shape[1], 1, 1}, {view.strides[0], view.strides[1], 0, 0}};
}

void forward(const char* function, const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
             const AttentionOutputs& outputs, const AttentionStatistics* statistics, const AttentionOptions& options,
             Ranks& ranks, const Runtime& runtime) {
  static const AttentionStatistics kNone;
  const AttentionStatistics& s = statistics ? *statistics : kNone;
  const auto call_local = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>& v,
                              const AttentionOutputs& o, const AttentionStatistics& of_rows,
                              const AttentionOptions& local, const Runtime& with) {
    statistics ? attention_with_statistics(q, k, v, o, of_rows, local, with)
               : attention_forward(q, k, v, o, local, with);
  };
  Agreement agreement = agreement_on({function, query, key, value, options});
  add_output(agreement, "context", outputs.context, 2);
  add_output(agreement, "row_max", outputs.row_max, 2);
  add_output(agreement, "row_sum", outputs.row_sum, 2);
  add_output(agreement, "lse", outputs.lse, 2);
  add_output(agreement, "weights", outputs.weights, 2);
  add_output(agreement, "sink_weights", outputs.sink_weights, 2);
  add_output(agreement, "top_keys", s.top_keys, 2);
  add_output(agreement, "top_weights", s.top_weights, 2);
  add_output(agreement, "entropy", s.entropy, 2);
  add_output(agreement, "largest_weight", s.largest_weight, 2);
  add_output(agreement, "chosen_weight", s.chosen_weight, 2);
  add_output(agreement, "mean_distance", s.mean_distance, 2);
  add_output(agreement, "head_entropy", as_heads(s.head_entropy), 4);
  add_output(agreement, "head_largest_weight", as_heads(s.head_largest_weight), 4);
  add_output(agreement, "head_chosen_weight", as_heads(s.head_chosen_weight), 4);
  add_output(agreement, "head_mean_distance", as_heads(s.head_mean_distance), 4);

  AttentionOutputs own = outputs;
  own.fingerprint = nullptr;
  const auto ranges_of = [&](const IndexRange& rows) { return slice(s.chosen_ranges, 1, rows.first, rows.size()); };
  const auto check = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>& v, const AttentionOptions& o,
                         const Runtime& with) {
    AttentionStatistics of_rows = s;
    of_rows.chosen_ranges = slice(s.chosen_ranges, 1, 0, q.shape[2]);
    call_local(q, k, v, own, of_rows, o, with);
  };
  const WholeCall call = agree_on_call({function, query, key, value, options}, agreement, check, ranks, runtime.stop);
  if (outputs.fingerprint) *outputs.fingerprint = kUncheckedFingerprint;
  if (call.extents.batch * call.extents.num_heads == 0) return;

  const DistributedPlan plan = plan_of_rows(call, !call.mask_by_row && !call.bias_by_row);
  const HeadMeans means(s, query);
  const AttentionStatistics& rows = means.rows();
  CallArrays arrays;
  const MaskArrays masks(arrays, call, options, plan.scheme == DistributedScheme::heads);
  const std::size_t q = arrays.input(held(query, call.rows.first), HeldIndices::rows, ArrayHeads::query);
  const std::size_t k = arrays.input(held(key, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t v = arrays.input(held(value, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t context = arrays.row_output(outputs.context, call);
  const std::size_t row_max = arrays.row_output(outputs.row_max, call);
  const std::size_t row_sum = arrays.row_output(outputs.row_sum, call);
  const std::size_t lse = arrays.row_output(outputs.lse, call);
  const std::size_t weights = arrays.row_output(outputs.weights, call);
  const std::size_t sink_weights = arrays.row_output(outputs.sink_weights, call);
  const StatisticsArrays of{arrays.row_output(rows.top_keys, call),      arrays.row_output(rows.top_weights, call),
                            arrays.row_output(rows.entropy, call),       arrays.row_output(rows.largest_weight, call),
                            arrays.row_output(rows.chosen_weight, call), arrays.row_output(rows.mean_distance, call)};
  run_call(ranks, [&] {
    HeadExchange(call.problem, plan, arrays.take(), ranks.messages(), runtime.stop).run([&](const HeadWork& work) {
      const LocalArrays in(work.arrays);
      const auto run_part = [&](const AttentionOptions& o, const IndexRange& part) {
        const AttentionOutputs written{.context = rows_of(in.output(context), part),
                                       .row_max = rows_of(in.output3(row_max), part),
                                       .row_sum = rows_of(in.output3(row_sum), part),
                                       .lse = rows_of(in.output3(lse), part),
                                       .weights = rows_of(in.output(weights), part),
                                       .sink_weights = rows_of(in.output3(sink_weights), part)};
        AttentionStatistics of_rows = rows;
        of_rows.chosen_ranges = ranges_of({work.rows.first + part.first, work.rows.first + part.end});
        of_rows.top_keys = rows_of(in.output(of.top_keys), part);
        of_rows.top_weights = rows_of(in.output(of.top_weights), part);
        of_rows.entropy = rows_of(in.output3(of.entropy), part);
        of_rows.largest_weight = rows_of(in.output3(of.largest_weight), part);
        of_rows.chosen_weight = rows_of(in.output3(of.chosen_weight), part);
        of_rows.mean_distance = rows_of(in.output3(of.mean_distance), part);
        call_local(rows_of(in.input(q), part), in.input(k), in.input(v), written, of_rows, o, runtime);
      };
      for_each_strip(call, options, masks, work, run_part);
    });
    means.write(call.problem.row_starts, ranks, runtime.stop);
  });
}

}  // namespace
}  // namespace internal

void attention_forward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                       const AttentionOutputs& outputs, const AttentionOptions& options, Ranks& ranks,
                       const Runtime& runtime) {
  if (ranks.num_ranks() == 1) return attention_forward(query, key, value, outputs, options, runtime);
  internal::forward("attention_forward", query, key, value, outputs, nullptr, options, ranks, runtime);
}

void attention_with_statistics(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                               const AttentionOutputs& outputs, const AttentionStatistics& statistics,
                               const AttentionOptions& options, Ranks& ranks, const Runtime& runtime) {
  if (ranks.num_ranks() == 1)
    return attention_with_statistics(query, key, value, outputs, statistics, options, runtime);
  internal::forward("attention_with_statistics", query, key, value, outputs, &statistics, options, ranks, runtime);
}

}  // namespace regard::inline v0
