// SPDX-License-Identifier: Apache-2.0
//
// attention_with_statistics: the best keys, the largest and the chosen weights compared with all weights, bit by bit;
// entropy and mean distance compared with the reference, within the bound of attention_statistics.h. Every option,
// layout and instruction set; ties; rows of NaN and ∞; threads; heads; memory; rejections.
// Read next: attention_columns_test.cpp.
#include <numeric>

#include "regard/attention_statistics.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/counting_memory.h"
#include "support/instruction_sets.h"
#include "support/reference.h"
#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::attention_statistics_test {
namespace {

template <class T>
class Statistics : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Statistics, Types);

// Chosen keys of each row: (B or 1, L or 1, 2), if there are any.
struct Ranges {
  std::optional<Array<Index, 3>> ends{};
  ChosenOrigin origin = ChosenOrigin::key_zero;

  TensorView<const Index, 3> view() const { return ends ? ends->view() : TensorView<const Index, 3>(); }
};

const Ranges kNoRanges;

// The results of a call besides the outputs of attention_forward with its weights and scores.
template <class T>
struct Found {
  AttentionArrays<T> whole, outputs;
  Array<T, 4> scores;
  std::vector<Index> chosen;
  const Ranges* ranges;
  Array<Index, 4> top_keys;
  Array<T, 4> top_weights;
  Array<T, 3> entropy, largest_weight, chosen_weight, mean_distance;
  Array<T, 2> head_entropy, head_largest_weight, head_chosen_weight, head_mean_distance;
};

template <class T>
Found<T> inspect(const AttentionCase<T>& call, Index top, std::vector<Index> chosen = {}, const Runtime& runtime = {},
                 const Ranges& ranges = kNoRanges) {
  Found<T> found;
  found.whole = run_attention<T>(call.query, call.key, call.value, call.options);
  found.outputs = AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv(), false);
  found.scores = Array<T, 4>({call.B(), call.H(), call.L(), call.S()});
  attention_weights(call.query.view(), call.key.view(), {.kind = WeightsKind::scores}, found.scores.view(),
                    call.options);
  found.chosen = std::move(chosen);
  found.ranges = &ranges;
  found.top_keys = Array<Index, 4>({call.B(), call.H(), call.L(), top});
  found.top_weights = Array<T, 4>({call.B(), call.H(), call.L(), top});
  for (auto* rows : {&found.entropy, &found.largest_weight, &found.chosen_weight, &found.mean_distance}) {
    *rows = Array<T, 3>({call.B(), call.H(), call.L()});
  }
  for (auto* heads :
       {&found.head_entropy, &found.head_largest_weight, &found.head_chosen_weight, &found.head_mean_distance}) {
    *heads = Array<T, 2>({call.B(), call.H()});
  }
  attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), found.outputs.views(),
                            {.chosen_keys = found.chosen,
                             .chosen_ranges = ranges.view(),
                             .chosen_origin = ranges.origin,
                             .top_keys = found.top_keys.view(),
                             .top_weights = found.top_weights.view(),
                             .entropy = found.entropy.view(),
                             .largest_weight = found.largest_weight.view(),
                             .chosen_weight = found.chosen_weight.view(),
                             .mean_distance = found.mean_distance.view(),
                             .head_entropy = found.head_entropy.view(),
                             .head_largest_weight = found.head_largest_weight.view(),
                             .head_chosen_weight = found.head_chosen_weight.view(),
                             .head_mean_distance = found.head_mean_distance.view()},
                            call.options, runtime);
  return found;
}

// ---- the weights of single keys

template <class T>
void expect_best(const Found<T>& found, const std::array<Index, 3>& at) {
  const auto [b, h, i] = at;
  const Index S = found.scores.shape()[3], top = found.top_keys.shape()[3];
  const T row_sum = found.whole.row_sum->get(at);
  std::vector<Index> keys;
  for (Index j = 0; j < S && row_sum == row_sum; ++j) {
    if (found.scores.get({b, h, i, j}) > -std::numeric_limits<T>::infinity()) keys.push_back(j);
  }
  const auto weight = [&](Index j) { return found.whole.weights->get({b, h, i, j}); };
  std::ranges::sort(keys, [&](Index j, Index k) { return weight(j) != weight(k) ? weight(j) > weight(k) : j < k; });
  for (Index n = 0; n < top; ++n) {
    const bool there = n < static_cast<Index>(keys.size());
    ASSERT_EQ(found.top_keys.get({b, h, i, n}), there ? keys[static_cast<std::size_t>(n)] : -1) << "place " << n;
    const T want = there ? weight(keys[static_cast<std::size_t>(n)]) : row_sum == row_sum ? T{0} : row_sum;
    ASSERT_TRUE(identical(found.top_weights.get({b, h, i, n}), want)) << "place " << n;
  }
  const T largest = !keys.empty() ? weight(keys[0]) : row_sum == row_sum ? T{0} : row_sum;
  ASSERT_TRUE(identical(found.largest_weight.get(at), largest));
}

