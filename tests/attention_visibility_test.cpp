// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 2, clause by clause: which keys a query attends to. The pattern of nonzero
// weights is compared with the clause written as a condition on (b, h, i, j); the results are compared with
// reference.h; forms that the clause calls equivalent are compared bit by bit.
// Read next: attention_packed_test.cpp, attention_corners_test.cpp.
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::attention_visibility_test {
namespace {

template <class T>
class VisibilityRules : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VisibilityRules, Types);

// Runs the call on every instruction set and expects key j to have weight in row i exactly if sees(b, h, i, j).
template <class T, class F>
void expect_sees(const AttentionInputs<T>& inputs, const AttentionOptions& options, F sees) {
  const AttentionArrays<T> got = checked_attention(inputs, options);
  got.weights->for_each_index([&](const std::array<Index, 4>& at) {
    EXPECT_EQ(got.weights->get(at) > 0, sees(at[0], at[1], at[2], at[3]))
        << "b " << at[0] << " h " << at[1] << " i " << at[2] << " j " << at[3];
  });
}

template <class T>
void expect_same_bits(const AttentionInputs<T>& inputs, const AttentionOptions& a, const AttentionOptions& b) {
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(run_attention(inputs, a)), all_bits(run_attention(inputs, b)));
  });
}

// A mask (B|1, H|1, L, S) that is true if sees(b, h, i, j).
template <class F>
Array<bool, 4> mask_where(const std::array<Index, 4>& shape, F sees) {
  Array<bool, 4> mask(shape);
  mask.for_each_index([&](const std::array<Index, 4>& at) { mask.set(at, sees(at[0], at[1], at[2], at[3])); });
  return mask;
}

// ---- causal and the position of a query

TYPED_TEST(VisibilityRules, CausalShowsKeysUpToThePosition) {
  using T = TypeParam;
  const auto square = AttentionInputs<T>::normal(1, 2, 2, 1, 70, 70, 4, 3);
  expect_sees(square, {.causal = true}, [](Index, Index, Index i, Index j) { return j <= i; });
  const auto wide = AttentionInputs<T>::normal(2, 1, 2, 1, 5, 131, 4, 3);
  expect_sees(wide, {.causal = true, .query_offset = QueryAlignment::top_left},
              [](Index, Index, Index i, Index j) { return j <= i; });
  expect_sees(wide, {.causal = true, .query_offset = QueryAlignment::bottom_right},
              [](Index, Index, Index i, Index j) { return j <= i + 126; });
  expect_sees(wide, {.causal = true, .query_offset = Index{62}},
              [](Index, Index, Index i, Index j) { return j <= i + 62; });
  const auto tall = AttentionInputs<T>::normal(3, 1, 1, 1, 131, 5, 4, 3);
  expect_sees(tall, {.causal = true, .query_offset = QueryAlignment::bottom_right},
              [](Index, Index, Index i, Index j) { return j <= i - 126; });
  expect_sees(tall, {.causal = true, .query_offset = Index{-3}},
              [](Index, Index, Index i, Index j) { return j <= i - 3; });
}

TYPED_TEST(VisibilityRules, QueryOffsetMayBeOneNumberPerBatchEntry) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(4, 3, 2, 1, 4, 9, 4, 3);
  const std::vector<Index> offsets{-2, 0, 7};
  expect_sees(inputs, {.causal = true, .query_offset = std::span<const Index>(offsets)},
              [&](Index b, Index, Index i, Index j) { return j <= i + offsets[static_cast<std::size_t>(b)]; });
}

TYPED_TEST(VisibilityRules, BottomRightCountsFromTheKeyLength) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(5, 3, 1, 1, 4, 9, 4, 3);
  const std::vector<Index> lengths{9, 5, 2};
  expect_sees(inputs, {.causal = true, .query_offset = QueryAlignment::bottom_right, .key_lengths = lengths},
              [&](Index b, Index, Index i, Index j) {
                const Index length = lengths[static_cast<std::size_t>(b)];
                return j < length && j <= i + length - 4;
              });
}

