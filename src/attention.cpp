// SPDX-License-Identifier: Apache-2.0
//
// attention_forward, attention_with_weights, attention_with_statistics and attention_partials: batch, heads, threads
// and outputs round the kernels.
//
//   for each wave of key/value heads (packed_keys.h)         one parallel phase: pack keys and values
//     for each task: up to 60 query rows of one head          one parallel phase: tasks
//       for each chunk of 1024 keys that some row sees        starts at m = −∞, l = 0, O = 0
//         for each block of 64 keys                           kernels::attention_block
//       kernels::finish_rows                                  merge of the chunks, sink, division
//
// Few rows a key head are another walk, which packs nothing: attention_in_place.h.
// Many short heads are one phase: whoever takes a head packs it and runs its tasks while it lies in its cache.
// Which thread runs a task never matters: tasks share nothing but what they read. Read next:
// kernels/attention_tile.cpp.
#include <algorithm>
#include <limits>
#include <memory>

#include "attention_arguments.h"
#include "attention_in_place.h"
#include "attention_plan.h"
#include "attention_rows.h"
#include "attention_statistics.h"
#include "elements.h"
#include "packed_keys.h"
#include "parallel.h"
#include "visibility.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {

static_assert(kAttentionChunkKeys == kernels::kChunkKeys);

namespace internal {
namespace {

// Rows of a task: 60 or a few less, so that the tasks of a sequence are equally long and made of whole register tiles.
template <class T>
Index rows_per_task(const Sequence& sequence) {
  const Index tasks = std::max<Index>((sequence.num_queries + kernels::kRows - 1) / kernels::kRows, 1);
  const Index group = kernels::active().of<T>().row_group;
  return std::max<Index>((sequence.num_queries + tasks * group - 1) / (tasks * group), 1) * group;
}

// How many workers pack one key head at a time and run its tasks; 0: heads are packed in waves that all workers share.
// A head by itself must fit half of a second-level cache, and there must be enough of them for no worker to end alone.
template <class T>
int workers_by_unit(const ResolvedAttention<T>& r, const Runtime& runtime) {
  constexpr Index kUnitBytes = Index{512} << 10;
  constexpr Index kUnitsPerWorker = 16;
  Index largest = 0;
  double products = 0;
  for (const Sequence& sequence : r.sequences) {
    if (sequence.num_queries == 0) continue;
    largest = std::max(largest, sequence.key_limit);
    products += static_cast<double>(sequence.num_queries) * static_cast<double>(sequence.key_limit);
  }
  products *= static_cast<double>(r.num_heads * (r.depth + r.columns));
  const Index units = static_cast<Index>(r.sequences.size()) * r.num_key_heads;
  const int workers = num_workers(runtime, std::max<Index>(units / kUnitsPerWorker, 1), products);
  const bool small = largest * (r.depth + r.columns) * static_cast<Index>(sizeof(T)) <= kUnitBytes;
  return small && units >= kUnitsPerWorker * workers ? workers : 0;
}

struct RowWalkOptions {
  const char* name;      // of the operator
  double written_bytes;  // of its outputs
  bool wants_lse = false;
  Index num_best = 0;  // RowTask::num_best
};

// Runs rows_done(tasks of one unit, rooms for the results of their chunks) for all rows of every head, up to 60 a task.
template <class T, class F>
class RowWalk {
 public:
  RowWalk(const ResolvedAttention<T>& r, const Runtime& runtime, const RowWalkOptions& options, const F& rows_done)
      : r_(r),
        runtime_(runtime),
        options_(options),
        rows_done_(rows_done),
        unit_workers_(workers_by_unit(r, runtime)),
        packed_(r, runtime, unit_workers_),
        layout_(r, packed_.padded_columns(), false, options.num_best > 0),
        most_chunks_(most_chunks(r)),
        progress_(runtime, r.batch * r.num_heads * r.num_queries) {}

