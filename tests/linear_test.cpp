// SPDX-License-Identifier: Apache-2.0
//
// linear_forward on every instruction set: sizes around the edges of tiles (12), panels (32), tasks (60) and chains
// (256), every layout, packed once or during the call, activations, bits that depend only on a row and a column, exact
// small integers, and every rejection.
//
//   error ≤ max(2 · error of one chain of products in T,  8u · Σ |input · weight|)
//
// Read next: src/layers/linear.cpp.
#include "regard/linear.h"

#include <limits>

#include "kernels/layer_table.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::linear_test {
namespace {

// One call's arguments; an absent bias has no elements.
template <class T>
struct LinearInputs {
  Array<T, 2> input, weight;
  std::optional<Array<T, 1>> bias;

  Index R() const { return input.shape()[0]; }
  Index I() const { return input.shape()[1]; }
  Index O() const { return weight.shape()[1]; }
  TensorView<const T, 1> bias_view() const { return bias ? bias->view() : TensorView<const T, 1>{}; }

  static LinearInputs normal(std::uint64_t seed, Index R, Index I, Index O, bool with_bias = true) {
    Random random(seed);
    LinearInputs inputs;
    inputs.input = normal_array<T, 2>(random, {R, I});
    inputs.weight = normal_array<T, 2>(random, {I, O});
    if (with_bias) inputs.bias = normal_array<T, 1>(random, {O});
    return inputs;
  }
};

template <class T>
std::vector<T> run(const LinearInputs<T>& inputs, const Layout<2>& layout = Layout<2>::dense(),
                   const Runtime& runtime = {}) {
  Array<T, 2> output({inputs.R(), inputs.O()}, layout);
  linear_forward<T>(inputs.input.view(), inputs.weight.view(), inputs.bias_view(), output.view(), runtime);
  const std::vector<T> values = output.values();
  EXPECT_TRUE(output.surroundings_untouched());
  return values;
}

// The simplest way to compute it in T.
template <class T>
std::vector<T> naive(const LinearInputs<T>& inputs) {
  std::vector<T> output;
  for (Index r = 0; r < inputs.R(); ++r) {
    for (Index o = 0; o < inputs.O(); ++o) {
      T sum = 0;
      for (Index i = 0; i < inputs.I(); ++i) sum += inputs.input.get({r, i}) * inputs.weight.get({i, o});
      output.push_back(inputs.bias ? sum + inputs.bias->get({o}) : sum);
    }
  }
  return output;
}

template <class T>
void expect_close(const LinearInputs<T>& inputs, const std::vector<T>& output) {
  using W = reference::Wide<T>;
  const auto exact = reference::linear<T>(inputs.input.view(), inputs.weight.view(), inputs.bias_view());
  const std::vector<T> plain = naive(inputs);
  ASSERT_EQ(output.size(), exact.output.size());
  int faults = 0;
  for (std::size_t at = 0; at < output.size(); ++at) {
    const W bound = std::max(2 * std::abs(static_cast<W>(plain[at]) - exact.output[at]),
                             8 * reference::kUnit<T> * exact.magnitude[at]);
    if (agrees<T>(output[at], exact.output[at], bound) || ++faults > 6) continue;
    ADD_FAILURE() << "element " << at << " of (" << inputs.R() << ", " << inputs.I() << ", " << inputs.O()
                  << "): " << output[at] << ", expected " << exact.output[at] << ", allowed " << bound;
  }
}

template <class T>
class LinearForward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearForward, Types);

