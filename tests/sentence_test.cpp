// SPDX-License-Identifier: Apache-2.0
//
// Sentences in a small model: pieces grouped into words, names of words and their rejections, hidden words, truncation,
// sums and means over pieces against plain loops.
// Read next: sentence_model.h, regard/explain/sentence.h.
#include "regard/explain/sentence.h"
#include "support/data_path.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "regard/explain/rounding_errors.h"
#include "regard/explain/sentence_row.h"
#include "support/model_bytes.h"
#include "support/sentence_model.h"

namespace regard::sentence_test {
namespace {

Sentence read(std::string_view text, const SentenceOptions& options = {}) {
  return read_sentence(small_sentence_model(), text, options);
}

std::vector<std::string> texts(const Sentence& sentence) {
  std::vector<std::string> all;
  for (const SentenceWord& word : sentence.words) all.push_back(word.text);
  return all;
}

TEST(ReadSentence, GroupsThePiecesOfAWord) {
  const Sentence sentence = read("The Embeddings, he");
  EXPECT_EQ(texts(sentence), (std::vector<std::string>{"[CLS]", "The", "Embeddings", ",", "he", "[SEP]"}));
  EXPECT_EQ(sentence.words[2].tokens, (std::vector<Index>{2, 3, 4, 5}));
  EXPECT_EQ(sentence.tokens.tokens[3], "##bed");
  EXPECT_TRUE(sentence.words.front().special && sentence.words.back().special);
  EXPECT_FALSE(sentence.words[2].special);
  EXPECT_EQ(sentence.words.back().tokens, (std::vector<Index>{8}));
}

ModelInMemory files_of_the_small_model() {
  const std::string folder = data_path("encoder/tiny");
  return {.name = "tiny",
          .config_json = read_model_text(folder, "config.json", 1 << 20),
          .tokenizer_json = small_tokenizer_json(),
          .safetensors = share_bytes(to_bytes(file_bytes(folder + "/model.safetensors")))};
}

TEST(ReadSentenceModel, GivesTheModelOfTheFolder) {
  const SentenceModel model = read_sentence_model(files_of_the_small_model());
  EXPECT_EQ(model.folder, "tiny");
  EXPECT_EQ(model.sha256(), small_sentence_model().sha256());
  const Sentence from_memory = read_sentence(model, "he sat on the bank of the river");
  const Sentence from_folder = read("he sat on the bank of the river");
  EXPECT_EQ(from_memory.tokens.ids, from_folder.tokens.ids);
  EXPECT_EQ(mean_pooled(from_memory.trace), mean_pooled(from_folder.trace));
}

// A model folder with the tiny encoder and its tokenizer.
TEST(RoundedModel, HasTheSameBytesOnEveryMachine) {
  const ModelInMemory files = files_of_the_small_model();
  const TestFolder folder;
  folder.write("config.json", files.config_json);
  folder.write("tokenizer.json", files.tokenizer_json);
  folder.write("model.safetensors",
               {reinterpret_cast<const char*>(files.safetensors.first.get()), files.safetensors.count});
  for (const auto& [type, sha256] :
       {std::pair{ElementType::int8, "00e3f9cab955e9afa5c050fcd97a0ce561b35e87fe693d52bf59055dcab96260"},
        std::pair{ElementType::float16, "8bb5f9a9698dfb141afdaf0dad6a28035561a2420f2d79dafc9d139042e02162"}}) {
    const ModelInMemory rounded = rounded_model(folder.path(), type, "small");
    const SentenceModel model = read_sentence_model(rounded);
    EXPECT_EQ(model.folder, "small");
    EXPECT_EQ(model.sha256(), sha256);
    EXPECT_EQ(rounded.config_json, files.config_json);
    EXPECT_EQ(rounded.tokenizer_json, files.tokenizer_json);
  }
}

TEST(RoundedModel, RejectsOtherTypes) {
  const std::string rest = ": type is float64; expected int8 or float16";
  EXPECT_EQ(rejection([] { minilm_sha256(ElementType::float64); }), "minilm_sha256" + rest);
  EXPECT_EQ(rejection([] { minilm_rounding_errors(ElementType::float64); }), "minilm_rounding_errors" + rest);
}

TEST(ReadSentenceModel, RejectsFilesThatDoNotMatch) {
  const auto rejected = [](const ModelInMemory& files) {
    return rejection<DataError>([&] { read_sentence_model(files); });
  };
  ModelInMemory files = files_of_the_small_model();
  files.tokenizer_json = "{";
  EXPECT_TRUE(rejected(files).starts_with("tiny/tokenizer.json: byte 1: ")) << rejected(files);
  files.config_json = "[]";
  EXPECT_TRUE(rejected(files).starts_with("tiny/config.json: byte 0: ")) << rejected(files);
  files = files_of_the_small_model();
  files.safetensors.count -= 1;
  EXPECT_TRUE(rejected(files).starts_with("tiny/model.safetensors: byte ")) << rejected(files);
  files = files_of_the_small_model();
  regard_tokenizer::TokenizerText text;
  text.vocabulary = {"[UNK]", "[CLS]", "[SEP]"};
  for (int i = 0; text.vocabulary.size() < 61; ++i) text.vocabulary.push_back("word" + std::to_string(i));
  files.tokenizer_json = regard_tokenizer::tokenizer_json(text);
  EXPECT_EQ(rejected(files), "tiny: tokenizer.json has 61 tokens and config.json a vocab_size of 60");
}

TEST(ReadSentence, EmptyTextHasOnlySpecialTokens) {
  const Sentence sentence = read("");
  EXPECT_EQ(texts(sentence), (std::vector<std::string>{"[CLS]", "[SEP]"}));
  EXPECT_EQ(sentence.trace.layers.size(), 3u);
}

TEST(WordNames, NumberRepeatedWordsAsWordIndexExpects) {
  const Sentence sentence = read("The bank of the river, the bank");
  const std::vector<std::string> names = word_names(sentence.words);
  EXPECT_EQ(names, (std::vector<std::string>{"[CLS]", "The", "bank#0", "of", "the#0", "river", ",", "the#1", "bank#1",
                                             "[SEP]"}));
  for (std::size_t w = 0; w < names.size(); ++w) EXPECT_EQ(word_index(sentence.words, names[w]), static_cast<Index>(w));
}

TEST(SentenceWord, IsUnknownOrSplitOrNeither) {
  const Sentence sentence = read("the 🍕 embeddings");
  const auto mark = [&](std::size_t w) { return std::string(word_mark(sentence.words[w])); };
  EXPECT_EQ(mark(0) + mark(1), "");
  EXPECT_EQ(mark(2), "†");
  EXPECT_EQ(mark(3), "‡");
}

TEST(VocabularyWarning, IsGivenFromAQuarterOfUnknownOrSplitWords) {
  const auto warning = [](const char* text) { return vocabulary_warning(read(text).words); };
  EXPECT_EQ(warning("the embeddings of the bank"), "");
  EXPECT_EQ(warning("embeddings"), "");
  EXPECT_EQ(warning("he sat on the bank of the embeddings 🍕"), "");
  EXPECT_TRUE(has(warning("he sat on the bank of embeddings 🍕"),
                  "2 of 8 words are not in the vocabulary (1 split into pieces, 1 unknown)"));
}

TEST(ReadSentence, AdjacentEqualWordsAreTwoWords) {
  EXPECT_EQ(texts(read("the the")), (std::vector<std::string>{"[CLS]", "the", "the", "[SEP]"}));
}

TEST(ReadSentence, TextBeyondTheLastPositionIsRejectedOrTruncated) {
  std::string text;
  for (int n = 0; n < 50; ++n) text += n % 2 == 0 ? "he " : "sat ";
  const std::string said = rejection([&] { read(text); });
  EXPECT_TRUE(has(said, "52 tokens") && has(said, "40") && has(said, "--truncate")) << said;
  const Sentence sentence = read(text, {.hide = {}, .truncate = true});
  EXPECT_EQ(sentence.tokens.ids.size(), 40u);
  EXPECT_EQ(sentence.num_truncated_tokens, 12);
  EXPECT_EQ(sentence.words.size(), 40u);
  EXPECT_EQ(sentence.tokens.tokens.back(), "[SEP]");
  EXPECT_EQ(sentence.tokens.tokens[38], "sat");  // the 38th word of the text
  EXPECT_EQ(sentence.trace.output().shape()[0], 40);
}

TEST(ReadSentence, HidesAllPiecesOfHiddenWords) {
  const Sentence sentence = read("he sat, embeddings sat", {.hide = {"embeddings", "sat#1"}, .truncate = false});
  EXPECT_EQ(sentence.hidden, (std::vector<Index>{4, 5}));
  EXPECT_EQ(sentence.trace.hidden_keys, (std::vector<Index>{4, 5, 6, 7, 8}));
  EXPECT_TRUE(
      has(rejection([] { read("he sat", {.hide = {"river"}, .truncate = false}); }), "\"river\" is not in this text"));
}

TEST(ReadSentence, NonFiniteValuesAreRejectedWithLayerArrayAndToken) {
  const auto said = [](const SentenceModel& model) {
    return rejection<std::runtime_error>([&] { read_sentence(model, "he sat"); });
  };
  SentenceModel model = small_sentence_model();
  EncoderLayer& layer = model.encoder.layers[1];
  std::vector<float> bias(40, 0.0F);
  bias[7] = std::numeric_limits<float>::quiet_NaN();
  layer.b_value = {bias.data(), {40}};
  EXPECT_TRUE(has(said(model), "tiny: value of layer 1 is nan at token 0")) << said(model);
  bias[7] = 0;
  EXPECT_EQ(said(model), "accepted");
  // Finite parameters whose products overflow.
  std::vector<float> gain(40, 3e38F);
  model.encoder.norm_embedding_gain = {gain.data(), {40}};
  EXPECT_TRUE(has(said(model), "tiny: embedded is ") && has(said(model), "inf at token ")) << said(model);
}

TEST(WordIndex, FindsByWordPositionAndOccurrence) {
  const Sentence sentence = read("The bank, the BANK embeddings");
  const auto index = [&](std::string_view name) { return word_index(sentence.words, name); };
  EXPECT_EQ(index("The"), 1);
  EXPECT_EQ(index("the"), 4);
  EXPECT_EQ(index("BANK"), 5);
  EXPECT_EQ(index("bank"), 2);
  EXPECT_EQ(index("EMBEDDINGS"), 6);
  EXPECT_EQ(index("tHE#1"), 4);
  EXPECT_EQ(index("[CLS]"), 0);
  EXPECT_EQ(index("@0"), 0);
  EXPECT_EQ(index("@8"), 6);  // a piece inside the word
  EXPECT_EQ(index(","), 3);
}

TEST(WordIndex, RejectsAndListsTheChoices) {
  const Sentence sentence = read("the bank of the river");
  const auto said = [&](std::string_view name) { return rejection([&] { word_index(sentence.words, name); }); };
  EXPECT_TRUE(has(said("the"), "occurs 2 times") && has(said("the"), "the#0 ([CLS] the bank) or the#1 (of the river)"))
      << said("the");
  EXPECT_TRUE(has(said("the#2"), "the#1"));
  EXPECT_TRUE(has(said("money"), "[CLS], the, bank, of, the, river, [SEP]")) << said("money");
  EXPECT_TRUE(has(said("@7"), "@0 to @6")) << said("@7");
  for (const char* wrong : {"@", "@-1", "@x", "@1 ", "#", "#0", "bank#", "bank#x", "", "@99999999999999999999"}) {
    EXPECT_NE(said(wrong), "accepted") << wrong;
  }
  EXPECT_TRUE(has(said("\x1b[2J"), "\\u{1b}[2J")) << said("\x1b[2J");
}

TEST(WordIndex, FindsAWordThatContainsTheNumberSign) {
  const std::vector<SentenceWord> words = {{"a#1", {0}, false}, {"a", {1}, false}, {"a", {2}, false}};
  EXPECT_EQ(word_index(words, "a#1"), 0);
  EXPECT_EQ(word_index(words, "a#0"), 1);
}

TEST(WordWeights, SumOverKeysAndMeanOverQueries) {
  const Sentence sentence = read("embeddings of embeddings");
  for (Index layer = 0; layer < 3; ++layer) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, layer);
    for (Index head = 0; head < 4; ++head) {
      const Tensor<double, 2> by_word = word_weights(sentence, weights, head);
      double expected = 0;
      for (Index q = 1; q <= 4; ++q) {
        for (Index k = 6; k <= 9; ++k) expected += static_cast<double>(weights(head, q, k)) / 4;
      }
      EXPECT_NEAR(by_word(1, 3), expected, 1e-12);
      for (Index q = 0; q < 5; ++q) {
        double sum = 0;
        for (Index k = 0; k < 5; ++k) sum += by_word(q, k);
        EXPECT_NEAR(sum, 1.0, 1e-6);
      }
    }
  }
}

TEST(WordVector, IsTheMeanOfItsPieces) {
  const Sentence sentence = read("he embeddings");
  const Tensor<float, 2>& states = sentence.trace.output();
  const std::vector<float> vector = word_vector(sentence, states, 2);
  for (Index e = 0; e < states.shape()[1]; ++e) {
    double mean = 0;
    for (Index token = 2; token <= 5; ++token) mean += static_cast<double>(states(token, e)) / 4;
    EXPECT_NEAR(static_cast<double>(vector[static_cast<std::size_t>(e)]), mean, 1e-6);
  }
}

TEST(Cosine, MatchesTheFormulaAndIsZeroForZeroVectors) {
  const std::vector<float> a = {3, 4}, b = {4, 3}, zero = {0, 0}, longer = {1, 2, 3};
  EXPECT_DOUBLE_EQ(cosine(a, b), 24.0 / 25.0);
  EXPECT_DOUBLE_EQ(cosine(a, a), 1.0);
  EXPECT_EQ(cosine(a, zero), 0.0);
  EXPECT_TRUE(has(rejection([&] { cosine(a, longer); }), "2 and 3"));
}

}  // namespace
}  // namespace regard::sentence_test