  void run() {
    if (is_planning())
      plan_attention(options_.name, r_, type_bytes(r_.key.type), type_bytes(r_.value.type), way(),
                     options_.written_bytes);
    if (unit_workers_ > 0) {
      make_room(unit_workers_, 1);
      for_each_item(runtime_, unit_workers_, packed_.num_units(), [&](Index number, int worker) {
        const Unit unit = packed_.pack_unit(number, worker);
        for (Index task = 0; task < num_tasks(unit); ++task) {
          poll(runtime_);
          run_tasks(unit, task, worker);
        }
      });
      return;
    }
    while (!packed_.done()) run_wave(packed_.next_wave(runtime_));
  }

 private:
  const Sequence& sequence_of(const Unit& unit) const { return r_.sequences[static_cast<std::size_t>(unit.sequence)]; }
  Index num_blocks(const Sequence& sequence) const {
    return (sequence.num_queries + rows_per_task<T>(sequence) - 1) / rows_per_task<T>(sequence);
  }
  std::string way() const {
    const std::string heads = std::to_string(packed_.num_units()) + " key heads, ";
    return unit_workers_ > 0
               ? heads + "each packed and attended by one thread: they are short, and at least 16 for each thread"
               : heads + "packed together, up to " + std::to_string(kWaveBytes >> 20) +
                     " MiB or one head at a time, and attended by all threads";
  }
  Index group() const { return r_.num_heads / r_.num_key_heads; }
  Index num_tasks(const Unit& unit) const { return group() * num_blocks(sequence_of(unit)); }

  // Scratch of each worker, and room for the results of its task's chunks: of the longest task, or, where that is less,
  // of every row there is.
  void make_room(int workers, Index together) {
    scratch_ = nullptr;
    scratch_ = std::make_unique<Workspace<std::byte>>(runtime_, workers * together * layout_.bytes());
    num_workers_ = workers;
    together_ = together;
    most_rows_ = 0;
    for (const Sequence& sequence : r_.sequences)
      most_rows_ = std::max(most_rows_, std::min(rows_per_task<T>(sequence), sequence.num_queries));
    const Index all_rows = r_.batch * r_.num_heads * r_.num_queries;
    const Index rows_at_once = workers * together * most_rows_;
    by_worker_ = rows_at_once <= all_rows;
    partials_ = nullptr;
    partials_ = std::make_unique<Partials<T>>(runtime_, std::min(rows_at_once, all_rows) * most_chunks_, r_.columns);
  }
  // place: of the scratch, one of each worker's together_.
  ChunkResults<T> room_of(const RowTask<T>& task, Index place) const {
    const Index row = (task.sequence.batch * r_.num_heads + task.rows.head) * r_.num_queries +
                      task.sequence.first_query + task.rows.first_row;
    return partials_->at((by_worker_ ? place * most_rows_ : row) * most_chunks_);
  }

  RowTask<T> task_at(const Unit& unit, Index task, Index place) const {
    const Sequence& sequence = sequence_of(unit);
    const Index rows = rows_per_task<T>(sequence);
    const Index blocks = num_blocks(sequence);
    // Under a causal mask the last rows are the longest: they go first, so that no thread ends with one.
    const Index first_row = (blocks - 1 - task % blocks) * rows;
    return {.r = r_,
            .packed = packed_,
            .runtime = runtime_,
            .unit = unit,
            .sequence = sequence,
            .rows = {.head = unit.key_head * group() + task / blocks,
                     .first_row = first_row,
                     .num_rows = std::min(rows, sequence.num_queries - first_row),
                     .rows_per_head = sequence.num_queries},
            .scratch = layout_.at(scratch_->data() + place * layout_.bytes()),
            .wants_lse = options_.wants_lse,
            .num_best = options_.num_best};
  }

