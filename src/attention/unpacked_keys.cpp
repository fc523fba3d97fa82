// SPDX-License-Identifier: Apache-2.0
//
// attention_forward over keys and values that are read directly from the caller's tensors, for few rows per KV head.
// Read next: few_row_schedule.h, kernels/decode_unpacked.h.
#include "unpacked_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "dropout.h"
#include "few_row_schedule.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "tensor/element_types.h"

namespace regard::inline v0::internal {
namespace {

// When reading unpacked tensors is faster, measured with avx512 and avx2:
//
// - Up to kFewRows rows: always.
// - More rows run four at a time. Packing, with tiles of twelve rows, is faster for more than twelve rows. But packing
//   gives each query head its own task, so with several query heads per KV head, reading unpacked is up to 20 times
//   faster, and still not slower with 60 rows.
// - With few keys, packing is cheap. Reading unpacked then wins only for heads of one row, whose tiles of packed panels
//   would have one row.
constexpr Index kMaxRows = 12;
constexpr Index kMaxGroupedRows = kernels::kRows;
constexpr Index kManyKeys = kernels::kChunkKeys;

// The largest number of query rows of a KV head.
Index max_rows(const UntypedAttention& r) {
  Index queries = 0;
  for (const Sequence& sequence : r.sequences) queries = std::max(queries, sequence.num_queries);
  return r.num_heads / r.num_kv_heads * queries;
}

bool has_few_rows(const UntypedAttention& r) {
  const Index rows = max_rows(r), group = r.num_heads / r.num_kv_heads;
  if (rows <= kernels::kFewRows) return true;
  Index keys = 0;
  for (const Sequence& sequence : r.sequences) keys += sequence.key_limit;
  const bool many_keys = keys >= kManyKeys * static_cast<Index>(r.sequences.size());
  return (rows == group || many_keys) && rows <= (group > 1 ? kMaxGroupedRows : kMaxRows);
}

// Keys and values in the caller's tensors. Tasks have few rows and only read stored blocks.
template <class T>
class RowKeys final : public KvPanels<T> {
 public:
  explicit RowKeys(const ResolvedAttention<T>& r) : r_(r) {}
  const T* key_panel(const KvHead&, Index, T*) const override { return nullptr; }
  const T* value_panel(const KvHead&, Index, T*) const override { return nullptr; }
  bool finite(const KvHead&, Index) const override { return false; }  // not known
  bool stored() const override { return true; }
  void find_stored_keys(const KvHead& kv_head, Index panel, bool, kernels::StoredPanels& block) const override {
    find_block(r_.key, kv_head, panel, block);
  }
  void find_stored_values(const KvHead& kv_head, Index panel, bool, kernels::StoredPanels& block) const override {
    find_block(r_.value, kv_head, panel, block);
  }

 private:
  void find_block(const InputView<4>& view, const KvHead& kv_head, Index panel, kernels::StoredPanels& block) const {
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
    const auto panel_at = [&](Index n) {
      return n < kv_head.num_panels
                 ? view.pointer(sequence.batch, kv_head.key_head, sequence.first_key + n * kernels::kPanel, 0)
                 : nullptr;
    };
    block.type = stored_type(view.type);
    block.row_stride = view.strides[2];
    block.row_width = view.shape[3];
    for (Index i = 0; i < kernels::kBlockPanels; ++i) {
      block.panels[i] = panel_at(panel + i);
      block.next[i] = panel_at(panel + kernels::kBlockPanels + i);
    }
  }

  const ResolvedAttention<T>& r_;
};

}  // namespace

const char* packing_reason(const UntypedAttention& r) {
  const auto fits = [](Index width) { return width >= kernels::kLeastRow && width % kernels::kRowStep == 0; };
  if (r.num_kv_heads == 0 || max_rows(r) > kernels::kRows) return "";
  if (!has_few_rows(r)) return "packing is faster for this number of rows and keys";
  if (has_dropout(r)) return "dropout is enabled";
  if (!fits(r.head_size)) return "D is less than 32 or not a multiple of 8";
  if (!fits(r.value_head_size)) return "Dv is less than 32 or not a multiple of 8";
  if (r.key.strides[3] != 1) return "key's last axis is not contiguous";
  if (r.value.strides[3] != 1) return "value's last axis is not contiguous";
  if (r.key.strides[2] == 0) return "key has stride 0 along S";
  if (r.value.strides[2] == 0) return "value has stride 0 along S";
  return nullptr;
}

template <class T>
void attend_unpacked(const char* name, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
                     double written_bytes, const Runtime& runtime) {
  const RowKeys<T> keys(r);
  const FewRowOptions schedule{.name = name,
                               .source = "keys and values read unpacked",
                               .key_bytes = type_bytes(r.key.type),
                               .value_bytes = type_bytes(r.value.type),
                               .written_bytes = written_bytes,
                               .max_few_rows = kernels::kRows,
                               .by_chunk = std::abs(r.key.strides[1]) < std::abs(r.key.strides[2])};
  attend_few_rows<T>(r, keys, schedule, FinishedRowWriter<T>(outputs), runtime);
}

REGARD_INSTANTIATE_COMPUTE(attend_unpacked);

}  // namespace regard::inline v0::internal
