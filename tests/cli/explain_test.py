# SPDX-License-Identifier: Apache-2.0
"""`regard explain` and `regard lesson`: every number of --json, checked with NumPy in float64; settings on the command
line; the form of the text; and the one-line error of each invalid input (docs/guide/own-matrices.md)."""

import json
import os
import pty
import re
import resource
import subprocess

import numpy as np
import pytest

from attend_reference import page_arrays
from lessons import LESSONS
from program import PROGRAM, environment, fail, run, succeed

TOKENS = ["I", "love", "coding", "love"]


# ---- the reference


def softmax(scores, axis):
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def attention(q, k, v, scale=None, offset=None):
    """Weights and context of one head, with tokens as rows; offset None: no mask."""
    scores = q @ k.T * (1 / np.sqrt(q.shape[1]) if scale is None else scale)
    if offset is not None:
        hidden = np.arange(k.shape[0])[None, :] > np.arange(q.shape[0])[:, None] + offset
        scores = np.where(hidden, -np.inf, scores)
    weights = softmax(scores, 1)
    return weights, weights @ v


def explained(*arguments, **options):
    """The document of --json, and the result of each step by its name."""
    document = json.loads(succeed("explain", *arguments, "--json", **options))
    assert list(document)[0] == "schema" and document["schema"] == "regard/1"
    return document, {step["name"]: np.array(step["result"], float) for step in document["steps"]}


def near(ours, theirs):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """words.json with one self-attention, and all matrices() as NPY and CSV files."""
    (tmp_path / "words.json").write_text(json.dumps(words()))
    for name, matrix in matrices().items():
        np.save(tmp_path / f"{name}.npy", matrix)
        np.savetxt(tmp_path / f"{name}.csv", matrix, delimiter=",", fmt="%.17g")
    return tmp_path


def matrices():
    random = np.random.default_rng(3)
    shapes = {"X": (4, 6), "W_query": (6, 4), "W_key": (6, 4), "W_value": (6, 4), "W_output": (4, 5),
              "Q": (2, 3), "K": (4, 3), "V": (4, 5)}
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def words(**changes):
    projections = {name: matrices()[name].tolist() for name in ("X", "W_query", "W_key", "W_value")}
    return {"tokens": TOKENS, **projections, "scale": "none", **changes}


def projected():
    m = matrices()
    return [m["X"] @ m[name] for name in ("W_query", "W_key", "W_value")]


def named(names, kind):
    return [word for name in names.split() for word in ("--matrix", f"{name}={name}.{kind}")]


# ---- numbers


def test_a_file_and_standard_input_give_the_same_steps(folder):
    weights, context = attention(*projected(), scale=1)
    document, ours = explained("--input", "words.json", cwd=folder)
    assert document["tokens"] == TOKENS
    near(ours["queries"], projected()[0])
    near(ours["weights"], weights)
    near(ours["context"], context)
    piped, _ = explained("--input", "-", stdin=(folder / "words.json").read_bytes(), cwd=folder)
    assert piped["steps"] == document["steps"]


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_queries_keys_and_values_agree_with_numpy(folder, kind):
    _, ours = explained(*named("Q K V", kind), cwd=folder)
    m = matrices()
    weights, context = attention(m["Q"], m["K"], m["V"])
    near(ours["weights"], weights)
    near(ours["context"], context)


@pytest.mark.parametrize("kind", ["npy", "csv"])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_projections_heads_and_output_agree_with_numpy(folder, kind, heads):
    names = "X W_query W_key W_value W_output"
    _, ours = explained(*named(names, kind), "--heads", str(heads), cwd=folder)
    parts = zip(*(np.split(x, heads, axis=1) for x in projected()))
    results = [attention(*part) for part in parts]
    joined = np.hstack([context for _, context in results])
    near(ours["weights"], results[0][0] if heads == 1 else np.stack([weights for weights, _ in results]))
    near(ours["output"], joined @ matrices()["W_output"])


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_heads_also_split_given_queries_keys_and_values(folder, layout):
    random = np.random.default_rng(5)
    given = {"Q": random.standard_normal((3, 4)), "K": random.standard_normal((5, 4)), "V": random.standard_normal((5, 6))}
    turn = (lambda m: m) if layout == "rows" else (lambda m: np.swapaxes(m, -1, -2))
    source = json.dumps({name: turn(m).tolist() for name, m in given.items()}).encode()
    _, ours = explained("--input", "-", "--layout", layout, "--heads", "2", stdin=source)
    parts = [attention(*part) for part in zip(*(np.split(m, 2, axis=1) for m in given.values()))]
    near(ours["queries"], np.stack([turn(part) for part in np.split(given["Q"], 2, axis=1)]))
    near(ours["weights"], np.stack([turn(weights) for weights, _ in parts]))
    near(ours["joined"], turn(np.hstack([context for _, context in parts])))
    # A head axis in the file is already the split.
    if layout == "rows":
        split = {name: np.stack(np.split(m, 2, axis=1)).tolist() for name, m in given.items()}
        _, same = explained("--input", "-", "--heads", "2", stdin=json.dumps(split).encode())
        near(same["weights"], ours["weights"])
        fail(1, "step queries: Q has 2 heads and cannot be split into 4", "explain", "--input", "-", "--heads", "4",
             stdin=json.dumps(split).encode(), cwd=folder)
    fail(1, "step queries: 4 dimensions cannot be split into 3 heads", "explain", "--input", "-", "--heads", "3",
         "--layout", layout, stdin=source, cwd=folder)


