# SPDX-License-Identifier: Apache-2.0
"""The core with the weights of MiniLM in int8: the 30 test sentences have the text of the page that the native program
writes on the set generic, and memory stays below 200 MB (./check model)."""

import pytest

from program import succeed
from wasm_module import GENERIC, Module, assert_same_answer, native_page
from digits_test import SENTENCES, command_of

MAX_MEMORY_BYTES = 200_000_000
NAME = "minilm-int8"


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The files of the model as `regard live` writes them."""
    folder = tmp_path_factory.mktemp("site") / "files"
    succeed("live", "--site", folder, env=GENERIC)
    with Module("core.wasm") as module:
        module.add_files(folder)
        module.ask({"do": "open", "name": NAME})
        yield module


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_with_a_hidden_word(core, text, tmp_path):
    for query, hidden in ("@2", []), ("@1", ["@3"]):
        page = native_page(tmp_path, "explain", text, "--model", NAME, "--query", query,
                           *(word for hide in hidden for word in ("--hide", hide)))
        answer = core.ask({"do": "sentence", "text": text, "query": query, "hide": hidden, "command": command_of(page)})
        assert_same_answer(answer, page)
    assert core.memory <= MAX_MEMORY_BYTES


def test_a_comparison(core, tmp_path):
    texts = ["he sat on the bank of the river", "she put her money in the bank"]
    page = native_page(tmp_path, "compare", "bank", *texts, "--model", NAME, "--hide", "river")
    answer = core.ask({"do": "compare", "word": "bank", "sentences": texts, "hide": ["river"], "command": command_of(page)})
    assert_same_answer(answer, page, ("comparison",))


def test_512_tokens_stay_below_the_limit_of_memory(core):
    text = " ".join(SENTENCES[n % len(SENTENCES)] for n in range(80))
    for _ in range(2):
        core.ask({"do": "sentence", "text": text, "quick": True})
    assert core.memory <= MAX_MEMORY_BYTES
