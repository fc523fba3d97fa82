// SPDX-License-Identifier: Apache-2.0
//
// Keys and values that stay between calls, packed as the kernels read them: attention_decode() copies none of them.
//
//     append(key, value)          sequence 0   [panel][panel][pan…]      a panel: 32 keys of every head
//            │                    sequence 1   [panel][pan…]             a page: panels allocated together
//            ▼                                    ▲
//     one block of memory         fork(0, 1) shares whole panels; only the last, half-filled one is copied
//
//   contiguous   page_keys = 0: as many pages as sequences, each with room for `capacity` keys
//   paged        page_keys = 32·n: pages are taken as a sequence grows, and given back by truncate()
//   ring         the last `capacity` keys of a sequence that goes on for ever; key numbers keep counting
//
// The block holds everything, at offsets, in the same layout on every instruction set (docs/kv-cache.md, version
// kKvCacheVersion): written to a file and read or mapped back, it is the cache again. Any number of threads may read a
// cache at once. attention_decode reads every sequence: it throws regard::CacheInUse while another thread changes any
// (append, truncate, fork), and a change throws it while attention_decode or another change runs, having changed
// nothing. Only panels read directly (key_panel, value_panel, scales) may be read while another sequence changes. Read
// next: docs/kv-cache.md, src/kv_cache/kv_cache.cpp, src/attention/attention_decode.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "regard/attention.h"

namespace regard::inline v0 {

inline constexpr std::uint32_t kKvCacheVersion = 1;

namespace internal {
template <class T>
class CacheReading;
}

struct KvCacheShape {
  Index num_sequences = 1;
  Index num_kv_heads = 1;     // Hkv
  Index head_size = 0;        // D
  Index value_head_size = 0;  // Dv
  Index capacity = 0;         // keys of a sequence; of a ring: keys that stay
  Index page_keys = 0;        // a multiple of 32; 0: contiguous
  Index num_pages = 0;        // with page_keys: pages of all sequences together
  bool ring = false;          // with page_keys = 0

  friend bool operator==(const KvCacheShape&, const KvCacheShape&) = default;
};

// T is the type of the stored keys and values: float, double, bfloat16, float16 or std::int8_t. 16-bit and int8
// elements are converted to float where attention_decode reads them, or multiplied as attention_forward multiplies
// them. append takes float, bfloat16 or float16 whatever T is, and double where T is double. Elements of type T are
// stored as they are; others are rounded once to T, to nearest even, and become ±∞ beyond its largest number (65504 for
// float16). A cache of int8 stores each key and each value of a head as round(x / scale), ties to even, with scale =
// max |x| / 127 as a float next to it, and reads float(int8) · scale, rounded once. Zeros have scale 0.
template <class T>
class REGARD_EXPORT KvCache {
  static constexpr bool kQuantised = std::same_as<T, std::int8_t>;

 public:
  // Bytes of the block. Throws std::invalid_argument for a shape that makes no sense or whose bytes no Index can count.
  static Index bytes(const KvCacheShape& shape);

  // These three throw regard::Cancelled where a stop is requested.
  // Empty, in memory of its own.
  explicit KvCache(const KvCacheShape& shape, const std::stop_token& stop = {});
  // Empty, in the caller's memory: at least bytes(shape), aligned to 64, overwritten, and outliving the cache.
  KvCache(const KvCacheShape& shape, std::span<std::byte> memory, const std::stop_token& stop = {});
  // What another cache left in memory, as it stands. Nothing is written, so that memory may be a read-only mapping as
  // long as only const members are called. Throws regard::DataError, naming the byte offset, for anything but a
  // consistent block of this version and type.
  static KvCache open(std::span<std::byte> memory, const std::stop_token& stop = {});

  // What was moved from can only be assigned to or destroyed.
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  const KvCacheShape& shape() const;
  std::span<const std::byte> memory() const;
  // Keys appended and not truncated; of a ring, also those that have gone. std::invalid_argument for no such sequence.
  Index length(Index sequence) const;
  // The first key that is still there: 0 but for rings. std::invalid_argument likewise.
  Index first_key(Index sequence) const;
  Index num_free_pages() const;

  // Adds keys (Hkv, L, D) and values (Hkv, L, Dv) to the end of a sequence, on the calling thread.
  // Throws std::invalid_argument for shapes, sequence or capacity, and for numbers that are not finite in a cache of
  // int8, regard::OutOfPages where pages run out, and regard::Cancelled where a stop is requested, of which a
  // ring takes no notice once it writes over its oldest keys; then nothing has changed.
  void append(Index sequence, const InputView<3>& key, const InputView<3>& value, const std::stop_token& stop = {});
  // To all sequences: (B, Hkv, L, D) and (B, Hkv, L, Dv), the first counts[b] of L keys (all where counts is empty).
  void append(const InputView<4>& key, const InputView<4>& value, std::span<const Index> counts = {},
              const std::stop_token& stop = {});

  // Keeps the first `length` keys. Pages that no sequence uses any more are free again.
  // Throws std::invalid_argument where that is more than there are, or less than a ring still has.
  void truncate(Index sequence, Index length);

  // Makes `to`, which must be empty, a sequence of the same keys. Whole panels are shared, the last, half-filled one
  // is copied. A page is free when no sequence uses any of its panels: of a contiguous cache, a sequence that is
  // emptied while a fork uses its panels finds no page of its own until that is emptied, too. Throws
  // std::invalid_argument for rings and for `to` that is not empty; regard::OutOfPages where pages run out; then
  // nothing has changed.
  void fork(Index from, Index to);

  // The panels of 32 keys as the kernels read them (docs/kv-cache.md); panel = key / 32, of a key that is there.
  const T* key_panel(Index sequence, Index key_head, Index panel) const;
  const T* value_panel(Index sequence, Index key_head, Index panel) const;
  // In a cache of int8: the scales of the panel's 32 keys, then of its 32 values. nullptr in others.
  const float* scales(Index sequence, Index key_head, Index panel) const;
  // Whether every value of the panel is finite; false may also stand for a key that has gone, or that was not kept.
  bool values_finite(Index sequence, Index key_head, Index panel) const;

 private:
  struct Layout;
  struct Block;
  struct State;
  KvCache();
  static Layout layout_of(const KvCacheShape& shape);
  Block block() const;
  void format(std::span<std::byte> memory, const std::stop_token& stop);

  std::unique_ptr<State> state_;
  friend class internal::CacheReading<T>;
};

// attention_forward over a cache: the same bits as over the keys and values that it holds, as (B, Hkv, S, D) with
// key_lengths = the cache's lengths and S the longest of them. query and cache are both of double or neither; query
// and context have types as in attention_forward. A cache of int8 holds what
// its numbers are widened to; query and weights are never quantised.
//   query (B, H, L, D), B the cache's sequences, any L ≥ 1, H a multiple of Hkv; writes every view of outputs but
//   weights, which must be absent (attention_weights has them from row_max and row_sum).
// options as in attention_forward, without key_lengths and packed sequences. Query row i of sequence b is at position
// i + query_offset, by default QueryAlignment::bottom_right: the rows are the newest L positions. A sequence without
// keys gives context +0 and lse −∞, as every row that sees no key does. The query heads of a key head are computed
// together: each key and value is read once for all of them. Few heads with long sequences are cut by chunks of keys
// over the threads. Throws like attention_forward, std::invalid_argument where a query sees a key before the last
// `capacity` ones of a ring (a window of w keys and L queries need a capacity of w + L − 1), and regard::CacheInUse
// while another thread changes any sequence of the cache.
template <class K>
REGARD_EXPORT void attention_decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                                    const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
