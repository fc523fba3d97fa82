// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decoder (regard/model/decoder.h) with gradients: the loss of a batch and the gradient of every parameter.
///
/// @verbatim
///     parameters ─┐
///     tokens ─────┴─▶ forward ─▶ loss ─▶ backward ─▶ gradients        one arena each, in the order of
///                     activations, kept per layer                     decoder_parameters()
/// @endverbatim
///
/// - Memory is allocated when the object is created. Scratch memory is allocated in the first step and then reused.
/// - There is no autograd tape: forward and backward are two plain functions that call the operators of regard::regard.
/// - Attention never stores the L × L matrix: memory grows linearly with the length, not quadratically.
/// - The gradient of a batch is the sum of the gradients of its sequences, added in order. Its bits do not depend on
///   the number of threads, on `recompute`, or on whether the batch is computed in one call or accumulated over
///   several.
///
/// Extents: B sequences, L tokens per sequence; regard/model/decoder.h defines all other extents.
///
/// Read next: src/train/decoder/decoder_training.cpp, optimizer.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "regard/model/decoder.h"
#include "regard/runtime.h"
#include "regard/train/gradient_chain.h"

namespace regard::inline v0 {

/// Options for training a decoder, in addition to its configuration.
struct DecoderTrainingOptions {
  Index max_sequences = 1;     ///< Maximum number of sequences per call.
  Index max_length = 0;        ///< Maximum number of tokens per sequence; 0 means max_positions.
  bool recompute = false;      ///< Whether to keep only each layer's input and recompute the rest in the backward pass.
  bool bf16_products = false;  ///< Whether linear layers multiply operands rounded to bfloat16. Only for T = float.
};

/// A batch: B sequences of L tokens, and the token to predict after each token.
struct TrainingBatch {
  TensorView<const Index, 2> tokens{};   ///< Token ids, (B, L).
  TensorView<const Index, 2> targets{};  ///< The token that follows each token, (B, L); the loss ignores targets of −1.
  Index num_targets = 0;                 ///< Divisor of the mean loss; 0 means the number of targets other than −1.
  Index first_sequence = 0;              ///< Index of the first sequence within the whole batch, for dropout.
  double dropout = 0;              ///< Dropout probability for attention weights, embeddings and residual branches.
  std::uint64_t dropout_seed = 0;  ///< Seed for dropout, a function of the run's seed and the step.
};

/// A head whose context is replaced by zeros.
struct AblatedHead {
  Index layer = -1;  ///< Layer index; −1 means that no head is ablated.
  Index head = 0;    ///< Query head index.
};

/// The attention of one layer in the last forward pass, as views of the activations.
template <class T>
struct AttentionRecord {
  TensorView<const T, 4> query;    ///< Queries after rotation, (B, H, L, D).
  TensorView<const T, 4> key;      ///< Keys after rotation, (B, Hkv, L, D).
  TensorView<const T, 4> value;    ///< Values, (B, Hkv, L, D).
  TensorView<const T, 4> context;  ///< Context, (B, H, L, D).
  TensorView<const T, 3> row_max;  ///< Softmax state: largest score of each row, (B, H, L).
  TensorView<const T, 3> row_sum;  ///< Softmax state: Σ exp(score − row_max) of each row, (B, H, L).
};

/// A function that is called in the backward pass, layer by layer from the last to the first, with the gradient of the
/// context.
///
/// @tparam T  float or double.
template <class T>
using AttentionObserver =
    std::function<void(Index layer, const AttentionRecord<T>& record, TensorView<const T, 4> grad_context)>;

/// Wall-clock time spent in each part of forward_backward() and evaluate() since the model was created, in seconds.
struct TrainingProfile {
  double products = 0;     ///< Linear layers, forward and backward, including rounding to bfloat16.
  double attention = 0;    ///< Attention, forward and backward.
  double norms = 0;        ///< Norms.
  double activations = 0;  ///< Activations of the feed-forward layers.
  double rotation = 0;     ///< Rotary position embedding.
  double embedding = 0;    ///< Embeddings and their gradients.
  double loss = 0;         ///< Softmax and cross-entropy.
  double residual = 0;     ///< Residual additions and dropout.
  double messages = 0;     ///< Messages through a GradientChain, including time spent waiting for other ranks.
};

/// A decoder, its gradients, and the memory for a training step.
///
/// @tparam T  float or double.
///
/// @par Example
/// @code{.cpp}
/// DecoderTraining<float> model(config, {.max_sequences = 12});
/// initialize(model.description(), model.parameters(), seed);
/// const double loss = model.forward_backward({.tokens = tokens, .targets = targets});
/// @endcode
template <class T>
class REGARD_EXPORT DecoderTraining {
 public:
  /// Allocates parameters, gradients and activations, and sets them to zero.
  ///
  /// @param config   The configuration.
  /// @param options  Maximum extents of a call, recomputation and precision.
  /// @throws InvalidArgument  as completed() does, and if an option is out of range.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  explicit DecoderTraining(const DecoderConfig& config, const DecoderTrainingOptions& options = {});
  ~DecoderTraining();
  DecoderTraining(DecoderTraining&&) noexcept;             ///< Moves; the moved-from object can only be destroyed.
  DecoderTraining& operator=(DecoderTraining&&) noexcept;  ///< Moves; the moved-from object can only be destroyed.

