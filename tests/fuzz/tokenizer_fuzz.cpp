// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target, selected by the first byte. Even: the rest is a tokenizer.json, which is rejected with a byte
// offset, or is a tokenizer that encodes a text. Odd: the rest is a text, encoded by small tokenizers with all flags;
// pieces are within their words, words are in order, and a text split after a space gives the same pieces as its parts.
// Read next: include/regard/model/tokenizer.h.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "regard/model/tokenizer.h"

namespace {

using regard::Index;
using regard::TokenizedText;
using regard::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const TokenizedText& found, std::string_view text, const Tokenizer& tokenizer) {
  const std::size_t count = found.ids.size();
  require(found.tokens.size() == count && found.word.size() == count && found.byte_ranges.size() == count);
  Index last = -1;
  for (std::size_t i = 0; i < count; ++i) {
    require(found.tokens[i] == tokenizer.token(found.ids[i]));
    const auto [begin, end] = found.byte_ranges[i];
    if (found.word[i] < 0) {
      require(begin == 0 && end == 0);
      continue;
    }
    require(found.word[i] == last || found.word[i] == last + 1);
    last = found.word[i];
    require(0 <= begin && begin < end && end <= static_cast<Index>(text.size()));
    const std::string& word = found.words[static_cast<std::size_t>(last)];
    require(word.find(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) !=
            std::string::npos);
  }
  require(last + 1 == static_cast<Index>(found.words.size()));
}

// A tokenizer without a template. Flags: clean_text, handle_chinese_chars, strip_accents, lowercase.
Tokenizer small(unsigned flags) {
  const auto flag = [&](unsigned bit) { return (flags >> bit & 1) != 0 ? "true" : "false"; };
  const auto added = [](const char* content, int id, const char* single, const char* strip, const char* normalized) {
    return std::string(R"({"content": ")") + content + R"(", "id": )" + std::to_string(id) + R"(, "single_word": )" +
           single + R"(, "lstrip": )" + strip + R"(, "rstrip": )" + strip + R"(, "normalized": )" + normalized + "}";
  };
  std::string json = R"({"post_processor": null, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {
    "vocab": {"[UNK]": 0, "a": 1, "b": 2, "##a": 3, "##b": 4, "ab": 5, "##\u0301": 6, "\u4e2d": 7, "##aab": 8},
    "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 5},
    "normalizer": {"type": "BertNormalizer")";
  json.append(R"(, "clean_text": )").append(flag(0)).append(R"(, "handle_chinese_chars": )").append(flag(1));
  json.append(R"(, "strip_accents": )").append(flag(2)).append(R"(, "lowercase": )").append(flag(3));
  json.append(R"(}, "added_tokens": [)").append(added("[M]", 9, "false", "false", "false"));
  json.append(",").append(added("<s>", 10, "true", "true", "false"));
  if ((flags >> 4 & 1) != 0) json.append(",").append(added("B a", 11, "true", "true", "true"));
  return Tokenizer::read(json.append("]}"), "small");
}

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> made;
    for (unsigned flags = 0; flags < 32; ++flags) made.push_back(small(flags));
    return made;
  }();
  return all;
}

void read_file(std::string_view json) {
  try {
    const Tokenizer tokenizer = Tokenizer::read(json, "fuzz");
    const std::string_view text = "a [MASK] river\u0301 \u4e2d##ing, UNK";
    check(tokenizer.encode(text), text, tokenizer);
    check(tokenizer.encode(json), json, tokenizer);
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with("fuzz: byte "));
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

void encode(unsigned flags, std::string_view text) {
  const Tokenizer& tokenizer = tokenizers()[flags % 32];
  const TokenizedText whole = tokenizer.encode(text);
  check(whole, text, tokenizer);
  const std::size_t space = text.find(" a ");
  if (space == std::string_view::npos || flags % 32 >= 16) return;
  std::vector<Index> ids = tokenizer.encode(text.substr(0, space + 2)).ids;
  const TokenizedText rest = tokenizer.encode(text.substr(space + 2));
  ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
  require(ids == whole.ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    read_file(rest);
  else
    encode(data[0] / 2u, rest);
  return 0;
}
