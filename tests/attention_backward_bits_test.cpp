// SPDX-License-Identifier: Apache-2.0
//
// Guarantees of attention_backward besides its numerical results:
//
//   bits     the same for all threads, batches, layouts and instruction sets with fused multiply-add; narrow types are
//            the wide ones rounded once; grouped heads are the sum of their heads
//   corners  fully masked rows and keys have gradients of exactly 0, whatever is stored there; no rows, no keys
//   memory   a bound on the workspace, and what plan() reports
//   errors   a caller's mistake is rejected before any work
//   options  those of the forward call, or they are rejected by name
//
// Read next: attention_backward_test.cpp.
#include "regard/kv_cache.h"
#include "regard/plan.h"
#include "support/backward_cases.h"
#include "support/counting_memory.h"

namespace regard::attention_backward_bits_test {
namespace {

template <class T>
class BackwardBits : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(BackwardBits, Types);

// Several key blocks and row blocks; four query heads, two KV heads.
template <class T>
AttentionCase<T> long_case(Index queries, Index keys, Index head_size = 8) {
  Random random(5);
  AttentionCase<T> call;
  call.query = normal_array<T, 4>(random, {1, 4, queries, head_size});
  call.key = normal_array<T, 4>(random, {1, 2, keys, head_size});
  call.value = normal_array<T, 4>(random, {1, 2, keys, head_size + 1});
  call.options.causal = true;
  call.options.query_offset = QueryAlignment::bottom_right;
  return call;
}

TYPED_TEST(BackwardBits, ThreadsAndInstructionSetsDoNotChangeBits) {
  using T = TypeParam;
  std::vector<std::uint64_t> first;
  for (const kernels::KernelTable* table : fused_instruction_sets()) {
    const ActiveTable active(*table);
    // 2,100 keys are nine blocks of 256, so three slots have two blocks each.
    BackwardCase<T> test(long_case<T>(190, 2100));
    test.call.bias_f32 = Array<float, 4>({1, 1, 190, 2100});
    test.call.bias_f32.fill([n = 0]() mutable { return (n++ % 17) * 0.25; });
    test.call.options.bias = std::as_const(test.call.bias_f32).view();
    test.run_forward();
    for (const int threads : {1, 2, 3, 7, 16}) {
      Runtime runtime;
      runtime.num_threads = threads;
      GradientArrays<T> g = outputs_of(test.call);
      g.bias = Array<T, 4>({1, 1, 1, 2100});
      test.run(g, runtime);
      if (first.empty()) first = all_bits(g);
      EXPECT_TRUE(same_bits(all_bits(g), first)) << table->name << ", " << threads << " threads";
    }
  }
}

TYPED_TEST(BackwardBits, OtherBatchEntriesAndLayoutsDoNotChangeBits) {
  using T = TypeParam;
  Random random(9);
  AttentionCase<T> both;
  both.query = normal_array<T, 4>(random, {2, 2, 70, 24});
  both.key = normal_array<T, 4>(random, {2, 1, 130, 24});
  both.value = normal_array<T, 4>(random, {2, 1, 130, 40});
  Layout<4> layout = Layout<4>::dense();
  std::swap(layout.order[1], layout.order[2]);
  layout.lead_bytes = 3;
  const BackwardCase<T> whole(std::move(both));
  GradientArrays<T> of_whole = outputs_of(whole.call);
  whole.run(of_whole);
  for (Index b = 0; b < 2; ++b) {
    AttentionCase<T> call;
    call.query = batch_entry(whole.call.query, b, layout);
    call.key = batch_entry(whole.call.key, b, layout);
    call.value = batch_entry(whole.call.value, b, layout);
    BackwardCase<T> test(std::move(call));
    test.grad_context = batch_entry(whole.grad_context, b, layout);
    test.grad_lse = batch_entry(whole.grad_lse, b);
    GradientArrays<T> g = outputs_of(test.call);
    test.run(g);
    EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(batch_entry(of_whole.query, b))));
    EXPECT_TRUE(same_bits(bits_of(g.key), bits_of(batch_entry(of_whole.key, b))));
    EXPECT_TRUE(same_bits(bits_of(g.value), bits_of(batch_entry(of_whole.value, b))));
  }
}

TYPED_TEST(BackwardBits, EachGradientCanBeRequestedAlone) {
  using T = TypeParam;
  const BackwardCase<T> test(long_case<T>(70, 300));
  GradientArrays<T> all = outputs_of(test.call);
  test.run(all);
  expect_the_same_alone(test, all);
}

