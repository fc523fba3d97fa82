// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 3, the rows about values: fully masked rows, poison at invisible keys, NaN and ∞
// at visible ones, scores of ±∞ and near the largest number, empty extents.
// Read next: attention_memory_test.cpp.
#include "support/attention_checks.h"

namespace regard::attention_corners_test {
namespace {

template <class T>
class AttentionEdgeCases : public testing::Test {
 protected:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  static constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  static constexpr T kLargest = std::numeric_limits<T>::max();
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionEdgeCases, Types);

template <class T>
Array<float, 4> bias_of(const std::array<Index, 4>& shape, T value) {
  Array<float, 4> bias(shape);
  bias.fill([&] { return value; });
  return bias;
}

// A bias of one row that gives exactly these scores if the scale is 0.
template <class T>
Array<T, 4> scores_as_bias(const std::vector<T>& scores) {
  Array<T, 4> bias({1, 1, 1, static_cast<Index>(scores.size())});
  std::size_t next = 0;
  bias.fill([&] { return scores[next++]; });
  return bias;
}

// ---- fully masked rows

template <class T>
void expect_empty_row(const AttentionArrays<T>& got, Index b, Index h, Index i) {
  const Index S = got.weights->shape()[3], Dv = got.context.shape()[3];
  for (Index c = 0; c < Dv; ++c) {
    const T x = got.context.get({b, h, i, c});
    EXPECT_TRUE(x == 0 && !std::signbit(x)) << "i " << i << ": " << x;
  }
  for (Index j = 0; j < S; ++j) EXPECT_EQ(got.weights->get({b, h, i, j}), 0);
  EXPECT_EQ(got.lse->get({b, h, i}), -std::numeric_limits<T>::infinity());
  EXPECT_EQ(got.row_max->get({b, h, i}), -std::numeric_limits<T>::infinity());
  EXPECT_EQ(got.row_sum->get({b, h, i}), 0);
}

TYPED_TEST(AttentionEdgeCases, FullyMaskedRowsHaveZeroContextAndLseMinusInfinity) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(1, 1, 1, 1, 9, 100, 4, 5);
  // The sign of a negative value must not remain.
  inputs.value.fill([] { return -1; });
  Array<bool, 4> none({1, 1, 1, 1}), blocks({1, 1, 1, 1}), alternating({1, 1, 9, 1}), last({1, 1, 9, 100});
  none.fill([] { return false; });
  blocks.fill([] { return false; });
  alternating.for_each_index([&](const auto& at) { alternating.set(at, at[2] % 2 == 0); });
  last.for_each_index([&](const auto& at) { last.set(at, at[2] == 4 && at[3] == 99); });
  Array<std::int32_t, 2> rows({1, 9}), keys({1, 100});
  rows.fill([] { return 1; });
  keys.fill([] { return 2; });
  const std::vector<Index> lengths{0};
  const auto infinite = bias_of({1, 1, 1, 1}, -HUGE_VALF);
  const AttentionOptions everywhere[] = {
      {.causal = true, .query_offset = Index{-9}},
      {.query_offset = Index{0}, .window = {0, 0}, .key_lengths = lengths},
      {.key_lengths = lengths},
      {.query_segments = std::as_const(rows).view(), .key_segments = std::as_const(keys).view()},
      {.block_mask = std::as_const(blocks).view(), .block_size = {9, 100}},
      {.mask = std::as_const(none).view()},
      {.bias = infinite.view()}};
  for (const AttentionOptions& options : everywhere) {
    const AttentionArrays<T> got = checked_attention(inputs, options);
    for (Index i = 0; i < 9; ++i) expect_empty_row(got, 0, 0, i);
  }
  const AttentionArrays<T> some = checked_attention(inputs, {.mask = std::as_const(alternating).view()});
  for (Index i = 1; i < 9; i += 2) expect_empty_row(some, 0, 0, i);
  const AttentionArrays<T> one = checked_attention(inputs, {.mask = std::as_const(last).view()});
  for (Index i = 0; i < 9; ++i) {
    if (i != 4) expect_empty_row(one, 0, 0, i);
  }
  EXPECT_EQ(one.weights->get({0, 0, 4, 99}), 1);
  EXPECT_EQ(one.context.get({0, 0, 4, 0}), -1);
}

// ---- poison

// Different ways to hide keys 2, 64 … 69 and all from 100 on from every row, except the first, which hides them only
// from odd rows.
template <class T>
struct Hiding {
  Array<bool, 4> odd_rows_mask{{1, 1, 8, 130}}, mask{{1, 1, 1, 130}}, blocks{{1, 1, 1, 65}};
  Array<std::int32_t, 2> rows{{1, 8}}, keys{{1, 130}};
  Array<float, 4> bias{{1, 1, 1, 130}};
  std::vector<Index> lengths{100};

