// SPDX-License-Identifier: Apache-2.0
/// @file
/// A training run: batches, gradients, optimizer steps, evaluation and checkpoints.
///
/// @verbatim
///     source ─ batch of step s ─▶ forward, backward of each micro-batch ─▶ optimizer step ─▶ s + 1
///                                                    │ not finite                     │ save ─▶ RUN/step-…
///                                                    └─▶ TrainingDiverged             └─◀ resume
/// @endverbatim
///
/// The settings and the source determine every bit of a run. The result does not depend on the number of threads, the
/// number of ranks, micro_batch or recompute, or on evaluation, saving and resuming.
///
/// Read next: src/train/trainer.cpp, batch_source.h, checkpoint.h, decoder_training.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "regard/error.h"
#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/train/batch_source.h"
#include "regard/train/checkpoint.h"
#include "regard/train/decoder_training.h"
#include "regard/train/gradient_chain.h"
#include "regard/train/settings.h"

namespace regard::inline v0 {

/// Thrown if a value computed in a run is not finite. The parameters keep the values that they had before the step.
class REGARD_EXPORT TrainingDiverged : public DataError {
 public:
  /// Creates the exception.
  ///
  /// @param message       The message.
  /// @param at_step       Number of optimizer steps before the failed one.
  /// @param in_layer      Layer of the value; −1 if the value is outside the layers.
  /// @param in_operation  Operation that computed the value, for example "attention".
  TrainingDiverged(const std::string& message, Index at_step, Index in_layer, std::string in_operation);
  ~TrainingDiverged() override;                         ///< Destroys the exception.
  TrainingDiverged(const TrainingDiverged&) = default;  ///< Copies the exception.

  Index step;             ///< Number of optimizer steps before the failed one.
  Index layer;            ///< Layer of the first value that is not finite; −1 if it is outside the layers.
  std::string operation;  ///< Operation that computed this value, for example "attention".
};

/// The loss and the accuracy of a model on a set of examples.
struct Evaluation {
  double loss = 0;              ///< Mean of `−ln p(target)` over all counted targets.
  Index num_targets = 0;        ///< Number of counted targets.
  Index correct_targets = 0;    ///< Number of counted targets equal to the first token with the largest logit.
  Index num_sequences = 0;      ///< Number of examples.
  Index correct_sequences = 0;  ///< Number of examples in which every counted target is correct.
};

/// A training run.
///
/// With a GradientChain, each rank has a Trainer with the same settings and examples, and every rank must call step(),
/// save() and resume() at the same points. After each step, all ranks have the same parameters as a run without a
/// chain. Only rank 0 writes files.
///
/// @par Example
/// @code{.cpp}
/// const TrainingTask& task = find_task("induction");
/// Trainer trainer(task.recipe, task_source(task));
/// while (!trainer.done()) std::printf("%.4f\n", trainer.step().loss);
/// trainer.save("induction");
/// @endcode
class REGARD_EXPORT Trainer {
 public:
  /// Allocates all memory and initializes the parameters.
  ///
  /// @param settings  The settings, to which completed() is applied.
  /// @param source    Source of the examples.
  /// @param runtime   Threads and cancellation, for the initialization only.
  /// @param chain     The ranks that compute each step together, or nullptr for one machine. The chain must outlive the
  ///                  trainer.
  /// @throws InvalidArgument  if a setting is out of range, if the vocabulary or the length does not match the source,
  ///                          or, on every rank, if the settings or the examples differ between ranks.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  Trainer(const TrainingSettings& settings, std::shared_ptr<const BatchSource> source, const Runtime& runtime = {},
          GradientChain* chain = nullptr);
  ~Trainer();
  Trainer(Trainer&&) noexcept;             ///< Moves; the moved-from object can only be destroyed.
  Trainer& operator=(Trainer&&) noexcept;  ///< Moves; the moved-from object can only be destroyed.

  /// Returns the settings, with defaults filled in by completed().
  const TrainingSettings& settings() const;
  /// Returns the source of the examples.
  const BatchSource& source() const;
  /// Returns the results of all optimizer steps so far, in order.
  const std::vector<TrainingStep>& history() const;
  /// Returns whether all steps specified in the settings are done.
  bool done() const;
  /// Returns the number of bytes allocated.
  std::size_t num_bytes() const;

  /// Performs one optimizer step.
  ///
  /// @param runtime  Threads, scratch memory and cancellation. A stop takes effect before the parameters change. In a
  ///                 chain, a stop on any rank takes effect before the step, on all ranks.
  /// @return The loss, the gradient norm and the learning rate.
  /// @throws TrainingDiverged  if the loss or a gradient is not finite. The message states the step, the layer and the
  ///                           operation.
  /// @throws Cancelled         if a stop is requested. The run is unchanged.
  TrainingStep step(const Runtime& runtime = {});

  /// Evaluates the model without changing the run: the examples come from a separate random stream.
  ///
  /// @param split    Whether to use training or held-out examples.
  /// @param count    Number of examples, at least 1. Their indices are first … first + count − 1.
  /// @param ablated  A head whose context is replaced by zeros.
  /// @param first    Index of the first example, at least 0.
  /// @param runtime  Threads, scratch memory and cancellation.
  /// @return The loss and the number of correct predictions.
  /// @throws InvalidArgument  if an argument is out of range.
  /// @throws Cancelled        if a stop is requested.
  Evaluation evaluate(TaskSplit split, Index count, const AblatedHead& ablated = {}, Index first = 0,
                      const Runtime& runtime = {});

  /// Saves a checkpoint; see save_checkpoint(). Nothing is written if no step has run since the last save to this
  /// folder. In a chain, only rank 0 saves, and the checkpoint does not depend on the number of ranks.
  ///
  /// @param run    Path of the run's folder.
  /// @param files  Files to store in addition to those of the source.
  /// @return Path of the checkpoint; empty on ranks other than 0.
  /// @throws TrainingDiverged  if a parameter is not finite. Earlier checkpoints are unchanged.
  /// @throws DataError         as save_checkpoint() does, and on the other ranks if rank 0 throws.
  std::string save(const std::string& run, const std::vector<CheckpointFile>& files = {});

  /// Resumes a run from a checkpoint.
  ///
  /// @param path  Path of the run's folder, whose newest checkpoint is read, or of a checkpoint.
  /// @param stop  Stop token, polled while files are read.
  /// @return The checkpoint, with a warning if the results will not be bit-identical to those of an
  ///         uninterrupted run.
  /// @throws DataError  as load_checkpoint() does. The run is unchanged.
  /// @throws InvalidArgument  on every rank, if ranks find checkpoints of different steps.
  /// @throws Cancelled  if a stop is requested.
  LoadedCheckpoint resume(const std::string& path, const std::stop_token& stop = {});

  /// Returns whether the parameters are of type double. If so, model() must be called with T = double.
  bool is_float64() const;
  /// Returns the model, for example to observe its attention. Calling its functions does not change the run, except
  /// that the caller may write to parameters().
  ///
  /// @tparam T  float or double.
  /// @throws InvalidArgument  if T does not match the precision of the run.
  template <class T>
  DecoderTraining<T>& model();
  /// Calls a function with the model, whose type depends on the precision of the run.
  ///
  /// @tparam Visit  A callable that takes a DecoderTraining<float>& or a DecoderTraining<double>&.
  /// @param visit   The function.
  /// @return The return value of the function.
  template <class Visit>
  auto visit_model(Visit&& visit) {
    return is_float64() ? visit(model<double>()) : visit(model<float>());
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regard::inline v0
