// SPDX-License-Identifier: Apache-2.0
/// @file
/// The random numbers that a tutorial's seed produces: the generators of torch.manual_seed on a CPU and
/// numpy.random.RandomState, without either library.
///
/// Both draw 32-bit words from the Mersenne Twister (Matsumoto and Nishimura 1998, ACM TOMACS 8(1)). This is
/// std::mt19937, which gives the same bits in every implementation of the standard library. The two generators differ
/// in how they convert words to numbers.
///
/// The same seed gives the same numbers on every system, to the last bit, with one exception. If 16 or more normals
/// are drawn in one call, PyTorch's vectorized code differs from this implementation by one or two units in the last
/// place of a float.
///
/// Read next: src/explain/lessons/random.cpp, and lesson.h, whose lessons use these generators.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// PyTorch's CPU generator after torch.manual_seed(seed).
///
/// Call the members in the order of the PyTorch program: each call advances the generator. All of them throw
/// InvalidArgument for a negative count.
///
/// @par Example
/// @code{.cpp}
/// TorchGenerator torch(42);
/// const std::vector<float> x = torch.normal(6);  // torch.manual_seed(42); torch.randn(6)
/// @endcode
class REGARD_EXPORT TorchGenerator {
 public:
  /// Seeds the generator.
  ///
  /// @param seed  The seed; only its low 32 bits are used.
  explicit TorchGenerator(std::uint64_t seed);

  /// Draws standard normals, as torch.randn does.
  ///
  /// - Fewer than 16: each pair of 53-bit uniforms yields two normals. If the second one (the sine) is left over, it is
  ///   kept for the next such call.
  /// - 16 or more: 24-bit uniforms in blocks of 16, element j paired with j + 8.
  ///
  /// @param count  Number of normals, at least 0.
  /// @return The normals.
  /// @throws InvalidArgument  if count < 0.
  std::vector<float> normal(Index count);
  /// Draws uniforms, as torch.rand does: multiples of 2⁻²⁴ in [0, 1).
  ///
  /// @param count  Number of uniforms, at least 0.
  /// @return The uniforms.
  /// @throws InvalidArgument  if count < 0.
  std::vector<float> uniform(Index count);

  /// The initial parameters of a torch.nn.Linear layer.
  struct Linear {
    /// The matrix, (num_outputs, num_inputs), row-major: the transpose of what linear_forward() takes.
    std::vector<float> parameters;
    std::vector<float> bias;  ///< The bias, (num_outputs); empty without bias.
  };
  /// Draws the initial parameters of torch.nn.Linear(num_inputs, num_outputs, bias).
  ///
  /// They are uniformly distributed between −1/√num_inputs and 1/√num_inputs. The matrix is drawn first, then the bias.
  ///
  /// @param num_inputs   Size of the input, at least 1.
  /// @param num_outputs  Size of the output, at least 0.
  /// @param bias         Whether there is a bias.
  /// @return The matrix and the bias.
  /// @throws InvalidArgument  if num_inputs < 1 or num_outputs < 0.
  Linear linear(Index num_inputs, Index num_outputs, bool bias);

  /// Draws the factors that torch.nn.Dropout(probability) multiplies by during training.
  ///
  /// A factor is 1 / (1 − probability) if a 53-bit uniform is below 1 − probability, and otherwise 0. PyTorch draws
  /// these on macOS; Linux builds with MKL draw a different mask from the same seed.
  ///
  /// @param count        Number of factors, at least 0.
  /// @param probability  Probability that a factor is 0, in [0, 1).
  /// @return The factors.
  /// @throws InvalidArgument  if count < 0, or if probability is not in [0, 1).
  std::vector<float> dropout_factors(Index count, double probability);

 private:
  float uniform_24_bit();
  double uniform_53_bit();

  std::mt19937 words_;
  std::optional<double> kept_normal_;
};

/// NumPy's legacy generator, numpy.random.RandomState(seed), which numpy.random.seed also uses.
///
/// @par Example
/// @code{.cpp}
/// NumpyRandomState numpy(42);
/// const std::vector<double> x = numpy.normal(6);  // numpy.random.seed(42); numpy.random.randn(6)
/// @endcode
class REGARD_EXPORT NumpyRandomState {
 public:
  /// Seeds the generator.
  ///
  /// @param seed  The seed.
  explicit NumpyRandomState(std::uint32_t seed);
  /// Draws standard normals, as randn does: Marsaglia's polar method, with the second normal of each pair first.
  ///
  /// @param count  Number of normals, at least 0.
  /// @return The normals.
  /// @throws InvalidArgument  if count < 0.
  std::vector<double> normal(Index count);
  /// Draws uniforms, as rand does: multiples of 2⁻⁵³ in [0, 1).
  ///
  /// @param count  Number of uniforms, at least 0.
  /// @return The uniforms.
  /// @throws InvalidArgument  if count < 0.
  std::vector<double> uniform(Index count);

 private:
  double uniform_53_bit();

  std::mt19937 words_;
  std::optional<double> kept_normal_;
};

}  // namespace regard::inline v0
