# SPDX-License-Identifier: Apache-2.0
"""regard.distributed with mpi4py, for each MPI of $REGARD_MPIS. Debian's Open MPI has no mpi4py of its own here: that of
another Open MPI loads the library that MPI4PY_LIBMPI names."""

import pathlib
import subprocess

import pytest
import regard
from documents import ROOT, blocks
from mpi_programs import MPIS
from rank_cases import FAILURES, RESULTS

BEFORE_THE_GUIDE = """
import numpy as np
from mpi4py import MPI
rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
random = np.random.default_rng(0)
whole = [random.standard_normal((1, 2, 5 * ranks, 16), np.float32) for _ in range(3)]
own = slice(5 * rank, 5 * rank + 5)
query, key, value = (np.ascontiguousarray(x[:, :, own]) for x in whole)
"""
AFTER_THE_GUIDE = """
import regard
assert np.array_equal(context, regard.attention(*whole, causal=True)[:, :, own])
print(f"rank {rank} agrees")
"""
CASES = pathlib.Path(__file__).resolve().parents[1] / "support" / "rank_cases.py"
ENVIRONMENT = {"PYTHONPATH": str(pathlib.Path(regard.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}


def has_mpi4py(mpi):
    python = mpi.folder / "python"
    return python.exists() and subprocess.run([python, "-c", "import mpi4py"], capture_output=True, check=False).returncode == 0


WITH_MPI4PY = [mpi for mpi in MPIS if has_mpi4py(mpi)]
OPEN_MPI4PY = next((mpi for mpi in WITH_MPI4PY if mpi.is_open), None)
mpis = pytest.mark.parametrize("mpi", MPIS or [None], ids=str)


def test_mpis_with_mpi4py_are_given():
    assert len(WITH_MPI4PY) >= 2, "REGARD_MPIS names fewer than two bin folders with mpi4py; separate them by colons"


def run(mpi, ranks, *arguments):
    assert mpi is not None, "REGARD_MPIS names no bin folder"
    if mpi in WITH_MPI4PY:
        return mpi.start(ranks, mpi.folder / "python", *arguments, **ENVIRONMENT)
    return mpi.start(ranks, OPEN_MPI4PY.folder / "python", *arguments, **ENVIRONMENT, MPI4PY_LIBMPI=str(mpi.library()))


def check_passed(done, ranks, cases):
    passed = sorted(line for line in done.stdout.split("\n") if " passed: " in line)
    expected = sorted(f"rank {rank} of {ranks} passed: {case}" for rank in range(ranks) for case in cases)
    assert (done.returncode, passed) == (0, expected), done.stdout + done.stderr


@mpis
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_have_the_bits_of_one_process(mpi, ranks):
    check_passed(run(mpi, ranks, CASES, *RESULTS), ranks, RESULTS)


@mpis
def test_the_lines_of_the_guide_run_with_its_command(mpi, tmp_path):
    texts = [text for _, _, text in blocks(ROOT / "docs" / "guide" / "several-machines.md")]
    lines = next(text for text in texts if "from mpi4py" in text)
    (tmp_path / "program.py").write_text(BEFORE_THE_GUIDE + lines + AFTER_THE_GUIDE, encoding="utf-8")
    assert "mpirun -n 4 python -m mpi4py program.py\n" in texts
    done = run(mpi, 4, "-m", "mpi4py", tmp_path / "program.py")
    assert done.returncode == 0 and done.stdout.count("agrees") == 4, done.stdout + done.stderr


@mpis
@pytest.mark.parametrize("case", [case for case in FAILURES if case not in ("ends", "killed")])
def test_every_rank_that_is_left_names_the_one_that_failed(mpi, case):
    check_passed(run(mpi, 3, CASES, case), 3, [case])


@mpis
def test_an_exception_of_a_rank_ends_the_program(mpi):
    done = run(mpi, 3, CASES, "ends")
    assert done.returncode != 0 and "RuntimeError: a mistake of the program" in done.stderr and " passed: " not in done.stdout


@mpis
def test_without_threads_of_mpi_messages_travel_while_calls_wait(mpi, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys
import mpi4py
mpi4py.rc.thread_level = "funneled"
sys.path.insert(0, {str(CASES.parent)!r})
import rank_cases
from mpi4py import MPI
assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
rank_cases.main()
""", encoding="utf-8")
    check_passed(run(mpi, 2, program, "forward", "mistakes"), 2, ["forward", "mistakes"])
