// SPDX-License-Identifier: Apache-2.0
//
// Splits a text at added tokens, by looking up the token trie at every byte that begins a token.
// Read next: token_trie.h.
#include "added_tokens.h"

#include <algorithm>

#include "bert_characters.h"

namespace regard::inline v0 {
namespace {

std::size_t spaces_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    std::size_t previous = begin - 1;
    while (previous > 0 && begin - previous < 4 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80)
      --previous;
    const DecodedCharacter last = first_character(text.substr(previous, begin - previous));
    if (last.num_bytes != begin - previous || !is_space(last.code)) break;
    begin = previous;
  }
  return text.size() - begin;
}

std::size_t spaces_at_start(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size()) {
    const DecodedCharacter first = first_character(text.substr(count));
    if (!is_space(first.code)) break;
    count += first.num_bytes;
  }
  return count;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::stop_token& stop) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, Index>> contents;
  for (const AddedToken& token : tokens_) {
    contents.emplace_back(token.content, static_cast<Index>(contents.size()));
    begins_[static_cast<unsigned char>(token.content.front())] = true;
  }
  trie_ = TokenTrie(std::move(contents), stop);
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, const std::stop_token& stop) const {
  std::vector<Part> parts;
  std::size_t taken = 0;  // end of the text that has been split so far
  for (std::size_t at = 0; at < text.size() && !empty();) {
    throw_if_stopped(stop, "Tokenizer::encode");
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const TokenTrie::Match match = trie_.longest(text.substr(at));
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    const std::size_t begin = at;
    const std::size_t end = at + match.num_bytes;
    at = end;
    if (token.single_word && ((begin > 0 && is_word_character(last_character(text.substr(0, begin)))) ||
                              (end < text.size() && is_word_character(first_character(text.substr(end)).code))))
      continue;
    const std::size_t left = token.lstrip ? begin - spaces_at_end(text.substr(taken, begin - taken)) : begin;
    if (taken < left) parts.push_back({taken, left, -1});
    parts.push_back({begin, end, token.token});
    taken = token.rstrip ? end + spaces_at_start(text.substr(end)) : end;
    at = std::max(at, taken);
  }
  if (taken < text.size()) parts.push_back({taken, text.size(), -1});
  return parts;
}

}  // namespace regard::inline v0
