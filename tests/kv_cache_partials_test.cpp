// SPDX-License-Identifier: Apache-2.0
//
// attention_decode_partials: the keys of several sequences are cut at multiples of 1024, into caches of any kind; the
// merged partial results have the bits of attention_decode over one cache.
//
//     element types × cuts, even empty ones × all options × threads, instruction sets
//
// Read next: attention_merge_test.cpp, kv_cache_test.cpp.
#include "regard/kv_cache.h"
#include "support/partial_results.h"

namespace regard::kv_cache_partials_test {
namespace {

template <class T>
class KvCachePartials : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(KvCachePartials, Types);

InputView<3> sequence_of(const InputView<4>& view, Index b, Index first, Index count) {
  const InputView<4> piece = sliced(sliced(view, 0, b, b + 1), 2, first, first + count);
  return {piece.data,
          piece.type,
          {piece.shape[1], piece.shape[2], piece.shape[3]},
          {piece.strides[1], piece.strides[2], piece.strides[3]}};
}

// Appends keys first[b] … end[b] − 1 of each sequence b to a cache of a random kind.
template <class K>
KvCache<K> cache_of(const InputView<4>& key, const InputView<4>& value, const std::vector<Index>& first,
                    const std::vector<Index>& end, Random& random) {
  const Index sequences = key.shape[0];
  Index longest = 1;
  for (std::size_t b = 0; b < end.size(); ++b) longest = std::max(longest, end[b] - first[b]);
  const Index page_keys = random.one_of({0, 32, 160});
  KvCache<K> cache({.num_sequences = sequences,
                    .num_kv_heads = key.shape[1],
                    .head_size = key.shape[3],
                    .value_head_size = value.shape[3],
                    .capacity = longest,
                    .page_keys = page_keys,
                    .num_pages = page_keys == 0 ? 0 : sequences * (longest / page_keys + 1)});
  for (Index b = 0; b < sequences; ++b) {
    const Index from = first[static_cast<std::size_t>(b)], count = end[static_cast<std::size_t>(b)] - from;
    cache.append(b, sequence_of(key, b, from, count), sequence_of(value, b, from, count));
  }
  return cache;
}

Index longest_of(const auto& cache) {
  Index longest = 0;
  for (Index b = 0; b < cache.shape().num_sequences; ++b) longest = std::max(longest, cache.length(b));
  return longest;
}

// A piece of the keys, and the options of a call for it.
template <class K>
struct CachePiece {
  KvCache<K> cache;
  AttentionOptions options;
};

// The partials of all pieces, in order.
template <class T, class K>
Partials<T> partials_of_caches(const InputView<4>& query, const std::vector<CachePiece<K>>& pieces, Random& random,
                               const Runtime& runtime) {
  Index chunks = 0;
  for (const CachePiece<K>& piece : pieces) chunks += attention_num_chunks(longest_of(piece.cache));
  const Index columns = pieces.front().cache.shape().value_head_size;
  Partials<T> partials(chunks, query.shape[0], query.shape[1], query.shape[2], columns, random_layout<5>(random, true),
                       random_layout<4>(random, true));
  Index n = 0;
  for (const CachePiece<K>& piece : pieces) {
    const Index num = attention_num_chunks(longest_of(piece.cache));
    const auto of_piece = [&](auto& array) { return sliced(array.view(), 0, n, n + num); };
    attention_decode_partials(query, piece.cache,
                              {of_piece(partials.accumulator), of_piece(partials.row_max), of_piece(partials.row_sum),
                               of_piece(partials.scaled)},
                              piece.options, runtime);
    n += num;
  }
  return partials;
}

// Elements of a call rounded to E; without NaN and infinities if K does not store them.
template <class E, class K, class T>
Array<E, 4> rounded(const Array<T, 4>& from) {
  Array<E, 4> to(from.shape());
  to.for_each_index([&](const auto& at) {
    const T x = from.get(at);
    const bool stored = !std::same_as<K, std::int8_t> || std::isfinite(x);
    to.set(at, E(static_cast<ComputeType<E>>(stored ? x : T{0})));
  });
  return to;
}

template <class T, class Q, class K>
void expect_bits_of_decode(std::uint64_t seed) {
  const AttentionCase<T> call = random_long_case<T>(seed);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
  Random random(seed);
  const auto query = rounded<Q, Q>(call.query);
  const auto key = rounded<T, K>(call.key), value = rounded<T, K>(call.value);
  std::vector<Index> lengths;
  for (const reference::Span& span : reference::spans(2, call.L(), call.S(), call.options))
    lengths.push_back(span.key_length);
  const auto options_of = [&](Index first, Index longest) {
    auto options = std::make_unique<CutOptions<T>>(call, first, longest);
    options->options.key_lengths = {};
    if (longest == 0) {  // axes that do not broadcast
      options->options.key_segments = sliced(options->options.key_segments, 1, 0, 0);
      options->options.block_mask = sliced(options->options.block_mask, 3, 0, 0);
    }
    return options;
  };
  const KvCache<K> all = cache_of<K>(key.view(), value.view(), {0, 0}, lengths, random);
  const auto all_options = options_of(0, longest_of(all));
  all_options->options.sinks = call.options.sinks;
  // Two to four pieces, of which some may be empty.
  std::vector<Index> ends;
  for (Index i = random.integer(1, 3); i > 0; --i) ends.push_back(random.integer(0, 3) * kAttentionChunkKeys);
  std::sort(ends.begin(), ends.end());
  ends.push_back(std::max(call.S(), ends.back()));
  std::vector<CachePiece<K>> pieces;
  std::vector<std::unique_ptr<CutOptions<T>>> owned;
  for (Index first = 0; const Index end : ends) {
    std::vector<Index> from, to;
    for (const Index length : lengths) {
      from.push_back(std::min(first, length));
      to.push_back(std::min(end, length));
    }
    KvCache<K> cache = cache_of<K>(key.view(), value.view(), from, to, random);
    owned.push_back(options_of(first, longest_of(cache)));
    pieces.push_back({std::move(cache), owned.back()->options});
    first = end;
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    auto whole = AttentionArrays<T>::dense(2, call.H(), call.L(), 0, call.Dv(), false);
    attention_decode(query.view(), all, whole.views(), all_options->options);
    for (const int threads : {1, 3}) {
      auto partials = partials_of_caches<T>(query.view(), pieces, random, {.num_threads = threads});
      EXPECT_TRUE(all_bits(merged<T>(partials.inputs_with_scaled(), call.options.sinks)) == all_bits(whole))
          << pieces.size() << " pieces, " << threads << " threads";
      EXPECT_TRUE(partials.accumulator.surroundings_untouched() && partials.scaled.surroundings_untouched());
      EXPECT_TRUE(partials.row_max.surroundings_untouched() && partials.row_sum.surroundings_untouched());
    }
  });
}

TEST(KvCachePartialsOf, FloatMergesLikeOneCache) {
  for (std::uint64_t seed = 20280101; seed < 20280101 + test_size<std::uint64_t>(30, 10); ++seed)
    expect_bits_of_decode<float, float, float>(seed);
}
TEST(KvCachePartialsOf, DoubleMergesLikeOneCache) {
  for (std::uint64_t seed = 20280201; seed < 20280201 + test_size<std::uint64_t>(30, 10); ++seed)
    expect_bits_of_decode<double, double, double>(seed);
}
TEST(KvCachePartialsOf, Bfloat16MergesLikeOneCache) {
  for (std::uint64_t seed = 20280301; seed < 20280301 + test_size<std::uint64_t>(15, 6); ++seed) {
    expect_bits_of_decode<float, float, bfloat16>(seed);
    expect_bits_of_decode<float, bfloat16, bfloat16>(seed);
  }
}
TEST(KvCachePartialsOf, Float16MergesLikeOneCache) {
  for (std::uint64_t seed = 20280401; seed < 20280401 + test_size<std::uint64_t>(15, 6); ++seed) {
    expect_bits_of_decode<float, float, float16>(seed);
    expect_bits_of_decode<float, float16, float16>(seed);
  }
}
TEST(KvCachePartialsOf, Int8MergesLikeOneCache) {
  for (std::uint64_t seed = 20280501; seed < 20280501 + test_size<std::uint64_t>(15, 6); ++seed)
    expect_bits_of_decode<float, float, std::int8_t>(seed);
}

TYPED_TEST(KvCachePartials, PartialsOfACacheAreThoseOfItsKeys) {
  using T = TypeParam;
  for (const Index L : {1, 3, 40}) {
    Random random(20280601);
    const auto query = normal_array<T, 4>(random, {2, 4, L, 9});
    const auto key = normal_array<T, 4>(random, {2, 2, 2100, 9}), value = normal_array<T, 4>(random, {2, 2, 2100, 35});
    const std::vector<Index> lengths{1500, 2100};
    AttentionOptions options{.causal = true, .query_offset = Index{1490}};
    on_every_instruction_set([&](const kernels::KernelTable&) {
      std::vector<CachePiece<T>> piece;
      piece.push_back({cache_of<T>(key.view(), value.view(), {0, 0}, lengths, random), options});
      const Partials<T> of_cache = partials_of_caches<T>(query.view(), piece, random, {});
      Partials<T> of_keys(3, 2, 4, L, 35);
      AttentionPartialOutputs views = of_keys.views();
      views.scaled_accumulator = of_keys.scaled.view();
      AttentionOptions with_lengths = options;
      with_lengths.key_lengths = lengths;
      attention_partials(query.view(), key.view(), value.view(), views, with_lengths);
      EXPECT_TRUE(bits_of(of_cache.accumulator) == bits_of(of_keys.accumulator));
      EXPECT_TRUE(bits_of(of_cache.scaled) == bits_of(of_keys.scaled));
      EXPECT_TRUE(bits_of(of_cache.row_max) == bits_of(of_keys.row_max));
      EXPECT_TRUE(bits_of(of_cache.row_sum) == bits_of(of_keys.row_sum));
    });
  }
}

// Offsets relative to the first key of a piece: negative for pieces that start after a row, and beyond the keys of
// those that end before it. Each sequence has its own cuts.
TYPED_TEST(KvCachePartials, OffsetsOfPiecesMayBeAnyNumber) {
  using T = TypeParam;
  Random random(20280701);
  const Index L = 5;
  const std::vector<Index> lengths{4100, 900}, prefix{3000, 0};
  const std::vector<std::vector<Index>> ends{{1024, 0}, {3072, 0}, {3072, 900}, lengths};
  const auto query = normal_array<T, 4>(random, {2, 4, L, 8});
  const auto key = normal_array<T, 4>(random, {2, 2, 4100, 8}), value = normal_array<T, 4>(random, {2, 2, 4100, 5});
  const std::vector<T> slopes{static_cast<T>(0.001), static_cast<T>(0.5), 0, 2}, sinks{0, 1, -2, 3};
  const KvCache<T> all = cache_of<T>(key.view(), value.view(), {0, 0}, lengths, random);
  for (const Index position : {Index{-7}, Index{0}, Index{100}, Index{1022}, Index{3070}, Index{4099}, Index{6000}}) {
    for (AttentionOptions options :
         {AttentionOptions{.causal = true, .alibi_slopes = slopes}, AttentionOptions{.window = {.left = 2000}},
          AttentionOptions{.causal = true, .prefix = prefix},
          AttentionOptions{.window = {.left = 0, .right = 5000}, .soft_cap = 2.0}}) {
      auto whole = AttentionArrays<T>::dense(2, 4, L, 0, 5, false);
      options.query_offset = position;
      options.sinks = sinks;
      attention_decode(query.view(), all, whole.views(), options);
      options.sinks = {};
      std::vector<CachePiece<T>> pieces;
      std::vector<std::vector<Index>> offsets, prefixes;
      std::vector<Index> first{0, 0};
      for (const std::vector<Index>& end : ends) {
        offsets.push_back({position - first[0], position - first[1]});
        prefixes.push_back({std::max<Index>(prefix[0] - first[0], 0), 0});
        options.query_offset = std::span<const Index>(offsets.back());
        if (first == std::vector<Index>{0, 0}) options.query_offset = position;
        if (!options.prefix.empty()) options.prefix = prefixes.back();
        pieces.push_back({cache_of<T>(key.view(), value.view(), first, end, random), options});
        first = end;
      }
      const Partials<T> partials = partials_of_caches<T>(query.view(), pieces, random, {});
      EXPECT_TRUE(all_bits(merged<T>(partials.inputs_with_scaled(), sinks)) == all_bits(whole)) << position;
    }
  }
}

TYPED_TEST(KvCachePartials, CachesWithoutKeysHaveNoPartials) {
  using T = TypeParam;
  Random random(20280801);
  const auto query = normal_array<T, 4>(random, {2, 2, 3, 4});
  KvCache<T> cache({.num_sequences = 2, .head_size = 4, .value_head_size = 5, .capacity = 1100});
  attention_decode_partials(query.view(), cache, {}, {.causal = true});
  // A sequence without keys, next to one with two chunks.
  const auto key = normal_array<T, 4>(random, {1, 1, 1100, 4}), value = normal_array<T, 4>(random, {1, 1, 1100, 5});
  cache.append(1, sequence_of(key.view(), 0, 0, 1100), sequence_of(value.view(), 0, 0, 1100));
  Partials<T> partials(2, 2, 2, 3, 5);
  for (auto* sums : {&partials.accumulator, &partials.scaled}) sums->fill([] { return 7; });
  for (auto* rows : {&partials.row_max, &partials.row_sum}) rows->fill([] { return 7; });
  AttentionPartialOutputs views = partials.views();
  views.scaled_accumulator = partials.scaled.view();
  attention_decode_partials(query.view(), cache, views, {.causal = true});
  partials.row_max.for_each_index([&](const auto& at) {
    EXPECT_EQ(partials.row_max.get(at) == -std::numeric_limits<T>::infinity(), at[1] == 0);
    EXPECT_EQ(partials.row_sum.get(at) == 0, at[1] == 0);
    for (Index c = 0; c < 5; ++c) {
      const std::array<Index, 5> element{at[0], at[1], at[2], at[3], c};
      EXPECT_EQ(partials.accumulator.get(element) == 0, at[1] == 0);
      EXPECT_EQ(partials.scaled.get(element) == 0, at[1] == 0);
    }
  });
}

TYPED_TEST(KvCachePartials, PartialsOfARingCoverItsKeys) {
  using T = TypeParam;
  Random random(20280901);
  KvCache<T> ring({.head_size = 4, .value_head_size = 5, .capacity = 1500, .ring = true});
  const auto key = normal_array<T, 4>(random, {1, 1, 3000, 4}), value = normal_array<T, 4>(random, {1, 1, 3000, 5});
  for (Index first = 0; first < 3000; first += 500) {
    ring.append(0, sequence_of(key.view(), 0, first, 500), sequence_of(value.view(), 0, first, 500));
  }
  const auto query = normal_array<T, 4>(random, {1, 2, 4, 4});
  const AttentionOptions options{.causal = true, .window = {.left = 1300, .right = 0}};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    auto whole = AttentionArrays<T>::dense(1, 2, 4, 0, 5, false);
    attention_decode(query.view(), ring, whole.views(), options);
    Partials<T> partials(3, 1, 2, 4, 5);
    attention_decode_partials(query.view(), ring, partials.views(), options);
    EXPECT_EQ(partials.row_max.get({0, 0, 0, 0}), -std::numeric_limits<T>::infinity());
    EXPECT_TRUE(all_bits(merged<T>(partials)) == all_bits(whole));
    EXPECT_TRUE(
        says(rejection([&] { attention_decode_partials(query.view(), ring, partials.views(), {.causal = true}); }),
             {"attention_decode_partials: query 0 of sequence 0 attends to key 0, but the ring"}));
  });
}

