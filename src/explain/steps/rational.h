// SPDX-License-Identifier: Apache-2.0
//
// Fractions of 64-bit integers, in lowest terms with a positive denominator: the arithmetic of a lesson done by hand,
// where a weight is 9/46 and not .1957. Results that do not fit in 64 bits throw std::overflow_error, so every printed
// fraction is exact.
// Read next: fractions.cpp, which computes with them.
#pragma once

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>

#include "regard/error.h"

namespace regard::inline v0 {

class Rational {
 public:
  Rational(std::int64_t numerator = 0, std::int64_t denominator = 1)  // NOLINT(google-explicit-constructor)
      : numerator_(numerator), denominator_(denominator) {
    if (denominator == 0) throw InvalidArgument("Rational: the denominator is 0");
    if (numerator == INT64_MIN || denominator == INT64_MIN) throw too_large();
    const std::int64_t divisor = std::gcd(numerator, denominator);
    numerator_ = (denominator < 0 ? -numerator : numerator) / divisor;
    denominator_ = (denominator < 0 ? -denominator : denominator) / divisor;
  }

  std::int64_t numerator() const { return numerator_; }
  std::int64_t denominator() const { return denominator_; }
  double value() const { return static_cast<double>(numerator_) / static_cast<double>(denominator_); }
  std::string text() const {
    std::string digits = std::to_string(numerator_);
    if (denominator_ != 1) digits.append("/").append(std::to_string(denominator_));
    return digits;
  }

  friend Rational operator+(const Rational& a, const Rational& b) {
    const std::int64_t shared = std::gcd(a.denominator_, b.denominator_);
    const std::int64_t b_steps = b.denominator_ / shared;
    return {sum(product(a.numerator_, b_steps), product(b.numerator_, a.denominator_ / shared)),
            product(a.denominator_, b_steps)};
  }
  friend Rational operator*(const Rational& a, const Rational& b) {
    const Rational left(a.numerator_, b.denominator_);
    const Rational right(b.numerator_, a.denominator_);
    return {product(left.numerator_, right.numerator_), product(left.denominator_, right.denominator_)};
  }
  friend Rational operator/(const Rational& a, const Rational& b) { return a * Rational(b.denominator_, b.numerator_); }
  friend bool operator==(const Rational& a, const Rational& b) = default;

 private:
  static std::overflow_error too_large() { return std::overflow_error("Rational: the fraction exceeds 64 bits"); }
  static std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) throw too_large();
    return result;
  }
  static std::int64_t sum(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) throw too_large();
    return result;
  }

  std::int64_t numerator_;
  std::int64_t denominator_;
};

// The largest integer that is not above a: floor(−1/2) = −1.
inline std::int64_t floor_of(const Rational& a) {
  const std::int64_t quotient = a.numerator() / a.denominator();
  return a.numerator() % a.denominator() < 0 ? quotient - 1 : quotient;
}

// base to a whole power; 3^−1 = 1/3.
inline Rational power(const Rational& base, std::int64_t exponent) {
  if (exponent < -64 || exponent > 64) throw std::overflow_error("Rational: the power exceeds 64 bits");
  const Rational factor = exponent < 0 ? Rational(1) / base : base;
  Rational result(1);
  for (std::int64_t i = 0; i < (exponent < 0 ? -exponent : exponent); ++i) result = result * factor;
  return result;
}

}  // namespace regard::inline v0
