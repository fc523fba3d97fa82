// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 and float16: each of their 65,536 values compared with values built from sign, exponent and fraction by
// ldexp in double, independently of the shifts in types.h.
//
//   to float     the exact value
//   from float   at every value, at every midpoint of two neighbors, and one float to either side of it
//
// Also views whose element type is known at run time (tensor.h), and views of views.
//
// Read next: include/regard/types.h.
#include "regard/types.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "regard/tensor.h"

namespace regard::types_test {
namespace {

template <class T>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int kFraction = 7, kBias = 127, kTop = 255;
};
template <>
struct Format<float16> {
  static constexpr int kFraction = 10, kBias = 15, kTop = 31;
};

// The value of these bits, including ±∞ and NaN.
template <class T>
double number_of(unsigned bits) {
  using F = Format<T>;
  const int exponent = static_cast<int>(bits >> F::kFraction) & F::kTop;
  const int fraction = static_cast<int>(bits & ((1u << F::kFraction) - 1));
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  if (exponent == F::kTop) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const int whole = exponent == 0 ? fraction : fraction + (1 << F::kFraction);
  return sign * std::ldexp(whole, std::max(exponent, 1) - F::kBias - F::kFraction);
}

template <class T>
T of_bits(unsigned bits) {
  T x;
  x.bits = static_cast<std::uint16_t>(bits);
  return x;
}

constexpr unsigned kSign = 0x8000;
template <class T>
constexpr unsigned kInfinityBits = static_cast<unsigned>(Format<T>::kTop) << Format<T>::kFraction;

template <class T>
class Types : public testing::Test {};
using TwoBytes = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Types, TwoBytes);

TYPED_TEST(Types, EveryValueConvertsExactlyToFloat) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float got = static_cast<float>(of_bits<TypeParam>(bits));
    const double expected = number_of<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), expected) << bits;
      ASSERT_EQ(std::signbit(got), (bits & kSign) != 0) << bits;
    }
  }
}

TYPED_TEST(Types, EveryValueRoundTrips) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const TypeParam back(static_cast<float>(of_bits<TypeParam>(bits)));
    if (std::isnan(number_of<TypeParam>(bits))) {
      ASSERT_TRUE(std::isnan(number_of<TypeParam>(back.bits))) << bits;
      ASSERT_EQ(back.bits & kSign, bits & kSign) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Between neighbors a < b of the same sign, values below the midpoint round to a, above it to b, and the midpoint to
// the one whose last bit is 0. For rounding, the neighbor of the largest value is the next value that the exponent
// would give.
TYPED_TEST(Types, MidpointsRoundToEven) {
  for (const unsigned sign : {0u, kSign}) {
    for (unsigned low = 0; low < kInfinityBits<TypeParam>; ++low) {
      const double a = number_of<TypeParam>(low);
      const bool last = low + 1 == kInfinityBits<TypeParam>;
      const double b = last ? a + (a - number_of<TypeParam>(low - 1)) : number_of<TypeParam>(low + 1);
      const double middle = (a + b) / 2;
      const auto rounded = [&](float x) { return unsigned{TypeParam(sign != 0 ? -x : x).bits}; };
      const float at = static_cast<float>(middle);
      ASSERT_EQ(static_cast<double>(at), middle) << low;
      ASSERT_EQ(rounded(at), sign | (low % 2 == 0 ? low : low + 1)) << low;
      ASSERT_EQ(rounded(std::nextafterf(at, 0)), sign | low) << low;
      ASSERT_EQ(rounded(std::nextafterf(at, std::numeric_limits<float>::infinity())), sign | (low + 1)) << low;
    }
  }
}

TYPED_TEST(Types, OverflowUnderflowAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam(infinity).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(-infinity).bits, kInfinityBits<TypeParam> | kSign);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(0.0f).bits, 0u);
  EXPECT_EQ(TypeParam(-0.0f).bits, kSign);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0u);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::denorm_min()).bits, kSign);
  // NaNs are quiet, even if their payload is in bits that are dropped.
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc00000u}) {
    const TypeParam nan(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(static_cast<float>(nan))) << bits;
    EXPECT_NE(nan.bits & (1u << (Format<TypeParam>::kFraction - 1)), 0u) << bits;
    EXPECT_EQ(nan.bits & kSign, bits >> 16 & kSign) << bits;
  }
}