  // The tasks from `first` on, as many as go together.
  void run_tasks(const Unit& unit, Index first, int worker) {
    const auto run = [&](std::span<RowTask<T>> tasks) {
      std::array<ChunkResults<T>, kMostTogether> rooms;
      Index rows = 0;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        rooms[i] = room_of(tasks[i], worker * together_ + static_cast<Index>(i));
        rows += tasks[i].rows.num_rows;
      }
      rows_done_(tasks, std::span<const ChunkResults<T>>(rooms.data(), tasks.size()));
      progress_.add(rows);
    };
    const Index count = std::min(together_, num_tasks(unit) - first);
    const auto task = [&](Index i) { return task_at(unit, first + i, worker * together_ + i); };
    if (count == 1) {
      RowTask<T> only = task(0);
      run(std::span(&only, 1));
    } else {
      static_assert(kMostTogether == 4);
      std::array<RowTask<T>, kMostTogether> tasks{task(0), task(1), task(std::min<Index>(2, count - 1)),
                                                  task(std::min<Index>(3, count - 1))};
      run(std::span(tasks).first(static_cast<std::size_t>(count)));
    }
  }

  // Tasks go together where a head's panels are too many for a second-level cache, as long as that leaves each worker
  // enough to share fairly.
  Index tasks_together(int workers, Index num_tasks) const {
    constexpr Index kStaysNear = Index{6} << 20;
    constexpr Index kEnough = 16;
    if (packed_.largest_unit_bytes() < kStaysNear) return 1;
    return std::clamp<Index>(num_tasks / (kEnough * workers), 1, kMostTogether);
  }

  void run_wave(const std::vector<Unit>& units) {
    Index all_tasks = 0;
    double products = 0;
    for (const Unit& unit : units) {
      all_tasks += num_tasks(unit);
      products += static_cast<double>(group() * sequence_of(unit).num_queries) * static_cast<double>(unit.num_panels) *
                  static_cast<double>(kernels::kPanel * (r_.depth + r_.columns));
    }
    const int workers = num_workers(runtime_, all_tasks, products);
    if (workers > num_workers_) make_room(workers, tasks_together(workers, all_tasks));
    first_turn_.assign(1, 0);
    for (const Unit& unit : units)
      first_turn_.push_back(first_turn_.back() + (num_tasks(unit) + together_ - 1) / together_);
    for_each_item(runtime_, workers, first_turn_.back(), [&](Index turn, int worker) {
      const auto unit = std::upper_bound(first_turn_.begin(), first_turn_.end(), turn) - first_turn_.begin() - 1;
      run_tasks(units[static_cast<std::size_t>(unit)], (turn - first_turn_[static_cast<std::size_t>(unit)]) * together_,
                worker);
    });
  }

