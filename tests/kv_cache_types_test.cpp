// SPDX-License-Identifier: Apache-2.0
//
// Caches of bfloat16 and float16: half the bytes, and the bits of attention_forward over the same values, for every
// supported type of query and context.
//
//     kinds of cache × (query, cache, context) × pieces, forks, splits, threads, instruction sets
//
// Read next: kv_cache_test.cpp, attention_types_test.cpp.
#include "regard/kv_cache.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::kv_cache_types_test {
namespace {

template <class Q, class K, class C>
struct Combination {
  using Query = Q;
  using Stored = K;
  using Context = C;
};

template <class Combined>
class KvCacheTypes : public testing::Test {};
using Combinations = testing::Types<Combination<float, bfloat16, float>, Combination<float, float16, float>,
                                    Combination<bfloat16, bfloat16, bfloat16>, Combination<bfloat16, bfloat16, float>,
                                    Combination<bfloat16, float16, bfloat16>, Combination<bfloat16, float, bfloat16>,
                                    Combination<float16, float16, float16>, Combination<float16, bfloat16, float>,
                                    Combination<float16, bfloat16, float16>, Combination<float16, float, float16>>;
TYPED_TEST_SUITE(KvCacheTypes, Combinations);

constexpr Index kSequences = 2, kKeyHeads = 2, kDepth = 11, kColumns = 37, kCapacity = 1200;

std::vector<KvCacheShape> kinds() {
  const KvCacheShape contiguous{.num_sequences = kSequences,
                                .num_kv_heads = kKeyHeads,
                                .head_size = kDepth,
                                .value_head_size = kColumns,
                                .capacity = kCapacity};
  KvCacheShape paged = contiguous, ring = contiguous;
  paged.page_keys = 64;
  paged.num_pages = 2 * ((kCapacity + 63) / 64);
  ring.ring = true;
  return {contiguous, paged, ring};
}

template <class E, int Rank>
Array<E, Rank> random_numbers(Random& random, const std::array<Index, static_cast<std::size_t>(Rank)>& shape) {
  Array<E, Rank> array(shape, random_layout<Rank>(random, true));
  array.for_each_index([&](const auto& at) { array.set(at, E(static_cast<float>(random.normal()))); });
  return array;
}

// The first `count` keys from `first` on of (B, Hkv, S, …), of one sequence.
template <class E>
TensorView<const E, 3> piece(const Array<E, 4>& from, Index sequence, Index first, Index count) {
  const TensorView<const E, 4> view = from.view();
  return {view.pointer(sequence, 0, first, 0),
          {kKeyHeads, count, view.shape[3]},
          {view.strides[1], view.strides[2], view.strides[3]}};
}

template <class Q, class K, class C>
void expect_forward_bits(const KvCache<K>& cache, const Array<Q, 4>& query, const Array<K, 4>& key,
                         const Array<K, 4>& value, AttentionOptions options, int num_threads) {
  const auto& [B, H, L, D] = query.shape();
  Array<C, 4> got({B, H, L, kColumns}), expected({B, H, L, kColumns});
  Array<float, 3> got_lse({B, H, L}), expected_lse({B, H, L});
  attention_decode(query.view(), cache, AttentionOutputs{.context = got.view(), .lse = got_lse.view()}, options,
                   {.num_threads = num_threads});
  std::vector<Index> lengths;
  for (Index s = 0; s < B; ++s) lengths.push_back(cache.length(s));
  options.key_lengths = lengths;
  attention_forward(query.view(), key.view(), value.view(),
                    AttentionOutputs{.context = expected.view(), .lse = expected_lse.view()}, options);
  EXPECT_EQ(bits_of(got), bits_of(expected));
  EXPECT_EQ(bits_of(got_lse), bits_of(expected_lse));
}

TYPED_TEST(KvCacheTypes, DecodeMatchesForward) {
  using Q = typename TypeParam::Query;
  using K = typename TypeParam::Stored;
  using C = typename TypeParam::Context;
  Random random(3);
  const auto key = random_numbers<K, 4>(random, {kSequences, kKeyHeads, 1150, kDepth});
  auto value = random_numbers<K, 4>(random, {kSequences, kKeyHeads, 1150, kColumns});
  // Poison: later queries attend to it, earlier ones must not be affected.
  value.set({0, 1, 900, 5}, K(std::numeric_limits<float>::infinity()));
  value.set({1, 0, 33, 36}, K(std::numeric_limits<float>::quiet_NaN()));
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const KvCacheShape& shape : kinds()) {
      KvCache<K> cache(shape);
      EXPECT_LT(KvCache<K>::bytes(shape),
                sizeof(K) == 2 ? KvCache<float>::bytes(shape) * 6 / 10 : KvCache<float>::bytes(shape) + 1);
      Index at = 0;
      for (const Index n : {1, 30, 2, 64, 1000, 33, 20}) {
        for (const Index s : {0, 1}) cache.append(s, piece(key, s, at, n), piece(value, s, at, n));
        at += n;
      }
      ASSERT_EQ(at, 1150);
      for (const Index L : {1, 17}) {
        const auto query = random_numbers<Q, 4>(random, {kSequences, 6, L, kDepth});
        for (const int threads : {1, 3}) {
          expect_forward_bits<Q, K, C>(cache, query, key, value, {.query_offset = Index{0}}, threads);
          expect_forward_bits<Q, K, C>(cache, query, key, value, {.causal = true, .query_offset = Index{880}}, threads);
          expect_forward_bits<Q, K, C>(
              cache, query, key, value,
              {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {700, 0}}, threads);
        }
      }
    }
  });
}

