// SPDX-License-Identifier: Apache-2.0
//
// attention_merge and attention_merge_lse: several results of disjoint keys become one.
//
//   by row_max and row_sum   the fold that attention_forward itself ends with (kernels::finish_rows): the same bits
//   by lse                   context_n is an accumulator with row_max = lse_n and row_sum = 1: the same fold again
//
// Each task gathers the partials of up to 60 rows of one head into dense scratch.
#include <algorithm>

#include "attention_arguments.h"
#include "elements.h"
#include "kernels/table.h"
#include "parallel.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

using kernels::kRows;

template <class T>
struct MergeCall {
  const char* name;
  TensorView<const T, 5> accumulator;
  TensorView<const T, 4> row_max;
  TensorView<const T, 4> row_sum;  // absent: 1
  std::span<const T> sinks;
  const AttentionOutputs<T>& outputs;
};

template <class T>
void check_merge(const MergeCall<T>& call, const char* accumulator_name, const char* row_max_name) {
  const auto& shape = call.accumulator.shape;
  const std::array<Index, 4> rows{shape[0], shape[1], shape[2], shape[3]};
  const std::array<Index, 3> out_rows{shape[1], shape[2], shape[3]};
  const std::array<Index, 4> context{shape[1], shape[2], shape[3], shape[4]};
  std::vector<Footprint> inputs{footprint(call.name, accumulator_name, call.accumulator),
                                footprint(call.name, row_max_name, call.row_max),
                                footprint(call.name, "row_sum", call.row_sum)};
  const auto expect_rows = [&](const char* name, const TensorView<const T, 4>& view) {
    if (view.shape != rows) {
      refuse(call.name, std::string(name) + " has shape " + shape_text(view.shape) + "; expected " + shape_text(rows));
    }
  };
  expect_rows(row_max_name, call.row_max);
  if (!call.row_sum.absent()) expect_rows("row_sum", call.row_sum);
  if (!call.sinks.empty() && static_cast<Index>(call.sinks.size()) != shape[2]) {
    refuse(call.name, "sinks has " + std::to_string(call.sinks.size()) + " entries; expected " +
                          std::to_string(shape[2]) + ", one per query head");
  }
  for (std::size_t h = 0; h < call.sinks.size(); ++h) {
    if (!(call.sinks[h] <= std::numeric_limits<T>::max())) {
      refuse(call.name,
             "sinks[" + std::to_string(h) + "] is NaN or inf; expected a finite number, or −inf for no sink");
    }
  }
  const AttentionOutputs<T>& out = call.outputs;
  if (out.context.absent() && shape[1] * shape[2] * shape[3] != 0) {
    refuse(call.name, "context is missing; expected " + shape_text(context));
  }
  if (!out.weights.absent()) {
    refuse(call.name, "weights is given; expected none (attention_weights computes them from row_max and row_sum)");
  }
  expect_shape(call.name, "context", out.context, context);
  expect_shape(call.name, "row_max", out.row_max, out_rows);
  expect_shape(call.name, "row_sum", out.row_sum, out_rows);
  expect_shape(call.name, "lse", out.lse, out_rows);
  expect_shape(call.name, "sink_weights", out.sink_weights, out_rows);
  std::vector<Footprint> written;
  const auto add = [&](const char* name, const auto& view) {
    if (!view.absent()) written.push_back(footprint(call.name, name, view));
  };
  add("context", out.context);
  add("row_max", out.row_max);
  add("row_sum", out.row_sum);
  add("lse", out.lse);
  add("sink_weights", out.sink_weights);
  check_overlap(call.name, inputs, written);
}

