// SPDX-License-Identifier: Apache-2.0
//
// The measures of every head; see regard/explain/heads.h.
//
//     add: for each layer, with only its weights in memory: heads · queries · keys
//
// Read next: heads_text.cpp.
#include "regard/explain/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "regard/error.h"
#include "regard/io/utf8.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

constexpr std::array<std::string_view, kNumHeadMeasures> kNames = {"entropy", "special",  "self",        "previous",
                                                                   "next",    "distance", "contribution"};
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The measures of one query; NaN where a measure is undefined.
using Figures = std::array<double, kNumHeadMeasures>;

double& at(Figures& figures, HeadMeasure measure) { return figures[static_cast<std::size_t>(measure)]; }

struct Keys {
  std::vector<Index> seen;            // tokens
  std::vector<std::uint8_t> visible;  // (L)
  std::vector<std::uint8_t> special;  // (L)
  bool causal = false;
  // The keys that a query can attend to.
  std::span<const Index> seen_by(Index query) const {
    return {seen.begin(), causal ? std::upper_bound(seen.begin(), seen.end(), query) : seen.end()};
  }
};

Keys keys_of(const Sentence& sentence) {
  const std::size_t length = sentence.tokens.ids.size();
  Keys keys{{}, std::vector<std::uint8_t>(length, 1), std::vector<std::uint8_t>(length, 0), sentence.trace.causal};
  for (const Index hidden : sentence.trace.hidden_keys) keys.visible[static_cast<std::size_t>(hidden)] = 0;
  for (const SentenceWord& word : sentence.words) {
    for (const Index token : word.tokens) keys.special[static_cast<std::size_t>(token)] = word.special ? 1 : 0;
  }
  for (std::size_t j = 0; j < length; ++j) {
    if (keys.visible[j] != 0) keys.seen.push_back(static_cast<Index>(j));
  }
  return keys;
}

// weight(j) is the query's weight on key j; norms(j) = ‖v_j · W_output(head)‖₂.
template <class Weight, class Norm>
Figures measure(const Keys& keys, Index query, Weight weight, Norm norms) {
  const std::span<const Index> seen = keys.seen_by(query);
  const auto length = static_cast<Index>(keys.visible.size());
  Figures figures{};
  double entropy = 0, special = 0, distance = 0, contribution = 0;
  for (const Index j : seen) {
    const double p = weight(j);
    if (p > 0) entropy -= p * std::log(p);
    if (keys.special[static_cast<std::size_t>(j)] != 0) special += p;
    distance += p * static_cast<double>(std::abs(query - j));
    contribution += p * norms(j);
  }
  const auto on = [&](Index j) {
    const bool can = j >= 0 && j < (keys.causal ? query + 1 : length) && keys.visible[static_cast<std::size_t>(j)] != 0;
    return can ? weight(j) : kNone;
  };
  at(figures, HeadMeasure::entropy) = seen.size() < 2 ? kNone : entropy / std::log(static_cast<double>(seen.size()));
  at(figures, HeadMeasure::special) = keys.causal ? kNone : special;
  at(figures, HeadMeasure::self) = on(query);
  at(figures, HeadMeasure::previous) = on(query - 1);
  at(figures, HeadMeasure::next) = on(query + 1);
  at(figures, HeadMeasure::distance) = distance;
  at(figures, HeadMeasure::contribution) = contribution;
  return figures;
}

}  // namespace

std::string_view head_measure_name(HeadMeasure measure) { return kNames[static_cast<std::size_t>(measure)]; }

HeadMeasure parse_head_measure(std::string_view name) {
  for (const HeadMeasure measure : kHeadMeasures) {
    if (head_measure_name(measure) == name) return measure;
  }
  throw InvalidArgument(
      fmt::format("unknown measure \"{}\"; expected one of {}", text_in_message(name), fmt::join(kNames, ", ")));
}

void HeadSurveyor::Running::add(double x, double uniform_x) {
  ++n;
  const double before = x - mean;
  mean += before / static_cast<double>(n);
  squares += before * (x - mean);
  uniform += (uniform_x - uniform) / static_cast<double>(n);
}

HeadSurveyor::HeadSurveyor(const SentenceModel& model, bool by_sentence)
    : model_(model),
      by_sentence_(by_sentence),
      rows_(static_cast<std::size_t>(model.extents().num_layers * model.extents().num_heads)) {}

