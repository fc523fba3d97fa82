/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface from C99: the results of the notebook "Self Attention in Transformers" (lesson one-function), the
 * effect of every option on them, and each error with its message. Prints failures; exits with 1 if there are any. */
#include <stddef.h>
#include <stdlib.h>

#include "support/c_calls.h"

/* Results as printed in the notebook. */
static const double kScaled[16] = {0.19744348, -1.18494828, 0.2493719,   0.3656488,  0.66242327,  -0.04431963,
                                   1.24716282, 0.22174705,  -2.96126456, 0.22090417, -0.11055685, 0.53246682,
                                   0.84554697, -0.60004229, -0.20352798, -1.31295549};
static const double kAttention[16] = {1,          0,          0,          0,          0.66968106, 0.33031894,
                                      0,          0,          0.02358547, 0.56838537, 0.40802916, 0,
                                      0.58776275, 0.13848114, 0.20587072, 0.06788539};
static const double kNewV[32] = {
    -2.33028699, 0.41850626, 1.57360937,  0.13730874,  0.85209484,  0.65816785,  -0.41211221, -0.0025269,
    -2.35489311, 0.01073226, 0.78231893,  0.13865475,  0.42967217,  -0.09690355, -0.09211864, -0.31554853,
    -1.18941663, 0.02206074, -0.73501088, -0.16634756, -0.02023404, -0.85551669, 0.03142011,  -0.69390214,
    -1.52017524, 0.38293583, 0.67771783,  0.19193084,  0.50039236,  0.14997879,  -0.33905113, -0.30067545};

static void test_version_and_errors_of_no_call(void) {
  int major, minor, patch;
  expect(regard_last_error()[0] == '\0', "no error at first");
  expect(sscanf(regard_version(), "%d.%d.%d", &major, &minor, &patch) == 3, "version");
}

