# SPDX-License-Identifier: Apache-2.0
"""Layers and optimizers on tensors of PyTorch: the values, gradients and steps of PyTorch itself."""

import pytest
import regard
import torch

GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=GENERATOR, dtype=dtype)


def interleaved(x):
    """The rotation of adjacent pairs, as complex numbers."""
    positions, pairs = torch.arange(x.shape[2], dtype=x.dtype), torch.arange(x.shape[3] // 2, dtype=x.dtype)
    angles = positions[:, None] * 10000.0 ** (-2 * pairs / x.shape[3])
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


TARGETS = torch.tensor([4, -1, 8, 0, 3])
LAYERS = {
    **{name: (lambda x, name=name: regard.activation_forward(x, name), lambda x, g, name=name: [regard.activation_backward(x, g, name)],
              function, [drawn(5, 9)])
       for name, function in {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
                              "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}.items()},
    "swiglu": (regard.swiglu_forward, lambda *a: regard.swiglu_backward(*a).values(),
               lambda gate, up: torch.nn.functional.silu(gate) * up, [drawn(5, 9), drawn(5, 9)]),
    "layer_norm": (regard.layer_norm_forward, lambda x, gain, bias, g: regard.layer_norm_backward(x, gain, g).values(),
                   lambda x, gain, bias: torch.nn.functional.layer_norm(x, (9,), gain, bias), [drawn(5, 9), drawn(9), drawn(9)]),
    "rms_norm": (regard.rms_norm_forward, lambda *a: regard.rms_norm_backward(*a).values(),
                 lambda x, gain: torch.nn.functional.rms_norm(x, (9,), gain, eps=1e-5), [drawn(5, 9), drawn(9)]),
    "rotary": (lambda x: regard.rotary_forward(x, layout="interleaved"), lambda x, g: [regard.rotary_backward(g, layout="interleaved")],
               interleaved, [drawn(2, 3, 5, 8)]),
    "embedding": (lambda table: regard.embedding_forward(table, [4, 0, 4]),
                  lambda table, g: [regard.embedding_backward([4, 0, 4], g, num_rows=5)],
                  lambda table: torch.nn.functional.embedding(torch.tensor([4, 0, 4]), table), [drawn(5, 9)]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_are_those_of_pytorch(name):
    forward, backward, expected_forward, arrays = LAYERS[name]
    for array in arrays:
        array.requires_grad_(True)
    expected = expected_forward(*arrays)
    grad_output = drawn(*expected.shape)
    expected_gradients = torch.autograd.grad(expected, arrays, grad_output)
    plain = [array.detach() for array in arrays]
    found = forward(*plain)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    for gradient, one in zip(backward(*plain, grad_output), expected_gradients, strict=True):
        torch.testing.assert_close(gradient, one, rtol=1e-11, atol=1e-12)


def test_cross_entropy_is_that_of_pytorch():
    logits = drawn(5, 9).requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(logits, TARGETS, ignore_index=-1)
    [expected] = torch.autograd.grad(loss, logits)
    found = regard.cross_entropy_forward(logits.detach(), TARGETS, return_grad_logits=True)
    assert found.loss == pytest.approx(loss.item(), rel=1e-13) and found.count == 4
    torch.testing.assert_close(found.grad_logits, expected, rtol=1e-11, atol=1e-13)


def test_adamw_takes_the_steps_of_pytorch():
    parameter = torch.nn.Parameter(drawn(7, 3))
    own, first, second = parameter.detach().clone(), torch.zeros(7, 3, dtype=torch.float64), torch.zeros(7, 3, dtype=torch.float64)
    optimizer = torch.optim.AdamW([parameter], lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
    for step in range(1, 6):
        gradient = drawn(7, 3)
        parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([parameter], 2.0)
        optimizer.step()
        scale = regard.clip_factor(regard.global_norm(gradient), 2.0)
        regard.adamw_step(own, gradient, first, second, learning_rate=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1,
                          gradient_scale=scale, step=step)
        torch.testing.assert_close(own, parameter.detach(), rtol=1e-13, atol=1e-13)
