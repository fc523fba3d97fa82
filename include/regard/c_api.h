// SPDX-License-Identifier: Apache-2.0
/// @file
/// The C interface (C99) on strided arrays: attention forward and backward, its weights, statistics and partial
/// results, KV caches and decoding, linear layers, and plans of these calls. Callers can stop calls, and supply threads
/// and memory.
///
/// @code{.c}
/// regard_attention_options options;
/// regard_attention_options_init(&options, sizeof options);
/// options.causal = 1;
/// if (regard_attention_forward(&q, &k, &v, &outputs, &options, NULL) != REGARD_OK) puts(regard_last_error());
/// @endcode
///
/// Formulas, extents (B H Hkv L S D Dv) and options are as in the C++ headers, which use the same names.
///
/// Within a minor version, the binary interface is stable. Structs that begin with `struct_size` may grow at their end,
/// so zero-initialize them; the values of enumerators never change. Functions neither throw nor print. All functions
/// may be called from any thread, but no thread may use an object that another thread has freed.
///
/// Contract: docs/reference/semantics.md. Read next: src/c_api/attention.cpp, tests/c_api_test.c.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "regard/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The result of a call. Every function that returns int32_t returns one of these values: 0, or an ErrorCode of
/// error.h.
enum regard_status {
  REGARD_OK = 0,                ///< Success.
  REGARD_INVALID_ARGUMENT = 1,  ///< An argument is invalid. Nothing was written.
  REGARD_OUT_OF_MEMORY = 2,     ///< Memory could not be allocated. The outputs of an operator are unspecified.
  REGARD_CANCELLED = 3,         ///< A stop was requested. The outputs of an operator are unspecified.
  REGARD_INTERNAL = 4,          ///< Any other error. The outputs of an operator are unspecified.
  REGARD_OUT_OF_PAGES = 5,      ///< The cache has too few free pages. It is unchanged.
  REGARD_CACHE_IN_USE = 6,      ///< Another thread is using the cache. It is unchanged.
  REGARD_DATA_ERROR = 7,        ///< The content of a block of memory is not valid.
  REGARD_RANK_FAILED = 8        ///< Another rank of a distributed call has failed; the C interface has no such calls.
};

/// Element types. The values match those of ElementType in types.h.
enum regard_dtype {
  REGARD_F32 = 1,   ///< float
  REGARD_F64 = 2,   ///< double
  REGARD_BOOL = 3,  ///< One byte: 0 is false, any other value is true.
  REGARD_I32 = 4,   ///< int32_t
  REGARD_I64 = 5,   ///< int64_t
  REGARD_BF16 = 6,  ///< bfloat16: the upper half of a float, two bytes, stored as a uint16_t.
  REGARD_F16 = 7,   ///< IEEE 754 binary16: two bytes.
  REGARD_I8 = 8,    ///< int8_t
  REGARD_U8 = 9     ///< uint8_t
};

/// A strided array to read.
///
/// @code{.unparsed}
/// element (i, j, …) is at data[i · strides[0] + j · strides[1] + …]
/// @endcode
///
/// An array whose fields are all zero is treated as not given. It is an error if `data` is NULL and the shape is not
/// empty. Strides are arbitrary, and elements may be misaligned, including those of arrays in options.
///
/// In this header, `(B, H, L, D)` is a shape; f32, f64, bf16, f16, i32, i64, i8, u8 and bool are the enumerators of
/// `regard_dtype`; and T is the compute type: f64 if query is f64, else f32.
typedef struct regard_input {
  const void* data;        ///< The address of element (0, 0, …).
  int32_t dtype;           ///< The element type, a `regard_dtype`.
  int32_t rank;            ///< The number of axes.
  const int64_t* shape;    ///< [rank] The extent of each axis.
  const int64_t* strides;  ///< [rank] In elements, not bytes; may be 0 or negative. NULL for a dense row-major array.
} regard_input;

/// A strided array to write. It must not overlap an input or another output. The fields are as in regard_input.
typedef struct regard_output {
  void* data;              ///< The address of element (0, 0, …).
  int32_t dtype;           ///< The element type, a `regard_dtype`.
  int32_t rank;            ///< The number of axes.
  const int64_t* shape;    ///< [rank] The extent of each axis.
  const int64_t* strides;  ///< [rank] In elements, not bytes. NULL for a dense row-major array.
} regard_output;

/// Form in which the offset of the query rows is given. Query row i has position p = i + offset.
enum regard_query_offset_kind {
  REGARD_OFFSET_NOT_GIVEN = 0,     ///< The offset is 0. Options that use positions require L = S and no key lengths.
  REGARD_OFFSET_TOP_LEFT = 1,      ///< The offset is 0.
  REGARD_OFFSET_BOTTOM_RIGHT = 2,  ///< Key length − L, for each batch entry or packed sequence.
  REGARD_OFFSET_VALUE = 3,         ///< The value of `query_offset`.
  REGARD_OFFSET_VALUES = 4         ///< The elements of `query_offsets`.
};

