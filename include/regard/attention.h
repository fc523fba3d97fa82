// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scaled dot-product attention, forward.
///
/// @code{.unparsed}
/// scores  = soft_cap(scale · query · keyᵀ) + ALiBi + bias      (L, S) per head
/// weights = softmax(scores over the visible keys)              (L, S) per head, rows sum to 1 (without a sink)
/// context = weights · value                                    (L, Dv) per head
/// lse     = row_max + ln(row_sum),  row_max = max score,  row_sum = Σ exp(score − row_max)
/// @endcode
/// - Extents: B batch entries, H query heads, Hkv key/value heads, L queries, S keys, head size D of query and key,
///   head size Dv of value. Query head h reads key/value head `⌊h / (H / Hkv)⌋`.
/// - Types: query, key and value are each float, `bfloat16` or `float16`, or all double. All arithmetic is in the
///   *compute type*: double if query is double, else float. 16-bit elements are converted to it exactly; only context
///   may be rounded, once, to the type of query. For native bfloat16 products, see attention_forward().
/// - Contract: docs/reference/semantics.md. Derivation: docs/derivations/attention.md. Sources: Milakov and
///   Gimelshein, arXiv 1805.02867, algorithm 3 (running maximum and sum); Dao et al., arXiv 2205.14135, algorithm 1
///   (blocks).
///
/// Read next: src/attention/attention_forward.cpp.
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

/// Number of keys in a chunk.
///
/// Keys are processed in blocks, and blocks are grouped into chunks of this number of keys, starting at key 0 (of each
/// packed sequence). If the keys are split at multiples of this number, merging the partial results is bit-identical to
/// one call over all keys (see attention_merge()).
inline constexpr Index kAttentionChunkKeys = 1024;

/// Alignment of query rows with keys.
///
/// The position of query row i is `p = i + query_offset`. The options causal, window, alibi_slopes and prefix are
/// defined in terms of p. Visible keys of a causal call (rows are queries, columns are keys, 1 = visible):
/// @verbatim
///                  top_left      bottom_right
/// L = 3, S = 5     1 0 0 0 0     1 1 1 0 0
///                  1 1 0 0 0     1 1 1 1 0
///                  1 1 1 0 0     1 1 1 1 1
///
/// L = 4, S = 2     1 0           0 0
///                  1 1           0 0
///                  1 1           1 0
///                  1 1           1 1
/// @endverbatim
enum class QueryAlignment {
  /// `query_offset = 0`: the first query is aligned with the first key.
  top_left,
  /// `query_offset = key length − L`, per batch entry or packed sequence: the last query is aligned with the last key.
  bottom_right
};

/// Position of query row 0, in one of four forms.
///
/// - `std::monostate`, the default: no offset is given, and the offset is 0. Without an offset, a call that uses
///   causal, window, alibi_slopes or prefix is rejected if L differs from S (in any packed sequence) or if key_lengths
///   are given.
/// - `QueryAlignment`: 0 for top_left; key length − L, per batch entry or packed sequence, for bottom_right. The key
///   length is the element of key_lengths, or S if key_lengths is not given.
/// - `Index`: one offset for the whole call.
/// - `InputView<1>`: one offset per batch entry or packed sequence, int32 or int64.
///
/// Offsets may be negative. Their magnitude is at most 2⁶⁰.
using QueryOffset = std::variant<std::monostate, QueryAlignment, Index, InputView<1>>;

/// Sliding window: key j is visible to the query at position p only if `p − left ≤ j ≤ p + right`.
///
/// With L = S = 4 (1 = visible):
/// @verbatim
/// left = 1, right = 0     left = 1, right = 1     left = 1, right not set
/// 1 0 0 0                 1 1 0 0                 1 1 1 1
/// 1 1 0 0                 1 1 1 0                 1 1 1 1
/// 0 1 1 0                 0 1 1 1                 0 1 1 1
/// 0 0 1 1                 0 0 1 1                 0 0 1 1
/// @endverbatim
struct Window {
  /// Number of visible keys before p, at least 0. If not set, there is no limit.
  std::optional<Index> left{};
  /// Number of visible keys after p, at least 0. If not set, there is no limit.
  std::optional<Index> right{};
};

