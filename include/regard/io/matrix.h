// SPDX-License-Identifier: Apache-2.0
//
// A matrix, or one for each head, as it is read from a file and shown.
// Read next: csv.h, regard/explain/steps.h.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// One matrix, or one for each head, as it is shown: in layout "columns" a column is a token. Of a matrix too large
// to keep, only the rows or columns in kept_rows and kept_columns are stored (ascending; empty: all of them).
struct Matrix {
  Index num_heads = 1;
  Index num_rows = 0;
  Index num_columns = 0;
  std::vector<double> numbers;         // (num_heads, stored rows, stored columns), row-major
  std::vector<std::uint8_t> hidden{};  // empty, or 1 for each number that the mask hides
  std::vector<Index> kept_rows{};
  std::vector<Index> kept_columns{};
  bool has_heads = false;  // the head axis is shown, even when it is 1

  Index stored_rows() const { return kept_rows.empty() ? num_rows : static_cast<Index>(kept_rows.size()); }
  Index stored_columns() const { return kept_columns.empty() ? num_columns : static_cast<Index>(kept_columns.size()); }
  // The index in numbers of a stored row and column (not of their indices in the whole matrix).
  std::size_t index(Index head, Index stored_row, Index stored_column) const {
    return static_cast<std::size_t>((head * stored_rows() + stored_row) * stored_columns() + stored_column);
  }
};

// A matrix of these rows, for lessons and tests. Throws std::invalid_argument for ragged rows.
REGARD_EXPORT Matrix matrix_of(const std::vector<std::vector<double>>& rows);

}  // namespace regard::inline v0
