// SPDX-License-Identifier: Apache-2.0
//
// Attention statistics of a head over 100,000 keys, for 64 queries, without storing the 64 × 100,000 weights.
//
//   key 0       has the mean direction of all queries: an attention sink
//   key 31,415  has the direction of query 63: the key that this query retrieves
//   The entropy and the best keys of each row are computed during the forward pass.
#include <regard/attention_statistics.h>

#include <cmath>
#include <cstdint>
#include <cstdio>

int main() {
  const regard::Index L = 64, S = 100000, D = 64, k = 3;
  regard::Tensor<float, 3> query({1, L, D}), key({1, S, D}), value({1, S, D}), context({1, L, D});
  // Small deterministic values from a linear congruential generator.
  std::uint32_t state = 1;
  const auto fill = [&](regard::Tensor<float, 3>& tensor) {
    for (regard::Index i = 0; i < tensor.view().size(); ++i) {
      state = state * 1664525u + 1013904223u;
      tensor.view().data[i] = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
  };
  fill(query);
  fill(key);
  fill(value);
  for (regard::Index d = 0; d < D; ++d) {
    for (regard::Index i = 0; i < L; ++i) query.view()(0, i, d) += 0.5F;
    key.view()(0, 0, d) = 3.0F;
    key.view()(0, 31415, d) = 3.0F * query.view()(0, 63, d);
  }

  regard::Tensor<std::int64_t, 4> top_keys({1, 1, L, k});
  regard::Tensor<float, 4> top_weights({1, 1, L, k});
  regard::Tensor<float, 3> entropy({1, 1, L}), row_max({1, 1, L}), row_sum({1, 1, L}), key_mass({1, 1, S});
  regard::attention_with_statistics(query, key, value, {.context = context, .row_max = row_max, .row_sum = row_sum},
                                    {.top_keys = top_keys, .top_weights = top_weights, .entropy = entropy});
  for (const regard::Index row : {0, 63}) {
    std::printf("query %2d: entropy %.2f nats (uniform: %.2f); best keys", int(row), entropy.view()(0, 0, row),
                std::log(static_cast<double>(S)));
    for (regard::Index i = 0; i < k; ++i) {
      std::printf(" %d (%.3f)", int(top_keys.view()(0, 0, row, i)), top_weights.view()(0, 0, row, i));
    }
    std::printf("\n");
  }

  // The total weight of all queries on each key is computed in a second pass over query and key.
  regard::attention_columns(query, key, {.row_max = row_max, .row_sum = row_sum}, {.key_mass = key_mass});
  std::printf("share of all attention: key 0 %.1f %%, key 31415 %.1f %%\n",
              100 * key_mass.view()(0, 0, 0) / static_cast<float>(L),
              100 * key_mass.view()(0, 0, 31415) / static_cast<float>(L));
}

// Prints:
//   query  0: entropy 8.19 nats (uniform: 11.51); best keys 0 (0.338) 31415 (0.001) 87369 (0.000)
//   query 63: entropy 0.91 nats (uniform: 11.51); best keys 31415 (0.837) 0 (0.130) 18974 (0.000)
//   share of all attention: key 0 53.3 %, key 31415 1.6 %
