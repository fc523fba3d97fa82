// SPDX-License-Identifier: Apache-2.0
//
// linear_forward: packs the parameters into panels of 32 columns, unless they are packed, then computes tiles of 60
// rows by groups of panels.
//
//   phase 1, per panel:           pack_keys of the transposed parameters
//   phase 2, per 60 rows × group: pack_query of the rows, then linear_tile for each panel of the group
//
// The bits of an element depend on its row of input and its column of parameters alone.
#include "regard/linear.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "attention_arguments.h"
#include "elements.h"
#include "kernels/table.h"
#include "parallel.h"
#include "plan.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

using kernels::kPanel;
using kernels::kRows;

constexpr const char* kName = "linear_forward";

Index num_panels(Index columns) { return (columns + kPanel - 1) / kPanel; }

// Elements of the panels; never 0, so that a panel of depth 0 is a place, too.
Index panel_elements(Index depth, Index columns) { return num_panels(columns) * std::max<Index>(depth, 1) * kPanel; }

template <class T>
void pack(const TensorView<const T, 2>& parameters, T* panels, double num_products, const Runtime& runtime) {
  const auto [depth, columns] = parameters.shape;
  const Index count = num_panels(columns);
  for_each_item(runtime, num_workers(runtime, count, num_products), count, [&](Index panel, int) {
    const Index first = panel * kPanel;
    kernels::active().of<T>().pack_keys({parameters.pointer(0, first), parameters.strides[1], parameters.strides[0]},
                                        std::min(kPanel, columns - first), depth, panels + panel * depth * kPanel);
  });
}

template <class T>
void check_shapes(const TensorView<const T, 2>& input, const std::array<Index, 2>& parameters,
                  const TensorView<const T, 1>& bias, const TensorView<T, 2>& output) {
  const Index rows = input.shape[0];
  if (parameters[0] != input.shape[1]) {
    refuse(kName, "parameters has shape " + shape_text(parameters) + "; expected " + std::to_string(input.shape[1]) +
                      " rows for input " + shape_text(input.shape));
  }
  expect_shape(kName, "bias", bias, {parameters[1]});
  if (output.shape != std::array{rows, parameters[1]}) {
    refuse(kName, "output has shape " + shape_text(output.shape) + "; expected " +
                      shape_text(std::array{rows, parameters[1]}));
  }
}

template <class T>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0;
}

template <class T>
void multiply(const TensorView<const T, 2>& input, const T* panels, const TensorView<const T, 1>& bias,
              const TensorView<T, 2>& output, kernels::Activation activation, double num_products,
              const Runtime& runtime) {
  const auto& kernel = kernels::active().of<T>();
  const auto [rows, depth] = input.shape;
  const Index columns = output.shape[1];
  const Workspace<T> dense_bias(runtime, bias.absent() ? 0 : columns);
  if (!bias.absent()) copy_elements(columns, bias.data, bias.strides[0], dense_bias.data(), 1);

  // Sixteen panels or more share one packing of the rows: more where there are rows enough for every worker, as long as
  // the panels of a group stay in a cache of 2 to 4 MiB while they are read for one block of rows after the other.
  constexpr Index kGroupBytes = 5 << 19;
  const Index panel_bytes = std::max<Index>(depth, 1) * kPanel * Index{sizeof(T)};
  const Index count = num_panels(columns);
  const Index blocks = (rows + kRows - 1) / kRows;
  const bool many_rows = blocks >= 8 * num_workers(runtime, blocks);
  const Index group_panels = std::max<Index>(16, many_rows ? kGroupBytes / panel_bytes : 0);
  const Index groups = (count + group_panels - 1) / group_panels;
  const int workers = num_workers(runtime, blocks * groups, num_products);
  // Kernels write dense aligned rows; any other output takes them from a tile.
  const bool direct = output.strides[1] == 1 && is_aligned(output.data);
  const Index scratch_elements = kRows * depth + (direct ? 0 : kRows * kPanel);
  const Workspace<T> scratch(runtime, workers * scratch_elements);
  if (is_planning()) {
    const double parameters = static_cast<double>(columns) * static_cast<double>(depth);
    plan_operator({.name = kName,
                   .way = std::to_string(blocks) + " blocks of rows by " + std::to_string(groups) +
                          " groups of columns, " +
                          (direct ? "written where they belong" : "copied to where they belong"),
                   .operations = 2 * static_cast<double>(rows) * parameters,
                   .bytes = (static_cast<double>(input.size() + output.size()) + parameters) * sizeof(T)});
  }
  for_each_item(runtime, workers, blocks * groups, [&](Index task, int worker) {
    T* packed_rows = scratch.data() + worker * scratch_elements;
    T* tile = packed_rows + kRows * depth;
    const Index first = task % blocks * kRows;
    const Index num_rows = std::min(kRows, rows - first);
    kernel.pack_query({input.pointer(first, 0), input.strides[0], input.strides[1]}, num_rows, depth, packed_rows);
    const Index end_panel = std::min(count, (task / blocks + 1) * group_panels);
    for (Index panel = task / blocks * group_panels; panel < end_panel; ++panel) {
      poll(runtime);
      const Index column = panel * kPanel;
      const Index width = std::min(kPanel, columns - column);
      kernel.linear_tile(num_rows, width, depth, packed_rows, panels + panel * depth * kPanel,
                         bias.absent() ? nullptr : dense_bias.data() + column, activation,
                         direct ? output.pointer(first, column) : tile, direct ? output.strides[0] : kPanel);
      for (Index i = 0; i < (direct ? 0 : num_rows); ++i) {
        copy_elements(width, tile + i * kPanel, 1, output.pointer(first + i, column), output.strides[1]);
      }
    }
  });
}

