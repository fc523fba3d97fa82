// SPDX-License-Identifier: Apache-2.0
//
// Tokens such as [MASK] that are matched literally in the text, before it is split into words.
//
//     "a [MASK] b"  →  [0, 2) text · [2, 8) token 103 · [8, 10) text
//
// Read next: added_tokens.cpp, tokenizer.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "regard/runtime.h"
#include "token_trie.h"

namespace regard::inline v0 {

struct AddedToken {
  std::string content;
  Index token = 0;
  bool single_word = false;  // not next to a letter, digit or mark
  bool lstrip = false;       // also removes the spaces to its left
  bool rstrip = false;
  bool normalized = false;  // matched in the normalized text
};

class AddedTokens {
 public:
  struct Part {
    std::size_t begin;
    std::size_t end;
    Index token;  // −1 for text
  };

  AddedTokens() = default;
  // The contents must be distinct and not empty.
  explicit AddedTokens(std::vector<AddedToken> tokens, const std::stop_token& stop = {});

  bool empty() const { return tokens_.empty(); }
  // The parts of the text in order. Matches are leftmost, then longest; spaces that a token removes are omitted. An
  // occurrence that single_word forbids is text, and hides other occurrences that overlap it.
  std::vector<Part> split(std::string_view text, const std::stop_token& stop = {}) const;

 private:
  std::vector<AddedToken> tokens_;
  TokenTrie trie_;  // of indices in tokens_
  std::array<bool, 256> begins_{};
};

}  // namespace regard::inline v0
