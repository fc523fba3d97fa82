# SPDX-License-Identifier: Apache-2.0
"""The processor of this machine, as results name it."""

import pathlib
import re


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def file_name():
    """Of its results, without an extension."""
    return re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
