# SPDX-License-Identifier: Apache-2.0
"""Results of the Python package compared with plain NumPy in float64, and with each other."""

import gc
import itertools
import mmap

import ml_dtypes
import numpy as np
import pytest
import regard


def arrays(*shapes, seed=0, dtype="float32"):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def reference(query, key, value, visible=None, scale=None, bias=0.0, soft_cap=None):
    """Context, lse and weights from the formula, in float64; visible broadcasts to (B, H, L, S)."""
    query, key, value = (np.asarray(x, dtype=np.float64) for x in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, groups, 1), np.repeat(value, groups, 1)
    scores = (1 / np.sqrt(query.shape[3]) if scale is None else scale) * query @ key.swapaxes(-1, -2)
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    sums = exponentials.sum(-1, keepdims=True)
    weights = np.divide(exponentials, sums, out=np.zeros_like(scores), where=sums > 0)
    with np.errstate(divide="ignore"):
        lse = (largest + np.log(sums))[..., 0]
    return weights @ value, lse, weights


def bound(query, key, value, weights, scale=None, bias=0.0, unit=2.0 ** -24):
    """The error bound of semantics.md, section 4, plus one rounding of the result."""
    groups = query.shape[1] // key.shape[1]
    wide = [np.abs(np.asarray(x, dtype=np.float64)) for x in (query, key, value)]
    key, value = np.repeat(wide[1], groups, 1), np.repeat(wide[2], groups, 1)
    scale = 1 / np.sqrt(query.shape[3]) if scale is None else abs(scale)
    largest = (scale * wide[0] @ key.swapaxes(-1, -2) + np.abs(bias)).max(-1, keepdims=True)
    return unit * (33 + 4 * np.sqrt(query.shape[3]) * largest) * (weights @ value)


def test_a_causal_window_with_lse_matches_the_formula():
    query, key, value = arrays((2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 5))
    context, lse = regard.attention(query, key, value, causal="bottom_right", window=(3, 0), return_lse=True)
    position, j = np.arange(7)[:, None] + 2, np.arange(9)
    visible = (j <= position) & (j >= position - 3)
    expected, expected_lse, weights = reference(query, key, value, visible)
    assert isinstance(context, np.ndarray) and context.dtype == np.float32 and context.shape == (2, 4, 7, 5)
    assert (np.abs(context - expected) <= bound(query, key, value, weights)).all()
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-6, atol=1e-6)


def test_attention_is_attention_forward():
    assert regard.attention is regard.attention_forward


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_type_is_within_the_error_bound(dtype):
    query, key, value = arrays((1, 2, 33, 24), (1, 2, 40, 24), (1, 2, 40, 8), dtype=np.dtype(dtype))
    context, lse, weights = regard.attention(query, key, value, return_lse=True, return_weights=True)
    computed = "float64" if dtype == "float64" else "float32"
    assert context.dtype == np.dtype(dtype) and lse.dtype == computed and weights.dtype == computed
    expected, _, exact = reference(query, key, value)
    unit = 2.0 ** -53 if dtype == "float64" else 2.0 ** -24
    rounding = {"bfloat16": 2.0 ** -7, "float16": 2.0 ** -10}.get(dtype, 0)
    allowed = bound(query, key, value, exact, unit=unit) + rounding * (exact @ np.abs(value.astype(np.float64)))
    assert (np.abs(context.astype(np.float64) - expected) <= allowed).all()


def test_16_bit_inputs_can_give_a_float32_context():
    query, key, value = arrays((1, 1, 5, 8), (1, 1, 5, 8), (1, 1, 5, 8), dtype=ml_dtypes.bfloat16)
    wide = regard.attention(query, key, value, dtype="float32")
    assert wide.dtype == np.float32
    out = np.empty((1, 1, 5, 8), np.float32)
    assert regard.attention(query, key, value, out=out) is out
    assert np.array_equal(out, wide)
    # The weights are float32, too, unless rounding is requested.
    assert np.allclose(wide, regard.attention(*(x.astype(np.float32) for x in (query, key, value))), rtol=0, atol=1e-6)
    assert np.array_equal(wide, regard.attention(query, key, value, dtype="float32", weights_in_float32=True))
    assert np.array_equal(wide.astype(ml_dtypes.bfloat16), regard.attention(query, key, value, weights_in_float32=True))
    rounded = regard.attention(query, key, value, dtype="float32", weights_in_float32=False)
    assert np.array_equal(rounded.astype(ml_dtypes.bfloat16), regard.attention(query, key, value, weights_in_float32=None))
    assert np.array_equal(rounded, wide) != (regard.active_instruction_set() == "avx512_bf16")


