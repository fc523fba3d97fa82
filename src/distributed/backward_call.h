// SPDX-License-Identifier: Apache-2.0
//
// attention_backward over several ranks: one call on all of them, and its computations in order.
//
//   run_by_heads or run_by_rows     grad_query, grad_key, grad_value       attention_backward.cpp
//   write_grad_bias                 grad_bias                              broadcast_gradients.cpp
//   write_grad_sinks                grad_sinks, with the scheme rows       broadcast_gradients.cpp
//
// Read next: attention_backward.cpp.
#pragma once

#include "backward_plan.h"
#include "call_arrays.h"
#include "regard/attention_backward_continued.h"

namespace regard::inline v0::internal {

struct BackwardOnRanks {
  const InputView<4>&query, &key, &value;
  const AttentionForwardState& saved;
  const AttentionGradients& gradients;
  const AttentionOptions& options;
  const WholeCall& call;
  bool bias_summed_over_rows;
  Ranks& ranks;
  const Runtime& runtime;

  ElementType compute_type() const { return query.type == ElementType::float64 ? query.type : ElementType::float32; }
};

// The arrays of rows and keys from which gradients are computed, by their indices among those that are sent.
struct BackwardInputs {
  std::size_t query, key, value, context, row_max, row_sum, grad_context, grad_lse;

  BackwardInputs(CallArrays& arrays, const BackwardOnRanks& of)
      : query(arrays.row_input(of.query, of.call)),
        key(arrays.input(held(of.key, of.call.keys.first), HeldIndices::keys, ArrayHeads::key_value)),
        value(arrays.input(held(of.value, of.call.keys.first), HeldIndices::keys, ArrayHeads::key_value)),
        context(arrays.row_input(of.saved.context, of.call)),
        row_max(arrays.row_input(of.saved.row_max, of.call)),
        row_sum(arrays.row_input(of.saved.row_sum, of.call)),
        grad_context(arrays.row_input(of.saved.grad_context, of.call)),
        grad_lse(arrays.row_input(of.saved.grad_lse, of.call)) {}
  // The saved state of some of the rows.
  AttentionForwardState saved(const LocalArrays& in, const IndexRange& rows) const {
    return {.context = rows_of(in.input(context), rows),
            .row_max = rows_of(in.input3(row_max), rows),
            .row_sum = rows_of(in.input3(row_sum), rows),
            .grad_context = rows_of(in.input(grad_context), rows),
            .grad_lse = rows_of(in.input3(grad_lse), rows),
            .fingerprint = kUncheckedFingerprint};
  }
};

// One head of a view of rows, or one batch entry.
template <class View>
View head_of(const View& view, Index head) {
  return cut(view, 1, head, 1);
}
template <class View>
View entry_of(const View& view, Index batch) {
  return cut(view, 0, batch, 1);
}

void write_grad_bias(const BackwardOnRanks& of);
void write_grad_sinks(const BackwardOnRanks& of);

}  // namespace regard::inline v0::internal