/// Options for an attention call. By default, every query attends to every key.
///
/// @code{.unparsed}
/// visible(i, j) = (not causal or j ≤ p or j < prefix[b]) and p − left ≤ j ≤ p + right and j < key_lengths[b]
///                 and segments agree and block_mask and mask            with p = i + query_offset
/// @endcode
///
/// All options can be combined. An absent view means that the option is not given.
/// - Dense options (segments, block_mask, mask, bias) are indexed by row of query and row of key, even if sequences are
///   packed.
/// - Lengths, starts, offsets, prefixes and segments are int32 or int64.
/// - Masks are bool or uint8: 0 is false, any other value is true.
/// - Views do not own memory: the memory that they refer to must stay valid until the call returns.
///
/// In the drawings below, rows are queries, columns are keys, and 1 means visible.
struct AttentionOptions {
  /// Whether the query at position p attends only to keys `j ≤ p` and to the keys before prefix.
  ///
  /// See QueryAlignment for the two common alignments.
  bool causal = false;

  /// Position of query row 0.
  QueryOffset query_offset{};

  /// Sliding window around the position of the query.
  Window window{};

  /// Number of valid keys: (B), or one per packed sequence, each from 0 to the number of keys.
  ///
  /// Keys from this index onward are invisible. For L = 3, S = 4 and a length of 2:
  /// @verbatim
  /// 1 1 0 0
  /// 1 1 0 0
  /// 1 1 0 0
  /// @endverbatim
  InputView<1> key_lengths{};

  /// Row of query at which each of n packed sequences starts, followed by the total: n + 1 entries, the first one 0.
  ///
  /// B must be 1, and query has shape (1, H, total, D). A query attends only to keys of its own sequence, and positions
  /// start at 0 in each sequence. With query_starts = key_starts = {0, 1, 4} and causal:
  /// @verbatim
  /// 1 0 0 0     sequence 0: row 0
  /// 0 1 0 0     sequence 1: rows 1 to 3
  /// 0 1 1 0
  /// 0 1 1 1
  /// @endverbatim
  InputView<1> query_starts{};
  /// Row of key at which each packed sequence starts, followed by the total: n + 1 entries, the first one 0. Give both
  /// starts or neither.
  InputView<1> key_starts{};

  /// Segment of each query, (B, L). A query attends only to keys in its own segment. A query in a negative segment
  /// attends to no key.
  ///
  /// With query_segments = key_segments = {0, 0, 1, −1}:
  /// @verbatim
  /// 1 1 0 0
  /// 1 1 0 0
  /// 0 0 1 0
  /// 0 0 0 0
  /// @endverbatim
  InputView<2> query_segments{};
  /// Segment of each key, (B, S). Keys in a negative segment are invisible. Give both segments or neither.
  InputView<2> key_segments{};

  /// Prefix length of a prefix LM: (B), or one per packed sequence, at least 0. Keys in the prefix are visible even
  /// with causal.
  ///
  /// It overrides causal and no other option. With causal, L = S = 4 and a prefix of 2:
  /// @verbatim
  /// 1 1 0 0
  /// 1 1 0 0
  /// 1 1 1 0
  /// 1 1 1 1
  /// @endverbatim
  InputView<1> prefix{};

  /// Mask of blocks of bq queries by bk keys: (B or 1, H or 1, ⌈L / bq⌉, ⌈S / bk⌉), true = visible.
  ///
  /// With block_size = {2, 2} and L = S = 4:
  /// @verbatim
  /// block_mask     visible
  /// 1 0            1 1 0 0
  /// 1 1            1 1 0 0
  ///                1 1 1 1
  ///                1 1 1 1
  /// @endverbatim
  InputView<4> block_mask{};
  /// Block size (bq, bk) in queries and keys, each at least 1. Required with block_mask, rejected without it.
  std::array<Index, 2> block_size{};

  /// Elementwise mask, (B, H, L, S), true = visible. An axis is broadcast if its extent is 1 or its stride is 0.
  ///
  /// With causal and L = S = 4:
  /// @verbatim
  /// mask        visible
  /// 1 0 1 1     1 0 0 0
  /// 1 0 1 1     1 0 0 0
  /// 1 0 1 1     1 0 1 0
  /// 1 0 1 1     1 0 1 1
  /// @endverbatim
  InputView<4> mask{};

