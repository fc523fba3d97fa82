// SPDX-License-Identifier: Apache-2.0
/// @file
/// The settings of a training run: the model, the batches, the optimizer, the schedule. Together with the task or the
/// text they determine every bit of a run.
///
/// Read next: trainer.h.
#pragma once

#include <cstdint>

#include "regard/model/decoder.h"

namespace regard::inline v0 {

/// Optimizer of a run.
enum class OptimizerKind {
  adamw,  ///< AdamW for all parameters.
  muon    ///< Muon for the matrices of the layers, AdamW for the others.
};

/// How the learning rate depends on the step, after the warm-up.
enum class ScheduleKind {
  constant,            ///< learning_rate.
  cosine,              ///< Half a cosine from learning_rate to min_learning_rate.
  linear,              ///< A line from learning_rate to min_learning_rate.
  warmup_stable_decay  ///< learning_rate, and a line to min_learning_rate over the last fifth of the steps.
};

/// Arithmetic of a run.
enum class TrainingPrecision {
  float32,       ///< float.
  float64,       ///< double.
  bf16_products  ///< float, and linear layers multiply operands rounded to bfloat16.
};

/// The settings of a run.
struct TrainingSettings {
  DecoderConfig model;     ///< The description of the model.
  Index steps = 1000;      ///< Number of optimizer steps.
  Index batch = 16;        ///< Sequences of a step.
  Index micro_batch = 0;   ///< Sequences of a call of forward_backward(); 0: all. Changes no bit.
  Index length = 0;        ///< Tokens of a sequence, L; 0: max_positions of the model.
  std::uint64_t seed = 0;  ///< Seed of the parameters, the batches and dropout.
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< Optimizer.
  double learning_rate = 1e-3;                     ///< Largest learning rate of AdamW.
  double muon_learning_rate = 0.02;                ///< Largest learning rate of Muon.
  double min_learning_rate = 1e-4;                 ///< Learning rate of AdamW at the end; that of Muon in proportion.
  Index warmup = 0;                                ///< Steps in which the learning rate rises linearly from 0.
  ScheduleKind schedule = ScheduleKind::cosine;    ///< Schedule after the warm-up.
  double beta1 = 0.9;                              ///< Decay of the first moment.
  double beta2 = 0.99;                             ///< Decay of the second moment.
  double epsilon = 1e-8;                           ///< Added to the root of the second moment.
  double weight_decay = 0.1;                       ///< Decoupled decay of matrices and tables.
  double clip = 1;                                 ///< Largest global norm of the gradient; 0: no limit.
  double dropout = 0;                              ///< Dropout probability.
  TrainingPrecision precision = TrainingPrecision::float32;  ///< Arithmetic.
  bool recompute = false;                                    ///< Recompute activations in backward. Changes no bit.
  bool operator==(const TrainingSettings&) const = default;  ///< Whether all fields are equal.
};

}  // namespace regard::inline v0