@pytest.mark.parametrize("option, offset", [("--causal", 0), ("--causal=top_left", 0), ("--causal=bottom_right", 2),
                                            ("--causal=1", 1), ("--causal=off", None)])
def test_causal_alignments_agree_with_numpy(folder, option, offset):
    m = matrices()
    document, ours = explained(*named("Q K V", "npy"), option, cwd=folder)
    weights, context = attention(m["Q"], m["K"], m["V"], offset=offset)
    near(ours["weights"], weights)
    near(ours["context"], context)
    assert ("masked" in ours) == (offset is not None)
    if offset is not None:
        masked = next(step for step in document["steps"] if step["name"] == "masked")["result"]
        assert [[number == "-inf" for number in row] for row in masked] == (weights == 0).tolist()


@pytest.mark.parametrize("word, scale", [("none", 1), ("sqrt", 0.5), ("0.5", 0.5), ("-1", -1), ("0.125", 0.125)])
@pytest.mark.parametrize("joined", [True, False])
def test_scale_on_the_command_line_overrides_the_file(folder, word, scale, joined):
    (folder / "words.json").write_text(json.dumps(words(scale=7)))
    option = ["--scale=" + word] if joined else ["--scale", word]
    weights, context = attention(*projected(), scale=scale)
    _, ours = explained("--input", "words.json", *option, cwd=folder)
    near(ours["weights"], weights)
    near(ours["context"], context)


def test_options_override_the_settings_of_the_file(folder):
    (folder / "words.json").write_text(json.dumps(words(causal=True, heads=2, query="I", digits=2, dtype="f32")))
    document, ours = explained("--input", "words.json", "--causal=off", "--heads", "1", "--query", "coding",
                               "--dtype", "f64", "--tokens", "a,b,coding,d", cwd=folder)
    assert (document["query"], document["dtype"], document["tokens"]) == (2, "f64", ["a", "b", "coding", "d"])
    near(ours["weights"], attention(*projected(), scale=1)[0])
    text = succeed("explain", "--input", "words.json", "--causal=off", "--heads", "1", "--dtype", "f64", "--step",
                   "queries", "--digits", "6", cwd=folder).decode()
    assert f" {projected()[0][0, 0]:.6f} " in text


def test_the_columns_layout_transposes_every_result(folder):
    given = {name: matrices()[name].T.tolist() for name in ("X", "W_query", "W_key", "W_value", "W_output")}
    (folder / "columns.json").write_text(json.dumps(given))
    _, ours = explained("--input", "columns.json", "--layout", "columns", cwd=folder)
    weights, context = attention(*projected())
    near(ours["queries"], projected()[0].T)
    near(ours["weights"], weights.T)
    near(ours["context"], context.T)
    near(ours["output"], (context @ matrices()["W_output"]).T)


# ---- one token, one step, one number


@pytest.mark.parametrize("word, index", [("I", 0), ("coding", 2), ("@1", 1), ("@3", 3), ("love#0", 1), ("love#1", 3)])
def test_a_query_is_given_by_word_occurrence_or_index(folder, word, index):
    document, _ = explained("--input", "words.json", "--query", word, cwd=folder)
    assert document["query"] == index


@pytest.mark.parametrize("word, choices", [
    ("love", ['"love#0" to "love#1"', "love (@1), love (@3)"]), ("nope", ["I (@0)", "love (@3)"]),
    ("@4", ["@4", "there are 4"]), ("@-1", "@-1"), ("love#2", ["love#2", "love (@1), love (@3)"])])
def test_a_query_that_matches_no_token_or_two_is_rejected(folder, word, choices):
    fail(2, ["--query", *([choices] if isinstance(choices, str) else choices)], "explain", "--input", "words.json",
         "--query", word, cwd=folder)


