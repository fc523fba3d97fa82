// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strided arrays: views of memory that the caller owns, and a dense tensor that owns its memory.
///
/// - `TensorView<T, Rank>`: a pointer, a shape and strides.
/// - `InputView<Rank>` and `OutputView<Rank>`: views whose element type is a run-time value. Operators take these.
/// - `Tensor<T, Rank>`: a dense row-major array that owns its memory.
///
/// @code{.unparsed}
/// element (i, j, …) is at data[i · strides[0] + j · strides[1] + …]
/// @endcode
///
/// Strides count elements. They may be zero (broadcast) or negative, and they may leave gaps. A transposed matrix, one
/// head of a packed (B, L, H, D) array and a mask that broadcasts over heads are all views, without a copy.
///
/// Read next: attention.h.
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

/// The type of extents, strides, counts and positions.
using Index = std::int64_t;

/// Returns the strides of a dense row-major array, whose last axis is contiguous.
///
/// @tparam Rank  The number of axes.
/// @param shape  The extents of the array.
/// @return The strides in elements: the last one is 1, and every other one is the product of the extents after it. A
///         product that overflows wraps around; operators reject views of such a size.
///
/// @par Example
/// @code{.cpp}
/// dense_strides(std::array<Index, 3>{2, 3, 4});   // {12, 4, 1}
/// @endcode
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

template <class T, int Rank>
class Tensor;

/// A view of memory that the caller owns, with a static element type.
///
/// Copying a view copies no elements, and the memory must outlive the view. A default-constructed view is absent:
/// operators treat it as an argument that was not given.
///
/// @tparam T     The element type; const for a read-only view.
/// @tparam Rank  The number of axes, at least 1.
///
/// @par Example
/// @code{.cpp}
/// std::vector<float> rows(2 * 3);
/// const TensorView<float, 2> matrix(rows.data(), {2, 3});
/// matrix(1, 2) = 5.0f;                            // rows[5]
/// @endcode
template <class T, int Rank>
struct TensorView {
  static_assert(Rank >= 1);
  /// One Index for each axis.
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  T* data = nullptr;  ///< The address of element (0, 0, …).
  Shape shape{};      ///< The extent of each axis, at least 0.
  Shape strides{};    ///< The step along each axis, in elements, not bytes.

  /// Creates an absent view.
  constexpr TensorView() = default;
  /// Creates a view of a dense row-major array.
  ///
  /// @param data_   The address of the first element.
  /// @param shape_  The extents.
  constexpr TensorView(T* data_, const Shape& shape_) : data(data_), shape(shape_), strides(dense_strides(shape_)) {}
  /// Creates a view with any strides.
  ///
  /// @param data_     The address of element (0, 0, …).
  /// @param shape_    The extents.
  /// @param strides_  The strides in elements: zero, negative or positive.
  constexpr TensorView(T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), shape(shape_), strides(strides_) {}
  /// Converts a view of U to a view of const U.
  ///
  /// @tparam U     The element type without const; T is `const U`.
  /// @param other  The view to convert.
  template <class U>
    requires(std::is_same_v<T, const U> && !std::is_same_v<T, U>)
  constexpr TensorView(const TensorView<U, Rank>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}
  /// Creates a view of a tensor.
  ///
  /// @tparam U      The element type of the tensor, which is T.
  /// @param tensor  The tensor, which must outlive the view.
  template <class U>
    requires(std::is_same_v<T, U>)
  TensorView(Tensor<U, Rank>& tensor)  // NOLINT(google-explicit-constructor)
      : TensorView(tensor.view()) {}
  /// Creates a read-only view of a tensor.
  ///
  /// @tparam U      The element type of the tensor; T is `const U`.
  /// @param tensor  The tensor, which must outlive the view.
  template <class U>
    requires(std::is_same_v<T, const U>)
  TensorView(const Tensor<U, Rank>& tensor)  // NOLINT(google-explicit-constructor)
      : TensorView(tensor.view()) {}

