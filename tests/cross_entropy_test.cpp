// SPDX-License-Identifier: Apache-2.0
//
// cross_entropy_forward compared with the formula in a wider type and with central differences, on every instruction
// set and in every layout; ignored targets, reductions, groups of rows, values that are not finite, and rejections.
//
//   error of a row's loss   ≤ u · (2 + ln V) + 2⁻⁵³ · (V/16 + 12) · (1 + loss)
//   error of a gradient     ≤ u · |gradient| + (u · (6 + ln V + max − logit) + 2⁻⁵³ · (V/16 + 12)) · softmax · factor
//
// Read next: src/layers/cross_entropy.cpp.
#include "regard/cross_entropy.h"

#include <limits>

#include "support/attention_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"

namespace regard::cross_entropy_test {
namespace {

template <class T>
constexpr T kInfinite = std::numeric_limits<T>::infinity();
constexpr Index kIgnored = -1;

template <class T>
struct Case {
  Array<T, 2> logits;
  Array<Index, 1> targets;

  Index rows() const { return logits.shape()[0]; }
  Index classes() const { return logits.shape()[1]; }
};

// Random logits; about one target in `one_ignored_in` is ignored, none if 0.
template <class T>
Case<T> random_case(std::uint64_t seed, Index rows, Index classes, Index one_ignored_in = 0, double magnitude = 3) {
  Random random(seed);
  Case<T> test{Array<T, 2>({rows, classes}), Array<Index, 1>({rows})};
  test.logits.fill([&] { return static_cast<ComputeType<T>>(random.normal() * magnitude); });
  for (Index r = 0; r < rows; ++r) {
    const bool ignored = one_ignored_in > 0 && random.integer(1, one_ignored_in) == 1;
    test.targets.set({r}, ignored ? kIgnored : random.integer(0, classes - 1));
  }
  return test;
}

template <class T>
struct Results {
  double loss = 0;
  Index count = 0;
  std::vector<ComputeType<T>> row_loss;
  std::vector<T> grad_logits;

  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all = bits_of(grad_logits);
    for (const auto& more : {bits_of(row_loss), bits_of(std::vector<double>{loss})})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

template <class T>
Results<T> run(const Case<T>& test, const CrossEntropyOptions& options = {}, const Runtime& runtime = {},
               const Layout<2>& layout = Layout<2>::dense(), const Layout<1>& of_losses = Layout<1>::dense()) {
  Array<T, 2> grad(test.logits.shape(), layout);
  Array<ComputeType<T>, 1> row_loss({test.rows()}, of_losses);
  const CrossEntropyResult result =
      cross_entropy_forward<T>(test.logits.view(), test.targets.view(),
                               {.row_loss = row_loss.view(), .grad_logits = grad.view()}, options, runtime);
  Results<T> results{result.loss, result.count, row_loss.values(), grad.values()};
  EXPECT_TRUE(grad.surroundings_untouched());
  EXPECT_TRUE(row_loss.surroundings_untouched());
  return results;
}

template <class T>
class CrossEntropy : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, Types);

template <class T>
void expect_formula(const Case<T>& test, const Results<T>& got, double factor) {
  using W = reference::Wide<T>;
  const Index V = test.classes();
  const W of_sum = W{0x1p-53} * static_cast<W>(static_cast<double>(V) / 16 + 12);
  for (Index r = 0; r < test.rows(); ++r) {
    const Index target = test.targets.get({r});
    W largest = -kInfinite<W>, sum = 0;
    for (Index v = 0; v < V; ++v) largest = std::max(largest, static_cast<W>(test.logits.get({r, v})));
    for (Index v = 0; v < V; ++v) sum += std::exp(static_cast<W>(test.logits.get({r, v})) - largest);
    const W loss = std::log(sum) + (largest - static_cast<W>(test.logits.get({r, target})));
    const W of_logits = reference::kUnit<T> * (2 + std::log(static_cast<W>(V))) + of_sum * (1 + loss);
    const W row_loss = static_cast<W>(got.row_loss[static_cast<std::size_t>(r)]);
    ASSERT_LE(std::abs(row_loss - loss), of_logits + reference::kUnit<T> * loss) << "row " << r << " of " << V;
    for (Index v = 0; v < V; ++v) {
      const W distance = largest - static_cast<W>(test.logits.get({r, v})), weight = std::exp(-distance) / sum;
      const W expected = (weight - (v == target ? 1 : 0)) * static_cast<W>(factor);
      const W bound = reference::kUnit<T> * std::abs(expected) + std::numeric_limits<T>::denorm_min() +
                      (reference::kUnit<T> * (6 + std::log(static_cast<W>(V)) + distance) + of_sum) * weight *
                          std::abs(static_cast<W>(factor)) +
                      (v == target ? W{0x1p-51} * std::abs(static_cast<W>(factor)) : 0);
      const W x = static_cast<W>(got.grad_logits[static_cast<std::size_t>(r * V + v)]);
      ASSERT_LE(std::abs(x - expected), bound) << "row " << r << ", class " << v << " of " << V;
    }
  }
}

TYPED_TEST(CrossEntropy, MatchesTheFormula) {
  using T = TypeParam;
  for (const Index V : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 79, 127, 128, 131, 1000, 5003}) {
    const Case<T> test = random_case<T>(static_cast<std::uint64_t>(V), 7, V);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const Results<T> mean = run(test);
      EXPECT_EQ(mean.count, 7);
      expect_formula(test, mean, 1.0 / 7);
      expect_formula(test, run(test, {.reduction = Reduction::sum, .grad_scale = -3}), -3);
    });
  }
}

