// SPDX-License-Identifier: Apache-2.0
//
// Which head is most informative: the one whose weight on another content word most exceeds its mean weight on words
// at the same distance.
//
//     salience(l, h, word, target) = weight(l, h)[word, target] − baseline(l, h)[target − word]
//
// A head that always attends three words ahead says nothing about the third word ahead. From 16 words on, the baseline
// is the head's largest mean at any distance: a positional head is not more informative because it attends at a rare
// distance in a long text.
// Read next: include/regard/explain/sentence_row.h, minilm_distance_weights.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "minilm_distance_weights.h"
#include "regard/error.h"
#include "regard/explain/sentence_row.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

constexpr Index kDistances = 2 * kFarthest + 1;
static_assert(std::size(kMinilmDistanceWeights[0][0]) == kDistances);

std::size_t distance_index(Index distance) {
  return static_cast<std::size_t>(std::clamp(distance, -kFarthest, kFarthest) + kFarthest);
}

// Sorted. Includes the pieces of "didn't" and "we'll", whose apostrophe is a separate word.
constexpr std::array<std::string_view, 183> kFunctionWords = {
    "a",      "about",    "above",      "across",  "after",   "again",  "against", "ain",        "all",
    "along",  "also",     "although",   "am",      "among",   "an",     "and",     "another",    "any",
    "are",    "aren",     "around",     "as",      "at",      "be",     "because", "been",       "before",
    "being",  "below",    "beside",     "between", "both",    "but",    "by",      "can",        "cannot",
    "could",  "couldn",   "d",          "did",     "didn",    "do",     "does",    "doesn",      "doing",
    "don",    "done",     "down",       "during",  "each",    "either", "even",    "ever",       "every",
    "for",    "from",     "had",        "hadn",    "has",     "hasn",   "have",    "haven",      "having",
    "he",     "her",      "here",       "hers",    "herself", "him",    "himself", "his",        "how",
    "i",      "if",       "in",         "into",    "is",      "isn",    "it",      "its",        "itself",
    "just",   "like",     "ll",         "m",       "may",     "me",     "might",   "mine",       "must",
    "my",     "myself",   "n",          "near",    "neither", "never",  "no",      "nor",        "not",
    "now",    "of",       "off",        "on",      "one",     "only",   "onto",    "or",         "other",
    "our",    "ours",     "ourselves",  "out",     "over",    "per",    "re",      "s",          "same",
    "shall",  "she",      "should",     "shouldn", "since",   "so",     "some",    "still",      "such",
    "t",      "than",     "that",       "the",     "their",   "theirs", "them",    "themselves", "then",
    "there",  "these",    "they",       "this",    "those",   "though", "through", "to",         "too",
    "toward", "towards",  "under",      "unless",  "until",   "up",     "upon",    "us",         "ve",
    "very",   "via",      "was",        "wasn",    "we",      "were",   "weren",   "what",       "when",
    "where",  "whether",  "which",      "while",   "who",     "whom",   "whose",   "why",        "will",
    "with",   "within",   "without",    "won",     "would",   "wouldn", "yet",     "you",        "your",
    "yours",  "yourself", "yourselves",
};

bool is_hidden(const Sentence& sentence, Index word) {
  return std::find(sentence.hidden.begin(), sentence.hidden.end(), word) != sentence.hidden.end();
}

// Whether a token of a decoder is anything but whitespace.
bool is_content_token(std::string_view text) {
  for (const std::string_view space : {"␣", "⇥", "↵"}) {
    if (text.starts_with(space)) return false;
  }
  return true;
}

// Candidates in order of preference: content words, else words, else all.
struct Candidates {
  std::vector<Index> content, words, all;
};
Candidates candidates_of(const Sentence& sentence) {
  Candidates found;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    const Index word = static_cast<Index>(w);
    if (is_hidden(sentence, word)) continue;
    found.all.push_back(word);
    if (sentence.words[w].special) continue;
    found.words.push_back(word);
    const std::string& text = sentence.words[w].text;
    if (sentence.trace.causal ? is_content_token(text) : is_content_word(text)) found.content.push_back(word);
  }
  return found;
}

