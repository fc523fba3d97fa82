# SPDX-License-Identifier: Apache-2.0
"""Reads every #include line and fails if a layer includes a header that it must not (docs/developer/architecture.md).

    level 0  src/kernels              its own headers, <cstddef> <cstdint> <cstring>; intrinsics only in simd.h
    level 1  src/attention, c_api, kv_cache, layers, runtime, tensor:  regard/*.h, each other, kernels/table.h, layer_table.h
             src/wasm                 headers of kernels and level 1
    level 2  src/io                   + regard/io/*; third party in .cpp
    level 3  src/model                + regard/model/*
             src/train                + regard/model/*, regard/train/*
             src/distributed          + regard/distributed/*, not regard/io/*; <mpi.h> only in regard/distributed/mpi.h
    level 4  src/explain              + regard/explain/*
    level 5  cli, python, web/core    only public headers, their own, and their libraries
    -        examples                 only public headers
    -        src/instantiate.h        macros only, for every folder of src
    -        tests, bench             public headers, kernels/{table,layer_table}.h, headers of level 1; tests also those of cli, web

Public headers follow the same order: regard/*.h includes no folder below it, regard/io/* only io, and so on. The folders of src,
subfolders included, include each other in one direction only: no chain of folders returns to where it began.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
KERNEL_STANDARD = {"cstddef", "cstdint", "cstring"}
KERNEL_INTERFACE = {"kernels/table.h", "kernels/layer_table.h"}
INTRINSICS = {"immintrin.h", "arm_neon.h", "wasm_simd128.h"}
POSIX = {"dlfcn.h", "fcntl.h", "pthread.h", "sched.h", "signal.h", "termios.h", "unistd.h", "stddef.h", "stdint.h"}
# An attacker who chooses the keys of a hash table controls its run time: names from files are sorted instead (regard/io/sorted_names.h).
HASH_TABLES = {"unordered_map", "unordered_set"}
C_STANDARD = {"math.h", "stdio.h", "stdlib.h", "string.h"}
INSTRUCTION_SET_WORDS = re.compile(r"\b(avx2|avx512|sse\d?|neon|simd128)\b", re.IGNORECASE)
TEST_LIBRARIES = {"gtest", "gmock", "benchmark", "CLI", "ggml.h", "ggml-cpu.h", "mpi.h"}

CORE = {"attention", "c_api", "kv_cache", "layers", "runtime", "tensor"}
# Which folders of include/regard ("": the folder itself) a library may include, and its third parties, in .cpp only.
PUBLIC = {
    "": {""},
    "io": {"", "io"},
    "model": {"", "io", "model"},
    "train": {"", "io", "model", "train"},
    "explain": {"", "io", "model", "train", "explain"},
    "distributed": {"", "distributed"},
}
THIRD_PARTY = {"io": {"fmt", "nlohmann", "utf8proc.h"}, "model": {"fmt", "utf8proc.h"}, "train": {"fmt"},
               "explain": {"fmt"}, "distributed": set()}
OPENS_FILES = {"io", "model"}
MAPS_MEMORY = {"zeroed_pages.cpp"}
ALL_PUBLIC = PUBLIC["explain"] | PUBLIC["distributed"]


def is_standard(bracket, name):
    return bracket == "<" and "/" not in name and not name.endswith(".h")


def is_posix(bracket, name):
    return bracket == "<" and (name in POSIX or name.startswith("sys/"))


def is_public(name, folders):
    """A public header of one of these libraries."""
    parts = name.split("/")
    if parts[0] != "regard" or not (ROOT / "include" / name).is_file():
        return False
    return (parts[1] if len(parts) == 3 else "") in folders


def is_private(path, name, folders):
    """A header of the includer's own folder, by name, or of one of these folders of src, by path."""
    if "/" not in name:
        return (path.parent / name).is_file()
    return name.split("/")[0] in folders and (ROOT / "src" / name).is_file()


