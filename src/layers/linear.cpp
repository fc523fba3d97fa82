// SPDX-License-Identifier: Apache-2.0
//
// linear_forward: packs the weight into panels of 32 columns, unless it is already packed, then computes tiles of up to
// 60 rows (AMX: 64) by groups of panels.
//
//   phase 1, per panel:                 pack_keys of the transposed weight
//   phase 2, per up to 60 rows × group: pack_query of the rows, then linear_tile for each panel of the group
//
// The bits of an element depend only on its row of input and its column of weight. Panels of bfloat16 hold pairs, which
// AMX or a dot product of pairs multiplies as they are if the processor has one of them; otherwise rows and panels are
// converted to float, one panel at a time.
// Read next: kernels/linear_tile.cpp.
#include "regard/linear.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "instantiate.h"
#include "kernel_activation.h"
#include "kernels/table.h"
#include "linear_product.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kPanel;
using kernels::kRows;

constexpr Index kTileRows = 12;  // of a register tile, on the instruction sets with the largest
constexpr const char* kLinearForward = "linear_forward";

template <class T>
inline constexpr bool kPairs = std::same_as<T, bfloat16>;

Index num_panels(Index columns) { return (columns + kPanel - 1) / kPanel; }

// The dimensions of a product in groups that are summed separately: 0 … length − 1, and so on.
struct DepthGroups {
  Index depth, length;

  explicit DepthGroups(Index depth_, Index length_ = 0)
      : depth(depth_), length(length_ > 0 ? std::min(length_, depth_) : depth_) {}
  Index count() const { return depth == 0 ? 1 : (depth + length - 1) / length; }
  Index begin(Index group) const { return group * length; }
  Index size(Index group) const { return std::min(length, depth - begin(group)); }
};

// Elements of a group of a panel, and of the whole panel.
template <class T>
Index panel_part(const DepthGroups& groups) {
  return (kPairs<T> ? (groups.length + 1) / 2 * 2 : groups.length) * kPanel;
}
template <class T>
Index panel_size(const DepthGroups& groups) {
  return groups.count() * panel_part<T>(groups);
}

// Number of elements of the panels; never 0, so that a panel of depth 0 also has an address.
template <class T>
Index panel_elements(const DepthGroups& groups, Index columns) {
  return num_panels(columns) * std::max(panel_size<T>(groups), panel_size<T>(DepthGroups(1)));
}

// The matrix that a kernel reads, with the element type as the kernels define it.
template <class T>
auto matrix_at(const T* data, Index row_stride, Index column_stride) {
  if constexpr (kPairs<T>) {
    return kernels::Matrix<kernels::Bfloat16>{reinterpret_cast<const kernels::Bfloat16*>(data), row_stride,
                                              column_stride};
  } else {
    return kernels::Matrix<T>{data, row_stride, column_stride};
  }
}

template <class T>
void pack(const TensorView<const T, 2>& weight, const DepthGroups& groups, T* panels, const Runtime& runtime) {
  constexpr double kElementProducts = 16;  // an element takes as long as this many products
  const Index columns = weight.shape[1];
  const Index count = num_panels(columns);
  const int workers = num_workers(runtime, count, kElementProducts * static_cast<double>(weight.size()));
  for_each_item(runtime, workers, count, [&](Index panel, int) {
    const Index first = panel * kPanel;
    const Index width = std::min(kPanel, columns - first);
    T* to = panels + panel * panel_size<T>(groups);
    for (Index group = 0; group < groups.count(); ++group, to += panel_part<T>(groups)) {
      const auto source = matrix_at(weight.pointer(groups.begin(group), first), weight.strides[1], weight.strides[0]);
      if constexpr (kPairs<T>) {
        kernels::active().pairs.pack_keys(source, width, groups.size(group), reinterpret_cast<float*>(to));
      } else {
        kernels::active().of<T>().pack_keys(source, width, groups.size(group), to);
      }
    }
  });
}

