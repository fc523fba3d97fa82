# SPDX-License-Identifier: Apache-2.0
"""Invalid Python arguments are rejected by name, and never interpreted as something else."""

import collections

import numpy as np
import pytest
import regard

QUERY, KEY, VALUE = (np.random.default_rng(0).standard_normal((2, 4, n, 8)).astype("float32") for n in (5, 7, 7))


@pytest.mark.parametrize("options, words", [
    (dict(key_lengths=[]), "key_lengths has 0 entries; expected one per batch entry, or None"),
    (dict(key_lengths=np.zeros(0, int)), "key_lengths has 0 entries"),
    (dict(prefix=(), causal="top_left"), "prefix has 0 entries"),
    (dict(sinks=[]), "sinks has 0 entries; expected one per head, or None"),
    (dict(alibi_slopes=[], query_offset=0), "alibi_slopes has 0 entries"),
    (dict(query_starts=[], key_starts=[]), "query_starts has 0 entries"),
    (dict(key_lengths=np.ones(2, "int16")), "key_lengths has type int16; expected int32 or int64"),
    (dict(key_lengths=[1, 2 ** 64]), "key_lengths[1] does not fit into 64 bits"),
    (dict(causal="\ud800"), "causal contains half of a surrogate pair"),
    (dict(dtype="\ud800"), "dtype contains half of a surrogate pair"),
    (dict(scale=10 ** 400), "scale is out of range; expected a number that fits in float64"),
    (dict(window=(2 ** 63, 0), query_offset=0), "window[0] is out of range; expected -9223372036854775808 to"),
    (dict(dropout=0.5, dropout_seed=-1), "dropout_seed is out of range; expected 0 to 18446744073709551615"),
    (dict(dropout=0.5, dropout_first=(1, 2)), "dropout_first has 2 numbers; expected 3, (batch entry, head, row)"),
    (dict(dropout=0.5, dropout_first=(0, 0, -1)), "dropout_first[2] is -1; expected 0 to 4294967291"),
    (dict(num_threads=2 ** 40), "num_threads is out of range"),
    (dict(out=np.empty(QUERY.shape)), "out has type float64; expected float32"),
    (dict(out=np.empty(QUERY.shape, int)), "out has type int64; expected float32"),
])
def test_invalid_values_are_rejected_by_name(options, words):
    with pytest.raises(ValueError) as rejection:
        regard.attention(QUERY, KEY, VALUE, **options)
    assert str(rejection.value).startswith("attention_forward: " + words), str(rejection.value)


@pytest.mark.parametrize("options, words", [
    (dict(sinks=["a"] * 4), "sinks[0] is of type str; expected a number"),
    (dict(key_lengths=3), "key_lengths is of type int; expected a sequence of numbers, or an array with one axis"),
    (dict(key_lengths="57"), "key_lengths is of type str; expected a sequence"),
    (dict(block_mask=np.ones((1, 1), bool), block_size="ab"), "block_size is of type str"),
])
def test_invalid_types_are_rejected_by_name(options, words):
    with pytest.raises(TypeError) as rejection:
        regard.attention(QUERY, KEY, VALUE, **options)
    assert str(rejection.value).startswith("attention_forward: " + words), str(rejection.value)


def attention_calls(query, key, value, row_max, row_sum, context, grad_context, fingerprint):
    """Every operator that takes inputs of several types, with its name."""
    cache = regard.KvCache(head_size=8, capacity=16, num_kv_heads=4, num_sequences=2)
    of_int8 = regard.KvCache(head_size=8, capacity=16, num_kv_heads=4, num_sequences=2, dtype="int8")
    return {
        "attention_forward": lambda: regard.attention(query, key, value),
        "attention_with_statistics": lambda: regard.attention_with_statistics(query, key, value),
        "attention_weights": lambda: regard.attention_weights(query, key, row_max=row_max, row_sum=row_sum),
        "attention_columns": lambda: regard.attention_columns(query, key, row_max, row_sum),
        "attention_partials": lambda: regard.attention_partials(query, key, value),
        "attention_backward": lambda: regard.attention_backward(query, key, value, context, row_max, row_sum,
                                                                grad_context, fingerprint=fingerprint),
        "KvCache.append": lambda: cache.append(key, value),
        "KvCache.append of int8": lambda: of_int8.append(key, value),
    }