template <class K>
class KvCacheOf16Bits : public testing::Test {};
using TwoBytes = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(KvCacheOf16Bits, TwoBytes);

TYPED_TEST(KvCacheOf16Bits, ForkTruncateAndReopen) {
  using K = TypeParam;
  Random random(4);
  const auto key = random_numbers<K, 4>(random, {kSequences, kKeyHeads, 300, kDepth});
  const auto value = random_numbers<K, 4>(random, {kSequences, kKeyHeads, 300, kColumns});
  const auto query = random_numbers<float, 4>(random, {kSequences, 4, 3, kDepth});
  KvCacheShape shape = kinds()[1];
  std::vector<std::byte> memory(static_cast<std::size_t>(KvCache<K>::bytes(shape)) + 64, std::byte{0xff});
  void* aligned = memory.data();
  std::size_t space = memory.size();
  std::align(64, space - 64, aligned, space);
  const std::span<std::byte> block(static_cast<std::byte*>(aligned),
                                   static_cast<std::size_t>(KvCache<K>::bytes(shape)));
  KvCache<K> cache(shape, block);
  cache.append(0, piece(key, 0, 0, 200), piece(value, 0, 0, 200));
  cache.fork(0, 1);
  cache.truncate(0, 70);
  cache.append(0, piece(key, 0, 70, 100), piece(value, 0, 70, 100));
  // Sequence 1 has the first 200 keys of sequence 0.
  Array<K, 4> both_keys({kSequences, kKeyHeads, 200, kDepth}), both_values({kSequences, kKeyHeads, 200, kColumns});
  both_keys.for_each_index([&](const auto& i) { both_keys.set(i, key.get({0, i[1], i[2], i[3]})); });
  both_values.for_each_index([&](const auto& i) { both_values.set(i, value.get({0, i[1], i[2], i[3]})); });
  const auto check = [&](const KvCache<K>& of) {
    EXPECT_EQ(of.length(0), 170);
    EXPECT_EQ(of.length(1), 200);
    expect_forward_bits<float, K, float>(of, query, both_keys, both_values, {.query_offset = Index{0}}, 2);
  };
  check(cache);
  check(KvCache<K>::open(block));
}

TYPED_TEST(KvCacheOf16Bits, RejectsBlocksOfAnotherType) {
  using K = TypeParam;
  using Other = std::conditional_t<std::is_same_v<K, bfloat16>, float16, bfloat16>;
  KvCache<K> cache(kinds()[0]);
  const std::span<std::byte> block(const_cast<std::byte*>(cache.memory().data()), cache.memory().size());
  const auto opened = [&]<class T>(T) { return rejection<std::runtime_error>([&] { KvCache<T>::open(block); }); };
  const std::string holds = std::string("KvCache: byte 12: holds ") + type_name(kElementType<K>) + "; expected ";
  EXPECT_EQ(opened(K{}), "accepted");
  EXPECT_EQ(opened(Other{}), holds + type_name(kElementType<Other>));
  EXPECT_EQ(opened(float{}), holds + "float32");
  EXPECT_EQ(opened(double{}), holds + "float64");
  block[14] = std::byte{7};
  EXPECT_TRUE(opened(K{}).starts_with("KvCache: byte 12: holds type ")) << opened(K{});
}

