// SPDX-License-Identifier: Apache-2.0
//
// Comparisons on a small model of random numbers against the formulas of docs/reference/notation.md, as plain loops
// over the encoder's trace; the claims of the text; rejections.
// Read next: sentence_model.h, regard/explain/compare.h.
#include "regard/explain/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "regard/io/utf8.h"
#include "support/sentence_model.h"

namespace regard::compare_test {
namespace {

const std::vector<std::string> kTexts = {"he sat on the bank of the river.", "she put her money in the bank",
                                         "they walked along the river bank at dawn"};
constexpr double kBound = 1e-6;  // float sums against double sums, for numbers of size 1

using Vector = std::vector<double>;

// A word's vector: the mean over its pieces of rows of states.
Vector vector_of(const Sentence& sentence, const Tensor<float, 2>& states, Index word) {
  const auto& tokens = sentence.words[static_cast<std::size_t>(word)].tokens;
  Vector mean(static_cast<std::size_t>(states.shape()[1]));
  for (std::size_t e = 0; e < mean.size(); ++e) {
    for (const Index token : tokens)
      mean[e] += static_cast<double>(states(token, e)) / static_cast<double>(tokens.size());
  }
  return mean;
}
double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
  return sum;
}
double cos_of(const Vector& a, const Vector& b) { return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b)); }

const Tensor<float, 2>& states_at(const Sentence& sentence, std::size_t stage) {
  if (stage == 0) return sentence.trace.word;
  return stage == 1 ? sentence.trace.embedded : sentence.trace.layers[stage - 2].output;
}
Vector vector_at(const Sentence& sentence, std::size_t stage, Index word) {
  return vector_of(sentence, states_at(sentence, stage), word);
}

std::vector<Sentence> read_all(const std::vector<std::string>& texts, const std::vector<std::string>& hide = {}) {
  std::vector<Sentence> sentences;
  for (const std::string& text : texts) {
    SentenceOptions options;
    for (const std::string& word : hide) {
      if (text.find(word) != std::string::npos) options.hide.push_back(word);
    }
    sentences.push_back(read_sentence(small_sentence_model(), text, options));
  }
  return sentences;
}

// The words of that text, except special tokens and punctuation.
std::vector<Index> words_called(const Sentence& sentence, const std::string& text) {
  std::vector<Index> found;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    if (!sentence.words[w].special && sentence.words[w].text == text) found.push_back(static_cast<Index>(w));
  }
  return found;
}

double floor_of(const std::vector<Sentence>& sentences, std::size_t stage, Index& pairs) {
  struct Position {
    const Sentence* sentence;
    Index word;
    std::string text;
  };
  std::vector<Position> positions;
  for (const Sentence& sentence : sentences) {
    for (std::size_t w = 0; w < sentence.words.size(); ++w) {
      if (sentence.words[w].special || sentence.words[w].text == ".") continue;
      positions.push_back({&sentence, static_cast<Index>(w), sentence.words[w].text});
    }
  }
  double sum = 0;
  pairs = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    for (std::size_t j = i + 1; j < positions.size(); ++j) {
      if (positions[i].text == positions[j].text) continue;
      sum += cos_of(vector_at(*positions[i].sentence, stage, positions[i].word),
                    vector_at(*positions[j].sentence, stage, positions[j].word));
      ++pairs;
    }
  }
  return sum / static_cast<double>(pairs);
}

// context · the head's rows of W_output, of one word.
Vector head_part(const Sentence& sentence, Index layer, Index head, Index word) {
  const Encoder& encoder = small_sentence_model().encoder;
  const LayerTrace& t = sentence.trace.layers[static_cast<std::size_t>(layer)];
  const auto& tokens = sentence.words[static_cast<std::size_t>(word)].tokens;
  const Index head_size = encoder.config.head_size();
  Vector part(static_cast<std::size_t>(encoder.config.width));
  for (std::size_t e = 0; e < part.size(); ++e) {
    for (const Index token : tokens) {
      for (Index d = 0; d < head_size; ++d) {
        part[e] +=
            static_cast<double>(t.context(head, token, d)) *
            static_cast<double>(encoder.layers[static_cast<std::size_t>(layer)].w_output(head * head_size + d, e)) /
            static_cast<double>(tokens.size());
      }
    }
  }
  return part;
}

