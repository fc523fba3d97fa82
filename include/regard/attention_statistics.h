// SPDX-License-Identifier: Apache-2.0
//
// What an attention does, without its (L, S) weights ever being stored: numbers of each row that ride along in the
// forward pass, the weight on each key, summed over the queries, and a pooled map of the whole.
//
//     attention_with_statistics(query, key, value, {.context = …, .row_max = m, .row_sum = l}, {.top_keys = …},
//     options) attention_columns(query, key, {.row_max = m, .row_sum = l}, {.key_mass = …, .pooled_map = …},
//     options)
//
//     entropy[i]         = −Σ_j p ln p                                        in nats, p = weights[i, j]
//     mean_distance[i]   = Σ_j p · |p_i − j|                                  p_i the position of the row
//     chosen_weight[i]   = Σ_j p over the chosen keys                          of all rows, or of this row
//     key_mass[j]     = Σ_i weights[i, j]                                   heavy hitters are its largest entries
//     pooled_map[a, b]   = mean (or sum) of weights[i, j] over the rows i of strip a and the columns j of strip b
//     strip a of G over L  = ⌊a·L/G⌋ … ⌊(a+1)·L/G⌋ − 1
//
// Single rows, columns and tiles are attention_weights (attention.h) of chosen rows and keys.
// Read next: src/attention/row_statistics.cpp, src/attention/attention_columns.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

inline constexpr Index kAttentionMostTopKeys = 63;

// Whether the ranges of AttentionStatistics::chosen_ranges count from key 0 or from the position of the row.
enum class ChosenOrigin { key_zero, position };

// What is asked for and written; a view that is absent is not computed. Keys are the columns of the weights; the
// chosen keys and distances count from the first key of each packed sequence. chosen_keys chooses the same keys for
// every row, chosen_ranges the keys begin … end − 1 for each; give one of them. Keys outside 0 … S − 1 are absent and
// have no weight, and a range whose end is not above its begin has none.
//
//     the key before the row (previous token)    chosen_ranges {−1, 0},         chosen_origin = position
//     induction over a text of period n          chosen_ranges {1 − n, 2 − n},  chosen_origin = position
//     one key k[i] for row i, −1 for none        chosen_ranges[0][i] = {k[i], k[i] + 1}
struct AttentionStatistics {
  InputView<1> chosen_keys{};    // int32 or int64, distinct, ≥ 0, in any order
  InputView<3> chosen_ranges{};  // int32 or int64 (B|1, L|1, 2): begin, end of each row
  ChosenOrigin chosen_origin = ChosenOrigin::key_zero;
  OutputView<4> top_keys{};        // int64 (B, H, L, k), 1 ≤ k ≤ 63: by weight, then by lower key; missing: −1
  OutputView<4> top_weights{};     // (B, H, L, k), with top_keys: their weights; missing: 0
  OutputView<3> entropy{};         // (B, H, L)
  OutputView<3> largest_weight{};  // (B, H, L)
  OutputView<3> chosen_weight{};   // (B, H, L): Σ weights of the chosen keys
  OutputView<3> mean_distance{};   // (B, H, L)
  // Means of these over the rows that see a key; 0 where no row does.
  OutputView<2> head_entropy{};         // (B, H)
  OutputView<2> head_largest_weight{};  // (B, H)
  OutputView<2> head_chosen_weight{};   // (B, H)
  OutputView<2> head_mean_distance{};   // (B, H)
};

// attention_forward, and the statistics of its rows in the same pass. Asking moves no bit of the outputs.
// Weights (top, largest, chosen) have the bits of attention_weights, chosen ones summed in double, in the order of the
// keys, and rounded once.
// |error| of entropy ≤ u · (32 + 4√D · …) · (1 + entropy + ln row_sum) and of mean_distance ≤ that of a context whose
// values are the distances (attention.h). A row that sees no key: keys −1, all else 0. A row of NaN: keys −1, all else
// NaN. A visible key whose score is −∞ counts as missing. A sink takes its share of the weights and is no key.
// Memory: O(L) beside attention_forward's, 150 KB a thread. The same bits for any threads, executor, batch and strides.
// Throws like attention_forward; std::invalid_argument also for k out of range, for chosen_keys that are negative or
// not distinct, and for chosen_keys and chosen_ranges together.
REGARD_EXPORT void attention_with_statistics(const InputView<4>& query, const InputView<4>& key,
                                             const InputView<4>& value, const AttentionOutputs& outputs,
                                             const AttentionStatistics& statistics,
                                             const AttentionOptions& options = {}, const Runtime& runtime = {});

enum class CoarseCells {
  means,  // of all weights of the cell, the zeros of invisible keys included
  sums    // of them: the cells of a row of the map sum to its number of queries that see a key, less what sinks take
};

struct ColumnsRequest {
  InputView<3> row_max{};  // (B, H, L), as attention_forward wrote it
  InputView<3> row_sum{};  // (B, H, L)
  CoarseCells cells = CoarseCells::means;
};

// What is written; a view that is absent is not computed.
struct AttentionColumns {
  OutputView<3> key_mass{};    // (B, H, S)
  OutputView<4> pooled_map{};  // (B, H, Ga, Gb), 1 ≤ Ga ≤ L, 1 ≤ Gb ≤ S
};

// One pass over query and key, with the weights' own bits: row by row in order, summed in double and rounded once.
//   query (B, H, L, D), key (B, Hkv, S, D), as in the forward call, of the same types; options likewise.
// NaN weights make their sums NaN. Memory: the packed keys, 8 bytes a cell of the map and a little for each thread and
// 1024 keys; nothing that grows with L · S. The same bits for any threads, executor, batch and strides.
// Throws like attention_forward; std::invalid_argument also for a map with more strips than rows or keys.
REGARD_EXPORT void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                                     const AttentionColumns& outputs, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

}  // namespace regard::inline v0
