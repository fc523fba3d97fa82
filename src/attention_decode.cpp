// SPDX-License-Identifier: Apache-2.0
//
// attention_decode: the walk of attention_forward over keys that a cache holds packed.
//
//     task = up to 60 rows of one key head of one sequence: the rows of its query heads, one after the other
//
//     many tasks   a task walks its chunks and is finished                                        one parallel phase
//     few tasks    every (task, chunk) by itself, into a partial of Dv + 2 numbers a row; then    two parallel phases
//                  every task is finished from its partials
//
// Which of the two moves no bit: a chunk starts afresh in both, and finish_rows folds the same numbers in the same
// order. Read next: attention_rows.cpp, kv_cache.cpp.
#include <algorithm>

#include "attention_arguments.h"
#include "attention_rows.h"
#include "elements.h"
#include "parallel.h"
#include "regard/kv_cache.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

using kernels::kPanel;
using kernels::kRows;

template <class T>
class CachedKeys final : public KeyPanels<T> {
 public:
  explicit CachedKeys(const KvCache<T>& cache) : cache_(cache) {}
  const T* key_panel(const Unit& unit, Index panel) const override {
    return cache_.key_panel(unit.sequence, unit.key_head, panel);
  }
  const T* value_panel(const Unit& unit, Index panel) const override {
    return cache_.value_panel(unit.sequence, unit.key_head, panel);
  }
  bool finite(const Unit& unit, Index panel) const override {
    return cache_.values_finite(unit.sequence, unit.key_head, panel);
  }

 private:
  const KvCache<T>& cache_;
};

// What the rows of a task become.
template <class T>
void write_finished(const RowTask<T>& task, const FinishedRows<T>& done, const AttentionOutputs<T>& outputs) {
  const Index b = task.sequence.batch;
  const Index columns = task.r.columns;
  for (Index i = 0; i < task.rows.num_rows; ++i) {
    const Index h = task.rows.head_of(i), row = task.rows.row_of(i);
    copy_elements(columns, done.context + i * columns, 1, outputs.context.pointer(b, h, row, 0),
                  outputs.context.strides[3]);
    const auto write = [&](const TensorView<T, 3>& output, const T* from) {
      if (!output.absent()) copy_elements(1, from + i, 1, output.pointer(b, h, row), 1);
    };
    write(outputs.row_max, done.row_max);
    write(outputs.row_sum, done.row_sum);
    write(outputs.lse, done.lse);
    write(outputs.sink_weights, done.sink_weight);
  }
}

// A task, the chunks that it visits, and where its partials begin.
struct Item {
  std::size_t unit;
  Index first_row;
  Index num_rows;
  ChunkRange chunks;
  Index first_partial;  // in rows of partials: (chunk, row) stands at first_partial + chunk · num_rows + row
};

// Partials of all tasks: a row of Dv numbers, a maximum and a sum for each (chunk, row).
template <class T>
struct Partials {
  T* accumulator;
  T* row_max;
  T* row_sum;
};

template <class T>
class Decoder {
 public:
  Decoder(const ResolvedAttention<T>& r, const KvCache<T>& cache, const AttentionOutputs<T>& outputs,
          const Runtime& runtime)
      : r_(r),
        keys_(cache),
        outputs_(outputs),
        runtime_(runtime),
        group_(r.num_key_heads > 0 ? r.num_heads / r.num_key_heads : 0),
        padded_columns_((r.columns + kPanel - 1) / kPanel * kPanel) {}

  void run() {
    list_units();
    const RowScratchLayout<T> whole(r_, padded_columns_);
    list_items(whole);
    const double products = count_products();
    // A million products take some ten microseconds: less than waking a thread.
    const int all_workers = products < 1e6 ? 1 : num_workers(runtime_, num_pieces_);
    // Fewer tasks than four for each thread leave threads without work at the end: chunks are the smaller pieces.
    const bool split = all_workers > 1 && static_cast<Index>(items_.size()) < 4 * all_workers;
    if (split) {
      run_split(all_workers);
    } else {
      run_whole(whole, std::min<int>(all_workers, static_cast<int>(std::max<std::size_t>(items_.size(), 1))));
    }
  }

 private:
  void list_units() {
    for (std::size_t s = 0; s < r_.sequences.size(); ++s) {
      for (Index g = 0; g < r_.num_key_heads; ++g) {
        units_.push_back({static_cast<Index>(s), g, (r_.sequences[s].key_limit + kPanel - 1) / kPanel, 0});
      }
    }
  }

