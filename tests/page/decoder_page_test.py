# SPDX-License-Identifier: Apache-2.0
"""The page of a text in a decoder (tests/support/trained_model.py): each row against the --json of that token and head; later
tokens are left out; what depends on the kind of decoder."""

import json

import pytest

from conftest import WHOLE_ROW
from page_numbers_test import CELLS, styled
from program import succeed
from sentence_page_test import CHOOSE, prose, rows_of
from trained_model import HEADS, LAYERS, make_run

TEXT = "ab a-b\nab e"
TWO = {"digits": 2, "scientific": False}


@pytest.fixture(scope="session", name="runs")
def fixture_runs(tmp_path_factory):
    return {kind: make_run(tmp_path_factory.mktemp(f"run_{kind}"), llama=kind == "llama") for kind in ("gpt", "llama")}


def opened(pages, run, *arguments):
    path, data = pages.make("explain", TEXT, "--model", run, *arguments)
    return pages.open(path, WHOLE_ROW), data


# The words' shares and the ends of the arcs for each choice; the page draws arcs in a frame.
SHARES_AND_ARCS = """async choices => { const all = [];
    for (const one of choices) {
        (%s)(one);
        await new Promise(requestAnimationFrame);
        all.push([[...document.querySelectorAll('.words .share')].map(e => e.innerText),
            [...document.querySelectorAll('.words svg path')].map(e => Number(e.dataset.to))]);
    }
    return all; }""" % CHOOSE


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_every_row_equals_json_and_has_no_later_token(pages, runs, kind):
    page, data = opened(pages, runs[kind], "--query", "@7")
    assert data["model"]["causal"] is True
    choices = [(layer, head, token) for layer in range(LAYERS) for head in range(HEADS) for token in (0, 3, 7, len(TEXT) - 1)]
    for (layer, head, token), (shown, contributions) in zip(choices, rows_of(page, choices), strict=True):
        want = json.loads(succeed("explain", TEXT, "--model", runs[kind], "--query", f"@{token}", "--layer", str(layer),
                                  "--head", str(head), "--json"))["row"]
        for j, key in enumerate(want["words"]):
            if key["later"]:
                assert f"row {j} weight" not in shown
                continue
            assert shown[f"row {j} weight"] == styled(key["weight"], TWO)
            assert shown[f"row {j} q_dot_k"] == styled(want["q_dot_k"][0][j], TWO)
            assert shown[f"row {j} score"] == styled(want["scores"][0][j], TWO)
            assert contributions[f"contribution {j}"] == styled(key["contribution"], TWO)
    for (_, _, token), (shares, drawn) in zip(choices, page.evaluate(SHARES_AND_ARCS, choices), strict=True):
        assert shares[token + 1:] == [""] * (len(TEXT) - 1 - token)
        assert all(to < token for to in drawn)


def test_what_the_page_says_is_true_of_a_decoder(pages, runs):
    page, data = opened(pages, runs["gpt"], "--query", "@7")
    assert prose(page, "h1.finding") == data["findings"]["finding"]
    assert "uniform 0.12" in prose(page, ".evidence-heads figcaption")  # 1 / 8, rounded to even
    text = page.locator("main").inner_text()
    assert "a token attends to itself and to the tokens before it" in text
    assert "encoder" not in text and "[CLS]" not in text
    assert "hidden one at a time" in prose(page, ".evidence-hidden figcaption")
    rows = page.locator("table.path th").all_inner_texts()
    assert any(row.startswith("feed-forward of its norm") for row in rows)
    assert "added to the residual" in rows


def test_rotated_elements_are_not_shown_as_sums(pages, runs):
    path, data = pages.make("explain", TEXT, "--model", runs["llama"], "--query", "@7")
    chosen = data["chosen"]
    page = pages.open(path, f"#step=project&head={chosen['layer'] * HEADS + chosen['head']}&query=7")
    page.locator('[data-cell="project query 0"]').click()
    assert "rotated by the position" in prose(page, ".expand")
    page.locator('[data-cell="project value 0"]').click()
    assert "is the sum of 16 products and the bias" in prose(page, ".expand")


def test_hidden_tokens_are_marked_and_later_ones_are_not(pages, runs):
    page, data = opened(pages, runs["gpt"], "--query", "@7", "--hide", "@3")
    shown = page.evaluate(CELLS)
    assert shown["row 3 weight"] == "hidden"
    assert "row 9 weight" not in shown
    assert page.locator(".words .share").all_inner_texts()[3] == "hidden"
    assert data["hidden"] == [3]
