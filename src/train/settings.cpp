// SPDX-License-Identifier: Apache-2.0
//
// What the zeros of TrainingSettings stand for, and which values are valid.
// Read next: settings_json.cpp.
#include "regard/train/settings.h"

#include "train/optimizer/optimizer_arguments.h"

namespace regard::inline v0 {

TrainingSettings completed(TrainingSettings settings) {
  using namespace internal;
  constexpr const char* kTraining = "training";
  constexpr Index kMaxSteps = Index{1} << 40;
  constexpr Index kMaxBatch = Index{1} << 24;
  settings.model = completed(settings.model);
  expect_between(kTraining, "steps", settings.steps, 1, kMaxSteps);
  expect_between(kTraining, "batch", settings.batch, 1, kMaxBatch);
  if (settings.micro_batch == 0) settings.micro_batch = settings.batch;
  expect_between(kTraining, "micro_batch", settings.micro_batch, 1, settings.batch);
  if (settings.length == 0) settings.length = settings.model.max_positions;
  expect_between(kTraining, "length", settings.length, 1, settings.model.max_positions);
  expect_not_negative(kTraining, "learning_rate", settings.learning_rate);
  expect_not_negative(kTraining, "muon_learning_rate", settings.muon_learning_rate);
  expect_not_negative(kTraining, "min_learning_rate", settings.min_learning_rate);
  expect_between(kTraining, "warmup", settings.warmup, 0, kMaxSteps);
  expect_decay(kTraining, "beta1", settings.beta1);
  expect_decay(kTraining, "beta2", settings.beta2);
  expect_positive(kTraining, "epsilon", settings.epsilon);
  expect_not_negative(kTraining, "weight_decay", settings.weight_decay);
  expect_not_negative(kTraining, "clip", settings.clip);
  expect_decay(kTraining, "dropout", settings.dropout);
  return settings;
}

}  // namespace regard::inline v0
