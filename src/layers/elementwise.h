// SPDX-License-Identifier: Apache-2.0
//
// Element-wise operators: outputs of the shape of their inputs, an element of which depends only on the inputs'
// elements at the same position. A kernel computes contiguous elements of float or double.
//
//   rows without gaps are joined to one row ─▶ items of 8192 elements, distributed over threads
//     of each item, a row at a time:
//       every view contiguous, of the compute type     one call to the kernel, directly on the views
//       otherwise                                      pieces of 512 elements, converted in buffers
//
// Read next: activation.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0::internal {

template <class View>
struct Named {
  const char* name;
  View view;
};
template <class T>
struct NamedOutput {
  const char* name;
  TensorView<T, 2> view;  // not written if absent
  bool accumulate;        // adds to the view's contents; kernels do this
};

// An element-wise call. NumInputs > 0; inputs[0] determines the shape.
template <class T, std::size_t NumInputs, std::size_t NumOutputs>
struct Elementwise {
  using Compute = ComputeType<T>;
  // What a kernel reads and writes; an output that accumulates already holds its old values.
  using Inputs = std::array<const Compute*, NumInputs>;
  using Outputs = std::array<Compute*, NumOutputs>;

  const char* operator_name;
  std::array<Named<TensorView<const T, 2>>, NumInputs> inputs;
  std::array<NamedOutput<T>, NumOutputs> outputs;
  double operations;  // of an element, for plans

  // Checks the arguments, and calls kernel(count, inputs, outputs) for all elements, in any order, on several threads.
  template <class Kernel>
  void run(const Runtime& runtime, const Kernel& kernel);

 private:
  static constexpr Index kItemElements = 8192;
  static constexpr Index kPieceElements = 512;    // a buffer of each view fits in L1
  static constexpr double kElementProducts = 50;  // an element takes about as long as this many products

  void check() const;
  void join_rows();
  bool is_direct() const;
  template <class Kernel>
  void compute_in_buffers(Index row, Index begin, Index end, const Kernel& kernel) const;
};

template <class T, std::size_t NumInputs, std::size_t NumOutputs>
void Elementwise<T, NumInputs, NumOutputs>::check() const {
  const auto& shape = inputs[0].view.shape;
  for (const auto& input : inputs) {
    footprint(operator_name, input.name, input.view);
    if (input.view.shape != shape) {
      reject(operator_name, std::string(input.name) + " has shape " + shape_text(input.view.shape) + "; expected " +
                                shape_text(shape) + ", the shape of " + inputs[0].name);
    }
  }
  Footprints written;
  for (const auto& output : outputs) {
    if (NumOutputs > 1 && output.view.absent()) continue;
    written.push_back(footprint(operator_name, output.name, output.view));
    if (output.view.shape != shape) {
      reject(operator_name, std::string(output.name) + " has shape " + shape_text(output.view.shape) + "; expected " +
                                shape_text(shape) + ", the shape of " + inputs[0].name);
    }
  }
  check_overlap(operator_name, {}, written);
  for (const auto& output : outputs) {
    Footprints read;
    for (const auto& input : inputs) {
      if (!is_same_view(input.view, output.view)) read.push_back(footprint(operator_name, input.name, input.view));
    }
    const std::array<Footprint, 1> here{footprint(operator_name, output.name, output.view)};
    check_overlap(operator_name, read, here);
  }
}

template <class T, std::size_t NumInputs, std::size_t NumOutputs>
void Elementwise<T, NumInputs, NumOutputs>::join_rows() {
  const auto has_no_gaps = [](const auto& of) {
    return of.view.absent() || (of.view.strides[1] == 1 && of.view.strides[0] == of.view.shape[1]);
  };
  if (!std::ranges::all_of(inputs, has_no_gaps) || !std::ranges::all_of(outputs, has_no_gaps)) return;
  const auto join = [](auto& of) {
    if (!of.view.absent()) of.view = {of.view.data, {1, of.view.size()}};
  };
  std::ranges::for_each(inputs, join);
  std::ranges::for_each(outputs, join);
}

