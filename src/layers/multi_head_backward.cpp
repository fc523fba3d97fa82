// SPDX-License-Identifier: Apache-2.0
//
// multi_head_attention_backward: the linear layers and the attention of the forward pass, in reverse order.
//
//     grad_output ── linear ──▶ grad_context ── attention ──▶ grad_query, grad_key, grad_value ── linear ──▶ grad_input
//                       │                                                                           │
//                       ▼                                                                           ▼
//          grad_w_output, grad_b_output                                      gradients of the other parameters
//
// Products need rows (B·L, E): a tensor whose strides cannot join B and L is copied. Intermediate gradients are in
// workspace as (B, L, H·D). The first two steps write only there; every gradient is written after them.
// Read next: multi_head.cpp, linear_backward.cpp, attention/attention_backward.cpp.
#include "regard/multi_head_backward.h"

#include <array>
#include <optional>
#include <span>
#include <string>

#include "attention/arguments.h"
#include "attention/fingerprint.h"
#include "instantiate.h"
#include "multi_head_arguments.h"
#include "regard/linear_backward.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kMultiHeadBackward = "multi_head_attention_backward";

// (B, L, E) as (B·L, E), if strides allow it.
template <class T>
std::optional<TensorView<T, 2>> joined_rows(const TensorView<T, 3>& tensor) {
  const auto [batch, length, width] = tensor.shape;
  const auto stride = joined_stride(batch, tensor.strides[0], length, tensor.strides[1]);
  if (!stride) return std::nullopt;
  return TensorView<T, 2>{tensor.data, {batch * length, width}, {*stride, tensor.strides[2]}};
}

// A tensor in workspace, dense.
template <class T>
class BlockScratch {
 public:
  BlockScratch(const Runtime& runtime, const std::array<Index, 3>& shape, bool needed = true)
      : memory_(runtime, needed ? shape[0] * shape[1] * shape[2] : 0), tensor_(memory_.data(), shape) {}

  const TensorView<T, 3>& tensor() const { return tensor_; }
  TensorView<T, 4> heads(Index count, Index head_size) const { return split(tensor_, count, head_size); }
  TensorView<T, 2> rows() const { return {tensor_.data, {tensor_.shape[0] * tensor_.shape[1], tensor_.shape[2]}}; }

 private:
  Workspace<T> memory_;
  TensorView<T, 3> tensor_;
};

// The rows (B·L, E) of a tensor: the tensor itself, or a copy.
template <class T>
class InputRows {
 public:
  // Of (B, L, E).
  InputRows(const Runtime& runtime, const TensorView<const T, 3>& tensor)
      : InputRows(runtime, tensor, split(tensor, 1, tensor.shape[2])) {}
  // Of the joined heads of (B, H, L, D).
  InputRows(const Runtime& runtime, const TensorView<const T, 4>& heads)
      : InputRows(runtime, join_heads(heads), heads) {}

  const TensorView<const T, 2>& view() const { return view_; }

 private:
  InputRows(const Runtime& runtime, const TensorView<const T, 3>& joined, const TensorView<const T, 4>& heads)
      : copies_(joined.absent() || !joined_rows(joined)),
        copy_(runtime, {heads.shape[0], heads.shape[2], heads.shape[1] * heads.shape[3]}, copies_),
        view_(copies_ ? TensorView<const T, 2>(copy_.rows()) : *joined_rows(joined)) {
    if (copies_) copy_heads<T>(heads, copy_.heads(heads.shape[1], heads.shape[3]), runtime);
  }

  bool copies_;
  BlockScratch<T> copy_;
  TensorView<const T, 2> view_;
};

// A gradient (B, L, E) that is a sum of `terms` products, each written or added by linear_backward as rows: directly in
// the caller's view, or in workspace, from where finish() writes it.
template <class T>
class SummedGradient {
 public:
  SummedGradient(const Runtime& runtime, const TensorView<T, 3>& target, bool accumulate, int terms)
      : target_(target),
        accumulate_(accumulate),
        direct_(joined_rows(target) && !(accumulate && terms > 1)),
        sum_(runtime, target.shape, !direct_),
        rows_(direct_ ? *joined_rows(target) : sum_.rows()),
        adds_next_(direct_ && accumulate) {}

  // Sets the gradient of the input of a linear layer to the next term.
  void take(LinearGradients<T>& linear) {
    if (target_.absent()) return;
    linear.grad_input = rows_;
    linear.accumulate.grad_input = adds_next_;
    adds_next_ = true;
  }

  void finish(const Runtime& runtime) const {
    if (direct_) return;
    const auto [batch, length, width] = target_.shape;
    constexpr double kElementProducts = 10;  // an element takes as long as this many products
    const int workers = num_workers(runtime, batch * length, kElementProducts * static_cast<double>(target_.size()));
    for_each_item(runtime, workers, batch * length, [&](Index row, int) {
      write_or_add_numbers(accumulate_, kElementType<T>, width, rows_.pointer(row, 0),
                           target_.pointer(row / length, row % length, 0), target_.strides[2]);
    });
  }

