// SPDX-License-Identifier: Apache-2.0
//
// attention_partials, attention_merge and attention_merge_lse (docs/reference/semantics.md sections 1 and 5):
//
//   keys split at multiples of 1024, partials of consecutive pieces, merged         = attention_forward, bit by bit
//   finished results of any disjoint key sets, merged by lse                        within 4u · (1 + |lse|) · Σ p |v|
//
// and the corner cases of both: infinities, NaN, fully masked partials, no partials, layouts, rejections.
// Read next: src/attention/attention_merge.cpp, src/kernels/attention_finish.cpp.
#include "support/partial_results.h"

namespace regard::attention_merge_test {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <class T>
class AttentionMerge : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionMerge, Types);

template <class T>
AttentionArrays<T> merged_by_lse(const Partials<T>& results, const Runtime& runtime = {}) {
  const auto& shape = results.accumulator.shape();
  AttentionArrays<T> outputs;
  outputs.context = Array<T, 4>({shape[1], shape[2], shape[3], shape[4]});
  outputs.lse = Array<T, 3>({shape[1], shape[2], shape[3]});
  attention_merge_lse(results.accumulator.view(), results.row_max.view(), outputs.views(), runtime);
  return outputs;
}

// The partials of a call whose keys are split into pieces that end at these keys.
template <class T>
Partials<T> partials_in_pieces(const AttentionCase<T>& call, const std::vector<Index>& ends, Random& random) {
  Partials<T> partials(attention_num_chunks(call.S()), call.B(), call.H(), call.L(), call.Dv(),
                       random_layout<5>(random, true), random_layout<4>(random, true));
  Index first = 0;
  for (const Index end : ends) {
    const Index count = end - first;
    const CutOptions<T> piece(call, first, count);
    const Index n = first / kAttentionChunkKeys, num = attention_num_chunks(count);
    attention_partials(call.query.view(), cut(call.key.view(), 2, first, count),
                       cut(call.value.view(), 2, first, count),
                       {cut(partials.accumulator.view(), 0, n, num), cut(partials.row_max.view(), 0, n, num),
                        cut(partials.row_sum.view(), 0, n, num), cut(partials.scaled.view(), 0, n, num)},
                       piece.options);
    first = end;
  }
  return partials;
}

// ---- by row_max and row_sum

TYPED_TEST(AttentionMerge, PartialsSplitAtChunksMatchTheWholeCall) {
  using T = TypeParam;
  for (std::uint64_t seed = 20270301; seed < 20270301 + test_size<std::uint64_t>(60, 15); ++seed) {
    const AttentionCase<T> call = random_long_case<T>(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
    const Index S = call.S();
    Random random(seed);
    std::vector<Index> every, some;
    for (Index end = kAttentionChunkKeys; end < S; end += kAttentionChunkKeys) {
      every.push_back(end);
      if (random.chance(0.5)) some.push_back(end);
    }
    every.push_back(S);
    some.push_back(S);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      auto whole = AttentionArrays<T>::dense(2, call.H(), call.L(), S, call.Dv(), false);
      attention_forward(call.query.view(), call.key.view(), call.value.view(), whole.views(), call.options);
      for (const auto& ends : {std::vector<Index>{S}, every, some}) {
        const Partials<T> partials = partials_in_pieces(call, ends, random);
        EXPECT_TRUE(all_bits(merged<T>(partials.inputs_with_scaled(), call.options.sinks)) == all_bits(whole))
            << ends.size() << " pieces";
        if (call.text.find("largest number") == std::string::npos) {
          EXPECT_TRUE(all_bits(merged<T>(partials, call.options.sinks)) == all_bits(whole)) << ends.size() << " pieces";
        }
      }
    });
  }
}

// Column 0: sums of one chunk overflow. 1: only the sum over chunks does. 2: sums overflow and would cancel. 3: values
// that would vanish if they were scaled.
template <class T>
AttentionCase<T> case_near_the_largest_number() {
  const Index S = 3 * kAttentionChunkKeys + 5;
  constexpr T kLargest = std::numeric_limits<T>::max();
  AttentionCase<T> call;
  Random random(20270303);
  call.query = normal_array<T, 4>(random, {1, 1, 3, 5});
  call.key = normal_array<T, 4>(random, {1, 1, S, 5});
  call.value = Array<T, 4>({1, 1, S, 4});
  for (Index j = 0; j < S; ++j) {
    call.value.set({0, 0, j, 0}, kLargest);
    call.value.set({0, 0, j, 1}, kLargest / (2 * kAttentionChunkKeys) * static_cast<T>(1 + random.uniform()));
    call.value.set({0, 0, j, 2}, j % 4 < 2 ? kLargest : -kLargest);
    call.value.set({0, 0, j, 3}, std::numeric_limits<T>::min() * static_cast<T>(1 + random.uniform()));
  }
  call.options.scale = 0.0;
  return call;
}

