// SPDX-License-Identifier: Apache-2.0
//
// attention_forward, attention_with_weights, attention_with_statistics and attention_partials: the loops over batch,
// heads and threads, and the outputs, around the kernels.
//
//   for each key/value head (forward_schedule.h)              packed in waves, or by the worker that processes its rows
//     for each task: up to 60 query rows of one head
//       for each chunk of 1024 keys that any row attends to   starts at m = −∞, l = 0, O = 0
//         for each block of 64 keys                           kernels::attention_block
//       kernels::finish_rows                                  merge of the chunks, sink, division
//
// Calls with few rows per KV head use a different schedule, which packs nothing: unpacked_keys.h. The result does not
// depend on which thread runs a task: tasks share only read-only data.
// Read next: kernels/attention_tile.cpp.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "arguments.h"
#include "fingerprint.h"
#include "forward_schedule.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "partial_results.h"
#include "plan.h"
#include "row_statistics.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/strided_copy.h"
#include "unpacked_keys.h"

namespace regard::inline v0 {

static_assert(kAttentionChunkKeys == kernels::kChunkKeys);

namespace internal {
namespace {

template <class T>
void forward(const AttentionCall& call, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
             const AttentionOptions& options, const Runtime& runtime,
             const StatisticsObserver<T>* statistics = nullptr) {
  write_fingerprint(r, outputs.fingerprint);
  TypedOutputs<T> written = outputs;
  const Index rows = r.batch * r.num_heads * r.num_queries;
  // The weights need row_max and row_sum even if the caller does not request them.
  const bool weights = !outputs.weights.absent();
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  Workspace<T> row_max(runtime, weights && outputs.row_max.absent() ? rows : 0);
  Workspace<T> row_sum(runtime, weights && outputs.row_sum.absent() ? rows : 0);
  if (row_max.data()) written.row_max = {row_max.data(), shape};
  if (row_sum.data()) written.row_sum = {row_sum.data(), shape};

  // The weights take a second pass over the same rows.
  const bool two_passes = weights && runtime.progress;
  std::array<Runtime, 2> passes;
  if (two_passes) {
    passes.fill(runtime);
    passes[0].progress = [&](Index done, Index total) { runtime.progress(done, 2 * total); };
    passes[1].progress = [&](Index done, Index total) { runtime.progress(total + done, 2 * total); };
  }
  const char* reason = packing_reason(r);
  if (!reason && statistics) reason = "statistics are requested";
  const ForwardScheduleOptions<T> schedule{.name = call.name,
                                           .written_bytes = output_bytes(outputs),
                                           .packing_reason = reason,
                                           .context = &written.context,
                                           .wants_lse = !written.lse.absent(),
                                           .observer = statistics};
  const Runtime& first_pass = two_passes ? passes[0] : runtime;
  if (rows > 0 && !reason) {
    attend_unpacked(call.name, r, written, schedule.written_bytes, first_pass);
  } else {
    const auto write = [&](const RowTask<T>& task, const FinishedRows<T>& done) {
      done.write(task, written);
      if (statistics) statistics->finish(task, done);
    };
    for_each_row_block<T>(
        r, first_pass, schedule, [&](std::span<RowTask<T>> tasks, std::span<const ChunkResults<T>> buffers) {
          for (RowTask<T>& task : tasks) task.scratch.context = task.context_buffer(written);
          if (tasks.size() == 1)
            return write(tasks[0], FinishedRows<T>::compute_chunks(tasks[0], tasks[0].visible_chunks(), buffers[0]));
          const auto chunks = RowTask<T>::compute_chunks(tasks, buffers);
          for (std::size_t i = 0; i < tasks.size(); ++i)
            write(tasks[i], FinishedRows<T>::of(tasks[i], chunks[i], buffers[i]));
        });
  }
  if (weights && rows > 0) {
    attention_weights(call.query, call.key, {.row_max = written.row_max, .row_sum = written.row_sum}, outputs.weights,
                      options, two_passes ? passes[1] : runtime);
  }
}

// The head means are computed from the per-row values, which are therefore kept even if the caller does not request
// them.
template <class T>
void forward_with_statistics(const AttentionCall& call, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
                             TypedStatistics<T> rows, const AttentionOptions& options, const Runtime& runtime) {
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  const Index count = r.batch * r.num_heads * r.num_queries;
  const std::array<std::pair<const TensorView<T, 2>*, TensorView<T, 3>*>, 4> means{
      {{&rows.head_entropy, &rows.entropy},
       {&rows.head_largest_weight, &rows.largest_weight},
       {&rows.head_chosen_weight, &rows.chosen_weight},
       {&rows.head_mean_distance, &rows.mean_distance}}};
  const auto is_missing = [](const auto& mean) { return !mean.first->absent() && mean.second->absent(); };
  const bool averages = std::ranges::any_of(means, [](const auto& mean) { return !mean.first->absent(); });
  const Workspace<bool> sees_key(runtime, averages ? count : 0);
  const Workspace<T> kept(runtime, std::ranges::count_if(means, is_missing) * count);
  T* next = kept.data();
  for (const auto& mean : means) {
    if (is_missing(mean)) *mean.second = TensorView<T, 3>(std::exchange(next, next + count), shape);
  }
  const StatisticsObserver<T> observer(rows, sees_key.data());
  forward(call, r, outputs, options, runtime, &observer);
  if (averages && !is_planning()) rows.average_heads(r.num_queries, sees_key.data());
}

template <class T>
void forward_call(const AttentionCall& call, const AttentionOutputs& outputs, const AttentionOptions& options,
                  const Runtime& runtime) {
  const ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  check_context_type(call.name, outputs.context, call.query.type);
  const TypedOutputs<T> written(call.name, outputs);
  check_outputs(call.name, outputs, {r.batch, r.num_heads, r.num_queries, r.value_head_size}, r.num_keys,
                input_footprints(call, options));
  forward(call, r, written, options, runtime);
}

template <class T>
void statistics_call(const AttentionCall& call, const AttentionOutputs& outputs, const AttentionStatistics& statistics,
                     const AttentionOptions& options, const Runtime& runtime) {
  const auto r = resolve<T>(call, options, runtime);
  check_context_type(call.name, outputs.context, call.query.type);
  const TypedOutputs<T> written(call.name, outputs);
  Footprints others = input_footprints(call, options);
  TypedStatistics<T> requested(call.name, statistics, runtime);
  if (!statistics.chosen_keys.absent()) others.push_back(footprint(call.name, "chosen_keys", statistics.chosen_keys));
  if (!statistics.chosen_ranges.absent())
    others.push_back(footprint(call.name, "chosen_ranges", statistics.chosen_ranges));
  const std::array<Index, 4> context{r.batch, r.num_heads, r.num_queries, r.value_head_size};
  const Footprints outs = check_outputs(call.name, outputs, context, r.num_keys, others);
  for (const Footprint& output : std::span<const Footprint>(outs)) others.push_back(output);
  Footprints numbers;
  requested.check(call.name, r, numbers);
  check_overlap(call.name, others, numbers);
  forward_with_statistics(call, r, written, std::move(requested), options, runtime);
}

template <class T>
void partials_call(const AttentionCall& call, const AttentionPartialOutputs& given, const AttentionOptions& options,
                   const Runtime& runtime) {
  const auto r = resolve<T>(call, options, runtime);
  if (!options.sinks.empty()) reject(call.name, "sinks are given; expected none (attention_merge takes them)");
  if (options.dropout != 0) reject(call.name, "dropout is given; expected none");
  if (!options.query_starts.empty()) {
    reject(call.name, "query_starts is given; expected one call per packed sequence");
  }
  const TypedPartials<T> partials(call.name, given);
  partials.check(call.name, r, input_footprints(call, options));
  const ForwardScheduleOptions<T> schedule{.name = call.name, .written_bytes = partials.bytes()};
  for_each_row_block<T>(r, runtime, schedule,
                        [&](std::span<const RowTask<T>> tasks, std::span<const ChunkResults<T>> buffers) {
                          const auto visited = RowTask<T>::compute_chunks(tasks, buffers);
                          for (std::size_t i = 0; i < tasks.size(); ++i)
                            partials.write(tasks[i], visited[i], buffers[i]);
                        });
}

}  // namespace
}  // namespace internal

void attention_forward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                       const AttentionOutputs& outputs, const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{"attention_forward", query, key, value, true, outputs.context.type};
    internal::forward_call<T>(call, outputs, options, runtime);
  });
}

