// SPDX-License-Identifier: Apache-2.0
//
// attention_decode with one to 16 rows per KV head processes four rows at a time and multiplies the keys of a block
// together with the values of the previous one. The results have the bits of the same rows among twenty, which are
// processed block by block: for every type, number of rows, shape and mask, with pages of any size, and with poison in
// an intermediate block.
// Read next: src/kernels/decode_overlapped.h.
#include <limits>

#include "regard/kv_cache.h"
#include "support/arrays.h"
#include "support/instruction_sets.h"

namespace regard::kv_cache_ahead_test {
namespace {

constexpr Index kQueries = 20, kHeads = 2;

struct Case {
  Index keys, depth, columns, page_keys;
};

template <class E>
Tensor<E, 4> numbers(const std::array<Index, 4>& shape, Random& random) {
  Tensor<E, 4> tensor(shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<E>(static_cast<float>(random.normal()));
  return tensor;
}

template <class T>
bool same(T a, T b) {
  return identical(static_cast<ComputeType<T>>(a), static_cast<ComputeType<T>>(b));
}

// T: compute and result type; Q: type of the queries; K: type of the cache.
template <class T, class Q, class K>
void expect_few_are_many(const Case& c) {
  using Stored = std::conditional_t<std::same_as<K, std::int8_t>, float, K>;
  Random random(static_cast<std::uint64_t>(c.keys * 1000 + c.depth + c.page_keys));
  KvCache<K> cache({.num_sequences = 1,
                    .num_kv_heads = kHeads,
                    .head_size = c.depth,
                    .value_head_size = c.columns,
                    .capacity = c.keys,
                    .page_keys = c.page_keys,
                    .num_pages = c.page_keys ? (c.keys + c.page_keys - 1) / c.page_keys : 0});
  auto key = numbers<Stored>({1, kHeads, c.keys, c.depth}, random);
  auto value = numbers<Stored>({1, kHeads, c.keys, c.columns}, random);
  if constexpr (!std::same_as<K, std::int8_t>) {
    value.data()[140 * c.columns + 3] = static_cast<Stored>(std::numeric_limits<float>::infinity());
    key.data()[(c.keys - 2) * c.depth] = static_cast<Stored>(std::numeric_limits<float>::quiet_NaN());
  }
  const TensorView<const Stored, 4> keys = key.view(), values = value.view();
  cache.append(keys, values);
  const auto query = numbers<Q>({1, kHeads, kQueries, c.depth}, random);
  const auto bias = numbers<float>({1, kHeads, kQueries, c.keys}, random);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(kQueries * c.keys));
  for (auto& s : seen) s = random.chance(0.3);
  const std::vector<T> slopes{0.5, 0.25}, sinks{0.5, -1};
  for (int kind = 0; kind < 5; ++kind) {
    SCOPED_TRACE(testing::Message() << "S " << c.keys << " D " << c.depth << " Dv " << c.columns << " pages of "
                                    << c.page_keys << " kind " << kind);
    const auto run = [&](Index first, Index rows) {
      Tensor<Q, 4> context({1, kHeads, rows, c.columns});
      AttentionOptions options;
      options.query_offset = c.keys - kQueries + first;
      options.causal = kind >= 1;
      if (kind == 2) options.window = {70, {}};
      if (kind == 3) {
        options.bias = TensorView<const float, 4>{
            bias.data() + first * c.keys, {1, kHeads, rows, c.keys}, {0, kQueries * c.keys, c.keys, 1}};
        options.alibi_slopes = slopes;
        options.sinks = sinks;
        options.soft_cap = 4.0;
      }
      if (kind == 4)
        options.mask = TensorView<const bool, 4>{
            reinterpret_cast<const bool*>(seen.data()) + first * c.keys, {1, kHeads, rows, c.keys}, {0, 0, c.keys, 1}};
      const TensorView<const Q, 4> q{
          query.data() + first * c.depth, {1, kHeads, rows, c.depth}, {0, kQueries * c.depth, c.depth, 1}};
      attention_decode(q, cache, {.context = context.view()}, options);
      return context;
    };
    const Tensor<Q, 4> many = run(0, kQueries);
    for (const Index step : {1, 2, 3, 4, 5, 7, 16}) {
      int different = 0;
      for (Index first = 0; first + step <= kQueries; first += step) {
        const Tensor<Q, 4> few = run(first, step);
        for (Index h = 0; h < kHeads; ++h) {
          for (Index i = 0; i < step * c.columns; ++i)
            different +=
                !same(few.data()[h * step * c.columns + i], many.data()[(h * kQueries + first) * c.columns + i]);
        }
      }
      EXPECT_EQ(different, 0) << step << " rows";
    }
  }
}

template <class T, class Q, class K>
void expect_all() {
  on_every_instruction_set([](const kernels::KernelTable&) {
    for (const Case& c : {Case{300, 128, 128, 0}, Case{300, 64, 96, 32}, Case{290, 7, 40, 64}, Case{200, 288, 64, 0},
                          Case{200, 32, 288, 0}, Case{1110, 16, 32, 0}})
      expect_few_are_many<T, Q, K>(c);
  });
}

TEST(OverlappedDecode, FloatMatchesManyRows) { expect_all<float, float, float>(); }
TEST(OverlappedDecode, DoubleMatchesManyRows) { expect_all<double, double, double>(); }
TEST(OverlappedDecode, Bfloat16MatchesManyRows) { expect_all<float, float, bfloat16>(); }
TEST(OverlappedDecode, Bfloat16PairsMatchManyRows) { expect_all<float, bfloat16, bfloat16>(); }
TEST(OverlappedDecode, Float16MatchesManyRows) { expect_all<float, float, float16>(); }
TEST(OverlappedDecode, Int8MatchesManyRows) { expect_all<float, float, std::int8_t>(); }

}  // namespace
}  // namespace regard::kv_cache_ahead_test