TYPED_TEST(AttentionMerge, OverflowingSumsMergeLikeTheWholeCall) {
  using T = TypeParam;
  const AttentionCase<T> call = case_near_the_largest_number<T>();
  const auto exact = reference::attention<T>(call.query.view(), call.key.view(), call.value.view(), call.options);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    auto whole = AttentionArrays<T>::dense(1, 1, 3, call.S(), 4, false);
    attention_forward(call.query.view(), call.key.view(), call.value.view(), whole.views(), call.options);
    Random random(20270304);
    const Partials<T> partials = partials_in_pieces(call, {call.S()}, random);
    EXPECT_EQ(partials.accumulator.get({0, 0, 0, 0, 0}), kInfinity<T>);
    EXPECT_TRUE(std::isfinite(partials.accumulator.get({0, 0, 0, 0, 1})));
    EXPECT_FALSE(std::isfinite(partials.accumulator.get({0, 0, 0, 0, 2})));
    EXPECT_TRUE(all_bits(merged<T>(partials.inputs_with_scaled())) == all_bits(whole));
    for (Index i = 0; i < 3; ++i) {
      for (Index c = 0; c < 4; ++c) {
        EXPECT_TRUE(agrees<T>(whole.context.get({0, 0, i, c}), exact.context[static_cast<std::size_t>(i * 4 + c)],
                              exact.context_bound(i, c)))
            << i << " " << c;
      }
    }
    // Without the scaled sums, only the first column is lost.
    const AttentionArrays<T> without = merged<T>(partials.inputs());
    EXPECT_EQ(without.context.get({0, 0, 0, 0}), kInfinity<T>);
    EXPECT_EQ(without.context.get({0, 0, 0, 1}), whole.context.get({0, 0, 0, 1}));
    EXPECT_EQ(without.context.get({0, 0, 0, 3}), whole.context.get({0, 0, 0, 3}));
  });
}

TYPED_TEST(AttentionMerge, PartialContainsTheSumsOfItsChunk) {
  using T = TypeParam;
  const Index L = 70, S = 2100, Dv = 33;
  AttentionCase<T> call;
  Random random(20270302);
  call.query = normal_array<T, 4>(random, {2, 2, L, 5});
  call.key = normal_array<T, 4>(random, {2, 1, S, 5});
  call.value = normal_array<T, 4>(random, {2, 1, S, Dv});
  call.options.causal = true;
  call.options.query_offset = Index{990};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Partials<T> partials(3, 2, 2, L, Dv);
    attention_partials(call.query.view(), call.key.view(), call.value.view(), partials.views(), call.options);
    for (Index n = 0; n < 3; ++n) {
      const Index first = n * kAttentionChunkKeys, count = std::min(kAttentionChunkKeys, S - first);
      const CutOptions<T> piece(call, first, count);
      const auto exact = reference::attention<T>(call.query.view(), cut(call.key.view(), 2, first, count),
                                                 cut(call.value.view(), 2, first, count), piece.options);
      for (Index b = 0; b < 2; ++b) {
        for (Index h = 0; h < 2; ++h) {
          for (Index i = 0; i < L; ++i) {
            const Index r = exact.row(b, h, i);
            const auto at = static_cast<std::size_t>(r);
            const T row_max = partials.row_max.get({n, b, h, i}), row_sum = partials.row_sum.get({n, b, h, i});
            ASSERT_TRUE(agrees<T>(row_max, exact.row_max[at], exact.score_bound(r))) << n << " " << i;
            ASSERT_TRUE(agrees<T>(row_sum, exact.row_sum[at], exact.relative_bound(r) * exact.row_sum[at]));
            // No row attends to a key beyond 990 + 69.
            if (n == 2 || (n == 1 && 990 + i < first)) {
              ASSERT_EQ(row_max, -kInfinity<T>);
              ASSERT_EQ(row_sum, 0);
            }
            for (Index c = 0; c < Dv; ++c) {
              const auto element = static_cast<std::size_t>(r * Dv + c);
              ASSERT_TRUE(agrees<T>(partials.accumulator.get({n, b, h, i, c}),
                                    exact.context[element] * exact.row_sum[at],
                                    exact.context_bound(r, c) * exact.row_sum[at]));
            }
          }
        }
      }
    }
  });
}