/* The upper half of a float is a bf16. */
static float upper_half(double x, uint16_t* half) {
  float number = (float)x;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  *half = (uint16_t)(bits >> 16);
  bits = (uint32_t)*half << 16;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static void test_types_of_two_bytes(void) {
  static call c;
  float query[32], key[32], value[32], wide[32], context[32], number;
  uint16_t query16[32], key16[32], value16[32], context16[32], ones[32];
  float weights[16], weights_of_16[16], row_max[4], row_sum[4];
  uint32_t bits;
  double largest = 0;
  const char* forced = getenv("REGARD_FORCE_ISA");
  const int widens = forced != NULL && strcmp(forced, "generic") == 0;
  int i;
  regard_weights_request request;
  regard_output output;
  prepare(&c);
  for (i = 0; i < 32; ++i) {
    query[i] = upper_half(kQuery[i], &query16[i]);
    key[i] = upper_half(kKey[i], &key16[i]);
    value[i] = upper_half(kValue[i], &value16[i]);
    ones[i] = 0x3c00;
  }
  memset(&c.outputs, 0, sizeof c.outputs);
  c.outputs.struct_size = sizeof c.outputs;
  c.outputs.row_max = output_of(row_max, REGARD_F32, 3, kRows);
  c.outputs.row_sum = output_of(row_sum, REGARD_F32, 3, kRows);
  c.outputs.weights = output_of(weights, REGARD_F32, 4, kSquare);
  c.query = input_of(query, REGARD_F32, 4, kTokens);
  c.key = input_of(key, REGARD_F32, 4, kTokens);
  c.value = input_of(value, REGARD_F32, 4, kTokens);
  c.outputs.context = output_of(wide, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "f32");
  memcpy(weights_of_16, weights, sizeof weights);

  /* The same values as bf16: the same bits if they are converted to float; a context of bf16 is that of f32, rounded,
     if its weights are those of f32. */
  c.query = input_of(query16, REGARD_BF16, 4, kTokens);
  c.key = input_of(key16, REGARD_BF16, 4, kTokens);
  c.value = input_of(value16, REGARD_BF16, 4, kTokens);
  c.outputs.context = output_of(context, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "bf16 to f32");
  for (i = 0; i < 32; ++i) largest = fmax(largest, fabs(value[i]));
  if (widens) {
    expect(memcmp(context, wide, sizeof wide) == 0, "the context of bf16");
    expect(memcmp(weights, weights_of_16, sizeof weights) == 0, "the weights of bf16");
  }
  for (i = 0; i < 32; ++i) expect(fabs(context[i] - wide[i]) <= largest / 256, "the context of bf16");
  for (i = 0; i < 16; ++i) expect(fabs(weights[i] - weights_of_16[i]) <= 1e-6, "the weights of bf16");
  memcpy(weights_of_16, weights, sizeof weights);
  c.outputs.context = output_of(context16, REGARD_BF16, 4, kTokens);
  c.options.weights_in_float32 = 1;
  expect(forward(&c) == REGARD_OK, "bf16 to bf16");
  c.options.weights_in_float32 = 0;
  for (i = 0; i < 32; ++i) {
    bits = (uint32_t)context16[i] << 16;
    memcpy(&number, &bits, sizeof number);
    expect(fabs(number - context[i]) <= fabs(context[i]) / 256, "a rounded context");
  }
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.row_max = input_of(row_max, REGARD_F32, 3, kRows);
  request.row_sum = input_of(row_sum, REGARD_F32, 3, kRows);
  output = output_of(weights, REGARD_F32, 4, kSquare);
  expect(regard_attention_weights(&c.query, &c.key, &request, &output, NULL, NULL) == REGARD_OK, "weights of bf16");
  expect(memcmp(weights, weights_of_16, sizeof weights) == 0, "chosen weights of bf16");

  /* Means of ones are ones. */
  c.query = c.value = input_of(ones, REGARD_F16, 4, kTokens);
  c.options.bias = input_of(ones, REGARD_F16, 4, kSquare);
  c.outputs.context = output_of(context16, REGARD_F16, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "f16, keys of bf16");
  expect(memcmp(context16, ones, sizeof ones) == 0, "the context of f16");

  c.outputs.context.dtype = REGARD_BF16;
  expect_error(forward(&c), "attention_forward: context has type bfloat16; expected float32, or float16 as in query");
  c.key.dtype = REGARD_F64;
  expect_error(forward(&c), "attention_forward: key has type float64; expected float32, bfloat16 or float16");
  c.query.dtype = REGARD_F64;
  expect_error(forward(&c), "attention_forward: value has type float16; expected float64");
}

static void test_document_002(void) {
  static call c;
  int row, column;
  prepare(&c);
  c.options.causal = 1;
  expect(forward(&c) == REGARD_OK, "forward");
  expect_close(c.context, kNewV, 32, 1.5e-8, "new V");
  expect_close(c.weights, kAttention, 16, 1.5e-8, "attention");
  for (row = 0; row < 4; ++row) {
    double row_max = -INFINITY, row_sum = 0;
    for (column = 0; column <= row; ++column) row_max = fmax(row_max, kScaled[4 * row + column]);
    for (column = 0; column <= row; ++column) row_sum += exp(kScaled[4 * row + column] - row_max);
    expect(fabs(c.row_max[row] - row_max) < 2e-8, "row_max");
    expect(fabs(c.row_sum[row] - row_sum) < 1e-7, "row_sum");
    expect(fabs(c.lse[row] - row_max - log(row_sum)) < 1e-7, "lse");
    expect(c.sink_weights[row] == 0, "no sink");
  }
}

static void test_weights_and_scores_of_chosen_rows(void) {
  static call c;
  static double output[12];
  const int64_t ranges[4] = {3, 4, 1, 3}, ranges_shape[2] = {2, 2}, chosen[4] = {1, 1, 3, 4};
  const int order[3] = {3, 1, 2};
  regard_weights_request request;
  regard_output rows = output_of(output, REGARD_F64, 4, chosen);
  int i;
  prepare(&c);
  c.options.causal = 1;
  expect(forward(&c) == REGARD_OK, "forward");
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.row_max = input_of(c.row_max, REGARD_F64, 3, kRows);
  request.row_sum = input_of(c.row_sum, REGARD_F64, 3, kRows);
  request.rows = input_of(ranges, REGARD_I64, 2, ranges_shape);
  expect(regard_attention_weights(&c.query, &c.key, &request, &rows, &c.options, NULL) == REGARD_OK, "weights");
  for (i = 0; i < 3; ++i) {
    expect(memcmp(output + 4 * i, c.weights + 4 * order[i], 4 * sizeof(double)) == 0, "the same bits as forward");
  }
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.kind = REGARD_SCORES;
  c.options.causal = 0;
  c.outputs.weights.shape = kSquare;
  expect(regard_attention_weights(&c.query, &c.key, &request, &c.outputs.weights, &c.options, NULL) == REGARD_OK,
         "scores");
  expect_close(c.weights, kScaled, 16, 1.5e-8, "scaled");
  request.kind = 2;
  expect_error(regard_attention_weights(&c.query, &c.key, &request, &c.outputs.weights, &c.options, NULL),
               "attention_weights: kind is 2; expected 0 (weights) or 1 (scores)");
}

static void test_f32_and_strides(void) {
  /* Query, key and value concatenated in the rows of one array, as a packed projection writes them. */
  static float packed[4][24], context[8][4];
  static double wide[32];
  const int64_t packed_strides[4] = {0, 0, 24, 1}, transposed[4] = {0, 0, 1, 4};
  static call c;
  int i;
  regard_runtime runtime;
  prepare(&c);
  for (i = 0; i < 32; ++i) {
    packed[i / 8][i % 8] = (float)kQuery[i];
    packed[i / 8][8 + i % 8] = (float)kKey[i];
    packed[i / 8][16 + i % 8] = (float)kValue[i];
  }
  c.query = input_of(packed[0], REGARD_F32, 4, kTokens);
  c.key = input_of(packed[0] + 8, REGARD_F32, 4, kTokens);
  c.value = input_of(packed[0] + 16, REGARD_F32, 4, kTokens);
  c.query.strides = c.key.strides = c.value.strides = packed_strides;
  memset(&c.outputs, 0, sizeof c.outputs);
  c.outputs.struct_size = sizeof c.outputs;
  c.outputs.context = output_of(context, REGARD_F32, 4, kTokens);
  c.outputs.context.strides = transposed;
  c.options.causal = 1;
  memset(&runtime, 0, sizeof runtime);
  runtime.struct_size = sizeof runtime;
  runtime.num_threads = 2;
  expect(regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &c.options, &runtime) == REGARD_OK, "f32");
  for (i = 0; i < 32; ++i) wide[i] = (double)context[i % 8][i / 8];
  expect_close(wide, kNewV, 32, 1e-6, "new V in f32");
  runtime.num_threads = -1;
  expect_error(regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &c.options, &runtime),
               "Runtime: num_threads is -1; expected 0 (the default number) or more");
}