// Of a row, in ascending order, counted from the first key of its sequence.
template <class T>
std::vector<Index> chosen_keys_of(const Found<T>& found, const std::array<Index, 3>& at, const reference::Span& span) {
  std::vector<Index> keys;
  if (const auto& ends = found.ranges->ends) {
    const Index b = ends->shape()[0] == 1 ? 0 : at[0], row = ends->shape()[1] == 1 ? 0 : at[2];
    const Index from = found.ranges->origin == ChosenOrigin::position ? at[2] - span.first_query + span.offset : 0;
    const auto begin = static_cast<long double>(ends->get({b, row, 0})),
               end = static_cast<long double>(ends->get({b, row, 1}));
    for (Index key = 0; key < span.num_keys; ++key) {
      const auto counted = static_cast<long double>(key - from);
      if (begin <= counted && counted < end) keys.push_back(key);
    }
  }
  for (const Index key : found.chosen) {
    if (key < span.num_keys) keys.push_back(key);
  }
  std::ranges::sort(keys);
  return keys;
}

template <class T>
void expect_chosen(const Found<T>& found, const reference::Attention<T>& reference, const std::array<Index, 3>& at,
                   const reference::Span& span) {
  using W = reference::Wide<T>;
  const auto [b, h, i] = at;
  const Index row = reference.row(b, h, i);
  const T row_sum = found.whole.row_sum->get(at), got = found.chosen_weight.get(at);
  const std::vector<Index> keys = chosen_keys_of(found, at, span);
  double sum = 0;
  W exact = 0;
  for (const Index key : keys) {
    sum += static_cast<double>(found.whole.weights->get({b, h, i, span.first_key + key}));
    exact += reference.weights[static_cast<std::size_t>(row * reference.S + span.first_key + key)];
  }
  const bool nan = row_sum != row_sum && (!found.chosen.empty() || found.ranges->ends);
  ASSERT_TRUE(identical(got, nan ? row_sum : static_cast<T>(sum)));
  if (std::isnan(exact) || row_sum != row_sum) return;
  ASSERT_LE(std::abs(got - exact), reference.relative_bound(row) * exact +
                                       reference::Attention<T>::kSmallest * static_cast<W>(1 + keys.size()))
      << got << ", " << exact;
}

// ---- sums over the row

template <class T>
void expect_sums(const Found<T>& found, const reference::Attention<T>& reference, const std::array<Index, 3>& at,
                 const reference::Span& span) {
  using W = reference::Wide<T>;
  const Index row = reference.row(at[0], at[1], at[2]);
  W entropy = 0, distance = 0, all = 0;
  const Index position = at[2] - span.first_query + span.offset;
  for (Index j = 0; j < reference.S; ++j) {
    const W p = reference.weights[static_cast<std::size_t>(row * reference.S + j)];
    const W away = static_cast<W>(std::abs(position - (j - span.first_key)));
    if (p > 0) entropy -= p * std::log(p);
    if (p != 0) distance += p * away;
    if (p > 0) all += away;
  }
  const T got_entropy = found.entropy.get(at), got_distance = found.mean_distance.get(at);
  const W sum = reference.row_sum[static_cast<std::size_t>(row)];
  if (std::isnan(sum)) {
    ASSERT_TRUE(std::isnan(got_entropy) && std::isnan(got_distance));
    return;
  }
  const W smallest = reference::Attention<T>::kSmallest;
  const W slack = sum > 0 ? 1 + entropy + std::log(std::max<W>(sum, 1)) : 0;
  ASSERT_LE(std::abs(got_entropy - entropy),
            reference.relative_bound(row) * slack + 200 * smallest * static_cast<W>(reference.S + 1))
      << got_entropy << ", " << entropy;
  ASSERT_LE(std::abs(got_distance - distance), reference.relative_bound(row) * distance + smallest * (1 + all))
      << got_distance << ", " << distance;
}

