// SPDX-License-Identifier: Apache-2.0
//
// Why tokenizer.json files are rejected, with messages and offsets, and what is accepted at each limit.
// Read next: tests/support/tokenizer_files.h, src/model/tokenizer/tokenizer_json.cpp.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "regard/model/tokenizer.h"
#include "support/rejection.h"
#include "support/tokenizer_files.h"

namespace regard::tokenizer_file_test {
namespace {

using regard_tokenizer::json_string;
using regard_tokenizer::tokenizer_json;
using regard_tokenizer::TokenizerText;

const std::vector<std::string> kVocabulary = {"[UNK]", "[CLS]", "[SEP]", "a", "##b"};

// "accepted", or the message without "t: byte N: "; the byte must be within the text.
std::string rejection(const std::string& json, const TokenizerOptions& options = {}) {
  std::string what = regard::rejection<std::runtime_error>(
      [&] { Tokenizer::read(json, "t", options).encode("a ab [MASK] \u4e2d\u00e9"); });
  if (what == "accepted") return what;
  std::size_t length = 0;
  EXPECT_TRUE(what.starts_with("t: byte ")) << what;
  EXPECT_LE(std::stoul(what.substr(8), &length), json.size()) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  return what.substr(8 + length + 2);
}

struct With {
  std::string TokenizerText::* part;
  std::string text;
};
std::string rejection(const std::vector<With>& parts, const TokenizerOptions& options = {}) {
  TokenizerText text;
  text.vocabulary = kVocabulary;
  for (const With& with : parts) text.*(with.part) = with.text;
  return rejection(tokenizer_json(text), options);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

constexpr auto kVocab = &TokenizerText::vocab;
constexpr auto kAdded = &TokenizerText::added_tokens;
constexpr auto kNormalizer = &TokenizerText::normalizer;
constexpr auto kPreTokenizer = &TokenizerText::pre_tokenizer;
constexpr auto kPostProcessor = &TokenizerText::post_processor;
constexpr auto kPrefix = &TokenizerText::prefix;
constexpr auto kModel = &TokenizerText::model_rest;
constexpr auto kRest = &TokenizerText::rest;

TEST(TokenizerFile, AcceptsBertsFile) {
  EXPECT_EQ(rejection(std::vector<With>{}), "accepted");
  EXPECT_EQ(rejection({{kPostProcessor, "null"}, {kAdded, "null"}}), "accepted");
  // As written by versions before 0.9.
  EXPECT_EQ(rejection({{kModel, R"("unk_token": "[UNK]", "max_input_chars_per_word": 100)"}}), "accepted");
  EXPECT_EQ(rejection({{kRest, R"("unknown": [1, {"deep": null}])"}}), "accepted");
}

TEST(TokenizerFile, RejectsTextThatIsNotATokenizer) {
  EXPECT_NE(rejection(""), "accepted");
  EXPECT_NE(rejection("\xEF\xBB\xBF{}"), "accepted");
  EXPECT_EQ(rejection("[]"), "a tokenizer must be an object");
  EXPECT_EQ(rejection("{}"), "model is missing");
  EXPECT_EQ(rejection("{\"\xFF\": 1}"), "not valid UTF-8");
  EXPECT_EQ(rejection({{kRest, R"("version": "2.0")"}}), "version \"2.0\" is not supported; expected 1.0");
  EXPECT_EQ(rejection({{kRest, R"("version": 1.0)"}}), "version is a number, not a string");
  EXPECT_EQ(rejection({{kRest, R"("model": {})"}}), "the name \"model\" occurs twice in one object");
}

TEST(TokenizerFile, BoundsTheDepthOfJson) {
  const auto nested = [](std::size_t depth) {
    return std::string("\"x\": ") + std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(rejection({{kRest, nested(127)}}), "accepted");
  EXPECT_EQ(rejection({{kRest, nested(128)}}), "nested deeper than 128");
  EXPECT_EQ(rejection({{kRest, nested(1'000'000)}}), "nested deeper than 128");
}

TEST(TokenizerFile, RejectsUnsupportedKindsByName) {
  EXPECT_EQ(rejection({{kModel, R"("type": "BPE", "merges": [])"}}),
            "model \"BPE\" is not supported; expected WordPiece");
  EXPECT_EQ(rejection({{kModel, R"("merges": [])"}}), "model has no type and is not WordPiece");
  EXPECT_EQ(rejection({{kNormalizer, R"({"type": "NFKC"})"}}),
            "normalizer \"NFKC\" is not supported; expected BertNormalizer");
  EXPECT_EQ(rejection({{kNormalizer, "null"}}), "normalizer is null, not an object");
  EXPECT_EQ(rejection({{kPreTokenizer, R"({"type": "Split", "pattern": {"Regex": "(a+)+$"}})"}}),
            "pre_tokenizer \"Split\" is not supported; expected BertPreTokenizer");
  EXPECT_EQ(rejection({{kPreTokenizer, R"({"type": "a\u001b]0;x\n\u202e"})"}}),
            "pre_tokenizer \"a\\u{1b}]0;x\\u{a}\\u{202e}\" is not supported; expected BertPreTokenizer");
  EXPECT_EQ(rejection({{kPreTokenizer, "{}"}}), "type is missing");
  EXPECT_EQ(rejection({{kPostProcessor, R"({"type": "RobertaProcessing"})"}}),
            "post_processor \"RobertaProcessing\" is not supported; expected TemplateProcessing or BertProcessing");
}

TEST(TokenizerFile, RejectsInvalidVocabularies) {
  EXPECT_EQ(rejection({{kVocab, "{}"}}), "vocab is empty");
  EXPECT_EQ(rejection({{kVocab, "[]"}}), "vocab is an array, not an object");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "a": 1, "a": 2})"}}), "the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "a": 1, "b": 1})"}}), "\"a\" and \"b\" both have id 1");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "a": 2})"}, {kAdded, "[]"}}),
            "no token has id 1: the ids of 2 tokens run from 0 to 1");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 1, "a": 2})"}, {kAdded, "[]"}}),
            "no token has id 0: the ids of 2 tokens run from 0 to 1");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "": 1})"}}), "a token of vocab is empty");
  for (const char* id : {"-1", "1.5", "1e300", "4194304", "18446744073709551615"})
    EXPECT_TRUE(
        rejection({{kVocab, std::string(R"({"[UNK]": 0, "a": )") + id + "}"}}).starts_with("the id of \"a\" is "))
        << id;
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "a": "1"})"}}), "the id of \"a\" is a string, not a number");
  EXPECT_EQ(rejection({{kVocab, R"({"[UNK]": 0, "a": 1e999})"}}), "a number is out of range for double");
}