/* Each option must match the softmax of correspondingly modified rows of kScaled, by plain loops. */
static void expect_softmax(call* c, double scores[16], const char* what) {
  double weights[16];
  int row, column;
  expect(forward(c) == REGARD_OK, what);
  for (row = 0; row < 4; ++row) {
    double sum = 0;
    for (column = 0; column < 4; ++column) sum += exp(scores[4 * row + column]);
    for (column = 0; column < 4; ++column) {
      weights[4 * row + column] = sum > 0 ? exp(scores[4 * row + column]) / sum : 0;
    }
  }
  expect_close(c->weights, weights, 16, 1e-7, what);
}

static int sees_prefix(int i, int j) { return j <= i || j < 3; }
static int sees_window(int i, int j) { return i - 1 <= j && j <= i + 2; }
static int sees_two(int i, int j) { return (void)i, j < 2; }
static int sees_offset(int i, int j) { return j <= i + 1; }
static int sees_own_half(int i, int j) { return i / 2 == j / 2; }
static int sees_nothing_in_row_1(int i, int j) { return (void)j, i != 1; }

static void expect_visible(call* c, int (*sees)(int, int), const char* what) {
  double scores[16];
  int i;
  for (i = 0; i < 16; ++i) scores[i] = sees(i / 4, i % 4) ? kScaled[i] : -INFINITY;
  expect_softmax(c, scores, what);
}

static void test_visibility_options(void) {
  static call c;
  const int64_t one[1] = {1}, two[1] = {2}, three[1] = {3}, starts_shape[1] = {3};
  const int64_t starts[3] = {0, 2, 4}, segments_shape[2] = {1, 4}, blocks[4] = {1, 1, 2, 2},
                mask_shape[4] = {1, 1, 4, 1};
  const int32_t segments[4] = {7, 7, 5, 5};
  const uint8_t block_mask[4] = {1, 0, 0, 1}, mask[4] = {1, 0, 1, 1};

  prepare(&c);
  c.options.causal = 1;
  c.options.prefix = input_of(three, REGARD_I64, 1, one);
  expect_visible(&c, sees_prefix, "prefix");

  prepare(&c);
  c.options.has_window_left = c.options.has_window_right = 1;
  c.options.window_left = 1;
  c.options.window_right = 2;
  expect_visible(&c, sees_window, "window");

  prepare(&c);
  c.options.key_lengths = input_of(two, REGARD_I64, 1, one);
  expect_visible(&c, sees_two, "key_lengths");

  prepare(&c);
  c.options.causal = 1;
  c.options.query_offset_kind = REGARD_OFFSET_VALUE;
  c.options.query_offset = 1;
  expect_visible(&c, sees_offset, "query_offset");
  c.options.query_offset_kind = REGARD_OFFSET_VALUES;
  c.options.query_offsets = input_of(one, REGARD_I64, 1, one);
  expect_visible(&c, sees_offset, "query_offsets");
  c.options.query_offset_kind = 5;
  expect_error(forward(&c), "attention_forward: query_offset_kind is 5; expected 0 to 4");

  prepare(&c);
  c.options.query_starts = input_of(starts, REGARD_I64, 1, starts_shape);
  c.options.key_starts = input_of(starts, REGARD_I64, 1, starts_shape);
  expect_visible(&c, sees_own_half, "packed sequences");

  prepare(&c);
  c.options.query_segments = input_of(segments, REGARD_I32, 2, segments_shape);
  c.options.key_segments = input_of(segments, REGARD_I32, 2, segments_shape);
  expect_visible(&c, sees_own_half, "segments");

  prepare(&c);
  c.options.block_mask = input_of(block_mask, REGARD_BOOL, 4, blocks);
  c.options.block_size[0] = c.options.block_size[1] = 2;
  expect_visible(&c, sees_own_half, "block_mask");

  prepare(&c);
  c.options.mask = input_of(mask, REGARD_BOOL, 4, mask_shape);
  expect_visible(&c, sees_nothing_in_row_1, "mask");
}

