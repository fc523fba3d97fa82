// SPDX-License-Identifier: Apache-2.0
//
// How a call of attention ends early: cancelled, an executor that throws, memory that runs out. The inputs stay as they
// are, every byte of the workspace comes back, and the next call works. Read next: parallel_test.cpp.
#include <memory_resource>
#include <new>

#include "attention_checks.h"

namespace regard {
namespace {

AttentionInputs<float> inputs_of_some_size() { return AttentionInputs<float>::normal(1, 2, 4, 2, 200, 1100, 16, 16); }

// Counts what is taken and not given back; throws at the failing_call-th allocation.
class CountingMemory : public std::pmr::memory_resource {
 public:
  explicit CountingMemory(int failing_call = -1) : failing_call_(failing_call) {}
  std::size_t outstanding() const { return outstanding_; }
  int calls() const { return calls_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (calls_++ == failing_call_) throw std::bad_alloc();
    outstanding_ += bytes;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    outstanding_ -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  int failing_call_;
  int calls_ = 0;
  std::size_t outstanding_ = 0;
};

TEST(AttentionRuntime, AStopThatWasRequestedIsCancelled) {
  const auto inputs = inputs_of_some_size();
  const auto before = all_bits(run_attention(inputs));
  std::stop_source source;
  source.request_stop();
  for (const int threads : {1, 2}) {
    CountingMemory memory;
    EXPECT_THROW(
        run_attention(inputs, {}, Runtime{.num_threads = threads, .workspace = &memory, .stop = source.get_token()}),
        cancelled);
    EXPECT_EQ(memory.outstanding(), 0u);
  }
  EXPECT_EQ(all_bits(run_attention(inputs)), before);
}

TEST(AttentionRuntime, AStopInTheMiddleIsCancelled) {
  const auto inputs = inputs_of_some_size();
  const auto copies = inputs_of_some_size();
  std::stop_source source;
  CountingMemory memory;
  Index tasks = 0;
  const Executor stops_after_one = [&](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) {
      task(i);
      ++tasks;
      source.request_stop();
    }
  };
  EXPECT_THROW(
      run_attention(
          inputs, {},
          Runtime{.executor = stops_after_one, .num_threads = 2, .workspace = &memory, .stop = source.get_token()}),
      cancelled);
  EXPECT_GT(tasks, 0);
  EXPECT_EQ(memory.outstanding(), 0u);
  EXPECT_EQ(bits_of(inputs.query), bits_of(copies.query));
  EXPECT_EQ(bits_of(inputs.key), bits_of(copies.key));
  EXPECT_EQ(bits_of(inputs.value), bits_of(copies.value));
}

TEST(AttentionRuntime, WhatAnExecutorThrowsReachesTheCaller) {
  struct Broken {};
  const auto inputs = inputs_of_some_size();
  CountingMemory memory;
  const Executor throws_at_once = [](Index, const Task&) { throw Broken(); };
  const Executor throws_at_the_end = [](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) task(i);
    throw Broken();
  };
  for (const Executor& executor : {throws_at_once, throws_at_the_end}) {
    EXPECT_THROW(run_attention(inputs, {}, Runtime{.executor = executor, .num_threads = 2, .workspace = &memory}),
                 Broken);
    EXPECT_EQ(memory.outstanding(), 0u);
  }
}

TEST(AttentionRuntime, MemoryThatRunsOutIsBadAllocAndLeavesNothingBehind) {
  const auto inputs = inputs_of_some_size();
  CountingMemory enough;
  const auto expected = all_bits(run_attention(inputs, {}, Runtime{.num_threads = 2, .workspace = &enough}));
  EXPECT_GT(enough.calls(), 0);
  EXPECT_EQ(enough.outstanding(), 0u);
  for (int failing = 0; failing < enough.calls(); ++failing) {
    CountingMemory memory(failing);
    EXPECT_THROW(run_attention(inputs, {}, Runtime{.num_threads = 2, .workspace = &memory}), std::bad_alloc);
    EXPECT_EQ(memory.outstanding(), 0u);
  }
  EXPECT_EQ(all_bits(run_attention(inputs)), expected);
}

TEST(AttentionRuntime, ManyThreadsForALittleWork) {
  const auto inputs = AttentionInputs<float>::normal(2, 1, 1, 1);
  EXPECT_EQ(all_bits(run_attention(inputs, {}, Runtime{.num_threads = 10'000})), all_bits(run_attention(inputs)));
}

}  // namespace
}  // namespace regard
