/* SPDX-License-Identifier: Apache-2.0
 *
 * KV caches, decoding, partial results, packed linear layers, and calls with the caller's threads, memory and stop
 * object through the C interface: the results of regard_attention_forward, and one error for each mistake.
 * Read next: c_api_test.c, include/regard/c_api.h. */
#include <stdlib.h>

#include "support/c_calls.h"

static regard_kv_cache_shape cache_shape(int64_t page_keys, int64_t num_pages) {
  regard_kv_cache_shape shape;
  memset(&shape, 0, sizeof shape);
  shape.struct_size = sizeof shape;
  shape.num_sequences = 1;
  shape.num_kv_heads = 1;
  shape.head_size = 8;
  shape.value_head_size = 8;
  shape.capacity = 64;
  shape.page_keys = page_keys;
  shape.num_pages = num_pages;
  return shape;
}

static void expect_code(int32_t status, int32_t code, const char* text) {
  if (status != code || strcmp(regard_last_error(), text) != 0) {
    printf("failed: status %d, \"%s\", expected %d, \"%s\"\n", (int)status, regard_last_error(), (int)code, text);
    ++num_failures;
  }
}

/* Appending three keys, then one, decodes like all four at once; so do a copy of the memory and a fork. */
static void test_cache(void) {
  static call c, d;
  static char copy[1 << 16] __attribute__((aligned(64)));
  regard_kv_cache_shape shape = cache_shape(0, 0), read;
  regard_kv_cache *cache = NULL, *opened = NULL;
  const int64_t three[3] = {1, 3, 8}, one[3] = {1, 1, 8};
  const regard_input keys = input_of(kKey, REGARD_F64, 3, three), values = input_of(kValue, REGARD_F64, 3, three);
  const regard_input key = input_of(kKey + 24, REGARD_F64, 3, one), value = input_of(kValue + 24, REGARD_F64, 3, one);
  const void* memory = NULL;
  size_t memory_bytes = 0;
  uint64_t num_bytes = 0;
  int64_t length = -1, first_key = -1, free_pages = -1;
  prepare(&c);
  prepare(&d);
  c.options.causal = d.options.causal = 1;
  expect(forward(&c) == REGARD_OK, "forward");
  memset(&d.outputs.weights, 0, sizeof d.outputs.weights);

  expect(regard_kv_cache_bytes(&shape, REGARD_F64, &num_bytes) == REGARD_OK && num_bytes >= 64 * 16 * 8, "bytes");
  expect(regard_kv_cache_create(&shape, REGARD_F64, NULL, 0, NULL, &cache) == REGARD_OK && cache != NULL, "create");
  expect(regard_kv_cache_append(cache, 0, &keys, &values, NULL) == REGARD_OK, "append");
  expect(regard_kv_cache_append(cache, 0, &key, &value, NULL) == REGARD_OK, "append one");
  expect(regard_kv_cache_get_length(cache, 0, &length, &first_key) == REGARD_OK && length == 4 && first_key == 0,
         "length");
  expect(regard_attention_decode(&d.query, cache, &d.outputs, &d.options, NULL) == REGARD_OK, "decode");
  expect_close(d.context, c.context, 32, 0, "decoded context");
  expect_close(d.lse, c.lse, 4, 0, "decoded lse");

  expect(regard_kv_cache_get_memory(cache, &memory, &memory_bytes) == REGARD_OK && memory_bytes == num_bytes, "memory");
  expect(memory_bytes <= sizeof copy, "the copy is large enough");
  memcpy(copy, memory, memory_bytes);
  expect(regard_kv_cache_open(copy, memory_bytes, REGARD_F64, NULL, &opened) == REGARD_OK, "open");
  memset(&read, 0, sizeof read);
  read.struct_size = sizeof read;
  expect(regard_kv_cache_get_shape(opened, &read) == REGARD_OK && memcmp(&read, &shape, sizeof read) == 0, "shape");
  memset(d.context, 0, sizeof d.context);
  expect(regard_attention_decode(&d.query, opened, &d.outputs, &d.options, NULL) == REGARD_OK, "decode a copy");
  expect_close(d.context, c.context, 32, 0, "context of a copy");
  expect(regard_kv_cache_truncate(opened, 0, 3) == REGARD_OK, "truncate");
  expect(regard_kv_cache_get_length(opened, 0, &length, &first_key) == REGARD_OK && length == 3,
         "length after truncate");
  regard_kv_cache_free(opened);
  opened = NULL;
  copy[0] = (char)(copy[0] + 1);
  expect(regard_kv_cache_open(copy, memory_bytes, REGARD_F64, NULL, &opened) == REGARD_DATA_ERROR && opened == NULL &&
             strstr(regard_last_error(), "KvCache: byte 0: ") == regard_last_error(),
         "a block that is none");
  expect_error(regard_kv_cache_truncate(cache, 0, 9), "KvCache::truncate: length is 9; sequence 0 has keys 0 to 4");
  expect_error(regard_kv_cache_append(cache, 1, &key, &value, NULL),
               "KvCache::append: there is no sequence 1; expected 0 to 0");
  expect_error(regard_kv_cache_append(NULL, 0, &key, &value, NULL), "KvCache::append: cache is NULL");
  expect_error(regard_kv_cache_create(&shape, REGARD_I32, NULL, 0, NULL, &opened),
               "kv_cache_create: dtype is int32; expected float32, float64, bfloat16, float16 or int8");
  regard_kv_cache_free(cache);
  regard_kv_cache_free(NULL);

  /* A paged cache, with one of two sequences and its fork; in the caller's memory. */
  shape = cache_shape(32, 1);
  shape.num_sequences = 2;
  expect(regard_kv_cache_create(&shape, REGARD_F64, copy, sizeof copy, NULL, &cache) == REGARD_OK, "create in memory");
  {
    const int64_t both[4] = {2, 1, 3, 8};
    const int64_t counts[2] = {3, 0};
    double two[48];
    const regard_input batch = input_of(two, REGARD_F64, 4, both);
    memcpy(two, kKey, 24 * sizeof(double));
    memset(two + 24, 0, 24 * sizeof(double));
    expect(regard_kv_cache_append_all(cache, &batch, &batch, counts, NULL) == REGARD_OK, "append to all");
  }
  expect(regard_kv_cache_get_free_pages(cache, &free_pages) == REGARD_OK && free_pages == 0, "free pages");
  expect_code(regard_kv_cache_append(cache, 1, &key, &value, NULL), REGARD_OUT_OF_PAGES,
              "KvCache::append: pages needed: 1, free: 0; truncate a sequence or create the cache with more "
              "pages");
  expect_code(regard_kv_cache_fork(cache, 0, 1), REGARD_OUT_OF_PAGES,
              "KvCache::fork: pages needed: 1, free: 0; truncate a sequence or create the cache with more "
              "pages");
  expect(regard_kv_cache_get_length(cache, 1, &length, &first_key) == REGARD_OK && length == 0, "nothing was appended");
  regard_kv_cache_free(cache);
}