// Floats with any bits: the result is a neighbor, and no other is closer.
TYPED_TEST(Types, RandomFloatsRoundToNearest) {
  std::mt19937 random(20);
  const double largest = number_of<TypeParam>(kInfinityBits<TypeParam> - 1);
  for (int n = 0; n < 300000; ++n) {
    // Half of them near the range of float16, which most floats are outside of.
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (n % 2 == 0) bits = (bits & 0x807fffffu) | (100u + (bits >> 23) % 46u) << 23;
    const float x = std::bit_cast<float>(bits);
    if (std::isnan(x) || std::abs(static_cast<double>(x)) > largest) continue;
    const unsigned got = TypeParam(x).bits;
    const auto distance = [&](unsigned to) { return std::abs(number_of<TypeParam>(to) - static_cast<double>(x)); };
    ASSERT_EQ(got & kSign, bits >> 16 & kSign);
    ASSERT_LT(got & ~kSign, kInfinityBits<TypeParam> + 1);
    ASSERT_LE(distance(got), distance(got + 1)) << bits;
    if ((got & ~kSign) != 0) {
      ASSERT_LE(distance(got), distance(got - 1)) << bits;
    }
  }
}

TYPED_TEST(Types, RoundingModeDoesNotMatter) {
  const float third = 1.0f / 3, middle = 1 + std::ldexp(1.0f, -Format<TypeParam>::kFraction - 1);
  const TypeParam expected(third);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const volatile float inputs[] = {third, middle};
    const unsigned got = TypeParam(float{inputs[0]}).bits, even = TypeParam(float{inputs[1]}).bits;
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(got, expected.bits);
    EXPECT_EQ(even, TypeParam(1.0f).bits);
  }
}

TYPED_TEST(Types, ConversionsAreExplicit) {
  EXPECT_FALSE((std::is_convertible_v<float, TypeParam>));
  EXPECT_FALSE((std::is_convertible_v<TypeParam, float>));
  EXPECT_FALSE((std::is_constructible_v<TypeParam, double>));  // would round twice
  EXPECT_FALSE((std::is_constructible_v<TypeParam, int>));
  EXPECT_TRUE((std::is_constructible_v<TypeParam, float>));
  const Tensor<TypeParam, 2> zeros({2, 3});
  for (Index i = 0; i < zeros.size(); ++i) EXPECT_EQ(zeros.data()[i].bits, 0u);
}

static_assert(static_cast<float>(bfloat16(1.0f)) == 1.0f && bfloat16(1.0f).bits == 0x3f80);
static_assert(static_cast<float>(float16(65504.0f)) == 65504.0f && float16(65519.0f).bits == 0x7bff);
static_assert(float16(65520.0f).bits == 0x7c00 && float16(0x1p-24f).bits == 1 && float16(0x1p-25f).bits == 0);
static_assert(kElementType<bfloat16> == ElementType::bfloat16 && type_bytes(kElementType<double>) == 8);
static_assert(std::is_same_v<ComputeType<float16>, float> && std::is_same_v<ComputeType<double>, double>);

TEST(ElementType, HasAName) {
  EXPECT_STREQ(type_name(kElementType<float>), "float32");
  EXPECT_STREQ(type_name(kElementType<double>), "float64");
  EXPECT_STREQ(type_name(kElementType<bfloat16>), "bfloat16");
  EXPECT_STREQ(type_name(kElementType<float16>), "float16");
  EXPECT_STREQ(type_name(kElementType<bool>), "bool");
  EXPECT_STREQ(type_name(kElementType<std::int8_t>), "int8");
  EXPECT_STREQ(type_name(kElementType<long long>), "int64");
  EXPECT_STREQ(type_name(kElementType<std::uint64_t>), "uint64");
  EXPECT_STREQ(type_name(static_cast<ElementType>(14)), "unknown");
  EXPECT_STREQ(type_name(static_cast<ElementType>(-1)), "unknown");
  EXPECT_EQ(type_bytes(ElementType{}), 0);
}

// ---- views

TEST(Views, LowerRanksHaveLeadingExtentsOf1) {
  Tensor<float, 2> matrix({3, 5});
  matrix(2, 1) = 7;
  const InputView<4> view = matrix;
  EXPECT_EQ(view.shape, (std::array<Index, 4>{1, 1, 3, 5}));
  EXPECT_EQ(view.type, ElementType::float32);
  EXPECT_EQ(view.at<double>(0, 0, 2, 1), 7);
  const OutputView<3> written = matrix;
  EXPECT_EQ(written.shape, (std::array<Index, 3>{1, 3, 5}));
  EXPECT_EQ(written.data, matrix.data());
  EXPECT_TRUE(InputView<4>(TensorView<const float, 2>()).absent());
}

