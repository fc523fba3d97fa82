# SPDX-License-Identifier: Apache-2.0
"""Linear layers and the activations between them, with their gradients: PackedLinear, linear, activation, swiglu.

Read next: norms.py, embedding.py, multi_head.py, optimizers.py.
"""

from __future__ import annotations

from . import _regard
from .calls import dtype_name, given_arrays, with_hints
from .named_results import LinearGradients, SwigluGradients

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeVar

    from .calls import AnyArray, DType

    Array = TypeVar("Array")
    Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]
    LinearGradient = Literal["grad_input", "grad_weight", "grad_bias"]
    SwigluGradient = Literal["grad_gate", "grad_up"]


class PackedLinear:
    """A weight for :func:`linear_forward`, packed once and used in many calls.

    Parameters
    ----------
    weight : array, shape (I, O)
        The weight: float32, float64 or bfloat16, with any strides. It is copied.

    Examples
    --------
    >>> import numpy as np, regard
    >>> packed = regard.PackedLinear(np.ones((16, 24), np.float32))
    >>> packed
    PackedLinear((16, 24), 2048 bytes)
    >>> regard.linear_forward(np.ones((5, 16), np.float32), packed).shape
    (5, 24)
    """

    __slots__ = ("__weakref__", "_packed")
    _packed: _regard.PackedLinear

    def __init__(self, weight: AnyArray) -> None:
        self._packed = _regard.PackedLinear(weight)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weight, (I, O)."""
        return self._packed.shape

    @property
    def num_bytes(self) -> int:
        """The size of the packed weight in bytes."""
        return self._packed.num_bytes

    def __repr__(self) -> str:
        return f"PackedLinear({self.shape}, {self.num_bytes} bytes)"


@with_hints
def linear_forward(
    input: Array, weight: PackedLinear | AnyArray, bias: AnyArray | None = None, *, out: AnyArray | None = None,
    dtype: DType | None = None, activation: Activation = "none", num_threads: int = 0,
) -> Array:
    """Compute a linear layer, ``activation(input · weight + bias)``.

    Parameters
    ----------
    input : array, shape (R, I)
        The input: float32, float64 or bfloat16.
    weight : array, shape (I, O), or PackedLinear
        The weight, of the same type as input. PyTorch's ``nn.Linear`` stores it as (O, I): pass ``weight.T``.
    bias : array, shape (O,), optional
        The bias, of the same type as input.
    out : array, shape (R, O), optional
        The array to write to.
    dtype : dtype or str, optional
        The type of the output: the type of input or, if input is bfloat16, also float32. The default is the type of out
        if given, otherwise that of input.
    activation : {'none', 'relu', 'gelu', 'gelu_tanh', 'silu'}, default 'none'
        The function applied to each element.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (R, O)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.linear_forward(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, -9.0]), activation="relu")
    array([[1.5, 0. ],
           [3.5, 0. ]])
    """
    options: dict[str, Any] = {} if out is None else {"out": out}
    if dtype is not None:
        options["dtype"] = dtype_name(dtype)
    if isinstance(weight, PackedLinear):
        weight = weight._packed
    return _regard.linear_forward(  # type: ignore[no-any-return]
        input, weight, bias, activation=activation, num_threads=num_threads, **options)


@with_hints
def linear_backward(
    input: AnyArray, weight: AnyArray, grad_output: Array, *, grad_input: AnyArray | None = None,
    grad_weight: AnyArray | None = None, grad_bias: AnyArray | None = None, accumulate: Sequence[LinearGradient] = (),
    rows_per_group: int = 0, num_threads: int = 0,
) -> LinearGradients[Array]:
    """Compute the gradients of a linear layer.

    Parameters
    ----------
    input : array, shape (R, I)
        As in the forward call.
    weight : array, shape (I, O)
        As in the forward call.
    grad_output : array, shape (R, O)
        The gradient of the loss with respect to ``input · weight + bias``, before any activation.
    grad_input, grad_weight, grad_bias : array, optional
        Arrays of shapes (R, I), (I, O) and (O,) to write the gradients to.
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
    rows_per_group : int, default 0
        Number of rows per group; grad_weight and grad_bias are summed separately over each group, and the sums are
        added in order. 0 means that all rows form one group. With groups, one call over a batch gives the same bits as
        several accumulating calls, if the batch is split at group boundaries.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    LinearGradients
        With the entries grad_input, grad_weight and grad_bias.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.linear_backward(np.ones((5, 16)), np.ones((16, 24)), np.ones((5, 24)))
    LinearGradients(
        grad_input=float64 (5, 16),
        grad_weight=float64 (16, 24),
        grad_bias=float64 (24,))
    """
    given = given_arrays(grad_input=grad_input, grad_weight=grad_weight, grad_bias=grad_bias)
    return LinearGradients(_regard.linear_backward(
        input, weight, grad_output, accumulate=accumulate, rows_per_group=rows_per_group, num_threads=num_threads, **given))


@with_hints
def activation_forward(
    input: Array, activation: Activation, *, out: AnyArray | None = None, num_threads: int = 0,
) -> Array:
    """Compute an activation function, element by element.

    Parameters
    ----------
    input : array, shape (R, E)
        The argument of the activation: float32, float64 or bfloat16.
    activation : {'none', 'relu', 'gelu', 'gelu_tanh', 'silu'}
        The activation function.
    out : array, shape (R, E), optional
        The array to write to; it may be input.
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
    >>> regard.activation_forward(np.array([[-1.0, 2.0]]), "relu")
    array([[0., 2.]])
    """
    return _regard.activation_forward(  # type: ignore[no-any-return]
        input, activation, num_threads=num_threads, **given_arrays(out=out))


@with_hints
def activation_backward(
    input: AnyArray, grad_output: Array, activation: Activation, *, grad_input: AnyArray | None = None,
    accumulate: bool = False, num_threads: int = 0,
) -> Array:
    """Compute the gradient of an activation function f, ``grad_output · f′(input)``.

    Parameters
    ----------
    input : array, shape (R, E)
        The argument of the activation: float32, float64 or bfloat16.
    grad_output : array, shape (R, E)
        The gradient of the loss with respect to the output, of the same type as input.
    activation : {'none', 'relu', 'gelu', 'gelu_tanh', 'silu'}
        The activation function f.
    grad_input : array, shape (R, E), optional
        The array to write to; it may be input or grad_output.
    accumulate : bool, default False
        Whether to add the gradient to grad_input instead of overwriting it.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    grad_input : array, shape (R, E)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.activation_backward(np.array([[-1.0, 2.0]]), np.array([[5.0, 5.0]]), "relu")
    array([[0., 5.]])
    """
    return _regard.activation_backward(  # type: ignore[no-any-return]
        input, grad_output, activation, accumulate=accumulate, num_threads=num_threads, **given_arrays(grad_input=grad_input))


@with_hints
def swiglu_forward(gate: Array, up: AnyArray, *, out: AnyArray | None = None, num_threads: int = 0) -> Array:
    """Compute SwiGLU, ``silu(gate) · up``, element by element.

    Parameters
    ----------
    gate : array, shape (R, F)
        The gate: float32, float64 or bfloat16.
    up : array, shape (R, F)
        The array by which silu(gate) is multiplied, of the same type as gate.
    out : array, shape (R, F), optional
        The array to write to; it may be gate or up.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (R, F)

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.swiglu_forward(np.array([[0.0, 2.0]]), np.array([[3.0, 10.0]])).round(2)
    array([[ 0.  , 17.62]])
    """
    return _regard.swiglu_forward(gate, up, num_threads=num_threads, **given_arrays(out=out))  # type: ignore[no-any-return]


@with_hints
def swiglu_backward(
    gate: AnyArray, up: AnyArray, grad_output: Array, *, grad_gate: AnyArray | None = None, grad_up: AnyArray | None = None,
    accumulate: Sequence[SwigluGradient] = (), num_threads: int = 0,
) -> SwigluGradients[Array]:
    """Compute the gradients of SwiGLU.

    Parameters
    ----------
    gate, up : array, shape (R, F)
        As in the forward call.
    grad_output : array, shape (R, F)
        The gradient of the loss with respect to the output.
    grad_gate, grad_up : array, shape (R, F), optional
        Arrays to write the gradients to. Each may be one of the inputs, but not the other gradient.
    accumulate : sequence of str, default ()
        Names of the given arrays to which gradients are added; other given arrays are overwritten.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    SwigluGradients
        With the entries grad_gate and grad_up.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.swiglu_backward(*np.ones((3, 5, 24)))
    SwigluGradients(grad_gate=float64 (5, 24), grad_up=float64 (5, 24))
    """
    return SwigluGradients(_regard.swiglu_backward(
        gate, up, grad_output, accumulate=accumulate, num_threads=num_threads,
        **given_arrays(grad_gate=grad_gate, grad_up=grad_up)))
