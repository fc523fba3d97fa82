# SPDX-License-Identifier: Apache-2.0
"""Every code block of every page is compiled, run or parsed (documents.py); tests/frameworks runs the pages with PyTorch."""

import pathlib

import documents
import pytest

from program import PROGRAM


@pytest.fixture(name="prefix", scope="module")
def fixture_prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    documents.run(["cmake", "--install", pathlib.Path(PROGRAM).parent, "--prefix", prefix])
    return prefix


@pytest.mark.parametrize("page", list(documents.pages(needs_frameworks=False)))
def test_the_code_blocks_of_a_page_run(page, prefix, tmp_path, monkeypatch):
    documents.run_page(page, tmp_path, PROGRAM, prefix, monkeypatch)


def test_pages_were_found():
    assert {"README.md", "docs/guide/first-call.md", "docs/guide/python.md"} <= set(documents.pages(needs_frameworks=False))
