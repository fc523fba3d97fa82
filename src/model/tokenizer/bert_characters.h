// SPDX-License-Identifier: Apache-2.0
//
// What BERT's tokenizer knows of one character, in the words of Hugging Face's tokenizers, whose Unicode tables are not
// utf8proc's (bert_tables.h holds the difference), and the characters of bytes that may be no UTF-8.
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
// The first character of text, which is not empty. A byte that begins no well-formed UTF-8 is one U+FFFD by itself.
DecodedCharacter first_character(std::string_view text);
// The last one; where the text does not end with a whole character, U+FFFD.
char32_t last_character(std::string_view text);
void append_utf8(std::string& text, char32_t code);

// Unicode's White_Space, 25 characters.
bool is_space(char32_t code);
// What clean_text takes out: NUL, U+FFFD and the categories Cc, Cf and Co, but for tab, line feed and carriage return.
bool is_control(char32_t code);
// CJK ideographs as BERT lists them: Unified, Extensions A to D and from U+2B920 on, Compatibility.
bool is_ideograph(char32_t code);
// Category P and every ASCII sign that is no letter, digit or space.
bool is_punctuation(char32_t code);
// Category Mn: what strip_accents takes out.
bool is_accent(char32_t code);
// What regular expressions call \w: letters, marks, digits, letter numbers, connectors, joiners.
bool is_word_character(char32_t code);

// Unicode's canonical combining class: characters of classes above 0 are put in its order, stably.
int combining_class(char32_t code);

struct Characters {
  char32_t codes[4];
  int count;
};
// The full canonical decomposition; a Hangul syllable gives its two or three jamo.
Characters decompose(char32_t code);
// Lower case without context: U+0130 gives i and U+0307, every sigma gives the one that does not stand last.
Characters to_lower(char32_t code);

}  // namespace regard::inline v0