/// Options for attention. All fields except `struct_size` default to zero: no mask, no bias, scale 1 / √D.
///
/// All options can be combined: key j is visible to query row i if every option allows it (AttentionOptions in
/// attention.h). The drawings have a row for each query and a column for each key; 1 means visible.
typedef struct regard_attention_options {
  size_t struct_size;  ///< sizeof(regard_attention_options) in the caller's build.
  /// If nonzero, key j is visible only if j ≤ p or if it is in the prefix. The alignment follows from the query offset:
  ///
  /// @verbatim
  ///  top-left     bottom-right
  ///  1 0 0 0 0    1 1 1 0 0
  ///  1 1 0 0 0    1 1 1 1 0
  ///  1 1 1 0 0    1 1 1 1 1
  /// @endverbatim
  int32_t causal;
  int32_t query_offset_kind;   ///< A `regard_query_offset_kind`.
  int64_t query_offset;        ///< Used with REGARD_OFFSET_VALUE; may be negative.
  regard_input query_offsets;  ///< Used with REGARD_OFFSET_VALUES: i32 or i64 (B), or one for each packed sequence.
  int32_t has_window_left;     ///< If 0, the window has no limit on the left, and `window_left` is not used.
  int32_t has_window_right;    ///< If 0, the window has no limit on the right, and `window_right` is not used.
  /// Key j is visible only if j ≥ p − window_left. At least 0. Here window_left is 1 and window_right is 0, a window of
  /// 2 keys:
  ///
  /// @verbatim
  ///  1 0 0 0
  ///  1 1 0 0
  ///  0 1 1 0
  ///  0 0 1 1
  /// @endverbatim
  int64_t window_left;
  int64_t window_right;  ///< Key j is visible only if j ≤ p + window_right. At least 0.
  /// i32 or i64 (B), or one for each packed sequence: keys from this index onward are not visible. With a length of 3:
  ///
  /// @verbatim
  ///  1 1 1 0
  ///  1 1 1 0
  ///  1 1 1 0
  /// @endverbatim
  regard_input key_lengths;
  /// i32 or i64 (n + 1): the row of query at which each of n packed sequences starts, followed by the total. B must be
  /// 1, and query has shape (1, H, total, D). A query attends only to keys in its own sequence. Here both starts are
  /// {0, 2, 4}:
  ///
  /// @verbatim
  ///  1 1 0 0
  ///  1 1 0 0
  ///  0 0 1 1
  ///  0 0 1 1
  /// @endverbatim
  regard_input query_starts;
  regard_input key_starts;  ///< i32 or i64 (n + 1): likewise for key. Give both starts or neither.
  /// i32 or i64 (B, L): a query attends only to keys in its own segment. A query in a negative segment attends to no
  /// key. Here query_segments and key_segments are {0, 0, 1, −1}:
  ///
  /// @verbatim
  ///  1 1 0 0
  ///  1 1 0 0
  ///  0 0 1 0
  ///  0 0 0 0
  /// @endverbatim
  regard_input query_segments;
  regard_input key_segments;  ///< i32 or i64 (B, S): keys in a negative segment are not visible. Give both or neither.
  /// i32 or i64 (B), or one for each packed sequence: the prefix lengths of a prefix LM. Keys in the prefix are visible
  /// even if `causal` is set. Here the prefix is 2:
  ///
  /// @verbatim
  ///  1 1 0 0
  ///  1 1 0 0
  ///  1 1 1 0
  ///  1 1 1 1
  /// @endverbatim
  regard_input prefix;
  /// bool or u8 (B|1, H|1, ⌈L / block_size[0]⌉, ⌈S / block_size[1]⌉): true means visible. Here block_size is {2, 2},
  /// and block_mask is {{1, 0}, {1, 1}}:
  ///
  /// @verbatim
  ///  1 1 0 0
  ///  1 1 0 0
  ///  1 1 1 1
  ///  1 1 1 1
  /// @endverbatim
  regard_input block_mask;
  int64_t block_size[2];      ///< The numbers of queries and keys per block. Only with `block_mask`.
  regard_input mask;          ///< bool or u8, broadcastable to (B, H, L, S): true means visible.
  regard_input bias;          ///< f32 or the type of query, broadcastable to (B, H, L, S): added to the scores.
  regard_input alibi_slopes;  ///< T (H): adds −slope · |j − p| to the scores.
  regard_input sinks;         ///< T (H): a score that is included in the softmax but has no value. −∞ means no sink.
  int32_t has_soft_cap;       ///< If 0, there is no soft cap, and `soft_cap` is not used.
  int32_t has_scale;          ///< If 0, the scale is 1 / √D, and `scale` is not used.
  double soft_cap;            ///< c, finite and above 0: each scaled product x becomes c · tanh(x / c).
  double scale;               ///< Any finite number.
  /// Weights for the product with a bf16 value: 1 keeps them in f32, −1 rounds them to bf16, and 0 keeps them in f32 if
  /// the result is f32.
  int64_t weights_in_float32;
  double dropout;            ///< The probability, from 0 to 1, of dropping a weight in the product with value.
  uint64_t dropout_seed;     ///< Seed of the dropout generator.
  int64_t dropout_first[3];  ///< Batch entry, head and row at which this call starts within the full problem.
} regard_attention_options;