template <class E>
void narrow_gradients_are_rounded_once() {
  // On sets that multiply pairs of bfloat16 values, the scores have different bits.
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    if (table.bf16_dot && std::same_as<E, bfloat16>) return;
    BackwardCase<float> wide(long_case<float>(70, 300, 33));
    AttentionCase<E> narrow;
    const auto round = [](Array<float, 4>& from) {
      Array<E, 4> to(from.shape());
      to.for_each_index([&](const auto& at) {
        to.set(at, E(from.get(at)));
        from.set(at, static_cast<float>(to.get(at)));
      });
      return to;
    };
    const Array<E, 4> query = round(wide.call.query), key = round(wide.call.key), value = round(wide.call.value);
    const Array<E, 4> grad_context = round(wide.grad_context);
    wide.run_forward();
    const Array<E, 4> context = round(wide.forward.context);
    GradientArrays<float> expected = outputs_of(wide.call);
    wide.run(expected);
    GradientArrays<E> g;
    g.query = Array<E, 4>(query.shape());
    g.key = Array<E, 4>(key.shape());
    g.value = Array<E, 4>(value.shape());
    AttentionForwardState saved = wide.saved();
    saved.context = context.view();
    saved.grad_context = grad_context.view();
    attention_backward(query.view(), key.view(), value.view(), saved, g.views(), wide.call.options);
    EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(round(expected.query))));
    EXPECT_TRUE(same_bits(bits_of(g.key), bits_of(round(expected.key))));
    EXPECT_TRUE(same_bits(bits_of(g.value), bits_of(round(expected.value))));
  });
}

TEST(BackwardTypes, NarrowGradientsEqualWideOnesRoundedOnce) {
  narrow_gradients_are_rounded_once<bfloat16>();
  narrow_gradients_are_rounded_once<float16>();
}

// ---- accumulation

// Existing values to which the gradients are added.
template <class T, int Rank>
Array<T, Rank> filled(const std::array<Index, Rank>& shape, const Layout<Rank>& layout = Layout<Rank>::dense()) {
  Random random(11);
  const auto numbers = normal_array<ComputeType<T>, Rank>(random, shape);
  Array<T, Rank> rounded(shape, layout);
  numbers.for_each_index([&](const auto& at) { rounded.set(at, T(numbers.get(at))); });
  return rounded;
}

// The same for query, key and value of a call.
template <class T, class Case>
GradientArrays<T> filled_outputs(const Case& call, const Layout<4>& layout = Layout<4>::dense()) {
  GradientArrays<T> g;
  g.query = filled<T, 4>(call.query.shape(), layout);
  g.key = filled<T, 4>(call.key.shape(), layout);
  g.value = filled<T, 4>(call.value.shape(), layout);
  return g;
}

// old + gradient, added in the type of the gradient and rounded once to the type of old.
template <class S, class T, int Rank>
Array<S, Rank> sum_of(const Array<S, Rank>& old, const Array<T, Rank>& gradient) {
  Array<S, Rank> sum(old.shape());
  sum.for_each_index([&](const auto& at) { sum.set(at, S(static_cast<T>(old.get(at)) + gradient.get(at))); });
  return sum;
}

TYPED_TEST(BackwardBits, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  Layout<4> turned = Layout<4>::dense();
  std::swap(turned.order[1], turned.order[3]);
  turned.lead_bytes = 3;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    // No row attends to the last keys; with 5 keys, the first rows are fully masked.
    for (const auto& [queries, keys] : {std::pair<Index, Index>{70, 700}, {64, 5}, {9, 0}}) {
      AttentionCase<T> call = long_case<T>(queries, keys);
      call.options.query_offset = Index{keys > 64 ? keys - 2 * queries : -queries / 2};
      call.bias_f32 = Array<float, 4>({1, 4, 1, keys});
      call.sinks = {0.5, -1, 0, 2};
      BackwardCase<T> test(std::move(call));
      test.call.options.bias = std::as_const(test.call.bias_f32).view();
      test.call.options.sinks = test.call.sinks;
      test.run_forward();
      const auto buffers = [&](const Layout<4>& layout) {
        GradientArrays<T> g = filled_outputs<T>(test.call, layout);
        g.bias = filled<T, 4>({1, 4, 1, keys}, layout);
        g.sinks = filled<T, 1>({4});
        return g;
      };
      const GradientArrays<T> old = buffers(Layout<4>::dense());
      GradientArrays<T> fresh = buffers(Layout<4>::dense());
      test.run(fresh);
      for (const int threads : {1, 5}) {
        Runtime runtime;
        runtime.num_threads = threads;
        GradientArrays<T> g = buffers(turned);
        AttentionGradients views = g.views();
        views.accumulate = {
            .grad_query = true, .grad_key = true, .grad_value = true, .grad_bias = true, .grad_sinks = true};
        test.run(views, runtime);
        EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(sum_of(old.query, fresh.query))));
        EXPECT_TRUE(same_bits(bits_of(g.key), bits_of(sum_of(old.key, fresh.key))));
        EXPECT_TRUE(same_bits(bits_of(g.value), bits_of(sum_of(old.value, fresh.value))));
        EXPECT_TRUE(same_bits(bits_of(*g.bias), bits_of(sum_of(*old.bias, *fresh.bias))));
        EXPECT_TRUE(same_bits(bits_of(*g.sinks), bits_of(sum_of(*old.sinks, *fresh.sinks))));
      }
    }
  });
}

