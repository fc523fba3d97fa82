// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures all heads of a model over a set of texts: the concentration of their weights, the tokens that they attend
/// to, and the size of their contributions.
///
/// @verbatim
///     sentence by sentence:   weights of one layer (H, L, L) → measures of each query → running mean, deviation, n
///     next to each measure:   its value if the same queries attended to all keys equally (uniform)
/// @endverbatim
///
/// Only the weights of one layer of one sentence are in memory at a time. Extents: N layers, H heads, L tokens.
/// docs/reference/notation.md, "Measures of heads", lists the formulas.
///
/// Read next: sentence.h, src/explain/sentence/heads.cpp, src/explain/sentence/heads_text.cpp.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/export.h"

namespace regard::inline v0 {

/// The measures of one query i with weights p_j on the K keys that it can attend to. Queries and keys are tokens, not
/// words.
enum class HeadMeasure {
  entropy,       ///< `−Σ p ln p / ln K`, from 0 (one key) to 1 (uniform); queries with K ≥ 2.
  special,       ///< `Σ p` over the special tokens around the text, [CLS] and [SEP]; encoders only.
  self,          ///< `p_i`; queries that can attend to themselves.
  previous,      ///< `p_(i−1)`; queries whose preceding token exists and is visible.
  next,          ///< `p_(i+1)`; queries whose following token exists and is visible, which it never is in a decoder.
  distance,      ///< `Σ p |i − j|`, in tokens.
  contribution,  ///< `Σ p ‖v · W_output(head)‖₂`
};
/// Number of measures.
inline constexpr std::size_t kNumHeadMeasures = 7;
/// All measures, in the order of HeadMeasure.
inline constexpr std::array<HeadMeasure, kNumHeadMeasures> kHeadMeasures = {
    HeadMeasure::entropy, HeadMeasure::special,  HeadMeasure::self,        HeadMeasure::previous,
    HeadMeasure::next,    HeadMeasure::distance, HeadMeasure::contribution};
/// Returns the name of a measure, for example "entropy".
///
/// @param measure  The measure.
/// @return The name.
REGARD_EXPORT std::string_view head_measure_name(HeadMeasure measure);
/// Finds a measure by name.
///
/// @param name  The name.
/// @return The measure.
/// @throws InvalidArgument  if no measure has that name. The message lists all names.
REGARD_EXPORT HeadMeasure parse_head_measure(std::string_view name);

/// Statistics of one measure in one head, over n queries or, with `by_sentence`, over the means of n sentences.
struct HeadStatistic {
  Index n = 0;           ///< Number of queries or sentences for which the measure is defined.
  double mean = 0;       ///< Mean; NaN for n = 0.
  double deviation = 0;  ///< Standard deviation, √(Σ (x − mean)² / (n − 1)); NaN for n < 2.
  double uniform = 0;    ///< Mean of the measure with every p = 1 / K, over the same n; NaN for n = 0.
};

/// All measures of one head.
struct HeadMeasures {
  Index layer = 0;  ///< Layer index.
  Index head = 0;   ///< Head index.
  /// The statistics of each measure, in the order of kHeadMeasures.
  std::array<HeadStatistic, kNumHeadMeasures> statistics{};
  /// Returns the statistics of a measure.
  ///
  /// @param measure  The measure.
  /// @return The statistics.
  const HeadStatistic& of(HeadMeasure measure) const { return statistics[static_cast<std::size_t>(measure)]; }
};

/// A measured text.
struct MeasuredText {
  Index line = 0;                  ///< Line number of the text in the input, starting at 1; 0 for a single text.
  std::string text;                ///< The whole text, as given.
  std::vector<Index> ids;          ///< The token ids, after truncation.
  Index num_truncated_tokens = 0;  ///< Number of tokens that truncation removed.
  Index unknown_words = 0;         ///< Number of words that the model receives as [UNK].
  Index split_words = 0;           ///< Number of words split into pieces.
  std::string warning{};           ///< Result of vocabulary_warning().
};

/// The measures of all heads on all texts.
struct HeadSurvey {
  std::vector<HeadMeasures> heads;  ///< All heads, layer by layer, (N · H).
  std::vector<MeasuredText> texts;  ///< The texts, in the order in which they were added.
  bool by_sentence = false;         ///< Whether statistics are over sentence means rather than over individual queries.
  Index num_layers = 0;             ///< N, number of layers.
  Index num_heads = 0;              ///< H, number of heads per layer.
  Index num_tokens = 0;             ///< Total number of tokens in all texts.
  bool causal = false;              ///< Whether the model is a decoder, whose queries cannot attend to later keys.
  std::string model_folder;         ///< The folder of the model.
  std::string model_sha256;         ///< SHA-256 of its checkpoint.
};

/// Collects the measures of all heads, sentence by sentence.
///
/// The survey depends only on the sentences and their order, not on the number of threads.
///
/// @par Example
/// @code{.cpp}
/// HeadSurveyor surveyor(model, false);
/// for (const std::string& line : lines) surveyor.add(read_sentence(model, line));
/// std::fputs(render_heads_text(surveyor.survey(), {}).c_str(), stdout);
/// @endcode
class REGARD_EXPORT HeadSurveyor {
 public:
  /// Creates an empty surveyor.
  ///
  /// @param model        The model, which must outlive the surveyor.
  /// @param by_sentence  Whether statistics are over sentence means rather than over individual queries.
  HeadSurveyor(const SentenceModel& model, bool by_sentence);
  /// Adds a sentence.
  ///
  /// @param sentence  Result of read_sentence() with the model.
  /// @param line      Line number of the sentence in the input, starting at 1; 0 for a single text.
  /// @param runtime   Threads, scratch memory and cancellation.
  /// @throws InvalidArgument  as trace_weights() does.
  /// @throws Cancelled        if a stop is requested.
  void add(const Sentence& sentence, Index line = 0, const Runtime& runtime = {});
  /// Returns the measures of all sentences so far.
  HeadSurvey survey() const;

