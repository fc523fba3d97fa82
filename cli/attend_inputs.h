// SPDX-License-Identifier: Apache-2.0
//
// The input arrays of `regard attend`: opening the files, checking their headers, and converting them for the library.
//
//     (L, D), (H, L, D), (B, H, L, D)  →  (1, 1, L, D), (1, H, L, D), (B, H, L, D)      by strides, without a copy
//     (B) of int32 or int64            →  a list of Index
//
// Read next: attend.cpp, regard/io/npy.h.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "attend_options.h"
#include "regard/io/npy.h"

namespace regard::program {

struct Input {
  std::string option;
  NpyReader file;
  std::function<void(std::uint64_t)> seek;  // absent for standard input
};

// Throws std::runtime_error: "<file>: <option> <what>".
[[noreturn]] void reject(const NpyReader& file, const std::string& option, const std::string& what);

// Every array named on the command line, with its header read and its type and rank checked. --query is always present.
class Inputs {
 public:
  explicit Inputs(const AttendText& text);

  Input& at(const std::string& option) { return *find(option); }
  Input* find(const std::string& option);
  std::size_t rank() { return at("--query").file.shape().size(); }
  // The shape, extended by leading axes of extent 1.
  std::array<Index, 4> shape4(const std::string& option);
  // The size of all elements. In double, so that no sum can overflow.
  double bytes() const;

 private:
  void check(const Input& input);
  void check_broadcast(const Input& input);

  std::vector<Input> inputs_;
};

// A view of rank Rank whose last axes are those of the array; the leading ones have extent 1.
template <class T, int Rank>
TensorView<const T, Rank> view_of(const NpyArray& array) {
  TensorView<const T, Rank> view;
  view.data = array.elements<T>();
  const std::size_t missing = static_cast<std::size_t>(Rank) - array.shape.size();
  view.shape.fill(1);
  std::copy(array.shape.begin(), array.shape.end(), view.shape.begin() + static_cast<std::ptrdiff_t>(missing));
  std::copy(array.strides.begin(), array.strides.end(), view.strides.begin() + static_cast<std::ptrdiff_t>(missing));
  return view;
}

// The elements of an array with at most one axis. To is Index, float or double.
template <class To>
std::vector<To> numbers_of(const NpyArray& array);

// Segment numbers as int32, row-major. Throws std::runtime_error for a number that does not fit in 32 bits.
Tensor<std::int32_t, 2> segments_of(const Input& input, const NpyArray& array);

}  // namespace regard::program
