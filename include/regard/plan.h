// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dry run: what a call would do, without doing it. A Plan holds the instruction set, the code path and the reason for
/// it, the numbers of operations, bytes and threads, and the exact size of the scratch memory.
///
/// @code{.cpp}
/// const Plan p = plan([&](const Runtime& runtime) {
///   attention_forward(query, key, value, outputs, options, runtime);
/// });
/// p.workspace_bytes;        // the exact peak size of Runtime::workspace
/// p.operators[0].strategy;  // "8 KV heads, each packed and processed by one thread: …"
/// @endcode
///
/// The operators themselves produce the plan. They check their arguments, choose a code path and allocate scratch
/// memory exactly as in the real call, but skip everything that reads or writes the elements of a tensor.
///
/// Read next: src/runtime/plan.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0 {

/// Plan of one operator in a call.
struct PlannedOperator {
  std::string name;      ///< The operator, such as "attention_forward".
  std::string strategy;  ///< The code path, and the reason for its choice.
  /// Number of useful floating-point operations. For attention_forward(), 2·(D + Dv) for each pair of a query and a key
  /// that `causal`, `window`, `prefix` and the lengths make visible; `mask`, `block_mask` and segments are not
  /// considered.
  double operations = 0;
  double bytes = 0;     ///< Total bytes of query, key, value, parameters and outputs, each counted once.
  int num_threads = 1;  ///< The maximum number of threads.
};

/// Plan of a call.
struct Plan {
  std::string instruction_set;             ///< The active instruction set, such as "avx512".
  std::string why;                         ///< The reason why this instruction set is active.
  std::vector<PlannedOperator> operators;  ///< The operators of the call, in order.
  /// The peak size of Runtime::workspace in bytes, including lists of heads, sequences and tasks. Other memory is
  /// allocated only for results that are returned by value, and by Runtime::executor and Runtime::progress.
  std::size_t workspace_bytes = 0;
};

/// Plans a call: runs `call` in a mode in which operators check their arguments but compute nothing.
///
/// @param call     Makes the call with the Runtime that it is given. It must call the operators on the thread
///                 on which it is called.
/// @param runtime  The Runtime of the actual call. Its executor and workspace are not used.
/// @return The plan. Nothing else is written: operators that are given the Runtime of the plan write no outputs and
///         report no progress.
/// @throws std::bad_alloc    if a workspace exceeds the address space.
/// @throws std::logic_error  if plan() is called from within another call to plan().
///
/// Also throws the exceptions that the operators throw for the same arguments.
///
/// @par Example
/// @code{.cpp}
/// const Plan p = plan([&](const Runtime& runtime) { attention_decode(query, cache, outputs, {}, runtime); });
/// std::printf("%zu bytes, %s\n", p.workspace_bytes, p.operators[0].strategy.c_str());
/// @endcode
REGARD_EXPORT Plan plan(const std::function<void(const Runtime&)>& call, const Runtime& runtime = {});

}  // namespace regard::inline v0
