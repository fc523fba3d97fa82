# SPDX-License-Identifier: Apache-2.0
"""`regard embed --shard` and `regard join` on a small model (sentence_model.py): the joined shards have the bytes of one run
for every number of shards, also after a shard was killed; a complete shard is not computed again; and shards that are missing,
damaged, or made from something else are rejected by name."""

import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from program import PROGRAM, environment, fail, run, succeed, tree
from sentence_model import make_folder

WORDS = "he sat on the bank of river she put her money in they walked along at dawn".split()


@pytest.fixture(name="model", scope="module")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


def text_of(lines, seed):
    """Lines of 0 to 11 words."""
    numbers = np.random.default_rng(seed)
    return "\n".join(" ".join(numbers.choice(WORDS, numbers.integers(0, 12))) for _ in range(lines)).encode()


def embed(model, *arguments, **options):
    return run("embed", "--model", model, "--input", "lines.txt", *arguments, **options)


def make_shards(model, folder, output, count, *arguments):
    for index in reversed(range(count)):
        done = embed(model, "-o", output, "--shard", f"{index}/{count}", *arguments, cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


TEXTS = {
    "lines of different lengths": text_of(200, seed=1) + b"\n",
    "no newline at the end": text_of(60, seed=2),
    "CR LF": text_of(60, seed=3).replace(b"\n", b"\r\n") + b"\r\n",
    "a long line in the middle": b"bank\n" + b" " * 200_000 + b"river\nshe sat\n",
    "empty lines": b"\n" * 37,
    "fewer bytes than shards": b"he\nis",
    "one line": b"he sat on the bank of the river",
    "no line": b"",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_joined_shards_have_the_bytes_of_one_run(model, tmp_path, kind, ending):
    (tmp_path / "lines.txt").write_bytes(TEXTS[kind])
    embed(model, "-o", f"whole.{ending}", cwd=tmp_path)
    whole = (tmp_path / f"whole.{ending}").read_bytes()
    for count in range(1, 17) if kind == "lines of different lengths" and ending == "npy" else (1, 3, 16):
        make_shards(model, tmp_path, f"out.{ending}", count)
        assert succeed("join", f"out.{ending}", cwd=tmp_path) == b""
        assert (tmp_path / f"out.{ending}").read_bytes() == whole, count
        shards = [tmp_path / f"out.{ending}.shard-{i}-of-{count}" for i in range(count)]
        if ending == "csv":
            assert b"".join(shard.read_bytes() for shard in shards) == whole
        else:
            assert np.concatenate([np.load(shard) for shard in shards]).tobytes() == np.load(tmp_path / "out.npy").tobytes()
        for shard in tmp_path.glob("*.shard-*"):
            shard.unlink()
        (tmp_path / f"out.{ending}").unlink()
    assert sorted(os.listdir(tmp_path)) == ["lines.txt", f"whole.{ending}"]


def test_shards_are_contiguous_and_about_equally_long(model, tmp_path):
    text = TEXTS["lines of different lengths"]
    (tmp_path / "lines.txt").write_bytes(text)
    make_shards(model, tmp_path, "out.npy", 8)
    end, line = 0, 1
    for index in range(8):
        record = json.loads((tmp_path / f"out.npy.shard-{index}-of-8.json").read_text())
        assert list(record) == ["schema", "command", "version", "instruction_set", "format", "model", "truncate", "input",
                                "shard", "vectors"]
        shard = record["shard"]
        assert (shard["index"], shard["count"], shard["first_byte"], shard["first_line"]) == (index, 8, end, line)
        end = shard["end_byte"]
        assert end == len(text) or text[end - 1:end] == b"\n"
        assert abs(end - (index + 1) * len(text) / 8) <= max(map(len, text.split(b"\n")))
        line += record["vectors"]["lines"]
    assert (end, line) == (len(text), 201)


def test_threads_and_instruction_sets_of_the_machines_do_not_matter(model, tmp_path):
    (tmp_path / "lines.txt").write_bytes(TEXTS["lines of different lengths"])
    embed(model, "-o", "whole.npy", cwd=tmp_path)
    sets = [entry["name"] for entry in json.loads(succeed("info", "--json"))["instruction_sets"]
            if entry["available"] and entry["name"] != "generic"]
    for index in range(4):
        env = environment(REGARD_THREADS=str(index + 1), REGARD_FORCE_ISA=sets[index % len(sets)])
        assert embed(model, "-o", "out.npy", "--shard", f"{index}/4", cwd=tmp_path, env=env).returncode == 0
    succeed("join", "out.npy", cwd=tmp_path)
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_errors_name_the_line_of_the_whole_file(model, tmp_path):
    (tmp_path / "lines.txt").write_bytes(b"he sat\n" * 50 + b"bank " * 50 + b"\n" + b"river\n" * 50)
    errors = [done.stderr.decode() for i in range(4)
              if (done := embed(model, "-o", "a.csv", "--shard", f"{i}/4", cwd=tmp_path)).returncode]
    assert len(errors) == 1 and "lines.txt: line 51: the text has 52 tokens" in errors[0]
    assert len(list(tmp_path.glob("a.csv.shard-*-of-4"))) == 3


# ---- interruptions


def start_shard(model, folder, *arguments):
    """A process that is in the middle of shard 1 of 3."""
    process = subprocess.Popen([PROGRAM, "embed", "--model", model, "--input", "lines.txt", "-o", "out.csv", "--shard", "1/3",
                                *arguments], cwd=folder, stderr=subprocess.PIPE, env=environment(REGARD_THREADS="1"))
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 0 for path in folder.glob(".out.csv.shard-1-of-3-*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    return process


@pytest.fixture(name="long", scope="module")
def fixture_long(model, tmp_path_factory):
    """A folder with a text for which a shard takes a while, and the output of one run."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "lines.txt").write_bytes(text_of(16_000, seed=4))
    embed(model, "-o", "whole.csv", cwd=folder)
    return folder


@pytest.fixture(name="folder")
def fixture_folder(long, tmp_path):
    for name in ("lines.txt", "whole.csv"):
        os.link(long / name, tmp_path / name)
    return tmp_path


def test_a_killed_shard_leaves_no_half_file_and_is_computed_again(model, folder):
    process = start_shard(model, folder)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    process.stderr.close()
    assert not list(folder.glob("out.csv*")) and len(list(folder.glob(".out.csv*"))) == 2
    make_shards(model, folder, "out.csv", 3)
    assert not list(folder.glob(".*"))
    succeed("join", "out.csv", cwd=folder)
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(model, folder, number):
    before = tree(folder)
    process = start_shard(model, folder)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert tree(folder) == before


def test_two_processes_can_compute_the_same_shard(model, folder):
    first = start_shard(model, folder)
    done = embed(model, "-o", "out.csv", "--shard", "1/3", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    assert first.wait(60) == 0
    with first.stderr as stderr:
        assert stderr.read() == b""
    make_shards_again = [embed(model, "-o", "out.csv", "--shard", f"{i}/3", cwd=folder).returncode for i in range(3)]
    assert make_shards_again == [0, 0, 0] and not list(folder.glob(".*"))
    succeed("join", "out.csv", cwd=folder)
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()


# ---- resuming


@pytest.fixture(name="three")
def fixture_three(model, tmp_path):
    """A folder with three complete shards of out.npy."""
    (tmp_path / "lines.txt").write_bytes(TEXTS["lines of different lengths"])
    make_shards(model, tmp_path, "out.npy", 3)
    return tmp_path


def test_a_complete_shard_is_not_computed_again(model, three):
    before = {path: path.stat().st_mtime_ns for path in three.iterdir()}
    done = embed(model, "-o", "out.npy", "--shard", "1/3", cwd=three)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"regard: out.npy.shard-1-of-3 is complete and is not recomputed\n"
    assert {path: path.stat().st_mtime_ns for path in three.iterdir()} == before


def other_model(model, folder, name, change):
    copy = folder / "other-model"
    shutil.copytree(model, copy)
    (copy / name).write_text(change((copy / name).read_text()))
    return copy


def test_another_input_model_option_or_damage_is_computed_again(model, three):
    path = three / "out.npy.shard-1-of-3"
    good = path.read_bytes()

    def recompute(model, *arguments):
        done = embed(model, "-o", "out.npy", "--shard", "1/3", *arguments, cwd=three)
        assert (done.returncode, done.stderr) == (0, b"")

    path.write_bytes(good[:-4] + b"\0\0\0\0")
    recompute(model)
    assert path.read_bytes() == good
    path.unlink()
    recompute(model)
    assert path.read_bytes() == good
    (three / "out.npy.shard-1-of-3.json").write_text("{")
    recompute(model)
    recompute(model, "--truncate")
    recompute(other_model(model, three, "tokenizer.json", lambda text: text.replace('"bank"', '"banks"')))
    assert path.read_bytes() != good
    recompute(model)
    (three / "lines.txt").write_bytes(TEXTS["lines of different lengths"].replace(b"bank", b"dawn"))
    recompute(model)


# ---- join


def test_missing_shards_are_named(model, three):
    (three / "out.npy.shard-0-of-3").unlink()
    fail(1, "out.npy: shard 0 of 3 is missing; run regard embed --shard 0/3 first", "join", "out.npy", cwd=three)
    (three / "out.npy.shard-2-of-3.json").unlink()
    fail(1, "shards 0 and 2 of 3 are missing", "join", "out.npy", cwd=three)
    fail(1, "no.npy: has no shards; expected no.npy.shard-0-of-N", "join", "no.npy", cwd=three)
    make_shards(model, three, "out.npy", 2)
    fail(1, "out.npy: has shards of 2 and of 3", "join", "out.npy", cwd=three)


@pytest.mark.parametrize("words", ["from a different input than", "with a different model than", "with --truncate, unlike",
                                   "in a different format than"])
def test_shards_that_do_not_belong_together_are_rejected(model, three, words):
    arguments = []
    if "input" in words:
        (three / "lines.txt").write_bytes(TEXTS["lines of different lengths"].replace(b"bank", b"dawn"))
    elif "model" in words:
        model = other_model(model, three, "config.json", lambda text: text.replace("{", '{"comment": 1,', 1))
    else:
        arguments = ["--truncate"] if "truncate" in words else ["--format", "csv"]
    assert embed(model, "-o", "out.npy", "--shard", "1/3", *arguments, cwd=three).returncode == 0
    fail(1, f"out.npy.shard-1-of-3 was made {words} out.npy.shard-0-of-3", "join", "out.npy", cwd=three)


@pytest.mark.parametrize("change, words", [
    ({"version": "0.0.1"}, "by a different version of regard than"),
    ({"instruction_set": "generic"}, "with instruction set"),
])
def test_records_of_another_program_are_rejected(three, change, words):
    path = three / "out.npy.shard-1-of-3.json"
    record = json.loads(path.read_text())
    for index in (0, 2):
        other = three / f"out.npy.shard-{index}-of-3.json"
        other.write_text(json.dumps({**json.loads(other.read_text()), "instruction_set": "avx2"}))
    path.write_text(json.dumps({**record, "instruction_set": "avx512"}))
    succeed("join", "out.npy", cwd=three)
    path.write_text(json.dumps({**record, "instruction_set": "avx512", **change}))
    fail(1, ["out.npy.shard-1-of-3 was made", words, "out.npy.shard-0-of-3"], "join", "out.npy", cwd=three)


def test_damaged_and_renamed_shards_are_rejected(three):
    path = three / "out.npy.shard-1-of-3"
    good = path.read_bytes()
    for damaged in (good[:-1], good + b"\0", good[:-1] + b"\1", b"", b"\x93NUMPY"):
        path.write_bytes(damaged)
        fail(1, ["out.npy.shard-1-of-3: differs from its record", "regard embed --shard 1/3 again"], "join", "out.npy",
             cwd=three)
    path.write_bytes(good)
    record = three / "out.npy.shard-1-of-3.json"
    text = record.read_text()
    shutil.copyfile(three / "out.npy.shard-0-of-3.json", record)
    fail(1, "out.npy.shard-1-of-3.json: is not the record of this shard", "join", "out.npy", cwd=three)
    for broken, words in [("{", "byte 1"), ("[]", '"version" is missing'),
                          (text.replace('"lines": ', '"lines": -'), '"lines" is missing or invalid'),
                          (text.replace('"truncate": false', '"truncate": 0'), '"truncate" is missing or invalid')]:
        record.write_text(broken)
        fail(1, ["out.npy.shard-1-of-3.json: ", words], "join", "out.npy", cwd=three)


def test_other_files_with_similar_names_are_ignored(three):
    for name in ("out.npy.shard-00-of-4", "out.npy.shard-x-of-4", "out.npy.shard-4-of-4", "xout.npy.shard-0-of-4", "out.npy.shard-",
                 "out.npy.shard-1-of-4.json"):
        (three / name).write_bytes(b"")
    succeed("join", "out.npy", cwd=three)
    assert np.load(three / "out.npy").shape == (200, 40)


def test_shards_and_their_join_lie_in_any_folder(model, three):
    (three / "sub").mkdir()
    make_shards(model, three, "sub/out.npy", 2)
    succeed("join", "sub/out.npy", cwd=three)
    succeed("join", three / "out.npy", cwd=three)
    assert (three / "sub" / "out.npy").read_bytes() == (three / "out.npy").read_bytes()


# ---- usage errors


@pytest.mark.parametrize("words, arguments", [
    ('--shard is "3"; expected I/N, such as 0/16', ["--shard", "3"]),
    ('--shard is "1/2/3"; expected I/N', ["--shard", "1/2/3"]),
    ('--shard is "16/16"; shards are numbered from 0: expected 0/16 to 15/16', ["--shard", "16/16"]),
    ('--shard is "-1/2"; shards are numbered from 0', ["--shard=-1/2"]),
    ('--shard is "0/0"; expected 1 to 1000000 shards', ["--shard", "0/0"]),
    ('--shard is "x"; expected an integer', ["--shard", "x/4"]),
    ("--shard writes npy or csv", ["--shard", "0/2", "--format", "json"]),
    ("--shard needs --output FILE", ["--shard", "0/2", "--output", "-", "--format", "csv"]),
    ("--shard needs --input FILE: a shard of standard input cannot be read", ["--shard", "0/2", "--input", "-"]),
])
def test_invalid_shards_are_rejected(model, tmp_path, words, arguments):
    (tmp_path / "lines.txt").write_bytes(b"he sat\n")
    given = [*([] if "--input" in arguments else ["--input", "lines.txt"]),
             *([] if "--output" in arguments else ["--output", "out.npy"]), *arguments]
    fail(2, words, "embed", "--model", model, *given, cwd=tmp_path)


def test_invalid_files_are_rejected(model, tmp_path):
    fail(2, "missing output file", "join", cwd=tmp_path)
    fail(2, "the output is -", "join", "-", cwd=tmp_path)
    fail(1, "none.txt", "embed", "--model", model, "--input", "none.txt", "-o", "a.npy", "--shard", "0/2", cwd=tmp_path)
    (tmp_path / "a.csv.shard-0-of-2").write_bytes(b"he sat\n")
    fail(2, "--output would write a.csv.shard-0-of-2, which --input reads", "embed", "--model", model, "--input",
         "a.csv.shard-0-of-2", "-o", "a.csv", "--shard", "0/2", cwd=tmp_path)
    (tmp_path / "a.csv.shard-1-of-2.json").mkdir()
    fail(1, "a.csv.shard-1-of-2.json: is a folder", "embed", "--model", model, "--input", "a.csv.shard-0-of-2", "-o", "a.csv",
         "--shard", "1/2", cwd=tmp_path)
