// SPDX-License-Identifier: Apache-2.0
//
// Operands and results of the operations that only lessons use. Read next: lesson_operations.cpp.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "explain/steps/operations.h"

namespace regard::inline v0 {

// The request's number `i`, which must be an integer in this range.
inline Index whole_number(const Evaluation& e, std::size_t i, Index lowest, Index highest) {
  const double number = e.request.numbers[i];
  if (!(number >= static_cast<double>(lowest) && number <= static_cast<double>(highest)) ||
      number != std::floor(number)) {
    e.fail("number " + std::to_string(i) + " must be an integer from " + std::to_string(lowest) + " to " +
           std::to_string(highest));
  }
  return static_cast<Index>(number);
}

// Operands as in the formulas: one head, complete, row-major.
inline const Matrix& plain(const Evaluation& e, std::size_t i) {
  const Matrix& matrix = e.operand(i);
  if (matrix.num_heads != 1 || !matrix.kept_rows.empty() || !matrix.kept_columns.empty()) {
    e.fail("takes one whole matrix, not heads or chosen rows");
  }
  return matrix;
}

inline double at(const Matrix& matrix, Index row, Index column) { return matrix.numbers[matrix.index(0, row, column)]; }

// Tokens and dimensions of an operand in either layout.
struct TokenVectors {
  TokenVectors(const Evaluation& e, std::size_t i)
      : matrix(plain(e, i)),
        by_column(e.columns()),
        num_tokens(by_column ? matrix.num_columns : matrix.num_rows),
        num_dimensions(by_column ? matrix.num_rows : matrix.num_columns) {}
  double at(Index token, Index dimension) const { return matrix.numbers[index(token, dimension)]; }
  std::size_t index(Index token, Index dimension) const {
    return by_column ? matrix.index(0, dimension, token) : matrix.index(0, token, dimension);
  }
  const Matrix& matrix;
  bool by_column;
  Index num_tokens;
  Index num_dimensions;
};

inline void set_result(Evaluation& e, Index rows, Index columns, std::vector<double> numbers, const Axis& row_axis,
                       const Axis& column_axis) {
  e.step.result.num_heads = 1;
  e.step.result.num_rows = rows;
  e.step.result.num_columns = columns;
  e.step.result.numbers = std::move(numbers);
  e.step.row_axis = row_axis;
  e.step.column_axis = column_axis;
}

}  // namespace regard::inline v0
