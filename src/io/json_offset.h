// SPDX-License-Identifier: Apache-2.0
//
// The current offset of a streaming JSON parser in its text, and the check for stop requests.
//
//     text ── CountingIterator ──▶ parser ── an event ──▶ handler, which reads the offset from the iterator
//
// Read next: json.cpp, safetensors_header.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace regard::inline v0::internal {

// Counts the bytes that the parser has consumed, and throws Cancelled if a stop is requested.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** taken, const std::stop_token& stop)
      : at_(at), taken_(taken), stop_(&stop) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *taken_ = ++at_;
    if (reinterpret_cast<std::uintptr_t>(at_) % kLook == 0) throw_if_stopped(*stop_, "reading JSON");
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return a.at_ != b.at_; }

 private:
  static constexpr std::uintptr_t kLook = 1024;  // bytes: a few microseconds

  const char* at_;
  const char** taken_;
  const std::stop_token* stop_;
};

// The offset of the opening quote of the string whose closing quote is the byte before `end`.
inline std::size_t start_of_string(std::string_view text, std::size_t end) {
  std::size_t quote = end - 1;
  while (quote > 0) {
    --quote;
    if (text[quote] != '"') continue;
    std::size_t slashes = 0;
    while (slashes < quote && text[quote - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) break;
  }
  return quote;
}

// The parser's reason for rejecting a text, without the positions that it counts differently:
// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …". "…; last read: 'WORD'" contains
// everything since the last string or number began, perhaps megabytes, so only its end is shown.
inline std::string parser_reason(std::string_view what, int id) {
  constexpr int kOutOfRange = 406;
  if (id == kOutOfRange) return "a number is out of range for double";
  if (const std::size_t end = what.find(']'); what.starts_with('[') && end != what.npos) what.remove_prefix(end + 2);
  if (const std::size_t end = what.find(": "); what.starts_with("parse error") && end != what.npos)
    what.remove_prefix(end + 2);
  constexpr std::string_view kLastRead = "; last read: '";
  constexpr std::size_t kMaxShown = 80;
  const std::size_t quote = what.find(kLastRead);
  if (quote == what.npos) return std::string(what);
  const std::size_t begin = quote + kLastRead.size();
  const std::size_t end = what.rfind('\'');
  if (end <= begin + kMaxShown) return std::string(what);
  std::size_t shown = end - kMaxShown;
  while (shown < end && (static_cast<unsigned char>(what[shown]) & 0xC0) == 0x80) ++shown;
  return std::string(what.substr(0, begin)).append("…").append(what.substr(shown));
}

}  // namespace regard::inline v0::internal
