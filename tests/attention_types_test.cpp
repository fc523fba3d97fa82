// SPDX-License-Identifier: Apache-2.0
//
// Types of query, key, value and context (docs/reference/semantics.md, section 4). The result for 16-bit elements is
// defined by the result for the same values as floats, so nearly every test compares bits:
//
//     attention_forward(bfloat16, float16, …) == attention_forward(float(bfloat16), float(float16), …), rounded once
//
//   conversion    all 65,536 values of each type, by the kernels of every instruction set, in every alignment
//   combinations  each type for query, key, value and context, on the random calls of attention_cases.h
//   corners       poison, overflow of a context, rejections, overlap in bytes
//
// For processors that multiply bfloat16 values without conversion, see attention_bf16_test.cpp.
// Read next: types_test.cpp, element_types.h.

#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/floating_point_state.h"

namespace regard::attention_types_test {
namespace {

// A float array rounded to E, in its own layout; and the same values as floats.
template <class E>
Array<E, 4> rounded(const Array<float, 4>& from, const Layout<4>& layout = Layout<4>::dense()) {
  Array<E, 4> to(from.shape(), layout);
  from.for_each_index([&](const auto& at) { to.set(at, E(from.get(at))); });
  return to;
}
template <class E>
Array<float, 4> converted(const Array<E, 4>& from) {
  Array<float, 4> to(from.shape());
  from.for_each_index([&](const auto& at) { to.set(at, static_cast<float>(from.get(at))); });
  return to;
}

template <class E>
Array<E, 4> zeros(const std::array<Index, 4>& shape) {
  Array<float, 4> array(shape);
  array.fill([] { return 0; });
  return rounded<E>(array);
}

template <class E>
std::vector<E> round_all(const std::vector<float>& numbers) {
  std::vector<E> result;
  for (const float x : numbers) result.push_back(E(x));
  return result;
}

// Every instruction set that computes with these types as floats.
template <class Query, class Key, class F>
void on_every_widening_set(F f) {
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    constexpr bool kPairs = std::same_as<Query, bfloat16> && std::same_as<Key, bfloat16>;
    if (!kPairs || !table.bf16_dot) f(table);
  });
}

// ---- conversion

template <class S, class E>
void widens_every_number(const kernels::WideningKernels<S>& kernel) {
  constexpr std::size_t kAll = 0x10000;
  std::vector<S> numbers(kAll);
  std::vector<float> expected(kAll);
  for (std::size_t n = 0; n < kAll; ++n) {
    numbers[n].bits = static_cast<std::uint16_t>(n);
    E x;
    x.bits = numbers[n].bits;
    expected[n] = static_cast<float>(x);
  }
  const auto expect_equal = [&](const std::vector<float>& got) { EXPECT_EQ(bits_of(got), bits_of(expected)); };
  std::vector<float> got(kAll);
  kernel.widen(numbers.data(), got.data(), static_cast<Index>(kAll));
  expect_equal(got);
  // Every remainder, from an address that is not a multiple of two.
  std::vector<char> memory(2 * kAll + 1);
  std::memcpy(memory.data() + 1, numbers.data(), 2 * kAll);
  for (const Index step : {1, 3, 7, 15, 17, 31, 33}) {
    for (Index first = 0; first < static_cast<Index>(kAll); first += step) {
      kernel.widen(reinterpret_cast<const S*>(memory.data() + 1 + 2 * first), got.data() + first,
                   std::min(step, static_cast<Index>(kAll) - first));
    }
    expect_equal(got);
  }
}

TEST(ConversionToFloat, EveryValueOnEveryInstructionSet) {
  on_every_instruction_set([](const kernels::KernelTable& table) {
    widens_every_number<kernels::Bfloat16, bfloat16>(table.bf16);
    widens_every_number<kernels::Float16, float16>(table.f16);
  });
}

