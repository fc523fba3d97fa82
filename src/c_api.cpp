// SPDX-License-Identifier: Apache-2.0
//
// The C interface: descriptors become views, status codes replace exceptions. What is checked here is what C++ types
// rule out (types, ranks, missing pointers, sizes of structs); all else is checked by the operators.
// Read next: arguments.cpp.
#include "regard/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "regard/linear_backward.h"
#include "regard/plan.h"
#include "tensor/checks.h"
#include "tensor/strided_copy.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

// Not a std::string: a thread-local object with a destructor would keep the library from being unloaded.
constexpr std::size_t kErrorBytes = 2048;
thread_local char last_error[kErrorBytes];

void remember(const char* text) {
  std::size_t length = std::min(std::strlen(text), kErrorBytes - 1);
  if (length == kErrorBytes - 1) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;  // whole UTF-8 characters
  }
  std::memcpy(last_error, text, length);
  last_error[length] = '\0';
}

template <class Function>
std::int32_t status_of(Function function) noexcept {
  try {
    function();
    return REGARD_OK;
  } catch (const std::invalid_argument& error) {
    remember(error.what());
    return REGARD_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    remember("out of memory");
    return REGARD_OUT_OF_MEMORY;
  } catch (const std::length_error&) {
    remember("out of memory: a size is beyond what can be addressed");
    return REGARD_OUT_OF_MEMORY;
  } catch (const Cancelled& error) {
    remember(error.what());
    return REGARD_CANCELLED;
  } catch (const std::exception& error) {
    remember(error.what());
    return REGARD_INTERNAL;
  } catch (...) {
    remember("unknown exception");
    return REGARD_INTERNAL;
  }
}

std::string type_text(std::int32_t dtype) {
  constexpr const char* kNames[] = {"none", "f32", "f64", "bool", "i32", "i64", "bf16", "f16"};
  return dtype >= 0 && dtype < 8 ? kNames[dtype] : "number " + std::to_string(dtype);
}

template <class T>
constexpr std::int32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return REGARD_F32;
  if constexpr (std::is_same_v<T, double>) return REGARD_F64;
  if constexpr (std::is_same_v<T, bool>) return REGARD_BOOL;
  if constexpr (std::is_same_v<T, std::int32_t>) return REGARD_I32;
  if constexpr (std::is_same_v<T, std::int64_t>) return REGARD_I64;
  if constexpr (std::is_same_v<T, bfloat16>) return REGARD_BF16;
  if constexpr (std::is_same_v<T, float16>) return REGARD_F16;
}

// The size of a struct in the first version that had it.
template <class Struct>
inline constexpr std::size_t kFirstBytes = sizeof(Struct);
template <>
inline constexpr std::size_t kFirstBytes<regard_attention_options> =
    offsetof(regard_attention_options, weights_in_float32);
template <>
inline constexpr std::size_t kFirstBytes<regard_attention_outputs> = offsetof(regard_attention_outputs, fingerprint);
template <>
inline constexpr std::size_t kFirstBytes<regard_attention_saved> = offsetof(regard_attention_saved, fingerprint);
template <>
inline constexpr std::size_t kFirstBytes<regard_attention_statistics> =
    offsetof(regard_attention_statistics, chosen_ranges);
template <>
inline constexpr std::size_t kFirstBytes<regard_runtime> = offsetof(regard_runtime, plan);

