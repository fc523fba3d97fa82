// SPDX-License-Identifier: Apache-2.0
//
// The generators compared with the numbers printed in tutorials: the notebook of lesson from-seed (seed 42), chapter 3
// of S. Raschka, "Build a Large Language Model (From Scratch)", notebook ch03.ipynb (seeds 123 and 789), and NumPy's
// RandomState(0). A printed number matches if ours rounds to it, so the tolerance is half its last digit.
#include "regard/explain/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <stdexcept>

namespace regard::random_test {
namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr double kHalfDigit4 = 0.5e-4 + 1e-9;

// Six words of three values: Your journey starts with one step.
const Matrix kSentence = {{0.43, 0.15, 0.89}, {0.55, 0.87, 0.66}, {0.57, 0.85, 0.64},
                          {0.22, 0.58, 0.33}, {0.77, 0.25, 0.10}, {0.05, 0.80, 0.55}};

Matrix from_rows(const std::vector<float>& numbers, std::size_t columns) {
  Matrix matrix(numbers.size() / columns, std::vector<double>(columns));
  for (std::size_t i = 0; i < numbers.size(); ++i) matrix[i / columns][i % columns] = static_cast<double>(numbers[i]);
  return matrix;
}

Matrix transpose(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b[0].size(); ++j) {
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

// softmax(query · keyᵀ / √D), over the first i + 1 keys when causal.
Matrix weights_of(const Matrix& query, const Matrix& key, bool causal) {
  Matrix weights = multiply(query, transpose(key));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t visible = causal ? i + 1 : weights[i].size();
    double sum = 0.0;
    for (std::size_t j = 0; j < weights[i].size(); ++j) {
      weights[i][j] = j < visible ? std::exp(weights[i][j] / std::sqrt(static_cast<double>(query[0].size()))) : 0.0;
      sum += weights[i][j];
    }
    for (double& weight : weights[i]) weight /= sum;
  }
  return weights;
}

void expect_row(const std::vector<double>& printed, const std::vector<double>& row) {
  ASSERT_EQ(printed.size(), row.size());
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(printed[i], row[i], kHalfDigit4) << "column " << i;
}

Matrix linear_parameters(regard::TorchGenerator& torch, Index num_inputs, Index num_outputs) {
  return transpose(
      from_rows(torch.linear(num_inputs, num_outputs, false).parameters, static_cast<std::size_t>(num_inputs)));
}

TEST(TorchGenerator, Seed42GivesTheTokensOfTheNotebook) {
  const Matrix printed = {{0.3367, 0.1288, 0.2345, 0.2303, -1.1229},
                          {-0.1863, 2.2082, -0.6380, 0.4617, 0.2674},
                          {0.5349, 0.8094, 1.1103, -1.6898, -0.9890}};
  regard::TorchGenerator torch(42);
  const Matrix tokens = from_rows(torch.normal(15), 5);
  for (std::size_t i = 0; i < 3; ++i) expect_row(printed[i], tokens[i]);
}

TEST(TorchGenerator, NextMatricesGiveKeysQueriesAndValuesOfTheNotebook) {
  regard::TorchGenerator torch(42);
  const Matrix tokens = from_rows(torch.normal(15), 5);
  const Matrix w_key = from_rows(torch.normal(20), 4);
  const Matrix w_query = from_rows(torch.normal(20), 4);
  const Matrix w_value = from_rows(torch.normal(20), 4);
  const Matrix key = {
      {0.6023, -0.7260, 1.1799, 0.2383}, {-0.6521, 4.4224, -3.7460, -1.2657}, {-0.7106, -4.3429, 4.2984, -2.3664}};
  const Matrix query = {
      {-1.6964, 1.3355, -0.5133, 0.0674}, {1.6595, -0.4445, -0.1917, 1.7729}, {-0.1650, -2.9899, -3.8893, 1.2756}};
  const Matrix value = {
      {-0.9285, 0.3301, 1.8359, -1.3448}, {0.4676, -0.1512, -0.5678, 0.8648}, {0.6143, 2.6772, -1.3256, -3.2423}};
  for (std::size_t i = 0; i < 3; ++i) {
    expect_row(key[i], multiply(tokens, w_key)[i]);
    expect_row(query[i], multiply(tokens, w_query)[i]);
    expect_row(value[i], multiply(tokens, w_value)[i]);
  }
}

TEST(TorchGenerator, SplitDrawsKeepTheSecondNormalOfAPair) {
  regard::TorchGenerator whole(42);
  regard::TorchGenerator split(42);
  const std::vector<float> expected = whole.normal(15);
  std::vector<float> joined = split.normal(7);
  for (float number : split.normal(8)) joined.push_back(number);
  EXPECT_EQ(expected, joined);
}

TEST(TorchGenerator, LongDrawsKeepTheSecondNormalOfAPair) {
  // Fifteen normals leave one sine unused; a draw of sixteen or more neither uses nor drops it.
  regard::TorchGenerator all_short(42);
  const std::vector<float> first_sixteen = [&] {
    std::vector<float> numbers = all_short.normal(15);
    numbers.push_back(all_short.normal(1)[0]);
    return numbers;
  }();
  regard::TorchGenerator torch(42);
  torch.normal(15);
  torch.normal(20);
  EXPECT_EQ(torch.normal(1)[0], first_sixteen[15]);
}

TEST(TorchGenerator, DrawsOfSixteenOrMorePairElementsEightApartAndRedrawTheTail) {
  regard::TorchGenerator uniforms(7);
  const std::vector<float> u = uniforms.uniform(20 + 16);
  regard::TorchGenerator torch(7);
  const std::vector<float> normals = torch.normal(20);
  const auto pair = [&](std::size_t radius, std::size_t angle) {
    const double r = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(u[radius])));
    const double turn = 2.0 * std::acos(-1.0) * static_cast<double>(u[angle]);
    return std::array<double, 2>{r * std::cos(turn), r * std::sin(turn)};
  };
  // Elements 4 to 19 come from the sixteen uniforms drawn after the first twenty; 0 to 3 keep the first block.
  for (std::size_t j = 0; j < 4; ++j) EXPECT_FLOAT_EQ(normals[j], static_cast<float>(pair(j, j + 8)[0]));
  for (std::size_t j = 0; j < 8; ++j) {
    EXPECT_FLOAT_EQ(normals[4 + j], static_cast<float>(pair(20 + j, 28 + j)[0]));
    EXPECT_FLOAT_EQ(normals[12 + j], static_cast<float>(pair(20 + j, 28 + j)[1]));
  }
}

