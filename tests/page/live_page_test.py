# SPDX-License-Identifier: Apache-2.0
"""A live page (tests/support/live_page.py): what it shows after typing, hiding and comparing is what the program prints; its
address restores it; without WebAssembly the page of its sentence stays."""

import json

import pytest

from compare_page_test import figures
from cut_off import check_nothing_is_cut_off
from live_page import write_live_page
from page_numbers_test import CELLS, styled
from program import environment, succeed
from random_model import make_random_model
from sentence_model import VOCABULARY, make_folder, tokenizer
from sentence_page_test import TWO, check_row

TEXT = "he sat on the bank of the river"
GENERIC = {**environment(), "REGARD_FORCE_ISA": "generic"}
TYPING = ".typing[contenteditable]"
SHARES = "() => [...document.querySelectorAll('.live-words .share')].map(e => e.textContent)"
# Waits until nothing is asked and the page has spoken.
SPOKEN = "text => document.querySelector('.live > [aria-live]').textContent.includes(text)"


@pytest.fixture(scope="session", name="model")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session", name="path")
def fixture_path(model, folder):
    return write_live_page(folder / "live.html", model, TEXT, "--query", "bank")


@pytest.fixture(name="live")
def fixture_live(pages, path):
    def open_live(address="#step=mix", **options):
        page = pages.open(path, address, **options)
        page.wait_for_selector(TYPING)
        return page

    return open_live


def json_of(model, text, *arguments):
    return json.loads(succeed("explain", text, "--model", model, "--json", *arguments, env=GENERIC))


def retype(page, text):
    page.locator(".typing").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def wait_for_text(page, text):
    """Until the page shows the answer for a text."""
    page.wait_for_function("text => document.title === text", arg=text)


def test_lessons_and_the_sentence_take_turns(live, model):
    """A lesson is opened and left; the sentence and its word are as they were, and it computes on."""
    page = live()
    retype(page, "the bank of the river")
    wait_for_text(page, "the bank of the river")
    page.wait_for_timeout(500)
    page.locator(".views a", has_text="your numbers").click()
    page.locator(".lesson-list a", has_text="three-words").click()
    page.wait_for_selector(".given")
    assert page.locator(".typing").count() == 0
    page.locator(".views a", has_text="your sentence").click()
    page.wait_for_selector(TYPING)
    assert page.locator(".typing").inner_text() == "the bank of the river"
    retype(page, "the bank of the lake")
    wait_for_text(page, "the bank of the lake")
    assert own_json(page)["text"] == "the bank of the lake"


def own_json(page):
    page.locator('[data-focus="json"]').evaluate("e => { e.parentElement.open = true; }")
    return json.loads(page.locator("footer pre").inner_text())


def test_typing_shows_what_the_program_prints(live, model):
    page = live()
    layer, head = (int(page.locator(f'[data-focus^="{name}"][aria-pressed=true]').inner_text()) for name in ("Layer", "Head"))
    page.locator(".typing").focus()
    page.keyboard.press("Control+End")
    text = TEXT
    for letters in (" at", " dawn", " and"):
        page.keyboard.type(letters)
        text += letters
        wait_for_text(page, text)
        want = json_of(model, text, "--query", "bank", "--layer", str(layer), "--head", str(head))
        check_row(page, want)
        assert page.locator(".live-words .shares [data-word]").count() == len(want["words"]) - 2
    page.wait_for_timeout(1500)
    got = own_json(page)
    for own in (got, want):
        own["model"].pop("name")
    assert {**got, "command": "", "instruction_set": ""} == {**want, "command": "", "instruction_set": ""}
    assert got["instruction_set"] == "simd128"


def test_a_number_expands_to_its_sum_before_the_full_answer(live):
    page = live("#step=project")
    retype(page, "the bank of the lake")
    wait_for_text(page, "the bank of the lake")
    page.locator('[data-cell="project value 3"]').click()
    page.wait_for_function("() => document.querySelector('.expand .sum')?.textContent.includes(' products and the bias: ')")
    assert page.locator(".expand .sum").inner_text().startswith("v[3] = ")


