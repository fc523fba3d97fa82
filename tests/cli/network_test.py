# SPDX-License-Identifier: Apache-2.0
"""Only the subcommand `pull` needs a network: in a namespace without one, all others give the same output. A first test
checks that nothing can be reached there, not even this machine itself. Also the error of `regard pull` there."""

import functools
import json
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

from program import PROGRAM, environment, fail, succeed, tree
from sentence_model import make_folder

A = "he sat on the bank of the river"
B = "she put her money in the bank"
PROBE = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10)"


@functools.cache
def without_network():
    """The beginning of a command line that runs a program in an empty network namespace."""
    said = ""
    for option in ("-n", "-rn"):  # the first needs root, the second a kernel that allows user namespaces
        done = subprocess.run(["unshare", option, "true"], stderr=subprocess.PIPE, timeout=60, check=False)
        if done.returncode == 0:
            return ["unshare", option]
        said = done.stderr.decode().strip()
    raise AssertionError(f"this machine does not allow network namespaces, so nothing is tested here: {said}")


def offline(*arguments, **options):
    """Standard output of the program, run without a network."""
    options.setdefault("env", environment())
    done = subprocess.run([*without_network(), PROGRAM, *map(os.fspath, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False, **options)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return done.stdout


def test_the_namespace_has_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = [sys.executable, "-c", PROBE, str(server.getsockname()[1])]
        assert subprocess.run(probe, timeout=60, check=False).returncode == 0
        done = subprocess.run([*without_network(), *probe], stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1 and b"Network is unreachable" in done.stderr
    interfaces = subprocess.run([*without_network(), "cat", "/proc/self/net/dev"], stdout=subprocess.PIPE, timeout=60,
                                check=True).stdout.decode().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"] or not interfaces


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """A folder with a model, a lesson's input and arrays."""
    (tmp_path / "model").mkdir()
    make_folder(tmp_path / "model")
    (tmp_path / "lesson.json").write_bytes(succeed("lesson", "three-words", "--export"))
    generator = np.random.default_rng(7)
    for name, shape in {"q": (4, 8), "k": (6, 8), "v": (6, 5)}.items():
        np.save(tmp_path / f"{name}.npy", generator.normal(size=shape))
    return tmp_path


MATRICES = ["--matrix", "Q=q.npy", "--matrix", "K=k.npy", "--matrix", "V=v.npy"]


@pytest.mark.parametrize("arguments, words", [
    (["explain", "--input", "lesson.json"], "weights"),
    (["explain", "--input", "lesson.json", "--html", "-"], "<!doctype html>"),
    (["explain", *MATRICES, "--json"], '"regard/1"'),
    (["explain", A, "--query", "bank", "--model", "model"], "contribution"),
    (["explain", A, "--query", "bank", "--model", "model", "--compare-with", B], "A and B"),
    (["explain", A, "--query", "bank", "--model", "model", "--json"], '"ranked_heads"'),
    (["explain", A, "--query", "bank", "--model", "model", "--html", "-"], "<!doctype html>"),
    (["compare", "bank", A, B, "--model", "model"], "A and B"),
    (["compare", "bank", A, B, "--model", "model", "--json"], '"above_floor"'),
    (["compare", "bank", A, B, "--model", "model", "--html", "-"], "<!doctype html>"),
    (["heads", A, "--model", "model"], "L2H3"),
    (["heads", A, "--model", "model", "--json"], '"regard/1"'),
    (["lesson"], "by-hand"),
    (["lesson", "three-words"], "softmax"),
    (["lesson", "by-hand", "--json"], '"regard/1"'),
    (["lesson", "one-function", "--html", "-"], "<!doctype html>"),
    (["info"], "instruction"),
    (["info", "--json"], '"regard/1"'),
    (["--version"], "commit"),
], ids=lambda value: " ".join(value[:1] + [word for word in value if word.startswith("--")])
    if isinstance(value, list) else "")
def test_output_is_the_same_without_a_network(folder, arguments, words):
    # The available memory changes all the time.
    def steady(output):
        return re.sub(r'("memory_bytes": |memory +)[\d.]+', r"\1…", output.decode())

    expected = succeed(*arguments, cwd=folder)
    assert words in expected.decode()
    assert steady(offline(*arguments, cwd=folder)) == steady(expected)


def test_attend_writes_its_files_without_a_network(folder):
    arrays = ["--query", "q.npy", "--key", "k.npy", "--value", "v.npy"]
    report = json.loads(offline("attend", *arrays, "-o", "context.npy", "--weights", "weights.npy", "--json", cwd=folder))
    assert report["schema"] == "regard/1"
    q, k, v = (np.load(folder / f"{name}.npy") for name in "qkv")
    exponentials = np.exp(q @ k.T / np.sqrt(8))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(folder / "weights.npy"), weights, rtol=1e-12)
    np.testing.assert_allclose(np.load(folder / "context.npy"), weights @ v, rtol=1e-12, atol=1e-15)


def test_explain_saves_the_same_without_a_network(folder):
    for name, run in (("aaaa", succeed), ("zzzz", offline)):
        run("explain", A, "--model", "model", "--save", name, "--html", f"{name}.html", cwd=folder)
    here, there = (tree(folder / name) for name in ("aaaa", "zzzz"))
    assert list(here) == list(there) and len(here) > 3
    assert [here[path] for path in here if path.suffix == ".npy"] == [there[path] for path in there if path.suffix == ".npy"]
    pages = [(folder / f"{name}.html").read_text() for name in ("aaaa", "zzzz")]
    assert pages[0] == pages[1].replace("zzzz", "aaaa")


def test_pull_without_a_network_names_the_remedy_and_leaves_no_files(tmp_path):
    cache = tmp_path / "cache"
    variables = {name: None for name in os.environ if name.upper().startswith("PIP_") or name.lower().endswith("_proxy")}
    kept = {name: value for name, value in environment().items() if name not in variables}
    kept.update(REGARD_CACHE=str(cache), REGARD_PYTHON=sys.executable, PIP_CONFIG_FILE="/dev/null")
    done = subprocess.run([*without_network(), PROGRAM, "pull", "minilm"], env=kept, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 1 and not done.stdout
    lines = done.stderr.decode().splitlines()
    assert [line for line in lines if line.startswith("regard: ")] == lines[-1:], lines
    assert "pip cannot connect; check the network and https_proxy" in lines[-1]
    assert "regard pull minilm --from FILE" in lines[-1]
    assert [path.name for path in cache.rglob("*") if path.is_file() and path.name != ".lock"] == []
    # Then there is no model, and a command that needs one reports that.
    fail(1, "regard pull minilm", "explain", A, cwd=tmp_path, env=environment(REGARD_CACHE=str(cache)))
