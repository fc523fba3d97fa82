// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair merges. Equal words are counted once and merged once; the counts of pairs are kept up to date, so that a
// merge costs time only in the words that contain it.
//
//     words with counts      t h e ×7     t h e n ×2          pairs    t h: 9   h e: 9   e n: 2
//     merge t h                 th e ×7      th e n ×2                 th e: 9  e n: 2
//
// A heap holds each pair with a count that it had at some point. Once a pair exists, its count can only fall, so the
// first entry whose count is still correct is the most frequent pair.
// Read next: vocabulary.cpp.
#include "byte_pairs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>

#include "regard/io/json.h"

namespace regard::inline v0::internal {
namespace {

constexpr std::uint32_t kNoToken = std::numeric_limits<std::uint32_t>::max();
constexpr std::string_view kLearning = "learning byte pairs";

enum class ByteClass { space, letter, digit, other };

ByteClass class_of(char character) {
  const auto byte = static_cast<unsigned char>(character);
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return ByteClass::space;
  if (byte >= '0' && byte <= '9') return ByteClass::digit;
  if (byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) return ByteClass::letter;
  return ByteClass::other;
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

class MergeLearner {
 public:
  MergeLearner(std::string_view text, const std::string& source, const std::stop_token& stop,
               std::optional<std::uint64_t> max_memory_bytes)
      : stop_(stop) {
    count_words(text, source, max_memory_bytes);
    for (std::uint32_t i = 0; i < words_.size(); ++i) {
      throw_if_stopped(stop_, kLearning);
      for (std::uint32_t j = 1; j < words_[i].length; ++j) add(pair_at(words_[i], j), i);
    }
    for (const auto& [pair, occurrences] : pairs_) offer(pair, occurrences.count);
  }

  std::vector<TokenPair> merges(std::size_t max_merges) {
    std::vector<TokenPair> merges;
    while (merges.size() < max_merges) {
      throw_if_stopped(stop_, kLearning);
      const std::optional<TokenPair> best = most_frequent();
      if (!best) break;
      merge(*best, kNumBytes + static_cast<std::uint32_t>(merges.size()));
      merges.push_back(*best);
    }
    return merges;
  }

 private:
  struct Word {
    std::size_t begin;  // in tokens_
    std::uint32_t length;
    std::uint64_t count;
  };
  struct Occurrences {
    std::uint64_t count = 0;
    std::vector<std::uint32_t> words;  // ascending; some no longer contain the pair
  };
  struct Candidate {
    std::uint64_t count;
    TokenPair pair;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.count != b.count ? a.count < b.count : a.pair > b.pair;
    }
  };

  void count_words(std::string_view text, const std::string& source, std::optional<std::uint64_t> max_memory_bytes) {
    std::size_t num_words = 0;
    for (std::size_t at = 0; at < text.size(); at += first_word_bytes(text.substr(at))) {
      throw_if_stopped(stop_, kLearning);
      ++num_words;
    }
    std::vector<std::string_view> all;
    check_json_memory(source, num_words * sizeof all[0], max_memory_bytes);
    all.reserve(num_words);
    for (std::size_t at = 0; at < text.size(); at += all.back().size())
      all.push_back(text.substr(at, first_word_bytes(text.substr(at))));
    std::sort(all.begin(), all.end(), [this](std::string_view a, std::string_view b) {
      throw_if_stopped(stop_, kLearning);
      return a < b;
    });

    std::size_t num_different = 0, num_tokens = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0 && all[i] == all[i - 1]) continue;
      ++num_different;
      num_tokens += all[i].size();
    }
    // A token, and at most one pair: its entry in the map, and its list, which grows by doubling.
    constexpr std::uint64_t kPerToken = 32;
    check_json_memory(source, num_words * sizeof all[0] + num_different * sizeof(Word) + num_tokens * kPerToken,
                      max_memory_bytes);
    words_.reserve(num_different);
    tokens_.reserve(num_tokens);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == 0 || all[i] != all[i - 1]) {
        words_.push_back({tokens_.size(), static_cast<std::uint32_t>(all[i].size()), 0});
        for (const char byte : all[i]) tokens_.push_back(static_cast<unsigned char>(byte));
      }
      ++words_.back().count;
    }
  }

  // The pair of tokens j − 1 and j of a word.
  TokenPair pair_at(const Word& word, std::uint32_t j) const {
    return {tokens_[word.begin + j - 1], tokens_[word.begin + j]};
  }

  void add(TokenPair pair, std::uint32_t word) {
    Occurrences& occurrences = pairs_[pair];
    occurrences.count += words_[word].count;
    if (occurrences.words.empty() || occurrences.words.back() != word) occurrences.words.push_back(word);
  }

  void offer(TokenPair pair, std::uint64_t count) {
    if (count >= 2) candidates_.push({count, pair});
  }

  std::optional<TokenPair> most_frequent() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count == best.count) return best.pair;
      offer(best.pair, found->second.count);
    }
    return std::nullopt;
  }

  void merge(TokenPair pair, std::uint32_t token) {
    const std::vector<std::uint32_t> containing = std::move(pairs_[pair].words);
    std::vector<TokenPair> created;
    for (const std::uint32_t i : containing) {
      Word& word = words_[i];
      std::array<std::uint32_t, kMaxWordBytes> old;
      const std::uint32_t old_length = word.length;
      std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(word.begin), old_length, old.begin());
      std::uint32_t length = 0;
      for (std::uint32_t j = 0; j < old_length; ++j) {
        const bool joined = j + 1 < old_length && TokenPair{old[j], old[j + 1]} == pair;
        tokens_[word.begin + length++] = joined ? token : old[j];
        if (joined) ++j;
      }
      if (length == old_length) continue;
      word.length = length;
      // New pairs are added before old ones are removed: a pair that stays keeps its list of words.
      for (std::uint32_t j = 1; j < length; ++j) {
        const TokenPair now = pair_at(word, j);
        if (now.left != token && now.right != token) {
          pairs_.find(now)->second.count += word.count;
        } else {
          add(now, i);
          created.push_back(now);
        }
      }
      for (std::uint32_t j = 1; j < old_length; ++j) {
        const auto found = pairs_.find({old[j - 1], old[j]});
        found->second.count -= word.count;
        if (found->second.count == 0) pairs_.erase(found);
      }
    }
    std::sort(created.begin(), created.end());
    created.erase(std::unique(created.begin(), created.end()), created.end());
    for (const TokenPair now : created) offer(now, pairs_.find(now)->second.count);
  }

  const std::stop_token& stop_;
  std::vector<Word> words_;
  std::vector<std::uint32_t> tokens_;
  std::map<TokenPair, Occurrences> pairs_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