def test_a_step_is_selected_by_name_or_number(folder):
    document, _ = explained("--input", "words.json", cwd=folder)
    for step in document["steps"]:
        one, results = explained("--input", "words.json", "--step", step["name"], cwd=folder)
        assert list(results) == [step["name"]] and one["steps"] == [step]
        assert explained("--input", "words.json", "--step", str(step["index"]), cwd=folder)[0]["steps"] == [step]


def test_a_cell_shows_its_computation(folder):
    weights, _ = attention(*projected(), scale=1)
    document, _ = explained("--input", "words.json", "--step", "weights", "--cell", "2,1", cwd=folder)
    assert "cell" in document["steps"][0]
    text = succeed("explain", "--input", "words.json", "--step", "weights", "--cell", "2,1", cwd=folder).decode()
    line = next(line for line in text.splitlines() if "A[coding, love" in line)
    assert f"{weights[2, 1]:.4f}" in line


@pytest.mark.parametrize("digits", [0, 3, 12])
def test_digits_sets_the_number_of_decimals(folder, digits):
    text = succeed("explain", "--input", "words.json", "--step", "weights", "--digits", str(digits),
                   cwd=folder).decode()
    for number in attention(*projected(), scale=1)[0].ravel():
        shown = f"{number:.{digits}f}"
        assert (shown if float(shown) > 0 or digits == 0 else f"<{10 ** -digits:.{digits}f}") in text


# ---- usage errors


@pytest.mark.parametrize("arguments, words_expected", [
    ([], ["--input FILE", "--matrix NAME=FILE"]),
    (["--input", "words.json", "--matrix", "Q=Q.npy"], "--input and --matrix both name the matrices"),
    (["--matrix", "Q"], '--matrix is "Q"; expected NAME=FILE'),
    (["--matrix", "Q=Q.npy", "--matrix", "Q=Q.csv"], "--matrix Q is given twice"),
    (["--input", "Q.npy"], "--input Q.npy is not JSON; give NPY and CSV files as --matrix NAME=Q.npy"),
    (["--input", "Q.csv"], "--input Q.csv is not JSON; give NPY and CSV files as --matrix NAME=Q.csv"),
    (["--input", "words.json", "--pause"], "--pause needs a terminal"),
    (["--input", "words.json", "--step", "nope"], ['step "nope"', "1 queries", "6 context"]),
    (["--input", "words.json", "--step", "99"], ['step "99"', "6 context"]),
    (["--input", "words.json", "--cell", "9,9"], ["cell 9,9 does not exist", "weights is 4 × 4"]),
    (["--input", "words.json", "--step", "weights", "--cell", "1,0,0"], "cell 0,0 of head 1 does not exist: weights is 4 × 4"),
    (["--input", "words.json", "--heads", "2", "--step", "weights", "--cell", "2,0,0"],
     "cell 0,0 of head 2 does not exist: weights is 2 × 4 × 4"),
    (["--input", "words.json", "--digits", "18"], "--digits is 18; expected an integer from 0 to 17"),
    (["--input", "words.json", "--digits", "x"], '--digits is "x"; expected an integer'),
    (["--input", "words.json", "--scale", "half"], "--scale"),
    (["--input", "words.json", "--causal=sideways"], "--causal"),
    (["--input", "words.json", "--layout", "diagonal"], "--layout"),
    (["--input", "words.json", "--dtype", "f16"], "--dtype"),
    (["--input", "words.json", "--step", "weights", "--cell", "9,9"], "--step, --cell: cell 9,9 does not exist"),
    (["--input", "words.json", "--json", "--step", "nope"], '--step: step "nope" does not exist'),
    (["--matrix", "Q=Q.npy", "--matrix", "K=K.npy", "--matrix", "V=V.npy", "--query", "b"],
     ['--query: token "b" does not exist', "0 (@0), 1 (@1)"]),
    (["--input", ""], "--input has an empty value"),
    (["--matrix", "Q=-", "--matrix", "K=-"], "--matrix reads standard input (-) more than once"),
    (["--input", "words.json", "--nonsense"], "unknown option --nonsense; see regard explain --help"),
])
def test_invalid_options_are_rejected(folder, arguments, words_expected):
    fail(2, words_expected, "explain", *arguments, cwd=folder)


# ---- invalid files