TYPED_TEST(CrossEntropy, LargeAndSmallLogitsMatchTheFormula) {
  using T = TypeParam;
  const Case<T> wide = random_case<T>(1, 20, 200, 0, 100);
  Case<T> shifted = random_case<T>(2, 20, 200);
  shifted.logits.for_each_index([&](const auto& at) { shifted.logits.set(at, shifted.logits.get(at) + T{1e4f}); });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    expect_formula(wide, run(wide), 1.0 / 20);
    expect_formula(shifted, run(shifted), 1.0 / 20);
  });
}

TYPED_TEST(CrossEntropy, LossIsTheMeanOrTheSumOfTheRows) {
  using T = TypeParam;
  const Case<T> test = random_case<T>(3, 50, 40, 4);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const Results<T> mean = run(test), sum = run(test, {.reduction = Reduction::sum});
    double total = 0;
    Index count = 0;
    for (Index r = 0; r < 50; ++r) {
      total += static_cast<double>(sum.row_loss[static_cast<std::size_t>(r)]);
      if (test.targets.get({r}) != kIgnored) ++count;
    }
    const double error = 50 * static_cast<double>(reference::kUnit<T>) * total;
    EXPECT_NEAR(sum.loss, total, error);
    EXPECT_EQ(mean.loss, sum.loss / static_cast<double>(count));
    EXPECT_EQ(mean.count, count);
    EXPECT_EQ(sum.count, count);
    EXPECT_EQ(mean.row_loss, sum.row_loss);
    // A given count replaces that of the call.
    const Results<T> counted = run(test, {.count = 200});
    EXPECT_EQ(counted.loss, sum.loss / 200);
    EXPECT_EQ(counted.count, count);
    EXPECT_EQ(counted.grad_logits, run(test, {.reduction = Reduction::sum, .grad_scale = 1.0 / 200}).grad_logits);
    EXPECT_EQ(run(test, {.grad_scale = 5}).loss, mean.loss);
  });
}

TYPED_TEST(CrossEntropy, IgnoredRowsAreZeroAndNotRead) {
  using T = TypeParam;
  for (const Index ignored : {Index{-1}, Index{-100}, Index{4}}) {
    Case<T> test = random_case<T>(4, 30, 33);
    Case<T> kept = random_case<T>(4, 30, 33);
    for (Index r = 0; r < 30; ++r) {
      if (test.targets.get({r}) == ignored) test.targets.set({r}, 5);
      if (r % 3 != 0) continue;
      test.targets.set({r}, ignored);
      for (Index v = 0; v < 33; ++v) test.logits.set({r, v}, std::numeric_limits<T>::quiet_NaN());
    }
    const Results<T> got = run(test, {.ignored_target = ignored});
    EXPECT_EQ(got.count, 20);
    EXPECT_TRUE(std::isfinite(got.loss));
    for (Index r = 0; r < 30; ++r) {
      for (Index v = 0; v < 33; ++v) {
        const T x = got.grad_logits[static_cast<std::size_t>(r * 33 + v)];
        EXPECT_EQ(x == 0 && !std::signbit(x), r % 3 == 0);
      }
      EXPECT_EQ(got.row_loss[static_cast<std::size_t>(r)] == 0, r % 3 == 0);
    }
  }
}

