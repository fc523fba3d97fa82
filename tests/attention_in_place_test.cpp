// SPDX-License-Identifier: Apache-2.0
//
// attention_forward with one to four rows a key head reads keys and values where they lie. What it gives has the bits
// of the same rows among twelve, which are packed: for every type, layout, length and rule, with poison seen and
// unseen, on every instruction set. Its scratch is bounded. Read next: src/attention_in_place.cpp, kv_cache_test.cpp.
#include <limits>

#include "arrays.h"
#include "counting_memory.h"
#include "instruction_sets.h"
#include "regard/attention.h"
#include "regard/plan.h"

namespace regard {
namespace {

constexpr Index kRows = 12, kHeads = 4;

enum class Order { heads_outside, keys_outside, keys_reversed };

// Keys or values (1, Hkv, S, width) of type E.
template <class E>
struct Rows {
  std::vector<E> numbers;
  TensorView<E, 4> view;

  Rows(Index key_heads, Index keys, Index width, Order order, Random& random)
      : numbers(static_cast<std::size_t>(key_heads * keys * width + 1)) {
    for (E& x : numbers) x = static_cast<E>(static_cast<float>(random.normal()));
    E* const first = numbers.data() + 1;  // aligned to nothing but the element
    const Index all = key_heads * keys * width;
    view = {first, {1, key_heads, keys, width}};
    if (order == Order::keys_outside) view = {first, view.shape, {all, width, key_heads * width, 1}};
    if (order == Order::keys_reversed && keys > 0) {
      view = {first + (keys - 1) * width, view.shape, {all, keys * width, -width, 1}};
    }
  }
};

template <class T>
struct Results {
  std::vector<T> context, row_max, row_sum, lse;

