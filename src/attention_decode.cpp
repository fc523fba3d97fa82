// SPDX-License-Identifier: Apache-2.0
//
// attention_decode: the walk of attention_forward over keys that a cache holds packed.
//
//     task = up to 60 rows of one key head of one sequence: the rows of its query heads, one after the other
//
//     many tasks   a task walks its chunks and is finished                     one parallel phase
//     few tasks    every (task, chunk) by itself; then every task is finished  two parallel phases
//
// Either way a chunk leaves Dv + 2 numbers a row, and finish_rows folds them in order: which of the two moves no bit.
// Read next: attention_rows.cpp, kv_cache.cpp.
#include <algorithm>

#include "attention_arguments.h"
#include "attention_plan.h"
#include "attention_rows.h"
#include "number_rows.h"
#include "parallel.h"
#include "regard/kv_cache.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

using kernels::kPanel;
using kernels::kRows;

// The panels of a cache of K, for kernels that compute with T.
template <class T, class K>
class CachedKeys final : public KeyPanels<T> {
 public:
  explicit CachedKeys(const KvCache<K>& cache) : cache_(cache) {}
  bool widened() const override { return !std::same_as<T, K>; }
  const T* key_panel(const Unit& unit, Index panel, T* room) const override {
    const K* keys = cache_.key_panel(unit.sequence, unit.key_head, panel);
    const Index depth = cache_.shape().depth;
    if constexpr (std::same_as<K, std::int8_t>) {
      const float* scales = cache_.scales(unit.sequence, unit.key_head, panel);
      for (Index d = 0; d < depth; ++d) {
        for (Index j = 0; j < kPanel; ++j) room[d * kPanel + j] = static_cast<T>(keys[d * kPanel + j]) * scales[j];
      }
      return room;
    } else {
      return wide(keys, depth, room);
    }
  }
  const T* value_panel(const Unit& unit, Index panel, T* room) const override {
    const Index padded_columns = (cache_.shape().columns + kPanel - 1) / kPanel * kPanel;
    const K* values = cache_.value_panel(unit.sequence, unit.key_head, panel);
    if constexpr (std::same_as<K, std::int8_t>) {
      const float* scales = cache_.scales(unit.sequence, unit.key_head, panel) + kPanel;
      for (Index line = 0; line < padded_columns; ++line) {  // (32 columns, key)
        const float scale = scales[line % kPanel];
        for (Index c = 0; c < kPanel; ++c) {
          room[line * kPanel + c] = static_cast<T>(values[line * kPanel + c]) * scale;
        }
      }
      return room;
    } else {
      return wide(values, padded_columns, room);
    }
  }
  bool finite(const Unit& unit, Index panel) const override {
    return cache_.values_finite(unit.sequence, unit.key_head, panel);
  }
  bool stored() const override { return true; }
  kernels::StoredPanels stored_keys(const Unit& unit, Index panel) const override {
    return stored_block(unit, panel, 0, [&](Index at) { return cache_.key_panel(unit.sequence, unit.key_head, at); });
  }
  kernels::StoredPanels stored_values(const Unit& unit, Index panel) const override {
    return stored_block(unit, panel, kPanel,
                        [&](Index at) { return cache_.value_panel(unit.sequence, unit.key_head, at); });
  }

 private:
  static constexpr kernels::Stored kStored = std::same_as<K, T>             ? kernels::Stored::compute_type
                                             : std::same_as<K, bfloat16>    ? kernels::Stored::bfloat16
                                             : std::same_as<K, std::int8_t> ? kernels::Stored::int8
                                                                            : kernels::Stored::float16;

  template <class PanelAt>
  kernels::StoredPanels stored_block(const Unit& unit, Index panel, Index first_scale, const PanelAt& panel_at) const {
    kernels::StoredPanels block{.type = kStored, .panels = {}, .next = {}, .scales = {}};
    for (Index i = 0; i < kernels::kBlockPanels; ++i) {
      const Index next = panel + kernels::kBlockPanels + i;
      if (next < unit.num_panels) {
        block.next[i] = panel_at(next);
        // Two cache lines, too few for the kernel to care about and too far from the last ones for the processor.
        if constexpr (std::same_as<K, std::int8_t>) {
          const float* scales = cache_.scales(unit.sequence, unit.key_head, next) + first_scale;
          __builtin_prefetch(scales);
          __builtin_prefetch(scales + kPanel / 2);
        }
      }
      if (panel + i >= unit.num_panels) continue;
      block.panels[i] = panel_at(panel + i);
      if constexpr (std::same_as<K, std::int8_t>)
        block.scales[i] = cache_.scales(unit.sequence, unit.key_head, panel + i) + first_scale;
    }
    return block;
  }

