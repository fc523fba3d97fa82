# SPDX-License-Identifier: Apache-2.0
"""The page of a sentence in a model (tests/support/sentence_model.py): each row that the page computes from query, key and
value against the --json of that word and head and against the library's float32 weights; its controls; its size."""

import base64
import json
import re

import numpy as np
import pytest

from conftest import WHOLE_ROW
from page_controls_test import READABLE
from page_numbers_test import CELLS, styled
from program import printed_number, succeed
from sentence_model import make_folder

TEXT = "he sat on the bank of the river"
TWO = {"digits": 2, "scientific": False}
CONTRIBUTIONS = """() => Object.fromEntries([...document.querySelectorAll('[data-name^="contribution "]')]
    .map(cell => [cell.dataset.name, cell.querySelector('.number')?.firstChild.data]))"""


@pytest.fixture(scope="session", name="model")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(name="sentence")
def fixture_sentence(pages, model):
    def open_sentence(*arguments, text=TEXT, address=WHOLE_ROW, **options):
        path, data = pages.make("explain", text, "--model", model, *arguments)
        return pages.open(path, address, **options), data

    return open_sentence


def json_of(model, word, layer, head, *arguments, text=TEXT):
    return json.loads(succeed("explain", text, "--model", model, "--query", f"@{word}", "--layer", str(layer), "--head", str(head),
                              "--json", *arguments))


def choose(page, layer, head, word):
    for button in (f"Layer {layer}", f"Head {head}", f"word {word}"):
        if page.locator(f'[data-focus="{button}"]').get_attribute("aria-pressed") != "true":
            page.locator(f'[data-focus="{button}"]').click()


# Chooses without the mouse.
CHOOSE = """([layer, head, word]) => { for (const name of [`Layer ${layer}`, `Head ${head}`, `word ${word}`]) {
    const button = document.querySelector(`[data-focus="${name}"]`);
    if (button.getAttribute('aria-pressed') !== 'true') button.click(); } }"""


def rows_of(page, choices):
    """The cells and contributions for each choice of a layer, a head and a word: in one task of the page, which draws each but
    paints none."""
    return page.evaluate("choices => choices.map(one => { (%s)(one); return [(%s)(), (%s)()]; })" % (CHOOSE, CELLS, CONTRIBUTIONS), choices)


def prose(page, place):
    """A sentence of the page with its no-break spaces (between a figure and its %) replaced."""
    return page.locator(place).inner_text().replace("\u00a0", " ")


def check_row(page, want):
    """The row on the page against --json of the same word and head."""
    check_cells(page.evaluate(CELLS), page.evaluate(CONTRIBUTIONS), want)


def check_cells(shown, contributions, want):
    single = all(len(word["tokens"]) == 1 for word in [want["words"][want["chosen"]["word"]]])
    for j, (word, key) in enumerate(zip(want["words"], want["row"]["words"])):
        if key["hidden"]:
            assert shown[f"row {j} weight"] == "hidden"
            continue
        assert shown[f"row {j} weight"] == styled(key["weight"], TWO)
        assert contributions[f"contribution {j}"] == styled(key["contribution"], TWO)
        if single and len(word["tokens"]) == 1:
            assert shown[f"row {j} q_dot_k"] == styled(want["row"]["q_dot_k"][0][word["tokens"][0]], TWO)
            assert shown[f"row {j} score"] == styled(want["row"]["scores"][0][word["tokens"][0]], TWO)
        else:
            assert shown[f"row {j} q_dot_k"] is None


def test_every_row_equals_json_in_every_digit(sentence, model):
    page, data = sentence("--query", "bank")
    choices = [(layer, head, word) for layer in range(data["model"]["layers"]) for head in range(data["model"]["heads"])
               for word in (0, 1, 5, len(data["tokens"]) - 1)]
    for (layer, head, word), (shown, contributions) in zip(choices, rows_of(page, choices), strict=True):
        check_cells(shown, contributions, json_of(model, word, layer, head))


