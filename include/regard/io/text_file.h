// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads an entire text file, such as the text that a model is trained on.
///
/// @verbatim
///     open ── check type and size ── read ── check UTF-8 ──▶ text
/// @endverbatim
///
/// Read next: src/io/text_file.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "regard/export.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

/// Reads a text file.
///
/// The file must be a regular file in UTF-8. Opening it never blocks.
///
/// @param path              Path of the file.
/// @param max_memory_bytes  Memory that the text may use, in bytes; defaults to available_memory_bytes().
/// @param stop              Stop token, polled while the file is read.
/// @return The text.
/// @throws DataError  "path: …" if the file cannot be read or is not valid UTF-8. If the file is an archive, the
///                    message states this. "path: needs N bytes of memory; M are available" if the text does not fit,
///                    before any memory is allocated.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const std::string text = read_text_file("jargon.txt");
/// @endcode
REGARD_EXPORT std::string read_text_file(const std::string& path,
                                         std::optional<std::uint64_t> max_memory_bytes = std::nullopt,
                                         const std::stop_token& stop = {});

}  // namespace regard::inline v0
