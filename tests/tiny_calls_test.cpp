// SPDX-License-Identifier: Apache-2.0
//
// Every operator on inputs that have several items in each of its loops, but fewer than a million products: no thread
// is started, and the plan reports that. Threads keep running once they are started, so this test has its own program.
// Read next: parallel_test.cpp, plan_test.cpp.
#include <filesystem>

#include "regard/adamw.h"
#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "regard/cross_entropy.h"
#include "regard/embedding.h"
#include "regard/kv_cache.h"
#include "regard/layer_norm.h"
#include "regard/linear_backward.h"
#include "regard/multi_head_backward.h"
#include "regard/plan.h"
#include "regard/rms_norm.h"
#include "regard/rotary.h"
#include "support/attention_checks.h"

namespace regard::tiny_calls_test {
namespace {

using Call = std::function<void(const Runtime&)>;

std::ptrdiff_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

void expect_no_thread(const char* name, const Call& call, bool has_plan = true) {
  const std::ptrdiff_t before = threads_of_this_process();
  call({.num_threads = 4});
  EXPECT_EQ(threads_of_this_process(), before) << name;
  if (!has_plan) return;
  const Plan made = plan(call, {.num_threads = 4});
  EXPECT_FALSE(made.operators.empty()) << name;
  for (const PlannedOperator& planned : made.operators)
    EXPECT_EQ(planned.num_threads, 1) << name << ": " << planned.name;
}

template <class T>
void check_attention() {
  constexpr Index H = 4, Hkv = 2, L = 61, S = 70, D = 8;
  Random random(1);
  const auto in = AttentionInputs<T>::normal(2, 1, H, Hkv, L, S, D, D);
  const auto bias = normal_array<T, 4>(random, {1, H, L, S});
  const auto grad_context = normal_array<T, 4>(random, {1, H, L, D});
  const std::vector<T> sinks(H, 1);
  AttentionOptions options{.query_offset = QueryAlignment::top_left, .bias = bias.view()};
  const auto packing = options;
  options.sinks = sinks;
  AttentionArrays<T> out = AttentionArrays<T>::dense(1, H, L, S, D);
  const TensorView<const T, 3> row_max = out.row_max->view(), row_sum = out.row_sum->view();
  AttentionFingerprint fingerprint;
  AttentionOutputs outputs = out.views();
  outputs.fingerprint = &fingerprint;
  expect_no_thread("attention_forward", [&](const Runtime& r) {
    attention_forward(in.query.view(), in.key.view(), in.value.view(), outputs, options, r);
  });
  const auto few = AttentionInputs<T>::normal(3, 1, H, H, 1, S, 32, 32);
  Array<T, 4> of_few({1, H, 1, 32});
  expect_no_thread("attention_forward of few rows", [&](const Runtime& r) {
    attention_forward(few.query.view(), few.key.view(), few.value.view(), {.context = of_few.view()},
                      {.query_offset = QueryAlignment::top_left}, r);
  });
  expect_no_thread("attention_with_weights", [&](const Runtime& r) {
    attention_with_weights<T>(in.query.view(), in.key.view(), in.value.view(), options, r);
  });
  expect_no_thread("attention_weights", [&](const Runtime& r) {
    attention_weights(in.query.view(), in.key.view(), {.row_max = row_max, .row_sum = row_sum}, out.weights->view(),
                      options, r);
  });

  Array<T, 3> entropy({1, H, L}), mass({1, H, S});
  Array<T, 2> of_heads({1, H});
  expect_no_thread("attention_with_statistics", [&](const Runtime& r) {
    attention_with_statistics(in.query.view(), in.key.view(), in.value.view(), {.context = out.context.view()},
                              {.entropy = entropy.view(), .head_largest_weight = of_heads.view()}, options, r);
  });
  Array<T, 4> map({1, H, 3, 5});
  expect_no_thread("attention_columns", [&](const Runtime& r) {
    attention_columns(in.query.view(), in.key.view(), {.row_max = row_max, .row_sum = row_sum},
                      {.key_mass = mass.view(), .pooled_map = map.view()}, options, r);
  });

  Array<T, 5> sums({1, 1, H, L, D});
  Array<T, 4> maxima({1, 1, H, L}), row_sums({1, 1, H, L});
  const AttentionPartialOutputs partials{
      .accumulator = sums.view(), .row_max = maxima.view(), .row_sum = row_sums.view()};
  expect_no_thread("attention_partials", [&](const Runtime& r) {
    attention_partials(in.query.view(), in.key.view(), in.value.view(), partials, packing, r);
  });
  expect_no_thread("attention_merge", [&](const Runtime& r) {
    attention_merge({.accumulator = sums.view(), .row_max = maxima.view(), .row_sum = row_sums.view()}, sinks,
                    {.context = out.context.view()}, r);
  });
  expect_no_thread("attention_merge_lse", [&](const Runtime& r) {
    attention_merge_lse(sums.view(), maxima.view(), {.context = out.context.view()}, r);
  });

  Array<T, 4> grad_query({1, H, L, D}), grad_key({1, Hkv, S, D}), grad_value({1, Hkv, S, D}), grad_bias({1, H, L, S});
  Array<T, 1> grad_sinks({H});
  const auto saved = [&] {
    return AttentionForwardState{.context = std::as_const(out.context).view(),
                                 .row_max = row_max,
                                 .row_sum = row_sum,
                                 .grad_context = grad_context.view(),
                                 .fingerprint = fingerprint};
  };
  expect_no_thread("attention_backward", [&](const Runtime& r) {
    attention_backward(in.query.view(), in.key.view(), in.value.view(), saved(),
                       AttentionGradients{.grad_query = grad_query.view(),
                                          .grad_key = grad_key.view(),
                                          .grad_value = grad_value.view(),
                                          .grad_bias = grad_bias.view(),
                                          .grad_sinks = grad_sinks.view()},
                       options, r);
  });

  KvCache<T> cache({.num_sequences = 2, .num_kv_heads = Hkv, .head_size = D, .value_head_size = D, .capacity = 128});
  for (Index s = 0; s < 2; ++s) {
    const auto of_batch = [](const TensorView<const T, 4>& v) {
      return TensorView<const T, 3>(v.data, {v.shape[1], v.shape[2], v.shape[3]},
                                    {v.strides[1], v.strides[2], v.strides[3]});
    };
    cache.append(s, of_batch(in.key.view()), of_batch(in.value.view()));
  }
  const auto tokens = normal_array<T, 4>(random, {2, H, 1, D});
  Array<T, 4> decoded({2, H, 1, D});
  expect_no_thread("attention_decode", [&](const Runtime& r) {
    attention_decode(tokens.view(), cache, {.context = decoded.view()}, {.query_offset = QueryAlignment::bottom_right},
                     r);
  });
}

template <class T, int Rank>
Array<T, Rank> numbers(Random& random, const typename TensorView<T, Rank>::Shape& shape) {
  Array<T, Rank> array(shape);
  array.fill([&] { return static_cast<ComputeType<T>>(random.normal()); });
  return array;
}

template <class T>
void check_layers() {
  constexpr Index R = 61, I = 16, O = 100;
  Random random(4);
  const auto input = numbers<T, 2>(random, {R, I}), parameters = numbers<T, 2>(random, {I, O});
  const auto grad_output = numbers<T, 2>(random, {R, O});
  const auto bias = numbers<T, 1>(random, {O}), gain = numbers<T, 1>(random, {I});
  Array<T, 2> output({R, O}), grad_input({R, I}), grad_weight({I, O}), normed({R, I});
  Array<T, 1> grad_bias({O});
  expect_no_thread("linear_forward", [&](const Runtime& r) {
    linear_forward<T>(input.view(), parameters.view(), bias.view(), output.view(), r);
  });
  expect_no_thread("PackedLinear", [&](const Runtime& r) { PackedLinear<T>(parameters.view(), r); }, false);
  const PackedLinear<T> packed(parameters.view(), {.num_threads = 1});
  expect_no_thread("linear_forward of packed parameters", [&](const Runtime& r) {
    linear_forward<T>(input.view(), packed, bias.view(), output.view(), {.activation = Activation::gelu}, r);
  });
  expect_no_thread("linear_backward", [&](const Runtime& r) {
    linear_backward<T>(
        input.view(), parameters.view(), grad_output.view(),
        {.grad_input = grad_input.view(), .grad_weight = grad_weight.view(), .grad_bias = grad_bias.view()}, r);
  });
  expect_no_thread("activation_forward",
                   [&](const Runtime& r) { activation_forward<T>(input.view(), normed.view(), Activation::silu, r); });
  expect_no_thread("activation_backward", [&](const Runtime& r) {
    activation_backward<T>(input.view(), input.view(), {.grad_input = normed.view()}, Activation::gelu, r);
  });
  expect_no_thread("swiglu_forward",
                   [&](const Runtime& r) { swiglu_forward<T>(input.view(), input.view(), normed.view(), r); });
  expect_no_thread("swiglu_backward", [&](const Runtime& r) {
    swiglu_backward<T>(input.view(), input.view(), input.view(),
                       {.grad_gate = normed.view(), .grad_up = grad_input.view()}, r);
  });
  const auto query = numbers<T, 4>(random, {1, 4, R, I});
  Array<T, 4> rotated({1, 4, R, I});
  expect_no_thread("rotary_forward", [&](const Runtime& r) { rotary_forward<T>(query.view(), rotated.view(), {}, r); });
  expect_no_thread("rotary_backward",
                   [&](const Runtime& r) { rotary_backward<T>(query.view(), rotated.view(), {}, false, r); });
  Array<Index, 1> indices({R});
  indices.fill([&] { return random.integer(0, I - 1); });
  Array<T, 2> embedded({R, O}), grad_table({I, O});
  expect_no_thread("embedding_forward", [&](const Runtime& r) {
    embedding_forward<T>(parameters.view(), indices.view(), embedded.view(), {.accumulate = true}, r);
  });
  expect_no_thread("embedding_backward", [&](const Runtime& r) {
    embedding_backward<T>(indices.view(), grad_output.view(), {.grad_table = grad_table.view()}, r);
  });
  expect_no_thread("cross_entropy_forward", [&](const Runtime& r) {
    cross_entropy_forward<T>(grad_output.view(), indices.view(), {.grad_logits = embedded.view()}, {}, r);
  });
  const auto grad_normed = numbers<T, 2>(random, {R, I});
  Array<T, 1> grad_gain({I}), grad_norm_bias({I});
  expect_no_thread("layer_norm_forward", [&](const Runtime& r) {
    layer_norm_forward<T>(input.view(), {}, gain.view(), gain.view(), normed.view(), 1e-5, r);
  });
  expect_no_thread("layer_norm_backward", [&](const Runtime& r) {
    layer_norm_backward<T>(
        input.view(), {}, gain.view(), grad_normed.view(),
        {.grad_input = normed.view(), .grad_gain = grad_gain.view(), .grad_bias = grad_norm_bias.view()}, 1e-5, r);
  });
  expect_no_thread("rms_norm_forward", [&](const Runtime& r) {
    rms_norm_forward<T>(input.view(), {}, gain.view(), normed.view(), 1e-5, r);
  });
  expect_no_thread("rms_norm_backward", [&](const Runtime& r) {
    rms_norm_backward<T>(input.view(), {}, gain.view(), grad_normed.view(),
                         {.grad_input = normed.view(), .grad_gain = grad_gain.view()}, 1e-5, r);
  });
  if constexpr (!std::same_as<T, bfloat16>) {
    std::vector<T> trained(20000), gradients(20000), first_moment(20000), second_moment(20000);
    expect_no_thread("adamw_step", [&](const Runtime& r) {
      adamw_step<T>(trained, gradients, first_moment, second_moment, {.step = 1}, r);
    });
    const auto tokens = numbers<T, 3>(random, {1, R, I});
    const auto wide = numbers<T, 2>(random, {I, 32}), narrow = numbers<T, 2>(random, {I, 16});
    const auto joined = numbers<T, 2>(random, {32, I});
    Array<T, 3> attended({1, R, I});
    expect_no_thread("multi_head_attention_forward", [&](const Runtime& r) {
      multi_head_attention_forward<T>(tokens.view(), {},
                                      {.num_heads = 4,
                                       .num_kv_heads = 2,
                                       .w_query = wide.view(),
                                       .w_key = narrow.view(),
                                       .w_value = narrow.view(),
                                       .w_output = joined.view()},
                                      {.output = attended.view()}, {}, r);
    });
    const auto grad_attended = numbers<T, 3>(random, {1, R, I});
    Array<T, 4> queries({1, 4, R, 8}), keys({1, 2, R, 8}), values({1, 2, R, 8}), context({1, 4, R, 8});
    Array<T, 3> row_max({1, 4, R}), row_sum({1, 4, R}), grad_tokens({1, R, I});
    const MultiHeadParameters<T> block{.num_heads = 4,
                                       .num_kv_heads = 2,
                                       .w_query = wide.view(),
                                       .w_key = narrow.view(),
                                       .w_value = narrow.view(),
                                       .w_output = joined.view()};
    multi_head_attention_forward<T>(
        tokens.view(), {}, block,
        {attended.view(), queries.view(), keys.view(), values.view(), context.view(), row_max.view(), row_sum.view()},
        {}, {.num_threads = 1});
    expect_no_thread("multi_head_attention_backward", [&](const Runtime& r) {
      multi_head_attention_backward<T>(
          tokens.view(), {}, block,
          {queries.view(), keys.view(), values.view(), context.view(), row_max.view(), row_sum.view()},
          grad_attended.view(), {.grad_input = grad_tokens.view()}, {}, r);
    });
  }
}

TEST(TinyCalls, DoNotStartThreads) {
  check_attention<float>();
  check_attention<double>();
  check_layers<float>();
  check_layers<double>();
  check_layers<bfloat16>();
  // A call with enough work does start threads.
  const std::ptrdiff_t before = threads_of_this_process();
  run_attention<float>(AttentionInputs<float>::normal(5, 1, 4, 4, 200, 200, 8, 8), {}, {.num_threads = 4});
  EXPECT_EQ(threads_of_this_process(), before + 3);
}

}  // namespace
}  // namespace regard::tiny_calls_test