/// The size of a fingerprint (AttentionFingerprint in attention.h): a hash of the options of a forward call, which
/// regard_attention_backward() compares with the hash of its own options.
enum {
  REGARD_FINGERPRINT_WORDS = 16  ///< The number of uint32_t words.
};

/// The outputs of attention: `context`, which is required, and any others that are given. All are of type T; `context`
/// may also have the type of query.
typedef struct regard_attention_outputs {
  size_t struct_size;          ///< sizeof(regard_attention_outputs)
  regard_output context;       ///< (B, H, L, Dv)
  regard_output row_max;       ///< (B, H, L) The largest visible score of each row.
  regard_output row_sum;       ///< (B, H, L) Σ exp(score − row_max)
  regard_output lse;           ///< (B, H, L) row_max + ln(row_sum)
  regard_output weights;       ///< (B, H, L, S)
  regard_output sink_weights;  ///< (B, H, L) The weight of the sink.
  uint32_t* fingerprint;       ///< [REGARD_FINGERPRINT_WORDS], or NULL.
} regard_attention_outputs;

/// Results of the forward pass, and the gradients of the loss with respect to its outputs. All except `grad_lse` are
/// required.
typedef struct regard_attention_saved {
  size_t struct_size;         ///< sizeof(regard_attention_saved)
  regard_input context;       ///< (B, H, L, Dv), as written by the forward call: f64, or f32, bf16 or f16.
  regard_input row_max;       ///< T (B, H, L), as written by the forward call.
  regard_input row_sum;       ///< T (B, H, L), as for `row_max`.
  regard_input grad_context;  ///< (B, H, L, Dv): ∂loss / ∂context; f64, or f32, bf16 or f16.
  regard_input grad_lse;      ///< T (B, H, L): ∂loss / ∂lse.
  /// [REGARD_FINGERPRINT_WORDS], as written by the forward call. If all bits are set, no comparison is made.
  const uint32_t* fingerprint;
} regard_attention_saved;

/// Flags for gradients that are accumulated into their arrays instead of overwriting their contents. Combine flags with
/// bitwise OR.
enum regard_gradient {
  REGARD_GRAD_QUERY = 1,   ///< grad_query
  REGARD_GRAD_KEY = 2,     ///< grad_key
  REGARD_GRAD_VALUE = 4,   ///< grad_value
  REGARD_GRAD_BIAS = 8,    ///< grad_bias
  REGARD_GRAD_SINKS = 16,  ///< grad_sinks
  REGARD_GRAD_INPUT = 32,  ///< grad_input
  REGARD_GRAD_WEIGHT = 64  ///< grad_weight
};

/// The gradients that regard_attention_backward() writes, if given. The first three have the same type: T or the type
/// of query.
typedef struct regard_attention_gradients {
  size_t struct_size;        ///< sizeof(regard_attention_gradients)
  regard_output grad_query;  ///< (B, H, L, D)
  regard_output grad_key;    ///< (B, Hkv, S, D)
  regard_output grad_value;  ///< (B, Hkv, S, Dv)
  regard_output grad_bias;   ///< T. Each extent is that of (B, H, L, S), or 1 for the sum over that axis.
  regard_output grad_sinks;  ///< T (H)
  int64_t accumulate;        ///< A combination of `regard_gradient` flags for the five gradients above.
} regard_attention_gradients;

/// The kind of values that regard_attention_weights() computes.
enum regard_weights_kind {
  REGARD_WEIGHTS = 0,  ///< The softmax weights, 0 where a key is not visible.
  REGARD_SCORES = 1    ///< The scores before softmax, −∞ where a key is not visible.
};

/// Selects the weights or scores that regard_attention_weights() computes.
typedef struct regard_weights_request {
  size_t struct_size;    ///< sizeof(regard_weights_request)
  regard_input row_max;  ///< T (B, H, L), as written by regard_attention_forward(). Not needed for scores.
  regard_input row_sum;  ///< T (B, H, L), as for `row_max`.
  regard_input rows;     ///< i64 (n, 2): half-open ranges of query rows. If not given, all rows are computed.
  int64_t kind;          ///< A `regard_weights_kind`.
} regard_weights_request;

/// The origin from which `regard_attention_statistics::chosen_ranges` are counted.
enum regard_chosen_origin {
  REGARD_FROM_KEY_ZERO = 0,  ///< Key 0.
  REGARD_FROM_POSITION = 1   ///< The position of the row.
};

