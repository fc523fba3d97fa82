# SPDX-License-Identifier: Apache-2.0
"""The ONNX Attention operator, opsets 23 to 25, on NumPy arrays, with its inputs, attributes, outputs and rules.

    Q (B, Hq, Sq, D), K (B, Hkv, Skv, D), V (B, Hkv, Skv, Dv)
    Q (B, Sq, Hq·D), K (B, Skv, Hkv·D), V (B, Skv, Hkv·Dv)       with q_num_heads and kv_num_heads

K is appended to past_key, and V to past_value. Query i is at position i + past length or, with nonpad_kv_seqlen, at
i + nonpad_kv_seqlen[b] − Sq.

16-bit inputs are converted to float32, so results may be closer to the exact values than those of the standard's
reference implementation. Arguments that the opset does not define are rejected. Read next: docs/guide/python.md.
"""

from __future__ import annotations

import operator as _operator
import typing as _typing
from collections.abc import Sequence as _Sequence

import numpy as _np
import numpy.typing as _npt

from . import _regard

_Array = _npt.NDArray[_typing.Any]
_FLOAT64 = 11  # TensorProto.DOUBLE
_PRECISIONS = (None, 1, 10, _FLOAT64, 16)


def _reject(what: str) -> _typing.NoReturn:
    raise ValueError(f"onnx.attention: {what}")


def _whole(name: str, value: _typing.SupportsIndex) -> int:
    try:
        return _operator.index(value)
    except TypeError:
        raise TypeError(f"onnx.attention: {name} is of type {type(value).__name__}; expected an integer") from None


