# SPDX-License-Identifier: Apache-2.0
"""Embedding lookup, rotary position embeddings and the cross-entropy loss, with their gradients.

Read next: layers.py, training.py.
"""

from __future__ import annotations

from . import _regard
from .calls import given_arrays, with_hints
from .named_results import result_class

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    from .calls import AnyArray, Integers

    Array = TypeVar("Array")

@with_hints
def embedding_forward(
    table: Array, indices: Integers, *, out: AnyArray | None = None, accumulate: bool = False, num_threads: int = 0,
) -> Array:
    """Look up the row of a table for each index: ``output[r] = table[indices[r]]``.

    Parameters
    ----------
    table : array, shape (V, E)
        The embedding table: float32, float64 or bfloat16.
    indices : sequence or array of int, shape (R,)
        The row indices, from 0 to V − 1.
    out : array, shape (R, E), optional
        The array to write to.
    accumulate : bool, default False
        Whether to add the rows to out, for example to add position embeddings to token embeddings.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (R, E)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.embedding_forward(np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 0, 1])
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    return _regard.embedding_forward(  # type: ignore[no-any-return]
        table, indices, accumulate=accumulate, num_threads=num_threads, **given_arrays(out=out))


@with_hints
def embedding_backward(
    indices: Integers, grad_output: Array, *, num_rows: int | None = None, grad_table: AnyArray | None = None,
    accumulate: bool = False, rows_per_group: int = 0, num_threads: int = 0,
) -> Array:
    """Compute the gradient of an embedding table: for each row, the sum of the rows of grad_output with that index.

    Parameters
    ----------
    indices : sequence or array of int, shape (R,)
        As in the forward call.
    grad_output : array, shape (R, E)
        The gradient of the loss with respect to the output: float32, float64 or bfloat16.
    num_rows : int, optional
        V, the number of rows of the table; required if grad_table is not given.
    grad_table : array, shape (V, E), optional
        The array to write to.
    accumulate : bool, default False
        Whether to add the gradient to grad_table; in this case, rows to which no index refers are unchanged.
    rows_per_group : int, default 0
        Number of rows of grad_output per group; each group is summed separately, and the sums are added in order. 0
        means that all rows form one group.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    grad_table : array, shape (V, E)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.embedding_backward([1, 0, 1], np.array([[1.0], [2.0], [4.0]]), num_rows=3)
    array([[2.],
           [5.],
           [0.]])
    """
    return _regard.embedding_backward(  # type: ignore[no-any-return]
        indices, grad_output, num_rows=num_rows, accumulate=accumulate, rows_per_group=rows_per_group,
        num_threads=num_threads, **given_arrays(grad_table=grad_table))


@with_hints
def rotary_forward(
    input: Array, *, out: AnyArray | None = None, base: float = 10000.0,
    layout: Literal["halves", "interleaved"] = "halves", size: int = 0, first_position: int = 0,
    positions: Integers | None = None, num_threads: int = 0,
) -> Array:
    """Rotate pairs of components of queries or keys by angles that grow with the position.

    Parameters
    ----------
    input : array, shape (B, H, L, D)
        Queries or keys: float32, float64 or bfloat16.
    out : array, shape (B, H, L, D), optional
        The array to write to; it may be input.
    base : float, default 10000.0
        The base of the frequencies: pair d of a row at position p is rotated by ``p · base^(−2d / size)``.
    layout : {'halves', 'interleaved'}, default 'halves'
        The components that form pair d: ``(d, d + size / 2)`` as in Llama, or ``(2d, 2d + 1)`` as in RoFormer.
    size : int, default 0
        The number of leading components that are rotated; 0 means all of them.
    first_position : int, default 0
        The position of row 0 if positions is not given.
    positions : sequence or array of int, shape (L,) or (B, L), optional
        The position of each row.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (B, H, L, D)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.rotary_forward(np.array([[[[1.0, 0.0]]]]), positions=[1]).round(2)   # cos 1, sin 1
    array([[[[0.54, 0.84]]]])
    """
    return _regard.rotary_forward(  # type: ignore[no-any-return]
        input, base=base, layout=layout, size=size, first_position=first_position, positions=positions,
        num_threads=num_threads, **given_arrays(out=out))


@with_hints
def rotary_backward(
    grad_output: Array, *, grad_input: AnyArray | None = None, accumulate: bool = False, base: float = 10000.0,
    layout: Literal["halves", "interleaved"] = "halves", size: int = 0, first_position: int = 0,
    positions: Integers | None = None, num_threads: int = 0,
) -> Array:
    """Compute the gradient of :func:`rotary_forward`, which is the rotation by the opposite angles.

    Parameters
    ----------
    grad_output : array, shape (B, H, L, D)
        The gradient of the loss with respect to the output: float32, float64 or bfloat16.
    grad_input : array, shape (B, H, L, D), optional
        The array to write to; it may be grad_output.
    accumulate : bool, default False
        Whether to add the gradient to grad_input instead of overwriting it.
    base : float, default 10000.0
        The base of the frequencies: pair d of a row at position p is rotated by ``p · base^(−2d / size)``.
    layout : {'halves', 'interleaved'}, default 'halves'
        The components that form pair d: ``(d, d + size / 2)`` as in Llama, or ``(2d, 2d + 1)`` as in RoFormer.
    size : int, default 0
        The number of leading components that are rotated; 0 means all of them.
    first_position : int, default 0
        The position of row 0 if positions is not given.
    positions : sequence or array of int, shape (L,) or (B, L), optional
        The position of each row.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    grad_input : array, shape (B, H, L, D)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> x = np.ones((1, 2, 5, 8))
    >>> np.allclose(regard.rotary_backward(regard.rotary_forward(x)), x)
    True
    """
    return _regard.rotary_backward(  # type: ignore[no-any-return]
        grad_output, accumulate=accumulate, base=base, layout=layout, size=size, first_position=first_position,
        positions=positions, num_threads=num_threads, **given_arrays(grad_input=grad_input))


@with_hints
def cross_entropy_forward(
    logits: AnyArray, targets: Integers, *, row_loss: AnyArray | None = None, grad_logits: AnyArray | None = None,
    return_row_loss: bool = False, return_grad_logits: bool = False, ignored_target: int = -1,
    reduction: Literal["mean", "sum"] = "mean", grad_scale: float = 1.0, count: int = 0, rows_per_group: int = 0,
    num_threads: int = 0,
) -> Any:
    """Compute the cross-entropy loss, fused with softmax, and, if requested, its gradient.

    The loss of a row is ``ln Σ exp(logits) − logits[target]``, and its gradient is
    ``(softmax(logits) − onehot(target)) / count``.

    Parameters
    ----------
    logits : array, shape (R, V)
        The logits: float32, float64 or bfloat16.
    targets : sequence or array of int, shape (R,)
        The target classes, from 0 to V − 1 or equal to ignored_target.
    row_loss : array, shape (R,), optional
        The array to write the loss of each row to: float32, or float64 if logits is float64.
    grad_logits : array, shape (R, V), optional
        The array to write the gradient to; it may be logits.
    return_row_loss, return_grad_logits : bool, default False
        Whether to return row_loss and grad_logits as well.
    ignored_target : int, default -1
        The target of rows that are ignored: their loss and gradient are 0.
    reduction : {'mean', 'sum'}, default 'mean'
        The reduction of the row losses to one loss.
    grad_scale : float, default 1.0
        The factor applied to the gradient.
    count : int, default 0
        The divisor of the mean, for a batch that is split into several calls; 0 means the number of targets in this
        call that are not ignored.
    rows_per_group : int, default 0
        Number of rows per group; losses are summed separately over each group, and the sums are added in order. 0
        means that all rows form one group.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    result : CrossEntropyResult
        A named tuple of loss, a float; count, the number of targets that are not ignored; and, if requested, row_loss
        and grad_logits.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> found = regard.cross_entropy_forward(np.zeros((2, 4)), [3, -1], return_grad_logits=True)
    >>> round(found.loss, 4), found.count
    (1.3863, 1)
    >>> found.grad_logits
    array([[ 0.25,  0.25,  0.25, -0.75],
           [ 0.  ,  0.  ,  0.  ,  0.  ]])
    """
    found = _regard.cross_entropy_forward(
        logits, targets, return_row_loss=return_row_loss, return_grad_logits=return_grad_logits,
        ignored_target=ignored_target, reduction=reduction, grad_scale=grad_scale, count=count,
        rows_per_group=rows_per_group, num_threads=num_threads, **given_arrays(row_loss=row_loss, grad_logits=grad_logits))
    fields = ("loss", "count", *("row_loss",) * return_row_loss, *("grad_logits",) * return_grad_logits)
    return result_class(fields, "CrossEntropyResult")._make(found)