/// Attention statistics, computed in the same pass as attention. Each output is written if given. Key indices are
/// counted from the first key of each packed sequence.
typedef struct regard_attention_statistics {
  size_t struct_size;                 ///< sizeof(regard_attention_statistics)
  regard_input chosen_keys;           ///< i32 or i64 (n), distinct, at least 0.
  regard_output top_keys;             ///< i64 (B, H, L, k), 1 ≤ k ≤ 63, by decreasing weight, then by key. Missing: −1.
  regard_output top_weights;          ///< T (B, H, L, k): the weights of `top_keys`. Missing: 0.
  regard_output entropy;              ///< T (B, H, L) The entropy of the weights, in nats.
  regard_output largest_weight;       ///< T (B, H, L) The largest weight of each row.
  regard_output chosen_weight;        ///< T (B, H, L) The sum of the weights of the chosen keys.
  regard_output mean_distance;        ///< T (B, H, L) Σ weight · |p − j|
  regard_output head_entropy;         ///< T (B, H) The mean of `entropy` over the rows that have a visible key.
  regard_output head_largest_weight;  ///< T (B, H) The mean of `largest_weight` over the same rows.
  regard_output head_chosen_weight;   ///< T (B, H) The mean of `chosen_weight` over the same rows.
  regard_output head_mean_distance;   ///< T (B, H) The mean of `mean_distance` over the same rows.
  regard_input chosen_ranges;         ///< i32 or i64 (B|1, L|1, 2): begin, end of each row, instead of `chosen_keys`.
  int64_t chosen_origin;              ///< A `regard_chosen_origin`: the origin of `chosen_ranges`.
} regard_attention_statistics;

/// The contents of a cell of a pooled map.
enum regard_map_cells {
  REGARD_MEANS = 0,  ///< The mean of the weights in the cell, including the zeros of keys that are not visible.
  REGARD_SUMS = 1    ///< The sum of the weights in the cell.
};

/// The softmax state for regard_attention_columns(), and the kind of cells.
typedef struct regard_columns_request {
  size_t struct_size;    ///< sizeof(regard_columns_request)
  regard_input row_max;  ///< T (B, H, L), as written by regard_attention_forward().
  regard_input row_sum;  ///< T (B, H, L), as for `row_max`.
  int64_t cells;         ///< A `regard_map_cells`.
} regard_columns_request;

/// The results that regard_attention_columns() writes, if given.
typedef struct regard_columns_outputs {
  size_t struct_size;        ///< sizeof(regard_columns_outputs)
  regard_output key_mass;    ///< T (B, H, S) The sum of each key's weights over the rows.
  regard_output pooled_map;  ///< T (B, H, Ga, Gb), 1 ≤ Ga ≤ L, 1 ≤ Gb ≤ S
} regard_columns_outputs;

/// The plan of a call (a dry run). Strings are NUL-terminated and truncated to fit.
typedef struct regard_plan {
  size_t struct_size;        ///< sizeof(regard_plan), set by the caller. The call writes the rest.
  uint64_t workspace_bytes;  ///< The peak size of the scratch memory of the call, in bytes.
  double operations;         ///< The number of useful floating-point operations.
  double bytes;              ///< The size of inputs and outputs in bytes, each counted once.
  int64_t num_threads;       ///< The maximum number of threads.
  char instruction_set[32];  ///< The active instruction set.
  char why[224];             ///< The reason why this instruction set is active.
  char strategy[1024];       ///< The code path and the reason for its choice; one line for each operator.
} regard_plan;

/// A stop object, with which one thread can stop calls on other threads.
///
/// Opaque. Functions whose names end in `_create` or `_open` create an object of an opaque type and return it through
/// their last argument. If they fail, they write nothing. The function for that type whose name ends in `_free` frees
/// the object.
typedef struct regard_stop regard_stop;

/// Execution settings of a call: threads, scratch memory and cancellation. All fields except `struct_size` default to
/// zero. No field affects the bits of any result.
typedef struct regard_runtime {
  size_t struct_size;   ///< sizeof(regard_runtime)
  int64_t num_threads;  ///< The maximum number of threads. If 0, the default number is used.
  /// If not NULL, the call checks its arguments and writes this plan, but computes nothing and writes no array.
  regard_plan* plan;
  const regard_stop* stop;  ///< If not NULL, the call returns REGARD_CANCELLED within 20 ms of a stop request.
  /// Runs the tasks of the call. If NULL, the thread pool of the library runs them. Otherwise, the function must call
  /// task(task_data, i) for i = 0 … count − 1, each exactly once, on any threads and in any order, and return when all
  /// calls are done. `count` is at most `num_threads` or, if that is 0, at most the default number, regardless of the
  /// size of the caller's thread pool.
  void (*executor)(void* executor_data, int64_t count, void (*task)(void* task_data, int64_t i), void* task_data);
  void* executor_data;  ///< The first argument of `executor`.
  /// Allocates `num_bytes` bytes, aligned to `alignment`, a power of 2. Returns NULL on failure.
  ///
  /// All scratch memory is allocated through this function. Give both `allocate` and `deallocate`, or neither. Several
  /// threads may call it concurrently.
  void* (*allocate)(void* workspace_data, size_t num_bytes, size_t alignment);
  /// Frees memory that `allocate` returned for the same size and alignment. Several threads may call it concurrently.
  void (*deallocate)(void* workspace_data, void* memory, size_t num_bytes, size_t alignment);
  void* workspace_data;  ///< The first argument of `allocate` and `deallocate`.
} regard_runtime;

