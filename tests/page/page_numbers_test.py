# SPDX-License-Identifier: Apache-2.0
"""Every number on the page equals, digit for digit, the --json and terminal output of the same command; and the page's
rounding (web/numbers.js) matches decimals computed exactly."""

import decimal
import json
import pathlib
import random
import re

import numpy as np
import pytest

from lessons import LESSONS, OF_SENTENCES
from program import printed_number, succeed

WEB = pathlib.Path(__file__).resolve().parent.parent.parent / "web"


# ---- the reference: decimals of the exact value of a double, ties to even


def fixed(x, digits):
    unit = decimal.Decimal(1).scaleb(-digits)
    return format(decimal.Decimal(x).quantize(unit, rounding=decimal.ROUND_HALF_EVEN, context=decimal.Context(prec=400)), "f")


def styled(x, style):
    digits = style["digits"]
    x = float(x)
    if x != x:
        return "nan"
    if x in (float("inf"), float("-inf")):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    if style["scientific"]:
        return f"{x:.{digits}e}".replace("-", "−")
    text = fixed(x, digits)
    if not re.search("[1-9]", text):
        text = ("<" if x > 0 else ">") + text[:-1] + "1"
    return text.replace("-", "−")


def number(x, dtype):
    value = float(x)
    return float(np.float32(value)) if dtype == "f32" else value


def extra_of(page):
    return page.evaluate("JSON.parse(document.getElementById('page').textContent)")


def result(page_extra, data, index):
    """A step's result as a list of (cell, number), the cell [head, row, column] of the whole matrix."""
    step = data["steps"][index]
    more = page_extra["steps"][index]
    heads = step["result"] if len(step["shape"]) == 3 else [step["result"]]
    exact = iter(page_extra["matrices"][more["exact_result"]]["numbers"]) if "exact_result" in more else None
    rows = step.get("kept_rows", range(10**9))
    columns = step.get("kept_columns", range(10**9))
    for h, matrix in enumerate(heads):
        for r, line in zip(rows, matrix):
            for c, x in zip(columns, line):
                yield [h, r, c], (float(next(exact)) if exact else number(x, data["dtype"]))


CELLS = """() => Object.fromEntries([...document.querySelectorAll('[data-cell]')].map(cell => {
    const number = cell.querySelector('.number, .hidden-word');
    return [cell.dataset.cell, number === null ? null : [...number.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')];
}))"""


@pytest.mark.parametrize("name", LESSONS)
def test_steps_show_the_numbers_of_json(lesson, name):
    page, data = lesson(name)
    extra = extra_of(page)
    shown = page.evaluate(CELLS)
    compared = 0
    for index, step in enumerate(data["steps"]):
        hidden = step.get("hidden", [])
        for (h, r, c), x in result(extra, data, index):
            want = "hidden" if [h, r, c] in hidden else styled(x, extra["steps"][index]["style"])
            assert shown[f"{step['name']} {h} {r} {c}"] == want, (step["name"], h, r, c)
            compared += 1
    assert compared == sum(np.prod(step["shape"]) for step in data["steps"])


@pytest.mark.parametrize("name", LESSONS)
def test_steps_show_the_numbers_of_the_terminal(lesson, name):
    page, _ = lesson(name)
    shown = {text for cell, text in page.evaluate(CELLS).items() if not cell.startswith(("row ", "mix ", "map "))}
    printed = set(re.split(r"[\s,;:]+", succeed("lesson", name, "--full", env=None).decode()))
    assert len(shown) > 10
    assert not {text for text in shown if text.replace("∞", "inf").replace("−", "-") not in printed}


# The query and the cells of each word: in one task of the page, which draws each but paints none.
WORDS = """() => [...document.querySelectorAll('[data-focus^="word "]')].map(b => b.dataset.focus).map(focus => {
    document.querySelector(`[data-focus="${focus}"]`).click();
    return [Number(focus.split(' ')[1]), (%s)()]; })""" % CELLS


def every_row(page):
    """For each attention of the page, head and query: chooses it and gives the name, head, query, cells."""
    names = page.evaluate("[...document.querySelectorAll('[data-focus^=\"attention \"]')].map(b => b.dataset.focus.slice(10))")
    for attention in names or [None]:
        if attention is not None:
            page.locator(f'[data-focus="attention {attention}"]').click()
        heads = page.locator('[data-focus^="head "]').count() or 1
        for head in range(heads):
            if heads > 1:
                page.locator(f'[data-focus="head {head}"]').click()
            for query, cells in page.evaluate(WORDS):
                yield attention, head, query, cells