TYPED_TEST(VisibilityRules, OffsetDefaultsToZeroIfLEqualsS) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(6, 1, 2, 1, 9, 9, 4, 3);
  const std::vector<T> slopes{static_cast<T>(0.5), static_cast<T>(0.25)};
  for (AttentionOptions options : {AttentionOptions{.causal = true}, AttentionOptions{.window = {2, 1}},
                                   AttentionOptions{.alibi_slopes = slopes}}) {
    AttentionOptions named = options;
    named.query_offset = Index{0};
    expect_same_bits(inputs, options, named);
  }
}

TYPED_TEST(VisibilityRules, OffsetIsRequiredIfLengthsDifferOrKeyLengthsAreGiven) {
  using T = TypeParam;
  const auto wide = AttentionInputs<T>::normal(7, 1, 1, 1, 3, 4, 4, 3);
  const auto square = AttentionInputs<T>::normal(7, 1, 1, 1, 4, 4, 4, 3);
  const std::vector<T> slopes{static_cast<T>(0.5)};
  const std::vector<Index> prefix{2}, lengths{4};
  const std::pair<std::string, AttentionOptions> users[] = {{"causal", {.causal = true}},
                                                            {"window", {.window = {1, {}}}},
                                                            {"window", {.window = {{}, 1}}},
                                                            {"alibi_slopes", {.alibi_slopes = slopes}},
                                                            {"prefix", {.prefix = prefix}}};
  for (auto [name, options] : users) {
    const std::string start = "attention_forward: " + name + " needs an explicit query_offset";
    EXPECT_EQ(rejection([&] { run_attention(wide, options); }).substr(0, start.size()), start);
    EXPECT_EQ(rejection([&] { run_attention(square, options); }), "accepted");
    options.key_lengths = lengths;
    EXPECT_EQ(rejection([&] { run_attention(square, options); }).substr(0, start.size()), start);
    options.query_offset = QueryAlignment::top_left;
    EXPECT_EQ(rejection([&] { run_attention(square, options); }), "accepted");
  }
  EXPECT_EQ(rejection([&] { run_attention(wide, {}); }), "accepted");
  EXPECT_EQ(rejection([&] { run_attention(square, {.key_lengths = lengths}); }), "accepted");
}

TYPED_TEST(VisibilityRules, DenseCausalMaskIsBitIdenticalToCausal) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(8, 1, 2, 1, 200, 1200, 5, 33);
  const auto mask = mask_where({1, 1, 200, 1200}, [](Index, Index, Index i, Index j) { return j <= i + 900; });
  expect_same_bits(inputs, {.causal = true, .query_offset = Index{900}}, {.mask = mask.view()});
}

// ---- window

TYPED_TEST(VisibilityRules, WindowShowsKeysFromLeftToRightOfThePosition) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(9, 1, 1, 1, 150, 150, 3, 3);
  expect_sees(inputs, {.window = {10, 70}}, [](Index, Index, Index i, Index j) { return i - 10 <= j && j <= i + 70; });
  expect_sees(inputs, {.window = {64, {}}}, [](Index, Index, Index i, Index j) { return i - 64 <= j; });
  expect_sees(inputs, {.window = {{}, 0}}, [](Index, Index, Index i, Index j) { return j <= i; });
  expect_sees(inputs, {.window = {0, 0}}, [](Index, Index, Index i, Index j) { return j == i; });
  expect_sees(inputs, {.window = {1000, 1000}}, [](Index, Index, Index, Index) { return true; });
  expect_sees(inputs, {.window = {std::numeric_limits<Index>::max(), std::numeric_limits<Index>::max()}},
              [](Index, Index, Index, Index) { return true; });
}

TYPED_TEST(VisibilityRules, WindowOfWKeysIsLeftWMinusOneAndRightZero) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(10, 20, 20, 3);
  const AttentionArrays<T> got = checked_attention(inputs, {.window = {3, 0}});
  for (Index i = 0; i < 20; ++i) {
    Index seen = 0;
    for (Index j = 0; j < 20; ++j) seen += got.weights->get({0, 0, i, j}) > 0;
    EXPECT_EQ(seen, std::min<Index>(i + 1, 4));
  }
}

