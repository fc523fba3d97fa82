// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 4: how far the context may deviate from the formula.
//
//   first bullet    normal inputs: 99.9 % of results within 8 u Σ p |v|, all within 32, for every S
//   second bullet   every finite input: u (32 + 4 √D max_j(|scale| Σ |q k| + |bias| + |slope · distance|)) Σ p |v|
//
// The second is tested with inputs that make sums drift: equal addends, rising maxima, cancelling products, huge
// values.
// Read next: docs/derivations/attention.md, section 5.
#include "support/attention_checks.h"
#include "support/test_size.h"

namespace regard::attention_precision_test {
namespace {

template <class T>
class AttentionPrecision : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionPrecision, Types);

// |error| of every context element in units of u Σ p |v|, sorted.
template <class T>
std::vector<double> sorted_errors(const AttentionArrays<T>& got, const reference::Attention<T>& expected) {
  std::vector<double> errors;
  const std::vector<T> context = got.context.values();
  for (std::size_t at = 0; at < context.size(); ++at) {
    errors.push_back(static_cast<double>(std::abs(static_cast<reference::Wide<T>>(context[at]) - expected.context[at]) /
                                         (reference::kUnit<T> * expected.magnitude[at])));
  }
  std::sort(errors.begin(), errors.end());
  return errors;
}

TYPED_TEST(AttentionPrecision, NormalInputsAreWithin8UnitsForEveryS) {
  using T = TypeParam;
  constexpr Index kHeadSize = 64;
  const Index rows = test_size<Index>(64, 24);
  std::vector<std::vector<double>> percentiles(static_cast<std::size_t>(kernels::num_available()));
  for (const Index S : {64, 1024, 4096, 16384}) {
    const auto inputs = AttentionInputs<T>::normal(static_cast<std::uint64_t>(S), rows, S, kHeadSize);
    const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view());
    for (int i = 0; i < kernels::num_available(); ++i) {
      const ActiveTable active(kernels::available(i));
      SCOPED_TRACE(std::string(kernels::available(i).name) + ", S " + std::to_string(S));
      AttentionArrays<T> got = AttentionArrays<T>::dense(1, 1, rows, S, kHeadSize, false);
      attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), got.views());
      matches_reference(got, expected);
      const std::vector<double> errors = sorted_errors(got, expected);
      const double percentile = errors[errors.size() * 999 / 1000];
      EXPECT_LE(percentile, 8);
      EXPECT_LE(errors.back(), 32);
      EXPECT_GT(percentile, 0);
      percentiles[static_cast<std::size_t>(i)].push_back(percentile);
    }
  }
  for (int i = 0; i < kernels::num_available(); ++i) {
    const std::vector<double>& of_set = percentiles[static_cast<std::size_t>(i)];
    EXPECT_LE(of_set.back(), *std::max_element(of_set.begin(), of_set.end() - 1)) << kernels::available(i).name;
  }
}

TYPED_TEST(AttentionPrecision, NormalInputsOfEveryHeadSize) {
  using T = TypeParam;
  for (const Index D : {1, 16, 128, 257, 512}) {
    const auto inputs = AttentionInputs<T>::normal(static_cast<std::uint64_t>(D), 60, 700, D);
    const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view());
    on_every_instruction_set([&](const kernels::KernelTable&) {
      SCOPED_TRACE(D);
      const AttentionArrays<T> got = run_attention(inputs);
      matches_reference(got, expected);
      const std::vector<double> errors = sorted_errors(got, expected);
      EXPECT_LE(errors[errors.size() * 999 / 1000], 8);
      EXPECT_LE(errors.back(), 32);
    });
  }
}

// ---- every finite input

// Values whose sums repeatedly round in the same direction, and ordinary ones.
const std::vector<double> kStubbornValues{1 + 0x1p-17, 4.0 / 3, 5.0 / 3, 1 + 0x1p-23, 1 + 0x1p-12, 2 - 0x1p-20, 1,
                                          0.1,         1.9999,  7.0 / 9, -3.3,        1 + 0x1p-52, 1 + 0x1p-40};

