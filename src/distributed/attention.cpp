// SPDX-License-Identifier: Apache-2.0
//
// Forward, statistics, columns and backward over several ranks: each is the function of one machine, called for one
// key/value head and some rows at a time.
//
//   agree_on_call ──▶ plan ──▶ HeadExchange ──▶ the function of one machine, for each head and range of rows
//
// Read next: whole_call.h, head_exchange.h, decode.cpp.
#include "regard/distributed/attention.h"

#include <algorithm>

#include "head_exchange.h"
#include "plan_choice.h"
#include "whole_call.h"

namespace regard::inline v0 {
namespace internal {
namespace {

// Every array of a call, by name, and its place among those that travel.
class CallArrays {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t input(const HeldArray& held, HeldIndices indices, ArrayHeads heads) {
    arrays_.push_back({held, indices, heads, false});
    return arrays_.size() - 1;
  }
  // kNone if the view is absent.
  template <class View>
  std::size_t row_output(const View& view, const WholeCall& call) {
    return output(view, HeldIndices::rows, ArrayHeads::query, call.rows.first);
  }
  template <class View>
  std::size_t row_input(const View& view, const WholeCall& call) {
    return view.absent() ? kNone : input(held(view, call.rows.first), HeldIndices::rows, ArrayHeads::query);
  }
  template <class View>
  std::size_t output(const View& view, HeldIndices indices, ArrayHeads heads, Index first) {
    if (view.absent()) return kNone;
    arrays_.push_back({held(view, first), indices, heads, true});
    return arrays_.size() - 1;
  }
  std::vector<CallArray> take() { return std::move(arrays_); }

 private:
  std::vector<CallArray> arrays_;
};

// The arrays of one head, as views; absent if they do not travel.
class LocalArrays {
 public:
  explicit LocalArrays(const std::vector<HeldArray>& arrays) : arrays_(arrays) {}
  InputView<4> input(std::size_t n) const { return n == CallArrays::kNone ? InputView<4>{} : arrays_[n].input(); }
  InputView<3> input3(std::size_t n) const { return n == CallArrays::kNone ? InputView<3>{} : arrays_[n].input3(); }
  OutputView<4> output(std::size_t n) const { return n == CallArrays::kNone ? OutputView<4>{} : arrays_[n].output(); }
  OutputView<3> output3(std::size_t n) const { return n == CallArrays::kNone ? OutputView<3>{} : arrays_[n].output3(); }

 private:
  const std::vector<HeldArray>& arrays_;
};

// Masks and biases by element, which travel with the scheme heads.
struct MaskArrays {
  std::size_t mask = CallArrays::kNone, bias = CallArrays::kNone;

