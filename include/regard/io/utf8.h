// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handles untrusted text: finds character boundaries, checks that it is valid UTF-8, and makes it safe to display on a
/// terminal and to write in JSON.
///
/// All functions accept arbitrary bytes. In this header, a character is a code point.
///
/// Read next: src/io/utf8.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

/// Makes untrusted text safe to print on a terminal.
///
/// Control, bidirectional and other invisible characters are written as `\u{…}`, and bytes that are not valid UTF-8 as
/// `\x{…}`.
///
/// @param text  The text.
/// @return The escaped text, in UTF-8.
///
/// @par Example
/// @code{.cpp}
/// std::puts(escape_for_terminal(token).c_str());
/// @endcode
REGARD_EXPORT std::string escape_for_terminal(std::string_view text);

/// Truncates a text at a character boundary.
///
/// A byte sequence that is not valid UTF-8 may be truncated anywhere.
///
/// @param text       The text.
/// @param max_bytes  Maximum length of the result, in bytes.
/// @return The beginning of the text, at most `max_bytes` long.
REGARD_EXPORT std::string_view truncate_text(std::string_view text, std::size_t max_bytes);

/// Formats untrusted text for quotation in an error message: at most its first 80 bytes, escaped for a terminal.
///
/// @param text  The text.
/// @return The quotation, without quotation marks.
REGARD_EXPORT std::string text_in_message(std::string_view text);

/// Computes the number of columns that an escaped text takes on a terminal. Wide characters take 2 columns, and
/// combining marks take 0.
///
/// @param text  Text without control characters, as escape_for_terminal() returns it.
/// @return Width in columns.
REGARD_EXPORT int display_width(std::string_view text);

/// Formats a text as a JSON string, with its quotes, that is safe to embed in HTML.
///
/// All characters that escape_for_terminal() would escape, and `<`, `>` and `&`, are written as `\u` escapes. Each byte
/// that is not valid UTF-8 is replaced with U+FFFD.
///
/// @param text  The text.
/// @return The JSON string.
REGARD_EXPORT std::string json_string(std::string_view text);

/// Returns whether a text contains a letter or a digit of any script, and is therefore a word rather than punctuation.
///
/// @param text  The text.
/// @return True if the text contains one.
REGARD_EXPORT bool has_letter_or_digit(std::string_view text);

/// Returns whether a text contains an emoji or another pictorial symbol (Unicode category So).
///
/// @param text  The text.
/// @return True if the text contains one.
REGARD_EXPORT bool has_symbol(std::string_view text);

/// Returns the length of the first character of a text.
///
/// @param text  The text.
/// @return Length in bytes; 1 for a byte that is not valid UTF-8, 0 for an empty text.
REGARD_EXPORT std::size_t character_bytes(std::string_view text);

/// Returns the length of the longest valid UTF-8 prefix of a text.
///
/// @param text  The text.
/// @param stop  Stop token, polled at each character.
/// @return Length of the prefix, in bytes: text.size() if the whole text is valid.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::size_t valid_utf8_bytes(std::string_view text, const std::stop_token& stop = {});

}  // namespace regard::inline v0
