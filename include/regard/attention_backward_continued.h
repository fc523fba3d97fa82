// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backward pass over a subset of the rows: the results of several consecutive calls are bit-identical to those of one
/// call over all rows.
///
/// @verbatim
///     rows                                  sums of grad_key, grad_value
///     0 … 119      first call               zero  ──▶ rows 0 … 119
///     120 … 299    second call                        ──▶ rows 0 … 299         = attention_backward over all rows
/// @endverbatim
///
/// A gradient that is a sum over rows is computed in a fixed order. These functions resume the sum where the previous
/// call stopped. By contrast, the accumulation of attention_backward() adds one complete sum to another, which produces
/// different bits. Ranks that each compute a subset of the rows use these functions (regard/distributed/attention.h).
///
/// Derivation: docs/derivations/ranks.md. Read next: src/attention/attention_backward_continued.cpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "regard/attention_backward.h"

namespace regard::inline v0 {

/// Granularity of attention_backward_continued(): its calls start at multiples of this number of rows, counted from the
/// first row of each batch entry or packed sequence.
inline constexpr Index kBackwardRows = 60;

/// Gradients of a subset of the rows. A gradient whose view is absent is not computed.
struct ContinuedGradients {
  OutputView<4> grad_query{};     ///< (B, H, L, D), complete for these rows; of the compute type or the type of query.
  bool accumulate_query = false;  ///< Whether to add to grad_query; see AttentionAccumulation::grad_query.
  OutputView<4> key_sums{};       ///< Sums of grad_key, (B, Hkv, S, D), of the compute type; read and written.
  OutputView<4> value_sums{};     ///< Sums of grad_value, (B, Hkv, S, Dv), of the compute type; read and written.
  OutputView<4> bias_sums{};      ///< Sums of grad_bias, (B, H, L, S), in double; the extent of a summed axis is 1.
  OutputView<1> sink_sums{};      ///< Sums of grad_sinks, (H), in double.
  /// Ranges of keys to process one after another, as returned by backward_key_starts(). If empty, all keys are
  /// processed at once. The memory that the span refers to must stay valid until the call returns.
  std::span<const Index> key_starts{};
  /// Called before the sums of a range of keys are read from key_sums and value_sums. The argument is the index of the
  /// range.
  std::function<void(Index)> before_range{};
  /// Called after the sums of a range of keys have been written to key_sums and value_sums.
  std::function<void(Index)> after_range{};
};

/// Adds the contributions of a subset of the rows to the running sums of the backward pass.
///
/// @param query      (B, H, L, D), the rows of this call.
/// @param key        As in attention_backward().
/// @param value      As in attention_backward().
/// @param saved      The saved state of these rows. The fingerprint is not checked.
/// @param gradients  Views to write. Sums must be zero before the first call; they are complete after the last.
/// @param options    Options for these rows, including their positions. weights_in_float32 defaults to true.
/// @param runtime    Threads, scratch memory and cancellation.
///
/// @throws InvalidArgument  as attention_backward() does, and if key_starts was not returned by backward_key_starts().
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The results are bit-identical to those of one attention_backward() call over all rows if the rows are added in this
/// order:
/// - key_sums, value_sums: by query head of each key/value head and, within a query head, by row. Each call covers one
///   query head per key/value head, or all rows. Calls start at multiples of kBackwardRows.
/// - bias_sums: by batch entry, head and row, insofar as these axes are summed. If rows are summed, calls start at
///   multiples of kBackwardRows.
/// - sink_sums: by batch entry and row.
///
/// @par Example
/// @code{.cpp}
/// attention_backward_continued(first_rows, key, value, first_saved, {.grad_query = first, .key_sums = sums}, options);
/// @endcode
REGARD_EXPORT void attention_backward_continued(const InputView<4>& query, const InputView<4>& key,
                                                const InputView<4>& value, const AttentionForwardState& saved,
                                                const ContinuedGradients& gradients,
                                                const AttentionOptions& options = {}, const Runtime& runtime = {});

/// Returns ranges of keys that attention_backward_continued() can process one after another.
///
/// The data pointers of all views are ignored.
///
/// @param query     As in attention_backward_continued(); any rows.
/// @param key       As in attention_backward_continued().
/// @param value     As in attention_backward_continued().
/// @param saved     As in attention_backward_continued(); only its types are used.
/// @param options   As in attention_backward_continued().
/// @param min_keys  Minimum number of keys in each range except the last.
/// @return The first key of each range, followed by S.
/// @throws InvalidArgument  as attention_backward_continued() does, for query, key, value and options.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<Index> starts = backward_key_starts(query, key, value, saved, options, 4096);
/// @endcode
REGARD_EXPORT std::vector<Index> backward_key_starts(const InputView<4>& query, const InputView<4>& key,
                                                     const InputView<4>& value, const AttentionForwardState& saved,
                                                     const AttentionOptions& options, Index min_keys);

/// Writes a complete gradient, or adds it to the contents of an output.
///
/// @param gradient    (B, H, L, D), any strides; float or double. Unless output is double, double elements are rounded
///                    to float first.
/// @param output      Same shape, any strides; float, bfloat16 or float16, or double if gradient is double. It must not
///                    overlap gradient.
/// @param accumulate  Whether to add to the contents of output; see AttentionAccumulation.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
///
/// @par Reproducibility
/// The output is bit-identical to that of attention_backward() with the same accumulation.
///
/// @par Example
/// @code{.cpp}
/// write_gradient(key_sums, grad_key, true);
/// @endcode
REGARD_EXPORT void write_gradient(const InputView<4>& gradient, const OutputView<4>& output, bool accumulate);

}  // namespace regard::inline v0
