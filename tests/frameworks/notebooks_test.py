# SPDX-License-Identifier: Apache-2.0
"""The notebooks of docs/notebooks run from top to bottom; their own assertions hold the documents' numbers."""

import pathlib

import nbclient
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_all_are_there():
    assert [path.stem[:3] for path in NOTEBOOKS] == ["000", "001", "002", "003", "004", "a-r"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)  # kept without results
    nbclient.NotebookClient(notebook, timeout=100, resources={"metadata": {"path": tmp_path}}).execute()
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    figures = [output.data["text/html"] for cell in code for output in cell.outputs if "text/html" in output.get("data", {})]
    assert figures and all("regard-figure" in figure for figure in figures)
    assert not any("<script" in figure for figure in figures)  # but within a frame
