# SPDX-License-Identifier: Apache-2.0
"""The layers of Regard and of PyTorch, forward and backward, in turns on the same tensors.

    bench/layers.py                               all cases; about two minutes
    bench/layers.py --cases norm --types float32  cases whose name contains "norm"
    bench/layers.py --turn 0                      one call a turn, whose threads are asleep

Both run in one process with the same number of threads. Each round has a turn of both, in alternating order, and gives one
ratio. A turn is as many calls as take about a millisecond, after two untimed milliseconds of them, in which threads wake up
and spread over the processors. 12 ms of idle time are before each turn: PyTorch's threads spin for about 8 ms after a call, on
a processor that the other library needs.

Before a case is timed, both results are compared with PyTorch in double. A wrong result of Regard is an error; PyTorch's are
marked, because it adds some sums in bfloat16.

Regard is called through the Python package, in build/bench/package (bench/run_benchmarks --prepare builds it), and writes to
given tensors. PyTorch is called without autograd where an operator can be called directly: with out= where the operator
writes there itself, otherwise with a new tensor, whose memory is reused from call to call. Forward results that
PyTorch saves for its backward pass (mean, deviation, log-softmax, cosines) are computed before the timed calls; Regard
computes them again. RMS norm, rotation and multi-head attention go backward through a graph that is built before.

    rows × width     768 × 128, 768 × 512, 4096 × 768; one head per 64 columns (32 for width 128)
    embedding        256 and 4096 rows of a table 50257 × 768; 768 of 65 × 128
    cross-entropy    768 × 65 and 256 × 50257

Read next: training.py."""

import argparse
import ctypes
import dataclasses
import json
import pathlib
import statistics
import sys
import time

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "build" / "bench" / "package"))
import regard  # noqa: E402  (of this tree)

IDLE, WARM_UP = 0.012, 0.002
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}  # relative to the largest element
SIZES = {(768, 128): (12, 4), (768, 512): (12, 8), (4096, 768): (4, 12)}  # rows, width: batch entries, heads
EPSILON = 1e-5
aten = torch.ops.aten


