// SPDX-License-Identifier: Apache-2.0
//
// Attention in ten lines: three tokens, one head. Each token attends to itself and to the tokens before it.
//
//   query, key, value (1, 1, 3, 2) → context (1, 1, 3, 2), weights (1, 1, 3, 3)
#include <regard/attention.h>

#include <cstdio>

int main() {
  const float query[] = {1, 0, 0, 2, 1, 1}, key[] = {1, 0, 0, 1, 1, 1}, value[] = {1, 2, 3, 4, 5, 6};
  float context[6], weights[9];
  const std::array<regard::Index, 4> shape{1, 1, 3, 2};

  regard::attention_forward(regard::TensorView<const float, 4>(query, shape),
                            regard::TensorView<const float, 4>(key, shape),
                            regard::TensorView<const float, 4>(value, shape),
                            {.context = regard::TensorView<float, 4>(context, shape),
                             .weights = regard::TensorView<float, 4>(weights, {1, 1, 3, 3})},
                            {.causal = true});

  for (int i = 0; i < 3; ++i) {
    const float *w = weights + 3 * i, *c = context + 2 * i;
    std::printf("token %d: weights %.4f %.4f %.4f   context %.4f %.4f\n", i, w[0], w[1], w[2], c[0], c[1]);
  }
}

// Prints:
//   token 0: weights 1.0000 0.0000 0.0000   context 1.0000 2.0000
//   token 1: weights 0.1956 0.8044 0.0000   context 2.6089 3.6089
//   token 2: weights 0.2483 0.2483 0.5035   context 3.5105 4.5105
