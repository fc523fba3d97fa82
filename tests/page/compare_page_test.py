# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison (tests/support/sentence_model.py): every number of its table, chart and heads against --json, each
control both ways, and the same figure in the page of a sentence."""

import json
import re

import pytest

from page_look_test import CONTRAST
from page_numbers_test import styled
from program import environment, succeed
from sentence_model import make_folder

A = "he sat on the bank of the river"
B = "she put her money in the bank"
C = "they walked along the river bank at dawn"
THREE = {"digits": 3, "scientific": False}
TWO = {"digits": 2, "scientific": False}


@pytest.fixture(scope="session", name="model")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(name="comparison")
def fixture_comparison(pages, model):
    def open_comparison(*arguments, address="", **options):
        path, data = pages.make("compare", *(arguments or ("bank", A, B, C, "--hide", "river")), "--model", model)
        return pages.open(path, address, **options), data

    return open_comparison


def figures(x):
    return "–" if x == "nan" else styled(x, THREE)


def control_of(numbers, pair):
    """The first word that all pairs with A share, else the pair's own first."""
    with_first = [one for one in numbers["pairs"] if one["sentences"][0] == "A"]
    shared = [c["word"] for c in numbers["pairs"][0]["controls"]
              if all(c["word"] in [other["word"] for other in one["controls"]] for one in with_first)]
    mine = [c for c in pair["controls"] if c["word"] in shared[:1]]
    return (mine or pair["controls"] or [None])[0]


def check_table(page, numbers, chosen):
    shown = 0
    for i, pair in enumerate(numbers["pairs"]):
        if pair["sentences"][0] != "A" and i != chosen:
            assert page.locator(f'.cosines [data-pair="{i}"]').count() == 0
            continue
        assert page.locator(f'.cosines [data-pair="{i}"] .number').all_inner_texts() == [figures(x) for x in pair["cosine"]]
        control = control_of(numbers, pair)
        if control is not None:
            assert page.locator(f'.cosines [data-control="{i}"] .word').inner_text() == control["word"]
            assert page.locator(f'.cosines [data-control="{i}"] .number').all_inner_texts() == [figures(x) for x in control["cosine"]]
        shown += 1
    assert page.locator(".cosines [data-floor] .number").all_inner_texts() == [figures(x) for x in numbers["floor"]]
    return shown


def levels(page):
    """The cosine at a height of the chart, from its lines at 0 and 1, which the ticks name."""
    at = page.evaluate("""() => { const ticks = [...document.querySelectorAll('.chart .tick[text-anchor=end]')].map(t => t.textContent);
        const lines = [...document.querySelectorAll('.chart .level')].map(l => Number(l.getAttribute('y1')));
        return Object.fromEntries(ticks.map((t, i) => [t, lines[i]])); }""")
    return lambda y: (y - at["0"]) / (at["1"] - at["0"])


