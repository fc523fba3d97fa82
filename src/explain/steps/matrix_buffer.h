// SPDX-License-Identifier: Apache-2.0
//
// A Matrix in the element type T of the computation, float or double, with plain and transposed views for the library.
// Read next: operations_attention.cpp, operations_matrix.cpp.
#pragma once

#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

template <class T>
struct Buffer {
  Index heads = 0;
  Index rows = 0;
  Index columns = 0;
  std::vector<T> numbers;

  Buffer() = default;
  Buffer(Index num_heads, Index num_rows, Index num_columns)
      : heads(num_heads),
        rows(num_rows),
        columns(num_columns),
        numbers(static_cast<std::size_t>(num_heads * num_rows * num_columns)) {}
  // Of the stored rows and columns.
  explicit Buffer(const Matrix& m) : Buffer(m.num_heads, m.stored_rows(), m.stored_columns()) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<T>(m.numbers[i]);
  }

  std::vector<double> as_doubles() const { return {numbers.begin(), numbers.end()}; }
  TensorView<T, 2> view(Index head) { return {numbers.data() + head * rows * columns, {rows, columns}, {columns, 1}}; }
  TensorView<T, 2> transposed(Index head) {
    return {numbers.data() + head * rows * columns, {columns, rows}, {1, columns}};
  }
};

}  // namespace regard::inline v0
