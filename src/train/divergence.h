// SPDX-License-Identifier: Apache-2.0
//
// Where a run first has a value that is not finite.
// Read next: divergence.cpp.
#pragma once

#include "regard/train/trainer.h"

namespace regard::inline v0::internal {

// Throws TrainingDiverged for a parameter that is not finite.
template <class T>
void check_parameters(const DecoderTraining<T>& model, Index step);

// Throws TrainingDiverged for the loss of a batch, naming the first operation whose result is not finite. The forward
// pass is repeated sequence by sequence.
template <class T>
[[noreturn]] void throw_diverged(const DecoderTraining<T>& model, const TrainingSettings& settings,
                                 const TrainingBatch& batch, Index step, const Runtime& runtime);

// Throws TrainingDiverged for the gradients, naming the first parameter whose gradient was not finite.
template <class T>
[[noreturn]] void throw_diverged_gradient(DecoderTraining<T>& model, Index step);

}  // namespace regard::inline v0::internal