template <class T, class Output>
void check_shapes(const TensorView<const T, 2>& input, const std::array<Index, 2>& weight,
                  const TensorView<const T, 1>& bias, const TensorView<Output, 2>& output) {
  const Index rows = input.shape[0];
  if (weight[0] != input.shape[1]) {
    reject(kLinearForward, "weight has shape " + shape_text(weight) + "; expected " + std::to_string(input.shape[1]) +
                               " rows for input " + shape_text(input.shape) +
                               (weight[1] == input.shape[1] ? "; transpose an (O, I) matrix, as PyTorch has it" : ""));
  }
  expect_shape(kLinearForward, "bias", bias, {weight[1]});
  if (output.shape != std::array{rows, weight[1]}) {
    reject(kLinearForward,
           "output has shape " + shape_text(output.shape) + "; expected " + shape_text(std::array{rows, weight[1]}));
  }
}

template <class T>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0;
}

// Rows and panels of one call, in the form in which its tiles multiply them.
template <class T>
class Operands {
 public:
  using Compute = ComputeType<T>;

  Operands(const TensorView<const T, 2>& input, const T* panels, const DepthGroups& groups)
      : table_(kernels::active()),
        input_(input),
        panels_(panels),
        groups_(groups),
        form_(kPairs<T> && table_.bf16_amx   ? Form::amx
              : kPairs<T> && table_.bf16_dot ? Form::pairs
                                             : Form::numbers) {}

  Index num_groups() const { return groups_.count(); }

  // Rows of the largest task and of a register tile.
  Index most_rows() const { return form_ == Form::amx ? kernels::kAmxBlockRows : kRows; }
  Index tile_rows() const { return form_ == Form::amx ? kernels::kAmxRows : kTileRows; }

  // Scratch elements per worker.
  Index row_elements() const { return num_groups() * row_part(); }
  Index panel_elements() const { return kPairs<T> && form_ == Form::numbers ? groups_.depth * kPanel : 0; }

  // Called by a thread before its first tile of a task, and after the last.
  void enter() const {
    if (form_ == Form::amx) table_.amx.enter();
  }
  void leave() const {
    if (form_ == Form::amx) table_.amx.leave();
  }

  void pack_rows(Index first, Index num_rows, Compute* packed) const {
    for (Index group = 0; group < num_groups(); ++group) {
      const Index depth = groups_.size(group);
      const auto rows = matrix_at(input_.pointer(first, groups_.begin(group)), input_.strides[0], input_.strides[1]);
      Compute* const to = packed + group * row_part();
      if constexpr (!kPairs<T>) {
        table_.of<T>().pack_query(rows, num_rows, depth, to);
      } else if (form_ == Form::amx) {
        table_.amx.pack_rows(rows, num_rows, depth, to);
      } else if (form_ == Form::pairs) {
        table_.pairs.pack_query(rows, num_rows, depth, to);
      } else {
        table_.bf16.pack_query(rows, num_rows, depth, to);
      }
    }
  }

  // buffer has panel_elements() elements.
  const Compute* panel(Index number, Compute* buffer) const {
    const T* const at = panels_ + number * panel_size<T>(groups_);
    if constexpr (kPairs<T>) {
      if (form_ != Form::numbers) return reinterpret_cast<const float*>(at);
      for (Index group = 0; group < num_groups(); ++group) {
        table_.pairs.widen_pairs(reinterpret_cast<const float*>(at + group * panel_part<T>(groups_)),
                                 groups_.size(group), buffer + kPanel * groups_.begin(group));
      }
      return buffer;
    } else {
      return at;
    }
  }

  // The next panel if it is read from memory without conversion, otherwise nullptr.
  const Compute* panel_after(Index number, Index count) const {
    if constexpr (kPairs<T>) {
      return nullptr;
    } else {
      return number + 1 < count && num_groups() == 1 ? panels_ + (number + 1) * panel_size<T>(groups_) : nullptr;
    }
  }

