// SPDX-License-Identifier: Apache-2.0
//
// A set of tokens as a trie over bytes, for longest matches: one step per byte, independent of the number of tokens.
//
//     node     0 (root)   1 'a'   2 'b'   3 "ab" …    level by level, the children of a node adjacent,
//     children 1–2        3–3     …                   in the order of their bytes
//
// Read next: token_trie.cpp, wordpiece.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

class TokenTrie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  TokenTrie() : TokenTrie(std::vector<std::pair<std::string_view, Index>>{}) {}
  // Tokens with their ids: distinct, not empty, fewer than 2^32 bytes in total. Does not keep the views. Throws
  // Cancelled if a stop is requested.
  explicit TokenTrie(std::vector<std::pair<std::string_view, Index>> tokens, const std::stop_token& stop = {});

  // The child of `node` for `byte`, or kNone.
  std::uint32_t step(std::uint32_t node, char byte) const;
  // The id of the token that ends at `node`, or −1.
  Index token(std::uint32_t node) const { return tokens_[node]; }

  struct Match {
    Index token = -1;
    std::size_t num_bytes = 0;
  };
  // The longest token, of at least one byte, at the beginning of text, starting from `node`; token −1 if there is none.
  Match longest(std::string_view text, std::uint32_t node = kRoot) const;

 private:
  std::vector<std::uint32_t> first_child_;  // one entry more than there are nodes
  std::vector<unsigned char> bytes_;        // the byte that leads to each node
  std::vector<std::int32_t> tokens_;
};

}  // namespace regard::inline v0
