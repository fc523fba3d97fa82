# SPDX-License-Identifier: Apache-2.0
"""regard.onnx.attention on the test cases of the package onnx, and rules of the standard that no case covers."""

import pathlib

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import regard.onnx

CASES = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"


def is_attention(folder):
    node = onnx.load(folder / "model.onnx").graph.node
    return len(node) == 1 and node[0].op_type == "Attention"


# The cases called expanded are the same, written with other operators.
FOLDERS = sorted(folder for folder in CASES.glob("test_attention*") if is_attention(folder))


def tensors(folder, kind, names):
    """Tensors by name. An input or output that the case leaves out has neither a name nor a file."""
    read = {}
    named = [name for name in names if name]
    for index, name in enumerate(named):
        path = folder / "test_data_set_0" / f"{kind}_{index}.pb"
        read[name] = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    return read


def test_no_case_is_missing():
    assert len(FOLDERS) == 64


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_of_the_standard_is_reproduced(folder):
    model = onnx.load(folder / "model.onnx")
    node = model.graph.node[0]
    given = tensors(folder, "input", node.input)
    expected = tensors(folder, "output", node.output)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    inputs = [given.get(name) for name in node.input]
    outputs = regard.onnx.attention(*inputs, **attributes, num_outputs=4, opset=model.opset_import[0].version)
    assert expected
    for name, output in zip(node.output, outputs):
        if not name:
            continue
        assert output.dtype == expected[name].dtype and output.shape == expected[name].shape
        # The published tolerances are 1e-3 and 1e-7. In float32, 1e-6 of the largest element is also required.
        if output.dtype == np.float32:
            finite = np.where(np.isfinite(expected[name]), expected[name], 0)
            np.testing.assert_allclose(output, expected[name], rtol=1e-6, atol=1e-6 * np.abs(finite).max(), err_msg=name)
        np.testing.assert_allclose(output, expected[name], rtol=1e-3, atol=1e-7, err_msg=name)


def arrays(*shapes, dtype="float32"):
    generator = np.random.default_rng(5)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def test_the_window_is_relative_to_positions_after_the_past():
    q, k, v, past_k, past_v = arrays((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    y = regard.onnx.attention(q, k, v, None, past_k, past_v, is_causal=1, left_window_size=1)
    i, j = np.arange(3)[:, None] + 4, np.arange(7)
    expected = regard.attention(q, np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2),
                                mask=(j <= i) & (j >= i - 1))
    assert np.array_equal(y, expected)


def test_causal_is_top_left_without_a_cache_and_bottom_right_with_lengths():
    q, k, v = arrays((2, 2, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8))
    i, j = np.arange(3)[:, None], np.arange(5)
    assert np.array_equal(regard.onnx.attention(q, k, v, is_causal=1), regard.attention(q, k, v, mask=j <= i))
    lengths = np.array([4, 2])[:, None, None, None]
    y = regard.onnx.attention(q, k, v, None, None, None, np.array([4, 2]), is_causal=1)
    assert np.array_equal(y, regard.attention(q, k, v, mask=(j < lengths) & (j <= i + lengths - 3)))
    assert (y[1, :, 0] == 0).all()  # offset −1: no key is visible to its first row


def test_a_short_mask_hides_the_remaining_keys():
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    for mask in (np.ones((3, 4), bool), np.zeros((3, 4), np.float32)):
        assert np.array_equal(regard.onnx.attention(q, k, v, mask), regard.attention(q, k[:, :, :4], v[:, :, :4]))


def test_nans_hidden_by_minus_infinity_have_no_effect():
    q, k, v = arrays((1, 1, 2, 8), (1, 1, 3, 8), (1, 1, 3, 8))
    k[0, 0, 1], v[0, 0, 1] = np.nan, np.inf
    mask = np.array([[0, -np.inf, 0], [-np.inf] * 3], np.float32)
    y, _, _, weights = regard.onnx.attention(q, k, v, mask, qk_matmul_output_mode=3, num_outputs=4)
    assert np.isfinite(y).all() and (y[0, 0, 1] == 0).all() and (weights[0, 0, 1] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_type_and_precision_is_accurate(dtype):
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), dtype=np.dtype(dtype))
    mask = arrays((3, 5), dtype=np.dtype(dtype))[0]
    exact = regard.onnx.attention(*(x.astype(np.float64) for x in (q, k, v, mask)))
    for precision in (None, 1, 10, 11, 16):
        y = regard.onnx.attention(q, k, v, mask, softmax_precision=precision)
        unit = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -6, "float32": 1e-6, "float64": 1e-14}[dtype]
        assert y.dtype == q.dtype and np.abs(y.astype(np.float64) - exact).max() <= unit * np.abs(v.astype(float)).max()
    assert y.dtype == np.dtype(dtype) and ml_dtypes.bfloat16 is not None


