// SPDX-License-Identifier: Apache-2.0
/// @file
/// Key/value caches, which keep keys and values between calls in the order in which the kernels read them.
///
/// @verbatim
/// append(key, value)          sequence 0   [panel][panel][pan…]      a panel: 32 keys of every head
///        │                    sequence 1   [panel][pan…]             a page: panels allocated together
///        ▼                                    ▲
/// one block of memory         fork(0, 1) shares whole panels; only the last, partially filled one is copied
///
/// contiguous   page_keys = 0: one page per sequence, each large enough for `capacity` keys
/// paged        page_keys = 32·n: a sequence allocates pages as it grows, and truncate() frees them
/// ring         the last `capacity` keys of an unbounded sequence; key indices continue to increase
/// @endverbatim
/// - attention_decode() does not copy keys or values.
/// - The block contains the whole cache and no pointers, in the same layout on every instruction set (version
///   kKvCacheVersion). To reopen a cache later, write the block to a file, and pass the file's contents to open().
/// - Contract: docs/reference/semantics.md. Layout of the block: docs/guide/kv-caches.md.
///
/// Read next: docs/guide/kv-caches.md, src/kv_cache/kv_cache.cpp, src/attention/attention_decode.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "regard/attention.h"

namespace regard::inline v0 {

/// Version of the layout of the block (docs/guide/kv-caches.md).
inline constexpr std::uint32_t kKvCacheVersion = 1;

namespace internal {
template <class T>
class CacheReading;
}

/// Shape and kind of a KvCache.
struct KvCacheShape {
  /// Number of sequences, B in attention_decode().
  Index num_sequences = 1;
  /// Number of key/value heads, Hkv.
  Index num_kv_heads = 1;
  /// Head size of keys, D.
  Index head_size = 0;
  /// Head size of values, Dv.
  Index value_head_size = 0;
  /// Maximum number of keys in a sequence; in a ring, the number of keys that are kept.
  Index capacity = 0;
  /// Keys per page, a multiple of 32. If 0, the cache is contiguous.
  Index page_keys = 0;
  /// Total number of pages, shared by all sequences; only with page_keys.
  Index num_pages = 0;
  /// Whether each sequence is a ring; only with page_keys = 0.
  bool ring = false;

  /// Returns whether all members are equal.
  friend bool operator==(const KvCacheShape&, const KvCacheShape&) = default;
};

/// A cache of keys and values for one or more sequences.
///
/// append() accepts float, bfloat16 and float16 for every T except double, and only double for T = double.
/// - Elements of type T are stored unchanged.
/// - Other elements are rounded once to T, to nearest even. Those that round beyond the largest finite value of T
///   (65504 for float16) become ±∞.
/// - An int8 cache stores each key and each value of a head as `round(x / scale)`, ties to even, together with
///   `scale = max |x| / 127` as a float. They are read as `float(int8) · scale`, rounded once. The scale of a zero
///   vector is 0.
///
/// attention_decode() converts 16-bit and int8 elements to float as it reads them, or multiplies bfloat16 elements
/// directly, as attention_forward() does.
///
/// @tparam T  Type of the stored keys and values: float, double, bfloat16, float16 or std::int8_t.
///
/// @par Threads
/// Any number of threads may read a cache at the same time. attention_decode() reads every sequence:
/// - It throws CacheInUse while another thread is changing any sequence (append(), truncate(), fork()).
/// - A call that changes the cache throws CacheInUse while attention_decode() or another such call is running. In that
///   case, the cache is unchanged.
/// - Only direct reads of panels (key_panel(), value_panel(), scales()) are allowed while another sequence is being
///   changed.
///
/// @par Example
/// @code{.cpp}
/// KvCache<float> cache(
///     {.num_sequences = 1, .num_kv_heads = 8, .head_size = 128, .value_head_size = 128, .capacity = 4096});
/// cache.append(0, key, value);                                              // (Hkv, L, D), (Hkv, L, Dv)
/// attention_decode(query, cache, {.context = context}, {.causal = true});   // (1, H, L, D) → (1, H, L, Dv)
/// @endcode
template <class T>
class REGARD_EXPORT KvCache {
  static constexpr bool kQuantized = std::same_as<T, std::int8_t>;

