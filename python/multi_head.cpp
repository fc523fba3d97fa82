// SPDX-License-Identifier: Apache-2.0
//
// multi_head_attention_forward and its gradients for Python, on arrays of float32, or all of float64.
//
//     (B, L, E) ── multi_head_attention_forward ──▶ (B, L, E_out), and on request weights and state
//     state, grad_output ── multi_head_attention_backward ──▶ {"grad_input": …, "grad_w_query": …, …}
//
// Read next: layers.cpp, attention.cpp, regard/multi_head_backward.h.
#include "regard/multi_head.h"

#include "layer_call.h"
#include "module.h"
#include "options.h"
#include "regard/multi_head_backward.h"

namespace regard::python {
namespace {

// The arguments that both functions have.
class Block {
 public:
  Block(const char* operator_name, nb::handle input_object, nb::handle w_query_object, nb::handle w_key_object,
        nb::handle w_value_object)
      : name_(operator_name),
        input_(operator_name, "input", input_object),
        w_query_(operator_name, "w_query", w_query_object),
        w_key_(operator_name, "w_key", w_key_object),
        w_value_(operator_name, "w_value", w_value_object) {}
  void take(LayerCall& call) {
    call.borrow("w_output", w_output_);
    call.borrow("memory", memory_);
    call.borrow("b_query", b_query_);
    call.borrow("b_key", b_key_);
    call.borrow("b_value", b_value_);
    call.borrow("b_output", b_output_);
    num_heads_ = call.whole("num_heads", 1);
    num_kv_heads_ = call.whole("num_kv_heads", 0);
  }
  const Array& input() const { return input_; }
  template <class T>
  MultiHeadParameters<T> parameters() const {
    if (num_heads_ < 1) reject(name_, "num_heads is " + std::to_string(num_heads_) + "; expected at least 1");
    return {.num_heads = num_heads_,
            .num_kv_heads = num_kv_heads_,
            .w_query = w_query_.view<const T, 2>(name_, "w_query"),
            .w_key = w_key_.view<const T, 2>(name_, "w_key"),
            .w_value = w_value_.view<const T, 2>(name_, "w_value"),
            .w_output = w_output_.view<const T, 2>(name_, "w_output"),
            .b_query = b_query_.view<const T, 1>(name_, "b_query"),
            .b_key = b_key_.view<const T, 1>(name_, "b_key"),
            .b_value = b_value_.view<const T, 1>(name_, "b_value"),
            .b_output = b_output_.view<const T, 1>(name_, "b_output")};
  }
  template <class T>
  TensorView<const T, 3> memory() const {
    return memory_.view<const T, 3>(name_, "memory");
  }

