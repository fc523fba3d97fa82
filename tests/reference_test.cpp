// SPDX-License-Identifier: Apache-2.0
//
// The reference itself, compared with facts that do not depend on it: weights that are simple fractions, the derivative
// of log_sum_exp (which is the weight), and a second definition of which keys a query attends to.
#include "support/reference.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/arrays.h"
#include "support/attention_cases.h"

namespace regard::reference_test {
namespace {

TEST(Reference, WeightsAreSharesOfExponentials) {
  // Scores ln 1, ln 2, ln 5 and a sink of ln 8: shares 1, 2, 5 and 8 of 16.
  Array<double, 4> query({1, 1, 1, 1}), key({1, 1, 3, 1}), value({1, 1, 3, 2});
  query.fill([] { return 1; });
  for (Index j = 0; j < 3; ++j) {
    key.set({0, 0, j, 0}, std::log(std::array{1.0, 2.0, 5.0}[static_cast<std::size_t>(j)]));
    value.set({0, 0, j, 0}, static_cast<double>(16 * j));
    value.set({0, 0, j, 1}, j == 1 ? -16 : 0);
  }
  const std::vector<double> sinks{std::log(8.0)};
  const auto result = reference::attention<double>(query.view(), key.view(), value.view(), {.sinks = sinks});
  const auto near = [](long double x, long double y) { EXPECT_NEAR(static_cast<double>(x - y), 0, 1e-14); };
  near(result.weights[0], 1 / 16.0L);
  near(result.weights[1], 2 / 16.0L);
  near(result.weights[2], 5 / 16.0L);
  near(result.sink_weight[0], 8 / 16.0L);
  near(result.context[0], 2 + 2 * 5);
  near(result.context[1], -2);
  near(result.magnitude[1], 2);
  near(result.lse[0], std::log(16.0L));
  near(result.row_max[0], std::log(8.0L));
  near(result.row_sum[0], 2);
  near(result.score_size[0], std::log(5.0L));
}

TEST(Reference, WeightIsTheDerivativeOfLogSumExpByTheBias) {
  Random random(3);
  const Index S = 5;
  const auto query = normal_array<double, 4>(random, {1, 2, 3, 4});
  const auto key = normal_array<double, 4>(random, {1, 1, S, 4});
  const auto value = normal_array<double, 4>(random, {1, 1, S, 2});
  Array<double, 4> bias({1, 1, 1, S});
  bias.fill([&] { return random.normal(); });
  const AttentionOptions options{.bias = std::as_const(bias).view(), .soft_cap = 2.0};
  const auto at = [&] { return reference::attention<double>(query.view(), key.view(), value.view(), options); };
  const auto center = at();
  for (Index j = 0; j < S; ++j) {
    const double b = bias.get({0, 0, 0, j}), step = 1e-6;
    bias.set({0, 0, 0, j}, b + step);
    const auto above = at();
    bias.set({0, 0, 0, j}, b - step);
    const auto below = at();
    bias.set({0, 0, 0, j}, b);
    for (std::size_t r = 0; r < center.lse.size(); ++r) {
      const long double slope = (above.lse[r] - below.lse[r]) / static_cast<long double>(2 * step);
      EXPECT_NEAR(
          static_cast<double>(slope - center.weights[r * static_cast<std::size_t>(S) + static_cast<std::size_t>(j)]), 0,
          1e-9);
    }
  }
}

TEST(Reference, ContextIsTheSumOfWeightsTimesValues) {
  for (std::uint64_t seed = 1; seed <= test_size<std::uint64_t>(200, 50); ++seed) {
    const AttentionCase<double> call = random_attention_case<double>(seed);
    const auto result =
        reference::attention<double>(call.query.view(), call.key.view(), call.value.view(), call.options);
    for (Index r = 0; r < result.B * result.H * result.L; ++r) {
      const Index b = r / result.L / result.H, h = r / result.L % result.H;
      if (result.lse[static_cast<std::size_t>(r)] != result.lse[static_cast<std::size_t>(r)]) continue;
      long double total = result.sink_weight[static_cast<std::size_t>(r)], context = 0;
      for (Index j = 0; j < result.S; ++j) {
        const long double weight = result.weights[static_cast<std::size_t>(r * result.S + j)];
        total += weight;
        if (weight > 0)
          context += weight * static_cast<long double>(call.value.get({b, h * call.Hkv() / call.H(), j, 0}));
      }
      const bool nothing = result.lse[static_cast<std::size_t>(r)] == -std::numeric_limits<long double>::infinity();
      EXPECT_NEAR(static_cast<double>(total), nothing ? 0 : 1, 1e-14) << call.text;
      const long double got = result.context[static_cast<std::size_t>(r * result.Dv)];
      EXPECT_TRUE(got != got || std::abs(context - got) < 1e-14L) << call.text;
    }
  }
}

// Whether a row attends to each key: of all keys, each option removes some, which is the inverse formulation.
template <class T>
std::vector<char> seen_keys(const AttentionCase<T>& call, const reference::Span& span, Index h, Index i) {
  std::vector<char> keys(static_cast<std::size_t>(span.num_keys));
  const auto& options = call.options;
  const Index p = i + span.offset;
  const Index far = 1'000'000;
  const Index window_first = options.window.left ? p - *options.window.left : -far;
  const Index window_last = options.window.right ? p + *options.window.right : far;
  const Index causal_end = options.causal ? std::max(p + 1, span.prefix) : far;
  for (Index j = std::max<Index>(window_first, 0); j <= window_last && j < causal_end && j < span.key_length; ++j) {
    keys[static_cast<std::size_t>(j)] = true;
  }
  const Index row = span.first_query + i;
  for (Index j = 0; j < span.num_keys; ++j) {
    if (!keys[static_cast<std::size_t>(j)]) continue;
    const Index key = span.first_key + j;
    bool gone = false;
    if (!options.query_segments.absent()) {
      const Index mine = call.query_segments.get({span.batch, row}), its = call.key_segments.get({span.batch, key});
      gone = gone || mine < 0 || its < 0 || mine != its;
    }
    if (!options.block_mask.absent()) {
      const auto& shape = call.block_mask.shape();
      gone = gone || !call.block_mask.get({span.batch % shape[0], h % shape[1], row / options.block_size[0],
                                           key / options.block_size[1]});
    }
    if (!options.mask.absent()) {
      const auto& shape = call.mask.shape();
      gone = gone || !call.mask.get({span.batch % shape[0], h % shape[1], row % shape[2], key % shape[3]});
    }
    keys[static_cast<std::size_t>(j)] = !gone;
  }
  return keys;
}

TEST(Reference, VisibilityMatchesASecondDefinition) {
  Index seen = 0, unseen = 0;
  for (std::uint64_t seed = 1; seed <= test_size<std::uint64_t>(300, 60); ++seed) {
    const AttentionCase<float> call = random_attention_case<float>(seed);
    for (const reference::Span& span : reference::spans(call.B(), call.L(), call.S(), call.options)) {
      for (Index h = 0; h < call.H(); ++h) {
        for (Index i = 0; i < span.num_queries; ++i) {
          const std::vector<char> keys = seen_keys(call, span, h, i);
          for (Index j = 0; j < span.num_keys; ++j) {
            const bool sees = keys[static_cast<std::size_t>(j)] != 0;
            ASSERT_EQ(reference::visible(call.options, span, h, i, j), sees)
                << call.text << ", h " << h << " i " << i << " j " << j;
            ++(sees ? seen : unseen);
          }
        }
      }
    }
  }
  EXPECT_GT(seen, test_size(100'000, 50'000));
  EXPECT_GT(unseen, test_size(100'000, 50'000));
}

TEST(Reference, LinearIsAMatrixProduct) {
  // [[1 2], [3 4]] · [[5 6 7], [8 9 10]] + [100, 0, −100]
  Array<float, 2> input({2, 2}), parameters({2, 3});
  Array<float, 1> bias({3});
  float next = 1;
  input.fill([&] { return next++; });
  parameters.fill([&] { return next++; });
  next = 200;
  bias.fill([&] { return next -= 100; });
  const auto result = reference::linear<float>(input.view(), parameters.view(), std::as_const(bias).view());
  EXPECT_EQ(result.output, (std::vector<double>{121, 24, -73, 147, 54, -39}));
  EXPECT_EQ(result.magnitude, (std::vector<double>{121, 24, 127, 147, 54, 161}));
}

}  // namespace
}  // namespace regard::reference_test
