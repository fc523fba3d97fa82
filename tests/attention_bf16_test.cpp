// SPDX-License-Identifier: Apache-2.0
//
// Query, key and value in bfloat16, multiplied without conversion (docs/reference/semantics.md, section 4): weights are
// rounded to bf16 for the product with value, subnormals are zero, and everything else is as in float.
//
//     every table      with its own dot product, or with the emulation in its place (instruction_sets.h)
//     against double   random calls, huge and tiny values, poison, sums that overflow
//     bits             threads, strides, batch, split queries, caches, weights, columns and statistics
//
// Read next: attention_types_test.cpp, kernels/attention_pack_pairs.cpp.
#include "regard/attention_statistics.h"
#include "regard/kv_cache.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::attention_bf16_test {
namespace {

using B16 = bfloat16;

constexpr double kSmallestNormal = 0x1p-126;
constexpr double kWeightRounding = 0x1p-8;

Array<B16, 4> rounded(const Array<float, 4>& from, const Layout<4>& layout = Layout<4>::dense()) {
  Array<B16, 4> to(from.shape(), layout);
  from.for_each_index([&](const auto& at) { to.set(at, B16(from.get(at))); });
  return to;
}

// The values as the dot product uses them.
Array<float, 4> converted(const Array<B16, 4>& from) {
  Array<float, 4> to(from.shape());
  from.for_each_index([&](const auto& at) {
    const float x = static_cast<float>(from.get(at));
    to.set(at, std::abs(x) < static_cast<float>(kSmallestNormal) ? 0.0f : x);
  });
  return to;
}

struct Inputs {
  Array<B16, 4> query, key, value;

  explicit Inputs(const AttentionInputs<float>& of)
      : query(rounded(of.query)), key(rounded(of.key)), value(rounded(of.value)) {}
  Inputs(Array<B16, 4> q, Array<B16, 4> k, Array<B16, 4> v)
      : query(std::move(q)), key(std::move(k)), value(std::move(v)) {}

  reference::Attention<float> expected(const AttentionOptions& options = {}) const {
    auto result =
        reference::attention<float>(converted(query).view(), converted(key).view(), converted(value).view(), options);
    // Every product and sum below the smallest normal number may be lost.
    result.smallest = static_cast<double>(query.shape()[3] + 2) * kSmallestNormal;
    result.weight_rounding = kWeightRounding;
    return result;
  }
};

// Rounds the weights unless the options say otherwise.
AttentionArrays<float> run(const Inputs& inputs, AttentionOptions options = {}, const Runtime& runtime = {}) {
  options.weights_in_float32 = options.weights_in_float32.value_or(false);
  AttentionArrays<float> outputs =
      AttentionArrays<float>::dense(inputs.query.shape()[0], inputs.query.shape()[1], inputs.query.shape()[2],
                                    inputs.key.shape()[2], inputs.value.shape()[3]);
  attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), outputs.views(), options, runtime);
  return outputs;
}

void check(const Inputs& inputs, const AttentionOptions& options = {}) {
  const auto expected = inputs.expected(options);
  on_every_dot_table([&](const kernels::KernelTable&) { matches_reference(run(inputs, options), expected); });
}

// ---- against double

