// SPDX-License-Identifier: Apache-2.0
//
// attention_decode and attention_decode_partials: attention over keys and values that are already packed in a cache.
// Contains the checks of the query and of rings, and CachedKeys, through which tasks read the panels of a cache
// (kv_panels.h).
// Read next: few_row_schedule.h, kv_cache.cpp.
#include <algorithm>
#include <array>
#include <string>

#include "arguments.h"
#include "few_row_schedule.h"
#include "fingerprint.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "kv_cache/lock.h"
#include "kv_panels.h"
#include "partial_results.h"
#include "plan.h"
#include "regard/kv_cache.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "visibility.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kPanel;

// Up to this many rows of a KV head run as one group of tasks of four rows, which read the panels as they are stored.
// Compared with tiles of twelve rows over float panels: 1.3 to 2 times faster for 8 rows; for 16 rows, equally fast
// with float and 1.3 times faster with 16-bit types.
constexpr Index kMaxFewRows = kMaxTasksPerGroup * kernels::kFewRows;

// The panels of a cache of K, for kernels that compute in T, or in bf16 pairs if r requires them.
template <class T, class K>
class CachedKeys final : public KvPanels<T> {
 public:
  CachedKeys(const KvCache<K>& cache, const ResolvedAttention<T>& r)
      : cache_(cache), key_pairs_(r.key_pairs), value_pairs_(r.value_pairs) {}
  bool converted() const override { return !std::same_as<T, K>; }
  const T* key_panel(const KvHead& kv_head, Index panel, T* buffer) const override {
    const K* keys = cache_.key_panel(kv_head.sequence, kv_head.key_head, panel);
    const Index head_size = cache_.shape().head_size;
    if constexpr (std::same_as<K, std::int8_t>) {
      const float* scales = cache_.scales(kv_head.sequence, kv_head.key_head, panel);
      for (Index d = 0; d < head_size; ++d) {
        for (Index j = 0; j < kPanel; ++j) buffer[d * kPanel + j] = static_cast<T>(keys[d * kPanel + j]) * scales[j];
      }
      return buffer;
    } else {
      return wide(keys, head_size, key_pairs_, buffer);
    }
  }
  const T* value_panel(const KvHead& kv_head, Index panel, T* buffer) const override {
    const Index padded_value_head_size = (cache_.shape().value_head_size + kPanel - 1) / kPanel * kPanel;
    const K* values = cache_.value_panel(kv_head.sequence, kv_head.key_head, panel);
    if constexpr (std::same_as<K, std::int8_t>) {
      const float* scales = cache_.scales(kv_head.sequence, kv_head.key_head, panel) + kPanel;
      for (Index line = 0; line < padded_value_head_size; ++line) {  // (32 columns, key)
        const float scale = scales[line % kPanel];
        for (Index c = 0; c < kPanel; ++c) {
          buffer[line * kPanel + c] = static_cast<T>(values[line * kPanel + c]) * scale;
        }
      }
      return buffer;
    } else {
      return wide(values, padded_value_head_size, value_pairs_, buffer);
    }
  }
  bool finite(const KvHead& kv_head, Index panel) const override {
    return cache_.values_finite(kv_head.sequence, kv_head.key_head, panel);
  }
  bool stored() const override { return true; }
  void find_stored_keys(const KvHead& kv_head, Index panel, bool follows, kernels::StoredPanels& block) const override {
    find(
        kv_head, panel, follows, 0, [&](Index at) { return cache_.key_panel(kv_head.sequence, kv_head.key_head, at); },
        block);
  }
  void find_stored_values(const KvHead& kv_head, Index panel, bool follows,
                          kernels::StoredPanels& block) const override {
    find(
        kv_head, panel, follows, kPanel,
        [&](Index at) { return cache_.value_panel(kv_head.sequence, kv_head.key_head, at); }, block);
  }

 private:
  static constexpr kernels::Stored kStored = stored_type(kElementType<K>);

  template <class PanelAt>
  void find(const KvHead& kv_head, Index panel, bool follows, Index first_scale, const PanelAt& panel_at,
            kernels::StoredPanels& block) const {
    constexpr bool kScaled = std::same_as<K, std::int8_t>;
    const auto scales_at = [&](Index at) {
      return cache_.scales(kv_head.sequence, kv_head.key_head, at) + first_scale;
    };
    block.type = kStored;
    block.row_stride = 0;
    for (Index i = 0; i < kernels::kBlockPanels; ++i) {
      const Index here = panel + i, next = here + kernels::kBlockPanels;
      const bool there = here < kv_head.num_panels;
      block.panels[i] = follows ? block.next[i] : there ? panel_at(here) : nullptr;
      block.next[i] = next < kv_head.num_panels ? panel_at(next) : nullptr;
      if constexpr (kScaled) {
        block.scales[i] = follows ? block.next_scales[i] : there ? scales_at(here) : nullptr;
        block.next_scales[i] = block.next[i] ? scales_at(next) : nullptr;
        // Only two cache lines: too few for the kernel to prefetch, and too far from the previous ones for the hardware
        // prefetcher.
        if (block.next[i]) {
          __builtin_prefetch(block.next_scales[i]);
          __builtin_prefetch(block.next_scales[i] + kPanel / 2);
        }
      }
    }
  }