def test_every_weight_matches_the_librarys(sentence, model, tmp_path):
    succeed("explain", TEXT, "--model", model, "--save", tmp_path / "arrays", "--arrays", "weights", cwd=tmp_path)
    weights = np.load(tmp_path / "arrays" / "weights.npy")
    page, data = sentence("--query", "bank")
    layers, heads, length, _ = weights.shape
    compared = 0
    choices = [(layer, head, 5) for layer in range(layers) for head in range(heads)]
    for (layer, head, _), (shown, _) in zip(choices, rows_of(page, choices), strict=True):
        for i in range(length):
            for j in range(length):
                assert shown[f"map {i} {j}"] == styled(weights[layer, head, i, j], TWO)
                compared += 1
    assert compared == weights.size


def test_it_opens_with_the_word_and_head_of_the_command(sentence):
    page, data = sentence("--query", "bank")
    chosen = data["chosen"]
    assert page.locator(".row-table .query-name").inner_text() == "query bank"
    assert page.locator(f'[data-focus="Layer {chosen["layer"]}"]').get_attribute("aria-pressed") == "true"
    assert page.locator(f'[data-focus="Head {chosen["head"]}"]').get_attribute("aria-pressed") == "true"
    assert prose(page, "h1") == data["findings"]["finding"]
    assert prose(page, ".selection") == data["findings"]["selection"]
    check_row(page, data)
    foot = page.locator("footer").inner_text()
    assert data["model"]["sha256"] in foot and data["command"] in foot


def test_words_of_several_pieces_are_shown_as_one(sentence, model):
    text = "embeddings of the embeddings"
    page, data = sentence("--query", "@1", text=text)
    assert any(len(word["tokens"]) > 1 for word in data["words"])
    assert page.locator(".sentence-figure button[data-word]").count() == len(data["words"])
    for word in range(len(data["words"])):
        choose(page, 0, 1, word)
        check_row(page, json_of(model, data["words"][word]["tokens"][0], 0, 1, text=text))
    choose(page, 0, 1, 1)
    cell = page.locator('[data-cell="row 1 weight"]')
    cell.click()
    assert "##" in page.locator(".row-table .expand").inner_text()


def test_a_hidden_word_is_hidden_from_every_query(sentence):
    page, data = sentence("--query", "bank", "--hide", "river")
    check_row(page, data)
    river = [word["text"] for word in data["words"]].index("river")
    assert page.locator(f'[data-cell^="map "][data-cell$=" {river}"]').all_inner_texts() == ["hidden"] * len(data["words"])


def test_special_tokens_can_be_hidden_and_shown(sentence):
    page, data = sentence("--query", "bank")
    every = len(data["words"])
    assert page.locator("button[data-word]").count() == every
    assert page.locator(".row-table tbody tr").count() == every
    page.locator('[data-focus="special"]').click()
    assert page.locator("button[data-word]").count() == every - 2
    marks = sum(key["weight"] for key in data["row"]["words"] if key["special"])
    assert page.locator(".marks-switch").inner_text().endswith(f"[CLS] and [SEP] receive {styled(marks, TWO)}")
    assert page.locator(".row-table tr.others th").inner_text() == "special tokens"
    assert page.locator(".row-table tr.others .number").inner_text() == styled(marks, TWO)
    page.locator('[data-focus="special"]').click()
    assert page.locator("button[data-word]").count() == every
    assert page.locator(".row-table tr.others").count() == 0


