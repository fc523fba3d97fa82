// SPDX-License-Identifier: Apache-2.0
/// @file
/// A training run whose heads are observed at several snapshots, as used by `regard train` and by regard.train in
/// Python.
///
/// @verbatim
///     task or text, settings ─▶ TrainingSubject ─▶ WatchedRun ── step() … step(), finish() ─▶ TrainingRecord
/// @endverbatim
///
/// Read next: trainer.h, record.h, src/train/record/watched_run.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "regard/train/probe.h"
#include "regard/train/record.h"
#include "regard/train/trainer.h"

namespace regard::inline v0 {

/// The task or text that a run is trained on, and the settings of the run.
struct TrainingSubject {
  TrainingSettings settings;                  ///< The settings, with defaults filled in by completed().
  std::shared_ptr<const BatchSource> source;  ///< Source of the examples.
  const TrainingTask* task = nullptr;         ///< The task; nullptr for a text.
  std::optional<TextData> text{};             ///< The text; absent for a task.

  /// Draws the sequences on which heads are observed: 16 sequences of a task, or the first 48 tokens of one window of a
  /// text.
  ///
  /// @return The probe. For a task, it has at most TrainingSettings::micro_batch sequences.
  REGARD_EXPORT ProbeSequences probe() const;
};

/// Returns the default settings for training on a text: four layers of width 128.
///
/// @return The settings. The vocabulary and max_positions are 0, because they depend on the text.
REGARD_EXPORT TrainingSettings text_recipe();

/// Creates the training subject for a task.
///
/// @param task      The task.
/// @param settings  The settings, for example TrainingTask::recipe.
/// @param labels    Whether the targets are correct or shuffled.
/// @return The subject.
/// @throws InvalidArgument  as completed() does.
REGARD_EXPORT TrainingSubject task_subject(const TrainingTask& task, const TrainingSettings& settings,
                                           TaskLabels labels = TaskLabels::correct);

/// Creates the training subject for a text.
///
/// @param text        The text, in UTF-8.
/// @param vocabulary  Vocabulary of the text.
/// @param settings    The settings, for example text_recipe(). The model's vocabulary size is set to that of the
///                    vocabulary, and max_positions, if it is 0, to the length.
/// @param source      Name of the text for error messages, usually the path of the file. The record stores only the
///                    part after the last slash.
/// @param stop        Stop token, polled while the text is tokenized.
/// @return The subject.
/// @throws InvalidArgument  as completed() does, and if the length is below 1.
/// @throws DataError        as TextData does.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// WatchedRun run(text_subject(text, Vocabulary::characters_of(text), text_recipe(), "jargon.txt"));
/// @endcode
REGARD_EXPORT TrainingSubject text_subject(std::string_view text, const Vocabulary& vocabulary,
                                           TrainingSettings settings, const std::string& source = "text",
                                           const std::stop_token& stop = {});

/// A training run with its record. In a chain of ranks, only rank 0 observes heads and evaluates the model. Its record
/// is identical to that of a run without a chain.
///
/// @par Example
/// @code{.cpp}
/// const TrainingTask& task = find_task("induction");
/// WatchedRun run(task_subject(task, task.recipe));
/// while (!run.done()) run.step();
/// run.finish();
/// write_file("head.html", training_html(run.record()));
/// @endcode
class REGARD_EXPORT WatchedRun {
 public:
  /// Creates the run and draws its probe.
  ///
  /// @param subject        The task or text, and the settings.
  /// @param command        Command line to store in the record.
  /// @param max_snapshots  Maximum number of snapshots, as for snapshot_steps().
  /// @param runtime        Threads and cancellation.
  /// @param chain          The ranks, as for Trainer, or nullptr for one machine.
  /// @throws InvalidArgument  as Trainer and snapshot_steps() do.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  explicit WatchedRun(TrainingSubject subject, std::string command = "", Index max_snapshots = 60,
                      const Runtime& runtime = {}, GradientChain* chain = nullptr);

  /// Returns the task or text that the run is trained on, and its settings.
  const TrainingSubject& subject() const { return subject_; }
  /// Returns the trainer, for example to save the run.
  Trainer& trainer() { return trainer_; }
  /// Returns the trainer, read-only.
  const Trainer& trainer() const { return trainer_; }
  /// Returns the record so far.
  const TrainingRecord& record() const { return record_; }
  /// Returns the time spent in steps, in seconds, excluding observation and evaluation.
  double step_seconds() const { return step_seconds_; }
  /// Returns whether all steps specified in the settings are done.
  bool done() const { return trainer_.done(); }

  /// Resumes a run from a checkpoint, as Trainer::resume() does. The curve is restored from the checkpoint, and
  /// snapshots continue with the next one that is due.
  ///
  /// @param path  Path of the run's folder, or of a checkpoint.
  /// @param stop  Stop token, polled while files are read.
  /// @return The checkpoint.
  /// @throws InvalidArgument  as Trainer::resume() does.
  /// @throws DataError  as Trainer::resume() does.
  /// @throws Cancelled  if a stop is requested.
  LoadedCheckpoint resume(const std::string& path, const std::stop_token& stop = {});

  /// Performs a step. If a snapshot is due, all heads are observed before the step. After the step, the model is
  /// evaluated on training and held-out examples: 32 of each, or more if examples are shorter than 32 tokens.
  ///
  /// @param runtime  Threads, scratch memory and cancellation.
  /// @return The point on the curve.
  /// @throws TrainingDiverged  as Trainer::step() does.
  /// @throws Cancelled         if a stop is requested. The run can be continued.
  const CurvePoint& step(const Runtime& runtime = {});

  /// Takes the last snapshot: observes all heads after the last step, unless this has already been done.
  ///
  /// @param runtime  Threads, scratch memory and cancellation.
  /// @throws Cancelled  if a stop is requested.
  void finish(const Runtime& runtime = {});

 private:
  Index steps_done() const { return static_cast<Index>(trainer_.history().size()); }
  // Adds a snapshot, unless one exists for this step or another rank observes the heads.
  void observe(const Runtime& runtime);
  // Sets the values that are measured at a snapshot.
  void evaluate(CurvePoint& point, const Runtime& runtime);

  TrainingSubject subject_;
  Trainer trainer_;
  bool observes_;  // rank 0
  ProbeSequences probe_;
  std::vector<Index> snapshots_;  // steps
  TrainingRecord record_;
  double step_seconds_ = 0;
};

}  // namespace regard::inline v0