// N partials of one row each, with ordinary values.
template <class T>
Partials<T> random_partials(Random& random, Index N, Index L, Index Dv) {
  Partials<T> partials(N, 1, 1, L, Dv);
  partials.accumulator.fill([&] { return random.normal(); });
  partials.row_max.fill([&] { return random.normal() * 3; });
  partials.row_sum.fill([&] { return 1 + random.uniform() * 100; });
  return partials;
}

// The result of the partials, from the formula: context, lse and Σ p |v| of row i.
template <class T>
struct ExactRow {
  using W = reference::Wide<T>;
  W row_max = -std::numeric_limits<W>::infinity(), row_sum = 0;
  std::vector<W> context, magnitude;

  ExactRow(const Partials<T>& partials, Index i, bool by_lse) {
    const Index N = partials.accumulator.shape()[0], Dv = partials.accumulator.shape()[4];
    for (Index n = 0; n < N; ++n) row_max = std::max<W>(row_max, partials.row_max.get({n, 0, 0, i}));
    context.assign(static_cast<std::size_t>(Dv), 0);
    magnitude = context;
    for (Index n = 0; n < N; ++n) {
      const W factor = std::exp(static_cast<W>(partials.row_max.get({n, 0, 0, i})) - row_max);
      row_sum += factor * (by_lse ? W{1} : static_cast<W>(partials.row_sum.get({n, 0, 0, i})));
      for (Index c = 0; c < Dv; ++c) {
        const W x = partials.accumulator.get({n, 0, 0, i, c});
        context[static_cast<std::size_t>(c)] += factor * x;
        magnitude[static_cast<std::size_t>(c)] += factor * std::abs(x);
      }
    }
    for (auto* numbers : {&context, &magnitude}) {
      for (W& x : *numbers) x /= row_sum;
    }
  }
  W lse() const { return row_max + std::log(row_sum); }
};

TYPED_TEST(AttentionMerge, ErrorDoesNotGrowWithTheNumberOfPartials) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  const Index L = 20, Dv = 50;
  for (const Index N : {1, 2, 16, 1000}) {
    for (const bool equal : {false, true}) {
      Random random(20270303);
      Partials<T> partials = random_partials<T>(random, N, L, Dv);
      if (equal) {
        // The same value repeatedly: a plain sum drifts.
        partials.accumulator.for_each_index([&](const std::array<Index, 5>& at) {
          partials.accumulator.set(at, static_cast<T>(1.1 + static_cast<double>(at[4]) / 60));
        });
        partials.row_max.fill([] { return 0; });
        partials.row_sum.fill([] { return 4.7; });
      }
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const AttentionArrays<T> got = merged(partials);
        W largest = 0;
        for (Index i = 0; i < L; ++i) {
          const ExactRow<T> exact(partials, i, false);
          const W lse = exact.lse();
          EXPECT_EQ(got.row_max->get({0, 0, i}), exact.row_max);
          EXPECT_LE(std::abs(got.row_sum->get({0, 0, i}) - exact.row_sum), 8 * reference::kUnit<T> * exact.row_sum);
          EXPECT_LE(std::abs(got.lse->get({0, 0, i}) - lse), 8 * reference::kUnit<T> * (1 + std::abs(lse)));
          for (Index c = 0; c < Dv; ++c) {
            const auto at = static_cast<std::size_t>(c);
            largest = std::max(largest, std::abs(got.context.get({0, 0, i, c}) - exact.context[at]) /
                                            (reference::kUnit<T> * exact.magnitude[at]));
          }
        }
        EXPECT_LE(largest, 8) << N << " partials";
      });
    }
  }
}

