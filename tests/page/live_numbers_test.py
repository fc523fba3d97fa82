# SPDX-License-Identifier: Apache-2.0
"""Lessons and own matrices on a live page: after every edit the page shows what the program prints for the same input; bad numbers
keep the last picture; matrices are pasted, opened and saved; the address restores everything; all of it by keyboard."""

import functools
import http.server
import io
import json
import math
import random
import threading

import numpy as np
import pytest

from cut_off import check_nothing_is_cut_off
from lessons import LESSONS, OF_SENTENCES
from program import environment, succeed

GENERIC = {**environment(), "REGARD_FORCE_ISA": "generic"}
EDITABLE = [name for name in OF_SENTENCES if name != "from-seed"]  # whose numbers come from a seed
# The data that the page shows: read from its panel, which is closed again before it is laid out.
DATA = """() => new Promise(done => { const part = document.querySelector('[data-focus="json"]').parentElement;
    part.addEventListener('toggle', () => { const text = part.querySelector('pre').textContent; part.open = false; done(text); }, { once: true });
    part.open = false;
    part.open = true; })"""
IS_DRAWN = "() => !document.querySelector('.waiting') && document.querySelector('.terminal code')"


@pytest.fixture(scope="session", name="path")
def fixture_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "numbers.html"
    succeed("live", "-o", path, "--weights", "none")
    return path


@pytest.fixture(name="live")
def fixture_live(pages, path):
    def open_live(address="#lesson=three-words", **options):
        page = pages.open(path, address, **options)
        page.wait_for_function("() => document.querySelector('.given, .terminal code, .lesson-list a[href*=three]')")
        if "lesson=" in address or address.startswith("#matrices") or address == "":
            page.wait_for_function(IS_DRAWN)
        return page

    return open_live


def numbers(value):
    """Nested lists with "inf" and "nan" as numbers."""
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return float(value)


def same(ours, theirs):
    a, b = np.array(numbers(ours)), np.array(numbers(theirs))
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=1e-14, equal_nan=True)


def exported(lesson, *arguments):
    return json.loads(succeed("lesson", lesson, "--export", *arguments))


def explained(value, *arguments):
    return json.loads(succeed("explain", "--input", "-", "--json", *arguments, stdin=json.dumps(value).encode(), env=GENERIC))


def shown(page):
    return json.loads(page.evaluate(DATA))


def check_steps(page, expected):
    """Every step of the page's data, and the number in every cell, are the program's."""
    data = shown(page)
    assert [step["name"] for step in data["steps"]] == [step["name"] for step in expected["steps"]]
    for ours, theirs in zip(data["steps"], expected["steps"]):
        assert same(ours["result"], theirs["result"]), ours["name"]
    assert data["finding"] == expected["finding"]
    cells = page.evaluate("""() => [...document.querySelectorAll('.steps td[data-cell]')].filter(e => e.querySelector('.number'))
        .map(e => [e.dataset.cell, e.querySelector('.number').firstChild.data])""")
    by_name = {step["name"]: step for step in expected["steps"]}
    checked = 0
    for cell, text in cells:
        name, *at = cell.rsplit(" ", 3)
        result = by_name[name]["result"]
        head, row, column = map(int, at)
        value = numbers(result)
        x = value[head][row][column] if len(by_name[name]["shape"]) == 3 else value[row][column]
        assert agrees(text, x, 1e-7 if expected["dtype"] == "f32" else 0), (cell, text, x)
        checked += 1
    assert checked > 0


def agrees(text, x, share=0):
    """Whether a printed number is x, of which a float32 is known up to a share."""
    plain = text.replace("−", "-").replace("∞", "inf")
    if plain.startswith(("<", ">")) or "/" in plain:
        return True
    if "e" in plain:
        return math.isclose(float(plain), x, rel_tol=1e-3)
    if not math.isfinite(x):
        return str(float(plain)) == str(x)
    decimals = len(plain.partition(".")[2])
    return abs(float(plain) - x) <= 0.5000001 * 10**-decimals + share * abs(x) or (plain == "0" and x == 0)


