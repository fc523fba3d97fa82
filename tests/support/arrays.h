// SPDX-License-Identifier: Apache-2.0
//
// Arrays for tests: values from a fixed seed, in any layout that a TensorView can describe.
//
//   Random           one stream of numbers, the same on every system
//   Array<T, Rank>   owns memory under a view with a chosen layout: axes in any order, gaps, negative or zero strides,
//                    a start that is not a multiple of the element. Can check that the memory between its elements is
//                    untouched.
// arrays.cpp contains the arrays of most tests, optimized even if the tests are not.
// Read next: arrays.cpp, attention_cases.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "reference.h"

namespace regard {

// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // An integer from low to high, inclusive.
  Index integer(Index low, Index high) {
    return low + static_cast<Index>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal();
  template <class C>
  const auto& one_of(const C& choices) {
    return *(std::begin(choices) + integer(0, static_cast<Index>(std::size(choices)) - 1));
  }
  Index one_of(std::initializer_list<Index> choices) {
    return *(choices.begin() + integer(0, static_cast<Index>(choices.size()) - 1));
  }

 private:
  std::uint64_t state_;
};

template <int Rank>
struct Layout {
  std::array<int, static_cast<std::size_t>(Rank)> order;      // axes, outermost first
  std::array<bool, static_cast<std::size_t>(Rank)> reversed;  // stride < 0
  std::array<bool, static_cast<std::size_t>(Rank)> repeated;  // stride 0: the axis repeats one slice
  Index gap = 0;                                              // elements left free after each run of the innermost axis
  Index inner_step = 1;                                       // stride of the innermost axis
  Index lead_bytes = 0;  // from the start of the memory, which is 64-byte aligned, to the first element

  static Layout dense() {
    Layout layout{};
    for (std::size_t axis = 0; axis < Rank; ++axis) layout.order[axis] = static_cast<int>(axis);
    return layout;
  }
};

template <class T, int Rank>
class Array {
 public:
  using Shape = typename TensorView<T, Rank>::Shape;

  Array() = default;
  explicit Array(const Shape& shape, const Layout<Rank>& layout = Layout<Rank>::dense()) {
    Shape strides{};
    Index step = layout.inner_step;
    Index first = 0;
    for (std::size_t k = Rank; k-- > 0;) {
      const auto axis = static_cast<std::size_t>(layout.order[k]);
      if (layout.repeated[axis]) continue;
      strides[axis] = layout.reversed[axis] ? -step : step;
      if (layout.reversed[axis] && shape[axis] > 0) first += step * (shape[axis] - 1);
      step = step * std::max<Index>(shape[axis], 1) + (k + 1 == Rank ? layout.gap : 0);
    }
    constexpr std::size_t kAlignment = 64;
    memory_.assign(
        static_cast<std::size_t>(step + 1) * sizeof(T) + 2 * kAlignment + static_cast<std::size_t>(layout.lead_bytes),
        kUntouched);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t lead = (kAlignment - address % kAlignment) % kAlignment;
    char* start = memory_.data() + lead + layout.lead_bytes + first * Index{sizeof(T)};
    view_ = {reinterpret_cast<T*>(start), shape, strides};
  }
  // The view points into memory_, which is moved with it.
  Array(Array&&) noexcept = default;
  Array& operator=(Array&&) noexcept = default;

  TensorView<T, Rank> view() { return view_; }
  TensorView<const T, Rank> view() const { return view_; }
  const Shape& shape() const { return view_.shape; }

  // True when some axis repeats its elements.
  bool repeats() const { return std::find(view_.strides.begin(), view_.strides.end(), 0) != view_.strides.end(); }

  T get(const Shape& at) const {
    T x;
    std::memcpy(static_cast<void*>(&x), address(at), sizeof x);
    return x;
  }
  void set(const Shape& at, T x) { std::memcpy(address(at), &x, sizeof x); }

