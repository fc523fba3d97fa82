// SPDX-License-Identifier: Apache-2.0
//
// activation_forward, activation_backward, swiglu_forward and swiglu_backward compared with their formulas and with
// central differences; layouts, threads, instruction sets and outputs in place of inputs do not change bits; gradients
// accumulate; mistakes are rejected.
// Read next: activation_error_test.cpp (errors of the functions), src/layers/elementwise.h.
#include "regard/activation.h"

#include <functional>

#include "support/activation_reference.h"
#include "support/attention_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"
#include "support/test_size.h"

namespace regard::activation_test {
namespace {

using enum Activation;
constexpr Activation kActivations[] = {none, relu, gelu, gelu_tanh, silu};

template <class W>
W function(Activation activation, W x) {
  switch (activation) {
    case none:
      return x;
    case relu:
      return std::max(x, W{0});
    case gelu:
      return reference::gelu(x);
    case gelu_tanh:
      return reference::gelu_tanh(x);
    case silu:
      return reference::silu(x);
  }
  return 0;
}
template <class W>
W derivative(Activation activation, W x) {
  switch (activation) {
    case none:
      return 1;
    case relu:
      return x > 0 ? 1 : 0;
    case gelu:
      return reference::gelu_derivative(x);
    case gelu_tanh:
      return reference::gelu_tanh_derivative(x);
    case silu:
      return reference::silu_derivative(x);
  }
  return 0;
}

// One of the operators: what it computes of an element, and how it is called.
template <class T>
struct Operator {
  using W = reference::Wide<ComputeType<T>>;
  using Inputs = std::vector<TensorView<const T, 2>>;
  using Outputs = std::vector<TensorView<T, 2>>;

  std::string name;
  std::size_t num_inputs, num_outputs;
  bool accumulates;
  std::function<std::vector<W>(const std::vector<W>&)> exact;
  std::function<void(const Inputs&, const Outputs&, bool add, const Runtime&)> call;
};

template <class T>
std::vector<Operator<T>> operators() {
  using Op = Operator<T>;
  using W = typename Op::W;
  using Elements = std::vector<W>;
  using Inputs = typename Op::Inputs;
  using Outputs = typename Op::Outputs;
  std::vector<Op> all;
  for (const Activation f : kActivations) {
    const std::string number = std::to_string(static_cast<int>(f));
    all.push_back({"activation_forward " + number, 1, 1, false,
                   [f](const Elements& x) { return Elements{function(f, x[0])}; },
                   [f](const Inputs& x, const Outputs& y, bool, const Runtime& runtime) {
                     activation_forward<T>(x[0], y[0], f, runtime);
                   }});
    all.push_back({"activation_backward " + number, 2, 1, true,
                   [f](const Elements& x) { return Elements{x[1] * derivative(f, x[0])}; },
                   [f](const Inputs& x, const Outputs& y, bool add, const Runtime& runtime) {
                     activation_backward<T>(x[0], x[1], {.grad_input = y[0], .accumulate = add}, f, runtime);
                   }});
  }
  all.push_back({"swiglu_forward", 2, 1, false, [](const Elements& x) { return Elements{function(silu, x[0]) * x[1]}; },
                 [](const Inputs& x, const Outputs& y, bool, const Runtime& runtime) {
                   swiglu_forward<T>(x[0], x[1], y[0], runtime);
                 }});
  all.push_back(
      {"swiglu_backward", 3, 2, true,
       [](const Elements& x) { return Elements{x[2] * x[1] * derivative(silu, x[0]), x[2] * function(silu, x[0])}; },
       [](const Inputs& x, const Outputs& y, bool add, const Runtime& runtime) {
         swiglu_backward<T>(x[0], x[1], x[2],
                            {.grad_gate = y[0], .grad_up = y[1], .accumulate = {.grad_gate = add, .grad_up = add}},
                            runtime);
       }});
  return all;
}

template <class T>
void fill(Random& random, Array<T, 2>& array) {
  array.fill([&] { return static_cast<ComputeType<T>>(random.normal() * 3); });
}

// A call with its arrays, all of one shape, each in its own layout.
template <class T>
struct Call {
  const Operator<T>& op;
  std::vector<Array<T, 2>> inputs, outputs;

