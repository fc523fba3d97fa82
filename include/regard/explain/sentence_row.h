// SPDX-License-Identifier: Apache-2.0
/// @file
/// The attention of one word of a sentence in one head, expanded term by term, and a ranking of the heads by salience.
///
/// @verbatim
///     q·k, 32 products ── ÷ √32 ── e^ over Σ e^ ──▶ weight ── · v · W_output ──▶ contribution of each word
/// @endverbatim
///
/// Values are computed in double from the float values of the trace. A word with several pieces is treated as a whole:
/// - Its attention is the sum over the key's pieces and the mean over the query's pieces.
/// - Its vector is the mean of the pieces' vectors.
/// - q·k is defined for a pair of pieces and is not averaged: the softmax of a mean is not the mean of the softmaxes.
///
/// docs/guide/sentence.md lists the formulas. Extents: N layers, H heads, head size D, L tokens, W words.
///
/// Read next: sentence.h, sentence_report.h, src/explain/sentence/sentence_row.cpp,
/// src/explain/sentence/head_ranking.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"

namespace regard::inline v0 {

// ---- one row

/// One key word of a row.
struct RowKey {
  Index word = 0;        ///< Index into Sentence::words.
  bool special = false;  ///< Whether the word is a special token.
  bool hidden = false;   ///< Whether the word is hidden by SentenceOptions::hide: weight 0, contribution 0.
  bool later = false;    ///< Whether the word follows the query in a causal model: weight 0, contribution 0.
  double weight = 0.0;   ///< Weight of the word.
  /// Contribution of the word: `‖Σ over its pieces of weight · v · W_output(head)‖₂`.
  double contribution = 0.0;
};

/// The attention of one word in one head. Extents: Q pieces of the query word, L tokens, W words, head size D.
struct SentenceRow {
  Index layer = 0;                  ///< Layer index.
  Index head = 0;                   ///< Head index.
  Index word = 0;                   ///< Index of the query word.
  std::vector<Index> queries{};     ///< Token indices of the query word, (Q).
  std::vector<RowKey> keys{};       ///< Key words, (W), in text order; their weights sum to 1.
  Tensor<double, 2> dots{};         ///< The dot products q·k for each piece and token, (Q, L).
  Tensor<double, 2> scores{};       ///< The scores q·k / √D, −∞ at a key that is not visible, (Q, L).
  Tensor<double, 2> weights{};      ///< The softmax of each row of scores, (Q, L).
  std::vector<double> context{};    ///< Context of the head: Σ weight · v, mean over the pieces, (D).
  double head_contribution = 0.0;   ///< Contribution of the head: `‖context · W_output(head)‖₂`.
  double heads_contribution = 0.0;  ///< L2 norm of the combined output of all heads, including b_output.
  double input_norm = 0.0;          ///< L2 norm of the word's vector before this layer.
};

/// Computes the row of one word in one head.
///
/// @param model     The model.
/// @param sentence  Result of read_sentence() with that model.
/// @param layer     Zero-based layer index.
/// @param head      Zero-based head index.
/// @param word      Index of the query word.
/// @return The row.
/// @throws InvalidArgument  if the layer, head or word does not exist.
///
/// @par Example
/// @code{.cpp}
/// const SentenceRow row = sentence_row(model, sentence, 0, 4, word_index(sentence.words, "bank"));  // layer 0, head 4
/// const ExpandedDot dot = expand_dot(sentence, row, row.queries[0], 1);                             // with token 1
/// @endcode
REGARD_EXPORT SentenceRow sentence_row(const SentenceModel& model, const Sentence& sentence, Index layer, Index head,
                                       Index word);

/// One product of q·k.
struct DotTerm {
  Index dimension = 0;   ///< Zero-based index of the dimension within the head.
  double query = 0.0;    ///< Element of q.
  double key = 0.0;      ///< Element of k.
  double product = 0.0;  ///< Their product.
};
/// q·k of one piece and one token, product by product.
struct ExpandedDot {
  Index query = 0;             ///< Index of the query token.
  Index key = 0;               ///< Index of the key token.
  double dot = 0.0;            ///< Sum of the products.
  std::vector<DotTerm> terms;  ///< All D products, sorted by descending magnitude.
};
/// Expands one q·k of a row into its products.
///
/// @param sentence  The sentence.
/// @param row       A row of that sentence.
/// @param query     Token of the query, one of SentenceRow::queries.
/// @param key       Token of the key.
/// @return The products.
/// @throws InvalidArgument  if a token does not exist, or if the query does not belong to the row.
REGARD_EXPORT ExpandedDot expand_dot(const Sentence& sentence, const SentenceRow& row, Index query, Index key);

/// One weight as a quotient.
///
/// @code{.unparsed}
/// weight = exponential / sum,  exponential = e^(score − shift),  sum = Σ of the exponentials over all visible keys
/// @endcode
///
/// The shift is 0 if this keeps the exponentials easy to read (largest score from −3 to 9); otherwise, it is the
/// largest score.
struct SoftmaxTerm {
  double score = 0.0;        ///< Score of the key.
  double shift = 0.0;        ///< The value subtracted from every score.
  double exponential = 0.0;  ///< Exponential of the key: `e^(score − shift)`.
  double sum = 0.0;          ///< Sum of the exponentials; 0 if every key is hidden.
  double weight = 0.0;       ///< Weight of the key.
};
/// Expands one weight of a row.
///
/// @param row    The row.
/// @param query  Token of the query, one of SentenceRow::queries.
/// @param key    Token of the key.
/// @return The weight as a quotient.
/// @throws InvalidArgument  if a token does not exist, or if the query does not belong to the row.
REGARD_EXPORT SoftmaxTerm softmax_term(const SentenceRow& row, Index query, Index key);

// ---- the informative head

/// Distance in words at and above which all distances form one class, "16 or more".
inline constexpr Index kFarthest = 16;
/// The mean weight of each head at each signed distance, key − query in words, stored as sums and counts.
///
/// The mean is over all pairs of words; in a causal model, only over pairs whose key does not follow the query. Pairs
/// of a word with itself are included; [CLS] and [SEP] are excluded. Distances of kFarthest words or more form one
/// class.
struct DistanceSums {
  Index num_layers = 0;  ///< N, number of layers.
  Index num_heads = 0;   ///< H, number of heads per layer.
  /// Sums of weights, (N, H, 2 · kFarthest + 1), by ascending distance from −kFarthest.
  std::vector<double> sums{};
  std::vector<Index> pairs{};  ///< Number of pairs at each distance, (2 · kFarthest + 1).
  /// Returns the mean weight of a head at a distance.
  ///
  /// @param layer     Zero-based layer index.
  /// @param head      Zero-based head index.
  /// @param distance  Signed distance, key − query in words.
  /// @return The mean; 0 if there is no pair at that distance.
  double mean(Index layer, Index head, Index distance) const;
  /// Returns the baseline with which a weight at a distance is compared.
  ///
  /// This is the mean at that distance. From kFarthest onwards, where one mean covers distances with few pairs, it is
  /// the head's largest mean at any distance.
  ///
  /// @param layer     Zero-based layer index.
  /// @param head      Zero-based head index.
  /// @param distance  Signed distance, key − query in words.
  /// @return The baseline.
  double baseline(Index layer, Index head, Index distance) const;
};
/// Adds the word pairs of a sentence to the sums.
///
/// @param sentence  The sentence.
/// @param sums      The sums to which the pairs are added. Empty sums take their extents from the sentence.
/// @param runtime   Threads, scratch memory and cancellation.
/// @throws InvalidArgument  if the sums belong to a model with different extents.
REGARD_EXPORT void add_distances(const Sentence& sentence, DistanceSums& sums, const Runtime& runtime = {});

/// Returns DistanceSums::mean() for all-MiniLM-L6-v2 over the 30 sentences of tests/encoder/sentences.txt, to four
/// decimal places.
///
/// tests/model_distances_check.cpp computes and checks these values.
///
/// @param layer     Zero-based layer index.
/// @param head      Zero-based head index.
/// @param distance  Signed distance, key − query in words.
/// @return The mean.
/// @throws InvalidArgument  if the layer or head does not exist.
REGARD_EXPORT double minilm_mean_weight(Index layer, Index head, Index distance);
/// Returns DistanceSums::baseline() for the values of minilm_mean_weight().
///
/// @param layer     Zero-based layer index.
/// @param head      Zero-based head index.
/// @param distance  Signed distance, key − query in words.
/// @return The baseline.
/// @throws InvalidArgument  if the layer or head does not exist.
REGARD_EXPORT double minilm_baseline(Index layer, Index head, Index distance);
/// Returns the SHA-256 of the checkpoint from which the values of minilm_mean_weight() were computed.
REGARD_EXPORT std::string_view minilm_sha256();
/// Returns the SHA-256 of the same checkpoint, rounded (rounded_model()).
///
/// @param type  Type to which the matrices are rounded: `int8` or `float16`.
/// @return 64 hex digits.
/// @throws InvalidArgument  if `type` is neither of these.
REGARD_EXPORT std::string_view minilm_sha256(ElementType type);

/// The source of a head's baselines.
enum class Baseline {
  test_sentences,  ///< minilm_baseline(); used for all-MiniLM-L6-v2, rounded or not.
  this_sentence,   ///< The word pairs of this sentence; used for all other models.
};

/// One word attending to another in one head.
struct AttentionPair {
  Index layer = 0;        ///< Layer index.
  Index head = 0;         ///< Head index.
  Index word = 0;         ///< Index of the query word.
  Index target = 0;       ///< Index of the key word.
  double weight = 0.0;    ///< The weight.
  double baseline = 0.0;  ///< Baseline of this head at the distance target − word.
  /// Number of pairs of words over which the baseline is averaged; 0 with Baseline::test_sentences.
  Index pairs = 0;
  /// Returns the salience, weight − baseline.
  double salience() const { return weight - baseline; }
};
/// All heads, ranked by salience.
struct RankedHeads {
  Baseline baseline = Baseline::this_sentence;  ///< Source of the baselines.
  std::vector<AttentionPair> heads{};           ///< The most salient pair of each head, sorted by descending salience.
};

/// Returns whether a word is a content word.
///
/// A content word contains a letter, a digit or a pictorial symbol, and is not an English function word (the, of, it,
/// was …).
///
/// @param word  The word.
/// @return True for a content word.
REGARD_EXPORT bool is_content_word(std::string_view word);

/// Ranks the heads of a model by salience.
///
/// For each head, the pair with the highest salience is returned. Its target is a content word other than the query
/// word. If there is none, it is another word that is not special or, if there is no such word either, any key.
///
/// Hidden words are never targets, nor are words after the query in a causal model. All tokens of a causal model except
/// whitespace count as content words. If `word` is absent, the query word is chosen as well, again preferably among
/// content words.
///
/// @code{.unparsed}
/// salience = weight − baseline(layer, head, target − word)
/// @endcode
///
/// In a causal model, the baseline is at least the uniform weight, 1 / number of visible keys, because the first tokens
/// have few visible keys.
///
/// @param sentence           The sentence.
/// @param checkpoint_sha256  SHA-256 of the model's checkpoint, which selects the baseline.
/// @param word               Index of the query word; if absent, a word is chosen.
/// @param runtime            Threads, scratch memory and cancellation.
/// @return One pair for each head.
/// @throws InvalidArgument  if the word does not exist, or if the sentence has no visible word.
///
/// @par Example
/// @code{.cpp}
/// const RankedHeads ranked = ranked_heads(sentence, model.sha256(), word_index(sentence.words, "bank"));
/// @endcode
REGARD_EXPORT RankedHeads ranked_heads(const Sentence& sentence, std::string_view checkpoint_sha256,
                                       std::optional<Index> word, const Runtime& runtime = {});

}  // namespace regard::inline v0
