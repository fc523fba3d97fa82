// SPDX-License-Identifier: Apache-2.0
//
// attention_columns: the total weight on each key and the pooled map, from query, key, row_max and row_sum.
//
//   for each wave of KV heads (packed_kv.h)                      one parallel phase: pack the keys
//     for each task: one chunk of 1024 keys of one query head        one parallel phase: tasks
//       for each 60 query rows, in order; for each block of 64 keys:
//         kernels::score_block, kernels::weights_block, kernels::add_rows
//     the tasks' strips of the map, added in order
//
// Each key belongs to one task, which adds its weights row by row, so the result does not depend on which thread runs
// the task. Map cells shared by two tasks are added after the tasks have finished. If only some of the keys are
// requested, the tasks are the same, but without the other keys.
// Read next: attention_weights.cpp, row_task.cpp.
#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "kernels/table.h"
#include "kv_panels.h"
#include "packed_kv.h"
#include "plan.h"
#include "regard/attention_statistics.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/strided_copy.h"
#include "visibility.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kBlockKeys;
using kernels::kChunkKeys;
using kernels::kRows;

// Element i of n is in strip ⌊((i + 1) · strips − 1) / n⌋: the strip a with ⌊a·n/strips⌋ ≤ i < ⌊(a+1)·n/strips⌋.
Index strip_of(Index i, Index n, Index strips) { return ((i + 1) * strips - 1) / n; }
Index strip_begin(Index a, Index n, Index strips) { return a * n / strips; }
// The first strip that begins at i or after it.
Index first_strip_from(Index i, Index n, Index strips) { return (i * strips + n - 1) / n; }

// ColumnsRequest and AttentionColumns with views of T.
template <class T>
struct TypedColumns {
  TensorView<const T, 3> row_max, row_sum;
  MapCells cells;
  std::optional<std::array<Index, 2>> keys;
  TensorView<T, 3> key_mass;
  TensorView<T, 4> pooled_map;

  TypedColumns(const char* name, const ColumnsRequest& request, const AttentionColumns& outputs)
      : row_max(typed<T>(name, "row_max", request.row_max)),
        row_sum(typed<T>(name, "row_sum", request.row_sum)),
        cells(request.cells),
        keys(request.keys),
        key_mass(typed<T>(name, "key_mass", outputs.key_mass)),
        pooled_map(typed<T>(name, "pooled_map", outputs.pooled_map)) {}
};

template <class T>
class ColumnPass {
 public:
  ColumnPass(const ResolvedAttention<T>& r, const TypedColumns<T>& columns, const Runtime& runtime)
      : r_(r),
        outputs_(columns),
        runtime_(runtime),
        group_(r.num_heads / r.num_kv_heads),
        row_strips_(columns.pooled_map.shape[2]),
        column_strips_(columns.pooled_map.shape[3]),
        keys_{0, r.num_keys},
        columns_{0, column_strips_},
        packed_(r, runtime),
        map_(runtime, r.batch * r.num_heads * row_strips_ * column_strips_) {
    if (!columns.keys) return;
    keys_ = {(*columns.keys)[0], (*columns.keys)[1]};
    if (column_strips_ > 0)
      columns_ = {first_strip_from(keys_.begin, r.num_keys, column_strips_),
                  first_strip_from(keys_.end, r.num_keys, column_strips_)};
  }

  void run() {
    if (is_planning()) {
      const double written_bytes = view_bytes(outputs_.key_mass) + view_bytes(outputs_.pooled_map);
      plan_attention("attention_columns", r_, type_bytes(r_.key.type), 0,
                     std::to_string(packed_.num_kv_heads()) + " KV heads; a task is 1024 keys of a query head",
                     written_bytes);
    } else {
      std::fill_n(map_.data(), r_.batch * r_.num_heads * row_strips_ * column_strips_, 0.0);
      clear_mass();
    }
    while (!packed_.done()) run_wave(packed_.next_wave(runtime_));
    if (!is_planning()) write_map();
  }

