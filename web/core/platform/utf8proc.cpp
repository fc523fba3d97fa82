// SPDX-License-Identifier: Apache-2.0
//
// The functions of utf8proc that Regard calls, over tables that web/core/unicode_tables.cpp takes from utf8proc: Debian
// has no utf8proc for WebAssembly.
// Read next: web/core/unicode_tables.cpp.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "unicode_tables.h"

namespace {

constexpr utf8proc_int32_t kEnd = 0x110000;

// The kind of a character: category, combining class and width.
const std::uint8_t* kind_of(utf8proc_int32_t code) {
  const int safe = code < 0 || code >= kEnd ? 0xFFFF : code;  // not a character
  return kKinds + 3 * kKindOf[kBlockOf[safe / 128] * 128 + safe % 128];
}

// The entry of a code in a table of entries of `width` numbers that begin with their codes, ascending; or nullptr.
template <int width, class T, std::size_t size>
const T* find(const T (&table)[size], std::int32_t code) {
  std::size_t first = 0, last = size / width;
  while (first < last) {
    const std::size_t middle = (first + last) / 2;
    if (table[middle * width] < code) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first < size / width && table[first * width] == code ? table + first * width : nullptr;
}

// The parts of an entry of kParts, of which there are up to four.
template <class T>
utf8proc_ssize_t copy_parts(const T* entry, utf8proc_int32_t* parts) {
  std::copy(entry + 1, entry + 5, parts);
  return std::find(entry + 1, entry + 5, T{0}) - (entry + 1);
}

}  // namespace

extern "C" {

utf8proc_category_t utf8proc_category(utf8proc_int32_t code) {
  return static_cast<utf8proc_category_t>(kind_of(code)[0]);
}

const utf8proc_property_t* utf8proc_get_property(utf8proc_int32_t code) {
  static utf8proc_property_t property;
  property.combining_class = kind_of(code)[1];
  return &property;
}

int utf8proc_charwidth(utf8proc_int32_t code) { return kind_of(code)[2]; }

utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t code) {
  if (const std::uint16_t* const entry = find<2>(kLower, code)) return entry[1];
  const std::int32_t* const entry = find<2>(kHighLower, code);
  return entry ? entry[1] : code;
}

utf8proc_ssize_t utf8proc_decompose_char(utf8proc_int32_t code, utf8proc_int32_t* parts, utf8proc_ssize_t,
                                         utf8proc_option_t, int*) {
  constexpr utf8proc_int32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
  if (code >= kSyllables && code < kSyllables + 19 * 21 * 28) {
    const utf8proc_int32_t number = code - kSyllables;
    parts[0] = kLeading + number / (21 * 28);
    parts[1] = kVowel + number / 28 % 21;
    parts[2] = kTrailing + number % 28;
    return number % 28 == 0 ? 2 : 3;
  }
  if (const std::uint16_t* const entry = find<5>(kParts, code)) return copy_parts(entry, parts);
  if (const std::int32_t* const entry = find<5>(kHighParts, code)) return copy_parts(entry, parts);
  parts[0] = code;
  return 1;
}

utf8proc_ssize_t utf8proc_iterate(const utf8proc_uint8_t* text, utf8proc_ssize_t size, utf8proc_int32_t* code) {
  *code = -1;
  if (size == 0) return 0;
  if (text[0] < 0x80) {
    *code = text[0];
    return 1;
  }
  const utf8proc_ssize_t length = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
  constexpr utf8proc_int32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  utf8proc_int32_t value = text[0] & (0x7F >> length);
  if (text[0] < 0xC2 || text[0] > 0xF4 || length > size) return UTF8PROC_ERROR_INVALIDUTF8;
  for (utf8proc_ssize_t i = 1; i < length; ++i) {
    if ((text[i] & 0xC0) != 0x80) return UTF8PROC_ERROR_INVALIDUTF8;
    value = value << 6 | (text[i] & 0x3F);
  }
  if (value < kLeast[length] || value >= kEnd || (value >= 0xD800 && value < 0xE000)) return UTF8PROC_ERROR_INVALIDUTF8;
  *code = value;
  return length;
}

utf8proc_ssize_t utf8proc_encode_char(utf8proc_int32_t code, utf8proc_uint8_t* bytes) {
  if (code < 0 || code >= kEnd) return 0;
  if (code < 0x80) {
    bytes[0] = static_cast<utf8proc_uint8_t>(code);
    return 1;
  }
  const utf8proc_ssize_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (utf8proc_ssize_t i = length - 1; i > 0; --i, code >>= 6)
    bytes[i] = static_cast<utf8proc_uint8_t>(0x80 | (code & 0x3F));
  bytes[0] = static_cast<utf8proc_uint8_t>((0xF00 >> length & 0xF0) | code);
  return length;
}

}  // extern "C"
