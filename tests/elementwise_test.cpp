// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh and log of every instruction set, within the bounds stated in src/kernels/simd_math.h.
// Read next: support/function_error.h, src/kernels/simd_math.h.
#include "support/function_error.h"

namespace regard::elementwise_test {
namespace {

template <class T>
Function<T> exp_function() {
  return {"exp",
          [](const kernels::KernelTable& table, const T* x, T* y, Index count) { table.of<T>().exp(x, y, count); },
          [](Wide<T> x) { return std::exp(x); }, 1, true};
}
template <class T>
Function<T> tanh_function() {
  return {"tanh",
          [](const kernels::KernelTable& table, const T* x, T* y, Index count) { table.of<T>().tanh(x, y, count); },
          [](Wide<T> x) { return std::tanh(x); }, 4};
}
template <class T>
Function<T> log_function() {
  return {"log",
          [](const kernels::KernelTable& table, const T* x, T* y, Index count) { table.of<T>().log(x, y, count); },
          [](Wide<T> x) { return std::log(x); }, sizeof(T) == 4 ? 1.0 : 2.0};
}

// ---- common to both types

template <class T>
class Elementwise : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

TYPED_TEST(Elementwise, ExpSpecialValues) {
  using T = TypeParam;
  const T least_normal = std::numeric_limits<T>::min();
  const T largest = std::numeric_limits<T>::max();
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> y =
        apply<T>(table, exp_function<T>(),
                 {static_cast<T>(0.0), static_cast<T>(-0.0), -least_normal, -std::numeric_limits<T>::denorm_min(),
                  -kInfinity<T>, -largest, static_cast<T>(-1000), kNaN<T>, -kNaN<T>, static_cast<T>(-1)});
    EXPECT_EQ(bits_of(std::vector<T>(y.begin(), y.begin() + 7)), bits_of<T>({1, 1, 1, 1, 0, 0, 0}));
    EXPECT_TRUE(std::isnan(y[7]));
    EXPECT_TRUE(std::isnan(y[8]));
    // Subnormal results are not flushed.
    const T low = sizeof(T) == 4 ? static_cast<T>(-100) : static_cast<T>(-740);
    const T subnormal = apply<T>(table, exp_function<T>(), {low})[0];
    EXPECT_GT(subnormal, 0);
    EXPECT_LT(subnormal, least_normal);
  });
}

TYPED_TEST(Elementwise, ExpDoesNotDependOnOtherElements) {
  using T = TypeParam;
  constexpr std::size_t kCount = 64;
  const T subnormal = sizeof(T) == 4 ? static_cast<T>(-100) : static_cast<T>(-740);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> alone = {apply<T>(table, exp_function<T>(), {-1})[0],
                                  apply<T>(table, exp_function<T>(), {subnormal})[0]};
    for (std::size_t nan = 0; nan < kCount; ++nan) {
      for (std::size_t low = 0; low < kCount; ++low) {
        if (low == nan) continue;
        std::vector<T> x(kCount, -1), expected(kCount, alone[0]);
        x[nan] = kNaN<T>;
        x[low] = subnormal;
        expected[low] = alone[1];
        std::vector<T> y = apply<T>(table, exp_function<T>(), x);
        ASSERT_TRUE(std::isnan(y[nan])) << table.name << ", " << nan;
        y[nan] = expected[nan];
        ASSERT_EQ(bits_of(y), bits_of(expected)) << table.name << ", NaN at " << nan << ", small number at " << low;
      }
    }
  });
}

TYPED_TEST(Elementwise, TanhSpecialValues) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> y = apply<T>(table, tanh_function<T>(),
                                      {static_cast<T>(0.0), static_cast<T>(-0.0), kInfinity<T>, -kInfinity<T>, tiny,
                                       std::numeric_limits<T>::max(), kNaN<T>, -kNaN<T>});
    EXPECT_EQ(bits_of(std::vector<T>(y.begin(), y.begin() + 6)),
              bits_of<T>({static_cast<T>(0.0), static_cast<T>(-0.0), 1, -1, tiny, 1}));
    EXPECT_TRUE(std::isnan(y[6]));
    EXPECT_TRUE(std::isnan(y[7]));
  });
}

TYPED_TEST(Elementwise, LogSpecialValues) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> y =
        apply<T>(table, log_function<T>(),
                 {static_cast<T>(0.0), static_cast<T>(-0.0), 1, kInfinity<T>, kNaN<T>, -1, -kInfinity<T>});
    EXPECT_EQ(bits_of(std::vector<T>(y.begin(), y.begin() + 4)),
              bits_of<T>({-kInfinity<T>, -kInfinity<T>, 0, kInfinity<T>}));
    for (std::size_t i = 4; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_LT(apply<T>(table, log_function<T>(), {std::numeric_limits<T>::denorm_min()})[0],
              apply<T>(table, log_function<T>(), {std::numeric_limits<T>::min()})[0]);
  });
}

