// SPDX-License-Identifier: Apache-2.0
//
// attention_backward over several ranks.
//
//   heads   a rank computes key/value heads with all rows
//   rows    a rank computes rows with all heads; sums over rows are passed from rank to rank (key_gradient_chain.h)
//
// Read next: backward_call.h, backward_plan.cpp, docs/derivations/ranks.md.
#include <algorithm>
#include <string>

#include "backward_call.h"
#include "distributed/exchange/key_gradient_chain.h"
#include "distributed/plan/row_intervals.h"
#include "regard/distributed/attention.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace internal {
namespace {

const char* text_of(bool flag) { return flag ? "true" : "false"; }

// grad_sinks, as one element per head.
OutputView<4> by_head(const OutputView<1>& view) {
  if (view.absent()) return {};
  return {view.data, view.type, {1, view.shape[0], 1, 1}, {0, view.strides[0], 0, 0}};
}

// The type of the gradients of query, key and value.
ElementType gradient_type(const BackwardOnRanks& of) {
  const AttentionGradients& g = of.gradients;
  for (const OutputView<4>* view : {&g.grad_query, &g.grad_key, &g.grad_value}) {
    if (!view->absent()) return view->type;
  }
  return of.compute_type();
}

// Whether grad_bias is summed over rows, as far as this rank knows: 1 or 0, and −1 if its only row may be the sum.
Index summed_over_rows(const OutputView<4>& grad_bias, Index num_rows) {
  if (grad_bias.absent() || grad_bias.shape[2] != 1) return 0;
  return num_rows == 1 ? -1 : 1;
}
bool agree_on_sum(const std::vector<Index>& summed) {
  const auto with_sum = std::find(summed.begin(), summed.end(), 1),
             without = std::find(summed.begin(), summed.end(), 0);
  if (with_sum == summed.end()) return false;
  if (without != summed.end()) {
    throw InvalidArgument("attention_backward: rank " + std::to_string(with_sum - summed.begin()) +
                          ": grad_bias is summed over rows; expected one entry for each, as on rank " +
                          std::to_string(without - summed.begin()));
  }
  return true;
}

bool wants_rows_or_keys(const AttentionGradients& g) {
  return !g.grad_query.absent() || !g.grad_key.absent() || !g.grad_value.absent();
}

void run_by_heads(const BackwardOnRanks& of, const DistributedPlan& plan) {
  const AttentionGradients& g = of.gradients;
  CallArrays arrays;
  const MaskArrays masks(arrays, of.call, of.options, true);
  const BackwardInputs inputs(arrays, of);
  const auto of_keys = [&](const OutputView<4>& view) {
    return arrays.output(view, HeldIndices::keys, ArrayHeads::key_value, of.call.keys.first);
  };
  const std::size_t grad_query = arrays.row_output(g.grad_query, of.call);
  const std::size_t grad_key = of_keys(g.grad_key), grad_value = of_keys(g.grad_value);
  const std::size_t grad_sinks = arrays.output(by_head(g.grad_sinks), HeldIndices::all, ArrayHeads::query, 0);
  // Gradients are added to a sum before they are rounded, and all three have the same type.
  const bool any = g.accumulate.grad_query || g.accumulate.grad_key || g.accumulate.grad_value;
  for (const auto& [number, accumulate] : {std::pair{grad_query, g.accumulate.grad_query},
                                           {grad_key, g.accumulate.grad_key},
                                           {grad_value, g.accumulate.grad_value},
                                           {grad_sinks, g.accumulate.grad_sinks}}) {
    CallArray* const array = arrays.find(number);
    if (array && any) array->computed_type = of.compute_type();
    if (array) array->accumulate = accumulate;
  }
  HeadExchange exchange(of.call.problem, plan, arrays.take(), of.ranks.messages(), of.runtime.stop);
  exchange.run([&](const HeadWork& work) {
    const LocalArrays in(work.arrays);
    for_each_strip(of.call, of.options, masks, work, [&](const AttentionOptions& o, const IndexRange& rows) {
      const OutputView<4> sinks = in.output(grad_sinks);
      AttentionGradients written{
          .grad_query = in.output(grad_query), .grad_key = in.output(grad_key), .grad_value = in.output(grad_value)};
      if (!sinks.absent()) written.grad_sinks = {sinks.data, sinks.type, {sinks.shape[1]}, {sinks.strides[1]}};
      attention_backward(in.input(inputs.query), in.input(inputs.key), in.input(inputs.value), inputs.saved(in, rows),
                         written, o, of.runtime);
    });
  });
}

// The ranges of keys whose sums are passed on together. There are many more ranges than ranks, so that all ranks have
// work even with a causal mask, for which the first rank has the most rows and needs the longest for a range.
std::vector<Index> key_ranges(const BackwardOnRanks& of) {
  constexpr Index kRangesPerRank = 16;
  const CallExtents& extents = of.call.extents;
  // All ranks find the same ranges, because none of the rows are used.
  const LocalOptions none = local_options(of.options, extents, {0, 0}, {0, extents.num_heads}, of.call.rows.first, 0);
  InputView<4> query = of.query, key = of.key, value = of.value;
  query.shape[2] = 0;
  key.shape[2] = value.shape[2] = extents.num_keys;
  return backward_key_starts(query, key, value, of.saved, none.options,
                             extents.num_keys / (kRangesPerRank * of.ranks.num_ranks()));
}

// From this size on, a rank holds the sums of only one head, and waits until they have been sent. Below it, the memory
// saved is not worth the wait.
constexpr Index kLargeSums = Index{8} << 20;

void run_by_rows(const BackwardOnRanks& of, const DistributedPlan& plan) {
  const AttentionGradients& g = of.gradients;
  const DistributedProblem& problem = of.call.problem;
  const Index group = problem.num_heads / problem.num_kv_heads;
  KeyGradientChain chain(plan, key_ranges(of), group, of.ranks.messages(), of.runtime.stop);
  CallArrays arrays;
  const MaskArrays masks(arrays, of.call, of.options, !keeps_rows(problem, plan));
  const BackwardInputs inputs(arrays, of);
  const std::size_t grad_query = arrays.row_output(g.grad_query, of.call);
  if (CallArray* const array = arrays.find(grad_query)) {
    array->accumulate = g.accumulate.grad_query;
    if (array->accumulate) array->computed_type = of.compute_type();
  }
  const auto sums_of = [&](const OutputView<4>& view, bool accumulate) {
    const std::size_t number = arrays.output(view, HeldIndices::keys, ArrayHeads::key_value, of.call.keys.first);
    if (CallArray* const array = arrays.find(number)) {
      array->computed_type = of.compute_type();
      array->accumulate = accumulate;
      array->one_buffer =
          view.shape[0] * of.call.extents.num_keys * view.shape[3] * type_bytes(array->computed_type) >= kLargeSums;
      array->taken = chain.completed();
    }
    for (const IndexRange& keys : intersection(chain.unseen(), of.call.keys))
      write_zeros(cut(view, 2, keys.first - of.call.keys.first, keys.size()), accumulate);
    return number;
  };
  const std::size_t key_sums = sums_of(g.grad_key, g.accumulate.grad_key);
  const std::size_t value_sums = sums_of(g.grad_value, g.accumulate.grad_value);
  HeadExchange exchange(problem, plan, arrays.take(), of.ranks.messages(), of.runtime.stop, true);
  exchange.run([&](const HeadWork& work) {
    const LocalArrays in(work.arrays);
    std::vector<KeyGradientChain::Sums> sums;
    for (const std::size_t number : {key_sums, value_sums}) {
      if (number != CallArrays::kNone) sums.push_back({work.arrays[number], work.buffers[number]});
    }
    chain.start(std::move(sums));
    for_each_strip(of.call, of.options, masks, work, [&](const AttentionOptions& o, const IndexRange& rows) {
      const AttentionForwardState saved = inputs.saved(in, rows);
      for (Index head = 0; head < group; ++head) {
        const ContinuedGradients written{.grad_query = head_of(in.output(grad_query), head),
                                         .accumulate_query = work.in_place && g.accumulate.grad_query,
                                         .key_sums = in.output(key_sums),
                                         .value_sums = in.output(value_sums),
                                         .key_starts = chain.key_starts(),
                                         .before_range = [&](Index range) { chain.before(head, range); },
                                         .after_range = [&](Index range) { chain.after(head, range); }};
        attention_backward_continued(head_of(in.input(inputs.query), head), in.input(inputs.key),
                                     in.input(inputs.value),
                                     {.context = head_of(saved.context, head),
                                      .row_max = head_of(saved.row_max, head),
                                      .row_sum = head_of(saved.row_sum, head),
                                      .grad_context = head_of(saved.grad_context, head),
                                      .grad_lse = head_of(saved.grad_lse, head)},
                                     written, head_options(o, head), of.runtime);
      }
    });
  });
}

}  // namespace

}  // namespace internal