// Independent of the processor's treatment of subnormals: an operator sets its own state.
TEST(ConversionToFloat, SubnormalsAreKeptWhateverTheCallersFlushing) {
  Array<float16, 4> value({1, 1, 1, 40});
  for (Index c = 0; c < 40; ++c) {
    float16 x;
    x.bits = static_cast<std::uint16_t>(c % 2 == 0 ? c : 0x8000 + c);
    value.set({0, 0, 0, c}, x);
  }
  const Array<float16, 4> zero = zeros<float16>({1, 1, 1, 1});
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Array<float16, 4> context({1, 1, 1, 40});
    const std::uint64_t state = floating_point_state();
    set_floating_point_state(state | kFlushSubnormals);
    attention_forward(zero.view(), zero.view(), value.view(), AttentionOutputs{.context = context.view()});
    set_floating_point_state(state);
    EXPECT_EQ(bits_of(context.values()), bits_of(value.values()));
  });
}

// ---- combinations

template <class Q, class K, class V, class C>
struct Combination {
  using Query = Q;
  using Key = K;
  using Value = V;
  using Context = C;
};

template <class Combined>
class AttentionTypes : public testing::Test {};
using B16 = bfloat16;
using F16 = float16;
using Combinations = testing::Types<
    Combination<B16, B16, B16, B16>, Combination<B16, B16, B16, float>, Combination<B16, F16, F16, B16>,
    Combination<B16, F16, float, float>, Combination<B16, float, B16, B16>, Combination<B16, float, float, float>,
    Combination<F16, F16, F16, F16>, Combination<F16, F16, F16, float>, Combination<F16, B16, B16, F16>,
    Combination<F16, B16, float, float>, Combination<F16, float, F16, F16>, Combination<float, B16, B16, float>,
    Combination<float, F16, F16, float>, Combination<float, B16, F16, float>, Combination<float, float, B16, float>,
    Combination<float, F16, float, float>, Combination<float, float, float, float>>;
TYPED_TEST_SUITE(AttentionTypes, Combinations);

template <class C>
struct TypedArrays {
  Array<C, 4> context;
  Array<float, 3> row_max, row_sum, lse, sink_weights;
  Array<float, 4> weights;

  TypedArrays(Index B, Index H, Index L, Index S, Index Dv, const Layout<4>& layout)
      : context({B, H, L, Dv}, layout),
        row_max({B, H, L}),
        row_sum({B, H, L}),
        lse({B, H, L}),
        sink_weights({B, H, L}),
        weights({B, H, L, S}) {}
  AttentionOutputs views() {
    return {.context = context.view(),
            .row_max = row_max.view(),
            .row_sum = row_sum.view(),
            .lse = lse.view(),
            .weights = weights.view(),
            .sink_weights = sink_weights.view()};
  }
};

// Every random call: strided, misaligned, packed, masked, biased, with sinks and poison. The bits match those of float
// inputs, and nothing between the context's elements is written.
TYPED_TEST(AttentionTypes, MatchConvertedInputsRoundedOnce) {
  using Query = typename TypeParam::Query;
  using Key = typename TypeParam::Key;
  using Value = typename TypeParam::Value;
  using Context = typename TypeParam::Context;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase<float> call = random_attention_case<float>(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
    Random random(seed + 1000);
    const auto query = rounded<Query>(call.query, random_layout<4>(random, true));
    const auto key = rounded<Key>(call.key, random_layout<4>(random, true));
    const auto value = rounded<Value>(call.value, random_layout<4>(random, true));
    const auto wide_query = converted(query), wide_key = converted(key), wide_value = converted(value);
    const Layout<4> layout = random_layout<4>(random, true);
    on_every_widening_set<Query, Key>([&](const kernels::KernelTable&) {
      const AttentionArrays<float> expected = run_attention<float>(wide_query, wide_key, wide_value, call.options);
      TypedArrays<Context> got(call.B(), call.H(), call.L(), call.S(), call.Dv(), layout);
      attention_forward(query.view(), key.view(), value.view(), got.views(), call.options);
      EXPECT_EQ(bits_of(got.context.values()), bits_of(round_all<Context>(expected.context.values())));
      EXPECT_EQ(bits_of(got.row_max), bits_of(*expected.row_max));
      EXPECT_EQ(bits_of(got.row_sum), bits_of(*expected.row_sum));
      EXPECT_EQ(bits_of(got.lse), bits_of(*expected.lse));
      EXPECT_EQ(bits_of(got.sink_weights), bits_of(*expected.sink_weights));
      EXPECT_EQ(bits_of(got.weights), bits_of(*expected.weights));
      EXPECT_TRUE(got.context.surroundings_untouched());
    });
    if (testing::Test::HasFailure()) return;
  }
}