// A caller's struct, whatever version of it the caller was compiled with; what that version lacks is zero.
template <class Struct>
Struct read_struct(const char* operator_name, const char* name, const Struct* given) {
  if (given == nullptr) reject(operator_name, std::string(name) + " is NULL");
  const std::size_t size = given->struct_size;
  if (size < kFirstBytes<Struct>) {
    reject(operator_name, std::string(name) + "->struct_size is " + std::to_string(size) + "; expected " +
                              std::to_string(kFirstBytes<Struct>) + " or more");
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  const std::size_t known = std::min(size, sizeof(Struct));
  if (std::any_of(bytes + known, bytes + size, [](char byte) { return byte != 0; })) {
    reject(operator_name, std::string(name) + " sets a field that version " + std::string(version()) +
                              " does not know; expected zeros after its first " + std::to_string(sizeof(Struct)) +
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

// An array that was not given becomes an absent view.
template <class T, int Rank, class Array>
TensorView<T, Rank> view_of(const char* operator_name, const char* name, const Array& array) {
  if (!is_given(array)) return {};
  constexpr std::int32_t kType = dtype_of<std::remove_const_t<T>>();
  if (array.dtype != kType) {
    reject(operator_name, std::string(name) + " has type " + type_text(array.dtype) + "; expected " + type_text(kType));
  }
  if (array.rank != Rank) {
    reject(operator_name,
           std::string(name) + " has rank " + std::to_string(array.rank) + "; expected " + std::to_string(Rank));
  }
  if (array.shape == nullptr) reject(operator_name, std::string(name) + " has no shape");
  TensorView<T, Rank> view;
  view.data = static_cast<T*>(array.data);
  std::copy_n(array.shape, Rank, view.shape.begin());
  view.strides = dense_strides(view.shape);
  if (array.strides != nullptr) std::copy_n(array.strides, Rank, view.strides.begin());
  footprint(operator_name, name, view);
  return view;
}

template <class T, int Rank, class Array>
TensorView<T, Rank> required(const char* operator_name, const char* name, const Array* array) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is not given");
  return view_of<T, Rank>(operator_name, name, *array);
}

// Numbers that are computed with as T.
template <class T, int Rank>
InputView<T, Rank> numbers_of(const char* operator_name, const char* name, const regard_input* array) {
  if constexpr (std::is_same_v<T, float>) {
    if (array != nullptr && array->dtype == REGARD_BF16)
      return view_of<const bfloat16, Rank>(operator_name, name, *array);
    if (array != nullptr && array->dtype == REGARD_F16)
      return view_of<const float16, Rank>(operator_name, name, *array);
    if (array != nullptr && is_given(*array) && array->dtype != REGARD_F32) {
      reject(operator_name, std::string(name) + " has type " + type_text(array->dtype) + "; expected f32, bf16 or f16");
    }
  }
  return required<const T, Rank>(operator_name, name, array);
}

template <class T>
std::span<const T> span_of(const char* operator_name, const char* name, const regard_input& array) {
  const auto view = view_of<const T, 1>(operator_name, name, array);
  if (view.shape[0] > 1 && view.strides[0] != 1) {
    reject(operator_name, std::string(name) + " has stride " + std::to_string(view.strides[0]) + "; expected 1");
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % alignof(T) != 0) {
    reject(operator_name, std::string(name) + " is not aligned to its type");
  }
  return {view.data, static_cast<std::size_t>(view.shape[0])};
}

template <class T>
AttentionOptions<T> options_of(const char* name, const regard_attention_options* given) {
  AttentionOptions<T> options;
  if (given == nullptr) return options;
  const regard_attention_options o = read_struct(name, "options", given);
  options.causal = o.causal != 0;
  switch (o.query_offset_kind) {
    case REGARD_OFFSET_NOT_NAMED:
      break;
    case REGARD_OFFSET_TOP_LEFT:
      options.query_offset = QueryAlignment::top_left;
      break;
    case REGARD_OFFSET_BOTTOM_RIGHT:
      options.query_offset = QueryAlignment::bottom_right;
      break;
    case REGARD_OFFSET_NUMBER:
      options.query_offset = o.query_offset;
      break;
    case REGARD_OFFSET_NUMBERS:
      options.query_offset = span_of<Index>(name, "query_offsets", o.query_offsets);
      break;
    default:
      reject(name, "query_offset_kind is " + std::to_string(o.query_offset_kind) + "; expected 0 to 4");
  }
  if (o.has_window_left != 0) options.window.left = o.window_left;
  if (o.has_window_right != 0) options.window.right = o.window_right;
  options.key_lengths = span_of<Index>(name, "key_lengths", o.key_lengths);
  options.query_starts = span_of<Index>(name, "query_starts", o.query_starts);
  options.key_starts = span_of<Index>(name, "key_starts", o.key_starts);
  options.query_segments = view_of<const std::int32_t, 2>(name, "query_segments", o.query_segments);
  options.key_segments = view_of<const std::int32_t, 2>(name, "key_segments", o.key_segments);
  options.prefix = span_of<Index>(name, "prefix", o.prefix);
  options.block_mask = view_of<const bool, 4>(name, "block_mask", o.block_mask);
  options.block_size = {o.block_size[0], o.block_size[1]};
  options.mask = view_of<const bool, 4>(name, "mask", o.mask);
  const auto bias = [&]<class E>(E) { options.bias = view_of<const E, 4>(name, "bias", o.bias); };
  switch (o.bias.dtype) {
    case REGARD_F64:
      bias(double{});
      break;
    case REGARD_BF16:
      bias(bfloat16{});
      break;
    case REGARD_F16:
      bias(float16{});
      break;
    default:
      bias(float{});
  }
  options.alibi_slopes = span_of<T>(name, "alibi_slopes", o.alibi_slopes);
  options.sinks = span_of<T>(name, "sinks", o.sinks);
  if (o.has_soft_cap != 0) options.soft_cap = o.soft_cap;
  if (o.has_scale != 0) options.scale = o.scale;
  if (o.weights_in_float32 < -1 || o.weights_in_float32 > 1)
    reject(name, "options->weights_in_float32 is " + std::to_string(o.weights_in_float32) + "; expected -1, 0 or 1");
  if (o.weights_in_float32 != 0) options.weights_in_float32 = o.weights_in_float32 > 0;
  options.dropout = o.dropout;
  options.dropout_seed = o.dropout_seed;
  return options;
}

template <std::size_t size>
void copy_text(const std::string& from, char (&to)[size]) {
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

void write_plan(const Plan& plan, regard_plan& to) {
  to = {};
  to.struct_size = sizeof to;
  to.workspace_bytes = plan.workspace_bytes;
  std::string ways;
  for (const PlannedOperator& planned : plan.operators) {
    to.operations += planned.operations;
    to.bytes += planned.bytes;
    to.num_threads = std::max<std::int64_t>(to.num_threads, planned.num_threads);
    ways += (ways.empty() ? "" : "\n") + planned.name + ": " + planned.way;
  }
  copy_text(plan.instruction_set, to.instruction_set);
  copy_text(plan.why, to.why);
  copy_text(ways, to.way);
}

// Calls call(runtime), or plans it.
template <class Call>
void run(const char* name, const regard_runtime* given, Call call) {
  Runtime runtime;
  if (given == nullptr) return call(runtime);
  const regard_runtime wanted = read_struct(name, "runtime", given);
  constexpr std::int64_t kLowest = std::numeric_limits<int>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<int>::max();
  runtime.num_threads = static_cast<int>(std::clamp(wanted.num_threads, kLowest, kHighest));
  if (wanted.plan == nullptr) return call(runtime);
  read_struct(name, "plan", wanted.plan);
  write_plan(plan(call, runtime), *wanted.plan);
}

// Calls function(T{}) for the type of the operator's first argument.
template <class Function>
void with_type_of(const char* operator_name, const char* name, const regard_input* array, Function function) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is not given");
  if (array->dtype == REGARD_F32) return function(float{});
  if (array->dtype == REGARD_F64) return function(double{});
  if (array->dtype == REGARD_BF16) return function(bfloat16{});
  reject(operator_name, std::string(name) + " has type " + type_text(array->dtype) + "; expected f32, f64 or bf16");
}

// Calls function(T{}) for the type that attention computes with.
template <class Function>
void with_compute_type_of(const char* operator_name, const char* name, const regard_input* array, Function function) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is not given");
  if (array->dtype == REGARD_F64) return function(double{});
  if (array->dtype == REGARD_F32 || array->dtype == REGARD_BF16 || array->dtype == REGARD_F16) return function(float{});
  reject(operator_name,
         std::string(name) + " has type " + type_text(array->dtype) + "; expected f32, f64, bf16 or f16");
}

// Calls function(C{}) for the type of a context that is computed as T.
template <class T, class Function>
void with_context_type(const regard_output& context, Function function) {
  if constexpr (std::is_same_v<T, float>) {
    if (context.dtype == REGARD_BF16) return function(bfloat16{});
    if (context.dtype == REGARD_F16) return function(float16{});
  }
  function(T{});
}

// A caller compiled before there were fingerprints has none to compare.
AttentionFingerprint fingerprint_of(const regard_attention_saved& saved) {
  if (saved.struct_size <= offsetof(regard_attention_saved, fingerprint)) return kUncheckedFingerprint;
  AttentionFingerprint fingerprint;
  if (saved.fingerprint != nullptr) std::copy_n(saved.fingerprint, fingerprint.words.size(), fingerprint.words.begin());
  return fingerprint;
}

// Nothing where none is asked for, or none was made because the call was planned.
void write_words(const AttentionFingerprint& made, std::uint32_t* words) {
  static_assert(std::tuple_size_v<decltype(made.words)> == REGARD_FINGERPRINT_WORDS);
  if (words != nullptr && made != AttentionFingerprint{}) std::ranges::copy(made.words, words);
}

// Of a context of C, computed as T; a fingerprint is made in `made`.
template <class T, class C>
AttentionOutputs<C> outputs_of(const char* name, const regard_attention_outputs& o, AttentionFingerprint& made) {
  AttentionOutputs<C> views;
  views.context = required<C, 4>(name, "context", &o.context);
  views.row_max = view_of<T, 3>(name, "row_max", o.row_max);
  views.row_sum = view_of<T, 3>(name, "row_sum", o.row_sum);
  views.lse = view_of<T, 3>(name, "lse", o.lse);
  views.weights = view_of<T, 4>(name, "weights", o.weights);
  views.sink_weights = view_of<T, 3>(name, "sink_weights", o.sink_weights);
  if (o.fingerprint != nullptr) views.fingerprint = &made;
  return views;
}

}  // namespace
}  // namespace internal
}  // namespace v0
}  // namespace regard

