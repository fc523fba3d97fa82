// SPDX-License-Identifier: Apache-2.0
//
// Python arrays, accessed in place without copies: NumPy, memoryview and array.array through the buffer protocol;
// PyTorch, JAX and all others through DLPack. Results are new arrays of the same library as an input.
//
//     object ── buffer protocol, else __dlpack__ ──▶ Array ── view<T, Rank>() ──▶ TensorView<T, Rank>
//                                                      │ holds the export, so that the memory is not freed or resized
//
// Arrays that cannot be accessed in place (big-endian data, Python objects, memory of another device) are rejected.
// Read next: dlpack.h, arrays.cpp.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard::python {

namespace nb = nanobind;

// An element type, as DLPack describes it.
struct NumberType {
  std::uint8_t code = 0;  // kInt …
  std::uint8_t bits = 0;
  friend bool operator==(const NumberType&, const NumberType&) = default;
};
inline constexpr std::uint8_t kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;

template <class T>
constexpr NumberType number_type() {
  if constexpr (std::is_same_v<T, float>) return {kFloat, 32};
  if constexpr (std::is_same_v<T, double>) return {kFloat, 64};
  if constexpr (std::is_same_v<T, bfloat16>) return {kBfloat, 16};
  if constexpr (std::is_same_v<T, float16>) return {kFloat, 16};
  if constexpr (std::is_same_v<T, bool>) return {kBool, 8};
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return {std::is_signed_v<T> ? kInt : kUnsigned, 8 * sizeof(T)};
}
std::string type_text(NumberType type);  // "float32", "bool", "int64"
// The type named "float32", "float64", "bfloat16" or "float16"; throws std::invalid_argument for other names.
NumberType named_type(const char* operator_name, const char* name, const std::string& text);

[[noreturn]] void reject(const char* operator_name, const std::string& what);
// Throws TypeError: the argument `name` is not of the expected type.
[[noreturn]] void reject_type(const char* operator_name, const std::string& name, nb::handle given,
                              const char* expected);
// The text of a str. Throws nb::python_error with TypeError for any other object, and std::invalid_argument if the
// text contains a lone surrogate.
std::string text_of(const char* operator_name, const std::string& name, nb::handle given);
std::string shape_text(const Index* shape, int rank);

// Whether the object's class, or one of its base classes, has this name. Does not import the class's library.
bool is_a(PyObject* object, const char* class_name);
// Whether the object's class is defined in this module or in one of its submodules.
bool is_of_module(PyObject* object, const char* module);

enum class Access { read, write };

class Array {
 public:
  static constexpr int kMaxAxes = 8;

