// SPDX-License-Identifier: Apache-2.0
//
// Caches: for any sequence of appends, to any kind of cache, forked and truncated, attention_decode gives the bits of
// attention_forward over the same keys; and a rejected call leaves the cache unchanged.
// Read next: attention_bits_test.cpp.
#include "regard/kv_cache.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "support/aligned_bytes.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::kv_cache_test {
namespace {

template <class T>
class KvCacheOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(KvCacheOf, Types);

// The expected keys and values of all sequences: (B, Hkv, S, …), where S is the longest.
template <class T>
struct Ground {
  Index key_heads, head_size, columns;
  std::vector<std::vector<T>> keys, values;  // [sequence]: [key][head][…]

  Index length(std::size_t s) const { return static_cast<Index>(keys[s].size()) / (key_heads * head_size); }
  Index longest() const {
    Index max_length = 0;
    for (std::size_t s = 0; s < keys.size(); ++s) max_length = std::max(max_length, length(s));
    return max_length;
  }
  Array<T, 4> dense(const std::vector<std::vector<T>>& from, Index width) const {
    Array<T, 4> array({static_cast<Index>(from.size()), key_heads, longest(), width});
    // What is stored beyond the end of a sequence must not matter.
    array.fill([] { return std::numeric_limits<double>::quiet_NaN(); });
    for (std::size_t s = 0; s < from.size(); ++s) {
      const T* row = from[s].data();
      for (Index i = 0; i < length(s); ++i) {
        for (Index h = 0; h < key_heads; ++h, row += width) {
          std::copy_n(row, width, array.view().pointer(static_cast<Index>(s), h, i, 0));
        }
      }
    }
    return array;
  }
  // n more keys of sequence s, as (Hkv, n, …) arrays.
  std::pair<Array<T, 3>, Array<T, 3>> more(Random& random, std::size_t s, Index n) {
    auto key = normal_array<T, 3>(random, {key_heads, n, head_size});
    auto value = normal_array<T, 3>(random, {key_heads, n, columns});
    if (n > 0 && random.chance(0.1)) value.set({0, random.integer(0, n - 1), 0}, std::numeric_limits<T>::infinity());
    for (Index i = 0; i < n; ++i) {
      for (Index h = 0; h < key_heads; ++h) {
        const T *key_row = key.view().pointer(h, i, 0), *value_row = value.view().pointer(h, i, 0);
        keys[s].insert(keys[s].end(), key_row, key_row + head_size);
        values[s].insert(values[s].end(), value_row, value_row + columns);
      }
    }
    return {std::move(key), std::move(value)};
  }
  void truncate(std::size_t s, Index length) {
    keys[s].resize(static_cast<std::size_t>(length * key_heads * head_size));
    values[s].resize(static_cast<std::size_t>(length * key_heads * columns));
  }
};

template <class T>
Ground<T> empty_ground(const KvCacheShape& shape) {
  const auto sequences = static_cast<std::size_t>(shape.num_sequences);
  return {shape.num_kv_heads, shape.head_size, shape.value_head_size, std::vector<std::vector<T>>(sequences),
          std::vector<std::vector<T>>(sequences)};
}

template <class T>
void append(KvCache<T>& cache, Ground<T>& ground, Random& random, Index s, Index n) {
  const auto [key, value] = ground.more(random, static_cast<std::size_t>(s), n);
  cache.append(s, key.view(), value.view());
}

// Compares attention_decode over the cache with attention_forward over the expected keys: every output, bit by bit.
template <class T>
void expect_forward_bits(const KvCache<T>& cache, const Ground<T>& ground, const Array<T, 4>& query,
                         AttentionOptions options, const Runtime& runtime = {}) {
  std::vector<Index> lengths;
  for (std::size_t s = 0; s < ground.keys.size(); ++s) {
    lengths.push_back(ground.length(s));
    ASSERT_EQ(cache.length(static_cast<Index>(s)), lengths.back());
  }
  const Array<T, 4> key = ground.dense(ground.keys, ground.head_size);
  const Array<T, 4> value = ground.dense(ground.values, ground.columns);
  const auto& [B, H, L, D] = query.shape();
  auto got = AttentionArrays<T>::dense(B, H, L, 0, ground.columns, false);
  attention_decode(query.view(), cache, got.views(), options, runtime);
  auto expected = AttentionArrays<T>::dense(B, H, L, 0, ground.columns, false);
  options.key_lengths = lengths;
  attention_forward(query.view(), key.view(), value.view(), expected.views(), options, {.num_threads = 1});
  EXPECT_TRUE(same_bits(all_bits(got), all_bits(expected)));
}

std::vector<KvCacheShape> kinds(Index sequences, Index key_heads, Index head_size, Index columns, Index capacity) {
  const auto of = [&](Index page_keys, Index num_pages, bool ring) {
    return KvCacheShape{.num_sequences = sequences,
                        .num_kv_heads = key_heads,
                        .head_size = head_size,
                        .value_head_size = columns,
                        .capacity = capacity,
                        .page_keys = page_keys,
                        .num_pages = num_pages,
                        .ring = ring};
  };
  return {of(0, 0, false), of(32, sequences * ((capacity + 31) / 32), false),
          of(128, sequences * ((capacity + 127) / 128), false), of(0, 0, true)};
}

TYPED_TEST(KvCacheOf, DecodeMatchesForward) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const KvCacheShape& shape : kinds(3, 2, 11, 37, 1300)) {
      Random random(1);
      KvCache<T> cache(shape);
      Ground<T> ground = empty_ground<T>(shape);
      append(cache, ground, random, 0, 1290);
      append(cache, ground, random, 1, 1);
      for (const Index n : {5, 27, 1, 31, 32, 33, 64, 1000, 3}) append(cache, ground, random, 2, n);
      std::size_t number = 0;
      for (const Index L : {1, 2, 21}) {
        const auto query = normal_array<T, 4>(random, {3, 6, L, 11});
        Array<bool, 4> mask({3, 1, L, 1290});
        mask.fill([&] { return random.chance(0.7); });
        const auto bias = normal_array<float, 4>(random, {1, 6, 1, 1290});
        const std::vector<T> slopes(6, static_cast<T>(0.01)), sinks{0, 1, 2, 3, -1, -2};
        const std::vector<AttentionOptions> all = {
            {.query_offset = Index{0}},
            {.causal = true, .query_offset = QueryAlignment::bottom_right},
            {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {700, 0}, .sinks = sinks},
            {.causal = true,
             .query_offset = Index{1100},
             .mask = mask.view(),
             .bias = bias.view(),
             .alibi_slopes = slopes,
             .sinks = sinks,
             .soft_cap = 5.0}};
        for (const AttentionOptions& options : all) {
          for (const int threads : {1, 7}) {
            if (!runs_case(number++, 3)) continue;
            SCOPED_TRACE(testing::Message() << "page_keys " << shape.page_keys << " ring " << shape.ring << " L " << L
                                            << " threads " << threads);
            expect_forward_bits(cache, ground, query, options, {.num_threads = threads});
          }
        }
      }
    }
  });
}