  static const T* wide(const K* panel, Index width, bool pairs, T* buffer) {
    const kernels::KernelTable& table = kernels::active();
    if constexpr (std::same_as<K, T>) {
      return panel;
    } else if constexpr (std::same_as<K, bfloat16>) {
      const auto* lines = reinterpret_cast<const kernels::Bfloat16*>(panel);
      pairs ? table.pairs.pair_lines(lines, width, buffer) : table.bf16.widen(lines, buffer, width * kPanel);
      return buffer;
    } else {
      table.f16.widen(reinterpret_cast<const kernels::Float16*>(panel), buffer, width * kPanel);
      return buffer;
    }
  }

  const KvCache<K>& cache_;
  bool key_pairs_, value_pairs_;
};

// Checks the query against the cache before resolve(), whose messages refer to a key tensor.
void check_query(const char* name, const InputView<4>& query, const KvCacheShape& shape) {
  const auto& [batch, heads, rows, head_size] = query.shape;
  const auto fail = [&](const std::string& has, const std::string& cache) {
    reject(name, "query has " + has + " in shape " + shape_text(query.shape) + "; the cache has " + cache);
  };
  if (query.absent()) reject(name, "query is missing; expected (B, H, L, D) with B = number of sequences in the cache");
  if (std::min({batch, heads, rows, head_size}) < 0) return;  // resolve() reports it
  if (batch != shape.num_sequences)
    fail("batch " + std::to_string(batch),
         std::to_string(shape.num_sequences) + (shape.num_sequences == 1 ? " sequence" : " sequences"));
  if (head_size != shape.head_size)
    fail("head size " + std::to_string(head_size), "head size " + std::to_string(shape.head_size));
  if (heads % shape.num_kv_heads != 0)
    fail(std::to_string(heads) + (heads == 1 ? " head" : " heads"),
         std::to_string(shape.num_kv_heads) + " KV heads; expected a multiple of that number");
}

// Every key that a row attends to must be among those that a ring is guaranteed to hold, wherever its panels end.
template <class T, class K>
void check_ring(const char* name, const ResolvedAttention<T>& r, const KvCache<K>& cache) {
  if (!cache.shape().ring) return;
  for (const Sequence& sequence : r.sequences) {
    const Index kept = std::max(cache.first_key(sequence.batch), cache.length(sequence.batch) - cache.shape().capacity);
    for (Index row = 0; row < sequence.num_queries && r.num_heads > 0; ++row) {
      const Interval seen = visible_interval(r, sequence, row);
      if (seen.begin >= kept) break;  // and so do all later rows
      if (seen.begin >= seen.end) continue;
      reject(name, "query " + std::to_string(row) + " of sequence " + std::to_string(sequence.batch) +
                       " attends to key " + std::to_string(seen.begin) + ", but the ring keeps only keys from " +
                       std::to_string(kept) + " on; a window of w keys with L queries needs a capacity of w + L - 1");
    }
  }
}

// Checks query and options, and fills in all defaults. result: type of the context.
template <class T, class K>
ResolvedAttention<T> resolve_over_cache(const char* name, const InputView<4>& query, const KvCache<K>& cache,
                                        ElementType result, const AttentionOptions& options, const Runtime& runtime) {
  const KvCacheShape& shape = cache.shape();
  check_query(name, query, shape);
  if (!options.key_lengths.empty()) reject(name, "key_lengths is given; expected none: the cache holds the lengths");
  if (!options.query_starts.empty() || !options.key_starts.empty())
    reject(name, "query_starts or key_starts is given; expected none: the cache already separates its sequences");
  if (options.dropout != 0) reject(name, "dropout is given; expected none");
  ScratchVector<Index> lengths(workspace_of(runtime));
  lengths.reserve(static_cast<std::size_t>(shape.num_sequences));
  Index longest = 0;
  for (Index s = 0; s < shape.num_sequences; ++s) {
    lengths.push_back(cache.length(s));
    longest = std::max(longest, lengths.back());
  }
  // These views only supply shapes and, for the choice of kernels, a type; the panels are read from the cache.
  constexpr ElementType kCached = std::same_as<K, bfloat16> ? ElementType::bfloat16 : kElementType<T>;
  const auto placeholder = [&](Index columns) {
    return InputView<4>(cache.memory().data(), kCached, {shape.num_sequences, shape.num_kv_heads, longest, columns},
                        {0, 0, 0, 0});
  };
  const AttentionCall call{name, query, placeholder(shape.head_size), placeholder(shape.value_head_size), true, result};
  AttentionOptions with_lengths = options;
  with_lengths.key_lengths = lengths;
  if (std::holds_alternative<std::monostate>(options.query_offset))
    with_lengths.query_offset = QueryAlignment::bottom_right;
  return resolve<T>(call, with_lengths, runtime);
}