void attention_with_statistics(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                               const AttentionOutputs& outputs, const AttentionStatistics& statistics,
                               const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{"attention_with_statistics", query, key, value, true, outputs.context.type};
    internal::statistics_call<T>(call, outputs, statistics, options, runtime);
  });
}

void attention_partials(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                        const AttentionPartialOutputs& partials, const AttentionOptions& options,
                        const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{"attention_partials", query, key, value, true};
    internal::partials_call<T>(call, partials, options, runtime);
  });
}

template <class T>
AttentionResult<T> attention_with_weights(TensorView<const T, 4> query, const InputView<4>& key,
                                          const InputView<4>& value, const AttentionOptions& options,
                                          const Runtime& runtime) {
  const internal::AttentionCall call{"attention_with_weights", query, key, value, true, kElementType<T>};
  const auto r = internal::resolve<ComputeType<T>>(call, options, runtime);
  internal::input_footprints(call, options);
  Index bytes = static_cast<Index>(sizeof(ComputeType<T>));
  bool overflow = false;
  for (Index n : {r.batch, r.num_heads, r.num_queries, r.num_keys}) {
    overflow = overflow || __builtin_mul_overflow(bytes, n, &bytes);
  }
  const std::array<Index, 4> shape{r.batch, r.num_heads, r.num_queries, r.num_keys};
  const std::size_t available = available_memory_bytes();
  if (overflow || static_cast<std::size_t>(bytes) > available) {
    internal::reject(call.name, "weights of shape " + internal::shape_text(shape) + " need " +
                                    (overflow ? "more than 2^63" : std::to_string(bytes)) + " bytes; " +
                                    std::to_string(available) +
                                    " are available; expected fewer rows, or attention_weights for chosen rows");
  }
  AttentionResult<T> result{Tensor<T, 4>({r.batch, r.num_heads, r.num_queries, r.value_head_size}),
                            Tensor<ComputeType<T>, 4>(shape)};
  attention_forward(query, key, value, {.context = result.context, .weights = result.weights}, options, runtime);
  return result;
}

REGARD_INSTANTIATE_LAYER(attention_with_weights);
REGARD_INSTANTIATE(attention_with_weights, float16);

}  // namespace regard::inline v0
