// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention over several ranks: the functions of attention.h, attention_statistics.h, attention_backward.h and
/// kv_cache.h, to which each rank passes its own rows and its own keys.
///
/// @verbatim
///            rows of query, context        keys of key, value
///   rank 0   0 … 511                       0 … 1023                any number of rows and keys, in rank order
///   rank 1   512 … 2047                    (none)
/// @endverbatim
///
/// - Every rank makes the same call, with the same options. The order of tokens is unchanged, and positions are those
///   of the whole call, whose L and S are the sums over all ranks.
/// - On each rank, `mask` and `bias` contain the rows that the rank holds, for all S keys. All other array-valued
///   options (starts, lengths, segments, block_mask, prefix, slopes, sinks) are passed in full on every rank.
/// - Results are bit-identical to those computed on one machine, for any number of ranks and any division of rows and
///   keys. A call is rejected if the instruction sets of the ranks would produce different bits.
/// - If an argument is invalid on any rank, an InvalidArgument that names this rank is thrown on all ranks.
///
/// Derivation: docs/derivations/ranks.md. Read next: shards.h, src/distributed/attention.cpp.
#pragma once

#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "regard/distributed/ranks.h"
#include "regard/distributed/shards.h"
#include "regard/kv_cache.h"

namespace regard::inline v0 {

/// Computes attention_forward() over the rows and keys of all ranks.
///
/// @param query    (B, H, Lr, D), the rows of this rank; `Lr ≥ 0`.
/// @param key      (B, Hkv, Sr, D), the keys of this rank; `Sr ≥ 0`.
/// @param value    (B, Hkv, Sr, Dv), the values of this rank.
/// @param outputs  Views to write, with the Lr rows of this rank; weights are (B, H, Lr, S).
/// @param options  As in attention_forward(), for the whole call; mask and bias contain the rows of this rank.
/// @param ranks    The ranks.
/// @param runtime  Threads, scratch memory, cancellation and progress of this rank.
///
/// @throws InvalidArgument  on all ranks, as attention_forward() does, and if arguments differ between ranks.
/// @throws RankError        if a rank fails.
/// @throws std::bad_alloc   if memory cannot be allocated on this rank.
/// @throws Cancelled        if a stop is requested on this rank.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_forward() on one machine.
///
/// @par Memory
/// With the `rows` scheme, each rank stores the keys and values of two key/value heads. choose_plan() chooses the
/// scheme. With `mask` or `bias`, the scheme is `rows`, and no rows are moved.
///
/// @par Example
/// @code{.cpp}
/// attention_forward(query_rows, key_rows, value_rows, {.context = context_rows}, {.causal = true}, ranks);
/// @endcode
REGARD_EXPORT void attention_forward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                     const AttentionOutputs& outputs, const AttentionOptions& options, Ranks& ranks,
                                     const Runtime& runtime = {});

/// Computes attention_with_statistics() over the rows and keys of all ranks.
///
/// @param query       As in attention_forward() over ranks.
/// @param key         As in attention_forward() over ranks.
/// @param value       As in attention_forward() over ranks.
/// @param outputs     As in attention_forward() over ranks.
/// @param statistics  Statistics of the rows of this rank. Per-head statistics cover all rows and are written on
///                    every rank. chosen_ranges refers to all L rows.
/// @param options     As in attention_forward() over ranks.
/// @param ranks       The ranks.
/// @param runtime     Threads, scratch memory and cancellation of this rank.
///
/// @throws InvalidArgument  as attention_forward() over ranks does.
/// @throws RankError        if a rank fails.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_with_statistics() on one machine.
///
/// @par Memory
/// The same as for attention_forward() over ranks. Per-head statistics also require memory for each row of this rank:
/// one element per mean, the largest weight and the top key, except for those that the caller requests as outputs.
///
/// @par Example
/// @code{.cpp}
/// attention_with_statistics(query_rows, key_rows, value_rows, {.context = context_rows}, {.entropy = entropy_rows},
///                           {.causal = true}, ranks);
/// @endcode
REGARD_EXPORT void attention_with_statistics(const InputView<4>& query, const InputView<4>& key,
                                             const InputView<4>& value, const AttentionOutputs& outputs,
                                             const AttentionStatistics& statistics, const AttentionOptions& options,
                                             Ranks& ranks, const Runtime& runtime = {});

/// Computes attention_columns() over the rows and keys of all ranks.
///
/// @param query    As in attention_forward() over ranks.
/// @param key      As in attention_forward() over ranks.
/// @param request  Softmax state of the rows of this rank; `keys` refers to the keys of the whole call.
/// @param outputs  key_mass of the keys of this rank, (B, H, Sr); pooled_map of the whole call, on every rank.
/// @param options  As in attention_forward() over ranks.
/// @param ranks    The ranks.
/// @param runtime  Threads, scratch memory and cancellation of this rank.
///
/// @throws InvalidArgument  as attention_forward() over ranks does.
/// @throws RankError        if a rank fails.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_columns() on one machine.
///
/// @par Memory
/// Each rank stores the query rows and the softmax state of the query heads of two key/value heads, and the keys of
/// these heads.
///
/// @par Performance
/// The scheme is `heads`, or `keys` if that balances the work better. With `keys`, each rank computes consecutive keys
/// and receives the rows that can attend to them. With a pooled map, keys are divided among ranks at the boundaries of
/// its column strips, so the number of ranks that have work is at most the number of strips.
///
/// @par Example
/// @code{.cpp}
/// attention_columns(query_rows, key_rows, request, {.key_mass = key_mass}, {.causal = true}, ranks);
/// @endcode
REGARD_EXPORT void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                                     const AttentionColumns& outputs, const AttentionOptions& options, Ranks& ranks,
                                     const Runtime& runtime = {});

