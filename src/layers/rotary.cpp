// SPDX-License-Identifier: Apache-2.0
//
// rotary_forward and rotary_backward. Rows with the same position are rotated together: of all heads, and of all batch
// entries unless each has positions of its own.
//
//   an item: up to 1024 positions × heads
//     1. cosines and sines of (position, pair), into scratch memory
//     2. for each head and each position, in the order of memory: rotate a row
//
// If there are fewer positions than threads, heads are also split, and each part computes its cosines and sines.
// Read next: kernels/rotary_rows.cpp, rotary_frequencies.cpp.
#include "regard/rotary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "instantiate.h"
#include "kernels/layer_table.h"
#include "rotary_frequencies.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr Index kMaxPosition = Index{1} << 31;
constexpr Index kTableElements = 65536;         // cosines and sines of an item: 256 KiB of float, which stay in L2
constexpr Index kMaxBlock = 1024;               // positions of an item
constexpr double kRotatedElementProducts = 20;  // an element takes about as long as this many products

// Rotates rows by given cosines and sines.
template <class T>
struct RowRotation {
  using Compute = ComputeType<T>;

  TensorView<const T, 4> input;
  TensorView<T, 4> output;
  Index pairs;
  bool accumulate;
  decltype(kernels::LayerKernels<Compute>::rotate_halves) kernel;

  // Whether rows are contiguous elements of the compute type; otherwise they are converted in buffers.
  bool is_direct() const {
    const auto is_aligned = [](const auto& view) {
      return view.strides[3] == 1 && reinterpret_cast<std::uintptr_t>(view.data) % alignof(T) == 0;
    };
    return std::is_same_v<T, Compute> && is_aligned(input) && is_aligned(output);
  }

  // buffers: two rows, or nullptr if is_direct().
  void row(Index b, Index h, Index l, const Compute* cosines, const Compute* sines, Compute* buffers) const {
    const T* const from = input.pointer(b, h, l, 0);
    T* const to = output.pointer(b, h, l, 0);
    if constexpr (std::is_same_v<T, Compute>) {
      if (buffers == nullptr) return components(from, cosines, sines, to);
    }
    const Index count = input.shape[3];
    Compute* const x = buffers;
    Compute* const y = buffers + count;
    read_numbers(kElementType<T>, count, from, input.strides[3], x);
    if (accumulate) read_numbers(kElementType<T>, count, to, output.strides[3], y);
    components(x, cosines, sines, y);
    write_numbers(kElementType<T>, count, y, to, output.strides[3]);
  }

 private:
  void components(const Compute* from, const Compute* cosines, const Compute* sines, Compute* to) const {
    kernel(from, cosines, sines, pairs, accumulate, to);
    for (Index d = 2 * pairs; d < input.shape[3]; ++d) to[d] = accumulate ? to[d] + from[d] : from[d];
  }
};

template <class T>
struct RotaryCall {
  using Compute = ComputeType<T>;

  const char* name;
  const char* input_name;
  TensorView<const T, 4> input;
  const char* output_name;
  TensorView<T, 4> output;
  const RotaryOptions& options;
  double direction;  // −1 means opposite angles
  bool accumulate;

  // The number of rotated components.
  Index size() const { return options.size == 0 ? input.shape[3] : options.size; }

  void check() const;
  void run(const Runtime& runtime) const;

 private:
  Index position(Index b, Index l) const {
    return options.positions.absent() ? options.first_position + l : read_element(options.positions.pointer(b, l));
  }
};

template <class T>
void RotaryCall<T>::check() const {
  const auto& shape = input.shape;
  const std::array<Footprint, 1> read{footprint(name, input_name, input)};
  const std::array<Footprint, 1> written{footprint(name, output_name, output)};
  const std::array<Footprint, 1> positions{footprint(name, "positions", options.positions)};
  if (output.shape != shape) {
    reject(name, std::string(output_name) + " has shape " + shape_text(output.shape) + "; expected " +
                     shape_text(shape) + ", the shape of " + input_name);
  }
  if (!std::isfinite(options.base) || options.base < 1)
    reject(name, "base is " + std::to_string(options.base) + "; expected a finite number of at least 1");
  if (options.layout != RotaryLayout::halves && options.layout != RotaryLayout::interleaved)
    reject(name, "layout is " + std::to_string(static_cast<int>(options.layout)) + "; expected halves or interleaved");
  if (options.size < 0 || size() % 2 != 0 || size() > shape[3]) {
    reject(name, "size is " + std::to_string(size()) + "; expected an even number from 0 to " +
                     std::to_string(shape[3]) + ", the last extent of " + input_name);
  }
  expect_shape(name, "positions", options.positions, {shape[0], shape[2]});
  if (!options.positions.absent() && options.first_position != 0) {
    reject(name, "first_position is " + std::to_string(options.first_position) + "; expected 0 if positions are given");
  }
  check_overlap(name, positions, written);
  check_overlap(name, is_same_view(input, output) ? std::span<const Footprint>{} : read, written);
  if (input.size() == 0) return;
  const auto expect_in_range = [&](Index position, const auto& place) {
    if (position >= -kMaxPosition && position <= kMaxPosition) return;
    reject(name, place() + " is " + std::to_string(position) + "; expected a number from -2147483648 to 2147483648");
  };
  if (options.positions.absent()) {
    expect_in_range(options.first_position, [] { return std::string("first_position"); });
    expect_in_range(options.first_position + shape[2] - 1, [] { return std::string("the last position"); });
    return;
  }
  if (is_planning()) return;  // elements must not be read
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index l = 0; l < shape[2]; ++l) {
      expect_in_range(position(b, l),
                      [&] { return "positions[" + std::to_string(b) + ", " + std::to_string(l) + "]"; });
    }
  }
}