static void test_partials(void) {
  static call c, merged;
  const int64_t contexts[5] = {1, 1, 1, 4, 8}, rows[4] = {1, 1, 1, 4};
  double accumulator[32], row_max[4], row_sum[4];
  regard_partial_outputs out;
  regard_partial_inputs in;
  regard_input of_contexts, of_lse;
  prepare(&c);
  prepare(&merged);
  expect(forward(&c) == REGARD_OK, "forward");
  memset(&out, 0, sizeof out);
  memset(&in, 0, sizeof in);
  out.struct_size = in.struct_size = sizeof out;
  out.accumulator = output_of(accumulator, REGARD_F64, 5, contexts);
  out.row_max = output_of(row_max, REGARD_F64, 4, rows);
  out.row_sum = output_of(row_sum, REGARD_F64, 4, rows);
  in.accumulator = input_of(accumulator, REGARD_F64, 5, contexts);
  in.row_max = input_of(row_max, REGARD_F64, 4, rows);
  in.row_sum = input_of(row_sum, REGARD_F64, 4, rows);
  expect(regard_attention_num_chunks(4) == 1 && regard_attention_num_chunks(1025) == 2, "chunks");
  expect(regard_attention_partials(&c.query, &c.key, &c.value, &out, &c.options, NULL) == REGARD_OK, "partials");
  memset(&merged.outputs.weights, 0, sizeof merged.outputs.weights);
  memset(&merged.outputs.sink_weights, 0, sizeof merged.outputs.sink_weights);
  expect(regard_attention_merge(&in, NULL, &merged.outputs, NULL) == REGARD_OK, "merge");
  expect_close(merged.context, c.context, 32, 0, "merged context");
  expect_close(merged.lse, c.lse, 4, 0, "merged lse");
  {
    const regard_kv_cache_shape shape = cache_shape(0, 0);
    regard_kv_cache* cache = NULL;
    expect(regard_kv_cache_create(&shape, REGARD_F64, NULL, 0, NULL, &cache) == REGARD_OK, "create");
    expect(regard_kv_cache_append_all(cache, &c.key, &c.value, NULL, NULL) == REGARD_OK, "append");
    memset(accumulator, 0, sizeof accumulator);
    memset(merged.context, 0, sizeof merged.context);
    expect(regard_attention_decode_partials(&c.query, cache, &out, &c.options, NULL) == REGARD_OK, "cached partials");
    expect(regard_attention_merge(&in, NULL, &merged.outputs, NULL) == REGARD_OK, "merge cached partials");
    expect_close(merged.context, c.context, 32, 0, "context of cached partials");
    expect_error(regard_attention_decode_partials(&c.query, cache, NULL, &c.options, NULL),
                 "attention_decode_partials: partials is NULL");
    regard_kv_cache_free(cache);
  }
  memset(&merged.outputs.row_max, 0, sizeof merged.outputs.row_max);
  memset(&merged.outputs.row_sum, 0, sizeof merged.outputs.row_sum);
  memset(merged.context, 0, sizeof merged.context);
  of_contexts = input_of(c.context, REGARD_F64, 5, contexts);
  of_lse = input_of(c.lse, REGARD_F64, 4, rows);
  expect(regard_attention_merge_lse(&of_contexts, &of_lse, &merged.outputs, NULL) == REGARD_OK, "merge by lse");
  expect_close(merged.context, c.context, 32, 1e-15, "context merged by lse");
  in.accumulator.dtype = REGARD_F32;
  expect(regard_attention_merge(&in, NULL, &merged.outputs, NULL) == REGARD_INVALID_ARGUMENT, "types that differ");
}

