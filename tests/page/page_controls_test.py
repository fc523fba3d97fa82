# SPDX-License-Identifier: Apache-2.0
"""Every control of the page, by mouse and by keyboard, on and off; the address that stores the choices."""

import json
import re

import numpy as np
import pytest

from conftest import go
from lessons import OF_SENTENCES
from program import succeed

STAGES = ["project", "compare", "scale", "softmax", "mix"]


def current(page):
    return page.locator('[aria-current="step"]').inner_text()


def visible(page, selector):
    return page.locator(selector).first.evaluate("e => getComputedStyle(e).visibility") == "visible"


def test_the_steps_go_forward_and_back(lesson):
    page, _ = lesson("from-seed")
    assert current(page) == "mix"
    for want in ("softmax", "scale", "compare", "project"):
        page.locator('[data-focus="back"]').click()
        assert current(page) == want
    assert not page.locator('[data-focus="back"]').is_enabled()
    for want in ("compare", "scale", "softmax", "mix", "project"):
        page.locator('[data-focus="next"]').click()
        assert current(page) == want
    for i, want in enumerate(STAGES):
        page.locator(f'[data-focus="mark {i}"]').click()
        assert current(page) == want


def test_the_arrow_keys_change_steps_without_scrolling(lesson):
    page, _ = lesson("from-seed")
    where = page.locator('[data-cell="row 1 weights"]').bounding_box()
    assert visible(page, '[data-cell="row 1 weights"] .number')
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert current(page) == "scale"
    assert not visible(page, '[data-cell="row 1 weights"] .number')
    assert page.locator('[data-cell="row 1 weights"]').bounding_box() == where
    page.keyboard.press("ArrowRight")
    assert current(page) == "softmax"
    assert visible(page, '[data-cell="row 1 weights"] .number')
    assert page.locator('[data-cell="row 1 weights"]').bounding_box() == where


def test_the_note_has_the_equation_of_the_step(lesson):
    page, data = lesson("from-seed", "#step=compare")
    equations = {step["name"]: step["equation"] for step in data["steps"]}
    for stage, name in (("compare", "scores"), ("softmax", "weights"), ("mix", "context")):
        page.locator(f'[data-focus="mark {STAGES.index(stage)}"]').click()
        assert page.locator(".step-note .equation").inner_text() == equations[name]
        assert page.locator(".step-note .equation .active").count() == 1


def test_any_word_becomes_the_query(lesson):
    page, _ = lesson("three-words")
    for i, word in enumerate(["I", "love", "coding"]):
        page.locator(f'[data-focus="word {i}"]').click()
        assert page.locator(".row-table .query-name").inner_text() == f"query {word}"
        assert page.locator(".finding").inner_text().startswith(f'“{word}” attends')
        assert page.locator(".map td.framed").count() == 3
        assert page.locator(".map tr.chosen th").inner_text() == word
    page.locator('[data-focus="word 0"]').click()
    assert page.locator(".row-table .query-name").inner_text() == "query I"


def test_a_number_expands_and_collapses(lesson):
    page, _ = lesson("roles")
    for cell in ("row 2 scores", "row 0 scaled", "row 3 exponential", "row 1 weights", "mix 1", "queries 0 1 1", "weights 0 1 4"):
        target = page.locator(f'[data-cell="{cell}"]')
        assert target.get_attribute("aria-expanded") == "false"
        target.click()
        assert target.get_attribute("aria-expanded") == "true"
        assert page.locator(".expand").count() == 1
        assert page.locator(".expand").inner_text() != ""
        target.click()
        assert target.get_attribute("aria-expanded") == "false"
        assert page.locator(".expand").count() == 0
    # Below its line, not elsewhere.
    page.locator('[data-cell="row 2 scores"]').click()
    line = page.locator('tr:has([data-cell="row 2 scores"]) + tr')
    assert "expand" in line.get_attribute("class")
    page.keyboard.press("Escape")
    assert page.locator(".expand").count() == 0


def test_arrow_keys_move_through_a_table_in_focus(lesson):
    page, _ = lesson("three-words")
    page.locator('[data-cell="row 0 scores"]').focus()
    step = current(page)

    def focus():
        return page.evaluate("document.activeElement.dataset.cell")

    for key, want in (("ArrowDown", "row 1 scores"), ("ArrowRight", "row 1 scaled"), ("End", "row 1 weights"), ("ArrowDown", "row 2 weights"),
                      ("ArrowDown", "row 2 weights"), ("ArrowUp", "row 1 weights"), ("Home", "row 1 scores"), ("ArrowLeft", "row 1 scores")):
        page.keyboard.press(key)
        assert focus() == want
    assert current(page) == step
    page.keyboard.press("Enter")
    assert page.locator(".row-table .expand").count() == 1
    assert focus() == "row 1 scores"
    page.keyboard.press("Space")
    assert page.locator(".row-table .expand").count() == 0