  static bool hidden(Index j) { return j == 2 || (64 <= j && j < 70) || j >= 100; }

  Hiding() {
    odd_rows_mask.for_each_index([&](const auto& at) { odd_rows_mask.set(at, !hidden(at[3]) || at[2] % 2 == 0); });
    mask.for_each_index([&](const auto& at) { mask.set(at, !hidden(at[3])); });
    blocks.for_each_index([&](const auto& at) { blocks.set(at, !hidden(at[3] * 2)); });
    rows.fill([] { return 0; });
    keys.for_each_index([&](const auto& at) { keys.set(at, hidden(at[1]) ? -1 : 0); });
  }
  AttentionOptions of(int way) const {
    switch (way) {
      case 0:
        return {.mask = odd_rows_mask.view()};
      case 1:
        return {.mask = mask.view()};
      case 2:
        return {.block_mask = blocks.view(), .block_size = {8, 2}};
      case 3:
        return {.query_segments = rows.view(), .key_segments = keys.view()};
      case 4:
        return {.causal = true, .query_offset = Index{92}, .mask = mask.view()};
      case 5:
        return {.query_offset = Index{92}, .window = {{}, 0}, .mask = mask.view()};
      default:
        return {.key_lengths = lengths, .mask = mask.view()};
    }
  }
};

TYPED_TEST(AttentionEdgeCases, NonFiniteInvisibleKeysAndValuesHaveNoEffect) {
  using T = TypeParam;
  const Hiding<T> hiding;
  for (int way = 0; way <= 6; ++way) {
    SCOPED_TRACE(way);
    const auto clean = AttentionInputs<T>::normal(2, 8, 130, 5);
    for (const T poison : {this->kNaN, this->kInfinity, -this->kInfinity}) {
      for (const bool in_key : {true, false}) {
        auto poisoned = AttentionInputs<T>::normal(2, 8, 130, 5);
        auto& array = in_key ? poisoned.key : poisoned.value;
        array.for_each_index([&](const auto& at) {
          if (Hiding<T>::hidden(at[2])) array.set(at, poison);
        });
        on_every_instruction_set([&](const kernels::KernelTable&) {
          const AttentionArrays<T> a = run_attention(clean, hiding.of(way)),
                                   b = run_attention(poisoned, hiding.of(way));
          // Odd rows never attend to the poison; even rows do only in the first case.
          for (Index i = 0; i < 8; ++i) {
            if (way == 0 && i % 2 == 0) {
              // An infinite key may give a score of −∞, but NaN remains NaN.
              EXPECT_TRUE(!std::isnan(poison) || std::isnan(b.context.get({0, 0, i, 0})));
              continue;
            }
            for (Index c = 0; c < 5; ++c) EXPECT_EQ(a.context.get({0, 0, i, c}), b.context.get({0, 0, i, c}));
            for (Index j = 0; j < 130; ++j) EXPECT_EQ(a.weights->get({0, 0, i, j}), b.weights->get({0, 0, i, j}));
            EXPECT_EQ(a.lse->get({0, 0, i}), b.lse->get({0, 0, i}));
          }
        });
      }
    }
  }
}

TYPED_TEST(AttentionEdgeCases, NonFiniteKeysAndValuesAfterTheCausalDiagonalHaveNoEffect) {
  using T = TypeParam;
  const auto clean = AttentionInputs<T>::normal(3, 150, 150, 5);
  for (const Index last : {Index{3}, Index{63}, Index{64}, Index{100}}) {
    auto poisoned = AttentionInputs<T>::normal(3, 150, 150, 5);
    for (auto* array : {&poisoned.key, &poisoned.value}) {
      array->for_each_index([&](const auto& at) {
        if (at[2] > last) array->set(at, at[3] % 2 ? this->kNaN : this->kInfinity);
      });
    }
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const auto a = run_attention(clean, {.causal = true}), b = run_attention(poisoned, {.causal = true});
      for (Index i = 0; i < 150; ++i) {
        for (Index c = 0; c < 5; ++c) {
          if (i <= last) {
            EXPECT_EQ(a.context.get({0, 0, i, c}), b.context.get({0, 0, i, c}));
          } else {
            EXPECT_TRUE(std::isnan(b.context.get({0, 0, i, c})));
          }
        }
      }
    });
  }
}