def drawn(page, selector):
    level = levels(page)
    return [level(float(y)) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", page.locator(selector).get_attribute("d"))]


def check_chart(page, numbers, chosen):
    pair = numbers["pairs"][chosen]
    assert drawn(page, ".chart .line.chosen:not(.old)") == pytest.approx(pair["cosine"], abs=5e-4)
    assert drawn(page, ".chart .line.control") == pytest.approx(control_of(numbers, pair)["cosine"], abs=5e-4)
    assert drawn(page, ".chart .floor")[:-2] == pytest.approx(numbers["floor"], abs=5e-4)
    labels = page.locator(".chart .label").all_text_contents()
    assert f"{', '.join(pair['sentences'])}  {figures(pair['cosine'][-1])}" in labels
    assert f"floor  {figures(numbers['floor'][-1])}" in labels


def check_heads(page, pair):
    for layer, shares in enumerate(pair["share"]):
        row = page.locator(f'.parting [data-layer="{layer}"]')
        assert row.locator(".number").inner_text() == styled(pair["difference"][layer], TWO)
        order = sorted(range(len(shares)), key=lambda h: (-abs(shares[h]), h))[:2]
        assert row.locator(".largest").all_inner_texts() == [f"H{h} {100 * shares[h]:.1f} %" for h in order]
        assert row.locator("rect.above").count() == sum(x > 0 for x in shares)
        assert row.locator("rect.below").count() == sum(x < 0 for x in shares)


def test_every_pair_shows_the_numbers_of_json_with_and_without_hiding(comparison):
    page, data = comparison()
    for without, numbers in ((False, data), (True, data["hidden"]), (False, data)):
        if (page.locator('[data-focus="hide"]').get_attribute("aria-pressed") == "true") != without:
            page.locator('[data-focus="hide"]').click()
        for i, pair in enumerate(numbers["pairs"]):
            page.locator(f'[data-focus="pair {i}"]').click()
            assert check_table(page, numbers, i) == (2 if pair["sentences"][0] == "A" else 3)
            check_chart(page, numbers, i)
            check_heads(page, pair)
            assert page.locator(".chart .line.old").count() == ((3 if i == 2 else 2) if without else 0)
            if without:
                assert drawn(page, ".chart .line.old.chosen") == pytest.approx(data["pairs"][i]["cosine"], abs=5e-4)


def test_the_findings_are_those_of_the_terminal(comparison, model):
    page, data = comparison()
    text = " ".join(succeed("compare", "bank", A, B, C, "--hide", "river", "--model", model, env=environment(LC_ALL="C.UTF-8")).decode().split())
    assert page.locator(".citation").inner_text() == "“bank” in 3 sentences"
    assert [page.locator("h1").inner_text(), page.locator(".lead").inner_text(),
            *page.locator(".comparison .caption").all_inner_texts()] == data["findings"]
    assert all(" ".join(finding.split()) in text for finding in data["findings"])


def test_the_word_is_aligned(comparison):
    page, _ = comparison()
    rows = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in page.locator(".aligned tr").all()]
    assert rows == [["A", "he sat on the", "bank", "of the river"], ["B", "she put her money in the", "bank", ""],
                    ["C", "they walked along the river", "bank", "at dawn"]]
    middles = [cell.bounding_box()["x"] for cell in page.locator(".aligned .middle").all()]
    assert max(middles) - min(middles) < 0.5


def test_words_of_a_sentence_stay_in_order_on_a_phone(comparison):
    """Each begins on the line of the word before it, to its right, or on a line further down."""
    page, _ = comparison(width=390)
    lines = page.locator(".aligned tr").evaluate_all("""rows => rows.map(row => {
        const boxes = [], walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) for (const word of walker.currentNode.data.matchAll(/\\S+/g)) {
            const range = document.createRange();
            range.setStart(walker.currentNode, word.index);
            range.setEnd(walker.currentNode, word.index + word[0].length);
            const box = range.getBoundingClientRect();
            boxes.push([word[0], box.left, box.bottom]);
        }
        return boxes; })""")
    assert [" ".join(word for word, _, _ in words[1:]) for words in lines] == [A, B, C]
    for words in lines:
        for (_, left, bottom), (word, next_left, next_bottom) in zip(words[1:], words[2:]):
            assert next_bottom > bottom + 10 or (abs(next_bottom - bottom) < 6 and next_left > left), word


def test_keys_and_address(comparison):
    page, data = comparison()
    page.locator('[data-focus="pair 0"]').focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator('[data-focus="pair 1"]').get_attribute("aria-pressed") == "true"
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator('[data-focus="hide"]').get_attribute("aria-pressed") == "true"
    assert page.url.endswith("#pair=1&hide=1")
    again, _ = comparison(address="#pair=1&hide=1")
    check_table(again, data["hidden"], 1)
    check_chart(again, data["hidden"], 1)
    wrong, _ = comparison(address="#pair=99&hide=maybe")
    check_table(wrong, data, 0)
    wrong.keyboard.press("ArrowLeft")
    check_table(wrong, data, 0)


