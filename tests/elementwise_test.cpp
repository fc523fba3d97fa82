// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh, log, gelu and gelu_tanh of every instruction set, within the bounds stated in src/kernels/simd_math.h and
// simd_gelu.h, measured in ULP of the exact value. The exact value is computed in double when testing float, and in
// long double when testing double.
//
//   for each range of arguments, ascending:   exact values once, then for every table:
//     |kernel − exact| ≤ bound · ulp(exact), monotone (exp), the same bits as the other fused tables
//
// REGARD_EXHAUSTIVE=1 takes every float instead of a sample.
// Read next: src/kernels/simd_math.h.
#include <cstdlib>

#include "support/arrays.h"
#include "support/instruction_sets.h"

namespace regard {
namespace {

template <class T>
using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
using Wide = reference::Wide<T>;

bool exhaustive() { return std::getenv("REGARD_EXHAUSTIVE") != nullptr; }

template <class T>
T from_word(Word<T> word) {
  return std::bit_cast<T>(word);
}
template <class T>
Word<T> word_of(T x) {
  return std::bit_cast<Word<T>>(x);
}
template <class T>
constexpr Word<T> kSign = Word<T>{1} << (sizeof(T) * 8 - 1);
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The distance of adjacent numbers of type T around the exact value.
double ulp_float(double exact) {
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(exact) >> 52 & 0x7ff;
  constexpr std::uint64_t kLowest = 1023 - 126;
  return std::bit_cast<double>((std::max(exponent, kLowest) - 23) << 52);
}
template <class T>
Wide<T> ulp(Wide<T> exact) {
  if constexpr (sizeof(T) == 4) {
    return ulp_float(exact);
  } else {
    return std::ldexp(1.0L, std::max(exact == 0 ? -1022 : std::ilogb(exact), -1022) - 52);
  }
}

template <class T>
struct Function {
  const char* name;
  void (*kernels::Kernels<T>::*kernel)(const T*, T*, Index);
  Wide<T> (*exact)(Wide<T>);
  double ulps;
  bool rises;
};
template <class T>
Function<T> exp_function() {
  return {"exp", &kernels::Kernels<T>::exp, [](Wide<T> x) { return std::exp(x); }, 1, true};
}
template <class T>
Function<T> tanh_function() {
  return {"tanh", &kernels::Kernels<T>::tanh, [](Wide<T> x) { return std::tanh(x); }, 4, false};
}
template <class T>
Function<T> log_function() {
  return {"log", &kernels::Kernels<T>::log, [](Wide<T> x) { return std::log(x); }, sizeof(T) == 4 ? 1.0 : 2.0, false};
}
// Without subtracting nearly equal terms: ½ x erfc(−x / √2).
template <class T>
Function<T> gelu_function() {
  return {"gelu", &kernels::Kernels<T>::gelu,
          [](Wide<T> x) {
            return std::isinf(x) ? std::max(x, Wide<T>{0}) : x / 2 * std::erfc(-x / std::numbers::sqrt2_v<Wide<T>>);
          },
          sizeof(T) == 4 ? 7.0 : 9.0, false};
}
// Likewise: x / (1 + e^−2u), u = √(2/π) (x + 0.044715 x³).
template <class T>
Function<T> gelu_tanh_function() {
  return {"gelu_tanh", &kernels::Kernels<T>::gelu_tanh,
          [](Wide<T> x) {
            if (std::isinf(x)) return std::max(x, Wide<T>{0});
            const Wide<T> third = static_cast<Wide<T>>(44715) / 1'000'000;
            const Wide<T> u = std::sqrt(2 / std::numbers::pi_v<Wide<T>>) * (x + third * x * x * x);
            // With the exponential of the positive argument: for u far below zero, only that of 2u remains.
            return x < 0 ? x * std::exp(2 * u) / (1 + std::exp(2 * u)) : x / (1 + std::exp(-2 * u));
          },
          7, false};
}

template <class T>
std::vector<T> apply(const kernels::KernelTable& table, const Function<T>& function, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  (table.of<T>().*function.kernel)(x.data(), y.data(), static_cast<Index>(x.size()));
  return y;
}

// Checks range after range of ascending arguments without NaN; relations between neighbors hold across ranges, too.
template <class T>
class Checker {
 public:
  explicit Checker(const Function<T>& function)
      : function_(function), last_(static_cast<std::size_t>(kernels::num_available()), -kInfinity<T>) {}

