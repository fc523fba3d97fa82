# SPDX-License-Identifier: Apache-2.0
"""Regard, through its C interface, beside NumPy and the processor's peak: all in one process, in turn.

    compare.py --build BUILD [--threads 2] [--rounds 30] [--isa NAME] [--json]

BUILD is a build of shared libraries with REGARD_BENCH=ON; bench/bars makes one and the environment with NumPy.
Contenders, each in billions of f32 operations a second:

    peak              fused multiply-adds on registers alone, 20 ms, on as many threads       (regard/peaks.h)
    sgemm             NumPy's product of 2048 x 2048 matrices, by the OpenBLAS of its wheel
    full, causal      attention_forward, S = L = 4096, 8 heads, D = 64 and 128; causal counts visible pairs only
    numpy             the same full attention in NumPy, unfused: product, softmax, product, head by head
    linear            linear_forward on sgemm's matrices

One round runs each once, 5 ms idle before each; the next round begins with the next contender. Inputs are N(0,1),
outputs were written before, packing is inside the timed call, caches are warm: everything has run once untimed.
"""

import argparse
import ctypes
import glob
import json
import os
import pathlib
import sys
import time

import numpy

LENGTH, HEADS, DEPTHS, SQUARE = 4096, 8, (64, 128), 2048
IDLE_SECONDS, PEAK_SECONDS = 0.005, 0.020
# OpenBLAS's kernels of the same instruction set; unforced it chooses the best itself, as Regard does. Those of Prescott
# serve every core with SSE only, so that it calls them Katmai.
BLAS_CORES = {"generic": "Prescott", "avx2": "Haswell"}


def environment(threads, isa):
    """What must be set before OpenBLAS is loaded: equal threads that sleep when they have nothing to do."""
    settings = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0",
                # 2**20 cycles: its threads stop spinning within the idle time, not 26 ms into somebody else's turn.
                "OPENBLAS_THREAD_TIMEOUT": "20"}
    if isa:
        settings["REGARD_FORCE_ISA"] = isa
        if isa in BLAS_CORES:
            settings["OPENBLAS_CORETYPE"] = BLAS_CORES[isa]
    return settings


class Array(ctypes.Structure):  # regard_input, regard_output
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]

    @classmethod
    def of(cls, array):
        assert array.dtype == numpy.float32 and array.flags.c_contiguous
        return cls(array.ctypes.data, 1, array.ndim, (ctypes.c_int64 * array.ndim)(*array.shape), None)


# Structs may be longer than the library's own when the rest is zero: `rest` stands for all fields not named here.
class Options(ctypes.Structure):  # regard_attention_options
    _fields_ = [("struct_size", ctypes.c_size_t), ("causal", ctypes.c_int32), ("rest", ctypes.c_char * 2036)]


class Outputs(ctypes.Structure):  # regard_attention_outputs
    _fields_ = [("struct_size", ctypes.c_size_t), ("context", Array), ("rest", ctypes.c_char * 1024)]


class Runtime(ctypes.Structure):  # regard_runtime
    _fields_ = [("struct_size", ctypes.c_size_t), ("num_threads", ctypes.c_int64)]


class Regard:
    def __init__(self, build, threads):
        self.library = ctypes.CDLL(str(build / "libregard.so"))
        self.yardstick = ctypes.CDLL(str(build / "bench" / "libregard_bench_peak.so"))
        self.library.regard_version.restype = ctypes.c_char_p
        self.library.regard_last_error.restype = ctypes.c_char_p
        self.yardstick.regard_bench_peak.argtypes = [ctypes.c_int, ctypes.c_double]
        self.yardstick.regard_bench_peak.restype = ctypes.c_double
        self.yardstick.regard_bench_instruction_set.restype = ctypes.c_char_p
        self.threads = threads
        self.runtime = Runtime(ctypes.sizeof(Runtime), threads)

    def version(self):
        return self.library.regard_version().decode()

    def instruction_set(self):
        return self.yardstick.regard_bench_instruction_set().decode()

    def peak(self):
        return self.yardstick.regard_bench_peak(self.threads, PEAK_SECONDS)

    def call(self, function, *arguments):
        """Passes structures by reference; a refusal ends the program with the library's own sentence."""
        references = [ctypes.byref(x) if x is not None else None for x in (*arguments, self.runtime)]
        if getattr(self.library, function)(*references) != 0:
            sys.exit("compare.py: " + self.library.regard_last_error().decode())

    def attention(self, query, key, value, context, causal):
        arrays = [Array.of(array) for array in (query, key, value)]
        outputs = Outputs(ctypes.sizeof(Outputs), Array.of(context))
        options = Options(ctypes.sizeof(Options), causal)
        return lambda: self.call("regard_attention_forward", *arrays, outputs, options)

    def linear(self, left, right, output):
        arrays = [Array.of(left), Array.of(right), None, Array.of(output)]
        return lambda: self.call("regard_linear_forward", *arrays)


