// SPDX-License-Identifier: Apache-2.0
//
// The lines of attention: forward and backward passes in every shape and with every option, weights, merged chunks.
// Read next: golden_lines.h.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention_arrays.h"
#include "attention_cases.h"
#include "golden_lines.h"
#include "regard/attention_backward.h"

namespace regard::golden {

struct Extents {
  Index B, H, Hkv, L, S, D, Dv;
};

template <class T>
AttentionCase<T> plain_case(const Extents& n, std::uint64_t seed) {
  Random random(seed);
  AttentionCase<T> call;
  call.query = numbers<T, 4>(random, {n.B, n.H, n.L, n.D});
  call.key = numbers<T, 4>(random, {n.B, n.Hkv, n.S, n.D});
  call.value = numbers<T, 4>(random, {n.B, n.Hkv, n.S, n.Dv});
  return call;
}

template <class T>
void add_forward(Lines& lines, const std::string& name, const AttentionCase<T>& call) {
  const AttentionArrays<T> got = run_attention<T>(call.query, call.key, call.value, call.options);
  lines.add(name + "/context", got.context.values());
  lines.add(name + "/row_max", got.row_max->values());
  lines.add(name + "/row_sum", got.row_sum->values());
  lines.add(name + "/lse", got.lse->values());
  lines.add(name + "/weights", got.weights->values());
  if (!call.options.sinks.empty()) lines.add(name + "/sink_weights", got.sink_weights->values());
}

template <class T>
void add_shapes(Lines& lines) {
  const auto add = [&](const std::string& name, const Extents& extents) {
    add_forward(lines, "forward/" + name, plain_case<T>(extents, 1));
  };
  for (const Index D : {1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 64, 65, 80, 96, 128, 129, 192, 256, 257, 300}) {
    add("D=" + std::to_string(D), {1, 2, 1, 13, 70, D, D});
  }
  for (const Index Dv : {1, 31, 32, 33, 128, 300}) add("Dv=" + std::to_string(Dv), {1, 1, 1, 3, 70, 4, Dv});
  for (const Index S : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 1088, 2048, 3100}) {
    add("S=" + std::to_string(S), {1, 1, 1, 3, S, 8, 5});
  }
  for (const Index L : {1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 59, 60, 61, 121}) {
    add("L=" + std::to_string(L), {1, 1, 1, L, 66, 4, 4});
  }
  for (const Index Hkv : {1, 2, 6}) add("Hkv=" + std::to_string(Hkv), {2, 6, Hkv, 5, 40, 8, 8});
}

template <class T>
struct NamedOption {
  const char* name;
  std::function<void(AttentionCase<T>&, Random&)> set;
};

template <class T>
std::vector<NamedOption<T>> position_options() {
  using Call = AttentionCase<T>;
  return {
      {"causal,top_left",
       [](Call& call, Random&) {
         call.options.causal = true;
         call.options.query_offset = QueryAlignment::top_left;
       }},
      {"causal,bottom_right",
       [](Call& call, Random&) {
         call.options.causal = true;
         call.options.query_offset = QueryAlignment::bottom_right;
       }},
      {"causal,query_offset=-9",
       [](Call& call, Random&) {
         call.options.causal = true;
         call.options.query_offset = Index{-9};
       }},
      {"causal,query_offsets",
       [](Call& call, Random&) {
         call.options.causal = true;
         call.offsets = {50, 1050};
         call.options.query_offset = std::span<const Index>(call.offsets);
       }},
      {"window",
       [](Call& call, Random&) {
         call.options.query_offset = Index{1000};
         call.options.window = {70, 9};
       }},
      {"window,left_open",
       [](Call& call, Random&) {
         call.options.query_offset = Index{500};
         call.options.window = {{}, 0};
       }},
      {"key_lengths",
       [](Call& call, Random&) {
         call.key_lengths = {1030, 77};
         call.options.key_lengths = call.key_lengths;
       }},
      {"prefix",
       [](Call& call, Random&) {
         call.prefix = {3, 1040};
         call.options.prefix = call.prefix;
         call.options.causal = true;
         call.options.query_offset = Index{5};
       }},
      {"alibi_slopes",
       [](Call& call, Random&) {
         call.alibi_slopes = {static_cast<T>(0.5), static_cast<T>(0.25), static_cast<T>(-0.125), 0};
         call.options.alibi_slopes = call.alibi_slopes;
         call.options.query_offset = QueryAlignment::bottom_right;
       }},
  };
}