  void check(const std::vector<T>& x) {
    exact_.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) exact_[i] = function_.exact(static_cast<Wide<T>>(x[i]));
    const std::vector<T>* fused = nullptr;
    for (int t = 0; t < kernels::num_available(); ++t) {
      const kernels::KernelTable& table = kernels::available(t);
      std::vector<T> y = apply(table, function_, x);
      check_table(table.name, x, y, last_[static_cast<std::size_t>(t)]);
      if (!table.fused_multiply_add) continue;
      if (fused == nullptr) {
        first_fused_ = std::move(y);
        fused = &first_fused_;
      } else if (!std::equal(fused->begin(), fused->end(), y.begin(), identical<T>)) {
        ADD_FAILURE() << function_.name << ": " << table.name << " has other bits than another fused table, x in ["
                      << x.front() << ", " << x.back() << "]";
      }
    }
  }

 private:
  void check_table(const char* name, const std::vector<T>& x, const std::vector<T>& y, T& last) {
    // Far more than the error of the exact value, which has a wider type, so the comparison is always conclusive.
    const Wide<T> bound = static_cast<Wide<T>>(function_.ulps) - (sizeof(T) == 4 ? 0x1p-20 : 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Wide<T> error = std::abs(static_cast<Wide<T>>(y[i]) - exact_[i]);
      // An infinite result must be the exact one.
      const bool close = static_cast<Wide<T>>(y[i]) == exact_[i] || error <= bound * ulp<T>(exact_[i]);
      const bool rises = !function_.rises || y[i] >= last;
      last = y[i];
      if ((close && rises) || ++num_faults_ > 6) continue;
      ADD_FAILURE() << name << ": " << function_.name << "(" << std::hexfloat << x[i] << ") = " << y[i] << ", exact "
                    << exact_[i] << std::defaultfloat << ", error " << error / ulp<T>(exact_[i]) << " ULP"
                    << (rises ? "" : ", below the result before it");
    }
  }

  Function<T> function_;
  std::vector<T> last_;  // of each table
  std::vector<Wide<T>> exact_;
  std::vector<T> first_fused_;
  int num_faults_ = 0;
};

// Every step-th number from begin to end, both of the same sign.
template <class T>
void check_range(const Function<T>& function, T begin, T end, Word<T> step) {
  const bool falling_words = std::signbit(begin);
  ASSERT_EQ(falling_words, std::signbit(end));
  ASSERT_LT(begin, end);
  Checker<T> checker(function);
  Word<T> word = word_of(begin);
  const Word<T> last = word_of(end);
  std::vector<T> x;
  while (true) {
    x.push_back(from_word<T>(word));
    const Word<T> left = falling_words ? word - last : last - word;
    if (left == 0 || x.size() == 1 << 16) {
      checker.check(x);
      x.clear();
      if (left == 0) return;
    }
    word = falling_words ? word - std::min(step, left) : word + std::min(step, left);
  }
}

// The numbers around each centre, as far as they are in [low, high].
template <class T>
void check_neighbourhoods(const Function<T>& function, const std::vector<Wide<T>>& centres, T low, T high) {
  std::vector<T> x;
  for (const Wide<T> centre : centres) {
    const T middle = static_cast<T>(centre);
    for (int offset = -64; offset <= 64; ++offset) {
      const T near = from_word<T>(word_of(middle) + static_cast<Word<T>>(offset));
      if (near >= low && near <= high) x.push_back(near);
    }
  }
  std::sort(x.begin(), x.end());
  ASSERT_GE(x.size(), 64 * centres.size());
  Checker<T>(function).check(x);
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

// Both forms of gelu agree if x is 0, tiny, large or NaN.
template <class T, class Function>
void expect_corners_of_gelu(const Function& gelu) {
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T largest = std::numeric_limits<T>::max();
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> y = apply<T>(table, gelu,
                                      {static_cast<T>(0.0), static_cast<T>(-0.0), kInfinity<T>, -kInfinity<T>, largest,
                                       -largest, 40, -40, 8 * tiny, -8 * tiny, kNaN<T>, -kNaN<T>});
    const std::vector<T> expected{0, 0, kInfinity<T>, 0, largest, 0, 40, 0, 4 * tiny, -4 * tiny};
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
    EXPECT_TRUE(std::isnan(y[10]));
    EXPECT_TRUE(std::isnan(y[11]));
  });
}

