// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary: characters, words and byte pairs; byte pairs against an implementation that counts everything anew for
// each merge; the JSON file, which is untrusted.
// Read next: include/regard/train/vocabulary.h, src/train/data/byte_pairs.cpp.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "regard/error.h"
#include "regard/train/vocabulary.h"
#include "support/rejection.h"

namespace regard::vocabulary_test {
namespace {

using Pair = std::pair<Index, Index>;
using Words = std::vector<std::vector<Index>>;

std::string read_rejection(const std::string& json) {
  return rejection<DataError>([&] { Vocabulary::read(json, "v"); });
}

std::vector<std::string> tokens_of(const Vocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (Index id = 0; id < vocabulary.size(); ++id) tokens.emplace_back(vocabulary.token(id));
  return tokens;
}

Vocabulary again(const Vocabulary& vocabulary) { return Vocabulary::read(vocabulary.json(), "again"); }

std::string random_bytes(std::mt19937& random, std::size_t count, const std::string& alphabet) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += alphabet.empty() ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
  return text;
}

int class_of(char c) {
  if (std::string(" \t\n\v\f\r").find(c) != std::string::npos) return 0;
  if (c >= '0' && c <= '9') return 1;
  return (c & 0x80) != 0 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? 2 : 3;
}

// The words of a text without long ones, by the rule for whether there is an end between two bytes.
Words reference_words(const std::string& text) {
  Words words;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool begins = i == 0;
    if (i > 0) {
      const int before = class_of(text[i - 1]), here = class_of(text[i]);
      const bool word_follows = i + 1 < text.size() && class_of(text[i + 1]) != 0;
      if (before == 0 && here == 0)
        begins = text[i] == ' ' && word_follows;
      else if (before == 0)
        begins = text[i - 1] != ' ';
      else
        begins = before != here;
    }
    if (begins) words.emplace_back();
    words.back().push_back(static_cast<unsigned char>(text[i]));
  }
  return words;
}

void merge_everywhere(Words& words, Pair pair, Index token) {
  for (auto& word : words)
    for (std::size_t j = 0; j + 1 < word.size(); ++j)
      if (Pair{word[j], word[j + 1]} == pair) {
        word[j] = token;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(j) + 1);
      }
}

// Learns and encodes, counting all pairs anew for each merge.
std::vector<Index> reference_ids(const std::string& text, Index size, std::vector<Pair>& merges) {
  Words words = reference_words(text);
  while (256 + static_cast<Index>(merges.size()) < size) {
    std::map<Pair, int> counts;
    for (const auto& word : words)
      for (std::size_t j = 1; j < word.size(); ++j) ++counts[{word[j - 1], word[j]}];
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) break;
    merge_everywhere(words, best->first, 256 + static_cast<Index>(merges.size()));
    merges.push_back(best->first);
  }
  std::vector<Index> ids;
  for (const auto& word : words) ids.insert(ids.end(), word.begin(), word.end());
  return ids;
}

TEST(Vocabulary, CharactersAreSortedByCodePoint) {
  const Vocabulary vocabulary = Vocabulary::characters_of("ba\n😀é a中\xf4\x8f\xbf\xbf");
  EXPECT_EQ(tokens_of(vocabulary),
            (std::vector<std::string>{"\n", " ", "a", "b", "é", "中", "😀", "\xf4\x8f\xbf\xbf"}));
  EXPECT_EQ(vocabulary.kind(), VocabularyKind::characters);
  EXPECT_EQ(vocabulary.encode("é😀ab"), (std::vector<Index>{4, 6, 2, 3}));
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("a😀 中\nb")), "a😀 中\nb");
  EXPECT_EQ(vocabulary.encode(""), std::vector<Index>{});
  EXPECT_EQ(tokens_of(again(vocabulary)), tokens_of(vocabulary));
}