TYPED_TEST(VisibilityRules, WindowWithCausalAndANegativeOffsetLeavesEarlyRowsEmpty) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(11, 12, 12, 3);
  const AttentionOptions options{.causal = true, .query_offset = Index{-5}, .window = {2, 4}};
  expect_sees(inputs, options, [](Index, Index, Index i, Index j) { return i - 7 <= j && j <= i - 5; });
  const AttentionArrays<T> got = run_attention(inputs, options);
  for (Index i = 0; i < 5; ++i) {
    EXPECT_EQ(got.context.get({0, 0, i, 0}), 0);
    EXPECT_EQ(got.lse->get({0, 0, i}), -std::numeric_limits<T>::infinity());
  }
}

TYPED_TEST(VisibilityRules, WindowOutsideTheKeysMasksEverything) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(12, 4, 100, 3);
  for (const Index offset : {Index{1000}, Index{-1000}, Index{1} << 60, -(Index{1} << 60)}) {
    expect_sees(inputs, {.query_offset = offset, .window = {5, 5}}, [](Index, Index, Index, Index) { return false; });
  }
}

// ---- key lengths and prefix

TYPED_TEST(VisibilityRules, KeysFromKeyLengthOnAreInvisible) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(13, 4, 2, 2, 5, 140, 3, 3);
  const std::vector<Index> lengths{140, 65, 1, 0};
  expect_sees(inputs, {.key_lengths = lengths},
              [&](Index b, Index, Index, Index j) { return j < lengths[static_cast<std::size_t>(b)]; });
}

TYPED_TEST(VisibilityRules, KeyLengthsMatchShorterKeys) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(14, 1, 1, 1, 5, 1100, 3, 3);
  for (const Index length : {1, 63, 64, 65, 1023, 1024, 1025}) {
    const std::vector<Index> lengths{length};
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const auto whole = run_attention(inputs, {.key_lengths = lengths});
      Array<T, 4> context({1, 1, 5, 3});
      TensorView<const T, 4> key = inputs.key.view(), value = inputs.value.view();
      key.shape[2] = value.shape[2] = length;
      attention_forward(inputs.query.view(), key, value, {.context = context.view()});
      EXPECT_EQ(bits_of(whole.context), bits_of(context));
    });
  }
}

TYPED_TEST(VisibilityRules, PrefixExtendsOnlyCausal) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(15, 2, 1, 1, 90, 90, 3, 3);
  const std::vector<Index> prefix{70, 0};
  const auto in_prefix = [&](Index b, Index j) { return j < prefix[static_cast<std::size_t>(b)]; };
  expect_sees(inputs, {.causal = true, .prefix = prefix},
              [&](Index b, Index, Index i, Index j) { return j <= i || in_prefix(b, j); });
  expect_sees(inputs, {.causal = true, .window = {5, 6}, .prefix = prefix}, [&](Index b, Index, Index i, Index j) {
    return (j <= i || in_prefix(b, j)) && i - 5 <= j && j <= i + 6;
  });
  const std::vector<Index> lengths{40, 90};
  expect_sees(inputs, {.causal = true, .query_offset = Index{0}, .key_lengths = lengths, .prefix = prefix},
              [&](Index b, Index, Index i, Index j) {
                return (j <= i || in_prefix(b, j)) && j < lengths[static_cast<std::size_t>(b)];
              });
  // Without causal there is nothing to extend.
  expect_same_bits(inputs, {.prefix = prefix}, {});
}

// ---- segments, block masks, masks, biases

TYPED_TEST(VisibilityRules, OnlyEqualNonNegativeSegmentsAreVisible) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(16, 2, 2, 1, 80, 100, 3, 3);
  Random random(17);
  Array<std::int32_t, 2> rows({2, 80}), keys({2, 100});
  for (auto* segments : {&rows, &keys}) segments->fill([&] { return random.integer(-2, 3); });
  expect_sees(
      inputs, {.query_segments = std::as_const(rows).view(), .key_segments = std::as_const(keys).view()},
      [&](Index b, Index, Index i, Index j) { return rows.get({b, i}) >= 0 && rows.get({b, i}) == keys.get({b, j}); });
}