// Random sequences of append, truncate and fork, comparing bits after each; the block is also reopened.
TYPED_TEST(KvCacheOf, RandomChangesMatchForward) {
  using T = TypeParam;
  for (const KvCacheShape& kind : kinds(4, 2, 5, 7, 300)) {
    if (kind.ring) continue;
    KvCacheShape shape = kind;
    if (shape.page_keys == 32) shape.num_pages = 10;  // too few for all sequences: some appends fail
    Random random(7);
    KvCache<T> cache(shape);
    Ground<T> ground = empty_ground<T>(shape);
    int rejected = 0, forked = 0;
    for (int step = 0; step < test_size(400, 200); ++step) {
      const Index s = random.integer(0, 3);
      const std::vector<std::byte> before(cache.memory().begin(), cache.memory().end());
      const Ground<T> ground_before = ground;
      try {
        const double what = random.uniform();
        if (what < 0.6) {
          const Index free_keys = shape.capacity - cache.length(s);
          append(cache, ground, random, s, std::min(free_keys, random.one_of({0, 1, 1, 2, 30, 33, 70})));
        } else if (what < 0.85) {
          const Index length = random.chance(0.3) ? 0 : random.integer(0, cache.length(s));
          cache.truncate(s, length);
          ground.truncate(static_cast<std::size_t>(s), length);
        } else {
          const Index to = random.integer(0, 3);
          if (to == s) continue;
          cache.truncate(to, 0);
          ground.truncate(static_cast<std::size_t>(to), 0);
          cache.fork(s, to);
          ground.keys[static_cast<std::size_t>(to)] = ground.keys[static_cast<std::size_t>(s)];
          ground.values[static_cast<std::size_t>(to)] = ground.values[static_cast<std::size_t>(s)];
          ++forked;
        }
      } catch (const OutOfPages& error) {
        ++rejected;
        EXPECT_NE(std::string(error.what()).find("; truncate a sequence or create the cache with more pages"),
                  std::string::npos)
            << error.what();
        if (std::string(error.what()).starts_with("KvCache::append")) {
          EXPECT_TRUE(std::equal(before.begin(), before.end(), cache.memory().begin()));
          ground = ground_before;
        }
      }
      const AlignedBytes copy(cache.memory().size());
      std::ranges::copy(cache.memory(), copy.bytes.begin());
      const KvCache<T> opened = KvCache<T>::open(copy.bytes);
      EXPECT_EQ(opened.shape(), shape);
      const auto query = normal_array<T, 4>(random, {4, 4, random.integer(1, 3), 5});
      expect_forward_bits(step % 2 == 0 ? cache : opened, ground, query,
                          {.causal = true, .query_offset = QueryAlignment::bottom_right});
    }
    EXPECT_GT(forked, test_size(20, 10));
    EXPECT_EQ(rejected > 0, shape.page_keys != 128) << rejected;
    for (Index s = 0; s < 4; ++s) cache.truncate(s, 0);
    EXPECT_EQ(cache.num_free_pages(), shape.page_keys > 0 ? shape.num_pages : 4);
  }
}