  const ResolvedAttention<T>& r_;
  const Runtime& runtime_;
  RowWalkOptions options_;
  const F& rows_done_;
  int unit_workers_;  // 0: waves
  PackedKeys<T> packed_;
  RowScratchLayout<T> layout_;
  Index most_chunks_;
  Progress progress_;
  std::vector<Index> first_turn_;  // of each unit of a wave, and the number of turns: tasks that go together
  std::unique_ptr<Workspace<std::byte>> scratch_;
  std::unique_ptr<Partials<T>> partials_;
  int num_workers_ = 0;    // for which there is room
  Index together_ = 1;     // tasks of a turn
  Index most_rows_ = 0;    // of a task
  bool by_worker_ = true;  // whose results lie in partials_
};

template <class T, class F>
void for_each_row_block(const ResolvedAttention<T>& r, const Runtime& runtime, const RowWalkOptions& options,
                        const F& rows_done) {
  RowWalk<T, F>(r, runtime, options, rows_done).run();
}

template <class T>
void forward(const AttentionCall<T>& call, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
             const AttentionOptions<T>& options, const Runtime& runtime,
             const AttentionStatistics<T>* statistics = nullptr) {
  TypedOutputs<T> written = outputs;
  const Index rows = r.batch * r.num_heads * r.num_queries;
  // The weights need row_max and row_sum, asked for or not.
  const bool weights = !outputs.weights.absent();
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  Workspace<T> row_max(runtime, weights && outputs.row_max.absent() ? rows : 0);
  Workspace<T> row_sum(runtime, weights && outputs.row_sum.absent() ? rows : 0);
  if (row_max.data()) written.row_max = {row_max.data(), shape};
  if (row_sum.data()) written.row_sum = {row_sum.data(), shape};

  // The weights are a second walk over the same rows.
  const bool two_walks = weights && runtime.progress;
  std::array<Runtime, 2> walks;
  if (two_walks) {
    walks.fill(runtime);
    walks[0].progress = [&](Index done, Index total) { runtime.progress(done, 2 * total); };
    walks[1].progress = [&](Index done, Index total) { runtime.progress(total + done, 2 * total); };
  }
  const RowWalkOptions how{.name = call.name,
                           .written_bytes = output_bytes(outputs),
                           .wants_lse = !written.lse.absent(),
                           .num_best = statistics ? num_best(*statistics) : 0};
  const Runtime& walk = two_walks ? walks[0] : runtime;
  if (rows > 0 && !statistics && fits_in_place(r)) {
    attend_in_place(call.name, r, written, how.written_bytes, walk);
  } else {
    const auto write = [&](const RowTask<T>& task, const FinishedRows<T>& done) {
      write_finished(task, done, written);
      if (statistics) finish_statistics(task, done, *statistics);
    };
    for_each_row_block<T>(r, walk, how, [&](std::span<RowTask<T>> tasks, std::span<const ChunkResults<T>> rooms) {
      for (RowTask<T>& task : tasks) task.scratch.context = room_of_context(task, written);
      if (tasks.size() == 1) return write(tasks[0], attend_and_finish(tasks[0], rooms[0]));
      const auto chunks = attend<T>(tasks, rooms);
      for (std::size_t i = 0; i < tasks.size(); ++i) write(tasks[i], finish(tasks[i], chunks[i], rooms[i]));
    });
  }
  if (weights && rows > 0) {
    attention_weights<T>(call.query, call.key, {.row_max = written.row_max, .row_sum = written.row_sum},
                         outputs.weights, options, two_walks ? walks[1] : runtime);
  }
}

// The means of heads are taken from the rows, which are therefore kept where the caller does not ask for them.
template <class T>
void forward_with_statistics(const AttentionCall<T>& call, const ResolvedAttention<T>& r,
                             const TypedOutputs<T>& outputs, const AttentionStatistics<T>& statistics,
                             const AttentionOptions<T>& options, const Runtime& runtime) {
  TypedOutputs<T> written = outputs;
  AttentionStatistics<T> rows = statistics;
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  const Index count = r.batch * r.num_heads * r.num_queries;
  const std::array<std::pair<const TensorView<T, 2>*, TensorView<T, 3>*>, 4> means{
      {{&rows.head_entropy, &rows.entropy},
       {&rows.head_largest_weight, &rows.largest_weight},
       {&rows.head_chosen_weight, &rows.chosen_weight},
       {&rows.head_mean_distance, &rows.mean_distance}}};
  std::vector<TensorView<T, 3>*> missing;
  for (const auto& [head, of_rows] : means) {
    if (!head->absent() && of_rows->absent()) missing.push_back(of_rows);
  }
  const bool averages = std::ranges::any_of(means, [](const auto& mean) { return !mean.first->absent(); });
  if (averages && written.row_sum.absent()) missing.push_back(&written.row_sum);
  const Workspace<T> kept(runtime, static_cast<Index>(missing.size()) * count);
  for (std::size_t i = 0; i < missing.size(); ++i) *missing[i] = {kept.data() + static_cast<Index>(i) * count, shape};
  forward(call, r, written, options, runtime, &rows);
  if (averages && !is_planning()) average_heads(written.row_sum, rows);
}

template <class T>
void write_partials(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& room,
                    const AttentionPartials<T>& partials) {
  const Index b = task.sequence.batch;
  const Index rows = task.rows.num_rows, columns = task.r.columns;
  const T nothing = 0;
  const auto write_sums = [&](const TensorView<T, 5>& output) {
    for (Index n = 0; n < partials.row_max.shape[0]; ++n) {
      const bool visited = n >= chunks.begin && n < chunks.end;
      for (Index i = 0; i < rows; ++i) {
        copy_elements(columns, visited ? room.accumulator + ((n - chunks.begin) * rows + i) * columns : &nothing,
                      visited ? 1 : 0, output.pointer(n, b, task.rows.head, task.rows.first_row + i, 0),
                      output.strides[4]);
      }
    }
  };
  for (Index n = 0; n < partials.row_max.shape[0]; ++n) {
    const bool visited = n >= chunks.begin && n < chunks.end;
    for (Index i = 0; i < rows; ++i) {
      const Index row = task.rows.first_row + i;
      const Index at = (n - chunks.begin) * rows + i;
      const T row_max = visited ? room.row_max[at] : -std::numeric_limits<T>::infinity();
      const T row_sum = visited ? room.row_sum[at] : 0;
      copy_elements(1, &row_max, 1, partials.row_max.pointer(n, b, task.rows.head, row), 1);
      copy_elements(1, &row_sum, 1, partials.row_sum.pointer(n, b, task.rows.head, row), 1);
    }
  }
  write_sums(partials.accumulator);
  if (partials.scaled_accumulator.absent()) return;
  attend_scaled(task, chunks, room);
  write_sums(partials.scaled_accumulator);
}

}  // namespace
}  // namespace internal

