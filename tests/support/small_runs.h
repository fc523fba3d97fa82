// SPDX-License-Identifier: Apache-2.0
//
// Small training runs, and what tests compare of them.
// Read next: trainer_test.cpp, gradient_chain_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "regard/train/watched_run.h"

namespace regard {

constexpr Index kVocabulary = 11, kLength = 8;

// Sequences that count in steps of 1 to 3, from a place that the index determines. The first target is not counted.
class Counting : public BatchSource {
 public:
  explicit Counting(std::string digest = "counting") : data_{"counting", {{"digest", std::move(digest)}}} {}
  const TrainingData& data() const override { return data_; }
  Index vocabulary() const override { return kVocabulary; }
  Index length() const override { return kLength; }
  void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
               std::span<Index> targets) const override {
    const auto start = static_cast<Index>((seed % 1000003 + 7 * static_cast<std::uint64_t>(index)) % kVocabulary);
    const Index step = split == TaskSplit::train ? 1 + index % 3 : 2;
    for (Index j = 0; j < kLength; ++j) {
      const auto at = static_cast<std::size_t>(j);
      tokens[at] = (start + j * step) % kVocabulary;
      targets[at] = j == 0 ? -1 : (start + (j + 1) * step) % kVocabulary;
    }
  }
  std::vector<CheckpointFile> files() const override { return {{"vocabulary.json", "{}\n"}}; }

 private:
  TrainingData data_;
};

inline TrainingSettings small_settings() {
  return {.model = {.vocabulary = kVocabulary,
                    .num_layers = 2,
                    .num_heads = 2,
                    .width = 16,
                    .feed_forward = 24,
                    .max_positions = kLength},
          .steps = 40,
          .batch = 6,
          .seed = 1234567890123456789,
          .learning_rate = 0.02,
          .warmup = 5};
}

inline Trainer make(const TrainingSettings& settings, const Runtime& runtime = {}, GradientChain* chain = nullptr) {
  return Trainer(settings, std::make_shared<Counting>(), runtime, chain);
}

inline void advance(Trainer& trainer, Index steps, const Runtime& runtime = {}) {
  for (Index i = 0; i < steps; ++i) trainer.step(runtime);
}

inline std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The bytes of the files that hold all of the run's numbers.
inline std::string arrays_of(const std::string& checkpoint) {
  return contents_of(checkpoint + "/model.safetensors") + contents_of(checkpoint + "/optimizer.safetensors");
}

// Sets all elements of a parameter.
inline void set(Trainer& trainer, std::string_view name, float value) {
  DecoderTraining<float>& model = trainer.model<float>();
  auto rest = model.parameters();
  for (const DecoderParameter& parameter : model.description()) {
    const auto size = static_cast<std::size_t>(parameter.size());
    if (parameter.name == name) {
      std::fill_n(rest.begin(), size, value);
      return;
    }
    rest = rest.subspan(size);
  }
  FAIL() << name;
}

struct Divergence {
  Index step, layer;
  std::string operation, message;
};
inline Divergence divergence(Trainer& trainer) {
  try {
    trainer.step();
  } catch (const TrainingDiverged& error) {
    return {error.step, error.layer, error.operation, error.what()};
  }
  return {-1, -1, "", "the step was taken"};
}

inline TrainingSubject small_task(Index steps) {
  const TrainingTask& task = find_task("copy");
  TrainingSettings settings = task.recipe;
  settings.model.num_layers = 1;
  settings.model.width = 16;
  settings.model.feed_forward = 0;
  settings.steps = steps;
  settings.batch = 4;
  return task_subject(task, settings);
}

}  // namespace regard
