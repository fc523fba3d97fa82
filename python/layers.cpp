// SPDX-License-Identifier: Apache-2.0
//
// Element-wise layers and norms for Python, with their gradients, on arrays of float32, float64 or bfloat16.
//
//     (R, E) ── activation, layer_norm, rms_norm ──▶ (R, E)        (R, F), (R, F) ── swiglu ──▶ (R, F)
//
// Read next: layer_call.h, embedding.cpp, multi_head.cpp, linear.cpp.
#include "layer_call.h"
#include "module.h"
#include "regard/layer_norm.h"
#include "regard/rms_norm.h"

namespace regard::python {
namespace {

// The approximate number of floating-point operations per element of a row, which decides whether a call runs on a
// separate thread.
constexpr double kElement = 20;

template <class View>
double elements(const View& view) {
  return kElement * static_cast<double>(view.size());
}

nb::object activation_forward_of(nb::handle input_object, nb::handle activation_object, nb::kwargs kwargs) {
  constexpr const char* kName = "activation_forward";
  const Array input(kName, "input", input_object);
  const Activation activation = activation_named(kName, activation_object);
  LayerCall call(kName, input_object, std::move(kwargs), {"out"});
  call.finish();
  return with_layer_type(kName, "input", input.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto out = call.output<T, 2>("out", x.shape);
    call.run(elements(x), [&](const Runtime& runtime) { activation_forward<T>(x, out, activation, runtime); });
    return call.result("out");
  });
}

nb::object activation_backward_of(nb::handle input_object, nb::handle grad_output_object, nb::handle activation_object,
                                  nb::kwargs kwargs) {
  constexpr const char* kName = "activation_backward";
  const Array input(kName, "input", input_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  const Activation activation = activation_named(kName, activation_object);
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input"});
  const bool accumulate = call.accumulates_into("grad_input");
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto g = grad_output.view<const T, 2>(kName, "grad_output");
    const ActivationGradients<T> gradients{.grad_input = call.output<T, 2>("grad_input", x.shape),
                                           .accumulate = accumulate};
    call.run(2 * elements(x),
             [&](const Runtime& runtime) { activation_backward<T>(x, g, gradients, activation, runtime); });
    return call.result("grad_input");
  });
}

nb::object swiglu_forward_of(nb::handle gate_object, nb::handle up_object, nb::kwargs kwargs) {
  constexpr const char* kName = "swiglu_forward";
  const Array gate(kName, "gate", gate_object);
  const Array up(kName, "up", up_object);
  LayerCall call(kName, gate_object, std::move(kwargs), {"out"});
  call.finish();
  return with_layer_type(kName, "gate", gate.type(), [&]<class T>(T) {
    const auto g = gate.view<const T, 2>(kName, "gate");
    const auto u = up.view<const T, 2>(kName, "up");
    const auto out = call.output<T, 2>("out", g.shape);
    call.run(elements(g), [&](const Runtime& runtime) { swiglu_forward<T>(g, u, out, runtime); });
    return call.result("out");
  });
}

nb::object swiglu_backward_of(nb::handle gate_object, nb::handle up_object, nb::handle grad_output_object,
                              nb::kwargs kwargs) {
  constexpr const char* kName = "swiglu_backward";
  const Array gate(kName, "gate", gate_object);
  const Array up(kName, "up", up_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_gate", "grad_up"});
  call.outputs.take_accumulate(call.keywords);
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto g = gate.view<const T, 2>(kName, "gate");
    const auto u = up.view<const T, 2>(kName, "up");
    const auto grad = grad_output.view<const T, 2>(kName, "grad_output");
    const SwigluGradients<T> gradients{.grad_gate = call.output<T, 2>("grad_gate", g.shape),
                                       .grad_up = call.output<T, 2>("grad_up", g.shape),
                                       .accumulate = {.grad_gate = call.outputs.accumulates("grad_gate"),
                                                      .grad_up = call.outputs.accumulates("grad_up")}};
    call.run(2 * elements(g), [&](const Runtime& runtime) { swiglu_backward<T>(g, u, grad, gradients, runtime); });
    return call.named_results();
  });
}