  Call(const Operator<T>& of, const std::array<Index, 2>& shape, const std::function<Layout<2>(bool is_output)>& layout,
       std::uint64_t seed = 1)
      : op(of) {
    Random random(seed);
    for (std::size_t i = 0; i < op.num_inputs; ++i) {
      Array<T, 2> values(shape);
      fill(random, values);
      inputs.push_back(relaid(values, layout(false)));
    }
    for (std::size_t i = 0; i < op.num_outputs; ++i) {
      Array<T, 2> values(shape);
      fill(random, values);
      outputs.push_back(relaid(values, layout(true)));
    }
  }
  static Layout<2> dense(bool) { return Layout<2>::dense(); }

  void run(bool add = false, const Runtime& runtime = {}) {
    typename Operator<T>::Inputs x;
    typename Operator<T>::Outputs y;
    for (const auto& array : inputs) x.push_back(array.view());
    for (auto& array : outputs) y.push_back(array.view());
    op.call(x, y, add, runtime);
  }
  std::vector<std::vector<std::uint64_t>> bits() const {
    std::vector<std::vector<std::uint64_t>> all;
    for (const auto& array : outputs) all.push_back(bits_of(array));
    return all;
  }
};

template <class T>
class ActivationLayers : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationLayers, Types);

TYPED_TEST(ActivationLayers, MatchTheirFormulas) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  for (const Operator<T>& op : operators<T>()) {
    SCOPED_TRACE(op.name);
    std::vector<std::vector<std::uint64_t>> fused;
    on_every_instruction_set([&](const kernels::KernelTable& table) {
      for (const std::array<Index, 2>& shape :
           {std::array<Index, 2>{1, 1}, {3, 7}, {5, 16}, {2, 33}, {0, 4}, {4, 0}, {127, 131}}) {
        Call<T> call(op, shape, Call<T>::dense);
        call.run();
        call.outputs[0].for_each_index([&](const auto& at) {
          std::vector<W> x;
          for (const auto& input : call.inputs) x.push_back(input.get(at));
          // Derivatives are of the order of 1, and pass through 0.
          const W size = op.num_inputs == 1 ? std::abs(x[0]) : std::abs(x[1]) * std::max<W>(1, std::abs(x.back()));
          const std::vector<W> exact = op.exact(x);
          for (std::size_t i = 0; i < op.num_outputs; ++i) {
            EXPECT_LE(std::abs(static_cast<W>(call.outputs[i].get(at)) - exact[i]),
                      8 * reference::kUnit<T> * (std::abs(exact[i]) + size))
                << at[0] << " " << at[1];
          }
        });
        if (!table.fused_multiply_add || shape[0] != 127) continue;
        if (fused.empty()) fused = call.bits();
        EXPECT_TRUE(call.bits() == fused);
      }
    });
  }
}

// (f(x + h) − f(x − h)) / 2h has an error of h² f‴ / 6 ≈ 10⁻¹¹ and of u |f| / h ≈ 10⁻¹¹.
TEST(ActivationGradients, MatchCentralDifferences) {
  const double step = 1e-5;
  std::vector<double> x;
  for (double at = -12.005; at < 12; at += 0.03) x.push_back(at);
  const Index count = static_cast<Index>(x.size());
  const auto view = [&](std::vector<double>& of) { return TensorView<double, 2>(of.data(), {1, count}); };
  std::vector<double> up(x.size()), left(x), right(x), f_left(x), f_right(x), ones(x.size(), 1), grad(x), grad_up(x);
  Random random(2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    up[i] = random.normal();
    left[i] = x[i] - step;
    right[i] = x[i] + step;
  }
  const auto expect = [&](const std::vector<double>& gradient, const std::vector<double>& width) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = (f_right[i] - f_left[i]) / width[i];
      EXPECT_LE(std::abs(gradient[i] - difference), 1e-6 * std::abs(difference) + 2e-10) << x[i];
    }
  };
  std::vector<double> width(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) width[i] = right[i] - left[i];
  for (const Activation f : kActivations) {
    activation_forward<double>(view(left), view(f_left), f);
    activation_forward<double>(view(right), view(f_right), f);
    activation_backward<double>(view(x), view(ones), {.grad_input = view(grad)}, f);
    expect(grad, width);
  }
  swiglu_backward<double>(view(x), view(up), view(ones), {.grad_gate = view(grad), .grad_up = view(grad_up)});
  swiglu_forward<double>(view(left), view(up), view(f_left));
  swiglu_forward<double>(view(right), view(up), view(f_right));
  expect(grad, width);
  // The same for `up`, around 0.
  std::vector<double> below(x.size(), -step), above(x.size(), step);
  swiglu_forward<double>(view(x), view(below), view(f_left));
  swiglu_forward<double>(view(x), view(above), view(f_right));
  expect(grad_up, std::vector<double>(x.size(), 2 * step));
}

