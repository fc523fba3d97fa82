// SPDX-License-Identifier: Apache-2.0
//
// Gradients of layer norm and RMS norm, and RMS norm itself: compared with the formulas in a wider type and with
// central differences, on every instruction set; groups of rows, accumulation, layouts and threads.
// Read next: layer_norm_test.cpp, src/layers/norm_backward.cpp.
#include <cmath>

#include "regard/layer_norm.h"
#include "regard/rms_norm.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"

namespace regard {
namespace {

constexpr double kEpsilon = 1e-5;

// One call, of either norm.
template <class T>
struct Norm {
  bool centered;  // false: RMS norm
  Array<T, 2> input, addend, grad_output, grad_input;
  Array<T, 1> gain, grad_gain, grad_bias;
  bool adds = true;

  Norm(bool is_centered, Index rows, Index width, bool has_addend = true, const Layout<2>& layout = Layout<2>::dense())
      : centered(is_centered), adds(has_addend) {
    Random random(static_cast<std::uint64_t>(rows * 1000 + width));
    input = relaid(normal_array<T, 2>(random, {rows, width}), layout);
    addend = relaid(normal_array<T, 2>(random, {rows, width}), layout);
    grad_output = relaid(normal_array<T, 2>(random, {rows, width}), layout);
    grad_input = relaid(normal_array<T, 2>(random, {rows, width}), layout);
    gain = normal_array<T, 1>(random, {width});
    grad_gain = normal_array<T, 1>(random, {width});
    grad_bias = normal_array<T, 1>(random, {width});
  }

  struct Rows {
    Index first, count;
  };
  // The gradients of some rows. The views of parameters are accumulated if `add`, that of the input if `add_input`.
  void backward(Rows of, Index rows_per_group, bool add, bool add_input = false, const Runtime& runtime = {}) {
    const auto some = [&](auto view) { return sliced(view, 0, of.first, of.first + of.count); };
    const auto x = some(std::as_const(input).view()), y = some(std::as_const(grad_output).view());
    const auto more = adds ? some(std::as_const(addend).view()) : TensorView<const T, 2>{};
    if (centered) {
      layer_norm_backward<T>(x, more, std::as_const(gain).view(), y,
                             {.grad_input = some(grad_input.view()),
                              .grad_gain = grad_gain.view(),
                              .grad_bias = grad_bias.view(),
                              .accumulate = {add_input, add, add},
                              .rows_per_group = rows_per_group},
                             kEpsilon, runtime);
    } else {
      rms_norm_backward<T>(x, more, std::as_const(gain).view(), y,
                           {.grad_input = some(grad_input.view()),
                            .grad_gain = grad_gain.view(),
                            .accumulate = {add_input, add},
                            .rows_per_group = rows_per_group},
                           kEpsilon, runtime);
    }
  }
  Rows all() const { return {0, input.shape()[0]}; }
  auto bits() const { return std::array{bits_of(grad_input), bits_of(grad_gain), bits_of(grad_bias)}; }
};

template <class T>
class NormGradients : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NormGradients, Types);

TYPED_TEST(NormGradients, MatchTheFormulas) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  const W u = reference::kUnit<T>;
  for (const bool centered : {true, false}) {
    for (const auto& [rows, width] : {std::pair<Index, Index>{1, 1}, {3, 2}, {5, 17}, {40, 33}, {67, 128}, {2, 1100}}) {
      for (const bool adds : {true, false}) {
        on_every_instruction_set([&](const kernels::KernelTable&) {
          Norm<T> norm(centered, rows, width, adds);
          norm.backward(norm.all(), 0, false);
          std::vector<W> sum_gain(static_cast<std::size_t>(width)), sum_bias(sum_gain), size_gain(sum_gain),
              size_bias(sum_gain);
          for (Index r = 0; r < rows; ++r) {
            std::vector<W> x, g;
            W mean = 0, variance = 0;
            for (Index e = 0; e < width; ++e) {
              x.push_back(static_cast<W>(adds ? static_cast<T>(norm.input.get({r, e}) + norm.addend.get({r, e}))
                                              : norm.input.get({r, e})));
              g.push_back(static_cast<W>(norm.grad_output.get({r, e})) * static_cast<W>(norm.gain.get({e})));
              mean += x.back() / static_cast<W>(width);
            }
            if (!centered) mean = 0;
            for (const W v : x) variance += (v - mean) * (v - mean) / static_cast<W>(width);
            const W deviation = std::sqrt(variance + W{kEpsilon});
            W sum_g = 0, sum_gn = 0, size_g = 0, size_gn = 0;
            for (std::size_t e = 0; e < x.size(); ++e) {
              sum_g += g[e] / static_cast<W>(width);
              sum_gn += g[e] * (x[e] - mean) / deviation / static_cast<W>(width);
              size_g += std::abs(g[e]) / static_cast<W>(width);
              size_gn += std::abs(g[e] * (x[e] - mean)) / deviation / static_cast<W>(width);
            }
            if (!centered) sum_g = 0;
            for (std::size_t e = 0; e < x.size(); ++e) {
              const W n = (x[e] - mean) / deviation;
              const W exact = (g[e] - sum_g - n * sum_gn) / deviation;
              const W bound = 12 * u * (std::abs(g[e]) + size_g + std::abs(n) * size_gn) / deviation;
              const auto at = std::array{r, static_cast<Index>(e)};
              EXPECT_LE(std::abs(static_cast<W>(norm.grad_input.get(at)) - exact), bound) << r << " " << e;
              const W y = static_cast<W>(norm.grad_output.get(at));
              sum_gain[e] += y * n;
              size_gain[e] += std::abs(y * n);
              sum_bias[e] += y;
              size_bias[e] += std::abs(y);
            }
          }
          // The sums are in double, so that only those of double have rounding errors of their own.
          const W sums = (std::is_same_v<T, double> ? static_cast<W>(rows) + 8 : 4) * u;
          for (std::size_t e = 0; e < sum_gain.size(); ++e) {
            const std::array at{static_cast<Index>(e)};
            EXPECT_LE(std::abs(static_cast<W>(norm.grad_gain.get(at)) - sum_gain[e]), sums * size_gain[e]) << e;
            if (centered) {
              EXPECT_LE(std::abs(static_cast<W>(norm.grad_bias.get(at)) - sum_bias[e]), sums * size_bias[e]) << e;
            }
          }
        });
      }
    }
  }
}

