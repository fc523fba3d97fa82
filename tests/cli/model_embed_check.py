# SPDX-License-Identifier: Apache-2.0
"""Vectors of the real model (REGARD_TEST_MODEL) compared with those of transformers, for the hundred sentences of
encoder/hundred_sentences.txt, whose vectors encoder/make_reference.py wrote to encoder/minilm_vectors.npy."""

import io
import json
import os
import pathlib

import numpy as np

from program import succeed

HERE = pathlib.Path(__file__).resolve().parents[1] / "encoder"
MODEL = ["--model", os.environ["REGARD_TEST_MODEL"]]
SENTENCES = (HERE / "hundred_sentences.txt").read_bytes()


def ours(*arguments):
    return np.load(io.BytesIO(succeed("embed", *MODEL, "--format", "npy", *arguments, stdin=SENTENCES)))


def test_each_vector_matches_transformers():
    expected = np.load(HERE / "minilm_vectors.npy").astype(float)
    got = ours().astype(float)
    assert got.shape == expected.shape == (100, 384)
    cosines = (got * expected).sum(1) / (np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1))
    assert cosines.min() >= 0.99999
    assert np.abs(got - expected).max() < 1e-5


def test_the_vectors_do_not_depend_on_the_batch():
    lines = SENTENCES.splitlines()
    whole = ours()
    for n in (0, 40, 99):
        alone = np.load(io.BytesIO(succeed("embed", *MODEL, "--format", "npy", stdin=lines[n])))
        assert (alone[0] == whole[n]).all()


def test_similar_texts_come_first():
    def first(text):
        found = json.loads(succeed("similar", text, *MODEL, "--top", "2", "--json", stdin=SENTENCES))["similar"]
        return [line["text"] for line in found]

    assert "The cat slept on the warm stove." in first("a kitten naps by the oven")
    assert "Apollo 11 landed in the Sea of Tranquility." in first("lunar landing")
    assert "Stocks fell sharply after the announcement." in first("share prices went down")
