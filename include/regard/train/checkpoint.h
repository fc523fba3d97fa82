// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints of a training run: everything needed to continue it with results bit-identical to those of an
/// uninterrupted run.
///
/// @verbatim
///     RUN/step-00001500/  config.json              the model: decoder_config_json()
///     RUN/step-00002000/  model.safetensors        its parameters, named as in decoder_parameters()
///                         optimizer.safetensors    both moments of each parameter; loss, norm and rate of each step
///                         training.json            settings, data, step, version of the numerics, SHA-256 of files
///                         vocabulary.json, …       files that the caller adds
/// @endverbatim
///
/// - A checkpoint is written under a hidden name, flushed to disk and renamed. If the process is interrupted at any
///   point, only complete checkpoints remain. The two newest checkpoints are kept.
/// - There is no random state to save: batches and dropout are functions of the seed and the step.
/// - The first two files are all that is needed to use the model, for example with transformers.
///
/// Read next: src/train/checkpoint/checkpoint.cpp, trainer.h, docs/reference/file-formats.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/io/json_fields.h"
#include "regard/io/json_writer.h"
#include "regard/runtime.h"
#include "regard/train/settings.h"

namespace regard::inline v0 {

/// Version of the training arithmetic. It changes whenever the same settings would produce different bits.
inline constexpr Index kTrainingNumerics = 1;

/// The data that a run is trained on.
struct TrainingData {
  std::string name;  ///< Name of the task or of the text file, for display.
  /// Names and values that must match when a run is resumed, for example {"text", its SHA-256}.
  std::vector<std::pair<std::string, std::string>> identity;
};

/// The result of one optimizer step.
struct TrainingStep {
  Index step = 0;                                        ///< Number of optimizer steps before this one.
  double loss = 0;                                       ///< Loss on the batch, before the step.
  double gradient_norm = 0;                              ///< Global L2 norm of the gradient, before clipping.
  double learning_rate = 0;                              ///< Learning rate of AdamW.
  bool operator==(const TrainingStep&) const = default;  ///< Whether all fields are equal.
};

/// An additional text file in a checkpoint, such as the vocabulary.
struct CheckpointFile {
  std::string name;                                        ///< Letters, digits, '_', '-' and '.', no leading '.'.
  std::string text;                                        ///< Contents of the file.
  bool operator==(const CheckpointFile&) const = default;  ///< Whether both fields are equal.
};

/// The state of a run between two steps, except for its arrays.
struct TrainingState {
  TrainingSettings settings;          ///< The settings, with defaults filled in by completed().
  TrainingData data;                  ///< The data that the run is trained on.
  std::vector<TrainingStep> history;  ///< All steps so far, from step 0; its size is the current step of the run.
  std::vector<CheckpointFile> files;  ///< Files added by the caller.
};

/// The arrays of a run, in the order of decoder_parameters().
///
/// @tparam T  float or double, possibly const.
template <class T>
struct TrainingArrays {
  std::span<T> parameters;     ///< The parameters.
  std::span<T> first_moment;   ///< First moments.
  std::span<T> second_moment;  ///< Second moments.
};

/// Writes a checkpoint and removes all checkpoints except the two newest.
///
/// @tparam T      float or double.
/// @param run     Path of the run's folder. It is created if it is missing; its parent must exist.
/// @param state   State of the run.
/// @param arrays  Arrays of the run.
/// @return Path of the checkpoint.
/// @throws InvalidArgument  if the sizes of the arrays do not match the model, or if a file has an invalid name.
/// @throws DataError        if a file cannot be written, or if the folder contains a checkpoint from a later step. The
///                          message states the path and the reason. Earlier checkpoints are unchanged.
///
/// @par Example
/// @code{.cpp}
/// const std::string path = save_checkpoint<float>("run", state, {parameters, first_moment, second_moment});
/// @endcode
template <class T>
REGARD_EXPORT std::string save_checkpoint(const std::string& run, const TrainingState& state,
                                          const TrainingArrays<const T>& arrays);

/// Lists the checkpoints of a run, which are identified by the names of their folders.
///
/// @param run  Path of the run's folder.
/// @return Paths of the checkpoints, newest last; none if the folder does not exist.
/// @throws DataError  if the folder cannot be read.
REGARD_EXPORT std::vector<std::string> list_checkpoints(const std::string& run);

/// Returns the folder that contains the model of a run.
///
/// @param path  Path of a run's folder, or of a folder that itself contains config.json.
/// @return The newest checkpoint, or the path itself.
/// @throws DataError  if the folder contains neither a checkpoint nor config.json.
///
/// @par Example
/// @code{.cpp}
/// const Decoder decoder = load_decoder(trained_model_folder("run"));
/// @endcode
REGARD_EXPORT std::string trained_model_folder(const std::string& path);

/// A loaded checkpoint.
struct LoadedCheckpoint {
  TrainingState state;  ///< The saved state of the run.
  /// The reason why the results will not be bit-identical to those of an uninterrupted run, for example a different
  /// instruction set; empty if they will be bit-identical.
  std::string warning;
};

/// Reads a checkpoint, except for its arrays.
///
/// @param checkpoint  Path of the checkpoint.
/// @return The saved state of the run.
/// @throws DataError  "path: …" if a file is missing, is invalid, or has been modified. Of tensor files, only the
///                    headers are checked.
///
/// @par Example
/// @code{.cpp}
/// const TrainingState state = read_training_state(list_checkpoints("run").back());
/// @endcode
REGARD_EXPORT TrainingState read_training_state(const std::string& checkpoint);

/// Reads a checkpoint to continue its run.
///
/// @tparam T          float or double.
/// @param checkpoint  Path of the checkpoint.
/// @param settings    The settings of the run, with defaults filled in by completed().
/// @param data        The data that the run is trained on.
/// @param arrays      Receives the arrays of the checkpoint, unless an exception is thrown.
/// @param stop        Stop token, polled while files are read.
/// @return The saved state of the run, and a warning if its results will not be bit-identical.
/// @throws DataError  "path: was saved with NAME A; this run has B" if the version of the numerics, the data, the
///                    model or a setting differs. micro_batch and recompute do not affect the bits and may differ. If
///                    the schedule is constant, the number of steps may also differ.
/// @throws DataError  "path: …" if a file is missing, is invalid, or has been modified.
/// @throws InvalidArgument  if the size of an array does not match the model.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const LoadedCheckpoint loaded =
///     load_checkpoint<float>("run/step-00001500", settings, data, {parameters, first_moment, second_moment});
/// @endcode
template <class T>
REGARD_EXPORT LoadedCheckpoint load_checkpoint(const std::string& checkpoint, const TrainingSettings& settings,
                                               const TrainingData& data, const TrainingArrays<T>& arrays,
                                               const std::stop_token& stop = {});

/// Writes all settings except the model as members of the open JSON object.
///
/// @param json      The writer.
/// @param settings  The settings.
///
/// @par Example
/// @code{.cpp}
/// json.begin_object();
/// write_training_settings(json, settings);
/// json.end_object();
/// @endcode
REGARD_EXPORT void write_training_settings(JsonWriter& json, const TrainingSettings& settings);

/// Reads settings written by write_training_settings(). The text may be untrusted.
///
/// @param fields  The JSON object.
/// @param model   Configuration of the model.
/// @return The settings; completed() checks their ranges.
/// @throws DataError  if a member is missing, has the wrong type, or contains an unknown name.
///
/// @par Example
/// @code{.cpp}
/// const TrainingSettings settings = read_training_settings(JsonFields("settings.json", root), model);
/// @endcode
REGARD_EXPORT TrainingSettings read_training_settings(const JsonFields& fields, const DecoderConfig& model);

/// A field in which two TrainingSettings differ.
struct SettingDifference {
  std::string name;    ///< Name of the field, such as "learning_rate".
  std::string first;   ///< Value of the field in the first TrainingSettings.
  std::string second;  ///< Value of the field in the second TrainingSettings.
};
/// Finds the first differing field that affects the bits of a run; see load_checkpoint().
///
/// @param first   Settings, with defaults filled in by completed().
/// @param second  Other settings, likewise.
/// @return The difference, or std::nullopt if there is none.
///
/// @par Example
/// @code{.cpp}
/// if (const auto difference = first_difference(saved, settings)) std::puts(difference->name.c_str());
/// @endcode
REGARD_EXPORT std::optional<SettingDifference> first_difference(const TrainingSettings& first,
                                                                const TrainingSettings& second);

}  // namespace regard::inline v0
