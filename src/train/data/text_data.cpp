// SPDX-License-Identifier: Apache-2.0
//
// A text as training data.
//
//     text ── nine tenths │ one tenth ── tokens ── windows in the order of a permutation that is computed, not stored
//
// Read next: permutation.cpp, vocabulary.cpp.
#include "regard/train/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "permutation.h"
#include "regard/error.h"
#include "regard/io/sha256.h"
#include "regard/io/utf8.h"
#include "regard/random.h"

namespace regard::inline v0 {
namespace {

// Distinguishes the numbers drawn here from others that are drawn with the seed of the run.
constexpr std::uint32_t kWindows = 0x77696e64;

std::vector<std::uint32_t> tokens_of(std::string_view text, std::size_t first_byte, const Vocabulary& vocabulary,
                                     const std::string& source, const std::stop_token& stop) {
  std::vector<std::uint32_t> ids;
  ids.reserve(text.size());
  try {
    vocabulary.append_ids(text, ids, stop);
  } catch (const InvalidArgument& error) {
    throw DataError(fmt::format("{}: from byte {}: {}; train with a vocabulary of this text",
                                escape_for_terminal(source), first_byte, error.what()));
  }
  ids.shrink_to_fit();
  return ids;
}

}  // namespace

std::string_view TextData::training_part(std::string_view text) {
  return text.substr(0, truncate_text(text, text.size() - text.size() / 10).size());
}

TextData::TextData(std::string_view text, Vocabulary vocabulary, Index length, const std::string& source,
                   const std::stop_token& stop)
    : vocabulary_(std::move(vocabulary)), length_(length) {
  if (length < 1) throw InvalidArgument(fmt::format("TextData: length is {}; expected 1 or more", length));
  if (text.empty()) throw DataError(escape_for_terminal(source) + ": is empty; expected a text");
  const std::string_view training = training_part(text);
  train_ = tokens_of(training, 0, vocabulary_, source, stop);
  held_out_ = tokens_of(text.substr(training.size()), training.size(), vocabulary_, source, stop);
  const std::size_t shortest = std::min(train_.size(), held_out_.size());
  if (shortest <= static_cast<std::size_t>(length)) {
    throw DataError(fmt::format(
        "{}: has {} tokens for training and {} held out; windows of {} need {} in each: use {}",
        escape_for_terminal(source), train_.size(), held_out_.size(), length, length + 1,
        shortest < 2 ? "a longer text" : fmt::format("a longer text or windows of at most {}", shortest - 1)));
  }
  sha256_ = regard::sha256(std::as_bytes(std::span(text)));
}

Index TextData::num_windows(TaskSplit split) const { return static_cast<Index>(tokens(split).size()) - length_; }

Index TextData::window_start(std::uint64_t seed, TaskSplit split, Index index) const {
  if (index < 0) throw InvalidArgument(fmt::format("TextData: index is {}; expected 0 or more", index));
  const Index n = num_windows(split);
  const auto words = philox({static_cast<std::uint32_t>(split), 0, 0, kWindows}, seed);
  const std::uint64_t key = std::uint64_t{words[1]} << 32 | words[0];
  return internal::permuted(key, static_cast<std::uint64_t>(index / n), index % n, n);
}

void TextData::example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> to_tokens,
                       std::span<Index> targets) const {
  const auto extent = static_cast<std::size_t>(length_);
  if (to_tokens.size() != extent || targets.size() != extent)
    throw InvalidArgument(fmt::format("TextData: tokens has {} elements and targets {}; expected {}", to_tokens.size(),
                                      targets.size(), length_));
  const auto start = static_cast<std::size_t>(window_start(seed, split, index));
  const std::span<const std::uint32_t> window = tokens(split).subspan(start, extent + 1);
  for (std::size_t i = 0; i < extent; ++i) {
    to_tokens[i] = window[i];
    targets[i] = window[i + 1];
  }
}

}  // namespace regard::inline v0
