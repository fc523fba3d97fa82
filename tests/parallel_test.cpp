// SPDX-License-Identifier: Apache-2.0
//
// The loop over items and its thread pool: every item once, whichever thread computes it; exceptions, nesting,
// concurrent callers, foreign executors, cancellation, fork, exit, and the floating-point state in workers.
#include "runtime/parallel.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "regard/parallel.h"
#include "runtime/machine.h"
#include "support/floating_point_state.h"
#include "support/rejection.h"

namespace regard::parallel_test {
namespace {

using internal::for_each_item;
using internal::num_workers;

Runtime with_threads(int num_threads) {
  Runtime runtime;
  runtime.num_threads = num_threads;
  return runtime;
}

// Returns true if every item was processed once and every worker was in range and never active twice at the same time.
bool each_item_once(const Runtime& runtime, int workers, Index num_items) {
  std::vector<std::atomic<int>> times(static_cast<std::size_t>(num_items));
  std::vector<std::atomic<bool>> busy(static_cast<std::size_t>(workers));
  std::atomic<bool> good = true;
  for_each_item(runtime, workers, num_items, [&](Index item, int worker) {
    if (worker < 0 || worker >= workers || item < 0 || item >= num_items) {
      good = false;
      return;
    }
    if (busy[static_cast<std::size_t>(worker)].exchange(true)) good = false;
    ++times[static_cast<std::size_t>(item)];
    busy[static_cast<std::size_t>(worker)] = false;
  });
  return good && std::all_of(times.begin(), times.end(), [](const std::atomic<int>& n) { return n == 1; });
}

// Runs `child` in a forked process and returns its exit status; −1 if it was killed or took more than 30 s. Such tests
// are named Fork…, and are not run with the thread sanitizer, which does not support forks of multithreaded processes.
template <class Child>
int exit_status_of(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    _exit(child());
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(ForEachItem, ProcessesEveryItemOnce) {
  for (int workers : {1, 2, 3, 7, 16}) {
    for (Index num_items : {0, 1, 2, 15, 1000}) {
      EXPECT_TRUE(each_item_once({}, workers, num_items)) << workers << " workers, " << num_items << " items";
    }
  }
}

TEST(ForEachItem, UsesAsManyThreadsAsWorkers) {
  // Each item waits until all have started, which needs four threads at once.
  std::latch all(4);
  for_each_item({}, 4, 4, [&](Index, int) { all.arrive_and_wait(); });
  EXPECT_TRUE(all.try_wait());
}

TEST(ForEachItem, OneWorkerIsTheCallerInOrder) {
  std::vector<Index> order;
  const std::thread::id caller = std::this_thread::get_id();
  for_each_item({}, 1, 5, [&](Index item, int worker) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(worker, 0);
    order.push_back(item);
  });
  EXPECT_EQ(order, (std::vector<Index>{0, 1, 2, 3, 4}));
}

TEST(Fork, ThreadsStartWithTheFirstLoopThatNeedsThem) {
  EXPECT_EQ(exit_status_of([] {
              if (threads_of_this_process() != 1) return 1;
              if (!each_item_once({}, 1, 100) || threads_of_this_process() != 1) return 2;
              if (!each_item_once({}, 3, 100) || threads_of_this_process() != 3) return 3;
              if (!each_item_once({}, 2, 100) || threads_of_this_process() != 3) return 4;
              return 0;
            }),
            0);
}

TEST(ForEachItem, HelpersBlockTheApplicationsSignals) {
  std::latch both(2);
  std::array<int, 2> user_signal{}, fault{};
  for_each_item({}, 2, 2, [&](Index, int worker) {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    user_signal[static_cast<std::size_t>(worker)] = sigismember(&blocked, SIGUSR1);
    fault[static_cast<std::size_t>(worker)] = sigismember(&blocked, SIGSEGV);
    both.arrive_and_wait();
  });
  EXPECT_EQ(user_signal, (std::array<int, 2>{0, 1}));
  EXPECT_EQ(fault, (std::array<int, 2>{0, 0}));
}

// The processors of the only helper, recorded after it slept before the loop, while the caller stays on one.
std::vector<int> processors_of_helper(int callers, const std::vector<int>& wanted) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(callers, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
  std::vector<int> found;
  for (int attempt = 0; attempt < 1000 && found != wanted; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::latch both(2);
    for_each_item({}, 2, 2, [&](Index, int worker) {
      if (worker == 1) found = internal::affinity_cpus();
      both.arrive_and_wait();
    });
  }
  return found;
}

TEST(ForEachItem, KeepsASleepingHelperOffTheProcessorOfTheCaller) {
  EXPECT_EQ(exit_status_of([] {
              const std::vector<int> all = internal::affinity_cpus();
              std::latch both(2);
              for_each_item({}, 2, 2, [&](Index, int) { both.arrive_and_wait(); });
              for (int cpu : {all.front(), all.back()}) {
                std::vector<int> others = all;
                if (all.size() > 1) std::erase(others, cpu);
                if (processors_of_helper(cpu, others) != others) return 1;
              }
              return 0;
            }),
            0);
}

TEST(ForEachItem, RethrowsAnExceptionOnceAllWorkersHaveStopped) {
  for (int workers : {1, 2, 5}) {
    std::atomic<int> inside = 0, started = 0;
    try {
      for_each_item({}, workers, 1'000'000, [&](Index item, int) {
        ++inside;
        ++started;
        if (item == 10) {
          --inside;
          throw std::out_of_range("item 10");
        }
        std::this_thread::yield();
        --inside;
      });
      ADD_FAILURE() << "no exception";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "item 10");
    }
    EXPECT_EQ(inside, 0);
    EXPECT_LT(started, 1'000'000);
    EXPECT_TRUE(each_item_once({}, workers, 50));
  }
}

TEST(ForEachItem, RethrowsOneOfManyExceptions) {
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(for_each_item({}, 4, 100, [](Index, int) { throw std::bad_alloc(); }), std::bad_alloc);
  }
}

