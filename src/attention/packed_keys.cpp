// SPDX-License-Identifier: Apache-2.0
//
// Packing of keys and values into panels, in waves or by the worker that computes with them; see packed_keys.h.
// Read next: row_task.cpp.
#include "packed_keys.h"

#include "runtime/parallel.h"
#include "tensor/element_types.h"

namespace regard {
inline namespace v0 {
namespace internal {

template <class T>
PackedKeys<T>::PackedKeys(const ResolvedAttention<T>& r, const Runtime& runtime, const OwnPacking& own)
    : r_(r),
      by_block_(own.by_block),
      padded_columns_((r.columns + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel),
      max_wave_panels_(most_panels(own.workers)),
      keys_(runtime, max_wave_panels_ * key_panel_elements()),
      values_(runtime, max_wave_panels_ * value_panel_elements()),
      finite_(runtime, r.columns ? max_wave_panels_ : 0),
      units_(workspace_of(runtime)) {}

template <class T>
Index PackedKeys<T>::largest_unit_bytes() const {
  return largest_unit_ * (key_panel_elements() + value_panel_elements()) * static_cast<Index>(sizeof(T));
}

template <class T>
Unit PackedKeys<T>::unit_at(Index number, Index first_panel) const {
  const Index s = number / r_.num_key_heads;
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(s)];
  const Index used = sequence.num_queries > 0 ? sequence.key_limit : 0;
  return {s, number % r_.num_key_heads, (used + kernels::kPanel - 1) / kernels::kPanel, first_panel};
}

template <class T>
Unit PackedKeys<T>::own_unit(Index number, int worker) const {
  const Unit unit = unit_at(number, worker * panels_of_place());
  if (!by_block_ && unit.num_panels > 0) pack_panels(unit, 0, unit.num_panels);
  return unit;
}

template <class T>
const List<Unit>& PackedKeys<T>::next_wave(const Runtime& runtime) {
  units_.clear();
  Index panels = 0;
  for (; next_unit_ < num_units(); ++next_unit_) {
    const Unit unit = unit_at(next_unit_, panels);
    if (!units_.empty() && panels + unit.num_panels > max_wave_panels_) break;
    panels += unit.num_panels;
    units_.push_back(unit);
  }
  pack(runtime, panels);
  return units_;
}

template <class T>
void PackedKeys<T>::prepare(const Unit& unit, Index panel) const {
  if (by_block_) pack_panels(unit, panel, std::min(kernels::kBlockPanels, unit.num_panels - panel));
}

template <class T>
void PackedKeys<T>::fetch_next(const Unit& unit, Index panel, kernels::FetchAhead& ahead) const {
  if (!by_block_) return;
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(unit.sequence)];
  const Index key = std::min((panel + kernels::kBlockPanels) * kernels::kPanel, sequence.key_limit);
  const Index count = std::min(kernels::kBlockKeys, sequence.key_limit - key);
  const auto rows = [&](const InputView<T, 4>& view, Index columns) {
    return kernels::FetchAhead::Rows{
        static_cast<const char*>(view.pointer(sequence.batch, unit.key_head, sequence.first_key + key, 0)),
        view.strides[2] * type_bytes(view.type), columns * type_bytes(view.type), count};
  };
  ahead.rows[4] = rows(r_.key, r_.depth);
  ahead.rows[5] = rows(r_.value, r_.columns);
}

template <class T>
Index PackedKeys<T>::most_panels(int workers) {
  Index all = 0;
  for (Index n = 0; n < num_units(); ++n) {
    const Index panels = unit_at(n, 0).num_panels;
    largest_unit_ = std::max(largest_unit_, panels);
    all += panels;
  }
  if (workers > 0) return workers * panels_of_place();
  const Index budget = kWaveBytes / ((key_panel_elements() + value_panel_elements()) * static_cast<Index>(sizeof(T)));
  return std::min(all, std::max(largest_unit_, budget));
}

template <class T>
void PackedKeys<T>::pack(const Runtime& runtime, Index wave_panels) {
  // Pieces of 16 panels: a few tens of microseconds each.
  constexpr Index kPiecePanels = 16;
  const Index pieces = (wave_panels + kPiecePanels - 1) / kPiecePanels;
  constexpr double kElementProducts = 16;  // a packed element takes as long as so many products
  const double elements = static_cast<double>(wave_panels * (key_panel_elements() + value_panel_elements()));
  const int workers = num_workers(runtime, pieces, kElementProducts * elements);
  for_each_item(runtime, workers, pieces, [&](Index piece, int) {
    Index panel = piece * kPiecePanels;
    const Index end = std::min(panel + kPiecePanels, wave_panels);
    auto unit = std::upper_bound(units_.begin(), units_.end(), panel,
                                 [](Index p, const Unit& u) { return p < u.first_panel; }) -
                1;
    while (panel < end) {
      while (panel >= unit->first_panel + unit->num_panels) ++unit;
      const Index stop = std::min(end, unit->first_panel + unit->num_panels);
      pack_panels(*unit, panel - unit->first_panel, stop - panel);
      panel = stop;
    }
  });
}

template <class T>
void PackedKeys<T>::pack_panels(const Unit& unit, Index panel, Index count) const {
  const Sequence& sequence = r_.sequences[static_cast<std::size_t>(unit.sequence)];
  const Index first_key = panel * kernels::kPanel;
  const Index keys = std::min(count * kernels::kPanel, sequence.key_limit - first_key);
  const Index at = sequence.first_key + first_key;
  with_rows(r_.key, r_.key_pairs, sequence.batch, unit.key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_keys(rows, keys, r_.depth, keys_.data() + place_of(unit, panel) * key_panel_elements());
  });
  if (r_.columns == 0) return;
  with_rows(r_.value, r_.value_pairs, sequence.batch, unit.key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_values(rows, keys, r_.columns, values_.data() + place_of(unit, panel) * value_panel_elements(),
                       finite_.data() + place_of(unit, panel));
  });
}

template class PackedKeys<float>;
template class PackedKeys<double>;

}  // namespace internal
}  // namespace v0
}  // namespace regard