TYPED_TEST(AttentionPrecision, ConstantValuesUnderEqualScores) {
  using T = TypeParam;
  const Index columns = static_cast<Index>(kStubbornValues.size());
  for (const Index S : {1, 63, 64, 65, 127, 1000, 1023, 1024, 1025, 2048, 5000, 20000, 70000}) {
    AttentionInputs<T> inputs = AttentionInputs<T>::normal(1, 1, 1, 1, 1, S, 1, columns);
    inputs.value.for_each_index([&](const auto& at) {
      inputs.value.set(at, static_cast<T>(kStubbornValues[static_cast<std::size_t>(at[3])]));
    });
    SCOPED_TRACE(S);
    checked_attention(inputs, {.scale = 0.0});
  }
}

TYPED_TEST(AttentionPrecision, ConstantValuesUnderNearlyEqualAndRisingScores) {
  using T = TypeParam;
  const Index columns = static_cast<Index>(kStubbornValues.size()), S = 6000;
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(2, 1, 1, 1, 1, S, 1, columns);
  inputs.value.for_each_index(
      [&](const auto& at) { inputs.value.set(at, static_cast<T>(kStubbornValues[static_cast<std::size_t>(at[3])])); });
  inputs.query.fill([] { return 1; });
  // Each step is a new maximum: the running sum is rescaled at every block.
  for (const double step : {1e-7, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, -1e-5, -1e-3, -0.1}) {
    SCOPED_TRACE(step);
    inputs.key.for_each_index(
        [&](const auto& at) { inputs.key.set(at, static_cast<T>(step * static_cast<double>(at[2]))); });
    checked_attention(inputs, {.scale = 1.0});
  }
  // The maximum rises by the same tiny amount from block to block and is constant within one.
  for (const double step : {0x1p-20, 0x1p-12, 0x1p-4, 1.0}) {
    SCOPED_TRACE(step);
    inputs.key.for_each_index([&](const auto& at) {
      const Index block = at[2] / 64;
      inputs.key.set(at, static_cast<T>(step * static_cast<double>(block)));
    });
    checked_attention(inputs, {.scale = 1.0});
  }
}

TYPED_TEST(AttentionPrecision, OneDominantScore) {
  using T = TypeParam;
  for (const Index S : {2, 64, 1025, 3000}) {
    for (const double score : {5.0, 17.0, 60.0, 87.0, 104.0, 700.0, 1e6}) {
      AttentionInputs<T> inputs = AttentionInputs<T>::normal(3, 2, S, 4);
      inputs.query.fill([] { return 1; });
      inputs.key.for_each_index(
          [&](const auto& at) { inputs.key.set(at, at[2] == S / 2 && at[3] == 0 ? static_cast<T>(score) : 0); });
      SCOPED_TRACE(std::to_string(S) + ", " + std::to_string(score));
      checked_attention(inputs, {.scale = 1.0});
    }
  }
}

TYPED_TEST(AttentionPrecision, CancellingProducts) {
  using T = TypeParam;
  // Σ |q k| is large but the score is small: the bound grows with the former.
  for (const Index D : {2, 64, 256, 257}) {
    for (const double magnitude : {10.0, 1e3, 1e5}) {
      AttentionInputs<T> inputs = AttentionInputs<T>::normal(4, 5, 300, D);
      inputs.query.for_each_index(
          [&](const auto& at) { inputs.query.set(at, static_cast<T>(at[3] % 2 == 0 ? magnitude : -magnitude)); });
      Random random(5);
      inputs.key.for_each_index([&](const auto& at) {
        const Index pair = at[3] / 2;
        const double common = 1 + static_cast<double>(pair) / 97;
        inputs.key.set(at, static_cast<T>(common + random.normal() * 1e-4));
      });
      SCOPED_TRACE(std::to_string(D) + ", " + std::to_string(magnitude));
      checked_attention(inputs, {.scale = 0.01});
    }
  }
}

TYPED_TEST(AttentionPrecision, LargeScoresOfEveryKind) {
  using T = TypeParam;
  Random random(6);
  for (const double magnitude : {3.0, 10.0, 100.0, 1e4, 1e10, 1e18}) {
    for (const Index D : {1, 3, 64}) {
      AttentionInputs<T> inputs = AttentionInputs<T>::normal(random.bits(), 20, 300, D);
      for (auto* array : {&inputs.query, &inputs.key}) {
        array->for_each_index(
            [&](const auto& at) { array->set(at, static_cast<T>(static_cast<double>(array->get(at)) * magnitude)); });
      }
      SCOPED_TRACE(std::to_string(D) + ", " + std::to_string(magnitude));
      checked_attention(inputs);
    }
  }
}

