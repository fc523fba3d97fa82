// SPDX-License-Identifier: Apache-2.0
//
// TensorView<T, Rank>: a pointer, a shape and strides over memory that somebody else owns.
// InputView<T, Rank>: a view of any type of numbers that are computed with as T; every such TensorView becomes one.
// Tensor<T, Rank>: the same with memory of its own, dense and row-major.
//
//     element (i, j, …) lives at data[i * strides[0] + j * strides[1] + …]
//
// Strides count elements, may be zero (broadcast), negative, or leave gaps: a transposed matrix, one head
// of a packed (B, L, H, D) array and a mask broadcast over heads are all views, and none needs a copy.
// Read next: attention.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "regard/types.h"

namespace regard {
inline namespace v0 {

using Index = std::int64_t;

// The strides of a dense row-major array of this shape: the last axis is contiguous.
template <std::size_t Rank>
constexpr std::array<Index, Rank> dense_strides(const std::array<Index, Rank>& shape) {
  std::array<Index, Rank> strides{};
  Index step = 1;
  for (std::size_t axis = Rank; axis-- > 0;) {
    strides[axis] = step;
    step = static_cast<Index>(static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(shape[axis]));
  }
  return strides;
}

// A default-constructed view is absent: operators treat it as an argument that was not given.
template <class T, int Rank>
struct TensorView {
  static_assert(Rank >= 1);
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  T* data = nullptr;
  Shape shape{};
  Shape strides{};  // in elements, not bytes

  constexpr TensorView() = default;
  constexpr TensorView(T* data_, const Shape& shape_) : data(data_), shape(shape_), strides(dense_strides(shape_)) {}
  constexpr TensorView(T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), shape(shape_), strides(strides_) {}
  // A view of T reads as a view of const T.
  template <class U>
    requires(std::is_same_v<T, const U> && !std::is_same_v<T, U>)
  constexpr TensorView(const TensorView<U, Rank>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  constexpr bool absent() const {
    if (data != nullptr) return false;
    for (Index extent : shape) {  // not shape == Shape{}, which is a call of memcmp
      if (extent != 0) return false;
    }
    return true;
  }
  constexpr Index size() const {
    Index n = 1;
    for (Index extent : shape) n *= extent;
    return n;
  }
  // Where element (i, j, …) lies. Memory may be misaligned for T: then read it through memcpy.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  constexpr T* pointer(I... index) const {
    Index offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<Index>(index) * strides[axis++]), ...);
    return data + offset;
  }
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  constexpr T& operator()(I... index) const {
    return *pointer(index...);
  }
};

// Numbers to read whose type is a value: float, bfloat16 or float16 where T is float, double where T is double.
// Operators take their inputs so: whatever the type, it is widened to T exactly where it is read.
template <class T, int Rank>
struct InputView {
  using Shape = typename TensorView<const T, Rank>::Shape;

  const void* data = nullptr;
  ElementType type = kElementType<T>;
  Shape shape{};
  Shape strides{};  // in elements, not bytes

  constexpr InputView() = default;
  template <class U>
    requires(Number<std::remove_const_t<U>> && std::same_as<ComputeType<std::remove_const_t<U>>, T>)
  constexpr InputView(const TensorView<U, Rank>& view)  // NOLINT(google-explicit-constructor)
      : data(view.data), type(kElementType<std::remove_const_t<U>>), shape(view.shape), strides(view.strides) {}
  constexpr InputView(const T* data_, const Shape& shape_) : InputView(TensorView<const T, Rank>(data_, shape_)) {}
  constexpr InputView(const T* data_, const Shape& shape_, const Shape& strides_)
      : InputView(TensorView<const T, Rank>(data_, shape_, strides_)) {}
  // A type known only at run time, as in c_api.h. Operators throw std::invalid_argument for any but the above.
  constexpr InputView(const void* data_, ElementType type_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(type_), shape(shape_), strides(strides_) {}

  constexpr bool absent() const {
    if (data != nullptr) return false;
    for (Index extent : shape) {  // not shape == Shape{}, which is a call of memcmp
      if (extent != 0) return false;
    }
    return true;
  }
  // Where element (i, j, …) lies, as in TensorView.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  const void* pointer(I... index) const {
    Index offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<Index>(index) * strides[axis++]), ...);
    return static_cast<const std::byte*>(data) + offset * type_bytes(type);
  }
};

template <class T, int Rank>
class Tensor {
 public:
  using Shape = typename TensorView<T, Rank>::Shape;

  Tensor() = default;
  // Zero-filled. Throws std::bad_alloc or std::length_error when the memory cannot be had.
  explicit Tensor(const Shape& shape)
      : shape_(shape), elements_(static_cast<std::size_t>(TensorView<T, Rank>(nullptr, shape).size())) {}

  const Shape& shape() const { return shape_; }
  TensorView<T, Rank> view() { return {elements_.data(), shape_}; }
  TensorView<const T, Rank> view() const { return {elements_.data(), shape_}; }
  T* data() { return elements_.data(); }
  const T* data() const { return elements_.data(); }
  Index size() const { return static_cast<Index>(elements_.size()); }
  template <class... I>
  T& operator()(I... index) {
    return view()(index...);
  }
  template <class... I>
  const T& operator()(I... index) const {
    return view()(index...);
  }

 private:
  Shape shape_{};
  std::vector<T> elements_;
};

}  // namespace v0
}  // namespace regard