  /// Term added to the scores, broadcast like mask to (B, H, L, S); float, or the type of query.
  InputView<4> bias{};

  /// ALiBi: one slope per query head, (H); float or a 16-bit type, or double if the inputs are
  /// double. Adds `−slope · |j − p|` to the scores.
  InputView<1> alibi_slopes{};

  /// Attention sinks: one score per query head, (H); float or a 16-bit type, or double if the inputs are
  /// double; −∞ = no sink.
  ///
  /// A sink is included in row_max and row_sum, but contributes no value.
  InputView<1> sinks{};

  /// Soft cap c, finite and above 0: each scaled product x is replaced with `c · tanh(x / c)`. If not set, there is no
  /// cap.
  std::optional<double> soft_cap{};

  /// Factor applied to query · keyᵀ: any finite number. If not set, the factor is 1 / √D.
  std::optional<double> scale{};

  /// Dropout probability, from 0 to 1.
  ///
  /// In the product with value, each weight is dropped with this probability and otherwise divided by 1 − dropout.
  /// row_max, row_sum, lse, weights and attention statistics are not affected. Whether a weight is dropped depends only
  /// on this probability, dropout_seed and the weight's indices b, h, i and j, through the Philox4x32-10 generator
  /// (docs/reference/semantics.md, section 1).
  double dropout = 0;
  /// Seed of the dropout generator.
  std::uint64_t dropout_seed = 0;
  /// Batch entry, query head and row of query at which this call starts within the full problem, each at least 0.
  ///
  /// They are added to b, h and i, so that a shard or a micro-batch drops the same weights as the full problem.
  std::array<Index, 3> dropout_first{};

  /// Whether weights stay in float32 for the product with bfloat16 values, instead of being rounded to bfloat16.
  ///
  /// If not set, they stay in float32 if the result (context, gradients, partial results) is float32. Only the
  /// avx512_bf16 instruction set rounds weights, and only if query, key and value are all bfloat16.
  std::optional<bool> weights_in_float32{};
};

/// Hash of the options of a forward call, one word per option.
///
/// attention_forward() writes it. attention_backward() compares it with the hash of its own options, in every build,
/// and throws an InvalidArgument that names the options that differ.
/// - Covered: the shapes of query, key and value, and every option with its contents, except weights_in_float32. A
///   block_mask, mask or bias with more than 1024 elements is represented by a sample of 1024 elements, spread over the
///   whole array.
/// - Not covered: the elements of query, key and value, and element types.
///
/// Options with the same meaning have the same fingerprint in C++, C and Python, whether they are left at their
/// defaults or set explicitly, and whether arrays are dense or broadcast.
struct AttentionFingerprint {
  /// One hash per option. All zeros by default, which means that no forward call has written the fingerprint.
  std::array<std::uint32_t, 16> words{};
  /// Returns whether all words are equal.
  bool operator==(const AttentionFingerprint&) const = default;
};

/// Fingerprint that disables the comparison.
///
/// Use it for a backward call without a matching forward call, for example if row_max and row_sum are merged from
/// partial results and each call covers only some of the keys.
inline constexpr AttentionFingerprint kUncheckedFingerprint = [] {
  AttentionFingerprint fingerprint;
  fingerprint.words.fill(0xffffffff);
  return fingerprint;
}();

/// Views that attention_forward() writes. Only context is required.
///
/// An output must not overlap an input or another output. All outputs are of the compute type (double if query is
/// double, else float), except that context may have the type of query instead.
struct AttentionOutputs {
  /// Context, (B, H, L, Dv).
  OutputView<4> context{};
  /// Largest visible score of each row, (B, H, L), including the sink.
  OutputView<3> row_max{};
  /// `Σ exp(score − row_max)` of each row, (B, H, L), including the sink.
  OutputView<3> row_sum{};
  /// `row_max + ln(row_sum)`, natural logarithm, (B, H, L). Without a sink, −∞ if the row has no visible key.
  OutputView<3> lse{};
  /// Softmax weights, (B, H, L, S), 0 at invisible keys.
  OutputView<4> weights{};
  /// Weight of the sink, `exp(sink − row_max) / row_sum`, (B, H, L).
  OutputView<3> sink_weights{};
  /// Fingerprint of the options, for attention_backward(). Not written if nullptr.
  AttentionFingerprint* fingerprint = nullptr;
};

