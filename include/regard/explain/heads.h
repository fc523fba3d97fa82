// SPDX-License-Identifier: Apache-2.0
//
// All heads of a model, measured on texts: how sharply each looks, where to, and how much it hands on.
//
//     sentence by sentence:  weights of one layer (H, L, L) → each query's measures → running mean, deviation, n
//     beside each measure:   what it would be if the same queries saw every key alike (uniform)
//
// One sentence's weights of one layer are in memory at a time. The formulas: docs/notation.md, "Measures of heads".
// Read next: sentence.h, src/explain/sentence/heads.cpp, src/explain/sentence/heads_text.cpp.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/export.h"

namespace regard::inline v0 {

// Of one query i with weights p_j on the K keys that it sees; tokens, not words.
enum class HeadMeasure {
  entropy,       // −Σ p ln p / ln K, from 0 (one key) to 1 (all alike); of queries that see two keys or more
  special,       // Σ p over the tokens set round the text, [CLS] and [SEP]
  self,          // p_i
  previous,      // p_i−1; of every query but the first
  next,          // p_i+1; of every query but the last
  distance,      // Σ p |i − j|, in tokens
  contribution,  // Σ p ‖v · W_output(head)‖₂
};
inline constexpr std::size_t kNumHeadMeasures = 7;
inline constexpr std::array<HeadMeasure, kNumHeadMeasures> kHeadMeasures = {
    HeadMeasure::entropy, HeadMeasure::special,  HeadMeasure::self,        HeadMeasure::previous,
    HeadMeasure::next,    HeadMeasure::distance, HeadMeasure::contribution};
REGARD_EXPORT std::string_view head_measure_name(HeadMeasure measure);  // "entropy", …
// Throws std::invalid_argument with the names there are.
REGARD_EXPORT HeadMeasure parse_head_measure(std::string_view name);

// Over n queries, or with `by_sentence` over the means of n sentences.
struct HeadStatistic {
  Index n = 0;
  double mean = 0;       // NaN without any
  double deviation = 0;  // √(Σ (x − mean)² / (n − 1)); NaN for n < 2
  double uniform = 0;    // mean of the measure with every p = 1 / K, over the same n
};

struct HeadMeasures {
  Index layer = 0;
  Index head = 0;
  std::array<HeadStatistic, kNumHeadMeasures> statistics{};  // in the order of kHeadMeasures
  const HeadStatistic& of(HeadMeasure measure) const { return statistics[static_cast<std::size_t>(measure)]; }
};

// A text that was measured, for the record.
struct MeasuredText {
  Index line = 0;  // where it stood, from 1; 0 for a text given alone
  std::string text;
  std::vector<Index> ids;
  Index num_truncated_tokens = 0;
  Index unknown_words = 0;  // that the model sees as [UNK]
  Index split_words = 0;    // into pieces
  std::string warning{};    // vocabulary_warning
};

struct HeadSurvey {
  std::vector<HeadMeasures> heads;  // (N · H), layer by layer
  std::vector<MeasuredText> texts;
  bool by_sentence = false;
  Index num_layers = 0;
  Index num_heads = 0;
  Index num_tokens = 0;  // of all texts
  std::string model_folder;
  std::string model_sha256;
};

// Adds sentences one by one. The same survey for the same sentences in the same order, whatever the threads.
class REGARD_EXPORT HeadSurveyor {
 public:
  // model must live as long. by_sentence: first the mean over a sentence's queries, then statistics over sentences.
  HeadSurveyor(const SentenceModel& model, bool by_sentence);
  // Throws as encoder_weights does.
  void add(const Sentence& sentence, Index line = 0, const Runtime& runtime = {});
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

// Which heads are shown, and in which order.
struct HeadFilter {
  std::optional<HeadMeasure> sort{};  // largest mean first; absent: layer by layer
  std::optional<Index> layer{};
  std::optional<Index> head{};
  std::optional<double> min{}, max{};  // of the mean of `sort`
};
// Throws std::invalid_argument for a layer or head that does not exist, and min or max without sort.
REGARD_EXPORT std::vector<HeadMeasures> chosen_heads(const HeadSurvey& survey, const HeadFilter& filter);

struct HeadsText {
  int width = 80;
  bool color = false;
  bool unicode = true;
  bool full = false;  // uniform and n beside every figure
};
REGARD_EXPORT std::string render_heads_text(const HeadSurvey& survey, const HeadFilter& filter,
                                            const HeadsText& options = {});
// "schema": "regard/1"; docs/compare.md lists the fields. command is what the user typed.
REGARD_EXPORT std::string render_heads_json(const HeadSurvey& survey, const HeadFilter& filter,
                                            std::string_view command);

}  // namespace regard::inline v0
