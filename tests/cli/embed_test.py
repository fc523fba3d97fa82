# SPDX-License-Identifier: Apache-2.0
"""`regard embed` and `regard similar` on a small model (sentence_model.py): all formats contain the same vectors, which
do not depend on the other lines; one row per line; the ranking, checked with NumPy; and the one-line error of each
invalid input."""

import io
import json
import os
import pathlib
import pty
import re
import subprocess

import numpy as np
import pytest

from program import PROGRAM, environment, fail, run, succeed
from sentence_model import make_folder

LINES = ["he sat on the bank of the river", "she put her money in the bank", "", "they walked along the river",
         "he sat on the bank of the river", "bank"]
STDIN = "".join(line + "\n" for line in LINES).encode()
UNTRUSTED = "\x1b]0;bank\x07 </script> \u202e river"


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


def vectors(folder, stdin=STDIN, *arguments):
    text = succeed("embed", "--model", folder, *arguments, stdin=stdin).decode()
    return np.array([[float(x) for x in line.split(",")] for line in text.splitlines()], np.float32)


def test_every_format_holds_the_same_numbers(folder, tmp_path):
    csv = vectors(folder)
    assert csv.shape == (6, 40)
    np.testing.assert_allclose(np.linalg.norm(csv.astype(float), axis=1), 1, atol=1e-6)
    npy = np.load(io.BytesIO(succeed("embed", "--model", folder, "--format", "npy", stdin=STDIN)))
    assert npy.dtype == np.float32 and (npy == csv).all()
    document = json.loads(succeed("embed", "--model", folder, "--format", "json", stdin=STDIN))
    assert list(document) == ["schema", "command", "version", "instruction_set", "model", "lines"]
    assert document["schema"] == "regard/1" and re.fullmatch("[0-9a-f]{64}", document["model"]["sha256"])
    assert [line["line"] for line in document["lines"]] == [1, 2, 3, 4, 5, 6]
    assert document["lines"][0]["token_ids"] == [2, 5, 6, 7, 8, 9, 10, 8, 11, 3]
    assert document["lines"][2]["token_ids"] == [2, 3]
    assert (np.array([line["vector"] for line in document["lines"]], np.float32) == csv).all()
    (tmp_path / "lines.txt").write_bytes(STDIN)
    for ending in ("npy", "json", "csv"):
        assert succeed("embed", "--model", folder, "--input", "lines.txt", "-o", f"out.{ending}", cwd=tmp_path) == b""
    assert (np.load(tmp_path / "out.npy") == csv).all()
    assert json.loads((tmp_path / "out.json").read_text())["lines"] == document["lines"]
    assert (tmp_path / "out.csv").read_bytes() == succeed("embed", "--model", folder, stdin=STDIN)