TYPED_TEST(KvCacheOf, ForkCopiesAtMostTheLastPanel) {
  using T = TypeParam;
  Random random(3);
  const KvCacheShape shape{
      .num_sequences = 3, .head_size = 4, .value_head_size = 4, .capacity = 512, .page_keys = 64, .num_pages = 12};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 200);
  const Index free = cache.num_free_pages();
  cache.fork(0, 1);
  EXPECT_EQ(cache.num_free_pages(), free - 1);  // for the copy of keys 192 … 199
  for (Index panel = 0; panel < 6; ++panel) EXPECT_EQ(cache.key_panel(1, 0, panel), cache.key_panel(0, 0, panel));
  EXPECT_NE(cache.key_panel(1, 0, 6), cache.key_panel(0, 0, 6));
  cache.truncate(0, 192);
  cache.fork(0, 2);
  EXPECT_EQ(cache.num_free_pages(), free);  // sequence 0 returned its last page; there was nothing to copy
}

TYPED_TEST(KvCacheOf, RingKeepsTheLatestKeysIndefinitely) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Random random(4);
    const KvCacheShape shape{
        .num_sequences = 2, .num_kv_heads = 1, .head_size = 6, .value_head_size = 6, .capacity = 100, .ring = true};
    KvCache<T> cache(shape);
    Ground<T> ground = empty_ground<T>(shape);
    for (int step = 0; step < 60; ++step) {
      const Index L = random.integer(1, 20);
      for (Index s = 0; s < 2; ++s) append(cache, ground, random, s, s == 0 ? L : L + step % 7);
      const auto query = normal_array<T, 4>(random, {2, 3, L, 6});
      expect_forward_bits(cache, ground, query,
                          {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {100 - L, 0}});
    }
    EXPECT_GT(cache.length(0), 400);
    EXPECT_GT(cache.first_key(0), cache.length(0) - 160);
    EXPECT_LE(cache.first_key(0), cache.length(0) - 100);
  });
}

TYPED_TEST(KvCacheOf, RingRejectsAWindowBeyondItsKeys) {
  using T = TypeParam;
  Random random(5);
  const KvCacheShape shape{.num_sequences = 1, .head_size = 3, .value_head_size = 3, .capacity = 64, .ring = true};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 512);
  const auto query = normal_array<T, 4>(random, {1, 1, 4, 3});
  auto outputs = AttentionArrays<T>::dense(1, 1, 4, 0, 3, false);
  const auto decode = [&](Window window) {
    attention_decode(query.view(), cache, outputs.views(),
                     {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = window});
  };
  decode({.left = 60, .right = 0});
  EXPECT_EQ(rejection([&] { decode({}); }),
            "attention_decode: query 0 of sequence 0 attends to key 0, but the ring keeps only keys from 448 on; a "
            "window of w keys with L queries needs a capacity of w + L - 1");
  EXPECT_NE(rejection([&] { decode({.left = 200, .right = 0}); }).find("attends to key 308, but"), std::string::npos);
  // Rows before the first key are fully masked; later rows attend to keys that have been overwritten.
  EXPECT_NE(rejection([&] {
              attention_decode(query.view(), cache, outputs.views(),
                               {.causal = true, .query_offset = Index{-2}, .window = {.left = 60, .right = 0}});
            }).find("query 2 of sequence 0 attends to key 0, but"),
            std::string::npos);
}

// The capacity decides, not the current panel boundaries.
TYPED_TEST(KvCacheOf, RingNeedsACapacityOfWindowPlusQueriesMinusOne) {
  using T = TypeParam;
  constexpr Index kWindow = 64, kQueries = 20;
  for (const Index missing : {0, 1}) {
    Random random(6);
    const KvCacheShape shape{
        .head_size = 3, .value_head_size = 3, .capacity = kWindow + kQueries - 1 - missing, .ring = true};
    KvCache<T> cache(shape);
    Ground<T> ground = empty_ground<T>(shape);
    append(cache, ground, random, 0, 120);
    const auto query = normal_array<T, 4>(random, {1, 1, kQueries, 3});
    auto outputs = AttentionArrays<T>::dense(1, 1, kQueries, 0, 3, false);
    for (; cache.length(0) < 220; append(cache, ground, random, 0, 1)) {
      const std::string text = rejection([&] {
        attention_decode(query.view(), cache, outputs.views(),
                         {.causal = true,
                          .query_offset = QueryAlignment::bottom_right,
                          .window = {.left = kWindow - 1, .right = 0}});
      });
      EXPECT_EQ(text == "accepted", missing == 0) << cache.length(0) << ": " << text;
    }
  }
}

// A mean of the largest numbers is finite although the sum is not, also if the chunks are split over threads.
TYPED_TEST(KvCacheOf, OverflowingSumsMatchWhenSplitOverThreads) {
  using T = TypeParam;
  const KvCacheShape shape{.num_sequences = 1, .head_size = 4, .value_head_size = 3, .capacity = 40000};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  Random random(6);
  auto [key, value] = ground.more(random, 0, 40000);
  for (Index j = 0; j < 40000; ++j) {
    value.set({0, j, 1}, std::numeric_limits<T>::max());
    ground.values[0][static_cast<std::size_t>(3 * j + 1)] = std::numeric_limits<T>::max();
  }
  cache.append(0, key.view(), value.view());
  const auto query = normal_array<T, 4>(random, {1, 2, 1, 4});
  for (const int threads : {1, 2, 5})
    expect_forward_bits(cache, ground, query, {.query_offset = Index{0}}, {.num_threads = threads});
}

