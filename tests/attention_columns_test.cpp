// SPDX-License-Identifier: Apache-2.0
//
// attention_columns compared with all weights: the mass of each key is their sum, row by row in double, rounded once,
// bit by bit; the pooled map is their mean over each cell. Every option, layout, element type and instruction set.
// Read next: attention_weights_test.cpp.
#include "regard/attention_statistics.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/counting_memory.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"

namespace regard::attention_columns_test {
namespace {

template <class T>
class Columns : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Columns, Types);

// The results of a call, and its weights from attention_weights.
template <class T>
struct Inspected {
  Array<T, 4> weights;
  Array<T, 3> row_max, row_sum, key_mass;
  Array<T, 4> pooled_map;
};

template <class T>
Inspected<T> inspect(const AttentionCase<T>& call, std::array<Index, 2> strips, MapCells cells,
                     const Runtime& runtime = {}) {
  const std::array<Index, 3> rows{call.B(), call.H(), call.L()};
  Inspected<T> made{Array<T, 4>({call.B(), call.H(), call.L(), call.S()}), Array<T, 3>(rows), Array<T, 3>(rows),
                    Array<T, 3>({call.B(), call.H(), call.S()}),
                    Array<T, 4>({call.B(), call.H(), strips[0], strips[1]})};
  Array<T, 4> context({call.B(), call.H(), call.L(), call.Dv()});
  attention_forward(call.query.view(), call.key.view(), call.value.view(),
                    {.context = context.view(),
                     .row_max = made.row_max.view(),
                     .row_sum = made.row_sum.view(),
                     .weights = made.weights.view()},
                    call.options);
  AttentionColumns outputs{.key_mass = made.key_mass.view()};
  if (strips[0] > 0) outputs.pooled_map = made.pooled_map.view();
  attention_columns(call.query.view(), call.key.view(),
                    {.row_max = made.row_max.view(), .row_sum = made.row_sum.view(), .cells = cells}, outputs,
                    call.options, runtime);
  return made;
}

template <class T>
void expect_mass(const AttentionCase<T>& call, const Inspected<T>& made) {
  for (Index b = 0; b < call.B(); ++b) {
    for (Index h = 0; h < call.H(); ++h) {
      for (Index j = 0; j < call.S(); ++j) {
        double sum = 0;
        for (Index i = 0; i < call.L(); ++i) sum += static_cast<double>(made.weights.get({b, h, i, j}));
        ASSERT_TRUE(identical(made.key_mass.get({b, h, j}), static_cast<T>(sum)))
            << call.text << " b " << b << " h " << h << " j " << j << ": " << made.key_mass.get({b, h, j}) << ", "
            << sum;
      }
    }
  }
}

// Cells directly from their definition. Their order of addition is not guaranteed, and in double contributes at most n
// · 2⁻⁵³.
template <class T>
void expect_map(const AttentionCase<T>& call, const Inspected<T>& made, MapCells cells) {
  const Index ga = made.pooled_map.shape()[2], gb = made.pooled_map.shape()[3];
  for (Index b = 0; b < call.B(); ++b) {
    for (Index h = 0; h < call.H(); ++h) {
      for (Index a = 0; a < ga; ++a) {
        for (Index c = 0; c < gb; ++c) {
          double sum = 0, count = 0;
          for (Index i = a * call.L() / ga; i < (a + 1) * call.L() / ga; ++i) {
            for (Index j = c * call.S() / gb; j < (c + 1) * call.S() / gb; ++j, ++count)
              sum += static_cast<double>(made.weights.get({b, h, i, j}));
          }
          const double want = cells == MapCells::means ? sum / count : sum;
          const T got = made.pooled_map.get({b, h, a, c});
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << call.text;
            continue;
          }
          const double bound = want * (std::numeric_limits<T>::epsilon() / 2 + (count + 2) * 0x1p-53);
          ASSERT_LE(std::abs(static_cast<double>(got) - want), bound + std::numeric_limits<T>::denorm_min())
              << call.text << " cell " << a << ", " << c;
        }
      }
    }
  }
}

TYPED_TEST(Columns, MatchSumsAndMeansOfTheWeights) {
  using T = TypeParam;
  on_every_instruction_set([](const kernels::KernelTable&) {
    for (std::uint64_t seed = 0; seed < num_random_calls(300); ++seed) {
      const AttentionCase<T> call = random_attention_case<T>(seed);
      Random random(seed);
      std::array<Index, 2> strips{0, 0};
      if (call.L() > 0 && call.S() > 0) strips = {random.integer(1, call.L()), random.integer(1, call.S())};
      const MapCells cells = seed % 2 == 0 ? MapCells::means : MapCells::sums;
      const Inspected<T> made = inspect(call, strips, cells);
      expect_mass(call, made);
      expect_map(call, made, cells);
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
    }
  });
}

