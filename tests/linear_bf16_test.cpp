// SPDX-License-Identifier: Apache-2.0
//
// linear_forward of bfloat16: compared with double where values are multiplied without conversion (on every table, with
// its own dot product or AMX, or their emulation), and bit by bit with the converted call elsewhere; outputs of float
// and of bfloat16.
//
//   error of a float output ≤ max(2 · error of one chain of products in float,  8u · Σ |input · weight|)
//   an output of bfloat16 is that of float, rounded once
//
// Read next: linear_test.cpp, src/layers/linear.cpp.
#include <bit>
#include <limits>
#include <map>

#include "kernels/layer_table.h"
#include "regard/linear.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::linear_bf16_test {
namespace {

using B16 = bfloat16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kSmallestNormal = 0x1p-126;

template <class To, class From, int Rank>
Array<To, Rank> converted(const Array<From, Rank>& from, const Layout<Rank>& layout = Layout<Rank>::dense()) {
  Array<To, Rank> to(from.shape(), layout);
  from.for_each_index([&](const auto& at) { to.set(at, static_cast<To>(from.get(at))); });
  return to;
}

struct Inputs {
  Array<B16, 2> input, weight;
  std::optional<Array<B16, 1>> bias;

  Index R() const { return input.shape()[0]; }
  Index I() const { return input.shape()[1]; }
  Index O() const { return weight.shape()[1]; }
  TensorView<const B16, 1> bias_view() const { return bias ? bias->view() : TensorView<const B16, 1>{}; }

  static Inputs normal(std::uint64_t seed, Index R, Index I, Index O, bool with_bias = true) {
    Random random(seed);
    Inputs inputs;
    inputs.input = converted<B16>(normal_array<float, 2>(random, {R, I}));
    inputs.weight = converted<B16>(normal_array<float, 2>(random, {I, O}));
    if (with_bias) inputs.bias = converted<B16>(normal_array<float, 1>(random, {O}));
    return inputs;
  }
};

enum class Packed { at_the_call, once };

template <class Output>
std::vector<Output> run(const Inputs& inputs, Packed packed = Packed::at_the_call,
                        Activation activation = Activation::none, const Layout<2>& layout = Layout<2>::dense(),
                        const Runtime& runtime = {}) {
  Array<Output, 2> output({inputs.R(), inputs.O()}, layout);
  if (packed == Packed::once) {
    const PackedLinear<B16> panels(inputs.weight.view(), runtime);
    linear_forward(inputs.input.view(), panels, inputs.bias_view(), output.view(), {activation}, runtime);
  } else {
    linear_forward(inputs.input.view(), inputs.weight.view(), inputs.bias_view(), output.view(), runtime);
  }
  const std::vector<Output> values = output.values();
  EXPECT_TRUE(output.surroundings_untouched());
  return values;
}

// The same call with the same values as float.
std::vector<float> run_converted(const Inputs& inputs, Activation activation = Activation::none) {
  const Array<float, 2> input = converted<float>(inputs.input), weight = converted<float>(inputs.weight);
  std::optional<Array<float, 1>> bias;
  if (inputs.bias) bias = converted<float>(*inputs.bias);
  Array<float, 2> output({inputs.R(), inputs.O()});
  const PackedLinear<float> packed(std::as_const(weight).view());
  linear_forward<float>(input.view(), packed, bias ? std::as_const(*bias).view() : TensorView<const float, 1>{},
                        output.view(), {activation});
  return output.values();
}

std::vector<B16> rounded(const std::vector<float>& numbers) {
  std::vector<B16> result;
  for (const float x : numbers) result.push_back(B16(x));
  return result;
}

void expect_close(const Inputs& inputs, const std::vector<float>& output) {
  const Array<float, 2> input = converted<float>(inputs.input), weight = converted<float>(inputs.weight);
  std::optional<Array<float, 1>> bias;
  if (inputs.bias) bias = converted<float>(*inputs.bias);
  const auto exact = reference::linear<float>(input.view(), weight.view(),
                                              bias ? std::as_const(*bias).view() : TensorView<const float, 1>{});
  ASSERT_EQ(output.size(), exact.output.size());
  int faults = 0;
  for (std::size_t at = 0; at < output.size(); ++at) {
    const auto r = static_cast<Index>(at) / inputs.O(), o = static_cast<Index>(at) % inputs.O();
    float plain = 0;
    for (Index i = 0; i < inputs.I(); ++i) plain += input.get({r, i}) * weight.get({i, o});
    if (bias) plain += bias->get({o});
    // Every product and sum below the smallest normal number may be lost.
    const double bound = std::max(2 * std::abs(static_cast<double>(plain) - exact.output[at]),
                                  8 * reference::kUnit<float> * exact.magnitude[at]) +
                         static_cast<double>(inputs.I() + 1) * kSmallestNormal;
    if (agrees<float>(output[at], exact.output[at], bound) || ++faults > 6) continue;
    ADD_FAILURE() << "element " << at << " of (" << inputs.R() << ", " << inputs.I() << ", " << inputs.O()
                  << "): " << output[at] << ", expected " << exact.output[at] << ", allowed " << bound;
  }
}

// How bfloat16 is multiplied: converted to float, by the dot product of pairs, or by AMX.
enum class Form { converted, pairs, amx };

// On every table as it is, with pairs, and with AMX.
template <class F>
void on_every_table(F f) {
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    f(table, table.bf16_amx ? Form::amx : table.bf16_dot ? Form::pairs : Form::converted);
  });
  on_every_dot_table([&](const kernels::KernelTable& table) { f(table, Form::pairs); });
  on_every_amx_table([&](const kernels::KernelTable& table) { f(table, Form::amx); });
}

