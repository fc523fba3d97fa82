// SPDX-License-Identifier: Apache-2.0
//
// WordPiece: splits a word into the longest piece of the vocabulary that begins it, then the longest that continues it,
// and so on. A word that cannot be split completely, or that is too long, is unknown as a whole.
//
//     "embeddings" → "em" "##bed" "##ding" "##s"       "##": the prefix of pieces that continue a word
//
// Source: Schuster and Nakajima, Japanese and Korean Voice Search, 2012; the matching as in Devlin et al., BERT, 2018.
// Read next: wordpiece.cpp, tokenizer.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "token_trie.h"

namespace regard::inline v0 {

class WordPiece {
 public:
  struct Piece {
    Index token;
    std::size_t end;  // of the piece, as an offset in the word
  };

  // Tokens with their ids, as for TokenTrie, which throws for invalid ones; `unknown` is one of the ids.
  WordPiece(std::vector<std::pair<std::string_view, Index>> tokens, std::string_view continuing_prefix, Index unknown,
            Index max_characters, const std::stop_token& stop = {});

  // Replaces `pieces` by those of a word, which is UTF-8 and not empty. Every piece ends at a character boundary.
  void split(std::string_view word, std::vector<Piece>& pieces) const;

 private:
  TokenTrie trie_;
  std::uint32_t continuing_;  // the node of the prefix
  Index unknown_;
  Index max_characters_;
};

}  // namespace regard::inline v0
