# SPDX-License-Identifier: Apache-2.0
"""Attention over pieces of the keys, merged afterwards: attention_partials, attention_merge, attention_merge_lse.

    attention_partials   one result per chunk of 1024 keys, before the division by row_sum; attention_merge merges these
                         results bit-exactly
    attention            one complete result per piece; attention_merge_lse merges these results

Read next: attention_operators.py.
"""

from __future__ import annotations

from . import _regard
from .calls import dtype_name, given_options, with_hints
from .named_results import AttentionPartials, result_class

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from .calls import Alignment, AnyArray, DType, Floats, Integers

    Array = TypeVar("Array")


@with_hints
def attention_partials(
    query: Array, key: AnyArray, value: AnyArray, *,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> AttentionPartials[Array]:
    """Compute partial results of :func:`attention`, one per chunk of 1024 keys, before the division by row_sum.

    Parameters
    ----------
    query : array, shape (B, H, L, D)
        As in :func:`attention`, of rank 4.
    key, value : array, shapes (B, Hkv, S, D) and (B, Hkv, S, Dv)
        All keys, or a piece whose boundaries are multiples of 1024. For a piece, pass query_offset as a number, and
        subtract the index of the first key of the piece from query_offset, prefix and key_lengths.
    causal, query_offset, window, key_lengths, query_starts, key_starts, prefix : optional
        Options that select visible keys by position and length, as in :func:`attention`.
    query_segments, key_segments, block_mask, block_size, mask, bias : optional
        Segments, masks and the bias added to the scores, as in :func:`attention`.
    alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first, weights_in_float32 : optional
        Score modifications, sinks, dropout and precision, as in :func:`attention`.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    AttentionPartials
        Results by name: accumulator and scaled_accumulator, (N, B, H, L, Dv), and row_max and row_sum, (N, B, H, L),
        for N = ⌈S / 1024⌉ chunks.

    Raises
    ------
    ValueError
        If an argument is invalid, or if sinks, dropout or packed sequences are given. The error is raised before any
        work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> random = np.random.default_rng(0)
    >>> q, k, v = (random.standard_normal((1, 1, n, 16), dtype=np.float32) for n in (5, 2100, 2100))
    >>> merged = regard.attention_merge(**regard.attention_partials(q, k, v))
    >>> bool((merged == regard.attention(q, k, v)).all())
    True
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    return AttentionPartials(_regard.attention_partials(query, key, value, **options))


@with_hints
def attention_merge(
    accumulator: AnyArray, row_max: AnyArray, row_sum: AnyArray, *, scaled_accumulator: AnyArray | None = None,
    sinks: Floats | None = None, out: AnyArray | None = None, dtype: DType | None = None, lse: AnyArray | None = None,
    sink_weights: AnyArray | None = None, return_row_max: bool = False, return_row_sum: bool = False,
    return_lse: bool = False, return_sink_weights: bool = False, num_threads: int = 0,
) -> Any:
    """Merge partial results of :func:`attention_partials` in key order.

    Parameters
    ----------
    accumulator : array, shape (N, B, H, L, Dv)
        The partial results, as returned by :func:`attention_partials`. The results of several pieces must be
        concatenated in key order.
    row_max, row_sum : array, shape (N, B, H, L)
        The softmax state of the partial results.
    scaled_accumulator : array, shape (N, B, H, L, Dv), optional
        Scaled sums of the partial results. They are read where accumulator is ±∞ or NaN.
    sinks : sequence of float, shape (H,), optional
        As in :func:`attention`.
    out : array, shape (B, H, L, Dv), optional
        The array to write the context to.
    dtype : dtype or str, optional
        The type of the context, which must be the type of accumulator.
    lse, sink_weights : array, shape (B, H, L), optional
        Arrays to write these results to.
    return_row_max, return_row_sum, return_lse, return_sink_weights : bool, default False
        Whether to return these results as well, (B, H, L), as in :func:`attention`.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    context : array, shape (B, H, L, Dv)
        The context, bit-identical to that of :func:`attention` if the partial results of all chunks are given in
        order.
    result : AttentionResult
        If any ``return_`` option is set, a named tuple instead.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 1, n, 8), np.float32) for n in (2, 1500, 1500))
    >>> regard.attention_merge(**regard.attention_partials(q, k, v)).shape
    (1, 1, 2, 8)
    """
    options: dict[str, Any] = {}
    fields: tuple[str, ...] = ("context",)
    given = {"scaled_accumulator": scaled_accumulator, "sinks": sinks, "out": out, "lse": lse, "sink_weights": sink_weights}
    options.update((name, value) for name, value in given.items() if value is not None)
    if dtype is not None:
        options["dtype"] = dtype_name(dtype)
    for name, wanted in (("row_max", return_row_max), ("row_sum", return_row_sum), ("lse", return_lse),
                         ("sink_weights", return_sink_weights)):
        if wanted:
            options["return_" + name] = True
            fields += (name,)
    result = _regard.attention_merge(accumulator, row_max, row_sum, num_threads=num_threads, **options)
    return result if len(fields) == 1 else result_class(fields)._make(result)


@with_hints
def attention_merge_lse(
    contexts: AnyArray, lse: AnyArray, *, out: AnyArray | None = None, return_lse: bool = False, num_threads: int = 0,
) -> Any:
    """Merge the contexts of several attention calls over disjoint sets of keys, using the lse of each call.

    The context is ``Σ_n exp(lse_n − lse) · context_n``.

    Parameters
    ----------
    contexts : array, shape (N, B, H, L, Dv)
        The contexts computed by :func:`attention`, one for each set of keys.
    lse : array, shape (N, B, H, L)
        The lse of the same calls.
    out : array, shape (B, H, L, Dv), optional
        The array to write the context to.
    return_lse : bool, default False
        Whether to return the lse over all keys as well.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    context : array, shape (B, H, L, Dv)
        The context over all keys.
    result : AttentionResult
        With ``return_lse=True``, a named tuple of context and lse instead.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 1, n, 8), np.float32) for n in (2, 10, 10))
    >>> pieces = [regard.attention(q, k[:, :, i:i + 5], v[:, :, i:i + 5], return_lse=True) for i in (0, 5)]
    >>> regard.attention_merge_lse(np.stack([p.context for p in pieces]), np.stack([p.lse for p in pieces])).shape
    (1, 1, 2, 8)
    """
    options: dict[str, Any] = {} if out is None else {"out": out}
    result = _regard.attention_merge_lse(contexts, lse, return_lse=return_lse, num_threads=num_threads, **options)
    return result_class(("context", "lse"))._make(result) if return_lse else result