/// Computes scaled dot-product attention.
///
/// @code{.unparsed}
/// context = softmax(soft_cap(scale · query · keyᵀ) + ALiBi + bias over the visible keys) · value
/// @endcode
///
/// @param query    (B, H, L, D), any strides; float, bfloat16, float16 or double.
/// @param key      (B, Hkv, S, D), any strides; double if query is double, else float, bfloat16 or float16.
/// @param value    (B, Hkv, S, Dv), any strides; types as for key.
/// @param outputs  Views to write.
/// @param options  Visibility, bias, scale and dropout.
/// @param runtime  Threads, scratch memory, cancellation and progress.
///
/// Writes every view given in outputs. The context of a query with no visible key is +0.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. The message names the operator and the
///                          argument, and states its value and the requirement.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The results are bit-identical for any number of threads, any executor, any batch size and any strides.
/// @par
/// With 16-bit inputs, all results are bit-identical to those for the same inputs converted to float, up to the final
/// rounding of context. The exception is the avx512_bf16 instruction set with bfloat16 query and key:
/// - It sums their products in pairs, within the same error bound, and treats subnormal numbers as zero.
/// - If value is bfloat16 as well, it rounds weights to bfloat16 for the product with value. It does not do so if
///   weights_in_float32 is true, which is the default if context is float.
///
/// @par Error
/// With u = 2⁻²⁴ (double: 2⁻⁵³), the error of context is at most
/// @code{.unparsed}
/// u · (32 + 4√D · max_j(|scale| Σ_d |q_d k_jd| + |bias_j| + |slope · distance|)) · Σ_j p_j |v_j|
/// @endcode
/// - Rounding weights to bfloat16 adds `2⁻⁸ Σ_j p_j |v_j|`.
/// - A 16-bit context is the float context rounded to nearest even. This adds at most `2⁻⁸ |context|` for bfloat16 and
///   `2⁻¹¹ |context|` for float16 where the result is a normal number.
/// - The bound holds as long as every partial sum of `Σ_d q_d k_jd` is finite. It is sufficient that `Σ_d |q_d k_jd|`
///   stays below 3.4e38 (double: 1.7e308).
/// - The sum is computed before scale is applied. If it overflows, the score is ±∞ or NaN, regardless of how small
///   scale is. To avoid this, divide query by a power of two and multiply scale by it.
///
/// @par Example
/// @code{.cpp}
/// attention_forward(query, key, value, {.context = context}, {.causal = true});
/// @endcode
REGARD_EXPORT void attention_forward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                     const AttentionOutputs& outputs, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

/// Result of attention_with_weights(), which owns its memory.
///
/// @tparam T  Element type of query and context.
template <class T>
struct AttentionResult {
  /// Context, (B, H, L, Dv).
  Tensor<T, 4> context;
  /// Softmax weights, (B, H, L, S).
  Tensor<ComputeType<T>, 4> weights;
};

/// Computes attention and returns the context and the full weights.
///
/// @tparam T       float, double, bfloat16 or float16.
/// @param query    (B, H, L, D), any strides.
/// @param key      (B, Hkv, S, D), as in attention_forward().
/// @param value    (B, Hkv, S, Dv), as in attention_forward().
/// @param options  Visibility, bias, scale and dropout.
/// @param runtime  Threads, scratch memory, cancellation and progress.
/// @return Context and weights, bit-identical to those of attention_forward().
/// @throws InvalidArgument  as attention_forward() does, and if the weights do not fit in the available memory. The
///                          message states the required and the available size.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const auto [context, weights] = attention_with_weights<float>(query, key, value, {.causal = true});
/// @endcode
template <class T>
REGARD_EXPORT AttentionResult<T> attention_with_weights(TensorView<const T, 4> query, const InputView<4>& key,
                                                        const InputView<4>& value, const AttentionOptions& options = {},
                                                        const Runtime& runtime = {});