  MaskArrays(CallArrays& arrays, const WholeCall& call, const AttentionOptions& options, DistributedScheme scheme) {
    if (scheme != DistributedScheme::heads) return;
    const auto add = [&](const InputView<4>& view) {
      return arrays.input(held(view, call.rows.first), HeldIndices::rows,
                          view.shape[1] == 1 ? ArrayHeads::shared : ArrayHeads::query);
    };
    if (call.mask_by_row) mask = add(options.mask);
    if (call.bias_by_row) bias = add(options.bias);
  }
};

template <class View>
View rows_of(const View& view, const IndexRange& rows) {
  return cut(view, 2, rows.first, rows.size());
}

// Calls `compute` with the options of a head and some rows, and those rows within the range of the arrays.
template <class F>
void for_each_strip(const WholeCall& call, const AttentionOptions& options, const MaskArrays& masks,
                    const LocalArrays& arrays, Index kv_head, const IndexRange& rows, const F& compute) {
  const Index group = call.extents.num_heads / call.extents.num_kv_heads;
  const IndexRange heads{kv_head * group, (kv_head + 1) * group};
  for (const IndexRange& part : strips(options, rows)) {
    LocalOptions local = local_options(options, call.extents, part, heads, call.rows.first, 0);
    const auto set_rows = [&](std::size_t n, InputView<4>& view) {
      if (n != CallArrays::kNone) view = rows_of(arrays.input(n), {part.first - rows.first, part.end - rows.first});
    };
    set_rows(masks.mask, local.options.mask);
    set_rows(masks.bias, local.options.bias);
    compute(local.options, IndexRange{part.first - rows.first, part.end - rows.first});
  }
}

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
  std::size_t head_entropy, head_largest_weight, head_chosen_weight, head_mean_distance;
};

// (B, H) as an array of one index.
template <class View2>
OutputView<4> as_heads(const View2& view) {
  if (view.absent()) return {};
  return {view.data, view.type, {view.shape[0], view.shape[1], 1, 1}, {view.strides[0], view.strides[1], 0, 0}};
}
OutputView<2> as_pairs(const OutputView<4>& view) {
  if (view.absent()) return {};
  return {view.data, view.type, {view.shape[0], view.shape[1]}, {view.strides[0], view.strides[1]}};
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
  const WholeCall call =
      agree_on_call({function, query, key, value, options}, std::move(agreement), check, ranks, runtime.stop);
  if (outputs.fingerprint) *outputs.fingerprint = kUncheckedFingerprint;
  if (call.extents.batch * call.extents.num_heads == 0) return;

  const bool by_head = !s.head_entropy.absent() || !s.head_largest_weight.absent() || !s.head_chosen_weight.absent() ||
                       !s.head_mean_distance.absent();
  const DistributedPlan plan =
      by_head ? plan_heads(call.problem) : plan_of_rows(call, !call.mask_by_row && !call.bias_by_row);
  CallArrays arrays;
  const MaskArrays masks(arrays, call, options, plan.scheme);
  const std::size_t q = arrays.input(held(query, call.rows.first), HeldIndices::rows, ArrayHeads::query);
  const std::size_t k = arrays.input(held(key, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t v = arrays.input(held(value, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t context = arrays.row_output(outputs.context, call);
  const std::size_t row_max = arrays.row_output(outputs.row_max, call);
  const std::size_t row_sum = arrays.row_output(outputs.row_sum, call);
  const std::size_t lse = arrays.row_output(outputs.lse, call);
  const std::size_t weights = arrays.row_output(outputs.weights, call);
  const std::size_t sink_weights = arrays.row_output(outputs.sink_weights, call);
  const auto of_heads = [&](const OutputView<2>& view) {
    return arrays.output(as_heads(view), HeldIndices::all, ArrayHeads::query, 0);
  };
  const StatisticsArrays of{arrays.row_output(s.top_keys, call),
                            arrays.row_output(s.top_weights, call),
                            arrays.row_output(s.entropy, call),
                            arrays.row_output(s.largest_weight, call),
                            arrays.row_output(s.chosen_weight, call),
                            arrays.row_output(s.mean_distance, call),
                            of_heads(s.head_entropy),
                            of_heads(s.head_largest_weight),
                            of_heads(s.head_chosen_weight),
                            of_heads(s.head_mean_distance)};
  run_call(ranks, [&] {
    HeadExchange(call.problem, plan, arrays.take(), ranks.messages(), runtime.stop)
        .run([&](Index kv_head, const IndexRange& rows, const std::vector<HeldArray>& local) {
          const LocalArrays in(local);
          const auto run_part = [&](const AttentionOptions& o, const IndexRange& part) {
            const AttentionOutputs written{.context = rows_of(in.output(context), part),
                                           .row_max = rows_of(in.output3(row_max), part),
                                           .row_sum = rows_of(in.output3(row_sum), part),
                                           .lse = rows_of(in.output3(lse), part),
                                           .weights = rows_of(in.output(weights), part),
                                           .sink_weights = rows_of(in.output3(sink_weights), part)};
            AttentionStatistics of_rows = s;
            of_rows.chosen_ranges = ranges_of({rows.first + part.first, rows.first + part.end});
            of_rows.top_keys = rows_of(in.output(of.top_keys), part);
            of_rows.top_weights = rows_of(in.output(of.top_weights), part);
            of_rows.entropy = rows_of(in.output3(of.entropy), part);
            of_rows.largest_weight = rows_of(in.output3(of.largest_weight), part);
            of_rows.chosen_weight = rows_of(in.output3(of.chosen_weight), part);
            of_rows.mean_distance = rows_of(in.output3(of.mean_distance), part);
            of_rows.head_entropy = as_pairs(in.output(of.head_entropy));
            of_rows.head_largest_weight = as_pairs(in.output(of.head_largest_weight));
            of_rows.head_chosen_weight = as_pairs(in.output(of.head_chosen_weight));
            of_rows.head_mean_distance = as_pairs(in.output(of.head_mean_distance));
            call_local(rows_of(in.input(q), part), in.input(k), in.input(v), written, of_rows, o, runtime);
          };
          for_each_strip(call, options, masks, in, kv_head, rows, run_part);
        });
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

void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                       const AttentionColumns& outputs, const AttentionOptions& options, Ranks& ranks,
                       const Runtime& runtime) {
  using namespace internal;
  if (ranks.num_ranks() == 1) return attention_columns(query, key, request, outputs, options, runtime);
  Agreement agreement = agreement_on({"attention_columns", query, key, {}, options});
  add_output(agreement, "key_mass", outputs.key_mass, 2);
  add_output(agreement, "pooled_map", outputs.pooled_map, 4);
  const OutputView<3>& key_mass = outputs.key_mass;
  if (!key_mass.absent() && key_mass.shape != std::array{query.shape[0], query.shape[1], key.shape[2]})
    agreement.reject("key_mass has another shape than (B, H, keys of this rank)");
  if (!outputs.pooled_map.absent() &&
      (outputs.pooled_map.shape[0] != query.shape[0] || outputs.pooled_map.shape[1] != query.shape[1]))
    agreement.reject("pooled_map has another shape than (B, H, strips, strips)");
  agreement.add("cells", request.cells == MapCells::means ? "means" : "sums");
  agreement.add("row_max", request.row_max.absent() ? "missing" : "given");
  agreement.add("row_sum", request.row_sum.absent() ? "missing" : "given");
  const auto check = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>&, const AttentionOptions& o,
                         const Runtime& with) { attention_columns(q, k, request, {}, o, with); };
  const WholeCall call =
      agree_on_call({"attention_columns", query, key, {}, options}, std::move(agreement), check, ranks, runtime.stop);
  if (call.extents.batch * call.extents.num_heads == 0) return;
  const DistributedPlan plan = plan_heads(call.problem);
  CallArrays arrays;
  const MaskArrays masks(arrays, call, options, plan.scheme);
  const std::size_t q = arrays.row_input(query, call);
  const std::size_t k = arrays.input(held(key, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t row_max = arrays.row_input(request.row_max, call);
  const std::size_t row_sum = arrays.row_input(request.row_sum, call);
  const std::size_t mass = arrays.output(outputs.key_mass, HeldIndices::keys, ArrayHeads::query, call.keys.first);
  const std::size_t map = arrays.output(outputs.pooled_map, HeldIndices::all, ArrayHeads::query, 0);
  run_call(ranks, [&] {
    HeadExchange(call.problem, plan, arrays.take(), ranks.messages(), runtime.stop)
        .run([&](Index kv_head, const IndexRange& rows, const std::vector<HeldArray>& local) {
          const LocalArrays in(local);
          for_each_strip(call, options, masks, in, kv_head, rows, [&](const AttentionOptions& o, const IndexRange&) {
            attention_columns(in.input(q), in.input(k), {in.input3(row_max), in.input3(row_sum), request.cells},
                              {in.output3(mass), in.output(map)}, o, runtime);
          });
        });
  });
}

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
  add_output(agreement, "grad_bias", gradients.grad_bias, 2);
  const auto expect_like = [&](const char* name, const OutputView<4>& view, const InputView<4>& like) {
    if (!view.absent() && view.shape != like.shape)
      agreement.reject(std::string(name) + " has another shape than its input");
  };
  expect_like("grad_key", gradients.grad_key, key);
  expect_like("grad_value", gradients.grad_value, value);
  agreement.add("grad_sinks", gradients.grad_sinks.absent() ? "missing" : "given");
  agreement.add("grad_lse", saved.grad_lse.absent() ? "missing" : "given");
  const AttentionAccumulation& add = gradients.accumulate;
  if (add.grad_query || add.grad_key || add.grad_value || add.grad_bias || add.grad_sinks)
    agreement.reject("accumulate is set; expected gradients that are overwritten");
  const OutputView<4>& grad_bias = gradients.grad_bias;
  if (!grad_bias.absent() && (grad_bias.shape[0] != query.shape[0] || grad_bias.shape[1] != query.shape[1] ||
                              grad_bias.shape[2] != query.shape[2]))
    agreement.reject("grad_bias is a sum over batch entries, heads or rows; expected one entry for each");
  const auto check = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>& v, const AttentionOptions& o,
                         const Runtime& with) {
    AttentionForwardState state = saved;
    state.fingerprint = kUncheckedFingerprint;
    attention_backward(q, k, v, state,
                       {.grad_query = gradients.grad_query, .grad_bias = grad_bias, .grad_sinks = gradients.grad_sinks},
                       o, with);
  };
  const WholeCall call = agree_on_call({"attention_backward", query, key, value, options}, std::move(agreement), check,
                                       ranks, runtime.stop);
  const OutputView<1>& sinks = gradients.grad_sinks;
  OutputView<4> sinks_by_head;
  if (!sinks.absent()) sinks_by_head = {sinks.data, sinks.type, {1, sinks.shape[0], 1, 1}, {0, sinks.strides[0], 0, 0}};
  if (call.extents.batch * call.extents.num_heads == 0) {
    // Nothing is computed: every gradient is a sum without terms.
    for (const OutputView<4>& view : {gradients.grad_key, gradients.grad_value, sinks_by_head}) held(view, 0).clear();
    return;
  }
  const DistributedPlan plan = plan_heads(call.problem);
  CallArrays arrays;
  const MaskArrays masks(arrays, call, options, plan.scheme);
  const std::size_t q = arrays.row_input(query, call);
  const std::size_t k = arrays.input(held(key, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t v = arrays.input(held(value, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
  const std::size_t context = arrays.row_input(saved.context, call);
  const std::size_t row_max = arrays.row_input(saved.row_max, call);
  const std::size_t row_sum = arrays.row_input(saved.row_sum, call);
  const std::size_t grad_context = arrays.row_input(saved.grad_context, call);
  const std::size_t grad_lse = arrays.row_input(saved.grad_lse, call);
  const std::size_t grad_query = arrays.row_output(gradients.grad_query, call);
  const std::size_t grad_bias_rows = arrays.row_output(grad_bias, call);
  const auto of_keys = [&](const OutputView<4>& view) {
    return arrays.output(view, HeldIndices::keys, ArrayHeads::key_value, call.keys.first);
  };
  const std::size_t grad_key = of_keys(gradients.grad_key), grad_value = of_keys(gradients.grad_value);
  const std::size_t grad_sinks = arrays.output(sinks_by_head, HeldIndices::all, ArrayHeads::query, 0);
  run_call(ranks, [&] {
    HeadExchange(call.problem, plan, arrays.take(), ranks.messages(), runtime.stop)
        .run([&](Index kv_head, const IndexRange& rows, const std::vector<HeldArray>& local) {
          const LocalArrays in(local);
          for_each_strip(call, options, masks, in, kv_head, rows, [&](const AttentionOptions& o, const IndexRange&) {
            const OutputView<4> of_sinks = in.output(grad_sinks);
            AttentionGradients written{.grad_query = in.output(grad_query),
                                       .grad_key = in.output(grad_key),
                                       .grad_value = in.output(grad_value),
                                       .grad_bias = in.output(grad_bias_rows)};
            if (!of_sinks.absent())
              written.grad_sinks = {of_sinks.data, of_sinks.type, {of_sinks.shape[1]}, {of_sinks.strides[1]}};
            attention_backward(in.input(q), in.input(k), in.input(v),
                               {.context = in.input(context),
                                .row_max = in.input3(row_max),
                                .row_sum = in.input3(row_sum),
                                .grad_context = in.input(grad_context),
                                .grad_lse = in.input3(grad_lse),
                                .fingerprint = kUncheckedFingerprint},
                               written, o, runtime);
          });
        });
  });
}

}  // namespace regard::inline v0
