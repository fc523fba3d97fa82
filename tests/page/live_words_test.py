# SPDX-License-Identifier: Apache-2.0
"""The words of an edited text (web/live/words.js) and its address (web/live/link.js), in node."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

LIVE = pathlib.Path(__file__).resolve().parents[2] / "web" / "live"
NODE = pathlib.Path(sys.executable).parent / "node"
TEXT = "he sat on the bank of the river"


def evaluate(expression, *values):
    """The value of a JavaScript expression with the exports of the modules and v, the values."""
    program = f"""import * as words from {json.dumps((LIVE / "words.js").as_uri())}; import * as link from {json.dumps((LIVE / "link.js").as_uri())};
        const v = {json.dumps(values)}; console.log(JSON.stringify({expression}));"""
    done = subprocess.run([NODE if NODE.exists() else shutil.which("node"), "--no-warnings", "--input-type=module", "-e", program], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def follow(word, old, text, nearest=True):
    """The word of `text`, as a string, that word number `word` of `old` has become, or None."""
    return evaluate("(spans => { const i = words.follow(words.words_in(v[1])[v[0]], v[1], v[2], spans, v[3]); return i < 0 ? null : [i, spans[i].text]; })"
                    "(words.words_in(v[2]))", word, old, text, nearest)


@pytest.mark.parametrize("text, want", [(TEXT, TEXT.split()), ("don't stop!", ["don", "'", "t", "stop", "!"]), ("日本 bank", ["日", "本", "bank"]),
                                        ("  Café\tnaïve ", ["Café", "naïve"]), ("a<b €5", ["a", "<", "b", "€5"]), ("", [])])
def test_a_text_is_split_into_words(text, want):
    assert [one["text"] for one in evaluate("words.words_in(v[0])", text)] == want


@pytest.mark.parametrize("word, text, nearest, want", [
    (4, "now he sat on the bank of the river", True, [5, "bank"]),
    (4, "he sat on the banks of the river", True, [4, "banks"]),
    (4, "he sat on the of the river", True, [4, "of"]),
    (4, "he sat on the of the river", False, None),
    (7, "he sat on the bank of the money", False, [7, "money"]),
    (3, "he sat on bank of the river", True, [5, "the"]),
    (6, "he sat on the bank of the river in the rain", True, [6, "the"]),
    (4, "she put her money in the bank", True, [6, "bank"]),
    (7, "x", False, None),
    (7, "x", True, [0, "x"]),
    (0, "", True, None)])
def test_a_word_is_followed_through_an_edit(word, text, nearest, want):
    assert follow(word, TEXT, text, nearest) == want


def test_words_of_the_core_are_found_in_the_text():
    words = [{"text": text, "special": text.startswith("[")} for text in ("[CLS]", "the", "bank", "the", "[SEP]")]
    assert evaluate("words.places_of(v[0], v[1])", " the bank, the", words) == [
        None, {"text": "the", "begin": 1, "end": 4}, {"text": "bank", "begin": 5, "end": 9}, {"text": "the", "begin": 11, "end": 14}, None]


@pytest.mark.parametrize("text", [TEXT, "a&b=c#d +%20 \u2028 é 🙂 שלום", "", None])
def test_an_address_restores_its_texts(text):
    link = {"text": text, "second": "x & y", "hidden": [3, 12]}
    address = evaluate("link.link_of('#attention=sentence&head=4', v[0])", link)
    assert evaluate("link.read_link(v[0])", address) == link
    assert address.isascii() and " " not in address


def test_half_a_surrogate_pair_is_replaced_in_an_address():
    assert evaluate(r"link.read_link(link.link_of('#', { text: 'a\ud83dz', second: '', hidden: [] })).text") == "a\ufffdz"


@pytest.mark.parametrize("hash_text", ["#hidden=1,x,2,2,99999", "#hidden=1&hidden=7&text"])
def test_bad_entries_of_an_address_are_left_out(hash_text):
    assert evaluate("link.read_link(v[0])", hash_text)["hidden"] in ([1, 2], [1])