nb::object layer_norm_forward_of(nb::handle input_object, nb::handle gain_object, nb::handle bias_object,
                                 nb::kwargs kwargs) {
  constexpr const char* kName = "layer_norm_forward";
  const Array input(kName, "input", input_object);
  const Array gain(kName, "gain", gain_object);
  Array bias, addend;
  if (!bias_object.is_none()) bias.borrow(kName, "bias", bias_object, Access::read);
  LayerCall call(kName, input_object, std::move(kwargs), {"out"});
  call.borrow("addend", addend);
  const double epsilon = call.number("epsilon", 1e-5);
  call.finish();
  return with_layer_type(kName, "input", input.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto added = addend.view<const T, 2>(kName, "addend");
    const auto g = gain.view<const T, 1>(kName, "gain");
    const auto b = bias.view<const T, 1>(kName, "bias");
    const auto out = call.output<T, 2>("out", x.shape);
    call.run(elements(x),
             [&](const Runtime& runtime) { layer_norm_forward<T>(x, added, g, b, out, epsilon, runtime); });
    return call.result("out");
  });
}

nb::object layer_norm_backward_of(nb::handle input_object, nb::handle gain_object, nb::handle grad_output_object,
                                  nb::kwargs kwargs) {
  constexpr const char* kName = "layer_norm_backward";
  const Array input(kName, "input", input_object);
  const Array gain(kName, "gain", gain_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  Array addend;
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input", "grad_gain", "grad_bias"});
  call.outputs.take_accumulate(call.keywords);
  call.borrow("addend", addend);
  const double epsilon = call.number("epsilon", 1e-5);
  const Index rows_per_group = call.whole("rows_per_group", 0);
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto added = addend.view<const T, 2>(kName, "addend");
    const auto g = gain.view<const T, 1>(kName, "gain");
    const auto grad = grad_output.view<const T, 2>(kName, "grad_output");
    const LayerNormGradients<T> gradients{.grad_input = call.output<T, 2>("grad_input", x.shape),
                                          .grad_gain = call.output<T, 1>("grad_gain", g.shape),
                                          .grad_bias = call.output<T, 1>("grad_bias", g.shape),
                                          .accumulate = {.grad_input = call.outputs.accumulates("grad_input"),
                                                         .grad_gain = call.outputs.accumulates("grad_gain"),
                                                         .grad_bias = call.outputs.accumulates("grad_bias")},
                                          .rows_per_group = rows_per_group};
    call.run(2 * elements(x),
             [&](const Runtime& runtime) { layer_norm_backward<T>(x, added, g, grad, gradients, epsilon, runtime); });
    return call.named_results();
  });
}

nb::object rms_norm_forward_of(nb::handle input_object, nb::handle gain_object, nb::kwargs kwargs) {
  constexpr const char* kName = "rms_norm_forward";
  const Array input(kName, "input", input_object);
  const Array gain(kName, "gain", gain_object);
  Array addend;
  LayerCall call(kName, input_object, std::move(kwargs), {"out"});
  call.borrow("addend", addend);
  const double epsilon = call.number("epsilon", 1e-5);
  call.finish();
  return with_layer_type(kName, "input", input.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto added = addend.view<const T, 2>(kName, "addend");
    const auto g = gain.view<const T, 1>(kName, "gain");
    const auto out = call.output<T, 2>("out", x.shape);
    call.run(elements(x), [&](const Runtime& runtime) { rms_norm_forward<T>(x, added, g, out, epsilon, runtime); });
    return call.result("out");
  });
}

nb::object rms_norm_backward_of(nb::handle input_object, nb::handle gain_object, nb::handle grad_output_object,
                                nb::kwargs kwargs) {
  constexpr const char* kName = "rms_norm_backward";
  const Array input(kName, "input", input_object);
  const Array gain(kName, "gain", gain_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  Array addend;
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input", "grad_gain"});
  call.outputs.take_accumulate(call.keywords);
  call.borrow("addend", addend);
  const double epsilon = call.number("epsilon", 1e-5);
  const Index rows_per_group = call.whole("rows_per_group", 0);
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto added = addend.view<const T, 2>(kName, "addend");
    const auto g = gain.view<const T, 1>(kName, "gain");
    const auto grad = grad_output.view<const T, 2>(kName, "grad_output");
    const RmsNormGradients<T> gradients{.grad_input = call.output<T, 2>("grad_input", x.shape),
                                        .grad_gain = call.output<T, 1>("grad_gain", g.shape),
                                        .accumulate = {.grad_input = call.outputs.accumulates("grad_input"),
                                                       .grad_gain = call.outputs.accumulates("grad_gain")},
                                        .rows_per_group = rows_per_group};
    call.run(2 * elements(x),
             [&](const Runtime& runtime) { rms_norm_backward<T>(x, added, g, grad, gradients, epsilon, runtime); });
    return call.named_results();
  });
}

}  // namespace

