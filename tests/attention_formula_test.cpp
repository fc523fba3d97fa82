// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 1, clause by clause: the order of operations, scale and soft cap, row_max,
// row_sum and the weights computed from them, grouped heads, sinks. Every clause for float and double on every
// instruction set.
// Read next: attention_visibility_test.cpp.
#include "support/attention_checks.h"

namespace regard::attention_formula_test {
namespace {

template <class T>
class AttentionFormula : public testing::Test {
 protected:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionFormula, Types);

// Scores of every row, from attention_weights.
template <class T>
std::vector<T> scores_of(const AttentionInputs<T>& inputs, const AttentionOptions& options) {
  Array<T, 4> scores(
      {inputs.query.shape()[0], inputs.query.shape()[1], inputs.query.shape()[2], inputs.key.shape()[2]});
  attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores}, scores.view(), options);
  return scores.values();
}

TYPED_TEST(AttentionFormula, AppliesScaleSoftCapAlibiBiasAndVisibilityInOrder) {
  using T = TypeParam;
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(1, 3, 4, 2);
  Array<float, 4> bias({1, 1, 3, 4});
  Random random(2);
  bias.fill([&] { return random.normal(); });
  const std::vector<T> slopes{static_cast<T>(0.5)};
  const AttentionOptions options{.causal = true,
                                 .query_offset = Index{1},
                                 .bias = std::as_const(bias).view(),
                                 .alibi_slopes = slopes,
                                 .soft_cap = 1.5,
                                 .scale = 3.0};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const std::vector<T> scores = scores_of(inputs, options);
    for (Index i = 0; i < 3; ++i) {
      for (Index j = 0; j < 4; ++j) {
        const T got = scores[static_cast<std::size_t>(i * 4 + j)];
        const Index p = i + 1;
        if (j > p) {
          EXPECT_EQ(got, -this->kInfinity);
          continue;
        }
        double dot = 0;
        for (Index d = 0; d < 2; ++d)
          dot += double{inputs.query.get({0, 0, i, d})} * double{inputs.key.get({0, 0, j, d})};
        const double expected = 1.5 * std::tanh(3 * dot / 1.5) - 0.5 * static_cast<double>(std::abs(j - p)) +
                                static_cast<double>(bias.get({0, 0, i, j}));
        EXPECT_NEAR(static_cast<double>(got), expected, 64 * static_cast<double>(reference::kUnit<T>));
      }
    }
  });
  checked_attention(inputs, options);
}

TYPED_TEST(AttentionFormula, DefaultScaleIsOneOverSqrtD) {
  using T = TypeParam;
  for (const Index D : {1, 4, 16, 256}) {
    const auto inputs = AttentionInputs<T>::normal(3, 5, 7, D);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      EXPECT_EQ(all_bits(run_attention(inputs)),
                all_bits(run_attention(inputs, {.scale = 1 / std::sqrt(static_cast<double>(D))})));
    });
  }
}

TYPED_TEST(AttentionFormula, ScaleZeroMakesAllWeightsEqual) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(4, 3, 4, 5);
  const AttentionArrays<T> got = checked_attention(inputs, {.scale = 0.0});
  for (const T weight : got.weights->values()) EXPECT_EQ(weight, static_cast<T>(0.25));
  for (const T row_sum : got.row_sum->values()) EXPECT_EQ(row_sum, 4);
}

TYPED_TEST(AttentionFormula, NegativeScaleEqualsPositiveScaleOfNegatedKeys) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(5, 6, 9, 7);
  auto negated = AttentionInputs<T>::normal(5, 6, 9, 7);
  negated.key.for_each_index([&](const auto& at) { negated.key.set(at, -negated.key.get(at)); });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(run_attention(inputs, {.scale = -0.7})), all_bits(run_attention(negated, {.scale = 0.7})));
  });
}

TYPED_TEST(AttentionFormula, HugeAndTinyScalesAreDefined) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(6, 5, 8, 4);
  checked_attention(inputs, {.scale = 1e-42});
  // One score dominates: its weight is exactly 1.
  const AttentionArrays<T> got = checked_attention(inputs, {.scale = 1e30});
  for (const T weight : got.weights->values()) EXPECT_TRUE(weight == 0 || weight == 1);
  for (const T row_sum : got.row_sum->values()) EXPECT_EQ(row_sum, 1);
}

TYPED_TEST(AttentionFormula, ScaleMustBeFinite) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(7, 2, 2, 2);
  for (const double scale : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_NE(rejection([&] { run_attention(inputs, {.scale = scale}); }).find("attention_forward: scale is "),
              std::string::npos);
  }
}