using namespace regard;
using namespace regard::internal;

const char* regard_version(void) { return version().data(); }

const char* regard_last_error(void) { return last_error; }

int32_t regard_attention_options_init(regard_attention_options* options, size_t struct_size) {
  return status_of([=] {
    const char* name = "attention_options_init";
    if (options == nullptr) reject(name, "options is NULL");
    if (struct_size < kFirstBytes<regard_attention_options>) {
      reject(name, "struct_size is " + std::to_string(struct_size) + "; expected " +
                       std::to_string(kFirstBytes<regard_attention_options>) + " or more");
    }
    std::memset(static_cast<void*>(options), 0, struct_size);
    options->struct_size = struct_size;
  });
}

int32_t regard_attention_forward(const regard_input* query, const regard_input* key, const regard_input* value,
                                 const regard_attention_outputs* outputs, const regard_attention_options* options,
                                 const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_forward";
    with_compute_type_of(name, "query", query, [=]<class T>(T) {
      const regard_attention_outputs o = read_struct(name, "outputs", outputs);
      with_context_type<T>(o.context, [=]<class C>(C) {
        AttentionFingerprint made;
        const auto views = outputs_of<T, C>(name, o, made);
        run(name, runtime, [&](const Runtime& how) {
          attention_forward<C>(numbers_of<T, 4>(name, "query", query), numbers_of<T, 4>(name, "key", key),
                               numbers_of<T, 4>(name, "value", value), views, options_of<T>(name, options), how);
        });
        write_words(made, o.fingerprint);
      });
    });
  });
}

