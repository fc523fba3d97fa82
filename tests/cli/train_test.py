# SPDX-License-Identifier: Apache-2.0
"""`regard train`: every output holds the same run; threads, micro-batches, recomputation, signals and resuming change no
byte of a checkpoint; and the one-line error of each mistake."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest

from program import PROGRAM, environment, fail, run, succeed

SMALL = ("--task", "induction", "--steps", "12", "--batch", "4", "--layers", "1", "--width", "16", "--snapshots", "4")


def model_bytes(run_folder):
    """The parameters and moments of the newest checkpoint."""
    newest = sorted(path for path in pathlib.Path(run_folder).iterdir() if path.name.startswith("step-"))[-1]
    return {path.name: path.read_bytes() for path in newest.iterdir() if path.suffix == ".safetensors"}


def test_every_output_holds_the_same_run(tmp_path):
    text = succeed("train", *SMALL, "--watch", "page.html", "--log", "log.csv", "--plot", "plot.svg", cwd=tmp_path).decode()
    assert re.search(r"held out: \d+ of 512 sequences correct", text) and "page   file://" in text
    record = json.loads(succeed("train", *SMALL, "--log", "log.json", "--json", cwd=tmp_path))
    assert record["schema"] == "regard/1"
    with open(tmp_path / "log.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(12))
    assert [float(row["loss"]) for row in rows] == record["curve"]["loss"]
    for name in ("held_out_loss", "accuracy", "held_out_accuracy"):
        measured = [None if row[name] == "" else float(row[name]) for row in rows]
        assert measured == record["curve"][name] and len(rows) > len([x for x in measured if x is not None]) > 2
    logged = json.loads((tmp_path / "log.json").read_text())
    assert logged["curve"]["loss"] == record["curve"]["loss"]
    xml.etree.ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!") and len(page) < 4_000_000


def test_evaluate_is_the_number_of_held_out_sequences():
    assert re.search(rb"held out: \d+ of 40 sequences correct", succeed("train", *SMALL, "--evaluate", "40"))


def test_the_list_describes_every_task(tmp_path):
    tasks = json.loads(succeed("train", "--list", "--json"))["tasks"]
    assert [task["name"] for task in tasks] == ["copy", "reverse", "sort", "induction", "recall", "addition",
                                                "modular-addition", "brackets"]
    text = succeed("train", "--list").decode()
    for task in tasks:
        assert task["shows"] in text and task["pattern"] in text and task["expected"] in text
        assert re.search(r"about \d+ (second|minute)s?", task["expected"])
        plan = succeed("train", "--task", task["name"], "--dry-run").decode()
        assert task["shows"] in plan and re.search(r"work .*projections \d+ %", plan)


def test_events_of_a_run_are_those_of_an_independent_script():
    script = pathlib.Path(__file__).parent.parent / "train" / "events.py"
    subprocess.run([sys.executable, script, "--train", PROGRAM, "0"], check=True, env=environment(), timeout=120)


def test_threads_micro_batches_and_recomputation_change_no_byte(tmp_path):
    expected = None
    for number, options in enumerate(((), ("--micro-batch", "1"), ("--recompute",), ("--micro-batch", "3"))):
        for threads in (1, 2, 4):
            folder = tmp_path / f"{number}-{threads}"
            succeed("train", *SMALL, *options, "--run", folder, env=environment(REGARD_THREADS=str(threads)))
            expected = expected or model_bytes(folder)
            assert model_bytes(folder) == expected, (options, threads)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("the cat sat on the mat and the dog lay on the rug. " * 40)
    options = ("--text", text, "--steps", "30", "--batch", "3", "--length", "16", "--layers", "1", "--width", "16")
    succeed("train", *options, "--run", "whole", cwd=tmp_path)
    command = [PROGRAM, "train", *map(str, options), "--run", "stopped", "--checkpoint-every", "1"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        before = set((tmp_path / "stopped").glob("step-*"))
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if command[-1] != "--resume":
            command.append("--resume")
        deadline = time.monotonic() + 60
        while process.poll() is None and set((tmp_path / "stopped").glob("step-*")) <= before and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        # A run that is already done exits as usual.
        assert process.returncode in (0, 128 + number, -number), errors.decode()
        if process.returncode == 128 + number:
            assert re.search(r"stopped after step \d+, which is saved; continue with --run stopped --resume", errors.decode())
    if list((tmp_path / "stopped").glob("step-*")):
        succeed(*command[1:], cwd=tmp_path)
    assert model_bytes(tmp_path / "stopped") == model_bytes(tmp_path / "whole")
    assert not [path for path in (tmp_path / "stopped").iterdir() if not path.name.startswith("step-")]


def test_a_run_is_not_resumed_with_another_text_or_setting(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("the cat sat on the mat and the dog lay on the rug. " * 40)
    options = ("--text", text, "--steps", "4", "--batch", "2", "--length", "16", "--layers", "1", "--width", "16", "--run", "run")
    succeed("train", *options, cwd=tmp_path)
    message = fail(2, "already has checkpoints", "train", *options, cwd=tmp_path)
    assert "--resume" in message
    fail(1, "learning_rate", "train", *options, "--resume", "--learning-rate", "0.5", cwd=tmp_path)
    text.write_text(text.read_text().replace("cat", "dog"))
    fail(1, "SHA-256", "train", *options, "--resume", cwd=tmp_path)


@pytest.mark.parametrize(("words", "options"), [
    ("expected either --task NAME or --text FILE", ()),
    ("--task: ", ("--task", "juggling")),
    ("--steps is", ("--task", "copy", "--steps", "many")),
    ("--norm is \"soft\"; expected layer, rms", ("--task", "copy", "--norm", "soft")),
    ("--log curve.txt does not end in .csv or .json", ("--task", "copy", "--log", "curve.txt")),
    ("--resume needs --run", ("--task", "copy", "--resume")),
    ("has no checkpoint to resume", ("--task", "copy", "--run", "nothing", "--resume")),
    ("--evaluate is 0; expected at least 1", ("--task", "copy", "--evaluate", "0")),
    ("--checkpoint-every needs --run", ("--task", "copy", "--checkpoint-every", "3")),
    ("--vocabulary needs --text", ("--task", "copy", "--vocabulary", "300")),
    ("--length needs --text", ("--task", "copy", "--length", "8")),
    ("width", ("--task", "copy", "--width", "3", "--heads", "2")),
])
def test_mistakes_in_the_command_line_are_named(tmp_path, words, options):
    fail(2, words, "train", *options, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_texts_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9 " * 100)
    fail(1, "empty.txt", "train", "--text", "empty.txt", cwd=tmp_path)
    fail(1, "latin1.txt", "train", "--text", "latin1.txt", cwd=tmp_path)
    fail(1, "missing.txt", "train", "--text", "missing.txt", cwd=tmp_path)


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_checkpoint(tmp_path):
    options = ("--task", "copy", "--steps", "60", "--batch", "2", "--width", "16", "--learning-rate", "1e30", "--clip", "0",
               "--schedule", "constant", "--run", "run", "--checkpoint-every", "1", "--weight-decay", "0")
    result = run("train", *options, cwd=tmp_path)
    assert result.returncode == 1
    errors = result.stderr.decode()
    assert re.search(r"step \d+", errors) and "layer" in errors, errors
    assert errors.count("\n") == 1
    assert os.listdir(tmp_path / "run")
