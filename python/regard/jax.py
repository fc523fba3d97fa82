# SPDX-License-Identifier: Apache-2.0
"""Regard under JAX: attention that works under jit, vmap and grad, on CPU.

    import regard.jax
    jax.grad(lambda q: regard.jax.attention(q, k, v, causal=True).sum())(q)

    jit    one jax.pure_callback that calls the library; array-valued options may be traced
    grad   custom_vjp, with a second callback that calls attention_backward
    vmap   one callback for each entry, in order

Outside transformations, regard.attention also accepts JAX arrays, with less overhead. Read next:
attention_operators.py.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
import numpy

from . import _regard
from .attention_operators import attention as _attention
from .attention_operators import attention_backward as _attention_backward
from .calls import dtype_name, with_hints

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from .attention_operators import AttentionOptions

_DIFFERENTIABLE = ("query", "key", "value", "bias", "sinks")
_Shape: typing.Any = jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class _Forward:
    """The callback of the forward pass. Equal calls are compiled only once."""

    names: tuple[str, ...]  # the names of the arrays
    options: tuple[tuple[str, typing.Any], ...]

    def arguments(self, arrays: typing.Sequence[typing.Any]) -> dict[str, typing.Any]:
        found = dict(self.options)
        for name, array in zip(self.names, arrays):
            array = numpy.asarray(array)
            found[name] = array.item() if array.ndim == 0 else array
        return found

    def __call__(self, *arrays: typing.Any) -> tuple[typing.Any, ...]:
        *found, fingerprint = _attention(**self.arguments(arrays), return_row_max=True, return_row_sum=True,
                                         return_fingerprint=True)
        return *found, numpy.frombuffer(fingerprint, numpy.uint8)


@dataclasses.dataclass(frozen=True)
class _Backward:
    """The callback of the backward pass."""

    forward: _Forward

    def __call__(self, context: typing.Any, row_max: typing.Any, row_sum: typing.Any, fingerprint: typing.Any,
                 grad_context: typing.Any, *arrays: typing.Any) -> tuple[typing.Any, ...]:
        arguments = self.forward.arguments(arrays)
        arguments.pop("dtype", None)
        saved = [numpy.asarray(array) for array in (context, row_max, row_sum, grad_context)]
        gradients: typing.Any = ["grad_" + name for name in self.forward.names if name in _DIFFERENTIABLE]
        found = _attention_backward(arguments.pop("query"), arguments.pop("key"), arguments.pop("value"), *saved,
                                    fingerprint=numpy.asarray(fingerprint).tobytes(), gradients=gradients, **arguments)
        return tuple(found[name] for name in gradients)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _context(call: _Forward, arrays: tuple[typing.Any, ...]) -> typing.Any:
    return _forward(call, arrays)[0]


def _forward(call: _Forward, arrays: tuple[typing.Any, ...]) -> tuple[typing.Any, ...]:
    query, _, value = arrays[:3]
    rows, computed = query.shape[:-1], _computed_with(query.dtype)
    results = (_Shape((*rows, value.shape[-1]), dict(call.options).get("dtype", query.dtype)),
               _Shape(rows, computed), _Shape(rows, computed),
               _Shape((64,), jnp.uint8))
    return tuple(jax.pure_callback(call, results, *arrays, vmap_method="sequential"))


def _computed_with(dtype: typing.Any) -> typing.Any:
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _forward_rule(call: _Forward, arrays: tuple[typing.Any, ...]) -> tuple[typing.Any, typing.Any]:
    context, *state = _forward(call, arrays)
    return context, (context, *state, arrays)


def _backward_rule(call: _Forward, saved: typing.Any, grad_context: typing.Any) -> typing.Any:
    context, row_max, row_sum, fingerprint, arrays = saved
    of = [index for index, name in enumerate(call.names) if name in _DIFFERENTIABLE]
    query = arrays[0]
    # The gradients of query, key and value have the type of query; the other gradients have the compute type.
    results = [_Shape(arrays[index].shape, query.dtype if index < 3 else _computed_with(query.dtype))
               for index in of]
    found = jax.pure_callback(_Backward(call), results, context, row_max, row_sum, fingerprint, grad_context, *arrays,
                              vmap_method="sequential")
    gradients: list[typing.Any] = [None] * len(arrays)
    for index, gradient in zip(of, found):
        gradients[index] = gradient.astype(arrays[index].dtype)
    return (tuple(gradients),)


_context.defvjp(_forward_rule, _backward_rule)


def _constant(value: typing.Any) -> typing.Any:
    return tuple(map(_constant, value)) if isinstance(value, list) else value


@with_hints
def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, dtype: typing.Any = None, **options: Unpack[AttentionOptions],
) -> jax.Array:
    """Compute scaled dot-product attention as :func:`regard.attention` does, under JAX transformations.

    Parameters
    ----------
    query : jax.Array, shape (B, H, L, D)
        Queries: float32, bfloat16, float16 or float64. Rank 2 or 3 is also accepted, as in :func:`regard.attention`.
    key, value : jax.Array, shapes (B, Hkv, S, D) and (B, Hkv, S, Dv)
        Keys and values, with types as in :func:`regard.attention`.
    dtype : dtype or str, optional
        The type of the context: query's type (the default) or, if query is bfloat16 or float16, also float32.
    **options
        The options for :func:`regard.attention`: causal, window, mask, bias, scale and so on. Array-valued options may
        be traced; all other options are constants of the compiled function.

    Returns
    -------
    context : jax.Array, shape (B, H, L, Dv)

    Raises
    ------
    ValueError
        If the shapes or types of query, key and value are invalid. Errors in the values of options are raised when the
        compiled function runs.
    TypeError
        If an option does not exist.

    Notes
    -----
    The function is differentiable once, in reverse mode, with respect to query, key, value, bias and sinks;
    alibi_slopes are treated as constants. Equal calls are compiled only once. Under ``jax.vmap``, the entries are
    computed one after another; using the batch axis of query is faster.

    Examples
    --------
    >>> import jax, numpy as np, regard.jax
    >>> q = k = v = jax.numpy.asarray(np.random.default_rng(0).standard_normal((1, 2, 4, 8), dtype=np.float32))
    >>> jax.jit(lambda q: regard.jax.attention(q, k, v, causal=True))(q).shape
    (1, 2, 4, 8)
    >>> jax.grad(lambda q: regard.jax.attention(q, k, v, causal=True).sum())(q).shape
    (1, 2, 4, 8)
    """
    given: dict[str, typing.Any] = {name: option for name, option in options.items() if option is not None}
    unknown = given.keys() - _OPTIONS
    if unknown:
        raise TypeError(f"attention() got an unexpected keyword argument '{min(unknown)}'")
    if dtype is not None:
        given["dtype"] = dtype_name(dtype)
    arrays = {"query": jnp.asarray(query), "key": jnp.asarray(key), "value": jnp.asarray(value)}
    _check(tuple(arrays.values()), given.get("dtype"))
    for name in list(given):
        if isinstance(given[name], (jax.Array, numpy.ndarray)):
            arrays[name] = jnp.asarray(given.pop(name))
    if "sinks" in given:
        arrays["sinks"] = jnp.asarray(given.pop("sinks"), _computed_with(arrays["query"].dtype))
    constants = tuple(sorted((name, _constant(option)) for name, option in given.items()))
    return typing.cast(jax.Array, _context(_Forward(tuple(arrays), constants), tuple(arrays.values())))


_OPTIONS = frozenset(_attention.__wrapped__.__kwdefaults__) - {  # type: ignore[attr-defined]
    "out", "row_max", "row_sum", "lse", "weights", "sink_weights", "return_row_max", "return_row_sum", "return_lse",
    "return_weights", "return_sink_weights", "return_fingerprint", "dtype"}


def _check(arrays: tuple[jax.Array, ...], dtype: str | None) -> None:
    """Reject invalid shapes and types when a function is traced, by planning the call with zero-stride arrays."""
    alike = [numpy.broadcast_to(numpy.zeros((), array.dtype), array.shape) for array in arrays]
    _regard.plan(_regard.attention_forward, *alike, **({} if dtype is None else {"dtype": dtype}))
