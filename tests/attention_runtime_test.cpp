// SPDX-License-Identifier: Apache-2.0
//
// How a call of attention ends early: cancellation, an executor that throws, running out of memory. The inputs are
// unchanged, every byte of the workspace is returned, and the next call works.
// Read next: parallel_test.cpp.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>

#include "kernels/table.h"
#include "regard/linear.h"
#include "support/attention_checks.h"
#include "support/backward_cases.h"
#include "support/counting_memory.h"

namespace regard::attention_runtime_test {
namespace {

AttentionInputs<float> inputs_of_some_size() { return AttentionInputs<float>::normal(1, 2, 4, 2, 200, 1100, 16, 16); }

TEST(AttentionRuntime, StopRequestedBeforeTheCallCancels) {
  const auto inputs = inputs_of_some_size();
  const auto before = all_bits(run_attention(inputs));
  std::stop_source source;
  source.request_stop();
  for (const int threads : {1, 2}) {
    CountingMemory memory;
    EXPECT_THROW(
        run_attention(inputs, {}, Runtime{.num_threads = threads, .workspace = &memory, .stop = source.get_token()}),
        Cancelled);
    EXPECT_EQ(memory.in_use, 0u);
  }
  EXPECT_EQ(all_bits(run_attention(inputs)), before);
}

TEST(AttentionRuntime, StopRequestedDuringTheCallCancels) {
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
      Cancelled);
  EXPECT_GT(tasks, 0);
  EXPECT_EQ(memory.in_use, 0u);
  EXPECT_EQ(bits_of(inputs.query), bits_of(copies.query));
  EXPECT_EQ(bits_of(inputs.key), bits_of(copies.key));
  EXPECT_EQ(bits_of(inputs.value), bits_of(copies.value));
}

// The active kernels, except that the long-running ones request a stop at their second call. That there is no third
// call is the basis of "polled at least every 20 ms": at 5 GFLOP/s, a block of 60 rows and 64 keys takes 20 ms from D +
// Dv = 13,000 on, and a tile of linear_forward (60 rows, 32 columns) from a depth of 26,000 on.
struct StoppingKernels {
  static inline std::stop_source source;
  static inline int calls;
  static inline const kernels::KernelTable* real;
  static void called() {
    if (++calls == 2) source.request_stop();
  }
  static void attention_block(const kernels::AttentionBlock<float>& block) {
    called();
    real->f32.attention_block(block);
  }
  static void score_block(const kernels::ScoreBlock<float>& block) {
    called();
    real->f32.score_block(block);
  }
  static void linear_tile(Index rows, Index columns, Index depth, const float* a, const float* b, const float* bias,
                          kernels::Activation activation, float* output, Index stride, const float* next_panel) {
    called();
    real->f32.linear_tile(rows, columns, depth, a, b, bias, activation, output, stride, next_panel);
  }

  // The number of calls of those kernels until `call` was cancelled.
  static int until_cancelled(const std::function<void(const Runtime&)>& call) {
    source = {};
    calls = 0;
    real = &kernels::active();
    kernels::KernelTable table = *real;
    table.f32.attention_block = attention_block;
    table.f32.score_block = score_block;
    table.f32.linear_tile = linear_tile;
    kernels::set_active(&table);
    EXPECT_THROW(call(Runtime{.num_threads = 1, .stop = source.get_token()}), Cancelled);
    kernels::set_active(nullptr);
    return calls;
  }
};

TEST(AttentionRuntime, StopIsPolledPerKeyBlockAndColumnPanel) {
  const auto inputs = AttentionInputs<float>::normal(3, 1, 1, 1, 60, 1100, 16, 16);
  auto outputs = AttentionArrays<float>::dense(1, 1, 60, 1100, 16, true);
  EXPECT_EQ(StoppingKernels::until_cancelled([&](const Runtime& runtime) {
              attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), outputs.views(), {},
                                runtime);
            }),
            2);
  EXPECT_EQ(StoppingKernels::until_cancelled([&](const Runtime& runtime) {
              attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores},
                                outputs.views().weights, {}, runtime);
            }),
            2);
  const std::vector<float> input(60 * 16, 1), parameters(16 * 500, 1);
  std::vector<float> output(60 * 500);
  EXPECT_EQ(StoppingKernels::until_cancelled([&](const Runtime& runtime) {
              linear_forward<float>({input.data(), {60, 16}}, {parameters.data(), {16, 500}}, {},
                                    TensorView<float, 2>(output.data(), {60, 500}), runtime);
            }),
            2);
}

TEST(AttentionRuntime, ExceptionOfTheExecutorReachesTheCaller) {
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
    EXPECT_EQ(memory.in_use, 0u);
  }
}

TEST(AttentionRuntime, OutOfMemoryThrowsBadAllocAndReleasesEverything) {
  const auto inputs = inputs_of_some_size();
  CountingMemory enough;
  const auto expected = all_bits(run_attention(inputs, {}, Runtime{.num_threads = 2, .workspace = &enough}));
  EXPECT_GT(enough.calls, 0);
  EXPECT_EQ(enough.in_use, 0u);
  for (int failing = 0; failing < enough.calls; ++failing) {
    CountingMemory memory;
    memory.failing_call = failing;
    EXPECT_THROW(run_attention(inputs, {}, Runtime{.num_threads = 2, .workspace = &memory}), std::bad_alloc);
    EXPECT_EQ(memory.in_use, 0u);
  }
  EXPECT_EQ(all_bits(run_attention(inputs)), expected);
}

