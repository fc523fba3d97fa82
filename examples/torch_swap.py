# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model whose attention, including its gradients, is computed by Regard, without changes to the model."""

import regard.torch
import torch


class Block(torch.nn.Module):
    """Causal self-attention with 4 heads, as in many models."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        context = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(context.transpose(1, 2).flatten(2))


torch.manual_seed(0)
block = Block()
x = torch.randn(2, 100, 64)


def loss_and_gradient():
    block.zero_grad()
    loss = block(x).square().mean()
    loss.backward()
    return loss.detach(), block.qkv.weight.grad.clone()


torch_loss, torch_gradient = loss_and_gradient()
with regard.torch.patched():
    loss, gradient = loss_and_gradient()
print("loss differs by less than 1e-6:", bool((loss - torch_loss).abs() < 1e-6))
print("gradient differs by less than 1e-6:", bool((gradient - torch_gradient).abs().max() < 1e-6))

# Prints:
#   loss differs by less than 1e-6: True
#   gradient differs by less than 1e-6: True