  Array() = default;
  Array(const char* operator_name, const char* name, nb::handle given, Access access = Access::read) : Array() {
    borrow(operator_name, name, given, access);
  }
  ~Array() { release(); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  // Throws nb::python_error with TypeError if the object is not an array, with BufferError if its DLPack export cannot
  // be used, and std::invalid_argument for other errors.
  void borrow(const char* operator_name, const char* name, nb::handle given, Access access);

  bool given() const { return given_; }
  bool read_only() const { return read_only_; }
  NumberType type() const { return type_; }
  int rank() const { return rank_; }
  Index extent(int axis) const { return shape_[axis]; }
  std::vector<Index> shape() const { return {shape_, shape_ + rank_}; }
  bool empty() const { return std::find(shape_, shape_ + rank_, 0) != shape_ + rank_; }
  // Adds `missing` leading axes of extent 1, provided that the array then has `rank` axes.
  void complete(int rank, int missing);

  // A view of an array that must have exactly Rank axes. The view is absent if no array was given.
  template <class T, int Rank>
  TensorView<T, Rank> view(const char* operator_name, const char* name) const {
    if (!given_) return {};
    expect_type(operator_name, name, number_type<std::remove_const_t<T>>());
    expect_rank(operator_name, name, Rank);
    TensorView<T, Rank> view;
    view.data = static_cast<T*>(data_);
    for (int i = 0; i < Rank; ++i) set_axis(view, i, i);
    return view;
  }
  // A view in which missing leading axes have extent 1, as in NumPy. The view is absent if no array was given.
  template <class T, int Rank>
  TensorView<T, Rank> broadcast(const char* operator_name, const char* name) const {
    if (!given_) return {};
    expect_type(operator_name, name, number_type<std::remove_const_t<T>>());
    if (rank_ > Rank) expect_rank(operator_name, name, Rank);
    TensorView<T, Rank> view;
    view.data = static_cast<T*>(data_);
    view.shape.fill(1);
    for (int i = 0; i < rank_; ++i) set_axis(view, Rank - rank_ + i, i);
    return view;
  }
  // A view of elements of any floating-point type, which are converted to T.
  template <class T, int Rank>
  InputView<Rank> input(const char* operator_name, const char* name) const {
    expect_rank(operator_name, name, Rank);
    InputView<Rank> view;
    view.data = data_;
    view.type = element_type(operator_name, name, std::is_same_v<T, double>);
    for (int i = 0; i < Rank; ++i) set_axis(view, i, i);
    return view;
  }
  // A view of elements of any type, which the operator checks. Missing leading axes have extent 1. The view is absent
  // if no array was given.
  template <int Rank>
  InputView<Rank> broadcast_input(const char* operator_name, const char* name) const {
    InputView<Rank> view;
    if (!given_) return view;
    if (rank_ > Rank) expect_rank(operator_name, name, Rank);
    view.data = data_;
    view.type = any_type(operator_name, name);
    view.shape.fill(1);
    for (int i = 0; i < rank_; ++i) set_axis(view, Rank - rank_ + i, i);
    return view;
  }
  // All elements of an array of any rank, which must be contiguous in row-major order.
  template <class T>
  std::span<T> elements(const char* operator_name, const char* name) const {
    expect_type(operator_name, name, number_type<std::remove_const_t<T>>());
    return {static_cast<T*>(data_), num_contiguous(operator_name, name)};
  }
  void expect_type(const char* operator_name, const char* name, NumberType type) const;
  void expect_rank(const char* operator_name, const char* name, int rank) const;
  [[noreturn]] void reject_rank(const char* operator_name, const char* name, const std::string& expected) const;

 private:
  template <class View>
  void set_axis(View& view, int axis, int from) const {
    view.shape[static_cast<std::size_t>(axis)] = shape_[from];
    view.strides[static_cast<std::size_t>(axis)] = strides_[from];
  }
  std::size_t num_contiguous(const char* operator_name, const char* name) const;
  ElementType element_type(const char* operator_name, const char* name, bool computed_in_double) const;
  ElementType any_type(const char* operator_name, const char* name) const;
  bool borrow_buffer(const char* operator_name, const char* name, PyObject* given);
  void borrow_dlpack(const char* operator_name, const char* name, PyObject* given);
  bool borrow_exchange(const char* operator_name, const char* name, PyObject* given);
  void read_managed(const char* operator_name, const char* name, void* managed, bool versioned);
  bool borrow_capsule(const char* operator_name, const char* name, PyObject* capsule);
  bool borrow_extended(const char* operator_name, const char* name, PyObject* given);
  void release();

  bool given_ = false;
  bool read_only_ = false;
  NumberType type_;
  int rank_ = 0;
  void* data_ = nullptr;
  Index shape_[kMaxAxes];
  Index strides_[kMaxAxes];  // in elements
  enum class Holder { nothing, buffer, dlpack, dlpack_versioned } holder_ = Holder::nothing;
  union {
    Py_buffer buffer_;
    void* managed_;
  };
};

// Extends arrays that all have rank 2, 3 or 4 to rank 4, and returns the number of axes that were missing. Throws if
// query has a different rank, or if the rank of key or value differs from that of query. value may be nullptr.
int complete_to_rank_4(const char* operator_name, Array& query, Array& key, Array* value);

// A new array for results. It belongs to the same library as `like` if that is NumPy, PyTorch or JAX; otherwise, it is
// an object that supports the buffer protocol and DLPack. Until it is returned, it can be written through `array`.
class NewArray {
 public:
  NewArray(const char* operator_name, const char* name, nb::handle like, NumberType type,
           const std::vector<Index>& shape);
  Array array;
  nb::object hand_out();

 private:
  nb::object object_;
  bool for_jax_ = false;
};

// The values of an option that has one value per head, per sequence or the like, given as a Python sequence or as an
// array with one axis. The type of the array is int32 or int64 for index_list, and T for number_list.
std::vector<Index> index_list(const char* operator_name, const char* name, nb::handle given);
template <class T>
std::vector<T> number_list(const char* operator_name, const char* name, nb::handle given);

}  // namespace regard::python
