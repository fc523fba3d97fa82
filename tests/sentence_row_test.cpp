// SPDX-License-Identifier: Apache-2.0
//
// One head's row in a small model against the formulas of docs/guide/sentence.md as plain loops over the trace; the
// most informative head against every pair; the screen: its sums in printed digits, its width, untrusted words; the
// JSON.
// Read next: sentence_model.h, regard/explain/sentence_row.h, regard/explain/sentence_report.h.
#include "regard/explain/sentence_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "regard/explain/sentence_report.h"
#include "regard/io/json.h"
#include "regard/io/utf8.h"
#include "support/sentence_model.h"

namespace regard::sentence_row_test {
namespace {

constexpr double kBound = 1e-5;  // double sums here against float sums of the kernels, for numbers of size 1 to 10
const char* const kText = "he sat on the bank of the river, embeddings.";

const SentenceModel& model() { return small_sentence_model(); }
Sentence read(std::string_view text, const std::vector<std::string>& hide = {}) {
  return read_sentence(model(), text, {.hide = hide, .truncate = false});
}
double f(float x) { return static_cast<double>(x); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
// In one line.
std::string flat(const std::string& text) {
  std::string all;
  for (const std::string& line : lines_of(text))
    all += (all.empty() ? "" : " ") + line.substr(std::min(line.size(), line.find_first_not_of(' ')));
  return all;
}
int widest(const std::string& text) {
  int maximum = 0;
  for (const std::string& line : lines_of(text)) maximum = std::max(maximum, display_width(line));
  return maximum;
}

TEST(SentenceRow, ScoresAndWeightsMatchTheKernels) {
  for (const std::vector<std::string>& hide : {std::vector<std::string>{}, {"river", "embeddings"}}) {
    const Sentence sentence = read(kText, hide);
    for (Index layer = 0; layer < 3; ++layer) {
      const Tensor<float, 3> weights = trace_weights(sentence.trace, layer);
      const Tensor<float, 3> scores = trace_weights(sentence.trace, layer, WeightsKind::scores);
      for (Index head = 0; head < 4; ++head) {
        for (Index word = 0; word < static_cast<Index>(sentence.words.size()); ++word) {
          const SentenceRow row = sentence_row(model(), sentence, layer, head, word);
          const Tensor<double, 2> by_word = word_weights(sentence, weights, head);
          double total = 0;
          for (const RowKey& key : row.keys) {
            EXPECT_NEAR(key.weight, by_word(word, key.word), kBound);
            EXPECT_EQ(key.hidden, std::count(sentence.hidden.begin(), sentence.hidden.end(), key.word) == 1);
            EXPECT_EQ(key.special, sentence.words[static_cast<std::size_t>(key.word)].special);
            if (key.hidden) {
              EXPECT_EQ(key.weight + key.contribution, 0.0);
            }
            total += key.weight;
          }
          EXPECT_NEAR(total, 1.0, 1e-12);
          for (std::size_t q = 0; q < row.queries.size(); ++q) {
            for (Index k = 0; k < weights.shape()[2]; ++k) {
              const Index piece = static_cast<Index>(q);
              const float score = scores(head, row.queries[q], k);
              EXPECT_NEAR(row.weights(piece, k), f(weights(head, row.queries[q], k)), kBound);
              if (std::isinf(score)) {
                EXPECT_EQ(row.scores(piece, k), -std::numeric_limits<double>::infinity());
              } else {
                EXPECT_NEAR(row.scores(piece, k), f(score), kBound);
                EXPECT_NEAR(row.dots(piece, k), row.scores(piece, k) * std::sqrt(10.0), 1e-12);
              }
            }
          }
        }
      }
    }
  }
}

TEST(SentenceRow, ContributionsAndNormsMatchTheOutputProjection) {
  const Sentence sentence = read(kText);
  const Index bank = word_index(sentence.words, "bank"), embeddings = word_index(sentence.words, "embeddings");
  for (Index layer = 0; layer < 3; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      const SentenceRow row = sentence_row(model(), sentence, layer, head, bank);
      const std::vector<double> added =
          contribution_norms(model().encoder, sentence.trace, layer, head, row.queries[0]);
      for (const RowKey& key : row.keys) {
        const auto& tokens = sentence.words[static_cast<std::size_t>(key.word)].tokens;
        if (tokens.size() == 1) {
          EXPECT_NEAR(key.contribution, added[static_cast<std::size_t>(tokens[0])], kBound);
        }
      }
      // The contribution of several pieces is the norm of the sum of theirs, at most the sum of their norms.
      const LayerTrace& trace = sentence.trace.layers[static_cast<std::size_t>(layer)];
      double together = 0, length = 0;
      for (Index e = 0; e < model().encoder.config.width; ++e) {
        double sum = 0;
        for (const Index token : sentence.words[static_cast<std::size_t>(embeddings)].tokens) {
          for (Index d = 0; d < 10; ++d) {
            sum += row.weights(0, token) * f(trace.value(head, token, d)) *
                   f(model().encoder.layers[static_cast<std::size_t>(layer)].w_output(head * 10 + d, e));
          }
        }
        length += sum * sum;
      }
      for (const Index token : sentence.words[static_cast<std::size_t>(embeddings)].tokens) {
        together += added[static_cast<std::size_t>(token)];
      }
      EXPECT_NEAR(row.keys[static_cast<std::size_t>(embeddings)].contribution, std::sqrt(length), 1e-12);
      EXPECT_LE(row.keys[static_cast<std::size_t>(embeddings)].contribution, together + kBound);

      const Tensor<float, 2> handed = head_output(model().encoder, sentence.trace, layer, head);
      double head_length = 0, input_norm = 0, all_length = 0;
      for (Index e = 0; e < handed.shape()[1]; ++e) {
        head_length += f(handed(row.queries[0], e)) * f(handed(row.queries[0], e));
        input_norm += f(trace.input(row.queries[0], e)) * f(trace.input(row.queries[0], e));
        all_length += f(trace.attention_output(row.queries[0], e)) * f(trace.attention_output(row.queries[0], e));
      }
      EXPECT_NEAR(row.head_contribution, std::sqrt(head_length), kBound);
      EXPECT_NEAR(row.heads_contribution, std::sqrt(all_length), kBound);
      EXPECT_NEAR(row.input_norm, std::sqrt(input_norm), kBound);
      for (Index d = 0; d < 10; ++d) {
        EXPECT_NEAR(row.context[static_cast<std::size_t>(d)], f(trace.context(head, row.queries[0], d)), kBound);
      }
    }
  }
}

TEST(SentenceRow, RejectsInvalidIndices) {
  const Sentence sentence = read("he sat");
  EXPECT_TRUE(has(rejection([&] { sentence_row(model(), sentence, 3, 0, 1); }), "layer 3"));
  EXPECT_TRUE(has(rejection([&] { sentence_row(model(), sentence, -1, 0, 1); }), "layer -1"));
  EXPECT_TRUE(has(rejection([&] { sentence_row(model(), sentence, 0, 4, 1); }), "head 4"));
  EXPECT_TRUE(has(rejection([&] { sentence_row(model(), sentence, 0, 0, 4); }), "word 4"));
  const SentenceRow row = sentence_row(model(), sentence, 0, 0, 1);
  EXPECT_TRUE(has(rejection([&] { expand_dot(sentence, row, 2, 1); }), "token 2"));
  EXPECT_TRUE(has(rejection([&] { expand_dot(sentence, row, 1, 4); }), "token 4"));
}

TEST(ExpandDot, ListsEveryProductLargestFirst) {
  const Sentence sentence = read(kText);
  const SentenceRow row = sentence_row(model(), sentence, 1, 2, 5);
  const ExpandedDot expanded = expand_dot(sentence, row, row.queries[0], 3);
  ASSERT_EQ(expanded.terms.size(), 10u);
  double sum = 0;
  std::vector<bool> seen(10);
  for (std::size_t n = 0; n < 10; ++n) {
    const DotTerm& term = expanded.terms[n];
    EXPECT_EQ(term.product, term.query * term.key);
    EXPECT_EQ(term.query, f(sentence.trace.layers[1].query(2, row.queries[0], term.dimension)));
    EXPECT_EQ(term.key, f(sentence.trace.layers[1].key(2, 3, term.dimension)));
    if (n > 0) {
      EXPECT_LE(std::fabs(term.product), std::fabs(expanded.terms[n - 1].product));
    }
    EXPECT_FALSE(seen[static_cast<std::size_t>(term.dimension)]);
    seen[static_cast<std::size_t>(term.dimension)] = true;
    sum += term.product;
  }
  EXPECT_NEAR(sum, expanded.dot, 1e-12);
  EXPECT_EQ(expanded.dot, row.dots(0, 3));
}

TEST(SoftmaxTerm, IsTheWeightAndShiftsOnlyUnreadableExponentials) {
  SentenceRow row{.queries = {0}};
  row.weights = Tensor<double, 2>({1, 2});
  for (const double maximum : {2.0, 8.9, -2.9, 9.1, 300.0, -3.1, -800.0}) {
    row.scores = Tensor<double, 2>({1, 2});
    row.scores(0, 0) = maximum;
    row.scores(0, 1) = maximum - 1;
    const SoftmaxTerm term = softmax_term(row, 0, 1);
    EXPECT_EQ(term.shift, maximum >= -3 && maximum <= 9 ? 0.0 : maximum);
    EXPECT_NEAR(term.exponential / term.sum, std::exp(-1.0) / (1 + std::exp(-1.0)), 1e-12) << maximum;
  }
}

TEST(IsContentWord, ExcludesFunctionWordsAndPunctuation) {
  for (const char* word : {"river", "42", "Straße", "河", "a1", "№", "😀", "don’t"})
    EXPECT_TRUE(is_content_word(word)) << word;
  for (const char* word : {"the", "The", "OF", "it", "was", "?", "—", "", " ", "'", "t", "\xff", "yourselves", "a"}) {
    EXPECT_FALSE(is_content_word(word)) << word;
  }
}

// The distance table of one sentence, in plain loops.
double baseline_of(const Sentence& sentence, Index layer, Index head, Index distance) {
  const Tensor<double, 2> weights = word_weights(sentence, trace_weights(sentence.trace, layer), head);
  double sum = 0, count = 0;
  const auto clipped = [](Index x) { return std::max<Index>(-16, std::min<Index>(16, x)); };
  for (Index q = 0; q < static_cast<Index>(sentence.words.size()); ++q) {
    for (Index k = 0; k < static_cast<Index>(sentence.words.size()); ++k) {
      if (sentence.words[static_cast<std::size_t>(q)].special || sentence.words[static_cast<std::size_t>(k)].special)
        continue;
      if (clipped(k - q) != clipped(distance)) continue;
      sum += weights(q, k);
      ++count;
    }
  }
  return count == 0 ? 0.0 : sum / count;
}

TEST(AddDistances, AveragesOverPairsAndPoolsFarDistances) {
  std::string text;
  for (int n = 0; n < 22; ++n) text += "he sat ";
  const Sentence sentence = read(text.substr(0, text.size() - 42));  // 38 words fit
  DistanceSums sums;
  add_distances(sentence, sums);
  for (const Index distance : {-30, -17, -16, -15, -1, 0, 1, 15, 16, 40}) {
    EXPECT_NEAR(sums.mean(2, 3, distance), baseline_of(sentence, 2, 3, distance), 1e-9) << distance;
  }
  add_distances(sentence, sums);
  EXPECT_NEAR(sums.mean(0, 1, 4), baseline_of(sentence, 0, 1, 4), 1e-9);
  sums.num_heads = 5;
  EXPECT_TRUE(has(rejection([&] { add_distances(sentence, sums); }), "5"));
}

TEST(RankedHeads, RanksBySalienceOverContentWords) {
  const Sentence sentence = read("he sat on the bank of the river.", {"sat"});
  const Index bank = word_index(sentence.words, "bank");
  const RankedHeads ranked = ranked_heads(sentence, "another model", bank);
  EXPECT_EQ(ranked.baseline, Baseline::this_sentence);
  ASSERT_EQ(ranked.heads.size(), 12u);
  for (std::size_t n = 0; n < ranked.heads.size(); ++n) {
    const AttentionPair& one = ranked.heads[n];
    // sat is hidden, the others are function words and a full stop: only river is left.
    EXPECT_EQ(one.word, bank);
    EXPECT_EQ(one.target, word_index(sentence.words, "river"));
    EXPECT_NEAR(one.baseline, baseline_of(sentence, one.layer, one.head, 3), 1e-9);
    const Tensor<double, 2> weights = word_weights(sentence, trace_weights(sentence.trace, one.layer), one.head);
    EXPECT_EQ(one.weight, weights(bank, one.target));
    if (n > 0) {
      EXPECT_LE(one.salience(), ranked.heads[n - 1].salience());
    }
  }
}

TEST(RankedHeads, UsesTheBestPairOfContentWordsWithoutAWord) {
  const Sentence sentence = read("she put her money in the bank");
  const RankedHeads ranked = ranked_heads(sentence, "", std::nullopt);
  double best = -1;
  for (const char* query : {"put", "money", "bank"}) {
    for (const char* target : {"put", "money", "bank"}) {
      if (query == target) continue;
      const Index q = word_index(sentence.words, query), k = word_index(sentence.words, target);
      for (Index layer = 0; layer < 3; ++layer) {
        for (Index head = 0; head < 4; ++head) {
          const Tensor<double, 2> weights = word_weights(sentence, trace_weights(sentence.trace, layer), head);
          best = std::max(best, weights(q, k) - baseline_of(sentence, layer, head, k - q));
        }
      }
    }
  }
  EXPECT_NEAR(ranked.heads.front().salience(), best, 1e-9);
}

TEST(RankedHeads, FallBackToOtherWordsThenToSpecialTokens) {
  const Sentence of_the = read("of the");
  EXPECT_EQ(ranked_heads(of_the, "", 1).heads.front().target, 2);
  const Sentence one = read("bank");
  EXPECT_NE(ranked_heads(one, "", 1).heads.front().target, 1);
  const Sentence none = read("");
  EXPECT_EQ(ranked_heads(none, "", std::nullopt).heads.size(), 12u);
  EXPECT_TRUE(has(rejection([&] { ranked_heads(one, "", 3); }), "word 3"));
}

TEST(MinilmMeanWeight, IsClippedAndRejectsOtherHeads) {
  EXPECT_EQ(minilm_mean_weight(0, 4, 16), minilm_mean_weight(0, 4, 500));
  EXPECT_EQ(minilm_mean_weight(0, 2, -1), 0.9918);  // a head that attends one word back
  EXPECT_NE(rejection([] { minilm_mean_weight(6, 0, 0); }), "accepted");
  EXPECT_NE(rejection([] { minilm_mean_weight(0, 12, 0); }), "accepted");
}

// ---- the analysis

TEST(AnalyzeSentence, KeepsTheRowBeforeHiding) {
  const SentenceAnalysis plain = analyze_sentence(model(), kText, {.query = "bank"});
  const SentenceAnalysis analysis = analyze_sentence(model(), kText, {.query = "bank", .hide = {"river"}});
  ASSERT_TRUE(analysis.before.has_value());
  EXPECT_EQ(analysis.chosen.layer, plain.chosen.layer);
  EXPECT_EQ(analysis.chosen.head, plain.chosen.head);
  for (std::size_t w = 0; w < plain.row.keys.size(); ++w) {
    EXPECT_EQ(analysis.before->keys[w].weight, plain.row.keys[w].weight);
  }
  const Index river = word_index(analysis.sentence.words, "river");
  EXPECT_TRUE(analysis.row.keys[static_cast<std::size_t>(river)].hidden);
  EXPECT_NE(analysis.attended, river);
  const Sentence hidden = read(kText, {"river"});
  EXPECT_NEAR(analysis.kept.back(),
              cosine(word_vector(hidden, hidden.trace.output(), analysis.chosen.word),
                     word_vector(plain.sentence, plain.sentence.trace.output(), analysis.chosen.word)),
              1e-12);
  EXPECT_LT(analysis.kept.back(), 1.0 - 1e-9);
}

TEST(AnalyzeSentence, UsesTheNamedHead) {
  const SentenceAnalysis analysis = analyze_sentence(model(), kText, {.query = "river", .layer = 2, .head = 1});
  EXPECT_EQ(analysis.row.layer, 2);
  EXPECT_EQ(analysis.row.head, 1);
  EXPECT_EQ(analysis.row.word, word_index(analysis.sentence.words, "river"));
  EXPECT_TRUE(has(rejection([] { analyze_sentence(model(), kText, {.layer = 3, .head = 0}); }), "L3H0 does not exist"));
  EXPECT_TRUE(has(rejection([] { analyze_sentence(model(), kText, {.layer = 2}); }), "both or neither"));
  EXPECT_TRUE(
      has(rejection([] { analyze_sentence(model(), kText, {.query = "money"}); }), "\"money\" is not in this text"));
}

TEST(SentenceDetails, AddsUpToTheEncodersVectors) {
  for (Index layer = 0; layer < 3; ++layer) {
    const SentenceAnalysis analysis =
        analyze_sentence(model(), kText, {.query = "bank", .layer = layer, .head = 1, .full = true});
    ASSERT_TRUE(analysis.details.has_value());
    const SentenceDetails& work = *analysis.details;
    for (const auto* numbers : {&work.query_elements, &work.key_elements, &work.value_elements}) {
      ASSERT_EQ(numbers->size(), 10u);
      for (const ProjectedElement& one : *numbers) {
        double sum = one.others + one.bias;
        for (const DotTerm& term : one.largest) sum += term.product;
        EXPECT_NEAR(sum, one.value, kBound);
      }
    }
    const EncoderLayer& parameters = model().encoder.layers[static_cast<std::size_t>(layer)];
    const Encoder& encoder = model().encoder;
    for (std::size_t e = 0; e < work.output.size(); ++e) {
      const Index i = static_cast<Index>(e);
      EXPECT_NEAR(work.head_share[e] + work.other_heads[e] + f(work.b_output[e]), f(work.attention_output[e]), kBound);
      const auto normed = [&](double x, const NormDetails& norm, float gain, float bias) {
        return (x - norm.mean) / norm.deviation * f(gain) + f(bias);
      };
      EXPECT_NEAR(normed(f(work.word[e]) + f(work.position[e]) + f(work.type[e]), work.embedding_norm,
                         encoder.norm_embedding_gain(i), encoder.norm_embedding_bias(i)),
                  f(work.embedded[e]), kBound);
      EXPECT_NEAR(normed(f(work.input[e]) + f(work.attention_output[e]), work.attention_norm,
                         parameters.norm_attention_gain(i), parameters.norm_attention_bias(i)),
                  f(work.attention_normed[e]), kBound);
      EXPECT_NEAR(normed(f(work.attention_normed[e]) + f(work.feed_forward[e]), work.output_norm,
                         parameters.norm_output_gain(i), parameters.norm_output_bias(i)),
                  f(work.output[e]), kBound);
      double sum = f(parameters.b_down(i));
      for (const FeedForwardUnit& unit : work.units) sum += unit.after * f(parameters.w_down(unit.unit, i));
      EXPECT_NEAR(sum, f(work.feed_forward[e]), kBound);
    }
  }
}

TEST(AnalyzeSentence, HidesEachOtherWordAlone) {
  const SentenceAnalysis analysis = analyze_sentence(model(), "he sat on the bank of the river", {.query = "bank"});
  ASSERT_EQ(analysis.alone.size(), 7u);
  EXPECT_EQ(analysis.not_hidden_alone, 0);
  const Sentence plain = read("he sat on the bank of the river");
  const Index bank = word_index(plain.words, "bank");
  double before = -1;
  std::vector<Index> words;
  for (const HiddenWord& one : analysis.alone) {
    const Sentence hidden =
        read("he sat on the bank of the river",
             {"@" + std::to_string(plain.words[static_cast<std::size_t>(one.word)].tokens.front())});
    EXPECT_EQ(one.cosine,
              cosine(word_vector(hidden, hidden.trace.output(), bank), word_vector(plain, plain.trace.output(), bank)));
    EXPECT_LE(before, one.cosine);
    before = one.cosine;
    words.push_back(one.word);
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(words, (std::vector<Index>{1, 2, 3, 4, 6, 7, 8}));
  // The same bits with one thread, whatever else is hidden.
  const SentenceAnalysis again = analyze_sentence(model(), "he sat on the bank of the river",
                                                  {.query = "bank", .hide = {"river"}}, Runtime{.num_threads = 1});
  for (std::size_t n = 0; n < 7; ++n) EXPECT_EQ(again.alone[n].cosine, analysis.alone[n].cosine);
}

TEST(AnalyzeSentence, HidesTheTwelveHeaviestWordsAndCountsTheRest) {
  std::string text = "bank";
  for (int n = 0; n < 20; ++n) text += n % 2 == 0 ? " he" : " sat";
  Index done = 0, total = 0;
  Runtime runtime;
  runtime.num_threads = 1;
  runtime.progress = [&](Index d, Index t) { done = d, total = t; };
  const SentenceAnalysis analysis = analyze_sentence(model(), text, {.query = "bank"}, runtime);
  ASSERT_EQ(analysis.alone.size(), 12u);
  EXPECT_EQ(analysis.not_hidden_alone, 8);
  EXPECT_EQ(done, 12);
  EXPECT_EQ(total, 12);
  std::vector<double> weights;
  for (const RowKey& key : analysis.row.keys) {
    if (!key.special && key.word != analysis.chosen.word) weights.push_back(key.weight);
  }
  std::sort(weights.rbegin(), weights.rend());
  for (const HiddenWord& one : analysis.alone)
    EXPECT_GE(analysis.row.keys[static_cast<std::size_t>(one.word)].weight, weights[11]);
  EXPECT_TRUE(has(flat(render_sentence_text(analysis, {})),
                  "12 other words, hidden one at a time (those with the largest weights; 8 more were not tried)"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(analyze_sentence(model(), text, {.query = "bank"}, Runtime{.stop = stop.get_token()}), Cancelled);
}

TEST(AnalyzeSentence, ComparesTheChosenHeadWithAll) {
  const SentenceAnalysis analysis = analyze_sentence(model(), kText, {.query = "bank"});
  const PairInHeads all = pair_in_heads(analysis);
  double mean = 0, special = 0;
  for (Index layer = 0; layer < 3; ++layer) {
    const Tensor<float, 3> weights = trace_weights(analysis.sentence.trace, layer);
    for (Index head = 0; head < 4; ++head) {
      const Tensor<double, 2> by_word = word_weights(analysis.sentence, weights, head);
      mean += by_word(analysis.chosen.word, analysis.chosen.target) / 12;
      special += (by_word(analysis.chosen.word, 0) +
                  by_word(analysis.chosen.word, static_cast<Index>(analysis.sentence.words.size()) - 1)) /
                 12;
      EXPECT_EQ(analysis.attention(layer, head, analysis.chosen.target),
                by_word(analysis.chosen.word, analysis.chosen.target));
    }
  }
  EXPECT_NEAR(all.mean, mean, 1e-12);
  EXPECT_NEAR(all.special, special, 1e-12);
  EXPECT_NEAR(all.uniform, 4.0 / 16, 1e-12);  // embeddings: 4 of 16 tokens
  const auto percent = [](double share) { return std::to_string(std::lround(100 * share)) + " %"; };
  EXPECT_TRUE(has(flat(render_sentence_text(analysis, {})), "This head was selected from 12, whose average is " +
                                                                percent(mean) + " on “embeddings”‡ and " +
                                                                percent(special) + " on [CLS] and [SEP]."));
  const SentenceAnalysis named = analyze_sentence(model(), kText, {.query = "bank", .layer = 1, .head = 0});
  EXPECT_TRUE(has(flat(render_sentence_text(named, {})), "This head was specified; the average of all 12 heads is "));
}

TEST(AnalyzeSentence, RejectsATextWithoutWords) {
  for (const char* text : {"", "  ", "\t\n "})
    EXPECT_TRUE(
        has(rejection([&] { analyze_sentence(model(), text); }), "the text is empty; expected at least one word"));
}

TEST(SentenceFindings, NumberRepeatedWordsAndMarkUnknownAndSplitOnes) {
  const SentenceAnalysis analysis =
      analyze_sentence(model(), "he sat on 🍕 he embeddings", {.query = "sat", .full = true});
  const std::string text = render_sentence_text(analysis, {});
  EXPECT_TRUE(has(text, "  he#0 ") && has(text, "  he#1 ") && has(text, "  🍕 † ") && has(text, "  embeddings ‡"))
      << text;
  EXPECT_TRUE(has(flat(text), "† not in the vocabulary: the model sees [UNK], as for any such word")) << text;
  EXPECT_TRUE(has(flat(text), "‡ split into pieces")) << text;
  const std::string ascii = render_sentence_text(analysis, {.unicode = false});
  EXPECT_TRUE(has(ascii, "\\u{1f355} ! ") && has(ascii, "embeddings +")) << ascii;
  const JsonValue json = read_json(render_sentence_json(analysis, {}), "output");
  EXPECT_EQ(json.find("words")->items()[1].find("name")->text(), "he#0");
  EXPECT_TRUE(json.find("words")->items()[4].find("unknown")->boolean());
  EXPECT_FALSE(json.find("words")->items()[6].find("unknown")->boolean());
  EXPECT_EQ(json.find("findings")->find("finding")->text(), sentence_findings(analysis).finding);
  EXPECT_EQ(json.find("hidden_alone")->items().size(), 5u);
  EXPECT_FALSE(has(render_sentence_text(analyze_sentence(model(), "he sat"), {}), "†"));
}

TEST(SentenceFindings, CompareHiddenWordsWithOtherWords) {
  const SentenceAnalysis analysis =
      analyze_sentence(model(), "he sat on the river", {.query = "sat", .hide = {"river"}});
  const SentenceFindings found = sentence_findings(analysis);
  EXPECT_TRUE(has(found.finding, ", with “river” hidden in all layers, “sat” ")) << found.finding;
  EXPECT_TRUE(has(found.evidence, "control, 3 other words hidden one at a time: ")) << found.evidence;
}

TEST(SentenceFindings, PrintFarDistancesAsSixteenOrMore) {
  std::string text = "river";
  for (int n = 0; n < 20; ++n) text += " of";
  const SentenceAnalysis analysis = analyze_sentence(model(), text + " bank", {.query = "bank"});
  EXPECT_TRUE(has(sentence_findings(analysis).finding, "baseline of this head 16 or more words back: at most "))
      << sentence_findings(analysis).finding;
}

TEST(RankedHeads, ComparesFarWordsWithTheLargestBaselineOfTheHead) {
  // L0H2 of MiniLM attends to the word before, whatever it is.
  EXPECT_EQ(minilm_baseline(0, 2, -1), 0.9918);
  EXPECT_EQ(minilm_baseline(0, 2, 15), minilm_mean_weight(0, 2, 15));
  for (const Index far : {-400, -16, 16, 310}) EXPECT_EQ(minilm_baseline(0, 2, far), 0.9918);
}

// ---- the screen

// Hundredths of the number that ends at a column of a line; "<.01" and nothing count as 0.
long hundredths(const std::string& text) {
  const std::size_t begin = text.find_last_of(' ') + 1;
  const std::string number = text.substr(begin);
  return number.starts_with('<') || number.empty() ? 0 : std::lround(100 * std::stod(number));
}

// The line over the table.
std::size_t table_head(const std::vector<std::string>& lines) {
  std::size_t head = 0;
  while (!lines.at(head).starts_with("  key ") || !has(lines.at(head), "contribution")) ++head;
  return head;
}

TEST(RenderSentenceText, PrintsTheRowAndNotesRounding) {
  for (const char* token : {"he", "sat", "bank", "river"}) {
    const SentenceAnalysis analysis = analyze_sentence(model(), "he sat on the bank of the river", {.query = token});
    const std::string text = render_sentence_text(analysis, {});
    const std::vector<std::string> lines = lines_of(text);
    const std::size_t header = table_head(lines);
    const std::size_t weight_end = lines[header].find("weight") + 6 - (std::string("·÷√").size() - 3);
    long printed = 0;
    for (std::size_t w = 0; w < analysis.row.keys.size(); ++w) {
      const std::string cell = lines.at(header + 1 + w).substr(0, weight_end);
      const double weight = analysis.row.keys[w].weight;
      EXPECT_EQ(hundredths(cell), std::lround(100 * weight)) << lines.at(header + 1 + w);
      printed += std::lround(100 * weight);
    }
    EXPECT_EQ(has(text, "the weights of a row sum to 1"), printed == 100) << text;
    if (printed != 100) {
      EXPECT_TRUE(has(text, "a row sums to 1; rounded figures sum to")) << text;
    }
  }
}

TEST(RenderSentenceText, FitsTheWidth) {
  std::string longer;
  for (int n = 0; n < 9; ++n) longer += "embeddings sat on the bank ";
  for (const std::string& text : {std::string(kText), longer, std::string("embeddings")}) {
    for (const int width : {60, 80, 200}) {
      for (const bool unicode : {true, false}) {
        SentenceAnalysisOptions options{.truncate = true, .full = true};
        const SentenceTextOptions shown{.width = width, .unicode = unicode, .all_heads = true};
        EXPECT_LE(widest(render_sentence_text(analyze_sentence(model(), text, options), shown)), width)
            << text << width;
        options.hide = {text == kText ? "river" : "embeddings"};
        if (text == longer) options.hide = {"embeddings#1", "@1"};
        options.layer = 2;
        options.head = 3;
        EXPECT_LE(widest(render_sentence_text(analyze_sentence(model(), text, options), shown)), width)
            << text << width;
      }
    }
  }
}

TEST(RenderSentenceText, FitsOneScreenForLongSentences) {
  std::string text;
  for (int n = 0; n < 35; ++n) text += n % 3 == 0 ? "bank " : n % 3 == 1 ? "sat " : "river ";
  const SentenceAnalysis analysis = analyze_sentence(model(), text, {.query = "bank#3"});
  const std::string screen = render_sentence_text(analysis, {});
  EXPECT_LE(lines_of(screen).size(), 40u);
  EXPECT_TRUE(has(screen, "25 others")) << screen;
  const std::string three = render_sentence_text(analysis, {.top = 3});
  EXPECT_TRUE(has(three, "34 others")) << three;
  const std::string bare = render_sentence_text(analysis, {.no_special = true, .top = 3});
  EXPECT_TRUE(has(bare, "2 special *") && has(bare, "32 others")) << bare;
}

TEST(RenderSentenceText, OrdersByWeightAndByContribution) {
  const SentenceAnalysis analysis = analyze_sentence(model(), "he sat on the bank of the river", {.query = "bank"});
  for (const bool by_contribution : {false, true}) {
    std::vector<RowKey> keys = analysis.row.keys;
    std::sort(keys.begin(), keys.end(), [&](const RowKey& a, const RowKey& b) {
      return by_contribution ? a.contribution > b.contribution : a.weight > b.weight;
    });
    const std::vector<std::string> lines = lines_of(
        render_sentence_text(analysis, {.order = by_contribution ? RowOrder::contribution : RowOrder::weight}));
    const std::size_t header = table_head(lines);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      const std::string& word = analysis.sentence.words[static_cast<std::size_t>(keys[n].word)].text;
      EXPECT_TRUE(lines.at(header + 1 + n).starts_with("  " + word)) << lines.at(header + 1 + n) << " / " << word;
    }
  }
}

TEST(RenderSentenceText, ExplainsTheNumbersOfSplitWords) {
  const std::string pieces = render_sentence_text(analyze_sentence(model(), kText, {.query = "embeddings"}), {});
  EXPECT_TRUE(has(pieces, "4 pieces, em ##bed ##ding ##s") && has(flat(pieces), "averaged over the query’s")) << pieces;
  const std::string attended = render_sentence_text(analyze_sentence(model(), kText, {.query = "bank"}), {});
  EXPECT_TRUE(has(attended, "    ##ding") && has(attended, "whose weights ( ) sum to the word’s")) << attended;
  const std::string later =
      render_sentence_text(analyze_sentence(model(), kText, {.query = "bank", .layer = 1, .head = 0}), {});
  EXPECT_TRUE(has(flat(later), "Layer 0 has already mixed other words into the vector at ")) << later;
}

TEST(RenderSentenceText, FullShowsEverything) {
  const std::string text = render_sentence_text(analyze_sentence(model(), kText, {.query = "bank", .full = true}), {});
  for (const char* part : {"word + position + type", "40 = 4 heads × 10", "Why √10", "an encoder has no mask", "(bias)",
                           "b_output", "feed-forward", "normalized", "gelu"}) {
    EXPECT_TRUE(has(text, part)) << part;
  }
}

TEST(RenderSentenceText, EscapesUntrustedWords) {
  const std::string untrusted =
      "</script><img onerror> \x1b]0;x\a \u202e ri\u202ever x\x1by \\input{x} =1+1 \xff\xfe " + std::string(1, '\0') +
      " bank";
  for (const bool color : {false, true}) {
    SentenceAnalysisOptions options{.query = "bank", .full = true};
    const std::string text = render_sentence_text(analyze_sentence(model(), untrusted, options), {.color = color});
    std::string bare = text;
    for (std::size_t at; (at = bare.find("\x1b[")) != std::string::npos;) bare.erase(at, bare.find('m', at) - at + 1);
    for (const char c : bare) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 && c != '\n');
    EXPECT_FALSE(has(bare, "\u202e"));
    EXPECT_EQ(color, text != bare);
    EXPECT_EQ(valid_utf8_bytes(text), text.size());
  }
  const std::string json = render_sentence_json(analyze_sentence(model(), untrusted, {.query = "bank"}), {});
  EXPECT_FALSE(has(json, "<") || has(json, "\u202e") || has(json, "\x1b"));
}

TEST(RenderSentenceText, StatesThatEveryKeyIsHidden) {
  const SentenceAnalysis analysis =
      analyze_sentence(model(), "he sat", {.query = "he", .hide = {"he", "sat", "[CLS]", "[SEP]"}});
  EXPECT_EQ(analysis.row.head_contribution, 0.0);
  const std::string text = render_sentence_text(analysis, {});
  EXPECT_TRUE(has(text, "every key is hidden") && has(text, "outputs a vector of norm 0")) << text;
}

TEST(RenderSentenceJson, HasTheFullRowAndItsProvenance) {
  const SentenceAnalysis analysis =
      analyze_sentence(model(), kText, {.query = "bank", .hide = {"river"}, .full = true});
  const std::string text = render_sentence_json(analysis, {.command = "regard explain x"});
  EXPECT_TRUE(text.starts_with("{\n \"schema\": \"regard/1\"")) << text.substr(0, 60);
  const JsonValue json = read_json(text, "output");
  EXPECT_EQ(json.find("command")->text(), "regard explain x");
  EXPECT_EQ(json.find("model")->find("sha256")->text(), model().encoder.checkpoint->sha256());
  EXPECT_FALSE(json.find("version")->text().empty());
  EXPECT_FALSE(json.find("instruction_set")->text().empty());
  EXPECT_EQ(json.find("token_ids")->numbers().size(), analysis.sentence.tokens.ids.size());
  const JsonValue& words = *json.find("row")->find("words");
  ASSERT_EQ(words.items().size(), analysis.row.keys.size());
  for (std::size_t w = 0; w < words.items().size(); ++w) {
    EXPECT_EQ(words.items()[w].find("weight")->number(), analysis.row.keys[w].weight);
    EXPECT_EQ(words.items()[w].find("contribution")->number(), analysis.row.keys[w].contribution);
    EXPECT_EQ(json.find("before")->find("words")->items()[w].find("weight")->number(), analysis.before->keys[w].weight);
  }
  EXPECT_EQ(json.find("ranked_heads")->find("heads")->items().size(), 12u);
  EXPECT_EQ(json.find("expanded")->find("products")->items().size(), 10u);
  EXPECT_EQ(json.find("full")->find("output")->numbers().size(), 40u);
}

}  // namespace
}  // namespace regard::sentence_row_test
