# SPDX-License-Identifier: Apache-2.0
"""Weights as a figure in a notebook: regard.show(weights, tokens), for arrays of any library, or lists.

    (L, S)               one map, with queries down and keys across, and with its values if they fit
    (H, L, S)            one map per head; (1, H, L, S), a batch with one entry, is treated in the same way
    (layers, H, L, S)    a grid, with layers down and heads across; also for the tuple `attentions` of Transformers

A figure makes no network requests and needs no script. The tooltip of a cell contains its words and its weight. In a
figure with very many cells, the tooltip of a row contains its largest weights. Outside a notebook, a figure is a text
table. Read next: docs/guide/python.md.
"""

from __future__ import annotations

import base64
import heapq
import html
import itertools
import math
import struct
import zlib

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

_MAX_NUMBERED = 24  # maximum rows and columns of a table of numbers: a cell is 2.8em wide, and a page 60em
_MAX_CELLS = 128    # maximum rows and columns of a map; in larger maps, each cell is the mean of a block
_MAX_SMALL = 64     # the same limit for the maps in a grid of layers and heads
_MIN_LABELED = 10   # minimum size of a cell in pixels at which its label is readable
_MAX_CELL_TITLES = 8000  # maximum number of cells with tooltips, which add at most 0.5 MB to a saved notebook
_MAX_ROW_TITLES = 4000   # maximum number of rows with tooltips, if there are too many cells
_MAX_NUMBERS = 1 << 23   # maximum number of weights
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # bidirectional control characters

_STYLE = """<style>
.regard-figure { font: 14px/1.35 Palatino, "Book Antiqua", Georgia, "DejaVu Serif", serif;
  font-variant-numeric: tabular-nums lining-nums; margin: .5em 0; overflow-x: auto; --regard-map: light-dark(#0b4f8f, #8cc4fa);
  --regard-rule: color-mix(in srgb, currentColor 25%, transparent); }
.regard-figure table { border-collapse: separate; border-spacing: 1px; width: auto; margin: 0; font-size: inherit; }
.regard-figure th { font-weight: normal; padding: .1em .4em; text-align: right; white-space: pre; background: none;
  border: 0; color: inherit; }
.regard-figure thead th { text-align: center; max-width: 8em; overflow: hidden; text-overflow: ellipsis; }
.regard-figure table tbody tr:nth-child(n) { background: none; }
.regard-figure td { min-width: 2.8em; padding: .2em .3em; text-align: right; border: 0; color: inherit;
  background: color-mix(in srgb, var(--regard-map) calc(var(--share) * 55%), transparent); }
.regard-figure .regard-zero { opacity: .45; text-align: center; }
.regard-figure .regard-heads { display: flex; flex-wrap: wrap; gap: 1em; align-items: end; }
.regard-figure .regard-layers { display: grid; gap: .3em .4em; align-items: center; justify-content: start; }
.regard-figure .regard-layers span { white-space: nowrap; font-size: .9em; }
.regard-figure figure { margin: 0; }
.regard-figure .regard-labeled { display: grid; grid-template-columns: auto auto; justify-content: start; }
.regard-figure .regard-keys, .regard-figure .regard-queries { display: grid; font-size: var(--label); line-height: 1; }
.regard-figure .regard-keys { grid-auto-flow: column; grid-auto-columns: var(--cell); align-items: end; margin: 0 1px .3em; }
.regard-figure .regard-keys bdi { writing-mode: vertical-rl; transform: rotate(180deg); width: var(--cell);
  line-height: var(--cell); max-height: 9em; }
.regard-figure .regard-queries { grid-auto-rows: var(--cell); text-align: right; margin: 1px .3em; }
.regard-figure .regard-queries bdi { line-height: var(--cell); max-width: 9em; }
.regard-figure .regard-keys bdi, .regard-figure .regard-queries bdi { white-space: pre; overflow: hidden;
  text-overflow: ellipsis; }
.regard-figure .regard-frame { border: 1px solid var(--regard-rule); width: fit-content; }
.regard-figure .regard-map { background: var(--regard-map); mask-size: 100% 100%; image-rendering: pixelated; display: grid; }
.regard-figure .regard-ramp { display: inline-block; width: 8em; height: .8em; vertical-align: middle; margin: 0 .4em;
  background: linear-gradient(to right, transparent, var(--regard-map)); border: 1px solid var(--regard-rule); }
.regard-figure .regard-ramp.regard-numbered { background: linear-gradient(to right, transparent,
  color-mix(in srgb, var(--regard-map) 55%, transparent)); }
.regard-figure figcaption, .regard-figure .regard-note { opacity: .75; font-size: .9em; margin: .3em 0; }
</style>"""


