// SPDX-License-Identifier: Apache-2.0
//
// A program that uses the library: one attention with an exactly known result, then the bits of several others, which
// must not depend on how this file and the library in its project are compiled.
// Read next: run.sh, which builds it in all supported ways.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "regard/attention.h"
#include "regard/kv_cache.h"

namespace {

using regard::Index;

// Zero scores: every key has weight 1/4, and the context is the average, 2.5.
bool uniform_average_is_exact() {
  const std::vector<float> zeros(8, 0.0f);
  const std::vector<float> value{1.0f, 2.0f, 3.0f, 4.0f};
  const auto result = regard::attention_with_weights<float>({zeros.data(), {1, 1, 1, 2}}, {zeros.data(), {1, 1, 4, 2}},
                                                            {value.data(), {1, 1, 4, 1}});
  return result.context(0, 0, 0, 0) == 2.5f && result.weights(0, 0, 0, 3) == 0.25f;
}

// The same with 16-bit elements and with a cache of each type: the library must export these functions, too, under the
// same symbol for every compiler.
template <class T>
bool average_of_two_bytes_is_exact() {
  regard::Tensor<T, 4> zeros({1, 1, 4, 2}), value({1, 1, 4, 1}), context({1, 1, 4, 1});
  for (Index i = 0; i < 4; ++i) value(0, 0, i, 0) = T(static_cast<float>(i + 1));
  regard::attention_forward(zeros.view(), zeros.view(), value.view(),
                            regard::AttentionOutputs{.context = context.view()});
  bool exact = static_cast<float>(context(0, 0, 3, 0)) == 2.5f;
  regard::KvCache<T> cache({.head_size = 2, .value_head_size = 1, .capacity = 4});
  cache.append(zeros.view(), value.view());
  regard::attention_decode(zeros.view(), cache, {.context = context.view()}, {.query_offset = Index{0}});
  exact = exact && static_cast<float>(context(0, 0, 3, 0)) == 2.5f;
  regard::KvCache<std::int8_t> small({.head_size = 2, .value_head_size = 1, .capacity = 4});
  small.append(zeros.view(), value.view());
  regard::attention_decode(zeros.view(), small, {.context = context.view()}, {.query_offset = Index{0}});
  return exact && static_cast<float>(context(0, 0, 3, 0)) == 2.5f;
}

// Multiples of 2⁻¹⁰ in [−1, 1) from a linear congruential generator: exact in float, without rounding.
template <class T>
std::vector<T> numbers(Index count, std::uint32_t state) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (T& number : result) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<T>(static_cast<int>(state >> 21) - 1024) / 1024;
  }
  return result;
}

template <class T, class Bits>
void print_bits(Index num_queries, Index num_keys, Index head_size, bool causal) {
  const auto query = numbers<T>(2 * num_queries * head_size, 1);
  const auto key = numbers<T>(num_keys * head_size, 2);
  const auto value = numbers<T>(num_keys * head_size, 3);
  regard::Tensor<T, 4> context({1, 2, num_queries, head_size});
  regard::Tensor<T, 3> lse({1, 2, num_queries});
  regard::attention_forward({query.data(), {1, 2, num_queries, head_size}}, {key.data(), {1, 1, num_keys, head_size}},
                            {value.data(), {1, 1, num_keys, head_size}}, {.context = context.view(), .lse = lse.view()},
                            {.causal = causal, .query_offset = regard::QueryAlignment::bottom_right, .soft_cap = 20.0});
  std::uint64_t hash = 14695981039346656037u;
  for (const auto* tensor : {&context.view().data[0], &lse.view().data[0]}) {
    const Index size = tensor == context.data() ? context.size() : lse.size();
    for (Index i = 0; i < size; ++i) hash = (hash ^ std::bit_cast<Bits>(tensor[i])) * 1099511628211u;
  }
  std::printf("%d bytes, L %d, S %d, D %d, causal %d: %016llx\n", static_cast<int>(sizeof(T)),
              static_cast<int>(num_queries), static_cast<int>(num_keys), static_cast<int>(head_size), causal,
              static_cast<unsigned long long>(hash));
}

}  // namespace

int main() {
  if (!uniform_average_is_exact()) {
    std::puts("the average of 1, 2, 3, 4 is not 2.5");
    return 1;
  }
  if (!average_of_two_bytes_is_exact<regard::bfloat16>() || !average_of_two_bytes_is_exact<regard::float16>()) {
    std::puts("the average of 1, 2, 3, 4 in 16-bit types is not 2.5");
    return 1;
  }
  for (const bool causal : {false, true}) {
    print_bits<float, std::uint32_t>(7, 40, 3, causal);
    print_bits<float, std::uint32_t>(61, 1100, 64, causal);
    print_bits<double, std::uint64_t>(13, 130, 65, causal);
  }
  return 0;
}
