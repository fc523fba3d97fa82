// SPDX-License-Identifier: Apache-2.0
//
// Initial values of parameters: each is a function of the seed, its parameter and its index in it.
// Read next: regard/random.h.
#include <algorithm>
#include <cmath>

#include "instantiate.h"
#include "optimizer_arguments.h"
#include "ranges.h"
#include "regard/random.h"
#include "regard/train/optimizer.h"

namespace regard::inline v0 {
namespace {

// Lower streams of random numbers are reserved for batches and dropout, which also use the seed of the run.
constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 32;
constexpr double kDeviation = 0.02;
constexpr Index kElements = 4096;  // of a task

Index num_layers_of(std::span<const DecoderParameter> description) {
  Index layers = 0;
  for (const DecoderParameter& parameter : description) layers = std::max(layers, parameter.layer + 1);
  return layers;
}

}  // namespace

template <class T>
void initialize(std::span<const DecoderParameter> description, std::span<T> parameters, std::uint64_t seed,
                const Runtime& runtime) {
  Index n = 0;
  for (const DecoderParameter& parameter : description) n += parameter.size();
  internal::expect_elements("initialize", "parameters", parameters.size(), n, "the description");
  // The variance of the residual stream does not grow with the number of layers, each of which adds two results.
  const auto layers = static_cast<double>(num_layers_of(description));
  const double residual_deviation = kDeviation / std::sqrt(2 * std::max(1.0, layers));
  const auto fill = [&](std::size_t number, std::span<T> values, Index first) {
    const ParameterKind kind = description[number].kind;
    if (kind == ParameterKind::gain || kind == ParameterKind::bias) {
      std::ranges::fill(values, kind == ParameterKind::gain ? T{1} : T{0});
      return;
    }
    const double deviation = kind == ParameterKind::residual ? residual_deviation : kDeviation;
    auto element = static_cast<std::uint64_t>(first);
    for (T& value : values) value = static_cast<T>(deviation * random_normal(seed, kFirstStream + number, element++));
  };
  Index offset = 0;
  for (std::size_t number = 0; number < description.size(); ++number) {
    const Index size = description[number].size();
    internal::for_each_range(
        size, kElements,
        [&](Index first, Index end, const Runtime&) {
          const auto begin = static_cast<std::size_t>(offset + first), count = static_cast<std::size_t>(end - first);
          fill(number, parameters.subspan(begin, count), first);
        },
        runtime);
    offset += size;
  }
}

REGARD_INSTANTIATE_COMPUTE(initialize);

}  // namespace regard::inline v0
