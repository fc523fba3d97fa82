// SPDX-License-Identifier: Apache-2.0
//
// Recomputes the means of src/explain/sentence/minilm_distance_weights.h from the real model (REGARD_TEST_MODEL) and
// the 30 sentences, and compares them. To regenerate the file:
// REGARD_WRITE_DISTANCES=src/explain/sentence/minilm_distance_weights.h, then clang-format-19 -i.
// Read next: regard/explain/sentence_row.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "regard/explain/sentence_row.h"
#include "support/data_path.h"

namespace regard::model_distances_check {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

DistanceSums sums_of_the_sentences(const SentenceModel& model) {
  DistanceSums sums;
  std::ifstream file(data_path("encoder/sentences.txt"));
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) add_distances(read_sentence(model, line), sums);
  EXPECT_EQ(count, 30);
  return sums;
}

// In units of 1/10000.
long rounded(double mean) { return std::lround(mean * 10000); }

// Keeps the head of the file and regenerates the numbers after it.
void write(const DistanceSums& sums, const std::string& path) {
  std::string text;
  std::ifstream old(path);
  for (std::string line; std::getline(old, line);) {
    text += line + "\n";
    if (line.find("kMinilmDistanceWeights[kMinilmLayers]") != std::string::npos) break;
  }
  for (Index layer = 0; layer < sums.num_layers; ++layer) {
    text += layer == 0 ? "    {" : ",\n    {";
    for (Index head = 0; head < sums.num_heads; ++head) {
      text += head == 0 ? "{" : ",\n     {";
      for (Index distance = -kFarthest; distance <= kFarthest; ++distance) {
        text += (distance == -kFarthest ? "" : ", ") + std::to_string(rounded(sums.mean(layer, head, distance)));
      }
      text += "}";
    }
    text += "}";
  }
  std::ofstream(path) << text << "};\n\n}  // namespace v0\n}  // namespace regard\n";
}

TEST(DistanceWeights, MatchTheMeansOverTheThirtySentences) {
  const std::string folder = environment("REGARD_TEST_MODEL");
  ASSERT_FALSE(folder.empty()) << "REGARD_TEST_MODEL names no folder";
  const SentenceModel model = load_sentence_model(folder);
  ASSERT_EQ(model.encoder.checkpoint->sha256(), minilm_sha256());
  const DistanceSums sums = sums_of_the_sentences(model);
  if (const std::string path = environment("REGARD_WRITE_DISTANCES"); !path.empty()) {
    write(sums, path);
    return;
  }
  for (Index layer = 0; layer < sums.num_layers; ++layer) {
    for (Index head = 0; head < sums.num_heads; ++head) {
      for (Index distance = -kFarthest; distance <= kFarthest; ++distance) {
        // Half a unit of rounding, plus the possible difference between instruction sets.
        EXPECT_NEAR(minilm_mean_weight(layer, head, distance), sums.mean(layer, head, distance), 0.5e-4 + 1e-6)
            << "L" << layer << "H" << head << " at " << distance;
      }
    }
  }
}

// The rounded models share the table.
TEST(DistanceWeights, HoldForTheRoundedModels) {
  for (const auto& [type, limit] : {std::pair{ElementType::int8, 0.006}, std::pair{ElementType::float16, 0.0002}}) {
    const SentenceModel model = read_sentence_model(rounded_model(environment("REGARD_TEST_MODEL"), type, "rounded"));
    ASSERT_EQ(model.sha256(), minilm_sha256(type));
    const DistanceSums sums = sums_of_the_sentences(model);
    for (Index layer = 0; layer < sums.num_layers; ++layer) {
      for (Index head = 0; head < sums.num_heads; ++head) {
        for (Index distance = -kFarthest; distance <= kFarthest; ++distance) {
          EXPECT_NEAR(minilm_mean_weight(layer, head, distance), sums.mean(layer, head, distance), limit)
              << "L" << layer << "H" << head << " at " << distance;
        }
      }
    }
    const Sentence sentence = read_sentence(model, "he sat on the bank of the river");
    EXPECT_EQ(ranked_heads(sentence, model.sha256(), std::nullopt).baseline, Baseline::test_sentences);
  }
}

// L0H2 attends to the previous word; in a long text, at a few positions, it attends to a word hundreds of words away.
TEST(RankedHeads, IgnoreRareDistancesInLongTexts) {
  const SentenceModel model = load_sentence_model(environment("REGARD_TEST_MODEL"));
  std::string text;
  for (int n = 0; n < 60; ++n) text += "the quick brown fox jumps over the lazy dog. ";
  const Sentence sentence = read_sentence(model, text, {.hide = {}, .truncate = true});
  ASSERT_EQ(sentence.tokens.ids.size(), 512U);
  const RankedHeads ranked = ranked_heads(sentence, minilm_sha256(), std::nullopt);
  EXPECT_LT(std::abs(ranked.heads.front().target - ranked.heads.front().word), kFarthest);
  for (const AttentionPair& one : ranked.heads) {
    if (one.layer == 0 && one.head == 2 && std::abs(one.target - one.word) >= kFarthest) {
      EXPECT_LT(one.salience(), 0.01);
    }
  }
}

TEST(RankedHeads, BankAttendsToTheRiverInLayer0Head4) {
  const SentenceModel model = load_sentence_model(environment("REGARD_TEST_MODEL"));
  const Sentence sentence = read_sentence(model, "he sat on the bank of the river");
  const Index bank = word_index(sentence.words, "bank"), river = word_index(sentence.words, "river");
  for (const std::optional<Index> word : {std::optional<Index>(bank), std::optional<Index>()}) {
    const RankedHeads ranked = ranked_heads(sentence, minilm_sha256(), word);
    EXPECT_EQ(ranked.baseline, Baseline::test_sentences);
    const AttentionPair& first = ranked.heads.front();
    EXPECT_EQ((std::vector<Index>{first.layer, first.head, first.word, first.target}),
              (std::vector<Index>{0, 4, bank, river}));
    EXPECT_NEAR(first.weight, 0.71, 0.005);
    EXPECT_EQ(ranked.heads[1].layer, 0);
    EXPECT_EQ(ranked.heads[1].head, 10);
    EXPECT_NEAR(ranked.heads[1].weight, 0.65, 0.005);
  }
}

}  // namespace
}  // namespace regard::model_distances_check