def test_the_cursor_and_the_undo_history_stay(live):
    page = live()
    page.locator(".typing").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("now ")
    wait_for_text(page, "now " + TEXT)
    page.keyboard.type("that ")
    wait_for_text(page, "now that " + TEXT)
    page.keyboard.press("Control+z")
    page.wait_for_function("() => document.title !== 'now that he sat on the bank of the river'")
    assert page.evaluate("document.activeElement.className") == "typing"


def test_the_word_and_the_head_stay_chosen(live):
    page = live()
    page.locator('[data-focus="Head 1"]').click()
    page.locator('[data-focus="word 8"]').click()
    retype(page, "in the river bank")
    wait_for_text(page, "in the river bank")
    page.wait_for_function("() => document.querySelector('[data-word=\"3\"]')?.getAttribute('aria-pressed') === 'true'")
    assert page.locator('[data-focus="Head 1"]').get_attribute("aria-pressed") == "true"
    page.wait_for_function("() => location.hash.includes('text=in%20the%20river%20bank')")


# Moves the pointer to a cell of the painted map, and compares what the map reports.
REPORTS = """([x, y, want]) => {
    const canvas = document.querySelector('canvas.painted');
    if (!canvas) return false;
    const { left, top, width, height } = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: left + x * width, clientY: top + y * height }));
    return document.querySelector('.readout').textContent === want;
}"""


# Weights below a text that touch each other, or that cannot be scrolled into view.
CROWDED = """() => {
    const box = document.querySelector('.live-words');
    box.scrollTop = box.scrollHeight;
    const frame = box.getBoundingClientRect();
    const shares = [...box.querySelectorAll('.shares .share')].filter(e => e.textContent !== '').map(e => ({ text: e.textContent, at: e.getBoundingClientRect() }));
    const crowded = shares.filter(({ at }, i) => at.left < frame.left || at.bottom > frame.bottom
        || shares.slice(i + 1).some(({ at: other }) => Math.abs(at.top - other.top) < 4 && at.right > other.left && other.right > at.left));
    return [shares.length > 20, crowded.map(one => one.text)];
}"""


def test_a_long_text_drawn_in_parts_follows_the_head_and_the_word(pages, tmp_path):
    model = make_random_model(tmp_path, tokenizer(), layers=2, heads=2, width=256, intermediate=32, positions=96)
    text = " ".join(VOCABULARY[5:21] * 5)
    page = pages.open(write_live_page(tmp_path / "long.html", model, TEXT, "--query", "bank"), "#step=mix")
    page.wait_for_selector(TYPING)
    retype(page, text)
    wait_for_text(page, text)
    assert page.evaluate(CROWDED) == [True, []]
    chosen = {"--query": "@5", "--layer": page.locator('[data-focus^="Layer"][aria-pressed=true]').inner_text()}
    for choice, change in [("Head 1", {"--head": "1"}), ("word 31", {"--query": "@31"}), ("map 1 0", {"--layer": "1", "--head": "0"})]:
        button = page.locator(f'[data-focus="{choice}"]')
        button.click()
        chosen |= change
        want = json_of(model, text, *(part for option in chosen.items() for part in option))
        weights = [word["weight"] for word in want["row"]["words"]]
        query, key = int(chosen["--query"][1:]), weights.index(max(weights))
        names = [word["name"] for word in want["words"]]
        count = len(names)
        page.wait_for_function(REPORTS, arg=[(key + 0.5) / count, (query + 0.5) / count, f"{names[query]} → {names[key]}: {styled(max(weights), TWO)}"])
        page.wait_for_function("() => document.querySelector('[data-focus=\"table\"]') !== null")
        shown = {int(cell.split()[1]): value for cell, value in page.evaluate(CELLS).items() if cell.startswith("row ") and cell.endswith(" weight")}
        assert len(shown) == 12 and key in shown
        assert shown == {j: styled(weights[j], TWO) for j in shown}
        # The query is in view in the text, which scrolls.
        assert page.evaluate("""query => { const [box, word] = ['.live-words', `.live-words [data-word="${query}"]`].map(one => document.querySelector(one).getBoundingClientRect());
            return box.top <= word.top && word.bottom <= box.bottom; }""", query)
        assert page.evaluate("document.activeElement.dataset.focus") == choice and button.get_attribute("aria-pressed") == "true"


