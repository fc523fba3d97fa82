// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reproduces the random numbers of tutorials that set a seed: PyTorch's CPU generator (torch.manual_seed) and
/// numpy.random.RandomState, without either library.
///
/// Both generators draw 32-bit words from the Mersenne Twister (Matsumoto and Nishimura 1998, ACM TOMACS 8(1)). This is
/// std::mt19937, which gives the same bits in every implementation of the standard library. The two generators convert
/// these words to numbers in different ways.
///
/// The same seed gives bit-identical numbers on every system, with one exception: if 16 or more normal samples are
/// drawn in one call, the results of PyTorch's vectorized code differ by one or two units in the last place of a float.
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
/// Call the members in the same order as the PyTorch program does, because each call advances the generator. All
/// members throw InvalidArgument for a negative count.
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

  /// Draws samples from the standard normal distribution, as torch.randn does.
  ///
  /// - Fewer than 16 samples: each pair of 53-bit uniform samples yields two normal samples. If the second one (the
  ///   sine) is left over, it is kept for the next call of this kind.
  /// - 16 or more samples: 24-bit uniform samples are drawn in blocks of 16, and sample j is paired with sample j + 8.
  ///
  /// @param count  Number of samples, at least 0.
  /// @return The samples.
  /// @throws InvalidArgument  if count < 0.
  std::vector<float> normal(Index count);
  /// Draws samples from the uniform distribution, as torch.rand does: multiples of 2⁻²⁴ in [0, 1).
  ///
  /// @param count  Number of samples, at least 0.
  /// @return The samples.
  /// @throws InvalidArgument  if count < 0.
  std::vector<float> uniform(Index count);

  /// The initial parameters of a torch.nn.Linear layer.
  struct Linear {
    /// The matrix, (num_outputs, num_inputs), row-major: the transpose of the weight of linear_forward().
    std::vector<float> parameters;
    std::vector<float> bias;  ///< The bias, (num_outputs); empty if there is none.
  };
  /// Draws the initial parameters of torch.nn.Linear(num_inputs, num_outputs, bias).
  ///
  /// The parameters are uniformly distributed between −1/√num_inputs and 1/√num_inputs. The matrix is drawn first, then
  /// the bias.
  ///
  /// @param num_inputs   Size of the input, at least 1.
  /// @param num_outputs  Size of the output, at least 0.
  /// @param bias         Whether the layer has a bias.
  /// @return The matrix and the bias.
  /// @throws InvalidArgument  if num_inputs < 1 or num_outputs < 0.
  Linear linear(Index num_inputs, Index num_outputs, bool bias);

  /// Draws the factors by which torch.nn.Dropout(probability) multiplies its input during training.
  ///
  /// A factor is 1 / (1 − probability) if a 53-bit uniform sample is below 1 − probability, and otherwise 0. PyTorch
  /// draws these factors on macOS; Linux builds with MKL draw different factors from the same seed.
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
  /// Draws samples from the standard normal distribution, as randn does: with Marsaglia's polar method, and the second
  /// sample of each pair first.
  ///
  /// @param count  Number of samples, at least 0.
  /// @return The samples.
  /// @throws InvalidArgument  if count < 0.
  std::vector<double> normal(Index count);
  /// Draws samples from the uniform distribution, as rand does: multiples of 2⁻⁵³ in [0, 1).
  ///
  /// @param count  Number of samples, at least 0.
  /// @return The samples.
  /// @throws InvalidArgument  if count < 0.
  std::vector<double> uniform(Index count);

 private:
  double uniform_53_bit();

  std::mt19937 words_;
  std::optional<double> kept_normal_;
};

}  // namespace regard::inline v0
