// SPDX-License-Identifier: Apache-2.0
//
// Pins the bits of every operator: tests/golden_hashes.txt has one line `name hash` for each result below, and every
// instruction set with fused multiply-add, compiler and build type must reproduce all of them.
//
//   input    integers from SplitMix64 times a power of two: exact, and the same everywhere
//   hash     FNV-1a 64 over the bytes of the result, little-endian, with all NaN alike
//
// REGARD_GOLDEN_WRITE=PATH writes the file instead of comparing. A changed line means that the arithmetic has changed,
// which docs/reference/semantics.md section 5 rules out.
// Read next: docs/developer/adding-a-kernel.md.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "regard/attention_backward.h"
#include "regard/cross_entropy.h"
#include "regard/layer_norm.h"
#include "regard/linear_backward.h"
#include "regard/rms_norm.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Results by name, in the order of their creation.
class Golden {
 public:
  template <class T>
  void add(const std::string& name, const std::vector<T>& numbers) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint64_t bits : bits_of(numbers)) {
      for (std::size_t byte = 0; byte < sizeof(T); ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3;
    }
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    lines_.emplace_back((sizeof(T) == 4 ? "f32/" : "f64/") + name, text);
  }
  const std::vector<std::pair<std::string, std::string>>& lines() const { return lines_; }

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

// In (−4, 4), denser around 0: a sum of two integers times a power of two, which float represents exactly.
template <class T>
T number(Random& random) {
  constexpr int kBits = sizeof(T) == 4 ? 19 : 48;
  constexpr Index kReach = (Index{1} << kBits) - 1;
  const Index sum = random.integer(-kReach, kReach) + random.integer(-kReach, kReach);
  return std::ldexp(static_cast<T>(sum), 1 - kBits);
}
template <class T, int Rank>
Array<T, Rank> numbers(Random& random, const typename TensorView<T, Rank>::Shape& shape) {
  Array<T, Rank> array(shape);
  array.fill([&] { return number<T>(random); });
  return array;
}

// ---- attention_forward

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
void add_forward(Golden& golden, const std::string& name, const AttentionCase<T>& call) {
  const AttentionArrays<T> got = run_attention<T>(call.query, call.key, call.value, call.options);
  golden.add(name + "/context", got.context.values());
  golden.add(name + "/row_max", got.row_max->values());
  golden.add(name + "/row_sum", got.row_sum->values());
  golden.add(name + "/lse", got.lse->values());
  golden.add(name + "/weights", got.weights->values());
  if (!call.options.sinks.empty()) golden.add(name + "/sink_weights", got.sink_weights->values());
}

