// SPDX-License-Identifier: Apache-2.0
//
// The schedule of few_row_schedule.h, in two steps:
//
//   1. list_items                  tasks, the chunks of each, and groups of tasks
//   2. run_whole, or run_split     each group as a whole, or each chunk of it separately and then every task's result
//
// Read next: row_task.cpp.
#include "few_row_schedule.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "instantiate.h"
#include "kernels/table.h"
#include "plan.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "task_rows.h"
#include "visibility.h"

namespace regard::inline v0::internal {
namespace {

// A task, the chunks that it processes, and the index of its first partial when the partials of all tasks are kept.
struct WorkItem {
  std::size_t kv_head;
  Index first_row;
  Index num_rows;
  ChunkRange chunks;
  Index first_partial;

  Index num_partials() const { return chunks.size() * num_rows; }
};

// Tasks of one KV head that iterate over its keys together, and the chunks that any of them processes.
struct TaskGroup {
  std::size_t first_item;
  std::size_t num_items;
  ChunkRange chunks;
};

template <class T>
class FewRowSchedule {
 public:
  FewRowSchedule(const ResolvedAttention<T>& r, const KvPanels<T>& keys, const FewRowOptions& options,
                 const RowWriter<T>& writer, const Runtime& runtime)
      : r_(r),
        keys_(keys),
        options_(options),
        writer_(writer),
        runtime_(runtime),
        heads_per_key_head_(r.num_kv_heads > 0 ? r.num_heads / r.num_kv_heads : 0),
        padded_columns_((r.value_head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel),
        progress_(runtime, r.batch * r.num_heads * r.num_queries),
        kv_heads_(workspace_of(runtime)),
        items_(workspace_of(runtime)),
        groups_(workspace_of(runtime)) {}

  void run() {
    list_kv_heads();
    list_items();
    const int workers = num_workers(runtime_, num_pieces_, count_products());
    const Index rows = few_ ? kernels::active().of<T>().row_group : kernels::kRows;
    const RowScratchLayout<T> layout(r_, padded_columns_, keys_.converted(), 0, rows);
    scratches_.emplace(runtime_, layout, workers * static_cast<Index>(tasks_per_group_));
    // With fewer than four groups per thread, some threads would be idle at the end, so groups are split into chunks.
    const bool too_few = workers > 1 && static_cast<Index>(groups_.size()) < 4 * workers;
    const bool split = too_few || (options_.by_chunk && groups_.size() > 1);
    if (is_planning()) {
      const std::string tasks =
          std::string(options_.source) + ": " + std::to_string(groups_.size()) + " tasks of up to " +
          std::to_string(few_ ? kMaxTasksPerGroup * kernels::kFewRows : kernels::kRows) + " rows of a KV head, ";
      plan_attention(options_.name, r_, options_.key_bytes, options_.value_bytes,
                     tasks + (too_few ? "each split into chunks: too few tasks for all threads"
                              : split ? "each split into chunks: all heads process a chunk before the next one"
                                      : "each on one thread"),
                     options_.written_bytes);
    }
    if (split) {
      run_split(workers);
    } else {
      run_whole(workers);
    }
  }

 private:
  void list_kv_heads() {
    kv_heads_.reserve(r_.sequences.size() * static_cast<std::size_t>(r_.num_kv_heads));
    for (std::size_t s = 0; s < r_.sequences.size(); ++s) {
      for (Index g = 0; g < r_.num_kv_heads; ++g) {
        kv_heads_.push_back(
            {static_cast<Index>(s), g, (r_.sequences[s].key_limit + kernels::kPanel - 1) / kernels::kPanel, 0});
      }
    }
  }

  const Sequence& sequence_of(const WorkItem& item) const {
    return r_.sequences[static_cast<std::size_t>(kv_heads_[item.kv_head].sequence)];
  }
  TaskRows rows_of(const WorkItem& item) const {
    return {.head = kv_heads_[item.kv_head].key_head * heads_per_key_head_,
            .first_row = item.first_row,
            .num_rows = item.num_rows,
            .rows_per_head = sequence_of(item).num_queries};
  }
  // scratch_index: an index into scratches_, of which each worker has tasks_per_group_.
  RowTask<T> task_of(const WorkItem& item, Index scratch_index) const {
    RowTask<T> task{.r = r_,
                    .packed = keys_,
                    .runtime = runtime_,
                    .kv_head = kv_heads_[item.kv_head],
                    .sequence = sequence_of(item),
                    .rows = rows_of(item),
                    .scratch = (*scratches_)[scratch_index]};
    writer_.prepare(task);
    return task;
  }

  void list_items() {
    VisibleRows seen;
    ScratchVector<ChunkRange> chunks(
        workspace_of(runtime_));  // of the KV head's rows, which are the same for every KV head of its sequence
    items_.reserve(kv_heads_.size());
    for (std::size_t u = 0; u < kv_heads_.size(); ++u) {
      const bool first_head = kv_heads_[u].key_head == 0;
      if (first_head) chunks.clear();
      const Index rows =
          heads_per_key_head_ * r_.sequences[static_cast<std::size_t>(kv_heads_[u].sequence)].num_queries;
      const bool few = keys_.stored() && rows <= options_.max_few_rows;
      few_ = few_ && few;
      const Index step = few ? kernels::kFewRows : kernels::kRows;
      for (Index first = 0; first < rows; first += step) {
        WorkItem item{u, first, std::min(step, rows - first), {0, 0}, num_partials_};
        if (first_head) chunks.push_back(visible_chunks(r_, sequence_of(item), rows_of(item), seen));
        item.chunks = chunks[static_cast<std::size_t>(first / step)];
        num_partials_ += item.num_partials();
        const bool joins = few && first % (kMaxTasksPerGroup * step) != 0;
        if (!joins) groups_.push_back({items_.size(), 0, item.chunks});
        items_.push_back(item);
        join(groups_.back(), item);
      }
    }
    for (const TaskGroup& group : groups_) {
      num_pieces_ += std::max<Index>(group.chunks.size(), 1);
      tasks_per_group_ = std::max(tasks_per_group_, group.num_items);
      max_partials_ = std::max(max_partials_, partials_before(group, group.num_items));
    }
  }
  static void join(TaskGroup& group, const WorkItem& item) {
    ++group.num_items;
    if (item.chunks.size() == 0) return;
    const bool none = group.chunks.size() == 0;
    group.chunks =
        none ? item.chunks
             : ChunkRange{std::min(group.chunks.begin, item.chunks.begin), std::max(group.chunks.end, item.chunks.end)};
  }
  // Number of partials of the group's first num_items tasks.
  Index partials_before(const TaskGroup& group, std::size_t num_items) const {
    Index sum = 0;
    for (std::size_t i = 0; i < num_items; ++i) sum += items_[group.first_item + i].num_partials();
    return sum;
  }

  // Keys and values are read once for all rows of an item, which takes as long as the products of this many rows.
  double count_products() const {
    constexpr Index kReadRows = 16;
    double products = 0;
    for (const WorkItem& item : items_) {
      const Index keys = std::min(item.chunks.size() * kernels::kChunkKeys, sequence_of(item).key_limit);
      products += static_cast<double>(std::max(item.num_rows, kReadRows)) * static_cast<double>(keys) *
                  static_cast<double>(r_.head_size + r_.value_head_size);
    }
    return products;
  }

  // Calls use() with the tasks of the group, each with its own part of the worker's scratch.
  template <class F>
  void with_tasks(const TaskGroup& group, int worker, const F& use) const {
    const Index first_scratch = worker * static_cast<Index>(tasks_per_group_);
    with_task_group<T>(
        static_cast<Index>(group.num_items),
        [&](Index i) { return task_of(items_[group.first_item + static_cast<std::size_t>(i)], first_scratch + i); },
        use);
  }

  void run_whole(int workers) {
    const Partials<T> partials(runtime_, workers * max_partials_, r_.value_head_size);
    for_each_item(runtime_, workers, static_cast<Index>(groups_.size()), [&](Index n, int worker) {
      const TaskGroup& group = groups_[static_cast<std::size_t>(n)];
      const WorkItem* const items = &items_[group.first_item];
      const Index first = worker * max_partials_;
      if (group.num_items == 1) {
        const RowTask<T> task = task_of(items[0], worker * static_cast<Index>(tasks_per_group_));
        writer_.compute_chunks(task, items[0].chunks, partials.at(first));
        progress_.add(items[0].num_rows);
        return;
      }
      with_tasks(group, worker, [&](std::span<const RowTask<T>> tasks) {
        std::array<ChunkRange, kMaxTasksPerGroup> chunks;
        std::array<ChunkResults<T>, kMaxTasksPerGroup> buffers;
        for (std::size_t i = 0; i < tasks.size(); ++i) {
          chunks[i] = items[i].chunks;
          buffers[i] = partials.at(first + partials_before(group, i));
        }
        RowTask<T>::compute_chunks(tasks, chunks, buffers);
        for (std::size_t i = 0; i < tasks.size(); ++i) {
          writer_.write(tasks[i], chunks[i], buffers[i]);
          progress_.add(items[i].num_rows);
        }
      });
    });
  }

  void run_split(int workers) {
    const Partials<T> partials(runtime_, num_partials_, r_.value_head_size);
    ScratchVector<std::pair<std::size_t, Index>> pieces(workspace_of(runtime_));
    pieces.reserve(static_cast<std::size_t>(num_pieces_));
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      for (Index c = groups_[n].chunks.begin; c < groups_[n].chunks.end; ++c) pieces.emplace_back(n, c);
    }
    // All groups of a KV head, or of a sequence, process a chunk before any of them processes the next.
    std::ranges::sort(pieces, {}, [&](const auto& piece) {
      const std::size_t kv_head = items_[groups_[piece.first].first_item].kv_head;
      const Index of = options_.by_chunk ? kv_heads_[kv_head].sequence : static_cast<Index>(kv_head);
      return std::tuple(of, piece.second, piece.first);
    });
    for_each_item(runtime_, workers, static_cast<Index>(pieces.size()), [&](Index p, int worker) {
      const auto& [n, chunk] = pieces[static_cast<std::size_t>(p)];
      const TaskGroup& group = groups_[n];
      const auto buffer = [&](const WorkItem& item) {
        return partials.at(item.first_partial + (chunk - item.chunks.begin) * item.num_rows);
      };
      if (group.num_items == 1) {
        const WorkItem& item = items_[group.first_item];
        task_of(item, worker * static_cast<Index>(tasks_per_group_)).compute_chunks({chunk, chunk + 1}, buffer(item));
        return;
      }
      with_tasks(group, worker, [&](std::span<const RowTask<T>> tasks) {
        std::array<ChunkRange, kMaxTasksPerGroup> chunks;
        std::array<ChunkResults<T>, kMaxTasksPerGroup> buffers;
        for (std::size_t i = 0; i < tasks.size(); ++i) {
          const WorkItem& item = items_[group.first_item + i];
          const bool visits = chunk >= item.chunks.begin && chunk < item.chunks.end;
          chunks[i] = visits ? ChunkRange{chunk, chunk + 1} : ChunkRange{0, 0};
          if (visits) buffers[i] = buffer(item);
        }
        RowTask<T>::compute_chunks(tasks, chunks, buffers);
      });
    });
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const WorkItem& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, worker * static_cast<Index>(tasks_per_group_));
      writer_.write(task, item.chunks, partials.at(item.first_partial));
      progress_.add(item.num_rows);
    });
  }

  const ResolvedAttention<T>& r_;
  const KvPanels<T>& keys_;
  FewRowOptions options_;
  const RowWriter<T>& writer_;
  const Runtime& runtime_;
  Index heads_per_key_head_;
  Index padded_columns_;
  Progress progress_;
  std::optional<RowScratches<T>> scratches_;
  ScratchVector<KvHead> kv_heads_;
  ScratchVector<WorkItem> items_;
  ScratchVector<TaskGroup> groups_;
  bool few_ = true;                  // no task has more than kFewRows rows
  std::size_t tasks_per_group_ = 1;  // tasks of a group
  Index num_partials_ = 0;           // of all items
  Index max_partials_ = 0;           // of one group
  Index num_pieces_ = 0;             // (group, chunk)
};

}  // namespace

template <class T>
void attend_few_rows(const ResolvedAttention<T>& r, const KvPanels<T>& keys, const FewRowOptions& options,
                     const RowWriter<T>& writer, const Runtime& runtime) {
  FewRowSchedule<T>(r, keys, options, writer, runtime).run();
}

REGARD_INSTANTIATE_COMPUTE(attend_few_rows);

}  // namespace regard::inline v0::internal