TYPED_TEST(ActivationLayers, LayoutsThreadsAndOtherRowsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270310);
  for (const Operator<T>& op : operators<T>()) {
    SCOPED_TRACE(op.name);
    for (int n = 0; n < test_size(12, 4); ++n) {
      const std::array<Index, 2> shape{random.integer(1, 40), n == 0 ? 9001 : random.integer(1, 700)};
      Call<T> strided(op, shape, [&](bool is_output) { return random_layout<2>(random, is_output); });
      Call<T> dense(op, shape, Call<T>::dense);
      for (std::size_t i = 0; i < op.num_inputs; ++i) dense.inputs[i] = relaid(strided.inputs[i], Layout<2>::dense());
      const bool add = op.accumulates && n % 2 == 1;
      strided.run(add, {.num_threads = 5});
      dense.run(add, {.num_threads = 1});
      EXPECT_TRUE(strided.bits() == dense.bits()) << "call " << n;
      for (auto& output : strided.outputs) EXPECT_TRUE(output.surroundings_untouched());
    }
    Call<T> whole(op, {50, 800}, Call<T>::dense), one(op, {50, 800}, Call<T>::dense);
    whole.run(false, {.num_threads = 1});
    one.run(false, {.num_threads = 5});
    EXPECT_TRUE(whole.bits() == one.bits());
    typename Operator<T>::Inputs x;
    typename Operator<T>::Outputs y;
    for (const auto& array : std::as_const(one.inputs)) x.push_back(sliced(array.view(), 0, 33, 34));
    for (auto& array : one.outputs) {
      array.fill([] { return 7; });
      y.push_back(sliced(array.view(), 0, 33, 34));
    }
    op.call(x, y, false, {});
    for (std::size_t i = 0; i < op.num_outputs; ++i) {
      std::size_t wrong = 0;
      one.outputs[i].for_each_index(
          [&](const auto& at) { wrong += one.outputs[i].get(at) != (at[0] == 33 ? whole.outputs[i].get(at) : 7); });
      EXPECT_EQ(wrong, 0U) << "output " << i;
    }
  }
}

TYPED_TEST(ActivationLayers, OutputsMayBeInPlaceOfInputs) {
  using T = TypeParam;
  Layout<2> gaps = Layout<2>::dense();
  gaps.inner_step = 2;
  gaps.lead_bytes = 3;
  for (const Operator<T>& op : operators<T>()) {
    SCOPED_TRACE(op.name);
    for (const Layout<2>& layout : {Layout<2>::dense(), gaps}) {
      const auto fixed = [&](bool) { return layout; };
      Call<T> separate(op, {21, 1300}, fixed);
      separate.run();
      // Each input in turn; a second output is in place of the input after it.
      for (std::size_t place = 0; place < op.num_inputs; ++place) {
        Call<T> call(op, {21, 1300}, fixed);
        typename Operator<T>::Inputs x;
        typename Operator<T>::Outputs y;
        for (const auto& array : std::as_const(call.inputs)) x.push_back(array.view());
        for (std::size_t i = 0; i < op.num_outputs; ++i) y.push_back(call.inputs[(place + i) % op.num_inputs].view());
        op.call(x, y, false, {});
        for (std::size_t i = 0; i < op.num_outputs; ++i)
          EXPECT_TRUE(same_bits(bits_of(call.inputs[(place + i) % op.num_inputs]), separate.bits()[i])) << place;
      }
    }
  }
}