TYPED_TEST(VisibilityRules, BlockMaskAppliesToWholeBlocks) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(18, 2, 4, 2, 70, 300, 3, 3);
  Random random(19);
  std::size_t number = 0;
  for (const auto& [bq, bk] : {std::pair<Index, Index>{1, 1}, {16, 128}, {64, 64}, {7, 100}, {70, 300}, {1000, 1000}}) {
    ++number;
    for (const auto& [B, H] : {std::pair<Index, Index>{2, 4}, {1, 4}, {2, 1}, {1, 1}}) {
      if (!runs_case(number++, 4)) continue;
      Array<bool, 4> blocks({B, H, (70 + bq - 1) / bq, (300 + bk - 1) / bk});
      blocks.fill([&] { return random.chance(0.6); });
      const std::array<Index, 2> size{bq, bk};
      const auto seen = [&](Index b, Index h, Index i, Index j) {
        const auto& shape = blocks.shape();
        return blocks.get({b % shape[0], h % shape[1], i / size[0], j / size[1]});
      };
      const AttentionOptions options{.block_mask = std::as_const(blocks).view(), .block_size = size};
      expect_sees(inputs, options, seen);
      const auto mask = mask_where({2, 4, 70, 300}, seen);
      expect_same_bits(inputs, options, {.mask = mask.view()});
    }
  }
}

TYPED_TEST(VisibilityRules, MaskAndBiasAreBroadcastOverEveryAxis) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(20, 2, 3, 3, 5, 70, 3, 3);
  const std::array<Index, 4> full{2, 3, 5, 70};
  Random random(21);
  for (unsigned axes = 0; axes < 16; ++axes) {
    std::array<Index, 4> shape = full;
    Layout<4> repeated = Layout<4>::dense();
    for (std::size_t axis = 0; axis < 4; ++axis) {
      repeated.repeated[axis] = (axes >> axis & 1) != 0;
      if (repeated.repeated[axis]) shape[axis] = 1;
    }
    Array<bool, 4> mask(shape), mask_by_stride(full, repeated), mask_in_full(full);
    Array<float, 4> bias(shape), bias_by_stride(full, repeated), bias_in_full(full);
    mask.fill([&] { return random.chance(0.7); });
    bias.fill([&] { return random.normal(); });
    bias_in_full.for_each_index([&](const std::array<Index, 4>& at) {
      std::array<Index, 4> from;
      for (std::size_t axis = 0; axis < 4; ++axis) from[axis] = at[axis] % shape[axis];
      for (auto* to : {&mask_by_stride, &mask_in_full}) to->set(at, mask.get(from));
      for (auto* to : {&bias_by_stride, &bias_in_full}) to->set(at, bias.get(from));
    });
    const AttentionOptions options{.mask = std::as_const(mask).view(), .bias = std::as_const(bias).view()};
    expect_sees(inputs, options, [&](Index b, Index h, Index i, Index j) { return mask_in_full.get({b, h, i, j}); });
    expect_same_bits(inputs, options,
                     {.mask = std::as_const(mask_in_full).view(), .bias = std::as_const(bias_in_full).view()});
    expect_same_bits(inputs, options,
                     {.mask = std::as_const(mask_by_stride).view(), .bias = std::as_const(bias_by_stride).view()});
  }
}

TEST(VisibilityBias, BiasIsFloatOrHasTheTypeOfQuery) {
  const auto inputs = AttentionInputs<double>::normal(22, 4, 70, 3);
  Random random(23);
  Array<float, 4> narrow({1, 1, 4, 70});
  Array<double, 4> same({1, 1, 4, 70}), finer({1, 1, 4, 70});
  narrow.for_each_index([&](const auto& at) {
    narrow.set(at, static_cast<float>(random.normal()));
    same.set(at, static_cast<double>(narrow.get(at)));
    finer.set(at, static_cast<double>(narrow.get(at)) + 1e-12);
  });
  expect_same_bits<double>(inputs, {.bias = std::as_const(narrow).view()}, {.bias = std::as_const(same).view()});
  EXPECT_NE(all_bits(run_attention(inputs, {.bias = std::as_const(same).view()})),
            all_bits(run_attention(inputs, {.bias = std::as_const(finer).view()})));
  checked_attention(inputs, {.bias = std::as_const(finer).view()});
  const auto floats = AttentionInputs<float>::normal(22, 4, 70, 3);
  EXPECT_EQ(rejection([&] { run_attention(floats, {.bias = std::as_const(same).view()}); }),
            "attention_forward: bias has type float64; expected float32 as in query");
}

