// SPDX-License-Identifier: Apache-2.0
//
// Exact results of a lesson done by hand: products, floor(S / 2), powers of whole numbers, sums and quotients of whole
// numbers are fractions, computed here exactly in addition to the library's decimals.
// Read next: rational.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rational.h"
#include "regard/explain/steps.h"

namespace regard::inline v0 {

struct ExactMatrix {
  Index num_rows = 0;
  Index num_columns = 0;
  std::vector<Rational> numbers;  // row-major
};
using ExactMatrices = std::map<std::string, ExactMatrix>;

// A matrix of one head and whole numbers below 2⁵³, or nothing.
std::optional<ExactMatrix> exact_matrix(const Matrix& matrix);

// A step's result from its operands among `known`; nothing if one is missing, the result is not rational, or a fraction
// exceeds 64 bits.
std::optional<ExactMatrix> exact_result(const StepRequest& request, const ExplainSettings& settings,
                                        const ExactMatrices& known);

}  // namespace regard::inline v0
