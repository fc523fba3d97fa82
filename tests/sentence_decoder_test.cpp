// SPDX-License-Identifier: Apache-2.0
//
// Texts in a decoder: its tokens as words; rows, rankings, findings and measures of heads over visible keys only; every
// value behind a weight, for each kind of decoder.
// Read next: sentence_row_test.cpp, heads_test.cpp, src/explain/sentence/sentence_model.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "regard/error.h"
#include "regard/explain/compare.h"
#include "regard/explain/heads.h"
#include "regard/explain/sentence_html.h"
#include "regard/explain/sentence_report.h"
#include "regard/io/json.h"
#include "regard/io/utf8.h"
#include "support/decoder_cases.h"
#include "support/rejection.h"

namespace regard::sentence_decoder_test {
namespace {

constexpr Index kPositions = 24;
const std::string kText = "d b a d b\nd b";  // 13 characters

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
// The text with its lines joined.
std::string joined(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}
double f(float x) { return static_cast<double>(x); }

SentenceModel model_of(const DecoderConfig& config, const Vocabulary& vocabulary) {
  SentenceModel model{.folder = "runs/tiny"};
  model.trained = TrainedModel{"runs/tiny", tiny_decoder(config), vocabulary};
  return model;
}

Vocabulary letters() { return Vocabulary::characters_of("\n abcdefghijk"); }  // 13 tokens, as in decoder_cases()

struct Case {
  std::string name;
  SentenceModel model;
};
const std::vector<Case>& models() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    for (const auto& [name, config] : decoder_cases(kPositions)) cases.push_back({name, model_of(config, letters())});
    return cases;
  }();
  return all;
}
const SentenceModel& llama() { return models()[2].model; }

// ---- tokens

TEST(SentenceDecoder, EachTokenIsAWord) {
  const Sentence sentence = read_sentence(llama(), kText);
  ASSERT_EQ(sentence.words.size(), 13u);
  std::string text;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    const SentenceWord& word = sentence.words[w];
    EXPECT_EQ(word.tokens, std::vector<Index>{static_cast<Index>(w)});
    EXPECT_FALSE(word.special || word.unknown || word.split());
    text += word.text;
  }
  EXPECT_EQ(text, "d␣b␣a␣d␣b↵d␣b");
  EXPECT_EQ(word_names(sentence.words)[10], "d#2");
  EXPECT_EQ(word_index(sentence.words, "@9"), 9);
  EXPECT_EQ(word_index(sentence.words, "↵"), 9);
  EXPECT_EQ(vocabulary_warning(sentence.words), "");
}

TEST(SentenceDecoder, TokensCoverTheText) {
  DecoderConfig config = decoder_cases(kPositions)[0].second;
  const std::string text = "an é\n  an  \xff";
  const std::string learned = "an an an é é é";
  const Vocabulary pairs = Vocabulary::learn_byte_pairs(learned, 260);
  config.vocabulary = pairs.size();
  const SentenceModel model = model_of(config, pairs);
  const TokenizedText tokens = fitted_tokens(model, text).tokens;
  Index end = 0;
  for (const auto& [begin, next] : tokens.byte_ranges) {
    EXPECT_EQ(begin, end);
    end = next;
  }
  EXPECT_EQ(end, static_cast<Index>(text.size()));
  for (const std::string& word : tokens.words) EXPECT_EQ(valid_utf8_bytes(word), word.size());
  EXPECT_EQ(tokens.words.back(), "\\xFF");
  EXPECT_EQ(tokens.words.front(), "an");

  config.vocabulary = 3;
  const SentenceModel words = model_of(config, Vocabulary::of_words({"^", "ab", "="}));
  const TokenizedText symbols = fitted_tokens(words, "  ^ ab\tab =").tokens;
  EXPECT_EQ(symbols.words, (std::vector<std::string>{"^", "ab", "ab", "="}));
  EXPECT_EQ(symbols.byte_ranges[2], (std::array<Index, 2>{7, 9}));
}

