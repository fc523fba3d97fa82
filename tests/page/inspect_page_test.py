# SPDX-License-Identifier: Apache-2.0
"""The page of `regard attend --inspect --html`: the cells under the pointer and the arrows against pooled_map.npy, the
heads' numbers against --json, the colors against both scales; alone where whole weights are too large, beside rows
where they are not; contrast and room."""

import json

import numpy as np
import pytest

from conftest import WHOLE_ROW
from page_look_test import CONTRAST
from program import succeed

MAP = "canvas.coarse[role=img]"


def small_number(x):
    """web/inspection_figure.js"""
    if x == 0:
        return "0"
    digits = min(12, 3 - int(np.floor(np.log10(x)))) if x < 1e-3 else 4
    return f"{x:.{digits}f}"


@pytest.fixture(name="inspected")
def fixture_inspected(pages, tmp_path):
    """Computes with the program and opens the page: (page, report, pooled map in double)."""

    def inspect(shape, *options, seed=1, address=WHOLE_ROW, **look):
        random = np.random.default_rng(seed)
        for name in "qkv":
            np.save(tmp_path / f"{name}.npy", random.standard_normal(shape).astype(np.float32) * (2 if name == "q" else 1))
        report = json.loads(succeed("attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--inspect", "--save", "out",
                                    "--html", "page.html", "--json", *options, cwd=tmp_path))
        return pages.open(tmp_path / "page.html", address, **look), report["inspect"], np.load(tmp_path / "out/pooled_map.npy").astype(np.float64)

    return inspect


def joined(cells, queries, keys, by):
    """Means of `by` strips at a time, and their edges."""
    edges = [[a * n // count for a in range(0, count, by)] + [n] for n, count in ((queries, cells.shape[0]), (keys, cells.shape[1]))]
    size = [np.diff([a * n // count for a in range(count + 1)]) for n, count in ((queries, cells.shape[0]), (keys, cells.shape[1]))]
    weights = np.outer(*size)
    down, across = (range(0, count, by) for count in cells.shape)
    sums = np.add.reduceat(np.add.reduceat(cells * weights, down, axis=0), across, axis=1)
    return sums / np.add.reduceat(np.add.reduceat(weights, down, axis=0), across, axis=1), edges


def readout(page):
    return page.locator(".inspection .readout").inner_text()


def test_long_inputs_have_a_page_of_maps(inspected):
    page, said, cells = inspected((2, 3000, 4), "--causal", "--map-size", "500")
    assert page.locator("h1").inner_text().startswith("Head ") and "of its attention" in page.locator("h1").inner_text()
    assert page.locator(".row-table").count() == 0
    canvas = page.locator(MAP)
    canvas.focus()
    for head in range(2):
        page.locator(".inspected-heads button").nth(head).click()
        canvas.focus()
        page.keyboard.press("Home")
        for _ in range(30):
            page.keyboard.press("PageUp")
        wanted, (rows, columns) = joined(cells[head], 3000, 3000, 2)
        row, column = 0, 0
        for key, step in (("ArrowDown", (1, 0)), ("PageDown", (10, 0)), ("ArrowRight", (0, 1)), ("ArrowUp", (-1, 0)), ("ArrowRight", (0, 1))):
            page.keyboard.press(key)
            row, column = row + step[0], column + step[1]
            keys = f"keys {columns[column]}–{columns[column + 1] - 1}"
            share = (wanted[:, column] * np.diff(rows)).sum() * np.diff(columns)[column] / 3000
            assert readout(page) == (f"queries {rows[row]}–{rows[row + 1] - 1} → {keys}: mean weight {small_number(wanted[row, column])}. "
                                     f"All queries together give {small_number(share)} of the head’s attention to {keys}.")
    assert page.url.endswith("#head=1")
    # The pointer does the same.
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9995, box["y"] + 1)
    assert readout(page).startswith("queries 0–11 → keys 2988–2999: mean weight 0.")


def test_the_heads_match_json(inspected):
    page, said, _ = inspected((2, 2, 1000, 4), "--track-keys", "0,999", "--top", "3")
    rows = page.locator(".inspected-heads tbody tr").all()
    assert len(rows) == 4
    for row, head in zip(rows, said["heads"]):
        numbers = [row.locator("th").inner_text(), *row.locator("td").all_inner_texts()]
        wanted = [f"{head['batch']}, {head['head']}"] + [f"{x:.4f}" for x in head["tracked_shares"]]
        wanted += [f"{head['entropy']:.2f}", f"{head['largest_weight']:.4f}", f"{head['mean_distance']:.1f}"]
        wanted.append(" · ".join(f"{key}: {small_number(share)}" for key, share in zip(head["heavy_hitters"], head["share"])))
        assert [text.replace("\u00a0", " ") for text in numbers] == wanted


# Red, green and blue in the middle of each of count × count cells.
MIDDLES = """(canvas, count) => {
    const { width, height } = canvas, side = width / count, found = [];
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    for (let i = 0; i < count; ++i) {
        for (let j = 0; j < count; ++j) {
            const at = 4 * (Math.floor((i + 0.5) * side) * width + Math.floor((j + 0.5) * side));
            found.push([...data.slice(at, at + 3)]);
        }
    }
    return [width, height, found];
}"""


def test_colors_are_logarithmic_or_linear(inspected):
    page, _, cells = inspected((1, 2600, 4), "--map-size", "20", color_scheme="light")
    paper, blue = np.array([0xfd, 0xfc, 0xf9]), np.array([0x0b, 0x4f, 0x8f])
    for linear in (False, True):
        page.wait_for_timeout(100)
        width, height, found = page.locator(MAP).evaluate(MIDDLES, 20)
        assert width == height and width % 20 == 0
        pixels = np.array(found).reshape(20, 20, 3)
        map_ = cells[0] / cells[0].max()
        share = np.clip(map_ if linear else 1 + np.log10(map_) / 4, 0, 1)[..., None]
        assert abs(pixels - ((1 - share) * paper + share * blue)).max() < 2
        page.locator(".inspection .legend button").click()
    assert page.locator(".inspection .legend button").get_attribute("aria-pressed") == "false"


def test_a_short_input_has_rows_and_maps(inspected):
    page, said, cells = inspected((2, 60, 4), "--causal", "--rows", "0:3")
    assert page.locator(".row-table").count() == 1 and page.locator(MAP).count() == 1
    page.locator("button[data-focus='inspected 1']").click()
    assert "head=1" in page.url and page.locator("button[data-focus='head 1']").get_attribute("aria-pressed") == "true"
    page.locator(MAP).focus()
    page.keyboard.press("ArrowDown")
    assert readout(page).startswith(f"query 1 → key 0: weight {small_number(cells[1, 1, 0])}.")
    # Arrow keys on the map do not change the step; elsewhere they do.
    assert "step=mix" in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_has_contrast_and_fits_its_width(inspected, theme, width):
    page, _, _ = inspected((8, 1000, 4), "--causal", color_scheme=theme, width=width)
    found = page.evaluate(CONTRAST)
    assert len(found) > 50 and not [place for place in found if place[0] < 4.5]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
