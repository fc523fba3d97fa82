/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface (C99): attention forward and backward, its weights, statistics, columns, partial results and their
 * merging, KV caches and decoding, linear layers, and the plan of any of them, on strided arrays; with threads, memory
 * and a stop of the caller's own.
 *
 *     regard_attention_options options;
 *     regard_attention_options_init(&options, sizeof options);
 *     options.causal = 1;
 *     if (regard_attention_forward(&q, &k, &v, &outputs, &options, NULL) != REGARD_OK) puts(regard_last_error());
 *
 * Formulas, extents (B H Hkv L S D Dv) and the meaning of every option are those of attention.h, attention_backward.h,
 * attention_statistics.h, kv_cache.h, linear.h and linear_backward.h, which have the same names; docs/semantics.md has
 * every corner. The binary interface is stable: structs
 * that begin with struct_size may grow at their end (so set them to zero first), numbers of enumerators never change.
 * Nothing is thrown and nothing is printed. All functions may be called from any thread; what one thread frees, no
 * other may use. Read next: src/c_api/attention.cpp, tests/c_api_test.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "regard/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every function below that returns int32_t returns one of these: 0, or an ErrorCode of error.h. */
enum regard_status {
  REGARD_OK = 0,
  REGARD_INVALID_ARGUMENT = 1, /* nothing was written */
  REGARD_OUT_OF_MEMORY = 2,    /* outputs of an operator are unspecified, of this and the next two */
  REGARD_CANCELLED = 3,
  REGARD_INTERNAL = 4,
  REGARD_OUT_OF_PAGES = 5, /* the cache has not changed, of this and the next */
  REGARD_CACHE_IN_USE = 6,
  REGARD_DATA_ERROR = 7 /* memory does not hold what it should */
};

enum regard_dtype {
  REGARD_F32 = 1,
  REGARD_F64 = 2,
  REGARD_BOOL = 3,
  REGARD_I32 = 4,
  REGARD_I64 = 5,
  REGARD_BF16 = 6, /* two bytes, as a uint16_t holds them: the upper half of a float */
  REGARD_F16 = 7,  /* two bytes, IEEE 754 binary16 */
  REGARD_I8 = 8,
  REGARD_U8 = 9
};

/* Element (i, j, …) lies at data[i * strides[0] + j * strides[1] + …]. Strides count elements, not bytes; they may be
 * zero or negative. strides NULL: dense, last axis contiguous. A REGARD_BOOL element is a byte, 0 or 1, nothing else.
 * Arrays of rank 1 among the options must be contiguous and aligned.
 * All fields zero: the array is not given. data NULL with a shape that is not empty is an error. */
typedef struct regard_input {
  const void* data;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;   /* [rank] */
  const int64_t* strides; /* [rank], or NULL */
} regard_input;

/* The same, written. An output must not overlap an input or another output. */
typedef struct regard_output {
  void* data;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} regard_output;

enum regard_query_offset_kind {
  REGARD_OFFSET_NOT_NAMED = 0,
  REGARD_OFFSET_TOP_LEFT = 1,
  REGARD_OFFSET_BOTTOM_RIGHT = 2,
  REGARD_OFFSET_NUMBER = 3, /* query_offset */
  REGARD_OFFSET_NUMBERS = 4 /* query_offsets */
};

/* All zero but struct_size is the default: no mask, no bias, scale 1 / sqrt(D). T is the type computed with: f64 where
 * query is f64, else f32. */
typedef struct regard_attention_options {
  size_t struct_size; /* sizeof(regard_attention_options), where it was compiled */
  int32_t causal;
  int32_t query_offset_kind;
  int64_t query_offset;
  regard_input query_offsets; /* i64 (B), or one per packed sequence */
  int32_t has_window_left;    /* 0: open */
  int32_t has_window_right;
  int64_t window_left;
  int64_t window_right;
  regard_input key_lengths;    /* i64 (B), or one per packed sequence */
  regard_input query_starts;   /* i64 (n + 1) */
  regard_input key_starts;     /* i64 (n + 1) */
  regard_input query_segments; /* i32 (B, L) */
  regard_input key_segments;   /* i32 (B, S) */
  regard_input prefix;         /* i64 (B), or one per packed sequence */
  regard_input block_mask;     /* bool (B|1, H|1, blocks of L, blocks of S) */
  int64_t block_size[2];
  regard_input mask;         /* bool, broadcastable to (B, H, L, S) */
  regard_input bias;         /* f32 or the type of query, broadcastable to (B, H, L, S) */
  regard_input alibi_slopes; /* T (H) */
  regard_input sinks;        /* T (H) */
  int32_t has_soft_cap;
  int32_t has_scale;
  double soft_cap;
  double scale;
  /* The weights multiplied with a bf16 value: 1 stay f32, -1 are rounded to bf16, 0 stay f32 for an f32 result. */
  int64_t weights_in_float32;
  double dropout; /* 0 to 1 */
  uint64_t dropout_seed;
  int64_t dropout_first[3]; /* batch entry, head and row of the whole that this call's first ones are */
} regard_attention_options;