// Σ grad_output · norm(x), whose gradients the backward pass computes.
double loss_of(const Norm<double>& norm, const Array<double, 1>& bias) {
  Array<double, 2> output(norm.input.shape());
  if (norm.centered) {
    layer_norm_forward<double>(norm.input.view(), norm.addend.view(), norm.gain.view(), bias.view(), output.view(),
                               kEpsilon);
  } else {
    rms_norm_forward<double>(norm.input.view(), norm.addend.view(), norm.gain.view(), output.view(), kEpsilon);
  }
  double sum = 0;
  output.for_each_index([&](const auto& at) { sum += output.get(at) * norm.grad_output.get(at); });
  return sum;
}

TEST(NormGradients, EqualCentralDifferences) {
  for (const bool centered : {true, false}) {
    Norm<double> norm(centered, 4, 9);
    norm.backward(norm.all(), 0, false);
    Array<double, 1> bias({9});
    bias.fill([] { return 0.25; });
    const auto compare = [&](auto& array, const auto& gradient) {
      array.for_each_index([&](const auto& at) {
        const double value = array.get(at);
        constexpr double kStep = 1e-5;
        array.set(at, value + kStep);
        const double above = loss_of(norm, bias);
        array.set(at, value - kStep);
        const double below = loss_of(norm, bias);
        array.set(at, value);
        EXPECT_NEAR(gradient.get(at), (above - below) / (2 * kStep), 1e-6 * std::max(1.0, std::abs(gradient.get(at))));
      });
    };
    compare(norm.input, norm.grad_input);
    compare(norm.gain, norm.grad_gain);
    if (centered) compare(bias, norm.grad_bias);
  }
}