TYPED_TEST(LinearForward, SizesAroundEveryTileEdge) {
  using T = TypeParam;
  constexpr Index kEdges[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 31, 32, 33, 59, 60, 61, 64, 65, 120, 121, 127};
  std::vector<std::array<Index, 3>> shapes;
  for (const Index n : kEdges) {
    shapes.push_back({n, 17, 33});
    shapes.push_back({13, n, 31});
    shapes.push_back({5, 9, n});
  }
  for (const Index n : {255, 256, 257, 300}) {
    shapes.push_back({n, 3, 33});
    shapes.push_back({13, n, 33});
    shapes.push_back({5, 9, n});
  }
  // More than sixteen panels, and enough work for threads.
  shapes.push_back({3, 513, 520});
  shapes.push_back({70, 40, 550});
  Random random(20270201);
  for (int n = 0; n < test_size(60, 10); ++n) {
    shapes.push_back({random.integer(1, 70), random.integer(1, 300), random.integer(1, 70)});
  }
  for (const auto& [R, I, O] : shapes) {
    const auto inputs = LinearInputs<T>::normal(static_cast<std::uint64_t>(R * 1'000'000 + I * 1000 + O), R, I, O);
    std::vector<std::uint64_t> fused;
    on_every_instruction_set([&](const kernels::KernelTable& table) {
      const std::vector<T> output = run(inputs);
      expect_close(inputs, output);
      if (!table.fused_multiply_add) return;
      if (fused.empty()) fused = bits_of(output);
      EXPECT_TRUE(fused == bits_of(output)) << R << " " << I << " " << O;
    });
  }
}

TYPED_TEST(LinearForward, ElementsAreChainsOf256AddedInOrderThenTheBias) {
  using T = TypeParam;
  // The last, without a bias, is computed in parts of 2048.
  for (const auto& [R, I, O] : {std::array<Index, 3>{13, 600, 37}, {17, 4100, 33}, {17, 4300, 33}}) {
    auto inputs = LinearInputs<T>::normal(20270202, R, I, O);
    if (I == 4300) inputs.bias.reset();
    std::vector<T> expected;
    for (Index r = 0; r < R; ++r) {
      for (Index o = 0; o < O; ++o) {
        T sum = 0;
        for (Index first = 0; first < I; first += 256) {
          T chain = 0;
          for (Index i = first; i < std::min(I, first + 256); ++i) {
            chain = std::fma(inputs.input.get({r, i}), inputs.weight.get({i, o}), chain);
          }
          sum += chain;
        }
        expected.push_back(inputs.bias ? sum + inputs.bias->get({o}) : sum);
      }
    }
    for (const kernels::KernelTable* table : fused_instruction_sets()) {
      SCOPED_TRACE(table->name);
      const ActiveTable active(*table);
      EXPECT_EQ(bits_of(run(inputs)), bits_of(expected));
    }
  }
}

TYPED_TEST(LinearForward, LayoutsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270203);
  for (int n = 0; n < 120; ++n) {
    const Index R = random.integer(1, 70), I = random.integer(1, 40), O = random.integer(1, 70);
    LinearInputs<T> strided;
    strided.input = Array<T, 2>({R, I}, random_layout<2>(random, false));
    strided.weight = Array<T, 2>({I, O}, random_layout<2>(random, false));
    strided.bias = Array<T, 1>({O}, random_layout<1>(random, false));
    strided.input.fill([&] { return random.normal(); });
    strided.weight.fill([&] { return random.normal(); });
    strided.bias->fill([&] { return random.normal(); });
    LinearInputs<T> dense;
    dense.input = relaid(strided.input, Layout<2>::dense());
    dense.weight = relaid(strided.weight, Layout<2>::dense());
    dense.bias = relaid(*strided.bias, Layout<1>::dense());
    const Layout<2> output_layout = random_layout<2>(random, true);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      EXPECT_EQ(bits_of(run(strided, output_layout)), bits_of(run(dense))) << "call " << n;
    });
  }
}

TYPED_TEST(LinearForward, TransposedReversedAndRepeatedViews) {
  using T = TypeParam;
  // The weight of a torch.nn.Linear, stored (O, I); rows in reverse; one row for all.
  const T stored[] = {1, 2, 3, 4, 5, 6};
  const T rows[] = {1, 10, 100, 2, 20, 200};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    T output[4];
    linear_forward<T>({rows, {2, 3}}, {stored, {3, 2}, {1, 3}}, {}, TensorView<T, 2>(output, {2, 2}));
    EXPECT_EQ(std::vector<T>(output, output + 4), (std::vector<T>{321, 654, 642, 1308}));
    linear_forward<T>({rows + 3, {2, 3}, {-3, 1}}, {stored, {3, 2}, {1, 3}}, {}, TensorView<T, 2>(output, {2, 2}));
    EXPECT_EQ(std::vector<T>(output, output + 4), (std::vector<T>{642, 1308, 321, 654}));
    linear_forward<T>({rows, {2, 3}, {0, 1}}, {stored + 2, {3, 2}, {-1, 3}}, {stored, {2}, {0}},
                      TensorView<T, 2>(output, {2, 2}, {1, 2}));
    EXPECT_EQ(std::vector<T>(output, output + 4), (std::vector<T>{124, 124, 457, 457}));
  });
}

