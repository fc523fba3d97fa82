# SPDX-License-Identifier: Apache-2.0
"""What the page looks like, as far as numbers say it: contrast in both themes, room at each width, print, motion, and
tables that a screen reader can read."""

import json
import math

import pytest

from conftest import go

# Every text that can be seen, with the contrast of its colour on what lies behind it (WCAG 2.2, 1.4.3). A canvas turns
# any notation of a colour into red, green, blue.
CONTRAST = """() => {
    const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const rgba = (color) => { context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data]; };
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
@pytest.mark.parametrize("name", ["000", "002", "003", "004"])
def test_text_has_contrast(lesson, name, theme):
    page, _ = lesson(name, color_scheme=theme)
    for address in ("", "#step=compare", "#step=softmax&open=row 0 weights"):
        go(page, address)
        found = page.evaluate(CONTRAST)
        assert len(found) > 100
        assert not [place for place in found if place[0] < 4.5]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_in_the_map_have_contrast_at_every_weight(arrays, theme):
    # Two keys, scores x and 0: the first weight is any share that is wanted.
    for first in (1, 11, 55, 58, 70, 73, 76, 90):
        shares = [(first + i) / 100 for i in range(9)]
        page, _ = arrays({"Q": [[math.log(w / (1 - w))] for w in shares], "K": [[1], [0]], "V": [[1], [0]], "scale": "none"}, color_scheme=theme)
        found = [place for place in page.evaluate(CONTRAST)]
        assert not [place for place in found if place[0] < 4.5]
        page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_stand_out_from_the_paper(lesson, theme):
    """Bars and strips: a contrast of 3 with the paper (WCAG 2.2, 1.4.11)."""
    page, _ = lesson("003", color_scheme=theme)
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
@pytest.mark.parametrize("name", ["000", "001", "002", "003", "004", "why-scale"])
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
    for name in ("000", "003"):
        page, _ = lesson(name)
        box = page.locator(".row-table").bounding_box()
        assert box["y"] + box["height"] <= 800
        note = page.locator(".step-note").bounding_box()
        assert note["x"] > box["x"] + box["width"] and abs(note["y"] - box["y"]) < 40


def test_a_narrow_page_keeps_key_weight_and_bar_and_the_rest_on_tap(lesson):
    page, _ = lesson("001", width=390)
    assert page.locator('[data-cell="row 1 weights"]').is_visible() and page.locator(".row-table .bar").first.is_visible()
    assert not page.locator('[data-cell="row 1 scores"]').is_visible()
    score = page.locator('[data-cell="row 1 scores"] .number').evaluate("e => e.textContent")
    page.locator('[data-cell="row 1 weights"]').click()
    assert score in page.locator(".row-table .unfold dl").inner_text()
    wide, _ = lesson("001")
    wide.locator('[data-cell="row 1 weights"]').click()
    assert not wide.locator(".narrow-only").first.is_visible()


def test_print_has_the_figures_and_no_controls(lesson, tmp_path):
    page, _ = lesson("000", "#step=softmax")
    page.emulate_media(media="print")
    for gone in (".stepper", ".switches", ".legend button", ".keys", "details"):
        assert not page.locator(gone).first.is_visible()
    for kept in (".sentence", ".finding", ".row-table", ".mix", ".map", ".steps .matrix"):
        assert page.locator(kept).first.is_visible()
    assert page.locator('[aria-current="step"]').evaluate("e => e.textContent") == "softmax"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_nothing_moves_where_motion_is_not_wanted(lesson):
    # Counted before a frame can pass.
    moving = """() => { document.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        return document.getAnimations().length; }"""
    for wanted, motion in ((0, "reduce"), (1, "no-preference")):
        page, _ = lesson("000", "#step=softmax", reduced_motion=motion)
        assert (page.evaluate(moving) > 0) == bool(wanted)


def test_tables_can_be_read_without_seeing_them(lesson):
    page, _ = lesson("003")
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


def test_a_number_that_differs_stands_beside_the_documents(lesson):
    page, data = lesson("002")
    step = next(step for step in data["steps"] if step["name"] == "scores")
    differs = step["document"]["differs"]
    assert len(differs) > 3
    for head, row, column in differs:
        cell = page.locator(f'[data-cell="scores {head} {row} {column}"] .document')
        printed = json.loads(json.dumps(step["document"]["numbers"]))[row][column]
        assert cell.inner_text() == f"doc {printed:.8f}".replace("-", "−")
    assert page.locator('.step:has([data-cell^="scores 0"]) .document').count() == len(differs)
    # Quietly, and with the reason.
    assert page.evaluate("getComputedStyle(document.querySelector('.document')).color") == page.evaluate("getComputedStyle(document.querySelector('.note')).color")
    assert "computed from the 8 digits of Q, K and V that the document prints" in page.locator('.step:has([data-cell^="scores 0"])').inner_text()
