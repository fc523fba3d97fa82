// SPDX-License-Identifier: Apache-2.0
//
// The gradients of attention for Python: attention_backward.
//
//     query, key, value, results of the forward pass, grad_context ──▶ {"grad_query": …, "grad_key": …, …}
//
// Read next: attention.cpp, regard/attention_backward.h.
#include "regard/attention_backward.h"

#include <algorithm>
#include <array>

#include "module.h"
#include "options.h"
#include "outputs.h"
#include "ranks.h"
#include "regard/distributed/attention.h"

namespace regard::python {
namespace {

constexpr const char* kName = "attention_backward";
constexpr std::array<const char*, 5> kGradients{"grad_query", "grad_key", "grad_value", "grad_bias", "grad_sinks"};

// The names of the gradients to compute, and the arrays to write them to, if any.
Outputs take_gradients(Keywords& keywords, nb::handle like, int missing_axes) {
  Outputs outputs(kName, like, missing_axes);
  std::vector<std::string> names{"grad_query", "grad_key", "grad_value"};
  if (const nb::handle given = keywords.take("gradients")) {
    names = word_list(kName, "gradients", given);
  }
  for (const std::string& name : names) {
    const auto found = std::find_if(kGradients.begin(), kGradients.end(), [&](const char* one) { return name == one; });
    if (found == kGradients.end()) {
      reject(kName,
             "gradients names '" + name + "'; expected grad_query, grad_key, grad_value, grad_bias or grad_sinks");
    }
    if (outputs.find(*found) != nullptr) reject(kName, "gradients names " + name + " twice; expected it once");
    outputs.take(keywords, *found, nullptr);
  }
  outputs.take_accumulate(keywords);
  return outputs;
}

std::vector<Index> shape_of(const Array& array) {
  std::vector<Index> shape;
  for (int axis = 0; axis < array.rank(); ++axis) shape.push_back(array.extent(axis));
  return shape;
}

template <class T>
nb::object gradients_of(nb::handle query_object, const Array& query, const Array& key, const Array& value,
                        const Array& context, const Array& row_max, const Array& row_sum, const Array& grad_context,
                        int missing_axes, Keywords& keywords) {
  using Compute = ComputeType<T>;
  Array grad_lse, bias;
  if (const nb::handle given = keywords.take("grad_lse")) grad_lse.borrow(kName, "grad_lse", given, Access::read);
  grad_lse.complete(3, missing_axes);
  AttentionForwardState saved;
  if (const nb::handle given = keywords.take("fingerprint")) saved.fingerprint = fingerprint_of(kName, given);
  Outputs outputs = take_gradients(keywords, query_object, missing_axes);
  if (const nb::handle given = keywords.look("bias")) bias.borrow(kName, "bias", given, Access::read);
  Options<Compute> options(keywords, query);
  const int num_threads = keywords.take_int("num_threads", 0);
  keywords.finish();
  const auto q = query.input<Compute, 4>(kName, "query");
  const auto k = key.input<Compute, 4>(kName, "key");
  const auto v = value.input<Compute, 4>(kName, "value");
  saved.context = context.input<Compute, 4>(kName, "context");
  saved.row_max = row_max.view<const Compute, 3>(kName, "row_max");
  saved.row_sum = row_sum.view<const Compute, 3>(kName, "row_sum");
  saved.grad_context = grad_context.input<Compute, 4>(kName, "grad_context");
  saved.grad_lse = grad_lse.view<const Compute, 3>(kName, "grad_lse");
  outputs.allocate("grad_query", number_type<T>(), outputs.without_missing_axes(shape_of(query)));
  outputs.allocate("grad_key", number_type<T>(), outputs.without_missing_axes(shape_of(key)));
  outputs.allocate("grad_value", number_type<T>(), outputs.without_missing_axes(shape_of(value)));
  outputs.allocate("grad_bias", number_type<Compute>(), shape_of(bias));
  outputs.allocate("grad_sinks", number_type<Compute>(), {q.shape[1]});
  AttentionGradients gradients;
  gradients.grad_query = outputs.view<T, 4>("grad_query");
  gradients.grad_key = outputs.view<T, 4>("grad_key");
  gradients.grad_value = outputs.view<T, 4>("grad_value");
  gradients.grad_sinks = outputs.view<Compute, 1>("grad_sinks");
  gradients.accumulate = {.grad_query = outputs.accumulates("grad_query"),
                          .grad_key = outputs.accumulates("grad_key"),
                          .grad_value = outputs.accumulates("grad_value"),
                          .grad_bias = outputs.accumulates("grad_bias"),
                          .grad_sinks = outputs.accumulates("grad_sinks")};
  if (const Array* const grad_bias = outputs.find("grad_bias")) {
    if (!bias.given()) reject(kName, "gradients names grad_bias, but there is no bias");
    gradients.grad_bias = grad_bias->broadcast<Compute, 4>(kName, "grad_bias");
  }
  const double operations = 5.0 * static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2]) *
                            static_cast<double>(k.shape[2]) * static_cast<double>(q.shape[3] + v.shape[3]);
  run_call(
      operations, num_threads,
      [&](const Runtime& runtime) { attention_backward(q, k, v, saved, gradients, options.options, runtime); },
      [&](Ranks& ranks, const Runtime& runtime) {
        attention_backward(q, k, v, saved, gradients, options.options, ranks, runtime);
      });
  return nb::object(outputs.hand_out_named());
}

