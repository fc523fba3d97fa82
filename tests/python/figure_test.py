# SPDX-License-Identifier: Apache-2.0
"""regard.show: weights as a figure in a notebook, and as text elsewhere."""

import array
import base64
import collections
import ctypes
import html
import html.parser
import re
import zlib

import numpy as np
import pytest
import regard

WORDS = ["I", "love", "coding"]
WEIGHTS = [[1.0, 0.0, 0.0], [0.67, 0.33, 0.0], [0.024, 0.568, 0.408]]
UNTRUSTED = ["</script><img onerror=x>", "\x1b]0;title", "\u202eabc", "=1+1", "\x00", '" onmouseover="x']


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen, self.words, self.titles, self.pages = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.titles += [value for name, value in attributes if name == "title"]
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)
        if tag == "iframe":
            assert dict(attributes)["sandbox"] == "allow-scripts"
            self.pages.append(dict(attributes)["srcdoc"])

    def handle_data(self, data):
        self.words.append(data)


def test_the_text_shows_every_weight():
    assert repr(regard.show(WEIGHTS, WORDS)).splitlines() == [
        "            I   love  coding",
        "     I   1.00      ·       ·",
        "  love   0.67   0.33       ·",
        "coding   0.02   0.57    0.41",
        "(queries down, keys across; each row sums to 1; · is exactly 0)",
    ]


@pytest.mark.parametrize("weights", [np.array(WEIGHTS), np.array(WEIGHTS, dtype="f4")[None], tuple(map(tuple, WEIGHTS))])
def test_arrays_and_lists_give_the_same_text(weights):
    assert repr(regard.show(weights, WORDS)).splitlines()[2] == "  love   0.67   0.33       ·"


class Offers:
    """Exposes only the given protocols of a NumPy array."""

    def __new__(cls, numbers, *names):
        def attribute(value):
            return (lambda self, **options: value(**options)) if callable(value) else value

        return object.__new__(type("Offers", (), {name: attribute(getattr(numbers, name)) for name in names}))


EIGHTHS = np.arange(6, dtype="f4").reshape(2, 3) / 8


@pytest.mark.parametrize("weights", [
    memoryview(EIGHTHS), memoryview(EIGHTHS.astype("f8"))[::-1][::-1], memoryview(EIGHTHS.astype("f2")),
    (ctypes.c_float * 3 * 2)(*map(tuple, EIGHTHS)),
    Offers(EIGHTHS, "__dlpack__", "__dlpack_device__"), Offers(EIGHTHS, "__dlpack__"), Offers(EIGHTHS, "__array_interface__"),
    [array.array("f", row) for row in EIGHTHS], [memoryview(row) for row in EIGHTHS], tuple(EIGHTHS),
    [Offers(row, "__dlpack__") for row in EIGHTHS], collections.deque(map(tuple, EIGHTHS)),
], ids=lambda weights: type(weights).__name__)
def test_every_kind_of_array_gives_the_same_text(weights):
    assert repr(regard.show(weights, WORDS)) == repr(regard.show(EIGHTHS.tolist(), WORDS))


@pytest.mark.parametrize("batch", [1, 2])
def test_weights_returned_by_regard_are_shown(batch):
    numbers = np.random.default_rng(0).random((batch, 2, 3, 8), dtype="f4")
    given = memoryview(numbers)
    _, weights = regard.attention(given, given, given, return_weights=True)
    expected = regard.attention(numbers, numbers, numbers, return_weights=True)[1]
    assert regard.show(weights, WORDS)._repr_html_() == regard.show(expected[0] if batch == 1 else expected, WORDS)._repr_html_()


def test_html_is_a_table_with_every_word_and_digit():
    bundle = regard.show(WEIGHTS, WORDS, title="a title")._repr_mimebundle_()
    assert bundle["text/plain"].startswith("a title\n")
    tags = Tags(bundle["text/html"])
    assert tags.seen.count("td") == 9 and tags.seen.count("th") == 7 and "script" not in tags.seen
    assert "coding → love 0.568" in tags.titles
    assert [word for word in tags.words if word in WORDS] == WORDS + WORDS
    assert "url(" not in bundle["text/html"] and "http" not in bundle["text/html"]


def test_queries_can_have_separate_words():
    lines = repr(regard.show([[0.25, 0.75]], ["a", "b"], queries=["Q"])).splitlines()
    assert lines[:2] == ["       a      b", "Q   0.25   0.75"]
    assert repr(regard.show([[0.25, 0.75]], ["a", "b"])).splitlines()[1].startswith("0 ")


