# SPDX-License-Identifier: Apache-2.0
"""The core with the weights of MiniLM in int8: the 30 test sentences have the text of the page that the native program
writes on the set generic. Memory stays below 200 MB for them, and for 512 tokens in a core that has just been opened
(./check model)."""

import contextlib

import pytest

from digits_test import SENTENCES
from program import succeed
from wasm_module import GENERIC, Module, assert_same_answer, native_page

MAX_MEMORY_BYTES = 200_000_000
NAME = "minilm-int8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the model as `regard live` writes them."""
    folder = tmp_path_factory.mktemp("site") / "files"
    succeed("live", "--site", folder, env=GENERIC)
    return folder


@contextlib.contextmanager
def opened(folder):
    with Module("core.wasm") as module:
        module.add_files(folder)
        module.ask({"do": "open", "name": NAME})
        yield module


@pytest.fixture(scope="module")
def core(folder):
    with opened(folder) as module:
        yield module


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_with_a_hidden_word(core, text, tmp_path):
    page, command = native_page(tmp_path, "explain", text, "--model", NAME, "--query", "@1", "--hide", "@3", "--truncate")
    answer = core.ask({"do": "sentence", "text": text, "query": "@1", "hide": ["@3"], "command": command})
    assert_same_answer(answer, page)
    assert core.memory <= MAX_MEMORY_BYTES


def test_a_comparison(core, tmp_path):
    texts = ["he sat on the bank of the river", "she put her money in the bank"]
    page, command = native_page(tmp_path, "compare", "bank", *texts, "--model", NAME, "--hide", "river")
    answer = core.ask({"do": "compare", "word": "bank", "sentences": texts, "hide": ["river"], "command": command})
    assert_same_answer(answer, page, ("explanation",))


def test_the_memory_of_512_tokens_stops_growing(folder):
    text = " ".join(SENTENCES[n % len(SENTENCES)] for n in range(80))
    sizes = []
    with opened(folder) as core:
        for _ in range(6):
            core.ask({"do": "sentence", "text": text, "quick": True, "arrays": True})
            sizes.append(core.memory)
    assert len(set(sizes[3:])) == 1
    assert sizes[-1] <= MAX_MEMORY_BYTES