TYPED_TEST(AttentionFormula, SoftCapBoundsScoresAndIsOffByDefault) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(8, 20, 30, 8);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    T largest = 0, largest_capped = 0;
    for (const T score : scores_of<T>(inputs, {.scale = 10.0})) largest = std::max(largest, std::abs(score));
    for (const T score : scores_of<T>(inputs, {.soft_cap = 2.0, .scale = 10.0})) {
      largest_capped = std::max(largest_capped, std::abs(score));
    }
    EXPECT_GT(largest, 50);
    EXPECT_LE(largest_capped, 2);
    EXPECT_GT(largest_capped, static_cast<T>(1.99));
  });
  checked_attention(inputs, {.soft_cap = 2.0, .scale = 10.0});
}

TYPED_TEST(AttentionFormula, SoftCapMustBePositiveAndFinite) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(9, 2, 2, 2);
  for (const double cap : {0.0, -0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_NE(rejection([&] { run_attention(inputs, {.soft_cap = cap}); }).find("attention_forward: soft_cap is "),
              std::string::npos);
  }
}

TYPED_TEST(AttentionFormula, WeightIsExpOfScoreMinusRowMaxOverRowSum) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(10, 1, 2, 1, 67, 1100, 9, 3);
  const AttentionOptions options{.causal = true, .query_offset = QueryAlignment::bottom_right};
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const AttentionArrays<T> got = run_attention(inputs, options);
    const std::vector<T> scores = scores_of(inputs, options);
    const std::vector<T> row_max = got.row_max->values(), row_sum = got.row_sum->values();
    std::vector<T> weights(scores.size());
    for (std::size_t at = 0; at < scores.size(); ++at) weights[at] = scores[at] - row_max[at / 1100];
    table.template of<T>().exp(weights.data(), weights.data(), static_cast<Index>(weights.size()));
    for (std::size_t at = 0; at < scores.size(); ++at) weights[at] /= row_sum[at / 1100];
    EXPECT_EQ(bits_of(weights), bits_of(*got.weights));
    for (std::size_t r = 0; r < row_max.size(); ++r) {
      EXPECT_EQ(row_max[r], *std::max_element(scores.begin() + static_cast<Index>(r) * 1100,
                                              scores.begin() + static_cast<Index>(r + 1) * 1100));
    }
  });
  checked_attention(inputs, options);
}

TYPED_TEST(AttentionFormula, LseIsRowMaxPlusLogOfRowSum) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(11, 40, 50, 6);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const AttentionArrays<T> got = run_attention(inputs);
    std::vector<T> lse = got.row_sum->values();
    table.template of<T>().log(lse.data(), lse.data(), static_cast<Index>(lse.size()));
    for (std::size_t r = 0; r < lse.size(); ++r) lse[r] += got.row_max->values()[r];
    EXPECT_EQ(bits_of(lse), bits_of(*got.lse));
  });
}

TYPED_TEST(AttentionFormula, QueryHeadUsesKeyHeadOfItsGroup) {
  using T = TypeParam;
  for (const Index Hkv : {1, 2, 3, 6}) {
    const auto inputs = AttentionInputs<T>::normal(12, 2, 6, Hkv, 5, 9, 4, 3);
    auto repeated = AttentionInputs<T>::normal(12, 2, 6, 6, 5, 9, 4, 3);
    repeated.query = relaid(inputs.query, Layout<4>::dense());
    for (auto [to, from] : {std::pair{&repeated.key, &inputs.key}, std::pair{&repeated.value, &inputs.value}}) {
      to->for_each_index([&](const auto& at) { to->set(at, from->get({at[0], at[1] / (6 / Hkv), at[2], at[3]})); });
    }
    on_every_instruction_set([&](const kernels::KernelTable&) {
      EXPECT_EQ(all_bits(run_attention(inputs)), all_bits(run_attention(repeated)));
    });
    checked_attention(inputs);
  }
}

TYPED_TEST(AttentionFormula, SinkEntersMaximumAndSumButHasNoValue) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(13, 2, 4, 2, 6, 1030, 4, 5);
  const std::vector<T> sinks{static_cast<T>(-2), static_cast<T>(0.5), static_cast<T>(30), static_cast<T>(3e38)};
  const AttentionArrays<T> got = checked_attention(inputs, {.sinks = sinks});
  const std::vector<T> weights = got.weights->values(), sink_weights = got.sink_weights->values();
  for (std::size_t r = 0; r < sink_weights.size(); ++r) {
    double total = static_cast<double>(sink_weights[r]);
    for (std::size_t j = 0; j < 1030; ++j) total += static_cast<double>(weights[r * 1030 + j]);
    EXPECT_NEAR(total, 1, 64 * static_cast<double>(reference::kUnit<T>));
    EXPECT_GE(got.row_max->values()[r], sinks[r / 6 % 4]);
  }
}