 public:
  /// Computes the size of the block of a cache.
  ///
  /// @param shape  Shape and kind of the cache.
  /// @return Size in bytes.
  /// @throws InvalidArgument  if the shape is inconsistent, or if the size of the block does not fit in an Index.
  static Index bytes(const KvCacheShape& shape);

  /// Creates an empty cache that owns its memory.
  ///
  /// @param shape  Shape and kind of the cache.
  /// @param stop   Stop token.
  /// @throws InvalidArgument  as bytes() does.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  explicit KvCache(const KvCacheShape& shape, const std::stop_token& stop = {});

  /// Creates an empty cache in the caller's memory, which is overwritten.
  ///
  /// @param shape   Shape and kind of the cache.
  /// @param memory  At least `bytes(shape)` bytes, aligned to 64 bytes. It must outlive the cache.
  /// @param stop    Stop token.
  /// @throws InvalidArgument  as bytes() does, and if memory is too small or not aligned.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  KvCache(const KvCacheShape& shape, std::span<std::byte> memory, const std::stop_token& stop = {});

  /// Opens a cache in memory that was written by another KvCache.
  ///
  /// Nothing is written. The memory may therefore be a read-only mapping, as long as only const members are called.
  ///
  /// @param memory  The block, aligned to 64 bytes. It must outlive the cache.
  /// @param stop    Stop token.
  /// @return A cache that uses this memory.
  /// @throws DataError        if the block is not a consistent cache of this version and type. The message states the
  ///                          byte offset.
  /// @throws InvalidArgument  if memory is not aligned.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  static KvCache open(std::span<std::byte> memory, const std::stop_token& stop = {});

  /// Moves the cache. The moved-from cache can only be assigned to or destroyed.
  KvCache(KvCache&&) noexcept;
  /// Moves the cache. The moved-from cache can only be assigned to or destroyed.
  KvCache& operator=(KvCache&&) noexcept;
  /// Destroys the cache and frees the memory that it owns.
  ~KvCache();

  /// Returns the shape and kind of the cache.
  ///
  /// @return The shape given to the constructor, or read by open().
  const KvCacheShape& shape() const;

  /// Returns the block, for example to write it to a file.
  ///
  /// @return The bytes of the whole cache.
  std::span<const std::byte> memory() const;

  /// Returns the length of a sequence.
  ///
  /// @param sequence  Index of the sequence.
  /// @return Number of keys appended and not truncated; in a ring, including those that are no longer stored.
  /// @throws InvalidArgument  if there is no such sequence.
  Index length(Index sequence) const;

  /// Returns the index of the first key of a sequence that is still stored.
  ///
  /// @param sequence  Index of the sequence.
  /// @return Index of the key; always 0 except in rings.
  /// @throws InvalidArgument  if there is no such sequence.
  Index first_key(Index sequence) const;

  /// Returns the number of free pages.
  ///
  /// @return Number of pages that no sequence uses.
  Index num_free_pages() const;

  /// Appends keys and values to one sequence, on the calling thread.
  ///
  /// @param sequence  Index of the sequence.
  /// @param key       Keys, (Hkv, L, D), any strides.
  /// @param value     Values, (Hkv, L, Dv), any strides.
  /// @param stop      Stop token. In a ring, it is ignored once writing has started.
  ///
  /// If the call throws, the cache is unchanged.
  ///
  /// @throws InvalidArgument  if a shape, a type or the sequence is invalid, if the capacity is too small, or if an
  ///                          element to be stored in an int8 cache is not finite.
  /// @throws OutOfPages       if there are not enough free pages.
  /// @throws CacheInUse       if another thread is using the cache.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  void append(Index sequence, const InputView<3>& key, const InputView<3>& value, const std::stop_token& stop = {});