template <class T>
std::vector<NamedOption<T>> dense_options() {
  using Call = AttentionCase<T>;
  return {
      {"segments",
       [](Call& call, Random& random) {
         call.query_segments = Array<std::int32_t, 2>({call.B(), call.L()});
         call.key_segments = Array<std::int32_t, 2>({call.B(), call.S()});
         for (auto* segments : {&call.query_segments, &call.key_segments}) {
           segments->fill([&] { return random.integer(-1, 2); });
         }
         call.options.query_segments = std::as_const(call.query_segments).view();
         call.options.key_segments = std::as_const(call.key_segments).view();
       }},
      {"block_mask",
       [](Call& call, Random& random) {
         call.block_mask = Array<bool, 4>({1, call.H(), (call.L() + 6) / 7, (call.S() + 49) / 50});
         call.block_mask.fill([&] { return random.integer(0, 3) != 0; });
         call.options.block_mask = std::as_const(call.block_mask).view();
         call.options.block_size = {7, 50};
       }},
      {"mask",
       [](Call& call, Random& random) {
         call.mask = Array<bool, 4>({call.B(), 1, call.L(), call.S()});
         call.mask.fill([&] { return random.integer(0, 3) != 0; });
         call.options.mask = std::as_const(call.mask).view();
       }},
      {"mask,sparse,empty_rows",
       [](Call& call, Random& random) {
         call.mask = Array<bool, 4>({1, call.H(), call.L(), call.S()});
         call.mask.for_each_index(
             [&](const auto& at) { call.mask.set(at, random.integer(0, 99) == 0 && at[2] % 3 != 0); });
         call.options.mask = std::as_const(call.mask).view();
       }},
      {"bias",
       [](Call& call, Random& random) {
         call.bias_f32 = numbers<float, 4>(random, {1, call.H(), call.L(), call.S()});
         call.options.bias = std::as_const(call.bias_f32).view();
       }},
      {"bias,minus_infinity",
       [](Call& call, Random& random) {
         call.bias_f32 = Array<float, 4>({call.B(), 1, 1, call.S()});
         call.bias_f32.fill([&] { return random.integer(0, 3) == 0 ? -kInfinity<float> : number<float>(random); });
         call.options.bias = std::as_const(call.bias_f32).view();
       }},
  };
}

template <class T>
std::vector<NamedOption<T>> number_options() {
  using Call = AttentionCase<T>;
  const auto every_query = [](Call& call, T factor) {
    call.query.for_each_index([&](const auto& at) { call.query.set(at, call.query.get(at) * factor); });
  };
  return {
      {"plain", [](Call&, Random&) {}},
      {"sinks",
       [](Call& call, Random&) {
         call.sinks = {static_cast<T>(1.5), -3, -kInfinity<T>, 40};
         call.options.sinks = call.sinks;
       }},
      {"soft_cap", [](Call& call, Random&) { call.options.soft_cap = 1.5; }},
      {"soft_cap=50", [](Call& call, Random&) { call.options.soft_cap = 50; }},
      {"scale=0", [](Call& call, Random&) { call.options.scale = 0.0; }},
      {"scale=-0.37", [](Call& call, Random&) { call.options.scale = -0.37; }},
      {"scale=11", [](Call& call, Random&) { call.options.scale = 11.0; }},
      {"huge_scores", [=](Call& call, Random&) { every_query(call, std::ldexp(std::numeric_limits<T>::max(), -12)); }},
      {"subnormal_scores", [=](Call& call, Random&) { every_query(call, std::numeric_limits<T>::min()); }},
      {"huge_values",
       [](Call& call, Random&) {
         call.value.for_each_index([&](const auto& at) {
           call.value.set(at, call.value.get(at) * std::ldexp(std::numeric_limits<T>::max(), -3));
         });
       }},
      {"poison",
       [](Call& call, Random&) {
         call.key_lengths = {1030, 77};
         call.options.key_lengths = call.key_lengths;
         for (auto* array : {&call.key, &call.value}) {
           array->for_each_index([&](const auto& at) {
             if (at[2] >= (at[0] == 0 ? 1030 : 77)) array->set(at, std::numeric_limits<T>::quiet_NaN());
           });
         }
       }},
      {"nan_and_infinity",
       [](Call& call, Random&) {
         call.query.set({0, 1, 3, 2}, std::numeric_limits<T>::quiet_NaN());
         call.value.set({0, 0, 70, 1}, kInfinity<T>);
         call.value.set({1, 1, 1060, 6}, std::numeric_limits<T>::quiet_NaN());
         call.key.set({1, 0, 999, 4}, kInfinity<T>);
       }},
  };
}

