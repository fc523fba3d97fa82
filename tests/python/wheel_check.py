# SPDX-License-Identifier: Apache-2.0
"""The wheel that `pip wheel .` made in REGARD_WHEEL: repaired by auditwheel, installed in an empty environment, and used
there (./check slow)."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

USE = """
import numpy, regard
x = numpy.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype("float32")
scores = x @ x.swapaxes(2, 3) / 8 ** 0.5
weights = numpy.exp(scores - scores.max(-1, keepdims=True))
assert abs(regard.attention(x, x, x) - weights / weights.sum(-1, keepdims=True) @ x).max() < 1e-5
assert "softmax" in regard.lesson("three-words").text()
assert len(regard.train("copy", steps=2, layers=1, width=16, batch=2).log.loss) == 2
print(regard.__version__, regard.active_instruction_set())
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=110, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(name="repaired", scope="module")
def fixture_repaired(tmp_path_factory):
    [wheel] = pathlib.Path(os.environ["REGARD_WHEEL"]).glob("regard-*.whl")
    folder = tmp_path_factory.mktemp("repaired")
    tools = {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel, env=os.environ | tools)
    [repaired] = folder.glob("*.whl")
    return repaired


def test_the_wheel_needs_only_the_c_and_cpp_libraries(repaired):
    assert "manylinux_2_3" in repaired.name and repaired.name.endswith("_x86_64.whl")
    names = zipfile.ZipFile(repaired).namelist()
    assert not [name for name in names if name.startswith("regard.libs/")], "auditwheel had to add libraries"


def test_the_wheel_works_in_an_empty_environment(repaired, tmp_path):
    run("/usr/bin/python3", "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", repaired, cwd=tmp_path)
    assert len(run(python, "-c", USE, cwd=tmp_path).split()) == 2
