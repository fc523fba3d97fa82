/* SPDX-License-Identifier: Apache-2.0
 *
 * A C99 program that finds Regard through pkg-config. For a query that is orthogonal to four keys, the context is the
 * average of the values, 2.5; a head size of 0 is rejected with a message. Prints the version.
 * Read next: ../run.sh, and regard/c_api.h for the full interface. */
#include <regard/c_api.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const float query[2] = {0.0f, 0.0f}, key[8] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
  const float value[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  float context[1] = {0.0f};
  const int64_t query_shape[4] = {1, 1, 1, 2}, key_shape[4] = {1, 1, 4, 2}, value_shape[4] = {1, 1, 4, 1};
  const int64_t context_shape[4] = {1, 1, 1, 1}, empty_shape[4] = {1, 1, 1, 0};
  regard_input q, k, v;
  regard_attention_outputs outputs;

  memset(&q, 0, sizeof q);
  q.data = query;
  q.dtype = REGARD_F32;
  q.rank = 4;
  q.shape = query_shape;
  k = q;
  k.data = key;
  k.shape = key_shape;
  v = q;
  v.data = value;
  v.shape = value_shape;
  memset(&outputs, 0, sizeof outputs);
  outputs.struct_size = sizeof outputs;
  outputs.context.data = context;
  outputs.context.dtype = REGARD_F32;
  outputs.context.rank = 4;
  outputs.context.shape = context_shape;

  if (regard_attention_forward(&q, &k, &v, &outputs, NULL, NULL) != REGARD_OK || context[0] != 2.5f) {
    printf("the average of 1, 2, 3, 4 is not %f: %s\n", (double)context[0], regard_last_error());
    return 1;
  }
  q.shape = empty_shape;
  if (regard_attention_forward(&q, &k, &v, &outputs, NULL, NULL) != REGARD_INVALID_ARGUMENT || !*regard_last_error()) {
    puts("a head size of 0 was accepted");
    return 1;
  }
  puts(regard_version());
  return 0;
}