TYPED_TEST(AttentionEdgeCases, NaNInAQueryAffectsOnlyItsRow) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(4, 1, 2, 1, 70, 80, 5, 6);
  inputs.query.set({0, 1, 33, 2}, this->kNaN);
  const AttentionArrays<T> got = checked_attention(inputs);
  got.context.for_each_index(
      [&](const auto& at) { EXPECT_EQ(std::isnan(got.context.get(at)), at[1] == 1 && at[2] == 33); });
  for (const auto* rows : {&got.row_max, &got.row_sum, &got.lse}) {
    EXPECT_TRUE(std::isnan((*rows)->get({0, 1, 33})));
    EXPECT_FALSE(std::isnan((*rows)->get({0, 1, 32})));
  }
  // A fully masked row does not read its query.
  const std::vector<Index> lengths{0};
  checked_attention(inputs, {.key_lengths = lengths});
}

TYPED_TEST(AttentionEdgeCases, NaNInAKeyAffectsOnlyRowsThatAttendToIt) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(5, 1, 4, 2, 90, 90, 5, 6);
  inputs.key.set({0, 1, 66, 0}, this->kNaN);
  const AttentionArrays<T> got = checked_attention(inputs, {.causal = true});
  got.context.for_each_index(
      [&](const auto& at) { EXPECT_EQ(std::isnan(got.context.get(at)), at[1] >= 2 && at[2] >= 66); });
}

TYPED_TEST(AttentionEdgeCases, NaNInAValueAffectsOnlyItsColumn) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(6, 1, 1, 1, 90, 90, 5, 70);
  inputs.value.set({0, 0, 66, 37}, this->kNaN);
  const AttentionArrays<T> got = checked_attention(inputs, {.causal = true});
  got.context.for_each_index(
      [&](const auto& at) { EXPECT_EQ(std::isnan(got.context.get(at)), at[2] >= 66 && at[3] == 37); });
  for (const T lse : got.lse->values()) EXPECT_FALSE(std::isnan(lse));
}

TYPED_TEST(AttentionEdgeCases, InfinityInAValueAffectsOnlyItsColumn) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(7, 1, 1, 1, 90, 90, 5, 70);
  inputs.value.set({0, 0, 66, 37}, this->kInfinity);
  inputs.value.set({0, 0, 70, 38}, -this->kInfinity);
  const AttentionArrays<T> got = checked_attention(inputs, {.causal = true});
  EXPECT_EQ(got.context.get({0, 0, 66, 37}), this->kInfinity);
  EXPECT_EQ(got.context.get({0, 0, 80, 38}), -this->kInfinity);
  EXPECT_TRUE(std::isfinite(got.context.get({0, 0, 65, 37})));
}

// Values whose sum overflows, next to values that other rows or no rows attend to.
TYPED_TEST(AttentionEdgeCases, MeanOfLargeValuesIsFiniteNextToNonFiniteValues) {
  using T = TypeParam;
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(8, 70, 130, 4);
  for (Index j = 0; j < 60; ++j) inputs.value.set({0, 0, j, 2}, this->kLargest);
  inputs.value.set({0, 0, 65, 1}, this->kNaN);       // visible to rows from 5 on
  inputs.value.set({0, 0, 66, 2}, this->kInfinity);  // to rows from 6 on
  inputs.value.set({0, 0, 131 - 1, 2}, this->kNaN);  // to no row
  const AttentionOptions options{.causal = true, .query_offset = Index{60}, .scale = 0.0};
  const AttentionArrays<T> got = checked_attention(inputs, options);
  EXPECT_TRUE(std::isfinite(got.context.get({0, 0, 0, 2})));
  EXPECT_GT(got.context.get({0, 0, 0, 2}), this->kLargest / 2);
  EXPECT_EQ(got.context.get({0, 0, 6, 2}), this->kInfinity);
  EXPECT_TRUE(std::isfinite(got.context.get({0, 0, 4, 1})));
  EXPECT_TRUE(std::isnan(got.context.get({0, 0, 5, 1})));
}