TYPED_TEST(KvCacheOf, AppendsToAllSequencesAtOnce) {
  using T = TypeParam;
  for (const KvCacheShape& shape : kinds(3, 2, 5, 4, 200)) {
    Random random(8);
    KvCache<T> together(shape), apart(shape);
    for (const std::array<Index, 3>& counts : {std::array<Index, 3>{40, 3, 0}, {1, 40, 33}, {7, 0, 40}}) {
      const auto key = normal_array<T, 4>(random, {3, 2, 40, 5});
      const auto value = normal_array<T, 4>(random, {3, 2, 40, 4});
      together.append(key.view(), value.view(), counts);
      for (Index s = 0; s < 3; ++s) {
        const Index n = counts[static_cast<std::size_t>(s)];
        const auto part = [&](const TensorView<const T, 4>& all) {
          return TensorView<const T, 3>(all.pointer(s, 0, 0, 0), {2, n, all.shape[3]},
                                        {all.strides[1], all.strides[2], all.strides[3]});
        };
        apart.append(s, part(key.view()), part(value.view()));
      }
    }
    for (Index s = 0; s < 3; ++s) {
      ASSERT_EQ(together.length(s), apart.length(s));
      for (Index j = 0; j < together.length(s); ++j) {
        for (Index h = 0; h < 2; ++h) {
          for (Index d = 0; d < 5; ++d)
            EXPECT_EQ(together.key_panel(s, h, j / 32)[d * 32 + j % 32],
                      apart.key_panel(s, h, j / 32)[d * 32 + j % 32]);
          for (Index c = 0; c < 4; ++c)
            EXPECT_EQ(together.value_panel(s, h, j / 32)[j % 32 * 32 + c],
                      apart.value_panel(s, h, j / 32)[j % 32 * 32 + c]);
        }
      }
    }
  }
}

// The bytes are the same whichever instruction set wrote them.
TYPED_TEST(KvCacheOf, BlockIsTheSameOnEveryInstructionSet) {
  using T = TypeParam;
  std::vector<std::vector<std::byte>> blocks;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Random random(9);
    const KvCacheShape shape{
        .num_sequences = 2, .num_kv_heads = 2, .head_size = 5, .value_head_size = 40, .capacity = 96};
    const AlignedBytes memory(static_cast<std::size_t>(KvCache<T>::bytes(shape)));
    KvCache<T> cache(shape, memory.bytes);
    Ground<T> ground = empty_ground<T>(shape);
    for (const Index n : {40, 13, 30}) append(cache, ground, random, 0, n);
    blocks.emplace_back(cache.memory().begin(), cache.memory().end());
  });
  for (const auto& block : blocks) EXPECT_EQ(block, blocks.front());
}

// Any byte of the records changed: rejected with its offset, or read without a fault.
TYPED_TEST(KvCacheOf, ReadOnlyMappedFileCanBeDecoded) {
  using T = TypeParam;
  Random random(14);
  for (const KvCacheShape& shape : kinds(2, 2, 5, 4, 200)) {
    KvCache<T> cache(shape);
    Ground<T> ground = empty_ground<T>(shape);
    for (const Index s : {0, 1}) append(cache, ground, random, s, 70 + s);
    std::FILE* const file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    const std::size_t size = cache.memory().size();
    ASSERT_EQ(std::fwrite(cache.memory().data(), 1, size, file), size);
    ASSERT_EQ(std::fflush(file), 0);
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    const KvCache<T> opened = KvCache<T>::open({static_cast<std::byte*>(mapped), size});
    const auto query = normal_array<T, 4>(random, {2, 4, 3, 5});
    expect_forward_bits(opened, ground, query, {.query_offset = Index{0}}, {.num_threads = 2});
    munmap(mapped, size);
    std::fclose(file);
  }
}

TYPED_TEST(KvCacheOf, CorruptBlocksAreRejected) {
  using T = TypeParam;
  Random random(10);
  const KvCacheShape shape{
      .num_sequences = 2, .head_size = 3, .value_head_size = 3, .capacity = 100, .page_keys = 32, .num_pages = 6};
  const auto size = static_cast<std::size_t>(KvCache<T>::bytes(shape));
  const AlignedBytes memory(size);
  const std::span<std::byte> block = memory.bytes;
  KvCache<T> cache(shape, block);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 70);
  cache.fork(0, 1);
  const auto query = normal_array<T, 4>(random, {2, 1, 1, 3});
  int rejected = 0;
  const Index book = reinterpret_cast<const std::byte*>(cache.key_panel(0, 0, 0)) - block.data();
  for (Index at = 0; at < std::min<Index>(book, 1000); ++at) {
    for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
      block[static_cast<std::size_t>(at)] ^= flip;
      try {
        const KvCache<T> opened = KvCache<T>::open(block);
        auto outputs =
            AttentionArrays<T>::dense(opened.shape().num_sequences, 1, 1, 0, opened.shape().value_head_size, false);
        if (opened.shape().num_sequences == 2 && opened.shape().head_size == 3)
          attention_decode(query.view(), opened, outputs.views(), {.query_offset = Index{0}});
      } catch (const DataError& error) {
        ++rejected;
        EXPECT_TRUE(std::string(error.what()).starts_with("KvCache: byte ")) << error.what();
      }
      block[static_cast<std::size_t>(at)] ^= flip;
    }
  }
  EXPECT_GT(rejected, 300);
  EXPECT_THROW(KvCache<T>::open(block.first(size - 1)), std::runtime_error);
  EXPECT_THROW(KvCache<T>::open(block.first(20)), std::runtime_error);
  EXPECT_NO_THROW(KvCache<T>::open(block));
}