TEST(LinearBf16, SizesAroundEveryTileEdge) {
  constexpr Index kEdges[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 31, 32, 33, 59, 60, 61, 64, 65, 121, 127};
  std::vector<std::array<Index, 3>> shapes{{3, 513, 520}, {70, 40, 550}};
  for (const Index n : kEdges) {
    shapes.push_back({n, 17, 33});
    shapes.push_back({13, n, 31});
    shapes.push_back({5, 9, n});
  }
  for (const Index n : {255, 256, 257, 511, 512, 513, 8191, 8192, 8193}) shapes.push_back({13, n, 33});
  Random random(20270301);
  for (int n = 0; n < test_size(60, 10); ++n) {
    shapes.push_back({random.integer(1, 70), random.integer(1, 300), random.integer(1, 70)});
  }
  for (const auto& [R, I, O] : shapes) {
    const Inputs inputs = Inputs::normal(static_cast<std::uint64_t>(R * 1'000'000 + I * 1000 + O), R, I, O, R % 2 == 0);
    std::map<Form, std::vector<std::uint64_t>> fused;
    on_every_table([&](const kernels::KernelTable& table, Form form) {
      const std::vector<float> output = run<float>(inputs);
      expect_close(inputs, output);
      EXPECT_EQ(bits_of(run<float>(inputs, Packed::once)), bits_of(output));
      EXPECT_EQ(bits_of(run<B16>(inputs)), bits_of(rounded(output)));
      EXPECT_TRUE(form != Form::converted || bits_of(output) == bits_of(run_converted(inputs)));
      if (!table.fused_multiply_add) return;
      EXPECT_TRUE(fused.try_emplace(form, bits_of(output)).first->second == bits_of(output))
          << R << " " << I << " " << O;
    });
    if (testing::Test::HasFailure()) return;
  }
}

// The chain of pairs that the dot product defines, with 128 pairs per segment.
TEST(LinearBf16, ElementsAreChainsOf128PairsWithTheSecondElementFirst) {
  const Inputs inputs = Inputs::normal(20270302, 13, 601, 37);
  std::vector<float> expected;
  for (Index r = 0; r < 13; ++r) {
    for (Index o = 0; o < 37; ++o) {
      float sum = 0;
      for (Index first = 0; first < 601; first += 256) {
        float chain = 0;
        for (Index i = first; i < std::min<Index>(601, first + 256); i += 2) {
          for (const Index at : {i + 1, i}) {
            if (at == 601) continue;
            chain = std::fma(static_cast<float>(inputs.input.get({r, at})),
                             static_cast<float>(inputs.weight.get({at, o})), chain);
          }
        }
        sum += chain;
      }
      expected.push_back(sum + static_cast<float>(inputs.bias->get({o})));
    }
  }
  on_every_dot_table([&](const kernels::KernelTable& table) {
    if (!table.fused_multiply_add) return;
    EXPECT_EQ(bits_of(run<float>(inputs)), bits_of(expected));
  });
}