TYPED_TEST(Columns, ThreadsAndOtherOutputsDoNotChangeBits) {
  using T = TypeParam;
  const AttentionCase<T> call = long_causal_case<T>(700, 3000);
  const Inspected<T> one = inspect(call, {7, 11}, MapCells::means, {.num_threads = 1});
  expect_mass(call, one);
  expect_map(call, one, MapCells::means);
  for (int threads = 2; threads < 6; ++threads) {
    const Inspected<T> many = inspect(call, {7, 11}, MapCells::means, {.num_threads = threads});
    one.key_mass.for_each_index(
        [&](const std::array<Index, 3>& at) { ASSERT_TRUE(identical(one.key_mass.get(at), many.key_mass.get(at))); });
    one.pooled_map.for_each_index([&](const std::array<Index, 4>& at) {
      ASSERT_TRUE(identical(one.pooled_map.get(at), many.pooled_map.get(at)));
    });
  }
  const Inspected<T> alone = inspect(call, {0, 0}, MapCells::means);
  one.key_mass.for_each_index(
      [&](const std::array<Index, 3>& at) { ASSERT_TRUE(identical(one.key_mass.get(at), alone.key_mass.get(at))); });
}

// Computes the keys `begin` … `end − 1` only, where all other keys are NaN, and compares what is written with the
// results for all keys. Nothing else must be written.
template <class T>
void expect_same_keys(const AttentionCase<T>& call, const Inspected<T>& all, Index begin, Index end, MapCells cells) {
  SCOPED_TRACE(call.text + ", keys " + std::to_string(begin) + " … " + std::to_string(end));
  Array<T, 4> key(call.key.shape());
  key.for_each_index([&](const std::array<Index, 4>& at) {
    const bool wanted = begin <= at[2] && at[2] < end;
    key.set(at, wanted ? call.key.get(at) : std::numeric_limits<T>::quiet_NaN());
  });
  Array<T, 3> mass(all.key_mass.shape());
  Array<T, 4> map(all.pooled_map.shape());
  mass.fill([] { return 7; });
  map.fill([] { return 7; });
  const Index strips = map.shape()[3];
  attention_columns(call.query.view(), std::as_const(key).view(),
                    {all.row_max.view(), all.row_sum.view(), cells, std::array{begin, end}},
                    {.key_mass = mass.view(), .pooled_map = strips > 0 ? map.view() : OutputView<4>{}}, call.options);
  mass.for_each_index([&](const std::array<Index, 3>& at) {
    const bool wanted = begin <= at[2] && at[2] < end;
    ASSERT_TRUE(identical(mass.get(at), wanted ? all.key_mass.get(at) : static_cast<T>(7))) << "key " << at[2];
  });
  map.for_each_index([&](const std::array<Index, 4>& at) {
    const Index first = at[3] * call.S() / strips, last = (at[3] + 1) * call.S() / strips;
    const bool wanted = begin <= first && last <= end;
    ASSERT_TRUE(identical(map.get(at), wanted ? all.pooled_map.get(at) : static_cast<T>(7))) << "strip " << at[3];
  });
}

TYPED_TEST(Columns, SomeOfTheKeysHaveTheSameBits) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < num_random_calls(100) && !testing::Test::HasFailure(); ++seed) {
    const AttentionCase<T> call = random_attention_case<T>(seed);
    Random random(seed);
    const Index S = call.S(), begin = random.integer(0, S), end = random.integer(begin, S);
    expect_same_keys(call, inspect(call, {0, 0}, MapCells::means), begin, end, MapCells::means);
    if (call.L() == 0 || S == 0) continue;
    const Index strips = random.integer(1, S), first = random.integer(0, strips), last = random.integer(first, strips);
    const Inspected<T> all = inspect(call, {random.integer(1, call.L()), strips}, MapCells::sums);
    expect_same_keys(call, all, first * S / strips, last * S / strips, MapCells::sums);
  }
  // Several chunks of 1024 keys.
  const AttentionCase<T> call = long_causal_case<T>(150, 3000);
  const Inspected<T> all = inspect(call, {7, 11}, MapCells::means);
  for (const auto& [first, last] : {std::pair<Index, Index>{0, 3}, {3, 4}, {4, 11}, {7, 7}})
    expect_same_keys(call, all, first * 3000 / 11, last * 3000 / 11, MapCells::means);
}

