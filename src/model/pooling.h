// SPDX-License-Identifier: Apache-2.0
//
// The vector of a text from the states of its tokens, as in sentence-transformers: the mean of rows, scaled to norm 1.
// Read next: encoder/encoder_views.cpp, encoder/embed.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// The mean of the given rows of states (L, E), summed in double; zeros if there are no rows.
inline std::vector<float> mean_of_rows(const Tensor<float, 2>& states, std::span<const Index> rows) {
  const auto width = static_cast<std::size_t>(states.shape()[1]);
  std::vector<double> sums(width);
  for (const Index row : rows) {
    const float* state = states.data() + row * states.shape()[1];
    for (std::size_t e = 0; e < width; ++e) sums[e] += static_cast<double>(state[e]);
  }
  std::vector<float> mean(width);
  if (rows.empty()) return mean;
  for (std::size_t e = 0; e < width; ++e) mean[e] = static_cast<float>(sums[e] / static_cast<double>(rows.size()));
  return mean;
}
inline std::vector<float> mean_of_rows(const Tensor<float, 2>& states, Index begin, Index end) {
  std::vector<Index> rows;
  for (Index row = begin; row < end; ++row) rows.push_back(row);
  return mean_of_rows(states, rows);
}

inline double norm_of(std::span<const float> numbers) {
  double sum = 0;
  for (const float x : numbers) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// Divided by its L2 norm, or by 10⁻¹² if the norm is smaller, as torch.nn.functional.normalize does.
inline std::vector<float> normalized(std::vector<float> vector) {
  constexpr double kMinNorm = 1e-12;
  const double norm = std::max(norm_of(vector), kMinNorm);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / norm);
  return vector;
}

}  // namespace regard::inline v0::internal