def wait_for(page, text):
    page.wait_for_function("text => document.querySelector('.changes').textContent.includes(text)", arg=text)


def settle(page):
    """Until the page has drawn every part of the last answer, has spoken and has written its address. It is busy from the
    change itself until then."""
    page.wait_for_function("() => !document.querySelector('main').hasAttribute('aria-busy')")


def given(page, name, row, column, head=0, place="given"):
    return page.locator(f'.given[data-focus="given {place} {head} {row} {column} {name}"]').first


def type_number(page, cell, text):
    cell.click()
    page.locator(".given-input").fill(text)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("lesson", OF_SENTENCES)
def test_lessons_have_the_digits_of_the_program(live, lesson):
    page = live(f"#lesson={lesson}")
    check_steps(page, json.loads(succeed("lesson", lesson, "--json", env=GENERIC)))
    assert page.locator(".changed, td.edited").count() == 0
    assert page.locator(".terminal code").inner_text() == f"regard lesson {lesson}"


def test_given_cells_are_the_numbers_of_the_input(live, pages):
    for lesson in EDITABLE:
        page = live(f"#lesson={lesson}")
        value = exported(lesson)
        cells = page.evaluate("() => [...document.querySelectorAll('.given')].map(e => [e.parentElement.dataset.given, e.getAttribute('aria-valuetext'), e.textContent])")
        assert cells
        for at, spoken, text in cells:
            head, row, column, name = at.split(" ", 3)
            if name == "seed":
                continue
            matrix = value[name]
            x = matrix[int(row)][int(column)] if isinstance(matrix[0], list) else matrix[int(column)]
            assert float(spoken) == x and agrees(text, x), (lesson, at)
        pages.hand_back(page)


@pytest.mark.parametrize("lesson", EDITABLE)
def test_a_random_edit_gives_the_numbers_of_explain(live, lesson):
    page = live(f"#lesson={lesson}")
    value = exported(lesson)
    dice = random.Random(lesson)
    names = [name for name in value if page.locator(f'.given-section td[data-given$=" {name}"]').count() > 0]
    for count in (1, 2):
        name = dice.choice(names)
        row, column = dice.randrange(len(value[name])), dice.randrange(len(value[name][0]))
        x = round(value[name][row][column] + dice.choice([-1.25, 0.5, 0.75, 2]), 6)
        type_number(page, given(page, name, row, column), str(x))
        value[name][row][column] = x
        wait_for(page, "changed")
    settle(page)
    check_steps(page, explained(value))
    assert page.locator(".changed").count() > 0
    assert f"doc {exported(lesson)[name][row][column]}".replace("-", "−").removesuffix(".0") in page.locator("td.edited .document").all_inner_texts()[-1] or page.locator("td.edited").count() > 0
    # The address has the edits, and a link restores them.
    again = live("#" + page.url.split("#")[1])
    settle(again)
    check_steps(again, explained(value))
    page.locator('[data-focus="reset"]').click()
    settle(page)
    check_steps(page, json.loads(succeed("lesson", lesson, "--json", env=GENERIC)))
    assert page.locator(".changed, td.edited").count() == 0 and "cell=" not in page.url