template <class T>
void merge_rows(const MergeCall<T>& call, Index b, Index h, Index first_row, Index num_rows, T* scratch) {
  const Index partials = call.accumulator.shape[0];
  const Index columns = call.accumulator.shape[4];
  T* accumulator = scratch;
  T* row_max = accumulator + partials * kRows * columns;
  T* row_sum = row_max + partials * kRows;
  T* sinks = row_sum + partials * kRows;
  T* context = sinks + kRows;
  T* rows = context + kRows * columns;
  for (Index n = 0; n < partials; ++n) {
    for (Index i = 0; i < num_rows; ++i) {
      const Index at = n * kRows + i;
      row_max[at] = read_element(call.row_max.pointer(n, b, h, first_row + i));
      // By lse, a row that sees nothing has no share at all, whatever stands in its context.
      const bool by_lse = call.row_sum.absent();
      const bool nothing = by_lse && row_max[at] == -std::numeric_limits<T>::infinity();
      row_sum[at] = by_lse ? static_cast<T>(!nothing) : read_element(call.row_sum.pointer(n, b, h, first_row + i));
      for (Index c = 0; c < columns; ++c) {
        accumulator[at * columns + c] =
            nothing ? static_cast<T>(0) : read_element(call.accumulator.pointer(n, b, h, first_row + i, c));
      }
    }
  }
  if (!call.sinks.empty()) std::fill_n(sinks, num_rows, call.sinks[static_cast<std::size_t>(h)]);
  kernels::active().template of<T>().finish_rows({.num_chunks = partials,
                                                  .num_rows = num_rows,
                                                  .columns = columns,
                                                  .accumulator = accumulator,
                                                  .accumulator_chunk_stride = kRows * columns,
                                                  .accumulator_row_stride = columns,
                                                  .row_max = row_max,
                                                  .max_chunk_stride = kRows,
                                                  .max_row_stride = 1,
                                                  .row_sum = row_sum,
                                                  .sum_chunk_stride = kRows,
                                                  .sum_row_stride = 1,
                                                  .sinks = call.sinks.empty() ? nullptr : sinks,
                                                  .value_scale = 1,
                                                  .context = context,
                                                  .out_row_max = rows,
                                                  .out_row_sum = rows + kRows,
                                                  .out_lse = rows + 2 * kRows,
                                                  .out_sink_weight = rows + 3 * kRows});
  const auto write = [&](const TensorView<T, 3>& output, const T* from) {
    if (!output.absent()) copy_elements(num_rows, from, 1, output.pointer(b, h, first_row), output.strides[2]);
  };
  for (Index i = 0; i < num_rows; ++i) {
    const TensorView<T, 4>& output = call.outputs.context;
    copy_elements(columns, context + i * columns, 1, output.pointer(b, h, first_row + i, 0), output.strides[3]);
  }
  write(call.outputs.row_max, rows);
  write(call.outputs.row_sum, rows + kRows);
  write(call.outputs.lse, rows + 2 * kRows);
  write(call.outputs.sink_weights, rows + 3 * kRows);
}

template <class T>
void merge(const MergeCall<T>& call, const Runtime& runtime) {
  const auto& shape = call.accumulator.shape;
  const Index partials = shape[0], batch = shape[1], heads = shape[2], queries = shape[3], columns = shape[4];
  const Index blocks = (queries + kRows - 1) / kRows;
  const Index tasks = batch * heads * blocks;
  if (tasks == 0) return;
  const Index elements = partials * kRows * (columns + 2) + kRows * (columns + 5);
  const int workers = num_workers(runtime, tasks);
  const Workspace<T> scratch(runtime, workers * elements);
  for_each_item(runtime, workers, tasks, [&](Index task, int worker) {
    const Index first = task % blocks * kRows;
    merge_rows(call, task / blocks / heads, task / blocks % heads, first, std::min(kRows, queries - first),
               scratch.data() + worker * elements);
  });
}

}  // namespace
}  // namespace internal

template <class T>
void attention_merge(const std::type_identity_t<AttentionPartials<const T>>& partials,
                     std::type_identity_t<std::span<const T>> sinks, const AttentionOutputs<T>& outputs,
                     const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  const internal::MergeCall<T> call{
      "attention_merge", partials.accumulator, partials.row_max, partials.row_sum, sinks, outputs};
  if (partials.row_sum.absent() && !partials.row_max.absent()) {
    internal::refuse(call.name, "row_sum is missing; expected " + internal::shape_text(partials.row_max.shape));
  }
  internal::check_merge(call, "accumulator", "row_max");
  internal::merge(call, runtime);
}

template <class T>
void attention_merge_lse(std::type_identity_t<TensorView<const T, 5>> contexts,
                         std::type_identity_t<TensorView<const T, 4>> lse, const AttentionOutputs<T>& outputs,
                         const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  const internal::MergeCall<T> call{"attention_merge_lse", contexts, lse, {}, {}, outputs};
  for (const auto& [name, view] :
       {std::pair{"row_max", outputs.row_max}, {"row_sum", outputs.row_sum}, {"sink_weights", outputs.sink_weights}}) {
    if (!view.absent()) {
      internal::refuse(call.name, std::string(name) + " is given; expected context and lse alone");
    }
  }
  internal::check_merge(call, "contexts", "lse");
  internal::merge(call, runtime);
}

template void attention_merge<float>(const AttentionPartials<const float>&, std::span<const float>,
                                     const AttentionOutputs<float>&, const Runtime&);
template void attention_merge<double>(const AttentionPartials<const double>&, std::span<const double>,
                                      const AttentionOutputs<double>&, const Runtime&);
template void attention_merge_lse<float>(TensorView<const float, 5>, TensorView<const float, 4>,
                                         const AttentionOutputs<float>&, const Runtime&);
template void attention_merge_lse<double>(TensorView<const double, 5>, TensorView<const double, 4>,
                                          const AttentionOutputs<double>&, const Runtime&);

}  // namespace v0
}  // namespace regard