TEST(TokenizerFile, RejectsInvalidModels) {
  const std::string model = TokenizerText{}.model_rest;
  EXPECT_EQ(rejection({{kModel, replaced(model, "[UNK]", "[unk]")}}), "unk_token \"[unk]\" is not in vocab");
  EXPECT_EQ(rejection({{kModel, R"("type": "WordPiece", "max_input_chars_per_word": 100)"}}), "unk_token is missing");
  EXPECT_EQ(rejection({{kModel, replaced(model, "100", "0")}}),
            "max_input_chars_per_word is 0: every word would be unknown");
  EXPECT_EQ(rejection({{kModel, replaced(model, "100", "1000")}}), "accepted");
  EXPECT_EQ(rejection({{kModel, replaced(model, "100", "1001")}}),
            "max_input_chars_per_word is 1001; expected an integer from 0 to 1000");
  EXPECT_EQ(rejection({{kModel, replaced(model, "100", "null")}}), "max_input_chars_per_word is null, not a number");
  EXPECT_EQ(rejection({{kPrefix, "##### "}}), "continuing_subword_prefix is longer than every token");
  EXPECT_EQ(rejection({{kPrefix, "#####"}}), "accepted");
  EXPECT_EQ(rejection({{kPrefix, "\xC3"}}), "not valid UTF-8");
}

std::string added(const std::string& content, const std::string& id) {
  return R"({"id": )" + id + R"(, "content": )" + json_string(content) + R"(, "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false})";
}

TEST(TokenizerFile, RejectsContradictoryAddedTokens) {
  const auto with = [](const std::string& tokens) { return rejection({{kAdded, std::string("[") + tokens + "]"}}); };
  EXPECT_EQ(with(added("[MASK]", "5")), "accepted");
  EXPECT_EQ(with(added("[UNK]", "0")), "accepted");
  EXPECT_EQ(with(added("[UNK]", "3")), "the added token \"[UNK]\" has id 3, but vocab gives it 0");
  EXPECT_EQ(with(added("[MASK]", "3")), "\"a\" and \"[MASK]\" both have id 3");
  EXPECT_EQ(with(added("[MASK]", "6")), "no token has id 5: the ids of 6 tokens run from 0 to 5");
  EXPECT_EQ(with(added("[MASK]", "-1")),
            "the id of the added token \"[MASK]\" is -1; expected an integer from 0 to 4194303");
  EXPECT_EQ(with(added("[MASK]", "2147483648")),
            "the id of the added token \"[MASK]\" is 2147483648; expected an integer from 0 to 4194303");
  EXPECT_EQ(with(added("[MASK]", "5") + "," + added("[MASK]", "5")), "the added token \"[MASK]\" occurs twice");
  EXPECT_EQ(with(added("", "5")), "an added token is empty");
  EXPECT_EQ(with("1"), "an added token is a number, not an object");
  EXPECT_EQ(with("1, null"), "an added token is a number, not an object");
  EXPECT_EQ(with("{}"), "content is missing");
  EXPECT_EQ(with(replaced(added("x", "5"), "\"id\"", "\"no\"")), "id is missing");
  EXPECT_EQ(with(replaced(added("x", "5"), "lstrip", "strip")), "lstrip is missing");
  EXPECT_EQ(with(replaced(added("x", "5"), "\"lstrip\": false", "\"lstrip\": 0")),
            "lstrip is a number, not true or false");
  EXPECT_EQ(with(added(std::string(256, 'x'), "5")), "accepted");
  EXPECT_EQ(with(added(std::string(257, 'x'), "5")),
            std::string("the added token \"") + std::string(60, 'x') + "…\" (257 bytes) is longer than 256 bytes");
}

