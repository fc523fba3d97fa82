// SPDX-License-Identifier: Apache-2.0
//
// One call of a layer from Python: its keywords, the arrays that it writes, and how it is run.
//
//     LayerCall call("rms_norm_forward", input, kwargs, {"out"});       out= is taken, or an array is to be allocated
//     const double epsilon = call.number("epsilon", 1e-5);
//     call.finish();                                                    rejects unknown keywords
//     const auto out = call.output<T, 2>("out", x.shape);
//     call.run(operations, [&](const Runtime& runtime) { … });
//     return call.result("out");
//
// Read next: layers.cpp.
#pragma once

#include <array>
#include <initializer_list>
#include <utility>

#include "outputs.h"
#include "regard/activation.h"
#include "run.h"

namespace regard::python {

// Calls call(T{}) with the type of an array: float, double or bfloat16.
template <class Call>
auto with_layer_type(const char* operator_name, const char* name, NumberType type, const Call& call) {
  if (type == number_type<float>()) return call(float{});
  if (type == number_type<double>()) return call(double{});
  if (type == number_type<bfloat16>()) return call(bfloat16{});
  reject(operator_name, std::string(name) + " has type " + type_text(type) + "; expected float32, float64 or bfloat16");
}

// As above, but bfloat16 is rejected.
template <class Call>
auto with_compute_type(const char* operator_name, const char* name, NumberType type, const Call& call) {
  if (type == number_type<float>()) return call(float{});
  if (type == number_type<double>()) return call(double{});
  reject(operator_name, std::string(name) + " has type " + type_text(type) + "; expected float32 or float64");
}

Activation activation_named(const char* operator_name, nb::handle given);

// A view of the values of index_list(). It is not absent even if there are no values.
inline TensorView<const Index, 1> view_of(const std::vector<Index>& numbers) {
  static constexpr Index kNowhere = 0;
  return {numbers.empty() ? &kNowhere : numbers.data(), {static_cast<Index>(numbers.size())}};
}

class LayerCall {
 public:
  // like: new arrays belong to the library of this array. written: names of the arrays that the call writes.
  LayerCall(const char* operator_name, nb::handle like, nb::kwargs kwargs, std::initializer_list<const char*> written)
      : keywords(operator_name, std::move(kwargs)), outputs(operator_name, like) {
    for (const char* const name : written) outputs.take(keywords, name, nullptr);
  }

  // Borrows an optional input.
  void borrow(const char* name, Array& array) {
    if (const nb::handle given = keywords.take(name)) array.borrow(keywords.operator_name(), name, given, Access::read);
  }
  double number(const char* name, double otherwise) {
    const nb::handle given = keywords.take(name);
    return given ? keywords.number<double>(name, given) : otherwise;
  }
  Index whole(const char* name, Index otherwise) {
    const nb::handle given = keywords.take(name);
    return given ? keywords.number<Index>(name, given) : otherwise;
  }
  // Takes the keyword accumulate as a bool, for a call that writes a single array.
  bool accumulates_into(const char* name) {
    const bool accumulates = keywords.take_bool("accumulate");
    if (accumulates && !outputs.find(name)->given()) {
      reject(keywords.operator_name(), std::string("accumulate is True; expected ") + name + "=array to add to");
    }
    return accumulates;
  }
  void finish() {
    num_threads_ = keywords.take_int("num_threads", 0);
    keywords.finish();
  }

  template <class T, int Rank>
  TensorView<T, Rank> output(const char* name, const std::array<Index, Rank>& shape) {
    outputs.allocate(name, number_type<T>(), {shape.begin(), shape.end()});
    return outputs.view<T, Rank>(name);
  }
  void run(double operations, const std::function<void(const Runtime&)>& call) const {
    python::run(operations, num_threads_, call);
  }
  nb::object result(const char* name) { return outputs.hand_out(name); }
  nb::object named_results() { return nb::object(outputs.hand_out_named()); }

  Keywords keywords;
  Outputs outputs;

 private:
  int num_threads_ = 0;
};

}  // namespace regard::python