def test_every_head_and_every_hidden_word_has_a_mark(sentence):
    page, data = sentence("--query", "bank")
    target, layers = data["chosen"]["target"], data["model"]["layers"]
    weights = sorted(np.array(data["in_all_heads"]["weights"]).flatten())
    assert len(weights) == layers * data["model"]["heads"]
    ticks = "ticks => ticks.flatMap(one => one.dataset.weights.split(' ').map(Number))"
    drawn = sorted(page.locator(".evidence-heads [data-weights]").evaluate_all(ticks))
    # Each weight has its own tick.
    assert page.locator(".evidence-heads path.head").get_attribute("d").count("M") == len(weights) - 1
    assert np.allclose(drawn, weights, atol=1e-6)
    assert float(page.locator(".evidence-heads .shown").get_attribute("data-weights")) == pytest.approx(data["chosen"]["weight"], abs=1e-6)
    label = page.locator(".evidence-heads svg").get_attribute("aria-label")
    assert f"mean {styled(data['in_all_heads']['mean'], TWO)}" in label and f"“{data['words'][target]['name']}”" in label
    assert data["findings"]["association"] in prose(page, ".evidence-heads figcaption")
    cosines = [float(dot.get_attribute("data-cosine")) for dot in page.locator(".evidence-hidden circle").all()]
    assert cosines == [one["cosine"] for one in data["hidden_alone"]] and len(cosines) == len(data["words"]) - 3
    assert prose(page, ".evidence-hidden figcaption") == data["findings"]["evidence"]
    # Another head and another word: the weights of that pair, and no test with hidden words.
    choose(page, 1, 2, 3)
    assert page.locator(".evidence-hidden").count() == 0
    assert len(page.locator(".evidence-heads [data-weights]").evaluate_all(ticks)) == len(weights)
    page.keyboard.press("h")
    assert not page.locator(".evidence svg").is_visible()


def test_unknown_split_and_repeated_words_are_marked(sentence):
    page, data = sentence("--query", "bank", text="the bank of the 🍕 embeddings")
    shown = " ".join(page.locator(".sentence-figure .word").all_inner_texts())
    assert shown == "[CLS] the#0 bank of the#1 🍕† embeddings‡ [SEP]"
    assert [cell for cell in page.locator(".row-table tbody th").all_inner_texts()] == shown.split()
    assert page.locator(".sentence-header .caption").inner_text() == \
        "† not in the vocabulary: the model sees [UNK], as for any such word. ‡ split into pieces."
    assert page.locator(".warning").inner_text() == f"Note: {data['warning']}"


def test_hidden_words_stay_in_the_title(sentence):
    page, data = sentence("--query", "bank", "--hide", "river")
    assert prose(page, "h1") == data["findings"]["finding"]
    assert data["findings"]["finding"].startswith("In layer ") and ", with “river” hidden in all layers, " in data["findings"]["finding"]
    choose(page, 1, 2, 3)
    assert prose(page, "h1").startswith("With “river” hidden in all layers: In layer 1, head 2, ")


def test_lines_are_as_thick_as_weights(sentence):
    page, data = sentence("--query", "bank")
    page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
    thick = sorted(float(path.get_attribute("stroke-width")) for path in page.locator(".lines path").all())
    bank = data["chosen"]["word"]
    want = sorted(max(0.6, key["weight"] * 12) for j, key in enumerate(data["row"]["words"]) if j != bank and key["weight"] >= 0.005)
    assert len(thick) == len(want) and np.allclose(thick, want, atol=0.006)
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
    assert page.locator(".lines path").count() == len(thick)