def alphas(text):
    """The alpha channel of every picture in the page, as rows."""
    for data in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", text):
        picture = base64.b64decode(data)
        width, height = (int.from_bytes(picture[at:at + 4], "big") for at in (16, 20))
        length = int.from_bytes(picture[33:37], "big")
        lines = np.frombuffer(zlib.decompress(picture[41:41 + length]), np.uint8).reshape(height, 1 + 2 * width)
        assert (lines[:, 0] == 0).all()
        yield lines[:, 2::2]


def test_each_head_is_a_map_with_its_own_scale():
    weights = np.random.default_rng(0).random((3, 5, 40)) * np.array([1, 0.1, 3])[:, None, None]
    page = regard.show(weights)._repr_html_()
    maps = list(alphas(page))
    assert len(maps) == 3
    assert "the largest weight of each map" in page
    for head, drawn in zip(weights, maps, strict=True):
        assert np.abs(drawn / 255 - head / head.max()).max() <= 0.51 / 255
    assert f"head 1, largest {weights[1].max():.4g}" in page


def test_a_shared_scale_makes_heads_comparable():
    weights = np.random.default_rng(0).random((3, 5, 40)) * np.array([1, 0.1, 3])[:, None, None]
    page = regard.show(weights, color_scale="shared")._repr_html_()
    for head, drawn in zip(weights, alphas(page), strict=True):
        assert np.abs(drawn / 255 - head / weights.max()).max() <= 0.51 / 255
    assert f"0<span class=\"regard-ramp\"></span>{weights.max():.4g};" in page and "of each map" not in page


def words_of(count):
    return [f"word{index}" for index in range(count)]


@pytest.mark.parametrize("count", [25, 40, 60])
def test_maps_of_up_to_60_words_are_labeled(count):
    weights = np.random.default_rng(0).random((count, count))
    tags = Tags(regard.show(weights, words_of(count))._repr_html_())
    assert [word for word in tags.words if word.startswith("word")] == words_of(count) * 2
    assert f"word3 → word7 {weights[3, 7]:.4g}" in tags.titles and len(tags.titles) == count * count + 1


def test_maps_of_several_heads_are_labeled():
    weights = np.random.default_rng(0).random((4, 10, 10))
    tags = Tags(regard.show(weights, words_of(10))._repr_html_())
    assert tags.words.count("word3") == 8
    assert all(f"word3 → word7 {head[3, 7]:.4g}" in tags.titles for head in weights)


def test_the_tooltip_of_a_row_of_a_large_map_lists_its_largest_weights():
    weights = np.random.default_rng(0).random((100, 100))
    weights[8] = 0
    weights[7, [3, 5, 70]] = [4, 6, 5]
    titles = Tags(regard.show(weights, words_of(100))._repr_html_()).titles
    assert "word7 → word5 6, word7 → word70 5, word7 → word3 4" in titles and "word8 → word0 0" in titles
    assert len(titles) == 101
    # The tooltip of a block of two rows lists the largest weight of each row.
    weights = np.random.default_rng(0).random((256, 256))
    weights[6, 200], weights[7, 9] = 2, 3
    titles = Tags(regard.show(weights, words_of(256))._repr_html_()).titles
    assert "word7 → word9 3, word6 → word200 2" in titles


@pytest.mark.parametrize("as_given", [
    lambda weights: weights, lambda weights: tuple(layer[None] for layer in weights), lambda weights: weights[:, None],
    lambda weights: [[head.tolist() for head in layer] for layer in weights],
], ids=["array", "tuple with a batch of one", "array with a batch of one", "lists"])
def test_layers_and_heads_are_a_grid(as_given):
    weights = np.random.default_rng(0).random((2, 3, 10, 10))
    figure = regard.show(as_given(weights), words_of(10))
    page = figure._repr_html_()
    maps = list(alphas(page))
    for head, drawn in zip(weights.reshape(6, 10, 10), maps, strict=True):
        assert np.abs(drawn / 255 - head / head.max()).max() <= 0.51 / 255
    tags = Tags(page)
    assert [word for word in tags.words if re.match("layer|head", word)] == ["head 0", "head 1", "head 2", "layer 0", "layer 1"]
    assert f"word3 → word7 {weights[1, 2, 3, 7]:.4g}" in tags.titles
    assert repr(figure) == "attention weights, 2 layers × 3 heads of 10 queries × 10 keys"


