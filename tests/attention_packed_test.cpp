// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 2: packed sequences, and that fully masked tiles are never computed. A packed
// sequence must have the bits of a separate call; the work is measured by kernels that count their calls.
// Read next: attention_corners_test.cpp.
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::attention_packed_test {
namespace {

template <class T>
class PackedAttention : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PackedAttention, Types);

// ---- packed sequences

// Rows first … first + count − 1 of axis 2.
template <class T>
TensorView<T, 4> slice(TensorView<T, 4> view, Index first, Index count) {
  view.data += first * view.strides[2];
  view.shape[2] = count;
  return view;
}

TYPED_TEST(PackedAttention, PackedSequenceMatchesASeparateCall) {
  using T = TypeParam;
  const std::vector<Index> query_starts{0, 5, 5, 130, 131, 140}, key_starts{0, 70, 75, 1175, 1175, 1300};
  const auto inputs = AttentionInputs<T>::normal(1, 1, 4, 2, 140, 1300, 6, 5);
  const std::vector<Index> lengths{60, 5, 1100, 0, 100}, prefix{3, 0, 200, 0, 0};
  const std::vector<T> sinks{0, 1, -1, 2};
  const AttentionOptions every{.causal = true,
                               .query_offset = QueryAlignment::bottom_right,
                               .window = {400, {}},
                               .key_lengths = lengths,
                               .query_starts = query_starts,
                               .key_starts = key_starts,
                               .prefix = prefix,
                               .sinks = sinks};
  checked_attention(inputs, every);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> packed = run_attention(inputs, every);
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      const Index rows = query_starts[n + 1] - query_starts[n], keys = key_starts[n + 1] - key_starts[n];
      AttentionOptions own = every;
      own.query_starts = own.key_starts = {};
      own.key_lengths = std::span(lengths).subspan(n, 1);
      own.prefix = std::span(prefix).subspan(n, 1);
      Array<T, 4> context({1, 4, rows, 5}), weights({1, 4, rows, keys});
      attention_forward(slice(inputs.query.view(), query_starts[n], rows),
                        slice(inputs.key.view(), key_starts[n], keys), slice(inputs.value.view(), key_starts[n], keys),
                        {.context = context.view(), .weights = weights.view()}, own);
      context.for_each_index([&](const std::array<Index, 4>& at) {
        EXPECT_EQ(context.get(at), packed.context.get({0, at[1], query_starts[n] + at[2], at[3]}));
      });
      weights.for_each_index([&](const std::array<Index, 4>& at) {
        EXPECT_EQ(weights.get(at), packed.weights->get({0, at[1], query_starts[n] + at[2], key_starts[n] + at[3]}));
      });
    }
    // A query attends only to its own sequence.
    packed.weights->for_each_index([&](const std::array<Index, 4>& at) {
      const auto own = std::upper_bound(query_starts.begin(), query_starts.end(), at[2]) - query_starts.begin();
      const auto n = static_cast<std::size_t>(own);
      EXPECT_TRUE(packed.weights->get(at) == 0 || (key_starts[n - 1] <= at[3] && at[3] < key_starts[n]));
    });
  });
}

TYPED_TEST(PackedAttention, OffsetsDefaultToZeroIfEverySequenceIsSquare) {
  using T = TypeParam;
  const std::vector<Index> starts{0, 3, 9}, other{0, 4, 9};
  const auto inputs = AttentionInputs<T>::normal(2, 9, 9, 4);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_EQ(all_bits(run_attention(inputs, {.causal = true, .query_starts = starts, .key_starts = starts})),
              all_bits(run_attention(inputs, {.causal = true,
                                              .query_offset = QueryAlignment::bottom_right,
                                              .query_starts = starts,
                                              .key_starts = starts})));
  });
  EXPECT_NE(rejection([&] {
              run_attention(inputs, {.causal = true, .query_starts = starts, .key_starts = other});
            }).find("query_offset"),
            std::string::npos);
}

