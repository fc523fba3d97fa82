// SPDX-License-Identifier: Apache-2.0
//
// multi_head_attention_forward: three projections, attention, one projection.
//
//     input (B, L, E)  ── linear ──▶ query (B, H, L, D)   ─┐
//     memory (B, S, E) ── linear ──▶ key   (B, Hkv, S, D)  ├─ attention ─▶ joined (B, L, H·Dv) ── linear ──▶ output
//                      ── linear ──▶ value (B, Hkv, S, Dv)─┘
//
// Heads are split and joined by strides. Intermediate results that the caller did not request are in workspace as (B,
// L, H·D), so that one product computes all heads of all batch entries. If a caller's layout cannot be viewed as such a
// matrix, it is written head by head and batch entry by batch entry, with the same bits.
// Read next: linear.cpp, attention_forward.cpp.
#include "regard/multi_head.h"

#include <array>
#include <span>
#include <string>

#include "attention/arguments.h"
#include "instantiate.h"
#include "multi_head_arguments.h"
#include "regard/linear.h"
#include "runtime/workspace.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kMultiHeadAttentionForward = "multi_head_attention_forward";

// output[b, l] = input[b, l] · parameters + bias: one product if strides can join B and L, otherwise one per b.
template <class T>
void project(const TensorView<const T, 3>& input, const TensorView<const T, 2>& parameters,
             const TensorView<const T, 1>& bias, const TensorView<T, 3>& output, const Runtime& runtime) {
  const Index batch = input.shape[0];
  const Index length = input.shape[1];
  const auto rows = [&](const auto& view) { return joined_stride(batch, view.strides[0], length, view.strides[1]); };
  const auto input_row = rows(input);
  const auto output_row = rows(output);
  const bool joined = input_row && output_row;
  const Index num_rows = joined ? batch * length : length;
  for (Index b = 0; b < (joined ? 1 : batch); ++b) {
    linear_forward<T>({input.data + b * input.strides[0],
                       {num_rows, input.shape[2]},
                       {joined ? *input_row : input.strides[1], input.strides[2]}},
                      parameters, bias,
                      {output.data + b * output.strides[0],
                       {num_rows, output.shape[2]},
                       {joined ? *output_row : output.strides[1], output.strides[2]}},
                      runtime);
  }
}

// The same, with the output split into heads.
template <class T>
void project_heads(const TensorView<const T, 3>& input, const TensorView<const T, 2>& parameters,
                   const TensorView<const T, 1>& bias, const TensorView<T, 4>& output, const Runtime& runtime) {
  if (const auto joined = join_heads(output); !joined.absent())
    return project(input, parameters, bias, joined, runtime);
  const auto& [batch, heads, length, head_size] = output.shape;
  for (Index h = 0; h < heads; ++h) {
    const Index column = h * head_size;
    TensorView<const T, 1> head_bias = bias;
    if (!bias.absent()) head_bias = {bias.data + column * bias.strides[0], {head_size}, bias.strides};
    project<T>(input,
               {parameters.data + column * parameters.strides[1], {parameters.shape[0], head_size}, parameters.strides},
               head_bias,
               {output.data + h * output.strides[1],
                {batch, length, head_size},
                {output.strides[0], output.strides[2], output.strides[3]}},
               runtime);
  }
}

template <class T>
void check_outputs(const MultiHeadShapes& s, const MultiHeadOutputs<T>& outputs, std::span<const Footprint> inputs) {
  if (outputs.output.shape != std::array{s.batch, s.length, s.width}) {
    reject(kMultiHeadAttentionForward, "output has shape " + shape_text(outputs.output.shape) + "; expected " +
                                           shape_text(std::array{s.batch, s.length, s.width}));
  }
  Footprints written;
  written.push_back(footprint(kMultiHeadAttentionForward, "output", outputs.output));
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(kMultiHeadAttentionForward, name, view, shape);
    if (!view.absent()) written.push_back(footprint(kMultiHeadAttentionForward, name, view));
  };
  check("query", outputs.query, std::array{s.batch, s.heads, s.length, s.head_size});
  check("key", outputs.key, std::array{s.batch, s.key_heads, s.keys, s.head_size});
  check("value", outputs.value, std::array{s.batch, s.key_heads, s.keys, s.value_head_size});
  check("context", outputs.context, std::array{s.batch, s.heads, s.length, s.value_head_size});
  check("row_max", outputs.row_max, std::array{s.batch, s.heads, s.length});
  check("row_sum", outputs.row_sum, std::array{s.batch, s.heads, s.length});
  check("weights", outputs.weights, std::array{s.batch, s.heads, s.length, s.keys});
  check_overlap(kMultiHeadAttentionForward, inputs, written);
}