template <class T>
void add_backward(Lines& lines, const std::string& name, const AttentionCase<T>& call) {
  AttentionArrays<T> forward = AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
  AttentionFingerprint fingerprint;
  AttentionOutputs outputs = forward.views();
  outputs.fingerprint = &fingerprint;
  attention_forward(call.query.view(), call.key.view(), call.value.view(), outputs, call.options);
  Random random(900);
  const auto grad_context = numbers<T, 4>(random, forward.context.view().shape);
  const auto grad_lse = numbers<T, 3>(random, forward.lse->view().shape);
  Array<T, 4> grad_query(call.query.view().shape), grad_key(call.key.view().shape), grad_value(call.value.view().shape);
  Array<T, 4> grad_bias({1, call.H(), 1, call.S()});
  Array<T, 1> grad_sinks({call.H()});
  AttentionGradients gradients{
      .grad_query = grad_query.view(), .grad_key = grad_key.view(), .grad_value = grad_value.view()};
  const bool has_bias = call.bias_f32.view().size() > 0, has_sinks = !call.options.sinks.empty();
  if (has_bias) gradients.grad_bias = grad_bias.view();
  if (has_sinks) gradients.grad_sinks = grad_sinks.view();
  attention_backward(call.query.view(), call.key.view(), call.value.view(),
                     {.context = forward.context.view(),
                      .row_max = forward.row_max->view(),
                      .row_sum = forward.row_sum->view(),
                      .grad_context = grad_context.view(),
                      .grad_lse = grad_lse.view(),
                      .fingerprint = fingerprint},
                     gradients, call.options);
  lines.add(name + "/grad_query", grad_query.values());
  lines.add(name + "/grad_key", grad_key.values());
  lines.add(name + "/grad_value", grad_value.values());
  if (has_bias) lines.add(name + "/grad_bias", grad_bias.values());
  if (has_sinks) lines.add(name + "/grad_sinks", grad_sinks.values());
}

template <class T>
void add_backward_shapes(Lines& lines) {
  const auto add = [&](const std::string& name, const Extents& extents) {
    add_backward(lines, "backward/" + name, plain_case<T>(extents, 2));
  };
  for (const Index D : {1, 7, 16, 33, 64, 129, 257}) add("D=" + std::to_string(D), {1, 2, 1, 13, 70, D, D});
  for (const Index S : {1, 63, 65, 256, 257, 1700}) add("S=" + std::to_string(S), {1, 1, 1, 3, S, 8, 5});
  for (const Index L : {1, 6, 13, 61, 121}) add("L=" + std::to_string(L), {1, 1, 1, L, 66, 4, 4});
  add("grouped", {2, 6, 2, 65, 300, 9, 33});
}

