# SPDX-License-Identifier: Apache-2.0
"""Prints the speed of WebAssembly relative to the native set generic, on one thread: an encoder of the width of MiniLM with
random parameters, the fastest of several runs, alternating. Nothing is asserted: other programs may be running."""

import pathlib
import tempfile

from random_model import make_random_model
from sentence_model import tokenizer
from wasm_module import MODEL_FILES, Module, native_answers

ROUNDS, RUNS = 3, 4

with tempfile.TemporaryDirectory() as folder, Module("checks.wasm") as checks:
    model = make_random_model(pathlib.Path(folder), tokenizer(), layers=2, heads=12, width=384, intermediate=1536, positions=512)
    checks.add_files(model)
    ratios = []
    for tokens in (10, 64, 256):
        request = {"do": "time", "tokens": tokens, "runs": RUNS}
        native, wasm = [], []
        for _ in range(ROUNDS):
            native.append(float(native_answers([request], [model / name for name in MODEL_FILES])[0]))
            wasm.append(float(checks.ask(request)))
        ratios.append(f"{min(native) / min(wasm):.2f} ({tokens} tokens)")
    print("speed of the core relative to native generic, one thread:", ", ".join(ratios))
