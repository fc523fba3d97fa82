# SPDX-License-Identifier: Apache-2.0
"""`regard generate` on small decoders (trained_model.py): tokens against NumPy; streaming, pipes and signals; the one-line
error of each invalid input."""

import json
import os
import pty
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from program import PROGRAM, environment, fail, run, succeed
from trained_model import forward, make_run, vocabulary

KINDS = {"characters": "abc", "words": "^ a b", "byte_pairs": "é ab"}


@pytest.fixture(name="runs", scope="module")
def fixture_runs(tmp_path_factory):
    runs = {kind: make_run(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
    runs["llama"] = make_run(tmp_path_factory.mktemp("llama"), llama=True)
    runs["long"] = make_run(tmp_path_factory.mktemp("long"), positions=20000)
    return runs


def generated(folder, prompt, *arguments):
    document = json.loads(succeed("generate", folder, prompt, "--json", *arguments))
    assert list(document)[0] == "schema" and document["schema"] == "regard/1"
    return document


@pytest.mark.parametrize("kind", ["characters", "words", "byte_pairs", "llama"])
def test_greedy_tokens_are_those_of_numpy(runs, kind):
    spelled = kind if kind in KINDS else "characters"
    d = generated(runs[kind], KINDS[spelled], "--temperature", "0", "--tokens", "30")
    ids = d["prompt_ids"] + d["ids"]
    logits = forward(ids, spelled, llama=kind == "llama")[0]
    assert len(d["ids"]) == 30 and d["end"] == "tokens"
    for position in range(len(d["prompt_ids"]), len(ids)):
        row = logits[position - 1]
        # float32 may prefer another one only if it is as large.
        assert row[ids[position]] >= row.max() - 1e-4


def test_sampling_follows_the_probabilities(runs):
    drawn = [generated(runs["characters"], "ab", "--tokens", "1", "--seed", str(seed))["ids"][0] for seed in range(60)]
    prompt = generated(runs["characters"], "ab", "--tokens", "1")["prompt_ids"]
    logits = forward(prompt)[0][-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert len(set(drawn)) > 1
    counts = np.bincount(drawn, minlength=len(p))
    assert np.all(np.abs(counts - 60 * p) <= 5 * np.sqrt(60 * p * (1 - p)) + 1)
    likely = set(np.argsort(-logits)[:2])
    assert {generated(runs["characters"], "ab", "--tokens", "1", "--top-k", "2", "--seed", str(seed))["ids"][0]
            for seed in range(20)} <= likely
    assert generated(runs["characters"], "ab", "--tokens", "1", "--top-p", "1e-9", "--seed", "9")["ids"] == [int(logits.argmax())]


def test_output_is_the_prompt_and_the_tokens_for_any_number_of_threads(runs):
    for kind, prompt in KINDS.items():
        d = generated(runs[kind], prompt, "--seed", "3", "--tokens", "40")
        tokens = vocabulary(kind)[1]
        joiner = b" " if kind == "words" else b""
        text = joiner.join(tokens[number] for number in d["prompt_ids"] + d["ids"])
        for threads in ("1", "3"):
            out = succeed("generate", runs[kind], prompt, "--seed", "3", "--tokens", "40", env=environment(REGARD_THREADS=threads))
            assert out == text + (b"" if text.endswith(b"\n") else b"\n")
        assert d["text"] == joiner.join(tokens[number] for number in d["ids"]).decode(errors="replace") or kind == "byte_pairs"
        assert succeed("generate", runs[kind], "-", "--seed", "3", "--tokens", "40", stdin=prompt.encode() + b"\n") == out
    assert generated(runs["characters"], "abc", "--seed", "4")["ids"] != generated(runs["characters"], "abc", "--seed", "3")["ids"]


def test_generation_ends_with_the_positions_of_the_model(runs):
    d = generated(runs["characters"], "abc")
    assert d["end"] == "context" and len(d["prompt_ids"]) + len(d["ids"]) == 65
    assert d["sampling"] == {"temperature": 1, "top_k": 0, "top_p": 1, "seed": "0"}
    assert len(d["model"]["sha256"]) == 64


def test_a_checkpoint_is_a_run_of_its_own(runs, tmp_path):
    newest = make_run(tmp_path)
    shutil.copytree(newest / "step-00000007", newest / "step-00000003")
    (newest / "step-00000003" / "vocabulary.json").write_text(json.dumps(vocabulary("words")[0]))
    assert generated(newest, "abc")["ids"] == generated(runs["characters"], "abc")["ids"]
    assert generated(newest / "step-00000007", "abc")["ids"] == generated(newest, "abc")["ids"]
    assert "8 tokens" in fail(1, "vocabulary.json", "generate", newest / "step-00000003", "abc", cwd=tmp_path)


def start(*arguments, **options):
    return subprocess.Popen([PROGRAM, *map(os.fspath, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(), **options)


def test_tokens_are_written_as_they_are_generated(runs):
    with start("generate", runs["long"], "abc", "--tokens", "19000") as process:
        begin = time.monotonic()
        assert os.read(process.stdout.fileno(), 3) == b"abc"
        assert os.read(process.stdout.fileno(), 1)
        first = time.monotonic() - begin
        process.stdout.read(3000)
        assert first < time.monotonic() - begin
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b""


def test_a_closed_pipe_ends_it_silently(runs):
    with start("generate", runs["long"], "abc", "--tokens", "19000") as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == b""


def test_terminal_gets_no_control_characters(runs, tmp_path):
    folder = make_run(tmp_path, "byte_pairs")
    text = "\x1b]0;x\x07a‮\tb\nc"
    master, slave = pty.openpty()
    done = run("generate", folder, text, "--tokens", "5", "--temperature", "0", stdout=slave, env=environment(TERM="xterm"))
    os.close(slave)
    shown = os.read(master, 4096).decode()
    os.close(master)
    assert done.returncode == 0
    assert shown.startswith("\\u{1b}]0;x\\u{7}a\\u{202e}\tb\r\nc")
    assert "\x1b" not in shown
    # A pipe gets the bytes.
    assert succeed("generate", folder, text, "--tokens", "5", "--temperature", "0").startswith(text.encode())
    assert runs


@pytest.mark.parametrize("words, arguments", [
    ("the prompt: encode: byte 1: \"z\" is not one of the 9 tokens of the vocabulary", ["az"]),
    ("the prompt has no tokens", ["-"]),
    ("the prompt has 65 tokens and the model has 64 positions", ["a" * 65]),
    ("--tokens is 0; expected at least 1", ["a", "--tokens", "0"]),
    ("--tokens is \"x\"", ["a", "--tokens", "x"]),
    ("temperature is -1; expected a finite number of at least 0", ["a", "--temperature", "-1"]),
    ("top_p is 1.5; expected a number above 0 and at most 1", ["a", "--top-p", "1.5"]),
    ("top_k is -1; expected at least 0", ["a", "--top-k", "-1"]),
    ("--seed is -1; expected at least 0", ["a", "--seed", "-1"]),
    ("regard generate --help", []),
    ("regard generate --help", ["a", "b"])])
def test_errors_of_the_command_line(runs, tmp_path, words, arguments):
    fail(2, words, "generate", runs["characters"], *arguments, cwd=tmp_path)


def test_untrusted_runs(runs, tmp_path):
    fail(1, "has neither a config.json nor a checkpoint", "generate", tmp_path, "a", cwd=tmp_path)
    fail(1, "no/such", "generate", tmp_path / "no" / "such", "a", cwd=tmp_path)
    checkpoint = shutil.copytree(runs["characters"] / "step-00000007", tmp_path / "copy")
    for name, text, words in [
            ("vocabulary.json", "{}", "schema is missing"),
            ("vocabulary.json", json.dumps(vocabulary("words")[0]), "has 8 tokens; config.json has a vocab_size of 9"),
            ("config.json", "{}", "model_type is missing"),
            ("config.json", '{"model_type": "bert"}', 'expected "llama", "regard_decoder"'),
            ("model.safetensors", "x", "model.safetensors")]:
        kept = (checkpoint / name).read_bytes()
        (checkpoint / name).write_text(text)
        fail(1, words, "generate", checkpoint, "a", cwd=tmp_path)
        (checkpoint / name).unlink()
        fail(1, name, "generate", checkpoint, "a", cwd=tmp_path)
        (checkpoint / name).write_bytes(kept)
    succeed("generate", checkpoint, "a")
