// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks of an MPI communicator. This header includes <mpi.h>; the libraries of Regard do not depend on MPI, so a
/// program uses whichever MPI implementation it is compiled with.
///
/// @code{.cpp}
/// int provided = 0;
/// MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
/// {
///   Ranks ranks = mpi_ranks(MPI_COMM_WORLD);
///   attention_forward(query_rows, key_rows, value_rows, {.context = context_rows}, {.causal = true}, ranks);
/// }
/// MPI_Finalize();
/// @endcode
///
/// With CMake, use `find_package(regard COMPONENTS mpi)` and `target_link_libraries(program regard::mpi)`. Tested with
/// Open MPI 4.1 and 5.0 and MPICH 5.0.
///
/// Read next: ranks.h, docs/guide/several-machines.md.
#pragma once

/// @cond
// Only the C interface is used.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
/// @endcond
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "regard/distributed/ranks.h"
#include "regard/error.h"

namespace regard::inline v0 {

/// Messages over a duplicate of an MPI communicator.
///
/// Messages above 1 GiB are sent in pieces. MPI errors are thrown as RankError instead of ending the program.
class MpiTransport final : public Transport {
 public:
  /// Duplicates the communicator. This is a collective call.
  ///
  /// @param communicator  An intracommunicator.
  /// @throws InvalidArgument  if MPI is not initialized.
  explicit MpiTransport(MPI_Comm communicator) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized) throw InvalidArgument("mpi_ranks: MPI is not initialized; call MPI_Init_thread first");
    MPI_Comm_dup(communicator, &communicator_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &num_ranks_);
    int provided = 0;
    MPI_Query_thread(&provided);
    may_use_thread_ = provided == MPI_THREAD_MULTIPLE;
  }
  /// Frees the duplicate, unless messages are in flight.
  ~MpiTransport() override {
    if (requests_.empty()) MPI_Comm_free(&communicator_);
  }

  Index rank() const override { return rank_; }
  Index num_ranks() const override { return num_ranks_; }
  bool may_use_thread() const override { return may_use_thread_; }

  void start_send(Index to, int tag, std::span<const std::byte> message, std::uint64_t ticket) override {
    for_each_piece(message, ticket, to, [&](const std::byte* bytes, int count, MPI_Request* request) {
      return MPI_Isend(bytes, count, MPI_BYTE, static_cast<int>(to), tag, communicator_, request);
    });
  }
  void start_receive(Index from, int tag, std::span<std::byte> message, std::uint64_t ticket) override {
    for_each_piece(message, ticket, from, [&](std::byte* bytes, int count, MPI_Request* request) {
      return MPI_Irecv(bytes, count, MPI_BYTE, static_cast<int>(from), tag, communicator_, request);
    });
  }
  void completed(std::vector<std::uint64_t>& tickets) override {
    if (requests_.empty()) return;
    int count = 0;
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int result =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
    if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) fail(-1, result);
    if (count == MPI_UNDEFINED || count == 0) return;
    for (int i = 0; i < count; ++i) {
      const Piece& piece = pieces_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])];
      const int error = statuses_[static_cast<std::size_t>(i)].MPI_ERROR;
      if (result == MPI_ERR_IN_STATUS && error != MPI_SUCCESS && error != MPI_ERR_PENDING) fail(piece.peer, error);
      if (--num_pieces_[piece.ticket] > 0) continue;
      num_pieces_.erase(piece.ticket);
      tickets.push_back(piece.ticket);
    }
    // MPI has set the requests of completed pieces to MPI_REQUEST_NULL.
    std::size_t kept = 0;
    for (std::size_t n = 0; n < requests_.size(); ++n) {
      if (requests_[n] == MPI_REQUEST_NULL) continue;
      pieces_[kept] = pieces_[n];
      requests_[kept++] = requests_[n];
    }
    pieces_.resize(kept);
    requests_.resize(kept);
  }

 private:
  struct Piece {
    std::uint64_t ticket;
    Index peer;
  };
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

  template <class Bytes, class Start>
  void for_each_piece(std::span<Bytes> message, std::uint64_t ticket, Index peer, const Start& start) {
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(kPieceBytes, message.size() - first);
      MPI_Request request = MPI_REQUEST_NULL;
      const int result = start(message.data() + first, static_cast<int>(count), &request);
      if (result != MPI_SUCCESS) fail(peer, result);
      requests_.push_back(request);
      pieces_.push_back({ticket, peer});
      ++num_pieces_[ticket];
      first += count;
    } while (first < message.size());
  }

  [[noreturn]] static void fail(Index rank, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int size = 0;
    MPI_Error_string(error, text, &size);
    throw RankError(rank, "MPI: " + std::string(text, static_cast<std::size_t>(size)));
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int num_ranks_ = 1;
  bool may_use_thread_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;                  // one per request
  std::map<std::uint64_t, Index> num_pieces_;  // pieces of each message that are in flight
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

/// Returns the ranks of a communicator. This is a collective call.
///
/// The communicator is duplicated. With MPI_THREAD_MULTIPLE, a communication thread progresses messages while the ranks
/// compute; otherwise they progress only while a call waits for them.
///
/// @param communicator  An intracommunicator, such as MPI_COMM_WORLD.
/// @param options       Timeout after which an unresponsive rank is considered to have failed.
/// @return The ranks. They must be destroyed before MPI_Finalize(), on all ranks.
/// @throws InvalidArgument  if MPI is not initialized, or if the timeout is not above 0.
inline Ranks mpi_ranks(MPI_Comm communicator, const RanksOptions& options = {}) {
  return Ranks(std::make_unique<MpiTransport>(communicator), options);
}

}  // namespace regard::inline v0