TYPED_TEST(ActivationLayers, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  Layout<2> gaps = Layout<2>::dense();
  gaps.inner_step = 2;
  for (const Operator<T>& op : operators<T>()) {
    if (!op.accumulates) continue;
    SCOPED_TRACE(op.name);
    for (const Layout<2>& layout : {Layout<2>::dense(), gaps}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const auto fixed = [&](bool) { return layout; };
        Call<T> old(op, {9, 77}, fixed), fresh(op, {9, 77}, fixed), sum(op, {9, 77}, fixed);
        fresh.run();
        sum.run(true);
        for (std::size_t i = 0; i < op.num_outputs; ++i) {
          sum.outputs[i].for_each_index([&](const auto& at) {
            EXPECT_EQ(sum.outputs[i].get(at), old.outputs[i].get(at) + fresh.outputs[i].get(at));
          });
        }
      });
    }
  }
}

TEST(ActivationTypes, Bfloat16IsComputedInFloatAndRoundedOnce) {
  const std::vector<Operator<float>> wide_operators = operators<float>();
  const std::vector<Operator<bfloat16>> narrow_operators = operators<bfloat16>();
  const auto widened = [](const Array<bfloat16, 2>& from) {
    Array<float, 2> to(from.shape());
    to.for_each_index([&](const auto& at) { to.set(at, static_cast<float>(from.get(at))); });
    return to;
  };
  Layout<2> gaps = Layout<2>::dense();
  gaps.inner_step = 3;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (std::size_t n = 0; n < wide_operators.size(); ++n) {
      SCOPED_TRACE(wide_operators[n].name);
      for (const bool add : {false, true}) {
        if (add && !wide_operators[n].accumulates) continue;
        for (const Layout<2>& layout : {Layout<2>::dense(), gaps}) {
          Call<bfloat16> narrow(narrow_operators[n], {11, 613}, [&](bool) { return layout; });
          Call<float> wide(wide_operators[n], {11, 613}, Call<float>::dense);
          for (std::size_t i = 0; i < wide.inputs.size(); ++i) wide.inputs[i] = widened(narrow.inputs[i]);
          for (std::size_t i = 0; i < wide.outputs.size(); ++i) wide.outputs[i] = widened(narrow.outputs[i]);
          narrow.run(add);
          wide.run(add);
          for (std::size_t i = 0; i < wide.outputs.size(); ++i) {
            wide.outputs[i].for_each_index([&](const auto& at) {
              EXPECT_EQ(narrow.outputs[i].get(at).bits, bfloat16(wide.outputs[i].get(at)).bits);
            });
          }
        }
      }
    }
  });
}

TYPED_TEST(ActivationLayers, ReluHasAZeroGradientUpToZeroAndNaNStaysInItsElement) {
  using T = TypeParam;
  constexpr T kInfinity = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x{-kInfinity, -1,  static_cast<T>(-0.0), 0, std::numeric_limits<T>::denorm_min(), 2,
                         kInfinity,  kNaN};
  const std::vector<T> grad{kInfinity, kNaN, 3, 3, 3, kInfinity, -2, 1};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    std::vector<T> y(8);
    const TensorView<const T, 2> in(x.data(), {1, 8}), g(grad.data(), {1, 8});
    const TensorView<T, 2> out(y.data(), {1, 8});
    activation_backward<T>(in, g, {.grad_input = out}, relu);
    EXPECT_EQ(std::vector<T>(y.begin(), y.begin() + 7), (std::vector<T>{0, 0, 0, 0, 3, kInfinity, -2}));
    EXPECT_TRUE(std::isnan(y[7]));
    for (const Activation f : kActivations) {
      activation_forward<T>(in, out, f);
      EXPECT_EQ(y[0], f == none ? -kInfinity : 0);
      EXPECT_EQ(y[6], kInfinity);
      EXPECT_TRUE(std::isnan(y[7]));
      for (std::size_t i = 1; i < 6; ++i) EXPECT_TRUE(std::isfinite(y[i]));
    }
  });
}

