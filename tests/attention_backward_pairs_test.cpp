// SPDX-License-Identifier: Apache-2.0
//
// attention_backward with query, key, value and the gradient of the context in bfloat16, multiplied without conversion:
// weights and score gradients are rounded to bf16 for the three accumulated products, subnormals are zero, sums are
// float (docs/derivations/attention_backward.md, section 4).
//
//     every table      with its own dot product, or with the emulation in its place (instruction_sets.h)
//     against double   random calls, every head size, odd numbers of rows and keys, huge and tiny values
//     bits             threads, strides, batch, unrequested outputs
//     poison           in either element of a pair
//
// Read next: attention_backward_test.cpp, attention_bf16_test.cpp, kernels/attention_backward.cpp.
#include "support/backward_cases.h"

namespace regard::attention_backward_pairs_test {
namespace {

using B16 = bfloat16;

Array<B16, 4> rounded(const Array<float, 4>& from, const Layout<4>& layout = Layout<4>::dense()) {
  Array<B16, 4> to(from.shape(), layout);
  from.for_each_index([&](const auto& at) { to.set(at, B16(from.get(at))); });
  return to;
}

// Rounds the values to those that the dot product uses.
void round_as_pairs(Array<float, 4>& array) {
  array.for_each_index([&](const auto& at) {
    const float x = static_cast<float>(B16(array.get(at)));
    array.set(at, std::abs(x) < 0x1p-126f ? 0.0f : x);
  });
}

// A call in bfloat16, whose values are also kept as float.
struct PairCase {
  AttentionCase<float> call;
  Array<float, 4> grad_context;
  Array<float, 3> grad_lse;
  Array<B16, 4> query, key, value, narrow_grad_context;

  explicit PairCase(AttentionCase<float> given, std::uint64_t seed = 1, bool strided = false)
      : call(std::move(given)), grad_lse({call.B(), call.H(), call.L()}) {
    Random random(seed);
    grad_context = normal_array<float, 4>(random, {call.B(), call.H(), call.L(), call.Dv()});
    grad_lse = normal_array<float, 3>(random, {call.B(), call.H(), call.L()});
    narrow(strided ? &random : nullptr);
    call.options.weights_in_float32 = false;
  }

  void narrow(Random* layouts = nullptr) {
    for (auto* array : {&call.query, &call.key, &call.value, &grad_context}) round_as_pairs(*array);
    const auto layout = [&] { return layouts ? random_layout<4>(*layouts, true) : Layout<4>::dense(); };
    query = rounded(call.query, layout());
    key = rounded(call.key, layout());
    value = rounded(call.value, layout());
    narrow_grad_context = rounded(grad_context, layout());
  }

  reference::AttentionBackward<float> expected(const std::array<Index, 4>& bias_shape = {}, bool pairs = true) const {
    auto forward = reference::attention<float>(call.query.view(), call.key.view(), call.value.view(), call.options);
    forward.smallest = static_cast<double>(std::max(call.D(), call.Dv()) + 2) * 0x1p-126;
    forward.weight_rounding = pairs ? 0x1p-8 : 0;
    return reference::attention_backward(call, forward, grad_context, grad_lse, bias_shape);
  }