def allowed(path, bracket, name):
    relative = path.relative_to(ROOT)
    top, second = relative.parts[0], relative.parts[1]
    library = name.split("/")[0]
    if name in HASH_TABLES and top not in ("tests", "bench"):
        return False
    standard = is_standard(bracket, name)
    if top == "include":
        folder = relative.parts[2] if len(relative.parts) == 4 else ""
        return standard or is_public(name, PUBLIC[folder]) or (
            (path.name, bracket, name) in (("c_api.h", "<", "stddef.h"), ("c_api.h", "<", "stdint.h"), ("mpi.h", "<", "mpi.h")))
    if top == "src" and name == ("../instantiate.h" if second == "kernels" else "instantiate.h"):
        return True
    if top == "src" and second == "kernels":
        if bracket == "<":
            return name in KERNEL_STANDARD or (name in INTRINSICS and path.name == "simd.h")
        return is_private(path, name, set()) and "/" not in name
    if top == "src" and second in CORE:
        system = is_posix(bracket, name) or (name == "cpuid.h" and path.name == "isa.cpp")
        return standard or system or is_public(name, PUBLIC[""]) or is_private(path, name, CORE) or name in KERNEL_INTERFACE
    if top == "src" and second == "wasm":
        return standard or is_public(name, PUBLIC[""]) or is_private(path, name, CORE | {"kernels"})
    if top == "web":
        own = is_private(path, name, set()) or name in ("utf8proc.h", "unicode_tables.h") or library == "fmt"
        return standard or own or is_public(name, ALL_PUBLIC)
    if top == "src" and second in THIRD_PARTY:
        third_party = path.suffix == ".cpp" and library in THIRD_PARTY[second]
        system = path.suffix == ".cpp" and (second in OPENS_FILES or path.name in MAPS_MEMORY) and is_posix(bracket, name)
        return standard or system or third_party or is_public(name, PUBLIC[second]) or is_private(path, name, {second})
    if top == "cli":
        own = is_private(path, name, set()) or (bracket == '"' and (ROOT / "cli" / name).is_file())
        generated = name == "commit.h"  # written by commit.cmake at each build
        return (standard or is_posix(bracket, name) or is_public(name, ALL_PUBLIC) or own or generated
                or library in ("CLI", "fmt", "png.h", "zlib.h"))
    if top == "python":
        interpreter = bracket == "<" and (name in ("Python.h", "cxxabi.h") or library == "nanobind" or is_posix(bracket, name))
        return standard or interpreter or is_public(name, ALL_PUBLIC) or is_private(path, name, set())
    if top == "examples":
        system = bracket == "<" and (name in C_STANDARD | {"pthread.h", "time.h"})
        return standard or system or is_public(name, ALL_PUBLIC)
    if top in ("tests", "bench"):
        system = is_posix(bracket, name) or (bracket == "<" and name in INTRINSICS | {"xmmintrin.h", "stdlib.h"})
        system = system or (bracket == "<" and (path.suffix == ".c" or path.name == "c_calls.h") and name in C_STANDARD)
        own = is_private(path, name, CORE) or (bracket == '"' and (ROOT / "tests" / name).is_file())
        own = own or (top == "tests" and bracket == '"' and (ROOT / "cli" / name).is_file())
        own = own or (second == "wasm" and bracket == '"' and (ROOT / "web/core" / name).is_file())
        third_party = library in TEST_LIBRARIES or library in THIRD_PARTY["io"]
        return standard or system or own or third_party or is_public(name, ALL_PUBLIC) or name in KERNEL_INTERFACE
    return False


def included_folder(path, name):
    """The folder of src that a private header is in, or None."""
    header = ROOT / "src" / name if "/" in name else path.parent / name
    return header.parent.relative_to(ROOT) if header.is_file() and header.is_relative_to(ROOT / "src") else None


def folders_in_cycles(arrows):
    """The part of {folder: folders it includes} from which no chain of folders leads out, and into which none leads."""
    left = dict(arrows)
    while True:
        included = set().union(*left.values())
        kept = {folder: left[folder] & left.keys() for folder in left if folder in included and left[folder] & left.keys()}
        if kept == left:
            return left
        left = kept


def main():
    files = [path for top in ("include", "src", "cli", "python", "web", "examples", "tests", "bench") for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".h", ".cpp", ".c") and "consumers" not in path.parts]
    faults = []
    arrows = {}
    for path in files:
        text = path.read_text(encoding="utf-8")
        relative = path.relative_to(ROOT)
        for match in INCLUDE.finditer(text):
            if not allowed(path, *match.groups()):
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{relative}:{line}: this layer must not include {match.group(2)}")
            included = included_folder(path, match.group(2))
            if relative.parts[0] == "src" and included not in (None, relative.parent):
                arrows.setdefault(relative.parent, set()).add(included)
        if relative.parts[0] == "src" and relative.parts[1] in THIRD_PARTY:
            for match in INSTRUCTION_SET_WORDS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{relative}:{line}: this layer must not name an instruction set ({match.group()})")
    for folder, included in sorted(folders_in_cycles(arrows).items()):
        faults.append(f"{folder}: includes headers of {', '.join(sorted(map(str, included)))}, which lead back to it")
    print("\n".join(faults))
    return 1 if faults or len(files) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
