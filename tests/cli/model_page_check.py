# SPDX-License-Identifier: Apache-2.0
"""The page of a sentence in the real model (REGARD_TEST_MODEL): its size, and that it contains every head."""

import base64
import json
import os
import re

from program import run

MODEL = os.environ["REGARD_TEST_MODEL"]
WORDS = "word river bank money the of dawn walked".split()


def page_of(tmp_path, tokens):
    """The page of a text with a number of tokens, [CLS] and [SEP] included, and its size."""
    text = " ".join(WORDS[i % len(WORDS)] for i in range(tokens - 2))
    done = run("explain", "-", "--model", MODEL, "--html", tmp_path / "page.html", stdin=text.encode())
    assert done.returncode == 0 and done.stdout.decode().splitlines()[-1].startswith("  page   file://"), done.stderr.decode()
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = re.search('<script type="application/json" id="page">(.*?)</script>', html, re.DOTALL)[1]
    return json.loads(data), len(html.encode())


def test_64_tokens_stay_below_3_megabytes(tmp_path):
    data, size = page_of(tmp_path, 64)
    assert size < 3_000_000
    for name in ("query", "key", "value"):
        assert len(base64.b64decode(data[name])) == 4 * 6 * 12 * 64 * 32
    for name in ("row_max", "row_sum"):
        assert len(base64.b64decode(data[name])) == 4 * 6 * 12 * 64
    assert "thumbnails" not in data


def test_512_tokens_stay_below_25_megabytes(tmp_path):
    data, size = page_of(tmp_path, 512)
    assert size < 25_000_000
    assert len(base64.b64decode(data["thumbnails"])) == 6 * 12 * 64 * 64
