// SPDX-License-Identifier: Apache-2.0
//
// Text to ids compared with Hugging Face's tokenizer: 320 texts (tests/tokenizer/make_texts.py), every code point
// (make_tables.py), the byte ranges of pieces, and long texts of kinds that make tokenizers slow.
// Read next: tests/tokenizer_file_test.cpp, include/regard/model/tokenizer.h.
#include "regard/model/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "regard/io/json.h"
#include "support/data_path.h"
#include "support/test_size.h"
#include "support/tokenizer_files.h"

namespace regard::tokenizer_test {
namespace {

using regard_tokenizer::append_utf8;
using regard_tokenizer::tokenizer_json;
using regard_tokenizer::TokenizerText;

std::string read_data(const std::string& name) {
  std::ifstream file(regard::data_path("tokenizer/" + name), std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

const Tokenizer& bert() {
  static const Tokenizer tokenizer = [] {
    TokenizerText text;
    text.vocabulary = lines_of(read_data("vocab.txt"));
    return Tokenizer::read(tokenizer_json(text), "vocab.txt");
  }();
  return tokenizer;
}

// A tokenizer with few tokens and no template.
Tokenizer small(std::vector<std::string> vocabulary, const std::string& added = "[]",
                const std::string& normalizer = regard_tokenizer::kUncased) {
  TokenizerText text;
  text.vocabulary = std::move(vocabulary);
  text.added_tokens = added;
  text.normalizer = normalizer;
  text.post_processor = "null";
  return Tokenizer::read(tokenizer_json(text), "small");
}

std::uint64_t hash_of(std::uint64_t hash, Index number) {
  return (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
}
constexpr std::uint64_t kEmptyHash = 0xcbf29ce484222325u;

std::string hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "|") + word;
  return text;
}

std::vector<Index> as_indices(const std::vector<double>& numbers) { return {numbers.begin(), numbers.end()}; }

std::string repeated(std::string_view text, Index times) {
  std::string result;
  result.reserve(text.size() * static_cast<std::size_t>(times));
  for (Index i = 0; i < times; ++i) result += text;
  return result;
}

// For any text: byte ranges are within it, words are in order, and words equal the bytes of their ranges.
void expect_consistent(const TokenizedText& found, std::string_view text) {
  ASSERT_EQ(found.tokens.size(), found.ids.size());
  ASSERT_EQ(found.word.size(), found.ids.size());
  ASSERT_EQ(found.byte_ranges.size(), found.ids.size());
  Index last = -1;
  for (std::size_t i = 0; i < found.ids.size(); ++i) {
    const auto [begin, end] = found.byte_ranges[i];
    if (found.word[i] < 0) {
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 0);
      continue;
    }
    EXPECT_TRUE(found.word[i] == last || found.word[i] == last + 1);
    last = found.word[i];
    EXPECT_LE(0, begin);
    EXPECT_LT(begin, end);
    ASSERT_LE(end, static_cast<Index>(text.size()));
    const std::string piece(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    EXPECT_NE(found.words[static_cast<std::size_t>(last)].find(piece), std::string::npos);
  }
  EXPECT_EQ(last, static_cast<Index>(found.words.size()) - 1);
}

TEST(Tokenizer, MatchesHuggingFaceIdsWordsAndPositions) {
  const regard::JsonValue root = regard::read_json(read_data("texts.json"), "texts.json");
  ASSERT_GE(root.items().size(), 300u);
  std::size_t num_long = 0;
  std::size_t num_placed = 0;
  for (const regard::JsonValue& entry : root.items()) {
    const std::string& unit = entry.find("text")->text();
    const regard::JsonValue* times = entry.find("times");
    const Index repetitions = times == nullptr ? 1 : static_cast<Index>(times->number());
    const std::string text = repeated(unit, regard::test_size(repetitions, std::min<Index>(repetitions, 3000)));
    const TokenizedText found = bert().encode(text);
    SCOPED_TRACE(unit);
    if (text.size() < unit.size() * static_cast<std::size_t>(repetitions)) {  // small tests: not the text of the file
      num_long += entry.find("count") != nullptr;
      num_placed += entry.find("place") != nullptr;
      expect_consistent(found, text);
      continue;
    }
    if (const regard::JsonValue* count = entry.find("count")) {
      ++num_long;
      EXPECT_EQ(static_cast<double>(found.ids.size()), count->number());
      std::uint64_t hash = kEmptyHash;
      for (Index id : found.ids) hash = hash_of(hash, id);
      EXPECT_EQ(hex(hash), entry.find("hash")->text());
      continue;
    }
    EXPECT_EQ(found.ids, as_indices(entry.find("ids")->numbers()));
    EXPECT_EQ(found.word, as_indices(entry.find("word")->numbers()));
    if (const regard::JsonValue* expected = entry.find("place")) {
      ++num_placed;
      std::vector<Index> place;
      for (const auto& [begin, end] : found.byte_ranges) place.insert(place.end(), {begin, end});
      EXPECT_EQ(place, as_indices(expected->numbers()));
    }
    for (std::size_t i = 0; i < found.ids.size(); ++i) EXPECT_EQ(found.tokens[i], bert().token(found.ids[i]));
    expect_consistent(found, text);
  }
  EXPECT_EQ(num_long, 9u);
  EXPECT_GE(num_placed, 250u);
}

// The result for every code point between two letters, with a vocabulary of everything that a character can become.
TEST(Tokenizer, MatchesHuggingFaceForEveryCodePoint) {
  const std::vector<std::string> lines = lines_of(read_data("characters.txt"));
  std::vector<std::string> vocabulary;
  const regard::JsonValue tokens = regard::read_json(lines.front(), "characters.txt");
  for (const regard::JsonValue& token : tokens.items()) vocabulary.push_back(token.text());
  const std::map<std::string, std::string> normalizers = {
      {"uncased", regard_tokenizer::kUncased},
      {"cased", regard_tokenizer::normalizer_json(true, true, "false", false)},
      {"raw", regard_tokenizer::normalizer_json(false, true, "false", true)},
      {"accents", regard_tokenizer::normalizer_json(false, false, "true", false)}};
  ASSERT_EQ(lines.size(), 1 + normalizers.size());
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string name = lines[i].substr(0, lines[i].find(' '));
    const Tokenizer tokenizer = small(vocabulary, "[]", normalizers.at(name));
    std::istringstream hashes(lines[i].substr(name.size()));
    for (char32_t first = 0; first < 0x110000; first += 4096) {
      std::string expected;
      hashes >> expected;
      if (first / 4096 % regard::test_size(1u, 16u) != 0) continue;
      std::string text;
      for (char32_t code = first; code < first + 4096; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        text += text.empty() ? "a" : " a";
        append_utf8(text, code);
        text += 'b';
      }
      const TokenizedText found = tokenizer.encode(text);
      std::uint64_t hash = kEmptyHash;
      for (std::size_t k = 0; k < found.ids.size(); ++k) hash = hash_of(hash_of(hash, found.ids[k]), found.word[k]);
      EXPECT_EQ(hex(hash), expected) << name << ", code points from " << std::uint32_t{first};
    }
    EXPECT_TRUE((hashes >> std::ws).eof()) << name;
  }
}

TEST(Tokenizer, SplitsTextIntoWords) {
  const std::string text = "Don't re\u0301sume\u0301, \u4e2d\u6587!";
  const TokenizedText found = bert().encode(text);
  EXPECT_EQ(joined(found.words), "Don|'|t|re\u0301sume\u0301|,|\u4e2d|\u6587|!");
  EXPECT_EQ(joined(found.tokens), "[CLS]|don|'|t|resume|,|\u4e2d|\u6587|!|[SEP]");
  EXPECT_EQ(found.word, (std::vector<Index>{-1, 0, 1, 2, 3, 4, 5, 6, 7, -1}));
  EXPECT_EQ(found.byte_ranges[4], (std::array<Index, 2>{6, 16}));
  EXPECT_EQ(found.byte_ranges[6], (std::array<Index, 2>{18, 21}));
}

TEST(Tokenizer, PiecesHaveByteRangesInTheirWord) {
  const TokenizedText found = bert().encode("My Embe\u0301ddings");
  EXPECT_EQ(joined(found.tokens), "[CLS]|my|em|##bed|##ding|##s|[SEP]");
  EXPECT_EQ(found.byte_ranges[2], (std::array<Index, 2>{3, 5}));
  EXPECT_EQ(found.byte_ranges[3], (std::array<Index, 2>{5, 10}));  // including the accent on the e
  EXPECT_EQ(found.byte_ranges[5], (std::array<Index, 2>{14, 15}));
}

TEST(Tokenizer, PiecesOfOneCharacterShareItsByteRange) {
  const TokenizedText found = bert().encode("\ud55c");  // three jamo
  ASSERT_EQ(found.ids.size(), 5u);
  for (std::size_t i = 1; i <= 3; ++i) EXPECT_EQ(found.byte_ranges[i], (std::array<Index, 2>{0, 3}));
  EXPECT_EQ(joined(found.words), "\ud55c");
}

// The few combining characters that are not accents are kept, in canonical order: smaller classes first, stable within
// a class.
TEST(Tokenizer, SortsRemainingMarksInCanonicalOrder) {
  const Tokenizer tokenizer = small({"[UNK]", "a", "##\u302e", "##\u302f", "##\U0001d165", "##\U0001d165\u302e",
                                     "##\U00016ff0", "##\U00011938", "##\U00011935"});
  EXPECT_EQ(tokenizer.encode("a\u302e\U0001d165 a\U0001d165\u302f").ids, (std::vector<Index>{1, 5, 1, 4, 3}));
  EXPECT_EQ(tokenizer.encode("a\u302f\u302e a\u302e\u302f").ids, (std::vector<Index>{1, 3, 2, 1, 2, 3}));
  // A mark that is dropped separates them if its class is 0, like any letter.
  EXPECT_EQ(tokenizer.encode("a\u302e\u0941\U0001d165 a\u302e\u0301\U0001d165").ids,
            (std::vector<Index>{1, 2, 4, 1, 5}));
  // Hugging Face's tables know neither the class of U+16FF0 nor the decomposition of U+11938.
  EXPECT_EQ(tokenizer.encode("a\u302e\U00016ff0 a\U00011938").ids, (std::vector<Index>{1, 2, 6, 1, 7}));
  EXPECT_EQ(tokenizer.encode("a\u302e\U0001d165").byte_ranges[1], (std::array<Index, 2>{1, 8}));
  const TokenizedText moved = tokenizer.encode("a\u302f\U0001d165");
  EXPECT_EQ(moved.ids, (std::vector<Index>{1, 4, 3}));
  EXPECT_EQ(moved.byte_ranges[1], (std::array<Index, 2>{4, 8}));
  EXPECT_EQ(moved.byte_ranges[2], (std::array<Index, 2>{1, 4}));
}

TEST(Tokenizer, TreatsInvalidUtf8AsReplacementCharacters) {
  // Removed by clean_text, so that the words on both sides join.
  const std::string cut_short =
      "ri\xE4\xB8"
      "ver";
  for (const std::string& text : {std::string("ri\xFFver"), std::string("ri\xC0\xAFver"), cut_short,
                                  std::string("ri\xED\xA0\x80ver"), std::string("ri\xF8\x88\x80\x80\x80ver")}) {
    const TokenizedText found = bert().encode(text);
    EXPECT_EQ(joined(found.tokens), "[CLS]|river|[SEP]");
    EXPECT_EQ(joined(found.words), text);
  }
  EXPECT_EQ(joined(bert().encode("\xFF\xFE\x80").tokens), "[CLS]|[SEP]");
  // Without clean_text each byte is one U+FFFD.
  const Tokenizer raw =
      small({"[UNK]", "a", "##\ufffd"}, "[]", regard_tokenizer::normalizer_json(false, true, "null", true));
  EXPECT_EQ(raw.encode("a\xE4\xB8").ids, (std::vector<Index>{1, 2, 2}));
  EXPECT_EQ(raw.encode("a\ufffd").ids, (std::vector<Index>{1, 2}));
}

TEST(Tokenizer, TakesTheLongestPieceAtEachPosition) {
  const Tokenizer tokenizer = small({"[UNK]", "a", "ab", "##c", "##bc", "##cd", "abcde"});
  EXPECT_EQ(joined(tokenizer.encode("a ab abc abcde").tokens), "a|ab|ab|##c|abcde");
  // "ab" then "##cd" completes the word; "ab" then "##c" does not, although "a" "##bc" would: the longest piece is
  // taken without backtracking.
  EXPECT_EQ(joined(tokenizer.encode("abcd abcc abcbc").tokens), "ab|##cd|ab|##c|##c|ab|##c|##bc");
  EXPECT_EQ(joined(tokenizer.encode("abce c").tokens), "[UNK]|[UNK]");
}

TEST(Tokenizer, SupportsAnyContinuationPrefix) {
  TokenizerText text;
  text.vocabulary = {"[UNK]", "a", "b", "\u00e9a", "\u00e9\u00e9", "ba"};
  text.post_processor = "null";
  text.normalizer = regard_tokenizer::normalizer_json(true, true, "false", true);
  text.prefix = "\u00e9";  // a letter: the pieces that continue can also begin a word
  Tokenizer tokenizer = Tokenizer::read(tokenizer_json(text), "t");
  EXPECT_EQ(tokenizer.encode("aa b\u00e9 \u00e9a baa").ids, (std::vector<Index>{1, 3, 2, 4, 3, 5, 3}));
  text.prefix = "";
  tokenizer = Tokenizer::read(tokenizer_json(text), "t");
  EXPECT_EQ(tokenizer.encode("abba b\u00e9a").ids, (std::vector<Index>{1, 2, 5, 2, 3}));
  text.prefix = "##";  // which no token has
  tokenizer = Tokenizer::read(tokenizer_json(text), "t");
  EXPECT_EQ(tokenizer.encode("a aa").ids, (std::vector<Index>{1, 0}));
}

std::string added(const std::string& content, Index id, const std::string& flags) {
  std::string text = R"({"id": )" + std::to_string(id) + R"(, "content": ")" + content + R"(", "special": false)";
  for (const std::string name : {"single_word", "lstrip", "rstrip", "normalized"})
    text += ", \"" + name + "\": " + (flags.find(name) == std::string::npos ? "false" : "true");
  return text + "}";
}

TEST(Tokenizer, MatchesAddedTokensLiterally) {
  const std::vector<std::string> vocabulary = {"[UNK]", "a", "b", "[", "]"};
  const std::string tokens =
      std::string("[") + added("[M]", 5, "") + "," + added("[M]]", 6, "") + "," + added("[M]a", 7, "") + "]";
  const Tokenizer tokenizer = small(vocabulary, tokens);
  EXPECT_EQ(tokenizer.vocabulary_size(), 8);
  EXPECT_EQ(tokenizer.token(6), "[M]]");
  // The leftmost match, and of several the longest.
  const TokenizedText found = tokenizer.encode("a[M]]b [M]a[M]");
  EXPECT_EQ(found.ids, (std::vector<Index>{1, 6, 2, 7, 5}));
  EXPECT_EQ(joined(found.words), "a|[M]]|b|[M]a|[M]");
  EXPECT_EQ(found.byte_ranges[1], (std::array<Index, 2>{1, 5}));
  EXPECT_EQ(tokenizer.encode("[m]").ids, (std::vector<Index>{3, 0, 4}));
}

// The expected ids are those of tokenizers 0.23.
TEST(Tokenizer, HonorsTheFlagsOfAddedTokens) {
  const std::vector<std::string> vocabulary = {"[UNK]", "a", "b", "!", "new", "york", "n"};
  const Tokenizer single =
      small(vocabulary, std::string("[") + added("b", 2, "single_word") + "," + added("bb", 7, "") + "]");
  EXPECT_EQ(single.encode("b ab b! bb \u00e9b b\u0301 b_").ids, (std::vector<Index>{2, 0, 2, 3, 7, 0, 2, 2, 0}));
  EXPECT_EQ(joined(single.encode("!b!").words), "!|b|!");
  const Tokenizer letters = small(vocabulary, std::string("[") + added("bb", 7, "single_word") + "]");
  EXPECT_EQ(letters.encode("bb bb\u200d bb\u24b6 bb\u00b0").ids, (std::vector<Index>{7, 0, 0, 7, 0}));
  const Tokenizer hiding = small(vocabulary, std::string("[") + added("b", 2, "single_word") + "," +
                                                 added("b!", 7, "single_word") + "," + added("!n", 8, "") + "]");
  EXPECT_EQ(hiding.encode("b!n ab!n").ids, (std::vector<Index>{2, 3, 6, 0, 3, 6}));

  const Tokenizer stripping = small(vocabulary, std::string("[") + added("b", 2, "lstrip rstrip") + "]");
  const TokenizedText found = stripping.encode("a \t\u3000b\u2003 !");
  EXPECT_EQ(found.ids, (std::vector<Index>{1, 2, 3}));
  EXPECT_EQ(joined(found.words), "a|b|!");
  const Tokenizer right =
      small(vocabulary, std::string("[") + added("bb", 7, "rstrip") + "," + added(" n", 8, "normalized") + "]");
  EXPECT_EQ(right.encode("bb n n").ids, (std::vector<Index>{7, 6, 8}));
  const Tokenizer left =
      small(vocabulary, std::string("[") + added("bb", 7, "lstrip") + "," + added("n ", 8, "normalized") + "]");
  EXPECT_EQ(left.encode("n n bb").ids, (std::vector<Index>{8, 6, 7}));

  const Tokenizer normalized = small(vocabulary, std::string("[") + added("New York", 7, "normalized") + "]");
  const TokenizedText city = normalized.encode("a N\u00e9w YORK! new  york");
  EXPECT_EQ(city.ids, (std::vector<Index>{1, 7, 3, 4, 5}));
  EXPECT_EQ(joined(city.words), "a|N\u00e9w YORK|!|new|york");
  EXPECT_EQ(city.byte_ranges[1], (std::array<Index, 2>{2, 11}));

  const Tokenizer spaced =
      small(vocabulary, std::string("[") + added("\u4e2db", 7, "normalized lstrip") + "," + added(" n", 8, "") + "]");
  const TokenizedText ideographs = spaced.encode("a\u4e2db \u4e2dB");
  EXPECT_EQ(ideographs.ids, (std::vector<Index>{1, 7, 7}));
  EXPECT_EQ(joined(ideographs.words), "a|\u4e2db|\u4e2dB");
  EXPECT_EQ(spaced.encode("n  n n").ids, (std::vector<Index>{6, 8, 8}));
}

TEST(Tokenizer, AddsTokensOfBertProcessing) {
  TokenizerText text;
  text.vocabulary = {"[UNK]", "a", "<s>", "</s>"};
  text.added_tokens = "[]";
  text.post_processor = R"({"type": "BertProcessing", "sep": ["</s>", 3], "cls": ["<s>", 2]})";
  EXPECT_EQ(Tokenizer::read(tokenizer_json(text), "t").encode("a").ids, (std::vector<Index>{2, 1, 3}));
  text.post_processor = R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "end", "type_id": 0}}], "pair": [],
    "special_tokens": {"end": {"id": "end", "ids": [3, 2], "tokens": ["</s>", "<s>"]}}})";
  EXPECT_EQ(Tokenizer::read(tokenizer_json(text), "t").encode("a").ids, (std::vector<Index>{1, 3, 2}));
}