TYPED_TEST(AttentionMerge, FullyMaskedPartialsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270304);
  const Partials<T> partials = random_partials<T>(random, 3, 61, 7);
  Partials<T> spread(8, 1, 1, 61, 7);
  spread.accumulator.fill([] { return 0; });
  spread.row_max.fill([] { return -kInfinity<double>; });
  spread.row_sum.fill([] { return 0; });
  constexpr Index kPlaces[] = {1, 4, 5};
  partials.accumulator.for_each_index([&](std::array<Index, 5> at) {
    const T x = partials.accumulator.get(at);
    at[0] = kPlaces[at[0]];
    spread.accumulator.set(at, x);
  });
  partials.row_max.for_each_index([&](std::array<Index, 4> at) {
    const T m = partials.row_max.get(at), l = partials.row_sum.get(at);
    at[0] = kPlaces[at[0]];
    spread.row_max.set(at, m);
    spread.row_sum.set(at, l);
  });
  const std::vector<T> sinks{1};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(merged(spread)), all_bits(merged(partials)));
    EXPECT_EQ(all_bits(merged<T>(spread, sinks)), all_bits(merged<T>(partials, sinks)));
    EXPECT_EQ(all_bits(merged_by_lse(spread)), all_bits(merged_by_lse(partials)));
  });
}

TYPED_TEST(AttentionMerge, WithoutPartialsRowsAreFullyMasked) {
  using T = TypeParam;
  const std::vector<T> sinks{static_cast<T>(-2.5)};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Index N : {0, 2}) {
      Partials<T> partials(N, 1, 1, 3, 2);
      partials.accumulator.fill([] { return 0; });
      partials.row_max.fill([] { return -kInfinity<double>; });
      partials.row_sum.fill([] { return 0; });
      const AttentionArrays<T> plain = merged(partials);
      EXPECT_EQ(bits_of(plain.context), bits_of(std::vector<T>(6, 0)));
      EXPECT_EQ(plain.row_max->values(), std::vector<T>(3, -kInfinity<T>));
      EXPECT_EQ(plain.row_sum->values(), std::vector<T>(3, 0));
      EXPECT_EQ(plain.lse->values(), std::vector<T>(3, -kInfinity<T>));
      EXPECT_EQ(plain.sink_weights->values(), std::vector<T>(3, 0));
      const AttentionArrays<T> with_sink = merged<T>(partials, sinks);
      EXPECT_EQ(bits_of(with_sink.context), bits_of(std::vector<T>(6, 0)));
      EXPECT_EQ(with_sink.lse->values(), std::vector<T>(3, sinks[0]));
      EXPECT_EQ(with_sink.sink_weights->values(), std::vector<T>(3, 1));
      const AttentionArrays<T> by_lse = merged_by_lse(partials);
      EXPECT_EQ(bits_of(by_lse.context), bits_of(std::vector<T>(6, 0)));
      EXPECT_EQ(by_lse.lse->values(), std::vector<T>(3, -kInfinity<T>));
    }
    // S = 0 has no chunks.
    const auto inputs = AttentionInputs<T>::normal(20270305, 4, 0, 3);
    Partials<T> none(0, 1, 1, 4, 3);
    attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(), none.views());
    EXPECT_EQ(all_bits(merged(none)), all_bits(run_attention(inputs)));
  });
}

TYPED_TEST(AttentionMerge, InfiniteAndNaNScoresMergeLikeTheWholeCall) {
  using T = TypeParam;
  const Index S = 3000;
  auto inputs = AttentionInputs<T>::normal(20270306, 6, S, 4);
  // Row 0: one +∞; 1: two in one chunk; 2: two in different chunks; 3: NaN; 4: only −∞; 5: plain.
  Array<float, 4> bias({1, 1, 6, S});
  bias.fill([] { return 0; });
  bias.set({0, 0, 0, 1500}, kInfinity<float>);
  bias.set({0, 0, 1, 10}, kInfinity<float>);
  bias.set({0, 0, 1, 900}, kInfinity<float>);
  bias.set({0, 0, 2, 10}, kInfinity<float>);
  bias.set({0, 0, 2, 2999}, kInfinity<float>);
  bias.set({0, 0, 3, 1024}, kNaN<float>);
  for (Index j = 0; j < S; ++j) bias.set({0, 0, 4, j}, -kInfinity<float>);
  const AttentionOptions options{.bias = std::as_const(bias).view()};
  const auto plain = run_attention(AttentionInputs<T>::normal(20270306, 6, S, 4));
  const std::vector<T> sinks{1};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Partials<T> partials(3, 1, 1, 6, 4);
    attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(), partials.views(), options);
    const AttentionArrays<T> got = merged(partials);
    for (const bool with_sink : {false, true}) {
      AttentionOptions whole_options = options;
      if (with_sink) whole_options.sinks = sinks;
      auto whole = AttentionArrays<T>::dense(1, 1, 6, S, 4, false);
      attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), whole.views(), whole_options);
      EXPECT_EQ(all_bits(merged<T>(partials, whole_options.sinks)), all_bits(whole));
    }
    for (Index c = 0; c < 4; ++c) {
      EXPECT_EQ(got.context.get({0, 0, 0, c}), inputs.value.get({0, 0, 1500, c}));
      for (const Index row : {1, 2, 3}) EXPECT_TRUE(std::isnan(got.context.get({0, 0, row, c}))) << row;
      EXPECT_EQ(got.context.get({0, 0, 4, c}), 0);
      EXPECT_TRUE(std::isfinite(got.context.get({0, 0, 5, c})));
    }
    EXPECT_EQ(got.lse->get({0, 0, 0}), kInfinity<T>);
    EXPECT_EQ(got.row_max->get({0, 0, 0}), kInfinity<T>);
    EXPECT_EQ(got.row_sum->get({0, 0, 0}), 1);
    EXPECT_TRUE(std::isnan(got.lse->get({0, 0, 2})));
    EXPECT_EQ(got.lse->get({0, 0, 4}), -kInfinity<T>);
  });
}