@pytest.mark.parametrize("content, words_expected", [
    (b'{"X": [[1]], "X": [[1]]}', 'byte 13: the name "X" occurs twice'),
    (b'{"X": [[NaN]]}', "byte 8: "),
    (b'{"X": [[1e999]]}', ["byte 12: ", "out of range for double"]),
    (b'{"X": [[1,2],[3]]}', "byte 13: X is ragged"),
    (b"[" * 65 + b"]" * 65, "byte 64: nested deeper than 64"),
    (b'{"x\xff": 1}', "byte 3: not valid UTF-8"),
    (b"[]", "byte 0: the input must be an object"),
    (b'{"X": [[1', "byte 9: "),
    (b'{"X": [[1]]} x', "byte 13: "),
    (b'{"steps": [{"operation": "zork"}]}', 'byte 25: step zork: operation "zork" does not exist; choose one of adamw, add, '),
    (b'{"zzz": 1}', ["byte 8: ", '"zzz" is neither a setting nor a matrix']),
    (b"", "byte 0: "),
])
@pytest.mark.parametrize("piped", [False, True])
def test_invalid_json_is_rejected_with_its_byte(folder, content, words_expected, piped):
    (folder / "bad.json").write_bytes(content)
    expected = [words_expected] if isinstance(words_expected, str) else words_expected
    source = "standard input" if piped else "bad.json"
    fail(1, [source + ": ", *expected], "explain", "--input", "-" if piped else "bad.json",
         stdin=content if piped else b"", cwd=folder)


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("changes, words_expected", [
    (None, "matrix Q is missing; give X, W_query, W_key and W_value, or Q, K and V"),
    ({"query": "zzz"}, 'token "zzz" does not exist; choose one of I (@0)'),
    ({"tokens": ["I"]}, "the length of tokens is 1, but X has 4 rows"),
    ({"W_key": [[1, 2]]}, "step keys: X is 4 × 6 and W_key is 1 × 2"),
    ({"heads": 3}, "step queries: 4 dimensions cannot be split into 3 heads"),
    ({"steps": [{"operation": "show", "operands": ["X"]}], "heads": 2}, "heads is 2, but the input lists its own steps"),
])
def test_errors_of_the_computation_name_the_file(folder, changes, words_expected, piped):
    content = json.dumps({} if changes is None else words(**changes)).encode()
    (folder / "bad.json").write_bytes(content)
    source = "standard input" if piped else "bad.json"
    fail(1, f"regard: {source}: {words_expected}", "explain", "--input", "-" if piped else "bad.json",
         stdin=content if piped else b"", cwd=folder)


@pytest.mark.parametrize("content, words_expected", [
    ('"1,5",2,3\n4,5,6\n', 'line 1, column 1: "1,5" has a decimal comma'),
    ("1,2,3\n4,5\n", "line 2, column 3: the row has 2 cells and the first row has 3"),
    ("1;2;3\n4;5;6\n", "line 1, column 1: "),
    ("1,2,3\n4,five,6\n", ["line 2, column 2: ", "five"]),
    ("", "bad.csv: "),
])
def test_invalid_csv_is_rejected_with_its_line_and_column(folder, content, words_expected):
    (folder / "bad.csv").write_text(content)
    fail(1, ["bad.csv: ", *([words_expected] if isinstance(words_expected, str) else words_expected)], "explain",
         "--matrix", "Q=bad.csv", *named("K V", "csv"), cwd=folder)


def test_unusable_files_are_rejected(folder):
    (folder / "d").mkdir()
    for option in (["--input"], ["--matrix"]):
        prefix = "" if option == ["--input"] else "Q="
        fail(1, "missing: cannot be opened: No such file", "explain", *option, prefix + "missing", cwd=folder)
        fail(1, "d: is a folder", "explain", *option, prefix + "d", cwd=folder)
    fail(1, "/dev/zero: is a device", "explain", "--input", "/dev/zero", cwd=folder)
    fail(1, "the length of tokens is 2, but X has 4 rows", "explain", "--input", "words.json", "--tokens", "a,b", cwd=folder)
    fail(1, "matrix V is missing", "explain", *named("Q K", "npy"), cwd=folder)


# ---- the text


@pytest.mark.parametrize("token", ["a\x1b[2J", "a\u202eb", "a\0b", "</script>\x1b"])
@pytest.mark.parametrize("options", [[], ["--json"], ["--color", "never", "--query", "@0"]])
def test_untrusted_words_are_escaped(folder, token, options):
    given = json.dumps(words(tokens=[token, *TOKENS[1:]], title=token)).encode()
    shown = succeed("explain", "--input", "-", *options, stdin=given, cwd=folder)
    for raw in (b"\x1b", "\u202e".encode(), b"\0"):
        assert raw not in shown
    if options == ["--json"]:
        assert json.loads(shown)["tokens"][0] == token
        assert b"</script" not in shown


