# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark that use the Python package: the overhead of a call, and the drop-in for PyTorch.

    calls     one query, one key, D 8: called in a loop from C++, from NumPy and from PyTorch; leaks of 10**6 calls
    drop_in   scaled_dot_product_attention of Regard and of PyTorch, each called as a model calls it

The package is in build/bench/package, linked to the same library; without it these rows are empty.
Read next: suite.py."""

import functools
import importlib
import sys

import numpy

from case import Case, timed
from workload import Workload, to_bf16

NUM_CALLS = 20_000
COUNTED_CALLS, COUNTED_ROUNDS = 250_000, 4


def package():
    """The package regard with its drop-in; None if either cannot be imported."""
    try:
        importlib.import_module("regard.torch")
        return importlib.import_module("regard")
    except ImportError as error:
        print(f"compare.py: skipping the Python package: {error}", file=sys.stderr)
        return None


def rate(loop):
    """A contender: calls per millisecond in a loop of NUM_CALLS."""
    return timed(1e6 * NUM_CALLS, loop)


def in_python(call):
    def loop():
        for _ in range(NUM_CALLS):
            call()
    return rate(loop)


def leaked(call, objects):
    """Two contenders: references to the objects and Python memory blocks that COUNTED_CALLS calls leak."""
    def counted(measure):
        def contender():
            call()
            before = measure()
            for _ in range(COUNTED_CALLS):
                call()
            after = measure()
            return float(after - before)
        return contender

    references = lambda: sum(sys.getrefcount(one) for one in objects)
    return {"leaked references": counted(references), "leaked memory blocks": counted(sys.getallocatedblocks)}


def calls(suite):
    regard = package()
    if regard is None:
        return
    workload = Workload(1, 1, 1, 8)
    context, of_cpp = workload.new_context(), workload.new_context()
    arrays = workload.query, workload.key, workload.value
    from_numpy = functools.partial(regard.attention, *arrays, out=context)
    case = Case("calls", "(1, 1, 1, 8)", "calls/ms")
    case.contenders = {"regard, C++": rate(suite.regard.calls(workload, of_cpp, NUM_CALLS)),
                       "regard, NumPy, out=": in_python(from_numpy)}
    case.errors = {"regard, NumPy, out=": lambda: workload.error(context)}
    if "torch" in suite.competitors:
        torch = suite.competitors["torch"].torch
        plain = [torch.from_numpy(array) for array in arrays]
        trainable = [tensor.clone().requires_grad_() for tensor in plain]
        ours, theirs = regard.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
        case.contenders |= {"regard, PyTorch": in_python(functools.partial(ours, *plain)),
                            "torch": in_python(functools.partial(theirs, *plain)),
                            "regard, PyTorch, with gradients": in_python(functools.partial(ours, *trainable)),
                            "torch, with gradients": in_python(functools.partial(theirs, *trainable))}
        case.against = {"torch": "regard, PyTorch", "torch, with gradients": "regard, PyTorch, with gradients"}
    yield case

    case = Case("calls", f"(1, 1, 1, 8), {COUNTED_CALLS} calls from NumPy with out=", "count")
    case.max_rounds = COUNTED_ROUNDS
    case.contenders = leaked(from_numpy, [*arrays, context, None, True, float, "out", numpy.float32, regard.attention])
    yield case


def drop_in(suite):
    regard = package()
    if regard is None or "torch" not in suite.competitors:
        return
    torch = suite.competitors["torch"].torch
    ours, theirs = regard.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    for dtype in ("f32", "bf16"):
        for length in (128, 512, 1024):
            for depth in (64, 128):
                full = Workload(8, length, length, depth, dtype=dtype)
                for workload, suffix in ((full, ""), (full.variant(causal=True), ", causal")):
                    case = Case("drop_in", f"{dtype}, S {length}, D {depth}, heads 8{suffix}", weight=0.25)
                    _add(case, workload, torch, {"regard": ours, "torch": theirs})
                    yield case


def _add(case, workload, torch, functions):
    grad = numpy.random.default_rng(2).standard_normal(workload.query.shape, dtype=numpy.float32)
    arrays = [workload.query, workload.key, workload.value, to_bf16(grad) if workload.dtype == "bf16" else grad]
    tensors = [torch.from_numpy(array) for array in arrays]
    if workload.dtype == "bf16":
        tensors = [tensor.view(torch.bfloat16) for tensor in tensors]
    *plain, grad = tensors
    trainable = [tensor.clone().requires_grad_() for tensor in plain]
    last = {}

    def forward(name, attention):
        with torch.inference_mode():
            last[name] = attention(*plain, is_causal=workload.causal)

    def both(attention):
        torch.autograd.grad(attention(*trainable, is_causal=workload.causal), trainable, grad)

    for name, attention in functions.items():
        case.contenders[name] = timed(workload.operations, functools.partial(forward, name, attention))
        case.errors[name] = functools.partial(_error, workload, last, name)
    for name, attention in functions.items():
        case.contenders[f"{name} both"] = timed(3.5 * workload.operations, functools.partial(both, attention))
    case.against = {"torch": "regard", "torch both": "regard both"}


def _error(workload, last, name):
    return workload.error(last[name].float().contiguous().numpy())