TEST(BackwardAccumulation, IsSetPerGradient) {
  BackwardCase<float> test(long_case<float>(70, 300));
  const GradientArrays<float> old = filled_outputs<float>(test.call);
  GradientArrays<float> fresh = outputs_of(test.call);
  test.run(fresh);
  for (const int chosen : {0, 1, 2}) {
    GradientArrays<float> g = filled_outputs<float>(test.call);
    AttentionGradients views = g.views();
    views.accumulate = {.grad_query = chosen == 0, .grad_key = chosen == 1, .grad_value = chosen == 2};
    test.run(views);
    const auto expect = [&](const auto& got, const auto& before, const auto& gradient, bool added) {
      EXPECT_TRUE(same_bits(bits_of(got), added ? bits_of(sum_of(before, gradient)) : bits_of(gradient)));
    };
    expect(g.query, old.query, fresh.query, chosen == 0);
    expect(g.key, old.key, fresh.key, chosen == 1);
    expect(g.value, old.value, fresh.value, chosen == 2);
  }
}

template <class E>
void narrow_sums_are_rounded_once() {
  on_every_instruction_set([&](const kernels::KernelTable&) {
    BackwardCase<float> test(long_case<float>(70, 300, 33));
    // A query of the narrow type permits narrow gradients.
    const auto round = [](const Array<float, 4>& from) {
      Array<E, 4> to(from.shape());
      to.for_each_index([&](const auto& at) { to.set(at, E(from.get(at))); });
      return to;
    };
    const Array<E, 4> query = round(test.call.query);
    GradientArrays<float> wide = outputs_of(test.call);
    GradientArrays<E> g = filled_outputs<E>(test.call);
    const GradientArrays<E> old = filled_outputs<E>(test.call);
    // Weights stay float32 in both calls.
    test.call.options.weights_in_float32 = true;
    const auto run = [&](const AttentionGradients& views) {
      attention_backward(query.view(), test.call.key.view(), test.call.value.view(), test.saved(), views,
                         test.call.options);
    };
    run(wide.views());
    AttentionGradients views = g.views();
    views.accumulate = {.grad_query = true, .grad_key = true, .grad_value = true};
    run(views);
    EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(sum_of(old.query, wide.query))));
    EXPECT_TRUE(same_bits(bits_of(g.key), bits_of(sum_of(old.key, wide.key))));
    EXPECT_TRUE(same_bits(bits_of(g.value), bits_of(sum_of(old.value, wide.value))));
  });
}

TEST(BackwardAccumulation, NarrowSumsAreRoundedOnce) {
  narrow_sums_are_rounded_once<bfloat16>();
  narrow_sums_are_rounded_once<float16>();
}

// ---- corners

template <class T>
void expect_zeros(const Array<T, 4>& array, Index from_row, Index end_row) {
  array.for_each_index([&](const auto& at) {
    if (at[2] < from_row || at[2] >= end_row) return;
    EXPECT_EQ(array.get(at), 0) << at[0] << " " << at[1] << " " << at[2] << " " << at[3];
  });
}