def test_hiding_shows_what_the_program_prints(live, model):
    page = live()
    before = page.evaluate(SHARES)
    page.locator('[data-word="8"]').focus()
    page.keyboard.press("x")
    page.wait_for_function("() => document.querySelector('[data-word=\"8\"] .share').textContent === 'hidden'")
    layer, head = (page.locator(f'[data-focus^="{name}"][aria-pressed=true]').inner_text() for name in ("Layer", "Head"))
    check_row(page, json_of(model, TEXT, "--query", "bank", "--layer", layer, "--head", head, "--hide", "river"))
    assert "“river”" in page.locator(".live-change").inner_text() and "→ hidden" in page.locator(".live-change").inner_text()
    assert page.locator(".row-table .earlier").count() == 10
    assert page.locator('.lines > .earlier path[data-to="8"]').count() == 1
    assert page.evaluate("document.activeElement.dataset.word") == "8"
    page.wait_for_function(SPOKEN, arg="→ hidden")
    assert page.url.endswith("&hidden=8")
    page.keyboard.press("x")
    page.wait_for_function("() => document.querySelector('[data-word=\"8\"] .share').textContent !== 'hidden'")
    assert page.evaluate(SHARES) == before
    page.locator('[data-cell="row 3 weight"]').hover()
    page.locator('.hide-key[data-hide="3"]').click()
    page.wait_for_function("() => document.querySelector('[data-word=\"3\"] .share').textContent === 'hidden'")


def test_a_hidden_word_stays_hidden_when_the_text_before_it_changes(live):
    page = live()
    page.locator('[data-word="8"]').focus()
    page.keyboard.press("x")
    page.locator(".typing").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("in dawn ")
    wait_for_text(page, "in dawn " + TEXT)
    page.wait_for_function("() => document.querySelector('[data-word=\"10\"] .share').textContent === 'hidden'")


def test_a_second_sentence_is_compared(live, model):
    page = live()
    other = "she put her money in the bank"
    page.locator("#second").fill("she put her money")
    assert "is not in the second sentence" in page.locator(".second-note").inner_text()
    page.locator("#second").fill(other)
    page.wait_for_selector(".comparison")
    want = json.loads(succeed("compare", "bank", TEXT, other, "--model", model, "--json", env=GENERIC))
    assert page.locator('.cosines [data-pair="0"] .number').all_inner_texts() == [figures(x) for x in want["pairs"][0]["cosine"]]
    page.locator('[data-word="8"]').focus()
    page.keyboard.press("x")
    page.locator('.comparison [data-focus="hide"]').click()
    want = json.loads(succeed("compare", "bank", TEXT, other, "--hide", "river", "--model", model, "--json", env=GENERIC))
    assert page.locator('.cosines [data-pair="0"] .number').all_inner_texts() == [figures(x) for x in want["hidden"]["pairs"][0]["cosine"]]
    page.locator("#second").fill("")
    page.wait_for_selector(".comparison", state="detached")


def test_the_address_restores_the_page(live, model):
    page = live()
    retype(page, "they walked along the river bank at dawn")
    wait_for_text(page, "they walked along the river bank at dawn")
    page.locator('[data-word="6"]').click()
    page.locator('[data-word="5"]').focus()
    page.keyboard.press("x")
    page.locator("#second").fill("she put her money in the bank")
    page.wait_for_selector(".comparison")
    page.wait_for_function("() => location.hash.includes('second=') && location.hash.includes('hidden=5')")
    address = page.url[page.url.index("#"):]
    again = live(address)
    wait_for_text(again, "they walked along the river bank at dawn")
    again.wait_for_selector(".comparison")
    assert again.locator(".typing").inner_text() == "they walked along the river bank at dawn"
    assert again.evaluate(SHARES) == page.evaluate(SHARES)
    assert again.locator("#second").input_value() == "she put her money in the bank"
    assert again.locator('[data-word="6"]').get_attribute("aria-pressed") == "true"