static void test_alignments(void) {
  static call c;
  const int64_t two_rows[4] = {1, 1, 2, 8}, two_by_four[4] = {1, 1, 2, 4};
  int offset, i;
  for (offset = 0; offset <= 2; offset += 2) {
    prepare(&c);
    memset(&c.outputs, 0, sizeof c.outputs);
    c.outputs.struct_size = sizeof c.outputs;
    c.outputs.context = output_of(c.context, REGARD_F64, 4, two_rows);
    c.outputs.weights = output_of(c.weights, REGARD_F64, 4, two_by_four);
    c.query.shape = two_rows;
    c.query.data = kQuery + 8 * offset;
    c.options.causal = 1;
    c.options.query_offset_kind = offset == 0 ? REGARD_OFFSET_TOP_LEFT : REGARD_OFFSET_BOTTOM_RIGHT;
    expect(forward(&c) == REGARD_OK, "alignment");
    expect_close(c.context, kNewV + 8 * offset, 16, 1.5e-8, "new V of two rows");
    for (i = 0; i < 8; ++i) {
      expect(fabs(c.weights[i] - kAttention[4 * offset + i]) < 1.5e-8, "attention of two rows");
    }
  }
}

static void test_score_options(void) {
  static call c;
  double scores[16], bias[4] = {0.5, -1, 0, 2}, slope[1] = {0.25}, sink[1] = {0.75};
  float bias_f32[4] = {0.5f, -1.0f, 0.0f, 2.0f};
  const int64_t bias_shape[4] = {1, 1, 1, 4}, one[1] = {1};
  int i;

  prepare(&c);
  c.options.bias = input_of(bias, REGARD_F64, 4, bias_shape);
  for (i = 0; i < 16; ++i) scores[i] = kScaled[i] + bias[i % 4];
  expect_softmax(&c, scores, "bias");
  c.options.bias = input_of(bias_f32, REGARD_F32, 4, bias_shape);
  expect_softmax(&c, scores, "bias in f32");

  prepare(&c);
  c.options.alibi_slopes = input_of(slope, REGARD_F64, 1, one);
  for (i = 0; i < 16; ++i) scores[i] = kScaled[i] - slope[0] * fabs((double)(i / 4 - i % 4));
  expect_softmax(&c, scores, "alibi_slopes");

  prepare(&c);
  c.options.has_scale = c.options.has_soft_cap = 1;
  c.options.scale = 1;
  c.options.soft_cap = 2;
  for (i = 0; i < 16; ++i) scores[i] = 2 * tanh(kScaled[i] * sqrt(8.0) / 2);
  expect_softmax(&c, scores, "scale and soft_cap");

  prepare(&c);
  c.options.sinks = input_of(sink, REGARD_F64, 1, one);
  expect(forward(&c) == REGARD_OK, "sinks");
  for (i = 0; i < 4; ++i) {
    const double* s = kScaled + 4 * i;
    const double sum = exp(s[0]) + exp(s[1]) + exp(s[2]) + exp(s[3]) + exp(sink[0]);
    expect(fabs(c.sink_weights[i] - exp(sink[0]) / sum) < 1e-7, "sink weight");
    expect(fabs(c.weights[4 * i] - exp(s[0]) / sum) < 1e-7, "weight of a row with a sink");
  }
}

static void test_linear(void) {
  const double input[6] = {1, 2, 3, 4, 5, 6}, parameters[6] = {1, 0, 2, -1, 0, 3}, bias[2] = {10, 20};
  const double expected[4] = {15, 27, 24, 33}, without_bias[4] = {5, 7, 14, 13};
  double output[4];
  const int64_t in[2] = {2, 3}, square[2] = {2, 2}, matrix[2] = {3, 2}, vector[1] = {2};
  const regard_input x = input_of(input, REGARD_F64, 2, in), w = input_of(parameters, REGARD_F64, 2, matrix);
  const regard_input b = input_of(bias, REGARD_F64, 1, vector);
  const regard_output y = output_of(output, REGARD_F64, 2, square);
  expect(regard_linear_forward(&x, &w, &b, &y, NULL) == REGARD_OK, "linear");
  expect_close(output, expected, 4, 0, "linear");
  expect(regard_linear_forward(&x, &w, NULL, &y, NULL) == REGARD_OK, "linear without bias");
  expect_close(output, without_bias, 4, 0, "linear without bias");
  expect_error(regard_linear_forward(&x, NULL, NULL, &y, NULL), "linear_forward: weight is missing");
}

