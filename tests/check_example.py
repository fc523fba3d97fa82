# SPDX-License-Identifier: Apache-2.0
"""Runs a program of examples/ and compares what it prints with the comment "Prints:" at the end of its source.

python3 tests/check_example.py SOURCE COMMAND…
"""

import difflib
import pathlib
import re
import subprocess
import sys


def expected_output(source):
    """The lines below "Prints:", without their comment marks."""
    lines = pathlib.Path(source).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if re.fullmatch(r"(//|/\*|#) Prints(, with MiniLM)?:", line)) + 1
    return [re.sub(r"^(//| \*|#) {3}", "", line) for line in lines[first:] if line.strip() != "*/"]


def main(source, *command):
    """Prints the differences; returns 1 if there are any."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)
    sys.stderr.write(run.stderr)
    differences = list(difflib.unified_diff(expected_output(source), run.stdout.splitlines(), source, "printed", lineterm=""))
    print("\n".join(differences) or f"{source}: prints the expected output")
    return 1 if differences or run.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