// Sums and scores are in float: the error before the final rounding is within the bound of float (section 4).
TYPED_TEST(AttentionTypes, ErrorIsWithinTheFloatBound) {
  const auto inputs = AttentionInputs<float>::normal(7, 1, 4, 2, 61, 1100, 64, 48);
  const auto query = rounded<typename TypeParam::Query>(inputs.query);
  const auto key = rounded<typename TypeParam::Key>(inputs.key);
  const auto value = rounded<typename TypeParam::Value>(inputs.value);
  const auto expected =
      reference::attention<float>(converted(query).view(), converted(key).view(), converted(value).view());
  on_every_widening_set<typename TypeParam::Query, typename TypeParam::Key>([&](const kernels::KernelTable&) {
    AttentionArrays<float> got = AttentionArrays<float>::dense(1, 4, 61, 1100, 48);
    attention_forward(query.view(), key.view(), value.view(), got.views());
    matches_reference(got, expected);
  });
}

TYPED_TEST(AttentionTypes, WeightsAndPartialsMatchConvertedInputs) {
  using Query = typename TypeParam::Query;
  const auto inputs = AttentionInputs<float>::normal(8, 1, 4, 2, 9, 1500, 20, 33);
  const auto query = rounded<Query>(inputs.query);
  const auto key = rounded<typename TypeParam::Key>(inputs.key);
  const auto value = rounded<typename TypeParam::Value>(inputs.value);
  const auto wide_query = converted(query), wide_key = converted(key), wide_value = converted(value);
  on_every_widening_set<Query, typename TypeParam::Key>([&](const kernels::KernelTable&) {
    const AttentionArrays<float> expected = run_attention<float>(wide_query, wide_key, wide_value);

    // Chosen rows of the weights.
    const std::vector<RowRange> rows{{2, 5}, {0, 1}};
    Array<float, 4> weights({1, 4, 4, 1500}), wide_weights({1, 4, 4, 1500});
    const WeightsRequest request{
        .row_max = expected.row_max->view(), .row_sum = expected.row_sum->view(), .rows = rows};
    attention_weights(query.view(), key.view(), request, weights.view());
    attention_weights(wide_query.view(), wide_key.view(), request, wide_weights.view());
    EXPECT_EQ(bits_of(weights), bits_of(wide_weights));

    // Partial results are floats, and merge to the full result.
    Array<float, 5> sums({2, 1, 4, 9, 33});
    Array<float, 4> row_max({2, 1, 4, 9}), row_sum({2, 1, 4, 9});
    attention_partials(
        query.view(), key.view(), value.view(),
        AttentionPartialOutputs{.accumulator = sums.view(), .row_max = row_max.view(), .row_sum = row_sum.view()});
    Array<float, 4> context({1, 4, 9, 33});
    attention_merge({.accumulator = sums.view(), .row_max = row_max.view(), .row_sum = row_sum.view()}, {},
                    AttentionOutputs{.context = context.view()});
    EXPECT_EQ(bits_of(context), bits_of(expected.context));

    const AttentionResult<Query> whole = attention_with_weights<Query>(query.view(), key.view(), value.view());
    EXPECT_EQ(bits_of(std::vector<Query>(whole.context.data(), whole.context.data() + whole.context.size())),
              bits_of(round_all<Query>(expected.context.values())));
    EXPECT_EQ(bits_of(std::vector<float>(whole.weights.data(), whole.weights.data() + whole.weights.size())),
              bits_of(*expected.weights));
  });
}