template <class T>
void add_shapes(Golden& golden) {
  const auto add = [&](const std::string& name, const Extents& extents) {
    add_forward(golden, "forward/" + name, plain_case<T>(extents, 1));
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
void add_backward(Golden& golden, const std::string& name, const AttentionCase<T>& call) {
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
  golden.add(name + "/grad_query", grad_query.values());
  golden.add(name + "/grad_key", grad_key.values());
  golden.add(name + "/grad_value", grad_value.values());
  if (has_bias) golden.add(name + "/grad_bias", grad_bias.values());
  if (has_sinks) golden.add(name + "/grad_sinks", grad_sinks.values());
}

template <class T>
void add_backward_shapes(Golden& golden) {
  const auto add = [&](const std::string& name, const Extents& extents) {
    add_backward(golden, "backward/" + name, plain_case<T>(extents, 2));
  };
  for (const Index D : {1, 7, 16, 33, 64, 129, 257}) add("D=" + std::to_string(D), {1, 2, 1, 13, 70, D, D});
  for (const Index S : {1, 63, 65, 256, 257, 1700}) add("S=" + std::to_string(S), {1, 1, 1, 3, S, 8, 5});
  for (const Index L : {1, 6, 13, 61, 121}) add("L=" + std::to_string(L), {1, 1, 1, L, 66, 4, 4});
  add("grouped", {2, 6, 2, 65, 300, 9, 33});
}

template <class T>
void add_options(Golden& golden) {
  constexpr Extents kExtents{2, 4, 2, 23, 1100, 5, 7};
  std::uint64_t seed = 100;
  for (const auto& group : {position_options<T>(), dense_options<T>(), number_options<T>()}) {
    for (const auto& [name, set] : group) {
      AttentionCase<T> call = plain_case<T>(kExtents, seed);
      Random random(++seed);
      set(call, random);
      add_forward(golden, std::string("forward/") + name, call);
      add_backward(golden, std::string("backward/") + name, call);
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
  add_forward(golden, "forward/many_options", all);

  AttentionCase<T> packed = plain_case<T>({1, 4, 2, 140, 1300, 6, 5}, 200);
  packed.query_starts = {0, 5, 5, 130, 131, 140};
  packed.key_starts = {0, 70, 75, 1175, 1175, 1300};
  packed.options.query_starts = packed.query_starts;
  packed.options.key_starts = packed.key_starts;
  packed.options.causal = true;
  packed.options.query_offset = QueryAlignment::bottom_right;
  add_forward(golden, "forward/packed", packed);
  add_backward(golden, "backward/packed", packed);

  AttentionCase<T> dropped = plain_case<T>(kExtents, 310);
  dropped.options.dropout = 0.3;
  dropped.options.dropout_seed = 7;
  add_forward(golden, "forward/dropout", dropped);
  add_backward(golden, "backward/dropout", dropped);

  // Here, bias has the type of query.
  if constexpr (sizeof(T) == sizeof(double)) {
    AttentionCase<T> call = plain_case<T>(kExtents, 300);
    Random more(301);
    call.bias_f64 = numbers<double, 4>(more, {1, call.H(), 1, call.S()});
    call.options.bias = std::as_const(call.bias_f64).view();
    add_forward(golden, "forward/bias_f64", call);
  }
}

// ---- the other operators

template <class T>
void add_weights_of_rows(Golden& golden) {
  const AttentionCase<T> call = plain_case<T>({2, 2, 1, 65, 1100, 9, 3}, 400);
  const AttentionArrays<T> whole = run_attention<T>(call.query, call.key, call.value);
  const std::vector<RowRange> rows{{60, 65}, {0, 3}, {2, 3}};
  for (const WeightsKind kind : {WeightsKind::weights, WeightsKind::scores}) {
    Array<T, 4> output({2, 2, 9, 1100});
    attention_weights(call.query.view(), call.key.view(),
                      {.row_max = whole.row_max->view(), .row_sum = whole.row_sum->view(), .rows = rows, .kind = kind},
                      output.view());
    golden.add(kind == WeightsKind::weights ? "weights/rows" : "weights/scores", output.values());
  }
}

template <class T>
void add_merge(Golden& golden) {
  for (const Index S : {900, 2100, 4097}) {
    const std::string name = "merge/S=" + std::to_string(S);
    const AttentionCase<T> call = plain_case<T>({1, 2, 1, 13, S, 6, 33}, static_cast<std::uint64_t>(S));
    const Index N = attention_num_chunks(S);
    Array<T, 5> accumulator({N, 1, 2, 13, 33});
    Array<T, 4> row_max({N, 1, 2, 13}), row_sum({N, 1, 2, 13});
    attention_partials(call.query.view(), call.key.view(), call.value.view(),
                       {accumulator.view(), row_max.view(), row_sum.view()});
    golden.add(name + "/accumulator", accumulator.values());
    golden.add(name + "/row_max", row_max.values());
    golden.add(name + "/row_sum", row_sum.values());
    const std::vector<T> sinks{2, -1};
    auto merged = AttentionArrays<T>::dense(1, 2, 13, 0, 33, false);
    attention_merge({std::as_const(accumulator).view(), std::as_const(row_max).view(), std::as_const(row_sum).view()},
                    sinks, merged.views());
    golden.add(name + "/with_sinks/context", merged.context.values());
    golden.add(name + "/with_sinks/lse", merged.lse->values());
    golden.add(name + "/with_sinks/sink_weights", merged.sink_weights->values());
    Array<T, 4> context({1, 2, 13, 33});
    Array<T, 3> lse({1, 2, 13});
    attention_merge_lse(std::as_const(accumulator).view(), std::as_const(row_max).view(),
                        AttentionOutputs{.context = context.view(), .lse = lse.view()});
    golden.add(name + "/by_lse/context", context.values());
    golden.add(name + "/by_lse/lse", lse.values());
  }
}

template <class T>
void add_linear(Golden& golden) {
  for (const auto& [R, I, O] : {std::array<Index, 3>{1, 1, 1},
                                {1, 300, 33},
                                {12, 17, 32},
                                {13, 255, 31},
                                {60, 256, 5},
                                {61, 257, 64},
                                {7, 513, 65},
                                {2, 40, 550},
                                {130, 20, 40},
                                {5, 0, 9}}) {
    Random random(static_cast<std::uint64_t>(500 + R));
    const auto input = numbers<T, 2>(random, {R, I}), parameters = numbers<T, 2>(random, {I, O});
    const auto bias = numbers<T, 1>(random, {O});
    Array<T, 2> output({R, O});
    const std::string name = "linear/" + std::to_string(R) + "x" + std::to_string(I) + "x" + std::to_string(O);
    linear_forward<T>(input.view(), parameters.view(), bias.view(), output.view());
    golden.add(name, output.values());
    linear_forward<T>(input.view(), parameters.view(), {}, output.view());
    golden.add(name + "/no_bias", output.values());
    const auto grad_output = numbers<T, 2>(random, {R, O});
    Array<T, 2> grad_input({R, I}), grad_weight({I, O});
    Array<T, 1> grad_bias({O});
    linear_backward<T>(input.view(), parameters.view(), grad_output.view(),
                       {grad_input.view(), grad_weight.view(), grad_bias.view()});
    golden.add(name + "/grad_input", grad_input.values());
    golden.add(name + "/grad_weight", grad_weight.values());
    golden.add(name + "/grad_bias", grad_bias.values());
  }
}

template <class T>
void add_cross_entropy(Golden& golden) {
  for (const Index V : {1, 5, 16, 63, 64, 65, 200, 1000}) {
    Random random(static_cast<std::uint64_t>(700 + V));
    const auto logits = numbers<T, 2>(random, {5, V});
    Array<Index, 1> targets({5});
    targets.fill([&] { return random.integer(0, V - 1); });
    Array<T, 1> row_loss({5});
    Array<T, 2> grad_logits({5, V});
    cross_entropy_forward<T>(logits.view(), targets.view(), {row_loss.view(), grad_logits.view()});
    const std::string name = "cross_entropy/" + std::to_string(V);
    golden.add(name + "/row_loss", row_loss.values());
    golden.add(name + "/grad_logits", grad_logits.values());
  }
}

template <class T>
void add_norms(Golden& golden) {
  for (const auto& [R, E, group] :
       {std::array<Index, 3>{1, 1, 0}, {3, 8, 0}, {70, 31, 0}, {130, 65, 50}, {7, 1000, 3}, {9, 2053, 0}}) {
    Random random(static_cast<std::uint64_t>(800 + R));
    const auto input = numbers<T, 2>(random, {R, E}), addend = numbers<T, 2>(random, {R, E});
    const auto grad_output = numbers<T, 2>(random, {R, E});
    const auto gain = numbers<T, 1>(random, {E}), bias = numbers<T, 1>(random, {E});
    Array<T, 2> output({R, E}), grad_input({R, E});
    Array<T, 1> grad_gain({E}), grad_bias({E});
    const std::string shape = "/" + std::to_string(R) + "x" + std::to_string(E);
    layer_norm_forward<T>(input.view(), addend.view(), gain.view(), bias.view(), output.view(), 1e-5);
    golden.add("layer_norm" + shape, output.values());
    layer_norm_backward<T>(input.view(), addend.view(), gain.view(), grad_output.view(),
                           {.grad_input = grad_input.view(),
                            .grad_gain = grad_gain.view(),
                            .grad_bias = grad_bias.view(),
                            .rows_per_group = group},
                           1e-5);
    golden.add("layer_norm" + shape + "/grad_input", grad_input.values());
    golden.add("layer_norm" + shape + "/grad_gain", grad_gain.values());
    golden.add("layer_norm" + shape + "/grad_bias", grad_bias.values());
    rms_norm_forward<T>(input.view(), {}, gain.view(), output.view(), 1e-5);
    golden.add("rms_norm" + shape, output.values());
    rms_norm_backward<T>(input.view(), {}, gain.view(), grad_output.view(),
                         {.grad_input = grad_input.view(), .grad_gain = grad_gain.view(), .rows_per_group = group},
                         1e-5);
    golden.add("rms_norm" + shape + "/grad_input", grad_input.values());
    golden.add("rms_norm" + shape + "/grad_gain", grad_gain.values());
  }
}

// Every function on values of one magnitude after another.
template <class T>
void add_elementwise(Golden& golden, const kernels::KernelTable& table) {
  const kernels::Kernels<T>& kernel = table.of<T>();
  const auto add = [&](const std::string& name, auto function, int exponent, T sign) {
    Random random(static_cast<std::uint64_t>(600 + exponent));
    std::vector<T> x(3000), y(3000);
    for (T& argument : x) argument = std::copysign(std::ldexp(number<T>(random), exponent - 2), sign);
    function(x.data(), y.data(), 3000);
    golden.add(name + "/2^" + std::to_string(exponent), y);
  };
  for (const int exponent : {-30, -10, -3, -1, 0, 1, 2, 4, 6, 7, 10}) {
    add("exp", kernel.exp, exponent, static_cast<T>(-1));
    add("tanh", kernel.tanh, exponent, static_cast<T>(1));
    add("tanh/negative", kernel.tanh, exponent, static_cast<T>(-1));
    add("log", kernel.log, exponent, static_cast<T>(1));
  }
  for (const int exponent : {-140, -125, -60, 40, 100, 127}) add("log", kernel.log, exponent, static_cast<T>(1));
}

template <class T>
void add_all(Golden& golden, const kernels::KernelTable& table) {
  add_shapes<T>(golden);
  add_backward_shapes<T>(golden);
  add_options<T>(golden);
  add_weights_of_rows<T>(golden);
  add_merge<T>(golden);
  add_linear<T>(golden);
  add_cross_entropy<T>(golden);
  add_norms<T>(golden);
  add_elementwise<T>(golden, table);
}

Golden all_results(const kernels::KernelTable& table) {
  const ActiveTable active(table);
  Golden golden;
  add_all<float>(golden, table);
  add_all<double>(golden, table);
  return golden;
}

std::map<std::string, std::string> pinned() {
  std::ifstream file(REGARD_GOLDEN_HASHES);
  std::map<std::string, std::string> hashes;
  std::string name, hash;
  while (file >> name >> hash) EXPECT_TRUE(hashes.emplace(name, hash).second) << name << " occurs twice";
  return hashes;
}

TEST(Golden, EveryFusedInstructionSetReproducesEveryBit) {
  const auto tables = fused_instruction_sets();
  if (tables.empty()) GTEST_SKIP() << "processor lacks avx2";
  if (const char* path = std::getenv("REGARD_GOLDEN_WRITE")) {
    std::ofstream file(path);
    const Golden golden = all_results(*tables[0]);
    for (const auto& [name, hash] : golden.lines()) file << name << " " << hash << "\n";
    ASSERT_TRUE(file.flush()) << path;
    return;
  }
  const auto expected = pinned();
  EXPECT_GE(expected.size(), 200u);
  for (const kernels::KernelTable* table : tables) {
    const Golden golden = all_results(*table);
    int faults = 0;
    for (const auto& [name, hash] : golden.lines()) {
      const auto line = expected.find(name);
      if (line != expected.end() && line->second == hash) continue;
      if (++faults <= 20) {
        ADD_FAILURE() << table->name << ": " << name << " has hash " << hash << ", expected "
                      << (line == expected.end() ? "no such result" : line->second);
      }
    }
    EXPECT_EQ(faults, 0) << table->name;
    EXPECT_EQ(golden.lines().size(), expected.size()) << "names that the test does not make, or makes twice";
  }
}

// Tests the generator and the hash themselves, so that a mismatch is never caused by the input.
TEST(Golden, GeneratorAndHashAreStable) {
  Random random(1);
  EXPECT_EQ(random.bits(), 0x910a2dec89025cc1u);
  for (int n = 0; n < 1000; ++n) {
    const float x = number<float>(random);
    EXPECT_LT(std::abs(x), 4);
    EXPECT_EQ(std::ldexp(x, 18), std::nearbyint(std::ldexp(x, 18)));
  }
  Golden golden;
  // FNV-1a 64 of no bytes, and of the four bytes of 1.0f and the canonical NaN.
  golden.add<float>("empty", {});
  golden.add<float>("one", {1.0f});
  golden.add<float>("nan", {-std::numeric_limits<float>::quiet_NaN()});
  golden.add<float>("canonical", {std::bit_cast<float>(0x7fc00000u)});
  EXPECT_EQ(golden.lines()[0].second, "cbf29ce484222325");
  EXPECT_EQ(golden.lines()[1].second, "4b72477f9c5c2f98");
  EXPECT_EQ(golden.lines()[2].second, golden.lines()[3].second);
}

}  // namespace
}  // namespace regard