nb::object attention_backward_of(nb::handle query_object, nb::handle key_object, nb::handle value_object,
                                 nb::handle context_object, nb::handle row_max_object, nb::handle row_sum_object,
                                 nb::handle grad_context_object, nb::kwargs kwargs) {
  Array query(kName, "query", query_object);
  Array key(kName, "key", key_object);
  Array value(kName, "value", value_object);
  Array context(kName, "context", context_object);
  Array row_max(kName, "row_max", row_max_object);
  Array row_sum(kName, "row_sum", row_sum_object);
  Array grad_context(kName, "grad_context", grad_context_object);
  const int missing_axes = complete_to_rank_4(kName, query, key, &value);
  context.complete(4, missing_axes);
  row_max.complete(3, missing_axes);
  row_sum.complete(3, missing_axes);
  grad_context.complete(4, missing_axes);
  Keywords keywords(kName, std::move(kwargs));
  const auto call = [&]<class T>(T) {
    return gradients_of<T>(query_object, query, key, value, context, row_max, row_sum, grad_context, missing_axes,
                           keywords);
  };
  if (query.type() == number_type<float>()) return call(float{});
  if (query.type() == number_type<double>()) return call(double{});
  if (query.type() == number_type<bfloat16>()) return call(bfloat16{});
  if (query.type() == number_type<float16>()) return call(float16{});
  reject(kName, "query has type " + type_text(query.type()) + "; expected float32, float64, bfloat16 or float16");
}

}  // namespace

void bind_backward(nb::module_& module) {
  module.def("attention_backward", &attention_backward_of, nb::arg("query"), nb::arg("key"), nb::arg("value"),
             nb::arg("context"), nb::arg("row_max"), nb::arg("row_sum"), nb::arg("grad_context"), nb::arg("kwargs"),
             nb::sig(signature("def attention_backward(query: object, key: object, value: object, context: object, "
                               "row_max: object, row_sum: object, grad_context: object, *, fingerprint: bytes | str, "
                               "gradients: collections.abc.Sequence[str] = ('grad_query', 'grad_key', 'grad_value'), "
                               "grad_lse: object | None = None, grad_query: object | None = None, "
                               "grad_key: object | None = None, grad_value: object | None = None, "
                               "grad_bias: object | None = None, grad_sinks: object | None = None, "
                               "accumulate: collections.abc.Sequence[str] = ()" +
                               options_signature() + ") -> dict[str, typing.Any]")),
             "Computes the gradients of attention_forward. Returns them by name. context, row_max, row_sum and\n"
             "fingerprint are results of the forward call; grad_context (B, H, L, Dv) and grad_lse (B, H, L) are the\n"
             "gradients of the loss with respect to context and lse. Raises ValueError if options differ from those\n"
             "of the forward call; fingerprint='unchecked' disables this check, for row_max and row_sum that were\n"
             "merged from partial results. gradients selects the gradients to compute. They have the shapes of the\n"
             "corresponding arrays and the type of query; grad_bias and grad_sinks are float32 (float64 if query is\n"
             "float64). If an array is passed under the name of a gradient, the gradient is written to it instead of\n"
             "to a new array, or added to it if accumulate contains the name.");
}

}  // namespace regard::python
