# SPDX-License-Identifier: Apache-2.0
"""The page of a watched run: the slider by keyboard, pointer and playback; every number against the JSON of the same
record; events; the row under the glass; what is left out of large runs; untrusted text, contrast, widths and print.
The records are made up (tests/imitated_training.cpp)."""

import functools
import json
import math
import pathlib
import re
import subprocess

import pytest

from page_look_test import CONTRAST
from page_safety_test import UNTRUSTED
from program import PROGRAM

WRITER = pathlib.Path(PROGRAM).parent / "tests" / "imitated_training"
UNTRUSTED_SHOWN = "</script><img src=x onerror=alert(1)>"


def written(form, *settings):
    return subprocess.run([WRITER, form, *settings], check=True, capture_output=True, timeout=60).stdout


class Record:
    """The JSON of a made-up run. Those of large runs have 200 MB, which only `outline` reads: without the numbers of lists."""

    def __init__(self, settings):
        self.settings = settings

    @functools.cached_property
    def parts(self):
        return json.loads(written("json", *self.settings))

    @functools.cached_property
    def outline(self):
        return json.loads(re.sub(rb"\[[-+.\deE,\s]+\]", b"[]", written("json", *self.settings)))

    def __getitem__(self, name):
        return self.parts[name]


@pytest.fixture(name="training")
def fixture_training(pages):
    """Opens the page of a made-up run: (page, its record)."""

    def open_training(*settings, address="", **options):
        key = ("training", settings)
        if key not in pages.cache:
            path = pages.folder / f"training{len(pages.cache)}.html"
            path.write_bytes(written("html", *settings))
            pages.cache[key] = (path, Record(settings))
        path, record = pages.cache[key]
        return pages.open(path, address, **options), record

    return open_training


def step(page):
    return int(re.match(r"step (\d+)", page.locator(".slider-readout").inner_text())[1])


def slider(page):
    return page.locator("input[type=range]")


