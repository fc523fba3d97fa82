// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and RMS norm, which differ in the mean (0 for RMS norm) and in bias: one implementation for both.
//
//   x = input + addend        output = (x − mean) / deviation · gain + bias
//
// Kernels read and write rows of contiguous elements of float or double. Rows that are stored like that are used in
// place; others are copied, a few at a time.
// Read next: norm_forward.cpp, norm_backward.cpp.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernel_rows.h"
#include "kernels/layer_table.h"
#include "regard/layer_norm.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0::internal {

// What all four operators have in common.
template <class T>
struct Norm {
  const char* operator_name;
  bool centered;  // false: RMS norm
  TensorView<const T, 2> input;
  TensorView<const T, 2> addend;
  TensorView<const T, 1> gain;
  double epsilon;
};

template <class T>
void norm_forward(const Norm<T>& norm, const TensorView<const T, 1>& bias, const TensorView<T, 2>& output,
                  const Runtime& runtime);
template <class T>
void norm_backward(const Norm<T>& norm, const TensorView<const T, 2>& grad_output,
                   const LayerNormGradients<T>& gradients, const Runtime& runtime);

// Throws InvalidArgument unless the vector has an element for each column of the input.
template <class T>
void expect_columns(const Norm<T>& norm, const char* name, const TensorView<const T, 1>& vector) {
  const Index width = norm.input.shape[1];
  if (vector.shape[0] == width) return;
  reject(norm.operator_name, std::string(name) + " has shape " + shape_text(vector.shape) + "; expected " +
                                 shape_text(std::array{width}) + " for input " + shape_text(norm.input.shape));
}

// The checks of addend, gain and epsilon.
template <class T>
void check_norm(const Norm<T>& norm);

// Rows of contiguous elements.
template <class Element>
struct KernelRows {
  Element* data = nullptr;
  Index stride = 0;
};

// Some rows of the view, or a copy of them in `buffer`.
template <class T>
KernelRows<const ComputeType<T>> read_rows(const TensorView<const T, 2>& view, Index first, Index count,
                                           ComputeType<T>* buffer) {
  const Index width = view.shape[1];
  if constexpr (std::same_as<T, ComputeType<T>>) {
    if (has_kernel_rows<T>(view)) return {view.pointer(first, 0), view.strides[0]};
  }
  for (Index r = 0; r < count; ++r)
    read_numbers(kElementType<T>, width, view.pointer(first + r, 0), view.strides[1], buffer + r * width);
  return {buffer, width};
}

// Where the kernel writes these rows: the view, or `buffer`.
template <class T>
KernelRows<ComputeType<T>> written_rows(const TensorView<T, 2>& view, Index first, ComputeType<T>* buffer) {
  if constexpr (std::same_as<T, ComputeType<T>>) {
    if (has_kernel_rows<T>(view)) return {view.pointer(first, 0), view.strides[0]};
  }
  return {buffer, view.shape[1]};
}

// The memory of one worker: scratch of the kernels, and buffers for rows that are not used in place.
template <class T>
class NormBuffers {
 public:
  using Compute = ComputeType<T>;

  // others: the number of buffers for matrices other than input and addend.
  NormBuffers(const Norm<T>& norm, Index others, int workers, const Runtime& runtime)
      : norm_(norm),
        sums_(!norm.addend.absent() || !has_kernel_rows<T>(norm.input)),
        copies_addend_(!norm.addend.absent() && !has_kernel_rows<T>(norm.addend)),
        buffer_elements_(kernels::kNormRows * norm.input.shape[1]),
        elements_(buffer_elements_ * (Index{sums_} + Index{copies_addend_} + others)),
        scratch_(runtime, workers * kernels::kNormScratch),
        rows_(runtime, workers * elements_) {}

  // Buffer number n of the others; nullptr if there are no buffers.
  Compute* other(int worker, Index n) const {
    if (elements_ == 0) return nullptr;
    return rows_.data() + worker * elements_ + (Index{sums_} + Index{copies_addend_} + n) * buffer_elements_;
  }

  // Rows first … first + count − 1 as the kernels read them.
  kernels::NormRows<Compute> rows(int worker, Index first, Index count, const Compute* gain) const {
    Compute* const sums = rows_.data() + worker * elements_;
    kernels::NormRows<Compute> rows{};
    const auto input = read_rows(norm_.input, first, count, sums);
    rows.input = input.data;
    rows.input_stride = input.stride;
    if (!norm_.addend.absent()) {
      const auto addend = read_rows(norm_.addend, first, count, sums + buffer_elements_);
      rows.addend = addend.data;
      rows.addend_stride = addend.stride;
      rows.x = sums;
    }
    rows.num_rows = count;
    rows.width = norm_.input.shape[1];
    rows.centered = norm_.centered;
    rows.epsilon = norm_.epsilon;
    rows.gain = gain;
    rows.scratch = scratch_.data() + worker * kernels::kNormScratch;
    return rows;
  }

 private:
  const Norm<T>& norm_;
  bool sums_;
  bool copies_addend_;
  Index buffer_elements_;
  Index elements_;
  Workspace<double> scratch_;
  Workspace<Compute> rows_;
};

}  // namespace regard::inline v0::internal