TYPED_TEST(Elementwise, GeluSpecialValues) { expect_corners_of_gelu<TypeParam>(gelu_function<TypeParam>()); }

TYPED_TEST(Elementwise, GeluTanhSpecialValues) { expect_corners_of_gelu<TypeParam>(gelu_tanh_function<TypeParam>()); }

TYPED_TEST(Elementwise, GeluAroundPowersOfTwoAndTheEndsOfItsExponential) {
  using T = TypeParam;
  std::vector<Wide<T>> below, above;
  for (int n = -30; n <= 5; ++n) above.push_back(std::ldexp(Wide<T>{1}, n));
  for (int n = 1; n <= (sizeof(T) == 4 ? 290 : 2140); ++n) above.push_back(std::sqrt(std::numbers::ln2_v<Wide<T>> * n));
  for (const Wide<T> x : above) below.push_back(-x);
  check_neighbourhoods<T>(gelu_function<T>(), above, 0, kInfinity<T>);
  check_neighbourhoods<T>(gelu_function<T>(), below, -kInfinity<T>, static_cast<T>(-0.0));
}

TYPED_TEST(Elementwise, BitsDoNotDependOnThePositionInAnArray) {
  using T = TypeParam;
  Random random(20270101);
  std::vector<T> x(70);
  for (T& number : x) number = static_cast<T>(-random.uniform() * 20);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    for (const Function<T>& function :
         {exp_function<T>(), tanh_function<T>(), log_function<T>(), gelu_function<T>(), gelu_tanh_function<T>()}) {
      std::vector<T> arguments = x;
      if (function.name == std::string("log")) {
        for (T& number : arguments) number = -number;
      }
      const std::vector<T> whole = apply(table, function, arguments);
      for (std::size_t count = 0; count < x.size(); ++count) {
        // One element more than is written, and the arguments at the end of theirs: nothing beyond is accessed.
        const std::vector<T> part(arguments.end() - static_cast<Index>(count), arguments.end());
        std::vector<T> y(count + 1, 7);
        (table.of<T>().*function.kernel)(part.data(), y.data(), static_cast<Index>(count));
        EXPECT_EQ(y[count], 7);
        y.pop_back();
        EXPECT_EQ(bits_of(y), bits_of(std::vector<T>(whole.end() - static_cast<Index>(count), whole.end())))
            << function.name << ", " << count << " elements";
      }
    }
  });
}

TYPED_TEST(Elementwise, ExpAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centres;
  const int last = sizeof(T) == 4 ? 151 : 1076;
  for (int n = 1; n <= 2 * last; ++n) centres.push_back(-std::numbers::ln2_v<Wide<T>> * n / 2);
  check_neighbourhoods<T>(exp_function<T>(), centres, -kInfinity<T>, static_cast<T>(-0.0));
}

TYPED_TEST(Elementwise, TanhAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centres;
  for (int n = 1; n <= 120; ++n) centres.push_back(std::numbers::ln2_v<Wide<T>> * n / 4);
  check_neighbourhoods<T>(tanh_function<T>(), centres, 0, kInfinity<T>);
}