int32_t regard_attention_with_statistics(const regard_input* query, const regard_input* key, const regard_input* value,
                                         const regard_attention_outputs* outputs,
                                         const regard_attention_statistics* statistics,
                                         const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_with_statistics";
    with_compute_type_of(name, "query", query, [=]<class T>(T) {
      const regard_attention_outputs o = read_struct(name, "outputs", outputs);
      const regard_attention_statistics s = read_struct(name, "statistics", statistics);
      AttentionStatistics<T> asked;
      asked.chosen_keys = span_of<Index>(name, "chosen_keys", s.chosen_keys);
      asked.chosen_ranges = view_of<const Index, 3>(name, "chosen_ranges", s.chosen_ranges);
      if (s.chosen_origin != REGARD_FROM_KEY_ZERO && s.chosen_origin != REGARD_FROM_POSITION)
        reject(name, "chosen_origin is " + std::to_string(s.chosen_origin) + "; expected 0 or 1");
      asked.chosen_origin = s.chosen_origin == REGARD_FROM_POSITION ? ChosenOrigin::position : ChosenOrigin::key_zero;
      asked.top_keys = view_of<Index, 4>(name, "top_keys", s.top_keys);
      asked.top_weights = view_of<T, 4>(name, "top_weights", s.top_weights);
      asked.entropy = view_of<T, 3>(name, "entropy", s.entropy);
      asked.largest_weight = view_of<T, 3>(name, "largest_weight", s.largest_weight);
      asked.chosen_weight = view_of<T, 3>(name, "chosen_weight", s.chosen_weight);
      asked.mean_distance = view_of<T, 3>(name, "mean_distance", s.mean_distance);
      asked.head_entropy = view_of<T, 2>(name, "head_entropy", s.head_entropy);
      asked.head_largest_weight = view_of<T, 2>(name, "head_largest_weight", s.head_largest_weight);
      asked.head_chosen_weight = view_of<T, 2>(name, "head_chosen_weight", s.head_chosen_weight);
      asked.head_mean_distance = view_of<T, 2>(name, "head_mean_distance", s.head_mean_distance);
      with_context_type<T>(o.context, [=]<class C>(C) {
        AttentionFingerprint made;
        const auto views = outputs_of<T, C>(name, o, made);
        run(name, runtime, [&](const Runtime& how) {
          attention_with_statistics<C>(numbers_of<T, 4>(name, "query", query), numbers_of<T, 4>(name, "key", key),
                                       numbers_of<T, 4>(name, "value", value), views, asked,
                                       options_of<T>(name, options), how);
        });
        write_words(made, o.fingerprint);
      });
    });
  });
}