def test_all_heads_are_sorted_filtered_and_chosen(sentence):
    """The number beneath each map is the one that orders them, and the note names it."""
    page, data = sentence("--query", "bank")
    count = data["model"]["layers"] * data["model"]["heads"]
    heads = page.locator(".heads button")
    note = page.locator(".all-heads .note p").first

    def numbers_below():
        return [printed_number(text) for text in page.locator(".heads .largest").all_inner_texts()]

    # First in the terminal's order.
    ranked = data["ranked_heads"]["heads"]
    assert [one.get_attribute("data-focus") for one in heads.all()] == [f"map {one['layer']} {one['head']}" for one in ranked]
    assert page.locator(".heads .largest").all_inner_texts() == [styled(one["salience"], TWO) for one in ranked]
    names = [word["name"] for word in data["words"]]
    assert page.locator(".heads .head-pair").all_inner_texts() == [f"→ {names[one['target']]}" for one in ranked]
    assert "Largest salience first: the weight that “bank” gives another word, minus the head’s baseline" in note.inner_text()
    page.locator('.heads [data-focus="map 1 0"]').click()
    assert page.locator('[data-focus="Layer 1"]').get_attribute("aria-pressed") == "true"
    assert page.locator('.heads [aria-pressed="true"]').get_attribute("data-focus") == "map 1 0"
    page.locator('[data-focus="sort attended"]').click()
    largest = numbers_below()
    assert largest == sorted(largest, reverse=True)
    assert largest == [printed_number(re.search(r"weight <?(\S+)$", one.get_attribute("title"))[1]) for one in heads.all()]
    assert "Largest weight first: the largest weight that “bank” gives to another word" in note.inner_text() and "Rows" not in note.inner_text()
    page.locator('[data-focus="filter clear"]').click()
    assert heads.count() == sum(weight >= 0.3 for weight in largest)
    page.locator('[data-focus="sort layer"]').click()
    assert "In order of layer and head" in note.inner_text()
    page.locator('[data-focus="filter all"]').click()
    assert [one.get_attribute("data-focus") for one in heads.all()] == [f"map {layer} {head}" for layer in range(data["model"]["layers"])
                                                                          for head in range(data["model"]["heads"])]
    assert "Rows are layers, and columns are heads. The number below each map is its largest weight." in note.inner_text()
    page.wait_for_function("() => [...document.querySelectorAll('.heads .largest')].every(e => e.textContent !== '')")
    assert heads.count() == count and len(numbers_below()) == count
    assert page.locator(".heads .head-pair").count() == 0


def test_heads_of_a_sentence_without_a_chosen_word_name_both_words(sentence):
    page, data = sentence()
    names = [word["name"] for word in data["words"]]
    assert page.locator(".heads .head-pair").all_inner_texts() == [f"{names[one['word']]} → {names[one['target']]}" for one in data["ranked_heads"]["heads"]]
    assert "the weight that one word gives another" in page.locator(".all-heads .note p").first.inner_text()


def test_the_projection_behind_a_query_is_shown(sentence):
    page, data = sentence("--query", "bank")
    page.locator(f'[data-cell="row {data["expanded"]["word"]} q_dot_k"]').click()
    text = page.locator(".row-table .expand").inner_text()
    want = data["expanded"]
    assert text.startswith(f"{styled(want['q_dot_k'], TWO)} is the sum of {len(want['products'])} products: ")
    dimension = want["products"][0]["dimension"]
    assert f"q[{dimension}]" in text and "(bias)" in text
    # Each product names its element of x and its parameter: row of x, column of the head.
    column = data["chosen"]["head"] * data["model"]["head_size"] + dimension
    parameters = re.findall(r"\(x\[(\d+)\] · W_query\[(\d+), (\d+)\]\)", text)
    assert len(parameters) >= 3 and all(i == j and int(k) == column for i, j, k in parameters)


def test_the_vectors_through_the_layer_are_shown_for_the_word_of_the_command(sentence):
    page, data = sentence("--query", "bank")
    norms = page.locator(".path tbody td:last-child").all_inner_texts()
    assert norms[:3] == [styled(data["row"][name], TWO) for name in ("input_norm", "head_contribution", "heads_contribution")]
    page.locator('[data-focus="word 1"]').click()
    assert page.locator(".path").count() == 0
    page.locator(f'[data-focus="word {data["chosen"]["word"]}"]').click()
    assert page.locator(".path").count() == 1