  // Forward and backward pass.
  void run(const AttentionGradients& views, const Runtime& runtime = {}) const {
    AttentionArrays<float> forward = AttentionArrays<float>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
    AttentionOutputs outputs = forward.views();
    AttentionFingerprint fingerprint;
    outputs.fingerprint = &fingerprint;
    attention_forward(query.view(), key.view(), value.view(), outputs, call.options, runtime);
    attention_backward(query.view(), key.view(), value.view(),
                       {.context = std::as_const(forward.context).view(),
                        .row_max = std::as_const(*forward.row_max).view(),
                        .row_sum = std::as_const(*forward.row_sum).view(),
                        .grad_context = narrow_grad_context.view(),
                        .grad_lse = std::as_const(grad_lse).view(),
                        .fingerprint = fingerprint},
                       views, call.options, runtime);
  }
  GradientArrays<float> run(const Runtime& runtime = {}) const {
    GradientArrays<float> g = outputs_of(call);
    run(g.views(), runtime);
    return g;
  }
};

void check(const PairCase& test) {
  const auto expected = test.expected();
  on_every_dot_table([&](const kernels::KernelTable&) { expect_gradients(test.run(), expected); });
}

AttentionCase<float> plain_case(Index heads, Index key_heads, Index queries, Index keys, Index head_size, Index columns,
                                double magnitude = 1) {
  Random random(static_cast<std::uint64_t>(queries * 1000 + keys * 10 + head_size));
  AttentionCase<float> call;
  call.query = normal_array<float, 4>(random, {1, heads, queries, head_size}, magnitude);
  call.key = normal_array<float, 4>(random, {1, key_heads, keys, head_size}, magnitude);
  call.value = normal_array<float, 4>(random, {1, key_heads, keys, columns});
  return call;
}

// ---- against double

TEST(BackwardPairs, RandomCallsMatchTheReference) {
  for (std::uint64_t seed = 20261101; seed < 20261101 + num_random_calls(200); ++seed) {
    const PairCase test(random_attention_case<float>(seed), seed, true);
    const AttentionCase<float>& call = test.call;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
    std::array<Index, 4> bias_shape{};
    if (has_bias(call)) bias_shape = {call.B(), 1, call.L(), call.S()};
    const auto expected = test.expected(bias_shape);
    on_every_dot_table([&](const kernels::KernelTable&) {
      GradientArrays<float> g = outputs_of(call);
      if (has_bias(call)) g.bias = Array<float, 4>(bias_shape);
      if (!call.sinks.empty()) g.sinks = Array<float, 1>({call.H()});
      test.run(g.views());
      expect_gradients(g, expected);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(BackwardPairs, EveryHeadSizeAndLength) {
  std::size_t number = 0;
  for (const Index head_size : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257}) {
    ++number;
    for (const Index rows : {1, 2, 5, 12, 13, 59, 60, 61, 127}) {
      if (!runs_case(number++, 3)) continue;
      const Index keys = rows + head_size % 3;
      SCOPED_TRACE(std::to_string(rows) + " rows, D " + std::to_string(head_size));
      PairCase test(plain_case(1, 1, rows, keys, head_size, head_size + 1));
      check(test);
      test.call.options = {.causal = true, .query_offset = QueryAlignment::bottom_right, .weights_in_float32 = false};
      check(test);
    }
  }
}

TEST(BackwardPairs, ValuesOfEveryMagnitude) {
  for (const double magnitude : {1e-30, 1e-19, 1e-5, 3.0}) check(PairCase(plain_case(2, 1, 37, 70, 8, 9, magnitude)));
}

// Weights and score gradients are rounded only if all four inputs are bfloat16 and the caller permits it.
TEST(BackwardPairs, RoundingStaysWithinItsBound) {
  const auto largest = [](const GradientArrays<float>& g, const reference::AttentionBackward<float>& expected) {
    double found = 0;
    const std::vector<float> x = g.key.values();
    for (std::size_t n = 0; n < x.size(); ++n) {
      found = std::max(found, std::abs(static_cast<double>(x[n]) - expected.key.value[n]) / expected.key.error[n]);
    }
    return found;
  };
  PairCase test(plain_case(1, 1, 3, 3, 64, 64));
  const auto expected = test.expected(), expected_wide = test.expected({}, false);
  on_every_dot_table([&](const kernels::KernelTable&) {
    test.call.options.weights_in_float32 = false;
    EXPECT_LT(largest(test.run(), expected), 1);
    EXPECT_GT(largest(test.run(), expected_wide), 1);
    for (const std::optional<bool> in_float32 : {std::optional<bool>(), std::optional(true)}) {
      test.call.options.weights_in_float32 = in_float32;
      EXPECT_LT(largest(test.run(), expected_wide), 1);
    }
  });
}

// ---- bits

TEST(BackwardPairs, ThreadsStridesAndUnrequestedOutputsDoNotChangeBits) {
  // 3,300 keys are seven blocks of 512, so one slot has two.
  AttentionCase<float> call = plain_case(4, 2, 131, 3300, 33, 40);
  call.options.causal = true;
  call.options.query_offset = QueryAlignment::bottom_right;
  PairCase test(std::move(call));
  on_every_dot_table([&](const kernels::KernelTable&) {
    const GradientArrays<float> whole = test.run({.num_threads = 1});
    const auto first = all_bits(whole);
    EXPECT_EQ(all_bits(test.run({.num_threads = 3})), first);
    Random random(13);
    test.narrow(&random);
    EXPECT_EQ(all_bits(test.run()), first);
    expect_the_same_alone(test, whole);
  });
}

TEST(BackwardPairs, OtherBatchEntriesDoNotChangeBits) {
  Random random(9);
  const auto make = [&](Index heads, Index rows, Index columns) {
    return normal_array<float, 4>(random, {2, heads, rows, columns});
  };
  AttentionCase<float> both;
  both.query = make(2, 71, 24);
  both.key = make(1, 131, 24);
  both.value = make(1, 131, 40);
  const PairCase whole(std::move(both));
  on_every_dot_table([&](const kernels::KernelTable&) {
    const GradientArrays<float> of_whole = whole.run();
    for (Index b = 0; b < 2; ++b) {
      AttentionCase<float> call;
      call.query = batch_entry(whole.call.query, b);
      call.key = batch_entry(whole.call.key, b);
      call.value = batch_entry(whole.call.value, b);
      PairCase test(std::move(call));
      test.grad_context = batch_entry(whole.grad_context, b);
      test.grad_lse = batch_entry(whole.grad_lse, b);
      test.narrow();
      const GradientArrays<float> g = test.run();
      EXPECT_EQ(bits_of(g.query), bits_of(batch_entry(of_whole.query, b)));
      EXPECT_EQ(bits_of(g.key), bits_of(batch_entry(of_whole.key, b)));
      EXPECT_EQ(bits_of(g.value), bits_of(batch_entry(of_whole.value, b)));
    }
  });
}

// ---- poison

// Poison at an invisible position has no effect, in either element of a pair; at a visible one it affects only its
// rows.
TEST(BackwardPairs, PoisonInEitherElementOfAPair) {
  for (const Index first : {0, 1}) {
    AttentionCase<float> call = plain_case(1, 1, 80, 200, 7, 9);
    // Rows 10 + first … 12 are fully masked; no row attends to keys from 150 + first on, and none before row 41 to keys
    // 100 … 104.
    call.mask = Array<bool, 4>({1, 1, 80, 200});
    call.mask.for_each_index([&](const auto& at) {
      call.mask.set(
          at, (at[2] < 10 + first || at[2] > 12) && at[3] < 150 + first && (at[2] > 40 || at[3] < 100 || at[3] > 104));
    });
    call.options.mask = std::as_const(call.mask).view();
    PairCase test(std::move(call));
    on_every_dot_table([&](const kernels::KernelTable&) {
      test.narrow();
      const GradientArrays<float> expected = test.run();
      for (auto* array : {&test.query, &test.narrow_grad_context}) poison(*array, 10 + first, 13);
      for (auto* array : {&test.key, &test.value}) poison(*array, 150 + first, 200);
      const GradientArrays<float> g = test.run();
      EXPECT_EQ(all_bits(g), all_bits(expected));
      poison(test.key, 100, 105);
      const GradientArrays<float> reached = test.run();
      g.query.for_each_index([&](const auto& at) {
        if (at[2] >= 10 + first && at[2] < 13) {
          EXPECT_EQ(g.query.get(at), 0);
        }
        if (at[2] <= 40) {
          EXPECT_EQ(reached.query.get(at), expected.query.get(at));
        } else {
          EXPECT_NE(reached.query.get(at), reached.query.get(at));
        }
      });
      g.key.for_each_index([&](const auto& at) {
        if (at[2] >= 150 + first) {
          EXPECT_EQ(g.key.get(at), 0);
        }
      });
      // Each gradient requested alone.
      GradientArrays<float> alone = outputs_of(test.call);
      test.run({.grad_value = alone.value.view()});
      EXPECT_TRUE(same_bits(bits_of(alone.value), bits_of(reached.value)));
    });
  }
}

}  // namespace
}  // namespace regard::attention_backward_pairs_test