@pytest.mark.parametrize("shape", [(60, 60), (12, 64, 64), (6, 12, 10, 10), (6, 12, 128, 128), (24, 16, 40, 40), (1000, 1000)])
def test_a_saved_notebook_stays_small(shape):
    weights = np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.1), shape[:-1])
    page = regard.show(weights, words_of(shape[-1]))._repr_html_()
    assert len(page) < 1 << 20
    assert Tags(page).titles


def test_zero_weights_of_a_causal_map_are_dots():
    page = regard.show(WEIGHTS, WORDS)._repr_html_()
    assert [cell for cell in cells(page) if cell == "·"] == ["·"] * 3 and "· is exactly 0" in page
    assert 'class="regard-zero"' in page and "regard-ramp" in page
    assert "exactly" not in repr(regard.show([[0.5, 0.5]]))


def test_negative_numbers_have_typographic_minus_signs():
    assert repr(regard.show([[-0.5, -0.001, float("-inf"), 0.25]])).splitlines()[1].split() == ["0", "−0.50", ">−0.01", "−inf", "0.25"]


def test_large_maps_are_means_of_blocks():
    weights = np.random.default_rng(1).random((256, 384))
    page = regard.show(weights)._repr_html_()
    means = weights.reshape(128, 2, 128, 3).mean((1, 3))
    [drawn] = alphas(page)
    assert np.abs(drawn / 255 - means / means.max()).max() <= 0.51 / 255
    assert "128 × 128 cells of 256 × 384 weights" in page
    assert repr(regard.show(weights)) == "attention weights, 256 queries × 384 keys"


def test_untrusted_words_are_escaped():
    weights = np.full((6, 6), 1 / 6)
    figure = regard.show(weights, UNTRUSTED, title="<b>")
    tags = Tags(figure._repr_html_())
    assert not {"img", "script", "b"} & set(tags.seen) and '" onmouseover="x' in tags.words
    assert "\\u{202E}abc" in tags.words and "\\u{0}" in tags.words
    for shape in ((6, 6), (2, 6, 6), (2, 2, 6, 6)):
        figure = regard.show(np.full(shape, 1 / 6), UNTRUSTED, title="<b>")
        tags = Tags(figure._repr_html_())
        assert not {"img", "script", "b"} & set(tags.seen) and any('" onmouseover="x' in title for title in tags.titles)
        assert not re.search("[\x00\x1b\u202e]", figure._repr_html_())
    assert not re.search("[\x00\x1b\u202e]", repr(figure) + figure._repr_html_())


def test_nan_is_shown_as_nan():
    assert repr(regard.show([[float("nan"), 0.001]])).splitlines()[1].split() == ["0", "nan", "<0.01"]


@pytest.mark.parametrize("weights, options, message", [
    (np.zeros(3), {}, "has 1 axis;"),
    (np.zeros((3, 3)), {"tokens": WORDS[:1]}, r"tokens has 1 word; expected 3, the number of keys in weights \(3, 3\)"),
    (np.zeros((3, 2, 2, 3, 3)), {}, r"has a batch of 2; choose one entry: \[layer\[0\] for layer in weights\]"),
    (np.zeros((1, 1, 1, 2, 3, 3)), {}, r"has 6 axes; expected \(L, S\), \(H, L, S\) or \(layers, H, L, S\)"),
    ((np.zeros((1, 2, 3, 3)), np.zeros((1, 4, 3, 3))), {}, "ragged"),
    (np.zeros((3, 3)), {"color_scale": "log"}, "color_scale is 'log'; expected 'head' or 'shared'"),
    (array.array("f", [1, 2]), {}, "has 1 axis;"),
    (np.zeros((2, 3)), {"tokens": WORDS[:2]}, "tokens has 2 words; expected 3"),
    (np.zeros((2, 3)), {"tokens": WORDS, "queries": WORDS}, "queries has 3 words; expected 2"),
    ([[1.0], [0.5, 0.5]], {}, "ragged"),
    (np.zeros((9, 1000, 1000), dtype="f2"), {}, "pooled_map"),
])
def test_invalid_values_are_rejected(weights, options, message):
    with pytest.raises(ValueError, match=message):
        regard.show(weights, **options)