/* Exact bf16 values, to bf16 and to f32. */
static void test_linear_of_bf16(void) {
  const float input[6] = {1, 2, 3, 4, 5, 6}, parameters[6] = {1, 0, 2, -1, 0, 3}, bias[2] = {10, 20};
  const float expected[4] = {15, 27, 24, 33};
  uint16_t input16[6] = {0}, parameters16[6] = {0}, bias16[2] = {0}, output16[4], half;
  float output[4];
  const int64_t in[2] = {2, 3}, square[2] = {2, 2}, matrix[2] = {3, 2}, vector[1] = {2};
  const regard_input x = input_of(input16, REGARD_BF16, 2, in), w = input_of(parameters16, REGARD_BF16, 2, matrix);
  const regard_input b = input_of(bias16, REGARD_BF16, 1, vector);
  const regard_output narrow = output_of(output16, REGARD_BF16, 2, square),
                      wide = output_of(output, REGARD_F32, 2, square);
  const regard_output other = output_of(output, REGARD_F64, 2, square);
  int i;
  for (i = 0; i < 6; ++i) upper_half(input[i], &input16[i]);
  for (i = 0; i < 6; ++i) upper_half(parameters[i], &parameters16[i]);
  for (i = 0; i < 2; ++i) upper_half(bias[i], &bias16[i]);
  expect(regard_linear_forward(&x, &w, &b, &wide, NULL) == REGARD_OK, "linear of bf16 to f32");
  expect(regard_linear_forward(&x, &w, &b, &narrow, NULL) == REGARD_OK, "linear of bf16");
  for (i = 0; i < 4; ++i) {
    upper_half(expected[i], &half);
    expect(output[i] == expected[i] && output16[i] == half, "linear of bf16");
  }
  expect_error(regard_linear_forward(&x, &w, &b, &other, NULL),
               "linear_forward: output has type float64; expected bfloat16");
}

/* Statistics, key mass and a map with one cell per (query, key) pair, compared with the weights. */
static void test_statistics_and_columns(void) {
  static call c, plain;
  static const int64_t chosen[2] = {0, 2}, two[1] = {2}, top_shape[4] = {1, 1, 4, 2}, heads[2] = {1, 1};
  int64_t top_keys[8];
  static const int64_t previous[2] = {-1, 0}, one_range[3] = {1, 1, 2};
  double top_weights[8], entropy[4], largest[4], chosen_weight[4], distance[4], means[4], mass[4], map[16], sum;
  double plain_chosen[4];
  regard_attention_statistics s;
  regard_columns_request request;
  regard_columns_outputs columns;
  int row, key;
  prepare(&c);
  prepare(&plain);
  c.options.causal = plain.options.causal = 1;
  expect(forward(&plain) == REGARD_OK, "forward");
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  s.chosen_keys = input_of(chosen, REGARD_I64, 1, two);
  s.top_keys = output_of(top_keys, REGARD_I64, 4, top_shape);
  s.top_weights = output_of(top_weights, REGARD_F64, 4, top_shape);
  s.entropy = output_of(entropy, REGARD_F64, 3, kRows);
  s.largest_weight = output_of(largest, REGARD_F64, 3, kRows);
  s.chosen_weight = output_of(chosen_weight, REGARD_F64, 3, kRows);
  s.mean_distance = output_of(distance, REGARD_F64, 3, kRows);
  s.head_entropy = output_of(&means[0], REGARD_F64, 2, heads);
  s.head_largest_weight = output_of(&means[1], REGARD_F64, 2, heads);
  s.head_chosen_weight = output_of(&means[2], REGARD_F64, 2, heads);
  s.head_mean_distance = output_of(&means[3], REGARD_F64, 2, heads);
  expect(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &s, &c.options, NULL) == REGARD_OK,
         "statistics");
  expect_close(c.context, plain.context, 32, 0, "context of a call with statistics");
  for (row = 0; row < 4; ++row) {
    const double* p = plain.weights + row * 4;
    double expected_entropy = 0, expected_distance = 0, best_weight = 0;
    int best_key = 0;
    for (key = 0; key < 4; ++key) {
      if (p[key] > 0) expected_entropy -= p[key] * log(p[key]);
      expected_distance += p[key] * (row - key);
      if (p[key] > best_weight) {
        best_weight = p[key];
        best_key = key;
      }
    }
    expect(top_keys[row * 2] == best_key && top_weights[row * 2] == best_weight && largest[row] == best_weight,
           "the largest");
    expect(row > 0 || (top_keys[1] == -1 && top_weights[1] == 0), "a missing key");
    expect(fabs(entropy[row] - expected_entropy) < 1e-14, "entropy");
    expect(fabs(chosen_weight[row] - (p[0] + p[2])) < 1e-15, "chosen keys");
    expect(fabs(distance[row] - expected_distance) < 1e-14, "distance");
    plain_chosen[row] = row > 0 ? p[row - 1] : 0;
  }
  expect(fabs(means[0] - (entropy[0] + entropy[1] + entropy[2] + entropy[3]) / 4) < 1e-14, "mean entropy");
  expect(fabs(means[1] - (largest[0] + largest[1] + largest[2] + largest[3]) / 4) < 1e-14, "mean largest");
  expect(fabs(means[2] - (chosen_weight[0] + chosen_weight[1] + chosen_weight[2] + chosen_weight[3]) / 4) < 1e-14,
         "mean chosen");
  expect(fabs(means[3] - (distance[0] + distance[1] + distance[2] + distance[3]) / 4) < 1e-14, "mean distance");

  s.chosen_ranges = input_of(previous, REGARD_I64, 3, one_range);
  s.chosen_origin = REGARD_FROM_POSITION;
  expect_error(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &s, &c.options, NULL),
               "attention_with_statistics: chosen_keys and chosen_ranges are given; expected only one of them");
  memset(&s.chosen_keys, 0, sizeof s.chosen_keys);
  expect(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &s, &c.options, NULL) == REGARD_OK,
         "the previous key");
  for (row = 0; row < 4; ++row) expect(chosen_weight[row] == plain_chosen[row], "the weight on the previous key");
  s.chosen_origin = 2;
  expect_error(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &s, &c.options, NULL),
               "attention_with_statistics: chosen_origin is 2; expected 0 or 1");
  s.chosen_origin = REGARD_FROM_KEY_ZERO;

  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.row_max = input_of(c.row_max, REGARD_F64, 3, kRows);
  request.row_sum = input_of(c.row_sum, REGARD_F64, 3, kRows);
  request.cells = REGARD_SUMS;
  memset(&columns, 0, sizeof columns);
  columns.struct_size = sizeof columns;
  columns.key_mass = output_of(mass, REGARD_F64, 3, kRows);
  columns.pooled_map = output_of(map, REGARD_F64, 4, kSquare);
  expect(regard_attention_columns(&c.query, &c.key, &request, &columns, &c.options, NULL) == REGARD_OK, "columns");
  expect_close(map, plain.weights, 16, 0, "one map cell per query and key");
  for (key = 0; key < 4; ++key) {
    for (sum = 0, row = 0; row < 4; ++row) sum += plain.weights[row * 4 + key];
    expect(fabs(mass[key] - sum) < 1e-15, "mass");
  }
  request.cells = 2;
  expect_error(regard_attention_columns(&c.query, &c.key, &request, &columns, &c.options, NULL),
               "attention_columns: cells is 2; expected 0 (means) or 1 (sums)");
  expect_error(regard_attention_columns(&c.query, &c.key, NULL, &columns, &c.options, NULL),
               "attention_columns: request is NULL");
  expect_error(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, NULL, NULL, NULL),
               "attention_with_statistics: statistics is NULL");
  s.top_keys.dtype = REGARD_I32;
  expect_error(regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &s, NULL, NULL),
               "attention_with_statistics: top_keys has type int32; expected int64");
}

