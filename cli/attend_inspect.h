// SPDX-License-Identifier: Apache-2.0
//
// `regard attend --inspect`: how much attention the keys of each head receive, in memory linear in queries and keys.
//
//     row_max, row_sum ── attention_columns() ──▶ key_mass, pooled_map ──▶ text or JSON on standard output
//                                                                       └──▶ --save FOLDER
//
// Read next: docs/guide/inspection.md, regard/explain/inspection_report.h, regard/attention_statistics.h.
#pragma once

#include <filesystem>

#include "attend_options.h"
#include "regard/attention_statistics.h"
#include "regard/explain/inspection_report.h"

namespace regard::program {

// Rows and columns of the pooled maps of queries (B, H, L, D) and keys (B, Hkv, S, D).
// Throws std::invalid_argument if there are more cells than queries or keys, or if there is nothing to inspect.
std::array<Index, 2> inspect_cells(const InspectSettings& settings, const std::array<Index, 4>& query,
                                   const std::array<Index, 4>& key);

// The size of sums, maps and statistics, without the keys that attention_columns packs. In double, so that no product
// can overflow.
double inspect_bytes(const std::array<Index, 4>& query, Index num_keys, const std::array<Index, 2>& cells,
                     Index bytes_per_number, Index num_top_keys, bool of_rows);
// The number of top keys per row, for top_keys.npy.
Index row_top_keys(const InspectSettings& settings, Index num_keys);

// Statistics of rows and heads from the forward pass. Arrays of rows are only for files.
template <class T>
struct RowStatistics {
  Tensor<Index, 4> top_keys;
  Tensor<T, 4> top_weights;
  Tensor<T, 3> entropy, largest_weight, mean_distance;
  Tensor<T, 2> head_entropy, head_largest_weight, head_mean_distance;

  RowStatistics() = default;
  RowStatistics(const std::array<Index, 3>& rows, Index num_top_keys, bool of_rows);
  AttentionStatistics views();
};

template <class T>
struct Inspected {
  Tensor<T, 3> key_mass;
  Tensor<T, 4> pooled_map;
  Inspection heads;
};

// The maximum number of pictures that --save writes, one for each head: head-3.png, or batch-1-head-3.png.
inline constexpr Index kMaxPictures = 1000;
// Throws std::runtime_error naming the file.
void write_pictures(const Inspection& heads, const InputView<4>& pooled_map, MapScale scale,
                    const std::filesystem::path& folder, OutputFiles& files);

// query, key and options as in the call to attention_forward that wrote row_max and row_sum.
template <class T>
Inspected<T> inspect(const TensorView<const T, 4>& query, const TensorView<const T, 4>& key,
                     const ColumnsRequest& request, const InspectSettings& settings, const std::array<Index, 2>& cells,
                     const AttentionStatistics& statistics, const AttentionOptions& options, const Runtime& runtime);

}  // namespace regard::program