// The steps of 32 elements that AMX defines, with 256 steps per segment.
TEST(LinearBf16, WithAmxElementsAreChainsOfStepsOf32) {
  // The last, without a bias, is computed in parts of 8192.
  for (const auto& [R, I, O] : {std::array<Index, 3>{17, 601, 37}, {3, 8192 + 40, 5}, {3, 2 * 8192 + 40, 5}}) {
    const Inputs inputs = Inputs::normal(20270310, R, I, O, I < 2 * 8192);
    std::vector<float> expected;
    for (Index r = 0; r < R; ++r) {
      for (Index o = 0; o < O; ++o) {
        float sum = 0;
        for (Index segment = 0; segment < I; segment += 8192) {
          float chain = 0;
          for (Index first = segment; first < std::min(I, segment + 8192); first += 32) {
            float parts[2] = {0, 0};
            for (Index i = first; i < std::min(I, first + 32); ++i) {
              parts[i % 2] = std::fma(static_cast<float>(inputs.input.get({r, i})),
                                      static_cast<float>(inputs.weight.get({i, o})), parts[i % 2]);
            }
            chain += parts[0] + parts[1];
          }
          sum += chain;
        }
        expected.push_back(inputs.bias ? sum + static_cast<float>(inputs.bias->get({o})) : sum);
      }
    }
    on_every_amx_table([&](const kernels::KernelTable& table) {
      if (!table.fused_multiply_add) return;
      EXPECT_EQ(bits_of(run<float>(inputs)), bits_of(expected));
    });
  }
}

// Magnitudes from the largest to the subnormal, with infinities, NaN and zeros of both signs.
TEST(LinearBf16, TheEmulationOfAmxHasTheBitsOfTheInstruction) {
  Random random(20270311);
  for (int n = 0; n < 40; ++n) {
    Inputs inputs = Inputs::normal(1, 33, random.integer(1, 90), 40);
    const auto any = [&] {
      B16 x;
      x.bits = static_cast<std::uint16_t>(random.integer(0, 0xffff));
      const bool rare = std::isnan(static_cast<float>(x)) || std::isinf(static_cast<float>(x));
      if (rare && n % 4 != 0) return B16(0x1p-130f);
      const int size = static_cast<int>(random.integer(-70, 3));
      return n % 2 == 0 ? x : B16(std::ldexp(1.0f + static_cast<float>(random.integer(-127, 127)) / 128, size));
    };
    inputs.input.fill(any);
    inputs.weight.fill(any);
    inputs.bias.reset();
    std::vector<float> first;
    on_every_amx_table([&](const kernels::KernelTable& table) {
      if (!table.fused_multiply_add) return;
      const std::vector<float> output = run<float>(inputs);
      if (first.empty()) first = output;
      for (std::size_t at = 0; at < output.size(); ++at) {
        EXPECT_TRUE(std::isnan(output[at])
                        ? std::isnan(first[at])
                        : std::bit_cast<std::uint32_t>(output[at]) == std::bit_cast<std::uint32_t>(first[at]))
            << n << ": element " << at << " is " << output[at] << ", expected " << first[at];
      }
    });
    if (HasFailure()) return;
  }
}

TEST(LinearBf16, LayoutsDoNotChangeBits) {
  Random random(20270303);
  for (int n = 0; n < 60; ++n) {
    const Index R = random.integer(1, 70), I = random.integer(1, 40), O = random.integer(1, 70);
    const Inputs dense = Inputs::normal(static_cast<std::uint64_t>(n), R, I, O);
    Inputs strided;
    strided.input = relaid(dense.input, random_layout<2>(random, true));
    strided.weight = relaid(dense.weight, random_layout<2>(random, true));
    strided.bias = relaid(*dense.bias, random_layout<1>(random, true));
    const Layout<2> output_layout = random_layout<2>(random, true);
    on_every_table([&](const kernels::KernelTable&, Form) {
      for (const Packed packed : {Packed::at_the_call, Packed::once}) {
        EXPECT_EQ(bits_of(run<float>(strided, packed, Activation::none, output_layout)), bits_of(run<float>(dense)));
        EXPECT_EQ(bits_of(run<B16>(strided, packed, Activation::none, output_layout)), bits_of(run<B16>(dense)));
      }
    });
  }
}

