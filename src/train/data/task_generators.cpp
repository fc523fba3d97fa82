// SPDX-License-Identifier: Apache-2.0
//
// The generators of the tasks. Each builds a sequence one token longer than the example, and then states which tokens
// are to be predicted, and from which keys.
//
//     sequence     ^ b a = a b          position 0 1 2 3 4 5
//     tokens       ^ b a = a
//     targets      . . . a b            row 3 predicts the token at position 4
//
// Read next: tasks.cpp.
#include "task_generators.h"

#include <algorithm>
#include <utility>

#include "regard/random.h"

namespace regard::inline v0::internal {
namespace {

// Every sequence begins with a token that has no meaning, so that a head with nothing else to attend to can be
// recognized.
constexpr const char* kStart = "^";
constexpr const char* kEquals = "=";

// Random numbers of one example.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  Index below(Index n) { return random_below(seed_, 0, next_++, n); }
  // `count` distinct numbers from 0 … n − 1, in random order.
  std::vector<Index> different(Index n, Index count) {
    std::vector<Index> all(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Index>(i);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::swap(all[i], all[i + static_cast<std::size_t>(below(n - static_cast<Index>(i)))]);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

class ExampleBuilder {
 public:
  explicit ExampleBuilder(std::vector<Index> sequence) : sequence_(std::move(sequence)) {
    example_.tokens.assign(sequence_.begin(), sequence_.end() - 1);
    example_.targets.resize(example_.tokens.size(), -1);
    example_.wanted.resize(example_.tokens.size());
  }
  // The token after `row` is counted in the loss; it is expected to be read from these keys.
  void predict(Index row, std::vector<Index> keys) {
    const auto i = static_cast<std::size_t>(row);
    example_.targets[i] = sequence_[i + 1];
    example_.wanted[i] = std::move(keys);
  }
  TaskExample take() { return std::move(example_); }

 private:
  std::vector<Index> sequence_;
  TaskExample example_;
};

void append(std::vector<Index>& sequence, const std::vector<Index>& tokens) {
  sequence.insert(sequence.end(), tokens.begin(), tokens.end());
}

std::vector<std::string> characters(char first, Index count) {
  std::vector<std::string> texts;
  for (Index i = 0; i < count; ++i) texts.emplace_back(1, static_cast<char>(first + i));
  return texts;
}

std::vector<std::string> numbers(Index count) {
  std::vector<std::string> texts;
  for (Index i = 0; i < count; ++i) texts.push_back(std::to_string(i));
  return texts;
}

void append(std::vector<std::string>& vocabulary, const std::vector<std::string>& texts) {
  vocabulary.insert(vocabulary.end(), texts.begin(), texts.end());
}

// copy, reverse, sort:  ^ input = output.

constexpr Index kNumLetters = 26, kLettersStart = 26, kLettersEquals = 27;

std::vector<Index> random_letters(std::uint64_t seed, Index count, Index num_letters) {
  Draws draws(seed);
  std::vector<Index> letters(static_cast<std::size_t>(count));
  for (Index& letter : letters) letter = draws.below(num_letters);
  return letters;
}

ExampleBuilder input_and_output(const std::vector<Index>& input, const std::vector<Index>& output) {
  std::vector<Index> sequence{kLettersStart};
  append(sequence, input);
  sequence.push_back(kLettersEquals);
  append(sequence, output);
  return ExampleBuilder(std::move(sequence));
}

}  // namespace

std::vector<std::string> letters_vocabulary() {
  std::vector<std::string> vocabulary = characters('a', kNumLetters);
  append(vocabulary, {kStart, kEquals});
  return vocabulary;
}

constexpr Index kCopyLength = 12;

TaskExample copy_example(std::uint64_t seed) {
  const std::vector<Index> input = random_letters(seed, kCopyLength, kNumLetters);
  ExampleBuilder builder = input_and_output(input, input);
  for (Index k = 0; k < kCopyLength; ++k) builder.predict(kCopyLength + 1 + k, {1 + k});
  return builder.take();
}

TaskExample reverse_example(std::uint64_t seed) {
  const std::vector<Index> input = random_letters(seed, kCopyLength, kNumLetters);
  ExampleBuilder builder = input_and_output(input, {input.rbegin(), input.rend()});
  for (Index k = 0; k < kCopyLength; ++k) builder.predict(kCopyLength + 1 + k, {kCopyLength - k});
  return builder.take();
}

constexpr Index kSortLength = 8;

TaskExample sort_example(std::uint64_t seed) {
  // With equal letters, those already written would have to be counted, which no single head does.
  const std::vector<Index> input = Draws(seed).different(kNumLetters, kSortLength);
  std::vector<Index> output = input;
  std::sort(output.begin(), output.end());
  ExampleBuilder builder = input_and_output(input, output);
  for (Index k = 0; k < kSortLength; ++k) {
    const auto place = std::find(input.begin(), input.end(), output[static_cast<std::size_t>(k)]) - input.begin();
    builder.predict(kSortLength + 1 + k, {1 + place});
  }
  return builder.take();
}

// induction:  ^, different random tokens, and the last `lag` of them again. The lag is random: with a fixed one,
// positions alone would determine the answer.

constexpr Index kInductionTokens = 32, kInductionLength = 32, kMinLag = 12, kMaxLag = 16;

TaskExample induction_example(std::uint64_t seed) {
  Draws draws(seed);
  const Index lag = kMinLag + draws.below(kMaxLag - kMinLag + 1);
  const Index first_copied = kInductionLength - lag + 1;  // position of the first token that occurs again
  std::vector<Index> sequence{kInductionTokens};
  append(sequence, draws.different(kInductionTokens, kInductionLength - lag));
  for (Index i = first_copied; i <= kInductionLength; ++i)
    sequence.push_back(sequence[static_cast<std::size_t>(i - lag)]);
  ExampleBuilder builder(std::move(sequence));
  for (Index row = first_copied; row < kInductionLength; ++row) builder.predict(row, {row - lag + 1});
  return builder.take();
}

std::vector<std::string> induction_vocabulary() {
  std::vector<std::string> vocabulary = characters('a', 26);
  append(vocabulary, characters('A', kInductionTokens - 26));
  vocabulary.push_back(kStart);
  return vocabulary;
}

// recall:  ^, pairs of key and value, and all pairs again in another order.

constexpr Index kNumKeys = 26, kNumValues = 26, kNumPairs = 8, kRecallStart = kNumKeys + kNumValues;

TaskExample recall_example(std::uint64_t seed) {
  Draws draws(seed);
  const std::vector<Index> keys = draws.different(kNumKeys, kNumPairs);
  std::vector<Index> values(keys.size());
  for (Index& value : values) value = kNumKeys + draws.below(kNumValues);
  const std::vector<Index> order = draws.different(kNumPairs, kNumPairs);
  std::vector<Index> sequence{kRecallStart};
  for (std::size_t pair = 0; pair < keys.size(); ++pair) append(sequence, {keys[pair], values[pair]});
  for (const Index pair : order)
    append(sequence, {keys[static_cast<std::size_t>(pair)], values[static_cast<std::size_t>(pair)]});
  ExampleBuilder builder(std::move(sequence));
  for (Index i = 0; i < kNumPairs; ++i)
    builder.predict(2 * kNumPairs + 1 + 2 * i, {2 + 2 * order[static_cast<std::size_t>(i)]});
  return builder.take();
}

std::vector<std::string> recall_vocabulary() {
  std::vector<std::string> vocabulary = characters('a', kNumKeys);
  append(vocabulary, numbers(kNumValues));
  vocabulary.push_back(kStart);
  return vocabulary;
}

// addition:  ^ a + b = sum. The digits of the sum are in reverse order, so that each depends only on digits before it.

constexpr Index kNumDigits = 3, kPlus = 10, kAdditionEquals = 11, kAdditionStart = 12;

TaskExample addition_example(std::uint64_t seed) {
  Draws draws(seed);
  std::vector<Index> a(kNumDigits), b(kNumDigits), sum;  // a and b begin with their highest digits
  for (Index& digit : a) digit = draws.below(10);
  for (Index& digit : b) digit = draws.below(10);
  Index carry = 0;
  for (std::size_t i = a.size(); i-- > 0; carry /= 10) {
    carry += a[i] + b[i];
    sum.push_back(carry % 10);
  }
  sum.push_back(carry);
  std::vector<Index> sequence{kAdditionStart};
  append(sequence, a);
  sequence.push_back(kPlus);
  append(sequence, b);
  sequence.push_back(kAdditionEquals);
  append(sequence, sum);
  ExampleBuilder builder(std::move(sequence));
  const Index equals = 2 * kNumDigits + 2;
  for (Index k = 0; k < kNumDigits; ++k) builder.predict(equals + k, {kNumDigits - k, 2 * kNumDigits + 1 - k});
  builder.predict(equals + kNumDigits, {});
  return builder.take();
}

std::vector<std::string> addition_vocabulary() {
  std::vector<std::string> vocabulary = numbers(10);
  append(vocabulary, {"+", kEquals, kStart});
  return vocabulary;
}

// modular-addition:  ^ a b = a + b modulo a prime.

constexpr Index kModulus = 97, kModularStart = kModulus, kModularEquals = kModulus + 1;

TaskExample modular_addition_example(std::uint64_t seed) {
  Draws draws(seed);
  const Index a = draws.below(kModulus), b = draws.below(kModulus);
  ExampleBuilder builder({kModularStart, a, b, kModularEquals, (a + b) % kModulus});
  builder.predict(3, {1, 2});
  return builder.take();
}

std::vector<std::string> modular_addition_vocabulary() {
  std::vector<std::string> vocabulary = numbers(kModulus);
  append(vocabulary, {kStart, kEquals});
  return vocabulary;
}

// brackets:  ^ and balanced brackets of several types (Dyck language), whose depth is bounded.

constexpr Index kNumBrackets = 4, kMaxDepth = 6, kBracketsLength = 48, kBracketsStart = 2 * kNumBrackets;

TaskExample brackets_example(std::uint64_t seed) {
  Draws draws(seed);
  std::vector<Index> sequence{kBracketsStart}, open;  // positions of the open brackets
  std::vector<std::pair<Index, Index>> partners;      // the position before a closing bracket, and that of its partner
  for (Index position = 1; position <= kBracketsLength; ++position) {
    const auto depth = static_cast<Index>(open.size());
    const Index left = kBracketsLength - position + 1;
    const bool closes = depth == kMaxDepth || depth == left || (depth > 0 && draws.below(2) == 0);
    if (!closes) {
      open.push_back(position);
      sequence.push_back(draws.below(kNumBrackets));
      continue;
    }
    sequence.push_back(kNumBrackets + sequence[static_cast<std::size_t>(open.back())]);
    partners.emplace_back(position - 1, open.back());
    open.pop_back();
  }
  ExampleBuilder builder(std::move(sequence));
  for (const auto& [row, partner] : partners) builder.predict(row, {partner});
  return builder.take();
}

std::vector<std::string> brackets_vocabulary() { return {"(", "[", "{", "<", ")", "]", "}", ">", kStart}; }

}  // namespace regard::inline v0::internal
