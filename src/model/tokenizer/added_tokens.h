// SPDX-License-Identifier: Apache-2.0
//
// Tokens such as [MASK] that are taken out of the text as they stand, before it is cut into words.
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
  bool lstrip = false;       // takes the spaces on its left with it
  bool rstrip = false;
  bool normalized = false;  // is looked for in the normalised text
};

class AddedTokens {
 public:
  struct Part {
    std::size_t begin;
    std::size_t end;
    Index token;  // −1 for text
  };

  AddedTokens() = default;
  // No two contents are the same, none is empty.
  explicit AddedTokens(std::vector<AddedToken> tokens, const std::stop_token& stop = {});

  bool empty() const { return tokens_.empty(); }
  // The text in order: leftmost matches, the longest where several begin; spaces that a token takes with it are left
  // out. An occurrence that single_word forbids is text, and hides others that overlap it.
  std::vector<Part> split(std::string_view text, const std::stop_token& stop = {}) const;

 private:
  std::vector<AddedToken> tokens_;
  TokenTrie trie_;  // the tokens' places in tokens_
  std::array<bool, 256> begins_{};
};

}  // namespace regard::inline v0
