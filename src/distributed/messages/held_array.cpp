// SPDX-License-Identifier: Apache-2.0
//
// Copies rows between contiguous memory and strided arrays. Read next: held_array.h.
#include "held_array.h"

#include <cstring>

#include "regard/attention_backward_continued.h"

namespace regard::inline v0::internal {
namespace {

template <bool to_array>
void copy_rows(const HeldArray& array, Index b, Index head, const IndexRange& indices, std::byte* memory) {
  const Index row_bytes = array.row_bytes(), element_bytes = array.element_bytes();
  if (row_bytes == 0) return;
  const auto copy = [](std::byte* in_array, std::byte* in_memory, Index bytes) {
    if constexpr (to_array) {
      std::memcpy(in_array, in_memory, static_cast<std::size_t>(bytes));
    } else {
      std::memcpy(in_memory, in_array, static_cast<std::size_t>(bytes));
    }
  };
  if (array.is_dense()) {
    if (indices.size() > 0) copy(array.at(b, head, indices.first), memory, indices.size() * row_bytes);
    return;
  }
  for (Index i = indices.first; i < indices.end; ++i, memory += row_bytes) {
    std::byte* const row = array.at(b, head, i);
    if (array.strides[3] == 1 || array.shape[3] == 1) {
      copy(row, memory, row_bytes);
      continue;
    }
    for (Index n = 0; n < array.shape[3]; ++n)
      copy(row + n * array.strides[3] * element_bytes, memory + n * element_bytes, element_bytes);
  }
}

template <class View>
HeldArray held_view(const View& view, Index first) {
  HeldArray array;
  // Inputs are only read.
  array.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(view.data)));
  array.type = view.type;
  array.first = first;
  array.shape.fill(1);
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    array.shape[axis] = view.shape[axis];
    array.strides[axis] = view.strides[axis];
  }
  return array;
}

}  // namespace

void HeldArray::read(Index b, Index head, const IndexRange& indices, std::byte* to) const {
  copy_rows<false>(*this, b, head, indices, to);
}
void HeldArray::write(Index b, Index head, const IndexRange& indices, const std::byte* from) const {
  copy_rows<true>(*this, b, head, indices, const_cast<std::byte*>(from));
}

void HeldArray::put(Index b, Index head, const IndexRange& indices, const std::byte* from, ElementType from_type,
                    bool accumulate) const {
  if (from_type == type && !accumulate) return write(b, head, indices, from);
  const std::array<Index, 4> one_head{1, 1, indices.size(), shape[3]};
  write_gradient({from, from_type, one_head, dense_strides(one_head)},
                 {at(b, head, indices.first), type, one_head, strides}, accumulate);
}

HeldArray held(const InputView<4>& view, Index first) { return held_view(view, first); }
HeldArray held(const InputView<3>& view, Index first) { return held_view(view, first); }
HeldArray held(const OutputView<4>& view, Index first) { return held_view(view, first); }
HeldArray held(const OutputView<3>& view, Index first) { return held_view(view, first); }
HeldArray dense(std::byte* data, ElementType type, const std::array<Index, 4>& shape, Index first) {
  return {data, type, shape, dense_strides(shape), first};
}

void write_zeros(const OutputView<4>& output, bool accumulate) {
  static const double kZero = 0;
  if (!output.absent() && output.size() > 0)
    write_gradient({&kZero, ElementType::float64, output.shape, {}}, output, accumulate);
}

}  // namespace regard::inline v0::internal