TYPED_TEST(KvCachePartials, PartialsOfCachesRejectInvalidArguments) {
  using T = TypeParam;
  Random random(20281001);
  const auto query = normal_array<T, 4>(random, {1, 2, 3, 4}), key = normal_array<T, 4>(random, {1, 1, 1100, 4});
  const auto value = normal_array<T, 4>(random, {1, 1, 1100, 5});
  const KvCache<T> cache = cache_of<T>(key.view(), value.view(), {0}, {1100}, random);
  Partials<T> right(2, 1, 2, 3, 5), one_chunk(1, 1, 2, 3, 5);
  right.accumulator.fill([] { return 7; });
  const std::string name = "attention_decode_partials: ";
  const auto call = [&](const AttentionPartialOutputs& partials, const AttentionOptions& options = {}) {
    return rejection([&] { attention_decode_partials(query.view(), cache, partials, options); });
  };
  const std::vector<T> sinks{1, 2};
  const std::vector<Index> lengths{1100}, starts{0, 3}, key_starts{0, 1100};
  EXPECT_TRUE(says(call(right.views(), {.sinks = sinks}), {name + "sinks are given", "attention_merge"}));
  EXPECT_TRUE(says(call(right.views(), {.key_lengths = lengths}), {name + "key_lengths is given"}));
  EXPECT_TRUE(says(call(right.views(), {.query_starts = starts, .key_starts = key_starts}),
                   {name + "query_starts or key_starts is given"}));
  EXPECT_TRUE(says(call(right.views(), {.dropout = 0.5}), {name + "dropout is given"}));
  EXPECT_TRUE(says(call(one_chunk.views()), {name + "accumulator", "(1, 1, 2, 3, 5)", "(2, 1, 2, 3, 5)"}));
  AttentionPartialOutputs partials = right.views();
  partials.row_sum = {};
  EXPECT_TRUE(says(call(partials), {name + "row_sum is missing", "(2, 1, 2, 3)"}));
  partials = right.views();
  partials.row_sum = partials.row_max;
  EXPECT_TRUE(says(call(partials), {name + "row_max overlaps row_sum"}));
  partials = right.views();
  partials.row_max.data = const_cast<std::byte*>(cache.memory().data());
  EXPECT_TRUE(says(call(partials), {name + "row_max overlaps the cache"}));
  EXPECT_TRUE(says(rejection([&] { attention_decode_partials(cut(query.view(), 3, 0, 3), cache, right.views()); }),
                   {name + "query has head size 3", "the cache has head size 4"}));
  EXPECT_EQ(right.accumulator.values(), std::vector<T>(60, 7));
}

}  // namespace
}  // namespace regard::kv_cache_partials_test
