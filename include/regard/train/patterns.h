// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scores of one attention head on one probe sequence: the mean weights on the keys that a task expects, on the
/// previous token and on the first token, and the entropy of the weights.
///
/// @verbatim
///                   keys 0 1 2 3                    wanted of row 2: {1}, of row 3: {0, 2}
///     weights   row 0    1                          score     mean(w₂₁, w₃₀ + w₃₂)
///     (causal)  row 1    . 1                        uniform   mean(1/3, 2/4)
///               row 2    . W .                      previous  mean(w₁₀, w₂₁, w₃₂)
///               row 3    W . W .                    first     mean(w₁₀, w₂₀, w₃₀)
/// @endverbatim
///
/// A query without a relevant key often has most of its weight on the first token, which then acts as an attention
/// sink. The score is therefore also computed without the first key.
///
/// Read next: src/train/record/patterns.cpp, tasks.h.
#pragma once

#include <span>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// The scores of a head, each a mean over rows of the probe sequence. A mean over no rows is 0.
struct HeadPattern {
  double score = 0;    ///< Weight on the expected keys, over the rows with expected keys.
  double uniform = 0;  ///< The same mean for uniform weights over the visible keys.
  /// The same as `score`, but with key 0 excluded and each row divided by the sum of its other weights, over the rows
  /// with an expected key other than 0. A row whose other weights are all 0 counts as 0.
  double score_without_first = 0;
  double uniform_without_first = 0;  ///< The same mean for uniform weights.
  double previous_token = 0;         ///< Weight on the key before the row's own, over all rows except row 0.
  double first_token = 0;            ///< Weight on key 0, over all rows except row 0.
  double one_key_uniform = 0;        ///< previous_token and first_token for uniform weights.
  /// Entropy −Σ w ln w of a row, divided by the logarithm of its number of visible keys, over all rows except row 0.
  /// The ratio is 0 for a row with all of its weight on one key, and 1 for uniform weights.
  double entropy = 0;
};

/// Computes the scores of a head.
///
/// @tparam T       float or double.
/// @param weights  Weights of the head, (L, L), with any strides. Elements above the diagonal are not read.
/// @param wanted   The expected keys of each row, in ascending order; empty where the pattern is not defined
///                 (TaskExample::wanted).
/// @return The scores, computed in double in the order of rows and keys.
/// @throws InvalidArgument  if weights is not square, if wanted does not have L entries, if an expected key is
///                          not visible, or if the keys of a row are not ascending.
///
/// @par Example
/// @code{.cpp}
/// const HeadPattern pattern = head_pattern(weights, example.wanted);
/// if (pattern.score > task.formed_score) std::puts("formed");
/// @endcode
template <class T>
REGARD_EXPORT HeadPattern head_pattern(TensorView<const T, 2> weights, std::span<const std::vector<Index>> wanted);

/// Computes the scores of a head from the lower triangle of its weights, row by row: L · (L + 1) / 2 elements.
///
/// @tparam T              float or double.
/// @param lower_triangle  Row i has i + 1 elements.
/// @param wanted          As for the full matrix.
/// @return The scores, bit-identical to those for the full matrix.
/// @throws InvalidArgument  as for the full matrix, and if lower_triangle does not have L · (L + 1) / 2 elements.
template <class T>
REGARD_EXPORT HeadPattern head_pattern(std::span<const T> lower_triangle, std::span<const std::vector<Index>> wanted);

}  // namespace regard::inline v0
