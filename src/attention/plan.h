// SPDX-License-Identifier: Apache-2.0
//
// What the attention operators say of themselves while a plan is made. Read next: plan.h.
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

// Every query with every key that it sees by causal, window, prefix and lengths: 2·D operations, and 2·Dv with values.
// Keys and values are read with so many bytes an element; value_bytes is 0 where there are no values.
void plan_attention(const char* name, const UntypedAttention& r, Index key_bytes, Index value_bytes, std::string way,
                    double written_bytes);

// The same queries and keys in five products: 2·(3·D + 2·Dv) operations for each pair.
void plan_backward(const char* name, const UntypedAttention& r, double written_bytes);

}  // namespace regard::inline v0::internal
