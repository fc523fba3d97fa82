// SPDX-License-Identifier: Apache-2.0
//
// Dropout (docs/reference/semantics.md, section 1): the dropped weights are determined by Philox4x32-10 of (seed, b, h,
// i, j), compared with philox() of random.h; context and gradients use only the kept weights.
// Read next: src/kernels/dropout.cpp, philox_test.cpp, attention_backward_test.cpp.
#include "regard/random.h"
#include "support/backward_cases.h"

namespace regard::dropout_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

double factor(double rate, std::uint64_t seed, Index b, Index h, Index i, Index j) {
  const Words words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                              static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)},
                             seed);
  return words[static_cast<std::size_t>(j % 4)] < std::nearbyint(rate * 0x1p32) ? 0 : 1 / (1 - rate);
}

TEST(Dropout, WordsAreThoseOfPhilox) {
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    for (const Index first : {Index{0}, Index{1}, Index{6}, Index{64}, Index{4095}}) {
      for (Index lane = 0; lane < kernels::kBlockKeys; ++lane) {
        const Index j = first + lane;
        const std::uint32_t word =
            philox({static_cast<std::uint32_t>(j / 4), 7, 5, 3}, 0x123456789abcdef0)[static_cast<std::size_t>(j % 4)];
        float factors[kernels::kBlockKeys];
        for (const std::uint64_t threshold : {std::uint64_t{word}, std::uint64_t{word} + 1}) {
          table.f32.dropout_row({.seed = 0x123456789abcdef0,
                                 .batch = 3,
                                 .head = 5,
                                 .query = 7,
                                 .first_key = first,
                                 .threshold = threshold,
                                 .factor = 2},
                                factors);
          EXPECT_EQ(factors[lane], threshold == word ? 2 : 0);
        }
      }
    }
  });
}

template <class T>
class DropoutOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DropoutOf, Types);

template <class T>
AttentionCase<T> dropped_case(double rate) {
  Random random(3);
  AttentionCase<T> call;
  call.query = normal_array<T, 4>(random, {2, 4, 70, 9});
  call.key = normal_array<T, 4>(random, {2, 2, 150, 9});
  call.value = normal_array<T, 4>(random, {2, 2, 150, 5});
  call.options.causal = true;
  call.options.query_offset = QueryAlignment::bottom_right;
  call.options.dropout = rate;
  call.options.dropout_seed = 0x0123456789abcdef;
  return call;
}

// The reference's weights times the factors, and the resulting contexts.
template <class T>
reference::Attention<T> dropped_reference(const AttentionCase<T>& call, std::vector<reference::Wide<T>>& factors) {
  using W = reference::Wide<T>;
  auto expected = reference::attention<T>(call.query.view(), call.key.view(), call.value.view(), call.options);
  std::fill(expected.context.begin(), expected.context.end(), W{0});
  std::fill(expected.magnitude.begin(), expected.magnitude.end(), W{0});
  factors.assign(expected.weights.size(), 0);
  for (std::size_t at = 0; at < expected.weights.size(); ++at) {
    const Index j = static_cast<Index>(at) % expected.S, r = static_cast<Index>(at) / expected.S;
    const Index i = r % expected.L, h = r / expected.L % expected.H, b = r / expected.L / expected.H;
    factors[at] = static_cast<W>(factor(call.options.dropout, call.options.dropout_seed, b, h, i, j));
    for (Index c = 0; c < expected.Dv; ++c) {
      const W x = expected.weights[at] * factors[at] * static_cast<W>(call.value.get({b, h / 2, j, c}));
      expected.context[static_cast<std::size_t>(r * expected.Dv + c)] += x;
      expected.magnitude[static_cast<std::size_t>(r * expected.Dv + c)] += std::abs(x);
    }
  }
  return expected;
}

TYPED_TEST(DropoutOf, ContextUsesOnlyKeptWeights) {
  using T = TypeParam;
  for (const double rate : {0.1, 0.5, 1.0}) {
    const AttentionCase<T> call = dropped_case<T>(rate);
    std::vector<reference::Wide<T>> factors;
    const auto expected = rate < 1 ? dropped_reference(call, factors) : reference::Attention<T>{};
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const AttentionArrays<T> got = run_attention<T>(call.query, call.key, call.value, call.options);
      // row_max, row_sum, lse and weights are compared with those without dropout.
      const std::vector<T> context = got.context.values();
      const bool matches = rate < 1 ? matches_reference(got, expected)
                                    : std::all_of(context.begin(), context.end(), [](T x) { return x == 0; });
      EXPECT_TRUE(matches);
    });
  }
}

