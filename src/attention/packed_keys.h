// SPDX-License-Identifier: Apache-2.0
//
// Packed copies of key (and value), made once per call and key/value head and shared by all its query rows.
//
//     unit = one key/value head of one sequence; a wave = as many consecutive units as fit the budget
//
// Packing is a parallel phase of its own before the wave's rows are computed; or each worker packs for itself, a unit
// or a block at a time, into a place of its own. Read next: packed_keys.cpp.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "kernels/table.h"
#include "key_panels.h"
#include "runtime/workspace.h"

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

template <class T>
class PackedKeys final : public KeyPanels<T> {
 public:
  PackedKeys(const ResolvedAttention<T>& r, const Runtime& runtime, const OwnPacking& own = {});

  Index padded_columns() const { return padded_columns_; }
  Index num_units() const { return static_cast<Index>(r_.sequences.size()) * r_.num_key_heads; }
  Index largest_unit_bytes() const;
  Unit unit_at(Index number, Index first_panel) const;

  // A unit in the worker's place. Only where workers pack for themselves …
  Unit own_unit(Index number, int worker) const;

  // … and these only where waves are.
  bool done() const { return next_unit_ == num_units(); }
  // Packs the next wave and returns its units.
  const List<Unit>& next_wave(const Runtime& runtime);

  void prepare(const Unit& unit, Index panel) const override;
  void fetch_next(const Unit& unit, Index panel, kernels::FetchAhead& ahead) const override;
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
  Index most_panels(int workers);
  void pack(const Runtime& runtime, Index wave_panels);
  void pack_panels(const Unit& unit, Index panel, Index count) const;

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