/// Half-open range of query rows or of keys: `begin` … `end − 1`, numbered from 0.
struct RowRange {
  /// First row or key.
  Index begin;
  /// One past the last row or key.
  Index end;
};

/// Kind of values that attention_weights() computes.
enum class WeightsKind {
  /// `exp(score − row_max) / row_sum`; 0 at invisible keys.
  weights,
  /// `soft_cap(scale · q · k) + ALiBi + bias`; −∞ at invisible keys. row_max and row_sum are not needed.
  scores
};

/// Selects the weights that attention_weights() computes, and provides the softmax state from which they are computed.
struct WeightsRequest {
  /// Largest score of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_max{};
  /// Sum of exponentials of each row, (B, H, L), as written by attention_forward().
  InputView<3> row_sum{};
  /// Query rows to compute: the concatenation of these ranges, R rows in total. Rows may be repeated. If empty, all
  /// rows are computed. The memory that the span refers to must stay valid until the call returns.
  std::span<const RowRange> rows{};
  /// Weights or scores.
  WeightsKind kind = WeightsKind::weights;
  /// Keys to compute: columns `keys.begin` … `keys.end − 1` only. If not set, all keys are computed.
  std::optional<RowRange> keys{};
};

/// Computes the exact weights (or scores) of selected rows, columns or tiles.
///
/// @param query    (B, H, L, D), as in the forward call.
/// @param key      (B, Hkv, S, D), as in the forward call.
/// @param request  Rows, keys, kind and softmax state.
/// @param output   View to write, of the compute type.
/// @param options  As in the forward call.
/// @param runtime  Threads, scratch memory, cancellation and progress.
///
/// Writes output: (B, H, R, S), or (B, H, R, `keys.end − keys.begin`).
///
/// @throws InvalidArgument  as attention_forward() does.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// The result is bit-identical to the weights that attention_forward() writes, for any selection of rows and keys.
///
/// @par Example
/// @code{.cpp}
/// const RowRange last_row[] = {{L - 1, L}};
/// attention_weights(query, key, {.row_max = row_max, .row_sum = row_sum, .rows = last_row}, output, {.causal = true});
/// @endcode
REGARD_EXPORT void attention_weights(const InputView<4>& query, const InputView<4>& key, const WeightsRequest& request,
                                     const OutputView<4>& output, const AttentionOptions& options = {},
                                     const Runtime& runtime = {});

/// Factor by which the sums in AttentionPartials::scaled_accumulator are scaled.
inline constexpr double kAttentionSumScale = 0x1p-40;

/// Partial results of attention, one per chunk of keys, before the division by row_sum and without sinks.
///
/// @code{.unparsed}
/// accumulator        = Σ exp(score − row_max) · value      over the visible keys of the chunk
/// scaled_accumulator = kAttentionSumScale · the same sum
/// @endcode
///
/// All views are of the compute type. If values are near the largest finite value of that type, their weighted mean is
/// finite even where this sum overflows. Where accumulator is ±∞ or NaN, the merge therefore reads scaled_accumulator,
/// which can represent sums of up to 2⁴⁰ times that value. It is optional; without it, such a sum stays ±∞ or NaN.
struct AttentionPartials {
  /// Sums, (N, B, H, L, Dv).
  InputView<5> accumulator{};
  /// Largest score of each row in the chunk, (N, B, H, L); −∞ if the row has no visible key in the chunk.
  InputView<4> row_max{};
  /// Sum of exponentials of each row in the chunk, (N, B, H, L).
  InputView<4> row_sum{};
  /// Scaled sums, (N, B, H, L, Dv), or absent.
  InputView<5> scaled_accumulator{};
};

/// Views that attention_partials() writes. The members correspond to those of AttentionPartials.
struct AttentionPartialOutputs {
  /// Sums, (N, B, H, L, Dv).
  OutputView<5> accumulator{};
  /// Largest score of each row in the chunk, (N, B, H, L).
  OutputView<4> row_max{};
  /// Sum of exponentials of each row in the chunk, (N, B, H, L).
  OutputView<4> row_sum{};
  /// Scaled sums, (N, B, H, L, Dv), or absent.
  OutputView<5> scaled_accumulator{};

