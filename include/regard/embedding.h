// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding lookup for tokens and positions, which gathers rows of a table by index, and the gradient of the table.
///
/// @code{.unparsed}
/// output[r]     = table[indices[r]]
/// grad_table[v] = Σ grad_output[r] over the rows r with indices[r] = v
/// @endcode
///
/// Extents: R rows, for example the tokens of all sequences of a batch; V rows of the table, for example the
/// vocabulary; E elements per row.
///
/// Derivation: output = P · table, with P[r, indices[r]] = 1 and 0 elsewhere, so grad_table = Pᵀ · grad_output.
///
/// Read next: src/layers/embedding.cpp.
#pragma once

#include <type_traits>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Options for embedding_forward().
struct EmbeddingOptions {
  /// Whether to add to the contents of output, for example to add position embeddings to token embeddings. Each sum is
  /// rounded once.
  bool accumulate = false;
};

/// Copies a row of a table for each index.
///
/// @tparam T       float, double or bfloat16.
/// @param table    (V, E), any strides.
/// @param indices  (R), any stride: row indices in the table, from 0 to V − 1.
/// @param output   (R, E), any strides. It must not overlap an input.
/// @param options  Flag that selects accumulation.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output, or adds to it.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. For an index that is out of range, the
///                          message states its row and its value.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// embedding_forward<float>(token_table, tokens, embedded);
/// embedding_forward<float>(position_table, positions, embedded, {.accumulate = true});
/// @endcode
template <class T>
REGARD_EXPORT void embedding_forward(std::type_identity_t<TensorView<const T, 2>> table,
                                     TensorView<const Index, 1> indices, TensorView<T, 2> output,
                                     const EmbeddingOptions& options = {}, const Runtime& runtime = {});

/// The view that embedding_backward() writes.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct EmbeddingGradients {
  /// Gradient of the table, (V, E). It must not overlap an input.
  TensorView<T, 2> grad_table{};
  /// Whether to add to the contents of grad_table. Rows to which no index refers are then unchanged; otherwise they are
  /// set to 0.
  bool accumulate = false;
  /// Number of rows of grad_output per group; each group is summed separately. If 0, all rows form one group.
  ///
  /// Rows 0 … rows_per_group − 1 are the first group, and so on. The sum of each group is rounded to float or double,
  /// and the sums are added in order, starting from 0 or, with accumulate, from the contents of the view. One call over
  /// a batch is therefore bit-identical to several accumulating calls, each over whole groups. bfloat16 gradients are
  /// an exception: they are rounded at the end of each call, so one call rounds less often.
  Index rows_per_group = 0;
};

/// Computes the gradient of an embedding table.
///
/// The formula is at the top of this file.
///
/// @tparam T           float, double or bfloat16.
/// @param indices      (R), as in embedding_forward().
/// @param grad_output  (R, E), any strides.
/// @param gradients    View to write, and a flag that selects accumulation.
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes grad_table, or adds to it.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. For an index that is out of range, the
///                          message states its row and its value.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// Rows of a group with the same index are added in order, in double, and rounded once to the compute type. Results are
/// bit-identical for any number of threads and every instruction set.
///
/// @par Example
/// @code{.cpp}
/// embedding_backward<float>(tokens, grad_embedded, {.grad_table = grad_table, .accumulate = true});
/// @endcode
template <class T>
REGARD_EXPORT void embedding_backward(TensorView<const Index, 1> indices,
                                      std::type_identity_t<TensorView<const T, 2>> grad_output,
                                      const std::type_identity_t<EmbeddingGradients<T>>& gradients,
                                      const Runtime& runtime = {});

}  // namespace regard::inline v0
