// SPDX-License-Identifier: Apache-2.0
//
// training_tasks: examples, checked by rules that are written down here independently of the generators; what the two
// splits share; shuffled labels; recipes.
// Read next: include/regard/train/tasks.h, src/train/data/task_generators.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "regard/train/tasks.h"
#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::tasks_test {
namespace {

using Texts = std::vector<std::string>;

// The example as words, with the last target appended: the whole sequence.
Texts words_of(const TrainingTask& task, const TaskExample& example) {
  Texts words;
  for (const Index token : example.tokens) words.push_back(task.vocabulary.at(static_cast<std::size_t>(token)));
  words.push_back(task.vocabulary.at(static_cast<std::size_t>(example.targets.back())));
  return words;
}

// The rows with a target.
std::vector<Index> counted_rows(const TaskExample& example) {
  std::vector<Index> rows;
  for (std::size_t i = 0; i < example.targets.size(); ++i)
    if (example.targets[i] >= 0) rows.push_back(static_cast<Index>(i));
  return rows;
}

std::vector<Index> range(Index begin, Index end) {
  std::vector<Index> all;
  for (Index i = begin; i < end; ++i) all.push_back(i);
  return all;
}

// Calls `check(example, words)` for examples of both splits.
template <class Check>
void for_examples(const char* name, const Check& check) {
  const TrainingTask& task = find_task(name);
  for (const TaskSplit split : {TaskSplit::train, TaskSplit::held_out}) {
    for (Index index = 0; index < 200; ++index) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(index));
      const TaskExample example = task.example(7, split, index);
      check(example, words_of(task, example));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

std::string first_letters(const Texts& words, std::size_t begin, std::size_t count) {
  std::string text;
  for (std::size_t i = begin; i < begin + count; ++i) text += words.at(i);
  return text;
}

// "^ input = output": returns n, and checks everything but the output.
std::size_t check_input_and_output(const TaskExample& example, const Texts& words) {
  const std::size_t n = words.size() / 2 - 1;
  EXPECT_EQ(words.size(), 2 * n + 2);
  EXPECT_EQ(words[0], "^");
  EXPECT_EQ(words[n + 1], "=");
  EXPECT_EQ(counted_rows(example), range(static_cast<Index>(n) + 1, static_cast<Index>(2 * n) + 1));
  return n;
}

TEST(Tasks, EveryExampleIsWellFormed) {
  for (const TrainingTask& task : training_tasks()) {
    SCOPED_TRACE(std::string(task.name));
    const auto length = static_cast<std::size_t>(task.recipe.length);
    const auto size = static_cast<Index>(task.vocabulary.size());
    EXPECT_EQ(task.recipe.model.max_positions, task.recipe.length);
    EXPECT_EQ(task.recipe.model.vocabulary, size);
    for (Index index = 0; index < 100; ++index) {
      const TaskExample example = task.example(3, TaskSplit::train, index);
      ASSERT_EQ(example.tokens.size(), length);
      ASSERT_EQ(example.targets.size(), length);
      ASSERT_EQ(example.wanted.size(), length);
      for (std::size_t i = 0; i < length; ++i) {
        EXPECT_TRUE(example.tokens[i] >= 0 && example.tokens[i] < size);
        EXPECT_TRUE(example.targets[i] >= -1 && example.targets[i] < size);
        // A target is the next token, so that a trained model can generate the answer.
        if (i + 1 < length && example.targets[i] >= 0) {
          EXPECT_EQ(example.targets[i], example.tokens[i + 1]);
        }
        EXPECT_TRUE(example.wanted[i].empty() || example.targets[i] >= 0);
        Index last = -1;
        for (const Index key : example.wanted[i]) {
          EXPECT_GT(key, last);
          EXPECT_LE(key, static_cast<Index>(i));
          last = key;
        }
      }
    }
  }
}

TEST(Tasks, CopyRepeatsItsInput) {
  for_examples("copy", [](const TaskExample& example, const Texts& words) {
    const std::size_t n = check_input_and_output(example, words);
    EXPECT_EQ(first_letters(words, n + 2, n), first_letters(words, 1, n));
    for (std::size_t row = n + 1; row <= 2 * n; ++row)
      EXPECT_EQ(example.wanted[row], std::vector<Index>{static_cast<Index>(row - n)});
  });
}

TEST(Tasks, ReverseAttendsAlongTheAntiDiagonal) {
  for_examples("reverse", [](const TaskExample& example, const Texts& words) {
    const std::size_t n = check_input_and_output(example, words);
    const std::string input = first_letters(words, 1, n);
    EXPECT_EQ(first_letters(words, n + 2, n), std::string(input.rbegin(), input.rend()));
    for (std::size_t row = n + 1; row <= 2 * n; ++row)
      EXPECT_EQ(example.wanted[row], std::vector<Index>{static_cast<Index>(2 * n + 1 - row)});
  });
}

TEST(Tasks, SortAttendsToTheNextSmallest) {
  for_examples("sort", [](const TaskExample& example, const Texts& words) {
    const std::size_t n = check_input_and_output(example, words);
    std::string sorted = first_letters(words, 1, n);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(first_letters(words, n + 2, n), sorted);
    EXPECT_EQ(std::set<char>(sorted.begin(), sorted.end()).size(), n);
    for (std::size_t row = n + 1; row <= 2 * n; ++row) {
      ASSERT_EQ(example.wanted[row].size(), 1u);
      EXPECT_EQ(words[static_cast<std::size_t>(example.wanted[row][0])], words[row + 1]);
    }
  });
}

TEST(Tasks, InductionAttendsToTheTokenAfterTheEarlierCopy) {
  std::set<Index> lags;
  for_examples("induction", [&](const TaskExample& example, const Texts& words) {
    const std::vector<Index> rows = counted_rows(example);
    const auto length = static_cast<Index>(example.tokens.size());
    EXPECT_EQ(rows, range(rows.front(), length));
    // Tokens before the repetition differ, so there is exactly one earlier copy.
    const auto half = static_cast<std::ptrdiff_t>(rows.front());
    EXPECT_EQ(std::set<std::string>(words.begin(), words.begin() + half).size(), static_cast<std::size_t>(half));
    for (const Index row : rows) {
      const auto i = static_cast<std::size_t>(row);
      const auto copy = std::find(words.begin(), words.begin() + row, words[i]) - words.begin();
      ASSERT_LT(copy, row);
      EXPECT_EQ(words[static_cast<std::size_t>(copy) + 1], words[i + 1]);
      const Index lag = row - copy;
      EXPECT_EQ(lag, length - rows.front() + 1);
      EXPECT_EQ(example.wanted[i], std::vector<Index>{row - lag + 1});
      lags.insert(lag);
    }
  });
  EXPECT_GE(lags.size(), 4u) << "a fixed distance could be learned from positions";
}

TEST(Tasks, RecallAttendsToTheValueOfTheKey) {
  std::set<Index> distances;
  for_examples("recall", [&](const TaskExample& example, const Texts& words) {
    const std::size_t pairs = (words.size() - 1) / 4;
    ASSERT_EQ(words.size(), 4 * pairs + 1);
    std::map<std::string, std::size_t> value_at;
    for (std::size_t i = 1; i <= 2 * pairs; i += 2) EXPECT_TRUE(value_at.emplace(words[i], i + 1).second);
    std::vector<Index> rows;
    std::set<std::string> queried;
    for (std::size_t i = 2 * pairs + 1; i < words.size(); i += 2) {
      rows.push_back(static_cast<Index>(i));
      queried.insert(words[i]);
      EXPECT_EQ(words[i + 1], words[value_at.at(words[i])]);
      EXPECT_EQ(example.wanted[i], std::vector<Index>{static_cast<Index>(value_at.at(words[i]))});
      distances.insert(static_cast<Index>(i) - example.wanted[i][0]);
    }
    EXPECT_EQ(counted_rows(example), rows);
    EXPECT_EQ(queried.size(), pairs);
  });
  EXPECT_GE(distances.size(), 8u);
}

TEST(Tasks, AdditionIsRightAndReversed) {
  bool carries_out = false;
  for_examples("addition", [&](const TaskExample& example, const Texts& words) {
    const std::size_t n = (words.size() - 4) / 3;
    ASSERT_EQ(words.size(), 3 * n + 4);
    EXPECT_EQ(words[0] + words[n + 1] + words[2 * n + 2], "^+=");
    const int a = std::stoi(first_letters(words, 1, n)), b = std::stoi(first_letters(words, n + 2, n));
    const std::string reversed = first_letters(words, 2 * n + 3, n + 1);
    EXPECT_EQ(std::stoi(std::string(reversed.rbegin(), reversed.rend())), a + b);
    const auto equals = static_cast<Index>(2 * n + 2);
    EXPECT_EQ(counted_rows(example), range(equals, equals + static_cast<Index>(n) + 1));
    for (std::size_t k = 0; k < n; ++k)
      EXPECT_EQ(example.wanted[2 * n + 2 + k],
                (std::vector<Index>{static_cast<Index>(n - k), static_cast<Index>(2 * n + 1 - k)}));
    EXPECT_TRUE(example.wanted.back().empty()) << "the last digit is a carry";
    carries_out = carries_out || reversed.back() == '1';
  });
  EXPECT_TRUE(carries_out);
}

TEST(Tasks, ModularAdditionIsRight) {
  for_examples("modular-addition", [](const TaskExample& example, const Texts& words) {
    ASSERT_EQ(words.size(), 5u);
    EXPECT_EQ(words[0] + words[3], "^=");
    EXPECT_EQ((std::stoi(words[1]) + std::stoi(words[2])) % 97, std::stoi(words[4]));
    EXPECT_EQ(counted_rows(example), std::vector<Index>{3});
    EXPECT_EQ(example.wanted[3], (std::vector<Index>{1, 2}));
  });
}

TEST(Tasks, BracketsAreBalancedAndBounded) {
  std::size_t deepest = 0;
  for_examples("brackets", [&](const TaskExample& example, const Texts& words) {
    const std::map<std::string, std::string> partner{{")", "("}, {"]", "["}, {"}", "{"}, {">", "<"}};
    std::vector<std::size_t> open;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto found = partner.find(words[i]);
      EXPECT_EQ(example.targets[i - 1] >= 0, found != partner.end());
      if (found == partner.end()) {
        EXPECT_TRUE(example.wanted[i - 1].empty());
        open.push_back(i);
        deepest = std::max(deepest, open.size());
        continue;
      }
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(words[open.back()], found->second);
      EXPECT_EQ(example.wanted[i - 1], std::vector<Index>{static_cast<Index>(open.back())});
      open.pop_back();
    }
    EXPECT_TRUE(open.empty());
  });
  EXPECT_EQ(deepest, 6u);
}

TEST(Tasks, ExamplesDependOnNothingButTheirArguments) {
  for (const TrainingTask& task : training_tasks()) {
    SCOPED_TRACE(std::string(task.name));
    const TaskExample once = task.example(5, TaskSplit::train, 12);
    EXPECT_NE(task.example(5, TaskSplit::train, 13).tokens, once.tokens);
    EXPECT_NE(task.example(6, TaskSplit::train, 12).tokens, once.tokens);
    EXPECT_NE(task.example(5, TaskSplit::held_out, 12).tokens, once.tokens);
    const TaskExample again = task.example(5, TaskSplit::train, 12);
    EXPECT_EQ(again.tokens, once.tokens);
    EXPECT_EQ(again.targets, once.targets);
    EXPECT_EQ(again.wanted, once.wanted);
  }
}

TEST(Tasks, HeldOutSequencesAreNeverSeen) {
  for (const TrainingTask& task : training_tasks()) {
    SCOPED_TRACE(std::string(task.name));
    EXPECT_GT(task.held_out, 0);
    EXPECT_LT(task.held_out, 1);
    std::set<std::vector<Index>> seen;
    for (const std::uint64_t seed : {1U, 2U})
      for (Index index = 0; index < 500; ++index) seen.insert(task.example(seed, TaskSplit::train, index).tokens);
    for (Index index = 0; index < 500; ++index)
      EXPECT_EQ(seen.count(task.example(1, TaskSplit::held_out, index).tokens), 0u);
  }
}

TEST(Tasks, ModularAdditionIsDividedWithoutRest) {
  const TrainingTask& task = find_task("modular-addition");
  std::set<std::vector<Index>> train, held_out;
  // Each of 9,409 pairs is missing after n draws of its half with a probability of about exp(−n / 4,700).
  for (Index index = 0; index < test_size<Index>(80000, 30000); ++index) {
    train.insert(task.example(0, TaskSplit::train, index).tokens);
    held_out.insert(task.example(0, TaskSplit::held_out, index).tokens);
  }
  EXPECT_LE(train.size() + held_out.size(), 97u * 97u);
  EXPECT_GE(train.size() + held_out.size(), test_size(97u * 97u, 97u * 90u));
  for (const auto& tokens : held_out) EXPECT_EQ(train.count(tokens), 0u);
  EXPECT_NEAR(static_cast<double>(held_out.size()) / (97 * 97), task.held_out, 0.02);
}

TEST(Tasks, ShuffledLabelsTellNothing) {
  for (const TrainingTask& task : training_tasks()) {
    SCOPED_TRACE(std::string(task.name));
    std::vector<int> frequency(task.vocabulary.size());
    int count = 0, right = 0;
    for (Index index = 0; index < 1000; ++index) {
      const TaskExample correct = task.example(5, TaskSplit::train, index);
      const TaskExample shuffled = task.example(5, TaskSplit::train, index, TaskLabels::shuffled);
      EXPECT_EQ(shuffled.tokens, correct.tokens);
      EXPECT_EQ(shuffled.wanted, correct.wanted);
      EXPECT_EQ(counted_rows(shuffled), counted_rows(correct));
      for (const Index row : counted_rows(correct)) {
        const auto i = static_cast<std::size_t>(row);
        ++frequency.at(static_cast<std::size_t>(shuffled.targets[i]));
        right += shuffled.targets[i] == correct.targets[i];
        ++count;
      }
    }
    // Six standard deviations of a binomial distribution around uniform labels.
    const double p = 1.0 / static_cast<double>(frequency.size());
    const double bound = 6 * std::sqrt(count * p * (1 - p)) + 1;
    for (const int n : frequency) EXPECT_NEAR(n, count * p, bound);
    EXPECT_NEAR(right, count * p, bound);
  }
}

TEST(Tasks, VocabulariesAndRecipesAreValid) {
  for (const TrainingTask& task : training_tasks()) {
    SCOPED_TRACE(std::string(task.name));
    EXPECT_EQ(std::set<std::string>(task.vocabulary.begin(), task.vocabulary.end()).size(), task.vocabulary.size());
    for (const std::string& text : task.vocabulary) EXPECT_EQ(text.find_first_of(" \t\n"), std::string::npos);
    EXPECT_NO_THROW(decoder_size(task.recipe.model));
    EXPECT_FALSE(task.shows.empty() || task.pattern.empty() || task.expected.empty());
    EXPECT_TRUE(task.formed_score > 0 && task.formed_score < 1);
  }
}

TEST(Tasks, UnknownNamesAndIndicesAreRejected) {
  EXPECT_EQ(find_task("sort").name, "sort");
  EXPECT_EQ(rejection([] { find_task("Sort"); }),
            "there is no task \"Sort\"; the tasks are copy, reverse, sort, induction, recall, addition, "
            "modular-addition, brackets");
  EXPECT_EQ(rejection([] { find_task("copy").example(0, TaskSplit::train, -1); }),
            "TrainingTask: index is -1; expected 0 or more");
}

}  // namespace
}  // namespace regard::tasks_test