def test_tab_reaches_each_table_once(lesson):
    page, _ = lesson("three-words")
    for table in page.locator('table[role="grid"]').all():
        assert table.locator('[data-cell][tabindex="0"]').count() <= 1
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement?.dataset?.focus ?? ''"))
    assert {"word 0", "mark 0", "back", "row 0 scores", "mix 0", "map 0 0", "scale", "embeddings 0 0 0", "weights 0 0 0"} <= reached


def test_the_map_chooses_a_query_and_its_scale(lesson):
    page, _ = lesson("three-words")
    page.locator('[data-cell="map 2 0"]').click()
    assert page.locator(".row-table .query-name").inner_text() == "query coding"
    legend = page.locator(".legend")
    assert "1" in legend.inner_text().split()
    cell = page.locator('[data-cell="map 2 2"]')
    faint = cell.evaluate("e => getComputedStyle(e).backgroundColor")
    page.locator('[data-focus="scale"]').click()
    assert "0.87887824" in legend.inner_text()
    assert cell.evaluate("e => getComputedStyle(e).backgroundColor") != faint
    page.locator('[data-focus="scale"]').click()
    assert cell.evaluate("e => getComputedStyle(e).backgroundColor") == faint


def test_hidden_cells_are_hatched_and_labeled(lesson):
    page, _ = lesson("from-seed")
    hidden = page.locator('[data-cell="map 0 2"]')
    assert hidden.inner_text() == "hidden"
    assert "repeating-linear-gradient" in hidden.evaluate("e => getComputedStyle(e).backgroundImage")
    seen = page.locator('[data-cell="map 2 0"]')
    assert seen.inner_text() != "hidden"
    assert "repeating" not in seen.evaluate("e => getComputedStyle(e).backgroundImage")


def test_covered_results_show_again(lesson):
    page, _ = lesson("three-words", "#step=softmax")
    for press in (lambda: page.keyboard.press("h"), lambda: page.locator('[data-focus="cover"]').click()):
        press()
        assert not visible(page, '[data-cell="row 0 weights"] .number')
        assert visible(page, '[data-cell="row 0 scores"] .number')
        assert not visible(page, ".finding span")
        press()
        assert visible(page, '[data-cell="row 0 weights"] .number')
        assert visible(page, ".finding span")


def test_projector_size_and_themes_switch_on_and_off(lesson):
    page, _ = lesson("three-words")
    size = page.evaluate("getComputedStyle(document.body).fontSize")
    for press in (lambda: page.keyboard.press("p"), lambda: page.locator('[data-focus="projector"]').click()):
        press()
        assert page.evaluate("getComputedStyle(document.body).fontSize") == "22px"
        press()
        assert page.evaluate("getComputedStyle(document.body).fontSize") == size
    paper = {}
    for theme in ("light", "dark"):
        before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.locator(f'[data-focus="{theme}"]').click()
        paper[theme] = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.locator(f'[data-focus="{theme}"]').click()
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == before
    assert paper["light"] != paper["dark"]


def test_attentions_and_heads_can_be_chosen(lesson):
    page, _ = lesson("by-hand")
    page.locator('[data-focus="attention weights"]').click()
    first = page.locator(".finding").inner_text()
    page.locator('[data-focus="attention weights-of-two-heads"]').click()
    assert page.locator('[data-focus^="head "]').count() == 2
    told = []
    for head in ("0", "1", "0"):
        page.locator(f'[data-focus="head {head}"]').click()
        told.append(page.locator(".finding").inner_text())
        assert told[-1].startswith(f"In head {head}, ")
    assert told[0] == told[2] != told[1]
    page.locator('[data-focus="attention weights"]').click()
    assert page.locator(".finding").inner_text() == first


def test_a_lesson_opens_with_the_documents_attention(lesson, pages):
    for name in OF_SENTENCES:
        want = "hand-weights" if name == "by-hand" else "weights"
        page, data = lesson(name)
        pressed = page.locator('[data-focus^="attention "][aria-pressed="true"]')
        names = [step["name"] for step in data["steps"]]
        assert want in names
        assert pressed.count() == 0 or pressed.get_attribute("data-focus") == f"attention {want}"
        pages.hand_back(page)


