# SPDX-License-Identifier: Apache-2.0
"""Attention over ranks with gradients, for PyTorch: an autograd function whose passes are collective calls.

    rank 0   query rows, key rows ──▶ context rows ──▶ loss ──▶ grad_context rows ──▶ gradients of its rows and keys
    rank 1   …

Read next: distributed.py.
"""

from __future__ import annotations

import torch

from . import attention as _attention
from . import attention_backward as _attention_backward

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any

_STATE = ("row_max", "row_sum")
_GIVEN = ("out", "row_max", "row_sum", "lse", "weights", "sink_weights")


def _plain(tensor: Any) -> Any:
    return tensor.detach() if getattr(tensor, "requires_grad", False) else tensor


def attention(group: Any, query: Any, key: Any, value: Any, options: dict[str, Any]) -> Any:
    """Compute regard.distributed.attention if a tensor requires a gradient. It is called through group.call()."""
    if not torch.is_grad_enabled():
        plain = {name: _plain(option) for name, option in options.items()}
        return _attention(_plain(query), _plain(key), _plain(value), **plain)
    given = [name for name in _GIVEN if options.get(name) is not None]
    if given:
        raise ValueError(f"attention_forward: {given[0]} is given, and a tensor requires a gradient; expected "
                         f"{'a new context' if given[0] == 'out' else f'return_{given[0]}=True'}")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 4:
            raise ValueError(f"attention_forward: {name} is not a PyTorch tensor with four axes; expected one, because a "
                             "tensor requires a gradient")
    results: list[Any] = []
    context = _Attention.apply(results, group, options, query, key, value, options.get("bias"), options.get("sinks"))
    result = results[0]
    return context if result is None else result._replace(context=context)


class _Attention(torch.autograd.Function):
    """Returns the context; `results` receives the named tuple of results, or None if only the context was requested."""

    @staticmethod
    def forward(
        ctx: Any, results: list[Any], group: Any, options: dict[str, Any], query: Any, key: Any, value: Any, bias: Any,
        sinks: Any,
    ) -> Any:
        query, key, value = (_plain(tensor) for tensor in (query, key, value))
        own = {name: option for name, option in options.items() if not name.startswith("return_")}
        own.update((name, _plain(array)) for name, array in (("bias", bias), ("sinks", sinks)) if array is not None)
        requested = {name for name in options if name.startswith("return_") and options[name]}
        returned = requested | {f"return_{name}" for name in _STATE}
        found = _attention(query, key, value, **own, **dict.fromkeys(sorted(returned), True))
        ctx.group, ctx.options = group, {name: option for name, option in own.items() if name not in ("dtype", "bias")}
        ctx.save_for_backward(query, key, value, bias, found.context, found.row_max, found.row_sum)
        results.append(_requested(found, requested) if requested else None)
        return found.context

    @staticmethod
    def backward(ctx: Any, grad_context: Any) -> Any:
        query, key, value, bias, context, row_max, row_sum = ctx.saved_tensors
        of_bias, of_sinks = ctx.needs_input_grad[6:8]
        options = dict(ctx.options, gradients=["grad_query", "grad_key", "grad_value"] + ["grad_bias"] * of_bias
                       + ["grad_sinks"] * of_sinks, fingerprint="unchecked")
        if bias is not None:
            options["bias"] = _plain(bias)
        found = ctx.group.call("attention_backward", _attention_backward, query, key, value, _plain(context), row_max,
                               row_sum, _plain(grad_context), **options)
        return (None, None, None, found["grad_query"], found["grad_key"], found["grad_value"],
                found["grad_bias"].to(bias.dtype) if of_bias else None, found["grad_sinks"] if of_sinks else None)


def _requested(found: Any, requested: set[str]) -> Any:
    """The named tuple without the state that is needed only for gradients."""
    from .named_results import result_class

    fields = tuple(name for name in found._fields if name == "context" or f"return_{name}" in requested)
    return result_class(fields)._make(getattr(found, name) for name in fields)
