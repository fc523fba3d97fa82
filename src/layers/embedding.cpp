// SPDX-License-Identifier: Apache-2.0
//
// embedding_forward: rows of a table, copied in blocks. embedding_backward: the rows of grad_output are sorted by
// index, so that each row of the table is computed by one task, in the order of the rows.
//
//   indices (R) ── sorted: (index, row) ── blocks of entries ── groups of each index in order ──▶ added to grad_table
//
// Read next: include/regard/embedding.h.
#include "regard/embedding.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

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

constexpr const char* kEmbeddingForward = "embedding_forward";
constexpr const char* kEmbeddingBackward = "embedding_backward";
constexpr Index kEmbeddingBlockElements = 8192;  // of a task, at least
constexpr Index kMaxPieceColumns = 512;          // of a task of the backward pass, and of buffers

void check_indices(const char* operator_name, const TensorView<const Index, 1>& indices, Index table_rows) {
  const auto is_row = [table_rows](Index index) { return index >= 0 && index < table_rows; };
  bool valid = true;
  for (Index r = 0; r < indices.shape[0]; ++r) valid &= is_row(read_element(indices.pointer(r)));
  if (valid) return;
  for (Index r = 0; r < indices.shape[0]; ++r) {
    const Index index = read_element(indices.pointer(r));
    if (is_row(index)) continue;
    reject(operator_name, "indices[" + std::to_string(r) + "] is " + std::to_string(index) +
                              (table_rows > 0 ? "; expected 0 to " + std::to_string(table_rows - 1)
                                              : "; expected none, because the table has no rows"));
  }
}

void expect_index_per_row(const char* operator_name, const TensorView<const Index, 1>& indices, const char* rows_name,
                          const std::array<Index, 2>& rows) {
  if (indices.shape[0] == rows[0]) return;
  reject(operator_name, "indices has shape " + shape_text(indices.shape) + "; expected " +
                            shape_text(std::array{rows[0]}) + " for " + rows_name + " " + shape_text(rows));
}

// to[e] = to[e] + from[e], rounded once.
template <class T>
void add_row(const TensorView<const T, 2>& from, Index from_row, const TensorView<T, 2>& to, Index to_row) {
  using Compute = ComputeType<T>;
  const auto add = kernels::active().of<Compute>().layers->add;
  const Index width = from.shape[1];
  if constexpr (std::is_same_v<T, Compute>) {
    if (has_kernel_rows<T>(from) && has_kernel_rows<T>(to))
      return add(from.pointer(from_row, 0), to.pointer(to_row, 0), width);
  }
  Compute x[kMaxPieceColumns];
  for (Index first = 0; first < width; first += kMaxPieceColumns) {
    const Index count = std::min(kMaxPieceColumns, width - first);
    read_numbers(kElementType<T>, count, from.pointer(from_row, first), from.strides[1], x);
    add_numbers(kElementType<T>, count, x, to.pointer(to_row, first), to.strides[1]);
  }
}

// Copies rows first … end − 1 of the output.
template <class T>
void copy_rows(const TensorView<const T, 2>& table, const TensorView<const Index, 1>& indices, Index first, Index end,
               const TensorView<T, 2>& output) {
  const Index width = output.shape[1];
  const auto from = [&](Index r) { return table.pointer(read_element(indices.pointer(r)), 0); };
  if (table.strides[1] != 1 || output.strides[1] != 1) {
    for (Index r = first; r < end; ++r)
      copy_elements(width, from(r), table.strides[1], output.pointer(r, 0), output.strides[1]);
    return;
  }
  const auto copy = kernels::active().of<ComputeType<T>>().layers->copy_rows;
  constexpr Index kBytes{sizeof(T)}, kMaxRows = 64;  // of a call
  for (; first < end; first += kMaxRows) {
    const Index count = std::min(kMaxRows, end - first);
    const unsigned char* rows[kMaxRows];
    for (Index r = 0; r < count; ++r) rows[r] = reinterpret_cast<const unsigned char*>(from(first + r));
    copy({.num_rows = count,
          .num_bytes = width * kBytes,
          .from = rows,
          .to = reinterpret_cast<unsigned char*>(output.pointer(first, 0)),
          .to_stride = output.strides[0] * kBytes});
  }
}

template <class T>
void clear(const TensorView<T, 2>& to, const Runtime& runtime) {
  const auto [rows, columns] = to.shape;
  const Index block_rows = std::max<Index>(1, 8 * kEmbeddingBlockElements / columns);
  const Index blocks = (rows + block_rows - 1) / block_rows;
  constexpr double kElementProducts = 5;
  const int workers = num_workers(runtime, blocks, kElementProducts * static_cast<double>(to.size()));
  for_each_item(runtime, workers, blocks, [&](Index block, int) {
    for (Index r = block * block_rows; r < std::min(rows, (block + 1) * block_rows); ++r) {
      if (to.strides[1] == 1) {
        std::memset(static_cast<void*>(to.pointer(r, 0)), 0, static_cast<std::size_t>(columns) * sizeof(T));
      } else {
        constexpr T kZero{};
        for (Index c = 0; c < columns; ++c) copy_elements(1, &kZero, 1, to.pointer(r, c), 1);
      }
    }
  });
}