/* A plan writes only itself; a runtime of the first version has no plan. */
static void test_plan(void) {
  static call c;
  regard_plan plan;
  regard_runtime runtime;
  int i;
  prepare(&c);
  memset(&runtime, 0, sizeof runtime);
  memset(&plan, 0x5a, sizeof plan);
  runtime.struct_size = sizeof runtime;
  runtime.num_threads = 1;
  runtime.plan = &plan;
  plan.struct_size = sizeof plan;
  for (i = 0; i < 32; ++i) c.context[i] = 7;
  expect(regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &c.options, &runtime) == REGARD_OK, "plan");
  for (i = 0; i < 32; ++i) expect(c.context[i] == 7, "a plan computes nothing");
  expect(plan.operations >= 2.0 * 16 * 16 && plan.bytes > 0 && plan.workspace_bytes > 0, "figures of the plan");
  expect(plan.num_threads == 1 && strlen(plan.instruction_set) > 0 && strlen(plan.why) > 0, "words of the plan");
  expect(strncmp(plan.strategy, "attention_forward: ", 19) == 0, "the strategy");
  plan.struct_size = 8;
  expect(
      regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &c.options, &runtime) == REGARD_INVALID_ARGUMENT,
      "a plan that is too short");
}

/* If pairs of bf16 are multiplied, weights remain f32 for a context of f32 and are rounded on request; otherwise they
 * are never rounded. */
static void test_weights_in_float32(void) {
  static call c;
  float query[32], key[32], value[32], exact[32], rounded[32], kept[32], again[32];
  uint16_t query16[32] = {0}, key16[32] = {0}, value16[32] = {0};
  double rounded_error = 0, kept_error = 0;
  int i;
  prepare(&c);
  memset(&c.outputs, 0, sizeof c.outputs);
  c.outputs.struct_size = sizeof c.outputs;
  for (i = 0; i < 32; ++i) {
    query[i] = upper_half(kQuery[i], &query16[i]);
    key[i] = upper_half(kKey[i], &key16[i]);
    value[i] = upper_half(kValue[i], &value16[i]);
  }
  c.query = input_of(query, REGARD_F32, 4, kTokens);
  c.key = input_of(key, REGARD_F32, 4, kTokens);
  c.value = input_of(value, REGARD_F32, 4, kTokens);
  c.outputs.context = output_of(exact, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "converted to float by the caller");
  c.query = input_of(query16, REGARD_BF16, 4, kTokens);
  c.key = input_of(key16, REGARD_BF16, 4, kTokens);
  c.value = input_of(value16, REGARD_BF16, 4, kTokens);
  c.outputs.context = output_of(kept, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "weights stay float by default");
  c.options.weights_in_float32 = 1;
  c.outputs.context = output_of(again, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK && memcmp(again, kept, sizeof again) == 0, "the same on request");
  c.options.weights_in_float32 = -1;
  c.outputs.context = output_of(rounded, REGARD_F32, 4, kTokens);
  expect(forward(&c) == REGARD_OK, "rounded weights");
  c.options.weights_in_float32 = 2;
  expect_error(forward(&c), "attention_forward: options->weights_in_float32 is 2; expected -1, 0 or 1");
  for (i = 0; i < 32; ++i) {
    rounded_error += fabs(rounded[i] - exact[i]);
    kept_error += fabs(kept[i] - exact[i]);
  }
  expect(kept_error < 1e-4, "float weights keep the context of f32");
  expect(rounded_error == 0 || kept_error < rounded_error / 8, "float weights are more accurate");
}

