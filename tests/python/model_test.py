# SPDX-License-Identifier: Apache-2.0
"""Models, explanations, lessons and comparisons through the Python package, on the small model of sentence_model.py."""

import html
import importlib
import json
import re

import numpy as np
import pytest
import regard
from sentence_model import make_folder

TEXT = "he sat on the bank of the river"
OTHER = "she put her money in the bank"


@pytest.fixture(name="model", scope="module")
def fixture_model(tmp_path_factory):
    return regard.load_model(make_folder(tmp_path_factory.mktemp("model")))


def test_a_model_has_its_layers_heads_and_tokens(model):
    assert model.num_layers >= 1 and model.width % model.num_heads == 0
    assert model.tokens("the bank") == ["[CLS]", "the", "bank", "[SEP]"]


def test_a_folder_without_a_model_is_named_in_the_error(tmp_path):
    with pytest.raises(RuntimeError, match=str(tmp_path)):
        regard.load_model(tmp_path)
    for name in (b"\xff", "\udcff"):  # a name that is not valid UTF-8, as bytes and as str
        with pytest.raises(RuntimeError, match="config.json: cannot be opened"):
            regard.load_model(name)


@pytest.mark.parametrize("value, shown", [
    ('"\\u001b]0;x\\u0007\\u001b[31m\\u202e"', '"\\u{1b}]0;x\\u{7}\\u{1b}[31m\\u{202e}"'),
    ('"a' + 60 * "é" + '"', '"a' + 39 * "é" + '"'),  # truncated where a character ends
])
def test_error_messages_escape_file_contents(tmp_path, value, shown):
    folder = tmp_path / "\x1b]0;x\x07"
    folder.mkdir()
    make_folder(folder)
    config = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace('"bert"', value), encoding="utf-8")
    with pytest.raises(RuntimeError) as rejected:
        regard.load_model(folder)
    assert f"model_type is {shown}; expected" in str(rejected.value) and "/\\u{1b}]0;x\\u{7}/" in str(rejected.value)
    assert str(rejected.value).isprintable()


@pytest.mark.parametrize("folder", [5, 0.5, object(), ["minilm"]])
def test_a_folder_that_is_not_a_path_is_rejected(folder):
    with pytest.raises(TypeError, match="load_model: folder is of type .*; expected str or os.PathLike"):
        regard.load_model(folder)


def test_embeddings_have_norm_1_and_do_not_depend_on_other_texts(model):
    vectors = regard.embed(model, [TEXT, OTHER])
    assert vectors.shape == (2, model.width) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert np.array_equal(regard.embed(model, [OTHER])[0], vectors[1])
    assert regard.embed(model, []).shape == (0, model.width)
    with pytest.raises(ValueError, match=r"embed: texts\[1\]: the text has .* truncate=True"):
        regard.embed(model, [TEXT, "bank " * 10_000])


def test_invalid_matrices_are_rejected():
    with pytest.raises(ValueError, match="^explain: Q is empty"):
        regard.explain({"tokens": [], "Q": [], "K": [], "V": []})
    with pytest.raises(ValueError, match="JSON"):
        regard.explain({"tokens": ["a"], "Q": [[float("nan")]], "K": [[1]], "V": [[1]]})
    with pytest.raises(RuntimeError, match="^explain: byte 20: Q is empty"):
        regard.explain('{"tokens": [], "Q": [], "K": [], "V": []}')


def test_a_sentence_is_explained_with_a_model(model):
    story = regard.explain(TEXT, model=model, query="bank", layer=0, head=1)
    document = json.loads(story.json())
    assert document["schema"] == "regard/1" and "bank" in str(story) and "bank" in story.text(width=100)
    assert story.html().startswith("<!")
    shown = html.unescape(re.sub("<.*?>", "", story._repr_mimebundle_()["text/html"].split("<details>")[0]))
    for finding in document["findings"].values():
        assert finding in shown
    assert "the#1" in shown and "contribution" in shown
    with pytest.raises(ValueError, match="the text is empty"):
        regard.explain(" ", model=model)
    with pytest.raises(ValueError, match="money"):
        regard.explain(TEXT, model=model, query="money")
    for what in (5, {"tokens": ["he"]}, ["he", "sat"], b"he sat"):
        with pytest.raises(TypeError, match="input with a model is of type .*; expected str"):
            regard.explain(what, model=model)
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        regard.explain("\ud800", model=model)