TYPED_TEST(LinearForward, WithoutBiasNothingIsAdded) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270204, 14, 33, 35, false);
  auto zero = LinearInputs<T>::normal(20270204, 14, 33, 35, false);
  zero.bias = Array<T, 1>({35});
  zero.bias->fill([] { return 0; });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    expect_close(inputs, run(inputs));
    EXPECT_EQ(bits_of(run(inputs)), bits_of(run(zero)));
  });
}

TYPED_TEST(LinearForward, EmptyInputRowsGiveTheBiasOrPlusZero) {
  using T = TypeParam;
  const auto with_bias = LinearInputs<T>::normal(20270205, 61, 0, 33);
  const auto without = LinearInputs<T>::normal(20270205, 61, 0, 33, false);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const std::vector<T> output = run(with_bias);
    const std::vector<T> bias = with_bias.bias->values();
    ASSERT_EQ(output.size(), 61u * 33u);
    for (std::size_t at = 0; at < output.size(); ++at) EXPECT_EQ(output[at], bias[at % 33]);
    EXPECT_EQ(bits_of(run(without)), bits_of(std::vector<T>(61 * 33, 0)));
    // Null pointers are allowed for empty tensors.
    T zero = 5;
    linear_forward<T>({nullptr, {1, 0}}, {nullptr, {0, 1}}, {}, TensorView<T, 2>(&zero, {1, 1}));
    EXPECT_EQ(zero, 0);
  });
}

TYPED_TEST(LinearForward, EmptyOutputsWriteNothing) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_TRUE(run(LinearInputs<T>::normal(1, 0, 7, 5)).empty());
    EXPECT_TRUE(run(LinearInputs<T>::normal(1, 7, 5, 0)).empty());
    EXPECT_TRUE(run(LinearInputs<T>::normal(1, 0, 0, 0, false)).empty());
  });
}

TYPED_TEST(LinearForward, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270206, 130, 90, 530);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto expected = bits_of(run(inputs, Layout<2>::dense(), {.num_threads = 1}));
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(bits_of(run(inputs, Layout<2>::dense(), {.num_threads = threads})) == expected) << threads;
    }
    // Last task first, and all in the caller's thread.
    const Executor backwards = [](Index n, const Task& task) {
      while (n-- > 0) task(n);
    };
    EXPECT_TRUE(bits_of(run(inputs, Layout<2>::dense(), {.executor = backwards, .num_threads = 3})) == expected);
  });
}

TYPED_TEST(LinearForward, OtherRowsAndRowPositionDoNotChangeBits) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270207, 75, 300, 37);
  const TensorView<const T, 2> input = inputs.input.view();
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const std::vector<T> whole = run(inputs);
    for (const Index count : {1, 2, 3, 4, 5, 7, 9, 12, 13, 61}) {
      for (Index first = 0; first + count <= 75; first += count) {
        std::vector<T> part(static_cast<std::size_t>(count * 37));
        linear_forward<T>({input.pointer(first, 0), {count, 300}}, inputs.weight.view(), inputs.bias_view(),
                          TensorView<T, 2>(part.data(), {count, 37}));
        EXPECT_TRUE(bits_of(part) ==
                    bits_of(std::vector<T>(whole.begin() + first * 37, whole.begin() + (first + count) * 37)))
            << "rows " << first << " to " << first + count;
      }
    }
    // A single column, too.
    for (Index o = 0; o < 37; ++o) {
      std::vector<T> column(75);
      linear_forward<T>(input, {inputs.weight.view().pointer(0, o), {300, 1}, {37, 1}},
                        {inputs.bias_view().pointer(o), {1}}, TensorView<T, 2>(column.data(), {75, 1}));
      for (std::size_t r = 0; r < 75; ++r) EXPECT_EQ(column[r], whole[r * 37 + static_cast<std::size_t>(o)]);
    }
  });
}