  /// Returns whether the view is in its default-constructed state: `data` is null and every extent is 0.
  constexpr bool absent() const {
    if (data != nullptr) return false;
    for (Index extent : shape) {  // not shape == Shape{}, which would call memcmp
      if (extent != 0) return false;
    }
    return true;
  }
  /// Returns the number of elements: the product of the extents.
  constexpr Index size() const {
    Index n = 1;
    for (Index extent : shape) n *= extent;
    return n;
  }
  /// Returns the address of element (i, j, …). Indices are not checked.
  ///
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return The address. It may be misaligned for T; such an element must be read through `memcpy`.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  constexpr T* pointer(I... index) const {
    Index offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<Index>(index) * strides[axis++]), ...);
    return data + offset;
  }
  /// Returns element (i, j, …), whose address must be aligned for T. Indices are not checked.
  ///
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return A reference to the element.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  constexpr T& operator()(I... index) const {
    return *pointer(index...);
  }
};

namespace internal {

// Copies `from` to the last axes of `to` and sets the axes before them to `first`.
template <std::size_t To, std::size_t From>
constexpr void copy_axes(const std::array<Index, From>& from, std::array<Index, To>& to, Index first) {
  for (std::size_t axis = 0; axis < To - From; ++axis) to[axis] = first;
  for (std::size_t axis = 0; axis < From; ++axis) to[To - From + axis] = from[axis];
}

// Reads an element, which may be misaligned, and converts it to T.
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

/// A view for reading, whose element type is a run-time value and not a template parameter.
///
/// Every TensorView and Tensor converts to it implicitly and, for rank 1, so does every contiguous range
/// (`std::vector`, `std::span`, `std::array`). A view of lower rank gets leading axes of extent 1: (L, D) becomes
/// (1, 1, L, D), and (H, L, D) becomes (1, H, L, D). Nothing is copied, so the viewed memory must outlive the view.
///
/// @tparam Rank  The number of axes.
///
/// @par Example
/// @code{.cpp}
/// Tensor<float, 3> query({8, 128, 64});           // (H, L, D)
/// const InputView<4> view = query;                // (1, H, L, D)
/// @endcode
template <int Rank>
struct InputView {
  /// One Index for each axis.
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  const void* data = nullptr;               ///< The address of element (0, 0, …).
  ElementType type = ElementType::float32;  ///< The type of the elements.
  Shape shape{};                            ///< The extent of each axis, at least 0.
  Shape strides{};                          ///< The step along each axis, in elements, not bytes.

