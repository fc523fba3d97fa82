// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of layer norm and RMS norm. Sums over rows are formed in blocks of at most 64 rows of one group, so
// that their order does not depend on the number of threads:
//
//   for each wave of blocks, whose sums fit in cache
//     1. for each block, in parallel             grad_input, and the sums over the rows of the block, in double
//     2. for each piece of columns, in parallel  the sums of the blocks are added in order; the sum of a group is
//                                                rounded and added to the total
//
// Read next: kernels/norm_backward.cpp.
#include <algorithm>
#include <string>

#include "instantiate.h"
#include "norm.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"

namespace regard::inline v0::internal {
namespace {

using kernels::kNormRows;

template <class T>
void check_norm_gradients(const Norm<T>& norm, const TensorView<const T, 2>& grad_output,
                          const LayerNormGradients<T>& gradients) {
  const char* const name = norm.operator_name;
  const auto [rows, width] = norm.input.shape;
  Footprints inputs, written;
  inputs.push_back(footprint(name, "input", norm.input));
  inputs.push_back(footprint(name, "addend", norm.addend));
  inputs.push_back(footprint(name, "gain", norm.gain));
  inputs.push_back(footprint(name, "grad_output", grad_output));
  written.push_back(footprint(name, "grad_input", gradients.grad_input));
  written.push_back(footprint(name, "grad_gain", gradients.grad_gain));
  written.push_back(footprint(name, "grad_bias", gradients.grad_bias));
  check_norm(norm);
  if (grad_output.shape != norm.input.shape) {
    reject(name,
           "grad_output has shape " + shape_text(grad_output.shape) + "; expected " + shape_text(norm.input.shape));
  }
  expect_shape(name, "grad_input", gradients.grad_input, {rows, width});
  expect_shape(name, "grad_gain", gradients.grad_gain, {width});
  expect_shape(name, "grad_bias", gradients.grad_bias, {width});
  if (gradients.rows_per_group < 0)
    reject(name, "rows_per_group is " + std::to_string(gradients.rows_per_group) + "; expected at least 0");
  check_overlap(name, inputs, written);
}

// The rows of a call, divided into groups, and these into blocks.
class RowBlocks {
 public:
  RowBlocks(Index rows, Index rows_per_group)
      : rows_(rows),
        group_(std::max<Index>(1, rows_per_group > 0 ? std::min(rows_per_group, rows) : rows)),
        blocks_of_group_((group_ + kRows - 1) / kRows),
        count_(rows / group_ * blocks_of_group_ + (rows % group_ + kRows - 1) / kRows) {}

  Index count() const { return count_; }
  Index num_groups() const { return (rows_ + group_ - 1) / group_; }
  Index first_row(Index block) const { return block / blocks_of_group_ * group_ + block % blocks_of_group_ * kRows; }
  Index end_row(Index block) const { return block + 1 < count_ ? first_row(block + 1) : rows_; }
  bool ends_group(Index block) const { return block + 1 == count_ || (block + 1) % blocks_of_group_ == 0; }

 private:
  static constexpr Index kRows = 64;

  Index rows_;
  Index group_;
  Index blocks_of_group_;
  Index count_;
};

// The sums over rows that become grad_gain and grad_bias.
template <class T>
class ParameterSums {
 public:
  using Compute = ComputeType<T>;

