# SPDX-License-Identifier: Apache-2.0
"""Creates the Python environment of compare.py: pinned NumPy, PyTorch, ONNX Runtime and ggml from PyPI. 1.5 GB, once.

PyPI's PyTorch is linked against NVIDIA's libraries, gigabytes that are not used here: they are replaced by stubs of the
same names, whose functions all return "no device". ggml is built from the sdist of llama-cpp-python for this processor.
A package that cannot be installed is reported and skipped: compare.py measures the competitors that it finds.
Read next: competitors.py."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
STAND_INS = BENCH.parent / ".ci" / "nvidia_stand_ins.py"
LISTS = ("requirements.txt", "requirements-competitors.txt", "requirements-ggml.txt")
PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check")


def run(*command, **options):
    """Runs a command; its output is shown only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **{"stdin": subprocess.DEVNULL, **options})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}".rstrip())
    return done.stdout


def build_ggml(python, folder):
    """Builds ggml's two libraries and ggml_attention.c in folder/ggml."""
    work = folder / "ggml-build"
    run(python, *PIP, "download", "--no-deps", "--no-binary", "llama-cpp-python", "--require-hashes", "-d", work, "-r",
        BENCH / "requirements-ggml.txt")
    [archive] = work.glob("*.tar.gz")
    run("tar", "-xzf", archive, "-C", work)
    [source] = work.glob("*/vendor/llama.cpp/ggml")
    (source / "ggml.pc.in").touch()  # the sdist lacks it
    built = folder / "ggml"
    run("cmake", "-S", source, "-B", work / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
        "-DGGML_OPENMP=OFF", "-DBUILD_SHARED_LIBS=ON", "-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF",
        "-DCMAKE_BUILD_RPATH=$ORIGIN", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON")
    run("ninja", "-C", work / "build", "ggml-base", "ggml-cpu")
    shutil.copytree(work / "build" / "src", built, symlinks=True, ignore=lambda _, names: [
        name for name in names if ".so" not in name])
    run("gcc", "-O2", "-shared", "-fPIC", "-I", source / "include", BENCH / "ggml_attention.c", "-o",
        built / "libggml_attention.so", "-L", built, "-lggml-base", "-lggml-cpu", "-lm", "-Wl,-rpath,$ORIGIN")
    version = re.search(r"llama_cpp_python-([\d.]+)\.tar", archive.name)[1]
    (built / "version").write_text(f"of llama-cpp-python {version}\n", encoding="utf-8")
    shutil.rmtree(work)


def attempt(what, make, *arguments):
    print(f"bench: {what}", file=sys.stderr, flush=True)
    try:
        make(*arguments)
    except (RuntimeError, OSError, ValueError) as error:
        print(f"bench: skipped: {error}", file=sys.stderr)


def python_with_competitors():
    """The environment is created once per list of requirements; `complete` is written last."""
    files = (*LISTS, "ggml_attention.c", "competitor_environment.py", STAND_INS)
    lists = b"".join((BENCH / name).read_bytes() for name in files)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "regard-dev" / hashlib.sha256(lists).hexdigest()[:16]
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run("/usr/bin/python3", "-m", "venv", folder)
    install = (python, *PIP, "install", "--no-deps", "--require-hashes", "-r")
    run(*install, BENCH / LISTS[0])
    attempt("PyTorch and ONNX Runtime, 550 MB from PyPI", run, *install, BENCH / LISTS[1])
    for libraries in folder.glob("lib/python*/site-packages/torch/lib"):
        attempt("stubs for NVIDIA's libraries", run, "/usr/bin/python3", STAND_INS, libraries)
    attempt("ggml, which takes some minutes to build", build_ggml, python, folder)
    (folder / "complete").touch()
    return python
