// SPDX-License-Identifier: Apache-2.0
//
// layer_norm_forward: blocks of rows distributed over threads; each row takes three passes over memory that stays in
// L1.
//
//   x = input + addend   →   mean   →   variance   →   output
//
// Read next: include/regard/layer_norm.h, kernels/layer_norm_row.cpp.
#include "regard/layer_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kLayerNormForward = "layer_norm_forward";
constexpr Index kBlockRows = 16;

// Rows with contiguous elements are read and written directly; other rows are copied.
template <class T, class View>
bool is_dense(const View& view) {
  return view.strides[1] == 1 && reinterpret_cast<std::uintptr_t>(view.data) % alignof(T) == 0;
}

template <class T>
const T* dense_row(const TensorView<const T, 2>& view, Index row, T* buffer) {
  if (is_dense<T>(view)) return view.pointer(row, 0);
  copy_elements(view.shape[1], view.pointer(row, 0), view.strides[1], buffer, 1);
  return buffer;
}

}  // namespace
}  // namespace internal

template <class T>
void layer_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                        std::type_identity_t<TensorView<const T, 2>> addend,
                        std::type_identity_t<TensorView<const T, 1>> gain,
                        std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output, double epsilon,
                        const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const std::array<Footprint, 4> inputs{
      footprint(kLayerNormForward, "input", input), footprint(kLayerNormForward, "addend", addend),
      footprint(kLayerNormForward, "gain", gain), footprint(kLayerNormForward, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(kLayerNormForward, "output", output)};
  const auto [rows, width] = input.shape;
  expect_shape(kLayerNormForward, "addend", addend, input.shape);
  for (const auto& [name, shape] : {std::pair{"gain", gain.shape}, std::pair{"bias", bias.shape}}) {
    if (shape[0] != width) {
      reject(kLayerNormForward, std::string(name) + " has shape " + shape_text(shape) + "; expected " +
                                    shape_text(std::array{width}) + " for input " + shape_text(input.shape));
    }
  }
  if (output.shape != input.shape) {
    reject(kLayerNormForward, "output has shape " + shape_text(output.shape) + "; expected " + shape_text(input.shape));
  }
  if (!std::isfinite(epsilon) || epsilon < 0) {
    reject(kLayerNormForward,
           "epsilon is " + std::to_string(epsilon) + "; expected a finite number that is not negative");
  }
  check_overlap(kLayerNormForward, inputs, written);
  if (rows == 0 || width == 0) return;

  const Workspace<T> factors(runtime, 2 * width);
  copy_elements(width, gain.data, gain.strides[0], factors.data(), 1);
  copy_elements(width, bias.data, bias.strides[0], factors.data() + width, 1);
  const Index blocks = (rows + kBlockRows - 1) / kBlockRows;
  constexpr double kElementProducts = 50;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks, kElementProducts * static_cast<double>(rows * width));
  const Workspace<T> scratch(runtime, workers * 2 * width);
  if (is_planning()) {
    const double elements = static_cast<double>(input.size());
    plan_operator({.name = kLayerNormForward,
                   .way = std::to_string(blocks) + " blocks of rows",
                   .operations = 7 * elements,
                   .bytes = (addend.absent() ? 2 : 3) * elements * sizeof(T)});
  }
  const kernels::Kernels<T>& kernel = kernels::active().of<T>();
  for_each_item(runtime, workers, blocks, [&](Index block, int worker) {
    T* x = scratch.data() + worker * 2 * width;
    T* added = x + width;
    const Index end = std::min(rows, (block + 1) * kBlockRows);
    for (Index r = block * kBlockRows; r < end; ++r) {
      T* const to = is_dense<T>(output) ? output.pointer(r, 0) : x;
      const T* const from = dense_row<T>(input, r, x);
      if (addend.absent()) {
        if (from != to) copy_elements(width, from, 1, to, 1);
      } else {
        const T* const more = dense_row<T>(addend, r, added);
        for (Index e = 0; e < width; ++e) to[e] = from[e] + more[e];
      }
      double mean = 0, variance = 0;
      kernel.moments(to, width, &mean, &variance);
      kernel.normalise(width, mean, std::sqrt(variance + epsilon), factors.data(), factors.data() + width, to);
      if (to == x) copy_elements(width, x, 1, output.pointer(r, 0), output.strides[1]);
    }
  });
}

template decltype(layer_norm_forward<float>) layer_norm_forward<float>;
template decltype(layer_norm_forward<double>) layer_norm_forward<double>;

}  // namespace regard::inline v0
