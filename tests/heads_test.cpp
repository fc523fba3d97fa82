// SPDX-License-Identifier: Apache-2.0
//
// Measures of heads on a small model of random numbers against the formulas of docs/reference/notation.md: weights by
// a softmax in double from the trace's queries and keys, then plain loops.
// Read next: sentence_model.h, regard/explain/heads.h.
#include "regard/explain/heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "regard/io/json.h"
#include "regard/io/utf8.h"
#include "support/sentence_model.h"

namespace regard::heads_test {
namespace {

constexpr double kBound = 2e-6;  // float scores against double scores, for figures of size 1

using Row = std::vector<double>;

// softmax(q·k / √D) of one query over the visible keys; 0 elsewhere.
Row weights_of(const Sentence& sentence, Index layer, Index head, Index query) {
  const LayerTrace& t = sentence.trace.layers[static_cast<std::size_t>(layer)];
  const Index length = t.query.shape()[1], depth = t.query.shape()[2];
  const auto& hidden = sentence.trace.hidden_keys;
  Row row(static_cast<std::size_t>(length));
  double sum = 0;
  for (Index j = 0; j < length; ++j) {
    if (std::find(hidden.begin(), hidden.end(), j) != hidden.end()) continue;
    double score = 0;
    for (Index d = 0; d < depth; ++d) {
      score += static_cast<double>(t.query(head, query, d)) * static_cast<double>(t.key(head, j, d));
    }
    sum += row[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(static_cast<double>(depth)));
  }
  for (double& p : row) p /= sum;
  return row;
}

double value_length(const Sentence& sentence, Index layer, Index head, Index key) {
  const Encoder& encoder = small_sentence_model().encoder;
  const LayerTrace& t = sentence.trace.layers[static_cast<std::size_t>(layer)];
  const Index depth = encoder.config.head_size();
  double square = 0;
  for (Index e = 0; e < encoder.config.width; ++e) {
    double x = 0;
    for (Index d = 0; d < depth; ++d) {
      x += static_cast<double>(t.value(head, key, d)) *
           static_cast<double>(encoder.layers[static_cast<std::size_t>(layer)].w_output(head * depth + d, e));
    }
    square += x * x;
  }
  return std::sqrt(square);
}

// A measure of one query, NaN where it is undefined; [CLS] and [SEP] are the first and last tokens.
double measure(const Sentence& sentence, HeadMeasure what, const Row& p, Index layer, Index head, Index query) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto length = static_cast<Index>(p.size());
  const auto& hidden = sentence.trace.hidden_keys;
  const auto on = [&](Index j) {
    if (j < 0 || j >= length || std::find(hidden.begin(), hidden.end(), j) != hidden.end()) return none;
    return p[static_cast<std::size_t>(j)];
  };
  double sum = 0;
  switch (what) {
    case HeadMeasure::entropy:
      for (const double x : p) sum -= x > 0 ? x * std::log(x) : 0;
      return sum / std::log(static_cast<double>(p.size() - hidden.size()));
    case HeadMeasure::special:
      return p.front() + p.back();
    case HeadMeasure::self:
      return on(query);
    case HeadMeasure::previous:
      return on(query - 1);
    case HeadMeasure::next:
      return on(query + 1);
    case HeadMeasure::distance:
      for (Index j = 0; j < length; ++j)
        sum += p[static_cast<std::size_t>(j)] * static_cast<double>(std::abs(query - j));
      return sum;
    case HeadMeasure::contribution:
      for (Index j = 0; j < length; ++j) sum += p[static_cast<std::size_t>(j)] * value_length(sentence, layer, head, j);
      return sum;
  }
  return none;
}

struct Expected {
  std::vector<double> x, uniform;
};
Expected expected(const Sentence& sentence, HeadMeasure what, Index layer, Index head) {
  Expected e;
  const auto length = static_cast<Index>(sentence.tokens.ids.size());
  const auto& hidden = sentence.trace.hidden_keys;
  Row alike(static_cast<std::size_t>(length), 1 / static_cast<double>(sentence.tokens.ids.size() - hidden.size()));
  for (const Index j : hidden) alike[static_cast<std::size_t>(j)] = 0;
  for (Index query = 0; query < length; ++query) {
    const double x = measure(sentence, what, weights_of(sentence, layer, head, query), layer, head, query);
    if (std::isnan(x)) continue;
    e.x.push_back(x);
    e.uniform.push_back(measure(sentence, what, alike, layer, head, query));
  }
  return e;
}

double mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}
double deviation_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += (value - mean_of(x)) * (value - mean_of(x));
  return std::sqrt(squares / static_cast<double>(x.size() - 1));
}

