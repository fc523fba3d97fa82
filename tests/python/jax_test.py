# SPDX-License-Identifier: Apache-2.0
"""JAX arrays on the CPU: inputs are read in place and never written; results are JAX arrays."""

import ctypes

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import regard
import regard.jax

jax.config.update("jax_platforms", "cpu")
TYPES = ["float32", "float64", "bfloat16", "float16"]


def given(dtype, seed):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.random.default_rng(seed).standard_normal((1, 2, 5, 8)).astype(dtype)


def three(dtype):
    """Query, key and value as NumPy arrays, and the same as JAX arrays."""
    arrays = [given(dtype, seed) for seed in range(3)]
    with jax.enable_x64(True):
        return arrays, [jnp.asarray(array) for array in arrays]


def address(array):
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.ctypes.data


def writable(array):
    """A writable NumPy array on the memory of a JAX array."""
    memory = (ctypes.c_char * array.nbytes).from_address(address(array))
    return np.frombuffer(memory, np.dtype(array.dtype)).reshape(array.shape)


def same(result, expected):
    """Whether a JAX array has the type and the bits of a NumPy array."""
    assert isinstance(result, jax.Array) and result.dtype == expected.dtype
    return np.asarray(result).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_jax_arrays_with_the_bits_of_numpy(dtype):
    arrays, ours = three(dtype)
    options = dict(causal="top_left", return_lse=True, return_weights=True)
    results, expected = regard.attention(*ours, **options), regard.attention(*arrays, **options)
    assert len(results) == 3 and all(map(same, results, expected))
    assert address(results[0]) % 64 == 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_inputs_are_read_in_place(dtype, index):
    # If the input were copied, the output would not overlap it.
    _, ours = three(dtype)
    before = np.asarray(ours[index]).tobytes()
    name = ("query", "key", "value")[index]
    with pytest.raises(ValueError, match=f"context overlaps {name}"):
        regard.attention(*ours, out=writable(ours[index]))
    assert np.asarray(ours[index]).tobytes() == before


def test_key_indices_keep_their_type():
    arrays, ours = three("float32")
    found, expected = (regard.attention_with_statistics(*x, top_keys=2) for x in (ours, arrays))
    assert found.pop("fingerprint") == expected.pop("fingerprint")
    assert all(same(found[name], expected[name]) for name in expected)
    chosen = jnp.take_along_axis(found["context"], found["top_keys"], -1)
    assert np.array_equal(chosen, np.take_along_axis(expected["context"], expected["top_keys"], -1))
    assert jnp.ones(1).dtype == np.float32  # JAX's x64 setting is unchanged


def test_options_may_be_jax_arrays():
    arrays, ours = three("float32")
    mask, bias = np.tril(np.ones((5, 5), bool)), np.linspace(0, 1, 25, dtype=np.float32).reshape(5, 5)
    expected = regard.attention(*arrays, mask=mask, bias=bias, key_lengths=np.array([4], np.int32))
    assert same(regard.attention(*ours, mask=jnp.asarray(mask), bias=jnp.asarray(bias),
                                 key_lengths=jnp.array([4], jnp.int32)), expected)


def test_jax_takes_results_without_a_copy():
    arrays, _ = three("float32")
    expected = regard.attention(*arrays)
    results = [regard.attention(*map(memoryview, arrays)) for _ in range(16)]
    taken = [jax.dlpack.from_dlpack(result) for result in results]
    assert [address(array) for array in taken] == [result.ctypes.data for result in results]
    assert all(same(array, expected) for array in taken)
    del results
    assert all(same(array + 0, expected) for array in taken)