  /// Creates an absent view.
  constexpr InputView() = default;
  /// Converts a view of the same or a lower rank. An absent view stays absent.
  ///
  /// @tparam T    An Element, with or without const.
  /// @tparam R    The rank of `view`, at most Rank.
  /// @param view  The view to convert.
  template <class T, int R>
    requires(R <= Rank && Element<std::remove_const_t<T>>)
  constexpr InputView(const TensorView<T, R>& view)  // NOLINT(google-explicit-constructor)
      : data(view.data), type(kElementType<std::remove_const_t<T>>) {
    if (view.absent()) return;
    internal::copy_axes(view.shape, shape, 1);
    internal::copy_axes(view.strides, strides, 0);
  }
  /// Creates a view of a tensor of the same or a lower rank.
  ///
  /// @tparam T      An Element.
  /// @tparam R      The rank of `tensor`, at most Rank.
  /// @param tensor  The tensor, which must outlive the view.
  template <class T, int R>
    requires(R <= Rank)
  InputView(const Tensor<T, R>& tensor)  // NOLINT(google-explicit-constructor)
      : InputView(tensor.view()) {}
  /// Creates a view of a contiguous range. Rank must be 1.
  ///
  /// @tparam Range  A contiguous, sized range whose value type is an Element.
  /// @param range   The range, which must outlive the view.
  template <std::ranges::contiguous_range Range>
    requires(Rank == 1 && std::ranges::sized_range<Range> && Element<std::ranges::range_value_t<Range>>)
  constexpr InputView(const Range& range)  // NOLINT(google-explicit-constructor)
      : data(std::ranges::data(range)),
        type(kElementType<std::ranges::range_value_t<Range>>),
        shape{static_cast<Index>(std::ranges::size(range))},
        strides{1} {}
  /// Creates a view of a dense row-major array.
  ///
  /// @tparam T      An Element.
  /// @param data_   The address of the first element.
  /// @param shape_  The extents.
  template <Element T>
  constexpr InputView(const T* data_, const Shape& shape_) : InputView(data_, shape_, dense_strides(shape_)) {}
  /// Creates a view with any strides.
  ///
  /// @tparam T        An Element.
  /// @param data_     The address of element (0, 0, …).
  /// @param shape_    The extents.
  /// @param strides_  The strides in elements: zero, negative or positive.
  template <Element T>
  constexpr InputView(const T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(kElementType<T>), shape(shape_), strides(strides_) {}
  /// Creates a view with any element type and strides.
  ///
  /// @param data_     The address of element (0, 0, …).
  /// @param type_     The type of the elements.
  /// @param shape_    The extents.
  /// @param strides_  The strides in elements: zero, negative or positive.
  constexpr InputView(const void* data_, ElementType type_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(type_), shape(shape_), strides(strides_) {}

  /// Returns whether the view is in its default-constructed state: `data` is null and every extent is 0.
  constexpr bool absent() const {
    if (data != nullptr) return false;
    for (Index extent : shape) {  // not shape == Shape{}, which would call memcmp
      if (extent != 0) return false;
    }
    return true;
  }
  /// Returns whether the view has no elements, that is, whether some extent is 0. An absent view is empty.
  constexpr bool empty() const {
    for (Index extent : shape) {
      if (extent == 0) return true;
    }
    return false;
  }
  /// Returns the address of element (i, j, …). Indices are not checked.
  ///
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return The address, which may be misaligned for the element type.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  const void* pointer(I... index) const {
    Index offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<Index>(index) * strides[axis++]), ...);
    return static_cast<const std::byte*>(data) + offset * type_bytes(type);
  }
  /// Reads element (i, j, …) of any type and converts it to T. Indices are not checked.
  ///
  /// The function dispatches on the type at each call, so it is suitable for a few elements but not for inner loops.
  /// The element may be misaligned.
  ///
  /// @tparam T     The type of the result.
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return The converted element.
  template <class T, class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  T at(I... index) const {
    return internal::converted<T>(type, pointer(index...));
  }
};

/// A view for writing, whose element type is a run-time value and not a template parameter.
///
/// Every TensorView and Tensor of non-const elements converts to it implicitly, with the same rules for leading axes
/// and lifetime as InputView.
///
/// @tparam Rank  The number of axes.
template <int Rank>
struct OutputView {
  /// One Index for each axis.
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  void* data = nullptr;                     ///< The address of element (0, 0, …).
  ElementType type = ElementType::float32;  ///< The type of the elements.
  Shape shape{};                            ///< The extent of each axis, at least 0.
  Shape strides{};                          ///< The step along each axis, in elements, not bytes.