// Panels that a ring will write must not be shared, nor those past the last key of any other sequence.
TYPED_TEST(KvCacheOf, SharedWritablePanelsAreRejected) {
  using T = TypeParam;
  for (const bool ring : {true, false}) {
    Random random(10);
    const KvCacheShape shape{.head_size = 3, .value_head_size = 3, .capacity = ring ? 64 : 96, .ring = ring};
    const AlignedBytes memory(static_cast<std::size_t>(KvCache<T>::bytes(shape)));
    const std::span<std::byte> block = memory.bytes;
    KvCache<T> cache(shape, block);
    Ground<T> ground = empty_ground<T>(shape);
    append(cache, ground, random, 0, 5);
    // docs/guide/kv-caches.md: a header of 80 bytes, lengths, first keys, the table of three panels, their users.
    constexpr std::size_t kTable = 256, kPanelUsers = 320;
    const auto write = [&](std::size_t at, const std::array<std::int32_t, 3>& numbers) {
      std::memcpy(block.data() + at, numbers.data(), sizeof numbers);
    };
    EXPECT_NO_THROW(KvCache<T>::open(block));
    write(kTable, {0, 1, 1});
    write(kPanelUsers, {1, 2, 0});
    EXPECT_EQ(rejection<std::runtime_error>([&] { KvCache<T>::open(block); }),
              "KvCache: byte 256: sequence 0 shares panel 1, which it will write to");
    write(kTable, {0, 1, -1});
    write(kPanelUsers, {1, 1, 0});
    const std::int32_t two = 2;
    std::memcpy(block.data() + 384, &two, sizeof two);
    if (ring) {
      EXPECT_EQ(rejection<std::runtime_error>([&] { KvCache<T>::open(block); }),
                "KvCache: byte 256: sequence 0 is missing a panel of its ring");
    } else {
      EXPECT_NO_THROW(KvCache<T>::open(block));
    }
    std::memset(block.data() + 128, 0, sizeof(std::int64_t));
    EXPECT_EQ(rejection<std::runtime_error>([&] { KvCache<T>::open(block); }),
              "KvCache: byte 256: sequence 0 is empty but has panels");
  }
}

// Two sequences that share a partially filled panel need a single copy of it.
TYPED_TEST(KvCacheOf, AppendToAllCountsASharedPanelOnce) {
  using T = TypeParam;
  Random random(12);
  const KvCacheShape shape{
      .num_sequences = 2, .head_size = 3, .value_head_size = 2, .capacity = 96, .page_keys = 32, .num_pages = 3};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 64);
  cache.fork(0, 1);
  for (const Index s : {0, 1}) cache.truncate(s, 40);
  ASSERT_EQ(cache.num_free_pages(), 1);
  const auto key = normal_array<T, 4>(random, {2, 1, 3, 3});
  const auto value = normal_array<T, 4>(random, {2, 1, 3, 2});
  cache.append(key.view(), value.view());
  EXPECT_EQ(cache.num_free_pages(), 0);
  for (const Index s : {0, 1}) {
    EXPECT_EQ(cache.length(s), 43);
    EXPECT_EQ(cache.key_panel(s, 0, 1)[10], key.get({s, 0, 2, 0}));
    EXPECT_EQ(cache.key_panel(s, 0, 1)[7], cache.key_panel(0, 0, 1)[7]);
  }
}

// The executor's tasks run during attention_decode.
TYPED_TEST(KvCacheOf, CannotBeChangedDuringDecode) {
  using T = TypeParam;
  Random random(13);
  const KvCacheShape shape{
      .num_sequences = 2, .num_kv_heads = 2, .head_size = 32, .value_head_size = 32, .capacity = 6000};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 5000);
  const auto query = normal_array<T, 4>(random, {2, 2, 8, 32});
  auto outputs = AttentionArrays<T>::dense(2, 2, 8, 0, 32, false);
  std::string append_text, truncate_text;
  int decoded = 0;
  Runtime runtime;
  runtime.num_threads = 2;
  runtime.executor = [&](Index count, const Task& task) {
    append_text = rejection<std::logic_error>([&] { append(cache, ground, random, 1, 1); });
    truncate_text = rejection<std::logic_error>([&] { cache.truncate(0, 0); });
    auto others = AttentionArrays<T>::dense(2, 2, 8, 0, 32, false);
    attention_decode(query.view(), cache, others.views(), {.query_offset = Index{0}}, {.num_threads = 1});
    ++decoded;
    for (Index i = 0; i < count; ++i) task(i);
  };
  attention_decode(query.view(), cache, outputs.views(), {.query_offset = Index{0}}, runtime);
  EXPECT_GT(decoded, 0);
  EXPECT_EQ(append_text, "KvCache::append: another thread is reading this cache");
  EXPECT_EQ(truncate_text, "KvCache::truncate: another thread is reading this cache");
  cache.truncate(0, 0);
  EXPECT_EQ(cache.length(0), 0);
}