// ---- scores of −∞ and of the lowest number

TYPED_TEST(AttentionEdgeCases, AScoreOfMinusInfinityHasWeightZero) {
  using T = TypeParam;
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(8, 2, 70, 4);
  std::vector<T> scores(70, 1);
  scores[0] = scores[65] = -this->kInfinity;
  const auto bias = scores_as_bias(scores);
  AttentionArrays<T> got = checked_attention(inputs, {.bias = bias.view(), .scale = 0.0});
  for (Index j = 0; j < 70; ++j) EXPECT_EQ(got.weights->get({0, 0, 1, j}) > 0, j != 0 && j != 65);
  // By overflow of the product: a query and a key with opposite signs near the largest number.
  for (Index d = 0; d < 4; ++d) {
    for (Index i = 0; i < 2; ++i) inputs.query.set({0, 0, i, d}, this->kLargest / 8);
    inputs.key.set({0, 0, 5, d}, -100);
    for (Index j = 0; j < 70; ++j) {
      if (j != 5) inputs.key.set({0, 0, j, d}, 0);
    }
  }
  got = checked_attention(inputs, {.scale = 1.0});
  EXPECT_EQ(got.weights->get({0, 0, 0, 5}), 0);
  EXPECT_EQ(got.row_sum->get({0, 0, 0}), 69);
}

TYPED_TEST(AttentionEdgeCases, RowWithMaximumMinusInfinityCountsAsFullyMasked) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(9, 3, 1100, 4);
  const auto bias = bias_of({1, 1, 1, 1}, -HUGE_VALF);
  const AttentionArrays<T> got = checked_attention(inputs, {.bias = bias.view()});
  for (Index i = 0; i < 3; ++i) expect_empty_row(got, 0, 0, i);
}

TYPED_TEST(AttentionEdgeCases, RowOfLowestFiniteScoresIsAUniformAverage) {
  using T = TypeParam;
  for (const Index S : {1, 2, 64, 100, 1500}) {
    const auto inputs = AttentionInputs<T>::normal(10, 2, S, 4);
    Array<T, 4> bias({1, 1, 1, S});
    bias.fill([&] { return std::numeric_limits<T>::lowest(); });
    // Scores of the order of 1 are lost next to the lowest number.
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const AttentionArrays<T> got = run_attention(inputs, {.bias = std::as_const(bias).view()});
      for (const T weight : got.weights->values()) EXPECT_EQ(weight, 1 / static_cast<T>(S));
      for (const T row_sum : got.row_sum->values()) EXPECT_EQ(row_sum, static_cast<T>(S));
      for (const T row_max : got.row_max->values()) EXPECT_EQ(row_max, std::numeric_limits<T>::lowest());
    });
    checked_attention(inputs, {.bias = std::as_const(bias).view(), .scale = 0.0});
  }
}

// ---- scores of +∞ and NaN

TYPED_TEST(AttentionEdgeCases, OneScoreOfPlusInfinityHasWeightOne) {
  using T = TypeParam;
  for (const std::size_t place : {0u, 31u, 64u, 1023u, 1024u, 2999u}) {
    const auto inputs = AttentionInputs<T>::normal(11, 2, 3000, 4);
    std::vector<T> scores(3000, 1);
    scores[place] = this->kInfinity;
    const auto bias = scores_as_bias(scores);
    const AttentionArrays<T> got = checked_attention(inputs, {.bias = bias.view()});
    for (Index j = 0; j < 3000; ++j) EXPECT_EQ(got.weights->get({0, 0, 0, j}), j == static_cast<Index>(place) ? 1 : 0);
    for (Index c = 0; c < 4; ++c) {
      EXPECT_EQ(got.context.get({0, 0, 1, c}), inputs.value.get({0, 0, static_cast<Index>(place), c}));
    }
    EXPECT_EQ(got.lse->get({0, 0, 0}), this->kInfinity);
  }
}

