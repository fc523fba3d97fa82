# SPDX-License-Identifier: Apache-2.0
"""The page of `regard attend … --html`: every number shown against the files that the same command writes (--weights,
--row-max, --row-sum, --sink-weights, -o), for every option; edge cases; controls; appearance."""

import json

import numpy as np
import pytest

from attend_reference import page_arrays
from conftest import GO, WHOLE_ROW, go
from page_look_test import CONTRAST
from page_numbers_test import CELLS, styled
from program import printed_number, succeed

NAMED = """() => Object.fromEntries([...document.querySelectorAll('[data-name]')].map(cell => {
    const number = cell.querySelector('.number');
    return [cell.dataset.name, number === null ? null : [...number.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')];
}))"""
STAGES = ["compare", "scale", "softmax", "mix"]


def style_for(numbers):
    """How the program prints a matrix (style_for of src/explain/report/terminal.cpp)."""
    finite = [abs(float(x)) for x in np.asarray(numbers).ravel() if np.isfinite(x)]
    largest = max(finite, default=0)
    whole = all(x == int(x) for x in finite)
    style = {"digits": 0 if whole else 4, "scientific": largest >= (1e12 if whole else 1e7)}
    if style["scientific"]:
        style["digits"] = 4
    if not whole and 0 < largest < 1e-2:
        style["digits"] = 3 - int(np.floor(np.log10(largest)))
        if style["digits"] > 8:
            style = {"digits": 4, "scientific": True}
    return style


class Attended:
    """A page, and the arrays that the command read and wrote, all with axes (B, H, …); the page holds `rows`."""

    def __init__(self, folder, arrays, options, rows):
        self.path = folder / "page.html"
        arguments = list(options)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
            arguments += ["--" + name, folder / f"{name}.npy"]
        outputs = ["output", "weights", "row-max", "row-sum"] + (["sink-weights"] if "sinks" in arrays else [])
        for name in outputs:
            arguments += ["--" + name, folder / f"{name}-out.npy"]
        succeed("attend", *arguments, "--html", self.path)
        for name in outputs:
            out = np.load(folder / f"{name}-out.npy")
            axes = 4 if name in ("output", "weights") else 3
            setattr(self, name.replace("-", "_"), out.reshape((1,) * (axes - out.ndim) + out.shape))
        self.query, self.key, self.value = (arrays[name].reshape((1,) * (4 - arrays[name].ndim) + arrays[name].shape)
                                            for name in ("query", "key", "value"))
        self.sinks = arrays.get("sinks")
        self.batch, self.heads, queries = self.query.shape[:3]
        self.rows = list(range(queries)) if rows is None else rows
        # No file of the program has scores; cli/attend_test checks those of the page against the formula.
        self.scores = page_arrays(self.path.read_text(encoding="utf-8"))["scores"]
        self.styles = {"weight": style_for(self.weights), "score": style_for(self.scores),
                       "context": style_for(self.output[:, :, self.rows])}


@pytest.fixture(name="attend")
def fixture_attend(pages, tmp_path):
    """Computes with the program and opens the page: (page, input and output arrays)."""

    def attend(arrays, *options, rows=None, address=WHOLE_ROW, **look):
        made = Attended(tmp_path, arrays, options, rows)
        return pages.open(made.path, address, **look), made

    return attend


def drawn(seed, *shapes, dtype=np.float32):
    random = np.random.default_rng(seed)
    return dict(zip(("query", "key", "value"), (random.standard_normal(shape).astype(dtype) for shape in shapes)))


def address_of(head, query, step="mix"):
    return f"#attention=arrays&head={head}&query={query}&step={step}"


def choose(page, head, query, step="mix"):
    go(page, address_of(head, query, step))


def title(page):
    return page.locator("h1").inner_text().replace("\u00a0", " ")


def dot(q, k):
    total = 0.0
    for a, b in zip(q, k):
        total += float(a) * float(b)
    return total


def check_row(page, made, b, h, n, hidden):
    """The row shown against the files; hidden(b, h, i, j): whether the key is hidden."""
    check_cells(page.evaluate(CELLS), page.evaluate(NAMED), made, b, h, n, hidden)