Activation activation_named(const char* operator_name, nb::handle given) {
  const std::string text = text_of(operator_name, "activation", given);
  if (text == "none") return Activation::none;
  if (text == "relu") return Activation::relu;
  if (text == "gelu") return Activation::gelu;
  if (text == "gelu_tanh") return Activation::gelu_tanh;
  if (text == "silu") return Activation::silu;
  reject(operator_name, "activation is '" + text + "'; expected none, relu, gelu, gelu_tanh or silu");
}

void bind_layers(nb::module_& module) {
  module.def("activation_forward", &activation_forward_of, nb::arg("input"), nb::arg("activation"), nb::arg("kwargs"),
             nb::sig("def activation_forward(input: object, activation: str, *, out: object | None = None, "
                     "num_threads: int = 0) -> typing.Any"),
             "Computes f(input), (R, E), where activation f is none, relu, gelu, gelu_tanh or silu. out may be input.");
  module.def("activation_backward", &activation_backward_of, nb::arg("input"), nb::arg("grad_output"),
             nb::arg("activation"), nb::arg("kwargs"),
             nb::sig("def activation_backward(input: object, grad_output: object, activation: str, *, "
                     "grad_input: object | None = None, accumulate: bool = False, num_threads: int = 0) -> typing.Any"),
             "Computes grad_output · f′(input), (R, E). grad_input may be input or grad_output.");
  module.def("swiglu_forward", &swiglu_forward_of, nb::arg("gate"), nb::arg("up"), nb::arg("kwargs"),
             nb::sig("def swiglu_forward(gate: object, up: object, *, out: object | None = None, "
                     "num_threads: int = 0) -> typing.Any"),
             "Computes silu(gate) · up, (R, F), element by element.");
  module.def("swiglu_backward", &swiglu_backward_of, nb::arg("gate"), nb::arg("up"), nb::arg("grad_output"),
             nb::arg("kwargs"),
             nb::sig("def swiglu_backward(gate: object, up: object, grad_output: object, *, "
                     "grad_gate: object | None = None, grad_up: object | None = None, "
                     "accumulate: collections.abc.Sequence[str] = (), num_threads: int = 0) -> dict[str, typing.Any]"),
             "Computes the gradients of silu(gate) · up. Returns grad_gate and grad_up, (R, F), by name.");
  module.def("layer_norm_forward", &layer_norm_forward_of, nb::arg("input"), nb::arg("gain"),
             nb::arg("bias") = nb::none(), nb::arg("kwargs"),
             nb::sig("def layer_norm_forward(input: object, gain: object, bias: object | None = None, *, "
                     "addend: object | None = None, epsilon: float = 1e-05, out: object | None = None, "
                     "num_threads: int = 0) -> typing.Any"),
             "Computes (x − mean) / √(variance + epsilon) · gain + bias for every row of x = input + addend, (R, E).");
  module.def("layer_norm_backward", &layer_norm_backward_of, nb::arg("input"), nb::arg("gain"), nb::arg("grad_output"),
             nb::arg("kwargs"),
             nb::sig("def layer_norm_backward(input: object, gain: object, grad_output: object, *, "
                     "addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, "
                     "grad_gain: object | None = None, grad_bias: object | None = None, "
                     "accumulate: collections.abc.Sequence[str] = (), rows_per_group: int = 0, "
                     "num_threads: int = 0) -> dict[str, typing.Any]"),
             "Computes the gradients of layer_norm_forward. Returns by name: grad_input (R, E), which is also the\n"
             "gradient of addend, grad_gain (E) and grad_bias (E).");
  module.def("rms_norm_forward", &rms_norm_forward_of, nb::arg("input"), nb::arg("gain"), nb::arg("kwargs"),
             nb::sig("def rms_norm_forward(input: object, gain: object, *, addend: object | None = None, "
                     "epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> typing.Any"),
             "Computes x / √(Σ x² / E + epsilon) · gain for every row of x = input + addend, (R, E).");
  module.def("rms_norm_backward", &rms_norm_backward_of, nb::arg("input"), nb::arg("gain"), nb::arg("grad_output"),
             nb::arg("kwargs"),
             nb::sig("def rms_norm_backward(input: object, gain: object, grad_output: object, *, "
                     "addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, "
                     "grad_gain: object | None = None, accumulate: collections.abc.Sequence[str] = (), "
                     "rows_per_group: int = 0, num_threads: int = 0) -> dict[str, typing.Any]"),
             "Computes the gradients of rms_norm_forward. Returns grad_input (R, E) and grad_gain (E) by name.");
}

}  // namespace regard::python