// Of concurrent calls, only changes are rejected, whichever sequence they affect.
TYPED_TEST(KvCacheOf, ConcurrentDecodesSucceedWhileChangesAreRejected) {
  using T = TypeParam;
  Random random(17);
  const KvCacheShape shape{
      .num_sequences = 3, .num_kv_heads = 2, .head_size = 32, .value_head_size = 32, .capacity = 6000};
  KvCache<T> cache(shape);
  const auto many = normal_array<T, 3>(random, {2, 5000, 32});
  cache.append(0, many.view(), many.view());
  const auto query = normal_array<T, 4>(random, {3, 2, 8, 32});
  const auto context_of = [&](const Runtime& runtime) {
    auto outputs = AttentionArrays<T>::dense(3, 2, 8, 0, 32, false);
    attention_decode(query.view(), cache, outputs.views(), {.causal = true}, runtime);
    return outputs.context.values();
  };
  const std::vector<T> expected = context_of({});
  const auto key = normal_array<T, 3>(random, {2, 1, 32});
  std::atomic<int> inside = 0, rejected = 0;
  // Two threads decode, and meanwhile each tries to change a sequence that has no keys.
  const auto decode = [&] {
    bool tried = false;
    Runtime runtime{.num_threads = 2};
    runtime.executor = [&](int count, const std::function<void(int)>& task) {
      if (!tried) {
        tried = true;
        ++inside;
        while (inside < 2) std::this_thread::yield();
        EXPECT_EQ(rejection<std::logic_error>([&] { cache.append(2, key.view(), key.view()); }),
                  "KvCache::append: another thread is reading this cache");
        EXPECT_EQ(rejection<std::logic_error>([&] { cache.truncate(1, 0); }),
                  "KvCache::truncate: another thread is reading this cache");
        EXPECT_EQ(rejection<std::logic_error>([&] { cache.fork(0, 1); }),
                  "KvCache::fork: another thread is reading this cache");
        ++rejected;
        while (rejected < 2) std::this_thread::yield();
      }
      for (int i = 0; i < count; ++i) task(i);
    };
    EXPECT_EQ(context_of(runtime), expected);
    EXPECT_TRUE(tried);
  };
  std::thread other(decode);
  decode();
  other.join();
  cache.append(2, key.view(), key.view());
  EXPECT_EQ(cache.length(2), 1);
}

// Readers of one sequence while another sequence grows; a second writer is rejected.
TYPED_TEST(KvCacheOf, OneWriterAndManyReaders) {
  using T = TypeParam;
  Random random(11);
  const KvCacheShape shape{.num_sequences = 2,
                           .head_size = 16,
                           .value_head_size = 16,
                           .capacity = 60000,
                           .page_keys = 64,
                           .num_pages = 1000};
  KvCache<T> cache(shape);
  const auto some_key = normal_array<T, 3>(random, {1, 200, 16});
  const auto some_value = normal_array<T, 3>(random, {1, 200, 16});
  const auto all_key = normal_array<T, 3>(random, {1, 50000, 16});
  const auto all_value = normal_array<T, 3>(random, {1, 50000, 16});
  cache.append(0, some_key.view(), some_value.view());
  const std::vector<T> panel(cache.key_panel(0, 0, 3), cache.key_panel(0, 0, 3) + 16 * 32);
  const auto query = normal_array<T, 4>(random, {2, 1, 1, 16});
  const auto decoded = [&] {
    auto outputs = AttentionArrays<T>::dense(2, 1, 1, 0, 16, false);
    attention_decode(query.view(), cache, outputs.views(), {.query_offset = Index{0}}, {.num_threads = 1});
    std::vector<T> first = outputs.context.values();
    first.resize(16);
    return first;
  };
  const std::vector<T> context = decoded();
  std::atomic<bool> writing = true;
  int rejected = 0;
  Index read = 0;
  // Retries until the other thread is not using the cache.
  const auto insist = [](auto change) {
    for (;;) {
      try {
        return change();
      } catch (const CacheInUse&) {
      }
    }
  };
  std::thread writer([&] {
    for (int n = 0; n < 20; ++n) {
      insist([&] { cache.append(1, all_key.view(), all_value.view()); });
      insist([&] { cache.truncate(1, 0); });
    }
    writing = false;
  });
  while (writing) {
    EXPECT_TRUE(std::equal(panel.begin(), panel.end(), cache.key_panel(0, 0, 3)));
    ++read;
    try {
      EXPECT_EQ(decoded(), context);
    } catch (const CacheInUse& error) {
      EXPECT_STREQ(error.what(), "attention_decode: another thread is changing this cache");
    }
    try {
      cache.append(0, TensorView<const T, 3>(some_key.view().data, {1, 0, 16}),
                   TensorView<const T, 3>(some_value.view().data, {1, 0, 16}));
    } catch (const CacheInUse& error) {
      ++rejected;
    }
  }
  writer.join();
  EXPECT_GT(read, 0);
  EXPECT_GT(rejected, 0);
}

