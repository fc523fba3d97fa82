// SPDX-License-Identifier: Apache-2.0
//
// Pieces that begin a word and pieces that continue one share one trie: continuing pieces start at the node of the
// prefix. The cost of a word is at most its characters times its longest piece, for any text and vocabulary.
// Read next: tokenizer.cpp.
#include "wordpiece.h"

#include <algorithm>

namespace regard::inline v0 {

WordPiece::WordPiece(std::vector<std::pair<std::string_view, Index>> tokens, std::string_view continuing_prefix,
                     Index unknown, Index max_characters, const std::stop_token& stop)
    : trie_(std::move(tokens), stop),
      continuing_(TokenTrie::kRoot),
      unknown_(unknown),
      max_characters_(max_characters) {
  for (char byte : continuing_prefix)
    if (continuing_ != TokenTrie::kNone) continuing_ = trie_.step(continuing_, byte);
}

void WordPiece::split(std::string_view word, std::vector<Piece>& pieces) const {
  pieces.clear();
  const auto is_first_byte = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  bool is_known = std::count_if(word.begin(), word.end(), is_first_byte) <= max_characters_;
  for (std::size_t at = 0; is_known && at < word.size();) {
    const std::uint32_t start = at == 0 ? TokenTrie::kRoot : continuing_;
    const TokenTrie::Match match =
        start == TokenTrie::kNone ? TokenTrie::Match{} : trie_.longest(word.substr(at), start);
    at += match.num_bytes;
    is_known = match.token >= 0;
    pieces.push_back({match.token, at});
  }
  if (!is_known) pieces.assign(1, {unknown_, word.size()});
}

}  // namespace regard::inline v0
