// SPDX-License-Identifier: Apache-2.0
//
// attention_backward_continued: the passes of attention_backward, starting from given sums.
// Read next: backward_pass.cpp.
#include "regard/attention_backward_continued.h"

#include <algorithm>

#include "backward_arguments.h"
#include "backward_pass.h"
#include "grad_bias.h"
#include "row_gradients.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kContinuedName = "attention_backward_continued";
static_assert(kBackwardRows == kernels::kRows);

// The starts of the ranges: each is the start of a sequence, or a whole number of rounds of all slots after it.
template <class T>
std::vector<Index> key_starts(const BackwardCall<T>& call, Index min_keys) {
  const Index round = round_keys(call);
  std::vector<Index> starts{0};
  for (const Sequence& sequence : call.r.sequences) {
    if (sequence.batch != 0) break;
    for (Index key = sequence.first_key; key < sequence.first_key + sequence.num_keys; key += round) {
      if (key - starts.back() >= std::max<Index>(1, min_keys)) starts.push_back(key);
    }
  }
  if (call.r.num_keys > starts.back() || starts.size() == 1) starts.push_back(call.r.num_keys);
  return starts;
}

template <class T>
void check_key_starts(const BackwardCall<T>& call, std::span<const Index> starts) {
  const std::vector<Index> allowed = key_starts(call, 1);
  const bool valid = starts.size() >= 2 && starts.front() == 0 && starts.back() == call.r.num_keys &&
                     std::is_sorted(starts.begin(), starts.end()) &&
                     std::includes(allowed.begin(), allowed.end(), starts.begin(), starts.end());
  if (!valid) reject(kContinuedName, "key_starts is invalid; expected starts from backward_key_starts");
}

// The gradients, with their types and shapes checked.
template <class T>
struct TypedContinuedGradients {
  TypedGradients<T> all;
  TensorView<double, 4> bias;
  TensorView<double, 1> sinks;

  explicit TypedContinuedGradients(const ContinuedGradients& g)
      : all({.grad_query = g.grad_query, .grad_key = g.key_sums, .grad_value = g.value_sums}),
        bias(typed<double>(kContinuedName, "bias_sums", g.bias_sums)),
        sinks(typed<double>(kContinuedName, "sink_sums", g.sink_sums)) {
    all.accumulate.grad_query = g.accumulate_query;
    typed<T>(kContinuedName, "key_sums", g.key_sums);
    typed<T>(kContinuedName, "value_sums", g.value_sums);
  }

  void check(const ResolvedAttention<T>& r, std::span<const Footprint> inputs) const {
    Footprints written;
    const auto check = [&](const char* name, const auto& view, const auto& shape) {
      expect_shape(kContinuedName, name, view, shape);
      if (!view.absent()) written.push_back(footprint(kContinuedName, name, view));
    };
    if (!all.query.absent())
      expect_type(kContinuedName, "grad_query", all.query.type, {kElementType<T>, r.query.type},
                  own_or_query(kElementType<T>, r.query.type).c_str());
    check("grad_query", all.query, r.query.shape);
    check("key_sums", all.key, r.key.shape);
    check("value_sums", all.value, r.value.shape);
    const std::array<Index, 4> full{r.batch, r.num_heads, r.num_queries, r.num_keys};
    std::array<Index, 4> bias_shape = full;
    for (std::size_t axis = 0; axis < 4; ++axis) bias_shape[axis] = bias.shape[axis] == 1 ? 1 : full[axis];
    if (!bias.absent() && r.bias.absent()) reject(kContinuedName, "bias_sums is given without bias; expected both");
    check("bias_sums", bias, bias_shape);
    if (!sinks.absent() && r.sinks.empty()) reject(kContinuedName, "sink_sums is given without sinks; expected both");
    check("sink_sums", sinks, std::array<Index, 1>{r.num_heads});
    check_overlap(kContinuedName, inputs, written);
  }
};

