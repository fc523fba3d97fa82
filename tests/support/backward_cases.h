// SPDX-License-Identifier: Apache-2.0
//
// One call of attention_backward with everything that it needs: inputs, the outputs of their forward pass, random
// gradients of these, and memory for the results; and the checks of these results.
// Read next: attention_backward_test.cpp.
#pragma once

#include "attention_checks.h"
#include "backward_reference.h"
#include "regard/attention_backward.h"

namespace regard {

template <class T>
struct GradientArrays {
  Array<T, 4> query, key, value;
  std::optional<Array<ComputeType<T>, 4>> bias;
  std::optional<Array<ComputeType<T>, 1>> sinks;

  AttentionGradients views() {
    AttentionGradients g{.grad_query = query.view(), .grad_key = key.view(), .grad_value = value.view()};
    if (bias) g.grad_bias = bias->view();
    if (sinks) g.grad_sinks = sinks->view();
    return g;
  }
};

// Memory for the gradients of the call's query, key and value.
template <class T>
GradientArrays<T> outputs_of(const AttentionCase<T>& call) {
  GradientArrays<T> g;
  g.query = Array<T, 4>(call.query.shape());
  g.key = Array<T, 4>(call.key.shape());
  g.value = Array<T, 4>(call.value.shape());
  return g;
}

template <class T>
bool has_bias(const AttentionCase<T>& call) {
  return !call.options.bias.absent();
}

// A call, the outputs of its forward pass, and gradients of these.
template <class T>
struct BackwardCase {
  AttentionCase<T> call;
  AttentionArrays<T> forward;
  Array<T, 4> grad_context;
  Array<ComputeType<T>, 3> grad_lse;
  AttentionFingerprint fingerprint;

  explicit BackwardCase(AttentionCase<T> given, std::uint64_t seed = 1) : call(std::move(given)) {
    Random random(seed);
    grad_context = normal_array<T, 4>(random, {call.B(), call.H(), call.L(), call.Dv()});
    grad_lse = normal_array<ComputeType<T>, 3>(random, {call.B(), call.H(), call.L()});
    run_forward();
  }
  void run_forward() {
    forward = AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
    AttentionOutputs outputs = forward.views();
    outputs.fingerprint = &fingerprint;
    attention_forward(call.query.view(), call.key.view(), call.value.view(), outputs, call.options);
  }
  AttentionForwardState saved() const {
    return {.context = std::as_const(forward.context).view(),
            .row_max = std::as_const(*forward.row_max).view(),
            .row_sum = std::as_const(*forward.row_sum).view(),
            .grad_context = grad_context.view(),
            .grad_lse = grad_lse.view(),
            .fingerprint = fingerprint};
  }
  void run(const AttentionGradients& views, const Runtime& runtime = {}) const {
    attention_backward(call.query.view(), call.key.view(), call.value.view(), saved(), views, call.options, runtime);
  }
  void run(GradientArrays<T>& g, const Runtime& runtime = {}) const { run(g.views(), runtime); }
};

// Reports the first few elements that deviate by more than their bound.
template <class T, int Rank>
void expect_gradient(const char* name, const Array<T, Rank>& got, const reference::Gradient<T>& expected) {
  const std::vector<T> x = got.values();
  ASSERT_EQ(x.size(), expected.value.size());
  int faults = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    // A sum whose partial sums may overflow can be anything.
    if (!(expected.size[n] < std::numeric_limits<T>::max() / 16) && expected.size[n] == expected.size[n]) continue;
    if (!agrees<T>(x[n], expected.value[n], expected.error[n]) && ++faults < 6) {
      ADD_FAILURE() << name << ", element " << n << " of " << x.size() << ": " << x[n] << ", expected "
                    << expected.value[n] << ", allowed " << expected.error[n];
    }
  }
}

template <class T>
void expect_gradients(const GradientArrays<T>& g, const reference::AttentionBackward<T>& expected) {
  expect_gradient("grad_query", g.query, expected.query);
  expect_gradient("grad_key", g.key, expected.key);
  expect_gradient("grad_value", g.value, expected.value);
  if (g.bias) expect_gradient("grad_bias", *g.bias, expected.bias);
  if (g.sinks) expect_gradient("grad_sinks", *g.sinks, expected.sinks);
}

// The bits of every gradient, one after another.
template <class T>
std::vector<std::uint64_t> all_bits(const GradientArrays<T>& g) {
  std::vector<std::uint64_t> bits = bits_of(g.query);
  const auto append = [&](const std::vector<std::uint64_t>& more) {
    bits.insert(bits.end(), more.begin(), more.end());
  };
  append(bits_of(g.key));
  append(bits_of(g.value));
  if (g.bias) append(bits_of(*g.bias));
  if (g.sinks) append(bits_of(*g.sinks));
  return bits;
}

// Each of query, key and value, requested alone, has the same gradient as together with the others.
template <class T, class Case>
void expect_the_same_alone(const Case& test, const GradientArrays<T>& all) {
  GradientArrays<T> g = outputs_of(test.call);
  test.run({.grad_query = g.query.view()});
  test.run({.grad_key = g.key.view()});
  test.run({.grad_value = g.value.view()});
  EXPECT_TRUE(same_bits(all_bits(g), all_bits(all)));
}

// One entry of the batch.
template <class T, int Rank>
Array<T, Rank> batch_entry(const Array<T, Rank>& from, Index b, const Layout<Rank>& layout = Layout<Rank>::dense()) {
  auto shape = from.shape();
  shape[0] = 1;
  Array<T, Rank> to(shape, layout);
  to.for_each_index([&](auto at) {
    const auto here = at;
    at[0] = b;
    to.set(here, from.get(at));
  });
  return to;
}

// NaN and infinities in rows begin to end of every head.
template <class T>
void poison(Array<T, 4>& array, Index begin, Index end) {
  array.for_each_index([&](const auto& at) {
    if (at[2] < begin || at[2] >= end) return;
    array.set(
        at, T((at[2] + at[3]) % 2 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity()));
  });
}

}  // namespace regard