  /// Appends keys and values to all sequences, on the calling thread. Otherwise the same as append(Index, …).
  ///
  /// @param key     Keys, (B, Hkv, L, D), any strides.
  /// @param value   Values, (B, Hkv, L, Dv), any strides.
  /// @param counts  Number of keys to append to each sequence: the first `counts[b]` of L. If empty, all L keys are
  ///                appended to each sequence.
  /// @param stop    Stop token. In a ring, it is ignored once writing has started.
  ///
  /// If the call throws, the cache is unchanged.
  ///
  /// @throws InvalidArgument  as append(Index, …) does, and if counts has the wrong size or an element outside 0 … L.
  /// @throws OutOfPages       as append(Index, …) does.
  /// @throws CacheInUse       as append(Index, …) does.
  /// @throws std::bad_alloc   as append(Index, …) does.
  /// @throws Cancelled        as append(Index, …) does.
  void append(const InputView<4>& key, const InputView<4>& value, std::span<const Index> counts = {},
              const std::stop_token& stop = {});

  /// Keeps only the first keys of a sequence. Pages that are no longer used by any sequence become free.
  ///
  /// @param sequence  Index of the sequence.
  /// @param length    Number of keys to keep. 0 empties the sequence.
  /// @throws InvalidArgument  if there is no such sequence, or if length exceeds its number of keys; in a ring also if
  ///                          length is above 0 and below first_key().
  /// @throws CacheInUse       if another thread is using the cache.
  void truncate(Index sequence, Index length);

  /// Makes an empty sequence share the keys and values of another sequence.
  ///
  /// Whole panels are shared; the last, partially filled one is copied. A page is free only when no sequence uses any
  /// of its panels. Therefore, if a sequence in a contiguous cache is emptied while a fork still uses its panels, there
  /// may be no free page for it until the fork is emptied as well.
  ///
  /// @param from  Index of the sequence to share.
  /// @param to    Index of another sequence, which must be empty.
  /// @throws InvalidArgument  if there is no such sequence, if `to` is not empty, or if the cache is a ring. The cache
  ///                          is unchanged.
  /// @throws OutOfPages       if there are not enough free pages. The cache is unchanged.
  /// @throws CacheInUse       if another thread is using the cache. The cache is unchanged.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  void fork(Index from, Index to);

  /// Returns a panel of 32 keys in the layout that the kernels read (docs/guide/kv-caches.md).
  ///
  /// The arguments are not checked.
  ///
  /// @param sequence  Index of the sequence.
  /// @param key_head  Index of the key/value head.
  /// @param panel     `key / 32`, for a key that is stored.
  /// @return The panel, (D, 32).
  const T* key_panel(Index sequence, Index key_head, Index panel) const;

  /// Returns a panel of 32 values in the layout that the kernels read. The arguments are as for key_panel().
  ///
  /// @param sequence  Index of the sequence.
  /// @param key_head  Index of the key/value head.
  /// @param panel     `key / 32`, for a key that is stored.
  /// @return The panel, (⌈Dv / 32⌉, 32 keys, 32 columns).
  const T* value_panel(Index sequence, Index key_head, Index panel) const;

  /// Returns the scales of a panel in an int8 cache. The arguments are as for key_panel().
  ///
  /// @param sequence  Index of the sequence.
  /// @param key_head  Index of the key/value head.
  /// @param panel     `key / 32`, for a key that is stored.
  /// @return The scales of the panel's 32 keys, followed by those of its 32 values; nullptr for other T.
  const float* scales(Index sequence, Index key_head, Index panel) const;

