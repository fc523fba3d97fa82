# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention by PyTorch's autograd in double, which attention_backward_test.cpp compares with ours.

    python tests/backward/make_torch.py > tests/backward/torch.txt        (torch 2.13.0, CPU)

Inputs are values that any language computes exactly: element n of input k is ((n · (37 + 2k) + 11 · k) mod 101) / 50 − 1.
Each line is the name of a case, or a gradient: its name, then its values in row-major order.
"""

import torch


def numbers(k, *shape):
    n = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (((n * (37 + 2 * k) + 11 * k) % 101) / 50 - 1).reshape(shape).requires_grad_()


def write(name, gradient):
    print(name, *(repr(x) for x in gradient.flatten().tolist()))


def case(name, batch, heads, key_heads, queries, keys, depth, columns, causal, soft_cap, has_bias, has_sinks):
    query, key = numbers(0, batch, heads, queries, depth), numbers(1, batch, key_heads, keys, depth)
    value, grad_context = numbers(2, batch, key_heads, keys, columns), numbers(3, batch, heads, queries, columns)
    grad_lse, bias, sinks = numbers(4, batch, heads, queries), numbers(5, 1, heads, 1, keys), numbers(6, heads)
    group = heads // key_heads
    scores = query @ key.repeat_interleave(group, 1).transpose(2, 3) / depth**0.5
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if has_bias:
        scores = scores + bias
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~seen, float("-inf"))
    if has_sinks:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(batch, heads, queries, 1)], 3)
    context = scores.softmax(3)[..., :keys] @ value.repeat_interleave(group, 1)
    lse = scores.logsumexp(3)
    ((context * grad_context.detach()).sum() + (lse * grad_lse.detach()).sum()).backward()
    print("case", name)
    for title, tensor in (("query", query), ("key", key), ("value", value), ("bias", bias), ("sinks", sinks)):
        if tensor.grad is not None:
            write(title, tensor.grad)


case("plain", 1, 1, 1, 3, 5, 4, 3, False, None, False, False)
case("grouped", 2, 4, 2, 5, 7, 6, 5, True, None, True, False)
case("all", 1, 2, 1, 6, 9, 5, 4, True, 0.75, True, True)