TEST(Bfloat16Pairs, RandomCallsMatchTheReference) {
  for (std::uint64_t seed = 1; seed <= num_random_calls(500); ++seed) {
    AttentionCase<float> call = random_attention_case<float>(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
    Random random(seed + 2000);
    const Inputs inputs(rounded(call.query, random_layout<4>(random, true)),
                        rounded(call.key, random_layout<4>(random, true)),
                        rounded(call.value, random_layout<4>(random, true)));
    check(inputs, call.options);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Bfloat16Pairs, EveryHeadSizeAndLength) {
  for (const Index D : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 255, 256, 257}) {
    for (const Index S : {1, 2, 31, 33, 64, 65, 129}) {
      SCOPED_TRACE("D " + std::to_string(D) + ", S " + std::to_string(S));
      check(Inputs(AttentionInputs<float>::normal(static_cast<std::uint64_t>(D * 1000 + S), 1, 1, 1, 13, S, D, D)));
    }
  }
}

// In addition to the bound: at most a tenth worse than the formula whose weights are rounded after the division.
TEST(Bfloat16Pairs, ErrorIsNotMuchLargerThanThatOfTheNaiveFormula) {
  const Inputs inputs(AttentionInputs<float>::normal(5, 1, 2, 2, 60, 1500, 64, 64));
  const auto expected = inputs.expected();
  const Array<float, 4> value = converted(inputs.value);
  double naive = 0;
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 60; ++i) {
      const auto row = static_cast<std::size_t>(h * 60 + i);
      for (Index c = 0; c < 64; ++c) {
        float sum = 0;
        for (Index j = 0; j < 1500; ++j) {
          const double weight = expected.weights[row * 1500 + static_cast<std::size_t>(j)];
          sum += static_cast<float>(B16(static_cast<float>(weight))) * value.get({0, h, j, c});
        }
        const double error = static_cast<double>(sum) - expected.context[row * 64 + static_cast<std::size_t>(c)];
        naive += error * error;
      }
    }
  }
  on_every_dot_table([&](const kernels::KernelTable&) {
    const std::vector<float> context = run(inputs).context.values();
    double ours = 0;
    for (std::size_t at = 0; at < context.size(); ++at) {
      const double error = static_cast<double>(context[at]) - expected.context[at];
      ours += error * error;
      EXPECT_LE(std::abs(error), (0x1p-8 + 32 * 0x1p-24) * expected.magnitude[at]);
    }
    EXPECT_LE(std::sqrt(ours), 1.1 * std::sqrt(naive));
    EXPECT_GT(ours, 0.1 * naive);  // the weights are actually rounded
  });
}

TEST(Bfloat16Pairs, FloatContextMeetsTheFloatBoundUnlessRoundingIsRequested) {
  const Inputs inputs(AttentionInputs<float>::normal(6, 1, 4, 2, 61, 1100, 64, 48));
  auto expected = inputs.expected();
  expected.weight_rounding = 0;
  KvCache<B16> cache({.num_sequences = 1, .num_kv_heads = 2, .head_size = 64, .value_head_size = 48, .capacity = 1100});
  const auto rows_of = [](const Array<B16, 4>& array) {
    const auto view = array.view();
    return TensorView<const B16, 3>(view.data, {view.shape[1], view.shape[2], view.shape[3]},
                                    {view.strides[1], view.strides[2], view.strides[3]});
  };
  cache.append(0, rows_of(inputs.key), rows_of(inputs.value));
  const Index chunks = attention_num_chunks(1100);
  on_every_dot_table([&](const kernels::KernelTable&) {
    const auto q = inputs.query.view();
    const auto k = inputs.key.view(), v = inputs.value.view();
    AttentionArrays<float> got = AttentionArrays<float>::dense(1, 4, 61, 1100, 48);
    attention_forward(q, k, v, got.views());
    matches_reference(got, expected);
    const AttentionArrays<float> rounded_weights = run(inputs, {.weights_in_float32 = false});
    EXPECT_NE(bits_of(got.context), bits_of(rounded_weights.context));
    EXPECT_EQ(bits_of(*got.weights), bits_of(*rounded_weights.weights));
    EXPECT_EQ(bits_of(*got.row_sum), bits_of(*rounded_weights.row_sum));
    EXPECT_EQ(bits_of(run(inputs, {.weights_in_float32 = true}).context), bits_of(got.context));
    // Every operator that writes a float context.
    Array<float, 4> context({1, 4, 61, 48});
    attention_with_statistics(q, k, v, {.context = context.view()}, {});
    EXPECT_EQ(bits_of(context), bits_of(got.context));
    attention_decode(q, cache, AttentionOutputs{.context = context.view()});
    EXPECT_EQ(bits_of(context), bits_of(got.context));
    Array<float, 5> sums({chunks, 1, 4, 61, 48});
    Array<float, 4> row_max({chunks, 1, 4, 61}), row_sum({chunks, 1, 4, 61});
    attention_partials(q, k, v, {.accumulator = sums.view(), .row_max = row_max.view(), .row_sum = row_sum.view()});
    attention_merge({.accumulator = std::as_const(sums).view(),
                     .row_max = std::as_const(row_max).view(),
                     .row_sum = std::as_const(row_sum).view()},
                    {}, {.context = context.view()});
    EXPECT_EQ(bits_of(context), bits_of(got.context));
    // A context of bfloat16 has weights of bfloat16 unless float weights are requested.
    Array<B16, 4> narrow({1, 4, 61, 48});
    const auto expect_rounded = [&](const Array<float, 4>& from) {
      narrow.for_each_index([&](const auto& at) { ASSERT_EQ(narrow.get(at).bits, B16(from.get(at)).bits); });
    };
    attention_forward(q, k, v, AttentionOutputs{.context = narrow.view()});
    expect_rounded(rounded_weights.context);
    attention_forward(q, k, v, AttentionOutputs{.context = narrow.view()}, {.weights_in_float32 = true});
    expect_rounded(got.context);
  });
}