 private:
  TensorView<T, 3> target_;
  bool accumulate_;
  bool direct_;
  BlockScratch<T> sum_;
  TensorView<T, 2> rows_;
  bool adds_next_;
};

template <class T>
void check_state(const MultiHeadShapes& s, const MultiHeadForwardState<T>& saved,
                 const TensorView<const T, 3>& grad_output, Footprints& inputs) {
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    if (view.shape != shape) {
      reject(kMultiHeadBackward, std::string(name) +
                                     (view.absent() ? " is missing" : " has shape " + shape_text(view.shape)) +
                                     "; expected " + shape_text(shape));
    }
    inputs.push_back(footprint(kMultiHeadBackward, name, view));
  };
  check("query", saved.query, std::array{s.batch, s.heads, s.length, s.head_size});
  check("key", saved.key, std::array{s.batch, s.key_heads, s.keys, s.head_size});
  check("value", saved.value, std::array{s.batch, s.key_heads, s.keys, s.value_head_size});
  check("context", saved.context, std::array{s.batch, s.heads, s.length, s.value_head_size});
  check("row_max", saved.row_max, std::array{s.batch, s.heads, s.length});
  check("row_sum", saved.row_sum, std::array{s.batch, s.heads, s.length});
  check("grad_output", grad_output, std::array{s.batch, s.length, s.width});
}

template <class T>
void check_multi_head_gradients(const MultiHeadShapes& s, const TensorView<const T, 3>& input,
                                const TensorView<const T, 3>& memory, const MultiHeadParameters<T>& parameters,
                                const MultiHeadGradients<T>& gradients, std::span<const Footprint> inputs) {
  Footprints written;
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(kMultiHeadBackward, name, view, shape);
    if (!view.absent()) written.push_back(footprint(kMultiHeadBackward, name, view));
  };
  const auto only_with = [](const char* name, const auto& view, const char* other, const auto& needed) {
    if (view.absent() || !needed.absent()) return;
    reject(kMultiHeadBackward, std::string(name) + " is given without " + other + "; expected both or neither");
  };
  only_with("grad_memory", gradients.grad_memory, "memory", memory);
  only_with("grad_w_output", gradients.grad_w_output, "w_output", parameters.w_output);
  only_with("grad_b_output", gradients.grad_b_output, "w_output", parameters.w_output);
  check("grad_input", gradients.grad_input, input.shape);
  check("grad_memory", gradients.grad_memory, memory.shape);
  check("grad_w_query", gradients.grad_w_query, parameters.w_query.shape);
  check("grad_w_key", gradients.grad_w_key, parameters.w_key.shape);
  check("grad_w_value", gradients.grad_w_value, parameters.w_value.shape);
  check("grad_w_output", gradients.grad_w_output, parameters.w_output.shape);
  check("grad_b_query", gradients.grad_b_query, std::array{parameters.w_query.shape[1]});
  check("grad_b_key", gradients.grad_b_key, std::array{parameters.w_key.shape[1]});
  check("grad_b_value", gradients.grad_b_value, std::array{parameters.w_value.shape[1]});
  check("grad_b_output", gradients.grad_b_output, std::array{s.width});
  check_overlap(kMultiHeadBackward, inputs, written);
  const Index group = gradients.rows_per_group;
  const auto reject_group = [&](const std::string& expected) {
    reject(kMultiHeadBackward, "rows_per_group is " + std::to_string(group) + "; expected " + expected);
  };
  if (group < 0) reject_group("at least 0");
  if (!memory.absent() && s.length > 0 && group % s.length != 0)
    reject_group("a multiple of the " + std::to_string(s.length) + " queries, because memory is given");
}

}  // namespace
}  // namespace internal