  /// Returns the configuration, with defaults filled in by completed().
  const DecoderConfig& config() const;
  /// Returns the result of decoder_parameters() for the configuration.
  std::span<const DecoderParameter> description() const;
  /// Returns the elements of all parameters, in the order of description().
  std::span<T> parameters();
  /// Returns the elements of all parameters, read-only.
  std::span<const T> parameters() const;
  /// Returns the gradients, in the same order.
  std::span<T> gradients();
  /// Returns the number of bytes allocated, excluding scratch memory.
  std::size_t num_bytes() const;

  /// Returns the time spent in each part of all calls so far.
  const TrainingProfile& profile() const;

  /// Computes the loss of a batch and the gradients of all parameters.
  ///
  /// @param batch       Tokens and targets.
  /// @param accumulate  Whether to add to the gradients of earlier calls instead of overwriting them.
  /// @param observer    Called for each layer in the backward pass; may be empty.
  /// @param runtime     Threads, scratch memory and cancellation.
  /// @return `Σ −ln p(target) / num_targets` over the targets of this batch; 0 if there are none.
  /// @throws InvalidArgument  before any work is done, if an argument is invalid.
  /// @throws Cancelled        if a stop is requested. In that case, the gradients are undefined.
  double forward_backward(const TrainingBatch& batch, bool accumulate = false,
                          const AttentionObserver<T>& observer = {}, const Runtime& runtime = {});

  /// Computes the loss of one piece of a batch that is divided among ranks. Layer by layer, the call receives the sum
  /// of the gradients of the preceding pieces, adds the gradients of this piece, and sends the sum to the next rank
  /// (gradient_chain.h).
  ///
  /// On return, gradients() on the rank of the last piece contains the total, which has also been sent to the next
  /// rank. The other ranks receive the total through receive_gradients().
  ///
  /// @param batch    Tokens and targets of the piece; num_targets and first_sequence must be set.
  /// @param piece    The ranks, and whether the piece is the first or the last.
  /// @param runtime  Threads and scratch memory. Do not request a stop: it would leave other ranks waiting.
  /// @return The loss, as forward_backward() returns it.
  /// @throws InvalidArgument  before any work is done, if an argument is invalid.
  double forward_backward_in_chain(const TrainingBatch& batch, const ChainedPiece& piece, const Runtime& runtime = {});

  /// Receives the total gradients from forward_backward_in_chain(), on a rank that did not compute the last piece.
  ///
  /// @param chain      The ranks.
  /// @param passes_on  Whether to send the total to the next rank; false if that rank computed the last piece.
  void receive_gradients(GradientChain& chain, bool passes_on);

  /// Computes the loss of a batch, without gradients.
  ///
  /// @param batch     Tokens and targets.
  /// @param ablated   A head whose context is replaced by zeros.
  /// @param row_loss  Receives `−ln p(target)` for each token, (B, L), or 0 if its target is −1; may be absent.
  /// @param correct   Receives the number of correctly predicted targets, where the prediction is the first token with
  ///                  the largest logit; may be nullptr.
  /// @param runtime   Threads, scratch memory and cancellation.
  /// @return The loss, as forward_backward() returns it.
  /// @throws InvalidArgument  before any work is done, if an argument is invalid.
  /// @throws Cancelled        if a stop is requested.
  double evaluate(const TrainingBatch& batch, const AblatedHead& ablated = {}, TensorView<T, 2> row_loss = {},
                  Index* correct = nullptr, const Runtime& runtime = {});

  /// Returns the logits of the last call to evaluate(), (B · L, V), valid until any member function is called again.
  TensorView<const T, 2> logits() const;

  /// Returns `−ln p(target)` for each token of the last call, (B, L), or 0 if its target is −1.
  ///
  /// @return A view that is valid until the next call.
  TensorView<const T, 2> row_losses() const;

  /// Calls a function for each array of the last forward pass, in the order of computation, for example to find the
  /// first value that is not finite. With `recompute`, arrays within layers are available only for the last layer.
  ///
  /// @param visit  Called with the layer (−1 outside the layers), the name of the operation that computed the array,
  ///               for example "attention", and the rows of the array, one per token.
  void visit_activations(const std::function<void(Index layer, std::string_view operation,
                                                  const TensorView<const T, 2>& rows)>& visit) const;

  /// Returns the attention of a layer in the last call to evaluate(), valid until the next call.
  ///
  /// @param layer  Zero-based layer index.
  /// @throws InvalidArgument  if the layer does not exist or, with `recompute`, if it is not the last layer.
  AttentionRecord<T> attention(Index layer) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regard::inline v0
