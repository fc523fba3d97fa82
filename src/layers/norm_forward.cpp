// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of layer norm and RMS norm: blocks of rows distributed over threads, eight rows for each call to the
// kernel.
// Read next: kernels/norm_forward.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "instantiate.h"
#include "norm.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"

namespace regard::inline v0::internal {

template <class T>
void check_norm(const Norm<T>& norm) {
  expect_shape(norm.operator_name, "addend", norm.addend, norm.input.shape);
  expect_columns(norm, "gain", norm.gain);
  if (!std::isfinite(norm.epsilon) || norm.epsilon < 0) {
    reject(norm.operator_name,
           "epsilon is " + std::to_string(norm.epsilon) + "; expected a finite number that is not negative");
  }
}

template <class T>
void norm_forward(const Norm<T>& norm, const TensorView<const T, 1>& bias, const TensorView<T, 2>& output,
                  const Runtime& runtime) {
  using Compute = ComputeType<T>;
  using kernels::kNormRows;
  const FloatingPointScope scope;
  const std::array<Footprint, 4> inputs{
      footprint(norm.operator_name, "input", norm.input), footprint(norm.operator_name, "addend", norm.addend),
      footprint(norm.operator_name, "gain", norm.gain), footprint(norm.operator_name, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(norm.operator_name, "output", output)};
  check_norm(norm);
  if (!bias.absent()) expect_columns(norm, "bias", bias);
  if (output.shape != norm.input.shape) {
    reject(norm.operator_name,
           "output has shape " + shape_text(output.shape) + "; expected " + shape_text(norm.input.shape));
  }
  check_overlap(norm.operator_name, inputs, written);
  const auto [rows, width] = norm.input.shape;
  if (rows == 0 || width == 0) return;

  constexpr Index kBlockRows = 2 * kNormRows;
  const Index blocks = (rows + kBlockRows - 1) / kBlockRows;
  constexpr double kElementProducts = 40;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks, kElementProducts * static_cast<double>(norm.input.size()));
  const Workspace<Compute> factors(runtime, (bias.absent() ? 1 : 2) * width);
  const NormBuffers<T> buffers(norm, has_kernel_rows<T>(output) ? 0 : 1, workers, runtime);
  if (is_planning()) {
    const double elements = static_cast<double>(norm.input.size());
    plan_operator({.name = norm.operator_name,
                   .strategy = std::to_string(blocks) + " blocks of rows",
                   .operations = (norm.centered ? 7 : 4) * elements,
                   .bytes = (norm.addend.absent() ? 2 : 3) * elements * sizeof(T)});
  } else {
    read_numbers(kElementType<T>, width, norm.gain.data, norm.gain.strides[0], factors.data());
    if (!bias.absent()) read_numbers(kElementType<T>, width, bias.data, bias.strides[0], factors.data() + width);
  }
  const auto kernel = kernels::active().of<Compute>().layers->norm_forward;
  for_each_item(runtime, workers, blocks, [&](Index block, int worker) {
    const Index end = std::min(rows, (block + 1) * kBlockRows);
    for (Index first = block * kBlockRows; first < end; first += kNormRows) {
      const Index count = std::min(kNormRows, end - first);
      const auto to = written_rows(output, first, buffers.other(worker, 0));
      kernel({.rows = buffers.rows(worker, first, count, factors.data()),
              .bias = bias.absent() ? nullptr : factors.data() + width,
              .output = to.data,
              .output_stride = to.stride});
      if (has_kernel_rows<T>(output)) continue;
      for (Index r = 0; r < count; ++r) {
        write_numbers(kElementType<T>, width, to.data + r * width, output.pointer(first + r, 0), output.strides[1]);
      }
    }
  });
}

REGARD_INSTANTIATE_LAYER(check_norm);
REGARD_INSTANTIATE_LAYER(norm_forward);

}  // namespace regard::inline v0::internal