def test_the_example_prints_the_cosines_of_the_same_vectors(folder):
    program = pathlib.Path(PROGRAM).parent / "examples" / "example_sentence_vectors"
    lines = subprocess.run([program, folder], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    pairs = [re.fullmatch(r"(-?[01]\.\d{3})   (.+) \| (.+)", line).groups() for line in lines]
    assert len(pairs) == 3
    for cosine, *sentences in pairs:
        first, second = vectors(folder, "".join(sentence + "\n" for sentence in sentences).encode()).astype(float)
        assert abs(float(cosine) - first @ second) < 0.00051
    missing = subprocess.run([program, folder / "none"], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1 and missing.stderr.startswith("sentence_vectors: ")


def test_a_line_has_the_same_vector_as_alone_and_empty_lines_count(folder):
    together = vectors(folder)
    for line, row in zip(LINES, together):
        assert (vectors(folder, (line + "\n").encode())[0] == row).all()
    assert (together[0] == together[4]).all() and not (together[0] == together[1]).all()


@pytest.mark.parametrize("text", [STDIN[:-1], STDIN.replace(b"\n", b"\r\n"), STDIN[:-1].replace(b"\n", b"\r\n")])
def test_line_endings_do_not_change_results(folder, text):
    assert (vectors(folder, text) == vectors(folder)).all()


def test_batches_do_not_change_results(folder):
    numbers = np.random.default_rng(3)
    words = "he sat on the bank of river she put her money in they walked along at dawn".split()
    lines = [" ".join(numbers.choice(words, numbers.integers(1, 12))) for _ in range(2500)]
    whole = vectors(folder, "\n".join(lines).encode())
    assert len(whole) == 2500
    for n in (0, 1023, 1024, 1025, 2047, 2048, 2499):
        assert (vectors(folder, lines[n].encode())[0] == whole[n]).all()
    # A batch can end within a block that was read, and a line can span blocks.
    long = [" " * 30000 + "bank", "river"] * 12
    assert (vectors(folder, "\n".join(long).encode()) == np.tile(vectors(folder, b"bank\nriver"), (12, 1))).all()


def test_no_lines_give_no_rows(folder):
    assert succeed("embed", "--model", folder) == b""
    assert np.load(io.BytesIO(succeed("embed", "--model", folder, "--format", "npy"))).shape == (0, 40)
    assert json.loads(succeed("embed", "--model", folder, "--format", "json"))["lines"] == []


def test_a_long_line_is_rejected_or_truncated(folder, tmp_path):
    text = b"he\n" + b"bank " * 50 + b"\n"
    fail(1, "standard input: line 2: the text has 52 tokens and the model has 40 positions", "embed", "--model", folder,
         "-o", "out.csv", stdin=text, cwd=tmp_path)
    assert (vectors(folder, text, "--truncate")[1] == vectors(folder, b"bank " * 38)[0]).all()
    (tmp_path / "one.txt").write_bytes(b"a" * (17 << 20))
    fail(1, "one.txt: line 1 is longer than 16", "embed", "--model", folder, "--input", "one.txt", cwd=tmp_path)


def test_invalid_utf_8_is_skipped(folder):
    assert (vectors(folder, b"he sat\xff on\n") == vectors(folder, b"he sat on\n")).all()


@pytest.mark.parametrize("words, arguments", [
    ('--format is "xml"; expected npy, json or csv', ["--format", "xml"]),
    ("--output out.txt does not end in .npy, .json or .csv; add --format", ["-o", "out.txt"]),
    ("unknown option --top", ["--top", "3"]),
])
def test_embed_rejects_invalid_arguments(folder, tmp_path, words, arguments):
    fail(2, words, "embed", "--model", folder, *arguments, stdin=STDIN, cwd=tmp_path)


def test_missing_files_and_one_path_for_input_and_output_are_rejected(folder, tmp_path):
    fail(1, "none.txt", "embed", "--model", folder, "--input", "none.txt", cwd=tmp_path)
    (tmp_path / "lines.csv").write_bytes(STDIN)
    fail(2, "lines.csv", "embed", "--model", folder, "--input", "lines.csv", "-o", "lines.csv", cwd=tmp_path)
    fail(1, "regard pull minilm", "embed", stdin=STDIN, cwd=tmp_path,
         env=environment(REGARD_CACHE=str(tmp_path / "empty")))


def on_terminal(stream, *arguments):
    """The exit code and the text of standard error, with a terminal as standard input or output."""
    side, program_side = pty.openpty()
    chosen = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, stream: program_side}
    done = subprocess.run([PROGRAM, *map(os.fspath, arguments)], stderr=subprocess.PIPE, env=environment(TERM="xterm"),
                          timeout=60, check=False, **chosen)
    os.close(program_side)
    os.close(side)
    return done.returncode, done.stderr.decode()


def test_npy_is_not_written_to_a_terminal_and_input_is_not_read_from_one(folder):
    code, text = on_terminal("stdout", "embed", "--model", folder, "--format", "npy")
    assert code == 2 and "--format npy would write binary data to the terminal; give --output FILE.npy, or --format csv" in text
    for command in (["embed"], ["similar", "bank"]):
        code, text = on_terminal("stdin", *command, "--model", folder)
        assert code == 2 and "give --input FILE" in text


def test_a_closed_pipe_ends_the_program_silently(folder):
    command = f"yes bank | head -100000 | '{PROGRAM}' embed --model '{folder}' | head -1 | wc -l"
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(), timeout=60, check=True)
    assert done.stdout.strip() == b"1" and done.stderr == b""


