// SPDX-License-Identifier: Apache-2.0
//
// The parallel loop over items, and the pool of threads that help with it.
//
//     caller:  queue the loop ─ run it as worker 0 ─ dequeue it ─ wait for the helpers inside ─ rethrow
//     helper:  sleep until a loop is queued ─ enter it as its next worker ─ run it ─ leave ─ …
//
// A caller always works on its own loop and waits only for helpers that hold one of its items; a helper waits in the
// same way only for loops nested in its item. Callers therefore never wait for one another, and there is no deadlock.
// With a foreign executor, task i is worker i of the same loop.
// Read next: parallel.h, regard/parallel.h.
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "kernels/table.h"
#include "machine.h"
#include "plan.h"
#include "regard/error.h"
#include "regard/parallel.h"

namespace regard::inline v0 {
namespace internal {
namespace {

// Set at exit and at dlclose: helpers finish their current item, and callers do the rest alone.
constinit std::atomic<bool> exiting{false};

struct Loop {
  const Runtime& runtime;
  const ItemBody& body;
  const Index num_items;
  const int workers;

  // Guarded by the pool's mutex; num_inside is also read without it.
  int next_worker;
  bool closed = false;             // no thread may enter any more
  std::atomic<int> num_inside{0};  // helpers inside the loop
  Loop* next_in_queue = nullptr;

  // As many ranges of items as there are workers. A thread takes the items of its own range first, so that rows that it
  // has written are often read by the same thread in the next loop, while they are in its cache. One range: items in
  // order.
  struct alignas(64) Range {
    std::atomic<Index> next;
    Index end;
  };
  static constexpr int kMaxRanges = 16;
  const int num_ranges;
  Range ranges[kMaxRanges];
  std::atomic<bool> failed{false};
  std::exception_ptr exception;  // the first

  Loop(const Runtime& runtime_, const ItemBody& body_, Index num_items_, int workers_, ItemOrder order,
       int first_worker)
      : runtime(runtime_),
        body(body_),
        num_items(num_items_),
        workers(workers_),
        next_worker(first_worker),
        num_ranges(order == ItemOrder::increasing || workers > kMaxRanges ? 1 : workers) {
    for (int i = 0; i < num_ranges; ++i) {
      ranges[i].next.store(num_items / num_ranges * i + std::min<Index>(i, num_items % num_ranges),
                           std::memory_order_relaxed);
      ranges[i].end = num_items / num_ranges * (i + 1) + std::min<Index>(i + 1, num_items % num_ranges);
    }
  }

