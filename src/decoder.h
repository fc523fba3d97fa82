// SPDX-License-Identifier: Apache-2.0
//
// The walk of attention_forward where a key head has few rows: over a cache, or over tensors that are read in place.
//
//     task = up to 60 rows of one key head of one sequence: the rows of its query heads, one after the other
//
//     many tasks   a task walks its chunks and is finished                     one parallel phase
//     few tasks    every (task, chunk) by itself; then every task is finished  two parallel phases
//
// Either way a chunk leaves Dv + 2 numbers a row, and finish_rows folds them in order: which of the two moves no bit.
// Read next: attention_decode.cpp, attention_in_place.cpp, attention_rows.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "attention_arguments.h"
#include "attention_plan.h"
#include "attention_rows.h"
#include "parallel.h"

namespace regard {
inline namespace v0 {
namespace internal {

// A task, the chunks that it visits, and where its partials begin when those of all tasks are kept.
struct Item {
  std::size_t unit;
  Index first_row;
  Index num_rows;
  ChunkRange chunks;
  Index first_partial;

  Index num_partials() const { return chunks.size() * num_rows; }
};

struct DecoderOptions {
  const char* name;  // of the operator
  Index key_bytes;   // of an element
  Index value_bytes;
  double written_bytes;   // of the outputs
  bool by_chunk = false;  // the heads of a key lie side by side: all take a chunk before any takes the next
};

template <class T>
class Decoder {
 public:
  Decoder(const ResolvedAttention<T>& r, const KeyPanels<T>& keys, const DecoderOptions& options,
          const TypedOutputs<T>& outputs, const Runtime& runtime)
      : r_(r),
        keys_(keys),
        options_(options),
        outputs_(outputs),
        runtime_(runtime),
        group_(r.num_key_heads > 0 ? r.num_heads / r.num_key_heads : 0),
        padded_columns_((r.columns + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel),
        progress_(runtime, r.batch * r.num_heads * r.num_queries) {}

  void run() {
    list_units();
    list_items();
    const int workers = num_workers(runtime_, num_pieces_, count_products());
    scratches_.emplace(runtime_, RowScratchLayout<T>(r_, padded_columns_, keys_.widened()), workers);
    // Fewer tasks than four for each thread leave threads without work at the end: chunks are the smaller pieces.
    const bool too_few = workers > 1 && static_cast<Index>(items_.size()) < 4 * workers;
    const bool split = too_few || (options_.by_chunk && items_.size() > 1);
    if (is_planning()) {
      const std::string tasks = std::to_string(items_.size()) + " tasks of up to 60 rows of a key head, ";
      plan_attention(options_.name, r_, options_.key_bytes, options_.value_bytes,
                     tasks + (too_few ? "each split into its chunks: too few for the threads"
                              : split ? "each split into its chunks: all heads of some keys before the next keys"
                                      : "each by one thread"),
                     options_.written_bytes);
    }
    if (split) {
      run_split(workers);
    } else {
      run_whole(workers);
    }
  }

 private:
  void list_units() {
    units_.reserve(r_.sequences.size() * static_cast<std::size_t>(r_.num_key_heads));
    for (std::size_t s = 0; s < r_.sequences.size(); ++s) {
      for (Index g = 0; g < r_.num_key_heads; ++g) {
        units_.push_back(
            {static_cast<Index>(s), g, (r_.sequences[s].key_limit + kernels::kPanel - 1) / kernels::kPanel, 0});
      }
    }
  }

  const Sequence& sequence_of(const Item& item) const {
    return r_.sequences[static_cast<std::size_t>(units_[item.unit].sequence)];
  }
  TaskRows rows_of(const Item& item) const {
    return {.head = units_[item.unit].key_head * group_,
            .first_row = item.first_row,
            .num_rows = item.num_rows,
            .rows_per_head = sequence_of(item).num_queries};
  }
  RowTask<T> task_of(const Item& item, int worker) const {
    RowTask<T> task{.r = r_,
                    .packed = keys_,
                    .runtime = runtime_,
                    .unit = units_[item.unit],
                    .sequence = sequence_of(item),
                    .rows = rows_of(item),
                    .scratch = (*scratches_)[worker],
                    .wants_lse = !outputs_.lse.absent()};
    task.scratch.context = room_of_context(task, outputs_);
    return task;
  }

  void list_items() {
    VisibleRows seen;
    std::vector<ChunkRange> chunks;  // of the unit's rows, which are those of every key head of its sequence
    items_.reserve(units_.size());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const bool first_head = units_[u].key_head == 0;
      if (first_head) chunks.clear();
      const Index rows = group_ * r_.sequences[static_cast<std::size_t>(units_[u].sequence)].num_queries;
      for (Index first = 0; first < rows; first += kernels::kRows) {
        Item item{u, first, std::min(kernels::kRows, rows - first), {0, 0}, num_partials_};
        if (first_head) chunks.push_back(visible_chunks(r_, sequence_of(item), rows_of(item), seen));
        item.chunks = chunks[static_cast<std::size_t>(first / kernels::kRows)];
        num_partials_ += item.num_partials();
        most_partials_ = std::max(most_partials_, item.num_partials());
        num_pieces_ += std::max<Index>(item.chunks.size(), 1);
        items_.push_back(item);
      }
    }
  }

  double count_products() const {
    double products = 0;
    for (const Item& item : items_) {
      const Index keys = std::min(item.chunks.size() * kernels::kChunkKeys, sequence_of(item).key_limit);
      products +=
          static_cast<double>(item.num_rows) * static_cast<double>(keys) * static_cast<double>(r_.depth + r_.columns);
    }
    return products;
  }

  void run_whole(int workers) {
    const Partials<T> partials(runtime_, workers * most_partials_, r_.columns);
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const Item& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, worker);
      const ChunkResults<T> room = partials.at(worker * most_partials_);
      write_finished(task, attend_and_finish(task, item.chunks, room), outputs_);
      progress_.add(item.num_rows);
    });
  }

