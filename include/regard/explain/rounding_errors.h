// SPDX-License-Identifier: Apache-2.0
/// @file
/// Differences between all-MiniLM-L6-v2 rounded to int8 or float16 (regard/io/rounding.h) and the float32 model.
///
/// The values are means and extremes over the 30 sentences of tests/encoder/sentences.txt.
/// tests/model_rounding_check.cpp measures them.
///
/// Read next: src/explain/sentence/rounding_errors.cpp, docs/reference/model.md.
#pragma once

#include "regard/export.h"
#include "regard/tensor.h"
#include "regard/types.h"

namespace regard::inline v0 {

/// The differences between a rounded model and the same model in float32.
struct RoundingErrors {
  double mean_cosine = 0;             ///< Mean cosine similarity between the two vectors of a sentence.
  double min_cosine = 0;              ///< Smallest such cosine similarity.
  double mean_weight_difference = 0;  ///< Mean of |Δ weight| over all layers, heads, queries and keys.
  double max_weight_difference = 0;   ///< Largest such difference.
  /// Weight from "bank" to "river" in layer 0, head 4 of "he sat on the bank of the river", in the rounded model.
  double bank_to_river = 0;
  Index same_findings = 0;  ///< Number of sentences with the same most informative head, query and key.
};
inline constexpr Index kRoundingSentences = 30;       ///< Number of sentences.
inline constexpr double kFloat32BankToRiver = 0.713;  ///< RoundingErrors::bank_to_river of the model in float32.

/// Returns the differences for the rounded all-MiniLM-L6-v2: cosine similarities to five decimal places, weight
/// differences to two significant digits, and the weight on "river" to three decimal places.
///
/// @param type  Type to which the matrices are rounded: `int8` or `float16`.
/// @return The differences.
/// @throws InvalidArgument  if `type` is neither of these.
///
/// @par Example
/// @code{.cpp}
/// const double cosine = minilm_rounding_errors(ElementType::int8).mean_cosine;  // 0.99948
/// @endcode
REGARD_EXPORT const RoundingErrors& minilm_rounding_errors(ElementType type);

}  // namespace regard::inline v0
