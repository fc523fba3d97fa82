// SPDX-License-Identifier: Apache-2.0
//
// Random calls of attention_forward: shapes around every edge of lanes, tiles, blocks and chunks, every option and
// combination of options, every layout, poison at invisible keys and NaN at visible elements.
//
//     AttentionCase<float> call = random_attention_case<float>(seed);     the same call for the same seed, everywhere
//     reference::attention(call.query.view(), …, call.options)
//
// Read next: attention_checks.h, attention_random_test.cpp.
#pragma once

#include <cstdlib>
#include <sstream>

#include "arrays.h"
#include "test_size.h"

namespace regard {

// The arguments of one call, and the memory that they refer to.
template <class T>
struct AttentionCase {
  Array<T, 4> query, key, value;
  AttentionOptions options;
  std::string text;  // describes the options, for messages

  std::vector<Index> key_lengths, query_starts, key_starts, prefix, offsets;
  Array<std::int32_t, 2> query_segments, key_segments;
  Array<bool, 4> block_mask, mask;
  Array<float, 4> bias_f32;
  Array<double, 4> bias_f64;
  std::vector<ComputeType<T>> alibi_slopes, sinks;

  Index B() const { return query.shape()[0]; }
  Index H() const { return query.shape()[1]; }
  Index L() const { return query.shape()[2]; }
  Index S() const { return key.shape()[2]; }
  Index D() const { return query.shape()[3]; }
  Index Hkv() const { return key.shape()[1]; }
  Index Dv() const { return value.shape()[3]; }
};

// ---- layouts

template <int Rank>
Layout<Rank> random_layout(Random& random, bool is_output) {
  Layout<Rank> layout = Layout<Rank>::dense();
  if (random.chance(0.4)) return layout;
  if (random.chance(0.5)) {
    for (std::size_t k = Rank; k-- > 1;) {
      std::swap(layout.order[k], layout.order[static_cast<std::size_t>(random.integer(0, static_cast<Index>(k)))]);
    }
  }
  for (bool& reversed : layout.reversed) reversed = random.chance(0.15);
  if (!is_output) {
    for (bool& repeated : layout.repeated) repeated = random.chance(0.06);
  }
  if (random.chance(0.25)) layout.gap = random.integer(1, 9);
  if (random.chance(0.2)) layout.inner_step = random.integer(2, 3);
  if (random.chance(0.3)) layout.lead_bytes = random.integer(1, 63);
  return layout;
}

// ---- shapes

inline Index random_length(Random& random, bool chunks) {
  if (chunks) return random.one_of({1023, 1024, 1025, 1087, 1088, 2047, 2048, 2049, 3072});
  const double kind = random.uniform();
  if (kind < 0.25) return 1;
  if (kind < 0.40) return random.integer(0, 8);
  if (kind < 0.60) return random.one_of({31, 32, 33, 59, 60, 61, 63, 64, 65, 119, 120, 121, 127, 128, 129});
  if (kind < 0.90) return random.integer(1, 70);
  return random.integer(0, 200);
}

inline Index random_head_size(Random& random) {
  const double kind = random.uniform();
  if (kind < 0.4) return random.integer(1, 20);
  if (kind < 0.9) return random.one_of({1, 2, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 96, 127, 128, 129});
  return random.one_of({191, 192, 255, 256, 257});
}

// ---- options

template <class T>
void random_positions(Random& random, AttentionCase<T>& call, std::ostringstream& text) {
  const Index L = call.L(), S = call.S();
  auto& options = call.options;
  std::size_t sequences = static_cast<std::size_t>(call.B());
  bool square = L == S;
  if (call.B() == 1 && random.chance(0.25)) {
    sequences = static_cast<std::size_t>(random.integer(1, 4));
    for (auto [starts, total] : {std::pair{&call.query_starts, L}, std::pair{&call.key_starts, S}}) {
      starts->assign(sequences + 1, 0);
      starts->back() = total;
      for (std::size_t n = 1; n < sequences; ++n) (*starts)[n] = random.integer(0, total);
      std::sort(starts->begin(), starts->end());
    }
    options.query_starts = call.query_starts;
    options.key_starts = call.key_starts;
    for (std::size_t n = 1; n <= sequences; ++n) square = square && call.query_starts[n] == call.key_starts[n];
    text << " packed(" << sequences << ")";
  }
  const std::vector<reference::Span> spans = reference::spans(call.B(), L, S, options);
  if (random.chance(0.2) && sequences > 0) {
    for (const reference::Span& span : spans) call.key_lengths.push_back(random.integer(0, span.num_keys));
    options.key_lengths = call.key_lengths;
    text << " key_lengths";
  }
  if (random.chance(0.15) && sequences > 0) {
    for (const reference::Span& span : spans) call.prefix.push_back(random.integer(0, span.num_keys + 2));
    options.prefix = call.prefix;
    text << " prefix";
  }
  const bool may_be_unnamed = square && call.key_lengths.empty();
  const Index reach = std::max(L, S) + 3;
  switch (random.integer(may_be_unnamed ? 0 : 1, 4)) {
    case 0:
      break;
    case 1:
      options.query_offset = QueryAlignment::top_left;
      text << " top_left";
      break;
    case 2:
      options.query_offset = QueryAlignment::bottom_right;
      text << " bottom_right";
      break;
    case 3:
      options.query_offset = random.integer(-reach / 2, reach);
      text << " query_offset(" << std::get<Index>(options.query_offset) << ")";
      break;
    default:
      for (std::size_t n = 0; n < sequences; ++n) call.offsets.push_back(random.integer(-reach / 2, reach));
      options.query_offset = std::span<const Index>(call.offsets);
      text << " query_offsets";
  }
  if (random.chance(0.4)) {
    options.causal = true;
    text << " causal";
  }
  if (random.chance(0.2)) {
    options.window.left = random.integer(0, reach);
    text << " left(" << *options.window.left << ")";
  }
  if (random.chance(0.2)) {
    options.window.right = random.integer(0, reach);
    text << " right(" << *options.window.right << ")";
  }
}

template <class T>
std::array<Index, 4> random_broadcast_shape(Random& random, const AttentionCase<T>& call) {
  std::array<Index, 4> shape{call.B(), call.H(), call.L(), call.S()};
  for (Index& extent : shape) {
    if (random.chance(0.25)) extent = 1;
  }
  return shape;
}

template <class E, class T>
Array<E, 4> random_bias(Random& random, const AttentionCase<T>& call) {
  Array<E, 4> bias(random_broadcast_shape(random, call), random_layout<4>(random, false));
  const double infinite = random.chance(0.5) ? 0.1 : 0;
  const double large = random.chance(0.2) ? 0.1 : 0;
  bias.fill([&] {
    if (random.chance(infinite)) return -std::numeric_limits<double>::infinity();
    return random.normal() * (random.chance(large) ? 100 : 1);
  });
  return bias;
}

template <class T>
void random_dense_options(Random& random, AttentionCase<T>& call, std::ostringstream& text) {
  const Index B = call.B(), H = call.H(), L = call.L(), S = call.S();
  auto& options = call.options;
  if (random.chance(0.15)) {
    call.query_segments = Array<std::int32_t, 2>({B, L}, random_layout<2>(random, false));
    call.key_segments = Array<std::int32_t, 2>({B, S}, random_layout<2>(random, false));
    const Index num_segments = random.integer(1, 3);
    for (auto* segments : {&call.query_segments, &call.key_segments}) {
      segments->fill([&] { return random.integer(random.chance(0.1) ? -2 : 0, num_segments - 1); });
    }
    options.query_segments = std::as_const(call.query_segments).view();
    options.key_segments = std::as_const(call.key_segments).view();
    text << " segments";
  }
  if (random.chance(0.15)) {
    const Index bq = random.one_of({1, 2, 7, 16, 64}), bk = random.one_of({1, 3, 16, 32, 50, 64, 128});
    call.block_mask =
        Array<bool, 4>({random.chance(0.5) ? 1 : B, random.chance(0.5) ? 1 : H, (L + bq - 1) / bq, (S + bk - 1) / bk},
                       random_layout<4>(random, false));
    call.block_mask.fill([&] { return random.chance(0.7); });
    options.block_mask = std::as_const(call.block_mask).view();
    options.block_size = {bq, bk};
    text << " block_mask(" << bq << ", " << bk << ")";
  }
  if (random.chance(0.25)) {
    call.mask = Array<bool, 4>(random_broadcast_shape(random, call), random_layout<4>(random, false));
    const double seen = random.one_of(std::array{0.02, 0.3, 0.8});
    call.mask.fill([&] { return random.chance(seen); });
    options.mask = std::as_const(call.mask).view();
    text << " mask";
  }
  if (random.chance(0.25)) {
    if (sizeof(T) == sizeof(double) && random.chance(0.5)) {
      call.bias_f64 = random_bias<double>(random, call);
      options.bias = std::as_const(call.bias_f64).view();
    } else {
      call.bias_f32 = random_bias<float>(random, call);
      options.bias = std::as_const(call.bias_f32).view();
    }
    text << " bias";
  }
}

template <class T>
void random_numbers(Random& random, AttentionCase<T>& call, std::ostringstream& text) {
  using C = ComputeType<T>;
  auto& options = call.options;
  if (random.chance(0.2)) {
    for (Index h = 0; h < call.H(); ++h) call.alibi_slopes.push_back(static_cast<C>(std::exp2(-random.uniform() * 8)));
    options.alibi_slopes = call.alibi_slopes;
    text << " alibi_slopes";
  }
  if (random.chance(0.2)) {
    for (Index h = 0; h < call.H(); ++h) {
      call.sinks.push_back(random.chance(0.2) ? -std::numeric_limits<C>::infinity()
                                              : static_cast<C>(random.normal() * 3));
    }
    options.sinks = call.sinks;
    text << " sinks";
  }
  if (random.chance(0.15)) {
    options.soft_cap = random.one_of(std::array{0.5, 3.0, 30.0});
    text << " soft_cap(" << *options.soft_cap << ")";
  }
  if (random.chance(0.3)) {
    options.scale = random.one_of(std::array{0.0, 1.0, 0.25, -0.37, 1e-30});
    text << " scale(" << *options.scale << ")";
  }
  if (std::same_as<T, bfloat16> && random.chance(0.4)) {
    options.weights_in_float32 = random.chance(0.5);
    text << " weights_in_float32(" << *options.weights_in_float32 << ")";
  }
}

// NaN and ∞ at every second key that no row of its group of heads attends to; occasionally NaN at a visible element.
template <class T>
void random_poison(Random& random, AttentionCase<T>& call, std::ostringstream& text) {
  for (const auto* array : {&call.key, &call.value}) {
    // With repeated elements, one key shares elements with another.
    if (array->repeats()) return;
  }
  const Index group = call.H() / call.Hkv();
  using Limits = std::numeric_limits<ComputeType<T>>;
  const auto poison = [&] {
    return T(random.one_of(std::array{Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}));
  };
  for (const reference::Span& span : reference::spans(call.B(), call.L(), call.S(), call.options)) {
    for (Index kv = 0; kv < call.Hkv(); ++kv) {
      for (Index j = 0; j < span.num_keys; ++j) {
        if (random.chance(0.5)) continue;
        bool seen = false;
        for (Index h = kv * group; h < (kv + 1) * group && !seen; ++h) {
          for (Index i = 0; i < span.num_queries && !seen; ++i) {
            seen = reference::visible(call.options, span, h, i, j);
          }
        }
        if (seen) continue;
        for (auto* array : {&call.key, &call.value}) {
          for (Index d = 0; d < array->shape()[3]; ++d) array->set({span.batch, kv, span.first_key + j, d}, poison());
        }
      }
    }
  }
  text << " poison";
}

template <class T>
void random_visible_nan(Random& random, AttentionCase<T>& call, std::ostringstream& text) {
  for (auto* array : {&call.query, &call.key, &call.value}) {
    const auto shape = array->shape();
    if (random.chance(0.5) || std::find(shape.begin(), shape.end(), 0) != shape.end()) continue;
    std::array<Index, 4> at{};
    for (std::size_t axis = 0; axis < 4; ++axis) at[axis] = random.integer(0, shape[axis] - 1);
    array->set(at, T(std::numeric_limits<ComputeType<T>>::quiet_NaN()));
  }
  text << " nan";
}

// ---- the whole

// Queries at the end of their keys; four query heads, two KV heads.
template <class T>
AttentionCase<T> long_causal_case(Index queries, Index keys) {
  Random random(7);
  AttentionCase<T> call;
  call.query = normal_array<T, 4>(random, {1, 4, queries, 16});
  call.key = normal_array<T, 4>(random, {1, 2, keys, 16});
  call.value = normal_array<T, 4>(random, {1, 2, keys, 8});
  call.options.causal = true;
  call.options.query_offset = QueryAlignment::bottom_right;
  return call;
}

template <class T>
AttentionCase<T> random_attention_case(std::uint64_t seed) {
  Random random(seed);
  AttentionCase<T> call;
  const bool chunks = random.chance(0.04);
  const Index Hkv = random.integer(1, 3);
  const Index B = random.chance(0.02) ? 0 : random.one_of({1, 1, 2, 3});
  const Index H = random.chance(0.01) ? 0 : Hkv * random.integer(1, 3);
  Index S = random_length(random, chunks);
  Index L = chunks ? random.integer(1, 5) : random.chance(0.3) ? S : random_length(random, false);
  Index D = chunks ? random.integer(1, 9) : random_head_size(random);
  Index Dv = random.chance(0.5) ? D : chunks ? random.integer(1, 40) : random_head_size(random);
  // Limits the size of a case, so that ten thousand can run: long rows get small heads.
  while (B * H * L * S * (D + Dv) > 600'000) {
    D = (D + 1) / 2;
    Dv = (Dv + 1) / 2;
    if (D + Dv <= 4) L = (L + 1) / 2;
  }

  std::ostringstream text;
  text << "B " << B << ", H " << H << ", Hkv " << Hkv << ", L " << L << ", S " << S << ", D " << D << ", Dv " << Dv;
  const double magnitude = random.one_of(std::array{0.1, 1.0, 1.0, 1.0, 4.0, 1e-39});
  for (auto [array, heads, length, size] :
       {std::tuple{&call.query, H, L, D}, {&call.key, Hkv, S, D}, {&call.value, Hkv, S, Dv}}) {
    *array = Array<T, 4>({B, heads, length, size}, random_layout<4>(random, false));
    array->fill([&] { return random.normal() * magnitude; });
  }
  random_positions(random, call, text);
  random_dense_options(random, call, text);
  random_numbers(random, call, text);
  if (random.chance(0.2)) random_poison(random, call, text);
  if (random.chance(0.05)) random_visible_nan(random, call, text);
  text << "; magnitude " << magnitude;
  call.text = text.str();
  return call;
}

// Compiled in reference.cpp.
extern template AttentionCase<float> random_attention_case<float>(std::uint64_t);
extern template AttentionCase<double> random_attention_case<double>(std::uint64_t);
extern template AttentionCase<bfloat16> random_attention_case<bfloat16>(std::uint64_t);
extern template AttentionCase<float16> random_attention_case<float16>(std::uint64_t);

}  // namespace regard