TYPED_TEST(CrossEntropy, AllTargetsIgnoredOrNoRowsGiveZero) {
  using T = TypeParam;
  Case<T> test = random_case<T>(5, 3, 5);
  for (Index r = 0; r < 3; ++r) test.targets.set({r}, kIgnored);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const Results<T> got = run(test, {.reduction = reduction});
    EXPECT_EQ(got.loss, 0);
    EXPECT_EQ(got.count, 0);
    EXPECT_EQ(got.grad_logits, std::vector<T>(15, 0));
    for (const Index V : {0, 5}) {
      const CrossEntropyResult none =
          cross_entropy_forward<T>({nullptr, {0, V}}, {nullptr, {0}}, {}, {.reduction = reduction});
      EXPECT_EQ(none.loss, 0);
      EXPECT_EQ(none.count, 0);
    }
  }
  // A single class is certain.
  const Results<T> certain = run(random_case<T>(6, 4, 1));
  EXPECT_EQ(certain.loss, 0);
  EXPECT_EQ(certain.grad_logits, std::vector<T>(4, 0));
}

TEST(CrossEntropyInDouble, GradientMatchesCentralDifferences) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const Index V : {2, 17, 40}) {
      Case<double> test = random_case<double>(7, 6, V, 4, 1);
      const CrossEntropyOptions options{.reduction = reduction};
      const auto loss = [&] {
        return cross_entropy_forward<double>(test.logits.view(), test.targets.view(), {}, options).loss;
      };
      const std::vector<double> gradient = run(test, options).grad_logits;
      double largest = 0;
      for (const double x : gradient) largest = std::max(largest, std::abs(x));
      constexpr double h = 1e-4;
      std::size_t n = 0;
      test.logits.for_each_index([&](const auto& at) {
        const double x = test.logits.get(at);
        test.logits.set(at, x + h);
        const double above = loss();
        test.logits.set(at, x - h);
        const double below = loss();
        test.logits.set(at, x);
        EXPECT_NEAR(gradient[n], (above - below) / ((x + h) - (x - h)), 1e-6 * largest) << n;
        ++n;
      });
    }
  }
}

TYPED_TEST(CrossEntropy, LayoutsInPlaceThreadsAndOtherRowsDoNotChangeBits) {
  using T = TypeParam;
  Random random(8);
  for (int n = 0; n < 60; ++n) {
    const Index R = random.integer(1, 40), V = random.integer(1, 150);
    const Case<T> dense = random_case<T>(static_cast<std::uint64_t>(100 + n), R, V, 5);
    const Results<T> expected = run(dense, {}, {.num_threads = 1});
    Layout<2> of_logits = random_layout<2>(random, false);
    of_logits.repeated = {};
    Case<T> strided{relaid(dense.logits, of_logits), relaid(dense.targets, random_layout<1>(random, true))};
    EXPECT_EQ(run(strided, {}, {}, random_layout<2>(random, true), random_layout<1>(random, true)).bits(),
              expected.bits())
        << "call " << n;
    const CrossEntropyResult in_place = cross_entropy_forward<T>(
        std::as_const(strided.logits).view(), strided.targets.view(), {.grad_logits = strided.logits.view()});
    EXPECT_EQ(in_place.loss, expected.loss);
    EXPECT_EQ(bits_of(strided.logits), bits_of(expected.grad_logits));
    EXPECT_TRUE(strided.logits.surroundings_untouched());
    // Without outputs, the loss is the same.
    EXPECT_EQ(cross_entropy_forward<T>(dense.logits.view(), dense.targets.view()).loss, expected.loss);
  }
  const Case<T> test = random_case<T>(9, 300, 1000, 10);
  const Results<T> whole = run(test, {.reduction = Reduction::sum}, {.num_threads = 1});
  EXPECT_EQ(run(test, {.reduction = Reduction::sum}, {.num_threads = 5}).bits(), whole.bits());
  Case<T> alone{Array<T, 2>({1, 1000}), Array<Index, 1>({1})};
  for (Index v = 0; v < 1000; ++v) alone.logits.set({0, v}, test.logits.get({217, v}));
  alone.targets.set({0}, test.targets.get({217}));
  const std::vector<T> row(whole.grad_logits.begin() + 217 * 1000, whole.grad_logits.begin() + 218 * 1000);
  EXPECT_EQ(run(alone, {.reduction = Reduction::sum}).grad_logits, row);
}