TYPED_TEST(BackwardBits, InvisibleRowsAndKeysHaveNoEffectAndZeroGradient) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    // Rows 0 … 9 are fully masked; no row attends to keys 150 … 199, and none before row 40 to keys 100 … 109.
    AttentionCase<T> call = long_case<T>(80, 200);
    call.options.causal = false;
    call.mask = Array<bool, 4>({1, 1, 80, 200});
    call.mask.for_each_index([&](const auto& at) {
      call.mask.set(at, at[2] >= 10 && at[3] < 150 && (at[2] >= 40 || at[3] < 100 || at[3] >= 110));
    });
    call.options.mask = std::as_const(call.mask).view();
    BackwardCase<T> clean(std::move(call));
    GradientArrays<T> expected = outputs_of(clean.call);
    clean.run(expected);
    expect_zeros(expected.query, 0, 10);
    expect_zeros(expected.key, 150, 200);
    expect_zeros(expected.value, 150, 200);

    BackwardCase<T> poisoned = std::move(clean);
    poison(poisoned.call.query, 0, 10);
    poison(poisoned.grad_context, 0, 10);
    poison(poisoned.call.key, 150, 200);
    poison(poisoned.call.value, 150, 200);
    GradientArrays<T> g = outputs_of(poisoned.call);
    poisoned.run(g);
    EXPECT_TRUE(same_bits(all_bits(g), all_bits(expected)));

    // Only rows from 40 on attend to the poisoned keys 100 … 109.
    poison(poisoned.call.key, 100, 110);
    poisoned.run(g);
    const auto before_40 = [](const Array<T, 4>& array) {
      std::vector<T> numbers;
      array.for_each_index([&](const auto& at) {
        if (at[2] < 40) numbers.push_back(array.get(at));
      });
      return bits_of(numbers);
    };
    EXPECT_TRUE(same_bits(before_40(g.query), before_40(expected.query)));
    g.query.for_each_index([&](const auto& at) {
      if (at[2] < 40) return;
      EXPECT_NE(g.query.get(at), g.query.get(at));
    });
  });
}

TYPED_TEST(BackwardBits, EmptyExtentsWriteZeros) {
  using T = TypeParam;
  for (const auto& [queries, keys] : {std::pair<Index, Index>{0, 5}, {5, 0}, {0, 0}}) {
    AttentionCase<T> call = long_case<T>(queries, keys);
    call.options.causal = false;
    const BackwardCase<T> test(std::move(call));
    GradientArrays<T> g = outputs_of(test.call);
    test.run(g);
    expect_zeros(g.query, 0, queries);
    expect_zeros(g.key, 0, keys);
    expect_zeros(g.value, 0, keys);
  }
}

TYPED_TEST(BackwardBits, SharedGradientsOfAnEmptyBatchAreZero) {
  using T = TypeParam;
  AttentionCase<T> call;
  call.query = Array<T, 4>({0, 2, 70, 4});
  call.key = Array<T, 4>({0, 1, 130, 4});
  call.value = Array<T, 4>({0, 1, 130, 4});
  const Array<T, 4> bias({1, 1, 70, 130});
  const std::vector<T> sinks(2);
  call.options.bias = bias.view();
  call.options.sinks = sinks;
  const BackwardCase<T> test(std::move(call));
  for (const std::array<Index, 4>& shape : {std::array<Index, 4>{1, 1, 70, 130}, {1, 2, 70, 1}, {1, 1, 1, 130}}) {
    GradientArrays<T> g = outputs_of(test.call);
    g.bias = Array<T, 4>(shape);
    g.bias->fill([] { return T(7); });
    g.sinks = Array<T, 1>({2});
    g.sinks->fill([] { return T(7); });
    test.run(g);
    for (const T x : g.bias->values()) EXPECT_EQ(x, T(0));
    for (const T x : g.sinks->values()) EXPECT_EQ(x, T(0));
  }
}

// ---- memory

TEST(BackwardMemory, WorkspaceIsAtMostEightTimesGradQuery) {
  for (const Index length : {Index{64}, Index{1000}, Index{4096}}) {
    AttentionCase<float> call = long_case<float>(length, length, 64);
    const BackwardCase<float> test(std::move(call));
    GradientArrays<float> g = outputs_of(test.call);
    CountingMemory memory;
    Runtime runtime;
    runtime.workspace = &memory;
    runtime.num_threads = 2;
    test.run(g, runtime);
    constexpr std::size_t kOfAThread = std::size_t{1} << 20;
    EXPECT_LE(memory.largest, 8 * static_cast<std::size_t>(4 * length * 64) * sizeof(float) + 2 * kOfAThread);
    EXPECT_EQ(memory.in_use, 0u);
    const Plan planned = plan([&](const Runtime& planning) { test.run(g, planning); }, runtime);
    EXPECT_EQ(planned.workspace_bytes, memory.largest);
    ASSERT_FALSE(planned.operators.empty());
    EXPECT_EQ(planned.operators[0].name, std::string("attention_backward"));
    const double pairs = static_cast<double>(length) * static_cast<double>(length + 1) / 2;
    EXPECT_EQ(planned.operators[0].operations, 2 * pairs * 4 * (3 * 64 + 2 * 65));
  }
}

// ---- errors

