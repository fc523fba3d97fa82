// SPDX-License-Identifier: Apache-2.0
//
// Sorted tokens that share a beginning are contiguous: a node is such a range, and its children divide it.
// Read next: wordpiece.cpp, added_tokens.cpp.
#include "token_trie.h"

#include <algorithm>

namespace regard::inline v0 {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, Index>> tokens, const std::stop_token& stop) {
  const auto look = [&] { throw_if_stopped(stop, "Tokenizer::read"); };
  const auto is_less = [&](const auto& a, const auto& b) {
    look();
    return a < b;
  };
  if (!std::is_sorted(tokens.begin(), tokens.end(), is_less)) std::sort(tokens.begin(), tokens.end(), is_less);
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Range> level = {{0, tokens.size()}};
  bytes_.push_back(0);
  for (std::size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> next;
    for (auto [begin, end] : level) {
      look();
      // A token that ends here is the shortest of those with this prefix, so it comes first.
      const bool ends = begin < end && tokens[begin].first.size() == depth;
      tokens_.push_back(ends ? static_cast<std::int32_t>(tokens[begin].second) : -1);
      if (ends) ++begin;
      first_child_.push_back(static_cast<std::uint32_t>(bytes_.size()));
      while (begin < end) {
        const char byte = tokens[begin].first[depth];
        std::size_t same = begin;
        while (same < end && tokens[same].first[depth] == byte) ++same;
        bytes_.push_back(static_cast<unsigned char>(byte));
        next.push_back({begin, same});
        begin = same;
      }
    }
    level = std::move(next);
  }
  first_child_.push_back(static_cast<std::uint32_t>(bytes_.size()));
}

std::uint32_t TokenTrie::step(std::uint32_t node, char byte) const {
  const auto first = bytes_.begin() + first_child_[node];
  const auto last = bytes_.begin() + first_child_[node + 1];
  const auto found = std::lower_bound(first, last, static_cast<unsigned char>(byte));
  if (found == last || *found != static_cast<unsigned char>(byte)) return kNone;
  return static_cast<std::uint32_t>(found - bytes_.begin());
}

TokenTrie::Match TokenTrie::longest(std::string_view text, std::uint32_t node) const {
  Match match;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = step(node, text[i]);
    if (node == kNone) break;
    if (tokens_[node] >= 0) match = {tokens_[node], i + 1};
  }
  return match;
}

}  // namespace regard::inline v0
