#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Efficiency of attention over 8 to 64 simulated nodes, compared with the model of regard/distributed/cost.h.

    bench/simulated_ranks.py BUILD [--two-hosts FILE]    simulates, writes bench/results/ranks/ and the page
    bench/simulated_ranks.py --write-docs                only writes docs/performance/ranks.md and ranks.svg; with
                                                         --two-hosts FILE, replaces those figures

BUILD is a release build, whose `regard bench` gives the rate of a node. Needs SimGrid's SMPI (Debian: libsimgrid-dev);
takes about twenty minutes. FILE has the lines that bench/two_hosts.sh prints. Read next: simulated_ranks.cpp."""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from plots import GRID, PALE, Picture, spread_labels
from processor import processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = "bench/results/ranks/simulated.json"
TOKENS, HEADS, HEAD_SIZE, ELEMENT_BYTES = 131072, 32, 128, 4
LINKS = (10, 100)  # Gb/s
LATENCY = 20e-6    # seconds through two cables and a switch
PAYLOAD = 0.94     # of the rate of a link, in TCP packets: as SMPI has it
ASSUMED_GFLOPS = 5000
ROW = "causal, S 4096, D 128"
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node" suffix="" radical="0-{last}" speed="1Gf" bw="{link}Gbps" lat="{half}us"/>
</platform>
"""
RANKS = (8, 16, 32, 64)
CASES = [("measured", 32), ("measured", 8), ("assumed", 32), ("assumed", 8)]  # node, number of key/value heads
COLORS = dict(zip(CASES, ("#b5442e", "#2f6f9f", "#5b8f3a", "#8a6bb0"), strict=True))


def node_text(node, gflops):
    return f"{gflops:.0f} GFLOP/s (measured)" if node == "measured" else f"{gflops / 1000:.0f} TFLOP/s (assumed)"


