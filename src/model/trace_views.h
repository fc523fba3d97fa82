// SPDX-License-Identifier: Apache-2.0
//
// Shared by the views of a trace for encoders and decoders: checks of indices, and the products of a head's context and
// values with its rows of W_output.
//
//     head_output = context(head) · W_output(head)                 (L, E)
//     value_norms = ‖v_key · W_output(head)‖₂                      since W_output is linear and weights are ≥ 0
//
// Read next: trace.cpp, encoder/encoder_views.cpp.
#pragma once

#include <vector>

#include "regard/model/trace.h"

namespace regard::inline v0::internal {

// Throws InvalidArgument "operation: what INDEX does not exist; there are COUNT, numbered from 0".
void check_index(const char* operation, const char* what, Index index, Index count);

struct TraceExtents {
  Index num_layers;
  Index num_heads;
  Index head_size;
};
// The layer, after a check that it exists and that the trace is of a model with these extents.
const LayerTrace& checked_layer(const char* operation, const TraceExtents& extents, const ModelTrace& trace,
                                Index layer);

// One head of (H, L, D), as (L, D).
TensorView<const float, 2> of_head(const Tensor<float, 3>& tensor, Index head);
// A head's rows of (H, L, D) · its rows of w_output (H · D, E): (L, E).
Tensor<float, 2> through_output(const TensorView<const float, 2>& w_output, Index head, const Tensor<float, 3>& by_head,
                                const Runtime& runtime);
// The L2 norm of each row.
std::vector<double> row_norms(const Tensor<float, 2>& rows);
// ‖v_key · W_output(head)‖₂ of each head and key: (H, L).
Tensor<double, 2> value_norms_of(const TensorView<const float, 2>& w_output, const LayerTrace& trace,
                                 const Runtime& runtime);

}  // namespace regard::inline v0::internal