static void test_empty_arrays(void) {
  static call c;
  const int64_t no_keys[4] = {1, 1, 0, 8}, nobody[4] = {0, 1, 4, 8};
  int i;
  prepare(&c);
  memset(&c.outputs, 0, sizeof c.outputs);
  c.outputs.struct_size = sizeof c.outputs;
  c.outputs.context = output_of(c.context, REGARD_F64, 4, kTokens);
  c.key = input_of(NULL, REGARD_F64, 4, no_keys);
  c.value = input_of(NULL, REGARD_F64, 4, no_keys);
  for (i = 0; i < 32; ++i) c.context[i] = 7;
  expect(forward(&c) == REGARD_OK, "no keys, null data");
  for (i = 0; i < 32; ++i) expect(c.context[i] == 0 && !signbit(c.context[i]), "a row without keys is +0");

  c.query = c.key = c.value = input_of(NULL, REGARD_F64, 4, nobody);
  c.outputs.context = output_of(NULL, REGARD_F64, 4, nobody);
  expect(forward(&c) == REGARD_OK, "no batch entries");
}

static void test_errors(void) {
  static call c;
  static struct {
    regard_attention_options options;
    int64_t later;
  } newer;
  char expected[200];
  const int64_t other[4] = {1, 1, 4, 7}, negative[4] = {1, 1, -4, 8}, huge[4] = {1, 1, INT64_MAX, 8};
  const int64_t one[1] = {1}, strided[1] = {2}, two[1] = {2};
  char misaligned[1 + sizeof(double)];

  prepare(&c);
  c.query.data = NULL;
  expect_error(forward(&c), "attention_forward: query is null; expected memory for shape (1, 1, 4, 8)");
  prepare(&c);
  c.query.dtype = REGARD_I32;
  expect_error(forward(&c), "attention_forward: query has type int32; expected float32, bfloat16 or float16");
  prepare(&c);
  c.key.dtype = REGARD_F32;
  expect_error(forward(&c), "attention_forward: key has type float32; expected float64");
  c.key.dtype = 77;
  expect_error(forward(&c), "attention_forward: key has type 77; expected float64");
  prepare(&c);
  c.value.rank = 3;
  expect_error(forward(&c), "attention_forward: value has rank 3; expected 4");
  prepare(&c);
  c.value.shape = NULL;
  expect_error(forward(&c), "attention_forward: value has no shape");
  prepare(&c);
  c.key.shape = negative;
  expect_error(forward(&c), "attention_forward: key has shape (1, 1, -4, 8); extents must not be negative");
  c.key.shape = huge;
  expect(forward(&c) == REGARD_INVALID_ARGUMENT, "a size beyond 63 bits");
  c.key.shape = other;
  expect(forward(&c) == REGARD_INVALID_ARGUMENT && strstr(regard_last_error(), "(1, 1, 4, 7)") != NULL &&
             strstr(regard_last_error(), "(1, 1, 4, 8)") != NULL,
         "both shapes are named");
  prepare(&c);
  memset(&c.outputs.context, 0, sizeof c.outputs.context);
  expect_error(forward(&c), "attention_forward: context is missing");
  prepare(&c);
  c.outputs.context.data = c.weights;
  expect(forward(&c) == REGARD_INVALID_ARGUMENT && strstr(regard_last_error(), "overlaps") != NULL, "overlap");
  prepare(&c);
  expect_error(regard_attention_forward(NULL, &c.key, &c.value, &c.outputs, NULL, NULL),
               "attention_forward: query is missing");
  expect_error(regard_attention_forward(&c.query, &c.key, &c.value, NULL, NULL, NULL),
               "attention_forward: outputs is NULL");
  c.options.sinks = input_of(kKey, REGARD_F64, 1, one);
  c.options.sinks.shape = two;
  c.options.sinks.strides = strided;
  expect_error(forward(&c), "attention_forward: sinks has 2 entries; expected 1, one per query head");
  memcpy(misaligned + 1, kKey, sizeof(double));
  c.options.sinks = input_of(misaligned + 1, REGARD_F64, 1, one);
  expect(forward(&c) == REGARD_OK, "a sink that is not aligned");

  prepare(&c);
  c.options.struct_size = 8;
  sprintf(expected, "attention_forward: options->struct_size is 8; expected %lu or more",
          (unsigned long)sizeof c.options);
  expect_error(forward(&c), expected);
  expect(regard_attention_options_init(&c.options, 8) == REGARD_INVALID_ARGUMENT, "a struct that is too short");
  expect(regard_attention_options_init(NULL, sizeof c.options) == REGARD_INVALID_ARGUMENT, "no struct");

  /* A caller compiled with a later version, which first leaves its new field zero and then sets it. */
  prepare(&c);
  newer.later = 3;
  expect(regard_attention_options_init(&newer.options, sizeof newer) == REGARD_OK && newer.later == 0, "longer struct");
  newer.options.causal = 1;
  expect(regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &newer.options, NULL) == REGARD_OK,
         "an unused later field");
  expect_close(c.context, kNewV, 32, 1.5e-8, "new V through a longer struct");
  newer.later = 1;
  expect(
      regard_attention_forward(&c.query, &c.key, &c.value, &c.outputs, &newer.options, NULL) == REGARD_INVALID_ARGUMENT,
      "a later field in use");

  /* A later success does not change the message. */
  prepare(&c);
  c.value.rank = 3;
  expect(forward(&c) == REGARD_INVALID_ARGUMENT, "rank");
  c.value.rank = 4;
  expect(forward(&c) == REGARD_OK, "rank 4");
  expect(strcmp(regard_last_error(), "attention_forward: value has rank 3; expected 4") == 0, "the text stays");
}