TEST(SentenceDecoder, LongTextsKeepTheirBeginning) {
  const std::string text(kPositions + 3, 'a');
  EXPECT_TRUE(has(rejection([&] { read_sentence(llama(), text); }), "the text has 27 tokens and the model has 24"));
  const Sentence sentence = read_sentence(llama(), text, {.hide = {}, .truncate = true});
  EXPECT_EQ(sentence.words.size(), static_cast<std::size_t>(kPositions));
  EXPECT_EQ(sentence.num_truncated_tokens, 3);
  EXPECT_TRUE(has(joined(render_sentence_text(analyze_sentence(llama(), text + "b", {.truncate = true}), {})),
                  "The text is truncated: 4 tokens at the end were left out, because the model has 24 positions."));
  EXPECT_TRUE(has(rejection([] { read_sentence(llama(), "az"); }), "\"z\" is not one of the 13 tokens"));
  EXPECT_EQ(rejection([] { analyze_sentence(llama(), ""); }), "the text is empty; expected at least one word");
}

// ---- rows

TEST(SentenceDecoder, RowsAreThoseOfTheKernel) {
  for (const auto& [name, model] : models()) {
    SCOPED_TRACE(name);
    const Sentence sentence = read_sentence(model, kText, {.hide = {"a"}});
    for (Index layer = 0; layer < model.extents().num_layers; ++layer) {
      const Tensor<float, 3> weights = trace_weights(sentence.trace, layer);
      for (Index head = 0; head < model.extents().num_heads; ++head) {
        for (const Index word : {0, 4, 7, 12}) {
          const SentenceRow row = sentence_row(model, sentence, layer, head, word);
          double sum = 0;
          for (const RowKey& key : row.keys) {
            EXPECT_NEAR(key.weight, f(weights(head, word, key.word)), 1e-6);
            EXPECT_EQ(key.later, key.word > word);
            EXPECT_EQ(key.hidden, key.word == 4);
            if (key.later || key.hidden) {
              EXPECT_EQ(key.weight, 0);
              EXPECT_EQ(key.contribution, 0);
            }
            sum += key.weight;
          }
          EXPECT_NEAR(sum, 1, 1e-12);
          const LayerTrace& trace = sentence.trace.layers[static_cast<std::size_t>(layer)];
          for (std::size_t d = 0; d < row.context.size(); ++d)
            EXPECT_NEAR(row.context[d], f(trace.context(head, word, static_cast<Index>(d))), 1e-5);
        }
      }
    }
  }
}

TEST(SentenceDecoder, RankingComparesVisiblePairsOnly) {
  const Sentence sentence = read_sentence(llama(), kText);
  DistanceSums sums;
  add_distances(sentence, sums);
  for (Index distance = -kFarthest; distance <= kFarthest; ++distance) {
    const Index expected = distance > 0 ? 0 : std::max<Index>(0, 13 + distance);
    EXPECT_EQ(sums.pairs[static_cast<std::size_t>(distance + kFarthest)], expected) << distance;
  }
  const RankedHeads ranked = ranked_heads(sentence, "", std::nullopt);
  EXPECT_EQ(ranked.baseline, Baseline::this_sentence);
  ASSERT_EQ(ranked.heads.size(), 8u);
  for (const AttentionPair& pair : ranked.heads) {
    EXPECT_LT(pair.target, pair.word);
    EXPECT_NE(sentence.words[static_cast<std::size_t>(pair.target)].text, "␣");
    const double uniform = 1 / static_cast<double>(pair.word + 1);
    const double mean = sums.baseline(pair.layer, pair.head, pair.target - pair.word);
    EXPECT_DOUBLE_EQ(pair.baseline, std::max(mean, uniform));
    EXPECT_NEAR(pair.weight, f(trace_weights(sentence.trace, pair.layer)(pair.head, pair.word, pair.target)), 1e-6);
  }
  for (const AttentionPair& pair : ranked_heads(sentence, "", 0).heads) EXPECT_EQ(pair.target, 0);
}

// ---- the analysis and its texts

