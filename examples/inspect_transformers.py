# SPDX-License-Identifier: Apache-2.0
"""Attention statistics of every head of a transformers model, without its (L, L) weights.

A small Llama model with random parameters processes a text that repeats with period 64. To inspect a trained model,
load it with transformers.AutoModel.from_pretrained(name, attn_implementation="regard").
"""

import regard.transformers
import torch
import transformers

regard.transformers.register()
torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, attn_implementation="regard")
model = transformers.LlamaModel(config).eval()
ids = torch.randint(1000, (1, 64)).repeat(1, 16)                 # 1,024 tokens

# chosen_weight is the weight on the key 63 positions back: the token after the previous occurrence of the query token.
with torch.inference_mode(), regard.transformers.inspection(chosen_offset=1 - 64) as calls:
    model(input_ids=ids)
for call in calls:
    entropy, induction = (call[name].mean(dim=(0, 2)) for name in ("entropy", "chosen_weight"))
    print(call["module"], "entropy", [f"{x:.1f}" for x in entropy.tolist()], "induction", [f"{x:.3f}" for x in induction.tolist()])
print("shape of a statistic (B, H, L):", tuple(calls[0]["entropy"].shape))

# Prints:
#   layers.0.self_attn entropy ['5.9', '5.9', '5.9', '5.9'] induction ['0.003', '0.003', '0.003', '0.003']
#   layers.1.self_attn entropy ['5.9', '5.9', '5.9', '5.9'] induction ['0.003', '0.003', '0.003', '0.003']
#   shape of a statistic (B, H, L): (1, 4, 1024)
