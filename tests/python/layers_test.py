# SPDX-License-Identifier: Apache-2.0
"""The layers of the package: values against NumPy in double, gradients against differences, types, and rejections."""

import math

import ml_dtypes
import numpy as np
import pytest
import regard

random = np.random.default_rng(0)
DTYPES = {"float64": 1e-13, "float32": 2e-6, ml_dtypes.bfloat16: 2e-2}


def drawn(*shape):
    return random.standard_normal(shape)


def gradients_of(loss, *arrays, step=1e-5):
    """Central differences of a function of arrays."""
    for array in arrays:
        gradient = np.empty_like(array)
        for at in np.ndindex(array.shape):
            kept = array[at]
            values = []
            for moved in (kept + step, kept - step):
                array[at] = moved
                values.append(loss())
            array[at] = kept
            gradient[at] = (values[0] - values[1]) / (2 * step)
        yield gradient


def expect_gradients(loss, named, **arrays):
    for (name, array), expected in zip(arrays.items(), gradients_of(loss, *arrays.values())):
        np.testing.assert_allclose(named[f"grad_{name}"], expected, rtol=1e-6, atol=1e-8, err_msg=name)


# ---- the layers as formulas

def silu(x):
    return x / (1 + np.exp(-x))


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": silu,
}


def layer_norm(x, gain, bias=0.0, epsilon=1e-5):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon) * gain + bias


def rms_norm(x, gain, epsilon=1e-5):
    return x / np.sqrt((x**2).mean(1, keepdims=True) + epsilon) * gain