def test_the_address_stores_head_and_word(sentence, pages, model):
    page, data = sentence("--query", "bank")
    choose(page, 1, 2, 3)
    table = page.locator(".row-table").inner_text()
    again = pages.open(pages.make("explain", TEXT, "--model", model, "--query", "bank")[0], "#" + page.url.split("#")[1])
    assert again.locator(".row-table").inner_text() == table


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_sentence_has_contrast_and_fits_its_width(sentence, theme):
    from page_look_test import CONTRAST

    for width in (1280, 390):
        page, _ = sentence("--query", "bank", color_scheme=theme, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not [place for place in page.evaluate(CONTRAST) if place[0] < 4.5]


def test_an_untrusted_sentence_is_shown_as_text(sentence):
    page, data = sentence(text="he sat </script><img src=x onerror=alert(1)> \u202e= 1 <!--")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    words = page.locator(".sentence-figure .word").all_inner_texts()
    assert "<#0" in words and ">#0" in words and not any("\u202e" in word for word in words)


def test_the_foot_has_every_digit_of_the_row(sentence):
    page, data = sentence("--query", "bank")
    page.locator('summary[data-focus="table"]').click()
    page.locator("table.data tbody tr").last.wait_for()
    rows = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in page.locator("table.data tbody tr").all()]
    assert [row[0] for row in rows] == [word["name"] for word in data["words"]]
    for row, word, key in zip(rows, data["words"], data["row"]["words"]):
        token = word["tokens"][0]
        want = (data["row"]["q_dot_k"][0][token], data["row"]["scores"][0][token], key["weight"], key["contribution"])
        got = tuple(printed_number(row[n]) for n in (1, 2, 4, 5))
        assert got == pytest.approx(want, rel=1e-6)
    page.locator('[data-focus="word 1"]').click()
    assert "“he”" in page.locator("table.data caption").inner_text()
    page.locator('summary[data-focus="table"]').click()
    page.locator("table.data").wait_for(state="hidden")


def test_print_leaves_the_small_maps_out(sentence):
    page, _ = sentence("--query", "bank")
    page.emulate_media(media="print")
    for gone in (".all-heads", ".chooser", ".marks-switch button", "details"):
        assert not page.locator(gone).first.is_visible()
    for kept in (".sentence-figure", "h1", ".row-table", ".mix", ".path", ".map"):
        assert page.locator(kept).first.is_visible()


def test_small_maps_keep_their_pictures_and_follow_the_theme(sentence):
    page, _ = sentence("--query", "bank")
    ready = "[...document.querySelectorAll('.heads .largest')].every(e => e.textContent !== '')"
    pictures = "[...document.querySelectorAll('.heads canvas')].map(c => c.toDataURL())"
    page.locator('[data-focus="sort layer"]').click()
    page.wait_for_function(f"() => {ready}")
    before, numbers = page.evaluate(pictures), page.locator(".heads .largest").all_inner_texts()
    # Choosing another word draws the page again: the maps are kept.
    kept = page.evaluate("""() => { document.querySelector('[data-focus="word 1"]').click(); return [%s, %s]; }""" % (ready, pictures))
    assert kept == [True, before]
    page.locator('[data-focus="sort attended"]').click()
    assert sorted(page.evaluate(pictures)) == sorted(before)
    page.locator('[data-focus="sort layer"]').click()
    page.locator('[data-focus="dark"]').click()
    page.wait_for_function(f"() => {ready}")
    dark = page.evaluate(pictures)
    assert len(dark) == len(before) and not set(dark) & set(before)
    assert page.locator(".heads .largest").all_inner_texts() == numbers
    page.locator('[data-focus="light"]').click()
    page.wait_for_function(f"() => {ready}")
    assert page.evaluate(pictures) == before


