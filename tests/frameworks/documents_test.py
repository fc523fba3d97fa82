# SPDX-License-Identifier: Apache-2.0
"""The pages whose Python needs PyTorch or transformers (documents.py), and the examples in Python."""

import pathlib
import subprocess
import sys

import documents
import pytest

from program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", list(documents.pages(needs_frameworks=True)))
def test_the_code_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    documents.run_page(page, tmp_path, PROGRAM, None, monkeypatch)


def test_the_page_on_saved_arrays_is_run():
    assert "docs/reference/save.md" in documents.pages(needs_frameworks=True)


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_prints_the_output_in_its_source(example):
    source = ROOT / "examples" / example
    checked = subprocess.run([sys.executable, ROOT / "tests" / "check_example.py", source, sys.executable, source],
                             capture_output=True, text=True, timeout=110)
    assert checked.returncode == 0, checked.stdout + checked.stderr