@pytest.mark.parametrize("argument", ["key", "value", "row_max", "row_sum", "context", "grad_context"])
def test_an_argument_of_another_type_is_rejected_by_every_operator(argument):
    context, row_max, row_sum = regard.attention(QUERY, KEY, VALUE, return_row_max=True, return_row_sum=True)
    good = dict(query=QUERY, key=KEY, value=VALUE, row_max=row_max, row_sum=row_sum, context=context, grad_context=context,
                fingerprint="unchecked")
    takers = {"key": 8, "value": 6, "row_max": 3, "row_sum": 3}.get(argument, 1)
    for dtype in ("float64", "int32"):
        rejected = 0
        for name, call in attention_calls(**{**good, argument: good[argument].astype(dtype)}).items():
            try:
                call()
            except ValueError as error:
                assert f"{name.split()[0]}: {argument} has type {dtype}; expected float32" in str(error), str(error)
                rejected += 1
        assert rejected == takers, dtype


def test_an_unknown_keyword_may_be_any_text():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        regard.attention(QUERY, KEY, VALUE, **{"\ud800": 1})


def test_lists_of_numbers_may_be_any_sequence():
    expected = regard.attention(QUERY, KEY, VALUE, key_lengths=[3, 4])
    for lengths in (range(3, 5), collections.deque([3, 4]), np.array([3, 4], "int32"), memoryview(np.array([3, 4]))):
        assert np.array_equal(regard.attention(QUERY, KEY, VALUE, key_lengths=lengths), expected)


def test_a_list_may_be_empty_for_an_empty_batch_or_no_heads():
    none = [x[:0] for x in (QUERY, KEY, VALUE)]
    assert regard.attention(*none, key_lengths=[], query_offset=[], causal=True).shape == (0, 4, 5, 8)
    none = [x[:, :0] for x in (QUERY, KEY, VALUE)]
    assert regard.attention(*none, sinks=[], alibi_slopes=[], query_offset=0).shape == (2, 0, 5, 8)


def test_rows_and_keys_out_of_range_are_rejected_before_anything_is_allocated():
    _, row_max, row_sum = regard.attention(QUERY, KEY, VALUE, return_row_max=True, return_row_sum=True)
    saved = dict(row_max=row_max, row_sum=row_sum)
    for options, words in ((dict(rows=[(0, 6)]), "rows[0] is 0 to 6"), (dict(rows=[(3, 2)]), "rows[0] is 3 to 2"),
                           (dict(rows=[(0, 2 ** 62)] * 3), "rows[0] is 0 to 4611686018427387904"),
                           (dict(rows=[(-2 ** 63, 2 ** 63 - 1)]), "rows[0] is -9223372036854775808"),
                           (dict(keys=(1, 2 ** 60)), "keys is 1 to"), (dict(rows=[]), "rows has no pair")):
        with pytest.raises(ValueError) as rejection:
            regard.attention_weights(QUERY, KEY, **saved, **options)
        assert str(rejection.value).startswith("attention_weights: " + words), str(rejection.value)
    with pytest.raises(TypeError, match=r"rows\[0\] is of type int; expected \(begin, end\)"):
        regard.attention_weights(QUERY, KEY, **saved, rows=(0, 2))
    for extents in ([], (0, 1), (-1, 2), (6, 7), (2 ** 40, 2 ** 40)):
        with pytest.raises(ValueError, match="attention_columns: pooled_map"):
            regard.attention_columns(QUERY, KEY, **saved, pooled_map=extents)


def test_invalid_names_of_gradients_are_rejected():
    context, row_max, row_sum = regard.attention(QUERY, KEY, VALUE, return_row_max=True, return_row_sum=True)
    inputs = QUERY, KEY, VALUE, context, row_max, row_sum, np.ones_like(context)
    with pytest.raises(ValueError, match="gradients names grad_query twice"):
        regard.attention_backward(*inputs, fingerprint="unchecked", gradients=["grad_query", "grad_key", "grad_query"])
    for gradients, words in (("grad_query", "gradients is of type str"), (5, "gradients is of type int"),
                             ([1], "a name in gradients is of type int")):
        with pytest.raises(TypeError, match=words):
            regard.attention_backward(*inputs, fingerprint="unchecked", gradients=gradients)


def test_accumulate_requires_an_array_to_add_to():
    context, row_max, row_sum = regard.attention(QUERY, KEY, VALUE, return_row_max=True, return_row_sum=True)
    inputs = QUERY, KEY, VALUE, context, row_max, row_sum, np.ones_like(context)
    for names, words in ((["grad_key"], "accumulate names grad_key; expected grad_key=array to add to"),
                         (["grad_bias"], "accumulate names 'grad_bias', which is not a requested gradient"),
                         (["dq"], "accumulate names 'dq', which is not a requested gradient")):
        with pytest.raises(ValueError, match="attention_backward: " + words):
            regard.attention_backward(*inputs, fingerprint="unchecked", accumulate=names)
    with pytest.raises(TypeError, match="accumulate is of type str; expected a sequence of names"):
        regard.attention_backward(*inputs, fingerprint="unchecked", accumulate="grad_key")


RETURNED = dict(return_row_max=True, return_row_sum=True, return_fingerprint=True)


