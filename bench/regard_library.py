# SPDX-License-Identifier: Apache-2.0
"""Regard for compare.py: the C interface (include/regard/c_api.h), and bench/operators.h for what it does not cover.

    Regard(build, threads).forward(workload, context)  ─▶  a call without arguments, to be timed

An error ends the program with the library's message. Read next: suite.py."""

import ctypes
import functools
import sys

import numpy

DTYPES = {numpy.dtype(numpy.float32): 1, numpy.dtype(numpy.int64): 5, numpy.dtype(numpy.uint16): 6}
CACHE_TYPES = {"f32": 1, "bf16": 6, "int8": 8}
PEAK_SECONDS, READ_SECONDS = 0.020, 0.060


class Array(ctypes.Structure):  # regard_input, regard_output
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]

    @classmethod
    def of(cls, array):
        assert array.flags.c_contiguous
        return cls(array.ctypes.data, DTYPES[array.dtype], array.ndim, (ctypes.c_int64 * array.ndim)(*array.shape), None)


Fingerprint = ctypes.c_uint32 * 16  # REGARD_FINGERPRINT_WORDS


# Structs may be longer than the library's if the rest is zero: `rest` covers all fields that are not declared here.
class Options(ctypes.Structure):  # regard_attention_options
    _fields_ = [("struct_size", ctypes.c_size_t), ("causal", ctypes.c_int32), ("offset_kind", ctypes.c_int32),
                ("offset", ctypes.c_int64), ("offsets", Array), ("has_window_left", ctypes.c_int32),
                ("has_window_right", ctypes.c_int32), ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
                ("key_lengths", Array), ("query_starts", Array), ("key_starts", Array), ("rest", ctypes.c_char * 2048)]


class Outputs(ctypes.Structure):  # regard_attention_outputs
    _fields_ = [("struct_size", ctypes.c_size_t), ("context", Array), ("row_max", Array), ("row_sum", Array),
                ("lse", Array), ("weights", Array), ("sink_weights", Array), ("fingerprint", ctypes.POINTER(Fingerprint)),
                ("rest", ctypes.c_char * 1024)]


class Saved(ctypes.Structure):  # regard_attention_saved
    _fields_ = [("struct_size", ctypes.c_size_t), ("context", Array), ("row_max", Array), ("row_sum", Array),
                ("grad_context", Array), ("grad_lse", Array), ("fingerprint", ctypes.POINTER(Fingerprint)),
                ("rest", ctypes.c_char * 1024)]


class Gradients(ctypes.Structure):  # regard_attention_gradients
    _fields_ = [("struct_size", ctypes.c_size_t), ("query", Array), ("key", Array), ("value", Array),
                ("rest", ctypes.c_char * 1024)]


class Runtime(ctypes.Structure):  # regard_runtime
    _fields_ = [("struct_size", ctypes.c_size_t), ("num_threads", ctypes.c_int64), ("rest", ctypes.c_char * 256)]


class Flat(ctypes.Structure):  # regard_bench_workload
    _fields_ = [(name, ctypes.c_void_p) for name in ("query", "key", "value", "context", "row_max", "row_sum")] + \
               [(name, ctypes.c_int64) for name in ("type", "heads", "key_heads", "queries", "keys", "depth", "causal",
                                                    "window_left")] + \
               [("starts", ctypes.c_void_p), ("num_starts", ctypes.c_int64), ("num_threads", ctypes.c_int64)]