// True if the row attends to any key: a score above −∞, or NaN. With a sink, row_sum does not show it.
template <class T>
bool sees_key(const Found<T>& found, const std::array<Index, 3>& at) {
  for (Index j = 0; j < found.scores.shape()[3]; ++j) {
    if (found.scores.get({at[0], at[1], at[2], j}) != -std::numeric_limits<T>::infinity()) return true;
  }
  return false;
}

template <class T>
void expect_heads(const Found<T>& found) {
  found.head_entropy.for_each_index([&](const std::array<Index, 2>& at) {
    const auto expect = [&](const Array<T, 3>& rows, const Array<T, 2>& heads) {
      double sum = 0, count = 0;
      for (Index i = 0; i < rows.shape()[2]; ++i) {
        if (!sees_key(found, {at[0], at[1], i})) continue;
        sum += static_cast<double>(rows.get({at[0], at[1], i}));
        ++count;
      }
      ASSERT_TRUE(identical(heads.get(at), static_cast<T>(count > 0 ? sum / count : 0.0)));
    };
    expect(found.entropy, found.head_entropy);
    expect(found.largest_weight, found.head_largest_weight);
    expect(found.chosen_weight, found.head_chosen_weight);
    expect(found.mean_distance, found.head_mean_distance);
  });
}

template <class T>
void expect_same_outputs(const Found<T>& found) {
  EXPECT_TRUE(same_bits(bits_of(found.outputs.context), bits_of(found.whole.context)));
  EXPECT_TRUE(same_bits(bits_of(*found.outputs.row_max), bits_of(*found.whole.row_max)));
  EXPECT_TRUE(same_bits(bits_of(*found.outputs.row_sum), bits_of(*found.whole.row_sum)));
  EXPECT_TRUE(same_bits(bits_of(*found.outputs.lse), bits_of(*found.whole.lse)));
  EXPECT_TRUE(same_bits(bits_of(*found.outputs.sink_weights), bits_of(*found.whole.sink_weights)));
}

