// SPDX-License-Identifier: Apache-2.0
//
// Messages of one rank: which are in flight, and whether all ranks are alive.
//
//   caller's thread         send, receive ──▶ requests ──▶ pump ──▶ transport
//                           wait          ◀── done     ◀──
//   communication thread    pumps until the object is destroyed; without one, wait() pumps
//
//   pump      start requests; collect what has been completed; send a heartbeat; look for silent ranks
//   control   messages with tag 1: alive, failed (with the sentence that all ranks then throw), missed (the same, by a
//             rank that has left and waits for the others), leaving, gone
//
// After a failure, nothing that the transport may still touch is freed. Read next: messages.cpp.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "regard/distributed/ranks.h"

namespace regard::inline v0::internal {

class Messages {
 public:
  Messages(std::unique_ptr<Transport> transport, const RanksOptions& options);
  ~Messages();

  Index rank() const { return rank_; }
  Index num_ranks() const { return num_ranks_; }

  using Ticket = std::uint64_t;
  // The bytes must stay valid until the message has been waited for, or the call has failed. `keep` is freed then.
  Ticket send(Index to, std::span<const std::byte> bytes, std::shared_ptr<const void> keep = {});
  Ticket receive(Index from, std::span<std::byte> bytes, std::shared_ptr<const void> keep = {});
  // Throws RankError if a rank has failed, and Cancelled if a stop is requested, which is a failure of this rank.
  void wait(Ticket ticket, const std::stop_token& stop);
  void wait(std::span<const Ticket> tickets, const std::stop_token& stop);
  // Without a communication thread, starts messages and looks for those that have been completed.
  void progress();
  // Notifies all other ranks, "rank r of N failed: text", unless a rank has failed before.
  void fail(std::string_view text) noexcept;
  // The destructor will not wait for the other ranks: an exception ends this one.
  void leave_at_once() noexcept { at_once_ = true; }
  // Throws the RankError if a rank has failed.
  void throw_if_failed();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Control : std::int32_t { alive, failed, missed, leaving, gone };
  struct ControlMessage {
    Control kind{};
    std::int32_t rank{};      // that failed
    std::int64_t num_sent{};  // when leaving: messages with data that it has sent to the receiver
    char text[496]{};         // why
  };
  static std::size_t text_size(const ControlMessage& message);
  struct Request {
    Ticket ticket;
    bool is_send;
    Index peer;
    std::span<std::byte> bytes;
    std::shared_ptr<const void> keep;
  };
  struct Pending {
    Index peer;
    bool is_control;
    bool is_send;
    std::shared_ptr<const void> keep;
  };
  struct Peer {
    Clock::time_point last_message;
    bool left = false;
    bool gone = false;                     // it has left, and waits for no other rank
    Index num_sent = 0, num_receives = 0;  // messages with data
    Index last_num = 0;                    // with left: those that it has sent
    std::string farewell;
    ControlMessage incoming;
  };
  struct Failure {
    Index rank;
    std::string text;
  };

  Ticket submit(bool is_send, Index peer, std::span<std::byte> bytes, std::shared_ptr<const void> keep);
  void run_thread();
  // The following need the mutex. pump() is one round; it returns whether anything happened.
  bool pump();
  bool exchange();
  void finish(Ticket ticket);
  void take_control(Index peer);
  void receive_control(Index peer);
  void send_control(Index peer, Control kind, Index rank, std::string_view text);
  void look_for_silence();
  // Fails if more messages are expected from a rank than it sent before it left.
  void check_left(Index peer);
  void set_failure(Index rank, std::string text, bool tell);
  bool may_end() const;
  std::string name(Index rank) const;

  std::unique_ptr<Transport> transport_;
  RanksOptions options_;
  Index rank_ = 0;
  Index num_ranks_ = 1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> requests_;
  std::map<Ticket, Pending> pending_;
  std::vector<Peer> peers_;
  std::optional<Failure> failure_;
  Ticket next_ticket_ = 1;
  Index num_data_ = 0;    // requests and messages in flight that are not control messages
  bool waiting_ = false;  // a thread is in wait()
  Clock::time_point wait_began_{};
  Clock::time_point last_alive_{};
  bool at_once_ = false;
  bool stop_thread_ = false;
  std::thread thread_;
};

// Sends the numbers of one rank to all others.
void broadcast(Messages& messages, std::vector<double>& numbers, Index from, const std::stop_token& stop);
// In each round, the ranks that have rows call add(round) one after the other, each with the sums of the one before it.
// All ranks receive the result.
void sum_in_row_order(Messages& messages, const std::vector<Index>& row_starts, Index rounds, std::vector<double>& sums,
                      const std::function<void(Index)>& add, const std::stop_token& stop);

}  // namespace regard::inline v0::internal
