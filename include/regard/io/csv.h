// SPDX-License-Identifier: Apache-2.0
//
// Matrices from CSV: lines of numbers divided by commas, as spreadsheets write them.
//
//     1,0,1\n        UTF-8 with or without a byte order mark; lines end in LF, CRLF or CR
//     "0", 1 ,1\n    cells may be quoted ("" inside is one quote) and padded with spaces or tabs
//
// Read next: src/io/csv.cpp; npy.h for NumPy's files.
#pragma once

#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/io/matrix.h"

namespace regard::inline v0 {

// A cell is a decimal number, or inf, nan with a sign. Empty lines at the end are passed over.
// Throws regard::DataError with source, line and column (both counted from 1) for an empty file or cell, a row of
// another length, a cell that is no number or that no double holds, a decimal comma, text after a closing quote, a
// quote that does not close, and bytes that are not UTF-8.
REGARD_EXPORT Matrix read_csv(std::string_view text, const std::string& source);

}  // namespace regard::inline v0
