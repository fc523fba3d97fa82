// SPDX-License-Identifier: Apache-2.0
//
// What a worker prefetches while it computes a task: the inputs of its next task.
// Read next: forward_schedule.h.
#pragma once

#include "arguments.h"
#include "packed_kv.h"
#include "row_blocks.h"

namespace regard::inline v0::internal {

// True if the call's rows no longer fit in second-level caches. If they do fit, prefetching costs more than it saves.
bool exceeds_caches(const UntypedAttention& r, Index element_bytes);

// The prefetch plan for a task of KV head: the rows of the next task, of the same KV head or of the head that the
// worker takes next, and a share of that head's keys and values. next: has no panels if there is no next head. context:
// where the rows are written; may be nullptr.
template <class T>
kernels::PrefetchPlan prefetch_after(const ResolvedAttention<T>& r, const RowBlocks<T>& blocks,
                                     const PackedKv<T>& packed, const OutputView<4>* context, const KvHead& kv_head,
                                     Index task, const KvHead& next);

}  // namespace regard::inline v0::internal
