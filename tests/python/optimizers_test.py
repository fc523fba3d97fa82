# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedules of the package: values against NumPy in double, updates in place, and rejections."""

import math

import numpy as np
import pytest
import regard

random = np.random.default_rng(0)


def drawn(*shape):
    return random.standard_normal(shape)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-14), ("float32", 1e-6)])
def test_steps_of_adamw_are_those_of_the_formula(dtype, tolerance):
    p, m, v = drawn(3, 5).astype(dtype), np.zeros((3, 5), dtype), np.zeros((3, 5), dtype)
    expected, first, second = p.astype("float64"), np.zeros((3, 5)), np.zeros((3, 5))
    rate, beta1, beta2, decay, scale = 0.01, 0.8, 0.95, 0.1, 0.5
    for step in range(1, 6):
        gradient = drawn(3, 5).astype(dtype)
        assert regard.adamw_step(p, gradient, m, v, learning_rate=rate, beta1=beta1, beta2=beta2, weight_decay=decay,
                                 gradient_scale=scale, step=step) is None
        g = scale * gradient.astype("float64")
        first += (1 - beta1) * (g - first)
        second = beta2 * second + (1 - beta2) * g**2
        corrected = first / (1 - beta1**step) / (np.sqrt(second / (1 - beta2**step)) + 1e-8)
        expected = (1 - rate * decay) * expected - rate * corrected
        np.testing.assert_allclose(p, expected, rtol=tolerance, atol=tolerance)


def test_a_step_of_muon_is_that_of_the_formula():
    for shape in ((6, 4), (4, 6)):
        matrix, m = drawn(*shape), drawn(*shape)
        gradient, expected, first = drawn(*shape), matrix.copy(), m.copy()
        regard.muon_step(matrix, gradient, m, learning_rate=0.1, momentum=0.9, weight_decay=0.2, gradient_scale=0.5)
        first += (1 - 0.9) * (0.5 * gradient - first)
        update = 0.5 * gradient + 0.9 * (first - 0.5 * gradient)
        x = update / (np.linalg.norm(update) + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = (3.4445 * np.eye(len(a)) - 4.7750 * a + 2.0315 * a @ a) @ x
        expected = (1 - 0.1 * 0.2) * expected - 0.1 * math.sqrt(max(1, shape[0] / shape[1])) * x
        np.testing.assert_allclose(matrix, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(m, first, rtol=1e-14)


def test_the_norm_is_that_of_all_elements_and_clips():
    values = drawn(7, 300).astype("float32")
    norm = regard.global_norm(values)
    assert math.isclose(norm, np.linalg.norm(values.astype("float64")), rel_tol=1e-14)
    assert norm == regard.global_norm(values.ravel(), num_threads=1)
    assert regard.clip_factor(norm, 0) == 1 and regard.clip_factor(norm, 1) == 1 / (norm + 1e-6)
    with pytest.raises(ValueError, match="clip_factor: max_norm is -1"):
        regard.clip_factor(1, -1)


def test_schedules_are_those_of_the_formulas():
    options = dict(steps=200, learning_rate=0.1, min_learning_rate=0.01, warmup=10)
    for step in (0, 5, 9):
        assert regard.learning_rate_at(step, **options) == pytest.approx(0.1 * (step + 1) / 11)
    for step in (10, 60, 150, 199):
        part = (step - 10) / 190
        for schedule, height in (("constant", 1), ("cosine", (1 + math.cos(math.pi * part)) / 2), ("linear", 1 - part),
                                 ("warmup_stable_decay", min(1, 1 - (step - 160) / 40))):
            expected = 0.01 + height * 0.09
            assert regard.learning_rate_at(step, **options, schedule=schedule) == pytest.approx(expected, rel=1e-13)
            assert regard.muon_learning_rate_at(step, **options, schedule=schedule, muon_learning_rate=0.3) == pytest.approx(3 * expected)
    with pytest.raises(ValueError, match="learning_rate_at: schedule is 'step'; expected constant, cosine, linear or warmup"):
        regard.learning_rate_at(0, steps=1, schedule="step")
    with pytest.raises(ValueError, match="step is -1"):
        regard.learning_rate_at(-1, steps=1)


READ_ONLY = np.ones(4)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("call, words", [
    (lambda: regard.adamw_step(*np.ones((3, 4)), READ_ONLY, step=1), "adamw_step: second_moment is read-only"),
    (lambda: regard.adamw_step(np.ones((4, 2))[:, :1], *np.ones((3, 4, 1)), step=1), "parameters has strides (2, 1) in shape (4, 1); expected a contiguous array"),
    (lambda: regard.adamw_step(np.ones((2, 3)), np.ones((3, 2)), *np.ones((2, 2, 3)), step=1), "gradients has shape (3, 2); expected (2, 3), the shape of parameters"),
    (lambda: regard.adamw_step(np.ones(4), np.ones(4, "float32"), *np.ones((2, 4)), step=1), "gradients has type float32; expected float64"),
    (lambda: regard.adamw_step(*np.ones((4, 4), "float16"), step=1), "parameters has type float16; expected float32 or float64"),
    (lambda: regard.adamw_step(*np.ones((4, 4)), step=0), "adamw_step: step is 0; expected 1 or more"),
    (lambda: regard.adamw_step(*np.ones((4, 4)), beta1=1, step=1), "adamw_step: beta1 is 1"),
    (lambda: regard.adamw_step(READ_ONLY.copy(), *[np.ones(4)] * 3, step=1), "adamw_step: "),
    (lambda: regard.muon_step(np.ones((3, 4)), np.ones((4, 3)), np.ones((3, 4))), "muon_step: gradient"),
    (lambda: regard.muon_step(*np.ones((3, 3, 4)), iterations=0), "muon_step: iterations is 0"),
    (lambda: regard.global_norm(np.ones((4, 4)).T[:2]), "values has strides"),
])
def test_invalid_arguments_are_rejected_by_name(call, words):
    with pytest.raises(ValueError) as rejection:
        call()
    assert words in str(rejection.value), str(rejection.value)


def test_a_step_of_another_keyword_is_rejected():
    with pytest.raises(TypeError, match="unexpected keyword argument 'lr'"):
        regard.adamw_step(*np.ones((4, 4)), step=1, lr=1)


def test_the_step_number_is_required():
    with pytest.raises(TypeError, match="step"):
        regard.adamw_step(*np.ones((4, 4)))
