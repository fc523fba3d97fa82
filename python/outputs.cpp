// SPDX-License-Identifier: Apache-2.0
//
// Outputs and ForwardOutputs: see outputs.h.
//
//     take()      takes the given array, or adds a slot to be filled
//     allocate()  fills it, once the shapes are known
//
// Read next: attention.cpp.
#include "outputs.h"

#include <algorithm>
#include <cstring>

namespace regard::python {

void Outputs::add(const char* name) {
  auto slot = std::make_unique<Slot>();
  slot->name = name;
  slot->allocated = slot->returned = true;
  slots_.push_back(std::move(slot));
}

void Outputs::take(Keywords& keywords, const char* name, const char* asked) {
  const nb::handle given = keywords.take(name);
  const bool returned = asked == nullptr || keywords.take_bool(asked);
  if (!given && !returned) return;
  add(name);
  Slot& slot = *slots_.back();
  slot.returned = returned;
  slot.allocated = !given;
  if (given) {
    slot.given = nb::borrow(given);
    slot.array.borrow(operator_name_, name, given, Access::write);
  }
}

void Outputs::take_accumulate(Keywords& keywords) {
  const nb::handle given = keywords.take("accumulate");
  if (!given) return;
  for (const std::string& name : word_list(operator_name_, "accumulate", given)) {
    const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const auto& one) { return name == one->name; });
    if (slot == slots_.end())
      reject(operator_name_, "accumulate names '" + name + "', which is not a requested gradient");
    if ((*slot)->allocated)
      reject(operator_name_, "accumulate names " + name + "; expected " + name + "=array to add to");
    (*slot)->accumulated = true;
  }
}

bool Outputs::accumulates(const char* name) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const auto& slot) { return slot->accumulated && std::strcmp(slot->name, name) == 0; });
}

void Outputs::allocate(const char* name, NumberType type, const std::vector<Index>& shape) {
  for (const auto& slot : slots_) {
    if (std::strcmp(slot->name, name) == 0 && slot->allocated) {
      slot->fresh.emplace(operator_name_, name, like_, type, shape);
    }
  }
}

const Array* Outputs::find(const char* name) const {
  for (const auto& slot : slots_) {
    if (std::strcmp(slot->name, name) == 0) return slot->fresh ? &slot->fresh->array : &slot->array;
  }
  return nullptr;
}

nb::object Outputs::object_of(Slot& slot) { return slot.fresh ? slot.fresh->hand_out() : slot.given; }

nb::object Outputs::hand_out(const char* name) {
  for (const auto& slot : slots_) {
    if (std::strcmp(slot->name, name) == 0) return object_of(*slot);
  }
  return nb::none();
}

nb::dict Outputs::hand_out_named() {
  nb::dict named;
  for (const auto& slot : slots_) {
    if (slot->returned) named[slot->name] = object_of(*slot);
  }
  return named;
}

nb::list Outputs::hand_out_listed() {
  nb::list listed;
  for (const auto& slot : slots_) {
    if (slot->returned) listed.append(object_of(*slot));
  }
  return listed;
}

std::vector<std::string> word_list(const char* operator_name, const char* name, nb::handle given) {
  if (PyUnicode_Check(given.ptr()) || !nb::hasattr(given, "__iter__"))
    reject_type(operator_name, name, given, "a sequence of names");
  std::vector<std::string> words;
  const std::string what = std::string("a name in ") + name;
  for (const nb::handle word : nb::iter(given)) words.push_back(text_of(operator_name, what.c_str(), word));
  return words;
}

nb::bytes bytes_of(const AttentionFingerprint& fingerprint) {
  return nb::bytes(reinterpret_cast<const char*>(fingerprint.words.data()), sizeof fingerprint.words);
}