TEST(ForEachItem, Nests) {
  std::atomic<Index> sum = 0;
  for_each_item({}, 3, 5, [&](Index a, int) {
    for_each_item({}, 3, 5,
                  [&](Index b, int) { for_each_item({}, 3, 5, [&](Index c, int) { sum += 25 * a + 5 * b + c; }); });
  });
  EXPECT_EQ(sum, 124 * 125 / 2);
}

TEST(ForEachItem, ConcurrentCallersProcessAllTheirItems) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&wrong, caller] {
      for (int round = 0; round < 100; ++round) {
        if (!each_item_once({}, 2 + caller % 3, 20 + caller)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ForEachItem, CallersDoNotWaitForEachOther) {
  std::latch first_is_stuck(3), second_is_done(1);
  std::thread first([&] {
    for_each_item({}, 3, 3, [&](Index, int) {
      first_is_stuck.count_down();
      second_is_done.wait();
    });
  });
  first_is_stuck.wait();  // the caller and both threads of the pool
  EXPECT_TRUE(each_item_once({}, 3, 100));
  second_is_done.count_down();
  first.join();
}

TEST(Executor, GetsOneTaskPerWorker) {
  for (int workers : {2, 5}) {
    Index asked = 0;
    Runtime runtime;
    runtime.executor = [&](Index n, const Task& task) {
      asked = n;
      for (Index i = 0; i < n; ++i) task(i);
    };
    EXPECT_TRUE(each_item_once(runtime, workers, 30));
    EXPECT_EQ(asked, workers);
  }
}

TEST(Executor, MayRunTasksInAnyOrderOnAnyThreads) {
  Runtime reversed, threads, nested;
  reversed.executor = [](Index n, const Task& task) {
    while (n > 0) task(--n);
  };
  threads.executor = [](Index n, const Task& task) {
    std::vector<std::thread> all;
    for (Index i = 0; i < n; ++i) all.emplace_back(task, i);
    for (std::thread& thread : all) thread.join();
  };
  nested.executor = [&threads](Index n, const Task& task) {
    for_each_item(threads, 2, n, [&task](Index i, int) { task(i); });
  };
  for (const Runtime* runtime : {&reversed, &threads, &nested}) {
    for (Index num_items : {2, 7, 500}) EXPECT_TRUE(each_item_once(*runtime, 4, num_items));
    EXPECT_THROW(for_each_item(*runtime, 4, 9, [](Index, int) { throw std::length_error("body"); }), std::length_error);
  }
}

TEST(Executor, CallerProcessesTheRestIfTooFewTasksRun) {
  Runtime none, one, twice;
  none.executor = [](Index, const Task&) {};
  one.executor = [](Index, const Task& task) { task(0); };
  twice.executor = [](Index n, const Task& task) {
    for (Index i = 0; i < 2 * n; ++i) task(i / 2);
  };
  for (const Runtime* runtime : {&none, &one, &twice}) EXPECT_TRUE(each_item_once(*runtime, 3, 40));
}

TEST(Executor, ExceptionReachesTheCallerAndLateTasksDoNothing) {
  std::vector<Task> kept;
  Runtime runtime;
  runtime.executor = [&](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) kept.push_back(task);
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "queue is full");
  };
  std::atomic<int> calls = 0;
  EXPECT_THROW(for_each_item(runtime, 3, 40, [&](Index, int) { ++calls; }), std::system_error);
  for (const Task& task : kept) task(0);
  EXPECT_EQ(calls, 0);
}