def test_every_option_matches_the_formula():
    query, key, value = arrays((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8), dtype="float64")
    i, j = np.arange(6)[:, None], np.arange(6)
    mask = arrays((2, 4, 6, 6), seed=1)[0] > 0
    mask[..., 0] = True
    bias = arrays((6, 6), seed=2, dtype="float64")[0]
    segments = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, -1]], np.int32)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    blocks = np.array([[True, False], [True, True]])
    lengths = [4, 6]
    same = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, :, None]
    cases = {
        "causal": (dict(causal=True), dict(visible=j <= i)),
        "query_offset": (dict(causal=True, query_offset=-1), dict(visible=j <= i - 1)),
        "query_offsets": (dict(causal=True, query_offset=[0, 2]), dict(visible=j <= i + np.array([0, 2])[:, None, None, None])),
        "window": (dict(window=(1, None)), dict(visible=j >= i - 1)),
        "key_lengths": (dict(key_lengths=lengths), dict(visible=j < np.array(lengths)[:, None, None, None])),
        "key_lengths as an array": (dict(key_lengths=np.array(lengths, np.int32)),
                                 dict(visible=j < np.array(lengths)[:, None, None, None])),
        "prefix": (dict(causal=True, prefix=[2, 3]), dict(visible=(j <= i) | (j < np.array([2, 3])[:, None, None, None]))),
        "segments": (dict(query_segments=segments, key_segments=segments), dict(visible=same[:, None])),
        "block_mask": (dict(block_mask=blocks, block_size=(3, 3)), dict(visible=np.kron(blocks, np.ones((3, 3))) > 0)),
        "mask": (dict(mask=mask), dict(visible=mask)),
        "bias": (dict(bias=bias), dict(bias=bias)),
        "alibi_slopes": (dict(alibi_slopes=slopes), dict(bias=-slopes[:, None, None] * np.abs(j - i))),
        "soft_cap": (dict(soft_cap=0.5), dict(soft_cap=0.5)),
        "scale": (dict(scale=-1), dict(scale=-1)),
    }
    plain = regard.attention(query, key, value)
    for name, (options, formula) in cases.items():
        context = regard.attention(query, key, value, **options)
        expected, _, _ = reference(query, key, value, **formula)
        np.testing.assert_allclose(context, expected, rtol=1e-12, atol=1e-13, err_msg=name)
        assert not np.array_equal(context, plain), name


def test_sinks_match_the_formula():
    query, key, value = arrays((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8), dtype="float64")
    sinks = [0.5, -1.0]
    context, lse, sink = regard.attention(query, key, value, sinks=sinks, return_lse=True, return_sink_weights=True)
    _, plain, weights = reference(query, key, value)
    total = np.logaddexp(plain, np.array(sinks)[:, None])
    np.testing.assert_allclose(lse, total, rtol=1e-12)
    np.testing.assert_allclose(sink, np.exp(np.array(sinks)[:, None] - total), rtol=1e-12)
    # Decoding and merging return the sinks' weights, too, and their docstrings mention the option.
    cache = regard.KvCache(head_size=8, capacity=8, num_kv_heads=key.shape[1], num_sequences=1, dtype="float64")
    cache.append(key, value)
    partials = regard.attention_partials(query, key, value)
    for call, arguments in ((regard.attention_decode, (query, cache)), (regard.attention_merge, partials)):
        options = dict(sinks=sinks, return_sink_weights=True)
        found = call(*arguments, **options) if isinstance(arguments, tuple) else call(**arguments, **options)
        assert np.array_equal(found[0], context) and np.array_equal(found[1], sink)
        assert "return_sink_weights" in call.__doc__
    np.testing.assert_allclose(context, (weights * np.exp(plain - total)[..., None]) @ value, rtol=1e-12, atol=1e-14)


def test_packed_sequences_are_independent():
    query, key, value = arrays((1, 2, 7, 8), (1, 2, 9, 8), (1, 2, 9, 8))
    packed = regard.attention(query, key, value, query_starts=[0, 3, 7], key_starts=np.array([0, 4, 9]),
                              causal="bottom_right")
    parts = [regard.attention(query[:, :, a:b], key[:, :, c:d], value[:, :, c:d], causal="bottom_right")
             for (a, b), (c, d) in [((0, 3), (0, 4)), ((3, 7), (4, 9))]]
    assert np.array_equal(packed, np.concatenate(parts, 2))


