// SPDX-License-Identifier: Apache-2.0
//
// What bench/compare.py measures and the C interface lacks: caches, the column sums, and how much memory a call takes.
//
//     workload ─┬─ regard_bench_forward    attention_forward, its workspace counted
//              ├─ regard_bench_calls      the same many times, as a program in C++ calls it
//              ├─ regard_bench_columns    attention_columns after it
//              ├─ regard_bench_statistics attention_with_statistics
//              └─ regard_bench_cache  ──▶ regard_bench_decode
//
// Arrays are dense: query and context (1, heads, queries, depth), key and value (1, key_heads, keys, depth), row_max
// and row_sum (1, heads, queries). Read next: c_api.h, operators.cpp.
#pragma once

#include <cstdint>

extern "C" {
enum regard_bench_type { REGARD_BENCH_F32 = 1, REGARD_BENCH_BF16 = 6, REGARD_BENCH_INT8 = 8 };

struct regard_bench_workload {
  const void* query;
  const void* key;
  const void* value;
  void* context;
  float* row_max;  // these two may be null
  float* row_sum;
  std::int64_t type;  // of query, key, value and context: f32 or bf16
  std::int64_t heads, key_heads, queries, keys, depth;
  std::int64_t causal;         // the last query sees the last key
  std::int64_t window_left;    // −1: open
  const std::int64_t* starts;  // packed sequences of both queries and keys, or null
  std::int64_t num_starts;
  std::int64_t num_threads;
};

// Each returns the most bytes of workspace that were in use at a time; 0 where they were not to be counted, −1 where
// the call failed. Counting takes memory afresh, so that such calls are not for timing.
std::int64_t regard_bench_forward(const regard_bench_workload* workload, int count);
// attention_forward num_calls times, with the default number of threads; 0.
std::int64_t regard_bench_calls(const regard_bench_workload* workload, std::int64_t num_calls);
// key_mass (1, heads, keys) and pooled_map (1, heads, cells, cells), either may be null; row_max and row_sum are
// read.
std::int64_t regard_bench_columns(const regard_bench_workload* workload, float* key_mass, float* pooled_map,
                                  std::int64_t cells, int count);
// attention_with_statistics with all that it knows of rows; the weight of chosen keys is that of the first four.
// top_keys and top_weights (1, heads, queries, top), rows (4, heads, queries): entropy, largest, chosen weight, mean
// distance.
std::int64_t regard_bench_statistics(const regard_bench_workload* workload, std::int64_t* top_keys, float* top_weights,
                                     std::int64_t top, float* rows, int count);
// A cache of one sequence with the workload's keys and values, which are f32; page_keys 0: contiguous. Null: it failed.
void* regard_bench_cache(const regard_bench_workload* workload, std::int64_t cache_type, std::int64_t page_keys);
std::int64_t regard_bench_decode(const void* cache, const regard_bench_workload* workload, int count);
void regard_bench_free(void* cache);
// Why the last call failed.
const char* regard_bench_error();
}
