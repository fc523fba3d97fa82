// SPDX-License-Identifier: Apache-2.0
//
// Random numbers from a seed, identical to those of PyTorch (CPU) and NumPy's RandomState.
//
//     word  → 24-bit uniform = (word mod 2²⁴) / 2²⁴                               torch, float
//     words → 53-bit uniform = ((first · 2³² + second) mod 2⁵³) / 2⁵³             torch, double
//                            = (⌊first / 2⁵⌋ · 2²⁶ + ⌊second / 2⁶⌋) / 2⁵³          NumPy
//     two uniforms → two normals, by Box and Muller (1958) in torch, by Marsaglia's polar method in NumPy
//
// Read next: include/regard/explain/random.h.
#include "regard/explain/random.h"

#include <cmath>
#include <numbers>
#include <string>

#include "regard/error.h"

namespace regard::inline v0 {
namespace {

constexpr double kTwoToMinus53 = 0x1p-53;

void require_count(const char* generator, const char* argument, Index count) {
  if (count < 0) {
    throw InvalidArgument(std::string(generator) + ": " + argument + " must be at least 0, not " +
                          std::to_string(count));
  }
}

}  // namespace

TorchGenerator::TorchGenerator(std::uint64_t seed) : words_(static_cast<std::uint32_t>(seed)) {}

float TorchGenerator::uniform_24_bit() { return static_cast<float>(words_() & 0xffffffu) * 0x1p-24f; }

double TorchGenerator::uniform_53_bit() {
  const std::uint64_t high = words_();
  const std::uint64_t low = words_();
  return static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)) * kTwoToMinus53;
}

std::vector<float> TorchGenerator::uniform(Index count) {
  require_count("TorchGenerator::uniform", "count", count);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = uniform_24_bit();
  return numbers;
}

std::vector<float> TorchGenerator::normal(Index count) {
  require_count("TorchGenerator::normal", "count", count);
  constexpr Index kBlock = 16;
  constexpr double kTwoPi = 2.0 * std::numbers::pi;
  if (count < kBlock) {
    std::vector<float> numbers;
    for (Index i = 0; i < count; ++i) {
      if (kept_normal_) {
        numbers.push_back(static_cast<float>(*kept_normal_));
        kept_normal_.reset();
        continue;
      }
      const double turn = uniform_53_bit();
      const double radius = std::sqrt(-2.0 * std::log1p(-uniform_53_bit()));
      kept_normal_ = radius * std::sin(kTwoPi * turn);
      numbers.push_back(static_cast<float>(radius * std::cos(kTwoPi * turn)));
    }
    return numbers;
  }

  std::vector<float> numbers = uniform(count);
  const auto transform_block = [&](Index first) {
    for (Index j = first; j < first + kBlock / 2; ++j) {
      float& cosine_half = numbers[static_cast<std::size_t>(j)];
      float& sine_half = numbers[static_cast<std::size_t>(j + kBlock / 2)];
      const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(cosine_half)));
      const double angle = kTwoPi * static_cast<double>(sine_half);
      cosine_half = static_cast<float>(radius * std::cos(angle));
      sine_half = static_cast<float>(radius * std::sin(angle));
    }
  };
  for (Index first = 0; first + kBlock <= count; first += kBlock) transform_block(first);
  if (count % kBlock != 0) {
    // The last sixteen are drawn again, although most of them are already done, because PyTorch does so.
    for (Index i = count - kBlock; i < count; ++i) numbers[static_cast<std::size_t>(i)] = uniform_24_bit();
    transform_block(count - kBlock);
  }
  return numbers;
}

TorchGenerator::Linear TorchGenerator::linear(Index num_inputs, Index num_outputs, bool bias) {
  if (num_inputs < 1) {
    throw InvalidArgument("TorchGenerator::linear: num_inputs must be at least 1, not " + std::to_string(num_inputs));
  }
  require_count("TorchGenerator::linear", "num_outputs", num_outputs);
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(num_inputs)));
  const auto spread = [bound](std::vector<float> numbers) {
    for (float& number : numbers) number = number * (bound + bound) - bound;
    return numbers;
  };
  Linear linear;
  linear.parameters = spread(uniform(num_outputs * num_inputs));
  if (bias) linear.bias = spread(uniform(num_outputs));
  return linear;
}

std::vector<float> TorchGenerator::dropout_factors(Index count, double probability) {
  require_count("TorchGenerator::dropout_factors", "count", count);
  if (!(probability >= 0.0 && probability < 1.0)) {
    throw InvalidArgument("TorchGenerator::dropout_factors: probability must be in [0, 1), not " +
                          std::to_string(probability));
  }
  const double kept = 1.0 - probability;
  std::vector<float> factors(static_cast<std::size_t>(count));
  for (float& factor : factors) factor = uniform_53_bit() < kept ? static_cast<float>(1.0 / kept) : 0.0f;
  return factors;
}

NumpyRandomState::NumpyRandomState(std::uint32_t seed) : words_(seed) {}

double NumpyRandomState::uniform_53_bit() {
  const std::uint64_t high = words_() >> 5;
  const std::uint64_t low = words_() >> 6;
  return static_cast<double>((high << 26) | low) * kTwoToMinus53;
}

std::vector<double> NumpyRandomState::uniform(Index count) {
  require_count("NumpyRandomState::uniform", "count", count);
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = uniform_53_bit();
  return numbers;
}

std::vector<double> NumpyRandomState::normal(Index count) {
  require_count("NumpyRandomState::normal", "count", count);
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) {
    if (kept_normal_) {
      number = *kept_normal_;
      kept_normal_.reset();
      continue;
    }
    double x = 0.0;
    double y = 0.0;
    double square = 0.0;
    do {
      x = 2.0 * uniform_53_bit() - 1.0;
      y = 2.0 * uniform_53_bit() - 1.0;
      square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    kept_normal_ = factor * x;
    number = factor * y;
  }
  return numbers;
}

}  // namespace regard::inline v0
