# SPDX-License-Identifier: Apache-2.0
"""The measurable appearance of the page: contrast in both themes, layout at each width, print, motion, and tables for
screen readers."""

import json
import math
import re

import numpy as np
import pytest

from conftest import go
from lessons import LESSONS, OF_SENTENCES

# Every visible text, with the contrast of its color to the background (WCAG 2.2, 1.4.3). A canvas converts any notation
# of a color to red, green, blue.
CONTRAST = """() => {
    const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const known = new Map();
    const rgba = (color) => { if (known.has(color)) return known.get(color);
        context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1);
        known.set(color, [...context.getImageData(0, 0, 1, 1).data]); return known.get(color); };
    const luminance = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
    const behind = (element) => { for (let e = element; e; e = e.parentElement) { const color = rgba(getComputedStyle(e).backgroundColor); if (color[3] === 255) return color; }
        return rgba(getComputedStyle(document.documentElement).backgroundColor); };
    const all = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (walker.currentNode.data.trim() === '' || ['SCRIPT', 'NOSCRIPT', 'STYLE'].includes(element.tagName) || element.closest('.spoken, pre')) continue;
        if (!element.checkVisibility({ visibilityProperty: true })) continue;
        const text = rgba(getComputedStyle(element).color);
        const [a, b] = [luminance(text), luminance(behind(element))].sort((x, y) => y - x);
        all.push([(a + 0.05) / (b + 0.05), element.className?.toString() ?? '', walker.currentNode.data.trim().slice(0, 30)]);
    }
    return all; }"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", OF_SENTENCES)
def test_text_has_contrast(lesson, name, theme):
    page, _ = lesson(name, color_scheme=theme)
    for address in ("", "#step=compare", "#step=softmax&open=row 0 weights"):
        go(page, address)
        found = page.evaluate(CONTRAST)
        assert len(found) > 100
        assert not [place for place in found if place[0] < 4.5]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_in_the_map_have_contrast_at_every_weight(arrays, pages, theme):
    # Two keys, scores x and 0: the first weight can be any share.
    for first in (1, 11, 55, 58, 70, 73, 76, 90):
        shares = [(first + i) / 100 for i in range(9)]
        page, _ = arrays({"Q": [[math.log(w / (1 - w))] for w in shares], "K": [[1], [0]], "V": [[1], [0]], "scale": "none"}, color_scheme=theme)
        found = [place for place in page.evaluate(CONTRAST)]
        assert not [place for place in found if place[0] < 4.5]
        pages.hand_back(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_contrast_with_the_paper(lesson, theme):
    """Bars and strips: a contrast of 3 with the paper (WCAG 2.2, 1.4.11)."""
    page, _ = lesson("from-seed", color_scheme=theme)
    ratio = page.evaluate("""() => {
        const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        const luminance = (color) => { context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1);
            const [x, y, z] = [...context.getImageData(0, 0, 1, 1).data].map(c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
        const paper = luminance(getComputedStyle(document.documentElement).backgroundColor);
        return ['.bar-fill', '.strip.value .stick', '.strip.context .stick', '.strip .zero'].map(s => { const style = getComputedStyle(document.querySelector(s));
            const color = s === '.bar-fill' ? style.backgroundColor : style.stroke; const [a, b] = [luminance(color), paper].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); }); }""")
    assert min(ratio) >= 3


@pytest.mark.parametrize("width", [1280, 800, 390, 320])
@pytest.mark.parametrize("name", LESSONS)
def test_the_page_never_scrolls_sideways(lesson, name, width):
    page, _ = lesson(name, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.scrollWidth") <= width
    page.keyboard.press("p")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_long_words_and_many_heads_do_not_scroll_sideways(arrays):
    words = ["w" * 400, "日本語" * 40, "שלום" * 30, "a b c " * 40]
    given = {"tokens": words, "Q": [[[i + h, 1] for i in range(4)] for h in range(12)], "K": [[[1, i] for i in range(4)] for _ in range(12)],
             "V": [[[i, 1] for i in range(4)] for _ in range(12)]}
    for width in (1280, 390):
        page, _ = arrays(given, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_view_holds_the_row(lesson):
    for name in ("three-words", "from-seed"):
        page, _ = lesson(name)
        box = page.locator(".row-table").bounding_box()
        assert box["y"] + box["height"] <= 800
        note = page.locator(".step-note").bounding_box()
        assert note["x"] > box["x"] + box["width"] and abs(note["y"] - box["y"]) < 40


def test_a_narrow_page_keeps_key_weight_and_bar_and_the_rest_on_tap(lesson):
    page, _ = lesson("roles", width=390)
    assert page.locator('[data-cell="row 1 weights"]').is_visible() and page.locator(".row-table .bar").first.is_visible()
    assert not page.locator('[data-cell="row 1 scores"]').is_visible()
    score = page.locator('[data-cell="row 1 scores"] .number').evaluate("e => e.textContent")
    page.locator('[data-cell="row 1 weights"]').click()
    assert score in page.locator(".row-table .expand dl").inner_text()
    wide, _ = lesson("roles")
    wide.locator('[data-cell="row 1 weights"]').click()
    assert not wide.locator(".narrow-only").first.is_visible()


def test_a_narrow_page_shows_the_column_of_its_step(lesson):
    page, _ = lesson("one-function", "", width=390)
    seen = "[...document.querySelectorAll('.row-table tbody tr:first-child td[data-cell]')].filter(c => c.querySelector('.number, .hidden-word')?.checkVisibility({ visibilityProperty: true })).map(c => c.dataset.cell)"
    for step, want in (("compare", "scores"), ("scale", "masked"), ("softmax", "weights"), ("mix", "weights")):
        go(page, f"#step={step}")
        assert page.evaluate(seen) == [f"row 0 {want}"]
    # Predicting the weights requires the scores.
    go(page, "#step=softmax")
    page.keyboard.press("h")
    assert page.evaluate(seen) == ["row 0 masked"]


def test_print_has_the_figures_and_no_controls(lesson, tmp_path):
    page, _ = lesson("three-words", "#step=softmax")
    page.emulate_media(media="print")
    for gone in (".stepper", ".switches", ".legend button", ".keys", "details"):
        assert not page.locator(gone).first.is_visible()
    for kept in (".sentence", ".finding", ".row-table", ".mix", ".map", ".steps .matrix"):
        assert page.locator(kept).first.is_visible()
    assert page.locator('[aria-current="step"]').evaluate("e => e.textContent") == "softmax"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_nothing_moves_with_reduced_motion(lesson):
    # Counted before a frame can pass.
    moving = """() => { document.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        return document.getAnimations().length; }"""
    for wanted, motion in ((0, "reduce"), (1, "no-preference")):
        page, _ = lesson("three-words", "#step=softmax", reduced_motion=motion)
        assert (page.evaluate(moving) > 0) == bool(wanted)


def test_tables_are_readable_by_screen_readers(lesson):
    page, _ = lesson("from-seed")
    for table in page.locator("table").all():
        assert table.get_attribute("aria-label") or table.locator("caption").count() or table.evaluate("t => t.closest('section[aria-labelledby]') !== null")
        assert table.locator('th[scope="row"]').count() > 0
    assert page.locator('.row-table th[scope="col"]').count() >= 5
    for picture in page.locator('[role="img"]').all():
        assert picture.get_attribute("aria-label")
    headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert headings[0] == 1 and all(b - a <= 1 for a, b in zip(headings, headings[1:]))
    assert page.evaluate("document.documentElement.lang") == "en"
    names = page.evaluate("[...document.querySelectorAll('button')].map(b => b.textContent.trim())")
    assert all(names)


def test_a_page_without_attention_shows_its_steps(lesson):
    page, data = lesson("why-scale")
    assert page.locator(".row-table").count() == 0
    assert page.locator(".step").count() == len(data["steps"])


def test_the_documents_number_is_shown_where_it_differs(lesson):
    page, data = lesson("one-function")
    step = next(step for step in data["steps"] if step["name"] == "scores")
    differs = step["document"]["differs"]
    assert len(differs) > 3
    for head, row, column in differs:
        cell = page.locator(f'[data-cell="scores {head} {row} {column}"] .document')
        printed = json.loads(json.dumps(step["document"]["numbers"]))[row][column]
        assert cell.inner_text() == f"doc {printed:.8f}".replace("-", "−")
    assert page.locator('.step:has([data-cell^="scores 0"]) .document').count() == len(differs)
    # In a muted color, and with the reason.
    assert page.evaluate("getComputedStyle(document.querySelector('.document')).color") == page.evaluate("getComputedStyle(document.querySelector('.note')).color")
    assert "computed from the 8 printed digits of Q, K and V" in page.locator('.step:has([data-cell^="scores 0"])').inner_text()


# ---- where things are: boxes as the browser draws them


def test_captions_do_not_run_together(lesson, pages):
    """A caption's name and its axes are separate words."""
    for name, one in (("three-words", "Q query ↓ dimension →"), ("by-hand", "A, exactly key ↓ query →")):
        page, _ = lesson(name)
        captions = page.locator(".steps .matrix caption").all_inner_texts()
        assert one in captions
        assert not [text for text in captions if re.search(r"\S(query|key|dimension|token) [↓→]", text)]
        pages.hand_back(page)