TYPED_TEST(Columns, RowsThatSeeNoneOfTheKeysHaveNoEffect) {
  using T = TypeParam;
  AttentionCase<T> call = long_causal_case<T>(2000, 2000);
  Inspected<T> all = inspect(call, {7, 16}, MapCells::means);
  const T none = std::numeric_limits<T>::quiet_NaN();
  for (Index h = 0; h < 4; ++h) {
    for (Index i = 0; i < 1625; ++i) {
      all.row_max.set({0, h, i}, none);
      all.row_sum.set({0, h, i}, none);
      for (Index d = 0; d < 16; ++d) call.query.set({0, h, i, d}, none);
    }
  }
  expect_same_keys(call, all, 1625, 2000, MapCells::means);
}

TYPED_TEST(Columns, MemoryDoesNotGrowWithRowsTimesKeys) {
  using T = TypeParam;
  CountingMemory counting;
  const AttentionCase<T> call = long_causal_case<T>(2000, 4096);
  const std::array<Index, 3> rows{1, 4, 2000};
  Array<T, 3> row_max(rows), row_sum(rows), mass({1, 4, 4096});
  Array<T, 4> context({1, 4, 2000, 8}), map({1, 4, 32, 32});
  attention_forward(call.query.view(), call.key.view(), call.value.view(),
                    {.context = context.view(), .row_max = row_max.view(), .row_sum = row_sum.view()}, call.options);
  attention_columns(call.query.view(), call.key.view(), {.row_max = row_max.view(), .row_sum = row_sum.view()},
                    {.key_mass = mass.view(), .pooled_map = map.view()}, call.options,
                    {.num_threads = 2, .workspace = &counting});
  const std::size_t packed = sizeof(T) * 2 * 4096 * 16;
  const std::size_t cells = sizeof(double) * 4 * 32 * (32 + 4 + 32);
  EXPECT_LE(counting.largest, packed + cells + 2 * (std::size_t{1} << 18));
  EXPECT_LT(counting.largest, sizeof(T) * 4 * 2000 * 4096 / 20);
}

TEST(Columns, Rejections) {
  const AttentionCase<float> call = long_causal_case<float>(5, 9);
  const std::array<Index, 3> rows{1, 4, 5};
  Array<float, 3> row_max(rows), row_sum(rows), mass({1, 4, 9}), short_mass({1, 4, 8});
  Array<float, 4> map({1, 4, 6, 2}), other({1, 3, 2, 2});
  const auto message = [&](const ColumnsRequest& request, const AttentionColumns& outputs) {
    return rejection<std::invalid_argument>(
        [&] { attention_columns(call.query.view(), call.key.view(), request, outputs, call.options); });
  };
  const ColumnsRequest request{.row_max = row_max.view(), .row_sum = row_sum.view()};
  EXPECT_EQ(message({.row_max = row_max.view()}, {.key_mass = mass.view()}),
            "attention_columns: row_sum is missing; expected (1, 4, 5) as written by attention_forward");
  EXPECT_EQ(message(request, {.key_mass = short_mass.view()}),
            "attention_columns: key_mass has shape (1, 4, 8); expected (1, 4, 9)");
  EXPECT_EQ(
      message(request, {.pooled_map = map.view()}),
      "attention_columns: pooled_map has shape (1, 4, 6, 2); expected 1 to 5 strips of rows and 1 to 9 of columns");
  EXPECT_EQ(message(request, {.pooled_map = other.view()}),
            "attention_columns: pooled_map has shape (1, 3, 2, 2); expected (1, 4, 2, 2)");
  Array<float, 4> halves({1, 4, 2, 2});
  const auto of_keys = [&](Index begin, Index end) {
    ColumnsRequest some = request;
    some.keys = {begin, end};
    return message(some, {.pooled_map = halves.view()});
  };
  EXPECT_EQ(of_keys(4, 9), "accepted");
  for (const auto& [begin, end] : {std::pair{-1, 4}, {5, 4}, {4, 10}}) {
    EXPECT_EQ(of_keys(begin, end), "attention_columns: keys is " + std::to_string(begin) + " … " + std::to_string(end) +
                                       "; expected an interval of 0 … 9");
  }
  for (const auto& [begin, end] : {std::pair{3, 9}, {0, 5}}) {
    EXPECT_EQ(of_keys(begin, end), "attention_columns: keys is " + std::to_string(begin) + " … " + std::to_string(end) +
                                       "; expected whole strips of the 2 of pooled_map");
  }
}

}  // namespace
}  // namespace regard::attention_columns_test
