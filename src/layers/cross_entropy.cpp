// SPDX-License-Identifier: Apache-2.0
//
// cross_entropy_forward: blocks of rows distributed over threads. A row of logits is read from memory once and stays in
// L2 for its three passes; the losses are added at the end, in order.
//
//   logits (R, V) ── row by row ──▶ row losses in double ── groups in order ──▶ loss
//                              └──▶ grad_logits, in place if requested
//
// Read next: include/regard/cross_entropy.h, kernels/cross_entropy_row.cpp.
#include "regard/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "instantiate.h"
#include "kernel_rows.h"
#include "kernels/layer_table.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kCrossEntropyForward = "cross_entropy_forward";
constexpr Index kLossBlockElements = 4096;  // of a task, at least

void check_options(const CrossEntropyOptions& options) {
  const bool is_mean = options.reduction == Reduction::mean;
  if (!is_mean && options.reduction != Reduction::sum) {
    reject(kCrossEntropyForward,
           "reduction is " + std::to_string(static_cast<int>(options.reduction)) + "; expected mean or sum");
  }
  if (!std::isfinite(options.grad_scale))
    reject(kCrossEntropyForward, "grad_scale is " + std::to_string(options.grad_scale) + "; expected a finite number");
  if (options.count < 0)
    reject(kCrossEntropyForward, "count is " + std::to_string(options.count) + "; expected at least 0");
  if (options.count > 0 && !is_mean)
    reject(kCrossEntropyForward, "count is " + std::to_string(options.count) + "; expected 0 with reduction sum");
  if (options.rows_per_group < 0) {
    reject(kCrossEntropyForward,
           "rows_per_group is " + std::to_string(options.rows_per_group) + "; expected at least 0");
  }
}

// The number of targets that are not ignored.
Index count_targets(const TensorView<const Index, 1>& targets, Index classes, Index ignored) {
  Index count = 0;
  for (Index r = 0; r < targets.shape[0]; ++r) {
    const Index target = read_element(targets.pointer(r));
    if (target == ignored) continue;
    if (target < 0 || target >= classes) {
      reject(kCrossEntropyForward, "targets[" + std::to_string(r) + "] is " + std::to_string(target) +
                                       "; expected 0 to " + std::to_string(classes - 1) + ", or " +
                                       std::to_string(ignored) + " to ignore the row");
    }
    ++count;
  }
  return count;
}

template <class T>
void fill_with_zeros(const TensorView<T, 2>& view, Index row) {
  if (view.strides[1] == 1) {
    std::memset(static_cast<void*>(view.pointer(row, 0)), 0, static_cast<std::size_t>(view.shape[1]) * sizeof(T));
    return;
  }
  constexpr T kZero{};
  for (Index v = 0; v < view.shape[1]; ++v) copy_elements(1, &kZero, 1, view.pointer(row, v), 1);
}

// The sum over groups, in order, of the sum of a group divided by `divisor`.
double reduce(const double* losses, Index rows, Index rows_per_group, double divisor) {
  const Index group = rows_per_group > 0 ? rows_per_group : std::max<Index>(rows, 1);
  double loss = 0;
  for (Index begin = 0; begin < rows; begin += group) {
    double sum = 0;
    for (Index r = begin; r < std::min(rows, begin + group); ++r) sum += losses[r];
    loss += sum / divisor;
  }
  return loss;
}

}  // namespace
}  // namespace internal