// The first word that a query cannot attend to: in a causal model, each word has one token.
Index end_of_visible(const Sentence& sentence, Index query) {
  return sentence.trace.causal ? query + 1 : static_cast<Index>(sentence.words.size());
}

// The words before `end` of a list.
std::span<const Index> before(const std::vector<Index>& list, Index end) {
  const auto last = std::lower_bound(list.begin(), list.end(), end);
  return {list.begin(), last};
}

// The visible words of the first list that has one other than the word itself; otherwise those of the last list, or the
// word itself.
std::span<const Index> targets_for(const Candidates& candidates, const Sentence& sentence, const Index& word) {
  const Index end = end_of_visible(sentence, word);
  for (const std::vector<Index>* list : {&candidates.content, &candidates.words}) {
    const std::span<const Index> targets = before(*list, end);
    if (std::any_of(targets.begin(), targets.end(), [word](Index w) { return w != word; })) return targets;
  }
  const std::span<const Index> all = before(candidates.all, end);
  return all.empty() ? std::span(&word, 1) : all;
}

}  // namespace

bool is_content_word(std::string_view word) {
  std::string lower(word);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return (has_letter_or_digit(word) || has_symbol(word)) &&
         !std::binary_search(kFunctionWords.begin(), kFunctionWords.end(), std::string_view(lower));
}

double DistanceSums::mean(Index layer, Index head, Index distance) const {
  const std::size_t column = distance_index(distance);
  if (pairs.empty() || pairs[column] == 0) return 0.0;
  const std::size_t row = static_cast<std::size_t>((layer * num_heads + head) * kDistances);
  return sums[row + column] / static_cast<double>(pairs[column]);
}

double DistanceSums::baseline(Index layer, Index head, Index distance) const {
  if (std::abs(distance) < kFarthest) return mean(layer, head, distance);
  double largest = 0;
  for (Index d = -kFarthest; d <= kFarthest; ++d) largest = std::max(largest, mean(layer, head, d));
  return largest;
}

void add_distances(const Sentence& sentence, DistanceSums& sums, const Runtime& runtime) {
  const std::vector<LayerTrace>& layers = sentence.trace.layers;
  const Index num_layers = static_cast<Index>(layers.size());
  const Index num_heads = layers.empty() ? 0 : layers.front().query.shape()[0];
  if (sums.pairs.empty()) {
    sums.num_layers = num_layers;
    sums.num_heads = num_heads;
    sums.sums.resize(static_cast<std::size_t>(num_layers * num_heads * kDistances));
    sums.pairs.resize(static_cast<std::size_t>(kDistances));
  }
  if (sums.num_layers != num_layers || sums.num_heads != num_heads) {
    throw InvalidArgument(
        fmt::format("add_distances: the sums have {} layers and {} heads, but the sentence has {} and {}",
                    sums.num_layers, sums.num_heads, num_layers, num_heads));
  }
  std::vector<Index> words;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    if (!sentence.words[w].special) words.push_back(static_cast<Index>(w));
  }
  const auto is_pair = [&](Index query, Index key) { return key < end_of_visible(sentence, query); };
  for (const Index query : words) {
    for (const Index key : words) {
      if (is_pair(query, key)) ++sums.pairs[distance_index(key - query)];
    }
  }
  for (Index layer = 0; layer < num_layers; ++layer) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, layer, WeightsKind::weights, runtime);
    for (Index head = 0; head < num_heads; ++head) {
      const Tensor<double, 2> by_word = word_weights(sentence, weights, head);
      double* row = sums.sums.data() + (layer * num_heads + head) * kDistances;
      for (const Index query : words) {
        for (const Index key : words) {
          if (is_pair(query, key)) row[distance_index(key - query)] += by_word(query, key);
        }
      }
    }
  }
}

