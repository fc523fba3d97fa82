// SPDX-License-Identifier: Apache-2.0
//
// The loop that operators use threads with, for work made of operators: many small problems side by side, each on one
// thread, are faster than one after the other with all threads inside each.
//
//     parallel_for(num_groups, [&](Index group, const Runtime& one) { linear_forward<float>(…, one); }, runtime);
//
// Read next: runtime.h, src/runtime/parallel.cpp.
#pragma once

#include <functional>

#include "regard/runtime.h"

namespace regard::inline v0 {

// Calls task(i, one) for i in 0 … n − 1, each exactly once, by as many threads (or executor's tasks) as an operator
// would take with this runtime; one is the runtime for what the task calls: the same, with one thread. Memory of
// Runtime::workspace is then asked for by several threads at once. Returns when all are done; rethrows the first
// exception of a task, and begins no other after it. While a plan is made no task is called.
// Throws std::invalid_argument for a malformed number of threads, cancelled when stop was requested.
REGARD_EXPORT void parallel_for(Index n, const std::function<void(Index, const Runtime&)>& task,
                                const Runtime& runtime = {});

}  // namespace regard::inline v0
