// SPDX-License-Identifier: Apache-2.0
//
// KV caches, attention_decode and attention_decode_partials for C. A regard_kv_cache holds a KvCache of one of five
// element types; each function dispatches on that type.
// Read next: descriptors.h, src/kv_cache/kv_cache.cpp.
#include "regard/kv_cache.h"

#include <variant>

#include "descriptors.h"
#include "kv_cache/format.h"

using namespace regard;
using namespace regard::internal;

struct regard_kv_cache {
  std::variant<KvCache<float>, KvCache<double>, KvCache<bfloat16>, KvCache<float16>, KvCache<std::int8_t>> cache;
};

namespace {

// Calls function(K{}) with the element type of a cache.
template <class Function>
void with_stored_type(const char* name, std::int32_t dtype, Function function) {
  switch (dtype) {
    case REGARD_F32:
      return function(float{});
    case REGARD_F64:
      return function(double{});
    case REGARD_BF16:
      return function(bfloat16{});
    case REGARD_F16:
      return function(float16{});
    case REGARD_I8:
      return function(std::int8_t{});
    default:
      reject(name, "dtype is " + element_type_text(static_cast<ElementType>(dtype)) +
                       "; expected float32, float64, bfloat16, float16 or int8");
  }
}

KvCacheShape shape_of(const char* name, const regard_kv_cache_shape* given) {
  const regard_kv_cache_shape s = read_struct(name, "shape", given);
  if (s.ring != 0 && s.ring != 1) reject(name, "ring is " + std::to_string(s.ring) + "; expected 0 or 1");
  return shape_of_fields(s);
}

// Calls function(cache); rejects a null cache.
template <class Cache, class Function>
std::int32_t with_cache(const char* name, Cache* cache, Function function) noexcept {
  return status_of([&] {
    if (cache == nullptr) reject(name, "cache is NULL");
    std::visit(function, cache->cache);
  });
}

void expect_not_null(const char* name, const char* argument, const void* pointer) {
  if (pointer == nullptr) reject(name, std::string(argument) + " is NULL");
}

std::span<std::byte> span_of(void* memory, std::size_t num_bytes) {
  return {static_cast<std::byte*>(memory), num_bytes};
}

}  // namespace

int32_t regard_kv_cache_bytes(const regard_kv_cache_shape* shape, int32_t dtype, uint64_t* num_bytes) {
  return status_of([=] {
    const char* name = "kv_cache_bytes";
    expect_not_null(name, "num_bytes", num_bytes);
    with_stored_type(name, dtype, [=]<class K>(K) {
      *num_bytes = static_cast<std::uint64_t>(KvCache<K>::bytes(shape_of(name, shape)));
    });
  });
}

int32_t regard_kv_cache_create(const regard_kv_cache_shape* shape, int32_t dtype, void* memory, size_t num_bytes,
                               const regard_stop* stop, regard_kv_cache** cache) {
  return status_of([=] {
    const char* name = "kv_cache_create";
    expect_not_null(name, "cache", cache);
    with_stored_type(name, dtype, [=]<class K>(K) {
      const KvCacheShape s = shape_of(name, shape);
      *cache = new regard_kv_cache{memory == nullptr ? KvCache<K>(s, token_of(stop))
                                                     : KvCache<K>(s, span_of(memory, num_bytes), token_of(stop))};
    });
  });
}

int32_t regard_kv_cache_open(void* memory, size_t num_bytes, int32_t dtype, const regard_stop* stop,
                             regard_kv_cache** cache) {
  return status_of([=] {
    const char* name = "kv_cache_open";
    expect_not_null(name, "cache", cache);
    expect_not_null(name, "memory", memory);
    with_stored_type(name, dtype, [=]<class K>(K) {
      *cache = new regard_kv_cache{KvCache<K>::open(span_of(memory, num_bytes), token_of(stop))};
    });
  });
}

void regard_kv_cache_free(regard_kv_cache* cache) { delete cache; }