TYPED_TEST(AttentionFormula, FullyMaskedRowWithASinkHasZeroContextAndLseOfTheSink) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(14, 3, 4, 2);
  const std::vector<T> sinks{static_cast<T>(-1.25)};
  const std::vector<Index> key_lengths{0};
  const AttentionArrays<T> got = checked_attention(inputs, {.key_lengths = key_lengths, .sinks = sinks});
  EXPECT_EQ(bits_of(got.context), bits_of(std::vector<T>(6, 0)));
  EXPECT_EQ(got.lse->values(), std::vector<T>(3, sinks[0]));
  EXPECT_EQ(got.row_max->values(), std::vector<T>(3, sinks[0]));
  EXPECT_EQ(got.row_sum->values(), std::vector<T>(3, 1));
  EXPECT_EQ(got.sink_weights->values(), std::vector<T>(3, 1));
  EXPECT_EQ(bits_of(*got.weights), bits_of(std::vector<T>(12, 0)));
}

TYPED_TEST(AttentionFormula, SinkOfMinusInfinityHasNoEffect) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(15, 5, 70, 3);
  const std::vector<T> sinks{-this->kInfinity};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(run_attention(inputs, {.sinks = sinks})), all_bits(run_attention(inputs)));
  });
}

TYPED_TEST(AttentionFormula, SinksOfNaNAndInfinityAreRejected) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(16, 2, 2, 2);
  for (const T sink : {this->kInfinity, std::numeric_limits<T>::quiet_NaN()}) {
    const std::vector<T> sinks{sink};
    EXPECT_NE(rejection([&] { run_attention(inputs, {.sinks = sinks}); }).find("attention_forward: sinks[0] is "),
              std::string::npos);
  }
}

// ---- consequences of the formula

TYPED_TEST(AttentionFormula, PermutingKeysWithTheirValuesStaysWithinTheBound) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(17, 4, 1500, 8);
  auto permuted = AttentionInputs<T>::normal(17, 4, 1500, 8);
  for (auto [to, from] : {std::pair{&permuted.key, &inputs.key}, std::pair{&permuted.value, &inputs.value}}) {
    // 7 and 1500 have no common divisor.
    to->for_each_index([&](const auto& at) { to->set(at, from->get({0, 0, at[2] * 7 % 1500, at[3]})); });
  }
  const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view());
  on_every_instruction_set([&](const kernels::KernelTable&) {
    AttentionArrays<T> got = run_attention(permuted);
    got.weights.reset();
    matches_reference(got, expected);
  });
}

TYPED_TEST(AttentionFormula, AddingAConstantToTheScoresChangesOnlyRowMaxAndLse) {
  using T = TypeParam;
  // Small integer scores, so that the constant is added without rounding.
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(18, 5, 200, 4);
  Random random(19);
  for (auto* array : {&inputs.query, &inputs.key}) array->fill([&] { return random.integer(-3, 3); });
  Array<float, 4> bias({1, 1, 1, 1});
  bias.fill([] { return 64; });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto plain = run_attention(inputs, {.scale = 1.0});
    const auto raised = run_attention(inputs, {.bias = std::as_const(bias).view(), .scale = 1.0});
    EXPECT_EQ(bits_of(plain.context), bits_of(raised.context));
    EXPECT_EQ(bits_of(*plain.row_sum), bits_of(*raised.row_sum));
    EXPECT_EQ(bits_of(*plain.weights), bits_of(*raised.weights));
    for (std::size_t r = 0; r < 5; ++r) {
      EXPECT_EQ(plain.row_max->values()[r] + 64, raised.row_max->values()[r]);
      EXPECT_NEAR(static_cast<double>(plain.lse->values()[r] + 64), static_cast<double>(raised.lse->values()[r]),
                  256 * static_cast<double>(reference::kUnit<T>));
    }
  });
}

TYPED_TEST(AttentionFormula, SmallIntegersTimesPowersOfTwoHaveExactScores) {
  using T = TypeParam;
  for (const Index D : {1, 7, 64, 256, 257, 300}) {
    AttentionInputs<T> inputs = AttentionInputs<T>::normal(20, 13, 70, D);
    Random random(21);
    for (auto* array : {&inputs.query, &inputs.key}) {
      array->fill([&] { return std::ldexp(static_cast<double>(random.integer(-15, 15)), 3); });
    }
    const auto expected =
        reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.scale = 0.125});
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const std::vector<T> scores = scores_of<T>(inputs, {.scale = 0.125});
      for (std::size_t at = 0; at < scores.size(); ++at) EXPECT_EQ(scores[at], expected.scores[at]);
    });
  }
}

}  // namespace
}  // namespace regard::attention_formula_test