TEST(Tokenizer, FollowsTheNormalizersFlags) {
  const std::vector<std::string> vocabulary = {"[UNK]",  "e",        "E", "\u00e9",  "\u00c9",
                                               "\u4e2d", "##\u4e2d", "i", "##\u0307"};
  const auto ids = [&](const std::string& normalizer, const std::string& text) {
    return small(vocabulary, "[]", normalizer).encode(text).ids;
  };
  using regard_tokenizer::normalizer_json;
  const std::string text = "\u00c9 e\u4e2d";
  EXPECT_EQ(ids(normalizer_json(true, true, "null", true), text), (std::vector<Index>{1, 1, 5}));
  EXPECT_EQ(ids(normalizer_json(true, true, "null", false), text), (std::vector<Index>{4, 1, 5}));
  EXPECT_EQ(ids(normalizer_json(true, true, "true", false), text), (std::vector<Index>{2, 1, 5}));
  EXPECT_EQ(ids(normalizer_json(true, false, "false", true), text), (std::vector<Index>{3, 1, 6}));
  EXPECT_EQ(ids(normalizer_json(true, true, "false", true), "\u0130"), (std::vector<Index>{7, 8}));
  EXPECT_EQ(ids(normalizer_json(true, true, "null", true), "e\x01"), (std::vector<Index>{1}));
  EXPECT_EQ(ids(normalizer_json(false, true, "null", true),
                "e\x01 e\x0b"
                "e"),
            (std::vector<Index>{0, 1, 1}));
}

TEST(Tokenizer, RejectsInvalidArguments) {
  EXPECT_EQ(bert().vocabulary_size(), 30522);
  EXPECT_EQ(bert().token(30521), "##\uff5e");
  EXPECT_THROW(bert().token(-1), std::invalid_argument);
  EXPECT_THROW(bert().token(30522), std::invalid_argument);
  TokenizerText text;
  text.vocabulary = {"[UNK]", "[CLS]", "[SEP]"};
  const std::string json = tokenizer_json(text);
  const Tokenizer tokenizer = Tokenizer::read(json, "t", {.max_text_bytes = static_cast<Index>(json.size())});
  EXPECT_EQ(tokenizer.encode(std::string(json.size(), ' ')).ids.size(), 2u);
  EXPECT_THROW(tokenizer.encode(std::string(json.size() + 1, ' ')), std::invalid_argument);
  EXPECT_THROW(Tokenizer::read(json, "t", {.max_tokens = 0}), std::invalid_argument);
  EXPECT_THROW(Tokenizer::read(json, "t", {.max_token_bytes = -1}), std::invalid_argument);
  EXPECT_THROW(Tokenizer::read(json, "t", {.max_text_bytes = Index{1} << 32}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::tokenizer_test