void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                        const AttentionForwardState& saved, const AttentionGradients& gradients,
                        const AttentionOptions& options, Ranks& ranks, const Runtime& runtime) {
  using namespace internal;
  if (ranks.num_ranks() == 1) {
    AttentionForwardState alone = saved;
    if (alone.fingerprint == AttentionFingerprint{}) alone.fingerprint = kUncheckedFingerprint;
    return attention_backward(query, key, value, alone, gradients, options, runtime);
  }
  Agreement agreement = agreement_on({"attention_backward", query, key, value, options});
  add_output(agreement, "grad_query", gradients.grad_query, 2);
  add_output(agreement, "grad_key", gradients.grad_key, 2);
  add_output(agreement, "grad_value", gradients.grad_value, 2);
  const OutputView<4>& grad_bias = gradients.grad_bias;
  add_output(agreement, "grad_bias", grad_bias, 2);
  const auto expect_like = [&](const char* name, const OutputView<4>& view, const InputView<4>& like) {
    if (!view.absent() && view.shape != like.shape)
      agreement.reject(std::string(name) + " has a different shape from its input");
  };
  expect_like("grad_key", gradients.grad_key, key);
  expect_like("grad_value", gradients.grad_value, value);
  agreement.add("grad_sinks", gradients.grad_sinks.absent() ? "missing" : "given");
  agreement.add("context", saved.context.absent() ? "missing" : type_name(saved.context.type));
  agreement.add("grad_context", saved.grad_context.absent() ? "missing" : type_name(saved.grad_context.type));
  agreement.add("grad_lse", saved.grad_lse.absent() ? "missing" : "given");
  const AttentionAccumulation& accumulate = gradients.accumulate;
  agreement.add("accumulate.grad_query", text_of(accumulate.grad_query));
  agreement.add("accumulate.grad_key", text_of(accumulate.grad_key));
  agreement.add("accumulate.grad_value", text_of(accumulate.grad_value));
  agreement.add("accumulate.grad_bias", text_of(accumulate.grad_bias));
  agreement.add("accumulate.grad_sinks", text_of(accumulate.grad_sinks));
  const std::size_t bias_rows = agreement.number(summed_over_rows(grad_bias, query.shape[2]));
  const auto check = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>& v, const AttentionOptions& o,
                         const Runtime& with) {
    AttentionForwardState state = saved;
    state.fingerprint = kUncheckedFingerprint;
    attention_backward(q, k, v, state,
                       {.grad_query = gradients.grad_query, .grad_bias = grad_bias, .grad_sinks = gradients.grad_sinks},
                       o, with);
  };
  const WholeCall call =
      agree_on_call({"attention_backward", query, key, value, options}, agreement, check, ranks, runtime.stop);
  const bool bias_summed_over_rows = agree_on_sum(agreement.numbers(bias_rows));
  if (call.extents.batch * call.extents.num_heads == 0) {
    // Every gradient is an empty sum.
    write_zeros(gradients.grad_key, accumulate.grad_key);
    write_zeros(gradients.grad_value, accumulate.grad_value);
    write_zeros(grad_bias, accumulate.grad_bias);
    return write_zeros(by_head(gradients.grad_sinks), accumulate.grad_sinks);
  }
  AttentionOptions named = options;
  const BackwardOnRanks of{query, key, value, saved, gradients, named, call, bias_summed_over_rows, ranks, runtime};
  // The default depends on the type of the gradients, and they may be computed in another type.
  named.weights_in_float32 = options.weights_in_float32.value_or(gradient_type(of) == ElementType::float32);
  run_call(ranks, [&] {
    const DistributedPlan plan = backward_plan(call, named);
    const bool by_rows = plan.scheme == DistributedScheme::rows;
    if (!grad_bias.absent()) write_grad_bias(of);
    if (!gradients.grad_sinks.absent() && (by_rows || !wants_rows_or_keys(gradients))) write_grad_sinks(of);
    if (!wants_rows_or_keys(gradients)) return;
    by_rows ? run_by_rows(of, plan) : run_by_heads(of, plan);
  });
}

}  // namespace regard::inline v0