static void test_packed_linear(void) {
  const float input[6] = {1, 2, 3, 4, 5, 6}, weight[6] = {1, 0, 2, -1, 0, 3}, bias[2] = {1, -30};
  const double wide[6] = {0};
  const float expected[4] = {6, 0, 15, 0};
  float output[4];
  const int64_t in[2] = {2, 3}, matrix[2] = {3, 2}, square[2] = {2, 2}, vector[1] = {2};
  const regard_input x = input_of(input, REGARD_F32, 2, in), w = input_of(weight, REGARD_F32, 2, matrix);
  const regard_input b = input_of(bias, REGARD_F32, 1, vector), x64 = input_of(wide, REGARD_F64, 2, in);
  const regard_output y = output_of(output, REGARD_F32, 2, square);
  regard_packed_linear* packed = NULL;
  int i;
  expect(regard_packed_linear_create(&w, NULL, &packed) == REGARD_OK, "pack");
  expect(regard_packed_linear_forward(&x, packed, &b, REGARD_RELU, &y, NULL) == REGARD_OK, "packed linear");
  for (i = 0; i < 4; ++i) expect(output[i] == expected[i], "an output of the packed linear");
  expect(regard_packed_linear_forward(&x, packed, NULL, REGARD_SILU, &y, NULL) == REGARD_OK, "packed linear, silu");
  expect(output[0] > 4.9665f && output[0] < 4.9666f, "5 / (1 + exp(-5))");
  expect_error(regard_packed_linear_forward(&x, packed, &b, 5, &y, NULL),
               "linear_forward: activation is 5; expected 0 (none), 1 (relu), 2 (gelu), 3 (gelu_tanh) or 4 (silu)");
  expect_error(regard_packed_linear_forward(&x64, packed, NULL, REGARD_RELU, &y, NULL),
               "linear_forward: weight was packed with a different type than that of input; expected the same type");
  expect_error(regard_packed_linear_forward(&x, NULL, NULL, REGARD_RELU, &y, NULL), "linear_forward: weight is NULL");
  regard_packed_linear_free(packed);
}

/* An executor that counts its tasks and runs them in reverse; memory that counts outstanding allocations. */
typedef struct counts {
  int64_t tasks, bytes, max_bytes;
  int fails;
} counts;

static void execute(void* data, int64_t count, void (*task)(void*, int64_t), void* task_data) {
  int64_t i;
  for (i = count; i-- > 0;) task(task_data, i);
  ((counts*)data)->tasks += count;
}

