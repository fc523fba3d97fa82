// SPDX-License-Identifier: Apache-2.0
//
// The intervals and dense tiles of visibility.h. Views may be misaligned, so elements are read through strided_copy.h.
#include "visibility.h"

#include <algorithm>

#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {
namespace {

using kernels::kBlockKeys;

// Every nonzero byte is true, as in the languages that masks come from.
bool truth(const std::uint8_t* p) { return *p != 0; }

}  // namespace

Interval visible_interval(const UntypedAttention& r, const Sequence& sequence, Index row) {
  const Index p = row + sequence.offset;
  Interval seen{0, sequence.key_limit};
  if (r.causal) seen.end = std::min(seen.end, std::max(p + 1, sequence.prefix));
  if (r.window_left) seen.begin = std::max(seen.begin, p - *r.window_left);
  if (r.window_right) seen.end = std::min(seen.end, p + *r.window_right + 1);
  seen.end = std::max<Index>(seen.end, 0);
  seen.begin = std::min(seen.begin, seen.end);
  return seen;
}

void fill_rows(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, VisibleRows& rows) {
  rows.all = {sequence.num_keys, 0};
  // row_of(i), without a division per row.
  Index row = of.num_rows > 0 ? of.row_of(0) : 0;
  for (Index i = 0; i < of.num_rows; ++i, row = row + 1 == of.rows_per_head ? 0 : row + 1) {
    const Interval seen = visible_interval(r, sequence, row);
    rows.begin[i] = seen.begin;
    rows.end[i] = seen.end;
    rows.positions[i] = row + sequence.offset;
    if (seen.begin < seen.end) {
      rows.all.begin = std::min(rows.all.begin, seen.begin);
      rows.all.end = std::max(rows.all.end, seen.end);
    }
  }
}

bool fill_visible_tile(const UntypedAttention& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                       Index num_keys, const VisibleRows& rows, std::int32_t* tile) {
  const Index b = sequence.batch;
  const Index key0 = sequence.first_key + first_key;
  bool any = false;
  for (Index i = 0; i < of.num_rows; ++i) {
    std::int32_t* sees = tile + i * kBlockKeys;
    const Index head = of.head_of(i);
    const Index query = sequence.first_query + of.row_of(i);
    std::fill_n(sees, num_keys, -1);
    std::fill(sees + num_keys, sees + kBlockKeys, 0);
    if (!r.mask.absent()) {
      const std::uint8_t* from = r.mask.pointer(b, head, query, key0);
      for (Index j = 0; j < num_keys; ++j) sees[j] = -static_cast<std::int32_t>(truth(from + j * r.mask.strides[3]));
    }
    if (!r.block_mask.absent()) {
      for (Index j = 0; j < num_keys; ++j) {
        if (!truth(r.block_mask.pointer(b, head, query / r.block_size[0], (key0 + j) / r.block_size[1]))) sees[j] = 0;
      }
    }
    if (!r.query_segments.absent()) {
      const Index segment = read_index(r.query_segments.type, r.query_segments.pointer(b, query));
      const auto compare = [&]<class S>(const S* from) {
        for (Index j = 0; j < num_keys; ++j) {
          if (segment < 0 || read_element(from + j * r.key_segments.strides[1]) != segment) sees[j] = 0;
        }
      };
      const void* from = r.key_segments.pointer(b, key0);
      r.key_segments.type == ElementType::int32 ? compare(static_cast<const std::int32_t*>(from))
                                                : compare(static_cast<const std::int64_t*>(from));
    }
    const Index begin = std::clamp<Index>(rows.begin[i] - first_key, 0, num_keys);
    const Index end = std::clamp<Index>(rows.end[i] - first_key, begin, num_keys);
    any = any || std::any_of(sees + begin, sees + end, [](std::int32_t x) { return x != 0; });
  }
  return any;
}

}  // namespace regard::inline v0::internal