TEST(TokenizerFile, RejectsAddedTokensThatNormalizationMakesAmbiguous) {
  const auto with = [](const std::string& first, const std::string& second) {
    const auto normalized = [](const std::string& token) {
      return replaced(token, "\"normalized\": false", "\"normalized\": true");
    };
    return rejection(
        {{kAdded, std::string("[") + normalized(added(first, "5")) + "," + normalized(added(second, "6")) + "]"}});
  };
  EXPECT_EQ(with("Oslo", "Bern"), "accepted");
  EXPECT_EQ(with("Oslo", "\u00d3SLO"), "the added tokens \"Oslo\" and \"\u00d3SLO\" are the same after normalization");
  EXPECT_EQ(with("\u0301", "x"), "the added token \"\u0301\" is empty after normalization");
}

TEST(TokenizerFile, RejectsNormalizersWithoutTheirFlags) {
  const std::string good = regard_tokenizer::kUncased;
  EXPECT_EQ(rejection({{kNormalizer, replaced(good, "\"clean_text\": true", "\"clean\": true")}}),
            "clean_text is missing");
  EXPECT_EQ(rejection({{kNormalizer, replaced(good, "\"lowercase\": true", "\"lowercase\": null")}}),
            "lowercase is null, not true or false");
  EXPECT_EQ(rejection({{kNormalizer, replaced(good, "\"strip_accents\": null", "\"strip_accents\": 1")}}),
            "strip_accents is a number, not true or false");
  EXPECT_EQ(rejection({{kNormalizer, replaced(good, "\"strip_accents\": null, ", "")}}), "accepted");
}

TEST(TokenizerFile, RejectsInvalidTemplates) {
  const std::string good = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "C", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}], "pair": "not read",
    "special_tokens": {"C": {"id": "C", "ids": [1, 2], "tokens": ["[CLS]", "[SEP]"]}}})";
  const auto with = [&](const std::string& from, const std::string& to) {
    return rejection({{kPostProcessor, replaced(good, from, to)}});
  };
  EXPECT_EQ(with("C", "C"), "accepted");
  EXPECT_EQ(with("[1, 2]", "[1, 5]"), "the id of post_processor's \"[SEP]\" is 5; expected an integer from 0 to 4");
  EXPECT_EQ(with("[1, 2]", "[-1, 2]"), "the id of post_processor's \"[CLS]\" is -1; expected an integer from 0 to 4");
  EXPECT_EQ(with("[1, 2]", "[1, 3]"), "post_processor gives \"[SEP]\" id 3, which is \"a\"");
  EXPECT_EQ(with("[1, 2]", "[1]"), "a special token must have as many numeric ids as string tokens");
  EXPECT_EQ(with("[1, 2]", "[1, \"2\"]"), "a special token must have as many numeric ids as string tokens");
  EXPECT_EQ(with("\"[SEP]\"]", "null]"), "a token of post_processor is null, not a string");
  EXPECT_EQ(with("{\"C\"", "{\"D\""), "special_tokens does not contain \"C\"");
  EXPECT_EQ(with("\"A\"", "\"B\""), "single must contain sequence A exactly once and no other sequence");
  EXPECT_EQ(
      with("{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}", "{\"SpecialToken\": {\"id\": \"C\", \"type_id\": 0}}"),
      "single must contain sequence A exactly once and no other sequence");
  EXPECT_EQ(with("{\"SpecialToken\": {\"id\": \"C\"", "{\"Sequence\": {\"id\": \"A\""),
            "single must contain sequence A exactly once and no other sequence");
  EXPECT_EQ(with("\"type_id\": 0", "\"type_id\": 1"), "single has a type_id other than 0");
  EXPECT_EQ(with("{\"SpecialToken\"", "{\"Special\""),
            "a piece of single is \"Special\", not SpecialToken or Sequence");
  EXPECT_EQ(with("{\"SpecialToken\": {\"id\": \"C\", \"type_id\": 0}}", "{}"),
            "a piece of single has one member, SpecialToken or Sequence");
  EXPECT_EQ(with("{\"SpecialToken\": {\"id\": \"C\", \"type_id\": 0}}", "null"),
            "a piece of single is null, not an object");

  const auto bert = [](const std::string& cls) {
    return rejection({{kPostProcessor, R"({"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": )" + cls + "}"}});
  };
  EXPECT_EQ(bert(R"(["[CLS]", 1])"), "accepted");
  EXPECT_EQ(bert(R"(["[CLS]", 9])"), "the id of post_processor's \"[CLS]\" is 9; expected an integer from 0 to 4");
  EXPECT_EQ(bert(R"(["[CLS]", 3])"), "post_processor gives \"[CLS]\" id 3, which is \"a\"");
  EXPECT_EQ(bert("[1, 2]"), "cls must be a token and its id");
  EXPECT_EQ(bert(R"(["[CLS]", "1"])"), "an id of post_processor is a string, not a number");
}

