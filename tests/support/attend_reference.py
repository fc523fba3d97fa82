# SPDX-License-Identifier: Apache-2.0
"""Attention in float64 from the formula, and the arrays that a page of `regard attend` contains."""

import base64
import json
import re

import numpy as np


def reference(q, k, v, *, causal=False, offset=None, window=(None, None), key_lengths=None, prefix=None,
              query_segments=None, key_segments=None, block_mask=None, block_size=None, mask=None, bias=None,
              alibi_slopes=None, sinks=None, soft_cap=None, scale=None):
    """Attention on (B, H, L, D) in float64, from the formula; offset is one number per batch entry. The result
    contains `bound`, the error bound of semantics.md in units of u."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    batch, heads, queries, depth = q.shape
    keys = k.shape[2]
    scale = 1 / np.sqrt(depth) if scale is None else scale
    scores = scale * (q @ k.swapaxes(2, 3))
    size = abs(scale) * (abs(q) @ abs(k).swapaxes(2, 3))
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    i = np.arange(queries)[:, None]
    j = np.arange(keys)[None, :]
    p = i + (np.zeros(batch, int) if offset is None else np.asarray(offset))[:, None, None, None]
    if alibi_slopes is not None:
        distance = alibi_slopes.astype(np.float64)[:, None, None] * abs(j - p)
        scores = scores - distance
        size = size + abs(distance)
    if bias is not None:
        scores = scores + bias
        size = size + abs(bias)
    visible = np.ones(scores.shape, bool)
    if causal:
        first = np.zeros(batch, int) if prefix is None else prefix
        visible &= (j <= p) | (j < first[:, None, None, None])
    if window[0] is not None:
        visible &= p - window[0] <= j
    if window[1] is not None:
        visible &= j <= p + window[1]
    if key_lengths is not None:
        visible &= j < key_lengths[:, None, None, None]
    if query_segments is not None:
        a, b = query_segments[:, None, :, None], key_segments[:, None, None, :]
        visible &= (a == b) & (a >= 0)
    if block_mask is not None:
        visible &= block_mask[..., i // block_size[0], j // block_size[1]]
    if mask is not None:
        visible &= mask
    scores = np.where(visible, scores, -np.inf)
    row_max = scores.max(axis=3, initial=-np.inf)
    if sinks is not None:
        row_max = np.maximum(row_max, sinks.astype(np.float64)[:, None])
    safe = np.where(np.isfinite(row_max), row_max, 0)
    exponentials = np.exp(scores - safe[..., None])
    row_sum = exponentials.sum(axis=3)
    sink = np.zeros_like(row_sum)
    if sinks is not None:
        sink = np.exp(sinks.astype(np.float64)[:, None] - safe)
        row_sum = row_sum + sink
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(row_sum[..., None] > 0, exponentials / row_sum[..., None], 0)
        lse = row_max + np.log(row_sum)
        sink_weights = np.where(row_sum > 0, sink / row_sum, 0)
    bound = 32 + 4 * np.sqrt(depth) * np.where(visible, size, 0).max(axis=3, initial=0)
    return {"context": weights @ v, "magnitude": weights @ abs(v), "weights": weights, "row-max": row_max,
            "row-sum": row_sum, "lse": np.where(row_sum > 0, lse, -np.inf), "sink-weights": sink_weights,
            "visible": visible, "scores": scores, "bound": bound}


def page_arrays(html):
    """The arrays that a page of attention contains, by name and with their shapes."""
    data, page = (json.loads(re.search(f'id="{name}">(.*?)</script>', html, re.DOTALL)[1]) for name in ("explanation", "page"))
    batch, heads, _, depth = data["shapes"]["query"]
    key_heads, keys = data["shapes"]["key"][1:3]
    columns = data["shapes"]["value"][3]
    rows = sum(end - begin for begin, end in page["rows"])
    shapes = {"query": (batch, heads, rows, depth), "key": (batch, key_heads, keys, depth), "value": (batch, key_heads, keys, columns),
              "context": (batch, heads, rows, columns), "sinks": (heads,)}
    shapes |= dict.fromkeys(("weights", "scores", "added"), (batch, heads, rows, keys))
    shapes |= dict.fromkeys(("row_max", "row_sum", "sink_weights"), (batch, heads, rows))
    carried = {name: np.frombuffer(base64.b64decode(page[name]), data["type"]).reshape(shape) for name, shape in shapes.items() if name in page}
    hidden = np.zeros(shapes["weights"], bool)
    if "hidden" in page:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(page["hidden"]), np.uint8), bitorder="little")
        hidden = bits[:hidden.size].reshape(hidden.shape).astype(bool)
    return carried | {"hidden": hidden}
