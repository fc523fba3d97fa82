# SPDX-License-Identifier: Apache-2.0
"""Conversion of arguments for calls to the extension: options, types by name, and hints.

    given_options     the options that differ from their defaults, by name; the extension validates them
    given_arrays      the arrays that were given, by name
    requested_outputs the outputs that a call requests, and the names of its results
    dtype_name        "float32" for numpy.float32, torch.float32, jax.numpy.float32 and their dtype objects
    direct            a faster path for calls whose arguments need no conversion
    with_hints        states Regard's option in the TypeError for a keyword of another library

Read next: attention_operators.py.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Protocol, TypeVar

    from typing_extensions import Buffer

    class _WithDlpack(Protocol):
        def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    class _WithShape(Protocol):
        @property
        def ndim(self) -> int: ...

    # An array of any library: NumPy, PyTorch, JAX, or anything with the buffer protocol or DLPack.
    AnyArray = Any
    Alignment = Literal["top_left", "bottom_right"]
    Integers = Sequence[int] | Buffer | _WithDlpack | _WithShape
    Floats = Sequence[float] | Buffer | _WithDlpack | _WithShape
    # A name, or a dtype object or scalar type of NumPy, PyTorch, JAX or ml_dtypes.
    DType = Any
    Function = TypeVar("Function", bound=Callable[..., Any])

_ORIGIN = (0, 0, 0)

# Keywords of other libraries, and the corresponding options of Regard.
_HINTS = {
    "attn_mask": "use mask= for a boolean mask (True = visible), and bias= for values that are added to the scores",
    "attention_mask": "use mask= for a boolean mask (True = visible), and bias= for values that are added to the scores",
    "key_padding_mask": "for padding, use key_lengths= (the number of valid keys per batch entry) or mask= (True = visible)",
    "is_causal": "for causal masking, use causal=True, or causal='top_left' or 'bottom_right' if L and S differ",
    "dropout_p": "use dropout= for the dropout probability",
    "enable_gqa": "grouped heads need no option: key and value may have fewer heads than query",
    "softmax_scale": "use scale= for the factor applied to the scores",
    "scaling": "use scale= for the factor applied to the scores",
    "window_size": "for a sliding window, use window=(left, right), where None means no limit",
    "softcap": "use soft_cap= for the soft cap on the scores",
    "logits_soft_cap": "use soft_cap= for the soft cap on the scores",
    "s_aux": "use sinks= for attention sinks",
    "need_weights": "use return_weights=True to return the weights",
    "return_attn_probs": "use return_weights=True to return the weights",
}


def with_hints(function: Function) -> Function:
    """Decorator that raises TypeError with the name of Regard's option for a keyword of another library."""
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            for name in kwargs:
                if name in _HINTS:
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'; "
                                    f"{_HINTS[name]}") from None
            raise

    return functools.wraps(function)(call)  # type: ignore[return-value]


def direct(operator: Any) -> Callable[[Function], Function]:
    """Decorator that passes calls whose arguments need no conversion directly to the extension's `operator`.

    Python takes about 20 ns to fill in the default of a keyword. For forty keywords, this is half the duration of a
    short call.
    """
    def decorate(function: Function) -> Function:
        hinted = with_hints(function)
        names = function.__kwdefaults__ or {}
        plain = frozenset(name for name in names if name != "dtype" and not name.startswith("return_"))

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 3 and plain.issuperset(kwargs):
                return operator(*args, **kwargs)
            return hinted(*args, **kwargs)

        return functools.wraps(function)(call)  # type: ignore[return-value]

    return decorate


def dtype_name(dtype: DType) -> str:
    """The name of an element type, given as a dtype object or a scalar type. A str is returned unchanged."""
    if isinstance(dtype, str):
        return dtype
    name = dtype.__name__ if isinstance(dtype, type) else getattr(dtype, "name", dtype)
    return str(name).rpartition(".")[2]


def given_options(
    causal: Any, query_offset: Any, window: Any, key_lengths: Any, query_starts: Any, key_starts: Any, query_segments: Any,
    key_segments: Any, prefix: Any, block_mask: Any, block_size: Any, mask: Any, bias: Any, alibi_slopes: Any, sinks: Any,
    soft_cap: Any, scale: Any, dropout: Any, dropout_seed: Any, dropout_first: Any, weights_in_float32: Any, num_threads: Any,
) -> dict[str, Any]:
    """The options for attention that differ from their defaults, by name."""
    options: dict[str, Any] = {}
    if causal is not False:
        options["causal"] = causal
    if query_offset is not None:
        options["query_offset"] = query_offset
    if window is not None:
        options["window"] = window
    if key_lengths is not None:
        options["key_lengths"] = key_lengths
    if query_starts is not None:
        options["query_starts"] = query_starts
    if key_starts is not None:
        options["key_starts"] = key_starts
    if query_segments is not None:
        options["query_segments"] = query_segments
    if key_segments is not None:
        options["key_segments"] = key_segments
    if prefix is not None:
        options["prefix"] = prefix
    if block_mask is not None:
        options["block_mask"] = block_mask
    if block_size is not None:
        options["block_size"] = block_size
    if mask is not None:
        options["mask"] = mask
    if bias is not None:
        options["bias"] = bias
    if alibi_slopes is not None:
        options["alibi_slopes"] = alibi_slopes
    if sinks is not None:
        options["sinks"] = sinks
    if soft_cap is not None:
        options["soft_cap"] = soft_cap
    if scale is not None:
        options["scale"] = scale
    # Only Python numbers are compared: an array has no truth value.
    if type(dropout) is not float or dropout:
        options["dropout"] = dropout
    if type(dropout_seed) is not int or dropout_seed:
        options["dropout_seed"] = dropout_seed
    if type(dropout_first) is not tuple or dropout_first != _ORIGIN:
        options["dropout_first"] = dropout_first
    if weights_in_float32 is not None:
        options["weights_in_float32"] = weights_in_float32
    if type(num_threads) is not int or num_threads:
        options["num_threads"] = num_threads
    return options


def given_arrays(**arrays: Any) -> dict[str, Any]:
    """The arrays that are not None, by name."""
    return {name: array for name, array in arrays.items() if array is not None}


def requested_outputs(
    options: dict[str, Any], out: Any, dtype: DType | None, row_max: Any, row_sum: Any, lse: Any, weights: Any, sink_weights: Any,
    return_row_max: bool, return_row_sum: bool, return_lse: bool, return_weights: bool, return_sink_weights: bool,
    return_fingerprint: bool,
) -> tuple[str, ...]:
    """Adds the outputs that a call requests to its options, and returns the names of its results, in order."""
    fields: tuple[str, ...] = ("context",)
    if out is not None:
        options["out"] = out
    if dtype is not None:
        options["dtype"] = dtype_name(dtype)
    if row_max is not None:
        options["row_max"] = row_max
    if row_sum is not None:
        options["row_sum"] = row_sum
    if lse is not None:
        options["lse"] = lse
    if weights is not None:
        options["weights"] = weights
    if sink_weights is not None:
        options["sink_weights"] = sink_weights
    if return_row_max:
        options["return_row_max"] = True
        fields += ("row_max",)
    if return_row_sum:
        options["return_row_sum"] = True
        fields += ("row_sum",)
    if return_lse:
        options["return_lse"] = True
        fields += ("lse",)
    if return_weights:
        options["return_weights"] = True
        fields += ("weights",)
    if return_sink_weights:
        options["return_sink_weights"] = True
        fields += ("sink_weights",)
    if return_fingerprint:
        options["return_fingerprint"] = True
        fields += ("fingerprint",)
    return fields
