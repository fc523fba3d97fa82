# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the code blocks of a document: C++, C, CMake, shell and JSON. tests/python and tests/frameworks run
those of Python.

    python3 tests/check_docs.py PAGE BUILD      PAGE: a Markdown file; BUILD: a release build with BUILD/consumers/prefix

    cpp, c    a block with a main function is a program; the others of the page, in their order, are the body of one
    cmake     a project with the page's first C++ program as main.cpp, Regard as a subfolder and installed
    sh        run in the page's order in one folder with `regard` on the PATH; commands that install, build or fetch
              (SKIPPED) are only parsed
    json      parsed; text, python and blocks without a language are left alone
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LANGUAGES = {"cpp", "c", "cmake", "sh", "json", "python", "text"}
SKIPPED = re.compile(r"(sudo|apt|apt-get|pip|python3? -m (venv|pip)|git|cmake|ninja|cpack|\./demo|\./check|\S+/bin/pip|bench/run_benchmarks|ctest|build/\S+)\b|/usr/bin/python3 -m venv")
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
    if finished.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{finished.stdout}\nstatus {finished.returncode}")


def program(page, folder, build, language, name, text):
    """Compiles and runs one program in C or C++."""
    source, binary = folder / f"{name}.{language}", folder / name
    source.write_text(text)
    prefix = build / "consumers" / "prefix"
    library = next(prefix.rglob("libregard.a")).parent
    compiler = ["gcc", "-std=c99"] if language == "c" else ["g++", "-std=c++20"]
    launcher = os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", "").split()
    run([*launcher, *compiler, *FLAGS, "-O1", "-I", prefix / "include", "-c", source, "-o", f"{binary}.o"])
    libraries = [f"-lregard_{part}" for part in ("explain", "model", "io") if f"regard/{part}/" in text]
    if libraries:
        libraries = ["-lregard_explain", "-lregard_model", "-lregard_io", "-lfmt", "-lutf8proc"]
    run(["g++", f"{binary}.o", "-L", library, *libraries[:3], "-lregard", *libraries[3:], "-pthread", "-lm", "-o", binary])
    run([binary], cwd=folder)


def compiled(page, folder, build, language, texts):
    whole = [text for text in texts if re.search(r"\bmain\s*\(", text)]
    for number, text in enumerate(whole):
        program(page, folder, build, language, f"program{number}", text)
    parts = "".join(text for text in texts if text not in whole)
    if parts:
        includes = "".join(f"{line}\n" for line in parts.splitlines() if line.startswith("#include"))
        body = "".join(f"{line}\n" for line in parts.splitlines() if not line.startswith("#include"))
        program(page, folder, build, language, "page", f"{includes}int main({'void' if language == 'c' else ''}) {{\n{body}return 0;\n}}\n")
    return whole


def configured(folder, build, number, text, main):
    """Configures a CMake project, with Regard as the subfolder regard or as it is installed."""
    project = folder / f"project{number}"
    project.mkdir()
    if "cmake_minimum_required" not in text:
        text = "cmake_minimum_required(VERSION 3.25)\nproject(documented LANGUAGES CXX)\n" + text
    (project / "CMakeLists.txt").write_text(text)
    for source in set(re.findall(r"\b(\w+\.cpp)\b", text)):
        (project / source).write_text(main)
    if "add_subdirectory" in text:
        (project / re.search(r"add_subdirectory\((\S+?)[ )]", text).group(1)).symlink_to(ROOT)
    run(["cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build / 'consumers' / 'prefix'}",
         "-DCMAKE_CXX_COMPILER=g++"])


def shell(folder, build, text):
    run(["bash", "-n", "-c", text])
    kept, joined = [], ""
    for line in text.splitlines():
        joined += line
        if joined.endswith("\\"):
            joined += "\n"
            continue
        kept.append(":" if SKIPPED.match(joined.strip()) else joined)
        joined = ""
    program_folder = folder / "bin"
    program_folder.mkdir(exist_ok=True)
    if not (program_folder / "regard").exists():
        (program_folder / "regard").symlink_to(build / "regard")
    environment = os.environ | {"PATH": f"{program_folder}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}
    run(["bash", "-euo", "pipefail", "-c", "\n".join(kept)], cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def main(page, build):
    page, build = pathlib.Path(page).resolve(), pathlib.Path(build).resolve()
    found = blocks(page)
    unknown = {language for language, _, _ in found} - LANGUAGES
    assert not unknown, f"{page}: blocks in {', '.join(sorted(unknown))}; expected {', '.join(sorted(LANGUAGES))}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="regard-docs-"))
    try:
        of = lambda wanted: [text for language, _, text in found if language == wanted]
        # consumers/run.sh compiles the function in the README and calls it.
        programs = compiled(page, folder, build, "cpp", [] if page.name == "README.md" else of("cpp"))
        compiled(page, folder, build, "c", of("c"))
        for number, text in enumerate(of("cmake")):
            configured(folder, build, number, text, programs[0] if programs else "int main() {}\n")
        for text in of("sh"):
            shell(folder, build, text)
        for text in of("json"):
            json.loads(text)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