TYPED_TEST(DropoutOf, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  const BackwardCase<T> test(dropped_case<T>(0.3));
  std::vector<std::uint64_t> forward, backward;
  for (const int threads : {1, 2, 5}) {
    Runtime runtime;
    runtime.num_threads = threads;
    const auto got = run_attention<T>(test.call.query, test.call.key, test.call.value, test.call.options, runtime);
    GradientArrays<T> g = outputs_of(test.call);
    test.run(g, runtime);
    if (forward.empty()) forward = bits_of(got.context);
    if (backward.empty()) backward = bits_of(g.key);
    EXPECT_TRUE(same_bits(bits_of(got.context), forward));
    EXPECT_TRUE(same_bits(bits_of(g.key), backward));
  }
}

TYPED_TEST(DropoutOf, GradientsUseOnlyKeptWeights) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  BackwardCase<T> test(dropped_case<T>(0.4));
  const AttentionCase<T>& call = test.call;
  std::vector<W> factors;
  const auto expected = dropped_reference(call, factors);
  const Index D = expected.D, Dv = expected.Dv, S = expected.S;
  reference::AttentionBackward<T> g;
  g.query.assign(static_cast<Index>(expected.weights.size()) / S * D);
  g.key.assign(2 * 2 * S * D);
  g.value.assign(2 * 2 * S * Dv);
  for (Index r = 0; r < 2 * 4 * 70; ++r) {
    const Index i = r % 70, h = r / 70 % 4, b = r / 70 / 4;
    const W relative = 8 * expected.relative_bound(r);
    W delta = -static_cast<W>(test.grad_lse.get({b, h, i})), delta_size = std::abs(delta);
    for (Index c = 0; c < Dv; ++c) {
      const W x = test.grad_context.get({b, h, i, c});
      delta += x * expected.context[static_cast<std::size_t>(r * Dv + c)];
      delta_size += std::abs(x) * expected.magnitude[static_cast<std::size_t>(r * Dv + c)];
    }
    for (Index j = 0; j < S; ++j) {
      const W p = expected.weights[static_cast<std::size_t>(r * S + j)];
      const W z = factors[static_cast<std::size_t>(r * S + j)];
      W dp = 0, dp_size = 0;
      for (Index c = 0; c < Dv; ++c) {
        const W x = test.grad_context.get({b, h, i, c}), v = call.value.get({b, h / 2, j, c});
        dp += z * x * v;
        dp_size += std::abs(z * x * v);
        g.value.add(((b * 2 + h / 2) * S + j) * Dv + c, p * z * x, std::abs(p * z * x), relative);
      }
      const W ds = p * (dp - delta) / 3, size = p * (dp_size + delta_size) / 3;
      for (Index d = 0; d < D; ++d) {
        const W q = call.query.get({b, h, i, d}), k = call.key.get({b, h / 2, j, d});
        g.query.add(r * D + d, ds * k, size * std::abs(k), relative);
        g.key.add(((b * 2 + h / 2) * S + j) * D + d, ds * q, size * std::abs(q), relative);
      }
    }
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    test.run_forward();
    GradientArrays<T> got = outputs_of(call);
    test.run(got);
    expect_gradients(got, g);
  });
}

// Batch entry b, heads from `head` on and rows from `row` on of a call, as a separate call.
TYPED_TEST(DropoutOf, PartOfACallDropsTheSameWeights) {
  using T = TypeParam;
  constexpr Index kBatch = 1, kHead = 2, kRow = 30;
  constexpr std::array<Index, 4> kRows{kBatch, kHead, kRow, 0}, kKeys{kBatch, kHead / 2, 0, 0};
  const BackwardCase<T> whole(dropped_case<T>(0.4));
  GradientArrays<T> of_whole = outputs_of(whole.call);
  whole.run(of_whole);
  const auto part_of = []<class A>(const A& from, const auto& first) {
    auto shape = from.shape();
    for (std::size_t axis = 0; axis < shape.size(); ++axis) shape[axis] -= first[axis];
    A to(shape);
    to.for_each_index([&](const auto& at) {
      auto source = at;
      for (std::size_t axis = 0; axis < shape.size(); ++axis) source[axis] += first[axis];
      to.set(at, from.get(source));
    });
    return to;
  };
  AttentionCase<T> call;
  call.query = part_of(whole.call.query, kRows);
  call.key = part_of(whole.call.key, kKeys);
  call.value = part_of(whole.call.value, kKeys);
  call.options = whole.call.options;
  call.options.dropout_first = {kBatch, kHead, kRow};
  BackwardCase<T> part(std::move(call));
  part.grad_context = part_of(whole.grad_context, kRows);
  part.grad_lse = part_of(whole.grad_lse, std::array{kBatch, kHead, kRow});
  GradientArrays<T> g = outputs_of(part.call);
  part.run(g);
  EXPECT_TRUE(same_bits(bits_of(part.forward.context), bits_of(part_of(whole.forward.context, kRows))));
  EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(part_of(of_whole.query, kRows))));
  // Without dropout_first, other weights are dropped.
  part.call.options.dropout_first = {};
  part.run_forward();
  EXPECT_FALSE(same_bits(bits_of(part.forward.context), bits_of(part_of(whole.forward.context, kRows))));
}