static void* allocate(void* data, size_t num_bytes, size_t alignment) {
  counts* c = (counts*)data;
  char *begin, *aligned;
  if (c->fails) return NULL;
  c->bytes += (int64_t)num_bytes;
  if (c->bytes > c->max_bytes) c->max_bytes = c->bytes;
  /* The pointer from malloc is stored before the aligned address. */
  begin = (char*)malloc(num_bytes + alignment + sizeof begin);
  aligned = begin + sizeof begin;
  aligned += (alignment - (uintptr_t)aligned % alignment) % alignment;
  memcpy(aligned - sizeof begin, &begin, sizeof begin);
  return aligned;
}

static void deallocate(void* data, void* memory, size_t num_bytes, size_t alignment) {
  char* begin;
  (void)alignment;
  ((counts*)data)->bytes -= (int64_t)num_bytes;
  memcpy(&begin, (char*)memory - sizeof begin, sizeof begin);
  free(begin);
}

static void test_runtime(void) {
  enum { kLength = 600, kSize = 16 };
  const int64_t shape[4] = {1, 2, kLength, kSize};
  float* numbers = (float*)malloc(2 * kLength * kSize * sizeof(float));
  float* context = (float*)malloc(2 * kLength * kSize * sizeof(float));
  float* expected = (float*)malloc(2 * kLength * kSize * sizeof(float));
  regard_input x = input_of(numbers, REGARD_F32, 4, shape);
  regard_attention_outputs outputs;
  regard_runtime runtime;
  regard_stop* stop = NULL;
  counts c;
  int i;
  for (i = 0; i < 2 * kLength * kSize; ++i) numbers[i] = (float)(i % 97 - 48) / 32;
  memset(&outputs, 0, sizeof outputs);
  memset(&runtime, 0, sizeof runtime);
  memset(&c, 0, sizeof c);
  outputs.struct_size = sizeof outputs;
  runtime.struct_size = sizeof runtime;
  outputs.context = output_of(expected, REGARD_F32, 4, shape);
  expect(regard_attention_forward(&x, &x, &x, &outputs, NULL, NULL) == REGARD_OK, "forward");
  outputs.context = output_of(context, REGARD_F32, 4, shape);
  runtime.num_threads = 3;
  runtime.executor = execute;
  runtime.executor_data = runtime.workspace_data = &c;
  runtime.allocate = allocate;
  runtime.deallocate = deallocate;
  expect(regard_attention_forward(&x, &x, &x, &outputs, NULL, &runtime) == REGARD_OK,
         "forward with the caller's threads and memory");
  expect(memcmp(context, expected, 2 * kLength * kSize * sizeof(float)) == 0, "the same bits");
  expect(c.tasks > 0 && c.max_bytes > 0 && c.bytes == 0,
         "the caller's threads and memory were used, and all memory was returned");
  c.fails = 1;
  expect_code(regard_attention_forward(&x, &x, &x, &outputs, NULL, &runtime), REGARD_OUT_OF_MEMORY, "out of memory");
  runtime.deallocate = NULL;
  expect_error(regard_attention_forward(&x, &x, &x, &outputs, NULL, &runtime),
               "attention_forward: runtime->allocate is given alone; expected allocate and deallocate, or neither");
  runtime.allocate = NULL;

  expect(regard_stop_create(&stop) == REGARD_OK, "a stop");
  runtime.stop = stop;
  expect(regard_attention_forward(&x, &x, &x, &outputs, NULL, &runtime) == REGARD_OK, "a stop that is not requested");
  regard_stop_request(stop);
  expect(regard_attention_forward(&x, &x, &x, &outputs, NULL, &runtime) == REGARD_CANCELLED, "a stop");
  {
    regard_kv_cache_shape of_cache = cache_shape(0, 0);
    regard_kv_cache* cache = NULL;
    regard_packed_linear* packed = NULL;
    regard_plan plan;
    expect(regard_kv_cache_create(&of_cache, REGARD_F32, NULL, 0, stop, &cache) == REGARD_CANCELLED && !cache,
           "a cache that is stopped");
    memset(&plan, 0, sizeof plan);
    plan.struct_size = sizeof plan;
    runtime.plan = &plan;
    expect_error(regard_packed_linear_create(&x, &runtime, &packed),
                 "packed_linear_create: runtime->plan is given; expected NULL: this function cannot be planned");
  }
  regard_stop_free(stop);
  regard_stop_free(NULL);
  free(numbers);
  free(context);
  free(expected);
}

int main(void) {
  test_cache();
  test_partials();
  test_packed_linear();
  test_runtime();
  printf("%d failures\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
