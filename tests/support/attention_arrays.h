// SPDX-License-Identifier: Apache-2.0
//
// Inputs and outputs of attention_forward with their memory:
//
//     AttentionArrays<float> outputs = run_attention(AttentionInputs<float>::normal(seed, L, S, D));
//
// Read next: attention_checks.h.
#pragma once

#include <optional>

#include "arrays.h"

namespace regard {

// Every output of one call; absent ones are not requested.
template <class T>
struct AttentionArrays {
  Array<T, 4> context;
  std::optional<Array<ComputeType<T>, 3>> row_max, row_sum, lse, sink_weights;
  std::optional<Array<ComputeType<T>, 4>> weights;

  AttentionOutputs views() {
    AttentionOutputs outputs{.context = context.view()};
    if (row_max) outputs.row_max = row_max->view();
    if (row_sum) outputs.row_sum = row_sum->view();
    if (lse) outputs.lse = lse->view();
    if (sink_weights) outputs.sink_weights = sink_weights->view();
    if (weights) outputs.weights = weights->view();
    return outputs;
  }
  // All outputs, or all except the weights, dense.
  static AttentionArrays dense(Index B, Index H, Index L, Index S, Index Dv, bool with_weights = true) {
    AttentionArrays arrays;
    arrays.context = Array<T, 4>({B, H, L, Dv});
    for (auto* rows : {&arrays.row_max, &arrays.row_sum, &arrays.lse, &arrays.sink_weights}) {
      *rows = Array<ComputeType<T>, 3>({B, H, L});
    }
    if (with_weights) arrays.weights = Array<ComputeType<T>, 4>({B, H, L, S});
    return arrays;
  }
};

// Query, key and value of one call.
template <class T>
struct AttentionInputs {
  Array<T, 4> query, key, value;

  static AttentionInputs normal(std::uint64_t seed, Index B, Index H, Index Hkv, Index L, Index S, Index D, Index Dv) {
    Random random(seed);
    AttentionInputs inputs;
    inputs.query = normal_array<T, 4>(random, {B, H, L, D});
    inputs.key = normal_array<T, 4>(random, {B, Hkv, S, D});
    inputs.value = normal_array<T, 4>(random, {B, Hkv, S, Dv});
    return inputs;
  }
  // One head of everything, which suffices for most clauses.
  static AttentionInputs normal(std::uint64_t seed, Index L, Index S, Index D) {
    return normal(seed, 1, 1, 1, L, S, D, D);
  }
};

// One call with all outputs.
template <class T>
AttentionArrays<T> run_attention(const Array<T, 4>& query, const Array<T, 4>& key, const Array<T, 4>& value,
                                 const AttentionOptions& options = {}, const Runtime& runtime = {}) {
  AttentionArrays<T> outputs =
      AttentionArrays<T>::dense(query.shape()[0], query.shape()[1], query.shape()[2], key.shape()[2], value.shape()[3]);
  attention_forward(query.view(), key.view(), value.view(), outputs.views(), options, runtime);
  return outputs;
}

template <class T>
AttentionArrays<T> run_attention(const AttentionInputs<T>& inputs, const AttentionOptions& options = {},
                                 const Runtime& runtime = {}) {
  return run_attention<T>(inputs.query, inputs.key, inputs.value, options, runtime);
}

// The bits of every output, one after another.
template <class T>
std::vector<std::uint64_t> all_bits(const AttentionArrays<T>& outputs) {
  std::vector<std::uint64_t> bits = bits_of(outputs.context);
  const auto append = [&](const auto& array) {
    if (!array) return;
    const auto more = bits_of(*array);
    bits.insert(bits.end(), more.begin(), more.end());
  };
  append(outputs.row_max);
  append(outputs.row_sum);
  append(outputs.lse);
  append(outputs.sink_weights);
  append(outputs.weights);
  return bits;
}

}  // namespace regard
