# SPDX-License-Identifier: Apache-2.0
"""The performance targets, each a ratio within a round, from the figures of compare.py and shapes.

    target  "f32, S 4096, D 64: full / the lower of 0.82 peak and 1.0 sgemm"
    figure  the median of the ratios of all rounds, with its quartiles
    met     whether the median reaches the limit; None if the row was not measured

A target against a competitor is also met if the target against the reference of the same workload is met: no library
can be twice as fast as a competitor that is already near the limit of the hardware. Read next: suite.py."""

import statistics

# If sgemm reaches less than this share of the peak, the limit is OpenBLAS, not the machine, and only the peak counts.
SGEMM_COUNTS_FROM = 0.55
PEAK_SHARE, SGEMM_SHARE = {64: 0.82, 128: 0.87}, {64: 1.0, 128: 1.05}
BF16_SHARE = {64: 0.72, 128: 0.82}
READ_SHARE = 0.85
TORCH_FULL, ONNX_FULL = {64: 1.35, 128: 1.15}, {64: 1.5, 128: 1.5}
EXTRA_BYTES_A_THREAD = 4 << 20


def summary(values):
    if len(values) == 1:
        values = values * 2
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(median, 4), "quartiles": [round(low, 4), round(high, 4)]}


class Rounds:
    """The figures of a case, round by round."""

    def __init__(self, case):
        self.figures = case["figures"]

    def __contains__(self, name):
        return name in self.figures

    def each(self, formula, *names):
        """formula(figures of these names) for every round in which all of them ran; [] if a name is missing."""
        if not all(name in self.figures for name in names):
            return []
        return [formula(*round_) for round_ in zip(*(self.figures[name] for name in names)) if None not in round_]

    def ratio(self, name, other):
        return self.each(lambda a, b: a / b, name, other)


class Targets:
    def __init__(self, cases):
        self.cases, self.found = cases, []

    def case(self, row, begin):
        for case in self.cases:
            if case["row"] == row and case["case"].startswith(begin):
                return Rounds(case)
        return Rounds({"figures": {}})

    def add(self, text, limit, ratios, most=False, capped=None):
        """capped: per round, ours / the lower of the targets against the competitor and the reference."""
        target = {"target": text, "limit": limit, "most": most, "median": None, "quartiles": None, "met": None}
        if ratios:
            target |= summary(ratios)
            target["met"] = target["median"] <= limit if most else target["median"] >= limit
            if capped and not target["met"]:
                target["met"] = summary(capped)["median"] >= 1
                target["by_reference"] = target["met"]
        self.found.append(target)

    def against(self, text, limit, rounds, ours, competitor, reference, *names):
        """reference(figures of names): the rate that the target against the reference requires in that round."""
        capped = rounds.each(lambda a, b, *rest: a / min(limit * b, reference(*rest)), ours, competitor, *names)
        self.add(text, limit, rounds.ratio(ours, competitor), capped=capped)


def machine_of(rounds, depth):
    """The rate that full attention must reach, as a function of peak and sgemm in a round, and its name."""
    peak, product = PEAK_SHARE[depth], SGEMM_SHARE[depth]
    shares = rounds.ratio("sgemm", "peak")
    if shares and statistics.median(shares) < SGEMM_COUNTS_FROM:
        return (lambda p, s: peak * p), f"{peak} peak"
    return (lambda p, s: min(peak * p, product * s)), f"the lower of {peak} peak and {product} sgemm"


