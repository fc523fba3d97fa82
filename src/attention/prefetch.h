// SPDX-License-Identifier: Apache-2.0
//
// What a worker fetches while it computes a task: what its next one reads. Read next: forward_schedule.h.
#pragma once

#include "arguments.h"
#include "packed_kv.h"
#include "row_blocks.h"

namespace regard::inline v0::internal {

// Whether the call's rows are too many to lie in second-level caches still: asking for those costs more than it saves.
bool exceeds_caches(const UntypedAttention& r, Index element_bytes);

// After this task of kv_head: the rows of the next one, of kv_head or of the head that the worker takes then, and a
// share of that head's keys and values. next: without panels where there is none. context: where the rows are written;
// may be nullptr.
template <class T>
kernels::PrefetchPlan prefetch_after(const ResolvedAttention<T>& r, const RowBlocks<T>& blocks,
                                     const PackedKv<T>& packed, const OutputView<4>* context, const KvHead& kv_head,
                                     Index task, const KvHead& next);

}  // namespace regard::inline v0::internal