TEST(KvCacheRejections, NameTheArgument) {
  const KvCacheShape good{.num_sequences = 2, .num_kv_heads = 2, .head_size = 4, .value_head_size = 3, .capacity = 40};
  const auto made = [&](auto change) {
    KvCacheShape shape = good;
    change(shape);
    return rejection([&] { KvCache<float> cache(shape); });
  };
  EXPECT_EQ(made([](auto& s) { s.head_size = 0; }), "KvCache: head_size is 0; expected 1 or more");
  EXPECT_EQ(made([](auto& s) { s.num_sequences = -1; }), "KvCache: num_sequences is -1; expected 0 or more");
  EXPECT_EQ(made([](auto& s) { s.page_keys = 48; }), "KvCache: page_keys is 48; expected a multiple of 32");
  EXPECT_EQ(made([](auto& s) { s.num_pages = 4; }),
            "KvCache: num_pages is given without page_keys; a contiguous cache has one page per sequence");
  EXPECT_EQ(
      made([](auto& s) { s.capacity = std::numeric_limits<Index>::max(); }),
      "KvCache: a cache of this shape is too large for its size to be represented; expected fewer or smaller pages");
  KvCache<float> cache(good);
  Array<float, 3> key({2, 5, 4}), value({2, 5, 3}), wide({2, 41, 4}), wide_value({2, 41, 3});
  const auto appended = [&](Index s, const Array<float, 3>& k, const Array<float, 3>& v) {
    return rejection([&] { cache.append(s, k.view(), v.view()); });
  };
  EXPECT_EQ(appended(2, key, value), "KvCache::append: there is no sequence 2; expected 0 to 1");
  for (const Index none : {Index{2}, Index{-1}, Index{1} << 60}) {
    const std::string rest = ": there is no sequence " + std::to_string(none) + "; expected 0 to 1";
    EXPECT_EQ(rejection([&] { cache.length(none); }), "KvCache::length" + rest);
    EXPECT_EQ(rejection([&] { cache.first_key(none); }), "KvCache::first_key" + rest);
  }
  EXPECT_EQ(appended(0, key, key), "KvCache::append: value has shape (2, 5, 4); expected (2, 5, 3)");
  EXPECT_EQ(appended(0, wide, wide_value),
            "KvCache::append: sequence 0 holds 0 keys, and 41 more are given; its capacity is 40");
  cache.append(0, key.view(), value.view());
  EXPECT_EQ(rejection([&] { cache.truncate(0, 6); }), "KvCache::truncate: length is 6; sequence 0 has keys 0 to 5");
  EXPECT_EQ(rejection([&] { cache.fork(1, 0); }),
            "KvCache::fork: sequence 0 has 5 keys; expected a different, empty sequence");
  Array<float, 4> query({2, 2, 1, 4});
  auto outputs = AttentionArrays<float>::dense(2, 2, 1, 0, 3, false);
  const auto decoded = [&](const AttentionOptions& options) {
    return rejection([&] { attention_decode(query.view(), cache, outputs.views(), options); });
  };
  const std::vector<Index> lengths{1, 1};
  EXPECT_EQ(decoded({.key_lengths = lengths}),
            "attention_decode: key_lengths is given; expected none: the cache holds the lengths");
  EXPECT_EQ(decoded({.causal = true}), "accepted");
  EXPECT_EQ(decoded({.query_offset = Index{0}}), "accepted");
  AttentionOutputs inside = outputs.views();
  inside.context.data = reinterpret_cast<float*>(const_cast<std::byte*>(cache.memory().data()));
  EXPECT_EQ(rejection([&] { attention_decode(query.view(), cache, inside, {.query_offset = Index{0}}); }),
            "attention_decode: context overlaps the cache; expected separate memory");
}

// Errors in the caller's arguments: a query and a cache.
TEST(KvCacheRejections, QueryErrorsNameTheCache) {
  const KvCache<float> cache(
      {.num_sequences = 4, .num_kv_heads = 2, .head_size = 8, .value_head_size = 3, .capacity = 40});
  const KvCache<float> single(
      {.num_sequences = 1, .num_kv_heads = 2, .head_size = 8, .value_head_size = 3, .capacity = 40});
  const auto decoded = [](const KvCache<float>& of, const std::array<Index, 4>& shape) {
    const std::vector<float> numbers(1000);
    auto outputs = AttentionArrays<float>::dense(shape[0], shape[1], shape[2], 0, 3, false);
    return rejection([&] { attention_decode({numbers.data(), shape}, of, outputs.views(), {.causal = true}); });
  };
  EXPECT_EQ(decoded(cache, {4, 4, 1, 8}), "accepted");
  EXPECT_EQ(decoded(cache, {1, 4, 1, 8}),
            "attention_decode: query has batch 1 in shape (1, 4, 1, 8); the cache has 4 sequences");
  EXPECT_EQ(decoded(single, {2, 4, 1, 8}),
            "attention_decode: query has batch 2 in shape (2, 4, 1, 8); the cache has 1 sequence");
  EXPECT_EQ(decoded(cache, {4, 3, 1, 8}),
            "attention_decode: query has 3 heads in shape (4, 3, 1, 8); the cache has 2 KV heads; expected a multiple "
            "of that number");
  EXPECT_EQ(decoded(cache, {4, 4, 1, 7}),
            "attention_decode: query has head size 7 in shape (4, 4, 1, 7); the cache has head size 8");
  auto outputs = AttentionArrays<float>::dense(4, 4, 1, 0, 3, false);
  EXPECT_EQ(rejection([&] { attention_decode(InputView<4>(), cache, outputs.views()); }),
            "attention_decode: query is missing; expected (B, H, L, D) with B = number of sequences in the cache");
}