// What an output must not overlap: the inputs and the cache.
template <class K>
Footprints footprints_over_cache(const char* name, const InputView<4>& query, const KvCache<K>& cache,
                                 const AttentionOptions& options) {
  Footprints inputs = input_footprints(AttentionCall{name, query, {}, {}, false}, options);
  const Index bytes = static_cast<Index>(cache.memory().size());
  inputs.push_back(
      footprint(name, "the cache", cache.memory().data(), std::array<Index, 1>{bytes}, std::array<Index, 1>{1}, 1));
  return inputs;
}

template <class T, class K>
void attend_cache(const char* name, const ResolvedAttention<T>& r, const KvCache<K>& cache, double written_bytes,
                  const RowWriter<T>& writer, const Runtime& runtime) {
  const CachedKeys<T, K> keys(cache, r);
  const FewRowOptions schedule{.name = name,
                               .source = "a cache",
                               .key_bytes = sizeof(K),
                               .value_bytes = sizeof(K),
                               .written_bytes = written_bytes,
                               .max_few_rows = kMaxFewRows};
  attend_few_rows<T>(r, keys, schedule, writer, runtime);
}

template <class T, class K>
void decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
            const AttentionOptions& options, const Runtime& runtime) {
  constexpr const char* kName = "attention_decode";
  const CacheReading<K> reading(kName, cache);
  if (!outputs.weights.absent()) reject(kName, "weights is given; expected none");
  const auto r = resolve_over_cache<T>(kName, query, cache, outputs.context.type, options, runtime);
  check_context_type(kName, outputs.context, query.type);
  const TypedOutputs<T> written(kName, outputs);
  check_outputs(kName, outputs, {r.batch, r.num_heads, r.num_queries, r.value_head_size}, r.num_keys,
                footprints_over_cache(kName, query, cache, options));
  check_ring(kName, r, cache);
  write_fingerprint(r, outputs.fingerprint);
  if (r.batch * r.num_heads * r.num_queries == 0) return;
  attend_cache<T>(kName, r, cache, output_bytes(written), FinishedRowWriter<T>(written), runtime);
}

// Writes the results of the chunks as they are.
template <class T>
class PartialWriter final : public RowWriter<T> {
 public:
  explicit PartialWriter(const TypedPartials<T>& partials) : partials_(partials) {}
  void compute_chunks(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& buffer) const override {
    task.compute_chunks(chunks, buffer);
    write(task, chunks, buffer);
  }
  void write(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) const override {
    partials_.write(task, chunks, results);
  }

 private:
  const TypedPartials<T>& partials_;
};

template <class T, class K>
void decode_partials(const InputView<4>& query, const KvCache<K>& cache, const AttentionPartialOutputs& given,
                     const AttentionOptions& options, const Runtime& runtime) {
  constexpr const char* kName = "attention_decode_partials";
  const CacheReading<K> reading(kName, cache);
  if (!options.sinks.empty()) reject(kName, "sinks are given; expected none (attention_merge takes them)");
  const auto r = resolve_over_cache<T>(kName, query, cache, kElementType<T>, options, runtime);
  const TypedPartials<T> partials(kName, given);
  partials.check(kName, r, footprints_over_cache(kName, query, cache, options));
  check_ring(kName, r, cache);
  if (r.batch * r.num_heads * r.num_queries == 0 || r.num_keys == 0) return;
  attend_cache<T>(kName, r, cache, partials.bytes(), PartialWriter<T>(partials), runtime);
}

}  // namespace
}  // namespace internal

template <class K>
void attention_decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                      const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::decode<ComputeType<K>>(query, cache, outputs, options, runtime);
}

template <class K>
void attention_decode_partials(const InputView<4>& query, const KvCache<K>& cache,
                               const AttentionPartialOutputs& partials, const AttentionOptions& options,
                               const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::decode_partials<ComputeType<K>>(query, cache, partials, options, runtime);
}

REGARD_INSTANTIATE_STORED(attention_decode);

REGARD_INSTANTIATE_STORED(attention_decode_partials);

}  // namespace regard::inline v0
