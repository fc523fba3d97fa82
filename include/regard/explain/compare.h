// SPDX-License-Identifier: Apache-2.0
//
// One word in several sentences: how far its vectors differ from layer to layer, what any other word does there, and
// which heads make them differ.
//
//     A  he sat on the [bank] …  ─┐  a vector at every stage     cosine of each pair    beside it: floor, controls
//     B  she put … in the [bank] ─┘  word · +position · L0 · L1 …   and, layer by layer, the share of every head
//
// The formulas: docs/notation.md, "Comparing a word's vectors".
// Read next: sentence.h, src/explain/sentence/compare.cpp, src/explain/sentence/compare_text.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/export.h"

namespace regard::inline v0 {

inline constexpr Index kMaxCompared = 26;  // sentences: they are called A to Z

struct CompareOptions {
  std::vector<std::string> hide;  // words, hidden in every sentence where they stand; each stands in one at least
  std::string control;            // a word that stands in two of the sentences at least; empty: every such word
  bool truncate = false;          // as in SentenceOptions
  // With words to hide: how many of the other words are hidden too, each by itself, to see what hiding any word does.
  Index most_others = 32;
};

struct ComparedSentence {
  std::string name;  // "A", "B", …
  std::string text;
  TokenizedText tokens;
  std::vector<SentenceWord> words;
  Index word = 0;             // the one compared
  std::vector<Index> hidden;  // words hidden by CompareOptions::hide
  Index num_truncated_tokens = 0;
};

// Stages: the row of the embedding table, +position (with position and type, normalised), then each layer's output: N
// + 2. A word of several pieces is the mean of its pieces, at every stage and in every head.
struct ControlWord {
  std::string text;
  std::vector<double> cosine;  // by stage: mean over the occurrences in one sentence × those in the other
};

struct ComparedPair {
  Index first = 0, second = 0;        // sentences, first < second
  std::vector<double> cosine;         // by stage
  std::vector<double> above_floor;    // by stage: (cosine − floor) / (1 − floor)
  std::vector<ControlWord> controls;  // in the order in which they stand in `first`
  // What attention adds to the word in `first` less what it adds in `second`: δ = Σ over heads of δ_h; its norm
  // ‖δ‖₂ by layer, and of each head (N, H) the share δ_h · δ / ‖δ‖²: they sum to 1 in a layer. NaN where δ is 0.
  std::vector<double> difference;
  Tensor<double, 2> share;
};

// Everything that hiding a word changes.
struct CompareNumbers {
  std::vector<double> floor;  // by stage: mean cosine over all pairs of different words; NaN without any
  Index floor_pairs = 0;
  std::vector<ComparedPair> pairs;           // (A, B), (A, C), …, (B, C), …
  std::vector<Tensor<double, 3>> attention;  // by sentence: (N, H, W), the word's attention to the sentence's words
};

// One other word hidden, by itself.
struct OtherHidden {
  std::string text;
  std::vector<double> cosine;  // by pair, after the last layer
};

struct Comparison {
  std::string word;
  std::vector<ComparedSentence> sentences;
  std::vector<std::string> stages;  // "word", "+position", "L0", …
  CompareNumbers plain;
  std::vector<std::string> hide;  // as asked for
  std::optional<CompareNumbers> hidden;
  std::vector<OtherHidden> others;
  Index others_left_out = 0;  // other words beyond CompareOptions::most_others
  std::string model_folder;
  std::string model_sha256;
  Index num_heads = 0;
  Index head_size = 0;
};

// word: one name for all sentences, as word_index takes it, or as many as there are sentences, with commas between:
// "bank", "bank#1", "bank,bank#1,@4". All must be the same word: the same pieces.
// Throws std::invalid_argument for fewer than 2 or more than kMaxCompared sentences, a word that is not there or
// stands several times unnamed, a word to hide that stands in no sentence, a control that stands in no two sentences or
// is the word itself; and as read_sentence does.
REGARD_EXPORT Comparison compare_word(const SentenceModel& model, std::string_view word,
                                      const std::vector<std::string>& sentences, const CompareOptions& options = {},
                                      const Runtime& runtime = {});

// brief: the table of the pairs with A and the line of the test alone, as the last part of a longer screen.
struct CompareText {
  int width = 80;
  bool color = false;
  bool unicode = true;
  bool full = false;  // all pairs, controls and heads
  bool brief = false;
};
// Throws Cancelled where a stop is requested; so does the JSON below.
REGARD_EXPORT std::string render_compare_text(const Comparison& comparison, const CompareText& options = {},
                                              const std::stop_token& stop = {});

// What the numbers say, in sentences, first the verdict; no more than floor, controls and, with words to hide, the
// other words allow. Text from outside is escaped for a terminal.
REGARD_EXPORT std::vector<std::string> compare_findings(const Comparison& comparison);

// "schema": "regard/1"; docs/compare.md lists the fields. command is what the user typed.
REGARD_EXPORT std::string render_compare_json(const Comparison& comparison, std::string_view command,
                                              const std::stop_token& stop = {});

}  // namespace regard::inline v0