// A value of another type does not change the scores, and keeps the weights in float.
TEST(Bfloat16Pairs, FloatValuesKeepTheScores) {
  const Inputs inputs(AttentionInputs<float>::normal(7, 1, 4, 2, 61, 300, 33, 48));
  const Array<float, 4> value = converted(inputs.value);
  auto expected = inputs.expected();
  expected.weight_rounding = 0;
  on_every_dot_table([&](const kernels::KernelTable&) {
    AttentionArrays<float> got = AttentionArrays<float>::dense(1, 4, 61, 300, 48);
    attention_forward(inputs.query.view(), inputs.key.view(), value.view(), got.views());
    matches_reference(got, expected);
    EXPECT_EQ(all_bits(got), all_bits(run(inputs, {.weights_in_float32 = true})));
  });
}

TEST(Bfloat16Pairs, ValuesOfEveryMagnitude) {
  AttentionInputs<float> inputs = AttentionInputs<float>::normal(8, 1, 1, 1, 10, 1300, 4, 41);
  // A column for every magnitude from subnormal to the largest, with both signs in each column.
  inputs.value.for_each_index([&](const auto& at) {
    inputs.value.set(at, std::ldexp(inputs.value.get(at), -140 + static_cast<int>(at[3]) * 6));
  });
  check(Inputs(inputs));
  check(Inputs(inputs), {.scale = 0.0});
  for (const double magnitude : {1e-30, 1e-19, 1e-5, 30.0, 1e6, 1e18}) {
    for (auto* array : {&inputs.query, &inputs.key}) {
      Random random(9);
      array->fill([&] { return random.normal() * magnitude; });
    }
    SCOPED_TRACE(magnitude);
    check(Inputs(inputs));
  }
}

TEST(Bfloat16Pairs, SubnormalsAreTreatedAsZero) {
  Array<B16, 4> query({1, 1, 3, 2}), key({1, 1, 5, 2}), value({1, 1, 5, 2});
  for (auto* array : {&query, &key, &value}) array->for_each_index([&](const auto& at) { array->set(at, B16(1.0f)); });
  B16 subnormal;
  subnormal.bits = 0x7f;
  query.set({0, 0, 1, 0}, subnormal);
  for (Index j = 0; j < 5; ++j) value.set({0, 0, j, 1}, subnormal);
  on_every_dot_table([&](const kernels::KernelTable&) {
    Array<float, 4> context({1, 1, 3, 2});
    Array<float, 3> row_max({1, 1, 3});
    const unsigned state = __builtin_ia32_stmxcsr();
    attention_forward(query.view(), key.view(), value.view(), {.context = context.view(), .row_max = row_max.view()},
                      {.scale = 1.0, .weights_in_float32 = false});
    EXPECT_EQ(__builtin_ia32_stmxcsr(), state);
    EXPECT_EQ(row_max.values(), (std::vector<float>{2, 1, 2}));
    EXPECT_EQ(context.values(), (std::vector<float>{1, 0, 1, 0, 1, 0}));
  });
}

