// SPDX-License-Identifier: Apache-2.0
//
// Packed copies of key (and value), made once per call and key/value head, and shared by all its query rows.
//
//     kv_head = one key/value head of one sequence; a wave = the consecutive kv_heads that fit the budget
//
// Packing is either a separate parallel phase before the wave's rows are computed, or each worker packs for itself into
// its own buffer, one KV head or one block at a time.
// Read next: packed_kv.cpp.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "runtime/workspace.h"

namespace regard::inline v0::internal {

// Large enough for the packed keys and values of a long head, small enough to stay close to the last-level cache.
inline constexpr Index kWaveBytes = Index{32} << 20;

// Whether workers pack for themselves, and how much at a time.
struct OwnPacking {
  int workers = 0;        // 0 means that kv_heads are packed in waves shared by all workers
  bool by_block = false;  // one block of kBlockPanels at a time, on demand; otherwise a whole kv_head
};

template <class T>
class PackedKv final : public KvPanels<T> {
 public:
  PackedKv(const ResolvedAttention<T>& r, const Runtime& runtime, const OwnPacking& own = {});

  bool by_block() const { return by_block_; }
  Index padded_value_head_size() const { return padded_columns_; }
  Index num_kv_heads() const { return static_cast<Index>(r_.sequences.size()) * r_.num_kv_heads; }
  Index largest_unit_bytes() const;
  KvHead kv_head_at(Index number, Index first_panel) const;

  // If workers pack for themselves: a KV head in the worker's own buffer.
  KvHead own_kv_head(Index number, int worker) const;

  // With waves: true if every KV head has been packed.
  bool done() const { return next_kv_head_ == num_kv_heads(); }
  // Packs the next wave and returns its kv_heads.
  const ScratchVector<KvHead>& next_wave(const Runtime& runtime);

  void prepare(const KvHead& kv_head, Index panel) const override;
  void prefetch_next(const KvHead& kv_head, Index panel, kernels::PrefetchPlan& plan) const override;
  const T* key_panel(const KvHead& kv_head, Index panel, T*) const override {
    return keys_.data() + index_of(kv_head, panel) * key_panel_elements();
  }
  const T* value_panel(const KvHead& kv_head, Index panel, T*) const override {
    return values_.data() + index_of(kv_head, panel) * value_panel_elements();
  }
  bool finite(const KvHead& kv_head, Index panel) const override {
    return finite_.data()[index_of(kv_head, panel)] != 0;
  }

 private:
  Index key_panel_elements() const { return r_.head_size_words() * kernels::kPanel; }
  Index value_panel_elements() const { return r_.value_words(padded_columns_) * kernels::kPanel; }
  Index panels_per_worker() const { return by_block_ ? std::min(largest_unit_, kernels::kBlockPanels) : largest_unit_; }
  Index index_of(const KvHead& kv_head, Index panel) const {
    return kv_head.first_panel + (by_block_ ? panel % kernels::kBlockPanels : panel);
  }
  // The largest number of panels held at a time.
  Index max_panels(int workers);
  void pack(const Runtime& runtime, Index wave_panels);
  void pack_panels(const KvHead& kv_head, Index panel, Index count) const;

  const ResolvedAttention<T>& r_;
  bool by_block_;
  Index padded_columns_;
  Index largest_unit_ = 0;
  Index max_wave_panels_;
  Workspace<T> keys_;
  Workspace<T> values_;
  Workspace<std::uint8_t> finite_;
  ScratchVector<KvHead> kv_heads_;
  Index next_kv_head_ = 0;
};

}  // namespace regard::inline v0::internal
