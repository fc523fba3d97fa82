// SPDX-License-Identifier: Apache-2.0
//
// Processes untrusted text character by character with utf8proc; see regard/io/utf8.h.
#include "regard/io/utf8.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace regard::inline v0 {
namespace {

// Calls visit(code point, its bytes) for each character; the code point is −1 for a byte that is not valid UTF-8.
template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  while (!text.empty()) {
    utf8proc_int32_t code = -1;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    utf8proc_ssize_t length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (length <= 0) {
      code = -1;
      length = 1;
    }
    visit(code, text.substr(0, static_cast<std::size_t>(length)));
    text.remove_prefix(static_cast<std::size_t>(length));
  }
}

// Control and format characters (including all bidirectional marks), line separators, surrogates and unassigned code
// points.
bool is_invisible(utf8proc_int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                   static_cast<utf8proc_ssize_t>(text.size()), &code);
  return length <= 0 ? 1 : static_cast<std::size_t>(length);
}

bool has_letter_or_digit(std::string_view text) {
  bool found = false;
  for_each_character(text, [&](utf8proc_int32_t code, std::string_view) {
    const utf8proc_category_t kind = code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
    found = found || (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
            (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
  });
  return found;
}

bool has_symbol(std::string_view text) {
  bool found = false;
  for_each_character(text, [&](utf8proc_int32_t code, std::string_view) {
    found = found || (code >= 0 && utf8proc_category(code) == UTF8PROC_CATEGORY_SO);
  });
  return found;
}

std::string escape_for_terminal(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](utf8proc_int32_t code, std::string_view bytes) {
    if (code < 0) {
      result += fmt::format("\\x{{{:02x}}}", static_cast<unsigned char>(bytes[0]));
    } else if (is_invisible(code)) {
      result += fmt::format("\\u{{{:x}}}", code);
    } else {
      result += bytes;
    }
  });
  return result;
}

std::string_view truncate_text(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  constexpr std::size_t kMaxCharacterBytes = 4;
  std::size_t end = max_bytes;
  while (end > 0 && max_bytes - end < kMaxCharacterBytes && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  // Without a character boundary, bytes that are not valid UTF-8 are truncated anywhere.
  return text.substr(0, (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80 ? max_bytes : end);
}

std::string text_in_message(std::string_view text) {
  constexpr std::size_t kMaxBytes = 80;
  return escape_for_terminal(truncate_text(text, kMaxBytes));
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  // Letters, digits and base64 are copied as they are.
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '+' && c <= '9') || c == ' ' || c == '=';
  };
  const auto end = std::find_if_not(text.begin(), text.end(), plain);
  const auto count = static_cast<std::size_t>(end - text.begin());
  json.reserve(text.size() + 2);
  json += text.substr(0, count);
  for_each_character(text.substr(count), [&](utf8proc_int32_t code, std::string_view bytes) {
    if (code < 0) {
      json += "\\ufffd";
    } else if (code == '"' || code == '\\') {
      json += {'\\', bytes[0]};
    } else if (code == '\n') {
      json += "\\n";
    } else if (code == '\t') {
      json += "\\t";
    } else if (!is_invisible(code) && code != '<' && code != '>' && code != '&') {
      json += bytes;
    } else if (code < 0x10000) {
      json += fmt::format("\\u{:04x}", code);
    } else {
      const utf8proc_int32_t above = code - 0x10000;
      json += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
    }
  });
  return json + '"';
}

int display_width(std::string_view text) {
  int width = 0;
  for_each_character(
      text, [&](utf8proc_int32_t code, std::string_view) { width += code < 0 ? 1 : utf8proc_charwidth(code); });
  return width;
}

std::size_t valid_utf8_bytes(std::string_view text, const std::stop_token& stop) {
  std::size_t valid = 0;
  bool broken = false;
  for_each_character(text, [&](utf8proc_int32_t code, std::string_view bytes) {
    throw_if_stopped(stop, "reading a text");
    broken = broken || code < 0;
    if (!broken) valid += bytes.size();
  });
  return valid;
}

}  // namespace regard::inline v0