TEST(AttentionRuntime, ProgressCountsEveryRowOnce) {
  const auto inputs = inputs_of_some_size();
  const Index rows = 2 * 4 * 200;
  for (const bool weights : {false, true}) {
    std::mutex mutex;
    std::vector<Index> counts;
    const Runtime runtime{.num_threads = 2, .progress = [&](Index done, Index total) {
                            const std::lock_guard lock(mutex);
                            EXPECT_EQ(total, weights ? 2 * rows : rows);
                            counts.push_back(done);
                          }};
    auto outputs = AttentionArrays<float>::dense(2, 4, 200, 1100, 16, weights);
    attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), outputs.views(), {}, runtime);
    std::sort(counts.begin(), counts.end());
    EXPECT_EQ(std::adjacent_find(counts.begin(), counts.end()), counts.end());
    EXPECT_GE(counts.size(), 2u * 4 * 4);
    ASSERT_FALSE(counts.empty());
    EXPECT_EQ(counts.back(), weights ? 2 * rows : rows);
  }
}

TEST(AttentionRuntime, ExceptionOfProgressReachesTheCaller) {
  struct Enough {};
  const auto inputs = inputs_of_some_size();
  const Runtime runtime{.num_threads = 2, .progress = [](Index, Index) { throw Enough(); }};
  EXPECT_THROW(run_attention(inputs, {}, runtime), Enough);
}

// Two query heads per KV head, whose last row blocks end within a register tile; more threads than key blocks.
BackwardCase<float> few_key_blocks(const AttentionOptions& options = {}) {
  Random random(5);
  AttentionCase<float> call;
  call.query = normal_array<float, 4>(random, {1, 2, 183, 8});
  call.key = normal_array<float, 4>(random, {1, 1, 700, 8});
  call.value = normal_array<float, 4>(random, {1, 1, 700, 8});
  call.options = options;
  return BackwardCase<float>(std::move(call));
}

TEST(AttentionRuntime, BackwardOnManyThreadsAddsInOrder) {
  const auto bottom_right = QueryAlignment::bottom_right;
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = true, .query_offset = bottom_right},
        AttentionOptions{.causal = true, .query_offset = bottom_right, .window = {.left = 100}}}) {
    const BackwardCase<float> test = few_key_blocks(options);
    GradientArrays<float> one = outputs_of(test.call);
    test.run(one, {.num_threads = 1});
    for (const int threads : {2, 4, 8, 16}) {
      GradientArrays<float> many = outputs_of(test.call);
      test.run(many, {.num_threads = threads});
      EXPECT_TRUE(same_bits(all_bits(many), all_bits(one))) << threads;
    }
  }
}

// The active kernels, of which the one of backward notices when two threads add to the same rows at once, including the
// rows of its last register tile.
struct WatchingKernels {
  static inline std::mutex mutex;
  static inline std::vector<std::pair<const float*, const float*>> in_use;
  static inline int overlaps;
  static inline const kernels::KernelTable* real;
  static void backward_block(const kernels::BackwardBlock<float>& block) {
    const Index group = real->f32.row_group, rows = (block.num_rows + group - 1) / group * group;
    const std::pair<const float*, const float*> own{block.sum_query, block.sum_query + rows * block.padded_depth};
    {
      const std::lock_guard lock(mutex);
      for (const auto& other : in_use) overlaps += own.first < other.second && other.first < own.second;
      in_use.push_back(own);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    real->f32.backward_block(block);
    const std::lock_guard lock(mutex);
    in_use.erase(std::find(in_use.begin(), in_use.end(), own));
  }
};

TEST(AttentionRuntime, BackwardNeverAddsToTheSameRowsAtOnce) {
  const BackwardCase<float> test = few_key_blocks();
  GradientArrays<float> gradients = outputs_of(test.call);
  WatchingKernels::overlaps = 0;
  WatchingKernels::real = &kernels::active();
  kernels::KernelTable table = *WatchingKernels::real;
  table.f32.backward_block = WatchingKernels::backward_block;
  const ActiveTable active(table);
  test.run(gradients, {.num_threads = 8});
  EXPECT_EQ(WatchingKernels::overlaps, 0);
}

// The active kernels, of which the one of backward throws at its tenth call, when other threads wait for its sums.
struct FailingKernels {
  struct Failed {};
  static inline std::atomic<int> calls;
  static inline const kernels::KernelTable* real;
  static void backward_block(const kernels::BackwardBlock<float>& block) {
    if (++calls == 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      throw Failed();
    }
    real->f32.backward_block(block);
  }
};

TEST(AttentionRuntime, ThreadsDoNotWaitForOneThatHasFailed) {
  const BackwardCase<float> test = few_key_blocks();
  GradientArrays<float> gradients = outputs_of(test.call);
  FailingKernels::calls = 0;
  FailingKernels::real = &kernels::active();
  kernels::KernelTable table = *FailingKernels::real;
  table.f32.backward_block = FailingKernels::backward_block;
  CountingMemory memory;
  {
    const ActiveTable active(table);
    EXPECT_THROW(test.run(gradients, {.num_threads = 8, .workspace = &memory}), FailingKernels::Failed);
  }
  EXPECT_EQ(memory.in_use, 0u);
}

TEST(AttentionRuntime, ManyThreadsForLittleWork) {
  const auto inputs = AttentionInputs<float>::normal(2, 1, 1, 1);
  EXPECT_EQ(all_bits(run_attention(inputs, {}, Runtime{.num_threads = 10'000})), all_bits(run_attention(inputs)));
}

}  // namespace
}  // namespace regard::attention_runtime_test
