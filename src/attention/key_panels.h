// SPDX-License-Identifier: Apache-2.0
//
// Where the rows of a task find keys and values: in panels of 32, packed for the call, in a cache, or in the caller's
// tensors. Read next: packed_keys.h, unpacked_keys.h, attention_decode.cpp.
#pragma once

#include "kernels/table.h"
#include "regard/tensor.h"

namespace regard {
inline namespace v0 {
namespace internal {

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

}  // namespace internal
}  // namespace v0
}  // namespace regard