int32_t regard_attention_backward(const regard_input* query, const regard_input* key, const regard_input* value,
                                  const regard_attention_saved* saved, const regard_attention_gradients* gradients,
                                  const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_backward";
    with_compute_type_of(name, "query", query, [=]<class T>(T) {
      const regard_attention_saved s = read_struct(name, "saved", saved);
      const regard_attention_gradients g = read_struct(name, "gradients", gradients);
      AttentionForwardState<T> given;
      given.context = numbers_of<T, 4>(name, "context", &s.context);
      given.row_max = view_of<const T, 3>(name, "row_max", s.row_max);
      given.row_sum = view_of<const T, 3>(name, "row_sum", s.row_sum);
      given.grad_context = numbers_of<T, 4>(name, "grad_context", &s.grad_context);
      given.grad_lse = view_of<const T, 3>(name, "grad_lse", s.grad_lse);
      given.fingerprint = fingerprint_of(s);
      const regard_output& typed = is_given(g.grad_query) ? g.grad_query
                                   : is_given(g.grad_key) ? g.grad_key
                                                          : g.grad_value;
      with_context_type<T>(typed, [&]<class G>(G) {
        AttentionGradients<G> views;
        views.grad_query = view_of<G, 4>(name, "grad_query", g.grad_query);
        views.grad_key = view_of<G, 4>(name, "grad_key", g.grad_key);
        views.grad_value = view_of<G, 4>(name, "grad_value", g.grad_value);
        views.grad_bias = view_of<T, 4>(name, "grad_bias", g.grad_bias);
        views.grad_sinks = view_of<T, 1>(name, "grad_sinks", g.grad_sinks);
        run(name, runtime, [&](const Runtime& how) {
          attention_backward<G>(numbers_of<T, 4>(name, "query", query), numbers_of<T, 4>(name, "key", key),
                                numbers_of<T, 4>(name, "value", value), given, views, options_of<T>(name, options),
                                how);
        });
      });
    });
  });
}