// A row of grad_output and the row of the table that it is added to.
struct Entry {
  Index index, row;
};

// The entries sorted by index, then by row: a bytewise radix sort, which is stable. `other` has the same size. Returns
// whichever of the two arrays holds the result.
const Entry* sort_by_index(const TensorView<const Index, 1>& indices, Index table_rows, Entry* entries, Entry* other) {
  const Index rows = indices.shape[0];
  for (Index r = 0; r < rows; ++r) entries[r] = {read_element(indices.pointer(r)), r};
  for (int shift = 0; shift < 63 && (table_rows - 1) >> shift != 0; shift += 8) {
    const auto digit = [shift](const Entry& entry) { return static_cast<std::size_t>(entry.index >> shift & 0xff); };
    std::array<Index, 257> first{};  // of each digit in the sorted array
    for (Index r = 0; r < rows; ++r) ++first[digit(entries[r]) + 1];
    for (std::size_t d = 1; d < first.size(); ++d) first[d] += first[d - 1];
    for (Index r = 0; r < rows; ++r) other[first[digit(entries[r])]++] = entries[r];
    std::swap(entries, other);
  }
  return entries;
}

// Adds to pieces of rows of grad_table.
template <class T>
class TableGradient {
 public:
  TableGradient(const TensorView<const T, 2>& grad_output, const EmbeddingGradients<T>& gradients)
      : from_(grad_output),
        to_(gradients.grad_table),
        group_(gradients.rows_per_group > 0 ? gradients.rows_per_group : std::max<Index>(1, grad_output.shape[0])) {}

  // Adds the rows of [begin, end), which have one index and are in order.
  void add(const Entry* begin, const Entry* end, Index first_column, Index columns) const {
    Compute buffer[kMaxPieceColumns], of_group[kMaxPieceColumns];
    Compute* total = buffer;
    T* const target = to_.pointer(begin->index, first_column);
    const bool in_table = has_kernel_rows<T>(to_);
    if constexpr (std::is_same_v<T, Compute>) {
      if (in_table) total = target;
    }
    if (!in_table) read_numbers(kElementType<T>, columns, target, to_.strides[1], total);
    while (begin != end) {
      const Index group = begin->row / group_;
      const Entry* group_end = begin + 1;
      while (group_end != end && group_end->row / group_ == group) ++group_end;
      kernels_.add(sum(begin, group_end, first_column, columns, of_group), total, columns);
      begin = group_end;
    }
    if (!in_table) write_numbers(kElementType<T>, columns, total, target, to_.strides[1]);
  }

 private:
  using Compute = ComputeType<T>;

  const Compute* row(Index r, Index first_column, Index columns, Compute* buffer) const {
    const T* const x = from_.pointer(r, first_column);
    if constexpr (std::is_same_v<T, Compute>) {
      if (has_kernel_rows<T>(from_)) return x;
    }
    read_numbers(kElementType<T>, columns, x, from_.strides[1], buffer);
    return buffer;
  }

  // The sum of the rows of a group, rounded once: in buffer, or the row itself if there is only one.
  const Compute* sum(const Entry* begin, const Entry* end, Index first_column, Index columns, Compute* buffer) const {
    if (end - begin == 1) return row(begin->row, first_column, columns, buffer);
    double sums[kMaxPieceColumns];
    std::fill_n(sums, columns, 0.0);
    for (; begin != end; ++begin) kernels_.add_wide(row(begin->row, first_column, columns, buffer), sums, columns);
    kernels_.round(sums, buffer, columns);
    return buffer;
  }

  const kernels::LayerKernels<Compute>& kernels_ = *kernels::active().of<Compute>().layers;
  TensorView<const T, 2> from_;
  TensorView<T, 2> to_;
  Index group_;
};