def prefill(targets):
    for length in (1024, 4096, 16384):
        for depth in (64, 128):
            rounds = targets.case("long" if length > 4096 else "prefill", f"S {length}, D {depth}")
            machine, name = machine_of(rounds, depth)
            targets.add(f"f32, S {length}, D {depth}: full / {name}", 1.0,
                     rounds.each(lambda full, p, s: full / machine(p, s), "regard", "peak", "sgemm"))
            if length <= 4096 or depth == 64:
                targets.add(f"f32, S {length}, D {depth}: causal / full", 0.85 if length < 4096 else 0.95,
                         rounds.ratio("regard causal", "regard"))
            if length > 4096:
                targets.add(f"f32, S {length}, D {depth}: one head / eight heads", 0.95,
                         rounds.ratio("regard one head", "regard"))
    targets.add("f32, S 128, 64 heads / S 4096, 8 heads", 0.7, targets.case("short", "S 128").ratio("regard", "regard S 4096"))


def bf16(targets):
    for depth in (64, 128):
        rounds = targets.case("bf16", f"S 4096, D {depth}")
        if "bf16 peak" in rounds or "regard" not in rounds:
            targets.add(f"bf16, S 4096, D {depth}: full / bf16 dot peak", BF16_SHARE[depth],
                     rounds.ratio("regard", "bf16 peak"))
        else:
            targets.add(f"bf16, S 4096, D {depth}: full / Regard in f32", 0.95, rounds.ratio("regard", "regard f32"))


def decode(targets):
    rounds = targets.case("decode", "32 heads, 32 KV heads")
    for name in ("packed f32", "packed bf16", "packed int8", "unpacked f32", "unpacked bf16"):
        targets.add(f"decode, S 8192, D 128, {name} / read bandwidth", READ_SHARE, rounds.ratio(f"regard {name}", "read"))
    grouped = targets.case("decode", "32 heads, 8 KV heads")
    targets.add("decode, 4 query heads per KV head: time / time of 1", 1.15,
             grouped.ratio("regard packed f32, 1 query head", "regard packed f32"), most=True)


def inspect(targets):
    for mask in ("", ", causal"):
        rounds = targets.case("inspect", "S 8192, 8 heads, D 64" + mask) if mask else _plain_inspect(targets)
        targets.add(f"forward with row statistics, S 8192, D 64{mask}: time / forward", 1.25,
                 rounds.ratio("regard", "regard statistics"), most=True)
        targets.add(f"forward with key mass and pooled map, S 8192, D 64{mask}: time / forward", 1.8,
                 rounds.ratio("regard", "regard columns"), most=True)


def _plain_inspect(targets):
    return Targets([case for case in targets.cases if not case["case"].endswith("causal")]).case("inspect", "S 8192")


def backward(targets):
    for length in (1024, 4096):
        for depth in (64, 128):
            rounds = targets.case("backward", f"S {length}, D {depth}")
            for mask in ("", " causal"):
                named = f"backward, f32, S {length}, D {depth}" + (", causal" if mask else "")
                targets.add(f"{named}: rate / forward rate", 0.8,
                         rounds.ratio("regard backward" + mask, "regard forward" + mask))
                targets.add(f"{named}: speed / PyTorch", 1.1, rounds.ratio("regard backward" + mask, "torch" + mask))
    targets.add("backward, one head, S 8192, D 64: two threads / one thread", 1.8,
             targets.case("backward", "S 8192").ratio("regard backward", "regard backward, 1 thread"))


def training(targets):
    """Speed relative to PyTorch over all shapes: the slowest shape and the median shape."""
    for row, shapes_of_it in (("training", "S 128 to 8192"), ("drop_in", "from Python, S 128 to 1024")):
        for dtype, forward, both in (("f32", 1.3, 1.2), ("bf16", 1.05, 3.0)):
            cases = [Rounds(case) for case in targets.cases if case["row"] == row and case["case"].startswith(dtype)]
            for name, suffix, limit in (("forward", "", forward), ("forward and backward", " both", both)):
                ratios = [rounds.ratio("regard" + suffix, "torch" + suffix) for rounds in cases]
                medians = [statistics.median(ratio) for ratio in ratios if ratio]
                named = f"{dtype}, {name}, {shapes_of_it}, D 64 and 128, full and causal: speed / PyTorch"
                targets.add(f"{named}, slowest shape", 1.0, [min(medians)] if medians else [])
                targets.add(f"{named}, median shape", limit, [statistics.median(medians)] if medians else [])


