// SPDX-License-Identifier: Apache-2.0
//
// The numbers that a tutorial's seed stands for: the generators behind torch.manual_seed on a CPU and
// numpy.random.RandomState, without either library. Both draw 32-bit words from the Mersenne Twister
// (Matsumoto and Nishimura 1998, ACM TOMACS 8(1)), which is std::mt19937, the same bits in every library; they differ
// in how words become numbers.
//
// Same seed, same numbers on every system, to the last bit but for normals drawn sixteen or more at a time, where
// PyTorch's own vector code differs from ours by a unit or two of the last place of a float.
// Read next: src/explain/lessons/random.cpp, and lesson.h for what they are used for.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// torch.manual_seed(seed), then calls in the order of the PyTorch program; each advances the generator.
// Every count is ≥ 0, otherwise std::invalid_argument.
class REGARD_EXPORT TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed);

  // torch.randn: standard normals. Fewer than 16: one pair of 53-bit uniforms makes two, the sine is kept for the
  // next such call. 16 or more: 24-bit uniforms, in blocks of 16, element j paired with j + 8.
  std::vector<float> normal(Index count);
  // torch.rand: multiples of 2⁻²⁴ in [0, 1).
  std::vector<float> uniform(Index count);

  // torch.nn.Linear(num_inputs, num_outputs, bias): uniform in ±1/√num_inputs, parameters first, then bias.
  // Throws std::invalid_argument when num_inputs < 1.
  struct Linear {
    std::vector<float> parameters;  // (num_outputs, num_inputs), row-major: the transpose of what linear_forward takes
    std::vector<float> bias;        // (num_outputs), empty without bias
  };
  Linear linear(Index num_inputs, Index num_outputs, bool bias);

  // What torch.nn.Dropout(probability) multiplies by while training: 0, or 1 / (1 − probability) where 53-bit
  // uniforms fall below 1 − probability (macOS; Linux builds with MKL draw another mask from the same seed).
  // Throws std::invalid_argument unless 0 ≤ probability < 1.
  std::vector<float> dropout_factors(Index count, double probability);

 private:
  float uniform_24_bit();
  double uniform_53_bit();

  std::mt19937 words_;
  std::optional<double> kept_normal_;
};

// numpy.random.RandomState(seed): the legacy generator, also behind numpy.random.seed.
class REGARD_EXPORT NumpyRandomState {
 public:
  explicit NumpyRandomState(std::uint32_t seed);
  std::vector<double> normal(Index count);   // randn: Marsaglia's polar method, the second of a pair first
  std::vector<double> uniform(Index count);  // rand: multiples of 2⁻⁵³ in [0, 1)

 private:
  double uniform_53_bit();

  std::mt19937 words_;
  std::optional<double> kept_normal_;
};

}  // namespace regard::inline v0