  // The sum of one group.
  void tile(Index group, Index num_rows, Index width, const Compute* packed_rows, const Compute* packed_panel,
            const Compute* bias, kernels::Activation activation, Compute* output, Index output_stride,
            const Compute* next_panel) const {
    const Index depth = groups_.size(group);
    const Compute* const rows = packed_rows + group * row_part();
    const Compute* const panel = packed_panel + kPanel * group * words(groups_.length);
    auto* multiply = table_.of<Compute>().linear_tile;
    if constexpr (kPairs<T>) {
      if (form_ == Form::amx) {
        table_.amx.linear_tile(num_rows, width, depth, rows, panel, bias, activation, output, output_stride);
        return;
      }
      if (form_ == Form::pairs) multiply = table_.pairs.linear_tile;
    }
    multiply(num_rows, width, depth, rows, panel, bias, activation, output, output_stride, next_panel);
  }

 private:
  enum class Form { numbers, pairs, amx };

  Index words(Index depth) const { return form_ == Form::numbers ? depth : (depth + 1) / 2; }
  // Elements that the packed rows of one group take.
  Index row_part() const {
    constexpr Index kStep = kernels::kAmxDepth;
    return most_rows() * words(form_ == Form::amx ? (groups_.length + kStep - 1) / kStep * kStep : groups_.length);
  }

  const kernels::KernelTable& table_;
  const TensorView<const T, 2>& input_;
  const T* panels_;
  DepthGroups groups_;
  Form form_;
};

