// SPDX-License-Identifier: Apache-2.0
//
// Which steps of an explanation to show. Text and JSON reject the same steps and cells, with the same message.
// Read next: steps_text.cpp, steps_json.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

bool has_cell(const Matrix& m, const Cell& cell);

// The indices of the steps that `wanted` names: all if it is empty, a zero-based number, or a name. Throws
// InvalidArgument if there is no such step, or if none of them has the cell.
std::vector<std::size_t> chosen_steps(const Explanation& explanation, const std::string& wanted,
                                      const std::optional<Cell>& cell);

}  // namespace regard::inline v0