TEST(SentenceDecoder, FindingsSpeakOfTokensAndVisibleKeys) {
  const SentenceAnalysis analysis = analyze_sentence(llama(), kText, {.query = "@4"});
  EXPECT_TRUE(analysis.extents.causal);
  EXPECT_EQ(analysis.model, "tiny");
  EXPECT_DOUBLE_EQ(pair_in_heads(analysis).uniform, 1 / 5.0);
  // Later tokens change nothing, so they are not tried.
  ASSERT_EQ(analysis.alone.size(), 4u);
  for (const HiddenWord& hidden : analysis.alone) EXPECT_LT(hidden.word, 4);
  const SentenceFindings findings = sentence_findings(analysis);
  EXPECT_TRUE(has(findings.finding, "(uniform: 20 %;")) << findings.finding;
  EXPECT_TRUE(has(findings.finding, " token")) << findings.finding;
  EXPECT_TRUE(has(findings.evidence, "Test: 4 other earlier tokens, hidden one at a time.")) << findings.evidence;
  EXPECT_TRUE(has(findings.association, "not what the model does with it"));
  for (const std::string* text : {&findings.finding, &findings.selection, &findings.evidence})
    EXPECT_FALSE(has(*text, "word")) << *text;
}

TEST(SentenceDecoder, ScreenLeavesOutLaterTokens) {
  const SentenceAnalysis analysis = analyze_sentence(llama(), kText, {.query = "@4"});
  for (const int width : {40, 80, 120}) {
    const std::string screen = render_sentence_text(analysis, {.width = width});
    for (std::size_t begin = 0; begin < screen.size();) {
      const std::size_t end = screen.find('\n', begin);
      EXPECT_LE(display_width(screen.substr(begin, end - begin)), width);
      begin = end + 1;
    }
    EXPECT_FALSE(has(screen, "special"));
    EXPECT_FALSE(has(screen, "hidden  "));
    EXPECT_FALSE(has(screen, "↵"));  // token 9
  }
  const std::string screen = render_sentence_text(analysis, {});
  EXPECT_TRUE(has(screen, "d b [a] d b\\u{a}d b")) << screen;
  EXPECT_TRUE(has(screen, "a row sums to 1") || has(screen, "the weights of a row sum to 1")) << screen;
  EXPECT_TRUE(has(render_sentence_text(analysis, {.all_heads = true}), "in this text, at least uniform"));

  const SentenceAnalysis hidden = analyze_sentence(llama(), kText, {.query = "@4", .hide = {"@0"}});
  EXPECT_TRUE(has(render_sentence_text(hidden, {}), "hidden"));
}

TEST(SentenceDecoder, JsonMarksLaterTokens) {
  const SentenceAnalysis analysis = analyze_sentence(llama(), kText, {.query = "@4", .full = true});
  const JsonValue json = read_json(render_sentence_json(analysis, {}), "json");
  EXPECT_TRUE(json.find("model")->find("causal")->boolean());
  const std::vector<JsonValue>& words = json.find("row")->find("words")->items();
  ASSERT_EQ(words.size(), 13u);
  for (std::size_t w = 0; w < words.size(); ++w) EXPECT_EQ(words[w].find("later")->boolean(), w > 4);
  EXPECT_NE(json.find("full")->find("residual"), nullptr);
  EXPECT_EQ(json.find("full")->find("type"), nullptr);
  EXPECT_EQ(json.find("full")->find("position"), nullptr);
}

