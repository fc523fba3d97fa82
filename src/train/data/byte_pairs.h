// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair merges: learning them from a text, and applying them to a word.
//
//     text ── words ── 256 bytes ── the most frequent pair becomes a token, repeatedly ──▶ merges
//
// Read next: byte_pairs.cpp, vocabulary.cpp.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0::internal {

inline constexpr std::uint32_t kNumBytes = 256;
// Bounds the work per byte of text, which grows with the square of the length of a word, and the length of a token,
// which could otherwise double with each merge of an untrusted file.
inline constexpr std::size_t kMaxWordBytes = 64;

struct TokenPair {
  std::uint32_t left, right;
  friend auto operator<=>(const TokenPair&, const TokenPair&) = default;
};

// The length of the first word of a text that is not empty.
std::size_t first_word_bytes(std::string_view text);

// Merge m creates token 256 + m. At most `max_merges`; contract: Vocabulary::learn_byte_pairs().
std::vector<TokenPair> learn_merges(std::string_view text, std::size_t max_merges, const std::string& source,
                                    const std::stop_token& stop, std::optional<std::uint64_t> max_memory_bytes);

// Merges, sorted by their pair.
class MergeTable {
 public:
  MergeTable() = default;
  explicit MergeTable(const std::vector<TokenPair>& merges);
  // The first merge whose pair is also that of an earlier merge.
  std::optional<std::size_t> first_repeated() const;
  // Appends the tokens of a word of at most kMaxWordBytes.
  void append_tokens(std::string_view word, std::vector<std::uint32_t>& ids) const;

 private:
  struct Entry {
    TokenPair pair;
    std::uint32_t token;
  };
  std::uint32_t find(TokenPair pair) const;
  std::vector<Entry> entries_;
};

}  // namespace regard::inline v0::internal