template <class T>
void add_options(Lines& lines) {
  constexpr Extents kExtents{2, 4, 2, 23, 1100, 5, 7};
  std::uint64_t seed = 100;
  for (const auto& group : {position_options<T>(), dense_options<T>(), number_options<T>()}) {
    for (const auto& [name, set] : group) {
      AttentionCase<T> call = plain_case<T>(kExtents, seed);
      Random random(++seed);
      set(call, random);
      add_forward(lines, std::string("forward/") + name, call);
      add_backward(lines, std::string("backward/") + name, call);
    }
  }
  AttentionCase<T> all = plain_case<T>(kExtents, seed);
  Random random(++seed);
  for (const auto& group : {position_options<T>(), dense_options<T>(), number_options<T>()}) {
    for (const auto& [name, set] : group) {
      const std::set<std::string> chosen{
          "causal,query_offsets", "prefix", "alibi_slopes", "block_mask", "mask", "bias", "sinks", "soft_cap"};
      if (chosen.contains(name)) set(all, random);
    }
  }
  all.options.window = {900, {}};
  add_forward(lines, "forward/many_options", all);

  AttentionCase<T> packed = plain_case<T>({1, 4, 2, 140, 1300, 6, 5}, 200);
  packed.query_starts = {0, 5, 5, 130, 131, 140};
  packed.key_starts = {0, 70, 75, 1175, 1175, 1300};
  packed.options.query_starts = packed.query_starts;
  packed.options.key_starts = packed.key_starts;
  packed.options.causal = true;
  packed.options.query_offset = QueryAlignment::bottom_right;
  add_forward(lines, "forward/packed", packed);
  add_backward(lines, "backward/packed", packed);

  AttentionCase<T> dropped = plain_case<T>(kExtents, 310);
  dropped.options.dropout = 0.3;
  dropped.options.dropout_seed = 7;
  add_forward(lines, "forward/dropout", dropped);
  add_backward(lines, "backward/dropout", dropped);

  // Here, bias has the type of query.
  if constexpr (sizeof(T) == sizeof(double)) {
    AttentionCase<T> call = plain_case<T>(kExtents, 300);
    Random more(301);
    call.bias_f64 = numbers<double, 4>(more, {1, call.H(), 1, call.S()});
    call.options.bias = std::as_const(call.bias_f64).view();
    add_forward(lines, "forward/bias_f64", call);
  }
}

template <class T>
void add_weights_of_rows(Lines& lines) {
  const AttentionCase<T> call = plain_case<T>({2, 2, 1, 65, 1100, 9, 3}, 400);
  const AttentionArrays<T> whole = run_attention<T>(call.query, call.key, call.value);
  const std::vector<RowRange> rows{{60, 65}, {0, 3}, {2, 3}};
  for (const WeightsKind kind : {WeightsKind::weights, WeightsKind::scores}) {
    Array<T, 4> output({2, 2, 9, 1100});
    attention_weights(call.query.view(), call.key.view(),
                      {.row_max = whole.row_max->view(), .row_sum = whole.row_sum->view(), .rows = rows, .kind = kind},
                      output.view());
    lines.add(kind == WeightsKind::weights ? "weights/rows" : "weights/scores", output.values());
  }
}

template <class T>
void add_merge(Lines& lines) {
  for (const Index S : {900, 2100, 4097}) {
    const std::string name = "merge/S=" + std::to_string(S);
    const AttentionCase<T> call = plain_case<T>({1, 2, 1, 13, S, 6, 33}, static_cast<std::uint64_t>(S));
    const Index N = attention_num_chunks(S);
    Array<T, 5> accumulator({N, 1, 2, 13, 33});
    Array<T, 4> row_max({N, 1, 2, 13}), row_sum({N, 1, 2, 13});
    attention_partials(call.query.view(), call.key.view(), call.value.view(),
                       {accumulator.view(), row_max.view(), row_sum.view()});
    lines.add(name + "/accumulator", accumulator.values());
    lines.add(name + "/row_max", row_max.values());
    lines.add(name + "/row_sum", row_sum.values());
    const std::vector<T> sinks{2, -1};
    auto merged = AttentionArrays<T>::dense(1, 2, 13, 0, 33, false);
    attention_merge({std::as_const(accumulator).view(), std::as_const(row_max).view(), std::as_const(row_sum).view()},
                    sinks, merged.views());
    lines.add(name + "/with_sinks/context", merged.context.values());
    lines.add(name + "/with_sinks/lse", merged.lse->values());
    lines.add(name + "/with_sinks/sink_weights", merged.sink_weights->values());
    Array<T, 4> context({1, 2, 13, 33});
    Array<T, 3> lse({1, 2, 13});
    attention_merge_lse(std::as_const(accumulator).view(), std::as_const(row_max).view(),
                        AttentionOutputs{.context = context.view(), .lse = lse.view()});
    lines.add(name + "/by_lse/context", context.values());
    lines.add(name + "/by_lse/lse", lse.values());
  }
}

}  // namespace regard::golden
