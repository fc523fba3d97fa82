// SPDX-License-Identifier: Apache-2.0
//
// What the backward passes compute row by row: delta, and the gradient of the sinks.
//
//     delta(b, h, i)  = Σ context · grad_context − grad_lse
//     grad_sinks(h)   = −Σ over b and i of the sink's weight · delta
//
// Read next: row_gradients.cpp.
#pragma once

#include "backward_tiles.h"

namespace regard::inline v0::internal {

// Writes (B, H, L), accumulated in double.
template <class T>
void fill_delta(const ResolvedAttention<T>& r, const TypedForwardState<T>& saved, T* delta, const Runtime& runtime);

// sums[h] −= Σ over b and i of exp(sink − row_max) / row_sum · delta, summed in order in double.
template <class T>
void add_sink_gradients(const BackwardCall<T>& call, double* sums);

}  // namespace regard::inline v0::internal