def test_a_closed_pipe_ends_silently_and_a_full_device_is_reported(folder):
    for arguments in (["explain", "--input", "words.json"], ["lesson", "from-seed"], ["lesson"],
                      ["lesson", "three-words", "--export"]):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            done = run(*arguments, stdout=pipe, cwd=folder)
        assert (done.returncode, done.stderr) == (1, b"")
        with open("/dev/full", "wb") as full:
            done = run(*arguments, stdout=full, cwd=folder)
        assert (done.returncode, done.stderr) == (1, b"regard: cannot write to standard output: No space left on device\n")
    done = subprocess.run(["sh", "-c", '"$0" lesson from-seed | head -n 1', PROGRAM], capture_output=True, timeout=60,
                          env=environment(), check=True)
    assert done.stdout == succeed("lesson", "from-seed").splitlines(keepends=True)[0] and done.stderr == b""


@pytest.mark.parametrize("columns", [60, 200])
@pytest.mark.parametrize("lesson", LESSONS)
def test_lines_fit_the_width(lesson, columns):
    lines = succeed("lesson", lesson, env=environment(COLUMNS=str(columns))).decode().splitlines()
    assert max(map(len, lines)) <= columns


def test_more_width_gives_fewer_lines():
    counts = [succeed("lesson", "three-words", env=environment(COLUMNS=str(n))).count(b"\n") for n in (60, 200)]
    assert counts[0] > counts[1]


def test_color_is_used_only_on_request_in_a_pipe():
    plain = succeed("lesson", "three-words")
    assert b"\x1b" not in plain
    assert succeed("lesson", "three-words", env=environment(NO_COLOR="1")) == plain
    assert b"\x1b[" in succeed("lesson", "three-words", "--color", "always", env=environment(NO_COLOR="1"))


# ---- lessons


def test_lessons_are_listed_and_invalid_names_rejected(tmp_path):
    listed = [line.split()[0] for line in succeed("lesson").decode().split("\n\n")[0].splitlines()]
    assert listed == LESSONS
    fail(2, ['unknown lesson "nonsense"', *LESSONS], "lesson", "nonsense", cwd=tmp_path)
    fail(2, '--step: step "nope" does not exist', "lesson", "three-words", "--step", "nope", cwd=tmp_path)
    fail(2, "--pause needs a terminal", "lesson", "three-words", "--pause", cwd=tmp_path)


def test_a_cell_can_be_given_by_words(folder):
    by_index = succeed("lesson", "three-words", "--step", "weights", "--cell", "1,0", env=environment(LANG="C.UTF-8"))
    assert "A[love, I]" in by_index.decode()
    assert succeed("lesson", "three-words", "--step", "weights", "--cell", "love,I", env=environment(LANG="C.UTF-8")) == by_index
    twice = ["explain", "--input", "words.json", "--step", "weights", "--cell"]
    assert succeed(*twice, "love#1,I", cwd=folder) == succeed(*twice, "3,0", cwd=folder)
    fail(2, ["--cell", '"love#0" to "love#1"', "love (@1), love (@3)"], *twice, "love,I", cwd=folder)
    fail(2, ["--cell", "I (@0)", "love (@3)"], *twice, "I,nope", cwd=folder)
    # In the columns layout, rows are keys.
    assert b"[x2, x1]" in succeed("lesson", "by-hand", "--step", "weights", "--cell", "x2,x1")