TEST(BackwardRejections, NameArgumentActualAndExpectedValue) {
  const auto message = [](auto spoil) {
    BackwardCase<float> test(long_case<float>(3, 5));
    GradientArrays<float> g = outputs_of(test.call);
    AttentionForwardState saved = test.saved();
    AttentionGradients views = g.views();
    spoil(saved, views, test.call);
    const auto& call = test.call;
    std::string text = rejection(
        [&] { attention_backward(call.query.view(), call.key.view(), call.value.view(), saved, views, call.options); });
    EXPECT_TRUE(text == "accepted" || g.query.surroundings_untouched());
    return text;
  };
  using Saved = AttentionForwardState;
  using Views = AttentionGradients;
  using Call = AttentionCase<float>;
  EXPECT_EQ(message([](Saved&, Views&, Call&) {}), "accepted");
  EXPECT_EQ(message([](Saved& s, Views&, Call&) { s.context = {}; }),
            "attention_backward: context is missing; expected (1, 4, 3, 9)");
  EXPECT_EQ(message([](Saved& s, Views&, Call&) { s.grad_context.shape[3] = 8; }),
            "attention_backward: grad_context has shape (1, 4, 3, 8); expected (1, 4, 3, 9)");
  EXPECT_EQ(message([](Saved& s, Views&, Call&) { s.row_sum = {}; }),
            "attention_backward: row_sum is missing; expected (1, 4, 3) as written by attention_forward");
  EXPECT_EQ(message([](Saved& s, Views&, Call&) { s.fingerprint = {}; }),
            "attention_backward: fingerprint is missing; expected the one written by attention_forward");
  EXPECT_EQ(message([](Saved& s, Views&, Call&) { s.grad_lse.shape[0] = 2; }),
            "attention_backward: grad_lse has shape (2, 4, 3); expected (1, 4, 3)");
  EXPECT_EQ(message([](Saved&, Views& v, Call&) { v.grad_key.shape[2] = 6; }),
            "attention_backward: grad_key has shape (1, 2, 6, 8); expected (1, 2, 5, 8)");
  EXPECT_EQ(message([](Saved&, Views& v, Call&) { v.grad_query.strides[0] = v.grad_query.strides[1] = 0; }),
            "attention_backward: grad_query overlaps itself (byte strides (32, 4, 0), extents (3, 8, 4)); "
            "expected non-overlapping elements");
  float number = 0;
  EXPECT_EQ(message([&](Saved&, Views& v, Call&) { v.grad_bias = {&number, {1, 1, 1, 1}}; }),
            "attention_backward: grad_bias is given without bias; expected both");
  EXPECT_EQ(message([&](Saved&, Views& v, Call&) { v.grad_sinks = {&number, {1}}; }),
            "attention_backward: grad_sinks is given without sinks; expected both");
  EXPECT_EQ(message([&](Saved&, Views& v, Call& c) {
              c.bias_f32 = Array<float, 4>({1, 1, 1, 1});
              c.bias_f32.fill([] { return 0; });
              c.options.bias = std::as_const(c.bias_f32).view();
              v.grad_bias = {&number, {1, 3, 1, 1}};
            }),
            "attention_backward: grad_bias has shape (1, 3, 1, 1); expected a shape that broadcasts to (1, 4, 3, 5)");
  EXPECT_EQ(message([](Saved& s, Views& v, Call&) {
              v.grad_value.data = const_cast<float*>(static_cast<const float*>(s.grad_context.data));
            }),
            "attention_backward: grad_value overlaps grad_context; expected separate memory");
  BackwardCase<float> test(long_case<float>(3, 5));
  GradientArrays<bfloat16> g;
  g.query = Array<bfloat16, 4>(test.call.query.shape());
  EXPECT_EQ(rejection([&] {
              attention_backward(test.call.query.view(), test.call.key.view(), test.call.value.view(), test.saved(),
                                 g.views(), test.call.options);
            }),
            "attention_backward: grad_query has type bfloat16; expected float32 as in query");
}

// ---- options of another call

// A call with every option, for a test to change after the forward pass.
struct OptionsCase : BackwardCase<float> {
  OptionsCase() : BackwardCase(with_all_options()) {}

