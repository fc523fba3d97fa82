// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observes the heads of a decoder during training: the weights of each head on fixed sequences, the loss without that
/// head, and the gradient of the loss with respect to the weights and scores of one row.
///
/// @code{.unparsed}
/// forward and backward on the probe ─▶ weights P, dP = grad_context · valueᵀ, dS = P ∘ (dP − Σ P dP)
/// one forward per head, with its context set to 0  ─▶ ablation
/// @endcode
///
/// Read next: record.h, src/train/record/probe.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/train/decoder_training.h"
#include "regard/train/record.h"
#include "regard/train/tasks.h"
#include "regard/train/text_data.h"

namespace regard::inline v0 {

/// The sequences of a probe as token ids, and the data about them that a record stores.
struct ProbeSequences {
  TrainingProbe probe;                                  ///< Texts, targets and pattern of the first sequence.
  std::vector<std::vector<std::vector<Index>>> wanted;  ///< Expected keys for each sequence and row; may be empty.
  Tensor<Index, 2> tokens;                              ///< Token ids, (B, L).
  Tensor<Index, 2> targets;                             ///< Tokens to predict, (B, L); the loss ignores targets of −1.
};

/// Draws the probe of a task from its held-out examples.
///
/// @param task           The task.
/// @param seed           Seed of the run.
/// @param num_sequences  B, at least 1.
/// @return The sequences. The row whose gradient is stored is the last row with expected keys in the first sequence.
/// @throws InvalidArgument  if num_sequences is below 1.
///
/// @par Example
/// @code{.cpp}
/// const ProbeSequences probe = task_probe(find_task("induction"), settings.seed, 16);
/// @endcode
REGARD_EXPORT ProbeSequences task_probe(const TrainingTask& task, std::uint64_t seed, Index num_sequences);

/// Draws the probe of a text: the beginning of a window from its held-out part.
///
/// @param text    The text.
/// @param seed    Seed of the run.
/// @param length  Maximum number of tokens.
/// @return One sequence, without a pattern. The row whose gradient is stored is the last row.
///
/// @par Example
/// @code{.cpp}
/// const ProbeSequences probe = text_probe(text, settings.seed, 48);
/// @endcode
REGARD_EXPORT ProbeSequences text_probe(const TextData& text, std::uint64_t seed, Index length);

/// Observes all heads.
///
/// Overwrites the gradients of the model and leaves its parameters unchanged. The cost is one forward and backward
/// pass, plus one forward pass per head.
///
/// @tparam T         float or double.
/// @param model      The model; its max_sequences and max_length must be large enough for the sequences.
/// @param sequences  The probe.
/// @param step       Number of optimizer steps before the snapshot.
/// @param runtime    Threads, scratch memory and cancellation.
/// @return The snapshot.
/// @throws InvalidArgument  if the sequences exceed the extents of the model.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const TrainingSnapshot snapshot = observe_heads(model, probe, step);
/// @endcode
template <class T>
REGARD_EXPORT TrainingSnapshot observe_heads(DecoderTraining<T>& model, const ProbeSequences& sequences, Index step,
                                             const Runtime& runtime = {});

}  // namespace regard::inline v0
