// SPDX-License-Identifier: Apache-2.0
//
// Grouped-query attention with a sliding window: 8 query heads share 2 key/value heads, and each token attends to
// itself and the 3 tokens before it.
//
//   query (2, 8, 16, 32), key and value (2, 2, 16, 32). The first rows and columns of the mask (1 = visible):
//
//     1 0 0 0 0 0
//     1 1 0 0 0 0
//     1 1 1 0 0 0
//     1 1 1 1 0 0
//     0 1 1 1 1 0
//     0 0 1 1 1 1
#include <regard/attention.h>

#include <cmath>
#include <cstdio>

int main() {
  const regard::Index B = 2, H = 8, Hkv = 2, L = 16, D = 32;
  regard::Tensor<float, 4> query({B, H, L, D}), key({B, Hkv, L, D}), value({B, Hkv, L, D}), context({B, H, L, D});
  regard::Tensor<float, 4> weights({B, H, L, L});
  const auto fill = [](regard::Tensor<float, 4>& tensor, float step) {
    for (regard::Index i = 0; i < tensor.view().size(); ++i) {
      tensor.view().data[i] = std::sin(step * static_cast<float>(i));
    }
  };
  fill(query, 0.7F);
  fill(key, 0.3F);
  fill(value, 0.1F);

  regard::attention_forward(query, key, value, {.context = context, .weights = weights},
                            {.causal = true, .window = {.left = 3}});

  std::printf("weights of token 9 in batch entry 1, head 5, which reads key/value head 5 / (8 / 2) = 1:\n");
  for (regard::Index j = 0; j < L; ++j) std::printf("%s%.3f", j == 0 ? "" : " ", weights.view()(1, 5, 9, j));
  std::printf("\n");
}

// Prints:
//   weights of token 9 in batch entry 1, head 5, which reads key/value head 5 / (8 / 2) = 1:
//   0.000 0.000 0.000 0.000 0.000 0.000 0.251 0.249 0.256 0.244 0.000 0.000 0.000 0.000 0.000 0.000
