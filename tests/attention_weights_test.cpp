// SPDX-License-Identifier: Apache-2.0
//
// attention_weights: the weights or scores of chosen rows match those of all rows bit by bit, for any choice of rows,
// in any order, repeated, one or a thousand; attention_with_weights returns what attention_forward writes.
// docs/reference/semantics.md section 1: "give equal bits for one row, a tile or the whole".
// Read next: attention_merge_test.cpp.
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::attention_weights_test {
namespace {

template <class T>
class Weights : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Weights, Types);

// Weights or scores of these ranges, with row_max and row_sum from a forward call.
template <class T>
Array<T, 4> weights_of(const AttentionInputs<T>& inputs, const AttentionArrays<T>& statistics,
                       const std::vector<RowRange>& ranges, WeightsKind kind, const AttentionOptions& options,
                       const Runtime& runtime = {}) {
  Index num_rows = ranges.empty() ? inputs.query.shape()[2] : 0;
  for (const RowRange& range : ranges) num_rows += range.end - range.begin;
  Array<T, 4> output({inputs.query.shape()[0], inputs.query.shape()[1], num_rows, inputs.key.shape()[2]});
  attention_weights(
      inputs.query.view(), inputs.key.view(),
      {.row_max = statistics.row_max->view(), .row_sum = statistics.row_sum->view(), .rows = ranges, .kind = kind},
      output.view(), options, runtime);
  return output;
}

// Row r of part equals row rows[r] of whole, bit by bit.
template <class T>
void expect_rows(const Array<T, 4>& part, const Array<T, 4>& whole, const std::vector<Index>& rows) {
  ASSERT_EQ(part.shape()[2], static_cast<Index>(rows.size()));
  Index moved = 0;
  part.for_each_index([&](const std::array<Index, 4>& at) {
    moved += !identical(part.get(at), whole.get({at[0], at[1], rows[static_cast<std::size_t>(at[2])], at[3]}));
  });
  EXPECT_EQ(moved, 0);
}

std::vector<Index> rows_of(const std::vector<RowRange>& ranges) {
  std::vector<Index> rows;
  for (const RowRange& range : ranges) {
    for (Index i = range.begin; i < range.end; ++i) rows.push_back(i);
  }
  return rows;
}

const std::vector<std::vector<RowRange>> kChoices{{{0, 1}},                                 // one row
                                                  {{149, 150}},                             // the last
                                                  {{0, 150}},                               // all
                                                  {{59, 61}, {119, 121}},                   // across the edges of tiles
                                                  {{100, 150}, {0, 50}, {20, 30}, {7, 8}},  // out of order, overlapping
                                                  {{5, 6}, {5, 6}, {5, 6}},                 // repeated
                                                  {{3, 3}, {10, 75}, {80, 80}},             // empty ranges among them
                                                  {{40, 40}}};                              // empty

TYPED_TEST(Weights, ChosenRowsMatchAllWeights) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(1, 1, 4, 2, 150, 1100, 9, 3);
  Array<bool, 4> mask({1, 1, 150, 1100});
  Random random(2);
  mask.fill([&] { return random.chance(0.8); });
  const std::vector<T> sinks{0, 1, -1, 2}, slopes{1, static_cast<T>(0.1), static_cast<T>(0.5), 0};
  const AttentionOptions plain, every{.causal = true,
                                      .query_offset = Index{900},
                                      .window = {700, {}},
                                      .mask = std::as_const(mask).view(),
                                      .alibi_slopes = slopes,
                                      .sinks = sinks,
                                      .soft_cap = 4.0};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const AttentionOptions& options : {plain, every}) {
      const AttentionArrays<T> whole = run_attention(inputs, options);
      const Array<T, 4> scores = weights_of(inputs, whole, {}, WeightsKind::scores, options);
      for (const std::vector<RowRange>& ranges : kChoices) {
        expect_rows(weights_of(inputs, whole, ranges, WeightsKind::weights, options), *whole.weights, rows_of(ranges));
        expect_rows(weights_of(inputs, whole, ranges, WeightsKind::scores, options), scores, rows_of(ranges));
      }
      expect_rows(weights_of(inputs, whole, {}, WeightsKind::weights, options), *whole.weights, rows_of({{0, 150}}));
      for (const int threads : {1, 2, 5}) {
        expect_rows(weights_of(inputs, whole, {}, WeightsKind::weights, options, Runtime{.num_threads = threads}),
                    *whole.weights, rows_of({{0, 150}}));
      }
    }
  });
}