TYPED_TEST(NormGradients, GroupsOfRowsAreSummedInOrder) {
  using T = TypeParam;
  for (const bool centered : {true, false}) {
    for (const auto& [rows, group] : {std::pair<Index, Index>{12, 4}, {130, 64}, {7, 3}, {5, 9}}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        for (const bool add : {false, true}) {
          Norm<T> whole(centered, rows, 33), parts(centered, rows, 33);
          whole.backward(whole.all(), group, add);
          for (Index first = 0; first < rows; first += group)
            parts.backward({first, std::min(group, rows - first)}, group, add || first > 0);
          EXPECT_EQ(whole.bits(), parts.bits());
        }
      });
    }
  }
}

TYPED_TEST(NormGradients, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  for (const bool centered : {true, false}) {
    Norm<T> fresh(centered, 20, 33), added(centered, 20, 33);
    const Norm<T> old(centered, 20, 33);
    fresh.backward(fresh.all(), 0, false);
    added.backward(added.all(), 0, true, true);
    fresh.grad_input.for_each_index([&](const auto& at) {
      EXPECT_EQ(added.grad_input.get(at), static_cast<T>(old.grad_input.get(at) + fresh.grad_input.get(at)));
    });
    fresh.grad_gain.for_each_index([&](const auto& at) {
      EXPECT_EQ(added.grad_gain.get(at), static_cast<T>(old.grad_gain.get(at) + fresh.grad_gain.get(at)));
    });
  }
}

TYPED_TEST(NormGradients, LayoutsAndThreadsDoNotChangeBits) {
  using T = TypeParam;
  Layout<2> turned = Layout<2>::dense();
  std::swap(turned.order[0], turned.order[1]);
  turned.gap = 3;
  for (const bool centered : {true, false}) {
    Norm<T> expected(centered, 300, 90);
    expected.backward(expected.all(), 0, false, false, {.num_threads = 1});
    for (const auto& layout : {Layout<2>::dense(), turned}) {
      for (const int threads : {1, 5}) {
        Norm<T> norm(centered, 300, 90, true, layout);
        norm.backward(norm.all(), 0, false, false, {.num_threads = threads});
        EXPECT_EQ(norm.bits(), expected.bits());
        EXPECT_TRUE(norm.grad_input.surroundings_untouched());
      }
    }
  }
}

TYPED_TEST(NormGradients, RmsNormMatchesTheFormulaRoundedOnce) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  for (const Index width : {1, 16, 33, 1000}) {
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const Norm<T> norm(false, 21, width);
      Array<T, 2> output({21, width});
      rms_norm_forward<T>(norm.input.view(), norm.addend.view(), norm.gain.view(), output.view(), kEpsilon);
      for (Index r = 0; r < 21; ++r) {
        W square = 0;
        const auto x = [&](Index e) {
          return static_cast<W>(static_cast<T>(norm.input.get({r, e}) + norm.addend.get({r, e})));
        };
        for (Index e = 0; e < width; ++e) square += x(e) * x(e) / static_cast<W>(width);
        for (Index e = 0; e < width; ++e) {
          const W exact = x(e) / std::sqrt(square + W{kEpsilon}) * static_cast<W>(norm.gain.get({e}));
          EXPECT_LE(std::abs(static_cast<W>(output.get({r, e})) - exact),
                    (reference::kUnit<T> + W{0x1p-46}) * std::abs(exact));
        }
      }
    });
  }
}

TEST(NormRejections, NameTheArgument) {
  Norm<float> norm(false, 2, 3);
  Array<float, 2> output({2, 4});
  EXPECT_EQ(
      rejection([&] { rms_norm_forward<float>(norm.input.view(), {}, norm.gain.view(), output.view(), kEpsilon); }),
      "rms_norm_forward: output has shape (2, 4); expected (2, 3)");
  EXPECT_EQ(rejection([&] { norm.backward(norm.all(), -1, false); }),
            "rms_norm_backward: rows_per_group is -1; expected at least 0");
  Norm<float> centered(true, 2, 3);
  EXPECT_EQ(rejection([&] { centered.backward(centered.all(), -1, false); }),
            "layer_norm_backward: rows_per_group is -1; expected at least 0");
}

}  // namespace
}  // namespace regard
