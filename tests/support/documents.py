# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a document, in a folder that is empty at first.

    cpp, c    a block with a main function is a program; the other blocks of the page form the body of another
    cmake     a project with the page's first C++ program as main.cpp, Regard as a subfolder and installed
    sh        run with `regard` on the PATH, also for build/regard; commands that install, build or fetch (SKIPPED) are
              only parsed
    python    executed in one namespace
    json      parsed; blocks of text and without a language are left alone, but those of several-machines.md are run on
              ranks by frameworks/ranks_test.py and distributed/python_test.py

sh and python run in the order of the page. Slurm and Spark are those of stand_ins/. The model of `regard pull minilm` is a small one (sentence_model.py).
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy

from sentence_model import make_folder

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = pathlib.Path(__file__).resolve().parent / "stand_ins"
LANGUAGES = {"cpp", "c", "cmake", "sh", "json", "python", "text"}
SKIPPED = re.compile(r"(sudo|apt-get|(\S*/)?pip|(\S*/)?python3? -m (venv|pip)|git|cmake|ninja|cpack|ctest|\./demo|\./check|"
                     r"bench/run_benchmarks|build/\S+)( |$)")
FLAGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]


def blocks(page):
    """(language, line, text) of every fenced block."""
    found, language, start, lines = [], None, 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = re.fullmatch(r"\s*```(\S*).*", line)
        if not fence:
            lines.append(line)
        elif language is None:
            language, start, lines = fence.group(1) or "text", number, []
        else:
            found.append((language, start, "\n".join(lines) + "\n"))
            language = None
    assert language is None, f"{page}: a block is not closed"
    return found


def run(command, **options):
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110, **options)
    assert finished.returncode == 0, f"{' '.join(map(str, command))}\n{finished.stdout}"


def program(folder, prefix, language, name, text):
    """Compiles and runs one program in C or C++."""
    source, binary = folder / f"{name}.{language}", folder / name
    source.write_text(text)
    library = next(prefix.rglob("libregard.a")).parent
    over_ranks = "regard/distributed/mpi.h" in text
    compiler = ["gcc", "-std=c99"] if language == "c" else ["mpicxx" if over_ranks else "g++", "-std=c++20"]
    launcher = os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", "").split()
    run([*launcher, *compiler, *FLAGS, "-O1", "-I", prefix / "include", "-c", source, "-o", f"{binary}.o"])
    run(["mpicxx" if over_ranks else "g++", f"{binary}.o", "-L", library, "-lregard_distributed", "-lregard_explain", "-lregard_train", "-lregard_model",
         "-lregard_io", "-lregard", "-lfmt", "-lutf8proc", "-pthread", "-lm", "-o", binary])
    run([binary], cwd=folder)


def compiled(folder, prefix, language, texts):
    whole = [text for text in texts if re.search(r"\bmain\s*\(", text)]
    for number, text in enumerate(whole):
        program(folder, prefix, language, f"program{number}", text)
    parts = "".join(text for text in texts if text not in whole)
    if parts:
        includes = "".join(f"{line}\n" for line in parts.splitlines() if line.startswith("#include"))
        body = "".join(f"{line}\n" for line in parts.splitlines() if not line.startswith("#include"))
        program(folder, prefix, language, "page", f"{includes}int main({'void' if language == 'c' else ''}) {{\n{body}return 0;\n}}\n")
    return whole


def configured(folder, prefix, number, text, main):
    """Configures a CMake project that uses Regard as a subfolder or as an installed package."""
    project = folder / f"project{number}"
    project.mkdir()
    if "cmake_minimum_required" not in text:
        text = "cmake_minimum_required(VERSION 3.25)\nproject(documented LANGUAGES CXX)\n" + text
    (project / "CMakeLists.txt").write_text(text)
    for source in set(re.findall(r"\b(\w+\.cpp)\b", text)):
        (project / source).write_text(main)
    if "add_subdirectory" in text:
        (project / re.search(r"add_subdirectory\((\S+?)[ )]", text).group(1)).symlink_to(ROOT)
    run(["cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
         "-DCMAKE_CXX_COMPILER=g++"])


def shell(folder, text):
    run(["bash", "-n", "-c", text])
    text = re.sub(r"^build/regard ", "regard ", text, flags=re.MULTILINE)
    kept, joined = [], ""
    for line in text.splitlines():
        joined += line
        if joined.endswith("\\"):
            joined += "\n"
            continue
        kept.append(":" if SKIPPED.match(joined.strip()) else joined)
        joined = ""
    run(["bash", "-euo", "pipefail", "-c", "\n".join(kept)], cwd=folder, stdin=subprocess.DEVNULL)


def run_page(page, folder, program_file, prefix, monkeypatch):
    """Runs every block of ROOT/page in a folder, with this program and the libraries installed in prefix."""
    found = blocks(ROOT / page)
    unknown = {language for language, _, _ in found} - LANGUAGES
    assert not unknown, f"{page}: blocks in {', '.join(sorted(unknown))}; expected {', '.join(sorted(LANGUAGES))}"
    of = lambda wanted: [text for language, _, text in found if language == wanted]
    programs_folder, model = folder / "bin", folder / ".cache/regard/models/minilm"
    programs_folder.mkdir()
    model.mkdir(parents=True)
    make_folder(model)
    # Without --model, the program accepts only the real model.
    (programs_folder / "regard").write_text(
        f'#!/bin/sh\ncase " $* " in\n*" --model "* | *" --input "*.json* | *" --input - "* | *" --matrix "*) ;;\n'
        f'" explain "* | " compare "* | " heads "* | " embed "* | " similar "*) set -- "$@" --model {model} ;;\nesac\n'
        f'exec {program_file} "$@"\n')
    (programs_folder / "regard").chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{programs_folder}:{STAND_INS}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(STAND_INS)
    # Open MPI starts more processes than there are cores, and as root.
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    # consumers/run.sh compiles the function in the README and calls it.
    programs = compiled(folder, prefix, "cpp", [] if page == "README.md" else of("cpp"))
    compiled(folder, prefix, "c", of("c"))
    for number, text in enumerate(of("cmake")):
        configured(folder, prefix, number, text, programs[0] if programs else "int main() {}\n")
    if page == "README.md":
        for name in ("q", "k", "v"):
            numpy.save(folder / f"{name}.npy", numpy.random.default_rng(0).standard_normal((1, 2, 4, 8), dtype=numpy.float32))
        (folder / "sentences.txt").write_text("he sat on the bank of the river\nshe put her money in the bank\n")
    names = {}
    for language, line, text in found:
        if language == "sh":
            shell(folder, text)
        elif language == "python":
            exec(compile("\n" * line + text, page, "exec"), names)
        elif language == "json":
            json.loads(text)


FRAMEWORKS = re.compile(r"^import .*\b(torch|transformers|ray|dask)\b|^from (torch|transformers)\b|regard\.(torch|transformers)",
                        re.MULTILINE)


def pages(needs_frameworks):
    """The documents with blocks that run: those whose Python needs a framework, or all others."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for page in listed:
        found = blocks(ROOT / page) if page != "THIRD_PARTY.md" else []
        python = "".join(text for language, _, text in found if language == "python")
        if any(language != "text" for language, _, _ in found):
            if bool(FRAMEWORKS.search(python)) == needs_frameworks:
                yield page