TYPED_TEST(AttentionMerge, LayoutsThreadsAndExecutorsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270307);
  const Index N = 5, B = 2, H = 3, L = 130, Dv = 37;
  Partials<T> dense(N, B, H, L, Dv);
  dense.accumulator.fill([&] { return random.normal(); });
  dense.row_max.fill([&] { return random.normal() * 3; });
  dense.row_sum.fill([&] { return 1 + random.uniform() * 100; });
  const std::vector<T> sinks{1, -kInfinity<T>, 4};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto expected = all_bits(merged<T>(dense, sinks, {.num_threads = 1}));
    const auto expected_by_lse = all_bits(merged_by_lse(dense, {.num_threads = 1}));
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(all_bits(merged<T>(dense, sinks, {.num_threads = threads})) == expected) << threads;
      EXPECT_TRUE(all_bits(merged_by_lse(dense, {.num_threads = threads})) == expected_by_lse) << threads;
    }
    const Executor backwards = [](Index n, const Task& task) {
      while (n-- > 0) task(n);
    };
    EXPECT_TRUE(all_bits(merged<T>(dense, sinks, {.executor = backwards, .num_threads = 2})) == expected);
    for (int n = 0; n < test_size(12, 4); ++n) {
      Partials<T> strided(0, 0, 0, 0, 0);
      strided.accumulator = relaid(dense.accumulator, random_layout<5>(random, true));
      strided.row_max = relaid(dense.row_max, random_layout<4>(random, true));
      strided.row_sum = relaid(dense.row_sum, random_layout<4>(random, true));
      AttentionArrays<T> outputs;
      outputs.context = Array<T, 4>({B, H, L, Dv}, random_layout<4>(random, true));
      for (auto* rows : {&outputs.row_max, &outputs.row_sum, &outputs.lse, &outputs.sink_weights}) {
        *rows = Array<T, 3>({B, H, L}, random_layout<3>(random, true));
      }
      attention_merge(strided.inputs(), sinks, outputs.views());
      EXPECT_TRUE(all_bits(outputs) == expected) << "call " << n;
      EXPECT_TRUE(outputs.context.surroundings_untouched());
      EXPECT_TRUE(outputs.lse->surroundings_untouched());
    }
    // One partial repeated by stride 0 equals its copies.
    Partials<T> copies(3, B, H, L, Dv);
    copies.accumulator.for_each_index([&](std::array<Index, 5> at) {
      const auto to = at;
      at[0] = 0;
      copies.accumulator.set(to, dense.accumulator.get(at));
    });
    copies.row_max.for_each_index([&](const std::array<Index, 4>& at) {
      copies.row_max.set(at, dense.row_max.get({0, at[1], at[2], at[3]}));
      copies.row_sum.set(at, dense.row_sum.get({0, at[1], at[2], at[3]}));
    });
    AttentionPartials repeated = dense.inputs();
    repeated.accumulator.shape[0] = repeated.row_max.shape[0] = repeated.row_sum.shape[0] = 3;
    repeated.accumulator.strides[0] = repeated.row_max.strides[0] = repeated.row_sum.strides[0] = 0;
    auto outputs = AttentionArrays<T>::dense(B, H, L, 0, Dv, false);
    attention_merge(repeated, sinks, outputs.views());
    EXPECT_TRUE(all_bits(outputs) == all_bits(merged<T>(copies, sinks)));
    // Only the context.
    Array<T, 4> context({B, H, L, Dv});
    attention_merge(dense.inputs(), sinks, AttentionOutputs{.context = context.view()});
    EXPECT_TRUE(bits_of(context) == bits_of(merged<T>(dense, sinks).context));
  });
}