int32_t regard_attention_columns(const regard_input* query, const regard_input* key,
                                 const regard_columns_request* request, const regard_columns_outputs* outputs,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_columns";
    with_compute_type_of(name, "query", query, [=]<class T>(T) {
      const regard_columns_request r = read_struct(name, "request", request);
      const regard_columns_outputs o = read_struct(name, "outputs", outputs);
      if (r.cells != REGARD_MEANS && r.cells != REGARD_SUMS) {
        reject(name, "cells is " + std::to_string(r.cells) + "; expected 0 (means) or 1 (sums)");
      }
      ColumnsRequest<T> asked;
      asked.row_max = view_of<const T, 3>(name, "row_max", r.row_max);
      asked.row_sum = view_of<const T, 3>(name, "row_sum", r.row_sum);
      asked.cells = r.cells == REGARD_SUMS ? CoarseCells::sums : CoarseCells::means;
      AttentionColumns<T> views;
      views.key_mass = view_of<T, 3>(name, "key_mass", o.key_mass);
      views.pooled_map = view_of<T, 4>(name, "pooled_map", o.pooled_map);
      run(name, runtime, [&](const Runtime& how) {
        attention_columns<T>(numbers_of<T, 4>(name, "query", query), numbers_of<T, 4>(name, "key", key), asked, views,
                             options_of<T>(name, options), how);
      });
    });
  });
}

int32_t regard_attention_weights(const regard_input* query, const regard_input* key,
                                 const regard_weights_request* request, const regard_output* output,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_weights";
    with_compute_type_of(name, "query", query, [=]<class T>(T) {
      const regard_weights_request r = read_struct(name, "request", request);
      if (r.kind != REGARD_WEIGHTS && r.kind != REGARD_SCORES) {
        reject(name, "kind is " + std::to_string(r.kind) + "; expected 0 (weights) or 1 (scores)");
      }
      const auto pairs = view_of<const Index, 2>(name, "rows", r.rows);
      if (!pairs.absent() && pairs.shape[1] != 2) {
        reject(name, "rows has shape " + shape_text(pairs.shape) + "; expected (n, 2)");
      }
      std::vector<RowRange> rows(static_cast<std::size_t>(pairs.shape[0]));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].begin = internal::read_element(pairs.pointer(static_cast<Index>(i), 0));
        rows[i].end = internal::read_element(pairs.pointer(static_cast<Index>(i), 1));
      }
      WeightsRequest<T> views;
      views.row_max = view_of<const T, 3>(name, "row_max", r.row_max);
      views.row_sum = view_of<const T, 3>(name, "row_sum", r.row_sum);
      views.rows = rows;
      views.kind = r.kind == REGARD_SCORES ? WeightsKind::scores : WeightsKind::weights;
      run(name, runtime, [&](const Runtime& how) {
        attention_weights<T>(numbers_of<T, 4>(name, "query", query), numbers_of<T, 4>(name, "key", key), views,
                             required<T, 4>(name, "output", output), options_of<T>(name, options), how);
      });
    });
  });
}

int32_t regard_linear_forward(const regard_input* input, const regard_input* weight, const regard_input* bias,
                              const regard_output* output, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_forward";
    with_type_of(name, "input", input, [=]<class T>(T) {
      const TensorView<const T, 1> addend =
          bias == nullptr ? TensorView<const T, 1>() : view_of<const T, 1>(name, "bias", *bias);
      const auto forward = [&]<class O>(O) {
        run(name, runtime, [&](const Runtime& how) {
          linear_forward(required<const T, 2>(name, "input", input), required<const T, 2>(name, "weight", weight),
                         addend, required<O, 2>(name, "output", output), how);
        });
      };
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (output != nullptr && output->dtype == REGARD_F32) return forward(float{});
      }
      forward(T{});
    });
  });
}

int32_t regard_linear_backward(const regard_input* input, const regard_input* weight, const regard_input* grad_output,
                               const regard_output* grad_input, const regard_output* grad_weight,
                               const regard_output* grad_bias, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_backward";
    with_type_of(name, "grad_output", grad_output, [=]<class T>(T) {
      const auto matrix = [=](const char* title, const regard_input* array) {
        return array == nullptr ? TensorView<const T, 2>() : view_of<const T, 2>(name, title, *array);
      };
      LinearGradients<T> views;
      if (grad_input != nullptr) views.grad_input = view_of<T, 2>(name, "grad_input", *grad_input);
      if (grad_weight != nullptr) views.grad_weight = view_of<T, 2>(name, "grad_weight", *grad_weight);
      if (grad_bias != nullptr) views.grad_bias = view_of<T, 1>(name, "grad_bias", *grad_bias);
      run(name, runtime, [&](const Runtime& how) {
        linear_backward<T>(matrix("input", input), matrix("weight", weight),
                           required<const T, 2>(name, "grad_output", grad_output), views, how);
      });
    });
  });
}
