# SPDX-License-Identifier: Apache-2.0
"""Twenty steps of training by PyTorch in double, which decoder_training_test.cpp compares with ours.

    python tests/train/make_decoder_torch.py > tests/train/decoder_torch.txt        (torch 2.13.0, CPU)

Parameters and tokens are values that any language computes exactly. Element n of parameter k, counted in the order of
decoder_parameters(), is scale · (((n · (37 + 2k) + 11k) mod 101) / 50 − 1), plus 1 if it is a gain. Token j of sequence b
of step s is (7b + 3s + j·j + 5j·b) mod V; its target is token j + 1, or −1 where (b + j + s) mod 5 = 0.
Each line is the name of a case and the loss of each step, before its update by AdamW.
"""

import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, HIDDEN, VOCABULARY, BATCH, LENGTH, STEPS = 2, 4, 16, 24, 13, 3, 9, 20


class Parameters:
    def __init__(self):
        self.list = []

    def take(self, *shape, gain=False):
        k = len(self.list)
        n = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
        values = 0.2 * (((n * (37 + 2 * k) + 11 * k) % 101) / 50 - 1) + (1 if gain else 0)
        self.list.append(values.reshape(shape).requires_grad_())
        return self.list[-1]


def tokens_of(step):
    b, j = torch.arange(BATCH)[:, None], torch.arange(LENGTH + 1)[None, :]
    tokens = (7 * b + 3 * step + j * j + 5 * j * b) % VOCABULARY
    targets = tokens[:, 1:].clone()
    targets[(b + j[:, :-1] + step) % 5 == 0] = -1
    return tokens[:, :-1], targets


def rotate(x, base):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def case(name, kv_heads, norm, positions, feed_forward, tied, biases):
    parameters = Parameters()
    size = WIDTH // HEADS

    def take_norm():
        gain = parameters.take(WIDTH, gain=True)
        bias = parameters.take(WIDTH) if norm == "layer" and biases else None
        if norm == "layer":
            return lambda x: F.layer_norm(x, (WIDTH,), gain, bias, 1e-5)
        return lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain

    def take_linear(*outputs, inputs):
        matrices = [parameters.take(out, inputs) for out in outputs]
        vectors = [parameters.take(out) for out in outputs] if biases else [None] * len(outputs)
        return [lambda x, m=m, v=v: F.linear(x, m, v) for m, v in zip(matrices, vectors)]

    table = parameters.take(VOCABULARY, WIDTH)
    places = parameters.take(LENGTH, WIDTH) if positions == "learned" else None
    layers = []
    for _ in range(LAYERS):
        first = take_norm()
        projections = take_linear(WIDTH, kv_heads * size, kv_heads * size, inputs=WIDTH)
        output = take_linear(WIDTH, inputs=WIDTH)
        if feed_forward == "none":
            layers.append((first, projections, output, None, None, None))
        else:
            second = take_norm()
            up = take_linear(*([HIDDEN] * (2 if feed_forward == "swiglu" else 1)), inputs=WIDTH)
            layers.append((first, projections, output, second, up, take_linear(WIDTH, inputs=HIDDEN)))
    last = take_norm()
    head = table if tied else parameters.take(VOCABULARY, WIDTH)

    activation = {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }

    def logits(tokens):
        x = table[tokens]
        if places is not None:
            x = x + places
        for first, projections, (output,), second, up, down in layers:
            normed = first(x)
            split = lambda y, heads: y.unflatten(-1, (heads, size)).transpose(1, 2)
            q, k, v = (split(f(normed), heads) for f, heads in zip(projections, (HEADS, kv_heads, kv_heads)))
            if positions == "rotary":
                q, k = rotate(q, 10000.0), rotate(k, 10000.0)
            k, v = (y.repeat_interleave(HEADS // kv_heads, 1) for y in (k, v))
            scores = q @ k.transpose(-1, -2) / size**0.5
            scores = scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), float("-inf"))
            x = x + output((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
            if second is not None:
                y = [f(second(x)) for f in up]
                x = x + down[0](F.silu(y[0]) * y[1] if feed_forward == "swiglu" else activation[feed_forward](y[0]))
        return F.linear(last(x), head)

    decayed = [p for p in parameters.list if p.dim() == 2]
    other = [p for p in parameters.list if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.99), eps=1e-8, foreach=False)
    losses = []
    for step in range(STEPS):
        tokens, targets = tokens_of(step)
        loss = F.cross_entropy(logits(tokens).flatten(0, 1), targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.list, 1.0)
        optimizer.step()
        losses.append(repr(loss.item()))
    print(name, *losses)


case("gpt", 4, "layer", "learned", "gelu", tied=True, biases=False)
case("gpt-biases", 4, "layer", "learned", "gelu_tanh", tied=True, biases=True)
case("llama", 2, "rms", "rotary", "swiglu", tied=False, biases=False)
case("llama-tied", 1, "rms", "rotary", "swiglu", tied=True, biases=False)
case("relu", 4, "layer", "none", "relu", tied=False, biases=True)
case("attention-only", 2, "layer", "learned", "none", tied=False, biases=False)