# The baseline of a text: an empty box inserted after it is placed on it.
BASELINE = """(text) => { const probe = document.createElement('span');
    probe.style.cssText = 'display: inline-block; width: 0; height: 0'; text.append(probe);
    const at = probe.getBoundingClientRect().bottom; probe.remove(); return at; }"""


@pytest.mark.parametrize("name", OF_SENTENCES)
@pytest.mark.parametrize("width", [1280, 390])
def test_row_labels_share_the_baseline_of_their_numbers(lesson, name, width):
    page, _ = lesson(name, width=width)
    apart = page.evaluate("""() => { const baseline = %s;
        return [...document.querySelectorAll('.matrix tbody tr, .row-table tbody tr, .map tbody tr')].map(row => {
            const label = row.querySelector('th .word'), number = row.querySelector('td .number');
            return label && number && number.checkVisibility() ? Math.abs(baseline(label) - baseline(number)) : 0; }); }""" % BASELINE)
    assert len(apart) > 15 and max(apart) < 0.75


def test_the_bars_are_named(lesson):
    page, _ = lesson("three-words")
    line = page.evaluate("""() => { const bar = document.querySelector('.row-table tbody .bar'), style = getComputedStyle(bar), box = bar.getBoundingClientRect();
        return box.left + parseFloat(style.paddingLeft) + parseFloat(bar.style.getPropertyValue('--even')) * (box.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)); }""")
    name = page.locator(".uniform-name")
    assert name.inner_text() == "uniform\u00a00.33"
    box = name.bounding_box()
    assert min(abs(box["x"] - line), abs(box["x"] + box["width"] - line)) < 3
    zero, end = (page.locator(".bar-scale span").nth(n).bounding_box() for n in (0, 1))
    assert zero["y"] + zero["height"] == end["y"] + end["height"]
    # Not before the weights are shown.
    go(page, "#step=compare")
    assert page.locator(".uniform-name").count() == 0
    assert not page.locator(".row-table tfoot th").is_visible()