def test_controls_work_after_typing(live):
    """Controls that stay in the page while its numbers change follow what is shown, not what they were drawn with."""
    page = live("#step=project")
    retype(page, "the bank of the river")
    wait_for_text(page, "the bank of the river")
    special = page.locator("[data-focus=special]")
    for word in ("hide", "show", "hide", "show"):
        assert special.text_content() == f"{word} special tokens"
        special.click()
        page.wait_for_function("before => !document.querySelector('[data-focus=special]').textContent.startsWith(before)", arg=word)
    for step in ("compare", "scale", "softmax", "mix"):
        page.locator("[data-focus=next]").first.click()
        page.wait_for_function("step => document.querySelector('.row-section [aria-current]').textContent === step", arg=step)
        page.locator(".typing").focus()
        page.keyboard.press("End")
        page.keyboard.type("s")
        wait_for_text(page, "the bank of the river" + "s" * (1 + ["compare", "scale", "softmax", "mix"].index(step)))
    page.locator("[data-focus=back]").first.click()
    page.wait_for_function("() => document.querySelector('.row-section [aria-current]').textContent === 'softmax'")


def test_a_click_during_which_an_answer_arrives_counts(live):
    """A button that is replaced between press and release gets no click."""
    page = live("#step=compare")
    page.locator("[data-focus=next]").first.hover()
    page.mouse.down()
    page.evaluate("""() => { const typing = document.querySelector('.typing'); typing.textContent = 'the bank';
        typing.dispatchEvent(new InputEvent('input', { bubbles: true })); }""")
    page.wait_for_timeout(500)
    page.mouse.up()
    wait_for_text(page, "the bank")
    assert page.locator(".row-section [aria-current]").inner_text() == "scale"


def test_an_empty_text_gets_one_line(live):
    page = live()
    retype(page, "")
    page.keyboard.press("Delete")
    assert page.locator(".live-status").inner_text() == "The text is empty: type a word."
    page.keyboard.type("the bank")
    wait_for_text(page, "the bank")
    assert page.locator('[data-word="2"]').get_attribute("aria-pressed") == "true"
    assert not page.evaluate("document.documentElement.classList.contains('stale')")


def test_any_text_gets_an_answer(live, model):
    page = live()
    for text in ("🙂 bank 日本 bank", "שלום bank", "@ bank # 0 bank#0", "[CLS] bank [SEP] bank", "a" * 300, "e\u0301mbeddings, é!", "<script>", "\u202ebank"):
        page.evaluate("""text => { const typing = document.querySelector('.typing'); typing.textContent = text;
            typing.dispatchEvent(new InputEvent('input', { bubbles: true })); }""", text)
        page.wait_for_function("text => document.querySelector('.typing').textContent === text", arg=text)
        words = json_of(model, text)["words"]
        page.wait_for_function("count => document.querySelectorAll('.live-words [data-word]').length === count", arg=len(words))
        page.wait_for_timeout(300)


def test_nothing_is_asked_while_composing(live):
    page = live()
    page.locator(".typing").focus()
    page.keyboard.press("Control+End")
    page.evaluate("document.querySelector('.typing').dispatchEvent(new CompositionEvent('compositionstart'))")
    page.keyboard.type(" at")
    page.wait_for_timeout(500)
    assert page.title() == TEXT
    page.evaluate("document.querySelector('.typing').dispatchEvent(new CompositionEvent('compositionend'))")
    wait_for_text(page, TEXT + " at")


