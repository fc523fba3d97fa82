// SPDX-License-Identifier: Apache-2.0
//
// layer_norm_forward compared with the formula in a wider type, in every layout, with bits that depend only on the row;
// and every rejection. The gradients are tested in norm_gradients_test.cpp.
//
//   error ≤ u · |result| + 2⁻⁵⁰ · (|gain| · (√E + max |x| / deviation) + |bias|): rounded once
//
// Read next: src/layers/norm_forward.cpp.
#include "regard/layer_norm.h"

#include <limits>

#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/instruction_sets.h"

namespace regard::layer_norm_test {
namespace {

template <class T>
struct NormInputs {
  Array<T, 2> input, addend;
  Array<T, 1> gain, bias;
  bool adds = true;

  TensorView<const T, 2> addend_view() const { return adds ? addend.view() : TensorView<const T, 2>{}; }
};

template <class T>
NormInputs<T> normal_inputs(std::uint64_t seed, Index R, Index E, bool adds = true) {
  Random random(seed);
  NormInputs<T> inputs;
  inputs.input = normal_array<T, 2>(random, {R, E});
  inputs.addend = normal_array<T, 2>(random, {R, E});
  inputs.gain = normal_array<T, 1>(random, {E});
  inputs.bias = normal_array<T, 1>(random, {E});
  inputs.adds = adds;
  return inputs;
}

constexpr double kEpsilon = 1e-12;

template <class T>
std::vector<T> run(const NormInputs<T>& inputs, const Layout<2>& layout = Layout<2>::dense(),
                   const Runtime& runtime = {}) {
  Array<T, 2> output(inputs.input.shape(), layout);
  layer_norm_forward<T>(inputs.input.view(), inputs.addend_view(), inputs.gain.view(), inputs.bias.view(),
                        output.view(), kEpsilon, runtime);
  const std::vector<T> values = output.values();
  EXPECT_TRUE(output.surroundings_untouched());
  return values;
}

template <class T>
class LayerNorm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNorm, Types);

TYPED_TEST(LayerNorm, MatchesTheFormulaRoundedOnce) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  for (const Index E : {1, 2, 15, 16, 17, 31, 33, 384, 1000}) {
    for (const bool adds : {true, false}) {
      const auto inputs = normal_inputs<T>(static_cast<std::uint64_t>(E), 21, E, adds);
      const std::vector<T> output = run(inputs);
      for (Index r = 0; r < 21; ++r) {
        std::vector<W> x;
        W mean = 0, variance = 0;
        for (Index e = 0; e < E; ++e) {
          x.push_back(static_cast<W>(adds ? static_cast<T>(inputs.input.get({r, e}) + inputs.addend.get({r, e}))
                                          : inputs.input.get({r, e})));
          mean += x.back();
        }
        mean /= static_cast<W>(E);
        W largest = 0;
        for (const W number : x) {
          variance += (number - mean) * (number - mean);
          largest = std::max(largest, std::abs(number));
        }
        variance /= static_cast<W>(E);
        const W deviation = std::sqrt(variance + W{kEpsilon});
        for (Index e = 0; e < E; ++e) {
          const W gain = static_cast<W>(inputs.gain.get({e})), bias = static_cast<W>(inputs.bias.get({e}));
          const W exact = (x[static_cast<std::size_t>(e)] - mean) / deviation * gain + bias;
          const W bound =
              reference::kUnit<T> * std::abs(exact) +
              W{0x1p-50} * (std::abs(gain) * (std::sqrt(static_cast<W>(E)) + largest / deviation) + std::abs(bias));
          EXPECT_LE(std::abs(static_cast<W>(output[static_cast<std::size_t>(r * E + e)]) - exact), bound)
              << r << " " << e << " of " << E;
        }
      }
    }
  }
}