def check_rows(page, data):
    """The figures' numbers of every row: those that are also a step's result equal it."""
    extra = extra_of(page)
    by_name = {step["name"]: index for index, step in enumerate(data["steps"])}
    columns_first = extra["layout"] == "columns"
    numbers = {name: {tuple(cell): x for cell, x in result(extra, data, index)} for name, index in by_name.items()}
    rows = 0
    compared = 0
    for _, head, query, cells in every_row(page):
        rows += 1
        sums = {}
        for cell, text in cells.items():
            match = re.fullmatch(r"row (\d+) (.+)", cell)
            if not match or text == "hidden":
                continue
            key, name = int(match[1]), match[2]
            if name not in by_name:
                sums.setdefault(name, []).append((key, text))
                continue
            place = (head, key, query) if columns_first else (head, query, key)
            assert text == styled(numbers[name][place], extra["steps"][by_name[name]]["style"]), (cell, query)
            compared += 1
        for _, text in sums.get("exponential", []):
            assert 0 <= float(text.replace("<", "")) <= 1
    return rows, compared


@pytest.mark.parametrize("name", OF_SENTENCES)
def test_rows_show_the_numbers_of_json(lesson, name):
    page, data = lesson(name)
    rows, compared = check_rows(page, data)
    assert rows >= 3 and compared >= 18


def random_arrays(seed, queries, keys, depth, width, heads=1, **settings):
    generator = np.random.default_rng(seed)

    def draw(*shape):
        return generator.standard_normal((heads, *shape) if heads > 1 else shape).round(6).tolist()

    return {"tokens": [f"t{i}" for i in range(queries)], "Q": draw(queries, depth), "K": draw(keys, depth), "V": draw(keys, width),
            **({"key_tokens": [f"k{j}" for j in range(keys)]} if keys != queries else {}), **settings}


@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"dtype": "f32"}, {"scale": "none", "dtype": "f32", "causal": "bottom_right"}])
@pytest.mark.parametrize("shape", [(5, 5, 4, 3), (7, 11, 16, 20), (3, 30, 8, 2)])
def test_arrays_show_the_numbers_of_json(arrays, shape, settings):
    page, data = arrays(random_arrays(7, *shape, **settings))
    rows, compared = check_rows(page, data)
    assert rows == shape[0] and compared > shape[0]


def test_heads_show_the_numbers_of_json(arrays):
    page, data = arrays(random_arrays(8, 4, 6, 8, 4, heads=3))
    rows, _ = check_rows(page, data)
    assert rows == 12


def test_scores_and_exponentials_of_a_row(arrays):
    given = random_arrays(9, 4, 6, 5, 3)
    page, data = arrays(given, "#query=2&step=mix")
    q, k = np.array(given["Q"]), np.array(given["K"])
    scores = q[2] @ k.T
    shown = page.evaluate(CELLS)
    scaled = scores / np.sqrt(5)
    exponentials = np.exp(scaled - scaled.max())
    four = {"digits": 4, "scientific": False}
    for j in range(6):
        assert shown[f"row {j} scores"] == styled(scores[j], four)
        assert shown[f"row {j} scaled"] == styled(scaled[j], four)
        assert shown[f"row {j} exponential"] == styled(exponentials[j], four)
        assert shown[f"row {j} weights"] == styled(exponentials[j] / exponentials.sum(), four)
    total = page.locator(".row-table tfoot .weight .number").first.inner_text()
    assert total == "1.0000"


@pytest.mark.parametrize("name", OF_SENTENCES)
def test_the_finding_matches_json(lesson, name):
    page, data = lesson(name)
    findings = {step["name"]: step.get("finding") for step in data["steps"]}
    names = page.evaluate("[...document.querySelectorAll('[data-focus^=\"attention \"]')].map(b => b.dataset.focus.slice(10))")
    for attention in names:
        page.locator(f'[data-focus="attention {attention}"]').click()
        if "query" in data:
            page.locator(f'[data-focus="word {data["query"]}"]').click()
        assert page.locator(".finding").inner_text() == findings[attention].rstrip(".") + "."
    assert names or page.locator(".finding").inner_text() == data["finding"] + "."