TYPED_TEST(LinearForward, SmallIntegersTimesPowersOfTwoAreExact) {
  using T = TypeParam;
  for (const auto& [R, I, O] : {std::array<Index, 3>{61, 300, 65}, {7, 513, 33}, {1, 64, 100}}) {
    auto inputs = LinearInputs<T>::normal(1, R, I, O);
    Random random(20270208);
    inputs.input.fill([&] { return static_cast<double>(random.integer(-63, 63)) * 0x1p-20; });
    inputs.weight.fill([&] { return static_cast<double>(random.integer(-63, 63)) * 0x1p+40; });
    inputs.bias->fill([&] { return static_cast<double>(random.integer(-63, 63)) * 0x1p+20; });
    const auto exact = reference::linear<T>(inputs.input.view(), inputs.weight.view(), inputs.bias_view());
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const std::vector<T> output = run(inputs);
      for (std::size_t at = 0; at < output.size(); ++at) EXPECT_EQ(output[at], exact.output[at]);
    });
  }
}

TYPED_TEST(LinearForward, SubnormalsAreKept) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T input[] = {tiny, 3 * tiny, 5 * tiny};
  const T weight[] = {1, -1, 2};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    T output = 0;
    linear_forward<T>({input, {1, 3}}, {weight, {3, 1}}, {&tiny, {1}}, TensorView<T, 2>(&output, {1, 1}));
    EXPECT_EQ(output, 9 * tiny);
  });
}

TYPED_TEST(LinearForward, NonFiniteValuesAffectOnlyTheirRowOrColumn) {
  using T = TypeParam;
  const T kInfinity = std::numeric_limits<T>::infinity();
  const T kNaN = std::numeric_limits<T>::quiet_NaN();
  const auto clean = LinearInputs<T>::normal(20270209, 65, 20, 40);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const std::vector<T> expected = run(clean);
    auto inputs = LinearInputs<T>::normal(20270209, 65, 20, 40);
    inputs.input.set({61, 3}, kNaN);
    inputs.input.set({2, 0}, kInfinity);
    inputs.weight.set({0, 33}, 0);
    inputs.weight.set({19, 5}, kNaN);
    inputs.weight.set({7, 6}, -kInfinity);
    inputs.bias->set({8}, kNaN);
    const std::vector<T> output = run(inputs);
    for (Index r = 0; r < 65; ++r) {
      for (Index o = 0; o < 40; ++o) {
        const T got = output[static_cast<std::size_t>(r * 40 + o)];
        const bool nan = r == 61 || o == 5 || o == 8 || (r == 2 && o == 33);
        if (nan) {
          EXPECT_TRUE(std::isnan(got)) << r << " " << o;
        } else if (r == 2 && o == 6) {
          // The result of two infinities depends on their signs.
          const bool opposite = (clean.weight.get({0, 6}) > 0) == (clean.input.get({2, 7}) > 0);
          EXPECT_EQ(std::isnan(got), opposite);
        } else if (r == 2) {
          EXPECT_EQ(got, clean.weight.get({0, o}) > 0 ? kInfinity : -kInfinity) << o;
        } else if (o == 6) {
          EXPECT_EQ(got, clean.input.get({r, 7}) > 0 ? -kInfinity : kInfinity) << r;
        } else if (o != 33) {
          EXPECT_EQ(got, expected[static_cast<std::size_t>(r * 40 + o)]) << r << " " << o;
        }
      }
    }
  });
}

// ---- weight packed once, and the activation

template <class T>
std::vector<T> run_packed(const LinearInputs<T>& inputs, Activation activation = Activation::none,
                          const Layout<2>& layout = Layout<2>::dense(), const Runtime& runtime = {}) {
  Array<T, 2> output({inputs.R(), inputs.O()}, layout);
  const PackedLinear<T> packed(inputs.weight.view(), runtime);
  linear_forward<T>(inputs.input.view(), packed, inputs.bias_view(), output.view(), {activation}, runtime);
  const std::vector<T> values = output.values();
  EXPECT_TRUE(output.surroundings_untouched());
  return values;
}

