// SPDX-License-Identifier: Apache-2.0
//
// Implements attend_inspect.h: the size of the maps, the memory needed, and the pass over the keys.
// Read next: attend_inspect.h.
#include "attend_inspect.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "progress.h"

namespace regard::program {
namespace {

constexpr Index kMaxCells = 512;  // per axis: about what a screen can show

}  // namespace

std::array<Index, 2> inspect_cells(const InspectSettings& settings, const std::array<Index, 4>& query,
                                   const std::array<Index, 4>& key) {
  const std::array<Index, 2> most{query[2], key[2]};
  for (const auto& [count, what] : {std::pair{query[0], "batch entry"}, std::pair{query[1], "head"},
                                    std::pair{most[0], "query"}, std::pair{most[1], "key"}}) {
    if (count < 1) throw std::invalid_argument(std::string("--inspect: there is no ") + what + " to inspect");
  }
  for (const Index chosen : settings.heads.track_keys) {
    if (chosen >= most[1])
      throw std::invalid_argument("--track-keys names key " + std::to_string(chosen) + ", but --key has " +
                                  std::to_string(most[1]) + " keys; keys are numbered from 0");
  }
  const std::array<Index, 2>& asked = settings.map_size;
  if (asked[0] > most[0] || asked[1] > most[1])
    throw std::invalid_argument("--map-size is " + std::to_string(asked[0]) + "," + std::to_string(asked[1]) +
                                "; expected at most " + std::to_string(most[0]) + "," + std::to_string(most[1]) +
                                ", the numbers of queries and keys");
  return {asked[0] > 0 ? asked[0] : std::min(most[0], kMaxCells),
          asked[1] > 0 ? asked[1] : std::min(most[1], kMaxCells)};
}

double inspect_bytes(const std::array<Index, 4>& query, Index num_keys, const std::array<Index, 2>& cells,
                     Index bytes_per_number, Index num_top_keys, bool of_rows) {
  const double heads = static_cast<double>(query[0]) * static_cast<double>(query[1]);
  const double map = static_cast<double>(cells[0]) * static_cast<double>(cells[1]);
  const double size = static_cast<double>(bytes_per_number);
  const double of_row = of_rows ? 3 * size + static_cast<double>(num_top_keys) * (size + sizeof(Index)) : 0;
  // The library accumulates the cells in double.
  return heads * (static_cast<double>(query[2]) * of_row +
                  static_cast<double>(num_keys) * static_cast<double>(bytes_per_number) +
                  map * static_cast<double>(bytes_per_number + Index{sizeof(double)}));
}

Index row_top_keys(const InspectSettings& settings, Index num_keys) {
  return std::min({settings.heads.top, kMaxTopKeys, num_keys});
}

template <class T>
RowStatistics<T>::RowStatistics(const std::array<Index, 3>& rows, Index num_top_keys, bool of_rows) {
  const std::array<Index, 2> heads{rows[0], rows[1]};
  for (Tensor<T, 2>* means : {&head_entropy, &head_largest_weight, &head_mean_distance}) *means = Tensor<T, 2>(heads);
  if (!of_rows) return;
  for (Tensor<T, 3>* of_row : {&entropy, &largest_weight, &mean_distance}) *of_row = Tensor<T, 3>(rows);
  if (num_top_keys == 0) return;
  const std::array<Index, 4> top{rows[0], rows[1], rows[2], num_top_keys};
  top_keys = Tensor<Index, 4>(top);
  top_weights = Tensor<T, 4>(top);
}

template <class T>
AttentionStatistics RowStatistics<T>::views() {
  AttentionStatistics views;
  views.top_keys = top_keys.view();
  views.top_weights = top_weights.view();
  views.entropy = entropy.view();
  views.largest_weight = largest_weight.view();
  views.mean_distance = mean_distance.view();
  views.head_entropy = head_entropy.view();
  views.head_largest_weight = head_largest_weight.view();
  views.head_mean_distance = head_mean_distance.view();
  return views;
}

namespace {

// key_mass (B, H|1, S) of uniform attention, in which each query gives all visible keys the same weight (all scores are
// 0). Absent if every key is visible to every query.
template <class T>
Tensor<T, 3> uniform_mass(const std::array<Index, 4>& query, Index num_keys, const AttentionOptions& options,
                          const Runtime& runtime) {
  const bool masked = options.causal || options.window.left || options.window.right || !options.key_lengths.empty() ||
                      !options.query_starts.empty() || !options.query_segments.absent() ||
                      !options.block_mask.absent() || !options.mask.absent();
  if (!masked) return {};
  AttentionOptions visible = options;
  visible.bias = {};
  visible.alibi_slopes = {};
  visible.sinks = {};
  visible.soft_cap.reset();
  visible.scale = 0.0;
  const bool by_head = (!options.mask.absent() && options.mask.shape[1] > 1) ||
                       (!options.block_mask.absent() && options.block_mask.shape[1] > 1);
  const Index batch = query[0], heads = by_head ? query[1] : 1;
  const Tensor<T, 4> zero_query({batch, heads, query[2], 1}), zero_key({batch, heads, num_keys, 1});
  Tensor<T, 4> context({batch, heads, query[2], 1});
  Tensor<T, 3> row_max({batch, heads, query[2]}), row_sum({batch, heads, query[2]}), mass({batch, heads, num_keys});
  AttentionOutputs outputs;
  outputs.context = context.view();
  outputs.row_max = row_max.view();
  outputs.row_sum = row_sum.view();
  attention_forward(zero_query.view(), zero_key.view(), zero_key.view(), outputs, visible, runtime);
  attention_columns(zero_query.view(), zero_key.view(), {.row_max = row_max.view(), .row_sum = row_sum.view()},
                    {.key_mass = mass.view()}, visible, runtime);
  return mass;
}

}  // namespace

template <class T>
Inspected<T> inspect(const TensorView<const T, 4>& query, const TensorView<const T, 4>& key,
                     const ColumnsRequest& request, const InspectSettings& settings, const std::array<Index, 2>& cells,
                     const AttentionStatistics& statistics, const AttentionOptions& options, const Runtime& runtime) {
  const auto [batch, heads, queries, head_size] = query.shape;
  Inspected<T> inspected{
      Tensor<T, 3>({batch, heads, key.shape[2]}), Tensor<T, 4>({batch, heads, cells[0], cells[1]}), {}};
  attention_columns(query, key, request,
                    {.key_mass = inspected.key_mass.view(), .pooled_map = inspected.pooled_map.view()}, options,
                    runtime);
  const Tensor<T, 3> uniform = uniform_mass<T>(query.shape, key.shape[2], options, runtime);
  inspected.heads = inspect_heads<T>(inspected.key_mass.view(), queries, settings.heads, statistics, uniform.view());
  inspected.heads.map_size = cells;
  return inspected;
}

void write_pictures(const Inspection& heads, const InputView<4>& pooled_map, MapScale scale,
                    const std::filesystem::path& folder, OutputFiles& files) {
  Progress progress("writing pictures");
  Index done = 0;
  for (const HeadInspection& head : heads.heads) {
    const bool batches = heads.num_batches > 1;
    const std::string name = (batches ? "batch-" + std::to_string(head.batch) + "-" : std::string()) + "head-" +
                             std::to_string(head.head) + ".png";
    const Picture picture =
        picture_of_map({pooled_map.pointer(head.batch, head.head, 0, 0),
                        pooled_map.type,
                        {pooled_map.shape[2], pooled_map.shape[3]},
                        {pooled_map.strides[2], pooled_map.strides[3]}},
                       {.title = (batches ? "batch " + std::to_string(head.batch) + ", " : std::string()) + "head " +
                                 std::to_string(head.head),
                        .num_queries = heads.num_queries,
                        .num_keys = heads.num_keys,
                        .scale = scale});
    const std::string png = png_of(picture);
    const std::size_t file = files.add((folder / name).string());
    files.write(file, png.data(), png.size());
    files.close(file);
    progress.update(++done, static_cast<Index>(heads.heads.size()));
  }
}

template struct RowStatistics<float>;
template struct RowStatistics<double>;
template decltype(inspect<float>) inspect<float>;
template decltype(inspect<double>) inspect<double>;

}  // namespace regard::program
