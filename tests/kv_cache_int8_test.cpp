// SPDX-License-Identifier: Apache-2.0
//
// Caches of int8: what append stores, compared with the formula in double; and attention_decode compared bit by bit
// with attention_forward over the stored values.
//
//     scale = max |x| / 127 as float,   int8 = round(x / scale) to even,   stored value = float(int8) · scale
//
// Read next: kv_cache_types_test.cpp, src/kv_cache/kv_cache.cpp.

#include "regard/kv_cache.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/floating_point_state.h"

namespace regard::kv_cache_int8_test {
namespace {

constexpr Index kSequences = 2, kKeyHeads = 2, kDepth = 11, kColumns = 37;

KvCacheShape contiguous(Index capacity) {
  return {.num_sequences = kSequences,
          .num_kv_heads = kKeyHeads,
          .head_size = kDepth,
          .value_head_size = kColumns,
          .capacity = capacity};
}

// One row as the cache should store it. The quotient is far more precise than needed to decide a tie.
std::vector<float> held(const std::vector<float>& row) {
  float max_abs = 0;
  for (const float x : row) max_abs = std::max(max_abs, std::abs(x));
  const float scale = max_abs / 127;
  std::vector<float> result;
  for (const float x : row) {
    const long double steps = scale == 0 ? 0 : static_cast<long double>(x) / static_cast<long double>(scale);
    long double nearest = std::floor(steps);
    const long double above = steps - nearest;
    if (above > 0.5L || (above == 0.5L && std::fmod(nearest, 2.0L) != 0)) nearest += 1;
    nearest = std::clamp(nearest, -127.0L, 127.0L);
    result.push_back(static_cast<float>(nearest) * scale);
  }
  return result;
}

Array<float, 4> held(const Array<float, 4>& from) {
  Array<float, 4> to(from.shape());
  const auto [B, H, S, width] = from.shape();
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < H; ++h) {
      for (Index s = 0; s < S; ++s) {
        std::vector<float> row;
        for (Index d = 0; d < width; ++d) row.push_back(from.get({b, h, s, d}));
        row = held(row);
        for (Index d = 0; d < width; ++d) to.set({b, h, s, d}, row[static_cast<std::size_t>(d)]);
      }
    }
  }
  return to;
}

template <class E>
TensorView<const E, 3> piece(const Array<E, 4>& from, Index sequence, Index first, Index count) {
  const TensorView<const E, 4> view = from.view();
  return {view.pointer(sequence, 0, first, 0),
          {view.shape[1], count, view.shape[3]},
          {view.strides[1], view.strides[2], view.strides[3]}};
}

// The panels of a one-row cache, converted to float: the values stored for this row.
std::vector<float> row_of_cache(const std::vector<float>& row) {
  const auto depth = static_cast<Index>(row.size());
  KvCache<std::int8_t> cache(
      {.num_sequences = 1, .num_kv_heads = 1, .head_size = depth, .value_head_size = depth, .capacity = 1});
  cache.append(0, {row.data(), {1, 1, depth}}, {row.data(), {1, 1, depth}});
  std::vector<float> result;
  const float* scales = cache.scales(0, 0, 0);
  for (Index d = 0; d < depth; ++d) {
    const Index column = d / 32 * 1024 + d % 32;
    const float key = static_cast<float>(cache.key_panel(0, 0, 0)[d * 32]) * scales[0];
    const float value = static_cast<float>(cache.value_panel(0, 0, 0)[column]) * scales[32];
    EXPECT_EQ(key, value);
    result.push_back(key);
  }
  return result;
}

TEST(KvCacheInt8, ScaleAndRounding) {
  const float tiny = std::numeric_limits<float>::denorm_min(), largest = std::numeric_limits<float>::max();
  // 127 gives scale 1: the values are steps, and halves are ties.
  EXPECT_EQ(row_of_cache({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 0.49999997f, 0.50000006f}),
            (std::vector<float>{127, 0, 2, 2, 0, -2, -2, 126, 0, 1}));
  EXPECT_EQ(row_of_cache({0, -0.0f, 0}), (std::vector<float>{0, 0, 0}));
  const std::vector<std::vector<float>> rows{{-254, 1, 2, 3},
                                             {largest, -largest, largest / 2, 1},
                                             {tiny, -tiny},
                                             {190 * tiny, -100 * tiny, 3 * tiny},
                                             {0x1p-126f, 0x1p-130f, -0x1p-127f},
                                             {1, 1 + 0x1p-23f, 0.1f, -0.3f, 0.7f}};
  for (const std::vector<float>& row : rows) EXPECT_EQ(row_of_cache(row), held(row)) << row[0];
  Random random(1);
  for (int n = 0; n < 2000; ++n) {
    std::vector<float> row;
    for (int d = 0; d < 40; ++d) row.push_back(static_cast<float>(random.normal() * std::exp2(n % 60 - 30)));
    ASSERT_EQ(row_of_cache(row), held(row)) << n;
  }
}