def test_the_seeds_of_a_lesson_are_given_numbers(live):
    page = live("#lesson=roles")
    assert page.locator('.given[data-focus^="given given"][data-focus$=" seed"]').all_inner_texts() == ["123", "789"]
    type_number(page, given(page, "seed", 0, 0), "7")
    given(page, "seed", 0, 1).focus()
    page.keyboard.press("ArrowDown")
    settle(page)
    value = exported("roles")
    for step in value["steps"]:
        if step["operation"].startswith("torch_"):
            step["numbers"][0] = {123: 7, 789: 788}[step["numbers"][0]]
    check_steps(page, explained(value))
    assert page.locator(".terminal code").inner_text() == "regard explain --input roles.json"
    assert "cell=seed%2C0%2C0%2C0%2C7" in page.url and "cell=seed%2C0%2C0%2C1%2C788" in page.url
    type_number(page, given(page, "seed", 0, 0), "1.5")
    page.wait_for_selector(".live-message:not([hidden])")
    assert "an integer from 0 to 4294967295" in page.locator(".live-message").inner_text()
    # The last picture stays.
    assert given(page, "seed", 0, 0).inner_text() == "7"
    check_steps(page, explained(value))
    # One generator draws every matrix of this lesson, in each layout.
    page = live("#lesson=from-seed&cell=seed,0,0,0,5&layout=columns")
    assert [text.rpartition(" ")[2] for text in page.locator(".given").all_inner_texts()] == ["5"]
    value = exported("from-seed", "--layout", "columns")
    for step in value["steps"]:
        if step["operation"] == "torch_normal":
            step["numbers"][0] = 5
    check_steps(page, explained(value))


def test_changed_cells_name_the_number_of_the_lesson(live):
    page = live("#lesson=three-words&step=mix")
    own = {cell: text for cell, text in page.evaluate("() => [...document.querySelectorAll('td[data-cell]')].map(e => [e.dataset.cell, e.querySelector('.number')?.textContent ?? ''])")}
    type_number(page, given(page, "W_key", 0, 1), "3")
    settle(page)
    cells = page.evaluate("() => [...document.querySelectorAll('td[data-cell]')].map(e => [e.dataset.cell, e.querySelector('.number')?.textContent ?? '', e.classList.contains('changed'), e.title])")
    for cell, text, changed, title in cells:
        if cell in own and agrees_in_form(own[cell], text):
            assert changed == (own[cell] != text), cell
        if changed:
            assert title.startswith("in the lesson: ")
    assert sum(changed for _, _, changed, _ in cells) > 10
    # The numbers that the document prints are next to those that differ now.
    weights = page.locator('td[data-cell="weights 0 1 0"] .document').inner_text()
    assert weights == "doc 0.42231880"


def agrees_in_form(a, b):
    return len(a.partition(".")[2]) == len(b.partition(".")[2])


@pytest.mark.parametrize("lesson, switches, arguments", [
    ("three-words", {"scale": "sqrt"}, ["--scale", "sqrt"]),
    ("three-words", {"causal": "top_left", "softmax": "unshifted"}, ["--causal", "--softmax", "unshifted"]),
    ("three-words", {"softmax_base": "3"}, ["--softmax-base", "3"]),
    ("three-words", {"dtype": "f32"}, ["--dtype", "f32"]),
    ("three-words", {"scale": "-0.25", "causal": "-1"}, ["--scale=-0.25", "--causal=-1"]),
    ("one-function", {"causal": "off"}, ["--causal=off"]),
    ("roles", {"softmax": "ratio"}, ["--softmax", "ratio"]),
])
def test_switches_change_the_document_itself(live, lesson, switches, arguments):
    page = live(f"#lesson={lesson}")
    for key, value in switches.items():
        select = page.locator(f'[data-focus="setting {key}"]')
        if select.locator(f'option[value="{value}"]').count() > 0:
            select.select_option(value)
        else:
            select.select_option("number")
            page.locator(f'[data-focus="number of {key}"]').fill(value)
    settle(page)
    check_steps(page, explained(exported(lesson), *arguments))
    command = page.locator(".terminal code").inner_text()
    assert command.startswith(f"regard lesson {lesson} --export | regard explain --input - ")
    again = live("#" + page.url.split("#")[1])
    settle(again)
    assert shown(again)["steps"] == shown(page)["steps"]


@pytest.mark.parametrize("lesson, layout", [("three-words", "columns"), ("by-hand", "rows")])
def test_the_layout_is_that_of_the_lesson_command(live, lesson, layout):
    page = live(f"#lesson={lesson}")
    name = "W_key" if lesson == "three-words" else "W_K"
    type_number(page, given(page, name, 0, 2), "4")
    wait_for(page, "1 number changed")
    page.locator('[data-focus="setting layout"]').select_option(layout)
    page.wait_for_function("layout => location.hash.includes(`layout=${layout}`)", arg=layout)
    settle(page)
    value = exported(lesson, "--layout", layout)
    value[name][2][0] = 4  # the same number, transposed
    check_steps(page, explained(value))
    again = live("#" + page.url.split("#")[1])
    settle(again)
    check_steps(again, explained(value))


