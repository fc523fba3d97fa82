// SPDX-License-Identifier: Apache-2.0
//
// Further lines, for sets that are compared with each other and have no pinned hashes: activations, rotary and token
// embeddings, multi-head blocks, attention statistics, 16-bit inputs.
// Read next: golden_operators.h, ../wasm/bits_test.py.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "golden_attention.h"
#include "golden_lines.h"
#include "regard/activation.h"
#include "regard/attention_statistics.h"
#include "regard/embedding.h"
#include "regard/linear.h"
#include "regard/multi_head.h"
#include "regard/rotary.h"

namespace regard::golden {

template <class T>
void add_activations(Lines& lines) {
  const std::array named{std::pair{"relu", Activation::relu}, std::pair{"gelu", Activation::gelu},
                         std::pair{"gelu_tanh", Activation::gelu_tanh}, std::pair{"silu", Activation::silu}};
  Random random(1000);
  const auto input = numbers<T, 2>(random, {9, 333}), grad_output = numbers<T, 2>(random, {9, 333});
  const auto weight = numbers<T, 2>(random, {333, 70});
  const auto bias = numbers<T, 1>(random, {70});
  const PackedLinear<T> packed(weight.view());
  for (const auto& [name, activation] : named) {
    Array<T, 2> output({9, 333}), grad_input({9, 333}), product({9, 70});
    activation_forward<T>(input.view(), output.view(), activation);
    activation_backward<T>(input.view(), grad_output.view(), {.grad_input = grad_input.view()}, activation);
    linear_forward<T>(input.view(), packed, bias.view(), product.view(), {.activation = activation});
    lines.add(std::string("activation/") + name, output.values());
    lines.add(std::string("activation/") + name + "/grad_input", grad_input.values());
    lines.add(std::string("linear/") + name, product.values());
  }
}

template <class T>
void add_embeddings(Lines& lines) {
  Random random(1100);
  const auto table = numbers<T, 2>(random, {50, 77});
  Array<Index, 1> indices({23});
  indices.fill([&] { return random.integer(0, 49); });
  auto embedded = numbers<T, 2>(random, {23, 77});
  embedding_forward<T>(table.view(), std::as_const(indices).view(), embedded.view(), {.accumulate = true});
  lines.add("embedding", embedded.values());

  const auto input = numbers<T, 4>(random, {2, 3, 37, 24});
  for (const RotaryLayout layout : {RotaryLayout::halves, RotaryLayout::interleaved}) {
    for (const Index first_position : {0, 123'456'789}) {
      Array<T, 4> rotated({2, 3, 37, 24});
      rotary_forward<T>(input.view(), rotated.view(), {.layout = layout, .first_position = first_position});
      lines.add(
          (layout == RotaryLayout::halves ? "rotary/halves/" : "rotary/interleaved/") + std::to_string(first_position),
          rotated.values());
    }
  }
}

template <class T>
void add_multi_head(Lines& lines) {
  Random random(1200);
  const auto input = numbers<T, 3>(random, {2, 33, 24});
  const auto w_query = numbers<T, 2>(random, {24, 24}), w_key = numbers<T, 2>(random, {24, 12});
  const auto w_value = numbers<T, 2>(random, {24, 12}), w_output = numbers<T, 2>(random, {24, 24});
  const auto b_query = numbers<T, 1>(random, {24}), b_output = numbers<T, 1>(random, {24});
  Array<T, 3> output({2, 33, 24}), row_max({2, 4, 33}), row_sum({2, 4, 33});
  Array<T, 4> weights({2, 4, 33, 33});
  multi_head_attention_forward<T>(
      input.view(), {},
      {.num_heads = 4,
       .num_kv_heads = 2,
       .w_query = w_query.view(),
       .w_key = w_key.view(),
       .w_value = w_value.view(),
       .w_output = w_output.view(),
       .b_query = b_query.view(),
       .b_output = b_output.view()},
      {.output = output.view(), .row_max = row_max.view(), .row_sum = row_sum.view(), .weights = weights.view()},
      {.causal = true, .scale = 0.03125});
  lines.add("multi_head/output", output.values());
  lines.add("multi_head/row_max", row_max.values());
  lines.add("multi_head/row_sum", row_sum.values());
  lines.add("multi_head/weights", weights.values());
}

template <class T>
void add_statistics(Lines& lines) {
  const AttentionCase<T> call = plain_case<T>({2, 4, 2, 45, 330, 9, 5}, 1300);
  auto outputs = AttentionArrays<T>::dense(2, 4, 45, 330, 5, false);
  Array<T, 3> entropy({2, 4, 45}), mean_distance({2, 4, 45});
  Array<T, 4> top_weights({2, 4, 45, 3});
  Array<Index, 4> top_keys({2, 4, 45, 3});
  attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), outputs.views(),
                            {.top_keys = top_keys.view(),
                             .top_weights = top_weights.view(),
                             .entropy = entropy.view(),
                             .mean_distance = mean_distance.view()});
  lines.add("statistics/entropy", entropy.values());
  lines.add("statistics/mean_distance", mean_distance.values());
  lines.add("statistics/top_weights", top_weights.values());
}

// float from bfloat16 and IEEE half precision.
template <class Half>
void add_16_bit(Lines& lines, const std::string& name) {
  const AttentionCase<float> call = plain_case<float>({1, 4, 2, 19, 300, 33, 17}, 1400);
  const auto rounded = [](const Array<float, 4>& from) {
    Array<Half, 4> to(from.shape());
    from.for_each_index([&](const auto& at) { to.set(at, Half(from.get(at))); });
    return to;
  };
  const auto query = rounded(call.query), key = rounded(call.key), value = rounded(call.value);
  auto outputs = AttentionArrays<float>::dense(1, 4, 19, 300, 17);
  attention_forward(query.view(), key.view(), value.view(), outputs.views());
  lines.add("forward/" + name + "/context", outputs.context.values());
  lines.add("forward/" + name + "/weights", outputs.weights->values());
}

inline void add_layers(Lines& lines) {
  const auto add_of = [&]<class T>(T) {
    add_activations<T>(lines);
    add_embeddings<T>(lines);
    add_multi_head<T>(lines);
    add_statistics<T>(lines);
  };
  add_of(float{});
  add_of(double{});
  add_16_bit<bfloat16>(lines, "bfloat16");
  add_16_bit<float16>(lines, "float16");
}

}  // namespace regard::golden
