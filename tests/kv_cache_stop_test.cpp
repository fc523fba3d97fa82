// SPDX-License-Identifier: Apache-2.0
//
// Calls that end early leave the cache unchanged: a stopped append, for every kind of cache and with shared panels, and
// a fork that runs out of memory. Creating and opening a cache can also be stopped.
// Read next: kv_cache_test.cpp.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stop_token>
#include <thread>

#include "regard/kv_cache.h"
#include "support/aligned_bytes.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace {
thread_local bool out_of_memory = false;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = out_of_memory ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace regard::kv_cache_stop_test {
namespace {

constexpr Index kHeads = 2, kDepth = 16, kColumns = 8, kLong = 100'000;

template <class T>
class StoppedAppend : public testing::Test {};
using Types = testing::Types<float, bfloat16, std::int8_t>;
TYPED_TEST_SUITE(StoppedAppend, Types);

template <class T>
using Number = std::conditional_t<std::same_as<T, std::int8_t>, float, T>;

template <class T>
struct KeysAndValues {
  Array<Number<T>, 4> key, value;

  // Distinct values, cheaper than random ones.
  KeysAndValues(Index num_sequences, Index length)
      : key({num_sequences, kHeads, length, kDepth}), value({num_sequences, kHeads, length, kColumns}) {
    int n = static_cast<int>(length);
    const auto next = [&n] {
      n = (n * 31 + 7) % 10007;
      return static_cast<float>(n) / 1000 - 5;
    };
    key.fill(next);
    value.fill(next);
  }
  static TensorView<const Number<T>, 3> first(const TensorView<const Number<T>, 4>& view) {
    return {
        view.data, {view.shape[1], view.shape[2], view.shape[3]}, {view.strides[1], view.strides[2], view.strides[3]}};
  }
  void append_to(KvCache<T>& cache, Index sequence, const std::stop_token& stop = {}) const {
    cache.append(sequence, first(std::as_const(key).view()), first(std::as_const(value).view()), stop);
  }
  void append_to_all(KvCache<T>& cache, const std::stop_token& stop = {}) const {
    cache.append(std::as_const(key).view(), std::as_const(value).view(), {}, stop);
  }
};

// Everything of a cache that a caller can observe: the elements of existing keys, but not of unused lanes.
template <class T>
std::vector<std::byte> seen(const KvCache<T>& cache) {
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& x) {
    const auto* from = reinterpret_cast<const std::byte*>(&x);
    bytes.insert(bytes.end(), from, from + sizeof x);
  };
  put(cache.num_free_pages());
  for (Index s = 0; s < cache.shape().num_sequences; ++s) {
    put(cache.length(s));
    put(cache.first_key(s));
    for (Index key = cache.first_key(s); key < cache.length(s); ++key) {
      for (Index h = 0; h < kHeads; ++h) {
        const Index panel = key / 32, lane = key % 32;
        for (Index d = 0; d < kDepth; ++d) put(cache.key_panel(s, h, panel)[d * 32 + lane]);
        for (Index c = 0; c < kColumns; ++c) put(cache.value_panel(s, h, panel)[lane * 32 + c]);
        if (const float* scales = cache.scales(s, h, panel)) {
          put(scales[lane]);
          put(scales[32 + lane]);
        }
      }
    }
  }
  return bytes;
}

// The cache from `make`, an append to it that was stopped while it ran, and the seconds from the stop request to its
// end.
template <class Make, class Append>
auto stop_midway(const Make& make, const Append& append, double& seconds) {
  for (int attempt = 0;; ++attempt) {
    auto cache = make();
    std::stop_source source;
    std::chrono::steady_clock::time_point asked;
    std::thread requester([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(attempt % 4));
      asked = std::chrono::steady_clock::now();
      source.request_stop();
    });
    bool stopped = false;
    try {
      append(cache, source.get_token());
    } catch (const Cancelled&) {
      stopped = true;
    }
    const auto ended = std::chrono::steady_clock::now();
    requester.join();
    seconds = std::chrono::duration<double>(ended - asked).count();
    if (stopped || attempt == 200) {
      EXPECT_TRUE(stopped);
      return cache;
    }
  }
}

// The cache equals `before`, its memory opens as a cache, and the next append gives the same result as in an
// undisturbed twin.
template <class T>
void expect_untouched(KvCache<T>& cache, KvCache<T>& twin, const std::vector<std::byte>& before) {
  EXPECT_EQ(seen(cache), before);
  AlignedBytes copy(cache.memory().size());
  std::ranges::copy(cache.memory(), copy.bytes.begin());
  EXPECT_EQ(seen(KvCache<T>::open(copy.bytes)), before);
  const KeysAndValues<T> more(cache.shape().num_sequences, 45);
  more.append_to_all(cache);
  more.append_to_all(twin);
  EXPECT_EQ(seen(cache), seen(twin));
}

