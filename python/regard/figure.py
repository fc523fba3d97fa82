# SPDX-License-Identifier: Apache-2.0
"""Weights as a figure in a notebook: regard.show(weights, tokens), for arrays of any library, or lists.

    (L, S)       one map, queries down, keys across; with its numbers where they fit
    (H, L, S)    one small map a head, each on its own largest weight, which is printed; so is a batch of one

Nothing is fetched and no script is needed: a number tells its words and all its digits where the pointer rests on it.
Outside of a notebook the same is a table of text. Read next: docs/python.md.
"""

from __future__ import annotations

import base64
import html
import itertools
import math
import struct
import zlib

TYPE_CHECKING = False  # typing itself is not loaded
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MOST_NUMBERED = 24  # rows and columns whose numbers are printed: a cell is 2.6em wide, and a page 60em
_MOST_CELLS = 128    # rows and columns of a map that is drawn; beyond, a cell is the mean of a block
_MOST_NUMBERS = 1 << 23
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # characters that turn the direction of text

_STYLE = """<style>
.regard-figure { font: 14px/1.35 Palatino, "Book Antiqua", Georgia, "DejaVu Serif", serif;
  font-variant-numeric: tabular-nums lining-nums; margin: .5em 0; overflow-x: auto; --regard-map: light-dark(#0b4f8f, #8cc4fa); }
.regard-figure table { border-collapse: separate; border-spacing: 1px; width: auto; margin: 0; font-size: inherit; }
.regard-figure th { font-weight: normal; padding: .1em .4em; text-align: right; white-space: pre; background: none;
  border: 0; color: inherit; }
.regard-figure thead th { text-align: center; max-width: 8em; overflow: hidden; text-overflow: ellipsis; }
.regard-figure table tbody tr:nth-child(n) { background: none; }
.regard-figure td { min-width: 2.6em; padding: .2em .3em; text-align: right; border: 0; color: inherit;
  background: color-mix(in srgb, var(--regard-map) calc(var(--share) * 55%), transparent); }
.regard-figure .regard-heads { display: flex; flex-wrap: wrap; gap: 1em; }
.regard-figure figure { margin: 0; }
.regard-figure figure > :first-child { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
.regard-figure .regard-map { background: var(--regard-map); mask-size: 100% 100%; image-rendering: pixelated; }
.regard-figure figcaption, .regard-figure .regard-note { opacity: .75; font-size: .9em; margin: .3em 0; }
</style>"""


def show(weights: Any, tokens: Sequence[object] | None = None, *, queries: Sequence[object] | None = None,
         title: str | None = None) -> Figure:
    """A figure of attention weights, for the last line of a notebook's cell.

    weights: an array (L, S), (H, L, S) or (1, H, L, S) of NumPy, PyTorch, JAX or anything with the buffer protocol, DLPack
    or __array_interface__, or lists of them or of numbers; of a larger batch choose one: weights[0].
    tokens: a word for each key, and for each query where L = S; queries: words for the queries. ValueError where they
    are not as many, where weights has another number of axes, and beyond 8 million numbers; TypeError for what are no
    numbers.
    """
    given, weights = weights, _array(weights)
    if not isinstance(weights, (list, tuple)) and not hasattr(weights, "tolist"):
        raise TypeError(f"show: weights is of type {type(given).__name__}; expected an array (L, S) or (H, L, S), or lists")
    numbers = _listed(weights)
    # An array without rows still has columns.
    axes = list(weights.shape) if hasattr(weights, "shape") and hasattr(weights, "tolist") else _axes(numbers)
    if len(axes) == 4 and axes[0] == 1:
        numbers, axes = numbers[0], axes[1:]
    if len(axes) not in (2, 3):
        one = "weights[0]" if weights is given else "numpy.asarray(weights)[0]"
        raise ValueError(f"show: weights has {len(axes)} {'axis' if len(axes) == 1 else 'axes'}; expected (L, S) or (H, L, S)"
                         + (f"; choose one of the batch: {one}" if len(axes) == 4 else ""))
    shape = tuple(axes)
    if len(axes) == 2:
        numbers, axes = [numbers], [1, *axes]
    if math.prod(axes) > _MOST_NUMBERS:
        raise ValueError(f"show: weights has {math.prod(axes)} numbers; expected at most {_MOST_NUMBERS}: choose heads, or "
                         "show the coarse_map of attention_columns")
    numbers = [[_floats(row) for row in head] for head in numbers]
    keys = _named("tokens", tokens, axes[2], shape, "keys")
    if queries is None and axes[1] == axes[2]:
        return Figure(numbers, keys, keys, title)
    return Figure(numbers, _named("queries", queries, axes[1], shape, "queries"), keys, title)


