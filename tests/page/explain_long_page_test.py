# SPDX-License-Identifier: Apache-2.0
"""The page of `regard explain --html` for matrices with more weights than a page holds: maps and full rows against
NumPy, the choice of heads, contrast and widths."""

import numpy as np
import pytest

from conftest import go
from page_look_test import CONTRAST
from inspect_page_test import MAP, joined, readout, small_number
from program import succeed


@pytest.fixture(name="explained")
def fixture_explained(pages, tmp_path):
    """Opens the page of a number of tokens: (page, weights of both heads in double)."""

    def explained(queries, *options, **look):
        random = np.random.default_rng(11)
        q, k, v = (random.standard_normal((2, queries, 4)) for _ in range(3))
        arguments = []
        for name, matrix in zip("QKV", (q, k, v)):
            np.save(tmp_path / f"{name}.npy", matrix)
            arguments += ["--matrix", f"{name}={name}.npy"]
        succeed("explain", *arguments, "--causal", "--html", "page.html", *options, cwd=tmp_path)
        scores = np.where(np.tri(queries, dtype=bool), q @ k.swapaxes(1, 2) / 2, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        return pages.open(tmp_path / "page.html", **look), weights / weights.sum(axis=2, keepdims=True)

    return explained


def test_maps_and_rows_match_the_weights(explained):
    page, weights = explained(1500, "--query", "@700")
    canvas = page.locator(MAP)
    edges = [a * 1500 // 512 for a in range(513)]
    for head in (0, 1):
        page.locator(".inspected-heads button").nth(head).click()
        canvas.focus()
        page.keyboard.press("Home")
        for _ in range(60):
            page.keyboard.press("PageUp")
        cells = np.add.reduceat(np.add.reduceat(weights[head], edges[:-1], axis=0), edges[:-1], axis=1)
        cells /= np.outer(np.diff(edges), np.diff(edges))
        wanted, (rows, columns) = joined(cells, 1500, 1500, 2)
        for _ in range(4):
            page.keyboard.press("PageDown")
        assert readout(page).startswith(f"queries {rows[40]}–{rows[41] - 1} → keys 0–{columns[1] - 1}: "
                                        f"mean weight {small_number(wanted[40, 0])}.")
        # Rows in full, exactly: of the query in focus, the first and the last.
        for query in (700, 0, 1499):
            go(page, f"#attention=arrays&head={head}&query={query}&step=mix")
            heaviest = int(weights[head, query].argmax())
            text = page.locator(f"[data-cell='row {heaviest} weight']").inner_text()
            assert text.strip() == f"{weights[head, query, heaviest]:.4f}"


def test_the_page_opens_with_the_query_in_focus(explained):
    page, _ = explained(1100, "--query", "@700")
    assert page.locator("button[data-focus='word 700']").get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_has_contrast_and_fits_its_width(explained, theme, width):
    page, _ = explained(1100, color_scheme=theme, width=width)
    found = page.evaluate(CONTRAST)
    assert len(found) > 50 and not [place for place in found if place[0] < 4.5]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
