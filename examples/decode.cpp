// SPDX-License-Identifier: Apache-2.0
//
// A decode loop over a paged KV cache, with a fork: two continuations share the keys and values of one prompt.
//
//   prefill 70 tokens ── sequence 0 ─┬─ decode 20 tokens
//                      fork(0, 1)    └─ sequence 1: decode 20 other tokens
//
// The rest of the model is omitted: projection() stands in for the query, key or value projection of a range of tokens.
#include <regard/kv_cache.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace {

constexpr regard::Index H = 8, Hkv = 2, D = 64, kPrompt = 70, kSteps = 20;

// Returns an array (heads, count, D) for `count` tokens, starting at position `first`.
regard::Tensor<float, 3> projection(float kind, regard::Index heads, regard::Index first, regard::Index count) {
  regard::Tensor<float, 3> rows({heads, count, D});
  for (regard::Index h = 0; h < heads; ++h) {
    for (regard::Index i = 0; i < count; ++i) {
      for (regard::Index d = 0; d < D; ++d) {
        rows.view()(h, i, d) = std::sin(kind * static_cast<float>((first + i) * 7 + h * 3 + d));
      }
    }
  }
  return rows;
}

constexpr float kQuery = 0.7F, kKey = 0.3F, kValue = 0.1F;

}  // namespace

int main() {
  // The cache has 16 pages of 32 keys. Pages are allocated to a sequence as it grows.
  regard::KvCache<float> cache({.num_sequences = 2,
                                .num_kv_heads = Hkv,
                                .head_size = D,
                                .value_head_size = D,
                                .capacity = 256,
                                .page_keys = 32,
                                .num_pages = 16});

  // Prefill: attention over the whole prompt, whose keys and values are appended to the cache.
  const auto query = projection(kQuery, H, 0, kPrompt);
  const auto key = projection(kKey, Hkv, 0, kPrompt), value = projection(kValue, Hkv, 0, kPrompt);
  regard::Tensor<float, 3> prompt_context({H, kPrompt, D});
  regard::attention_forward(query, key, value, {.context = prompt_context}, {.causal = true});
  cache.append(0, key, value);
  std::printf("after the prompt: %d keys, %d of 16 pages free\n", int(cache.length(0)), int(cache.num_free_pages()));

  // The two full panels of 32 keys are shared; only the last one, which has 6 keys, is copied.
  cache.fork(0, 1);
  std::printf("after the fork: %d free\n", int(cache.num_free_pages()));

  // Each step appends one token to each sequence, then attends to all keys so far.
  regard::Tensor<float, 4> step_query({2, H, 1, D}), context({2, H, 1, D});
  for (regard::Index step = 0; step < kSteps; ++step) {
    for (regard::Index sequence = 0; sequence < 2; ++sequence) {
      const regard::Index token = kPrompt + step + 1000 * sequence;
      cache.append(sequence, projection(kKey, Hkv, token, 1), projection(kValue, Hkv, token, 1));
      const auto rows = projection(kQuery, H, token, 1);
      std::copy_n(rows.view().data, H * D, step_query.view().pointer(sequence, 0, 0, 0));
    }
    regard::attention_decode(step_query, cache, {.context = context}, {.causal = true});
  }
  std::printf("after %d steps: %d and %d keys, %d free\n", int(kSteps), int(cache.length(0)), int(cache.length(1)),
              int(cache.num_free_pages()));

  // Decoding gives the same bits as one call over the whole sequence.
  const regard::Index last = kPrompt + kSteps - 1;
  regard::Tensor<float, 3> expected({H, 1, D});
  regard::attention_forward(projection(kQuery, H, last, 1), projection(kKey, Hkv, 0, last + 1),
                            projection(kValue, Hkv, 0, last + 1), {.context = expected});
  std::printf(
      "the last token of sequence 0, compared with attention over all %d tokens: %s\n", int(last + 1),
      std::equal(expected.view().data, expected.view().data + H * D, context.view().data) ? "identical" : "different");

  // Truncating a continuation that is no longer needed frees the pages that no other sequence uses.
  cache.truncate(1, 0);
  std::printf("after truncate(1, 0): %d free\n", int(cache.num_free_pages()));
}

// Prints:
//   after the prompt: 70 keys, 13 of 16 pages free
//   after the fork: 12 free
//   after 20 steps: 90 and 90 keys, 12 free
//   the last token of sequence 0, compared with attention over all 90 tokens: identical
//   after truncate(1, 0): 13 free