void expect_numbers(const Comparison& c, const CompareNumbers& numbers, const std::vector<Sentence>& sentences) {
  ASSERT_EQ(c.stages, (std::vector<std::string>{"word", "+position", "L0", "L1", "L2"}));
  for (std::size_t stage = 0; stage < c.stages.size(); ++stage) {
    Index pairs = 0;
    EXPECT_NEAR(numbers.floor[stage], floor_of(sentences, stage, pairs), kBound);
    EXPECT_EQ(numbers.floor_pairs, pairs);
  }
  std::size_t p = 0;
  for (Index first = 0; first < static_cast<Index>(sentences.size()); ++first) {
    for (Index second = first + 1; second < static_cast<Index>(sentences.size()); ++second, ++p) {
      const ComparedPair& pair = numbers.pairs.at(p);
      ASSERT_EQ(pair.first, first);
      ASSERT_EQ(pair.second, second);
      const Sentence& a = sentences[static_cast<std::size_t>(first)];
      const Sentence& b = sentences[static_cast<std::size_t>(second)];
      const Index in_a = c.sentences[static_cast<std::size_t>(first)].word;
      const Index in_b = c.sentences[static_cast<std::size_t>(second)].word;
      for (std::size_t stage = 0; stage < c.stages.size(); ++stage) {
        const double expected = cos_of(vector_at(a, stage, in_a), vector_at(b, stage, in_b));
        EXPECT_NEAR(pair.cosine[stage], expected, kBound);
        EXPECT_NEAR(pair.above_floor[stage], (expected - numbers.floor[stage]) / (1 - numbers.floor[stage]),
                    4 * kBound);
        for (const ControlWord& control : pair.controls) {
          const std::vector<Index> ai = words_called(a, control.text), bi = words_called(b, control.text);
          ASSERT_FALSE(ai.empty() || bi.empty()) << control.text;
          double sum = 0;
          for (const Index i : ai) {
            for (const Index j : bi) sum += cos_of(vector_at(a, stage, i), vector_at(b, stage, j));
          }
          EXPECT_NEAR(control.cosine[stage], sum / static_cast<double>(ai.size() * bi.size()), kBound);
        }
      }
      for (Index layer = 0; layer < 3; ++layer) {
        std::vector<Vector> parts;
        Vector whole(40);
        for (Index head = 0; head < 4; ++head) {
          Vector part = head_part(a, layer, head, in_a);
          const Vector other = head_part(b, layer, head, in_b);
          for (std::size_t e = 0; e < part.size(); ++e) whole[e] += part[e] -= other[e];
          parts.push_back(std::move(part));
        }
        const auto n = static_cast<std::size_t>(layer);
        EXPECT_NEAR(pair.difference[n], std::sqrt(dot(whole, whole)), 1e-5);
        // The difference of the attention outputs: the bias cancels.
        const Vector aa = vector_of(a, a.trace.layers[n].attention_output, in_a);
        const Vector bb = vector_of(b, b.trace.layers[n].attention_output, in_b);
        for (std::size_t e = 0; e < whole.size(); ++e) EXPECT_NEAR(whole[e], aa[e] - bb[e], 1e-5);
        double sum = 0;
        for (Index head = 0; head < 4; ++head) {
          EXPECT_NEAR(pair.share(layer, head), dot(parts[static_cast<std::size_t>(head)], whole) / dot(whole, whole),
                      1e-5);
          sum += pair.share(layer, head);
        }
        EXPECT_NEAR(sum, 1, 1e-12);
      }
    }
  }
  EXPECT_EQ(p, numbers.pairs.size());
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    for (Index layer = 0; layer < 3; ++layer) {
      const Tensor<float, 3> weights = trace_weights(sentences[s].trace, layer);
      for (Index head = 0; head < 4; ++head) {
        const Tensor<double, 2> words = word_weights(sentences[s], weights, head);
        double sum = 0;
        for (std::size_t w = 0; w < sentences[s].words.size(); ++w) {
          EXPECT_EQ(numbers.attention[s](layer, head, w), words(c.sentences[s].word, w));
          sum += words(c.sentences[s].word, w);
        }
        EXPECT_NEAR(sum, 1, kBound);
      }
    }
  }
}