  static const T* wide(const K* panel, Index width, T* room) {
    const kernels::KernelTable& table = kernels::active();
    if constexpr (std::same_as<K, T>) {
      return panel;
    } else if constexpr (std::same_as<K, bfloat16>) {
      table.bf16.widen(reinterpret_cast<const kernels::Bfloat16*>(panel), room, width * kPanel);
      return room;
    } else {
      table.f16.widen(reinterpret_cast<const kernels::Float16*>(panel), room, width * kPanel);
      return room;
    }
  }

  const KvCache<K>& cache_;
};

// What the rows of a task become.
template <class T>
void write_finished(const RowTask<T>& task, const FinishedRows<T>& done, const TypedOutputs<T>& outputs) {
  const Index b = task.sequence.batch;
  const Index columns = task.r.columns;
  for (Index i = 0; i < task.rows.num_rows; ++i) {
    const Index h = task.rows.head_of(i), row = task.rows.row_of(i);
    write_numbers(outputs.context.type, columns, done.context + i * columns, outputs.context.pointer(b, h, row),
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

// A task, the chunks that it visits, and where its partials begin when those of all tasks are kept.
struct Item {
  std::size_t unit;
  Index first_row;
  Index num_rows;
  ChunkRange chunks;
  Index first_partial;

  Index num_partials() const { return (chunks.end - chunks.begin) * num_rows; }
};

// What chunks leave: Dv numbers, a maximum and a sum for each (chunk, row) of a task, rows side by side.
template <class T>
class Partials {
 public:
  Partials(const Runtime& runtime, Index count, Index columns)
      : columns_(columns), accumulator_(runtime, count * columns), row_max_(runtime, count), row_sum_(runtime, count) {}

  // The task's rows of one chunk, copied to `at` on.
  void keep(Index at, Index num_rows, const kernels::ChunkState<T>& state, Index padded_columns) const {
    for (Index i = 0; i < num_rows; ++i)
      std::copy_n(state.accumulator + i * padded_columns, columns_, accumulator_.data() + (at + i) * columns_);
    std::copy_n(state.row_max, num_rows, row_max_.data() + at);
    std::copy_n(state.row_sum, num_rows, row_sum_.data() + at);
  }
  RowPartials<T> from(Index at, Index num_chunks, Index num_rows) const {
    return {.num_chunks = num_chunks,
            .accumulator = accumulator_.data() + at * columns_,
            .accumulator_chunk_stride = num_rows * columns_,
            .accumulator_row_stride = columns_,
            .row_max = row_max_.data() + at,
            .row_sum = row_sum_.data() + at,
            .chunk_stride = num_rows};
  }

 private:
  Index columns_;
  Workspace<T> accumulator_;
  Workspace<T> row_max_;
  Workspace<T> row_sum_;
};

template <class T>
class Decoder {
 public:
  // key_bytes: of an element of the cache.
  Decoder(const ResolvedAttention<T>& r, const KeyPanels<T>& keys, Index key_bytes, const TypedOutputs<T>& outputs,
          const Runtime& runtime)
      : r_(r),
        keys_(keys),
        key_bytes_(key_bytes),
        outputs_(outputs),
        runtime_(runtime),
        group_(r.num_key_heads > 0 ? r.num_heads / r.num_key_heads : 0),
        padded_columns_((r.columns + kPanel - 1) / kPanel * kPanel),
        layout_(r, padded_columns_, 1, keys.widened()) {}

  void run() {
    list_units();
    list_items();
    const int workers = num_workers(runtime_, num_pieces_, count_products());
    Workspace<std::byte> memory(runtime_, workers * layout_.bytes());
    scratch_ = memory.data();
    // Fewer tasks than four for each thread leave threads without work at the end: chunks are the smaller pieces.
    const bool split = workers > 1 && static_cast<Index>(items_.size()) < 4 * workers;
    if (is_planning()) {
      const std::string tasks = std::to_string(items_.size()) + " tasks of up to 60 rows of a key head, ";
      plan_attention("attention_decode", r_, key_bytes_, key_bytes_,
                     tasks + (split ? "each split into its chunks: too few for the threads" : "each by one thread"),
                     output_bytes(outputs_));
    }
    if (split) {
      run_split(workers);
    } else {
      run_whole(workers);
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

  RowTask<T> task_of(const Item& item, std::byte* scratch) const {
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
            .scratch = layout_.at(scratch),
            .wants_lse = !outputs_.lse.absent()};
  }
  RowTask<T> task_of(const Item& item, int worker) const { return task_of(item, scratch_ + worker * layout_.bytes()); }

  void list_items() {
    Workspace<std::byte> memory(runtime_, layout_.bytes());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Index rows = group_ * r_.sequences[static_cast<std::size_t>(units_[u].sequence)].num_queries;
      for (Index first = 0; first < rows; first += kRows) {
        Item item{u, first, std::min(kRows, rows - first), {0, 0}, num_partials_};
        item.chunks = visible_chunks(task_of(item, memory.data()));
        num_partials_ += item.num_partials();
        most_partials_ = std::max(most_partials_, item.num_partials());
        num_pieces_ += std::max<Index>(item.chunks.end - item.chunks.begin, 1);
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

  void run_whole(int workers) const {
    const Partials<T> partials(runtime_, workers * most_partials_, r_.columns);
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const Item& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, worker);
      const Index at = worker * most_partials_;
      for (Index c = item.chunks.begin; c < item.chunks.end; ++c) attend_chunk(task, item, c, partials, at);
      write_finished(task, finish(task, item, partials, at), outputs_);
    });
  }

  void run_split(int workers) const {
    const Partials<T> partials(runtime_, num_partials_, r_.columns);
    std::vector<std::pair<std::size_t, Index>> pieces;
    for (std::size_t n = 0; n < items_.size(); ++n) {
      for (Index c = items_[n].chunks.begin; c < items_[n].chunks.end; ++c) pieces.emplace_back(n, c);
    }
    for_each_item(runtime_, workers, static_cast<Index>(pieces.size()), [&](Index p, int worker) {
      const auto& [n, chunk] = pieces[static_cast<std::size_t>(p)];
      attend_chunk(task_of(items_[n], worker), items_[n], chunk, partials, items_[n].first_partial);
    });
    for_each_item(runtime_, workers, static_cast<Index>(items_.size()), [&](Index n, int worker) {
      const Item& item = items_[static_cast<std::size_t>(n)];
      const RowTask<T> task = task_of(item, worker);
      write_finished(task, finish(task, item, partials, item.first_partial), outputs_);
    });
  }

  void attend_chunk(const RowTask<T>& task, const Item& item, Index chunk, const Partials<T>& partials,
                    Index at) const {
    attend(task, {chunk, chunk + 1});
    partials.keep(at + (chunk - item.chunks.begin) * item.num_rows, item.num_rows, task.scratch.chunk(0),
                  padded_columns_);
  }

  FinishedRows<T> finish(const RowTask<T>& task, const Item& item, const Partials<T>& partials, Index at) const {
    const RowScratch<T>& s = task.scratch;
    const RowPartials<T> from = partials.from(at, item.chunks.end - item.chunks.begin, item.num_rows);
    if (finish_partials(task, from, static_cast<T>(1), s.context)) {
      for (Index c = item.chunks.begin; c < item.chunks.end; ++c) {
        attend(task, {c, c + 1});
        attend_scaled(task, {c, c + 1});
        partials.keep(at + (c - item.chunks.begin) * item.num_rows, item.num_rows, s.scaled_chunk(0), padded_columns_);
      }
      finish_partials(task, from, static_cast<T>(kAttentionSumScale), s.scaled_context);
      take_scaled(item.num_rows, r_.columns, s.row_sum, s.scaled_context, s.context);
    }
    return {s.context, s.row_max, s.row_sum, s.lse, s.sink_weight};
  }

  const ResolvedAttention<T>& r_;
  const KeyPanels<T>& keys_;
  Index key_bytes_;
  const TypedOutputs<T>& outputs_;
  const Runtime& runtime_;
  Index group_;
  Index padded_columns_;
  RowScratchLayout<T> layout_;  // of one chunk
  std::byte* scratch_ = nullptr;
  std::vector<Unit> units_;
  std::vector<Item> items_;
  Index num_partials_ = 0;   // of all items
  Index most_partials_ = 0;  // of one item
  Index num_pieces_ = 0;     // (item, chunk)
};

// Every key that a row sees must still be there.
template <class T, class K>
void check_ring(const ResolvedAttention<T>& r, const KvCache<K>& cache) {
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

template <class T, class K>
void attention_decode(const InputView<ComputeType<T>, 4>& query, const KvCache<K>& cache,
                      const AttentionOutputs<T>& outputs, const AttentionOptions<ComputeType<T>>& options,
                      const Runtime& runtime) {
  using Compute = ComputeType<T>;
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
  const auto standing_for = [&](Index columns) {
    return InputView<Compute, 4>(cache.memory().data(), kElementType<Compute>,
                                 {shape.num_sequences, shape.num_key_heads, longest, columns}, {0, 0, 0, 0});
  };
  const AttentionCall<Compute> call{kName, query, standing_for(shape.depth), standing_for(shape.columns), true};
  AttentionOptions<Compute> with_lengths = options;
  with_lengths.key_lengths = lengths;
  const ResolvedAttention<Compute> r = resolve(call, with_lengths);
  check_context_type(kName, kElementType<T>, query.type);
  std::vector<Footprint> inputs = input_footprints(AttentionCall<Compute>{kName, query, {}, {}, false}, options);
  const Index bytes = static_cast<Index>(cache.memory().size());
  inputs.push_back(
      footprint(kName, "the cache", cache.memory().data(), std::array<Index, 1>{bytes}, std::array<Index, 1>{1}, 1));
  const TypedOutputs<Compute> written(outputs);
  check_outputs(kName, written, {r.batch, r.num_heads, r.num_queries, r.columns}, r.num_keys, inputs);
  check_ring(r, cache);
  if (r.batch * r.num_heads * r.num_queries == 0) return;
  const CachedKeys<Compute, K> keys(cache);
  Decoder<Compute>(r, keys, sizeof(K), written, runtime).run();
}

template void attention_decode<float, float>(const InputView<float, 4>&, const KvCache<float>&,
                                             const AttentionOutputs<float>&, const AttentionOptions<float>&,
                                             const Runtime&);
template void attention_decode<float, bfloat16>(const InputView<float, 4>&, const KvCache<bfloat16>&,
                                                const AttentionOutputs<float>&, const AttentionOptions<float>&,
                                                const Runtime&);
template void attention_decode<float, std::int8_t>(const InputView<float, 4>&, const KvCache<std::int8_t>&,
                                                   const AttentionOutputs<float>&, const AttentionOptions<float>&,
                                                   const Runtime&);
template void attention_decode<float, float16>(const InputView<float, 4>&, const KvCache<float16>&,
                                               const AttentionOutputs<float>&, const AttentionOptions<float>&,
                                               const Runtime&);
template void attention_decode<bfloat16, float>(const InputView<float, 4>&, const KvCache<float>&,
                                                const AttentionOutputs<bfloat16>&, const AttentionOptions<float>&,
                                                const Runtime&);
template void attention_decode<bfloat16, bfloat16>(const InputView<float, 4>&, const KvCache<bfloat16>&,
                                                   const AttentionOutputs<bfloat16>&, const AttentionOptions<float>&,
                                                   const Runtime&);
template void attention_decode<bfloat16, std::int8_t>(const InputView<float, 4>&, const KvCache<std::int8_t>&,
                                                      const AttentionOutputs<bfloat16>&, const AttentionOptions<float>&,
                                                      const Runtime&);
template void attention_decode<bfloat16, float16>(const InputView<float, 4>&, const KvCache<float16>&,
                                                  const AttentionOutputs<bfloat16>&, const AttentionOptions<float>&,
                                                  const Runtime&);
template void attention_decode<float16, float>(const InputView<float, 4>&, const KvCache<float>&,
                                               const AttentionOutputs<float16>&, const AttentionOptions<float>&,
                                               const Runtime&);
template void attention_decode<float16, bfloat16>(const InputView<float, 4>&, const KvCache<bfloat16>&,
                                                  const AttentionOutputs<float16>&, const AttentionOptions<float>&,
                                                  const Runtime&);
template void attention_decode<float16, std::int8_t>(const InputView<float, 4>&, const KvCache<std::int8_t>&,
                                                     const AttentionOutputs<float16>&, const AttentionOptions<float>&,
                                                     const Runtime&);
template void attention_decode<float16, float16>(const InputView<float, 4>&, const KvCache<float16>&,
                                                 const AttentionOutputs<float16>&, const AttentionOptions<float>&,
                                                 const Runtime&);
template void attention_decode<double, double>(const InputView<double, 4>&, const KvCache<double>&,
                                               const AttentionOutputs<double>&, const AttentionOptions<double>&,
                                               const Runtime&);

}  // namespace v0
}  // namespace regard
