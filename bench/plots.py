# SPDX-License-Identifier: Apache-2.0
"""Three plots of a run, written as SVG: plots(run) yields (name, caption, text of the file).

    share        share of the peak as a function of S, by head size and mask, for Regard and competitors
    competitors  time of each competitor relative to Regard, for each workload
    decode       share of the read bandwidth, for each cache and competitor

Each library has one color; lines are labeled directly. Read next: report.py."""

import html
import itertools
import math

INK, PALE, GRID = "#222222", "#666666", "#dddddd"
COLORS = {"regard": "#b5442e", "torch": "#2f6f9f", "onnxruntime": "#5b8f3a", "onnxruntime own": "#2f5f1a",
           "ggml": "#8a6bb0", "numpy": "#8a8a8a"}
NAMES = {"regard": "Regard", "torch": "PyTorch", "onnxruntime": "ONNX Runtime", "onnxruntime own": "ONNX Runtime (own)",
         "ggml": "ggml", "numpy": "NumPy"}
WIDTH = 740


class Picture:
    def __init__(self, height, title):
        self.height, self.title, self.marks = height, title, []

    def text(self, x, y, words, color=INK, anchor="start", size=13):
        self.marks.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}" font-size="{size}" '
                          f'paint-order="stroke" stroke="#ffffff" stroke-width="3">'
                          f"{html.escape(words)}</text>")

    def line(self, points, color, width=1.0, dashes=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.marks.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"{dashes}/>')

    def dot(self, x, y, color, radius=4.5):
        self.marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}"/>')

    def bar(self, x, y, width, height, color):
        self.marks.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height}" fill="{color}"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img" '
                f'font-family="DejaVu Serif, Georgia, serif">\n<title>{html.escape(self.title)}</title>\n'
                f'<rect width="{WIDTH}" height="{self.height}" fill="#ffffff"/>\n' + "\n".join(self.marks) + "\n</svg>\n")


def spread_labels(labels, highest=0.0, gap=16.0):
    """[(y, …)] moved apart, in order, to distances of at least gap, none above highest."""
    placed = []
    for y, *rest in sorted(labels, key=lambda label: label[0]):
        placed.append((max(y, placed[-1][0] + gap if placed else highest), *rest))
    return placed


def lowest_beyond(lines, begin):
    """The largest y to the right of begin of lines [(x, y), …] that continue there; 0 if none does."""
    lowest = 0.0
    for line in lines:
        for (x0, y0), (x1, y1) in itertools.pairwise(line):
            if x1 > begin:
                lowest = max(lowest, y1, y0 + (y1 - y0) * max(begin - x0, 0) / (x1 - x0))
    return lowest


def figures(run, row, begin):
    for case in run["cases"]:
        if case["row"] == row and case["case"].startswith(begin):
            return {figure["name"]: figure for figure in case["figures"]}
    return {}


def share(run):
    lines = {}
    for depth in (64, 128):
        for length in (1024, 4096, 16384):
            found = figures(run, "long" if length > 4096 else "prefill", f"S {length}, D {depth}")
            for name, figure in found.items():
                base = name.removesuffix(" causal")
                if "share" in figure and base in ("regard", "torch", "onnxruntime own") and (depth == 64 or name == base):
                    label = f"{NAMES[base]}, D {depth}" + (", causal" if name != base else "")
                    lines.setdefault((label, base, name != base), []).append((length, figure["share"]))
    if not lines:
        return None
    picture = Picture(440, "Share of the multiply-add peak by S")
    left, right, top, bottom = 56, 540, 48, 390
    x = lambda length: left + (math.log2(length) - 10) / 4 * (right - left)
    y = lambda value: bottom - value * (bottom - top)
    picture.text(left - 40, 26, "Share of the multiply-add peak, f32, 8 heads; only visible pairs count")
    for tenths in range(0, 11, 2):
        picture.line([(left, y(tenths / 10)), (right, y(tenths / 10))], GRID)
        picture.text(left - 8, y(tenths / 10) + 4, f"{tenths / 10:.1f}", PALE, "end", 12)
    for length in (1024, 2048, 4096, 8192, 16384):
        picture.text(x(length), bottom + 20, str(length), PALE, "middle", 12)
    picture.text((left + right) / 2, bottom + 40, "S = L: number of queries and keys", PALE, "middle", 12)
    labels, drawn = {}, []
    for (label, base, causal), points in sorted(lines.items(), key=lambda line: line[0][1] == "regard"):  # Regard on top
        drawn.append([(x(s), y(v)) for s, v in points])
        dashes = "5 4" if causal else ""
        picture.line(drawn[-1], COLORS[base], 2.5 if base == "regard" else 1.5, dashes)
        for s, v in points:
            picture.dot(x(s), y(v), COLORS[base], 4 if base == "regard" else 3)
        labels.setdefault(x(points[-1][0]), []).append((y(points[-1][1]), label, COLORS[base]))
    for end, ends in labels.items():
        below = lowest_beyond(drawn, end + 1)  # keeps labels clear of lines that continue
        for place, before, label, color in spread_labels([(at, at, *rest) for at, *rest in ends], below and below + 16):
            picture.line([(end + 6, before), (end + 22, place)], color, 0.7)
            picture.text(end + 26, place + 4, label, color, size=12)
    return picture.svg()


