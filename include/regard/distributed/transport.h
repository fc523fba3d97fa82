// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface through which ranks exchange messages. MPI implements it (mpi.h), and a program may implement it over
/// another message-passing library.
///
/// @code{.unparsed}
/// attention over ranks (attention.h) ── Ranks (ranks.h) ── Transport ── MPI, gloo, threads, …
/// @endcode
///
/// Read next: ranks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/error.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Thrown if a rank does not respond, has exited or has failed in a call that needs it, or if the network has failed.
///
/// It is thrown with the same text on all ranks that are waiting in the call, and by all later calls on the same Ranks.
/// The results of the call are unspecified. The ranks cannot be used again: end the program with MPI_Abort(), because
/// MPI_Finalize() may wait for the missing rank.
class REGARD_EXPORT RankError : public std::runtime_error, public Error {
 public:
  /// Creates the exception.
  ///
  /// @param rank  Rank that failed, or −1 if it is unknown.
  /// @param text  One sentence that names this rank.
  RankError(Index rank, const std::string& text) : std::runtime_error(text), rank_(rank) {}
  /// Destroys the exception.
  ~RankError() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::rank_failed; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::runtime_error::what(); }
  /// Returns the rank that failed, or −1 if it is unknown.
  Index rank() const noexcept { return rank_; }

 private:
  Index rank_;
};

/// Asynchronous messages between ranks: one call starts a message, and a later call reports its completion.
///
/// - Messages with the same sender, receiver and tag arrive in the order in which they were sent.
/// - Only one thread at a time calls these functions, but not always the same thread.
/// - These functions do not block. start_send() and start_receive() may be called with any number of messages in
///   flight.
class REGARD_EXPORT Transport {
 public:
  /// Destroys the transport. If messages are in flight, it must not wait for them.
  virtual ~Transport();
  /// Returns the rank of this process, `0 ≤ rank < num_ranks`.
  virtual Index rank() const = 0;
  /// Returns N, the number of ranks.
  virtual Index num_ranks() const = 0;
  /// Returns whether functions may be called from a thread that has not used the transport before, while the program's
  /// threads use the same message-passing library.
  virtual bool may_use_thread() const = 0;
  /// Starts sending a message.
  ///
  /// @param to       Another rank.
  /// @param tag      Kind of message: 0 or 1.
  /// @param message  Bytes, which must stay unchanged until the message is complete.
  /// @param ticket   Identifier with which completed() reports the message.
  /// @throws RankError  if the rank is known to have failed, or if the network has failed.
  virtual void start_send(Index to, int tag, std::span<const std::byte> message, std::uint64_t ticket) = 0;
  /// Starts receiving a message of known size.
  ///
  /// @param from     Another rank.
  /// @param tag      Kind of message.
  /// @param message  Buffer with exactly the size of the message.
  /// @param ticket   Identifier with which completed() reports the message.
  /// @throws RankError  as start_send() does.
  virtual void start_receive(Index from, int tag, std::span<std::byte> message, std::uint64_t ticket) = 0;
  /// Makes progress and reports messages that have completed since the last call.
  ///
  /// @param tickets  Vector to which the tickets of these messages are appended.
  /// @throws RankError  as start_send() does.
  virtual void completed(std::vector<std::uint64_t>& tickets) = 0;

 protected:
  /// For derived classes only.
  Transport() = default;
  /// Transports cannot be copied.
  Transport(const Transport&) = delete;
  /// Transports cannot be copied.
  Transport& operator=(const Transport&) = delete;
};

}  // namespace regard::inline v0
