/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward passes from C99: gradients of attention, with a mask, a bias and dropout, compared with central
 * differences of regard_attention_forward; gradients of a linear layer. Prints failures; exits with 1 if there are any.
 * Read next: c_api_test.c. */
#include <stddef.h>

#include "support/c_calls.h"

/* The loss of test_backward: the context weighted by kQuery, and lse. */
static double loss(call* c) {
  double sum = 0;
  int i;
  expect(forward(c) == REGARD_OK, "forward of a loss");
  for (i = 0; i < 32; ++i) sum += kQuery[i] * c->context[i];
  for (i = 0; i < 4; ++i) sum += c->lse[i];
  return sum;
}

static void test_backward(void) {
  static call c;
  uint32_t fingerprint[REGARD_FINGERPRINT_WORDS];
  const double ones[4] = {1, 1, 1, 1};
  double moved[3][32], gradients[3][32], bias[4] = {0.5, -0.25, 0, 1}, grad_bias[4], of_value[32];
  double* inputs[4];
  const int64_t bias_shape[4] = {1, 1, 1, 4};
  const double step = 1e-5;
  regard_attention_saved saved;
  regard_attention_gradients g;
  int n, i;
  prepare(&c);
  for (i = 0; i < 32; ++i) {
    moved[0][i] = kQuery[i];
    moved[1][i] = kKey[i];
    moved[2][i] = kValue[i];
  }
  for (n = 0; n < 3; ++n) inputs[n] = moved[n];
  inputs[3] = bias;
  c.query.data = moved[0];
  c.key.data = moved[1];
  c.value.data = moved[2];
  c.options.causal = 1;
  c.options.bias = input_of(bias, REGARD_F64, 4, bias_shape);
  c.options.dropout = 0.25;
  c.options.dropout_seed = 7;
  c.options.dropout_first[1] = 2;
  c.options.dropout_first[2] = 11;
  c.outputs.fingerprint = fingerprint;
  loss(&c);
  memset(&saved, 0, sizeof saved);
  memset(&g, 0, sizeof g);
  saved.struct_size = sizeof saved;
  g.struct_size = sizeof g;
  saved.context = input_of(c.context, REGARD_F64, 4, kTokens);
  saved.row_max = input_of(c.row_max, REGARD_F64, 3, kRows);
  saved.row_sum = input_of(c.row_sum, REGARD_F64, 3, kRows);
  saved.grad_context = input_of(kQuery, REGARD_F64, 4, kTokens);
  saved.grad_lse = input_of(ones, REGARD_F64, 3, kRows);
  saved.fingerprint = fingerprint;
  g.grad_query = output_of(gradients[0], REGARD_F64, 4, kTokens);
  g.grad_key = output_of(gradients[1], REGARD_F64, 4, kTokens);
  g.grad_value = output_of(gradients[2], REGARD_F64, 4, kTokens);
  g.grad_bias = output_of(grad_bias, REGARD_F64, 4, bias_shape);
  expect(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL) == REGARD_OK, "backward");
  for (n = 0; n < 4; ++n) {
    for (i = 0; i < (n == 3 ? 4 : 32); ++i) {
      const double x = inputs[n][i];
      double difference, above;
      inputs[n][i] = x + step;
      above = loss(&c);
      inputs[n][i] = x - step;
      difference = (above - loss(&c)) / (2 * step);
      inputs[n][i] = x;
      expect_close(n == 3 ? &grad_bias[i] : &gradients[n][i], &difference, 1, 1e-8, "a gradient");
    }
  }
  memset(&g.grad_query, 0, sizeof g.grad_query);
  g.grad_key = output_of(NULL, 0, 0, NULL);
  g.grad_value = output_of(of_value, REGARD_F64, 4, kTokens);
  loss(&c);
  expect(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL) == REGARD_OK,
         "one of them");
  expect_close(of_value, gradients[2], 32, 0, "grad_value alone");
  g.accumulate = REGARD_GRAD_VALUE;
  expect(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL) == REGARD_OK,
         "one of them, accumulated");
  for (i = 0; i < 32; ++i) expect(of_value[i] == 2 * gradients[2][i], "a gradient added to itself");
  g.accumulate = REGARD_GRAD_WEIGHT;
  expect_error(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL),
               "attention_backward: accumulate is 64; expected a sum of the flags within 31");
  g.accumulate = 0;

  /* Options of another call; no comparison; a caller compiled before fingerprints existed. */
  c.options.causal = 0;
  expect_error(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL),
               "attention_backward: causal differs from the forward call that wrote the fingerprint; expected the same "
               "options");
  c.options.causal = 1;
  c.options.dropout_first[1] = 0;
  expect_error(
      regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL),
      "attention_backward: dropout, dropout_seed or dropout_first differs from the forward call that wrote the "
      "fingerprint; expected the same options");
  c.options.dropout_first[1] = 2;
  saved.fingerprint = NULL;
  expect_error(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL),
               "attention_backward: fingerprint is missing; expected the one written by attention_forward");
  memset(fingerprint, 0xff, sizeof fingerprint);
  saved.fingerprint = fingerprint;
  expect(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL) == REGARD_OK,
         "a fingerprint that is not compared");

  saved.row_sum.data = NULL;
  saved.row_sum.dtype = saved.row_sum.rank = 0;
  saved.row_sum.shape = NULL;
  expect_error(regard_attention_backward(&c.query, &c.key, &c.value, &saved, &g, &c.options, NULL),
               "attention_backward: row_sum is missing; expected (1, 1, 4) as written by attention_forward");
}

