# SPDX-License-Identifier: Apache-2.0
"""Answers of the core have the text of the page that the native program writes on the set generic: every digit, and every
byte of query, key, value, row_max and row_sum."""

import json
import pathlib

import pytest

from lessons import LESSONS, OF_SENTENCES
from program import run, succeed
from sentence_model import make_folder
from wasm_module import Failed, GENERIC, Module, assert_same_answer, native_page

SENTENCES = (pathlib.Path(__file__).resolve().parents[1] / "encoder/sentences.txt").read_text(encoding="utf-8").splitlines()
ARRAYS = {"query", "key", "value", "row_max", "row_sum"}
SETTINGS = ({"scale": "none"}, {"scale": "floor_half"}, {"scale": 0.37}, {"causal": "bottom_right"}, {"softmax": "unshifted"},
            {"softmax": "ratio"}, {"softmax_base": 3}, {"dtype": "f32"}, {"heads": 2})


@pytest.fixture(scope="module")
def core():
    with Module("core.wasm") as module:
        yield module


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def opened(core, model):
    core.add_files(model)
    core.ask({"do": "open", "name": str(model)})
    return core


def test_the_core_has_every_lesson(core):
    assert [lesson["name"] for lesson in json.loads(core.ask({"do": "lessons"}))["lessons"]] == LESSONS


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson(core, name, tmp_path):
    page, command = native_page(tmp_path, "lesson", name)
    answer = core.ask({"do": "lesson", "name": name, "command": command})
    assert_same_answer(answer, page)
    assert json.loads(answer)["input"] == json.loads(succeed("lesson", name, "--export"))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "=".join(map(str, *setting.items())))
@pytest.mark.parametrize("name", OF_SENTENCES)
def test_a_lesson_with_another_setting(core, name, setting, tmp_path):
    """The same input is accepted, or rejected with the same message."""
    given = json.dumps(json.loads(succeed("lesson", name, "--export")) | setting)
    done = run("explain", "--input", "-", "--json", stdin=given.encode(), env=GENERIC)
    if done.returncode == 0:
        page, command = native_page(tmp_path, "explain", "--input", "-", stdin=given.encode())
        assert_same_answer(core.ask({"do": "explain", "command": command}, given), page)
        return
    with pytest.raises(Failed) as failure:
        core.ask({"do": "explain"}, given)
    core.restart()
    assert failure.value.name == "Error"
    assert failure.value.message.split(": ", 1)[-1] in done.stderr.decode()


def test_histograms_with_another_setting(core, tmp_path):
    given = json.dumps(json.loads(succeed("lesson", "why-scale", "--export")) | {"dtype": "f32"})
    page, command = native_page(tmp_path, "explain", "--input", "-", stdin=given.encode())
    assert_same_answer(core.ask({"do": "explain", "command": command}, given), page)


def sentence_page(folder, model, text, query, hidden, extra=()):
    return native_page(folder, "explain", text, "--model", model, "--query", query, "--truncate",
                       *(word for hide in hidden for word in ("--hide", hide)), *extra)


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_with_hidden_words(opened, model, text, tmp_path):
    for query, hidden in ("@2", []), ("@1", ["@3"]), ("@3", ["@1", "@2"]):
        page, command = sentence_page(tmp_path, model, text, query, hidden)
        answer = opened.ask({"do": "sentence", "text": text, "query": query, "hide": hidden, "command": command})
        assert_same_answer(answer, page)


def test_arrays_next_to_the_text_have_its_bytes(opened):
    request = {"do": "sentence", "text": SENTENCES[0], "query": "@1"}
    whole = json.loads(opened.ask(request))["page"]
    apart = json.loads(opened.ask({**request, "arrays": True}))["page"]
    arrays = opened.arrays
    for of_page, of_text in ((apart, whole), (apart["focus"], whole["focus"])):
        for name, value in of_page.items():
            if isinstance(value, str) and value.startswith("@"):
                of_page[name] = arrays[int(value[1:])]
    assert ARRAYS <= apart.keys() and len(arrays) > len(ARRAYS)
    assert apart == whole


def test_every_head_of_a_sentence(opened, model, tmp_path):
    text = "he sat on the bank of the river"
    assert ARRAYS <= json.loads(sentence_page(tmp_path, model, text, "bank", [])[0]["page"]).keys()
    for layer in range(3):
        for head in range(4):
            page, command = sentence_page(tmp_path, model, text, "bank", ["river"], ("--layer", str(layer), "--head", str(head)))
            answer = opened.ask({"do": "sentence", "text": text, "query": "bank", "hide": ["river"], "layer": layer,
                                 "head": head, "command": command})
            assert_same_answer(answer, page)


@pytest.mark.parametrize("hidden", [[], ["river"]], ids=["whole", "hidden"])
def test_a_comparison(opened, model, hidden, tmp_path):
    texts = ["he sat on the bank of the river", "she put her money in the bank", "they walked along the river bank at dawn"]
    page, command = native_page(tmp_path, "compare", "bank", *texts, "--model", model,
                       *(word for hide in hidden for word in ("--hide", hide)))
    answer = opened.ask({"do": "compare", "word": "bank", "sentences": texts, "hide": hidden, "command": command})
    assert_same_answer(answer, page, ("explanation",))
