// SPDX-License-Identifier: Apache-2.0
//
// The steps and the cell that the user asks for; see chosen_steps.h.
#include "chosen_steps.h"

#include <fmt/format.h>

#include <charconv>

#include "operations.h"
#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

// The indices of the steps that `wanted` names: all, a zero-based number, or a name.
std::vector<std::size_t> steps_named(const Explanation& explanation, const std::string& wanted) {
  std::vector<std::size_t> all;
  std::string names;
  for (std::size_t i = 0; i < explanation.steps.size(); ++i) {
    if (explanation.steps[i].name == wanted) return {i};
    all.push_back(i);
    names += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, escape_for_terminal(explanation.steps[i].name));
  }
  if (wanted.empty()) return all;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  if (error == std::errc() && end == wanted.data() + wanted.size() && number < all.size()) return {number};
  throw InvalidArgument(fmt::format("step \"{}\" does not exist; choose one of {}", text_in_message(wanted), names));
}

void check_cell(const Explanation& explanation, const std::vector<std::size_t>& steps, const Cell& cell) {
  std::string shapes;
  for (std::size_t i : steps) {
    const Step& step = explanation.steps[i];
    const Matrix& m = step.result;
    if (has_cell(m, cell)) return;
    shapes += fmt::format("{}{} is {}", shapes.empty() ? "" : ", ", step.name, shape_text(m));
  }
  throw InvalidArgument(fmt::format("cell {},{}{} does not exist: {}", cell.row, cell.column,
                                    cell.head == 0 ? "" : fmt::format(" of head {}", cell.head),
                                    escape_for_terminal(shapes)));
}

}  // namespace

bool has_cell(const Matrix& m, const Cell& cell) {
  return cell.row >= 0 && cell.row < m.num_rows && cell.column >= 0 && cell.column < m.num_columns && cell.head >= 0 &&
         cell.head < m.num_heads;
}

std::vector<std::size_t> chosen_steps(const Explanation& explanation, const std::string& wanted,
                                      const std::optional<Cell>& cell) {
  std::vector<std::size_t> steps = steps_named(explanation, wanted);
  if (cell) check_cell(explanation, steps, *cell);
  return steps;
}

}  // namespace regard::inline v0