// ---- by lse

TYPED_TEST(AttentionMerge, ResultsOfAnyKeySetsMergeByLseWithinTheBound) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  const Index L = 30, S = 1500, D = 8, Dv = 6;
  for (const double magnitude : {1.0, 6.0}) {
    Random random(20270308);
    const auto query = normal_array<T, 4>(random, {1, 1, L, D}, magnitude);
    const auto key = normal_array<T, 4>(random, {1, 1, S, D});
    const auto value = normal_array<T, 4>(random, {1, 1, S, Dv});
    const auto whole = reference::attention<T>(query.view(), key.view(), value.view());
    for (const Index N : {1, 3, 7, 100}) {
      Partials<T> parts(N, 1, 1, L, Dv);
      for (Index n = 0; n < N; ++n) {
        const Index first = S * n / N, count = S * (n + 1) / N - first;
        const auto part =
            reference::attention<T>(query.view(), cut(key.view(), 2, first, count), cut(value.view(), 2, first, count));
        for (Index i = 0; i < L; ++i) {
          parts.row_max.set({n, 0, 0, i}, static_cast<T>(part.lse[static_cast<std::size_t>(i)]));
          for (Index c = 0; c < Dv; ++c) {
            parts.accumulator.set({n, 0, 0, i, c}, static_cast<T>(part.context[static_cast<std::size_t>(i * Dv + c)]));
          }
        }
      }
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const AttentionArrays<T> got = merged_by_lse(parts);
        for (Index i = 0; i < L; ++i) {
          const W lse = whole.lse[static_cast<std::size_t>(i)];
          const W relative = 4 * reference::kUnit<T> * (1 + std::abs(lse));
          EXPECT_LE(std::abs(got.lse->get({0, 0, i}) - lse), relative);
          for (Index c = 0; c < Dv; ++c) {
            const auto at = static_cast<std::size_t>(i * Dv + c);
            EXPECT_LE(std::abs(got.context.get({0, 0, i, c}) - whole.context[at]), relative * whole.magnitude[at])
                << N << " results, row " << i << ", lse " << lse;
          }
        }
      });
    }
  }
}

TYPED_TEST(AttentionMerge, ErrorByLseDoesNotGrowWithTheNumberOfResults) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  for (const Index N : {1, 16, 1000}) {
    Random random(20270309);
    const Partials<T> results = random_partials<T>(random, N, 20, 50);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const AttentionArrays<T> got = merged_by_lse(results);
      for (Index i = 0; i < 20; ++i) {
        const ExactRow<T> exact(results, i, true);
        const W relative = 4 * reference::kUnit<T> * (1 + std::abs(exact.lse()));
        EXPECT_LE(std::abs(got.lse->get({0, 0, i}) - exact.lse()), relative) << N;
        for (Index c = 0; c < 50; ++c) {
          const auto at = static_cast<std::size_t>(c);
          EXPECT_LE(std::abs(got.context.get({0, 0, i, c}) - exact.context[at]), relative * exact.magnitude[at]) << N;
        }
      }
    });
  }
}

TYPED_TEST(AttentionMerge, SingleResultPassesThroughUnchanged) {
  using T = TypeParam;
  Random random(20270310);
  Partials<T> one = random_partials<T>(random, 1, 61, 33);
  one.row_max.fill([&] { return random.normal() * 300; });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> got = merged_by_lse(one);
    EXPECT_EQ(got.context.values(), one.accumulator.values());
    EXPECT_EQ(got.lse->values(), one.row_max.values());
  });
}