template <class T>
void stop_and_compare(const KvCacheShape& shape, bool shares_a_tail) {
  const KeysAndValues<T> some(1, 77), many(1, kLong), for_all(shape.num_sequences, kLong / 2);
  const auto make = [&] {
    KvCache<T> cache(shape);
    some.append_to(cache, 0);
    if (shares_a_tail) {
      // The partially filled panel of sequence 0 is now shared with sequence 1.
      cache.truncate(0, 64);
      cache.fork(0, 1);
      cache.truncate(0, 50);
      cache.truncate(1, 50);
    }
    return cache;
  };
  const std::vector<std::byte> before = seen(make());
  double seconds = 0;
  KvCache<T> one = stop_midway(
      make, [&](KvCache<T>& cache, const std::stop_token& stop) { many.append_to(cache, 0, stop); }, seconds);
  EXPECT_LT(seconds, 0.2);
  KvCache<T> twin = make();
  expect_untouched(one, twin, before);
  KvCache<T> all = stop_midway(
      make, [&](KvCache<T>& cache, const std::stop_token& stop) { for_all.append_to_all(cache, stop); }, seconds);
  EXPECT_LT(seconds, 0.2);
  twin = make();
  expect_untouched(all, twin, before);
}

// Two sequences with capacity for everything that is appended. page_keys as in KvCacheShape.
KvCacheShape shape_of(Index page_keys) {
  return {.num_sequences = 2,
          .num_kv_heads = kHeads,
          .head_size = kDepth,
          .value_head_size = kColumns,
          .capacity = kLong + 200,
          .page_keys = page_keys,
          .num_pages = page_keys > 0 ? kLong / page_keys + 20 : 0};
}

TYPED_TEST(StoppedAppend, LeavesAContiguousCacheUnchanged) { stop_and_compare<TypeParam>(shape_of(0), false); }

TYPED_TEST(StoppedAppend, ReturnsThePagesOfAPagedCache) { stop_and_compare<TypeParam>(shape_of(96), false); }

TYPED_TEST(StoppedAppend, RestoresTheSharedPanelOfAForkedSequence) { stop_and_compare<TypeParam>(shape_of(64), true); }

// A ring overwrites its oldest keys, so it stops before writing or not at all.
TYPED_TEST(StoppedAppend, WritesAllOrNothingToARing) {
  using T = TypeParam;
  const KvCacheShape shape{.num_sequences = 1,
                           .num_kv_heads = kHeads,
                           .head_size = kDepth,
                           .value_head_size = kColumns,
                           .capacity = 100,
                           .ring = true};
  KvCache<T> cache(shape), twin(shape);
  const KeysAndValues<T> some(1, 77), many(1, 5000);
  some.append_to(cache, 0);
  some.append_to(twin, 0);
  const std::vector<std::byte> before = seen(cache);
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(many.append_to(cache, 0, source.get_token()), Cancelled);
  EXPECT_THROW(many.append_to_all(cache, source.get_token()), Cancelled);
  EXPECT_EQ(seen(cache), before);
  for (int i = 0; i < 50; ++i) {
    std::stop_source later;
    std::thread requester([&] { later.request_stop(); });
    const std::vector<std::byte> was = seen(cache);
    try {
      many.append_to(cache, 0, later.get_token());
      many.append_to(twin, 0);
      EXPECT_EQ(seen(cache), seen(twin));
    } catch (const Cancelled&) {
      EXPECT_EQ(seen(cache), was);
    }
    requester.join();
  }
}

TYPED_TEST(StoppedAppend, ForkWithoutMemorySharesNothing) {
  using T = TypeParam;
  KvCache<T> cache(shape_of(96));
  const Index all_pages = cache.num_free_pages();
  KeysAndValues<T>(1, 200).append_to(cache, 0);  // 6 whole panels and a partial one
  out_of_memory = true;
  bool failed = false;
  try {
    cache.fork(0, 1);
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  out_of_memory = false;
  EXPECT_TRUE(failed);
  EXPECT_EQ(cache.length(1), 0);
  cache.truncate(0, 0);
  EXPECT_EQ(cache.num_free_pages(), all_pages);
}

TYPED_TEST(StoppedAppend, CreatingAndOpeningCanBeStopped) {
  using T = TypeParam;
  std::stop_source source;
  source.request_stop();
  const std::stop_token stopped = source.get_token();
  const KvCacheShape shape = shape_of(96);
  EXPECT_THROW(KvCache<T>(shape, stopped), Cancelled);
  const AlignedBytes memory(static_cast<std::size_t>(KvCache<T>::bytes(shape)));
  EXPECT_THROW(KvCache<T>(shape, memory.bytes, stopped), Cancelled);
  const KvCache<T> cache(shape, memory.bytes);
  EXPECT_THROW(KvCache<T>::open(memory.bytes, stopped), Cancelled);
  EXPECT_EQ(KvCache<T>::open(memory.bytes).num_free_pages(), cache.num_free_pages());
}

}  // namespace
}  // namespace regard::kv_cache_stop_test
