// SPDX-License-Identifier: Apache-2.0
//
// Tasks and texts as sources of examples.
// Read next: trainer.cpp.
#include "regard/train/batch_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "regard/io/sha256.h"

namespace regard::inline v0 {
namespace {

std::string sha256_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

class TaskSource final : public BatchSource {
 public:
  TaskSource(const TrainingTask& task, TaskLabels labels)
      : task_(task), labels_(labels), vocabulary_(Vocabulary::of_words(task.vocabulary).json()) {
    data_.name = task.name;
    data_.identity = {{"task", std::string(task.name)},
                      {"labels", labels == TaskLabels::shuffled ? "shuffled" : "correct"},
                      {"SHA-256 of the first examples", digest()}};
  }
  const TrainingData& data() const override { return data_; }
  Index vocabulary() const override { return static_cast<Index>(task_.vocabulary.size()); }
  Index length() const override { return task_.recipe.length; }
  void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
               std::span<Index> targets) const override {
    const TaskExample made = task_.example(seed, split, index, labels_);
    std::copy(made.tokens.begin(), made.tokens.end(), tokens.begin());
    std::copy(made.targets.begin(), made.targets.end(), targets.begin());
  }
  std::vector<CheckpointFile> files() const override { return {{"vocabulary.json", vocabulary_}}; }

 private:
  // Differs if a later version of the program generates different examples.
  std::string digest() const {
    Sha256 sum;
    for (Index index = 0; index < 16; ++index) {
      const TaskExample made = task_.example(0, TaskSplit::train, index, labels_);
      sum.add(std::as_bytes(std::span(made.tokens)));
      sum.add(std::as_bytes(std::span(made.targets)));
    }
    return sum.finish();
  }

  const TrainingTask& task_;
  TaskLabels labels_;
  std::string vocabulary_;
  TrainingData data_;
};

class TextSource final : public BatchSource {
 public:
  TextSource(TextData text, std::string name) : text_(std::move(text)), vocabulary_(text_.vocabulary().json()) {
    data_.name = std::move(name);
    data_.identity = {{"SHA-256 of the text", text_.sha256()}, {"SHA-256 of the vocabulary", sha256_of(vocabulary_)}};
  }
  const TrainingData& data() const override { return data_; }
  Index vocabulary() const override { return text_.vocabulary().size(); }
  Index length() const override { return text_.length(); }
  void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
               std::span<Index> targets) const override {
    text_.example(seed, split, index, tokens, targets);
  }
  std::vector<CheckpointFile> files() const override { return {{"vocabulary.json", vocabulary_}}; }

 private:
  TextData text_;
  std::string vocabulary_;
  TrainingData data_;
};

}  // namespace

BatchSource::~BatchSource() = default;

std::unique_ptr<const BatchSource> task_source(const TrainingTask& task, TaskLabels labels) {
  return std::make_unique<TaskSource>(task, labels);
}

std::unique_ptr<const BatchSource> text_source(TextData text, std::string name) {
  return std::make_unique<TextSource>(std::move(text), std::move(name));
}

}  // namespace regard::inline v0