TYPED_TEST(CrossEntropy, FusedInstructionSetsHaveTheSameBits) {
  using T = TypeParam;
  for (const Index V : {1, 7, 16, 50, 64, 65, 100, 300}) {
    const Case<T> test = random_case<T>(static_cast<std::uint64_t>(V), 9, V, 5);
    std::vector<std::uint64_t> expected;
    for (const kernels::KernelTable* table : fused_instruction_sets()) {
      const ActiveTable active(*table);
      if (expected.empty()) expected = run(test).bits();
      EXPECT_EQ(run(test).bits(), expected) << table->name << ' ' << V;
    }
  }
}

// A batch in one call, and one call for each group with the count of the batch.
TYPED_TEST(CrossEntropy, GroupsHaveTheLossOfSeveralCalls) {
  using T = TypeParam;
  constexpr Index kRows = 23, kClasses = 30, kGroup = 5;
  const Case<T> test = random_case<T>(10, kRows, kClasses, 6);
  const Results<T> whole = run(test, {.rows_per_group = kGroup});
  double loss = 0;
  for (Index begin = 0; begin < kRows; begin += kGroup) {
    const Index end = std::min(kRows, begin + kGroup);
    loss += cross_entropy_forward<T>(sliced(test.logits.view(), 0, begin, end),
                                     sliced(test.targets.view(), 0, begin, end), {}, {.count = whole.count})
                .loss;
  }
  EXPECT_EQ(whole.loss, loss);
  EXPECT_NEAR(whole.loss, run(test).loss, 1e-14);
  EXPECT_EQ(whole.grad_logits, run(test).grad_logits);
}

TYPED_TEST(CrossEntropy, MinusInfinityIsAnImpossibleClass) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Case<T> test = random_case<T>(11, 2, 70);
    Case<T> without{Array<T, 2>({2, 35}), Array<Index, 1>({2})};
    test.targets.set({0}, 6);
    test.targets.set({1}, 69);
    without.targets.set({0}, 3);
    without.targets.set({1}, 3);
    for (Index v = 0; v < 70; ++v) {
      if (v % 2 == 0) without.logits.set({0, v / 2}, test.logits.get({0, v}));
      if (v % 2 != 0) test.logits.set({0, v}, -kInfinite<T>);
    }
    test.logits.set({1, 69}, -kInfinite<T>);
    for (Index v = 0; v < 35; ++v) without.logits.set({1, v}, 0);
    const Results<T> got = run(test), possible = run(without);
    EXPECT_NEAR(static_cast<double>(got.row_loss[0]), static_cast<double>(possible.row_loss[0]), 1e-6);
    for (Index v = 0; v < 70; ++v) {
      const auto at = static_cast<std::size_t>(v);
      if (v % 2 == 1) {
        EXPECT_EQ(got.grad_logits[at], 0);
      } else {
        EXPECT_NEAR(static_cast<double>(got.grad_logits[at]), static_cast<double>(possible.grad_logits[at / 2]), 1e-7);
      }
    }
    // The target itself.
    EXPECT_EQ(got.row_loss[1], kInfinite<T>);
    EXPECT_EQ(got.loss, kInfinite<double>);
    EXPECT_EQ(got.grad_logits[70 + 69], T{-0.5});
    T sum = 0;
    for (std::size_t v = 0; v < 69; ++v) sum += got.grad_logits[70 + v];
    EXPECT_NEAR(static_cast<double>(sum), 0.5, 1e-6);
  });
}

TYPED_TEST(CrossEntropy, RowsWithoutSoftmaxAreNaNAlone) {
  using T = TypeParam;
  for (const Index V : {1, 5, 64, 100}) {
    on_every_instruction_set([&](const kernels::KernelTable&) {
      Case<T> test = random_case<T>(12, 5, V);
      const Results<T> clean = run(test);
      test.logits.set({1, V / 2}, std::numeric_limits<T>::quiet_NaN());
      test.logits.set({2, V - 1}, kInfinite<T>);
      for (Index v = 0; v < V; ++v) test.logits.set({3, v}, -kInfinite<T>);
      const Results<T> got = run(test);
      EXPECT_TRUE(std::isnan(got.loss));
      for (std::size_t r = 0; r < 5; ++r) {
        const bool broken = r >= 1 && r <= 3;
        EXPECT_EQ(std::isnan(got.row_loss[r]), broken) << r << " of " << V;
        for (std::size_t v = 0; v < static_cast<std::size_t>(V); ++v) {
          const std::size_t at = r * static_cast<std::size_t>(V) + v;
          EXPECT_TRUE(broken ? std::isnan(got.grad_logits[at]) : got.grad_logits[at] == clean.grad_logits[at]);
        }
      }
    });
  }
}

