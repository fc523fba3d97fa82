// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers: Philox4x32-10 compared with the published vectors, and the numbers made of its words
// compared with their formulas at chosen words. The call that gives chosen words is found by inverting the rounds.
// Read next: src/runtime/random.cpp, dropout_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "regard/random.h"
#include "support/rejection.h"

namespace regard::philox_test {
namespace {

using Words = std::array<std::uint32_t, 4>;
constexpr std::uint64_t kSeed = 0x0123456789abcdef;
constexpr std::uint64_t kOnes = ~std::uint64_t{0};

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

struct Call {
  std::uint64_t stream, index;
};

// The call under kSeed that uses these 64 bits.
Call call_with_bits(std::uint64_t bits) {
  const auto inverse = [](std::uint32_t odd) {
    std::uint32_t x = odd;  // correct to 3 bits; each step doubles their number
    for (int step = 0; step < 4; ++step) x *= 2 - odd * x;
    return x;
  };
  Words words{low(bits), high(bits), 0, 0};
  for (std::uint32_t round = 10; round-- > 0;) {
    const std::uint32_t c0 = words[3] * inverse(0xD2511F53), c2 = words[1] * inverse(0xCD9E8D57);
    const std::uint32_t key0 = low(kSeed) + round * 0x9E3779B9, key1 = high(kSeed) + round * 0xBB67AE85;
    words = {c0, words[0] ^ key0 ^ high(std::uint64_t{0xCD9E8D57} * c2), c2,
             words[2] ^ key1 ^ high(std::uint64_t{0xD2511F53} * c0)};
  }
  return {std::uint64_t{words[3]} << 32 | words[2], std::uint64_t{words[1]} << 32 | words[0]};
}

double uniform_of(std::uint64_t bits) {
  const Call call = call_with_bits(bits);
  return random_uniform(kSeed, call.stream, call.index);
}
Index below_of(std::uint64_t bits, Index n) {
  const Call call = call_with_bits(bits);
  return random_below(kSeed, call.stream, call.index, n);
}
double normal_of(std::uint64_t bits) {
  const Call call = call_with_bits(bits);
  return random_normal(kSeed, call.stream, call.index);
}

TEST(Philox, WordsMatchThePublishedVectors) {
  // Known answers for Random123's philox4x32-10.
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes32 = 0xffffffff;
  EXPECT_EQ(philox({kOnes32, kOnes32, kOnes32, kOnes32}, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomUniform, IsTheTop53BitsOfTheFirstTwoWords) {
  const Words words = philox({5, 4, 3, 2}, kSeed);
  const std::uint64_t bits = std::uint64_t{words[1]} << 32 | words[0];
  const double expected = std::ldexp(static_cast<double>(bits >> 11), -53);
  EXPECT_EQ(random_uniform(kSeed, std::uint64_t{2} << 32 | 3, std::uint64_t{4} << 32 | 5), expected);
  EXPECT_EQ(uniform_of(0), 0);
  EXPECT_EQ(uniform_of(std::uint64_t{1} << 11), 0x1p-53);
  EXPECT_EQ(uniform_of(kOnes), 1 - 0x1p-53);
}

TEST(RandomBelow, DividesTheBitsIntoEqualIntervals) {
  for (const std::uint64_t bits :
       {std::uint64_t{0}, kOnes, std::uint64_t{0x123456789abcdef0}, kOnes << 32, kOnes >> 32}) {
    for (int k = 0; k < 63; ++k) {
      EXPECT_EQ(below_of(bits, Index{1} << k), static_cast<Index>(k == 0 ? 0 : bits >> (64 - k))) << bits << ' ' << k;
    }
  }
  // The smallest bits for which the result is i are ⌈i · 2⁶⁴ / n⌉; 2⁶⁴ − 1 is a multiple of these n.
  for (const std::uint64_t n : {3U, 5U, 17U, 257U, 641U, 65537U, 6700417U}) {
    for (const std::uint64_t i : {std::uint64_t{1}, n / 2, n - 1}) {
      const std::uint64_t first = i * (kOnes / n) + 1;
      EXPECT_EQ(below_of(first, static_cast<Index>(n)), static_cast<Index>(i));
      EXPECT_EQ(below_of(first - 1, static_cast<Index>(n)), static_cast<Index>(i) - 1);
    }
  }
  constexpr Index kMax = std::numeric_limits<Index>::max();
  EXPECT_EQ(below_of(kOnes, kMax), kMax - 1);
  EXPECT_EQ(below_of(0, kMax), 0);
}

TEST(RandomBelow, CountsAreWithinFiveStandardDeviations) {
  constexpr int kDraws = 60000, kValues = 6;
  std::array<int, kValues> counts{};
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(random_below(7, 1, i, kValues))];
  const double deviation = std::sqrt(kDraws * (1.0 / kValues) * (1 - 1.0 / kValues));
  for (const int count : counts) EXPECT_NEAR(count, kDraws / kValues, 5 * deviation);
}

TEST(RandomBelow, NonPositiveRangesAreRejected) {
  EXPECT_EQ(rejection([] { random_below(0, 0, 0, 0); }), "random_below: n is 0; expected 1 or more");
  EXPECT_EQ(rejection([] { random_below(0, 0, 0, -5); }), "random_below: n is -5; expected 1 or more");
}

// The bits of the tests of random_normal: both tails down to the last step, the borders of the three approximations,
// the neighborhood of ½, and random places.
std::vector<std::uint64_t> chosen_bits() {
  std::vector<std::uint64_t> list;
  for (int k = 0; k < 64; ++k) {
    for (const std::uint64_t around :
         {std::uint64_t{1} << k, 3 * (std::uint64_t{1} << k), 5 * (std::uint64_t{1} << k)}) {
      list.push_back(around);
      list.push_back(around - (std::uint64_t{1} << 12));
    }
  }
  for (const double border : {0.075, 0.925, 1.38879438649640e-11 /* e⁻²⁵ */}) {
    const auto bits = static_cast<std::uint64_t>(std::ldexp(border, 64));
    for (std::uint64_t step = 0; step < 64; ++step) list.push_back(bits + (step << 12) - (std::uint64_t{32} << 12));
  }
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto words = philox({low(i), 1, 0, 0}, 99);
    const std::uint64_t bits = std::uint64_t{words[1]} << 32 | words[0];
    list.push_back(bits);
    list.push_back(bits >> (words[2] % 52));
  }
  return list;
}

TEST(RandomNormal, RelativeErrorIsAtMost1e15) {
  const long double root2 = std::sqrt(2.0L);
  for (const std::uint64_t bits : chosen_bits()) {
    const double x = normal_of(bits);
    const long double p = (static_cast<long double>(bits >> 12) + 0.5L) * 0x1p-52L;
    ASSERT_EQ(std::signbit(x), p < 0.5L);
    // Φ(x) − p, from the tail or from the center, whichever does not cancel; then one step of Newton's method.
    const long double size = std::abs(static_cast<long double>(x)), tail = p < 0.5L ? p : 1 - p;
    const long double excess =
        tail < 0.25L ? tail - std::erfc(size / root2) / 2 : std::erf(size / root2) / 2 - std::abs(p - 0.5L);
    const long double density = std::exp(-size * size / 2) / std::sqrt(2 * std::acos(-1.0L));
    ASSERT_LE(std::abs(excess / density), 1e-15L * size) << std::hexfloat << p << ' ' << x;
  }
}

TEST(RandomNormal, IsSymmetricAndMonotone) {
  for (const std::uint64_t bits : chosen_bits()) {
    const double x = normal_of(bits);
    EXPECT_EQ(normal_of(~bits), -x);
    if (bits < kOnes << 12) {
      EXPECT_LE(x, normal_of(bits + (std::uint64_t{1} << 12))) << std::hexfloat << x;
    }
  }
  EXPECT_NEAR(normal_of(kOnes), 8.2095361516013856, 1e-14);
}

TEST(RandomNormal, MomentsAreThoseOfTheNormalDistribution) {
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = random_normal(11, 3, i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourth / kDraws, 3, 5 * std::sqrt(96.0 / kDraws));
}

// The last line: the bits of all normals of chosen_bits(), hashed as by FNV-1a, a word at a time.
TEST(RandomNormal, BitsAreTheSameOnEveryMachine) {
  EXPECT_EQ(random_normal(0, 0, 0), 0x1.2d769e93cb51fp+0);
  EXPECT_EQ(random_normal(1, 2, 3), -0x1.050575a865c16p-2);
  EXPECT_EQ(random_normal(kOnes, kOnes, kOnes), -0x1.4e341c6dadadep-1);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint64_t bits : chosen_bits()) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(normal_of(bits))) * 0x100000001b3;
  }
  EXPECT_EQ(hash, std::uint64_t{5581514576636168939});
}

}  // namespace
}  // namespace regard::philox_test