  static AttentionCase<float> with_all_options() {
    AttentionCase<float> call;
    Random random(3);
    call.query = normal_array<float, 4>(random, {2, 4, 3, 6});
    call.key = normal_array<float, 4>(random, {2, 2, 5, 6});
    call.value = normal_array<float, 4>(random, {2, 2, 5, 7});
    call.offsets = {0, 1};
    call.key_lengths = {5, 4};
    call.prefix = {1, 0};
    call.alibi_slopes = call.sinks = {1, 2, 3, 4};
    call.query_segments = Array<std::int32_t, 2>({2, 3});
    call.key_segments = Array<std::int32_t, 2>({2, 5});
    call.block_mask = Array<bool, 4>({2, 4, 2, 3});
    call.mask = Array<bool, 4>({2, 4, 3, 5});
    call.bias_f32 = Array<float, 4>({2, 4, 3, 5});
    call.query_segments.fill([] { return 0; });
    call.key_segments.fill([] { return 0; });
    call.block_mask.fill([] { return true; });
    call.mask.fill([] { return true; });
    call.bias_f32.fill([] { return 0.5; });
    call.options = {.causal = true,
                    .query_offset = std::span<const Index>(call.offsets),
                    .window = {4, 4},
                    .key_lengths = call.key_lengths,
                    .query_segments = std::as_const(call.query_segments).view(),
                    .key_segments = std::as_const(call.key_segments).view(),
                    .prefix = call.prefix,
                    .block_mask = std::as_const(call.block_mask).view(),
                    .block_size = {2, 2},
                    .mask = std::as_const(call.mask).view(),
                    .bias = std::as_const(call.bias_f32).view(),
                    .alibi_slopes = call.alibi_slopes,
                    .sinks = call.sinks,
                    .soft_cap = 10.0,
                    .scale = 0.5,
                    .dropout = 0.25,
                    .dropout_seed = 7};
    return call;
  }
  std::string message() const {
    GradientArrays<float> g = outputs_of(call);
    const std::string text = rejection([&] { run(g); });
    EXPECT_TRUE(text == "accepted" || g.query.surroundings_untouched());
    return text;
  }
};

std::string differs(const std::string& what) {
  return "attention_backward: " + what + " from the forward call that wrote the fingerprint; expected the same options";
}

TEST(BackwardOptions, EachDifferenceFromTheForwardCallIsNamed) {
  const OptionsCase good;
  EXPECT_EQ(good.message(), "accepted");
  const auto message = [](const std::function<void(AttentionCase<float>&)>& change) {
    OptionsCase test;
    change(test.call);
    return test.message();
  };
  using Call = AttentionCase<float>;
  const std::vector<std::pair<const char*, std::function<void(Call&)>>> changes{
      {"causal differs", [](Call& c) { c.options.causal = false; }},
      {"query_offset differs", [](Call& c) { c.offsets[1] = 2; }},
      {"query_offset differs", [](Call& c) { c.options.query_offset = QueryAlignment::bottom_right; }},
      {"window differs", [](Call& c) { c.options.window.left = 3; }},
      {"window differs", [](Call& c) { c.options.window.right.reset(); }},
      {"key_lengths differs", [](Call& c) { c.key_lengths[1] = 3; }},
      {"key_lengths differs", [](Call& c) { c.options.key_lengths = {}; }},
      {"query_segments or key_segments differs", [](Call& c) { c.query_segments.set({1, 2}, -1); }},
      {"query_segments or key_segments differs", [](Call& c) { c.key_segments.set({0, 4}, 1); }},
      {"query_segments or key_segments differs",
       [](Call& c) { c.options.query_segments = c.options.key_segments = {}; }},
      {"prefix differs", [](Call& c) { c.prefix[0] = 2; }},
      {"prefix differs", [](Call& c) { c.options.prefix = {}; }},
      {"block_mask differs", [](Call& c) { c.block_mask.set({1, 3, 1, 2}, false); }},
      {"block_mask differs", [](Call& c) { c.options.block_mask = {}, c.options.block_size = {}; }},
      {"mask differs", [](Call& c) { c.mask.set({0, 2, 1, 4}, false); }},
      {"mask differs", [](Call& c) { c.options.mask = {}; }},
      {"bias differs", [](Call& c) { c.bias_f32.set({1, 0, 2, 3}, 0.25f); }},
      {"bias differs", [](Call& c) { c.options.bias = TensorView<const float, 4>(); }},
      {"alibi_slopes differs", [](Call& c) { c.alibi_slopes[3] = 0; }},
      {"alibi_slopes differs", [](Call& c) { c.options.alibi_slopes = {}; }},
      {"sinks differs", [](Call& c) { c.sinks[0] = 0; }},
      {"sinks differs", [](Call& c) { c.options.sinks = {}; }},
      {"soft_cap differs", [](Call& c) { c.options.soft_cap = 11; }},
      {"soft_cap differs", [](Call& c) { c.options.soft_cap.reset(); }},
      {"scale differs", [](Call& c) { c.options.scale.reset(); }},
      {"dropout, dropout_seed or dropout_first differs", [](Call& c) { c.options.dropout = 0.5; }},
      {"dropout, dropout_seed or dropout_first differs", [](Call& c) { c.options.dropout_seed = 8; }},
      {"dropout, dropout_seed or dropout_first differs", [](Call& c) { c.options.dropout_first = {1, 0, 0}; }},
      {"dropout, dropout_seed or dropout_first differs", [](Call& c) { c.options.dropout_first = {0, 0, 4}; }},
      {"causal, window, scale differ",
       [](Call& c) { c.options.causal = false, c.options.window = {}, c.options.scale = 1.0; }},
  };
  for (const auto& [what, change] : changes) EXPECT_EQ(message(change), differs(what));
  // Fewer heads of key and value, whose number is not part of any other option.
  EXPECT_EQ(message([](Call& c) {
              for (auto* array : {&c.key, &c.value}) {
                auto shape = array->shape();
                shape[1] = 1;
                *array = Array<float, 4>(shape);
                array->fill([] { return 1; });
              }
            }),
            differs("the shape of query, key or value differs"));
}