TYPED_TEST(LinearForward, PackedLinearMatchesPackingDuringTheCall) {
  using T = TypeParam;
  Random random(20270210);
  for (int n = 0; n < 60; ++n) {
    const Index R = random.integer(0, 130), I = random.integer(0, 300), O = random.integer(0, 70);
    LinearInputs<T> inputs = LinearInputs<T>::normal(static_cast<std::uint64_t>(n), R, I, O, n % 3 != 0);
    inputs.input = Array<T, 2>({R, I}, random_layout<2>(random, false));
    inputs.weight = Array<T, 2>({I, O}, random_layout<2>(random, false));
    inputs.input.fill([&] { return random.normal(); });
    inputs.weight.fill([&] { return random.normal(); });
    const Layout<2> output_layout = random_layout<2>(random, true);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      EXPECT_EQ(bits_of(run_packed(inputs, Activation::none, output_layout)), bits_of(run(inputs))) << "call " << n;
    });
  }
}

TYPED_TEST(LinearForward, ActivationIsAppliedToFinishedElements) {
  using T = TypeParam;
  for (const auto& [R, I, O] : {std::array<Index, 3>{1, 3, 1}, {13, 17, 33}, {61, 300, 65}, {130, 64, 530}}) {
    const auto inputs = LinearInputs<T>::normal(20270211, R, I, O);
    std::vector<std::uint64_t> fused;
    on_every_instruction_set([&](const kernels::KernelTable& table) {
      const std::vector<T> plain = run(inputs);
      std::vector<T> expected(plain.size());
      table.of<T>().gelu(plain.data(), expected.data(), static_cast<Index>(plain.size()));
      const std::vector<T> output = run_packed(inputs, Activation::gelu);
      EXPECT_EQ(bits_of(output), bits_of(expected));
      table.of<T>().gelu_tanh(plain.data(), expected.data(), static_cast<Index>(plain.size()));
      EXPECT_EQ(bits_of(run_packed(inputs, Activation::gelu_tanh)), bits_of(expected));
      for (std::size_t at = 0; at < plain.size(); ++at) expected[at] = std::max<T>(plain[at], 0);
      EXPECT_EQ(run_packed(inputs, Activation::relu), expected);
      table.of<T>().layers->activate(kernels::Activation::silu, plain.data(), static_cast<Index>(plain.size()),
                                     expected.data());
      EXPECT_EQ(bits_of(run_packed(inputs, Activation::silu)), bits_of(expected));
      if (!table.fused_multiply_add) return;
      if (fused.empty()) fused = bits_of(output);
      EXPECT_TRUE(fused == bits_of(output));
    });
  }
}

TYPED_TEST(LinearForward, PanelsAreTheSameOnEveryInstructionSetAndSharedByCopies) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270212, 7, 5, 40);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    PackedLinear<T> packed(inputs.weight.view());
    EXPECT_EQ(packed.num_inputs(), 5);
    EXPECT_EQ(packed.num_outputs(), 40);
    EXPECT_EQ(packed.num_bytes(), 5 * 64 * sizeof(T));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed.panels()) % 64, 0u);
    for (Index o = 0; o < 64; ++o) {
      for (Index i = 0; i < 5; ++i) {
        EXPECT_EQ(packed.panels()[o / 32 * 160 + i * 32 + o % 32], o < 40 ? inputs.weight.get({i, o}) : 0);
      }
    }
    const PackedLinear<T> copy = packed;
    EXPECT_EQ(copy.panels(), packed.panels());
    const PackedLinear<T> moved = std::move(packed);
    packed = {};
    EXPECT_EQ(moved.panels(), copy.panels());
    EXPECT_EQ(packed.panels(), nullptr);
    EXPECT_EQ(packed.num_bytes(), 0u);
  });
}

TYPED_TEST(LinearForward, ThreadsDoNotChangePackedLinearOrActivation) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270213, 130, 90, 530);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto expected = bits_of(run_packed(inputs, Activation::gelu, Layout<2>::dense(), {.num_threads = 1}));
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(bits_of(run_packed(inputs, Activation::gelu, Layout<2>::dense(), {.num_threads = threads})) ==
                  expected);
    }
  });
}

