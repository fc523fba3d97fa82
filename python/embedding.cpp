// SPDX-License-Identifier: Apache-2.0
//
// The layers through which tokens and positions enter and leave a model, for Python: embedding, rotary and
// cross_entropy.
//
//     tokens (R) ── embedding ──▶ (R, E)      (B, H, L, D) ── rotary ──▶ (B, H, L, D)
//     logits (R, V), targets (R) ── cross_entropy ──▶ loss, count, and on request row_loss and grad_logits
//
// Read next: layer_call.h, layers.cpp.
#include "regard/embedding.h"

#include <cstring>

#include "layer_call.h"
#include "module.h"
#include "regard/cross_entropy.h"
#include "regard/rotary.h"

namespace regard::python {
namespace {

nb::object embedding_forward_of(nb::handle table_object, nb::handle indices_object, nb::kwargs kwargs) {
  constexpr const char* kName = "embedding_forward";
  const Array table(kName, "table", table_object);
  const std::vector<Index> indices = index_list(kName, "indices", indices_object);
  LayerCall call(kName, table_object, std::move(kwargs), {"out"});
  const EmbeddingOptions options{.accumulate = call.accumulates_into("out")};
  call.finish();
  return with_layer_type(kName, "table", table.type(), [&]<class T>(T) {
    const auto rows = table.view<const T, 2>(kName, "table");
    const auto at = view_of(indices);
    const auto out = call.output<T, 2>("out", {at.shape[0], rows.shape[1]});
    call.run(static_cast<double>(out.size()),
             [&](const Runtime& runtime) { embedding_forward<T>(rows, at, out, options, runtime); });
    return call.result("out");
  });
}

nb::object embedding_backward_of(nb::handle indices_object, nb::handle grad_output_object, nb::kwargs kwargs) {
  constexpr const char* kName = "embedding_backward";
  const std::vector<Index> indices = index_list(kName, "indices", indices_object);
  const Array grad_output(kName, "grad_output", grad_output_object);
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_table"});
  const bool accumulate = call.accumulates_into("grad_table");
  const Index num_rows = call.whole("num_rows", -1);
  const Index rows_per_group = call.whole("rows_per_group", 0);
  call.finish();
  if (!call.outputs.find("grad_table")->given() && num_rows < 0)
    reject(kName, "num_rows is missing; expected the number of rows of the table, or grad_table=array");
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto g = grad_output.view<const T, 2>(kName, "grad_output");
    const auto at = view_of(indices);
    const EmbeddingGradients<T> gradients{.grad_table = call.output<T, 2>("grad_table", {num_rows, g.shape[1]}),
                                          .accumulate = accumulate,
                                          .rows_per_group = rows_per_group};
    if (num_rows >= 0 && gradients.grad_table.shape[0] != num_rows) {
      reject(kName, "grad_table has " + std::to_string(gradients.grad_table.shape[0]) +
                        " rows; expected num_rows = " + std::to_string(num_rows));
    }
    call.run(static_cast<double>(g.size() + gradients.grad_table.size()),
             [&](const Runtime& runtime) { embedding_backward<T>(at, g, gradients, runtime); });
    return call.result("grad_table");
  });
}

// RotaryOptions, and the memory for their positions.
struct Rotation {
  RotaryOptions options;
  std::vector<Index> positions;
};

