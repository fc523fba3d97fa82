# SPDX-License-Identifier: Apache-2.0
"""The notebooks in docs/notebooks run from top to bottom; their assertions check the values of the documents.

The notebooks in WITH_OUTPUTS are committed with their outputs, the others without. A fresh run must print the committed
text. The shades of figures may differ between machines, so only their number and their titles are compared.
"""

import pathlib

import nbclient
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WITH_OUTPUTS = {"inspecting-heads"}


def test_every_notebook_is_present():
    assert [path.stem[:3] for path in NOTEBOOKS] == ["000", "001", "002", "003", "004", "a-r", "ins", "tra"]


def figures_of(cell):
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def text_of(cell):
    """What a cell prints and the text form of its result; a figure's text form is its title and size."""
    return "".join(output.text if output.output_type == "stream" else output.data["text/plain"] for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = list(range(1, len(code) + 1))
    with_outputs = path.stem in WITH_OUTPUTS
    if with_outputs:
        assert [cell.execution_count for cell in code] == counts
        committed = [(text_of(cell), len(figures_of(cell))) for cell in code]
    else:
        assert code and not any(cell.outputs or cell.execution_count for cell in code)
    nbclient.NotebookClient(notebook, timeout=100, resources={"metadata": {"path": tmp_path}}).execute()
    assert [cell.execution_count for cell in code] == counts
    figures = [figure for cell in code for figure in figures_of(cell)]
    assert figures and all("regard-figure" in figure for figure in figures)
    assert not any("<script" in figure for figure in figures)  # scripts run only in a frame
    if with_outputs:
        assert [(text_of(cell), len(figures_of(cell))) for cell in code] == committed