def _heads(name: str, array: _Array, count: int | None, attribute: str) -> _Array:
    """A view of (B, S, heads · size) as (B, heads, S, size)."""
    number = 0 if count is None else _whole(attribute, count)
    if number < 1 or array.shape[2] % number:
        _reject(f"{name} has shape {array.shape} and {attribute} is {count}; expected a positive divisor of {array.shape[2]}")
    return array.reshape(*array.shape[:2], number, array.shape[2] // number).transpose(0, 2, 1, 3)


def _joined(name: str, past: _Array, new: _Array) -> _Array:
    """The past and the new keys (or values), concatenated."""
    if past.ndim != 4 or past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
        _reject(f"{name} has shape {past.shape}; expected ({new.shape[0]}, {new.shape[1]}, past length, {new.shape[3]})")
    if past.dtype != new.dtype:
        _reject(f"{name} has type {past.dtype}; expected {new.dtype}, the type of the new elements")
    return _np.concatenate([past, new], 2)


def _options(attn_mask: _Array | None, keys: int, query: _Array, padded: bool) -> dict[str, _Array]:
    """The options mask and bias for attn_mask; −∞ hides a key. With padded, keys without a column are hidden, too."""
    if attn_mask is None:
        return {}
    boolean = attn_mask.dtype == bool
    if not boolean and attn_mask.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        _reject(f"attn_mask has type {attn_mask.dtype}; expected bool or a floating-point type")
    missing = keys - attn_mask.shape[-1] if attn_mask.ndim else 0
    if missing < 0:
        _reject(f"attn_mask has shape {attn_mask.shape}; expected at most {keys} keys")
    if missing and padded:
        attn_mask = _np.concatenate([attn_mask, _np.full((*attn_mask.shape[:-1], missing), False if boolean else -_np.inf,
                                                         attn_mask.dtype)], -1)
    if boolean:
        return {"mask": attn_mask}
    seen = attn_mask != -_np.inf
    bias = attn_mask if attn_mask.dtype == query.dtype else attn_mask.astype(_np.promote_types(query.dtype, "float32"))
    return {"bias": bias} if seen.all() else {"bias": bias, "mask": seen}


def attention(Q: _Array, K: _Array, V: _Array, attn_mask: _Array | None = None, past_key: _Array | None = None,
              past_value: _Array | None = None, nonpad_kv_seqlen: _Array | _Sequence[int] | None = None, *,
              is_causal: int = 0, scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
              q_num_heads: int | None = None, kv_num_heads: int | None = None, qk_matmul_output_mode: int = 0,
              left_window_size: int = -1, right_window_size: int = -1, num_outputs: int = 1,
              opset: int = 25) -> _typing.Any:
    """Compute the ONNX Attention operator, with the argument names of the standard.

    Parameters
    ----------
    Q, K, V : numpy.ndarray
        Arrays of shape (B, Hq, Sq, D), (B, Hkv, Skv, D) and (B, Hkv, Skv, Dv) or, with q_num_heads and kv_num_heads, of
        shape (B, Sq, Hq · D), (B, Skv, Hkv · D) and (B, Skv, Hkv · Dv).
    attn_mask : numpy.ndarray, optional
        A boolean mask, or values that are added to the scores.
    past_key, past_value : numpy.ndarray, optional
        Earlier keys and values, to which K and V are appended.
    nonpad_kv_seqlen : array or sequence of int, shape (B,), optional
        The number of valid keys per batch entry; opset 24 or later.
    is_causal : {0, 1}, default 0
        Whether a query attends only to keys up to its own position.
    scale : float, optional
        The factor applied to the scores; ``1 / √D`` by default.
    softcap : float, default 0.0
        The soft cap of the scores; 0 means none.
    softmax_precision : {1, 10, 11, 16}, optional
        With 11 (double), everything is computed in float64. Other values have no effect.
    q_num_heads, kv_num_heads : int, optional
        The numbers of heads; required for arrays with three axes.
    qk_matmul_output_mode : {0, 1, 2, 3}, default 0
        The kind of scores or weights in the fourth output, as defined by the standard.
    left_window_size, right_window_size : int, default -1
        The numbers of keys before and after its own position to which a query attends (sliding window); −1 means no
        limit. Opset 25 or later.
    num_outputs : int, default 1
        The number of outputs to return, 1 to 4.
    opset : {23, 24, 25}, default 25
        The opset whose rules apply. Arguments that it does not define are rejected.

    Returns
    -------
    Y : numpy.ndarray
        The output. If num_outputs exceeds 1, a tuple of that number of outputs, in this order: Y, present_key,
        present_value, qk_matmul_output.

    Raises
    ------
    ValueError
        If the standard does not allow the arguments, or if the opset does not define them.
    TypeError
        If an array is not a NumPy array, or if a head count or window size is not an integer.

    Examples
    --------
    >>> import numpy as np, regard.onnx
    >>> q, k, v = (np.ones((1, 2, 5, 8), np.float32) for _ in range(3))
    >>> regard.onnx.attention(q, k, v, is_causal=1).shape
    (1, 2, 5, 8)
    """
    for name, given in (("Q", Q), ("K", K), ("V", V), ("attn_mask", attn_mask), ("past_key", past_key),
                        ("past_value", past_value)):
        if not isinstance(given, _np.ndarray) and (given is not None or name in "QKV"):
            raise TypeError(f"onnx.attention: {name} is of type {type(given).__name__}; expected a NumPy array")
    left_window_size = _whole("left_window_size", left_window_size)
    right_window_size = _whole("right_window_size", right_window_size)
    if opset not in (23, 24, 25):
        _reject(f"opset is {opset}; expected 23, 24 or 25")
    if not 1 <= num_outputs <= 4:
        _reject(f"num_outputs is {num_outputs}; expected 1 to 4")
    if softmax_precision not in _PRECISIONS:
        _reject(f"softmax_precision is {softmax_precision}; expected 1, 10, 11 or 16")
    if qk_matmul_output_mode not in (0, 1, 2, 3):
        _reject(f"qk_matmul_output_mode is {qk_matmul_output_mode}; expected 0 to 3")
    if is_causal not in (0, 1):
        _reject(f"is_causal is {is_causal!r}; expected 0 or 1")
    if left_window_size < -1 or right_window_size < -1:
        _reject(f"left_window_size is {left_window_size} and right_window_size {right_window_size}; expected -1 or more")
    if (left_window_size, right_window_size) != (-1, -1) and opset < 25:
        _reject(f"opset {opset} has no window; expected left_window_size and right_window_size to be -1")
    if nonpad_kv_seqlen is not None and opset < 24:
        _reject("opset 23 has no nonpad_kv_seqlen")
    if (past_key is None) != (past_value is None):
        _reject(f"{'past_key' if past_key is None else 'past_value'} is missing; expected both or neither")
    if past_key is not None and nonpad_kv_seqlen is not None:
        _reject("nonpad_kv_seqlen and past_key are both given; expected only one of them")
    flat = Q.ndim == 3
    if not Q.ndim == K.ndim == V.ndim or Q.ndim not in (3, 4):
        _reject(f"Q, K and V have {Q.ndim}, {K.ndim} and {V.ndim} axes; expected 3 or 4, all the same")
    if flat:
        Q = _heads("Q", Q, q_num_heads, "q_num_heads")
        K = _heads("K", K, kv_num_heads, "kv_num_heads")
        V = _heads("V", V, kv_num_heads, "kv_num_heads")
    elif opset >= 25 and (q_num_heads is not None or kv_num_heads is not None):
        _reject("q_num_heads and kv_num_heads apply only to inputs with 3 axes")
    past = 0
    if past_key is not None and past_value is not None:
        new = K.shape[2]
        K, V = _joined("past_key", past_key, K), _joined("past_value", past_value, V)
        past = K.shape[2] - new
    present = K, V
    result_type = Q.dtype
    if K.dtype != result_type:
        _reject(f"K has type {K.dtype}; expected {result_type}, the type of Q")
    # V may have a different type.
    if softmax_precision == _FLOAT64 or _np.float64 in (result_type, V.dtype):
        Q, K, V = (x.astype(_np.float64, copy=False) for x in (Q, K, V))
        attn_mask = attn_mask if attn_mask is None or attn_mask.dtype == bool else attn_mask.astype(_np.float64)
    keys, queries = K.shape[2], Q.shape[2]

    scaled: dict[str, _typing.Any] = {"scale": scale}
    capped = {**scaled, "soft_cap": softcap or None}
    if opset < 24 and attn_mask is not None and attn_mask.ndim and attn_mask.shape[-1] not in (1, keys):
        _reject(f"attn_mask has shape {attn_mask.shape}; opset 23 expects {keys} keys, or 1 for all")
    options = {**capped, **_options(attn_mask, keys, Q, opset >= 24), "causal": bool(is_causal), "query_offset": past}
    if nonpad_kv_seqlen is not None:
        lengths = _np.asarray(nonpad_kv_seqlen)
        if lengths.shape != Q.shape[:1] or lengths.size and lengths.dtype.kind not in "iu":
            _reject(f"nonpad_kv_seqlen has shape {lengths.shape} and type {lengths.dtype}; expected integers of shape "
                    f"{Q.shape[:1]}")
        options["key_lengths"] = lengths.tolist()
        options["query_offset"] = [n - queries for n in options["key_lengths"]]
    if left_window_size >= 0 or right_window_size >= 0:
        options["window"] = tuple(None if n < 0 else n for n in (left_window_size, right_window_size))

    Y: _Array = _np.empty((Q.shape[0], queries, Q.shape[1], V.shape[3]), Q.dtype)  # (B, Sq, Hq, Dv)
    by_head = Y.transpose(0, 2, 1, 3)
    wants_weights = num_outputs == 4 and qk_matmul_output_mode == 3
    found = _regard.attention_forward(Q, K, V, out=by_head, return_weights=wants_weights, **options)
    Y = (Y.reshape(*Y.shape[:2], Y.shape[2] * Y.shape[3]) if flat else by_head).astype(result_type, copy=False)
    if num_outputs == 1:
        return Y
    outputs = [Y, *present]
    if num_outputs == 4:
        if wants_weights:
            numbers = found[1]
        else:
            shown = (scaled, capped, options)[qk_matmul_output_mode]
            shown = {"query_offset": past, **shown}
            numbers = _regard.attention_weights(Q, K, kind="scores", **shown)
        outputs.append(numbers.astype(result_type, copy=False))
    return tuple(outputs[:num_outputs])