def simulate(folder, ranks, link, kv_heads, gflops):
    platform, hosts = folder / f"{ranks}-{link}.xml", folder / "hosts"
    platform.write_text(PLATFORM.format(last=ranks - 1, link=link, half=LATENCY * 1e6 / 2), encoding="utf-8")
    hosts.write_text("".join(f"node{n}\n" for n in range(ranks)), encoding="utf-8")
    command = ["smpirun", "-np", ranks, "-platform", platform, "-hostfile", hosts, "--cfg=smpi/simulate-computation:no",
               "--cfg=smpi/host-speed:1Gf", folder / "simulated_ranks", TOKENS, HEADS, kv_heads, HEAD_SIZE, ELEMENT_BYTES, 1,
               gflops * 1e9, link * 1e9 / 8 * PAYLOAD, LATENCY]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def two_hosts(path):
    """The medians of the table that two_hosts.sh prints."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if " heads " in line or " rows " in line:
            name, scheme, figures = line[:38].strip(), *line[38:].split(maxsplit=1)
            compute, transfer, wall, ratio, used = map(float, figures.split()[:5])
            rows.append({"call": name, "scheme": scheme, "compute_s": compute, "transfer_s": transfer, "wall_s": wall,
                         "ratio": ratio, "processor_s": used})
    return rows


def measure(build, hosts):
    bench = json.loads(subprocess.run([build / "regard", "bench", "--json"], capture_output=True, check=True).stdout)
    rate = next(row["median"] for row in bench["rows"] if row["name"] == ROW)
    result = {"processor": processor(), "threads": bench["threads"], "instruction_set": bench["instruction_set"],
              "tokens": TOKENS, "heads": HEADS, "head_size": HEAD_SIZE, "element_bytes": ELEMENT_BYTES, "causal": True,
              "latency_s": LATENCY, "payload": PAYLOAD, "runs": [], "two_hosts": two_hosts(hosts) if hosts else []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["smpicxx", "-std=c++20", "-O1", f"-I{ROOT / 'include'}", ROOT / "bench/simulated_ranks.cpp",
                        build / "src/distributed/libregard_distributed.a", build / "libregard.a", "-lpthread", "-o",
                        folder / "simulated_ranks"], check=True)
        for node, kv_heads in CASES:
            gflops = rate if node == "measured" else ASSUMED_GFLOPS
            for link in LINKS:
                for ranks in RANKS:
                    run = simulate(folder, ranks, link, kv_heads, gflops)
                    run = {"node": node, "gflops": round(gflops, 1), "kv_heads": kv_heads, "link_gbit": link, **run}
                    print(run, flush=True)
                    result["runs"].append(run)
    return result


def efficiency(run, seconds="simulated_s"):
    return run["ideal_s"] / run[seconds]


def plot(result):
    """Efficiency as a function of ranks: a color for each node and number of key/value heads, dashes for 100 Gb/s."""
    left, right, top, bottom = 56, 470, 48, 350
    picture = Picture(420, "Efficiency of attention over simulated nodes")
    lowest = min(0.9, *(math.floor(20 * efficiency(run)) / 20 for run in result["runs"]))
    x = lambda ranks: left + (math.log2(ranks) - 3) / 3 * (right - left)
    y = lambda value: bottom - (value - lowest) / (1 - lowest) * (bottom - top)
    picture.text(left - 40, 26, "Efficiency: time of one node / (ranks × time), simulated; 131,072 tokens, causal, f32")
    for tick in range(round(lowest * 20), 21):
        picture.line([(left, y(tick / 20)), (right, y(tick / 20))], GRID)
        picture.text(left - 8, y(tick / 20) + 4, f"{tick / 20:.2f}", PALE, "end", 12)
    for ranks in RANKS:
        picture.text(x(ranks), bottom + 20, str(ranks), PALE, "middle", 12)
    picture.text((left + right) / 2, bottom + 40, "ranks", PALE, "middle", 12)
    labels = []
    for (node, kv_heads), color in COLORS.items():
        for link in LINKS:
            runs = [run for run in result["runs"] if (run["node"], run["kv_heads"], run["link_gbit"]) == (node, kv_heads, link)]
            points = [(x(run["ranks"]), y(efficiency(run))) for run in runs]
            picture.line(points, color, 2, "5 4" if link == 100 else "")
            for point in points:
                picture.dot(*point, color, 3.5)
            rate = f"{runs[0]['gflops']:.0f} GFLOP/s" if node == "measured" else f"{runs[0]['gflops'] / 1000:.0f} TFLOP/s"
            labels.append((points[-1][1], f"{rate}, {HEADS}:{kv_heads} heads, {link} Gb/s", color))
    for place, label, color in spread_labels(labels, top):
        picture.text(right + 14, place + 4, label, color, size=12)
    return picture.svg()


def page(result):
    rate = result["runs"][0]["gflops"]
    yield f"""# Attention over several ranks

Generated by `bench/simulated_ranks.py` from its [figures](../../bench/results/ranks/simulated.json); do not edit.
[derivations/ranks.md](../derivations/ranks.md) describes the schemes and derives the formulas.

## Simulated nodes

SimGrid's SMPI simulates the messages of the plan, one key/value head at a time with double buffering, on a cluster with one
switch. Each node sends and receives at the rate of its link, with a latency of {result['latency_s'] * 1e6:.0f} µs.

The computation time is the number of visible pairs, multiplied by the operations per pair and divided by the rate of a
node. This rate is either {rate:.0f} GFLOP/s, as measured with `regard bench` on {result['threads']} cores of
{result['processor']} with other load on the machine, or 5 TFLOP/s, which is an assumption
for a large server. Messages take no processor time, as if one core were reserved for the communication thread.

The call has {result['tokens']:,} tokens, {result['heads']} query heads, D {result['head_size']}, f32, a causal mask and equal shares. *Efficiency* is the time of
one node / (ranks × time). *Model* is `predict_time` in [cost.h](../../include/regard/distributed/cost.h) with the same rates, except
that the link runs at {result['payload']} of its rate, as TCP does in SMPI. *Deviation* is the model's time relative to the simulation.

![Efficiency by ranks](ranks.svg)