TYPED_TEST(KvCacheOf16Bits, RejectsUnsupportedContextTypes) {
  using K = TypeParam;
  Random random(5);
  KvCache<K> cache(kinds()[0]);
  const auto query = random_numbers<float, 4>(random, {kSequences, 2, 1, kDepth});
  Array<K, 4> context({kSequences, 2, 1, kColumns});
  EXPECT_EQ(rejection([&] {
              attention_decode(query.view(), cache, AttentionOutputs{.context = context.view()},
                               {.query_offset = Index{0}});
            }),
            std::string("attention_decode: context has type ") + type_name(kElementType<K>) +
                "; expected float32 as in query");
}

// A cache of any type accepts any type, and stores each element rounded once to nearest even.
template <class G, class K>
void expect_rounded_appends() {
  using Wide = ComputeType<K>;
  Random random(6);
  const auto rounded = [](G x) {
    if constexpr (std::same_as<G, K>) {
      return x;
    } else {
      return K(static_cast<Wide>(x));
    }
  };
  auto key = random_numbers<G, 4>(random, {kSequences, kKeyHeads, 140, kDepth});
  auto value = random_numbers<G, 4>(random, {kSequences, kKeyHeads, 140, kColumns});
  // Ties in both directions, subnormals, and a value beyond the largest float16 but not the largest bfloat16.
  const std::array<float, 6> odd{1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 0x1p-24f, -0x1.8p-25f};
  for (std::size_t n = 0; n < odd.size(); ++n) {
    key.set({0, 1, static_cast<Index>(20 * n), 3}, G(odd[n]));
    value.set({0, 1, static_cast<Index>(20 * n), 7}, G(odd[n]));
  }
  value.set({1, 1, 77, 5}, G(65520.0f));
  Array<K, 4> held_key(key.shape()), held_value(value.shape());
  key.for_each_index([&](const auto& at) { held_key.set(at, rounded(key.get(at))); });
  value.for_each_index([&](const auto& at) { held_value.set(at, rounded(value.get(at))); });
  for (const KvCacheShape& shape : kinds()) {
    KvCache<K> cache(shape), same(shape);
    Index at = 0;
    // Partial and full panels, of one sequence and of all.
    for (const Index n : {5, 90, 1, 44}) {
      for (const Index s : {0, 1}) {
        cache.append(s, piece(key, s, at, n), piece(value, s, at, n));
        same.append(s, piece(held_key, s, at, n), piece(held_value, s, at, n));
      }
      at += n;
    }
    for (const Index s : {0, 1}) {
      ASSERT_EQ(cache.length(s), 140);
      for (Index j = cache.first_key(s); j < 140; ++j) {
        for (Index h = 0; h < kKeyHeads; ++h) {
          const auto bits = [](K x) {
            return std::bit_cast<std::conditional_t<sizeof(K) == 2, std::uint16_t,
                                                    std::conditional_t<sizeof(K) == 4, std::uint32_t, std::uint64_t>>>(
                x);
          };
          for (Index d = 0; d < kDepth; ++d)
            EXPECT_EQ(bits(cache.key_panel(s, h, j / 32)[d * 32 + j % 32]), bits(held_key.get({s, h, j, d})));
          for (Index c = 0; c < kColumns; ++c)
            EXPECT_EQ(bits(cache.value_panel(s, h, j / 32)[c / 32 * 1024 + j % 32 * 32 + c % 32]),
                      bits(held_value.get({s, h, j, c})));
          EXPECT_EQ(cache.values_finite(s, h, j / 32), same.values_finite(s, h, j / 32));
        }
      }
    }
    KvCache<K> all(shape);
    all.append(key.view(), value.view());
    Array<float, 4> context({kSequences, kKeyHeads, 1, kColumns}), expected({kSequences, kKeyHeads, 1, kColumns});
    const auto query = random_numbers<float, 4>(random, {kSequences, kKeyHeads, 1, kDepth});
    attention_decode(query.view(), all, {.context = context.view()}, {.causal = true});
    attention_decode(query.view(), same, {.context = expected.view()}, {.causal = true});
    EXPECT_EQ(bits_of(context), bits_of(expected));
  }
}

TEST(KvCacheTypes, AppendRoundsToTheCacheType) {
  expect_rounded_appends<float, bfloat16>();
  expect_rounded_appends<float, float16>();
  expect_rounded_appends<float16, bfloat16>();
  expect_rounded_appends<bfloat16, float16>();
  expect_rounded_appends<bfloat16, float>();
  expect_rounded_appends<float16, float>();
}

}  // namespace
}  // namespace regard::kv_cache_types_test