/* AttentionFingerprint of attention.h: the options of a forward call, for regard_attention_backward to compare. */
enum { REGARD_FINGERPRINT_WORDS = 16 };

/* What is written: context always, the others where given. All of type T; context may have the type of query. */
typedef struct regard_attention_outputs {
  size_t struct_size;
  regard_output context;      /* (B, H, L, Dv) */
  regard_output row_max;      /* (B, H, L) */
  regard_output row_sum;      /* (B, H, L) */
  regard_output lse;          /* (B, H, L) */
  regard_output weights;      /* (B, H, L, S) */
  regard_output sink_weights; /* (B, H, L) */
  uint32_t* fingerprint;      /* [REGARD_FINGERPRINT_WORDS], or NULL */
} regard_attention_outputs;

/* What the forward pass wrote, and the gradients of what it wrote; all but grad_lse are needed. A fingerprint whose
 * bits are all 1 is not compared. */
typedef struct regard_attention_saved {
  size_t struct_size;
  regard_input context;        /* (B, H, L, Dv): f64, or f32, bf16 or f16 */
  regard_input row_max;        /* T (B, H, L) */
  regard_input row_sum;        /* T (B, H, L) */
  regard_input grad_context;   /* (B, H, L, Dv), as context */
  regard_input grad_lse;       /* T (B, H, L) */
  const uint32_t* fingerprint; /* [REGARD_FINGERPRINT_WORDS], as the forward call wrote it */
} regard_attention_saved;

/* Gradients that are added to what their array holds, in place of overwriting it: a sum of these. */
enum regard_gradient {
  REGARD_GRAD_QUERY = 1,
  REGARD_GRAD_KEY = 2,
  REGARD_GRAD_VALUE = 4,
  REGARD_GRAD_BIAS = 8,
  REGARD_GRAD_SINKS = 16,
  REGARD_GRAD_INPUT = 32,
  REGARD_GRAD_WEIGHT = 64
};

/* What is written where given. The first three are of one type: T or the type of query. */
typedef struct regard_attention_gradients {
  size_t struct_size;
  regard_output grad_query; /* (B, H, L, D) */
  regard_output grad_key;   /* (B, Hkv, S, D) */
  regard_output grad_value; /* (B, Hkv, S, Dv) */
  regard_output grad_bias;  /* T, extents of (B, H, L, S) or 1: over an extent of 1 it is the sum */
  regard_output grad_sinks; /* T (H) */
  int64_t accumulate;       /* of enum regard_gradient: those of the five names above */
} regard_attention_gradients;

enum regard_weights_kind { REGARD_WEIGHTS = 0, REGARD_SCORES = 1 };

typedef struct regard_weights_request {
  size_t struct_size;
  regard_input row_max; /* T (B, H, L), as regard_attention_forward wrote it; not needed for scores */
  regard_input row_sum; /* T (B, H, L) */
  regard_input rows;    /* i64 (n, 2): half-open ranges of query rows; not given: all rows */
  int64_t kind;         /* enum regard_weights_kind */
} regard_weights_request;

enum regard_chosen_origin { REGARD_FROM_KEY_ZERO = 0, REGARD_FROM_POSITION = 1 };

/* The numbers of each row that ride along in the forward pass. Keys count from the first of each packed sequence. */
typedef struct regard_attention_statistics {
  size_t struct_size;
  regard_input chosen_keys;          /* i64 (n), distinct, >= 0 */
  regard_output top_keys;            /* i64 (B, H, L, k), 1 <= k <= 63: by weight, then by lower key; missing: -1 */
  regard_output top_weights;         /* T (B, H, L, k), with top_keys: their weights; missing: 0 */
  regard_output entropy;             /* T (B, H, L), in nats */
  regard_output largest_weight;      /* T (B, H, L) */
  regard_output chosen_weight;       /* T (B, H, L): the sum of the chosen keys' weights */
  regard_output mean_distance;       /* T (B, H, L) */
  regard_output head_entropy;        /* T (B, H): means over the rows that see a key, here and below */
  regard_output head_largest_weight; /* T (B, H) */
  regard_output head_chosen_weight;  /* T (B, H) */
  regard_output head_mean_distance;  /* T (B, H) */
  regard_input chosen_ranges;        /* i64 (B|1, L|1, 2): begin, end of each row, in place of chosen_keys */
  int64_t chosen_origin;             /* enum regard_chosen_origin: where chosen_ranges count from */
} regard_attention_statistics;

