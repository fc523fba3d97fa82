// SPDX-License-Identifier: Apache-2.0
//
// The results of a call: arrays given by the caller, and new arrays of the same library as the inputs.
//
//     out=array, lse=array …    written in place
//     return_lse=True …         allocated if no array was given, and returned after the context
//
// Read next: outputs.cpp, attention.cpp.
#pragma once

#include <memory>
#include <optional>

#include "keywords.h"
#include "regard/attention.h"

namespace regard::python {

class Outputs {
 public:
  // New arrays belong to the same library as `like`. The leading axes that are missing in the inputs are also missing
  // in the outputs, whether new or given.
  Outputs(const char* operator_name, nb::handle like, int missing_axes = 0)
      : operator_name_(operator_name), like_(like), missing_axes_(missing_axes) {}

  void add(const char* name);
  // As above, but allocates the array immediately and sets view_of_it to a view of it.
  template <class T, int Rank>
  void add(const char* name, OutputView<Rank>& view_of_it, const std::vector<Index>& shape) {
    add(name);
    allocate(name, number_type<T>(), without_missing_axes(shape));
    view_of_it = view<T, Rank>(name);
  }
  // Takes the array of that name. If none was given, marks it for allocation, provided that the keyword `asked` is true
  // or that asked is nullptr.
  void take(Keywords& keywords, const char* name, const char* asked);
  // Takes the keyword accumulate: the names of arrays to which gradients are added. These arrays must already have been
  // taken, and must have been given by the caller.
  void take_accumulate(Keywords& keywords);
  bool accumulates(const char* name) const;
  // Allocates the array of that name if it is marked for allocation.
  void allocate(const char* name, NumberType type, const std::vector<Index>& shape);
  std::vector<Index> without_missing_axes(const std::vector<Index>& shape) const {
    return {shape.begin() + missing_axes_, shape.end()};
  }
  const Array* find(const char* name) const;

  template <class T, int Rank>
  TensorView<T, Rank> view(const char* name) const {
    const Array* const array = find(name);
    if (array == nullptr) return {};
    return array->rank() + missing_axes_ == Rank ? array->broadcast<T, Rank>(operator_name_, name)
                                                 : array->view<T, Rank>(operator_name_, name);
  }
  nb::object hand_out(const char* name);
  // Return the arrays in the order in which they were added, by name or in a list.
  nb::dict hand_out_named();
  nb::list hand_out_listed();

 private:
  struct Slot {
    const char* name = nullptr;
    nb::object given;
    Array array;  // given
    std::optional<NewArray> fresh;
    bool allocated = false;
    bool returned = false;
    bool accumulated = false;
  };
  nb::object object_of(Slot& slot);

  const char* operator_name_;
  nb::handle like_;
  int missing_axes_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

// The elements of a sequence of str.
std::vector<std::string> word_list(const char* operator_name, const char* name, nb::handle given);

// Converts a fingerprint to bytes, its type in Python.
nb::bytes bytes_of(const AttentionFingerprint& fingerprint);
// Throws nb::python_error with TypeError for anything other than bytes or the word "unchecked".
AttentionFingerprint fingerprint_of(const char* operator_name, nb::handle given);

// AttentionOutputs: out, row_max, row_sum, lse, weights, sink_weights, fingerprint.
class ForwardOutputs {
 public:
  // If flags is false, no return_… keyword is taken.
  ForwardOutputs(Keywords& keywords, nb::handle like, const Array& query, bool flags, int missing_axes = 0);
  NumberType context_type() const { return context_type_; }
  // Adds the fingerprint as the last result.
  void add_fingerprint() { fingerprint_.emplace(); }
  bool allocates_weights() const {
    const Array* const weights = outputs_.find("weights");
    return weights != nullptr && !weights->given();
  }
  void allocate(const std::array<Index, 4>& query_shape, Index num_keys, Index columns);
  template <class T>
  AttentionOutputs views() {
    using Compute = ComputeType<T>;
    return {.context = outputs_.view<T, 4>("out"),
            .row_max = outputs_.view<Compute, 3>("row_max"),
            .row_sum = outputs_.view<Compute, 3>("row_sum"),
            .lse = outputs_.view<Compute, 3>("lse"),
            .weights = outputs_.view<Compute, 4>("weights"),
            .sink_weights = outputs_.view<Compute, 3>("sink_weights"),
            .fingerprint = fingerprint_ ? &*fingerprint_ : nullptr};
  }
  // The context, or a tuple that begins with it.
  nb::object hand_out();
  nb::dict hand_out_named();

 private:
  // Checks the type of the context here, because the error message of the operator would name a different argument.
  void expect_context(const char* operator_name, const char* what, NumberType input) const;

  Outputs outputs_;
  NumberType context_type_;
  std::optional<AttentionFingerprint> fingerprint_;
};

}  // namespace regard::python