TYPED_TEST(PackedAttention, DenseOptionsAreIndexedByStoredRowAndKey) {
  using T = TypeParam;
  const std::vector<Index> query_starts{0, 7, 20}, key_starts{0, 90, 170};
  const auto inputs = AttentionInputs<T>::normal(3, 1, 2, 1, 20, 170, 3, 3);
  Random random(4);
  Array<bool, 4> mask({1, 2, 20, 170}), blocks({1, 1, 4, 6});
  mask.fill([&] { return random.chance(0.7); });
  blocks.fill([&] { return random.chance(0.7); });
  Array<float, 4> bias({1, 1, 20, 170});
  bias.fill([&] { return random.normal(); });
  Array<std::int32_t, 2> rows({1, 20}), keys({1, 170});
  for (auto* segments : {&rows, &keys}) segments->fill([&] { return random.integer(0, 1); });
  const AttentionArrays<T> got = checked_attention(inputs, {.query_starts = query_starts,
                                                            .key_starts = key_starts,
                                                            .query_segments = std::as_const(rows).view(),
                                                            .key_segments = std::as_const(keys).view(),
                                                            .block_mask = std::as_const(blocks).view(),
                                                            .block_size = {6, 32},
                                                            .mask = std::as_const(mask).view(),
                                                            .bias = std::as_const(bias).view()});
  got.weights->for_each_index([&](const std::array<Index, 4>& at) {
    const auto [b, h, i, j] = at;
    const bool seen = (i < 7) == (j < 90) && mask.get({0, h, i, j}) && blocks.get({0, 0, i / 6, j / 32}) &&
                      rows.get({0, i}) == keys.get({0, j});
    EXPECT_EQ(got.weights->get(at) > 0, seen);
  });
}

// ---- amount of work

Index num_blocks_computed = 0;
const kernels::KernelTable* counted = nullptr;

template <class T>
void count_and_compute(const kernels::AttentionBlock<T>& block) {
  ++num_blocks_computed;
  counted->of<T>().attention_block(block);
}

// The number of key blocks that attention_forward computes.
template <class T>
Index count_blocks(const AttentionInputs<T>& inputs, const AttentionOptions& options) {
  counted = &kernels::active();
  kernels::KernelTable counting = *counted;
  counting.f32.attention_block = count_and_compute<float>;
  counting.f64.attention_block = count_and_compute<double>;
  num_blocks_computed = 0;
  const ActiveTable active(counting);
  Array<T, 4> context(
      {inputs.query.shape()[0], inputs.query.shape()[1], inputs.query.shape()[2], inputs.value.shape()[3]});
  attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.context = context.view()}, options,
                    {.num_threads = 1});
  return num_blocks_computed;
}

TYPED_TEST(PackedAttention, CausalMaskHalvesTheWork) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(5, 1, 1, 1, 1920, 1920, 2, 1);
  const Index full = count_blocks<T>(inputs, {});
  const Index causal = count_blocks<T>(inputs, {.causal = true});
  EXPECT_EQ(full, 1920 / kernels::kRows * (1920 / kernels::kBlockKeys));
  // Half of them, plus one for each task, whose last block is crossed by the diagonal.
  EXPECT_LE(causal, full / 2 + 1920 / kernels::kRows);
}

TYPED_TEST(PackedAttention, FullyMaskedTilesAreNotComputed) {
  using T = TypeParam;
  const Index S = 4096, blocks = S / kernels::kBlockKeys;
  const auto inputs = AttentionInputs<T>::normal(6, 1, 1, 1, 60, S, 2, 1);
  EXPECT_EQ(count_blocks<T>(inputs, {}), blocks);
  EXPECT_EQ(count_blocks<T>(inputs, {.query_offset = Index{0}, .window = {{}, 0}}), 1);
  EXPECT_EQ(count_blocks<T>(inputs, {.query_offset = Index{2000}, .window = {100, 0}}), 4);
  const std::vector<Index> lengths{130};
  EXPECT_EQ(count_blocks<T>(inputs, {.key_lengths = lengths}), 3);
  Array<bool, 4> block_mask({1, 1, 1, 32});
  block_mask.for_each_index([&](const auto& at) { block_mask.set(at, at[3] == 3 || at[3] == 20); });
  EXPECT_EQ(count_blocks<T>(inputs, {.block_mask = std::as_const(block_mask).view(), .block_size = {60, 128}}), 4);
  Array<bool, 4> mask({1, 1, 60, S});
  mask.for_each_index([&](const auto& at) { mask.set(at, at[2] == 59 && at[3] == S - 1); });
  EXPECT_EQ(count_blocks<T>(inputs, {.mask = std::as_const(mask).view()}), 1);
  Array<std::int32_t, 2> rows({1, 60}), keys({1, S});
  rows.fill([] { return 0; });
  keys.for_each_index([&](const auto& at) { keys.set(at, static_cast<std::int32_t>(at[1] / 1000)); });
  EXPECT_EQ(count_blocks<T>(inputs,
                            {.query_segments = std::as_const(rows).view(), .key_segments = std::as_const(keys).view()}),
            1000 / kernels::kBlockKeys + 1);
  rows.fill([] { return -1; });
  EXPECT_EQ(count_blocks<T>(inputs,
                            {.query_segments = std::as_const(rows).view(), .key_segments = std::as_const(keys).view()}),
            0);
}

}  // namespace
}  // namespace regard::attention_packed_test
