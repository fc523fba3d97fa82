// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 and the numbers derived from its words. Only operations that IEEE 754 rounds correctly are used (+ − ×
// ÷ √), so the bits are the same everywhere; std::log would not guarantee that.
// Read next: src/kernels/dropout.cpp, the same rounds for 16 counters at a time.
#include "regard/random.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <string>

#include "tensor/checks.h"

namespace regard::inline v0 {
namespace {

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto words = philox({low(index), low(index >> 32), low(stream), low(stream >> 32)}, seed);
  return std::uint64_t{words[1]} << 32 | words[0];
}

// The high 64 bits of a · b, from four products of 32-bit halves.
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kLow = 0xffffffff;
  const std::uint64_t middle = (a >> 32) * (b & kLow) + ((a & kLow) * (b & kLow) >> 32);
  const std::uint64_t other_middle = (a & kLow) * (b >> 32) + (middle & kLow);
  return (a >> 32) * (b >> 32) + (middle >> 32) + (other_middle >> 32);
}

// ln x for a normal x > 0: x = 2ᵏ · m with m in [√½, √2), and ln m = 2·atanh(s) with s = (m − 1) / (m + 1). With
// |s| ≤ 0.172, eleven terms of the series leave less than 2⁻⁶⁰.
double natural_logarithm(double x) {
  constexpr double kLn2High = 0x1.62e42fefa4p-1;  // short enough for k · kLn2High to be exact
  constexpr double kLn2Low = -0x1.8432a1b0e2634p-43;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // Subtracting the bits of √½ moves the fraction into [√½, √2).
  const std::int64_t exponent = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcd) >> 52;
  bits -= static_cast<std::uint64_t>(exponent) << 52;
  const double f = std::bit_cast<double>(bits) - 1;
  const double s = f / (2 + f), z = s * s;
  double series = 2.0 / 23;
  for (int i = 21; i >= 3; i -= 2) series = series * z + 2.0 / i;
  const double k = static_cast<double>(exponent);
  return k * kLn2High + (f - (s * (f - series * z) - k * kLn2Low));
}

// Numerator and denominator, both of degree 7, lowest coefficient first.
struct Rational {
  std::array<double, 8> numerator, denominator;

  double operator()(double x) const {
    double above = numerator[7], below = denominator[7];
    for (std::size_t i = 7; i-- > 0;) {
      above = above * x + numerator[i];
      below = below * x + denominator[i];
    }
    return above / below;
  }
};

// Φ⁻¹(p) / (p − ½) as a function of 0.425² − (p − ½)², for |p − ½| ≤ 0.425.
constexpr Rational kCenter = {
    {3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
     67265.770927008700853, 33430.575583588128105, 2509.0809287301226727},
    {1, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
     39307.895800092710610, 28729.085735721942674, 5226.4952788528545610}};
// |Φ⁻¹(p)| as a function of r − 1.6, for r = √(−ln min(p, 1 − p)) up to 5.
constexpr Rational kTail = {
    {1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
     1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}};
// The same as a function of r − 5, for larger r.
constexpr Rational kFarTail = {
    {6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
    {1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}};

// Φ⁻¹(p) for a multiple p of 2⁻⁵³ in (0, 1), so that p − ½ and 1 − p are exact.
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) return q * kCenter(0.180625 - q * q);
  const double r = std::sqrt(-natural_logarithm(q < 0 ? p : 1 - p));
  const double magnitude = r <= 5 ? kTail(r - 1.6) : kFarTail(r - 5);
  return q < 0 ? -magnitude : magnitude;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  std::uint32_t key0 = low(key), key1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1), high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

Index random_below(std::uint64_t seed, std::uint64_t stream, std::uint64_t index, Index n) {
  if (n < 1) internal::reject("random_below", "n is " + std::to_string(n) + "; expected 1 or more");
  return static_cast<Index>(multiply_high(random_bits(seed, stream, index), static_cast<std::uint64_t>(n)));
}

double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const double k = static_cast<double>(random_bits(seed, stream, index) >> 12);
  return normal_quantile((k + 0.5) * 0x1p-52);
}

}  // namespace regard::inline v0