def test_fully_masked_rows_are_zero_and_hidden_nans_have_no_effect():
    query, key, value = arrays((1, 1, 2, 8), (1, 1, 3, 8), (1, 1, 3, 8))
    key[0, 0, 2], value[0, 0, 2] = np.nan, np.inf
    context, lse = regard.attention(query, key, value, mask=np.array([[False] * 3, [True, True, False]]), return_lse=True)
    assert (context[0, 0, 0] == 0).all() and lse[0, 0, 0] == -np.inf and np.isfinite(context).all()


def test_empty_shapes_give_empty_or_zero_results():
    empty = np.empty((0, 2, 3, 8), np.float32)
    assert regard.attention(empty, empty, empty).shape == (0, 2, 3, 8)
    query, key, value = arrays((1, 2, 3, 8), (1, 2, 0, 8), (1, 2, 0, 4))
    assert np.array_equal(regard.attention(query, key, value), np.zeros((1, 2, 3, 4), np.float32))


def test_bits_do_not_depend_on_threads_or_strides():
    query, key, value = arrays((2, 100, 3, 32), (2, 130, 3, 32), (2, 130, 3, 32))  # (B, L, H, D)
    heads = [x.transpose(0, 2, 1, 3) for x in (query, key, value)]
    context = regard.attention(*heads, causal="bottom_right", num_threads=1)
    dense = regard.attention(*map(np.ascontiguousarray, heads), causal="bottom_right", num_threads=3)
    assert np.array_equal(context, dense)
    joined = np.empty((2, 100, 3, 32), np.float32)
    regard.attention(*heads, causal="bottom_right", out=joined.transpose(0, 2, 1, 3))
    assert np.array_equal(joined.transpose(0, 2, 1, 3), context)


def test_a_long_call_has_the_bits_of_short_ones():
    query, key, value = arrays((1, 2, 700, 64), (1, 2, 700, 64), (1, 2, 700, 64))
    whole = regard.attention(query, key, value)
    rows = [regard.attention(query[:, :, i:i + 50], key, value) for i in range(0, 700, 50)]
    assert np.array_equal(whole, np.concatenate(rows, 2))


def test_weights_and_scores_can_be_recomputed_for_selected_rows():
    query, key, value = arrays((1, 2, 20, 16), (1, 2, 30, 16), (1, 2, 30, 16))
    _, row_max, row_sum, weights = regard.attention(query, key, value, return_row_max=True, return_row_sum=True,
                                                    return_weights=True)
    some = regard.attention_weights(query, key, row_max=row_max, row_sum=row_sum, rows=[(3, 5), (0, 1)], keys=(7, 20))
    assert np.array_equal(some, weights[:, :, [3, 4, 0], 7:20])
    scores = regard.attention_weights(query, key, kind="scores")
    np.testing.assert_allclose(scores, query.astype(float) @ key.astype(float).swapaxes(-1, -2) / 4, rtol=1e-4, atol=1e-5)


