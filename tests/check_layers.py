# SPDX-License-Identifier: Apache-2.0
"""Reads every #include line and fails where a folder includes what its layer may not (docs/architecture.md).

    level 0  src/kernels              <cstddef> <cstdint> <cstring>, its own headers; intrinsics in simd.h alone
    level 1  src                      include/regard, kernels/table.h, its own headers, the standard library, POSIX
    level 2  src/explain, src/model   include/regard, own headers; third party in .cpp only; src/model opens files: POSIX
    level 3  cli                      include/regard, own headers, CLI11, fmt, libpng, zlib
    level 3  python                   include/regard, own headers, nanobind, Python.h, POSIX
    -        include/regard           include/regard and the standard library
    -        tests, bench             include/regard, kernels/table.h, own headers, headers of level 1 (machine.h, isa.h …),
                                      tests also those of cli with CLI11; their test libraries
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
KERNEL_STANDARD = {"cstddef", "cstdint", "cstring"}
INTRINSICS = {"immintrin.h", "arm_neon.h", "wasm_simd128.h"}
POSIX = {"dlfcn.h", "fcntl.h", "pthread.h", "sched.h", "signal.h", "termios.h", "unistd.h", "stddef.h", "stdint.h"}
# Whoever chooses the keys of such a table chooses its time: names from files are sorted instead (src/model/sorted_names.h).
HASH_TABLES = {"unordered_map", "unordered_set"}
C_STANDARD = {"math.h", "stdio.h", "stdlib.h", "string.h"}
EXPLAIN_LIBRARIES = {"fmt", "nlohmann", "utf8proc.h"}
LEVEL_2_WORDS = re.compile(r"\b(avx2|avx512|sse\d?|neon|simd128)\b", re.IGNORECASE)
TEST_LIBRARIES = {"gtest", "gmock", "benchmark", "CLI", "ggml.h", "ggml-cpu.h"}


def is_standard(name):
    return "/" not in name and not name.endswith(".h")


def is_posix(name):
    return name in POSIX or name.startswith("sys/")


def own_folder(folder, name):
    """A header that lies in the includer's own folder."""
    return (folder / name).is_file()


def allowed(path, bracket, name):
    folder = path.parent
    relative = path.relative_to(ROOT)
    top = relative.parts[0]
    public = name.startswith("regard/") and (ROOT / "include" / name).is_file()
    standard = bracket == "<" and is_standard(name)
    library = name.split("/")[0]
    if name in HASH_TABLES and top not in ("tests", "bench"):
        return False
    if relative.parts[:2] == ("src", "kernels"):
        if bracket == "<":
            return name in KERNEL_STANDARD or (name in INTRINSICS and path.name == "simd.h")
        return own_folder(folder, name)
    if top == "include":
        return public or standard or (path.name == "c_api.h" and name in ("stddef.h", "stdint.h"))
    if relative.parts[:2] in (("src", "explain"), ("src", "model")):
        third_party = path.suffix == ".cpp" and library in EXPLAIN_LIBRARIES
        system = bracket == "<" and is_posix(name) and relative.parts[1] == "model" and path.suffix == ".cpp"
        return public or standard or system or own_folder(folder, name) or third_party
    if top == "src":
        own = bracket == '"' and own_folder(folder, name) and "/" not in name
        system = bracket == "<" and (is_posix(name) or (name == "cpuid.h" and path.name == "isa.cpp"))
        return public or standard or system or own or name == "kernels/table.h"
    if top == "cli":
        system = bracket == "<" and is_posix(name)
        generated = name == "commit.h"  # written by commit.cmake at each build
        return public or standard or system or own_folder(folder, name) or library in ("CLI", "fmt", "png.h", "zlib.h") or generated
    if top == "python":
        interpreter = bracket == "<" and (name in ("Python.h", "cxxabi.h") or library == "nanobind" or is_posix(name))
        return public or standard or interpreter or own_folder(folder, name)
    if top in ("tests", "bench"):
        system = bracket == "<" and (is_posix(name) or name in INTRINSICS | {"xmmintrin.h", "stdlib.h"})
        system = system or (bracket == "<" and (path.suffix == ".c" or path.name == "c_calls.h") and name in C_STANDARD)
        own = own_folder(folder, name) or own_folder(ROOT / "tests", name)
        own = own or ("/" not in name and own_folder(ROOT / "src", name))
        own = own or (top == "tests" and "/" not in name and own_folder(ROOT / "cli", name))
        third_party = library in TEST_LIBRARIES | EXPLAIN_LIBRARIES
        return public or standard or system or own or third_party or name == "kernels/table.h"
    return False


def main():
    files = [path for top in ("include", "src", "cli", "python", "tests", "bench") for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".h", ".cpp", ".c") and "consumers" not in path.parts]
    faults = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        relative = path.relative_to(ROOT)
        for match in INCLUDE.finditer(text):
            if not allowed(path, *match.groups()):
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{relative}:{line}: its layer may not include {match.group(2)}")
        if relative.parts[:2] in (("src", "explain"), ("src", "model")):
            for match in LEVEL_2_WORDS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{relative}:{line}: level 2 may not name an instruction set ({match.group()})")
    print("\n".join(faults))
    return 1 if faults or len(files) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