// ---- rounding

// A mean for which double rounding, through an intermediate type, would differ: the float is just next to a midpoint.
TEST(ContextTypes, AreRoundedOnceFromFloat) {
  // float16: 1 + 2⁻¹¹ is the midpoint of 1 and 1 + 2⁻¹⁰. Rounded to bfloat16 first, all of these would be 1.
  const std::array<float, 4> values{1 + 0x1p-11f, 1 + 0x1p-11f + 0x1p-23f, 1 + 0x1p-11f - 0x1p-23f, 1 + 3 * 0x1p-11f};
  const std::array<float, 4> expected{1, 1 + 0x1p-10f, 1, 1 + 0x1p-9f};
  const Array<float16, 4> zero = zeros<float16>({1, 1, 1, 1});
  Array<float, 4> value({1, 1, 1, 4});
  value.for_each_index([&](const auto& at) { value.set(at, values[static_cast<std::size_t>(at[3])]); });
  Array<float16, 4> context({1, 1, 1, 4});
  attention_forward(zero.view(), zero.view(), value.view(), AttentionOutputs{.context = context.view()});
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_EQ(static_cast<float>(context.get({0, 0, 0, static_cast<Index>(c)})), expected[c]) << c;
  }
}

TEST(ContextTypes, OverflowBecomesInfinity) {
  const std::array<float, 6> values{65504, 65519.99f, 65520, -65520, 1e30f, -3e38f};
  const std::array<float, 6> halves{65504, 65504, INFINITY, -INFINITY, INFINITY, -INFINITY};
  const Array<float16, 4> zero = zeros<float16>({1, 1, 1, 1});
  Array<float, 4> value({1, 1, 1, 6});
  value.for_each_index([&](const auto& at) { value.set(at, values[static_cast<std::size_t>(at[3])]); });
  Array<float16, 4> context({1, 1, 1, 6});
  Array<float, 4> wide({1, 1, 1, 6});
  attention_forward(zero.view(), zero.view(), value.view(), AttentionOutputs{.context = context.view()});
  attention_forward(zero.view(), zero.view(), value.view(), AttentionOutputs{.context = wide.view()});
  for (std::size_t c = 0; c < 6; ++c) {
    EXPECT_EQ(static_cast<float>(context.get({0, 0, 0, static_cast<Index>(c)})), halves[c]) << c;
    EXPECT_EQ(wide.get({0, 0, 0, static_cast<Index>(c)}), values[c]) << c;
  }
  // Means of the largest number stay there, although their sum is far beyond the range of the type.
  Array<float16, 4> many({1, 1, 3000, 2});
  many.for_each_index([&](const auto& at) { many.set(at, float16(65504.0f)); });
  const Array<float16, 4> keys = zeros<float16>({1, 1, 3000, 1});
  Array<float16, 4> mean({1, 1, 1, 2});
  attention_forward(zero.view(), keys.view(), many.view(), AttentionOutputs{.context = mean.view()});
  EXPECT_EQ(bits_of(mean.values()), (std::vector<std::uint64_t>{0x7bff, 0x7bff}));
}

// ---- bias

TEST(BiasTypes, FloatOrTypeOfQuery) {
  const auto inputs = AttentionInputs<float>::normal(9, 1, 2, 2, 5, 70, 8, 8);
  Random random(10);
  const Array<float, 4> bias = normal_array<float, 4>(random, {1, 2, 5, 70}, 3);
  const auto run = [&]<class E>(E) {
    const auto query = rounded<E>(inputs.query), key = rounded<E>(inputs.key), value = rounded<E>(inputs.value);
    const auto narrow = rounded<E>(bias);
    const auto same = converted(narrow);
    Array<float, 4> a({1, 2, 5, 8}), b({1, 2, 5, 8});
    attention_forward(query.view(), key.view(), value.view(), {.context = a.view()},
                      {.bias = std::as_const(narrow).view(), .weights_in_float32 = true});
    attention_forward(query.view(), key.view(), value.view(), {.context = b.view()},
                      {.bias = std::as_const(same).view(), .weights_in_float32 = true});
    EXPECT_EQ(bits_of(a), bits_of(b));
    const auto expected = reference::attention<float>(converted(query).view(), converted(key).view(),
                                                      converted(value).view(), {.bias = std::as_const(narrow).view()});
    AttentionArrays<float> got;
    got.context = std::move(a);
    matches_reference(got, expected);
  };
  run(bfloat16{});
  run(float16{});
}

