# SPDX-License-Identifier: Apache-2.0
"""The output of `regard explain` on the real model (REGARD_TEST_MODEL): the informative head of the example, the size of
the output, and every printed digit compared with --json."""

import json
import math
import os
import pathlib
import re

import numpy as np
import pytest

from program import environment, printed_number, run, succeed

TEXT = "he sat on the bank of the river"
COMPARED = ["--compare-with", "she put her money in the bank", "--compare-with", "they walked along the river bank at dawn"]
MODEL = ["--model", os.environ["REGARD_TEST_MODEL"]]


def screen(*arguments, text=TEXT, **changes):
    done = run("explain", text, *MODEL, *arguments, env=environment(**{"LANG": "C.UTF-8", **changes}))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def document(*arguments, text=TEXT):
    return json.loads(succeed("explain", text, *MODEL, "--json", *arguments))


@pytest.mark.parametrize("named", [["--query", "bank"], []])
def test_bank_attends_to_the_river_in_layer_0_head_4(named):
    d = document(*named)
    chosen = d["chosen"]
    words = [word["text"] for word in d["words"]]
    assert (chosen["layer"], chosen["head"], words[chosen["word"]], words[chosen["target"]]) == (0, 4, "bank", "river")
    assert round(chosen["weight"], 2) == 0.71
    assert d["ranked_heads"]["baseline"] == "test_sentences"
    assert (d["ranked_heads"]["heads"][1]["layer"], d["ranked_heads"]["heads"][1]["head"]) == (0, 10)
    assert round(d["ranked_heads"]["heads"][1]["weight"], 2) == 0.65
    assert d["model"]["name"] == "all-MiniLM-L6-v2"
    text = " ".join(screen(*named).split())
    assert ("In layer 0, head 4, “bank” attends most to “river”: 71 % of its attention (uniform: 10 %; baseline of this "
            "head 3 words ahead: 7 %). This head was selected from 72, whose average is 6 % on “river” and 67 % on [CLS] and "
            "[SEP].") in text
    assert np.array(d["in_all_heads"]["weights"]).shape == (6, 12)
    assert np.sum(np.array(d["in_all_heads"]["weights"]) > chosen["weight"]) == 0
    assert f"{d['in_all_heads']['mean']:.3f}" == "0.063" and f"{d['in_all_heads']['special']:.2f}" == "0.67"


def test_hiding_river_changes_bank_most():
    d = document("--query", "bank")
    names = [word["name"] for word in d["words"]]
    got = [(names[one["word"]], f"{one['cosine']:.3f}") for one in d["hidden_alone"]]
    assert got == [("river", "0.939"), ("of", "0.980"), ("the#0", "0.983"), ("sat", "0.989"), ("he", "0.993"),
                   ("on", "0.994"), ("the#1", "0.999")]
    assert d["not_hidden_alone"] == 0
    text = " ".join(screen("--query", "bank").split())
    assert "Test: 7 other words, hidden one at a time. “bank” changes most without “river”." in text
    hidden = document("--query", "bank", "--hide", "river")
    assert hidden["hidden_alone"] == d["hidden_alone"]
    assert hidden["cosine_with_before"][-1] == pytest.approx(d["hidden_alone"][0]["cosine"], abs=1e-12)
    text = " ".join(screen("--query", "bank", "--hide", "river").split())
    assert "6 other words hidden one at a time: 0.980 (without “of”) to 0.999 (without “the#1”)" in text


def test_the_same_head_attends_to_the_river_of_a_river_project():
    """The caveat on the screen: a weight shows association, not word sense."""
    d = document("--query", "bank", "--layer", "0", "--head", "4", text="the bank lent the money to the river project")
    river = next(i for i, word in enumerate(d["words"]) if word["text"] == "river")
    assert f"{d['row']['words'][river]['weight']:.4f}" == "0.4186"
    assert "in “the bank lent the money to the river project”, L0H4 also gives 42 % of the attention of “bank” to “river”." in \
        " ".join(screen("--query", "bank").split())


@pytest.mark.parametrize("text", ["Der Hund läuft über die Straße und bellt laut.", "asdf qwer zxcv", "我爱编程",
                                  "Москва слезам не верит", "Er saß auf der Bank am Fluss."])
def test_a_text_outside_the_vocabulary_gets_a_warning(text):
    assert re.search(r"^Note: \d+ of \d+ words are not in the vocabulary", screen(text=text), re.MULTILINE)
    assert "not in the vocabulary" in document(text=text)["warning"]


def test_the_thirty_test_sentences_get_no_warning():
    lines = (pathlib.Path(__file__).resolve().parents[1] / "encoder" / "sentences.txt").read_bytes()
    measured = json.loads(run("heads", *MODEL, "--json", stdin=lines).stdout)
    assert len(measured["texts"]) == 30 and not any("warning" in text for text in measured["texts"])


