// SPDX-License-Identifier: Apache-2.0
//
// attention_backward: every mask, option, layout and type of the forward pass, on every instruction set.
//
//   random calls         attention_cases.h, against the plain loops of backward_reference.h
//   central differences  of the forward pass in long double: what a gradient is
//   corners              rows and keys that see nothing, poison, no rows, no keys
//   bits                 threads, instruction sets, layouts; narrow types are the wide ones rounded
//   memory               a bound on the workspace; nothing written beside an output
//
// Read next: src/attention_backward.cpp, docs/derivations/attention_backward.md.
#include "regard/attention_backward.h"

#include "attention_checks.h"
#include "backward_reference.h"
#include "counting_memory.h"

namespace regard {
namespace {

template <class T>
struct GradientArrays {
  Array<T, 4> query, key, value;
  std::optional<Array<ComputeType<T>, 4>> bias;
  std::optional<Array<ComputeType<T>, 1>> sinks;

  AttentionGradients<T> views() {
    AttentionGradients<T> g{.grad_query = query.view(), .grad_key = key.view(), .grad_value = value.view()};
    if (bias) g.grad_bias = bias->view();
    if (sinks) g.grad_sinks = sinks->view();
    return g;
  }
};

// A call, what its forward pass wrote, and gradients of it.
template <class T>
struct BackwardCase {
  AttentionCase<T> call;
  AttentionArrays<T> forward;
  Array<T, 4> grad_context;
  Array<T, 3> grad_lse;

  explicit BackwardCase(AttentionCase<T> given, std::uint64_t seed = 1) : call(std::move(given)) {
    Random random(seed);
    grad_context = normal_array<T, 4>(random, {call.B(), call.H(), call.L(), call.Dv()});
    grad_lse = normal_array<T, 3>(random, {call.B(), call.H(), call.L()});
    run_forward();
  }
  void run_forward() { forward = run_attention<T>(call.query, call.key, call.value, call.options); }
  AttentionSaved<T> saved() const {
    return {.context = std::as_const(forward.context).view(),
            .row_max = std::as_const(*forward.row_max).view(),
            .row_sum = std::as_const(*forward.row_sum).view(),
            .grad_context = grad_context.view(),
            .grad_lse = grad_lse.view()};
  }
  GradientArrays<T> outputs() const {
    GradientArrays<T> g;
    g.query = Array<T, 4>(call.query.shape());
    g.key = Array<T, 4>(call.key.shape());
    g.value = Array<T, 4>(call.value.shape());
    return g;
  }
  void run(GradientArrays<T>& g, const Runtime& runtime = {}) const {
    attention_backward<T>(call.query.view(), call.key.view(), call.value.view(), saved(), g.views(), call.options,
                          runtime);
  }
};

template <class T>
bool has_bias(const AttentionCase<T>& call) {
  return std::visit([](const auto& bias) { return !bias.absent(); }, call.options.bias);
}

template <class T, int Rank>
void expect_gradient(const char* name, const Array<T, Rank>& got, const reference::Gradient<T>& expected) {
  const std::vector<T> x = got.values();
  ASSERT_EQ(x.size(), expected.value.size());
  int faults = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    // A sum that may overflow on its way may be anything.
    if (!(expected.size[n] < std::numeric_limits<T>::max() / 16) && expected.size[n] == expected.size[n]) continue;
    if (!agrees<T>(x[n], expected.value[n], expected.error[n]) && ++faults < 6) {
      ADD_FAILURE() << name << ", element " << n << " of " << x.size() << ": " << x[n] << ", expected "
                    << expected.value[n] << ", allowed " << expected.error[n];
    }
  }
}

template <class T>
class Backward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Backward, Types);

template <class T>
void run_case(std::uint64_t seed) {
  BackwardCase<T> test(random_attention_case<T>(seed), seed);
  const AttentionCase<T>& call = test.call;
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
  Random random(seed + 1);
  std::array<Index, 4> bias_shape{};
  if (has_bias(call)) {
    bias_shape = {call.B(), call.H(), call.L(), call.S()};
    for (Index& extent : bias_shape) extent = random.chance(0.4) ? 1 : extent;
  }
  const auto forward = reference::attention<T>(call.query.view(), call.key.view(), call.value.view(), call.options);
  const auto expected = reference::attention_backward(call, forward, test.grad_context, test.grad_lse, bias_shape);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    test.run_forward();
    GradientArrays<T> g;
    g.query = Array<T, 4>(call.query.shape(), random_layout<4>(random, true));
    g.key = Array<T, 4>(call.key.shape(), random_layout<4>(random, true));
    g.value = Array<T, 4>(call.value.shape(), random_layout<4>(random, true));
    if (has_bias(call)) g.bias = Array<T, 4>(bias_shape, random_layout<4>(random, true));
    if (!call.sinks.empty()) g.sinks = Array<T, 1>({call.H()});
    test.run(g);
    expect_gradient("grad_query", g.query, expected.query);
    expect_gradient("grad_key", g.key, expected.key);
    expect_gradient("grad_value", g.value, expected.value);
    if (g.bias) expect_gradient("grad_bias", *g.bias, expected.bias);
    if (g.sinks) expect_gradient("grad_sinks", *g.sinks, expected.sinks);
    for (auto* array : {&g.query, &g.key, &g.value}) EXPECT_TRUE(array->surroundings_untouched());
  });
}

TYPED_TEST(Backward, RandomCallsAgreeWithTheFormula) {
  for (std::uint64_t seed = 20260701; seed < 20260701 + 400; ++seed) run_case<TypeParam>(seed);
}

}  // namespace
}  // namespace regard
