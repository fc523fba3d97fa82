/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of the C interface: the inputs of the notebook "Self Attention in Transformers"
 * (document 002), a call with all outputs, and expectations that print what failed. Read next: c_api_test.c. */
#pragma once

#include "regard/c_api.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Inputs as printed in the notebook: 4 tokens of 8 values. */
static const double kQuery[32] = {
    -0.50598333, 0.59287364, -0.64212808, -0.17667384, 1.78683356,  -0.03810015, -2.79906259, -0.87436271,
    -1.1635331,  0.39761587, 0.7502223,   -0.19290089, -0.27755457, -0.7598107,  0.88142972,  -0.44349095,
    -0.28506127, -2.0400416, -1.96026798, -0.63174484, 0.49923543,  -0.57036319, 1.49095731,  0.89803188,
    -1.62443852, 1.453917,   -1.49314297, 0.95953202,  -1.60815407, 0.1632695,   -0.98389182, -1.1222311};
static const double kKey[32] = {
    -1.58265754, 0.76202182,  2.32828504, 0.50024378,  -0.38254118, 2.16603257,  -0.53065346, -0.19447538,
    0.59827253,  0.12909976,  0.10836157, -0.15652026, -0.33419576, 0.25269797,  0.76630028,  0.37939898,
    -2.36337659, -0.03495578, 1.25475903, 0.10300347,  1.11828814,  0.16100326,  0.49260405,  0.29632038,
    -0.05618466, -0.58816675, 0.46506258, -0.04566082, 1.33489973,  -0.43446506, 0.37468388,  -0.33398102};
static const double kValue[32] = {-2.33028699e+00, 4.18506262e-01,  1.57360937e+00,  1.37308738e-01,  8.52094837e-01,
                                  6.58167848e-01,  -4.12112209e-01, -2.52690046e-03, -2.40477900e+00, -8.15979439e-01,
                                  -8.21925214e-01, 1.41383638e-01,  -4.26737879e-01, -1.62771803e+00, 5.56628997e-01,
                                  -9.50161423e-01, 5.69531565e-01,  1.16653634e+00,  -7.47385138e-01, -6.12570059e-01,
                                  4.95602990e-01,  1.32665094e-01,  -6.74559168e-01, -3.76896324e-01, 9.61138903e-01,
                                  1.44294896e-01,  3.01901776e-01,  3.20771720e+00,  -6.38903868e-01, -5.71129671e-01,
                                  -5.16128064e-01, -1.32604188e+00};

static int num_failures = 0;

static void expect(int holds, const char* what) {
  if (!holds) {
    printf("failed: %s (last error: %s)\n", what, regard_last_error());
    ++num_failures;
  }
}

static void expect_close(const double* actual, const double* expected, int count, double tolerance, const char* what) {
  int i;
  for (i = 0; i < count; ++i) {
    if (!(fabs(actual[i] - expected[i]) <= tolerance)) {
      printf("failed: %s[%d] is %.10g, expected %.10g\n", what, i, actual[i], expected[i]);
      ++num_failures;
    }
  }
}

static void expect_error(int32_t status, const char* text) {
  if (status != REGARD_INVALID_ARGUMENT || strcmp(regard_last_error(), text) != 0) {
    printf("failed: status %d, \"%s\", expected \"%s\"\n", (int)status, regard_last_error(), text);
    ++num_failures;
  }
}

static const int64_t kTokens[4] = {1, 1, 4, 8};
static const int64_t kSquare[4] = {1, 1, 4, 4};
static const int64_t kRows[3] = {1, 1, 4};

static regard_input input_of(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  regard_input array;
  array.data = data;
  array.dtype = dtype;
  array.rank = rank;
  array.shape = shape;
  array.strides = NULL;
  return array;
}

static regard_output output_of(void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  regard_output array;
  array.data = data;
  array.dtype = dtype;
  array.rank = rank;
  array.shape = shape;
  array.strides = NULL;
  return array;
}

/* The common setup of all tests. */
typedef struct call {
  regard_input query, key, value;
  regard_attention_options options;
  regard_attention_outputs outputs;
  double context[32], weights[16], row_max[4], row_sum[4], lse[4], sink_weights[4];
} call;

static void prepare(call* c) {
  memset(c, 0, sizeof *c);
  c->query = input_of(kQuery, REGARD_F64, 4, kTokens);
  c->key = input_of(kKey, REGARD_F64, 4, kTokens);
  c->value = input_of(kValue, REGARD_F64, 4, kTokens);
  expect(regard_attention_options_init(&c->options, sizeof c->options) == REGARD_OK, "options_init");
  c->outputs.struct_size = sizeof c->outputs;
  c->outputs.context = output_of(c->context, REGARD_F64, 4, kTokens);
  c->outputs.weights = output_of(c->weights, REGARD_F64, 4, kSquare);
  c->outputs.row_max = output_of(c->row_max, REGARD_F64, 3, kRows);
  c->outputs.row_sum = output_of(c->row_sum, REGARD_F64, 3, kRows);
  c->outputs.lse = output_of(c->lse, REGARD_F64, 3, kRows);
  c->outputs.sink_weights = output_of(c->sink_weights, REGARD_F64, 3, kRows);
}

static int32_t forward(call* c) {
  return regard_attention_forward(&c->query, &c->key, &c->value, &c->outputs, &c->options, NULL);
}