  ParameterSums(const LayerNormGradients<T>& gradients, const RowBlocks& blocks, Index width, int workers,
                const Runtime& runtime)
      : gradients_(gradients),
        blocks_(blocks),
        stride_((width + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes),
        columns_(stride_ * (!gradients.grad_bias.absent()   ? 2
                            : !gradients.grad_gain.absent() ? 1
                                                            : 0)),
        wave_(wave_of(workers)),
        of_blocks_(runtime, wave_ * columns_),
        of_group_(runtime, columns_),
        totals_(runtime, columns_) {}

  Index blocks_of_wave() const { return wave_; }

  // Where the kernel adds the rows of a block; nullptr if this is not needed.
  double* gain(Index block) const { return columns_ > 0 ? of_block(block) : nullptr; }
  double* bias(Index block) const { return columns_ > stride_ ? of_block(block) + stride_ : nullptr; }

  // Sums begin with −0: adding a number to it gives that number, even if it is −0.
  void clear() const {
    std::fill_n(of_group_.data(), columns_, -0.0);
    std::fill_n(totals_.data(), columns_, static_cast<Compute>(blocks_.count() > 0 ? -0.0 : 0.0));
    for_each_gradient([](const TensorView<T, 1>& gradient, bool accumulate, Compute* total) {
      if (accumulate) read_numbers(kElementType<T>, gradient.shape[0], gradient.data, gradient.strides[0], total);
    });
  }
  void clear(Index block) const { std::fill_n(of_block(block), columns_, 0.0); }

  // Adds blocks first … end − 1, which are those of a wave.
  void add(Index first, Index end, const Runtime& runtime) const {
    constexpr Index kPiece = 512;             // columns that are added together
    constexpr double kAdditionProducts = 15;  // an addition takes as long as this many products
    const Index pieces = (columns_ + kPiece - 1) / kPiece;
    const int workers = num_workers(runtime, pieces, kAdditionProducts * static_cast<double>((end - first) * columns_));
    const auto add_elements = kernels::active().of<double>().layers->add;
    for_each_item(runtime, workers, pieces, [&](Index piece, int) {
      const Index column = piece * kPiece, count = std::min(kPiece, columns_ - column);
      double* const group = of_group_.data() + column;
      Compute* const total = totals_.data() + column;
      for (Index block = first; block < end; ++block) {
        add_elements(of_block(block) + column, group, count);
        if (!blocks_.ends_group(block)) continue;
        for (Index c = 0; c < count; ++c) {
          total[c] += static_cast<Compute>(group[c]);
          group[c] = -0.0;
        }
      }
    });
  }

  void write() const {
    for_each_gradient([](const TensorView<T, 1>& gradient, bool, const Compute* total) {
      write_numbers(kElementType<T>, gradient.shape[0], total, gradient.data, gradient.strides[0]);
    });
  }

 private:
  Index wave_of(int workers) const {
    constexpr Index kElements = 1 << 15;  // 256 KiB, unless there are many threads
    if (columns_ == 0) return blocks_.count();
    return std::min(blocks_.count(), std::max(kElements / columns_, 4 * Index{workers}));
  }
  double* of_block(Index block) const { return of_blocks_.data() + block % wave_ * columns_; }

  template <class Use>
  void for_each_gradient(Use use) const {
    if (!gradients_.grad_gain.absent()) use(gradients_.grad_gain, gradients_.accumulate.grad_gain, totals_.data());
    if (!gradients_.grad_bias.absent())
      use(gradients_.grad_bias, gradients_.accumulate.grad_bias, totals_.data() + stride_);
  }

  const LayerNormGradients<T>& gradients_;
  const RowBlocks& blocks_;
  Index stride_;
  Index columns_;  // gain, then bias, padded as the kernel requires
  Index wave_;
  Workspace<double> of_blocks_;
  Workspace<double> of_group_;
  Workspace<Compute> totals_;
};

template <class T>
void write_gradients(const Norm<T>& norm, const TensorView<const T, 2>& grad_output,
                     const LayerNormGradients<T>& gradients, const Runtime& runtime) {
  using Compute = ComputeType<T>;
  const auto [rows, width] = norm.input.shape;
  const TensorView<T, 2>& grad_input = gradients.grad_input;
  const bool copies_grad_output = !has_kernel_rows<T>(grad_output);
  const bool copies_grad_input = !grad_input.absent() && !has_kernel_rows<T>(grad_input);
  const RowBlocks blocks(rows, gradients.rows_per_group);
  constexpr double kElementProducts = 50;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks.count(), kElementProducts * static_cast<double>(norm.input.size()));
  const Workspace<Compute> gain(runtime, width);
  const NormBuffers<T> buffers(norm, Index{copies_grad_output} + Index{copies_grad_input}, workers, runtime);
  const ParameterSums<T> sums(gradients, blocks, width, workers, runtime);
  if (is_planning()) {
    const double elements = static_cast<double>(norm.input.size());
    plan_operator({.name = norm.operator_name,
                   .strategy = std::to_string(blocks.count()) + " blocks of rows in " +
                               std::to_string(blocks.num_groups()) + " groups",
                   .operations = (norm.centered ? 19 : 14) * elements,
                   .bytes = (norm.addend.absent() ? 3 : 4) * elements * sizeof(T)});
  } else {
    read_numbers(kElementType<T>, width, norm.gain.data, norm.gain.strides[0], gain.data());
    sums.clear();
  }
  const auto kernel = kernels::active().of<Compute>().layers->norm_backward;
  const auto process = [&](Index block, int worker) {
    if (sums.gain(block)) sums.clear(block);
    for (Index first = blocks.first_row(block); first < blocks.end_row(block); first += kNormRows) {
      const Index count = std::min(kNormRows, blocks.end_row(block) - first);
      const auto grads = read_rows(grad_output, first, count, buffers.other(worker, 0));
      KernelRows<Compute> to;
      if (!grad_input.absent()) to = written_rows(grad_input, first, buffers.other(worker, Index{copies_grad_output}));
      kernel({.rows = buffers.rows(worker, first, count, gain.data()),
              .grad_output = grads.data,
              .grad_output_stride = grads.stride,
              .grad_input = to.data,
              .grad_input_stride = to.stride,
              .accumulate = gradients.accumulate.grad_input && !copies_grad_input,
              .sum_gain = sums.gain(block),
              .sum_bias = sums.bias(block)});
      for (Index r = 0; r < (copies_grad_input ? count : 0); ++r) {
        write_or_add_numbers(gradients.accumulate.grad_input, kElementType<T>, width, to.data + r * width,
                             grad_input.pointer(first + r, 0), grad_input.strides[1]);
      }
    }
  };
  for (Index first = 0; first < blocks.count(); first += sums.blocks_of_wave()) {
    const Index end = std::min(blocks.count(), first + sums.blocks_of_wave());
    for_each_item(runtime, workers, end - first, [&](Index item, int worker) { process(first + item, worker); });
    sums.add(first, end, runtime);
  }
  if (!is_planning()) sums.write();
}

}  // namespace

template <class T>
void norm_backward(const Norm<T>& norm, const TensorView<const T, 2>& grad_output,
                   const LayerNormGradients<T>& gradients, const Runtime& runtime) {
  const FloatingPointScope scope;
  check_norm_gradients(norm, grad_output, gradients);
  if (norm.input.shape[1] > 0) write_gradients(norm, grad_output, gradients, runtime);
}

REGARD_INSTANTIATE_LAYER(norm_backward);

}  // namespace regard::inline v0::internal