@pytest.mark.parametrize("weights, options, message", [
    ([["a", "b"]], {}, "weights contains 'a', of type str; expected numbers"),
    ([[None, 1.0]], {}, "contains None"),
    (np.ones((2, 2), complex), {}, r"contains \(1\+0j\), of type complex"),
    ([[1.0, [2.0]], [3.0, 4.0]], {}, r"contains \[2.0\], of type list"),
    (Offers(np.eye(2)), {}, r"show: weights is of type Offers; expected an array \(L, S\) or \(H, L, S\), or lists"),
    (None, {}, "weights is of type NoneType; expected an array"),
    ("weights", {}, "weights is of type str; expected an array"),
    ({0.5, 0.25}, {}, "weights is of type set; expected an array"),
    (1.0, {}, "weights is of type float; expected an array"),
    ([[{0.5}]], {}, r"weights contains \{0.5\}, of type set; expected numbers"),
    (Offers(np.eye(2).astype("O"), "__dlpack__"), {}, "weights is of type Offers, which NumPy cannot read: "),
    (np.eye(2), {"tokens": 5}, "tokens is of type int; expected a sequence of words"),
])
def test_invalid_types_are_rejected(weights, options, message):
    with pytest.raises(TypeError, match=message):
        regard.show(weights, **options)


def test_empty_arrays_are_shown():
    for shape in ((0, 3), (3, 0), (0, 0), (0, 3, 3), (2, 0, 3)):
        figure = regard.show(np.ones(shape))
        assert "queries down, keys across" in figure._repr_html_() and repr(figure)


def test_sums_to_1_are_mentioned_only_if_a_row_sums_to_1():
    assert "sums to 1" not in repr(regard.show(np.zeros((2, 2))))
    assert "each row sums to 1" in repr(regard.show([[0, 0], [0.25, 0.75]]))


def test_lists_of_arrays_and_iterables_of_words_are_accepted():
    heads = [np.eye(3), np.full((3, 3), 1 / 3)]
    assert regard.show(heads)._repr_html_() == regard.show(np.array(heads))._repr_html_()
    assert repr(regard.show(np.eye(2), iter("ab"), title=5)).splitlines()[:2] == ["5", "       a      b"]
    assert "1.00e+308" in repr(regard.show([[1e308]]))


def cells(page):
    """The text of every cell and heading before the collapsed part."""
    return [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<t[dh].*?</t[dh]>", page.split("<details>")[0])]


def test_a_result_shows_a_table_without_script_and_its_page_in_a_collapsed_frame():
    lesson = regard.lesson("three-words")
    bundle = lesson._repr_mimebundle_(include=None)
    assert bundle["text/plain"] == lesson.text() == repr(lesson)
    assert bundle["text/html"] == lesson._repr_html_()
    tags = Tags(bundle["text/html"])
    assert tags.pages == [lesson.html()]
    assert set(tags.seen) == {"style", "div", "p", "table", "thead", "tbody", "tr", "th", "td", "bdi", "details", "summary",
                              "iframe", "span"}
    assert "“love” attends most to “I” and “coding”: 0.4223 each" in html.unescape(bundle["text/html"].split("<table")[0])
    assert cells(bundle["text/html"]) == ["", "I", "love", "coding", "I", "0.12", "0.01", "0.88", "love", "0.42", "0.16", "0.42",
                                          "coding", "0.12", "<0.01", "0.88"]
    assert "queries down, keys across; each row sums to 1" in bundle["text/html"]


def test_a_result_whose_tokens_are_columns_states_this():
    page = regard.lesson("by-hand")._repr_mimebundle_()["text/html"].split("<details>")[0]
    assert "keys down, queries across; a column sums to 1" in page


def test_a_result_without_weights_shows_its_text():
    page = regard.lesson("why-scale")._repr_mimebundle_()["text/html"]
    assert html.escape(regard.lesson("why-scale").text().split("\n")[0]) in page.split("<details>")[0]


def test_untrusted_words_of_a_result_are_escaped():
    explanation = regard.explain({"tokens": UNTRUSTED, "title": "<b>", "Q": np.eye(6).tolist(), "K": np.eye(6).tolist(),
                                  "V": np.eye(6).tolist()})
    seen = explanation._repr_mimebundle_()["text/html"].split("<details>")[0]
    tags = Tags(seen)
    assert not {"img", "script", "b"} & set(tags.seen) and not re.search("[\x00\x1b\u202e]", seen)
    assert "</script><img onerror=x>" in tags.words