enum regard_coarse_cells { REGARD_MEANS = 0, REGARD_SUMS = 1 };

typedef struct regard_columns_request {
  size_t struct_size;
  regard_input row_max; /* T (B, H, L), as regard_attention_forward wrote it */
  regard_input row_sum; /* T (B, H, L) */
  int64_t cells;        /* enum regard_coarse_cells */
} regard_columns_request;

typedef struct regard_columns_outputs {
  size_t struct_size;
  regard_output key_mass;   /* T (B, H, S): the sum of each key's weights over the rows */
  regard_output pooled_map; /* T (B, H, Ga, Gb), 1 <= Ga <= L, 1 <= Gb <= S */
} regard_columns_outputs;

/* What a call will do. Texts end with 0; longer ones are cut. */
typedef struct regard_plan {
  size_t struct_size;       /* sizeof(regard_plan); the rest is written */
  uint64_t workspace_bytes; /* the most scratch that the call holds at a time */
  double operations;        /* useful floating-point operations */
  double bytes;             /* of inputs and outputs, each once */
  int64_t num_threads;      /* at most */
  char instruction_set[32];
  char why[224];  /* why this instruction set */
  char way[1024]; /* which way the operator takes and why; of several operators a line each */
} regard_plan;

/* Ends calls from another thread. */
typedef struct regard_stop regard_stop;

typedef struct regard_runtime {
  size_t struct_size;
  int64_t num_threads;     /* 0: the default */
  regard_plan* plan;       /* not NULL: arguments are checked, nothing is computed and no array written, but this */
  const regard_stop* stop; /* not NULL: when it is requested, the call returns REGARD_CANCELLED within 20 ms */
  /* NULL: the library's own threads. Else calls task(task_data, i) for i = 0 … count - 1, each once, on any threads and
   * in any order, and returns when all are done. */
  void (*executor)(void* executor_data, int64_t count, void (*task)(void* task_data, int64_t i), void* task_data);
  void* executor_data;
  /* Where all scratch comes from, both or neither. alignment is a power of 2; NULL is returned where there is no such
   * memory. Called by several threads at once. */
  void* (*allocate)(void* workspace_data, size_t num_bytes, size_t alignment);
  void (*deallocate)(void* workspace_data, void* memory, size_t num_bytes, size_t alignment);
  void* workspace_data;
} regard_runtime;

/* What is opaque is made by a function that writes it to its last argument, or nothing where it fails, and is freed by
 * the function of its name: of NULL, nothing. */
REGARD_EXPORT int32_t regard_stop_create(regard_stop** stop);
REGARD_EXPORT void regard_stop_free(regard_stop* stop);
/* May be called while calls run. Stays requested. */
REGARD_EXPORT void regard_stop_request(regard_stop* stop);

/* "0.1.0". */
REGARD_EXPORT const char* regard_version(void);

/* Why the last failing call of this thread failed; "" if none has. Valid until the thread's next failing call. */
REGARD_EXPORT const char* regard_last_error(void);

/* Sets every field to its default and struct_size to the argument: pass sizeof(regard_attention_options). */
REGARD_EXPORT int32_t regard_attention_options_init(regard_attention_options* options, size_t struct_size);

/* context = softmax(scores over visible keys) · value, scores = soft_cap(scale · query · keyᵀ) + ALiBi + bias.
 *   query (B, H, L, D), key (B, Hkv, S, D), value (B, Hkv, S, Dv): all f64, or each f32, bf16 or f16.
 * options and runtime may be NULL. The same bits as attention_forward of attention.h. */