/// Creates a stop object. No stop is requested yet.
///
/// @param stop  Receives the stop object, to be freed with regard_stop_free(). Not written if the call fails.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_stop_create(regard_stop** stop);
/// Frees a stop object.
///
/// @param stop  The stop object. If NULL, the call has no effect.
REGARD_EXPORT void regard_stop_free(regard_stop* stop);
/// Stops all current and future calls that use a stop object. This function may be called while these calls run.
///
/// @param stop  The stop object. If NULL, the call has no effect.
REGARD_EXPORT void regard_stop_request(regard_stop* stop);

/// Returns the version of the library.
///
/// @return The version, for example `"0.1.0"`.
REGARD_EXPORT const char* regard_version(void);

/// Returns the error message of the last call that failed on this thread.
///
/// @return The message, or `""` if no call on this thread has failed. It is valid until the next call that fails on
///         this thread.
REGARD_EXPORT const char* regard_last_error(void);

/// Sets every option to its default, and `struct_size` to the given value.
///
/// @param options      The options to write.
/// @param struct_size  sizeof(regard_attention_options) in the caller's build.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_options_init(regard_attention_options* options, size_t struct_size);

/// Computes attention, bit-identical to attention_forward() in attention.h.
///
/// @code{.unparsed}
/// scores  = soft_cap(scale · query · keyᵀ) + ALiBi + bias
/// context = softmax(scores over the visible keys) · value
/// @endcode
///
/// @param query    (B, H, L, D). query, key and value are all f64, or each is f32, bf16 or f16.
/// @param key      (B, Hkv, S, D)
/// @param value    (B, Hkv, S, Dv)
/// @param outputs  The arrays to write.
/// @param options  The options, or NULL for the defaults.
/// @param runtime  Execution settings, or NULL for the defaults.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_forward(const regard_input* query, const regard_input* key,
                                               const regard_input* value, const regard_attention_outputs* outputs,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/// Computes the exact weights or scores of selected rows, as attention_weights() in attention.h does.
///
/// @param query    (B, H, L, D), as in the forward call.
/// @param key      (B, Hkv, S, D), as in the forward call.
/// @param request  Rows to compute, kind of values and softmax state.
/// @param output   Written: T (B, H, R, S), the R rows in the order of `request->rows`.
/// @param options  The options of the forward call, or NULL.
/// @param runtime  Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_weights(const regard_input* query, const regard_input* key,
                                               const regard_weights_request* request, const regard_output* output,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/// Computes the gradients of regard_attention_forward() for the same arguments, as attention_backward() in
/// attention_backward.h does.
///
/// @param query      (B, H, L, D), as in the forward call.
/// @param key        (B, Hkv, S, D), as in the forward call.
/// @param value      (B, Hkv, S, Dv), as in the forward call.
/// @param saved      Results of the forward call, and the gradients of its outputs.
/// @param gradients  The arrays to write or to add to.
/// @param options    The options of the forward call, or NULL.
/// @param runtime    Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_backward(const regard_input* query, const regard_input* key,
                                                const regard_input* value, const regard_attention_saved* saved,
                                                const regard_attention_gradients* gradients,
                                                const regard_attention_options* options, const regard_runtime* runtime);

/// Computes attention and, in the same pass, statistics of its rows, as attention_with_statistics() in
/// attention_statistics.h does.
///
/// @param query       (B, H, L, D), as for regard_attention_forward().
/// @param key         (B, Hkv, S, D)
/// @param value       (B, Hkv, S, Dv)
/// @param outputs     The arrays to write.
/// @param statistics  The statistics to compute, and the arrays to write them to.
/// @param options     The options, or NULL for the defaults.
/// @param runtime     Execution settings, or NULL for the defaults.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_with_statistics(const regard_input* query, const regard_input* key,
                                                       const regard_input* value,
                                                       const regard_attention_outputs* outputs,
                                                       const regard_attention_statistics* statistics,
                                                       const regard_attention_options* options,
                                                       const regard_runtime* runtime);

