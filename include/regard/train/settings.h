// SPDX-License-Identifier: Apache-2.0
/// @file
/// The settings of a training run: the model, the batches, the optimizer and the schedule. Together with the task or
/// the text, they determine every bit of the result.
///
/// Read next: src/train/settings.cpp, trainer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "regard/export.h"
#include "regard/model/decoder.h"

namespace regard::inline v0 {

/// Optimizer of a run.
enum class OptimizerKind {
  adamw,  ///< AdamW for all parameters.
  muon    ///< Muon for the matrices of the layers, AdamW for all other parameters.
};

/// Names used in files for the OptimizerKind enumerators, in the same order.
inline constexpr std::array<std::string_view, 2> kOptimizerNames{"adamw", "muon"};

/// Schedule of the learning rate after the warm-up.
enum class ScheduleKind {
  constant,            ///< learning_rate at every step.
  cosine,              ///< A cosine decay from learning_rate to min_learning_rate.
  linear,              ///< A linear decay from learning_rate to min_learning_rate.
  warmup_stable_decay  ///< learning_rate, then a linear decay to min_learning_rate over the last fifth of the steps.
};

/// Names used in files for the ScheduleKind enumerators, in the same order.
inline constexpr std::array<std::string_view, 4> kScheduleNames{"constant", "cosine", "linear", "warmup_stable_decay"};

/// Precision of the arithmetic of a run.
enum class TrainingPrecision {
  float32,       ///< float.
  float64,       ///< double.
  bf16_products  ///< float, except that linear layers multiply operands rounded to bfloat16.
};

/// Names used in files for the TrainingPrecision enumerators, in the same order.
inline constexpr std::array<std::string_view, 3> kPrecisionNames{"float32", "float64", "bf16_products"};

/// The settings of a run.
struct TrainingSettings {
  DecoderConfig model;     ///< Configuration of the model.
  Index steps = 1000;      ///< Number of optimizer steps.
  Index batch = 16;        ///< Sequences per step.
  Index micro_batch = 0;   ///< Sequences per call to forward_backward(); 0 means batch. Does not affect any bit.
  Index length = 0;        ///< Tokens per sequence, L; 0 means max_positions of the model.
  std::uint64_t seed = 0;  ///< Seed of the parameters, the batches and dropout.
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< The optimizer.
  double learning_rate = 1e-3;                     ///< Peak learning rate of AdamW.
  double muon_learning_rate = 0.02;                ///< Peak learning rate of Muon.
  double min_learning_rate = 1e-4;                 ///< Final learning rate of AdamW; Muon's is scaled in proportion.
  Index warmup = 0;                                ///< Steps over which the learning rate rises linearly to its peak.
  ScheduleKind schedule = ScheduleKind::cosine;    ///< Schedule after the warm-up.
  double beta1 = 0.9;                              ///< Decay rate of the first moment.
  double beta2 = 0.99;                             ///< Decay rate of the second moment.
  double epsilon = 1e-8;                           ///< Added to the square root of the second moment.
  double weight_decay = 0.1;                       ///< Decoupled weight decay applied to matrices and embedding tables.
  double clip = 1;                                 ///< Maximum global L2 norm of the gradient; 0 means no clipping.
  double dropout = 0;                              ///< Dropout probability.
  TrainingPrecision precision = TrainingPrecision::float32;  ///< Precision of the arithmetic.
  bool recompute = false;                                    ///< Whether to recompute activations in the backward pass.
  bool operator==(const TrainingSettings&) const = default;  ///< Whether all fields are equal.
};

/// Replaces zeros with the default values that they stand for, and validates every field.
///
/// @param settings  The settings.
/// @return The settings, with completed() applied to the model, and with micro_batch and length replaced if they are 0.
/// @throws InvalidArgument  "training: warmup is X; expected …" if a field is out of range. Errors in the model
///                          are those of completed(DecoderConfig).
///
/// @par Example
/// @code{.cpp}
/// const TrainingSettings settings = completed(find_task("induction").recipe);
/// @endcode
REGARD_EXPORT TrainingSettings completed(TrainingSettings settings);

}  // namespace regard::inline v0
