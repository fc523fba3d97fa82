// SPDX-License-Identifier: Apache-2.0
//
// Vocabularies: their tokens, and the conversion of text to ids and back.
//
//     characters, words     the text between two ends ── binary search ──▶ id
//     byte_pairs            a word ── merges, in the order in which they were learned ──▶ ids
//
// Read next: byte_pairs.cpp, vocabulary_json.cpp.
#include "regard/train/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "regard/error.h"
#include "regard/io/utf8.h"
#include "vocabulary_parts.h"

namespace regard::inline v0 {
namespace {

constexpr std::string_view kWordSpaces = " \t\n\v\f\r";

// A code point of valid UTF-8.
std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(character[i])}; };
  if (character.size() == 1) return byte(0);
  std::uint32_t code = byte(0) & (0x7fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

std::string utf8_of(std::uint32_t code) {
  std::string text;
  const auto append = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    append(code);
    return text;
  }
  const std::uint32_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  append((0xf00u >> size & 0xff) | code >> 6 * (size - 1));
  for (std::uint32_t i = size - 1; i-- > 0;) append(0x80 | (code >> 6 * i & 0x3f));
  return text;
}

}  // namespace

namespace internal {

std::string_view unfit_token(VocabularyKind kind, std::string_view token) {
  if (token.empty()) return "is empty";
  if (valid_utf8_bytes(token) != token.size()) return "is not valid UTF-8";
  if (kind == VocabularyKind::characters && character_bytes(token) != token.size()) return "is not one character";
  if (kind == VocabularyKind::words && token.find_first_of(kWordSpaces) != std::string_view::npos)
    return "contains whitespace";
  return "";
}

std::vector<std::string> byte_pair_tokens(const std::vector<TokenPair>& merges) {
  std::vector<std::string> tokens;
  tokens.reserve(kNumBytes + merges.size());
  for (std::uint32_t byte = 0; byte < kNumBytes; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const TokenPair pair : merges) tokens.push_back(tokens[pair.left] + tokens[pair.right]);
  return tokens;
}

std::vector<std::uint32_t> sorted_ids(const std::vector<std::string>& tokens) {
  std::vector<std::uint32_t> ids(tokens.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::sort(ids.begin(), ids.end(),
            [&](std::uint32_t a, std::uint32_t b) { return std::tie(tokens[a], a) < std::tie(tokens[b], b); });
  return ids;
}

}  // namespace internal

Vocabulary::Vocabulary(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Vocabulary Vocabulary::characters_of(std::string_view text, const std::string& source, const std::stop_token& stop) {
  if (text.empty()) throw DataError(escape_for_terminal(source) + ": is empty; expected a text");
  if (const std::size_t valid = valid_utf8_bytes(text, stop); valid != text.size())
    throw DataError(fmt::format("{}: byte {}: not valid UTF-8", escape_for_terminal(source), valid));
  std::vector<bool> occurs(0x110000);
  for (std::size_t at = 0, bytes; at < text.size(); at += bytes) {
    throw_if_stopped(stop, "collecting characters");
    bytes = character_bytes(text.substr(at));
    occurs[code_point(text.substr(at, bytes))] = true;
  }
  const auto parts = std::make_shared<Parts>();
  for (std::uint32_t code = 0; code < occurs.size(); ++code)
    if (occurs[code]) parts->tokens.push_back(utf8_of(code));
  parts->sorted = internal::sorted_ids(parts->tokens);
  return Vocabulary(parts);
}

Vocabulary Vocabulary::learn_byte_pairs(std::string_view text, Index size, const std::string& source,
                                        const std::stop_token& stop, std::optional<std::uint64_t> max_memory_bytes) {
  if (size < internal::kNumBytes || size > internal::kMaxTokens)
    throw InvalidArgument(fmt::format("learn_byte_pairs: size is {}; expected {} to {}", size, internal::kNumBytes,
                                      internal::kMaxTokens));
  const auto parts = std::make_shared<Parts>();
  parts->kind = VocabularyKind::byte_pairs;
  parts->merges = internal::learn_merges(text, static_cast<std::size_t>(size) - internal::kNumBytes, source, stop,
                                         max_memory_bytes);
  parts->tokens = internal::byte_pair_tokens(parts->merges);
  parts->table = internal::MergeTable(parts->merges);
  return Vocabulary(parts);
}

Vocabulary Vocabulary::of_words(std::vector<std::string> words) {
  if (words.empty() || words.size() > internal::kMaxTokens)
    throw InvalidArgument(
        fmt::format("of_words: there are {} words; expected 1 to {}", words.size(), internal::kMaxTokens));
  for (std::size_t i = 0; i < words.size(); ++i)
    if (const auto reason = internal::unfit_token(VocabularyKind::words, words[i]); !reason.empty())
      throw InvalidArgument(fmt::format("of_words: word {}, \"{}\", {}", i, text_in_message(words[i]), reason));
  const auto parts = std::make_shared<Parts>();
  parts->kind = VocabularyKind::words;
  parts->sorted = internal::sorted_ids(words);
  for (std::size_t i = 1; i < words.size(); ++i)
    if (const std::string& word = words[parts->sorted[i]]; word == words[parts->sorted[i - 1]])
      throw InvalidArgument(
          fmt::format("of_words: word {}, \"{}\", occurs twice", parts->sorted[i], text_in_message(word)));
  parts->tokens = std::move(words);
  return Vocabulary(parts);
}

VocabularyKind Vocabulary::kind() const { return parts_->kind; }

Index Vocabulary::size() const { return static_cast<Index>(parts_->tokens.size()); }

std::string_view Vocabulary::token(Index id) const {
  if (id < 0 || id >= size()) throw InvalidArgument(fmt::format("token: id is {}; expected 0 to {}", id, size() - 1));
  return parts_->tokens[static_cast<std::size_t>(id)];
}

void Vocabulary::append_ids(std::string_view text, std::vector<std::uint32_t>& ids, const std::stop_token& stop) const {
  const Parts& parts = *parts_;
  const auto append = [&](std::size_t at, std::string_view token, const char* advice) {
    const auto found = std::lower_bound(parts.sorted.begin(), parts.sorted.end(), token,
                                        [&](std::uint32_t id, std::string_view b) { return parts.tokens[id] < b; });
    if (found == parts.sorted.end() || parts.tokens[*found] != token)
      throw InvalidArgument(fmt::format("encode: byte {}: \"{}\" is not one of the {} tokens of the vocabulary{}", at,
                                        text_in_message(token), parts.tokens.size(), advice));
    ids.push_back(*found);
  };
  std::size_t at = 0;
  while (at < text.size()) {
    throw_if_stopped(stop, "encoding a text");
    const std::string_view rest = text.substr(at);
    std::size_t bytes = 0;
    switch (parts.kind) {
      case VocabularyKind::characters:
        bytes = character_bytes(rest);
        append(at, rest.substr(0, bytes), "");
        break;
      case VocabularyKind::byte_pairs:
        bytes = internal::first_word_bytes(rest);
        parts.table.append_tokens(rest.substr(0, bytes), ids);
        break;
      case VocabularyKind::words:
        bytes = std::min(rest.find_first_not_of(kWordSpaces), rest.size());
        if (bytes > 0) break;
        bytes = std::min(rest.find_first_of(kWordSpaces), rest.size());
        append(at, rest.substr(0, bytes), "; separate tokens with spaces");
        break;
    }
    at += bytes;
  }
}

std::vector<Index> Vocabulary::encode(std::string_view text, const std::stop_token& stop) const {
  std::vector<std::uint32_t> ids;
  append_ids(text, ids, stop);
  return {ids.begin(), ids.end()};
}

std::string Vocabulary::decode(std::span<const Index> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && kind() == VocabularyKind::words) text += ' ';
    text += token(ids[i]);
  }
  return text;
}

}  // namespace regard::inline v0