| node | KV heads | link | ranks | scheme | received, at most | simulated | efficiency | model | deviation |
|---|---|---|---|---|---|---|---|---|---|"""
    for run in result["runs"]:
        simulated, predicted = run["simulated_s"], run["predicted_s"]
        yield (f"| {node_text(run['node'], run['gflops'])} | {run['kv_heads']} | {run['link_gbit']} Gb/s | {run['ranks']} | {run['scheme']} | "
               f"{run['max_received_bytes'] / 2**20:,.0f} MiB | {simulated:.3f} s | {efficiency(run):.3f} | {predicted:.3f} s | "
               f"{round(100 * (predicted / simulated - 1), 1) + 0.0:+.1f} % |".replace("-", "−"))
    target = next(run for run in result["runs"] if (run["node"], run["kv_heads"], run["link_gbit"], run["ranks"]) == ("measured", 32, 10, 8))
    deviation = lambda run: abs(run["predicted_s"] / run["simulated_s"] - 1)
    worst = max(result["runs"], key=deviation)
    yield f"""
The targets, with 8 nodes of the measured rate at 10 Gb/s, are an efficiency of at least 0.90 (result: {efficiency(target):.3f}) and a
deviation of the model of at most 10 % (result: {100 * deviation(target):.1f} %). The model deviates most when the transfer of a head takes as long as its
computation, here by {100 * deviation(worst):.0f} % with {worst['ranks']} ranks, because it ignores the time spent waiting for the slowest sender, and
assumes that two heads never share the link."""
    many, fewer = (next(run for run in result["runs"] if (run["node"], run["kv_heads"], run["link_gbit"], run["ranks"]) == ("assumed", 32, 10, ranks))
                   for ranks in (64, 32))
    yield f"""
With more ranks than key/value heads, the scheme is `rows`, and every rank receives all keys. At 5 TFLOP/s, 10 Gb/s and 32 heads,
64 ranks therefore take longer than 32: {many['simulated_s']:.1f} s instead of {fewer['simulated_s']:.1f} s. Shared key/value heads, 100 Gb/s or fewer ranks avoid this."""
    if result["two_hosts"]:
        yield """
## Two hosts

`bench/two_hosts.sh` runs two ranks in two network namespaces with one core each, connected by a link that `tc tbf` limits to
1 Gb/s. All calls use f32, D 128 and one thread; the figures are medians, measured with other load on the machine.

*Compute* is the time for the rank's share of the work alone, and *transfer* is the time that its messages take at 1 Gb/s,
excluding headers (4.6 %). *Ratio* is wall / max(compute, transfer); the target is at most 1.1. *Processor* is the
processor time of the call.

| call | scheme | compute | transfer | wall | ratio | processor |
|---|---|---|---|---|---|---|"""
        for row in result["two_hosts"]:
            yield (f"| {row['call']} | {row['scheme']} | {row['compute_s']:.3f} s | {row['transfer_s']:.3f} s | {row['wall_s']:.3f} s | "
                   f"{row['ratio']:.2f} | {row['processor_s']:.3f} s |")
        yield """
In these runs, Open MPI sends messages of up to 8 MB without waiting for the receiver (`btl_tcp_eager_limit`, set in the
script). By default, it waits before each message larger than 64 KB, which leaves the link idle. In another run with the
default, the ratio was 1.33 in the first row, 1.31 in the fourth and 1.30 in the last.

If computation and transfer take the same time, the single core has to do both the computation and the TCP processing, so
the processor time of the messages is not hidden. The transfers of the first input and of the last output are not hidden
either; here, they amount to 1/32 of the whole transfer with the `rows` scheme and 1/16 with the `heads` scheme."""


def pages(root):
    """The page and its plot, by path."""
    result = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    return {"docs/performance/ranks.md": "\n".join(page(result)) + "\n", "docs/performance/ranks.svg": plot(result)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--two-hosts", type=pathlib.Path)
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    if not options.write_docs:
        if options.build is None:
            parser.error("missing BUILD")
        result = measure(options.build.resolve(), options.two_hosts)
    else:
        result = json.loads((ROOT / RESULTS).read_text(encoding="utf-8"))
        if options.two_hosts:
            result["two_hosts"] = two_hosts(options.two_hosts)
    (ROOT / RESULTS).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for path, text in pages(ROOT).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