// The caller's view, or a view of workspace in the layout (B, length, heads · head_size).
template <class T>
class Intermediate {
 public:
  Intermediate(const Runtime& runtime, const TensorView<T, 4>& requested, bool use_requested,
               const std::array<Index, 4>& shape)
      : memory_(runtime, use_requested ? 0 : shape[0] * shape[1] * shape[2] * shape[3]) {
    const auto [batch, heads, length, head_size] = shape;
    view = use_requested ? requested : split<T>({memory_.data(), {batch, length, heads * head_size}}, heads, head_size);
  }
  TensorView<T, 4> view;

 private:
  Workspace<T> memory_;
};

}  // namespace
}  // namespace internal

template <class T>
void multi_head_attention_forward(std::type_identity_t<TensorView<const T, 3>> input,
                                  std::type_identity_t<TensorView<const T, 3>> memory,
                                  const std::type_identity_t<MultiHeadParameters<T>>& parameters,
                                  const MultiHeadOutputs<T>& outputs, const AttentionOptions& options,
                                  const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const TensorView<const T, 3> source = memory.absent() ? input : memory;
  const MultiHeadShapes s = check_multi_head_shapes(kMultiHeadAttentionForward, input, source, parameters);
  const std::array<Index, 4> query_shape{s.batch, s.heads, s.length, s.head_size};
  const std::array<Index, 4> key_shape{s.batch, s.key_heads, s.keys, s.head_size};
  const std::array<Index, 4> value_shape{s.batch, s.key_heads, s.keys, s.value_head_size};
  const std::array<Index, 4> context_shape{s.batch, s.heads, s.length, s.value_head_size};

  // Anything that attention_forward would reject after the projections is rejected here, before anything is written.
  const auto shaped = [](const std::array<Index, 4>& shape) { return TensorView<const T, 4>(nullptr, shape); };
  resolve<T>({kMultiHeadAttentionForward, shaped(query_shape), shaped(key_shape), shaped(value_shape), true}, options,
             runtime);
  Footprints inputs = input_footprints({kMultiHeadAttentionForward, {}, {}, {}, true}, options);
  const auto add = [&inputs](const char* name, const auto& view) {
    if (!view.absent()) inputs.push_back(footprint(kMultiHeadAttentionForward, name, view));
  };
  add("input", input);
  add("memory", memory);
  add("w_query", parameters.w_query);
  add("w_key", parameters.w_key);
  add("w_value", parameters.w_value);
  add("w_output", parameters.w_output);
  add("b_query", parameters.b_query);
  add("b_key", parameters.b_key);
  add("b_value", parameters.b_value);
  add("b_output", parameters.b_output);
  check_outputs(s, outputs, inputs);
  // Checks sizes only: for inputs without elements, any extent would otherwise pass.
  for (const auto& shape : {query_shape, key_shape, value_shape, context_shape}) {
    footprint(kMultiHeadAttentionForward, "a projection", &s, shape, dense_strides(shape), sizeof(T));
  }

  const Intermediate<T> query(runtime, outputs.query, !outputs.query.absent(), query_shape);
  const Intermediate<T> key(runtime, outputs.key, !outputs.key.absent(), key_shape);
  const Intermediate<T> value(runtime, outputs.value, !outputs.value.absent(), value_shape);
  // Attention writes directly into the output if there is no output projection, and into the caller's context if that
  // can be viewed as the joined matrix.
  const bool has_projection = !parameters.w_output.absent();
  const bool in_context = has_projection && !join_heads(outputs.context).absent();
  const TensorView<T, 4> in_output = split(outputs.output, s.heads, s.value_head_size);
  const Intermediate<T> context(runtime, in_context ? outputs.context : in_output, in_context || !has_projection,
                                context_shape);

  project_heads(input, parameters.w_query, parameters.b_query, query.view, runtime);
  project_heads(source, parameters.w_key, parameters.b_key, key.view, runtime);
  project_heads(source, parameters.w_value, parameters.b_value, value.view, runtime);
  AttentionOutputs attention;
  attention.context = context.view;
  attention.row_max = outputs.row_max;
  attention.row_sum = outputs.row_sum;
  attention.weights = outputs.weights;
  attention.fingerprint = outputs.fingerprint;
  attention_forward(query.view, key.view, value.view, attention, options, runtime);
  if (!outputs.context.absent() && !in_context) copy_heads<T>(context.view, outputs.context, runtime);
  if (has_projection) {
    project<T>(join_heads(context.view), parameters.w_output, parameters.b_output, outputs.output, runtime);
  }
}

REGARD_INSTANTIATE_COMPUTE(multi_head_attention_forward);

}  // namespace regard::inline v0