def check_cells(cells, named, made, b, h, n, hidden):
    i = made.rows[n]
    weights = made.weights[b, h, n]
    key_head = h // (made.heads // made.key.shape[1])
    dots = [dot(made.query[b, h, i], key) for key in made.key[b, key_head]]
    row_sum = float(made.row_sum[b, h, i])
    seen = [j for j in range(len(weights)) if not hidden(b, h, i, j)]
    for j, weight in enumerate(weights):
        assert cells[f"row {j} weight"] == (styled(weight, made.styles["weight"]) if j in seen else "hidden"), (b, h, i, j)
        assert cells[f"row {j} score"] == (styled(made.scores[b, h, n, j], made.styles["score"]) if j in seen else "hidden")
        assert (cells[f"row {j} exponential"] == "hidden") == (j not in seen)
        assert cells[f"row {j} q_dot_k"] == styled(dots[j], {"digits": 4, "scientific": False})
        if j in seen and np.isfinite(row_sum):
            exponential = float(weight) * row_sum
            assert abs(printed_number(cells[f"row {j} exponential"].lstrip("<>")) - exponential) <= 1.01e-4 * (1 + abs(exponential))
    if seen and made.sinks is None:
        assert max(made.scores[b, h, n, seen]) == made.row_max[b, h, i]
    sink = 0.0
    if made.sinks is not None:
        sink = float(made.sink_weights[b, h, i])
        assert named["sink weight"] == styled(sink, made.styles["weight"])
        assert printed_number(named["sink score"]) == pytest.approx(float(made.sinks[h]), abs=5.01e-5)
    assert named["sum weight"] == styled(np.sum(weights, dtype=np.float64) + sink, made.styles["weight"])
    assert named["sum exponential"] == styled(row_sum, {"digits": 4, "scientific": False})
    for d, x in enumerate(made.output[b, h, i]):
        assert cells[f"mix {d}"] == styled(x, made.styles["context"])
    short = {**made.styles["weight"], "digits": min(4, made.styles["weight"]["digits"])}
    for m, r in enumerate(made.rows):
        for j in range(len(weights)):
            assert cells[f"map {r} {j}"] == ("hidden" if hidden(b, h, r, j) else styled(made.weights[b, h, m, j], short))


# The cells and the named numbers at each address.
AT_ADDRESSES = """async addresses => { const all = [];
    for (const address of addresses) {
        await (%s)(address);
        all.push([(%s)(), (%s)()]);
    }
    return all; }""" % (GO, CELLS, NAMED)


def check_page(page, made, hidden):
    places = [(b, h, n) for b in range(made.batch) for h in range(made.heads) for n in range(len(made.rows))]
    read = page.evaluate(AT_ADDRESSES, [address_of(b * made.heads + h, made.rows[n]) for b, h, n in places])
    for (b, h, n), (cells, named) in zip(places, read, strict=True):
        check_cells(cells, named, made, b, h, n, hidden)


def causal(_b, _h, i, j):
    return j > i


def nothing(*_):
    return False


