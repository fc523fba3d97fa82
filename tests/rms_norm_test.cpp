// SPDX-License-Identifier: Apache-2.0
//
// rms_norm_forward compared with the formula in a wider type, in every layout, with bits that depend only on the row;
// and every rejection. The gradients are tested in norm_gradients_test.cpp.
//
//   error ≤ u · |result| + 2⁻⁵⁰ · |gain| · √E: rounded once
//
// Read next: layer_norm_test.cpp.
#include "regard/rms_norm.h"

#include <limits>

#include "regard/layer_norm.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/instruction_sets.h"

namespace regard::rms_norm_test {
namespace {

constexpr double kEpsilon = 1e-6;

template <class T>
struct RmsInputs {
  Array<T, 2> input, addend;
  Array<T, 1> gain;
  bool adds = true;

  RmsInputs() = default;
  RmsInputs(std::uint64_t seed, Index R, Index E) {
    Random random(seed);
    input = normal_array<T, 2>(random, {R, E});
    addend = normal_array<T, 2>(random, {R, E});
    gain = normal_array<T, 1>(random, {E});
  }
};

template <class T>
std::vector<T> run(const RmsInputs<T>& inputs, const Layout<2>& layout = Layout<2>::dense(),
                   const Runtime& runtime = {}) {
  Array<T, 2> output(inputs.input.shape(), layout);
  rms_norm_forward<T>(inputs.input.view(), inputs.adds ? inputs.addend.view() : TensorView<const T, 2>{},
                      inputs.gain.view(), output.view(), kEpsilon, runtime);
  const std::vector<T> values = output.values();
  EXPECT_TRUE(output.surroundings_untouched());
  return values;
}

template <class T>
class RmsNorm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RmsNorm, Types);

TYPED_TEST(RmsNorm, MatchesTheFormulaRoundedOnce) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Index E : {1, 2, 7, 8, 9, 15, 16, 17, 33, 384, 1000, 1025, 2100}) {
      for (const bool adds : {true, false}) {
        RmsInputs<T> inputs(static_cast<std::uint64_t>(E), 11, E);
        inputs.adds = adds;
        const std::vector<T> output = run(inputs);
        for (Index r = 0; r < 11; ++r) {
          std::vector<W> x;
          W square = 0;
          for (Index e = 0; e < E; ++e) {
            const T element = inputs.input.get({r, e});
            x.push_back(static_cast<W>(adds ? static_cast<T>(element + inputs.addend.get({r, e})) : element));
            square += x.back() * x.back();
          }
          const W deviation = std::sqrt(square / static_cast<W>(E) + W{kEpsilon});
          for (Index e = 0; e < E; ++e) {
            const W gain = static_cast<W>(inputs.gain.get({e}));
            const W exact = x[static_cast<std::size_t>(e)] / deviation * gain;
            EXPECT_LE(
                std::abs(static_cast<W>(output[static_cast<std::size_t>(r * E + e)]) - exact),
                reference::kUnit<T> * std::abs(exact) + W{0x1p-50} * std::abs(gain) * std::sqrt(static_cast<W>(E)))
                << r << " " << e << " of " << E;
          }
        }
      }
    }
  });
}

TYPED_TEST(RmsNorm, LayoutsThreadsAndOtherRowsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270302);
  for (int n = 0; n < 40; ++n) {
    const Index R = random.integer(1, 90), E = random.integer(1, 70);
    RmsInputs<T> dense(static_cast<std::uint64_t>(n), R, E), strided;
    strided.adds = dense.adds = n % 3 != 0;
    strided.input = relaid(dense.input, random_layout<2>(random, false));
    strided.addend = relaid(dense.addend, random_layout<2>(random, false));
    strided.gain = relaid(dense.gain, random_layout<1>(random, false));
    // Axes of stride 0 repeat elements.
    dense.input = relaid(strided.input, Layout<2>::dense());
    dense.addend = relaid(strided.addend, Layout<2>::dense());
    dense.gain = relaid(strided.gain, Layout<1>::dense());
    EXPECT_EQ(bits_of(run(strided, random_layout<2>(random, true))), bits_of(run(dense))) << "call " << n;
  }
  const RmsInputs<T> inputs(20270303, 400, 90);
  const std::vector<T> whole = run(inputs, Layout<2>::dense(), {.num_threads = 1});
  EXPECT_EQ(bits_of(run(inputs, Layout<2>::dense(), {.num_threads = 5})), bits_of(whole));
  std::vector<T> alone(90);
  rms_norm_forward<T>({inputs.input.view().pointer(217, 0), {1, 90}}, {inputs.addend.view().pointer(217, 0), {1, 90}},
                      inputs.gain.view(), TensorView<T, 2>(alone.data(), {1, 90}), kEpsilon);
  EXPECT_EQ(bits_of(alone), bits_of(std::vector<T>(whole.begin() + 217 * 90, whole.begin() + 218 * 90)));
}