TEST(BackwardOptions, DifferentPackedSequencesAreNamed) {
  AttentionCase<float> call = long_case<float>(10, 10);
  call.query_starts = call.key_starts = {0, 4, 10};
  call.options = {.query_starts = call.query_starts, .key_starts = call.key_starts};
  BackwardCase<float> test(std::move(call));
  GradientArrays<float> g = outputs_of(test.call);
  EXPECT_EQ(rejection([&] { test.run(g); }), "accepted");
  test.call.key_starts[1] = 5;
  EXPECT_EQ(rejection([&] { test.run(g); }).find("attention_backward: "), 0u);
  test.call.query_starts[1] = 5;
  test.call.options.causal = true;
  EXPECT_EQ(rejection([&] { test.run(g); }).find("attention_backward: causal, "), 0u);
  test.call.options = {};
  EXPECT_NE(rejection([&] { test.run(g); }).find("query_starts or key_starts"), std::string::npos);
}

TEST(BackwardOptions, EquivalentFormsHaveTheSameFingerprint) {
  AttentionCase<float> call = long_case<float>(64, 64, 16);
  call.options = {.causal = true};
  BackwardCase<float> test(std::move(call));
  AttentionOptions& options = test.call.options;
  GradientArrays<float> g = outputs_of(test.call);
  const auto accepted = [&] { EXPECT_EQ(rejection([&] { test.run(g); }), "accepted"); };
  accepted();
  options.query_offset = QueryAlignment::bottom_right;
  accepted();
  const std::vector<Index> offsets{0}, lengths{64};
  options.query_offset = std::span<const Index>(offsets);
  accepted();
  options.key_lengths = lengths;
  accepted();
  options.scale = 0.25;
  options.dropout_seed = 5;  // of no effect without dropout
  options.weights_in_float32 = true;
  accepted();

  // A mask broadcast over all heads, and one per head; a bias of either type.
  Array<bool, 4> row({1, 1, 1, 64}), whole({1, 4, 64, 64});
  row.for_each_index([&](const auto& at) { row.set(at, at[3] % 3 != 0); });
  whole.for_each_index([&](const auto& at) { whole.set(at, at[3] % 3 != 0); });
  options.mask = std::as_const(row).view();
  test.run_forward();
  options.mask = std::as_const(whole).view();
  accepted();
  // A difference in one of 64 keys: of 16,384 elements, 1024 are compared.
  whole.for_each_index([&](const auto& at) { whole.set(at, at[3] % 3 != 0 || at[3] == 9); });
  EXPECT_EQ(rejection([&] { test.run(g); }), differs("mask differs"));
}

TEST(BackwardOptions, AreNotComparedWithTheUncheckedFingerprint) {
  OptionsCase test;
  test.fingerprint = kUncheckedFingerprint;
  test.call.options.dropout_seed = 8;
  EXPECT_EQ(test.message(), "accepted");
}

// A query over a cache equals a query over its keys; merged partial results do not come from a call with known options.
TEST(BackwardOptions, CachesHaveTheFingerprintOfTheirKeysAndMergesHaveNone) {
  AttentionCase<float> call = long_case<float>(3, 40);
  const std::vector<Index> lengths{40};
  call.options.key_lengths = lengths;
  KvCache<float> cache({.num_kv_heads = 2, .head_size = 8, .value_head_size = 9, .capacity = 64});
  cache.append(std::as_const(call.key).view(), std::as_const(call.value).view());
  AttentionFingerprint forward, decode, merged;
  Array<float, 4> context({1, 4, 3, 9});
  attention_forward(call.query.view(), call.key.view(), call.value.view(),
                    {.context = context.view(), .fingerprint = &forward}, call.options);
  call.options.key_lengths = {};
  attention_decode(call.query.view(), cache, {.context = context.view(), .fingerprint = &decode}, call.options);
  EXPECT_EQ(decode, forward);
  EXPECT_NE(forward, AttentionFingerprint{});
  const Array<float, 5> sums({1, 1, 4, 3, 9});
  const Array<float, 4> rows({1, 1, 4, 3});
  EXPECT_EQ(rejection([&] {
              attention_merge({.accumulator = sums.view(), .row_max = rows.view(), .row_sum = rows.view()}, {},
                              {.context = context.view(), .fingerprint = &merged});
            }),
            "attention_merge: fingerprint is given; expected none: the options of the partial results are unknown");
}

