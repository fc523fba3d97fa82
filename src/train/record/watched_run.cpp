// SPDX-License-Identifier: Apache-2.0
//
// See regard/train/watched_run.h.
#include "regard/train/watched_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace regard::inline v0 {
namespace {

// The number of examples that are evaluated at a snapshot; more if they are short, so that there are enough targets.
Index num_evaluated(Index length) {
  constexpr Index kSequences = 32, kTokens = 1024;
  return std::max(kSequences, kTokens / length);
}

double accuracy(const Evaluation& evaluation) {
  return static_cast<double>(evaluation.correct_targets) /
         static_cast<double>(std::max<Index>(evaluation.num_targets, 1));
}

}  // namespace

ProbeSequences TrainingSubject::probe() const {
  constexpr Index kSequences = 16, kTextTokens = 48;
  return task != nullptr ? task_probe(*task, settings.seed, std::min(kSequences, settings.micro_batch))
                         : text_probe(*text, settings.seed, kTextTokens);
}

TrainingSettings text_recipe() {
  TrainingSettings settings;
  settings.model.num_layers = 4;
  settings.model.num_heads = 4;
  settings.model.width = 128;
  settings.steps = 2000;
  settings.batch = 12;
  settings.length = 64;
  settings.learning_rate = 1e-3;
  settings.min_learning_rate = 1e-4;
  settings.warmup = 100;
  return settings;
}

TrainingSubject task_subject(const TrainingTask& task, const TrainingSettings& settings, TaskLabels labels) {
  return {.settings = completed(settings), .source = task_source(task, labels), .task = &task};
}

TrainingSubject text_subject(std::string_view text, const Vocabulary& vocabulary, TrainingSettings settings,
                             const std::string& source, const std::stop_token& stop) {
  settings.model.vocabulary = vocabulary.size();
  if (settings.model.max_positions == 0) settings.model.max_positions = settings.length;
  TrainingSubject subject{.settings = completed(settings), .source = nullptr};
  subject.text.emplace(text, vocabulary, subject.settings.length, source, stop);
  subject.source = text_source(*subject.text, source.substr(source.rfind('/') + 1));
  return subject;
}

WatchedRun::WatchedRun(TrainingSubject subject, std::string command, Index max_snapshots, const Runtime& runtime,
                       GradientChain* chain)
    : subject_(std::move(subject)),
      trainer_(subject_.settings, subject_.source, runtime, chain),
      observes_(chain == nullptr || chain->rank() == 0),
      probe_(subject_.probe()),
      snapshots_(snapshot_steps(subject_.settings.steps, max_snapshots)) {
  record_.command = std::move(command);
  record_.name = subject_.source->data().name;
  record_.is_text = subject_.task == nullptr;
  if (subject_.task != nullptr) {
    record_.shows = subject_.task->shows;
    record_.pattern = subject_.task->pattern;
    record_.formed_score = subject_.task->formed_score;
  }
  record_.settings = subject_.settings;
  record_.probe = probe_.probe;
}

LoadedCheckpoint WatchedRun::resume(const std::string& path, const std::stop_token& stop) {
  LoadedCheckpoint loaded = trainer_.resume(path, stop);
  record_.curve.clear();
  record_.snapshots.clear();
  for (const TrainingStep& step : trainer_.history())
    record_.curve.push_back({.step = step.step,
                             .loss = step.loss,
                             .gradient_norm = step.gradient_norm,
                             .learning_rate = step.learning_rate});
  return loaded;
}

const CurvePoint& WatchedRun::step(const Runtime& runtime) {
  using Clock = std::chrono::steady_clock;
  const bool watched = observes_ && std::binary_search(snapshots_.begin(), snapshots_.end(), steps_done());
  if (watched) observe(runtime);
  const auto begin = Clock::now();
  const TrainingStep done = trainer_.step(runtime);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  step_seconds_ += seconds;
  const double tokens = static_cast<double>(subject_.settings.batch * subject_.source->length());
  record_.curve.push_back({.step = done.step,
                           .loss = done.loss,
                           .gradient_norm = done.gradient_norm,
                           .learning_rate = done.learning_rate,
                           .tokens_per_second = tokens / seconds});
  if (watched) evaluate(record_.curve.back(), runtime);
  return record_.curve.back();
}

void WatchedRun::evaluate(CurvePoint& point, const Runtime& runtime) {
  const Index sequences = num_evaluated(subject_.settings.length);
  const Evaluation held_out = trainer_.evaluate(TaskSplit::held_out, sequences, {}, 0, runtime);
  point.held_out_loss = held_out.loss;
  point.held_out_accuracy = accuracy(held_out);
  point.accuracy = accuracy(trainer_.evaluate(TaskSplit::train, sequences, {}, 0, runtime));
}

void WatchedRun::finish(const Runtime& runtime) { observe(runtime); }

void WatchedRun::observe(const Runtime& runtime) {
  if (!observes_) return;
  if (!record_.snapshots.empty() && record_.snapshots.back().step == steps_done()) return;
  record_.snapshots.push_back(
      trainer_.visit_model([&](auto& model) { return observe_heads(model, probe_, steps_done(), runtime); }));
}

}  // namespace regard::inline v0
