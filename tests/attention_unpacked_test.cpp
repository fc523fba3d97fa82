// SPDX-License-Identifier: Apache-2.0
//
// attention_forward with few rows per KV head reads keys and values unpacked. The results have the bits of the same
// rows among 61 rows, which are packed: for every type, layout, length, number of rows and mask, with visible and
// invisible poison, on every instruction set. Its scratch is bounded, and a plan reports why other calls are packed.
// Read next: src/attention/unpacked_keys.cpp, kv_cache_test.cpp.
#include <limits>

#include "regard/attention.h"
#include "regard/attention_statistics.h"
#include "regard/plan.h"
#include "support/arrays.h"
#include "support/attention_checks.h"
#include "support/counting_memory.h"
#include "support/instruction_sets.h"
#include "support/test_size.h"

namespace regard::attention_unpacked_test {
namespace {

constexpr Index kRows = 61, kHeads = 8;
constexpr Index kLastRows = 12;  // the rows that are compared, and a few before them

enum class Order { heads_outside, keys_outside, keys_reversed };

// Keys or values (1, Hkv, S, width) of type E.
template <class E>
struct Rows {
  std::vector<E> numbers;
  TensorView<E, 4> view;

  Rows(Index key_heads, Index keys, Index width, Order order, Random& random)
      : numbers(static_cast<std::size_t>(key_heads * keys * width + 1)) {
    for (E& x : numbers) x = static_cast<E>(static_cast<float>(random.normal()));
    E* const first = numbers.data() + 1;  // aligned to the element, but not to a vector
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
  AttentionOutputs outputs(Index rows, Index columns) {
    const std::array<Index, 3> shape{1, kHeads, rows};
    return {.context = {context.data(), {1, kHeads, rows, columns}},
            .row_max = {row_max.data(), shape},
            .row_sum = {row_sum.data(), shape},
            .lse = {lse.data(), shape}};
  }
};

// The description of the only call in a plan.
template <class Call>
std::string strategy_of(const Call& call) {
  const Plan made = plan([&](const Runtime& runtime) { call(runtime); });
  return made.operators.size() == 1 ? made.operators[0].strategy : "";
}

bool is_unpacked(const std::string& strategy) { return strategy.starts_with("keys and values read unpacked"); }

// rows: of a call.
template <class T, class E>
void expect_rows_match_rows_among_many(Index key_heads, Index keys, Index head_size, Index columns, Order order,
                                       const std::vector<Index>& rows_of_calls, bool unpacked = true) {
  Random random(static_cast<std::uint64_t>(keys * 7 + head_size + columns + key_heads));
  Rows<E> key(key_heads, keys, head_size, order, random), value(key_heads, keys, columns, order, random);
  std::vector<T> query(static_cast<std::size_t>(kHeads * kRows * head_size));
  for (T& x : query) x = static_cast<T>(random.normal());
  Array<bool, 4> mask({1, 1, kRows, keys});
  mask.fill([&] { return random.chance(0.8); });
  Array<float, 4> bias({1, kHeads, kRows, keys});
  bias.fill([&] { return random.normal(); });
  const T quarter = static_cast<T>(0.25), half = static_cast<T>(0.5);
  const std::vector<T> slopes{1, quarter, 0, half, quarter, 2, half, 0}, sinks{1, -1, 0, 2, 0, 1, -2, 0};
  const Index offset = keys - kRows;
  // Poison at the last key, which only the last row attends to if the call is causal, and in an early value.
  if (keys > 20) {
    const auto poison = static_cast<E>(std::numeric_limits<float>::quiet_NaN());
    *value.view.pointer(0, 0, keys - 1, columns / 2) = poison;
    *key.view.pointer(0, key_heads - 1, keys - 1, 0) = poison;
    *value.view.pointer(0, key_heads - 1, 3, 0) = static_cast<E>(std::numeric_limits<float>::infinity());
  }
  std::string strategy;
  const auto run = [&](Index first, Index rows, int kind) {
    Results<T> results(rows, columns);
    AttentionOptions options;
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
    const TensorView<const T, 4> q{query.data() + first * head_size,
                                   {1, kHeads, rows, head_size},
                                   {kHeads * kRows * head_size, kRows * head_size, head_size, 1}};
    const auto call = [&](const Runtime& runtime) {
      attention_forward(q, TensorView<const E, 4>(key.view), TensorView<const E, 4>(value.view),
                        results.outputs(rows, columns), options, runtime);
    };
    strategy = strategy_of(call);
    call({.num_threads = static_cast<int>(1 + first % 3)});
    return results;
  };
  for (int kind = 0; kind < 4; kind += test_size(1, 3)) {
    SCOPED_TRACE(testing::Message() << "S " << keys << " D " << head_size << " Dv " << columns << " Hkv " << key_heads
                                    << " order " << static_cast<int>(order) << " kind " << kind);
    const Results<T> many = run(0, kRows, kind);
    EXPECT_FALSE(is_unpacked(strategy)) << strategy;
    for (const Index rows : rows_of_calls) {
      for (Index first = kRows - std::max(rows, kLastRows); first <= kRows - rows; first += std::max<Index>(rows, 3)) {
        const Results<T> few = run(first, rows, kind);
        EXPECT_EQ(is_unpacked(strategy), unpacked) << strategy;
        int different = 0;
        for (Index h = 0; h < kHeads; ++h) {
          for (Index i = 0; i < rows; ++i) {
            const auto one = static_cast<std::size_t>(h * rows + i);
            const auto of = static_cast<std::size_t>(h * kRows + first + i);
            different += !identical(few.row_max[one], many.row_max[of]) +
                         !identical(few.row_sum[one], many.row_sum[of]) + !identical(few.lse[one], many.lse[of]);
            const auto width = static_cast<std::size_t>(columns);
            for (std::size_t c = 0; c < width; ++c)
              different += !identical(few.context[one * width + c], many.context[of * width + c]);
          }
        }
        EXPECT_EQ(different, 0) << rows << " rows from " << first;
      }
    }
  }
}

template <class T, class E>
void expect_all_shapes() {
  on_every_instruction_set([](const kernels::KernelTable&) {
    std::size_t number = 0;
    for (const Order order : {Order::heads_outside, Order::keys_outside, Order::keys_reversed}) {
      for (const Index keys : {12, 31, 33, 64, 65}) {
        if (!runs_case(number++, 2)) continue;
        expect_rows_match_rows_among_many<T, E>(2, keys, 64, 96, order, {1});
      }
      // Groups of 1 to 60 rows per KV head, in chunks that begin with the first row's window or later.
      expect_rows_match_rows_among_many<T, E>(2, 1090, 32, 64, order, {1, 2, 3, 15});
    }
    expect_rows_match_rows_among_many<T, E>(8, 33, 64, 32, Order::keys_outside, {1, 2, 4});
    expect_rows_match_rows_among_many<T, E>(8, 2100, 32, 32, Order::keys_outside, {3, 5, 7, 12});
    expect_rows_match_rows_among_many<T, E>(1, 200, 64, 32, Order::keys_outside, {1});
    expect_rows_match_rows_among_many<T, E>(1, 1025, 32, 32, Order::heads_outside, {2, 7});
    expect_rows_match_rows_among_many<T, E>(2, 130, 288, 64, Order::heads_outside, {1});  // two segments of D
    // Rows that are not a whole number of vectors.
    for (const Index width : {40, 48, 56, 72, 80, 104, 112, 264}) {
      expect_rows_match_rows_among_many<T, E>(2, 70, width, width, Order::keys_reversed, {1});
    }
    expect_rows_match_rows_among_many<T, E>(8, 33, 40, 72, Order::keys_outside, {1, 2, 3});
    expect_rows_match_rows_among_many<T, E>(1, 33, 104, 56, Order::heads_outside, {1});
    // Packed.
    expect_rows_match_rows_among_many<T, E>(2, 130, 36, 64, Order::heads_outside, {1}, false);
    expect_rows_match_rows_among_many<T, E>(2, 130, 64, 24, Order::heads_outside, {1}, false);
    expect_rows_match_rows_among_many<T, E>(2, 130, 64, 32, Order::heads_outside, {3}, false);
  });
}

TEST(AttentionUnpacked, FloatMatchesPacked) { expect_all_shapes<float, float>(); }
TEST(AttentionUnpacked, Bfloat16MatchesPacked) { expect_all_shapes<float, bfloat16>(); }
TEST(AttentionUnpacked, Float16MatchesPacked) { expect_all_shapes<float, float16>(); }
TEST(AttentionUnpacked, DoubleMatchesPacked) { expect_all_shapes<double, double>(); }

// Finite values with sums that are not: the sums of a row are recomputed with scaling.
TEST(AttentionUnpacked, OverflowingSumsAreScaled) {
  const Index keys = 200, head_size = 32, columns = 32;
  const std::vector<float> key(static_cast<std::size_t>(keys * head_size), 0.0f), query(head_size, 1.0f);
  const std::vector<float> value(static_cast<std::size_t>(keys * columns), 3e38f);
  std::vector<float> context(columns);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    attention_forward(TensorView<const float, 4>(query.data(), {1, 1, 1, head_size}),
                      TensorView<const float, 4>(key.data(), {1, 1, keys, head_size}),
                      TensorView<const float, 4>(value.data(), {1, 1, keys, columns}),
                      {.context = {context.data(), {1, 1, 1, columns}}});
    for (const float x : context) EXPECT_NEAR(x / 3e38f, 1.0f, 1e-5f);
  });
}

// No copy of keys and values: a partial of Dv + 2 values per chunk and row, and less than 4 MiB per thread.
TEST(AttentionUnpacked, WorkspaceHoldsNoCopyOfKeysAndValues) {
  struct Shape {
    Index heads, key_heads, rows, width;
  };
  const Index keys = 40000;
  for (const Shape& s : {Shape{2, 2, 1, 64}, {16, 2, 1, 64}, {2, 1, 30, 64}, {60, 1, 1, 64}, {2, 2, 12, 72}}) {
    const std::vector<float> both(static_cast<std::size_t>(s.key_heads * keys * s.width), 0.5f);
    const std::vector<float> query(static_cast<std::size_t>(s.heads * s.rows * s.width), 0.5f);
    std::vector<float> context(query.size());
    const TensorView<const float, 4> rows(both.data(), {1, s.key_heads, keys, s.width});
    for (const int threads : {1, 2, 5}) {
      CountingMemory memory;
      attention_forward(TensorView<const float, 4>(query.data(), {1, s.heads, s.rows, s.width}), rows, rows,
                        {.context = {context.data(), {1, s.heads, s.rows, s.width}}}, {},
                        {.num_threads = threads, .workspace = &memory});
      const Index chunks = (keys + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
      const Index partials = s.heads * s.rows * chunks * (s.width + 2) * static_cast<Index>(sizeof(float));
      EXPECT_LE(memory.largest, static_cast<std::size_t>(partials + threads * (Index{4} << 20)));
      EXPECT_LT(memory.largest, both.size() * sizeof(float) / 4);
    }
  }
}

// why: nullptr: keys are not packed; empty: packed without a reason, because there are many rows.
void expect_packed(const std::string& strategy, const char* why) {
  const std::string said = "; few rows, but not read unpacked: ";
  EXPECT_EQ(is_unpacked(strategy), why == nullptr) << strategy;
  if (!why || !*why) {
    EXPECT_EQ(strategy.find(said), strategy.npos) << strategy;
  } else {
    EXPECT_TRUE(strategy.ends_with(said + why)) << strategy;
  }
}

TEST(AttentionUnpacked, PlansReportWhyFewRowsArePacked) {
  struct Case {
    Index heads, key_heads, rows, keys, head_size, columns;
    const char* why;
  };
  const char* const kManyRows = "packing is faster for this number of rows and keys";
  for (const Case& c :
       {Case{8, 1, 1, 100, 64, 64, nullptr}, Case{8, 8, 4, 100, 72, 40, nullptr}, Case{8, 1, 7, 2000, 64, 64, nullptr},
        Case{8, 1, 1, 100, 24, 64, "D is less than 32 or not a multiple of 8"},
        Case{8, 1, 1, 100, 36, 64, "D is less than 32 or not a multiple of 8"},
        Case{8, 8, 2, 100, 64, 60, "Dv is less than 32 or not a multiple of 8"}, Case{8, 8, 5, 1000, 64, 64, kManyRows},
        Case{8, 8, 13, 2000, 64, 64, kManyRows}, Case{8, 8, 61, 2000, 64, 64, ""}}) {
    SCOPED_TRACE(testing::Message() << "Hkv " << c.key_heads << " L " << c.rows << " D " << c.head_size);
    auto inputs = AttentionInputs<float>::normal(1, 1, c.heads, c.key_heads, c.rows, c.keys, c.head_size, c.columns);
    Array<float, 4> context({1, c.heads, c.rows, c.columns});
    expect_packed(strategy_of([&](const Runtime& runtime) {
                    attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                                      {.context = context.view()}, {}, runtime);
                  }),
                  c.why);
  }
}

TEST(AttentionUnpacked, PlansReportWhichOptionOrLayoutRequiresPacking) {
  const std::vector<float> numbers(64 * 64 * 2);
  const std::array<Index, 4> shape{1, 1, 64, 64};
  const TensorView<const float, 4> rows(numbers.data(), shape);
  const TensorView<const float, 4> strided(numbers.data(), shape, {0, 0, 128, 2}),
      one(numbers.data(), shape, {0, 0, 0, 1});
  const TensorView<const float, 4> query(numbers.data(), {1, 1, 1, 64});
  std::vector<float> context(64), entropy(1);
  const AttentionOutputs outputs{.context = {context.data(), {1, 1, 1, 64}}};
  const auto strategy = [&](const auto& key, const auto& value, const AttentionOptions& options = {}) {
    return strategy_of(
        [&](const Runtime& runtime) { attention_forward(query, key, value, outputs, options, runtime); });
  };
  expect_packed(strategy(rows, rows), nullptr);
  expect_packed(strategy(strided, rows), "key's last axis is not contiguous");
  expect_packed(strategy(rows, strided), "value's last axis is not contiguous");
  expect_packed(strategy(one, rows), "key has stride 0 along S");
  expect_packed(strategy(rows, one), "value has stride 0 along S");
  AttentionOptions dropout;
  dropout.dropout = 0.5;
  expect_packed(strategy(rows, rows, dropout), "dropout is enabled");
  expect_packed(strategy_of([&](const Runtime& runtime) {
                  attention_with_statistics(query, rows, rows, outputs, {.entropy = {entropy.data(), {1, 1, 1}}}, {},
                                            runtime);
                }),
                "statistics are requested");
}

}  // namespace
}  // namespace regard::attention_unpacked_test
