// SPDX-License-Identifier: Apache-2.0
//
// Partial results in tests: memory for them, their merge, and calls that are cut into pieces along their keys.
// Read next: attention_merge_test.cpp, kv_cache_partials_test.cpp.
#pragma once

#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard {

// Memory for N partials, or for N finished results: then row_max is their lse, and row_sum is not used.
template <class T>
struct Partials {
  Array<T, 5> accumulator, scaled;
  Array<T, 4> row_max, row_sum;

  Partials(Index N, Index B, Index H, Index L, Index Dv, const Layout<5>& layout = Layout<5>::dense(),
           const Layout<4>& row_layout = Layout<4>::dense())
      : accumulator({N, B, H, L, Dv}, layout),
        scaled({N, B, H, L, Dv}, layout),
        row_max({N, B, H, L}, row_layout),
        row_sum({N, B, H, L}, row_layout) {}

  // Without the scaled sums, which synthetic partials do not have.
  AttentionPartialOutputs views() { return {accumulator.view(), row_max.view(), row_sum.view()}; }
  AttentionPartials inputs() const { return {accumulator.view(), row_max.view(), row_sum.view()}; }
  AttentionPartials inputs_with_scaled() const {
    return {accumulator.view(), row_max.view(), row_sum.view(), scaled.view()};
  }
};

// All outputs of a merge except the weights.
template <class T>
AttentionArrays<T> merged(const AttentionPartials& partials, const InputView<1>& sinks = {},
                          const Runtime& runtime = {}) {
  const auto& shape = partials.accumulator.shape;
  auto outputs = AttentionArrays<T>::dense(shape[1], shape[2], shape[3], 0, shape[4], false);
  attention_merge(partials, sinks, outputs.views(), runtime);
  return outputs;
}
template <class T>
AttentionArrays<T> merged(const Partials<T>& partials, const InputView<1>& sinks = {}, const Runtime& runtime = {}) {
  return merged<T>(partials.inputs(), sinks, runtime);
}
// Elements first … first + count − 1 of an axis; an axis that broadcasts is kept.
template <int Rank>
InputView<Rank> cut(InputView<Rank> view, std::size_t axis, Index first, Index count) {
  if (view.absent() || view.shape[axis] == 1) return view;
  view.data =
      reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(view.data) +
                                    static_cast<std::uintptr_t>(first * view.strides[axis] * type_bytes(view.type)));
  view.shape[axis] = count;
  return view;
}

template <class E, int Rank>
TensorView<E, Rank> cut(TensorView<E, Rank> view, std::size_t axis, Index first, Index count) {
  const InputView<Rank> part = cut(InputView<Rank>(view), axis, first, count);
  return {static_cast<E*>(const_cast<void*>(part.data)), part.shape, part.strides};
}

// The options of a call restricted to `count` keys from `first` on.
template <class T>
struct CutOptions {
  std::vector<Index> offsets, key_lengths, prefix;
  AttentionOptions options;

  CutOptions(const AttentionCase<T>& call, Index first, Index count) : options(call.options) {
    for (const reference::Span& span : reference::spans(call.B(), call.L(), call.S(), call.options)) {
      offsets.push_back(span.offset - first);
      key_lengths.push_back(std::clamp<Index>(span.key_length - first, 0, count));
      prefix.push_back(std::max<Index>(span.prefix - first, 0));
    }
    options.query_offset = offsets;
    options.key_lengths = key_lengths;
    if (!options.prefix.empty()) options.prefix = prefix;
    options.sinks = {};
    options.key_segments = cut(options.key_segments, 1, first, count);
    options.mask = cut(options.mask, 3, first, count);
    options.bias = cut(options.bias, 3, first, count);
    if (!options.block_mask.absent()) {
      const Index bk = options.block_size[1];
      options.block_mask = cut(options.block_mask, 3, first / bk, (count + bk - 1) / bk);
    }
  }
};

template <class T>
AttentionCase<T> random_long_case(std::uint64_t seed) {
  Random random(seed);
  AttentionCase<T> call;
  std::ostringstream text;
  // Two batch entries, so never packed sequences.
  const Index H = random.one_of({1, 2, 4}), Hkv = random.one_of({1, H});
  const Index L = random.one_of({1, 3, 61}), D = random.integer(1, 9), Dv = random.integer(1, 40);
  const Index S = random.one_of({1, 700, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 3100});
  text << "H " << H << ", Hkv " << Hkv << ", L " << L << ", S " << S << ", D " << D << ", Dv " << Dv;
  for (auto [array, heads, length, size] :
       {std::tuple{&call.query, H, L, D}, {&call.key, Hkv, S, D}, {&call.value, Hkv, S, Dv}}) {
    *array = Array<T, 4>({2, heads, length, size}, random_layout<4>(random, false));
    array->fill([&] { return random.normal(); });
  }
  random_positions(random, call, text);
  random_dense_options(random, call, text);
  // A block of the block mask must not span two chunks.
  if (!call.options.block_mask.absent() && kAttentionChunkKeys % call.options.block_size[1] != 0) {
    call.options.block_mask = {};
    call.options.block_size = {};
  }
  random_numbers(random, call, text);
  if (random.chance(0.3)) random_poison(random, call, text);
  if (random.chance(0.1)) random_visible_nan(random, call, text);
  if (random.chance(0.25)) {
    text << ", values up to the largest number";
    for (Index column = 0; column < Dv; column += random.integer(1, 3)) {
      for (Index key = 0; key < S; ++key) {
        for (Index h = 0; h < Hkv; ++h) {
          call.value.set({1, h, key, column}, std::numeric_limits<T>::max() * static_cast<T>(2 * random.uniform() - 1));
        }
      }
    }
  }
  call.text = text.str();
  return call;
}

// Whether a message contains all these parts.
inline testing::AssertionResult says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) return testing::AssertionFailure() << message << "; no " << part;
  }
  return testing::AssertionSuccess();
}

}  // namespace regard