  // Takes items until none remain or a worker has failed, those of the range of this number first.
  void run(int worker, int number) noexcept {
    try {
      FloatingPointScope scope;
      for (int i = 0; i < num_ranges; ++i) {
        Range& range = ranges[(number + i) % num_ranges];
        while (!failed.load(std::memory_order_relaxed) && (worker == 0 || !exiting.load(std::memory_order_relaxed))) {
          if (range.next.load(std::memory_order_relaxed) >= range.end) break;
          const Index item = range.next.fetch_add(1, std::memory_order_relaxed);
          if (item >= range.end) break;
          throw_if_stopped(runtime.stop);
          body(item, worker);
        }
      }
    } catch (...) {
      if (!failed.exchange(true)) exception = std::current_exception();
    }
  }
};

// Returns true as soon as done() is true; false after some time. If every thread has a processor of its own, this is
// several times what it takes to fall asleep and wake up; otherwise it is short, so that another thread can soon use
// this processor.
template <class Condition>
bool spin(bool own_processors, Condition done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(own_processors ? 100 : 20);
  do {
    if (done()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// Uses POSIX threads: they can be initialized at compile time, need no destructor (a call made while the process exits
// still finds a valid pool), and after a fork the handles of vanished threads can be forgotten.
class Pool {
 public:
  // Lets helpers into the loop, whose caller is already inside; starts new threads as far as possible.
  void offer(Loop* loop) {
    int num_to_wake = 0;
    {
      Lock lock(&mutex_);
      if (exiting.load(std::memory_order_relaxed)) return;
      const int num_helpers = loop->workers - loop->next_worker;
      start_threads(num_helpers);
      keep_clear(num_helpers);
      enqueue(loop);
      num_to_wake = std::min({num_helpers, num_asleep_, kWokenAtOnce});
    }
    wake(num_to_wake);
  }

  // The worker index of the calling thread, or −1 if the loop is full.
  int enter(Loop* loop) {
    Lock lock(&mutex_);
    return enter_locked(loop);
  }
  void leave(Loop* loop) {
    Lock lock(&mutex_);
    leave_locked(loop);
  }

  // Returns when no thread is inside and none can enter.
  void close(Loop* loop) {
    {
      Lock lock(&mutex_);
      loop->closed = true;
      for (Loop** link = &first_; *link != nullptr; link = &(*link)->next_in_queue) {
        if (*link == loop) {
          dequeue(link);
          break;
        }
      }
      if (loop->num_inside == 0) return;
    }
    spin(own_processors_, [loop] { return loop->num_inside == 0; });
    Lock lock(&mutex_);
    while (loop->num_inside != 0) pthread_cond_wait(&left_, &mutex_);
  }

  // Must be called before threads are started.
  void allow_threads() { may_start_threads_ = true; }

  void stop() {
    int num_threads = 0;
    {
      Lock lock(&mutex_);
      exiting = true;
      num_threads = std::exchange(num_threads_, 0);
      pthread_cond_broadcast(&queued_);
    }
    for (int i = 0; i < num_threads; ++i) pthread_join(threads_[i], nullptr);
  }

  // No other thread holds the mutex while the process forks, and the child starts without helpers.
  void before_fork() { pthread_mutex_lock(&mutex_); }
  void after_fork_in_parent() { pthread_mutex_unlock(&mutex_); }
  void after_fork_in_child() {
    num_threads_ = 0;
    num_numbered_ = 0;
    num_asleep_ = 0;
    for (Place& place : places_) place.clear_of = -1;
    first_ = nullptr;
    num_queued_ = 0;
    pthread_cond_init(&queued_, nullptr);
    pthread_cond_init(&left_, nullptr);
    pthread_mutex_unlock(&mutex_);
  }

 private:
  static void* thread_main(void* pool) {
    static_cast<Pool*>(pool)->help();
    return nullptr;
  }

  void help() {
    Lock lock(&mutex_);
    const int number = ++num_numbered_;
    while (!exiting.load(std::memory_order_relaxed)) {
      if (first_ == nullptr) {
        pthread_mutex_unlock(&mutex_);
        spin(own_processors_, [this] { return num_queued_ != 0; });
        pthread_mutex_lock(&mutex_);
        if (first_ != nullptr || exiting.load(std::memory_order_relaxed)) continue;
        ++num_asleep_;
        pthread_cond_wait(&queued_, &mutex_);
        --num_asleep_;
        continue;
      }
      // Loops that need more helpers go to the back of the queue, so that concurrent callers share the threads.
      Loop* const loop = first_;
      dequeue(&first_);
      const int worker = enter_locked(loop);
      const int num_wanted = loop->workers - loop->next_worker;
      if (num_wanted > 0) enqueue(loop);
      const int num_to_wake = std::min({num_wanted, num_asleep_, kWokenAtOnce});
      pthread_mutex_unlock(&mutex_);
      wake(num_to_wake);
      loop->run(worker, number);
      pthread_mutex_lock(&mutex_);
      leave_locked(loop);
    }
  }

  // Without the mutex, which a woken thread needs first.
  void wake(int number) {
    for (; number > 0; --number) pthread_cond_signal(&queued_);
  }

  void start_threads(int number) {
    number = std::min(number, may_start_threads_ ? kMaxThreads : 0);
    if (num_threads_ >= number) return;
    // The application's signals are for its own threads; faults and profiling signals concern the thread that they hit.
    sigset_t signals, previous;
    sigfillset(&signals);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) sigdelset(&signals, signal);
    pthread_sigmask(SIG_SETMASK, &signals, &previous);
    while (num_threads_ < number && pthread_create(&threads_[num_threads_], nullptr, thread_main, this) == 0) {
      ++num_threads_;
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    own_processors_ = num_threads_ < num_affinity_cpus();
  }

  // A scheduler may wake a helper on the caller's processor and take milliseconds to separate the two. A few sleeping
  // helpers are therefore kept off that processor if there are enough others; for many helpers this would cost more
  // than it gains.
  void keep_clear(int num_helpers) {
    const int cpu = sched_getcpu();
    if (num_helpers > kMaxPlaced || num_asleep_ < num_threads_ || cpu < 0 || cpu >= CPU_SETSIZE) return;
    for (int i = 0; i < std::min(num_helpers, num_threads_); ++i) {
      Place& place = places_[i];
      if (place.clear_of == cpu) continue;
      cpu_set_t now;
      if (pthread_getaffinity_np(threads_[i], sizeof now, &now) != 0) continue;
      // If other code has changed the affinity since, its mask becomes the new baseline.
      if (place.clear_of < 0 || !CPU_EQUAL(&now, &place.given)) place.all = now;
      cpu_set_t given = place.all;
      CPU_CLR(cpu, &given);
      if (CPU_COUNT(&given) < num_helpers || pthread_setaffinity_np(threads_[i], sizeof given, &given) != 0) continue;
      place.given = given;
      place.clear_of = cpu;
    }
  }

  void enqueue(Loop* loop) {
    Loop** link = &first_;
    while (*link != nullptr) link = &(*link)->next_in_queue;
    *link = loop;
    ++num_queued_;
  }
  void dequeue(Loop** link) {
    *link = std::exchange((*link)->next_in_queue, nullptr);
    --num_queued_;
  }
  static int enter_locked(Loop* loop) {
    if (loop->closed || loop->next_worker >= loop->workers) return -1;
    ++loop->num_inside;
    return loop->next_worker++;
  }
  void leave_locked(Loop* loop) {
    if (--loop->num_inside == 0) pthread_cond_broadcast(&left_);
  }

  // A helper that enters a loop wakes others in turn: all are awake sooner than if the caller woke one after the other.
  static constexpr int kWokenAtOnce = 2;

#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  // Many helpers need it at the same moment, each for less time than it takes to fall asleep.
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
#endif
  pthread_cond_t queued_ = PTHREAD_COND_INITIALIZER;
  pthread_cond_t left_ = PTHREAD_COND_INITIALIZER;
  bool may_start_threads_ = false;
  std::atomic<bool> own_processors_{false};  // no more threads, the caller included, than processors
  int num_threads_ = 0;
  int num_numbered_ = 0;  // of these, those that run: numbered from 1 in starting order; 0 is a caller
  int num_asleep_ = 0;
  Loop* first_ = nullptr;           // loops that need helpers
  std::atomic<int> num_queued_{0};  // their number, for spinning
  pthread_t threads_[kMaxThreads]{};

  // The affinity masks of the first helpers: the mask set here, and the one before.
  struct Place {
    cpu_set_t all{}, given{};
    int clear_of = -1;  // −1 if nothing has been set
  };
  static constexpr int kMaxPlaced = 3;
  Place places_[kMaxPlaced]{};
};

constinit Pool pool;

// Loading the library enables the pool without starting a thread; unloading it or leaving main joins its threads.
struct PoolLifetime {
  PoolLifetime() {
    const int error = pthread_atfork([] { pool.before_fork(); }, [] { pool.after_fork_in_parent(); },
                                     [] { pool.after_fork_in_child(); });
    if (error == 0) pool.allow_threads();
  }
  ~PoolLifetime() { pool.stop(); }
};
const PoolLifetime pool_lifetime;

void run_with_pool(Loop* loop) {
  if (loop->workers > 1) pool.offer(loop);
  loop->run(0, 0);
  if (loop->workers > 1) pool.close(loop);
}

// Correct even if the executor throws, or returns before all tasks have run: late tasks find the loop closed, and
// remaining items are processed here. The loop is therefore shared with the task, which the executor may have copied.
void run_with_executor(const std::shared_ptr<Loop>& loop, const Executor& executor) {
  try {
    executor(loop->workers, [loop](Index) {
      const int worker = pool.enter(loop.get());
      if (worker < 0) return;
      loop->run(worker, worker);
      pool.leave(loop.get());
    });
  } catch (...) {
    loop->failed = true;
    pool.close(loop.get());
    throw;
  }
  pool.close(loop.get());
  loop->run(0, 0);
}

// A malformed number of threads is an error in every call, even in one that needs only one thread.
void check_threads(const Runtime& runtime) {
  if (runtime.num_threads < 0) {
    throw InvalidArgument("Runtime: num_threads is " + std::to_string(runtime.num_threads) +
                          "; expected 0 (the default number) or more");
  }
  if (runtime.num_threads == 0) threads_from_environment();
}

}  // namespace

FloatingPointScope::FloatingPointScope() : previous_(kernels::active().enter_floating_point()) {}
FloatingPointScope::~FloatingPointScope() { kernels::active().leave_floating_point(previous_); }

int num_workers(const Runtime& runtime, Index num_items) {
  check_threads(runtime);
  if (num_items <= 1) return 1;
  Index threads = runtime.num_threads == 0 ? default_num_threads() : runtime.num_threads;
  // Callers may request more threads than processors, but each has its own scratch, so the number is limited.
  constexpr Index kAlwaysAllowed = 16;
  if (threads > kAlwaysAllowed) {
    const auto cpus = static_cast<Index>(num_affinity_cpus());
    threads = std::min(threads, std::max(kAlwaysAllowed, 4 * cpus));
  }
  return static_cast<int>(std::min(num_items, threads));
}

int num_workers(const Runtime& runtime, Index num_items, double num_products) {
  constexpr double kProducts = 5e5;
  if (num_products < 2 * kProducts) return 1;
  return static_cast<int>(std::min<double>(num_workers(runtime, num_items), num_products / kProducts));
}

void for_each_item(const Runtime& runtime, int workers, Index num_items, const ItemBody& body, ItemOrder order) {
  check_threads(runtime);
  if (is_planning()) return plan_threads(workers);
  throw_if_stopped(runtime.stop);
  std::exception_ptr exception;
  if (runtime.executor && workers > 1) {
    const auto loop = std::make_shared<Loop>(runtime, body, num_items, workers, order, 0);
    run_with_executor(loop, runtime.executor);
    exception = loop->exception;
  } else {
    Loop loop(runtime, body, num_items, workers, order, 1);
    run_with_pool(&loop);
    exception = loop.exception;
  }
  if (exception) std::rethrow_exception(exception);
}

void let_others_run() { sched_yield(); }

}  // namespace internal

void parallel_for(Index n, const std::function<void(Index, const Runtime&)>& task, const Runtime& runtime) {
  Runtime one = runtime;
  one.executor = {};
  one.num_threads = 1;
  internal::for_each_item(runtime, internal::num_workers(runtime, n), n, [&](Index item, int) { task(item, one); });
}

}  // namespace regard::inline v0
