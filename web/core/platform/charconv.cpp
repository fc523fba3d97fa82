// SPDX-License-Identifier: Apache-2.0
//
// std::to_chars of float and double: the shortest digits that read back the same, as fmt finds them. libc++ has the
// same functions, with tables of 120 kB for other formats.
//
//     digits d₁d₂…dₙ, exponent e ──▶ d₁.d₂…dₙe±ee  or  d₁…d.…dₙ  or  0.00d₁…dₙ: the shorter, without exponent if equal
//
// Read next: src/io/json_writer.cpp.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

namespace {

// A whole number of more digits than its shortest form has: all of them, exactly.
template <class T>
std::string whole_digits(T x) {
  std::string digits;
  for (auto rest = static_cast<unsigned __int128>(x); rest != 0; rest /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
  return digits;
}

template <class T>
std::to_chars_result write_shortest(char* first, char* last, T x) {
  std::string text = std::signbit(x) ? "-" : "";
  const T size = std::fabs(x);
  if (!std::isfinite(x)) {
    text += std::isnan(x) ? "nan" : "inf";
  } else if (size == 0) {
    text += "0";
  } else {
    const auto [significand, scale] = fmt::detail::dragonbox::to_decimal(size);
    const std::string digits = std::to_string(significand);
    const int count = static_cast<int>(digits.size());
    const int exponent = scale + count - 1;  // of the first digit
    const std::string rest = count > 1 ? "." + digits.substr(1) : "";
    const std::string scientific =
        fmt::format("{}{}e{}{:02}", digits[0], rest, exponent < 0 ? '-' : '+', std::abs(exponent));
    const int fixed_size = exponent < 0 ? count - exponent + 1 : exponent + 1 >= count ? exponent + 1 : count + 1;
    if (fixed_size > static_cast<int>(scientific.size())) {
      text += scientific;
    } else if (exponent < 0) {
      text += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    } else if (exponent + 1 > count) {
      text += whole_digits(size);
    } else {
      const auto whole = static_cast<std::size_t>(exponent + 1);
      text += digits.substr(0, whole) + (exponent + 1 == count ? "" : "." + digits.substr(whole));
    }
  }
  if (static_cast<std::ptrdiff_t>(text.size()) > last - first) return {last, std::errc::value_too_large};
  std::memcpy(first, text.data(), text.size());
  return {first + text.size(), std::errc()};
}

}  // namespace

namespace std::inline __2 {

to_chars_result to_chars(char* first, char* last, float x) { return write_shortest(first, last, x); }
to_chars_result to_chars(char* first, char* last, double x) { return write_shortest(first, last, x); }

}  // namespace std::inline __2