 private:
  // The requested keys of one chunk, of one query head. Its part of the map starts at first_cell: row_strips_ rows of
  // num_strips cells.
  struct ColumnTask {
    const KvHead* kv_head;
    Index head;
    Index chunk;      // its first key, within the sequence
    Index first_key;  // likewise
    Index end_key;
    Index first_strip;
    Index num_strips;
    Index first_cell;
  };

  void clear_mass() const {
    const TensorView<T, 3>& mass = outputs_.key_mass;
    const T zero = 0;
    for (Index b = 0; b < mass.shape[0]; ++b) {
      for (Index h = 0; h < mass.shape[1]; ++h) {
        copy_elements(keys_.end - keys_.begin, &zero, 0, mass.pointer(b, h, keys_.begin), mass.strides[2]);
      }
    }
  }

  void run_wave(const ScratchVector<KvHead>& kv_heads) {
    ScratchVector<ColumnTask> tasks(workspace_of(runtime_));
    Index cells = 0;
    double products = 0;
    for (const KvHead& kv_head : kv_heads) {
      const Sequence& sequence = r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
      products += static_cast<double>(group_ * sequence.num_queries) *
                  static_cast<double>(kv_head.num_panels * kernels::kPanel * r_.head_size);
      for (Index head = kv_head.key_head * group_; head < (kv_head.key_head + 1) * group_; ++head) {
        for (Index key = 0; key < kv_head.num_panels * kernels::kPanel; key += kChunkKeys) {
          const Index first = std::max(key, keys_.begin - sequence.first_key);
          const Index end = std::min({key + kChunkKeys, sequence.key_limit, keys_.end - sequence.first_key});
          if (first >= end) continue;
          ColumnTask task{&kv_head, head, key, first, end, 0, 0, cells};
          if (column_strips_ > 0) {
            task.first_strip = strip_of(sequence.first_key + first, r_.num_keys, column_strips_);
            const Index last = strip_of(sequence.first_key + end - 1, r_.num_keys, column_strips_);
            task.num_strips = last + 1 - task.first_strip;
          }
          cells += row_strips_ * task.num_strips;
          tasks.push_back(task);
        }
      }
    }
    const Workspace<double> strips(runtime_, cells);
    if (!is_planning()) std::fill_n(strips.data(), cells, 0.0);
    const int workers = num_workers(runtime_, static_cast<Index>(tasks.size()), products);
    const RowScratches<T> scratches(runtime_, RowScratchLayout<T>(r_, packed_.padded_value_head_size()), workers);
    for_each_item(runtime_, workers, static_cast<Index>(tasks.size()), [&](Index item, int worker) {
      const ColumnTask& task = tasks[static_cast<std::size_t>(item)];
      run_task(task, scratches[worker], strips.data() + task.first_cell);
    });
    if (is_planning()) return;
    for (const ColumnTask& task : tasks) {
      const Index b = r_.sequences[static_cast<std::size_t>(task.kv_head->sequence)].batch;
      double* map = map_.data() + (b * r_.num_heads + task.head) * row_strips_ * column_strips_;
      for (Index a = 0; a < row_strips_; ++a) {
        for (Index i = 0; i < task.num_strips; ++i) {
          map[a * column_strips_ + task.first_strip + i] += strips.data()[task.first_cell + a * task.num_strips + i];
        }
      }
    }
  }