TEST(Bfloat16Pairs, ValuesNearTheLargestFiniteNumber) {
  for (const Index S : {2, 3, 64, 1024, 1025, 2100}) {
    AttentionInputs<float> inputs = AttentionInputs<float>::normal(10, 1, 1, 1, 5, S, 4, 6);
    inputs.value.for_each_index([&](const auto& at) {
      const float sign = at[3] < 2 || at[2] % 2 == 0 ? 1.0f : -1.0f;
      if (at[3] < 5) inputs.value.set(at, sign * (at[3] == 0 ? 3.38e38f : 1.7e38f));
    });
    SCOPED_TRACE(S);
    check(Inputs(inputs));
    check(Inputs(inputs), {.scale = 0.0});
    on_every_dot_table([&](const kernels::KernelTable&) {
      for (const float x : run(Inputs(inputs)).context.values()) EXPECT_TRUE(std::isfinite(x));
    });
  }
}

// Odd keys next to even ones in a pair: poison has no effect on rows that do not attend to it, and affects its columns
// in the others.
TEST(Bfloat16Pairs, PoisonInEitherElementOfAPair) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const Index poisoned : {0, 1, 30, 31, 32, 63, 64, 69}) {
    for (const float poison : {nan, infinity, -infinity}) {
      AttentionInputs<float> inputs = AttentionInputs<float>::normal(11, 1, 1, 1, 70, 70, 5, 35);
      inputs.value.set({0, 0, poisoned, 33}, poison);
      SCOPED_TRACE(poisoned);
      check(Inputs(inputs), {.causal = true});
      inputs.key.set({0, 0, poisoned, 4}, nan);
      check(Inputs(inputs), {.causal = true});
    }
  }
}

// ---- bits

TEST(Bfloat16PairsBits, ThreadsStridesBatchAndSplitsDoNotChangeBits) {
  const auto plain = AttentionInputs<float>::normal(12, 2, 4, 2, 130, 1100, 33, 40);
  const Inputs inputs(plain);
  on_every_dot_table([&](const kernels::KernelTable&) {
    const AttentionOptions options{.causal = true, .query_offset = Index{970}};
    const AttentionArrays<float> whole = run(inputs, options, {.num_threads = 1});
    EXPECT_EQ(all_bits(run(inputs, options, {.num_threads = 3})), all_bits(whole));
    Random random(13);
    for (int i = 0; i < test_size(6, 2); ++i) {
      const Inputs strided(rounded(plain.query, random_layout<4>(random, true)),
                           rounded(plain.key, random_layout<4>(random, true)),
                           rounded(plain.value, random_layout<4>(random, true)));
      EXPECT_EQ(all_bits(run(strided, options)), all_bits(whole));
    }
    // One batch entry, with some of its rows.
    for (const auto& [first, count] : {std::pair<Index, Index>{0, 1}, {7, 1}, {59, 3}, {60, 70}, {129, 1}}) {
      Array<float, 4> context({1, 4, count, 40});
      const auto rows = [&](const Array<B16, 4>& of, Index at, Index n) {
        const auto view = of.view();
        return TensorView<const B16, 4>(view.pointer(1, 0, at, 0), {1, view.shape[1], n, view.shape[3]}, view.strides);
      };
      attention_forward(rows(inputs.query, first, count), rows(inputs.key, 0, 1100), rows(inputs.value, 0, 1100),
                        {.context = context.view()},
                        {.causal = true, .query_offset = Index{970} + first, .weights_in_float32 = false});
      context.for_each_index(
          [&](const auto& at) { ASSERT_EQ(context.get(at), whole.context.get({1, at[1], first + at[2], at[3]})); });
    }
  });
}

