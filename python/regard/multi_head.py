# SPDX-License-Identifier: Apache-2.0
"""A multi-head attention block and its gradients.

Read next: attention_operators.py, layers.py.
"""

from __future__ import annotations

from . import _regard
from .calls import given_arrays, given_options, with_hints
from .named_results import MultiHeadForwardState, MultiHeadGradients, result_class

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeVar

    from .calls import Alignment, AnyArray, Floats, Integers

    Array = TypeVar("Array")
    MultiHeadGradient = Literal["grad_input", "grad_memory", "grad_w_query", "grad_w_key", "grad_w_value", "grad_w_output",
                                "grad_b_query", "grad_b_key", "grad_b_value", "grad_b_output"]

@with_hints
def multi_head_attention_forward(
    input: AnyArray, w_query: AnyArray, w_key: AnyArray, w_value: AnyArray, *, w_output: AnyArray | None = None,
    memory: AnyArray | None = None, b_query: AnyArray | None = None, b_key: AnyArray | None = None,
    b_value: AnyArray | None = None, b_output: AnyArray | None = None, num_heads: int = 1, num_kv_heads: int = 0,
    out: AnyArray | None = None, weights: AnyArray | None = None, return_weights: bool = False, return_state: bool = False,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> Any:
    """Compute a multi-head attention block: projections, attention in each head, concatenation and output projection.

    Parameters
    ----------
    input : array, shape (B, L, E)
        The input: float32 or float64. The queries are computed from it and, without memory, also the keys and values.
    w_query : array, shape (E, H · D)
        The query projection. Head h uses the columns ``h · D`` to ``(h + 1) · D − 1``.
    w_key, w_value : array, shapes (E_kv, Hkv · D) and (E_kv, Hkv · Dv)
        The key and value projections.
    w_output : array, shape (H · Dv, E_out), optional
        The projection of the joined context. If it is not given, the joined context is the output.
    memory : array, shape (B, S, E_kv), optional
        The sequence from which keys and values are computed (cross-attention).
    b_query, b_key, b_value, b_output : array, optional
        Biases of the projections, one element per column.
    num_heads : int, default 1
        The number of query heads, H.
    num_kv_heads : int, default 0
        The number of key/value heads, Hkv; 0 means num_heads.
    out : array, shape (B, L, E_out), optional
        The array to write to.
    weights : array, shape (B, H, L, S), optional
        The array to write the softmax weights to.
    return_weights : bool, default False
        Whether to return the softmax weights as well.
    return_state : bool, default False
        Whether to return the state that :func:`multi_head_attention_backward` needs as well.
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
    output : array, shape (B, L, E_out)
    result : MultiHeadResult
        With ``return_weights=True`` or ``return_state=True``, a named tuple of output and the requested results is
        returned instead.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> w = np.eye(16)
    >>> regard.multi_head_attention_forward(np.ones((2, 5, 16)), w, w, w, num_heads=4, return_weights=True)
    MultiHeadResult(output=float64 (2, 5, 16), weights=float64 (2, 4, 5, 5))
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    options.update(given_arrays(w_output=w_output, memory=memory, b_query=b_query, b_key=b_key, b_value=b_value,
                                b_output=b_output, out=out, weights=weights))
    result = _regard.multi_head_attention_forward(
        input, w_query, w_key, w_value, num_heads=num_heads, num_kv_heads=num_kv_heads, return_weights=return_weights,
        return_state=return_state, **options)
    fields = ("output", *("weights",) * return_weights, *("state",) * return_state)
    if len(fields) == 1:
        return result
    if return_state:
        result = (*result[:-1], MultiHeadForwardState(result[-1]))
    return result_class(fields, "MultiHeadResult")._make(result)


@with_hints
def multi_head_attention_backward(
    input: AnyArray, w_query: AnyArray, w_key: AnyArray, w_value: AnyArray, state: MultiHeadForwardState[Any],
    grad_output: Array, *, w_output: AnyArray | None = None, memory: AnyArray | None = None, b_query: AnyArray | None = None,
    b_key: AnyArray | None = None, b_value: AnyArray | None = None, b_output: AnyArray | None = None, num_heads: int = 1,
    num_kv_heads: int = 0, grad_input: AnyArray | None = None, grad_memory: AnyArray | None = None,
    grad_w_query: AnyArray | None = None, grad_w_key: AnyArray | None = None, grad_w_value: AnyArray | None = None,
    grad_w_output: AnyArray | None = None, grad_b_query: AnyArray | None = None, grad_b_key: AnyArray | None = None,
    grad_b_value: AnyArray | None = None, grad_b_output: AnyArray | None = None,
    accumulate: Sequence[MultiHeadGradient] = (), rows_per_group: int = 0,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> MultiHeadGradients[Array]:
    """Compute the gradients of :func:`multi_head_attention_forward`.

    Parameters
    ----------
    input : array, shape (B, L, E)
        As in the forward call.
    w_query, w_key, w_value : array
        As in the forward call.
    state : MultiHeadForwardState
        The state that the forward call returned with ``return_state=True``. Any other state silently produces wrong
        gradients.
    grad_output : array, shape (B, L, E_out)
        The gradient of the loss with respect to the output.
    w_output, memory : array, optional
        As in the forward call.
    b_query, b_key, b_value, b_output : array, optional
        As in the forward call. They are not read.
    num_heads, num_kv_heads : int
        As in the forward call.
    grad_input, grad_memory : array, optional
        Arrays to write these gradients to, with the shapes of input and memory.
    grad_w_query, grad_w_key, grad_w_value, grad_w_output : array, optional
        Arrays to write these gradients to, with the shapes of the parameters.
    grad_b_query, grad_b_key, grad_b_value, grad_b_output : array, optional
        Arrays to write these gradients to, one element per column.
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
    rows_per_group : int, default 0
        Number of rows of input per group; the gradients of parameters are summed separately over each group, and the
        sums are added in order. 0 means that all rows form one group. Row l of batch entry b has index ``b · L + l``.
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
    MultiHeadGradients
        The gradients by name; grad_memory is present only with memory, and grad_w_output and grad_b_output only with
        w_output. The gradients of ``bias`` and ``sinks`` are not computed; use :func:`attention_backward` for these.

    Raises
    ------
    ValueError
        If an argument is invalid, or if options differ from those of the forward call. The message states the name of
        the argument, its value and the expected value, or the options that differ. The error is raised before any
        gradient is written.

    Examples
    --------
    >>> import numpy as np, regard
    >>> x, w = np.ones((2, 5, 16)), np.eye(16)
    >>> output, state = regard.multi_head_attention_forward(x, w, w, w, num_heads=4, return_state=True)
    >>> regard.multi_head_attention_backward(x, w, w, w, state, np.ones_like(output), num_heads=4).grad_w_query.shape
    (16, 16)
    """
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    options.update(given_arrays(
        w_output=w_output, memory=memory, b_query=b_query, b_key=b_key, b_value=b_value, b_output=b_output,
        grad_input=grad_input, grad_memory=grad_memory, grad_w_query=grad_w_query, grad_w_key=grad_w_key,
        grad_w_value=grad_w_value, grad_w_output=grad_w_output, grad_b_query=grad_b_query, grad_b_key=grad_b_key,
        grad_b_value=grad_b_value, grad_b_output=grad_b_output))
    return MultiHeadGradients(_regard.multi_head_attention_backward(
        input, w_query, w_key, w_value, state, grad_output, num_heads=num_heads, num_kv_heads=num_kv_heads,
        accumulate=accumulate, rows_per_group=rows_per_group, **options))
