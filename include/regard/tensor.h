// SPDX-License-Identifier: Apache-2.0
//
// TensorView<T, Rank>: a pointer, a shape and strides over memory that somebody else owns.
// InputView<Rank>, OutputView<Rank>: views whose element type is a value; operators take these.
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
#include <cstring>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "regard/types.h"

namespace regard::inline v0 {

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

template <class T, int Rank>
class Tensor;

namespace internal {

// The last axes of `to` become those of `from`; those before them become `first`.
template <std::size_t To, std::size_t From>
constexpr void copy_axes(const std::array<Index, From>& from, std::array<Index, To>& to, Index first) {
  for (std::size_t axis = 0; axis < To - From; ++axis) to[axis] = first;
  for (std::size_t axis = 0; axis < From; ++axis) to[To - From + axis] = from[axis];
}

// An element, which may be misaligned, converted to T.
template <class T>
T converted(ElementType type, const void* element) {
  const auto as = [&]<class E>(E x) {
    std::memcpy(static_cast<void*>(&x), element, sizeof x);
    if constexpr (std::same_as<E, bfloat16> || std::same_as<E, float16>) {
      return static_cast<T>(static_cast<float>(x));
    } else {
      return static_cast<T>(x);
    }
  };
  switch (type) {
    case ElementType::float32:
      return as(float{});
    case ElementType::float64:
      return as(double{});
    case ElementType::boolean:
    case ElementType::uint8:
      return as(std::uint8_t{});
    case ElementType::int32:
      return as(std::int32_t{});
    case ElementType::int64:
      return as(std::int64_t{});
    case ElementType::bfloat16:
      return as(bfloat16{});
    case ElementType::float16:
      return as(float16{});
    case ElementType::int8:
      return as(std::int8_t{});
    case ElementType::int16:
      return as(std::int16_t{});
    case ElementType::uint16:
      return as(std::uint16_t{});
    case ElementType::uint32:
      return as(std::uint32_t{});
    case ElementType::uint64:
      return as(std::uint64_t{});
  }
  return T{};
}

}  // namespace internal

// A view to read whose element type is a value, not a template parameter. Every TensorView, Tensor and, of rank 1,
// every contiguous range (std::vector, std::span, std::array) becomes one. A view of lower rank is one whose first axes
// have extent 1: (L, D) and (H, L, D) are (1, 1, L, D) and (1, H, L, D). Nothing is copied, so that what it views must
// outlive it.
template <int Rank>
struct InputView {
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  const void* data = nullptr;
  ElementType type = ElementType::float32;
  Shape shape{};
  Shape strides{};  // in elements, not bytes

  constexpr InputView() = default;
  template <class T, int R>
    requires(R <= Rank && Element<std::remove_const_t<T>>)
  constexpr InputView(const TensorView<T, R>& view)  // NOLINT(google-explicit-constructor)
      : data(view.data), type(kElementType<std::remove_const_t<T>>) {
    if (view.absent()) return;
    internal::copy_axes(view.shape, shape, 1);
    internal::copy_axes(view.strides, strides, 0);
  }
  template <class T, int R>
    requires(R <= Rank)
  InputView(const Tensor<T, R>& tensor)  // NOLINT(google-explicit-constructor)
      : InputView(tensor.view()) {}
  template <std::ranges::contiguous_range Range>
    requires(Rank == 1 && std::ranges::sized_range<Range> && Element<std::ranges::range_value_t<Range>>)
  constexpr InputView(const Range& range)  // NOLINT(google-explicit-constructor)
      : data(std::ranges::data(range)),
        type(kElementType<std::ranges::range_value_t<Range>>),
        shape{static_cast<Index>(std::ranges::size(range))},
        strides{1} {}
  template <Element T>
  constexpr InputView(const T* data_, const Shape& shape_) : InputView(data_, shape_, dense_strides(shape_)) {}
  template <Element T>
  constexpr InputView(const T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(kElementType<T>), shape(shape_), strides(strides_) {}
  constexpr InputView(const void* data_, ElementType type_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(type_), shape(shape_), strides(strides_) {}

  constexpr bool absent() const {
    if (data != nullptr) return false;
    for (Index extent : shape) {  // not shape == Shape{}, which is a call of memcmp
      if (extent != 0) return false;
    }
    return true;
  }
  constexpr bool empty() const {
    for (Index extent : shape) {
      if (extent == 0) return true;
    }
    return false;
  }
  // Where element (i, j, …) is, as in TensorView.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  const void* pointer(I... index) const {
    Index offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<Index>(index) * strides[axis++]), ...);
    return static_cast<const std::byte*>(data) + offset * type_bytes(type);
  }
  // Element (i, j, …) converted to T, whatever its type. For a few elements: it looks at the type each time.
  template <class T, class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  T at(I... index) const {
    return internal::converted<T>(type, pointer(index...));
  }
};