def test_the_json_matches_the_command(lesson):
    page, data = lesson("three-words")
    assert page.locator("pre").is_hidden()
    page.locator('summary[data-focus="json"]').click()
    page.locator("pre").wait_for()
    assert json.loads(page.locator("pre").inner_text()) == data
    page.locator('summary[data-focus="json"]').click()
    assert page.locator("pre").is_hidden()


def test_the_address_stores_the_choices(lesson, pages):
    page, _ = lesson("by-hand")
    page.locator('[data-focus="attention weights-of-two-heads"]').click()
    page.locator('[data-focus="head 1"]').click()
    page.locator('[data-focus="word 2"]').click()
    page.locator(f'[data-focus="mark {STAGES.index("softmax")}"]').click()
    page.locator('[data-cell="row 3 weights-of-two-heads"]').click()
    told = page.locator(".row-section").inner_text()
    again = pages.open(pages.make("lesson", "by-hand")[0], "#" + page.url.split("#")[1])
    assert again.locator(".row-section").inner_text() == told
    assert current(again) == "softmax"
    assert again.locator('[data-focus="head 1"]').get_attribute("aria-pressed") == "true"
    assert again.locator(".row-table .expand").count() == 1
    go(again, "#attention=weights&query=0&step=mix")
    assert current(again) == "mix"
    assert again.locator(".row-table .expand").count() == 0


@pytest.mark.parametrize("address", ["#query=99", "#head=7", "#step=nothing", "#attention=__proto__", "#query=-1&head=x", "#open=%00%22%3E%3Cscript%3E",
                                     "#%E0%A4%A", "#open=row 0 constructor", "#query=1e9&step=toString"])
def test_an_invalid_address_is_ignored(lesson, address):
    page, _ = lesson("three-words", address)
    assert page.locator('[data-focus="word 1"]').get_attribute("aria-pressed") == "true"
    assert current(page) == "project"


def test_many_keys_are_shortened_and_a_large_head_is_painted(arrays):
    generator = np.random.default_rng(13)
    given = {"Q": generator.standard_normal((70, 4)).tolist(), "K": generator.standard_normal((90, 4)).tolist(), "V": generator.standard_normal((90, 3)).tolist()}
    page, data = arrays(given)
    lines = page.locator(".row-table tbody tr").count()
    assert lines == 39
    assert page.locator(".row-table tbody tr.others th").inner_text() == "52 others"
    canvas = page.locator("canvas.painted")
    assert canvas.count() == 1
    canvas.focus()
    before = page.locator(".row-table .query-name").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(".row-table .query-name").inner_text() != before
    page.keyboard.press("ArrowUp")
    assert page.locator(".row-table .query-name").inner_text() == before
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 89.5 / 90, "y": box["height"] * 69.5 / 70})
    weight = data["steps"][-2]["result"][69][89]
    readout = page.locator(".readout").inner_text()
    assert readout.startswith("69 → 89: ") and abs(float(readout.split(": ")[1]) - weight) < 1e-4
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] * 69.5 / 70)
    assert page.locator(".row-table .query-name").inner_text() == "query 69"


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_a_page_opens_at_its_first_step_with_its_finding(lesson, width):
    page, _ = lesson("three-words", "", width=width)
    assert current(page) == "project"
    assert page.locator(".marks button").all_inner_texts() == STAGES
    for shown in ("h1", ".finding", ".product .matrix", ".mix"):
        assert page.locator(shown).first.is_visible()
    assert visible(page, ".finding span") and page.locator(".row-table").count() == 0
    # If query and key are given, there is no projection.
    page, _ = lesson("one-function", "", width=width)
    assert current(page) == "compare"
    assert page.locator(".marks button").all_inner_texts() == STAGES[1:]
    assert visible(page, ".finding span")
    page.keyboard.press("ArrowLeft")
    assert current(page) == "compare"


def test_the_first_step_multiplies_the_matrices(lesson, pages):
    for name, made, factors in (("three-words", "queries keys values", "X W_query Q X W_key K X W_value V"), ("from-seed", "queries keys values", "T W_Q Q T W_K K T W_V V"),
                                ("by-hand", "queries keys values", "W_Q X Q W_K X K W_V X V")):
        page, data = lesson(name, "")
        steps = {step["name"]: step for step in data["steps"]}
        captions = page.locator(".products-figure caption").all_inner_texts()
        assert [text.split(" ")[0] for text in captions] == factors.split()
        cells = {cell.get_attribute("data-cell") for cell in page.locator(".products-figure [data-cell]").all()}
        query = data.get("query", int(page.locator('[data-focus^="word "][aria-pressed="true"]').get_attribute("data-focus").split()[1]))
        want = set()
        for step in made.split():
            rows, columns = steps[step]["shape"]
            of_query = (lambda r, c: c == query) if name == "by-hand" else (lambda r, c: r == query)
            want |= {f"project {step} 0 {r} {c}" for r in range(rows) for c in range(columns) if step != "queries" or of_query(r, c)}
        assert cells == want
        one = sorted(cells)[0]
        page.locator(f'[data-cell="{one}"]').click()
        assert " products: " in page.locator(".products-figure .expand .sum").inner_text() and page.locator(".expand").count() == 1
        pages.hand_back(page)


