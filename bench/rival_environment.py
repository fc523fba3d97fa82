# SPDX-License-Identifier: Apache-2.0
"""Makes the Python environment of compare.py: NumPy, PyTorch, ONNX Runtime and ggml, pinned, from PyPI. 1.5 GB, once.

PyPI's PyTorch is linked against NVIDIA's libraries, gigabytes that nothing here calls: libraries of the same names,
whose functions all answer "no device", stand in for them. ggml is built from the sdist of llama-cpp-python, for the
processor at hand. What cannot be had is named and left out: compare.py measures whom it finds.
Read next: rivals.py."""

import collections
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
NVIDIA = re.compile(r"lib(cu|nv|nccl)")
NO_DEVICE = 100  # cudaErrorNoDevice
LISTS = ("requirements.txt", "requirements-rivals.txt", "requirements-ggml.txt")
PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check")


def run(*command, **options):
    """Runs a command; its output is shown only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **{"stdin": subprocess.DEVNULL, **options})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}".rstrip())
    return done.stdout


def stand_in_for_nvidia(folder):
    """Writes beside PyTorch's libraries those of NVIDIA that they name, with every function that they want."""
    wanted, file_of, functions = set(), {}, collections.defaultdict(set)
    for library in sorted(folder.glob("lib*.so")):
        wanted |= set(filter(NVIDIA.match, re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))))
        file = None
        for line in run("readelf", "-VW", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif file and (found := re.search(r"Name: (\S+)", line)):
                file_of[found[1]] = file
        for line in run("nm", "-D", "--undefined-only", library).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if NVIDIA.match(file_of.get(version, "")):
                functions[file_of[version], version].add(name)
            elif not version and re.match(r"_*(cu[a-zA-Z]|nccl|nv)", name):
                functions["libcufile.so.0", ""].add(name)  # the libraries without versions: any of them will do
    script = folder / "versions"
    for library in sorted(wanted):
        mine = {version: names for (file, version), names in functions.items() if file == library}
        versions = (f"{version} {{ {' '.join(name + ';' for name in sorted(names))} }};" for version, names in mine.items()
                    if version)
        script.write_text("\n".join(versions) or "{ global: *; };", encoding="ascii")
        source = "".join(f"long {name}(void) {{ return {0 if name.startswith('__') else NO_DEVICE}; }}\n"
                         for name in sorted(set().union(*mine.values())))
        run("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-", "-o", folder / library,
            f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", input=source, stdin=None)
    script.unlink()


def build_ggml(python, folder):
    """ggml's two libraries and ggml_attention.c in folder/ggml."""
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
        print(f"bench: without it: {error}", file=sys.stderr)


def python_with_rivals():
    """The environment is made once for each list of requirements; `complete` is written last."""
    lists = b"".join((BENCH / name).read_bytes() for name in (*LISTS, "ggml_attention.c", "rival_environment.py"))
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
        attempt("stand-ins for NVIDIA's libraries", stand_in_for_nvidia, libraries)
    attempt("ggml, built here in some minutes", build_ggml, python, folder)
    (folder / "complete").touch()
    return python