/// Computes the mass of each key and a pooled map of the weights without storing the weights, as attention_columns() in
/// attention_statistics.h does.
///
/// @param query    (B, H, L, D), as in the forward call.
/// @param key      (B, Hkv, S, D), as in the forward call.
/// @param request  The softmax state of the forward call, and the kind of cells of the map.
/// @param outputs  The arrays to write.
/// @param options  The options of the forward call, or NULL.
/// @param runtime  Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_columns(const regard_input* query, const regard_input* key,
                                               const regard_columns_request* request,
                                               const regard_columns_outputs* outputs,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/// Computes a linear layer: output = input · weight + bias.
///
/// All arrays are f32, all are f64, or all are bf16; in the last case output may also be f32.
///
/// @param input    (R, I)
/// @param weight   (I, O)
/// @param bias     (O), or NULL.
/// @param output   Written: (R, O).
/// @param runtime  Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_linear_forward(const regard_input* input, const regard_input* weight,
                                            const regard_input* bias, const regard_output* output,
                                            const regard_runtime* runtime);

/// The gradients that regard_linear_backward() writes, if given. All are f32, all are f64, or all are bf16.
typedef struct regard_linear_gradients {
  size_t struct_size;         ///< sizeof(regard_linear_gradients)
  regard_output grad_input;   ///< (R, I)
  regard_output grad_weight;  ///< (I, O)
  regard_output grad_bias;    ///< (O)
  int64_t accumulate;         ///< A combination of `regard_gradient` flags for the three gradients above.
} regard_linear_gradients;

/// Computes the gradients of a linear layer, as linear_backward() in linear_backward.h does.
///
/// @param input        (R, I). May be NULL if `grad_weight` is not given.
/// @param weight       (I, O). May be NULL if `grad_input` is not given.
/// @param grad_output  (R, O)
/// @param gradients    The arrays to write or to add to.
/// @param runtime      Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_linear_backward(const regard_input* input, const regard_input* weight,
                                             const regard_input* grad_output, const regard_linear_gradients* gradients,
                                             const regard_runtime* runtime);

/// The weight (I, O) of a linear layer, packed once for many calls in the order in which linear_forward() reads it. The
/// original weight is no longer needed. Opaque.
typedef struct regard_packed_linear regard_packed_linear;

/// The activation that follows a linear layer (Activation in activation.h).
enum regard_activation {
  REGARD_NO_ACTIVATION = 0,  ///< x
  REGARD_RELU = 1,           ///< max(x, 0)
  REGARD_GELU = 2,           ///< x · Φ(x)
  REGARD_GELU_TANH = 3,      ///< ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))
  REGARD_SILU = 4            ///< x / (1 + exp(−x))
};

/// Packs the weight of a linear layer.
///
/// @param weight   (I, O): f32, f64 or bf16.
/// @param runtime  Execution settings, or NULL. The plan of the runtime must be NULL.
/// @param packed   Receives the packed weight, to be freed with regard_packed_linear_free(). Not written if the call
///                 fails.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_packed_linear_create(const regard_input* weight, const regard_runtime* runtime,
                                                  regard_packed_linear** packed);
/// Frees a packed weight.
///
/// @param packed  The packed weight. If NULL, the call has no effect.
REGARD_EXPORT void regard_packed_linear_free(regard_packed_linear* packed);

/// Computes output = activation(input · weight + bias) with a packed weight. Otherwise the same as
/// regard_linear_forward().
///
/// @param input       (R, I), of the same type as the packed weight.
/// @param weight      The packed weight.
/// @param bias        (O), or NULL.
/// @param activation  A `regard_activation`.
/// @param output      Written: (R, O).
/// @param runtime     Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_packed_linear_forward(const regard_input* input, const regard_packed_linear* weight,
                                                   const regard_input* bias, int32_t activation,
                                                   const regard_output* output, const regard_runtime* runtime);

/// Arrays to which partial results over N chunks of 1024 keys are written, all of type T (AttentionPartialOutputs in
/// attention.h).
typedef struct regard_partial_outputs {
  size_t struct_size;                ///< sizeof(regard_partial_outputs)
  regard_output accumulator;         ///< (N, B, H, L, Dv)
  regard_output row_max;             ///< (N, B, H, L)
  regard_output row_sum;             ///< (N, B, H, L)
  regard_output scaled_accumulator;  ///< (N, B, H, L, Dv), or not given.
} regard_partial_outputs;

/// Arrays from which partial results over N chunks of 1024 keys are read, all of type T (AttentionPartials in
/// attention.h).
typedef struct regard_partial_inputs {
  size_t struct_size;               ///< sizeof(regard_partial_inputs)
  regard_input accumulator;         ///< (N, B, H, L, Dv)
  regard_input row_max;             ///< (N, B, H, L)
  regard_input row_sum;             ///< (N, B, H, L)
  regard_input scaled_accumulator;  ///< (N, B, H, L, Dv), or not given.
} regard_partial_inputs;