// Gradients that are sums over rows or batch entries, accumulated over successive micro-batches.
TEST(Dropout, MicroBatchesAccumulateTheFullGradient) {
  const BackwardCase<double> whole(dropped_case<double>(0.4));
  GradientArrays<double> of_whole = outputs_of(whole.call);
  whole.run(of_whole);
  GradientArrays<double> g = outputs_of(whole.call);
  const auto rows = [](const auto& view, Index first, Index last) { return sliced(view, 2, first, last); };
  for (const auto& [first, last] : {std::pair<Index, Index>{0, 30}, {30, 70}}) {
    AttentionOptions options = whole.call.options;
    options.query_offset = first + 150 - 70;
    options.dropout_first = {0, 0, first};
    AttentionForwardState saved = whole.saved();
    saved.context = rows(saved.context, first, last);
    saved.row_max = rows(saved.row_max, first, last);
    saved.row_sum = rows(saved.row_sum, first, last);
    saved.grad_context = rows(saved.grad_context, first, last);
    saved.grad_lse = rows(saved.grad_lse, first, last);
    saved.fingerprint = kUncheckedFingerprint;
    attention_backward(rows(InputView<4>(whole.call.query.view()), first, last), whole.call.key.view(),
                       whole.call.value.view(), saved,
                       {.grad_query = rows(OutputView<4>(g.query.view()), first, last),
                        .grad_key = g.key.view(),
                        .grad_value = g.value.view(),
                        .accumulate = {.grad_key = first > 0, .grad_value = first > 0}},
                       options);
  }
  EXPECT_TRUE(same_bits(bits_of(g.query), bits_of(of_whole.query)));
  const auto expect = [](const Array<double, 4>& got, const Array<double, 4>& expected) {
    got.for_each_index([&](const auto& at) { EXPECT_NEAR(got.get(at), expected.get(at), 1e-13); });
  };
  expect(g.key, of_whole.key);
  expect(g.value, of_whole.value);
}

TEST(Dropout, InvalidRatesAndOperatorsWithoutDropoutAreRejected) {
  BackwardCase<float> test(dropped_case<float>(0));
  auto& call = test.call;
  const auto message = [&](double rate) {
    call.options.dropout = rate;
    return rejection([&] { run_attention<float>(call.query, call.key, call.value, call.options); });
  };
  EXPECT_EQ(message(-0.5), "attention_forward: dropout is -0.5; expected 0 to 1");
  EXPECT_EQ(message(1.5), "attention_forward: dropout is 1.5; expected 0 to 1");
  EXPECT_EQ(message(std::nan("")), "attention_forward: dropout is nan; expected 0 to 1");
  EXPECT_EQ(message(0), "accepted");
  call.options.dropout_first = {0, -1, 0};
  EXPECT_EQ(message(0.5), "attention_forward: dropout_first[1] is -1; expected 0 to 4294967292");
  call.options.dropout_first = {(Index{1} << 32) - 1, 0, 0};
  EXPECT_EQ(message(0.5), "attention_forward: dropout_first[0] is 4294967295; expected 0 to 4294967294");
  call.options.dropout_first = {};
  call.options.dropout = 0.5;
  EXPECT_EQ(
      rejection([&] { attention_partials(call.query.view(), call.key.view(), call.value.view(), {}, call.options); }),
      "attention_partials: dropout is given; expected none");
}

}  // namespace
}  // namespace regard::dropout_test