def calls(targets):
    cases = [case["figures"] for case in targets.cases if case["row"] == "calls"]
    rounds = Rounds({"figures": {name: figures for case in cases for name, figures in case.items()}})
    targets.add("call from NumPy with out=, (1, 1, 1, 8): µs more than from C++", 3.0,
             rounds.each(lambda ours, cpp: 1e3 / ours - 1e3 / cpp, "regard, NumPy, out=", "regard, C++"), most=True)
    for what, most in (("leaked references", 0), ("leaked memory blocks", 100)):
        leaked = rounds.each(lambda number: number, what)
        targets.add(f"10⁶ calls from NumPy: {what}", most, [sum(leaked)] if leaked else [], most=True)


def shapes(targets, found):
    ratios = [shape["ratio"]["median"] for shape in found or []]
    targets.add("shapes.txt: speed / three separate steps, slowest shape", 0.97, [min(ratios)] if ratios else [])
    targets.add("shapes.txt: speed / three separate steps, median shape", 1.2,
             [statistics.median(ratios)] if ratios else [])


def memory(targets, threads):
    worst = [(bytes_ - packed) / (EXTRA_BYTES_A_THREAD * threads)
             for case in targets.cases for bytes_, packed in case["memory"].values()]
    targets.add("workspace beyond one packed copy (and the requested map) / 4 MiB per thread, largest of all rows", 1.0,
             [max(worst)] if worst else [], most=True)


def against_competitors(targets):
    for competitor, named, full, causal in (("torch", "PyTorch", TORCH_FULL, 1.3),
                                       ("onnxruntime", "ONNX Runtime", ONNX_FULL, 4.0),
                                       ("onnxruntime own", "ONNX Runtime (own)", ONNX_FULL, 4.0)):
        for depth in (64, 128):
            rounds = targets.case("prefill", f"S 4096, D {depth}")
            machine, _ = machine_of(rounds, depth)
            targets.against(f"f32, S 4096, D {depth}, full: speed / {named}", full[depth], rounds, "regard", competitor, machine,
                         "peak", "sgemm")
            targets.against(f"f32, S 4096, D {depth}, causal: speed / {named}", causal, rounds, "regard causal", f"{competitor} causal",
                         lambda f: 0.95 * f, "regard")
        if competitor == "torch":
            targets.against(f"f32, S 128, 64 heads: speed / {named}", 2.0, targets.case("short", "S 128"), "regard", competitor,
                         lambda f: 0.7 * f, "regard S 4096")
        for heads, least in ((32, 1.15 if competitor == "torch" else 1.4), (8, 3.5)):
            targets.against(f"f32, decode, 32 heads, {heads} KV heads: speed / {named}", least,
                         targets.case("decode", f"32 heads, {heads} KV heads"), "regard packed f32", competitor,
                         lambda r: READ_SHARE * r, "read")
        if competitor == "torch":
            for depth in (64, 128):
                rounds = targets.case("bf16", f"S 4096, D {depth}")
                if "bf16 peak" in rounds or "regard" not in rounds:
                    targets.against(f"bf16, S 4096, D {depth}, full: speed / {named}", 1.3, rounds, "regard", competitor,
                                 lambda p: BF16_SHARE[depth] * p, "bf16 peak")
                else:
                    targets.against(f"bf16, S 4096, D {depth}, full: speed / {named}", 1.05, rounds, "regard", competitor,
                                 lambda f: 0.95 * f, "regard f32")


def all_targets(cases, found_shapes, threads):
    targets = Targets(cases)
    prefill(targets)
    bf16(targets)
    decode(targets)
    inspect(targets)
    backward(targets)
    training(targets)
    calls(targets)
    shapes(targets, found_shapes)
    memory(targets, threads)
    against_competitors(targets)
    return targets.found