def show(weights: Any, tokens: Sequence[object] | None = None, *, queries: Sequence[object] | None = None,
         title: str | None = None, color_scale: Literal["head", "shared"] = "head") -> Figure:
    """Show attention weights as a figure: a map in a notebook, text elsewhere.

    Parameters
    ----------
    weights : array or nested sequence, shape (L, S), (H, L, S), (1, H, L, S) or (layers, H, L, S)
        A NumPy, PyTorch or JAX array, any object that supports the buffer protocol, DLPack or ``__array_interface__``,
        or a sequence of arrays or numbers, such as the tuple of (1, H, L, S) arrays that Transformers models return as
        ``attentions``. From a larger batch, select one entry. There may be at most 8 million weights.
    tokens : sequence, optional
        A word for each key, and for each query if L = S.
    queries : sequence, optional
        A word for each query.
    title : str, optional
        The title of the figure.
    color_scale : {'head', 'shared'}, default 'head'
        Whether the darkest color of a map represents the largest weight of that map, or the largest weight of all maps,
        so that heads can be compared.

    Returns
    -------
    Figure
        An object that a notebook displays if it is the value of the last line of a cell.

    Raises
    ------
    ValueError
        If the number of words or of axes does not match, or there are too many weights.
    TypeError
        If an element is not a number.

    Examples
    --------
    >>> import regard
    >>> regard.show([[1.0, 0.0], [0.25, 0.75]], ["I", "love"])
              I   love
       I   1.00      ·
    love   0.25   0.75
    (queries down, keys across; each row sums to 1; · is exactly 0)
    """
    given, weights = weights, _array(weights)
    if not isinstance(weights, (list, tuple)) and not hasattr(weights, "tolist"):
        raise TypeError(f"show: weights is of type {type(given).__name__}; expected an array (L, S) or (H, L, S), or lists")
    if color_scale not in ("head", "shared"):
        raise ValueError(f"show: color_scale is {color_scale!r}; expected 'head' or 'shared'")
    numbers = _listed(weights)
    # An array without rows still has columns.
    axes = list(weights.shape) if hasattr(weights, "shape") and hasattr(weights, "tolist") else _axes(numbers)
    shape = tuple(axes)
    if len(axes) == 5:  # layers of a batch
        if axes[1] != 1:
            raise ValueError(f"show: weights {shape} has a batch of {axes[1]}; choose one entry: "
                             "[layer[0] for layer in weights]")
        numbers, axes = [layer[0] for layer in numbers], [axes[0], *axes[2:]]
    elif len(axes) == 4 and axes[0] == 1:
        numbers, axes = numbers[0], axes[1:]
    if len(axes) not in (2, 3, 4):
        raise ValueError(f"show: weights has {len(axes)} {'axis' if len(axes) == 1 else 'axes'}; expected (L, S), (H, L, S) "
                         "or (layers, H, L, S)")
    if math.prod(axes) > _MAX_NUMBERS:
        raise ValueError(f"show: weights has {math.prod(axes)} numbers; expected at most {_MAX_NUMBERS}: choose heads, or "
                         "show the pooled_map of attention_columns")
    layers = axes[0] if len(axes) == 4 else None
    if layers is not None:
        numbers = [head for layer in numbers for head in layer]
    elif len(axes) == 2:
        numbers = [numbers]
    length, width = axes[-2:]
    numbers = [[_floats(row) for row in head] for head in numbers]
    keys = _named("tokens", tokens, width, shape, "keys")
    same = queries is None and length == width
    return Figure(numbers, keys if same else _named("queries", queries, length, shape, "queries"), keys, title,
                  layers=layers, color_scale=color_scale)


def _named(name: str, given: Sequence[object] | None, count: int, shape: tuple[int, ...], what: str) -> list[str]:
    if given is None:
        return list(map(str, range(count)))
    if not hasattr(given, "__iter__"):
        raise TypeError(f"show: {name} is of type {type(given).__name__}; expected a sequence of words")
    words = list(map(str, given))
    if len(words) != count:
        raise ValueError(f"show: {name} has {len(words)} {'word' if len(words) == 1 else 'words'}; expected {count}, the "
                         f"number of {what} in weights {shape}")
    return words