TEST(Vocabulary, EveryCharacterKeepsItsPlace) {
  std::string text;
  const auto append = [&](std::uint32_t code) {
    const auto byte = [&](std::uint32_t x) { text += static_cast<char>(x); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) return byte(0xc0 | code >> 6), byte(0x80 | (code & 63));
    if (code < 0x10000) return byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
    byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
  };
  for (std::uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 97)
    if (code < 0xd800 || code > 0xdfff) append(code);
  const Vocabulary vocabulary = again(Vocabulary::characters_of(text));
  std::vector<Index> ids(static_cast<std::size_t>(vocabulary.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Index>(i);
  EXPECT_EQ(vocabulary.encode(text), ids);
  EXPECT_EQ(vocabulary.decode(ids), text);
}

TEST(Vocabulary, TextsThatCannotBeEncodedAreRejected) {
  const Vocabulary characters = Vocabulary::characters_of("abc");
  EXPECT_EQ(rejection([&] { characters.encode("ab€"); }),
            "encode: byte 2: \"€\" is not one of the 3 tokens of the vocabulary");
  EXPECT_EQ(rejection([&] { characters.encode("a\xff"); }),
            "encode: byte 1: \"\\x{ff}\" is not one of the 3 tokens of the vocabulary");
  EXPECT_EQ(rejection([&] { characters.decode(std::vector<Index>{0, 3}); }), "token: id is 3; expected 0 to 2");
  EXPECT_EQ(rejection([&] { characters.token(-1); }), "token: id is -1; expected 0 to 2");
  EXPECT_EQ(rejection<DataError>([] { Vocabulary::characters_of("", "a.txt"); }), "a.txt: is empty; expected a text");
  EXPECT_EQ(rejection<DataError>([] { Vocabulary::characters_of("ab\xc3(", "a.txt"); }),
            "a.txt: byte 2: not valid UTF-8");
}

TEST(Vocabulary, WordsAreSeparatedByWhiteSpace) {
  const Vocabulary vocabulary = Vocabulary::of_words({"^", "b", "a", "10", "="});
  EXPECT_EQ(vocabulary.encode("  ^ 10\tb =\n"), (std::vector<Index>{0, 3, 1, 4}));
  EXPECT_EQ(vocabulary.decode(std::vector<Index>{0, 3, 1, 4}), "^ 10 b =");
  EXPECT_EQ(tokens_of(again(vocabulary)), tokens_of(vocabulary));
  EXPECT_EQ(rejection([&] { vocabulary.encode("^ 1 0"); }),
            "encode: byte 2: \"1\" is not one of the 5 tokens of the vocabulary; separate tokens with spaces");
  EXPECT_EQ(rejection([] { Vocabulary::of_words({}); }), "of_words: there are 0 words; expected 1 to 16777216");
  EXPECT_EQ(rejection([] { Vocabulary::of_words({"a", ""}); }), "of_words: word 1, \"\", is empty");
  EXPECT_EQ(rejection([] { Vocabulary::of_words({"a b"}); }), "of_words: word 0, \"a b\", contains whitespace");
  EXPECT_EQ(rejection([] { Vocabulary::of_words({"\xff"}); }), "of_words: word 0, \"\\x{ff}\", is not valid UTF-8");
  EXPECT_EQ(rejection([] { Vocabulary::of_words({"b", "a", "b"}); }), "of_words: word 2, \"b\", occurs twice");
}

TEST(Vocabulary, ATinyVocabularyWorkedOutByHand) {
  // Words: "low", " low", " lower", " newer", " wider". Pairs: "er" 3, "lo" 3, "ow" 3, " l" 2, "we" 2, "wer"…
  // Of the three that occur three times, (e, r) is the smallest: e is 101, l is 108, o is 111.
  const Vocabulary vocabulary = Vocabulary::learn_byte_pairs("low low lower newer wider", 260);
  const std::vector<std::string> tokens = tokens_of(vocabulary);
  ASSERT_EQ(tokens.size(), 260u);
  EXPECT_EQ(tokens[97], "a");
  // Then "lo" 3 before "ow", which becomes "lo" + "w" 3; and of those that occur twice, (" ", "low"): space is 32.
  EXPECT_EQ(std::vector<std::string>(tokens.begin() + 256, tokens.end()),
            (std::vector<std::string>{"er", "lo", "low", " low"}));
  EXPECT_EQ(vocabulary.encode("slow lowers"), (std::vector<Index>{'s', 258, 259, 256, 's'}));
}

TEST(Vocabulary, RunsAreMergedFromTheLeft) {
  const Vocabulary vocabulary = Vocabulary::learn_byte_pairs("aaa aaa aaa", 258);
  // " a" 2, "aa" 6: aa; then "aa" + "a" 3.
  EXPECT_EQ(vocabulary.token(256), "aa");
  EXPECT_EQ(vocabulary.token(257), "aaa");
  EXPECT_EQ(vocabulary.encode("aaaa aa"), (std::vector<Index>{256, 256, ' ', 256}));
}

TEST(Vocabulary, BytePairsMatchTheReference) {
  std::mt19937 random(20260131);
  for (const char* alphabet : {"ab", "ab c", "aab  \n1.", "é中 x", "", "the rain in spain 10."}) {
    for (const std::size_t count : {0U, 1U, 2U, 30U, 400U, 1500U}) {
      SCOPED_TRACE(std::string(alphabet) + " " + std::to_string(count));
      // Runs of a class longer than 64 bytes are a different test.
      std::string text = random_bytes(random, count, alphabet);
      for (std::size_t i = 40; i < text.size(); i += 41) text[i] = i % 2 == 0 ? '\n' : '.';
      std::vector<Pair> merges;
      const std::vector<Index> expected = reference_ids(text, 320, merges);
      const Vocabulary vocabulary = Vocabulary::learn_byte_pairs(text, 320);
      ASSERT_EQ(vocabulary.size(), 256 + static_cast<Index>(merges.size()));
      for (std::size_t m = 0; m < merges.size(); ++m)
        ASSERT_EQ(vocabulary.token(256 + static_cast<Index>(m)),
                  std::string(vocabulary.token(merges[m].first)).append(vocabulary.token(merges[m].second)))
            << m;
      EXPECT_EQ(vocabulary.encode(text), expected);
    }
  }
}

TEST(Vocabulary, EveryTextSurvivesTheRoundTrip) {
  std::mt19937 random(20260201);
  const Vocabulary vocabulary =
      again(Vocabulary::learn_byte_pairs("the rain in spain 👩‍🚀👩‍🚀 stays mainly in the plain", 280));
  std::vector<std::string> texts{"",
                                 " ",
                                 "  a",
                                 "\n\n x",
                                 "👩‍🚀 and 👨‍👩‍👧",
                                 std::string("\0a\0", 3),
                                 std::string(1000, ' '),
                                 std::string(1000, 'a'),
                                 std::string(1000, '\x80')};
  for (int i = 0; i < 200; ++i) texts.push_back(random_bytes(random, random() % 200, i % 2 == 0 ? "" : "thein \n"));
  for (const std::string& text : texts) {
    const std::vector<Index> ids = vocabulary.encode(text);
    EXPECT_EQ(vocabulary.decode(ids), text);
    EXPECT_LE(ids.size(), text.size());
  }
}

TEST(Vocabulary, TokensStayWithinWordsOf64Bytes) {
  // A run of 130 letters: words of 64, 64 and 2. With three bytes a letter they end after whole letters: 63.
  const Vocabulary ascii = Vocabulary::learn_byte_pairs(std::string(130, 'a') + " " + std::string(130, 'a'), 1000);
  std::string chinese;
  for (int i = 0; i < 210; ++i) chinese += "中";
  const Vocabulary letters = Vocabulary::learn_byte_pairs(chinese, 1000);
  const auto longest = [](const Vocabulary& vocabulary) {
    std::size_t bytes = 0;
    for (const std::string& token : tokens_of(vocabulary)) bytes = std::max(bytes, token.size());
    return bytes;
  };
  EXPECT_EQ(longest(ascii), 64u);
  EXPECT_EQ(longest(letters), 63u);
  EXPECT_EQ(letters.encode(chinese).size(), 10u);
}

TEST(Vocabulary, LearningEndsWhenNoPairOccursTwice) {
  EXPECT_EQ(Vocabulary::learn_byte_pairs("abcabd", 1000).size(), 257);
  EXPECT_EQ(Vocabulary::learn_byte_pairs("", 1000).size(), 256);
  EXPECT_EQ(Vocabulary::learn_byte_pairs("aaaa", 256).size(), 256);
  EXPECT_EQ(rejection([] { Vocabulary::learn_byte_pairs("a", 255); }),
            "learn_byte_pairs: size is 255; expected 256 to 16777216");
  EXPECT_EQ(
      rejection<DataError>([] { Vocabulary::learn_byte_pairs(std::string(100000, 'a'), 300, "a.txt", {}, 1000); }),
      "accepted")
      << "only 24 bytes for each of 1,563 words, which are two different ones";
  EXPECT_EQ(rejection<DataError>([] {
              std::string text;
              for (int i = 0; i < 100000; ++i) text += i % 2 == 0 ? 'a' : '1';
              Vocabulary::learn_byte_pairs(text, 300, "a.txt", {}, 1000000);
            }),
            "a.txt: needs 1600000 bytes of memory; 1000000 are available");
}

TEST(Vocabulary, JsonOfEachKind) {
  EXPECT_EQ(Vocabulary::characters_of("b\na").json(),
            "{\n  \"schema\": \"regard/1\",\n  \"kind\": \"characters\",\n  \"tokens\": [\"\\n\", \"a\", \"b\"]\n}\n");
  EXPECT_EQ(
      Vocabulary::learn_byte_pairs("low low", 258).json(),
      "{\n  \"schema\": \"regard/1\",\n  \"kind\": \"byte_pairs\",\n  \"merges\": [\n    [108, 111],\n    [256, 119]\n"
      "  ]\n}\n");
  EXPECT_EQ(Vocabulary::of_words({"=", "<"}).json(),
            "{\n  \"schema\": \"regard/1\",\n  \"kind\": \"words\",\n  \"tokens\": [\"=\", \"\\u003c\"]\n}\n");
}

TEST(Vocabulary, FilesThatAreNotValidAreRejected) {
  const auto with = [](const std::string& kind, const std::string& rest) {
    return read_rejection(R"({"schema":"regard/1","kind":")" + kind + "\"," + rest + "}");
  };
  EXPECT_EQ(read_rejection("[]"), "v: byte 0: a vocabulary must be an object");
  EXPECT_EQ(read_rejection("{}"), "v: byte 0: schema is missing");
  EXPECT_EQ(read_rejection(R"({"schema":"regard/2"})"),
            "v: byte 10: schema \"regard/2\" is not supported; expected regard/1");
  EXPECT_EQ(read_rejection(R"({"schema":"regard/1","kind":3})"), "v: byte 28: kind is not a string");
  EXPECT_EQ(with("bytes", "\"tokens\":[]"),
            "v: byte 28: kind \"bytes\" is not supported; expected characters, byte_pairs, words");
  EXPECT_EQ(with("words", "\"merges\":[]"), "v: byte 0: tokens is missing");
  EXPECT_EQ(with("words", "\"tokens\":{}"), "v: byte 45: tokens is not an array");
  EXPECT_EQ(with("words", "\"tokens\":[]"), "v: byte 45: there are 0 of them; expected 1 to 16777216");
  EXPECT_EQ(with("words", "\"tokens\":[1]"), "v: byte 45: a token is a number, not a string");
  EXPECT_EQ(with("words", "\"tokens\":[\"a\",1]"), "v: byte 50: a token is not a string");
  EXPECT_EQ(with("words", "\"tokens\":[\"a\",\"a b\"]"), "v: byte 50: the token \"a b\" contains whitespace");
  EXPECT_EQ(with("words", "\"tokens\":[\"b\",\"a\",\"b\"]"), "v: byte 54: the token \"b\" occurs twice");
  EXPECT_EQ(with("characters", "\"tokens\":[\"b\",\"a\"]"), "v: byte 55: the token \"a\" is out of order");
  EXPECT_EQ(with("characters", "\"tokens\":[\"a\",\"a\"]"), "v: byte 55: the token \"a\" is out of order");
  EXPECT_EQ(with("characters", "\"tokens\":[\"ab\"]"), "v: byte 51: the token \"ab\" is not one character");
  EXPECT_EQ(with("characters", "\"tokens\":[\"\"]"), "v: byte 51: the token \"\" is empty");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[97,98]"), "v: byte 50: a merge is a number, not a pair");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97]]"), "v: byte 51: a merge is not a pair of tokens");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97,98,99]]"), "v: byte 51: a merge is not a pair of tokens");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97,256]]"), "v: byte 51: a merge has token 256; expected 0 to 255");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97,0.5]]"), "v: byte 51: a merge has token 0.5; expected 0 to 255");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97,-1]]"), "v: byte 51: a merge has token -1; expected 0 to 255");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[[97,98],[256,98],[97,98]]"), "v: byte 68: a merge occurs twice");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[]"), "accepted");
  // Six doublings make a token of 64 bytes; a seventh would be too long, and forty would not fit in memory.
  std::string doublings = "[97,97]";
  for (int id = 256; id < 261; ++id) doublings += ",[" + std::to_string(id) + "," + std::to_string(id) + "]";
  EXPECT_EQ(with("byte_pairs", "\"merges\":[" + doublings + "]"), "accepted");
  EXPECT_EQ(with("byte_pairs", "\"merges\":[" + doublings + ",[261,97]]"),
            "v: byte 109: a token has 65 bytes; the limit is 64");
}

