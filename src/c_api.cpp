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

namespace regard::inline v0::internal {
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

// A caller's struct, whatever version of it the caller was compiled with; what that version lacks is zero. Every struct
// begins with its size.
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
  if (type_bytes(type) > 0) footprint(operator_name, name, view);  // else the operator rejects it
  return view;
}

template <class View, class Array>
View required(const char* operator_name, const char* name, const Array* array) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is not given");
  return view_of<View>(operator_name, name, *array);
}

AttentionOptions options_of(const char* name, const regard_attention_options* given) {
  AttentionOptions options;
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
      options.query_offset = view_of<InputView<1>>(name, "query_offsets", o.query_offsets);
      break;
    default:
      reject(name, "query_offset_kind is " + std::to_string(o.query_offset_kind) + "; expected 0 to 4");
  }
  if (o.has_window_left != 0) options.window.left = o.window_left;
  if (o.has_window_right != 0) options.window.right = o.window_right;
  options.key_lengths = view_of<InputView<1>>(name, "key_lengths", o.key_lengths);
  options.query_starts = view_of<InputView<1>>(name, "query_starts", o.query_starts);
  options.key_starts = view_of<InputView<1>>(name, "key_starts", o.key_starts);
  options.query_segments = view_of<InputView<2>>(name, "query_segments", o.query_segments);
  options.key_segments = view_of<InputView<2>>(name, "key_segments", o.key_segments);
  options.prefix = view_of<InputView<1>>(name, "prefix", o.prefix);
  options.block_mask = view_of<InputView<4>>(name, "block_mask", o.block_mask);
  options.block_size = {o.block_size[0], o.block_size[1]};
  options.mask = view_of<InputView<4>>(name, "mask", o.mask);
  options.bias = view_of<InputView<4>>(name, "bias", o.bias);
  options.alibi_slopes = view_of<InputView<1>>(name, "alibi_slopes", o.alibi_slopes);
  options.sinks = view_of<InputView<1>>(name, "sinks", o.sinks);
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

// Calls function(T{}) for the type of a linear layer's first argument.
template <class Function>
void with_type_of(const char* operator_name, const char* name, const regard_input* array, Function function) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is not given");
  if (array->dtype == REGARD_F32) return function(float{});
  if (array->dtype == REGARD_F64) return function(double{});
  if (array->dtype == REGARD_BF16) return function(bfloat16{});
  reject(operator_name, std::string(name) + " has type " + element_type_text(static_cast<ElementType>(array->dtype)) +
                            "; expected float32, float64 or bfloat16");
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

AttentionFingerprint fingerprint_of(const regard_attention_saved& saved) {
  AttentionFingerprint fingerprint;
  if (saved.fingerprint != nullptr) std::copy_n(saved.fingerprint, fingerprint.words.size(), fingerprint.words.begin());
  return fingerprint;
}

// Nothing where none is asked for, or none was made because the call was planned.
void write_words(const AttentionFingerprint& made, std::uint32_t* words) {
  static_assert(std::tuple_size_v<decltype(made.words)> == REGARD_FINGERPRINT_WORDS);
  if (words != nullptr && made != AttentionFingerprint{}) std::ranges::copy(made.words, words);
}

// A fingerprint is made in `made`.
AttentionOutputs outputs_of(const char* name, const regard_attention_outputs& o, AttentionFingerprint& made) {
  AttentionOutputs views;
  views.context = required<OutputView<4>>(name, "context", &o.context);
  views.row_max = view_of<OutputView<3>>(name, "row_max", o.row_max);
  views.row_sum = view_of<OutputView<3>>(name, "row_sum", o.row_sum);
  views.lse = view_of<OutputView<3>>(name, "lse", o.lse);
  views.weights = view_of<OutputView<4>>(name, "weights", o.weights);
  views.sink_weights = view_of<OutputView<3>>(name, "sink_weights", o.sink_weights);
  if (o.fingerprint != nullptr) views.fingerprint = &made;
  return views;
}

}  // namespace
}  // namespace regard::inline v0::internal

using namespace regard;
using namespace regard::internal;

const char* regard_version(void) { return version().data(); }

const char* regard_last_error(void) { return last_error; }