def backward(options_of_forward, **options):
    context, row_max, row_sum, fingerprint = regard.attention(QUERY, KEY, VALUE, **options_of_forward, **RETURNED)
    return regard.attention_backward(QUERY, KEY, VALUE, context, row_max, row_sum, np.ones_like(context),
                                     **{"fingerprint": fingerprint, **options})


@pytest.mark.parametrize("name, options", [
    ("causal", dict(causal="top_left")),
    ("query_offset", dict(query_offset="bottom_right")),
    ("window", dict(window=(2, 1), query_offset=0)),
    ("key_lengths", dict(key_lengths=[7, 6])),
    ("query_segments or key_segments", dict(query_segments=np.zeros((2, 5), "int32"),
                                            key_segments=np.zeros((2, 7), "int32"))),
    ("prefix", dict(prefix=[1, 0], query_offset=0)),
    ("block_mask", dict(block_mask=np.ones((3, 4), bool), block_size=(2, 2))),
    ("mask", dict(mask=np.ones((5, 7), bool))),
    ("bias", dict(bias=np.ones((5, 7), "float32"))),
    ("alibi_slopes", dict(alibi_slopes=[1, 2, 3, 4], query_offset=0)),
    ("sinks", dict(sinks=[1, 2, 3, 4])),
    ("soft_cap", dict(soft_cap=3)),
    ("scale", dict(scale=2)),
    ("dropout, dropout_seed or dropout_first", dict(dropout=0.5)),
])
def test_backward_requires_the_options_of_the_forward_call(name, options):
    assert set(backward(options, **options)) == {"grad_query", "grad_key", "grad_value"}
    for of_forward, of_backward in ((options, {}), ({}, options)):
        with pytest.raises(ValueError) as rejection:
            backward(of_forward, **of_backward)
        assert str(rejection.value) == (f"attention_backward: {name} differs from the forward call that wrote the fingerprint; "
                                        "expected the same options")


def test_a_fingerprint_must_be_64_bytes_or_unchecked():
    backward({}, fingerprint="unchecked")
    with pytest.raises(ValueError, match="fingerprint is missing; expected the one written by attention_forward"):
        backward({}, fingerprint=None)
    with pytest.raises(ValueError, match="fingerprint has 3 bytes; expected 64"):
        backward({}, fingerprint=b"abc")
    with pytest.raises(ValueError, match="fingerprint is 'no'; expected bytes, or 'unchecked'"):
        backward({}, fingerprint="no")
    with pytest.raises(TypeError, match="fingerprint is of type int; expected bytes, or 'unchecked'"):
        backward({}, fingerprint=3)


def test_a_fingerprint_matches_those_of_other_languages():
    """The tests of C++ and C expect the same number."""
    zeros = np.zeros((1, 1, 4, 8))
    options = dict(causal=True, window=(2, None), scale=0.5)
    number = 0
    for word in np.frombuffer(regard.attention(zeros, zeros, zeros, return_fingerprint=True, **options)[1], "uint32"):
        number = (number * 31 + int(word)) % 2 ** 32
    assert number == 3612598065
    statistics = regard.attention_with_statistics(zeros, zeros, zeros, **options)
    assert statistics["fingerprint"] == regard.attention(zeros, zeros, zeros, return_fingerprint=True, **options)[1]


def test_a_bias_has_a_zero_gradient_for_an_empty_batch():
    query, key, value = (x[:0] for x in (QUERY, KEY, VALUE))
    bias = np.ones((5, 7), "float32")
    context, *saved = regard.attention(query, key, value, bias=bias, **RETURNED)
    row_max, row_sum, fingerprint = saved
    grad_bias = np.full((5, 7), 7, "float32")
    regard.attention_backward(query, key, value, context, row_max, row_sum, context, fingerprint=fingerprint, bias=bias,
                              gradients=["grad_bias"], grad_bias=grad_bias)
    assert (grad_bias == 0).all()


def test_a_cache_rejects_empty_counts():
    cache = regard.KvCache(head_size=8, capacity=16, num_kv_heads=4, num_sequences=2)
    with pytest.raises(ValueError, match="KvCache.append: counts has 0 entries; expected one per sequence, or None"):
        cache.append(KEY, VALUE, counts=[])
    assert cache.length(0) == cache.length(1) == 0


@pytest.mark.parametrize("sequence", [2, -1, 10 ** 12, -2 ** 63])
def test_cache_methods_reject_unknown_sequences(sequence):
    cache = regard.KvCache(head_size=8, capacity=16, num_sequences=2)
    for name, arguments in (("length", ()), ("first_key", ()), ("truncate", (0,)), ("fork", (1,))):
        with pytest.raises(ValueError, match=f"KvCache::{name}: there is no sequence {sequence}; expected 0 to 1"):
            getattr(cache, name)(sequence, *arguments)