def test_a_numpy_output_is_written_and_taken_by_jax():
    memory = np.zeros(80 + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    out = memory[begin:begin + 80].reshape(1, 2, 5, 8)
    arrays, ours = three("float32")
    assert regard.attention(*ours, out=out) is out
    taken = jax.dlpack.from_dlpack(out)
    assert address(taken) == address(out) and same(taken, regard.attention(*arrays))


@pytest.mark.parametrize("dtype", TYPES)
def test_jax_arrays_are_rejected_as_outputs(dtype):
    _, ours = three(dtype)
    with jax.enable_x64(True):
        out = jnp.zeros((1, 2, 5, 8), dtype)
        weights = jnp.zeros((1, 2, 5, 5), "float64" if dtype == "float64" else "float32")
    for outputs in (dict(out=out), dict(weights=weights)):
        [name] = outputs
        with pytest.raises(ValueError, match=f"^attention_forward: {name} is read-only"):
            regard.attention(*ours, **outputs)
    assert not np.asarray(out).any() and not np.asarray(weights).any()


def test_traced_and_deleted_arrays_are_rejected():
    _, (query, key, value) = three("float32")
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.grad(lambda x: regard.attention(x, key, value).sum())(query)
    gone = query + 1
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        regard.attention(gone, key, value)


# ---- regard.jax: under transformations

def formula(query, key, value, visible=True, bias=0.0, scale=None, sinks=None):
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    if groups > 1:
        key, value = jnp.repeat(key, groups, -3), jnp.repeat(value, groups, -3)
    scores = (query.shape[-1] ** -0.5 if scale is None else scale) * query @ key.swapaxes(-1, -2) + bias
    scores = jnp.where(visible, scores, -jnp.inf)
    if sinks is not None:
        sinks = jnp.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
        return jax.nn.softmax(jnp.concatenate([scores, sinks], -1), -1)[..., :-1] @ value
    return jax.nn.softmax(scores, -1) @ value


def normal(*shape, seed=0, dtype="float64"):
    with jax.enable_x64(True):
        return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


CAUSAL = np.tril(np.ones((5, 5), bool))
CASES = {
    "plain": ({}, {}),
    "causal": (dict(causal=True), dict(visible=CAUSAL)),
    "grouped heads and scale": (dict(scale=0.5), dict(scale=0.5)),
    "mask": (dict(mask=CAUSAL), dict(visible=CAUSAL)),
    "bias": (dict(bias=np.linspace(0, 1, 25).reshape(5, 5)), dict(bias=np.linspace(0, 1, 25).reshape(5, 5))),
    "key_lengths": (dict(key_lengths=[3, 4]), dict(visible=np.arange(5) < np.array([3, 4])[:, None, None, None])),
    "sinks": (dict(sinks=[0.5, -1.0]), dict(sinks=jnp.array([0.5, -1.0]))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_match_the_formula(name):
    options, of_formula = CASES[name]
    with jax.enable_x64(True):
        query, grad = normal(2, 2, 5, 8), normal(2, 2, 5, 6, seed=3)
        heads = 1 if name.startswith("grouped") else 2
        key, value = normal(2, heads, 5, 8, seed=1), normal(2, heads, 5, 6, seed=2)
        for call in (regard.jax.attention, jax.jit(lambda *arrays, **given: regard.jax.attention(*arrays, **options))):
            given = options if call is regard.jax.attention else {}
            np.testing.assert_allclose(call(query, key, value, **given), formula(query, key, value, **of_formula), rtol=1e-12)
            found = jax.vjp(lambda *arrays: call(*arrays, **given), query, key, value)[1](grad)
            expected = jax.vjp(lambda *arrays: formula(*arrays, **of_formula), query, key, value)[1](grad)
            for one, other in zip(found, expected):
                np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_bias_and_sinks_have_gradients():
    with jax.enable_x64(True):
        arrays = [normal(1, 2, 5, 8, seed=seed) for seed in range(3)]
        bias, sinks = normal(2, 5, 5, seed=4), normal(2, seed=5)

        def loss(attention):
            return lambda bias, sinks: (attention(*arrays, bias=bias, sinks=sinks) ** 2).sum()

        found = jax.jit(jax.grad(loss(regard.jax.attention), (0, 1)))(bias, sinks)
        expected = jax.grad(loss(formula), (0, 1))(bias, sinks)
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_vmap_matches_a_loop_over_the_entries(axes):
    shape = (1, 2, 5, 8)[4 - axes:]
    query, key, value = (normal(3, *shape, seed=seed, dtype="float32") for seed in range(3))
    found = jax.jit(jax.vmap(lambda q, k: regard.jax.attention(q, k, value[0], causal=True)))(query, key)
    expected = jnp.stack([regard.attention(q, k, value[0], causal=True) for q, k in zip(query, key)])
    assert same(found, np.asarray(expected))
    gradient = jax.vmap(jax.grad(lambda q, k: regard.jax.attention(q, k, value[0], causal=True).sum()))(query, key)
    one = jax.grad(lambda q: formula(q, key[1], value[0], CAUSAL).sum())(query[1])
    np.testing.assert_allclose(gradient[1], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_transformed_calls_have_the_bits_of_plain_ones(dtype):
    arrays, ours = three(dtype)
    with jax.enable_x64(True):
        assert same(jax.jit(regard.jax.attention)(*ours), regard.attention(*arrays))
        gradients = jax.grad(lambda *x: regard.jax.attention(*x).astype("float32").sum(), (0, 1, 2))(*ours)
        assert all(gradient.dtype == array.dtype for gradient, array in zip(gradients, ours))
        if dtype in ("bfloat16", "float16"):
            assert regard.jax.attention(*ours, dtype=jnp.float32).dtype == jnp.float32


def test_large_arrays_pass_through_the_callback():
    query, key, value = (normal(1, 8, 1024, 64, seed=seed, dtype="float32") for seed in range(3))
    step = jax.jit(jax.grad(lambda *x: regard.jax.attention(*x, causal=True).sum(), (0, 1, 2)))
    for _ in range(3):
        gradients = step(query * 1, key, value)
    assert all(bool(jnp.isfinite(gradient).all()) for gradient in gradients)


def test_equal_calls_are_compiled_once():
    query, key, value = (normal(1, 2, 5, 8, seed=seed, dtype="float32") for seed in range(3))
    traced = []

    @jax.jit
    def call(query):
        traced.append(1)
        return regard.jax.attention(query, key, value, key_lengths=[3])

    call(query), call(query + 1)
    assert len(traced) == 1
    first, second = (regard.jax._Forward(("query",), (("scale", 0.5),)) for _ in range(2))
    assert first == second and hash(first) == hash(second)


def test_invalid_arguments_are_rejected_at_trace_time():
    query, key, value = (normal(1, 2, 5, 8, seed=seed, dtype="float32") for seed in range(3))
    with pytest.raises(ValueError, match="attention_forward: key has head size 4"):
        jax.jit(regard.jax.attention)(query, key[..., :4], value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'return_lse'"):
        regard.jax.attention(query, key, value, return_lse=True)
    with pytest.raises(TypeError, match="'is_causal'; for causal masking, use causal=True"):
        regard.jax.attention(query, key, value, is_causal=True)
