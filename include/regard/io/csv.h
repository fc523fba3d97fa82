// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a matrix from CSV text: lines of numbers separated by commas, as spreadsheets write them.
///
/// @verbatim
///     1,0,1\n        UTF-8, with or without a byte order mark; lines end in LF, CRLF or CR
///     "0", 1 ,1\n    cells may be quoted ("" inside quotes is one quote) and padded with spaces or tabs
/// @endverbatim
///
/// Read next: src/io/csv.cpp; npy.h for NumPy files.
#pragma once

#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/io/matrix.h"

namespace regard::inline v0 {

/// Parses CSV text into a matrix.
///
/// A cell holds a decimal number, `inf` or `nan`, each with an optional sign. Empty lines at the end are ignored.
///
/// @param text    The text, in UTF-8.
/// @param source  Name of the text for error messages, usually the path of the file.
/// @return The matrix, (rows, columns), without heads.
/// @throws DataError  in any of the following cases (the message states `source`, the line and the column, both
///                    1-based):
///                    - the file or a cell is empty
///                    - a row differs in length from the first row
///                    - a cell is not a number, or its value is out of range for double
///                    - a number has a decimal comma
///                    - text follows a closing quote, or a quote is not closed
///                    - the text is not valid UTF-8
///
/// @par Example
/// @code{.cpp}
/// const Matrix m = read_csv("1,2\n3,4\n", "example.csv");  // 2 rows, 2 columns
/// @endcode
REGARD_EXPORT Matrix read_csv(std::string_view text, const std::string& source);

}  // namespace regard::inline v0
