// SPDX-License-Identifier: Apache-2.0
/// @file
/// The analysis that `regard explain "text"` prints, as data and as text: a word and a head, the weights, the
/// computation of one of these weights, and its contribution.
///
/// @verbatim
///     text ── analyze_sentence() ──▶ SentenceAnalysis ── render_sentence_text(), render_sentence_json()
/// @endverbatim
///
/// Renderers compute nothing: the analysis contains every value. docs/guide/sentence.md describes each column of the
/// table. Extents: N layers, H heads, head size D, W words, width E, feed-forward width F.
///
/// Read next: sentence_row.h, src/explain/sentence/sentence_report.cpp, src/explain/sentence/sentence_text.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence_row.h"

namespace regard::inline v0 {

// ---- the complete computation of one weight: --full

/// One element of a projection: value = Σ x · parameter + bias.
struct ProjectedElement {
  /// The three products with the largest magnitudes. In each, `query` is the element of x, and `key` is the parameter.
  std::vector<DotTerm> largest{};
  double others = 0.0;  ///< The sum of all other products.
  double bias = 0.0;    ///< The bias.
  double value = 0.0;   ///< The element.
};
/// The statistics of a norm for one token: norm(x) = (x − mean) / deviation · gain + bias.
struct NormDetails {
  double mean = 0.0;       ///< Mean of x; 0 for an RMS norm.
  double deviation = 0.0;  ///< Standard deviation √(variance + ε); for an RMS norm, √(mean of squares + ε).
};
/// One of the F units inside the feed-forward layer.
struct FeedForwardUnit {
  Index unit = 0;             ///< Index of the unit.
  double before = 0.0;        ///< Value before the activation.
  double gate = 0.0;          ///< With SwiGLU, the gate before the activation; otherwise 0.
  double after = 0.0;         ///< Value after the activation; with SwiGLU, silu(gate) · before.
  double contribution = 0.0;  ///< Contribution of the unit: `‖after · its row of W_down‖₂`.
};
/// The complete computation of one weight. Vectors have E elements unless stated otherwise.
///
/// Vectors from the trace are float; vectors computed here are double.
struct SentenceDetails {
  Index query = 0;                                 ///< Index of the query token, one piece of the query word.
  Index key = 0;                                   ///< Index of the key token, one piece of the key word.
  bool rms_norm = false;                           ///< Decoder: whether the norms are RMS norms.
  std::string activation = "gelu";                 ///< Activation: "relu", "gelu", "gelu_tanh", "swiglu" or "none".
  std::vector<float> word{};                       ///< Row of the word embeddings for the query.
  std::vector<float> position{};                   ///< Row of the position embeddings for the query; may be empty.
  std::vector<float> type{};                       ///< Encoder: row of the token type embeddings for the query.
  std::vector<float> embedded{};                   ///< Sum of the embeddings; for an encoder, after the layer norm.
  NormDetails embedding_norm{};                    ///< Encoder: the layer norm after the embeddings.
  NormDetails input_norm{};                        ///< Decoder: the norm of the query's input.
  std::vector<float> attention_input{};            ///< Decoder: row of the query in LayerTrace::attention_input.
  bool rotated = false;                            ///< Whether q and k (see the next members) are rotated afterwards.
  std::vector<ProjectedElement> query_elements{};  ///< Elements of the query's q, (D).
  std::vector<ProjectedElement> key_elements{};    ///< Elements of the key's k, (D).
  std::vector<ProjectedElement> value_elements{};  ///< Elements of the key's v, (D).
  std::vector<double> context{};                   ///< Context of the head: Σ weight · v, (D).
  std::vector<double> head_share{};                ///< Output of the head: context · W_output(head).
  std::vector<double> other_heads{};               ///< Combined output of all other heads.
  std::vector<float> b_output{};                   ///< Bias of the output projection; may be empty.
  std::vector<float> input{};                      ///< Row of the query in LayerTrace::input.
  std::vector<float> attention_output{};           ///< Row of the query in LayerTrace::attention_output.
  std::vector<float> residual{};                   ///< Decoder: row of the query in LayerTrace::residual.
  std::vector<float> attention_normed{};           ///< Row of the query in LayerTrace::attention_normed.
  std::vector<float> feed_forward{};               ///< Row of the query in LayerTrace::feed_forward.
  std::vector<float> output{};                     ///< Row of the query in LayerTrace::output.
  NormDetails attention_norm{};                    ///< The norm after attention.
  NormDetails output_norm{};                       ///< Encoder: the layer norm after the feed-forward layer.
  std::vector<FeedForwardUnit> units{};            ///< All F units, sorted by descending contribution.
};
/// Computes the details of one weight.
///
/// @param model     The model.
/// @param sentence  The sentence.
/// @param row       A row of that sentence.
/// @param query     Token of the query, one of SentenceRow::queries.
/// @param key       Token of the key.
/// @return The details.
/// @throws InvalidArgument  if a token does not exist, or if the query does not belong to the row.
REGARD_EXPORT SentenceDetails sentence_details(const SentenceModel& model, const Sentence& sentence,
                                               const SentenceRow& row, Index query, Index key);

// ---- the analysis and its renderers

/// Options for analyze_sentence().
struct SentenceAnalysisOptions {
  /// The query word, specified as for word_index(): `WORD`, `WORD#1` or `@INDEX`. If empty, the most informative word.
  std::string query{};
  /// Layer of the head to show. Set both layer and head, or neither; if neither is set, the most informative head is
  /// selected.
  std::optional<Index> layer{};
  std::optional<Index> head{};      ///< Head to show; see `layer`.
  std::vector<std::string> hide{};  ///< Words to hide, as for SentenceOptions::hide.
  bool truncate = false;            ///< Whether to truncate a text that is too long, as in SentenceOptions.
  bool full = false;                ///< Whether to compute SentenceDetails as well.
  /// Whether to hide every other word, one at a time. If false, SentenceAnalysis::alone is empty, and the model runs
  /// once.
  bool hide_each = true;
  /// Whether to omit the vectors of all words except `query` after the last layer, as SentenceOptions::only does.
  bool only_query = false;
};

/// The change in the query word's vector when exactly one other word is hidden in every layer.
struct HiddenWord {
  Index word = 0;       ///< Index of the hidden word.
  double cosine = 0.0;  ///< Cosine similarity to the vector with nothing hidden, after the last layer.
};
/// Maximum number of words that are hidden one at a time. If there are more words, those with the largest weights are
/// hidden.
inline constexpr Index kMaxHiddenWords = 12;

/// The mean of the same weight over all heads of the model, which shows the effect of the choice of head.
struct PairInHeads {
  double mean = 0.0;     ///< Mean over all heads of the word's weight on the target.
  double special = 0.0;  ///< Mean over all heads of the word's total weight on special tokens.
  double uniform = 0.0;  ///< Weight of the target if all tokens had the same weight.
};

/// The analysis of one word of a sentence in one head.
struct SentenceAnalysis {
  std::string model;                  ///< "all-MiniLM-L6-v2" for that checkpoint, otherwise the name of the folder.
  ModelExtents extents;               ///< Extents of the model.
  std::string sha256;                 ///< SHA-256 of its checkpoint.
  Sentence sentence;                  ///< The sentence, with the requested words hidden.
  RankedHeads ranked_heads;           ///< All heads, with nothing hidden.
  AttentionPair chosen;               ///< The word, head and target that are shown, with nothing hidden.
  bool head_named = false;            ///< Whether the caller selected the head.
  bool word_named = false;            ///< Whether the caller selected the word.
  SentenceRow row;                    ///< The row of the word in the head.
  std::optional<SentenceRow> before;  ///< With hidden words: the same row with nothing hidden.
  /// With hidden words: the cosine similarity of the word's vectors with and without hiding, after each layer, (N).
  std::vector<double> kept;
  Tensor<double, 3> attention;    ///< The word's attention in every head with nothing hidden, (N, H, W).
  std::vector<HiddenWord> alone;  ///< Other words, hidden one at a time, by ascending cosine similarity.
  Index not_hidden_alone = 0;     ///< Number of other words beyond kMaxHiddenWords.
  /// The key word whose weight is computed step by step: the target or, if that is hidden, the visible word with the
  /// largest weight. It is a special token only if no other word is visible.
  Index attended = 0;
  ExpandedDot dot;   ///< The q·k of the word and `attended`, or of their pieces with the largest weight.
  SoftmaxTerm term;  ///< The weight of the same pair.
  std::optional<SentenceDetails> details;  ///< With SentenceAnalysisOptions::full: the details of that weight.
};

/// Analyzes one word of a sentence.
///
/// The model runs once for each word in SentenceAnalysis::alone. Several runs execute concurrently. After each run,
/// Runtime::progress is called with the number of completed runs.
///
/// @param model    The model.
/// @param text     The sentence.
/// @param options  Word, head and hidden words.
/// @param runtime  Threads, scratch memory, cancellation and progress.
/// @return The analysis.
/// @throws InvalidArgument  as read_sentence(), check_has_words(), word_index() and sentence_row() do, and if only one
///                          of layer and head is given.
/// @throws DataError        as read_sentence() does, and if the output is not finite with a word hidden.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const SentenceAnalysis analysis = analyze_sentence(model, "he sat on the bank of the river", {.query = "bank"});
/// std::fputs(render_sentence_text(analysis, {}).c_str(), stdout);
/// @endcode
REGARD_EXPORT SentenceAnalysis analyze_sentence(const SentenceModel& model, std::string_view text,
                                                const SentenceAnalysisOptions& options = {},
                                                const Runtime& runtime = {});

/// Computes the mean weights of the target of an analysis over all heads of the model.
///
/// @param analysis  The analysis.
/// @return The mean weights.
REGARD_EXPORT PairInHeads pair_in_heads(const SentenceAnalysis& analysis);

/// The findings of an analysis, in sentences.
///
/// Untrusted text is escaped for a terminal. The text, the page and the JSON show the same sentences.
struct SentenceFindings {
  std::string finding{};      ///< One weight of one head, with its uniform value and the head's baseline.
  std::string selection{};    ///< The criterion for choosing the head, and the means over all heads.
  std::string evidence{};     ///< The effect of hiding each word on the vector.
  std::string association{};  ///< A caution: what a weight does not show.
  std::string warning{};      ///< Result of vocabulary_warning(); empty if it does not apply.
};
/// States the findings of an analysis.
///
/// @param analysis  The analysis.
/// @return The findings.
REGARD_EXPORT SentenceFindings sentence_findings(const SentenceAnalysis& analysis);

/// The order of the rows in the table.
enum class RowOrder {
  text,         ///< In text order.
  weight,       ///< By descending weight.
  contribution  ///< By descending contribution.
};

/// Options for render_sentence_text().
struct SentenceTextOptions {
  int width = 80;                   ///< Width of the terminal in columns, limited to 40 … 120.
  bool color = false;               ///< Whether to use colors.
  bool unicode = true;              ///< Whether to use non-ASCII characters.
  bool all_heads = false;           ///< Whether to list every head, with its weight, baseline and salience.
  bool no_special = false;          ///< Whether to combine the special tokens into one row.
  RowOrder order = RowOrder::text;  ///< Order of the rows.
  /// Number of rows in the table. If absent, all rows are shown if there are at most 14, otherwise the 12 rows with the
  /// largest weights (with RowOrder::contribution, the largest contributions).
  std::optional<Index> top{};
  std::optional<int> digits{};  ///< Number of decimal places; if absent, 2.
  std::string label{};          ///< Label printed before the sentence, such as "A" in the output of compare.
};
/// Renders an analysis as text. If the analysis contains SentenceDetails, they are printed as well.
///
/// @param analysis  The analysis.
/// @param options   Formatting and content options.
/// @param stop      Stop token.
/// @return The text, which ends with a newline.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::string render_sentence_text(const SentenceAnalysis& analysis, const SentenceTextOptions& options,
                                               const std::stop_token& stop = {});

/// Options for render_sentence_json().
struct SentenceJsonOptions {
  std::string command{};  ///< The command line as typed.
};
/// Renders an analysis as JSON, which begins with `"schema": "regard/1"`. docs/guide/sentence.md lists the fields.
///
/// @param analysis  The analysis.
/// @param options   Content options.
/// @param stop      Stop token.
/// @return The JSON text.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::string render_sentence_json(const SentenceAnalysis& analysis, const SentenceJsonOptions& options,
                                               const std::stop_token& stop = {});

}  // namespace regard::inline v0
