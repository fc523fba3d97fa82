// SPDX-License-Identifier: Apache-2.0
//
// The properties of one character that BERT's tokenizer uses, as defined by Hugging Face's tokenizers, whose Unicode
// tables differ from utf8proc's (bert_tables.h lists the differences); and the characters of bytes that may not be
// UTF-8.
// Read next: bert_normalizer.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regard::inline v0 {

constexpr char32_t kReplacement = 0xFFFD;

struct DecodedCharacter {
  char32_t code;
  std::size_t num_bytes;
};
// The first character of text, which is not empty. A byte that does not begin well-formed UTF-8 is one U+FFFD.
DecodedCharacter first_character(std::string_view text);
// The last character; U+FFFD if the text does not end with a complete character.
char32_t last_character(std::string_view text);
void append_utf8(std::string& text, char32_t code);

// Unicode's White_Space, 25 characters.
bool is_space(char32_t code);
// The characters that clean_text removes: NUL, U+FFFD and categories Cc, Cf and Co, except tab, line feed and carriage
// return.
bool is_control(char32_t code);
// CJK ideographs as BERT lists them: Unified, Extensions A to D and from U+2B920 on, Compatibility.
bool is_ideograph(char32_t code);
// Category P, and every ASCII character that is not a letter, digit, space or control character.
bool is_punctuation(char32_t code);
// Category Mn, which strip_accents removes.
bool is_accent(char32_t code);
// \w in regular expressions: letters, marks, digits, letter numbers, connectors, joiners.
bool is_word_character(char32_t code);

// Unicode's canonical combining class: characters of classes above 0 are sorted by it, stably.
int combining_class(char32_t code);

struct Characters {
  char32_t codes[4];
  int count;
};
// The full canonical decomposition; a Hangul syllable yields its two or three jamo.
Characters decompose(char32_t code);
// Lower case without context: U+0130 yields i and U+0307; every capital sigma yields the non-final form.
Characters to_lower(char32_t code);

}  // namespace regard::inline v0
