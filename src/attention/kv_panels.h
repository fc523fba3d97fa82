// SPDX-License-Identifier: Apache-2.0
//
// Interface through which the rows of a task read keys and values: in panels of 32 that were packed for the call, in a
// cache, or in the caller's tensors.
// Read next: packed_kv.h, unpacked_keys.h, attention_decode.cpp.
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

// Source of keys and values: a packed copy made for the call, a cache, or the caller's tensors. Panels of a type other
// than T are converted into `buffer`, which has space for one panel; others are read without a copy.
template <class T>
class KvPanels {
 public:
  virtual bool converted() const { return false; }
  // prepare is called before the block that starts at `panel` is read; prefetch_next plans the prefetch for the block
  // after it.
  virtual void prepare(const KvHead&, Index) const {}
  virtual void prefetch_next(const KvHead&, Index, kernels::PrefetchPlan&) const {}
  virtual const T* key_panel(const KvHead& kv_head, Index panel, T* buffer) const = 0;
  virtual const T* value_panel(const KvHead& kv_head, Index panel, T* buffer) const = 0;
  virtual bool finite(const KvHead& kv_head, Index panel) const = 0;  // true if every value of the panel is finite

  // If stored() is true, tasks of few rows read the block of panels that starts at `panel` as it is stored. follows:
  // `block` holds the preceding block, and its `next` panels are the ones requested.
  virtual bool stored() const { return false; }
  virtual void find_stored_keys(const KvHead&, Index, bool, kernels::StoredPanels&) const {}
  virtual void find_stored_values(const KvHead&, Index, bool, kernels::StoredPanels&) const {}

 protected:
  ~KvPanels() = default;
};

}  // namespace regard::inline v0::internal
