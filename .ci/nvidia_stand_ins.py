# SPDX-License-Identifier: Apache-2.0
"""Lets PyTorch from PyPI run on the CPU without the gigabytes of NVIDIA libraries that it is linked against.

    python3 .ci/nvidia_stand_ins.py SITE-PACKAGES/torch/lib

Writes stubs of the NVIDIA libraries that PyTorch's libraries need next to them, with every function that is imported;
each function returns "no device". Used by bench/competitor_environment.py and ./check."""

import collections
import pathlib
import re
import subprocess
import sys

NVIDIA = re.compile(r"lib(cu|nv|nccl)")
NO_DEVICE = 100  # cudaErrorNoDevice


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def answer(name):
    """The return value of a function: error names are text, and functions called at program start succeed."""
    if re.search(r"Error(String|Name)", name, re.IGNORECASE):
        return '(long)"no device"'
    return 0 if name.startswith("__") else NO_DEVICE


def stand_in(folder):
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
                functions["libcufile.so.0", ""].add(name)  # libraries without symbol versions: any of them will do
    script = folder / "versions"
    for library in sorted(wanted):
        mine = {version: names for (file, version), names in functions.items() if file == library}
        versions = (f"{version} {{ {' '.join(name + ';' for name in sorted(names))} }};" for version, names in mine.items()
                    if version)
        script.write_text("\n".join(versions) or "{ global: *; };", encoding="ascii")
        source = "".join(f"long {name}(void) {{ return {answer(name)}; }}\n" for name in sorted(set().union(*mine.values())))
        run("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-", "-o", folder / library,
            f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", input=source)
    script.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (folder := pathlib.Path(sys.argv[1])).is_dir():
        sys.exit("usage: python3 nvidia_stand_ins.py SITE-PACKAGES/torch/lib")
    try:
        stand_in(folder)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.stderr[-2000:]}")
