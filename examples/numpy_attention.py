# SPDX-License-Identifier: Apache-2.0
"""Attention on NumPy arrays: context, selected weights, and attention statistics over 20,000 tokens."""

import numpy as np
import regard

rng = np.random.default_rng(0)
query, key, value = (rng.standard_normal((1, 8, 20000, 64), dtype=np.float32) for _ in range(3))    # (B, H, L, D)
query += 0.3
key[:, :, 0] = 4.5                                                # along the mean of all queries: an attention sink

# A causal sliding window of 256 tokens: one pass, no (L, L) matrix.
context = regard.attention(query, key, value, causal=True, window=(255, 0))
print("context", context.shape, context.dtype)

# Entropy, the best keys and the weight on chosen keys for the last 100 queries, which see nearly all 20,000 keys.
found = regard.attention_with_statistics(query[:, :, -100:], key, value, causal="bottom_right", top_keys=2, chosen_keys=[0])
print("mean entropy %.2f nats; uniform would be %.2f" % (found["entropy"].mean(), np.log(19950)))
print("mean weight on key 0: %.2f; rows where it is the largest: %d of %d" % (
    found["chosen_weight"].mean(), (found["top_keys"][..., 0] == 0).sum(), found["entropy"].size))

# The exact weights of two rows of the full matrix.
weights = regard.attention_weights(query[:, :, -100:], key, row_max=found["row_max"], row_sum=found["row_sum"],
                                   rows=[(98, 100)], causal="bottom_right")
print("weights", weights.shape, "rows sum to %.5f and %.5f" % tuple(weights[0, 0].sum(axis=-1)))

# Prints:
#   context (1, 8, 20000, 64) float32
#   mean entropy 4.84 nats; uniform would be 9.90
#   mean weight on key 0: 0.51; rows where it is the largest: 737 of 800
#   weights (1, 8, 2, 20000) rows sum to 1.00000 and 1.00000
