// SPDX-License-Identifier: Apache-2.0
//
// The table of tasks, and how an example of a split is found.
//
//     (seed, split, index, attempt) ── philox ──▶ seed of a candidate ── generate ──▶ tokens ── hash ──▶ of this split?
//
// The hash depends on the tokens only. Training therefore never sees a held-out sequence, regardless of the seed.
// Read next: task_generators.cpp, docs/developer/adding-a-task.md.
#include "regard/train/tasks.h"

#include <fmt/format.h>

#include <array>

#include "regard/error.h"
#include "regard/random.h"
#include "task_generators.h"

namespace regard::inline v0 {
namespace {

// Distinguishes the numbers drawn here from others that are drawn with the seed of the run.
constexpr std::uint32_t kExamples = 0x7461736b;
constexpr std::uint64_t kSplitKey = 0x73706c6974;

std::uint64_t joined(const std::array<std::uint32_t, 4>& words) { return std::uint64_t{words[1]} << 32 | words[0]; }

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

bool is_held_out(const TaskExample& example, double share) {
  std::uint64_t hash = 0;
  for (const Index token : example.tokens) {
    const auto id = static_cast<std::uint64_t>(token);
    hash = joined(philox({low(hash), high(hash), low(id), high(id)}, kSplitKey));
  }
  return static_cast<double>(hash >> 11) * 0x1p-53 < share;
}

// Muon learns these tasks in a fraction of the steps that AdamW needs. The output has a table of its own: with a shared
// one, gradients of the output keep changing the vectors by which heads tell tokens apart, and heads form late.
TrainingSettings muon_recipe(DecoderConfig model, Index steps) {
  model.tied = false;
  TrainingSettings settings;
  settings.model = model;
  settings.steps = steps;
  settings.batch = 32;
  settings.optimizer = OptimizerKind::muon;
  settings.learning_rate = 1e-2;
  settings.muon_learning_rate = 0.015;
  settings.schedule = ScheduleKind::warmup_stable_decay;
  return settings;
}

// To tell a letter from its neighbors in the alphabet, a head needs large scores, which weight decay opposes.
TrainingSettings sort_recipe() {
  TrainingSettings settings =
      muon_recipe({.num_layers = 2, .num_heads = 1, .width = 64, .feed_forward_kind = FeedForwardKind::none}, 4000);
  settings.muon_learning_rate = 0.01;
  settings.weight_decay = 0.03;
  return settings;
}

// Rotary positions without feed-forward layers: only heads can find an earlier token, and not by its position.
TrainingSettings search_recipe(Index steps) {
  return muon_recipe({.num_layers = 2,
                      .num_heads = 2,
                      .width = 64,
                      .positions = PositionKind::rotary,
                      .feed_forward_kind = FeedForwardKind::none,
                      .biases = true},
                     steps);
}

// Sequences have few targets, and their values can be guessed from those that have occurred: with larger steps of Muon
// and some seeds, a run never gets beyond this guess.
TrainingSettings recall_recipe() {
  TrainingSettings settings = search_recipe(300);
  settings.batch = 64;
  settings.muon_learning_rate = 0.01;
  return settings;
}

// AdamW with strong weight decay: Muon finds the rule so early that the examples are never merely memorized.
TrainingSettings grokking_recipe() {
  TrainingSettings settings;
  settings.model = {
      .num_layers = 1, .num_heads = 4, .width = 128, .feed_forward_kind = FeedForwardKind::relu, .tied = false};
  settings.steps = 2000;
  settings.batch = 512;
  settings.warmup = 10;
  settings.schedule = ScheduleKind::warmup_stable_decay;
  settings.beta2 = 0.98;
  settings.weight_decay = 1;
  return settings;
}

std::vector<TrainingTask> all_tasks() {
  constexpr DecoderConfig kAttentionOnly{
      .num_layers = 2, .num_heads = 2, .width = 64, .feed_forward_kind = FeedForwardKind::none};
  std::vector<TrainingTask> tasks{
      {.name = "copy",
       .shows = "A head that attends at a constant distance, because input and output have the same order.",
       .pattern = "the input token at the same position",
       .expected = "score 1.0, all sequences correct, in about 1 second",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = muon_recipe(kAttentionOnly, 150),
       .vocabulary = internal::letters_vocabulary(),
       .generate = internal::copy_example},
      {.name = "reverse",
       .shows = "A head that attends along the anti-diagonal: the last token of the input is the first of the output.",
       .pattern = "the input token at the mirrored position",
       .expected = "score 1.0, all sequences correct, in about 1 second",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = muon_recipe(kAttentionOnly, 150),
       .vocabulary = internal::letters_vocabulary(),
       .generate = internal::reverse_example},
      {.name = "sort",
       .shows = "A head that attends by content: output k is the k-th smallest token of the input.",
       .pattern = "the next smallest input token",
       .expected = "score above 0.8, all sequences correct, in about 10 seconds",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = sort_recipe(),
       .vocabulary = internal::letters_vocabulary(),
       .generate = internal::sort_example},
      {.name = "induction",
       .shows = "Two heads that work together: one attends to the previous token, and the other to the token after the "
                "earlier copy.",
       .pattern = "the token after the earlier copy",
       .expected = "score above 0.9, 98 % of sequences correct, in about 2 seconds",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = search_recipe(180),
       .vocabulary = internal::induction_vocabulary(),
       .generate = internal::induction_example},
      {.name = "recall",
       .shows = "Associative memory: a key is looked up in a list of pairs.",
       .pattern = "the value after the earlier key",
       .expected = "score above 0.9, 99.8 % of sequences correct, in about 4 seconds",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = recall_recipe(),
       .vocabulary = internal::recall_vocabulary(),
       .generate = internal::recall_example},
      {.name = "addition",
       .shows = "Long addition, digit by digit, with carries.",
       .pattern = "the two digits with the same place value",
       .expected = "score above 0.6, nearly all sums correct, in about 6 seconds",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = muon_recipe({.num_layers = 2, .num_heads = 4, .width = 64}, 800),
       .vocabulary = internal::addition_vocabulary(),
       .generate = internal::addition_example},
      {.name = "modular-addition",
       .shows = "Grokking: the training examples are memorized first, and the rule is learned much later.",
       .pattern = "both numbers",
       .expected = "training examples correct from step 200, held-out examples from step 1,600, in about 70 seconds",
       .formed_score = 0.8,
       .held_out = 0.7,
       .recipe = grokking_recipe(),
       .vocabulary = internal::modular_addition_vocabulary(),
       .generate = internal::modular_addition_example},
      {.name = "brackets",
       .shows = "A stack: the bracket that closes next matches the last bracket that is still open.",
       .pattern = "the bracket that is closed",
       .expected = "score above 0.8, 99.9 % of brackets correct, in about 10 seconds",
       .formed_score = 0.5,
       .held_out = 0.1,
       .recipe = muon_recipe({.num_layers = 2, .num_heads = 2, .width = 64}, 600),
       .vocabulary = internal::brackets_vocabulary(),
       .generate = internal::brackets_example},
  };
  for (TrainingTask& task : tasks) {
    const auto length = static_cast<Index>(task.generate(0).tokens.size());
    task.recipe.length = length;
    task.recipe.model.max_positions = length;
    task.recipe.model.vocabulary = static_cast<Index>(task.vocabulary.size());
  }
  return tasks;
}

}  // namespace

TaskExample TrainingTask::example(std::uint64_t seed, TaskSplit split, Index index, TaskLabels labels) const {
  if (index < 0) throw InvalidArgument(fmt::format("TrainingTask: index is {}; expected 0 or more", index));
  const auto place = static_cast<std::uint64_t>(index);
  for (std::uint32_t attempt = 0;; ++attempt) {
    const auto words =
        philox({low(place), high(place), attempt << 1 | (split == TaskSplit::train ? 0 : 1), kExamples}, seed);
    TaskExample found = generate(joined(words));
    if (is_held_out(found, held_out) != (split == TaskSplit::held_out)) continue;
    if (labels == TaskLabels::shuffled) {
      const std::uint64_t label_seed = std::uint64_t{words[3]} << 32 | words[2];
      for (std::size_t row = 0; row < found.targets.size(); ++row)
        if (found.targets[row] >= 0)
          found.targets[row] = random_below(label_seed, 0, row, static_cast<Index>(vocabulary.size()));
    }
    return found;
  }
}

std::span<const TrainingTask> training_tasks() {
  static const std::vector<TrainingTask> tasks = all_tasks();
  return tasks;
}

const TrainingTask& find_task(std::string_view name) {
  std::string names;
  for (const TrainingTask& task : training_tasks()) {
    if (task.name == name) return task;
    names.append(names.empty() ? "" : ", ").append(task.name);
  }
  throw InvalidArgument(fmt::format("there is no task \"{}\"; the tasks are {}", name, names));
}

}  // namespace regard::inline v0