def test_arrows_step_by_the_last_digit(live):
    page = live()
    cell = given(page, "W_query", 1, 1)
    cell.focus()
    for key, x in [("ArrowUp", 2), ("ArrowDown", 1), ("ArrowDown", 0), ("ArrowDown", -1), ("Shift+ArrowUp", 9)]:
        page.keyboard.press(key)
        page.wait_for_function("x => document.activeElement.getAttribute('aria-valuenow') === String(x)", arg=x)
    # A typed decimal makes the steps finer, also when the last digit becomes 0.
    page.keyboard.type("0.9")
    page.keyboard.press("Enter")
    for key, x in [("ArrowUp", 1), ("ArrowUp", 1.1), ("Shift+ArrowDown", 0.1)]:
        page.keyboard.press(key)
        page.wait_for_function("x => document.activeElement.getAttribute('aria-valuenow') === String(x)", arg=x)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.parentElement.dataset.given") == "0 1 2 W_query"
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "W_query, row 1, column 2"


def test_escape_takes_a_number_back(live):
    page = live()
    given(page, "X", 0, 0).click()
    page.keyboard.type("7")
    wait_for(page, "1 number changed")
    page.keyboard.press("Escape")
    wait_for(page, "Click a given number")
    settle(page)
    check_steps(page, json.loads(succeed("lesson", "three-words", "--json", env=GENERIC)))
    assert page.evaluate("() => document.activeElement.className") == "given"


def test_a_number_taken_back_before_its_answer_stays_taken_back(live):
    page = live()
    given(page, "X", 0, 0).click()
    page.evaluate("""() => {
        const input = document.querySelector('.given-input');
        input.value = '7';
        input.dispatchEvent(new Event('input', { bubbles: true }));
        input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
    }""")
    settle(page)
    check_steps(page, json.loads(succeed("lesson", "three-words", "--json", env=GENERIC)))


def test_dragging_to_the_side_changes_a_number(live):
    page = live()
    cell = given(page, "W_value", 0, 0)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 13, y, steps=4)
    page.mouse.move(x + 18, y)
    page.mouse.up()
    settle(page)
    value = exported("three-words")
    value["W_value"][0][0] = 4
    check_steps(page, explained(value))
    assert page.locator(".given-input").count() == 0


@pytest.mark.parametrize("text, line", [
    ("abc", "“abc” is not a number."),
    ("1e999", "1e999 is out of range for double: at most 1.8e308."),
    ("", "The cell is empty: type a number."),
    ("0,5", "“0,5” has a comma: write 0.5."),
    ("1 2", "“1 2” is not a number."),
    ("--1", "“--1” is not a number."),
])
def test_a_bad_number_gets_one_line(live, text, line):
    page = live()
    before = shown(page)
    type_number(page, given(page, "X", 0, 0), text)
    message = page.locator(".live-message")
    message.wait_for(state="visible")
    assert message.inner_text() == line and message.get_attribute("role") == "alert"
    assert page.locator(".given-input").get_attribute("aria-invalid") == "true"
    assert shown(page)["steps"] == before["steps"]
    page.locator(".given-input").fill("2")
    message.wait_for(state="hidden")
    wait_for(page, "1 number changed")


@pytest.mark.parametrize("key, text, line", [
    ("scale", "0", "A scale of 0 makes every score 0: type another number."),
    ("scale", "x", "The scale “x” is not a number."),
    ("softmax_base", "-1", "The base must be above 0."),
    ("causal", "0.5", "The offset of the mask must be an integer."),
])
def test_a_bad_setting_gets_one_line(live, key, text, line):
    page = live()
    before = shown(page)
    page.locator(f'[data-focus="setting {key}"]').select_option("number")
    page.locator(f'[data-focus="number of {key}"]').fill(text)
    page.locator(".live-message").wait_for(state="visible")
    assert page.locator(".live-message").inner_text() == line
    assert shown(page)["steps"] == before["steps"]


