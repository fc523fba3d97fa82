# SPDX-License-Identifier: Apache-2.0
"""Builds and runs programs with each MPI of REGARD_MPIS, the folders of mpicxx and mpirun, separated by colons.

The libraries of Regard are those of the build that REGARD_PROGRAM belongs to.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [pathlib.Path(folder) for folder in os.environ.get("REGARD_MPIS", "").split(":") if folder]
EXPLANATION = "REGARD_MPIS is not set; expected the folders of mpicxx and mpirun, separated by colons"


class Mpi:
    """One MPI installation."""

    def __init__(self, folder):
        self.folder = folder
        version = subprocess.run([folder / "mpirun", "--version"], capture_output=True, text=True, check=True).stdout
        self.is_open = "Open MPI" in version or "open-mpi" in version
        self.major = int(re.search(r"(\d+)\.\d+\.\d+", version).group(1))

    def __str__(self):
        return f"{'open' if self.is_open else 'mpich'}{self.major}"

    def library(self):
        """The shared library of an Open MPI."""
        folders = subprocess.run([self.folder / "mpicxx", "--showme:libdirs"], capture_output=True, text=True, check=True).stdout
        return pathlib.Path(folders.split()[0], "libmpi.so").resolve(strict=True)

    def build(self, program, *sources, options=()):
        """Compiles a program, whose sources are relative to the root of the repository."""
        libraries = pathlib.Path(os.environ["REGARD_PROGRAM"]).resolve().parent
        objects = [program.with_name(f"{program.name}-{pathlib.Path(source).stem}.o") for source in sources]
        for source, compiled in zip(sources, objects):
            self.compile("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", *options,
                         f"-I{ROOT / 'include'}", f"-I{ROOT / 'cli'}", "-c", ROOT / source, "-o", compiled)
        self.compile(*options, *objects, libraries / "src/distributed/libregard_distributed.a", libraries / "libregard.a",
                     "-lpthread", "-o", program)
        return program

    def compile(self, *arguments):
        """Every process of the tests compiles the same programs: the cache does so once."""
        cached = {"OMPI_CXX": "ccache g++", "MPICH_CXX": "ccache g++"} if shutil.which("ccache") else {}
        done = subprocess.run([self.folder / "mpicxx", *arguments], capture_output=True, text=True, check=False, timeout=120,
                              env={**os.environ, **cached})
        assert done.returncode == 0, done.stderr

    def start(self, num_ranks, *command, goes_on=False, timeout=120, **variables):
        """The finished process, with the output of all ranks. goes_on: Open MPI lets the others run if a rank dies."""
        options = ["-n", str(num_ranks)]
        if self.is_open:
            options += ["--oversubscribe"]
            options += {4: ["--enable-recovery"], 5: ["--with-ft", "ulfm"]}[self.major] if goes_on else []
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
        return subprocess.run([self.folder / "mpirun", *options, *command], capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env=environment, check=False)

    def run(self, num_ranks, *command, **options):
        """What the ranks print on standard output; the program must succeed."""
        done = self.start(num_ranks, *command, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


MPIS = [Mpi(folder) for folder in FOLDERS]
# A test with this mark gets each MPI as its argument or fixture `mpi`; without any, it fails.
each_mpi = pytest.mark.parametrize("mpi", MPIS or [None], ids=str, scope="module")