std::vector<std::string> control_words(const ComparedPair& pair) {
  std::vector<std::string> words;
  for (const ControlWord& control : pair.controls) words.push_back(control.text);
  return words;
}

std::string rejected(std::string_view word, const std::vector<std::string>& texts, const CompareOptions& options = {}) {
  return rejection([&] { compare_word(small_sentence_model(), word, texts, options); });
}

// A comparison of made-up figures, to test the text: cosines after the last layer.
Comparison made_up(double ab, double ac, double the_ab, double the_ac) {
  Comparison c = compare_word(small_sentence_model(), "bank", kTexts);
  for (auto& pair : c.plain.pairs) pair.controls.resize(1);
  c.plain.floor.back() = 0.2;
  const auto set = [&](std::size_t p, double cosine, double control) {
    c.plain.pairs[p].cosine.back() = cosine;
    c.plain.pairs[p].above_floor.back() = (cosine - 0.2) / 0.8;
    c.plain.pairs[p].controls[0].cosine.back() = control;
  };
  set(0, ab, the_ab);
  set(1, ac, the_ac);
  return c;
}
// The text with line breaks as spaces.
std::string flat(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

TEST(Compare, EveryNumberMatchesItsFormula) {
  const Comparison c = compare_word(small_sentence_model(), "bank", kTexts);
  expect_numbers(c, c.plain, read_all(kTexts));
  EXPECT_EQ(control_words(c.plain.pairs[0]), (std::vector<std::string>{"the"}));
  EXPECT_EQ(control_words(c.plain.pairs[1]), (std::vector<std::string>{"the", "river"}));
  EXPECT_FALSE(c.hidden);
}

TEST(Compare, WordEmbeddingsAreEqual) {
  const Comparison c = compare_word(small_sentence_model(), "bank", kTexts);
  for (const ComparedPair& pair : c.plain.pairs) EXPECT_EQ(pair.cosine[0], 1.0);
}

TEST(Compare, SplitWordIsTheMeanOfItsPieces) {
  const std::vector<std::string> texts = {"the embeddings of a river", "he sat on no embeddings"};
  const Comparison c = compare_word(small_sentence_model(), "embeddings", texts);
  ASSERT_EQ(c.sentences[0].words[static_cast<std::size_t>(c.sentences[0].word)].tokens.size(), 4u);
  expect_numbers(c, c.plain, read_all(texts));
}

TEST(Compare, HidingMasksEveryLayer) {
  const Comparison c = compare_word(small_sentence_model(), "bank", kTexts, {.hide = {"river"}, .control = {}});
  ASSERT_TRUE(c.hidden);
  expect_numbers(c, *c.hidden, read_all(kTexts, {"river"}));
  EXPECT_EQ(c.sentences[0].hidden.size(), 1u);
  EXPECT_TRUE(c.sentences[1].hidden.empty());
  // All words except bank and river: he sat on the of, she put her money in, they walked along at dawn.
  ASSERT_EQ(c.others.size(), 15u);
  EXPECT_EQ(c.others[0].text, "he");
  EXPECT_EQ(c.others_left_out, 0);
  const std::vector<Sentence> no_money = read_all(kTexts, {"money"});
  const auto money = std::find_if(c.others.begin(), c.others.end(), [](const auto& o) { return o.text == "money"; });
  ASSERT_NE(money, c.others.end());
  for (std::size_t p = 0; p < 3; ++p) {
    const ComparedPair& pair = c.plain.pairs[p];
    const auto at = [&](Index s) {
      return vector_at(no_money[static_cast<std::size_t>(s)], 4, c.sentences[static_cast<std::size_t>(s)].word);
    };
    EXPECT_NEAR(money->cosine[p], cos_of(at(pair.first), at(pair.second)), kBound);
  }
}

TEST(Compare, LimitsTheNumberOfOtherWords) {
  const Comparison c =
      compare_word(small_sentence_model(), "bank", kTexts, {.hide = {"river"}, .control = {}, .most_others = 4});
  EXPECT_EQ(c.others.size(), 4u);
  EXPECT_EQ(c.others_left_out, 11);
  EXPECT_TRUE(has(flat(render_compare_text(c)), "11 more words were not tried"));
}

TEST(Compare, AcceptsOneNamePerSentence) {
  const std::vector<std::string> texts = {"the bank is no bank", "the bank of a river"};
  const Comparison c = compare_word(small_sentence_model(), "bank#1,bank", texts);
  EXPECT_EQ(c.sentences[0].words[static_cast<std::size_t>(c.sentences[0].word)].tokens.front(), 5);
  EXPECT_EQ(c.sentences[1].words[static_cast<std::size_t>(c.sentences[1].word)].tokens.front(), 2);
  EXPECT_EQ(compare_word(small_sentence_model(), "@5,@2", texts).plain.pairs[0].cosine, c.plain.pairs[0].cosine);
  EXPECT_EQ(compare_word(small_sentence_model(), "bank#0", texts).sentences[0].word, 2);
}

TEST(Compare, UsesTheNamedControl) {
  const Comparison c = compare_word(small_sentence_model(), "bank", kTexts, {.hide = {}, .control = "river"});
  EXPECT_TRUE(c.plain.pairs[0].controls.empty());
  EXPECT_EQ(control_words(c.plain.pairs[1]), (std::vector<std::string>{"river"}));
}

TEST(Compare, SameSentenceTwiceHasNoDifference) {
  const Comparison c = compare_word(small_sentence_model(), "bank", {kTexts[0], kTexts[0]});
  for (const double cosine : c.plain.pairs[0].cosine) EXPECT_EQ(cosine, 1.0);
  EXPECT_EQ(c.plain.pairs[0].difference, (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(c.plain.pairs[0].share(0, 0)));
  EXPECT_TRUE(has(render_compare_text(c), "no difference"));
}

TEST(Compare, RejectsInvalidOptions) {
  EXPECT_EQ(rejected("bank", {kTexts[0]}), "1 sentence to compare; expected 2 to 26");
  EXPECT_EQ(rejected("bank", std::vector<std::string>(27, kTexts[0])), "27 sentences to compare; expected 2 to 26");
  EXPECT_TRUE(has(rejected("money", kTexts), "sentence A: \"money\" is not in this text; expected one of [CLS], he"));
  EXPECT_TRUE(has(rejected("the", kTexts), "sentence A: \"the\" occurs 2 times in this text; expected one of the#0"));
  EXPECT_TRUE(has(rejected("bank,bank", kTexts), "names 2 words, but there are 3 sentences"));
  EXPECT_EQ(rejected("river,money", {kTexts[0], kTexts[1]}),
            "\"river\" in A and \"money\" in B are different words; expected one word that occurs in every sentence");
  EXPECT_EQ(rejected("bank", kTexts, {.hide = {"walk"}, .control = {}}),
            "--hide: \"walk\" does not occur in any sentence");
  EXPECT_TRUE(has(rejected("bank", kTexts, {.hide = {"the"}, .control = {}}),
                  "--hide in sentence A: \"the\" occurs 2 times in this text; expected one of the#0"));
  EXPECT_EQ(rejected("bank", kTexts, {.hide = {}, .control = "he"}),
            "the control \"he\" occurs in 1 of the sentences; expected a word that occurs in at least two");
  EXPECT_EQ(rejected("bank", kTexts, {.hide = {}, .control = "bank"}),
            "the control \"bank\" is the word being compared; expected a different word");
  std::string wide = "the";
  for (int i = 0; i < 50; ++i) wide += " bank";
  EXPECT_TRUE(
      has(rejected("@2", {"the bank", wide}), "sentence B: the text has 53 tokens and the model has 40 positions"));
}

// ---- text

TEST(CompareTextOptions, ClaimsNoMoreThanTheControlAllows) {
  std::string text = flat(render_compare_text(made_up(.6, .9, .8, .81)));
  EXPECT_TRUE(
      text.starts_with("Between A and B, “bank” (cosine 0.600) differs more than the control “the” (0.800). Cosine of "
                       "“bank” after layer 2: A and B 0.600, A and C 0.900; "))
      << text;
  EXPECT_TRUE(has(text, "A and C are more similar than A and B by 0.300, and by 0.010 for “the”")) << text;

  text = flat(render_compare_text(made_up(.6, .9, .5, .9)));
  EXPECT_TRUE(
      text.starts_with("Between A and B, “bank” (cosine 0.600) does not differ more than the control “the” (0.500): on "
                       "its own, this shows nothing about “bank”."))
      << text;
  EXPECT_TRUE(has(text, "and by 0.400 for “the”: the order may come from the sentences")) << text;
  EXPECT_FALSE(has(text, "differs more than the control")) << text;

  // An equal difference is not a larger one.
  text = flat(render_compare_text(made_up(.6, .9, .6, .5)));
  EXPECT_TRUE(has(text, "does not differ more than the control “the” (0.600)")) << text;
  EXPECT_TRUE(has(text, "for “the”, they are not (−0.100)")) << text;

  Comparison none = made_up(.6, .9, .5, .9);
  for (ComparedPair& pair : none.plain.pairs) pair.controls.clear();
  text = flat(render_compare_text(none));
  EXPECT_TRUE(has(text, "No other word occurs in both A and B: there is no control that shows")) << text;
}

TEST(CompareTextOptions, ComparesTheTestWithOtherWords) {
  Comparison c = made_up(.6, .9, .8, .81);
  c.hide = {"river"};
  c.hidden = c.plain;
  c.hidden->pairs[0].cosine.back() = .75;
  c.others = {{"he", {.58, .9, .9}}, {"sat", {.65, .9, .9}}};
  std::string text = flat(render_compare_text(c));
  EXPECT_TRUE(
      has(text,
          "With “river” hidden, the cosine of A and B changes from 0.600 to 0.750 (+0.150): the largest change of 3 "
          "tests (each of 2 other words hidden alone: 0.580 to 0.650; largest change: +0.050, without “sat”)."))
      << text;
  EXPECT_TRUE(has(render_compare_text(c, {.brief = true}),
                  "Test: hiding “river” takes A,B from 0.600 to 0.750 (others: 0.580 to 0.650).\n"));
  // A change is the difference of the figures as they are printed.
  c.plain.pairs[0].cosine.back() = .6004;
  c.hidden->pairs[0].cosine.back() = .7506;
  EXPECT_TRUE(has(flat(render_compare_text(c)), "changes from 0.600 to 0.751 (+0.151)"));
  c.others[1].cosine[0] = .4;
  text = flat(render_compare_text(c));
  EXPECT_TRUE(has(text, "hiding another word changes it at least as much")) << text;
}

TEST(CompareTextOptions, KeepsTheWidthAndEveryLayer) {
  const Comparison c = compare_word(small_sentence_model(), "bank", kTexts, {.hide = {"river"}, .control = {}});
  for (const int width : {40, 60, 80, 200}) {
    for (const bool full : {false, true}) {
      const std::string text = render_compare_text(c, {.width = width, .full = full});
      std::size_t begin = 0;
      for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = text.substr(begin, end - begin);
        EXPECT_LE(display_width(line), std::max(width, 60)) << line;
        EXPECT_FALSE(line.ends_with(' ')) << "[" << line << "]";
      }
      for (const char* stage : {"word", "+position", "L0", "L1", "L2"}) EXPECT_TRUE(has(text, stage));
    }
  }
}

TEST(CompareTextOptions, IsAsciiWithoutUnicode) {
  const Comparison c = compare_word(small_sentence_model(), "bank", {"the bank \u202e\x1b]0;", "a bank"});
  const std::string text = render_compare_text(c, {.unicode = false});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char b) { return b == '\n' || (b >= ' ' && b <= '~'); }))
      << text;
  // "]" and ";" are not in the vocabulary.
  EXPECT_TRUE(has(text, "\\u{202e}\\u{1b}]!0")) << text;
  EXPECT_FALSE(has(render_compare_text(c), "\x1b"));
  EXPECT_TRUE(has(render_compare_text(c, {.color = true}), "\x1b[1m"));
}

}  // namespace
}  // namespace regard::compare_test
