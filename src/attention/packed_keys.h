// SPDX-License-Identifier: Apache-2.0
//
// Packed copies of key (and value), made once per call and key/value head and shared by all its query rows.
//
//     unit = one key/value head of one sequence; a wave = as many consecutive units as fit the budget
//
// Packing is a parallel phase of its own before the wave's rows are computed; or each worker packs for itself, a unit
// or a block at a time, into a place of its own. Read next: forward_schedule.h.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"

namespace regard {
inline namespace v0 {
namespace internal {

// Enough for the packed keys and values of a long head, small enough to stay near the last-level cache.
inline constexpr Index kWaveBytes = Index{32} << 20;

// Workers that pack for themselves.
struct OwnPacking {
  int workers = 0;        // 0: units are packed in waves that all workers share
  bool by_block = false;  // a block of kBlockPanels when it is needed; else a unit
};

struct Unit {
  Index sequence;
  Index key_head;
  Index num_panels;   // of 32 keys, up to the sequence's key limit
  Index first_panel;  // within the packed arrays
};

// Where the rows of a task find their keys and values, packed: a copy made for the call, or a cache. Panels of another
// type than T are widened into `room`, which has space for one; others are read where they lie.
template <class T>
class KeyPanels {
 public:
  virtual bool widened() const { return false; }
  // Called before the block of panels from `panel` on is read, and what to fetch meanwhile for the next.
  virtual void prepare(const Unit&, Index) const {}
  virtual void fetch_next(const Unit&, Index, kernels::FetchAhead&) const {}
  virtual const T* key_panel(const Unit& unit, Index panel, T* room) const = 0;
  virtual const T* value_panel(const Unit& unit, Index panel, T* room) const = 0;
  virtual bool finite(const Unit& unit, Index panel) const = 0;  // every value of the panel

  // Where stored() is true, tasks of few rows read the block of panels from `panel` on as it is stored. follows:
  // `block` holds the one before, whose next panels these are.
  virtual bool stored() const { return false; }
  virtual void find_stored_keys(const Unit&, Index, bool, kernels::StoredPanels&) const {}
  virtual void find_stored_values(const Unit&, Index, bool, kernels::StoredPanels&) const {}

 protected:
  ~KeyPanels() = default;
};

template <class T>
class PackedKeys final : public KeyPanels<T> {
 public:
  PackedKeys(const ResolvedAttention<T>& r, const Runtime& runtime, const OwnPacking& own = {})
      : r_(r),
        by_block_(own.by_block),
        padded_columns_((r.columns + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel),
        max_wave_panels_(most_panels(own.workers)),
        keys_(runtime, max_wave_panels_ * key_panel_elements()),
        values_(runtime, max_wave_panels_ * value_panel_elements()),
        finite_(runtime, r.columns ? max_wave_panels_ : 0),
        units_(workspace_of(runtime)) {}

  Index padded_columns() const { return padded_columns_; }
  Index num_units() const { return static_cast<Index>(r_.sequences.size()) * r_.num_key_heads; }

  Index largest_unit_bytes() const {
    return largest_unit_ * (key_panel_elements() + value_panel_elements()) * static_cast<Index>(sizeof(T));
  }

  Unit unit_at(Index number, Index first_panel) const {
    const Index s = number / r_.num_key_heads;
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(s)];
    const Index used = sequence.num_queries > 0 ? sequence.key_limit : 0;
    return {s, number % r_.num_key_heads, (used + kernels::kPanel - 1) / kernels::kPanel, first_panel};
  }

  // A unit in the worker's place. Only where workers pack for themselves …
  Unit own_unit(Index number, int worker) const {
    const Unit unit = unit_at(number, worker * panels_of_place());
    if (!by_block_ && unit.num_panels > 0) pack_panels(unit, 0, unit.num_panels);
    return unit;
  }

  // … and these only where waves are.
  bool done() const { return next_unit_ == num_units(); }

  // Packs the next wave and returns its units.
  const List<Unit>& next_wave(const Runtime& runtime) {
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

  void prepare(const Unit& unit, Index panel) const override {
    if (by_block_) pack_panels(unit, panel, std::min(kernels::kBlockPanels, unit.num_panels - panel));
  }
  void fetch_next(const Unit& unit, Index panel, kernels::FetchAhead& ahead) const override {
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

  const T* key_panel(const Unit& unit, Index panel, T*) const override {
    return keys_.data() + place_of(unit, panel) * key_panel_elements();
  }
  const T* value_panel(const Unit& unit, Index panel, T*) const override {
    return values_.data() + place_of(unit, panel) * value_panel_elements();
  }
  bool finite(const Unit& unit, Index panel) const override { return finite_.data()[place_of(unit, panel)] != 0; }

 private:
  Index key_panel_elements() const { return r_.depth_words() * kernels::kPanel; }
  Index value_panel_elements() const { return r_.value_words(padded_columns_) * kernels::kPanel; }
  Index panels_of_place() const { return by_block_ ? std::min(largest_unit_, kernels::kBlockPanels) : largest_unit_; }
  Index place_of(const Unit& unit, Index panel) const {
    return unit.first_panel + (by_block_ ? panel % kernels::kBlockPanels : panel);
  }
  // Panels that are there at a time.
  Index most_panels(int workers) {
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

  void pack(const Runtime& runtime, Index wave_panels) {
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

  void pack_panels(const Unit& unit, Index panel, Index count) const {
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

  const ResolvedAttention<T>& r_;
  bool by_block_;
  Index padded_columns_;
  Index largest_unit_ = 0;
  Index max_wave_panels_;
  Workspace<T> keys_;
  Workspace<T> values_;
  Workspace<std::uint8_t> finite_;
  List<Unit> units_;
  Index next_unit_ = 0;
};

}  // namespace internal
}  // namespace v0
}  // namespace regard