  Results(Index rows, Index columns)
      : context(static_cast<std::size_t>(kHeads * rows * columns)),
        row_max(static_cast<std::size_t>(kHeads * rows)),
        row_sum(row_max),
        lse(row_max) {}
  AttentionOutputs<T> outputs(Index rows, Index columns) {
    const std::array<Index, 3> shape{1, kHeads, rows};
    return {.context = {context.data(), {1, kHeads, rows, columns}},
            .row_max = {row_max.data(), shape},
            .row_sum = {row_sum.data(), shape},
            .lse = {lse.data(), shape}};
  }
};

template <class T, class E>
void expect_rows_alone_are_rows_among_many(Index key_heads, Index keys, Index depth, Index columns, Order order) {
  Random random(static_cast<std::uint64_t>(keys * 7 + depth + columns + key_heads));
  Rows<E> key(key_heads, keys, depth, order, random), value(key_heads, keys, columns, order, random);
  std::vector<T> query(static_cast<std::size_t>(kHeads * kRows * depth));
  for (T& x : query) x = static_cast<T>(random.normal());
  Array<bool, 4> mask({1, 1, kRows, keys});
  mask.fill([&] { return random.chance(0.8); });
  Array<float, 4> bias({1, kHeads, kRows, keys});
  bias.fill([&] { return random.normal(); });
  const std::vector<T> slopes{1, static_cast<T>(0.25), 0, static_cast<T>(0.5)}, sinks{1, -1, 0, 2};
  const Index offset = keys - kRows;
  // Poison at the last key, which only the last row sees where the call is causal, and in an early value.
  if (keys > 20) {
    const auto poison = static_cast<E>(std::numeric_limits<float>::quiet_NaN());
    *value.view.pointer(0, 0, keys - 1, columns / 2) = poison;
    *key.view.pointer(0, key_heads - 1, keys - 1, 0) = poison;
    *value.view.pointer(0, key_heads - 1, 3, 0) = static_cast<E>(std::numeric_limits<float>::infinity());
  }
  const auto run = [&](Index first, Index rows, int kind) {
    Results<T> results(rows, columns);
    AttentionOptions<T> options;
    const TensorView<const bool, 4> seen{mask.view().pointer(0, 0, first, 0), {1, 1, rows, keys}, mask.view().strides};
    const TensorView<const float, 4> added{
        bias.view().pointer(0, 0, first, 0), {1, kHeads, rows, keys}, bias.view().strides};
    if (kind >= 1) options.causal = true;
    if (kind >= 1) options.query_offset = Index{offset + first};
    if (kind == 2) options.window = {40, {}};
    if (kind == 3) options.mask = seen;
    if (kind == 3) options.bias = added;
    if (kind == 3) options.alibi_slopes = slopes;
    if (kind == 3) options.sinks = sinks;
    if (kind == 3) options.soft_cap = 4.0;
    const TensorView<const T, 4> q{
        query.data() + first * depth, {1, kHeads, rows, depth}, {kHeads * kRows * depth, kRows * depth, depth, 1}};
    attention_forward<T>(q, TensorView<const E, 4>(key.view), TensorView<const E, 4>(value.view),
                         results.outputs(rows, columns), options);
    return results;
  };
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(testing::Message() << "S " << keys << " D " << depth << " Dv " << columns << " Hkv " << key_heads
                                    << " order " << static_cast<int>(order) << " kind " << kind);
    const Results<T> many = run(0, kRows, kind);
    const Index step = key_heads;  // rows of a call: four for each key head
    for (Index first = 0; first < kRows; first += step) {
      const Results<T> few = run(first, step, kind);
      int different = 0;
      for (Index h = 0; h < kHeads; ++h) {
        for (Index i = 0; i < step; ++i) {
          const auto one = static_cast<std::size_t>(h * step + i), of = static_cast<std::size_t>(h * kRows + first + i);
          different += !identical(few.row_max[one], many.row_max[of]) + !identical(few.row_sum[one], many.row_sum[of]) +
                       !identical(few.lse[one], many.lse[of]);
          const auto width = static_cast<std::size_t>(columns);
          for (std::size_t c = 0; c < width; ++c)
            different += !identical(few.context[one * width + c], many.context[of * width + c]);
        }
      }
      EXPECT_EQ(different, 0) << "rows from " << first;
    }
  }
}

template <class T, class E>
void expect_all_shapes() {
  on_every_instruction_set([](const kernels::KernelTable&) {
    for (const Order order : {Order::heads_outside, Order::keys_outside, Order::keys_reversed}) {
      for (const Index keys : {12, 31, 33, 64, 65, 1090}) {
        expect_rows_alone_are_rows_among_many<T, E>(2, keys, 64, 96, order);
      }
    }
    expect_rows_alone_are_rows_among_many<T, E>(4, 2100, 32, 32, Order::keys_outside);
    expect_rows_alone_are_rows_among_many<T, E>(1, 130, 288, 64, Order::heads_outside);  // two segments of D
    expect_rows_alone_are_rows_among_many<T, E>(2, 130, 40, 64, Order::heads_outside);   // not in place
  });
}

TEST(AttentionInPlace, FloatRowsHaveTheBitsOfPackedOnes) { expect_all_shapes<float, float>(); }
TEST(AttentionInPlace, Bfloat16RowsHaveTheBitsOfPackedOnes) { expect_all_shapes<float, bfloat16>(); }
TEST(AttentionInPlace, Float16RowsHaveTheBitsOfPackedOnes) { expect_all_shapes<float, float16>(); }
TEST(AttentionInPlace, DoubleRowsHaveTheBitsOfPackedOnes) { expect_all_shapes<double, double>(); }

// Values that are finite and sums that are not: the sums of a row are taken again, scaled.
TEST(AttentionInPlace, SumsThatOverflowAreScaled) {
  const Index keys = 200, depth = 32, columns = 32;
  const std::vector<float> key(static_cast<std::size_t>(keys * depth), 0.0f), query(depth, 1.0f);
  const std::vector<float> value(static_cast<std::size_t>(keys * columns), 3e38f);
  std::vector<float> context(columns);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    attention_forward<float>(TensorView<const float, 4>(query.data(), {1, 1, 1, depth}),
                             TensorView<const float, 4>(key.data(), {1, 1, keys, depth}),
                             TensorView<const float, 4>(value.data(), {1, 1, keys, columns}),
                             {.context = {context.data(), {1, 1, 1, columns}}});
    for (const float x : context) EXPECT_NEAR(x / 3e38f, 1.0f, 1e-5f);
  });
}

// No copy of keys and values: a partial of Dv + 2 numbers a chunk and row, and less than 4 MiB a thread.
TEST(AttentionInPlace, NeedsNoCopy) {
  const Index heads = 2, keys = 40000, width = 64;
  const std::vector<float> both(static_cast<std::size_t>(heads * keys * width), 0.5f);
  const std::vector<float> query(static_cast<std::size_t>(heads * width), 0.5f);
  std::vector<float> context(query.size());
  const TensorView<const float, 4> rows(both.data(), {1, heads, keys, width});
  for (const int threads : {1, 2, 5}) {
    CountingMemory memory;
    attention_forward<float>(TensorView<const float, 4>(query.data(), {1, heads, 1, width}), rows, rows,
                             {.context = {context.data(), {1, heads, 1, width}}}, {},
                             {.num_threads = threads, .workspace = &memory});
    const Index chunks = (keys + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
    const Index partials = heads * chunks * (width + 2) * static_cast<Index>(sizeof(float));
    EXPECT_LE(memory.largest, static_cast<std::size_t>(partials + threads * (Index{4} << 20)));
    EXPECT_LT(memory.largest, both.size() * sizeof(float) / 4);
  }
}

}  // namespace
}  // namespace regard
