// SPDX-License-Identifier: Apache-2.0
//
// A Feistel network on Philox: a permutation of the numbers of 2h bits.
//
//     left │ right          right │ left ⊕ philox(right, round)          eight rounds, each of which can be undone
//
// A result outside 0 … n − 1 is permuted again until it is in this range. Since the start is in the range, this ends,
// and the result is a permutation of 0 … n − 1 (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002). With fewer than 4n numbers of 2h bits, this takes fewer than four applications on average.
// Read next: text_data.cpp.
#include "permutation.h"

#include <bit>

#include "regard/random.h"

namespace regard::inline v0::internal {

Index permuted(std::uint64_t key, std::uint64_t number, Index index, Index n) {
  constexpr std::uint32_t kNumRounds = 8;
  const auto bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
  const unsigned half = bits / 2 + bits % 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto x = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint32_t round = 0; round < kNumRounds; ++round) {
      const auto words = philox({static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(number),
                                 static_cast<std::uint32_t>(number >> 32)},
                                key);
      const std::uint64_t old_left = left;
      left = right;
      right = old_left ^ (words[0] & mask);
    }
    x = left << half | right;
  } while (x >= static_cast<std::uint64_t>(n));
  return static_cast<Index>(x);
}

}  // namespace regard::inline v0::internal
