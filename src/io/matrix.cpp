// SPDX-License-Identifier: Apache-2.0
//
// Matrices from rows; see matrix.h.
#include "regard/io/matrix.h"

#include <fmt/format.h>

#include "regard/error.h"

namespace regard::inline v0 {

Matrix matrix_of(const std::vector<std::vector<double>>& rows) {
  Matrix m;
  m.num_rows = static_cast<Index>(rows.size());
  m.num_columns = rows.empty() ? 0 : static_cast<Index>(rows[0].size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (static_cast<Index>(rows[r].size()) != m.num_columns)
      throw InvalidArgument(
          fmt::format("matrix_of: row {} has {} numbers, but row 0 has {}", r, rows[r].size(), m.num_columns));
    m.numbers.insert(m.numbers.end(), rows[r].begin(), rows[r].end());
  }
  return m;
}

}  // namespace regard::inline v0