class Regard:
    def __init__(self, build, threads):
        self.threads = threads
        self.library = ctypes.CDLL(str(build / "libregard.so"))
        self.bench = ctypes.CDLL(str(build / "bench" / "libregard_bench.so"))
        self.runtime = Runtime(ctypes.sizeof(Runtime), threads)
        for function in (self.library.regard_version, self.library.regard_last_error, self.bench.regard_bench_error,
                         self.bench.regard_bench_instruction_set):
            function.restype = ctypes.c_char_p
        for function in (self.bench.regard_bench_peak, self.bench.regard_bench_bf16_peak):
            function.argtypes, function.restype = [ctypes.c_int, ctypes.c_double], ctypes.c_double
        self.bench.regard_bench_read.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_double]
        self.bench.regard_bench_read.restype = ctypes.c_double
        for name in ("forward", "calls", "columns", "statistics", "decode"):
            getattr(self.bench, f"regard_bench_{name}").restype = ctypes.c_int64
        self.bench.regard_bench_cache.restype = ctypes.c_void_p
        self.bench.regard_bench_cache.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self.bench.regard_bench_free.argtypes = [ctypes.c_void_p]

    def version(self):
        return self.library.regard_version().decode()

    def instruction_set(self):
        return self.bench.regard_bench_instruction_set().decode()

    def peak(self):
        return self.bench.regard_bench_peak(self.threads, PEAK_SECONDS)

    def bf16_peak(self):
        return self.bench.regard_bench_bf16_peak(self.threads, PEAK_SECONDS)

    def read(self, num_bytes):
        """GB/s of reading num_bytes, shared among the threads."""
        return self.bench.regard_bench_read(num_bytes // self.threads, self.threads, READ_SECONDS)

    # ---- through the C interface

    def _call(self, function, *arguments, threads=None):
        runtime = Runtime(ctypes.sizeof(Runtime), threads) if threads else self.runtime
        references = [ctypes.byref(x) if x is not None else None for x in (*arguments, runtime)]
        if getattr(self.library, function)(*references) != 0:
            sys.exit("compare.py: " + self.library.regard_last_error().decode())

    def forward(self, workload, context, row_max=None, row_sum=None):
        arrays = [Array.of(array) for array in (workload.query, workload.key, workload.value)]
        outputs = Outputs(ctypes.sizeof(Outputs), Array.of(context))
        if row_max is not None:
            outputs.row_max, outputs.row_sum = Array.of(row_max), Array.of(row_sum)
            workload.fingerprint = Fingerprint()
            outputs.fingerprint = ctypes.pointer(workload.fingerprint)
            outputs.kept = (row_max, row_sum)
        return functools.partial(self._call, "regard_attention_forward", *arrays, outputs, self._options(workload))

    def backward(self, workload, context, row_max, row_sum, grad_context, gradients, threads=None):
        """Requires an earlier forward() with row_max and row_sum. The call writes the gradients of query, key and value."""
        arrays = [Array.of(array) for array in (workload.query, workload.key, workload.value)]
        saved = Saved(ctypes.sizeof(Saved), *map(Array.of, (context, row_max, row_sum, grad_context)))
        saved.fingerprint = ctypes.pointer(workload.fingerprint)
        written = Gradients(ctypes.sizeof(Gradients), *map(Array.of, gradients))
        saved.kept = (workload, context, row_max, row_sum, grad_context, gradients)
        return functools.partial(self._call, "regard_attention_backward", *arrays, saved, written,
                                 self._options(workload), threads=threads)

    def _options(self, workload):
        options = Options(ctypes.sizeof(Options), workload.causal)
        if workload.window >= 0:
            options.has_window_left, options.window_left = 1, workload.window
        if workload.starts is not None:
            options.query_starts = options.key_starts = Array.of(workload.starts)
        return options

    def linear(self, left, right, output):
        arrays = [Array.of(left), Array.of(right), None, Array.of(output)]
        return functools.partial(self._call, "regard_linear_forward", *arrays)

    # ---- through bench/operators.h

    def _flat(self, workload, context, row_max=None, row_sum=None):
        address = lambda array: None if array is None else array.ctypes.data
        flat = Flat(*map(address, (workload.query, workload.key, workload.value, context, row_max, row_sum)),
                    DTYPES[workload.query.dtype], workload.heads, workload.key_heads, workload.queries, workload.keys,
                    workload.depth, workload.causal, workload.window, address(workload.starts),
                    0 if workload.starts is None else len(workload.starts), self.threads)
        flat.kept = (workload, context, row_max, row_sum)
        return flat

    def _bench(self, function, *arguments):
        result = getattr(self.bench, f"regard_bench_{function}")(*arguments)
        if result is None or result < 0:
            sys.exit("compare.py: " + self.bench.regard_bench_error().decode())
        return result

    def workspace(self, workload, context):
        """The largest number of scratch bytes that one call of attention_forward uses."""
        return self._bench("forward", ctypes.byref(self._flat(workload, context)), 1)

    def calls(self, workload, context, num_calls):
        """num_calls calls of attention_forward in a C++ loop, with the default number of threads."""
        return functools.partial(self._bench, "calls", ctypes.byref(self._flat(workload, context)), ctypes.c_int64(num_calls))

    def columns(self, workload, row_max, row_sum, mass, pooled_map, count=0):
        flat = self._flat(workload, None, row_max, row_sum)
        pointer = lambda array: ctypes.c_void_p(array.ctypes.data)
        return functools.partial(self._bench, "columns", ctypes.byref(flat), pointer(mass), pointer(pooled_map),
                                 ctypes.c_int64(pooled_map.shape[-1]), count)

    def statistics(self, workload, context, top):
        """Two functions, as in decode()."""
        shape = (1, workload.heads, workload.queries)
        keys, weights = numpy.zeros((*shape, top), numpy.int64), numpy.zeros((*shape, top), numpy.float32)
        rows = numpy.zeros((4, *shape[1:]), numpy.float32)
        flat = self._flat(workload, context)
        pointer = lambda array: ctypes.c_void_p(array.ctypes.data)
        call = lambda count: self._bench("statistics", ctypes.byref(flat), pointer(keys), pointer(weights),
                                         ctypes.c_int64(top), pointer(rows), count)
        return lambda: call(0), lambda: call(1)

    def decode(self, workload, context, cache_type, page_keys=0):
        """Two functions: a call to be timed, and one that returns its workspace. They keep the cache alive."""
        flat = self._flat(workload, context)
        cache = Cache(self, self._bench("cache", ctypes.byref(flat), CACHE_TYPES[cache_type], page_keys))
        call = lambda count: self._bench("decode", ctypes.c_void_p(cache.pointer), ctypes.byref(flat), count)
        return lambda: call(0), lambda: call(1)


class Cache:
    def __init__(self, regard, pointer):
        self.regard, self.pointer = regard, pointer

    def __del__(self):
        self.regard.bench.regard_bench_free(self.pointer)