TEST(Bfloat16PairsBits, DecodingFromACacheMatchesTheForwardPass) {
  for (const Index D : {1, 7, 64}) {
    const auto plain = AttentionInputs<float>::normal(14, 1, 6, 2, 70, 1090, D, 37);
    const Inputs inputs(plain);
    KvCache<B16> cache(
        {.num_sequences = 1, .num_kv_heads = 2, .head_size = D, .value_head_size = 37, .capacity = 1090});
    const auto keys = [](const Array<B16, 4>& of, Index first, Index count) {
      const auto view = of.view();
      return TensorView<const B16, 3>(view.pointer(0, 0, first, 0), {2, count, view.shape[3]},
                                      {view.strides[1], view.strides[2], view.strides[3]});
    };
    for (const auto& [first, count] : {std::pair<Index, Index>{0, 1}, {1, 1000}, {1001, 89}}) {
      cache.append(0, keys(inputs.key, first, count), keys(inputs.value, first, count));
    }
    on_every_dot_table([&](const kernels::KernelTable&) {
      for (const bool weights_in_float32 : {false, true}) {
        const AttentionOptions options{
            .causal = true, .query_offset = QueryAlignment::bottom_right, .weights_in_float32 = weights_in_float32};
        const AttentionArrays<float> whole = run(inputs, options);
        Array<float, 4> context({1, 6, 70, 37});
        attention_decode(inputs.query.view(), cache, AttentionOutputs{.context = context.view()}, options);
        EXPECT_EQ(bits_of(context), bits_of(whole.context));
        // The last query alone.
        const auto view = inputs.query.view();
        Array<float, 4> last({1, 6, 1, 37});
        attention_decode(TensorView<const B16, 4>(view.pointer(0, 0, 69, 0), {1, 6, 1, D}, view.strides), cache,
                         AttentionOutputs{.context = last.view()}, options);
        last.for_each_index([&](const auto& at) { ASSERT_EQ(last.get(at), whole.context.get({0, at[1], 69, at[3]})); });
      }
    });
  }
}

// With few rows per KV head, keys and values are read unpacked.
void expect_few_rows_match_many_rows(Index head_size, Index columns) {
  auto plain = AttentionInputs<float>::normal(18, 1, 4, 2, 70, 1091, head_size, columns);
  plain.value.set({0, 1, 1090, 5}, std::numeric_limits<float>::infinity());
  plain.value.set({0, 0, 77, 33}, std::numeric_limits<float>::quiet_NaN());
  const Inputs inputs(plain);
  on_every_dot_table([&](const kernels::KernelTable&) {
    for (const bool weights_in_float32 : {false, true}) {
      const AttentionArrays<float> whole =
          run(inputs, {.causal = true, .query_offset = Index{1021}, .weights_in_float32 = weights_in_float32});
      for (const auto& [first, count] : {std::pair<Index, Index>{68, 1}, {67, 2}, {69, 1}, {67, 3}, {60, 10}}) {
        const auto view = inputs.query.view();
        Array<float, 4> context({1, 4, count, columns});
        attention_forward(
            TensorView<const B16, 4>(view.pointer(0, 0, first, 0), {1, 4, count, head_size}, view.strides),
            inputs.key.view(), inputs.value.view(), {.context = context.view()},
            {.causal = true, .query_offset = Index{1021} + first, .weights_in_float32 = weights_in_float32});
        context.for_each_index([&](const auto& at) {
          const float x = context.get(at), y = whole.context.get({0, at[1], first + at[2], at[3]});
          ASSERT_TRUE(x == y || (x != x && y != y)) << x << " " << y;
        });
      }
    }
  });
}

TEST(Bfloat16PairsBits, FewRowsMatchManyRows) {
  expect_few_rows_match_many_rows(64, 96);
  expect_few_rows_match_many_rows(40, 72);
  expect_few_rows_match_many_rows(88, 56);
  expect_few_rows_match_many_rows(264, 48);
}

