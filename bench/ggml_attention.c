// SPDX-License-Identifier: Apache-2.0
//
// ggml's flash attention on the arrays of bench/competitors.py: a graph of one node, which is planned once and computed
// many times.
//
//   query (heads, queries, depth), key and value (key_heads, keys, depth), all f32  ──▶  output (queries, heads, depth)
//
// A causal mask is a dense f16 matrix, the only form that ggml supports. Compiled by bench/run_benchmarks next to the
// library that the sdist of llama-cpp-python builds. Read next: competitors.py.
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct attention {
  struct ggml_context* context;
  struct ggml_cgraph* graph;
  struct ggml_cplan plan;
};

static struct ggml_tensor* matrix(struct ggml_context* c, void* data, int64_t depth, int64_t rows, int64_t heads) {
  struct ggml_tensor* tensor = ggml_new_tensor_3d(c, GGML_TYPE_F32, depth, rows, heads);
  tensor->data = data;
  return tensor;
}

void* ggml_attention_new(void* query, void* key, void* value, void* output, const int64_t* extents, int causal,
                         int threads) {
  const int64_t heads = extents[0], key_heads = extents[1], queries = extents[2], keys = extents[3], depth = extents[4];
  ggml_cpu_init();
  struct attention* a = malloc(sizeof *a);
  a->context = ggml_init((struct ggml_init_params){.mem_size = 1 << 22, .mem_buffer = NULL, .no_alloc = true});
  struct ggml_tensor* mask = NULL;
  if (causal) {
    mask = ggml_new_tensor_2d(a->context, GGML_TYPE_F16, keys, queries);
    ggml_fp16_t* cell = mask->data = malloc((size_t)(keys * queries) * sizeof *cell);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) *cell++ = ggml_fp32_to_fp16(j <= i + keys - queries ? 0.0f : -INFINITY);
  }
  struct ggml_tensor* node = ggml_flash_attn_ext(
      a->context, matrix(a->context, query, depth, queries, heads), matrix(a->context, key, depth, keys, key_heads),
      matrix(a->context, value, depth, keys, key_heads), mask, 1.0f / sqrtf((float)depth), 0, 0);
  node->data = output;
  a->graph = ggml_new_graph(a->context);
  ggml_build_forward_expand(a->graph, node);
  a->plan = ggml_graph_plan(a->graph, threads, NULL);
  a->plan.work_data = malloc(a->plan.work_size + 64);
  return a;
}

int ggml_attention_compute(void* attention) {
  struct attention* a = attention;
  return ggml_graph_compute(a->graph, &a->plan);
}