TYPED_TEST(Weights, RangesSpanPackedSequences) {
  using T = TypeParam;
  const std::vector<Index> query_starts{0, 40, 40, 110, 150}, key_starts{0, 130, 135, 135, 1300};
  const auto inputs = AttentionInputs<T>::normal(3, 1, 2, 1, 150, 1300, 5, 3);
  const AttentionOptions options{.causal = true,
                                 .query_offset = QueryAlignment::bottom_right,
                                 .query_starts = query_starts,
                                 .key_starts = key_starts};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> whole = run_attention(inputs, options);
    for (const std::vector<RowRange>& ranges : kChoices) {
      expect_rows(weights_of(inputs, whole, ranges, WeightsKind::weights, options), *whole.weights, rows_of(ranges));
    }
  });
  checked_attention(inputs, options);
}

// Tiles of rows by keys; one column is a tile of all rows by one key.
TYPED_TEST(Weights, ChosenKeysMatchAllWeights) {
  using T = TypeParam;
  const std::vector<Index> query_starts{0, 40, 40, 110, 150}, key_starts{0, 130, 135, 135, 1300};
  const auto inputs = AttentionInputs<T>::normal(6, 1, 2, 1, 150, 1300, 5, 3);
  const AttentionOptions plain,
      packed{.causal = true,
             .query_offset = QueryAlignment::bottom_right,
             .query_starts = query_starts,
             .key_starts = key_starts},
      window{.query_offset = Index{500}, .window = {300, 10}};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const AttentionOptions& options : {plain, packed, window}) {
      const AttentionArrays<T> whole = run_attention(inputs, options);
      for (const RowRange& keys :
           {RowRange{0, 1}, {1299, 1300}, {63, 65}, {129, 136}, {700, 1025}, {9, 9}, {0, 1300}}) {
        for (const RowRange& rows : {RowRange{0, 150}, {37, 38}, {100, 131}}) {
          Array<T, 4> tile({1, 2, rows.end - rows.begin, keys.end - keys.begin});
          attention_weights(inputs.query.view(), inputs.key.view(),
                            {.row_max = std::as_const(whole).row_max->view(),
                             .row_sum = std::as_const(whole).row_sum->view(),
                             .rows = std::span(&rows, 1),
                             .keys = keys},
                            tile.view(), options);
          Index moved = 0;
          tile.for_each_index([&](const std::array<Index, 4>& at) {
            moved += !identical(tile.get(at), whole.weights->get({0, at[1], rows.begin + at[2], keys.begin + at[3]}));
          });
          EXPECT_EQ(moved, 0) << rows.begin << " " << keys.begin;
        }
      }
    }
  });
}

// Heads that fit into one wave take one parallel phase for packing and one for weights, however many and short they
// are.
TEST(WeightsPhases, ManyShortHeadsFormOneWave) {
  const auto inputs = AttentionInputs<float>::normal(8, 1, 64, 64, 64, 64, 16, 16);
  const AttentionArrays<float> whole = run_attention(inputs);
  int phases = 0;
  const Runtime runtime{.executor =
                            [&](Index n, const Task& task) {
                              ++phases;
                              for (Index i = 0; i < n; ++i) task(i);
                            },
                        .num_threads = 2};
  expect_rows(weights_of(inputs, whole, {}, WeightsKind::weights, {}, runtime), *whole.weights, rows_of({{0, 64}}));
  EXPECT_LE(phases, 2);
}

TEST(WeightsRejections, KeyRangesOutsideTheKeys) {
  const auto inputs = AttentionInputs<float>::normal(6, 3, 70, 5);
  Array<float, 4> output({1, 1, 3, 2});
  const auto message = [&](const RowRange& keys) {
    return rejection<std::invalid_argument>([&] {
      attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores, .keys = keys},
                        output.view());
    });
  };
  EXPECT_EQ(message({69, 71}), "attention_weights: keys is 69 to 71; expected a half-open range within 0 to 70");
  EXPECT_EQ(message({5, 4}), "attention_weights: keys is 5 to 4; expected a half-open range within 0 to 70");
  EXPECT_EQ(message({0, 3}), "attention_weights: output has shape (1, 1, 3, 2); expected (1, 1, 3, 3)");
  EXPECT_EQ(message({68, 70}), "accepted");
}

TYPED_TEST(Weights, ScoresAreMinusInfinityAtInvisibleKeys) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(4, 1, 2, 1, 70, 70, 5, 3);
  const AttentionOptions options{.causal = true, .window = {20, {}}};
  const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view(), options);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> whole = run_attention(inputs, options);
    const Array<T, 4> scores = weights_of(inputs, whole, {}, WeightsKind::scores, options);
    scores.for_each_index([&](const std::array<Index, 4>& at) {
      const Index r = expected.row(0, at[1], at[2]);
      const auto score = expected.scores[static_cast<std::size_t>(r * 70 + at[3])];
      EXPECT_TRUE(agrees<T>(scores.get(at), score, expected.score_bound(r)))
          << scores.get(at) << ", expected " << score;
      EXPECT_EQ(scores.get(at) == -std::numeric_limits<T>::infinity(), at[3] > at[2] || at[3] < at[2] - 20);
    });
  });
}

