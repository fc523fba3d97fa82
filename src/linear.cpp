// SPDX-License-Identifier: Apache-2.0
//
// linear_forward: packs the parameters into panels of 32 columns once, then computes tiles of 60 rows by groups of
// panels.
//
//   phase 1, per panel:           pack_keys of the transposed parameters
//   phase 2, per 60 rows × group: pack_query of the rows, then linear_tile for each panel of the group
//
// The bits of an element depend on its row of input and its column of parameters alone.
#include "regard/linear.h"

#include <algorithm>

#include "attention_arguments.h"
#include "elements.h"
#include "kernels/table.h"
#include "parallel.h"
#include "workspace.h"

namespace regard {
inline namespace v0 {

using kernels::kPanel;
using kernels::kRows;

template <class T>
void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                    std::type_identity_t<TensorView<const T, 2>> parameters,
                    std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                    const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const char* name = "linear_forward";
  const std::array<Footprint, 3> inputs{footprint(name, "input", input), footprint(name, "parameters", parameters),
                                        footprint(name, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(name, "output", output)};
  const Index rows = input.shape[0];
  const Index depth = input.shape[1];
  const Index columns = parameters.shape[1];
  if (parameters.shape[0] != depth) {
    refuse(name, "parameters has shape " + shape_text(parameters.shape) + "; expected " + std::to_string(depth) +
                     " rows for input " + shape_text(input.shape));
  }
  expect_shape(name, "bias", bias, {columns});
  if (output.shape != std::array{rows, columns}) {
    refuse(name,
           "output has shape " + shape_text(output.shape) + "; expected " + shape_text(std::array{rows, columns}));
  }
  check_overlap(name, inputs, written);
  if (rows == 0 || columns == 0) return;

  const auto& kernel = kernels::active().of<T>();
  const Index panels = (columns + kPanel - 1) / kPanel;
  // Never empty, so that a panel of depth 0 is a place, too.
  const Workspace<T> packed(runtime, panels * std::max<Index>(depth, 1) * kPanel);
  const Workspace<T> dense_bias(runtime, bias.absent() ? 0 : columns);
  if (!bias.absent()) copy_elements(columns, bias.data, bias.strides[0], dense_bias.data(), 1);
  const bool small = rows * columns * depth < 1'000'000;
  for_each_item(runtime, small ? 1 : num_workers(runtime, panels), panels, [&](Index panel, int) {
    const Index first = panel * kPanel;
    kernel.pack_keys({parameters.pointer(0, first), parameters.strides[1], parameters.strides[0]},
                     std::min(kPanel, columns - first), depth, packed.data() + panel * depth * kPanel);
  });

  // Sixteen panels share one packing of the rows.
  constexpr Index kGroupPanels = 16;
  const Index groups = (panels + kGroupPanels - 1) / kGroupPanels;
  const Index blocks = (rows + kRows - 1) / kRows;
  const int workers = small ? 1 : num_workers(runtime, blocks * groups);
  const Index scratch_elements = kRows * depth + kRows * kPanel;
  const Workspace<T> scratch(runtime, workers * scratch_elements);
  for_each_item(runtime, workers, blocks * groups, [&](Index task, int worker) {
    T* packed_rows = scratch.data() + worker * scratch_elements;
    T* tile = packed_rows + kRows * depth;
    const Index first = task % blocks * kRows;
    const Index count = std::min(kRows, rows - first);
    kernel.pack_query({input.pointer(first, 0), input.strides[0], input.strides[1]}, count, depth, packed_rows);
    const Index end_panel = std::min(panels, (task / blocks + 1) * kGroupPanels);
    for (Index panel = task / blocks * kGroupPanels; panel < end_panel; ++panel) {
      poll(runtime);
      const Index column = panel * kPanel;
      const Index width = std::min(kPanel, columns - column);
      kernel.linear_tile(count, width, depth, packed_rows, packed.data() + panel * depth * kPanel,
                         bias.absent() ? nullptr : dense_bias.data() + column, tile, kPanel);
      for (Index i = 0; i < count; ++i) {
        copy_elements(width, tile + i * kPanel, 1, output.pointer(first + i, column), output.strides[1]);
      }
    }
  });
}

template void linear_forward<float>(TensorView<const float, 2>, TensorView<const float, 2>, TensorView<const float, 1>,
                                    TensorView<float, 2>, const Runtime&);
template void linear_forward<double>(TensorView<const double, 2>, TensorView<const double, 2>,
                                     TensorView<const double, 1>, TensorView<double, 2>, const Runtime&);

}  // namespace v0
}  // namespace regard
