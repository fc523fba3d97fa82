// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that compute together, and sums over ranks, which are bit-identical for any number of ranks.
///
/// @verbatim
///     caller's thread                      communication thread
///     attention_forward(…, ranks) ──▶ messages in flight ──▶ Transport
///       waits for its messages   ◀── completed              heartbeat ──▶ every rank, eight times per timeout
/// @endverbatim
///
/// - All ranks make the same calls in the same order. Before any work is done, they compare their arguments.
/// - If a rank fails or sends nothing within the timeout, the call ends on all other ranks with a RankError that names
///   the failed rank.
/// - After an error, messages in flight may still read inputs and write outputs: keep these arrays alive until the
///   program ends.
/// - With a single rank, no thread is started and nothing is sent.
///
/// Read next: attention.h, src/distributed/ranks.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "regard/distributed/transport.h"

namespace regard::inline v0 {

namespace internal {
class Messages;
}

/// Options for Ranks.
struct RanksOptions {
  /// Seconds without a heartbeat after which a rank is considered to have failed. Must be above 0.
  ///
  /// If Transport::may_use_thread() is false, ranks send no heartbeats while they compute: in that case, the timeout
  /// must exceed the duration of a call.
  std::chrono::duration<double> timeout = std::chrono::seconds(60);
};

/// The ranks that compute together. Only one thread at a time may use the object.
///
/// @par Example
/// @code{.cpp}
/// Ranks ranks = mpi_ranks(MPI_COMM_WORLD);            // regard/distributed/mpi.h
/// attention_forward(query_rows, key_rows, value_rows, {.context = context_rows}, {.causal = true}, ranks);
/// @endcode
class REGARD_EXPORT Ranks {
 public:
  /// Creates a single rank, which computes alone.
  Ranks();
  /// Starts the communication thread, if there are several ranks and the transport permits it.
  ///
  /// @param transport  Transport for the messages between the ranks.
  /// @param options    Timeout after which an unresponsive rank is considered to have failed.
  /// @throws InvalidArgument  if the timeout is not above 0.
  explicit Ranks(std::unique_ptr<Transport> transport, const RanksOptions& options = {});
  /// Waits until all ranks have reached this point, but no longer than the timeout. During stack unwinding, it instead
  /// notifies the other ranks, whose calls then fail with a RankError.
  ~Ranks();
  /// Moves the ranks. A moved-from object can only be assigned to or destroyed.
  Ranks(Ranks&&) noexcept;
  /// Moves the ranks. A moved-from object can only be assigned to or destroyed.
  Ranks& operator=(Ranks&&) noexcept;

  /// Returns the rank of this process.
  Index rank() const;
  /// Returns N, the number of ranks.
  Index num_ranks() const;

  /// Starts sending bytes, which must stay unchanged until wait() for this message returns.
  ///
  /// @param to     Another rank.
  /// @param bytes  The message. The other rank must receive messages in the same order, with the same sizes.
  /// @return The identifier of the message, for wait().
  std::uint64_t start_send(Index to, std::span<const std::byte> bytes);
  /// Starts receiving bytes, in the order in which the other rank sends them.
  ///
  /// @param from   Another rank.
  /// @param bytes  Buffer for the message.
  /// @return The identifier of the message, for wait().
  std::uint64_t start_receive(Index from, std::span<std::byte> bytes);
  /// Waits until a message has been sent or received.
  ///
  /// @param message  Identifier that start_send() or start_receive() returned.
  /// @param stop     Stop token; a stop request ends the call with Cancelled.
  /// @throws RankError  if a rank fails.
  /// @throws Cancelled  if a stop is requested.
  void wait(std::uint64_t message, const std::stop_token& stop = {});
  /// Ends the current call on all other ranks.
  ///
  /// @param text  The reason. The other ranks throw RankError with the message "rank 2 of 8 failed: text".
  void fail(std::string_view text) noexcept;

  /// For use by the functions of this library only.
  internal::Messages& messages();

 private:
  std::unique_ptr<internal::Messages> messages_;
};

/// Sums the terms of all ranks one after another: first the terms of rank 0 in order, then those of rank 1, and so on.
///
/// The sum has the same bits regardless of how the same terms are divided among ranks, which MPI_Allreduce does not
/// guarantee. Source: docs/derivations/ranks.md.
///
/// @tparam T     float or double.
/// @param terms  Terms of this rank, (n, m). n may differ between ranks, and may be 0.
/// @param sum    The sum on every rank, (m): `((0 + x₀) + x₁) + …`. Must not overlap terms.
/// @param ranks  The ranks.
/// @param stop   Stop token; a stop request ends the call with Cancelled.
///
/// Each rank receives at most `2m` elements: the running sum and the total.
///
/// @throws InvalidArgument  on all ranks, if sizes differ.
/// @throws RankError        if a rank fails.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// sum_in_order(gradients_of_my_sequences, gradient, ranks);
/// @endcode
template <class T>
REGARD_EXPORT void sum_in_order(const TensorView<const T, 2>& terms, std::span<T> sum, Ranks& ranks,
                                const std::stop_token& stop = {});

/// Exchanges one number per rank before a call whose arguments depend on all of these numbers, such as the total number
/// of keys.
///
/// @param function  Name of the call, the same on all ranks; may be empty.
/// @param number    The number of this rank.
/// @param ranks     The ranks.
/// @param stop      Stop token; a stop request ends the call with Cancelled.
/// @return The numbers of all ranks, in rank order.
///
/// @throws InvalidArgument  on all ranks, if the names differ, or if a rank calls reject_call().
/// @throws RankError        if a rank fails.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<Index> num_keys = exchange_numbers("load", num_my_keys, ranks);  // one number per rank
/// @endcode
REGARD_EXPORT std::vector<Index> exchange_numbers(std::string_view function, Index number, Ranks& ranks,
                                                  const std::stop_token& stop = {});

/// Replaces a call on a rank that cannot make it, for example because a file with its arguments is missing.
///
/// @param function  Name of the function that the other ranks call, such as "attention_forward", or the name that they
///                  pass to exchange_numbers().
/// @param mistake   Description of the error.
/// @param ranks     The ranks, which can still be used afterwards.
/// @param stop      Stop token; a stop request ends the call with Cancelled.
///
/// @throws InvalidArgument  always, and also in the call on the other ranks: "attention_forward: rank 2: mistake".
/// @throws RankError        if a rank fails.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// if (!file_exists) reject_call("load", "keys.npy is missing", ranks);
/// @endcode
[[noreturn]] REGARD_EXPORT void reject_call(std::string_view function, std::string_view mistake, Ranks& ranks,
                                            const std::stop_token& stop = {});

}  // namespace regard::inline v0