def test_matrices_are_explained_step_by_step():
    given = {"tokens": ["I", "love", "coding"],
             "Q": [[1, 0], [0, 1], [1, 1]], "K": [[1, 0], [0, 1], [1, 1]], "V": [[1, 2], [3, 4], [5, 6]]}
    explanation = regard.explain(given, query="love")
    steps = json.loads(explanation.json())["steps"]
    weights = next(step for step in steps if step["name"] == "weights")
    query, key = np.array(given["Q"], float), np.array(given["K"], float)
    scores = np.exp(query @ key.T / np.sqrt(2))
    np.testing.assert_allclose(weights["result"], scores / scores.sum(1, keepdims=True), rtol=1e-12)
    assert explanation.text() == str(explanation) and "love" in explanation.text(step="weights")
    assert explanation.html().startswith("<!")
    assert regard.explain(json.dumps(given), query="love").json() == explanation.json()
    with pytest.raises(ValueError, match="expected a model"):
        regard.explain(given, layer=0)
    with pytest.raises(RuntimeError, match="byte"):
        regard.explain("{")
    with pytest.raises(ValueError, match=r"expected matrices as JSON, or a sentence with model=regard\.load_model\(folder\)"):
        regard.explain(TEXT)
    with pytest.raises(TypeError, match=r"explain: input contains a value that JSON cannot represent: .*ndarray.*\.tolist\(\)"):
        regard.explain({**given, "Q": query})
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        regard.explain("\ud800")


@pytest.mark.parametrize("name", regard.lesson_entries())
def test_every_lesson_is_rendered(name):
    lesson = regard.lesson(name)
    assert json.loads(lesson.json())["schema"] == "regard/1" and len(str(lesson)) > 200
    assert str(regard.lesson(name, layout="columns")) != str(regard.lesson(name, layout="rows"))


def test_an_unknown_lesson_gets_a_list_of_lessons():
    with pytest.raises(ValueError, match="three-words"):
        regard.lesson("100")


def test_a_word_is_compared(model):
    comparison = regard.compare(model, "bank", [TEXT, OTHER])
    assert json.loads(comparison.json())["schema"] == "regard/1"
    assert comparison.findings() and "bank" in str(comparison) and comparison.html().startswith("<!")
    with pytest.raises(ValueError, match="1 sentence to compare"):
        regard.compare(model, "bank", [TEXT])


def test_notebook_output_marks_words_outside_the_vocabulary(model):
    page = regard.compare(model, "bank", ["the bank \U0001f355 embeddings", "a \U0001f355 bank"])._repr_html_().split("<details>")[0]
    assert "A: the bank \U0001f355 † embeddings ‡" in page and "B: a \U0001f355 † bank" in page
    assert "† not in the vocabulary: the model sees [UNK]; ‡ split into pieces" in page
    assert "Note: A: 2 of 4 words are not in the vocabulary" in page


def test_notebook_output_formats_numbers_as_the_terminal_does(model):
    story = regard.explain("he sat on the bank of the river", model=model, query="bank")
    page = html.unescape(story._repr_html_().split("<details>")[0])
    cells = re.findall(r"<td[^>]*>([^<]*[0-9])</td>", page)
    assert cells and not [cell for cell in cells if cell.startswith((".", "-"))]
    number = importlib.import_module("regard.results")._number
    assert [number(x, 2) for x in (-0.444, 0.001, -0.001, 0.0, 1.0)] == ["−0.44", "<0.01", ">−0.01", "0.00", "1.00"]
    # q·k and ÷√D of each word, as in the terminal's table.
    for row in re.findall(r"<tr.*?</tr>", page)[1:]:
        word, *numbers = re.findall(r">([^<>]+)<", row)
        line = next(line for line in story.text().splitlines() if line.startswith(f"  {word} ") and len(line.split()) > 4)
        assert numbers[:2] == line[2:].replace(word, "").split()[:2], (word, line)