TEST(TorchGenerator, Seed123GivesSelfAttentionV1OfTheBook) {
  regard::TorchGenerator torch(123);
  const Matrix query = multiply(kSentence, from_rows(torch.uniform(6), 2));
  const Matrix key = multiply(kSentence, from_rows(torch.uniform(6), 2));
  const Matrix value = multiply(kSentence, from_rows(torch.uniform(6), 2));
  expect_row({0.4306, 1.4551}, query[1]);
  expect_row({1.2705, 1.8524, 1.8111, 1.0795, 0.5577, 1.5440}, multiply(query, transpose(key))[1]);
  const Matrix weights = weights_of(query, key, false);
  expect_row({0.1500, 0.2264, 0.2199, 0.1311, 0.0906, 0.1820}, weights[1]);
  expect_row({0.3061, 0.8210}, multiply(weights, value)[1]);
}

TEST(TorchGenerator, Seed789GivesSelfAttentionV2OfTheBookAndItsCausalWeights) {
  regard::TorchGenerator torch(789);
  const Matrix query = multiply(kSentence, linear_parameters(torch, 3, 2));
  const Matrix key = multiply(kSentence, linear_parameters(torch, 3, 2));
  const Matrix value = multiply(kSentence, linear_parameters(torch, 3, 2));
  const Matrix weights = weights_of(query, key, false);
  expect_row({0.1921, 0.1646, 0.1652, 0.1550, 0.1721, 0.1510}, weights[0]);
  expect_row({-0.0739, 0.0713}, multiply(weights, value)[0]);
  expect_row({-0.0754, 0.0693}, multiply(weights, value)[5]);
  const Matrix causal = weights_of(query, key, true);
  expect_row({0.5517, 0.4483, 0, 0, 0, 0}, causal[1]);
  expect_row({0.3800, 0.3097, 0.3103, 0, 0, 0}, causal[2]);
  expect_row({0.2758, 0.2460, 0.2462, 0.2319, 0, 0}, causal[3]);
}

