// SPDX-License-Identifier: Apache-2.0
//
// Dropout factors of the weights of one row and 64 keys: 0 or `factor`, from a counter-based generator.
//
//   word(b, h, i, j) = word j mod 4 of Philox4x32-10 of the counter (⌊j / 4⌋, i, h, b) under the key `seed`
//   to[j − first_key] = word < threshold ? 0 : factor
//
// Every word depends only on its own indices, so the order of calls and the number of threads do not matter. Salmon,
// Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
#include "kernels.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// Counters processed at a time: the rounds are plain loops over them, which compilers vectorize.
inline constexpr int kCounters = 16;

void philox(std::uint64_t seed, std::uint32_t (&words)[4][kCounters]) {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int n = 0; n < kCounters; ++n) {
      const std::uint64_t product0 = static_cast<std::uint64_t>(words[0][n]) * 0xD2511F53u;
      const std::uint64_t product1 = static_cast<std::uint64_t>(words[2][n]) * 0xCD9E8D57u;
      words[0][n] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][n] ^ key0;
      words[1][n] = static_cast<std::uint32_t>(product1);
      words[2][n] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][n] ^ key1;
      words[3][n] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

}  // namespace

template <class T>
void dropout_row(const DropoutRow<T>& row, T* to) {
  constexpr Index kStep = 4 * kCounters;
  for (Index first = row.first_key / 4 * 4; first < row.first_key + kBlockKeys; first += kStep) {
    std::uint32_t words[4][kCounters];
    for (int n = 0; n < kCounters; ++n) {
      words[0][n] = static_cast<std::uint32_t>(first / 4 + n);
      words[1][n] = row.query;
      words[2][n] = row.head;
      words[3][n] = row.batch;
    }
    philox(row.seed, words);
    for (Index n = 0; n < kStep; ++n) {
      const Index lane = first + n - row.first_key;
      if (lane >= 0 && lane < kBlockKeys) to[lane] = words[n % 4][n / 4] < row.threshold ? 0 : row.factor;
    }
  }
}

REGARD_INSTANTIATE_COMPUTE(dropout_row);

}  // namespace regard::kernels::REGARD_ISA