// Calls enter() of the operands, and leave() at the end of its scope.
template <class T>
class TileScope {
 public:
  explicit TileScope(const Operands<T>& operands) : operands_(operands) { operands_.enter(); }
  ~TileScope() { operands_.leave(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const Operands<T>& operands_;
};

// Tasks of up to block_rows rows by group_panels panels.
struct Division {
  Index block_rows, group_panels;
};

// The division with which the workers finish first: block_rows is at most `most_rows` and a multiple of `tile_rows`,
// group_panels at most `most_panels`. The tasks of a group, one for each block of rows, come before those of the next.
Division divide(Index rows, Index most_rows, Index tile_rows, Index panels, Index most_panels, int workers) {
  constexpr double kRowsOfOverhead = 1;   // the overhead of a task takes as long as this many rows
  constexpr double kPanelsOfPacking = 1;  // packing the rows of a task takes as long as this many panels
  const Index fewest_groups = (panels + most_panels - 1) / most_panels;
  Division best{most_rows, panels};
  double least = 0;
  for (Index groups = fewest_groups; groups <= std::min(panels, fewest_groups + 2 * workers); ++groups) {
    const Index group_panels = (panels + groups - 1) / groups;
    if ((panels + group_panels - 1) / group_panels != groups) continue;
    for (Index size = most_rows; size >= 3 * tile_rows; size -= tile_rows) {
      const Index blocks = (rows + size - 1) / size;
      const Index before = (blocks * groups - 1) / workers;  // tasks of a worker before the last
      const bool last_alone = groups == 1 && (blocks - 1) % workers == 0;
      const Index last = last_alone ? rows - (blocks - 1) * size : size;
      const double of_row = static_cast<double>(group_panels) + kPanelsOfPacking;
      const double time =
          of_row * (static_cast<double>(before * size + last) + kRowsOfOverhead * static_cast<double>(before + 1));
      if (least > 0 && time >= least) continue;
      best = {size, group_panels};
      least = time;
    }
    if (workers == 1) break;
  }
  return best;
}

template <class T, class Output>
void multiply(const TensorView<const T, 2>& input, const T* panels, const DepthGroups& groups_of_depth,
              const TensorView<const T, 1>& bias, const TensorView<Output, 2>& output, kernels::Activation activation,
              bool accumulate, double num_products, const Runtime& runtime) {
  using Compute = ComputeType<T>;
  const Operands<T> operands(input, panels, groups_of_depth);
  const auto [rows, columns] = output.shape;
  const Workspace<Compute> dense_bias(runtime, bias.absent() ? 0 : columns);
  if (!bias.absent()) read_numbers(kElementType<T>, columns, bias.data, bias.strides[0], dense_bias.data());

  // Up to sixteen panels share one packing of the rows. Groups are larger if there are enough rows for every worker, as
  // long as the panels of a group fit in a cache of 2 to 4 MiB while they are read for one block of rows after another.
  constexpr Index kGroupBytes = 5 << 19;
  const Index panel_bytes = panel_elements<T>(groups_of_depth, 1) * Index{sizeof(T)};
  const Index count = num_panels(columns);
  const Index most_rows = operands.most_rows();
  const Index most_blocks = (rows + most_rows - 1) / most_rows;
  const bool many_rows = most_blocks >= 8 * num_workers(runtime, most_blocks);
  const Index most_panels = std::max<Index>(16, many_rows ? kGroupBytes / panel_bytes : 0);
  const int most_workers = num_workers(runtime, most_blocks * count, num_products);
  const auto [block_rows, group_panels] =
      divide(rows, most_rows, operands.tile_rows(), count, most_panels, most_workers);
  const Index groups = (count + group_panels - 1) / group_panels;
  const Index blocks = (rows + block_rows - 1) / block_rows;
  const int workers = num_workers(runtime, blocks * groups, num_products);
  // Kernels write dense aligned rows; any other output is copied from a tile.
  constexpr bool kSameType = std::same_as<Output, Compute>;
  const bool direct = kSameType && output.strides[1] == 1 && is_aligned(output.data);
  const Index scratch_elements =
      operands.row_elements() + operands.panel_elements() + (direct ? 0 : most_rows * kPanel);
  const Workspace<Compute> scratch(runtime, workers * scratch_elements);
  if (is_planning()) {
    const double input_size = num_products / static_cast<double>(columns);
    const double weight_size = num_products / static_cast<double>(rows);
    plan_operator(
        {.name = kLinearForward,
         .strategy = std::to_string(blocks) + " blocks of rows by " + std::to_string(groups) + " groups of columns, " +
                     (direct ? "written directly to the output" : "copied to the output"),
         .operations = 2 * num_products,
         .bytes = (input_size + weight_size) * sizeof(T) + static_cast<double>(output.size()) * sizeof(Output)});
  }
  for_each_item(runtime, workers, blocks * groups, [&](Index task, int worker) {
    Compute* packed_rows = scratch.data() + worker * scratch_elements;
    Compute* panel_buffer = packed_rows + operands.row_elements();
    Compute* tile = panel_buffer + operands.panel_elements();
    const Index first = task % blocks * block_rows;
    const Index num_rows = std::min(block_rows, rows - first);
    operands.pack_rows(first, num_rows, packed_rows);
    const TileScope<T> tiles(operands);
    const Index end_panel = std::min(count, (task / blocks + 1) * group_panels);
    for (Index panel = task / blocks * group_panels; panel < end_panel; ++panel) {
      throw_if_stopped(runtime.stop);
      const Index column = panel * kPanel;
      const Index width = std::min(kPanel, columns - column);
      Compute* to = tile;
      if constexpr (kSameType) {
        if (direct) to = output.pointer(first, column);
      }
      for (Index i = 0; i < num_rows && accumulate && !direct; ++i) {
        read_numbers(kElementType<Output>, width, output.pointer(first + i, column), output.strides[1],
                     tile + i * kPanel);
      }
      const Compute* const packed_panel = operands.panel(panel, panel_buffer);
      for (Index group = 0; group < operands.num_groups(); ++group) {
        const bool added = group > 0 || accumulate;
        operands.tile(group, num_rows, width, packed_rows, packed_panel,
                      bias.absent() || group > 0 ? nullptr : dense_bias.data() + column,
                      added ? kernels::Activation::added : activation, to, direct ? output.strides[0] : kPanel,
                      operands.panel_after(panel, count));
      }
      for (Index i = 0; i < num_rows && !direct; ++i) {
        write_numbers(kElementType<Output>, width, tile + i * kPanel, output.pointer(first + i, column),
                      output.strides[1]);
      }
    }
  });
}

// Products of an element that are one chain (linear_tile.cpp, linear_amx.cpp).
template <class T>
Index segment() {
  return kernels::kDepthSegment * (kPairs<T> && kernels::active().bf16_amx ? kernels::kAmxDepth : 1);
}

// The dimensions that are multiplied before the next ones are packed: rows and panels of a large depth would not fit in
// a cache. Parts end where a segment or a group does, so that the sums are added in the same order.
template <class T, class Output>
Index depth_part(Index depth, const ProductSum& sum, bool no_bias) {
  constexpr Index kPart = kPairs<T> ? 8192 : 2048;  // a multiple of every segment
  const bool sums_are_added = sum.depth_group > 0 || !sum.accumulate;
  if (depth <= 2 * kPart || !no_bias || !sums_are_added || !std::same_as<Output, ComputeType<T>>)
    return std::max<Index>(depth, 1);
  return sum.depth_group > 0 ? std::max<Index>(1, kPart / sum.depth_group) * sum.depth_group : kPart;
}

// The public functions of linear.h.
template <class T, class Output>
void forward(const TensorView<const T, 2>& input, const TensorView<const T, 2>& weight,
             const TensorView<const T, 1>& bias, const TensorView<Output, 2>& output, const ProductSum& sum,
             const Runtime& runtime) {
  const FloatingPointScope scope;
  const std::array<Footprint, 3> inputs{footprint(kLinearForward, "input", input),
                                        footprint(kLinearForward, "weight", weight),
                                        footprint(kLinearForward, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(kLinearForward, "output", output)};
  check_shapes(input, weight.shape, bias, output);
  check_overlap(kLinearForward, inputs, written);
  if (output.shape[0] == 0 || output.shape[1] == 0) return;
  const Index depth = weight.shape[0];
  const Index part = depth_part<T, Output>(depth, sum, bias.absent());
  const Index group = part < depth && sum.depth_group == 0 ? segment<T>() : sum.depth_group;
  const Workspace<T> panels(runtime, panel_elements<T>(DepthGroups(part, group), weight.shape[1]));
  const double products = static_cast<double>(output.shape[0]) * static_cast<double>(weight.size());
  for (Index begin = 0; begin == 0 || begin < depth; begin += part) {
    std::optional<PlanSuspension> in_plan;
    if (begin > 0) in_plan.emplace();
    const Index end = std::min(depth, begin + part);
    const TensorView<const T, 2> rows = sliced(weight, 0, begin, end);
    const DepthGroups groups(end - begin, group);
    pack(rows, groups, panels.data(), runtime);
    multiply(sliced(input, 1, begin, end), panels.data(), groups, bias, output, kernels::Activation::none,
             sum.accumulate || begin > 0, products, runtime);
  }
}

template <class T, class Output>
void forward(const TensorView<const T, 2>& input, const PackedLinear<T>& weight, const TensorView<const T, 1>& bias,
             const TensorView<Output, 2>& output, const LinearOptions& options, const Runtime& runtime) {
  const FloatingPointScope scope;
  const kernels::Activation activation = kernel_activation(kLinearForward, options.activation);
  const std::array<Index, 2> shape{weight.num_inputs(), weight.num_outputs()};
  const DepthGroups groups(shape[0]);
  const TensorView<const T, 1> panels(weight.panels(),
                                      {weight.panels() == nullptr ? 0 : panel_elements<T>(groups, shape[1])});
  const std::array<Footprint, 3> inputs{footprint(kLinearForward, "input", input),
                                        footprint(kLinearForward, "weight", panels),
                                        footprint(kLinearForward, "bias", bias)};
  const std::array<Footprint, 1> written{footprint(kLinearForward, "output", output)};
  check_shapes(input, shape, bias, output);
  check_overlap(kLinearForward, inputs, written);
  if (output.shape[0] == 0 || output.shape[1] == 0) return;
  const double products = static_cast<double>(output.shape[0]) * static_cast<double>(shape[0] * shape[1]);
  multiply(input, weight.panels(), groups, bias, output, activation, false, products, runtime);
}

}  // namespace

template <class T, class Output>
void linear_product(const TensorView<const T, 2>& input, const TensorView<const T, 2>& weight,
                    const TensorView<Output, 2>& output, const ProductSum& sum, const Runtime& runtime) {
  forward(input, weight, {}, output, sum, runtime);
}

REGARD_INSTANTIATE_LAYER(linear_product);
template decltype(linear_product<bfloat16, float>) linear_product<bfloat16, float>;

}  // namespace internal

template <class T>
void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                    std::type_identity_t<TensorView<const T, 2>> weight,
                    std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                    const Runtime& runtime) {
  internal::forward(input, weight, bias, output, {}, runtime);
}
void linear_forward(TensorView<const bfloat16, 2> input, TensorView<const bfloat16, 2> weight,
                    TensorView<const bfloat16, 1> bias, TensorView<float, 2> output, const Runtime& runtime) {
  internal::forward(input, weight, bias, output, {}, runtime);
}