TEST(Views, OfTensors) {
  Tensor<float, 2> tensor({2, 3});
  const TensorView<float, 2> view = tensor;
  const TensorView<const float, 2> read_only = std::as_const(tensor);
  EXPECT_EQ(view.data, tensor.data());
  EXPECT_EQ(read_only.data, tensor.data());
  EXPECT_EQ(view.shape, tensor.shape());
  EXPECT_EQ(read_only.strides, (std::array<Index, 2>{3, 1}));
  static_assert(std::is_convertible_v<Tensor<float, 2>&, TensorView<const float, 2>>);
  static_assert(!std::is_constructible_v<TensorView<float, 2>, const Tensor<float, 2>&>);  // would allow writes
  static_assert(!std::is_constructible_v<TensorView<float, 2>, Tensor<float, 2>>);         // would dangle
  static_assert(!std::is_constructible_v<TensorView<float, 3>, Tensor<float, 2>&>);
}

TEST(Views, ConvertFromContiguousRanges) {
  const std::vector<std::int32_t> list{4, -5, 6};
  const InputView<1> view = list;
  EXPECT_EQ(view.type, ElementType::int32);
  EXPECT_EQ(view.shape[0], 3);
  EXPECT_EQ(view.at<Index>(1), -5);
  EXPECT_TRUE(InputView<1>(std::vector<double>{}).empty());
  EXPECT_FALSE((std::is_convertible_v<std::vector<bool>, InputView<1>>));  // it has no elements in memory
  EXPECT_FALSE((std::is_convertible_v<const Tensor<float, 2>&, OutputView<2>>));
}

TEST(Views, ReadElementsOfEveryType) {
  const auto read = []<class T>(T x) { return InputView<1>(&x, {1}).template at<double>(0); };
  EXPECT_EQ(read(1.5f), 1.5);
  EXPECT_EQ(read(-2.5), -2.5);
  EXPECT_EQ(read(true), 1);
  EXPECT_EQ(read(bfloat16(3.0f)), 3);
  EXPECT_EQ(read(float16(-0.5f)), -0.5);
  EXPECT_EQ(read(std::int8_t{-7}), -7);
  EXPECT_EQ(read(std::uint8_t{200}), 200);
  EXPECT_EQ(read(std::int16_t{-300}), -300);
  EXPECT_EQ(read(std::uint16_t{60000}), 60000);
  EXPECT_EQ(read(std::int32_t{-70000}), -70000);
  EXPECT_EQ(read(std::uint32_t{4000000000}), 4e9);
  EXPECT_EQ(read(std::int64_t{-5000000000}), -5e9);
  EXPECT_EQ(read(std::uint64_t{5000000000}), 5e9);
}

TEST(Views, AreTransposedAndSliced) {
  Tensor<float, 3> numbers({2, 3, 4});
  for (Index i = 0; i < numbers.size(); ++i) numbers.data()[i] = static_cast<float>(i);
  const auto turned = transposed(numbers.view());
  EXPECT_EQ(turned.shape, (std::array<Index, 3>{2, 4, 3}));
  EXPECT_EQ(turned(1, 3, 2), numbers(1, 2, 3));
  const auto exchanged = transposed(numbers.view(), 0, 2);
  EXPECT_EQ(exchanged(3, 2, 1), numbers(1, 2, 3));
  const auto middle = sliced(numbers.view(), 1, 1, 3);
  EXPECT_EQ(middle.shape, (std::array<Index, 3>{2, 2, 4}));
  EXPECT_EQ(middle(1, 1, 2), numbers(1, 2, 2));
  const auto erased = sliced(InputView<3>(numbers), 2, 3, 4);
  EXPECT_EQ(erased.shape, (std::array<Index, 3>{2, 3, 1}));
  EXPECT_EQ(erased.at<float>(1, 2, 0), numbers(1, 2, 3));
  EXPECT_EQ(sliced(numbers.view(), 0, 2, 2).shape, (std::array<Index, 3>{0, 3, 4}));
}

TEST(Views, SplitAndJoinHeads) {
  Tensor<float, 3> joined({2, 5, 12});
  for (Index i = 0; i < joined.size(); ++i) joined.data()[i] = static_cast<float>(i);
  const auto heads = split_heads(joined.view(), 3);
  EXPECT_EQ(heads.shape, (std::array<Index, 4>{2, 3, 5, 4}));
  EXPECT_EQ(heads(1, 2, 4, 3), joined(1, 4, 2 * 4 + 3));
  const auto again = join_heads(heads);
  EXPECT_EQ(again.shape, joined.shape());
  EXPECT_EQ(again.data, joined.data());
  EXPECT_EQ(again.strides, joined.view().strides);
  EXPECT_TRUE(join_heads(Tensor<float, 4>({2, 3, 5, 4}).view()).absent());
  EXPECT_EQ(join_heads(Tensor<float, 4>({2, 1, 5, 4}).view()).shape, (std::array<Index, 3>{2, 5, 4}));
  EXPECT_EQ(join_heads(Tensor<float, 4>({2, 3, 5, 1}).view()).shape, (std::array<Index, 3>{2, 5, 3}));
}

}  // namespace
}  // namespace regard::types_test
