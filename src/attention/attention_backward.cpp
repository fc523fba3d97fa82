// SPDX-License-Identifier: Apache-2.0
//
// attention_backward: the checks of its arguments, and its computations in order.
//
//   delta of every row                       row_gradients.h
//   grad_sinks                               row_gradients.h
//   grad_bias                                grad_bias.h
//   grad_query, grad_key, grad_value         backward_pass.h
//
// Read next: backward_pass.cpp.
#include "regard/attention_backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "backward_arguments.h"
#include "backward_pass.h"
#include "fingerprint.h"
#include "grad_bias.h"
#include "plan.h"
#include "row_gradients.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

#ifndef NDEBUG
// Throws std::invalid_argument if row_max and row_sum give a row whose weights sum to more than 1, which means that
// they come from a different call. A sum below 1 is valid: these keys may be a subset of those in the forward pass.
template <class T>
void check_weights(const AttentionCall& call, const ResolvedAttention<T>& r, const TypedForwardState<T>& saved,
                   const AttentionOptions& options, const Runtime& runtime) {
  constexpr T kMaxWeightSum = static_cast<T>(1.0625);  // allows for rounding errors of other implementations
  const Index rows = r.batch * r.num_heads * r.num_queries;
  const Workspace<T> numbers(runtime, rows * (r.value_head_size + 2));
  const TensorView<T, 4> context(numbers.data(), {r.batch, r.num_heads, r.num_queries, r.value_head_size});
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  const TensorView<T, 3> row_max(numbers.data() + rows * r.value_head_size, shape), row_sum(row_max.data + rows, shape);
  const PlanSuspension unnamed;
  const Runtime aside{.executor = runtime.executor,
                      .num_threads = runtime.num_threads,
                      .workspace = runtime.workspace,
                      .stop = runtime.stop};
  attention_forward(call.query, call.key, call.value, {.context = context, .row_max = row_max, .row_sum = row_sum},
                    options, aside);
  if (is_planning()) return;
  for (Index b = 0; b < r.batch; ++b) {
    for (Index h = 0; h < r.num_heads; ++h) {
      for (Index i = 0; i < r.num_queries; ++i) {
        const T scale = std::exp(*row_max.pointer(b, h, i) - read_element(saved.row_max.pointer(b, h, i)));
        const T sum = scale * *row_sum.pointer(b, h, i) / read_element(saved.row_sum.pointer(b, h, i));
        if (sum > kMaxWeightSum) {
          reject(kBackwardName, "row_max and row_sum make the weights of row (" + std::to_string(b) + ", " +
                                    std::to_string(h) + ", " + std::to_string(i) + ") sum to " + std::to_string(sum) +
                                    "; expected the values that attention_forward wrote for the same call");
        }
      }
    }
  }
}
#endif

template <class T>
void write_sinks(const BackwardCall<T>& call, const TensorView<T, 1>& output, bool accumulate) {
  const Index heads = call.r.num_heads;
  const Workspace<double> sums(call.runtime, heads);
  if (!is_planning()) std::fill_n(sums.data(), heads, 0.0);
  add_sink_gradients(call, sums.data());
  for (Index h = 0; h < heads && !is_planning(); ++h) {
    const T rounded = static_cast<T>(sums.data()[h]);
    write_or_add_numbers(accumulate, kElementType<T>, 1, &rounded, output.pointer(h), 1);
  }
}

template <class T>
void backward_call(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                   const AttentionForwardState& given, const AttentionGradients& requested,
                   const AttentionOptions& options, const Runtime& runtime) {
  const TypedGradients<T> gradients(requested);
  const AttentionCall call{kBackwardName, query, key, value, true, gradients.type()};
  const ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  const TypedForwardState<T> saved(given);
  check_gradients(r, gradients, check_saved(call, r, saved, input_footprints(call, options)));
  check_fingerprint(kBackwardName, r, given.fingerprint);
  if (is_planning()) {
    plan_backward(kBackwardName, r,
                  view_bytes(gradients.query) + view_bytes(gradients.key) + view_bytes(gradients.value) +
                      view_bytes(gradients.bias) + view_bytes(gradients.sinks));
  }
#ifndef NDEBUG
  check_weights(call, r, saved, options, runtime);
#endif
  const Workspace<T> delta(runtime, r.batch * r.num_heads * r.num_queries);
  fill_delta(r, saved, delta.data(), runtime);
  const BackwardCall<T> backward{r, saved, delta.data(), runtime};
  const AttentionAccumulation& accumulate = gradients.accumulate;
  if (!gradients.sinks.absent()) write_sinks(backward, gradients.sinks, accumulate.grad_sinks);
  if (!gradients.bias.absent()) write_bias_gradient(backward, gradients.bias, accumulate.grad_bias);
  if (gradients.query.data || gradients.key.data || gradients.value.data) run_backward(backward, gradients);
}

}  // namespace
}  // namespace internal

void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                        const AttentionForwardState& saved, const AttentionGradients& gradients,
                        const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    internal::backward_call<T>(query, key, value, saved, gradients, options, runtime);
  });
}

}  // namespace regard::inline v0
