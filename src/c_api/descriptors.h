// SPDX-License-Identifier: Apache-2.0
//
// Common prologue and epilogue of the C functions: descriptors become views, structs become options, exceptions become
// codes. Checks here only cover what C++ types rule out (types, ranks, missing pointers, struct sizes); everything else
// is checked by the operators.
//
//     return status_of([=] {                                     converts an exception to its code
//       const auto q = required<InputView<4>>(name, "query", query);
//       run(name, runtime, [&](const Runtime& cpp_runtime) { … });  runs or plans the call
//     });
//
// Read next: descriptors.cpp, attention.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <stop_token>
#include <string>
#include <tuple>

#include "regard/attention.h"
#include "regard/c_api.h"
#include "regard/plan.h"
#include "tensor/checks.h"

struct regard_stop {
  std::stop_source source;
};

namespace regard::inline v0::internal {

// Stores the text for regard_last_error of this thread.
void remember(const char* text);

template <class Function>
std::int32_t status_of(Function function) noexcept {
  try {
    function();
    return REGARD_OK;
  } catch (const std::exception& error) {
    const ErrorCode code = error_code(error);
    // what() of std::bad_alloc is only the name of the type.
    remember(code == ErrorCode::out_of_memory ? "out of memory" : error.what());
    return static_cast<std::int32_t>(code);
  } catch (...) {
    remember("unknown exception");
    return REGARD_INTERNAL;
  }
}

// A caller's struct, of this version or of a later one whose additional fields are zero. Every struct begins with its
// size.
template <class Struct>
Struct read_struct(const char* operator_name, const char* name, const Struct* given) {
  if (given == nullptr) reject(operator_name, std::string(name) + " is NULL");
  const std::size_t size = given->struct_size;
  if (size < sizeof(Struct)) {
    reject(operator_name, std::string(name) + "->struct_size is " + std::to_string(size) + "; expected " +
                              std::to_string(sizeof(Struct)) + " or more");
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  const std::size_t known = std::min(size, sizeof(Struct));
  if (std::any_of(bytes + known, bytes + size, [](char byte) { return byte != 0; })) {
    reject(operator_name, std::string(name) + " sets a field that version " + std::string(version()) +
                              " does not have; expected zeros after its first " + std::to_string(sizeof(Struct)) +
                              " bytes");
  }
  Struct result{};
  std::memcpy(static_cast<void*>(&result), bytes, known);
  return result;
}

template <class Array>
bool is_given(const Array& array) {
  return array.data != nullptr || array.dtype != 0 || array.rank != 0 || array.shape != nullptr;
}

// An array that was not given becomes an absent view. Types are checked by the operator.
template <class View, class Array>
View view_of(const char* operator_name, const char* name, const Array& array) {
  if (!is_given(array)) return {};
  const auto type = static_cast<ElementType>(array.dtype);
  constexpr auto kRank = static_cast<std::int32_t>(std::tuple_size_v<typename View::Shape>);
  if (array.rank != kRank) {
    reject(operator_name,
           std::string(name) + " has rank " + std::to_string(array.rank) + "; expected " + std::to_string(kRank));
  }
  if (array.shape == nullptr) reject(operator_name, std::string(name) + " has no shape");
  typename View::Shape shape;
  std::copy_n(array.shape, kRank, shape.begin());
  typename View::Shape strides = dense_strides(shape);
  if (array.strides != nullptr) std::copy_n(array.strides, kRank, strides.begin());
  const View view(array.data, type, shape, strides);
  if (type_bytes(type) > 0) footprint(operator_name, name, view);  // otherwise the operator rejects it
  return view;
}

template <class View, class Array>
View required(const char* operator_name, const char* name, const Array* array) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is missing");
  return view_of<View>(operator_name, name, *array);
}

// A view with its type as a template parameter.
template <class T, int Rank>
TensorView<const T, Rank> typed_view(const char* operator_name, const char* name, const regard_input* array) {
  if (array == nullptr) return {};
  return typed<T>(operator_name, name, view_of<InputView<Rank>>(operator_name, name, *array));
}
template <class T, int Rank>
TensorView<T, Rank> typed_view(const char* operator_name, const char* name, const regard_output* array) {
  if (array == nullptr) return {};
  return typed<T>(operator_name, name, view_of<OutputView<Rank>>(operator_name, name, *array));
}

AttentionOptions options_of(const char* name, const regard_attention_options* given);

// Views of the outputs; a requested fingerprint is written to `made`.
AttentionOutputs outputs_of(const char* name, const regard_attention_outputs& o, AttentionFingerprint& made);

// Views of the partial results to write.
AttentionPartialOutputs partials_of(const char* name, const regard_partial_outputs* given);

// Copies the fingerprint to the caller: nothing if it was not requested or if the call was only planned.
void write_words(const AttentionFingerprint& made, std::uint32_t* words);

// Calls call(views) with views of the caller's outputs, then writes the fingerprint.
template <class Call>
void with_outputs(const char* name, const regard_attention_outputs* outputs, Call call) {
  const regard_attention_outputs o = read_struct(name, "outputs", outputs);
  AttentionFingerprint made;
  call(outputs_of(name, o, made));
  write_words(made, o.fingerprint);
}

// Scratch memory from the functions of a C program.
class CallersWorkspace final : public std::pmr::memory_resource {
 public:
  explicit CallersWorkspace(const regard_runtime& runtime) : runtime_(runtime) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  const regard_runtime& runtime_;
};

// The token of a stop object; of NULL, one that never requests a stop.
std::stop_token token_of(const regard_stop* stop);

// The Runtime for a caller's struct; it refers to both arguments.
Runtime runtime_of(const char* name, const regard_runtime& given, CallersWorkspace& workspace);

void write_plan(const Plan& plan, regard_plan& to);

// Runs call(runtime), or plans it.
template <class Call>
void run(const char* name, const regard_runtime* given, Call call) {
  if (given == nullptr) return call(Runtime{});
  const regard_runtime wanted = read_struct(name, "runtime", given);
  CallersWorkspace workspace(wanted);
  const Runtime runtime = runtime_of(name, wanted, workspace);
  if (wanted.plan == nullptr) return call(runtime);
  read_struct(name, "plan", wanted.plan);
  write_plan(plan(call, runtime), *wanted.plan);
}

// Runs call(runtime) for functions that cannot be planned.
template <class Call>
void run_unplanned(const char* name, const regard_runtime* given, Call call) {
  if (given != nullptr && read_struct(name, "runtime", given).plan != nullptr)
    reject(name, "runtime->plan is given; expected NULL: this function cannot be planned");
  run(name, given, call);
}

// Throws InvalidArgument if a flag other than these is set.
void check_accumulate(const char* name, std::int64_t accumulate, std::int64_t allowed);

}  // namespace regard::inline v0::internal