@dataclasses.dataclass
class Case:
    name: str
    shape: str
    inputs: list     # tensors in double; converted to the type of a run, except indices
    ours: object     # of (threads, *inputs): a call without arguments that returns the results
    theirs: object   # of inputs: the same for PyTorch
    types: tuple = (torch.float32, torch.bfloat16)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def gradient_of(forward, grad_output, *inputs):
    """A call that goes backward through a graph that is built here."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = forward(*inputs)
    return lambda: torch.autograd.grad(output, inputs, grad_output, retain_graph=True)


def norms(rows, width):
    shape, inputs = f"{rows} × {width}", [normal(rows, width), normal(width), normal(width), normal(rows, width)]

    def layer_forward(threads, x, gain, bias, grad):
        out = torch.zeros_like(x)
        return lambda: [regard.layer_norm_forward(x, gain, bias, epsilon=EPSILON, out=out, num_threads=threads)]

    def layer_backward(threads, x, gain, bias, grad):
        given = {"grad_input": torch.zeros_like(x), "grad_gain": torch.zeros_like(gain), "grad_bias": torch.zeros_like(gain)}
        return lambda: regard.layer_norm_backward(x, gain, grad, epsilon=EPSILON, num_threads=threads, **given).values()

    def torch_layer_backward(x, gain, bias, grad):
        _, mean, deviation = aten.native_layer_norm(x, [width], gain, bias, EPSILON)
        return lambda: aten.native_layer_norm_backward(grad, x, [width], mean, deviation, gain, bias, [True] * 3)

    def rms_forward(threads, x, gain, bias, grad):
        out = torch.zeros_like(x)
        return lambda: [regard.rms_norm_forward(x, gain, epsilon=EPSILON, out=out, num_threads=threads)]

    def rms_backward(threads, x, gain, bias, grad):
        given = {"grad_input": torch.zeros_like(x), "grad_gain": torch.zeros_like(gain)}
        return lambda: regard.rms_norm_backward(x, gain, grad, epsilon=EPSILON, num_threads=threads, **given).values()

    rms = lambda x, gain: functional.rms_norm(x, [width], gain, EPSILON)
    yield Case("layer norm", shape, inputs, layer_forward,
               lambda x, gain, bias, grad: lambda: aten.native_layer_norm(x, [width], gain, bias, EPSILON)[:1])
    yield Case("layer norm, backward", shape, inputs, layer_backward, torch_layer_backward)
    yield Case("rms norm", shape, inputs, rms_forward, lambda x, gain, bias, grad: lambda: [rms(x, gain)])
    yield Case("rms norm, backward", shape, inputs, rms_backward,
               lambda x, gain, bias, grad: gradient_of(rms, grad, x, gain))


def activations(rows, width):
    shape, inputs = f"{rows} × {width}", [normal(rows, width), normal(rows, width)]
    of_torch = {"gelu": (aten.gelu.out, aten.gelu_backward.grad_input, {}),
                "gelu_tanh": (aten.gelu.out, aten.gelu_backward.grad_input, {"approximate": "tanh"}),
                "silu": (aten.silu.out, aten.silu_backward.grad_input, {})}
    for name, (forward, backward, options) in of_torch.items():
        def ours(threads, x, grad, name=name):
            out = torch.zeros_like(x)
            return lambda: [regard.activation_forward(x, name, out=out, num_threads=threads)]

        def ours_backward(threads, x, grad, name=name):
            out = torch.zeros_like(x)
            return lambda: [regard.activation_backward(x, grad, name, grad_input=out, num_threads=threads)]

        def theirs(x, grad, forward=forward, options=options):
            out = torch.zeros_like(x)
            return lambda: [forward(x, **options, out=out)]

        def theirs_backward(x, grad, backward=backward, options=options):
            out = torch.zeros_like(x)
            return lambda: [backward(grad, x, **options, grad_input=out)]

        yield Case(name, shape, inputs, ours, theirs)
        yield Case(name + ", backward", shape, inputs, ours_backward, theirs_backward)


def swiglu(rows, width):
    shape, inputs = f"{rows} × {width}", [normal(rows, width), normal(rows, width), normal(rows, width)]

    def ours(threads, gate, up, grad):
        out = torch.zeros_like(gate)
        return lambda: [regard.swiglu_forward(gate, up, out=out, num_threads=threads)]

    def ours_backward(threads, gate, up, grad):
        given = {"grad_gate": torch.zeros_like(gate), "grad_up": torch.zeros_like(up)}
        return lambda: regard.swiglu_backward(gate, up, grad, num_threads=threads, **given).values()

    def theirs(gate, up, grad):
        silu, out = torch.zeros_like(gate), torch.zeros_like(gate)
        return lambda: [torch.mul(aten.silu.out(gate, out=silu), up, out=out)]

    def theirs_backward(gate, up, grad):
        silu, product, grad_gate, grad_up = functional.silu(gate), *(torch.zeros_like(gate) for _ in range(3))
        return lambda: [aten.silu_backward.grad_input(torch.mul(grad, up, out=product), gate, grad_input=grad_gate),
                        torch.mul(grad, silu, out=grad_up)]

    yield Case("swiglu", shape, inputs, ours, theirs)
    yield Case("swiglu, backward", shape, inputs, ours_backward, theirs_backward)


def rotation(rows, width):
    batch, heads = SIZES[rows, width]
    length, size = rows // batch, width // heads
    angles = torch.arange(length).double()[:, None] * 10000.0 ** (-torch.arange(0, size, 2).double() / size)
    cosines, sines = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()
    # As models have it: (B, L, H, D) in memory, seen as (B, H, L, D).
    rotated = lambda: normal(batch, length, heads, size).transpose(1, 2)

    def apply(x, cosines, sines):  # apply_rotary_pos_emb of transformers
        half = torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1)
        return x * cosines + half * sines

    def ours(threads, x, grad, cosines, sines):
        out = torch.zeros_like(x)
        return lambda: [regard.rotary_forward(x, out=out, num_threads=threads)]

    def ours_backward(threads, x, grad, cosines, sines):
        out = torch.zeros_like(x)
        return lambda: [regard.rotary_backward(grad, grad_input=out, num_threads=threads)]

    shape, inputs = f"{batch} × {heads} × {length} × {size}", [rotated(), rotated(), cosines, sines]
    yield Case("rotary", shape, inputs, ours, lambda x, grad, cosines, sines: lambda: [apply(x, cosines, sines)])
    yield Case("rotary, backward", shape, inputs, ours_backward,
               lambda x, grad, cosines, sines: gradient_of(lambda x: apply(x, cosines, sines), grad, x))


def embedding(rows, vocabulary, width):
    shape, inputs = f"{rows} of {vocabulary} × {width}", [normal(vocabulary, width), torch.randint(vocabulary, (rows,)),
                                                         normal(rows, width)]

    def ours(threads, table, indices, grad):
        out = torch.zeros_like(grad)
        return lambda: [regard.embedding_forward(table, indices, out=out, num_threads=threads)]

    def ours_backward(threads, table, indices, grad):
        out = torch.zeros_like(table)
        return lambda: [regard.embedding_backward(indices, grad, grad_table=out, num_threads=threads)]

    def theirs(table, indices, grad):
        out = torch.zeros_like(grad)
        return lambda: [torch.index_select(table, 0, indices, out=out)]

    yield Case("embedding", shape, inputs, ours, theirs)
    yield Case("embedding, backward", shape, inputs, ours_backward, lambda table, indices, grad: lambda: [
        aten.embedding_dense_backward(grad, indices, vocabulary, -1, False)])


def cross_entropy(rows, classes):
    def ours(threads, logits, targets):
        out = torch.zeros_like(logits)

        def call():
            loss = regard.cross_entropy_forward(logits, targets, grad_logits=out, num_threads=threads).loss
            return [torch.tensor(loss, dtype=torch.float64), out]
        return call

    def theirs(logits, targets):
        softmax, out, one = torch.zeros_like(logits), torch.zeros_like(logits), torch.ones([], dtype=logits.dtype)
        into = torch.zeros_like(logits)

        def call():
            aten._log_softmax.out(logits, 1, False, out=softmax)
            loss, weight = aten.nll_loss_forward(softmax, targets, None, 1, -100)
            aten.nll_loss_backward.grad_input(one, softmax, targets, None, 1, -100, weight, grad_input=into)
            aten._log_softmax_backward_data.out(into, softmax, 1, logits.dtype, out=out)
            return [loss, out]
        return call

    yield Case("cross-entropy, both", f"{rows} × {classes}", [normal(rows, classes), torch.randint(classes, (rows,))], ours,
               theirs)


def multi_head(rows, width):
    batch, heads = SIZES[rows, width]
    length, size = rows // batch, width // heads
    inputs = [normal(batch, length, width), normal(3 * width, width) / width**0.5, normal(width, width) / width**0.5,
              normal(batch, length, width)]

    def forward(x, qkv, output):
        query, key, value = (part.view(batch, length, heads, size).transpose(1, 2)
                             for part in functional.linear(x, qkv).split(width, 2))
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return functional.linear(context.transpose(1, 2).reshape(batch, length, width), output)

    def ours_backward(threads, x, qkv, output, grad):
        weights = qkv.T.contiguous().split(width, 1)
        given = {"w_output": output.T.contiguous(), "num_heads": heads, "causal": True, "num_threads": threads}
        state = regard.multi_head_attention_forward(x, *weights, return_state=True, **given).state
        grad_x, grad_qkv, grad_output = torch.zeros_like(x), torch.zeros(width, 3 * width), torch.zeros(width, width)
        given |= {"grad_input": grad_x, "grad_w_output": grad_output}
        given |= zip(("grad_w_query", "grad_w_key", "grad_w_value"), grad_qkv.split(width, 1), strict=True)

        def call():
            regard.multi_head_attention_backward(x, *weights, state, grad, **given)
            return [grad_x, grad_qkv.T, grad_output.T]
        return call

    yield Case("multi-head attention, backward", f"{batch} × {length} × {width}", inputs, ours_backward,
               lambda x, qkv, output, grad: gradient_of(forward, grad, x, qkv, output), (torch.float32,))


def cases():
    for rows, width in SIZES:
        for layer in (norms, activations, swiglu, rotation):
            yield from layer(rows, width)
    for rows, vocabulary, width in ((768, 65, 128), (256, 50257, 768), (4096, 50257, 768)):
        yield from embedding(rows, vocabulary, width)
    for rows, classes in ((768, 65), (256, 50257)):
        yield from cross_entropy(rows, classes)
    for rows, width in SIZES:
        yield from multi_head(rows, width)


def is_close(found, exact, tolerance):
    return all(torch.allclose(x.double(), reference, rtol=tolerance, atol=tolerance * float(reference.abs().max()))
               for x, reference in zip(found, exact, strict=True))


def seconds(call, count):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def quartiles(values):
    values = sorted(values)
    return [values[len(values) // 4], statistics.median(values), values[3 * len(values) // 4]]


def measure(case, dtype, given):
    """Microseconds of a call of both, and PyTorch's time relative to Regard's: lower quartile, median, upper quartile."""
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case.inputs]
    exact = case.theirs(*[x.double() if x.is_floating_point() else x for x in inputs])()
    calls = {"regard": case.ours(given.threads, *inputs), "torch": case.theirs(*inputs)}
    if not is_close(calls["regard"](), exact, TOLERANCE[dtype]):
        raise RuntimeError(f"{case.name}, {dtype}, {case.shape}: wrong result")
    inexact = not is_close(calls["torch"](), exact, TOLERANCE[dtype])
    counts = {}
    for who, call in calls.items():
        counts[who] = max(1, round(given.turn / min(seconds(call, 1) for _ in range(3))))
    taken = {who: [] for who in calls}
    end = time.perf_counter() + given.seconds
    while len(taken["torch"]) < 4 or (time.perf_counter() < end and len(taken["torch"]) < given.rounds):
        for who in sorted(calls, reverse=len(taken["torch"]) % 2 == 1):
            time.sleep(IDLE)
            warm = time.perf_counter() + (WARM_UP if given.turn > 0 else 0)
            while time.perf_counter() < warm:
                calls[who]()
            taken[who].append(seconds(calls[who], counts[who]))
    return {"case": case.name, "shape": case.shape, "type": str(dtype).removeprefix("torch."), "rounds": len(taken["torch"]),
            "torch_is_inexact": inexact, **{who: quartiles([1e6 * x for x in values]) for who, values in taken.items()},
            "ratio": quartiles([b / a for a, b in zip(taken["regard"], taken["torch"], strict=True)])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=pathlib.Path, help="file to write")
    parser.add_argument("--cases", default="", help="measure only cases whose name contains this")
    parser.add_argument("--shape", default="", help="measure only cases whose shape contains this")
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100, help="maximum number of rounds per case")
    parser.add_argument("--seconds", type=float, default=0.6, help="time per case, which has at least four rounds")
    parser.add_argument("--turn", type=float, default=0.001, help="seconds of consecutive calls; 0 is one call")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    # No page faults in the new tensors of PyTorch: M_MMAP_MAX and M_TRIM_THRESHOLD keep freed memory.
    ctypes.CDLL(None).mallopt(-4, 0)
    ctypes.CDLL(None).mallopt(-1, ctypes.c_int(2**31 - 1))
    torch.manual_seed(0)
    report = {"torch": torch.__version__, "threads": given.threads, "turn": given.turn, "cases": []}
    for case in cases():
        if given.cases not in case.name or given.shape not in case.shape:
            continue
        for dtype in case.types:
            if str(dtype).removeprefix("torch.") not in given.types.split(","):
                continue
            found = measure(case, dtype, given)
            report["cases"].append(found)
            low, median, high = found["ratio"]
            times = "".join(f"{found[who][1]:9.1f} µs " for who in ("regard", "torch"))
            marks = "  slower" * (median < 1) + "  (PyTorch is inexact)" * found["torch_is_inexact"]
            print(f"{case.name:30} {found['type']:8} {case.shape:22} {times} {median:6.2f} ×  ({low:.2f} – {high:.2f}){marks}",
                  flush=True)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


main()
