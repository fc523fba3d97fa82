// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention statistics: summaries of the weights of an attention call, computed without storing the (L, S) weights.
///
/// @code{.unparsed}
/// entropy[i]         = −Σ_j p ln p               in nats, p = weights[i, j]
/// mean_distance[i]   = Σ_j p · |p_i − j|         p_i the position of the row
/// chosen_weight[i]   = Σ_j p over the chosen keys, either the same for all rows or specific to row i
/// key_mass[j]        = Σ_i weights[i, j]         heavy hitters are its largest entries
/// pooled_map[a, b]   = mean (or sum) of weights[i, j] over the rows i of strip a and the columns j of strip b
/// strip a of G over L = ⌊a·L/G⌋ … ⌊(a+1)·L/G⌋ − 1
/// @endcode
/// - attention_with_statistics() computes the statistics of rows during the forward pass.
/// - attention_columns() computes the key mass and the pooled map from query, key, row_max and row_sum.
/// - attention_weights() (attention.h) computes single rows, columns and tiles of the weights.
///
/// Names and extents are as in attention.h. Contract: docs/reference/semantics.md.
///
/// Read next: src/attention/row_statistics.cpp, src/attention/attention_columns.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

/// Maximum number of keys per row that AttentionStatistics::top_keys can hold.
inline constexpr Index kMaxTopKeys = 63;

/// Origin from which the keys in AttentionStatistics::chosen_ranges are counted.
enum class ChosenOrigin {
  /// Key 0 (of each packed sequence).
  key_zero,
  /// The position of the row.
  position
};

/// Attention statistics to compute. A statistic whose view is absent is not computed.
///
/// - Keys in top_keys are columns of the weights. Chosen keys and distances are counted from the first key of each
///   packed sequence.
/// - chosen_keys selects the same keys for every row; chosen_ranges selects a range of keys for each row. Give at most
///   one of them.
/// - Chosen keys outside 0 … S − 1 have weight 0, as does a range whose end is not greater than its begin.
/// - Outputs other than top_keys are of the compute type (double if query is double, else float).
///
/// Examples of chosen_ranges:
/// @verbatim
/// the previous key (previous token)          chosen_ranges {−1, 0},         chosen_origin = position
/// induction in a text with period n          chosen_ranges {1 − n, 2 − n},  chosen_origin = position
/// one key k[i] for row i, −1 for none        chosen_ranges[0][i] = {k[i], k[i] + 1}
/// @endverbatim
struct AttentionStatistics {
  /// Chosen keys of all rows: int32 or int64, distinct, at least 0, in any order.
  InputView<1> chosen_keys{};
  /// Chosen keys of each row, `begin` … `end − 1`: int32 or int64, (B or 1, L or 1, 2).
  ///
  /// The last axis is (begin, end). An extent of 1 applies to all batch entries, or to all rows.
  InputView<3> chosen_ranges{};
  /// Origin from which the keys in chosen_ranges are counted.
  ChosenOrigin chosen_origin = ChosenOrigin::key_zero;
  /// Keys with the largest weights: int64, (B, H, L, k), `1 ≤ k ≤ 63`; missing entries are −1.
  ///
  /// They are sorted by decreasing weight; keys with equal weights are in increasing order.
  OutputView<4> top_keys{};
  /// Weights of top_keys, (B, H, L, k); only together with top_keys; missing entries are 0.
  OutputView<4> top_weights{};
  /// Entropy of the weights in nats, (B, H, L).
  OutputView<3> entropy{};
  /// Largest weight, (B, H, L).
  OutputView<3> largest_weight{};
  /// Sum of the weights of the chosen keys, (B, H, L).
  OutputView<3> chosen_weight{};
  /// Mean distance between the position of the row and the keys, weighted by the softmax weights, (B, H, L).
  OutputView<3> mean_distance{};
  /// Mean of entropy over the rows that have a visible key, (B, H); 0 if there is no such row.
  OutputView<2> head_entropy{};
  /// Mean of largest_weight over the rows that have a visible key, (B, H); 0 if there is no such row.
  OutputView<2> head_largest_weight{};
  /// Mean of chosen_weight over the rows that have a visible key, (B, H); 0 if there is no such row.
  OutputView<2> head_chosen_weight{};
  /// Mean of mean_distance over the rows that have a visible key, (B, H); 0 if there is no such row.
  OutputView<2> head_mean_distance{};
};

