// SPDX-License-Identifier: Apache-2.0
//
// Where the rows of a task find keys and values: in panels of 32, packed for the call, in a cache, or in the caller's
// tensors. Read next: packed_kv.h, unpacked_keys.h, attention_decode.cpp.
#pragma once

#include "kernels/table.h"
#include "regard/tensor.h"

namespace regard::inline v0::internal {

struct KvHead {
  Index sequence;
  Index key_head;
  Index num_panels;   // of 32 keys, up to the sequence's key limit
  Index first_panel;  // within the packed arrays
};

// Where the rows of a task find their keys and values, packed: a copy made for the call, or a cache. Panels of another
// type than T are widened into `buffer`, which has space for one; others are read where they lie.
template <class T>
class KvPanels {
 public:
  virtual bool widened() const { return false; }
  // Called before the block of panels from `panel` on is read, and what to fetch meanwhile for the next.
  virtual void prepare(const KvHead&, Index) const {}
  virtual void prefetch_next(const KvHead&, Index, kernels::PrefetchPlan&) const {}
  virtual const T* key_panel(const KvHead& kv_head, Index panel, T* buffer) const = 0;
  virtual const T* value_panel(const KvHead& kv_head, Index panel, T* buffer) const = 0;
  virtual bool finite(const KvHead& kv_head, Index panel) const = 0;  // every value of the panel

  // Where stored() is true, tasks of few rows read the block of panels from `panel` on as it is stored. follows:
  // `block` holds the one before, whose next panels these are.
  virtual bool stored() const { return false; }
  virtual void find_stored_keys(const KvHead&, Index, bool, kernels::StoredPanels&) const {}
  virtual void find_stored_values(const KvHead&, Index, bool, kernels::StoredPanels&) const {}

 protected:
  ~KvPanels() = default;
};

}  // namespace regard::inline v0::internal