TEST(TokenizerFile, EnforcesItsLimits) {
  TokenizerText text;
  text.vocabulary = kVocabulary;
  const std::string json = tokenizer_json(text);
  EXPECT_EQ(TokenizerOptions{}.max_tokens, 4194304);
  EXPECT_EQ(TokenizerOptions{}.max_token_bytes, 4096);
  EXPECT_EQ(TokenizerOptions{}.max_text_bytes, 67108864);
  EXPECT_EQ(rejection(json, {.max_tokens = 5}), "accepted");
  EXPECT_EQ(rejection(json, {.max_tokens = 4}),
            "5 tokens are more than the 4 that TokenizerOptions::max_tokens allows");
  const auto size = static_cast<Index>(json.size());
  EXPECT_EQ(rejection(json, {.max_text_bytes = size}), "accepted");
  EXPECT_EQ(rejection(json, {.max_text_bytes = size - 1}), std::string("longer than the ") + std::to_string(size - 1) +
                                                               " bytes that TokenizerOptions::max_text_bytes allows");
  text.vocabulary.push_back(std::string(4096, 'x'));
  EXPECT_EQ(rejection(tokenizer_json(text)), "accepted");
  text.vocabulary.push_back(std::string(4097, 'y'));
  EXPECT_EQ(rejection(tokenizer_json(text)), std::string("a token of vocab, \"") + std::string(60, 'y') +
                                                 "…\" (4097 bytes), is longer than the 4096 bytes that "
                                                 "TokenizerOptions::max_token_bytes allows");
  EXPECT_EQ(rejection(tokenizer_json(text), {.max_token_bytes = 4097}), "accepted");
}

TEST(TokenizerFile, ReadsAFolderAndReportsItsFile) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("regard_tokenizer_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const auto what = [&] {
    try {
      return std::to_string(Tokenizer::read_folder(folder).vocabulary_size());
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
  };
  const std::string path = (folder / "tokenizer.json").string();
  EXPECT_NE(what().find(path), std::string::npos) << what();
  TokenizerText text;
  text.vocabulary = kVocabulary;
  std::ofstream(path) << tokenizer_json(text);
  EXPECT_EQ(what(), "5");
  std::ofstream(path) << "{}";
  EXPECT_EQ(what(), path + ": byte 0: model is missing");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(what().find("tokenizer.json"), std::string::npos);  // and does not wait for a writer
  fs::remove_all(folder);
}

// Each special token may have a list of ids, and the template may repeat it: without a limit, a small file could
// require any amount of memory.
TEST(TokenizerFile, RejectsTemplatesWithManyTokens) {
  const auto template_with = [](std::size_t pieces, std::size_t ids) {
    std::string single, list, tokens;
    for (std::size_t i = 0; i < pieces; ++i) single += R"({"SpecialToken": {"id": "[CLS]", "type_id": 0}}, )";
    for (std::size_t i = 0; i < ids; ++i) {
      list += i == 0 ? "1" : ", 1";
      tokens += i == 0 ? R"("[CLS]")" : R"(, "[CLS]")";
    }
    return R"({"type": "TemplateProcessing", "single": [)" + single +
           R"({"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [)" + list +
           R"(], "tokens": [)" + tokens + "]}}}";
  };
  const auto with = [&](std::size_t pieces, std::size_t ids) {
    return rejection({{kPostProcessor, template_with(pieces, ids)}});
  };
  EXPECT_EQ(with(1, 1024), "accepted");
  EXPECT_EQ(with(1024, 1), "accepted");
  EXPECT_EQ(with(1, 1025), "a special token has more than 1024 ids");
  EXPECT_EQ(with(2, 1024), "single adds more than 1024 tokens around a text");
  EXPECT_EQ(with(1025, 1), "single adds more than 1024 tokens around a text");
}

}  // namespace
}  // namespace regard::tokenizer_file_test