// ---- rejections

TEST(AttentionTypesRejections, TypesIncompatibleWithTheQuery) {
  const Array<bfloat16, 4> b16({1, 1, 4, 4});
  const Array<float16, 4> f16({1, 1, 4, 4});
  const Array<float, 4> f32({1, 1, 4, 4});
  const Array<double, 4> f64({1, 1, 4, 4});
  Array<bfloat16, 4> out_b16({1, 1, 4, 4});
  Array<float16, 4> out_f16({1, 1, 4, 4});
  Array<float, 4> out_f32({1, 1, 4, 4});
  const std::string begin = "attention_forward: ";
  const auto forward = [](const auto& query, auto& context, const AttentionOptions& options = {}) {
    return rejection([&] {
      attention_forward(query.view(), query.view(), query.view(), AttentionOutputs{.context = context.view()}, options);
    });
  };
  EXPECT_EQ(forward(f32, out_b16), begin + "context has type bfloat16; expected float32 as in query");
  EXPECT_EQ(forward(f32, out_f16), begin + "context has type float16; expected float32 as in query");
  EXPECT_EQ(forward(b16, out_f16), begin + "context has type float16; expected float32, or bfloat16 as in query");
  EXPECT_EQ(forward(f16, out_b16), begin + "context has type bfloat16; expected float32, or float16 as in query");
  EXPECT_EQ(forward(f32, out_f32, {.bias = b16.view()}),
            begin + "bias has type bfloat16; expected float32 as in query");
  EXPECT_EQ(forward(b16, out_f32, {.bias = f16.view()}),
            begin + "bias has type float16; expected float32, or bfloat16 as in query");
  EXPECT_EQ(forward(f16, out_f32, {.bias = f64.view()}),
            begin + "bias has type float64; expected float32, or float16 as in query");
  EXPECT_EQ(forward(b16, out_b16, {.bias = b16.view()}), "accepted");
  EXPECT_EQ(forward(f16, out_f32, {.bias = f32.view()}), "accepted");
  // Double together with any other type.
  Tensor<double, 4> out_f64({1, 1, 3, 4});
  EXPECT_EQ(rejection([&] { attention_forward(f32.view(), f64.view(), f32.view(), {.context = out_f32.view()}); }),
            begin + "key has type float64; expected float32, bfloat16 or float16");
  EXPECT_EQ(rejection([&] { attention_forward(f64.view(), f64.view(), b16.view(), {.context = out_f64}); }),
            begin + "value has type bfloat16; expected float64");
  EXPECT_EQ(rejection([&] { attention_forward(f32.view(), f32.view(), f32.view(), {.context = out_f64}); }),
            begin + "context has type float64; expected float32 as in query");
}

// Ranges of bytes, not of elements: 16-bit elements of one array next to 32-bit elements of another.
TEST(AttentionTypesRejections, OverlapIsCountedInBytes) {
  constexpr Index L = 3, D = 4;
  std::vector<float> memory(64);
  std::byte* const at = reinterpret_cast<std::byte*>(memory.data());
  const Array<float16, 4> query = zeros<float16>({1, 1, L, D});
  const auto call = [&](Index key_byte, Index context_byte) {
    const TensorView<const float16, 4> key(reinterpret_cast<const float16*>(at + key_byte), {1, 1, L, D});
    const TensorView<float, 4> context(reinterpret_cast<float*>(at + context_byte), {1, 1, L, D});
    return rejection([&] { attention_forward(query.view(), key, query.view(), AttentionOutputs{.context = context}); });
  };
  const std::string overlap = "attention_forward: context overlaps key; expected separate memory";
  EXPECT_EQ(call(0, 24), "accepted");  // 24 bytes of keys
  EXPECT_EQ(call(0, 22), overlap);
  EXPECT_EQ(call(48, 0), "accepted");  // 48 bytes of context
  EXPECT_EQ(call(47, 0), overlap);
}