TYPED_TEST(AttentionMerge, MergeByLseHandlesInfinityAndNaN) {
  using T = TypeParam;
  // Rows: one +∞, two +∞, one NaN, one −∞ and a finite value, one far below the other.
  Partials<T> results(2, 1, 1, 5, 1);
  const T lse[2][5] = {{3, kInfinity<T>, kNaN<T>, -kInfinity<T>, static_cast<T>(-1e6)},
                       {kInfinity<T>, kInfinity<T>, 1, 5, static_cast<T>(1e6)}};
  for (Index n = 0; n < 2; ++n) {
    for (Index i = 0; i < 5; ++i) {
      results.row_max.set({n, 0, 0, i}, lse[n][i]);
      // A fully masked result has no weight, whatever its context contains.
      results.accumulator.set({n, 0, 0, i, 0}, lse[n][i] == -kInfinity<T> ? kNaN<T> : static_cast<T>(n + 1));
    }
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> got = merged_by_lse(results);
    const std::vector<T> context{2, kNaN<T>, kNaN<T>, 2, 2}, merged_lse{kInfinity<T>, kNaN<T>, kNaN<T>, 5, 1000000};
    EXPECT_EQ(bits_of(got.context), bits_of(context));
    EXPECT_EQ(bits_of(*got.lse), bits_of(merged_lse));
  });
}

// ---- rejections

TYPED_TEST(AttentionMerge, PartialsRejectSinksPackedSequencesAndWrongShapes) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(20270311, 1, 2, 1, 3, 1100, 4, 5);
  Partials<T> right(2, 1, 2, 3, 5), one_chunk(1, 1, 2, 3, 5), narrow(2, 1, 2, 3, 4);
  right.accumulator.fill([] { return 7; });
  const auto call = [&](const AttentionPartialOutputs& partials, const AttentionOptions& options = {}) {
    return rejection(
        [&] { attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(), partials, options); });
  };
  const std::vector<T> sinks{1, 2};
  const std::vector<Index> query_starts{0, 3}, key_starts{0, 1100};
  EXPECT_TRUE(says(call(right.views(), {.sinks = sinks}), {"attention_partials: ", "sinks", "attention_merge"}));
  EXPECT_TRUE(says(call(right.views(), {.query_starts = query_starts, .key_starts = key_starts}),
                   {"attention_partials: ", "query_starts", "one call per packed sequence"}));
  EXPECT_TRUE(says(call(one_chunk.views()), {"attention_partials: accumulator", "(1, 1, 2, 3, 5)", "(2, 1, 2, 3, 5)"}));
  EXPECT_TRUE(says(call(narrow.views()), {"attention_partials: accumulator", "(2, 1, 2, 3, 4)", "(2, 1, 2, 3, 5)"}));
  AttentionPartialOutputs partials = right.views();
  partials.row_max = one_chunk.row_max.view();
  EXPECT_TRUE(says(call(partials), {"attention_partials: row_max", "(1, 1, 2, 3)", "(2, 1, 2, 3)"}));
  partials = right.views();
  partials.row_sum = {};
  EXPECT_TRUE(says(call(partials), {"attention_partials: row_sum is missing", "(2, 1, 2, 3)"}));
  partials = right.views();
  partials.row_sum = partials.row_max;
  EXPECT_TRUE(says(call(partials), {"attention_partials: row_max overlaps row_sum"}));
  EXPECT_TRUE(
      says(call(right.views(), {.causal = true}), {"attention_partials: causal needs an explicit query_offset"}));
  EXPECT_EQ(right.accumulator.values(), std::vector<T>(60, 7));
}

