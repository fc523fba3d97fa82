// SPDX-License-Identifier: Apache-2.0
//
// What both passes of a multi-head block share: the checks of its parameters, and views of (B, L, H·D) as heads and as
// rows.
// Read next: multi_head.cpp, multi_head_backward.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "regard/multi_head.h"
#include "runtime/parallel.h"
#include "tensor/checks.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

// The stride of two axes viewed as one, if such a stride exists.
inline std::optional<Index> joined_stride(Index outer_extent, Index outer_stride, Index inner_extent,
                                          Index inner_stride) {
  if (outer_extent == 1) return inner_stride;
  if (inner_extent == 1) return outer_stride;
  if (outer_stride == inner_extent * inner_stride) return inner_stride;
  return std::nullopt;
}

// split_heads, given the head size, which cannot be derived without heads.
template <class T>
TensorView<T, 4> split(const TensorView<T, 3>& joined, Index heads, Index head_size) {
  TensorView<T, 4> view = split_heads(joined, heads);
  view.shape[3] = head_size;
  return view;
}

// to = from, for tensors (B, H, L, D) of the same shape. Does nothing while a plan is made.
template <class T>
void copy_heads(const TensorView<const T, 4>& from, const TensorView<T, 4>& to, const Runtime& runtime) {
  const auto [batch, heads, length, head_size] = to.shape;
  constexpr double kElementProducts = 10;  // an element takes as long as this many products
  const int workers = num_workers(runtime, batch * length, kElementProducts * static_cast<double>(to.size()));
  for_each_item(runtime, workers, batch * length, [&](Index row, int) {
    const Index b = row / length, i = row % length;
    for (Index h = 0; h < heads; ++h) {
      copy_elements(head_size, from.pointer(b, h, i, 0), from.strides[3], to.pointer(b, h, i, 0), to.strides[3]);
    }
  });
}

struct MultiHeadShapes {
  Index batch, length, keys, heads, key_heads, head_size, value_head_size, width;  // width: columns of the output
};

// Columns per head of a projection. Without heads any head size is valid; 1 is the smallest.
template <class T>
Index columns_per_head(const char* operator_name, const char* name, const TensorView<const T, 2>& parameters,
                       Index heads) {
  const Index columns = parameters.shape[1];
  if (heads == 0 ? columns != 0 : columns == 0 || columns % heads != 0) {
    reject(operator_name, std::string(name) + " has shape " + shape_text(parameters.shape) +
                              "; expected its columns to be a positive multiple of the " + std::to_string(heads) +
                              " heads");
  }
  return heads == 0 ? 1 : columns / heads;
}

inline Index columns_of(const char* operator_name, Index heads, Index head_size) {
  Index columns = 0;
  if (__builtin_mul_overflow(heads, head_size, &columns)) {
    reject(operator_name,
           std::to_string(heads) + " heads of " + std::to_string(head_size) + " columns do not fit in 63 bits");
  }
  return columns;
}

template <class T>
MultiHeadShapes check_multi_head_shapes(const char* operator_name, const TensorView<const T, 3>& input,
                                        const TensorView<const T, 3>& source,
                                        const MultiHeadParameters<T>& parameters) {
  const auto not_negative = [operator_name](const char* name, const auto& view) {
    if (std::any_of(view.shape.begin(), view.shape.end(), [](Index n) { return n < 0; })) {
      reject(operator_name,
             std::string(name) + " has shape " + shape_text(view.shape) + "; extents must not be negative");
    }
  };
  not_negative("input", input);
  not_negative("memory", source);
  not_negative("w_query", parameters.w_query);
  not_negative("w_key", parameters.w_key);
  not_negative("w_value", parameters.w_value);
  not_negative("w_output", parameters.w_output);
  if (source.shape[0] != input.shape[0]) {
    reject(operator_name, "memory has batch " + std::to_string(source.shape[0]) + " in shape " +
                              shape_text(source.shape) + "; expected " + std::to_string(input.shape[0]) +
                              " as in input " + shape_text(input.shape));
  }
  if (parameters.num_heads < 0 || parameters.num_kv_heads < 0) {
    reject(operator_name, "num_heads is " + std::to_string(parameters.num_heads) + " and num_kv_heads is " +
                              std::to_string(parameters.num_kv_heads) + "; expected 0 or more");
  }
  MultiHeadShapes s{};
  s.batch = input.shape[0];
  s.length = input.shape[1];
  s.keys = source.shape[1];
  s.heads = parameters.num_heads;
  s.key_heads = parameters.num_kv_heads == 0 ? s.heads : parameters.num_kv_heads;
  s.head_size = columns_per_head(operator_name, "w_query", parameters.w_query, s.heads);
  s.value_head_size = columns_per_head(operator_name, "w_value", parameters.w_value, s.key_heads);

  const auto matrix = [operator_name](const char* name, const TensorView<const T, 2>& view, Index rows, Index columns) {
    if (view.shape != std::array{rows, columns}) {
      reject(operator_name, std::string(name) + " has shape " + shape_text(view.shape) + "; expected " +
                                shape_text(std::array{rows, columns}));
    }
  };
  matrix("w_query", parameters.w_query, input.shape[2], parameters.w_query.shape[1]);
  matrix("w_key", parameters.w_key, source.shape[2], columns_of(operator_name, s.key_heads, s.head_size));
  matrix("w_value", parameters.w_value, source.shape[2], parameters.w_value.shape[1]);
  const Index joined = columns_of(operator_name, s.heads, s.value_head_size);
  s.width = joined;
  if (!parameters.w_output.absent()) {
    matrix("w_output", parameters.w_output, joined, parameters.w_output.shape[1]);
    s.width = parameters.w_output.shape[1];
  } else if (!parameters.b_output.absent()) {
    reject(operator_name, "b_output is given without w_output; expected both or neither");
  }
  expect_shape(operator_name, "b_query", parameters.b_query, {parameters.w_query.shape[1]});
  expect_shape(operator_name, "b_key", parameters.b_key, {parameters.w_key.shape[1]});
  expect_shape(operator_name, "b_value", parameters.b_value, {parameters.w_value.shape[1]});
  expect_shape(operator_name, "b_output", parameters.b_output, {s.width});
  return s;
}

}  // namespace regard::inline v0::internal