def test_an_unknown_word_is_marked_wherever_it_is_shown():
    text = screen(text="I love 🍕")
    assert "attends most to “🍕”†" in text and "  🍕 † " in text and "·v(🍕†)" in text
    assert "† not in the vocabulary: the model sees [UNK], as for any such word" in " ".join(text.split())


def test_the_output_fits_one_screen():
    lines = screen("--query", "bank", *COMPARED).splitlines()
    assert len(lines) <= 38  # ./demo adds two
    assert max(map(len, lines)) <= 80


def figure(text):
    return 0.0 if text.startswith(("<", ">")) else printed_number(text)


@pytest.mark.parametrize("digits", [2, 5])
def test_every_digit_matches_json(digits):
    d = document("--query", "bank")
    text = screen("--query", "bank", "--digits", str(digits))
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  key ")) + 1
    half = 0.5 * 10 ** -digits * (1 + 1e-6)
    total = 0.0
    for word, key, line in zip(d["words"], d["row"]["words"], lines[first:]):
        dot, score, weight, contribution = re.fullmatch(r"  \S+(?: \*)? +(\S+) +(\S+) +(\S+) +[█▌]+ +(\S+)", line).groups()
        index = word["tokens"][0]
        assert figure(dot) == pytest.approx(d["row"]["q_dot_k"][0][index], abs=half)
        assert figure(score) == pytest.approx(d["row"]["scores"][0][index], abs=half)
        assert figure(weight) == pytest.approx(key["weight"], abs=half)
        assert figure(contribution) == pytest.approx(key["contribution"], abs=half)
        total += figure(weight)
    if abs(total - 1) > 0.5 * 10 ** -digits:
        assert f"rounded figures sum to {total:.{digits}f}" in text
    else:
        assert "the weights of a row sum to 1" in text


def test_the_expanded_sum_adds_up_in_printed_digits():
    for token in ("he", "sat", "bank", "river"):
        text = re.sub(r"−(?=\d)", "-", " ".join(screen("--query", token).split()))
        dot, terms = re.search(r" (-?[\d.]+) = (-?[\d.]+ \(d\d+\) .*? \(29 other products\)(?:; rounded figures sum to -?[\d.]+)?)", text).groups()
        products = [float((sign or "+").replace("−", "-") + number.lstrip("-")) if not number.startswith("-") else float(number)
                    for sign, number in re.findall(r"([+−])? ?(-?\d*\.\d+) \(", terms)]
        assert len(products) == 4
        rounded = re.search(r"rounded figures sum to (-?[\d.]+)", terms)
        assert sum(products) == pytest.approx(float(rounded.group(1) if rounded else dot), abs=1e-9)
        # e^ of the printed exponent is the printed exponential, to its digits.
        exponent, top, bottom = re.search(r" = e\^(-?[\d.]+) / \(.*?\) = ([\d.]+) / ([\d.]+)", text).groups()
        decimals = len(top.partition(".")[2])
        assert round(math.exp(float(exponent)), decimals) == float(top)
        assert float(top) <= float(bottom)


def test_hiding_the_river_removes_its_term_from_the_sum():
    d = document("--query", "bank", "--hide", "river")
    before, after = d["before"]["weights"][0], d["row"]["weights"][0]
    rest = sum(w for k, w in enumerate(before) if k != 8)
    for k, weight in enumerate(after):
        assert weight == pytest.approx(0 if k == 8 else before[k] / rest, abs=1e-6)
    assert 0.9 < d["cosine_with_before"][-1] < 0.96


ROUNDED = {"minilm-int8": "429ff8ec986be18e797da4f969b89a535961aacbc10e27456944010e360d13fd",
           "minilm-f16": "ade75c253d051553701c3d503d24cd124eb05199ea05bde5df699d7fb4b6c411"}


def by_name(command, name, *arguments):
    cache = pathlib.Path(os.environ["REGARD_TEST_MODEL"]).parents[1]
    return succeed(*command, "--model", name, *arguments, env=environment(LANG="C.UTF-8", REGARD_CACHE=cache))


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_models_have_a_name_and_a_hash_of_their_own(name):
    d = json.loads(by_name(("explain", TEXT), name, "--json"))
    assert (d["model"]["name"], d["model"]["sha256"]) == (name, ROUNDED[name])
    assert d["ranked_heads"]["baseline"] == "test_sentences"
    assert d["chosen"]["weight"] == pytest.approx({"minilm-int8": 0.707, "minilm-f16": 0.713}[name], abs=5e-4)
    assert "“bank” attends most to “river”: 71 % of its attention" in " ".join(by_name(("explain", TEXT), name).decode().split())
    for command in (("heads", TEXT), ("compare", "bank", TEXT, TEXT)):
        model = json.loads(by_name(command, name, "--json"))["model"]
        assert (model["folder"], model["sha256"]) == (name, ROUNDED[name])


def test_minilm_names_the_installed_model():
    assert by_name(("explain", TEXT), "minilm") == screen().encode()
