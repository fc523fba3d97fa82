// SPDX-License-Identifier: Apache-2.0
/// @file
/// A matrix, or one matrix per head, as it is read from a file and displayed.
///
/// @verbatim
///     numbers[index(h, r, c)]     (heads, stored rows, stored columns), row-major
/// @endverbatim
///
/// Read next: csv.h, regard/explain/steps.h.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// One matrix, or one per head, as it is displayed. In the "columns" layout, each column is a token.
///
/// If a matrix is too large to keep, only the rows and columns listed in kept_rows and kept_columns are stored.
struct Matrix {
  Index num_heads = 1;    ///< Number of heads; 1 for a single matrix.
  Index num_rows = 0;     ///< Number of rows in the whole matrix, including rows that are not stored.
  Index num_columns = 0;  ///< Number of columns in the whole matrix, including columns that are not stored.
  /// The elements, (num_heads, stored rows, stored columns), row-major.
  std::vector<double> numbers;
  /// Empty, or one flag for each element of `numbers`: 1 if the mask hides it.
  std::vector<std::uint8_t> hidden{};
  std::vector<Index> kept_rows{};     ///< Stored row indices, in ascending order. If empty, all rows are stored.
  std::vector<Index> kept_columns{};  ///< Stored column indices, in ascending order. If empty, all columns are stored.
  bool has_heads = false;             ///< Whether the head axis is displayed, even if its extent is 1.

  /// Returns the number of rows that are stored.
  Index stored_rows() const { return kept_rows.empty() ? num_rows : static_cast<Index>(kept_rows.size()); }
  /// Returns the number of columns that are stored.
  Index stored_columns() const { return kept_columns.empty() ? num_columns : static_cast<Index>(kept_columns.size()); }
  /// Computes the index of an element in `numbers`.
  ///
  /// @param head           Zero-based head index.
  /// @param stored_row     Index among the stored rows, which differs from the row's index in the whole matrix if
  ///                       kept_rows is not empty.
  /// @param stored_column  Index among the stored columns, with the same distinction.
  /// @return Index into `numbers`.
  std::size_t index(Index head, Index stored_row, Index stored_column) const {
    return static_cast<std::size_t>((head * stored_rows() + stored_row) * stored_columns() + stored_column);
  }
};

/// Creates a matrix without heads from its rows, for lessons and tests.
///
/// @param rows  The rows, all of the same length.
/// @return The matrix.
/// @throws InvalidArgument  if the rows differ in length.
///
/// @par Example
/// @code{.cpp}
/// const Matrix matrix = matrix_of({{1, 2, 3}, {4, 5, 6}});
/// const double element = matrix.numbers[matrix.index(0, 1, 2)];  // 6
/// @endcode
REGARD_EXPORT Matrix matrix_of(const std::vector<std::vector<double>>& rows);

}  // namespace regard::inline v0
