// SPDX-License-Identifier: Apache-2.0
//
// The gradients of broadcast inputs: a bias, and sinks. Their sums are in the order (batch entry, head, row, key).
//
//   grad_bias, each row its own                    each rank its rows, with all keys, one head after the other
//   grad_bias, summed over rows, each head its own   each rank its heads, with all rows
//   grad_bias, summed over rows and heads          one sum: one rank, with all rows
//   grad_sinks                                     the sums are passed from rank to rank, once per batch entry
//
// Sums over heads are continued in double. Read next: backward_call.h, attention_backward.cpp.
#include <algorithm>

#include "backward_call.h"

namespace regard::inline v0::internal {
namespace {

// The plan in which the last rank computes all heads with all rows.
DistributedPlan plan_on_one_rank(const DistributedProblem& problem) {
  DistributedPlan plan = plan_heads(problem);
  RankWork all = plan.ranks.back();
  all.heads = {0, problem.num_heads};
  all.kv_heads = {0, problem.num_kv_heads};
  std::fill(plan.ranks.begin(), plan.ranks.end(), RankWork{});
  plan.ranks.back() = all;
  return plan;
}

// Sums in double, zero at first.
struct BiasSums {
  std::vector<double> numbers;
  OutputView<4> view;

  explicit BiasSums(const std::array<Index, 4>& shape)
      : numbers(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3])),
        view(TensorView<double, 4>(numbers.data(), shape)) {}
};

AttentionForwardState saved_of_entry(const BackwardOnRanks& of, Index b) {
  return {.context = entry_of(of.saved.context, b),
          .row_max = entry_of(of.saved.row_max, b),
          .row_sum = entry_of(of.saved.row_sum, b),
          .grad_context = entry_of(of.saved.grad_context, b),
          .grad_lse = entry_of(of.saved.grad_lse, b)};
}

// Calls run with the call or, if sums run over batch entries and heads, with each entry of the batch in order.
void for_each_entry(const BackwardOnRanks& of, bool one_by_one,
                    const std::function<void(const BackwardOnRanks&)>& run) {
  if (!one_by_one) return run(of);
  WholeCall call = of.call;
  call.extents.batch = call.problem.batch = 1;
  for (Index b = 0; b < of.call.extents.batch; ++b) {
    const InputView<4> query = entry_of(of.query, b), key = entry_of(of.key, b), value = entry_of(of.value, b);
    const AttentionForwardState saved = saved_of_entry(of, b);
    const AttentionOptions options = batch_options(of.options, b);
    run({query, key, value, saved, of.gradients, options, call, of.bias_summed_over_rows, of.ranks, of.runtime});
  }
}

// Some rows of one key/value head, and their options.
struct Strip {
  InputView<4> query, key, value;
  AttentionForwardState saved;
  const AttentionOptions& options;

  void add_bias(const OutputView<4>& sums, const Runtime& runtime) const {
    attention_backward_continued(query, key, value, saved, {.bias_sums = sums}, options, runtime);
  }
};

// Calls compute(arrays of one head, strip, its key/value head, its rows) for all that this rank computes. `outputs` are
// sent along with the inputs.
template <class Compute>
void exchange_strips(const BackwardOnRanks& of, const DistributedPlan& plan, CallArrays outputs,
                     const Compute& compute) {
  const MaskArrays masks(outputs, of.call, of.options, plan.scheme == DistributedScheme::heads);
  const BackwardInputs inputs(outputs, of);
  HeadExchange exchange(of.call.problem, plan, outputs.take(), of.ranks.messages(), of.runtime.stop);
  exchange.run([&](const HeadWork& work) {
    const LocalArrays in(work.arrays);
    for_each_strip(of.call, of.options, masks, work, [&](const AttentionOptions& options, const IndexRange& rows) {
      const Strip strip{rows_of(in.input(inputs.query), rows), in.input(inputs.key), in.input(inputs.value),
                        inputs.saved(in, rows), options};
      compute(in, strip, work.kv_head, rows);
    });
  });
}

