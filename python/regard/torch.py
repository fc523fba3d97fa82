# SPDX-License-Identifier: Apache-2.0
"""Regard under PyTorch: scaled_dot_product_attention, with PyTorch's signature and semantics.

    import regard.torch
    with regard.torch.patched():
        model(inputs)        # torch.nn.functional.scaled_dot_product_attention is Regard's for CPU tensors

The function is differentiable, and torch.compile treats it as one opaque operator. Calls that it cannot compute are
rejected with a message that states the cause; it never falls back to PyTorch.

    plain eager mode           _Eager or, without gradients, the library itself, with a few microseconds of overhead
    torch.compile, modes …     the operators regard::attention and regard::attention_backward, which make the same calls

Read next: python/attention.cpp, python/backward.cpp.
"""

import collections.abc
import contextlib
import threading

import torch
from torch.autograd import forward_ad

from . import _regard

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_FINGERPRINT_BYTES = 64
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_num_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_transforms = torch._C._functorch.get_interpreter_stack
_DERIVATIVES = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)
_trace = torch._C._get_tracing_state


def _reject(what):
    raise ValueError(f"regard.torch.scaled_dot_product_attention: {what}")


def _plain(tensor):
    """The tensor that the library reads: a view of the same memory without autograd history."""
    return tensor.detach() if tensor is not None and tensor.requires_grad else tensor


def _options(mask, bias, sinks, seed, dropout, causal, scale, soft_cap):
    options = {"causal": "top_left"} if causal else {}
    if scale is not None:
        options["scale"] = scale
    if soft_cap is not None:
        options["soft_cap"] = soft_cap
    if dropout:
        options |= {"dropout": dropout, "dropout_seed": int(seed)}
    if mask is not None:
        options["mask"] = mask
    if bias is not None:
        options["bias"] = _plain(bias)
    if sinks is not None:
        options["sinks"] = _plain(sinks)
    return options