TEST(LinearBf16, ActivationIsAppliedBeforeRounding) {
  for (const auto& [R, I, O] : {std::array<Index, 3>{1, 3, 1}, {13, 17, 33}, {61, 300, 65}, {130, 64, 530}}) {
    const Inputs inputs = Inputs::normal(20270304, R, I, O);
    on_every_table([&](const kernels::KernelTable& table, Form) {
      const std::vector<float> plain = run<float>(inputs);
      const auto count = static_cast<Index>(plain.size());
      std::vector<float> expected(plain.size());
      const auto check = [&](Activation activation) {
        EXPECT_EQ(bits_of(run<float>(inputs, Packed::once, activation)), bits_of(expected));
        EXPECT_EQ(bits_of(run<B16>(inputs, Packed::once, activation)), bits_of(rounded(expected)));
      };
      table.f32.gelu(plain.data(), expected.data(), count);
      check(Activation::gelu);
      table.f32.gelu_tanh(plain.data(), expected.data(), count);
      check(Activation::gelu_tanh);
      table.f32.layers->activate(kernels::Activation::silu, plain.data(), count, expected.data());
      check(Activation::silu);
      for (std::size_t at = 0; at < plain.size(); ++at) expected[at] = std::max(plain[at], 0.0f);
      check(Activation::relu);
    });
  }
}

TEST(LinearBf16, ThreadsAndOtherRowsDoNotChangeBits) {
  const Inputs inputs = Inputs::normal(20270305, 130, 91, 530);
  on_every_table([&](const kernels::KernelTable&, Form) {
    const std::vector<float> whole =
        run<float>(inputs, Packed::once, Activation::gelu, Layout<2>::dense(), {.num_threads = 1});
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(bits_of(run<float>(inputs, Packed::once, Activation::gelu, Layout<2>::dense(),
                                     {.num_threads = threads})) == bits_of(whole));
    }
    const PackedLinear<B16> panels(inputs.weight.view());
    for (const Index r : {0, 59, 60, 129}) {
      std::vector<float> row(530);
      linear_forward({std::as_const(inputs).input.view().pointer(r, 0), {1, 91}}, panels, inputs.bias_view(),
                     TensorView<float, 2>(row.data(), {1, 530}), {Activation::gelu});
      EXPECT_EQ(bits_of(row), bits_of(std::vector<float>(whole.begin() + r * 530, whole.begin() + (r + 1) * 530)));
    }
  });
}

TEST(LinearBf16, SmallIntegersTimesPowersOfTwoAreExact) {
  for (const auto& [R, I, O] : {std::array<Index, 3>{61, 300, 65}, {7, 513, 33}, {1, 64, 100}}) {
    Inputs inputs = Inputs::normal(1, R, I, O);
    Random random(20270306);
    const auto integer = [&](float unit) { return static_cast<float>(random.integer(-63, 63)) * unit; };
    inputs.input.fill([&] { return integer(0x1p-20f); });
    inputs.weight.fill([&] { return integer(0x1p+40f); });
    inputs.bias->fill([&] { return integer(0x1p+20f); });
    on_every_table([&](const kernels::KernelTable&, Form) { EXPECT_EQ(run<float>(inputs), run_converted(inputs)); });
  }
}

TEST(LinearBf16, SubnormalsAreKeptWhenConvertedAndZeroOtherwise) {
  const B16 tiny(0x1p-133f), one(1.0f);
  const B16 input[] = {tiny, one}, weight[] = {one, B16(0.0f)};
  on_every_table([&](const kernels::KernelTable&, Form form) {
    float output = 7;
    linear_forward({input, {1, 2}}, {weight, {2, 1}}, {}, TensorView<float, 2>(&output, {1, 1}));
    EXPECT_EQ(output, form == Form::converted ? 0x1p-133f : 0);
    // A subnormal result in bfloat16 is rounded, not lost.
    B16 narrow(7.0f);
    linear_forward({input + 1, {1, 1}}, {weight + 1, {1, 1}}, {&tiny, {1}}, TensorView<B16, 2>(&narrow, {1, 1}));
    EXPECT_EQ(narrow.bits, tiny.bits);
  });
}