template <class T>
CrossEntropyResult cross_entropy_forward(std::type_identity_t<TensorView<const T, 2>> logits,
                                         TensorView<const Index, 1> targets,
                                         const std::type_identity_t<CrossEntropyOutputs<T>>& outputs,
                                         const CrossEntropyOptions& options, const Runtime& runtime) {
  using namespace internal;
  using Compute = ComputeType<T>;
  const FloatingPointScope scope;
  const auto [rows, classes] = logits.shape;
  const TensorView<T, 2>& grad = outputs.grad_logits;
  Footprints inputs, written;
  const Footprint of_logits = footprint(kCrossEntropyForward, "logits", logits);
  inputs.push_back(footprint(kCrossEntropyForward, "targets", targets));
  if (targets.shape != std::array{rows}) {
    reject(kCrossEntropyForward, "targets has shape " + shape_text(targets.shape) + "; expected " +
                                     shape_text(std::array{rows}) + " for logits " + shape_text(logits.shape));
  }
  if (rows > 0 && classes == 0) {
    reject(kCrossEntropyForward, "logits has shape " + shape_text(logits.shape) + "; expected at least one class");
  }
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(kCrossEntropyForward, name, view, shape);
    if (!view.absent()) written.push_back(footprint(kCrossEntropyForward, name, view));
  };
  check("row_loss", outputs.row_loss, std::array{rows});
  check("grad_logits", grad, logits.shape);
  const bool in_place = grad.data == logits.data && grad.strides == logits.strides;
  if (!in_place) inputs.push_back(of_logits);
  check_overlap(kCrossEntropyForward, inputs, written);
  check_options(options);

  const bool planned_only = is_planning();
  const Index count = planned_only ? 0 : count_targets(targets, classes, options.ignored_target);
  const double divisor = options.reduction == Reduction::sum
                             ? 1
                             : static_cast<double>(std::max<Index>(1, options.count > 0 ? options.count : count));
  const double factor = options.grad_scale / divisor;
  if (rows == 0) return {};

  const Index block_rows = std::max<Index>(1, kLossBlockElements / classes);
  const Index blocks = (rows + block_rows - 1) / block_rows;
  constexpr double kElementProducts = 40;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks, kElementProducts * static_cast<double>(logits.size()));
  const bool reads_directly = has_kernel_rows<T>(logits);
  const bool writes_directly = !grad.absent() && has_kernel_rows<T>(grad);
  const bool copies = !reads_directly || (!grad.absent() && !writes_directly);
  const Workspace<Compute> scratch(runtime, copies ? workers * classes : 0);
  const Workspace<double> of_rows(runtime, 2 * rows);
  double* const sums = of_rows.data();
  double* const losses = sums + rows;
  if (planned_only) {
    const double elements = static_cast<double>(logits.size());
    plan_operator({.name = kCrossEntropyForward,
                   .strategy = std::to_string(blocks) + " blocks of rows",
                   .operations = (grad.absent() ? 4 : 5) * elements,
                   .bytes = (grad.absent() ? 1 : 2) * elements * sizeof(T)});
  }
  const kernels::LayerKernels<Compute>& kernel = *kernels::active().of<Compute>().layers;
  const auto logarithm = kernels::active().of<double>().log;
  for_each_item(runtime, workers, blocks, [&](Index block, int worker) {
    Compute* const buffer = scratch.data() + (copies ? worker * classes : 0);
    const Index first = block * block_rows, end = std::min(rows, first + block_rows);
    for (Index r = first; r < end; ++r) {
      const Index target = read_element(targets.pointer(r));
      if (target == options.ignored_target) {
        sums[r] = 1;
        losses[r] = 0;
        if (!grad.absent()) fill_with_zeros(grad, r);
        continue;
      }
      const Compute* from = buffer;
      Compute* to = grad.absent() ? nullptr : buffer;
      if constexpr (std::is_same_v<T, Compute>) {
        if (reads_directly) from = logits.pointer(r, 0);
        if (writes_directly) to = grad.pointer(r, 0);
      }
      if (!reads_directly) read_numbers(kElementType<T>, classes, logits.pointer(r, 0), logits.strides[1], buffer);
      kernel.cross_entropy_row(from, classes, target, factor, to, sums + r, losses + r);
      if (!grad.absent() && !writes_directly)
        write_numbers(kElementType<T>, classes, buffer, grad.pointer(r, 0), grad.strides[1]);
    }
    logarithm(sums + first, sums + first, end - first);
    for (Index r = first; r < end; ++r) losses[r] += sums[r];
  });
  if (planned_only) return {};
  if (!outputs.row_loss.absent()) {
    for (Index r = 0; r < rows; ++r) {
      const auto loss = static_cast<Compute>(losses[r]);
      copy_elements(1, &loss, 1, outputs.row_loss.pointer(r), 1);
    }
  }
  return {reduce(losses, rows, options.rows_per_group, divisor), count};
}

REGARD_INSTANTIATE_LAYER(cross_entropy_forward);

}  // namespace regard::inline v0
