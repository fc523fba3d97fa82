// SPDX-License-Identifier: Apache-2.0
//
// Scaled dot-product attention, forward.
//
//     scores  = soft_cap(scale · query · keyᵀ) + ALiBi + bias      (L, S) per head
//     weights = softmax(scores over the visible keys)              (L, S) per head, rows sum to 1
//     context = weights · value                                    (L, Dv) per head
//     log_sum_exp = row_max + ln(row_sum),  row_max = max score,  row_sum = Σ exp(score − row_max)
//
// Extents: B batch, H query heads, Hkv key/value heads, L query length, S key length, D head size,
// Dv value head size. Query head h reads key/value head ⌊h / (H / Hkv)⌋. Every clause of the contract, with its
// corners, is in docs/semantics.md. Algorithm: docs/derivations/attention.md; the running maximum and sum are
// Milakov and Gimelshein, arXiv 1805.02867, algorithm 3, in blocks as in Dao et al., arXiv 2205.14135, algorithm 1.
//
// Types: query, key and value are of float, bfloat16 or float16, each of its own, or all of double. Numbers of two
// bytes are widened exactly and computed with as float; only the context may be rounded, once, to the query's type.
// Where the processor multiplies bfloat16 numbers as they are, they need not be widened (weights_in_float32 below).
// Read next: src/attention/attention_forward.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// Keys are processed in blocks, blocks in chunks of this many keys, counted from key 0 (of each packed sequence).
// Cutting the keys at multiples of it and merging the partials gives the same bits as the whole.
inline constexpr Index kAttentionChunkKeys = 1024;

// The position of query row i is p = i + query_offset; causal, window, ALiBi and prefix are stated in p.
enum class QueryAlignment { top_left, bottom_right };

// One of: not named (allowed when L = S without key_lengths, then 0), an alignment (top_left: 0; bottom_right:
// key length − L, per batch entry or packed sequence), one number, or one number per batch entry or sequence.
// Negative numbers are allowed.
using QueryOffset = std::variant<std::monostate, QueryAlignment, Index, InputView<1>>;

// p − left ≤ j ≤ p + right; a bound that is not set is open. Each is ≥ 0.
struct Window {
  std::optional<Index> left;
  std::optional<Index> right;
};

// visible(i, j) = (not causal or j ≤ p or j < prefix[b]) and window and j < key_lengths[b]
//                 and segments and block_mask and mask
// Everything combines. An absent view is an option not given. Dense options (segments, block_mask, mask, bias) are
// indexed by stored row and key, also when sequences are packed. Lengths, starts, offsets and segments are of int32 or
// int64. Masks are of bool or uint8, where 0 is false and all else true. Views own nothing: what they view must live
// until the call returns.
struct AttentionOptions {
  bool causal = false;
  QueryOffset query_offset{};
  Window window{};
  InputView<1> key_lengths{};         // (B) or one per packed sequence: keys from there on are invisible
  InputView<1> query_starts{};        // packed: (n + 1) cumulative, B must be 1, query is (1, H, total, D)
  InputView<1> key_starts{};          // packed: (n + 1) cumulative over the keys; both or neither
  InputView<2> query_segments{};      // (B, L): equal = seen, negative = sees nothing
  InputView<2> key_segments{};        // (B, S): negative = unseen; both or neither
  InputView<1> prefix{};              // (B) or per sequence: keys before it are visible although causal
  InputView<4> block_mask{};          // (B|1, H|1, ⌈L/bq⌉, ⌈S/bk⌉), true = seen
  std::array<Index, 2> block_size{};  // (bq, bk), with block_mask
  InputView<4> mask{};                // broadcastable to (B, H, L, S): extent 1 or stride 0; true = sees
  InputView<4> bias{};                // additive, broadcastable to (B, H, L, S); float, or the query's type
  InputView<1> alibi_slopes{};        // (H), of the type computed with: adds −slope · |j − p|
  InputView<1> sinks{};  // (H), likewise: a score that joins row_max and row_sum and takes no value; −∞ = none
  std::optional<double> soft_cap{};  // c · tanh(x / c), c > 0
  std::optional<double> scale{};     // default 1 / √D; any finite number
  // Each weight is dropped, with this probability from 0 to 1, or divided by 1 − dropout, in context alone: row_max,
  // row_sum, lse, weights and statistics are those without. Which, depends on seed, b, h, i and j and nothing else.
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  // Batch entry, query head and stored row of the whole that this call's first ones are: they are added to b, h and i,
  // so that a shard or a micro-batch drops what the whole drops. Each is at least 0.
  std::array<Index, 3> dropout_first{};
  // Whether weights stay float32 where they are multiplied with values of bfloat16, instead of being rounded to
  // bfloat16. By default they do where the result (context, gradients, partials) is float32.
  std::optional<bool> weights_in_float32{};
};

