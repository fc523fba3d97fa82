# SPDX-License-Identifier: Apache-2.0
"""Inspection of attention without storing its weights: attention_weights, attention_with_statistics, attention_columns.

    attention_with_statistics   entropy, largest weights … of each row, in the pass that computes the context
    attention_columns           the total weight on each key and the pooled map, from query, key, row_max and row_sum
    attention_weights           the exact weights of selected rows and keys

Read next: attention_operators.py, docs/guide/inspection.md.
"""

from __future__ import annotations

from . import _regard
from .calls import dtype_name, given_options, with_hints
from .named_results import AttentionColumns, AttentionStatistics

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeVar

    from .calls import Alignment, AnyArray, DType, Floats, Integers

    Array = TypeVar("Array")


@with_hints
def attention_weights(
    query: Array, key: AnyArray, *, row_max: AnyArray | None = None, row_sum: AnyArray | None = None,
    out: AnyArray | None = None, rows: Sequence[tuple[int, int]] | None = None, keys: tuple[int, int] | None = None,
    kind: Literal["weights", "scores"] = "weights",
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> Array:
    """Compute the exact softmax weights, or scores, of selected rows and keys.

    Parameters
    ----------
    query, key : array
        As in the forward call, (B, H, L, D) and (B, Hkv, S, D). Rank 2 or 3 is also accepted.
    row_max, row_sum : array, shape (B, H, L)
        As returned by :func:`attention`. Not needed for scores.
    out : array, shape (B, H, R, K), optional
        The array to write the weights to: float32 (float64 if query is float64).
    rows : sequence of (begin, end), optional
        Ranges of query rows, R rows in total. Rows may be repeated. All rows by default.
    keys : tuple (begin, end), optional
        A range of K keys; all keys by default.
    kind : {'weights', 'scores'}, default 'weights'
        Scores are ``soft_cap(scale · query · keyᵀ) + ALiBi + bias``, −∞ at invisible keys.
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
    weights : array, shape (B, H, R, K)
        Bit-identical to the weights of :func:`attention` for any selection of rows and keys.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 2, 4, 8), np.float32) for _ in range(3))
    >>> saved = regard.attention(q, k, v, return_row_max=True, return_row_sum=True)
    >>> regard.attention_weights(q, k, row_max=saved.row_max, row_sum=saved.row_sum, rows=[(3, 4)])[0, 0]
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    if row_max is not None:
        options["row_max"] = row_max
    if row_sum is not None:
        options["row_sum"] = row_sum
    if out is not None:
        options["out"] = out
    if rows is not None:
        options["rows"] = rows
    if keys is not None:
        options["keys"] = keys
    if kind != "weights":
        options["kind"] = kind
    return _regard.attention_weights(query, key, **options)  # type: ignore[no-any-return]


@with_hints
def attention_with_statistics(
    query: Array, key: AnyArray, value: AnyArray, *, out: AnyArray | None = None, dtype: DType | None = None,
    top_keys: int = 0, chosen_keys: Integers | None = None, chosen_ranges: AnyArray | None = None,
    chosen_offset: int | None = None,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> AttentionStatistics[Array]:
    """Compute attention and, in the same pass, statistics of its rows.

    Parameters
    ----------
    query, key, value : array
        As in :func:`attention`. Rank 2 or 3 is also accepted.
    out : array, shape (B, H, L, Dv), optional
        The array to write the context to.
    dtype : dtype or str, optional
        The type of the context, as in :func:`attention`.
    top_keys : int, default 0
        The number of keys with the largest weights to return per row, at most 63.
    chosen_keys : sequence of int, optional
        The keys whose total weight is returned as chosen_weight, the same for every row.
    chosen_ranges : array of int64, shape (L, 2), (1, 2) or (B, L, 2), optional
        Alternatively, a range (begin, end) of keys for each row.
    chosen_offset : int, optional
        Alternatively, the key at the row's position + chosen_offset: −1 selects the previous token, and 1 − period
        the token that followed the previous occurrence of the same token. At most one of these three parameters may
        be given. The weight of a key that does not exist is 0.
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
    AttentionStatistics
        Results by name: context; row_max, row_sum, lse, entropy (in nats), largest_weight and mean_distance,
        (B, H, L); the means over the rows, head_entropy, head_largest_weight and head_mean_distance, (B, H); and
        fingerprint. With top_keys, also top_keys (int64; −1 marks a missing key) and top_weights,
        (B, H, L, top_keys). With chosen keys, also chosen_weight, (B, H, L), and head_chosen_weight, (B, H).

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Notes
    -----
    With p = weights[i, j], ``entropy = −Σ p ln p`` and ``mean_distance = Σ p · |position of i − j|``. The weights are
    never stored.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 2, 4, 8), np.float32) for _ in range(3))
    >>> found = regard.attention_with_statistics(q, k, v, top_keys=2, causal=True)
    >>> found.largest_weight[0, 0]
    array([1.        , 0.5       , 0.33333334, 0.25      ], dtype=float32)
    >>> found["top_keys"].shape
    (1, 2, 4, 2)
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    if out is not None:
        options["out"] = out
    if dtype is not None:
        options["dtype"] = dtype_name(dtype)
    if type(top_keys) is not int or top_keys:
        options["top_keys"] = top_keys
    if chosen_keys is not None:
        options["chosen_keys"] = chosen_keys
    if chosen_ranges is not None:
        options["chosen_ranges"] = chosen_ranges
    if chosen_offset is not None:
        options["chosen_offset"] = chosen_offset
    return AttentionStatistics(_regard.attention_with_statistics(query, key, value, **options))


@with_hints
def attention_columns(
    query: Array, key: AnyArray, row_max: AnyArray, row_sum: AnyArray, *, pooled_map: tuple[int, int] | None = None,
    cells: Literal["means", "sums"] = "means",
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> AttentionColumns[Array]:
    """Compute the total weight on each key and the pooled map of the weights, without storing the weights.

    Parameters
    ----------
    query, key : array
        As in the forward call, (B, H, L, D) and (B, Hkv, S, D). Rank 2 or 3 is also accepted.
    row_max, row_sum : array, shape (B, H, L)
        As returned by :func:`attention` or :func:`attention_with_statistics`.
    pooled_map : tuple (Ga, Gb), optional
        The size of the map: Ga strips of rows by Gb strips of keys.
    cells : {'means', 'sums'}, default 'means'
        Whether a cell is the mean or the sum of its weights.
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
    AttentionColumns
        Results by name: key_mass, (B, H, S), the weights on each key, summed over the queries. With pooled_map, also
        pooled_map, (B, H, Ga, Gb).

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 2, 4, 8), np.float32) for _ in range(3))
    >>> saved = regard.attention(q, k, v, return_row_max=True, return_row_sum=True)
    >>> regard.attention_columns(q, k, saved.row_max, saved.row_sum, pooled_map=(2, 2))
    AttentionColumns(key_mass=float32 (1, 2, 4), pooled_map=float32 (1, 2, 2, 2))
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    if pooled_map is not None:
        options["pooled_map"] = pooled_map
    if cells != "means":
        options["cells"] = cells
    return AttentionColumns(_regard.attention_columns(query, key, row_max, row_sum, **options))