SMALL = ((2, 5, 4), (2, 5, 4), (2, 5, 3))
RANDOM = np.random.default_rng(8)
MASK = RANDOM.random((2, 5, 5)) < 0.6
MASK[1, 3] = False
CASES = {
    "causal": (drawn(1, *SMALL), ["--causal"], {}, causal),
    "window": (drawn(2, *SMALL), ["--window", "1,1", "--query-offset", "0"], {}, lambda b, h, i, j: abs(i - j) > 1),
    "shifted": (drawn(3, (2, 3, 4), (2, 6, 4), (2, 6, 3)), ["--causal=bottom_right"], {}, lambda b, h, i, j: j > i + 3),
    "mask-and-bias": (drawn(4, *SMALL) | {"mask": MASK, "bias": RANDOM.standard_normal((5, 5)).astype(np.float32)}, [], {},
                      lambda b, h, i, j: not MASK[h, i, j]),
    "soft-cap": (drawn(5, *SMALL), ["--soft-cap", "1.5", "--scale", "2"], {}, nothing),
    "sinks": (drawn(6, *SMALL) | {"sinks": np.array([0.25, 1.5], np.float32)}, ["--causal"], {}, causal),
    "alibi": (drawn(7, *SMALL) | {"alibi-slopes": np.array([0.5, 0.25], np.float32)}, ["--causal"], {}, causal),
    "grouped-batch": (drawn(8, (2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)) | {"key-lengths": np.array([5, 2])}, [], {},
                      lambda b, h, i, j: j >= (5, 2)[b]),
    "packed": (drawn(9, *SMALL) | {"query-starts": np.array([0, 2, 5]), "key-starts": np.array([0, 3, 5])}, [], {},
               lambda b, h, i, j: (i < 2) != (j < 3)),
    "segments": (drawn(10, *SMALL) | {"query-segments": np.array([0, 0, 1, -1, 1]), "key-segments": np.array([1, 0, 0, 1, -1])}, [], {},
                 lambda b, h, i, j: [0, 0, 1, -1, 1][i] != [1, 0, 0, 1, -1][j] or [0, 0, 1, -1, 1][i] < 0),
    "float64": (drawn(11, *SMALL, dtype=np.float64), ["--causal", "--scale", "none"], {}, causal),
    "rows": (drawn(12, (2, 6, 4), (2, 5, 4), (2, 5, 3)), ["--rows", "1:2,4:6", "--causal=top_left"], {"rows": [1, 4, 5]}, causal),
    "two-axes": (drawn(13, (4, 4), (7, 4), (7, 2)), [], {}, nothing),
    "all": (drawn(14, (2, 4, 4, 4), (2, 2, 6, 4), (2, 2, 6, 3)) | {"sinks": np.array([0.5, -1, 0, 2], np.float32), "mask": np.arange(6) != 2,
            "bias": RANDOM.standard_normal((4, 1, 6)).astype(np.float32), "alibi-slopes": np.array([1, 0.5, 0.25, 0.125], np.float32)},
            ["--causal=1", "--window", "4,-", "--soft-cap", "3"], {}, lambda b, h, i, j: j == 2 or j > i + 1 or j < i + 1 - 4),
}


@pytest.mark.parametrize("name", CASES)
def test_every_number_matches_the_files(attend, name):
    arrays, options, look, hidden = CASES[name]
    page, made = attend(arrays, *options, **look)
    check_page(page, made, hidden)


def test_a_row_without_visible_keys_is_described(attend):
    mask = np.ones((3, 4), bool)
    mask[1] = False
    page, made = attend(drawn(20, (3, 4), (4, 4), (4, 3)) | {"mask": mask})
    choose(page, 0, 1)
    check_row(page, made, 0, 0, 1, lambda b, h, i, j: not mask[i, j])
    assert title(page) == "Query 1 has no visible key."
    assert page.locator(".vector .number").all_inner_texts() == ["0", "0", "0"]
    assert "query 1 has no visible key" in page.locator(".map-figure + aside, aside.note").last.inner_text()
    assert "nan" not in page.locator("main").inner_text().lower()
    for step, text in (("softmax", "has no visible key, so it has no weights"), ("mix", "the context of query 1 is 0")):
        choose(page, 0, 1, step)
        assert text in page.locator(".step-note").inner_text()


def test_a_row_whose_weight_is_all_on_the_sink(attend):
    page, made = attend(drawn(21, (2, 4), (3, 4), (3, 3)) | {"mask": np.array([[False] * 3, [True] * 3]), "sinks": np.array([2], np.float32)})
    choose(page, 0, 0)
    check_row(page, made, 0, 0, 0, lambda b, h, i, j: i == 0)
    assert page.evaluate(NAMED)["sink weight"] == "1.0000"
    choose(page, 0, 1)
    weights, sink = made.weights[0, 0, 1].astype(np.float64), float(made.sink_weights[0, 0, 1])
    four = {"digits": 4, "scientific": False}
    assert (f"The weights of the keys sum to {styled(weights.sum(), four)}, which is 1 − {styled(sink, four)}, the sink’s weight"
            in page.locator(".row-section .caption").inner_text())