template <class T>
void expect_everything(const AttentionCase<T>& call, const Found<T>& found) {
  const reference::Attention<T> reference = reference::attention<T>(
      std::as_const(call.query).view(), std::as_const(call.key).view(), std::as_const(call.value).view(), call.options);
  expect_same_outputs(found);
  expect_heads(found);
  for (const reference::Span& span : reference::spans(call.B(), call.L(), call.S(), call.options)) {
    for (Index h = 0; h < call.H(); ++h) {
      for (Index i = span.first_query; i < span.first_query + span.num_queries; ++i) {
        const std::array<Index, 3> at{span.batch, h, i};
        SCOPED_TRACE(testing::Message() << "b " << span.batch << " h " << h << " i " << i);
        expect_best(found, at);
        expect_chosen(found, reference, at, span);
        expect_sums(found, reference, at, span);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TYPED_TEST(Statistics, MatchTheWeights) {
  using T = TypeParam;
  on_every_instruction_set([](const kernels::KernelTable&) {
    for (std::uint64_t seed = 0; seed < num_random_calls(test_size<std::uint64_t>(300, 20)); ++seed) {
      const AttentionCase<T> call = random_attention_case<T>(seed);
      SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << call.text);
      Random random(seed);
      Index longest = 0;
      for (const reference::Span& span : reference::spans(call.B(), call.L(), call.S(), call.options)) {
        longest = std::max(longest, span.num_keys);
      }
      std::vector<Index> chosen;
      for (Index j = 0; j < longest; ++j) {
        if (random.chance(j < 4 ? 0.5 : 0.02)) chosen.push_back(j);
      }
      if (random.chance(0.3)) chosen.push_back(longest + random.integer(0, 100));
      for (std::size_t n = chosen.size(); n > 1; --n)
        std::swap(chosen[n - 1], chosen[static_cast<std::size_t>(random.integer(0, static_cast<Index>(n) - 1))]);
      const Found<T> found = inspect(call, random.one_of({1, 2, 8, 15, 16, 40, 63}), chosen);
      expect_everything(call, found);
      if (testing::Test::HasFailure()) FAIL();
    }
  });
}

// Every row chooses its own keys.
TYPED_TEST(Statistics, ChosenRangesMatchTheWeights) {
  using T = TypeParam;
  on_every_instruction_set([](const kernels::KernelTable&) {
    for (std::uint64_t seed = 0; seed < num_random_calls(test_size<std::uint64_t>(100, 20)); ++seed) {
      const AttentionCase<T> call = random_attention_case<T>(seed);
      SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << call.text);
      Random random(seed);
      Ranges ranges{Array<Index, 3>({random.one_of({Index{1}, call.B()}), random.one_of({Index{1}, call.L()}), 2},
                                    random_layout<3>(random, true)),
                    random.chance(0.5) ? ChosenOrigin::position : ChosenOrigin::key_zero};
      const bool single = random.chance(0.3);
      ranges.ends->for_each_index([&](const auto& at) {
        const auto [b, row, end] = at;
        Index number = random.integer(-3, call.S() + 3);
        if (random.chance(0.05)) number = std::numeric_limits<Index>::max();
        if (random.chance(0.05)) number = std::numeric_limits<Index>::min();
        if (single && end == 1) number = ranges.ends->get({b, row, 0});
        if (single && end == 1 && number < std::numeric_limits<Index>::max()) ++number;
        ranges.ends->set(at, number);
      });
      expect_everything(call, inspect(call, 2, {}, {.num_threads = static_cast<int>(seed % 3)}, ranges));
      if (testing::Test::HasFailure()) FAIL();
    }
  });
}

// One offset for all rows, over packed sequences and one position each, equals the same keys chosen one by one.
TYPED_TEST(Statistics, OffsetFromThePositionSelectsOneKeyPerRow) {
  using T = TypeParam;
  AttentionCase<T> call = long_causal_case<T>(200, 700);
  for (const Index offset : {-1, 0, 1, -130, 5000}) {
    Ranges by_offset{Array<Index, 3>({1, 1, 2}), ChosenOrigin::position}, by_row{Array<Index, 3>({1, 200, 2})};
    by_offset.ends->set({0, 0, 0}, offset);
    by_offset.ends->set({0, 0, 1}, offset + 1);
    for (Index i = 0; i < 200; ++i) {
      const Index key = i + 500 + offset;  // bottom right
      by_row.ends->set({0, i, 0}, key < 700 ? key : -1);
      by_row.ends->set({0, i, 1}, key < 700 ? key + 1 : 0);
    }
    const Found<T> first = inspect(call, 1, {}, {}, by_offset), second = inspect(call, 1, {}, {}, by_row);
    EXPECT_EQ(bits_of(first.chosen_weight), bits_of(second.chosen_weight));
    EXPECT_EQ(bits_of(first.head_chosen_weight), bits_of(second.head_chosen_weight));
    first.chosen_weight.for_each_index([&](const std::array<Index, 3>& at) {
      const auto [b, h, i] = at;
      const Index key = i + 500 + offset;
      EXPECT_EQ(first.chosen_weight.get(at), key < 700 ? first.whole.weights->get({b, h, i, key}) : 0);
    });
  }
}

// ---- ties

// Rows of one head, all with these scores.
template <class T>
AttentionCase<T> scores_case(const std::vector<double>& scores, Index queries) {
  AttentionCase<T> call;
  const Index S = static_cast<Index>(scores.size());
  call.query = Array<T, 4>({1, 1, queries, 1});
  call.query.fill([] { return 1.0; });
  call.key = Array<T, 4>({1, 1, S, 1});
  auto next = scores.begin();
  call.key.fill([&] { return *next++; });
  call.value = Array<T, 4>({1, 1, S, 1});
  call.value.fill([] { return 1.0; });
  call.options.scale = 1;
  call.options.query_offset = QueryAlignment::top_left;
  return call;
}

TYPED_TEST(Statistics, TiesGoToTheLowerKey) {
  using T = TypeParam;
  const double lowest =
      sizeof(T) == 4 ? -100 : -740;  // its exponential is subnormal: few distinct weights for many scores
  std::vector<double> equal(200, 0.5), pairs, rising, falling, nothing, subnormal;
  for (int j = 0; j < 3000; ++j) {
    pairs.push_back(j / 2 % 7);
    rising.push_back(j * 0.001);
    falling.push_back(-j * 0.001);
    nothing.push_back(j == 1234 ? 2000 : j % 91);
    subnormal.push_back(j == 0 ? 0 : lowest - 0.5 + j * 0.0003);
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    int number = 0;
    for (const auto& scores : {equal, pairs, rising, falling, nothing, subnormal}) {
      for (const Index top : {Index{1}, Index{8}, Index{15}, Index{16}, Index{63}}) {
        SCOPED_TRACE(testing::Message() << "scores " << number << ", top " << top);
        const AttentionCase<T> call = scores_case<T>(scores, 3);
        const Found<T> found = inspect(call, top, {0, 5, 63, 64, 199});
        expect_everything(call, found);
        if (testing::Test::HasFailure()) return;
      }
      ++number;
    }
  });
}

TYPED_TEST(Statistics, InfiniteScoresAndNaNRows) {
  using T = TypeParam;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> one(150, 1.0), two(150, 1.0), nan(150, 1.0), lost(150, -infinity);
  one[70] = two[3] = two[149] = infinity;
  nan[20] = std::numeric_limits<double>::quiet_NaN();
  lost[17] = -3;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const auto& scores : {one, two, nan, lost}) {
      const AttentionCase<T> call = scores_case<T>(scores, 2);
      expect_everything(call, inspect(call, 8, {0, 20, 70}));
    }
  });
}

