// SPDX-License-Identifier: Apache-2.0
//
// What the attention operators report while a plan is being made.
// Read next: runtime/plan.h.
#pragma once

#include <string>

#include "arguments.h"
#include "runtime/plan.h"

namespace regard::inline v0::internal {

// Bytes of the elements of a view, which may be absent.
template <int Rank>
double view_bytes(const OutputView<Rank>& view) {
  return view.absent() ? 0 : static_cast<double>(view.size()) * static_cast<double>(type_bytes(view.type));
}
template <class T, int Rank>
double view_bytes(const TensorView<T, Rank>& view) {
  return view.absent() ? 0 : static_cast<double>(view.size()) * sizeof(T);
}
template <class T>
double output_bytes(const TypedOutputs<T>& o) {
  double context = static_cast<double>(type_bytes(o.context.type));
  for (Index extent : o.context.shape) context *= static_cast<double>(extent);
  return context + view_bytes(o.row_max) + view_bytes(o.row_sum) + view_bytes(o.lse) + view_bytes(o.weights) +
         view_bytes(o.sink_weights);
}

// Reports the (query, key) pairs visible under causal, window, prefix and lengths: 2·D operations each, and 2·Dv more
// with values. key_bytes and value_bytes are bytes per element read; value_bytes is 0 without values.
void plan_attention(const char* name, const UntypedAttention& r, Index key_bytes, Index value_bytes,
                    std::string strategy, double written_bytes);

// The same pairs in five products: 2·(3·D + 2·Dv) operations per pair.
void plan_backward(const char* name, const UntypedAttention& r, double written_bytes);

}  // namespace regard::inline v0::internal