  void run_task(const ColumnTask& of, const RowScratch<T>& scratch, double* strips) {
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(of.kv_head->sequence)];
    double mass[kChunkKeys]{};
    for (Index row = 0; row < sequence.num_queries; row += kRows) {
      const RowTask<T> task{.r = r_,
                            .packed = packed_,
                            .runtime = runtime_,
                            .kv_head = *of.kv_head,
                            .sequence = sequence,
                            .rows = {.head = of.head,
                                     .first_row = row,
                                     .num_rows = std::min(kRows, sequence.num_queries - row),
                                     .rows_per_head = sequence.num_queries},
                            .scratch = scratch};
      const ChunkRange seen = task.visible_chunks();
      if (of.chunk < seen.begin * kChunkKeys || of.chunk >= seen.end * kChunkKeys) continue;
      add_weights(of, task, mass, strips);
    }
    if (outputs_.key_mass.absent()) return;
    for (Index key = of.first_key; key < of.end_key; ++key) {
      const T rounded = static_cast<T>(mass[key - of.chunk]);
      copy_elements(1, &rounded, 1, outputs_.key_mass.pointer(sequence.batch, of.head, sequence.first_key + key), 1);
    }
  }

  void add_weights(const ColumnTask& of, const RowTask<T>& task, double* mass, double* strips) const {
    const auto& kernel = kernels::active().template of<T>();
    const RowScratch<T>& s = task.scratch;
    const Interval& seen = s.visible_rows->all;
    if (seen.end <= of.first_key || seen.begin >= of.end_key) return;
    kernels::ScoreBlock<T> block = task.start_rows();
    task.load_softmax_state(outputs_.row_max, outputs_.row_sum);
    const Index end = std::min(of.end_key, seen.end);
    const Index first = std::max(of.first_key, seen.begin) / kBlockKeys * kBlockKeys;
    for (Index key = first; key < end; key += kBlockKeys) {
      throw_if_stopped(runtime_.stop);
      if (!task.start_block(key, block)) continue;
      task.score_block(block);
      kernel.weights_block(task.rows.num_rows, s.row_max, s.row_sum, s.scores);
      if (!outputs_.key_mass.absent()) kernel.add_rows(task.rows.num_rows, s.scores, mass + (key - of.chunk));
      if (row_strips_ > 0) add_strips(of, task, key, strips);
    }
  }

  // Adds the block's weights to the strips of its rows and of the task's keys.
  void add_strips(const ColumnTask& of, const RowTask<T>& task, Index key, double* strips) const {
    const Index first_row = task.sequence.first_query + task.rows.first_row;
    const Index first_column = task.sequence.first_key + key;
    const Index end_key = std::min(of.end_key - key, kBlockKeys);
    for (Index i = 0; i < task.rows.num_rows;) {
      const Index a = strip_of(first_row + i, r_.num_queries, row_strips_);
      const Index end = std::min(strip_begin(a + 1, r_.num_queries, row_strips_) - first_row, task.rows.num_rows);
      double sums[kBlockKeys]{};
      kernels::active().template of<T>().add_rows(end - i, task.scratch.scores + i * kBlockKeys, sums);
      double* to = strips + a * of.num_strips - of.first_strip;
      for (Index j = std::max<Index>(0, of.first_key - key); j < end_key;) {
        const Index strip = strip_of(first_column + j, r_.num_keys, column_strips_);
        const Index last = std::min(strip_begin(strip + 1, r_.num_keys, column_strips_) - first_column, end_key);
        for (; j < last; ++j) to[strip] += sums[j];
      }
      i = end;
    }
  }

  void write_map() const {
    const TensorView<T, 4>& map = outputs_.pooled_map;
    for (Index b = 0; b < map.shape[0]; ++b) {
      for (Index h = 0; h < map.shape[1]; ++h) {
        for (Index a = 0; a < row_strips_; ++a) {
          for (Index c = columns_.begin; c < columns_.end; ++c) {
            double cell = map_.data()[((b * r_.num_heads + h) * row_strips_ + a) * column_strips_ + c];
            if (outputs_.cells == MapCells::means) {
              const auto width = [](Index strip, Index n, Index strips) {
                return strip_begin(strip + 1, n, strips) - strip_begin(strip, n, strips);
              };
              cell /=
                  static_cast<double>(width(a, r_.num_queries, row_strips_) * width(c, r_.num_keys, column_strips_));
            }
            const T rounded = static_cast<T>(cell);
            copy_elements(1, &rounded, 1, map.pointer(b, h, a, c), 1);
          }
        }
      }
    }
  }

  const ResolvedAttention<T>& r_;
  const TypedColumns<T>& outputs_;
  const Runtime& runtime_;
  Index group_;
  Index row_strips_;  // 0 if no map is requested
  Index column_strips_;
  Interval keys_;     // that are requested
  Interval columns_;  // their strips
  PackedKv<T> packed_;
  Workspace<double> map_;  // sums
};