WORKS = (("prefill", "S 4096, D 64", "", "full, S 4096, D 64"), ("prefill", "S 4096, D 128", "", "full, S 4096, D 128"),
         ("prefill", "S 4096, D 64", " causal", "causal, S 4096, D 64"),
         ("prefill", "S 4096, D 128", " causal", "causal, S 4096, D 128"), ("short", "S 128", "", "S 128, 64 heads"),
         ("varlen", "", "", "packed sequences, full"), ("window", "", "", "window of 512"),
         ("bf16", "S 4096, D 64", "", "bf16, S 4096, D 64"), ("decode", "32 heads, 32", "", "decode, S 8192"),
         ("decode", "32 heads, 8 ", "", "decode, 4 heads per KV head"))


def competitors(run):
    rows = []
    for row, begin, suffix, label in WORKS:
        found = figures(run, row, begin)
        times = {name: found[name + suffix]["ours"]["median"] for name in COLORS
                 if name != "regard" and "ours" in found.get(name + suffix, {})}
        if times:
            rows.append((label, times))
    if not rows:
        return None
    left, right, top, step = 216, 690, 84, 34
    picture = Picture(top + step * len(rows) + 44, "Time relative to Regard")
    widest = max(2.0, max(max(times.values()) for _, times in rows))
    narrowest = min(0.9, min(min(times.values()) for _, times in rows))
    scale = (right - left) / math.log(widest / narrowest)
    x = lambda value: left + math.log(value / narrowest) * scale
    bottom = top + step * len(rows)
    picture.text(16, 26, "Time relative to Regard for the same work (logarithmic; right of 1: slower than Regard)")
    along = 16
    for name in COLORS:
        if name == "regard" or any(name in times for _, times in rows):
            picture.dot(along + 5, 47, COLORS[name])
            picture.text(along + 14, 51, NAMES[name], COLORS[name], size=12)
            along += 36 + 7.4 * len(NAMES[name])
    for value in (0.5, 1, 2, 3, 5, 10, 20):
        if narrowest <= value <= widest:
            picture.line([(x(value), top - 14), (x(value), bottom)], COLORS["regard"] if value == 1 else GRID,
                         1.5 if value == 1 else 1)
            picture.text(x(value), bottom + 20, f"{value:g}×", PALE, "middle", 12)
    for index, (label, times) in enumerate(rows):
        y = top + step * index + 8
        picture.text(left - 14, y + 4, label, anchor="end")
        picture.line([(x(min(1, *times.values())), y), (x(max(times.values())), y)], GRID, 2)
        picture.dot(x(1), y, COLORS["regard"])
        for name, value in times.items():
            picture.dot(x(value), y, COLORS[name])
    return picture.svg()


def decode(run):
    found = figures(run, "decode", "32 heads, 32")
    rows = [(name, figure) for name, figure in found.items() if "share" in figure and name != "read"]
    if not rows:
        return None
    left, right, top, step = 216, 650, 56, 26
    picture = Picture(top + step * len(rows) + 44, "Decoding: share of the read bandwidth")
    bottom = top + step * len(rows)
    most = max(1.0, *(figure["share"] for _, figure in rows))
    x = lambda value: left + value / most * (right - left)
    read = found["read"]["median"]
    picture.text(16, 26, f"One query, 32 heads, S 8192, D 128: share of the read bandwidth of {read:.1f} GB/s")
    for tenths in range(0, int(most * 10) + 1, 2):
        picture.line([(x(tenths / 10), top - 8), (x(tenths / 10), bottom)], GRID)
        picture.text(x(tenths / 10), bottom + 18, f"{tenths / 10:.1f}", PALE, "middle", 12)
    for index, (name, figure) in enumerate(rows):
        kind = "regard" if name.startswith("regard") else name.removesuffix(" bf16")
        label = NAMES[kind] if kind != "regard" else "Regard, " + name.removeprefix("regard ")
        y = top + step * index
        picture.text(left - 10, y + 13, label + (", bf16" if kind != "regard" and name.endswith("bf16") else ""), anchor="end",
                     size=12)
        picture.bar(left, y + 2, x(figure["share"]) - left, 15, COLORS[kind])
        picture.text(x(figure["share"]) + 6, y + 14, f"{figure['median']:.1f} GB/s", PALE, size=11)
    picture.line([(x(1), top - 8), (x(1), bottom)], INK, 1.2, "4 3")
    return picture.svg()


def plots(run):
    for name, words, draw in (("share", "Share of the multiply-add peak by S", share), ("competitors", "Time relative to Regard", competitors),
                              ("decode", "Decoding: share of the read bandwidth", decode)):
        text = draw(run)
        if text:
            yield name, words, text