TYPED_TEST(Weights, ScoresDoNotNeedSoftmaxState) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(5, 3, 70, 5);
  Array<T, 4> without({1, 1, 3, 70});
  on_every_instruction_set([&](const kernels::KernelTable&) {
    attention_weights(inputs.query.view(), inputs.key.view(), {.kind = WeightsKind::scores}, without.view());
    EXPECT_EQ(bits_of(without), bits_of(weights_of<T>(inputs, run_attention(inputs), {}, WeightsKind::scores, {})));
  });
}

TYPED_TEST(Weights, SoftmaxStateMayHaveAnyLayoutAndIsNotRecomputed) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(6, 2, 2, 2, 9, 80, 5, 3);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> whole = run_attention(inputs);
    Layout<3> layout = Layout<3>::dense();
    layout.order = {2, 0, 1};
    layout.reversed = {true, false, false};
    layout.lead_bytes = 3;
    const Array<T, 3> row_max = relaid(*whole.row_max, layout), row_sum = relaid(*whole.row_sum, layout);
    Array<T, 4> got({2, 2, 9, 80});
    attention_weights(inputs.query.view(), inputs.key.view(), {.row_max = row_max.view(), .row_sum = row_sum.view()},
                      got.view());
    EXPECT_EQ(bits_of(got), bits_of(*whole.weights));
    // Twice the sum gives half the weight: the given state is used.
    Array<T, 3> doubled({2, 2, 9});
    doubled.for_each_index([&](const auto& at) { doubled.set(at, 2 * whole.row_sum->get(at)); });
    attention_weights(inputs.query.view(), inputs.key.view(),
                      {.row_max = row_max.view(), .row_sum = std::as_const(doubled).view()}, got.view());
    got.for_each_index([&](const auto& at) { EXPECT_EQ(got.get(at) * 2, whole.weights->get(at)); });
  });
}

TYPED_TEST(Weights, WeightsTimesValuesEqualsContext) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(7, 1, 2, 1, 30, 1500, 16, 8);
  const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view());
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> got = run_attention(inputs);
    got.context.for_each_index([&](const std::array<Index, 4>& at) {
      reference::Wide<T> sum = 0;
      for (Index j = 0; j < 1500; ++j) {
        sum += static_cast<reference::Wide<T>>(got.weights->get({0, at[1], at[2], j})) *
               static_cast<reference::Wide<T>>(inputs.value.get({0, 0, j, at[3]}));
      }
      // Both deviate by at most the bound.
      EXPECT_TRUE(
          agrees<T>(got.context.get(at), sum, 2 * expected.context_bound(expected.row(0, at[1], at[2]), at[3])));
    });
  });
}

TYPED_TEST(Weights, AttentionWithWeightsReturnsContextAndAllWeights) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(8, 2, 4, 2, 7, 90, 5, 3);
  const AttentionOptions options{.causal = true, .query_offset = QueryAlignment::bottom_right};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> expected = run_attention(inputs, options);
    const AttentionResult<T> got =
        attention_with_weights<T>(inputs.query.view(), inputs.key.view(), inputs.value.view(), options);
    EXPECT_EQ(got.context.shape(), (std::array<Index, 4>{2, 4, 7, 3}));
    EXPECT_EQ(got.weights.shape(), (std::array<Index, 4>{2, 4, 7, 90}));
    EXPECT_EQ(bits_of(std::vector<T>(got.context.data(), got.context.data() + got.context.size())),
              bits_of(expected.context));
    EXPECT_EQ(bits_of(std::vector<T>(got.weights.data(), got.weights.data() + got.weights.size())),
              bits_of(*expected.weights));
  });
}

TYPED_TEST(Weights, OverlappingOutputsAreRejected) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(9, 4, 6, 5);
  std::vector<T> memory(100, 1);
  const auto call = [&](Index row_sum_at, Index output_at) {
    const TensorView<const T, 3> row_max(memory.data(), {1, 1, 4}), row_sum(memory.data() + row_sum_at, {1, 1, 4});
    return rejection([&] {
      attention_weights(inputs.query.view(), inputs.key.view(), {.row_max = row_max, .row_sum = row_sum},
                        TensorView<T, 4>(memory.data() + output_at, {1, 1, 4, 6}));
    });
  };
  EXPECT_EQ(call(4, 8), "accepted");
  EXPECT_EQ(call(4, 3), "attention_weights: output overlaps row_max; expected separate memory");
  EXPECT_EQ(call(4, 7), "attention_weights: output overlaps row_sum; expected separate memory");
}

}  // namespace
}  // namespace regard::attention_weights_test