// The tests of C and Python check the same number.
TEST(BackwardOptions, FingerprintIsTheSameInEveryLanguage) {
  AttentionCase<float> call;
  for (auto* array : {&call.query, &call.key, &call.value}) *array = Array<float, 4>({1, 1, 4, 8});
  call.options = {.causal = true, .window = {2, {}}, .scale = 0.5};
  AttentionFingerprint fingerprint;
  Array<float, 4> context({1, 1, 4, 8});
  attention_forward(call.query.view(), call.key.view(), call.value.view(),
                    {.context = context.view(), .fingerprint = &fingerprint}, call.options);
  std::uint32_t words = 0;
  for (const std::uint32_t word : fingerprint.words) words = words * 31 + word;
  EXPECT_EQ(words, 3612598065u);
}

// ---- row_max and row_sum of another call

TEST(BackwardSoftmaxState, OfAnotherCallIsRejectedInDebugBuilds) {
  const BackwardCase<float> test(long_case<float>(70, 90, 16));
  AttentionCase<float> other = long_case<float>(70, 90, 16);
  other.options.scale = -0.25;
  const BackwardCase<float> stale(std::move(other));
  AttentionForwardState saved = test.saved();
  saved.row_max = stale.saved().row_max;
  saved.row_sum = stale.saved().row_sum;
  GradientArrays<float> g = outputs_of(test.call);
  const AttentionCase<float>& call = test.call;
  const std::string text = rejection([&] {
    attention_backward(call.query.view(), call.key.view(), call.value.view(), saved, g.views(), call.options);
  });
#ifdef NDEBUG
  EXPECT_EQ(text, "accepted");
#else
  EXPECT_TRUE(text.starts_with("attention_backward: row_max and row_sum make the weights of row (0, 0, ")) << text;
  EXPECT_TRUE(text.ends_with("; expected the values that attention_forward wrote for the same call")) << text;
#endif
}

// As in ring attention, where each device has only part of the keys.
TEST(BackwardSoftmaxState, OfAllKeysIsValidForASubset) {
  constexpr Index kPart = 256;
  AttentionCase<float> call = long_case<float>(70, 2 * kPart, 16);
  call.options.causal = false;
  const BackwardCase<float> test(std::move(call));
  GradientArrays<float> whole = outputs_of(test.call);
  test.run(whole);
  const auto keys_from = [](auto view, Index first) { return sliced(view, 2, first, first + kPart); };
  GradientArrays<float> parts = outputs_of(test.call);
  AttentionForwardState saved = test.saved();
  saved.fingerprint = kUncheckedFingerprint;  // the forward call had all keys
  std::vector<float> of_query(whole.query.values().size());
  for (const Index first : {Index{0}, kPart}) {
    AttentionGradients views = parts.views();
    views.grad_key = keys_from(views.grad_key, first);
    views.grad_value = keys_from(views.grad_value, first);
    attention_backward(test.call.query.view(), keys_from(test.call.key.view(), first),
                       keys_from(test.call.value.view(), first), saved, views, test.call.options);
    const std::vector<float> more = parts.query.values();
    for (std::size_t n = 0; n < more.size(); ++n) of_query[n] += more[n];
  }
  EXPECT_TRUE(same_bits(bits_of(parts.key.values()), bits_of(whole.key.values())));
  EXPECT_TRUE(same_bits(bits_of(parts.value.values()), bits_of(whole.value.values())));
  const std::vector<float> expected = whole.query.values();
  for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_NEAR(of_query[n], expected[n], 1e-5) << n;
}

TEST(BackwardSoftmaxState, NaNAffectsOnlyItsOwnRow) {
  BackwardCase<float> test(long_case<float>(70, 90, 16));
  GradientArrays<float> clean = outputs_of(test.call), g = outputs_of(test.call);
  test.run(clean);
  test.forward.row_sum->set({0, 3, 69}, std::numeric_limits<float>::quiet_NaN());
  test.run(g);
  g.query.for_each_index([&](const auto& at) {
    const float x = g.query.get(at);
    if (at[1] == 3 && at[2] == 69) {
      EXPECT_NE(x, x);
    } else {
      EXPECT_EQ(x, clean.query.get(at));
    }
  });
}

}  // namespace
}  // namespace regard::attention_backward_bits_test
