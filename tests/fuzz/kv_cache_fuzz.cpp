// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for cache images: any bytes are opened, or rejected with std::runtime_error that names the byte. A
// cache that is opened can be read, decoded, truncated, forked and extended, and its image opens again.
// Read next: src/kv_cache/kv_cache.cpp.
#include "regard/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace {

using regard::Index;
using regard::KvCache;
using regard::TensorView;

void require(bool condition) {
  if (!condition) std::abort();
}

// The bytes of a cache image must be aligned.
struct Block {
  std::vector<std::byte> bytes;
  std::span<std::byte> aligned;
  explicit Block(std::span<const std::byte> from) : bytes(from.size() + 64) {
    void* at = bytes.data();
    std::size_t space = bytes.size();
    std::align(64, from.size(), at, space);
    aligned = {static_cast<std::byte*>(at), from.size()};
    std::copy(from.begin(), from.end(), aligned.begin());
  }
};

template <class K>
void decode(const KvCache<K>& cache) {
  const regard::KvCacheShape& s = cache.shape();
  std::vector<float> query(static_cast<std::size_t>(s.num_sequences * s.num_kv_heads * s.head_size), 1.0F);
  std::vector<float> context(static_cast<std::size_t>(s.num_sequences * s.num_kv_heads * s.value_head_size));
  try {
    regard::attention_decode({query.data(), {s.num_sequences, s.num_kv_heads, 1, s.head_size}}, cache,
                             {.context = {context.data(), {s.num_sequences, s.num_kv_heads, 1, s.value_head_size}}},
                             {.causal = true,
                              .query_offset = regard::QueryAlignment::bottom_right,
                              .window = {.left = s.ring ? s.capacity - 1 : s.capacity, .right = 0}},
                             {.num_threads = 1});
  } catch (const std::invalid_argument&) {  // a ring that lost keys by truncation
  }
}

template <class K>
void change(KvCache<K>& cache) {
  const regard::KvCacheShape& s = cache.shape();
  using Number = std::conditional_t<std::is_same_v<K, std::int8_t>, float, K>;
  const std::vector<Number> numbers(
      static_cast<std::size_t>(s.num_kv_heads * 33 * std::max(s.head_size, s.value_head_size)));
  for (Index n = 0; n < s.num_sequences; ++n) {
    const auto attempt = [](auto call) {
      try {
        call();
      } catch (const std::invalid_argument&) {
      } catch (const std::runtime_error&) {
      }
    };
    attempt([&] {
      using View = regard::TensorView<const Number, 3>;
      cache.append(n, View(numbers.data(), {s.num_kv_heads, 33, s.head_size}),
                   View(numbers.data(), {s.num_kv_heads, 33, s.value_head_size}));
    });
    attempt([&] { cache.fork(n, (n + 1) % s.num_sequences); });
    attempt([&] { cache.truncate(n, cache.length(n) / 2); });
  }
}

template <class K>
void try_as(std::span<const std::byte> bytes) {
  Block block(bytes);
  try {
    KvCache<K> cache = KvCache<K>::open(block.aligned);
    const regard::KvCacheShape& s = cache.shape();
    if (std::max({s.num_sequences, s.num_kv_heads, s.head_size, s.value_head_size}) > 1000) return;
    decode(cache);
    change(cache);
    decode(cache);
    require(KvCache<K>::open(block.aligned).shape() == cache.shape());
  } catch (const std::runtime_error& error) {
    require(std::strncmp(error.what(), "KvCache: byte ", 14) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try_as<float>(bytes);
  try_as<regard::bfloat16>(bytes);
  try_as<regard::float16>(bytes);
  try_as<std::int8_t>(bytes);
  return 0;
}
