// SPDX-License-Identifier: Apache-2.0
//
// Packs keys and values into panels, in waves or by the worker that computes with them; see packed_kv.h.
// Read next: row_task.cpp.
#include "packed_kv.h"

#include "instantiate.h"
#include "runtime/parallel.h"
#include "tensor/element_types.h"

namespace regard::inline v0::internal {

template <class T>
PackedKv<T>::PackedKv(const ResolvedAttention<T>& r, const Runtime& runtime, const OwnPacking& own)
    : r_(r),
      by_block_(own.by_block),
      padded_columns_((r.value_head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel),
      max_wave_panels_(max_panels(own.workers)),
      keys_(runtime, max_wave_panels_ * key_panel_elements()),
      values_(runtime, max_wave_panels_ * value_panel_elements()),
      finite_(runtime, r.value_head_size ? max_wave_panels_ : 0),
      kv_heads_(workspace_of(runtime)) {}

template <class T>
Index PackedKv<T>::largest_unit_bytes() const {
  return largest_unit_ * (key_panel_elements() + value_panel_elements()) * static_cast<Index>(sizeof(T));
}

template <class T>
KvHead PackedKv<T>::kv_head_at(Index number, Index first_panel) const {
  const Index s = number / r_.num_kv_heads;
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(s)];
  const Index used = sequence.num_queries > 0 ? sequence.key_limit : 0;
  return {s, number % r_.num_kv_heads, (used + kernels::kPanel - 1) / kernels::kPanel, first_panel};
}

template <class T>
KvHead PackedKv<T>::own_kv_head(Index number, int worker) const {
  const KvHead kv_head = kv_head_at(number, worker * panels_per_worker());
  if (!by_block_ && kv_head.num_panels > 0) pack_panels(kv_head, 0, kv_head.num_panels);
  return kv_head;
}

template <class T>
const ScratchVector<KvHead>& PackedKv<T>::next_wave(const Runtime& runtime) {
  kv_heads_.clear();
  Index panels = 0;
  for (; next_kv_head_ < num_kv_heads(); ++next_kv_head_) {
    const KvHead kv_head = kv_head_at(next_kv_head_, panels);
    if (!kv_heads_.empty() && panels + kv_head.num_panels > max_wave_panels_) break;
    panels += kv_head.num_panels;
    kv_heads_.push_back(kv_head);
  }
  pack(runtime, panels);
  return kv_heads_;
}

template <class T>
void PackedKv<T>::prepare(const KvHead& kv_head, Index panel) const {
  if (by_block_) pack_panels(kv_head, panel, std::min(kernels::kBlockPanels, kv_head.num_panels - panel));
}

template <class T>
void PackedKv<T>::prefetch_next(const KvHead& kv_head, Index panel, kernels::PrefetchPlan& plan) const {
  if (!by_block_) return;
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
  const Index key = std::min((panel + kernels::kBlockPanels) * kernels::kPanel, sequence.key_limit);
  const Index count = std::min(kernels::kBlockKeys, sequence.key_limit - key);
  const auto rows = [&](const InputView<4>& view, Index columns) {
    return kernels::PrefetchPlan::Rows{
        static_cast<const char*>(view.pointer(sequence.batch, kv_head.key_head, sequence.first_key + key, 0)),
        view.strides[2] * type_bytes(view.type), columns * type_bytes(view.type), count};
  };
  plan.rows[4] = rows(r_.key, r_.head_size);
  plan.rows[5] = rows(r_.value, r_.value_head_size);
}

template <class T>
Index PackedKv<T>::max_panels(int workers) {
  Index all = 0;
  for (Index n = 0; n < num_kv_heads(); ++n) {
    const Index panels = kv_head_at(n, 0).num_panels;
    largest_unit_ = std::max(largest_unit_, panels);
    all += panels;
  }
  if (workers > 0) return workers * panels_per_worker();
  const Index budget = kWaveBytes / ((key_panel_elements() + value_panel_elements()) * static_cast<Index>(sizeof(T)));
  return std::min(all, std::max(largest_unit_, budget));
}

template <class T>
void PackedKv<T>::pack(const Runtime& runtime, Index wave_panels) {
  // Pieces of 16 panels take a few tens of microseconds each.
  constexpr Index kPiecePanels = 16;
  const Index pieces = (wave_panels + kPiecePanels - 1) / kPiecePanels;
  constexpr double kElementProducts = 16;  // a packed element takes as long as this many products
  const double elements = static_cast<double>(wave_panels * (key_panel_elements() + value_panel_elements()));
  const int workers = num_workers(runtime, pieces, kElementProducts * elements);
  for_each_item(runtime, workers, pieces, [&](Index piece, int) {
    Index panel = piece * kPiecePanels;
    const Index end = std::min(panel + kPiecePanels, wave_panels);
    auto kv_head = std::upper_bound(kv_heads_.begin(), kv_heads_.end(), panel,
                                    [](Index p, const KvHead& u) { return p < u.first_panel; }) -
                   1;
    while (panel < end) {
      while (panel >= kv_head->first_panel + kv_head->num_panels) ++kv_head;
      const Index stop = std::min(end, kv_head->first_panel + kv_head->num_panels);
      pack_panels(*kv_head, panel - kv_head->first_panel, stop - panel);
      panel = stop;
    }
  });
}

template <class T>
void PackedKv<T>::pack_panels(const KvHead& kv_head, Index panel, Index count) const {
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
  const Index first_key = panel * kernels::kPanel;
  const Index keys = std::min(count * kernels::kPanel, sequence.key_limit - first_key);
  const Index at = sequence.first_key + first_key;
  with_rows<T>(r_.key, r_.key_pairs, sequence.batch, kv_head.key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_keys(rows, keys, r_.head_size, keys_.data() + index_of(kv_head, panel) * key_panel_elements());
  });
  if (r_.value_head_size == 0) return;
  with_rows<T>(r_.value, r_.value_pairs, sequence.batch, kv_head.key_head, at,
               [&](const auto& kernel, const auto& rows) {
                 kernel.pack_values(rows, keys, r_.value_head_size,
                                    values_.data() + index_of(kv_head, panel) * value_panel_elements(),
                                    finite_.data() + index_of(kv_head, panel));
               });
}

REGARD_INSTANTIATE_COMPUTE_CLASS(class, PackedKv);

}  // namespace regard::inline v0::internal
