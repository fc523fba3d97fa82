// SPDX-License-Identifier: Apache-2.0
//
// The kernel table of a page's module: forward attention, linear layers and layer norms in float and double. What a
// page never calls is null, so that the linker drops it; calling it would trap. Tests link kernels/table.cpp
// instead, with every kernel.
// Read next: kernels/table.h.
#include "kernels/kernels.h"
#include "kernels/tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T>
constexpr LayerKernels<T> kPageLayers{.copy_rows = copy_rows, .norm_forward = NormKernels<T>::forward};

template <class T>
constexpr Kernels<T> page_kernels() {
  return {.row_group = kTileRows,
          .pack_query = PackKernels<T>::pack_query,
          .pack_keys = PackKernels<T>::pack_keys,
          .pack_values = PackKernels<T>::pack_values,
          .score_block = TileKernels<T>::score_block,
          .attention_block = TileKernels<T>::attention_block,
          .finish_chunk = FinishKernels<T>::finish_chunk,
          .finish_rows = FinishKernels<T>::finish_rows,
          .weights_block = WeightsKernels<T>::weights_block,
          .add_rows = WeightsKernels<T>::add_rows,
          .linear_tile = linear_tile<T>,
          .exp = ElementwiseKernels<T>::exp_elements,
          .log = ElementwiseKernels<T>::log_elements,
          .layers = &kPageLayers<T>};
}

}  // namespace

constinit const KernelTable table = {.name = "simd128",
                                     .fused_multiply_add = kFused,
                                     .enter_floating_point = [] { return std::uint64_t{0}; },
                                     .leave_floating_point = [](std::uint64_t) {},
                                     .f32 = page_kernels<float>(),
                                     .f64 = page_kernels<double>()};

}  // namespace regard::kernels::REGARD_ISA