TYPED_TEST(AttentionEdgeCases, SeveralScoresOfPlusInfinityAreNaN) {
  using T = TypeParam;
  for (const auto& [first, second] : {std::pair<std::size_t, std::size_t>{0, 1}, {3, 70}, {10, 1030}, {2000, 2999}}) {
    const auto inputs = AttentionInputs<T>::normal(12, 2, 3000, 4);
    std::vector<T> scores(3000, 1);
    scores[first] = scores[second] = this->kInfinity;
    const auto bias = scores_as_bias(scores);
    const AttentionArrays<T> got = checked_attention(inputs, {.bias = bias.view()});
    for (const T x : got.context.values()) EXPECT_TRUE(std::isnan(x));
    for (const T lse : got.lse->values()) EXPECT_TRUE(std::isnan(lse));
  }
}

TYPED_TEST(AttentionEdgeCases, PlusInfinityOutweighsAFiniteSinkAndNaNBiasGivesANaNRow) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(13, 2, 70, 4);
  const std::vector<T> sinks{this->kLargest};
  std::vector<T> scores(70, 1);
  scores[66] = this->kInfinity;
  const auto infinite = scores_as_bias(scores);
  const AttentionArrays<T> got = checked_attention(inputs, {.bias = infinite.view(), .sinks = sinks});
  EXPECT_EQ(got.sink_weights->get({0, 0, 0}), 0);
  EXPECT_EQ(got.weights->get({0, 0, 0, 66}), 1);
  scores[66] = this->kNaN;
  const auto nan = scores_as_bias(scores);
  for (const T x : checked_attention(inputs, {.bias = nan.view()}).context.values()) EXPECT_TRUE(std::isnan(x));
  for (const T x : checked_attention(inputs, {.bias = nan.view(), .sinks = sinks}).context.values()) {
    EXPECT_TRUE(std::isnan(x));
  }
}

TYPED_TEST(AttentionEdgeCases, BiasOfMinusZeroDoesNotChangeBits) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(14, 5, 70, 4);
  const auto bias = bias_of({1, 1, 1, 1}, -0.0f);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(run_attention(inputs, {.bias = bias.view()})), all_bits(run_attention(inputs)));
  });
}

// ---- scores near the largest number

TYPED_TEST(AttentionEdgeCases, ScoresNearTheLargestFiniteNumberAreWithinTheBound) {
  using T = TypeParam;
  const T huge = static_cast<T>(this->kLargest * static_cast<T>(0.9));
  const Index S = 1200;
  const auto inputs = AttentionInputs<T>::normal(15, 2, S, 4);
  std::vector<std::vector<T>> rows(5, std::vector<T>(static_cast<std::size_t>(S), huge));
  rows[1].assign(static_cast<std::size_t>(S), -huge);
  rows[2].assign(static_cast<std::size_t>(S), -huge);
  rows[2][700] = huge;
  for (std::size_t j = 0; j < static_cast<std::size_t>(S); ++j) {
    rows[3][j] = static_cast<T>(j) / static_cast<T>(S) * huge;  // strictly increasing in large steps
    rows[4][j] = static_cast<T>(j % 2 == 0 ? 1 : -1) * huge;    // alternating between both ends
  }
  for (const std::vector<T>& scores : rows) {
    const auto bias = scores_as_bias(scores);
    const AttentionArrays<T> got = checked_attention(inputs, {.bias = bias.view(), .scale = 0.0});
    for (const T x : got.context.values()) EXPECT_TRUE(std::isfinite(x));
    for (const T x : got.lse->values()) EXPECT_TRUE(std::isfinite(x));
    for (const T x : got.row_sum->values()) EXPECT_TRUE(x >= 1 && x <= static_cast<T>(S));
  }
}