def test_steps_show_both_factors_of_a_product(lesson):
    page, _ = lesson("three-words")
    captions = page.locator('.step:has([data-cell="queries 0 0 0"]) caption').all_inner_texts()
    assert captions == ["X token ↓", "W_query", "Q query ↓ dimension →"]
    shown = [page.locator('.step:has([data-cell="queries 0 0 0"]) table').nth(n).locator("td .number").all_inner_texts() for n in range(3)]
    x, w, q = (np.array(numbers, int).reshape(3, 3) for numbers in shown)
    assert (x @ w == q).all()


# All text, labels and titles of the page, except the inputs of the step.
READABLE = """() => { const main = document.querySelector('main');
    const texts = []; const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) { const parent = walker.currentNode.parentElement;
        if (parent.checkVisibility({ visibilityProperty: true })) texts.push(walker.currentNode.data); }
    for (const element of main.querySelectorAll('*')) for (const name of ['title', 'aria-label', 'alt'])
        if (element.checkVisibility({ visibilityProperty: true })) texts.push(element.getAttribute(name) ?? '');
    return document.title + ' ' + texts.join(' '); }"""


@pytest.mark.parametrize("name", ["three-words", "roles", "by-hand"])
@pytest.mark.parametrize("step", STAGES)
def test_predicting_hides_the_answer_everywhere(lesson, name, step):
    page, data = lesson(name, f"#step={step}")
    whole = page.evaluate(READABLE)
    finding = page.locator(".finding").inner_text()
    page.keyboard.press("h")
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        read = page.evaluate(READABLE)
        # The last step is computed from the weights, which the finding states.
        assert (finding not in read or step == "mix") and data["title"] not in read
        assert "Predict, then look" in read
        # No later weight or result: only the values remain of the figures below, at the last step.
        assert not page.locator(".map, .errata, details").first.is_visible()
        assert page.locator(".mix").count() == (step == "mix")
        for cell in page.locator('.row-table [data-cell$=" weights"] .number, .vector .number').all():
            assert not cell.is_visible() or step == "mix" and cell.evaluate("e => e.closest('.vector') === null")
        left = page.locator(".step h3 bdi").all_inner_texts()
        assert "context vectors" not in left and ("attention weights" not in left or step == "mix")
    page.emulate_media(media="screen")
    page.keyboard.press("h")
    assert page.evaluate(READABLE) == whole


def test_predicting_keeps_the_inputs_of_the_step(lesson):
    page, _ = lesson("three-words", "#step=softmax")
    page.keyboard.press("h")
    assert visible(page, '[data-cell="row 0 scaled"] .number') and not visible(page, '[data-cell="row 0 weights"] .number')
    assert page.locator(".step").count() == 5
    page.keyboard.press("ArrowRight")
    assert visible(page, '[data-cell="row 0 weights"] .number') and not visible(page, ".vector .number")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert current(page) == "compare" and page.locator(".step").count() == 3
    page.locator('[data-focus="uncover"]').click()
    assert visible(page, '[data-cell="row 0 scores"] .number') and page.locator(".step").count() == 9


@pytest.mark.parametrize("name", OF_SENTENCES)
def test_the_title_of_an_edited_lesson_stays_correct(arrays, name):
    """A title names the computation, without words, numbers or results that an edit of the exported lesson can change."""
    given = json.loads(succeed("lesson", name, "--export"))
    assert not re.search(r"\d|[Tt]hree|whole|“", given["title"])
    assert not set(given.get("tokens", [])) & set(re.findall(r"\w+", given["title"]))
    if name != "three-words":
        return
    page, data = arrays({**given, "scale": -3, "tokens": ["tea", "cup", "pot"], "query": "cup"})
    assert page.locator(".finding").inner_text().startswith("“cup” attends most to “cup”: ")
    shown = page.locator("h1").inner_text() + page.title()
    assert given["title"] in shown and not [word for word in ("love", "coding", "hears") if word in shown]