int32_t regard_kv_cache_get_shape(const regard_kv_cache* cache, regard_kv_cache_shape* shape) {
  const char* name = "kv_cache_get_shape";
  return with_cache(name, cache, [=](const auto& of) {
    read_struct(name, "shape", shape);
    shape->struct_size = sizeof *shape;
    write_fields(of.shape(), *shape);
  });
}

int32_t regard_kv_cache_get_memory(const regard_kv_cache* cache, const void** memory, size_t* num_bytes) {
  const char* name = "kv_cache_get_memory";
  return with_cache(name, cache, [=](const auto& of) {
    expect_not_null(name, "memory", memory);
    expect_not_null(name, "num_bytes", num_bytes);
    *memory = of.memory().data();
    *num_bytes = of.memory().size();
  });
}

int32_t regard_kv_cache_get_length(const regard_kv_cache* cache, int64_t sequence, int64_t* length,
                                   int64_t* first_key) {
  const char* name = "kv_cache_get_length";
  return with_cache(name, cache, [=](const auto& of) {
    expect_not_null(name, "length", length);
    expect_not_null(name, "first_key", first_key);
    *length = of.length(sequence);
    *first_key = of.first_key(sequence);
  });
}

int32_t regard_kv_cache_get_free_pages(const regard_kv_cache* cache, int64_t* num_pages) {
  const char* name = "kv_cache_get_free_pages";
  return with_cache(name, cache, [=](const auto& of) {
    expect_not_null(name, "num_pages", num_pages);
    *num_pages = of.num_free_pages();
  });
}

int32_t regard_kv_cache_append(regard_kv_cache* cache, int64_t sequence, const regard_input* key,
                               const regard_input* value, const regard_stop* stop) {
  const char* name = "KvCache::append";
  return with_cache(name, cache, [=](auto& to) {
    const auto k = required<InputView<3>>(name, "key", key), v = required<InputView<3>>(name, "value", value);
    to.append(sequence, k, v, token_of(stop));
  });
}

int32_t regard_kv_cache_append_all(regard_kv_cache* cache, const regard_input* key, const regard_input* value,
                                   const int64_t* counts, const regard_stop* stop) {
  const char* name = "KvCache::append";
  return with_cache(name, cache, [=](auto& to) {
    const auto k = required<InputView<4>>(name, "key", key), v = required<InputView<4>>(name, "value", value);
    const auto of_counts = counts == nullptr
                               ? std::span<const Index>()
                               : std::span<const Index>(counts, static_cast<std::size_t>(to.shape().num_sequences));
    to.append(k, v, of_counts, token_of(stop));
  });
}

int32_t regard_kv_cache_truncate(regard_kv_cache* cache, int64_t sequence, int64_t length) {
  return with_cache("kv_cache_truncate", cache, [=](auto& of) { of.truncate(sequence, length); });
}

int32_t regard_kv_cache_fork(regard_kv_cache* cache, int64_t from, int64_t to) {
  return with_cache("kv_cache_fork", cache, [=](auto& of) { of.fork(from, to); });
}

int32_t regard_attention_decode(const regard_input* query, const regard_kv_cache* cache,
                                const regard_attention_outputs* outputs, const regard_attention_options* options,
                                const regard_runtime* runtime) {
  const char* name = "attention_decode";
  return with_cache(name, cache, [=](const auto& of) {
    const auto q = required<InputView<4>>(name, "query", query);
    with_outputs(name, outputs, [&](const AttentionOutputs& views) {
      run(name, runtime,
          [&](const Runtime& cpp_runtime) { attention_decode(q, of, views, options_of(name, options), cpp_runtime); });
    });
  });
}

int32_t regard_attention_decode_partials(const regard_input* query, const regard_kv_cache* cache,
                                         const regard_partial_outputs* partials,
                                         const regard_attention_options* options, const regard_runtime* runtime) {
  const char* name = "attention_decode_partials";
  return with_cache(name, cache, [=](const auto& of) {
    const auto q = required<InputView<4>>(name, "query", query);
    const AttentionPartialOutputs views = partials_of(name, partials);
    run(name, runtime, [&](const Runtime& cpp_runtime) {
      attention_decode_partials(q, of, views, options_of(name, options), cpp_runtime);
    });
  });
}