TEST(Vocabulary, ReadingChecksMemoryFirst) {
  std::string json = R"({"schema":"regard/1","kind":"byte_pairs","merges":[[0,0])";
  for (int i = 1; i < 20000; ++i) json += ",[" + std::to_string(i / 256) + "," + std::to_string(i % 256) + "]";
  const std::string message = rejection<DataError>([&] { Vocabulary::read(json + "]}", "v", {}, 1 << 20); });
  EXPECT_TRUE(message.starts_with("v: needs ")) << message;
  EXPECT_EQ(Vocabulary::read(json + "]}", "v").size(), 20256);
}

TEST(Vocabulary, WorkStopsOnRequest) {
  std::stop_source source;
  source.request_stop();
  const std::stop_token stop = source.get_token();
  const Vocabulary vocabulary = Vocabulary::learn_byte_pairs("a b", 300);
  EXPECT_THROW(Vocabulary::characters_of("ab", "t", stop), Cancelled);
  EXPECT_THROW(Vocabulary::learn_byte_pairs("a b", 300, "t", stop), Cancelled);
  EXPECT_THROW(Vocabulary::read(vocabulary.json(), "t", stop), Cancelled);
  EXPECT_THROW(vocabulary.encode("a b", stop), Cancelled);
}

}  // namespace
}  // namespace regard::vocabulary_test
