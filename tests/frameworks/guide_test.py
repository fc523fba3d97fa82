# SPDX-License-Identifier: Apache-2.0
"""The code in docs/guide/pytorch.md and in the docstrings of regard.torch and regard.transformers runs."""

import doctest
import inspect
import pathlib
import re

import pytest
import regard
import regard.torch
import regard.transformers
import torch

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "pytorch.md"
FUNCTIONS = {**{name: getattr(regard.torch, name) for name in ("attention", "patched", "scaled_dot_product_attention")},
             **{name: getattr(regard.transformers, name) for name in ("attention_forward", "attention_mask", "inspection", "register")}}


def test_every_block_of_the_guide_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"pytorch.md, block {number}", "exec"), names)
    assert blocks and names["context"].shape == names["q"].shape and names["q"].grad is not None


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_parameters_are_documented_and_examples_run(function):
    text = inspect.getdoc(function)
    section = text.split("Parameters\n----------\n")[1].split("\n\n")[0] if "Parameters\n" in text else ""
    documented = [word.strip("* ") for line in re.findall(r"^(\S.*?)(?: :.*)?$", section, re.MULTILINE) for word in line.split(",")]
    assert sorted(documented) == sorted(inspect.signature(function).parameters)
    for test in doctest.DocTestFinder(recurse=False).find(inspect.unwrap(function), function.__name__, globs={}):
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_regard_attention_takes_torch_tensors_of_every_rank_and_torch_dtypes():
    query, key, value = (torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    expected = regard.attention(query, key, value, return_lse=True)
    assert len(torch.utils._pytree.tree_leaves(expected)) == 2  # a named tuple is a tree
    found = regard.attention(query[0], key[0], value[0], return_lse=True)
    assert torch.equal(found.context, expected.context[0]) and torch.equal(found.lse, expected.lse[0])
    out = torch.zeros(5, 8)
    assert regard.attention(query[0, 1], key[0, 1], value[0, 1], out=out) is out and torch.equal(out, found.context[1])
    narrow = [tensor.bfloat16() for tensor in (query, key, value)]
    assert regard.attention(*narrow, dtype=torch.float32).dtype == torch.float32
    assert repr(expected) == "AttentionResult(context=float32 (1, 2, 5, 8), lse=float32 (1, 2, 5))"
