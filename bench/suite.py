# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: each is a function that yields its cases, and each case holds several contenders.

    row      "prefill", "decode", …: what --rows selects
    case     one shape; its contenders take turns, round by round (compare.py)
    figure   GFLOP/s of useful operations, or GB/s of cache read, of one contender in one round

A contender is a function that returns its figure. Names of Regard's contenders start with "regard", names of causal
ones end with "causal"; peak, bf16 peak, sgemm and read are the references. targets.py computes the targets from these names.
Read next: workload.py, targets.py."""

import dataclasses
import functools
import pathlib

import numpy

import python_rows
from case import Case, timed
from workload import Workload, to_bf16

SGEMM = 2048
MAP_CELLS, TOP_KEYS = 512, 8


class Suite:
    def __init__(self, regard, competitors, quick):
        self.regard, self.competitors, self.quick = regard, competitors, quick
        random = numpy.random.default_rng(1)
        self.left, self.right = (random.standard_normal((SGEMM, SGEMM), dtype=numpy.float32) for _ in range(2))
        self.product = numpy.zeros((SGEMM, SGEMM), numpy.float32)
        self.sgemm = timed(2 * SGEMM**3, lambda: numpy.matmul(self.left, self.right, out=self.product))

    # ---- building blocks of most cases

    def add(self, case, name, workload, amount=None, call=None, context=None):
        """Regard's forward pass through the C interface, or another call that writes the context."""
        context = workload.new_context() if context is None else context
        case.contenders[name] = timed(amount or workload.operations, call or self.regard.forward(workload, context))
        case.errors[name] = lambda: workload.error(context)
        if call is None:
            case.memory[name] = (self.regard.workspace(workload, context), workload.packed_bytes)

    def add_competitors(self, case, workload, suffix="", amount=None, without=(), every=1, ours="regard"):
        for name, competitor in self.competitors.items():
            found = None if name in without else competitor.attention(workload)
            if found is not None:
                call, result = found
                case.contenders[name + suffix] = timed(amount or workload.operations, call)
                case.errors[name + suffix] = lambda workload=workload, result=result: workload.error(result())
                case.every[name + suffix] = every
                case.against[name + suffix] = ours + suffix

    def add_references(self, case):
        case.contenders |= {"peak": self.regard.peak, "sgemm": self.sgemm}

    # ---- the rows

    def peaks(self):
        case = Case("peaks", "multiply-add peak and read bandwidth", "GFLOP/s, GB/s", weight=0.5)
        case.contenders["peak"] = self.regard.peak
        if self.regard.bf16_peak() > 0:
            case.contenders["bf16 peak"] = self.regard.bf16_peak
        for place, num_bytes in (("L2", self.regard.threads * level_bytes(2, 1 << 20) // 2),
                                 ("L3", level_bytes(3, 64 << 20) // 2), ("memory", read_bytes())):
            case.contenders[f"read {place}"] = lambda num_bytes=num_bytes: self.regard.read(num_bytes)
        yield case

    def prefill(self):
        for length in (1024, 4096):
            for depth in (64, 128):
                case = Case("prefill", f"S {length}, D {depth}", weight=1 if length < 4096 else 3)
                self.add_references(case)
                full = Workload(8, length, length, depth)
                causal = full.variant(causal=True)
                self.add(case, "regard", full)
                self.add(case, "regard causal", causal)
                # Slow contenders that no target needs run in every fourth round only.
                self.add_competitors(case, full, without=("ggml", "numpy"))
                self.add_competitors(case, causal, " causal", without=("ggml",))
                for name in ("ggml", "numpy"):
                    self.add_competitors(case, full, without=set(self.competitors) - {name}, every=1 if length < 4096 else 4)
                yield case

    def long(self):
        for depth in (64, 128):
            case = Case("long", f"S 16384, D {depth}")
            self.add_references(case)
            full = Workload(8, 16384, 16384, depth)
            self.add(case, "regard", full)
            if depth == 64:
                self.add(case, "regard causal", full.variant(causal=True))
            self.add(case, "regard one head", Workload(1, 16384, 16384, depth))
            yield case

    def window(self):
        workload = Workload(8, 4096, 4096, 64, causal=True, window=511)
        case = Case("window", "S 4096, D 64, causal, window of 512 keys")
        case.contenders["peak"] = self.regard.peak
        self.add(case, "regard", workload)
        self.add_competitors(case, workload)
        yield case

    def short(self):
        short = Workload(64, 128, 128, 64)
        case = Case("short", "S 128, 64 heads, D 64")
        case.contenders["peak"] = self.regard.peak
        self.add(case, "regard", short)
        self.add(case, "regard S 4096", Workload(8, 4096, 4096, 64))
        self.add_competitors(case, short)
        yield case

    def decode(self):
        for key_heads in (32, 8):
            yield self._decode("decode", Workload(32, 1, 8192, 128, key_heads=key_heads))

    def _decode(self, row, workload):
        """Packed caches of three types and unpacked tensors; each figure counts the bytes of its own type."""
        grouped = workload.heads > workload.key_heads
        case = Case(row, f"{workload.heads} heads, {workload.key_heads} KV heads, S {workload.keys}, D {workload.depth}", "GB/s")
        case.contenders["read"] = lambda: self.regard.read(read_bytes())
        for cache_type, element in (("f32", 4.0), ("bf16", 2.0), ("int8", 1.0 + 4.0 / workload.depth)):
            self._add_cache(case, f"regard packed {cache_type}", workload, cache_type, workload.cache_bytes(element))
        if grouped:
            alone = dataclasses.replace(workload, heads=workload.key_heads)
            self._add_cache(case, "regard packed f32, 1 query head", alone, "f32", alone.cache_bytes())
        self.add(case, "regard unpacked f32", workload, workload.cache_bytes())
        halved = dataclasses.replace(workload, dtype="bf16")
        self.add(case, "regard unpacked bf16", halved, halved.cache_bytes(2.0))
        self.add_competitors(case, workload, amount=workload.cache_bytes(), ours="regard packed f32")
        self.add_competitors(case, halved, " bf16", amount=halved.cache_bytes(2.0), ours="regard packed")
        return case

    def _add_cache(self, case, name, workload, cache_type, amount, page_keys=0):
        context = workload.new_context()
        call, count = self.regard.decode(workload, context, cache_type, page_keys)
        self.add(case, name, workload, amount, call, context)
        case.memory[name] = (count(), 0)

    def paged(self):
        workload = Workload(32, 1, 8192, 128, key_heads=8)
        case = Case("paged", "32 heads, 8 KV heads, S 8192, D 128, f32", "GB/s")
        case.contenders["read"] = lambda: self.regard.read(read_bytes())
        for page_keys in (0, 32, 256):
            name = f"regard pages of {page_keys}" if page_keys else "regard contiguous"
            self._add_cache(case, name, workload, "f32", workload.cache_bytes(), page_keys)
        yield case

    def varlen(self):
        lengths = (17, 2048, 300, 64, 1500, 128, 777, 1, 512, 96, 1024, 33, 640, 256, 450, 346)
        packed = Workload(8, sum(lengths), sum(lengths), 64, lengths=lengths)
        case = Case("varlen", f"{len(lengths)} sequences of 1 to 2048 tokens, {sum(lengths)} in total, 8 heads, D 64")
        case.contenders["peak"] = self.regard.peak
        self.add(case, "regard", packed)
        self.add(case, "regard causal", packed.variant(causal=True))
        self.add_competitors(case, packed)
        self.add_competitors(case, packed.variant(causal=True), " causal")
        yield case

    def inspect(self):
        length = 2048 if self.quick else 8192
        full = Workload(8, length, length, 64)
        for workload, suffix in ((full, ""), (full.variant(causal=True), ", causal")):
            case = Case("inspect", f"S {length}, 8 heads, D 64{suffix}", weight=2)
            case.contenders["peak"] = self.regard.peak
            self.add(case, "regard", workload)
            context = workload.new_context()
            row_max, row_sum = (numpy.zeros((1, 8, length), numpy.float32) for _ in range(2))
            mass = numpy.zeros((1, 8, length), numpy.float32)
            cells = numpy.zeros((1, 8, MAP_CELLS, MAP_CELLS), numpy.float32)
            forward = self.regard.forward(workload, context, row_max, row_sum)
            columns = self.regard.columns(workload, row_max, row_sum, mass, cells)

            def both(forward=forward, columns=columns):
                forward()
                columns()

            self.add(case, "regard columns", workload, None, both, context)
            both()
            count = self.regard.columns(workload, row_max, row_sum, mass, cells, count=1)
            case.memory["regard columns"] = (count(), workload.packed_bytes + 8.0 * cells.size)
            counted = workload.new_context()
            call, count = self.regard.statistics(workload, counted, TOP_KEYS)
            self.add(case, "regard statistics", workload, None, call, counted)
            case.memory["regard statistics"] = (count(), workload.packed_bytes)
            yield case

    def backward(self):
        """Gradients; five matrix products count as 2.5 times the operations of the forward pass."""
        for length, depth, heads in ((1024, 64, 8), (1024, 128, 8), (4096, 64, 8), (4096, 128, 8), (8192, 64, 1)):
            case = Case("backward", f"S {length}, D {depth}, heads {heads}", weight=1 if length < 4096 else 3)
            case.contenders["peak"] = self.regard.peak
            case.against = {"torch": "regard backward", "torch causal": "regard backward causal"}
            full = Workload(heads, length, length, depth)
            for workload, suffix in ((full, ""), (full.variant(causal=True), " causal")):
                self._add_backward(case, workload, suffix)
            yield case

    def _add_backward(self, case, workload, suffix):
        context = workload.new_context()
        row_max, row_sum = (numpy.zeros((1, workload.heads, workload.queries), numpy.float32) for _ in range(2))
        grad = numpy.random.default_rng(2).standard_normal(context.shape, dtype=numpy.float32)
        gradients = [numpy.zeros_like(array) for array in (workload.query, workload.key, workload.value)]
        forward = self.regard.forward(workload, context, row_max, row_sum)
        forward()
        backward = functools.partial(self.regard.backward, workload, context, row_max, row_sum, grad, gradients)
        case.contenders["regard forward" + suffix] = timed(workload.operations, forward)
        case.contenders["regard backward" + suffix] = timed(2.5 * workload.operations, backward())
        if workload.heads == 1 and not workload.causal:
            case.contenders["regard backward, 1 thread"] = timed(2.5 * workload.operations, backward(threads=1))
        if "torch" in self.competitors:
            call = self.competitors["torch"].backward(workload, grad)
            case.contenders["torch" + suffix] = timed(2.5 * workload.operations, call)

    def training(self):
        """Forward, and forward and backward together; they count 1 and 3.5 times the operations of the forward pass."""
        for dtype in ("f32", "bf16"):
            for length in (128, 512, 2048, 8192):
                for depth in (64, 128):
                    full = Workload(8 if length < 8192 else 2, length, length, depth, dtype=dtype)
                    yield self._training(full, "")
                    yield self._training(full.variant(causal=True), ", causal")

    def _training(self, workload, suffix):
        case = Case("training", f"{workload.dtype}, S {workload.queries}, D {workload.depth}, heads {workload.heads}{suffix}",
                    weight=0.25)
        case.against = {"torch": "regard", "torch both": "regard both"}
        context = workload.new_context()
        row_max, row_sum = (numpy.zeros((1, workload.heads, workload.queries), numpy.float32) for _ in range(2))
        grad = numpy.random.default_rng(2).standard_normal(context.shape, dtype=numpy.float32)
        if workload.dtype == "bf16":
            grad = to_bf16(grad)
        gradients = [numpy.zeros_like(array) for array in (workload.query, workload.key, workload.value)]
        forward = self.regard.forward(workload, context, row_max, row_sum)
        backward = self.regard.backward(workload, context, row_max, row_sum, grad, gradients)

        def both():
            forward()
            backward()

        self.add(case, "regard", workload)
        case.contenders["regard both"] = timed(3.5 * workload.operations, both)
        if "torch" in self.competitors:
            self.add_competitors(case, workload, without=set(self.competitors) - {"torch"})
            case.contenders["torch both"] = timed(3.5 * workload.operations, self.competitors["torch"].training(workload, grad))
        return case

    def calls(self):
        return python_rows.calls(self)

    def drop_in(self):
        return python_rows.drop_in(self)

    def linear(self):
        for rows, inputs, outputs in ((SGEMM, SGEMM, SGEMM), (512, 768, 3072)):
            left, right = self.left[:rows, :inputs].copy(), numpy.resize(self.right, (inputs, outputs))
            product, output = (numpy.zeros((rows, outputs), numpy.float32) for _ in range(2))
            amount = 2.0 * rows * inputs * outputs
            case = Case("linear", f"({rows}, {inputs}) · ({inputs}, {outputs})")
            case.against = {"sgemm": "regard", "torch": "regard"}
            case.contenders |= {
                "peak": self.regard.peak,
                "sgemm": timed(amount, lambda a=left, b=right, out=product: numpy.matmul(a, b, out=out)),
                "regard": timed(amount, self.regard.linear(left, right, output))}
            if self.regard.bf16_peak() > 0:
                case.contenders["bf16 peak"] = self.regard.bf16_peak
            narrow = [to_bf16(left), to_bf16(right), numpy.zeros((rows, outputs), numpy.uint16)]
            case.contenders["regard bf16"] = timed(amount, self.regard.linear(*narrow))
            if "torch" in self.competitors:
                torch = self.competitors["torch"].torch
                a, b, c = map(torch.from_numpy, (left, right, numpy.zeros_like(product)))
                case.contenders["torch"] = timed(amount, lambda a=a, b=b, c=c: torch.matmul(a, b, out=c))
            yield case

    def bf16(self):
        for depth in (64, 128):
            halved = Workload(8, 4096, 4096, depth, dtype="bf16")
            whole = dataclasses.replace(halved, dtype="f32")
            case = Case("bf16", f"S 4096, D {depth}", weight=1.5)
            case.contenders["peak"] = self.regard.peak
            if self.regard.bf16_peak() > 0:
                case.contenders["bf16 peak"] = self.regard.bf16_peak
            self.add(case, "regard", halved)
            self.add(case, "regard f32", whole)
            self.add_competitors(case, halved)
            yield case


ROWS = ("peaks", "prefill", "long", "window", "short", "decode", "paged", "varlen", "inspect", "backward",
        "training", "calls", "drop_in", "linear", "bf16")


def level_bytes(level, otherwise):
    """The size of a cache of the first processor, or `otherwise` if it is not known."""
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size")
    try:
        return 1024 * int(path.read_text(encoding="ascii").strip().removesuffix("K"))
    except (OSError, ValueError):
        return otherwise


def read_bytes():
    """Four times the size of the L3 cache, shared among the threads."""
    return 4 * level_bytes(3, 64 << 20)
