// SPDX-License-Identifier: Apache-2.0
//
// The sentence printed before a step's numbers: the finding for the token in focus, or for the query whose largest
// weight is most conspicuous.
// Read next: findings.cpp.
#pragma once

#include "regard/explain/steps.h"

namespace regard::inline v0 {

// Empty if the step has no finding.
std::string finding_of(const Step& step, const Explanation& explanation);

// The row of weights (or scores) that a finding and the bars are about.
struct QueryRow {
  Index head;
  Index query;                  // in the whole matrix
  std::vector<double> numbers;  // one for each key
  std::vector<std::uint8_t> hidden;
};
// Nothing for a matrix without queries or keys. The focus if it is kept.
std::optional<QueryRow> row_for_finding(const Step& step, const Explanation& explanation);

}  // namespace regard::inline v0
