# SPDX-License-Identifier: Apache-2.0
"""Layers around attention: linear_forward, linear_backward, PackedLinear, layer_norm_forward, multi_head_attention_forward.

Read next: attention_operators.py.
"""

from __future__ import annotations

from . import _regard
from .calls import dtype_name, given_options, with_hints
from .named_results import LinearGradients, result_class

TYPE_CHECKING = False  # typing itself is not loaded
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeVar

    from .calls import Alignment, AnyArray, DType, Floats, Integers

    Array = TypeVar("Array")
    LinearGradient = Literal["grad_input", "grad_weight", "grad_bias"]


class PackedLinear:
    """A weight of :func:`linear_forward`, packed once for many calls.

    Parameters
    ----------
    weight : array, shape (I, O)
        float32, float64 or bfloat16, with any strides. It is copied.

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
    dtype: DType | None = None, activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu"] = "none",
    num_threads: int = 0,
) -> Array:
    """Compute a linear layer, ``activation(input · weight + bias)``.

    Parameters
    ----------
    input : array, shape (R, I)
        float32, float64 or bfloat16.
    weight : array, shape (I, O), or PackedLinear
        Of the type of input. The weight of a PyTorch ``nn.Linear`` has shape (O, I): pass ``weight.T``.
    bias : array, shape (O,), optional
        Of the type of input.
    out : array, shape (R, O), optional
        The array to write to.
    dtype : dtype or str, optional
        The type of the output: that of input, or float32 if input is bfloat16.
    activation : {'none', 'relu', 'gelu', 'gelu_tanh', 'silu'}, default 'none'
        The function that is applied to each element.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (R, O)

    Raises
    ------
    ValueError
        Before any work, with the argument, its value and what was expected.

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
    num_threads: int = 0,
) -> LinearGradients[Array]:
    """Compute the gradients of a linear layer.

    Parameters
    ----------
    input : array, shape (R, I)
        As in the forward call.
    weight : array, shape (I, O)
        As in the forward call.
    grad_output : array, shape (R, O)
        The gradient of the loss with respect to the argument of the activation.
    grad_input, grad_weight, grad_bias : array, optional
        Arrays to write the gradients to, (R, I), (I, O) and (O,).
    accumulate : sequence of str, default ()
        The names of given arrays to which the gradient is added, instead of overwriting them.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    LinearGradients
        grad_input, grad_weight and grad_bias by name.

    Raises
    ------
    ValueError
        Before any work, with the argument, its value and what was expected.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.linear_backward(np.ones((5, 16)), np.ones((16, 24)), np.ones((5, 24)))
    LinearGradients(
        grad_input=float64 (5, 16),
        grad_weight=float64 (16, 24),
        grad_bias=float64 (24,))
    """
    given = {"grad_input": grad_input, "grad_weight": grad_weight, "grad_bias": grad_bias}
    options: dict[str, Any] = {name: array for name, array in given.items() if array is not None}
    return LinearGradients(_regard.linear_backward(
        input, weight, grad_output, accumulate=accumulate, num_threads=num_threads, **options))


@with_hints
def layer_norm_forward(
    input: Array, gain: AnyArray, bias: AnyArray, *, addend: AnyArray | None = None, epsilon: float = 1e-05,
    out: AnyArray | None = None, num_threads: int = 0,
) -> Array:
    """Normalize the rows of ``x = input + addend``: ``(x − mean) / √(variance + epsilon) · gain + bias``.

    Parameters
    ----------
    input : array, shape (R, E)
        float32 or float64.
    gain, bias : array, shape (E,)
        Of the type of input.
    addend : array, shape (R, E), optional
        Added to input before the normalization: the residual connection.
    epsilon : float, default 1e-05
        Added to the variance.
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
        Before any work, with the argument, its value and what was expected.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.layer_norm_forward(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), epsilon=0.0)
    array([[-1.,  1.]])
    """
    given = {"addend": addend, "out": out}
    options: dict[str, Any] = {name: array for name, array in given.items() if array is not None}
    return _regard.layer_norm_forward(  # type: ignore[no-any-return]
        input, gain, bias, epsilon=epsilon, num_threads=num_threads, **options)


@with_hints
def multi_head_attention_forward(
    input: AnyArray, w_query: AnyArray, w_key: AnyArray, w_value: AnyArray, *, w_output: AnyArray | None = None,
    memory: AnyArray | None = None, b_query: AnyArray | None = None, b_key: AnyArray | None = None,
    b_value: AnyArray | None = None, b_output: AnyArray | None = None, num_heads: int = 1, num_kv_heads: int = 0,
    out: AnyArray | None = None, weights: AnyArray | None = None, return_weights: bool = False,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> Any:
    """Compute a multi-head attention block: project, split into heads, attend, join and project back.

    Parameters
    ----------
    input : array, shape (B, L, E)
        float32 or float64. The queries are made from it, and without memory also the keys and values.
    w_query : array, shape (E, H · D)
        Projection to query. Head h uses the columns ``h · D`` to ``(h + 1) · D − 1``.
    w_key, w_value : array, shapes (E_kv, Hkv · D) and (E_kv, Hkv · Dv)
        Projections to key and value.
    w_output : array, shape (H · Dv, E_out), optional
        Projection of the joined context; without it, the joined context is the output.
    memory : array, shape (B, S, E_kv), optional
        The sequence that keys and values are made from (cross-attention).
    b_query, b_key, b_value, b_output : array, optional
        Biases of the projections, one element per column.
    num_heads : int, default 1
        The number of query heads, H.
    num_kv_heads : int, default 0
        The number of key/value heads, Hkv; 0 is num_heads.
    out : array, shape (B, L, E_out), optional
        The array to write to.
    weights : array, shape (B, H, L, S), optional
        The array to write the softmax weights to.
    return_weights : bool, default False
        Return the softmax weights as well.
    causal, query_offset, window, key_lengths, query_starts, key_starts, prefix : optional
        Which keys each query attends to, by position and length, as in :func:`attention`.
    query_segments, key_segments, block_mask, block_size, mask, bias : optional
        Segments, masks and the term added to the scores, as in :func:`attention`.
    alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first, weights_in_float32 : optional
        Scores, sinks and dropout, as in :func:`attention`.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    output : array, shape (B, L, E_out)
    result : MultiHeadResult
        With ``return_weights=True``, a named tuple of output and weights instead.

    Raises
    ------
    ValueError
        Before any work, with the argument, its value and what was expected.

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
    given = {"w_output": w_output, "memory": memory, "b_query": b_query, "b_key": b_key, "b_value": b_value,
             "b_output": b_output, "out": out, "weights": weights}
    options.update((name, array) for name, array in given.items() if array is not None)
    result = _regard.multi_head_attention_forward(
        input, w_query, w_key, w_value, num_heads=num_heads, num_kv_heads=num_kv_heads, return_weights=return_weights,
        **options)
    return result_class(("output", "weights"), "MultiHeadResult")._make(result) if return_weights else result
