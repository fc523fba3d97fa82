// SPDX-License-Identifier: Apache-2.0
//
// One call of attention_backward with everything that it needs: inputs, what their forward pass wrote, random gradients
// of that, and room for the results. Read next: attention_backward_test.cpp.
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

// Reports the first few numbers that are further off than their error allows.
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

}  // namespace regard
