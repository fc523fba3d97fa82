# SPDX-License-Identifier: Apache-2.0
"""10,000 random texts: token ids of the native tokenizer, no trap, and a memory that does not grow."""

import json
import random

import pytest

from random_model import VOCABULARY, bert_tokenizer, make_random_model
from wasm_module import Failed, Module, native_answers

NUM_TEXTS = 10_000
WARM_UP = 1_000
MAX_MEMORY_BYTES = 200_000_000
BATCH = 500
POSITIONS = 48
TOKEN_IDS = r'"token_ids": (\[.*?\])'

# Code points by kind, first and last.
KINDS = {
    "letters": (0x61, 0x7a), "ASCII": (0x20, 0x7e), "control": (0x00, 0x1f), "Latin": (0xa0, 0x24f), "combining": (0x300, 0x36f),
    "Greek and Cyrillic": (0x370, 0x52f), "Hebrew and Arabic": (0x590, 0x6ff), "Indic": (0x900, 0xdff),
    "jamo": (0x1100, 0x11ff), "punctuation": (0x2000, 0x206f), "symbols": (0x20a0, 0x27bf), "ideographs": (0x3400, 0x9fff),
    "Hangul": (0xac00, 0xd7a3), "surrogates": (0xd800, 0xdfff), "private": (0xe000, 0xf8ff), "presentation": (0xf900, 0xffff),
    "emoji": (0x1f300, 0x1faff), "rare ideographs": (0x20000, 0x2fa1f), "any": (0, 0x10ffff)}
SPACES = " \t\n\r\u00a0\u2003\u3000\ufeff"


def random_texts():
    """Half of them made of words of the vocabulary with other characters in between."""
    source = random.Random(28)

    def characters(count):
        first, last = source.choice(list(KINDS.values()))
        return "".join(chr(source.randint(first, last)) for _ in range(count))

    def text(number):
        if number % 1000 == 0:
            return ""
        if number % 1000 == 1:
            return "".join(source.choices(SPACES, k=source.randint(1, 50)))
        if number % 1000 == 2:
            return " ".join(source.choices(VOCABULARY, k=4000))
        if number % 1000 == 3:
            return characters(4000)
        parts = []
        for _ in range(source.randint(1, 12)):
            parts.append(source.choice(VOCABULARY) if source.random() < 0.5 else characters(source.randint(1, 6)))
            if source.random() < 0.7:
                parts.append(source.choice(SPACES))
        return "".join(parts)

    return [text(number) for number in range(NUM_TEXTS)]


def as_encoded_by_javascript(text):
    """Pairs of surrogates are characters; a lone surrogate becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@pytest.fixture(scope="module")
def texts():
    return random_texts()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small encoder with the vocabulary of BERT."""
    return make_random_model(tmp_path_factory.mktemp("wide"), bert_tokenizer(), layers=1, heads=2, width=8, intermediate=8,
                             positions=POSITIONS)


@pytest.fixture(scope="module")
def native_ids(texts, model):
    requests = [{"do": "tokens", "text": as_encoded_by_javascript(text)} for text in texts]
    answers = native_answers([{"do": "tokenizer"}, *requests], [model / "tokenizer.json"])[1:]
    return [[int(id) for id in answer.split()] for answer in answers]


def ask_in_batches(module, requests, keep=None):
    """The replies, and the largest and the smallest memory after the first 1,000 requests."""
    replies, sizes = [], []
    for at in range(0, len(requests), BATCH):
        replies += module.ask_all(requests[at:at + BATCH], keep)
        sizes.append(module.memory)
    later = sizes[WARM_UP // BATCH - 1:]
    assert [reply for reply in replies if "error" in reply] == []
    assert min(later) == max(later) <= MAX_MEMORY_BYTES
    return [reply["text"] for reply in replies]


def test_the_texts_are_varied(texts, native_ids):
    assert len(texts) == NUM_TEXTS
    assert len({id for ids in native_ids for id in ids}) > 20_000
    assert sum(any(0xd800 <= ord(character) < 0xe000 for character in text) for text in texts) > 500
    assert max(map(len, native_ids)) > 4_000 and min(map(len, native_ids)) == 2


def test_token_ids_are_those_of_the_native_tokenizer(texts, native_ids, model):
    with Module("checks.wasm") as checks:
        checks.add_files(model, ["tokenizer.json"])
        checks.ask({"do": "tokenizer"})
        answers = ask_in_batches(checks, [{"do": "tokens", "text": text} for text in texts])
    assert [n for n, answer in enumerate(answers) if [int(id) for id in answer.split()] != native_ids[n]] == []


def test_the_core_answers_every_text_that_has_a_word(texts, native_ids, model):
    with Module("core.wasm") as core:
        core.add_files(model)
        core.ask({"do": "open", "name": "wide"})
        chosen = [n for n in range(NUM_TEXTS) if len(native_ids[n]) > 2]
        answers = ask_in_batches(core, [{"do": "sentence", "text": texts[n], "quick": True} for n in chosen], TOKEN_IDS)
    for n, answer in zip(chosen, answers, strict=True):
        ids = native_ids[n]
        assert json.loads(answer) == (ids if len(ids) <= POSITIONS else ids[:POSITIONS - 1] + ids[-1:]), texts[n]


def test_a_text_without_a_word_is_an_error_not_a_trap(texts, native_ids, model):
    empty = [n for n in range(NUM_TEXTS) if len(native_ids[n]) == 2]
    assert len(empty) >= 20
    with Module("core.wasm") as core:
        for n in empty[:5]:
            core.add_files(model)
            core.ask({"do": "open", "name": "wide"})
            with pytest.raises(Failed, match="^Error: the text is empty"):
                core.ask({"do": "sentence", "text": texts[n]})
            core.restart()