// ---- fully masked rows

// Of four rows under a causal mask, the first two come before the first key; with a sink their row_sum is 1.
TYPED_TEST(Statistics, HeadMeansExcludeFullyMaskedRows) {
  using T = TypeParam;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<T> sinks{0};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    // Two keys; one with a score of −∞, which counts as none; two whose weights are 0 next to the sink.
    for (const auto& scores : {std::vector<double>{1, 0}, {-infinity, 1}, {-2000, -2000}}) {
      AttentionCase<T> call = scores_case<T>(scores, 4);
      call.options.causal = true;
      call.options.query_offset = QueryAlignment::bottom_right;
      call.options.sinks = sinks;
      const Found<T> found = inspect(call, 2, {0, 1});
      expect_everything(call, found);
      double sum = 0;
      for (Index i = 2; i < 4; ++i) sum += static_cast<double>(found.largest_weight.get({0, 0, i}));
      const double rows = scores[0] == -infinity ? 1 : 2;
      EXPECT_EQ(found.head_largest_weight.get({0, 0}), static_cast<T>(sum / rows));
      EXPECT_EQ(found.head_largest_weight.get({0, 0}) == 0, scores[0] == -2000);
    }
  });
}

// ---- threads, long rows, memory

TYPED_TEST(Statistics, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  const AttentionCase<T> call = long_causal_case<T>(test_size<Index>(300, 60), test_size<Index>(3000, 1500));
  const Found<T> one = inspect(call, 8, {0, 1}, {.num_threads = 1});
  Ranges previous{Array<Index, 3>({1, 1, 2}), ChosenOrigin::position};
  previous.ends->set({0, 0, 0}, -100);
  const Found<T> single = inspect(call, 1, {}, {.num_threads = 1}, previous);
  expect_everything(call, one);
  for (int threads = 2; threads < 6; ++threads) {
    const Found<T> many = inspect(call, 8, {0, 1}, {.num_threads = threads});
    EXPECT_EQ(one.top_keys.values(), many.top_keys.values());
    EXPECT_TRUE(same_bits(bits_of(inspect(call, 1, {}, {.num_threads = threads}, previous).chosen_weight),
                          bits_of(single.chosen_weight)));
    EXPECT_TRUE(same_bits(bits_of(many.top_weights), bits_of(one.top_weights)));
    EXPECT_TRUE(same_bits(bits_of(many.entropy), bits_of(one.entropy)));
    EXPECT_TRUE(same_bits(bits_of(many.mean_distance), bits_of(one.mean_distance)));
    EXPECT_TRUE(same_bits(bits_of(many.chosen_weight), bits_of(one.chosen_weight)));
    EXPECT_TRUE(same_bits(bits_of(many.head_entropy), bits_of(one.head_entropy)));
  }
}

