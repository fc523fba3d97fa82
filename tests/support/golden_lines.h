// SPDX-License-Identifier: Apache-2.0
//
// Lines `name hash` of results, for comparisons of every bit between instruction sets, compilers and machines:
//
//   input    integers from SplitMix64 times a power of two: exact, and the same everywhere
//   hash     FNV-1a 64 over the bytes of the result, little-endian, with all NaN alike
//
// These headers need no googletest: they are compiled for WebAssembly as well (tests/wasm/).
// Read next: golden_operators.h (all lines of golden_hashes.txt), golden_layers.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"

namespace regard::golden {

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Results by name, in the order of their creation.
class Lines {
 public:
  template <class T>
  void add(const std::string& name, const std::vector<T>& numbers) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint64_t bits : bits_of(numbers)) {
      for (std::size_t byte = 0; byte < sizeof(T); ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3;
    }
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    lines_.emplace_back((sizeof(T) == 4 ? "f32/" : "f64/") + name, text);
  }
  const std::vector<std::pair<std::string, std::string>>& lines() const { return lines_; }

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

// In (−4, 4), denser around 0: a sum of two integers times a power of two, which float represents exactly.
template <class T>
T number(Random& random) {
  constexpr int kBits = sizeof(T) == 4 ? 19 : 48;
  constexpr Index kReach = (Index{1} << kBits) - 1;
  const Index sum = random.integer(-kReach, kReach) + random.integer(-kReach, kReach);
  return std::ldexp(static_cast<T>(sum), 1 - kBits);
}
template <class T, int Rank>
Array<T, Rank> numbers(Random& random, const typename TensorView<T, Rank>::Shape& shape) {
  Array<T, Rank> array(shape);
  array.fill([&] { return number<T>(random); });
  return array;
}

}  // namespace regard::golden
