# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and its pictures, from every bench/results/*.json. Written by
bench/run_benchmarks. Read next: plots.py."""

import json

from plots import NAMES, plots

INTRODUCTION = """# Performance

Written by `bench/run_benchmarks --write-docs` from the JSON in `bench/results/`; do not edit it.

**What is measured.** Attention through the C interface (caches and inspection through the C++ one, the rows *calls* and *drop_in*
through the Python package), beside PyTorch, ONNX Runtime, ggml and NumPy on the same arrays. GFLOP/s: 4 · D operations for each visible pair of a query and a key,
exponentials for nothing; under a causal mask or a window only the pairs that it leaves. GB/s: the keys and values of the
cache, each counted once. References: *peak*, fused multiply-adds on registers alone with the vectors of the same instruction
set; *bf16 peak*, bf16 dot products likewise; *sgemm*, NumPy's product of 2048 × 2048 matrices by the OpenBLAS of its wheel,
which counts where it reaches 0.55 of the peak; *read*, the best of several loops over four times the third-level cache.

**How.** One process, the contenders in turn, the order rotated each round, 5 ms idle before each, as many threads for each,
none spinning out of turn; N(0,1) inputs, outputs written before, packing inside the timed call, caches warm. Every ratio is the
median of the rounds' own ratios, its spread the quartiles. A case has 30 rounds or as many as fit into its seconds; the tables
say how many. Errors are the largest of sampled rows against double, in units of u · Σ p |v| (u = 2⁻²⁴, of bf16 2⁻⁹; what int8
and bf16 caches round counts as error). Workspace is what one call takes at most beside its outputs.

**Whom.** PyTorch's scaled_dot_product_attention; of ONNX Runtime the operator Attention (opset 23), and its *own operators*,
MultiHeadAttention and GroupQueryAttention, each in the layout that it likes; ggml_flash_attn_ext with f32 keys and values;
NumPy, product, softmax, product.

**Again, on your machine.** Keep it quiet, then run `bench/run_benchmarks`: it builds Regard into `build/bench`, makes an environment with
the competitors (1.5 GB, once), measures for about ten minutes, and writes `bench/results/<processor>.json` and this page.
`--rows decode,short` measures a part, `--quick` hardly measures at all, `--isa avx2` another instruction set.
"""


# Keys of results that were measured before they had their present names.
OLD_KEYS = {"bars": "targets", "bar": "target", "holds": "met", "by_yardstick": "by_reference", "yardstick": "reference",
            "rivals": "competitors"}


def renamed(value):
    """The same results under the present names of their keys."""
    if isinstance(value, dict):
        return {OLD_KEYS.get(key, key): renamed(part) for key, part in value.items()}
    return list(map(renamed, value)) if isinstance(value, list) else value


def spread(values, digits):
    low, high = values["quartiles"]
    return f"{low:.{digits}f} – {high:.{digits}f}"


def heading(run):
    blas = run["openblas"]
    names = ", ".join(f"{NAMES[name]} {version}" for name, version in run["competitors"].items() if name != "onnxruntime own")
    return f"{run['isa']}, {run['threads']} threads; {names}; OpenBLAS {blas['version']} ({blas['core']})"


def target_cells(target):
    limit = ("≤ " if target["most"] else "≥ ") + f"{target['limit']:.2f}"
    if target["median"] is None:
        return target["target"], limit, "", "", "not measured"
    verdict = "met" if target["met"] else "missed"
    if target.get("by_reference"):
        verdict = "met by the target against the reference"
    return target["target"], limit, f"{target['median']:.3f}", spread(target, 3), verdict


def figure_cells(figure):
    number = lambda key, form: form.format(figure[key]) if key in figure else ""
    ours = f"{figure['ours']['median']:.2f}" if "ours" in figure else ""
    workspace = f"{figure['workspace'] / 2**20:.1f}" if "workspace" in figure else ""
    return (figure["name"], f"{figure['median']:.1f}", spread(figure, 1), number("share", "{:.2f}"), ours,
            number("error", "{:.2f}"), workspace)


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(cells) + " |" for cells in rows)


def shape_lines(shapes):
    yield from ["#### shapes", "", "Regard against product, softmax, product on the same kernels, `bench/shapes.txt`:", ""]
    yield from table(("shape", "rounds", "ratio", "quartiles"),
                     ((shape["shape"], str(shape["rounds"]), f"{shape['ratio']['median']:.2f}", spread(shape["ratio"], 2))
                      for shape in shapes))
    yield ""


def run_lines(run):
    met = sum(target["met"] is True for target in run["targets"])
    missing = sum(target["met"] is None for target in run["targets"])
    yield from [f"### {run['isa']}", "", heading(run) + ".", ""]
    yield from [f"{met} of {len(run['targets'])} targets met, {missing} not measured.", ""]
    yield from [*table(("target", "limit", "figure", "quartiles", ""), map(target_cells, run["targets"])), ""]
    for case in run["cases"]:
        of = f"of {case['reference']}" if case["reference"] else ""
        yield from [f"#### {case['row']}: {case['case']}", "", f"{case['rounds']} rounds.", ""]
        yield from table(("", case["unit"], "quartiles", of, "Regard is × as fast", "error", "workspace, MiB"),
                         map(figure_cells, case["figures"]))
        yield ""
    if run["shapes"]:
        yield from shape_lines(run["shapes"])


def write(results, docs):
    """Writes performance.md and performance-*.svg into docs."""
    for old in docs.glob("performance-*.svg"):
        old.unlink()
    lines = [INTRODUCTION]
    for path in sorted(results.glob("*.json")):
        report = renamed(json.loads(path.read_text(encoding="utf-8")))
        lines += [f"## {report['processor']}", "",
                  f"Commit {report['commit']}, [{path.name}](../bench/results/{path.name}).", ""]
        for name, words, text in plots(report["runs"][0]):
            picture = f"performance-{path.stem}-{name}.svg"
            (docs / picture).write_text(text, encoding="utf-8")
            lines += [f"![{words}]({picture})", ""]
        for run in report["runs"]:
            lines += run_lines(run)
    (docs / "performance.md").write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