const std::vector<std::string> kTexts = {"he sat on the bank of the river", "she put her money in the bank.",
                                         "embeddings"};

HeadSurvey survey_of(const std::vector<Sentence>& sentences, bool by_sentence) {
  HeadSurveyor surveyor(small_sentence_model(), by_sentence);
  Index line = 0;
  for (const Sentence& sentence : sentences) surveyor.add(sentence, ++line);
  return surveyor.survey();
}
std::vector<Sentence> read_all(const std::vector<std::string>& texts) {
  std::vector<Sentence> sentences;
  for (const std::string& text : texts) sentences.push_back(read_sentence(small_sentence_model(), text));
  return sentences;
}

void expect_survey(const HeadSurvey& survey, const std::vector<Sentence>& sentences, bool by_sentence) {
  ASSERT_EQ(survey.heads.size(), 12u);
  for (const HeadMeasures& head : survey.heads) {
    for (const HeadMeasure what : kHeadMeasures) {
      std::vector<double> x, uniform;
      for (const Sentence& sentence : sentences) {
        const Expected e = expected(sentence, what, head.layer, head.head);
        if (by_sentence) {
          x.push_back(mean_of(e.x));
          uniform.push_back(mean_of(e.uniform));
        } else {
          x.insert(x.end(), e.x.begin(), e.x.end());
          uniform.insert(uniform.end(), e.uniform.begin(), e.uniform.end());
        }
      }
      const HeadStatistic& s = head.of(what);
      const double size = 1 + std::abs(mean_of(x));
      EXPECT_EQ(s.n, static_cast<Index>(x.size())) << head_measure_name(what);
      EXPECT_NEAR(s.mean, mean_of(x), kBound * size) << head_measure_name(what);
      EXPECT_NEAR(s.deviation, deviation_of(x), 4 * kBound * size) << head_measure_name(what);
      EXPECT_NEAR(s.uniform, mean_of(uniform), kBound * size) << head_measure_name(what);
    }
  }
}

TEST(Heads, EveryMeasureMatchesItsFormula) {
  const std::vector<Sentence> sentences = read_all(kTexts);
  expect_survey(survey_of(sentences, false), sentences, false);
  expect_survey(survey_of(sentences, true), sentences, true);
}

TEST(Heads, UniformIsTheMeasureOfUniformWeights) {
  const HeadSurvey survey = survey_of(read_all({kTexts[0]}), false);
  for (const HeadMeasures& head : survey.heads) {
    EXPECT_NEAR(head.of(HeadMeasure::entropy).uniform, 1, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::special).uniform, 2.0 / 10, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::self).uniform, 1.0 / 10, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::distance).uniform, 3.3, 1e-12);  // Σ |i − j| over 10 × 10, divided by 100
    EXPECT_EQ(head.of(HeadMeasure::previous).n, 9);
    EXPECT_EQ(head.of(HeadMeasure::next).n, 9);
    EXPECT_EQ(head.of(HeadMeasure::self).n, 10);
  }
}

TEST(Heads, HiddenKeysAreNotCounted) {
  std::vector<Sentence> sentences;
  sentences.push_back(read_sentence(small_sentence_model(), kTexts[0], {.hide = {"river", "sat"}}));
  const HeadSurvey survey = survey_of(sentences, false);
  expect_survey(survey, sentences, false);
  EXPECT_EQ(survey.heads[0].of(HeadMeasure::self).n, 8);
}

TEST(Heads, EntropyRequiresTwoVisibleKeysAndOtherMeasuresOne) {
  HeadSurveyor surveyor(small_sentence_model(), false);
  surveyor.add(read_sentence(small_sentence_model(), "", {.hide = {"[CLS]", "[SEP]"}}));
  EXPECT_EQ(surveyor.survey().heads[3].of(HeadMeasure::distance).n, 0);
  EXPECT_TRUE(std::isnan(surveyor.survey().heads[3].of(HeadMeasure::distance).mean));
  surveyor.add(read_sentence(small_sentence_model(), "", {.hide = {"[CLS]"}}));
  const HeadMeasures head = surveyor.survey().heads[3];
  EXPECT_EQ(head.of(HeadMeasure::entropy).n, 0);
  EXPECT_EQ(head.of(HeadMeasure::special).n, 2);
  EXPECT_EQ(head.of(HeadMeasure::special).mean, 1);
  EXPECT_EQ(head.of(HeadMeasure::self).n, 1);
  EXPECT_TRUE(std::isnan(head.of(HeadMeasure::self).deviation));
}

