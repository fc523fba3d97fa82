// SPDX-License-Identifier: Apache-2.0
//
// The schedules of forward_schedule.h: who packs what, which tasks go together, what is fetched for the next task.
// Read next: packed_kv.cpp, row_task.cpp.
#include "forward_schedule.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "kernels/table.h"
#include "kv_panels.h"
#include "packed_kv.h"
#include "plan.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "task_rows.h"

namespace regard::inline v0::internal {
namespace {

// Rows of a task: 60 or a few less, so that the tasks of a sequence are equally long and made of whole register tiles.
template <class T>
Index rows_per_task(const Sequence& sequence) {
  const Index tasks = std::max<Index>((sequence.num_queries + kernels::kRows - 1) / kernels::kRows, 1);
  const Index group = kernels::active().of<T>().row_group;
  return std::max<Index>((sequence.num_queries + tasks * group - 1) / (tasks * group), 1) * group;
}

// The tasks of one head of a sequence.
template <class T>
Index num_row_blocks(const Sequence& sequence) {
  return (sequence.num_queries + rows_per_task<T>(sequence) - 1) / rows_per_task<T>(sequence);
}

// Who packs how much. Heads of one task are packed by blocks, also where they are fewer than the workers and one of
// them packed whole exceeds the budget of a wave: its rows are one worker's either way. Others are packed by heads
// where one by itself fits half of a second-level cache, and each worker gets as many or there are enough for no worker
// to end alone.
template <class T>
OwnPacking own_packing(const ResolvedAttention<T>& r, const Runtime& runtime) {
  constexpr Index kUnitBytes = Index{512} << 10;
  constexpr Index kEvenUnits = 4, kEnoughUnits = 16;  // for each worker
  Index largest = 0, most_blocks = 0;
  double products = 0;
  for (const Sequence& sequence : r.sequences) {
    if (sequence.num_queries == 0) continue;
    largest = std::max(largest, sequence.key_limit);
    most_blocks = std::max(most_blocks, num_row_blocks<T>(sequence));
    products += static_cast<double>(sequence.num_queries) * static_cast<double>(sequence.key_limit);
  }
  products *= static_cast<double>(r.num_heads * (r.head_size + r.value_head_size));
  const Index kv_heads = static_cast<Index>(r.sequences.size()) * r.num_kv_heads;
  const int workers = num_workers(runtime, std::numeric_limits<Index>::max(), products);
  const bool one_task = most_blocks == 1 && r.num_heads == r.num_kv_heads;
  if (kv_heads < workers) {
    const Index padded_value_head_size = (r.value_head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel;
    const bool long_kv_head =
        largest > kWaveBytes / ((r.head_size + padded_value_head_size) * static_cast<Index>(sizeof(T)));
    return one_task && long_kv_head ? OwnPacking{static_cast<int>(kv_heads), true} : OwnPacking{};
  }
  if (one_task) return {workers, true};
  const bool small = largest * (r.head_size + r.value_head_size) * static_cast<Index>(sizeof(T)) <= kUnitBytes;
  const bool fair = kv_heads >= kEnoughUnits * workers || (kv_heads % workers == 0 && kv_heads >= kEvenUnits * workers);
  return small && (fair || workers == 1) ? OwnPacking{workers, false} : OwnPacking{};
}

// Calls rows_done for all rows of every head, up to 60 a task.
template <class T>
class ForwardSchedule {
 public:
  ForwardSchedule(const ResolvedAttention<T>& r, const Runtime& runtime, const ForwardScheduleOptions<T>& options,
                  const RowsDone<T>& rows_done)
      : r_(r),
        runtime_(runtime),
        options_(options),
        rows_done_(rows_done),
        own_(own_packing(r, runtime)),
        packed_(r, runtime, own_),
        most_chunks_(most_chunks(r)),
        fetches_(exceeds_caches(r)),
        progress_(runtime, r.batch * r.num_heads * r.num_queries),
        first_group_(workspace_of(runtime)) {}

  void run() {
    if (is_planning())
      plan_attention(options_.name, r_, type_bytes(r_.key.type), type_bytes(r_.value.type), way(),
                     options_.written_bytes);
    if (own_.workers > 0) {
      allocate(own_.workers, 1);
      for_each_item(runtime_, own_.workers, packed_.num_kv_heads(), [&](Index number, int worker) {
        const KvHead kv_head = packed_.own_kv_head(number, worker);
        // This worker will most likely process head number + workers next.
        const Index after = number + own_.workers;
        const KvHead next = after < packed_.num_kv_heads() ? packed_.kv_head_at(after, 0) : KvHead{};
        for (Index task = 0; task < num_tasks(kv_head); ++task) {
          throw_if_stopped(runtime_.stop);
          kernels::PrefetchPlan ahead;
          if (fetches_) ahead = prefetch_after(kv_head, task, next);
          run_tasks(kv_head, task, worker, fetches_ ? &ahead : nullptr);
        }
      });
      return;
    }
    while (!packed_.done()) run_wave(packed_.next_wave(runtime_));
  }

 private:
  const Sequence& sequence_of(const KvHead& kv_head) const {
    return r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
  }
  std::string way() const {
    const bool explains = options_.why_packed && *options_.why_packed;
    return explains ? who_packs() + "; few rows, but not read unpacked: " + options_.why_packed : who_packs();
  }
  std::string who_packs() const {
    const std::string heads = std::to_string(packed_.num_kv_heads()) + " key heads, ";
    if (own_.by_block) return heads + "each attended by one thread, which packs a block of 64 keys at a time: few rows";
    return own_.workers > 0
               ? heads + "each packed and attended by one thread: they are short, and enough for the threads"
               : heads + "packed together, up to " + std::to_string(kWaveBytes >> 20) +
                     " MiB or one head at a time, and attended by all threads";
  }
  // Whether the call's rows are too many to lie in second-level caches still: asking for those costs more than it
  // saves.
  static bool exceeds_caches(const ResolvedAttention<T>& r) {
    constexpr Index kNearBytes = Index{2} << 20;
    const Index rows = r.batch * (r.num_heads * r.num_queries + r.num_kv_heads * r.num_keys);
    return r.head_size > 0 && r.value_head_size > 0 &&
           rows > kNearBytes / ((r.head_size + r.value_head_size) * static_cast<Index>(sizeof(T)));
  }
  Index heads_per_key_head() const { return r_.num_heads / r_.num_kv_heads; }
  Index num_tasks(const KvHead& kv_head) const {
    return heads_per_key_head() * num_row_blocks<T>(sequence_of(kv_head));
  }

  // Scratch of each worker, and room for the results of its task's chunks: of the longest task, or, where that is less,
  // of every row there is.
  void allocate(int workers, Index together) {
    const Index observer_bytes = options_.observer ? options_.observer->scratch_bytes() : 0;
    const RowScratchLayout<T> layout(r_, packed_.padded_value_head_size(), false, observer_bytes);
    scratches_.emplace(runtime_, layout, workers * together);
    num_workers_ = workers;
    tasks_per_group_ = together;
    max_rows_ = 0;
    for (const Sequence& sequence : r_.sequences)
      max_rows_ = std::max(max_rows_, std::min(rows_per_task<T>(sequence), sequence.num_queries));
    const Index all_rows = r_.batch * r_.num_heads * r_.num_queries;
    const Index rows_at_once = workers * together * max_rows_;
    by_worker_ = rows_at_once <= all_rows;
    partials_.emplace(runtime_, std::min(rows_at_once, all_rows) * most_chunks_, r_.value_head_size);
  }
  // place: of the scratch, one of each worker's tasks_per_group_.
  ChunkResults<T> results_of(const RowTask<T>& task, Index place) const {
    const Index row = (task.sequence.batch * r_.num_heads + task.rows.head) * r_.num_queries +
                      task.sequence.first_query + task.rows.first_row;
    return partials_->at((by_worker_ ? place * max_rows_ : row) * most_chunks_);
  }

  TaskRows rows_of(const KvHead& kv_head, Index task) const {
    const Sequence& sequence = sequence_of(kv_head);
    const Index rows = rows_per_task<T>(sequence);
    const Index blocks = num_row_blocks<T>(sequence);
    // Under a causal mask the last rows are the longest: they go first, so that no thread ends with one.
    const Index first_row = (blocks - 1 - task % blocks) * rows;
    return {.head = kv_head.key_head * heads_per_key_head() + task / blocks,
            .first_row = first_row,
            .num_rows = std::min(rows, sequence.num_queries - first_row),
            .rows_per_head = sequence.num_queries};
  }

  // What the worker needs after this task: the rows of the next, of this kv_head or the next one, and a share of the
  // next one's keys and values.
  kernels::PrefetchPlan prefetch_after(const KvHead& kv_head, Index task, const KvHead& next) const {
    const Index tasks = num_tasks(kv_head);
    const bool last = task + 1 == tasks;
    const bool ends = next.num_panels == 0;
    kernels::PrefetchPlan ahead{};
    Index most = 0;
    const auto take = [&](int i, const void* first, Index stride, Index columns, ElementType type, Index count) {
      ahead.rows[i] = {static_cast<const char*>(first), stride * type_bytes(type), columns * type_bytes(type), count};
      most = std::max(most, count);
    };
    if (!last || !ends) {
      const KvHead& of = last ? next : kv_head;
      const Sequence& sequence = sequence_of(of);
      const TaskRows rows = rows_of(of, last ? 0 : task + 1);
      const Index row = sequence.first_query + rows.first_row;
      take(0, r_.query.pointer(sequence.batch, rows.head, row, 0), r_.query.strides[2], r_.head_size, r_.query.type,
           rows.num_rows);
      if (const auto* context = options_.context)
        take(1, context->pointer(sequence.batch, rows.head, row, 0), context->strides[2], r_.value_head_size,
             context->type, rows.num_rows);
    }
    if (!ends) {
      const Sequence& sequence = sequence_of(next);
      const Index share = own_.by_block ? kernels::kBlockKeys : (sequence.key_limit + tasks - 1) / tasks;
      const Index key = std::min(task * share, sequence.key_limit);
      const Index count = std::min(share, sequence.key_limit - key);
      take(2, r_.key.pointer(sequence.batch, next.key_head, sequence.first_key + key, 0), r_.key.strides[2],
           r_.head_size, r_.key.type, count);
      take(3, r_.value.pointer(sequence.batch, next.key_head, sequence.first_key + key, 0), r_.value.strides[2],
           r_.value_head_size, r_.value.type, count);
    }
    const Index group = kernels::active().of<T>().row_group;
    const Index blocks =
        own_.by_block ? 1 : (sequence_of(kv_head).key_limit + kernels::kBlockKeys - 1) / kernels::kBlockKeys;
    const Index tiles = (rows_of(kv_head, task).num_rows + group - 1) / group * blocks *
                        (kernels::kBlockPanels + packed_.padded_value_head_size() / kernels::kPanel);
    ahead.rows_a_tile = (most + tiles - 1) / std::max<Index>(tiles, 1);
    return ahead;
  }

  RowTask<T> task_at(const KvHead& kv_head, Index task, Index place, kernels::PrefetchPlan* ahead) const {
    return {.r = r_,
            .packed = packed_,
            .runtime = runtime_,
            .kv_head = kv_head,
            .sequence = sequence_of(kv_head),
            .rows = rows_of(kv_head, task),
            .scratch = (*scratches_)[place],
            .wants_lse = options_.wants_lse,
            .observer = options_.observer,
            .ahead = ahead};
  }

  // The tasks from `first` on, as many as go together.
  void run_tasks(const KvHead& kv_head, Index first, int worker, kernels::PrefetchPlan* ahead = nullptr) {
    const auto run = [&](std::span<RowTask<T>> tasks) {
      std::array<ChunkResults<T>, kMaxTasksPerGroup> results;
      Index rows = 0;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        results[i] = results_of(tasks[i], worker * tasks_per_group_ + static_cast<Index>(i));
        rows += tasks[i].rows.num_rows;
      }
      rows_done_(tasks, std::span<const ChunkResults<T>>(results.data(), tasks.size()));
      progress_.add(rows);
    };
    const Index count = std::min(tasks_per_group_, num_tasks(kv_head) - first);
    const auto task = [&](Index i) { return task_at(kv_head, first + i, worker * tasks_per_group_ + i, ahead); };
    if (count == 1) {
      RowTask<T> only = task(0);
      run(std::span(&only, 1));
    } else {
      static_assert(kMaxTasksPerGroup == 4);
      std::array<RowTask<T>, kMaxTasksPerGroup> tasks{task(0), task(1), task(std::min<Index>(2, count - 1)),
                                                      task(std::min<Index>(3, count - 1))};
      run(std::span(tasks).first(static_cast<std::size_t>(count)));
    }
  }

  // Tasks go together where a head's panels are too many for a second-level cache, as long as that leaves each worker
  // enough to share fairly.
  Index group_size(int workers, Index num_tasks) const {
    constexpr Index kStaysNear = Index{6} << 20;
    constexpr Index kEnough = 16;
    if (packed_.largest_unit_bytes() < kStaysNear) return 1;
    return std::clamp<Index>(num_tasks / (kEnough * workers), 1, kMaxTasksPerGroup);
  }

  void run_wave(const List<KvHead>& kv_heads) {
    Index all_tasks = 0;
    double products = 0;
    for (const KvHead& kv_head : kv_heads) {
      all_tasks += num_tasks(kv_head);
      products += static_cast<double>(heads_per_key_head() * sequence_of(kv_head).num_queries) *
                  static_cast<double>(kv_head.num_panels) *
                  static_cast<double>(kernels::kPanel * (r_.head_size + r_.value_head_size));
    }
    const int workers = num_workers(runtime_, all_tasks, products);
    if (workers > num_workers_) allocate(workers, group_size(workers, all_tasks));
    first_group_.assign(1, 0);
    for (const KvHead& kv_head : kv_heads)
      first_group_.push_back(first_group_.back() + (num_tasks(kv_head) + tasks_per_group_ - 1) / tasks_per_group_);
    for_each_item(runtime_, workers, first_group_.back(), [&](Index group, int worker) {
      const auto kv_head = std::upper_bound(first_group_.begin(), first_group_.end(), group) - first_group_.begin() - 1;
      run_tasks(kv_heads[static_cast<std::size_t>(kv_head)],
                (group - first_group_[static_cast<std::size_t>(kv_head)]) * tasks_per_group_, worker);
    });
  }

  const ResolvedAttention<T>& r_;
  const Runtime& runtime_;
  ForwardScheduleOptions<T> options_;
  const RowsDone<T>& rows_done_;
  OwnPacking own_;
  PackedKv<T> packed_;
  Index most_chunks_;
  bool fetches_;
  Progress progress_;
  List<Index> first_group_;  // of each kv_head of a wave, and the number of groups: tasks that go together
  std::optional<RowScratches<T>> scratches_;  // of each worker, and of each task of its group
  std::optional<Partials<T>> partials_;
  int num_workers_ = 0;        // for which there is buffer
  Index tasks_per_group_ = 1;  // tasks of a group
  Index max_rows_ = 0;         // of a task
  bool by_worker_ = true;      // whose results lie in partials_
};

}  // namespace

template <class T>
void for_each_row_block(const ResolvedAttention<T>& r, const Runtime& runtime, const ForwardScheduleOptions<T>& options,
                        const RowsDone<T>& rows_done) {
  ForwardSchedule<T>(r, runtime, options, rows_done).run();
}

template decltype(for_each_row_block<float>) for_each_row_block<float>;
template decltype(for_each_row_block<double>) for_each_row_block<double>;

}  // namespace regard::inline v0::internal
