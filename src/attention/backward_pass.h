// SPDX-License-Identifier: Apache-2.0
//
// The gradients of query, key and value, from delta and the softmax state of every row.
//
//     attention_backward             all rows: sums start at zero
//     attention_backward_continued   some rows: sums of keys continue those of earlier rows, range by range
//
// Read next: backward_pass.cpp.
#pragma once

#include <functional>
#include <span>

#include "backward_tiles.h"

namespace regard::inline v0::internal {

// Ranges of keys that are processed one after the other. The views of grad_key and grad_value have type T and hold sums
// over earlier rows, which are continued.
struct KeyRanges {
  std::span<const Index> starts;  // of stored keys; a whole number of rounds of all slots from the start of a sequence
  const std::function<void(Index range)>& before;
  const std::function<void(Index range)>& after;
};

// The total number of keys in one key block of each slot.
template <class T>
Index round_keys(const BackwardCall<T>& call);

// ranges: null if the call covers all rows.
template <class T>
void run_backward(const BackwardCall<T>& call, const TypedGradients<T>& gradients, const KeyRanges* ranges = nullptr);

}  // namespace regard::inline v0::internal