template <class T>
void RotaryCall<T>::run(const Runtime& runtime) const {
  const FloatingPointScope scope;
  check();
  const auto [batch, heads, length, components] = input.shape;
  const double elements = static_cast<double>(input.size());
  if (elements == 0) return;
  const Index pairs = size() / 2;
  // Groups of batch entries with the same positions: all entries, or each one separately.
  const bool shared = options.positions.absent() || options.positions.strides[0] == 0;
  const Index groups = shared ? 1 : batch;
  const Index rows = shared ? batch * heads : heads;  // of a position and a group
  const int threads = num_workers(runtime, std::numeric_limits<Index>::max(), kRotatedElementProducts * elements);
  const Index wanted_items = threads == 1 ? 1 : 4 * threads;
  const Index max_block = std::clamp<Index>(kTableElements / std::max<Index>(2 * pairs, 1), 1, kMaxBlock);
  const Index block = std::clamp<Index>(length * groups / wanted_items, 1, std::min(max_block, length));
  const Index blocks = (length + block - 1) / block;
  const Index parts = std::clamp<Index>(wanted_items / (blocks * groups), 1, rows);
  const Index items = groups * blocks * parts;
  const int workers = num_workers(runtime, items, kRotatedElementProducts * elements);
  const kernels::LayerKernels<Compute>& kernel = *kernels::active().of<Compute>().layers;
  const RowRotation<T> rotation{
      input, output, pairs, accumulate,
      options.layout == RotaryLayout::halves ? kernel.rotate_halves : kernel.rotate_neighbors};
  const bool direct = rotation.is_direct();
  // As in (B, L, H, D): memory is then read in order if heads are the inner loop.
  const bool heads_are_adjacent = std::abs(input.strides[1]) < std::abs(input.strides[2]);
  const Index table_elements = 2 * pairs * block;
  const Index scratch_elements = table_elements + (direct ? 0 : 2 * components);
  const Workspace<double> frequencies(runtime, pairs);
  const Workspace<Compute> scratch(runtime, workers * scratch_elements);
  if (is_planning()) {
    plan_operator({.name = name,
                   .strategy = std::to_string(blocks * groups) + " blocks of positions" +
                               (parts == 1 ? "" : " by " + std::to_string(parts) + " groups of heads"),
                   .operations = 3 * elements,
                   .bytes = (accumulate ? 3 : 2) * elements * sizeof(T)});
  } else if (pairs > 0) {
    rotary_frequencies(options.base, size(), frequencies.data());
  }
  for_each_item(runtime, workers, items, [&](Index item, int worker) {
    Compute* const cosines = scratch.data() + worker * scratch_elements;
    Compute* const sines = cosines + pairs * block;
    Compute* const buffers = direct ? nullptr : cosines + table_elements;
    const Index part = item % parts;
    const Index group = item / parts / blocks;
    const Index first = item / parts % blocks * block;
    const Index end = std::min(length, first + block);
    for (Index l = first; l < end; ++l) {
      const Index at = (l - first) * pairs;
      kernel.rotary_factors(direction * static_cast<double>(position(group, l)), frequencies.data(), pairs,
                            cosines + at, sines + at);
    }
    const Index first_row = rows * part / parts;
    const Index end_row = rows * (part + 1) / parts;
    const auto rotate = [&](Index row, Index l) {
      const Index at = (l - first) * pairs;
      rotation.row(shared ? row / heads : group, row % heads, l, cosines + at, sines + at, buffers);
    };
    if (heads_are_adjacent) {
      for (Index l = first; l < end; ++l) {
        for (Index row = first_row; row < end_row; ++row) rotate(row, l);
      }
    } else {
      for (Index row = first_row; row < end_row; ++row) {
        for (Index l = first; l < end; ++l) rotate(row, l);
      }
    }
  });
}

}  // namespace
}  // namespace internal

template <class T>
void rotary_forward(std::type_identity_t<TensorView<const T, 4>> input, TensorView<T, 4> output,
                    const RotaryOptions& options, const Runtime& runtime) {
  internal::RotaryCall<T>{"rotary_forward", "input", input, "output", output, options, 1, false}.run(runtime);
}

template <class T>
void rotary_backward(std::type_identity_t<TensorView<const T, 4>> grad_output, TensorView<T, 4> grad_input,
                     const RotaryOptions& options, bool accumulate, const Runtime& runtime) {
  internal::RotaryCall<T>{"rotary_backward", "grad_output", grad_output, "grad_input",
                          grad_input,        options,       -1,          accumulate}
      .run(runtime);
}

REGARD_INSTANTIATE_LAYER(rotary_forward);
REGARD_INSTANTIATE_LAYER(rotary_backward);

}  // namespace regard::inline v0