TEST(Heads, SortsAndFilters) {
  const HeadSurvey survey = survey_of(read_all(kTexts), false);
  const auto chosen = chosen_heads(survey, {.sort = HeadMeasure::previous});
  ASSERT_EQ(chosen.size(), 12u);
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    EXPECT_GE(chosen[i - 1].of(HeadMeasure::previous).mean, chosen[i].of(HeadMeasure::previous).mean);
  }
  const double bound = chosen[4].of(HeadMeasure::previous).mean;
  EXPECT_EQ(chosen_heads(survey, {.sort = HeadMeasure::previous, .min = bound}).size(), 5u);
  EXPECT_EQ(chosen_heads(survey, {.sort = HeadMeasure::previous, .max = bound}).size(), 8u);
  for (const HeadMeasures& head : chosen_heads(survey, {.layer = 2})) EXPECT_EQ(head.layer, 2);
  EXPECT_EQ(chosen_heads(survey, {.layer = 2}).size(), 4u);
  EXPECT_EQ(chosen_heads(survey, {.head = 3}).size(), 3u);
  EXPECT_EQ(rejection([&] { chosen_heads(survey, {.layer = 3}); }), "layer 3 does not exist; expected 0 to 2");
  EXPECT_EQ(rejection([&] { chosen_heads(survey, {.head = -1}); }), "head -1 does not exist; expected 0 to 3");
  EXPECT_TRUE(has(rejection([&] { chosen_heads(survey, {.min = 0.5}); }), "requires a measure"));
  EXPECT_EQ(rejection([] { parse_head_measure("sink"); }),
            "unknown measure \"sink\"; expected one of entropy, special, self, previous, next, distance, contribution");
  for (const HeadMeasure what : kHeadMeasures) EXPECT_EQ(parse_head_measure(head_measure_name(what)), what);
}

TEST(Heads, ResultsDoNotDependOnTheNumberOfThreads) {
  const Sentence sentence = read_sentence(small_sentence_model(), kTexts[0]);
  HeadSurveyor one(small_sentence_model(), false), four(small_sentence_model(), false);
  one.add(sentence, 0, {.num_threads = 1});
  four.add(sentence, 0, {.num_threads = 4});
  EXPECT_EQ(render_heads_json(one.survey(), {}, "x"), render_heads_json(four.survey(), {}, "x"));
}

// ---- text and JSON

TEST(HeadsTextOptions, HasARowForEachHeadWithinTheWidth) {
  const HeadSurvey survey = survey_of(read_all(kTexts), false);
  for (const int width : {40, 60, 80, 200}) {
    for (const bool full : {false, true}) {
      const std::string text = render_heads_text(survey, {}, {.width = width, .full = full});
      std::size_t begin = 0;
      for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        EXPECT_LE(display_width(text.substr(begin, end - begin)), width);
      }
      for (const HeadMeasure what : kHeadMeasures) EXPECT_TRUE(has(text, std::string(head_measure_name(what))));
      for (const char* head : {"\nL0H0 ", "\nL2H3 "}) EXPECT_TRUE(has(text, head));
    }
  }
  EXPECT_TRUE(has(render_heads_text(survey, {.sort = HeadMeasure::self, .min = 2.0}), "No head has a mean within"));
}

TEST(HeadsTextOptions, IsAsciiWithoutUnicode) {
  const std::string text = render_heads_text(survey_of(read_all({kTexts[2]}), true), {}, {.unicode = false});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char b) { return b == '\n' || (b >= ' ' && b <= '~'); }))
      << text;
}

TEST(HeadsJson, ContainsEveryFigure) {
  const HeadSurvey survey = survey_of(read_all(kTexts), false);
  const JsonValue json = read_json(render_heads_json(survey, {}, "regard heads"), "heads");
  EXPECT_EQ(json.members().front().first, "schema");
  EXPECT_EQ(json.find("command")->text(), "regard heads");
  EXPECT_EQ(json.find("texts")->items().size(), 3u);
  EXPECT_EQ(json.find("texts")->items()[1].find("line")->number(), 2);
  EXPECT_EQ(json.find("model")->find("sha256")->text().size(), 64u);
  const JsonValue& heads = *json.find("heads");
  ASSERT_EQ(heads.items().size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    for (const HeadMeasure what : kHeadMeasures) {
      const JsonValue& figure = *heads.items()[i].find(head_measure_name(what));
      const HeadStatistic& s = survey.heads[i].of(what);
      EXPECT_EQ(figure.find("mean")->number(), s.mean);
      EXPECT_EQ(figure.find("deviation")->number(), s.deviation);
      EXPECT_EQ(figure.find("n")->number(), static_cast<double>(s.n));
      EXPECT_EQ(figure.find("uniform")->number(), s.uniform);
    }
  }
}

}  // namespace
}  // namespace regard::heads_test
