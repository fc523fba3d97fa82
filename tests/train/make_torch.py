# SPDX-License-Identifier: Apache-2.0
"""Parameters after steps of torch.optim.AdamW in double, which optimizer_test.cpp compares with ours.

    python tests/train/make_torch.py > tests/train/torch_adamw.txt        (torch 2.13.0, CPU)

Inputs are values that any language computes exactly. Element n of input k is ((n · (37 + 2k) + 11 · k) mod 101) / 50 − 1.
The parameters are input 0, and the gradients of step s are input s, divided by 1000 for odd s: the moments then change
by orders of magnitude. Each line is the name of a case, with its options, or a step and the parameters after it.
"""

import torch

ELEMENTS, STEPS = 40, 50


def numbers(k):
    n = torch.arange(ELEMENTS, dtype=torch.float64)
    return ((n * (37 + 2 * k) + 11 * k) % 101) / 50 - 1


def case(name, lr, beta1, beta2, eps, weight_decay, max_norm):
    print("case", name, lr, beta1, beta2, eps, weight_decay, max_norm)
    parameters = numbers(0).requires_grad_()
    optimizer = torch.optim.AdamW([parameters], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, foreach=False)
    for step in range(1, STEPS + 1):
        parameters.grad = numbers(step) / (1000 if step % 2 else 1)
        if max_norm:
            torch.nn.utils.clip_grad_norm_([parameters], max_norm)
        optimizer.step()
        if step in (1, 2, 10, STEPS):
            print("step", step, *(repr(x) for x in parameters.tolist()))


case("defaults", 1e-3, 0.9, 0.999, 1e-8, 0.01, 0)
case("nanoGPT", 6e-4, 0.9, 0.95, 1e-8, 0.1, 1.0)
case("grokking", 1e-2, 0.9, 0.98, 1e-8, 1.0, 0)
case("microgpt", 1e-2, 0.85, 0.99, 1e-8, 0, 0)