  RowTask<T> task_of(const Item& item, const RowScratch<T>& scratch) const {
    const Unit& unit = units_[item.unit];
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(unit.sequence)];
    return {.r = r_,
            .packed = keys_,
            .runtime = runtime_,
            .unit = unit,
            .sequence = sequence,
            .rows = {.head = unit.key_head * group_,
                     .first_row = item.first_row,
                     .num_rows = item.num_rows,
                     .rows_per_head = sequence.num_queries},
            .scratch = scratch};
  }

  void list_items(const RowScratchLayout<T>& layout) {
    Workspace<std::byte> memory(runtime_, layout.bytes());
    const RowScratch<T> scratch = layout.at(memory.data());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Index rows = group_ * r_.sequences[static_cast<std::size_t>(units_[u].sequence)].num_queries;
      for (Index first = 0; first < rows; first += kRows) {
        Item item{u, first, std::min(kRows, rows - first), {0, 0}, partial_rows_};
        item.chunks = visible_chunks(task_of(item, scratch));
        const Index chunks = item.chunks.end - item.chunks.begin;
        partial_rows_ += chunks * item.num_rows;
        num_pieces_ += std::max<Index>(chunks, 1);
        items_.push_back(item);
      }
    }
  }

  double count_products() const {
    double products = 0;
    for (const Item& item : items_) {
      products += static_cast<double>(item.num_rows) * static_cast<double>(item.chunks.end - item.chunks.begin) *
                  static_cast<double>(kernels::kChunkKeys) * static_cast<double>(r_.depth + r_.columns);
    }
    return products;
  }

  void run_whole(const RowScratchLayout<T>& layout, int workers) {
    Workspace<std::byte> memory(runtime_, workers * layout.bytes());
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const RowTask<T> task =
          task_of(items_[static_cast<std::size_t>(n)], layout.at(memory.data() + worker * layout.bytes()));
      write_finished(task, attend_and_finish(task), outputs_);
    });
  }

  void run_split(int workers) {
    const RowScratchLayout<T> layout(r_, padded_columns_, 1);
    Workspace<std::byte> memory(runtime_, workers * layout.bytes());
    Workspace<T> accumulator(runtime_, partial_rows_ * r_.columns);
    Workspace<T> row_max(runtime_, partial_rows_);
    Workspace<T> row_sum(runtime_, partial_rows_);
    const Partials<T> partials{accumulator.data(), row_max.data(), row_sum.data()};
    std::vector<std::pair<std::size_t, Index>> pieces;
    for (std::size_t n = 0; n < items_.size(); ++n) {
      for (Index c = items_[n].chunks.begin; c < items_[n].chunks.end; ++c) pieces.emplace_back(n, c);
    }
    for_each_item(runtime_, workers, static_cast<Index>(pieces.size()), [&](Index p, int worker) {
      const auto& [n, chunk] = pieces[static_cast<std::size_t>(p)];
      const RowTask<T> task = task_of(items_[n], layout.at(memory.data() + worker * layout.bytes()));
      attend(task, {chunk, chunk + 1});
      keep(items_[n], chunk, task.scratch.chunk(0), partials);
    });
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const Item& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, layout.at(memory.data() + worker * layout.bytes()));
      write_finished(task, finish(task, item, partials), outputs_);
    });
  }

  void keep(const Item& item, Index chunk, const kernels::ChunkState<T>& state, const Partials<T>& partials) const {
    const Index at = item.first_partial + (chunk - item.chunks.begin) * item.num_rows;
    for (Index i = 0; i < item.num_rows; ++i)
      std::copy_n(state.accumulator + i * padded_columns_, r_.columns, partials.accumulator + (at + i) * r_.columns);
    std::copy_n(state.row_max, item.num_rows, partials.row_max + at);
    std::copy_n(state.row_sum, item.num_rows, partials.row_sum + at);
  }

  FinishedRows<T> finish(const RowTask<T>& task, const Item& item, const Partials<T>& partials) const {
    const RowScratch<T>& s = task.scratch;
    const Index chunks = item.chunks.end - item.chunks.begin;
    const auto finish_from = [&](T value_scale, T* context) {
      finish_partials(task,
                      {.num_chunks = chunks,
                       .accumulator = partials.accumulator + item.first_partial * r_.columns,
                       .accumulator_chunk_stride = item.num_rows * r_.columns,
                       .accumulator_row_stride = r_.columns,
                       .row_max = partials.row_max + item.first_partial,
                       .row_sum = partials.row_sum + item.first_partial,
                       .chunk_stride = item.num_rows},
                      value_scale, context);
    };
    finish_from(1, s.context);
    if (sums_overflowed(item.num_rows, r_.columns, s.row_sum, s.context)) {
      for (Index c = item.chunks.begin; c < item.chunks.end; ++c) {
        attend(task, {c, c + 1});
        attend_scaled(task, {c, c + 1});
        keep(item, c, s.scaled_chunk(0), partials);
      }
      finish_from(static_cast<T>(kAttentionSumScale), s.scaled_context);
      take_scaled(item.num_rows, r_.columns, s.row_sum, s.scaled_context, s.context);
    }
    return {s.context, s.row_max, s.row_sum, s.lse, s.sink_weight};
  }

  const ResolvedAttention<T>& r_;
  const CachedKeys<T> keys_;
  const AttentionOutputs<T>& outputs_;
  const Runtime& runtime_;
  Index group_;
  Index padded_columns_;
  std::vector<Unit> units_;
  std::vector<Item> items_;
  Index partial_rows_ = 0;
  Index num_pieces_ = 0;
};