// Takes the options of a call. positions has shape (L), for all batch entries, or (B, L).
Rotation take_rotation(LayerCall& call, const Array& input) {
  Rotation rotation;
  RotaryOptions& options = rotation.options;
  const char* const name = call.keywords.operator_name();
  options.base = call.number("base", options.base);
  if (const nb::handle given = call.keywords.take("layout")) {
    const std::string layout = text_of(name, "layout", given);
    if (layout != "halves" && layout != "interleaved")
      reject(name, "layout is '" + layout + "'; expected halves or interleaved");
    options.layout = layout == "halves" ? RotaryLayout::halves : RotaryLayout::interleaved;
  }
  options.size = call.whole("size", 0);
  options.first_position = call.whole("first_position", 0);
  const nb::handle given = call.keywords.take("positions");
  if (!given) return rotation;
  input.expect_rank(name, "input", 4);
  const Index batch = input.extent(0);
  const nb::object axes = nb::getattr(given, "ndim", nb::int_(1));
  if (nb::cast<int>(axes) != 2) {
    rotation.positions = index_list(name, "positions", given);
    const auto view = view_of(rotation.positions);
    options.positions = {view.data, {batch, view.shape[0]}, {0, 1}};
    return rotation;
  }
  const Array array(name, "positions", given);
  const auto copy = [&]<class T>(T) {
    const auto view = array.view<const T, 2>(name, "positions");
    for (Index b = 0; b < view.shape[0]; ++b)
      for (Index l = 0; l < view.shape[1]; ++l) rotation.positions.push_back(view(b, l));
    options.positions = {view_of(rotation.positions).data, view.shape};
  };
  if (array.type() == number_type<std::int32_t>()) {
    copy(std::int32_t{});
  } else if (array.type() == number_type<std::int64_t>()) {
    copy(std::int64_t{});
  } else {
    reject(name, "positions has type " + type_text(array.type()) + "; expected int32 or int64");
  }
  return rotation;
}

nb::object rotary_forward_of(nb::handle input_object, nb::kwargs kwargs) {
  constexpr const char* kName = "rotary_forward";
  const Array input(kName, "input", input_object);
  LayerCall call(kName, input_object, std::move(kwargs), {"out"});
  const Rotation rotation = take_rotation(call, input);
  call.finish();
  return with_layer_type(kName, "input", input.type(), [&]<class T>(T) {
    const auto x = input.view<const T, 4>(kName, "input");
    const auto out = call.output<T, 4>("out", x.shape);
    call.run(4.0 * static_cast<double>(x.size()),
             [&](const Runtime& runtime) { rotary_forward<T>(x, out, rotation.options, runtime); });
    return call.result("out");
  });
}

nb::object rotary_backward_of(nb::handle grad_output_object, nb::kwargs kwargs) {
  constexpr const char* kName = "rotary_backward";
  const Array grad_output(kName, "grad_output", grad_output_object);
  LayerCall call(kName, grad_output_object, std::move(kwargs), {"grad_input"});
  const bool accumulate = call.accumulates_into("grad_input");
  const Rotation rotation = take_rotation(call, grad_output);
  call.finish();
  return with_layer_type(kName, "grad_output", grad_output.type(), [&]<class T>(T) {
    const auto g = grad_output.view<const T, 4>(kName, "grad_output");
    const auto grad_input = call.output<T, 4>("grad_input", g.shape);
    call.run(4.0 * static_cast<double>(g.size()),
             [&](const Runtime& runtime) { rotary_backward<T>(g, grad_input, rotation.options, accumulate, runtime); });
    return call.result("grad_input");
  });
}

nb::object cross_entropy_forward_of(nb::handle logits_object, nb::handle targets_object, nb::kwargs kwargs) {
  constexpr const char* kName = "cross_entropy_forward";
  const Array logits(kName, "logits", logits_object);
  const std::vector<Index> targets = index_list(kName, "targets", targets_object);
  LayerCall call(kName, logits_object, std::move(kwargs), {});
  call.outputs.take(call.keywords, "row_loss", "return_row_loss");
  call.outputs.take(call.keywords, "grad_logits", "return_grad_logits");
  CrossEntropyOptions options;
  options.ignored_target = call.whole("ignored_target", options.ignored_target);
  if (const nb::handle given = call.keywords.take("reduction")) {
    const std::string reduction = text_of(kName, "reduction", given);
    if (reduction != "mean" && reduction != "sum")
      reject(kName, "reduction is '" + reduction + "'; expected mean or sum");
    options.reduction = reduction == "mean" ? Reduction::mean : Reduction::sum;
  }
  options.grad_scale = call.number("grad_scale", options.grad_scale);
  options.count = call.whole("count", 0);
  options.rows_per_group = call.whole("rows_per_group", 0);
  call.finish();
  return with_layer_type(kName, "logits", logits.type(), [&]<class T>(T) {
    const auto x = logits.view<const T, 2>(kName, "logits");
    const auto of_rows = view_of(targets);
    const CrossEntropyOutputs<T> outputs{.row_loss = call.output<ComputeType<T>, 1>("row_loss", {x.shape[0]}),
                                         .grad_logits = call.output<T, 2>("grad_logits", x.shape)};
    CrossEntropyResult result;
    call.run(20.0 * static_cast<double>(x.size()),
             [&](const Runtime& runtime) { result = cross_entropy_forward<T>(x, of_rows, outputs, options, runtime); });
    nb::list listed;
    listed.append(result.loss);
    listed.append(result.count);
    listed.extend(call.outputs.hand_out_listed());
    return nb::object(nb::tuple(listed));
  });
}

}  // namespace