/// Computes attention_backward() over the rows and keys of all ranks.
///
/// @param query      As in attention_forward() over ranks.
/// @param key        As in attention_forward() over ranks.
/// @param value      As in attention_forward() over ranks.
/// @param saved      The saved state of the rows of this rank. The fingerprint may be missing and is not checked.
/// @param gradients  grad_query of the rows of this rank; grad_key and grad_value of its keys; grad_bias of its rows,
///                   or the complete sum on every rank if it is summed over rows; grad_sinks of all heads, on every
///                   rank. With accumulation, each rank adds to its own views. If every rank has one row, a grad_bias
///                   with one row is the gradient of that row, not a sum.
/// @param options    As in attention_forward() over ranks.
/// @param ranks      The ranks.
/// @param runtime    Threads, scratch memory and cancellation of this rank.
///
/// @throws InvalidArgument  as attention_forward() over ranks does.
/// @throws RankError        if a rank fails.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_backward() on one machine.
///
/// @par Memory
/// With the `rows` scheme, each rank stores the keys and values of two key/value heads, the sums of their gradients,
/// and the sums that are being sent.
///
/// @par Performance
/// The scheme is `heads`, or `rows` if that balances the work better or sends less data. With `rows`, the sums of
/// grad_key and grad_value are passed from rank to rank, one range of keys at a time. A rank holds the sums of one head
/// (of two if they take less than 8 MiB) in addition to the keys and values of two heads.
///
/// Boundaries between ranks are moved to multiples of kBackwardRows rows. With `mask` or `bias`, the scheme is `rows`,
/// and only the elements of these arrays that belong to moved rows are sent. A block mask may require `heads` instead.
///
/// grad_bias is computed in a separate pass, in which each rank computes its rows. If it is summed over rows, each rank
/// computes some of the heads. If it is summed over rows and heads, one rank computes all of it.
///
/// @par Example
/// @code{.cpp}
/// attention_backward(query_rows, key_rows, value_rows, saved,
///                    {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value}, {.causal = true},
///                    ranks);
/// @endcode
REGARD_EXPORT void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                      const AttentionForwardState& saved, const AttentionGradients& gradients,
                                      const AttentionOptions& options, Ranks& ranks, const Runtime& runtime = {});

/// Computes attention_decode() over a cache whose keys are divided among ranks.
///
/// Each sequence consists of the keys of rank 0, then those of rank 1, and so on. Each rank's number of keys must be a
/// multiple of kAttentionChunkKeys, unless no rank after it has keys of this sequence.
///
/// @tparam K       As in attention_decode().
/// @param query    (B, H, L, D), the same elements on every rank.
/// @param cache    The keys and values of this rank; must not be a ring.
/// @param outputs  Views of the whole result, written on every rank. The fingerprint is set to kUncheckedFingerprint.
/// @param options  As in attention_decode(), for all keys, and the same on every rank.
/// @param ranks    The ranks.
/// @param runtime  Threads, scratch memory and cancellation of this rank.
///
/// @throws InvalidArgument  on all ranks, as attention_decode() does, and if arguments differ between ranks.
/// @throws RankError        if a rank fails.
/// @throws CacheInUse       as attention_decode() does.
/// @throws std::bad_alloc   if memory cannot be allocated on this rank.
/// @throws Cancelled        if a stop is requested on this rank.
///
/// @par Reproducibility
/// The results are bit-identical to those of attention_decode() over one cache with all keys.
///
/// @par Performance
/// Each of the N ranks reads only its own keys, and merges the partial results of H / N heads.
///
/// @par Example
/// @code{.cpp}
/// append(cache, new_key, new_value, ranks);
/// attention_decode(query, cache, {.context = context}, {.causal = true}, ranks);
/// @endcode
template <class K>
REGARD_EXPORT void attention_decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                                    const AttentionOptions& options, Ranks& ranks, const Runtime& runtime = {});

/// Appends keys and values to all sequences of a cache that is divided among ranks.
///
/// Keys and values are stored on the last rank that has keys of the sequence and, once its capacity (rounded down to a
/// multiple of kAttentionChunkKeys) is exhausted, on the next rank.
///
/// @tparam K     As in KvCache.
/// @param cache  The keys and values of this rank; must not be a ring.
/// @param key    Keys, (B, Hkv, L, D), the same elements on every rank.
/// @param value  Values, (B, Hkv, L, Dv), the same elements on every rank.
/// @param ranks  The ranks.
/// @param stop   Stop token.
///
/// If this function throws any exception other than RankError, all caches are unchanged.
///
/// @throws InvalidArgument  on all ranks, as KvCache::append() does, if arguments differ between ranks, or if another
///                          rank's cache throws.
/// @throws RankError        if a rank fails.
/// @throws OutOfPages       as KvCache::append() does, for the cache of this rank.
/// @throws CacheInUse       as KvCache::append() does, for the cache of this rank.
/// @throws std::bad_alloc   if memory cannot be allocated on this rank.
/// @throws Cancelled        if a stop is requested on this rank.
template <class K>
REGARD_EXPORT void append(KvCache<K>& cache, const InputView<4>& key, const InputView<4>& value, Ranks& ranks,
                          const std::stop_token& stop = {});

}  // namespace regard::inline v0
