// SPDX-License-Identifier: Apache-2.0
//
// Contents of tokenizer.json files, composed of parts that a test replaces.
// Read next: tests/tokenizer_test.cpp, tests/tokenizer_file_test.cpp.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace regard_tokenizer {

inline void append_utf8(std::string& text, char32_t code) {
  const auto byte = [&](char32_t bits) { text += static_cast<char>(bits); };
  if (code < 0x80) {
    byte(code);
    return;
  }
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      byte(0xE0 | code >> 12);
    } else {
      byte(0xF0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3F));
    }
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

inline std::string json_string(const std::string& text) {
  std::string escaped = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    if (static_cast<unsigned char>(c) < ' ') {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      escaped += code;
    } else {
      escaped += c;
    }
  }
  return escaped + '"';
}

inline std::string normalizer_json(bool clean_text, bool handle_chinese_chars, const std::string& strip_accents,
                                   bool lowercase) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return std::string(R"({"type": "BertNormalizer", "clean_text": )") + flag(clean_text) +
         R"(, "handle_chinese_chars": )" + flag(handle_chinese_chars) + R"(, "strip_accents": )" + strip_accents +
         R"(, "lowercase": )" + flag(lowercase) + "}";
}
inline const std::string kUncased = normalizer_json(true, true, "null", true);

// BERT's file. Empty strings are derived from the vocabulary: its tokens in the order of their ids, its special tokens
// as added tokens, [CLS] and [SEP] around the text.
struct TokenizerText {
  std::vector<std::string> vocabulary;
  std::string vocab{};
  std::string added_tokens{};
  std::string normalizer = kUncased;
  std::string pre_tokenizer = R"({"type": "BertPreTokenizer"})";
  std::string post_processor{};
  std::string prefix = "##";
  std::string model_rest = R"("type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 100)";
  std::string rest = R"("version": "1.0", "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": {"Fixed": 128}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"})";
};

inline std::string tokenizer_json(TokenizerText text) {
  const auto id_of = [&](const std::string& token) {
    const auto found = std::find(text.vocabulary.begin(), text.vocabulary.end(), token);
    return std::to_string(found - text.vocabulary.begin());
  };
  if (text.vocab.empty()) {
    std::string vocab;
    for (std::size_t i = 0; i < text.vocabulary.size(); ++i)
      vocab.append(i == 0 ? "{" : ",").append(json_string(text.vocabulary[i])).append(":").append(std::to_string(i));
    text.vocab = vocab.append("}");
  }
  if (text.added_tokens.empty()) {
    std::string added;
    for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
      if (std::find(text.vocabulary.begin(), text.vocabulary.end(), token) == text.vocabulary.end()) continue;
      added.append(added.empty() ? "[" : ",").append(R"({"id": )").append(id_of(token)).append(R"(, "content": ")");
      added.append(token).append(R"(", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false})");
    }
    text.added_tokens = added.empty() ? "[]" : added.append("]");
  }
  if (text.post_processor.empty()) {
    const auto special = [&](const std::string& token) {
      return json_string(token) + R"(: {"id": )" + json_string(token) + R"(, "ids": [)" + id_of(token) +
             R"(], "tokens": [)" + json_string(token) + "]}";
    };
    text.post_processor = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}], "pair": [],
      "special_tokens": {)" +
                          special("[CLS]") + ", " + special("[SEP]") + "}}";
  }
  return std::string("{") + text.rest + R"(, "added_tokens": )" + text.added_tokens + R"(, "normalizer": )" +
         text.normalizer + R"(, "pre_tokenizer": )" + text.pre_tokenizer + R"(, "post_processor": )" +
         text.post_processor + R"(, "model": {"vocab": )" + text.vocab + R"(, "continuing_subword_prefix": )" +
         json_string(text.prefix) + ", " + text.model_rest + "}}";
}

}  // namespace regard_tokenizer