TYPED_TEST(LinearForward, MisalignedOutputHasTheSameBits) {
  using T = TypeParam;
  const auto inputs = LinearInputs<T>::normal(20270214, 61, 20, 40);
  Layout<2> misaligned = Layout<2>::dense();
  misaligned.lead_bytes = 1;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    EXPECT_TRUE(same_bits(bits_of(run_packed(inputs, Activation::none, misaligned)), bits_of(run_packed(inputs))));
  });
}

// ---- rejections

// True if the message begins with the operator's name and contains every part.
testing::AssertionResult says(const std::string& message, const std::vector<std::string>& parts) {
  if (message.rfind("linear_forward: ", 0) != 0) return testing::AssertionFailure() << message;
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) return testing::AssertionFailure() << message << "; no " << part;
  }
  return testing::AssertionSuccess();
}

TYPED_TEST(LinearForward, WrongShapesAreRejectedBeforeAnyWork) {
  using T = TypeParam;
  const std::vector<T> numbers(200, 1);
  std::vector<T> output(200, 7);
  const auto call = [&](std::array<Index, 2> input, std::array<Index, 2> weight, std::array<Index, 1> bias,
                        std::array<Index, 2> out) {
    return rejection([&] {
      linear_forward<T>({numbers.data(), input}, {numbers.data(), weight},
                        bias[0] == 0 ? TensorView<const T, 1>{} : TensorView<const T, 1>(numbers.data(), bias),
                        TensorView<T, 2>(output.data(), out));
    });
  };
  EXPECT_TRUE(says(call({3, 4}, {5, 6}, {6}, {3, 6}), {"weight", "(5, 6)", "expected", "(3, 4)"}));
  EXPECT_TRUE(says(call({3, 4}, {4, 6}, {5}, {3, 6}), {"bias", "(5)", "expected", "(6)"}));
  EXPECT_TRUE(says(call({3, 4}, {4, 6}, {0}, {6, 3}), {"output", "(6, 3)", "expected", "(3, 6)"}));
  EXPECT_TRUE(says(call({3, 4}, {4, 6}, {0}, {3, 7}), {"output", "(3, 7)", "expected", "(3, 6)"}));
  EXPECT_TRUE(says(call({-3, 4}, {4, 6}, {0}, {-3, 6}), {"input", "(-3, 4)", "negative"}));
  EXPECT_TRUE(says(call({3, 4}, {4, 6}, {-6}, {3, 6}), {"bias", "(-6)", "negative"}));
  EXPECT_EQ(output, std::vector<T>(200, 7));
}

TYPED_TEST(LinearForward, NullPointersAndOverflowingSizesAreRejected) {
  using T = TypeParam;
  const std::vector<T> numbers(200, 1);
  std::vector<T> output(200, 7);
  const TensorView<T, 2> out(output.data(), {3, 6});
  const TensorView<const T, 2> input(numbers.data(), {3, 4}), weight(numbers.data(), {4, 6});
  EXPECT_TRUE(
      says(rejection([&] { linear_forward<T>({nullptr, {3, 4}}, weight, {}, out); }), {"input", "null", "(3, 4)"}));
  EXPECT_TRUE(
      says(rejection([&] { linear_forward<T>(input, {nullptr, {4, 6}}, {}, out); }), {"weight", "null", "(4, 6)"}));
  EXPECT_TRUE(says(rejection([&] { linear_forward<T>(input, weight, {nullptr, {6}}, out); }), {"bias", "null", "(6)"}));
  EXPECT_TRUE(says(rejection([&] { linear_forward<T>(input, weight, {}, TensorView<T, 2>(nullptr, {3, 6})); }),
                   {"output", "null", "(3, 6)"}));
  const Index huge = Index{1} << 40;
  EXPECT_TRUE(says(rejection([&] {
                     linear_forward<T>({numbers.data(), {huge, huge}, {0, 0}}, {numbers.data(), {huge, 1}, {0, 0}}, {},
                                       TensorView<T, 2>(output.data(), {huge, 1}));
                   }),
                   {"input", "63 bits"}));
  EXPECT_EQ(output, std::vector<T>(200, 7));
}

