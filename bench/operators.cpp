// SPDX-License-Identifier: Apache-2.0
//
// operators.h, implemented with Regard's C++ interface. Read next: regard/kv_cache.h, regard/attention_statistics.h.
#include "operators.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <memory_resource>
#include <string>
#include <variant>

#include "regard/attention_statistics.h"
#include "regard/kv_cache.h"

namespace {

using regard::bfloat16;
using regard::ElementType;
using regard::Index;
using regard::InputView;
using regard::KvCache;

using Cache = std::variant<KvCache<float>, KvCache<bfloat16>, KvCache<std::int8_t>>;

thread_local std::string last_error;

class CountedMemory : public std::pmr::memory_resource {
 public:
  std::int64_t largest = 0;

 private:
  std::int64_t in_use_ = 0;
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    in_use_ += static_cast<std::int64_t>(bytes);
    largest = std::max(largest, in_use_);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    in_use_ -= static_cast<std::int64_t>(bytes);
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

// Runs call(runtime). Returns the largest number of workspace bytes in use, 0 if count is 0. After an error, returns −1
// and sets last_error.
template <class Call>
std::int64_t counted(const regard_bench_workload& p, int count, Call&& call) try {
  CountedMemory memory;
  regard::Runtime runtime;
  runtime.num_threads = static_cast<int>(p.num_threads);
  if (count != 0) runtime.workspace = &memory;
  call(runtime);
  return memory.largest;
} catch (const std::exception& error) {
  last_error = error.what();
  return -1;
}

InputView<4> input(const void* data, std::int64_t type, Index heads, Index rows, Index depth) {
  const InputView<4>::Shape shape{1, heads, rows, depth};
  return {data, type == REGARD_BENCH_BF16 ? ElementType::bfloat16 : ElementType::float32, shape,
          regard::dense_strides(shape)};
}

regard::AttentionOptions options(const regard_bench_workload& p) {
  regard::AttentionOptions o;
  o.causal = p.causal != 0;
  if (p.starts != nullptr) {
    o.query_starts = o.key_starts = std::span(p.starts, static_cast<std::size_t>(p.num_starts));
  } else {
    o.query_offset = regard::QueryAlignment::bottom_right;
  }
  if (p.window_left >= 0) o.window.left = p.window_left;
  return o;
}

template <class T>
regard::AttentionOutputs outputs(const regard_bench_workload& p) {
  regard::AttentionOutputs o;
  o.context = {static_cast<T*>(p.context), {1, p.heads, p.queries, p.depth}};
  if (p.row_max != nullptr) o.row_max = {p.row_max, {1, p.heads, p.queries}};
  if (p.row_sum != nullptr) o.row_sum = {p.row_sum, {1, p.heads, p.queries}};
  return o;
}

template <class T>
Cache filled(const regard_bench_workload& p, std::int64_t page_keys) {
  regard::KvCacheShape shape;
  shape.num_kv_heads = p.key_heads;
  shape.head_size = shape.value_head_size = p.depth;
  shape.capacity = p.keys;
  shape.page_keys = page_keys;
  shape.num_pages = page_keys == 0 ? 0 : (p.keys + page_keys - 1) / page_keys;
  KvCache<T> cache(shape);
  const std::array<Index, 3> extents{p.key_heads, p.keys, p.depth};
  const regard::TensorView<const float, 3> key(static_cast<const float*>(p.key), extents);
  const regard::TensorView<const float, 3> value(static_cast<const float*>(p.value), extents);
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto rounded = [](const regard::TensorView<const float, 3>& from) {
      regard::Tensor<bfloat16, 3> to(from.shape);
      std::transform(from.data, from.data + from.size(), to.data(), [](float x) { return bfloat16(x); });
      return to;
    };
    cache.append(0, rounded(key).view(), rounded(value).view());
  } else {
    cache.append(0, key, value);
  }
  return cache;
}

}  // namespace

std::int64_t regard_bench_forward(const regard_bench_workload* workload, int count) {
  const regard_bench_workload& p = *workload;
  return counted(p, count, [&](const regard::Runtime& runtime) {
    const auto query = input(p.query, p.type, p.heads, p.queries, p.depth);
    const auto key = input(p.key, p.type, p.key_heads, p.keys, p.depth);
    const auto value = input(p.value, p.type, p.key_heads, p.keys, p.depth);
    if (p.type == REGARD_BENCH_BF16) {
      regard::attention_forward(query, key, value, outputs<bfloat16>(p), options(p), runtime);
    } else {
      regard::attention_forward(query, key, value, outputs<float>(p), options(p), runtime);
    }
  });
}