REGARD_EXPORT int32_t regard_attention_forward(const regard_input* query, const regard_input* key,
                                               const regard_input* value, const regard_attention_outputs* outputs,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/* The exact weights or scores of chosen rows: writes output (B, H, R, S), R rows in the order of request->rows. */
REGARD_EXPORT int32_t regard_attention_weights(const regard_input* query, const regard_input* key,
                                               const regard_weights_request* request, const regard_output* output,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/* The gradients of what regard_attention_forward wrote for the same arguments: attention_backward of
 * attention_backward.h. */
REGARD_EXPORT int32_t regard_attention_backward(const regard_input* query, const regard_input* key,
                                                const regard_input* value, const regard_attention_saved* saved,
                                                const regard_attention_gradients* gradients,
                                                const regard_attention_options* options, const regard_runtime* runtime);

/* regard_attention_forward and, in the same pass, the statistics of its rows: attention_with_statistics of
 * attention_statistics.h.
 */
REGARD_EXPORT int32_t regard_attention_with_statistics(const regard_input* query, const regard_input* key,
                                                       const regard_input* value,
                                                       const regard_attention_outputs* outputs,
                                                       const regard_attention_statistics* statistics,
                                                       const regard_attention_options* options,
                                                       const regard_runtime* runtime);

/* The mass of each key and a pooled map of the weights, without the weights: attention_columns of
 * attention_statistics.h. */
REGARD_EXPORT int32_t regard_attention_columns(const regard_input* query, const regard_input* key,
                                               const regard_columns_request* request,
                                               const regard_columns_outputs* outputs,
                                               const regard_attention_options* options, const regard_runtime* runtime);

/* output = input · weight + bias: input (R, I), weight (I, O), bias (O) or NULL, output (R, O); all f32, all
 * f64, or all bf16, where output may also be f32. */
REGARD_EXPORT int32_t regard_linear_forward(const regard_input* input, const regard_input* weight,
                                            const regard_input* bias, const regard_output* output,
                                            const regard_runtime* runtime);

/* Gradients of that, written where given. All f32, all f64, or all bf16. */
typedef struct regard_linear_gradients {
  size_t struct_size;
  regard_output grad_input;  /* (R, I) */
  regard_output grad_weight; /* (I, O) */
  regard_output grad_bias;   /* (O) */
  int64_t accumulate;        /* of enum regard_gradient: those of the three names above */
} regard_linear_gradients;

/* grad_output is (R, O). linear_backward of linear_backward.h. */
REGARD_EXPORT int32_t regard_linear_backward(const regard_input* input, const regard_input* weight,
                                             const regard_input* grad_output, const regard_linear_gradients* gradients,
                                             const regard_runtime* runtime);

/* A weight (I, O) in the order in which linear_forward reads it, for many calls; the original is not needed any more.
 */
typedef struct regard_packed_linear regard_packed_linear;

enum regard_activation { REGARD_NO_ACTIVATION = 0, REGARD_RELU = 1, REGARD_GELU = 2, REGARD_GELU_TANH = 3 };

REGARD_EXPORT int32_t regard_packed_linear_create(const regard_input* weight, const regard_runtime* runtime,
                                                  regard_packed_linear** packed);
REGARD_EXPORT void regard_packed_linear_free(regard_packed_linear* packed);

/* output = activation(input · weight + bias), as regard_linear_forward. activation is of enum regard_activation. */
REGARD_EXPORT int32_t regard_packed_linear_forward(const regard_input* input, const regard_packed_linear* weight,
                                                   const regard_input* bias, int32_t activation,
                                                   const regard_output* output, const regard_runtime* runtime);

/* Partial results over chunks of 1024 keys, N of them, all of type T: AttentionPartials of attention.h. */
typedef struct regard_partial_outputs {
  size_t struct_size;
  regard_output accumulator;        /* (N, B, H, L, Dv) */
  regard_output row_max;            /* (N, B, H, L) */
  regard_output row_sum;            /* (N, B, H, L) */
  regard_output scaled_accumulator; /* (N, B, H, L, Dv), or not given */
} regard_partial_outputs;

typedef struct regard_partial_inputs {
  size_t struct_size;
  regard_input accumulator;
  regard_input row_max;
  regard_input row_sum;
  regard_input scaled_accumulator;
} regard_partial_inputs;

/* N of so many keys. */
REGARD_EXPORT int64_t regard_attention_num_chunks(int64_t num_keys);

/* The partial results of the keys given: attention_partials of attention.h. */
REGARD_EXPORT int32_t regard_attention_partials(const regard_input* query, const regard_input* key,
                                                const regard_input* value, const regard_partial_outputs* partials,
                                                const regard_attention_options* options, const regard_runtime* runtime);

/* Those of all chunks in key order give the bits of regard_attention_forward. sinks are T (H) or NULL. */
REGARD_EXPORT int32_t regard_attention_merge(const regard_partial_inputs* partials, const regard_input* sinks,
                                             const regard_attention_outputs* outputs, const regard_runtime* runtime);

/* Finished results of disjoint keys, contexts (N, B, H, L, Dv) and lse (N, B, H, L), both T, into outputs->context and
 * outputs->lse. */
REGARD_EXPORT int32_t regard_attention_merge_lse(const regard_input* contexts, const regard_input* lse,
                                                 const regard_attention_outputs* outputs,
                                                 const regard_runtime* runtime);

/* Keys and values that stay between calls: KvCache of kv_cache.h. Any number of threads may read one at once; while
 * another thread changes it, or reads what is to be changed, the call returns REGARD_CACHE_IN_USE. */
typedef struct regard_kv_cache regard_kv_cache;

typedef struct regard_kv_cache_shape {
  size_t struct_size;
  int64_t num_sequences;
  int64_t num_kv_heads;    /* Hkv */
  int64_t head_size;       /* D */
  int64_t value_head_size; /* Dv */
  int64_t capacity;        /* keys of a sequence; of a ring: keys that stay */
  int64_t page_keys;       /* a multiple of 32; 0: contiguous */
  int64_t num_pages;       /* with page_keys */
  int64_t ring;            /* 0 or 1; with page_keys 0 */
} regard_kv_cache_shape;

/* The most memory that a cache of elements of dtype (f32, f64, bf16, f16 or i8) takes. */
REGARD_EXPORT int32_t regard_kv_cache_bytes(const regard_kv_cache_shape* shape, int32_t dtype, uint64_t* num_bytes);
/* An empty cache. memory NULL: of its own. Else at least regard_kv_cache_bytes, aligned to 64, overwritten, and in use
 * until the cache is freed. Of runtime, only stop is used, here and below where the cache is not read. */
REGARD_EXPORT int32_t regard_kv_cache_create(const regard_kv_cache_shape* shape, int32_t dtype, void* memory,
                                             size_t num_bytes, const regard_runtime* runtime, regard_kv_cache** cache);
/* What another cache left in memory, as it stands; REGARD_DATA_ERROR for anything else. Memory may be mapped read-only
 * as long as the cache is only read. */
REGARD_EXPORT int32_t regard_kv_cache_open(void* memory, size_t num_bytes, int32_t dtype, const regard_runtime* runtime,
                                           regard_kv_cache** cache);
REGARD_EXPORT void regard_kv_cache_free(regard_kv_cache* cache);

/* Set struct_size; the rest is written. */
REGARD_EXPORT int32_t regard_kv_cache_get_shape(const regard_kv_cache* cache, regard_kv_cache_shape* shape);
/* Its block, to be written to a file or sent. */
REGARD_EXPORT int32_t regard_kv_cache_get_memory(const regard_kv_cache* cache, const void** memory, size_t* num_bytes);
/* Keys appended and not truncated; the first that is still there, which is 0 but for rings. */
REGARD_EXPORT int32_t regard_kv_cache_get_length(const regard_kv_cache* cache, int64_t sequence, int64_t* length,
                                                 int64_t* first_key);
REGARD_EXPORT int32_t regard_kv_cache_get_free_pages(const regard_kv_cache* cache, int64_t* num_pages);

/* Adds key (Hkv, L, D) and value (Hkv, L, Dv) to the end of a sequence. What fails has changed nothing. */
REGARD_EXPORT int32_t regard_kv_cache_append(regard_kv_cache* cache, int64_t sequence, const regard_input* key,
                                             const regard_input* value, const regard_runtime* runtime);
/* Adds key (B, Hkv, L, D) and value (B, Hkv, L, Dv) to all: the first counts[b] of L keys; counts is i64 [B] or NULL
 * for all. */
REGARD_EXPORT int32_t regard_kv_cache_append_all(regard_kv_cache* cache, const regard_input* key,
                                                 const regard_input* value, const int64_t* counts,
                                                 const regard_runtime* runtime);
/* Keeps the first `length` keys. */
REGARD_EXPORT int32_t regard_kv_cache_truncate(regard_kv_cache* cache, int64_t sequence, int64_t length);
/* Makes `to`, which is empty, a sequence of the keys of `from`. */
REGARD_EXPORT int32_t regard_kv_cache_fork(regard_kv_cache* cache, int64_t from, int64_t to);

/* regard_attention_forward over the keys and values of a cache: attention_decode of kv_cache.h. */
REGARD_EXPORT int32_t regard_attention_decode(const regard_input* query, const regard_kv_cache* cache,
                                              const regard_attention_outputs* outputs,
                                              const regard_attention_options* options, const regard_runtime* runtime);

#ifdef __cplusplus
}
#endif
