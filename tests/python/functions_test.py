# SPDX-License-Identifier: Apache-2.0
"""The functions of the package: signatures, docstrings, examples, named results, ranks 2 to 4, and hints."""

import copy
import doctest
import inspect
import pickle
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import regard
import regard.jax
import regard.onnx

random = np.random.default_rng(0)
QUERY, KEY, VALUE = (random.standard_normal((1, 4, n, 8)).astype("float32") for n in (5, 7, 7))
CLASSES = [regard.KvCache, regard.PackedLinear, regard.Model, regard.Explanation, regard.SentenceAnalysis, regard.Comparison,
           regard.Training, regard.TrainedModel]
PUBLIC = {name: value for name, value in vars(regard).items() if not name.startswith("_") and callable(value)}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
FUNCTIONS |= {"jax.attention": regard.jax.attention, "onnx.attention": regard.onnx.attention}
METHODS = {f"{kind.__name__}.{name}": getattr(kind, name) for kind in CLASSES for name in vars(kind)
           if not name.startswith("_") and callable(getattr(kind, name))}
WITH_OPTIONS = {name: function for name, function in FUNCTIONS.items() if "causal" in inspect.signature(function).parameters}


def test_the_public_names_are_python_functions_and_classes():
    assert {"attention", "attention_decode", "linear_forward", "plan", "explain", "show"} <= set(FUNCTIONS)
    assert len(WITH_OPTIONS) == 11 and {"KvCache.append", "Comparison.findings"} <= set(METHODS)
    assert all(inspect.isfunction(value) or inspect.isclass(value) for value in PUBLIC.values())
    for name, value in PUBLIC.items():
        assert issubclass(value, BaseException) if inspect.isclass(value) and value.__module__ == "builtins" else inspect.signature(value), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS | METHODS))
def test_every_parameter_is_documented(name):
    function = (FUNCTIONS | METHODS)[name]
    text = inspect.getdoc(function)
    section = text.split("Parameters\n----------\n")[1].split("\n\n")[0] if "Parameters\n" in text else ""
    documented = [word.strip("* ") for line in re.findall(r"^(\S.*?)(?: :.*)?$", section, re.MULTILINE) for word in line.split(",")]
    parameters = [one for one in inspect.signature(function).parameters if one != "self"]
    assert sorted(documented) == sorted(parameters)
    assert text.splitlines()[0].endswith(".") and len(text.splitlines()[0]) < 120


@pytest.mark.parametrize("name", sorted(WITH_OPTIONS))
def test_options_have_the_same_order_and_defaults_in_every_function(name):
    expected = list(inspect.signature(regard.attention).parameters.values())
    expected = expected[[one.name for one in expected].index("causal"):]
    found = list(inspect.signature(WITH_OPTIONS[name]).parameters.values())
    assert found[-len(expected):] == expected and all(one.kind is one.KEYWORD_ONLY for one in expected)


@pytest.mark.parametrize("name", sorted(PUBLIC | FUNCTIONS))
def test_examples_in_docstrings_run(name):
    value = (PUBLIC | FUNCTIONS)[name]
    finder = doctest.DocTestFinder(recurse=False)
    for test in finder.find(inspect.unwrap(value), name, globs={}):
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


@pytest.mark.parametrize("name, words", [
    ("attn_mask", "mask="), ("is_causal", "causal=True"), ("dropout_p", "dropout="), ("enable_gqa", "fewer heads"),
    ("softmax_scale", "scale="), ("window_size", "window=(left, right)"), ("softcap", "soft_cap="),
])
@pytest.mark.parametrize("function", [regard.attention, regard.attention_with_statistics])
def test_a_keyword_of_another_library_gets_a_hint(function, name, words):
    with pytest.raises(TypeError) as rejection:
        function(QUERY, KEY, VALUE, **{name: None})
    text = str(rejection.value)
    assert text.startswith(f"{function.__name__}() got an unexpected keyword argument '{name}'; ") and words in text


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
def test_a_floating_point_mask_gets_a_hint_about_bias(dtype):
    with pytest.raises(ValueError, match=r"attention_forward: mask has type \w+; expected bool or uint8 .*bias="):
        regard.attention(QUERY, KEY, VALUE, mask=np.zeros((5, 7), dtype))


