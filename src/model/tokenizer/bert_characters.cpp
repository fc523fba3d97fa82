// SPDX-License-Identifier: Apache-2.0
//
// Characters as BERT's tokenizer classifies them: utf8proc's properties, corrected by the differences in bert_tables.h.
// Read next: bert_tables.h.
#include "bert_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "bert_tables.h"

namespace regard::inline v0 {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

template <class Range, std::size_t N>
const Range* find(const Range (&ranges)[N], char32_t code) {
  const Range* after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                        [](char32_t c, const Range& r) { return c < r.first; });
  if (after == std::begin(ranges) || code > std::prev(after)->last) return nullptr;
  return std::prev(after);
}

template <std::size_t N>
bool contains(const CodeRange (&ranges)[N], char32_t code) {
  return find(ranges, code) != nullptr;
}

bool is_ascii_sign(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}

}  // namespace

DecodedCharacter first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  utf8proc_int32_t code = 0;
  const std::size_t bytes = std::min<std::size_t>(text.size(), 4);
  const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                   static_cast<utf8proc_ssize_t>(bytes), &code);
  if (length <= 0) return {kReplacement, 1};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(length)};
}

char32_t last_character(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(text.size(), 4); ++length) {
    const DecodedCharacter last = first_character(text.substr(text.size() - length));
    if (last.num_bytes == length && (length > 1 || last.code != kReplacement)) return last.code;
  }
  return kReplacement;
}

void append_utf8(std::string& text, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_control(char32_t code) {
  if (code < 0x80) return (code < ' ' && code != '\t' && code != '\n' && code != '\r') || code == 0x7F;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return !contains(kNotControl, code);
    default:
      return code == kReplacement;
  }
}

bool is_ideograph(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
         (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0x2F800 && code <= 0x2FA1F);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) return is_ascii_sign(code);
  switch (category(code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return !contains(kNotPunctuation, code);
    default:
      return contains(kPunctuation, code);
  }
}

bool is_accent(char32_t code) {
  if (category(code) == UTF8PROC_CATEGORY_MN) return !contains(kNotMark, code);
  return contains(kMark, code);
}

bool is_word_character(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // The joiners, and the circled and squared letters, which are symbols but alphabetic.
      return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
             (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
             (code >= 0x1F170 && code <= 0x1F189);
  }
}

int combining_class(char32_t code) {
  const int combining = utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
  return combining == 0 || contains(kNotReordered, code) ? 0 : combining;
}

Characters decompose(char32_t code) {
  utf8proc_int32_t parts[4];
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 4, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 1 || count > 4 || contains(kNotDecomposed, code)) return {{code}, 1};
  Characters result{{}, static_cast<int>(count)};
  std::copy_n(parts, count, result.codes);
  return result;
}

Characters to_lower(char32_t code) {
  if (code == 0x130) return {{'i', 0x307}, 2};
  if (const CaseRange* range = find(kCases, code))
    return {{static_cast<char32_t>(static_cast<int>(code) + range->shift)}, 1};
  return {{static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)))}, 1};
}

}  // namespace regard::inline v0
