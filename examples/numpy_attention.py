# SPDX-License-Identifier: Apache-2.0
"""Attention on NumPy arrays: context, weights on request, and where a head attends to at a length of 20,000 tokens."""

import numpy as np
import regard

rng = np.random.default_rng(0)
query, key, value = (rng.standard_normal((1, 8, 20000, 64), dtype=np.float32) for _ in range(3))    # (B, H, L, D)
key[0, :, 0] += 2 * query.mean(axis=2)[0] + 1                    # key 0 is an attention sink
query += 0.3

# A causal sliding window of 256 tokens: one pass, no (L, L) matrix.
context = regard.attention(query, key, value, causal=True, window=(255, 0))
print("context", context.shape, context.dtype)

# Entropy and the best keys of every row, from one causal pass over the last 100 queries.
found = regard.attention_with_statistics(query[:, :, -100:], key, value, causal="bottom_right", top_keys=2)
print("mean entropy %.2f nats; uniform would be %.2f" % (found["entropy"].mean(), np.log(19950)))
print("rows whose best key is key 0: %d of %d" % ((found["top_keys"][..., 0] == 0).sum(), found["top_keys"][..., 0].size))

# The exact weights of two rows of the whole matrix.
weights = regard.attention_weights(query[:, :, -100:], key, row_max=found["row_max"], row_sum=found["row_sum"],
                                   rows=[(98, 100)], causal="bottom_right")
print("weights", weights.shape, "rows sum to %.5f and %.5f" % tuple(weights[0, 0].sum(axis=-1)))
