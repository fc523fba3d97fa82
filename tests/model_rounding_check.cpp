// SPDX-License-Identifier: Apache-2.0
//
// all-MiniLM-L6-v2 rounded to int8 and float16, compared with itself in float32 over the 30 sentences: vectors of
// sentences, attention weights and findings. Also checks the figures of regard/explain/rounding_errors.h.
// REGARD_TEST_MODEL names the folder of the model; the stage `./check model` downloads it and runs this.
// Read next: regard/io/rounding.h, docs/reference/model.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "regard/explain/rounding_errors.h"
#include "regard/explain/sentence_row.h"
#include "support/data_path.h"

namespace regard::model_rounding_check {
namespace {

constexpr std::string_view kBankSentence = "he sat on the bank of the river";

std::string model_folder() {
  const char* folder = std::getenv("REGARD_TEST_MODEL");
  if (folder == nullptr) throw std::runtime_error("REGARD_TEST_MODEL must name the folder of all-MiniLM-L6-v2");
  return folder;
}

const SentenceModel& in_float32() {
  static const SentenceModel model = load_sentence_model(model_folder());
  return model;
}

const std::vector<std::string>& sentences() {
  static const std::vector<std::string> lines = [] {
    std::vector<std::string> read;
    std::ifstream file(data_path("encoder/sentences.txt"));
    for (std::string line; std::getline(file, line);) read.push_back(line);
    return read;
  }();
  return lines;
}

// What `regard explain` chooses without options.
AttentionPair finding(const SentenceModel& model, const Sentence& sentence) {
  return ranked_heads(sentence, model.sha256(), std::nullopt).heads.front();
}
bool is_same(const AttentionPair& a, const AttentionPair& b) {
  return std::tie(a.layer, a.head, a.word, a.target) == std::tie(b.layer, b.head, b.word, b.target);
}
std::string shown(const Sentence& sentence, const AttentionPair& pair) {
  const auto word = [&](Index index) { return sentence.words[static_cast<std::size_t>(index)].text; };
  char numbers[80];
  std::snprintf(numbers, sizeof numbers, "L%dH%d, weight %.4f, salience %.4f: ", static_cast<int>(pair.layer),
                static_cast<int>(pair.head), pair.weight, pair.salience());
  return numbers + word(pair.word) + " → " + word(pair.target);
}

double bank_to_river(const SentenceModel& model) {
  const Sentence sentence = read_sentence(model, kBankSentence);
  return word_weights(sentence, trace_weights(sentence.trace, 0), 4)(word_index(sentence.words, "bank"),
                                                                     word_index(sentence.words, "river"));
}

RoundingErrors measured(const SentenceModel& model) {
  RoundingErrors errors{.min_cosine = 1, .bank_to_river = bank_to_river(model)};
  double sum = 0, count = 0;
  for (const std::string& text : sentences()) {
    const Sentence exact = read_sentence(in_float32(), text), rounded = read_sentence(model, text);
    const double similarity = cosine(mean_pooled_normalized(exact.trace), mean_pooled_normalized(rounded.trace));
    errors.mean_cosine += similarity / static_cast<double>(sentences().size());
    errors.min_cosine = std::min(errors.min_cosine, similarity);
    for (Index layer = 0; layer < static_cast<Index>(exact.trace.layers.size()); ++layer) {
      const Tensor<float, 3> a = trace_weights(exact.trace, layer), b = trace_weights(rounded.trace, layer);
      for (Index i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i]));
        sum += difference;
        errors.max_weight_difference = std::max(errors.max_weight_difference, difference);
      }
      count += static_cast<double>(a.size());
    }
    const AttentionPair one = finding(in_float32(), exact), other = finding(model, rounded);
    if (is_same(one, other)) {
      ++errors.same_findings;
    } else {
      std::printf("%s\n  %s\n  %s\n", text.c_str(), shown(exact, one).c_str(), shown(rounded, other).c_str());
    }
  }
  errors.mean_weight_difference = sum / count;
  return errors;
}

// To the digits that are the same on every instruction set.
std::string shown(const RoundingErrors& errors) {
  char text[200];
  std::snprintf(text, sizeof text, "cosine: mean %.5f, min %.5f; weights: mean %.1e, max %.1e; bank: %.3f; same: %d",
                errors.mean_cosine, errors.min_cosine, errors.mean_weight_difference, errors.max_weight_difference,
                errors.bank_to_river, static_cast<int>(errors.same_findings));
  return text;
}

TEST(RoundedMinilm, BankAttendsToRiverInFloat32AsTheHeaderSays) {
  EXPECT_EQ(sentences().size(), static_cast<std::size_t>(kRoundingSentences));
  EXPECT_NEAR(bank_to_river(in_float32()), kFloat32BankToRiver, 0.0005);
}

TEST(RoundedMinilm, Int8IsCloseToFloat32) {
  const ModelInMemory files = rounded_model(model_folder(), ElementType::int8, "minilm-int8");
  const SentenceModel model = read_sentence_model(files);
  const RoundingErrors errors = measured(model);
  EXPECT_EQ(files.safetensors.count, 22'880'376u);
  EXPECT_EQ(model.sha256(), minilm_sha256(ElementType::int8));
  EXPECT_GE(errors.min_cosine, 0.999);
  EXPECT_LE(errors.mean_weight_difference, 0.005);
  EXPECT_GE(errors.same_findings, 28);
  EXPECT_EQ(shown(errors), shown(minilm_rounding_errors(ElementType::int8)));
}

TEST(RoundedMinilm, Float16IsCloseToFloat32) {
  const ModelInMemory files = rounded_model(model_folder(), ElementType::float16, "minilm-f16");
  const SentenceModel model = read_sentence_model(files);
  const RoundingErrors errors = measured(model);
  EXPECT_EQ(files.safetensors.count, 45'203'384u);
  EXPECT_EQ(model.sha256(), minilm_sha256(ElementType::float16));
  EXPECT_LT(errors.mean_weight_difference, 1e-5);
  EXPECT_EQ(shown(errors), shown(minilm_rounding_errors(ElementType::float16)));
}

}  // namespace
}  // namespace regard::model_rounding_check