TEST(KvCacheInt8, CallersRoundingModeDoesNotMatter) {
  Random random(2);
  const auto key = normal_array<float, 4>(random, {kSequences, kKeyHeads, 40, kDepth});
  const auto value = normal_array<float, 4>(random, {kSequences, kKeyHeads, 40, kColumns});
  KvCache<std::int8_t> usual(contiguous(64)), unusual(contiguous(64));
  usual.append(key.view(), value.view());
  const std::uint64_t state = floating_point_state();
  set_floating_point_state(state | kRoundToZero);
  unusual.append(key.view(), value.view());
  set_floating_point_state(state);
  EXPECT_TRUE(std::ranges::equal(usual.memory(), unusual.memory()));
}

TEST(KvCacheInt8, DecodeMatchesForwardOverStoredValues) {
  Random random(3);
  const auto key = normal_array<float, 4>(random, {kSequences, kKeyHeads, 1150, kDepth});
  const auto value = normal_array<float, 4>(random, {kSequences, kKeyHeads, 1150, kColumns}, 3);
  const Array<float, 4> held_key = held(key), held_value = held(value);
  const std::vector<Index> lengths{1150, 1150};
  KvCacheShape paged = contiguous(1200), ring = contiguous(1200);
  paged.page_keys = 64;
  paged.num_pages = 2 * 19;
  ring.ring = true;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const KvCacheShape& shape : {contiguous(1200), paged, ring}) {
      EXPECT_LT(KvCache<std::int8_t>::bytes(shape), KvCache<bfloat16>::bytes(shape));
      KvCache<std::int8_t> cache(shape);
      Index at = 0;
      for (const Index n : {1, 30, 2, 64, 1000, 33, 20}) {
        for (const Index s : {0, 1}) cache.append(s, piece(key, s, at, n), piece(value, s, at, n));
        at += n;
      }
      for (const Index L : {1, 17}) {
        const auto query = normal_array<float, 4>(random, {kSequences, 6, L, kDepth});
        Array<float, 4> got({kSequences, 6, L, kColumns}), expected({kSequences, 6, L, kColumns});
        for (const int threads : {1, 3}) {
          AttentionOptions options{.causal = true, .query_offset = QueryAlignment::bottom_right};
          attention_decode(query.view(), cache, {.context = got.view()}, options, {.num_threads = threads});
          options.key_lengths = lengths;
          attention_forward(query.view(), held_key.view(), held_value.view(), {.context = expected.view()}, options);
          EXPECT_EQ(bits_of(got), bits_of(expected));
        }
        // Within the bound of float, compared with the formula over the stored values.
        AttentionArrays<float> all;
        all.context = std::move(got);
        matches_reference(all,
                          reference::attention<float>(query.view(), held_key.view(), held_value.view(),
                                                      {.causal = true, .query_offset = QueryAlignment::bottom_right}));
      }
    }
  });
}

TEST(KvCacheInt8, AcceptsAndReturnsOtherTypes) {
  Random random(4);
  Array<bfloat16, 4> key({kSequences, kKeyHeads, 50, kDepth});
  Array<float16, 4> value({kSequences, kKeyHeads, 50, kColumns});
  key.for_each_index([&](const auto& at) { key.set(at, bfloat16(static_cast<float>(random.normal()))); });
  value.for_each_index([&](const auto& at) { value.set(at, float16(static_cast<float>(random.normal()))); });
  Array<float, 4> wide_key(key.shape()), wide_value(value.shape());
  wide_key.for_each_index([&](const auto& at) { wide_key.set(at, static_cast<float>(key.get(at))); });
  wide_value.for_each_index([&](const auto& at) { wide_value.set(at, static_cast<float>(value.get(at))); });
  KvCache<std::int8_t> narrow(contiguous(64)), wide(contiguous(64));
  const std::vector<Index> counts{50, 33};
  narrow.append(key.view(), value.view(), counts);
  wide.append(wide_key.view(), wide_value.view(), counts);
  EXPECT_TRUE(std::ranges::equal(narrow.memory(), wide.memory()));
  Array<bfloat16, 4> query({kSequences, 2, 3, kDepth}), context({kSequences, 2, 3, kColumns});
  query.for_each_index([&](const auto& at) { query.set(at, bfloat16(static_cast<float>(random.normal()))); });
  Array<float, 4> unrounded({kSequences, 2, 3, kColumns});
  attention_decode(query.view(), narrow, {.context = context.view()}, {.query_offset = Index{0}});
  attention_decode(query.view(), narrow, {.context = unrounded.view()}, {.query_offset = Index{0}});
  context.for_each_index([&](const auto& at) { EXPECT_EQ(context.get(at).bits, bfloat16(unrounded.get(at)).bits); });
}

