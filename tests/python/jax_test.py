# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX on the processor: read where they lie, given back as JAX's own, never written."""

import ctypes

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import regard

jax.config.update("jax_platforms", "cpu")
TYPES = ["float32", "float64", "bfloat16", "float16"]


def given(dtype, seed):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.random.default_rng(seed).standard_normal((1, 2, 5, 8)).astype(dtype)


def three(dtype):
    """Query, key and value of NumPy, and the same of JAX."""
    arrays = [given(dtype, seed) for seed in range(3)]
    with jax.enable_x64(True):
        return arrays, [jnp.asarray(array) for array in arrays]


def address(array):
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.ctypes.data


def writable(array):
    """The memory of an array of JAX as one of NumPy."""
    memory = (ctypes.c_char * array.nbytes).from_address(address(array))
    return np.frombuffer(memory, np.dtype(array.dtype)).reshape(array.shape)


def same(result, expected):
    """Whether an array of JAX has the type and the bits of one of NumPy."""
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
@pytest.mark.parametrize("place", [0, 1, 2])
def test_inputs_are_read_where_they_lie(dtype, place):
    # Had the input been copied, the output would overlap nothing.
    _, ours = three(dtype)
    before = np.asarray(ours[place]).tobytes()
    name = ("query", "key", "value")[place]
    with pytest.raises(ValueError, match=f"context overlaps {name}"):
        regard.attention(*ours, out=writable(ours[place]))
    assert np.asarray(ours[place]).tobytes() == before


def test_places_of_keys_keep_their_type():
    arrays, ours = three("float32")
    found, expected = (regard.attention_with_statistics(*x, top_keys=2) for x in (ours, arrays))
    assert found.pop("fingerprint") == expected.pop("fingerprint")
    assert all(same(found[name], expected[name]) for name in expected)
    chosen = jnp.take_along_axis(found["context"], found["top_keys"], -1)
    assert np.array_equal(chosen, np.take_along_axis(expected["context"], expected["top_keys"], -1))
    assert jnp.ones(1).dtype == np.float32  # JAX's own switch stays


def test_options_may_be_arrays_of_jax():
    arrays, ours = three("float32")
    mask, bias = np.tril(np.ones((5, 5), bool)), np.linspace(0, 1, 25, dtype=np.float32).reshape(5, 5)
    expected = regard.attention(*arrays, mask=mask, bias=bias, key_lengths=np.array([4], np.int32))
    assert same(regard.attention(*ours, mask=jnp.asarray(mask), bias=jnp.asarray(bias),
                                 key_lengths=jnp.array([4], jnp.int32)), expected)


def test_what_regard_computed_is_taken_by_jax_without_a_copy():
    arrays, _ = three("float32")
    expected = regard.attention(*arrays)
    result = regard.attention(*map(memoryview, arrays))
    taken = jax.dlpack.from_dlpack(result)
    assert address(taken) == np.asarray(memoryview(result)).ctypes.data and same(taken, expected)
    del result
    assert same(taken + 0, expected)


def test_numpys_memory_is_written_and_taken_by_jax():
    memory = np.zeros(80 + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    out = memory[begin:begin + 80].reshape(1, 2, 5, 8)
    arrays, ours = three("float32")
    assert regard.attention(*ours, out=out) is out
    taken = jax.dlpack.from_dlpack(out)
    assert address(taken) == address(out) and same(taken, regard.attention(*arrays))


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_jax_are_no_outputs(dtype):
    _, ours = three(dtype)
    with jax.enable_x64(True):
        out = jnp.zeros((1, 2, 5, 8), dtype)
        weights = jnp.zeros((1, 2, 5, 5), "float64" if dtype == "float64" else "float32")
    for outputs in (dict(out=out), dict(weights=weights)):
        [name] = outputs
        with pytest.raises(ValueError, match=f"^attention_forward: {name} is read-only"):
            regard.attention(*ours, **outputs)
    assert not np.asarray(out).any() and not np.asarray(weights).any()


def test_what_has_no_memory_is_rejected():
    _, (query, key, value) = three("float32")
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.grad(lambda x: regard.attention(x, key, value).sum())(query)
    gone = query + 1
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        regard.attention(gone, key, value)