def test_it_opens_with_the_projections(sentence):
    page, data = sentence("--query", "bank", address="")
    assert page.locator('[aria-current="step"]').inner_text() == "project"
    assert prose(page, "h1") == data["findings"]["finding"] and page.locator("h1").is_visible()
    page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
    assert page.locator(".evidence svg").first.is_visible() and page.locator(".sentence-figure .share").nth(5).inner_text() != ""
    heads = page.locator(".projection tbody th").all_inner_texts()
    target = data["words"][data["chosen"]["target"]]["name"]
    assert heads == ["x of bank", "q = x · W_query + b", f"x of {target}", "k = x · W_key + b", "v = x · W_value + b"]
    box = page.locator(".projection").bounding_box()
    assert box["y"] + 100 < 800


def test_with_a_word_hidden_the_projection_is_that_of_the_word_attended_to(sentence):
    page, data = sentence("--query", "bank", "--layer", "1", "--head", "2", "--hide", "sat", address="")
    target, attended = (data["words"][at]["name"] for at in (data["chosen"]["target"], data["expanded"]["word"]))
    assert target == "sat" != attended
    assert page.locator(".projection tbody th").all_inner_texts()[2] == f"x of {attended}"
    assert page.locator(".projection .absent").count() == 0


def test_projections_match_the_model(sentence, model):
    page, data = sentence("--query", "bank", address="")
    layer, head = data["chosen"]["layer"], data["chosen"]["head"]
    extra = page.evaluate("JSON.parse(document.getElementById('page').textContent)")
    head_size, heads = extra["depth"], extra["heads"]
    tokens = {"query": data["words"][data["chosen"]["word"]]["tokens"][0], "key": data["words"][data["chosen"]["target"]]["tokens"][0]}
    tokens["value"] = tokens["key"]
    for kind, token in tokens.items():
        numbers = page.evaluate("name => { const bytes = Uint8Array.from(atob(JSON.parse(document.getElementById('page').textContent)[name]), c => c.charCodeAt(0)); return [...new Float32Array(bytes.buffer)]; }", kind)
        mine = np.array(numbers, np.float32).reshape(-1, heads, len(data["tokens"]), head_size)[layer, head, token]
        spoken = page.locator(f'[data-cell^="project {kind} "]').evaluate_all("cells => cells.map(one => one.ariaLabel)")
        assert spoken == [styled(x, TWO) for x in mine]
        page.locator(f'[data-cell="project {kind} 3"]').click()
        text = page.locator(".projection .expand .sum").inner_text()
        assert text.startswith(f"{kind[0]}[3] = {styled(mine[3], TWO)} is the sum of {extra['width']} products and the bias: ")
        # The sum of the file's terms is the number.
        from_ = extra["focus"][f"{kind}_from"][3]
        x = np.frombuffer(base64.b64decode(extra["focus"][f"{'query' if kind == 'query' else 'key'}_input"]), np.float32).astype(np.float64)
        assert sum(x[i] * w for i, w in from_["largest"]) + from_["others"] + from_["bias"] == pytest.approx(float(mine[3]), abs=1e-4)
        i, w = from_["largest"][0]
        assert f"x[{i}] · W_{kind}[{i}, 3]" in page.locator(".projection .expand").inner_text()
    # For another head, the numbers are shown without their products.
    page.locator(f'[data-focus="Head {(head + 1) % heads}"]').click()
    page.locator('[data-cell="project query 0"]').click()
    assert "The file has the products only" in page.locator(".projection .expand").inner_text()


