// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources of training examples: a task, a text, or any other source that computes an example from its index.
///
/// @verbatim
///     step s, sequence b of B  ──▶  index s · B + b  ──▶  example(seed, split, index): tokens (L), targets (L)
/// @endverbatim
///
/// Read next: src/train/data/batch_source.cpp, tasks.h, text_data.h, trainer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "regard/export.h"
#include "regard/train/checkpoint.h"
#include "regard/train/tasks.h"
#include "regard/train/text_data.h"

namespace regard::inline v0 {

/// A source of examples. All functions are called from a single thread.
class REGARD_EXPORT BatchSource {
 public:
  virtual ~BatchSource();  ///< Destroys the source.

  /// Returns the name and identity of the data. A run can be resumed only with a source that has the same identity.
  virtual const TrainingData& data() const = 0;
  /// Returns the vocabulary size; all tokens and targets are less than this number.
  virtual Index vocabulary() const = 0;
  /// Returns the number of tokens in every example.
  virtual Index length() const = 0;
  /// Computes an example. The result depends only on the arguments.
  ///
  /// @param seed     Seed of the run.
  /// @param split    Training or held-out examples.
  /// @param index    Index of the example, at least 0.
  /// @param tokens   Receives the tokens, (L).
  /// @param targets  Receives the token to predict after each token, (L); the loss ignores targets of −1.
  virtual void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
                       std::span<Index> targets) const = 0;
  /// Returns the files to store in every checkpoint, such as the vocabulary.
  virtual std::vector<CheckpointFile> files() const { return {}; }
};

/// Creates a source of examples for a task.
///
/// @param task    The task.
/// @param labels  Whether the targets are correct or shuffled.
/// @return The source. Its identity consists of the task's name and the SHA-256 of a few examples. Every checkpoint
///         contains the file "vocabulary.json"; see Vocabulary::json().
///
/// @par Example
/// @code{.cpp}
/// Trainer trainer(task.recipe, task_source(task));
/// @endcode
REGARD_EXPORT std::unique_ptr<const BatchSource> task_source(const TrainingTask& task,
                                                             TaskLabels labels = TaskLabels::correct);

/// Creates a source whose examples are windows of a text.
///
/// @param text  The text.
/// @param name  Name of the text for display, for example its file name.
/// @return The source. Its identity consists of the SHA-256 of the text and that of the vocabulary. Every checkpoint
///         contains the file "vocabulary.json".
///
/// @par Example
/// @code{.cpp}
/// Trainer trainer(settings, text_source(std::move(data), "jargon.txt"));
/// @endcode
REGARD_EXPORT std::unique_ptr<const BatchSource> text_source(TextData text, std::string name);

}  // namespace regard::inline v0
