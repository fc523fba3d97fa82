# SPDX-License-Identifier: Apache-2.0
"""`regard explain "text"` on a small model (sentence_model.py): the JSON, checked with NumPy; the screen, checked against
the JSON; the options; and the one-line error of each invalid input."""

import json
import re

import numpy as np
import pytest

from program import environment, fail, printed_number, run, succeed
from sentence_model import make_folder

TEXT = "he sat on the bank of the river"
UTF8 = environment(LANG="C.UTF-8")


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


def explained(folder, *arguments, text=TEXT):
    document = json.loads(succeed("explain", text, "--model", folder, "--json", *arguments))
    assert list(document)[0] == "schema" and document["schema"] == "regard/1"
    return document


def screen(folder, *arguments, text=TEXT, **changes):
    return succeed("explain", text, "--model", folder, *arguments,
                   env=environment(**{"LANG": "C.UTF-8", **changes})).decode()


def test_every_figure_follows_from_the_previous_one(folder):
    d = explained(folder, "--query", "bank")
    row, size = d["row"], d["model"]["head_size"]
    dots, scores, weights = (np.array(row[name]) for name in ("q_dot_k", "scores", "weights"))
    np.testing.assert_allclose(scores, dots / np.sqrt(size), rtol=1e-13)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(weights, exponentials / exponentials.sum(axis=1, keepdims=True), rtol=1e-12)
    for word, key in zip(d["words"], row["words"]):
        assert key["weight"] == pytest.approx(weights[:, word["tokens"]].sum(axis=1).mean(), rel=1e-12)
    expanded = d["expanded"]
    products = expanded["products"]
    assert sorted(term["dimension"] for term in products) == list(range(size))
    assert all(term["product"] == term["query"] * term["key"] for term in products)
    assert sum(term["product"] for term in products) == pytest.approx(expanded["q_dot_k"], rel=1e-12)
    assert expanded["exponential"] / expanded["sum"] == pytest.approx(expanded["weight"], rel=1e-12)
    saliences = [head["salience"] for head in d["ranked_heads"]["heads"]]
    assert saliences == sorted(saliences, reverse=True) and len(saliences) == d["model"]["layers"] * d["model"]["heads"]
    assert d["ranked_heads"]["baseline"] == "this_sentence"
    assert d["token_ids"] == [2, 5, 6, 7, 8, 9, 10, 8, 11, 3]
    assert re.fullmatch("[0-9a-f]{64}", d["model"]["sha256"])
    assert d["command"].startswith("regard explain") or "explain" in d["command"]


def rounds(text, number):
    """Whether a printed figure with two decimals, or with < or >, represents this number."""
    if text.startswith(("<", ">")):
        return 0 < abs(number) < 0.005
    return printed_number(text) == pytest.approx(number, abs=0.005 + 1e-9)


@pytest.mark.parametrize("token", ["he", "sat", "bank", "river"])
def test_the_screen_agrees_with_the_json(folder, token):
    d = explained(folder, "--query", token)
    lines = screen(folder, "--query", token).splitlines()
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("  key ")) + 1:][:len(d["words"])]
    for word, key, line in zip(d["words"], d["row"]["words"], table):
        name, dot, score, weight, adds = re.fullmatch(r"  (\S+)(?: \*)? +(\S+) +(\S+) +(\S+) +[█▌]+ +(\S+)", line).groups()
        assert name == word["name"]
        index = word["tokens"][0]
        for text, number in ((dot, d["row"]["q_dot_k"][0][index]), (score, d["row"]["scores"][0][index]),
                             (weight, key["weight"]), (adds, key["contribution"])):
            assert rounds(text, number), line
    # Decimal points are aligned.
    ends = {line.rindex(".") for line in table}
    assert len(ends) == 1


def test_a_hidden_word_has_no_weight(folder):
    d = explained(folder, "--query", "bank", "--hide", "river", "--layer", "0", "--head", "1")
    before, after = (np.array(d[name]["weights"][0]) for name in ("before", "row"))
    river = 8
    expected = before.copy()
    expected[river] = 0
    np.testing.assert_allclose(after, expected / expected.sum(), rtol=1e-5, atol=1e-7)
    assert d["row"]["scores"][0][river] == "-inf" and d["hidden"] == [river]
    text = screen(folder, "--query", "bank", "--hide", "river", "--layer", "0", "--head", "1")
    assert "hidden" in text and "now" in text
    assert d["cosine_with_before"][-1] < 1


def test_a_text_from_standard_input_gives_the_same_screen(folder):
    piped = run("explain", "-", "--model", folder, "--query", "bank", stdin=(TEXT + "\n").encode(), env=UTF8)
    assert piped.returncode == 0 and piped.stdout.decode() == screen(folder, "--query", "bank")


def test_color_does_not_change_the_text(folder):
    assert "\x1b" not in screen(folder)
    colored = screen(folder, "--color", "always")
    assert "\x1b[" in colored
    assert re.sub("\x1b\\[[0-9]*m", "", colored) == screen(folder)


def test_without_utf_8_the_screen_is_ascii(folder):
    assert screen(folder, "--full", "--all-heads", LANG="C").isascii()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_screen_fits_the_width(folder, width):
    for arguments in ([], ["--hide", "river"], ["--all-heads"], ["--full"]):
        for line in screen(folder, *arguments, COLUMNS=str(width)).splitlines():
            assert len(line) <= width