  /// Creates an absent view.
  constexpr OutputView() = default;
  /// Converts a view of the same or a lower rank. An absent view stays absent.
  ///
  /// @tparam T    An Element; not const.
  /// @tparam R    The rank of `view`, at most Rank.
  /// @param view  The view to convert.
  template <class T, int R>
    requires(R <= Rank && Element<T>)
  constexpr OutputView(const TensorView<T, R>& view)  // NOLINT(google-explicit-constructor)
      : data(view.data), type(kElementType<T>) {
    if (view.absent()) return;
    internal::copy_axes(view.shape, shape, 1);
    internal::copy_axes(view.strides, strides, 0);
  }
  /// Creates a view of a tensor of the same or a lower rank.
  ///
  /// @tparam T      An Element.
  /// @tparam R      The rank of `tensor`, at most Rank.
  /// @param tensor  The tensor, which must outlive the view.
  template <class T, int R>
    requires(R <= Rank)
  OutputView(Tensor<T, R>& tensor)  // NOLINT(google-explicit-constructor)
      : OutputView(tensor.view()) {}
  /// Creates a view of a dense row-major array.
  ///
  /// @tparam T      An Element.
  /// @param data_   The address of the first element.
  /// @param shape_  The extents.
  template <Element T>
  constexpr OutputView(T* data_, const Shape& shape_) : OutputView(TensorView<T, Rank>(data_, shape_)) {}
  /// Creates a view with any strides.
  ///
  /// @tparam T        An Element.
  /// @param data_     The address of element (0, 0, …).
  /// @param shape_    The extents.
  /// @param strides_  The strides in elements: zero, negative or positive.
  template <Element T>
  constexpr OutputView(T* data_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(kElementType<T>), shape(shape_), strides(strides_) {}
  /// Creates a view with any element type and strides.
  ///
  /// @param data_     The address of element (0, 0, …).
  /// @param type_     The type of the elements.
  /// @param shape_    The extents.
  /// @param strides_  The strides in elements: zero, negative or positive.
  constexpr OutputView(void* data_, ElementType type_, const Shape& shape_, const Shape& strides_)
      : data(data_), type(type_), shape(shape_), strides(strides_) {}

  /// Returns the same view for reading.
  constexpr operator InputView<Rank>() const { return {data, type, shape, strides}; }
  /// Returns the number of elements: the product of the extents.
  constexpr Index size() const {
    Index n = 1;
    for (Index extent : shape) n *= extent;
    return n;
  }
  /// Reads element (i, j, …) of any type and converts it to T. Indices are not checked.
  ///
  /// @tparam T     The type of the result.
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return The converted element.
  template <class T, class... I>
  T at(I... index) const {
    return InputView<Rank>(*this).template at<T>(index...);
  }
  /// Returns whether the view is in its default-constructed state: `data` is null and every extent is 0.
  constexpr bool absent() const { return InputView<Rank>(*this).absent(); }
  /// Returns the address of element (i, j, …). Indices are not checked.
  ///
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return The address, which may be misaligned for the element type.
  template <class... I>
    requires(sizeof...(I) == static_cast<std::size_t>(Rank))
  void* pointer(I... index) const {
    return const_cast<void*>(InputView<Rank>(*this).pointer(index...));
  }
};

/// A dense row-major array that owns its memory.
///
/// Copying a tensor copies its elements. It converts implicitly to TensorView, InputView and OutputView, which
/// operators take.
///
/// @tparam T     The element type; not bool.
/// @tparam Rank  The number of axes, at least 1.
///
/// @par Example
/// @code{.cpp}
/// Tensor<float, 4> context({B, H, L, Dv});
/// attention_forward(query, key, value, {.context = context});
/// @endcode
template <class T, int Rank>
class Tensor {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory: use std::uint8_t for masks");

 public:
  /// One Index for each axis.
  using Shape = typename TensorView<T, Rank>::Shape;

  /// Creates a tensor without elements: every extent is 0.
  Tensor() = default;
  /// Creates a tensor whose elements are all zero.
  ///
  /// @param shape  The extents.
  /// @throws std::bad_alloc     if memory cannot be allocated.
  /// @throws std::length_error  if the tensor exceeds the maximum size of a `std::vector`.
  explicit Tensor(const Shape& shape)
      : shape_(shape), elements_(static_cast<std::size_t>(TensorView<T, Rank>(nullptr, shape).size())) {}

  /// Returns the extents.
  const Shape& shape() const { return shape_; }
  /// Returns a view to read and write, which must not outlive the tensor.
  TensorView<T, Rank> view() { return {elements_.data(), shape_}; }
  /// Returns a read-only view, which must not outlive the tensor.
  TensorView<const T, Rank> view() const { return {elements_.data(), shape_}; }
  /// Returns the address of the first element.
  T* data() { return elements_.data(); }
  /// Returns the address of the first element, read-only.
  const T* data() const { return elements_.data(); }
  /// Returns the number of elements.
  Index size() const { return static_cast<Index>(elements_.size()); }
  /// Returns element (i, j, …). Indices are not checked.
  ///
  /// @tparam I     Integral types.
  /// @param index  One zero-based index for each axis.
  /// @return A reference to the element.
  template <class... I>
  T& operator()(I... index) {
    return view()(index...);
  }
  /// Returns element (i, j, …), read-only. Indices are not checked.
  template <class... I>
  const T& operator()(I... index) const {
    return view()(index...);
  }