REJECTED = [
    (dict(opset=22), "opset is 22"),
    (dict(nonpad=np.array([1]), opset=23), "opset 23 has no nonpad_kv_seqlen"),
    (dict(left_window_size=1, opset=24), "opset 24 has no window"),
    (dict(q_num_heads=2), "apply only to inputs with 3 axes"),
    (dict(qk_matmul_output_mode=4), "qk_matmul_output_mode is 4"),
    (dict(softmax_precision=2), "softmax_precision is 2"),
    (dict(num_outputs=5), "num_outputs is 5"),
    (dict(past_key=True), "past_value is missing"),
    (dict(attn_mask=np.zeros((3, 5), int)), "attn_mask has type int64"),
    (dict(attn_mask=np.zeros((3, 6), bool)), "expected at most 5 keys"),
    (dict(attn_mask=np.zeros((3, 4), bool), opset=23), "opset 23 expects 5 keys"),
    (dict(is_causal=2), "is_causal is 2; expected 0 or 1"),
    (dict(left_window_size=-2), "left_window_size is -2"),
    (dict(nonpad=np.array([1.5])), "nonpad_kv_seqlen has shape (1,) and type float64"),
    (dict(nonpad=[[1]]), "nonpad_kv_seqlen has shape (1, 1)"),
    (dict(nonpad=[]), "expected integers of shape (1,)"),
]


@pytest.mark.parametrize("changes, words", REJECTED, ids=lambda x: x if isinstance(x, str) else "")
def test_attributes_that_the_standard_forbids_are_rejected(changes, words):
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    changes = dict(changes)
    nonpad = changes.pop("nonpad", None)
    past_key = k if changes.pop("past_key", None) else None
    with pytest.raises(ValueError) as rejection:
        regard.onnx.attention(q, k, v, changes.pop("attn_mask", None), past_key, None, nonpad, **changes)
    assert words in str(rejection.value)


def test_arrays_that_the_standard_forbids_are_rejected():
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    for past_k, past_v, words in ((k[0], v[0], "past_key has shape (2, 5, 8); expected (1, 2, past length, 8)"),
                                  (k, v[:, :1], "past_value has shape (1, 1, 5, 8)"),
                                  (k.astype("f8"), v, "past_key has type float64; expected float32")):
        with pytest.raises(ValueError) as rejection:
            regard.onnx.attention(q, k, v, None, past_k, past_v)
        assert words in str(rejection.value)
    with pytest.raises(ValueError, match="K has type float16; expected float32, the type of Q"):
        regard.onnx.attention(q, k.astype("f2"), v)
    for inputs in ((q.tolist(), k, v), (q, None, v), (q, k, v, [[True] * 5] * 3)):
        with pytest.raises(TypeError, match="expected a NumPy array"):
            regard.onnx.attention(*inputs)


def test_values_may_have_a_different_type():
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    exact = regard.onnx.attention(q.astype("f8"), k.astype("f8"), v.astype("f8"))
    for of_query, of_value in (("f4", "f8"), ("f8", "f4"), ("f4", "f2"), ("f2", "f4")):
        y, _, present = regard.onnx.attention(q.astype(of_query), k.astype(of_query), v.astype(of_value), num_outputs=3)
        assert y.dtype == of_query and present.dtype == of_value
        np.testing.assert_allclose(y.astype("f8"), exact, atol=5e-3 if "f2" in (of_query, of_value) else 1e-6)


def test_a_mask_of_one_key_broadcasts_in_opset_23_and_hides_other_keys_later():
    q, k, v = arrays((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    for mask in (np.array([[True], [False], [True]]), np.array([[0], [-np.inf], [1]], np.float32)):
        full = np.broadcast_to(mask, (3, 5))
        assert np.array_equal(regard.onnx.attention(q, k, v, mask, opset=23), regard.onnx.attention(q, k, v, full))
        shown = regard.onnx.attention(q, k, v, mask, opset=24, qk_matmul_output_mode=3, num_outputs=4)[3]
        assert (shown[..., 0, :] == [1, 0, 0, 0, 0]).all() and (shown[..., 1, :] == 0).all()
    assert (regard.onnx.attention(q, k, v, np.array(False)) == 0).all()


def test_inputs_with_three_axes_may_be_empty():
    for batch, queries, keys in ((2, 0, 5), (2, 3, 0), (0, 3, 5)):
        q, k, v = arrays((batch, queries, 16), (batch, keys, 8), (batch, keys, 12))
        y = regard.onnx.attention(q, k, v, q_num_heads=np.int64(4), kv_num_heads=2)
        assert y.shape == (batch, queries, 24) and (y == 0).all()


def test_inputs_with_three_axes_need_numbers_of_heads():
    q, k, v = arrays((1, 3, 16), (1, 5, 16), (1, 5, 16))
    with pytest.raises(ValueError, match="q_num_heads is None"):
        regard.onnx.attention(q, k, v)
    with pytest.raises(ValueError, match="axes"):
        regard.onnx.attention(q, k[None], v)