def test_statistics_and_columns_match_the_weights():
    query, key, value = arrays((1, 2, 20, 16), (1, 2, 30, 16), (1, 2, 30, 16))
    found = regard.attention_with_statistics(query, key, value, top_keys=3, chosen_keys=[0, 4])
    context, weights = regard.attention(query, key, value, return_weights=True)
    assert np.array_equal(found["context"], context)
    order = np.argsort(-weights, -1, kind="stable")[..., :3]
    assert np.array_equal(found["top_keys"], order) and found["top_keys"].dtype == np.int64
    assert np.array_equal(found["top_weights"], np.take_along_axis(weights, order, -1))
    np.testing.assert_allclose(found["entropy"], -(weights * np.log(weights)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(found["chosen_weight"], weights[..., [0, 4]].sum(-1), rtol=1e-6)
    np.testing.assert_allclose(found["head_largest_weight"], weights.max(-1).mean(-1), rtol=1e-6)
    columns = regard.attention_columns(query, key, found["row_max"], found["row_sum"], pooled_map=(2, 3), cells="sums")
    np.testing.assert_allclose(columns["key_mass"], weights.sum(-2), rtol=1e-5)
    np.testing.assert_allclose(columns["pooled_map"], weights.reshape(1, 2, 2, 10, 3, 10).sum((3, 5)), rtol=1e-5)


def test_chosen_weights_match_the_weights():
    query, key, value = arrays((2, 2, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16))
    given = dict(causal="bottom_right")
    _, weights = regard.attention(query, key, value, return_weights=True, **given)
    rows = np.arange(20)

    def chosen(**keys):
        found = regard.attention_with_statistics(query, key, value, **given, **keys)
        np.testing.assert_allclose(found["head_chosen_weight"], found["chosen_weight"].mean(-1), rtol=1e-6)
        return found["chosen_weight"]

    assert np.array_equal(chosen(chosen_offset=-1), weights[:, :, rows, rows + 9])
    assert (chosen(chosen_offset=1) == 0).all() and (chosen(chosen_offset=2**63 - 1) == 0).all()
    one = np.random.default_rng(1).integers(0, 30, 20)
    assert np.array_equal(chosen(chosen_ranges=np.stack([one, one + 1], -1)), weights[:, :, rows, one])
    none = np.stack([-np.ones(20, np.int64), np.zeros(20, np.int64)], -1)
    assert (chosen(chosen_ranges=none) == 0).all()
    batch = np.array([[[0, 3]], [[5, 100]]])
    expected = np.stack([weights[0, :, :, 0:3].sum(-1), weights[1, :, :, 5:].sum(-1)])
    np.testing.assert_allclose(chosen(chosen_ranges=batch), expected, rtol=1e-6)
    assert np.array_equal(chosen(chosen_keys=[40, 7, 0]), chosen(chosen_keys=[0, 7]))
    with pytest.raises(ValueError, match="more than one of chosen_keys, chosen_ranges and chosen_offset"):
        chosen(chosen_keys=[0], chosen_offset=0)
    with pytest.raises(ValueError, match=r"chosen_ranges has shape \(1, 5, 2\); expected \(2 or 1, 20 or 1, 2\)"):
        chosen(chosen_ranges=np.zeros((5, 2), np.int64))


def test_merged_partials_have_the_bits_of_one_call():
    query, key, value = arrays((1, 1, 5, 16), (1, 1, 2100, 16), (1, 1, 2100, 16))
    whole, lse = regard.attention(query, key, value, return_lse=True)
    partials = regard.attention_partials(query, key, value)
    merged = regard.attention_merge(partials["accumulator"], partials["row_max"], partials["row_sum"],
                                    scaled_accumulator=partials["scaled_accumulator"])
    assert np.array_equal(merged, whole)
    halves = [regard.attention(query, key[:, :, part], value[:, :, part], return_lse=True)
              for part in (slice(0, 900), slice(900, 2100))]
    joined, joined_lse = regard.attention_merge_lse(np.stack([h[0] for h in halves]), np.stack([h[1] for h in halves]),
                                                    return_lse=True)
    np.testing.assert_allclose(joined, whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(joined_lse, lse, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_decoding_from_a_cache_has_the_bits_of_attention(dtype):
    query, key, value = arrays((2, 4, 3, 16), (2, 2, 70, 16), (2, 2, 70, 8), dtype=np.dtype(dtype))
    cache = regard.KvCache(head_size=16, value_head_size=8, capacity=100, num_sequences=2, num_kv_heads=2, dtype=dtype)
    cache.append(key[:, :, :33], value[:, :, :33])
    for sequence in (0, 1):
        cache.append(key[sequence, :, 33:], value[sequence, :, 33:], sequence=sequence)
    assert cache.length(0) == cache.length(1) == 70 and cache.dtype == dtype
    decoded, lse = regard.attention_decode(query, cache, causal="bottom_right", return_lse=True)
    whole, whole_lse = regard.attention(query, key, value, causal="bottom_right", return_lse=True)
    assert np.array_equal(decoded, whole) and np.array_equal(lse, whole_lse)
    cache.truncate(1, 40)
    assert (cache.length(0), cache.length(1), cache.first_key(1)) == (70, 40, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8"])
def test_merged_partials_of_caches_have_the_bits_of_one_cache(dtype):
    given = "float64" if dtype == "float64" else "float32"
    query, key, value = arrays((2, 4, 3, 16), (2, 2, 2100, 16), (2, 2, 2100, 8), dtype=np.dtype(given))

    def cache_of(keys):
        cache = regard.KvCache(head_size=16, value_head_size=8, capacity=2100, num_sequences=2, num_kv_heads=2, dtype=dtype)
        cache.append(key[:, :, keys], value[:, :, keys])
        return cache

    whole = regard.attention_decode(query, cache_of(slice(0, 2100)), causal=True, sinks=[0.5] * 4)
    parts = [regard.attention_decode_partials(query, cache_of(slice(*keys)), causal=True, query_offset=2097 - keys[0])
             for keys in ((0, 1024), (1024, 1024), (1024, 2100))]
    assert [part.row_max.shape for part in parts] == [(1, 2, 4, 3), (0, 2, 4, 3), (2, 2, 4, 3)]
    merged = regard.attention_merge(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
                                    sinks=[0.5] * 4)
    assert np.array_equal(merged, whole)
    with pytest.raises(ValueError, match="attention_decode_partials: sinks are given"):
        regard.attention_decode_partials(query, cache_of(slice(0, 9)), sinks=[0.5] * 4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16"])
def test_a_cache_rounds_keys_and_values_to_its_type(dtype, given):
    query, key, value = arrays((1, 2, 3, 16), (1, 1, 70, 16), (1, 1, 70, 16))
    key, value = key.astype(given), value.astype(given)
    cache, rounded = (regard.KvCache(head_size=16, capacity=100, dtype=dtype) for _ in range(2))
    cache.append(key[:, :, :33], value[:, :, :33])
    cache.append(key[0, :, 33:], value[0, :, 33:], sequence=0)
    rounded.append(*(x.astype("float32").astype(dtype) for x in (key, value)))
    decoded, expected = (regard.attention_decode(query, c, causal=True) for c in (cache, rounded))
    assert np.array_equal(decoded, expected)
    assert np.array_equal(decoded, regard.attention_decode(query, cache, causal="bottom_right"))


def test_a_cache_rejects_float64_and_a_query_with_another_batch_size():
    query, key = arrays((1, 2, 1, 16), (4, 1, 5, 16))
    cache = regard.KvCache(head_size=16, capacity=100, num_sequences=4, dtype="bfloat16")
    with pytest.raises(ValueError, match="float64"):
        cache.append(key.astype("float64"), key.astype("float64"))
    cache.append(key, key)
    with pytest.raises(ValueError, match=r"query has batch 1 in shape \(1, 2, 1, 16\); the cache has 4 sequences"):
        regard.attention_decode(query, cache, causal=True)


def test_a_cache_without_keys_decodes_to_zeros():
    query, key = arrays((2, 2, 3, 16), (1, 5, 16))
    cache = regard.KvCache(head_size=16, capacity=100, num_sequences=2)
    context, lse = regard.attention_decode(query, cache, causal=True, return_lse=True)
    assert (context == 0).all() and (lse == -np.inf).all()
    cache.append(key, key, sequence=1)
    context, lse = regard.attention_decode(query, cache, causal=True, return_lse=True)
    assert (context[0] == 0).all() and (context[1] != 0).all() and (lse[0] == -np.inf).all() and np.isfinite(lse[1]).all()


def test_a_forked_sequence_shares_its_pages():
    key, value = arrays((1, 64, 16), (1, 64, 16))
    cache = regard.KvCache(head_size=16, capacity=256, num_sequences=2, page_keys=32, num_pages=4)
    cache.append(key, value, sequence=0)
    cache.fork(0, 1)
    assert cache.num_free_pages == 2 and cache.length(1) == 64
    with pytest.raises(RuntimeError, match="page"):
        cache.append(np.repeat(key, 2, 1), np.repeat(value, 2, 1), sequence=0)


def test_an_int8_cache_is_close_but_not_exact():
    query, key, value = arrays((1, 1, 1, 32), (1, 1, 50, 32), (1, 1, 50, 32))
    cache = regard.KvCache(head_size=32, capacity=64, dtype="int8")
    cache.append(key, value)
    whole = regard.attention(query, key, value)
    decoded = regard.attention_decode(query, cache, query_offset="bottom_right")
    assert 0 < np.abs(decoded - whole).max() < 0.05


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8"])
def test_a_cache_can_be_reopened_from_its_memory(dtype, tmp_path):
    numbers = np.dtype("float32" if dtype == "int8" else dtype)
    query, key, value = arrays((1, 4, 2, 16), (1, 2, 70, 16), (1, 2, 70, 8), dtype=numbers)
    cache = regard.KvCache(head_size=16, value_head_size=8, capacity=100, num_kv_heads=2, dtype=dtype)
    cache.append(key[:, :, :60], value[:, :, :60])
    expected = regard.attention_decode(query, cache, causal="bottom_right")
    (tmp_path / "cache").write_bytes(cache.memory)
    assert (tmp_path / "cache").stat().st_size == cache.num_bytes and cache.memory.readonly
    with open(tmp_path / "cache", "rb") as file:
        read = regard.KvCache.open(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        copy = regard.KvCache.open(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    assert (read.dtype, read.capacity, read.head_size, read.value_head_size, read.length()) == (dtype, 100, 16, 8, 60)
    assert np.array_equal(regard.attention_decode(query, read, causal="bottom_right"), expected)
    for change in (lambda: read.append(key[:, :, 60:], value[:, :, 60:]), lambda: read.truncate(0, 3), lambda: read.fork(0, 0)):
        with pytest.raises(ValueError, match="read-only memory"):
            change()
    for one in (cache, copy):
        one.append(key[:, :, 60:], value[:, :, 60:])
    assert (read.length(), copy.length()) == (60, 70)
    assert np.array_equal(regard.attention_decode(query, copy, causal="bottom_right"),
                          regard.attention_decode(query, cache, causal="bottom_right"))


def test_the_memory_of_a_cache_outlives_the_cache_object():
    cache = regard.KvCache(head_size=8, capacity=32)
    cache.append(*arrays((1, 1, 5, 8), (1, 1, 5, 8)))
    memory = cache.memory
    before = bytes(memory)
    del cache
    gc.collect()
    assert bytes(memory) == before and regard.KvCache.open(memory).length() == 5


def test_memory_that_is_not_a_cache_is_rejected():
    memory = np.array(regard.KvCache(head_size=8, capacity=32, dtype="bfloat16").memory)
    aligned = np.frombuffer(mmap.mmap(-1, memory.size + 64), np.uint8)
    aligned[:memory.size] = memory
    assert regard.KvCache.open(aligned).dtype == "bfloat16"
    with pytest.raises(RuntimeError, match="byte"):
        regard.KvCache.open(aligned[:memory.size - 1])
    with pytest.raises(RuntimeError, match="the header is truncated"):
        regard.KvCache.open(b"")
    with pytest.raises(ValueError, match="not aligned to 64"):
        regard.KvCache.open(aligned[1:])
    with pytest.raises(ValueError, match="a stride of 2"):
        regard.KvCache.open(aligned[::2])
    with pytest.raises(ValueError, match="memory has type float32"):
        regard.KvCache.open(np.zeros(4, np.float32))
    for byte, what in ((0, "not a key/value cache"), (8, "version"), (12, "holds")):
        broken = np.frombuffer(mmap.mmap(-1, memory.size), np.uint8)
        broken[:] = memory
        broken[byte] ^= 0x55
        with pytest.raises(RuntimeError, match=what):
            regard.KvCache.open(broken)


def test_linear_layers_in_bfloat16_match_numpy():
    x, w = arrays((5, 40), (40, 33), dtype=ml_dtypes.bfloat16)
    expected = x.astype("f8") @ w.astype("f8")
    wide = regard.linear_forward(x, w, dtype="float32")
    assert wide.dtype == np.float32
    np.testing.assert_allclose(wide, expected, rtol=0, atol=41 * 2.0 ** -24 * (abs(x.astype("f8")) @ abs(w.astype("f8"))).max())
    assert np.array_equal(regard.linear_forward(x, w), wide.astype(ml_dtypes.bfloat16))
    gelu = regard.linear_forward(x, w, activation="gelu_tanh", dtype="float32")
    inner = np.sqrt(2 / np.pi) * (expected + 0.044715 * expected ** 3)
    np.testing.assert_allclose(gelu, expected / 2 * (1 + np.tanh(inner)), atol=1e-4)
    silu = regard.linear_forward(x, w, activation="silu", dtype="float32")
    np.testing.assert_allclose(silu, expected / (1 + np.exp(-expected)), atol=1e-4)
    with pytest.raises(ValueError, match="dtype is float64; expected bfloat16, the input's, or float32"):
        regard.linear_forward(x, w, dtype="float64")
    with pytest.raises(ValueError, match="activation is 'tanh'"):
        regard.linear_forward(x, w, activation="tanh")


def test_gradients_of_linear_layers_match_numpy():
    x, w, g = arrays((5, 16), (16, 24), (5, 24), dtype="float64")
    found = regard.linear_backward(x, w, g)
    assert list(found) == ["grad_input", "grad_weight", "grad_bias"]
    np.testing.assert_allclose(found["grad_input"], g @ w.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["grad_weight"], x.T @ g, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["grad_bias"], g.sum(0), rtol=1e-14, atol=1e-15)
    out = np.empty((16, 24))
    assert regard.linear_backward(x, w, g, grad_weight=out)["grad_weight"] is out
    assert np.array_equal(out, found["grad_weight"])
    bias = np.ones(24)
    regard.linear_backward(x, w, g, grad_weight=out, grad_bias=bias, accumulate=["grad_weight"])
    assert np.array_equal(out, 2 * found["grad_weight"]) and np.array_equal(bias, found["grad_bias"])


def test_micro_batches_have_the_dropout_and_gradients_of_the_whole_batch():
    query, grad = arrays((4, 2, 5, 8), (4, 2, 5, 8))
    key, value = arrays((1, 2, 7, 8), (1, 2, 7, 8))
    options = dict(dropout=0.4, dropout_seed=11)
    returned = dict(return_row_max=True, return_row_sum=True, return_fingerprint=True)

    def run(part, sums=None, **more):
        """The context and the gradients, with keys and values that all batch entries share."""
        k, v = (np.broadcast_to(x, (len(query[part]), *x.shape[1:])) for x in (key, value))
        context, row_max, row_sum, fingerprint = regard.attention(query[part], k, v, **options, **more, **returned)
        sums = sums or {}
        gradients = regard.attention_backward(query[part], k, v, context, row_max, row_sum, grad[part],
                                              fingerprint=fingerprint, accumulate=list(sums), **sums, **options, **more)
        return context, gradients

    context, gradients = run(slice(0, 4))
    first, of_first = run(slice(0, 2))
    second, of_second = run(slice(2, 4), dropout_first=(2, 0, 0))
    assert np.array_equal(np.concatenate([first, second]), context)
    sums = {name: of_first[name].copy() for name in ("grad_key", "grad_value")}
    run(slice(2, 4), sums, dropout_first=(2, 0, 0))
    for name in sums:
        assert np.array_equal(sums[name], of_first[name] + of_second[name])
        assert np.array_equal(np.concatenate([of_first[name], of_second[name]]), gradients[name])
    assert not np.array_equal(run(slice(2, 4))[0], second)


def test_errors_of_layers_name_the_operator():
    x, w, g = arrays((5, 16), (16, 24), (5, 24), dtype="float64")
    with pytest.raises(ValueError, match="linear_backward: "):
        regard.linear_backward(x, w, g[:, :3])


def test_linear_and_layer_norm_match_numpy():
    x, w, b, gain = arrays((5, 16), (16, 24), (24,), (16,), dtype="float64")
    np.testing.assert_allclose(regard.linear_forward(x, w, b), x @ w + b, rtol=1e-13)
    np.testing.assert_allclose(regard.linear_forward(x, w, b, activation="relu"), np.maximum(x @ w + b, 0), atol=1e-13)
    stored = np.ascontiguousarray(w.T)
    assert np.array_equal(regard.linear_forward(x, stored.T), regard.linear_forward(x, w))
    packed = regard.PackedLinear(w)
    assert packed.shape == (16, 24) and packed.num_bytes == 16 * 32 * 8
    assert np.array_equal(regard.linear_forward(x, packed, b), regard.linear_forward(x, w, b))
    planned, without = (regard.plan(regard.linear_forward, x, given)["workspace_bytes"] for given in (w, packed))
    assert planned >= without + packed.num_bytes  # the call packs w into panels
    normed = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gain + gain
    np.testing.assert_allclose(regard.layer_norm_forward(x, gain, gain), normed, rtol=1e-12)


def test_multi_head_attention_matches_the_formula():
    x, wq, wk, wv, wo = arrays((2, 5, 16), (16, 16), (16, 16), (16, 16), (16, 10), dtype="float64")
    output, weights = regard.multi_head_attention_forward(x, wq, wk, wv, w_output=wo, num_heads=4, causal=True,
                                                          return_weights=True)
    split = [(x @ w).reshape(2, 5, 4, 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv)]
    context, _, expected = reference(*split, visible=np.tril(np.ones((5, 5), bool)))
    np.testing.assert_allclose(weights, expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(output, context.transpose(0, 2, 1, 3).reshape(2, 5, 16) @ wo, rtol=1e-10, atol=1e-12)


def test_a_plan_lists_operators_and_writes_nothing():
    query, key, value = arrays((1, 2, 64, 16), (1, 2, 64, 16), (1, 2, 64, 16))
    out = np.full_like(query, 7)
    plan = regard.plan(regard.attention, query, key, value, out=out)
    assert [entry["name"] for entry in plan["operators"]] == ["attention_forward"]
    assert plan["operators"][0]["operations"] == 2 * 2 * 64 * 64 * 32 and plan["workspace_bytes"] > 0
    assert plan["instruction_set"] == regard.active_instruction_set() and (out == 7).all()
    with pytest.raises(ValueError, match="key has head size 8"):
        regard.plan(regard.attention, query, key[..., :8], value)


def test_a_plan_does_not_change_a_cache():
    key, value = arrays((1, 1, 5, 8), (1, 1, 5, 8))
    cache = regard.KvCache(head_size=8, capacity=32, num_sequences=2, page_keys=32, num_pages=2)
    cache.append(key[0], value[0], sequence=0)
    for change, arguments in ((cache.append, (key[0], value[0], 0)), (cache.truncate, (0, 1)), (cache.fork, (0, 1))):
        with pytest.raises(ValueError, match="called inside a plan, which must not change anything"):
            regard.plan(change, *arguments)
    assert (cache.length(0), cache.length(1)) == (5, 0)
    plan = regard.plan(regard.attention_decode, np.repeat(key, 2, 0), cache)
    assert [entry["name"] for entry in plan["operators"]] == ["attention_decode"]


def test_numpy_booleans_are_accepted():
    arguments = arrays((1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8))
    for causal in (False, True):
        found = regard.attention(*arguments, causal=np.bool_(causal))
        assert np.array_equal(found, regard.attention(*arguments, causal=causal))


def test_ranks_that_do_not_match_are_named():
    query, key, value = arrays((3, 8), (3, 8), (3, 8))
    for inputs, words in [((query[0], key[0], value[0]), "query has 1 axis in shape (8); expected 2 to 4"),
                          ((query[None, None, None], key, value), "query has 5 axes in shape (1, 1, 1, 3, 8); expected 2 to 4"),
                          ((query, key[None], value[None]), "query has 2 axes in shape (3, 8); expected 3, as in key and value"),
                          ((query, key[None], value), "key has 3 axes in shape (1, 3, 8); expected 2, as in query"),
                          ((query, key, value[None]), "value has 3 axes in shape (1, 3, 8); expected 2, as in query")]:
        with pytest.raises(ValueError) as rejection:
            regard.attention(*inputs)
        assert str(rejection.value) == f"attention_forward: {words}"


REJECTED = [
    (dict(window=(-1, 0)), ValueError, "attention_forward: window"),
    (dict(window=3), TypeError, "window is not a pair"),
    (dict(causal="left"), ValueError, "causal is 'left'; expected top_left or bottom_right"),
    (dict(causal=1), TypeError, "causal is of type int"),
    (dict(causal="top_left", query_offset=0), ValueError, "both set the position of the queries"),
    (dict(soft_cap=0), ValueError, "soft_cap"),
    (dict(scale=float("nan")), ValueError, "scale"),
    (dict(scale="half"), TypeError, "scale is of type str; expected a number"),
    (dict(num_threads=-1), ValueError, "num_threads"),
    (dict(num_threads=2.5), TypeError, "num_threads is of type float"),
    (dict(alibi_slopes=[1.0]), ValueError, "alibi_slopes"),
    (dict(alibi_slopes=np.ones(2)), ValueError, "alibi_slopes has type float64; expected float32"),
    (dict(key_lengths=[1.5]), TypeError, "key_lengths[0] is of type float; expected an integer"),
    (dict(mask=np.ones((3, 4), np.int16)), ValueError, "mask has type int16; expected bool or uint8"),
    (dict(mask=np.ones((5, 4), bool)), ValueError, "mask"),
    (dict(bias=np.ones((1, 1, 1, 3, 4), np.float32)), ValueError, "bias has 5 axes"),
    (dict(query_segments=np.zeros((1, 3), np.uint8), key_segments=np.zeros((1, 4), np.int64)), ValueError,
     "query_segments has type uint8; expected int32 or int64"),
    (dict(dtype="int8"), ValueError, "dtype is 'int8'"),
    (dict(dtype="float64"), ValueError, "dtype is float64; expected float32, the input's type"),
    (dict(color=1), TypeError, "unexpected keyword argument 'color'"),
    (dict(out=np.empty((1, 2, 3, 7), np.float32)), ValueError, "context"),
]


@pytest.mark.parametrize("options, error, words", REJECTED, ids=lambda x: next(iter(x)) if isinstance(x, dict) else None)
def test_rejections_name_the_argument(options, error, words):
    query, key, value = arrays((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    with pytest.raises(error) as rejection:
        regard.attention(query, key, value, **options)
    assert words in str(rejection.value)


def test_random_calls_agree_with_the_formula():
    generator = np.random.default_rng(20)
    for call, (groups, causal) in enumerate(itertools.product((1, 2, 3), (False, True) * 10)):
        heads, rows, keys = 2 * groups, *generator.integers(1, 70, 2)
        query, key, value = arrays((1, heads, rows, 20), (1, 2, keys, 20), (1, 2, keys, 12), seed=call)
        visible = generator.random((heads, rows, keys)) < 0.7
        context = regard.attention(query, key, value, mask=visible, causal="bottom_right" if causal else False)
        if causal:
            visible &= np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
        expected, _, weights = reference(query, key, value, visible)
        assert (np.abs(context - expected) <= bound(query, key, value, weights)).all(), call