TYPED_TEST(Statistics, SingleOutputsHaveTheSameBits) {
  using T = TypeParam;
  const AttentionCase<T> call = long_causal_case<T>(70, 1500);
  const Found<T> all = inspect(call, 8);
  Array<T, 4> context({1, 4, 70, 8});
  Array<T, 3> rows({1, 4, 70});
  Array<T, 2> heads({1, 4});
  const auto only = [&](const AttentionStatistics& statistics) {
    attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), {.context = context.view()},
                              statistics, call.options);
  };
  only({.entropy = rows.view()});
  EXPECT_TRUE(same_bits(bits_of(rows), bits_of(all.entropy)));
  EXPECT_TRUE(same_bits(bits_of(context), bits_of(all.whole.context)));
  only({.largest_weight = rows.view()});
  EXPECT_TRUE(same_bits(bits_of(rows), bits_of(all.largest_weight)));
  only({.mean_distance = rows.view()});
  EXPECT_TRUE(same_bits(bits_of(rows), bits_of(all.mean_distance)));
  only({.head_mean_distance = heads.view()});
  EXPECT_TRUE(same_bits(bits_of(heads), bits_of(all.head_mean_distance)));
}

TEST(StatisticsTypes, NarrowInputsMatchConvertedInputs) {
  Random random(5);
  Array<float, 4> wide({1, 2, 100, 8});
  Array<float16, 4> narrow({1, 2, 100, 8}), rounded({1, 2, 100, 8});
  wide.for_each_index([&](const std::array<Index, 4>& at) {
    narrow.set(at, static_cast<float16>(static_cast<float>(random.normal())));
    wide.set(at, static_cast<float>(narrow.get(at)));
  });
  Array<float, 4> context({1, 2, 100, 8});
  Array<float, 3> of_wide({1, 2, 100}), of_narrow({1, 2, 100});
  attention_with_statistics(wide.view(), wide.view(), wide.view(), {.context = context.view()},
                            {.entropy = of_wide.view()});
  attention_with_statistics(narrow.view(), narrow.view(), narrow.view(), {.context = rounded.view()},
                            {.entropy = of_narrow.view()});
  EXPECT_TRUE(same_bits(bits_of(of_narrow), bits_of(of_wide)));
}

TYPED_TEST(Statistics, MemoryGrowsWithRowsAndKeys) {
  using T = TypeParam;
  CountingMemory plain, counting;
  const AttentionCase<T> call = long_causal_case<T>(2000, 4096);
  Array<T, 4> context({1, 4, 2000, 8});
  Array<T, 2> heads({1, 4});
  attention_forward(call.query.view(), call.key.view(), call.value.view(), {.context = context.view()}, call.options,
                    {.num_threads = 2, .workspace = &plain});
  attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), {.context = context.view()},
                            {.head_entropy = heads.view()}, call.options, {.num_threads = 2, .workspace = &counting});
  const std::size_t rows = (sizeof(T) + 1) * 4 * 2000;  // entropy, and whether each row attends to any key
  EXPECT_LE(counting.largest, plain.largest + rows + 2 * sizeof(T) * 60 * 64 * 5);
}

// ---- nothing to write

TEST(Statistics, EmptyInputsSucceed) {
  for (const std::array<Index, 3>& extents :
       {std::array<Index, 3>{0, 2, 3}, std::array<Index, 3>{1, 0, 3}, std::array<Index, 3>{1, 2, 0}}) {
    const auto [B, H, L] = extents;
    const auto inputs = AttentionInputs<float>::normal(1, B, H, H, L, 9, 4, 4);
    Array<float, 4> context({B, H, L, 4});
    Array<Index, 4> top_keys({B, H, L, 2});
    Array<float, 3> rows({B, H, L});
    Array<float, 2> heads({B, H});
    const auto call = [&](const std::vector<Index>& chosen) {
      attention_with_statistics(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                                {.context = context.view()},
                                {.chosen_keys = chosen,
                                 .top_keys = top_keys.view(),
                                 .chosen_weight = rows.view(),
                                 .head_entropy = heads.view()},
                                {.query_offset = QueryAlignment::top_left});
    };
    EXPECT_NO_THROW(call({9, 0, 8})) << "B " << B << " H " << H << " L " << L;
    EXPECT_EQ(rejection<std::invalid_argument>([&] { call({0, -9}); }),
              "attention_with_statistics: chosen_keys contains -9; expected 0 or more");
  }
}