template <class T>
void continued_call(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                    const AttentionForwardState& given, const ContinuedGradients& requested,
                    const AttentionOptions& options, const Runtime& runtime) {
  const TypedContinuedGradients<T> gradients(requested);
  const AttentionCall call{kContinuedName, query, key, value, true};
  const ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  const TypedForwardState<T> saved(given);
  gradients.check(r, check_saved(call, r, saved, input_footprints(call, options)));
  const Workspace<T> delta(runtime, r.batch * r.num_heads * r.num_queries);
  fill_delta(r, saved, delta.data(), runtime);
  const BackwardCall<T> backward{r, saved, delta.data(), runtime};
  const std::array<Index, 2> all_keys{0, r.num_keys};
  const std::span<const Index> starts = requested.key_starts.empty() ? std::span(all_keys) : requested.key_starts;
  if (!requested.key_starts.empty()) check_key_starts(backward, starts);
  if (!gradients.sinks.absent() && !is_planning()) {
    const Workspace<double> sums(runtime, r.num_heads);
    for (Index h = 0; h < r.num_heads; ++h) sums.data()[h] = *gradients.sinks.pointer(h);
    add_sink_gradients(backward, sums.data());
    for (Index h = 0; h < r.num_heads; ++h) *gradients.sinks.pointer(h) = sums.data()[h];
  }
  if (!gradients.bias.absent()) add_bias_gradient(backward, gradients.bias);
  if (!gradients.all.query.data && !gradients.all.key.data && !gradients.all.value.data) return;
  const auto call_if_set = [](const std::function<void(Index)>& function) {
    return [&function](Index range) {
      if (function && !is_planning()) function(range);
    };
  };
  const std::function<void(Index)> before = call_if_set(requested.before_range);
  const std::function<void(Index)> after = call_if_set(requested.after_range);
  const KeyRanges ranges{starts, before, after};
  run_backward(backward, gradients.all, &ranges);
}

// T: the compute type; S: that of the gradient, T or double.
template <class T, class S>
void write_rows(const InputView<4>& gradient, const OutputView<4>& output, bool accumulate) {
  constexpr Index kNumbers = 256;
  for (Index b = 0; b < output.shape[0]; ++b) {
    for (Index h = 0; h < output.shape[1]; ++h) {
      for (Index i = 0; i < output.shape[2]; ++i) {
        for (Index first = 0; first < output.shape[3]; first += kNumbers) {
          const Index count = std::min(kNumbers, output.shape[3] - first);
          S numbers[kNumbers];
          T rounded[kNumbers];
          read_numbers(gradient.type, count, gradient.pointer(b, h, i, first), gradient.strides[3], numbers);
          for (Index n = 0; n < count; ++n) rounded[n] = static_cast<T>(numbers[n]);
          write_or_add_numbers(accumulate, output.type, count, rounded, output.pointer(b, h, i, first),
                               output.strides[3]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace internal

void attention_backward_continued(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                  const AttentionForwardState& saved, const ContinuedGradients& gradients,
                                  const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    internal::continued_call<T>(query, key, value, saved, gradients, options, runtime);
  });
}

std::vector<Index> backward_key_starts(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                       const AttentionForwardState& saved, const AttentionOptions& options,
                                       Index min_keys) {
  const internal::FloatingPointScope scope;
  std::vector<Index> starts;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{internal::kContinuedName, query, key, value, true};
    const internal::ResolvedAttention<T> r = internal::resolve<T>(call, options, {});
    const internal::TypedForwardState<T> typed_saved(saved);
    const Runtime runtime;
    starts = internal::key_starts(internal::BackwardCall<T>{r, typed_saved, nullptr, runtime}, min_keys);
  });
  return starts;
}

void write_gradient(const InputView<4>& gradient, const OutputView<4>& output, bool accumulate) {
  using enum ElementType;
  constexpr const char* kName = "write_gradient";
  internal::expect_type(kName, "gradient", gradient.type, {float32, float64}, "float32 or float64");
  internal::expect_type(kName, "output", output.type, {float32, float64, bfloat16, float16},
                        "float32, float64, bfloat16 or float16");
  if (gradient.type == float32 && output.type == float64)
    internal::reject(kName, "output has type float64; expected a type that is computed as float32, like gradient");
  internal::expect_shape(kName, "output", output, gradient.shape);
  internal::Footprints inputs, outputs;
  inputs.push_back(internal::footprint(kName, "gradient", gradient));
  outputs.push_back(internal::footprint(kName, "output", output));
  internal::check_overlap(kName, inputs, outputs);
  const internal::FloatingPointScope scope;
  if (output.type == float64) return internal::write_rows<double, double>(gradient, output, accumulate);
  gradient.type == float64 ? internal::write_rows<float, double>(gradient, output, accumulate)
                           : internal::write_rows<float, float>(gradient, output, accumulate);
}

}  // namespace regard::inline v0
