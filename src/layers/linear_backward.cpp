// SPDX-License-Identifier: Apache-2.0
//
// linear_backward: two products by linear_forward of the same tensors with their axes exchanged, and a sum over rows.
//
//     grad_output (R, O) · weightᵀ (O, I)        inputᵀ (I, R) · grad_output (R, O)        Σ over R
//
// Read next: linear_product.h.
#include "regard/linear_backward.h"

#include <algorithm>
#include <array>
#include <string>

#include "linear_product.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kLinearBackward = "linear_backward";
constexpr Index kPieceColumns = 64;  // per task of the bias: a row of them is a few cache lines

template <class T>
void sum_rows(const TensorView<const T, 2>& rows, const TensorView<T, 1>& output, bool accumulate,
              const Runtime& runtime) {
  const auto [count, columns] = rows.shape;
  const Index pieces = (columns + kPieceColumns - 1) / kPieceColumns;
  const int workers = num_workers(runtime, pieces, static_cast<double>(rows.size()));
  for_each_item(runtime, workers, pieces, [&](Index piece, int) {
    double sums[kPieceColumns]{};
    const Index first = piece * kPieceColumns;
    const Index width = std::min(kPieceColumns, columns - first);
    for (Index r = 0; r < count; ++r) {
      const T* from = rows.pointer(r, first);
      for (Index c = 0; c < width; ++c)
        sums[c] += static_cast<double>(static_cast<ComputeType<T>>(read_element(from + c * rows.strides[1])));
    }
    for (Index c = 0; c < width; ++c) {
      const auto sum = static_cast<ComputeType<T>>(sums[c]);
      write_or_add_numbers(accumulate, kElementType<T>, 1, &sum, output.pointer(first + c), 1);
    }
  });
}

}  // namespace
}  // namespace internal

template <class T>
void linear_backward(std::type_identity_t<TensorView<const T, 2>> input,
                     std::type_identity_t<TensorView<const T, 2>> weight, TensorView<const T, 2> grad_output,
                     const std::type_identity_t<LinearGradients<T>>& gradients, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const auto [rows, columns] = grad_output.shape;
  Footprints inputs, written;
  inputs.push_back(footprint(kLinearBackward, "grad_output", grad_output));
  const auto need = [&](const char* name, const auto& view, const char* gradient, const auto& wanted,
                        const auto& expected) {
    if (wanted.absent()) return;
    if (view.absent() && wanted.size() != 0)
      reject(kLinearBackward, std::string(name) + " is missing; expected " + shape_text(expected) + " for " + gradient);
    expect_shape(kLinearBackward, name, view, expected);
    if (!view.absent()) inputs.push_back(footprint(kLinearBackward, name, view));
  };
  const std::array<Index, 2> of_input{rows, gradients.grad_weight.shape[0]};
  const std::array<Index, 2> of_weight{gradients.grad_input.shape[1], columns};
  need("input", input, "grad_weight", gradients.grad_weight, of_input);
  need("weight", weight, "grad_input", gradients.grad_input, of_weight);
  const auto check = [&](const char* name, const auto& view, const auto& expected) {
    expect_shape(kLinearBackward, name, view, expected);
    if (!view.absent()) written.push_back(footprint(kLinearBackward, name, view));
  };
  check("grad_input", gradients.grad_input, std::array<Index, 2>{rows, of_weight[0]});
  check("grad_weight", gradients.grad_weight, std::array<Index, 2>{of_input[1], columns});
  check("grad_bias", gradients.grad_bias, std::array<Index, 1>{columns});
  check_overlap(kLinearBackward, inputs, written);
  const LinearAccumulation& accumulate = gradients.accumulate;
  if (!gradients.grad_input.absent())
    linear_product<T>(grad_output, transposed(weight), gradients.grad_input, accumulate.grad_input, runtime);
  if (!gradients.grad_weight.absent())
    linear_product<T>(transposed(input), grad_output, gradients.grad_weight, accumulate.grad_weight, runtime);
  if (!gradients.grad_bias.absent()) sum_rows<T>(grad_output, gradients.grad_bias, accumulate.grad_bias, runtime);
}

template decltype(linear_backward<float>) linear_backward<float>;
template decltype(linear_backward<double>) linear_backward<double>;
template decltype(linear_backward<bfloat16>) linear_backward<bfloat16>;

}  // namespace regard::inline v0