def _named(name: str, given: Sequence[object] | None, count: int, shape: tuple[int, ...], what: str) -> list[str]:
    if given is None:
        return list(map(str, range(count)))
    if not hasattr(given, "__iter__"):
        raise TypeError(f"show: {name} is of type {type(given).__name__}; expected a sequence of words")
    words = list(map(str, given))
    if len(words) != count:
        raise ValueError(f"show: {name} has {len(words)} {'word' if len(words) == 1 else 'words'}; expected {count}, as "
                         f"weights {shape} has {what}")
    return words


def _array(given: Any) -> Any:
    """Of what is an array without tolist() and no list: the same of NumPy."""
    if isinstance(given, (list, tuple, float, int, str, bytes)) or hasattr(given, "tolist") and type(given) is not memoryview:
        return given
    import numpy  # few need it

    try:
        array = numpy.asarray(given)
        if array.dtype == object and hasattr(given, "__dlpack__"):
            array = numpy.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"show: weights is of type {type(given).__name__}, which NumPy does not read: {error}") from error
    return given if array.dtype == object else array


def _listed(given: Any) -> Any:
    """Lists of lists, of an array or of lists of arrays."""
    given = _array(given)
    if hasattr(given, "tolist"):
        return given.tolist()
    return list(map(_listed, given)) if isinstance(given, (list, tuple)) else given


def _floats(row: list[Any]) -> list[float]:
    if all(type(one) is float for one in row):
        return row
    for one in row:
        if isinstance(one, (str, bytes)) or not hasattr(one, "__float__"):
            raise TypeError(f"show: weights holds {one!r}, of type {type(one).__name__}; expected numbers")
    return list(map(float, row))


def _axes(numbers: Any) -> list[int]:
    axes: list[int] = []
    while isinstance(numbers, (list, tuple)):
        axes.append(len(numbers))
        if not numbers:
            break
        if any(not isinstance(one, (list, tuple)) or len(one) != len(numbers[0]) for one in numbers[1:]
               if isinstance(numbers[0], (list, tuple))):
            raise ValueError("show: weights is ragged; expected rows of one length")
        numbers = numbers[0]
    return axes


def _short(weight: float) -> str:
    """.71, 1.00, <.01; what is exactly 0 stays 0."""
    if not math.isfinite(weight):
        return str(weight)
    if weight == 0:
        return "0"
    if abs(weight) >= 1e6:
        return f"{weight:.2e}"
    if 0 < weight < 0.005:
        return "<.01"
    return f"{weight:.2f}".replace("0.", ".", 1) if abs(weight) < 0.995 else f"{weight:.2f}"


def _visible(text: str) -> str:
    """Control characters and those that turn the direction of text, as \\u{…}."""
    def turns(character: str) -> bool:
        return not character.isprintable() or character in _TURNING

    return "".join(f"\\u{{{ord(character):X}}}" if turns(character) else character for character in text)