  void run_split(int workers) {
    const Partials<T> partials(runtime_, num_partials_, r_.columns);
    std::vector<std::pair<std::size_t, Index>> pieces;
    for (std::size_t n = 0; n < items_.size(); ++n) {
      for (Index c = items_[n].chunks.begin; c < items_[n].chunks.end; ++c) pieces.emplace_back(n, c);
    }
    if (options_.by_chunk) {
      std::ranges::sort(pieces, {}, [&](const auto& piece) {
        return std::tuple(units_[items_[piece.first].unit].sequence, piece.second, piece.first);
      });
    }
    for_each_item(runtime_, workers, static_cast<Index>(pieces.size()), [&](Index p, int worker) {
      const auto& [n, chunk] = pieces[static_cast<std::size_t>(p)];
      const Item& item = items_[n];
      const Index at = item.first_partial + (chunk - item.chunks.begin) * item.num_rows;
      attend(task_of(item, worker), {chunk, chunk + 1}, partials.at(at));
    });
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const Item& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, worker);
      write_finished(task, finish(task, item.chunks, partials.at(item.first_partial)), outputs_);
      progress_.add(item.num_rows);
    });
  }

  const ResolvedAttention<T>& r_;
  const KeyPanels<T>& keys_;
  DecoderOptions options_;
  const TypedOutputs<T>& outputs_;
  const Runtime& runtime_;
  Index group_;
  Index padded_columns_;
  Progress progress_;
  std::optional<RowScratches<T>> scratches_;
  std::vector<Unit> units_;
  std::vector<Item> items_;
  Index num_partials_ = 0;   // of all items
  Index most_partials_ = 0;  // of one item
  Index num_pieces_ = 0;     // (item, chunk)
};

}  // namespace internal
}  // namespace v0
}  // namespace regard