/* The tests of C++ and Python check the same number. */
static void test_fingerprint(void) {
  static call c;
  uint32_t fingerprint[REGARD_FINGERPRINT_WORDS] = {0}, words = 0;
  int i;
  prepare(&c);
  c.options.causal = c.options.has_scale = c.options.has_window_left = 1;
  c.options.scale = 0.5;
  c.options.window_left = 2;
  c.outputs.fingerprint = fingerprint;
  expect(forward(&c) == REGARD_OK, "a fingerprint");
  for (i = 0; i < REGARD_FINGERPRINT_WORDS; ++i) words = words * 31 + fingerprint[i];
  expect(words == 3612598065u, "the fingerprint");
}

static void test_linear_backward(void) {
  const double input[6] = {1, 2, 3, 4, 5, 6}, parameters[6] = {1, 0, 2, -1, 0, 3}, grad[4] = {1, 2, 3, 4};
  const double of_input[6] = {1, 0, 6, 3, 2, 12}, of_parameters[6] = {13, 18, 17, 24, 21, 30}, of_bias[2] = {4, 6};
  double dx[6], dw[6], db[2];
  const int64_t in[2] = {2, 3}, square[2] = {2, 2}, matrix[2] = {3, 2}, vector[1] = {2};
  const regard_input x = input_of(input, REGARD_F64, 2, in), w = input_of(parameters, REGARD_F64, 2, matrix);
  const regard_input dy = input_of(grad, REGARD_F64, 2, square);
  regard_linear_gradients g;
  int i;
  memset(&g, 0, sizeof g);
  g.struct_size = sizeof g;
  g.grad_input = output_of(dx, REGARD_F64, 2, in);
  g.grad_weight = output_of(dw, REGARD_F64, 2, matrix);
  g.grad_bias = output_of(db, REGARD_F64, 1, vector);
  expect(regard_linear_backward(&x, &w, &dy, &g, NULL) == REGARD_OK, "linear backward");
  expect_close(dx, of_input, 6, 0, "grad_input");
  expect_close(dw, of_parameters, 6, 0, "grad_weight");
  expect_close(db, of_bias, 2, 0, "grad_bias");
  /* Again, accumulated, except for grad_input. */
  g.accumulate = REGARD_GRAD_WEIGHT | REGARD_GRAD_BIAS;
  expect(regard_linear_backward(&x, &w, &dy, &g, NULL) == REGARD_OK, "linear backward, accumulated");
  for (i = 0; i < 6; ++i) expect(dx[i] == of_input[i] && dw[i] == 2 * of_parameters[i], "a sum of gradients");
  expect(db[0] == 8 && db[1] == 12, "sums of grad_bias");
  g.accumulate = REGARD_GRAD_WEIGHT | REGARD_GRAD_KEY;
  expect_error(regard_linear_backward(&x, &w, &dy, &g, NULL),
               "linear_backward: accumulate is 66; expected a sum of the flags within 104");
  g.accumulate = 0;
  expect_error(regard_linear_backward(NULL, &w, &dy, &g, NULL),
               "linear_backward: input is missing; expected (2, 3) for grad_weight");
}

int main(void) {
  test_backward();
  test_fingerprint();
  test_linear_backward();
  printf("%d failures\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
