// SPDX-License-Identifier: Apache-2.0
//
// What bench/compare.py measures but the C interface does not offer: caches, column sums, and the memory use of a call.
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
  float* row_max;     // may be null
  float* row_sum;     // may be null
  std::int64_t type;  // of query, key, value and context: f32 or bf16
  std::int64_t heads, key_heads, queries, keys, depth;
  std::int64_t causal;         // a causal mask, aligned at the bottom right
  std::int64_t window_left;    // −1 means unlimited
  const std::int64_t* starts;  // packed sequences of both queries and keys, or null
  std::int64_t num_starts;
  std::int64_t num_threads;
};

// Each returns the largest number of workspace bytes in use at a time; 0 if count is 0, and −1 if the call failed. With
// count, the workspace is newly allocated, so such calls should not be timed.
std::int64_t regard_bench_forward(const regard_bench_workload* workload, int count);
// Calls attention_forward num_calls times with the default number of threads. Returns 0, or −1 if a call failed.
std::int64_t regard_bench_calls(const regard_bench_workload* workload, std::int64_t num_calls);
// Writes key_mass (1, heads, keys) and pooled_map (1, heads, cells, cells), either of which may be null. Reads row_max
// and row_sum.
std::int64_t regard_bench_columns(const regard_bench_workload* workload, float* key_mass, float* pooled_map,
                                  std::int64_t cells, int count);
// attention_with_statistics with the statistics of rows; the chosen keys are the first four. Writes top_keys and
// top_weights (1, heads, queries, top), and rows (4, heads, queries): entropy, largest weight, chosen weight, and mean
// distance.
std::int64_t regard_bench_statistics(const regard_bench_workload* workload, std::int64_t* top_keys, float* top_weights,
                                     std::int64_t top, float* rows, int count);
// Creates a cache of one sequence with the workload's keys and values, which are f32. It is contiguous if page_keys
// is 0. Returns null after an error.
void* regard_bench_cache(const regard_bench_workload* workload, std::int64_t cache_type, std::int64_t page_keys);
std::int64_t regard_bench_decode(const void* cache, const regard_bench_workload* workload, int count);
void regard_bench_free(void* cache);
// The message of the last error.
const char* regard_bench_error();
}