TYPED_TEST(Elementwise, BitsDoNotDependOnThePositionInAnArray) {
  using T = TypeParam;
  Random random(20270101);
  std::vector<T> x(70), negated;
  for (T& number : x) number = static_cast<T>(-random.uniform() * 20);
  for (const T number : x) negated.push_back(-number);
  expect_bits_independent_of_position(exp_function<T>(), x);
  expect_bits_independent_of_position(tanh_function<T>(), x);
  expect_bits_independent_of_position(log_function<T>(), negated);
}

TYPED_TEST(Elementwise, ExpAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centers;
  const int last = sizeof(T) == 4 ? 151 : 1076;
  for (int n = 1; n <= 2 * last; ++n) centers.push_back(-std::numbers::ln2_v<Wide<T>> * n / 2);
  check_neighborhoods<T>(exp_function<T>(), centers, -kInfinity<T>, static_cast<T>(-0.0));
}

TYPED_TEST(Elementwise, TanhAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centers;
  for (int n = 1; n <= 120; ++n) centers.push_back(std::numbers::ln2_v<Wide<T>> * n / 4);
  check_neighborhoods<T>(tanh_function<T>(), centers, 0, kInfinity<T>);
}

TYPED_TEST(Elementwise, LogAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centers{1};
  const int reach = sizeof(T) == 4 ? 120 : 1000;
  for (int n = -reach; n <= reach; ++n) {
    centers.push_back(std::ldexp(Wide<T>{1}, n));
    centers.push_back(std::ldexp(std::numbers::sqrt2_v<Wide<T>>, n));
  }
  check_neighborhoods<T>(log_function<T>(), centers, 0, kInfinity<T>);
}

TYPED_TEST(Elementwise, TanhIsOddAndAtMostOne) {
  using T = TypeParam;
  Random random(20270102);
  std::vector<T> x(200'000), negated;
  for (T& number : x) number = static_cast<T>(std::exp(random.normal() * 3));
  for (const T number : x) negated.push_back(-number);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> y = apply(table, tanh_function<T>(), x);
    std::vector<T> mirrored = apply(table, tanh_function<T>(), negated);
    for (T& number : mirrored) number = -number;
    EXPECT_TRUE(bits_of(y) == bits_of(mirrored));
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](T number) { return number >= 0 && number <= 1; }));
  });
}

// ---- float: every number, or a sample

TEST(ElementwiseFloat, ExpOfNonPositiveValues) {
  check_range<float>(exp_function<float>(), -kInfinity<float>, -0.0f, sampled<float>(97));
}
TEST(ElementwiseFloat, ExpFromMinusAHalfToMinusAQuarter) {
  check_range<float>(exp_function<float>(), -0.5f, -0.25f, test_size(1U, 10U));
}
TEST(ElementwiseFloat, ExpWithSubnormalResults) { check_range<float>(exp_function<float>(), -106, -87, 1); }
TEST(ElementwiseFloat, TanhOfNonNegativeValues) {
  check_range<float>(tanh_function<float>(), 0, kInfinity<float>, sampled<float>(997));
}
TEST(ElementwiseFloat, LogOfNonNegativeValues) {
  check_range<float>(log_function<float>(), 0, kInfinity<float>, sampled<float>(997));
}
TEST(ElementwiseFloat, LogAroundOne) { check_range<float>(log_function<float>(), 0.70f, 1.42f, 29); }

// ---- double: samples

TEST(ElementwiseDouble, ExpOfNonPositiveValues) {
  check_range<double>(exp_function<double>(), -kInfinity<double>, -0.0, 0x0010'0123'4567'89ab >> 8);
  check_range<double>(exp_function<double>(), -746, -1e-3, 0x0010'0123'4567'89ab >> 14);
}
TEST(ElementwiseDouble, ExpWithSubnormalResults) {
  check_range<double>(exp_function<double>(), -746, -708, 0x0123'4567'89ab >> 12);
}
TEST(ElementwiseDouble, TanhOfNonNegativeValues) {
  check_range<double>(tanh_function<double>(), 0, kInfinity<double>, 0x0010'0123'4567'89ab >> 7);
  check_range<double>(tanh_function<double>(), 1e-3, 30, 0x0010'0123'4567'89ab >> 14);
}
TEST(ElementwiseDouble, LogOfNonNegativeValues) {
  check_range<double>(log_function<double>(), 0, kInfinity<double>, 0x0010'0123'4567'89ab >> 8);
  check_range<double>(log_function<double>(), 0.70, 1.42, 0x0010'0123'4567'89ab >> 18);
}

}  // namespace
}  // namespace regard::elementwise_test