TEST(SentenceDecoder, EverythingBehindAWeightAddsUp) {
  for (const auto& [name, model] : models()) {
    SCOPED_TRACE(name);
    for (Index layer = 0; layer < 2; ++layer) {
      const SentenceAnalysis analysis =
          analyze_sentence(model, kText, {.query = "@7", .layer = layer, .head = 3, .full = true});
      const SentenceDetails& d = *analysis.details;
      const DecoderConfig& config = model.trained->decoder.config;
      EXPECT_EQ(d.rotated, config.positions == PositionKind::rotary);
      EXPECT_EQ(d.rms_norm, config.norm == NormKind::rms);
      const LayerTrace& trace = analysis.sentence.trace.layers[static_cast<std::size_t>(layer)];
      ASSERT_EQ(d.query_elements.size(), static_cast<std::size_t>(config.head_size));
      std::vector<double> query, key;
      for (const auto* elements : {&d.query_elements, &d.key_elements, &d.value_elements}) {
        for (const ProjectedElement& one : *elements) {
          double sum = one.others + one.bias;
          for (const DotTerm& term : one.largest) sum += term.product;
          EXPECT_NEAR(sum, one.value, 1e-5);
        }
      }
      // A rotation keeps the norm.
      double before = 0, after = 0;
      for (Index i = 0; i < config.head_size; ++i) {
        before += std::pow(d.query_elements[static_cast<std::size_t>(i)].value, 2);
        after += std::pow(f(trace.query(3, d.query, i)), 2);
        EXPECT_NEAR(d.value_elements[static_cast<std::size_t>(i)].value, f(trace.value(3, d.key, i)), 1e-5);
      }
      EXPECT_NEAR(before, after, 1e-5 * (1 + after));
      for (std::size_t e = 0; e < d.input.size(); ++e) {
        const double bias = d.b_output.empty() ? 0 : f(d.b_output[e]);
        EXPECT_NEAR(d.head_share[e] + d.other_heads[e] + bias, f(d.attention_output[e]), 1e-5);
        EXPECT_EQ(d.residual[e], d.input[e] + d.attention_output[e]);
        EXPECT_EQ(d.output[e], d.feed_forward.empty() ? d.residual[e] : d.residual[e] + d.feed_forward[e]);
        const double gain = f(
            model.trained->decoder.layers[static_cast<std::size_t>(layer)].norm_attention_gain(static_cast<Index>(e)));
        const TensorView<const float, 1>& norm_bias =
            model.trained->decoder.layers[static_cast<std::size_t>(layer)].norm_attention_bias;
        const double added = norm_bias.absent() ? 0 : f(norm_bias(static_cast<Index>(e)));
        EXPECT_NEAR((f(d.input[e]) - d.input_norm.mean) / d.input_norm.deviation * gain + added,
                    f(d.attention_input[e]), 1e-5);
      }
      if (config.feed_forward_kind == FeedForwardKind::none) {
        EXPECT_TRUE(d.units.empty());
        continue;
      }
      ASSERT_EQ(d.units.size(), static_cast<std::size_t>(config.feed_forward));
      const DecoderLayer& parameters = model.trained->decoder.layers[static_cast<std::size_t>(layer)];
      for (Index e = 0; e < config.width; ++e) {
        double sum = parameters.b_down.absent() ? 0 : f(parameters.b_down(e));
        for (const FeedForwardUnit& unit : d.units) sum += unit.after * f(parameters.w_down(unit.unit, e));
        EXPECT_NEAR(sum, f(d.feed_forward[static_cast<std::size_t>(e)]), 1e-5);
      }
    }
  }
}

TEST(SentenceDecoder, FullScreenDescribesEachKindOfDecoder) {
  const auto full = [](std::size_t n) {
    const SentenceAnalysis analysis = analyze_sentence(models()[n].model, kText, {.query = "@7", .full = true});
    return render_sentence_text(analysis, {.width = 100});
  };
  const std::string gpt = full(0), rotary = full(2), relu = full(4), attention_only = full(5);
  EXPECT_TRUE(has(gpt, "token + position"));
  EXPECT_TRUE(has(gpt, "gelu(x · W_up) · W_down"));
  EXPECT_TRUE(has(rotary, "its position enters by rotating q and k"));
  EXPECT_TRUE(has(rotary, "(silu(x · W_gate) · (x · W_up)) · W_down"));
  EXPECT_TRUE(has(rotary, "root mean square"));
  EXPECT_TRUE(has(relu, "relu(a)"));
  EXPECT_TRUE(has(attention_only, "This model has no feed-forward layers"));
  for (const std::string* text : {&gpt, &rotary, &relu, &attention_only}) {
    EXPECT_TRUE(has(*text, "A token attends to itself and to the tokens before it"));
    EXPECT_FALSE(has(*text, "encoder"));
  }
}

TEST(SentenceDecoder, PageHasTheDataOfEachKindOfDecoder) {
  for (const auto& [name, model] : models()) {
    SCOPED_TRACE(name);
    const SentenceAnalysis analysis = analyze_sentence(model, kText, {.query = "@7"});
    const std::string page = render_sentence_html(model, analysis, {});
    EXPECT_TRUE(has(page, "\"causal\": true"));
    EXPECT_EQ(has(page, "\"rotated\": true"), model.trained->decoder.config.positions == PositionKind::rotary);
  }
}

// ---- heads