std::int64_t regard_bench_calls(const regard_bench_workload* workload, std::int64_t num_calls) {
  const regard_bench_workload& p = *workload;
  return counted(p, 0, [&](const regard::Runtime&) {
    for (std::int64_t call = 0; call < num_calls; ++call) {
      regard::attention_forward(input(p.query, p.type, p.heads, p.queries, p.depth),
                                input(p.key, p.type, p.key_heads, p.keys, p.depth),
                                input(p.value, p.type, p.key_heads, p.keys, p.depth), outputs<float>(p));
    }
  });
}

std::int64_t regard_bench_columns(const regard_bench_workload* workload, float* key_mass, float* pooled_map,
                                  std::int64_t cells, int count) {
  const regard_bench_workload& p = *workload;
  return counted(p, count, [&](const regard::Runtime& runtime) {
    regard::ColumnsRequest request;
    request.row_max = {p.row_max, {1, p.heads, p.queries}};
    request.row_sum = {p.row_sum, {1, p.heads, p.queries}};
    regard::AttentionColumns columns;
    if (key_mass != nullptr) columns.key_mass = {key_mass, {1, p.heads, p.keys}};
    if (pooled_map != nullptr) columns.pooled_map = {pooled_map, {1, p.heads, cells, cells}};
    regard::attention_columns(input(p.query, p.type, p.heads, p.queries, p.depth),
                              input(p.key, p.type, p.key_heads, p.keys, p.depth), request, columns, options(p),
                              runtime);
  });
}

std::int64_t regard_bench_statistics(const regard_bench_workload* workload, std::int64_t* top_keys, float* top_weights,
                                     std::int64_t top, float* rows, int count) {
  const regard_bench_workload& p = *workload;
  return counted(p, count, [&](const regard::Runtime& runtime) {
    static constexpr Index kChosen[] = {0, 1, 2, 3};
    const std::array<Index, 3> shape{1, p.heads, p.queries};
    const Index step = p.heads * p.queries;
    regard::AttentionStatistics statistics;
    statistics.chosen_keys = kChosen;
    statistics.top_keys = {top_keys, {1, p.heads, p.queries, top}};
    statistics.top_weights = {top_weights, {1, p.heads, p.queries, top}};
    statistics.entropy = {rows, shape};
    statistics.largest_weight = {rows + step, shape};
    statistics.chosen_weight = {rows + 2 * step, shape};
    statistics.mean_distance = {rows + 3 * step, shape};
    regard::attention_with_statistics(
        input(p.query, p.type, p.heads, p.queries, p.depth), input(p.key, p.type, p.key_heads, p.keys, p.depth),
        input(p.value, p.type, p.key_heads, p.keys, p.depth), outputs<float>(p), statistics, options(p), runtime);
  });
}

void* regard_bench_cache(const regard_bench_workload* workload, std::int64_t cache_type, std::int64_t page_keys) try {
  const regard_bench_workload& p = *workload;
  return new Cache(cache_type == REGARD_BENCH_INT8   ? filled<std::int8_t>(p, page_keys)
                   : cache_type == REGARD_BENCH_BF16 ? filled<bfloat16>(p, page_keys)
                                                     : filled<float>(p, page_keys));
} catch (const std::exception& error) {
  last_error = error.what();
  return nullptr;
}

std::int64_t regard_bench_decode(const void* cache, const regard_bench_workload* workload, int count) {
  const regard_bench_workload& p = *workload;
  return counted(p, count, [&](const regard::Runtime& runtime) {
    std::visit(
        [&](const auto& kept) {
          regard::attention_decode(input(p.query, p.type, p.heads, p.queries, p.depth), kept, outputs<float>(p),
                                   options(p), runtime);
        },
        *static_cast<const Cache*>(cache));
  });
}

void regard_bench_free(void* cache) { delete static_cast<Cache*>(cache); }

const char* regard_bench_error() { return last_error.c_str(); }