template <class T, std::size_t NumInputs, std::size_t NumOutputs>
bool Elementwise<T, NumInputs, NumOutputs>::is_direct() const {
  const auto is_aligned = [](const auto& of) {
    return of.view.strides[1] == 1 && reinterpret_cast<std::uintptr_t>(of.view.data) % alignof(T) == 0;
  };
  return std::is_same_v<T, Compute> && std::ranges::all_of(inputs, is_aligned) &&
         std::ranges::all_of(outputs, is_aligned);
}

// Outputs that are absent are computed in their buffer and dropped.
template <class T, std::size_t NumInputs, std::size_t NumOutputs>
template <class Kernel>
void Elementwise<T, NumInputs, NumOutputs>::compute_in_buffers(Index row, Index begin, Index end,
                                                               const Kernel& kernel) const {
  alignas(64) Compute buffers[NumInputs + NumOutputs][kPieceElements];
  for (Index first = begin; first < end; first += kPieceElements) {
    const Index count = std::min(kPieceElements, end - first);
    Inputs from;
    Outputs to;
    for (std::size_t i = 0; i < NumInputs; ++i) {
      const auto& view = inputs[i].view;
      read_numbers(kElementType<T>, count, view.pointer(row, first), view.strides[1], buffers[i]);
      from[i] = buffers[i];
    }
    for (std::size_t i = 0; i < NumOutputs; ++i) {
      const auto& [name, view, accumulate] = outputs[i];
      to[i] = buffers[NumInputs + i];
      if (accumulate && !view.absent())
        read_numbers(kElementType<T>, count, view.pointer(row, first), view.strides[1], to[i]);
    }
    kernel(count, from, to);
    for (std::size_t i = 0; i < NumOutputs; ++i) {
      const auto& view = outputs[i].view;
      if (!view.absent()) write_numbers(kElementType<T>, count, to[i], view.pointer(row, first), view.strides[1]);
    }
  }
}

template <class T, std::size_t NumInputs, std::size_t NumOutputs>
template <class Kernel>
void Elementwise<T, NumInputs, NumOutputs>::run(const Runtime& runtime, const Kernel& kernel) {
  const FloatingPointScope scope;
  check();
  const double elements = static_cast<double>(inputs[0].view.size());
  if (elements == 0) return;
  join_rows();
  const auto [rows, columns] = inputs[0].view.shape;
  const Index item_columns = std::min(columns, kItemElements);
  const Index item_rows = std::max<Index>(1, kItemElements / columns);
  const Index column_items = (columns + item_columns - 1) / item_columns;
  const Index items = (rows + item_rows - 1) / item_rows * column_items;
  const int workers = num_workers(runtime, items, kElementProducts * elements);
  const bool direct = is_direct();
  if (is_planning()) {
    double moved = NumInputs;
    for (const auto& output : outputs) moved += output.view.absent() ? 0 : output.accumulate ? 2 : 1;
    plan_operator(
        {.name = operator_name,
         .strategy = std::to_string(items) + (direct ? " items, computed in place" : " items, converted in buffers"),
         .operations = operations * elements,
         .bytes = moved * elements * sizeof(T)});
  }
  for_each_item(runtime, workers, items, [&](Index item, int) {
    const Index begin = item % column_items * item_columns;
    const Index end = std::min(columns, begin + item_columns);
    const Index first_row = item / column_items * item_rows;
    for (Index row = first_row; row < std::min(rows, first_row + item_rows); ++row) {
      if constexpr (std::is_same_v<T, Compute>) {
        if (direct) {
          Inputs from;
          Outputs to;
          for (std::size_t i = 0; i < NumInputs; ++i) from[i] = inputs[i].view.pointer(row, begin);
          for (std::size_t i = 0; i < NumOutputs; ++i) to[i] = outputs[i].view.pointer(row, begin);
          kernel(end - begin, from, to);
          continue;
        }
      }
      compute_in_buffers(row, begin, end, kernel);
    }
  });
}

}  // namespace regard::inline v0::internal