template <class T>
void add_gradient(const TensorView<const Index, 1>& indices, const TensorView<const T, 2>& grad_output,
                  const EmbeddingGradients<T>& gradients, const Runtime& runtime) {
  const TensorView<T, 2>& to = gradients.grad_table;
  const auto [rows, width] = grad_output.shape;
  const Index pieces = (width + kMaxPieceColumns - 1) / kMaxPieceColumns;
  const Index block_entries = std::max<Index>(1, kEmbeddingBlockElements / std::min(width, kMaxPieceColumns));
  const Index items = (rows + block_entries - 1) / block_entries * pieces;
  const double summed = static_cast<double>(grad_output.size());
  const double cleared = gradients.accumulate ? 0 : static_cast<double>(to.size());
  constexpr double kElementProducts = 20;  // an element takes as long as this many products
  const int workers = num_workers(runtime, items, kElementProducts * summed);
  const Workspace<Entry> memory(runtime, 2 * rows);
  if (is_planning()) {
    plan_operator({.name = kEmbeddingBackward,
                   .strategy = std::to_string(items) + " blocks of rows",
                   .operations = summed,
                   .bytes = (3 * summed + cleared) * sizeof(T)});
  }
  const Entry* const entries =
      is_planning() ? memory.data() : sort_by_index(indices, to.shape[0], memory.data(), memory.data() + rows);
  if (!gradients.accumulate) clear(to, runtime);
  const TableGradient<T> gradient(grad_output, gradients);
  for_each_item(runtime, workers, items, [&](Index item, int) {
    const Index first_column = item % pieces * kMaxPieceColumns;
    const Index columns = std::min(kMaxPieceColumns, width - first_column);
    const Entry* const end = entries + rows;
    const Entry* const first = entries + item / pieces * block_entries;
    const Entry* const last = entries + std::min(rows, (item / pieces + 1) * block_entries);
    // The indices whose first entry is in this block.
    const Entry* entry = first;
    if (first != entries) {
      while (entry != last && entry->index == entry[-1].index) ++entry;
    }
    while (entry < last) {
      const Entry* const begin = entry;
      while (entry != end && entry->index == begin->index) ++entry;
      gradient.add(begin, entry, first_column, columns);
    }
  });
}

}  // namespace
}  // namespace internal

template <class T>
void embedding_forward(std::type_identity_t<TensorView<const T, 2>> table, TensorView<const Index, 1> indices,
                       TensorView<T, 2> output, const EmbeddingOptions& options, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const std::array<Footprint, 2> inputs{footprint(kEmbeddingForward, "table", table),
                                        footprint(kEmbeddingForward, "indices", indices)};
  const std::array<Footprint, 1> written{footprint(kEmbeddingForward, "output", output)};
  const auto [rows, width] = output.shape;
  expect_index_per_row(kEmbeddingForward, indices, "output", output.shape);
  if (table.shape[1] != width) {
    reject(kEmbeddingForward, "output has shape " + shape_text(output.shape) + "; expected " +
                                  shape_text(std::array{rows, table.shape[1]}) + " for table " +
                                  shape_text(table.shape));
  }
  check_overlap(kEmbeddingForward, inputs, written);
  if (!is_planning()) check_indices(kEmbeddingForward, indices, table.shape[0]);
  if (rows == 0 || width == 0) return;

  const Index block_rows = std::max<Index>(1, kEmbeddingBlockElements / width);
  const Index blocks = (rows + block_rows - 1) / block_rows;
  const double elements = static_cast<double>(output.size());
  constexpr double kElementProducts = 8;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks, kElementProducts * elements);
  if (is_planning()) {
    plan_operator({.name = kEmbeddingForward,
                   .strategy = std::to_string(blocks) + " blocks of rows",
                   .operations = options.accumulate ? elements : 0,
                   .bytes = (options.accumulate ? 3 : 2) * elements * sizeof(T)});
  }
  for_each_item(runtime, workers, blocks, [&](Index block, int) {
    const Index first = block * block_rows, end = std::min(rows, first + block_rows);
    if (!options.accumulate) return copy_rows<T>(table, indices, first, end, output);
    for (Index r = first; r < end; ++r) add_row<T>(table, read_element(indices.pointer(r)), output, r);
  });
}

template <class T>
void embedding_backward(TensorView<const Index, 1> indices, std::type_identity_t<TensorView<const T, 2>> grad_output,
                        const std::type_identity_t<EmbeddingGradients<T>>& gradients, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const TensorView<T, 2>& to = gradients.grad_table;
  const std::array<Footprint, 2> inputs{footprint(kEmbeddingBackward, "indices", indices),
                                        footprint(kEmbeddingBackward, "grad_output", grad_output)};
  const std::array<Footprint, 1> written{footprint(kEmbeddingBackward, "grad_table", to)};
  const auto [table_rows, width] = to.shape;
  expect_index_per_row(kEmbeddingBackward, indices, "grad_output", grad_output.shape);
  if (grad_output.shape[1] != width) {
    reject(kEmbeddingBackward, "grad_table has shape " + shape_text(to.shape) + "; expected " +
                                   shape_text(std::array{table_rows, grad_output.shape[1]}) + " for grad_output " +
                                   shape_text(grad_output.shape));
  }
  if (gradients.rows_per_group < 0) {
    reject(kEmbeddingBackward,
           "rows_per_group is " + std::to_string(gradients.rows_per_group) + "; expected at least 0");
  }
  check_overlap(kEmbeddingBackward, inputs, written);
  if (!is_planning()) check_indices(kEmbeddingBackward, indices, table_rows);
  if (table_rows == 0 || width == 0) return;

  add_gradient<T>(indices, grad_output, gradients, runtime);
}

REGARD_INSTANTIATE_LAYER(embedding_forward);
REGARD_INSTANTIATE_LAYER(embedding_backward);

}  // namespace regard::inline v0