TYPED_TEST(AttentionMerge, MergeRejectsInvalidArguments) {
  using T = TypeParam;
  Partials<T> partials(2, 1, 3, 4, 5), other(3, 1, 3, 4, 5);
  for (auto* array : {&partials.row_max, &partials.row_sum}) array->fill([] { return 1; });
  auto outputs = AttentionArrays<T>::dense(1, 3, 4, 6, 5);
  outputs.context.fill([] { return 7; });
  const auto without_weights = [&] {
    AttentionOutputs views = outputs.views();
    views.weights = {};
    return views;
  };
  const auto call = [&](const AttentionPartials& given, const AttentionOutputs& written,
                        const std::vector<T>& sinks = {}) {
    return rejection([&] { attention_merge(given, sinks, written); });
  };
  const AttentionPartials right = partials.inputs();
  EXPECT_TRUE(says(call(right, outputs.views()), {"attention_merge: weights", "attention_weights"}));
  EXPECT_TRUE(says(call(right, without_weights(), {1, 2}), {"attention_merge: sinks has 2 entries", "3"}));
  EXPECT_TRUE(says(call(right, without_weights(), {1, kNaN<T>, 2}), {"attention_merge: sinks[1] is "}));
  EXPECT_TRUE(says(call(right, without_weights(), {1, 2, kInfinity<T>}), {"attention_merge: sinks[2] is "}));
  auto given = right;
  given.row_max = other.inputs().row_max;
  EXPECT_TRUE(says(call(given, without_weights()), {"attention_merge: row_max", "(3, 1, 3, 4)", "(2, 1, 3, 4)"}));
  given = right;
  given.row_sum = other.inputs().row_sum;
  EXPECT_TRUE(says(call(given, without_weights()), {"attention_merge: row_sum", "(3, 1, 3, 4)", "(2, 1, 3, 4)"}));
  given = right;
  given.row_sum = {};
  EXPECT_TRUE(says(call(given, without_weights()), {"attention_merge: row_sum is missing", "(2, 1, 3, 4)"}));
  given = right;
  given.row_max = {};
  EXPECT_TRUE(says(call(given, without_weights()), {"attention_merge: row_max", "(2, 1, 3, 4)"}));
  given = right;
  given.accumulator.data = nullptr;
  EXPECT_TRUE(says(call(given, without_weights()), {"attention_merge: accumulator is null", "(2, 1, 3, 4, 5)"}));
  auto written = without_weights();
  written.context = {};
  EXPECT_TRUE(says(call(right, written), {"attention_merge: context is missing", "(1, 3, 4, 5)"}));
  written = without_weights();
  written.context.shape[3] = 4;
  EXPECT_TRUE(says(call(right, written), {"attention_merge: context", "(1, 3, 4, 4)", "(1, 3, 4, 5)"}));
  written = without_weights();
  written.lse.shape[2] = 3;
  EXPECT_TRUE(says(call(right, written), {"attention_merge: lse", "(1, 3, 3)", "(1, 3, 4)"}));
  written = without_weights();
  written.lse = written.row_max;
  EXPECT_TRUE(says(call(right, written), {"attention_merge: row_max overlaps lse"}));
  written = without_weights();
  written.row_sum = TensorView<T, 3>(partials.row_sum.view().data + 12, {1, 3, 4});
  EXPECT_TRUE(says(call(right, written), {"attention_merge: row_sum overlaps row_sum"}));
  EXPECT_EQ(outputs.context.values(), std::vector<T>(60, 7));
}

TYPED_TEST(AttentionMerge, MergeByLseRejectsInvalidArguments) {
  using T = TypeParam;
  Partials<T> results(2, 1, 3, 4, 5), other(2, 1, 3, 3, 5);
  auto outputs = AttentionArrays<T>::dense(1, 3, 4, 6, 5);
  outputs.context.fill([] { return 7; });
  const AttentionOutputs right{.context = outputs.context.view(), .lse = outputs.lse->view()};
  const auto call = [&](TensorView<const T, 4> lse, const AttentionOutputs& written) {
    return rejection([&] { attention_merge_lse(results.accumulator.view(), lse, written); });
  };
  const std::string name = "attention_merge_lse: ";
  for (const auto& [field, set] :
       {std::pair<std::string, void (*)(AttentionOutputs&, AttentionArrays<T>&)>{
            "row_max", [](auto& views, auto& arrays) { views.row_max = arrays.row_max->view(); }},
        {"row_sum", [](auto& views, auto& arrays) { views.row_sum = arrays.row_sum->view(); }},
        {"sink_weights", [](auto& views, auto& arrays) { views.sink_weights = arrays.sink_weights->view(); }},
        {"weights", [](auto& views, auto& arrays) { views.weights = arrays.weights->view(); }}}) {
    AttentionOutputs written = right;
    set(written, outputs);
    EXPECT_TRUE(says(call(results.row_max.view(), written), {name + field + " is given"}));
  }
  EXPECT_TRUE(says(call(other.row_max.view(), right), {name + "lse", "(2, 1, 3, 3)", "(2, 1, 3, 4)"}));
  EXPECT_TRUE(says(call({}, right), {name + "lse", "(2, 1, 3, 4)"}));
  AttentionOutputs written = right;
  written.context = {};
  EXPECT_TRUE(says(call(results.row_max.view(), written), {name + "context is missing", "(1, 3, 4, 5)"}));
  written = right;
  written.context.data = results.accumulator.view().data + 60;
  EXPECT_TRUE(says(call(results.row_max.view(), written), {name + "context overlaps contexts"}));
  EXPECT_EQ(outputs.context.values(), std::vector<T>(60, 7));
}

}  // namespace
}  // namespace regard::attention_merge_test