def test_a_string_instead_of_a_sequence_is_rejected_by_name():
    for call, words in (
            (lambda: regard.attention(QUERY, KEY, VALUE, key_lengths="57"), "key_lengths is of type str; expected a sequence"),
            (lambda: regard.attention_backward(*[QUERY] * 7, gradients="grad_key"), "gradients is of type str"),
            (lambda: regard.explain({}, hide="[CLS]"), "hide is of type str; expected a sequence of str")):
        with pytest.raises(TypeError, match=re.escape(words)):
            call()


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), jnp.float32, np.single])
def test_types_may_be_names_or_objects(dtype):
    narrow = [array.astype(ml_dtypes.bfloat16) for array in (QUERY, KEY, VALUE)]
    assert regard.attention(*narrow, dtype=dtype).dtype == np.float32
    assert regard.KvCache(head_size=8, capacity=32, dtype=dtype).dtype == "float32"


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), jnp.bfloat16])
def test_bfloat16_may_be_a_name_or_an_object(dtype):
    assert regard.KvCache(head_size=8, capacity=32, dtype=dtype).dtype == "bfloat16"


# ---- named results

def test_multiple_results_are_a_named_tuple():
    found = regard.attention(QUERY, KEY, VALUE, return_lse=True, return_row_max=True, return_fingerprint=True)
    context, row_max, lse, fingerprint = found
    assert found.context is context and found.row_max is row_max and found.lse is lse and found.fingerprint is fingerprint
    assert isinstance(found, tuple) and found._fields == ("context", "row_max", "lse", "fingerprint")
    assert repr(found) == ("AttentionResult(\n    context=float32 (1, 4, 5, 8),\n    row_max=float32 (1, 4, 5),\n"
                           "    lse=float32 (1, 4, 5),\n    fingerprint=64 bytes)")
    with pytest.raises(AttributeError, match="has no weights; expected return_weights=True"):
        found.weights
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert np.array_equal(again.lse, lse) and again._fields == found._fields
    assert jax.tree.structure(tuple(found)).num_leaves == jax.tree.structure(found).num_leaves == 4


def test_results_in_a_dictionary_are_also_attributes():
    found = regard.attention_with_statistics(QUERY, KEY, VALUE, top_keys=2)
    assert isinstance(found, dict) and found.entropy is found["entropy"] and "top_keys" in dir(found)
    assert repr(found).startswith("AttentionStatistics(\n    ") and "\n    top_keys=int64 (1, 4, 5, 2)" in repr(found)
    with pytest.raises(AttributeError, match="AttentionStatistics has no chosen_weight; it has "):
        found.chosen_weight
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found) and again.keys() == found.keys()
    plan = regard.plan(regard.attention, QUERY, KEY, VALUE)
    assert plan.operators[0].name == "attention_forward" and plan.workspace_bytes > 0 and "strategy=" in repr(plan)


# ---- ranks 2 to 4

@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("library", ["numpy", "jax", "memoryview"])
def test_inputs_of_lower_rank_give_results_of_lower_rank(axes, library):
    convert = {"numpy": lambda x: x, "jax": jnp.asarray, "memoryview": memoryview}[library]
    at = (0,) * axes
    full = [x[:, :1] if axes == 2 else x for x in (QUERY, KEY, VALUE)]
    given = [convert(x[at]) for x in full]
    options = dict(causal="bottom_right", return_row_max=True, return_row_sum=True, return_lse=True, return_weights=True,
                   return_fingerprint=True)
    expected, found = regard.attention(*full, **options), regard.attention(*given, **options)
    assert found._fields == expected._fields and found.fingerprint == expected.fingerprint
    for name in found._fields[:-1]:
        one, other = (np.asarray(getattr(result, name)) for result in (found, expected))
        assert one.shape == other.shape[axes:] and np.array_equal(one, other[at]), name
    assert isinstance(found.context, jax.Array if library == "jax" else np.ndarray)
    assert np.array_equal(regard.attention(*given, causal="bottom_right"), expected.context[at])