template <class T>
void check_columns(const char* name, const ResolvedAttention<T>& r, const TypedColumns<T>& outputs) {
  expect_shape(name, "key_mass", outputs.key_mass, {r.batch, r.num_heads, r.num_keys});
  const std::array<Index, 2> keys = outputs.keys.value_or(std::array{Index{0}, r.num_keys});
  const auto reject_keys = [&](const std::string& expected) {
    reject(name, "keys is " + std::to_string(keys[0]) + " … " + std::to_string(keys[1]) + "; expected " + expected);
  };
  if (keys[0] < 0 || keys[1] < keys[0] || keys[1] > r.num_keys)
    reject_keys("an interval of 0 … " + std::to_string(r.num_keys));
  if (outputs.pooled_map.absent()) return;
  const Index rows = outputs.pooled_map.shape[2], columns = outputs.pooled_map.shape[3];
  if (rows < 1 || rows > r.num_queries || columns < 1 || columns > r.num_keys) {
    reject(name, "pooled_map has shape " + shape_text(outputs.pooled_map.shape) + "; expected 1 to " +
                     std::to_string(r.num_queries) + " strips of rows and 1 to " + std::to_string(r.num_keys) +
                     " of columns");
  }
  expect_shape(name, "pooled_map", outputs.pooled_map, {r.batch, r.num_heads, rows, columns});
  for (const Index key : keys) {
    if (key < r.num_keys && strip_begin(strip_of(key, r.num_keys, columns), r.num_keys, columns) != key)
      reject_keys("whole strips of the " + std::to_string(columns) + " of pooled_map");
  }
}

// Leaves out keys that are not requested, so that they are neither packed nor read: all after the last one, and whole
// chunks before the first one.
void leave_out_keys(const std::array<Index, 2>& keys, UntypedAttention& r) {
  for (Sequence& sequence : r.sequences) {
    const Index before =
        std::clamp<Index>(keys[0] - sequence.first_key, 0, sequence.num_keys) / kChunkKeys * kChunkKeys;
    const Index end = std::clamp<Index>(keys[1] - sequence.first_key, 0, sequence.key_limit);
    sequence.first_key += before;
    sequence.num_keys -= before;
    sequence.key_limit = std::max<Index>(0, end - before);
    sequence.offset -= before;
    sequence.prefix = std::max<Index>(0, sequence.prefix - before);
  }
}

template <class T>
void columns_call(const AttentionCall& call, const ColumnsRequest& request, const AttentionColumns& given,
                  const AttentionOptions& options, const Runtime& runtime) {
  ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  const TypedColumns<T> outputs(call.name, request, given);
  check_columns(call.name, r, outputs);
  Footprints inputs = input_footprints(call, options);
  check_softmax_state(call.name, r, r.batch * r.num_heads * r.num_queries != 0, outputs.row_max, outputs.row_sum,
                      inputs);
  const std::array<Footprint, 2> written{footprint(call.name, "key_mass", outputs.key_mass),
                                         footprint(call.name, "pooled_map", outputs.pooled_map)};
  check_overlap(call.name, inputs, written);
  if (r.batch * r.num_heads == 0) return;
  if (outputs.keys) leave_out_keys(*outputs.keys, r);
  ColumnPass<T>(r, outputs, runtime).run();
}

}  // namespace
}  // namespace internal

void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                       const AttentionColumns& outputs, const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{"attention_columns", query, key, {}, false};
    internal::columns_call<T>(call, request, outputs, options, runtime);
  });
}

}  // namespace regard::inline v0
