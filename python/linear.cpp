// SPDX-License-Identifier: Apache-2.0
//
// linear_forward, PackedLinear and linear_backward for Python.
//
//     (R, I) · (I, O) + (O) ──▶ (R, O)        all of float32, of float64, or of bfloat16
//
// Read next: attention.cpp, regard/linear.h.
#include "regard/linear.h"

#include <nanobind/stl/string.h>

#include <array>
#include <variant>

#include "layer_call.h"
#include "module.h"
#include "regard/linear_backward.h"

namespace regard::python {
namespace {

using Packed = std::variant<PackedLinear<float>, PackedLinear<double>, PackedLinear<bfloat16>>;

double products(Index rows, Index inputs, Index outputs) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
}

// Calls `call` with a value of the type of `out`, which has been allocated or given.
template <class T, class Call>
void with_output_type(const Outputs& outputs, const Call& call) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (outputs.find("out")->type() == number_type<float>()) return call(float{});
  }
  call(T{});
}

// Takes the options of linear_forward, allocates the output, and runs call(x, bias, out, options, runtime).
template <class T, class Call>
nb::object forward(nb::handle input_object, const Array& input, Index num_outputs, const Array& bias,
                   Keywords& keywords, const Call& call) {
  constexpr const char* kName = "linear_forward";
  Outputs outputs(kName, input_object);
  outputs.take(keywords, "out", nullptr);
  NumberType type = number_type<T>();
  if (const nb::handle dtype = keywords.take("dtype")) {
    type = named_type(kName, "dtype", text_of(kName, "dtype", nb::str(dtype)));
    if (type != number_type<T>() && !(type == number_type<float>() && std::is_same_v<T, bfloat16>)) {
      reject(kName, "dtype is " + type_text(type) + "; expected " + type_text(number_type<T>()) + ", the input's" +
                        (std::is_same_v<T, bfloat16> ? ", or float32" : ""));
    }
  }
  const nb::handle activation = keywords.take("activation");
  const LinearOptions options{activation ? activation_named(kName, activation) : Activation::none};
  const int num_threads = keywords.take_int("num_threads", 0);
  keywords.finish();
  const auto x = input.view<const T, 2>(kName, "input");
  const auto b = bias.view<const T, 1>(kName, "bias");
  outputs.allocate("out", type, {x.shape[0], num_outputs});
  with_output_type<T>(outputs, [&]<class Out>(Out) {
    const auto out = outputs.view<Out, 2>("out");
    run(products(x.shape[0], x.shape[1], num_outputs), num_threads,
        [&](const Runtime& runtime) { call(x, b, out, options, runtime); });
  });
  return outputs.hand_out("out");
}

nb::object linear_forward_of(nb::handle input_object, nb::handle parameters_object, nb::handle bias_object,
                             nb::kwargs kwargs) {
  constexpr const char* kName = "linear_forward";
  const Array input(kName, "input", input_object);
  Array bias;
  if (!bias_object.is_none()) bias.borrow(kName, "bias", bias_object, Access::read);
  Keywords keywords(kName, std::move(kwargs));
  if (nb::isinstance<Packed>(parameters_object)) {
    const auto call = [&]<class T>(const PackedLinear<T>& packed) {
      return forward<T>(input_object, input, packed.num_outputs(), bias, keywords,
                        [&](const auto& x, const auto& b, const auto& out, const auto& options, const auto& runtime) {
                          linear_forward(x, packed, b, out, options, runtime);
                        });
    };
    return std::visit(call, nb::cast<const Packed&>(parameters_object));
  }
  const Array weight(kName, "weight", parameters_object);
  return with_layer_type(kName, "input", input.type(), [&]<class T>(T) {
    const auto w = weight.view<const T, 2>(kName, "weight");
    return forward<T>(input_object, input, w.shape[1], bias, keywords,
                      [&](const auto& x, const auto& b, const auto& out, const auto& options, const auto& runtime) {
                        if (options.activation == Activation::none) return linear_forward(x, w, b, out, runtime);
                        linear_forward(x, PackedLinear<T>(w, runtime), b, out, options, runtime);
                      });
  });
}

