# SPDX-License-Identifier: Apache-2.0
"""What docs/guide/pytorch.md and the docstrings of regard.torch show, with PyTorch."""

import doctest
import inspect
import pathlib
import re

import pytest
import regard.torch
import regard.transformers

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