// Section 4 applies up to the largest number, where the products are summed before they are scaled, and not beyond it.
TYPED_TEST(AttentionEdgeCases, DotProductsOverflowOnlyBeyondTheLargestFiniteNumber) {
  using T = TypeParam;
  const T half = std::sqrt(std::ldexp(static_cast<T>(1), std::numeric_limits<T>::max_exponent - 2));
  const T largest = this->kLargest / half / 2;  // half · largest + half · largest is exactly the largest number
  const double scale = std::ldexp(8.0, -std::numeric_limits<T>::max_exponent);
  const Index S = 70, D = 32;
  // With few rows keys are read unpacked, with many they are packed.
  for (const Index L : {2, 70}) {
    const auto with_keys = [&](T key) {
      AttentionInputs<T> inputs = AttentionInputs<T>::normal(19, L, S, D);
      inputs.query.for_each_index([&](const auto& at) { inputs.query.set(at, at[3] < 2 ? half : 0); });
      inputs.key.for_each_index([&](const auto& at) {
        inputs.key.set(at, at[3] < 2 ? key * static_cast<T>(1 - static_cast<double>(at[2] / 2) / 16) : 0);
      });
      return inputs;
    };
    const auto expect_finite = [&](const AttentionInputs<T>& inputs, double times) {
      const AttentionArrays<T> got = checked_attention(inputs, {.scale = scale * times});
      for (const T x : got.context.values()) EXPECT_TRUE(std::isfinite(x));
      for (const T x : got.lse->values()) EXPECT_TRUE(x > 7 && x < 20) << x;
    };
    expect_finite(with_keys(largest), 1);
    AttentionInputs<T> beyond = with_keys(std::nextafter(largest, this->kLargest));
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const AttentionArrays<T> got = run_attention(beyond, {.scale = scale});
      for (const T x : got.context.values()) EXPECT_TRUE(std::isnan(x));  // two scores of +∞
    });
    // The workaround that the header documents: move a power of two from the query to the scale.
    beyond.query.for_each_index([&](const auto& at) { beyond.query.set(at, beyond.query.get(at) / 256); });
    expect_finite(beyond, 256);
  }
}

TYPED_TEST(AttentionEdgeCases, ValuesNearTheLargestFiniteNumberHaveAFiniteMean) {
  using T = TypeParam;
  for (const Index S : {2, 65, 1500}) {
    AttentionInputs<T> inputs = AttentionInputs<T>::normal(16, 3, S, 4);
    inputs.value.for_each_index([&](const auto& at) {
      const T sign = at[3] == 0 || at[2] % 2 == 0 ? static_cast<T>(1) : static_cast<T>(-1);
      inputs.value.set(at, at[3] == 3 ? 1 : sign * static_cast<T>(this->kLargest * static_cast<T>(0.99)));
    });
    const AttentionArrays<T> got = checked_attention(inputs);
    for (const T x : got.context.values()) EXPECT_TRUE(std::isfinite(x));
  }
}

TYPED_TEST(AttentionEdgeCases, StrictlyRisingScoresAreWithinTheBound) {
  using T = TypeParam;
  const Index S = 2500;
  const auto inputs = AttentionInputs<T>::normal(17, 2, S, 4);
  for (const double step : {1e-3, 0.5, 40.0}) {
    std::vector<T> rising, falling;
    for (Index j = 0; j < S; ++j) {
      rising.push_back(static_cast<T>(step * static_cast<double>(j)));
      falling.push_back(static_cast<T>(-step * static_cast<double>(j)));
    }
    for (const auto* scores : {&rising, &falling}) {
      const auto bias = scores_as_bias(*scores);
      checked_attention(inputs, {.bias = bias.view(), .scale = 0.0});
    }
  }
}

// ---- empty extents

TYPED_TEST(AttentionEdgeCases, EmptyQueriesBatchAndHeadsSucceedAndWriteNothing) {
  using T = TypeParam;
  for (const auto& [B, H, Hkv, L] : {std::array<Index, 4>{0, 2, 1, 3}, {2, 0, 1, 3}, {2, 0, 0, 3}, {2, 2, 1, 0}}) {
    const auto inputs = AttentionInputs<T>::normal(18, B, H, Hkv, L, 5, 4, 3);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      T untouched = 42;
      const TensorView<T, 4> context(&untouched, {B, H, L, 3});
      const TensorView<T, 4> weights(&untouched, {B, H, L, 5});
      attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                        {.context = context, .weights = weights});
      attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores}, weights);
      EXPECT_EQ(untouched, 42);
    });
  }
}