/// Returns the number of chunks for a number of keys.
///
/// @param num_keys  S
/// @return N = ⌈S / 1024⌉
REGARD_EXPORT int64_t regard_attention_num_chunks(int64_t num_keys);

/// Computes the partial results of the given keys, as attention_partials() in attention.h does.
///
/// @param query     (B, H, L, D), as for regard_attention_forward().
/// @param key       (B, Hkv, S, D)
/// @param value     (B, Hkv, S, Dv)
/// @param partials  The arrays to write. N is regard_attention_num_chunks(S).
/// @param options   The options, or NULL. Sinks, dropout and packed sequences must not be given.
/// @param runtime   Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_partials(const regard_input* query, const regard_input* key,
                                                const regard_input* value, const regard_partial_outputs* partials,
                                                const regard_attention_options* options, const regard_runtime* runtime);

/// Merges partial results, as attention_merge() in attention.h does.
///
/// @param partials  The partial results of N chunks.
/// @param sinks     T (H), or NULL.
/// @param outputs   The arrays to write, all of type T. `weights` and `fingerprint` must not be given.
/// @param runtime   Execution settings, or NULL.
/// @return A `regard_status`.
///
/// Merging the partial results of all chunks in key order gives results that are bit-identical to those of
/// regard_attention_forward() with a context of type T.
REGARD_EXPORT int32_t regard_attention_merge(const regard_partial_inputs* partials, const regard_input* sinks,
                                             const regard_attention_outputs* outputs, const regard_runtime* runtime);

/// Merges the contexts of N attention calls over disjoint sets of keys, as attention_merge_lse() in attention.h does.
///
/// @param contexts  T (N, B, H, L, Dv)
/// @param lse       T (N, B, H, L)
/// @param outputs   The arrays to write: `context`, of type T, and `lse`. The others must not be given.
/// @param runtime   Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_merge_lse(const regard_input* contexts, const regard_input* lse,
                                                 const regard_attention_outputs* outputs,
                                                 const regard_runtime* runtime);

/// Keys and values that are kept between calls (KvCache in kv_cache.h). Opaque.
///
/// Any number of threads may read a cache simultaneously. regard_attention_decode() and the functions that change a
/// cache return REGARD_CACHE_IN_USE while another thread is changing it. Functions that change a cache also return it
/// while another thread is reading the cache.
typedef struct regard_kv_cache regard_kv_cache;

/// The shape of a cache.
typedef struct regard_kv_cache_shape {
  size_t struct_size;       ///< sizeof(regard_kv_cache_shape)
  int64_t num_sequences;    ///< B
  int64_t num_kv_heads;     ///< Hkv
  int64_t head_size;        ///< D
  int64_t value_head_size;  ///< Dv
  int64_t capacity;         ///< The maximum number of keys in a sequence; in a ring, the number of keys that are kept.
  int64_t page_keys;        ///< The number of keys per page, a multiple of 32. If 0, the cache is contiguous.
  int64_t num_pages;        ///< The number of pages, only with `page_keys`.
  int64_t ring;             ///< 1 for a ring, which requires `page_keys` = 0; otherwise 0.
} regard_kv_cache_shape;

/// Computes the size of a cache in memory. The size is fixed: a cache never grows.
///
/// @param shape      The shape of the cache.
/// @param dtype      The type of its elements: f32, f64, bf16, f16 or i8.
/// @param num_bytes  Receives the size in bytes.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_bytes(const regard_kv_cache_shape* shape, int32_t dtype, uint64_t* num_bytes);
/// Creates an empty cache.
///
/// @param shape      The shape of the cache.
/// @param dtype      The type of its elements: f32, f64, bf16, f16 or i8.
/// @param memory     If NULL, the cache allocates its own memory. Otherwise, at least regard_kv_cache_bytes() bytes,
///                   aligned to 64 bytes; this memory is overwritten and stays in use until the cache is freed.
/// @param num_bytes  The size of `memory` in bytes.
/// @param stop       NULL, or a stop object; the call returns REGARD_CANCELLED within 20 ms of a stop request.
/// @param cache      Receives the cache, to be freed with regard_kv_cache_free(). Not written if the call fails.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_create(const regard_kv_cache_shape* shape, int32_t dtype, void* memory,
                                             size_t num_bytes, const regard_stop* stop, regard_kv_cache** cache);
/// Opens a cache in memory that was written by another cache object. The memory is not modified.
///
/// @param memory     The memory, aligned to 64 bytes, which stays in use until the cache is freed. It may be mapped
///                   read-only as long as the cache is only read.
/// @param num_bytes  The size of `memory` in bytes.
/// @param dtype      The type of the elements of the cache.
/// @param stop       NULL, or a stop object; the call returns REGARD_CANCELLED within 20 ms of a stop request.
/// @param cache      Receives the cache, to be freed with regard_kv_cache_free(). Not written if the call fails.
/// @return A `regard_status`; REGARD_DATA_ERROR if the memory does not hold a consistent cache of this type.
REGARD_EXPORT int32_t regard_kv_cache_open(void* memory, size_t num_bytes, int32_t dtype, const regard_stop* stop,
                                           regard_kv_cache** cache);