def test_the_output_of_a_head_is_called_its_context(attend):
    page, _ = attend(drawn(21, (2, 4), (3, 4), (3, 3)) | {"mask": np.array([[False] * 3, [True] * 3])})
    choose(page, 0, 1)
    assert "the context of query 1" in page.locator(".step-note").inner_text()
    choose(page, 0, 0)
    assert "the context of query 0 is 0" in page.locator(".step-note").inner_text()
    assert "new vector" not in page.locator("main").inner_text()


def test_nan_and_infinity_are_shown(attend):
    arrays = drawn(22, (4, 4), (4, 4), (4, 3))
    arrays["value"][1, 0] = np.nan
    arrays["value"][2, 1] = -np.inf
    arrays["query"][2, 0] = np.nan
    bias = np.zeros((4, 4), np.float32)
    bias[0, 3] = -np.inf
    bias[3, 0] = np.inf
    page, made = attend(arrays | {"bias": bias})
    for i in range(4):
        choose(page, 0, i)
        cells = page.evaluate(CELLS)
        for j in range(4):
            assert cells[f"row {j} weight"] == styled(made.weights[0, 0, i, j], made.styles["weight"])
        for d in range(3):
            assert cells[f"mix {d}"] == styled(made.output[0, 0, i, d], made.styles["context"])
    choose(page, 0, 0)
    cells = page.evaluate(CELLS)
    assert cells["row 3 score"] == "−∞" and cells["row 3 weight"] == "0" and cells["mix 0"] == "nan" and cells["mix 1"] == "−∞"
    assert "2 are not finite" in page.locator(".step-note").inner_text()
    choose(page, 0, 2)
    assert title(page) == "The weights of query 2 are nan."
    choose(page, 0, 3)
    cells = page.evaluate(CELLS)
    assert cells["row 0 score"] == "∞" and cells["row 0 exponential"] == "1.0000" and cells["row 0 weight"] == "1.0000"
    page.locator('summary[data-focus="json"]').click()
    page.locator("pre").wait_for()
    row = json.loads(page.locator("pre").inner_text())
    assert row["score"][0] == "inf" and row["row_max"] == "inf" and row["weight"] == [1, 0, 0, 0]


def test_a_number_expands_into_its_derivation(attend):
    arrays, options, _, _ = CASES["all"]
    page, made = attend(arrays, *options, address="#attention=arrays&head=5&query=3&step=mix")
    cells = page.evaluate(CELLS)
    b, h, i, j = 1, 1, 3, 1
    for column in ("q_dot_k", "score", "exponential", "weight"):
        page.locator(f'[data-cell="row {j} {column}"]').click()
        text = page.locator(".row-table .expand").inner_text()
        assert cells[f"row {j} {column}"] in text, column
        if column == "q_dot_k":
            products = made.query[b, h, i].astype(np.float64) * made.key[b, 0, j].astype(np.float64)
            assert "is the sum of 4 products: " in text
            assert styled(max(products, key=abs), {"digits": 4, "scientific": False}) in text
        if column == "score":
            lines = page.locator(".row-table .expand dl > div").all_inner_texts()
            assert [line.split("\n")[0] for line in lines] == ["scaled", "soft cap", "ALiBi and bias"]
            assert lines[0].rstrip().endswith(styled(dot(made.query[b, h, i], made.key[b, 0, j]) / 2, {"digits": 4, "scientific": False}))
        if column == "weight":
            assert f"/ {styled(made.row_sum[b, h, i], {'digits': 4, 'scientific': False})}" in text
    page.locator('[data-cell="mix 2"]').click()
    text = page.locator(".mix-figure .expand").inner_text()
    assert cells["mix 2"] in text and "weight of key 1 · v[1, 2]" in text
    page.keyboard.press("Escape")
    assert page.locator(".expand").count() == 0


def test_values_at_hidden_keys_are_not_read(attend):
    arrays = drawn(23, (3, 4), (3, 4), (3, 2))
    arrays["value"][2] = arrays["key"][2] = np.nan
    page, made = attend(arrays, "--causal", address="#attention=arrays&query=1&step=mix")
    assert np.isfinite(made.output[0, 0, 1]).all()
    check_row(page, made, 0, 0, 1, causal)
    page.locator('[data-cell="mix 0"]').click()
    text = page.locator(".mix-figure .expand").inner_text()
    assert text.startswith(f"{styled(made.output[0, 0, 1, 0], made.styles['context'])} is the sum of 2 products: ") and "nan" not in text