 private:
  // Welford's update: mean and sum of squared deviations (Knuth, The Art of Computer Programming, 4.2.2).
  struct Running {
    Index n = 0;
    double mean = 0;
    double squares = 0;
    double uniform = 0;
    void add(double x, double uniform_x);
  };
  using Row = std::array<Running, kNumHeadMeasures>;

  const SentenceModel& model_;
  bool by_sentence_;
  std::vector<Row> rows_;  // (N · H)
  std::vector<MeasuredText> texts_;
  Index num_tokens_ = 0;
};

/// Selection and order of the heads.
struct HeadFilter {
  std::optional<HeadMeasure> sort{};  ///< Largest mean of this measure first; if absent, layer by layer.
  std::optional<Index> layer{};       ///< Only this layer.
  std::optional<Index> head{};        ///< Only the heads with this index.
  std::optional<double> min{};        ///< Lower bound on the mean of `sort`, inclusive.
  std::optional<double> max{};        ///< Upper bound on the mean of `sort`, inclusive.
};
/// Selects and sorts heads.
///
/// @param survey  The survey.
/// @param filter  Selection and order of the heads.
/// @return The selected heads. Heads whose mean is NaN come last.
/// @throws InvalidArgument  if a layer or head does not exist, or if min or max is given without sort.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<HeadMeasures> heads =
///     chosen_heads(surveyor.survey(), {.sort = HeadMeasure::previous, .min = 0.5});
/// @endcode
REGARD_EXPORT std::vector<HeadMeasures> chosen_heads(const HeadSurvey& survey, const HeadFilter& filter);

/// Options for render_heads_text().
struct HeadsTextOptions {
  int width = 80;       ///< Width of the terminal in columns; values below 40 are treated as 40.
  bool color = false;   ///< Whether to use colors.
  bool unicode = true;  ///< Whether to use non-ASCII characters.
  bool full = false;    ///< Whether to print four decimal places, and the uniform value next to every value.
};
/// Renders a survey as text.
///
/// @param survey   The survey.
/// @param filter   Selection and order of the heads.
/// @param options  Formatting and content options.
/// @return The text.
/// @throws InvalidArgument  as chosen_heads() does.
REGARD_EXPORT std::string render_heads_text(const HeadSurvey& survey, const HeadFilter& filter,
                                            const HeadsTextOptions& options = {});
/// Renders a survey as JSON, with `"schema": "regard/1"`; docs/guide/compare.md lists the fields.
///
/// @param survey   The survey.
/// @param filter   Selection and order of the heads.
/// @param command  The command line as typed.
/// @return The JSON text.
/// @throws InvalidArgument  as chosen_heads() does.
REGARD_EXPORT std::string render_heads_json(const HeadSurvey& survey, const HeadFilter& filter,
                                            std::string_view command);

}  // namespace regard::inline v0