void HeadSurveyor::add(const Sentence& sentence, Index line, const Runtime& runtime) {
  const auto length = static_cast<Index>(sentence.tokens.ids.size());
  const Index heads = model_.extents().num_heads;
  const Keys keys = keys_of(sentence);
  MeasuredText text{line, sentence.text, sentence.tokens.ids, sentence.num_truncated_tokens};
  for (const SentenceWord& word : sentence.words) {
    text.unknown_words += word.unknown ? 1 : 0;
    text.split_words += word.split() ? 1 : 0;
  }
  text.warning = vocabulary_warning(sentence.words);
  texts_.push_back(std::move(text));
  num_tokens_ += length;
  if (keys.seen.empty()) return;  // no query attends to any key
  const auto uniform_weight = [&](Index query) {
    return 1 / static_cast<double>(std::max<std::size_t>(keys.seen_by(query).size(), 1));
  };
  std::vector<Figures> uniform;  // by query; the same for all heads, except the contribution
  for (Index query = 0; query < length; ++query) {
    uniform.push_back(measure(keys, query, [&](Index) { return uniform_weight(query); }, [](Index) { return 0.0; }));
  }
  for (Index layer = 0; layer < static_cast<Index>(sentence.trace.layers.size()); ++layer) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, layer, WeightsKind::weights, runtime);
    const Tensor<double, 2> norms = value_norms_of(model_, sentence.trace, layer, runtime);
    for (Index head = 0; head < heads; ++head) {
      Row& to = rows_[static_cast<std::size_t>(layer * heads + head)];
      Row sentence_row;
      const auto key_norm = [&](Index j) { return norms(head, j); };
      const auto mean_norm_for = [&](Index query) {
        double mean_norm = 0;
        for (const Index j : keys.seen_by(query)) mean_norm += uniform_weight(query) * key_norm(j);
        return mean_norm;
      };
      double mean_norm = mean_norm_for(0);  // of an encoder, that of every query
      for (Index query = 0; query < length; ++query) {
        if (keys.causal) mean_norm = mean_norm_for(query);
        if (keys.seen_by(query).empty()) continue;
        const auto weight = [&](Index j) { return static_cast<double>(weights(head, query, j)); };
        const Figures figures = measure(keys, query, weight, key_norm);
        Figures& reference = uniform[static_cast<std::size_t>(query)];
        at(reference, HeadMeasure::contribution) = mean_norm;
        for (std::size_t m = 0; m < kNumHeadMeasures; ++m) {
          if (!std::isnan(figures[m])) (by_sentence_ ? sentence_row : to)[m].add(figures[m], reference[m]);
        }
      }
      if (!by_sentence_) continue;
      for (std::size_t m = 0; m < kNumHeadMeasures; ++m) {
        if (sentence_row[m].n > 0) to[m].add(sentence_row[m].mean, sentence_row[m].uniform);
      }
    }
  }
}

HeadSurvey HeadSurveyor::survey() const {
  HeadSurvey survey;
  survey.texts = texts_;
  survey.by_sentence = by_sentence_;
  survey.num_layers = model_.extents().num_layers;
  survey.num_heads = model_.extents().num_heads;
  survey.causal = model_.extents().causal;
  survey.num_tokens = num_tokens_;
  survey.model_folder = model_.folder;
  survey.model_sha256 = model_.sha256();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    HeadMeasures measures;
    measures.layer = static_cast<Index>(i) / survey.num_heads;
    measures.head = static_cast<Index>(i) % survey.num_heads;
    for (std::size_t m = 0; m < kNumHeadMeasures; ++m) {
      const Running& running = rows_[i][m];
      measures.statistics[m] = {running.n, running.n > 0 ? running.mean : kNone,
                                running.n > 1 ? std::sqrt(running.squares / static_cast<double>(running.n - 1)) : kNone,
                                running.n > 0 ? running.uniform : kNone};
    }
    survey.heads.push_back(measures);
  }
  return survey;
}

std::vector<HeadMeasures> chosen_heads(const HeadSurvey& survey, const HeadFilter& filter) {
  const auto check = [](const char* what, std::optional<Index> index, Index count) {
    if (index && (*index < 0 || *index >= count)) {
      throw InvalidArgument(fmt::format("{} {} does not exist; expected 0 to {}", what, *index, count - 1));
    }
  };
  check("layer", filter.layer, survey.num_layers);
  check("head", filter.head, survey.num_heads);
  if ((filter.min || filter.max) && !filter.sort) {
    throw InvalidArgument("a minimum or maximum mean requires a measure to sort by");
  }
  std::vector<HeadMeasures> chosen;
  for (const HeadMeasures& head : survey.heads) {
    if (filter.layer && head.layer != *filter.layer) continue;
    if (filter.head && head.head != *filter.head) continue;
    if (filter.min && !(head.of(*filter.sort).mean >= *filter.min)) continue;
    if (filter.max && !(head.of(*filter.sort).mean <= *filter.max)) continue;
    chosen.push_back(head);
  }
  if (filter.sort) {
    std::sort(chosen.begin(), chosen.end(), [&](const HeadMeasures& a, const HeadMeasures& b) {
      const double x = a.of(*filter.sort).mean, y = b.of(*filter.sort).mean;
      if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
      if (x > y || x < y) return x > y;
      return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
    });
  }
  return chosen;
}

}  // namespace regard::inline v0