int32_t regard_attention_options_init(regard_attention_options* options, size_t struct_size) {
  return status_of([=] {
    const char* name = "attention_options_init";
    if (options == nullptr) reject(name, "options is NULL");
    if (struct_size < sizeof(regard_attention_options)) {
      reject(name, "struct_size is " + std::to_string(struct_size) + "; expected " + std::to_string(sizeof(size_t)) +
                       " or more");
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
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_attention_outputs o = read_struct(name, "outputs", outputs);
    AttentionFingerprint made;
    const AttentionOutputs views = outputs_of(name, o, made);
    run(name, runtime, [&](const Runtime& how) {
      attention_forward(q, required<InputView<4>>(name, "key", key), required<InputView<4>>(name, "value", value),
                        views, options_of(name, options), how);
    });
    write_words(made, o.fingerprint);
  });
}

int32_t regard_attention_with_statistics(const regard_input* query, const regard_input* key, const regard_input* value,
                                         const regard_attention_outputs* outputs,
                                         const regard_attention_statistics* statistics,
                                         const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_with_statistics";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_attention_outputs o = read_struct(name, "outputs", outputs);
    const regard_attention_statistics s = read_struct(name, "statistics", statistics);
    if (s.chosen_origin != REGARD_FROM_KEY_ZERO && s.chosen_origin != REGARD_FROM_POSITION)
      reject(name, "chosen_origin is " + std::to_string(s.chosen_origin) + "; expected 0 or 1");
    const AttentionStatistics asked{
        .chosen_keys = view_of<InputView<1>>(name, "chosen_keys", s.chosen_keys),
        .chosen_ranges = view_of<InputView<3>>(name, "chosen_ranges", s.chosen_ranges),
        .chosen_origin = s.chosen_origin == REGARD_FROM_POSITION ? ChosenOrigin::position : ChosenOrigin::key_zero,
        .top_keys = view_of<OutputView<4>>(name, "top_keys", s.top_keys),
        .top_weights = view_of<OutputView<4>>(name, "top_weights", s.top_weights),
        .entropy = view_of<OutputView<3>>(name, "entropy", s.entropy),
        .largest_weight = view_of<OutputView<3>>(name, "largest_weight", s.largest_weight),
        .chosen_weight = view_of<OutputView<3>>(name, "chosen_weight", s.chosen_weight),
        .mean_distance = view_of<OutputView<3>>(name, "mean_distance", s.mean_distance),
        .head_entropy = view_of<OutputView<2>>(name, "head_entropy", s.head_entropy),
        .head_largest_weight = view_of<OutputView<2>>(name, "head_largest_weight", s.head_largest_weight),
        .head_chosen_weight = view_of<OutputView<2>>(name, "head_chosen_weight", s.head_chosen_weight),
        .head_mean_distance = view_of<OutputView<2>>(name, "head_mean_distance", s.head_mean_distance)};
    AttentionFingerprint made;
    const AttentionOutputs views = outputs_of(name, o, made);
    run(name, runtime, [&](const Runtime& how) {
      attention_with_statistics(q, required<InputView<4>>(name, "key", key),
                                required<InputView<4>>(name, "value", value), views, asked, options_of(name, options),
                                how);
    });
    write_words(made, o.fingerprint);
  });
}

int32_t regard_attention_backward(const regard_input* query, const regard_input* key, const regard_input* value,
                                  const regard_attention_saved* saved, const regard_attention_gradients* gradients,
                                  const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_backward";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_attention_saved s = read_struct(name, "saved", saved);
    const regard_attention_gradients g = read_struct(name, "gradients", gradients);
    const AttentionForwardState given{.context = view_of<InputView<4>>(name, "context", s.context),
                                      .row_max = view_of<InputView<3>>(name, "row_max", s.row_max),
                                      .row_sum = view_of<InputView<3>>(name, "row_sum", s.row_sum),
                                      .grad_context = view_of<InputView<4>>(name, "grad_context", s.grad_context),
                                      .grad_lse = view_of<InputView<3>>(name, "grad_lse", s.grad_lse),
                                      .fingerprint = fingerprint_of(s)};
    const AttentionGradients views{.grad_query = view_of<OutputView<4>>(name, "grad_query", g.grad_query),
                                   .grad_key = view_of<OutputView<4>>(name, "grad_key", g.grad_key),
                                   .grad_value = view_of<OutputView<4>>(name, "grad_value", g.grad_value),
                                   .grad_bias = view_of<OutputView<4>>(name, "grad_bias", g.grad_bias),
                                   .grad_sinks = view_of<OutputView<1>>(name, "grad_sinks", g.grad_sinks)};
    run(name, runtime, [&](const Runtime& how) {
      attention_backward(q, required<InputView<4>>(name, "key", key), required<InputView<4>>(name, "value", value),
                         given, views, options_of(name, options), how);
    });
  });
}