TEST(Executor, CallerWaitsIfTheExecutorReturnsEarly) {
  std::vector<std::thread> threads;
  Runtime runtime;
  runtime.executor = [&](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) threads.emplace_back(task, i);
  };
  for (int round = 0; round < 50; ++round) EXPECT_TRUE(each_item_once(runtime, 4, 100));
  for (std::thread& thread : threads) thread.join();
}

TEST(Stop, IsCheckedBeforeTheFirstItem) {
  std::stop_source source;
  Runtime runtime;
  runtime.stop = source.get_token();
  EXPECT_TRUE(each_item_once(runtime, 2, 10));
  source.request_stop();
  for (int workers : {1, 3}) {
    std::atomic<int> calls = 0;
    EXPECT_THROW(for_each_item(runtime, workers, 10, [&](Index, int) { ++calls; }), Cancelled);
    EXPECT_EQ(calls, 0);
  }
  EXPECT_THROW(throw_if_stopped(runtime.stop), Cancelled);
  EXPECT_NO_THROW(throw_if_stopped({}));
}

TEST(Stop, IsPolledBetweenItems) {
  Runtime inline_executor;
  inline_executor.executor = [](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) task(i);
  };
  for (Runtime runtime : {Runtime{}, inline_executor}) {
    for (int workers : {1, 4}) {
      std::stop_source source;
      runtime.stop = source.get_token();
      std::atomic<int> calls = 0;
      EXPECT_THROW(for_each_item(runtime, workers, 1'000'000,
                                 [&](Index, int) {
                                   if (++calls == 5) source.request_stop();
                                 }),
                   Cancelled);
      EXPECT_LT(calls, 1'000'000);
    }
  }
}