TEST(CrossEntropyOfBfloat16, IsThatOfFloatRoundedOnce) {
  for (const Index V : {1, 20, 64, 101}) {
    const Case<bfloat16> narrow = random_case<bfloat16>(13, 12, V, 5);
    Case<float> wide = random_case<float>(13, 12, V, 5);
    wide.logits.for_each_index([&](const auto& at) { wide.logits.set(at, static_cast<float>(narrow.logits.get(at))); });
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const Results<bfloat16> got = run(narrow);
      const Results<float> expected = run(wide);
      EXPECT_EQ(got.loss, expected.loss);
      EXPECT_EQ(got.row_loss, expected.row_loss);
      for (std::size_t n = 0; n < got.grad_logits.size(); ++n)
        EXPECT_EQ(got.grad_logits[n].bits, bfloat16(expected.grad_logits[n]).bits);
    });
  }
}

TEST(CrossEntropyErrors, AreReportedBeforeAnythingIsWritten) {
  const Case<float> test = random_case<float>(14, 4, 6);
  std::vector<float> gradient(24, 7), losses(4, 7);
  const auto expect = [&](const std::string& text, auto change) {
    TensorView<const float, 2> logits = test.logits.view();
    Array<Index, 1> targets = relaid(test.targets, Layout<1>::dense());
    CrossEntropyOutputs<float> outputs{.row_loss = {losses.data(), {4}}, .grad_logits = {gradient.data(), {4, 6}}};
    CrossEntropyOptions options;
    TensorView<const Index, 1> view = std::as_const(targets).view();
    change(logits, targets, view, outputs, options);
    const std::string got = rejection([&] { cross_entropy_forward<float>(logits, view, outputs, options); });
    EXPECT_EQ(got, text == "accepted" ? text : "cross_entropy_forward: " + text);
    if (text == "accepted") return;
    EXPECT_EQ(gradient, std::vector<float>(24, 7));
    EXPECT_EQ(losses, std::vector<float>(4, 7));
  };
  expect("targets[2] is 6; expected 0 to 5, or -1 to ignore the row",
         [](auto&, auto& targets, auto&, auto&, auto&) { targets.set({2}, 6); });
  expect("targets[3] is -1; expected 0 to 5, or -100 to ignore the row",
         [](auto&, auto& targets, auto&, auto&, auto& options) {
           targets.set({3}, -1);
           options.ignored_target = -100;
         });
  expect("targets has shape (3); expected (4) for logits (4, 6)",
         [](auto&, auto&, auto& view, auto&, auto&) { view.shape[0] = 3; });
  expect("targets has shape (0); expected (4) for logits (4, 6)",
         [](auto&, auto&, auto& view, auto&, auto&) { view = {}; });
  expect("logits has shape (4, 0); expected at least one class", [](auto& logits, auto&, auto&, auto& outputs, auto&) {
    logits.shape[1] = 0;
    outputs = {};
  });
  expect("row_loss has shape (5); expected (4)",
         [](auto&, auto&, auto&, auto& outputs, auto&) { outputs.row_loss.shape[0] = 5; });
  expect("grad_logits has shape (4, 5); expected (4, 6)",
         [](auto&, auto&, auto&, auto& outputs, auto&) { outputs.grad_logits.shape[1] = 5; });
  expect("grad_logits overlaps logits; expected separate memory",
         [&](auto& logits, auto&, auto&, auto& outputs, auto&) {
           logits = {gradient.data(), {4, 3}};
           outputs.grad_logits = {gradient.data() + 3, {4, 3}};
           outputs.row_loss = {};
         });
  expect("grad_scale is inf; expected a finite number",
         [](auto&, auto&, auto&, auto&, auto& options) { options.grad_scale = kInfinite<double>; });
  expect("count is -1; expected at least 0", [](auto&, auto&, auto&, auto&, auto& options) { options.count = -1; });
  expect("count is 4; expected 0 with reduction sum", [](auto&, auto&, auto&, auto&, auto& options) {
    options.count = 4;
    options.reduction = Reduction::sum;
  });
  expect("rows_per_group is -2; expected at least 0",
         [](auto&, auto&, auto&, auto&, auto& options) { options.rows_per_group = -2; });
  expect("reduction is 7; expected mean or sum",
         [](auto&, auto&, auto&, auto&, auto& options) { options.reduction = static_cast<Reduction>(7); });
  expect("accepted", [](auto&, auto&, auto&, auto&, auto&) {});
}

}  // namespace
}  // namespace regard::cross_entropy_test