int32_t regard_attention_columns(const regard_input* query, const regard_input* key,
                                 const regard_columns_request* request, const regard_columns_outputs* outputs,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_columns";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_columns_request r = read_struct(name, "request", request);
    const regard_columns_outputs o = read_struct(name, "outputs", outputs);
    if (r.cells != REGARD_MEANS && r.cells != REGARD_SUMS)
      reject(name, "cells is " + std::to_string(r.cells) + "; expected 0 (means) or 1 (sums)");
    const ColumnsRequest asked{.row_max = view_of<InputView<3>>(name, "row_max", r.row_max),
                               .row_sum = view_of<InputView<3>>(name, "row_sum", r.row_sum),
                               .cells = r.cells == REGARD_SUMS ? CoarseCells::sums : CoarseCells::means};
    const AttentionColumns views{.key_mass = view_of<OutputView<3>>(name, "key_mass", o.key_mass),
                                 .pooled_map = view_of<OutputView<4>>(name, "pooled_map", o.pooled_map)};
    run(name, runtime, [&](const Runtime& how) {
      attention_columns(q, required<InputView<4>>(name, "key", key), asked, views, options_of(name, options), how);
    });
  });
}

int32_t regard_attention_weights(const regard_input* query, const regard_input* key,
                                 const regard_weights_request* request, const regard_output* output,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_weights";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_weights_request r = read_struct(name, "request", request);
    if (r.kind != REGARD_WEIGHTS && r.kind != REGARD_SCORES)
      reject(name, "kind is " + std::to_string(r.kind) + "; expected 0 (weights) or 1 (scores)");
    const auto pairs = typed_view<Index, 2>(name, "rows", &r.rows);
    if (!pairs.absent() && pairs.shape[1] != 2)
      reject(name, "rows has shape " + shape_text(pairs.shape) + "; expected (n, 2)");
    std::vector<RowRange> rows(static_cast<std::size_t>(pairs.shape[0]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].begin = internal::read_element(pairs.pointer(static_cast<Index>(i), 0));
      rows[i].end = internal::read_element(pairs.pointer(static_cast<Index>(i), 1));
    }
    const WeightsRequest views{.row_max = view_of<InputView<3>>(name, "row_max", r.row_max),
                               .row_sum = view_of<InputView<3>>(name, "row_sum", r.row_sum),
                               .rows = rows,
                               .kind = r.kind == REGARD_SCORES ? WeightsKind::scores : WeightsKind::weights};
    run(name, runtime, [&](const Runtime& how) {
      attention_weights(q, required<InputView<4>>(name, "key", key), views,
                        required<OutputView<4>>(name, "output", output), options_of(name, options), how);
    });
  });
}

int32_t regard_linear_forward(const regard_input* input, const regard_input* weight, const regard_input* bias,
                              const regard_output* output, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_forward";
    with_type_of(name, "input", input, [=]<class T>(T) {
      if (weight == nullptr || !is_given(*weight)) reject(name, "weight is not given");
      if (output == nullptr || !is_given(*output)) reject(name, "output is not given");
      const auto forward = [&]<class O>(O) {
        run(name, runtime, [&](const Runtime& how) {
          linear_forward(typed_view<T, 2>(name, "input", input), typed_view<T, 2>(name, "weight", weight),
                         typed_view<T, 1>(name, "bias", bias), typed_view<O, 2>(name, "output", output), how);
        });
      };
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (output->dtype == REGARD_F32) return forward(float{});
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
      run(name, runtime, [&](const Runtime& how) {
        linear_backward<T>(typed_view<T, 2>(name, "input", input), typed_view<T, 2>(name, "weight", weight),
                           typed_view<T, 2>(name, "grad_output", grad_output),
                           {.grad_input = typed_view<T, 2>(name, "grad_input", grad_input),
                            .grad_weight = typed_view<T, 2>(name, "grad_weight", grad_weight),
                            .grad_bias = typed_view<T, 1>(name, "grad_bias", grad_bias)},
                           how);
      });
    });
  });
}