Packed packed_linear_of(nb::handle parameters_object) {
  constexpr const char* kName = "PackedLinear";
  const Array weight(kName, "weight", parameters_object);
  return with_layer_type(kName, "weight", weight.type(), [&]<class T>(T) {
    const auto w = weight.view<const T, 2>(kName, "weight");
    Packed packed;
    run(static_cast<double>(w.size()), 0, [&](const Runtime& runtime) { packed = PackedLinear<T>(w, runtime); });
    return packed;
  });
}

nb::object linear_backward_of(nb::handle input_object, nb::handle parameters_object, nb::handle grad_output_object,
                              nb::kwargs kwargs) {
  constexpr const char* kName = "linear_backward";
  const Array input(kName, "input", input_object);
  const Array weight(kName, "weight", parameters_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input", "grad_weight", "grad_bias"});
  call.outputs.take_accumulate(call.keywords);
  const Index rows_per_group = call.whole("rows_per_group", 0);
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 2>(kName, "input");
    const auto w = weight.view<const T, 2>(kName, "weight");
    const auto g = grad_output.view<const T, 2>(kName, "grad_output");
    const LinearGradients<T> gradients{.grad_input = call.output<T, 2>("grad_input", x.shape),
                                       .grad_weight = call.output<T, 2>("grad_weight", w.shape),
                                       .grad_bias = call.output<T, 1>("grad_bias", {g.shape[1]}),
                                       .accumulate = {.grad_input = call.outputs.accumulates("grad_input"),
                                                      .grad_weight = call.outputs.accumulates("grad_weight"),
                                                      .grad_bias = call.outputs.accumulates("grad_bias")},
                                       .rows_per_group = rows_per_group};
    call.run(2 * products(x.shape[0], w.shape[0], w.shape[1]),
             [&](const Runtime& runtime) { linear_backward<T>(x, w, g, gradients, runtime); });
    return call.named_results();
  });
}

}  // namespace

void bind_linear(nb::module_& module) {
  const auto extents = [](const Packed& self) {
    return std::visit([](const auto& packed) { return nb::make_tuple(packed.num_inputs(), packed.num_outputs()); },
                      self);
  };
  nb::class_<Packed>(module, "PackedLinear", "A packed copy of a weight (I, O) for many calls to linear_forward.")
      .def(
          "__init__", [](Packed* self, nb::handle weight) { new (self) Packed(packed_linear_of(weight)); },
          nb::arg("weight"), nb::sig("def __init__(self, weight: object) -> None"))
      .def_prop_ro("shape", extents, nb::sig("def shape(self) -> tuple[int, int]"), "The shape of the weight, (I, O).")
      .def_prop_ro(
          "num_bytes",
          [](const Packed& self) { return std::visit([](const auto& packed) { return packed.num_bytes(); }, self); },
          "The size of the packed weight in bytes.");
  module.def(
      "linear_forward", &linear_forward_of, nb::arg("input"), nb::arg("weight"), nb::arg("bias") = nb::none(),
      nb::arg("kwargs"),
      nb::sig("def linear_forward(input: object, weight: PackedLinear | object, bias: object | None = None, *, "
              "out: object | None = None, dtype: str | None = None, activation: str = 'none', num_threads: int = 0) -> "
              "typing.Any"),
      "Computes activation(input · weight + bias) for input (R, I), weight (I, O) or PackedLinear, and bias\n"
      "(O), all of float32, float64 or bfloat16. The output for bfloat16 inputs may be float32 (dtype, out).\n"
      "activation is none, relu, gelu, gelu_tanh or silu. The weight of a PyTorch nn.Linear has shape (O, I):\n"
      "pass weight.T.");
  module.def("linear_backward", &linear_backward_of, nb::arg("input"), nb::arg("weight"), nb::arg("grad_output"),
             nb::arg("kwargs"),
             nb::sig("def linear_backward(input: object, weight: object, grad_output: object, *, "
                     "grad_input: object | None = None, grad_weight: object | None = None, "
                     "grad_bias: object | None = None, accumulate: collections.abc.Sequence[str] = (), "
                     "rows_per_group: int = 0, num_threads: int = 0) -> dict[str, typing.Any]"),
             "Computes the gradients of input · weight + bias from grad_output (R, O), the gradient of the loss with\n"
             "respect to this sum, before any activation. Returns grad_input (R, I), grad_weight (I, O) and grad_bias\n"
             "(O) by name. If an array is passed under the name of a gradient, the gradient is written to it, or\n"
             "added to it if accumulate contains the name.");
}

}  // namespace regard::python