  /// Returns whether every value in a panel is finite. The arguments are as for key_panel().
  ///
  /// @param sequence  Index of the sequence.
  /// @param key_head  Index of the key/value head.
  /// @param panel     `key / 32`, for a key that is stored.
  /// @return True only if all values are finite. The result may also be false because of a value that is no longer part
  ///         of the sequence, or that a failed append() discarded.
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

/// Computes attention over the keys and values of a cache, as attention_forward() does, without copying them.
///
/// Query row i of sequence b is at position `i + query_offset`. The default is QueryAlignment::bottom_right: the rows
/// are the newest L positions of the sequence. For a cache with 5 keys, L = 2 and causal (1 = visible):
/// @verbatim
/// 1 1 1 1 0     row 0 at position 3
/// 1 1 1 1 1     row 1 at position 4
/// @endverbatim
///
/// @tparam K       Type of the stored keys and values.
/// @param query    (B, H, L, D), any strides, where B is the number of sequences in the cache, `L ≥ 1`, and H is a
///                 multiple of Hkv; double if K is double, else float, bfloat16 or float16.
/// @param cache    Keys and values.
/// @param outputs  Views to write, with the same types as in attention_forward(). weights must be absent; to compute
///                 them, pass row_max and row_sum to attention_weights().
/// @param options  As in attention_forward(), but key_lengths, packed sequences and dropout are not allowed.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes every view given in outputs. A sequence without keys yields context +0 and, without a sink, lse −∞, as does
/// every row with no visible key.
///
/// @throws InvalidArgument  as attention_forward() does, and if a key that the ring has already overwritten is visible
///                          to a query. L queries with a window of w keys need a capacity of w + L − 1.
/// @throws CacheInUse       if another thread is changing a sequence of the cache.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_forward() over the same keys, (B, Hkv, S, D), and values,
/// (B, Hkv, S, Dv), where key_lengths contains the lengths of the sequences and S is the longest of them. For an int8
/// cache, these keys and values are the converted elements. Query and weights are never quantized.
///
/// @par Performance
/// The query heads that share a key/value head are computed together, so each key and value is read once for all of
/// them. With few heads and long sequences, the work is split among threads by chunks of keys.
///
/// @par Example
/// @code{.cpp}
/// attention_decode(query, cache, {.context = context}, {.causal = true});
/// @endcode
template <class K>
REGARD_EXPORT void attention_decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                                    const AttentionOptions& options = {}, const Runtime& runtime = {});

/// Computes the partial results of attention_decode(), one per chunk of keys, as attention_partials() does.
///
/// If the keys of a sequence are spread over several caches, for example on several machines, split the sequence at
/// multiples of kAttentionChunkKeys, and let f be the index of a cache's first key.
/// - Positions, and the columns of masks, bias and segments, are relative to the cache. Give query_offset as a number:
///   the position of row 0 minus f. It may be negative, or beyond the last key.
/// - Subtract f from prefix as well, and clamp it to at least 0.
/// @verbatim
/// causal, keys 0 … 2499, f = 0, 1024, 2048; L = 1 at position 2499
///     cache 0   keys    0 … 1023   query_offset = 2499    partial result 0
///     cache 1   keys 1024 … 2047   query_offset = 1475    partial result 1
///     cache 2   keys 2048 … 2499   query_offset =  451    partial result 2
/// @endverbatim
///
/// @tparam K        Type of the stored keys and values.
/// @param query     (B, H, L, D), as in attention_decode().
/// @param cache     Keys and values of one part of each sequence. The sequences in the cache may have any lengths,
///                  including 0.
/// @param partials  Views to write, with N = attention_num_chunks(S) and S the length of the longest sequence. Only
///                  scaled_accumulator is optional.
/// @param options   As in attention_decode(), except sinks, which are passed to attention_merge() instead.
/// @param runtime   Threads, scratch memory and cancellation.
///
/// Writes every view given in partials. A row with no visible key in a chunk has row_max −∞ and sums of 0, as do all
/// rows of a sequence that has no such chunk.
///
/// @throws InvalidArgument  as attention_decode() does, if sinks are given, or if a ring no longer holds all visible
///                          keys.
/// @throws CacheInUse       as attention_decode() does.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// The partial results are bit-identical to those of attention_partials() over the same keys and values. Merging the
/// partial results of all caches in key order gives results bit-identical to those of attention_decode() over one cache
/// with all keys, under the conditions stated for attention_merge().
///
/// @par Example
/// @code{.cpp}
/// attention_decode_partials(query, cache, partials, {.causal = true, .query_offset = position - first_key});
/// @endcode
template <class K>
REGARD_EXPORT void attention_decode_partials(const InputView<4>& query, const KvCache<K>& cache,
                                             const AttentionPartialOutputs& partials,
                                             const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
