// SPDX-License-Identifier: Apache-2.0
//
// How operators use threads: a fixed number of workers, each with an index (so that it can own part of the scratch),
// take items until none remain. The result never depends on which worker computes an item.
//
//     const int workers = num_workers(runtime, num_items);
//     for_each_item(runtime, workers, num_items, [&](Index item, int worker) { … });
//
// Read next: parallel.cpp (the pool), runtime.cpp (how many threads).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "regard/runtime.h"

namespace regard::inline v0::internal {

// Sets round-to-nearest, subnormals kept, exceptions masked; restores the previous state, flags included, on
// destruction.
class FloatingPointScope {
 public:
  FloatingPointScope();
  ~FloatingPointScope();
  FloatingPointScope(const FloatingPointScope&) = delete;
  FloatingPointScope& operator=(const FloatingPointScope&) = delete;

 private:
  std::uint64_t previous_;
};

// The minimum of the runtime's threads and the items, at least 1. Throws std::invalid_argument for num_threads < 0 and
// for a malformed REGARD_THREADS, as for_each_item does.
int num_workers(const Runtime& runtime, Index num_items);
// The same for items that take this many products of matrices in total. Half a million products take about five
// microseconds, less than waking a thread: each worker gets at least as many. Other work counts as the products that
// take equally long.
int num_workers(const Runtime& runtime, Index num_items, double num_products);

// A reference to a callable; the callable must outlive it.
template <class Signature>
class FunctionRef;
template <class... Arguments>
class FunctionRef<void(Arguments...)> {
 public:
  template <class F>
  FunctionRef(const F& function)
    requires(!std::is_same_v<F, FunctionRef>)
      : function_(std::addressof(function)),
        call_([](const void* of, Arguments... arguments) { (*static_cast<const F*>(of))(arguments...); }) {}
  void operator()(Arguments... arguments) const { call_(function_, arguments...); }

 private:
  const void* function_;
  void (*call_)(const void*, Arguments...);
};
using ItemBody = FunctionRef<void(Index, int)>;

// increasing: an item is taken after all smaller ones, whichever worker takes them.
enum class ItemOrder { any, increasing };

// Calls body(item, worker) once for every item, with worker in 0 … workers − 1, never concurrently for the same worker,
// and each time inside a FloatingPointScope. Rethrows the first exception of a body. Throws Cancelled if a stop was
// requested. While a plan is being made (plan.h), no body is called.
void for_each_item(const Runtime& runtime, int workers, Index num_items, const ItemBody& body,
                   ItemOrder order = ItemOrder::any);

// For bodies that wait for other items, all of them smaller than their own: gives the processor to other threads.
void let_others_run();

// Counts the rows that a call has finished, and reports them to Runtime::progress.
class Progress {
 public:
  Progress(const Runtime& runtime, Index total) : runtime_(runtime), total_(total) {}
  void add(Index rows) {
    if (runtime_.progress) runtime_.progress(done_ += rows, total_);
  }

 private:
  const Runtime& runtime_;
  std::atomic<Index> done_{0};
  Index total_;
};

}  // namespace regard::inline v0::internal