/* Each input of each operator, with each type that an f64 call does not accept. */
static void test_types_of_every_argument(void) {
  static call c;
  static double rows[4], gradient[32];
  uint32_t unchecked[REGARD_FINGERPRINT_WORDS];
  regard_weights_request weights;
  regard_columns_request columns;
  regard_columns_outputs column_outputs;
  regard_attention_statistics statistics;
  regard_attention_saved saved;
  regard_attention_gradients gradients;
  const int32_t wrong[4] = {REGARD_F32, REGARD_BF16, REGARD_F16, 17};
  const char* const text[4] = {"float32", "bfloat16", "float16", "17"};
  const char* const names[5] = {"attention_forward", "attention_with_statistics", "attention_weights",
                                "attention_columns", "attention_backward"};
  char expected[200];
  int op, argument, i;
  prepare(&c);
  memset(&weights, 0, sizeof weights);
  memset(&columns, 0, sizeof columns);
  memset(&column_outputs, 0, sizeof column_outputs);
  memset(&statistics, 0, sizeof statistics);
  memset(&saved, 0, sizeof saved);
  memset(&gradients, 0, sizeof gradients);
  memset(unchecked, 0xff, sizeof unchecked);
  weights.struct_size = sizeof weights;
  columns.struct_size = sizeof columns;
  column_outputs.struct_size = sizeof column_outputs;
  statistics.struct_size = sizeof statistics;
  saved.struct_size = sizeof saved;
  gradients.struct_size = sizeof gradients;
  weights.row_max = columns.row_max = saved.row_max = input_of(c.row_max, REGARD_F64, 3, kRows);
  weights.row_sum = columns.row_sum = saved.row_sum = input_of(c.row_sum, REGARD_F64, 3, kRows);
  column_outputs.key_mass = output_of(rows, REGARD_F64, 3, kRows);
  statistics.entropy = output_of(rows, REGARD_F64, 3, kRows);
  saved.fingerprint = unchecked;
  saved.context = saved.grad_context = input_of(kValue, REGARD_F64, 4, kTokens);
  gradients.grad_query = output_of(gradient, REGARD_F64, 4, kTokens);
  for (op = 0; op < 5; ++op) {
    struct {
      const char* name;
      regard_input* array;
    } arguments[4] = {
        {"key", &c.key}, {"value", &c.value}, {"context", &saved.context}, {"grad_context", &saved.grad_context}};
    const int num_arguments = op == 4 ? 4 : op < 2 ? 2 : 1;
    for (argument = 0; argument < num_arguments; ++argument) {
      for (i = 0; i < 4; ++i) {
        int32_t status = REGARD_OK;
        arguments[argument].array->dtype = wrong[i];
        if (op == 0) status = forward(&c);
        if (op == 1)
          status = regard_attention_with_statistics(&c.query, &c.key, &c.value, &c.outputs, &statistics, NULL, NULL);
        if (op == 2) status = regard_attention_weights(&c.query, &c.key, &weights, &c.outputs.weights, NULL, NULL);
        if (op == 3) status = regard_attention_columns(&c.query, &c.key, &columns, &column_outputs, NULL, NULL);
        if (op == 4) status = regard_attention_backward(&c.query, &c.key, &c.value, &saved, &gradients, NULL, NULL);
        sprintf(expected, "%s: %s has type %s; expected float64", names[op], arguments[argument].name, text[i]);
        expect_error(status, expected);
        arguments[argument].array->dtype = REGARD_F64;
      }
    }
  }
}

int main(void) {
  test_version_and_errors_of_no_call();
  test_document_002();
  test_types_of_two_bytes();
  test_weights_and_scores_of_chosen_rows();
  test_f32_and_strides();
  test_visibility_options();
  test_alignments();
  test_score_options();
  test_linear();
  test_linear_of_bf16();
  test_statistics_and_columns();
  test_plan();
  test_weights_in_float32();
  test_empty_arrays();
  test_errors();
  test_types_of_every_argument();
  printf("%d failures\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