 private:
  const char* name_;
  Array input_, w_query_, w_key_, w_value_;
  Array w_output_, memory_, b_query_, b_key_, b_value_, b_output_;
  Index num_heads_ = 1, num_kv_heads_ = 0;
};

template <class T>
double operations_of(const TensorView<const T, 3>& x, Index keys, Index joined) {
  const auto n = [](Index extent) { return static_cast<double>(extent); };
  return 4 * n(x.shape[0]) * n(x.shape[1]) * n(joined) * (n(keys) + 2 * n(x.shape[2]));
}

nb::object multi_head_forward_of(nb::handle input_object, nb::handle w_query_object, nb::handle w_key_object,
                                 nb::handle w_value_object, nb::kwargs kwargs) {
  constexpr const char* kName = "multi_head_attention_forward";
  Block block(kName, input_object, w_query_object, w_key_object, w_value_object);
  LayerCall call(kName, input_object, std::move(kwargs), {"out"});
  block.take(call);
  call.outputs.take(call.keywords, "weights", "return_weights");
  const bool return_state = call.keywords.take_bool("return_state");
  return with_compute_type(kName, "input", block.input().type(), [&]<class T>(T) {
    Options<T> options(call.keywords, block.input());
    call.finish();
    const auto x = block.input().view<const T, 3>(kName, "input");
    const auto source = block.memory<T>();
    const MultiHeadParameters<T> parameters = block.parameters<T>();
    const Index batch = x.shape[0], rows = x.shape[1], heads = parameters.num_heads;
    const Index keys = source.absent() ? rows : source.shape[1];
    const Index kv_heads = parameters.num_kv_heads > 0 ? parameters.num_kv_heads : heads;
    const Index size = parameters.w_query.shape[1] / heads, value_size = parameters.w_value.shape[1] / kv_heads;
    const Index width = parameters.w_output.absent() ? value_size * heads : parameters.w_output.shape[1];
    MultiHeadOutputs<T> views{.output = call.output<T, 3>("out", {batch, rows, width}),
                              .weights = call.output<T, 4>("weights", {batch, heads, rows, keys})};
    Outputs state(kName, input_object);
    AttentionFingerprint fingerprint;
    if (return_state) {
      const auto add = [&]<int Rank>(const char* name, TensorView<T, Rank>& view, const std::vector<Index>& shape) {
        state.add(name);
        state.allocate(name, number_type<T>(), shape);
        view = state.view<T, Rank>(name);
      };
      add("query", views.query, {batch, heads, rows, size});
      add("key", views.key, {batch, kv_heads, keys, size});
      add("value", views.value, {batch, kv_heads, keys, value_size});
      add("context", views.context, {batch, heads, rows, value_size});
      add("row_max", views.row_max, {batch, heads, rows});
      add("row_sum", views.row_sum, {batch, heads, rows});
      views.fingerprint = &fingerprint;
    }
    call.run(operations_of<T>(x, keys, value_size * heads), [&](const Runtime& runtime) {
      multi_head_attention_forward<T>(x, source, parameters, views, options.options, runtime);
    });
    nb::list listed = call.outputs.hand_out_listed();
    if (return_state) {
      nb::dict named = state.hand_out_named();
      named["fingerprint"] = bytes_of(fingerprint);
      listed.append(named);
    }
    if (nb::len(listed) == 1) return nb::object(listed[0]);
    return nb::object(nb::tuple(listed));
  });
}

// The MultiHeadForwardState in the dictionary that the forward call returned.
template <class T>
class State {
 public:
  State(const char* operator_name, nb::handle given) : name_(operator_name) {
    if (!PyDict_Check(given.ptr()))
      reject_type(operator_name, "state", given, "the state that multi_head_attention_forward returns");
    for (std::size_t i = 0; i < kNames.size(); ++i)
      arrays_[i].borrow(name_, kNames[i], entry(given, kNames[i]), Access::read);
    views.query = arrays_[0].view<const T, 4>(name_, kNames[0]);
    views.key = arrays_[1].view<const T, 4>(name_, kNames[1]);
    views.value = arrays_[2].view<const T, 4>(name_, kNames[2]);
    views.context = arrays_[3].view<const T, 4>(name_, kNames[3]);
    views.row_max = arrays_[4].view<const T, 3>(name_, kNames[4]);
    views.row_sum = arrays_[5].view<const T, 3>(name_, kNames[5]);
    views.fingerprint = fingerprint_of(name_, entry(given, "fingerprint"));
  }
  MultiHeadForwardState<T> views;

