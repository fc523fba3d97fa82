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

#include "instantiate.h"
#include "linear_product.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kLinearBackward = "linear_backward";
// Columns per task of the bias: a row of them is a few cache lines, or one if there are few tasks.
constexpr Index kPieceColumns = 64, kFewestColumns = 16;

template <class T, class Output>
void sum_rows(const TensorView<const T, 2>& rows, const TensorView<Output, 1>& output, const ProductSum& sum,
              const Runtime& runtime) {
  using Compute = ComputeType<T>;
  const auto [count, columns] = rows.shape;
  const Index group = sum.depth_group > 0 ? sum.depth_group : std::max<Index>(count, 1);
  constexpr double kElementProducts = 8;  // an element, added in double, takes as long as this many products
  const double products = kElementProducts * static_cast<double>(rows.size());
  const bool few = columns < kPieceColumns * num_workers(runtime, columns, products);
  const Index piece_columns = few ? kFewestColumns : kPieceColumns;
  const Index pieces = (columns + piece_columns - 1) / piece_columns;
  for_each_item(runtime, num_workers(runtime, pieces, products), pieces, [&](Index piece, int) {
    const Index first = piece * piece_columns;
    const Index width = std::min(piece_columns, columns - first);
    Compute total[kPieceColumns]{};
    if (sum.accumulate) read_numbers(kElementType<Output>, width, output.pointer(first), output.strides[0], total);
    for (Index begin = 0; begin < count; begin += group) {
      double sums[kPieceColumns]{};
      for (Index r = begin; r < std::min(count, begin + group); ++r) {
        const T* from = rows.pointer(r, first);
        for (Index c = 0; c < width; ++c)
          sums[c] += static_cast<double>(static_cast<Compute>(read_element(from + c * rows.strides[1])));
      }
      const bool first_sum = begin == 0 && !sum.accumulate;
      for (Index c = 0; c < width; ++c)
        total[c] = first_sum ? static_cast<Compute>(sums[c]) : total[c] + static_cast<Compute>(sums[c]);
    }
    write_numbers(kElementType<Output>, width, total, output.pointer(first), output.strides[0]);
  });
}

// The public functions of linear_backward.h.
template <class T, class Output>
void backward(const TensorView<const T, 2>& input, const TensorView<const T, 2>& weight,
              const TensorView<const T, 2>& grad_output, const LinearGradients<Output>& gradients,
              const Runtime& runtime) {
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
  const Index group = gradients.rows_per_group;
  if (group < 0) reject(kLinearBackward, "rows_per_group is " + std::to_string(group) + "; expected at least 0");
  const LinearAccumulation& accumulate = gradients.accumulate;
  if (!gradients.grad_input.absent())
    linear_product(grad_output, transposed(weight), gradients.grad_input, {.accumulate = accumulate.grad_input},
                   runtime);
  if (!gradients.grad_weight.absent()) {
    // The same products, as rows of whichever matrix has contiguous rows.
    const ProductSum sum{accumulate.grad_weight, group};
    const TensorView<Output, 2>& weights = gradients.grad_weight;
    if (weights.strides[0] == 1 && weights.strides[1] != 1) {
      linear_product(transposed(grad_output), input, transposed(weights), sum, runtime);
    } else {
      linear_product(transposed(input), grad_output, weights, sum, runtime);
    }
  }
  if (!gradients.grad_bias.absent()) sum_rows(grad_output, gradients.grad_bias, {accumulate.grad_bias, group}, runtime);
}

}  // namespace
}  // namespace internal

template <class T>
void linear_backward(std::type_identity_t<TensorView<const T, 2>> input,
                     std::type_identity_t<TensorView<const T, 2>> weight, TensorView<const T, 2> grad_output,
                     const std::type_identity_t<LinearGradients<T>>& gradients, const Runtime& runtime) {
  internal::backward(input, weight, grad_output, gradients, runtime);
}
void linear_backward(TensorView<const bfloat16, 2> input, TensorView<const bfloat16, 2> weight,
                     TensorView<const bfloat16, 2> grad_output, const LinearGradients<float>& gradients,
                     const Runtime& runtime) {
  internal::backward(input, weight, grad_output, gradients, runtime);
}

REGARD_INSTANTIATE_LAYER(linear_backward);

}  // namespace regard::inline v0
