// SPDX-License-Identifier: Apache-2.0
//
// Options<T>: see options.h. Only wrong types are rejected here. Wrong values (ranges, shapes that do not fit) are
// rejected by the operators themselves.
//
// Read next: attention.cpp.
#include "options.h"

namespace regard::python {
namespace {

QueryAlignment alignment(const char* operator_name, const char* name, nb::handle word) {
  const std::string text = text_of(operator_name, name, word);
  if (text == "top_left") return QueryAlignment::top_left;
  if (text == "bottom_right") return QueryAlignment::bottom_right;
  reject(operator_name, std::string(name) + " is '" + text + "'; expected top_left or bottom_right");
}

// An empty list would mean that the option was not given.
void reject_empty(const char* operator_name, const char* name, const char* expected) {
  reject(operator_name, std::string(name) + " has 0 entries; expected " + expected + ", or None");
}

}  // namespace

template <class T>
void Options<T>::take_positions(Keywords& keywords) {
  const char* const operator_name = keywords.operator_name();
  const nb::handle offset = keywords.take("query_offset");
  if (const nb::handle causal = keywords.take("causal")) {
    if (PyUnicode_Check(causal.ptr())) {
      if (offset) {
        reject(operator_name, "query_offset and causal='" + text_of(operator_name, "causal", causal) +
                                  "' both set the position of the queries; expected only one of them");
      }
      options.causal = true;
      options.query_offset = alignment(operator_name, "causal", causal);
    } else if (PyBool_Check(causal.ptr()) ||
               std::string_view(Py_TYPE(causal.ptr())->tp_name).starts_with("numpy.bool")) {
      options.causal = PyObject_IsTrue(causal.ptr()) == 1;
    } else {
      reject_type(operator_name, "causal", causal, "bool, 'top_left' or 'bottom_right'");
    }
  }
  if (offset) {
    if (PyUnicode_Check(offset.ptr())) {
      options.query_offset = alignment(operator_name, "query_offset", offset);
    } else if (PyIndex_Check(offset.ptr()) && !nb::hasattr(offset, "__len__")) {
      const nb::object number = nb::steal(PyNumber_Index(offset.ptr()));
      if (!number.is_valid()) throw nb::python_error();
      options.query_offset = keywords.number<Index>("query_offset", number);
    } else {
      query_offset_ = index_list(operator_name, "query_offset", offset);
      options.query_offset = InputView<1>(query_offset_);
    }
  }
  if (const nb::handle window = keywords.take("window")) {
    if ((!PyTuple_Check(window.ptr()) && !PyList_Check(window.ptr())) || nb::len(window) != 2) {
      PyErr_SetString(PyExc_TypeError,
                      (std::string(operator_name) + ": window is not a pair (left, right) of numbers or None").c_str());
      throw nb::python_error();
    }
    const nb::object left = window[0], right = window[1];
    if (!left.is_none()) options.window.left = keywords.number<Index>("window[0]", left);
    if (!right.is_none()) options.window.right = keywords.number<Index>("window[1]", right);
  }
}

template <class T>
InputView<1> Options<T>::take_list(Keywords& keywords, const char* name, const char* expected,
                                   std::vector<Index>& held) {
  if (const nb::handle given = keywords.take(name)) {
    held = index_list(keywords.operator_name(), name, given);
    if (held.empty() && rows_) reject_empty(keywords.operator_name(), name, expected);
  }
  return held;
}

template <class T>
InputView<1> Options<T>::take_numbers(Keywords& keywords, const char* name, std::vector<T>& held) {
  if (const nb::handle given = keywords.take(name)) {
    held = number_list<T>(keywords.operator_name(), name, given);
    if (held.empty() && rows_) reject_empty(keywords.operator_name(), name, "one per head");
  }
  return held;
}

template <class T>
Options<T>::Options(Keywords& keywords, const Array& query) : rows_(!query.empty()) {
  const char* const operator_name = keywords.operator_name();
  take_positions(keywords);
  options.key_lengths = take_list(keywords, "key_lengths", "one per batch entry", key_lengths_);
  options.query_starts = take_list(keywords, "query_starts", "one more than the number of sequences", query_starts_);
  options.key_starts = take_list(keywords, "key_starts", "one more than the number of sequences", key_starts_);
  options.prefix = take_list(keywords, "prefix", "one per batch entry", prefix_);
  options.alibi_slopes = take_numbers(keywords, "alibi_slopes", alibi_slopes_);
  options.sinks = take_numbers(keywords, "sinks", sinks_);
  const auto borrow = [&](const char* name, Array& array) {
    if (const nb::handle given = keywords.take(name)) array.borrow(operator_name, name, given, Access::read);
  };
  borrow("query_segments", query_segments_);
  borrow("key_segments", key_segments_);
  borrow("block_mask", block_mask_);
  borrow("mask", mask_);
  if (mask_.given() && (mask_.type().code == kFloat || mask_.type().code == kBfloat)) {
    reject(operator_name, "mask has type " + type_text(mask_.type()) +
                              "; expected bool or uint8 (values to add to the scores are passed as bias=)");
  }
  borrow("bias", bias_);
  options.query_segments = query_segments_.broadcast_input<2>(operator_name, "query_segments");
  options.key_segments = key_segments_.broadcast_input<2>(operator_name, "key_segments");
  options.block_mask = block_mask_.broadcast_input<4>(operator_name, "block_mask");
  options.mask = mask_.broadcast_input<4>(operator_name, "mask");
  options.bias = bias_.broadcast_input<4>(operator_name, "bias");
  if (const nb::handle size = keywords.take("block_size")) {
    const std::vector<Index> pair = index_list(operator_name, "block_size", size);
    if (pair.size() != 2) {
      reject(operator_name, "block_size has " + std::to_string(pair.size()) + " numbers; expected 2, (queries, keys)");
    }
    options.block_size = {pair[0], pair[1]};
  }
  if (const nb::handle cap = keywords.take("soft_cap")) options.soft_cap = keywords.number<double>("soft_cap", cap);
  if (const nb::handle scale = keywords.take("scale")) options.scale = keywords.number<double>("scale", scale);
  if (const nb::handle dropout = keywords.take("dropout"))
    options.dropout = keywords.number<double>("dropout", dropout);
  if (const nb::handle seed = keywords.take("dropout_seed")) {
    options.dropout_seed = keywords.number<std::uint64_t>("dropout_seed", seed);
  }
  if (const nb::handle first = keywords.take("dropout_first")) {
    const std::vector<Index> place = index_list(operator_name, "dropout_first", first);
    if (place.size() != 3) {
      reject(operator_name,
             "dropout_first has " + std::to_string(place.size()) + " numbers; expected 3, (batch entry, head, row)");
    }
    std::ranges::copy(place, options.dropout_first.begin());
  }
  options.weights_in_float32 = keywords.take_optional_bool("weights_in_float32");
}

template class Options<float>;
template class Options<double>;

}  // namespace regard::python