// Every key that a row sees must still be there.
template <class T>
void check_ring(const ResolvedAttention<T>& r, const KvCache<T>& cache) {
  if (!cache.shape().ring) return;
  for (const Sequence& sequence : r.sequences) {
    const Index gone = cache.first_key(sequence.batch);
    if (gone == 0 || sequence.num_queries == 0 || r.num_heads == 0) continue;
    const Interval first = visible_interval(r, sequence, 0);
    if (first.begin >= first.end || first.begin >= gone) continue;
    refuse("attention_decode", "the first query of sequence " + std::to_string(sequence.batch) + " sees key " +
                                   std::to_string(first.begin) + " and the ring has dropped all before key " +
                                   std::to_string(gone) +
                                   "; a window of w keys and L queries need a capacity of w + L - 1");
  }
}

}  // namespace
}  // namespace internal

template <class T>
void attention_decode(std::type_identity_t<TensorView<const T, 4>> query, const KvCache<T>& cache,
                      const AttentionOutputs<T>& outputs, const std::type_identity_t<AttentionOptions<T>>& options,
                      const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  constexpr const char* kName = "attention_decode";
  const KvCacheShape& shape = cache.shape();
  if (!options.key_lengths.empty()) refuse(kName, "key_lengths is given; expected none: the cache has them");
  if (!options.query_starts.empty() || !options.key_starts.empty())
    refuse(kName, "query_starts or key_starts is given; expected none: each sequence of the cache is one of its own");
  if (!outputs.weights.absent()) refuse(kName, "weights is given; expected none");
  std::vector<Index> lengths;
  Index longest = 0;
  for (Index s = 0; s < shape.num_sequences; ++s) {
    lengths.push_back(cache.length(s));
    longest = std::max(longest, lengths.back());
  }
  // Only their shapes are looked at: the panels are read where they lie.
  const T* const memory = reinterpret_cast<const T*>(cache.memory().data());
  const auto standing_for = [&](Index columns) {
    return TensorView<const T, 4>(memory, {shape.num_sequences, shape.num_key_heads, longest, columns}, {0, 0, 0, 0});
  };
  const AttentionCall<T> call{kName, query, standing_for(shape.depth), standing_for(shape.columns), true};
  AttentionOptions<T> with_lengths = options;
  with_lengths.key_lengths = lengths;
  const ResolvedAttention<T> r = resolve(call, with_lengths);
  std::vector<Footprint> inputs = input_footprints(AttentionCall<T>{kName, query, {}, {}, false}, options);
  const Index bytes = static_cast<Index>(cache.memory().size());
  inputs.push_back(
      footprint(kName, "the cache", cache.memory().data(), std::array<Index, 1>{bytes}, std::array<Index, 1>{1}, 1));
  check_outputs(kName, outputs, {r.batch, r.num_heads, r.num_queries, r.columns}, r.num_keys, inputs);
  check_ring(r, cache);
  Decoder<T>(r, cache, outputs, runtime).run();
}

template void attention_decode<float>(TensorView<const float, 4>, const KvCache<float>&, const AttentionOutputs<float>&,
                                      const AttentionOptions<float>&, const Runtime&);
template void attention_decode<double>(TensorView<const double, 4>, const KvCache<double>&,
                                       const AttentionOutputs<double>&, const AttentionOptions<double>&,
                                       const Runtime&);

}  // namespace v0
}  // namespace regard