class NumWorkers : public testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("REGARD_THREADS");
    if (text != nullptr) before_ = text;
  }
  void TearDown() override {
    before_.empty() ? unsetenv("REGARD_THREADS") : setenv("REGARD_THREADS", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(NumWorkers, IsTheMinimumOfThreadsAndItems) {
  EXPECT_EQ(num_workers(with_threads(4), 100), 4);
  EXPECT_EQ(num_workers(with_threads(4), 3), 3);
  EXPECT_EQ(num_workers(with_threads(4), 1), 1);
  EXPECT_EQ(num_workers(with_threads(4), 0), 1);
  setenv("REGARD_THREADS", "3", 1);
  EXPECT_EQ(num_workers({}, 100), 3);
  EXPECT_EQ(num_workers(with_threads(5), 100), 5);
}

TEST_F(NumWorkers, TenThousandThreadsAreCapped) {
  const int workers = num_workers(with_threads(10'000), 1'000'000);
  EXPECT_GE(workers, 16);
  EXPECT_LE(workers, std::max(16, 4 * static_cast<int>(sysconf(_SC_NPROCESSORS_CONF))));
  setenv("REGARD_THREADS", "4096", 1);
  EXPECT_EQ(num_workers({}, 1'000'000), workers);
}

TEST_F(NumWorkers, RejectsNegativeNumbersAndAMalformedVariable) {
  for (Index num_items : {0, 1, 100}) {
    EXPECT_EQ(rejection([&] { num_workers(with_threads(-3), num_items); }),
              "Runtime: num_threads is -3; expected 0 (the default number) or more");
    EXPECT_THROW(for_each_item(with_threads(-3), 1, num_items, [](Index, int) {}), std::invalid_argument);
    setenv("REGARD_THREADS", "many", 1);
    EXPECT_THROW(num_workers({}, num_items), std::invalid_argument);
    EXPECT_THROW(for_each_item({}, 1, num_items, [](Index, int) {}), std::invalid_argument);
    EXPECT_NO_THROW(num_workers(with_threads(2), num_items));
    unsetenv("REGARD_THREADS");
  }
}

// In a child process, because the size applies to the whole process: no address space can hold such a stack.
TEST(Fork, LoopContinuesIfThreadsCannotBeStarted) {
  EXPECT_EQ(exit_status_of([] {
              pthread_attr_t attributes;
              pthread_attr_init(&attributes);
              pthread_attr_setstacksize(&attributes, std::size_t{1} << 46);
              if (pthread_setattr_default_np(&attributes) != 0) return 1;
              if (!each_item_once({}, 8, 100)) return 2;
              return threads_of_this_process() == 1 ? 0 : 3;
            }),
            0);
}

TEST(Fork, ChildHasItsOwnPoolWhileTheParentIsBusy) {
  std::atomic<bool> done = false;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&done] {
      while (!done) {
        each_item_once({}, 3, 20);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    EXPECT_EQ(exit_status_of([] {
                for (int i = 0; i < 5; ++i) {
                  if (!each_item_once({}, 3, 100)) return 1;
                }
                // The same for the child of the child.
                return exit_status_of([] { return each_item_once({}, 4, 100) ? 0 : 1; }) == 0 ? 0 : 2;
              }),
              0);
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(each_item_once({}, 4, 100));
}

TEST(Fork, ExitJoinsThePoolEvenDuringACall) {
  EXPECT_EQ(exit_status_of([]() -> int {
              std::atomic<bool> started = false;
              std::thread([&started] {
                for_each_item({}, 3, std::numeric_limits<Index>::max() / 2, [&](Index, int) {
                  started = true;
                  std::this_thread::yield();
                });
              }).detach();
              while (!started) std::this_thread::yield();
              std::exit(9);
            }),
            9);
}

// Destroyed after all objects of the library, when its threads have been joined.
struct CallAfterExit {
  bool armed = false;
  ~CallAfterExit() {
    if (armed) _exit(each_item_once({}, 4, 100) && threads_of_this_process() == 1 ? 11 : 12);
  }
};
__attribute__((init_priority(101))) CallAfterExit call_after_exit;

TEST(Fork, CallsAfterExitRunInTheCaller) {
  EXPECT_EQ(exit_status_of([]() -> int {
              if (!each_item_once({}, 4, 100)) return 1;
              call_after_exit.armed = true;
              std::exit(2);
            }),
            11);
}

TEST(FloatingPointScope, EveryWorkerUsesDefaultsAndTheCallersStateIsRestored) {
  Runtime inline_executor, threads;
  inline_executor.executor = [](Index n, const Task& task) {
    for (Index i = 0; i < n; ++i) task(i);
  };
  threads.executor = [](Index n, const Task& task) {
    std::vector<std::thread> all;  // they inherit the caller's state
    for (Index i = 0; i < n; ++i) all.emplace_back(task, i);
    for (std::thread& thread : all) thread.join();
  };
  const std::uint64_t before = floating_point_state();
  const std::uint64_t unusual =
      (kExceptionsOff & ~kInvalidOn & ~kDivideByZeroOn) | kFlushSubnormals | kRoundUp | kUnderflowFlag;
  const volatile float smallest = 0x1p-149f, five = 5.0f, three = 3.0f, zero = 0.0f;
  for (const Runtime& runtime : {Runtime{}, inline_executor, threads}) {
    for (int workers : {1, 3}) {
      std::array<float, 64> sums{}, quotients{}, invalid{};
      set_floating_point_state(unusual);
      for_each_item(runtime, workers, 64, [&](Index item, int) {
        const auto i = static_cast<std::size_t>(item);
        sums[i] = smallest + smallest;
        quotients[i] = five / three;
        invalid[i] = five / zero + zero / zero;
      });
      const std::uint64_t after = floating_point_state();
      set_floating_point_state(before);
      EXPECT_EQ(after, unusual);
      for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(sums[i], 0x1p-148f);
        EXPECT_EQ(quotients[i], 0x1.aaaaaap+0f);
        EXPECT_TRUE(std::isnan(invalid[i]));
      }
    }
  }
}

TEST(FloatingPointScope, IsRestoredWhenTheBodyThrows) {
  const std::uint64_t before = floating_point_state();
  const std::uint64_t unusual = kExceptionsOff | kFlushSubnormals | kRoundUp | kOverflowFlag;
  set_floating_point_state(unusual);
  bool thrown = false;
  try {
    for_each_item({}, 2, 10, [](Index, int) { throw std::bad_alloc(); });
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  const std::uint64_t after = floating_point_state();
  set_floating_point_state(before);
  EXPECT_TRUE(thrown);
  EXPECT_EQ(after, unusual);
}

TEST(ParallelFor, CallsEveryIndexOnceWithASingleThreadedRuntime) {
  for (const int threads : {0, 1, 2, 5}) {
    std::vector<std::atomic<int>> calls(97);
    Runtime runtime = with_threads(threads);
    std::stop_source source;
    runtime.stop = source.get_token();
    parallel_for(
        97,
        [&](Index i, const Runtime& one) {
          ++calls[static_cast<std::size_t>(i)];
          EXPECT_EQ(one.num_threads, 1);
          EXPECT_TRUE(!one.executor && one.stop == runtime.stop);
        },
        runtime);
    for (const auto& count : calls) EXPECT_EQ(count, 1);
    EXPECT_THROW(parallel_for(
                     9,
                     [](Index i, const Runtime&) {
                       if (i == 4) throw std::runtime_error("four");
                     },
                     runtime),
                 std::runtime_error);
    source.request_stop();
    EXPECT_THROW(parallel_for(1, [](Index, const Runtime&) { ADD_FAILURE(); }, runtime), Cancelled);
  }
  parallel_for(0, [](Index, const Runtime&) { ADD_FAILURE(); });
  EXPECT_EQ(rejection([] { parallel_for(1, [](Index, const Runtime&) {}, with_threads(-1)); }),
            "Runtime: num_threads is -1; expected 0 (the default number) or more");
}

}  // namespace
}  // namespace regard::parallel_test
