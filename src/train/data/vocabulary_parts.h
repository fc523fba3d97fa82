// SPDX-License-Identifier: Apache-2.0
//
// The data of a vocabulary, shared by its copies.
//
//     tokens   by id                  sorted   ids in the order of the tokens' bytes: characters and words
//     merges   byte_pairs only        table    the merges, sorted by pair
//
// Read next: vocabulary.cpp, vocabulary_json.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "byte_pairs.h"
#include "regard/train/vocabulary.h"

namespace regard::inline v0 {

struct Vocabulary::Parts {
  VocabularyKind kind = VocabularyKind::characters;
  std::vector<std::string> tokens;
  std::vector<std::uint32_t> sorted;
  std::vector<internal::TokenPair> merges;
  internal::MergeTable table;
};

namespace internal {

inline constexpr std::uint32_t kMaxTokens = 1 << 24;  // the largest vocabulary of a decoder

// For an error message: the reason that a text cannot be a token of this kind, or "".
std::string_view unfit_token(VocabularyKind kind, std::string_view token);

// The tokens of byte pairs: the bytes, and what each merge joins.
std::vector<std::string> byte_pair_tokens(const std::vector<TokenPair>& merges);

// Ids in the order of the tokens' bytes; equal tokens in the order of their ids.
std::vector<std::uint32_t> sorted_ids(const std::vector<std::string>& tokens);

}  // namespace internal
}  // namespace regard::inline v0
