// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small tasks whose attention pattern is known in advance. A task is data: a generator of examples, the keys that a
/// trained head is expected to attend to, and a recipe that is known to work.
///
/// @code{.unparsed}
/// example(seed, index) → tokens (L), targets (L), wanted keys of each row
/// @endcode
///
/// An example is a function of its arguments. Nothing is drawn from a generator with a state, so any batch of a run can
/// be computed at any time.
///
/// Read next: src/train/tasks.cpp, patterns.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/train/settings.h"

namespace regard::inline v0 {

/// One example of a task.
struct TaskExample {
  std::vector<Index> tokens;   ///< Token ids, (L).
  std::vector<Index> targets;  ///< The token to predict after each token, (L); −1: not counted.
  /// For each row, the keys that the wanted pattern attends to, ascending; empty: the pattern does not define this row.
  std::vector<std::vector<Index>> wanted;
};

/// Which examples are drawn.
enum class TaskSplit {
  train,    ///< Examples that training sees.
  held_out  ///< Examples that training never sees, if the task is finite; otherwise of another stream.
};

/// A task.
struct TrainingTask {
  std::string_view name;                ///< Its name, such as "induction".
  std::string_view shows;               ///< What it shows, in one sentence.
  std::string_view pattern;             ///< The pattern in a few words, such as "the token after the earlier copy".
  std::string_view expected;            ///< Expected time on two cores and score, such as "2 s, score .9".
  double formed_score;                  ///< The score at which the pattern counts as formed.
  TrainingSettings recipe;              ///< The measured recipe, with the model's vocabulary and max_positions set.
  std::vector<std::string> vocabulary;  ///< The text of each token.
  /// Computes an example.
  TaskExample (*example)(const TrainingTask& task, std::uint64_t seed, TaskSplit split, Index index);
};

/// Lists all tasks in a fixed order.
///
/// @return The tasks, which live as long as the program.
REGARD_EXPORT std::span<const TrainingTask> training_tasks();

/// Finds a task by its name.
///
/// @param name  The name.
/// @return The task.
/// @throws InvalidArgument  if no task has that name. The message lists the names.
REGARD_EXPORT const TrainingTask& find_task(std::string_view name);

}  // namespace regard::inline v0