TEST(SwigluGradients, AbsentOnesAreNotComputed) {
  const Operator<float> op = operators<float>().back();
  for (const bool gate_only : {false, true}) {
    Call<float> both(op, {3, 700}, Call<float>::dense), single(op, {3, 700}, Call<float>::dense);
    both.run();
    const auto x = [&](std::size_t i) { return std::as_const(single.inputs[i]).view(); };
    SwigluGradients<float> gradients;
    (gate_only ? gradients.grad_gate : gradients.grad_up) = single.outputs[gate_only ? 0 : 1].view();
    swiglu_backward<float>(x(0), x(1), x(2), gradients);
    EXPECT_TRUE(same_bits(single.bits()[gate_only ? 0 : 1], both.bits()[gate_only ? 0 : 1]));
  }
}

TEST(ActivationRejections, NameTheArgumentBeforeAnyWork) {
  std::vector<float> memory(300, 1);
  float* const at = memory.data();
  const TensorView<float, 2> a(at, {3, 4}), b(at + 20, {3, 4}), c(at + 40, {3, 4}), d(at + 60, {3, 4});
  const TensorView<float, 2> turned(at + 80, {4, 3}), shifted(at + 1, {3, 4});
  const auto forward = [&](const auto& x, const auto& y, Activation f) {
    return rejection([&] { activation_forward<float>(x, y, f); });
  };
  EXPECT_EQ(forward(a, turned, gelu),
            "activation_forward: output has shape (4, 3); expected (3, 4), the shape of input");
  EXPECT_EQ(forward(a, shifted, gelu), "activation_forward: output overlaps input; expected separate memory");
  EXPECT_EQ(forward(a, TensorView<float, 2>(nullptr, {3, 4}), gelu),
            "activation_forward: output is null; expected memory for shape (3, 4)");
  EXPECT_EQ(forward(a, b, static_cast<Activation>(9)),
            "activation_forward: activation is 9; expected none, relu, gelu, gelu_tanh or silu");
  EXPECT_EQ(forward(a, TensorView<float, 2>{}, gelu),
            "activation_forward: output has shape (0, 0); expected (3, 4), the shape of input");
  EXPECT_NE(forward(a, TensorView<float, 2>(at, {3, 4}, {1, 0}), gelu), "accepted");
  const auto backward = [&](const auto& x, const auto& g, const auto& y) {
    return rejection([&] { activation_backward<float>(x, g, {.grad_input = y}, silu); });
  };
  EXPECT_EQ(backward(a, turned, c),
            "activation_backward: grad_output has shape (4, 3); expected (3, 4), the shape of input");
  EXPECT_EQ(backward(a, b, turned),
            "activation_backward: grad_input has shape (4, 3); expected (3, 4), the shape of input");
  EXPECT_EQ(backward(b, a, shifted), "activation_backward: grad_input overlaps grad_output; expected separate memory");
  EXPECT_EQ(rejection([&] { swiglu_forward<float>(a, turned, c); }),
            "swiglu_forward: up has shape (4, 3); expected (3, 4), the shape of gate");
  const auto gradients = [&](const TensorView<float, 2>& gate, const TensorView<float, 2>& up) {
    return rejection([&] { swiglu_backward<float>(a, b, c, {.grad_gate = gate, .grad_up = up}); });
  };
  EXPECT_EQ(gradients(d, d), "swiglu_backward: grad_gate overlaps grad_up; expected separate memory");
  EXPECT_EQ(gradients(turned, d), "swiglu_backward: grad_gate has shape (4, 3); expected (3, 4), the shape of gate");
  EXPECT_EQ(gradients(d, shifted), "swiglu_backward: grad_up overlaps gate; expected separate memory");
  EXPECT_EQ(memory, std::vector<float>(300, 1));
  EXPECT_EQ(gradients(d, {}), "accepted");
  EXPECT_EQ(gradients({}, {}), "accepted");
}

}  // namespace
}  // namespace regard::activation_test
