// SPDX-License-Identifier: Apache-2.0
//
// attention_merge and attention_merge_lse: combine results over disjoint sets of keys into one.
//
//   by row_max and row_sum   the same fold that ends attention_forward (kernels::finish_rows), with the same bits
//   by lse                   context_n is an accumulator with row_max = lse_n and row_sum = 1; then the same fold
//
// Each task gathers the partials of up to 60 rows of one head into dense scratch.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "kernels/table.h"
#include "plan.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kRows;

template <class T>
struct MergeCall {
  const char* name;
  TensorView<const T, 5> accumulator;
  TensorView<const T, 4> row_max;
  TensorView<const T, 4> row_sum;             // if absent, 1
  TensorView<const T, 5> scaled_accumulator;  // if absent, accumulator · kAttentionSumScale
  ScratchVector<T> sinks;
  TypedOutputs<T> outputs;
};

template <class T>
void check_merge(const MergeCall<T>& call, const AttentionOutputs& outputs, const char* accumulator_name,
                 const char* row_max_name) {
  const auto& shape = call.accumulator.shape;
  const std::array<Index, 4> rows{shape[0], shape[1], shape[2], shape[3]};
  const std::array<Footprint, 4> inputs{footprint(call.name, accumulator_name, call.accumulator),
                                        footprint(call.name, row_max_name, call.row_max),
                                        footprint(call.name, "row_sum", call.row_sum),
                                        footprint(call.name, "scaled_accumulator", call.scaled_accumulator)};
  const auto expect_rows = [&](const char* name, const TensorView<const T, 4>& view) {
    if (view.shape != rows) {
      reject(call.name, std::string(name) + " has shape " + shape_text(view.shape) + "; expected " + shape_text(rows));
    }
  };
  expect_rows(row_max_name, call.row_max);
  if (!call.row_sum.absent()) expect_rows("row_sum", call.row_sum);
  expect_shape(call.name, "scaled_accumulator", call.scaled_accumulator, shape);
  if (outputs.fingerprint != nullptr)
    reject(call.name, "fingerprint is given; expected none: the options of the partial results are unknown");
  if (!outputs.weights.absent()) {
    reject(call.name, "weights is given; expected none (attention_weights computes them from row_max and row_sum)");
  }
  check_outputs(call.name, outputs, {shape[1], shape[2], shape[3], shape[4]}, 0, inputs);
}

// The dense partials of num_rows rows of one head, and the rows that they are merged into.
template <class T>
struct MergeScratch {
  T* accumulator;  // [N][kRows][Dv]
  T* row_max;      // [N][kRows]
  T* row_sum;      // [N][kRows]
  T* sinks;        // [kRows] and so on
  T* context;      // [kRows][Dv]
  T* scaled_context;
  T* out_row_max;
  T* out_row_sum;
  T* out_lse;
  T* out_sink_weight;

  MergeScratch(T* at, Index partials, Index columns) {
    const auto take = [&](Index count) { return std::exchange(at, at + count); };
    accumulator = take(partials * kRows * columns);
    row_max = take(partials * kRows);
    row_sum = take(partials * kRows);
    for (T** rows : {&context, &scaled_context}) *rows = take(kRows * columns);
    for (T** rows : {&sinks, &out_row_max, &out_row_sum, &out_lse, &out_sink_weight}) *rows = take(kRows);
  }
  static Index elements(Index partials, Index columns) {
    return partials * kRows * (columns + 2) + kRows * (2 * columns + 5);
  }
};

template <class T>
void merge_rows(const MergeCall<T>& call, Index b, Index h, Index first_row, Index num_rows, const MergeScratch<T>& s) {
  const Index partials = call.accumulator.shape[0];
  const Index columns = call.accumulator.shape[4];
  const bool by_lse = call.row_sum.absent();
  for (Index n = 0; n < partials; ++n) {
    for (Index i = 0; i < num_rows; ++i) {
      const Index at = n * kRows + i;
      s.row_max[at] = read_element(call.row_max.pointer(n, b, h, first_row + i));
      // When merging by lse, a row that attends to no key has no weight, whatever its context contains.
      const bool nothing = by_lse && s.row_max[at] == -std::numeric_limits<T>::infinity();
      s.row_sum[at] = by_lse ? static_cast<T>(!nothing) : read_element(call.row_sum.pointer(n, b, h, first_row + i));
      for (Index c = 0; c < columns; ++c) {
        s.accumulator[at * columns + c] =
            nothing ? static_cast<T>(0) : read_element(call.accumulator.pointer(n, b, h, first_row + i, c));
      }
    }
  }
  if (!call.sinks.empty()) std::fill_n(s.sinks, num_rows, call.sinks[static_cast<std::size_t>(h)]);
  const auto finish = [&](T value_scale, T* context) {
    return kernels::active().template of<T>().finish_rows({.num_chunks = partials,
                                                           .num_rows = num_rows,
                                                           .columns = columns,
                                                           .accumulator = s.accumulator,
                                                           .accumulator_chunk_stride = kRows * columns,
                                                           .accumulator_row_stride = columns,
                                                           .row_max = s.row_max,
                                                           .row_sum = s.row_sum,
                                                           .row_chunk_stride = kRows,
                                                           .sinks = call.sinks.empty() ? nullptr : s.sinks,
                                                           .value_scale = value_scale,
                                                           .context = context,
                                                           .out_row_max = s.out_row_max,
                                                           .out_row_sum = s.out_row_sum,
                                                           .out_lse = call.outputs.lse.absent() ? nullptr : s.out_lse,
                                                           .out_sink_weight = s.out_sink_weight});
  };
  if (finish(1, s.context)) {
    for (Index n = 0; n < partials; ++n) {
      for (Index i = 0; i < num_rows * columns; ++i) {
        T& sum = s.accumulator[n * kRows * columns + i];
        const bool other = !is_finite(sum) && !call.scaled_accumulator.absent();
        sum = other ? read_element(call.scaled_accumulator.pointer(n, b, h, first_row + i / columns, i % columns))
                    : sum * static_cast<T>(kAttentionSumScale);
      }
    }
    finish(static_cast<T>(kAttentionSumScale), s.scaled_context);
    merge_scaled(num_rows, columns, s.out_row_sum, s.scaled_context, s.context);
  }
  const auto write = [&](const TensorView<T, 3>& output, const T* from) {
    if (!output.absent()) copy_elements(num_rows, from, 1, output.pointer(b, h, first_row), output.strides[2]);
  };
  for (Index i = 0; i < num_rows; ++i) {
    const OutputView<4>& output = call.outputs.context;
    copy_elements(columns, s.context + i * columns, 1, static_cast<T*>(output.pointer(b, h, first_row + i, 0)),
                  output.strides[3]);
  }
  write(call.outputs.row_max, s.out_row_max);
  write(call.outputs.row_sum, s.out_row_sum);
  write(call.outputs.lse, s.out_lse);
  write(call.outputs.sink_weights, s.out_sink_weight);
}

