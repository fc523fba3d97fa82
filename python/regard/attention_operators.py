# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradients: attention (also named attention_forward) and attention_backward.

    arguments ── given_options ──▶ _regard.attention_forward ──▶ array, or AttentionResult

The functions pass the given arguments to the extension, which validates them. Read next: attention_inspection.py,
calls.py.
"""

from __future__ import annotations

from . import _regard
from .calls import direct, given_options, requested_outputs, with_hints
from .named_results import AttentionGradients, result_class

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypedDict, TypeVar, overload

    from typing_extensions import Unpack

    from .calls import Alignment, AnyArray, DType, Floats, Integers
    from .named_results import AttentionResult

    Array = TypeVar("Array")
    Gradient = Literal["grad_query", "grad_key", "grad_value", "grad_bias", "grad_sinks"]

    class AttentionOptions(TypedDict, total=False):
        """The options for attention, for use in annotations: **options: Unpack[AttentionOptions]."""

        causal: bool | Alignment
        query_offset: int | Alignment | Integers | None
        window: tuple[int | None, int | None] | None
        key_lengths: Integers | None
        query_starts: Integers | None
        key_starts: Integers | None
        query_segments: AnyArray | None
        key_segments: AnyArray | None
        prefix: Integers | None
        block_mask: AnyArray | None
        block_size: tuple[int, int] | None
        mask: AnyArray | None
        bias: AnyArray | None
        alibi_slopes: Floats | None
        sinks: Floats | None
        soft_cap: float | None
        scale: float | None
        dropout: float
        dropout_seed: int
        dropout_first: Integers
        weights_in_float32: bool | None
        num_threads: int

if TYPE_CHECKING:
    @overload
    def attention(
        query: Array, key: AnyArray, value: AnyArray, *, out: None = None, dtype: None = None, row_max: AnyArray | None = None,
        row_sum: AnyArray | None = None, lse: AnyArray | None = None, weights: AnyArray | None = None,
        sink_weights: AnyArray | None = None, return_row_max: Literal[False] = False,
        return_row_sum: Literal[False] = False, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
        return_sink_weights: Literal[False] = False, return_fingerprint: Literal[False] = False,
        **options: Unpack[AttentionOptions],
    ) -> Array: ...
    @overload
    def attention(
        query: AnyArray, key: AnyArray, value: AnyArray, *, out: AnyArray | None = None, dtype: DType | None = None,
        row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
        weights: AnyArray | None = None, sink_weights: AnyArray | None = None, return_row_max: Literal[False] = False,
        return_row_sum: Literal[False] = False, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
        return_sink_weights: Literal[False] = False, return_fingerprint: Literal[False] = False,
        **options: Unpack[AttentionOptions],
    ) -> Any: ...
    @overload
    def attention(
        query: Array, key: AnyArray, value: AnyArray, *, out: AnyArray | None = None, dtype: DType | None = None,
        row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
        weights: AnyArray | None = None, sink_weights: AnyArray | None = None, return_row_max: bool = False,
        return_row_sum: bool = False, return_lse: bool = False, return_weights: bool = False,
        return_sink_weights: bool = False, return_fingerprint: bool = False, **options: Unpack[AttentionOptions],
    ) -> AttentionResult[Array]: ...

@direct(_regard.attention_forward)
def attention(
    query: AnyArray, key: AnyArray, value: AnyArray, *, out: AnyArray | None = None, dtype: DType | None = None,
    row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
    weights: AnyArray | None = None, sink_weights: AnyArray | None = None, return_row_max: bool = False,
    return_row_sum: bool = False, return_lse: bool = False, return_weights: bool = False,
    return_sink_weights: bool = False, return_fingerprint: bool = False,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> Any:
    """Compute scaled dot-product attention.

    The context is ``softmax(soft_cap(scale · query · keyᵀ) + ALiBi + bias) · value``, where the softmax is over the
    visible keys. By default, every query attends to every key.

    Parameters
    ----------
    query : array, shape (B, H, L, D)
        Queries: float32, bfloat16, float16 or float64. The array may be a NumPy, PyTorch or JAX array, or any object
        that supports the buffer protocol or DLPack, in CPU memory. It is read in place, with any strides. See Notes
        for arrays of rank 2 and 3.
    key : array, shape (B, Hkv, S, D)
        Keys: float64 if query is float64, otherwise float32, bfloat16 or float16. Hkv divides H, and query head h reads
        KV head ``h // (H // Hkv)``.
    value : array, shape (B, Hkv, S, Dv)
        Values. The same types are accepted as for key.
    out : array, shape (B, H, L, Dv), optional
        The array to write the context to. By default, a new array of the same library as query is allocated.
    dtype : dtype or str, optional
        The type of the context, as a name or as a dtype object such as ``numpy.float32`` or ``torch.float32``: query's
        type or, if query is bfloat16 or float16, also float32. The default is the type of out if given, otherwise that
        of query.
    row_max, row_sum, lse, sink_weights : array, shape (B, H, L), optional
        Arrays to write these results to: float32 (float64 if query is float64).
    weights : array, shape (B, H, L, S), optional
        The array to write the softmax weights to: float32 (float64 if query is float64).
    return_row_max : bool, default False
        Whether to return the largest visible score of each row, including the sink.
    return_row_sum : bool, default False
        Whether to return ``Σ exp(score − row_max)`` of each row, including the sink.
    return_lse : bool, default False
        Whether to return ``row_max + ln(row_sum)``, which is −∞ for a row without a visible key and without a sink.
    return_weights : bool, default False
        Whether to return the softmax weights, (B, H, L, S), which are 0 at invisible keys.
    return_sink_weights : bool, default False
        Whether to return the weight of the sink in each row.
    return_fingerprint : bool, default False
        Whether to return a 64-byte hash of the options for :func:`attention_backward`.
    causal : bool, 'top_left' or 'bottom_right', default False
        Whether the query at position p attends only to keys ``j <= p``. The position of query row i is
        ``i + query_offset``. ``'top_left'`` and ``'bottom_right'`` also set query_offset.
    query_offset : int, 'top_left', 'bottom_right' or sequence of int, optional
        The position of query row 0: one number, one number per batch entry or packed sequence, ``'top_left'`` (0) or
        ``'bottom_right'`` (the key length − L). It is required by causal, window, alibi_slopes and prefix if L differs
        from S or if key_lengths is given.
    window : tuple (left, right), optional
        Sliding window: key j is visible only if ``p − left <= j <= p + right``. None means no limit on that side.
    key_lengths : sequence of int, shape (B,), optional
        Number of valid keys per batch entry or packed sequence. Keys at or after this index are invisible.
    query_starts, key_starts : sequence of int, optional
        The first row and the first key of each of n packed sequences, followed by the total number of rows or keys:
        n + 1 entries each. B must be 1, and a query attends only to keys in its own sequence.
    query_segments, key_segments : array of int, shapes (B, L) and (B, S), optional
        Segments of the queries and keys. A query attends only to keys in its own segment. A query in a negative
        segment attends to no key, and keys in a negative segment are invisible.
    prefix : sequence of int, shape (B,), optional
        Number of keys at the beginning that are visible even with causal (prefix LM).
    block_mask : array of bool, shape (B or 1, H or 1, ⌈L / bq⌉, ⌈S / bk⌉), optional
        True marks visible blocks of bq queries by bk keys. If there are fewer than four axes, they are the last axes.
    block_size : tuple (bq, bk), optional
        The size of these blocks; required with block_mask.
    mask : array of bool or uint8, broadcastable to (B, H, L, S), optional
        True marks visible keys. To add values to the scores, use bias instead.
    bias : array, broadcastable to (B, H, L, S), optional
        Values added to the scores: float32 (float64 if query is float64), or the type of query.
    alibi_slopes : sequence of float, shape (H,), optional
        ALiBi slopes: ``−slope · |j − p|`` is added to the scores.
    sinks : sequence of float, shape (H,), optional
        Attention sinks: one score per head, which is included in the softmax but contributes no value.
    soft_cap : float, optional
        The soft cap c, which replaces each scaled product x with ``c · tanh(x / c)``.
    scale : float, optional
        The factor applied to ``query · keyᵀ``; ``1 / √D`` by default.
    dropout : float, default 0.0
        The probability with which each weight is dropped in the product with value.
    dropout_seed : int, default 0
        The seed of the dropout generator.
    dropout_first : sequence of int, default (0, 0, 0)
        Batch entry, head and row at which this call starts within the full problem, so that a shard drops the same
        weights as the full problem.
    weights_in_float32 : bool, optional
        Whether weights remain in float32 in the product with bfloat16 values. Weights are rounded only with the
        instruction set avx512_bf16, and by default only if the context is bfloat16.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`. Results are bit-identical for any value.

    Returns
    -------
    context : array, shape (B, H, L, Dv)
        out if given, otherwise a new array of the same library as query. The row of a query without a visible key is
        +0.
    result : AttentionResult
        If any ``return_`` option is set, a named tuple is returned instead: context, followed by the requested results
        in the order row_max, row_sum, lse, weights, sink_weights, fingerprint.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.
    TypeError
        If an argument is not an array, an option has the wrong type, or a keyword is the name of an option in another
        library.
    BufferError
        If a DLPack export cannot be used.

    Notes
    -----
    An array of rank 2, (L, D), is one head. An array of rank 3, (H, L, D), contains the heads of one sequence, not a
    batch of single heads. query, key and value must then all have that rank, and every result lacks the same leading
    axes.

    All arithmetic is in float32, or in float64 for float64 inputs. 16-bit inputs are converted exactly, and the context
    is rounded once; ``weights_in_float32`` describes the exception. The result is bit-identical for any number of
    threads and any strides.

    Examples
    --------
    >>> import numpy as np, regard
    >>> random = np.random.default_rng(0)
    >>> q, k, v = (random.standard_normal((1, 8, 128, 64), dtype=np.float32) for _ in range(3))
    >>> regard.attention(q, k, v, causal=True).shape
    (1, 8, 128, 64)
    >>> context, lse = regard.attention(q, k, v, causal=True, return_lse=True)
    >>> regard.attention(q, k, v, return_lse=True)
    AttentionResult(context=float32 (1, 8, 128, 64), lse=float32 (1, 8, 128))
    >>> regard.attention(q[0, 0], k[0, 0], v[0, 0], window=(15, 0)).shape
    (128, 64)
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    fields = requested_outputs(
        options, out, dtype, row_max, row_sum, lse, weights, sink_weights, return_row_max, return_row_sum, return_lse,
        return_weights, return_sink_weights, return_fingerprint)
    result = _regard.attention_forward(query, key, value, **options)
    return result if len(fields) == 1 else result_class(fields)._make(result)


attention_forward = attention


@with_hints
def attention_backward(
    query: Array, key: AnyArray, value: AnyArray, context: AnyArray, row_max: AnyArray, row_sum: AnyArray,
    grad_context: AnyArray, *, fingerprint: bytes | Literal["unchecked"] | None = None,
    gradients: Sequence[Gradient] = ("grad_query", "grad_key", "grad_value"), grad_lse: AnyArray | None = None,
    grad_query: AnyArray | None = None, grad_key: AnyArray | None = None, grad_value: AnyArray | None = None,
    grad_bias: AnyArray | None = None, grad_sinks: AnyArray | None = None, accumulate: Sequence[Gradient] = (),
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> AttentionGradients[Array]:
    """Compute the gradients of :func:`attention`.

    Parameters
    ----------
    query, key, value : array
        As in the forward call. Rank 2 or 3 is also accepted.
    context : array, shape (B, H, L, Dv)
        The context that the forward call returned.
    row_max, row_sum : array, shape (B, H, L)
        The softmax state that the forward call returned. It is trusted: values from another forward call silently
        produce wrong gradients.
    grad_context : array, shape (B, H, L, Dv)
        The gradient of the loss with respect to context.
    fingerprint : bytes or 'unchecked'
        The fingerprint that the forward call returned (``return_fingerprint=True``). Options that differ from those of
        the forward call are rejected, and the message states them. ``'unchecked'`` disables this check, for row_max and
        row_sum that were merged from partial results. This argument is required.
    gradients : sequence of str, default ('grad_query', 'grad_key', 'grad_value')
        The names of the gradients to compute; 'grad_bias' and 'grad_sinks' are also available.
    grad_lse : array, shape (B, H, L), optional
        The gradient of the loss with respect to lse, if the loss depends on it.
    grad_query, grad_key, grad_value : array, optional
        Arrays to write these gradients to, with the shapes of query, key and value.
    grad_bias : array, optional
        The array to write this gradient to, with the shape of bias: float32 (float64 if query is float64).
    grad_sinks : array, shape (H,), optional
        The array to write this gradient to: float32 (float64 if query is float64).
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
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
    AttentionGradients
        The gradients by name. New arrays have the type of query, except that grad_bias and grad_sinks are float32
        (float64 if query is float64).

    Raises
    ------
    ValueError
        If an argument is invalid, or if options differ from those of the forward call. The error is raised before any
        work is done.

    Notes
    -----
    With ``delta = Σ context · grad_context − grad_lse`` over Dv::

        grad_scores = weights · (grad_context · valueᵀ − delta)
        grad_query  = scale · grad_scores · key
        grad_key    = scale · grad_scoresᵀ · query
        grad_value  = weightsᵀ · grad_context

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k, v = (np.ones((1, 2, 4, 8), np.float32) for _ in range(3))
    >>> saved = regard.attention(q, k, v, causal=True, return_row_max=True, return_row_sum=True, return_fingerprint=True)
    >>> found = regard.attention_backward(q, k, v, saved.context, saved.row_max, saved.row_sum, np.ones_like(q),
    ...                                   fingerprint=saved.fingerprint, causal=True)
    >>> found.grad_value.shape
    (1, 2, 4, 8)
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    given = {"grad_query": grad_query, "grad_key": grad_key, "grad_value": grad_value, "grad_bias": grad_bias,
             "grad_sinks": grad_sinks}
    options.update((name, array) for name, array in given.items() if array is not None)
    if grad_lse is not None:
        options["grad_lse"] = grad_lse
    return AttentionGradients(_regard.attention_backward(
        query, key, value, context, row_max, row_sum, grad_context, fingerprint=fingerprint,  # type: ignore[arg-type]
        gradients=gradients, accumulate=accumulate, **options))
