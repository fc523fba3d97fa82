# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 (REGARD_TEST_MODEL) in `regard compare`, `regard heads` and `regard explain --save`: values that
transformers 5.23 computes in eager float32, and saved arrays that agree with each other and with the program."""

import json
import os

import numpy as np
import pytest

from program import environment, succeed

MODEL = os.environ["REGARD_TEST_MODEL"]
A = "he sat on the bank of the river"
B = "she put her money in the bank"
C = "they walked along the river bank at dawn"
UNICODE = environment(LC_ALL="C.UTF-8")


@pytest.fixture(name="document", scope="module")
def fixture_document():
    return json.loads(succeed("compare", "bank", A, B, C, "--hide", "river", "--model", MODEL, "--json"))


def pair(document, names):
    return next(entry for entry in document["pairs"] if entry["sentences"] == list(names))


def rounded(numbers):
    return [f"{number:.3f}" for number in numbers]


def test_cosines_of_bank_match_transformers(document):
    """With position and norm, then after each layer."""
    assert document["stages"] == ["word", "+position", "L0", "L1", "L2", "L3", "L4", "L5"]
    for names, expected in {"AB": "0.966 0.883 0.853 0.846 0.872 0.892 0.849",
                            "AC": "0.988 0.955 0.914 0.922 0.941 0.951 0.920",
                            "BC": "0.988 0.863 0.805 0.820 0.846 0.870 0.828"}.items():
        cosine = pair(document, names)["cosine"]
        assert cosine[0] == 1
        assert rounded(cosine[1:]) == expected.split()


def test_cosines_of_controls_and_floor_match_transformers(document):
    the = {names: next(c["cosine"] for c in pair(document, names)["controls"] if c["word"] == "the")
           for names in ("AB", "AC")}
    assert rounded(the["AB"]) == "1.000 0.932 0.928 0.879 0.784 0.807 0.819 0.432".split()
    assert rounded(the["AC"]) == "1.000 0.933 0.924 0.908 0.881 0.893 0.966 0.586".split()
    assert rounded(document["floor"]) == "0.091 0.072 0.180 0.233 0.287 0.302 0.291 0.248".split()
    assert document["floor_pairs"] == 243


def test_cosines_with_river_hidden_match_transformers(document):
    assert rounded(pair(document["hidden"], "AB")["cosine"]) == \
        "1.000 0.966 0.947 0.909 0.896 0.923 0.944 0.923".split()
    assert rounded(pair(document["hidden"], "AC")["cosine"]) == \
        "1.000 0.988 0.951 0.931 0.936 0.955 0.962 0.930".split()
    others = {other["word"]: rounded(other["cosine"][:2]) for other in document["hidden"]["others"]}
    assert others["she"] == ["0.791", "0.920"] and others["money"] == ["0.852", "0.920"]
    assert others["sat"] == ["0.855", "0.920"] and others["the"] == ["0.859", "0.942"]


def test_heads_that_attend_to_river(document):
    words = [word["text"] for word in document["sentences"][0]["words"]]
    attention = np.array(document["attention"][0])[..., words.index("river")]
    assert round(attention[0, 4], 2) == 0.71 and round(attention[0, 10], 2) == 0.65


def test_shares_of_heads_sum_to_100_and_match_transformers(document):
    share = 100 * np.array(pair(document, "AB")["share"])
    np.testing.assert_allclose(share.sum(axis=1), 100, rtol=1e-12)
    assert [f"{x:.1f}" for x in share[0]] == "7.0 0.3 2.4 12.5 38.4 3.0 2.1 0.3 0.9 1.4 30.4 1.4".split()
    assert f"{share[5, 0]:.1f}" == "-4.5"
    assert rounded(pair(document, "AB")["difference"]) == "4.544 3.858 3.407 2.604 1.969 4.885".split()


def test_the_text_claims_no_more_than_the_controls_allow():
    text = " ".join(succeed("compare", "bank", A, B, C, "--hide", "river", "--model", MODEL, env=UNICODE)
                    .decode().split())
    assert text.startswith("Between A and B, “bank” (cosine 0.849) does not differ more than the control “the” (0.432): on "
                           "its own, this shows nothing about “bank”. At L0 and L1, it does differ more. With “river” hidden, the "
                           "cosine of A and B changes from 0.849 to 0.923 (+0.074): the largest change of 16 tests")
    assert "the order may come from the sentences rather than from the word" in text


def test_a_head_that_attends_to_the_previous_token():
    """L0H2 attends to the previous token only."""
    heads = json.loads(succeed("heads", A, "--model", MODEL, "--json"))["heads"]
    head = next(head for head in heads if (head["layer"], head["head"]) == (0, 2))
    assert head["previous"]["mean"] > 0.999 and head["previous"]["uniform"] == pytest.approx(0.1)
    assert max(heads, key=lambda head: head["previous"]["mean"]) == head


def test_saved_arrays_are_consistent(tmp_path):
    succeed("explain", A, "--query", "bank", "--model", MODEL, "--save", tmp_path / "s")
    saved = json.loads((tmp_path / "s" / "tokens.json").read_text())
    arrays = {name: np.load(tmp_path / "s" / array["file"]).astype(float) for name, array in saved["arrays"].items()}
    assert arrays["weights"].shape == (6, 12, 10, 10) and arrays["hidden_states"].shape == (7, 10, 384)
    assert round(arrays["weights"][0, 4, 5, 8], 2) == 0.71
    np.testing.assert_allclose(arrays["context"], arrays["weights"] @ arrays["value"], atol=1e-5)
    np.testing.assert_allclose(arrays["scores"],
                               arrays["query"] @ arrays["key"].swapaxes(2, 3) / np.sqrt(32), atol=1e-4)
    # The same hidden states as in `regard compare`.
    succeed("explain", B, "--query", "bank", "--model", MODEL, "--save", tmp_path / "t", "--arrays", "hidden_states")
    one, two = arrays["hidden_states"][:, 5], np.load(tmp_path / "t" / "hidden_states.npy").astype(float)[:, 7]
    cosine = (one * two).sum(axis=1) / np.sqrt((one * one).sum(axis=1) * (two * two).sum(axis=1))
    compared = json.loads(succeed("compare", "bank", A, B, "--model", MODEL, "--json"))["pairs"][0]["cosine"]
    np.testing.assert_allclose(compared[1:], cosine, rtol=1e-12)
