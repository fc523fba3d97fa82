# SPDX-License-Identifier: Apache-2.0
"""Measures Regard through its C interface, its competitors and the processor's peaks in turn, in one process.

    compare.py --build BUILD [--rows decode,prefill] [--quick] [--json FILE]

BUILD is a build of shared libraries with REGARD_BENCH=ON and the Python package in BUILD/package. bench/run_benchmarks
creates it and the environment with the competitors. suite.py defines the rows, competitors.py the competitors.

One round runs each contender once, with 5 ms idle before each; the next round starts with the next contender.
Everything has run once untimed, so outputs have been written and caches are warm; packing is part of the timed call.
Every result has been compared with one in double precision. A case runs for --seconds (a multiple of it where suite.py
says so), with at least four rounds and at most --rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from regard_library import Regard
from competitors import openblas, competitors
from suite import ROWS, Suite

IDLE_SECONDS = 0.005
MIN_ROUNDS = 4
# A result with a larger error, in units of u · Σ p |v|, is wrong: in f32, and for caches and inputs in bf16 or int8.
MAX_ERROR, MAX_ROUNDED_ERROR = 1024.0, 65536.0
# OpenBLAS's kernels for the same instruction set; by default it selects the best one, as Regard does. The kernels of
# Prescott serve every core with SSE only, and OpenBLAS reports them as Katmai.
BLAS_CORES = {"generic": "Prescott", "avx2": "Haswell"}


def environment(threads, isa):
    """Variables to set before any library is loaded: equal numbers of threads, which sleep when idle."""
    settings = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0",
                # 4 KiB pages for the arrays, as for the memory that `read` uses and for Regard's caches.
                "NUMPY_MADVISE_HUGEPAGE": "0",
                # 2**20 cycles: threads stop spinning within the idle time, not 26 ms into the next contender's turn.
                "OPENBLAS_THREAD_TIMEOUT": "20"}
    settings["REGARD_THREADS"] = str(threads)
    if isa:
        settings["REGARD_FORCE_ISA"] = isa
        if isa in BLAS_CORES:
            settings["OPENBLAS_CORETYPE"] = BLAS_CORES[isa]
    return settings


def in_turn(case, rounds):
    """{name: [figure of each round, or None if it did not run]}"""
    names = list(case.contenders)
    figures = {name: [None] * rounds for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if turn % case.every.get(name, 1) == 0:
                time.sleep(IDLE_SECONDS)
                figures[name][turn] = round(case.contenders[name](), 4)
    return figures


def measure(case, seconds, max_rounds):
    round_seconds = 0.0
    for name, contender in case.contenders.items():
        begin = time.perf_counter()
        contender()
        round_seconds += (time.perf_counter() - begin) / case.every.get(name, 1) + IDLE_SECONDS
        error = case.errors.get(name, lambda: 0.0)()
        if not error < (MAX_ROUNDED_ERROR if "bf16" in name or "int8" in name else MAX_ERROR):
            sys.exit(f"compare.py: {case.row}, {case.label}: error of {name} is {error:g} u · Σ p |v|")
    rounds = max(MIN_ROUNDS, min(max_rounds, case.max_rounds, int(case.weight * seconds / round_seconds)))
    errors = {name: round(error(), 2) for name, error in case.errors.items()}
    return {"row": case.row, "case": case.label, "unit": case.unit, "figures": in_turn(case, rounds),
            "against": case.against, "errors": errors,
            "memory": {name: list(map(int, pair)) for name, pair in case.memory.items()}}


def show(result):
    figures = {name: [x for x in values if x is not None] for name, values in result["figures"].items()}
    print(f"{result['row']}: {result['case']}  ({max(map(len, figures.values()))} rounds)")
    for name, values in figures.items():
        line = f"  {name:32}{statistics.median(values):10.1f} {result['unit']}"
        if name in result["errors"]:
            line += f"   error {result['errors'][name]:8.2f}"
        if name in result["memory"]:
            line += f"   workspace {result['memory'][name][0] / 2**20:8.1f} MiB"
        print(line)
    sys.stdout.flush()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--rows", default=",".join(ROWS), help="rows to measure, separated by commas; default all: " + ",".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="one second per case, with smaller shapes where one takes longer")
    parser.add_argument("--threads", type=int, default=2, help="number of threads; default 2, for which the targets are defined")
    parser.add_argument("--rounds", type=int, default=30, help="maximum number of rounds per case; default 30")
    parser.add_argument("--seconds", type=float, default=7.0, help="time per case; default 7")
    parser.add_argument("--isa", choices=("generic", "avx2", "avx512", "avx512_bf16", "amx_bf16"), help="instruction set; default: the best one")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures of all rounds, written after each case")
    given = parser.parse_args()
    given.rows = given.rows.split(",")
    unknown = sorted(set(given.rows) - set(ROWS))
    if unknown:
        parser.error(f"--rows: unknown row: {', '.join(unknown)}; available: {', '.join(ROWS)}")
    return given


def main():
    given = arguments()
    wanted = environment(given.threads, given.isa)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})

    sys.path.insert(0, str(given.build.resolve() / "package"))
    regard, others = Regard(given.build.resolve(), given.threads), competitors(given.threads)
    blas = openblas()
    if blas["threads"] != given.threads:
        sys.exit(f"compare.py: OpenBLAS runs on {blas['threads']} threads instead of {given.threads}")
    report = {"version": regard.version(), "isa": regard.instruction_set(), "threads": given.threads, "openblas": blas,
              "competitors": {name: competitor.version for name, competitor in others.items()}, "cases": []}
    print(f"Regard {report['version']} {report['isa']}, {given.threads} threads; OpenBLAS {blas['version']} "
          f"{blas['core']}; " + ", ".join(f"{name} {version}" for name, version in report["competitors"].items()))
    suite = Suite(regard, others, given.quick)
    for row in ROWS:
        if row in given.rows:
            for case in getattr(suite, row)():
                result = measure(case, 1.0 if given.quick else given.seconds, given.rounds)
                show(result)
                report["cases"].append(result)
                if given.json:
                    given.json.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