double minilm_mean_weight(Index layer, Index head, Index distance) {
  if (layer < 0 || layer >= kMinilmLayers || head < 0 || head >= kMinilmHeads) {
    throw InvalidArgument(fmt::format("minilm_mean_weight: L{}H{} does not exist; there are {} layers of {} heads",
                                      layer, head, kMinilmLayers, kMinilmHeads));
  }
  return kMinilmDistanceWeights[layer][head][distance_index(distance)] / 10000.0;
}

double minilm_baseline(Index layer, Index head, Index distance) {
  if (std::abs(distance) < kFarthest) return minilm_mean_weight(layer, head, distance);
  double largest = 0;
  for (Index d = -kFarthest; d <= kFarthest; ++d) largest = std::max(largest, minilm_mean_weight(layer, head, d));
  return largest;
}

std::string_view minilm_sha256() { return kMinilmSha256; }
std::string_view minilm_sha256(ElementType type) {
  if (type == ElementType::int8) return kMinilmInt8Sha256;
  if (type == ElementType::float16) return kMinilmFloat16Sha256;
  throw InvalidArgument(fmt::format("minilm_sha256: type is {}; expected int8 or float16", type_name(type)));
}

RankedHeads ranked_heads(const Sentence& sentence, std::string_view checkpoint_sha256, std::optional<Index> word,
                         const Runtime& runtime) {
  const Index num_words = static_cast<Index>(sentence.words.size());
  if (word && (*word < 0 || *word >= num_words)) {
    throw InvalidArgument(fmt::format("word {} does not exist; there are {}, numbered from 0", *word, num_words));
  }
  const Candidates candidates = candidates_of(sentence);
  if (candidates.all.empty()) throw InvalidArgument("every token of the text is hidden; expected a visible word");
  std::vector<Index> queries{word.value_or(0)};
  if (!word) {
    queries = candidates.content.size() > 1 ? candidates.content
              : !candidates.words.empty()   ? candidates.words
                                            : candidates.all;
    // The first token of a causal model attends to itself in every head.
    if (sentence.trace.causal && queries.size() > 1 && before(candidates.all, queries.front()).empty())
      queries.erase(queries.begin());
  }

  RankedHeads ranked;
  DistanceSums own;
  constexpr std::array<std::string_view, 3> kMinilm{kMinilmSha256, kMinilmInt8Sha256, kMinilmFloat16Sha256};
  if (std::find(kMinilm.begin(), kMinilm.end(), checkpoint_sha256) != kMinilm.end()) {
    ranked.baseline = Baseline::test_sentences;
  } else {
    add_distances(sentence, own, runtime);
  }
  const Index num_layers = static_cast<Index>(sentence.trace.layers.size());
  for (Index layer = 0; layer < num_layers; ++layer) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, layer, WeightsKind::weights, runtime);
    for (Index head = 0; head < weights.shape()[0]; ++head) {
      const Tensor<double, 2> by_word = word_weights(sentence, weights, head);
      std::optional<AttentionPair> best;
      for (const Index query : queries) {
        const std::span<const Index> targets = targets_for(candidates, sentence, query);
        for (const Index target : targets) {
          if (target == query && targets.size() > 1) continue;
          const bool ships = ranked.baseline == Baseline::test_sentences;
          const Index distance = target - query;
          double baseline = ships ? minilm_baseline(layer, head, distance) : own.baseline(layer, head, distance);
          // A weight of one of few keys is large in any head.
          if (sentence.trace.causal)
            baseline = std::max(
                baseline, 1 / static_cast<double>(std::max<std::size_t>(before(candidates.all, query + 1).size(), 1)));
          const Index pairs = ships ? 0 : own.pairs[distance_index(distance)];
          const AttentionPair one{layer, head, query, target, by_word(query, target), baseline, pairs};
          if (!best || one.salience() > best->salience()) best = one;
        }
      }
      ranked.heads.push_back(*best);
    }
  }
  std::sort(ranked.heads.begin(), ranked.heads.end(), [](const AttentionPair& a, const AttentionPair& b) {
    if (a.salience() != b.salience()) return a.salience() > b.salience();
    return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
  });
  return ranked;
}

}  // namespace regard::inline v0