def _array(given: Any) -> Any:
    """Converts an array without tolist() to NumPy; returns all other objects unchanged."""
    if isinstance(given, (list, tuple, float, int, str, bytes)) or hasattr(given, "tolist") and type(given) is not memoryview:
        return given
    import numpy  # rarely needed

    try:
        array = numpy.asarray(given)
        if array.dtype == object and hasattr(given, "__dlpack__"):
            array = numpy.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"show: weights is of type {type(given).__name__}, which NumPy cannot read: {error}") from error
    return given if array.dtype == object else array


def _listed(given: Any) -> Any:
    """Converts an array, or lists of arrays, to nested lists."""
    given = _array(given)
    if hasattr(given, "tolist"):
        return given.tolist()
    return list(map(_listed, given)) if isinstance(given, (list, tuple)) else given


def _floats(row: list[Any]) -> list[float]:
    if all(type(one) is float for one in row):
        return row
    for one in row:
        if isinstance(one, (str, bytes)) or not hasattr(one, "__float__"):
            raise TypeError(f"show: weights contains {one!r}, of type {type(one).__name__}; expected numbers")
    return list(map(float, row))


def _axes(numbers: Any) -> list[int]:
    if not isinstance(numbers, (list, tuple)):
        return []
    if not numbers or not isinstance(numbers[0], (list, tuple)):
        return [len(numbers)]
    inner = [_axes(one) for one in numbers]
    if any(one != inner[0] for one in inner):
        raise ValueError("show: weights is ragged; expected rows of equal length, and the same number of rows in each head "
                         "and layer")
    return [len(numbers), *inner[0]]


def _signed(text: str) -> str:
    return text.replace("-", "\u2212")


def _short(weight: float) -> str:
    """A weight with two decimal places: 0.71, 1.00, <0.01. A weight of exactly 0 is shown as a dot."""
    if not math.isfinite(weight):
        return _signed(str(weight))
    if weight == 0:
        return "\u00b7"
    if abs(weight) >= 1e6:
        return _signed(f"{weight:.2e}")
    if abs(weight) < 0.005:
        return "<0.01" if weight > 0 else ">\u22120.01"
    return _signed(f"{weight:.2f}")


def _exact(weight: float) -> str:
    return _signed(f"{weight:.4g}")


def _visible(text: str) -> str:
    """The text, with control characters and bidirectional characters written as \\u{…}."""
    def turns(character: str) -> bool:
        return not character.isprintable() or character in _TURNING

    return "".join(f"\\u{{{ord(character):X}}}" if turns(character) else character for character in text)


