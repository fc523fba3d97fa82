// SPDX-License-Identifier: Apache-2.0
//
// A rank's part of an array of a call over several ranks: all batch entries and heads of the rows, or keys, that it
// holds. Elements are bytes here.
//
//     (B, heads, indices, numbers)      indices: rows first … end − 1, or keys first … end − 1, of the whole call
//
// Read next: held_array.cpp, head_exchange.h.
#pragma once

#include <cstring>

#include "regard/distributed/shards.h"
#include "regard/tensor.h"

namespace regard::inline v0::internal {

struct HeldArray {
  std::byte* data = nullptr;  // the element of index `first`
  ElementType type{};
  std::array<Index, 4> shape{};
  std::array<Index, 4> strides{};
  Index first = 0;  // index of the whole call

  Index element_bytes() const { return type_bytes(type); }
  // The size of one index of one head.
  Index row_bytes() const { return shape[3] * element_bytes(); }
  std::byte* at(Index b, Index head, Index index) const {
    return data + (b * strides[0] + head * strides[1] + (index - first) * strides[2]) * element_bytes();
  }
  // Whether the rows of a head follow each other in memory, without gaps.
  bool is_dense() const { return (shape[3] == 1 || strides[3] == 1) && (shape[2] <= 1 || strides[2] == shape[3]); }
  // Copies rows between contiguous memory and the array.
  void read(Index b, Index head, const IndexRange& indices, std::byte* to) const;
  void write(Index b, Index head, const IndexRange& indices, const std::byte* from) const;
  // write(), or write_gradient() of elements of another type.
  void put(Index b, Index head, const IndexRange& indices, const std::byte* from, ElementType from_type,
           bool accumulate) const;

  InputView<4> input() const { return {data, type, shape, strides}; }
  OutputView<4> output() const { return {data, type, shape, strides}; }
  // Without the last axis.
  InputView<3> input3() const {
    return {data, type, {shape[0], shape[1], shape[2]}, {strides[0], strides[1], strides[2]}};
  }
  OutputView<3> output3() const {
    return {data, type, {shape[0], shape[1], shape[2]}, {strides[0], strides[1], strides[2]}};
  }
};

// A view of rank 3 has one number per index. Inputs are never written.
HeldArray held(const InputView<4>& view, Index first);
HeldArray held(const InputView<3>& view, Index first);
HeldArray held(const OutputView<4>& view, Index first);
HeldArray held(const OutputView<3>& view, Index first);
// In dense memory, which may be null.
HeldArray dense(std::byte* data, ElementType type, const std::array<Index, 4>& shape, Index first);
// Writes zeros, or adds them.
void write_zeros(const OutputView<4>& output, bool accumulate);

}  // namespace regard::inline v0::internal
