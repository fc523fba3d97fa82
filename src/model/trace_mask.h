// SPDX-License-Identifier: Apache-2.0
//
// Shared by encode(), decode_trace() and the views of their traces: a trace viewed as a batch of one, and the keys that
// are visible.
//
//     hidden key 1        encoder     1 0 1        decoder     1 0 0
//                                     1 0 1        (causal)    1 0 0
//                                     1 0 1                    1 0 1
//
// Read next: trace.cpp.
#pragma once

#include <memory>
#include <span>

#include "regard/attention.h"

namespace regard::inline v0 {

// (H, L, D) viewed as (1, H, L, D).
template <class T, int Rank>
TensorView<T, Rank + 1> one_batch(TensorView<T, Rank> view) {
  TensorView<T, Rank + 1> result;
  result.data = view.data;
  result.shape[0] = 1;
  result.strides[0] = 0;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    result.shape[axis + 1] = view.shape[axis];
    result.strides[axis + 1] = view.strides[axis];
  }
  return result;
}

// Which keys are visible: with `causal`, those up to the query's own, and none that is hidden. Hidden keys are a mask
// (1, 1, 1, L), broadcast; without any, there is no mask.
class TraceMask {
 public:
  TraceMask(Index num_keys, std::span<const Index> hidden_keys, bool causal) {
    options_.causal = causal;
    if (hidden_keys.empty() || num_keys == 0) return;
    visible_ = std::make_unique<bool[]>(static_cast<std::size_t>(num_keys));
    for (Index key = 0; key < num_keys; ++key) visible_[static_cast<std::size_t>(key)] = true;
    for (Index key : hidden_keys) visible_[static_cast<std::size_t>(key)] = false;
    options_.mask = {visible_.get(), {1, 1, 1, num_keys}};
  }
  // Valid as long as the mask exists.
  const AttentionOptions& options() const { return options_; }

 private:
  std::unique_ptr<bool[]> visible_;
  AttentionOptions options_;
};

}  // namespace regard::inline v0
