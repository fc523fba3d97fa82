// SPDX-License-Identifier: Apache-2.0
//
// The schedules of forward_schedule.h, in three steps:
//
//   1. own_packing                which workers pack for themselves, and how much at a time
//   2. run_heads, or run_wave     items for the workers: a head, or a group of tasks of a head that is already packed
//   3. run_tasks                  the tasks of a group, each with its scratch and its buffer for results
//
// Read next: row_blocks.h, prefetch.cpp, packed_kv.cpp, row_task.cpp.
#include "forward_schedule.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "instantiate.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "packed_kv.h"
#include "plan.h"
#include "prefetch.h"
#include "row_blocks.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"

namespace regard::inline v0::internal {
namespace {

// Which workers pack for themselves, and how much at a time:
//
// - By block: KV heads with a single task, whose rows one worker processes in any case. If there are fewer heads than
//   workers, only if a packed head exceeds the wave budget.
// - Whole heads: if a packed head fits in half of a second-level cache, and if each worker gets the same number of
//   heads or there are enough heads to balance the load.
// - Otherwise, heads are packed in waves.
template <class T>
OwnPacking own_packing(const ResolvedAttention<T>& r, const RowBlocks<T>& blocks, const Runtime& runtime) {
  constexpr Index kSmallHeadBytes = Index{512} << 10;
  constexpr Index kEvenHeads = 4, kEnoughHeads = 16;  // per worker
  Index largest = 0, max_tasks = 0;
  double products = 0;
  for (const Sequence& sequence : r.sequences) {
    if (sequence.num_queries == 0) continue;
    largest = std::max(largest, sequence.key_limit);
    max_tasks = std::max(max_tasks, blocks.tasks_per_head(sequence));
    products += static_cast<double>(sequence.num_queries) * static_cast<double>(sequence.key_limit);
  }
  products *= static_cast<double>(r.num_heads * (r.head_size + r.value_head_size));
  const Index kv_heads = static_cast<Index>(r.sequences.size()) * r.num_kv_heads;
  const int workers = num_workers(runtime, std::numeric_limits<Index>::max(), products);
  const bool one_task = max_tasks == 1 && r.num_heads == r.num_kv_heads;
  if (kv_heads < workers) {
    const Index padded_value_head_size = (r.value_head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel;
    const bool long_kv_head =
        largest > kWaveBytes / ((r.head_size + padded_value_head_size) * static_cast<Index>(sizeof(T)));
    return one_task && long_kv_head ? OwnPacking{static_cast<int>(kv_heads), true} : OwnPacking{};
  }
  if (one_task) return {workers, true};
  const bool small = largest * (r.head_size + r.value_head_size) * static_cast<Index>(sizeof(T)) <= kSmallHeadBytes;
  const bool fair = kv_heads >= kEnoughHeads * workers || (kv_heads % workers == 0 && kv_heads >= kEvenHeads * workers);
  return small && (fair || workers == 1) ? OwnPacking{workers, false} : OwnPacking{};
}

// The description of the packing for a plan.
std::string packing_text(const OwnPacking& own, Index num_kv_heads, const char* packing_reason) {
  std::string text = std::to_string(num_kv_heads) + " KV heads, ";
  if (own.by_block) {
    text += "each processed by one thread, which packs 64 keys at a time: few rows";
  } else if (own.workers > 0) {
    text += "each packed and processed by one thread: short heads, and enough for all threads";
  } else {
    text += "packed in waves of up to " + std::to_string(kWaveBytes >> 20) +
            " MiB or one head, and processed by all threads";
  }
  if (packing_reason && *packing_reason) text += std::string("; few rows, but not read unpacked: ") + packing_reason;
  return text;
}

// Calls rows_done for all rows of every head, up to 60 rows per task.
template <class T>
class ForwardSchedule {
 public:
  ForwardSchedule(const ResolvedAttention<T>& r, const Runtime& runtime, const ForwardScheduleOptions<T>& options,
                  const RowsDone<T>& rows_done)
      : r_(r),
        runtime_(runtime),
        options_(options),
        rows_done_(rows_done),
        blocks_(r),
        own_(own_packing(r, blocks_, runtime)),
        packed_(r, runtime, own_),
        max_chunks_(max_chunks(r)),
        progress_(runtime, r.batch * r.num_heads * r.num_queries),
        first_group_(workspace_of(runtime)) {}

  void run() {
    if (is_planning())
      plan_attention(options_.name, r_, type_bytes(r_.key.type), type_bytes(r_.value.type),
                     packing_text(own_, packed_.num_kv_heads(), options_.packing_reason), options_.written_bytes);
    if (own_.workers > 0) {
      run_heads();
    } else {
      while (!packed_.done()) run_wave(packed_.next_wave(runtime_));
    }
  }

 private:
  // ---- the three schedules: by head and by block, which differ only in when PackedKv packs; and waves

  void run_heads() {
    allocate(own_.workers, 1);
    const bool prefetches = exceeds_caches(r_, static_cast<Index>(sizeof(T)));
    for_each_item(runtime_, own_.workers, packed_.num_kv_heads(), [&](Index number, int worker) {
      const KvHead kv_head = packed_.own_kv_head(number, worker);
      // This worker will most likely process head number + workers next.
      const Index after = number + own_.workers;
      const KvHead next = after < packed_.num_kv_heads() ? packed_.kv_head_at(after, 0) : KvHead{};
      for (Index task = 0; task < blocks_.num_tasks(kv_head); ++task) {
        throw_if_stopped(runtime_.stop);
        kernels::PrefetchPlan prefetch_plan;
        if (prefetches) prefetch_plan = prefetch_after(r_, blocks_, packed_, options_.context, kv_head, task, next);
        run_tasks(kv_head, task, worker, prefetches ? &prefetch_plan : nullptr);
      }
    });
  }

  void run_wave(const ScratchVector<KvHead>& kv_heads) {
    Index all_tasks = 0;
    double products = 0;
    for (const KvHead& kv_head : kv_heads) {
      all_tasks += blocks_.num_tasks(kv_head);
      products += static_cast<double>(blocks_.heads_per_key_head() * blocks_.sequence_of(kv_head).num_queries) *
                  static_cast<double>(kv_head.num_panels) *
                  static_cast<double>(kernels::kPanel * (r_.head_size + r_.value_head_size));
    }
    const int workers = num_workers(runtime_, all_tasks, products);
    if (workers > num_workers_) allocate(workers, group_size(workers, all_tasks));
    first_group_.assign(1, 0);
    for (const KvHead& kv_head : kv_heads)
      first_group_.push_back(first_group_.back() +
                             (blocks_.num_tasks(kv_head) + tasks_per_group_ - 1) / tasks_per_group_);
    for_each_item(runtime_, workers, first_group_.back(), [&](Index group, int worker) {
      const auto kv_head = std::upper_bound(first_group_.begin(), first_group_.end(), group) - first_group_.begin() - 1;
      run_tasks(kv_heads[static_cast<std::size_t>(kv_head)],
                (group - first_group_[static_cast<std::size_t>(kv_head)]) * tasks_per_group_, worker);
    });
  }

  // Tasks form groups if a head's panels exceed a second-level cache, as long as each worker still has enough work
  // items for a balanced load.
  Index group_size(int workers, Index num_tasks) const {
    constexpr Index kStaysNear = Index{6} << 20;
    constexpr Index kEnough = 16;
    if (packed_.largest_unit_bytes() < kStaysNear) return 1;
    return std::clamp<Index>(num_tasks / (kEnough * workers), 1, kMaxTasksPerGroup);
  }

  // ---- tasks

  // Allocates the scratch of each worker, and a buffer for the results of its task's chunks: sized for the longest
  // task, or for all rows of the call if that is smaller.
  void allocate(int workers, Index tasks_per_group) {
    const Index observer_bytes = options_.observer ? options_.observer->scratch_bytes() : 0;
    const RowScratchLayout<T> layout(r_, packed_.padded_value_head_size(), false, observer_bytes);
    scratches_.emplace(runtime_, layout, workers * tasks_per_group);
    num_workers_ = workers;
    tasks_per_group_ = tasks_per_group;
    max_rows_ = blocks_.max_rows();
    const Index all_rows = r_.batch * r_.num_heads * r_.num_queries;
    const Index rows_at_once = workers * tasks_per_group * max_rows_;
    by_worker_ = rows_at_once <= all_rows;
    partials_.emplace(runtime_, std::min(rows_at_once, all_rows) * max_chunks_, r_.value_head_size);
  }
  // scratch_index: an index into scratches_, of which each worker has tasks_per_group_.
  ChunkResults<T> results_of(const RowTask<T>& task, Index scratch_index) const {
    const Index row = (task.sequence.batch * r_.num_heads + task.rows.head) * r_.num_queries +
                      task.sequence.first_query + task.rows.first_row;
    return partials_->at((by_worker_ ? scratch_index * max_rows_ : row) * max_chunks_);
  }

  // Runs the group of tasks that starts at `first`.
  void run_tasks(const KvHead& kv_head, Index first, int worker, kernels::PrefetchPlan* prefetch_plan = nullptr) {
    const Index count = std::min(tasks_per_group_, blocks_.num_tasks(kv_head) - first);
    const Index first_scratch = worker * tasks_per_group_;
    with_task_group<T>(
        count,
        [&](Index i) {
          return RowTask<T>{.r = r_,
                            .packed = packed_,
                            .runtime = runtime_,
                            .kv_head = kv_head,
                            .sequence = blocks_.sequence_of(kv_head),
                            .rows = blocks_.rows_of(kv_head, first + i),
                            .scratch = (*scratches_)[first_scratch + i],
                            .wants_lse = options_.wants_lse,
                            .observer = options_.observer,
                            .prefetch_plan = prefetch_plan};
        },
        [&](std::span<RowTask<T>> tasks) {
          std::array<ChunkResults<T>, kMaxTasksPerGroup> results;
          Index rows = 0;
          for (std::size_t i = 0; i < tasks.size(); ++i) {
            results[i] = results_of(tasks[i], first_scratch + static_cast<Index>(i));
            rows += tasks[i].rows.num_rows;
          }
          rows_done_(tasks, std::span<const ChunkResults<T>>(results.data(), tasks.size()));
          progress_.add(rows);
        });
  }

  const ResolvedAttention<T>& r_;
  const Runtime& runtime_;
  ForwardScheduleOptions<T> options_;
  const RowsDone<T>& rows_done_;
  RowBlocks<T> blocks_;
  OwnPacking own_;
  PackedKv<T> packed_;
  Index max_chunks_;
  Progress progress_;
  ScratchVector<Index> first_group_;          // of each KV head of a wave, then the total number of groups
  std::optional<RowScratches<T>> scratches_;  // of each worker, and of each task of its group
  std::optional<Partials<T>> partials_;
  int num_workers_ = 0;        // that have a buffer
  Index tasks_per_group_ = 1;  // tasks of a group
  Index max_rows_ = 0;         // of a task
  bool by_worker_ = true;      // partials_ is indexed by worker, not by row
};

}  // namespace

template <class T>
void for_each_row_block(const ResolvedAttention<T>& r, const Runtime& runtime, const ForwardScheduleOptions<T>& options,
                        const RowsDone<T>& rows_done) {
  ForwardSchedule<T>(r, runtime, options, rows_done).run();
}

REGARD_INSTANTIATE_COMPUTE(for_each_row_block);

}  // namespace regard::inline v0::internal