def test_many_sentences_have_a_list_of_pairs(comparison):
    page, data = comparison("bank", A, B, C, "the bank", "no bank of the river")
    select = page.locator(".comparison-chooser select")
    assert select.locator("option").all_inner_texts() == [" and ".join(pair["sentences"]) for pair in data["pairs"]]
    select.select_option(index=9)
    check_table(page, data, 9)
    check_heads(page, data["pairs"][9])
    assert page.locator('[data-focus="hide"]').count() == 0
    select.focus()
    page.keyboard.press("ArrowUp")
    check_table(page, data, 8)


def test_lines_move_unless_reduced_motion_is_preferred(comparison):
    for motion, count in (("no-preference", 3), ("reduce", 0)):
        page, _ = comparison(reduced_motion=motion)
        # Counted before a frame can pass.
        assert page.evaluate("""() => { document.querySelector('[data-focus="hide"]').click();
            return document.getAnimations().length; }""") == count


def test_the_page_of_a_sentence_contains_the_comparison(pages, model, tmp_path):
    data = json.loads(succeed("compare", "bank", A, B, C, "--hide", "river", "--model", model, "--json"))
    told = json.loads(succeed("explain", A, "--query", "bank", "--hide", "river", "--model", model, "--json"))
    path = tmp_path / "page.html"
    screen = succeed("explain", A, "--query", "bank", "--hide", "river", "--compare-with", B, "--compare-with", C, "--model", model, "--html", path).decode()
    assert screen.splitlines()[-1].startswith(f"  page   {path.as_uri()}   step by step, all 12 heads")
    page = pages.open(path, "#step=mix")
    check_table(page, data, 0)
    page.locator('[data-focus="hide"]').click()
    check_table(page, data["hidden"], 0)
    check_chart(page, data["hidden"], 0)
    assert page.locator('[data-focus="pair 0"]').get_attribute("aria-pressed") == "true"
    page.locator('[data-focus="pair 2"]').click()
    check_chart(page, data["hidden"], 2)
    # The weights before hiding are shown next to those after it.
    shown = page.evaluate("[...document.querySelectorAll('[data-cell$=\" before\"] .number')].map(n => n.firstChild.data)")
    assert shown == [styled(key["weight"], TWO) for key in told["before"]["words"]]
    kept = ", ".join(styled(x, THREE) for x in told["cosine_with_before"])
    assert page.locator(".mix-figure ~ div .caption").inner_text().endswith(f"after each layer: {kept}.")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800, 390, 320])
def test_a_comparison_has_contrast_and_fits_its_width(comparison, theme, width):
    page, _ = comparison(color_scheme=theme, width=width, address="#hide=1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = page.evaluate(CONTRAST)
    assert len(found) > 60 and not [place for place in found if place[0] < 4.5]
    boxes = sorted((box["y"], box["height"]) for box in (one.bounding_box() for one in page.locator(".chart .label").all()))
    assert all(y + height <= below + 3 for (y, height), (below, _) in zip(boxes, boxes[1:]))
    right = page.locator(".chart").bounding_box()
    assert all(one.bounding_box()["x"] + one.bounding_box()["width"] <= right["x"] + right["width"] + 1 for one in page.locator(".chart .label").all())


def test_untrusted_sentences_are_shown_as_text(comparison):
    page, data = comparison("bank", "bank </script><img src=x onerror=alert(1)> \u202e= 1 <!--", "the bank \x1b]0;x\x07 \\input{x} </script>")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    for sign in "\x1b\x07\u202e":
        assert sign not in page.evaluate("document.body.innerText")
    check_table(page, data, 0)


def test_unknown_and_split_words_are_marked_and_explained(comparison):
    page, data = comparison("🍕", "the 🍕 embeddings", "a 🍕 bank")
    assert page.locator(".aligned .middle").all_inner_texts() == ["🍕†", "🍕†"]
    assert page.locator(".aligned .after").all_inner_texts() == ["embeddings‡", "bank"]
    assert page.locator(".comparison .caption").first.inner_text() == \
        "† not in the vocabulary: the model sees [UNK], as for any such word. ‡ split into pieces: its vector is their mean."
    assert page.locator(".comparison .warning").all_inner_texts() == [f"Note: {one['name']}: {one['warning']}" for one in data["sentences"] if "warning" in one] != []