# ---- similar

def similar(folder, text, *arguments, stdin=STDIN):
    return json.loads(succeed("similar", text, "--model", folder, "--json", *arguments, stdin=stdin))


def test_lines_are_sorted_by_cosine_and_then_by_number(folder):
    document = similar(folder, "he sat on the bank")
    assert list(document) == ["schema", "command", "version", "instruction_set", "model", "text", "token_ids",
                              "num_lines", "similar"]
    assert document["num_lines"] == 6 and document["token_ids"] == [2, 5, 6, 7, 8, 9, 3]
    rows = vectors(folder).astype(float)
    wanted = vectors(folder, b"he sat on the bank")[0].astype(float)
    cosines = (rows * wanted).sum(1)  # equal rows have equal sums, which BLAS does not promise
    expected = sorted((n for n in range(6) if LINES[n]), key=lambda n: (-cosines[n], n))
    assert [found["line"] for found in document["similar"]] == [n + 1 for n in expected]
    for found in document["similar"]:
        assert found["text"] == LINES[found["line"] - 1]
        assert found["cosine"] == pytest.approx(cosines[found["line"] - 1], abs=1e-6)
    assert [found["line"] for found in similar(folder, LINES[0])["similar"]][:2] == [1, 5]
    assert similar(folder, LINES[0], "--top", "1")["similar"][0]["line"] == 1
    assert similar(folder, LINES[0], "--top", "2")["similar"] == similar(folder, LINES[0])["similar"][:2]


def test_the_table_agrees_with_the_json(folder):
    document = similar(folder, "money")
    lines = succeed("similar", "money", "--model", folder, stdin=STDIN).decode().splitlines()
    assert lines[0] == "cosine  line"
    assert lines[1:] == [f"{found['cosine']:6.3f}  {found['line']:4}  {found['text']}" for found in document["similar"]]


def test_untrusted_text_is_escaped(folder):
    text = succeed("similar", "bank", "--model", folder, stdin=UNTRUSTED.encode()).decode()
    assert "\x1b" not in text and "\u202e" not in text and "\\u{1b}" in text and "\\u{202e}" in text
    raw = succeed("similar", UNTRUSTED, "--model", folder, "--json", stdin=UNTRUSTED.encode()).decode()
    assert "</script>" not in raw and "\x1b" not in raw and json.loads(raw)["similar"][0]["text"] == UNTRUSTED


def test_similar_rejects_invalid_arguments(folder, tmp_path):
    def reject(code, words, *arguments, stdin=STDIN):
        fail(code, words, "similar", *arguments, "--model", folder, stdin=stdin, cwd=tmp_path)

    reject(2, "--top is 0; expected 1 or more", "bank", "--top", "0")
    reject(2, "--top", "bank", "--top", "x")
    reject(2, "give a text to compare with")
    reject(2, "the text has 52 tokens", "bank " * 50)
    reject(1, "standard input: no text found", "bank", stdin=b"\n \r\n")
    reject(1, "standard input: line 2: the text has 52 tokens", "bank", stdin=b"he\n" + b"bank " * 50)


def test_both_commands_have_help_with_examples(folder):
    for command in ("embed", "similar"):
        assert "EXAMPLES" in succeed(command, "--help").decode()
    assert run("embed", "x", "--model", folder).returncode == 2
