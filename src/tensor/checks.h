// SPDX-License-Identifier: Apache-2.0
//
// The checks of arguments that all operators share: shapes, element types, memory and overlap. Each throws
// std::invalid_argument, "operator: argument is X; expected Y", before any work.
// Read next: attention/arguments.h.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// "(2, 3, 4)"
std::string shape_text(std::span<const Index> shape);
// "1 entry", "2 entries".
std::string entries_text(Index count);

[[noreturn]] void reject(const std::string& operator_name, const std::string& what);

// The bytes that a view touches, and their strides, for the overlap checks.
struct Footprint {
  const char* name;
  std::uintptr_t begin;
  std::uintptr_t end;  // one past the last byte
  // In bytes, non-negative, without axes of extent 1, largest first; and the extents of these axes.
  std::span<const Index> strides() const { return std::span(axis_strides).first(num_axes); }
  std::span<const Index> extents() const { return std::span(axis_extents).first(num_axes); }

  static constexpr int kMaxAxes = 5;
  std::size_t num_axes;
  std::array<Index, kMaxAxes> axis_strides, axis_extents;
};

// The footprints of a call's inputs, or of its outputs.
class Footprints {
 public:
  void push_back(const Footprint& footprint) {
    assert(count_ < kMaxFootprints);
    list_[count_++] = footprint;
  }
  operator std::span<const Footprint>() const { return std::span(list_).first(count_); }

 private:
  static constexpr std::size_t kMaxFootprints = 32;
  std::array<Footprint, kMaxFootprints> list_;
  std::size_t count_ = 0;
};

// Throws std::invalid_argument if the view's size overflows, or if its data is null and its size is not zero.
Footprint footprint(const char* operator_name, const char* name, const void* data, std::span<const Index> shape,
                    std::span<const Index> strides, Index element_bytes);
template <class T, int Rank>
Footprint footprint(const char* operator_name, const char* name, const TensorView<T, Rank>& view) {
  static_assert(Rank <= Footprint::kMaxAxes);
  return footprint(operator_name, name, view.data, view.shape, view.strides, sizeof(T));
}
// "float32"; for an unknown value, its number.
std::string element_type_text(ElementType type);

// "float64", or "float32, bfloat16 or float16": the types that are computed as T.
template <class T>
constexpr const char* computed_types() {
  return std::is_same_v<T, double> ? "float64" : "float32, bfloat16 or float16";
}
template <class T>
constexpr bool is_computed_as(ElementType type) {
  using enum ElementType;
  return std::is_same_v<T, double> ? type == float64 : type == float32 || type == bfloat16 || type == float16;
}

// Throws std::invalid_argument unless the type is one of these; `expected` names them.
void expect_type(const char* operator_name, const char* name, ElementType type,
                 std::initializer_list<ElementType> allowed, const char* expected);
// Throws std::invalid_argument unless the type is int32 or int64.
void expect_integers(const char* operator_name, const char* name, ElementType type);
// The allowed types of an argument that has type `own` or that of query: "float32, or bfloat16 as query".
std::string own_or_query(ElementType own, ElementType query);
// Throws std::invalid_argument unless elements of this type convert to T exactly.
template <class T>
void expect_type(const char* operator_name, const char* name, ElementType type) {
  if (is_computed_as<T>(type)) return;
  reject(operator_name,
         std::string(name) + " has type " + element_type_text(type) + "; expected " + computed_types<T>());
}

template <int Rank>
Footprint footprint(const char* operator_name, const char* name, const InputView<Rank>& view) {
  static_assert(Rank <= Footprint::kMaxAxes);
  return footprint(operator_name, name, view.data, view.shape, view.strides, type_bytes(view.type));
}
template <int Rank>
Footprint footprint(const char* operator_name, const char* name, const OutputView<Rank>& view) {
  return footprint(operator_name, name, InputView<Rank>(view));
}
// Operators compute the footprint of every input before they read any, so the element type is checked for all of them.
template <class T, int Rank>
Footprint number_footprint(const char* operator_name, const char* name, const InputView<Rank>& view) {
  if (!view.absent()) expect_type<T>(operator_name, name, view.type);
  return footprint(operator_name, name, view);
}

// The view with its type as a template parameter. Throws std::invalid_argument unless it is absent or has that type.
template <class T, int Rank>
TensorView<const T, Rank> typed(const char* operator_name, const char* name, const InputView<Rank>& view) {
  if (!view.absent()) expect_type(operator_name, name, view.type, {kElementType<T>}, type_name(kElementType<T>));
  return {static_cast<const T*>(view.data), view.shape, view.strides};
}
template <class T, int Rank>
TensorView<T, Rank> typed(const char* operator_name, const char* name, const OutputView<Rank>& view) {
  if (!view.absent()) expect_type(operator_name, name, view.type, {kElementType<T>}, type_name(kElementType<T>));
  return {static_cast<T*>(view.data), view.shape, view.strides};
}

// True if each element has the same address in both views: an output in place of an input.
template <class T, class U, int Rank>
bool is_same_view(const TensorView<T, Rank>& a, const TensorView<U, Rank>& b) {
  if (a.data != b.data || a.shape != b.shape) return false;
  for (std::size_t axis = 0; axis < a.shape.size(); ++axis) {
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

// Throws std::invalid_argument if an output overlaps itself, an input or another output.
void check_overlap(const char* operator_name, std::span<const Footprint> inputs, std::span<const Footprint> outputs);

// Throws std::invalid_argument unless the view is absent or has exactly this shape.
template <class View>
void expect_shape(const char* operator_name, const char* name, const View& view, const typename View::Shape& expected) {
  if (view.absent() || view.shape == expected) return;
  reject(operator_name,
         std::string(name) + " has shape " + shape_text(view.shape) + "; expected " + shape_text(expected));
}

}  // namespace regard::inline v0::internal