def _computed_with(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def _forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    seed: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    soft_cap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    *found, fingerprint = _regard.attention_forward(
        _plain(query), _plain(key), _plain(value), return_row_max=True, return_row_sum=True, return_fingerprint=True,
        **_options(mask, bias, sinks, seed, dropout, causal, scale, soft_cap))
    return *found, torch.frombuffer(bytearray(fingerprint), dtype=torch.uint8)


_attention = torch.library.custom_op("regard::attention", _forward, mutates_args=(), device_types="cpu")


@_attention.register_fake
def _(query, key, value, mask, bias, sinks, seed, dropout, causal, scale, soft_cap):
    row, computed = query.shape[:-1], _computed_with(query.dtype)
    return (query.new_empty((*row, value.shape[-1])), query.new_empty(row, dtype=computed),
            query.new_empty(row, dtype=computed), query.new_empty(_FINGERPRINT_BYTES, dtype=torch.uint8))


def _backward(
    grad_context: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    seed: torch.Tensor | None,
    context: torch.Tensor,
    row_max: torch.Tensor,
    row_sum: torch.Tensor,
    fingerprint: torch.Tensor,
    dropout: float,
    causal: bool,
    scale: float | None,
    soft_cap: float | None,
    of_bias: bool,
    of_sinks: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    gradients = ["grad_query", "grad_key", "grad_value"]
    gradients += ["grad_bias"] * of_bias + ["grad_sinks"] * of_sinks
    found = _regard.attention_backward(
        _plain(query), _plain(key), _plain(value), _plain(context), row_max, row_sum, _plain(grad_context),
        fingerprint=bytes(fingerprint.numpy()), gradients=gradients,
        **_options(mask, bias, sinks, seed, dropout, causal, scale, soft_cap))
    return (found["grad_query"], found["grad_key"], found["grad_value"],
            found["grad_bias"].to(bias.dtype) if of_bias else query.new_empty(0),
            found["grad_sinks"] if of_sinks else query.new_empty(0))


_attention_backward = torch.library.custom_op("regard::attention_backward", _backward, mutates_args=(), device_types="cpu")


@_attention_backward.register_fake
def _(grad_context, query, key, value, mask, bias, sinks, seed, context, row_max, row_sum, fingerprint, dropout,
      causal, scale, soft_cap, of_bias, of_sinks):
    def like(tensor):
        return tensor.new_empty(tensor.shape)

    return (like(query), like(key), like(value), like(bias) if of_bias else query.new_empty(0),
            like(sinks) if of_sinks else query.new_empty(0))


def _save(ctx, inputs, output):
    query, key, value, mask, bias, sinks, seed, *ctx.options = inputs
    context, row_max, row_sum, fingerprint = output
    ctx.mark_non_differentiable(row_max, row_sum, fingerprint)
    ctx.save_for_backward(query, key, value, mask, bias, sinks, seed, context, row_max, row_sum, fingerprint)


def _gradients(ctx, grad_context, *_):
    return _gradients_by(_attention_backward, grad_context, ctx.saved_tensors, ctx.options, ctx.needs_input_grad[4:6])


def _gradients_by(call, grad_context, saved, options, needed):
    of_bias, of_sinks = needed
    grad_query, grad_key, grad_value, grad_bias, grad_sinks = call(grad_context, *saved, *options, of_bias, of_sinks)
    return (grad_query, grad_key, grad_value, None, grad_bias if of_bias else None, grad_sinks if of_sinks else None,
            None, None, None, None, None)


_attention.register_autograd(_gradients, setup_context=_save)


class _Eager(torch.autograd.Function):
    """The operator regard::attention without the overhead of PyTorch's dispatcher; it returns only the context.

    row_max and row_sum are appended to the list `rows`.
    """

    @staticmethod
    def forward(ctx, rows, *inputs):
        context, row_max, row_sum, fingerprint = _forward(*inputs)
        rows += row_max, row_sum
        ctx.options = inputs[7:]
        ctx.save_for_backward(*inputs[:7], context, row_max, row_sum, fingerprint)
        return context

    @staticmethod
    def backward(ctx, grad_context):
        saved = ctx.saved_tensors
        # If second derivatives are requested, the operator is called, because it rejects them.
        watched = torch.is_grad_enabled() or _watched(grad_context, *saved[:3])
        call = _attention_backward if watched else _backward
        return None, *_gradients_by(call, grad_context, saved, ctx.options, ctx.needs_input_grad[5:7])


# Function.apply also checks every input for active transforms. _apply is called only if no transform is active.
_apply = super(torch.autograd.Function, _Eager).apply


def _watched(*tensors):
    """Whether a compiler, mode or transform is observing operators, or a tensor is not plain memory."""
    if torch.compiler.is_compiling():
        return True
    if _num_modes() or _transform() is not None or _trace() is not None or forward_ad._current_level >= 0:
        return True
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _TENSORS or tensor.is_neg()):
            return True
    return False


def _reject_other_derivatives(tensors):
    """Reject derivatives for which PyTorch would treat the operator as constant or fail without stating the cause."""
    if torch.compiler.is_compiling():
        return
    if any(transform.key() in _DERIVATIVES for transform in _transforms() or ()):
        _reject("a transform of torch.func (grad, vjp, jvp, jacrev …) is active; expected torch.autograd.grad or backward()")
    if forward_ad._current_level >= 0:
        for tensor in tensors:
            if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
                _reject("a tensor has a tangent for forward-mode derivatives; expected torch.autograd.grad or backward()")


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    soft_cap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute attention with a single PyTorch operator.

    Parameters
    ----------
    query : Tensor, shape (B, H, L, D)
        Queries: float32, float64, bfloat16 or float16, on the CPU.
    key, value : Tensor, shapes (B, Hkv, S, D) and (B, Hkv, S, Dv)
        Keys and values, of the same type as query.
    mask : Tensor of bool, broadcastable to (B, H, L, S), optional
        True marks visible keys. Each extent must be that of (B, H, L, S) or 1.
    bias : Tensor, broadcastable to (B, H, L, S), optional
        Values added to the scores.
    sinks : Tensor, shape (H,), optional
        Attention sinks: float32 (float64 if query is float64).
    dropout : float, default 0.0
        The dropout probability. The seed is drawn from PyTorch's generator.
    causal : bool, default False
        Whether to apply a causal mask with top-left alignment.
    scale : float, optional
        The factor applied to the scores; ``1 / √D`` by default.
    soft_cap : float, optional
        The soft cap of the scores.

    Returns
    -------
    context : Tensor, shape (B, H, L, Dv)
        The context, differentiable with respect to query, key, value, bias and sinks.
    row_max, row_sum : Tensor, shape (B, H, L)
        The softmax state, as returned by :func:`regard.attention`. It is not differentiable.

    Raises
    ------
    ValueError
        If the arguments are invalid, or if a transform of ``torch.func`` differentiates the call.
    """
    seed = torch.randint(1 << 62, ()) if dropout else None
    inputs = query, key, value, mask, bias, sinks, seed, float(dropout), causal, scale, soft_cap
    if _watched(query, key, value, mask, bias, sinks):
        _reject_other_derivatives((query, key, value, bias, sinks))
        return _attention(*inputs)[:3]
    if not _learns(query, key, value, bias, sinks):
        return _forward(*inputs)[:3]
    rows = []
    return _apply(rows, *inputs), *rows


def _learns(*tensors):
    """Whether autograd must record an operation on these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _cast_as_autocast_does(tensors):
    dtype = torch.get_autocast_dtype("cpu")
    lower = (torch.float32, torch.bfloat16, torch.float16)
    return [tensor.to(dtype) if tensor is not None and tensor.dtype in lower else tensor for tensor in tensors]


def _reject_types(**arguments):
    name, given = next((name, given) for name, given in arguments.items() if not isinstance(given, torch.Tensor))
    raise TypeError(f"regard.torch.scaled_dot_product_attention: {name} is of type {type(given).__name__}; "
                    "expected a PyTorch tensor")


def _check(query, key, value, attn_mask, dropout_p, is_causal):
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if tensor is None:
            continue
        if not tensor.is_cpu:
            _reject(f"{name} is on {tensor.device}; expected a CPU tensor")
        if tensor.layout != torch.strided or tensor.is_nested:
            _reject(f"{name} is {'nested' if tensor.is_nested else tensor.layout}; expected a dense tensor")
        if tensor is not attn_mask and tensor.dim() < 2:
            _reject(f"{name} has {tensor.dim()} axes; expected at least 2, (L, D)")
        if tensor is not attn_mask and tensor.dtype not in _FLOATS:
            _reject(f"{name} has type {tensor.dtype}; expected float32, float64, bfloat16 or float16")
    if not query.dtype == key.dtype == value.dtype:
        _reject(f"query, key and value have types {query.dtype}, {key.dtype}, {value.dtype}; expected one type")
    if attn_mask is not None:
        if is_causal and dropout_p:
            _reject(f"attn_mask and is_causal are both given, with dropout_p {dropout_p}; expected only one of them, as in "
                    "PyTorch with dropout")
        if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
            _reject(f"attn_mask has type {attn_mask.dtype}; expected torch.bool, torch.float32 or query's {query.dtype}")
    if not 0 <= dropout_p <= 1:
        _reject(f"dropout_p is {dropout_p}; expected 0 to 1")


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute ``softmax(scale · query · keyᵀ + attn_mask) · value`` with PyTorch's signature and semantics.

    Parameters
    ----------
    query : Tensor, shape (…, H, L, D)
        Queries: float32, float64, bfloat16 or float16, on the CPU.
    key, value : Tensor, shapes (…, Hkv, S, D) and (…, Hkv, S, Dv)
        Keys and values, of the same type as query.
    attn_mask : Tensor, broadcastable to (…, H, L, S), optional
        A boolean mask, in which True marks visible keys, or values that are added to the scores.
    dropout_p : float, default 0.0
        The dropout probability. The seed is drawn from PyTorch's generator, but the dropped weights differ from those
        that PyTorch would drop.
    is_causal : bool, default False
        Whether to apply a causal mask with top-left alignment. It can be combined with attn_mask unless dropout_p is
        set.
    scale : float, optional
        The factor applied to the scores; ``1 / √D`` by default.
    enable_gqa : bool, default False
        Whether key and value may have fewer heads than query. Hkv must divide H.

    Returns
    -------
    Tensor, shape (…, H, L, Dv)
        The context, which is differentiable once. The row of a query without a visible key is 0.

    Raises
    ------
    ValueError
        If the call cannot be computed. The function never falls back to PyTorch.
    TypeError
        If an argument is not a tensor.

    Notes
    -----
    Tensors with more than four axes are copied if their strides do not allow a single view.

    Examples
    --------
    >>> import torch, regard.torch
    >>> q, k, v = (torch.randn(1, 8, 128, 64) for _ in range(3))
    >>> regard.torch.scaled_dot_product_attention(q, k, v, is_causal=True).shape
    torch.Size([1, 8, 128, 64])
    """
    tensor = torch.Tensor
    if not (isinstance(query, tensor) and isinstance(key, tensor) and isinstance(value, tensor)
            and (attn_mask is None or isinstance(attn_mask, tensor))):
        _reject_types(query=query, key=key, value=value, attn_mask=query if attn_mask is None else attn_mask)
    if torch.is_autocast_enabled("cpu"):
        query, key, value, attn_mask = _cast_as_autocast_does([query, key, value, attn_mask])
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    fitting = query.dim() == key.dim() == value.dim() == 4 and query.shape[0] == key.shape[0] == value.shape[0]
    if not fitting or key.shape[1] != value.shape[1] or not enable_gqa and key.shape[1] != query.shape[1]:
        query, key, value, attn_mask, restored = _broadcast(query, key, value, attn_mask, enable_gqa)
    else:
        restored = None
    mask = bias = None
    if attn_mask is not None:
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        mask, bias = (attn_mask, None) if attn_mask.dtype == torch.bool else (None, attn_mask)
    if dropout_p or _learns(query, key, value, bias) or _watched(query, key, value, attn_mask):
        context, _, _ = attention(query, key, value, mask, bias, None, dropout_p, bool(is_causal), scale)
    else:
        context = _regard.attention_forward(_plain(query), _plain(key), _plain(value),
                                            **_options(mask, bias, None, None, 0.0, is_causal, scale, None))
    return context if restored is None else context.reshape(restored + context.shape[-2:])


def _broadcast(query, key, value, attn_mask, enable_gqa):
    """The tensors with four axes and the required numbers of heads, and the axes of the result before its last two."""
    try:
        shape = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    except RuntimeError:
        _reject(f"query, key and value have shapes {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}; "
                "expected axes before the last three that broadcast")
    heads, of_key, of_value = (tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (query, key, value))
    if of_key != of_value and 1 not in (of_key, of_value):
        if not enable_gqa or not of_key or not of_value or heads % of_key or heads % of_value:
            _reject(f"key has {of_key} heads and value {of_value}; expected the same number"
                    + (f", or divisors of query's {heads}" if enable_gqa else ", or enable_gqa=True"))
        # key and value have different numbers of query heads per head.
        key, value = (tensor.repeat_interleave(heads // tensor.shape[-3], -3) for tensor in (key, value))
        of_key = of_value = heads
    key_heads = max(of_key, of_value)
    if not enable_gqa and key_heads not in (1, heads):
        if heads != 1:
            _reject(f"query has {heads} heads and key and value {key_heads}; expected the same number, or enable_gqa=True")
        heads = key_heads

    def four_axes(tensor, num_heads):
        tensor = tensor[(None,) * (3 - tensor.dim())]
        if tensor.shape[:-3] != shape or tensor.shape[-3] != num_heads:
            tensor = tensor.expand(*shape, num_heads, -1, -1)
        return tensor[None] if tensor.dim() == 3 else tensor.flatten(0, -4) if tensor.dim() > 4 else tensor

    if attn_mask is not None and (attn_mask.dim() > 4 or len(shape) > 1):
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        attn_mask = attn_mask.expand(*shape, *attn_mask.shape[-3:]).flatten(0, -4)
    axes = max(query.dim(), key.dim(), value.dim())
    restored = (*shape, heads) if axes > 2 else ()
    return four_axes(query, heads), four_axes(key, key_heads), four_axes(value, key_heads), attn_mask, restored


_lock = threading.Lock()
_depth = 0
_original = None


@contextlib.contextmanager
def patched() -> collections.abc.Iterator[None]:
    """Replace ``torch.nn.functional.scaled_dot_product_attention`` with Regard's for CPU tensors, within a context.

    The replacement applies to the whole process. Calls with a tensor on another device are passed to PyTorch. Modules
    that imported the function by name earlier keep using the original, and so do PyTorch's fused transformer layers.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import torch, regard.torch
    >>> q, k, v = (torch.randn(1, 8, 128, 64) for _ in range(3))
    >>> with regard.torch.patched():
    ...     torch.nn.functional.scaled_dot_product_attention(q, k, v).shape
    torch.Size([1, 8, 128, 64])
    """
    global _depth, _original
    functional = torch.nn.functional
    with _lock:
        if _depth == 0:
            _original = functional.scaled_dot_product_attention
            original = _original

            def chosen(query, *args, **kwargs):
                ours = query.device.type == "cpu"
                return (scaled_dot_product_attention if ours else original)(query, *args, **kwargs)

            functional.scaled_dot_product_attention = chosen
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                functional.scaled_dot_product_attention = _original