TEST(TorchGenerator, Seed123GivesTheCausalHeadsOfTheBook) {
  regard::TorchGenerator torch(123);
  Matrix joined(6);
  for (int head = 0; head < 2; ++head) {
    const Matrix query = multiply(kSentence, linear_parameters(torch, 3, 2));
    const Matrix key = multiply(kSentence, linear_parameters(torch, 3, 2));
    const Matrix value = multiply(kSentence, linear_parameters(torch, 3, 2));
    const Matrix context = multiply(weights_of(query, key, true), value);
    for (std::size_t i = 0; i < 6; ++i) joined[i].insert(joined[i].end(), context[i].begin(), context[i].end());
  }
  expect_row({-0.4519, 0.2216, 0.4772, 0.1063}, joined[0]);
  expect_row({-0.5299, -0.1081, 0.5077, 0.3493}, joined[5]);
}

TEST(TorchGenerator, Seed123GivesMultiHeadAttentionOfTheBook) {
  regard::TorchGenerator torch(123);
  const Matrix query = multiply(kSentence, linear_parameters(torch, 3, 2));
  const Matrix key = multiply(kSentence, linear_parameters(torch, 3, 2));
  const Matrix value = multiply(kSentence, linear_parameters(torch, 3, 2));
  const regard::TorchGenerator::Linear out = torch.linear(2, 2, true);
  Matrix joined(6);
  for (std::size_t head = 0; head < 2; ++head) {
    const auto column = [&](const Matrix& matrix) {
      Matrix part;
      for (const std::vector<double>& row : matrix) part.push_back({row[head]});
      return part;
    };
    const Matrix context = multiply(weights_of(column(query), column(key), true), column(value));
    for (std::size_t i = 0; i < 6; ++i) joined[i].push_back(context[i][0]);
  }
  Matrix output = multiply(joined, transpose(from_rows(out.parameters, 2)));
  for (std::vector<double>& row : output) {
    for (std::size_t j = 0; j < 2; ++j) row[j] += static_cast<double>(out.bias[j]);
  }
  const Matrix printed = {{0.3190, 0.4858}, {0.2943, 0.3897}, {0.2856, 0.3593},
                          {0.2693, 0.3873}, {0.2639, 0.3928}, {0.2575, 0.4028}};
  for (std::size_t i = 0; i < 6; ++i) expect_row(printed[i], output[i]);
}

TEST(TorchGenerator, DropoutMatchesTheBook) {
  const std::array<const char*, 6> printed = {"110110", "000101", "111101", "011001", "010101", "011110"};
  regard::TorchGenerator torch(123);
  const std::vector<float> factors = torch.dropout_factors(36, 0.5);
  for (std::size_t i = 0; i < 36; ++i) EXPECT_EQ(factors[i], printed[i / 6][i % 6] == '1' ? 2.0f : 0.0f) << i;
}

TEST(TorchGenerator, RejectsInvalidArguments) {
  regard::TorchGenerator torch(1);
  EXPECT_THROW(torch.normal(-1), std::invalid_argument);
  EXPECT_THROW(torch.uniform(-1), std::invalid_argument);
  EXPECT_THROW(torch.linear(0, 2, true), std::invalid_argument);
  EXPECT_THROW(torch.dropout_factors(3, 1.0), std::invalid_argument);
  EXPECT_THROW(torch.dropout_factors(3, std::nan("")), std::invalid_argument);
  EXPECT_TRUE(torch.normal(0).empty());
}

TEST(NumpyRandomState, Seed0MatchesNumpy) {
  // Printed by NumPy 2.4.6 in full digits.
  const std::vector<double> normals = {1.764052345967664, 0.4001572083672233, 0.9787379841057392, 2.240893199201458,
                                       1.8675579901499675};
  const std::vector<double> uniforms = {0.5488135039273248, 0.7151893663724195, 0.6027633760716439, 0.5448831829968969,
                                        0.4236547993389047};
  regard::NumpyRandomState normal_state(0);
  const std::vector<double> drawn = normal_state.normal(5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(drawn[i], normals[i]);
  regard::NumpyRandomState uniform_state(0);
  EXPECT_EQ(uniform_state.uniform(5), uniforms);
  EXPECT_THROW(uniform_state.normal(-1), std::invalid_argument);
}

}  // namespace
}  // namespace regard::random_test