// By default, rows are at the newest positions, whatever the lengths of the sequences.
TYPED_TEST(KvCacheOf, QueriesAreTheNewestRowsByDefault) {
  using T = TypeParam;
  Random random(14);
  const KvCacheShape shape{
      .num_sequences = 3, .num_kv_heads = 1, .head_size = 8, .value_head_size = 5, .capacity = 100};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  append(cache, ground, random, 0, 70);
  append(cache, ground, random, 2, 3);
  const std::vector<T> slopes{static_cast<T>(0.5), 2};
  const std::vector<Index> prefix{5, 0, 1};
  for (const Index L : {1, 4}) {
    const auto query = normal_array<T, 4>(random, {3, 2, L, 8});
    const std::vector<AttentionOptions> all = {
        {.causal = true},
        {.window = {.left = 7, .right = 0}},
        {.alibi_slopes = slopes},
        {.causal = true, .prefix = prefix},
    };
    for (AttentionOptions options : all) {
      auto unnamed = AttentionArrays<T>::dense(3, 2, L, 0, 5, false);
      attention_decode(query.view(), cache, unnamed.views(), options);
      options.query_offset = QueryAlignment::bottom_right;
      auto named = AttentionArrays<T>::dense(3, 2, L, 0, 5, false);
      attention_decode(query.view(), cache, named.views(), options);
      EXPECT_EQ(all_bits(unnamed), all_bits(named));
      expect_forward_bits(cache, ground, query, options);
    }
  }
}

// Sequences without keys, with others or alone, give fully masked rows.
TYPED_TEST(KvCacheOf, SequencesWithoutKeysGiveZeros) {
  using T = TypeParam;
  Random random(15);
  const KvCacheShape shape{
      .num_sequences = 2, .num_kv_heads = 1, .head_size = 8, .value_head_size = 5, .capacity = 100};
  KvCache<T> cache(shape);
  Ground<T> ground = empty_ground<T>(shape);
  const auto query = normal_array<T, 4>(random, {2, 2, 3, 8});
  const auto expect_zeros_from = [&](Index first) {
    auto got = AttentionArrays<T>::dense(2, 2, 3, 0, 5, false);
    attention_decode(query.view(), cache, got.views(), {.causal = true});
    for (Index b = 0; b < 2; ++b) {
      for (Index h = 0; h < 2; ++h) {
        for (Index i = 0; i < 3; ++i) {
          EXPECT_EQ(got.lse->get({b, h, i}) == -std::numeric_limits<T>::infinity(), b >= first);
          for (Index c = 0; b >= first && c < 5; ++c) {
            const T x = got.context.get({b, h, i, c});
            EXPECT_TRUE(x == 0 && !std::signbit(x)) << b << ' ' << h << ' ' << i << ' ' << c;
          }
        }
      }
    }
  };
  expect_zeros_from(0);
  append(cache, ground, random, 0, 40);
  expect_zeros_from(1);
}

// docs/guide/kv-caches.md: the prompt of one of several sequences is processed with attention_forward.
TYPED_TEST(KvCacheOf, PrefillWithForwardForOneOfSeveralSequences) {
  using T = TypeParam;
  Random random(16);
  KvCache<T> cache({.num_sequences = 3, .num_kv_heads = 2, .head_size = 8, .value_head_size = 5, .capacity = 100});
  const Index length = 67;
  const auto key = normal_array<T, 4>(random, {1, 2, length, 8});
  const auto value = normal_array<T, 4>(random, {1, 2, length, 5});
  const auto query = normal_array<T, 4>(random, {1, 4, length, 8});
  cache.append(1, TensorView<const T, 3>(key.view().data, {2, length, 8}),
               TensorView<const T, 3>(value.view().data, {2, length, 5}));
  Array<T, 4> prefilled({1, 4, length, 5});
  attention_forward(query.view(), key.view(), value.view(), {.context = prefilled.view()}, {.causal = true});
  const TensorView<const T, 4> three(query.view().data, {3, 4, length, 8}, {0, length * 8, 8, 1});
  Array<T, 4> decoded({3, 4, length, 5});
  attention_decode(three, cache, {.context = decoded.view()}, {.causal = true});
  prefilled.for_each_index(
      [&](const auto& at) { EXPECT_EQ(prefilled.get(at), decoded.get({1, at[1], at[2], at[3]})); });
}

}  // namespace
}  // namespace regard::kv_cache_test