def paused(keys, tmp_path):
    """The output of --pause on a terminal on which these keys are pressed, one at each prompt."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(PROGRAM, [PROGRAM, "lesson", "three-words", "--pause"], environment(TERM="dumb", NO_COLOR="1", COLUMNS="80"))
    shown = b""
    for key in [*keys, None]:
        try:
            while not shown.endswith(b"q: quit --") if key is not None else True:
                shown += os.read(terminal, 65536)
            if key is not None:
                shown += b"@"
                os.write(terminal, key)
        except OSError:  # the program has ended
            break
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return shown.decode()


def test_pause_goes_forward_and_back(tmp_path):
    keys = [b" ", b"\r", b"b", b"\x1b[C", b"\x1b[D", b"\x1b[6~", b"\x1b[5~", b"x", b"?", b"q"]
    shown = paused(keys[:7] + [b"q"], tmp_path)
    pages = re.findall(r"-- (\d+) of \d+;", shown)
    assert pages == ["1", "2", "3", "2", "3", "2", "3", "2"]
    # Other keys, and going back from the first page, have no effect.
    assert re.findall(r"-- (\d+) of \d+;", paused([b"b?x\x1b[A q"], tmp_path)) == ["1", "2"]
    # Going forward from the last page ends the program.
    count = int(re.search(r"-- 1 of (\d+);", shown)[1])
    assert re.findall(r"-- (\d+) of \d+;", paused([b" "] * count, tmp_path)) == [str(n + 1) for n in range(count)]


def test_the_list_of_lessons_as_json():
    document = json.loads(succeed("lesson", "--json"))
    assert list(document)[0] == "schema" and document["schema"] == "regard/1"
    assert document["command"] == "regard lesson --json" and document["version"]
    assert succeed("lesson", "--list") == succeed("lesson")
    shown, notes = (part.splitlines() for part in succeed("lesson").decode().split("\n\n"))
    aliases = [(lesson["alias"], lesson["name"]) for lesson in document["lessons"] if lesson["alias"]]
    assert [alias for alias, _ in aliases] == ["000", "001", "002", "003", "004"]
    assert notes[-1] == "Aliases: " + ", ".join(f"{alias} {name}" for alias, name in aliases) + "."
    assert [(lesson["name"], lesson["title"]) for lesson in document["lessons"]] == \
        [tuple(line.split(maxsplit=1)) for line in shown]


def test_a_lesson_has_the_same_output_under_its_alias():
    by_name, by_alias = (json.loads(succeed("lesson", name, "--json")) for name in ("by-hand", "004"))
    assert by_alias.pop("command") == "regard lesson 004 --json" and by_name.pop("command") == "regard lesson by-hand --json"
    assert by_alias == by_name and by_name["lesson"] == "by-hand"
    assert b"<title>by-hand: By hand, in columns" in succeed("lesson", "004", "--html", "-")
    assert "lesson" not in json.loads(succeed("explain", "--input", "-", "--json", stdin=succeed("lesson", "by-hand", "--export")))


def test_options_that_do_not_apply_to_a_lesson_are_rejected(tmp_path):
    fail(2, "--list lists every lesson", "lesson", "by-hand", "--list", cwd=tmp_path)
    for option in (["--json"], ["--full"], ["--pause"], ["--step", "weights"], ["--cell", "0,0"],
                   ["--html", "page.html"]):
        fail(2, ["--export prints the lesson's input", option[0] + " controls how results are shown"], "lesson", "three-words",
             "--export", *option, cwd=tmp_path)
        if option != ["--json"]:
            fail(2, option[0] + " needs the name of a lesson", "lesson", *option, cwd=tmp_path)
    fail(2, "--export needs the name of a lesson", "lesson", "--export", "--json", cwd=tmp_path)
    # Settings that are part of the input are exported.
    assert json.loads(succeed("lesson", "three-words", "--export", "--digits", "2", "--query", "I"))["digits"] == 2
    fail(2, ["--heads does not apply to lessons", "by-hand has two"], "lesson", "three-words", "--heads", "3",
         cwd=tmp_path)
    assert b"--heads" not in succeed("lesson", "--help") and b"--heads" in succeed("explain", "--help")
    fail(2, "regard: the length of tokens is 2, but X has 3 rows", "lesson", "three-words", "--tokens", "a,b", cwd=tmp_path)


@pytest.mark.parametrize("lesson", LESSONS)
def test_an_exported_lesson_gives_the_same_output(lesson):
    exported = succeed("lesson", lesson, "--export")
    assert succeed("explain", "--input", "-", stdin=exported) == succeed("lesson", lesson)
    theirs = json.loads(succeed("lesson", lesson, "--json"))
    ours = json.loads(succeed("explain", "--input", "-", "--json", stdin=exported))
    assert theirs["steps"] == ours["steps"] and theirs["schema"] == "regard/1"


def test_three_words_shows_the_numbers_of_its_document():
    text = succeed("lesson", "three-words").decode()
    assert "0.4223188" in text and "1.68927519" in text
    steps = {step["name"]: step for step in json.loads(succeed("lesson", "three-words", "--json"))["steps"]}
    q, k, v = (np.array(steps[name]["result"], float) for name in ("queries", "keys", "values"))
    weights, context = attention(q, k, v, scale=1)
    near(np.array(steps["weights"]["result"]), weights)
    near(np.array(steps["context"]["result"]), context)


# ---- long inputs


def long_page(folder, queries, *options, dtype=np.float64, **limits):
    """Writes Q, K and V of this many tokens; returns the page of `explain` and its standard output."""
    random = np.random.default_rng(7)
    for name in "QKV":
        np.save(folder / f"{name}.npy", random.standard_normal((queries, 4)).astype(dtype))
    given = [part for name in "QKV" for part in ("--matrix", f"{name}={name}.npy")]
    said = succeed("explain", *given, "--html", "page.html", *options, cwd=folder, **limits).decode()
    return (folder / "page.html").read_text(encoding="utf-8"), said


def test_a_long_input_has_a_page_of_maps_and_exact_rows(tmp_path):
    page, said = long_page(tmp_path, 3000, "--causal", "--query", "@1234")
    q, k, v = (np.load(tmp_path / f"{name}.npy") for name in "QKV")
    weights, context = attention(q, k, v, offset=0)
    arrays = page_arrays(page)
    rows = sorted({n * 2999 // 14 for n in range(15)} | {1234})
    np.testing.assert_allclose(arrays["weights"][0, 0], weights[rows], rtol=0, atol=1e-14)
    np.testing.assert_allclose(arrays["context"][0, 0], context[rows], rtol=0, atol=1e-13)
    said_of_page = json.loads(re.search('id="page">(.*?)</script>', page, re.DOTALL)[1])
    assert said_of_page["focus"] == 1234 and "query_tokens" not in said_of_page
    heaviest = int(weights.sum(axis=0).argmax())
    assert f"key {heaviest} " in said.replace("\n", " ") and "page.html" in said


def test_a_long_page_applies_projections_heads_and_layout(tmp_path):
    random = np.random.default_rng(8)
    given = {"X": (1100, 6), "W_query": (6, 4), "W_key": (6, 4), "W_value": (6, 4), "W_output": (4, 5), "b_query": (4,)}
    given = {name: random.standard_normal(shape) for name, shape in given.items()}
    x, w_query, w_key, w_value = (given[name] for name in ("X", "W_query", "W_key", "W_value"))
    q, k, v = x @ w_query + given["b_query"], x @ w_key, x @ w_value
    for columns in (False, True):
        options = []
        for name, matrix in given.items():
            np.save(tmp_path / f"{name}.npy", matrix[:, None] if columns and matrix.ndim == 1 else matrix.T if columns else matrix)
            options += ["--matrix", f"{name}={name}.npy"]
        succeed("explain", *options, "--heads", "2", "--scale", "none", "--layout", "columns" if columns else "rows",
                "--html", "page.html", cwd=tmp_path)
        arrays = page_arrays((tmp_path / "page.html").read_text(encoding="utf-8"))
        rows = sorted({n * 1099 // 14 for n in range(15)})
        for head in (0, 1):
            part = slice(2 * head, 2 * head + 2)
            weights, _ = attention(q[:, part], k[:, part], v[:, part], scale=1)
            np.testing.assert_allclose(arrays["weights"][0, head], weights[rows], rtol=0, atol=1e-12)


def test_a_long_page_contains_the_tokens(tmp_path):
    words = [f"w{i}</script>" if i == 5 else f"w{i}" for i in range(1100)]
    given = {"tokens": words, **{name: [[i % 7, i % 3] for i in range(1100)] for name in "QKV"}}
    (tmp_path / "words.json").write_text(json.dumps(given))
    succeed("explain", "--input", "words.json", "--query", "w9", "--html", "page.html", cwd=tmp_path)
    page = json.loads(re.search('id="page">(.*?)</script>', (tmp_path / "page.html").read_text(encoding="utf-8"), re.DOTALL)[1])
    assert page["query_tokens"] == page["key_tokens"] == words and page["focus"] == 9


def test_memory_of_a_long_page_is_linear(tmp_path):
    """12,000 queries and keys, whose weights would take 1.15 GB."""
    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (400 * 2**20, 400 * 2**20))

    page, said = long_page(tmp_path, 12000, "--json", "--dtype", "f32", dtype=np.float32, preexec_fn=limited)
    assert json.loads(said)["map_size"] == [512, 512]
    assert len(page) < 32e6


def test_why_scale_names_every_quantity_and_draws_the_scores_of_its_table():
    [step] = json.loads(succeed("lesson", "why-scale", "--json"))["steps"]
    labels = step["columns"]["labels"]
    assert labels[:2] == ["var(q·k)", "var(q·k/√D)"] and len(set(labels)) == 6
    assert "var(q·k) = 32.74 and var(q·k/√D) = var(q·k)/D = 32.74 / 32 = 1.02" in step["finding"]
    assert "nothing is learned" not in json.dumps(step)
    for row, picture in zip(step["result"], step["pictures"], strict=True):
        # Dividing the scores by √D divides their variance by D.
        assert row[1] == pytest.approx(row[0] / picture["head_size"], rel=1e-5)
        for sample, variance, largest, slope in ((picture["plain"], *row[0::2]), (picture["scaled"], *row[1::2])):
            counts = np.array(sample["counts"])
            assert counts.sum() + sample["below"] + sample["above"] == 256 * 10
            width = (sample["high"] - sample["low"]) / len(counts)
            centers = sample["low"] + width * (np.arange(len(counts)) + 0.5)
            if sample["below"] + sample["above"] == 0:
                # A bin's scores are spread over it: width² / 12 more than their variance.
                assert (counts @ centers**2) / counts.sum() - width**2 / 12 == pytest.approx(variance, rel=0.05)
            else:
                assert variance > 20
            ranked = sample["ranked_weights"]
            assert ranked == sorted(ranked, reverse=True) and len(ranked) == 10
            assert sum(ranked) == pytest.approx(1, abs=1e-6) and ranked[0] == pytest.approx(largest, rel=1e-12)
            # The mean of p² is at least the square of the mean.
            assert slope <= (1 - np.dot(ranked, ranked)) / 10 + 1e-9


def test_why_scale_draws_its_figure_within_80_columns():
    text = succeed("lesson", "why-scale", env=environment(LC_ALL="C.UTF-8")).decode()
    assert max(map(len, text.splitlines())) <= 80
    assert "q·k outside −20 to 20: D = 32 <1 %, D = 64 1 %, D = 128 7 %, D = 4960 77 %." in text
    rows = [line for line in text.splitlines() if re.match("   D = [0-9]+ +[▁-█]", line)]
    assert len(rows) == 6
    # Without the scale the largest of ten weights grows to the full height; with it, it does not change.
    firsts = [(row[35], row[70]) for row in rows]
    heights = [["▁▂▃▄▅▆▇█".index(block) for block in column] for column in zip(*firsts)]
    assert heights[0] == sorted(heights[0]) and heights[0][-1] == 7 and max(heights[1]) - min(heights[1]) <= 1
    assert "var(q·k/√D)" in text and "…" not in text
    narrow = succeed("lesson", "why-scale", env=environment(LC_ALL="C.UTF-8", COLUMNS="60")).decode()
    assert "█" not in narrow
    plain = succeed("lesson", "why-scale").decode()
    assert "D = 4960" in plain and plain.isascii()


def test_why_scale_explains_how_its_numbers_are_computed():
    def cell(place):
        return succeed("lesson", "why-scale", "--cell", place, env=environment(LC_ALL="C.UTF-8")).decode()

    assert "Σ (q·k)² / 2560 = 83815.3" in cell("2,0") and "/ 2560 = 32.7404" in cell("2,0")
    assert "var(q·k) / D = 32.7404 / 32 = 1.0231" in cell("2,1")
    assert "Σ largest p / 256 = 204.2" in cell("2,2") and "Σ p′(1 − p′) / 2560" in cell("2,5")


ODD = ["parts them", ": rounding", "likewise", "larger of the query", "places by", " asks", "hears", "hear each other", "listens",
       "Near 0 nothing", "draw the weights", "a seed stands", "of 1 values", "sums to 1, over", "to ask and to answer", "hands over"]


@pytest.mark.parametrize("name", LESSONS)
def test_lessons_are_in_plain_english(name):
    text = " ".join(succeed("lesson", name, env=environment(LC_ALL="C.UTF-8")).decode().split())
    assert not [odd for odd in ODD if odd in text]


def test_derivations_read_as_sentences():
    def step(lesson, name, *more):
        return " ".join(succeed("lesson", lesson, "--step", name, *more, env=environment(LC_ALL="C.UTF-8")).decode().split())

    # Only one key is visible: its factors are shown, and its product only once.
    assert "Z[0, 0] = 1 · (−2.33028699) = −2.33028699 (3 keys with weight 0 omitted)" in step("one-function", "context")
    assert "omitted: 3 keys with weight 0" in step("one-function", "context", "--cell", "0,0")
    assert "ranks by dot product[x1, x1] = 2: 1 of the 4 keys has a larger score" in step("by-hand", "ranks-of-dots")
    assert "ranks by cosine[x1, x1] = 1: none of the 4 keys has a larger score" in step("by-hand", "ranks-of-cosines")
    # Without a scale, no product is shown.
    assert "S′[love, I]: the score is not scaled: 1" in step("three-words", "scaled")
    assert "0.0752 (rounded figures sum to 0.0751)" in step("from-seed", "halves")
    assert "1.0000 the sum; rounded figures sum to 1.0001" in step("by-hand", "hand-weights")


def test_json_input_respects_available_memory_and_max_memory(tmp_path):
    (tmp_path / "nested.json").write_text('{"Q": [' + ",".join(["[]"] * 100_000) + "]}")
    fail(1, ["nested.json: needs 7", "bytes of memory; 1048576 are available"], "explain", "--input", "nested.json", "--max-memory", "1M", cwd=tmp_path)
    fail(1, "nested.json: byte 6: Q is empty", "explain", "--input", "nested.json", "--max-memory", "1G", cwd=tmp_path)
    fail(2, "--max-memory requires --input", "explain", "--matrix", "Q=q.csv", "--max-memory", "1G", cwd=tmp_path)
