// SPDX-License-Identifier: Apache-2.0
//
// A multi-head attention block on (B, L, E): project, split into heads, attend, join, project back.
//
//     query = X · W_query + b_query → (B, H, L, D)      key, value likewise from X (or from another sequence)
//     context = attention(query, key, value)            (B, H, L, Dv)
//     output = join(context) · W_output + b_output      (B, L, E_out)
//
// Vaswani et al., arXiv 1706.03762, section 3.2.2. Splitting and joining are strides: nothing is copied.
// Read next: attention.h, src/layers/multi_head.cpp.
#pragma once

#include "regard/attention.h"

namespace regard::inline v0 {

// Head h owns columns h·D … (h + 1)·D − 1 of W_query, and ⌊h / (H / Hkv)⌋ those of W_key and W_value.
template <class T>
struct MultiHeadParameters {
  Index num_heads = 1;
  Index num_kv_heads = 0;             // 0: num_heads
  TensorView<const T, 2> w_query{};   // (E, H·D)
  TensorView<const T, 2> w_key{};     // (E_kv, Hkv·D)
  TensorView<const T, 2> w_value{};   // (E_kv, Hkv·Dv)
  TensorView<const T, 2> w_output{};  // (H·Dv, E_out); absent: output is the joined context (B, L, H·Dv)
  TensorView<const T, 1> b_query{};   // (H·D), or absent; likewise the others
  TensorView<const T, 1> b_key{};
  TensorView<const T, 1> b_value{};
  TensorView<const T, 1> b_output{};
};

// Everything but output is optional; what is given is written on the way, with the bits used for output.
template <class T>
struct MultiHeadOutputs {
  TensorView<T, 3> output{};   // (B, L, E_out)
  TensorView<T, 4> query{};    // (B, H, L, D)
  TensorView<T, 4> key{};      // (B, Hkv, S, D)
  TensorView<T, 4> value{};    // (B, Hkv, S, Dv)
  TensorView<T, 4> context{};  // (B, H, L, Dv)
  TensorView<T, 3> row_max{};  // (B, H, L)
  TensorView<T, 3> row_sum{};  // (B, H, L)
  TensorView<T, 4> weights{};  // (B, H, L, S)
};

//   input (B, L, E); memory (B, S, E_kv) is what key and value are made of, absent: input (self-attention).
// Throws std::invalid_argument before any work; afterwards only std::bad_alloc and regard::Cancelled.
template <class T>
REGARD_EXPORT void multi_head_attention_forward(std::type_identity_t<TensorView<const T, 3>> input,
                                                std::type_identity_t<TensorView<const T, 3>> memory,
                                                const std::type_identity_t<MultiHeadParameters<T>>& parameters,
                                                const MultiHeadOutputs<T>& outputs,
                                                const AttentionOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
