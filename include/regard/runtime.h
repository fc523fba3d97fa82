// SPDX-License-Identifier: Apache-2.0
//
// Who computes, in which memory, and how to stop: the Runtime that every operator takes last; the library's
// version and the instruction sets it can use. Nothing here changes a bit of any result.
// Read next: attention.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory_resource>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "regard/error.h"
#include "regard/export.h"
#include "regard/tensor.h"

#if defined(__FAST_MATH__) && defined(REGARD_BUILDING)
#error "Regard's arithmetic is defined exactly; build it without -ffast-math"
#endif

namespace regard::inline v0 {

// Throws Cancelled, naming the operation, where a stop has been requested: for loops that run longer than a few
// milliseconds between operators.
REGARD_EXPORT void throw_if_stopped(const std::stop_token& stop, std::string_view operation = "the call");

// parallel_for(n, task) calls task(0) … task(n - 1), each exactly once, on any threads, in any order, and
// returns when all are done. Tasks never wait for each other, so inline and nested execution are right. An
// exception thrown by the executor itself reaches the operator's caller.
using Task = std::function<void(Index)>;
using Executor = std::function<void(Index, const Task&)>;

struct Runtime {
  Executor executor{};  // empty: the library's own pool
  int num_threads = 0;  // 0: default_num_threads(); < 0: std::invalid_argument
  // Every byte of scratch comes from here. nullptr: operator new, of which up to 64 MiB stay for the calls to come.
  std::pmr::memory_resource* workspace = nullptr;
  std::stop_token stop{};  // polled at least every 20 ms
  // Called by attention_forward and attention_weights after each task, from any thread, also by several at once: rows
  // of all heads finished, and rows in all. An exception ends the call and reaches its caller.
  std::function<void(Index done, Index total)> progress{};
};

// Threads used when Runtime::num_threads is 0: REGARD_THREADS if set, else one for each physical core in the
// calling process's affinity mask, at most the cgroup's CPU quota, at least 1.
// Throws std::invalid_argument when REGARD_THREADS is not a whole number from 1 to 4096.
REGARD_EXPORT int default_num_threads();

// Bytes that can be allocated now without swapping: the lower of MemAvailable and what the cgroup leaves.
REGARD_EXPORT std::size_t available_memory_bytes();

// "0.1.0": the version in CMakeLists.txt, and nowhere else.
REGARD_EXPORT std::string_view version();

struct InstructionSet {
  std::string name;         // "generic", "avx2", "avx512"
  bool available;           // this processor (and its operating system) can run it
  bool active;              // operators use it
  bool fused_multiply_add;  // results of all sets with it are equal bit for bit
};

// Every instruction set that the library was built for, best last.
// Throws std::invalid_argument when REGARD_FORCE_ISA names one that is unknown or that the processor lacks.
REGARD_EXPORT std::vector<InstructionSet> instruction_sets();
REGARD_EXPORT std::string active_instruction_set();

}  // namespace regard::inline v0
