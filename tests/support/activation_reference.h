// SPDX-License-Identifier: Apache-2.0
//
// gelu, gelu_tanh, silu and their derivatives from their formulas, in the type of their argument, without subtracting
// nearly equal terms.
// Read next: function_error.h, activation_error_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace regard::reference {

// ½ x erfc(−x / √2)
template <class W>
W gelu(W x) {
  return std::isinf(x) ? std::max(x, W{0}) : x / 2 * std::erfc(-x / std::numbers::sqrt2_v<W>);
}

template <class W>
W density(W x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<W>);
}

// Φ(x) + x · φ(x). Near its zero z, the integral of (2 − s²) · φ(s) from z to x, by Gauss's rule of five points.
template <class W>
W gelu_derivative(W x) {
  if (std::isinf(x)) return x > 0 ? 1 : 0;
  // z as a sum: as a double, and the rest.
  const W distance = (x + W{0x1.80ead197f00b4p-1}) - W{0x1.13e74c58cada8p-56};
  if (std::abs(distance) > W{0x1p-7}) return std::erfc(-x / std::numbers::sqrt2_v<W>) / 2 + x * density(x);
  const W root = 2 * std::sqrt(W{10} / 7);
  const W inner = std::sqrt(5 - root) / 3, outer = std::sqrt(5 + root) / 3;
  const W weight = 13 * std::sqrt(W{70});
  const auto slope = [&](W node) {
    const W s = x - distance / 2 * (1 - node);
    return (2 - s * s) * density(s);
  };
  return distance / 2 *
         (W{128} / 225 * slope(0) + (322 + weight) / 900 * (slope(inner) + slope(-inner)) +
          (322 - weight) / 900 * (slope(outer) + slope(-outer)));
}

// √(2/π) (x + 0.044715 x³) and its derivative
template <class W>
W tanh_argument(W x) {
  return std::sqrt(2 / std::numbers::pi_v<W>) * (x + W{44715} / 1'000'000 * x * x * x);
}
template <class W>
W tanh_argument_slope(W x) {
  return std::sqrt(2 / std::numbers::pi_v<W>) * (1 + 3 * W{44715} / 1'000'000 * x * x);
}

// x / (1 + exp(−2u)), with the exponential of the positive argument: for u far below 0, only that of 2u remains.
template <class W>
W gelu_tanh(W x) {
  if (std::isinf(x)) return std::max(x, W{0});
  const W y = std::exp(-2 * std::abs(tanh_argument(x)));
  return (x < 0 ? x * y : x) / (1 + y);
}
template <class W>
W gelu_tanh_derivative(W x) {
  const W t = std::abs(x);
  const W y = std::exp(-2 * tanh_argument(t));
  const W left = y == 0 ? 0 : y * (1 + y - 2 * t * tanh_argument_slope(t)) / ((1 + y) * (1 + y));
  return x < 0 ? left : 1 - left;
}

template <class W>
W silu(W x) {
  if (std::isinf(x)) return std::max(x, W{0});
  const W y = std::exp(-std::abs(x));
  return (x < 0 ? x * y : x) / (1 + y);
}
template <class W>
W silu_derivative(W x) {
  const W t = std::abs(x);
  const W y = std::exp(-t);
  const W left = y == 0 ? 0 : y * (1 + y - t) / ((1 + y) * (1 + y));
  return x < 0 ? left : 1 - left;
}

}  // namespace regard::reference