template <class T>
void merge(const MergeCall<T>& call, const Runtime& runtime) {
  const auto& shape = call.accumulator.shape;
  const Index partials = shape[0], batch = shape[1], heads = shape[2], queries = shape[3], columns = shape[4];
  const Index blocks = (queries + kRows - 1) / kRows;
  const Index tasks = batch * heads * blocks;
  if (tasks == 0) return;
  const Index elements = MergeScratch<T>::elements(partials, columns);
  constexpr double kElementProducts = 150;  // an element of a partial takes 3 ns, as long as this many products
  const int workers = num_workers(runtime, tasks, kElementProducts * static_cast<double>(call.accumulator.size()));
  const Workspace<T> scratch(runtime, workers * elements);
  if (is_planning()) {
    const double read = view_bytes(call.accumulator) + view_bytes(call.row_max) + view_bytes(call.row_sum);
    plan_operator({.name = call.name,
                   .strategy = std::to_string(partials) + " partials of each row, folded in order",
                   .operations = 2 * static_cast<double>(call.accumulator.size()),
                   .bytes = read + output_bytes(call.outputs)});
  }
  for_each_item(runtime, workers, tasks, [&](Index task, int worker) {
    const Index first = task % blocks * kRows;
    merge_rows(call, task / blocks / heads, task / blocks % heads, first, std::min(kRows, queries - first),
               MergeScratch<T>(scratch.data() + worker * elements, partials, columns));
  });
}

template <class T>
void merge_call(const char* name, const AttentionPartials& partials, const InputView<1>& sinks,
                const AttentionOutputs& outputs, const Runtime& runtime) {
  typed<T>(name, "context", outputs.context);
  const MergeCall<T> call{name,
                          typed<T>(name, "accumulator", partials.accumulator),
                          typed<T>(name, "row_max", partials.row_max),
                          typed<T>(name, "row_sum", partials.row_sum),
                          typed<T>(name, "scaled_accumulator", partials.scaled_accumulator),
                          checked_sinks<T>(name, sinks, partials.accumulator.shape[2], runtime),
                          TypedOutputs<T>(name, outputs)};
  if (call.row_sum.absent() && !call.row_max.absent())
    reject(name, "row_sum is missing; expected " + shape_text(call.row_max.shape));
  check_merge(call, outputs, "accumulator", "row_max");
  merge(call, runtime);
}

template <class T>
void merge_lse_call(const char* name, const InputView<5>& contexts, const InputView<4>& lse,
                    const AttentionOutputs& outputs, const Runtime& runtime) {
  typed<T>(name, "context", outputs.context);
  const MergeCall<T> call{name, typed<T>(name, "contexts", contexts),    typed<T>(name, "lse", lse),    {},
                          {},   ScratchVector<T>(workspace_of(runtime)), TypedOutputs<T>(name, outputs)};
  for (const auto& [output, view] :
       {std::pair{"row_max", outputs.row_max}, {"row_sum", outputs.row_sum}, {"sink_weights", outputs.sink_weights}}) {
    if (!view.absent()) reject(name, std::string(output) + " is given; expected only context and lse");
  }
  check_merge(call, outputs, "contexts", "lse");
  merge(call, runtime);
}

}  // namespace
}  // namespace internal

void attention_merge(const AttentionPartials& partials, const InputView<1>& sinks, const AttentionOutputs& outputs,
                     const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(partials.accumulator.type, [&]<class T>(T) {
    internal::merge_call<T>("attention_merge", partials, sinks, outputs, runtime);
  });
}

void attention_merge_lse(const InputView<5>& contexts, const InputView<4>& lse, const AttentionOutputs& outputs,
                         const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(contexts.type, [&]<class T>(T) {
    internal::merge_lse_call<T>("attention_merge_lse", contexts, lse, outputs, runtime);
  });
}

}  // namespace regard::inline v0