TYPED_TEST(LayerNorm, LayoutsThreadsAndOtherRowsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270220);
  for (int n = 0; n < 60; ++n) {
    const Index R = random.integer(1, 90), E = random.integer(1, 70);
    NormInputs<T> strided;
    strided.input = Array<T, 2>({R, E}, random_layout<2>(random, false));
    strided.addend = Array<T, 2>({R, E}, random_layout<2>(random, false));
    strided.gain = Array<T, 1>({E}, random_layout<1>(random, false));
    strided.bias = Array<T, 1>({E}, random_layout<1>(random, false));
    strided.adds = n % 3 != 0;
    strided.input.fill([&] { return random.normal(); });
    strided.addend.fill([&] { return random.normal(); });
    strided.gain.fill([&] { return random.normal(); });
    strided.bias.fill([&] { return random.normal(); });
    NormInputs<T> dense;
    dense.input = relaid(strided.input, Layout<2>::dense());
    dense.addend = relaid(strided.addend, Layout<2>::dense());
    dense.gain = relaid(strided.gain, Layout<1>::dense());
    dense.bias = relaid(strided.bias, Layout<1>::dense());
    dense.adds = strided.adds;
    EXPECT_EQ(bits_of(run(strided, random_layout<2>(random, true))), bits_of(run(dense))) << "call " << n;
  }
  const auto inputs = normal_inputs<T>(20270221, 300, 90);
  const std::vector<T> whole = run(inputs, Layout<2>::dense(), {.num_threads = 1});
  EXPECT_EQ(bits_of(run(inputs, Layout<2>::dense(), {.num_threads = 5})), bits_of(whole));
  std::vector<T> alone(90);
  layer_norm_forward<T>({inputs.input.view().pointer(217, 0), {1, 90}}, {inputs.addend.view().pointer(217, 0), {1, 90}},
                        inputs.gain.view(), inputs.bias.view(), TensorView<T, 2>(alone.data(), {1, 90}), kEpsilon);
  EXPECT_EQ(bits_of(alone), bits_of(std::vector<T>(whole.begin() + 217 * 90, whole.begin() + 218 * 90)));
}