TEST(KvCacheInt8, ForkTruncateAndReopen) {
  Random random(5);
  const auto key = normal_array<float, 4>(random, {1, kKeyHeads, 300, kDepth});
  const auto value = normal_array<float, 4>(random, {1, kKeyHeads, 300, kColumns});
  const auto query = normal_array<float, 4>(random, {kSequences, 4, 3, kDepth});
  const Array<float, 4> held_key = held(key), held_value = held(value);
  KvCacheShape shape = contiguous(320);
  shape.page_keys = 64;
  shape.num_pages = 10;
  KvCache<std::int8_t> cache(shape);
  cache.append(0, piece(key, 0, 0, 200), piece(value, 0, 0, 200));
  cache.fork(0, 1);
  cache.truncate(0, 70);
  cache.append(0, piece(key, 0, 70, 100), piece(value, 0, 70, 100));
  const auto context_of = [&](const KvCache<std::int8_t>& of) {
    Array<float, 4> context({kSequences, 4, 3, kColumns});
    attention_decode(query.view(), of, {.context = context.view()}, {.query_offset = Index{0}});
    return bits_of(context);
  };
  const TensorView<const float, 4> keys(held_key.view().data, {2, kKeyHeads, 300, kDepth},
                                        {0, 300 * kDepth, kDepth, 1});
  const TensorView<const float, 4> values(held_value.view().data, {2, kKeyHeads, 300, kColumns},
                                          {0, 300 * kColumns, kColumns, 1});
  const std::vector<Index> lengths{170, 200};
  Array<float, 4> expected({kSequences, 4, 3, kColumns});
  attention_forward(query.view(), keys, values, {.context = expected.view()},
                    {.query_offset = Index{0}, .key_lengths = lengths});
  EXPECT_EQ(context_of(cache), bits_of(expected));
  const std::span<std::byte> block(const_cast<std::byte*>(cache.memory().data()), cache.memory().size());
  EXPECT_EQ(context_of(KvCache<std::int8_t>::open(block)), bits_of(expected));
  EXPECT_EQ(rejection<std::runtime_error>([&] { KvCache<float>::open(block); }),
            "KvCache: byte 12: holds int8; expected float32");
}

TEST(KvCacheInt8, RejectsNonFiniteValues) {
  KvCache<std::int8_t> cache(contiguous(64));
  Random random(6);
  auto key = normal_array<float, 4>(random, {kSequences, kKeyHeads, 3, kDepth});
  auto value = normal_array<float, 4>(random, {kSequences, kKeyHeads, 3, kColumns});
  cache.append(key.view(), value.view());
  const std::vector<std::byte> before(cache.memory().begin(), cache.memory().end());
  const std::string end = "; expected finite numbers in a cache of int8";
  value.set({1, 0, 2, 30}, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(rejection([&] { cache.append(key.view(), value.view()); }),
            "KvCache::append: value(0, 2, 30) is -inf" + end);
  EXPECT_EQ(rejection([&] { cache.append(1, piece(key, 1, 0, 3), piece(value, 1, 0, 3)); }),
            "KvCache::append: value(0, 2, 30) is -inf" + end);
  key.set({0, 1, 1, 4}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(rejection([&] { cache.append(0, piece(key, 0, 0, 3), piece(value, 0, 0, 3)); }),
            "KvCache::append: key(1, 1, 4) is nan" + end);
  EXPECT_TRUE(std::ranges::equal(cache.memory(), before));
  // Values that are not appended may be anything.
  const std::vector<Index> counts{1, 2};
  cache.append(key.view(), value.view(), counts);
  EXPECT_EQ(cache.length(1), 5);
}

}  // namespace
}  // namespace regard::kv_cache_int8_test
