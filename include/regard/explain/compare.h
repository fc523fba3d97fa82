// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares one word in several sentences: the differences between its vectors at each layer, the differences between
/// the vectors of other words for reference, and the share of each head in the difference.
///
/// @verbatim
///     A  he sat on the [bank] …  ─┐  a vector at every stage        cosine of each pair, with floor and controls
///     B  she put … in the [bank] ─┘  word · +position · L0 · L1 …   and, layer by layer, the share of every head
/// @endverbatim
///
/// Extents: N layers, H heads, W words. A word has a vector at each of N + 2 stages: its token embedding; the
/// layer-normalized sum of the embeddings of token, position and token type; and the output of each layer. If a word
/// has several pieces, each of its vectors is the mean over the pieces, and so is each output of a head.
/// docs/reference/notation.md, "Comparing a word's vectors", lists the formulas.
///
/// Read next: sentence.h, src/explain/sentence/compare.cpp, src/explain/sentence/compare_text.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/export.h"

namespace regard::inline v0 {

/// Maximum number of sentences, which are named A to Z.
inline constexpr Index kMaxCompared = 26;

/// Options for compare_word().
struct CompareOptions {
  /// Words to hide in every sentence in which they occur, specified as for word_index(). Each must occur in at least
  /// one sentence.
  std::vector<std::string> hide;
  /// The control: a word that occurs in at least two of the sentences. If empty, every such word is a control.
  std::string control;
  bool truncate = false;  ///< Whether to truncate texts that are too long, as in SentenceOptions.
  /// If there are words to hide, the maximum number of other words that are also hidden, one at a time, to show the
  /// effect of hiding an arbitrary word.
  Index most_others = 32;
};

/// One of the sentences.
struct ComparedSentence {
  std::string name;                 ///< Name of the sentence: "A", "B", …
  std::string text;                 ///< The whole text, as given.
  TokenizedText tokens;             ///< The tokens, after truncation.
  std::vector<SentenceWord> words;  ///< The words of these tokens.
  Index word = 0;                   ///< Index of the compared word.
  std::vector<Index> hidden;        ///< Indices of the words hidden by CompareOptions::hide, in ascending order.
  Index num_truncated_tokens = 0;   ///< Number of tokens that truncation removed.
};

/// A control: another word that both sentences of a pair contain.
struct ControlWord {
  std::string text;  ///< The word, as spelled in the first sentence.
  /// Mean cosine similarity at each stage, (N + 2), over all pairs of an occurrence in the first sentence and an
  /// occurrence in the second.
  std::vector<double> cosine;
};

/// The word in two of the sentences.
struct ComparedPair {
  Index first = 0;                    ///< Index of one sentence.
  Index second = 0;                   ///< Index of the other sentence, greater than first.
  std::vector<double> cosine;         ///< Cosine similarity at each stage, (N + 2).
  std::vector<double> above_floor;    ///< (cosine − floor) / (1 − floor) at each stage, (N + 2).
  std::vector<ControlWord> controls;  ///< Controls that occur in both sentences, in the order of sentence `first`.
  /// `‖δ‖₂` in each layer, (N), where δ is the attention output for the word in `first` minus that in `second`.
  ///
  /// δ is the sum over all heads h of δ_h, the difference between the outputs of head h.
  std::vector<double> difference;
  /// The share of each head, δ_h · δ / `‖δ‖²`, (N, H). The shares in a layer sum to 1; they are NaN if δ is 0.
  Tensor<double, 2> share;
};

/// All values that change when words are hidden.
struct CompareNumbers {
  /// Floor at each stage, (N + 2): the mean cosine similarity over all pairs of different words; NaN if there are none.
  std::vector<double> floor;
  Index floor_pairs = 0;            ///< Number of these pairs.
  std::vector<ComparedPair> pairs;  ///< The pairs (A, B), (A, C), …, (B, C), …
  /// For each sentence, the attention of the compared word to the words of the sentence, (N, H, W).
  std::vector<Tensor<double, 3>> attention;
};

/// The effect of hiding one word that CompareOptions::hide does not contain. It is hidden in every sentence in which it
/// occurs, and no other word is hidden.
struct OtherHidden {
  std::string text;            ///< The hidden word.
  std::vector<double> cosine;  ///< Cosine similarity of the compared word for each pair, after the last layer.
};

/// The result of a comparison.
struct Comparison {
  std::string word;                         ///< The word, as spelled in sentence A.
  std::vector<ComparedSentence> sentences;  ///< The sentences.
  std::vector<std::string> stages;          ///< Names of the stages: "word", "+position", "L0", …
  CompareNumbers plain;                     ///< The values with nothing hidden.
  std::vector<std::string> hide;            ///< CompareOptions::hide, as given.
  std::optional<CompareNumbers> hidden;     ///< The values with these words hidden.
  std::vector<OtherHidden> others;          ///< Effects of hiding other words, one at a time; empty if `hide` is empty.
  Index others_left_out = 0;                ///< Number of other words beyond CompareOptions::most_others.
  std::string model_folder;                 ///< The folder of the model.
  std::string model_sha256;                 ///< SHA-256 of its checkpoint.
  Index num_heads = 0;                      ///< H, number of heads per layer.
  Index head_size = 0;                      ///< D, size of a head.
};

/// Compares one word in several sentences.
///
/// @param model      The model.
/// @param word       One name for all sentences, as accepted by word_index(), or one name for each sentence, separated
///                   by commas: `bank`, `bank#1`, `bank,bank#1,@4`. All names must refer to the same word, that is, to
///                   words with the same pieces.
/// @param sentences  2 to kMaxCompared sentences.
/// @param options    The control, truncation, and the words to hide.
/// @param runtime    Threads, scratch memory and cancellation.
/// @return The comparison.
/// @throws InvalidArgument  in any of the following cases:
///                          - there are fewer than 2 or more than kMaxCompared sentences
///                          - a word does not occur, or occurs several times and is named without `#`
///                          - the names refer to different words
///                          - a word to hide occurs in no sentence
///                          - the control does not occur in two sentences, or is the word itself
///                          - a text has no words, or read_sentence() rejects it
/// @throws DataError        as read_sentence() does.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Comparison comparison = compare_word(
///     model, "bank", {"he sat on the bank of the river", "she put her money in the bank"}, {.hide = {"river"}});
/// std::fputs(render_compare_text(comparison).c_str(), stdout);
/// @endcode
REGARD_EXPORT Comparison compare_word(const SentenceModel& model, std::string_view word,
                                      const std::vector<std::string>& sentences, const CompareOptions& options = {},
                                      const Runtime& runtime = {});

/// Options for render_compare_text().
struct CompareTextOptions {
  int width = 80;       ///< Width of the terminal in columns; values below 40 are treated as 40.
  bool color = false;   ///< Whether to use colors.
  bool unicode = true;  ///< Whether to use non-ASCII characters.
  bool full = false;    ///< Whether to print all pairs, controls and heads.
  /// Whether to print a short form for the end of a longer report: the verdict on the control, the table of the pairs
  /// with A, and the effect of hiding the words.
  bool brief = false;
};
/// Renders a comparison as text.
///
/// @param comparison  The comparison.
/// @param options     Formatting and content options.
/// @param stop        Stop token.
/// @return The text.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::string render_compare_text(const Comparison& comparison, const CompareTextOptions& options = {},
                                              const std::stop_token& stop = {});

/// States the findings of a comparison, starting with the verdict.
///
/// The findings claim only what is supported by the floor, by the controls and, if words are hidden, by the effects of
/// hiding other words. Untrusted text is escaped for a terminal.
///
/// @param comparison  The comparison.
/// @return The findings, in sentences.
REGARD_EXPORT std::vector<std::string> compare_findings(const Comparison& comparison);

/// Renders a comparison as JSON, with `"schema": "regard/1"`; docs/guide/compare.md lists the fields.
///
/// @param comparison  The comparison.
/// @param command     The command line as typed.
/// @param stop        Stop token.
/// @return The JSON text.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::string render_compare_json(const Comparison& comparison, std::string_view command,
                                              const std::stop_token& stop = {});

}  // namespace regard::inline v0