  // Calls f(index) for every element, in row-major order.
  template <class F>
  void for_each_index(F f) const {
    Shape at{};
    if (std::any_of(view_.shape.begin(), view_.shape.end(), [](Index n) { return n == 0; })) return;
    do f(at);
    while (advance(at));
  }
  template <class F>
  void fill(F f) {
    for_each_index([&](const Shape& at) {
      if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) {
        set(at, T(static_cast<float>(f())));
      } else {
        set(at, static_cast<T>(f()));
      }
    });
  }
  // The elements in row-major order.
  std::vector<T> values() const {
    std::vector<T> result;
    for_each_index([&](const Shape& at) { result.push_back(get(at)); });
    return result;
  }
  // True if no byte outside the elements was written since the array was created. Call it last.
  bool surroundings_untouched() {
    for_each_index([&](const Shape& at) { std::memset(address(at), kUntouched, sizeof(T)); });
    return std::all_of(memory_.begin(), memory_.end(), [](char byte) { return byte == kUntouched; });
  }

 private:
  static constexpr char kUntouched = 0x5a;

  // The index after `at` in row-major order; false after the last one.
  bool advance(Shape& at) const {
    for (std::size_t axis = Rank; axis-- > 0; at[axis] = 0) {
      if (++at[axis] < view_.shape[axis]) return true;
    }
    return false;
  }
  char* address(const Shape& at) const {
    Index offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) offset += at[axis] * view_.strides[axis];
    return reinterpret_cast<char*>(view_.data) + offset * Index{sizeof(T)};
  }

  std::vector<char> memory_;
  TensorView<T, Rank> view_{};
};

extern template class Array<float, 1>;
extern template class Array<float, 2>;
extern template class Array<float, 3>;
extern template class Array<float, 4>;
extern template class Array<double, 1>;
extern template class Array<double, 2>;
extern template class Array<double, 3>;
extern template class Array<double, 4>;
extern template class Array<bfloat16, 2>;
extern template class Array<bfloat16, 4>;
extern template class Array<float16, 2>;
extern template class Array<float16, 4>;
extern template class Array<bool, 4>;

// A dense array of standard normal numbers times magnitude.
template <class T, int Rank>
Array<T, Rank> normal_array(Random& random, const typename TensorView<T, Rank>::Shape& shape, double magnitude = 1) {
  Array<T, Rank> array(shape);
  array.fill([&] { return random.normal() * magnitude; });
  return array;
}

// The same elements in another layout.
template <class T, int Rank>
Array<T, Rank> relaid(const Array<T, Rank>& from, const Layout<Rank>& layout) {
  Array<T, Rank> to(from.shape(), layout);
  from.for_each_index([&](const auto& at) { to.set(at, from.get(at)); });
  return to;
}

// The bits of each element, with all NaN alike: no guarantee covers their sign and payload.
template <class T>
std::vector<std::uint64_t> bits_of(const std::vector<T>& numbers) {
  std::vector<std::uint64_t> bits;
  bits.reserve(numbers.size());
  for (T x : numbers) {
    if constexpr (sizeof(T) == 2) {
      const auto wide = static_cast<float>(x);
      bits.push_back(wide != wide ? 0x7fffu : x.bits);
    } else if constexpr (sizeof(T) == 4) {
      bits.push_back(x != x ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x));
    } else {
      bits.push_back(x != x ? 0x7ff8000000000000u : std::bit_cast<std::uint64_t>(x));
    }
  }
  return bits;
}
extern template std::vector<std::uint64_t> bits_of(const std::vector<float>&);
extern template std::vector<std::uint64_t> bits_of(const std::vector<double>&);
extern template std::vector<std::uint64_t> bits_of(const std::vector<bfloat16>&);
extern template std::vector<std::uint64_t> bits_of(const std::vector<float16>&);

template <class T, int Rank>
std::vector<std::uint64_t> bits_of(const Array<T, Rank>& array) {
  return bits_of(array.values());
}

// The same bits, or both NaN.
template <class T>
bool identical(T a, T b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (a != a && b != b);
}

}  // namespace regard