@pytest.mark.parametrize("axes", [1, 2])
def test_outputs_of_lower_rank_are_written_in_place(axes):
    at = (0,) * axes
    full = [x[:, :1] if axes == 2 else x for x in (QUERY, KEY, VALUE)]
    given = [x[at] for x in full]
    expected = regard.attention(*full, return_lse=True)
    out, lse = np.zeros_like(given[0]), np.zeros(given[0].shape[:-1], np.float32)
    found = regard.attention(*given, out=out, lse=lse, return_lse=True)
    assert found.context is out and found.lse is lse
    assert np.array_equal(out, expected.context[at]) and np.array_equal(lse, expected.lse[at])


@pytest.mark.parametrize("axes", [1, 2])
def test_other_operators_take_lower_ranks(axes):
    at = (0,) * axes
    full = [x[:, :1] if axes == 2 else x for x in (QUERY, KEY, VALUE)]
    given = [x[at] for x in full]

    def same(found, expected):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name] == value if isinstance(value, bytes) else np.array_equal(found[name], value[at]), name

    statistics = regard.attention_with_statistics(*full, top_keys=2, chosen_offset=0, query_offset=0)
    lower = regard.attention_with_statistics(*given, top_keys=2, chosen_offset=0, query_offset=0)
    same(lower, statistics)
    state = statistics.row_max, statistics.row_sum
    lower_state = lower.row_max, lower.row_sum
    same(regard.attention_columns(*given[:2], *lower_state, pooled_map=(2, 3)),
         regard.attention_columns(*full[:2], *state, pooled_map=(2, 3)))
    saved = dict(row_max=lower.row_max, row_sum=lower.row_sum)
    weights = regard.attention_weights(*given[:2], **saved)
    assert np.array_equal(weights, regard.attention_weights(*full[:2], row_max=state[0], row_sum=state[1])[at])
    out = np.zeros_like(weights)
    assert regard.attention_weights(*given[:2], **saved, out=out) is out and np.array_equal(out, weights)
    options = dict(fingerprint=statistics.fingerprint, query_offset=0)
    grad_key = np.zeros_like(given[1])
    found = regard.attention_backward(*given, lower.context, *lower_state, np.ones_like(given[0]), **options, grad_key=grad_key)
    same(found, regard.attention_backward(*full, statistics.context, *state, np.ones_like(full[0]), **options))
    assert found.grad_key is grad_key


def test_a_cache_of_one_sequence_takes_queries_of_rank_3():
    cache = regard.KvCache(head_size=8, capacity=32, num_kv_heads=4)
    cache.append(KEY, VALUE)
    expected = regard.attention_decode(QUERY, cache, return_lse=True)
    found = regard.attention_decode(QUERY[0], cache, return_lse=True)
    assert np.array_equal(found.context, expected.context[0]) and np.array_equal(found.lse, expected.lse[0])
    with pytest.raises(TypeError, match="attention_decode: cache is of type ndarray; expected a KvCache"):
        regard.attention_decode(QUERY, KEY)
    with pytest.raises(TypeError, match="attention_decode_partials: cache is of type ndarray; expected a KvCache"):
        regard.attention_decode_partials(QUERY, KEY)


def test_different_or_too_low_ranks_are_rejected():
    for arguments in ((QUERY[0], KEY, VALUE), (QUERY[0], KEY[0, 0], VALUE[0, 0]), (QUERY[0, 0, 0],) * 3):
        with pytest.raises(ValueError, match=r"attention_forward: query has \d ax[ei]s"):
            regard.attention(*arguments)


def test_every_way_of_calling_gives_the_same_bits():
    expected = regard.attention(QUERY, KEY, VALUE, causal="bottom_right", scale=0.5)
    by_name = dict(query=QUERY, key=KEY, value=VALUE, causal="bottom_right", scale=0.5)
    for found in (regard.attention(**by_name), regard.attention(**by_name, dtype="float32"),
                  regard.attention(**by_name, return_lse=True).context,
                  regard.attention(QUERY, KEY, VALUE, causal="bottom_right", scale=0.5, mask=None, dropout=0.0)):
        assert np.array_equal(found, expected)
    for missing in ((QUERY, KEY), ()):
        with pytest.raises(TypeError, match="missing .* required positional argument"):
            regard.attention(*missing)
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4 were given"):
        regard.attention(QUERY, KEY, VALUE, QUERY)