// ---- types of options and arguments

TEST(ArgumentTypes, TensorsAndMatricesConvertToViews) {
  const auto inputs = AttentionInputs<float>::normal(20261125, 1, 1, 1, 4, 6, 8, 5);
  Tensor<float, 2> query({4, 8}), key({6, 8}), value({6, 5}), context({4, 5});
  for (Index i = 0; i < 6; ++i) {
    for (Index d = 0; d < 8; ++d) {
      if (i < 4) query(i, d) = inputs.query.get({0, 0, i, d});
      key(i, d) = inputs.key.get({0, 0, i, d});
      if (d < 5) value(i, d) = inputs.value.get({0, 0, i, d});
    }
  }
  attention_forward(query, key, value, {.context = context});
  const AttentionArrays<float> expected = run_attention(inputs, {});
  for (Index i = 0; i < 4; ++i) {
    for (Index c = 0; c < 5; ++c) EXPECT_EQ(context(i, c), expected.context.get({0, 0, i, c}));
  }
}

TEST(ArgumentTypes, ListsOf32BitIntegersEqualListsOf64Bits) {
  const auto inputs = AttentionInputs<float>::normal(7, 2, 2, 1, 5, 70, 8, 8);
  const std::vector<std::int32_t> lengths{66, 0}, prefix{3, 60}, offsets{-2, 40};
  const std::vector<Index> long_lengths{66, 0}, long_prefix{3, 60}, long_offsets{-2, 40};
  const AttentionArrays<float> got =
      run_attention(inputs, {.causal = true, .query_offset = offsets, .key_lengths = lengths, .prefix = prefix});
  const AttentionArrays<float> expected = run_attention(
      inputs, {.causal = true, .query_offset = long_offsets, .key_lengths = long_lengths, .prefix = long_prefix});
  EXPECT_EQ(bits_of(got.context), bits_of(expected.context));
  const auto packed = AttentionInputs<float>::normal(8, 1, 2, 2, 9, 11, 8, 8);
  const std::vector<std::int32_t> query_starts{0, 4, 9}, key_starts{0, 6, 11};
  const std::vector<Index> long_query_starts{0, 4, 9}, long_key_starts{0, 6, 11};
  EXPECT_EQ(bits_of(run_attention(packed, {.query_starts = query_starts, .key_starts = key_starts}).context),
            bits_of(run_attention(packed, {.query_starts = long_query_starts, .key_starts = long_key_starts}).context));
  // Every other entry of a longer list.
  const std::vector<std::int32_t> spread{0, -1, 4, -1, 9};
  EXPECT_EQ(
      bits_of(run_attention(packed, {.query_starts = InputView<1>(spread.data(), {3}, {2}), .key_starts = key_starts})
                  .context),
      bits_of(run_attention(packed, {.query_starts = long_query_starts, .key_starts = long_key_starts}).context));
}