def test_an_error_of_the_core_keeps_the_last_picture(live):
    page = live("#lesson=learning")
    before = shown(page)
    page.locator('[data-focus="setting softmax"]').select_option("ratio")
    page.locator(".live-message").wait_for(state="visible")
    assert shown(page)["steps"] == before["steps"]
    assert page.locator('[data-focus="setting softmax"]').input_value() == "shifted"
    # The core, which was replaced, computes on.
    type_number(page, given(page, "X", 0, 0), "2")
    settle(page)
    value = exported("learning")
    value["X"][0][0] = 2
    check_steps(page, explained(value))


def test_the_list_leads_to_each_lesson(live):
    page = live("#lessons")
    names = page.locator(".lesson-list a").all_inner_texts()
    assert names == [*LESSONS, "your matrices"]
    page.locator(".lesson-list a", has_text="by-hand").click()
    page.wait_for_function(IS_DRAWN)
    assert page.locator("h1").inner_text().replace("\n", " ") == shown(page)["title"]
    page.locator(".lesson-links a", has_text="roles").click()
    page.wait_for_function("() => document.querySelector('h1')?.textContent.startsWith('Query, key')")
    page.go_back()
    page.wait_for_function("() => document.querySelector('h1')?.textContent.startsWith('By hand')")


def paste(page, text):
    page.locator(".paste").fill(text)
    page.locator('[data-focus="add"]').click()
    page.wait_for_function("() => document.querySelector('.paste').value === ''")


def test_own_matrices_are_pasted_in_any_form(live):
    page = live("#matrices")
    paste(page, "1\t0.5\n0\t−2\n")
    paste(page, "1, 2\n3, 4\n")
    assert "Still needed: V" in page.locator(".own-status").inner_text()
    paste(page, "[[0.25 1. ]\n [2.   3. ]]")
    page.wait_for_function(IS_DRAWN)
    settle(page)
    value = {"Q": [[1, 0.5], [0, -2]], "K": [[1, 2], [3, 4]], "V": [[0.25, 1], [2, 3]]}
    check_steps(page, explained(value))
    page.locator('[data-focus="setting heads"]').select_option("2")
    settle(page)
    check_steps(page, explained(value, "--heads", "2"))
    type_number(page, given(page, "K", 0, 0), "-1")
    settle(page)
    value["K"][0][0] = -1
    check_steps(page, explained(value, "--heads", "2"))
    again = live("#" + page.url.split("#")[1])
    settle(again)
    check_steps(again, explained(value, "--heads", "2"))


def test_the_heading_of_a_markdown_table_is_left_out(live):
    page = live("#matrices")
    paste(page, "| a | b |\n|---|:-:|\n| 1 | -2 |\n| 3 | 4.5 |\n")
    assert [page.locator(".given-matrix [data-given] .given").nth(i).get_attribute("aria-valuetext") for i in range(4)] == ["1", "-2", "3", "4.5"]