def test_digits_sort_top_and_all_heads_change_the_screen(folder):
    assert re.search(r"river +\S+\.\d{4} ", screen(folder, "--query", "bank", "--digits", "4"))
    three = screen(folder, "--query", "bank", "--top", "3", "--sort", "weight")
    weights = [float(w) for w in re.findall(r"^  \S+(?: \*)? +\S+ +\S+ +([01]\.\d\d) +[█▌]", three, re.MULTILINE)]
    assert weights[:3] == sorted(weights[:3], reverse=True) and "7 others" in three
    assert len(re.findall(r"^  L\dH\d ", screen(folder, "--all-heads"), re.MULTILINE)) == 12


def test_compare_with_appends_a_comparison(folder):
    text = screen(folder, "--query", "bank", "--compare-with", "she put her money in the bank")
    assert text.startswith("A  ") and "A and B" in text


def test_invalid_arguments_are_rejected(folder, tmp_path):
    def reject(words, *arguments, code=2):
        fail(code, words, "explain", *arguments, cwd=tmp_path)

    model = ["--model", folder]
    reject('"money" is not in this text', TEXT, *model, "--query", "money")
    reject(["occurs 2 times", "the#1"], TEXT, *model, "--query", "the")
    reject('"money" is not in this text', TEXT, *model, "--hide", "money")
    reject("--layer and --head", TEXT, *model, "--layer", "1")
    reject("L3H0 does not exist", TEXT, *model, "--layer", "3", "--head", "0")
    reject("--layer is -1", TEXT, *model, "--layer", "-1", "--head", "0")
    reject("--top is 0", TEXT, *model, "--top", "0")
    reject("--sort", TEXT, *model, "--sort", "size")
    reject("--digits is 18", TEXT, *model, "--digits", "18")
    reject("--causal", TEXT, *model, "--causal")
    reject("--step", TEXT, *model, "--step", "weights")
    reject("--input", TEXT, "--input", "x.json")
    reject("--hide applies only to a sentence", "--hide", "river", "--input", "x.json")
    reject("--compare-with", TEXT, *model, "--json", "--compare-with", TEXT)
    reject(["52 tokens", "40", "--truncate"], "he sat " * 25, *model)
    reject("nothing to explain")
    for empty in ("", "  ", "\t"):
        reject("the text is empty; expected at least one word", *model, "--", empty)
        fail(2, "sentence B: the text is empty", "compare", "bank", *model, "--", "the bank", empty, cwd=tmp_path)
        fail(2, "the text is empty", "heads", *model, "--", empty or " ", cwd=tmp_path)
    reject("unexpected argument: another; put a text of several words in quotes", TEXT, "another", *model)
    reject("unexpected arguments: sat on the bank;", "he", "sat", "on", "the", "bank", *model)
    reject("config.json", TEXT, "--model", tmp_path, code=1)
    assert "The text is truncated: 12" in screen(folder, "--truncate", text="he sat " * 25)


def test_without_a_model_the_remedy_is_named(tmp_path):
    fail(1, "regard pull minilm", "explain", TEXT, cwd=tmp_path, env=environment(REGARD_CACHE=str(tmp_path / "none")))


@pytest.mark.parametrize("text", ["</script><img onerror>", "a \x1b]0;x\x07 bank", "\u202ebank", "\\input{x} =1+1",
                                  "bank", "the the the", "😀 河 é", "he " * 38])
def test_any_text_gives_a_screen_without_control_characters(folder, text):
    shown = screen(folder, text=text)
    assert not any(ord(c) < 32 and c != "\n" for c in shown) and "\u202e" not in shown
    assert len(shown.splitlines()) <= 40
    json.loads(succeed("explain", text, "--model", folder, "--json"))


def test_piped_texts_and_repeated_words_are_compared(folder):
    beside = ("--compare-with", "she put her money in the bank")
    want = screen(folder, "--query", "bank", *beside)
    piped = succeed("explain", "-", "--model", folder, "--query", "bank", *beside, stdin=TEXT.encode() + b"\n", env=UTF8).decode()
    assert piped == want
    twice = screen(folder, "--query", "the#1", *beside)
    assert "of “the” in A" in twice and twice != screen(folder, "--query", "the#0", *beside)


def test_the_screen_ends_with_the_address_of_the_page(folder, tmp_path):
    want = screen(folder, "--query", "bank")
    (tmp_path / "a b").mkdir()
    for name, address in (("p.html", "p.html"), ("a b/é#1%.html", "a%20b/%C3%A9%231%25.html"), ("./a b/../q.html", "q.html")):
        got = succeed("explain", TEXT, "--model", folder, "--query", "bank", "--html", name, cwd=tmp_path, env=UTF8).decode()
        assert got == f"{want}\n  page   file://{tmp_path}/{address}   step by step, all 12 heads\n"
        assert (tmp_path / name).read_bytes().startswith(b"<!doctype html>")
    pure = succeed("explain", TEXT, "--model", folder, "--query", "bank", "--html", "-", env=UTF8)
    assert pure.startswith(b"<!doctype html>") and pure.endswith(b"</html>\n")
    text = succeed("compare", "bank", TEXT, "the bank", "--model", folder, env=UTF8).decode()
    got = succeed("compare", "bank", TEXT, "the bank", "--model", folder, "--html", "c.html", cwd=tmp_path, env=UTF8).decode()
    assert got == f"{text}\n  page   file://{tmp_path}/c.html   cosine similarity by layer\n"
    fail(2, ["--html", "--json"], "compare", "bank", TEXT, "the bank", "--model", folder, "--html", "-", "--json",
         cwd=tmp_path)
