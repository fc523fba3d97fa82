// SPDX-License-Identifier: Apache-2.0
//
// A cache that is divided among ranks: which keys of each sequence a rank has, and the options of a decoding call as
// options for these keys.
//
//     sequence 0    rank 0: 1024 keys    rank 1: 2048 keys    rank 2: 77 keys     cut at multiples of 1024
//     sequence 1    rank 0: 1024 keys    rank 1: 5 keys       rank 2: none
//
// Read next: cache_shares.cpp, decode.cpp.
#pragma once

#include <vector>

#include "agreement.h"
#include "regard/kv_cache.h"

namespace regard::inline v0::internal {

// The keys of each sequence on each rank.
struct CacheShares {
  std::vector<std::vector<Index>> lengths;  // [rank][sequence]

  Index first_key(Index rank, Index sequence) const {
    Index sum = 0;
    for (Index r = 0; r < rank; ++r) sum += at(r, sequence);
    return sum;
  }
  Index at(Index rank, Index sequence) const {
    return lengths[static_cast<std::size_t>(rank)][static_cast<std::size_t>(sequence)];
  }
  Index total(Index sequence) const { return first_key(static_cast<Index>(lengths.size()), sequence); }
  Index num_chunks(Index rank) const {
    const std::vector<Index>& of = lengths[static_cast<std::size_t>(rank)];
    return of.empty() ? 0 : attention_num_chunks(*std::max_element(of.begin(), of.end()));
  }
};

// Adds the lengths of this rank; `get` reads those of all ranks after the exchange.
class SharedLengths {
 public:
  template <class K>
  SharedLengths(Agreement& agreement, const KvCache<K>& cache) {
    for (Index b = 0; b < cache.shape().num_sequences; ++b) places_.push_back(agreement.number(cache.length(b)));
  }
  CacheShares get(const Agreement& agreement, Index num_ranks) const {
    CacheShares shares;
    shares.lengths.resize(static_cast<std::size_t>(num_ranks));
    for (const std::size_t place : places_) {
      const std::vector<Index> of_sequence = agreement.numbers(place);
      for (std::size_t r = 0; r < of_sequence.size(); ++r) shares.lengths[r].push_back(of_sequence[r]);
    }
    return shares;
  }

 private:
  std::vector<std::size_t> places_;
};

// Throws, identically on all ranks, unless the keys of each rank end at a multiple of kAttentionChunkKeys if other keys
// follow.
void check_cuts(const char* function, const CacheShares& shares);

// The options of a call as options for the keys of one rank.
struct ShardOptions {
  AttentionOptions options;
  std::vector<Index> offsets, prefix;
  std::vector<std::uint8_t> mask, segments;
  std::vector<std::byte> bias;
};

ShardOptions shard_options(const AttentionOptions& options, const InputView<4>& query, const CacheShares& shares,
                           Index rank);

}  // namespace regard::inline v0::internal
