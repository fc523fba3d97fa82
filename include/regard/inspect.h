// SPDX-License-Identifier: Apache-2.0
//
// What the keys of an attention receive, without its (L, S) weights ever being stored: the weight on each key, summed
// over the queries, and a coarse map of the whole.
//
//     attention_forward(query, key, value, {.context = …, .row_max = m, .row_sum = l}, options)
//     attention_columns(query, key, {.row_max = m, .row_sum = l}, {.column_mass = …, .coarse_map = …}, options)
//
//     column_mass[j]     = Σ_i weights[i, j]                                   heavy hitters are its largest entries
//     coarse_map[a, b]   = mean (or sum) of weights[i, j] over the rows i of strip a and the columns j of strip b
//     strip a of G over L  = ⌊a·L/G⌋ … ⌊(a+1)·L/G⌋ − 1
//
// Single rows, columns and tiles are attention_weights (attention.h) of chosen rows and keys.
// Read next: src/attention_columns.cpp.
#pragma once

#include "regard/attention.h"

namespace regard {
inline namespace v0 {

enum class CoarseCells {
  means,  // of all weights of the cell, the zeros of invisible keys included
  sums    // of them: the cells of a row of the map sum to its number of queries that see a key
};

template <class T>
struct ColumnsRequest {
  TensorView<const T, 3> row_max{};  // (B, H, L), as attention_forward wrote it
  TensorView<const T, 3> row_sum{};  // (B, H, L)
  CoarseCells cells = CoarseCells::means;
};

// What is written; a view that is absent is not computed.
template <class T>
struct AttentionColumns {
  TensorView<T, 3> column_mass{};  // (B, H, S)
  TensorView<T, 4> coarse_map{};   // (B, H, Ga, Gb), 1 ≤ Ga ≤ L, 1 ≤ Gb ≤ S
};

// One pass over query and key, with the weights' own bits: row by row in order, summed in double and rounded once.
//   query (B, H, L, D), key (B, Hkv, S, D), as in the forward call, of the same types; options likewise.
// NaN weights make their sums NaN. Memory: the packed keys, 8 bytes a cell of the map and a little for each thread and
// 1024 keys; nothing that grows with L · S. The same bits for any threads, executor, batch and strides.
// Throws like attention_forward; std::invalid_argument also for a map with more strips than rows or keys.
template <class T>
REGARD_EXPORT void attention_columns(const std::type_identity_t<InputView<T, 4>>& query,
                                     const std::type_identity_t<InputView<T, 4>>& key,
                                     const std::type_identity_t<ColumnsRequest<T>>& request,
                                     const AttentionColumns<T>& outputs,
                                     const std::type_identity_t<AttentionOptions<T>>& options = {},
                                     const Runtime& runtime = {});

}  // namespace v0
}  // namespace regard
