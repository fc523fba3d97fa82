# SPDX-License-Identifier: Apache-2.0
"""The pages whose Python needs PyTorch, transformers, Ray or Dask (documents.py), and the examples in Python."""

import pathlib
import subprocess
import sys
import tempfile

import documents
import pytest

from program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANY_DOCUMENTS = "docs/guide/many-documents.md"


@pytest.mark.parametrize("page", sorted(set(documents.pages(needs_frameworks=True)) - {MANY_DOCUMENTS}))
def test_the_code_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    documents.run_page(page, tmp_path, PROGRAM, None, monkeypatch)


def test_the_page_on_saved_arrays_is_run():
    assert "docs/reference/save.md" in documents.pages(needs_frameworks=True)


def test_every_recipe_for_many_documents_is_short_and_gives_the_bytes_of_one_run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="ray") as ray_folder:  # the name of a socket has at most 107 characters
        monkeypatch.setenv("RAY_TMPDIR", ray_folder)
        documents.run_page(MANY_DOCUMENTS, tmp_path, PROGRAM, None, monkeypatch)
    subprocess.run(["regard", "embed", "--input", "texts.txt", "--output", "whole.npy"], cwd=tmp_path, check=True, timeout=60)
    whole = (tmp_path / "whole.npy").read_bytes()
    for name in ("vectors", "xargs", "slurm", "ray", "dask", "spark"):
        assert (tmp_path / f"{name}.npy").read_bytes() == whole, name
    found = documents.blocks(ROOT / MANY_DOCUMENTS)
    assert len(found) == 6 and all(text.count("\n") < 15 for _, _, text in found)


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_prints_the_output_in_its_source(example):
    source = ROOT / "examples" / example
    checked = subprocess.run([sys.executable, ROOT / "tests" / "check_example.py", source, sys.executable, source],
                             capture_output=True, text=True, timeout=110)
    assert checked.returncode == 0, checked.stdout + checked.stderr