TYPED_TEST(LinearForward, OverlappingOutputsAreRejected) {
  using T = TypeParam;
  std::vector<T> memory(400, 1);
  T* const at = memory.data();
  const auto call = [&](T* input, T* weight, T* bias, TensorView<T, 2> output) {
    return rejection([&] { linear_forward<T>({input, {3, 4}}, {weight, {4, 6}}, {bias, {6}}, output); });
  };
  T* const free = at + 200;
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {at + 11, {3, 6}}), {"output overlaps input"}));
  EXPECT_TRUE(says(call(at + 17, at + 50, at + 100, {at, {3, 6}}), {"output overlaps input"}));
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {at + 73, {3, 6}}), {"output overlaps weight"}));
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {at + 105, {3, 6}}), {"output overlaps bias"}));
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {free, {3, 6}, {0, 1}}), {"output overlaps itself"}));
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {free, {3, 6}, {5, 1}}), {"output overlaps itself"}));
  EXPECT_TRUE(says(call(at, at + 50, at + 100, {free, {3, 6}, {1, 2}}), {"output overlaps itself"}));
  EXPECT_EQ(memory, std::vector<T>(400, 1));
  // Adjacent memory is not an overlap; nor are inputs that share memory, nor an output between the input's rows.
  EXPECT_EQ(call(at, at + 12, at + 36, {at + 42, {3, 6}}), "accepted");
  EXPECT_EQ(call(at, at, at, {free, {3, 6}}), "accepted");
  EXPECT_EQ(rejection([&] {
              linear_forward<T>({at, {3, 4}, {10, 1}}, {at + 50, {4, 6}}, {},
                                TensorView<T, 2>(at + 4, {3, 6}, {10, 1}));
            }),
            "accepted");
}

TYPED_TEST(LinearForward, PackedLinearRejectsInvalidArguments) {
  using T = TypeParam;
  const std::vector<T> numbers(200, 1);
  std::vector<T> output(200, 7);
  const PackedLinear<T> packed(TensorView<const T, 2>(numbers.data(), {4, 6}));
  const TensorView<const T, 2> input(numbers.data(), {3, 4});
  const TensorView<T, 2> out(output.data(), {3, 6});
  const auto call = [&](TensorView<const T, 2> x, TensorView<const T, 1> bias, TensorView<T, 2> y,
                        Activation activation = Activation::none) {
    return rejection([&] { linear_forward<T>(x, packed, bias, y, {activation}); });
  };
  EXPECT_TRUE(says(call({numbers.data(), {3, 5}}, {}, out), {"weight", "(4, 6)", "expected", "(3, 5)"}));
  EXPECT_TRUE(says(call(input, {numbers.data(), {5}}, out), {"bias", "(5)", "expected", "(6)"}));
  EXPECT_TRUE(says(call(input, {}, {output.data(), {6, 3}}), {"output", "(6, 3)", "expected", "(3, 6)"}));
  EXPECT_TRUE(says(call(input, {}, {nullptr, {3, 6}}), {"output", "null"}));
  EXPECT_TRUE(says(call({output.data(), {3, 4}}, {}, out), {"output overlaps input"}));
  EXPECT_TRUE(says(call(input, {output.data(), {6}}, out), {"output overlaps bias"}));
  EXPECT_TRUE(says(call(input, {}, {const_cast<T*>(packed.panels()), {3, 6}}), {"output overlaps weight"}));
  EXPECT_TRUE(says(call(input, {}, out, static_cast<Activation>(9)), {"activation", "9", "gelu"}));
  EXPECT_EQ(output, std::vector<T>(200, 7));
  EXPECT_EQ(call(input, {}, out), "accepted");
  const auto pack = [&](const T* data, std::array<Index, 2> shape) {
    return rejection([&] { PackedLinear<T>(TensorView<const T, 2>(data, shape)); });
  };
  EXPECT_EQ(pack(nullptr, {4, 6}), "PackedLinear: weight is null; expected memory for shape (4, 6)");
  EXPECT_TRUE(pack(numbers.data(), {-4, 6}).find("negative") != std::string::npos);
}

}  // namespace
}  // namespace regard::linear_test