template <class T>
void attention_forward(const InputView<ComputeType<T>, 4>& query, const InputView<ComputeType<T>, 4>& key,
                       const InputView<ComputeType<T>, 4>& value, const AttentionOutputs<T>& outputs,
                       const AttentionOptions<ComputeType<T>>& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  const internal::AttentionCall<ComputeType<T>> call{"attention_forward", query, key, value, true};
  const auto r = internal::resolve(call, options);
  internal::check_context_type(call.name, kElementType<T>, query.type);
  const internal::TypedOutputs<ComputeType<T>> written(outputs);
  internal::check_outputs(call.name, written, {r.batch, r.num_heads, r.num_queries, r.columns}, r.num_keys,
                          internal::input_footprints(call, options));
  internal::forward(call, r, written, options, runtime);
}

template <class T>
AttentionResult<T> attention_with_weights(TensorView<const T, 4> query, const InputView<ComputeType<T>, 4>& key,
                                          const InputView<ComputeType<T>, 4>& value,
                                          const AttentionOptions<ComputeType<T>>& options, const Runtime& runtime) {
  const internal::AttentionCall<ComputeType<T>> call{"attention_with_weights", query, key, value, true};
  const auto r = internal::resolve(call, options);
  internal::input_footprints(call, options);
  Index bytes = static_cast<Index>(sizeof(ComputeType<T>));
  bool overflow = false;
  for (Index n : {r.batch, r.num_heads, r.num_queries, r.num_keys}) {
    overflow = overflow || __builtin_mul_overflow(bytes, n, &bytes);
  }
  const std::array<Index, 4> shape{r.batch, r.num_heads, r.num_queries, r.num_keys};
  const std::size_t available = available_memory_bytes();
  if (overflow || static_cast<std::size_t>(bytes) > available) {
    internal::refuse(call.name, "weights of shape " + internal::shape_text(shape) + " need " +
                                    (overflow ? "more than 2^63" : std::to_string(bytes)) + " bytes; " +
                                    std::to_string(available) +
                                    " are available; expected fewer rows, or attention_weights for chosen rows");
  }
  AttentionResult<T> result{Tensor<T, 4>({r.batch, r.num_heads, r.num_queries, r.columns}),
                            Tensor<ComputeType<T>, 4>(shape)};
  attention_forward<T>(query, key, value,
                       AttentionOutputs<T>{.context = result.context.view(), .weights = result.weights.view()}, options,
                       runtime);
  return result;
}