// ---- rejections

TEST(Statistics, Rejections) {
  const AttentionCase<float> call = long_causal_case<float>(5, 9);
  Array<float, 4> context({1, 4, 5, 8}), weights({1, 4, 5, 2});
  Array<float, 3> wrong({1, 4, 6});
  Array<Index, 4> keys({1, 4, 5, 2}), many({1, 4, 5, 64});
  const auto message = [&](const AttentionStatistics& statistics) {
    return rejection<std::invalid_argument>([&] {
      attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), {.context = context.view()},
                                statistics, call.options);
    });
  };
  EXPECT_EQ(message({.top_keys = many.view()}),
            "attention_with_statistics: top_keys has shape (1, 4, 5, 64); expected 1 to 63 keys per row");
  EXPECT_EQ(message({.top_weights = weights.view()}),
            "attention_with_statistics: top_weights is given without top_keys; expected both, or only top_keys");
  EXPECT_EQ(message({.entropy = wrong.view()}),
            "attention_with_statistics: entropy has shape (1, 4, 6); expected (1, 4, 5)");
  EXPECT_EQ(message({.largest_weight = {context.view().data, {1, 4, 5}}}),
            "attention_with_statistics: largest_weight overlaps context; expected separate memory");
  const std::vector<Index> twice{3, 1, 3}, negative{3, -1}, one{3};
  EXPECT_EQ(message({.chosen_keys = twice}),
            "attention_with_statistics: chosen_keys contains 3 more than once; expected distinct keys");
  EXPECT_EQ(message({.chosen_keys = negative}),
            "attention_with_statistics: chosen_keys contains -1; expected 0 or more");
  const Array<Index, 3> all({1, 1, 2}), six({1, 6, 2}), three({1, 5, 3});
  EXPECT_EQ(message({.chosen_keys = one, .chosen_ranges = all.view()}),
            "attention_with_statistics: chosen_keys and chosen_ranges are given; expected only one of them");
  EXPECT_EQ(message({.chosen_ranges = six.view()}),
            "attention_with_statistics: chosen_ranges has shape (1, 6, 2); expected (1 or 1, 5 or 1, 2)");
  EXPECT_EQ(message({.chosen_ranges = three.view()}),
            "attention_with_statistics: chosen_ranges has shape (1, 5, 3); expected (1 or 1, 5 or 1, 2)");
  EXPECT_EQ(message({.chosen_ranges = TensorView<const Index, 3>(nullptr, {1, 5, 2})}).substr(0, 41),
            "attention_with_statistics: chosen_ranges ");
  EXPECT_EQ(message({.chosen_ranges = {reinterpret_cast<const Index*>(keys.view().data), {1, 1, 2}},
                     .top_keys = keys.view()}),
            "attention_with_statistics: top_keys overlaps chosen_ranges; expected separate memory");
}

// Keys that do not exist have no weight.
TEST(Statistics, ChosenKeysBeyondTheLastHaveNoWeight) {
  const AttentionCase<float> call = long_causal_case<float>(5, 9);
  const Found<float> some = inspect(call, 1, {8, 2}), more = inspect(call, 1, {9, 2, 8, 1000, Index{1} << 62});
  EXPECT_EQ(bits_of(some.chosen_weight), bits_of(more.chosen_weight));
  const Found<float> none = inspect(call, 1, {9});
  none.chosen_weight.for_each_index([&](const auto& at) { EXPECT_EQ(none.chosen_weight.get(at), 0); });
  const auto empty = AttentionInputs<float>::normal(1, 1, 4, 2, 5, 0, 8, 8);
  Array<float, 4> context({1, 4, 5, 8});
  Array<float, 3> rows({1, 4, 5});
  rows.fill([] { return 7; });
  const std::vector<Index> three{3};
  attention_with_statistics(empty.query.view(), empty.key.view(), empty.value.view(), {.context = context.view()},
                            {.chosen_keys = three, .chosen_weight = rows.view()},
                            {.query_offset = QueryAlignment::top_left});
  rows.for_each_index([&](const auto& at) { EXPECT_EQ(rows.get(at), 0); });
}

}  // namespace
}  // namespace regard::attention_statistics_test