@pytest.mark.parametrize("cell", ["queries 0 1 1", "weights 0 1 0", "row 2 scores", "row 0 weights", "mix 1"])
def test_an_expanded_number_moves_no_column(lesson, cell):
    page, _ = lesson("three-words")
    boxes = """cell => { const table = document.querySelector(`[data-cell="${cell}"]`).closest('table');
        return [...table.querySelectorAll('th, td')].filter(c => !c.closest('.expand')).map(c => { const box = c.getBoundingClientRect(); return [box.left, box.width]; }); }"""
    target = page.locator(f'[data-cell="{cell}"]')
    target.scroll_into_view_if_needed()
    before, place = page.evaluate(boxes, cell), target.bounding_box()
    target.click()
    assert page.locator(".expand .work").count() == 1
    assert np.allclose(page.evaluate(boxes, cell), before, atol=0.01)
    # The number itself moves only if its expansion would be out of view.
    now = target.bounding_box()
    assert now["x"] == place["x"] and now["y"] <= place["y"] + 0.5


def test_collapsing_above_keeps_the_number_under_the_pointer(lesson):
    page, _ = lesson("roles")
    page.locator('[data-cell="row 0 scores"]').click()
    page.evaluate("scrollTo(0, 400)")
    target = page.locator('[data-cell="row 4 scores"]')
    before = target.bounding_box()
    target.click()
    assert abs(target.bounding_box()["y"] - before["y"]) <= 1


