// SPDX-License-Identifier: Apache-2.0
//
// One head's attention from one word of a sentence, as sums that can be read; and which head is informative.
//
//     q·k, 32 products ── ÷ √32 ── e^ over Σ e^ ──▶ weight ── · v · W_output ──▶ contribution of each word
//
// Every figure is a sum in double over the trace's float numbers. A word of several pieces is named whole: its
// attention is the sum over the key's pieces and the mean over the query's, its vector the mean of its pieces'. q·k
// belongs to two pieces and has no such mean: the softmax of a mean of scores is not the mean of their softmaxes.
// docs/sentence.md has the formulas. Read next: sentence.h, sentence_report.h, src/explain/sentence/sentence_row.cpp,
// src/explain/sentence/head_ranking.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"

namespace regard::inline v0 {

// ---- one row

struct RowKey {
  Index word = 0;  // of Sentence::words
  bool special = false;
  bool hidden = false;  // by SentenceOptions::hide: weight 0, adds 0
  double weight = 0.0;
  double contribution = 0.0;  // ‖Σ over its pieces of weight · v · W_output(head)‖₂
};

// Q pieces of the query word, L tokens, W words, D = head_size.
struct SentenceRow {
  Index layer = 0;
  Index head = 0;
  Index word = 0;
  std::vector<Index> queries{};     // tokens of that word: (Q)
  std::vector<RowKey> keys{};       // (W), in the order of the text; their weights sum to 1
  Tensor<double, 2> dots{};         // q·k of piece and token: (Q, L)
  Tensor<double, 2> scores{};       // q·k / √D; −∞ at a hidden key: (Q, L)
  Tensor<double, 2> weights{};      // softmax of each row of scores: (Q, L)
  std::vector<double> context{};    // Σ weight · v, mean over the pieces: (D)
  double head_contribution = 0.0;   // ‖context · W_output(head)‖₂
  double heads_contribution = 0.0;  // of all heads together, with b_output
  double input_norm = 0.0;          // ‖the word's vector before this layer‖₂
};

// Throws std::invalid_argument for a layer, head or word that does not exist.
REGARD_EXPORT SentenceRow sentence_row(const SentenceModel& model, const Sentence& sentence, Index layer, Index head,
                                       Index word);

// q·k of one piece and one token, product by product.
struct DotTerm {
  Index dimension = 0;
  double query = 0.0;
  double key = 0.0;
  double product = 0.0;
};
struct ExpandedDot {
  Index query = 0;  // tokens
  Index key = 0;
  double dot = 0.0;
  std::vector<DotTerm> terms;  // all D, largest |product| first
};
// Throws std::invalid_argument for a token that does not exist, or a query that is none of the row's.
REGARD_EXPORT ExpandedDot expand_dot(const Sentence& sentence, const SentenceRow& row, Index query, Index key);

// weight = exponential / sum with exponential = e^(score − shift), sum over all keys seen. The shift is 0 where the
// exponentials are of a size to read (largest score from −3 to 9), else the largest score.
struct SoftmaxTerm {
  double score = 0.0;
  double shift = 0.0;
  double exponential = 0.0;
  double sum = 0.0;
  double weight = 0.0;
};
REGARD_EXPORT SoftmaxTerm softmax_term(const SentenceRow& row, Index query, Index key);

// ---- the informative head

// Mean weight of each head by signed distance, key − query in words: over all pairs of words, a word with itself
// included, [CLS] and [SEP] excluded. Distances of kFarthest words and more are one class, "16 or more".
inline constexpr Index kFarthest = 16;
struct DistanceSums {
  Index num_layers = 0;
  Index num_heads = 0;
  std::vector<double> sums{};  // of weights: (N, H, 2 · kFarthest + 1), distance −kFarthest first
  std::vector<Index> pairs{};  // (2 · kFarthest + 1)
  double mean(Index layer, Index head, Index distance) const;  // 0 where there is no pair
  // What a weight at this distance is compared with: the mean, and from kFarthest on, where one mean stands for
  // distances that were hardly measured, the head's largest mean at any distance.
  double baseline(Index layer, Index head, Index distance) const;
};
// Adds a sentence's pairs; sums of no extents take them from it.
// Throws std::invalid_argument for sums of a model with other extents.
REGARD_EXPORT void add_distances(const Sentence& sentence, DistanceSums& sums, const Runtime& runtime = {});

// These means for all-MiniLM-L6-v2 over the 30 sentences of tests/encoder/sentences.txt, to four decimals; made and
// checked by tests/model_distances_check.cpp. Throws std::invalid_argument for a layer or head that it lacks.
REGARD_EXPORT double minilm_mean_weight(Index layer, Index head, Index distance);
// As DistanceSums::baseline.
REGARD_EXPORT double minilm_baseline(Index layer, Index head, Index distance);
// Of the checkpoint that they were made from.
REGARD_EXPORT std::string_view minilm_sha256();

// What a head's weight at a distance is compared with.
enum class Baseline {
  test_sentences,  // minilm_mean_weight, for that checkpoint alone
  this_sentence,   // the mean over this sentence's own pairs: for every other model
};

// One word attending to another in one head.
struct AttentionPair {
  Index layer = 0;
  Index head = 0;
  Index word = 0;
  Index target = 0;
  double weight = 0.0;
  double baseline = 0.0;  // baseline of this head at the distance target − word
  Index pairs = 0;        // of words that it is a mean over; 0 where it is Baseline::test_sentences
  double salience() const { return weight - baseline; }
};
struct RankedHeads {
  Baseline baseline = Baseline::this_sentence;
  std::vector<AttentionPair> heads{};  // one for each head: its most informative pair; most informative first
};

// Whether a word means something by itself: has a letter or a digit, and is no function word of English (the, of, it,
// was …).
REGARD_EXPORT bool is_content_word(std::string_view word);

// The target is another content word that is not hidden; where there is none, another word that is not special; where
// there is none, any key. Without a word the query word is chosen too, likewise among content words.
// Throws std::invalid_argument for a word that does not exist, and for a sentence without words.
REGARD_EXPORT RankedHeads ranked_heads(const Sentence& sentence, std::string_view checkpoint_sha256,
                                       std::optional<Index> word, const Runtime& runtime = {});

}  // namespace regard::inline v0