TEST(ArgumentTypes, NonzeroMaskBytesAreTrue) {
  const auto inputs = AttentionInputs<float>::normal(9, 2, 2, 2, 7, 70, 8, 8);
  Tensor<std::uint8_t, 4> bytes({2, 1, 7, 70}), block_bytes({1, 1, 2, 3});
  const auto bools = std::make_unique<bool[]>(static_cast<std::size_t>(bytes.size()));
  const bool block_bools[] = {true, true, false, true, true, true};
  for (Index i = 0; i < bytes.size(); ++i) {
    bools[static_cast<std::size_t>(i)] = i % 3 != 0;
    bytes.data()[i] = static_cast<std::uint8_t>(i % 3 * 127);
  }
  for (Index i = 0; i < block_bytes.size(); ++i) block_bytes.data()[i] = block_bools[i] ? 255 : 0;
  const InputView<4> mask(bools.get(), bytes.shape()), blocks(block_bools, block_bytes.shape());
  const std::array<Index, 2> size{4, 32};
  AttentionFingerprint of_bytes, of_bools;
  const auto run = [&](const AttentionOptions& options, AttentionFingerprint& fingerprint) {
    Array<float, 4> context({2, 2, 7, 8});
    attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                      {.context = context.view(), .fingerprint = &fingerprint}, options);
    return bits_of(context);
  };
  EXPECT_EQ(run({.block_mask = block_bytes, .block_size = size, .mask = bytes}, of_bytes),
            run({.block_mask = blocks, .block_size = size, .mask = mask}, of_bools));
  EXPECT_EQ(of_bytes, of_bools);
}

TEST(ArgumentTypes, SegmentsOf64BitsEqualSegmentsOf32Bits) {
  const auto inputs = AttentionInputs<float>::normal(10, 1, 2, 2, 6, 6, 8, 8);
  const std::vector<std::int32_t> narrow{0, 0, 1, 1, -1, 2};
  const std::vector<std::int64_t> wide{0, 0, 1, 1, -1, 2};
  const auto of = [](const auto& list) { return InputView<2>(list.data(), {1, 6}); };
  const auto expected = run_attention(inputs, {.query_segments = of(narrow), .key_segments = of(narrow)});
  EXPECT_EQ(bits_of(run_attention(inputs, {.query_segments = of(wide), .key_segments = of(narrow)}).context),
            bits_of(expected.context));
  EXPECT_EQ(bits_of(run_attention(inputs, {.query_segments = of(narrow), .key_segments = of(wide)}).context),
            bits_of(expected.context));
}

TEST(ArgumentTypes, OtherTypesAreRejectedByName) {
  const auto inputs = AttentionInputs<float>::normal(11, 1, 1, 1, 3, 3, 4, 4);
  const std::vector<double> doubles{3};
  const std::vector<std::uint8_t> bytes{3};
  const Tensor<float, 4> floats({1, 1, 3, 3});
  const Tensor<std::uint32_t, 2> words({1, 3});
  const auto said = [&](const AttentionOptions& options) { return rejection([&] { run_attention(inputs, options); }); };
  EXPECT_EQ(said({.key_lengths = doubles}), "attention_forward: key_lengths has type float64; expected int32 or int64");
  EXPECT_EQ(said({.prefix = bytes}), "attention_forward: prefix has type uint8; expected int32 or int64");
  EXPECT_EQ(said({.query_offset = InputView<1>(doubles)}),
            "attention_forward: query_offset has type float64; expected int32 or int64");
  EXPECT_EQ(said({.mask = floats}), "attention_forward: mask has type float32; expected bool or uint8");
  EXPECT_EQ(said({.query_segments = words, .key_segments = words}),
            "attention_forward: query_segments has type uint32; expected int32 or int64");
  EXPECT_EQ(said({.alibi_slopes = doubles}),
            "attention_forward: alibi_slopes has type float64; expected float32, bfloat16 or float16");
  // More entries than fit into memory, rejected before one is read.
  const float slope = 1;
  EXPECT_EQ(said({.alibi_slopes = InputView<1>(&slope, {Index{1} << 50}, {0})}),
            "attention_forward: alibi_slopes has 1125899906842624 entries; expected 1, one per query head");
  EXPECT_EQ(said({.sinks = InputView<1>(&slope, {Index{1} << 50}, {0})}),
            "attention_forward: sinks has 1125899906842624 entries; expected 1, one per query head");
  Tensor<double, 3> sums({1, 1, 3});
  Tensor<float, 4> context({1, 1, 3, 4});
  EXPECT_EQ(rejection([&] {
              attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                                {.context = context, .row_sum = sums});
            }),
            "attention_forward: row_sum has type float64; expected float32");
}

}  // namespace
}  // namespace regard::attention_types_test