 private:
  Shape shape_{};
  std::vector<T> elements_;
};

// ---- Views of views. Nothing is copied.

/// Returns the view with two axes swapped. Nothing is copied.
///
/// @tparam View  A TensorView, InputView or OutputView.
/// @param view   The view.
/// @param a      An axis; by default the second-to-last one.
/// @param b      The other axis; by default the last one.
/// @return The view with the extents and strides of `a` and `b` swapped.
///
/// @par Example
/// @code{.cpp}
/// transposed(key, 2, 3);                          // (B, Hkv, S, D) as (B, Hkv, D, S): keyᵀ of every head
/// @endcode
template <class View>
constexpr View transposed(View view, std::size_t a = std::tuple_size_v<typename View::Shape> - 2,
                          std::size_t b = std::tuple_size_v<typename View::Shape> - 1) {
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.strides[a], view.strides[b]);
  return view;
}

/// Returns the view restricted to the elements begin … end − 1 of one axis. Nothing is copied or checked.
///
/// @tparam View  A TensorView, InputView or OutputView.
/// @param view   The view.
/// @param axis   The axis.
/// @param begin  The first element, 0 ≤ begin ≤ end.
/// @param end    One past the last element, at most the extent of the axis.
/// @return The view, whose extent along `axis` is end − begin.
///
/// @par Example
/// @code{.cpp}
/// sliced(key, 2, 0, 1024);                        // the first 1024 keys
/// @endcode
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

/// Returns a view of (B, L, H·D) as (B, H, L, D). Nothing is copied or checked.
///
/// Head h consists of the columns h·D … (h + 1)·D − 1.
///
/// @tparam T         The element type.
/// @param view       (B, L, H·D), any strides.
/// @param num_heads  H, which must divide the last extent.
/// @return A view of the same elements, (B, H, L, D).
///
/// @par Example
/// @code{.cpp}
/// const TensorView<float, 4> query = split_heads(projected, 8);  // (B, L, 512) → (B, 8, L, 64)
/// @endcode
template <class T>
constexpr TensorView<T, 4> split_heads(const TensorView<T, 3>& view, Index num_heads) {
  const auto [batch, length, width] = view.shape;
  const Index size = num_heads > 0 ? width / num_heads : 0;
  return {view.data,
          {batch, num_heads, length, size},
          {view.strides[0], size * view.strides[2], view.strides[1], view.strides[2]}};
}

/// Returns a view of (B, H, L, D) as (B, L, H·D): the inverse of split_heads(). Nothing is copied.
///
/// @tparam T    The element type.
/// @param view  (B, H, L, D), where the heads of a token are contiguous, or D or H is 1.
/// @return A view of the same elements, (B, L, H·D). Absent if the heads are not contiguous, as in a tensor that is
///         stored as (B, H, L, D): no view can join them.
///
/// @par Example
/// @code{.cpp}
/// const TensorView<float, 3> joined = join_heads(context);  // (B, 8, L, 64) → (B, L, 512)
/// @endcode
template <class T>
constexpr TensorView<T, 3> join_heads(const TensorView<T, 4>& view) {
  const auto [batch, heads, length, size] = view.shape;
  if (heads > 1 && size > 1 && view.strides[1] != size * view.strides[3]) return {};
  const Index step = size > 1 ? view.strides[3] : heads > 1 ? view.strides[1] : 1;
  return {view.data, {batch, length, heads * size}, {view.strides[0], view.strides[2], step}};
}

}  // namespace regard::inline v0
