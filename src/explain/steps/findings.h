// SPDX-License-Identifier: Apache-2.0
//
// The sentence that stands before a step's numbers: what they say about the token in focus, or about the query whose
// largest weight stands out most.
// Read next: findings.cpp.
#pragma once

#include "regard/explain/steps.h"

namespace regard::inline v0 {

// Empty where numbers speak for themselves.
std::string finding_of(const Step& step, const Explanation& explanation);

// The row of weights (or scores) that a finding and the bars are about.
struct QueryRow {
  Index head;
  Index query;                  // in the whole matrix
  std::vector<double> numbers;  // one for each key
  std::vector<std::uint8_t> hidden;
};
// Nothing for a matrix without queries or keys. The focus when it is kept.
std::optional<QueryRow> row_to_tell(const Step& step, const Explanation& explanation);

}  // namespace regard::inline v0
