// SPDX-License-Identifier: Apache-2.0
//
// Names with equal hashes: all have the same std::hash<std::string> in the library of g++, whose seed is fixed. It
// processes 8 bytes at a time into a state h:
//
//     h ← (h ^ f(bytes)) · m        f can be inverted
//
// so that for any first 8 bytes there are second ones that lead to a given state. Printable pairs give alternatives of
// 16 bytes, and concatenating alternatives gives as many names as there are combinations.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace regard {

class CollidingNames {
 public:
  static constexpr std::size_t kLength = 32;

  // alternatives² names.
  explicit CollidingNames(std::size_t alternatives) : first_(alternatives), second_(alternatives) {
    std::uint64_t state = kSeed ^ (kLength * kFactor);
    state = fill(first_, state);
    fill(second_, state);
  }

  std::size_t size() const { return first_.size() * second_.size(); }
  std::string operator[](std::size_t i) const { return first_[i / second_.size()] + second_[i % second_.size()]; }
  bool collide() const {
    for (std::size_t i = 0; i < size(); i += size() / 16) {
      if (std::hash<std::string>()((*this)[i]) != std::hash<std::string>()((*this)[0])) return false;
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995, kSeed = 0xc70f6907;

  static constexpr std::uint64_t fold(std::uint64_t x) { return x ^ x >> 47; }
  static constexpr std::uint64_t f(std::uint64_t bytes) { return fold(bytes * kFactor) * kFactor; }
  static constexpr std::uint64_t inverse_of_f(std::uint64_t x) { return fold(x * inverse_factor()) * inverse_factor(); }
  static constexpr std::uint64_t inverse_factor() {
    std::uint64_t inverse = 1;
    for (int bits = 1; bits < 64; bits *= 2) inverse *= 2 - kFactor * inverse;
    return inverse;
  }

  static bool is_plain(std::uint64_t bytes) {
    for (int i = 0; i < 8; ++i) {
      const auto c = static_cast<unsigned char>(bytes >> 8 * i);
      if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') return false;
    }
    return true;
  }

  std::uint64_t next() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  // Returns the state that all alternatives lead to.
  std::uint64_t fill(std::vector<std::string>& alternatives, std::uint64_t state) {
    const std::uint64_t target = next();
    for (std::size_t found = 0; found < alternatives.size();) {
      std::uint64_t first = 0;
      for (int i = 0; i < 8; ++i) first |= ('a' + next() % 26) << 8 * i;
      const std::uint64_t second = inverse_of_f(target ^ (state ^ f(first)) * kFactor);
      if (!is_plain(second)) continue;
      char bytes[16];
      std::memcpy(bytes, &first, 8);
      std::memcpy(bytes + 8, &second, 8);
      alternatives[found++] = std::string(bytes, 16);
    }
    return target * kFactor;
  }

  std::uint64_t random_ = 88172645463325252;
  std::vector<std::string> first_, second_;
};

}  // namespace regard
