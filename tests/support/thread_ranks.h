// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process, with queues in memory as their network.
//
//   on_ranks(4, [&](Ranks& ranks) { … });      what each rank runs; exceptions are returned by rank
//
// Read next: distributed_attention_test.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "regard/distributed/ranks.h"

namespace regard {

// Messages that have been sent and not received, and what has gone over each pair of ranks.
class ThreadNetwork {
 public:
  explicit ThreadNetwork(Index num_ranks) : num_ranks_(num_ranks) {}
  Index num_ranks() const { return num_ranks_; }

  // Receiving a message with data throws if the sender has changed it meanwhile. All memory must outlive the ranks.
  void expect_unchanged() { expects_unchanged_ = true; }

  // The result is true when the message has been received: until then, a message with data needs its memory.
  std::shared_ptr<const std::atomic<bool>> send(Index from, Index to, int tag, std::span<const std::byte> message) {
    const std::lock_guard lock(mutex_);
    if (tag == 0 && num_sent_[from]++ == cut_at_[static_cast<std::size_t>(from)]) cut_[from] = true;
    const bool is_lost = cut_[from] || cut_[to];
    const auto received = std::make_shared<std::atomic<bool>>(is_lost || tag != 0);
    if (is_lost) return received;
    queues_[{from, to, tag}].push_back({{message.begin(), message.end()}, message, received});
    if (tag == 0) bytes_[{from, to}] += static_cast<Index>(message.size());
    return received;
  }
  bool receive(Index from, Index to, int tag, std::span<std::byte> message) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[{from, to, tag}];
    if (queue.empty() || held_ == std::tuple(from, to, tag)) return false;
    const Message& front = queue.front();
    if (front.bytes.size() != message.size()) throw std::logic_error("a message has another size than expected");
    if (expects_unchanged_ && tag == 0 && !std::equal(front.memory.begin(), front.memory.end(), front.bytes.begin()))
      throw std::logic_error("a message was changed before it was received");
    if (!message.empty()) std::memcpy(message.data(), front.bytes.data(), message.size());
    *front.received = true;
    queue.pop_front();
    return true;
  }
  // Messages on this way with this tag stay under way.
  void hold(Index from, Index to, int tag) {
    const std::lock_guard lock(mutex_);
    held_ = {from, to, tag};
  }
  // No message of the rank arrives from here on, nor does it get one.
  void cut(Index rank) {
    const std::lock_guard lock(mutex_);
    cut_[rank] = true;
  }
  // The same, when the rank sends its message of data with this number.
  void cut_at(Index rank, Index message) {
    const std::lock_guard lock(mutex_);
    cut_at_[static_cast<std::size_t>(rank)] = message;
  }
  // Messages of data that a rank has sent.
  Index sent(Index rank) {
    const std::lock_guard lock(mutex_);
    return num_sent_[rank];
  }
  // Bytes of data that a rank has received.
  Index received(Index rank) {
    const std::lock_guard lock(mutex_);
    Index sum = 0;
    for (const auto& [pair, bytes] : bytes_) sum += pair.second == rank ? bytes : 0;
    return sum;
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, queue] : queues_) {
      if (std::get<2>(key) == 0 && !queue.empty()) return false;
    }
    return true;
  }

 private:
  struct Message {
    std::vector<std::byte> bytes;
    std::span<const std::byte> memory;
    std::shared_ptr<std::atomic<bool>> received;
  };

  Index num_ranks_;
  bool expects_unchanged_ = false;
  std::mutex mutex_;
  std::map<std::tuple<Index, Index, int>, std::deque<Message>> queues_;
  std::map<std::pair<Index, Index>, Index> bytes_;
  std::map<Index, bool> cut_;
  std::map<Index, Index> num_sent_;
  std::vector<Index> cut_at_ = std::vector<Index>(static_cast<std::size_t>(num_ranks_), -1);
  std::optional<std::tuple<Index, Index, int>> held_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(ThreadNetwork& network, Index rank, bool may_use_thread = true)
      : network_(network), rank_(rank), may_use_thread_(may_use_thread) {}
  Index rank() const override { return rank_; }
  Index num_ranks() const override { return network_.num_ranks(); }
  bool may_use_thread() const override { return may_use_thread_; }
  void start_send(Index to, int tag, std::span<const std::byte> message, std::uint64_t ticket) override {
    sends_.push_back({network_.send(rank_, to, tag, message), ticket});
  }
  void start_receive(Index from, int tag, std::span<std::byte> message, std::uint64_t ticket) override {
    receives_[{from, tag}].push_back({message, ticket});
  }
  void completed(std::vector<std::uint64_t>& tickets) override {
    std::erase_if(sends_, [&](const Send& send) {
      const bool is_received = *send.received;
      if (is_received) tickets.push_back(send.ticket);
      return is_received;
    });
    for (auto& [key, queue] : receives_) {
      while (!queue.empty() && network_.receive(key.first, rank_, key.second, queue.front().message)) {
        tickets.push_back(queue.front().ticket);
        queue.pop_front();
      }
    }
  }

 private:
  struct Send {
    std::shared_ptr<const std::atomic<bool>> received;
    std::uint64_t ticket;
  };
  struct Receive {
    std::span<std::byte> message;
    std::uint64_t ticket;
  };
  ThreadNetwork& network_;
  Index rank_;
  bool may_use_thread_;
  std::vector<Send> sends_;
  std::map<std::pair<Index, int>, std::deque<Receive>> receives_;
};

// Runs a function on every rank. The result has what each threw; null: nothing.
inline std::vector<std::exception_ptr> on_ranks(ThreadNetwork& network, const std::function<void(Ranks&)>& run,
                                                const RanksOptions& options = {}, bool may_use_thread = true) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(network.num_ranks()));
  std::vector<std::thread> threads;
  for (Index r = 0; r < network.num_ranks(); ++r) {
    threads.emplace_back([&, r] {
      try {
        Ranks ranks(std::make_unique<ThreadTransport>(network, r, may_use_thread), options);
        run(ranks);
      } catch (...) {
        thrown[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

// The text of an exception; empty: none.
inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace regard