template <class T>
void attention_with_statistics(const InputView<ComputeType<T>, 4>& query, const InputView<ComputeType<T>, 4>& key,
                               const InputView<ComputeType<T>, 4>& value, const AttentionOutputs<T>& outputs,
                               const AttentionStatistics<ComputeType<T>>& statistics,
                               const AttentionOptions<ComputeType<T>>& options, const Runtime& runtime) {
  using Compute = ComputeType<T>;
  const internal::FloatingPointScope scope;
  const internal::AttentionCall<Compute> call{"attention_with_statistics", query, key, value, true};
  const auto r = internal::resolve(call, options);
  internal::check_context_type(call.name, kElementType<T>, query.type);
  const internal::TypedOutputs<Compute> written(outputs);
  std::vector<internal::Footprint> others = internal::input_footprints(call, options);
  if (!statistics.chosen_keys.empty()) {
    const Index count = static_cast<Index>(statistics.chosen_keys.size());
    others.push_back(internal::footprint(call.name, "chosen_keys",
                                         TensorView<const Index, 1>(statistics.chosen_keys.data(), {count})));
  }
  const std::array<Index, 4> context{r.batch, r.num_heads, r.num_queries, r.columns};
  for (internal::Footprint& output : internal::check_outputs(call.name, written, context, r.num_keys, others)) {
    others.push_back(std::move(output));
  }
  std::vector<internal::Footprint> numbers;
  internal::check_row_statistics(call.name, r, statistics, numbers);
  internal::check_overlap(call.name, others, numbers);
  internal::forward_with_statistics(call, r, written, statistics, options, runtime);
}

template <class T>
void attention_partials(const std::type_identity_t<InputView<T, 4>>& query,
                        const std::type_identity_t<InputView<T, 4>>& key,
                        const std::type_identity_t<InputView<T, 4>>& value, const AttentionPartials<T>& partials,
                        const std::type_identity_t<AttentionOptions<T>>& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  const internal::AttentionCall<T> call{"attention_partials", query, key, value, true};
  const auto r = internal::resolve(call, options);
  if (!options.sinks.empty())
    internal::refuse(call.name, "sinks are given; expected none (attention_merge takes them)");
  if (options.dropout != 0) internal::refuse(call.name, "dropout is given; expected none");
  if (!options.query_starts.empty()) {
    internal::refuse(call.name, "query_starts is given; expected one call per packed sequence");
  }
  const Index chunks = attention_num_chunks(r.num_keys);
  const std::array<Index, 4> rows{chunks, r.batch, r.num_heads, r.num_queries};
  std::vector<internal::Footprint> written;
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    if (view.absent() && r.batch * r.num_heads * r.num_queries * chunks != 0) {
      internal::refuse(call.name, std::string(name) + " is missing; expected " + internal::shape_text(shape));
    }
    internal::expect_shape(call.name, name, view, shape);
    written.push_back(internal::footprint(call.name, name, view));
  };
  const std::array<Index, 5> sums{chunks, r.batch, r.num_heads, r.num_queries, r.columns};
  check("accumulator", partials.accumulator, sums);
  check("row_max", partials.row_max, rows);
  check("row_sum", partials.row_sum, rows);
  if (!partials.scaled_accumulator.absent()) check("scaled_accumulator", partials.scaled_accumulator, sums);
  internal::check_overlap(call.name, internal::input_footprints(call, options), written);
  const double written_bytes = internal::view_bytes(partials.accumulator) + internal::view_bytes(partials.row_max) +
                               internal::view_bytes(partials.row_sum) +
                               internal::view_bytes(partials.scaled_accumulator);
  const internal::RowWalkOptions how{.name = call.name, .written_bytes = written_bytes};
  internal::for_each_row_block<T>(
      r, runtime, how,
      [&](std::span<const internal::RowTask<T>> tasks, std::span<const internal::ChunkResults<T>> rooms) {
        const auto visited = internal::attend<T>(tasks, rooms);
        for (std::size_t i = 0; i < tasks.size(); ++i)
          internal::write_partials(tasks[i], visited[i], rooms[i], partials);
      });
}