def _edges(extent: int, most: int) -> list[int]:
    """The boundaries of at most `most` blocks."""
    count = min(extent, most)
    return [index * extent // count for index in range(count + 1)] if count else [0]


def _blocks(rows: list[list[float]], most: int) -> list[list[float]]:
    """The means of the blocks of a matrix, with at most `most` blocks in each direction."""
    means, lefts = [], _edges(len(rows[0]) if rows else 0, most)
    for top, bottom in itertools.pairwise(_edges(len(rows), most)):
        sums = [sum(column) for column in zip(*rows[top:bottom])]
        means.append([sum(sums[left:right]) / ((right - left) * (bottom - top))
                      for left, right in itertools.pairwise(lefts)])
    return means


def _png(width: int, height: int, lines: bytes) -> bytes:
    """A grayscale PNG image with alpha. Each line of pixels in `lines` is preceded by its filter type."""
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", max(width, 1), max(height, 1), 8, 4, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def _largest(rows: list[list[float]]) -> float:
    return max((one for row in rows for one in row if math.isfinite(one)), default=0)


def _word(text: str, limit: int | None = None) -> str:
    """A word given by the caller; if it has more than `limit` characters, its tooltip contains the full text."""
    title = f' title="{html.escape(text)}"' if limit is not None and len(text) > limit else ""
    return f"<bdi{title}>{html.escape(text)}</bdi>"


class Figure:
    """The result of show(): HTML in a notebook, text elsewhere."""

    def __init__(self, heads: Any, queries: list[str], keys: list[str], title: str | None,
                 axes: tuple[str, str] = ("query", "key"), *, layers: int | None = None, color_scale: str = "head") -> None:
        self._heads = heads
        self._layers = layers
        self._shared = color_scale == "shared"
        self._queries = [_visible(word) for word in queries]
        self._keys = [_visible(word) for word in keys]
        self._axes = axes
        self._title = None if title is None else _visible(str(title))

    def _numbered(self) -> bool:
        return len(self._heads) == 1 and len(self._queries) <= _MAX_NUMBERED and len(self._keys) <= _MAX_NUMBERED

    def _note(self) -> str:
        def even(sums: list[float]) -> bool:
            return any(sums) and all(abs(one - 1) < 1e-3 or one == 0 for one in sums)

        plural = [{"query": "queries"}.get(name, f"{name}s") for name in self._axes]
        note = f"{plural[0]} down, {plural[1]} across"
        if even([sum(row) for head in self._heads for row in head]):
            note += "; each row sums to 1"
        elif even([sum(column) for head in self._heads for column in zip(*head)]):
            note += "; a column sums to 1"
        zeros = self._numbered() and any(one == 0 for row in self._heads[0] for one in row)
        return note + "; \u00b7 is exactly 0" * zeros

    def _pair(self, query: int, key: int, weight: float) -> str:
        return f"{self._queries[query]} \u2192 {self._keys[key]} {_exact(weight)}"

    def _row_title(self, head: list[list[float]], top: int, bottom: int) -> str:
        """The three largest weights of a row or, for a block of rows, the three largest row maxima."""
        if not self._keys:
            return ""
        if bottom - top == 1:
            row = head[top]
            keys = heapq.nlargest(3, range(len(row)), key=row.__getitem__)
            best = [(row[key], top, key) for key in keys if row[key] != 0 or key == keys[0]]
        else:
            largest = [(max(row), top + index, row) for index, row in enumerate(head[top:bottom])]
            best = [(weight, query, row.index(weight))
                    for weight, query, row in heapq.nlargest(3, largest, key=lambda one: one[0])]
        return ", ".join(self._pair(query, key, weight) for weight, query, key in best)

    def _titles(self, head: list[list[float]], rows: int, columns: int, most: int) -> str:
        """Elements with tooltips that cover the cells of a map or, if these are too many, its rows."""
        cells, maps = rows * columns, len(self._heads)
        if rows == len(head) and columns == len(self._keys) and cells * maps <= _MAX_CELL_TITLES:
            return "".join(f'<i title="{html.escape(self._pair(query, key, weight))}"></i>'
                           for query, row in enumerate(head) for key, weight in enumerate(row))
        if rows * maps > _MAX_ROW_TITLES or not cells:
            return ""
        return "".join(f'<i style="grid-column: 1/-1" title="{html.escape(self._row_title(head, top, bottom))}"></i>'
                       for top, bottom in itertools.pairwise(_edges(len(head), most)))

    def _map(self, head: list[list[float]], size: int, most: int, end: float | None) -> tuple[str, float, tuple[int, int]]:
        """The HTML of a map, the largest weight in it, and its extents.

        The map is a colored rectangle with an image as its mask: the opacity of a cell is its weight, divided by `end`
        or by the largest weight.
        """
        means = _blocks(head, most)
        largest = _largest(means)
        end = end or largest or 1
        rows, columns = len(means), len(means[0]) if means else 0
        cell = min(28, max(1, size // max(rows, columns, 1)))
        lines = (bytes([0]) + b"".join(bytes([0, round(255 * min(max(one / end, 0), 1)) if math.isfinite(one) else 255])
                                       for one in row) for row in means)
        picture = base64.b64encode(_png(columns, rows, b"".join(lines))).decode()
        about = "map of weights"
        if means and columns:
            top = max(range(len(head)), key=lambda query: max(head[query]))
            about = f"largest: {self._pair(top, head[top].index(max(head[top])), max(head[top]))}"
        about = html.escape(about)
        drawn = (f'<div class="regard-frame"><div class="regard-map" role="img" aria-label="{about}" title="{about}" style="width: {columns * cell}px; height: {rows * cell}px; grid: repeat({max(rows, 1)}, {cell}px) / '
                 f'repeat({max(columns, 1)}, {cell}px); mask-image: url(data:image/png;base64,{picture})">'
                 f"{self._titles(head, rows, columns, most)}</div></div>")
        if cell >= _MIN_LABELED and rows == len(self._queries) and columns == len(self._keys):
            keys, queries = ("".join(_word(word, 8) for word in words) for words in (self._keys, self._queries))
            drawn = (f'<div class="regard-labeled" style="--cell: {cell}px; --label: {min(cell, 13)}px"><span></span>'
                     f'<div class="regard-keys" aria-hidden="true">{keys}</div>'
                     f'<div class="regard-queries" aria-hidden="true">{queries}</div>{drawn}</div>')
        return drawn, largest, (rows, columns)

    def _table(self) -> str:
        lines = ["<table><thead><tr><th></th>", *(f'<th scope="col">{_word(key, 8)}</th>' for key in self._keys),
                 "</tr></thead><tbody>"]
        for query, row in enumerate(self._heads[0]):
            lines.append(f'<tr><th scope="row">{_word(self._queries[query])}</th>')
            for key, weight in enumerate(row):
                share = min(max(weight, 0), 1) if math.isfinite(weight) else 0
                zero = ' class="regard-zero"' if weight == 0 else ""
                lines.append(f'<td{zero} style="--share: {share:.3f}" title="{html.escape(self._pair(query, key, weight))}">'
                             f"{html.escape(_short(weight))}</td>")
            lines.append("</tr>")
        return "".join([*lines, "</tbody></table>"])

    def _repr_html_(self) -> str:
        return f'{_STYLE}<div class="regard-figure">{self.body()}</div>'

    def body(self) -> str:
        """The HTML of the figure without its style sheet."""
        title = "" if self._title is None else f"<p><em>{html.escape(self._title)}</em></p>"
        if self._numbered():
            return (f'{title}{self._table()}<p class="regard-note">0<span class="regard-ramp regard-numbered"></span>1; '
                    f"{self._note()}</p>")
        count = len(self._heads)
        most = _MAX_CELLS if self._layers is None else _MAX_SMALL
        size = 720 if count == 1 else 66 if self._layers is not None else 300 if count <= 4 else 220
        end = max((_largest(_blocks(head, most)) for head in self._heads), default=0) if self._shared else None
        figures, note, rows, columns = [], self._note(), 0, 0
        per_layer = count // self._layers if self._layers else count
        for index, head in enumerate(self._heads):
            drawn, largest, (rows, columns) = self._map(head, size, most, end)
            name = "" if count == 1 or self._layers is not None else f"head {index}, "
            under = _short(largest) if self._layers is not None else f"{name}largest {_exact(largest)}"
            figures.append(f"<figure>{drawn}<figcaption>{html.escape(under)}</figcaption></figure>")
            if self._layers is not None and index % per_layer == 0:
                figures.insert(-1, f"<span>layer {index // per_layer}</span>")
        beneath = ", printed below it" * (self._layers is not None)
        ends = f"the largest weight of each map{beneath}" if end is None else _exact(end)
        legend = f'0<span class="regard-ramp"></span>{ends}; ' if count else ""
        if 0 < rows < len(self._queries) or 0 < columns < len(self._keys):
            note += (f"; a cell is the mean of a block, {rows} \u00d7 {columns} cells of {len(self._queries)} \u00d7 "
                     f"{len(self._keys)} weights")
        if self._layers is None:
            grid = '<div class="regard-heads">'
        else:
            heads = "".join(f"<span>head {head}</span>" for head in range(per_layer))
            grid = (f'<div class="regard-layers" style="grid-template-columns: repeat({per_layer + 1}, auto)"><span></span>{heads}')
        return f'{title}{grid}{"".join(figures)}</div><p class="regard-note">{legend}{note}</p>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        lines = [] if self._title is None else [self._title]
        if not self._numbered():
            count = len(self._heads)
            heads = f"{count} heads of " if count > 1 else ""
            if self._layers is not None:
                heads = f"{self._layers} layers \u00d7 {count // max(self._layers, 1)} heads of "
            return "\n".join([*lines, f"attention weights, {heads}{len(self._queries)} queries \u00d7 {len(self._keys)} keys"])
        left = max(map(len, self._queries), default=0)
        widths = [max(len(key), 5) for key in self._keys]
        lines.append(" " * left + "".join(f"  {key:>{width}}" for key, width in zip(self._keys, widths)))
        for query, row in zip(self._queries, self._heads[0]):
            lines.append(f"{query:>{left}}" + "".join(f"  {_short(one):>{width}}" for one, width in zip(row, widths)))
        return "\n".join([*lines, f"({self._note()})"])