template <class T>
PackedLinear<T>::PackedLinear(TensorView<const T, 2> weight, const Runtime& runtime)
    : num_inputs_(weight.shape[0]), num_outputs_(weight.shape[1]) {
  using namespace internal;
  const FloatingPointScope scope;
  footprint("PackedLinear", "weight", weight);
  if (is_planning()) throw InvalidArgument("PackedLinear: created inside a plan; create it before the plan");
  if (num_outputs_ == 0) return;
  constexpr std::align_val_t kAlignment{64};
  const std::shared_ptr<T> panels(static_cast<T*>(::operator new(num_bytes(), kAlignment)),
                                  [](T* memory) { ::operator delete(memory, kAlignment); });
  pack(weight, DepthGroups(num_inputs_), panels.get(), runtime);
  panels_ = panels;
}

template <class T>
std::size_t PackedLinear<T>::num_bytes() const {
  return static_cast<std::size_t>(internal::panel_elements<T>(internal::DepthGroups(num_inputs_), num_outputs_)) *
         sizeof(T);
}

template <class T>
void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                    const std::type_identity_t<PackedLinear<T>>& weight,
                    std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                    const LinearOptions& options, const Runtime& runtime) {
  internal::forward(input, weight, bias, output, options, runtime);
}
void linear_forward(TensorView<const bfloat16, 2> input, const PackedLinear<bfloat16>& weight,
                    TensorView<const bfloat16, 1> bias, TensorView<float, 2> output, const LinearOptions& options,
                    const Runtime& runtime) {
  internal::forward(input, weight, bias, output, options, runtime);
}

REGARD_INSTANTIATE_LAYER_CLASS(class, PackedLinear);

#define REGARD_LINEAR_FORWARD(T)                                                                          \
  template void linear_forward<T>(TensorView<const T, 2>, TensorView<const T, 2>, TensorView<const T, 1>, \
                                  TensorView<T, 2>, const Runtime&);                                      \
  template void linear_forward<T>(TensorView<const T, 2>, const PackedLinear<T>&, TensorView<const T, 1>, \
                                  TensorView<T, 2>, const LinearOptions&, const Runtime&)
REGARD_LINEAR_FORWARD(float);
REGARD_LINEAR_FORWARD(double);
REGARD_LINEAR_FORWARD(bfloat16);
#undef REGARD_LINEAR_FORWARD

}  // namespace regard::inline v0
