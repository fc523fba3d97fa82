// SPDX-License-Identifier: Apache-2.0
//
// head_pattern: matrices made by hand, with the scores worked out on paper.
// Read next: include/regard/train/patterns.h.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/train/patterns.h"
#include "support/rejection.h"

namespace regard::patterns_test {
namespace {

using Wanted = std::vector<std::vector<Index>>;

constexpr double kUnread = std::numeric_limits<double>::quiet_NaN();

HeadPattern pattern(const std::vector<double>& weights, const Wanted& wanted) {
  const auto length = static_cast<Index>(wanted.size());
  return head_pattern(TensorView<const double, 2>(weights.data(), {length, length}), wanted);
}

TEST(HeadPattern, AveragesOverTheRowsThatHaveWantedKeys) {
  const std::vector<double> weights{1,     kUnread, kUnread, kUnread,  //
                                    0.25,  0.75,    kUnread, kUnread,  //
                                    0.125, 0.375,   0.5,     kUnread,  //
                                    0.5,   0.125,   0.25,    0.125};
  const HeadPattern found = pattern(weights, {{}, {}, {1}, {0, 2}});
  EXPECT_DOUBLE_EQ(found.score, (0.375 + 0.75) / 2);
  EXPECT_DOUBLE_EQ(found.uniform, (1.0 / 3 + 2.0 / 4) / 2);
  EXPECT_DOUBLE_EQ(found.score_without_first, (0.375 / 0.875 + 0.25 / 0.5) / 2);
  EXPECT_DOUBLE_EQ(found.uniform_without_first, (1.0 / 2 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(found.previous_token, (0.25 + 0.375 + 0.25) / 3);
  EXPECT_DOUBLE_EQ(found.first_token, (0.25 + 0.125 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(found.one_key_uniform, (1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 3);
  const double row1 = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)) / std::log(2.0);
  const double row2 = -(0.125 * std::log(0.125) + 0.375 * std::log(0.375) + 0.5 * std::log(0.5)) / std::log(3.0);
  const double row3 = 1.75 / 2;  // in bits: ½ · 1 + ¼ · 2 + 2 · ⅛ · 3
  EXPECT_NEAR(found.entropy, (row1 + row2 + row3) / 3, 1e-15);
}

TEST(HeadPattern, UniformWeightsScoreTheUniformLevel) {
  constexpr Index kLength = 9;
  std::vector<double> weights(kLength * kLength, kUnread);
  Wanted wanted(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      weights[i * kLength + j] = 1 / static_cast<double>(i + 1);
      if ((i + j) % 3 == 0) wanted[i].push_back(static_cast<Index>(j));
    }
  }
  const HeadPattern found = pattern(weights, wanted);
  EXPECT_NEAR(found.score, found.uniform, 1e-15);
  EXPECT_NEAR(found.score_without_first, found.uniform_without_first, 1e-15);
  EXPECT_NEAR(found.previous_token, found.one_key_uniform, 1e-15);
  EXPECT_NEAR(found.first_token, found.one_key_uniform, 1e-15);
  EXPECT_NEAR(found.entropy, 1, 1e-15);
}

TEST(HeadPattern, ASinkIsVisibleAndCanBeLeftOut) {
  // Everything that is not on key 0 is on the wanted key; row 1 has nothing else.
  const std::vector<double> weights{1, 0, 0, 0, 1, 0, 0, 0, 0.75, 0.25, 0, 0, 0.75, 0, 0.25, 0};
  const HeadPattern found = pattern(weights, {{0}, {1}, {1}, {2}});
  EXPECT_DOUBLE_EQ(found.score, (1 + 0 + 0.25 + 0.25) / 4);
  EXPECT_DOUBLE_EQ(found.score_without_first, (0.0 + 1 + 1) / 3) << "row 0 has no wanted key other than 0";
  EXPECT_DOUBLE_EQ(found.first_token, (1 + 0.75 + 0.75) / 3);
}

TEST(HeadPattern, OneKeyPerRowHasNoEntropy) {
  const HeadPattern found = pattern({1, 0, 0, 1, 0, 0, 0, 1, 0}, {{}, {}, {}});
  EXPECT_EQ(found.entropy, 0);
  EXPECT_EQ(found.previous_token, 1);
  EXPECT_EQ(found.score, 0);
  EXPECT_EQ(found.uniform, 0);
}

TEST(HeadPattern, ShortSequencesHaveNoRowsToAverage) {
  const HeadPattern found = pattern({1}, {{0}});
  EXPECT_EQ(found.score, 1);
  EXPECT_EQ(found.uniform, 1);
  EXPECT_EQ(found.score_without_first, 0);
  EXPECT_EQ(found.previous_token, 0);
  EXPECT_EQ(found.entropy, 0);
  EXPECT_EQ(pattern({}, {}).score, 0);
}

TEST(HeadPattern, LayoutAndTypeDoNotChangeBits) {
  const std::vector<double> square{1, 0, 0, 0.3, 0.7, 0, 0.2, 0.1, 0.7};
  const std::vector<double> transposed{1, 0.3, 0.2, 0, 0.7, 0.1, 0, 0, 0.7};
  const std::vector<double> triangle{1, 0.3, 0.7, 0.2, 0.1, 0.7};
  const Wanted wanted{{}, {0}, {1, 2}};
  const HeadPattern expected = pattern(square, wanted);
  const auto same = [&](const HeadPattern& found) {
    EXPECT_EQ(found.score, expected.score);
    EXPECT_EQ(found.score_without_first, expected.score_without_first);
    EXPECT_EQ(found.entropy, expected.entropy);
  };
  same(head_pattern(TensorView<const double, 2>(transposed.data(), {3, 3}, {1, 3}), wanted));
  same(head_pattern(std::span<const double>(triangle), wanted));
  const std::vector<float> single{1, 0.25f, 0.75f, 0.5f, 0.25f, 0.25f};
  const std::vector<double> same_values(single.begin(), single.end());
  EXPECT_EQ(head_pattern(std::span<const float>(single), wanted).entropy,
            head_pattern(std::span<const double>(same_values), wanted).entropy);
}

TEST(HeadPattern, WrongArgumentsAreRejected) {
  const std::vector<double> weights(9);
  const auto message = [&](Index rows, Index columns, const Wanted& wanted) {
    return rejection([&] { head_pattern(TensorView<const double, 2>(weights.data(), {rows, columns}), wanted); });
  };
  EXPECT_EQ(message(3, 2, {{}, {}, {}}),
            "head_pattern: weights has shape (3, 2); expected (3, 3) because wanted has 3 rows");
  EXPECT_EQ(message(2, 2, {{}, {2}}), "head_pattern: wanted of row 1 has key 2; expected 0 to 1, ascending");
  EXPECT_EQ(message(2, 2, {{-1}, {}}), "head_pattern: wanted of row 0 has key -1; expected 0 to 0, ascending");
  EXPECT_EQ(message(3, 3, {{}, {}, {1, 1}}), "head_pattern: wanted of row 2 has key 1; expected 2 to 2, ascending");
  EXPECT_EQ(rejection([&] { head_pattern(std::span<const double>(weights), Wanted(3)); }),
            "head_pattern: lower_triangle has 9 elements; expected 6 because wanted has 3 rows");
}

}  // namespace
}  // namespace regard::patterns_test
