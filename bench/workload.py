# SPDX-License-Identifier: Apache-2.0
"""One attention problem for all contenders: its arrays, its number of operations, and the error of a result.

    query, context (1, heads, queries, depth)      key, value (1, key_heads, keys, depth)      N(0,1), dense

Operations are 4 · depth for each visible query-key pair of each head; exponentials are not counted. Errors are measured
on rows of the first and the last head against float64, in units of u · Σ p |v|: u = 2**-24 for f32 and 2**-9 for bf16,
p are the weights. Read next: suite.py."""

import dataclasses
import functools

import numpy

UNIT = {"f32": 2.0**-24, "bf16": 2.0**-9}
SAMPLED_ROWS = 12


def to_bf16(x):
    """float32 rounded to nearest even bfloat16, as uint16."""
    bits = x.view(numpy.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(numpy.uint16)


def from_bf16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


@dataclasses.dataclass
class Workload:
    heads: int
    queries: int
    keys: int
    depth: int
    key_heads: int = 0  # 0 means the same as heads
    causal: bool = False
    window: int = -1  # visible keys to the left of a query, in addition to its own; -1 means all
    lengths: tuple = ()  # lengths of packed sequences, the same for queries and keys
    dtype: str = "f32"

    def __post_init__(self):
        self.key_heads = self.key_heads or self.heads
        random = numpy.random.default_rng(1)
        make = lambda heads, rows: random.standard_normal((1, heads, rows, self.depth), dtype=numpy.float32)
        self.query = make(self.heads, self.queries)
        self.key, self.value = make(self.key_heads, self.keys), make(self.key_heads, self.keys)
        if self.dtype == "bf16":
            self.query, self.key, self.value = map(to_bf16, (self.query, self.key, self.value))
        self.starts = numpy.concatenate([[0], numpy.cumsum(self.lengths)]).astype(numpy.int64) if self.lengths else None

    def variant(self, **changes):
        """The same arrays with another mask."""
        other = dataclasses.replace(self, **changes)
        other.query, other.key, other.value = self.query, self.key, self.value
        return other

    def new_context(self):
        return numpy.zeros(self.query.shape, self.query.dtype)

    def visible(self, row):
        """The half-open interval of keys that are visible to a query row."""
        if self.starts is not None:
            sequence = numpy.searchsorted(self.starts, row, side="right") - 1
            begin, end, position = self.starts[sequence], self.starts[sequence + 1], row
        else:
            begin, end, position = 0, self.keys, row + self.keys - self.queries
        if self.window >= 0:
            begin = max(begin, position - self.window)
        return int(begin), int(position + 1 if self.causal else end)

    @functools.cached_property
    def operations(self):
        pairs = sum(end - begin for begin, end in map(self.visible, range(self.queries)))
        return 4.0 * self.depth * self.heads * pairs

    def cache_bytes(self, element=4.0):
        return 2.0 * self.key_heads * self.keys * self.depth * element

    @functools.cached_property
    def packed_bytes(self):
        """Bytes of one packed copy of keys and values in f32."""
        panels = -(-self.keys // 32) * 32
        return 4.0 * self.key_heads * panels * (self.depth + -(-self.depth // 32) * 32)

    @functools.cached_property
    def _reference(self):
        to_float = from_bf16 if self.dtype == "bf16" else (lambda x: x)
        rows = numpy.unique(numpy.linspace(0, self.queries - 1, SAMPLED_ROWS).astype(int))
        found = []
        for head in {0, self.heads - 1}:
            group = head // (self.heads // self.key_heads)
            for row in rows:
                begin, end = self.visible(row)
                key, value = (to_float(x[0, group, begin:end]).astype(numpy.float64) for x in (self.key, self.value))
                scores = key @ to_float(self.query[0, head, row]).astype(numpy.float64) * self.depth**-0.5
                weights = numpy.exp(scores - scores.max())
                weights /= weights.sum()
                found.append((head, row, weights @ value, weights @ numpy.abs(value)))
        return found

    def error(self, context):
        """The largest error of a context (1, heads, queries, depth), in units of u · Σ p |v|."""
        to_float = from_bf16 if context.dtype == numpy.uint16 else (lambda x: x)
        return max(float((numpy.abs(to_float(context[0, head, row]) - exact) / (UNIT[self.dtype] * size)).max())
                   for head, row, exact, size in self._reference)
