// SPDX-License-Identifier: Apache-2.0
//
// The rows, keys and values of a worker's next task, and how many of them are prefetched with each register tile.
// Read next: kernels/table.h (PrefetchPlan).
#include "prefetch.h"
#include "instantiate.h"

#include <algorithm>

namespace regard::inline v0::internal {

bool exceeds_caches(const UntypedAttention& r, Index element_bytes) {
  constexpr Index kNearBytes = Index{2} << 20;
  const Index rows = r.batch * (r.num_heads * r.num_queries + r.num_kv_heads * r.num_keys);
  return r.head_size > 0 && r.value_head_size > 0 &&
         rows > kNearBytes / ((r.head_size + r.value_head_size) * element_bytes);
}

template <class T>
kernels::PrefetchPlan prefetch_after(const ResolvedAttention<T>& r, const RowBlocks<T>& blocks,
                                     const PackedKv<T>& packed, const OutputView<4>* context, const KvHead& kv_head,
                                     Index task, const KvHead& next) {
  const Index tasks = blocks.num_tasks(kv_head);
  const bool last = task + 1 == tasks;
  const bool ends = next.num_panels == 0;
  kernels::PrefetchPlan plan{};
  Index max_count = 0;
  const auto take = [&](int i, const void* first, Index stride, Index columns, ElementType type, Index count) {
    plan.rows[i] = {static_cast<const char*>(first), stride * type_bytes(type), columns * type_bytes(type), count};
    max_count = std::max(max_count, count);
  };
  if (!last || !ends) {
    const KvHead& of = last ? next : kv_head;
    const Sequence& sequence = blocks.sequence_of(of);
    const TaskRows rows = blocks.rows_of(of, last ? 0 : task + 1);
    const Index row = sequence.first_query + rows.first_row;
    take(0, r.query.pointer(sequence.batch, rows.head, row, 0), r.query.strides[2], r.head_size, r.query.type,
         rows.num_rows);
    if (context)
      take(1, context->pointer(sequence.batch, rows.head, row, 0), context->strides[2], r.value_head_size,
           context->type, rows.num_rows);
  }
  if (!ends) {
    const Sequence& sequence = blocks.sequence_of(next);
    const Index share = packed.by_block() ? kernels::kBlockKeys : (sequence.key_limit + tasks - 1) / tasks;
    const Index key = std::min(task * share, sequence.key_limit);
    const Index count = std::min(share, sequence.key_limit - key);
    take(2, r.key.pointer(sequence.batch, next.key_head, sequence.first_key + key, 0), r.key.strides[2], r.head_size,
         r.key.type, count);
    take(3, r.value.pointer(sequence.batch, next.key_head, sequence.first_key + key, 0), r.value.strides[2],
         r.value_head_size, r.value.type, count);
  }
  const Index group = blocks.row_group();
  const Index key_blocks =
      packed.by_block() ? 1 : (blocks.sequence_of(kv_head).key_limit + kernels::kBlockKeys - 1) / kernels::kBlockKeys;
  const Index tiles = (blocks.rows_of(kv_head, task).num_rows + group - 1) / group * key_blocks *
                      (kernels::kBlockPanels + packed.padded_value_head_size() / kernels::kPanel);
  plan.rows_a_tile = (max_count + tiles - 1) / std::max<Index>(tiles, 1);
  return plan;
}

REGARD_INSTANTIATE_COMPUTE(prefetch_after);

}  // namespace regard::inline v0::internal
