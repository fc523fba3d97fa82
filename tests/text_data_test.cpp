// SPDX-License-Identifier: Apache-2.0
//
// TextData: the division of a text, windows and their permutation, and texts that are too short; read_text_file.
// Read next: include/regard/train/text_data.h, src/train/data/permutation.cpp.
#include <gtest/gtest.h>

#include <set>

#include "regard/error.h"
#include "regard/io/sha256.h"
#include "regard/io/text_file.h"
#include "regard/train/text_data.h"
#include "support/model_bytes.h"
#include "support/rejection.h"

namespace regard::text_data_test {
namespace {

std::string digits(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('0' + i * i % 7);
  return text;
}

TextData characters(const std::string& text, Index length) {
  return TextData(text, Vocabulary::characters_of(text), length);
}

TEST(TextData, TheLastTenthIsHeldOut) {
  const std::string text = digits(109);
  const TextData data = characters(text, 4);
  EXPECT_EQ(data.tokens(TaskSplit::train).size(), 99u);
  EXPECT_EQ(data.tokens(TaskSplit::held_out).size(), 10u);
  EXPECT_EQ(data.num_windows(TaskSplit::train), 95);
  EXPECT_EQ(data.num_windows(TaskSplit::held_out), 6);
  EXPECT_EQ(data.sha256(), sha256(std::as_bytes(std::span(text))));
  EXPECT_EQ(data.length(), 4);
  std::string whole;
  for (const TaskSplit split : {TaskSplit::train, TaskSplit::held_out})
    for (const std::uint32_t id : data.tokens(split)) whole += data.vocabulary().token(id);
  EXPECT_EQ(whole, text);
}

TEST(TextData, CharactersAreNotDivided) {
  std::string text;
  for (int i = 0; i < 31; ++i) text += "中";
  // Nine tenths of 93 bytes are 84, which are 28 characters of three bytes.
  EXPECT_EQ(TextData::training_part(text).size(), 84u);
  EXPECT_EQ(TextData::training_part(text + "a").size(), 84u) << "of 94 bytes, 85 would divide a character";
  EXPECT_EQ(TextData::training_part(""), "");
}

TEST(TextData, WindowsOfAnEpochStartEverywhereOnce) {
  for (const std::size_t count : {22U, 23U, 24U, 40U, 57U, 109U, 500U}) {
    const TextData data = characters(digits(count), 1);
    for (const TaskSplit split : {TaskSplit::train, TaskSplit::held_out}) {
      const Index n = data.num_windows(split);
      std::vector<std::vector<Index>> epochs;
      for (Index epoch = 0; epoch < 3; ++epoch) {
        std::vector<Index>& starts = epochs.emplace_back();
        for (Index i = 0; i < n; ++i) starts.push_back(data.window_start(9, split, epoch * n + i));
        std::vector<Index> sorted = starts;
        std::sort(sorted.begin(), sorted.end());
        for (Index i = 0; i < n; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
      }
      if (n > 10) {
        EXPECT_NE(epochs[0], epochs[1]);
        std::vector<Index> other_seed;
        for (Index i = 0; i < n; ++i) other_seed.push_back(data.window_start(10, split, i));
        EXPECT_NE(epochs[0], other_seed);
      }
    }
  }
}

TEST(TextData, WindowsAreSpreadEvenly) {
  // Chi-squared over 16 by 16 cells of (first tenth of an epoch, place): 255 degrees of freedom, deviation 22.6.
  const TextData data = characters(digits(20000), 8);
  const Index n = data.num_windows(TaskSplit::train);
  std::vector<double> cells(256);
  for (Index i = 0; i < n; ++i)
    cells[static_cast<std::size_t>(i * 16 / n * 16 + data.window_start(1, TaskSplit::train, i) * 16 / n)] += 1;
  const double expected = static_cast<double>(n) / 256;
  double chi = 0;
  for (const double cell : cells) chi += (cell - expected) * (cell - expected) / expected;
  EXPECT_LT(chi, 225 + 5 * 22.6);
  EXPECT_GT(chi, 225 - 5 * 22.6) << "too even to be random";
}

TEST(TextData, AnExampleIsAWindowAndTheTokenAfterEach) {
  const TextData data = characters(digits(200), 16);
  std::vector<Index> tokens(16), targets(16);
  for (const TaskSplit split : {TaskSplit::train, TaskSplit::held_out}) {
    for (Index index = 0; index < 50; ++index) {
      if (data.num_windows(split) == 0) continue;
      data.example(3, split, index, tokens, targets);
      const auto start = static_cast<std::size_t>(data.window_start(3, split, index));
      for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(tokens[i], data.tokens(split)[start + i]);
        EXPECT_EQ(targets[i], data.tokens(split)[start + i + 1]);
      }
    }
  }
}

TEST(TextData, BytePairsShortenTheText) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the rain in spain stays mainly in the plain\n";
  const Vocabulary vocabulary = Vocabulary::learn_byte_pairs(TextData::training_part(text), 300);
  const TextData data(text, vocabulary, 32, "rain.txt");
  EXPECT_LT(data.tokens(TaskSplit::train).size(), text.size() / 3);
  std::string held_out;
  for (const std::uint32_t id : data.tokens(TaskSplit::held_out)) held_out += vocabulary.token(id);
  EXPECT_EQ(held_out, text.substr(TextData::training_part(text).size()));
}

TEST(TextData, TextsThatDoNotFitAreRejected) {
  EXPECT_EQ(rejection<DataError>([] { TextData("", Vocabulary::of_words({"a"}), 4, "a.txt"); }),
            "a.txt: is empty; expected a text");
  EXPECT_EQ(
      rejection<DataError>([] { TextData(digits(50), Vocabulary::characters_of("0123456"), 5, "a.txt"); }),
      "a.txt: has 45 tokens for training and 5 held out; windows of 5 need 6 in each: use a longer text or windows "
      "of at most 4");
  EXPECT_EQ(rejection<DataError>([] { TextData(digits(10), Vocabulary::characters_of("0123456"), 5, "a.txt"); }),
            "a.txt: has 9 tokens for training and 1 held out; windows of 5 need 6 in each: use a longer text");
  EXPECT_EQ(
      rejection<DataError>([] { TextData(digits(50) + "abc", Vocabulary::characters_of("0123456a"), 2, "a.txt"); }),
      "a.txt: from byte 48: encode: byte 3: \"b\" is not one of the 8 tokens of the vocabulary; train with a "
      "vocabulary of this text");
  EXPECT_EQ(rejection([] { characters(digits(50), 0); }), "TextData: length is 0; expected 1 or more");
  const TextData data = characters(digits(100), 4);
  EXPECT_EQ(rejection([&] { data.window_start(0, TaskSplit::train, -1); }),
            "TextData: index is -1; expected 0 or more");
  std::vector<Index> tokens(4), targets(3);
  EXPECT_EQ(rejection([&] { data.example(0, TaskSplit::train, 0, tokens, targets); }),
            "TextData: tokens has 4 elements and targets 3; expected 4");
}

TEST(TextFile, ReadsUtf8AndNothingElse) {
  const TestFolder folder;
  const std::string text = "<html> is text as well: é中😀\n";
  EXPECT_EQ(read_text_file(folder.write("a.txt", text)), text);
  EXPECT_EQ(read_text_file(folder.write("empty", "")), "");
  const auto message = [&](const std::string& name, const std::string& bytes) {
    const std::string path = folder.write(name, bytes);
    return rejection<DataError>([&] { read_text_file(path); }).substr(path.size());
  };
  EXPECT_EQ(message("latin1", "caf\xe9"), ": byte 3: not valid UTF-8; convert the file with iconv");
  EXPECT_EQ(message("zipped", "\x1f\x8b\x08\xff"), ": byte 0: this is a gzip archive, not text; unpack it first");
  const std::string large = folder.write("large", std::string(100000, 'a'));
  EXPECT_EQ(rejection<DataError>([&] { read_text_file(large, 99999); }),
            large + ": needs 100000 bytes of memory; 99999 are available");
  EXPECT_EQ(read_text_file(large, 100000).size(), 100000u);
  EXPECT_EQ(rejection<DataError>([&] { read_text_file(folder / "none"); }),
            (folder / "none") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(rejection<DataError>([&] { read_text_file(folder.path()); }),
            folder.path() + ": is a folder; expected a file");
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(read_text_file(large, std::nullopt, source.get_token()), Cancelled);
}

}  // namespace
}  // namespace regard::text_data_test
