# SPDX-License-Identifier: Apache-2.0
"""Builds and runs programs with each MPI of REGARD_MPIS, the folders of mpicxx and mpirun, separated by colons.

The libraries of Regard are those of the build that REGARD_PROGRAM belongs to.
"""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [pathlib.Path(folder) for folder in os.environ.get("REGARD_MPIS", "").split(":") if folder]
EXPLANATION = "REGARD_MPIS is not set; expected the folders of mpicxx and mpirun, separated by colons"

# A test with this mark gets each folder as its argument or fixture `mpi`; without any, it fails.
each_mpi = pytest.mark.parametrize("mpi", FOLDERS or [None], ids=str, scope="module")


def build(mpi, program, *sources):
    """Compiles a program, whose sources are relative to the root of the repository."""
    assert mpi is not None, EXPLANATION
    libraries = pathlib.Path(os.environ["REGARD_PROGRAM"]).resolve().parent
    command = [mpi / "mpicxx", "-std=c++20", "-O1", "-Wall", "-Wextra", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX",
               f"-I{ROOT / 'include'}", *(ROOT / source for source in sources),
               libraries / "src/distributed/libregard_distributed.a", libraries / "libregard.a", "-lpthread", "-o", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(mpi, num_ranks, program, *arguments, timeout=120, **variables):
    """What the ranks print on standard output; the program must succeed."""
    command = [mpi / "mpirun"]
    if "Open MPI" in subprocess.run([mpi / "mpirun", "--version"], capture_output=True, text=True, check=True).stdout:
        command.append("--oversubscribe")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    done = subprocess.run([*command, "-n", str(num_ranks), program, *arguments], capture_output=True, text=True,
                          env=environment, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