TYPED_TEST(AttentionEdgeCases, NullPointersAreAllowedForEmptyTensors) {
  using T = TypeParam;
  const TensorView<const T, 4> none(nullptr, {2, 4, 0, 3});
  EXPECT_EQ(
      rejection([&] { attention_forward(none, none, none, {.context = TensorView<T, 4>(nullptr, {2, 4, 0, 3})}); }),
      "accepted");
}

// Enough heads to be packed one by one, and enough rows to prefetch theirs.
TYPED_TEST(AttentionEdgeCases, NullKeysAndValuesAreAllowedForManyHeadsWithoutKeys) {
  using T = TypeParam;
  const Tensor<T, 4> query({1, 64, 100, 64});
  Tensor<T, 4> context({1, 64, 100, 64});
  std::fill_n(context.data(), context.size(), static_cast<T>(1));
  const TensorView<const T, 4> none(nullptr, {1, 64, 0, 64});
  attention_forward(query.view(), none, none, {.context = context.view()});
  EXPECT_EQ(std::count(context.data(), context.data() + context.size(), static_cast<T>(0)), context.size());
}

TYPED_TEST(AttentionEdgeCases, WithoutKeysAllRowsAreFullyMasked) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(19, 2, 4, 2, 3, 0, 4, 3);
  const std::vector<T> sinks{1, 2, 3, 4};
  AttentionArrays<T> got = checked_attention(inputs);
  expect_empty_row(got, 1, 3, 2);
  checked_attention(inputs, {.sinks = sinks});
  checked_attention(inputs, {.causal = true, .query_offset = QueryAlignment::bottom_right});
}

TYPED_TEST(AttentionEdgeCases, HeadSizeZeroIsRejected) {
  using T = TypeParam;
  const auto no_depth = AttentionInputs<T>::normal(20, 1, 1, 1, 2, 2, 0, 3);
  const auto no_columns = AttentionInputs<T>::normal(20, 1, 1, 1, 2, 2, 3, 0);
  EXPECT_EQ(rejection([&] { run_attention(no_depth); }),
            "attention_forward: query has head size 0 in shape (1, 1, 2, 0); expected at least 1");
  EXPECT_EQ(rejection([&] { run_attention(no_columns); }),
            "attention_forward: value has head size 0 in shape (1, 1, 2, 0); expected at least 1");
}

TYPED_TEST(AttentionEdgeCases, SubnormalsAreKept) {
  using T = TypeParam;
  // With one key, the context is the value itself, down to the smallest subnormal.
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(21, 1, 1, 4);
  inputs.value.fill([] { return std::numeric_limits<T>::denorm_min(); });
  for (const T x : checked_attention(inputs).context.values()) EXPECT_EQ(x, std::numeric_limits<T>::denorm_min());
  // A subnormal query gives a score of −1 with a large key and a larger scale.
  const int exponent = sizeof(T) == 4 ? 40 : 100;
  AttentionInputs<T> scores = AttentionInputs<T>::normal(22, 1, 2, 1);
  scores.query.set({0, 0, 0, 0}, std::numeric_limits<T>::denorm_min());
  scores.key.set({0, 0, 0, 0}, static_cast<T>(std::ldexp(1, exponent)));
  scores.key.set({0, 0, 1, 0}, 0);
  const double scale = -std::ldexp(1, (sizeof(T) == 4 ? 149 : 1074) - exponent);
  const AttentionArrays<T> weighed = checked_attention(scores, {.scale = scale});
  EXPECT_NEAR(static_cast<double>(weighed.weights->get({0, 0, 0, 0})), 1 / (1 + std::exp(1.0)), 1e-6);
  // A weight of exp(−100) is subnormal in float.
  const auto bias = scores_as_bias<T>({0, -100});
  const AttentionArrays<T> got =
      checked_attention(AttentionInputs<T>::normal(23, 1, 2, 3), {.bias = bias.view(), .scale = 0.0});
  EXPECT_GT(got.weights->get({0, 0, 0, 1}), 0);
}

}  // namespace
}  // namespace regard::attention_corners_test
