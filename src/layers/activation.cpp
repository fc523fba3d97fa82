// SPDX-License-Identifier: Apache-2.0
//
// activation_forward, activation_backward, swiglu_forward and swiglu_backward: element-wise operators, each one kernel.
// Read next: elementwise.h, kernels/activation_rows.cpp.
#include "regard/activation.h"

#include "elementwise.h"
#include "instantiate.h"
#include "kernel_activation.h"
#include "kernels/layer_table.h"

namespace regard::inline v0 {
namespace internal {
namespace {

// Operations per element, including those of the exponential and the division, for plans.
constexpr double kActivationOperations = 30;

template <class T>
const kernels::LayerKernels<ComputeType<T>>& layer_kernels() {
  return *kernels::active().of<ComputeType<T>>().layers;
}

}  // namespace
}  // namespace internal

template <class T>
void activation_forward(std::type_identity_t<TensorView<const T, 2>> input, TensorView<T, 2> output,
                        Activation activation, const Runtime& runtime) {
  using namespace internal;
  Elementwise<T, 1, 1> call{.operator_name = "activation_forward",
                            .inputs = {{{"input", input}}},
                            .outputs = {{{"output", output, false}}},
                            .operations = kActivationOperations};
  const kernels::Activation function = kernel_activation(call.operator_name, activation);
  call.run(runtime, [&](Index count, const auto& from, const auto& to) {
    layer_kernels<T>().activate(function, from[0], count, to[0]);
  });
}

template <class T>
void activation_backward(std::type_identity_t<TensorView<const T, 2>> input,
                         std::type_identity_t<TensorView<const T, 2>> grad_output,
                         const std::type_identity_t<ActivationGradients<T>>& gradients, Activation activation,
                         const Runtime& runtime) {
  using namespace internal;
  Elementwise<T, 2, 1> call{.operator_name = "activation_backward",
                            .inputs = {{{"input", input}, {"grad_output", grad_output}}},
                            .outputs = {{{"grad_input", gradients.grad_input, gradients.accumulate}}},
                            .operations = kActivationOperations};
  const kernels::Activation function = kernel_activation(call.operator_name, activation);
  call.run(runtime, [&](Index count, const auto& from, const auto& to) {
    layer_kernels<T>().activate_backward(function, from[0], from[1], count, gradients.accumulate, to[0]);
  });
}

template <class T>
void swiglu_forward(std::type_identity_t<TensorView<const T, 2>> gate, std::type_identity_t<TensorView<const T, 2>> up,
                    TensorView<T, 2> output, const Runtime& runtime) {
  using namespace internal;
  Elementwise<T, 2, 1> call{.operator_name = "swiglu_forward",
                            .inputs = {{{"gate", gate}, {"up", up}}},
                            .outputs = {{{"output", output, false}}},
                            .operations = kActivationOperations};
  call.run(runtime, [&](Index count, const auto& from, const auto& to) {
    layer_kernels<T>().swiglu(from[0], from[1], count, to[0]);
  });
}

template <class T>
void swiglu_backward(std::type_identity_t<TensorView<const T, 2>> gate, std::type_identity_t<TensorView<const T, 2>> up,
                     std::type_identity_t<TensorView<const T, 2>> grad_output,
                     const std::type_identity_t<SwigluGradients<T>>& gradients, const Runtime& runtime) {
  using namespace internal;
  const auto [add_gate, add_up] = gradients.accumulate;
  Elementwise<T, 3, 2> call{
      .operator_name = "swiglu_backward",
      .inputs = {{{"gate", gate}, {"up", up}, {"grad_output", grad_output}}},
      .outputs = {{{"grad_gate", gradients.grad_gate, add_gate}, {"grad_up", gradients.grad_up, add_up}}},
      .operations = kActivationOperations};
  call.run(runtime, [&](Index count, const auto& from, const auto& to) {
    layer_kernels<T>().swiglu_backward({.count = count,
                                        .gate = from[0],
                                        .up = from[1],
                                        .grad_output = from[2],
                                        .grad_gate = to[0],
                                        .grad_up = to[1],
                                        .accumulate_gate = add_gate,
                                        .accumulate_up = add_up});
  });
}

REGARD_INSTANTIATE_LAYER(activation_forward);
REGARD_INSTANTIATE_LAYER(activation_backward);
REGARD_INSTANTIATE_LAYER(swiglu_forward);
REGARD_INSTANTIATE_LAYER(swiglu_backward);

}  // namespace regard::inline v0
