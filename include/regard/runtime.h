// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Runtime, the last argument of every operator, which controls the threads, the scratch memory and the
/// cancellation of a call. This header also provides the version of the library and the instruction sets that it can
/// use.
///
/// No field of a Runtime affects the bits of any result.
///
/// Contract: docs/reference/semantics.md, sections 5 (bits) and 6 (errors, memory, stopping).
///
/// Read next: attention.h.
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

/// Throws if a stop has been requested.
///
/// Call it in your own loops that run for more than a few milliseconds between operators.
///
/// @param stop       The stop token to check.
/// @param operation  Name of the operation, for the message of the exception.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// throw_if_stopped(runtime.stop, "tokenize");
/// @endcode
REGARD_EXPORT void throw_if_stopped(const std::stop_token& stop, std::string_view operation = "the call");

/// A unit of work that an Executor runs. Its argument is the index of the task.
using Task = std::function<void(Index)>;

/// Runs tasks on threads of the caller's choice.
///
/// `executor(n, task)` calls `task(0)` … `task(n - 1)`, each exactly once, on any threads and in any order, and returns
/// when all of them are done. Tasks never wait for each other, so an executor may run them inline or nested. An
/// exception that the executor itself throws propagates to the caller of the operator.
///
/// n is at most Runtime::num_threads or, if that is 0, at most default_num_threads(), regardless of the size of the
/// caller's thread pool.
///
/// @par Example
/// @code{.cpp}
/// const Executor serial = [](Index n, const Task& task) {
///   for (Index i = 0; i < n; ++i) task(i);
/// };
/// @endcode
using Executor = std::function<void(Index, const Task&)>;

/// Execution settings of a call: threads, scratch memory, cancellation and progress. The defaults suit most callers.
///
/// No field affects the bits of any result.
///
/// @par Example
/// @code{.cpp}
/// attention_forward(query, key, value, {.context = context}, {}, {.num_threads = 4, .stop = stop});
/// @endcode
struct Runtime {
  /// Runs the tasks of the call. If empty, the thread pool of the library runs them.
  Executor executor{};
  /// The maximum number of threads. If 0, default_num_threads() is used. Operators throw InvalidArgument for negative
  /// numbers.
  int num_threads = 0;
  /// Source of all scratch memory. If nullptr, memory is allocated with operator new, and up to 64 MiB of it per eight
  /// processors is cached for later calls.
  std::pmr::memory_resource* workspace = nullptr;
  /// Stop token. A call polls it at least every 20 ms and throws Cancelled if a stop is requested.
  std::stop_token stop{};
  /// Receives the number of finished rows of all heads, and the total number of rows.
  ///
  /// attention_forward(), attention_weights() and other attention operators call it after each task, from any thread,
  /// possibly from several threads concurrently. attention_forward() counts each row twice if it also writes the
  /// weights. An exception that `progress` throws ends the operator and propagates to its caller.
  std::function<void(Index done, Index total)> progress{};
};

/// Returns the number of threads that operators use when Runtime::num_threads is 0.
///
/// @return The value of the environment variable `REGARD_THREADS` if it is set. Otherwise the number of physical cores
///         in the affinity mask of the calling thread, limited by the CPU quota of the cgroup, but at least 1.
/// @throws InvalidArgument  if `REGARD_THREADS` is not an integer from 1 to 4096.
REGARD_EXPORT int default_num_threads();

/// Returns the amount of memory that can currently be allocated without swapping.
///
/// @return Size in bytes: the minimum of MemAvailable and the memory that the cgroup limits leave available.
REGARD_EXPORT std::size_t available_memory_bytes();

/// Returns the version of the library.
///
/// @return The version, for example `"0.1.0"`.
REGARD_EXPORT std::string_view version();

/// An instruction set that the library was built for.
struct InstructionSet {
  std::string name;  ///< "generic", "avx2", "avx512", "avx512_bf16", "amx_bf16" or "neon".
  bool available;    ///< Whether this processor and its operating system can run it.
  bool active;       ///< Whether operators use it.
  /// Whether it has fused multiply-add. All instruction sets that have it give bit-identical results; avx512_bf16 is an
  /// exception for bfloat16 query and key (docs/reference/semantics.md, section 5).
  bool fused_multiply_add;
};

/// Lists every instruction set that the library was built for.
///
/// @return The instruction sets in ascending order of speed, except that avx512_bf16 is slower than avx512 on Intel
///         processors.
/// @throws InvalidArgument  if the environment variable `REGARD_FORCE_ISA` names an instruction set that is unknown or
///                          that the processor does not support.
REGARD_EXPORT std::vector<InstructionSet> instruction_sets();
/// Returns the name of the instruction set that operators use.
///
/// @return The instruction set that the environment variable `REGARD_FORCE_ISA` names, or the best available one.
/// @throws InvalidArgument  as instruction_sets() does.
REGARD_EXPORT std::string active_instruction_set();

}  // namespace regard::inline v0