@pytest.mark.parametrize("text, line", [
    ("1 2\n3", "line 2"),
    ("1 x\n3 4", "x"),
    ("{nonsense", "not valid JSON"),
    ("[[1, 2], [3]]", "not a matrix"),
])
def test_a_bad_table_gets_one_line(live, text, line):
    page = live("#matrices")
    page.locator(".paste").fill(text)
    page.locator('[data-focus="add"]').click()
    page.locator(".live-message").wait_for(state="visible")
    assert line in page.locator(".live-message").inner_text()
    assert shown(page)["steps"][0]["result"] == [[1, 0], [0, 1], [1, 1]]  # the example


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_files_are_opened(live):
    dice = np.random.default_rng(5)
    x, w = dice.normal(size=(4, 3)).round(3), [dice.normal(size=(3, 2)).round(3) for _ in range(3)]
    page = live("#matrices")
    page.locator('[data-focus="files"]').set_input_files([
        {"name": "X.csv", "mimeType": "text/csv", "buffer": "\n".join(",".join(map(str, row)) for row in x).encode()},
        {"name": "W_query.npy", "mimeType": "application/octet-stream", "buffer": npy(w[0])},
        {"name": "wk.json", "mimeType": "application/json", "buffer": json.dumps(w[1].tolist()).encode()},
        {"name": "W_value.npy", "mimeType": "application/octet-stream", "buffer": npy(np.asfortranarray(w[2].astype(np.float32)))}])
    page.wait_for_function("() => document.querySelectorAll('.given-matrix').length === 4")
    page.wait_for_function(IS_DRAWN)
    settle(page)
    value = {"X": x.tolist(), "W_query": w[0].tolist(), "W_key": w[1].tolist(), "W_value": w[2].astype(np.float32).astype(float).tolist()}
    check_steps(page, explained(value))
    # A whole input replaces the matrices.
    page.locator('[data-focus="files"]').set_input_files({"name": "input.json", "mimeType": "application/json", "buffer": json.dumps(exported("three-words")).encode()})
    page.wait_for_selector('.given[data-focus="given given 0 2 2 W_query"]')
    settle(page)
    check_steps(page, explained(exported("three-words")))
    page.locator('[data-focus="files"]').set_input_files({"name": "bad.npy", "mimeType": "application/octet-stream", "buffer": b"\x93NUMPY\x01\x00"})
    page.locator(".live-message").wait_for(state="visible")
    assert "bad.npy" in page.locator(".live-message").inner_text().lower()


def test_a_dropped_file_is_opened(live):
    page = live("#matrices")
    page.locator('[data-focus="files"]').wait_for(state="attached")
    dropped = page.evaluate_handle("""() => {
      const files = new DataTransfer();
      files.items.add(new File(["1,2\\n3,4\\n5,6\\n"], "Q.csv", {type: "text/csv"}));
      return files;
    }""")
    for kind in ("dragover", "drop"):
        page.locator("main").dispatch_event(kind, {"dataTransfer": dropped})
    page.wait_for_function("() => document.querySelectorAll('.given-matrix').length === 1")
    assert page.locator(".given-matrix [data-given]").all_inner_texts() == ["1", "2", "3", "4", "5", "6"]


def download(page, what, format_of):
    page.locator(f'[data-focus="save {what}"]').click()
    with page.expect_download() as got:
        page.locator(f'[data-save="{format_of} {what}"]').click()
    return got.value.suggested_filename, got.value.path().read_bytes()


def test_results_and_inputs_are_saved_in_all_formats(live):
    page = live("#lesson=three-words&cell=X,0,1,0,0.1")
    value = exported("three-words")
    value["X"][1][0] = 0.1
    expected = explained(value)
    index = [step["name"] for step in expected["steps"]].index("weights")
    weights = np.array(expected["steps"][index]["result"])
    for format_of in ("csv", "npy", "json"):
        name, content = download(page, f"step {index}", format_of)
        page.locator(f'[data-focus="save step {index}"]').click()
        assert name == f"three-words-weights.{format_of}"
        read = np.loadtxt(io.BytesIO(content), delimiter=",") if format_of == "csv" else np.load(io.BytesIO(content)) if format_of == "npy" else np.array(json.loads(content))
        assert read.dtype == np.float64 and np.allclose(read, weights, rtol=1e-12)
        name, content = download(page, "matrix X", format_of)
        page.locator('[data-focus="save matrix X"]').click()
        read = np.loadtxt(io.BytesIO(content), delimiter=",") if format_of == "csv" else np.load(io.BytesIO(content)) if format_of == "npy" else np.array(json.loads(content))
        assert name == f"X.{format_of}" and np.array_equal(read, np.array(value["X"]))
        if format_of == "npy":
            assert content == npy(np.array(value["X"], dtype=float))
    with page.expect_download() as got:
        page.locator('[data-focus="save input"][data-save="json input"]').first.click()
    assert got.value.suggested_filename == "three-words.json"
    assert page.locator(".terminal code").inner_text() == "regard explain --input three-words.json"
    saved = json.loads(got.value.path().read_bytes())
    assert explained(saved)["steps"] == expected["steps"]