/// Computes attention as attention_forward() does and, in the same pass, statistics of its rows.
///
/// @param query       (B, H, L, D), as in attention_forward().
/// @param key         (B, Hkv, S, D), as in attention_forward().
/// @param value       (B, Hkv, S, Dv), as in attention_forward().
/// @param outputs     Views to write, as in attention_forward().
/// @param statistics  Statistics to compute, and the views to write them to.
/// @param options     As in attention_forward().
/// @param runtime     Threads, scratch memory, cancellation and progress.
///
/// Writes every view given in outputs and statistics.
/// - For a row with no visible key, top_keys are −1 and all other statistics are 0.
/// - For a row whose weights are NaN, top_keys are −1 and all other statistics are NaN (chosen_weight only if keys are
///   chosen).
/// - A visible key whose score is −∞ is treated as missing.
/// - A sink takes a share of the total weight, but is not a key.
///
/// @throws InvalidArgument  as attention_forward() does, and in any of the following cases:
///                          - k is out of range, or top_weights is given without top_keys
///                          - chosen_keys are negative or not distinct, or are given together with chosen_ranges
///                          - the compute type is float and a sequence has 2³¹ keys or more
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// The results are bit-identical for any number of threads, any executor, any batch size and any strides. The outputs
/// are bit-identical with and without statistics.
/// @par
/// Weights (top, largest, chosen) are bit-identical to those of attention_weights(). The weights of the chosen keys are
/// summed in double, in key order, and the sum is rounded once.
///
/// @par Error
/// With f = `u · (32 + 4√D · max_j(…))` as in attention_forward(), the error of entropy is at most
/// `f · (1 + entropy + ln row_sum)`. The error of mean_distance is at most that of a context whose values are the
/// distances.
///
/// @par Memory
/// The statistics need O(L) scratch memory and 150 KB per thread, in addition to the scratch memory of
/// attention_forward().
///
/// @par Example
/// @code{.cpp}
/// attention_with_statistics(query, key, value, {.context = context, .row_max = row_max, .row_sum = row_sum},
///                           {.top_keys = top_keys, .entropy = entropy}, {.causal = true});
/// @endcode
REGARD_EXPORT void attention_with_statistics(const InputView<4>& query, const InputView<4>& key,
                                             const InputView<4>& value, const AttentionOutputs& outputs,
                                             const AttentionStatistics& statistics,
                                             const AttentionOptions& options = {}, const Runtime& runtime = {});

/// Contents of a cell of AttentionColumns::pooled_map.
enum class MapCells {
  /// Mean of all weights in the cell, including the zeros of invisible keys.
  means,
  /// Sum of all weights in the cell. A row of the map then sums to the number of its queries that have a visible key,
  /// minus the weights of sinks.
  sums
};

/// Softmax state from which attention_columns() computes the weights, and the kind of cells.
struct ColumnsRequest {
  /// Largest score of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_max{};
  /// Sum of exponentials of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_sum{};
  /// Means or sums in the pooled map.
  MapCells cells = MapCells::means;
  /// Keys to compute, `begin` … `end − 1`. If not set, all keys are computed.
  ///
  /// Nothing is written for other keys. Their elements have no effect, and neither do rows to which none of the
  /// selected keys is visible. With a pooled map, the keys must form whole strips of columns.
  std::optional<std::array<Index, 2>> keys{};
};

/// Views that attention_columns() writes, of the compute type. A result whose view is absent is not computed.
struct AttentionColumns {
  /// Sum of the weights of each key over all queries, (B, H, S).
  OutputView<3> key_mass{};
  /// Pooled map of the weights, (B, H, Ga, Gb), with `1 ≤ Ga ≤ L` and `1 ≤ Gb ≤ S`.
  OutputView<4> pooled_map{};
};

/// Computes the key mass and the pooled map of the weights in one pass over query and key.
///
/// @param query    (B, H, L, D), as in the forward call, of the same type.
/// @param key      (B, Hkv, S, D), as in the forward call, of the same type.
/// @param request  Softmax state and kind of cells.
/// @param outputs  Views to write.
/// @param options  As in the forward call.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes every view given in outputs. Sums that include a NaN weight are NaN.
///
/// @throws InvalidArgument  as attention_forward() does, if a map has more strips than rows or keys, and if
///                          ColumnsRequest::keys is not a valid range of keys or splits a strip.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// The results are bit-identical for any number of threads, any executor, any batch size, any strides and any
/// ColumnsRequest::keys. The weights are bit-identical to those of attention_weights(). They are summed row by row, in
/// order, in double, and each sum is rounded once.
///
/// @par Memory
/// Scratch memory holds the packed keys, 8 bytes per cell of the map, and a small amount per thread and per chunk of
/// 1024 keys. A map needs up to `8 · Ga · (Gb + number of chunks)` additional bytes per query head. The weights are
/// never stored.
///
/// @par Example
/// @code{.cpp}
/// attention_columns(query, key, {.row_max = row_max, .row_sum = row_sum},
///                   {.key_mass = key_mass, .pooled_map = pooled_map}, {.causal = true});
/// @endcode
REGARD_EXPORT void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                                     const AttentionColumns& outputs, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

}  // namespace regard::inline v0
