# SPDX-License-Identifier: Apache-2.0
"""Regard, through its C interface, beside its competitors and the processor's peaks: all in one process, in turn.

    compare.py --build BUILD [--rows decode,prefill] [--quick] [--json FILE]

BUILD is a build of shared libraries with REGARD_BENCH=ON, the Python package in BUILD/package; bench/run_benchmarks makes one and the
environment with the competitors. What is measured stands in suite.py, a row each; who else is measured, in competitors.py.

One round runs each contender once, 5 ms idle before each; the next round begins with the next contender. Outputs were
written before, packing is inside the timed call, caches are warm: everything has run once untimed, and every answer has
been compared with one in double. Rounds go on for --seconds a case (a multiple where suite.py says so): --rounds at most,
and at least four.
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
FEWEST_ROUNDS = 4
# Beyond these an answer is wrong, in units of u · Σ p |v|: computed in f32, and with keys or values of fewer bits.
LARGEST_ERROR, LARGEST_ROUNDED_ERROR = 1024.0, 65536.0
# OpenBLAS's kernels of the same instruction set; unforced it chooses the best itself, as Regard does. Those of Prescott
# serve every core with SSE only, so that it calls them Katmai.
BLAS_CORES = {"generic": "Prescott", "avx2": "Haswell"}


def environment(threads, isa):
    """What must be set before anybody is loaded: equal threads that sleep when they have nothing to do."""
    settings = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0",
                # Pages of 4 KiB for the arrays, as for the memory that the reference reads and for our caches.
                "NUMPY_MADVISE_HUGEPAGE": "0",
                # 2**20 cycles: its threads stop spinning within the idle time, not 26 ms into somebody else's turn.
                "OPENBLAS_THREAD_TIMEOUT": "20"}
    settings["REGARD_THREADS"] = str(threads)
    if isa:
        settings["REGARD_FORCE_ISA"] = isa
        if isa in BLAS_CORES:
            settings["OPENBLAS_CORETYPE"] = BLAS_CORES[isa]
    return settings


def in_turn(case, rounds):
    """{name: [figure of each round, or None where it had no turn]}"""
    names = list(case.contenders)
    figures = {name: [None] * rounds for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if turn % case.every.get(name, 1) == 0:
                time.sleep(IDLE_SECONDS)
                figures[name][turn] = round(case.contenders[name](), 4)
    return figures


def measure(case, seconds, most_rounds):
    of_a_round = 0.0
    for name, contender in case.contenders.items():
        begin = time.perf_counter()
        contender()
        of_a_round += (time.perf_counter() - begin) / case.every.get(name, 1) + IDLE_SECONDS
        error = case.errors.get(name, lambda: 0.0)()
        if not error < (LARGEST_ROUNDED_ERROR if "bf16" in name or "int8" in name else LARGEST_ERROR):
            sys.exit(f"compare.py: {case.row}, {case.label}: {name} is wrong by {error:g} u · Σ p |v|")
    rounds = max(FEWEST_ROUNDS, min(most_rounds, case.most_rounds, int(case.weight * seconds / of_a_round)))
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
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--rows", default=",".join(ROWS), help="which, with commas; all: " + ",".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="a second for each case, smaller where one takes longer")
    parser.add_argument("--threads", type=int, default=2, help="default 2, as the targets are stated")
    parser.add_argument("--rounds", type=int, default=30, help="at most; default 30")
    parser.add_argument("--seconds", type=float, default=7.0, help="for each case; default 7")
    parser.add_argument("--isa", choices=("generic", "avx2", "avx512", "avx512_bf16"), help="default: the best one")
    parser.add_argument("--json", type=pathlib.Path, help="a file for every round's figure, written after each case")
    given = parser.parse_args()
    given.rows = given.rows.split(",")
    unknown = sorted(set(given.rows) - set(ROWS))
    if unknown:
        parser.error(f"--rows: no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
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