def test_everything_by_keyboard(live):
    page = live("#lessons")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.textContent") == "three-words":
            break
    page.keyboard.press("Enter")
    page.wait_for_function(IS_DRAWN)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.getAttribute('role')") == "spinbutton":
            break
    page.keyboard.press("Enter")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    wait_for(page, "1 number changed")
    page.wait_for_function("() => document.activeElement.getAttribute('aria-valuenow') === '3'")
    page.wait_for_function("() => [...document.querySelectorAll('.spoken[role=status]')].some(e => e.textContent.includes('attends'))")
    # Letters that are shortcuts elsewhere are text here.
    page.keyboard.press("F2")
    page.keyboard.type("hp")
    assert page.locator(".covered").count() == 0 and not page.evaluate("() => document.documentElement.hasAttribute('data-projector')")


def test_the_first_lesson_is_in_the_file(pages, path):
    page = pages.open(path)
    assert page.locator("h1").inner_text().startswith("One head")
    page.wait_for_function(IS_DRAWN)
    assert page.locator(".views > a").all_inner_texts() == ["your numbers", "your matrices"]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(name="site")
def fixture_site(tmp_path):
    """The address of a server with the files of `--site`."""
    folder = tmp_path / "site"
    succeed("live", "--site", folder, "--weights", "none")
    assert sorted(path.name for path in folder.iterdir()) == ["core.wasm.gz", "index.html"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_site_computes_and_asks_only_its_server(pages, site):
    pages.contexts.append(pages.browser.new_context())
    page = pages.contexts[-1].new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: pages.complaints.append(message.text))
    page.on("pageerror", lambda error: pages.complaints.append(str(error)))
    page.goto(site + "#lesson=three-words")
    page.wait_for_function(IS_DRAWN)
    type_number(page, given(page, "X", 0, 1), "2.5")
    wait_for(page, "1 number changed")
    settle(page)
    value = exported("three-words")
    value["X"][0][1] = 2.5
    check_steps(page, explained(value))
    assert {url for url in requests if not url.startswith(("data:", f"blob:{site}"))} == {site, site + "core.wasm.gz"}


def test_a_link_with_nonsense_opens_the_lesson(live):
    page = live("#lesson=three-words&cell=X,9,9,9,1&cell=nix&cell=X,0,0,0,zz&scale=0&causal=%00&softmax=wrong")
    check_steps(page, json.loads(succeed("lesson", "three-words", "--json", env=GENERIC)))


def test_an_edit_is_drawn_in_place(live):
    """The cell that is edited keeps its element and its focus, and so does every table."""
    page = live()
    page.evaluate("() => { window.tables = [...document.querySelectorAll('table')]; }")
    cell = given(page, "X", 0, 1)
    cell.focus()
    page.keyboard.press("ArrowUp")
    settle(page)
    kept = page.evaluate("() => window.tables.filter(table => table.isConnected).length / window.tables.length")
    assert kept == 1
    assert page.evaluate("() => document.activeElement.parentElement.dataset.given") == "0 0 1 X"


@pytest.mark.parametrize("address", ["#lesson=three-words", "#lesson=from-seed&cell=seed,0,0,0,4294967295", "#lesson=learning&cell=X,0,0,0,1.25", "#lessons",
    '#matrices={"Q":[[1,2],[3,4]],"K":[[1,0],[0,1]],"V":[[1,2,3],[4,5,600000]]}'])
def test_nothing_is_cut_off_at_400_percent(live, address):
    page = live(address, width=320, height=200, device_scale_factor=4)
    page.wait_for_timeout(1000)
    check_nothing_is_cut_off(page)
