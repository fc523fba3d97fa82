// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process, as a GradientChain: messages are copied from the sender's bytes when they are
// received, so that bytes that change too early are noticed. Announced bytes are overwritten at once.
// Read next: gradient_chain_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "regard/train/gradient_chain.h"

namespace regard {

class ThreadRing {
 public:
  explicit ThreadRing(Index num_ranks) : links_(static_cast<std::size_t>(num_ranks)) {}

  // The end of one rank.
  class Chain final : public GradientChain {
   public:
    Chain(ThreadRing& ring, Index rank) : ring_(ring), rank_(rank) {}
    Index rank() const override { return rank_; }
    Index num_ranks() const override { return ring_.num_ranks(); }
    void expect(std::span<std::byte> bytes) override {
      ring_.wait_for_leaving(rank_, bytes);
      std::ranges::fill(bytes, std::byte{0xff});
      expected_.push_back(bytes);
    }
    void receive(std::span<std::byte> bytes) override {
      if (!expected_.empty()) {
        EXPECT_EQ(expected_.front().data(), bytes.data());
        EXPECT_EQ(expected_.front().size(), bytes.size());
        expected_.pop_front();
      }
      ring_.receive((rank_ + num_ranks() - 1) % num_ranks(), bytes);
    }
    void send(std::span<const std::byte> bytes) override { ring_.send(rank_, bytes); }
    void finish() override { ring_.finish(rank_); }
    void abandon() noexcept override { ring_.abandon(rank_); }
    Index largest(Index value) override { return ring_.largest(value); }

   private:
    ThreadRing& ring_;
    Index rank_;
    std::deque<std::span<std::byte>> expected_;
  };

  Index num_ranks() const { return static_cast<Index>(links_.size()); }
  // Of all ranks.
  std::size_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Message {
    std::span<const std::byte> bytes;
    std::size_t digest;
  };
  static std::size_t digest(std::span<const std::byte> bytes) {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  std::deque<Message>& link(Index from) { return links_[static_cast<std::size_t>(from)]; }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    changed_.wait(lock, [&] { return failed_ || condition(); });
    if (!condition()) throw std::runtime_error("another rank failed");
  }

  void receive(Index from, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return !link(from).empty(); });
    const Message message = link(from).front();
    if (message.bytes.size() != bytes.size()) throw std::logic_error("a message of another size was sent");
    EXPECT_EQ(digest(message.bytes), message.digest) << "bytes changed after send()";
    std::memcpy(bytes.data(), message.bytes.data(), bytes.size());
    link(from).pop_front();
    changed_.notify_all();
  }
  void send(Index from, std::span<const std::byte> bytes) {
    const std::scoped_lock lock(mutex_);
    EXPECT_GE(bytes.size(), 1U);
    link(from).push_back({bytes, digest(bytes)});
    bytes_sent_ += bytes.size();
    changed_.notify_all();
  }
  void finish(Index from) {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return link(from).empty(); });
  }
  void wait_for_leaving(Index from, std::span<const std::byte> bytes) {
    const auto overlaps = [bytes](const Message& message) {
      return message.bytes.data() < bytes.data() + bytes.size() &&
             bytes.data() < message.bytes.data() + message.bytes.size();
    };
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return std::ranges::none_of(link(from), overlaps); });
  }
  void abandon(Index from) noexcept {
    const std::scoped_lock lock(mutex_);
    failed_ = true;
    link(from).clear();
    changed_.notify_all();
  }
  Index largest(Index value) {
    std::unique_lock lock(mutex_);
    largest_ = num_agreeing_ == 0 ? value : std::max(largest_, value);
    const Index round = round_;
    if (++num_agreeing_ == num_ranks()) {
      agreed_ = largest_;
      num_agreeing_ = 0;
      ++round_;
      changed_.notify_all();
    }
    wait(lock, [&] { return round_ != round; });
    return agreed_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Message>> links_;  // from each rank to the next
  Index num_agreeing_ = 0, largest_ = 0, agreed_ = 0, round_ = 0;
  std::size_t bytes_sent_ = 0;
  bool failed_ = false;
};

// Calls work(chain) on a thread for each rank, and returns what each threw.
template <class Work>
std::vector<std::exception_ptr> on_each_rank(ThreadRing& ring, const Work& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ring.num_ranks()));
  std::vector<std::thread> threads;
  for (Index rank = 0; rank < ring.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRing::Chain chain(ring, rank);
      try {
        work(chain);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// As above; nothing may be thrown.
template <class Work>
void on_ranks(ThreadRing& ring, const Work& work) {
  for (const std::exception_ptr& error : on_each_rank(ring, work)) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace regard
