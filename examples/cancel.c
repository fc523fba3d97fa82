/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in C99, on threads that the caller provides, followed by a second call that another thread cancels.
 *
 *   executor(count, task)   runs task(0) … task(count - 1) on four threads, which take indices from a shared counter
 *   regard_stop             a timer thread requests the stop; the call then returns REGARD_CANCELLED within 20 ms
 */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <regard/c_api.h>

enum { kThreads = 4 };

typedef struct {
  pthread_mutex_t mutex;
  int64_t next, count;
  void (*task)(void*, int64_t);
  void* task_data;
} Job;

static void* work(void* argument) {
  Job* job = argument;
  for (;;) {
    int64_t i;
    pthread_mutex_lock(&job->mutex);
    i = job->next++;
    pthread_mutex_unlock(&job->mutex);
    if (i >= job->count) return NULL;
    job->task(job->task_data, i);
  }
}

static void run_on_threads(void* calls, int64_t count, void (*task)(void*, int64_t), void* task_data) {
  Job job = {PTHREAD_MUTEX_INITIALIZER, 0, count, task, task_data};
  pthread_t threads[kThreads];
  int started = 0;
  while (started < kThreads - 1 && pthread_create(&threads[started], NULL, work, &job) == 0) ++started;
  work(&job);
  while (started > 0) pthread_join(threads[--started], NULL);
  ++*(int*)calls;
}

static void* stop_soon(void* stop) {
  const struct timespec moment = {0, 50 * 1000 * 1000};
  nanosleep(&moment, NULL);
  regard_stop_request(stop);
  return NULL;
}

/* Causal self-attention over `rows` rows; query, key and value are the same array. */
static int32_t attend(const float* x, float* context, int64_t rows, const regard_runtime* runtime) {
  const int64_t shape[4] = {1, 1, rows, 64};
  const regard_input input = {x, REGARD_F32, 4, shape, NULL};
  regard_attention_outputs outputs;
  regard_attention_options options;
  memset(&outputs, 0, sizeof outputs);
  outputs.struct_size = sizeof outputs;
  outputs.context.data = context;
  outputs.context.dtype = REGARD_F32;
  outputs.context.rank = 4;
  outputs.context.shape = shape;
  regard_attention_options_init(&options, sizeof options);
  options.causal = 1;
  return regard_attention_forward(&input, &input, &input, &outputs, &options, runtime);
}

int main(void) {
  const int64_t rows = 200000, few = 1000;
  float* x = malloc((size_t)(rows * 64) * sizeof *x);
  float* context = malloc((size_t)(rows * 64) * sizeof *context);
  float* alone = malloc((size_t)(few * 64) * sizeof *alone);
  int calls = 0, failed = 1;
  pthread_t timer;
  regard_stop* stop = NULL;
  regard_runtime runtime;
  if (x == NULL || context == NULL || alone == NULL) goto out;
  for (int64_t i = 0; i < rows * 64; ++i) x[i] = sinf(0.3F * (float)(i % 9973));

  memset(&runtime, 0, sizeof runtime);
  runtime.struct_size = sizeof runtime;
  runtime.num_threads = kThreads;
  runtime.executor = run_on_threads;
  runtime.executor_data = &calls;
  if (attend(x, context, few, &runtime) != REGARD_OK || attend(x, alone, few, NULL) != REGARD_OK) goto out;
  printf("the executor ran: %s\n", calls > 0 ? "yes" : "no");
  printf("result compared with the library's own threads: %s\n",
         memcmp(context, alone, (size_t)(few * 64) * sizeof *alone) == 0 ? "the same bits" : "different bits");

  /* Processing 200,000 rows would take minutes; the timer cancels the call after 50 ms. */
  if (regard_stop_create(&stop) != REGARD_OK) goto out;
  runtime.stop = stop;
  if (pthread_create(&timer, NULL, stop_soon, stop) != 0) goto out;
  const int32_t status = attend(x, context, rows, &runtime);
  pthread_join(timer, NULL);
  printf("the long call: %s\n", status == REGARD_CANCELLED ? "cancelled" : "not cancelled");
  failed = 0;

out:
  if (failed) fprintf(stderr, "cancel: %s\n", regard_last_error());
  regard_stop_free(stop);
  free(alone);
  free(context);
  free(x);
  return failed;
}

/* Prints:
 *   the executor ran: yes
 *   result compared with the library's own threads: the same bits
 *   the long call: cancelled
 */