template void attention_with_statistics<float>(const InputView<float, 4>&, const InputView<float, 4>&,
                                               const InputView<float, 4>&, const AttentionOutputs<float>&,
                                               const AttentionStatistics<float>&, const AttentionOptions<float>&,
                                               const Runtime&);
template void attention_forward<float>(const InputView<float, 4>&, const InputView<float, 4>&,
                                       const InputView<float, 4>&, const AttentionOutputs<float>&,
                                       const AttentionOptions<float>&, const Runtime&);
template AttentionResult<float> attention_with_weights<float>(TensorView<const float, 4>, const InputView<float, 4>&,
                                                              const InputView<float, 4>&,
                                                              const AttentionOptions<float>&, const Runtime&);
template void attention_partials<float>(const InputView<float, 4>&, const InputView<float, 4>&,
                                        const InputView<float, 4>&, const AttentionPartials<float>&,
                                        const AttentionOptions<float>&, const Runtime&);
template void attention_with_statistics<double>(const InputView<double, 4>&, const InputView<double, 4>&,
                                                const InputView<double, 4>&, const AttentionOutputs<double>&,
                                                const AttentionStatistics<double>&, const AttentionOptions<double>&,
                                                const Runtime&);
template void attention_forward<double>(const InputView<double, 4>&, const InputView<double, 4>&,
                                        const InputView<double, 4>&, const AttentionOutputs<double>&,
                                        const AttentionOptions<double>&, const Runtime&);
template AttentionResult<double> attention_with_weights<double>(TensorView<const double, 4>,
                                                                const InputView<double, 4>&,
                                                                const InputView<double, 4>&,
                                                                const AttentionOptions<double>&, const Runtime&);
template void attention_partials<double>(const InputView<double, 4>&, const InputView<double, 4>&,
                                         const InputView<double, 4>&, const AttentionPartials<double>&,
                                         const AttentionOptions<double>&, const Runtime&);
template void attention_with_statistics<bfloat16>(const InputView<float, 4>&, const InputView<float, 4>&,
                                                  const InputView<float, 4>&, const AttentionOutputs<bfloat16>&,
                                                  const AttentionStatistics<float>&, const AttentionOptions<float>&,
                                                  const Runtime&);
template void attention_forward<bfloat16>(const InputView<float, 4>&, const InputView<float, 4>&,
                                          const InputView<float, 4>&, const AttentionOutputs<bfloat16>&,
                                          const AttentionOptions<float>&, const Runtime&);
template AttentionResult<bfloat16> attention_with_weights<bfloat16>(TensorView<const bfloat16, 4>,
                                                                    const InputView<float, 4>&,
                                                                    const InputView<float, 4>&,
                                                                    const AttentionOptions<float>&, const Runtime&);
template void attention_with_statistics<float16>(const InputView<float, 4>&, const InputView<float, 4>&,
                                                 const InputView<float, 4>&, const AttentionOutputs<float16>&,
                                                 const AttentionStatistics<float>&, const AttentionOptions<float>&,
                                                 const Runtime&);
template void attention_forward<float16>(const InputView<float, 4>&, const InputView<float, 4>&,
                                         const InputView<float, 4>&, const AttentionOutputs<float16>&,
                                         const AttentionOptions<float>&, const Runtime&);
template AttentionResult<float16> attention_with_weights<float16>(TensorView<const float16, 4>,
                                                                  const InputView<float, 4>&,
                                                                  const InputView<float, 4>&,
                                                                  const AttentionOptions<float>&, const Runtime&);

}  // namespace v0
}  // namespace regard