// The options of a forward call, hashed, a word per option: attention_backward compares it with the options that it is
// given, in every build, and throws std::invalid_argument that names those that differ. It covers the shapes of query,
// key and value, every option but the rounding of weights, and the contents of all of them; of block_mask, mask and
// bias with more than 1024 elements it covers 1024, spread over the whole. It does not cover elements of query, key and
// value, nor element types. Options that mean the same have the same fingerprint, however they are stated: in C++, C or
// Python, by default or by name, dense or broadcast.
struct AttentionFingerprint {
  std::array<std::uint32_t, 16> words{};  // all zero: missing
  bool operator==(const AttentionFingerprint&) const = default;
};
// For a backward call that has no such forward call, as where row_max and row_sum are merged from partial results and
// each call has some of the keys: nothing is compared.
inline constexpr AttentionFingerprint kUncheckedFingerprint = [] {
  AttentionFingerprint fingerprint;
  fingerprint.words.fill(0xffffffff);
  return fingerprint;
}();

// What is written. Only context is required. An output must not overlap an input or another output. All have the type
// computed with; context may instead have the query's type.
struct AttentionOutputs {
  OutputView<4> context{};       // (B, H, L, Dv)
  OutputView<3> row_max{};       // (B, H, L), with a sink: including it
  OutputView<3> row_sum{};       // (B, H, L), likewise
  OutputView<3> lse{};           // (B, H, L), natural logarithm; −∞ for a row that sees no key (without sink)
  OutputView<4> weights{};       // (B, H, L, S), 0 at invisible keys
  OutputView<3> sink_weights{};  // (B, H, L): exp(sink − row_max) / row_sum
  AttentionFingerprint* fingerprint = nullptr;  // of the options, for attention_backward
};

// Computes context = softmax(soft_cap(scale · query · keyᵀ) + bias over visible keys) · value.
//   query (B, H, L, D), key (B, Hkv, S, D), value (B, Hkv, S, Dv); any strides. All three are double, and all is
//   computed in double; or each is float, bfloat16 or float16, and all is computed in float.
//
//     attention_forward(query, key, value, {.context = context}, {.causal = true});
//
// Writes every view that outputs names. A row that sees no key gets context +0. With inputs of two bytes the results
// are those of the same numbers widened to float, to the bit, but for the instruction set avx512_bf16 with query and
// key of bfloat16: it sums their products in pairs, as exactly, and takes subnormal numbers as zero; where value is of
// bfloat16, too, weights are rounded to bfloat16 for the product with it, which adds 2⁻⁸ Σ_j p_j |v_j| to the error,
// unless weights_in_float32: the default where context is of float. A context of two bytes is the context of float,
// rounded to nearest even: |rounding| ≤ 2⁻⁸ |context| for bfloat16, 2⁻¹¹ |context| for float16 where it is a normal
// number. Error of context, u = 2⁻²⁴ or 2⁻⁵³: at most u · (32 + 4√D · max_j(|scale| Σ_d |q_d k_jd| + |bias_j| + |slope
// · distance|)) · Σ_j p_j |v_j|, while every partial sum of Σ_d q_d k_jd is finite: it is sufficient that Σ_d |q_d
// k_jd| stays below 3.4e38 (double: 1.7e308). The sum is taken before scale is applied; where it overflows, the score
// is ±∞ or NaN however small scale is. Then divide query by a power of two and multiply scale by it. The same bits for
// any threads, executor, batch and strides. Throws std::invalid_argument (operator, argument, actual and expected)
// before any work; afterwards only std::bad_alloc and regard::Cancelled.
REGARD_EXPORT void attention_forward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                     const AttentionOutputs& outputs, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

// attention(query, key, value): the same with outputs that own their memory, context and the whole weights.
// Throws std::invalid_argument, with the size needed and the memory available, when the weights do not fit.
template <class T>
struct AttentionResult {
  Tensor<T, 4> context;               // (B, H, L, Dv)
  Tensor<ComputeType<T>, 4> weights;  // (B, H, L, S)
};
template <class T>
REGARD_EXPORT AttentionResult<T> attention_with_weights(TensorView<const T, 4> query, const InputView<4>& key,
                                                        const InputView<4>& value, const AttentionOptions& options = {},
                                                        const Runtime& runtime = {});