/// Frees a cache, but not memory that the caller provided.
///
/// @param cache  The cache. If NULL, the call has no effect.
REGARD_EXPORT void regard_kv_cache_free(regard_kv_cache* cache);

/// Reads the shape of a cache.
///
/// @param cache  The cache.
/// @param shape  Receives the shape. Set `struct_size`; the call writes the rest.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_get_shape(const regard_kv_cache* cache, regard_kv_cache_shape* shape);
/// Reads the address and size of a cache's memory, for example to write it to a file or send it.
///
/// @param cache      The cache.
/// @param memory     Receives the address.
/// @param num_bytes  Receives the size in bytes.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_get_memory(const regard_kv_cache* cache, const void** memory, size_t* num_bytes);
/// Reads the length of a sequence.
///
/// @param cache      The cache.
/// @param sequence   The zero-based index of the sequence.
/// @param length     Receives the number of keys that were appended and not truncated.
/// @param first_key  Receives the index of the first key that is still in the cache: 0, except in rings.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_get_length(const regard_kv_cache* cache, int64_t sequence, int64_t* length,
                                                 int64_t* first_key);
/// Reads the number of free pages of a cache.
///
/// @param cache      The cache.
/// @param num_pages  Receives the number of free pages.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_get_free_pages(const regard_kv_cache* cache, int64_t* num_pages);

/// Appends keys and values to a sequence. If the call fails, the cache is unchanged.
///
/// @param cache     The cache.
/// @param sequence  The zero-based index of the sequence.
/// @param key       (Hkv, L, D)
/// @param value     (Hkv, L, Dv)
/// @param stop      NULL, or a stop object; the call returns REGARD_CANCELLED within 20 ms of a stop request.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_append(regard_kv_cache* cache, int64_t sequence, const regard_input* key,
                                             const regard_input* value, const regard_stop* stop);
/// Appends keys and values to all sequences. If the call fails, the cache is unchanged.
///
/// @param cache    The cache.
/// @param key      (B, Hkv, L, D)
/// @param value    (B, Hkv, L, Dv)
/// @param counts   [B] The number of keys to append to each sequence, starting with the first of the L keys. If NULL,
///                 all L keys are appended.
/// @param stop     NULL, or a stop object; the call returns REGARD_CANCELLED within 20 ms of a stop request.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_append_all(regard_kv_cache* cache, const regard_input* key,
                                                 const regard_input* value, const int64_t* counts,
                                                 const regard_stop* stop);
/// Keeps the first keys of a sequence and removes the rest.
///
/// @param cache     The cache.
/// @param sequence  The zero-based index of the sequence.
/// @param length    The number of keys to keep.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_truncate(regard_kv_cache* cache, int64_t sequence, int64_t length);
/// Forks a sequence: makes another, empty sequence share its keys and values.
///
/// @param cache  The cache. It must not be a ring.
/// @param from   The zero-based index of the sequence to fork.
/// @param to     The index of the sequence that becomes the fork, which must be empty.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_kv_cache_fork(regard_kv_cache* cache, int64_t from, int64_t to);

/// Computes attention over the keys and values of a cache, as attention_decode() in kv_cache.h does.
///
/// @param query    (B, H, L, D), where B is the number of sequences in the cache.
/// @param cache    The cache.
/// @param outputs  The arrays to write. `weights` must not be given.
/// @param options  The options, or NULL. Key lengths, dropout and packed sequences must not be given. The query offset
///                 defaults to REGARD_OFFSET_BOTTOM_RIGHT.
/// @param runtime  Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_decode(const regard_input* query, const regard_kv_cache* cache,
                                              const regard_attention_outputs* outputs,
                                              const regard_attention_options* options, const regard_runtime* runtime);

/// Computes the partial results of the keys of a cache, as attention_decode_partials() in kv_cache.h does.
///
/// @param query     (B, H, L, D), where B is the number of sequences in the cache.
/// @param cache     The cache.
/// @param partials  The arrays to write. N is regard_attention_num_chunks(S), with S the length of the longest
///                  sequence.
/// @param options   The options, or NULL. Sinks, key lengths, dropout and packed sequences must not be given. The query
///                  offset defaults to REGARD_OFFSET_BOTTOM_RIGHT.
/// @param runtime   Execution settings, or NULL.
/// @return A `regard_status`.
REGARD_EXPORT int32_t regard_attention_decode_partials(const regard_input* query, const regard_kv_cache* cache,
                                                       const regard_partial_outputs* partials,
                                                       const regard_attention_options* options,
                                                       const regard_runtime* runtime);

#ifdef __cplusplus
}
#endif
