# SPDX-License-Identifier: Apache-2.0
"""`regard bench`: rows, units and shares as a table and as JSON, the progress line, Ctrl-C, and invalid options. The
values of the figures are not checked."""

import json
import os
import re

import pytest

from progress_test import Terminal, is_drawn
from program import environment, fail, succeed

REFERENCES = ["multiply-add peak", "reading memory"]
ROWS = [*REFERENCES, "full, S 128, D 64", "full, S 512, D 64", "full, S 512, D 128", "causal, S 512, D 64",
        "causal, S 512, D 128", "decode, S 2048, D 128, float", "decode, S 2048, D 128, bfloat16"]


def test_json_has_every_row_with_its_unit_and_share():
    found = json.loads(succeed("bench", "--quick", "--threads", "1", "--json"))
    assert list(found)[0] == "schema" and found["schema"] == "regard/1"
    assert found["command"] == "regard bench --quick --threads 1 --json"
    assert found["threads"] == 1 and found["rounds"] == 3
    assert [row["name"] for row in found["rows"]] == ROWS
    for row in found["rows"]:
        assert row["median"] > 0
        if row["name"] in REFERENCES:
            assert row["of"] is None and row["share"] is None
        else:
            reads = row["name"].startswith("decode")
            assert row["unit"] == ("GB/s" if reads else "GFLOP/s") and row["of"] == REFERENCES[reads]
            assert row["share"] > 0


def test_the_table_has_every_row_and_fits_80_columns():
    text = succeed("bench", "--quick", env=environment(REGARD_FORCE_ISA="generic", REGARD_THREADS="2")).decode()
    lines = text.splitlines()
    assert lines[0] == "generic, 2 threads, median of 3 rounds"
    assert [line[:32].rstrip() for line in lines[2:-2]] == ROWS
    assert all(re.fullmatch(r" *[0-9]+\.[0-9] G(FLOP|B)/s( +[0-9]+\.[0-9]{2} of the (peak|bandwidth))?", line[32:])
               for line in lines[2:-2])
    assert max(map(len, lines)) <= 80 and not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("arguments, words", [(["--threads", "0"], "--threads is 0; expected 1 to 4096"),
                                              (["--threads", "4097"], "--threads is 4097"),
                                              (["--threads", "two"], "--threads"), (["--fast"], "--fast")])
def test_invalid_options_are_rejected(arguments, words, tmp_path):
    fail(2, words, "bench", *arguments, cwd=tmp_path)


def test_ctrl_c_ends_a_bench_and_erases_the_progress_line(tmp_path):
    terminal = Terminal(["bench"], tmp_path)
    assert terminal.read(is_drawn)
    os.write(terminal.side, b"\x03")
    assert terminal.finish() == 130
    assert terminal.written.startswith(b"\rbench [") and terminal.screen() == [""]