# Points on each arc, at most 1.5 pixels apart and with half of its thickness, that lie on a word or a number. The points come from
# the lines and curves of the path, whose length they must have: getPointAtLength measures a whole path for each of them.
CROSSINGS = """() => { const boxes = [...document.querySelectorAll('.sentence-figure .word, .sentence-figure .share')].filter(e => e.textContent !== '')
        .map(e => { const range = document.createRange(); range.selectNodeContents(e); const { left, right, top, bottom } = range.getBoundingClientRect();
            return { left, right, top, bottom, text: e.textContent }; });
    const points = (d) => { const all = []; let [x, y] = [0, 0];
        const to = (ax, ay, bx, by) => { const [x0, y0] = [x, y], count = Math.ceil(2 * (Math.hypot(ax - x0, ay - y0) + Math.hypot(bx - ax, by - ay)) / 1.5);
            for (let i = 1; i <= count; ++i) { const t = i / count, u = 1 - t; all.push([u * u * x0 + 2 * u * t * ax + t * t * bx, u * u * y0 + 2 * u * t * ay + t * t * by]); }
            [x, y] = [bx, by]; };
        const line = (bx, by) => to((x + bx) / 2, (y + by) / 2, bx, by);
        for (const [, command, numbers] of d.matchAll(/([A-Za-z])([^A-Za-z]*)/g)) { const n = numbers.trim().split(' ').map(Number);
            if (command === 'M') { [x, y] = n; all.push(n); }
            else if (command === 'H') line(n[0], y);
            else if (command === 'V') line(x, n[0]);
            else if (command === 'Q') to(...n);
            else throw new Error(command); }
        return all; };
    const found = []; const paths = [...document.querySelectorAll('.lines path')];
    for (const path of paths) { const { a, b, c, d, e, f } = path.getScreenCTM(), half = Number(path.getAttribute('stroke-width')) / 2, all = points(path.getAttribute('d'));
        const length = all.slice(1).reduce((sum, [x, y], i) => sum + Math.hypot(x - all[i][0], y - all[i][1]), 0);
        if (Math.abs(length - path.getTotalLength()) > 0.5) found.push('another path');
        for (const [px, py] of all) { const [x, y] = [a * px + c * py + e, b * px + d * py + f];
            for (const box of boxes) if (x > box.left - half && x < box.right + half && y > box.top + 2 - half && y < box.bottom + half) found.push(box.text); } }
    return [paths.length, [...new Set(found)]]; }"""

# How far each arc ends from the middle of its word.
ENDS = """() => [...document.querySelectorAll('.lines path')].map(path => { const end = path.getPointAtLength(path.getTotalLength()).matrixTransform(path.getScreenCTM());
    const word = document.querySelector(`[data-word="${path.dataset.to}"] .word`).getBoundingClientRect();
    return Math.max(Math.abs(end.x - word.left - word.width / 2), end.y - word.top); })"""

LONG = "It was a bright cold day in April and the clocks were striking thirteen when he slipped quickly through the glass doors of the old mansion"


@pytest.mark.parametrize("width", [1280, 800, 640, 390, 320])
@pytest.mark.parametrize("text", [TEXT, LONG])
def test_no_arc_crosses_a_word_or_a_number(sentence, text, width):
    page, data = sentence("--query", "bank" if text == TEXT else "clocks", text=text, address="", width=width)
    page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
    words = len(data["words"])
    for word in (1, words // 2, words - 2):
        page.locator(f'[data-focus="word {word}"]').click()
        page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
        for media in ("screen", "print"):
            page.emulate_media(media=media)
            count, crossed = page.evaluate(CROSSINGS)
            assert count >= 4 and crossed == []
            assert max(page.evaluate(ENDS)) < 1.5
        page.emulate_media(media="screen")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_predicting_hides_the_answer_of_a_sentence(sentence):
    page, data = sentence("--query", "bank", "--hide", "he", address="#step=softmax")
    page.keyboard.press("h")
    assert page.locator(".lines path, .evidence, .map, .heads, .path, .mix, details").count() == 0
    assert [text for text in page.locator(".share").all_inner_texts() if text != ""] == []
    text = page.evaluate(READABLE).replace("\u00a0", " ")
    assert data["findings"]["finding"] not in text and data["findings"]["selection"] not in text
    for key in data["row"]["words"]:
        assert key["hidden"] or f" {styled(key['weight'], TWO)} " not in text.replace("query", "") or key["weight"] < 0.2
    page.keyboard.press("h")
    page.wait_for_function("() => document.querySelectorAll('.lines path').length > 0")
    assert page.locator(".evidence, .heads, .path").count() == 3
