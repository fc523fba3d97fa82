// SPDX-License-Identifier: Apache-2.0
/// @file
/// A text as training data: its tokens, its held-out part, and the windows that make up batches.
///
/// @verbatim
///     text      first nine tenths                                             │ last tenth
///               ── train ──────────────────────────────────────────────────── │ ── held_out ──
///     window         tokens   t[s] … t[s + L − 1]
///                    targets  t[s + 1] … t[s + L]
/// @endverbatim
///
/// A window is a function of (seed, split, index), so no position in the data needs to be stored. In a run with B
/// sequences per step, sequence b of step s has index s · B + b.
///
/// Read next: src/train/data/text_data.cpp, vocabulary.h, regard/io/text_file.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/train/tasks.h"
#include "regard/train/vocabulary.h"

namespace regard::inline v0 {

/// The token ids of a text, from which windows of L tokens are taken. The text itself is not stored.
///
/// @par Example
/// @code{.cpp}
/// const std::string text = read_text_file("jargon.txt");
/// const TextData data(text, Vocabulary::learn_byte_pairs(TextData::training_part(text), 1000), 64, "jargon.txt");
/// data.example(seed, TaskSplit::train, step * batch + sequence, tokens, targets);
/// @endcode
class REGARD_EXPORT TextData {
 public:
  /// Returns the part of a text that is used for training: its first nine tenths, truncated at a character boundary.
  ///
  /// A byte-pair vocabulary is learned from this part; a character vocabulary needs the whole text.
  ///
  /// @param text  The text.
  /// @return The beginning of the text.
  static std::string_view training_part(std::string_view text);

  /// Tokenizes a text.
  ///
  /// @param text        The text, in UTF-8.
  /// @param vocabulary  The vocabulary.
  /// @param length      L, the number of tokens per window, at least 1.
  /// @param source      Name of the text for error messages, usually the path of the file.
  /// @param stop        Stop token, polled while the text is tokenized.
  /// @throws InvalidArgument  if length < 1.
  /// @throws DataError        if the text is empty or contains a character that is not in the vocabulary, or if a part
  ///                          has fewer than L + 1 tokens. The message states what to change.
  /// @throws Cancelled        if a stop is requested.
  TextData(std::string_view text, Vocabulary vocabulary, Index length, const std::string& source = "text",
           const std::stop_token& stop = {});

  /// Returns the vocabulary.
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Returns the SHA-256 of the text, as 64 hex digits.
  const std::string& sha256() const { return sha256_; }
  /// Returns the number of tokens per window.
  Index length() const { return length_; }
  /// Returns the tokens of a part.
  ///
  /// @param split  The part.
  /// @return The ids.
  std::span<const std::uint32_t> tokens(TaskSplit split) const {
    return split == TaskSplit::train ? train_ : held_out_;
  }
  /// Returns the number of windows in a part. A window starts at every token that is followed by at least L tokens.
  ///
  /// @param split  The part.
  /// @return The number of tokens in the part, minus L.
  Index num_windows(TaskSplit split) const;

  /// Returns the position at which a window starts.
  ///
  /// With n = num_windows(split), the windows of epoch e have indices e · n … (e + 1) · n − 1. In each epoch, exactly
  /// one window starts at each position. The order is pseudo-random and differs between epochs.
  ///
  /// @param seed   Seed of the run.
  /// @param split  The part.
  /// @param index  Index of the window, at least 0.
  /// @return The position in tokens(split).
  /// @throws InvalidArgument  if index < 0.
  Index window_start(std::uint64_t seed, TaskSplit split, Index index) const;

  /// Copies a window.
  ///
  /// @param seed     Seed of the run.
  /// @param split    The part.
  /// @param index    Index of the window, at least 0.
  /// @param tokens   Receives the tokens of the window, (L).
  /// @param targets  Receives the token that follows each of these tokens, (L).
  /// @throws InvalidArgument  if index < 0, or if a span does not have L elements.
  void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
               std::span<Index> targets) const;

 private:
  Vocabulary vocabulary_;
  std::string sha256_;
  Index length_;
  std::vector<std::uint32_t> train_, held_out_;
};

}  // namespace regard::inline v0