def openblas():
    """The OpenBLAS inside NumPy's wheel: version and the core whose kernels it chose."""
    [path] = glob.glob(str(pathlib.Path(numpy.__file__).parent.parent / "numpy.libs" / "*openblas*"))
    library = ctypes.CDLL(path)
    library.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
    library.scipy_openblas_get_config64_.restype = ctypes.c_char_p
    return {"version": library.scipy_openblas_get_config64_().decode().split()[1],
            "core": library.scipy_openblas_get_corename64_().decode(),
            "threads": library.scipy_openblas_get_num_threads64_()}


def numpy_attention(query, key, value, context, scores):
    scale = numpy.float32(query.shape[-1] ** -0.5)
    for head in range(query.shape[1]):
        numpy.matmul(query[0, head], key[0, head].T, out=scores)
        scores *= scale
        scores -= scores.max(axis=1, keepdims=True)
        numpy.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        numpy.matmul(scores, value[0, head], out=context[0, head])


def timed(operations, call):
    """A contender: one call, in billions of operations a second."""
    def contender():
        begin = time.perf_counter()
        call()
        return operations / (time.perf_counter() - begin) / 1e9
    return contender


def in_turn(contenders, rounds):
    """{name: [figure of each round]}"""
    figures = {name: [] for name in contenders}
    names = list(contenders)
    for name in names:
        contenders[name]()
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(IDLE_SECONDS)
            figures[name].append(contenders[name]())
    return figures


def check(holds, what):
    if not holds:
        sys.exit(f"compare.py: wrong result, {what}; nothing was measured")


def measure_attention(regard, sgemm, depth, rounds, random):
    shape = (1, HEADS, LENGTH, depth)
    query, key, value = (random.standard_normal(shape, dtype=numpy.float32) for _ in range(3))
    full, causal, baseline = (numpy.zeros(shape, numpy.float32) for _ in range(3))
    scores = numpy.zeros((LENGTH, LENGTH), numpy.float32)
    run_full = regard.attention(query, key, value, full, False)
    run_causal = regard.attention(query, key, value, causal, True)

    def run_numpy():
        numpy_attention(query, key, value, baseline, scores)

    for run in (run_full, run_causal, run_numpy):
        run()
    check(numpy.abs(full - baseline).max() < 1e-5, "full attention is not NumPy's")
    check((causal[:, :, 0] == value[:, :, 0]).all(), "the first causal row is not the first value")
    check((causal[:, :, -1] == full[:, :, -1]).all(), "the last causal row is not the last full row")

    operations = 4 * depth * HEADS * LENGTH**2
    visible = 4 * depth * HEADS * LENGTH * (LENGTH + 1) // 2
    return in_turn({"peak": regard.peak, "sgemm": sgemm, "full": timed(operations, run_full),
                    "causal": timed(visible, run_causal), "numpy": timed(operations, run_numpy)}, rounds)


def measure(build, threads, rounds):
    regard = Regard(build, threads)
    blas = openblas()
    check(blas["threads"] == threads, f"OpenBLAS runs on {blas['threads']} threads instead of {threads}")
    random = numpy.random.default_rng(1)
    left, right = (random.standard_normal((SQUARE, SQUARE), dtype=numpy.float32) for _ in range(2))
    product, output = (numpy.zeros((SQUARE, SQUARE), numpy.float32) for _ in range(2))
    sgemm = timed(2 * SQUARE**3, lambda: numpy.matmul(left, right, out=product))
    run_linear = regard.linear(left, right, output)
    run_linear()
    check(numpy.allclose(output, left @ right, rtol=1e-4, atol=1e-2), "linear_forward is not NumPy's product")

    groups = {f"D = {depth}": measure_attention(regard, sgemm, depth, rounds, random) for depth in DEPTHS}
    groups[f"{SQUARE} x {SQUARE}"] = in_turn(
        {"peak": regard.peak, "sgemm": sgemm, "linear": timed(2 * SQUARE**3, run_linear)}, rounds)
    return {"version": regard.version(), "isa": regard.instruction_set(), "threads": threads, "rounds": rounds,
            "numpy": numpy.__version__, "openblas": blas, "groups": groups}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--isa", help="generic, avx2 or avx512; the best one when not given")
    parser.add_argument("--json", action="store_true", help="every round's figure, as JSON")
    arguments = parser.parse_args()
    wanted = environment(arguments.threads, arguments.isa)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})

    result = measure(arguments.build.resolve(), arguments.threads, arguments.rounds)
    if arguments.json:
        print(json.dumps(result))
        return
    blas = result["openblas"]
    print(f"Regard {result['version']} {result['isa']}, {arguments.threads} threads, "
          f"OpenBLAS {blas['version']} {blas['core']}, median of {arguments.rounds} rounds")
    for group, figures in result["groups"].items():
        medians = {name: numpy.median(values) for name, values in figures.items()}
        print(f"{group:12}" + "   ".join(f"{name} {value:.1f}" for name, value in medians.items()) + "   GFLOP/s")


if __name__ == "__main__":
    main()