void bind_embedding(nb::module_& module) {
  module.def("embedding_forward", &embedding_forward_of, nb::arg("table"), nb::arg("indices"), nb::arg("kwargs"),
             nb::sig("def embedding_forward(table: object, indices: collections.abc.Sequence[int] | object, *, "
                     "out: object | None = None, accumulate: bool = False, num_threads: int = 0) -> typing.Any"),
             "Returns table[indices] for table (V, E) and indices (R): (R, E).");
  module.def("embedding_backward", &embedding_backward_of, nb::arg("indices"), nb::arg("grad_output"),
             nb::arg("kwargs"),
             nb::sig("def embedding_backward(indices: collections.abc.Sequence[int] | object, grad_output: object, *, "
                     "num_rows: int | None = None, grad_table: object | None = None, accumulate: bool = False, "
                     "rows_per_group: int = 0, num_threads: int = 0) -> typing.Any"),
             "Computes the gradient of the table, (V, E): each row is the sum of the rows of grad_output (R, E) with\n"
             "that index. num_rows is V; it may be omitted if grad_table is given.");
  const std::string rotary =
      "base: float = 10000.0, layout: str = 'halves', size: int = 0, first_position: int = 0, "
      "positions: collections.abc.Sequence[int] | object | None = None, num_threads: int = 0) -> typing.Any";
  module.def("rotary_forward", &rotary_forward_of, nb::arg("input"), nb::arg("kwargs"),
             nb::sig(signature("def rotary_forward(input: object, *, out: object | None = None, " + rotary)),
             "Rotates pairs of components of queries or keys (B, H, L, D) by angles that grow with the position.\n"
             "layout is halves or interleaved, and positions has shape (L) or (B, L). out may be input.");
  module.def("rotary_backward", &rotary_backward_of, nb::arg("grad_output"), nb::arg("kwargs"),
             nb::sig(signature("def rotary_backward(grad_output: object, *, grad_input: object | None = None, "
                               "accumulate: bool = False, " +
                               rotary)),
             "Computes the gradient of rotary_forward: the rotation by the opposite angles.");
  module.def("cross_entropy_forward", &cross_entropy_forward_of, nb::arg("logits"), nb::arg("targets"),
             nb::arg("kwargs"),
             nb::sig("def cross_entropy_forward(logits: object, targets: collections.abc.Sequence[int] | object, *, "
                     "row_loss: object | None = None, grad_logits: object | None = None, "
                     "return_row_loss: bool = False, return_grad_logits: bool = False, ignored_target: int = -1, "
                     "reduction: str = 'mean', grad_scale: float = 1.0, count: int = 0, rows_per_group: int = 0, "
                     "num_threads: int = 0) -> tuple[typing.Any, ...]"),
             "Computes the cross-entropy loss of logits (R, V) and targets (R), and the number of targets that are\n"
             "not ignored. On request, also computes the loss of each row (R) and the gradient of logits (R, V),\n"
             "which may overwrite logits.");
}

}  // namespace regard::python
