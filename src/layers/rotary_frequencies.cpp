// SPDX-License-Identifier: Apache-2.0
//
// base^(−2d / size), as powers of one ratio, base^(−2 / size). The ratio and its powers are sums of two doubles with an
// error of about 2⁻⁷⁰ per factor, so that each frequency is almost always rounded correctly.
//
//   base = 2ᵏ · m  ─▶  log(base) = k · ln 2 + 2 atanh((m − 1) / (m + 1))  ─▶  exp(−2 log(base) / size)  ─▶  powers
//
// Only sums, products and quotients are used: IEEE 754 defines their bits.
// Read next: rotary.cpp.
#include "rotary_frequencies.h"

#include <array>
#include <cmath>

namespace regard::inline v0::internal {
namespace {

// high + low, |low| ≤ ulp(high) / 2 (Dekker 1971).
struct DoubleDouble {
  double high;
  double low;
};

// The sum of two values and its rounding error, for |a| ≥ |b|.
constexpr DoubleDouble quick_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}
// The same for any a and b (Knuth).
constexpr DoubleDouble exact_sum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
// The product and its rounding error (Dekker).
constexpr DoubleDouble exact_product(double a, double b) {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_high = kSplit * a - (kSplit * a - a), a_low = a - a_high;
  const double b_high = kSplit * b - (kSplit * b - b), b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}
constexpr DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble sum = exact_sum(a.high, b.high);
  return quick_sum(sum.high, sum.low + (a.low + b.low));
}
constexpr DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = exact_product(a.high, b.high);
  return quick_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}
constexpr DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double quotient = a.high / b.high;
  const DoubleDouble back = exact_product(quotient, b.high);
  const double rest = ((a.high - back.high) - back.low + a.low - quotient * b.low) / b.high;
  return quick_sum(quotient, rest);
}
constexpr DoubleDouble from(double x) { return {x, 0}; }

constexpr DoubleDouble kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

// Σ coefficients[k] · xᵏ. The terms from x⁸ on, which are small, are summed in double.
template <std::size_t Count>
DoubleDouble power_series(const std::array<DoubleDouble, Count>& coefficients, DoubleDouble x) {
  constexpr std::size_t kExact = 8;
  static_assert(Count > kExact);
  double small = coefficients[Count - 1].high;
  for (std::size_t k = Count - 1; k-- > kExact;) small = small * x.high + coefficients[k].high;
  DoubleDouble sum = from(small);
  for (std::size_t k = kExact; k-- > 0;) sum = sum * x + coefficients[k];
  return sum;
}

DoubleDouble logarithm(double x) {
  // atanh(s) / s = 1 + s²/3 + s⁴/5 + …, |s| ≤ 0.1716: the terms left out are less than 2⁻⁷⁶.
  static constexpr auto kInverseOdd = [] {
    std::array<DoubleDouble, 15> inverse{};
    for (std::size_t k = 0; k < inverse.size(); ++k) inverse[k] = from(1) / from(static_cast<double>(2 * k + 1));
    return inverse;
  }();
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0x1.6a09e667f3bcdp-1) {  // √½
    m *= 2;
    --exponent;
  }
  const DoubleDouble s = from(m - 1) / exact_sum(m, 1);
  return from(exponent) * kLn2 + from(2) * s * power_series(kInverseOdd, s * s);
}

// For x ≤ 0.
DoubleDouble exponential(DoubleDouble x) {
  // |r| ≤ 0.347: the terms left out are less than 2⁻⁸⁰.
  static constexpr auto kInverseFactorials = [] {
    std::array<DoubleDouble, 18> inverse{from(1)};
    for (std::size_t k = 1; k < inverse.size(); ++k) inverse[k] = inverse[k - 1] / from(static_cast<double>(k));
    return inverse;
  }();
  const double n = std::nearbyint(x.high / kLn2.high);
  const DoubleDouble series = power_series(kInverseFactorials, x + from(-n) * kLn2);
  return {std::ldexp(series.high, static_cast<int>(n)), std::ldexp(series.low, static_cast<int>(n))};
}

}  // namespace

void rotary_frequencies(double base, Index size, double* frequencies) {
  const DoubleDouble ratio = exponential(from(-2) * logarithm(base) / from(static_cast<double>(size)));
  DoubleDouble power = from(1);
  for (Index d = 0; d < size / 2; ++d) {
    frequencies[d] = power.high;
    power = power * ratio;
  }
}

}  // namespace regard::inline v0::internal