  /// Returns the same views for reading, as attention_merge() takes them.
  operator AttentionPartials() const { return {accumulator, row_max, row_sum, scaled_accumulator}; }
};

/// Returns the number of chunks, which is the extent N of the partial results.
///
/// @param num_keys  Number of keys S.
/// @return `⌈S / kAttentionChunkKeys⌉`.
constexpr Index attention_num_chunks(Index num_keys) {
  return (num_keys + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
}

/// Computes the partial results of attention_forward(), one per chunk of the given keys.
///
/// To split a long key sequence, cut it at multiples of kAttentionChunkKeys and pass one piece per call. Pass
/// query_offset as a number, and subtract the index of the piece's first key from query_offset, prefix and key_lengths.
/// Clamp prefix to at least 0, and key_lengths to the range from 0 to the number of keys in the piece.
///
/// @param query     (B, H, L, D), as in attention_forward().
/// @param key       (B, Hkv, S, D), the keys of the piece.
/// @param value     (B, Hkv, S, Dv), the values of the piece.
/// @param partials  Views to write, with N = attention_num_chunks(S). Only scaled_accumulator is optional.
/// @param options   Visibility, bias and scale. Pass sinks to attention_merge() instead.
/// @param runtime   Threads, scratch memory and cancellation.
///
/// Writes every view given in partials.
///
/// @throws InvalidArgument  as attention_forward() does, and if sinks, dropout or packed sequences are given.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Example
/// @code{.cpp}
/// attention_partials(query, key, value, partials, {.causal = true, .query_offset = position - first_key});
/// @endcode
REGARD_EXPORT void attention_partials(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                      const AttentionPartialOutputs& partials, const AttentionOptions& options = {},
                                      const Runtime& runtime = {});

/// Merges N partial results in key order.
///
/// @param partials  Partial results, as written by attention_partials().
/// @param sinks     One score per query head, (H), or absent.
/// @param outputs   Views to write, all of the compute type; weights and fingerprint must be absent.
/// @param runtime   Threads, scratch memory and cancellation.
///
/// Writes every view given in outputs.
///
/// @throws InvalidArgument  as attention_forward() does.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Reproducibility
/// Given the partial results of all chunks in order, the result is bit-identical to that of attention_forward().
/// - If sums may overflow, this requires scaled_accumulator.
/// - If query, key and value are bfloat16 and attention_forward() writes a bfloat16 context, this requires the same
///   explicit weights_in_float32, true or false, in attention_partials() and attention_forward(). The merged context is
///   then the context before attention_forward() rounds it to bfloat16.
///
/// @par Error
/// The error does not grow with N: each partial result is multiplied by one factor `exp(row_max_n − max)`, and the
/// products are added with compensated summation (Neumaier 1974).
///
/// @par Example
/// @code{.cpp}
/// attention_merge(partials, {}, {.context = context, .lse = lse});  // without sinks
/// @endcode
REGARD_EXPORT void attention_merge(const AttentionPartials& partials, const InputView<1>& sinks,
                                   const AttentionOutputs& outputs, const Runtime& runtime = {});

/// Merges the contexts of N attention calls over disjoint sets of keys, using their lse values.
///
/// @code{.unparsed}
/// context = Σ_n exp(lse_n − lse) · context_n
/// @endcode
///
/// @param contexts  (N, B, H, L, Dv), of the compute type.
/// @param lse       (N, B, H, L), of the compute type.
/// @param outputs   Views to write; only context and lse are allowed.
/// @param runtime   Threads, scratch memory and cancellation.
///
/// Writes outputs.context and, if given, outputs.lse.
///
/// @throws InvalidArgument  as attention_forward() does.
/// @throws std::bad_alloc   as attention_forward() does.
/// @throws Cancelled        as attention_forward() does.
///
/// @par Error
/// The merge adds an error of at most `4u · (1 + |lse|) · Σ p |v|`.
///
/// @par Example
/// @code{.cpp}
/// attention_merge_lse(contexts, lse, {.context = context});
/// @endcode
REGARD_EXPORT void attention_merge_lse(const InputView<5>& contexts, const InputView<4>& lse,
                                       const AttentionOutputs& outputs, const Runtime& runtime = {});

}  // namespace regard::inline v0