TEST(SentenceDecoder, MeasuresAreOverVisibleKeys) {
  HeadSurveyor surveyor(llama(), false);
  const Sentence sentence = read_sentence(llama(), kText);
  surveyor.add(sentence);
  const HeadSurvey survey = surveyor.survey();
  EXPECT_TRUE(survey.causal);
  for (const HeadMeasures& head : survey.heads) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, head.layer);
    const Tensor<double, 2> norms = value_norms(llama().trained->decoder, sentence.trace, head.layer);
    double entropy = 0, even_entropy = 0, self = 0, even_self = 0, previous = 0, even_previous = 0, distance = 0,
           contribution = 0, even_contribution = 0;
    for (Index i = 0; i < 13; ++i) {
      const double even = 1 / static_cast<double>(i + 1);
      double h = 0;
      for (Index j = 0; j <= i; ++j) {
        const double p = f(weights(head.head, i, j));
        if (p > 0) h -= p * std::log(p);
        distance += p * static_cast<double>(i - j) / 13;
        contribution += p * norms(head.head, j) / 13;
        even_contribution += even * norms(head.head, j) / 13;
      }
      if (i > 0) entropy += h / std::log(static_cast<double>(i + 1)) / 12;
      if (i > 0) even_entropy += 1 / 12.0;
      self += f(weights(head.head, i, i)) / 13;
      even_self += even / 13;
      if (i > 0) previous += f(weights(head.head, i, i - 1)) / 12;
      if (i > 0) even_previous += even / 12;
    }
    EXPECT_NEAR(head.of(HeadMeasure::entropy).mean, entropy, 1e-6);
    EXPECT_NEAR(head.of(HeadMeasure::entropy).uniform, even_entropy, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::self).mean, self, 1e-6);
    EXPECT_NEAR(head.of(HeadMeasure::self).uniform, even_self, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::previous).mean, previous, 1e-6);
    EXPECT_NEAR(head.of(HeadMeasure::previous).uniform, even_previous, 1e-12);
    EXPECT_NEAR(head.of(HeadMeasure::distance).mean, distance, 1e-6);
    EXPECT_NEAR(head.of(HeadMeasure::contribution).mean, contribution, 1e-6);
    EXPECT_NEAR(head.of(HeadMeasure::contribution).uniform, even_contribution, 1e-6);
    EXPECT_EQ(head.of(HeadMeasure::next).n, 0);
    EXPECT_EQ(head.of(HeadMeasure::special).n, 0);
  }
  const std::string text = render_heads_text(survey, {});
  EXPECT_FALSE(has(text, "special")) << text;
  EXPECT_FALSE(has(text, "next"));
  EXPECT_TRUE(has(joined(text), "on the token itself and all before it"));
}

// ---- models

TEST(SentenceDecoder, CompareRejectsDecoders) {
  const std::string expected = "compare: the model in runs/tiny is a decoder; expected an encoder";
  EXPECT_EQ(rejection([] { compare_word(llama(), "a", {"a b", "b a"}); }), expected);
}

TEST(SentenceDecoder, FoldersOfRunsAreLoaded) {
  const DecoderConfig config = decoder_cases(kPositions)[2].second;
  const TestFolder run;
  std::filesystem::create_directory(run / "step-00000010");
  write_decoder(run, config, tiny_parameters(config));
  run.write("vocabulary.json", letters().json());
  for (const char* name : {"config.json", "model.safetensors", "vocabulary.json"})
    std::filesystem::rename(run / name, run / "step-00000010/" + name);
  const SentenceAnalysis expected = analyze_sentence(llama(), kText);
  for (const std::string& path : {run.path(), run / "step-00000010"}) {
    const SentenceModel model = load_sentence_model(path);
    ASSERT_TRUE(model.trained.has_value());
    const SentenceAnalysis analysis = analyze_sentence(model, kText);
    EXPECT_EQ(analysis.chosen.weight, expected.chosen.weight);
    EXPECT_EQ(analysis.sha256.size(), 64u);
  }
  run.write("step-00000010/vocabulary.json", Vocabulary::characters_of("ab").json());
  EXPECT_TRUE(has(rejection<DataError>([&] { load_sentence_model(run.path()); }),
                  "vocabulary.json: has 2 tokens; config.json has a vocab_size of 13"));
  std::filesystem::remove(run / "step-00000010/vocabulary.json");
  EXPECT_TRUE(has(rejection<DataError>([&] { load_sentence_model(run.path()); }), "vocabulary.json"));
}

}  // namespace
}  // namespace regard::sentence_decoder_test