@pytest.mark.parametrize("name, cell", [("three-words", "scores 0 1 0"), ("three-words", "context 0 1 2"), ("one-function", "scores 0 2 1"), ("from-seed", "keys 0 1 1"),
                                        ("by-hand", "scores 0 0 3"), ("roles", "queries 0 1 1"), ("by-hand", "normalized 0 0 1")])
def test_an_expanded_number_matches_the_sum_of_json(lesson, name, cell):
    page, data = lesson(name)
    step, _, row, column = cell.rsplit(" ", 3)
    want = json.loads(succeed("lesson", name, "--json", "--step", step, "--cell", f"{row},{column}"))["steps"][0]["cell"]
    page.locator(f'[data-cell="{cell}"]').click()
    shown = page.locator(".steps .expand").inner_text()
    sum_in_words = page.locator(".steps .expand .sum").inner_text()
    largest = sorted((abs(term["product"]), term["label"]) for term in want["terms"])[-1]
    # The mean in the terms of a variance has other digits in --json.
    assert largest[1] in shown or largest[0] == 0 or step == "normalized"
    style = extra_of(page)["steps"][[one["name"] for one in data["steps"]].index(step)]["style"]
    total = want["terms"][-1]["sum_so_far"] if step == "normalized" else want["result"]
    assert sum_in_words.startswith(f"{styled(number(total, data['dtype']), style)} is the sum of {len(want['terms'])} products: ")
    bars = page.locator(".steps .expand .strip .stick").count()
    assert bars == sum(term["product"] != 0 for term in want["terms"])


def test_a_sum_adds_up_in_printed_digits_or_states_their_sum(arrays):
    page, _ = arrays(random_arrays(10, 4, 5, 20, 3), "#query=1")
    checked = 0
    for key in range(5):
        page.locator(f'[data-cell="row {key} scores"]').click()
        text = page.locator(".row-table .work .sum").inner_text()
        match = re.match(r"(\S+) is the sum of 20 products: (.+) \+ 17 other terms \((\S+)\)(?: \(rounded figures sum to (\S+)\))?$", text)
        terms = [printed_number(part.strip("()")) for part in match[2].split(" + ")] + [printed_number(match[3])]
        assert round(sum(terms), 4) == printed_number(match[4] or match[1])
        assert match[4] != match[1]
        checked += 1
        page.keyboard.press("Escape")
    assert checked == 5


# ---- the page's arithmetic


def module(page, name):
    """Loads a module of web/ that imports nothing into a blank page."""
    source = (WEB / f"{name}.js").read_text(encoding="utf-8")
    page.evaluate("""async source => { window.module = await import('data:text/javascript,' + encodeURIComponent(source)); }""", source)


def blank(browser):
    context = browser.new_context()
    return context, context.new_page()


def test_decimals_are_rounded_from_the_exact_value(browser):
    context, page = blank(browser)
    module(page, "numbers")
    generator = random.Random(11)
    numbers = [0.5, 1.5, 2.5, 0.125, 0.375, 0.0625, -0.125, -2.5, 1e-9, -1e-9, 0.00005, 0.00015, 5e-324, 9.99995, 0.99995, 1e6 + 0.5, 0.0, -0.0]
    numbers += [generator.uniform(-10, 10) for _ in range(2000)] + [generator.uniform(-1, 1) * 10 ** generator.randint(-12, 6) for _ in range(2000)]
    numbers += [generator.randint(-4000, 4000) / 2 ** generator.randint(0, 12) for _ in range(2000)]
    for digits in (0, 1, 2, 4, 8, 17):
        shown = page.evaluate("([all, style]) => all.map(x => window.module.styled_number(x, style))", [numbers, {"digits": digits, "scientific": False}])
        assert shown == [styled(x, {"digits": digits, "scientific": False}) for x in numbers]
    large = [x * 1e9 for x in numbers if x != 0 and abs(x) > 1e-200]
    shown = page.evaluate("([all, style]) => all.map(x => window.module.styled_number(x, style))", [large, {"digits": 4, "scientific": True}])
    assert shown == [styled(x, {"digits": 4, "scientific": True}) for x in large]
    context.close()