// Weights, partials, columns and statistics come from the scores of the forward pass.
TEST(Bfloat16PairsBits, AllOperatorsUseTheSameScores) {
  const Inputs inputs(AttentionInputs<float>::normal(15, 1, 4, 2, 65, 1200, 19, 33));
  on_every_dot_table([&](const kernels::KernelTable&) {
    AttentionArrays<float> whole = run(inputs);
    Array<float, 4> scores({1, 4, 65, 1200});
    attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores}, scores.view());
    whole.row_max->for_each_index([&](const auto& at) {
      float largest = -std::numeric_limits<float>::infinity();
      for (Index j = 0; j < 1200; ++j) largest = std::max(largest, scores.get({at[0], at[1], at[2], j}));
      ASSERT_EQ(whole.row_max->get(at), largest);
    });
    const AttentionArrays<float>& done = whole;
    // Columns, summed as documented.
    Array<float, 3> mass({1, 4, 1200}), sums({1, 4, 1200});
    attention_columns(inputs.query.view(), inputs.key.view(),
                      {.row_max = done.row_max->view(), .row_sum = done.row_sum->view()}, {.key_mass = mass.view()});
    sums.for_each_index([&](const auto& at) {
      double sum = 0;
      for (Index i = 0; i < 65; ++i) sum += static_cast<double>(done.weights->get({0, at[1], i, at[2]}));
      sums.set(at, static_cast<float>(sum));
    });
    EXPECT_EQ(bits_of(mass), bits_of(sums));
    // Statistics do not change the other results.
    Array<float, 3> largest({1, 4, 65});
    Array<float, 4> context({1, 4, 65, 33});
    attention_with_statistics(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.context = context.view()},
                              {.largest_weight = largest.view()}, {.weights_in_float32 = false});
    EXPECT_EQ(bits_of(context), bits_of(done.context));
    largest.for_each_index([&](const auto& at) {
      float weight = 0;
      for (Index j = 0; j < 1200; ++j) weight = std::max(weight, done.weights->get({0, at[1], at[2], j}));
      ASSERT_EQ(largest.get(at), weight);
    });
    // Partials merge to the full result.
    Array<float, 5> accumulator({2, 1, 4, 65, 33});
    Array<float, 4> row_max({2, 1, 4, 65}), row_sum({2, 1, 4, 65});
    attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                       {.accumulator = accumulator.view(), .row_max = row_max.view(), .row_sum = row_sum.view()},
                       {.weights_in_float32 = false});
    attention_merge({.accumulator = accumulator.view(), .row_max = row_max.view(), .row_sum = row_sum.view()}, {},
                    {.context = context.view()});
    EXPECT_EQ(bits_of(context), bits_of(done.context));
  });
}

// The instruction and its emulation: within twice the bound; on sets with fused multiply-add, the emulation gives the
// same bits everywhere.
TEST(Bfloat16PairsBits, InstructionMatchesItsEmulation) {
  const Inputs inputs(AttentionInputs<float>::normal(16, 1, 2, 1, 70, 700, 65, 40));
  const auto expected = inputs.expected();
  std::vector<std::vector<std::uint64_t>> twins;
  std::vector<float> first;
  for (const kernels::KernelTable& table : dot_tables()) {
    const ActiveTable active(table);
    SCOPED_TRACE(table.name);
    const AttentionArrays<float> got = run(inputs);
    const bool native = std::string(table.name) == "avx512_bf16";
    if (table.fused_multiply_add && !native) twins.push_back(all_bits(got));
    const std::vector<float> context = got.context.values();
    if (first.empty()) first = context;
    for (std::size_t at = 0; at < context.size(); ++at) {
      const double bound = 2 * expected.context_bound(static_cast<Index>(at) / 40, static_cast<Index>(at) % 40);
      ASSERT_LE(std::abs(static_cast<double>(context[at]) - static_cast<double>(first[at])), bound);
    }
  }
  for (const auto& bits : twins) EXPECT_EQ(bits, twins.front());
}

// A table without the instruction converts to float; one with it uses it.
TEST(Bfloat16PairsBits, OnlySetsWithTheInstructionUsePairs) {
  const Inputs inputs(AttentionInputs<float>::normal(17, 1, 1, 1, 5, 70, 8, 8));
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    EXPECT_EQ(table.bf16_dot, std::string(table.name) == "avx512_bf16");
    const AttentionArrays<float> as_float =
        run_attention<float>(converted(inputs.query), converted(inputs.key), converted(inputs.value));
    EXPECT_EQ(bits_of(run(inputs).context) == bits_of(as_float.context), !table.bf16_dot);
  });
}

}  // namespace
}  // namespace regard::attention_bf16_test
