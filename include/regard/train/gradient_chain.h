// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data-parallel training: ranks add their gradients one after another. Results are bit-identical to those computed on
/// one machine.
///
/// @verbatim
///     sequences of a step   │ piece 0 │ piece 1 │ piece 2 │ …         piece k is computed by rank k mod N
///     each gradient         0 ─▶ + g₀ ─▶ + g₁ ─▶ + g₂ ─▶ … ─▶ total   the sum moves to the next rank of the ring
///     total                 the rank of the last piece ─▶ next ─▶ … ─▶ every rank
/// @endverbatim
///
/// Trainer and DecoderTraining use this interface; the implementation decides how messages are sent. The gradients of a
/// layer are sent while the gradients of the layer before it are computed, so that ranks work concurrently.
/// docs/derivations/ranks.md contains the derivation.
///
/// Read next: trainer.h, src/train/decoder/decoder_training.cpp.
#pragma once

#include <cstddef>
#include <span>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// N ranks in a ring. Each rank has its own object and calls its functions from one thread.
///
/// Messages from a rank to the next rank arrive in the order in which they were sent, and each call to receive() passes
/// a buffer of the size that was sent. If another rank fails, any function may throw an implementation-specific
/// exception.
class REGARD_EXPORT GradientChain {
 public:
  virtual ~GradientChain();  ///< Destroys the object.

  /// Returns the number of this rank, from 0 to N − 1.
  virtual Index rank() const = 0;
  /// Returns N, the number of ranks.
  virtual Index num_ranks() const = 0;

  /// Announces the buffer of a later call to receive(). Buffers are passed to receive() in the order in which they were
  /// announced. After this call, the implementation may write to the buffer as soon as no pending send() reads it, so
  /// that messages arrive while the rank computes. The default implementation does nothing.
  ///
  /// @param bytes  The buffer, at least one byte.
  virtual void expect(std::span<std::byte> bytes);
  /// Receives the next message from the preceding rank, (rank − 1) mod N.
  ///
  /// @param bytes  Receives the message; at least one byte.
  virtual void receive(std::span<std::byte> bytes) = 0;
  /// Sends a message to the next rank, (rank + 1) mod N, without waiting for that rank to receive it.
  ///
  /// @param bytes  The message, at least one byte. It must stay unchanged until the caller announces or receives a
  ///               message into these bytes, or until finish() or abandon() returns.
  virtual void send(std::span<const std::byte> bytes) = 0;
  /// Waits until every pending send() has finished reading its bytes. It is called at the end of each step.
  virtual void finish() = 0;
  /// Aborts communication: message buffers are no longer read or written, and other ranks fail instead of waiting. It
  /// is called if a step throws; afterwards, the object can only be destroyed.
  virtual void abandon() noexcept = 0;

  /// Returns the largest value over all ranks. Every rank must call this function at the same point.
  ///
  /// @param value  The value of this rank.
  /// @return The largest value, on every rank.
  virtual Index largest(Index value) = 0;
};

/// The sequences of a step, divided into contiguous pieces that the ranks compute in turn.
struct BatchPieces {
  Index batch = 0;  ///< Number of sequences.
  Index count = 0;  ///< Number of pieces. No piece is empty, and sizes differ by at most one.
  /// Returns the index of the first sequence of a piece or, if `piece` is `count`, the number of sequences.
  Index first(Index piece) const { return piece * batch / count; }
};

/// Divides a batch into the smallest possible number of pieces. If there are enough sequences, all ranks compute the
/// same number of pieces. If N > batch, ranks `batch` and above compute no piece.
///
/// @param batch        Number of sequences, at least 1.
/// @param micro_batch  Maximum number of sequences per piece, at least 1.
/// @param num_ranks    N, at least 1.
/// @return `min(batch, N · ⌈batch / (N · micro_batch)⌉)` pieces.
///
/// @par Example
/// @code{.cpp}
/// const BatchPieces pieces = batch_pieces(16, 4, 3);  // 6 pieces, each of 2 or 3 sequences
/// @endcode
REGARD_EXPORT BatchPieces batch_pieces(Index batch, Index micro_batch, Index num_ranks);

/// Arguments of DecoderTraining::forward_backward_in_chain() for one piece.
struct ChainedPiece {
  GradientChain* chain = nullptr;  ///< The ranks, at least two; not nullptr.
  bool is_first = false;           ///< Whether this is the first piece, for which no sum is received.
  bool is_last = false;            ///< Whether this is the last piece, whose sums are the total.
};

}  // namespace regard::inline v0