TYPED_TEST(VisibilityRules, AlibiSubtractsSlopeTimesDistance) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(24, 1, 2, 1, 6, 80, 4, 3);
  // Powers of two, so that the products are exact and equal to the bias.
  const std::vector<T> slopes{static_cast<T>(0.5), static_cast<T>(0.03125)};
  Array<float, 4> bias({1, 2, 6, 80});
  bias.for_each_index([&](const std::array<Index, 4>& at) {
    const Index distance = std::abs(at[3] - (at[2] + 74));
    bias.set(at, static_cast<float>(-slopes[static_cast<std::size_t>(at[1])] * static_cast<T>(distance)));
  });
  checked_attention(inputs, {.query_offset = QueryAlignment::bottom_right, .alibi_slopes = slopes});
  expect_same_bits(inputs, {.query_offset = QueryAlignment::bottom_right, .alibi_slopes = slopes},
                   {.bias = std::as_const(bias).view()});
}

TYPED_TEST(VisibilityRules, AllOptionsCombine) {
  using T = TypeParam;
  const Index B = 2, H = 4, L = 130, S = 1100;
  const auto inputs = AttentionInputs<T>::normal(25, B, H, 2, L, S, 5, 7);
  Random random(26);
  Array<std::int32_t, 2> rows({B, L}), keys({B, S});
  for (auto* segments : {&rows, &keys}) segments->fill([&] { return random.integer(0, 1); });
  Array<bool, 4> blocks({B, 1, 3, 18}), mask({1, H, L, S});
  blocks.fill([&] { return random.chance(0.8); });
  mask.fill([&] { return random.chance(0.9); });
  Array<float, 4> bias({B, H, 1, S});
  bias.fill([&] { return random.normal(); });
  const std::vector<Index> lengths{S - 3, 1000}, prefix{300, 1}, offsets{900, 870};
  const std::vector<T> slopes{1, static_cast<T>(0.5), static_cast<T>(0.1), static_cast<T>(0.01)};
  const std::vector<T> sinks{0, 1, -1, -std::numeric_limits<T>::infinity()};
  const auto seen = [&](Index b, Index h, Index i, Index j) {
    const auto at = static_cast<std::size_t>(b);
    const Index p = i + offsets[at];
    return (j <= p || j < prefix[at]) && p - 700 <= j && j <= p + 40 && j < lengths[at] &&
           rows.get({b, i}) == keys.get({b, j}) && blocks.get({b, 0, i / 50, j / 64}) && mask.get({0, h, i, j});
  };
  const AttentionArrays<T> got = checked_attention(inputs, {.causal = true,
                                                            .query_offset = std::span<const Index>(offsets),
                                                            .window = {700, 40},
                                                            .key_lengths = lengths,
                                                            .query_segments = std::as_const(rows).view(),
                                                            .key_segments = std::as_const(keys).view(),
                                                            .prefix = prefix,
                                                            .block_mask = std::as_const(blocks).view(),
                                                            .block_size = {50, 64},
                                                            .mask = std::as_const(mask).view(),
                                                            .bias = std::as_const(bias).view(),
                                                            .alibi_slopes = slopes,
                                                            .sinks = sinks,
                                                            .soft_cap = 20.0,
                                                            .scale = 0.4});
  got.weights->for_each_index([&](const std::array<Index, 4>& at) {
    // Distant keys may have a weight that rounds to zero.
    EXPECT_TRUE(got.weights->get(at) == 0 || seen(at[0], at[1], at[2], at[3]));
  });
}

}  // namespace
}  // namespace regard::attention_visibility_test