kernels::Activation kernel_activation(Activation activation) {
  switch (activation) {
    case Activation::none:
      return kernels::Activation::none;
    case Activation::relu:
      return kernels::Activation::relu;
    case Activation::gelu:
      return kernels::Activation::gelu;
  }
  refuse(kName, "activation is " + std::to_string(static_cast<int>(activation)) + "; expected none, relu or gelu");
}

}  // namespace
}  // namespace internal

template <class T>
void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                    std::type_identity_t<TensorView<const T, 2>> parameters,
                    std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                    const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const std::array<Footprint, 3> inputs{footprint(kName, "input", input), footprint(kName, "parameters", parameters),
                                        footprint(kName, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(kName, "output", output)};
  check_shapes(input, parameters.shape, bias, output);
  check_overlap(kName, inputs, written);
  if (output.shape[0] == 0 || output.shape[1] == 0) return;
  const Workspace<T> panels(runtime, panel_elements(parameters.shape[0], parameters.shape[1]));
  const double products = static_cast<double>(output.shape[0]) * static_cast<double>(parameters.size());
  pack(parameters, panels.data(), products, runtime);
  multiply<T>(input, panels.data(), bias, output, kernels::Activation::none, products, runtime);
}

template <class T>
PackedParameters<T>::PackedParameters(TensorView<const T, 2> parameters, const Runtime& runtime)
    : num_inputs_(parameters.shape[0]), num_outputs_(parameters.shape[1]) {
  using namespace internal;
  const FloatingPointScope scope;
  footprint("PackedParameters", "parameters", parameters);
  if (is_planning()) throw std::logic_error("PackedParameters: made inside a plan; expected before it");
  if (num_outputs_ == 0) return;
  constexpr std::align_val_t kAlignment{64};
  const std::shared_ptr<T> panels(static_cast<T*>(::operator new(num_bytes(), kAlignment)),
                                  [](T* memory) { ::operator delete(memory, kAlignment); });
  pack(parameters, panels.get(), static_cast<double>(parameters.size()), runtime);
  panels_ = panels;
}

template <class T>
std::size_t PackedParameters<T>::num_bytes() const {
  return static_cast<std::size_t>(internal::panel_elements(num_inputs_, num_outputs_)) * sizeof(T);
}

template <class T>
void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                    const std::type_identity_t<PackedParameters<T>>& parameters,
                    std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                    const LinearOptions& options, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const kernels::Activation activation = kernel_activation(options.activation);
  const std::array<Index, 2> shape{parameters.num_inputs(), parameters.num_outputs()};
  const TensorView<const T, 1> panels(parameters.panels(),
                                      {parameters.panels() == nullptr ? 0 : panel_elements(shape[0], shape[1])});
  const std::array<Footprint, 3> inputs{footprint(kName, "input", input), footprint(kName, "parameters", panels),
                                        footprint(kName, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(kName, "output", output)};
  check_shapes(input, shape, bias, output);
  check_overlap(kName, inputs, written);
  if (output.shape[0] == 0 || output.shape[1] == 0) return;
  const double products = static_cast<double>(output.shape[0]) * static_cast<double>(shape[0] * shape[1]);
  multiply<T>(input, parameters.panels(), bias, output, activation, products, runtime);
}

template class PackedParameters<float>;
template class PackedParameters<double>;
template void linear_forward<float>(TensorView<const float, 2>, TensorView<const float, 2>, TensorView<const float, 1>,
                                    TensorView<float, 2>, const Runtime&);
template void linear_forward<double>(TensorView<const double, 2>, TensorView<const double, 2>,
                                     TensorView<const double, 1>, TensorView<double, 2>, const Runtime&);
template void linear_forward<float>(TensorView<const float, 2>, const PackedParameters<float>&,
                                    TensorView<const float, 1>, TensorView<float, 2>, const LinearOptions&,
                                    const Runtime&);
template void linear_forward<double>(TensorView<const double, 2>, const PackedParameters<double>&,
                                     TensorView<const double, 1>, TensorView<double, 2>, const LinearOptions&,
                                     const Runtime&);

}  // namespace v0
}  // namespace regard