std::size_t first_word_bytes(std::string_view text) {
  const bool after_space = text.size() > 1 && text[0] == ' ' && class_of(text[1]) != ByteClass::space;
  std::size_t end = after_space ? 1 : 0;
  const ByteClass kind = class_of(text[end]);
  while (end < text.size() && end <= kMaxWordBytes && class_of(text[end]) == kind) ++end;
  if (end > kMaxWordBytes) {
    // Characters are not split. Four consecutive continuation bytes are not valid UTF-8.
    end = kMaxWordBytes;
    while (end > kMaxWordBytes - 4 && continues_character(text[end])) --end;
    return continues_character(text[end]) ? kMaxWordBytes : end;
  }
  // The last of several spaces belongs to the word after it.
  if (kind == ByteClass::space && end > 1 && end < text.size() && text[end - 1] == ' ') --end;
  return end;
}

std::vector<TokenPair> learn_merges(std::string_view text, std::size_t max_merges, const std::string& source,
                                    const std::stop_token& stop, std::optional<std::uint64_t> max_memory_bytes) {
  return MergeLearner(text, source, stop, max_memory_bytes).merges(max_merges);
}

MergeTable::MergeTable(const std::vector<TokenPair>& merges) {
  entries_.reserve(merges.size());
  for (std::size_t m = 0; m < merges.size(); ++m)
    entries_.push_back({merges[m], kNumBytes + static_cast<std::uint32_t>(m)});
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.pair != b.pair ? a.pair < b.pair : a.token < b.token; });
}

std::optional<std::size_t> MergeTable::first_repeated() const {
  std::optional<std::size_t> first;
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const std::size_t m = entries_[i].token - kNumBytes;
    if (entries_[i].pair == entries_[i - 1].pair && (!first || m < *first)) first = m;
  }
  return first;
}

std::uint32_t MergeTable::find(TokenPair pair) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), pair,
                                   [](const Entry& entry, TokenPair wanted) { return entry.pair < wanted; });
  return at != entries_.end() && at->pair == pair ? at->token : kNoToken;
}

void MergeTable::append_tokens(std::string_view word, std::vector<std::uint32_t>& ids) const {
  std::array<std::uint32_t, kMaxWordBytes> tokens;
  std::size_t count = 0;
  for (const char byte : word) tokens[count++] = static_cast<unsigned char>(byte);
  while (count > 1) {
    // Joins the pair with the earliest merge, everywhere in the word: merges are applied in the order in which they
    // were learned.
    std::uint32_t first = kNoToken;
    TokenPair pair{};
    for (std::size_t i = 1; i < count; ++i) {
      const TokenPair here{tokens[i - 1], tokens[i]};
      const std::uint32_t token = find(here);
      if (token < first) first = token, pair = here;
    }
    if (first == kNoToken) break;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const bool joined = i + 1 < count && TokenPair{tokens[i], tokens[i + 1]} == pair;
      tokens[kept++] = joined ? first : tokens[i];
      if (joined) ++i;
    }
    count = kept;
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace regard::inline v0::internal
