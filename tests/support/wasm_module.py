# SPDX-License-Identifier: Apache-2.0
"""WebAssembly modules of the build in node, and the native counterparts of their answers.

    with Module("core.wasm") as core:
        core.add_files(folder)
        text = core.ask({"do": "sentence", "text": "he sat"})
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from program import PROGRAM, environment, succeed

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(PROGRAM).parent
MODULES = BUILD / "wasm"
NATIVE = BUILD / "tests/wasm_checks"
NODE = pathlib.Path(sys.executable).with_name("node")
CORE_JS = ROOT / "web/live/core.js"
BYTES_JS = ROOT / "web/bytes.js"
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
# glibc's exp and log round differently in rare cases if they use fused multiply-add, which WebAssembly lacks.
GENERIC = environment(REGARD_FORCE_ISA="generic", GLIBC_TUNABLES="glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2")


class Failed(Exception):
    """An error of the core, with its JavaScript name: "Error" is a message for the reader, any other name a trap."""

    def __init__(self, reply):
        super().__init__(f"{reply['error']}: {reply['message']}")
        self.name, self.message = reply["error"], reply["message"]


class Module:
    def __init__(self, name):
        self.process = subprocess.Popen([NODE, "--no-warnings", ROOT / "tests/wasm/instance.mjs", MODULES / name, CORE_JS],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self.memory = 0
        self.arrays = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def command(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        self.memory = reply["memory"]
        return reply

    def restart(self):
        """A new instance, without files: after an error, the old one is lost."""
        self.command({"restart": True})

    def add_files(self, folder, names=MODEL_FILES):
        for name in names:
            self.command({"file": name, "path": os.fspath(folder / name)})

    def ask_all(self, requests, keep=None):
        """The replies to many requests: {"text": …}, or {"error": …, "message": …}. keep: a regular expression, whose first
        group is all that is returned of a text."""
        return self.command({"requests": [{"request": request} for request in requests], "keep": keep})["answers"]

    def ask(self, request, payload=None):
        reply = self.command({"requests": [{"request": request, "payload": payload}]})["answers"][0]
        if "error" in reply:
            raise Failed(reply)
        self.arrays = reply["arrays"]
        return reply["text"]


def native_answers(requests, files=()):
    """The answers of the native program to requests of tests/wasm/checks.cpp, on the set generic."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([NATIVE, *files], input=lines, env=GENERIC, stdout=subprocess.PIPE, encoding="utf-8", check=True,
                          timeout=300)
    return done.stdout.splitlines()


def page_texts(html):
    """The JSON texts that a page contains, by name; "explanation" is what --json prints."""
    return dict(re.findall(r'<script type="application/json" id="(\w+)">(.*?)</script>', html, re.DOTALL))


def native_page(folder, *arguments, stdin=b""):
    """The texts of the page that the native program writes on the set generic, and the command that they contain."""
    path = folder / "page.html"
    succeed(*arguments, "--html", path, stdin=stdin, env=GENERIC)
    texts = page_texts(path.read_text(encoding="utf-8"))
    return texts, json.loads(texts["explanation"])["command"]


def split_object(text):
    """The texts of the members of an answer of the core: {\n"name": JSON,\n"name": JSON\n}."""
    decoder, members, at = json.JSONDecoder(), {}, 2
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        begin = at + len(": ")
        _, end = decoder.raw_decode(text, begin)
        members[name] = text[begin:end]
        at = end
        while text[at] in ",\n":
            at += 1
    return members


def assert_same_text(got, want):
    """Compares two texts of numbers; a difference is shown with its surroundings."""
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"byte {at} of {len(got)} and {len(want)}: "
                             f"{got[max(at - 200, 0):at + 60]!r}\nexpected {want[max(at - 200, 0):at + 60]!r}")


def assert_same_answer(answer, page, names=("explanation", "page")):
    """The members of an answer of the core against the texts of a native page, except for the instruction set."""
    members = split_object(answer)
    if "comparison" in members:
        members["explanation"] = members["comparison"]
    for name in names:
        got, want = members[name].strip(), page[name].strip().replace("<\\/", "</")
        assert_same_text(got.replace('"instruction_set": "simd128"', '"instruction_set": "generic"'), want)