def test_pasted_text_is_plain(live):
    page = live()
    page.locator(".typing").focus()
    page.keyboard.press("Control+a")
    page.evaluate("""() => { const data = new DataTransfer(); data.setData('text/html', '<b>the</b><br>bank'); data.setData('text/plain', 'the\\nbank');
        document.querySelector('.typing').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }""")
    wait_for_text(page, "the bank")
    assert page.evaluate("document.querySelector('.typing').children.length") == 0


def test_it_speaks_after_typing_and_not_while_typing(live):
    page = live()
    page.evaluate("""() => { window.said = []; new MutationObserver(() => said.push(document.querySelector('.live > [aria-live]').textContent))
        .observe(document.querySelector('.live > [aria-live]'), { childList: true, characterData: true, subtree: true }); }""")
    page.locator(".typing").focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" at dawn in the bank", delay=60)
    assert page.evaluate("said") == []
    page.wait_for_function("() => said.length > 0")
    page.wait_for_timeout(1500)
    assert len(page.evaluate("said")) == 1


# The worker begins with another statement.
NO_MEMORY = """const Whole = Blob; globalThis.Blob = function (parts, options) {
    const statement = 'WebAssembly.Instance = class { constructor() { throw new RangeError("could not allocate memory"); } };';
    return new Whole(String(parts[0]).includes('serve(self)') ? [statement, ...parts] : parts, options);
}"""


@pytest.mark.parametrize("script, reason", [("delete globalThis.WebAssembly", "no WebAssembly"), (NO_MEMORY, "could not allocate memory"),
                                            ("globalThis.Worker = class { constructor() { throw new Error('no workers'); } }", "no workers")])
def test_without_webassembly_or_memory_the_page_stays(pages, path, script, reason):
    context = pages.browser.new_context(viewport={"width": 1280, "height": 800})
    pages.contexts.append(context)
    context.add_init_script(script)
    page = context.new_page()
    page.on("pageerror", lambda error: pages.complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("() => document.querySelector('.live-status')?.textContent.includes('cannot compute')")
    assert reason in page.locator(".live-status").inner_text()
    assert page.locator(".typing").get_attribute("contenteditable") is None
    page.locator('[data-word="3"]').click()
    assert page.locator('[data-word="3"]').get_attribute("aria-pressed") == "true"
    assert page.locator(".row-table, .projection").count() == 1


def test_a_broken_model_gets_one_line(pages, model, folder):
    path = write_live_page(folder / "broken.html", model, TEXT, changed={"config.json": b"{"})
    page = pages.open(path)
    page.wait_for_function("() => document.querySelector('.live-status')?.textContent.includes('cannot compute')")
    assert "config.json" in page.locator(".live-status").inner_text()


def test_after_an_error_a_new_core_answers(live):
    page = live()
    page.evaluate("location.hash = '#step=mix&query=8&text=the%20bank&hidden=1,2,3,4'")
    wait_for_text(page, "the bank")
    retype(page, "the river")
    wait_for_text(page, "the river")


def test_the_page_names_its_model(live):
    page = live()
    page.locator('[data-focus="digits"]').click()
    assert "tiny: parameters as published" in page.locator(".digits").inner_text()
    assert f'regard explain --model tiny "{TEXT}"' in page.locator(".digits").inner_text()
    assert page.locator(".rounding td").all_inner_texts() == ["0.0"]


@pytest.mark.parametrize("width, height", [(1280, 800), (800, 900), (390, 844), (320, 256)])
def test_the_page_never_scrolls_sideways(live, width, height):
    page = live(width=width, height=height)
    page.locator(".typing").focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" at dawn in the embeddings")
    wait_for_text(page, TEXT + " at dawn in the embeddings")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("step", ["project", "mix"])
def test_nothing_is_cut_off_at_400_percent(live, step):
    page = live(f"#text=she put her money in the bank&second={TEXT}&query=7&step={step}".replace(" ", "%20"), width=320, height=200, device_scale_factor=4)
    page.wait_for_selector(".comparison")
    page.wait_for_timeout(1000)
    check_nothing_is_cut_off(page)