// The order documented in src/kernels/norm_rows.h, one element after another.
template <class Term>
double sum_in_lanes(Index count, const Term& term) {
  double lanes[16] = {};
  for (Index e = 0; e < count; ++e) lanes[e % 16] += term(e);
  for (Index half = 8; half > 0; half /= 2) {
    for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

TYPED_TEST(LayerNorm, HasTheSameBitsOnEveryInstructionSet) {
  using T = TypeParam;
  for (Index E = 1; E < 70; ++E) {
    const auto inputs = normal_inputs<T>(static_cast<std::uint64_t>(E), 3, E);
    std::vector<T> expected;
    for (Index r = 0; r < 3; ++r) {
      std::vector<double> x;
      for (Index e = 0; e < E; ++e)
        x.push_back(static_cast<double>(static_cast<T>(inputs.input.get({r, e}) + inputs.addend.get({r, e}))));
      const auto at = [&](Index e) { return x[static_cast<std::size_t>(e)]; };
      const double mean = sum_in_lanes(E, at) / static_cast<double>(E);
      const double variance =
          sum_in_lanes(E, [&](Index e) { return (at(e) - mean) * (at(e) - mean); }) / static_cast<double>(E);
      const double deviation = std::sqrt(variance + kEpsilon);
      for (Index e = 0; e < E; ++e)
        expected.push_back(static_cast<T>((at(e) - mean) / deviation * static_cast<double>(inputs.gain.get({e})) +
                                          static_cast<double>(inputs.bias.get({e}))));
    }
    on_every_instruction_set(
        [&](const kernels::KernelTable& table) { EXPECT_EQ(run(inputs), expected) << table.name << " " << E; });
  }
}

// Rows of several tiles of columns, quotients that are zero, and deviations of every magnitude.
TYPED_TEST(LayerNorm, QuotientsHaveTheBitsOfADivision) {
  using T = TypeParam;
  for (const Index E : {1023, 1024, 1025, 2100}) {
    for (const int exponent : {-100, -30, 0, 30, 60}) {
      auto inputs = normal_inputs<T>(static_cast<std::uint64_t>(E), 9, E, false);
      Random random(static_cast<std::uint64_t>(E));
      inputs.input.fill([&] { return std::ldexp(random.normal(), exponent); });
      for (Index e = 0; e < E; ++e) {
        inputs.input.set(
            {3, e}, static_cast<T>(e % 2 == 0 ? -0.0 : static_cast<double>((e & 2) - 1)));  // mean 0, or close to it
        inputs.bias.set({e}, static_cast<T>(-0.0));
      }
      std::vector<T> expected;
      for (Index r = 0; r < 9; ++r) {
        const auto at = [&](Index e) { return static_cast<double>(inputs.input.get({r, e})); };
        const double mean = sum_in_lanes(E, at) / static_cast<double>(E);
        const double variance =
            sum_in_lanes(E, [&](Index e) { return (at(e) - mean) * (at(e) - mean); }) / static_cast<double>(E);
        const double deviation = std::sqrt(variance + kEpsilon);
        for (Index e = 0; e < E; ++e)
          expected.push_back(
              static_cast<T>((at(e) - mean) / deviation * static_cast<double>(inputs.gain.get({e})) - 0.0));
      }
      on_every_instruction_set([&](const kernels::KernelTable& table) {
        EXPECT_TRUE(same_bits(bits_of(run(inputs)), bits_of(expected))) << table.name << " " << E << " " << exponent;
      });
    }
  }
}

TYPED_TEST(LayerNorm, NaNStaysInItsRowAndConstantRowsGiveTheBias) {
  using T = TypeParam;
  auto inputs = normal_inputs<T>(20270222, 5, 33, false);
  const std::vector<T> clean = run(inputs);
  inputs.input.set({2, 4}, std::numeric_limits<T>::quiet_NaN());
  for (Index e = 0; e < 33; ++e) inputs.input.set({3, e}, 7);
  const std::vector<T> output = run(inputs);
  for (Index r = 0; r < 5; ++r) {
    for (Index e = 0; e < 33; ++e) {
      const auto at = static_cast<std::size_t>(r * 33 + e);
      if (r == 2) {
        EXPECT_TRUE(std::isnan(output[at]));
      } else if (r == 3) {
        EXPECT_EQ(output[at], inputs.bias.get({e}));
      } else {
        EXPECT_EQ(output[at], clean[at]);
      }
    }
  }
}

TYPED_TEST(LayerNorm, WithoutBiasNothingIsAdded) {
  using T = TypeParam;
  for (const Index E : {5, 70, 1500}) {
    auto inputs = normal_inputs<T>(20270223, 21, E);
    for (Index e = 0; e < E; ++e) inputs.bias.set({e}, 0);
    Array<T, 2> output({21, E});
    layer_norm_forward<T>(inputs.input.view(), inputs.addend_view(), inputs.gain.view(), {}, output.view(), kEpsilon);
    EXPECT_EQ(output.values(), run(inputs));
  }
}

TEST(LayerNormTypes, BfloatOutputIsThatOfFloatRoundedOnce) {
  NormInputs<float> wide = normal_inputs<float>(20270224, 30, 41);
  Array<bfloat16, 2> input({30, 41}), addend({30, 41}), output({30, 41});
  Array<bfloat16, 1> gain({41}), bias({41});
  const auto round = [](auto& from, auto& to) {
    to.for_each_index([&](const auto& at) {
      to.set(at, bfloat16(from.get(at)));
      from.set(at, static_cast<float>(to.get(at)));
    });
  };
  round(wide.input, input);
  round(wide.addend, addend);
  round(wide.gain, gain);
  round(wide.bias, bias);
  layer_norm_forward<bfloat16>(std::as_const(input).view(), std::as_const(addend).view(), std::as_const(gain).view(),
                               std::as_const(bias).view(), output.view(), kEpsilon);
  const std::vector<bfloat16> got = output.values();
  std::size_t n = 0;
  for (const float exact : run(wide)) EXPECT_EQ(got[n++].bits, bfloat16(exact).bits);
}

TYPED_TEST(LayerNorm, InvalidArgumentsAreRejectedBeforeAnyWork) {
  using T = TypeParam;
  const std::vector<T> numbers(200, 1);
  std::vector<T> output(200, 7);
  const auto call = [&](std::array<Index, 2> addend, Index gain, Index bias, TensorView<T, 2> out, double epsilon) {
    return rejection([&] {
      layer_norm_forward<T>({numbers.data(), {3, 4}}, {numbers.data(), addend}, {numbers.data(), {gain}},
                            {numbers.data(), {bias}}, out, epsilon);
    });
  };
  const TensorView<T, 2> out(output.data(), {3, 4});
  EXPECT_EQ(call({4, 3}, 4, 4, out, 0), "layer_norm_forward: addend has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(call({3, 4}, 3, 4, out, 0), "layer_norm_forward: gain has shape (3); expected (4) for input (3, 4)");
  EXPECT_EQ(call({3, 4}, 4, 5, out, 0), "layer_norm_forward: bias has shape (5); expected (4) for input (3, 4)");
  EXPECT_EQ(call({3, 4}, 4, 4, {output.data(), {4, 3}}, 0),
            "layer_norm_forward: output has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(call({3, 4}, 4, 4, out, -1).rfind("layer_norm_forward: epsilon is -1", 0), 0u);
  EXPECT_NE(call({3, 4}, 4, 4, out, std::nan("")), "accepted");
  EXPECT_EQ(rejection([&] {
              layer_norm_forward<T>({output.data(), {3, 4}}, {}, {numbers.data(), {4}}, {numbers.data(), {4}},
                                    TensorView<T, 2>(output.data() + 3, {3, 4}), 0);
            }).rfind("layer_norm_forward: output overlaps input", 0),
            0u);
  EXPECT_EQ(output, std::vector<T>(200, 7));
  EXPECT_EQ(call({3, 4}, 4, 4, out, 0), "accepted");
}

}  // namespace
}  // namespace regard::layer_norm_test