def test_an_expanded_number_is_scrolled_into_view(lesson):
    page, _ = lesson("three-words")
    target = page.locator('[data-cell="context 0 1 1"]')
    target.evaluate("e => scrollTo(0, scrollY + e.getBoundingClientRect().bottom - innerHeight + 4)")
    target.click()
    box, cell = page.locator(".expand").bounding_box(), target.bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 800 and cell["y"] >= 0
    page.keyboard.press("Escape")
    # A number in view does not scroll the page.
    target.evaluate("e => scrollTo(0, scrollY + e.getBoundingClientRect().bottom - 200)")
    before = page.evaluate("scrollY")
    target.click()
    assert page.evaluate("scrollY") == before
    # An address with a number scrolls to it.
    go(page, "#step=mix")
    page.evaluate("scrollTo(0, 0)")
    go(page, "#step=mix&open=context 0 1 1")
    assert page.locator(".expand").bounding_box()["y"] < 800


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_a_vector_of_16_elements_is_whole(arrays, width):
    given = {"Q": [[1, 0], [0, 1]], "K": [[1, 0], [0, 1]], "V": [[(-1) ** d * (d + 0.1234) for d in range(16)], [d / 7 for d in range(16)]]}
    page, data = arrays(given, width=width)
    numbers = page.locator(".vector .number")
    assert numbers.count() == 16
    frame = page.locator(".mix-figure").bounding_box()
    for one in numbers.all():
        box = one.bounding_box()
        assert box["x"] >= frame["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]


@pytest.mark.parametrize("width", [1280, 800, 640, 390, 320])
def test_no_line_ends_after_an_opening_quote(arrays, width):
    tokens = ["日本語", "[SEP]", "coding", "日本"]
    page, _ = arrays({"tokens": tokens, "Q": [[4, 0], [0, 3], [1, 1], [2, 2]], "K": [[1, 0], [0, 2], [1, 1], [0, 1]], "V": [[1], [2], [3], [4]],
                      "title": "Eins zwei drei vier “[SEP]” fünf “日本語” sechs “日本語” sieben “日本語” acht “日本語”"}, width=width)
    found = page.evaluate("""() => { const hanging = []; let quotes = 0;
        const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
        const box = (node, at) => { const range = document.createRange(); range.setStart(node, at); range.setEnd(node, at + 1); return range.getBoundingClientRect(); };
        const nodes = []; while (walker.nextNode()) nodes.push(walker.currentNode);
        for (const [n, node] of nodes.entries()) for (let at = 0; at < node.data.length; ++at) {
            if (node.data[at] !== '“') continue;
            ++quotes;
            const next = at + 1 < node.data.length ? box(node, at + 1) : box(nodes[n + 1], 0);
            if (next.width > 0 && next.top > box(node, at).bottom - 3) hanging.push(node.data.slice(Math.max(0, at - 8), at + 8));
        }
        return [quotes, hanging]; }""")
    assert found[0] > 5 and found[1] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_painted_head_has_words_along_its_axes(arrays, width):
    generator = np.random.default_rng(5)
    words = [f"word{i}" for i in range(70)]
    page, _ = arrays({"tokens": words, **{name: generator.standard_normal((70, 4)).round(4).tolist() for name in "QKV"}}, "#query=9&step=mix", width=width)
    canvas = page.locator("canvas.painted")
    box = canvas.bounding_box()
    for direction, axis in (("down", "y"), ("across", "x")):
        places = sorted(one.bounding_box()[axis] for one in page.locator(f".axis-name.{direction}").all())
        assert len(places) >= 10 and min(b - a for a, b in zip(places, places[1:])) >= 13
    chosen = page.locator(".axis-name.down.chosen")
    assert chosen.inner_text() == "word9"
    at = chosen.bounding_box()
    assert abs(at["y"] + at["height"] / 2 - (box["y"] + 9.5 * box["height"] / 70)) < 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    canvas.hover(position={"x": 2.5 * box["width"] / 70, "y": 4.5 * box["height"] / 70})
    assert canvas.get_attribute("title") == page.locator(".readout").inner_text()
    assert canvas.get_attribute("title").startswith("word4 → word2: ")


def test_why_scale_draws_the_numbers_of_its_table(lesson):
    page, data = lesson("why-scale")
    [step] = data["steps"]
    rows = page.locator(".scale-figure tbody tr")
    assert rows.count() == len(step["pictures"])
    for index, picture in enumerate(step["pictures"]):
        row = rows.nth(index)
        assert row.locator("th").inner_text() == f"D = {picture['head_size']}"
        for sample, drawn, bars in zip((picture["plain"], picture["scaled"]), row.locator(".histogram").all(), row.locator(".weights").all(), strict=True):
            # The height of a bin is its share of the fullest, the height of a bar its weight.
            heights = drawn.evaluate("svg => [...svg.querySelectorAll('rect')].map(r => [r.x.baseVal.value, r.height.baseVal.value / 39])")
            fullest = max(sample["counts"])
            assert {int(x): pytest.approx(share, abs=0.01) for x, share in heights} == {i: n / fullest for i, n in enumerate(sample["counts"]) if n > 0}
            weights = bars.evaluate("svg => [...svg.querySelectorAll('rect')].map(r => r.height.baseVal.value / 39)")
            assert weights == pytest.approx([max(w, 0.5 / 39) for w in sample["ranked_weights"]], abs=0.01)
            assert f"{sample['ranked_weights'][0]:.2f}" in bars.get_attribute("aria-label")
    assert "77\u00a0% outside" in rows.nth(5).inner_text() and "outside" not in rows.nth(0).inner_text()
    assert page.locator(".scale-figure thead").inner_text().count("√D") == 2


def test_why_scale_expands_its_numbers(lesson):
    page, data = lesson("why-scale")
    assert "Choose one to see how it was computed" in page.locator(".steps .lead").inner_text()
    for column, words in enumerate(["Σ (q·k)² / 2560", "var(q·k) / D = 32.7404 / 32 = 1.0231", "Σ largest p / 256", "Σ largest p′ / 256", "Σ p(1 − p) / 2560", "Σ p′(1 − p′) / 2560"]):
        page.locator(f'[data-cell="statistics 0 2 {column}"]').click()
        assert words in page.locator(".expand .work").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_why_scale_contrasts_with_the_paper(lesson, theme):
    page, _ = lesson("why-scale", color_scheme=theme)
    assert not [place for place in page.evaluate(CONTRAST) if place[0] < 4.5]