def _blocks(rows: list[list[float]]) -> list[list[float]]:
    """Means of blocks, at most _MOST_CELLS each way."""
    def edges(extent: int) -> list[int]:
        count = min(extent, _MOST_CELLS)
        return [index * extent // count for index in range(count + 1)] if count else [0]

    means, lefts = [], edges(len(rows[0]) if rows else 0)
    for top, bottom in itertools.pairwise(edges(len(rows))):
        sums = [sum(column) for column in zip(*rows[top:bottom])]
        means.append([sum(sums[left:right]) / ((right - left) * (bottom - top))
                      for left, right in itertools.pairwise(lefts)])
    return means


def _png(width: int, height: int, lines: bytes) -> bytes:
    """A picture of grey and alpha, from its lines, each with its filter's number in front."""
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", max(width, 1), max(height, 1), 8, 4, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


class Figure:
    """What show() returns: HTML in a notebook, text elsewhere."""

    def __init__(self, heads: Any, queries: list[str], keys: list[str], title: str | None,
                 axes: tuple[str, str] = ("query", "key")) -> None:
        self._heads = heads
        self._queries = [_visible(word) for word in queries]
        self._keys = [_visible(word) for word in keys]
        self._axes = axes
        self._title = None if title is None else _visible(str(title))

    def _numbered(self) -> bool:
        return len(self._heads) == 1 and len(self._queries) <= _MOST_NUMBERED and len(self._keys) <= _MOST_NUMBERED

    def _note(self) -> str:
        def even(sums: list[float]) -> bool:
            return any(sums) and all(abs(one - 1) < 1e-3 or one == 0 for one in sums)

        plural = [{"query": "queries"}.get(name, f"{name}s") for name in self._axes]
        note = f"{plural[0]} down, {plural[1]} across"
        if even([sum(row) for head in self._heads for row in head]):
            return note + "; a row sums to 1"
        return note + "; a column sums to 1" * even([sum(column) for head in self._heads for column in zip(*head)])

    def _map(self, head: list[list[float]], size: int) -> tuple[str, float, tuple[int, int]]:
        """The map as a picture of transparencies, through which the page's colour shows; its largest; its extents."""
        means = _blocks(head)
        largest = max((one for row in means for one in row if math.isfinite(one)), default=0) or 1
        rows, columns = len(means), len(means[0]) if means else 0
        cell = max(1, size // max(rows, columns, 1))
        lines = (bytes([0]) + b"".join(bytes([0, round(255 * min(max(one / largest, 0), 1)) if math.isfinite(one) else 255])
                                       for one in row) for row in means)
        picture = base64.b64encode(_png(columns, rows, b"".join(lines))).decode()
        return (f'<div class="regard-map" role="img" aria-label="map of weights" style="width: {columns * cell}px; height: '
                f'{rows * cell}px; mask-image: url(data:image/png;base64,{picture})"></div>'), largest, (rows, columns)

    def _table(self) -> str:
        def word(text: str) -> str:
            return f"<bdi>{html.escape(text)}</bdi>"

        lines = ["<table><thead><tr><th></th>", *(f'<th scope="col">{word(key)}</th>' for key in self._keys),
                 "</tr></thead><tbody>"]
        for query, row in zip(self._queries, self._heads[0]):
            lines.append(f'<tr><th scope="row">{word(query)}</th>')
            for key, weight in zip(self._keys, row):
                share = min(max(weight, 0), 1) if math.isfinite(weight) else 0
                lines.append(f'<td style="--share: {share:.3f}" title="{html.escape(f"{query} → {key}: {weight:.6g}")}">'
                             f"{html.escape(_short(weight))}</td>")
            lines.append("</tr>")
        return "".join([*lines, "</tbody></table>"])

    def _repr_html_(self) -> str:
        return f'{_STYLE}<div class="regard-figure">{self.body()}</div>'

    def body(self) -> str:
        """The figure without its style."""
        title = "" if self._title is None else f"<p><em>{html.escape(self._title)}</em></p>"
        if self._numbered():
            return f'{title}{self._table()}<p class="regard-note">{self._note()}</p>'
        figures, note, rows, columns = [], self._note(), 0, 0
        for index, head in enumerate(self._heads):
            drawn, largest, (rows, columns) = self._map(head, 480 if len(self._heads) == 1 else 150)
            name = "" if len(self._heads) == 1 else f"head {index}, "
            figures.append(f"<figure>{drawn}<figcaption>{name}darkest: {largest:.3g}</figcaption></figure>")
        if 0 < rows < len(self._queries) or 0 < columns < len(self._keys):
            note += (f"; a cell is the mean of a block, {rows} × {columns} cells of {len(self._queries)} × "
                     f"{len(self._keys)} weights")
        return f'{title}<div class="regard-heads">{"".join(figures)}</div><p class="regard-note">{note}</p>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        lines = [] if self._title is None else [self._title]
        if not self._numbered():
            heads = f"{len(self._heads)} heads of " if len(self._heads) > 1 else ""
            return "\n".join([*lines, f"attention weights, {heads}{len(self._queries)} queries × {len(self._keys)} keys"])
        left = max(map(len, self._queries), default=0)
        widths = [max(len(key), 4) for key in self._keys]
        lines.append(" " * left + "".join(f"  {key:>{width}}" for key, width in zip(self._keys, widths)))
        for query, row in zip(self._queries, self._heads[0]):
            lines.append(f"{query:>{left}}" + "".join(f"  {_short(one):>{width}}" for one, width in zip(row, widths)))
        return "\n".join([*lines, f"({self._note()})"])
