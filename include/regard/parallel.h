// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parallel loop that operators use, for callers whose work consists of many operator calls.
///
/// Many small problems run faster in parallel, each on one thread, than one after another, each on all threads.
///
/// @code{.cpp}
/// parallel_for(num_groups, [&](Index group, const Runtime& one) { linear_forward<float>(…, one); }, runtime);
/// @endcode
///
/// Read next: runtime.h, src/runtime/parallel.cpp.
#pragma once

#include <functional>

#include "regard/runtime.h"

namespace regard::inline v0 {

/// Calls `task(i, one)` for i = 0 … n − 1, each exactly once, in parallel, and returns when all calls are done.
///
/// @param n        The number of calls.
/// @param task     Called with an index and with `one`, the Runtime for the operators that the task calls: a copy of
///                 `runtime` with one thread. Several threads may call it concurrently.
/// @param runtime  Execution settings of the loop. The loop uses the same number of threads or executor tasks as an
///                 operator would with this runtime. Several threads may then allocate from Runtime::workspace
///                 concurrently.
/// @throws InvalidArgument  if Runtime::num_threads or `REGARD_THREADS` is malformed.
/// @throws Cancelled        if a stop is requested.
///
/// The first exception that a task throws is rethrown to the caller, and no further tasks are started. In a dry run
/// (plan.h), no task is run.
///
/// @par Example
/// @code{.cpp}
/// parallel_for(num_texts, [&](Index i, const Runtime& one) { traces[i] = encode(encoder, texts[i], {}, one); });
/// @endcode
REGARD_EXPORT void parallel_for(Index n, const std::function<void(Index, const Runtime&)>& task,
                                const Runtime& runtime = {});

}  // namespace regard::inline v0