def test_batch_and_heads_are_named_and_chosen(attend):
    arrays, options, _, _ = CASES["grouped-batch"]
    page, made = attend(arrays, *options)
    assert page.locator('[data-focus^="Batch "]').count() == 2 and page.locator('[data-focus^="Head "]').count() == 4
    page.locator('[data-focus="Batch 1"]').click()
    page.locator('[data-focus="Head 2"]').click()
    page.locator('[data-focus="word 2"]').click()
    assert title(page).startswith("In batch 1, head 2, query 2 attends most to key ")
    check_row(page, made, 1, 2, 2, CASES["grouped-batch"][3])
    assert page.locator(".row-table .query-name").inner_text() == "query 2"
    assert page.locator(".row-table tbody th").all_inner_texts() == [f"key {j}" for j in range(5)]
    citation = page.locator("header .citation").inner_text()
    assert citation == "float32 · batch of 2 × 4 heads (2 of keys) × 3 queries × 5 keys of size 4 · key lengths 5, 2 · scale 1/√4"
    foot = page.locator("footer").inner_text()
    assert "regard attend" in foot and "key lengths 5, 2" in foot and "--html" in foot


def test_everything_works_by_keyboard(attend):
    arrays, options, _, hidden = CASES["causal"]
    page, made = attend(arrays, *options, address="#attention=arrays&head=1&query=2&step=mix")
    for want in ("softmax", "scale", "compare"):
        page.keyboard.press("ArrowLeft")
        assert page.locator("[aria-current=step]").inner_text() == want
    page.keyboard.press("h")
    assert page.locator(".row-table .covered").count() > 0
    page.keyboard.press("h")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator('[data-focus="word 2"]').focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".row-table .query-name").inner_text() == "query 3"
    check_row(page, made, 0, 1, 3, hidden)
    page.locator('[data-cell="map 3 0"]').focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.locator(".row-table .query-name").inner_text() == "query 2"
    page.locator('[data-cell="row 0 q_dot_k"]').focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator(".row-table .expand").count() == 1
    assert page.evaluate("document.activeElement.dataset.cell") == "row 0 weight"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_contrast_and_fits_its_width(attend, pages, theme):
    for case in ("sinks", "grouped-batch"):
        arrays, options, _, _ = CASES[case]
        for width in (1280, 800, 390, 320):
            page, _ = attend(arrays, *options, color_scheme=theme, width=width)
            for step in STAGES:
                choose(page, 0, 1, step)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                found = page.evaluate(CONTRAST)
                assert len(found) > 50 and not [place for place in found if place[0] < 4.5]
            pages.hand_back(page)


def test_large_heads_are_painted_and_long_rows_shortened(attend):
    page, made = attend(drawn(30, (64, 8), (64, 8), (64, 24)), "--causal")
    page.locator('[data-focus="word 63"]').click()
    lines = page.locator(".row-table tbody tr")
    assert lines.count() == 39 and page.locator(".row-table tr.others th").inner_text() == "26 others"
    cells = page.evaluate(CELLS)
    shown = [int(cell.split()[1]) for cell in cells if cell.startswith("row ") and cell.endswith(" weight")]
    weights = made.weights[0, 0, 63]
    assert set(shown) == set(np.argsort(-weights, kind="stable")[:38])
    for j in shown:
        assert cells[f"row {j} weight"] == styled(weights[j], made.styles["weight"])
    canvas = page.locator("canvas.painted")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 7.5 / 64, "y": box["height"] * 40.5 / 64})
    assert page.locator(".readout").inner_text() == f"query 40 → key 7: {styled(made.weights[0, 0, 40, 7], made.styles['weight'])}"
    canvas.hover(position={"x": box["width"] * 50.5 / 64, "y": box["height"] * 40.5 / 64})
    assert page.locator(".readout").inner_text() == "query 40 → key 50: hidden"
    canvas.click(position={"x": 2, "y": box["height"] * 12.5 / 64})
    assert page.locator(".row-table .query-name").inner_text() == "query 12"