TYPED_TEST(RmsNorm, HasTheSameBitsOnEveryInstructionSet) {
  using T = TypeParam;
  for (const Index E : {1, 13, 64, 100, 1030}) {
    const RmsInputs<T> inputs(static_cast<std::uint64_t>(E), 9, E);
    std::vector<std::uint64_t> expected;
    on_every_instruction_set([&](const kernels::KernelTable& table) {
      const auto bits = bits_of(run(inputs));
      if (expected.empty()) expected = bits;
      EXPECT_TRUE(same_bits(bits, expected)) << table.name << " " << E;
    });
  }
}

TYPED_TEST(RmsNorm, ZerosStayZerosAndNaNStaysInItsRow) {
  using T = TypeParam;
  RmsInputs<T> inputs(20270304, 5, 33);
  inputs.adds = false;
  const std::vector<T> clean = run(inputs);
  inputs.input.set({2, 4}, std::numeric_limits<T>::quiet_NaN());
  for (Index e = 0; e < 33; ++e) inputs.input.set({3, e}, 0);
  const std::vector<T> output = run(inputs);
  for (Index r = 0; r < 5; ++r) {
    for (Index e = 0; e < 33; ++e) {
      const T got = output[static_cast<std::size_t>(r * 33 + e)];
      if (r == 2) {
        EXPECT_TRUE(std::isnan(got));
      } else {
        EXPECT_EQ(got, r == 3 ? T{0} : clean[static_cast<std::size_t>(r * 33 + e)]);
      }
    }
  }
}

TEST(RmsNormTypes, BfloatOutputIsThatOfFloatRoundedOnce) {
  Random random(20270305);
  RmsInputs<float> wide(1, 30, 41);
  Array<bfloat16, 2> input({30, 41}), addend({30, 41}), output({30, 41});
  Array<bfloat16, 1> gain({41});
  const auto round = [](auto& from, auto& to) {
    to.for_each_index([&](const auto& at) {
      to.set(at, bfloat16(from.get(at)));
      from.set(at, static_cast<float>(to.get(at)));
    });
  };
  round(wide.input, input);
  round(wide.addend, addend);
  round(wide.gain, gain);
  rms_norm_forward<bfloat16>(std::as_const(input).view(), std::as_const(addend).view(), std::as_const(gain).view(),
                             output.view(), kEpsilon);
  std::size_t n = 0;
  for (const float exact : run(wide)) EXPECT_EQ(output.values()[n++].bits, bfloat16(exact).bits);
}

TYPED_TEST(RmsNorm, InvalidArgumentsAreRejectedBeforeAnyWork) {
  using T = TypeParam;
  const std::vector<T> numbers(200, 1);
  std::vector<T> output(200, 7);
  const auto call = [&](std::array<Index, 2> addend, Index gain, TensorView<T, 2> out, double epsilon) {
    return rejection([&] {
      rms_norm_forward<T>({numbers.data(), {3, 4}}, {numbers.data(), addend}, {numbers.data(), {gain}}, out, epsilon);
    });
  };
  const TensorView<T, 2> out(output.data(), {3, 4});
  EXPECT_EQ(call({4, 3}, 4, out, 0), "rms_norm_forward: addend has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(call({3, 4}, 3, out, 0), "rms_norm_forward: gain has shape (3); expected (4) for input (3, 4)");
  EXPECT_EQ(call({3, 4}, 4, {output.data(), {4, 3}}, 0), "rms_norm_forward: output has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(call({3, 4}, 4, out, -1).rfind("rms_norm_forward: epsilon is -1", 0), 0u);
  EXPECT_EQ(rejection([&] {
              rms_norm_forward<T>({output.data(), {3, 4}}, {}, {numbers.data(), {4}},
                                  TensorView<T, 2>(output.data() + 3, {3, 4}), 0);
            }),
            "rms_norm_forward: output overlaps input; expected separate memory");
  EXPECT_EQ(output, std::vector<T>(200, 7));
  EXPECT_EQ(call({3, 4}, 4, out, 0), "accepted");
}

}  // namespace
}  // namespace regard::rms_norm_test