template <class T>
void multi_head_attention_backward(std::type_identity_t<TensorView<const T, 3>> input,
                                   std::type_identity_t<TensorView<const T, 3>> memory,
                                   const std::type_identity_t<MultiHeadParameters<T>>& parameters,
                                   const std::type_identity_t<MultiHeadForwardState<T>>& saved,
                                   std::type_identity_t<TensorView<const T, 3>> grad_output,
                                   const std::type_identity_t<MultiHeadGradients<T>>& gradients,
                                   const AttentionOptions& options, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const TensorView<const T, 3> source = memory.absent() ? input : memory;
  const MultiHeadShapes s = check_multi_head_shapes(kMultiHeadBackward, input, source, parameters);
  const AttentionCall attention{kMultiHeadBackward, saved.query, saved.key, saved.value, true};
  Footprints inputs = input_footprints({kMultiHeadBackward, {}, {}, {}, true}, options);
  check_state(s, saved, grad_output, inputs);
  check_fingerprint(kMultiHeadBackward, resolve<T>(attention, options, runtime), saved.fingerprint);
  for (const auto& [name, view] : {std::pair{"input", input}, {"memory", memory}}) {
    if (!view.absent()) inputs.push_back(footprint(kMultiHeadBackward, name, view));
  }
  for (const auto& [name, view] : {std::pair{"w_query", parameters.w_query},
                                   {"w_key", parameters.w_key},
                                   {"w_value", parameters.w_value},
                                   {"w_output", parameters.w_output}}) {
    if (!view.absent()) inputs.push_back(footprint(kMultiHeadBackward, name, view));
  }
  check_multi_head_gradients<T>(s, input, memory, parameters, gradients, inputs);

  // Which gradients of attention are needed.
  const MultiHeadAccumulation& accumulate = gradients.accumulate;
  const bool for_source = !(memory.absent() ? gradients.grad_input : gradients.grad_memory).absent();
  const bool for_query =
      !gradients.grad_input.absent() || !gradients.grad_w_query.absent() || !gradients.grad_b_query.absent();
  const bool for_key = for_source || !gradients.grad_w_key.absent() || !gradients.grad_b_key.absent();
  const bool for_value = for_source || !gradients.grad_w_value.absent() || !gradients.grad_b_value.absent();
  const bool for_attention = for_query || for_key || for_value;

  const bool has_projection = !parameters.w_output.absent();
  const InputRows<T> output_rows(runtime, grad_output);
  const Index joined = s.heads * s.value_head_size;
  const BlockScratch<T> grad_context(runtime, {s.batch, s.length, joined}, has_projection && for_attention);
  const BlockScratch<T> grad_query(runtime, {s.batch, s.length, s.heads * s.head_size}, for_query);
  const BlockScratch<T> grad_key(runtime, {s.batch, s.keys, s.key_heads * s.head_size}, for_key);
  const BlockScratch<T> grad_value(runtime, {s.batch, s.keys, s.key_heads * s.value_head_size}, for_value);
  if (for_attention) {
    if (has_projection)
      linear_backward<T>({}, parameters.w_output, output_rows.view(), {.grad_input = grad_context.rows()}, runtime);
    AttentionForwardState state{.context = saved.context, .row_max = saved.row_max, .row_sum = saved.row_sum};
    state.grad_context =
        split(has_projection ? TensorView<const T, 3>(grad_context.tensor()) : grad_output, s.heads, s.value_head_size);
    state.fingerprint = kUncheckedFingerprint;
    AttentionGradients of_attention;
    if (for_query) of_attention.grad_query = grad_query.heads(s.heads, s.head_size);
    if (for_key) of_attention.grad_key = grad_key.heads(s.key_heads, s.head_size);
    if (for_value) of_attention.grad_value = grad_value.heads(s.key_heads, s.value_head_size);
    attention_backward(saved.query, saved.key, saved.value, state, of_attention, options, runtime);
  }

  const Index group = gradients.rows_per_group;
  if (!gradients.grad_w_output.absent() || !gradients.grad_b_output.absent()) {
    const InputRows<T> context(runtime, saved.context);
    linear_backward<T>(context.view(), {}, output_rows.view(),
                       {.grad_weight = gradients.grad_w_output,
                        .grad_bias = gradients.grad_b_output,
                        .accumulate = {.grad_weight = accumulate.grad_w_output, .grad_bias = accumulate.grad_b_output},
                        .rows_per_group = group},
                       runtime);
  }
  if (!for_attention) return;
  const Index source_group = memory.absent() || s.length == 0 ? group : group / s.length * s.keys;
  SummedGradient<T> of_input(runtime, gradients.grad_input, accumulate.grad_input, memory.absent() ? 3 : 1);
  SummedGradient<T> of_memory(runtime, gradients.grad_memory, accumulate.grad_memory, 2);
  SummedGradient<T>& of_source = memory.absent() ? of_input : of_memory;
  const InputRows<T> input_rows(runtime, input);
  const InputRows<T> memory_rows(runtime, memory);
  const auto project = [&](const InputRows<T>& rows, const TensorView<const T, 2>& weight, const BlockScratch<T>& grad,
                           SummedGradient<T>& sum, LinearGradients<T> linear) {
    sum.take(linear);
    linear_backward<T>(rows.view(), weight, grad.rows(), linear, runtime);
  };
  const InputRows<T>& source_rows = memory.absent() ? input_rows : memory_rows;
  if (for_query) {
    project(input_rows, parameters.w_query, grad_query, of_input,
            {.grad_weight = gradients.grad_w_query,
             .grad_bias = gradients.grad_b_query,
             .accumulate = {.grad_weight = accumulate.grad_w_query, .grad_bias = accumulate.grad_b_query},
             .rows_per_group = group});
  }
  if (for_key) {
    project(source_rows, parameters.w_key, grad_key, of_source,
            {.grad_weight = gradients.grad_w_key,
             .grad_bias = gradients.grad_b_key,
             .accumulate = {.grad_weight = accumulate.grad_w_key, .grad_bias = accumulate.grad_b_key},
             .rows_per_group = source_group});
  }
  if (for_value) {
    project(source_rows, parameters.w_value, grad_value, of_source,
            {.grad_weight = gradients.grad_w_value,
             .grad_bias = gradients.grad_b_value,
             .accumulate = {.grad_weight = accumulate.grad_w_value, .grad_bias = accumulate.grad_b_value},
             .rows_per_group = source_group});
  }
  of_input.finish(runtime);
  of_memory.finish(runtime);
}

REGARD_INSTANTIATE_COMPUTE(multi_head_attention_backward);

}  // namespace regard::inline v0