TEST(LinearBf16, NonFiniteValuesAffectOnlyTheirRowOrColumn) {
  Inputs inputs = Inputs::normal(20270307, 65, 21, 40);
  on_every_table([&](const kernels::KernelTable&, Form) {
    inputs = Inputs::normal(20270307, 65, 21, 40);
    const std::vector<float> expected = run<float>(inputs);
    inputs.input.set({61, 20}, B16(std::numeric_limits<float>::quiet_NaN()));
    inputs.weight.set({19, 5}, B16(std::numeric_limits<float>::quiet_NaN()));
    inputs.bias->set({8}, B16(kInfinity));
    const std::vector<float> output = run<float>(inputs);
    const std::vector<B16> narrow = run<B16>(inputs);
    for (std::size_t at = 0; at < output.size(); ++at) {
      const std::size_t r = at / 40, o = at % 40;
      if (r == 61 || o == 5) {
        EXPECT_TRUE(std::isnan(output[at]) && std::isnan(static_cast<float>(narrow[at])));
      } else {
        EXPECT_EQ(output[at], o == 8 ? kInfinity : expected[at]) << r << " " << o;
        EXPECT_EQ(narrow[at].bits, B16(output[at]).bits);
      }
    }
  });
}

TEST(LinearBf16, EmptyInputRowsGiveTheBias) {
  const Inputs inputs = Inputs::normal(20270308, 61, 0, 33);
  on_every_table([&](const kernels::KernelTable&, Form) {
    const std::vector<B16> output = run<B16>(inputs), packed = run<B16>(inputs, Packed::once);
    for (std::size_t at = 0; at < output.size(); ++at) {
      EXPECT_EQ(output[at].bits, inputs.bias->get({static_cast<Index>(at % 33)}).bits);
      EXPECT_EQ(packed[at].bits, output[at].bits);
    }
    EXPECT_TRUE(run<float>(Inputs::normal(1, 0, 7, 5)).empty());
    EXPECT_TRUE(run<float>(Inputs::normal(1, 7, 5, 0)).empty());
  });
}

TEST(LinearBf16, PanelsHoldPairsAndAreTheSameOnEveryInstructionSet) {
  const Inputs inputs = Inputs::normal(20270309, 7, 5, 40);
  on_every_table([&](const kernels::KernelTable&, Form) {
    const PackedLinear<B16> packed(inputs.weight.view());
    EXPECT_EQ(packed.num_bytes(), 6 * 64 * sizeof(B16));
    for (Index o = 0; o < 64; ++o) {
      for (Index i = 0; i < 6; ++i) {
        const B16 expected = o < 40 && i < 5 ? inputs.weight.get({i, o}) : B16(0.0f);
        EXPECT_EQ(packed.panels()[o / 32 * 192 + i / 2 * 64 + o % 32 * 2 + i % 2].bits, expected.bits) << o << " " << i;
      }
    }
  });
}

TEST(LinearBf16, WrongShapesAndOverlapsAreRejectedBeforeAnyWork) {
  std::vector<B16> numbers(200, B16(1.0f));
  std::vector<float> output(200, 7);
  const auto call = [&](std::array<Index, 2> input, std::array<Index, 1> bias, TensorView<float, 2> to) {
    return rejection(
        [&] { linear_forward({numbers.data(), input}, {numbers.data(), {4, 6}}, {numbers.data(), bias}, to); });
  };
  const auto says = [](const std::string& message, const std::string& part) {
    return message.rfind("linear_forward: ", 0) == 0 && message.find(part) != std::string::npos;
  };
  EXPECT_PRED2(says, call({3, 5}, {6}, {output.data(), {3, 6}}), "weight has shape (4, 6); expected 5 rows");
  EXPECT_PRED2(says, call({3, 6}, {6}, {output.data(), {3, 6}}),
               "expected 6 rows for input (3, 6); transpose an (O, I)");
  EXPECT_PRED2(says, call({3, 4}, {5}, {output.data(), {3, 6}}), "bias has shape (5)");
  EXPECT_PRED2(says, call({3, 4}, {6}, {output.data(), {6, 3}}), "output has shape (6, 3)");
  EXPECT_PRED2(says, call({3, 4}, {6}, {reinterpret_cast<float*>(numbers.data() + 8), {3, 6}}), "output overlaps");
  EXPECT_EQ(output, std::vector<float>(200, 7));
  EXPECT_EQ(call({3, 4}, {6}, {output.data(), {3, 6}}), "accepted");
}

}  // namespace
}  // namespace regard::linear_bf16_test
