// SPDX-License-Identifier: Apache-2.0
//
// layer_norm_forward and multi_head_attention_forward for Python, on arrays of float32, or all of float64.
//
//     (R, E) ── layer_norm_forward ──▶ (R, E)        (B, L, E) ── multi_head_attention_forward ──▶ (B, L, E)
//
// Read next: linear.cpp, attention.cpp, regard/multi_head.h.
#include "regard/layer_norm.h"
#include "regard/multi_head.h"

#include "module.h"
#include "options.h"
#include "outputs.h"
#include "run.h"

namespace regard::python {
namespace {

template <class Call>
auto with_type(const Array& input, const Call& call) {
  if (input.type() == number_type<double>()) return call(double{});
  return call(float{});
}

nb::object layer_norm_forward_of(nb::handle input_object, nb::handle gain_object, nb::handle bias_object,
                                 nb::kwargs kwargs) {
  constexpr const char* kName = "layer_norm_forward";
  const Array input(kName, "input", input_object);
  const Array gain(kName, "gain", gain_object);
  const Array bias(kName, "bias", bias_object);
  Keywords keywords(kName, std::move(kwargs));
  return with_type(input, [&]<class T>(T) {
    Outputs outputs(kName, input_object);
    outputs.take(keywords, "out", nullptr);
    Array addend;
    if (const nb::handle given = keywords.take("addend")) addend.borrow(kName, "addend", given, Access::read);
    double epsilon = 1e-5;
    if (const nb::handle given = keywords.take("epsilon")) epsilon = keywords.number<double>("epsilon", given);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto x = input.view<const T, 2>(kName, "input");
    const auto added = addend.view<const T, 2>(kName, "addend");
    const auto g = gain.view<const T, 1>(kName, "gain");
    const auto b = bias.view<const T, 1>(kName, "bias");
    outputs.allocate("out", number_type<T>(), {x.shape[0], x.shape[1]});
    const auto out = outputs.view<T, 2>("out");
    run(10.0 * static_cast<double>(x.size()), num_threads,
        [&](const Runtime& runtime) { layer_norm_forward<T>(x, added, g, b, out, epsilon, runtime); });
    return outputs.hand_out("out");
  });
}

nb::object multi_head_of(nb::handle input_object, nb::handle w_query_object, nb::handle w_key_object,
                         nb::handle w_value_object, nb::kwargs kwargs) {
  constexpr const char* kName = "multi_head_attention_forward";
  const Array input(kName, "input", input_object);
  const Array w_query(kName, "w_query", w_query_object);
  const Array w_key(kName, "w_key", w_key_object);
  const Array w_value(kName, "w_value", w_value_object);
  Keywords keywords(kName, std::move(kwargs));
  return with_type(input, [&]<class T>(T) {
    Array w_output, memory, b_query, b_key, b_value, b_output;
    const auto borrow = [&](const char* name, Array& array) {
      if (const nb::handle given = keywords.take(name)) array.borrow(kName, name, given, Access::read);
    };
    borrow("w_output", w_output);
    borrow("memory", memory);
    borrow("b_query", b_query);
    borrow("b_key", b_key);
    borrow("b_value", b_value);
    borrow("b_output", b_output);
    MultiHeadParameters<T> parameters;
    parameters.num_heads = keywords.take_int("num_heads", 1);
    parameters.num_kv_heads = keywords.take_int("num_kv_heads", 0);
    Outputs outputs(kName, input_object);
    outputs.take(keywords, "out", nullptr);
    outputs.take(keywords, "weights", "return_weights");
    Options<T> options(keywords, input);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto x = input.view<const T, 3>(kName, "input");
    const auto source = memory.view<const T, 3>(kName, "memory");
    parameters.w_query = w_query.view<const T, 2>(kName, "w_query");
    parameters.w_key = w_key.view<const T, 2>(kName, "w_key");
    parameters.w_value = w_value.view<const T, 2>(kName, "w_value");
    parameters.w_output = w_output.view<const T, 2>(kName, "w_output");
    parameters.b_query = b_query.view<const T, 1>(kName, "b_query");
    parameters.b_key = b_key.view<const T, 1>(kName, "b_key");
    parameters.b_value = b_value.view<const T, 1>(kName, "b_value");
    parameters.b_output = b_output.view<const T, 1>(kName, "b_output");
    if (parameters.num_heads < 1) {
      reject(kName, "num_heads is " + std::to_string(parameters.num_heads) + "; expected at least 1");
    }
    const Index keys = memory.given() ? source.shape[1] : x.shape[1];
    const Index key_heads = parameters.num_kv_heads > 0 ? parameters.num_kv_heads : parameters.num_heads;
    const Index joined = parameters.w_value.shape[1] / key_heads * parameters.num_heads;
    const Index width = w_output.given() ? parameters.w_output.shape[1] : joined;
    outputs.allocate("out", number_type<T>(), {x.shape[0], x.shape[1], width});
    outputs.allocate("weights", number_type<T>(), {x.shape[0], parameters.num_heads, x.shape[1], keys});
    MultiHeadOutputs<T> views;
    views.output = outputs.view<T, 3>("out");
    views.weights = outputs.view<T, 4>("weights");
    const auto n = [](Index extent) { return static_cast<double>(extent); };
    const double operations = 4 * n(x.shape[0]) * n(x.shape[1]) * n(joined) * (n(keys) + 2 * n(x.shape[2]));
    run(operations, num_threads, [&](const Runtime& runtime) {
      multi_head_attention_forward<T>(x, source, parameters, views, options.options, runtime);
    });
    nb::list listed = outputs.hand_out_listed();
    if (nb::len(listed) == 1) return nb::object(listed[0]);
    return nb::object(nb::tuple(listed));
  });
}

}  // namespace

void bind_layers(nb::module_& module) {
  module.def(
      "layer_norm_forward", &layer_norm_forward_of, nb::arg("input"), nb::arg("gain"), nb::arg("bias"),
      nb::arg("kwargs"),
      nb::sig("def layer_norm_forward(input: object, gain: object, bias: object, *, addend: object | None = None, "
              "epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> typing.Any"),
      "(x − mean) / √(variance + epsilon) · gain + bias of every row of x = input + addend: (R, E).");
  module.def("multi_head_attention_forward", &multi_head_of, nb::arg("input"), nb::arg("w_query"), nb::arg("w_key"),
             nb::arg("w_value"), nb::arg("kwargs"),
             nb::sig(signature("def multi_head_attention_forward(input: object, w_query: object, w_key: object, "
                               "w_value: object, *, w_output: object | None = None, memory: object | None = None, "
                               "b_query: object | None = None, b_key: object | None = None, "
                               "b_value: object | None = None, b_output: object | None = None, num_heads: int = 1, "
                               "num_kv_heads: int = 0, out: object | None = None, "
                               "weights: object | None = None, return_weights: bool = False" +
                               options_signature() + ") -> typing.Any")),
             "A multi-head attention block on (B, L, E): project, split into heads, attend, join, project back.\n"
             "key and value are made from memory (B, S, E_kv), by default from input.");
}

}  // namespace regard::python