// Half-open range of query rows, or of keys, counted from 0.
struct RowRange {
  Index begin;
  Index end;
};
enum class WeightsKind {
  weights,  // exp(score − row_max) / row_sum, 0 at invisible keys
  scores    // soft_cap(scale · q · k) + ALiBi + bias, −∞ at invisible keys; row_max and row_sum are not needed
};
struct WeightsRequest {
  InputView<3> row_max{};            // (B, H, L), as attention_forward wrote it
  InputView<3> row_sum{};            // (B, H, L)
  std::span<const RowRange> rows{};  // empty: all rows; else their concatenation, R rows, may repeat
  WeightsKind kind = WeightsKind::weights;
  std::optional<RowRange> keys{};  // not given: all keys; else columns keys.begin … keys.end − 1 alone
};

// The exact weights (or scores) of chosen rows, columns or tiles, from query, key, row_max and row_sum: the bits that
// attention_forward's own weights have, whichever are asked for.
//   query (B, H, L, D), key (B, Hkv, S, D); writes output (B, H, R, S), or (B, H, R, keys.end − keys.begin). options as
//   in the forward call.
// Throws like attention_forward.
REGARD_EXPORT void attention_weights(const InputView<4>& query, const InputView<4>& key, const WeightsRequest& request,
                                     const OutputView<4>& output, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

// Partial results of attention over chunks of keys, one per chunk, before the division by row_sum:
// accumulator = Σ exp(score − row_max) · value over the chunk's visible keys. Without sinks.
// A mean of values near the largest number of T is finite although their sum is not. Where accumulator is ±∞ or NaN
// the merge reads scaled_accumulator instead: the same sum times kAttentionSumScale, with room for 2⁴⁰ times that
// number. It is optional; without it such a sum stays what it is.
inline constexpr double kAttentionSumScale = 0x1p-40;
struct AttentionPartials {
  InputView<5> accumulator{};         // (N, B, H, L, Dv), all of the type computed with
  InputView<4> row_max{};             // (N, B, H, L), −∞ for a row that sees no key of the chunk
  InputView<4> row_sum{};             // (N, B, H, L)
  InputView<5> scaled_accumulator{};  // (N, B, H, L, Dv), or absent
};
// The same, to write.
struct AttentionPartialOutputs {
  OutputView<5> accumulator{};
  OutputView<4> row_max{};
  OutputView<4> row_sum{};
  OutputView<5> scaled_accumulator{};

  operator AttentionPartials() const { return {accumulator, row_max, row_sum, scaled_accumulator}; }
};

// Chunks of S keys: ⌈S / kAttentionChunkKeys⌉, the N of attention_partials.
constexpr Index attention_num_chunks(Index num_keys) {
  return (num_keys + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
}

// The partials of attention_forward, one per chunk of the keys given. To cut a long key sequence, pass the keys
// from a multiple of kAttentionChunkKeys on, with query_offset (and prefix, key_lengths) less that multiple.
// Throws like attention_forward, and std::invalid_argument for sinks (attention_merge takes them) and for
// packed sequences.
REGARD_EXPORT void attention_partials(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                      const AttentionPartialOutputs& partials, const AttentionOptions& options = {},
                                      const Runtime& runtime = {});

// Merges N partials in key order. With the partials of all chunks in order the result equals
// attention_forward bit for bit (of bfloat16 inputs and a context of bfloat16: with weights_in_float32 the same in both
// calls, true or false). Its error does not grow with N: one weight exp(row_max_n − max) per partial and
// a compensated sum (Neumaier 1974). sinks (H) or empty. outputs.weights must be absent.
REGARD_EXPORT void attention_merge(const AttentionPartials& partials, const InputView<1>& sinks,
                                   const AttentionOutputs& outputs, const Runtime& runtime = {});

// Merges N finished results of disjoint key sets by their log_sum_exp: Σ exp(lse_n − lse) · context_n.
//   contexts (N, B, H, L, Dv), lse (N, B, H, L); writes outputs.context and outputs.lse (the only ones allowed).
// Error at most 4u · (1 + |lse|) · Σ p |v|.
REGARD_EXPORT void attention_merge_lse(const InputView<5>& contexts, const InputView<4>& lse,
                                       const AttentionOutputs& outputs, const Runtime& runtime = {});

}  // namespace regard::inline v0
