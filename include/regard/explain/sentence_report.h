// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text"` as data and as text: which word, which head, how much, from which sum, and where it goes.
//
//     text ── analyze_sentence() ──▶ SentenceAnalysis ── render_sentence_text(), render_sentence_json()
//
// Renderers only print: every figure stands in the analysis. docs/sentence.md says what each column means.
// Read next: sentence_row.h, src/explain/sentence/sentence_report.cpp, src/explain/sentence/sentence_text.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence_row.h"

namespace regard::inline v0 {

// ---- everything behind one weight: --full

// value = Σ over x · parameter + bias: the three largest products, the rest in one sum.
struct ProjectedNumber {
  std::vector<DotTerm> largest{};  // dimension, query: x, key: the parameter, product
  double others = 0.0;
  double bias = 0.0;
  double value = 0.0;
};
// norm(x) = (x − mean) / deviation · gain + bias, with deviation = √(variance + ε).
struct NormDetails {
  double mean = 0.0;
  double deviation = 0.0;
};
// One of the F numbers inside the feed-forward: after = gelu(before), adds = ‖after · its row of W_down‖₂.
struct FeedForwardUnit {
  Index unit = 0;
  double before = 0.0;
  double after = 0.0;
  double contribution = 0.0;
};
// Vectors of E numbers unless said otherwise. From the trace: float; computed here: double.
struct SentenceDetails {
  Index query = 0;  // tokens: one piece of the query word, one of the key word
  Index key = 0;
  std::vector<float> word{}, position{}, type{}, embedded{};  // of the query
  NormDetails embedding_norm{};
  std::vector<ProjectedNumber> query_numbers{}, key_numbers{}, value_numbers{};  // (D): q of query, k and v of key
  std::vector<double> context{};                                                 // (D): Σ weight · v
  std::vector<double> head_share{};                                              // context · W_output(head)
  std::vector<double> other_heads{};                                             // the same, of all others together
  std::vector<float> b_output{};
  std::vector<float> input{}, attention_output{}, attention_normed{}, feed_forward{}, output{};
  NormDetails attention_norm{}, output_norm{};
  std::vector<FeedForwardUnit> units{};  // (F), largest adds first
};
REGARD_EXPORT SentenceDetails sentence_details(const SentenceModel& model, const Sentence& sentence,
                                               const SentenceRow& row, Index query, Index key);

// ---- the whole, and its renderers

struct SentenceAnalysisOptions {
  std::string query{};           // WORD, WORD#1 or @INDEX; empty: the most informative
  std::optional<Index> layer{};  // both or neither
  std::optional<Index> head{};
  std::vector<std::string> hide{};
  bool truncate = false;
  bool full = false;  // with SentenceDetails
};

// How far hiding one other word, by itself and in every layer, moves the word's vector.
struct HiddenAlone {
  Index word = 0;
  double cosine = 0.0;  // after the last layer, with the vector where nothing is hidden
};
inline constexpr Index kMaxHiddenAlone = 12;  // of more words, those with the largest weights

// What the chosen weight is in all heads of the model: how much of it is due to the choice of the head.
struct PairInHeads {
  double mean = 0.0;     // of the weight from the word to the target, over all heads
  double special = 0.0;  // of the weight from the word to all special tokens together, over all heads
  double uniform = 0.0;  // of the target, if all tokens were attended to alike
};

struct SentenceAnalysis {
  std::string model;  // "all-MiniLM-L6-v2", else the folder's name
  EncoderConfig config;
  std::string sha256;
  Sentence sentence;         // with the words hidden, if any
  RankedHeads ranked_heads;  // of the sentence with nothing hidden
  AttentionPair chosen;
  bool head_named = false;
  bool word_named = false;
  SentenceRow row;
  std::optional<SentenceRow> before;  // the same row with nothing hidden
  std::vector<double> kept;     // with hidden words: cosine of the word's vector with the one before, after each layer
  Tensor<double, 3> attention;  // (N, H, W): the word's attention in every head, nothing hidden
  std::vector<HiddenAlone> alone;  // other words of the text, lowest cosine first
  Index not_hidden_alone = 0;      // other words beyond kMaxHiddenAlone
  Index attended = 0;  // the word that is expanded: the target, or, if that is hidden, the one with the largest weight
  ExpandedDot dot;
  SoftmaxTerm term;
  std::optional<SentenceDetails> details;
};

// One pass of the encoder for each word of SentenceAnalysis::alone, several at once; Runtime::progress is called after
// each with how many are done. Throws std::invalid_argument as read_sentence, check_has_words, word_index and
// sentence_row do, and for a layer without a head.
REGARD_EXPORT SentenceAnalysis analyze_sentence(const SentenceModel& model, std::string_view text,
                                                const SentenceAnalysisOptions& options = {},
                                                const Runtime& runtime = {});

REGARD_EXPORT PairInHeads pair_in_heads(const SentenceAnalysis& analysis);

// What the numbers say, in sentences: the finding; how its head was chosen and what all heads do; what hiding each word
// changes; what a weight does not show; and, where it applies, vocabulary_warning. Text from outside is escaped for a
// terminal. Screen, page and JSON have the same.
struct SentenceFindings {
  std::string finding{};
  std::string selection{};
  std::string evidence{};
  std::string association{};
  std::string warning{};
};
REGARD_EXPORT SentenceFindings sentence_findings(const SentenceAnalysis& analysis);

enum class RowOrder { text, weight, contribution };

struct SentenceTextOptions {
  int width = 80;
  bool color = false;
  bool unicode = true;
  bool all_heads = false;
  bool no_special = false;
  RowOrder order = RowOrder::text;
  std::optional<Index> top{};   // rows of the table; absent: all of up to 14, else the 12 of largest weight
  std::optional<int> digits{};  // decimals; absent: 2
  std::string label{};          // set before the sentence, as compare names its sentences: "A"
};
// Ends with a newline. Prints SentenceDetails where the analysis has it. Throws Cancelled where a stop is
// requested.
REGARD_EXPORT std::string render_sentence_text(const SentenceAnalysis& analysis, const SentenceTextOptions& options,
                                               const std::stop_token& stop = {});

// "schema": "regard/1" first; docs/sentence.md lists the fields.
struct SentenceJsonOptions {
  std::string command{};
};
// Throws Cancelled where a stop is requested.
REGARD_EXPORT std::string render_sentence_json(const SentenceAnalysis& analysis, const SentenceJsonOptions& options,
                                               const std::stop_token& stop = {});

}  // namespace regard::inline v0