// Each rank computes the rows that it holds.
void bias_by_rows(const BackwardOnRanks& of) {
  const OutputView<4>& output = of.gradients.grad_bias;
  const bool accumulate = of.gradients.accumulate.grad_bias;
  const bool sums_heads = output.shape[1] == 1;
  BiasSums sums(sums_heads ? output.shape : std::array<Index, 4>{});
  const bool sums_entries = sums_heads && output.shape[0] == 1 && of.call.extents.batch > 1;
  for_each_entry(of, sums_entries, [&](const BackwardOnRanks& entry) {
    exchange_strips(entry, plan_rows(entry.call.problem), {},
                    [&](const LocalArrays&, const Strip& s, Index kv_head, const IndexRange& rows) {
                      if (sums_heads) return s.add_bias(rows_of(sums.view, rows), of.runtime);
                      const Index heads = s.query.shape[1];
                      attention_backward(s.query, s.key, s.value, s.saved,
                                         {.grad_bias = cut(rows_of(output, rows), 1, kv_head * heads, heads),
                                          .accumulate = {.grad_bias = accumulate}},
                                         s.options, of.runtime);
                    });
  });
  if (sums_heads && output.size() > 0) write_gradient(sums.view, output, accumulate);
}

// Each rank computes its heads, and all ranks receive the result.
void bias_by_heads(const BackwardOnRanks& of) {
  CallArrays outputs;
  const std::size_t grad_bias = outputs.output(of.gradients.grad_bias, HeldIndices::all, ArrayHeads::query, 0);
  outputs.find(grad_bias)->accumulate = of.gradients.accumulate.grad_bias;
  exchange_strips(of, plan_heads(of.call.problem), std::move(outputs),
                  [&](const LocalArrays& in, const Strip& s, Index, const IndexRange&) {
                    attention_backward(s.query, s.key, s.value, s.saved, {.grad_bias = in.output(grad_bias)}, s.options,
                                       of.runtime);
                  });
}

// One sum over rows and heads in order, which is computed by a single rank.
void bias_on_one_rank(const BackwardOnRanks& of) {
  const OutputView<4>& output = of.gradients.grad_bias;
  BiasSums sums(output.shape);
  for_each_entry(of, output.shape[0] == 1 && of.call.extents.batch > 1, [&](const BackwardOnRanks& entry) {
    exchange_strips(
        entry, plan_on_one_rank(entry.call.problem), {},
        [&](const LocalArrays&, const Strip& s, Index, const IndexRange&) { s.add_bias(sums.view, of.runtime); });
  });
  broadcast(of.ranks.messages(), sums.numbers, of.ranks.num_ranks() - 1, of.runtime.stop);
  if (output.size() > 0) write_gradient(sums.view, output, of.gradients.accumulate.grad_bias);
}

}  // namespace

void write_grad_bias(const BackwardOnRanks& of) {
  if (!of.bias_summed_over_rows) return bias_by_rows(of);
  of.gradients.grad_bias.shape[1] == 1 ? bias_on_one_rank(of) : bias_by_heads(of);
}

void write_grad_sinks(const BackwardOnRanks& of) {
  const OutputView<1>& output = of.gradients.grad_sinks;
  std::vector<double> sums(static_cast<std::size_t>(output.shape[0]));
  const auto add = [&](Index b) {
    // No key is needed.
    InputView<4> query = entry_of(of.query, b), key = entry_of(of.key, b), value = entry_of(of.value, b);
    key.shape[2] = value.shape[2] = 0;
    attention_backward_continued(query, key, value, saved_of_entry(of, b),
                                 {.sink_sums = TensorView<double, 1>(sums.data(), {output.shape[0]})},
                                 {.sinks = of.options.sinks}, of.runtime);
  };
  sum_in_row_order(of.ranks.messages(), of.call.problem.row_starts, of.call.extents.batch, sums, add, of.runtime.stop);
  const InputView<4> complete(sums.data(), ElementType::float64, {1, output.shape[0], 1, 1}, {0, 1, 0, 0});
  write_gradient(complete, {output.data, output.type, complete.shape, {0, output.strides[0], 0, 0}},
                 of.gradients.accumulate.grad_sinks);
}

}  // namespace regard::inline v0::internal