def test_hidden_keys_of_a_long_row_take_no_lines(attend):
    page, made = attend(drawn(31, (64, 8), (64, 8), (64, 3)), "--causal")
    page.locator('[data-focus="word 9"]').click()
    assert page.locator(".row-table tbody th").all_inner_texts() == [*(f"key {j}" for j in range(10)), "54 more"]
    assert page.locator(".row-table tr.others").inner_text().split() == ["54", "more", "hidden"]
    # Hidden cells are hatched on the painted map: neither plain paper nor a color of the scale.
    colors = page.evaluate("""() => { const canvas = document.querySelector('canvas.painted');
        const all = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        const size = canvas.width / 64;
        const count = (column, row) => new Set(Array.from({ length: size * size }, (_, i) => all[(row * size + Math.floor(i / size)) * canvas.width + column * size + i % size])).size;
        return [count(40, 2), count(0, 60)]; }""")
    assert colors[0] > 1 and colors[1] == 1


def test_more_keys_than_pixels_are_painted_in_blocks(attend):
    page, made = attend(drawn(33, (2, 4), (1500, 4), (1500, 3)), "--causal=bottom_right")
    canvas = page.locator("canvas.painted")
    assert canvas.evaluate("c => [c.width, c.height]") == [500, 32]
    assert page.locator(".readout").inner_text() == "query ↓ key → · each point is the largest of 1 × 3 weights"
    # Darkest where the largest weight is.
    page.locator('[data-focus="scale"]').click()
    page.wait_for_timeout(100)
    dark = canvas.evaluate("""c => { const d = c.getContext('2d').getImageData(0, 24, c.width, 1).data;
        return [...Array(c.width).keys()].reduce((best, x) => d[4 * x] < d[4 * best] ? x : best, 0); }""")
    assert dark == int(np.argmax(made.weights[0, 0, 1])) // 3
    canvas.hover(position={"x": 499.9, "y": 30})
    assert page.locator(".readout").inner_text() == f"query 1 → key 1499: {styled(made.weights[0, 0, 1, 1499], made.styles['weight'])}"


def test_many_queries_are_chosen_from_a_list(attend):
    page, made = attend(drawn(32, (70, 4), (3, 4), (3, 3)))
    choice = page.locator('[data-focus="queries"]')
    assert choice.locator("option").count() == 70
    choice.select_option("69")
    assert page.locator(".row-table .query-name").inner_text() == "query 69"
    assert choice.input_value() == "69"
    assert page.evaluate(CELLS)["row 1 weight"] == styled(made.weights[0, 0, 69, 1], made.styles["weight"])
    choice.focus()
    page.keyboard.press("ArrowUp")
    assert page.locator(".row-table .query-name").inner_text() == "query 68"


def test_the_row_as_json(attend):
    arrays, options, _, hidden = CASES["sinks"]
    page, made = attend(arrays, *options, address="#attention=arrays&head=1&query=2&step=mix")
    page.locator('summary[data-focus="json"]').click()
    page.locator("pre").wait_for()
    row = json.loads(page.locator("pre").inner_text())
    assert row["schema"] == "regard/1" and row["head"] == 1 and row["query"] == 2
    assert np.array_equal(np.array(row["weight"], np.float32), made.weights[0, 1, 2])
    assert np.array_equal(np.array(row["context"], np.float32), made.output[0, 1, 2])
    assert np.float32(row["sink_weight"]) == made.sink_weights[0, 1, 2] and np.float32(row["row_sum"]) == made.row_sum[0, 1, 2]
    assert row["hidden"] == [3, 4]
    page.locator('[data-focus="word 4"]').click()
    assert json.loads(page.locator("pre").inner_text())["query"] == 4


def test_an_invalid_address_is_ignored(attend, pages):
    for address in ("#query=99", "#head=7", "#attention=__proto__&query=-1", "#open=row 0 constructor"):
        page, _ = attend(*CASES["causal"][:1], "--causal", address=address)
        assert page.locator(".row-table").count() == 1 and page.locator("[aria-current=step]").inner_text() == "compare"
        pages.hand_back(page)
