# SPDX-License-Identifier: Apache-2.0
"""Row normalization and its gradients: layer_norm and rms_norm.

Read next: layers.py, embedding.py.
"""

from __future__ import annotations

from . import _regard
from .calls import given_arrays, with_hints
from .named_results import LayerNormGradients, RmsNormGradients

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, TypeVar

    from .calls import AnyArray

    Array = TypeVar("Array")
    LayerNormGradient = Literal["grad_input", "grad_gain", "grad_bias"]
    RmsNormGradient = Literal["grad_input", "grad_gain"]

@with_hints
def layer_norm_forward(
    input: Array, gain: AnyArray, bias: AnyArray | None = None, *, addend: AnyArray | None = None, epsilon: float = 1e-05,
    out: AnyArray | None = None, num_threads: int = 0,
) -> Array:
    """Normalize the rows of ``x = input + addend`` (layer norm): ``(x − mean) / √(variance + epsilon) · gain + bias``.

    Parameters
    ----------
    input : array, shape (R, E)
        The input: float32, float64 or bfloat16.
    gain : array, shape (E,)
        The gain, of the same type as input.
    bias : array, shape (E,), optional
        The bias, of the same type as input.
    addend : array, shape (R, E), optional
        Values added to input before the normalization, as for a residual connection.
    epsilon : float, default 1e-05
        The value added to the variance.
    out : array, shape (R, E), optional
        The array to write to.
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
    >>> regard.layer_norm_forward(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), epsilon=0.0)
    array([[-1.,  1.]])
    """
    return _regard.layer_norm_forward(  # type: ignore[no-any-return]
        input, gain, bias, epsilon=epsilon, num_threads=num_threads, **given_arrays(addend=addend, out=out))


@with_hints
def layer_norm_backward(
    input: AnyArray, gain: AnyArray, grad_output: Array, *, addend: AnyArray | None = None, epsilon: float = 1e-05,
    grad_input: AnyArray | None = None, grad_gain: AnyArray | None = None, grad_bias: AnyArray | None = None,
    accumulate: Sequence[LayerNormGradient] = (), rows_per_group: int = 0, num_threads: int = 0,
) -> LayerNormGradients[Array]:
    """Compute the gradients of :func:`layer_norm_forward`. Mean and variance are recomputed.

    Parameters
    ----------
    input : array, shape (R, E)
        As in the forward call.
    gain : array, shape (E,)
        As in the forward call.
    grad_output : array, shape (R, E)
        The gradient of the loss with respect to the output.
    addend : array, shape (R, E), optional
        As in the forward call. Its gradient is also grad_input.
    epsilon : float, default 1e-05
        As in the forward call.
    grad_input, grad_gain, grad_bias : array, optional
        Arrays of shapes (R, E), (E,) and (E,) to write the gradients to.
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
    rows_per_group : int, default 0
        Number of rows per group; grad_gain and grad_bias are summed separately over each group, and the sums are added
        in order. 0 means that all rows form one group.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    LayerNormGradients
        With the entries grad_input, grad_gain and grad_bias.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.layer_norm_backward(np.ones((5, 16)), np.ones(16), np.ones((5, 16)))
    LayerNormGradients(grad_input=float64 (5, 16), grad_gain=float64 (16,), grad_bias=float64 (16,))
    """
    given = given_arrays(addend=addend, grad_input=grad_input, grad_gain=grad_gain, grad_bias=grad_bias)
    return LayerNormGradients(_regard.layer_norm_backward(
        input, gain, grad_output, epsilon=epsilon, accumulate=accumulate, rows_per_group=rows_per_group,
        num_threads=num_threads, **given))


@with_hints
def rms_norm_forward(
    input: Array, gain: AnyArray, *, addend: AnyArray | None = None, epsilon: float = 1e-05, out: AnyArray | None = None,
    num_threads: int = 0,
) -> Array:
    """Normalize the rows of ``x = input + addend`` (RMS norm): ``x / √(Σ x² / E + epsilon) · gain``.

    Parameters
    ----------
    input : array, shape (R, E)
        The input: float32, float64 or bfloat16.
    gain : array, shape (E,)
        The gain, of the same type as input.
    addend : array, shape (R, E), optional
        Values added to input before the normalization, as for a residual connection.
    epsilon : float, default 1e-05
        The value added to the mean square.
    out : array, shape (R, E), optional
        The array to write to.
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
    >>> regard.rms_norm_forward(np.array([[3.0, -3.0]]), np.ones(2), epsilon=0.0)
    array([[ 1., -1.]])
    """
    return _regard.rms_norm_forward(  # type: ignore[no-any-return]
        input, gain, epsilon=epsilon, num_threads=num_threads, **given_arrays(addend=addend, out=out))


@with_hints
def rms_norm_backward(
    input: AnyArray, gain: AnyArray, grad_output: Array, *, addend: AnyArray | None = None, epsilon: float = 1e-05,
    grad_input: AnyArray | None = None, grad_gain: AnyArray | None = None, accumulate: Sequence[RmsNormGradient] = (),
    rows_per_group: int = 0, num_threads: int = 0,
) -> RmsNormGradients[Array]:
    """Compute the gradients of :func:`rms_norm_forward`. The mean square is recomputed.

    Parameters
    ----------
    input : array, shape (R, E)
        As in the forward call.
    gain : array, shape (E,)
        As in the forward call.
    grad_output : array, shape (R, E)
        The gradient of the loss with respect to the output.
    addend : array, shape (R, E), optional
        As in the forward call. Its gradient is also grad_input.
    epsilon : float, default 1e-05
        As in the forward call.
    grad_input, grad_gain : array, optional
        Arrays of shapes (R, E) and (E,) to write the gradients to.
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
    rows_per_group : int, default 0
        Number of rows per group; grad_gain is summed separately over each group, and the sums are added in order. 0
        means that all rows form one group.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    RmsNormGradients
        With the entries grad_input and grad_gain.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.rms_norm_backward(np.ones((5, 16)), np.ones(16), np.ones((5, 16)))
    RmsNormGradients(grad_input=float64 (5, 16), grad_gain=float64 (16,))
    """
    given = given_arrays(addend=addend, grad_input=grad_input, grad_gain=grad_gain)
    return RmsNormGradients(_regard.rms_norm_backward(
        input, gain, grad_output, epsilon=epsilon, accumulate=accumulate, rows_per_group=rows_per_group,
        num_threads=num_threads, **given))