// The same, to write.
template <int Rank>
struct OutputView {
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  void* data = nullptr;
  ElementType type = ElementType::float32;
  Shape shape{};
  Shape strides{};

  constexpr OutputView() = default;
  template <class T, int R>
    requires(R <= Rank && Element<T>)
  constexpr OutputView(const TensorView<T, R>& view)  // NOLINT(google-explicit-constructor)
      : data(view.data), type(kElementType<T>) {
    if (view.absent()) return;
    internal::copy_axes(view.shape, shape, 1);
    internal::copy_axes(view.strides, strides, 0);
  }
  template <class T, int R>
    requires(R <= Rank)
  OutputView(Tensor<T, R>& tensor)  // NOLINT(google-explicit-constructor)
      : OutputView(tensor.view()) {}
  template <Element T>
  constexpr OutputView(T* data_, const Shape& shape_) : OutputView(TensorView<T, Rank>(data_, shape_)) {}
  template <Element T>
  constexpr OutputView(T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(kElementType<T>), shape(shape_), strides(strides_) {}
  constexpr OutputView(void* data_, ElementType type_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(type_), shape(shape_), strides(strides_) {}

  constexpr operator InputView<Rank>() const { return {data, type, shape, strides}; }
  constexpr Index size() const {
    Index n = 1;
    for (Index extent : shape) n *= extent;
    return n;
  }
  template <class T, class... I>
  T at(I... index) const {
    return InputView<Rank>(*this).template at<T>(index...);
  }
  constexpr bool absent() const { return InputView<Rank>(*this).absent(); }
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  void* pointer(I... index) const {
    return const_cast<void*>(InputView<Rank>(*this).pointer(index...));
  }
};

template <class T, int Rank>
class Tensor {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory: use std::uint8_t for masks");

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

// ---- Views of views. Nothing is copied.

// The axes a and b exchanged: transposed(key, 2, 3) is keyᵀ of every head. View: any of the three above.
template <class View>
constexpr View transposed(View view, std::size_t a = std::tuple_size_v<typename View::Shape> - 2,
                          std::size_t b = std::tuple_size_v<typename View::Shape> - 1) {
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.strides[a], view.strides[b]);
  return view;
}

// Elements begin … end − 1 of an axis, 0 ≤ begin ≤ end ≤ its extent.
template <class View>
constexpr View sliced(View view, std::size_t axis, Index begin, Index end) {
  if (view.data != nullptr && begin < end) {
    if constexpr (requires { view.type; }) {
      using Byte =
          std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const std::byte, std::byte>;
      view.data = static_cast<Byte*>(view.data) + begin * view.strides[axis] * type_bytes(view.type);
    } else {
      view.data += begin * view.strides[axis];
    }
  }
  view.shape[axis] = end - begin;
  return view;
}

// (B, L, H·D) as (B, H, L, D): head h has columns h·D … (h + 1)·D − 1. num_heads must divide the last extent.
template <class T>
constexpr TensorView<T, 4> split_heads(const TensorView<T, 3>& view, Index num_heads) {
  const auto [batch, length, width] = view.shape;
  const Index size = num_heads > 0 ? width / num_heads : 0;
  return {view.data,
          {batch, num_heads, length, size},
          {view.strides[0], size * view.strides[2], view.strides[1], view.strides[2]}};
}

// The reverse: (B, H, L, D) as (B, L, H·D), where the heads of a token are contiguous or D or H is 1. Absent where they
// are not, as in a tensor that is stored as (B, H, L, D): then no view can join them.
template <class T>
constexpr TensorView<T, 3> join_heads(const TensorView<T, 4>& view) {
  const auto [batch, heads, length, size] = view.shape;
  if (heads > 1 && size > 1 && view.strides[1] != size * view.strides[3]) return {};
  const Index step = size > 1 ? view.strides[3] : heads > 1 ? view.strides[1] : 1;
  return {view.data, {batch, length, heads * size}, {view.strides[0], view.strides[2], step}};
}

}  // namespace regard::inline v0
