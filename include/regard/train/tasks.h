// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small tasks whose attention pattern is known in advance. A task consists of a generator of examples, the keys that a
/// trained head is expected to attend to, and a tested recipe.
///
/// @verbatim
///     induction        tokens    ^ d k b q d k b        a random sequence, part of which is repeated
///                      targets             k b q        counted only where the next token is determined
///                      wanted              2 3 4        for each of these rows: the token after the earlier copy
/// @endverbatim
///
/// An example depends only on the arguments of TrainingTask::example(), not on the state of a random number generator,
/// so any batch of a run can be computed at any time. In a run with B sequences per step, sequence b of step s has
/// index s · B + b.
///
/// Read next: src/train/data/tasks.cpp, patterns.h, docs/developer/adding-a-task.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/train/settings.h"

namespace regard::inline v0 {

/// One example of a task.
struct TaskExample {
  std::vector<Index> tokens;   ///< Token ids, (L).
  std::vector<Index> targets;  ///< The token to predict after each token, (L); the loss ignores targets of −1.
  /// For each row, the keys of the expected pattern in ascending order, or an empty list if the pattern is not defined
  /// for the row.
  std::vector<std::vector<Index>> wanted;
};

/// Training or held-out examples.
enum class TaskSplit {
  train,    ///< Examples used for training.
  held_out  ///< Examples never used for training, regardless of the seed.
};

/// The kind of targets in an example.
enum class TaskLabels {
  correct,  ///< The solution of the task.
  shuffled  ///< Random tokens instead of the correct targets: nothing can be learned, so no pattern should appear.
};

/// A task.
///
/// @par Example
/// @code{.cpp}
/// const TrainingTask& task = find_task("induction");
/// const TaskExample probe = task.example(0, TaskSplit::held_out, 0);
/// @endcode
struct TrainingTask {
  std::string_view name;                ///< Name of the task, such as "induction".
  std::string_view shows;               ///< One sentence that states what the task shows.
  std::string_view pattern;             ///< A short description of the pattern: "the token after the earlier copy".
  std::string_view expected;            ///< Expected time on two cores and expected score, such as "2 s, score .9".
  double formed_score;                  ///< The score at which the pattern is considered formed.
  double held_out;                      ///< Fraction of all possible sequences that are held out.
  TrainingSettings recipe;              ///< The measured recipe, with the model's vocabulary, max_positions and length.
  std::vector<std::string> vocabulary;  ///< The text of each token, without whitespace.
  TaskExample (*generate)(std::uint64_t seed);  ///< Generates an example of either split from a seed.

  /// Computes an example. All examples of a task have the same length, recipe.length.
  ///
  /// Candidates are generated until one belongs to the split. A hash of a candidate's tokens determines its split.
  ///
  /// @param seed    Seed of the run.
  /// @param split   Training or held-out examples.
  /// @param index   Index of the example, at least 0.
  /// @param labels  Whether the targets are correct or shuffled.
  /// @return The example.
  /// @throws InvalidArgument  if index < 0.
  REGARD_EXPORT TaskExample example(std::uint64_t seed, TaskSplit split, Index index,
                                    TaskLabels labels = TaskLabels::correct) const;
};

/// Lists all tasks in a fixed order.
///
/// @return The tasks, valid until the program ends.
REGARD_EXPORT std::span<const TrainingTask> training_tasks();

/// Finds a task by name.
///
/// @param name  The name.
/// @return The task.
/// @throws InvalidArgument  if no task has that name. The message lists the names.
REGARD_EXPORT const TrainingTask& find_task(std::string_view name);

}  // namespace regard::inline v0