TYPED_TEST(Elementwise, LogAtReductionBoundaries) {
  using T = TypeParam;
  std::vector<Wide<T>> centres{1};
  const int reach = sizeof(T) == 4 ? 120 : 1000;
  for (int n = -reach; n <= reach; ++n) {
    centres.push_back(std::ldexp(Wide<T>{1}, n));
    centres.push_back(std::ldexp(std::numbers::sqrt2_v<Wide<T>>, n));
  }
  check_neighbourhoods<T>(log_function<T>(), centres, 0, kInfinity<T>);
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
  check_range<float>(exp_function<float>(), -kInfinity<float>, -0.0f, exhaustive() ? 1 : 97);
}
TEST(ElementwiseFloat, ExpFromMinusAHalfToMinusAQuarter) {
  check_range<float>(exp_function<float>(), -0.5f, -0.25f, 1);
}
TEST(ElementwiseFloat, ExpWithSubnormalResults) { check_range<float>(exp_function<float>(), -106, -87, 1); }
TEST(ElementwiseFloat, TanhOfNonNegativeValues) {
  check_range<float>(tanh_function<float>(), 0, kInfinity<float>, exhaustive() ? 1 : 997);
}
TEST(ElementwiseFloat, LogOfNonNegativeValues) {
  check_range<float>(log_function<float>(), 0, kInfinity<float>, exhaustive() ? 1 : 997);
}
TEST(ElementwiseFloat, LogAroundOne) { check_range<float>(log_function<float>(), 0.70f, 1.42f, 29); }
TEST(ElementwiseFloat, GeluOfEveryValue) {
  check_range<float>(gelu_function<float>(), 0, kInfinity<float>, exhaustive() ? 1 : 997);
  check_range<float>(gelu_function<float>(), -kInfinity<float>, -0.0f, exhaustive() ? 1 : 997);
}
TEST(ElementwiseFloat, GeluBetweenItsAsymptotes) {
  check_range<float>(gelu_function<float>(), -15, -0.01f, 41);
  check_range<float>(gelu_function<float>(), 0.01f, 15, 41);
}
TEST(ElementwiseFloat, GeluTanhOfEveryValue) {
  check_range<float>(gelu_tanh_function<float>(), 0, kInfinity<float>, exhaustive() ? 1 : 997);
  check_range<float>(gelu_tanh_function<float>(), -kInfinity<float>, -0.0f, exhaustive() ? 1 : 997);
  check_range<float>(gelu_tanh_function<float>(), -11, -0.01f, 41);
  check_range<float>(gelu_tanh_function<float>(), 0.01f, 11, 41);
}

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
TEST(ElementwiseDouble, GeluOfManyValues) {
  check_range<double>(gelu_function<double>(), 0, kInfinity<double>, 0x0010'0123'4567'89ab >> 7);
  check_range<double>(gelu_function<double>(), 0.01, 39, 0x0123'4567'89ab >> 7);
  check_range<double>(gelu_function<double>(), -kInfinity<double>, -0.0, 0x0010'0123'4567'89ab >> 7);
  check_range<double>(gelu_function<double>(), -39, -0.01, 0x0123'4567'89ab >> 7);
}
TEST(ElementwiseDouble, GeluTanhOfManyValues) {
  check_range<double>(gelu_tanh_function<double>(), 0, kInfinity<double>, 0x0010'0123'4567'89ab >> 7);
  check_range<double>(gelu_tanh_function<double>(), 0.01, 22, 0x0123'4567'89ab >> 7);
  check_range<double>(gelu_tanh_function<double>(), -kInfinity<double>, -0.0, 0x0010'0123'4567'89ab >> 7);
  check_range<double>(gelu_tanh_function<double>(), -22, -0.01, 0x0123'4567'89ab >> 7);
}
TEST(ElementwiseDouble, LogOfNonNegativeValues) {
  check_range<double>(log_function<double>(), 0, kInfinity<double>, 0x0010'0123'4567'89ab >> 8);
  check_range<double>(log_function<double>(), 0.70, 1.42, 0x0010'0123'4567'89ab >> 18);
}

}  // namespace
}  // namespace regard
