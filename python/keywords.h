// SPDX-License-Identifier: Apache-2.0
//
// The keyword arguments of one call, each taken by name. finish() rejects those that were not taken, as Python does.
//
//     Keywords keywords("attention_forward", kwargs);
//     if (const nb::handle scale = keywords.take("scale")) …
//     keywords.finish();
//
// Read next: options.h.
#pragma once

#include <nanobind/nanobind.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"

namespace regard::python {

class Keywords {
 public:
  Keywords(const char* operator_name, nb::kwargs given)
      : operator_name_(operator_name), given_(std::move(given)), left_(PyDict_GET_SIZE(given_.ptr())) {}

  // Takes an argument. Returns a null handle if the argument was not given or is None.
  nb::handle take(const char* name) {
    if (left_ == 0) return {};
    PyObject* const value = PyDict_GetItemString(given_.ptr(), name);
    if (value == nullptr) return {};
    --left_;
    taken_.push_back(name);
    return value == Py_None ? nb::handle() : nb::handle(value);
  }
  // Returns the same as take(), but the argument can still be taken.
  nb::handle look(const char* name) const {
    PyObject* const value = PyDict_GetItemString(given_.ptr(), name);
    return value == nullptr || value == Py_None ? nb::handle() : nb::handle(value);
  }
  bool take_bool(const char* name, bool otherwise = false) { return take_optional_bool(name).value_or(otherwise); }
  std::optional<bool> take_optional_bool(const char* name) {
    const nb::handle value = take(name);
    if (!value) return {};
    const int truth = PyObject_IsTrue(value.ptr());
    if (truth < 0) throw nb::python_error();
    return truth != 0;
  }
  // An integer in the range of int, for num_threads.
  int take_int(const char* name, int otherwise) {
    const nb::handle value = take(name);
    return value ? number<int>(name, value) : otherwise;
  }
  template <class T>
  T number(const char* name, nb::handle value) const {
    try {
      return nb::cast<T>(value);
    } catch (const nb::cast_error&) {
      if (!PyLong_Check(value.ptr())) {
        reject_type(operator_name_, name, value, std::is_integral_v<T> ? "an integer" : "a number");
      }
      using Limits = std::numeric_limits<T>;
      reject(operator_name_,
             std::string(name) + " is out of range; expected " +
                 (std::is_integral_v<T> ? std::to_string(Limits::min()) + " to " + std::to_string(Limits::max())
                                        : std::string("a number that fits in float64")));
    }
  }
  void finish() const {
    if (left_ == 0) return;
    for (const auto& [key, value] : given_) {
      bool known = false;
      for (const char* const taken : taken_) known = known || PyUnicode_CompareWithASCIIString(key.ptr(), taken) == 0;
      if (known) continue;
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", operator_name_, key.ptr());
      throw nb::python_error();
    }
  }
  const char* operator_name() const { return operator_name_; }

 private:
  const char* operator_name_;
  nb::kwargs given_;
  Py_ssize_t left_;
  std::vector<const char*> taken_;
};

}  // namespace regard::python