AttentionFingerprint fingerprint_of(const char* operator_name, nb::handle given) {
  AttentionFingerprint fingerprint;
  if (PyBytes_Check(given.ptr())) {
    const auto bytes = nb::borrow<nb::bytes>(given);
    if (bytes.size() != sizeof fingerprint.words) {
      reject(operator_name, "fingerprint has " + std::to_string(bytes.size()) + " bytes; expected " +
                                std::to_string(sizeof fingerprint.words));
    }
    std::memcpy(fingerprint.words.data(), bytes.c_str(), sizeof fingerprint.words);
    return fingerprint;
  }
  if (!PyUnicode_Check(given.ptr())) reject_type(operator_name, "fingerprint", given, "bytes, or 'unchecked'");
  const std::string word = text_of(operator_name, "fingerprint", given);
  if (word != "unchecked") reject(operator_name, "fingerprint is '" + word + "'; expected bytes, or 'unchecked'");
  return kUncheckedFingerprint;
}

ForwardOutputs::ForwardOutputs(Keywords& keywords, nb::handle like, const Array& query, bool flags, int missing_axes)
    : outputs_(keywords.operator_name(), like, missing_axes), context_type_(query.type()) {
  const nb::handle dtype = keywords.take("dtype");
  outputs_.take(keywords, "out", nullptr);
  const auto take = [&](const char* name, const char* asked) {
    if (flags) {
      outputs_.take(keywords, name, asked);
    } else if (const nb::handle given = keywords.take(name)) {
      reject(keywords.operator_name(),
             std::string(name) + " is always returned as a new array; expected no array to write it to");
    }
  };
  take("row_max", "return_row_max");
  take("row_sum", "return_row_sum");
  take("lse", "return_lse");
  take("weights", "return_weights");
  take("sink_weights", "return_sink_weights");
  if (dtype) {
    context_type_ =
        named_type(keywords.operator_name(), "dtype", text_of(keywords.operator_name(), "dtype", nb::str(dtype)));
    expect_context(keywords.operator_name(), "dtype is ", query.type());
  } else if (const Array* const out = outputs_.find("out"); out->given()) {
    context_type_ = out->type();
    expect_context(keywords.operator_name(), "out has type ", query.type());
  }
  if (!flags) {
    outputs_.add("row_max");
    outputs_.add("row_sum");
    outputs_.add("lse");
  }
}

void ForwardOutputs::expect_context(const char* operator_name, const char* what, NumberType input) const {
  const bool wide = input == number_type<double>(), floats = input == number_type<float>();
  const bool narrow = input == number_type<bfloat16>() || input == number_type<float16>();
  if (context_type_ == input || (narrow && context_type_ == number_type<float>())) return;
  if (!wide && !floats && !narrow) return;  // the input itself is rejected
  reject(operator_name, what + type_text(context_type_) + "; expected " + type_text(input) +
                            (narrow ? ", the input's type, or float32" : ", the input's type"));
}

void ForwardOutputs::allocate(const std::array<Index, 4>& query_shape, Index num_keys, Index columns) {
  const auto& [batch, heads, rows, head_size] = query_shape;
  const NumberType compute = context_type_ == number_type<double>() ? number_type<double>() : number_type<float>();
  const auto allocate = [&](const char* name, NumberType type, const std::vector<Index>& shape) {
    outputs_.allocate(name, type, outputs_.without_missing_axes(shape));
  };
  allocate("out", context_type_, {batch, heads, rows, columns});
  for (const char* const name : {"row_max", "row_sum", "lse", "sink_weights"}) {
    allocate(name, compute, {batch, heads, rows});
  }
  allocate("weights", compute, {batch, heads, rows, num_keys});
}

nb::object ForwardOutputs::hand_out() {
  nb::list listed = outputs_.hand_out_listed();
  if (fingerprint_) listed.append(bytes_of(*fingerprint_));
  if (nb::len(listed) == 1) return listed[0];
  return nb::tuple(listed);
}

nb::dict ForwardOutputs::hand_out_named() {
  nb::dict named = outputs_.hand_out_named();
  named["context"] = named["out"];
  nb::del(named["out"]);
  if (fingerprint_) named["fingerprint"] = bytes_of(*fingerprint_);
  return named;
}

}  // namespace regard::python