TYPED_TEST(AttentionPrecision, SoftCapBiasAndAlibiOfEveryMagnitude) {
  using T = TypeParam;
  Array<float, 4> bias({1, 1, 20, 300});
  for (const double magnitude : {1e-3, 1.0, 30.0, 1e3, 1e6}) {
    for (const Index D : {1, 2, 64}) {
      const AttentionInputs<T> inputs = AttentionInputs<T>::normal(7, 20, 300, D);
      Random random(8);
      bias.fill([&] { return random.normal() * magnitude; });
      const std::vector<T> slopes{static_cast<T>(magnitude / 3)};
      SCOPED_TRACE(std::to_string(D) + ", " + std::to_string(magnitude));
      checked_attention(inputs, {.bias = std::as_const(bias).view()});
      checked_attention(inputs, {.query_offset = Index{100}, .alibi_slopes = slopes});
      for (const double cap : {0.1, 1.0, 50.0}) {
        checked_attention(inputs, {.soft_cap = cap, .scale = magnitude});
      }
    }
  }
}

TYPED_TEST(AttentionPrecision, ValuesOfEveryMagnitudeInAdjacentColumns) {
  using T = TypeParam;
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(9, 1, 1, 1, 10, 2100, 4, 40);
  const int lowest = std::numeric_limits<T>::min_exponent - 20, highest = std::numeric_limits<T>::max_exponent - 4;
  // A column for every magnitude from subnormal to the largest, with both signs in each column.
  inputs.value.for_each_index([&](const auto& at) {
    const int exponent = lowest + static_cast<int>(at[3]) * (highest - lowest) / 39;
    inputs.value.set(at, std::ldexp(inputs.value.get(at), exponent));
  });
  checked_attention(inputs);
  checked_attention(inputs, {.scale = 0.0});
  // Every magnitude within one column.
  inputs.value.for_each_index([&](const auto& at) {
    const int exponent = lowest + static_cast<int>(at[2] % 40) * (highest - lowest) / 39;
    inputs.value.set(at, std::ldexp(static_cast<T>(at[3] % 3 == 0 ? 1.3 : -1.1), exponent));
  });
  checked_attention(inputs);
}

TYPED_TEST(AttentionPrecision, ValuesNearTheLargestFiniteNumber) {
  using T = TypeParam;
  for (const Index S : {2, 3, 64, 1024, 1025, 3000}) {
    AttentionInputs<T> inputs = AttentionInputs<T>::normal(10, 1, 1, 1, 5, S, 4, 6);
    inputs.value.for_each_index([&](const auto& at) {
      const T sign = at[3] < 2 || at[2] % 2 == 0 ? static_cast<T>(1) : static_cast<T>(-1);
      // Whole columns of one sign, of both, and a column of ordinary values next to them.
      const T part = at[3] == 0 ? static_cast<T>(0.999) : static_cast<T>(0.5);
      if (at[3] < 5) inputs.value.set(at, sign * std::numeric_limits<T>::max() * part);
    });
    SCOPED_TRACE(S);
    for (const T x : checked_attention(inputs).context.values()) EXPECT_TRUE(std::isfinite(x));
    for (const T x : checked_attention(inputs, {.scale = 0.0}).context.values()) EXPECT_TRUE(std::isfinite(x));
  }
}

TYPED_TEST(AttentionPrecision, SinksOfEveryMagnitude) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = AttentionInputs<T>::normal(11, 1, 1, 1, 20, 1500, 16, 5);
  for (const double sink : {-1e30, -100.0, -5.0, 0.0, 3.0, 20.0, 80.0, 95.0, 1e4, 3e38}) {
    const std::vector<T> sinks{static_cast<T>(sink)};
    SCOPED_TRACE(sink);
    checked_attention(inputs, {.sinks = sinks});
  }
}

}  // namespace
}  // namespace regard::attention_precision_test