 private:
  static constexpr std::array<const char*, 6> kNames{"query", "key", "value", "context", "row_max", "row_sum"};
  nb::handle entry(nb::handle state, const char* name) const {
    PyObject* const found = PyDict_GetItemString(state.ptr(), name);
    if (found == nullptr)
      reject(name_, std::string("state has no ") + name + "; expected the state of the forward call");
    return found;
  }
  const char* name_;
  std::array<Array, kNames.size()> arrays_;
};

nb::object multi_head_backward_of(nb::handle input_object, nb::handle w_query_object, nb::handle w_key_object,
                                  nb::handle w_value_object, nb::handle state_object, nb::handle grad_output_object,
                                  nb::kwargs kwargs) {
  constexpr const char* kName = "multi_head_attention_backward";
  Block block(kName, input_object, w_query_object, w_key_object, w_value_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  const bool with_memory = kwargs.contains("memory") && !kwargs["memory"].is_none();
  const bool with_output = kwargs.contains("w_output") && !kwargs["w_output"].is_none();
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input"});
  // Without memory or w_output, the corresponding gradients do not exist. Arrays for these gradients are rejected as
  // unexpected keywords.
  const auto take = [&](std::initializer_list<const char*> names) {
    for (const char* const name : names) call.outputs.take(call.keywords, name, nullptr);
  };
  if (with_memory) take({"grad_memory"});
  take({"grad_w_query", "grad_w_key", "grad_w_value"});
  if (with_output) take({"grad_w_output"});
  take({"grad_b_query", "grad_b_key", "grad_b_value"});
  if (with_output) take({"grad_b_output"});
  call.outputs.take_accumulate(call.keywords);
  block.take(call);
  const Index rows_per_group = call.whole("rows_per_group", 0);
  return with_compute_type(kName, "input", block.input().type(), [&]<class T>(T) {
    Options<T> options(call.keywords, block.input());
    call.finish();
    const auto x = block.input().view<const T, 3>(kName, "input");
    const auto source = block.memory<T>();
    const auto g = grad_output.view<const T, 3>(kName, "grad_output");
    const MultiHeadParameters<T> parameters = block.parameters<T>();
    const State<T> state(kName, state_object);
    const Outputs& written = call.outputs;
    const auto matrix = [&](const char* name, const TensorView<const T, 2>& of) {
      return call.output<T, 2>(name, of.shape);
    };
    const auto row = [&](const char* name, const TensorView<const T, 2>& of) {
      return call.output<T, 1>(name, {of.shape[1]});
    };
    const MultiHeadGradients<T> gradients{.grad_input = call.output<T, 3>("grad_input", x.shape),
                                          .grad_memory = call.output<T, 3>("grad_memory", source.shape),
                                          .grad_w_query = matrix("grad_w_query", parameters.w_query),
                                          .grad_w_key = matrix("grad_w_key", parameters.w_key),
                                          .grad_w_value = matrix("grad_w_value", parameters.w_value),
                                          .grad_w_output = matrix("grad_w_output", parameters.w_output),
                                          .grad_b_query = row("grad_b_query", parameters.w_query),
                                          .grad_b_key = row("grad_b_key", parameters.w_key),
                                          .grad_b_value = row("grad_b_value", parameters.w_value),
                                          .grad_b_output = row("grad_b_output", parameters.w_output),
                                          .accumulate = {.grad_input = written.accumulates("grad_input"),
                                                         .grad_memory = written.accumulates("grad_memory"),
                                                         .grad_w_query = written.accumulates("grad_w_query"),
                                                         .grad_w_key = written.accumulates("grad_w_key"),
                                                         .grad_w_value = written.accumulates("grad_w_value"),
                                                         .grad_w_output = written.accumulates("grad_w_output"),
                                                         .grad_b_query = written.accumulates("grad_b_query"),
                                                         .grad_b_key = written.accumulates("grad_b_key"),
                                                         .grad_b_value = written.accumulates("grad_b_value"),
                                                         .grad_b_output = written.accumulates("grad_b_output")},
                                          .rows_per_group = rows_per_group};
    call.run(3 * operations_of<T>(x, source.absent() ? x.shape[1] : source.shape[1], parameters.w_query.shape[1]),
             [&](const Runtime& runtime) {
               multi_head_attention_backward<T>(x, source, parameters, state.views, g, gradients, options.options,
                                                runtime);
             });
    return call.named_results();
  });
}

}  // namespace

void bind_multi_head(nb::module_& module) {
  const std::string parameters =
      "w_output: object | None = None, memory: object | None = None, b_query: object | None = None, "
      "b_key: object | None = None, b_value: object | None = None, b_output: object | None = None, "
      "num_heads: int = 1, num_kv_heads: int = 0, ";
  module.def("multi_head_attention_forward", &multi_head_forward_of, nb::arg("input"), nb::arg("w_query"),
             nb::arg("w_key"), nb::arg("w_value"), nb::arg("kwargs"),
             nb::sig(signature("def multi_head_attention_forward(input: object, w_query: object, w_key: object, "
                               "w_value: object, *, " +
                               parameters +
                               "out: object | None = None, weights: object | None = None, "
                               "return_weights: bool = False, return_state: bool = False" +
                               options_signature() + ") -> typing.Any")),
             "Computes a multi-head attention block on (B, L, E): projections, attention in each head, concatenation\n"
             "and output projection. Keys and values are computed from memory (B, S, E_kv), which is input by\n"
             "default. multi_head_attention_backward requires state.");
  std::string gradients;
  for (const char* const name :
       {"input", "memory", "w_query", "w_key", "w_value", "w_output", "b_query", "b_key", "b_value", "b_output"}) {
    gradients += std::string("grad_") + name + ": object | None = None, ";
  }
  module.def("multi_head_attention_backward", &multi_head_backward_of, nb::arg("input"), nb::arg("w_query"),
             nb::arg("w_key"), nb::arg("w_value"), nb::arg("state"), nb::arg("grad_output"), nb::arg("kwargs"),
             nb::sig(signature("def multi_head_attention_backward(input: object, w_query: object, w_key: object, "
                               "w_value: object, state: dict[str, typing.Any], grad_output: object, *, " +
                               parameters + gradients +
                               "accumulate: collections.abc.Sequence[str] = (), rows_per_group: int = 0" +
                               options_signature() + ") -> dict[str, typing.Any]")),
             "Computes the gradients of multi_head_attention_forward from its state and grad_output (B, L, E_out).\n"
             "Returns them by name. grad_memory is present only with memory, and grad_w_output and grad_b_output\n"
             "only with w_output.");
}

}  // namespace regard::python