def rotary(x, positions, base=10000.0, size=None, interleaved=False):
    size = size or x.shape[-1]
    angles = np.asarray(positions)[..., None, :, None] * base ** (-2 * np.arange(size // 2) / size)
    first, second = (np.arange(size).reshape(-1, 2).T if interleaved else np.arange(size).reshape(2, -1))
    turned = x.copy()
    turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    turned[..., second] = x[..., second] * np.cos(angles) + x[..., first] * np.sin(angles)
    return turned


def cross_entropy(logits, targets):
    logits = logits - logits.max(1, keepdims=True)
    return (np.log(np.exp(logits).sum(1)) - logits[np.arange(len(targets)), targets])


X, Y, GAIN, BIAS = drawn(5, 12), drawn(5, 12), drawn(12), drawn(12)
HEADS = drawn(2, 3, 5, 8)
FORWARD = {
    **{name: (lambda x, name=name: regard.activation_forward(x, name), function, (X,)) for name, function in ACTIVATIONS.items()},
    "swiglu": (regard.swiglu_forward, lambda gate, up: silu(gate) * up, (X, Y)),
    "layer_norm": (regard.layer_norm_forward, layer_norm, (X, GAIN, BIAS)),
    "layer_norm without bias": (regard.layer_norm_forward, layer_norm, (X, GAIN)),
    "layer_norm of a sum": (lambda x, y, gain: regard.layer_norm_forward(x, gain, addend=y, epsilon=1e-3),
                            lambda x, y, gain: layer_norm(x + y, gain, epsilon=1e-3), (X, Y, GAIN)),
    "rms_norm": (regard.rms_norm_forward, rms_norm, (X, GAIN)),
    "rms_norm of a sum": (lambda x, y, gain: regard.rms_norm_forward(x, gain, addend=y), lambda x, y, gain: rms_norm(x + y, gain),
                          (X, Y, GAIN)),
    "rotary": (regard.rotary_forward, lambda x: rotary(x, range(5)), (HEADS,)),
    "rotary interleaved": (lambda x: regard.rotary_forward(x, layout="interleaved", base=500.0, size=6, first_position=7),
                           lambda x: rotary(x, range(7, 12), 500.0, 6, interleaved=True), (HEADS,)),
    "embedding": (lambda x: regard.embedding_forward(x, [4, 0, 4]), lambda x: x[[4, 0, 4]], (X,)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORWARD)
def test_forward_matches_the_formula(name, dtype):
    function, formula, arrays = FORWARD[name]
    given = [array.astype(dtype) for array in arrays]
    found = function(*given)
    expected = formula(*(array.astype("float64") for array in given))
    assert found.dtype == dtype
    tolerance = DTYPES[dtype]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_are_written_in_place_with_the_same_bits(dtype):
    x, y, gain, heads = (array.astype(dtype) for array in (X, Y, GAIN, HEADS))
    wide = np.zeros((5, 24), dtype)
    for function, given, out in ((lambda **o: regard.activation_forward(x, "gelu", **o), x.shape, wide[:, ::2]),
                                 (lambda **o: regard.swiglu_forward(x, y, **o), x.shape, wide[:, ::2]),
                                 (lambda **o: regard.layer_norm_forward(x, gain, **o), x.shape, wide[:, ::2]),
                                 (lambda **o: regard.rms_norm_forward(x, gain, **o), x.shape, wide[:, ::2]),
                                 (lambda **o: regard.embedding_forward(x, range(5), **o), x.shape, wide[:, ::2]),
                                 (lambda **o: regard.rotary_forward(heads, **o), heads.shape, np.zeros_like(heads))):
        expected = function()
        assert expected.shape == given and function(out=out) is out and np.array_equal(out, expected)
    for call, array in ((lambda one: regard.activation_forward(one, "silu", out=one), x),
                        (lambda one: regard.swiglu_forward(one, y, out=one), x),
                        (lambda one: regard.rotary_forward(one, out=one), heads)):
        changed = array.copy()
        assert call(changed) is changed and not np.array_equal(changed, array)


# ---- gradients

@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gradient_of_an_activation_is_that_of_central_differences(name):
    x, weights = drawn(3, 7), drawn(3, 7)
    [expected] = gradients_of(lambda: (ACTIVATIONS[name](x) * weights).sum(), x)
    found = regard.activation_backward(x, weights, name)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    sums = np.ones_like(x)
    assert regard.activation_backward(x, weights, name, grad_input=sums, accumulate=True) is sums
    assert np.array_equal(sums, 1 + found)
    assert regard.activation_backward(x.astype("float32"), weights.astype("float32"), name).dtype == np.float32


def test_gradients_of_swiglu_and_norms_are_those_of_central_differences():
    x, y, gain, bias, weights = drawn(4, 6), drawn(4, 6), drawn(6), drawn(6), drawn(4, 6)
    expect_gradients(lambda: (silu(x) * y * weights).sum(), regard.swiglu_backward(x, y, weights), gate=x, up=y)
    expect_gradients(lambda: (layer_norm(x, gain, bias) * weights).sum(), regard.layer_norm_backward(x, gain, weights),
                     input=x, gain=gain, bias=bias)
    expect_gradients(lambda: (layer_norm(x + y, gain, epsilon=0.1) * weights).sum(),
                     regard.layer_norm_backward(x, gain, weights, addend=y, epsilon=0.1), input=x, gain=gain)
    expect_gradients(lambda: (rms_norm(x + y, gain) * weights).sum(), regard.rms_norm_backward(x, gain, weights, addend=y),
                     input=x, gain=gain)


def test_gradients_are_named_and_accumulate_into_given_arrays():
    for function, arrays in ((regard.swiglu_backward, drawn(3, 4, 6)), (regard.layer_norm_backward, (X, GAIN, Y)),
                             (regard.rms_norm_backward, (X, GAIN, Y)), (regard.linear_backward, (X, drawn(12, 3), drawn(5, 3)))):
        once = function(*arrays)
        sums = {name: np.full_like(gradient, 0.5) for name, gradient in once.items()}
        twice = function(*arrays, **sums, accumulate=list(sums))
        assert list(twice) == list(once) and type(twice).__name__.endswith("Gradients")
        for name in once:
            assert twice[name] is sums[name] is getattr(twice, name) and np.array_equal(sums[name], 0.5 + once[name])
        with pytest.raises(ValueError, match="accumulate names grad_.*; expected grad_.*=array to add to"):
            function(*arrays, accumulate=[next(iter(once))])


def test_groups_of_rows_give_the_bits_of_several_calls():
    x, g, gain, weight = (array.astype("float32") for array in (drawn(12, 8), drawn(12, 8), drawn(8), drawn(8, 8)))
    indices = random.integers(0, 5, 12)
    for whole, part in (
            (lambda **o: regard.layer_norm_backward(x, gain, g, **o), lambda at, **o: regard.layer_norm_backward(x[at], gain, g[at], **o)),
            (lambda **o: regard.rms_norm_backward(x, gain, g, **o), lambda at, **o: regard.rms_norm_backward(x[at], gain, g[at], **o)),
            (lambda **o: regard.linear_backward(x, weight, g, **o), lambda at, **o: regard.linear_backward(x[at], weight, g[at], **o))):
        expected = whole(rows_per_group=4)
        names = [name for name in expected if name != "grad_input"]
        sums = {name: expected[name].copy() for name in names}
        for first in (0, 4, 8):
            part(slice(first, first + 4), **sums, accumulate=names if first else [])
        for name in names:
            assert np.array_equal(sums[name], expected[name]), name
    expected = regard.embedding_backward(indices, g, num_rows=5, rows_per_group=6)
    sums = regard.embedding_backward(indices[:6], g[:6], num_rows=5)
    assert np.array_equal(regard.embedding_backward(indices[6:], g[6:], grad_table=sums, accumulate=True), expected)


# ---- embedding, rotary, cross-entropy

@pytest.mark.parametrize("convert", [list, np.array, lambda one: np.array(one, "int32"), lambda one: memoryview(np.array(one))])
def test_indices_may_be_any_sequence_of_whole_numbers(convert):
    indices = convert([4, 0, 4])
    assert np.array_equal(regard.embedding_forward(X, indices), X[[4, 0, 4]])
    gradient = regard.embedding_backward(indices, X[:3], num_rows=6)
    expected = np.zeros((6, 12))
    np.add.at(expected, [4, 0, 4], X[:3])
    assert np.array_equal(gradient, expected)
    assert regard.embedding_forward(X, convert([])[:0] if convert is list else np.zeros(0, "int64")).shape == (0, 12)


def test_embeddings_add_to_a_given_array():
    out = regard.embedding_forward(X, [1, 2])
    regard.embedding_forward(Y, [0, 1], out=out, accumulate=True)
    assert np.array_equal(out, X[1:3] + Y[:2])


@pytest.mark.parametrize("positions", [[3, 1, 4, 1, 5], np.array([3, 1, 4, 1, 5]), np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], "int32")],
                         ids=["list", "array", "batch"])
def test_rotary_takes_positions_and_its_gradient_turns_back(positions):
    found = regard.rotary_forward(HEADS, positions=positions)
    np.testing.assert_allclose(found, rotary(HEADS, positions), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(regard.rotary_backward(found, positions=positions), HEADS, rtol=1e-13, atol=1e-13)
    sums = np.ones_like(HEADS)
    regard.rotary_backward(HEADS, positions=positions, grad_input=sums, accumulate=True)
    assert np.array_equal(sums, 1 + regard.rotary_backward(HEADS, positions=positions))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy_has_the_loss_and_the_gradient_of_the_formula(dtype):
    logits, targets = (3 * drawn(6, 9)).astype(dtype), [4, -1, 8, 0, -1, 3]
    wide, counted = logits.astype("float64"), [0, 2, 3, 5]
    rows = np.zeros(6)
    rows[counted] = cross_entropy(wide[counted], [4, 8, 0, 3])
    expected = np.zeros_like(wide)
    expected[counted] = np.exp(wide[counted]) / np.exp(wide[counted]).sum(1, keepdims=True)
    expected[counted, [4, 8, 0, 3]] -= 1
    found = regard.cross_entropy_forward(logits, targets, return_row_loss=True, return_grad_logits=True)
    loss, count, row_loss, gradient = found
    assert count == 4 and found._fields == ("loss", "count", "row_loss", "grad_logits") and isinstance(loss, float)
    assert gradient.dtype == dtype and row_loss.dtype == ("float64" if dtype == "float64" else "float32")
    tolerance = min(DTYPES[dtype], 1e-2)
    np.testing.assert_allclose(row_loss, rows, rtol=1e-6)
    np.testing.assert_allclose(loss, rows.sum() / 4, rtol=1e-6)
    np.testing.assert_allclose(gradient.astype("float64"), expected / 4, rtol=tolerance, atol=tolerance / 10)
    summed = regard.cross_entropy_forward(logits, targets, reduction="sum", grad_scale=2, return_grad_logits=True)
    np.testing.assert_allclose(summed.loss, rows.sum(), rtol=1e-6)
    np.testing.assert_allclose(summed.grad_logits.astype("float64"), 2 * expected, rtol=tolerance, atol=tolerance)
    halves = [regard.cross_entropy_forward(logits[at], targets[at], count=4).loss for at in (slice(0, 3), slice(3, 6))]
    assert sum(halves) == regard.cross_entropy_forward(logits, targets, rows_per_group=3).loss
    assert regard.cross_entropy_forward(logits, targets, grad_logits=logits) == (loss, 4) and np.array_equal(logits, gradient)


# ---- multi-head attention

@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("w_output", [False, True])
def test_gradients_of_a_multi_head_block_are_those_of_central_differences(memory, w_output):
    arrays = {"input": drawn(2, 3, 6), "w_query": drawn(6, 8), "w_key": drawn(6, 4), "w_value": drawn(6, 4),
              "b_query": drawn(8), "b_key": drawn(4), "b_value": drawn(4)}
    if memory:
        arrays["memory"] = drawn(2, 4, 6)
    if w_output:
        arrays |= {"w_output": drawn(8, 5), "b_output": drawn(5)}
    options = dict(num_heads=4, num_kv_heads=2, causal="bottom_right")
    output, state = regard.multi_head_attention_forward(**arrays, **options, return_state=True)
    weights = drawn(*output.shape)
    found = regard.multi_head_attention_backward(**arrays, **options, state=state, grad_output=weights)
    assert set(found) == {f"grad_{name}" for name in arrays}
    expect_gradients(lambda: (regard.multi_head_attention_forward(**arrays, **options) * weights).sum(), found, **arrays)
    sums = {name: np.ones_like(gradient) for name, gradient in found.items()}
    regard.multi_head_attention_backward(**arrays, **options, state=state, grad_output=weights, **sums, accumulate=list(sums))
    for name, gradient in found.items():
        assert np.array_equal(sums[name], 1 + gradient), name


def test_a_multi_head_block_returns_the_requested_results():
    x, w = drawn(2, 3, 8), np.eye(8)
    output = regard.multi_head_attention_forward(x, w, w, w, num_heads=2)
    found = regard.multi_head_attention_forward(x, w, w, w, num_heads=2, return_weights=True, return_state=True)
    assert found._fields == ("output", "weights", "state") and np.array_equal(found.output, output)
    np.testing.assert_allclose(found.weights @ found.state.value, found.state.context, rtol=1e-13, atol=1e-13)
    assert list(found.state) == ["query", "key", "value", "context", "row_max", "row_sum", "fingerprint"]
    with pytest.raises(ValueError, match="multi_head_attention_backward: causal differs from the forward call"):
        regard.multi_head_attention_backward(x, w, w, w, found.state, output, num_heads=2, causal=True)
    with pytest.raises(ValueError, match="state has no row_sum"):
        regard.multi_head_attention_backward(x, w, w, w, {k: v for k, v in found.state.items() if k != "row_sum"}, output)
    with pytest.raises(TypeError, match="state is of type .*ndarray.*; expected the state that"):
        regard.multi_head_attention_backward(x, w, w, w, output, output)
    with pytest.raises(TypeError, match="unexpected keyword argument 'grad_memory'"):
        regard.multi_head_attention_backward(x, w, w, w, found.state, output, num_heads=2, grad_memory=x)


# ---- rejections

@pytest.mark.parametrize("call, words", [
    (lambda: regard.activation_forward(X, "tanh"), "activation_forward: activation is 'tanh'; expected none, relu, gelu"),
    (lambda: regard.activation_forward(X.astype("float16"), "relu"), "input has type float16; expected float32, float64 or bfloat16"),
    (lambda: regard.activation_backward(X, Y, "relu", accumulate=True), "accumulate is True; expected grad_input=array to add to"),
    (lambda: regard.activation_backward(X, Y[:4], "relu"), "activation_backward: grad_output"),
    (lambda: regard.swiglu_forward(X, Y.astype("float32")), "swiglu_forward: up has type float32; expected float64"),
    (lambda: regard.layer_norm_forward(X, GAIN, epsilon=-1), "layer_norm_forward: epsilon is -1"),
    (lambda: regard.rms_norm_backward(X, GAIN[:5], Y), "rms_norm_backward: gain"),
    (lambda: regard.embedding_forward(X, [0, 5]), "embedding_forward: indices"),
    (lambda: regard.embedding_forward(X, X[0]), "indices has type float64; expected int32 or int64"),
    (lambda: regard.embedding_forward(X, [0], accumulate=True), "accumulate is True; expected out=array to add to"),
    (lambda: regard.embedding_backward([0], X[:1]), "num_rows is missing; expected the number of rows of the table"),
    (lambda: regard.embedding_backward([0], X[:1], num_rows=4, grad_table=np.zeros((3, 12))), "grad_table has 3 rows; expected num_rows = 4"),
    (lambda: regard.rotary_forward(HEADS, layout="pairs"), "layout is 'pairs'; expected halves or interleaved"),
    (lambda: regard.rotary_forward(HEADS, size=3), "rotary_forward: size is 3"),
    (lambda: regard.rotary_forward(HEADS, positions=[1, 2]), "rotary_forward: positions"),
    (lambda: regard.rotary_forward(HEADS, positions=np.ones((2, 5))), "positions has type float64; expected int32 or int64"),
    (lambda: regard.rotary_forward(X), "input has 2 axes in shape (5, 12); expected 4"),
    (lambda: regard.cross_entropy_forward(X, [0, 1, 2, 12, 0]), "cross_entropy_forward: targets"),
    (lambda: regard.cross_entropy_forward(X, [0] * 5, reduction="none"), "reduction is 'none'; expected mean or sum"),
    (lambda: regard.multi_head_attention_forward(X[None], *[np.eye(12)] * 3, num_heads=0), "num_heads is 0; expected at least 1"),
])
def test_invalid_arguments_are_rejected_by_name(call, words):
    with pytest.raises(ValueError) as rejection:
        call()
    assert words in str(rejection.value), str(rejection.value)


def test_a_plan_of_layers_computes_nothing():
    for function, arguments, name in ((regard.rms_norm_forward, (X, GAIN), "rms_norm_forward"),
                                      (regard.cross_entropy_forward, (X, [0] * 5), "cross_entropy_forward"),
                                      (regard.rotary_forward, (HEADS,), "rotary_forward")):
        assert regard.plan(function, *arguments).operators[0].name == name
