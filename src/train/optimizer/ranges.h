// SPDX-License-Identifier: Apache-2.0
//
// A parallel loop over ranges of elements, which allocates nothing.
// Read next: regard/parallel.h.
#pragma once

#include <algorithm>
#include <functional>

#include "regard/parallel.h"

namespace regard::inline v0::internal {

// Calls work(first, end, one) for consecutive ranges of 0 … n − 1 with `size` elements each, the last one possibly
// fewer; `one` is the runtime with one thread.
template <class Work>
void for_each_range(Index n, Index size, const Work& work, const Runtime& runtime) {
  const auto task = [&](Index range, const Runtime& one) { work(range * size, std::min(n, (range + 1) * size), one); };
  parallel_for((n + size - 1) / size, std::cref(task), runtime);  // a reference fits in a std::function
}

}  // namespace regard::inline v0::internal