def until(page, condition):
    """Waits for an expression of the page; its policy forbids wait_for_function, which would compile a string there."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    assert False, condition


def steps_of(record):
    return [snapshot["step"] for snapshot in record["snapshots"]]


def printed(x, digits=2):
    """styled_number of web/numbers.js"""
    if x == 0:
        return "0"
    text = f"{abs(x):.{digits}f}"
    sign = "−" if x < 0 else ""
    if not re.search("[1-9]", text):
        return f"{'>' if x < 0 else '<'}{sign}{text[:-1]}1"
    return sign + text


def test_the_finding_comes_first(training):
    page, record = training()
    assert page.locator("h1").inner_text().replace("\u00a0", " ") == (
        "From step 187 on, layer 1, head 0 attends to the token after the earlier copy: 100 % of its attention at the end (uniform: 4 %).")
    assert page.title() == "From step 187 on, layer 1, head 0 attends to the token after the earlier copy: 100 % of its attention at the end (uniform: 4 %)"
    assert record["shows"] in page.locator(".citation").inner_text()
    # It opens at the last snapshot, with the head of the finding, and all heads in the first view.
    assert step(page) == record["snapshots"][-1]["step"]
    assert page.locator(".training-heads [aria-pressed=true]").get_attribute("aria-label").startswith("layer 1, head 0: score 1.00, mostly the pattern")
    box = page.locator(".training-heads").bounding_box()
    assert box["y"] + box["height"] <= 800


def test_the_slider_moves_by_keyboard(training):
    page, record = training()
    steps = steps_of(record)
    slider(page).focus()
    page.keyboard.press("Home")
    assert step(page) == 0
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert step(page) == steps[3]
    page.keyboard.press("ArrowLeft")
    assert step(page) == steps[2]
    page.keyboard.press("End")
    assert step(page) == steps[-1]
    text = slider(page).get_attribute("aria-valuetext")
    assert text == f"step {steps[-1]}, loss {printed(record['snapshots'][-1]['loss'])}, score of L1H0 1.00"
    # Without the focus on the slider, the arrows move it, too; on the map they move its cell.
    slider(page).evaluate("e => e.blur()")
    page.keyboard.press("ArrowLeft")
    assert step(page) == steps[-2]
    page.locator(".enlarged").focus()
    page.keyboard.press("ArrowLeft")
    assert step(page) == steps[-2]


def test_space_plays_and_stops(training, pages):
    for motion in ("no-preference", "reduce"):
        page, record = training(reduced_motion=motion)
        page.evaluate("() => { window.began = performance.now(); }")
        page.keyboard.press(" ")
        assert page.locator(".play").inner_text() == "■ stop"
        until(page, "Number(document.querySelector('input[type=range]').value) >= 2")
        # One snapshot a second if motion is to be reduced.
        assert motion != "reduce" or page.evaluate("performance.now() - window.began") > 1900
        page.keyboard.press(" ")
        assert page.locator(".play").inner_text() == "▶ play"
        stopped = step(page)
        page.wait_for_timeout(1200 if motion == "reduce" else 300)
        assert step(page) == stopped
        pages.hand_back(page)


def test_play_ends_at_the_last_snapshot(training):
    page, record = training("steps=6")
    page.locator(".play").click()
    until(page, "document.querySelector('.play').textContent === '▶ play'")
    assert step(page) == 6


def test_the_address_keeps_snapshot_and_head(training):
    page, record = training()
    page.locator('[data-focus="training map 1"]').click()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    until(page, "location.hash !== ''")
    page.wait_for_timeout(400)
    again, _ = training(address=page.evaluate("location.hash"))
    assert step(again) == steps_of(record)[-6]
    assert again.locator(".training-heads [aria-pressed=true]").get_attribute("data-focus") == "training map 1"
    beyond, _ = training(address="#snapshot=999&head=999")
    assert step(beyond) == 600 and beyond.locator(".training-heads [aria-pressed=true]").get_attribute("data-focus") == "training map 2"


@pytest.mark.parametrize("at", [0, 16, 21, 59])
def test_the_table_has_the_numbers_of_the_record(training, at):
    page, record = training(address=f"#snapshot={at}")
    snapshot = record["snapshots"][at]
    assert page.locator(".head-scores caption").inner_text() == f"All heads at step {snapshot['step']}"
    for row, head in zip(page.locator(".head-scores tbody tr").all(), snapshot["heads"]):
        numbers = [row.locator("th").inner_text(), *row.locator("td:not(.bar)").all_inner_texts()]
        more = head["ablation"]
        assert numbers == [f"L{head['layer']}H{head['head']}", *(printed(head[name]) for name in ("pattern", "previous", "sink", "entropy")),
                           ("+" if more >= 0.005 else "") + printed(more)]
    uniform = page.locator(".head-scores tfoot td").all_inner_texts()[:4]
    assert uniform == [printed(record["probe"]["uniform"][name]) for name in ("pattern", "previous", "sink", "entropy")]
    # Bars on one scale over the whole run.
    most = max(abs(head["ablation"]) for one in record["snapshots"] for head in one["heads"])
    shares = page.locator(".head-scores tbody .bar-fill").evaluate_all("bars => bars.map(b => Number(b.style.getPropertyValue('--share')))")
    for share, head in zip(shares, snapshot["heads"]):
        assert math.isclose(share, abs(head["ablation"]) / most, rel_tol=1e-5)


# The middle of every cell of a canvas of side × side cells: red, green and blue.
CELLS = """(canvas, side) => { const { width, height } = canvas; const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    return Array.from({ length: side * side }, (_, n) => { const [row, key] = [Math.floor(n / side), n % side];
        const at = 4 * (Math.floor((row + 0.5) * height / side) * width + Math.floor((key + 0.5) * width / side)); return [...data.slice(at, at + 4)]; }); }"""


def test_maps_show_the_weights(training):
    page, record = training(address="#snapshot=21", color_scheme="light")
    paper, ink = (0xfd, 0xfc, 0xf9), (0x0b, 0x4f, 0x8f)
    length = len(record["probe"]["tokens"])
    canvases = page.locator(".training-heads canvas").all() + [page.locator(".enlarged")]
    heads = [*record["snapshots"][21]["heads"], record["snapshots"][21]["heads"][2]]
    for n, (canvas, head) in enumerate(zip(canvases, heads)):
        pixels = canvas.evaluate(CELLS, length)
        weights = iter(head["weights"])
        for row in range(length):
            for key in range(length):
                found = pixels[row * length + key]
                if key > row:
                    assert found[3] == 0 or n == 4, "a hidden key"
                    continue
                share = math.sqrt(round(255 * next(weights)) / 255)
                assert all(abs(found[c] - (paper[c] + share * (ink[c] - paper[c]))) <= 2 for c in range(3)), (n, row, key)


def test_large_cells_have_numbers(training):
    page, record = training("half=6", address="#snapshot=0")
    # A number changes pixels of its cell, next to its middle.
    changed = page.locator(".enlarged").evaluate("""(canvas) => { const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width / 13, canvas.height / 13);
        return new Set(Array.from({ length: data.length / 4 }, (_, i) => data[4 * i])).size; }""")
    assert changed > 4


def test_cells_are_described_in_words(training):
    page, record = training(address="#snapshot=59")
    tokens, wanted = record["probe"]["tokens"], record["probe"]["wanted"]
    readout = page.locator(".enlarged-head .readout")
    row = record["probe"]["query"]
    key = wanted[row][0]
    assert readout.inner_text() == f"“{tokens[row]}” ({row}) → “{tokens[key]}” ({key}): 1.00, an expected key. Next token to predict: “{record['probe']['targets'][row]}”"
    page.locator(".enlarged").focus()
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith(f"“{tokens[row]}” ({row}) → “{tokens[key + 1]}” ({key + 1}): ") and "expected" not in readout.inner_text()
    assert readout.get_attribute("aria-live") == "polite"
    box = page.locator(".enlarged").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 3)
    assert readout.inner_text() == f"“^” (0) cannot attend to “{tokens[-1]}” ({len(tokens) - 1}), which follows it."


def test_events_are_listed_and_lead_to_their_snapshot(training):
    page, record = training()
    listed = page.locator(".events button").all()
    assert [one.inner_text().replace("\u00a0", " ") for one in listed] == ["▲ " + event["text"] for event in record["events"]]
    for one, event in zip(listed, record["events"]):
        one.click()
        assert step(page) == event["step"]
        chosen = page.locator(".training-heads [aria-pressed=true]").get_attribute("aria-label")
        assert chosen.startswith(f"layer {event['layer']}, head {event['head']}:")
    lines = page.locator(".event-line").evaluate_all("lines => lines.map(line => Number(line.dataset.step))")
    assert lines == [event["step"] for event in record["events"]]
    assert page.locator(".slider-event").count() == 2


def test_a_run_without_events_claims_nothing(training):
    page, record = training("learns=0")
    assert record["events"] == [] and page.locator(".events.none").inner_text().startswith("No event:")
    assert page.locator("h1").inner_text().startswith("By step 600, no head is known to attend to the token after the earlier copy")
    assert page.locator(".slider-event, .event-line").count() == 0


def test_curves_are_labeled(training):
    page, _ = training()
    texts = page.locator(".time-chart text").all_text_contents()
    for label in ("loss (nats per target)", "score: mean weight on the token after the earlier copy", "gradient norm", "step (logarithmic)",
                  "training", "held out", "probe", "L1H0", "L0H1 previous", "uniform", "step 600", "0", "600"):
        assert label in texts, label
    # Choosing another head names it.
    page.locator('[data-focus="head row 3"]').click()
    assert "L1H1" in page.locator(".time-chart text.label.chosen").all_text_contents()


def test_curves_have_the_values_of_the_record(training):
    page, record = training()
    # The line of the chosen head's score, from its path: 1 is at the top of the panel, 0 at the bottom.
    path = page.locator(".time-chart .line.chosen").first.get_attribute("d")
    points = [tuple(map(float, part.split())) for part in re.split("[ML]", path)[1:]]
    assert len(points) == len(record["snapshots"])
    zero = page.evaluate("Number(document.querySelectorAll('.time-chart .zero')[1].getAttribute('y1'))")
    unit = math.log1p(60)
    width = points[-1][0] - points[0][0]
    for (x, y), snapshot in zip(points, record["snapshots"]):
        assert abs(y - (zero - 140 * snapshot["heads"][2]["pattern"])) < 0.06
        assert abs(x - (points[0][0] + width * math.log1p(snapshot["step"] / 10) / unit)) < 0.11


def test_the_chart_moves_the_slider(training):
    page, record = training()
    page.locator(".time-chart").scroll_into_view_if_needed()
    box = page.locator(".time-chart").bounding_box()
    line = page.locator(".event-line").first.bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    assert step(page) == record["events"][0]["step"]
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    assert step(page) == 0
    page.mouse.up()
    page.mouse.move(box["x"] + 300, box["y"] + box["height"] / 2)
    assert step(page) == 0


@pytest.mark.parametrize("at", [3, 21])
def test_the_row_under_the_glass(training, at):
    page, record = training(address=f"#snapshot={at}")
    head = record["snapshots"][at]["heads"][2]
    query = record["probe"]["query"]
    row = head["weights"][query * (query + 1) // 2:][:query + 1]
    # dS is P (dP − Σ P dP).
    mean = sum(p * d for p, d in zip(row, head["grad_weights"]))
    assert all(math.isclose(s, p * (d - mean), rel_tol=1e-3, abs_tol=1e-7) for p, d, s in zip(row, head["grad_weights"], head["grad_scores"]))
    gains = [-x for x in head["grad_scores"]]
    to, source = gains.index(max(gains)), gains.index(min(gains))
    name = lambda i: f"“{record['probe']['tokens'][i]}” ({i})"
    wanted = ", an expected key" if to in record["probe"]["wanted"][query] else ""
    step_of = record["snapshots"][at]["step"]
    assert page.locator(".glass-section .verdict").inner_text() == f"At step {step_of}, a gradient step moves weight of {name(query)} from {name(source)} to {name(to)}{wanted}."
    # Bars: the height of P on 0 to 1; the others on their largest value, hollow if negative.
    heights = page.evaluate("[...document.querySelectorAll('.glass .weight-bar, .glass .gradient-bar')].map(b => [Number(b.getAttribute('height')), b.classList.contains('below')])")
    for n, values in enumerate((row, head["grad_weights"], gains)):
        end, half = (1, 70) if n == 0 else (max(map(abs, values)), 28)
        for value, (height, below) in zip(values, heights[n * (query + 1):]):
            assert abs(height - abs(value) / end * half) < (0.15 if n == 0 else 0.006) and below == (value < 0)
    page.locator('[data-focus="glass table"]').click()
    cells = page.locator(".glass-section table tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.textContent))")
    assert len(cells) == query + 1
    for key, (label, weight, _, gain) in enumerate(cells):
        assert label.startswith(name(key)) and abs(float(weight.lstrip("<")) - row[key]) < 0.003
        assert math.isclose(float(gain.replace("−", "-")), gains[key], rel_tol=0.06)
    # The open table follows the slider.
    page.locator("body").evaluate("() => document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert f"step {record['snapshots'][at + 1]['step']}" in page.locator(".glass-section caption").inner_text()


def test_a_small_gradient_is_not_called_a_movement(training):
    page, _ = training()
    assert "the gradient hardly moves this row" in page.locator(".glass-section .verdict").inner_text()


def test_a_text_has_no_pattern(training):
    page, record = training("pattern=0")
    assert "pattern" not in record["probe"]["uniform"]
    assert page.locator("h1").inner_text().replace("\u00a0", " ").startswith(
        "At step 110, layer 0, head 1 began to attend to the previous token: 100 % of its attention")
    assert page.locator(".head-scores thead th").all_inner_texts()[1] == "previous token"
    assert page.locator(".wanted-key").count() == 0
    assert "mean weight on the previous token" in page.locator(".time-chart text").all_text_contents()


def test_large_runs_state_what_is_left_out(training):
    page, record = training("layers=12", "heads=12", "half=31")
    note = page.locator("header .warning").inner_text().replace("\u00a0", " ")
    kept = int(slider(page).get_attribute("max")) + 1
    assert note == f"Note: {len(record.outline['snapshots']) - kept} of 60 snapshots are left out of the maps, so that the page stays below 4 MB. The curves include all of them."
    assert 2 < kept < 20
    for event in record.outline["events"]:
        page.locator(".events button", has_text=f"step {event['step']}:").click()
        assert step(page) == event["step"]
    assert page.locator(".training-heads canvas").count() == 144


def test_runs_too_large_for_maps_show_scores(training):
    page, record = training("layers=2", "heads=8", "half=250", "steps=8")
    assert "This page contains only scores." in page.locator("header .warning").inner_text()
    assert page.locator(".enlarged, .glass-section").count() == 0
    page.keyboard.press("ArrowLeft")
    assert step(page) == steps_of(record.outline)[-2]
    assert page.locator(".head-scores tbody tr").count() == 16


@pytest.mark.parametrize("settings", [(), ("layers=4", "heads=4", "half=31"), ("layers=12", "heads=12", "half=31"), ("untrusted=1",)])
def test_the_file_is_at_most_4_mb(settings):
    assert len(written("html", *settings)) <= 4_000_000


def test_untrusted_text_is_shown_as_text(training):
    page, record = training("untrusted=1")
    html = written("html", "untrusted=1").decode()
    assert html.count("<script") == 3 and html.count("</script>") == 3
    for name in ("explanation", "page"):
        data = re.search(f'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)[1]
        assert not re.search("[<>&\u2028\u2029\u202e\x00-\x08\x1b]", data)
    assert record["probe"]["tokens"][:4] == UNTRUSTED[:4]
    page.locator('[data-focus="glass table"]').click()
    page.locator('[data-focus="json"]').click()
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, link[rel=stylesheet], script[src]').length") == 0
    everything = page.evaluate("document.body.textContent + [...document.querySelectorAll('[aria-label]')].map(e => e.getAttribute('aria-label')).join(' ')")
    visible = page.evaluate("document.querySelector('main').innerText")
    for sign in "\x1b\x00\x07\u202e\u2028\u2029":
        assert sign not in visible
    assert UNTRUSTED_SHOWN in visible and "\\u{202e}evil" in everything
    assert UNTRUSTED_SHOWN in page.title()
    page.locator(".enlarged").focus()
    for _ in range(40):
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
    assert page.locator(".enlarged-head .readout").inner_text().startswith("“</script><img…” (0)")


def test_the_policy_is_that_of_every_page(training):
    page, _ = training()
    policy = page.evaluate("document.querySelector('meta[http-equiv=Content-Security-Policy]').content")
    assert re.fullmatch(r"default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]{43}='; style-src 'sha256-[A-Za-z0-9+/]{43}='; img-src data:; "
                        r"base-uri 'none'; form-action 'none'", policy)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("settings", [(), ("untrusted=1",), ("layers=12", "heads=12", "half=31")])
def test_text_has_contrast_in_both_themes(training, settings, theme):
    page, _ = training(*settings, color_scheme=theme)
    # SVG text has its color in fill.
    found = page.evaluate(CONTRAST.replace("getComputedStyle(element).color)", "element.closest('svg') ? getComputedStyle(element).fill : getComputedStyle(element).color)"))
    assert len(found) > 100
    assert not [place for place in found if place[0] < 4.5]


def test_the_theme_can_be_chosen(training):
    page, _ = training(color_scheme="light", address="#snapshot=21")
    page.locator('[data-focus="dark"]').click()
    assert step(page) == 187
    pixel = page.locator(".training-heads canvas").first.evaluate("c => [...c.getContext('2d').getImageData(0, 0, 1, 1).data]")
    assert pixel == [0x8c, 0xc4, 0xfa, 255]
    page.keyboard.press("p")
    assert page.evaluate("document.documentElement.hasAttribute('data-projector')")


@pytest.mark.parametrize("settings", [(), ("layers=12", "heads=12", "half=31"), ("untrusted=1",)])
def test_the_page_never_scrolls_sideways(training, settings):
    page, _ = training(*settings)
    for width in (1280, 800, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # The slider stays in view.
        page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
        assert slider(page).bounding_box()["y"] < 60


def test_no_text_of_the_charts_is_cut_off(training):
    for width in (1280, 390):
        page, _ = training("untrusted=1", width=width)
        outside = page.evaluate("""[...document.querySelectorAll('.chart text:not(.panel-title)')].filter(text => { const [box, frame] = [text.getBoundingClientRect(), text.closest('svg').getBoundingClientRect()];
            return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1; }).map(text => text.textContent)""")
        assert not outside


def test_tables_and_pictures_are_readable_by_screen_readers(training):
    page, _ = training()
    page.locator('[data-focus="glass table"]').click()
    for table in page.locator("table").all():
        assert table.locator("caption").count() == 1 and table.locator('th[scope="row"]').count() > 0 and table.locator('th[scope="col"]').count() > 2
    for picture in page.locator('[role="img"]').all():
        assert picture.get_attribute("aria-label")
    headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert headings[0] == 1 and all(b - a <= 1 for a, b in zip(headings, headings[1:]))
    assert all(page.evaluate("[...document.querySelectorAll('button')].map(b => b.getAttribute('aria-label') ?? b.textContent.trim())"))
    assert slider(page).get_attribute("aria-label") == "snapshot"


def test_moving_the_slider_creates_no_elements_of_the_figures(training):
    """60 snapshots × 16 heads at the screen's rate: maps, bars and lines keep their elements."""
    page, _ = training("layers=4", "heads=4", "half=31")
    created = page.evaluate("""() => new Promise(done => { let count = 0; const seen = new MutationObserver(all => { for (const one of all) for (const node of one.addedNodes) if (node instanceof Element) ++count; });
        seen.observe(document.body, { childList: true, subtree: true }); const slider = document.querySelector('input[type=range]');
        for (let i = 0; i < 60; ++i) { slider.value = String(i); slider.dispatchEvent(new Event('input')); }
        setTimeout(() => done(count), 0); })""")
    assert created <= 60  # the bold step of the readout


def test_print_has_the_figures_and_no_controls(training, tmp_path):
    page, _ = training()
    page.emulate_media(media="print")
    for gone in (".slider-track", ".play", ".switches", "details"):
        assert not page.locator(gone).first.is_visible()
    for kept in ("h1", ".training-heads", ".enlarged", ".time-chart", ".head-scores", ".glass", ".slider-readout"):
        assert page.locator(kept).first.is_visible()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_a_page_states_its_provenance(training):
    page, record = training()
    foot = page.locator("footer").inner_text()
    for text in (record["command"], record["version"], record["instruction_set"], *record["settings"]):
        assert text in foot
