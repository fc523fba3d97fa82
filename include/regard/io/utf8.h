// SPDX-License-Identifier: Apache-2.0
//
// Text from outside: where its characters end, whether it is UTF-8, and how it is shown safely on a
// terminal and in JSON.
// Read next: src/io/utf8.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

// Text from outside made safe for a terminal: control, bidirectional and other invisible characters
// as \u{…}, bytes that are no UTF-8 as \x{…}.
REGARD_EXPORT std::string escape_for_terminal(std::string_view text);

// The beginning of a text, at most max_bytes long, that ends where a character ends.
REGARD_EXPORT std::string_view truncate_text(std::string_view text, std::size_t max_bytes);

// Text from outside as messages quote it: its first 80 bytes at most, escaped for a terminal.
REGARD_EXPORT std::string text_in_message(std::string_view text);

// Columns that escaped text takes on a terminal: 2 for wide characters, 0 for combining marks.
REGARD_EXPORT int display_width(std::string_view text);

// A JSON string with its quotes, safe to stand in HTML: whatever escape_for_terminal would escape, and < > &, as \u
// escapes. For each byte that is no UTF-8 stands U+FFFD.
REGARD_EXPORT std::string json_string(std::string_view text);

// Whether any letter or digit of any script is in it: what is a word, and no punctuation.
REGARD_EXPORT bool has_letter_or_digit(std::string_view text);

// Whether any emoji or other pictorial symbol is in it.
REGARD_EXPORT bool has_symbol(std::string_view text);

// Bytes of the first character; 1 for a byte that is no UTF-8, 0 for empty text.
REGARD_EXPORT std::size_t character_bytes(std::string_view text);

// How many bytes at the front are UTF-8: text.size() when all of it is. Throws regard::Cancelled where a stop is
// requested.
REGARD_EXPORT std::size_t valid_utf8_bytes(std::string_view text, const std::stop_token& stop = {});

}  // namespace regard::inline v0
