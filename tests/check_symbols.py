# SPDX-License-Identifier: Apache-2.0
"""Reads symbol tables with nm and fails if a name is defined that should not be.

    kernels ISA OBJECT…  the objects of one instruction set define nothing outside regard::kernels::ISA (a weak copy
                         of std::max compiled for it could end up in the whole program) and need nothing from
                         outside except memcpy and similar functions; avx512_bf16 and amx_bf16 what avx512 defines
    library FILE SAMPLE  a shared library exports only the C interface and namespace regard::v0; SAMPLE, the
                         name of one of its functions, is among them
    paths FOLDER FILE…   no file contains the name of the folder that it was built from
"""

import re
import subprocess
import sys

OUTSIDE = {"memcpy", "memset", "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


def symbols(*arguments):
    """(kind, mangled name) of every symbol; kind is nm's letter."""
    lines = subprocess.run(["nm", "-P", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()
    fields = [line.split() for line in lines]
    return [(words[1], words[0].split("@")[0]) for words in fields if len(words) >= 2 and len(words[1]) == 1]


def kernel_faults(isa, objects):
    def in_namespace(isa):
        return re.compile(rf"_ZZ?N?K?L?N?K?6regard7kernels{len(isa)}{isa}")

    own, shared = in_namespace(isa), in_namespace("avx512" if isa in ("avx512_bf16", "amx_bf16") else isa)
    defined = 0
    for path in objects:
        for kind, name in symbols(path):
            if kind in "Uvw":
                if name not in OUTSIDE and not own.match(name) and not shared.match(name):
                    yield f"{path}: needs {name}"
            elif kind.isupper() or kind == "u":
                defined += 1
                if not own.match(name):
                    yield f"{path}: defines {name} ({kind})"
    if defined < len(objects):
        yield f"only {defined} symbols found; expected at least one per object file"


def library_faults(path, sample):
    public = re.compile(r"regard_\w+$|_ZNK?6regard2v0|_ZT[ISV]N6regard2v0")
    inner = re.compile(r"_ZNK?6regard(2v0)?(8internal|7kernels)")
    exported = [name for kind, name in symbols("-D", "--defined-only", path) if kind.isupper() or kind in "uvw"]
    yield from (f"{path}: exports {name}" for name in exported if not public.match(name) or inner.match(name))
    if not any(sample in name for name in exported):
        yield f"{path}: {sample} is not exported"


def path_faults(folder, files):
    for path in files:
        with open(path, "rb") as file:
            if (folder + "/src").encode() in file.read():
                yield f"{path}: contains {folder}/src"


def main():
    if sys.argv[1] == "kernels":
        faults = list(kernel_faults(sys.argv[2], sys.argv[3:]))
    elif sys.argv[1] == "paths":
        faults = list(path_faults(sys.argv[2], sys.argv[3:]))
    else:
        faults = list(library_faults(*sys.argv[2:]))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
